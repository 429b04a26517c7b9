"""The stubs that are handed out are those of this version of the course."""

import os
from pathlib import Path

import pytest

from course.judge import stubs
from course.judge.exercise import load_exercises
from course.judge.untouched import is_untouched, stub_hash


def test_the_list_holds_the_hash_of_every_stub() -> None:
    assert stubs.stale_hashes() == []


@pytest.mark.skipif(
    not os.environ.get("CI"), reason="practice/ is the learner's: its files are held to this in CI only"
)
def test_the_files_in_practice_are_the_stubs() -> None:
    assert stubs.stale_files() == []


def test_every_module_has_a_stub_that_nobody_has_written_in() -> None:
    texts = stubs.stub_texts()
    assert set(texts) == {exercise.module for exercise in load_exercises()}
    for module, text in texts.items():
        assert is_untouched(module, text)
        assert is_untouched(module, text.replace("\n", "\r\n"))
        assert not is_untouched(module, f"{text}\n# mine\n")


def test_writing_leaves_work_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three files: one that is missing, one with work in it, and the stub of an older version."""
    (tmp_path / "practice").mkdir()

    monkeypatch.setattr(stubs, "ROOT", tmp_path)
    monkeypatch.setattr(stubs, "LIST", tmp_path / "stubs.json")
    modules = sorted(stubs.stub_texts())
    for module in modules[1:3]:
        stubs.practice_path(module).write_text(f"# {module}, once\n", "utf-8")
    monkeypatch.setattr(stubs, "listed_hashes", lambda: {modules[2]: stub_hash(f"# {modules[2]}, once\n")})
    assert stubs.write_stubs() == [modules[1]]
    assert stubs.practice_path(modules[0]).read_text("utf-8") == stubs.stub_texts()[modules[0]]
    assert stubs.practice_path(modules[1]).read_text("utf-8") == f"# {modules[1]}, once\n"
    assert stubs.practice_path(modules[2]).read_text("utf-8") == stubs.stub_texts()[modules[2]]
