"""Runs beside the learner's code: holds its objects and makes the calls that the checks ask for.

One request in, one reply out, both JSON data (`wire`). The agent knows nothing about what is right.
"""

from __future__ import annotations

import builtins
import io
import operator
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from course.judge import executors, graft, wire
from course.judge.views import view_of

OUTPUT_LIMIT = 20_000
RESERVE = 8 << 20  # bytes set aside, with which an answer that ran out of memory can still be reported
_reserve: list[bytes] = []  # of the interpreter, not of one agent: a page makes an agent for every check
TEXT_LIMIT = 8_000  # characters of the interpreter's words: a message may be as long as it likes
MODULE_FILE = "practice/{module}.py"


class Output(io.TextIOBase):
    """Takes the place of stdout and stderr: sends text on in batches, and stops at a stated limit."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._pending: list[str] = []
        self._pending_size = 0
        self._room = OUTPUT_LIMIT
        self._sent_at = time.monotonic()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._room > 0:
            kept = text[: self._room]
            self._room -= len(kept)
            if self._room == 0:
                kept += f"\n(output cut at {OUTPUT_LIMIT} characters)\n"
            self._pending.append(kept)
            self._pending_size += len(kept)
            if self._pending_size > 4096 or time.monotonic() - self._sent_at > 0.1:
                self.flush()
        return len(text)

    def flush(self) -> None:
        if self._pending:
            text = "".join(self._pending)
            self._pending, self._pending_size = [], 0
            self._send(text)
        self._sent_at = time.monotonic()


all_, map_ = all, map
Snapshot = tuple[str, dict[str, Any], dict[str, Any]]  # a module's name, what it holds, and what it held


class Agent:
    """Holds one learner's module and the objects made from it.

    Requests: `{"do": "prepare", "module", "reference", "uses", "beside", "executor"}` first, then
    `{"do": "load", "module", "symbols", "source"}`, answered with the public methods of each of the reference's
    classes; `{"do": "start"}` before each scenario; then `{"do": "call", "on", "name", "args", "kwargs"}` and
    `{"do": "get", "on", "name"}`, where `on` is an object's number, or None for the module; `{"do": "launches"}` for
    the kernels that the emulator has run.
    Replies: `{"value", "state"}`, `{"raised": {...}, "state"}` or `{"rebound": [module, name]}`, when the learner's
    code changed a builtin or a part of the judge. `state` is what can be drawn of the scenario's objects after the
    call, by their number (`views`).
    """

    def __init__(self, send_output: Callable[[str], None]) -> None:
        self._output = Output(send_output)
        self._objects: dict[int, object] = {}
        self._numbers: dict[int, int] = {}
        self._views: dict[int, Callable[[], dict[str, Any]]] = {}
        self._namespace: dict[str, Any] = {}
        self._classes: set[type] = set()
        self._builtins = [_snapshot(builtins)]
        self._judge = [_snapshot(module) for name, module in sys.modules.items() if name.startswith("course.judge.")]
        self._changed: list[str] | None = None
        if not _reserve:
            _reserve.append(bytes(RESERVE))

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        self._changed = None
        saved = sys.stdin, sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = io.StringIO(), self._output, self._output
        try:
            reply: dict[str, Any] = {"value": self._act(request)}
        except BaseException as error:  # SystemExit and KeyboardInterrupt are the learner's too
            self._restore(self._builtins)
            if isinstance(error, MemoryError):
                _reserve.clear()
            reply = {"raised": _describe_error(error)}
        try:
            reply["state"] = [[number, _plain(view())] for number, view in self._views.items()]
        except BaseException:  # the answer's `ref_count` may be the very thing that is wrong
            reply["state"] = []
        finally:
            self._restore(self._builtins)
            if request["do"] in ("load", "start"):  # once a scenario is often enough, and each call would take longer
                self._restore(self._judge)
            sys.stdin, sys.stdout, sys.stderr = saved
        if self._changed:
            reply = {"rebound": self._changed}
        self._output.flush()
        return reply

    def _act(self, request: dict[str, Any]) -> Any:
        if request["do"] == "prepare":
            self._prepare(request)
            return None
        if request["do"] == "load":
            return self._load(request)
        if request["do"] == "start":
            self._objects.clear()
            self._numbers.clear()
            self._views.clear()
            return None
        if request["do"] == "launches":
            return executors.launches()
        return self._do(request)

    def _prepare(self, request: dict[str, Any]) -> None:
        """Import everything that is not the learner's: PyTorch alone may take seconds."""
        self._executor = executors.load(request["executor"]) if request["executor"] else {}
        # What an exercise needs beside the answer.
        self._beside = graft.load_file(request["beside"], "beside") if request["beside"] else None
        self._reference_module = graft.reference_module(request["module"], request["reference"])
        self._used = [graft.reference_module(each) for each in request["uses"]]

    def _load(self, request: dict[str, Any]) -> dict[str, list[str]]:
        name, reference, beside, used = request["module"], self._reference_module, self._beside, self._used
        filename = MODULE_FILE.format(module=name)
        methods = _methods_of([*used, reference, *([beside] if beside else [])])
        module = graft.load_source(request["source"], filename, f"practice.{name}")
        self._restore(self._builtins)
        graft.refuse_borrowing(module)
        is_triton = bool(self._executor) and hasattr(reference, "triton")
        (graft.graft_source if is_triton else graft.graft)(module, reference, request["symbols"])
        self._namespace = {}
        for each in (*used, module):
            self._namespace.update(_public(each))
        if beside is not None:
            beside.__dict__["answer"] = module
            self._namespace.update(_public(beside))
        self._namespace.update(self._executor)
        self._classes = {value for value in self._namespace.values() if isinstance(value, type)}
        return methods

    def _do(self, request: dict[str, Any]) -> Any:
        """Make one call, or read one attribute."""
        if request["on"] is None:
            target = self._namespace[request["name"]]
        else:
            target = getattr(self._objects[request["on"]], request["name"])
        args: list[Any] = []
        if request["do"] == "call":
            args = [wire.decode(arg, self._resolve) for arg in request["args"]]
            kwargs = {name: wire.decode(arg, self._resolve) for name, arg in request["kwargs"].items()}
            target = target(*args, **kwargs)
        self._restore(self._builtins)
        return wire.encode(target, lambda value: self._reference(value, args))

    def _resolve(self, data: dict[str, Any]) -> object:
        return self._objects[data["o"]]

    def _reference(self, value: object, args: list[Any]) -> dict[str, Any] | None:
        """Keep an object of a class that the checks know, and return the reference that stands for it."""
        if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
            return {"x": f"the method {value.__name__}"}
        names = [cls.__name__ for cls in type(value).__mro__ if cls in self._classes]
        if not names:
            return None
        if id(value) not in self._numbers:
            number = len(self._objects)
            self._numbers[id(value)] = number
            self._objects[number] = value
            view = view_of(names[0], value, args)
            if view is not None:
                self._views[number] = view
        return {"o": self._numbers[id(value)], "class": names[0]}

    def _restore(self, snapshots: list[Snapshot]) -> None:
        """Undo every change to what the modules held, and keep the first, as [module, name].

        Looks up no builtin, because any may have been replaced, and asks for identity, because in equality a learner's
        class has a say.
        """
        for module, now, before in snapshots:
            if all_(map_(operator.is_, now.values(), before.values())):
                continue
            for name in [name for name, value in before.items() if now.get(name) is not value]:
                now[name] = before[name]
                self._changed = self._changed or [module, name]


def _plain(parts: dict[str, Any]) -> dict[str, Any]:
    """Return what a view saw as JSON: the learner's numbers may be of another library."""
    return {name: wire.encode(part, lambda value: None) for name, part in parts.items()}


def _snapshot(module: types.ModuleType) -> Snapshot:
    return module.__name__, vars(module), dict(vars(module))


def _public(module: types.ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def _methods_of(modules: list[types.ModuleType]) -> dict[str, list[str]]:
    """Return the public methods of every class that the modules define; what else an object has is an attribute."""
    classes = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    return {
        each.__name__: [name for name in dir(each) if name[0] != "_" and callable(getattr(each, name))]
        for each in classes
    }


def _describe_error(error: BaseException) -> dict[str, Any]:
    """Return what the checks may know about an exception; `text` is the interpreter's wording."""
    import traceback

    frames = []
    step = error.__traceback__
    while step is not None:
        filename = step.tb_frame.f_code.co_filename
        if not filename.startswith("<frozen") and "course/judge/" not in filename.replace("\\", "/"):
            frames.append(step)
        step = step.tb_next
    shown = traceback.TracebackException(type(error), error, frames[0] if frames else None, limit=-60, compact=True)
    # The emulator's own frames would take the places of the answer's.
    telling = [frame for frame in shown.stack if "course/emulator/" not in frame.filename.replace("\\", "/")]
    shown.stack[:] = (telling or shown.stack)[-6:]
    return {
        "type": type(error).__name__,
        "bases": [cls.__name__ for cls in type(error).__mro__],
        "message": _text(error),
        "text": _cut("".join(shown.format()).rstrip()),
        # A call whose arguments did not fit has no frame of its own.
        "entered": bool(frames),
        "line": error.lineno if isinstance(error, SyntaxError) and isinstance(error.lineno, int) else None,
        "missing": error.args[0] if isinstance(error, graft.Missing) else None,
        "borrowed": error.args[0] if isinstance(error, graft.Borrowed) else None,
    }


def _text(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except BaseException:
        return ""


def _cut(text: str) -> str:
    if len(text) <= TEXT_LIMIT:
        return text
    return f"{text[: TEXT_LIMIT // 2]}\n  … {len(text) - TEXT_LIMIT} characters left out …\n{text[-TEXT_LIMIT // 2 :]}"
