"""What the parser computes: constants, annotations and options, all known before the program runs."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from .. import dtypes
from .base import Scope, dotted, is_namespaced, show
from .intrinsics import is_dtype

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip
BITS: dict[type[ast.AST], str] = {
    ast.LShift: "shift_left", ast.RShift: "shift_right", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
}  # fmt: skip
PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip


def compute(op: str, a: Any, b: Any) -> int | float:
    """``a op b`` of numbers.  Raises ValueError, in words, where Python has no result."""
    try:
        result: int | float = PYTHON[op](a, b)
    except ZeroDivisionError:
        raise ValueError("divides by zero") from None
    except OverflowError:
        raise ValueError("is too large") from None
    return result


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
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        a, b = constant(node.left, scope), constant(node.right, scope)
        if a is None or b is None:
            return None
        try:
            return compute(OPERATORS[type(node.op)], a, b)
        except ValueError as error:
            raise scope.source.error(node, f"`{show(node)}` {error}") from None
    if typed_integer(node):
        assert isinstance(node, ast.Call)
        return constant(node.args[0], scope)
    return None


def typed_integer(node: ast.AST) -> str:
    """``"int32"`` for ``T.int32(3)`` and the like; empty for anything else."""
    if not (isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords and is_namespaced(node.func)):
        return ""
    name = dotted(node.func)
    return name if is_dtype(name) and dtypes.is_int(name) and dtypes.lanes(name) == 1 else ""


def integer(node: ast.AST, scope: Scope, what: str) -> int:
    """A constant integer of 64 bits, or a ScriptError that says `what` had to be one."""
    value = constant(node, scope)
    if not isinstance(value, int):
        raise scope.source.error(node, f"{what} must be a constant integer, but got `{show(node)}`")
    low, high = dtypes.int_range(dtypes.INDEX)
    if not low <= value <= high:
        raise scope.source.error(node, f"{what} does not fit 64 bits")
    return int(value)


def text(node: ast.AST, scope: Scope, what: str) -> str:
    """The value of a string literal, or of a name for one.  Raises ScriptError, which names `what` it is for."""
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(node, ast.Name):
        value = scope.captured.get(node.id)
    if isinstance(value, str):
        return value
    raise scope.source.error(node, f"{what} must be a string, but got `{show(node)}`")


def literal(node: ast.AST, scope: Scope) -> Any:
    """A value of an annotation or attribute: numbers, strings, None, and tuples of them; a dict becomes pairs."""
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, int, float, str))):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(literal(e, scope) for e in node.elts)
    if isinstance(node, ast.Dict):
        return attributes(node, scope)
    if isinstance(node, ast.Call) and len(node.args) == 1:
        name = dotted(node.func)
        if name == "float" or is_dtype(name):
            return _converted(node, name, literal(node.args[0], scope), scope)
    number = constant(node, scope)
    if number is not None:
        return number
    if isinstance(node, ast.Name) and isinstance(scope.captured.get(node.id), str):
        return scope.captured[node.id]
    if isinstance(node, ast.Call) and dotted(node.func).lower().split(".")[-1] == "target":
        return ast.unparse(node)  # what a target is called elsewhere is a text here
    raise scope.source.error(node, f"`{show(node)}` is not a number, string or tuple of them")


def _converted(node: ast.AST, name: str, value: Any, scope: Scope) -> Any:
    try:
        if "float" in name:
            return float(value)
        return bool(value) if name == "bool" else int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise scope.source.error(node, f"`{show(node)}` is no number: {error}") from None


def attributes(node: ast.AST, scope: Scope) -> tuple[tuple[str, Any], ...]:
    """``{"key": value, ...}`` as pairs in order."""
    if not isinstance(node, ast.Dict):
        raise scope.source.error(node, f"expected a dictionary of annotations, but got `{show(node)}`")
    pairs: dict[str, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            raise scope.source.error(key or node, "the keys of annotations must be strings")
        if key.value in pairs:
            raise scope.source.error(key, f"the key `{key.value}` is given twice")
        pairs[key.value] = literal(value, scope)
    return tuple(pairs.items())
