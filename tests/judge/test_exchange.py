"""Work moves between the page, with a short file for each exercise, and `practice/`, with a module for several."""

import json
from pathlib import Path
from typing import Any

import pytest

from course.judge.exercise import Exercise, find_exercise, load_exercises
from course.judge.merge import MergeError, put_in, take_out
from course.judge.parts import join, split
from course.judge.stub import (
    exercise_solution,
    exercise_stub,
    reference_source,
    replace_symbols,
    stub_source,
    symbol_sources,
)
from tests.judge.conftest import InPage
from tests.judge.learner import LIMIT, Learner

ANSWERS = sorted((Path(__file__).parent / "answers").glob("*/*.py"))
EXERCISES = pytest.mark.parametrize("exercise", load_exercises(), ids=lambda exercise: exercise.id)
FORK = find_exercise("fork")


@pytest.fixture
def learner(tmp_path: Path) -> Learner:
    return Learner(tmp_path)


def backups(learner: Learner) -> list[str]:
    return [path.read_text("utf-8") for path in (learner.folder / "practice" / ".judge" / "backups").glob("*")]


def export(learner: Learner, name: str = "work.json") -> Any:
    learner.run("export", name)
    return json.loads((learner.folder / name).read_text("utf-8"))


def write_work(learner: Learner, sources: dict[str, Any], **fields: Any) -> None:
    exercises = {name: {"source": source, "passed": False} for name, source in sources.items()}
    data = {"format": "paged-inference-course/work", "version": 1, "exercises": exercises, **fields}
    (learner.folder / "work.json").write_text(json.dumps(data))


def words(done: Any) -> str:
    return " ".join(done.stdout.split())


# Parts.


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_parts_of_a_text_are_the_text(path: Path) -> None:
    source = path.read_text("utf-8")
    assert join(split(source)) == source


def test_a_part_takes_along_what_stands_above_it() -> None:
    source = (
        "#!/usr/bin/env python\n'''doc'''\nimport a; import b\n\n"
        "# about A\n@mark\nclass A(\n    B,\n):  # head\n    x = 1\n"
        "    # about f\n    def f(self): pass\n\n\nclass C: pass\nif x:\n    y = 1\n# the last\n"
    )
    parts = split(source)
    assert join(parts) == source
    assert [part.key for part in parts] == [
        '"""',
        "import a import b",
        *("A", "A.x", "A.f", "C"),
        "if x:\n    y = 1",
        "the end",
    ]
    assert parts[2].code == "# about A\n@mark\nclass A(\n    B,\n):  # head"
    assert parts[4].code == "    # about f\n    def f(self): pass"


def test_a_form_feed_is_no_line_end() -> None:
    source = "x = 1\n\x0c\ndef f():\n    return '\u2028'\n\n\ny = 2\n"
    assert join(split(source)) == source
    assert split(source)[1].code.endswith("return '\u2028'")


# From the clone to the page.


@EXERCISES
def test_what_is_taken_out_passes_alone(exercise: Exercise, in_page: InPage) -> None:
    text = take_out(exercise, reference_source(exercise.module))
    assert in_page(exercise, text)["status"] == "pass"
    same_file = [other for other in load_exercises() if other.module == exercise.module]
    others = {symbol for other in same_file for symbol in other.symbols} - {*exercise.symbols}
    assert not others & symbol_sources(text).keys()


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_answers_in_other_styles_pass_when_taken_out(path: Path, in_page: InPage) -> None:
    for exercise in load_exercises():
        if exercise.module == path.parent.name:
            report = in_page(exercise, take_out(exercise, path.read_text("utf-8")))
            assert report["status"] == "pass", report


def test_what_runs_at_load_stays_whole(in_page: InPage) -> None:
    text = reference_source("block_table").replace("    def fork(self)", "    room_for = grow\n\n    def fork(self)")
    text += "\n\nSIZES = [blocks_needed(n, 16) for n in range(4)]\n"
    taken = take_out(FORK, text)
    assert {"BlockTable.grow", "blocks_needed"} <= symbol_sources(taken).keys()
    assert "slot_mapping" not in taken
    assert in_page(FORK, taken)["status"] == "pass"


def test_a_class_that_is_left_empty_is_still_a_class() -> None:
    bare = (
        "class BlockTable:\n    def fork(self):\n        return 1\n\n\ndef slot_mapping(b, s, c, n):\n    return []\n"
    )
    assert take_out(find_exercise("slot-mapping"), bare).startswith("class BlockTable:\n    pass\n")


# From the page to the clone.


@EXERCISES
def test_the_short_file_goes_into_the_stub(exercise: Exercise, in_page: InPage) -> None:
    stub = stub_source(exercise.module)
    merged = put_in(exercise, stub, exercise_solution(exercise.id))
    before, after = symbol_sources(stub), symbol_sources(merged.text)
    changed = {symbol for symbol in before if before[symbol] != after[symbol]}
    if exercise.is_bug:  # which of them is wrong is what its reader finds out
        assert changed
        assert changed < {*exercise.symbols}
    else:
        assert changed == {*exercise.symbols}
    assert in_page(exercise, merged.text)["status"] == "pass"


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_answers_in_other_styles_come_back_together(path: Path, in_page: InPage) -> None:
    """Taken apart and put together again, in a stub, every exercise passes."""
    source, text = path.read_text("utf-8"), stub_source(path.parent.name)
    exercises = [each for each in load_exercises() if each.module == path.parent.name]
    for exercise in exercises:
        text = put_in(exercise, text, take_out(exercise, source)).text
    for exercise in exercises:
        assert in_page(exercise, text)["status"] == "pass"
        again = put_in(exercise, text, take_out(exercise, source))
        assert again.text == text, "a second import changes nothing"


OWN = {
    "a helper": (
        "class BlockTable",
        "def _owners(pool, blocks):\n    return len(blocks)  # mine\n\n\nclass BlockTable",
    ),
    "a constant with its comment": ("class Pool", "# as vLLM has it\nBLOCK = 16\n\n\nclass Pool"),
    "an import": ("from typing", "import math\nfrom typing"),
    "a part of an import": ("from typing import Protocol", "from typing import Any, Protocol"),
    "a method": ("    def fork(", "    def _copy(self):  # mine\n        return list(self.blocks)\n\n    def fork("),
    "a class attribute": ("    def __init__", "    kind = 'mine'\n\n    def __init__"),
    "a base class": ("class BlockTable:", "class BlockTable(object):"),
    "more state": ("        self.num_tokens = 0\n\n", "        self.num_tokens = 0\n        self.seen = set()\n\n"),
    "a class": ("class BlockTable", "class _Child:\n    def f(self): pass\n\n\nclass BlockTable"),
    "something that runs": ("class BlockTable", "for _ in range(3):\n    pass\n\n\nclass BlockTable"),
    "a decorator": ("    def fork(", "    @staticmethod\n    def mine(): return 3\n\n    def fork("),
}


@pytest.mark.parametrize(("find", "put"), OWN.values(), ids=OWN)
def test_the_learner_s_own_comes_along(find: str, put: str, in_page: InPage) -> None:
    source = exercise_solution("fork").replace(find, put, 1)
    assert source != exercise_solution("fork")
    text = put_in(FORK, reference_source("block_table"), source).text
    for line in {*source.splitlines()} - {*exercise_stub("fork").splitlines()}:
        assert line in text or line.startswith("from typing")
    assert "from typing import Any" in text or "Any" not in put
    for exercise in load_exercises():
        if exercise.module == "block_table":
            assert in_page(exercise, text)["status"] == "pass"
    assert put_in(FORK, text, source).text == text


def test_comments_at_the_end_come_along_once() -> None:
    source = exercise_solution("fork") + "\n# remember: share first\n"
    text = put_in(FORK, stub_source("block_table"), source).text
    assert text.endswith("# remember: share first\n")
    assert put_in(FORK, text, source).text == text


def test_a_future_import_goes_to_the_top() -> None:
    exercise = find_exercise("kv-bytes")
    source = exercise_solution("kv-bytes").replace("\n\n\ndef", "\n\nfrom __future__ import annotations\n\n\ndef", 1)
    text = put_in(exercise, stub_source("utilization"), source).text
    compile(text, "x", "exec")
    assert "from __future__ import annotations" in text


def test_a_class_that_is_gone_comes_back_whole(in_page: InPage) -> None:
    text = put_in(FORK, "x = 1\n", exercise_solution("fork")).text
    assert "\nx = 1\n" in text
    assert {"BlockTable.__init__", "BlockTable.fork", "BlockTable.free"} <= symbol_sources(text).keys()
    assert in_page(FORK, text)["status"] == "pass"


def test_another_exercise_s_answer_is_not_written_over() -> None:
    exercise = find_exercise("block-table")
    source = replace_symbols(
        reference_source("block_table"), {"BlockTable.fork": "    def fork(self):\n        return None\n"}
    )
    mine = reference_source("block_table")
    merged = put_in(exercise, mine, source)
    assert (merged.text, merged.left_out) == (mine, ["BlockTable.fork"])
    assert "return None\n" in put_in(exercise, stub_source("block_table"), source).text


REFUSED = {
    "no Python": ("def fork(:\n", "not valid Python, line 1"),
    "a NUL": ("x = '\0'\n", "not valid Python"),
    "too deep": ("x = " + "(" * 5000 + ")" * 5000 + "\n", "not valid Python"),
    "another thing": ("x = 1\n", "has no BlockTable.fork: was it renamed or deleted?"),
    "another indentation": (
        "class BlockTable:\n  def fork(self):\n    return 1\n",
        "would not be valid Python any more",
    ),
    "a helper of the same name": (
        exercise_solution("fork") + "\n\ndef helper():\n    return 'theirs'\n",
        "helper: practice/block_table.py and the source have each their own",
    ),
    "an import of the same name": (
        "from mine import Sequence\n" + exercise_solution("fork").replace("from __future__ import annotations\n", ""),
        "from mine import Sequence: practice/block_table.py and the source",
    ),
}


@pytest.mark.parametrize(("source", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_merged_is_refused(source: str, said: str) -> None:
    mine = reference_source("block_table") + "\n\ndef helper():\n    return 'mine'\n"
    with pytest.raises(MergeError) as refused:
        put_in(FORK, mine, source)
    assert said in str(refused.value)


def test_what_has_changed_on_one_side_only_is_no_conflict() -> None:
    def with_helper(value: int) -> str:
        return exercise_solution("fork") + f"\n\ndef helper():\n    return {value}\n"

    first = put_in(FORK, stub_source("block_table"), with_helper(1)).text
    page_is_newer = put_in(FORK, first, with_helper(2), last=with_helper(1)).text
    assert "return 2" in page_is_newer
    clone_is_newer = put_in(FORK, page_is_newer, with_helper(1), last=with_helper(1)).text
    assert clone_is_newer == page_is_newer
    with pytest.raises(MergeError):
        put_in(FORK, page_is_newer, with_helper(3), last=with_helper(1))


# The commands.


def test_there_and_back(learner: Learner) -> None:
    """Everything the learner has goes to a file and, in another clone, comes out the same."""
    helper = "\n\ndef _mine():  # a helper\n    return 1\n"
    for module in ("block_pool", "block_table"):
        learner.solve(module)
    learner.write("block_table", learner.read("block_table") + helper)
    learner.run("check", "fork", *LIMIT)
    work = export(learner)
    assert (work["format"], work["version"]) == ("paged-inference-course/work", 1)
    assert set(work["exercises"]) == {"block-pool", "block-table", "slot-mapping", "fork", "copy-on-write"}
    assert {name for name, entry in work["exercises"].items() if entry["passed"]} == {"fork"}
    assert all(helper in entry["source"] for name, entry in work["exercises"].items() if name != "block-pool")

    before = {module: learner.read(module) for module in ("block_pool", "block_table")}
    for module in before:
        learner.unsolve(module)
    (learner.folder / "practice" / ".judge" / "progress.json").unlink()
    done = learner.run("import", "work.json")
    assert done.returncode == 0, done.stdout
    assert sorted(backups(learner)) == sorted(stub_source(module) for module in before)
    assert {module: symbol_sources(learner.read(module)) for module in before} == {
        module: symbol_sources(text) for module, text in before.items()
    }
    assert learner.run("check", *LIMIT).returncode == 0
    assert learner.run("diff", "fork").returncode == 0, "passed in the page, so the reference may be seen"

    again = learner.run("import", "work.json")
    assert again.returncode == 0
    assert len(backups(learner)) == 2, "nothing changed, so nothing needs a copy"


def test_a_round_through_the_page_meets_changes_on_both_sides(learner: Learner) -> None:
    learner.solve("block_table")
    learner.write("block_table", learner.read("block_table") + "\n\ndef _mine():\n    return 1\n")
    work = export(learner)
    fork = work["exercises"]["fork"]
    fork["source"] = fork["source"].replace("return 1\n", "return 2\n")
    (learner.folder / "work.json").write_text(json.dumps(work))
    learner.write("block_table", learner.read("block_table").replace("BlockTable:", "BlockTable:  # here", 1))
    done = learner.run("import", "work.json")
    assert done.returncode == 0, done.stdout
    assert "return 2\n" in learner.read("block_table")
    assert "# here" in learner.read("block_table")


def test_what_is_refused_leaves_the_rest(learner: Learner) -> None:
    write_work(
        learner,
        {
            "fork": "def (:\n",
            "kv-bytes": exercise_solution("kv-bytes"),
            "from-the-future": "x = 1\n",
            "block-pool": None,
        },
    )
    done = learner.run("import", "work.json")
    assert done.returncode == 1
    assert "fork refused: the source is not valid Python, line 1" in words(done)
    assert "from-the-future refused: this version of the course has no such exercise" in words(done)
    assert "kv-bytes is in practice/utilization.py now" in words(done)
    assert learner.run("check", "kv-bytes", *LIMIT).returncode == 0
    assert learner.read("block_table") == stub_source("block_table")


def test_a_broken_file_is_neither_exported_nor_written_over(learner: Learner) -> None:
    learner.solve("block_pool")
    learner.write("block_pool", learner.read("block_pool") + "\ndef (:\n")
    learner.solve("utilization")
    broken = learner.read("block_pool")
    exported = learner.run("export", "work.json")
    assert exported.returncode == 1
    assert "block-pool left out: practice/block_pool.py, line" in words(exported)
    assert "kv-bytes" in json.loads((learner.folder / "work.json").read_text())["exercises"]
    write_work(learner, {"block-pool": exercise_solution("block-pool")})
    imported = learner.run("import", "work.json")
    assert imported.returncode == 1
    assert "mend that first" in words(imported)
    assert learner.read("block_pool") == broken


def test_a_missing_file_comes_from_the_stub_and_line_ends_stay(learner: Learner) -> None:
    learner.path("block_pool").unlink()
    learner.write("utilization", learner.read("utilization").replace("\n", "\r\n"))
    sources = {name: exercise_solution(name).replace("\n", "\r\n") for name in ("block-pool", "kv-bytes")}
    write_work(learner, sources)
    assert learner.run("import", "work.json").returncode == 0
    assert "\r" not in learner.path("block_pool").read_bytes().decode()
    data = learner.path("utilization").read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n")


def test_nothing_is_written_where_no_copy_can_be_kept(learner: Learner) -> None:
    (learner.folder / "practice" / ".judge").write_text("no folder")
    write_work(learner, {"fork": exercise_solution("fork")})
    done = learner.run("import", "work.json")
    assert done.returncode == 1
    assert "was not written" in words(done)
    assert learner.read("block_table") == stub_source("block_table")


def test_an_export_never_writes_over_a_file(learner: Learner) -> None:
    learner.solve("block_pool")
    assert learner.run("export").returncode == learner.run("export").returncode == 0
    names = sorted(path.name for path in learner.folder.glob("*.json"))
    assert names == ["paged-inference-work-2.json", "paged-inference-work.json"]
    done = learner.run("export", "paged-inference-work.json")
    assert done.returncode == 2
    assert "is there already" in words(done)
    assert learner.run("export", "no/such/folder.json").returncode == 2


def test_nothing_to_export_is_said(learner: Learner) -> None:
    done = learner.run("export", "work.json")
    assert done.returncode == 1
    assert "no exercise is started" in words(done)
    assert not (learner.folder / "work.json").exists()


UNREADABLE = {
    "not JSON": ("practice", "it is not JSON"),
    "deep": ("[" * 100_000, "it is not JSON"),
    "bytes": ("\udc80", "it is not JSON"),
    "other JSON": ('{"a": 1}', "does not say paged-inference-course/work"),
    "a list": ("[]", "is no export of this course"),
    "newer": (
        '{"format": "paged-inference-course/work", "version": 2, "exercises": 1}',
        "made by a newer version of the course (format 2",
    ),
    "no sources": (
        '{"format": "paged-inference-course/work", "version": 1, "exercises": {"fork": {"source": 3}}}',
        "is damaged",
    ),
    "no exercises": ('{"format": "paged-inference-course/work", "version": 1}', "is damaged"),
}


@pytest.mark.parametrize(("text", "said"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_is_no_export_is_status_2(learner: Learner, text: str, said: str) -> None:
    (learner.folder / "work.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    done = learner.run("import", "work.json")
    assert done.returncode == 2
    assert said in words(done)
    assert "Traceback" not in done.stdout


def test_a_file_that_is_not_there_is_status_2(learner: Learner) -> None:
    for name in ("nowhere.json", "practice"):
        done = learner.run("import", name)
        assert done.returncode == 2
        assert "cannot be read" in words(done)
    assert "import needs a file" in words(learner.run("import"))


def test_text_that_cannot_be_written_is_refused(learner: Learner) -> None:
    write_work(learner, {"fork": exercise_solution("fork") + "# \ud800\n"})
    done = learner.run("import", "work.json")
    assert done.returncode == 1
    assert learner.read("block_table") == stub_source("block_table")
