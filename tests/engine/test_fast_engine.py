"""What the fast engine plans, over a device that is simulated: random histories, each request as if it were alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from solutions import fast_engine
from solutions.batch import Batch, Row, build_batch
from solutions.block_table import slot_mapping
from solutions.cuda_graphs import Graphs, Staged
from solutions.fused_decode import Entry, Turn
from solutions.prompt_graphs import PromptGraphs
from solutions.weights import GPT2Config, random_weights
from tests.engine.driver import EOS, VOCABULARY, next_token, solo

CONFIG = GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=256, n_layer=1, n_head=4)
BLOCK_SIZE = 8
LONGEST = 250  # tokens of a sequence: no whole number of blocks


class Device:
    """A memory of one token number a slot; `tokens` as the fused step has them. Does in order what it is given."""

    def __init__(self, max_rows: int) -> None:
        self.memory: dict[int, int] = {}
        self.tokens = torch.zeros(max_rows, dtype=torch.int32)

    def compute(self, new: Sequence[int], context_len: int, blocks: Sequence[int]) -> int:
        slots = slot_mapping(blocks, BLOCK_SIZE, context_len, context_len)
        self.memory.update(zip(slots[context_len - len(new) :], new, strict=True))
        return next_token([self.memory[slot] for slot in slots])


class Decoder(Device):
    def __init__(self, config: Any, weights: Any, cache: Any, max_rows: int, max_steps: int, graphs: Any) -> None:
        super().__init__(max_rows)
        self.max_steps = max_steps
        self.linears: list[Any] = []

    def launch(self, entries: Sequence[Entry], num_steps: int) -> Turn:
        assert 0 < num_steps <= self.max_steps
        known = self.tokens.tolist()
        tokens = [entry.token if entry.source < 0 else known[entry.source] for entry in entries]
        sampled = []
        for step in range(num_steps):
            tokens = [
                self.compute([token], entry.position + step + 1, entry.blocks)
                for token, entry in zip(tokens, entries, strict=True)
            ]
            sampled.append(tokens)
        self.tokens[: len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        return Turn(np.array(sampled), None)

    def read_later(self, sampled: torch.Tensor, num_steps: int, size: int, num_rows: int) -> Turn:
        return Turn(sampled[: num_steps * size].clone().numpy().reshape(num_steps, size)[:, :num_rows], None)


class Prompts:
    def __init__(self, device: Device) -> None:
        self.device = device

    def launch(self, rows: Sequence[Row]) -> None:
        known = self.device.tokens.tolist()
        sampled = []
        for row in rows:
            new = [token if token >= 0 else known[~token] for token in row.tokens]
            token = self.device.compute(new, row.context_len, row.blocks)
            sampled += [token] if row.samples else []
        self.device.tokens[: len(sampled)] = torch.tensor(sampled, dtype=torch.int32)


def play(seed: int, num_steps: int = 150) -> list[tuple[str, int]]:
    """Play a random history; return of each request why it ended, and how many tokens it had."""
    rng = random.Random(seed)
    num_blocks = rng.randint(4, 12)
    engine = fast_engine.FastEngine(
        CONFIG,
        random_weights(CONFIG, 0, torch.float16),
        block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
        max_step_tokens=rng.choice([3, 8, 64]),
        max_running=rng.choice([2, 4, 100]),
        steps_per_turn=rng.choice([1, 3, 16]),
        read_late=rng.random() < 0.8,
    )
    engine.prompts = Prompts(engine.decoder)  # type: ignore[arg-type, assignment]
    wanted: dict[int, list[int]] = {}
    found: dict[int, list[int]] = {}
    ended: list[tuple[str, int]] = []
    for step in range(10_000):
        if step < num_steps and rng.random() < 0.3 and len(wanted) - len(ended) < 10:
            prompt = [rng.randrange(1, VOCABULARY) for _ in range(rng.randint(1, 20))]
            number = engine.add(prompt, most := rng.randint(1, 12), EOS)
            wanted[number], found[number] = solo(prompt, most), []
        if wanted and rng.random() < 0.02:
            aborted = rng.choice(list(wanted))
            engine.abort(aborted)
            wanted.pop(aborted, None)
        for output in engine.step():
            found[output.request] += output.tokens
            if output.finished:
                assert found[output.request] == wanted.pop(output.request), f"seed {seed}: not as if alone"
                ended.append((output.finished, len(found[output.request])))
        if step >= num_steps and not engine.has_work:
            break
    assert not wanted, f"seed {seed}: {len(wanted)} requests never end"
    assert engine.pool.num_free == num_blocks
    return ended


@pytest.fixture
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_engine, "FusedDecoder", Decoder)


@pytest.mark.usefixtures("_simulated")
def test_every_request_is_as_if_alone() -> None:
    """Late reading, ends in the middle of a turn, preemption, chunks, requests that are aborted: nothing shows."""
    ended = [each for seed in range(60) for each in play(seed)]
    assert {why for why, _ in ended} == {"eos", "length"}
    assert len(ended) > 1000


class Recorder(Graphs):
    """Records as on a GPU, where the call runs once before its time; counts what it records."""

    count = 0

    def record(self, call: Callable[[], None], kept: torch.Tensor) -> Callable[[], None]:
        self.count += 1
        return super().record(call, kept)


def prompt_graphs(graphs: Graphs) -> tuple[PromptGraphs, list[Batch]]:
    """Return graphs of steps of up to 600 tokens of 40 sequences, and a list that takes what each would compute."""
    model = SimpleNamespace(config=GPT2Config(n_positions=LONGEST))
    decoder: Any = SimpleNamespace(tokens=torch.arange(40, dtype=torch.int32) + 1000, linears=[])
    prompts = PromptGraphs(model, [], decoder, BLOCK_SIZE, 600, graphs)
    batches: list[Batch] = []
    prompts._compute = batches.append  # type: ignore[assignment, method-assign]
    return prompts, batches


def random_rows(rng: random.Random) -> list[Row]:
    """Up to 40 sequences of at most LONGEST tokens and 600 new ones, some of which the device knows alone."""
    lengths = [1] * rng.randint(1, 40)
    while sum(lengths) < 600 and rng.random() < 0.95:
        at = rng.randrange(len(lengths))
        lengths[at] = min(LONGEST, 600 - sum(lengths) + lengths[at], lengths[at] + rng.randint(1, 60))
    rows = []
    for num_new in lengths:
        context_len = rng.randint(num_new, LONGEST)
        blocks = [
            rng.randrange(1 << 30) for _ in range(rng.randint(-(-context_len // BLOCK_SIZE), -(-LONGEST // BLOCK_SIZE)))
        ]
        tokens = [rng.randrange(-40, VOCABULARY) for _ in range(num_new)]
        rows.append(Row(tokens, context_len, blocks, rng.random() < 0.8))
    return rows


def test_every_size_of_step_that_may_come_is_recorded_before() -> None:
    rng = random.Random(0)
    graphs = Recorder(torch.device("cpu"))
    prompts, _ = prompt_graphs(graphs)
    prompts._pass = lambda size: None  # type: ignore[method-assign]
    prompts.warm_up()
    recorded = graphs.count
    for _ in range(300):
        prompts.launch(random_rows(rng))
    assert graphs.count == recorded == 3 * 2 * 2


def test_what_is_sent_is_there() -> None:
    rng = random.Random(0)
    for most in (1, 7, 8):
        staged = Staged(most, torch.device("cpu"))
        for count in [*range(most + 1), 1]:
            staged.send(numbers := [rng.randrange(-9, 9) for _ in range(count)])
            assert staged.there[:count].tolist() == numbers


def test_a_graph_reads_what_a_batch_holds_and_padding() -> None:
    rng = random.Random(0)
    prompts, batches = prompt_graphs(Graphs(torch.device("cpu")))
    sizes = set()
    known = prompts.tokens.tolist()
    for _ in range(60):
        for garbage in (prompts.rows, prompts.sample_rows, prompts.sequences, prompts.tables):
            garbage.fill_(-7)
        rows = random_rows(rng)
        prompts.launch(rows)
        found = batches.pop()
        told = [row._replace(tokens=[known[~each] if each < 0 else each for each in row.tokens]) for row in rows]
        wanted = build_batch(told, BLOCK_SIZE, slot_mapping, torch.device("cpu"))
        sizes.add((len(found.tokens), len(found.context_lens), found.max_query_len))
        assert found.max_query_len >= wanted.max_query_len
        for table, row in zip(found.block_tables.tolist(), rows, strict=False):
            needed = -(-row.context_len // BLOCK_SIZE)
            assert table[:needed] == row.blocks[:needed]
        num_tokens = len(wanted.tokens)
        for name, padding in {
            "tokens": 0, "positions": 0, "slots": -1, "sample_rows": 0, "query_start_loc": num_tokens, "context_lens": 0
        }.items():  # fmt: skip
            numbers = getattr(wanted, name)
            here, beyond = getattr(found, name).split([len(numbers), len(getattr(found, name)) - len(numbers)])
            assert here.dtype == numbers.dtype
            assert torch.equal(here, numbers), name
            assert (beyond == padding).all(), name
    assert len(sizes) > 6
