"""Index arithmetic at code-generation time: linear forms over SSA values, with intervals.

::

    Linear   const + sum(coefficient * atom)       one int64
    Ramped   base + lane * stride                  a vector of them
    Lanes    (linear, linear, ...)                 a vector without such structure

An atom is an int64 SSA value with an inclusive interval and the loop depth at which it is defined.
A form is equal to its value modulo ``2**64``, and is the value itself where it is `bounded`.
An index in a loop that is unrolled folds to the same terms with another constant, so that all
accesses of a register tile share one address and differ by a displacement.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

INLINE = 1 << 30  # depth of an atom that is defined where it stands, not at the head of a loop
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class Atom:
    """An int64 SSA value."""

    __slots__ = ("depth", "hi", "lo", "name", "number")
    count = 0

    def __init__(self, name: str, depth: int, lo: int = INT64_MIN, hi: int = INT64_MAX) -> None:
        self.name, self.depth, self.lo, self.hi = name, depth, lo, hi
        Atom.count += 1
        self.number = Atom.count


Terms = tuple[tuple[Atom, int], ...]


def wrapped(number: int) -> int:
    """The int64 that is equal to a number modulo ``2**64``."""
    return (number - INT64_MIN) % 2**64 + INT64_MIN


def held(lo: int, hi: int) -> tuple[int, int]:
    """The interval of an int64 computed from numbers in [lo, hi]: any value where that leaves 64 bits."""
    return (lo, hi) if lo >= INT64_MIN and hi <= INT64_MAX else (INT64_MIN, INT64_MAX)


class Linear:
    """``const + sum(coefficient * atom)``; equal forms compare equal."""

    __slots__ = ("const", "terms")

    def __init__(self, const: int = 0, terms: Terms = ()) -> None:
        self.const = const if INT64_MIN <= const <= INT64_MAX else wrapped(const)
        self.terms = terms

    def __hash__(self) -> int:
        return hash((self.const, self.terms))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Linear) and self.const == other.const and self.terms == other.terms

    def __add__(self, other: Linear) -> Linear:
        if not other.terms:
            return Linear(self.const + other.const, self.terms)
        if not self.terms:
            return Linear(self.const + other.const, other.terms)
        return Linear(self.const + other.const, _merge(self.terms, other.terms))

    def __sub__(self, other: Linear) -> Linear:
        return self + other * -1

    def __mul__(self, factor: int) -> Linear:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        return Linear(self.const * factor, tuple((a, c * factor) for a, c in self.terms))

    @property
    def atom(self) -> Atom | None:
        """The atom that the form is, None for any other form."""
        return self.terms[0][0] if not self.const and [factor for _, factor in self.terms] == [1] else None

    @property
    def is_unknown(self) -> bool:
        """Whether the form is an atom that may be any int64."""
        return self.atom is not None and (self.atom.lo, self.atom.hi) == (INT64_MIN, INT64_MAX)

    def within(self, lo: int, hi: int) -> Linear:
        """The form of an atom where its interval is known: another atom, so that what it makes is used there alone."""
        assert self.atom is not None
        return Linear(0, ((Atom(self.atom.name, self.atom.depth, lo, hi), 1),))

    @property
    def is_const(self) -> bool:
        return not self.terms

    @property
    def depth(self) -> int:
        """The deepest loop that the value depends on."""
        deepest = 0
        for atom, _ in self.terms:
            if atom.depth > deepest:
                deepest = atom.depth
        return deepest

    def bounds(self) -> tuple[int, int]:
        """An inclusive interval that holds the value, which wraps around where the sum may leave 64 bits."""
        lo = hi = self.const
        for atom, factor in self.terms:
            a, b = atom.lo * factor, atom.hi * factor
            lo, hi = (lo + a, hi + b) if factor > 0 else (lo + b, hi + a)
        return held(lo, hi)

    @property
    def bounded(self) -> bool:
        """True if no sum of the terms, in any order, can overflow 64 bits."""
        reach = abs(self.const)
        for atom, factor in self.terms:
            reach += abs(factor) * max(abs(atom.lo), abs(atom.hi))
        return reach <= INT64_MAX

    def split(self, divisor: int) -> tuple[Linear, Linear]:
        """``self == divisor * quotient + rest`` with every divisible term in the quotient."""
        whole = tuple((a, c // divisor) for a, c in self.terms if c % divisor == 0)
        rest = tuple((a, c) for a, c in self.terms if c % divisor)
        return Linear(self.const // divisor, whole), Linear(self.const % divisor, rest)


def difference(a: Linear, b: Linear) -> Linear | None:
    """``a - b`` over the integers; None where a side, or the constant, may leave 64 bits."""
    exact = a.bounded and b.bounded and abs(a.const - b.const) <= INT64_MAX
    return a - b if exact else None


def _merge(left: Terms, right: Terms) -> Terms:
    sums = dict(left)
    for atom, factor in right:
        total = sums.get(atom, 0) + factor
        if total:
            sums[atom] = total
        else:
            del sums[atom]
    return tuple(sorted(sums.items(), key=lambda item: item[0].number))


def combined(const: int, parts: Iterable[tuple[Linear, int]]) -> Linear:
    """``const + sum(value * factor)``."""
    terms: Terms = ()
    for value, factor in parts:
        const += value.const * factor
        if value.terms:
            scaled = value.terms if factor == 1 else tuple([(a, c * factor) for a, c in value.terms])
            terms = _merge(terms, scaled) if terms else scaled
    return Linear(const, terms)


ZERO = Linear()
ONE = Linear(1)


class Ramped:
    """``base + lane * stride`` for each lane."""

    __slots__ = ("base", "lanes", "stride")

    def __init__(self, base: Linear, stride: Linear, lanes: int) -> None:
        self.base, self.stride, self.lanes = base, stride, lanes

    def lane(self, number: int) -> Linear:
        return self.base + self.stride * number


class Lanes:
    """Any vector of linear forms."""

    __slots__ = ("values",)

    def __init__(self, values: tuple[Linear, ...]) -> None:
        self.values = values

    @property
    def lanes(self) -> int:
        return len(self.values)

    def lane(self, number: int) -> Linear:
        return self.values[number]


def from_lanes(values: Iterable[Linear]) -> Ramped | Lanes:
    """A ramp where all neighbours differ by the same amount, else the lanes as they are."""
    items = tuple(values)
    stride = items[1] - items[0] if len(items) > 1 else ZERO
    if all(b - a == stride for a, b in itertools.pairwise(items)):
        return Ramped(items[0], stride, len(items))
    return Lanes(items)
