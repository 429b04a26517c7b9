"""The child process that runs an engine: reads its parent's tasks, one a line, and answers each with events.

As in the judge's child, the pipes to the parent are moved away from the standard streams first, so that nothing that a
learner's part prints can reach them by accident.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
from typing import Any


def main(packages: list[str]) -> None:
    """Serve one parent. `packages` are folders of installed packages, which come behind the standard library."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Where Python writes by itself when it dies, or hangs in C code; the parent reads it then.
    last_words = os.dup(2)
    faulthandler.enable(last_words)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    sys.path.insert(0, _parent(_parent(_parent(os.path.abspath(__file__)))))
    sys.path += packages
    lock = threading.Lock()  # the watchdog speaks too

    def send(kind: str, data: dict[str, Any]) -> None:
        if kind in ("done", "failed"):
            output.flush()  # what was printed comes before the end
        line = json.dumps([kind, data])
        with lock:
            replies.write(line + "\n")
            replies.flush()

    from course.judge.agent import Output

    output = Output(lambda text: send("printed", {"text": text}))
    sys.stdout = sys.stderr = output
    from course.assembly.tasks import Tasks

    tasks = Tasks(send, last_words)
    for line in requests:
        tasks.do(json.loads(line))


_parent = os.path.dirname


if __name__ == "__main__":
    main(sys.argv[1:])
