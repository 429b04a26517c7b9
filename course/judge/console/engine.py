"""`engine`: runs a batch of prompts through the engine that the learner's parts make, and shows it at work."""

from __future__ import annotations

from typing import Any

from course.judge.console.invocation import command
from course.judge.console.live import Live
from course.judge.console.packages import ENGINE
from course.judge.console.progress import Progress
from course.judge.console.prose import wrap
from course.judge.console.session import Session, open_session, print_json
from course.judge.console.settings import Settings
from course.judge.console.terminal import Terminal
from course.judge.console.verdict import block, next_row

TITLE = "The engine, and whose its parts are"


def run_engine(screen: Terminal, out: Terminal | None, progress: Progress, settings: Settings) -> int:
    """Run it. `screen` is for people; JSON goes to `out`, where there is one."""
    with open_session(screen, progress, settings, TITLE, ENGINE) as session:
        session.worker.result("assemble", **session.job)
        live = Live(screen, settings.prompts)
        printed, summary = "", {}
        job = {"prompts": settings.prompts, "new_tokens": settings.new_tokens, "blocks": settings.blocks}
        try:
            for kind, data in session.worker.ask("generate", **job):
                printed += data["text"] if kind == "printed" else ""
                summary = data
                live.show(kind, data)
        finally:
            live.close()
            screen.write(_texts(screen, live) if live.has_begun else [])
            screen.write(block(screen, "printed", printed.rstrip("\n").split("\n")[-12:]))
        screen.write([*_summary(session, summary), "", *next_row(screen, command("parity")), ""])
        if out is not None:
            print_json(out, _as_dict(session, settings, live, summary))
    return 0


def _texts(terminal: Terminal, live: Live) -> list[str]:
    """Return every request's text, as far as it came."""
    lines = []
    for number, text in enumerate(live.texts):
        why = {"length": "as long as asked", "eos": "ended by itself"}.get(live.ended.get(number, ""), "not finished")
        lines += ["", terminal.paint(f"request {number}, {why}", "dim")]
        for paragraph in terminal.clean(text).split("\n"):
            lines += [f"  {line}" for line in wrap(paragraph, terminal.width - 2)]
    return lines


def _summary(session: Session, done: dict[str, Any]) -> list[str]:
    times = "time" if done["preemptions"] == 1 else "times"
    return [
        "",
        f"{done['tokens']} tokens in {done['steps']} steps, {done['seconds']:.2f} s on {session.machine['device']}; "
        f"at most {done['most_blocks']} of {done['blocks']} blocks in use; preempted {done['preemptions']} {times}",
    ]


def _as_dict(session: Session, settings: Settings, live: Live, summary: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": "pass",
        "parts": [origin.as_dict() for origin in session.found],
        "machine": session.machine,
        "requests": [
            {"prompt": prompt, "text": text.removeprefix(prompt), "finished": live.ended.get(number)}
            for number, (prompt, text) in enumerate(zip(settings.prompts, live.texts, strict=True))
        ],
        "summary": summary,
    }
