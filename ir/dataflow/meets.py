"""Do two iterations meet in one element?  The quick answer, by linear forms and intervals.

Let some accesses touch one memory in iterations that agree in the loops outside.  If two of them touch the same
element, each dimension gives an equation of two indices::

    index  =  own  +  outer  +  rest        own: terms over the variables in question, outer: equal in both

where ``own + rest`` never wraps around (what `outer` adds is the same in both, whatever it is).

1. Where `own` and `outer` are the same terms in all accesses, and `rest` spans less than the greatest common divisor
   of the coefficients in `own`, the two have equal `own`.
2. Of a sum of terms the one with the largest coefficient is equal in both where all others together span less than
   that coefficient; then the next, like the digits of a number.
3. A term that is the only unknown one of an equal sum is equal.  From equal ``v % m`` and ``v // m`` follows equal
   ``v``; what has only one value is equal.

Variables that are `determined` so are equal wherever two accesses meet: different iterations do not meet.  A *no* is
"unknown"; `dependence.clashes` answers exactly, with an example, at a hundred times the cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import gcd
from typing import Protocol

from .. import dtypes
from ..arith.intervals import Facts
from ..arith.linear import Linear, shared_form, variables_of
from ..arith.simplifier import simplifier_for
from ..expr import Binary, Const, Expr, Var
from ..stmt import memories_read

Form = dict[Expr, int]


class Touch(Protocol):
    """An access of a memory: its indices, and the intervals that hold where it happens."""

    @property
    def indices(self) -> tuple[Expr, ...]: ...

    @property
    def facts(self) -> Facts: ...


def are_determined(
    variables: Collection[Var], touches: Sequence[Touch], inside: Collection[Var], facts: Facts,
    changing: Collection[str] = (), lanes: int = 1,
) -> bool:  # fmt: skip
    """Whether two of `touches` meet in one element only where all of `variables` have equal values.

    The two agree in all variables but these and those `inside`, and in every memory but the `changing` ones.  `facts`
    hold for both.  Each touches so many elements that follow each other in the last dimension.
    """
    rank = len(touches[0].indices)
    equal: list[Form] = []
    for dim in range(rank):
        width = lanes - 1 if dim == rank - 1 else 0
        equal.extend(_equal_sums(dim, frozenset(variables), touches, frozenset(inside), frozenset(changing), width))
    return _follow(variables, equal, facts)


def _equal_sums(
    dim: int, variables: frozenset[Var], touches: Sequence[Touch], inside: frozenset[Var], changing: frozenset[str],
    width: int,
) -> Iterator[Form]:  # fmt: skip
    """Sums over `variables` that are equal where two accesses meet, by rules 1 and 2."""
    common: tuple[Form, Form] | None = None
    low = high = 0
    for number, touch in enumerate(touches):
        terms, constant = _terms(touch.indices[dim])
        steady = {
            a: k for a, k in terms.items()
            if variables_of(a).isdisjoint(inside) and memories_read(a).isdisjoint(changing)
        }  # fmt: skip
        own = {a: k for a, k in steady.items() if not variables_of(a).isdisjoint(variables)}
        outer = {a: k for a, k in steady.items() if a not in own}
        changes = {a: k for a, k in terms.items() if a not in outer}
        if not own or (common is not None and common != (own, outer)) or not touch.facts.is_exact((changes, constant)):
            return
        common = own, outer
        first, last = touch.facts.of_form(({a: k for a, k in terms.items() if a not in steady}, constant))
        low, high = (first, last) if number == 0 else (min(low, first), max(high, last))
    assert common is not None
    rest = high - low + width
    digits = sorted(common[0].items(), key=lambda item: -abs(item[1]))
    while digits:
        (atom, k), *smaller = digits
        ends = [touch.facts.of_form((dict(smaller), 0)) for touch in touches]
        if max(high for _, high in ends) - min(low for low, _ in ends) + rest >= abs(k):
            break
        yield {atom: k}
        digits = smaller
    if digits and rest < gcd(*(k for _, k in digits)):
        yield dict(digits)


def _terms(index: Expr) -> Linear:
    """The sum that an index is; one of a narrower type, which may wrap around, is no sum."""
    return shared_form(index) if dtypes.element(index.dtype) == dtypes.INDEX else ({index: 1}, 0)


def _follow(variables: Collection[Var], equal: Sequence[Form], facts: Facts) -> bool:
    """Whether equal values of all `variables` follow from equal sums, by rule 3."""
    simplifier = simplifier_for(facts)
    known: set[Expr] = set()
    for var in variables:
        low, high = facts.interval(var)
        if low == high:
            known.add(var)
    while not known.issuperset(variables):
        size = len(known)
        for form in equal:
            unknown = [a for a in form if a not in known]
            if len(unknown) == 1:
                known.add(unknown[0])
        for atom in tuple(known):
            if isinstance(atom, Binary) and atom.op == "%" and isinstance(atom.b, Const):
                quotient = simplifier.expr(atom.a // atom.b)
                if isinstance(quotient, Const) or quotient in known:
                    known.update(_of_sum(atom.a, known))
        if len(known) == size:
            return False
    return True


def _of_sum(expr: Expr, known: set[Expr]) -> list[Expr]:
    """What is equal where `expr` is: itself, and its only unknown term."""
    unknown = [a for a in shared_form(expr)[0] if a not in known]
    return [expr, *unknown] if len(unknown) == 1 else [expr]
