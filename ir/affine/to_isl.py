"""Expressions over integer variables as isl functions and sets.

Index arithmetic is exact; what is computed in a narrower type wraps around::

    wrap(e) = (e - low) mod 2**bits + low         low: the least value of the type

Understood are ``+ - *`` with one constant factor, ``//`` and ``%`` by positive
constants, min, max, select, if_then_else, let, casts between integers and from bool,
comparisons, and, or, not.  Anything else raises `NotAffine`: memory, products of
variables, floats, vectors (see `lanes.per_lane`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import islpy as isl

from .. import dtypes
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
        return isl.PwAff.from_aff(isl.Aff.val_on_domain(self.local, isl.Val(value, context)))

    def value(self, expr: Expr) -> Any:
        """An integer expression as isl.PwAff.  Raises NotAffine."""
        if isinstance(expr, Var):
            return self._variable(expr)
        if dtypes.is_bool(expr.dtype):
            return self._choice(self.condition(expr), self.constant(1), self.constant(0))
        if isinstance(expr, Const) and dtypes.is_int(expr.dtype):
            return self.constant(int(expr.value))
        if isinstance(expr, Binary) and dtypes.is_int(expr.dtype):
            return self._wrap(self._binary(expr), expr.dtype, expr.op in ("+", "-", "*"))
        if isinstance(expr, (Select, Call)) and dtypes.is_int(expr.dtype) and _branches(expr):
            cond, a, b = _branches(expr)
            return self._choice(self.condition(cond), self.value(a), self.value(b))
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
            return getattr(self.value(cond.a), _COMPARE[cond.op])(self.value(cond.b))
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
            return self._variable(cond).ne_set(self.constant(0))
        raise NotAffine(f"`{cond!r}` is not an affine condition")

    def in_type(self, var: Var) -> Any:
        """The isl.Set where a variable of the domain holds a value of its type.  Raises NotAffine."""
        value = self._variable(var)
        low, high = (0, 1) if dtypes.is_bool(var.dtype) else dtypes.int_range(dtypes.element(var.dtype))
        return value.ge_set(self.constant(low)).intersect(value.le_set(self.constant(high)))

    def _variable(self, var: Var) -> Any:
        if var in self.bound:
            return self.value(self.bound[var])
        if var not in self.position:
            raise NotAffine(f"`{var.name}` is not a variable of the domain")
        if dtypes.lanes(var.dtype) > 1 or dtypes.is_float(var.dtype):
            raise NotAffine(f"`{var.name}` of type {var.dtype} is no integer")
        return isl.PwAff.from_aff(isl.Aff.var_on_domain(self.local, isl.dim_type.set, self.position[var]))

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
            divisor = isl.Val(int(expr.b.value), context)
            return a.scale_down_val(divisor).floor() if expr.op == "//" else a.mod_val(divisor)
        raise NotAffine(f"`{expr.op}` needs a constant operand, and `//` and `%` a positive divisor")

    def _choice(self, where: Any, a: Any, b: Any) -> Any:
        return a.intersect_domain(where).union_add(b.subtract_domain(where))

    def _wrap(self, value: Any, dtype: str, may_leave: bool) -> Any:
        """`value` as its type holds it; the index type never wraps around."""
        if not may_leave or dtypes.element(dtype) == dtypes.INDEX:
            return value
        low, high = dtypes.int_range(dtypes.element(dtype))
        offset = self.constant(low)
        return value.sub(offset).mod_val(isl.Val(high - low + 1, context)).add(offset)


def is_affine(expr: Expr, known: frozenset[Var] | None = None) -> bool:
    """Whether the expression or condition translates, over the variables `known` if given."""
    names = tuple(sorted(variables(expr), key=lambda v: v.name))
    if known is not None and not known.issuperset(names):
        return False
    try:
        with question():
            translator = Translator(names)
            (translator.condition if dtypes.is_bool(expr.dtype) else translator.value)(expr)
    except (NotAffine, Unknown):
        return False
    return True


def _branches(expr: Select | Call) -> tuple[Expr, ...]:
    """Condition and sides of a conditional of either kind; nothing for another call."""
    if isinstance(expr, Select):
        return expr.cond, expr.a, expr.b
    return expr.args if expr.name == "if_then_else" else ()


def _widens(expr: Cast) -> bool:
    """Whether the cast keeps every value of its operand's type."""
    if dtypes.is_bool(expr.a.dtype):
        return True
    (lo, hi), (low, high) = dtypes.int_range(expr.dtype), dtypes.int_range(expr.a.dtype)
    return lo <= low and high <= hi
