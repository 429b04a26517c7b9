"""Packs wheels for the browser's Python, with pyodide-build's tools: `python -m course.browser.wheels [WHEEL …]`.

It builds the course's own wheel, adds the wheels that are named, and writes them to `build/wheels/`, with the lock file
from which a page loads them: `loadPyodide({lockFileURL})` with an absolute address, then
`loadPackage("paged-inference-course")`. No page of the site needs it.

pyodide-build needs Python 3.12 or newer, so it gets an environment of its own in `.cache/wheels/`; the first time, that
needs a package index. Of pyodide-build's commands these are the ones that need no network: `pyodide lockfile` writes
the lock file, and `pyodide py-compile` makes bytecode. The bytecode is that of the Python that runs the command, so it
is made only where that is the Python of Pyodide; elsewhere the wheels keep their sources, which is said.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from course.browser.bytecode import PYODIDE
from course.browser.output import ROOT

OLDEST = (3, 12)
NAMES = ("python3.14", "python3.13", "python3.12", "python3", "python")
REQUIREMENTS = ROOT / "course" / "setup" / "wheels.txt"
ENVIRONMENTS = ROOT / ".cache" / "wheels"
OUTPUT = ROOT / "build" / "wheels"


def pyodide_info() -> dict[str, str]:
    """Return what Pyodide's lock file says about its Python and platform."""
    info: dict[str, str] = json.loads((PYODIDE / "pyodide-lock.json").read_text("utf-8"))["info"]
    return info


def python_version(python: str) -> tuple[int, ...] | None:
    """Return (major, minor) of an interpreter; None when it does not run."""
    ask = "import sys, venv; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return tuple(map(int, answer.split()))


def find_python() -> tuple[str, tuple[int, ...]]:
    """Return a Python that is new enough, Pyodide's own version if there is one; `RuntimeError` when there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    kept = sorted(map(str, pyenv.glob("versions/3.*/bin/python")))
    found = [shutil.which(name) for name in NAMES]
    versions = {python: python_version(python) for python in (sys.executable, *filter(None, found), *kept)}
    usable = {python: version for python, version in versions.items() if version and version >= OLDEST}
    if not usable:
        raise RuntimeError("pyodide-build needs Python 3.12 or newer, and there is none on PATH or under pyenv")
    wanted = tuple(map(int, pyodide_info()["python"].split(".")[:2]))
    return max(usable.items(), key=lambda item: (item[1] == wanted, item[1]))


def environment(python: str, version: tuple[int, ...]) -> Path:
    """Return the programs of an environment with pyodide-build; `RuntimeError` when it cannot be installed."""
    folder = ENVIRONMENTS / "python{}.{}".format(*version)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    stamp = folder / "installed.txt"
    if stamp.is_file() and stamp.read_bytes() == REQUIREMENTS.read_bytes():
        return programs
    print("installing pyodide-build into an environment of its own (once)", file=sys.stderr)
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]
    done = subprocess.run([*install, str(REQUIREMENTS)], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise RuntimeError(f"pyodide-build could not be installed: {lines[-1]}")
    shutil.copy(REQUIREMENTS, stamp)
    return programs


def pack(extra: list[Path]) -> Path:
    """Write the wheels and their lock file; return the lock file. `RuntimeError` says why it cannot be done."""
    python, version = find_python()
    programs = environment(python, version)

    def run(*command: str | Path) -> None:
        done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    run(programs / "python", "-m", "hatchling", "build", "--target", "wheel", "--directory", OUTPUT)
    for wheel in extra:
        shutil.copy(wheel, OUTPUT)
    wanted = pyodide_info()["python"]
    if version == tuple(map(int, wanted.split(".")[:2])):
        run(programs / "pyodide", "py-compile", "--silent", OUTPUT)
    else:
        made_by, needed = ".".join(map(str, version)), ".".join(wanted.split(".")[:2])
        print(f"the wheels keep their sources: Python {made_by} cannot make bytecode for Pyodide's {needed}")
    # A lock file without packages, to which the wheels are added: a page that uses it needs nothing else.
    lock, empty = OUTPUT / "pyodide-lock.json", OUTPUT / "empty-lock.json"
    empty.write_text(json.dumps({"info": pyodide_info(), "packages": {}}))
    wheels = sorted(OUTPUT.glob("*.whl"))
    run(
        programs / "pyodide",
        "lockfile",
        "add-wheels",
        "--input",
        empty,
        "--output",
        lock,
        "--base-path",
        OUTPUT,
        *wheels,
    )
    empty.unlink()
    return lock


def main() -> int:
    try:
        lock = pack([Path(name) for name in sys.argv[1:]])
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    for name, package in json.loads(lock.read_text("utf-8"))["packages"].items():
        print(f"{name} {package['version']}: {package['file_name']}")
    print(f"locked in {lock.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
