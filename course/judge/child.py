"""The child process that runs a learner's file: an agent that reads requests from its parent and answers them.

The two pipes to the parent are moved away from the standard streams first, so that nothing a learner's code prints, or
reads, can reach them by accident.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path


def main(memory_limit: int) -> None:
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from course.judge.agent import Agent

    lock = threading.Lock()  # threads of the learner's may print while a reply is written

    def send(kind: str, data: object) -> None:
        line = json.dumps([kind, data])
        with lock:
            replies.write(line + "\n")
            replies.flush()

    agent = Agent(lambda text: send("output", text))
    if memory_limit:
        _limit_memory(memory_limit)
    send("ready", None)
    for line in requests:
        send("reply", agent.handle(json.loads(line)))


def _limit_memory(limit: int) -> None:
    """Bound the address space, where the system can."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):
        pass


if __name__ == "__main__":
    main(int(sys.argv[1]))
