"""What the judge prints, word for word, for right, wrong, unfinished, broken and hanging answers.

The files in `golden/` are read by people: look at them when they change. To write them anew:

    UPDATE_GOLDEN=1 python -m pytest tests/judge/test_cli_golden.py
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from course.judge.exercise import load_exercises
from course.judge.stub import exercise_solution
from tests.judge.learner import LIMIT, Learner

GOLDEN = Path(__file__).parent / "golden"
ENCODINGS = {"unicode": "utf-8", "ascii": "ascii"}

TAKE = "        blocks = [self._free.popleft() for _ in range(num_blocks)]\n"


def wrong(learner: Learner) -> None:
    learner.solve("block_pool", "self._ref_counts[block] -= 1", "self._ref_counts[block] = 0")


def wrong_after_many_calls(learner: Learner) -> None:
    """Right until many blocks have come back, as only the long random histories have it."""
    learner.solve(
        "block_pool",
        "                self._free.append(block)\n",
        "                self.returned = getattr(self, 'returned', 0) + 1\n"
        "                (self._free.append if self.returned < 12 else self._free.appendleft)(block)\n",
    )


def unfinished(learner: Learner) -> None:
    stub = learner.read("block_pool")
    head, rest = stub.split('        raise NotImplementedError("block-pool: BlockPool.__init__ is not written yet")\n')
    rest = rest.replace(
        '        raise NotImplementedError("block-pool: BlockPool.num_free is not written yet")\n',
        "        return len(self.queue)\n",
    )
    learner.write("block_pool", f"{head}        self.queue = list(range(num_blocks))\n{rest}")


def syntax_error(learner: Learner) -> None:
    learner.solve("block_pool", "def share(self, blocks: Sequence[int]) -> None:", "def share(self, blocks -> None:")


def hanging(learner: Learner) -> None:
    learner.solve("block_pool", TAKE, f"        while True:\n            print('still here')\n{TAKE}")


def crashing(learner: Learner) -> None:
    learner.solve("block_pool", TAKE, f"        print('free:', self._free, end='')\n        self.missing\n{TAKE}")


def leaving(learner: Learner) -> None:
    learner.solve("block_pool", TAKE, f"        import os\n\n        os._exit(0)\n{TAKE}")


def renamed(learner: Learner) -> None:
    learner.solve("block_pool", "def share(", "def add_owner(")


def right(learner: Learner) -> None:
    learner.solve("block_pool")


def chapter_2(learner: Learner) -> None:
    learner.solve("block_pool")
    learner.solve("block_table", "child.num_tokens = self.num_tokens", "child.num_tokens = 0")


def everything(learner: Learner) -> None:
    for module in sorted({exercise.module for exercise in load_exercises()}):
        learner.solve(module)


def exported(learner: Learner) -> None:
    """Some answers come back to a clone that has answers of its own; not all of them fit."""
    helper = "\n\ndef _first(blocks):\n    return blocks[0]\n"
    work = {
        "kv-bytes": exercise_solution("kv-bytes"),
        "block-pool": exercise_solution("block-pool"),
        "fork": exercise_solution("fork").replace("child = ", "child == "),
        "copy-on-write": exercise_solution("copy-on-write") + helper,
        "slot-mapping": "def slot_mapping(:\n",
        "warp-drive": "x = 1\n",
    }
    exercises = {name: {"source": source, "passed": name == "fork"} for name, source in work.items()}
    data = {"format": "paged-inference-course/work", "version": 1, "exercises": exercises}
    (learner.folder / "work.json").write_text(json.dumps(data), "utf-8")
    learner.solve("block_pool")
    learner.solve("block_table")
    learner.write("block_table", learner.read("block_table") + helper.replace("[0]", "[-1]"))


def not_an_export(learner: Learner) -> None:
    (learner.folder / "work.json").write_text("[]")


def half_broken(learner: Learner) -> None:
    syntax_error(learner)
    learner.solve("utilization")


def crashing_engine(learner: Learner) -> None:
    """Right in every check; in a pool of 37 blocks, which is in none, the seventh block is not handed out."""
    chapter_2(learner)
    when = "num_blocks and len(self._ref_counts) == 37 and len(self._free) == 31"
    learner.solve("block_pool", TAKE, f"        if {when}:\n            self.missing\n{TAKE}")


def untouched(learner: Learner) -> None:
    pass


CHECK = ("check", "block-pool", *LIMIT)
ENGINE = ("engine", "--device", "cpu", "--new-tokens", "8")
CASES: dict[str, tuple[Callable[[Learner], None], tuple[str, ...]]] = {
    "board-at-the-start": (untouched, LIMIT),
    "board-after-a-pass": (right, LIMIT),
    "board-with-a-red-one": (chapter_2, LIMIT),
    "board-at-the-end": (everything, LIMIT),
    "check-untouched": (untouched, CHECK),
    "check-unfinished": (unfinished, CHECK),
    "check-right": (right, CHECK),
    "check-wrong": (wrong, CHECK),
    "check-wrong-after-many-calls": (wrong_after_many_calls, CHECK),
    "check-syntax-error": (syntax_error, CHECK),
    "check-crashing": (crashing, CHECK),
    "check-leaving": (leaving, CHECK),
    "check-renamed": (renamed, CHECK),
    "check-hanging": (hanging, ("check", "block-pool", "--time-limit", "0.5")),
    "check-all-started": (chapter_2, ("check", *LIMIT)),
    "engine": (chapter_2, (*ENGINE, "--blocks", "5")),
    "engine-crashing": (crashing_engine, (*ENGINE, "--blocks", "37")),
    "next": (right, ("next", *LIMIT)),
    "hint": (untouched, ("hint", "copy-on-write", "2")),
    "diff": (wrong, ("diff", "block-pool", "--give-up")),
    "export": (chapter_2, ("export", "work.json")),
    "export-broken": (half_broken, ("export", "work.json")),
    "import": (exported, ("import", "work.json")),
    "import-not-an-export": (not_an_export, ("import", "work.json")),
    "unknown-id": (untouched, ("check", "blok-pool")),
    "help": (untouched, ("help",)),
}


@pytest.mark.parametrize("flavour", ENCODINGS)
@pytest.mark.parametrize("name", CASES)
def test_what_is_printed(name: str, flavour: str, tmp_path: Path) -> None:
    prepare, words = CASES[name]
    learner = Learner(tmp_path)
    prepare(learner)
    printed = same_everywhere(learner.run(*words, encoding=ENCODINGS[flavour]).stdout, learner)
    path = GOLDEN / f"{name}.{flavour}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(printed, "utf-8", newline="\n")
    assert printed == path.read_text("utf-8")


def test_every_golden_file_has_a_case() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {
        f"{name}.{flavour}.txt" for name in CASES for flavour in ENCODINGS
    }


def same_everywhere(printed: str, learner: Learner) -> str:
    """Return `printed` without what differs between machines: times, dates, how Python is called and marks columns."""
    printed = re.sub(r"\(\d+\.\d\d s\)", "(0.00 s)", printed)
    printed = re.sub(r"\d+\.\d\d s on cpu", "0.00 s on cpu", printed)
    printed = re.sub(r"\(\d+ earlier lines left out\)", "(some earlier lines left out)", printed)
    printed = re.sub(r"-\d{4}-\d\d-\d\d-\d{6}", "-0000-00-00-000000", printed)
    printed = printed.replace(f"{learner.python} practice/judge.py", "python practice/judge.py")
    return re.sub(r"^ *[~^]+\n", "", printed, flags=re.MULTILINE)
