"""Runs requests step by step on the reader's parts, and says after each step what happened, as plain data."""

from __future__ import annotations

import codecs
from collections.abc import Sequence as Items
from typing import Any, NamedTuple

from course.page_engine.gpt2 import GPT2, Part, UnwrittenSlot
from course.page_engine.parts import Parts
from course.page_engine.trail import Trail

Step = dict[str, Any]


class Settings(NamedTuple):
    """What a run is asked for. Request i comes `arrival_gap` steps after request i - 1; 0: all at once."""

    prompts: Items[str]
    max_new_tokens: int
    num_blocks: int
    block_size: int
    max_step_tokens: int
    arrival_gap: int


class Failure(Exception):
    """The engine cannot go on. `symbol` is the reader's function that is to blame, None when none is known to be."""

    def __init__(self, message: str, symbol: str | None = None, request: str | None = None) -> None:
        super().__init__(message)
        self.symbol = symbol
        self.request = request


class _Request(NamedTuple):
    name: str
    tokens: list[int]  # one a byte of the prompt
    text: codecs.IncrementalDecoder  # a character may take several tokens


class Engine:
    """Greedy generation for several requests over one pool, as `solutions.engine.Engine`, in plain Python.

    Requests are called A, B, C … in the order of the prompts.
    """

    def __init__(self, model: GPT2, parts: Parts, settings: Settings, trail: Trail | None = None) -> None:
        self.model = model
        self.parts = parts
        self.settings = settings
        self.trail = trail or Trail()
        self.num_steps = 0
        self._cache = model.new_cache(settings.num_blocks * settings.block_size)
        decoder = codecs.getincrementaldecoder("utf-8")
        self._coming = [
            _Request(chr(ord("A") + index), list(prompt.encode()), decoder("replace"))
            for index, prompt in enumerate(settings.prompts)
        ]
        self._open: dict[str, tuple[_Request, Any]] = {}  # with the sequence, in order of arrival
        # By the identity of their sequence, which names it only as long as it lives: so it is kept.
        self._added: dict[int, tuple[_Request, Any]] = {}
        self._num_barren = 0  # steps since somebody got a token
        self._num_preempted = 0  # in those steps
        with _Guard(self, "the start"):
            self.pool = parts.block_pool(settings.num_blocks)
            self.scheduler = parts.scheduler(self.pool, max_step_tokens=settings.max_step_tokens)

    @property
    def has_work(self) -> bool:
        """Whether a request is open or still to come."""
        return bool(self._coming or self._open)

    def step(self) -> Step:
        """Run one step and return what it did; see `_report`. `Failure` when the engine cannot go on."""
        self.num_steps += 1
        with _Guard(self, f"step {self.num_steps}"):
            refused = self._admit_arrivals()
            plan = self.scheduler.schedule()
            for source, target in plan.copies:
                self._copy_block(source, target)
            sampled = self._compute(plan.batch)
            if self._open and not (plan.batch or plan.preempted or self._coming):
                raise Failure(f"scheduled nothing: {', '.join(self._open)} would wait for ever", "Scheduler.schedule")
            text = self._take(plan.batch, sampled)
            self._expect_progress(bool(text), len(plan.preempted))
            self.scheduler.free_finished()
            return self._report(plan, text, refused)

    def _admit_arrivals(self) -> dict[str, str]:
        """Hand the scheduler the requests whose step has come; return the words on those that it refuses."""
        refused = {}
        arrived = len(self.settings.prompts)
        if self.settings.arrival_gap:
            arrived = min(arrived, 1 + (self.num_steps - 1) // self.settings.arrival_gap)
        number = len(self._coming) - (len(self.settings.prompts) - arrived)
        coming, self._coming = self._coming[:number], self._coming[number:]
        for request in coming:
            why = self._add(request)
            if why is not None:
                refused[request.name] = why
        return refused

    def _add(self, request: _Request) -> str | None:
        """Queue a request; return why, when it can never be served."""
        length = len(request.tokens) + self.settings.max_new_tokens
        if not request.tokens:
            return "the prompt is empty: there is nothing to continue"
        if length > self.model.max_len:
            return f"{length} tokens are more than the model's {self.model.max_len} positions"
        table = self.parts.block_table(self.pool, self.settings.block_size)
        sequence = self.parts.sequence(table, list(request.tokens), len(request.tokens), self.settings.max_new_tokens)
        self._added[id(sequence)] = request, sequence
        self.trail.belongs(table, request.name)
        self.trail.belongs(sequence, request.name)
        try:
            self.scheduler.add(sequence)
        except ValueError as error:
            return str(error)
        self._open[request.name] = request, sequence
        return None

    def _request_of(self, sequence: Any) -> _Request:
        if id(sequence) not in self._added:
            raise Failure("scheduled a sequence that nobody has added", "Scheduler.schedule")
        return self._added[id(sequence)][0]

    def _copy_block(self, source: int, target: int) -> None:
        size = self.settings.block_size
        for cache in self._cache:
            cache.copy_slots(range(source * size, (source + 1) * size), range(target * size, (target + 1) * size))

    def _compute(self, batch: Items[Any]) -> list[int]:
        """Run the model over a step's batch and return the tokens sampled."""
        size = self.settings.block_size
        parts = []
        for each in batch:
            name, blocks = self._request_of(each.sequence).name, each.sequence.table.blocks
            wrong = [block for block in blocks if not 0 <= block < self.settings.num_blocks]
            if wrong:
                message = f"holds block {wrong[0]}, and the pool has {self.settings.num_blocks}"
                raise Failure(message, "BlockTable.blocks", name)
            if len(blocks) * size < each.context_len:
                message = f"holds {len(blocks)} blocks of {size} for a context of {each.context_len} tokens"
                raise Failure(message, "BlockTable.blocks", name)
            slots = self.parts.slot_mapping(blocks, size, each.context_len, each.num_new)
            tokens = each.sequence.tokens[each.context_len - each.num_new : each.context_len]
            parts.append(Part(tokens, each.context_len, blocks, slots, each.samples))
        try:
            return self.model.next_tokens(parts, self._cache, size)
        except UnwrittenSlot as error:
            place, slot = error.args
            name = self._request_of(batch[place].sequence).name
            message = f"leads to slot {slot}, which nobody has written"
            raise Failure(message, "BlockTable.blocks", name) from None

    def _take(self, batch: Items[Any], sampled: list[int]) -> dict[str, str]:
        """Give each sequence that sampled its token; return the new text by request."""
        tokens = iter(sampled)
        text = {}
        for each in batch:
            if each.samples:
                token, request = next(tokens), self._request_of(each.sequence)
                each.sequence.take(token)
                text[request.name] = request.text.decode(bytes([token]), final=each.sequence.is_finished)
        return text

    def _expect_progress(self, somebody_got_a_token: bool, num_preempted: int) -> None:
        """`Failure` when steps go by and nobody gets a token: when sequences are preempted for ever, say.

        Steps without a token compute prompts. To compute whatever is open from nothing, one request after the other,
        takes so many steps; after twice as many, nothing will come of it.
        """
        if somebody_got_a_token or not self._open:
            self._num_barren = self._num_preempted = 0
            return
        self._num_barren += 1
        self._num_preempted += num_preempted
        lengths = [len(sequence.tokens) for _, sequence in self._open.values()]
        if self._num_barren <= 2 * sum(1 + length // self.settings.max_step_tokens for length in lengths):
            return
        so = f"and nobody has got a token for {self._num_barren} steps: {', '.join(self._open)} would wait for ever"
        if self._num_preempted:
            times = "once" if self._num_preempted == 1 else f"{self._num_preempted} times"
            raise Failure(f"has preempted {times}, {so}", "Scheduler.grow_running")
        raise Failure(f"has planned steps, {so}", "Scheduler.schedule")

    def _report(self, plan: Any, text: dict[str, str], refused: dict[str, str]) -> Step:
        """Return a step as data: `parts` by request in the shape of a timeline's step, and what else can be shown."""
        scheduled = {id(each.sequence): each for each in plan.batch}
        preempted = {id(sequence) for sequence in plan.preempted}
        parts, tables = {}, {}
        for name, (request, sequence) in list(self._open.items()):
            part = scheduled.get(id(sequence))
            tables[name] = list(sequence.table.blocks)
            parts[name] = {
                "doing": _doing(request, sequence, part, id(sequence) in preempted),
                "num_new": part.num_new if part else 0,
                "num_computed": sequence.num_computed,
                "num_tokens": sequence.num_tokens,
                "num_blocks": len(tables[name]),
            }
            if parts[name]["doing"] == "finished":
                del self._open[name]
        return {
            "step": self.num_steps,
            "parts": parts,
            "tables": {name: blocks for name, blocks in tables.items() if blocks},
            "num_free": self.pool.num_free,
            "text": text,
            "refused": refused,
            "done": not self.has_work,
        }


def _doing(request: _Request, sequence: Any, part: Any, was_preempted: bool) -> str:
    """Return what a step did with a sequence, in the timeline's words. A prompt's last chunk may be one token."""
    if sequence.is_finished:
        return "finished"
    if part is not None:
        return "decode" if part.num_new == 1 and part.context_len > len(request.tokens) else "prefill"
    if was_preempted:
        return "preempted"
    return "idle" if sequence.table.blocks else "waiting"


class _Guard:
    """Turns whatever comes out of a step into a `Failure` that names the part, the request and the step."""

    def __init__(self, engine: Engine, when: str) -> None:
        self._engine = engine
        self._when = when

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, Failure):
            message, symbol, request = str(error), error.symbol, error.request
        else:
            place = self._engine.trail.origin(error)
            message = f"raised {type(error).__name__}" + (f": {error}" if str(error) else "")
            symbol, request = place or (None, None)
        whom = f" for request {request}" if request else ""
        raise Failure(f"{symbol or 'The engine'} {message}, in {self._when}{whom}", symbol, request) from error
