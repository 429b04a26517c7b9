"""The command line as a learner types it: what it does, what it remembers, and its exit status."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from course.judge.exercise import load_exercises
from course.judge.stub import symbol_sources
from tests.judge.learner import LIMIT, Learner

IDS = [exercise.id for exercise in load_exercises()]


@pytest.fixture
def learner(tmp_path: Path) -> Learner:
    return Learner(tmp_path)


def test_a_fresh_clone_shows_the_board_and_one_next_action(learner: Learner) -> None:
    done = learner.run()
    assert done.returncode == 0
    assert all(exercise_id in done.stdout for exercise_id in IDS)
    assert len(re.findall(r"not written yet$", done.stdout, re.MULTILINE)) == len(IDS)
    assert f"0 of {len(IDS)} exercises passed" in done.stdout
    assert "red on purpose" in done.stdout
    assert [line.split() for line in done.stdout.splitlines() if "judge.py" in line] == [
        ["next", learner.python, "practice/judge.py", "next"]
    ]


def test_the_next_exercise_names_the_line_to_write(learner: Learner) -> None:
    done = learner.run("next")
    place = re.search(r"practice/(\w+)\.py:(\d+)", done.stdout)
    assert done.returncode == 0
    assert place
    assert "NotImplementedError" in learner.read(place[1]).splitlines()[int(place[2]) - 1]
    assert f"{learner.python} practice/judge.py check {IDS[0]}" in done.stdout


def test_a_task_may_be_asked_for_by_name(learner: Learner) -> None:
    done = learner.run("next", "triton-decode")
    assert "Decode: one query over a block table" in done.stdout
    assert re.findall(r"^  (\d)\. `(\w+)", done.stdout, re.MULTILINE) == [
        ("1", "locate"), ("2", "online_softmax"), ("3", "decode_kernel"),
    ]  # fmt: skip
    assert "judge.py check triton-decode" in done.stdout
    assert "Did you mean triton-decode?" in learner.run("next", "triton-decoed").stdout


def test_a_table_has_a_line_for_each_row_or_an_item_where_it_is_too_wide(learner: Learner) -> None:
    assert re.search(
        r"^  `ln_f.weight`, `ln_f.bias` {10,}`\(E,\)`$", learner.run("next", "load-gpt2").stdout, re.MULTILINE
    )
    narrow = learner.run("next", "load-gpt2", COLUMNS="50").stdout
    assert "  • `ln_f.weight`, `ln_f.bias`: `(E,)`\n" in narrow


@pytest.mark.parametrize("exercise", load_exercises(), ids=lambda exercise: exercise.id)
def test_right_passes_and_the_stub_does_not(learner: Learner, exercise: Any) -> None:
    unwritten = learner.run("check", exercise.id, *LIMIT)
    learner.solve(exercise.module)
    passed = learner.run("check", exercise.id, *LIMIT)
    assert (unwritten.returncode, passed.returncode) == (1, 0)
    assert ("not written yet" in unwritten.stdout) is not exercise.is_bug
    assert f"all {len(exercise.checks)} promises kept" in passed.stdout


def test_a_wrong_answer_shows_what_happened(learner: Learner) -> None:
    learner.solve("block_pool", "popleft", "pop")
    done = learner.run("check", "block-pool", *LIMIT)
    assert done.returncode == 1
    for words in ("pool.allocate(3) gave [7, 6, 5]", "[0, 1, 2]", "Block tables are lists", "hint block-pool"):
        assert words in done.stdout
    assert done.stdout.count("judge.py") == 1


def test_check_without_an_id_judges_what_is_started(learner: Learner) -> None:
    nothing = learner.run("check", *LIMIT)
    learner.solve("block_table")
    some = learner.run("check", *LIMIT)
    learner.solve("block_pool", "popleft", "pop")
    more = learner.run("check", *LIMIT)
    assert (nothing.returncode, some.returncode, more.returncode) == (1, 0, 1)
    assert "no exercise is started" in nothing.stdout
    assert f"Checking the 4 exercises that you have started, of {len(IDS)}" in some.stdout
    assert "block-pool" not in some.stdout
    assert "pool.allocate(3) gave [7, 6, 5]" in more.stdout
    assert more.stdout.count("judge.py") == 1


def test_the_exit_status_is_the_verdict_of_all(learner: Learner) -> None:
    """JB08: one failure among passes."""
    learner.solve("block_table", "child.num_tokens = self.num_tokens", "child.num_tokens = 0")
    assert learner.run("check", "block-table", *LIMIT).returncode == 0
    assert learner.run("check", "fork", *LIMIT).returncode == 1
    assert learner.run("check", *LIMIT).returncode == 1


def test_json_is_the_report(learner: Learner) -> None:
    learner.solve("block_pool", "popleft", "pop")
    one = learner.run("check", "block-pool", "--json", *LIMIT)
    several = learner.run("check", "--json", *LIMIT)
    report = json.loads(one.stdout)
    assert (one.returncode, several.returncode) == (1, 1)
    assert (report["version"], report["status"], report["exercise"]) == (3, "fail", "block-pool")
    assert [test["status"] for test in report["tests"]] == ["pass", "fail"]
    assert json.loads(several.stdout) == [report]
    assert [each["id"] for each in json.loads(learner.run("list", "--json").stdout)] == IDS


def test_printed_verdicts_are_not_verdicts(learner: Learner) -> None:
    """JB06 and JB07: only what the checks found counts."""
    lie = 'print("PASSED")\nprint(\'{"version": 3, "status": "pass", "tests": []}\')\n'
    for ending in ("", "import sys\nsys.exit(0)\n", "import os\nos._exit(0)\n"):
        learner.write("block_pool", lie + ending)
        done = learner.run("check", "block-pool", "--json", *LIMIT)
        assert done.returncode == 1
        assert json.loads(done.stdout)["status"] == "error"


FILES = {
    "not UTF-8": (b"# caf\xe9\n", "line 1: byte 0xe9 is not UTF-8"),
    "UTF-16": ("# caf\n".encode("utf-16"), "is not UTF-8"),
    "a NUL": (b"x = 1\n\0\n", "line 2: a NUL character"),
    "empty": (b"", "practice/block_pool.py is empty"),
    "blank": (b" \n\n", "practice/block_pool.py is empty"),
}


@pytest.mark.parametrize(("data", "words"), FILES.values(), ids=FILES)
def test_a_file_that_is_no_python_text_is_named(learner: Learner, data: bytes, words: str) -> None:
    learner.write("block_pool", data)
    done = learner.run("check", "block-pool")
    assert done.returncode == 1
    assert words in " ".join(done.stdout.split())
    assert "judge.py reset block-pool" in done.stdout
    assert learner.run().returncode == 0


def test_a_missing_file_comes_back_with_reset(learner: Learner) -> None:
    stub = learner.read("block_pool")
    learner.path("block_pool").unlink()
    missing = learner.run("check", "block-pool")
    assert "judge.py reset block-pool" in learner.run("next").stdout
    reset = learner.run("reset", "block-pool")
    assert (missing.returncode, reset.returncode) == (1, 0)
    assert "practice/block_pool.py is not there" in missing.stdout
    assert learner.read("block_pool") == stub


def test_a_directory_in_its_place_is_named(learner: Learner) -> None:
    learner.path("block_pool").unlink()
    learner.path("block_pool").mkdir()
    check, reset, board = learner.run("check", "block-pool"), learner.run("reset", "block-pool"), learner.run()
    assert (check.returncode, reset.returncode, board.returncode) == (1, 2, 0)
    assert "is a directory: move it away" in check.stdout
    assert "is a directory, move it away first" in reset.stdout


def test_a_byte_order_mark_and_windows_line_ends_are_read(learner: Learner) -> None:
    learner.solve("block_pool")
    learner.write("block_pool", b"\xef\xbb\xbf" + learner.read("block_pool").replace("\n", "\r\n").encode())
    assert learner.run("check", "block-pool", *LIMIT).returncode == 0


def test_hints_come_one_at_a_time_and_are_remembered(learner: Learner) -> None:
    titles = [re.findall(r"Hint (\d) of 3", learner.run("hint", "fork").stdout) for _ in range(4)]
    assert titles == [["1"], ["1", "2"], ["1", "2", "3"], ["1", "2", "3"]]
    assert re.findall(r"Hint (\d)", learner.run("hint", "slot-mapping", "2").stdout) == ["2"]
    assert learner.run("hint", "fork", "4").returncode == 2
    assert re.findall(r"Hint 1 of 3 for (\S+):", learner.run("hint").stdout) == [IDS[0]]


def test_the_reference_is_shown_after_a_pass_or_on_giving_up(learner: Learner) -> None:
    refused = learner.run("diff", "block-pool")
    gave_up = learner.run("diff", "block-pool", "--give-up")
    learner.solve("block_pool", "deque(range(num_blocks))", "deque(list(range(num_blocks)))")
    learner.run("check", "block-pool", *LIMIT)
    passed = learner.run("diff", "block-pool")
    learner.unsolve("block_pool")
    still = learner.run("diff", "block-pool")
    assert [each.returncode for each in (refused, gave_up, passed, still)] == [1, 0, 0, 0]
    assert "popleft" not in refused.stdout
    assert "popleft" in gave_up.stdout
    assert re.search(r"^- .*list\(range", passed.stdout, re.MULTILINE)
    assert passed.stdout.count("  the same") == 5


def test_reset_puts_one_stub_back_and_keeps_the_rest(learner: Learner) -> None:
    stub = symbol_sources(learner.read("block_table"))
    learner.solve("block_table")
    written = learner.read("block_table") + "\n\ndef mine() -> int:\n    return 1  # a helper\n"
    learner.write("block_table", written.replace("\n", "\r\n"))
    before = learner.path("block_table").read_bytes()
    done = learner.run("reset", "fork")
    backup = re.search(r"practice/\.judge/backups/\S+\.py", done.stdout)
    after = learner.path("block_table").read_bytes()
    assert done.returncode == 0
    assert backup
    assert (learner.folder / backup[0]).read_bytes() == before
    assert after.count(b"\n") == after.count(b"\r\n")
    symbols = symbol_sources(after.decode().replace("\r\n", "\n"))
    assert symbols.pop("BlockTable.fork") == stub["BlockTable.fork"]
    assert all(text == symbol_sources(written)[symbol] for symbol, text in symbols.items())
    assert learner.run("check", "copy-on-write", *LIMIT).returncode == 0


RESETS = {
    "a method that was renamed": ("def fork(", "def split("),
    "a class that was renamed": ("class BlockTable:", "class Table:"),
    "a property in its place": (
        "    def fork(self) -> BlockTable:",
        "    fork = 3\n    def _fork(self) -> BlockTable:",
    ),
}


@pytest.mark.parametrize(("find", "put"), RESETS.values(), ids=RESETS)
def test_reset_puts_back_what_was_renamed(learner: Learner, find: str, put: str) -> None:
    learner.solve("block_table", find, put)
    learner.run("reset", "fork")
    text = learner.read("block_table")
    assert put in text
    assert 'raise NotImplementedError("fork: BlockTable.fork is not written yet")' in text
    assert "not written yet" in learner.run("check", "fork", *LIMIT).stdout


@pytest.mark.parametrize("text", ["def (:\n", "class BlockPool:\n  def allocate(self):\n    pass\n", "\0"])
def test_reset_of_what_is_no_python_resets_the_file(learner: Learner, text: str) -> None:
    stub = learner.read("block_pool")
    learner.write("block_pool", text)
    done = learner.run("reset", "block-pool")
    kept = [path.read_text() for path in (learner.folder / "practice" / ".judge" / "backups").iterdir()]
    assert done.returncode == 0
    assert kept == [text]
    assert learner.read("block_pool") == stub or text.startswith("class")
    assert "not written yet" in learner.run("check", "block-pool", *LIMIT).stdout


def test_reset_keeps_every_backup(learner: Learner) -> None:
    for number in range(3):
        learner.write("block_pool", f"# {number}\n")
        learner.run("reset", "block-pool", "--file")
    kept = [path.read_text() for path in (learner.folder / "practice" / ".judge" / "backups").iterdir()]
    assert sorted(kept) == ["# 0\n", "# 1\n", "# 2\n"]
    assert "is the stub already" in learner.run("reset", "block-pool").stdout


def test_reset_changes_nothing_when_it_cannot_keep_a_copy(learner: Learner) -> None:
    learner.write("block_pool", "# work\n")
    (learner.folder / "practice" / ".judge").write_text("no folder")
    done = learner.run("reset", "block-pool")
    assert done.returncode == 2
    assert "was not reset" in done.stdout
    assert learner.read("block_pool") == "# work\n"


def test_the_board_follows_the_files(learner: Learner) -> None:
    states = {
        "stub": (lambda: None, "not written yet"),
        "wrong": (lambda: learner.solve("block_pool", "popleft", "pop"), "started, still red"),
        "right": (lambda: learner.solve("block_pool"), "passed"),
        "wrong again": (lambda: learner.solve("block_pool", "popleft", "pop"), "started, still red"),
        "gone": (lambda: learner.path("block_pool").unlink(), "started, still red"),
        "back": (lambda: learner.unsolve("block_pool"), "not written yet"),
    }
    for name, (act, words) in states.items():
        act()
        line = next(line for line in learner.run(*LIMIT).stdout.splitlines() if " block-pool " in line)
        assert words in line, name


def test_a_broken_file_leaves_unwritten_exercises_unwritten(learner: Learner) -> None:
    stub = learner.read("block_table")
    learner.write("block_table", stub.replace('raise NotImplementedError("fork: BlockTable.fork is', "return ("))
    lines = {line.split()[1]: line for line in learner.run(*LIMIT).stdout.splitlines() if len(line.split()) > 2}
    assert "started, still red" in lines["fork"]
    assert "not written yet" in lines["copy-on-write"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"verdicts": 3, "hints": [], "passed": null}', "\0", "[" * 100_000])
def test_a_corrupt_memory_is_no_error(learner: Learner, text: str) -> None:
    learner.solve("block_pool")
    folder = learner.folder / "practice" / ".judge"
    folder.mkdir()
    (folder / "progress.json").write_text(text)
    for words in (LIMIT, ("check", "block-pool", *LIMIT), ("hint", "fork"), ("diff", "block-pool")):
        assert learner.run(*words).returncode == 0


def test_a_memory_that_cannot_be_written_is_no_error(learner: Learner) -> None:
    learner.solve("block_pool")
    (learner.folder / "practice" / ".judge").write_text("no folder")
    assert learner.run("check", "block-pool", *LIMIT).returncode == 0
    assert "will not remember" in learner.run("hint", "fork").stdout
    assert learner.run("doctor").returncode == 0


def test_a_remembered_verdict_is_not_believed_for_other_checks(learner: Learner) -> None:
    learner.solve("block_pool")
    assert f"1 of {len(load_exercises())}" in learner.run(*LIMIT).stdout
    checks = learner.folder / "course" / "exercises" / "block-pool" / "checks.py"
    checks.write_text(
        checks.read_text("utf-8").replace("expect(solution.BlockPool(1).num_free, 1)", "expect(1, 2)"), "utf-8"
    )
    assert f"0 of {len(load_exercises())}" in learner.run(*LIMIT).stdout


USAGE = {
    "blok-pool": (["check", "blok-pool"], "Did you mean block-pool?"),
    "block_pool": (["check", "block_pool"], "Did you mean block-pool?"),
    "nonsense": (["check", "zzzzzzzz"], "There is no exercise 'zzzzzzzz'. "),
    "chekc": (["chekc"], "Did you mean check?"),
    "an id alone": (["block-pool"], "practice/judge.py check block-pool"),
    "an option": (["check", "--jsno"], "Did you mean --json?"),
    "an option elsewhere": (["list", "--give-up"], "list takes no --give-up"),
    "too much": (["check", "fork", "fork"], "takes [id]"),
    "too little": (["reset"], "needs an exercise"),
    "a limit": (["check", "--time-limit", "soon"], "'soon' is not that"),
    "a path": (["check", "../solutions"], "There is no exercise '../solutions'"),
}


@pytest.mark.parametrize(("words", "answer"), USAGE.values(), ids=USAGE)
def test_what_makes_no_sense_is_status_2_with_a_way_on(learner: Learner, words: list[str], answer: str) -> None:
    done = learner.run(*words)
    assert done.returncode == 2
    assert answer in done.stdout
    assert "Traceback" not in done.stdout


def test_a_child_that_cannot_start_is_status_2(learner: Learner) -> None:
    (learner.folder / "course" / "judge" / "child.py").write_text("raise SystemExit('no child today')\n")
    for words in (["check", "block-pool"], ["doctor"]):
        done = learner.run(*words)
        assert done.returncode == 2
        assert "no child today" in " ".join(done.stdout.split())


def test_doctor_finds_this_machine_fit(learner: Learner) -> None:
    done = learner.run("doctor")
    assert done.returncode == 0
    assert "This machine can judge answers." in done.stdout


def test_help_names_every_command(learner: Learner) -> None:
    done = learner.run("--help")
    assert done.returncode == 0
    for name in ("board", "check", "watch", "next", "hint", "diff", "reset", "export", "import", "list", "doctor"):
        assert re.search(rf"^  {name}\b", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "environment", "colored"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "0"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--no-color"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_is_there_when_it_is_wanted(
    learner: Learner, words: list[str], environment: dict[str, str], colored: bool
) -> None:
    assert ("\x1b[" in learner.run(*words, **environment).stdout) == colored


@pytest.mark.parametrize("columns", ["40", "64", "100", "1000"])
def test_lines_keep_to_the_width(learner: Learner, columns: str) -> None:
    learner.solve("block_pool", "popleft", "pop")
    for words in (
        [],
        ["next"],
        ["next", "load-gpt2"],
        ["check", "block-pool"],
        ["hint", "block-pool", "3"],
        ["doctor"],
    ):
        lines = learner.run(*words, COLUMNS=columns).stdout.splitlines()
        long = [line for line in lines if len(line) > min(int(columns), 100)]
        assert all("judge.py" in line for line in long), long  # a command is typed as it stands


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_every_encoding_is_served(learner: Learner, encoding: str) -> None:
    learner.solve("block_pool", "blocks = [self", "print('→ \\x1b[2J ü \\ud800')\n        blocks = [self")
    learner.write("block_pool", learner.read("block_pool").replace("popleft", "pop"))
    done = learner.run("check", "block-pool", *LIMIT, encoding=encoding)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "\\x1b[2J" in done.stdout
    assert ("✗" in done.stdout) == (encoding == "utf-8")


def test_a_reader_that_leaves_is_no_error(learner: Learner) -> None:
    process = subprocess.Popen(
        [sys.executable, "practice/judge.py"],
        cwd=learner.folder,
        env=learner.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.stderr.read() == b""
    process.wait()


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_watch_judges_what_is_saved_and_ends_politely(learner: Learner) -> None:
    learner.solve("block_pool", "popleft", "pop")
    process = subprocess.Popen(
        [sys.executable, "-u", "practice/judge.py", "watch", "block-pool", *LIMIT],
        cwd=learner.folder,
        env=learner.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert process.stdout
    guard = threading.Timer(120, process.kill)  # should it wait for ever, the reads below end
    guard.start()
    seen = _read_until(process.stdout, "watching practice/block_pool.py")
    assert "pool.allocate(3) gave [7, 6, 5]" in seen
    learner.solve("block_pool")
    assert "promises kept (" in _read_until(process.stdout, "watching practice/block_pool.py")
    process.send_signal(signal.SIGINT)
    assert "Stopped watching." in process.stdout.read()
    assert process.wait(10) == 0
    guard.cancel()


def _read_until(stream: Any, words: str) -> str:
    lines = []
    while not lines or words not in lines[-1]:
        line = stream.readline()
        assert line, "".join(lines)
        lines.append(line)
    return "".join(lines)


@pytest.mark.parametrize("version", [(2, 7), (3, 8), (3, 10)])
def test_an_old_python_is_told_so(learner: Learner, version: tuple[int, int]) -> None:
    python = shutil.which(f"python{version[0]}.{version[1]}") if os.name == "posix" else None
    if python is None or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip("no such Python here")
    done = subprocess.run(
        [python, "practice/judge.py"], cwd=learner.folder, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 2
    assert f"Python 3.11 or newer, and this is Python {version[0]}.{version[1]}" in done.stderr


def test_the_launcher_checks_the_version_before_anything_new(learner: Learner) -> None:
    """The same, for machines that have one Python only: an old version number is enough."""
    program = (
        "import sys; sys.version_info = (3, 9, 0); sys.argv = ['practice/judge.py']; exec(open(sys.argv[0]).read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=learner.folder, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 2
    assert "this is Python 3.9" in done.stderr


def test_files_of_the_learner_hide_no_module_of_python(learner: Learner) -> None:
    for name in ("json", "random", "types"):
        learner.write(name, "raise SystemExit('the wrong module')\n")
    learner.solve("block_pool")
    assert learner.run("check", "block-pool", *LIMIT).returncode == 0


def test_the_judge_runs_from_any_folder(learner: Learner) -> None:
    done = subprocess.run(
        [sys.executable, "judge.py", "next"],
        cwd=learner.folder / "practice",
        env=learner.environment(),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0
    assert f"{learner.python} judge.py check {IDS[0]}" in done.stdout


def test_a_hanging_answer_is_over_in_time(learner: Learner) -> None:
    learner.solve("block_pool", "        blocks = [self", "        while True: pass\n        blocks = [self")
    start = time.monotonic()
    done = learner.run("check", "block-pool", "--time-limit", "0.3")
    assert done.returncode == 1
    assert "did not end within 0.3 s" in done.stdout
    assert time.monotonic() - start < 3
