"""Expressions of sizes from the numbers that they have at some points.

Extents of operators are sums of ``c ((x + b) // d)`` and a number over an extent x that they read: windows, strides,
pads, parts.  `fitted` looks for the first such expression that gives all numbers, and makes sure that no other one of
this form does that and differs for some value of x: where one does, that value is what has to be looked at next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from ...errors import InternalError
from ...ir.expr import Binary, Const, Expr, Extent, Var, binary

MOST = 64
"""The largest divisor, such as the product of the strides that one operator has along an axis: a choice."""
MOST_FACTORS = 3
"""The most factors of a product, more than sizes where these come several times: a choice."""

Numbers = NDArray[np.int64]


class Undetermined(InternalError):
    """Two expressions give all numbers that are known, but differ where the size `name` is `value`."""

    def __init__(self, name: str, value: int) -> None:
        super().__init__(name, value)
        self.name, self.value = name, value


@dataclass(frozen=True)
class Form:
    """``factor ((x + shift) // divisor) + rest``."""

    factor: int
    shift: int
    divisor: int
    rest: int

    def at(self, x: Numbers) -> Numbers:
        """Its values."""
        return self.factor * ((x + self.shift) // self.divisor) + self.rest

    def of(self, x: Var) -> Expr:
        """The expression."""
        return binary("+", binary("*", binary("//", binary("+", x, self.shift), self.divisor), self.factor), self.rest)


def fitted(
    numbers: Sequence[int], known: Mapping[str, Sequence[int]], possible: Mapping[str, Numbers]
) -> Extent | None:
    """The expression over sizes that has these `numbers` where the sizes are those that are `known`; None without one.

    `possible` are all values of each size.  None as well where it could be one over either of two sizes.  Raises
    Undetermined.
    """
    if len(set(numbers)) == 1:
        return numbers[0]
    values = np.asarray(numbers, np.int64)
    points = {name: np.asarray(own, np.int64) for name, own in known.items()}
    fitting = {name: own for name, x in points.items() if (own := list(forms(values, x)))}
    if len(fitting) > 1:
        return None
    for name, own in fitting.items():
        first = own[0].at(possible[name])
        for other in own[1:]:
            apart = np.flatnonzero(other.at(possible[name]) != first)
            if apart.size:
                raise Undetermined(name, int(possible[name][apart[0]]))
        return own[0].of(Var(name))
    return _of_several(values, points)


def forms(values: Numbers, x: Numbers) -> Iterator[Form]:
    """All forms over one size that give these values, the simplest first."""
    low, high = int(np.argmin(x)), int(np.argmax(x))
    if x[low] == x[high]:
        return
    slope = (int(values[high]) - int(values[low])) / (int(x[high]) - int(x[low]))
    for divisor in range(1, MOST + 1):
        about = round(slope * divisor)
        for factor in (about, about - 1, about + 1):
            if not factor or np.gcd(factor, divisor) != 1:
                continue
            whole = factor * ((x + np.arange(divisor)[:, None]) // divisor)  # a row for each shift
            rest = values[0] - whole[:, 0]
            for shift in np.flatnonzero((whole + rest[:, None] == values).all(axis=1)):
                yield Form(factor, int(shift), divisor, int(rest[shift]))


def _of_several(values: Numbers, points: Mapping[str, Numbers]) -> Expr | None:
    """A sum of multiples of the sizes, or a multiple of a product of some, as of both sides of a square image."""
    names = list(points)
    if len(values) > len(names) + 1:
        matrix = np.stack([*points.values(), np.ones(len(values), np.int64)], axis=1).astype(float)
        is_told = np.linalg.matrix_rank(matrix) > len(names)
        solved: NDArray[np.float64] = np.asarray(np.linalg.lstsq(matrix, values.astype(float), rcond=None)[0])
        factors = [int(number) for number in np.round(solved)]
        found = np.asarray(factors, np.int64)
        if is_told and np.array_equal(matrix.astype(np.int64) @ found, values):
            total: Expr = Const(factors[-1])
            for name, factor in zip(names, factors, strict=False):
                total = binary("+", binary("*", Var(name), factor), total) if factor else total
            return total
    for count in range(1, max(len(names), MOST_FACTORS) + 1):
        for chosen in combinations_with_replacement(names, count):
            product = np.prod(np.stack([points[name] for name in chosen]), axis=0)
            factor = int(values[0] // product[0])
            if factor and np.array_equal(product * factor, values):
                made: Expr = Var(chosen[0])
                for name in chosen[1:]:
                    made = binary("*", made, Var(name))
                return binary("*", made, factor)
    return None


def values_at(extent: Extent, sizes: Mapping[str, Numbers]) -> Numbers:
    """The values of an expression where sizes have these, all of one shape."""
    if not isinstance(extent, Expr):
        return np.asarray(extent, np.int64)
    if isinstance(extent, Const):
        return np.asarray(extent.value, np.int64)
    if isinstance(extent, Var):
        return sizes[extent.name]
    assert isinstance(extent, Binary)
    a, b = values_at(extent.a, sizes), values_at(extent.b, sizes)
    return np.asarray({"+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide}[extent.op](a, b))
