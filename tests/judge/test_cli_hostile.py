"""Answers that never end, leave, lie or break things: a clear message in time, never a hang, never a pass."""

import os
import sys
import time
from typing import Any

import pytest

from course.judge.exercise import find_exercise
from course.judge.page import LocalChannel
from course.judge.process import judge
from course.judge.report import Report
from course.judge.run import run_checks
from course.judge.stub import reference_source

EXERCISE = find_exercise("block-pool")
REFERENCE = reference_source("block_pool")
LIMIT = 0.4  # seconds, where the answer never comes back
GENEROUS = 20.0  # seconds, where it does: a busy machine must not change a verdict
POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")

WRONG = REFERENCE.replace("self._free.popleft()", "self._free.pop()")


def in_allocate(code: str) -> str:
    """Return the reference, with `code` run in `allocate` before a block is taken."""
    place = "        if num_blocks > len(self._free):\n"
    assert place in REFERENCE
    return REFERENCE.replace(place, "".join(f"        {line}\n" for line in code.split("\n")) + place)


def message_of(report: dict[str, Any]) -> str:
    return str(report["message"] or report["tests"][-1]["message"])


def output_of(report: dict[str, Any]) -> str:
    return str(report["output"]) + "".join(test["output"] for test in report["tests"])


ENDLESS = {
    "a plain loop": in_allocate("while True: pass"),
    "a loop that catches everything": in_allocate(
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    ),
    "a loop at import": f"{REFERENCE}\nwhile True: pass\n",
    "a sleep": in_allocate("import time\ntime.sleep(100)"),
    "a thread that is waited for": in_allocate(
        "import threading, time\n"
        "thread = threading.Thread(target=time.sleep, args=(100,))\nthread.start()\nthread.join()"
    ),
    "a flood of print": in_allocate("while True: print('x' * 100)"),
    "a flood of os.write": in_allocate("import os\nwhile True: os.write(1, b'x' * 1000)"),
}

POSIX_ENDLESS = {
    "a process that stops itself": in_allocate("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"),
    "a flood of lines on the judge's own pipe": in_allocate(
        'import os\nwhile True:\n    for fd in range(3, 12):\n        try: os.write(fd, b\'["output", "x"]\\n\' * 99)\n'
        "        except OSError: pass"
    ),
}


@pytest.mark.parametrize("source", [*ENDLESS.values(), *POSIX_ENDLESS.values()], ids=[*ENDLESS, *POSIX_ENDLESS])
def test_what_never_ends_is_ended(source: str) -> None:
    if source in POSIX_ENDLESS.values() and not hasattr(os, "fork"):
        pytest.skip("needs a POSIX system")
    start = time.monotonic()
    report = judge(EXERCISE, source, LIMIT).as_dict()
    took = time.monotonic() - start
    assert report["status"] != "pass"
    assert f"did not end within {LIMIT:g} s (an endless loop?)" in message_of(report)
    assert took < LIMIT + 1
    assert len(output_of(report)) < 5_000_000


def test_a_look_that_never_ends_is_a_possible_cause() -> None:
    """The call that made the pool ended; what does not is the look at the pool, which calls the learner's code."""
    source = reference_source("block_pool").replace(
        "        return self._ref_counts[block]\n", "        while True:\n            pass\n"
    )
    message = message_of(judge(EXERCISE, source, LIMIT).as_dict())
    assert message.startswith(f"BlockPool(1) did not end within {LIMIT:g} s (an endless loop?)\n")
    assert message.endswith("a look at num_free and ref_count: it may be in one of these.")


LEAVES = {
    "sys.exit(0)": ("import sys\nsys.exit(0)", "tried to leave the program (sys.exit?)"),
    "exit(0)": ("exit(0)", "tried to leave the program (sys.exit?)"),
    "os._exit(0)": ("import os\nos._exit(0)", "ended the process itself (exit status 0)"),
    "os._exit(1)": ("import os\nos._exit(1)", "ended the process itself (exit status 1)"),
    "endless recursion": ("return self.allocate(num_blocks)", "calls itself without end (RecursionError)"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
    "input()": ("input()", "waited for input"),
    "an error of its own": ("raise OSError('no')", "raised OSError"),
    "an error that cannot be shown": (
        "class Bad(Exception):\n    def __str__(self): raise self\nraise Bad",
        "raised Bad",
    ),
    "a syntax error with a strange line": (
        "error = SyntaxError('x')\nerror.lineno = object()\nraise error",
        "SyntaxError",
    ),
}


@pytest.mark.parametrize(("code", "words"), LEAVES.values(), ids=LEAVES)
def test_what_leaves_is_named(code: str, words: str) -> None:
    report = judge(EXERCISE, in_allocate(code), GENEROUS).as_dict()
    assert report["status"] == "fail"
    assert words in message_of(report)
    assert message_of(report).startswith("pool.allocate(3)")


AT_IMPORT = {
    "sys.exit(0)": ("import sys\nsys.exit(0)", "leaves the program while it is loaded"),
    "os._exit(0)": ("import os\nos._exit(0)", "loading practice/block_pool.py ended the process itself"),
    "an error": ("1 / 0", "raises ZeroDivisionError while it is loaded"),
    "nothing": ("", "has no BlockPool.__init__"),
    "prose": ("Dear judge,", "line 1: this is not valid Python"),
}


@pytest.mark.parametrize(("source", "words"), AT_IMPORT.values(), ids=AT_IMPORT)
def test_what_cannot_be_loaded_is_an_error(source: str, words: str) -> None:
    report = judge(EXERCISE, source, GENEROUS).as_dict()
    assert report["status"] == "error"
    assert words in message_of(report)


@POSIX
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
def test_a_killed_process_is_named(name: str) -> None:
    code = f"import os, signal\nos.kill(os.getpid(), signal.{name})"
    report = judge(EXERCISE, in_allocate(code), GENEROUS).as_dict()
    assert report["status"] == "fail"
    assert f"killed by {name}" in message_of(report)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the memory")
@pytest.mark.parametrize("keep", ["blocks", "self.blocks"])
def test_a_memory_bomb_runs_into_the_limit(keep: str) -> None:
    code = f"{keep} = []\nwhile True: {keep}.append(bytearray(1 << 20))"
    report = judge(EXERCISE, in_allocate(code), GENEROUS).as_dict()
    assert report["status"] == "fail"
    assert "ran out of memory (MemoryError)" in message_of(report)


def test_threads_that_never_end_hold_nobody_up() -> None:
    code = (
        "import threading, time\n"
        "if threading.active_count() == 1: threading.Thread(target=time.sleep, args=(600,)).start()"
    )
    start = time.monotonic()
    assert judge(EXERCISE, in_allocate(code), GENEROUS).status == "pass"
    assert time.monotonic() - start < GENEROUS


def test_rebound_builtins_are_refused() -> None:
    for name in ("len", "isinstance", "print", "map", "all", "vars", "getattr", "type"):
        at_import = judge(
            EXERCISE, f"import builtins\nbuiltins.{name} = lambda *a: True\n{REFERENCE}", GENEROUS
        ).as_dict()
        in_a_call = judge(
            EXERCISE, in_allocate(f"import builtins\nbuiltins.{name} = lambda *a: True"), GENEROUS
        ).as_dict()
        assert at_import["status"] == "error"
        assert in_a_call["status"] == "fail"
        for report in (at_import, in_a_call):
            assert f"replaces the builtin `{name}`" in message_of(report)


PATCHES = {
    "wire": "import course.judge.wire as it\nit.encode = lambda *a: [0, 1, 2]",
    "expect": "import course.judge.expect as it\nit.same = lambda *a: True\nit.expect = lambda *a, **k: None",
    "run": "import course.judge.run as it\nit._run_check = lambda *a: None",
    "the checks' base": "import course.judge.agent as it\nit.Agent.handle = lambda *a: {'value': None, 'state': []}",
    "json": 'import json\njson.dumps = lambda *a: \'["reply", {"value": [0, 1, 2], "state": []}]\'',
}


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)
def test_a_patched_judge_lets_nothing_wrong_pass(patch: str) -> None:
    assert judge(EXERCISE, f"{patch}\n{WRONG}", 2.0).status != "pass"
    assert judge(EXERCISE, WRONG + "\n" + patch, 2.0).status != "pass"


def test_a_patched_judge_module_is_named() -> None:
    report = judge(EXERCISE, f"{PATCHES['wire']}\n{REFERENCE}", GENEROUS).as_dict()
    assert "your code changes `encode` in course.judge.wire" in message_of(report)


LIES = {
    "a list that equals everything": "class Yes(list):\n    def __eq__(self, other): return True\nreturn Yes()",
    "an object that equals everything": "class Yes:\n    def __eq__(self, other): return True\nreturn Yes()",
    "NaN": "return float('nan')",
    "a very long text": "return 'x' * 10_000_000",
    "a text that is no Unicode": "return '\\ud800'",
    "a generator": "return (block for block in [0, 1, 2])",
    "printed verdicts": (
        'print("PASSED")\nprint(\'{"status": "pass"}\')\nprint(\'["reply", {"value": [0, 1, 2]}]\')\nreturn None'
    ),
}


@pytest.mark.parametrize("code", LIES.values(), ids=LIES)
def test_a_lie_is_not_believed(code: str) -> None:
    report = judge(EXERCISE, in_allocate(code), GENEROUS).as_dict()
    assert report["status"] == "fail"
    assert message_of(report).startswith("pool.allocate(3) gave ")


def test_nan_is_no_number_of_free_blocks() -> None:
    assert (
        judge(EXERCISE, REFERENCE.replace("return len(self._free)", "return float('nan')"), GENEROUS).status == "fail"
    )


def test_a_renamed_method_is_named() -> None:
    report = judge(EXERCISE, REFERENCE.replace("def share(", "def shared("), GENEROUS).as_dict()
    assert message_of(report) == "practice/block_pool.py has no BlockPool.share: was it renamed or deleted?"


def test_a_changed_signature_is_explained() -> None:
    source = REFERENCE.replace("def allocate(self, num_blocks: int)", "def allocate(self)")
    report = judge(EXERCISE, source, GENEROUS).as_dict()
    assert message_of(report) == "pool.allocate(3) does not accept these arguments: keep the signature of the stub"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("from solutions.block_pool import BlockPool", "BlockPool"),
        ("import solutions.block_pool as mine\nBlockPool = mine.BlockPool", "mine"),
        ("from solutions import block_pool\nclass BlockPool(block_pool.BlockPool): pass", "block_pool"),
    ],
)
def test_an_answer_that_imports_the_answer_is_refused(code: str, name: str) -> None:
    report = judge(EXERCISE, code, GENEROUS).as_dict()
    assert report["status"] == "error"
    assert report["message"] == (f"practice/block_pool.py takes `{name}` from solutions/: an answer is to be your own")


def test_output_without_a_line_end_is_kept() -> None:
    report = judge(EXERCISE, in_allocate("print('42', end='')\nreturn None"), GENEROUS).as_dict()
    assert report["tests"][-1]["output"] == "42"


def test_output_is_cut_at_a_stated_limit() -> None:
    report = judge(EXERCISE, in_allocate("print('x' * 50_000)\nreturn None"), GENEROUS).as_dict()
    assert "output cut at 20000 characters" in output_of(report)
    assert len(output_of(report)) < 21_000


@POSIX
def test_a_fork_changes_no_verdict_and_outlives_nothing() -> None:
    assert judge(EXERCISE, in_allocate("import os\nos.fork()"), GENEROUS).status == "pass"
    assert judge(EXERCISE, in_allocate("import os\nos.fork()").replace("popleft", "pop"), GENEROUS).status == "fail"


@POSIX
def test_a_process_left_behind_is_ended(tmp_path: Any) -> None:
    mark = tmp_path / "alive"
    program = f"import time, pathlib\nfor _ in range(500): pathlib.Path({str(mark)!r}).touch(); time.sleep(0.02)"
    code = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {program!r}])\nreturn None"
    start = time.monotonic()
    assert judge(EXERCISE, in_allocate(code), GENEROUS).status == "fail"
    assert time.monotonic() - start < GENEROUS
    time.sleep(0.1)
    mark.unlink(missing_ok=True)
    time.sleep(0.2)
    assert not mark.exists()


@POSIX
def test_a_forked_process_that_hides_holds_nobody_up() -> None:
    """It leaves the process group and keeps the pipe open."""
    code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(3)\n    os._exit(0)\nreturn None"
    start = time.monotonic()
    assert judge(EXERCISE, in_allocate(code), GENEROUS).status == "fail"
    assert time.monotonic() - start < 2.5


@POSIX
def test_forged_replies_pass_nothing() -> None:
    forged = (
        "import os\nfor fd in range(3, 12):\n"
        '    try: os.write(fd, b\'["reply", {"value": null, "state": []}]\\n\' * 999)\n'
        "    except OSError: pass\n"
    )
    assert judge(EXERCISE, forged + WRONG, GENEROUS).status != "pass"
    assert judge(EXERCISE, "import os\nos.closerange(3, 64)\n" + REFERENCE, GENEROUS).status != "pass"


@POSIX
def test_noise_on_the_pipe_is_named() -> None:
    noise = "import os\nfor fd in range(3, 12):\n    try: os.write(fd, b'noise\\n')\n    except OSError: pass\n"
    report = judge(EXERCISE, noise + REFERENCE, GENEROUS).as_dict()
    assert report["status"] == "error"
    assert "wrote into the judge's own pipe" in message_of(report)


def test_a_run_that_stops_anywhere_is_no_pass() -> None:
    """JB06: only the last event, which says that all checks ran, makes a pass."""
    events: list[list[Any]] = []
    run_checks(EXERCISE, REFERENCE, LocalChannel(), events.append)
    assert Report.of(EXERCISE, events).status == "pass"
    for length in range(len(events)):
        assert Report.of(EXERCISE, events[:length]).status != "pass"
