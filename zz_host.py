"""The fast engine on a GPU: its tests, then tokens/s, TTFT, the gap to bare graph replay, and where a turn's time goes.

    python3 zz_host.py                 # on the GPU machine, from the root; 2 minutes, half a minute of them tests
    python3 zz_host.py --no-tests      # the measurements alone
    python3 zz_host.py --dry           # a tiny model on a CPU, its fused steps left out: does the script run?

GPT-2 small, fp16, seeded random weights. One line of JSON a measurement, to "$OUT"/host.jsonl too.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, ".")
DRY = "--dry" in sys.argv
if not DRY and "--no-tests" not in sys.argv:
    tests = ["-m", "pytest", "-q", "-c", "/dev/null", "--rootdir=.", "-m", "gpu", "-p", "no:cacheprovider", "-n", "6"]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *tests, "tests/engine/test_fused.py"], env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False
    )
    print(f"tests: {time.perf_counter() - started:.1f} s", flush=True)
    if done.returncode:
        sys.exit("the tests failed: nothing is timed")

import torch  # noqa: E402

from course.bench.host import watched  # noqa: E402
from course.bench.workload import make_workload  # noqa: E402
from solutions import triton_attention  # noqa: E402
from solutions.batch import Row  # noqa: E402
from solutions.cuda_graphs import Graphs  # noqa: E402
from solutions.engine import Engine  # noqa: E402
from solutions.fast_engine import FastEngine  # noqa: E402
from solutions.fused_decode import Entry, FusedDecoder, Turn  # noqa: E402
from solutions.prompt_graphs import PromptGraphs, Size  # noqa: E402
from solutions.weights import GPT2Config, random_weights  # noqa: E402

if DRY:
    CONFIG = GPT2Config(vocab_size=300, n_positions=128, n_embd=256, n_layer=1, n_head=4)
    DEVICE, SIZES, NEW, ROUNDS, DETAIL = "cpu", (1, 2), 6, 2, (1, 2)
    FusedDecoder._step = FusedDecoder._enter = lambda decoder, size, *long: None  # type: ignore[method-assign, misc]
else:
    CONFIG = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
    DEVICE, SIZES, NEW, ROUNDS = "cuda", (1, 4, 8, 16, 32, 64, 128, 256), 64, 9
    DETAIL = (1, 8, 32, 256)
STANDARD = 8 if not DRY else 2
file = Path(os.environ.get("OUT", "/tmp"), "host.jsonl").open("a", encoding="utf-8")  # noqa: SIM115


def say(what: str, **values: object) -> None:
    line = json.dumps({"what": what, **values})
    print(line, flush=True)
    file.write(line + "\n")
    file.flush()


def spread(values: list[float], digits: int = 1) -> list[float]:
    """Median, p10, p90."""
    ordered = sorted(values)
    tenth = (len(ordered) - 1) // 10
    return [round(each, digits) for each in (statistics.median(values), ordered[tenth], ordered[-1 - tenth])]


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def device_us(calls: list) -> float:
    """The device's time for the calls, in µs."""
    if DEVICE != "cuda":
        start = time.perf_counter()
        for call in calls:
            call()
        return 1e6 * (time.perf_counter() - start)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for call in calls:
        call()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end)


def run(engine: Engine, prompts: list[list[int]], new: int) -> tuple[float, list[float], float, list[list[int]]]:
    """Return the seconds of all, of each first token, between the first news and the last, and the tokens."""
    gc.collect()
    start = time.perf_counter()
    numbers = {engine.add(prompt, new): index for index, prompt in enumerate(prompts)}
    tokens: list[list[int]] = [[] for _ in prompts]
    first = [0.0] * len(prompts)
    while engine.has_work:
        for output in engine.step():
            index = numbers[output.request]
            if output.tokens and not tokens[index]:
                first[index] = time.perf_counter() - start
            tokens[index] += output.tokens
    seconds = time.perf_counter() - start
    assert all(len(each) == new for each in tokens)
    return seconds, first, seconds - min(first), tokens


weights = random_weights(CONFIG, 0, torch.float16, DEVICE)
engine = FastEngine(CONFIG, weights, num_blocks=max(SIZES) * 10, max_running=max(SIZES), steps_per_turn=2 * STANDARD)
engine.steps_per_turn = STANDARD
started = time.perf_counter()
engine.decoder.warm_up()
synchronize()
between = time.perf_counter()
if not DRY:
    engine.prompts.warm_up()
    synchronize()
say(
    "warm-up", decoder_seconds=round(between - started, 2), decoder_graphs=len(engine.decoder._recorded),
    prompts_seconds=round(time.perf_counter() - between, 2), prompts_graphs=len(engine.prompts._replays),
    bytes=torch.cuda.memory_reserved() if DEVICE == "cuda" else 0,
)  # fmt: skip

# The tokens: the first that differ from the plain engine's are counted, not judged (a tie may go either way).
plain = Engine(CONFIG, weights, num_blocks=max(SIZES) * 10, max_running=max(SIZES))
for n in DETAIL:
    prompts = make_workload(n, NEW, CONFIG.vocab_size).prompts
    pairs = zip(run(engine, prompts, NEW)[3], run(plain, prompts, NEW)[3], strict=True)
    say("agreement", requests=n, equal=sum(one == other for one, other in pairs))
del plain


def bare_steps(n: int, prompt_tokens: int, new: int) -> list[float]:
    """µs a step of graph replays alone, over the contexts that `new` tokens after a prompt have."""
    decoder, scheduler = engine.decoder, engine.scheduler
    tables = [engine.new_table() for _ in range(n)]
    for table in tables:
        table.append(prompt_tokens + new)
    entries = [Entry(-1, 1, prompt_tokens, table.blocks) for table in tables]
    replay = decoder._record(min(size for size in decoder.sizes if size >= n)).short
    chunk = [decoder.steps.zero_, *[replay] * STANDARD]
    found, host = [], []
    for _ in range(max(2, ROUNDS)):
        decoder.launch(entries, 1).tokens()
        begin = time.perf_counter()
        count = (new - 1) // STANDARD
        found.append(device_us(chunk * count) / (count * STANDARD))
        synchronize()
        begin = time.perf_counter()
        for _ in range(STANDARD):
            replay()
        host.append(1e6 * (time.perf_counter() - begin) / STANDARD)
        synchronize()
    for table in tables:
        table.free()
    assert not scheduler.has_work
    return [*spread(found), *spread(host)]


for n in SIZES:
    load = make_workload(n, NEW, CONFIG.vocab_size)
    runs = [run(engine, load.prompts, NEW) for _ in range(ROUNDS + 2)][2:]
    rates = [n * NEW / seconds for seconds, *_ in runs]
    firsts = [1e3 * statistics.median(first) for _, first, *_ in runs]
    say("table", requests=n, tokens_per_second=spread(rates, 0), ttft_ms=spread(firsts, 3),
        first_of_all_ms=spread([1e3 * min(first) for _, first, *_ in runs], 3),
        last_first_ms=spread([1e3 * max(first) for _, first, *_ in runs], 3))  # fmt: skip
    # The gap: prompts that one step computes, so that all decode together; from the first news to the last.
    length = 8
    same = [prompt[:1] * length for prompt in load.prompts]
    bare = bare_steps(n, length, NEW)
    runs = [run(engine, same, NEW) for _ in range(ROUNDS + 2)][2:]
    steps = [1e6 * decoding / (NEW - 1) for *_, decoding, _ in runs]
    say("gap", requests=n, engine_step_us=spread(steps), replay_us=bare[:3], host_replay_us=bare[3:],
        gap_us=round(spread(steps)[0] - bare[0], 1))  # fmt: skip


for n in DETAIL:  # the steps of a turn
    prompts = make_workload(n, NEW, CONFIG.vocab_size).prompts
    rates = defaultdict(list)
    for number in range(ROUNDS + 1):
        for steps in (STANDARD // 2, STANDARD, 2 * STANDARD):  # interleaved
            engine.steps_per_turn = steps
            seconds, first, *_ = run(engine, prompts, NEW)
            if number:
                rates[steps].append((n * NEW / seconds, 1e3 * statistics.median(first)))
    engine.steps_per_turn = STANDARD
    for steps, found in rates.items():
        say("steps a turn", requests=n, steps=steps, tokens_per_second=spread([rate for rate, _ in found], 0),
            ttft_ms=spread([first for _, first in found], 3))  # fmt: skip


@contextlib.contextmanager
def timed(places: list[tuple[object, str]]):
    """Note how long each call of these takes, whatever is inside it."""
    times: dict[str, list[float]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        for owner, name in places:
            call = getattr(owner, name)

            label = f"{owner.__name__ if isinstance(owner, type) else type(owner).__name__}.{name}"

            def noting(*arguments, call=call, name=label):
                start = time.perf_counter()
                try:
                    return call(*arguments)
                finally:
                    times[name].append(time.perf_counter() - start)

            own = vars(owner).get(name)
            setattr(owner, name, noting)
            stack.callback(lambda o=owner, a=name, k=own: delattr(o, a) if k is None else setattr(o, a, k))
        yield times


for n in DETAIL:  # where the host's time goes
    prompts = make_workload(n, NEW, CONFIG.vocab_size).prompts
    with watched(engine) as shares:
        seconds, *_ = run(engine, prompts, NEW)
    say("shares", requests=n, **{kind: round(share, 3) for kind, share in shares.of(seconds).items()})
    places = [
        (engine, "step"), (engine.scheduler, "schedule"), (engine.scheduler, "repeat"), (engine, "_sources"),
        (engine.decoder, "launch"), (engine.prompts, "launch"), (engine.prompts, "_fill"), (Turn, "wait"),
        (Turn, "tokens"), (engine, "take"), (engine.scheduler, "free_finished"),
    ]  # fmt: skip
    with timed(places) as times:
        seconds, *_ = run(engine, prompts, NEW)
    for name, found in times.items():
        say("host", requests=n, call=name, calls=len(found), share=round(sum(found) / seconds, 3),
            us=[round(1e6 * each) for each in found[:12]])  # fmt: skip


def prompts_us(engine: FastEngine, n: int, length: int) -> tuple[object, list[float]]:
    """What a step with `n` new prompts of `length` takes the device, each a real one, and its graph's size."""
    tables = [engine.new_table() for _ in range(n)]
    for table in tables:
        table.append(length)
    rows = [Row([7] * length, length, table.blocks, True) for table in tables]
    engine.prompts.launch(rows)
    needed = n * length, n, length
    size = Size(
        *(min(filter(number.__le__, sizes)) for number, sizes in zip(needed, engine.prompts.sizes, strict=True))
    )
    replay = engine.prompts._replays[size]
    found = [device_us([replay]) for _ in range(12)][2:]
    synchronize()
    for table in tables:
        table.free()
    return size, spread(found)


# What a step with prompts takes the device, with tiles of 128, 64 and 32 queries.
graphs_of = engine.prompts
SHAPES = (
    (1, 59),
    (4, 35),
    (8, 32),
    (8, 64),
    (32, 32),
    (32, 35),
    (64, 32),
    (64, 37),
    (128, 32),
    (256, 8),
    (256, 16),
    (4, 500),
)
for name, tile in (("128", (128, 64, 8, 3)), ("64", (64, 64, 4, 3)), ("32", (32, 64, 4, 3)), ("32x2", (32, 64, 2, 3))):
    if DRY and name != "128":
        continue
    try:
        triton_attention.PREFILL_TILES[2, 64] = tile
        if name != "128":
            engine.prompts = PromptGraphs(engine.model, engine.caches, engine.decoder, 16, 4096, Graphs(engine.device))
        for n, length in SHAPES if not DRY else ((1, 8), (2, 8)):
            size, us = prompts_us(engine, n, length)
            say("prompts", queries=name, requests=n, prompt=length, size=size, us=us)
    except Exception as error:
        say("prompts", queries=name, error=repr(error)[:300])
    engine.prompts = graphs_of
triton_attention.PREFILL_TILES[2, 64] = (128, 64, 8, 3)

# Tokens a step: each engine in turn, so that one of them holds memory at a time but for the first.
engines = {4096: engine}
for limit in (2048, 8192):
    try:
        engines[limit] = FastEngine(
            CONFIG, weights, num_blocks=max(SIZES) * 10, max_running=max(SIZES), max_step_tokens=limit
        )
        if not DRY:
            engines[limit].warm_up()
    except Exception as error:
        say("limit", limit=limit, error=repr(error)[:300])
for n in (32, 64, 128, 256) if not DRY else SIZES:
    prompts = make_workload(n, NEW, CONFIG.vocab_size).prompts
    found = defaultdict(list)
    for number in range(ROUNDS + 2):
        for limit, each in engines.items():  # interleaved
            seconds, first, *_ = run(each, prompts, NEW)
            if number > 1:
                found[limit].append((n * NEW / seconds, 1e3 * statistics.median(first), 1e3 * max(first)))
    for limit, values in sorted(found.items()):
        rates, medians, lasts = zip(*values, strict=True)
        say("limit", requests=n, limit=limit, tokens_per_second=spread([*rates], 0), ttft_ms=spread([*medians], 3),
            last_first_ms=spread([*lasts], 3))  # fmt: skip
say("end", bytes=torch.cuda.memory_reserved() if DEVICE == "cuda" else 0)
