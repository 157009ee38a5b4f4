"""Linear forms of index expressions: ``i*6 + j - 1`` is ``({i: 6, j: 1}, -1)``.

An atom is whatever is not a sum, a difference or a product with a constant: a
variable, a quotient, a remainder, a load.  Sums and products of int64 wrap around, and so
an expression and its form are equal modulo ``2**64``.  They are the same number where the
form stays inside of 64 bits, which the facts of a place know (`Facts.is_exact`): what
compares, divides, or asks for a minimum or an interval needs that.  `build` writes a form
in one fixed order, so that equal forms give equal expressions, with its numbers wrapped
around into int64.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import InternalError
from .. import dtypes
from ..caches import cached
from ..expr import Binary, Broadcast, Const, Expr, Ramp, Undef, Var, binary, const, free_variables
from ..node import walk

Linear = tuple[dict[Expr, int], int]
_LARGEST = dtypes.int_range(dtypes.INDEX)[1]


class UndefTerm(InternalError, ValueError):
    """An operand contains `undef`: equal texts may have different values, so that no terms cancel."""


def linear_form(expr: Expr) -> Linear:
    """The coefficients by atom and the constant of an integer expression.

    Atoms are taken as they are; an atom whose coefficients cancel is left out.  Raises UndefTerm.
    """
    terms, constant = _linear_form(expr)
    return dict(terms), constant


@cached(1 << 15)
def _linear_form(expr: Expr) -> Linear:
    """`linear_form` with a dictionary that is shared: callers must not change it."""
    if isinstance(expr, Const):
        return {}, int(expr.value)
    if isinstance(expr, Var):
        return {expr: 1}, 0
    if isinstance(expr, Binary):
        if expr.op == "+":
            return add(_linear_form(expr.a), _linear_form(expr.b))
        if expr.op == "-":
            return add(_linear_form(expr.a), _linear_form(expr.b), -1)
        if expr.op == "*":
            left, right = _linear_form(expr.a), _linear_form(expr.b)
            if not right[0]:
                return scale(left, right[1])
            if not left[0]:
                return scale(right, left[1])
    if contains_undef(expr):
        raise UndefTerm
    return {expr: 1}, 0


@cached(1 << 15)
def contains_undef(expr: Expr) -> bool:
    """Whether `undef` stands anywhere in it, remembered."""
    return any(isinstance(node, Undef) for node in walk(expr))


variables_of = free_variables


def shared_form(expr: Expr) -> Linear:
    """`linear_form` without the copy; the dictionary must not be changed."""
    return _linear_form(expr)


def add(a: Linear, b: Linear, factor: int = 1) -> Linear:
    """``a + factor * b``."""
    if not b[0]:
        return a[0], a[1] + factor * b[1]
    terms = dict(a[0])
    for atom, coefficient in b[0].items():
        total = terms.get(atom, 0) + factor * coefficient
        if total:
            terms[atom] = total
        else:
            terms.pop(atom, None)
    return terms, a[1] + factor * b[1]


def scale(a: Linear, factor: int) -> Linear:
    """``factor * a``."""
    if factor == 1:
        return a
    if factor == 0:
        return {}, 0
    return {atom: k * factor for atom, k in a[0].items()}, a[1] * factor


def divide(a: Linear, factor: int) -> Linear:
    """``a / factor`` of a form whose coefficients and constant are multiples of it."""
    return {atom: k // factor for atom, k in a[0].items()}, a[1] // factor


@cached(1 << 15)
def _atom_key(atom: Expr) -> tuple[int, str]:
    """A total order of expressions that is the same in every process."""
    return (0, atom.name) if isinstance(atom, Var) else (1, repr(atom))


def ordered(terms: Mapping[Expr, int], signed: bool = True) -> list[tuple[Expr, int]]:
    """The terms by size of the coefficient, then by name; positive ones first if `signed`."""
    if len(terms) < 2:
        return list(terms.items())
    return sorted(terms.items(), key=lambda t: (signed and t[1] < 0, -abs(t[1]), _atom_key(t[0])))


def build(form: Linear, dtype: str = dtypes.INDEX) -> Expr:
    """The expression of a linear form: ``({i: 6, j: 1}, -1)`` -> ``i*6 + j - 1``."""
    terms, constant = _wrapped(form)
    result: Expr | None = None
    for atom, coefficient in ordered(terms):
        size = abs(coefficient)
        term = atom if size == 1 else Binary("*", atom, _number(size, dtype))
        if result is None:
            # A leading negative term starts from the constant: 3 - i, or 0 - i.
            result = term if coefficient > 0 else Binary("-", Const(constant, dtype), term)
            constant = constant if coefficient > 0 else 0
        else:
            result = Binary("+" if coefficient > 0 else "-", result, term)
    if result is None:
        return Const(constant, dtype)
    if constant:
        return Binary("+" if constant > 0 else "-", result, _number(abs(constant), dtype))
    return result


def _wrapped(form: Linear) -> Linear:
    """The form with its numbers in int64, to which it is equal modulo ``2**64``."""
    terms, constant = form
    if -_LARGEST <= constant <= _LARGEST and all(-_LARGEST <= k <= _LARGEST for k in terms.values()):
        return form
    numbers = {atom: dtypes.wrap(k, dtypes.INDEX) for atom, k in terms.items()}
    return {atom: k for atom, k in numbers.items() if k}, dtypes.wrap(constant, dtypes.INDEX)


def _number(size: int, dtype: str) -> Const:
    """The constant of a size; ``2**63``, which int64 does not have, is its own negative there."""
    return Const(size if size <= _LARGEST else -size, dtype)


def as_ramp(expr: Expr) -> tuple[Expr, Expr] | None:
    """``(base, stride)`` of an index that is a ramp plus or times scalars; None for other vectors."""
    if isinstance(expr, Ramp):
        return expr.base, expr.stride
    if isinstance(expr, Broadcast):
        return expr.value, const(0)
    if dtypes.lanes(expr.dtype) == 1:
        return expr, const(0)
    if not isinstance(expr, Binary) or expr.op not in ("+", "-", "*"):
        return None
    a, b = as_ramp(expr.a), as_ramp(expr.b)
    if a is None or b is None:
        return None
    if expr.op != "*":
        return binary(expr.op, a[0], b[0]), binary(expr.op, a[1], b[1])
    if b[1] != const(0):
        a, b = b, a
    return None if b[1] != const(0) else (binary("*", a[0], b[0]), binary("*", a[1], b[0]))
