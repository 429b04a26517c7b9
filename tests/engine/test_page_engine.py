"""The engine that runs in a page: its arithmetic, its tokens against the reference engine's, and whose part failed."""

from __future__ import annotations

import json
import math
import random
import re
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from course.judge.exercise import load_exercises
from course.judge.stub import exercise_solution
from course.page_engine.engine import Engine, Failure, Settings
from course.page_engine.gpt2 import GPT2, Part
from course.page_engine.lanes import Matrix, pack, weighted_sum
from course.page_engine.page import Desk
from course.page_engine.parts import MODULES, assemble, reference_parts
from course.page_engine.safetensors import read_tensors
from course.page_engine.trail import Place, Trail
from solutions import engine as reference
from solutions.batch import Row, build_batch
from solutions.block_table import slot_mapping
from solutions.weights import load_weights, read_config

FOLDER = Path("course/model")
CONFIG, DATA = (FOLDER / "config.json").read_text("utf-8"), (FOLDER / "model.safetensors").read_bytes()
PROMPTS = (
    "Alice was beginning to get",
    "The Queen of Hearts ",
    "Down, down, ",
    "“Curiouser”, said",
    "x",
    "\n\n  `Well,",
)
SETTINGS = Settings(PROMPTS, 24, num_blocks=96, block_size=8, max_step_tokens=64, arrival_gap=0)


@pytest.fixture(scope="module")
def model() -> GPT2:
    return GPT2(CONFIG, DATA)


@pytest.fixture(scope="module")
def expected() -> dict[str, list[int]]:
    """What the reference engine generates for each prompt, in PyTorch."""
    torch.set_num_threads(1)
    config = read_config(FOLDER)
    weights = load_weights(FOLDER, config, torch.float32, torch.device("cpu"))
    tokens = [list(prompt.encode()) for prompt in PROMPTS]
    return dict(zip("ABCDEF", reference.Engine(config, weights, num_blocks=96).generate(tokens, 24), strict=True))


def run(engine: Engine) -> list[dict[str, Any]]:
    steps = []
    while engine.has_work:
        assert engine.num_steps < 2000
        steps.append(engine.step())
    return steps


def texts(steps: list[dict[str, Any]]) -> dict[str, str]:
    names = {name for step in steps for name in step["text"]}
    return {name: "".join(step["text"].get(name, "") for step in steps) for name in sorted(names)}


def decoded(expected: dict[str, list[int]]) -> dict[str, str]:
    return {name: bytes(tokens).decode(errors="replace") for name, tokens in expected.items()}


# Numbers in lanes.


def exactly(weights: list[float], rows: list[list[float]]) -> list[float]:
    pairs = [
        sum(Fraction(weight) * Fraction(row[column]) for weight, row in zip(weights, rows, strict=True))
        for column in range(len(rows[0]))
    ]
    return [float(number) for number in pairs]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 32), (7, 3), (128, 16), (512, 8)])
def test_a_weighted_sum_is_right_in_every_lane(height: int, width: int) -> None:
    rng = random.Random(height)
    for size in (1e-12, 1.0, 1e9):
        rows = [[rng.uniform(-size, size) for _ in range(width)] for _ in range(height)]
        weights = [rng.uniform(-1, 1) for _ in range(height)]
        packed = [pack(row) for row in rows]
        found = weighted_sum(
            [weight * row.unit for weight, row in zip(weights, packed, strict=True)],
            [row.lanes for row in packed],
            width,
        )
        assert found == pytest.approx(exactly(weights, rows), rel=0, abs=size * height * 2**-24)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("height", [1, 3, 4, 127, 128, 511, 512])
def test_no_lane_overflows_into_the_next(height: int, sign: float) -> None:
    """All numbers at the end of their range, and of one sign: the largest sums that there can be."""
    most = math.nextafter(1.0, 0.0)
    matrix = Matrix([[sign * most, 0.0, most, -most]] * height)
    assert matrix.apply([most] * height) == pytest.approx([sign * height, 0.0, height, -height], rel=1e-7)
    assert matrix.apply([0.0] * height) == [0.0] * 4


def test_what_is_no_number_is_refused() -> None:
    for wrong in (math.nan, math.inf):
        with pytest.raises((ValueError, OverflowError)):
            pack([1.0, wrong])


# Reading the model.


def test_both_formats_are_read() -> None:
    tensors = {"a": torch.linspace(-2, 2, 12).view(3, 4), "b": torch.tensor([0.1, 65504.0]).half()}
    read = read_tensors(save(tensors))
    assert {name: tensor.shape for name, tensor in read.items()} == {"a": (3, 4), "b": (2,)}
    assert list(read["a"].numbers) == tensors["a"].flatten().tolist()
    assert list(read["b"].numbers) == tensors["b"].tolist()
    assert read["a"].rows()[1] == tuple(tensors["a"][1].tolist())


def test_a_broken_file_is_named() -> None:
    with pytest.raises(ValueError, match=r"cut off: tensor .* lacks \d+ bytes"):
        read_tensors(DATA[:-4])
    with pytest.raises(ValueError, match="no safetensors file"):
        read_tensors(DATA[:100])
    with pytest.raises(ValueError, match="tensor a is I64"):
        read_tensors(save({"a": torch.arange(3)}))
    with pytest.raises(ValueError, match=r"no tensor wte\.weight"):
        GPT2(CONFIG, save({"a": torch.zeros(3)}))
    with pytest.raises(ValueError, match=r"wte\.weight has shape \(3,\)"):
        GPT2(CONFIG, save({"wte.weight": torch.zeros(3)}))


# The tokens.


def test_its_hidden_states_are_the_reference_s(model) -> None:
    """Two sequences over scattered blocks, one of them behind a context that an earlier step computed."""
    config = read_config(FOLDER)
    weights = load_weights(FOLDER, config, torch.float32, torch.device("cpu"))
    of_torch = reference.Engine(config, weights, num_blocks=8, block_size=8)
    ours = model.new_cache(64)
    tokens = list(b"Alice was beginning to get")
    for rows in (
        [Row(tokens[:9], 9, [5, 2], False)],
        [Row(tokens[9:], len(tokens), [5, 2, 7, 0], True), Row(tokens[:4], 4, [1], True)],
    ):
        batch = build_batch(rows, 8, slot_mapping, torch.device("cpu"))
        with torch.inference_mode():
            expected = of_torch.model.forward(batch, of_torch.caches)
        parts = [
            Part(row.tokens, row.context_len, row.blocks, batch.slots[first : first + len(row.tokens)].tolist(), True)
            for row, first in zip(rows, batch.query_start_loc.tolist(), strict=False)
        ]
        found = torch.tensor(model.forward(parts, ours, 8))
        assert torch.allclose(found, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize(("block_size", "budget"), [(4, 16), (16, 256)])
def test_it_says_what_the_reference_says(model, expected, block_size: int, budget: int) -> None:
    settings = SETTINGS._replace(num_blocks=700 // block_size, block_size=block_size, max_step_tokens=budget)
    assert texts(run(Engine(model, reference_parts(), settings))) == decoded(expected)


@pytest.mark.parametrize("gap", [0, 3])
def test_preemption_changes_no_token(model, expected, gap: int) -> None:
    settings = SETTINGS._replace(num_blocks=20, block_size=4, max_step_tokens=16, arrival_gap=gap)
    engine = Engine(model, reference_parts(), settings)
    steps = run(engine)
    doings = [part["doing"] for step in steps for part in step["parts"].values()]
    assert texts(steps) == decoded(expected)
    assert doings.count("preempted") > 0
    assert doings.count("finished") == len(PROMPTS)
    assert engine.pool.num_free == 20


def test_every_step_adds_up(model) -> None:
    settings = SETTINGS._replace(num_blocks=20, block_size=4, max_step_tokens=16, arrival_gap=2)
    steps = run(Engine(model, reference_parts(), settings))
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    assert [step["done"] for step in steps] == [False] * (len(steps) - 1) + [True]
    for number, step in enumerate(steps):
        assert list(step["parts"]) == sorted(step["parts"])
        assert set(step["parts"]) <= set("ABCDEF"[: 1 + number // 2])
        owned = [block for blocks in step["tables"].values() for block in blocks]
        assert len(set(owned)) == len(owned) == 20 - step["num_free"]
        assert sum(part["num_new"] for part in step["parts"].values()) <= 16
        for name, part in step["parts"].items():
            assert part["num_blocks"] == len(step["tables"].get(name, []))
            computes = part["doing"] in ("prefill", "decode", "finished")
            assert (part["num_new"] > 0) == computes
            assert (part["num_blocks"] > 0) == (part["doing"] in ("prefill", "decode", "idle"))
            assert part["doing"] != "decode" or part["num_new"] == 1
    first = steps[0]["parts"]
    assert first == {"A": {"doing": "prefill", "num_new": 16, "num_computed": 16, "num_tokens": 26, "num_blocks": 4}}


def test_what_can_never_be_served_is_refused_and_holds_up_nobody(model) -> None:
    prompts = ["", "x" * 250, "y" * 40, "Alice"]
    settings = Settings(prompts, 10, num_blocks=5, block_size=8, max_step_tokens=16, arrival_gap=0)
    steps = run(Engine(model, reference_parts(), settings))
    refused = steps[0]["refused"]
    assert refused["A"].startswith("the prompt is empty")
    assert refused["B"] == "260 tokens are more than the model's 256 positions"
    assert "need 7 blocks; the pool has 5" in refused["C"]
    assert list(texts(steps)) == ["D"]


def test_a_character_of_several_tokens_comes_whole(model) -> None:
    """Bytes that never become a character end as U+FFFD, and nothing is lost."""
    settings = Settings(["é", "“"], 4, num_blocks=8, block_size=8, max_step_tokens=64, arrival_gap=0)
    engine = Engine(model, reference_parts(), settings)
    answers = iter([[0xC3, 0xE2], [0xA9, 0x80], [0x41, 0x9C], [0xE2, 0x42]])
    engine.model = FixedModel(answers)
    steps = run(engine)
    assert [step["text"].get("A") for step in steps] == ["", "é", "A", "\ufffd"]
    assert [step["text"].get("B") for step in steps] == ["", "", "“", "B"]


class FixedModel:
    max_len = 256

    def __init__(self, answers: Any) -> None:
        self.answers = answers

    def next_tokens(self, *_: object) -> list[int]:
        return list(next(self.answers))


# The reader's parts.


ANSWERS = {each.id: exercise_solution(each.id) for each in load_exercises() if each.module in MODULES}


def run_with(
    model: GPT2, exercise: str, wrong: str, others: dict[str, str] | None = None, settings: Settings = SETTINGS
) -> Failure:
    """Run an engine with a wrong answer, and perhaps others that are right; it must fail."""
    assert wrong != ANSWERS[exercise]
    trail = Trail()
    parts, _ = assemble({exercise: wrong, **(others or {})}, trail)
    with pytest.raises(Failure) as caught:
        run(Engine(model, parts, settings, trail))
    return caught.value


def test_the_reader_s_parts_give_the_same_tokens(model, expected) -> None:
    trail = Trail()
    parts, origins = assemble(ANSWERS, trail)
    assert all(each.yours for each in origins)
    assert parts.block_pool.__module__ == "practice.block_pool"
    settings = SETTINGS._replace(num_blocks=20, block_size=4, max_step_tokens=16)
    assert texts(run(Engine(model, parts, settings, trail))) == decoded(expected)


def test_the_rest_is_the_reference_s() -> None:
    parts, origins = assemble({"copy-on-write": ANSWERS["copy-on-write"]}, Trail())
    assert [each.exercise.id for each in origins if each.yours] == ["copy-on-write"]
    assert parts.block_table(parts.block_pool(2), 4).append(5) == []
    assert parts.block_pool(4).allocate(2) == [0, 1]
    assert not hasattr(reference_parts().block_pool.allocate, "__wrapped__"), "what others import stays as it is"


def test_two_answers_that_clash_are_not_mixed() -> None:
    extra = "\n\ndef helper():\n    return {}\n"
    answers = {name: ANSWERS[name] + extra.format(name[0] == "f") for name in ("block-table", "fork")}
    _, origins = assemble(answers, Trail())
    used = {each.exercise.id: (each.yours, each.why) for each in origins}
    assert used["block-table"] == (True, None)
    assert used["fork"][0] is False
    assert "helper" in str(used["fork"][1])


def test_a_part_that_raises_is_named_with_request_and_step(model) -> None:
    first = "        index = self"
    planted = '        if self.num_tokens == 27:\n            raise IndexError("lost")\n'
    wrong = ANSWERS["copy-on-write"].replace(first, planted + first)
    failure = run_with(model, "copy-on-write", wrong)
    assert str(failure) == "BlockTable.append raised IndexError: lost, in step 3 for request A"


@pytest.mark.parametrize("others", [{}, {name: ANSWERS[name] for name in ANSWERS if name != "block-pool"}])
def test_the_innermost_part_is_named(model, others) -> None:
    """The pool fails while the table works for a request."""
    wrong = ANSWERS["block-pool"].replace("        if num_blocks > len(self._free):", "        if num_blocks > 1 // 0:")
    failure = run_with(model, "block-pool", wrong, others)
    assert failure.symbol == "BlockPool.allocate"
    assert str(failure).startswith("BlockPool.allocate raised ZeroDivisionError")
    assert str(failure).endswith("in step 1 for request A"), "though the table is the reference's"


def test_the_request_is_handed_down(model) -> None:
    trail = Trail()
    heard: list[Place | None] = []
    trail._post = heard.append
    parts, _ = assemble({name: ANSWERS[name] for name in ("block-pool", "block-table", "copy-on-write")}, trail)
    run(Engine(model, parts, SETTINGS._replace(prompts=("one", "two")), trail))
    assert Place("BlockPool.allocate", "B") in heard
    assert heard[-1] is None


def test_a_block_that_is_not_the_sequence_s_is_named(model) -> None:
    beyond = ANSWERS["block-table"].replace("self.blocks += fresh", "self.blocks += [block + 90 for block in fresh]")
    assert "BlockTable.blocks holds block 96, and the pool has 96" in str(run_with(model, "block-table", beyond))
    none = ANSWERS["block-table"].replace("self.blocks += fresh", "pass")
    assert "BlockTable.blocks holds 0 blocks of 8 for a context of 26" in str(run_with(model, "block-table", none))
    other = ANSWERS["block-table"].replace("self.blocks += fresh", "self.blocks[:0] = fresh")
    assert "BlockTable.blocks leads to slot" in str(run_with(model, "block-table", other))


def test_preempting_for_ever_is_noticed(model) -> None:
    """Every prompt loses its blocks before its last chunk, is admitted again, and loses them again."""
    loop = "        for sequence in self.ready():\n"
    assert loop in ANSWERS["preempt"]
    wrong = ANSWERS["preempt"].replace(
        loop, "        for sequence in self.running[:]:\n            self.preempt(sequence, step)\n" + loop
    )
    tight = SETTINGS._replace(prompts=PROMPTS[:3], max_step_tokens=8)
    failure = run_with(model, "preempt", wrong, settings=tight)
    assert failure.symbol == "Scheduler.grow_running"
    assert re.fullmatch(
        r"Scheduler\.grow_running has preempted \d+ times, and nobody has got a token for (\d+) steps: "
        r"A, B, C would wait for ever, in step \1",
        str(failure),
    )


def test_steps_that_lead_nowhere_are_noticed(model) -> None:
    """Nobody gives way; but the scheduler plans nothing while requests are still to come."""
    wrong = ANSWERS["schedule-step"].replace("self.admit_waiting(step)", "pass")
    failure = run_with(model, "schedule-step", wrong, settings=SETTINGS._replace(arrival_gap=100))
    assert str(failure) == (
        "Scheduler.schedule has planned steps, and nobody has got a token for 3 steps: A would wait for ever, in step 3"
    )


@pytest.mark.parametrize("budget", [1, 2, 7])
def test_a_slow_prompt_is_progress(budget: int) -> None:
    """A long prompt in the smallest chunks, in pools that just hold it: steps without a token are no reason to stop."""
    for num_blocks in (16, 17, 30):
        settings = Settings(["x" * 120, "y" * 60, "z" * 100], 8, num_blocks, 8, budget, arrival_gap=3)
        steps = run(Engine(AnyText(), reference_parts(), settings))  # type: ignore[arg-type]
        assert {name: len(text) for name, text in texts(steps).items()} == dict.fromkeys("ABC", 8)


def test_leaving_the_program_is_a_failure_like_any_other(model) -> None:
    wrong = ANSWERS["slot-mapping"].replace("    return [", "    raise SystemExit(3)\n    return [")
    assert str(run_with(model, "slot-mapping", wrong)) == "slot_mapping raised SystemExit: 3, in step 1"


# What the worker calls.


def test_the_desk_speaks_json(expected) -> None:
    desk = Desk(CONFIG, DATA)
    heard: list[str] = []
    settings = json.dumps(SETTINGS._asdict())
    started = json.loads(desk.start(settings, json.dumps({"fork": ANSWERS["fork"]}), heard.append))
    assert [each["exercise"] for each in started["origins"] if each["yours"]] == ["fork"]
    steps = []
    while not steps or not steps[-1]["done"]:
        steps.append(json.loads(desk.step()))
    assert texts(steps) == decoded(expected)
    assert heard == []  # nothing of `fork` runs
    wrong = ANSWERS["block-pool"].replace("self._free = ", "self._free = None and ")
    started = json.loads(desk.start(settings, json.dumps({"block-pool": wrong}), heard.append))
    assert started["failure"] is not None or "failure" in json.loads(desk.step())
    assert [json.loads(each) for each in heard][:2] == [["BlockPool.__init__", None], None]


def test_fp16_weights_load() -> None:
    half = {name: torch.tensor(tensor.numbers).view(tensor.shape).half() for name, tensor in read_tensors(DATA).items()}
    model = GPT2(CONFIG, save(half))
    steps = run(Engine(model, reference_parts(), SETTINGS._replace(prompts=("Alice was beg",), max_new_tokens=8)))
    assert texts(steps) == {"A": "inning to"[:8]}
    assert struct.calcsize("e") == 2


# What the chapter says of the element's first settings, and of three others.

ROOT = Path(__file__).resolve().parents[2]


class AnyText:
    """A model without weights: which tokens come changes nothing in the schedule, as no request ends early."""

    max_len = 256

    def new_cache(self, _: int) -> list[Any]:
        return []

    def next_tokens(self, parts: Any, *_: object) -> list[int]:
        return [0x41 for part in parts if part.samples]


def first_settings() -> Settings:
    """Read the prompts and sliders that the element begins with."""
    source = (ROOT / "course/browser/src/engine/engine.ts").read_text("utf-8")
    listed = re.search(r"const PROMPTS = \[(.*?),?\s*\];", source, re.DOTALL)
    assert listed
    values = {label: int(value) for label, value in re.findall(r'slider\("(.+?)", \d+, [^,]+, (\d+),', source)}
    sizes = json.loads(re.search(r"BLOCK_SIZES = (\[.*?\])", source)[1])  # type: ignore[index]
    return Settings(
        json.loads(f"[{listed[1]}]"),
        max_new_tokens=values["New tokens for each"],
        num_blocks=values["Pool"],
        block_size=sizes[values["Block size"]],
        max_step_tokens=values["Step budget"],
        arrival_gap=values["A request comes"],
    )


def test_the_chapter_tells_what_happens() -> None:
    chapter = (ROOT / "docs/continuous-batching.md").read_text("utf-8")
    told = " ".join(chapter.partition("## The whole engine, in this page")[2].split())
    start = first_settings()

    def play(**changes: int) -> list[dict[str, Any]]:
        return run(Engine(AnyText(), reference_parts(), start._replace(**changes)))  # type: ignore[arg-type]

    def computed(steps: list[dict[str, Any]]) -> int:
        return sum(part["num_new"] for step in steps for part in step["parts"].values())

    def first(steps: list[dict[str, Any]], name: str) -> int:
        return next(step["step"] for step in steps if name in step["text"])

    def preempted(steps: list[dict[str, Any]]) -> list[tuple[int, str]]:
        found = [(step["step"], name, part["doing"]) for step in steps for name, part in step["parts"].items()]
        return [(number, name) for number, name, doing in found if doing == "preempted"]

    whole = play()
    number, name = preempted(whole)[0]
    assert f"{name} loses its blocks first, in step {number}." in told
    assert whole[number - 1]["parts"]["F"]["doing"] == "waiting"
    new = len(start.prompts) * start.max_new_tokens
    assert f"the run takes {len(whole)} steps and computes {computed(whole)} tokens for {new} new ones" in told
    needed = sum(-(-(len(prompt.encode()) + start.max_new_tokens - 1) // start.block_size) for prompt in start.prompts)
    assert f"they need {needed} blocks" in told
    roomy = play(num_blocks=64)
    assert preempted(roomy) == []
    assert f"The same {new} tokens take {len(roomy)} steps, and {computed(roomy)} tokens are computed" in told
    tight = play(num_blocks=64, max_step_tokens=4)
    assert f"F has its first token in step {first(tight, 'F')}; with a budget of 24 it has it in step" in told
    assert f"in step {first(roomy, 'F')}." in told
    served = {name for step in play(num_blocks=8) for name in step["text"]}
    assert served == {"D", "E"}
