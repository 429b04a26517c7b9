"""`@triton.jit`, and launching: `kernel[grid](…)` runs every program of the grid, one after the other."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from course.emulator import helpers, program
from course.emulator.blocks import Block, Buffer
from course.emulator.constants import unwrap
from course.emulator.dtypes import DTYPES, dtype, float32, int1, int32, int64, pointer_type
from course.emulator.errors import EmulatorError, WouldNotCompile, not_offered
from course.emulator.memory import Tensor
from course.emulator.operands import constant
from course.emulator.rewriting import rewrite, source_of

# What a launch may say about how to compile and run, with what Triton takes when it does not.
OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "enable_fp_fusion": True}

_launches: list[dict[str, Any]] = []


def launches() -> list[dict[str, Any]]:
    """Return every distinct launch since the last call, as plain data.

    `kernel` and `module`: its name, and its file's. `signature`: each parameter's type as Triton names it, `"*fp16"`,
    `"i32"`, or `"constexpr"` for a constant and for None. `constants`: the values of those; a type is
    `{"dtype": "fp16"}`. `ones` and `aligned`: the parameters that are 1, the integers and addresses divisible by 16.
    `num_warps`, `num_stages`.
    """
    result = list(_launches)
    _launches.clear()
    return result


class JITFunction:
    """A function under `@triton.jit`: called by another such function, or launched as a kernel."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fn = function
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self._source = source_of(function)
        self.signature = inspect.signature(function)
        self.arg_names = list(self.signature.parameters)
        self.constants = {
            name for name, each in self.signature.parameters.items() if "constexpr" in str(each.annotation)
        }
        self.types = {
            name: kind
            for name, each in self.signature.parameters.items()
            if (kind := annotated_type(str(each.annotation))) is not None
        }
        self._rewritten: Callable[..., Any] | None = None
        self._returned: dict[tuple[Any, ...], str] = {}

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **options: self.run(grid, *args, **options)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call from within a kernel."""
        if not program.is_running():
            raise RuntimeError(f"{self.__name__} is a kernel: launch it with {self.__name__}[grid](…)")
        bound = self._bind(args, options)
        for name in self.constants:
            bound[name] = unwrap(bound[name])
            if isinstance(bound[name], Block):
                raise WouldNotCompile(f"`{name}` of {self.__name__} is a constexpr, and gets a run-time value")
        result = self._call(bound)
        self._check_result(bound, result)
        return result

    def _call(self, arguments: dict[str, Any]) -> Any:
        scopes = program.current().scopes
        scopes.append(program.Scope())
        try:
            return self.rewritten()(**arguments)
        except UnboundLocalError as error:
            name = str(error).split("'")[1]
            raise WouldNotCompile(
                f"`{name}` has no value here: it is given one in a branch that was not taken",
                "give it a value, of the same type, before the branch",
            ).with_traceback(error.__traceback__) from None
        finally:
            scopes.pop()

    def _check_result(self, bound: dict[str, Any], result: Any) -> None:
        """All the returns of a function must have one type; which one runs may differ from program to program."""
        given = tuple((each.dtype, each.shape) if isinstance(each, Block) else repr(each) for each in bound.values())
        shown = helpers.type_text(result)
        before = self._returned.setdefault(given, shown)
        if before != shown:
            raise WouldNotCompile(f"{self.__name__} returns {before} here and {shown} there: one type is wanted")

    def rewritten(self) -> Callable[..., Any]:
        if self._rewritten is None:
            self._rewritten = rewrite(self.fn, self._source, helpers)
        return self._rewritten

    def _bind(self, args: Sequence[Any], options: dict[str, Any]) -> dict[str, Any]:
        try:
            bound = self.signature.bind(*args, **options)
        except TypeError as error:
            raise TypeError(f"{self.__name__}: {error}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def run(self, grid: Any, *args: Any, **options: Any) -> None:
        """Launch. `EmulatorError` says what is wrong with the kernel, and where."""
        chosen = dict(OPTIONS)
        for name in [name for name in options if name not in self.signature.parameters]:
            if name not in OPTIONS:
                raise TypeError(f"{self.__name__} has no parameter {name!r}")
            chosen[name] = options.pop(name)
        bound = {name: unwrap(value) for name, value in self._bind(args, options).items()}
        launch = program.Launch(self.__name__, _grid_of(grid, {**bound, **chosen}))
        started = False
        program.begin(launch)
        try:
            arguments = {name: self._argument(name, value) for name, value in bound.items()}
            _note(self, bound, arguments, chosen)
            memories = {id(each.memory): each.memory for each in bound.values() if isinstance(each, Tensor)}
            for memory in memories.values():
                memory.stored.clear()
                memory.storing.clear()
            x, y, z = launch.grid
            started = True
            for at_z, at_y, at_x in itertools.product(range(z), range(y), range(x)):
                launch.program = (at_x, at_y, at_z)
                if self._call(arguments) is not None:
                    raise WouldNotCompile("a kernel returns nothing: store what it computes")
                launch.end_program()
        except EmulatorError as error:
            error.locate(self.__name__, launch.program if started else None, error.__traceback__)
            raise
        finally:
            launch.end_program()
            program.end()

    def _argument(self, name: str, value: Any) -> Any:
        """Return what a kernel's parameter holds: a pointer, a scalar, or a constant."""
        if name in self.constants:
            if isinstance(value, Tensor):
                raise WouldNotCompile(f"`{name}` is a constexpr, and gets a tensor")
            return value
        if value is None:
            return None
        if isinstance(value, Tensor):
            low, high = value.extent()
            buffer = Buffer(name, value.memory, value.offset, low, high)
            return Block(pointer_type(value.dtype), (), [value.offset], None, None, buffer)
        if name in self.types and isinstance(value, bool | int | float):
            return constant(value, self.types[name])
        if isinstance(value, bool):
            return constant(value, int1)
        if isinstance(value, int):
            return constant(value, int32 if int32.lowest <= value <= int32.highest else int64)
        if isinstance(value, float):
            return constant(value, float32)
        raise TypeError(
            f"{self.__name__}: `{name}` gets a {type(value).__name__}: a kernel takes tensors, numbers and None; "
            "anything else must be a tl.constexpr"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise not_offered(f"a kernel's `{name}`")

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}>"


def annotated_type(annotation: str) -> dtype | None:
    """Return the type that a parameter's annotation asks for, `tl.int64` or `"i64"`; None where it asks for none."""
    name = annotation.strip("'\"").rpartition(".")[2]
    return next((kind for kind in DTYPES if name in kind.names[:2]), None)


def jit(function: Any = None, **options: Any) -> Any:
    """`@triton.jit`, with or without arguments; they say how to compile, and change no result."""
    return JITFunction if function is None else JITFunction(function)


def _grid_of(grid: Any, meta: dict[str, Any]) -> tuple[int, int, int]:
    sizes = grid(meta) if callable(grid) else grid
    if not isinstance(sizes, tuple | list) or not 1 <= len(sizes) <= 3:
        raise TypeError(f"a grid is a tuple of one to three sizes, or a function that returns one, not {sizes!r}")
    for each in sizes:
        if not isinstance(each, int) or each < 0:
            raise TypeError(f"a grid's sizes are integers of 0 or more, not {each!r}")
    x, y, z = (*sizes, 1, 1)[:3]
    return int(x), int(y), int(z)


def _note(kernel: JITFunction, bound: dict[str, Any], arguments: dict[str, Any], options: dict[str, Any]) -> None:
    signature, constants, ones, aligned = {}, {}, [], []
    for name, value in bound.items():
        argument = arguments[name]
        if not isinstance(argument, Block):
            signature[name] = "constexpr"
            constants[name] = {"dtype": value.signature} if isinstance(value, dtype) else value
            continue
        signature[name] = argument.dtype.signature
        if isinstance(value, Tensor):
            number: int | None = value.offset * value.element_size()
        else:
            number = value if isinstance(value, int) and not isinstance(value, bool) else None
        if number is not None and number % 16 == 0:
            aligned.append(name)
        if number == 1 and not isinstance(value, Tensor):
            ones.append(name)
    launched = {
        "kernel": kernel.__name__, "module": kernel.__module__, "signature": signature, "constants": constants,
        "ones": ones, "aligned": aligned,
        "num_warps": options["num_warps"], "num_stages": options["num_stages"],
    }  # fmt: skip
    if launched not in _launches:
        _launches.append(launched)
