"""What the judge remembers between runs, in `practice/.judge/`: it saves time, and nothing depends on it.

A verdict is kept with a digest of all that it follows from, so that an old one is never shown for a new file. Losing
it costs a re-run, the count of hints seen, which exercises have passed before (`diff` asks for that), and what was
exchanged with the page.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from course.judge.console.answers import Answer
from course.judge.exercise import ROOT, Exercise

FOLDER = ROOT / "practice" / ".judge"
FILE = FOLDER / "progress.json"


class Verdict(NamedTuple):
    """What one run found: `message` is the first failure's, `check` the name of the check that found it."""

    status: str
    unfinished: bool
    message: str
    check: str

    @classmethod
    def of(cls, report: dict[str, Any]) -> Verdict:
        failed = report["tests"][-1] if report["tests"] else report
        check = "" if report["status"] == "pass" else failed.get("name", "")
        return cls(report["status"], report["unfinished"], report["message"] or failed["message"] or "", check)


class Progress:
    """Reads and writes the file. Every change is written at once; one that cannot be written is forgotten."""

    def verdict(self, exercise: Exercise, answer: Answer) -> Verdict | None:
        """Return the last verdict, when it still holds."""
        known = self._section("verdicts").get(exercise.id)
        if not isinstance(known, list) or len(known) != 5 or known[0] != _digest(exercise, answer):
            return None
        return Verdict(str(known[1]), bool(known[2]), str(known[3]), str(known[4]))

    def has_passed(self, exercise: Exercise) -> bool:
        """Whether any answer to `exercise` has passed, ever."""
        return exercise.id in self._section("passed")

    def remember(self, exercise: Exercise, answer: Answer, report: dict[str, Any]) -> None:
        """Keep the verdict of a run."""
        verdict = Verdict.of(report)
        self._put("verdicts", exercise.id, [_digest(exercise, answer), *verdict])
        if verdict.status == "pass":
            self._put("passed", exercise.id, True)

    def hints_seen(self, exercise: Exercise) -> int:
        seen = self._section("hints").get(exercise.id)
        return seen if isinstance(seen, int) and 0 <= seen <= len(exercise.hints) else 0

    def remember_hints(self, exercise: Exercise, seen: int) -> bool:
        """Keep how many hints were seen; return whether that worked."""
        return self._put("hints", exercise.id, max(seen, self.hints_seen(exercise)))

    def remember_passed(self, exercise: Exercise) -> None:
        """Keep that an answer has passed elsewhere, in the page."""
        self._put("passed", exercise.id, True)

    def exchanged(self, exercise: Exercise) -> str:
        """Return the text that was last exported or imported; nothing when that is not known."""
        text = self._section("exchanged").get(exercise.id)
        return text if isinstance(text, str) else ""

    def remember_exchanged(self, texts: dict[str, str]) -> None:
        """Keep what was exported or imported, by exercise: a later import tells by it on which side a text changed."""
        data = _read()
        data["exchanged"] = {**self._section("exchanged"), **texts}
        _write(data)

    def _section(self, name: str) -> dict[str, Any]:
        section = _read().get(name)
        return section if isinstance(section, dict) else {}

    def _put(self, section: str, key: str, value: object) -> bool:
        data = _read()
        data[section] = {**self._section(section), key: value}
        return _write(data)


def _read() -> dict[str, Any]:
    try:
        data = json.loads(FILE.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _write(data: dict[str, Any]) -> bool:
    """Replace the file whole, so that two judges at once cannot leave half of it."""
    draft = FILE.with_name(f"progress.{os.getpid()}.tmp")
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(data), "utf-8")
        os.replace(draft, FILE)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        return False
    return True


def _digest(exercise: Exercise, answer: Answer) -> str:
    """Return a digest of all that a verdict follows from."""
    digest = hashlib.sha256(repr((sys.version, exercise.time_limit, answer.text, answer.problem)).encode())
    for path in _sources(exercise):
        with contextlib.suppress(OSError):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _sources(exercise: Exercise) -> Iterable[Path]:
    yield from sorted(exercise.folder.glob("*.*"))
    yield from sorted((ROOT / "course" / "judge").glob("*.py"))
    if exercise.executors:
        for package in ("course/judge/executors", "course/emulator"):
            yield from sorted((ROOT / package).glob("*.py"))
    for module in (exercise.module, *exercise.uses):
        yield ROOT / "solutions" / f"{module}.py"
