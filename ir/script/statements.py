"""Statements of the script: loops, blocks, stores and what is lowered from them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import dtypes
from ..expr import TRUE, Binary, Buffer, Const, Expr, Load, Var, binary
from ..stmt import (
    THREAD_AXES,
    Allocate,
    Assume,
    Attr,
    Block,
    Declare,
    Evaluate,
    For,
    If,
    Iter,
    Let,
    Seq,
    Stmt,
    Store,
    seq,
)
from .base import Scope, ScriptError, dotted, is_namespaced
from .expressions import ExprParser, attributes, constant, integer
from .intrinsics import convert, finish

_KINDS = {"range": "serial", "serial": "serial", "parallel": "parallel", "vectorized": "vectorized",
          "unroll": "unrolled", "unrolled": "unrolled", "thread_binding": "thread_binding"}  # fmt: skip
_AXES = {"spatial": "spatial", "S": "spatial", "reduce": "reduce", "R": "reduce", "opaque": "opaque", "O": "opaque"}
BLOCK = ("block", "sblock")
ALLOC = ("alloc_buffer", "sblock_alloc_buffer")
_BLOCK_ATTR = ("block_attr", "sblock_attr")


@dataclass
class Header:
    """The parts of a block that its suite declares before the body."""

    iters: list[Iter] = field(default_factory=list)
    predicate: Expr = TRUE
    init: Stmt | None = None
    allocs: list[Buffer] = field(default_factory=list)
    annotations: list[tuple[str, Any]] = field(default_factory=list)

    def block(self, name: str, body: Stmt) -> Block:
        parts = (tuple(self.iters), body, self.predicate, self.init, tuple(self.allocs), tuple(self.annotations))
        return Block(name, *parts)


@dataclass(frozen=True)
class Loop:
    """A loop by its name in the text: ``name = start + var * step``."""

    var: Var
    extent: Expr
    start: Expr
    step: int

    def __call__(self, value: Expr) -> Expr:
        return binary("+", value * self.step, self.start)


class StmtParser:
    """Builds statements; `headers` are those of the blocks around, the innermost last."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.exprs = ExprParser(scope)
        self.headers: list[Header] = []
        self.loops: dict[str, Loop] = {}
        self.block_names: set[str] = set()

    def error(self, where: ast.AST, message: str) -> ScriptError:
        return self.scope.source.error(where, message)

    # ------------------------------------------------------------ suites

    def suite(self, nodes: Sequence[ast.stmt], header: Header | None = None) -> Stmt:
        """The statements of one indented suite, names bound in it end with it."""
        with self.scope.nested():
            return self.rest(nodes, header)

    def rest(self, nodes: Sequence[ast.stmt], header: Header | None) -> Stmt:
        done: list[Stmt] = []
        for number, node in enumerate(nodes):
            if self._is_header(node, header):
                continue
            following = nodes[number + 1 :]
            scoped = self._scoped(node, following)
            if scoped is not None:
                return seq([*done, scoped])
            stmt = self.stmt(node)
            if stmt is not None:
                done.append(stmt)
        return seq(done) if done else Seq(())

    def stmt(self, node: ast.stmt) -> Stmt | None:
        """One statement; None for what has no effect."""
        match node:
            case ast.For():
                return self._for(node)
            case ast.With():
                return self._with(node)
            case ast.If():
                orelse = self.suite(node.orelse) if node.orelse else None
                return If(self.exprs.expr(node.test, "bool"), self.suite(node.body), orelse)
            case ast.Assign():
                return self._store(node)
            case ast.AugAssign():
                return self._augmented(node)
            case ast.Expr():
                return self._evaluate(node.value)
            case ast.Pass():
                return None
        word = type(node).__name__.lower()
        raise self.error(node, f"a `{word}` statement is not part of the script")

    # ------------------------------------------------------------ simple statements

    def _store(self, node: ast.Assign) -> Stmt:
        target = node.targets[0]
        if len(node.targets) != 1 or not isinstance(target, ast.Subscript):
            raise self.error(node, f"expected `buffer[indices] = value`, but got `{ast.unparse(node)[:60]}`")
        buffer = self.exprs.buffer(target.value)
        indices = self.exprs.indices(target, buffer)
        return Store(buffer, indices, self._fit(node.value, self.exprs.expr(node.value, _stored(buffer, indices)),
                                                buffer, indices))  # fmt: skip

    def _fit(self, node: ast.AST, value: Expr, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        try:
            return convert(value, _stored(buffer, indices))
        except ValueError as error:
            raise self.error(node, f"the value stored to `{buffer.name}`: {error}") from None

    def _augmented(self, node: ast.AugAssign) -> Stmt:
        target = node.target
        if not isinstance(target, ast.Subscript):
            raise self.error(node, "only an element of a buffer can be updated in place")
        buffer = self.exprs.buffer(target.value)
        indices = self.exprs.indices(target, buffer)
        whole = ast.copy_location(ast.BinOp(target, node.op, node.value), node)
        value = self.exprs.expr(whole)
        return Store(buffer, indices, self._fit(node, value, buffer, indices))

    def _evaluate(self, node: ast.expr) -> Stmt | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return None
        if isinstance(node, ast.Call) and is_namespaced(node.func):
            name = dotted(node.func)
            if name == "evaluate" and len(node.args) == 1:
                return self._evaluated(node.args[0])
            if name in ("assume", "where", "reads", "writes", "func_attr", *_BLOCK_ATTR):
                return self._assume(node, name)
        return Evaluate(self.exprs.expr(node))

    def _evaluated(self, node: ast.expr) -> Stmt:
        if isinstance(node, ast.Call) and dotted(node.func) == "assume":
            return self._assume(node, "assume")
        return Evaluate(self.exprs.expr(node))

    def _assume(self, node: ast.Call, name: str) -> Stmt:
        if name != "assume":
            raise self.error(node, f"`T.{name}` belongs at the top of a block's or function's own suite")
        if len(node.args) != 1:
            raise self.error(node, "`T.assume` takes one condition")
        return Assume(self.exprs.expr(node.args[0], "bool"))

    # ------------------------------------------------------------ statements that hold the rest of the suite

    def _scoped(self, node: ast.stmt, following: Sequence[ast.stmt]) -> Stmt | None:
        """``x: T.int64 = value``, ``B = T.allocate(...)``: the body is the rest of the suite."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _called(node.value) == "attr":
            return self._attr(node.value, following)
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return self._let(node, node.target, node.value, dotted(node.annotation), following)
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return None
        target, name = node.targets[0], _called(node.value)
        if name in ALLOC:
            self.headers[-1].allocs.append(self.declare(target, node.value))
            return self.rest(following, None) if following else Seq(())
        if name in ("allocate", "decl_buffer"):
            return self._memory(name, target, node.value, following)
        return self._let(node, target, node.value, "", following)

    def _attr(self, call: ast.Call, body: Sequence[ast.stmt]) -> Stmt:
        """``T.attr(node, key, value)``; the node must be 0 or a text, since nothing is kept of it."""
        key = getattr(call.args[1], "value", None) if len(call.args) == 3 else None
        if not isinstance(key, str) or call.keywords:
            raise self.error(call, 'expected `T.attr(0, "key", value)`')
        about, _, note = call.args
        if not isinstance(about, ast.Constant):
            raise self.error(about, 'only attributes of no node are part of the script: `T.attr(0, "key", value)`')
        text = note.value if isinstance(note, ast.Constant) else None
        value = text if isinstance(text, str) else self.exprs.expr(note)
        return Attr(str(key), value, self.rest(body, None))

    def _let(self, node: ast.AST, target: ast.AST, value: ast.AST, dtype: str, body: Sequence[ast.stmt]) -> Stmt:
        if not isinstance(target, ast.Name):
            raise self.error(node, "expected a name before the `:` of a let binding")
        expr = self.exprs.expr(value, dtype or None)
        if dtype:
            self.dtype(node, dtype)
            expr = convert(expr, dtype)
        var = Var(self.scope.unique(target.id, target), dtype or expr.dtype)
        self.scope.bind(target.id, var, target)
        return Let(var, expr, self.rest(body, None))

    def _memory(self, name: str, target: ast.AST, value: ast.AST, body: Sequence[ast.stmt]) -> Stmt:
        buffer = self.declare(target, value)
        if name == "decl_buffer" and not buffer.data:
            raise self.error(value, f"`T.decl_buffer` of `{buffer.name}` needs `data=` of memory that is defined")
        return (Allocate if name == "allocate" else Declare)(buffer, self.rest(body, None))

    def dtype(self, where: ast.AST, dtype: str) -> str:
        try:
            dtypes.split_dtype(dtype)
        except ValueError as error:
            raise self.error(where, str(error)) from None
        return dtype

    def declare(self, target: ast.AST, value: ast.AST) -> Buffer:
        """Bind the name `target` to a buffer from the arguments of the call `value`."""
        if not isinstance(target, ast.Name):
            raise self.error(target, "a buffer is bound to one name")
        if not isinstance(value, ast.Call):
            raise self.error(value, "expected a call that declares a buffer")
        buffer = self.buffer(target.id, target, value.args, value.keywords)
        self.scope.bind(target.id, buffer, target)
        return buffer

    def buffer(self, name: str, where: ast.AST, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> Buffer:
        """``(shape, dtype, scope=, axis_separators=, data=)`` as a buffer with a unique name."""
        given: dict[str, ast.expr] = dict(zip(("shape", "dtype", "scope"), args, strict=False))
        given.update({k.arg: k.value for k in keywords if k.arg})
        if "shape" not in given:
            raise self.error(where, f"buffer `{name}` needs a shape")
        shape = given["shape"]
        items = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else [shape]
        extents = tuple(integer(e, self.scope, f"an extent of `{name}`") for e in items)
        if any(e < 1 for e in extents):
            raise self.error(shape, f"the extents of `{name}` must be at least 1, but are {extents}")
        separators = given.get("axis_separators")
        axes = separators.elts if isinstance(separators, (ast.Tuple, ast.List)) else []
        return Buffer(
            self.scope.unique(name, where),
            extents,
            self.dtype(given.get("dtype", where), self._text(given, "dtype", "float32")),
            self._text(given, "scope", "global") or "global",
            tuple(integer(a, self.scope, "an axis separator") for a in axes),
            self._data(given.get("data")),
        )

    def _text(self, given: dict[str, ast.expr], key: str, default: str) -> str:
        node = given.get(key)
        if node is None:
            return default
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        outer = self.scope.captured.get(node.id) if isinstance(node, ast.Name) else dotted(node)
        if isinstance(outer, str) and outer:
            return outer
        raise self.error(node, f"`{key}` must be a string")

    def _data(self, node: ast.expr | None) -> str:
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return ""
        owner = node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node
        return self.exprs.buffer(owner).memory

    # ------------------------------------------------------------ loops

    def _for(self, node: ast.For) -> Stmt:
        call = node.iter
        name = _called(call)
        if not isinstance(call, ast.Call) or (name != "grid" and name not in _KINDS) or node.orelse:
            raise self.error(node.iter, f"a loop is over `T.grid` or one of `{'`, `'.join(_KINDS)}`")
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        with self.scope.nested():
            if name == "grid":
                if len(targets) != len(call.args):
                    count = f"{len(targets)} variables for {len(call.args)} extents"
                    raise self.error(node.target, f"`T.grid` has {count}")
                made = [self._loop(t, None, e, 1, None) for t, e in zip(targets, call.args, strict=True)]
                shells = [For(loop.var, loop.extent, Seq(())) for loop in made]
            else:
                if len(targets) != 1:
                    raise self.error(node.target, f"`{name}` gives one variable; use `T.grid` for several")
                shells = [self._single(targets[0], call, _KINDS[name])]
            body = self.suite(node.body)
        for shell in reversed(shells):
            body = For(shell.var, shell.extent, body, shell.kind, shell.thread, shell.annotations)
        return body

    def _single(self, target: ast.AST, call: ast.Call, kind: str) -> For:
        options = {k.arg: k.value for k in call.keywords}
        if not 1 <= len(call.args) <= 3:
            raise self.error(call, "a loop takes an extent, or a start and a stop, or a start, a stop and a step")
        start = call.args[0] if len(call.args) > 1 else None
        stop = call.args[min(1, len(call.args) - 1)]
        step = integer(call.args[2], self.scope, "the step of a loop") if len(call.args) == 3 else 1
        if step < 1:
            raise self.error(call, f"the step of a loop must be positive, but is {step}")
        dtype = options.get("dtype")
        loop = self._loop(target, start, stop, step, dtype)
        thread = self._thread(call, options.get("thread")) if kind == "thread_binding" else ""
        notes = options.get("annotations")
        annotations = () if notes is None else attributes(notes, self.scope)
        return For(loop.var, loop.extent, Seq(()), kind, thread, annotations)

    def _thread(self, call: ast.Call, node: ast.expr | None) -> str:
        if isinstance(node, ast.Constant) and node.value in THREAD_AXES:
            return str(node.value)
        raise self.error(call, f"`thread=` must be one of {', '.join(THREAD_AXES)}")

    def _loop(self, target: ast.AST, start: ast.AST | None, stop: ast.AST, step: int, dtype: ast.AST | None) -> Loop:
        """Bind a loop's name; a loop from `start` runs from 0, and its name means ``start + var * step``."""
        if not isinstance(target, ast.Name):
            raise self.error(target, "a loop variable is a plain name")
        kind = self.dtype(dtype, str(getattr(dtype, "value", ""))) if dtype is not None else dtypes.INDEX
        first = Const(0, kind) if start is None else self._bound(start, kind)
        extent = binary("-", self._bound(stop, kind), first)
        if step > 1:
            extent = (extent + (step - 1)) // step
        var = Var(self.scope.unique(target.id, target), kind)
        loop = Loop(var, extent, first, step)
        self.scope.bind(target.id, loop(var), target)
        self.loops[target.id] = loop
        return loop

    def _bound(self, node: ast.AST, dtype: str) -> Expr:
        number = constant(node, self.scope)
        return finish(int(number), dtype) if number is not None else convert(self.exprs.expr(node, dtype), dtype)

    # ------------------------------------------------------------ blocks

    def _with(self, node: ast.With) -> Stmt:
        if len(node.items) != 1:
            raise self.error(node, "one `with` item at a time")
        item = node.items[0]
        name = _called(item.context_expr)
        if name in BLOCK:
            return self.block(node)
        if name == "attr" and item.optional_vars is None and isinstance(item.context_expr, ast.Call):
            with self.scope.nested():
                return self._attr(item.context_expr, node.body)
        if item.optional_vars is None or name not in ("LetStmt", "let", "Let", "allocate", "decl_buffer"):
            raise self.error(node, "`with` opens `T.block(...)`, or `T.init()` at the top of a block's own suite")
        assert isinstance(item.context_expr, ast.Call)
        with self.scope.nested():
            if name in ("allocate", "decl_buffer"):
                return self._memory(name, item.optional_vars, item.context_expr, node.body)
            kinds = [k.value.value for k in item.context_expr.keywords if isinstance(k.value, ast.Constant)]
            dtype = str(kinds[0]) if kinds else ""
            return self._let(node, item.optional_vars, item.context_expr.args[0], dtype, node.body)

    def block(self, node: ast.With) -> Block:
        """``with T.block(name):``."""
        item = node.items[0]
        assert isinstance(item.context_expr, ast.Call)
        if item.optional_vars is not None:
            raise self.error(node, "`with T.block(...) as ...` is not supported; bind iterators with `T.axis`")
        args = item.context_expr.args
        name = args[0].value if args and isinstance(args[0], ast.Constant) else ""
        header = Header()
        self.headers.append(header)
        body = self.suite(node.body, header)
        self.headers.pop()
        return header.block(self._block_name(str(name) or "block"), body)

    def _block_name(self, name: str) -> str:
        unique, number = name, 1
        while unique in self.block_names:
            unique, number = f"{name}_{number}", number + 1
        self.block_names.add(unique)
        return unique

    def _is_header(self, node: ast.stmt, header: Header | None) -> bool:
        """Take `node` into the header of the block whose own suite this is."""
        if isinstance(node, ast.Assign) and _called(node.value).startswith("axis."):
            if header is None:
                raise self.error(node, "`T.axis` binds iterators at the top of a block's own suite")
            self._axis(node, header)
            return True
        if isinstance(node, ast.Assign) and _called(node.value) in ALLOC and header is not None:
            header.allocs.append(self.declare(node.targets[0], node.value))
            return True
        if header is None:
            return False
        if isinstance(node, ast.With) and _called(node.items[0].context_expr) == "init":
            header.init = self.suite(node.body)
            return True
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            return False
        name, args = _called(node.value), node.value.args
        if name == "where" and len(args) == 1:
            header.predicate = self.exprs.expr(args[0], "bool")
        elif name in _BLOCK_ATTR and len(args) == 1:
            header.annotations.extend(attributes(args[0], self.scope))
        return name in ("where", "reads", "writes", *_BLOCK_ATTR)

    def _axis(self, node: ast.Assign, header: Header) -> None:
        assert isinstance(node.value, ast.Call)
        kind = _called(node.value).removeprefix("axis.")
        target = node.targets[0]
        targets = list(target.elts) if isinstance(target, ast.Tuple) else [target]
        args = node.value.args
        if kind == "remap":
            self._remap(node.value, targets, header)
            return
        if kind not in _AXES or len(args) != 2 or len(targets) != 1:
            raise self.error(node, "expected `v = T.axis.spatial(extent, binding)`, `reduce`, `opaque` or `remap`")
        dom = args[0]
        lo, hi = dom.elts if isinstance(dom, (ast.Tuple, ast.List)) and len(dom.elts) == 2 else (None, dom)
        start = 0 if lo is None else integer(lo, self.scope, "the start of an axis")
        extent = integer(hi, self.scope, "the extent of an axis") - start
        dtype = _called(hi) if _called(hi) in ("int32", "int64") else dtypes.INDEX
        binding = self.exprs.expr(args[1], dtype)
        self._bind_axis(targets[0], header, Iter(Var("", dtype), extent, _AXES[kind], _less(binding, start)), start, 1)

    def _remap(self, call: ast.Call, targets: Sequence[ast.AST], header: Header) -> None:
        args = call.args
        kinds = args[0].value if args and isinstance(args[0], ast.Constant) else None
        loops = args[1].elts if len(args) == 2 and isinstance(args[1], (ast.List, ast.Tuple)) else None
        if not isinstance(kinds, str) or loops is None or not len(kinds) == len(loops) == len(targets):
            example = 'vi, vj = T.axis.remap("SS", [i, j])'
            raise self.error(call, f"expected as many names as kinds and loops, as in `{example}`")
        for target, letter, node in zip(targets, kinds, loops, strict=True):
            if letter not in ("S", "R", "O"):
                raise self.error(args[0], f"unknown axis kind `{letter}`; S is spatial, R is reduce, O is opaque")
            loop = self.loops.get(node.id) if isinstance(node, ast.Name) else None
            if loop is None or self.scope.find(getattr(node, "id", "")) != loop(loop.var):
                raise self.error(node, "`T.axis.remap` takes loop variables; others need `T.axis.spatial(extent, e)`")
            if not isinstance(loop.extent, Const) or not isinstance(loop.start, Const):
                raise self.error(node, f"`{loop.var.name}` has no constant range; use `T.axis.spatial(extent, e)`")
            one = Iter(Var("", loop.var.dtype), int(loop.extent.value), _AXES[letter], loop.var)
            self._bind_axis(target, header, one, int(loop.start.value), loop.step)

    def _bind_axis(self, target: ast.AST, header: Header, one: Iter, start: int, step: int) -> None:
        if not isinstance(target, ast.Name):
            raise self.error(target, "an iterator is a plain name")
        if one.extent < 1:
            raise self.error(target, f"the extent of `{target.id}` must be at least 1, but is {one.extent}")
        var = Var(self.scope.unique(target.id, target), one.var.dtype)
        header.iters.append(Iter(var, one.extent, one.kind, one.binding))
        self.scope.bind(target.id, binary("+", var * step, start), target)


def _less(e: Expr, amount: int) -> Expr:
    """``e - amount``, taken out of a constant summand if there is one."""
    if isinstance(e, Binary) and e.op == "+" and isinstance(e.b, Const):
        return binary("+", e.a, int(e.b.value) - amount)
    return e - amount


def _called(node: ast.AST) -> str:
    """The name of the function that `node` calls, without its namespace; empty for no call."""
    return dotted(node.func) if isinstance(node, ast.Call) else ""


def _stored(buffer: Buffer, indices: Sequence[Expr]) -> str:
    return Load(buffer, tuple(indices)).dtype
