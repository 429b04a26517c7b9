"""Finds a Chromium or Chrome for the browser tests, and installs one where the system's package manager may.

`python -m course.setup.chromium` prints the path of the browser. `CHROMIUM` in the environment names another one.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]
PLACES = [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Google\Chrome\Application\chrome.exe",
]
# Nothing may leave the machine during a test, not even the browser's own look-ups.
QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
]


def find_chromium() -> str | None:
    """Return the path of a browser, or None."""
    wanted = os.environ.get("CHROMIUM")
    if wanted:
        return wanted
    on_path = (shutil.which(name) for name in NAMES)
    return next((path for path in on_path if path), None) or next((p for p in PLACES if Path(p).exists()), None)


def launch_arguments() -> list[str]:
    """Return the switches that a test's browser starts with."""
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [*QUIET, "--no-sandbox"] if as_root else QUIET


def install_chromium() -> None:
    """Install the distribution's Chromium; `RuntimeError` where this user or this system cannot."""
    apt = shutil.which("apt-get")
    if apt is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise RuntimeError(
            "the browser tests need Chromium or Chrome: install one (Debian: `sudo apt-get install chromium`), "
            "or set CHROMIUM to its path, then run `make test` again"
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        subprocess.run([apt, "-qq", *command], env=environment, stdout=sys.stderr, check=True)


def main() -> int:
    try:
        if find_chromium() is None:
            print("no Chromium found: installing the system's", file=sys.stderr)
            install_chromium()
    except (RuntimeError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 2
    print(find_chromium())
    return 0


if __name__ == "__main__":
    sys.exit(main())
