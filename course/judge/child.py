"""The child process that runs a learner's file: an agent that reads requests from its parent and answers them.

The two pipes to the parent are moved away from the standard streams first, so that nothing a learner's code prints, or
reads, can reach them by accident.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import threading


def main(packages: list[str]) -> None:
    """Serve one parent, whose first line is the memory limit in bytes, 0 for none.

    `packages` are folders of installed packages, which come behind the standard library.
    """
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    sys.path.insert(0, _parent(_parent(_parent(os.path.abspath(__file__)))))
    sys.path += packages
    # What `site` would have defined; without it they would be a NameError, with it the message about sys.exit.
    for name in ("exit", "quit"):
        setattr(builtins, name, sys.exit)
    from course.judge.agent import Agent

    lock = threading.Lock()  # threads of the learner's may print while a reply is written

    def send(kind: str, data: object) -> None:
        line = json.dumps([kind, data])
        with lock:
            replies.write(line + "\n")
            replies.flush()

    agent = Agent(lambda text: send("output", text))
    memory_limit = requests.readline()
    if not memory_limit:
        return  # started ahead, and not needed
    if int(memory_limit):
        _limit_memory(int(memory_limit))
    send("ready", None)
    me = os.getpid()
    for line in requests:
        reply = agent.handle(json.loads(line))
        if os.getpid() != me:
            os._exit(0)  # the learner's code called os.fork: one process answers, and it is the first
        send("reply", reply)


_parent = os.path.dirname  # `pathlib` would double the time to come up


def _limit_memory(limit: int) -> None:
    """Bound the address space, where the system can."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
