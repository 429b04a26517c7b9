"""What the pictures of the pages are drawn from, worked out by Python and by the reference, as plain data.

The build hands it to the front end's modules as constants, so that a picture is there as soon as its module is.
"""

import json
import random
from typing import Any

from course.browser.output import ROOT
from course.browser.timeline import timelines
from solutions.block_pool import BlockPool
from solutions.block_table import BlockTable
from solutions.scalar_attention import OnlineSoftmax

Picture = dict[str, Any]

MAX_LEN = 4096
NUM_REQUESTS = 200

NUM_BLOCKS = 8
BLOCK_SIZE = 4
# The story of chapter 2. Each line is run as it stands here, so what a reader sees called is what was called.
STORY = (
    "A.append(12)",
    "B.append(8)",
    "A.free()",
    "C.append(14)",
    "D = C.fork()",
    "C.append(1)",
    "D.append(1)",
    "C.free()",
    "D.free()",
)

# Chapter 3's sequence: vectors of one number, so that a reader can check a score by eye.
KEYS = (0.4, -0.6, 1.1, 0.2, 1.8, -0.3, 0.9, 2.4, -1.2, 2.9, 0.5, 1.6)
QUERIES = (1, 2, 1, -1, 2, 1, -2, 2, -1, 2, 1, -1)
VALUES = (3, 8, 1, 6, 2, 9, 4, 7, 5, 10, 0, 12)
TABLES = {1: (9, 2, 14, 0, 5, 11, 3, 7, 12, 1, 8, 4), 2: (5, 2, 7, 0, 3, 6), 4: (5, 2, 7), 8: (2, 0)}

# Chapter 7's block: 16 tokens of 2 heads, one of them ten times quieter; a slider turns one token up.
INT8_BLOCK_SIZE = 16
INT8_OUTLIER = 6


def pictures() -> dict[str, Picture]:
    """Return each constant's value by its name."""
    return {
        "WORKLOAD_DATA": workload(),
        "STORY_DATA": story(),
        "SOFTMAX_DATA": softmax(),
        "TIMELINE_DATA": timelines(),
        "DIVERGENCE_DATA": divergence(),
        "INT8_DATA": int8(),
    }


def workload() -> Picture:
    """Return chapter 1's requests: the length of each prompt and answer, and the room that reserving gives them."""
    rng = random.Random(0)  # the same numbers as the page's `random.seed(0)`
    requests = [(rng.randint(100, 2000), rng.randint(20, 1500)) for _ in range(NUM_REQUESTS)]
    return {"max_len": MAX_LEN, "requests": requests}


def story() -> Picture:
    """Play the story on the reference; return the start and each call in the shape of a report's `calls`.

    Beside what a report says of a pool, the story knows the order of the free queue.
    """
    pool = BlockPool(NUM_BLOCKS)
    names: dict[str, Any] = {"pool": pool} | {name: BlockTable(pool, BLOCK_SIZE) for name in "ABC"}
    begun = {"pool"}  # a table is drawn from its first call on

    def state() -> Picture:
        return {name: _look(thing) for name, thing in names.items() if name in begun}

    start, calls = state(), []
    for line in STORY:
        name, _, call = line.rpartition(" = ")
        value = eval(call, dict(names))
        if name:
            names[name] = value
        begun.add(name or call[0])
        calls.append({"call": line, "returned": name or repr(value), "raised": None, "state": state()})
    return {"start": start, "calls": calls}


def divergence() -> Picture:
    """Return chapter 6's planted bugs and their errors at every stage, as they were measured."""
    measured = json.loads((ROOT / "docs" / "results" / "divergence.json").read_text("utf-8"))
    return {name: measured[name] for name in ("bound", "passes", "stages", "bugs")}


def _look(thing: BlockPool | BlockTable) -> Picture:
    if isinstance(thing, BlockPool):
        counts = [thing.ref_count(block) for block in range(NUM_BLOCKS)]
        return {
            "kind": "BlockPool",
            "num_free": thing.num_free,
            "ref_counts": counts,
            "free_queue": list(thing._free),
        }
    return {
        "kind": "BlockTable",
        "block_size": thing.block_size,
        "blocks": list(thing.blocks),
        "num_tokens": thing.num_tokens,
    }


def softmax() -> Picture:
    """Run the reference's softmax over the blocks of chapter 3's sequence, for each block size and each query.

    `runs[block size][query's position]` has the sums after each block that the query sees.
    """
    runs = {size: [_sums(query, position, size) for position, query in enumerate(QUERIES)] for size in TABLES}
    return {"keys": KEYS, "queries": QUERIES, "values": VALUES, "tables": TABLES, "runs": runs}


def _sums(query: float, position: int, block_size: int) -> list[Picture]:
    softmax = OnlineSoftmax(1)
    sums: list[Picture] = []
    for first in range(0, position + 1, block_size):
        seen = range(first, min(first + block_size, position + 1))
        softmax.add([query * KEYS[each] for each in seen], [[float(VALUES[each])] for each in seen])
        sums.append({"maximum": softmax.maximum, "total": softmax.total, "accumulator": list(softmax.accumulator)})
    return sums


def int8() -> Picture:
    """Return the tokens of chapter 7's block: `tokens[token][head]` is a vector of 4 numbers."""
    rng = random.Random(7)
    tokens = [
        [[round(rng.gauss(0, loudness), 3) for _ in range(4)] for loudness in (1.0, 0.1)]
        for _ in range(INT8_BLOCK_SIZE)
    ]
    return {"block_size": INT8_BLOCK_SIZE, "outlier": INT8_OUTLIER, "tokens": tokens}
