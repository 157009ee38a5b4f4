"""Index maps as text, read through `ast` and never evaluated, and values of index expressions."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..expr import Binary, Call, Cast, Const, Expr, Not, Select, Var, binary, const, if_then_else

MAX_TEXT = 8192
MAX_CONSTANT = 2**48

_ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%",
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


class AxisSeparator:
    """The type of `AXIS_SEPARATOR`, which is its only value."""

    def __repr__(self) -> str:
        return "AXIS_SEPARATOR"


AXIS_SEPARATOR: Final = AxisSeparator()


def parse_lambda(text: str) -> tuple[tuple[Var, ...], list[Expr | AxisSeparator]]:
    """The parameters and items of ``lambda i, j: [i // 4, j, i % 4]``.  Raises ValueError with the reason."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"an index map takes at most {MAX_TEXT} characters, but this has {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _Reader().function(tree)
    except SyntaxError as err:
        example = "`lambda i, j: [i // 4, j, i % 4]`"
        raise ValueError(f"`{text}` is not an index map: {err.msg}; write e.g. {example}") from err
    except (RecursionError, MemoryError) as err:
        raise ValueError("the index map is nested too deeply") from err
    except ValueError as err:
        raise ValueError(f"`{text[:200]}` is not an index map: {err}") from err


def parse_expr(text: str) -> Expr:
    """The expression ``32*n + 1`` over the names that stand in it.  Raises ValueError where it is none."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        reader = _Reader()
        reader.names = {node.id: Var(node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)}
        return reader.expr(tree)
    except (SyntaxError, RecursionError, MemoryError) as err:
        raise ValueError(f"`{text[:200]}` is no expression: {err}") from err


class _Reader:
    def __init__(self) -> None:
        self.names: dict[str, Var] = {}

    def function(self, tree: ast.expr) -> tuple[tuple[Var, ...], list[Expr | AxisSeparator]]:
        if not isinstance(tree, ast.Lambda):
            raise ValueError("it must be a `lambda` of the indices")
        args = tree.args
        if args.vararg or args.kwarg or args.defaults or args.kw_defaults or args.kwonlyargs:
            raise ValueError("its parameters must be plain names")
        self.names = {a.arg: Var(a.arg) for a in (*args.posonlyargs, *args.args)}
        body = tree.body
        items = body.elts if isinstance(body, (ast.List, ast.Tuple)) else [body]
        return tuple(self.names.values()), [self.item(i) for i in items]

    def item(self, node: ast.expr) -> Expr | AxisSeparator:
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name == "AXIS_SEPARATOR" and name not in self.names:
            return AXIS_SEPARATOR
        expr = self.expr(node)
        if expr.dtype == "bool":
            raise ValueError("an index must be an integer, not a condition")
        return expr

    def expr(self, node: ast.expr) -> Expr:
        if isinstance(node, ast.Name):
            if node.id not in self.names:
                raise ValueError(f"`{node.id}` is not one of its parameters")
            return self.names[node.id]
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, bool)):
            if abs(node.value) > MAX_CONSTANT:
                raise ValueError(f"a constant is larger than {MAX_CONSTANT}")
            return const(node.value)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return self.arithmetic(_ARITHMETIC[type(node.op)], self.expr(node.left), self.expr(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return binary("-", 0, self.expr(node.operand))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return Not(self.expr(node.operand))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
            return binary(_COMPARE[type(node.ops[0])], self.expr(node.left), self.expr(node.comparators[0]))
        if isinstance(node, ast.BoolOp):
            op = "and" if isinstance(node.op, ast.And) else "or"
            result = self.expr(node.values[0])
            for value in node.values[1:]:
                result = binary(op, result, self.expr(value))
            return result
        if isinstance(node, ast.Call) and not node.keywords:
            return self.call(node)
        raise ValueError(f"`{ast.unparse(node)[:80]}` cannot stand in it; + - * // % min max and conditions can")

    def arithmetic(self, op: str, a: Expr, b: Expr) -> Expr:
        if op in ("//", "%") and not (isinstance(b, Const) and b.value > 0):
            raise ValueError(f"`{op}` needs a positive constant on its right")
        return binary(op, a, b)

    def call(self, node: ast.Call) -> Expr:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        args = [self.expr(a) for a in node.args]
        if name in ("min", "max") and len(args) == 2:
            return binary(name, *args)
        if name == "if_then_else" and len(args) == 3:
            return if_then_else(*args)
        if name == "Select" and len(args) == 3:
            return Select(*args)
        raise ValueError(f"there is no function `{name}` of {len(args)} arguments in it")


def evaluate(expr: Expr, env: Mapping[str, Any]) -> Any:
    """The value of an integer expression or condition; variables, by name, are integers or NumPy arrays of them.

    Raises KeyError for an unknown variable, TypeError for an expression that is not index arithmetic.
    """
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Var):
        return env[expr.name]
    if isinstance(expr, Binary):
        return _OPERATIONS[expr.op](evaluate(expr.a, env), evaluate(expr.b, env))
    if isinstance(expr, Not):
        return np.logical_not(evaluate(expr.a, env))
    if isinstance(expr, Cast):
        return evaluate(expr.a, env)
    parts = (expr.cond, expr.a, expr.b) if isinstance(expr, Select) else expr.args if isinstance(expr, Call) else ()
    if isinstance(expr, Select) or (isinstance(expr, Call) and expr.name == "if_then_else"):
        cond, a, b = (evaluate(p, env) for p in parts)
        return np.where(cond, a, b) if isinstance(cond, np.ndarray) else a if cond else b
    raise TypeError(f"`{expr!r}` is not index arithmetic")


_OPERATIONS: Mapping[str, Any] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b,
    "min": lambda a, b: np.minimum(a, b) if _array(a, b) else min(a, b),
    "max": lambda a, b: np.maximum(a, b) if _array(a, b) else max(a, b),
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "and": lambda a, b: np.logical_and(a, b) if _array(a, b) else bool(a and b),
    "or": lambda a, b: np.logical_or(a, b) if _array(a, b) else bool(a or b),
}  # fmt: skip


def _array(*values: Any) -> bool:
    return any(isinstance(v, np.ndarray) for v in values)
