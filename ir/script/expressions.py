"""Expressions of the script, from ``ast`` nodes."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ..arith.linear import linear_form
from ..expr import Binary, Buffer, Call, Cast, Expr, LetExpr, Load, Not, Ramp, Var, const
from .base import Scope, ScriptError, dotted, is_namespaced
from .intrinsics import finish, is_dtype, lookup, match, negate, operate

_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip


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
        return finish(_plain(self.value(node)), dtype)

    def value(self, node: ast.AST) -> Value:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.error(node, f"`{_show(node)}` is not an expression of the script")
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
            return Not(finish(_plain(value), "bool"))
        raise self.error(node, "the operator `~` is not supported; use `not` for conditions")

    def _binop(self, node: ast.BinOp) -> Value:
        a, b = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Pow):
            return self._apply(node, "pow", (_plain(a), _plain(b)))
        op = _BINARY.get(type(node.op))
        if op is None:
            raise self.error(node, f"the operator of `{_show(node)}` is not supported; known are {', '.join(_PYTHON)}")
        if isinstance(a, Number) and isinstance(b, Number) and (a.outer or b.outer):
            return self._fold(node, op, a, b)
        return self._operate(node, op, a, b)

    def _fold(self, node: ast.AST, op: str, a: Number, b: Number) -> Number:
        try:
            return Number(_PYTHON[op](a.value, b.value), outer=True)
        except ZeroDivisionError:
            raise self.error(node, f"`{_show(node)}` divides by zero") from None

    def _operate(self, node: ast.AST, op: str, a: Value, b: Value) -> Expr:
        try:
            return operate(op, _plain(a), _plain(b))
        except ValueError as error:
            raise self.error(node, f"`{_show(node)}`: {error}") from None

    def _boolop(self, node: ast.BoolOp) -> Value:
        op = _BINARY[type(node.op)]
        result = self.value(node.values[0])
        for value in node.values[1:]:
            result = self._operate(node, op, result, self.value(value))
        return result

    def _compare(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        parts: list[Expr] = []
        for kind, item in zip(node.ops, node.comparators, strict=True):
            op = _BINARY.get(type(kind))
            if op is None:
                raise self.error(node, f"the comparison in `{_show(node)}` is not supported; use == != < <= > >=")
            right = self.value(item)
            parts.append(self._operate(node, op, left, right))
            left = right
        result = parts[0]
        for part in parts[1:]:
            result = operate("and", result, part)
        return result

    def _ifexp(self, node: ast.IfExp) -> Value:
        cond, a, b = (_plain(self.value(n)) for n in (node.test, node.body, node.orelse))
        left, right = match(a, b)
        return Call("if_then_else", (finish(cond, "bool"), left, right), left.dtype)

    def _subscript(self, node: ast.Subscript) -> Value:
        buffer = self.buffer(node.value)
        return Load(buffer, self.indices(node, buffer))

    def buffer(self, node: ast.AST) -> Buffer:
        """The buffer that `node` names."""
        if not isinstance(node, ast.Name):
            raise self.error(node, f"expected the name of a buffer, but got `{_show(node)}`")
        found = self.scope.find(node.id)
        if found is None:
            raise self.scope.undefined(node, node.id)
        if not isinstance(found, Buffer):
            raise self.error(node, f"`{node.id}` is not a buffer, so it cannot be indexed")
        return found

    def indices(self, node: ast.Subscript, buffer: Buffer) -> tuple[Expr, ...]:
        items: Sequence[ast.expr] = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) != len(buffer.shape):
            shape = ", ".join(map(str, buffer.shape))
            given = f"{len(items)} index" if len(items) == 1 else f"{len(items)} indices"
            raise self.error(node, f"`{buffer.name}` has shape ({shape}), but {given} are given in `{_show(node)}`")
        return tuple(self._slice(i) if isinstance(i, ast.Slice) else self.expr(i) for i in items)

    def _slice(self, node: ast.Slice) -> Expr:
        """``base : base + lanes * step : step`` as a vector of indices."""
        step = 1 if node.step is None else integer(node.step, self.scope, "the step of a slice")
        if node.lower is not None and node.upper is not None and step > 0:
            base = self.expr(node.lower)
            atoms, length = linear_form(Binary("-", self.expr(node.upper), base))
            if not atoms and length > step:
                return Ramp(base, const(step), -(-length // step))
        raise self.error(node, "a slice is a vector of indices: `base:base + lanes`, with at least 2 lanes")

    def _call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute) and not is_namespaced(node.func):
            return self._method(node, node.func)
        if not is_namespaced(node.func):
            raise self.error(node, f"`{_show(node.func)}` is no function of the script; those are `T.name`")
        name = dotted(node.func)
        if name == "meta_var" and len(node.args) == 1:
            return self.value(node.args[0])
        if name in ("Let", "let") and any(k.arg == "where" for k in node.keywords):
            return self._let(node)
        if is_dtype(name):
            return self._typed(node, name)
        return self._apply(
            node, name, [self._argument(a) for a in node.args], {k.arg: self._argument(k.value) for k in node.keywords}
        )

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
                value = self.expr(item)
                var = Var(self.scope.shared(key.id, value, key), value.dtype)
                self.scope.bind(key.id, var, key)
                bound.append((var, value))
            body = self.expr(node.args[0])
        for var, value in reversed(bound):
            body = LetExpr(var, value, body)
        return body

    def _method(self, node: ast.Call, func: ast.Attribute) -> Value:
        if func.attr == "astype" and len(node.args) == 1:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                return Cast(argument.value, self.expr(func.value))
        raise self.error(node, f"`{_show(node)}` is not part of the script")

    def _argument(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Call) and dotted(node.func) == "float" and len(node.args) == 1:
            return self._argument(node.args[0])
        return _plain(self.value(node))

    def _typed(self, node: ast.Call, dtype: str) -> Expr:
        """``T.float32(1 / 9)``: arithmetic on numbers is the compiler's, not the program's."""
        if len(node.args) != 1 or node.keywords:
            raise self.error(node, f"`T.{dtype}` takes one value, as in `T.{dtype}(1)`")
        number = constant(node.args[0], self.scope)
        argument = self._argument(node.args[0]) if number is None else number
        return self._apply(node, dtype, [argument])

    def _apply(self, node: ast.AST, name: str, args: Sequence[Any], keywords: dict[Any, Any] | None = None) -> Expr:
        build = lookup(name)
        if build is None:
            raise self.error(node, f"unknown function `T.{name}` in an expression")
        try:
            result: Expr = build(*args, **(keywords or {}))
        except (TypeError, ValueError, KeyError) as error:
            raise self.error(node, f"`T.{name}`: {error}") from None
        return result


def _plain(value: Value) -> Any:
    return value.value if isinstance(value, Number) else value


def _show(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."


def constant(node: ast.AST, scope: Scope) -> int | float | None:
    """The value of arithmetic on numbers and names from around the function; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float)) else None
    if isinstance(node, ast.Name):
        outer = scope.captured.get(node.id) if scope.find(node.id) is None else None
        return outer if isinstance(outer, (int, float)) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant(node.operand, scope)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        a, b = constant(node.left, scope), constant(node.right, scope)
        op = _BINARY[type(node.op)]
        if a is None or b is None or (b == 0 and op in ("/", "//", "%")):
            return None
        result: int | float = _PYTHON[op](a, b)
        return result
    if isinstance(node, ast.Call) and dotted(node.func) in ("int32", "int64") and len(node.args) == 1:
        return constant(node.args[0], scope) if is_namespaced(node.func) else None
    return None


def integer(node: ast.AST, scope: Scope, what: str) -> int:
    """A constant integer, or a ScriptError that says `what` had to be one."""
    value = constant(node, scope)
    if isinstance(value, int):
        return int(value)
    raise scope.source.error(node, f"{what} must be a constant integer, but got `{_show(node)}`")


def literal(node: ast.AST, scope: Scope) -> Any:
    """A value of an annotation or attribute: numbers, strings, None, and tuples of them."""
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, int, float, str))):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(literal(e, scope) for e in node.elts)
    if isinstance(node, ast.Dict):
        return attributes(node, scope)
    if isinstance(node, ast.Call) and len(node.args) == 1:
        inner = literal(node.args[0], scope)
        name = dotted(node.func)
        if name == "float":
            return float(inner)
        if is_dtype(name):
            return float(inner) if "float" in name else inner
    number = constant(node, scope)
    if number is not None:
        return number
    raise scope.source.error(node, f"`{_show(node)}` is not a number, string or tuple of them")


def attributes(node: ast.AST, scope: Scope) -> tuple[tuple[str, Any], ...]:
    """``{"key": value, ...}`` as pairs in order."""
    if not isinstance(node, ast.Dict):
        raise scope.source.error(node, f"expected a dictionary of annotations, but got `{_show(node)}`")
    pairs = []
    for key, value in zip(node.keys, node.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            raise scope.source.error(node, "the keys of annotations must be strings")
        pairs.append((key.value, literal(value, scope)))
    return tuple(pairs)
