"""Finds a Firefox for the browser tests. `FIREFOX` in the environment names another one; none is installed for you."""

import os
import shutil
from pathlib import Path

NAMES = ["firefox-esr", "firefox"]
PLACES = ["/Applications/Firefox.app/Contents/MacOS/firefox", r"C:\Program Files\Mozilla Firefox\firefox.exe"]


def find_firefox() -> str | None:
    """Return the path of a Firefox, or None."""
    wanted = os.environ.get("FIREFOX")
    if wanted:
        return wanted
    on_path = (shutil.which(name) for name in NAMES)
    return next((path for path in on_path if path), None) or next((p for p in PLACES if Path(p).exists()), None)
