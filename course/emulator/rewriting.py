"""From a kernel's source to a function that Python can run with Triton's meaning.

Most of a kernel means the same in both. What does not is put right in the syntax tree: a number that is assigned
becomes a run-time scalar, `range` counts in those, `and` and `or` do not stop early, and what Triton's compiler has no
word for is refused with the line.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import textwrap
import types
from collections.abc import Callable
from typing import Any

from course.emulator.constants import constexpr
from course.emulator.dtypes import dtype
from course.emulator.errors import PACKAGE, Spot, WouldNotCompile

HELPERS = "__emulator__"
_BUILTINS = {"len", "list", "range", "float", "int", "isinstance", "getattr", "hasattr", "print", "min", "max"}

_REFUSED: dict[type[ast.AST], str] = {
    ast.Break: "`break`", ast.Continue: "`continue`", ast.Try: "`try`", ast.Raise: "`raise`", ast.With: "`with`",
    ast.Lambda: "`lambda`", ast.ListComp: "a list comprehension", ast.SetComp: "a set comprehension",
    ast.DictComp: "a dict comprehension", ast.GeneratorExp: "a generator", ast.Dict: "a dict", ast.Set: "a set",
    ast.Global: "`global`", ast.Nonlocal: "`nonlocal`", ast.Import: "`import`", ast.ImportFrom: "`import`",
    ast.ClassDef: "a class", ast.FunctionDef: "a function within", ast.AsyncFunctionDef: "`async`",
    ast.Yield: "`yield`", ast.YieldFrom: "`yield from`", ast.Await: "`await`", ast.Delete: "`del`",
    ast.Match: "`match`",
}  # fmt: skip


def source_of(function: Callable[..., Any]) -> str | None:
    """Return the source of a function, None when it cannot be found. It is read early: the file may change."""
    linecache.checkcache(function.__code__.co_filename)
    try:
        return textwrap.dedent("".join(inspect.getsourcelines(function.__code__)[0]))
    except (OSError, TypeError):
        return None


def rewrite(function: Callable[..., Any], source: str | None, helpers: object) -> Callable[..., Any]:
    """Return `function` with Triton's meaning. It sees its module's globals as they are when it runs.

    `WouldNotCompile` without a source, or for one that holds what Triton has no word for.
    """
    code = function.__code__
    tree = _definition(function, source)
    filename, first_line = code.co_filename, code.co_firstlineno
    rewriter = _Rewriter(filename, function.__name__)
    tree.decorator_list = []
    tree.returns = None
    for argument in [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]:
        argument.annotation = None
    defaults = function.__defaults__, function.__kwdefaults__
    tree.args.defaults = [ast.Constant(None) for _ in tree.args.defaults]
    tree.args.kw_defaults = [each and ast.Constant(None) for each in tree.args.kw_defaults]
    ast.increment_lineno(tree, first_line - 1)
    rewriter.check_scopes(tree)
    rewriter.check_names(tree, function)
    tree.body = rewriter.statements(tree.body)
    maker = ast.FunctionDef(
        name="__make__",
        args=ast.arguments(posonlyargs=[], args=[ast.arg(HELPERS)], kwonlyargs=[], kw_defaults=[], defaults=[]),
        body=[tree, ast.Return(ast.Name(tree.name, ast.Load()))],
        decorator_list=[],
    )
    vars(maker)["type_params"] = []  # Python 3.12 and newer
    module = ast.fix_missing_locations(ast.Module([maker], []))
    made: dict[str, Any] = {}
    exec(compile(module, filename, "exec", dont_inherit=True), function.__globals__, made)
    result: Callable[..., Any] = made["__make__"](helpers)
    result.__defaults__, result.__kwdefaults__ = defaults
    return result


def _definition(function: Callable[..., Any], source: str | None) -> ast.FunctionDef:
    if source is None:
        raise WouldNotCompile(
            f"the source of {function.__name__} cannot be found in {function.__code__.co_filename}",
            "Triton compiles a kernel from its source, which must be in a file",
        )
    parsed = ast.parse(source).body[0]
    if not isinstance(parsed, ast.FunctionDef):
        raise WouldNotCompile(f"@triton.jit wants a function: {function.__name__} is none")
    return parsed


def names_in(statements: list[ast.stmt]) -> list[ast.Name]:
    return [each for statement in statements for each in ast.walk(statement) if isinstance(each, ast.Name)]


def _may_be_global(value: Any) -> bool:
    if isinstance(value, types.ModuleType | constexpr | dtype):
        return True
    home = getattr(value, "__module__", None) or ""
    return home.rpartition(".")[0] == PACKAGE or type(value).__module__.rpartition(".")[0] == PACKAGE


class _Rewriter(ast.NodeTransformer):
    def __init__(self, filename: str, name: str) -> None:
        self.filename = filename
        self.name = name
        self.loops: list[str] = []  # the kinds of the loops around
        self.whiles = 0

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        result = []
        for each in body:
            made = self.visit(each)
            result += made if isinstance(made, list) else [made]
        return result

    def visit(self, node: ast.AST) -> Any:
        for kind, word in _REFUSED.items():
            if isinstance(node, kind):
                raise self.refuse(node, f"Triton's compiler does not know {word}")
        return super().visit(node)

    def refuse(self, node: ast.AST, what: str, *details: str) -> WouldNotCompile:
        error = WouldNotCompile(what, *details)
        spot = Spot(self.name, self.filename, getattr(node, "lineno", 0))
        error.place = f"in {self.name}, {spot.lines()}"
        return error

    def check_names(self, tree: ast.FunctionDef, function: Callable[..., Any]) -> None:
        """A kernel sees its own names, modules, other jit functions, types, and globals that are a tl.constexpr."""
        own = set(function.__code__.co_varnames)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Name) or node.id in own or not isinstance(node.ctx, ast.Load):
                continue
            if node.id in function.__code__.co_freevars:
                raise self.refuse(
                    node, f"`{node.id}` belongs to a function around the kernel: define the kernel outside"
                )
            if node.id in function.__globals__:
                if not _may_be_global(function.__globals__[node.id]):
                    raise self.refuse(
                        node,
                        f"a kernel cannot use the global `{node.id}`: it is no tl.constexpr",
                        f"write {node.id} = tl.constexpr(…), or pass it as a parameter",
                    )
            elif node.id not in _BUILTINS:
                known = hasattr(builtins, node.id)
                raise self.refuse(
                    node,
                    f"Triton has no `{node.id}`: is there a tl.{node.id}?" if known else f"`{node.id}` is not defined",
                )

    def check_scopes(self, tree: ast.FunctionDef) -> None:
        """What a loop defines first is gone when it ends."""
        parameters = {each.arg for each in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        for loop in ast.walk(tree):
            if not isinstance(loop, ast.For | ast.While) or "static_range" in ast.unparse(getattr(loop, "iter", loop)):
                continue
            inside = {id(node) for node in ast.walk(loop)}
            stored_outside = {each.id for each in names if isinstance(each.ctx, ast.Store) and id(each) not in inside}
            own = {each.id for each in names if isinstance(each.ctx, ast.Store)} - stored_outside - parameters
            for each in names:
                if each.id in own and isinstance(each.ctx, ast.Load) and id(each) not in inside:
                    raise self.refuse(
                        each,
                        f"`{each.id}` is defined within a loop, and ends with it",
                        "define it before the loop, with the type that the loop gives it",
                    )

    # ---- assignments: a number becomes a run-time scalar ----

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if len(node.targets) != 1:
            raise self.refuse(node, "Triton's compiler does not know a = b = …: assign one by one")
        self.check_target(node.targets[0])
        node.value = self.call("assigned", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        is_constant = "constexpr" in ast.unparse(node.annotation)
        self.check_target(node.target)
        if node.value is None:
            return ast.Pass(lineno=node.lineno, col_offset=0)
        value = self.visit(node.value)
        value = self.call("constant", value) if is_constant else self.call("assigned", value)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.check_target(node.target)
        assert isinstance(node.target, ast.Name)
        left = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = self.call("assigned", ast.copy_location(ast.BinOp(left, node.op, self.visit(node.value)), node))
        return ast.copy_location(ast.Assign([node.target], value), node)

    def check_target(self, target: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            for each in target.elts:
                self.check_target(each)
        elif not isinstance(target, ast.Name):
            raise self.refuse(target, "Triton's compiler assigns to names only", "use tl.where or tl.store")

    # ---- branches and loops ----

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        """After a branch that is decided at run time, what it may have changed must have kept its type."""
        parts = [{each.id for each in names_in(part) if isinstance(each.ctx, ast.Store)}
                 for part in (node.body, node.orelse)]  # fmt: skip
        node.test = self.visit(node.test)
        node.body, node.orelse = self.statements(node.body), self.statements(node.orelse)
        if not any(parts):
            return [node]
        node.test = self.call("branch", node.test)
        either, both = parts[0] | parts[1], parts[0] & parts[1]
        names = [
            ast.copy_location(ast.Tuple([ast.Constant(name) for name in sorted(each)], ast.Load()), node.test)
            for each in (either, both)
        ]
        return [node, ast.copy_location(ast.Expr(self.call("joined", *names)), node.test)]

    def visit_For(self, node: ast.For) -> ast.AST:
        if node.orelse:
            raise self.refuse(node, "Triton's compiler does not know `else` after a loop")
        if not isinstance(node.target, ast.Name):
            raise self.refuse(node, "a loop has one variable")
        self.loops.append(ast.unparse(node.iter.func) if isinstance(node.iter, ast.Call) else "")
        node.iter = self.call("loop", self.visit(node.iter))
        node.body = self.statements(node.body)
        self.loops.pop()
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        if node.orelse:
            raise self.refuse(node, "Triton's compiler does not know `else` after a loop")
        self.loops.append("while")
        self.whiles += 1
        number = ast.copy_location(ast.Constant(self.whiles), node.test)
        node.test = self.call("again", number, self.visit(node.test))
        node.body = self.statements(node.body)
        self.loops.pop()
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if any("static_range" not in each for each in self.loops):
            raise self.refuse(
                node,
                "Triton's compiler does not know `return` within a loop",
                "let the loop run to its end, and choose the result after it",
            )
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        parts = [self.visit(node.test), *([] if node.msg is None else [self.visit(node.msg)])]
        return ast.copy_location(ast.Expr(self.call("asserted", *parts)), node)

    # ---- expressions ----

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        name = "both" if isinstance(node.op, ast.And) else "either"
        return self.call(name, *[self.later(self.visit(each)) for each in node.values])

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        links = []
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            links.append(self.later(ast.copy_location(ast.Compare(left, [op], [right]), node)))
        return self.call("both", *links)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self.call("negated", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """`range`, `print`, and `min` and `max` of two, mean Triton's."""
        if node.id in ("range", "min", "max", "print") and isinstance(node.ctx, ast.Load):
            helper = ast.Attribute(ast.Name(HELPERS, ast.Load()), f"builtin_{node.id}", ast.Load())
            return ast.copy_location(helper, node)
        return node

    def call(self, name: str, *args: ast.expr) -> ast.Call:
        helper = ast.Attribute(ast.Name(HELPERS, ast.Load()), name, ast.Load())
        return ast.copy_location(ast.Call(helper, list(args), []), args[0])

    def later(self, value: ast.expr) -> ast.expr:
        """Return a function of no arguments that gives the value."""
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return ast.copy_location(ast.Lambda(nothing, value), value)
