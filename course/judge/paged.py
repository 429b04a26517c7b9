"""Small cases of paged attention for checks: scattered blocks, memory that nobody has written, and what is right.

What is right is worked out here from keys and values in order of position, in Python's own floats. An answer sees them
only through the block table.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from course.judge.expect import Failure, same
from course.judge.remote import shorten

Vector = list[float]
Heads = list[Vector]  # one vector for each head

NO_BLOCK = 1_000_000_007  # stands in a table where no answer may look
GARBAGE = 7.75  # what the output holds before
WITHIN = {"float32": 2e-5, "float16": 4e-3}


class Case(NamedTuple):
    """A batch: sequence `i` has `len(keys[i])` tokens, of which the last `query_lens[i]` are new.

    `tables` are as wide as the longest one, and further: what no sequence needs is `NO_BLOCK`.
    """

    query_lens: list[int]
    queries: list[Heads]  # the rows of all sequences, one after the other
    keys: list[list[Heads]]  # of each sequence, by position
    values: list[list[Heads]]
    tables: list[list[int]]
    num_blocks: int
    block_size: int
    scale: float
    dtype: str

    @property
    def context_lens(self) -> list[int]:
        return [len(keys) for keys in self.keys]

    @property
    def query_start_loc(self) -> list[int]:
        return [sum(self.query_lens[:seq]) for seq in range(len(self.query_lens) + 1)]

    def places(self) -> list[tuple[int, int, int]]:
        """Return (sequence, position, row) of every query."""
        starts = self.query_start_loc
        return [
            (seq, context_len - query_len + index, starts[seq] + index)
            for seq, (context_len, query_len) in enumerate(zip(self.context_lens, self.query_lens, strict=True))
            for index in range(query_len)
        ]


def make_case(
    context_lens: Sequence[int],
    query_lens: Sequence[int],
    *,
    num_heads: int = 2,
    num_kv_heads: int = 2,
    head_dim: int = 32,
    block_size: int = 8,
    dtype: str = "float32",
    scale: float | None = None,
    seed: int = 0,
) -> Case:
    """Return a case of random numbers. Blocks are handed out in a random order, and some belong to nobody."""
    rng = random.Random(seed)

    def number() -> float:
        # In half precision, numbers that it holds exactly; else such as TF32 does not hold.
        return rng.randint(-96, 96) / 64 if dtype == "float16" else round(rng.uniform(-1.5, 1.5), 4)

    def heads(count: int) -> Heads:
        return [[number() for _ in range(head_dim)] for _ in range(count)]

    needed = [-(-length // block_size) for length in context_lens]
    num_blocks = sum(needed) + 2
    free = rng.sample(range(num_blocks), num_blocks)
    width = max(needed, default=0) + 2
    tables = [[*(free.pop() for _ in range(count)), *[NO_BLOCK] * (width - count)] for count in needed]
    return Case(
        query_lens=list(query_lens),
        queries=[heads(num_heads) for _ in range(sum(query_lens))],
        keys=[[heads(num_kv_heads) for _ in range(length)] for length in context_lens],
        values=[[heads(num_kv_heads) for _ in range(length)] for length in context_lens],
        tables=tables,
        num_blocks=num_blocks,
        block_size=block_size,
        scale=head_dim**-0.5 if scale is None else scale,
        dtype=dtype,
    )


def plain_case(values: list[list[float]], query_lens: list[int], *, block_size: int = 8) -> Case:
    """Return a case to do by hand: one head, queries and keys of 0, so that what comes out is the mean of the values.

    A value is one number, which fills its vector.
    """
    case = make_case([len(each) for each in values], query_lens, num_heads=1, num_kv_heads=1, block_size=block_size)
    zeros = [0.0] * 32
    return case._replace(
        queries=[[zeros] for _ in case.queries],
        keys=[[[zeros] for _ in each] for each in values],
        values=[[[[number] * 32] for number in each] for each in values],
    )


def run(
    solution: Any,
    case: Case,
    *,
    max_query_len: int | None = None,
    spare_rows: int = 1,
    with_out: bool = True,
    used_before: bool = False,
    heads_first: bool = False,
) -> list[Heads]:
    """Run `paged_attention` on a case and return what is in the output, the spare rows behind the queries included.

    Queries are a view into memory that holds other numbers too, as a fused projection of queries, keys and values gives
    them. `with_out` hands over an output that holds garbage. Slots that no sequence has written hold nothing, or with
    `used_before` what an earlier owner has left; with `heads_first` a block keeps the tokens of one head together.
    """
    num_heads, head_dim = len(case.queries[0]), len(case.queries[0][0])
    width = (num_heads + 2) * head_dim
    rows = [[number for head in row for number in head] + [None] * (2 * head_dim) for row in case.queries]
    rows += [[0.0] * width] * spare_rows
    fused = solution.tensor(rows, case.dtype, as_="qkv")
    queries = solution.view(fused, (len(rows), num_heads, head_dim), (width, head_dim, 1), as_="queries")
    keys, values = (
        _cached(solution, case, rows, name, used_before, heads_first)
        for name, rows in (("keys", case.keys), ("values", case.values))
    )
    cache = solution.layer_cache(keys, values, as_="cache")
    given = {}
    if with_out:
        garbage = [[[GARBAGE] * head_dim] * num_heads] * len(rows)
        given["out"] = solution.tensor(garbage, case.dtype, as_="out")
    longest = max(case.query_lens) if max_query_len is None else max_query_len
    out = solution.paged_attention(
        queries,
        cache,
        solution.tensor(case.tables, "int32", as_="block_tables"),
        solution.tensor(case.query_start_loc, "int32", as_="query_start_loc"),
        solution.tensor(case.context_lens, "int32", as_="context_lens"),
        longest,
        case.scale,
        as_="attended",
        **given,
    )
    return list(solution.read(given.get("out", out)))


def _cached(solution: Any, case: Case, rows: list[list[Heads]], name: str, used_before: bool, heads_first: bool) -> Any:
    """Return a sequence's keys or values as the cache holds them, `[block, offset, head, number]`."""
    num_heads, head_dim = next((len(seq[0]), len(seq[0][0])) for seq in rows if seq)
    rng = random.Random(len(name))

    def nobodys() -> list[Any]:
        return [[rng.randint(-96, 96) / 64 if used_before else None] * head_dim for _ in range(num_heads)]

    memory: list[Any] = [[nobodys() for _ in range(case.block_size)] for _ in range(case.num_blocks)]
    for table, seq in zip(case.tables, rows, strict=True):
        for position, heads in enumerate(seq):
            memory[table[position // case.block_size]][position % case.block_size] = heads
    if not heads_first:
        return solution.tensor(memory, case.dtype, as_=name)
    apart = solution.tensor([list(zip(*block, strict=True)) for block in memory], case.dtype, as_=f"{name}_by_head")
    shape = (case.num_blocks, case.block_size, num_heads, head_dim)
    strides = (num_heads * case.block_size * head_dim, head_dim, case.block_size * head_dim, 1)
    return solution.view(apart, shape, strides, as_=name)


def right(case: Case) -> list[Heads]:
    """Return the attention of every query over what its sequence holds up to its own position."""
    return [
        [
            _attend(query, case.keys[seq][: position + 1], case.values[seq][: position + 1], head // group, case.scale)
            for head, query in enumerate(case.queries[row])
        ]
        for seq, position, row in case.places()
        for group in [len(case.queries[row]) // len(case.keys[seq][0])]
    ]


def _attend(query: Vector, keys: list[Heads], values: list[Heads], kv_head: int, scale: float) -> Vector:
    scores = [dot(query, key[kv_head]) * scale for key in keys]
    largest = max(scores)
    weights = [math.exp(score - largest) for score in scores]
    total = sum(weights)
    return [dot(weights, column) / total for column in zip(*(value[kv_head] for value in values), strict=True)]


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return float(sum(map(operator.mul, a, b)))


def expect_attention(case: Case, out: list[Heads], *, within: float | None = None, why: str | None = None) -> None:
    """Fail unless `out` is what is right, row by row and head by head, and the rows of nobody are as they were.

    The failure says how far off each head is, as a parity report does, and shows the first numbers that are wrong.
    """
    within = WITHIN[case.dtype] if within is None else within
    wanted = right(case)
    errors = head_errors(out, wanted)
    for seq, position, row in case.places():
        for head, (numbers, expected) in enumerate(zip(out[row], wanted[row], strict=True)):
            if not same(numbers, expected, within):
                listed = ", ".join(f"head {index}: {error:.4f}" for index, error in enumerate(errors))
                place = f"sequence {seq}, position {position} (row {row} of the output), head {head}"
                message = f"the largest errors are {listed}.\nThe first that is wrong: {place}: {_first(numbers)}"
                raise Failure(message, _first(expected), why)
    for row in range(len(wanted), len(out)):
        if any(number != GARBAGE for head in out[row] for number in head):
            text = f"row {row} of the output belongs to no sequence, and was written: {_first(out[row][0])}"
            raise Failure(text, "the row as it was", why)


def head_errors(out: list[Heads], wanted: list[Heads]) -> list[float]:
    """Return for each head the largest difference of any number; NaN where one is NaN."""
    errors = []
    for head in range(len(wanted[0])):
        pairs = (
            pair
            for row, right_row in zip(out, wanted, strict=False)
            for pair in zip(row[head], right_row[head], strict=True)
        )
        differences = [abs(a - b) for a, b in pairs]
        errors.append(math.nan if any(map(math.isnan, differences)) else max(differences))
    return errors


def _first(numbers: Vector) -> str:
    shown = ", ".join(f"{number:.4f}" for number in numbers[:4])
    return f"[{shown}, …]" if len(numbers) > 4 else shorten(numbers)
