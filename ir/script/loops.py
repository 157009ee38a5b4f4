"""Loops of the script.

In the program a loop starts at 0 and steps by 1::

    for i in range(a, b, s): f(i)   ==   for i in range((b - a + s - 1) // s): f(i * s + a)
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from .. import dtypes
from ..expr import Const, Expr, Var, binary
from ..stmt import THREAD_AXES, Annotations, For, Stmt
from ..syntax.base import Scope, called, show
from ..syntax.constants import attributes, constant, integer, typed_integer
from ..syntax.intrinsics import number
from ..syntax.words import LOOPS, near
from .declarations import DeclarationParser

VIRTUAL = "vthread"
"""The annotation of a serial loop that TVM binds to a virtual thread: its iterations take turns in one thread."""
_VIRTUAL_AXES = (VIRTUAL, *(f"{VIRTUAL}.{axis}" for axis in "xyz"))
_OPTIONS = frozenset({"start", "stop", "begin", "end", "step", "thread", "annotations", "dtype"})


@dataclass(frozen=True)
class Loop:
    """A loop by its name in the text: ``name = start + var * step``."""

    var: Var
    extent: Expr
    start: Expr
    step: int

    def __call__(self, value: Expr) -> Expr:
        return binary("+", value * self.step, self.start)


class LoopParser(DeclarationParser):
    """Builds loops; `loops` are those of the text by name, `around` the ones that are open."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.loops: dict[str, Loop] = {}
        self.around: list[tuple[Var, Expr]] = []

    @abstractmethod
    def suite(self, nodes: Sequence[ast.stmt]) -> Stmt:
        """The statements of one indented suite."""

    def loop(self, node: ast.For) -> Stmt:
        """``for i in range(n):``, ``for i, j in T.grid(n, m):`` and the like."""
        call, name = node.iter, called(node.iter)
        if not isinstance(call, ast.Call) or (name != "grid" and name not in LOOPS) or node.orelse:
            hint = near(name, ("grid", *LOOPS), "T.") if name else ""
            raise self.error(node.iter, f"a loop is over `T.grid` or one of `{'`, `'.join(LOOPS)}`{hint}")
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        depth = len(self.around)
        with self.scope.nested():
            if name == "grid":
                shells = self._grid(node, call, targets)
            elif len(targets) == 1:
                shells = [self._single(targets[0], call, LOOPS[name])]
            else:
                raise self.error(node.target, f"`{name}` gives one variable; use `T.grid` for several")
            body = self.suite(node.body)
        del self.around[depth:]
        for var, extent, kind, thread, notes in reversed(shells):
            body = For(var, extent, body, kind, thread, notes)
        return body

    def _grid(self, node: ast.For, call: ast.Call, targets: Sequence[ast.AST]) -> list[Shell]:
        if len(targets) != len(call.args) or call.keywords:
            raise self.error(node.target, f"`T.grid` has {len(targets)} variables for {len(call.args)} extents")
        shells: list[Shell] = []
        for target, extent in zip(targets, call.args, strict=True):
            pair = extent.elts if isinstance(extent, ast.Tuple) and len(extent.elts) == 2 else (None, extent)
            made = self._open(target, pair[0], pair[1], None, None)
            shells.append((made.var, made.extent, "serial", "", ()))
        return shells

    def _single(self, target: ast.AST, call: ast.Call, kind: str) -> Shell:
        options = {k.arg: k.value for k in call.keywords}
        for key, value in options.items():
            if key not in _OPTIONS:
                raise self.error(value, f"a loop has no option `{key}`{near(key or '', _OPTIONS)}")
        args = list(call.args)
        if kind == "thread_binding" and "thread" not in options and args:
            last = args[-1]
            if isinstance(last, ast.Constant) and isinstance(last.value, str):
                options["thread"] = args.pop()
        args.extend(options[k] for k in ("start", "begin", "stop", "end", "step") if k in options)
        if not 1 <= len(args) <= 3 or any(isinstance(a, ast.Starred) for a in args):
            raise self.error(call, "a loop takes an extent, or a start and a stop, or a start, a stop and a step")
        if (kind == "thread_binding") != ("thread" in options):
            raise self.error(call, "`thread=` is for `T.thread_binding`, which needs it")
        thread = self._thread(options["thread"]) if "thread" in options else ""
        notes: Annotations = ()
        if thread.startswith(VIRTUAL):
            kind, thread, notes = "serial", "", ((VIRTUAL, thread),)
        given = options.get("annotations")
        if given is not None and not (isinstance(given, ast.Constant) and given.value is None):
            notes += attributes(given, self.scope)
        start, stop, step = (None, *args, None) if len(args) == 1 else (*args, None)[:3]
        assert stop is not None
        made = self._open(target, start, stop, step, options.get("dtype"))
        return made.var, made.extent, kind, thread, notes

    def _thread(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and node.value in (*THREAD_AXES, *_VIRTUAL_AXES):
            return str(node.value)
        raise self.error(node, f"`thread=` must be one of {', '.join(THREAD_AXES)}, but got `{show(node)}`")

    def thread_axis(self, call: ast.Call) -> str:
        """The axis in ``T.env_thread("threadIdx.x")``."""
        if len(call.args) != 1 or call.keywords:
            raise self.error(call, 'expected `T.env_thread("threadIdx.x")`')
        return self._thread(call.args[0])

    def launch(self, target: ast.AST, call: ast.Call, body: Sequence[ast.stmt]) -> Stmt:
        """``tx = T.launch_thread("threadIdx.x", n)``, a loop around the rest."""
        if len(call.args) != 2 or call.keywords:
            raise self.error(call, 'expected `T.launch_thread("threadIdx.x", extent)`')
        known = self.scope.threads.get(call.args[0].id) if isinstance(call.args[0], ast.Name) else None
        thread = known or self._thread(call.args[0])
        depth = len(self.around)
        with self.scope.nested():
            made = self._open(target, None, call.args[1], None, None)
            inner = self.suite(body)
        del self.around[depth:]
        if thread.startswith(VIRTUAL):
            return For(made.var, made.extent, inner, annotations=((VIRTUAL, thread),))
        return For(made.var, made.extent, inner, "thread_binding", thread)

    def _open(
        self, target: ast.AST, start: ast.AST | None, stop: ast.AST, step: ast.AST | None, dtype: ast.AST | None
    ) -> Loop:
        """Bind a loop's name: the variable runs from 0, and the name means ``start + var * step``.

        A loop is of the index type unless a bound is a typed constant: ``range(T.int32(8))``.
        """
        if not isinstance(target, ast.Name):
            raise self.error(target, "a loop variable is a plain name")
        kind = typed_integer(start or stop) or typed_integer(stop) or self.scope.integers
        if kind != dtypes.INDEX and constant(stop, self.scope) is None:  # as wide as what bounds it
            wide = self.exprs.expr(stop).dtype
            kind = wide if dtypes.is_int(wide) and dtypes.bits(wide) > dtypes.bits(kind) else kind
        if dtype is not None:
            kind = self.dtype(dtype, str(getattr(dtype, "value", "")))
        jump = 1 if step is None else integer(step, self.scope, "the step of a loop")
        if jump < 1:
            raise self.error(step or target, f"the step of a loop must be positive, but is {jump}")
        first = Const(0, kind) if start is None else self._bound(start, kind)
        extent = binary("-", self._bound(stop, kind), first)
        if jump > 1:
            extent = (extent + (jump - 1)) // jump
        for value in (extent, first):
            if isinstance(value, Const):
                try:
                    number(value.value, kind)
                except ValueError as error:
                    raise self.error(stop, f"the range of the loop: {error}") from None
        loop = Loop(Var(self.scope.unique(target.id, target), kind), extent, first, jump)
        self.scope.bind(target.id, loop(loop.var), target)
        self.loops[target.id] = loop
        self.around.append((loop.var, extent))
        return loop

    def _bound(self, node: ast.AST, dtype: str) -> Expr:
        value = constant(node, self.scope)
        if value is not None:
            return Const(integer(node, self.scope, "a bound of a loop"), dtype)
        return self.exprs.converted(node, dtype, "a bound of a loop")


Shell = tuple[Var, Expr, str, str, Annotations]
