"""Expressions over integer variables as isl functions and sets.

Sums of int64 are taken for those of the integers, which is right where they stay inside of 64 bits: whoever asks
has proven that (`wrapping.never_wraps`).  What is computed in a narrower type wraps around here, too::

    wrap(e) = (e - low) mod 2**bits + low         low: the least value of the type

Understood are ``+ - *`` with one constant factor, ``//`` and ``%`` by positive
constants, shifts and masks that are such, min, max, select, if_then_else, let, casts between integers and from bool,
comparisons, and, or, not.  Anything else raises `NotAffine`: memory, products of
variables, floats, vectors (see `lanes.per_lane`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import islpy as isl

from .. import dtypes
from ..arith.integer_calls import as_arithmetic
from ..arith.linear import UndefTerm, shared_form
from ..caches import cached
from ..expr import Binary, Call, Cast, Const, Expr, LetExpr, Not, Select, Var, variables
from .guard import NotAffine, Unknown, context, question

_COMPARE = {"<": "lt_set", "<=": "le_set", ">": "gt_set", ">=": "ge_set", "==": "eq_set", "!=": "ne_set"}


class Translator:
    """Expressions over `dims` as isl functions and sets; its methods are called inside a `guard.question`."""

    def __init__(self, dims: Sequence[Var]) -> None:
        self.space = isl.Space.set_alloc(context, 0, len(dims))
        self.local = isl.LocalSpace.from_space(self.space)
        self.position = {var: k for k, var in enumerate(dims)}
        self.bound: dict[Var, Expr] = {}

    def constant(self, value: int) -> Any:
        """The constant function."""
        return isl.PwAff.from_aff(self._constant(value))

    def value(self, expr: Expr) -> Any:
        """An integer expression as isl.PwAff.  Raises NotAffine."""
        single = self._single(expr)
        if single is not None:
            return isl.PwAff.from_aff(single)
        if isinstance(expr, Var):  # one that let binds; any other is a single function, or refused
            return self.value(self.bound[expr])
        if dtypes.is_bool(expr.dtype):
            return self._choice(self.condition(expr), self.constant(1), self.constant(0))
        if isinstance(expr, Binary) and dtypes.is_int(expr.dtype):
            return self._wrap(self._binary(expr), expr.dtype, expr.op in ("+", "-", "*"))
        if isinstance(expr, (Select, Call)) and dtypes.is_int(expr.dtype) and _branches(expr):
            cond, a, b = _branches(expr)
            return self._choice(self.condition(cond), self.value(a), self.value(b))
        if isinstance(expr, Call) and (same := as_arithmetic(expr)) is not None:
            return self.value(same)
        if isinstance(expr, Cast) and dtypes.is_int(expr.dtype) and not dtypes.is_float(expr.a.dtype):
            return self._wrap(self.value(expr.a), expr.dtype, not _widens(expr))
        if isinstance(expr, LetExpr):
            self.bound[expr.var] = expr.value
            return self.value(expr.body)
        raise NotAffine(f"`{expr!r}` is not affine")

    def condition(self, cond: Expr) -> Any:
        """The isl.Set of the points at which `cond` holds.  Raises NotAffine."""
        universe = isl.Set.universe(self.space)
        if isinstance(cond, Const):
            return universe if cond.value else isl.Set.empty(self.space)
        if isinstance(cond, Not):
            return universe.subtract(self.condition(cond.a))
        if isinstance(cond, Binary) and cond.op in ("and", "or"):
            a, b = self.condition(cond.a), self.condition(cond.b)
            return a.intersect(b) if cond.op == "and" else a.union(b)
        if isinstance(cond, Binary) and cond.op in _COMPARE and not dtypes.is_float(cond.a.dtype):
            return self._compared(cond)
        if isinstance(cond, (Select, Call)) and _branches(cond):
            test, a, b = map(self.condition, _branches(cond))
            return a.intersect(test).union(b.subtract(test))
        if isinstance(cond, Cast) and cond.dtype == "bool":
            return self.value(cond.a).ne_set(self.constant(0))
        if isinstance(cond, LetExpr):
            self.bound[cond.var] = cond.value
            return self.condition(cond.body)
        if isinstance(cond, Var) and cond.dtype == "bool":
            if cond in self.bound:
                return self.condition(self.bound[cond])
            return self.value(cond).ne_set(self.constant(0))
        raise NotAffine(f"`{cond!r}` is not an affine condition")

    def between(self, points: Any, var: Var, low: int, high: int) -> Any:
        """The `points` (isl.Set) at which ``low <= var <= high``.  Raises NotAffine."""
        place, kind = self._place(var), isl.dim_type.set
        above = points.lower_bound_val(kind, place, _number(low))
        return above.upper_bound_val(kind, place, _number(high))

    def in_type(self, points: Any, var: Var) -> Any:
        """The `points` at which a variable of the domain holds a value of its type.  Raises NotAffine."""
        low, high = (0, 1) if dtypes.is_bool(var.dtype) else dtypes.int_range(dtypes.element(var.dtype))
        return self.between(points, var, low, high)

    def _constant(self, value: int) -> Any:
        return isl.Aff.val_on_domain(self.local, _number(value))

    def _place(self, var: Var) -> int:
        if var not in self.position:
            raise NotAffine(f"`{var.name}` is not a variable of the domain")
        if dtypes.lanes(var.dtype) > 1 or dtypes.is_float(var.dtype):
            raise NotAffine(f"`{var.name}` of type {var.dtype} is no integer")
        return self.position[var]

    def _compared(self, cond: Binary) -> Any:
        compare = _COMPARE[cond.op]
        a, b = self._single(cond.a), self._single(cond.b)
        if a is None or b is None:
            return getattr(self.value(cond.a), compare)(self.value(cond.b))
        return getattr(a, compare)(b)

    def _single(self, expr: Expr) -> Any:
        """An integer expression as one isl.Aff, at a quarter of the cost of a piecewise one; None where it is none.

        These are the sums, quotients and remainders of int64.
        """
        if isinstance(expr, Var):
            if expr in self.bound:
                return self._single(self.bound[expr])
            return isl.Aff.var_on_domain(self.local, isl.dim_type.set, self._place(expr))
        if isinstance(expr, Const) and dtypes.is_int(expr.dtype):
            return self._constant(int(expr.value))
        if not isinstance(expr, Binary) or dtypes.element(expr.dtype) != dtypes.INDEX:
            return None
        if expr.op in ("+", "-", "*"):
            return self._sum(expr)
        if expr.op in ("//", "%") and isinstance(expr.b, Const) and int(expr.b.value) > 0:
            a = self._single(expr.a)
            return None if a is None else _divided(a, expr)
        return None

    def _sum(self, expr: Binary) -> Any:
        try:
            terms, constant = shared_form(expr)
        except UndefTerm:
            return None
        result = self._constant(constant)
        for atom, coefficient in terms.items():
            factor = _number(coefficient)
            if isinstance(atom, Var) and atom not in self.bound:
                result = result.add_coefficient_val(isl.dim_type.in_, self._place(atom), factor)
                continue
            part = None if atom == expr else self._single(atom)
            if part is None:
                return None
            result = result.add(part.scale_val(factor))
        return result

    def _binary(self, expr: Binary) -> Any:
        a, b = self.value(expr.a), self.value(expr.b)
        simple: dict[str, Callable[[], Any]] = {
            "+": lambda: a.add(b), "-": lambda: a.sub(b), "min": lambda: a.min(b), "max": lambda: a.max(b),
        }  # fmt: skip
        if expr.op in simple:
            return simple[expr.op]()
        if expr.op == "*" and (a.is_cst() or b.is_cst()):
            return a.mul(b)
        if expr.op in ("//", "%") and isinstance(expr.b, Const) and int(expr.b.value) > 0:
            return _divided(a, expr)
        raise NotAffine(f"`{expr.op}` needs a constant operand, and `//` and `%` a positive divisor")

    def _choice(self, where: Any, a: Any, b: Any) -> Any:
        return a.intersect_domain(where).union_add(b.subtract_domain(where))

    def _wrap(self, value: Any, dtype: str, may_leave: bool) -> Any:
        """`value` as a narrower type holds it."""
        if not may_leave or dtypes.element(dtype) == dtypes.INDEX:
            return value
        low, high = dtypes.int_range(dtypes.element(dtype))
        offset = self.constant(low)
        return value.sub(offset).mod_val(_number(high - low + 1)).add(offset)


def _number(value: int) -> Any:
    """An isl.Val; numbers of more than 64 bits are read as text."""
    fits = -(1 << 63) < value < 1 << 63
    return isl.Val(value, context) if fits else isl.Val.read_from_str(context, str(value))


def _divided(a: Any, expr: Binary) -> Any:
    """The quotient or remainder of a function by the constant operand of `expr`."""
    assert isinstance(expr.b, Const)
    divisor = _number(int(expr.b.value))
    return a.scale_down_val(divisor).floor() if expr.op == "//" else a.mod_val(divisor)


def is_affine(expr: Expr, known: frozenset[Var] | None = None) -> bool:
    """Whether the expression or condition translates, over the variables `known` if given."""
    if known is not None and not known.issuperset(variables(expr)):
        return False
    try:
        return _translates(expr)
    except Unknown:  # which is not remembered: another time the budget may be larger
        return False


@cached(1 << 14)
def _translates(expr: Expr) -> bool:
    names = tuple(sorted(variables(expr), key=lambda v: v.name))
    try:
        with question():
            translator = Translator(names)
            (translator.condition if dtypes.is_bool(expr.dtype) else translator.value)(expr)
    except NotAffine:
        return False
    return True


def _branches(expr: Select | Call) -> tuple[Expr, ...]:
    """Condition and sides of a conditional of either kind; nothing for another call."""
    if isinstance(expr, Select):
        return expr.cond, expr.a, expr.b
    return expr.args if expr.name == "if_then_else" else ()


def _widens(expr: Cast) -> bool:
    """Whether the cast keeps every value of its operand's type."""
    return dtypes.is_bool(expr.a.dtype) or dtypes.widens(expr.a.dtype, expr.dtype)
