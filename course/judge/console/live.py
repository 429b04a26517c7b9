"""The requests of an engine on the screen while it runs: rewritten in place on a screen, a line a step elsewhere."""

from __future__ import annotations

from typing import Any

from course.judge.console.terminal import Terminal

BAR_WIDTH = 20
SHOWN = 12  # requests whose text is shown at once
NUMBER_WIDTH = 3


class Live:
    """Takes the events of a generation (`show`), and keeps the text of every request in `texts`."""

    def __init__(self, terminal: Terminal, prompts: tuple[str, ...]) -> None:
        self._terminal = terminal
        self.texts = list(prompts)
        self.ended: dict[int, str] = {}
        self.has_begun = False
        self._blocks = 0
        self._height = 0  # lines on the screen that the next ones take the place of
        self._last_status = ""

    def show(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "started":
            self._blocks = data["blocks"]
            self._terminal.write([data["cache"], ""])
        elif kind == "step":
            self.has_begun = True
            for request, text in data["text"].items():
                self.texts[int(request)] += text
            self.ended |= {int(request): why for request, why in data["finished"].items()}
            self._write(data)

    def close(self) -> None:
        """Leave the screen to what comes next."""
        if self._height:
            self._terminal.rewrite([self._last_status], self._height)
        self._height = 0

    def _write(self, step: dict[str, Any]) -> None:
        if not self._terminal.can_rewrite:
            # Not cut: a file has no width, and half a request's token says something else.
            self._terminal.write([f"{self._status(step)}  {_pieces(step, self._terminal)}"])
            return
        self._last_status = self._cut(self._status(step))
        lines = [*(self._text_line(request) for request in self._shown(step)), "", self._last_status]
        self._terminal.rewrite(lines, self._height)
        self._height = len(lines)

    def _shown(self, step: dict[str, Any]) -> list[int]:
        """Return the requests to show: all where there is room, else those that run. Always as many."""
        others = [request for request in range(len(self.texts)) if request not in self.ended]
        running = [request for request, _ in step["batch"]]
        order = dict.fromkeys([*running, *others, *range(len(self.texts))])
        return sorted(list(order)[:SHOWN])

    def _status(self, step: dict[str, Any]) -> str:
        """Return one line: the step, the pool, and what the step computes."""
        in_use, total = step["blocks_in_use"], self._blocks
        full = -(-BAR_WIDTH * in_use // total)
        bar = self._terminal.symbol("full") * full + self._terminal.symbol("empty") * (BAR_WIDTH - full)
        requests, tokens = len(step["batch"]), sum(num_new for _, num_new in step["batch"])
        waiting = len(self.texts) - requests - len(self.ended.keys() - {request for request, _ in step["batch"]})
        words = f"step {step['step']:>3}  {bar}  {in_use:>{len(str(total))}} of {total} blocks"
        words += f"  {tokens} token{_s(tokens)} of {requests} request{_s(requests)}"
        words += f", {waiting} waiting" if waiting > 0 else ""
        return words + (f", preempted {', '.join(map(str, step['preempted']))}" if step["preempted"] else "")

    def _text_line(self, request: int) -> str:
        """Return the end of a request's text, on one line."""
        text = self._terminal.clean(" ".join(self.texts[request].split()))
        room = self._terminal.width - NUMBER_WIDTH - 2
        return f"{request:>{NUMBER_WIDTH}}  {text[-room:]}"

    def _cut(self, line: str) -> str:
        return line[: self._terminal.width]


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def _pieces(step: dict[str, Any], terminal: Terminal) -> str:
    """Return each request's new text, quoted so that blanks and line ends can be seen."""
    return "  ".join(f"{request} {terminal.clean(repr(text))}" for request, text in step["text"].items() if text)
