"""Simplification of expressions and statements; exact for all integers, negative ones included.

Index arithmetic takes one canonical linear form.  With ``0 <= j < 6``::

    (i*6 + j) // 6      -> i                 x//c*c + x%c      -> x
    (i*6 + j) % 6       -> j                 x - x//c*c        -> x % c
    (i*8 + j) // 16     -> i // 2            (x//4) // 8       -> x // 32
    (x % 32) // 8       -> x // 8 % 4        (x % 32) % 8      -> x % 8
    i*6 + j < 126       -> i < 21            6*i == 3          -> False

Comparisons, ``min``, ``max`` and conditionals are decided by intervals (`Facts`).
Floating-point expressions keep their operations; only ``x * 1.0``, ``x / 1.0``
and ``0 * undef`` go.  A statement `buf[i] == undef` is never touched.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from .. import dtypes
from ..expr import (
    COMPARISONS,
    FALSE,
    TRUE,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Not,
    Select,
    Undef,
    Var,
    binary,
    conjuncts,
    const,
)
from ..node import Node, rebuild
from ..stmt import Stmt
from .intervals import Facts, Interval, is_undef_atom, negate, nothing_known
from .linear import Linear, add, build, scale, shared_form
from .quotients import Quotients

_KEPT = 256
_roots: OrderedDict[Any, Simplifier] = OrderedDict()


def simplify(node: Any, bounds: Mapping[Var, Interval] | None = None) -> Any:
    """An equal expression or statement, simpler where intervals allow.

    `bounds` are inclusive.  A statement adds its own loops, iterators, let
    bindings and conditions; a loop without iterations or a condition that
    never holds goes.  Applying it twice changes nothing more.
    """
    if isinstance(node, Stmt):
        from .statements import simplify_stmt

        return simplify_stmt(node, Facts(bounds) if bounds else nothing_known())
    if not isinstance(node, Expr):
        raise TypeError(f"simplify takes an expression or a statement, but got {type(node).__name__}")
    return _root(bounds).expr(node)


def bound(expr: Expr, bounds: Mapping[Var, Interval] | None = None) -> Interval:
    """The inclusive interval that holds every value of an integer expression.

    A variable without bounds has the range of its type.
    """
    simplifier = _root(bounds)
    return simplifier.facts.interval(simplifier.expr(expr))


def prove(cond: Expr, bounds: Mapping[Var, Interval] | None = None) -> bool:
    """Whether `cond` simplifies to true; false means unknown."""
    return _root(bounds).expr(cond) == TRUE


def _root(bounds: Mapping[Var, Interval] | None) -> Simplifier:
    """The simplifier for `bounds`; those of the last few hundred calls are kept."""
    key = tuple(bounds.items()) if bounds else ()
    known = _roots.get(key)
    if known is None:
        known = _roots[key] = simplifier_for(Facts(bounds or {}))
        if len(_roots) > _KEPT:
            _roots.popitem(last=False)
    return known


def simplifier_for(facts: Facts) -> Simplifier:
    """The simplifier that knows `facts`, one for each."""
    if facts.simplifier is None:
        facts.simplifier = Simplifier(facts)
    known: Simplifier = facts.simplifier
    return known


class Simplifier:
    """Rewriting of expressions under fixed `facts`, with a memory."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.quotients = Quotients(facts)
        self._exprs: dict[Expr, Expr] = {}
        self._linears: dict[Expr, Linear] = {}

    def expr(self, expr: Expr) -> Expr:
        """The simplified expression."""
        hit = self._exprs.get(expr)
        if hit is None:
            hit = self._simplify(expr)
            if hit == expr:
                hit = expr
            self._exprs[expr] = hit
            self._exprs.setdefault(hit, hit)
        return hit

    def _simplify(self, expr: Expr) -> Expr:
        if isinstance(expr, Binary):
            return self._binary(expr)
        if isinstance(expr, Var):
            return self._variable(expr)
        if isinstance(expr, Not):
            inner = self.expr(expr.a)
            negated = negate(inner)
            return negated if isinstance(negated, Not) or is_undef_atom(inner) else self.expr(negated)
        if isinstance(expr, Call) and expr.name == "if_then_else":
            return self._conditional(expr)
        if isinstance(expr, Select):
            return self._select(expr)
        if isinstance(expr, LetExpr):
            return LetExpr(expr.var, self.expr(expr.value), self.expr(expr.body))
        new: Expr = rebuild(expr, self._child)
        if isinstance(new, Cast):
            return _cast(new)
        return new

    def _child(self, node: Node) -> Node:
        return self.expr(node) if isinstance(node, Expr) else node

    def _variable(self, var: Var) -> Expr:
        known = self.facts.bounds.get(var)
        if known is not None and known[0] == known[1] and dtypes.is_int(var.dtype):
            return Const(known[0], var.dtype)
        return var

    def _binary(self, expr: Binary) -> Expr:
        op = expr.op
        if op in ("and", "or"):
            return self._logic(op, expr)
        if is_undef_atom(expr) and op in COMPARISONS:
            return expr
        if expr.a.dtype != dtypes.INDEX:
            return self._other(op, self.expr(expr.a), self.expr(expr.b))
        if op in COMPARISONS:
            return self._compare(op, self.linear(expr.a), self.linear(expr.b))
        if op == "min" or op == "max":
            return self._extremum(op, self.expr(expr.a), self.expr(expr.b))
        if op == "/":
            return binary(op, self.expr(expr.a), self.expr(expr.b))
        return build(self.linear(expr))

    # Integers

    def linear(self, expr: Expr) -> Linear:
        """The simplified linear form; its dictionary is shared and must not be changed."""
        hit = self._linears.get(expr)
        if hit is None:
            hit = self._linear(expr)
            self._linears[expr] = hit
        return hit

    def _linear(self, expr: Expr) -> Linear:
        if isinstance(expr, Const):
            return {}, int(expr.value)
        if isinstance(expr, Var):
            return shared_form(self._variable(expr))
        if isinstance(expr, Binary):
            if expr.op == "+" or expr.op == "-":
                total = add(self.linear(expr.a), self.linear(expr.b), 1 if expr.op == "+" else -1)
                return self.quotients.combine(total)
            if expr.op == "*":
                return self._product(self.linear(expr.a), self.linear(expr.b))
            if expr.op == "//" or expr.op == "%":
                return self._quotient(expr.op, self.linear(expr.a), self.linear(expr.b))
        return shared_form(self.expr(expr))

    def _product(self, a: Linear, b: Linear) -> Linear:
        if not a[0]:
            return scale(b, a[1])
        if not b[0]:
            return scale(a, b[1])
        left, right = sorted((build(a), build(b)), key=repr)
        return {Binary("*", left, right): 1}, 0

    def _quotient(self, op: str, a: Linear, b: Linear) -> Linear:
        divisor = b[1]
        if b[0] or divisor == 0:
            return {Binary(op, build(a), build(b)): 1}, 0
        if divisor < 0:
            a, divisor = scale(a, -1), -divisor
            return self.quotients.div(a, divisor) if op == "//" else scale(self.quotients.mod(a, divisor), -1)
        return self.quotients.div(a, divisor) if op == "//" else self.quotients.mod(a, divisor)

    def _extremum(self, op: str, a: Expr, b: Expr) -> Expr:
        lo, hi = self.facts.of_form(add(self.linear(a), self.linear(b), -1))
        if hi <= 0:
            return a if op == "min" else b
        if lo >= 0:
            return b if op == "min" else a
        return Binary(op, *sorted((a, b), key=_operand_key))

    def _compare(self, op: str, a: Linear, b: Linear) -> Expr:
        """``a op b`` as ``positive terms op negative terms + constant``."""
        terms, constant = self.quotients.combine(add(a, b, -1))
        if op in (">", ">="):
            terms, constant = scale((terms, constant), -1)
            op = "<" if op == ">" else "<="
        right = -constant  # terms op right
        if op == "<":
            op, right = "<=", right - 1
        lo, hi = self.facts.of_form((terms, 0))
        decided = _decide(op, lo, hi, right)
        if decided is not None:
            return const(decided)
        reduced = self.quotients.reduce_comparison(op, terms, right)
        if isinstance(reduced, bool):
            return const(reduced)
        return _write_comparison(op, *reduced)

    # Conditions

    def _logic(self, op: str, expr: Binary) -> Expr:
        """Each part of a conjunction is simplified knowing the others; an ``or`` is its dual."""
        absorbing, neutral = (FALSE, TRUE) if op == "and" else (TRUE, FALSE)
        parts = [self.expr(p) for p in _parts(expr, op)]
        while True:
            before = parts = list(dict.fromkeys(q for p in parts for q in _parts(p, op) if q != neutral))
            if absorbing in parts:
                return absorbing
            parts = self._refine(op, parts, absorbing) if len(parts) > 1 else parts
            if parts == before:
                return _join(op, parts, neutral)

    def _refine(self, op: str, parts: list[Expr], absorbing: Expr) -> list[Expr]:
        """One round over the parts; parts that exclude each other decide the whole."""
        parts = list(parts)
        for index, part in enumerate(parts):
            facts = self.facts
            for other in parts[:index] + parts[index + 1 :]:
                facts = facts.assuming(other, op == "and")
            if facts.impossible:
                return [absorbing]
            if facts is not self.facts:
                parts[index] = simplifier_for(facts).expr(part)
        return parts

    def _conditional(self, expr: Call) -> Expr:
        cond = self.expr(expr.args[0])
        if isinstance(cond, Const):
            return self.expr(expr.args[1] if cond.value else expr.args[2])
        then = simplifier_for(self.facts.assuming(cond)).expr(expr.args[1])
        other = simplifier_for(self.facts.assuming(cond, False)).expr(expr.args[2])
        return then if then == other else Call(expr.name, (cond, then, other), expr.dtype)

    def _select(self, expr: Select) -> Expr:
        """Both sides are evaluated, so neither may use the condition: its loads must stay in bounds."""
        cond, a, b = self.expr(expr.cond), self.expr(expr.a), self.expr(expr.b)
        if isinstance(cond, Const):
            return a if cond.value else b
        return a if a == b else Select(cond, a, b)

    # Everything that is not index arithmetic

    def _other(self, op: str, a: Expr, b: Expr) -> Expr:
        if dtypes.is_float(a.dtype):
            return _float(op, a, b)
        if dtypes.lanes(a.dtype) == 1 and op in COMPARISONS:
            lo, hi = self.facts.interval(a)
            low, high = self.facts.interval(b)
            difference = (lo - high, hi - low)
            decided = _decide_any(op, *difference)
            if decided is not None:
                return const(decided)
        if op == "*" and _zero_times_undef(a, b):
            return const(0, a.dtype)
        if isinstance(a, Const) and isinstance(b, Const) and dtypes.is_int(a.dtype):
            folded = binary(op, a, b)
            low, high = dtypes.int_range(dtypes.element(a.dtype))
            fits = isinstance(folded, Const) and (op in COMPARISONS or low <= folded.value <= high)
            return folded if fits else Binary(op, a, b)
        return binary(op, a, b)


def _parts(expr: Expr, op: str) -> tuple[Expr, ...]:
    if op == "and":
        return conjuncts(expr)
    if isinstance(expr, Binary) and expr.op == "or":
        return _parts(expr.a, op) + _parts(expr.b, op)
    return (expr,)


def _join(op: str, parts: list[Expr], neutral: Expr) -> Expr:
    if not parts:
        return neutral
    result = parts[0]
    for part in parts[1:]:
        result = Binary(op, result, part)
    return result


def _operand_key(expr: Expr) -> tuple[bool, str]:
    return isinstance(expr, Const), repr(expr)


def _decide(op: str, lo: int, hi: int, right: int) -> bool | None:
    """The truth of ``x op right`` for every x in [lo, hi], or None."""
    if op == "<=":
        return True if hi <= right else False if lo > right else None
    if right < lo or right > hi:
        return op == "!="
    if lo == hi:
        return op == "=="
    return None


def _decide_any(op: str, lo: int, hi: int) -> bool | None:
    """The truth of ``x op 0`` for every x in [lo, hi], or None."""
    if op in (">", ">="):
        op, lo, hi = ("<" if op == ">" else "<="), -hi, -lo
    return _decide("<=", lo, hi, -1) if op == "<" else _decide(op, lo, hi, 0)


def _write_comparison(op: str, terms: dict[Expr, int], right: int) -> Expr:
    """``terms op right`` with positive terms on the left: ``i*6 + j < 127``, ``i >= 1``, ``i <= j``."""
    positive = {a: k for a, k in terms.items() if k > 0}
    negative = {a: -k for a, k in terms.items() if k < 0}
    if op == "<=":
        if not positive:
            return Binary(">=", build((negative, 0)), Const(-right))
        if negative and right == 0:
            return Binary("<=", build((positive, 0)), build((negative, 0)))
        op, right = "<", right + 1
    elif not positive or (negative and _leads(negative, positive)):
        positive, negative, right = negative, positive, -right
    return Binary(op, build((positive, 0)), build((negative, right)))


def _leads(a: dict[Expr, int], b: dict[Expr, int]) -> bool:
    """Whether form `a` comes before `b`, to give ``x == y`` and ``y == x`` one shape."""
    return repr(build((a, 0))) < repr(build((b, 0)))


def _zero_times_undef(a: Expr, b: Expr) -> bool:
    pairs = ((a, b), (b, a))
    return any(isinstance(x, Undef) and isinstance(y, Const) and y.value == 0 for x, y in pairs)


def _float(op: str, a: Expr, b: Expr) -> Expr:
    if op == "*":
        if _zero_times_undef(a, b):
            return const(0, a.dtype)
        if isinstance(b, Const) and b.value == 1:
            return a
        if isinstance(a, Const) and a.value == 1:
            return b
    if op == "/" and isinstance(b, Const) and b.value == 1:
        return a
    if op in ("min", "max") and a == b:
        return a
    return Binary(op, a, b)


def _cast(expr: Cast) -> Expr:
    """A cast to the same type, or of an integer constant that the type holds exactly."""
    if expr.dtype == expr.a.dtype:
        return expr.a
    if isinstance(expr.a, Const) and dtypes.is_int(expr.a.dtype) and dtypes.lanes(expr.dtype) == 1:
        value = int(expr.a.value)
        if dtypes.is_int(expr.dtype):
            low, high = dtypes.int_range(expr.dtype)
            return Const(value, expr.dtype) if low <= value <= high else expr
        if dtypes.is_float(expr.dtype) and abs(value) <= 256:
            return Const(float(value), expr.dtype)
    return expr
