"""Serves the site with live reload: `python -m course.browser.serve [port]`.

MkDocs watches the pages; this watches what the pages are built from (exercises, judge, reference, front end) and
builds again when it changes.
"""

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from course.browser.output import ROOT

FIRST_PORT, LAST_PORT = 8000, 8099
WATCHED = (
    "course/browser/src",
    *(f"course/{name}" for name in ("emulator", "exercises", "judge", "page_engine")),
    "solutions",
)
BUILD = [sys.executable, "-m", "course.browser.build"]


def free_port() -> int:
    """Return the first free port of this machine's from 8000 on."""
    for port in range(FIRST_PORT, LAST_PORT + 1):
        with socket.socket() as probe:
            # A port that a server has just left counts as free, one that a server still listens on does not.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port between {FIRST_PORT} and {LAST_PORT}")


def snapshot() -> dict[Path, int]:
    """Return the time of change of every watched file."""
    files = (path for folder in WATCHED for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts)
    return {path: path.stat().st_mtime_ns for path in files if path.is_file()}


def rebuild_on_change() -> None:
    before = snapshot()
    while True:
        time.sleep(0.4)
        try:
            now = snapshot()
        except OSError:  # an editor replaced a file between the listing and the look
            continue
        if now != before:
            before = now
            print("building again …", flush=True)
            subprocess.run(BUILD, cwd=ROOT, check=False)


def main() -> int:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else free_port()
    if subprocess.run(BUILD, cwd=ROOT, check=False).returncode != 0:
        return 1
    threading.Thread(target=rebuild_on_change, daemon=True).start()
    print(f"\n  the course is at  http://127.0.0.1:{port}/  (Ctrl-C ends it)\n", flush=True)
    server = [sys.executable, "-m", "mkdocs", "serve", "--quiet", "--livereload", "--dev-addr", f"127.0.0.1:{port}"]
    try:
        return subprocess.run(server, cwd=ROOT, check=False).returncode
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
