"""Rewriting rules as data: text of the form ``lhs -> rhs if condition``, compiled to closures.

The text is Python's expression syntax, read through `ast`.  Its names are metavariables:

    x y z w  any expression            a b      any condition
    k m n    constants                 T U      types
    L        a number of lanes
    0        zero of either sign       0.0 -0.0 zero of that sign alone

A name that comes twice stands for equal expressions; an expression with `undef` in it
equals nothing, not even itself.  Calls are ``min``, ``max``, ``select``,
``if_then_else``, ``cast(T, x)``, ``ramp(base, stride, L)``, ``broadcast(x, L)`` and
``undef()``.  Operands of commutative operations match in either order.  The condition
is a conjunction of comparisons, which the facts at hand must prove, and of the named
tests of `TESTS`, which look at the shape of an expression.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .. import dtypes
from ..expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Undef,
    all_of,
    binary,
    const,
)
from .linear import contains_undef

Env = dict[str, Any]
Match = Callable[[Any, Env], bool]
Build = Callable[[Env], Any]

_BINARY: Mapping[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip
_COMMUTATIVE = frozenset(("+", "*", "==", "!=", "and", "or", "min", "max"))


class Prover(Protocol):
    """What decides the conditions of rules."""

    def proves(self, cond: Expr) -> bool:
        """Whether `cond` is known to hold; false means unknown."""
        ...


@dataclass(frozen=True)
class Rule:
    """One equation, used from left to right; `kind` says for which operand types it holds, see `applies`.

    `left` builds the left side of given parts, with nothing folded.
    """

    text: str
    kind: str
    root: str
    match: Match = field(compare=False, repr=False)
    build: Build = field(compare=False, repr=False)
    conditions: tuple[Build, ...] = field(compare=False, repr=False)
    left: Build = field(compare=False, repr=False)

    def apply(self, expr: Expr, prover: Prover) -> Expr | None:
        """The right side if `expr` matches the left one and the condition is proven."""
        env: Env = {}
        if not self.match(expr, env):
            return None
        for condition in self.conditions:
            holds = condition(env)
            if not (holds if isinstance(holds, bool) else prover.proves(holds)):
                return None
        return literal(self.build(env), expr.dtype)


def applies(kind: str, dtype: str) -> bool:
    """Whether rules of `kind` hold for operands of `dtype`; ``finite`` rests on finite data and equal zeros."""
    element, width = dtypes.split_dtype(dtype)
    if kind in ("float", "finite"):
        return dtypes.is_float(element)
    if kind == "int":
        return dtypes.is_int(element)
    if kind == "bool":
        return element == "bool"
    if kind == "vector":
        return width > 1
    return kind == "any" or (kind == "index vector" and element == dtypes.INDEX and width > 1)


def rules(kind: str, text: str, **choices: tuple[str, ...]) -> tuple[Rule, ...]:
    """A table of rules, one a line; a name of `choices` is replaced by each of its texts in turn."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    for name, alternatives in choices.items():
        lines = [
            one for line in lines for one in (
                [line.replace(name, a) for a in alternatives] if name in line else [line]
            )
        ]  # fmt: skip
    return tuple(rule(kind, line) for line in lines)


def rule(kind: str, text: str) -> Rule:
    """One rule from its text."""
    equation, _, condition = text.partition(" if ")
    left, _, right = equation.partition("->")
    before = _parse(left)
    conditions: list[ast.expr] = []
    if condition:
        parsed = _parse(condition)
        conditions = parsed.values if isinstance(parsed, ast.BoolOp) and isinstance(parsed.op, ast.And) else [parsed]
    return Rule(
        " ".join(text.split()), kind, _root(before), _matcher(before), _builder(_parse(right)),
        tuple(_builder(c) for c in conditions), _builder(before, Binary),
    )  # fmt: skip


def literal(value: Any, dtype: str) -> Expr:
    """A Python number as a constant of `dtype`, in every lane."""
    if isinstance(value, Expr):
        return value
    element, width = dtypes.split_dtype(dtype)
    scalar = const(value, element)
    return scalar if width == 1 else Broadcast(scalar, width)


def _parse(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _root(node: ast.expr) -> str:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id
    if isinstance(node, ast.UnaryOp):
        return "not"
    return _operator(node)[0]


def _operator(node: ast.expr) -> tuple[str, ast.expr, ast.expr]:
    """The operation of a node with two operands."""
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)], node.left, node.right
    if isinstance(node, ast.BoolOp):
        return _BINARY[type(node.op)], node.values[0], node.values[1]
    if isinstance(node, ast.Compare):
        return _BINARY[type(node.ops[0])], node.left, node.comparators[0]
    raise ValueError(f"`{ast.unparse(node)}` cannot stand in a rule")


def _number(node: ast.expr) -> int | float | bool | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, (int, float)) else None
    if isinstance(node, ast.Name) and node.id == "inf":
        return float("inf")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and _number(node.operand) == float("inf"):
        return float("-inf")
    return None


# ------------------------------------------------------------ left sides


def _matcher(node: ast.expr) -> Match:
    number = _number(node)
    if number is not None:
        return _match_number(number)
    if isinstance(node, ast.Name):
        return _match_name(node.id)
    if isinstance(node, ast.UnaryOp):
        return _match_fields(Not, ("a",), (_matcher(node.operand),))
    if isinstance(node, ast.Call):
        return _match_call(_root(node), tuple(_matcher(a) for a in node.args))
    op, left, right = _operator(node)
    return _match_binary(op, _matcher(left), _matcher(right))


def _match_number(number: int | float | bool) -> Match:
    text, signed = repr(number), isinstance(number, float) and number == 0

    def match(expr: Any, _env: Env) -> bool:
        if type(expr) is Broadcast:
            expr = expr.value
        return type(expr) is Const and expr.value == number and (not signed or repr(float(expr.value)) == text)

    return match


def _match_name(name: str) -> Match:
    def match(expr: Any, env: Env) -> bool:
        known = env.get(name)
        if known is not None:
            return bool(known == expr) and not (isinstance(expr, Expr) and contains_undef(expr))
        if (name[0] in "kmn" and type(expr) is not Const) or (name[0] in "ab" and not dtypes.is_bool(expr.dtype)):
            return False
        env[name] = expr
        return True

    return match


def _match_binary(op: str, left: Match, right: Match) -> Match:
    swaps = op in _COMMUTATIVE

    def match(expr: Any, env: Env) -> bool:
        if type(expr) is not Binary or expr.op != op:
            return False
        before = dict(env)
        if left(expr.a, env) and right(expr.b, env):
            return True
        if not swaps:
            return False
        env.clear()
        env.update(before)
        return left(expr.b, env) and right(expr.a, env)

    return match


def _match_fields(kind: type[Expr], names: tuple[str, ...], parts: tuple[Match, ...]) -> Match:
    def match(expr: Any, env: Env) -> bool:
        return type(expr) is kind and all(p(getattr(expr, n), env) for n, p in zip(names, parts, strict=True))

    return match


def _match_call(name: str, parts: tuple[Match, ...]) -> Match:
    if name in ("min", "max"):
        return _match_binary(name, *parts)
    if name in _NODES:
        kind, names = _NODES[name]
        return _match_fields(kind, names, parts)

    def match(expr: Any, env: Env) -> bool:
        if type(expr) is not Call or expr.name != name:
            return False
        return all(part(arg, env) for part, arg in zip(parts, expr.args, strict=True))

    return match


_NODES: Mapping[str, tuple[type[Expr], tuple[str, ...]]] = {
    "select": (Select, ("cond", "a", "b")),
    "cast": (Cast, ("dtype", "a")),
    "ramp": (Ramp, ("base", "stride", "lanes")),
    "broadcast": (Broadcast, ("value", "lanes")),
    "undef": (Undef, ()),
}


# ------------------------------------------------------------ right sides and conditions


def _builder(node: ast.expr, make: Callable[[str, Any, Any], Expr] = binary) -> Build:
    """The expression of an environment, whose operations `make` makes."""
    number = _number(node)
    if number is not None:
        return lambda _: number
    if isinstance(node, ast.Name):
        name = node.id
        return lambda env: env[name]
    if isinstance(node, ast.UnaryOp):
        inner = _builder(node.operand, make)
        return lambda env: Not(inner(env))
    if isinstance(node, ast.Call):
        return _build_call(_root(node), tuple(_builder(a, make) for a in node.args), make)
    op, one, other = _operator(node)
    left, right = _builder(one, make), _builder(other, make)
    return lambda env: _join(make, op, left(env), right(env))


def _join(make: Callable[[str, Any, Any], Expr], op: str, a: Any, b: Any) -> Any:
    """``a op b``; Python numbers take the type of the other side."""
    if isinstance(a, Expr):
        b = literal(b, a.dtype)
    elif isinstance(b, Expr):
        a = literal(a, b.dtype)
    return make(op, a, b) if isinstance(a, Expr) else binary(op, a, b)


def _build_call(name: str, parts: tuple[Build, ...], make: Callable[[str, Any, Any], Expr]) -> Build:
    if name in ("min", "max"):
        return lambda env: _join(make, name, parts[0](env), parts[1](env))
    if name in TESTS:
        test = TESTS[name]
        return lambda env: test(*(p(env) for p in parts))
    if name == "if_then_else":
        return lambda env: _conditional(*(p(env) for p in parts))
    if name == "ramp":
        base, stride, lanes = parts
        return lambda env: Ramp(start := base(env), literal(stride(env), start.dtype), lanes(env))
    if name == "select":
        return lambda env: Select(*_sides(*(p(env) for p in parts)))
    kind: Any = _NODES[name][0]
    return lambda env: kind(*(const(v) if isinstance(v, bool) else v for v in (p(env) for p in parts)))


def _sides(cond: Any, a: Any, b: Any) -> tuple[Expr, Expr, Expr]:
    like = next((e.dtype for e in (a, b) if isinstance(e, Expr)), "bool")
    return literal(cond, "bool"), literal(a, like), literal(b, like)


def _conditional(cond: Any, a: Any, b: Any) -> Expr:
    sides = _sides(cond, a, b)
    return Call("if_then_else", sides, sides[1].dtype)


# ------------------------------------------------------------ tests on the shape of an expression


def _is_data(expr: Expr) -> bool:
    """A value that comes from memory, also cast to a type whose range is no less."""
    while isinstance(expr, Cast) and _RANGES[dtypes.element(expr.dtype)] >= _RANGES[dtypes.element(expr.a.dtype)]:
        expr = expr.a
    return isinstance(expr, Load)


_RANGES = {
    "bool": 0, "int4": 0, "uint4": 0, "int8": 0, "uint8": 0, "float8_e4m3fn": 1, "int16": 2, "float8_e5m2": 3,
    "float16": 4, "uint16": 5, "int32": 5, "uint32": 5, "int64": 5, "uint64": 5, "bfloat16": 6, "float32": 7,
    "float64": 8,
}  # fmt: skip
"""Types by the largest number that they hold."""


def _keeps(dtype: str, expr: Expr) -> bool:
    """Whether an integer or bool type holds every value of the type of `expr`."""
    source = expr.dtype
    if dtypes.is_float(dtype) or dtypes.is_float(source) or dtypes.is_bool(dtype):
        return dtype == source
    if dtypes.is_bool(source):
        return True
    (low, high), (lo, hi) = dtypes.int_range(dtypes.element(dtype)), dtypes.int_range(dtypes.element(source))
    return low <= lo and hi <= high


def _fits(expr: Expr, dtype: str) -> Expr | bool:
    """The condition that the value of `expr` is one of an integer type."""
    if not dtypes.is_int(dtype) or expr.dtype != dtypes.INDEX:
        return False
    low, high = dtypes.int_range(dtype)
    return binary("and", binary(">=", expr, low), binary("<=", expr, high))


def _small(base: Expr, step: Expr) -> Expr:
    """The condition that no lane of a ramp of indices wraps around, however many it has."""
    far, wide = 1 << 62, 1 << 45
    sides = (binary(">=", base, -far), binary("<=", base, far), binary(">=", step, -wide), binary("<=", step, wide))
    return all_of(sides)


def _is_power_of_two(expr: Expr) -> bool:
    """A divisor that takes what wraps around from where it was to a number with the same rest."""
    value = expr.value if isinstance(expr, Const) else 0
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


TESTS: Mapping[str, Callable[..., Any]] = {
    "data": _is_data, "typed": lambda expr, dtype: expr.dtype == dtype, "keeps": _keeps, "fits": _fits,
    "small": _small, "power": _is_power_of_two,
}  # fmt: skip
