"""The Python on the pages runs, and prints what the pages say that it prints."""

import contextlib
import io
import itertools
import linecache
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from course import emulator
from solutions import block_pool

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Fences inside folds and lists are indented; they count like the others.
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
# What a page's code may use without saying where it comes from.
NAMES = {"BlockPool": block_pool.BlockPool}


class Block(NamedTuple):
    """One block of Python on a page, and the output that the page shows below it (None where it shows none)."""

    code: str
    output: str | None


def blocks(page: Path) -> Iterator[Block]:
    matches = FENCE.finditer(page.read_text("utf-8"))
    fences = [(match["info"].strip(), textwrap.dedent(match["code"])) for match in matches]
    for (info, code), (next_info, next_code) in itertools.pairwise([*fences, ("", "")]):
        if info == "python":
            yield Block(code, next_code if ".output" in next_info else None)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_python_prints_what_the_page_says(page):
    namespace = dict(NAMES)
    emulator.traffic()  # what another test's kernels moved is not this page's
    try:
        for block in blocks(page):
            # Kernels are compiled from their text, which is found under the name of the file.
            linecache.cache[page.name] = (len(block.code), None, block.code.splitlines(keepends=True), page.name)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.code, page.name, "exec"), namespace)
            assert printed.getvalue() == (block.output or ""), block.code
    finally:
        emulator.uninstall()


def test_results_in_comments_are_right():
    """`expression  # result` on a page, where the comment is a list, is held to its word."""
    checked = 0
    for page in DOCS.glob("*.md"):
        for block in blocks(page):
            if "  # [" not in block.code:
                continue
            namespace = dict(NAMES)
            for line in block.code.splitlines():
                code, _, comment = line.partition("  # ")
                if not comment.startswith("["):
                    exec(code, namespace)
                    continue
                name, _, expression = code.rpartition(" = ")
                value = eval(expression, namespace)
                namespace[name.strip() or "_"] = value
                assert repr(value) == comment.strip(), line
                checked += 1
    assert checked
