"""The simplifier of expressions; right for all integers, negative ones and those that wrap around included.

Index arithmetic takes one canonical linear form.  With ``0 <= j < 6``::

    (i*6 + j) // 6      -> i                 x//c*c + x%c      -> x
    (i*6 + j) % 6       -> j                 x - x//c*c        -> x % c
    (i*8 + j) // 16     -> i // 2            (x//4) // 8       -> x // 32
    (x % 32) // 8       -> x // 8 % 4        (x % 32) % 8      -> x % 8
    i*6 + j < 126       -> i < 21            6*i == 3          -> False

The equations are data: the tables of `rules`, and the laws beside each procedure
(`quotients`, `compare`, `lattice` and this module), which intervals (`Facts`) decide.

Sums and products of int64 have their linear form whatever wraps around.  They are compared and
divided by it only where it is exact (`Facts.is_exact`): of indices, which loops and iterators
bound, it is, and of what is loaded or passed it is not.  Constants are folded as the
interpreter computes them.  Floating-point expressions keep their operations, but for
the rules of `rules.FLOATS` and, unless `strict`, `rules.FINITE`.  A statement
`buf[i] == undef` is never touched, and two `undef` are never equal.

A result depends on the expression and the facts alone, never on what was simplified
before, and simplifying it again changes nothing (`Simplifier.expr`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import dtypes
from ..expr import (
    COMPARISONS,
    FALSE,
    TRUE,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Not,
    Ramp,
    Select,
    Var,
    can_fail,
    const,
    fold_constants,
    reads_memory,
    substitute,
    variables,
)
from ..functions import INTEGER_CALLS, TRUNCATED_CALLS
from ..node import Node, rebuild
from ..statements import Stmt
from . import integer_calls
from .compare import compare, decide_zero
from .constants import fold_cast, fold_floats
from .intervals import Facts, is_undef_atom, negate
from .lattice import DUAL, absorb, join, nested, parts, resolve
from .laws import law
from .linear import Linear, UndefTerm, add, build, contains_undef, scale, shared_form
from .quotients import MayWrap, Quotients
from .rules import operand_dtype, rules_for
from .widening import wide_index

_ROUNDS = 8  # of the parts of a condition against each other; what is left to do is done in the next round of all


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
        self.statements: dict[int, tuple[Stmt, Stmt]] = {}  # by identity: equal statements stay apart

    def expr(self, expr: Expr) -> Expr:
        """The simplified expression: where rewriting over and over arrives.

        Each round is a function of the expression and the facts.  Its fixed point is the
        result; should the rounds go in a circle, it is the least expression of the circle,
        wherever one enters it.
        """
        hit = self._exprs.get(expr)
        if hit is None:
            hit = self._arrive(expr)
        return hit

    def proves(self, cond: Expr) -> bool:
        """Whether `cond` simplifies to true; false means unknown."""
        return self.expr(cond) == TRUE

    def _arrive(self, expr: Expr) -> Expr:
        new = self._round(expr)
        if new is expr or new == expr:
            self._exprs[expr] = expr
            return expr
        result = self._exprs.get(new)
        if result is None:
            result = self._follow(expr, new)
        self._exprs[expr] = result
        return result

    def _follow(self, expr: Expr, new: Expr) -> Expr:
        """The expression at which rounds of simplification from `new` on end; `new` is what `expr` became."""
        seen = [expr]
        while new not in seen:
            seen.append(new)
            new = self._round(new)
            known = self._exprs.get(new)
            if known is not None:
                return self._arrived(seen, known)
        if new == seen[-1]:
            return self._arrived(seen, seen[-1])
        return self._arrived(seen, min(seen[seen.index(new) :], key=lambda e: (len(repr(e)), repr(e))))

    def _arrived(self, seen: list[Expr], result: Expr) -> Expr:
        for item in seen:
            self._exprs[item] = result
        return result

    def _round(self, expr: Expr) -> Expr:
        """One round: the operands simplified, then the procedure of the operation, then its rules."""
        kind = type(expr)
        if kind is Const:
            return expr
        method = _METHODS.get(kind)
        if method is not None:
            return method(self, expr)
        new: Expr = rebuild(expr, self._child)
        return self._rewrite(_ROOTS[kind], new) if kind in _ROOTS else new

    def _child(self, node: Node) -> Node:
        return self.expr(node) if isinstance(node, Expr) else node

    def _rewrite(self, root: str, expr: Expr) -> Expr:
        """The first rule of the tables that matches, or the expression itself."""
        for rule in rules_for(root, operand_dtype(expr), self.facts.strict):
            new = rule.apply(expr, self)
            if new is not None:
                return new
        return expr

    def _variable(self, var: Var) -> Expr:
        known = self.facts.bounds.get(var)
        if known is None or known[0] != known[1] or dtypes.is_float(var.dtype) or dtypes.lanes(var.dtype) > 1:
            return var
        return const(known[0], var.dtype)

    def _binary(self, expr: Binary) -> Expr:
        op = expr.op
        if op == "and" or op == "or":
            return self._logic(expr)
        if op in COMPARISONS and is_undef_atom(expr):
            return expr
        if expr.a.dtype != dtypes.INDEX or op == "/":
            return self._other(expr)
        try:
            if op in COMPARISONS:
                made = compare(op, self.linear(expr.a), self.linear(expr.b), self.facts, self.quotients)
                is_rest = isinstance(made, Binary) and isinstance(made.a, Binary) and made.a.op == "%"
                return self._rewrite(made.op, made) if is_rest and isinstance(made, Binary) else made
            if op == "min" or op == "max":
                return self._extremum(expr)
            return self._sum(self.linear(expr))
        except UndefTerm:
            return self._other(expr)

    # Integers

    def _sum(self, form: Linear) -> Expr:
        """The expression of a simplified form; one of variables alone stays what it is in the next round."""
        result = build(form)
        if all(type(atom) is Var for atom in form[0]):
            self._exprs.setdefault(result, result)
        return result

    def linear(self, expr: Expr) -> Linear:
        """The simplified linear form; its dictionary is shared and must not be changed.  Raises UndefTerm."""
        hit = self._linears.get(expr)
        if hit is None:
            hit = self._linear(expr)
            self._linears[expr] = hit
        return hit

    def _linear(self, expr: Expr) -> Linear:
        kind = type(expr)
        if kind is Const:
            return {}, int(expr.value)  # type: ignore[attr-defined]
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

    @law("""
        (x + y) * k  -> k * x + k * y
        x * y        -> y * x
    """)
    def _product(self, a: Linear, b: Linear) -> Linear:
        if not a[0]:
            return scale(b, a[1])
        if not b[0]:
            return scale(a, b[1])
        left, right = sorted((build(a), build(b)), key=repr)
        return {Binary("*", left, right): 1}, 0

    @law("""
        x // k       -> (0 - x) // (0 - k)      if k < 0
        x % k        -> 0 - (0 - x) % (0 - k)   if k < 0
    """)
    def _quotient(self, op: str, a: Linear, b: Linear) -> Linear:
        divisor = b[1]
        if not b[0] and divisor and self.facts.is_exact(a):
            part = self.quotients.div if op == "//" else self.quotients.mod
            try:
                if divisor > 0:
                    return part(a, divisor)
                return scale(part(scale(a, -1), -divisor), 1 if op == "//" else -1)
            except MayWrap:
                pass
        return {Binary(op, build(a), build(b)): 1}, 0

    @law("""
        min(x, y)    -> x     if x <= y
        max(x, y)    -> y     if x <= y
        min(x, y)    -> min(y, x)
        max(max(x, k), m) -> max(x, k)  if m <= k
        max(min(x, k), m) -> m          if k <= m
    """)
    def _extremum(self, expr: Binary) -> Expr:
        """A minimum (maximum) without the operands that another one is never above (below), in one order."""
        op = expr.op
        kept: list[Expr] = []
        for part in (q for p in parts(expr, op) for q in parts(self.expr(p), op)):
            if not any(self._precedes(op, other, part) for other in kept):
                kept = [other for other in kept if not self._precedes(op, part, other)] + [part]
        if len(kept) > 1 and nested(op, kept):
            kept = absorb(op, kept)
        return join(op, sorted(kept, key=lambda e: (isinstance(e, Const), repr(e))))

    def _precedes(self, op: str, a: Expr, b: Expr) -> bool:
        """Whether ``a op b`` is always `a`."""
        left, right = self.linear(a), self.linear(b)
        difference = add(left, right, -1)
        lo, hi = self.facts.of_form(difference)
        if hi > 0 if op == "min" else lo < 0:
            return False
        return difference == ({}, 0) or (self.facts.is_exact(left) and self.facts.is_exact(right))

    # Conditions

    @law("""
        a and True        -> a
        a and False       -> False
        a or False        -> a
        a or True         -> True
        a and a           -> a
        a or a            -> a
        x < k and x < m   -> x < k      if k <= m
        x < k or x < m    -> x < m      if k <= m
        x < k and x >= m  -> False      if k <= m
        x < k or x >= m   -> True       if m <= k
        x < k and (x < m or a) -> x < k if k <= m
    """)
    def _logic(self, expr: Binary) -> Expr:
        """Each part of a conjunction is simplified knowing the others; an ``or`` is its dual."""
        op = expr.op
        absorbing, neutral = (FALSE, TRUE) if op == "and" else (TRUE, FALSE)
        items = [self.expr(p) for p in parts(expr, op)]
        if dtypes.lanes(items[0].dtype) > 1:
            return self._other(expr)
        for _ in range(_ROUNDS):
            before = items = list(dict.fromkeys(q for p in items for q in parts(p, op) if q != neutral))
            if absorbing in items:
                return absorbing
            if len(items) > 1:
                items = self._refine(op, items, absorbing)
            if items == before:
                break
        return join(op, items) if items else neutral

    def _refine(self, op: str, items: list[Expr], absorbing: Expr) -> list[Expr]:
        """One round over the parts; parts that exclude each other decide the whole.

        All parts are evaluated, so that one may use the others only where nothing in it can fail.
        """
        items = list(items)
        for index, part in enumerate(items):
            facts = self.facts
            for other in items[:index] + items[index + 1 :]:
                facts = facts.assuming(other, op == "and", memory=True)
            if facts.impossible:
                return [absorbing]
            if facts is not self.facts:
                new = simplifier_for(facts).expr(part)
                items[index] = part if can_fail(new) else new
        items = self._shared(op, items)
        if nested(op, items) or any(type(p) is not Binary or p.a.dtype != dtypes.INDEX for p in items):
            resolved = resolve(op, items, lambda p: self.expr(Not(p)))
            return [absorbing] if resolved is None else absorb(op, [self.expr(p) for p in resolved])
        return items

    @law("""
        (a or x < k) and (a or x < m)   -> a or x < k      if k <= m
        (a and x < k) or (a and x < m)  -> a and x < m     if k <= m
    """)
    def _shared(self, op: str, items: list[Expr]) -> list[Expr]:
        """Items that differ in one part each become one, where one of those parts follows from the other."""
        dual, result = DUAL[op], list(items)
        for first in range(len(result)):
            second = first + 1
            while second < len(result):
                one, other = parts(result[first], dual), parts(result[second], dual)
                mine = [p for p in one if p not in other]
                its = [p for p in other if p not in one]
                second += 1
                if len(one) < 2 or len(mine) != 1 or len(its) != 1 or any(map(contains_undef, (*mine, *its))):
                    continue
                both = self.expr(Binary(op, mine[0], its[0]))
                if both in (mine[0], its[0]):
                    result[first] = result[second - 1] if both == its[0] else result[first]
                    del result[second - 1]
                    second = first + 1
        return result

    @law("""
        not (x < y)       -> x >= y
        not (x == y)      -> x != y
        not (a and b)     -> not a or not b
        not (a or b)      -> not a and not b
    """)
    def _not(self, expr: Not) -> Expr:
        inner = self.expr(expr.a)
        return Not(inner) if is_undef_atom(inner) else self._rewrite("not", negate(inner))

    @law("""
        if_then_else(a, x, y)                      -> x                       if a
        if_then_else(a, x, y)                      -> y                       if not a
        if_then_else(x < k, min(x, k), y)          -> if_then_else(x < k, x, y)
        if_then_else(x < k, y, max(x, k))          -> if_then_else(x < k, y, x)
    """)
    def _call(self, expr: Call) -> Expr:
        """Simplify a call; each side of an `if_then_else` knows its condition, as only the chosen one is evaluated."""
        if expr.name != "if_then_else":
            new: Expr = rebuild(expr, self._child)
            return self._of_integers(new) if isinstance(new, Call) and expr.name in INTEGER_CALLS else new
        cond = self.expr(expr.args[0])
        yes, no = (self.facts.assuming(cond, truth, memory=True) for truth in (True, False))
        if no.impossible or cond == TRUE:
            return self.expr(expr.args[1])
        if yes.impossible or cond == FALSE:
            return self.expr(expr.args[2])
        then, other = simplifier_for(yes).expr(expr.args[1]), simplifier_for(no).expr(expr.args[2])
        made = Call(expr.name, (cond, then, other), expr.dtype)
        return made if dtypes.lanes(expr.dtype) > 1 else self._rewrite("if_then_else", made)

    def _of_integers(self, expr: Call) -> Expr:
        """Shifts and bits of constants, and those of indices as the arithmetic that they are (`integer_calls`)."""
        folded = integer_calls.fold(expr)
        if folded is not None or dtypes.lanes(expr.dtype) > 1:
            return expr if folded is None else folded
        made = integer_calls.floored(expr, *(self.facts.interval(arg) for arg in expr.args))
        if made is None and expr.dtype == dtypes.INDEX and expr.name not in TRUNCATED_CALLS:
            made = integer_calls.as_arithmetic(expr)
        return expr if made is None else self.expr(made)

    def _select(self, expr: Select) -> Expr:
        """Both sides are evaluated, so neither may use the condition: its loads must stay in bounds.

        A condition for all lanes at once is no operand beside the sides, as the rules for bools would make it.
        """
        cond, a, b = self.expr(expr.cond), self.expr(expr.a), self.expr(expr.b)
        if dtypes.lanes(cond.dtype) != dtypes.lanes(a.dtype):
            same = a == b or isinstance(cond, Const)
            return (a if a == b or cond == TRUE else b) if same else Select(cond, a, b)
        return self._rewrite("select", Select(cond, a, b))

    def _let(self, expr: LetExpr) -> Expr:
        """A variable or constant takes the name's place, an unused name goes, others keep their interval.

        ``let v = w in e  ->  e[v := w]``        ``let v = x in e  ->  e``   if v is not in e
        """
        value = self.expr(expr.value)
        if isinstance(value, (Const, Var)):
            replaced: Expr = substitute(expr.body, {expr.var: value})
            return self.expr(replaced)
        facts = self.facts
        if dtypes.is_int(expr.var.dtype) and dtypes.lanes(expr.var.dtype) == 1:
            facts = facts.binding(expr.var, value)
        body = simplifier_for(facts).expr(expr.body)
        return LetExpr(expr.var, value, body) if expr.var in variables(body) else body

    # Everything that is not index arithmetic

    def _other(self, expr: Binary) -> Expr:
        op, a, b = expr.op, self.expr(expr.a), self.expr(expr.b)
        if isinstance(a, Const) and isinstance(b, Const):
            folded = fold_floats(op, a, b) if dtypes.is_float(a.dtype) else fold_constants(op, a, b)
            if folded is not None:
                return folded
        if op in COMPARISONS and dtypes.is_int(a.dtype) and dtypes.lanes(a.dtype) == 1:
            decided = decide_zero(op, *self.facts.difference(a, b))
            decided = self.facts.related(op, a, b) if decided is None else decided
            if decided is not None:
                return const(decided)
        new = Binary(op, a, b)
        value = self._only_value(new)
        return self._rewrite(op, new) if value is None else value

    def _only_value(self, expr: Binary) -> Const | None:
        """The value of narrow integer arithmetic that can have but one."""
        if expr.op in COMPARISONS or not dtypes.is_int(expr.dtype) or dtypes.lanes(expr.dtype) > 1:
            return None
        low, high = self.facts.interval(expr)
        return Const(low, expr.dtype) if low == high else None

    def _cast(self, expr: Cast) -> Expr:
        inner = self.expr(expr.a)
        if isinstance(inner, Const):
            folded = fold_cast(inner, expr.dtype)
            if folded is not None:
                return folded
        if isinstance(inner, Broadcast):
            return Broadcast(Cast(dtypes.element(expr.dtype), inner.value), inner.lanes)
        computed = isinstance(inner, (Binary, Cast)) and dtypes.is_int(inner.dtype) and not reads_memory(inner)
        if computed and expr.dtype == dtypes.INDEX:
            wide = wide_index(inner, self.facts)
            if wide != Cast(dtypes.INDEX, inner):
                return self.expr(wide)
        new = Cast(expr.dtype, inner)
        if dtypes.is_int(expr.dtype) and dtypes.is_float(inner.dtype) and dtypes.lanes(expr.dtype) == 1:
            low, high = self.facts.interval(new)
            if low == high:
                return Const(low, expr.dtype)
        return self._rewrite("cast", new)


_METHODS: Mapping[type[Expr], Callable[[Any, Any], Expr]] = {
    Binary: Simplifier._binary, Var: Simplifier._variable, Not: Simplifier._not, Call: Simplifier._call,
    Select: Simplifier._select, LetExpr: Simplifier._let, Cast: Simplifier._cast,
}  # fmt: skip
_ROOTS: Mapping[type[Expr], str] = {Ramp: "ramp", Broadcast: "broadcast"}
