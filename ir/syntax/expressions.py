"""Expressions of the script, from ``ast`` nodes."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from .. import dtypes
from ..arith.linear import linear_form
from ..expr import Binary, Buffer, Call, Expr, LetExpr, Load, Not, Ramp, Undef, Var, const, in_type
from ..text import extents_text
from .base import Scope, ScriptError, Window, called, dotted, is_namespaced, show
from .constants import BITS, OPERATORS, PYTHON, compute, constant, integer
from .intrinsics import apply, convert, finish, is_dtype, lookup, match, negate, operate
from .words import unknown


@dataclass(frozen=True)
class Number:
    """A Python number that takes its type from its neighbours; `outer` if it comes from around the function."""

    value: int | float | bool
    outer: bool = False


Value = Union[Expr, Number]


class ExprParser:
    """Builds expressions from names in `scope`."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def error(self, where: ast.AST, message: str) -> ScriptError:
        return self.scope.source.error(where, message)

    def expr(self, node: ast.AST, dtype: str | None = None) -> Expr:
        """`node` as an expression; a lone number becomes `dtype` or its default type."""
        return self.finished(node, self.value(node), dtype)

    def finished(self, node: ast.AST, value: Value, dtype: str | None = None) -> Expr:
        plain = _plain(value)
        if dtype is None and type(plain) is int:
            dtype = self.scope.integers
        try:
            return finish(plain, dtype)
        except ValueError as error:
            raise self.error(node, str(error)) from None

    def converted(self, node: ast.AST, dtype: str, what: str = "") -> Expr:
        """`node` in type `dtype`, cast or broadcast if it has another; `what` it is, for the error."""
        value = _plain(self.value(node))
        try:
            return convert(value, dtype)
        except ValueError as error:
            raise self.error(node, f"{what}: {error}" if what else str(error)) from None

    def value(self, node: ast.AST) -> Value:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.error(node, f"`{show(node)}` is not an expression of the script")
        result: Value = method(node)
        return result

    def _constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, (bool, int, float)):
            return Number(node.value)
        raise self.error(node, f"expected a number, but got `{node.value!r}`")

    def _name(self, node: ast.Name) -> Value:
        found = self.scope.find(node.id)
        if isinstance(found, Expr):
            return found
        if isinstance(found, Buffer):
            raise self.error(node, f"buffer `{node.id}` needs indices here, as in `{node.id}[...]`")
        if isinstance(found, Window):
            raise self.error(node, f"the region `{node.id}` needs indices here, as in `{node.id}[...]`")
        outer = self.scope.captured.get(node.id)
        if isinstance(outer, (bool, int, float)):
            return Number(outer, outer=True)
        raise self.scope.undefined(node, node.id)

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.USub):
            return Number(-value.value, value.outer) if isinstance(value, Number) else negate(value)
        if isinstance(node.op, ast.UAdd):
            return value
        if isinstance(node.op, ast.Not):
            return Not(self.finished(node, value, "bool"))
        if isinstance(value, Expr) and dtypes.is_bool(value.dtype):
            return Not(value)
        return self._apply(node, "bitwise_not", (_plain(value),))

    def _binop(self, node: ast.BinOp) -> Value:
        a, b = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Pow):
            return self._apply(node, "pow", (_plain(a), _plain(b)))
        if type(node.op) in BITS:
            return self._bits(node, BITS[type(node.op)], a, b)
        op = OPERATORS.get(type(node.op))
        if op is None:
            raise self.error(node, f"the operator of `{show(node)}` is not supported; known are {', '.join(PYTHON)}")
        if isinstance(a, Number) and isinstance(b, Number) and (a.outer or b.outer):
            return self._fold(node, op, a, b)
        return self._operate(node, op, a, b)

    def _bits(self, node: ast.AST, name: str, a: Value, b: Value) -> Value:
        """``a << b``, ``a & b`` and the like; of conditions ``&`` and ``|`` are ``and`` and ``or``."""
        logic = {"bitwise_and": "and", "bitwise_or": "or"}.get(name)
        if logic is not None and any(isinstance(e, Expr) and dtypes.is_bool(e.dtype) for e in (a, b)):
            return self._operate(node, logic, a, b)
        return self._apply(node, name, (_plain(a), _plain(b)))

    def _fold(self, node: ast.AST, op: str, a: Number, b: Number) -> Number:
        try:
            return Number(compute(op, a.value, b.value), outer=True)
        except ValueError as error:
            raise self.error(node, f"`{show(node)}` {error}") from None

    def _operate(self, node: ast.AST, op: str, a: Value, b: Value) -> Expr:
        try:
            return operate(op, _plain(a), _plain(b))
        except ValueError as error:
            raise self.error(node, f"`{show(node)}`: {error}") from None

    def _boolop(self, node: ast.BoolOp) -> Value:
        op = OPERATORS[type(node.op)]
        result = self.value(node.values[0])
        for value in node.values[1:]:
            result = self._operate(node, op, result, self.value(value))
        return result

    def _compare(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        parts: list[Expr] = []
        for kind, item in zip(node.ops, node.comparators, strict=True):
            op = OPERATORS.get(type(kind))
            if op is None:
                raise self.error(node, f"the comparison in `{show(node)}` is not supported; use == != < <= > >=")
            right = self.value(item)
            parts.append(self._operate(node, op, left, right))
            left = right
        result = parts[0]
        for part in parts[1:]:
            result = operate("and", result, part)
        return result

    def _ifexp(self, node: ast.IfExp) -> Value:
        cond = self.expr(node.test, "bool")
        sides = _plain(self.value(node.body)), _plain(self.value(node.orelse))
        try:
            left, right = match(*sides)
        except ValueError as error:
            raise self.error(node, str(error)) from None
        return Call("if_then_else", (cond, left, right), left.dtype)

    def _subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "strides":
            strides = self._placed(node.value)[1]
            axis = integer(node.slice, self.scope, "the axis of a stride")
            if not 0 <= axis < len(strides):
                raise self.error(node, f"`{show(node.value)}` has {len(strides)} axes, but got {axis}")
            return in_type(const(strides[axis]), self.scope.integers)
        return self.element(node)

    def _attribute(self, node: ast.Attribute) -> Value:
        """``A.elem_offset``, of a region that of its first element."""
        if node.attr != "elem_offset":
            raise self.error(node, f"`{show(node)}` is not an expression of the script")
        return in_type(self._placed(node)[0], self.scope.integers)

    def _placed(self, node: ast.Attribute) -> tuple[Expr, Sequence[int]]:
        """Where a buffer, or a region of one, begins in its memory, and its strides."""
        found = self.scope.find(node.value.id) if isinstance(node.value, ast.Name) else None
        buffer = found.buffer if isinstance(found, Window) else self.buffer(node.value)
        if not buffer.is_fixed:
            raise self.error(node, f"`{show(node)}` is a number where the shape of `{buffer.name}` is fixed")
        if isinstance(found, Window):
            return found.offset, buffer.strides[buffer.rank - found.rank :]
        return const(0), buffer.strides

    def element(self, node: ast.Subscript) -> Load:
        """``buffer[indices]``, of a type that exists."""
        window = self.scope.find(node.value.id) if isinstance(node.value, ast.Name) else None
        if isinstance(window, Window):
            return self._in_window(node, window)
        buffer = self.buffer(node.value)
        shape = f"`{buffer.name}` has shape ({extents_text(buffer.extents)})"
        load = Load(buffer, self.indices(node, buffer.rank, shape))
        try:
            dtypes.split_dtype(load.dtype)
        except ValueError as error:
            raise self.error(node, f"`{show(node)}`: {error}") from None
        return load

    def _in_window(self, node: ast.Subscript, window: Window) -> Load:
        """The element of the buffer that an element of a region of it is."""
        inner = self.indices(node, window.rank, f"the region `{show(node.value)}` has {window.rank} dimensions")
        first = window.begin[: len(window.begin) - window.rank]
        try:
            moved = (operate("+", b, i) if b != const(0, b.dtype) else i
                     for b, i in zip(window.begin[len(first) :], inner, strict=True))  # fmt: skip
            return Load(window.buffer, (*first, *moved))
        except ValueError as error:
            raise self.error(node, f"`{show(node)}`: {error}") from None

    def buffer(self, node: ast.AST) -> Buffer:
        """The buffer that `node` names."""
        if not isinstance(node, ast.Name):
            raise self.error(node, f"expected the name of a buffer, but got `{show(node)}`")
        found = self.scope.find(node.id)
        if found is None:
            raise self.scope.undefined(node, node.id)
        if not isinstance(found, Buffer):
            where = self.scope.lines.get(node.id, 0)
            what = f"a {found.dtype}" if isinstance(found, Expr) else f"a region of `{found.buffer.name}`"
            raise self.error(node, f"`{node.id}`, of line {where}, is not a buffer but {what}")
        return found

    def indices(self, node: ast.Subscript, rank: int, shape: str) -> tuple[Expr, ...]:
        """As many indices as there are dimensions; `shape` says in an error what has them."""
        items: Sequence[ast.expr] = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) != rank:
            given = "1 index is" if len(items) == 1 else f"{len(items)} indices are"
            raise self.error(node, f"{shape}, but {given} given in `{show(node)}`")
        return tuple(self._slice(i) if isinstance(i, ast.Slice) else self.expr(i) for i in items)

    def _slice(self, node: ast.Slice) -> Expr:
        """``base : base + lanes * step : step`` as a vector of indices."""
        step = 1 if node.step is None else integer(node.step, self.scope, "the step of a slice")
        if node.lower is not None and node.upper is not None and step != 0:
            base = self.expr(node.lower)
            atoms, length = linear_form(Binary("-", self.expr(node.upper), base))
            count = -(-length // step)
            if not atoms and 2 <= count <= dtypes.MAX_LANES and dtypes.lanes(base.dtype) == 1:
                return Ramp(base, const(step, base.dtype), count)
        raise self.error(node, "a slice is a vector of indices: `base:base + lanes`, with at least 2 lanes")

    def _call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute) and not is_namespaced(node.func):
            return self._method(node, node.func)
        if not is_namespaced(node.func):
            raise self.error(node, f"`{show(node.func)}` is no function of the script; those are `T.name`")
        name = dotted(node.func)
        if name == "meta_var" and len(node.args) == 1:
            return self.value(node.args[0])
        if name == "Cast" and len(node.args) == 2 and _is_vector_of_undef(node.args[1]):
            return self._apply(node, name, [self._argument(node.args[0]), Undef("")])
        if name in ("Let", "let") and any(k.arg == "where" for k in node.keywords):
            return self._let(node)
        if is_dtype(name):
            return self._typed(node, name)
        if any(k.arg is None for k in node.keywords) or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.error(node, f"the arguments of `T.{name}` are written out, without `*` and `**`")
        keywords = {k.arg: self._argument(k.value) for k in node.keywords if k.arg}
        return self._apply(node, name, [self._argument(a) for a in node.args], keywords)

    def _let(self, node: ast.Call) -> Expr:
        """``T.Let(body, where={x: value, ...})``: each value may use the variables before it."""
        where = next(k.value for k in node.keywords if k.arg == "where")
        if len(node.args) != 1 or len(node.keywords) != 1 or not isinstance(where, ast.Dict) or not where.keys:
            raise self.error(node, "expected `T.Let(body, where={x: value})`")
        bound: list[tuple[Var, Expr]] = []
        with self.scope.nested():
            for key, item in zip(where.keys, where.values, strict=True):
                if not isinstance(key, ast.Name):
                    raise self.error(key or node, "the keys of `where=` are names")
                declared = self.scope.declared.get(key.id)
                value = self.expr(item) if declared is None else self.converted(item, declared)
                var = Var(self.scope.shared(key.id, value, key), value.dtype)
                self.scope.bind(key.id, var, key)
                bound.append((var, value))
            body = self.expr(node.args[0])
        for var, value in reversed(bound):
            body = LetExpr(var, value, body)
        return body

    def _method(self, node: ast.Call, func: ast.Attribute) -> Value:
        if func.attr == "astype" and len(node.args) == 1 and not node.keywords:
            return self._apply(node, "Cast", [self._argument(node.args[0]), _plain(self.value(func.value))])
        raise self.error(node, f"`{show(node)}` is not part of the script")

    def _argument(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if called(node) == "float" and isinstance(node, ast.Call) and len(node.args) == 1:
            return self._argument(node.args[0])
        if is_namespaced(node) and is_dtype(dotted(node)):
            return dotted(node)
        if isinstance(node, ast.Name) and isinstance(self.scope.captured.get(node.id), str):
            return self.scope.captured[node.id]
        if isinstance(node, ast.List):
            return [self._argument(item) for item in node.elts]
        return _plain(self.value(node))

    def _typed(self, node: ast.Call, dtype: str) -> Expr:
        """``T.float32(1 / 9)``: arithmetic on numbers is the compiler's, not the program's."""
        if len(node.args) != 1 or node.keywords:
            raise self.error(node, f"`T.{dtype}` takes one value, as in `T.{dtype}(1)`")
        number = constant(node.args[0], self.scope)
        argument = self._argument(node.args[0]) if number is None else number
        return self._apply(node, dtype, [argument])

    def _apply(self, node: ast.AST, name: str, args: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> Expr:
        build = lookup(name)
        if build is None:
            raise self.error(node, unknown(name))
        try:
            result: Expr = apply(build, args, keywords or {})
        except ValueError as error:
            raise self.error(node, f"`T.{name}`: {error}") from None
        return result


def _is_vector_of_undef(node: ast.expr) -> bool:
    """``T.Broadcast(T.undef(), lanes)``, in which undef has no type of its own."""
    if called(node) != "Broadcast" or not isinstance(node, ast.Call) or not node.args:
        return False
    value = node.args[0]
    return called(value) == "undef" and isinstance(value, ast.Call) and not value.args and not value.keywords


def _plain(value: Value) -> Any:
    return value.value if isinstance(value, Number) else value
