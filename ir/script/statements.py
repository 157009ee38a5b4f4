"""Statements of the script: suites, stores, bindings and memory that last to the end of a suite."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from ..arith.simplify import simplify
from ..calls import Pointer, Text
from ..calls import Region as Touched
from ..expr import Buffer, Expr, Load, Var, as_index, const
from ..stmt import (
    Allocate,
    Assert,
    Assume,
    Attr,
    Declare,
    Evaluate,
    If,
    Let,
    Opaque,
    Seq,
    Stmt,
    Store,
    While,
    fresh,
    seq,
)
from ..syntax.base import Scope, Window, called, dotted, is_namespaced, show
from ..syntax.constants import literal
from ..syntax.intrinsics import is_dtype
from ..syntax.words import (
    ALLOCATE,
    ALLOCATE_CONST,
    BLOCK,
    BLOCK_ALLOC,
    DECLARE,
    ENV_THREAD,
    EXPRESSIONS,
    HEADER,
    LET,
    REGIONS_KEY,
    SCOPE_KEY,
    STATEMENTS,
    near,
)
from ..text import expr_text
from .blocks import BlockParser, Header
from .calls import opaque_call, with_calls_before, with_regions
from .regions import length

_WITH = (*BLOCK, *LET, *ALLOCATE, *DECLARE, "attr", "launch_thread", "init")


class StmtParser(BlockParser):
    """Builds statements."""

    def __init__(self, scope: Scope, siblings: frozenset[str] = frozenset()) -> None:
        super().__init__(scope)
        self.siblings = siblings
        self._statements: dict[type[ast.stmt], Callable[..., Stmt | None]] = {
            ast.For: self.loop,
            ast.With: self._with,
            ast.If: self._if,
            ast.Assign: self._store,
            ast.AugAssign: self._augmented,
            ast.Expr: self._evaluate,
            ast.Assert: self._assert,
            ast.While: self._while,
            ast.Pass: lambda _: None,
        }

    # ------------------------------------------------------------ suites

    def suite(self, nodes: Sequence[ast.stmt]) -> Stmt:
        """The statements of one indented suite, names bound in it end with it."""
        with self.scope.nested():
            return self.rest(nodes, None)

    def rest(self, nodes: Sequence[ast.stmt], header: Header | None) -> Stmt:
        done: list[Stmt] = []
        for number, node in enumerate(nodes):
            if self.is_header(node, header):
                continue
            apart = with_calls_before(self, node)
            if apart and isinstance(node, (ast.If, ast.Expr, ast.AugAssign, ast.Assert)):
                done.append(self.suite(apart))
                continue
            if apart:
                return seq([*done, self.rest([*apart, *nodes[number + 1 :]], None)])
            scoped = self._scoped(node, nodes[number + 1 :])
            if scoped is not None:
                return seq([*done, scoped])
            stmt = self.stmt(node)
            if stmt is not None:
                done.append(stmt)
        return seq(done) if done else Seq(())

    def stmt(self, node: ast.stmt) -> Stmt | None:
        """One statement; None for what has no effect."""
        build = self._statements.get(type(node))
        if build is None:
            word = type(node).__name__.lower()
            raise self.error(node, f"a `{word}` statement is not part of the script")
        return build(node)

    def _if(self, node: ast.If) -> Stmt:
        cond = self.exprs.expr(node.test, "bool")
        then = self.suite(node.body)
        return If(cond, then, self.suite(node.orelse) if node.orelse else None)

    # ------------------------------------------------------------ simple statements

    def _store(self, node: ast.Assign) -> Stmt:
        target = node.targets[0]
        if len(node.targets) != 1 or not isinstance(target, ast.Subscript):
            raise self.error(node, f"expected `buffer[indices] = value`, but got `{show(node)}`")
        element = self.exprs.element(target)
        what = f"the value stored to `{element.buffer.name}`"
        call = opaque_call(self, node.value, element)
        if call is not None:
            return call
        return Store(element.buffer, element.indices, self.exprs.converted(node.value, element.dtype, what))

    def _augmented(self, node: ast.AugAssign) -> Stmt:
        if not isinstance(node.target, ast.Subscript):
            raise self.error(node, "only an element of a buffer can be updated in place")
        element = self.exprs.element(node.target)
        whole = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
        what = f"the value stored to `{element.buffer.name}`"
        return Store(element.buffer, element.indices, self.exprs.converted(whole, element.dtype, what))

    def _evaluate(self, node: ast.Expr) -> Stmt | None:
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return None
        name = called(value) if isinstance(value, ast.Call) and is_namespaced(value.func) else ""
        if name == "evaluate" and isinstance(value, ast.Call) and len(value.args) == 1:
            value = value.args[0]
            name = called(value)
        if name == "assume":
            assert isinstance(value, ast.Call)
            if len(value.args) != 1:
                raise self.error(value, "`T.assume` takes one condition")
            return Assume(self.exprs.expr(value.args[0], "bool"))
        call = opaque_call(self, value)
        if call is not None:
            return call
        if name in HEADER or name in ("func_attr", "init"):
            raise self.error(value, f"`T.{name}` belongs at the top of a block's or function's own suite")
        if name in STATEMENTS - EXPRESSIONS or (name and name not in EXPRESSIONS and not is_dtype(name)):
            raise self.error(value, self._no_statement(name))
        return Evaluate(self.exprs.expr(value))

    def _no_statement(self, name: str) -> str:
        if name in STATEMENTS:
            return f"`T.{name}` does not stand alone here"
        return f"unknown statement `T.{name}`{near(name, STATEMENTS | EXPRESSIONS, 'T.')}"

    def _while(self, node: ast.While) -> Stmt:
        if node.orelse:
            raise self.error(node, "a `while` has no `else` in the script")
        return While(self.exprs.expr(node.test, "bool"), self.suite(node.body))

    def _assert(self, node: ast.Assert) -> Stmt | None:
        """An assertion; ``assert A[i].dtype == "float32x4"`` is checked and leaves nothing."""
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            left, right = test.left, test.comparators[0]
            if isinstance(left, ast.Attribute) and left.attr == "dtype" and isinstance(right, ast.Constant):
                found = self.exprs.expr(left.value).dtype
                if found != right.value:
                    raise self.error(node, f"`{show(left.value)}` has type {found}, not {show(right)}")
                return None
        message = node.msg.value if isinstance(node.msg, ast.Constant) else ""
        if not isinstance(message, str) or (node.msg is not None and not isinstance(node.msg, ast.Constant)):
            raise self.error(node, f"the message of an assertion is a string, but got `{ast.unparse(node)[7:60]}`")
        return Assert(self.exprs.expr(test, "bool"), message)

    # ------------------------------------------------------------ statements that hold the rest of the suite

    def _scoped(self, node: ast.stmt, following: Sequence[ast.stmt]) -> Stmt | None:
        """``x: T.int64 = value``, ``B = T.allocate(...)``: the body is the rest of the suite."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called(node.value) == "attr":
            return self._attr(node.value, following)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called(node.value) == "launch_thread":
            return self.launch(self._env_thread(node.value), node.value, following)
        if isinstance(node, ast.AnnAssign):
            return self._annotated(node, following)
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return None
        target, value = node.targets[0], node.value
        if not isinstance(value, ast.Call):
            return self._let(target, value, "", following)
        name = called(value)
        if self.declares_variable(target, value):
            return self.rest(following, None) if following else Seq(())
        if name in BLOCK_ALLOC and self._is_own(name):
            self.headers[-1].allocs.append(self.declare(target, value))
            return self.rest(following, None) if following else Seq(())
        if name in (*BLOCK_ALLOC, *ALLOCATE, *DECLARE) or self._is_view(value):
            return self._memory(target, value, following)
        if name == "launch_thread":
            return self.launch(target, value, following)
        if name == ENV_THREAD:
            self.scope.threads[target.id] = self.thread_axis(value)
            return self.rest(following, None) if following else Seq(())
        if name == "match_buffer":
            self._window(target, value)
            return self.rest(following, None) if following else Seq(())
        if name == ALLOCATE_CONST:
            return self._constants(target, value, following)
        if name in LET:
            return self._let_call(target, value, following)
        return self._let(target, value, "", following)

    def _env_thread(self, call: ast.Call) -> ast.expr:
        """The name of the thread axis that a launch without a target binds."""
        name = call.args[0] if call.args else None
        if isinstance(name, ast.Name) and name.id in self.scope.threads:
            return name
        raise self.error(call, "the launch binds no name; give it one, `tx = T.launch_thread(...)`, or launch an axis "
                         'that is one, `tx = T.env_thread("threadIdx.x")`')  # fmt: skip

    def _window(self, target: ast.Name, call: ast.Call) -> None:
        """``W = T.match_buffer(B[i, 0:4], (4,))``: a name for a region, whose elements are those of `B`."""
        if not call.args:
            raise self.error(call, "`T.match_buffer` takes a handle or a region")
        region = self.region(call.args[0])
        options = {k.arg: k.value for k in call.keywords}
        shape = call.args[1] if len(call.args) > 1 else options.get("shape")
        rank = region.buffer.rank
        if shape is not None:
            extents = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else [shape]
            wide = [length(begin, end) for begin, end in region.ranges]
            own = [simplify(as_index(self.exprs.expr(e))) for e in extents]
            rank = len(own)
            dropped = wide[: len(wide) - rank]
            if rank > len(wide) or any(e != const(1) for e in dropped) or own != wide[len(dropped) :]:
                shown = ", ".join(map(expr_text, wide))
                what = f"the region `{show(call.args[0])}` has the extents ({shown})"
                raise self.error(call, f"{what}, and `{target.id}` has others, `{show(shape)}`")
        begin = tuple(b for b, _ in region.ranges)
        self.scope.unique(target.id, target)
        window = Window(region.buffer, begin, rank)
        self.scope.bind(target.id, window, target)
        listed = options.get("strides")
        if region.buffer.is_fixed:
            names = getattr(listed, "elts", ())
            for node, stride in zip(names, region.buffer.strides[len(begin) - rank :], strict=False):
                self.bind_open(node, const(stride))
            self.bind_open(options.get("elem_offset"), window.offset)

    def _constants(self, target: ast.Name, call: ast.Call, following: Sequence[ast.stmt]) -> Stmt:
        """``A = T.allocate_const([1, 2], "int32", [2])``: memory into which the numbers are stored."""
        options = {k.arg: k.value for k in call.keywords}
        parts = [*call.args, *(options[key] for key in ("data", "dtype", "extents") if key in options)]
        if len(parts) != 3:
            raise self.error(call, f"expected `T.{ALLOCATE_CONST}(values, dtype, shape)`")
        given, dtype, shape = parts
        plain = ast.copy_location(ast.Call(call.func, [shape, dtype], []), call)
        buffer = self.declare(target, plain)
        values = _flat(literal(given, self.scope))
        if len(values) != buffer.size:
            raise self.error(given, f"`{target.id}` has {buffer.size} elements, but {len(values)} values are given")
        stores = []
        for number, value in enumerate(values):
            place = (number // stride % extent for stride, extent in zip(buffer.strides, buffer.shape, strict=True))
            stores.append(Store(buffer, tuple(map(const, place)), const(value, buffer.dtype)))
        return Allocate(buffer, seq([*stores, self.rest(following, None)]))

    def declares_variable(self, target: ast.Name, call: ast.Call) -> bool:
        """Take ``x = T.int32()`` or ``x = T.var("int32")``: a variable that a let is to bind."""
        name = called(call)
        if name == "var" and len(call.args) == 1:
            dtype = self._type(call.args[0])
        elif is_namespaced(call.func) and is_dtype(name) and not call.args and not call.keywords:
            dtype = name
        else:
            return False
        if self.scope.find(target.id) is not None:
            self.scope.unique(target.id, target)
        self.scope.declared[target.id] = dtype
        return True

    def _annotated(self, node: ast.AnnAssign, following: Sequence[ast.stmt]) -> Stmt:
        """``x: T.int32 = value``, ``x: T.let = value``, ``x: T.let[T.int32] = value``."""
        if node.value is None:
            raise self.error(node, f"`{show(node)}` needs a value")
        note = node.annotation
        if dotted(note) in ("let", "Let"):
            return self._let(node.target, node.value, "", following)
        if isinstance(note, ast.Subscript) and dotted(note.value) in ("let", "Let"):
            note = note.slice
        return self._let(node.target, node.value, self._type(note), following)

    def _type(self, node: ast.AST) -> str:
        name = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else dotted(node)
        return self.dtype(node, name or show(node))

    def _let(self, target: ast.AST, value: ast.AST, dtype: str, body: Sequence[ast.stmt], suite: bool = False) -> Stmt:
        if not isinstance(target, ast.Name):
            raise self.error(target, "expected a name before the `:` of a let binding")
        call = opaque_call(self, value)
        if call is not None:
            return self._called(target, call, dtype, value, body, suite)
        if dtype:
            expr = self.exprs.converted(value, dtype, f"the value of `{target.id}`")
        else:
            expr = self.exprs.expr(value)
        return self._let_of(target, expr, body, suite)

    def _let_of(self, target: ast.Name, expr: Expr, body: Sequence[ast.stmt], suite: bool) -> Stmt:
        with self.scope.nested() if suite else nullcontext():
            var = Var(self.scope.unique(target.id, target), expr.dtype)
            self.scope.bind(target.id, var, target)
            return Let(var, expr, self.rest(body, None))

    def _called(
        self, target: ast.Name, call: Opaque, dtype: str, where: ast.AST, body: Sequence[ast.stmt], suite: bool
    ) -> Stmt:
        """``x: T.int32 = call``: an element of memory takes what a call of what is not known here gives."""
        first = call.args[0] if call.args else None
        dtype = dtype or (first.value if isinstance(first, Text) and call.name == "call_extern" else "")
        if not is_dtype(dtype):
            raise self.error(where, f"what `{call.callee}` gives needs a type, as in `{target.id}: T.int32 = ...`")
        name = fresh(f"{target.id}_value", self.scope.taken)
        self.scope.taken.add(name)
        buffer = Buffer(name, (1,), dtype, "local")
        place, indices = Pointer(buffer, (const(0),)), (const(1),)
        call = replace(call, target=place, writes=(*call.writes, Touched(buffer, place.indices, indices)))
        return Allocate(buffer, seq([call, self._let_of(target, Load(buffer, place.indices), body, suite)]))

    def _let_call(self, target: ast.AST | None, call: ast.Call, body: Sequence[ast.stmt], suite: bool = False) -> Stmt:
        """``T.bind(value[, type])``, ``T.LetStmt(value[, type], var=x)``, ``T.let(x, value)``."""
        name, args = called(call), list(call.args)
        options = {k.arg: k.value for k in call.keywords}
        var = options.pop("var", None)
        if name in ("let", "Let") and target is None and len(args) == 2:
            var = args.pop(0)
        kinds = [*args[1:2], *(options.pop(k) for k in ("dtype", "type_annotation") if k in options)]
        if options or not 1 <= len(args) <= 2 or len(kinds) > 1 or (target is None and var is None):
            raise self.error(call, f"expected a value and perhaps a type in `T.{name}`, and a name for the value")
        dtype = self._type(kinds[0]) if kinds else ""
        if var is not None and isinstance(var, ast.Name):
            dtype = dtype or self.scope.declared.get(var.id, "")
        return self._let(target or var or call, args[0], dtype, body, suite)

    def _attr(self, call: ast.Call, body: Sequence[ast.stmt], suite: bool = False) -> Stmt:
        """``T.attr(0, key, value)`` or ``T.attr({key: value})``; the node is a number or a text, and is not kept."""
        pairs = self._attributes(call)
        with self.scope.nested() if suite else nullcontext():
            inner = self.rest(body, None)
        if pairs and pairs[0][0] == REGIONS_KEY:
            return with_regions(self, call, str(pairs[0][1]), inner)
        for key, value in reversed(pairs):
            inner = inner if key == SCOPE_KEY else Attr(key, value, inner)
        return inner

    def _attributes(self, call: ast.Call) -> list[tuple[str, Expr | str]]:
        if len(call.args) == 1 and isinstance(call.args[0], ast.Dict) and not call.keywords:
            items = [(k, v) for k, v in zip(call.args[0].keys, call.args[0].values, strict=True)]
        elif len(call.args) == 3 and not call.keywords:
            if not isinstance(call.args[0], ast.Constant):
                raise self.error(call.args[0], 'only attributes of no node are part of the script: `T.attr(0, "key", '
                                 'value)`')  # fmt: skip
            items = [(call.args[1], call.args[2])]
        else:
            raise self.error(call, 'expected `T.attr(0, "key", value)` or `T.attr({"key": value})`')
        pairs: list[tuple[str, Expr | str]] = []
        for key, note in items:
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                raise self.error(key or call, "the key of an attribute is a string")
            text = note.value if isinstance(note, ast.Constant) else None
            pairs.append((key.value, text if isinstance(text, str) else self.exprs.expr(note)))
        return pairs

    # ------------------------------------------------------------ memory

    def _is_view(self, call: ast.Call) -> bool:
        """``A.view(4, 4)`` of a buffer `A`."""
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "view" or not isinstance(func.value, ast.Name):
            return False
        return isinstance(self.scope.find(func.value.id), Buffer)

    def _memory(self, target: ast.AST, call: ast.Call, body: Sequence[ast.stmt], suite: bool = False) -> Stmt:
        name = called(call)
        with self.scope.nested() if suite else nullcontext():
            if self._is_view(call):
                if not isinstance(target, ast.Name):
                    raise self.error(target, "a buffer is bound to one name")
                view = self.view(target, call)
                return Declare(view, self.rest(body, None))
            buffer = self.declare(target, call)
            if name not in DECLARE:
                return Allocate(buffer, self.rest(body, None))
            if buffer.data:
                return Declare(buffer, self.rest(body, None))
            owner, view = self.backing(buffer)
            self.scope.bind(getattr(target, "id", ""), view, target)
            return Allocate(owner, Declare(view, self.rest(body, None)))

    def _with(self, node: ast.With) -> Stmt:
        if len(node.items) > 1:
            inner = ast.copy_location(ast.With(node.items[1:], node.body), node)
            return self._with(ast.copy_location(ast.With(node.items[:1], [inner]), node))
        call, target = node.items[0].context_expr, node.items[0].optional_vars
        name = called(call)
        if not isinstance(call, ast.Call) or name not in _WITH:
            hint = near(name, _WITH, "T.")
            raise self.error(node, f"`with` opens `T.block(...)`, a binding, memory or an attribute{hint}")
        if name in BLOCK:
            return self.block(node)
        if name == "attr" and target is None:
            return self._attr(call, node.body, suite=True)
        if name in LET:
            return self._let_call(target, call, node.body, suite=True)
        if name in (*ALLOCATE, *DECLARE) and target is not None:
            return self._memory(target, call, node.body, suite=True)
        if name == "launch_thread":
            return self.launch(self._env_thread(call) if target is None else target, call, node.body)
        if name == "init":
            raise self.error(node, "`T.init()` stands at the top of a block's own suite")
        raise self.error(node, f"`with T.{name}(...)` needs `as` and a name")


def _flat(value: Any) -> list[Any]:
    """The numbers of nested lists, in order."""
    return [v for item in value for v in _flat(item)] if isinstance(value, tuple) else [value]
