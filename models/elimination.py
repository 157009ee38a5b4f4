"""The least sum of tables over variables with a few values each, exactly.

A *factor* is a table of costs over some variables, and what is looked for is a value of each variable at which the
sum of all factors is least.  Variables are eliminated one after the other: all factors that have one are added, and
its best value, for each combination of the variables that they have besides, is kept with the cost:

    min_x  f(a, x) + g(x, b)   ->   h(a, b),  x*(a, b)

On a chain or a tree that is dynamic programming.  Where the tables would become larger than `LIMIT`, a variable is
fixed to each of its values in turn (branch), and what cannot be better than what is known is left out (bound); the
bound comes from elimination with factors that are too large together taken apart.
Source: Dechter, "Bucket elimination" and "Mini-buckets".
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
Scope = tuple[str, ...]

LIMIT = 1 << 20
"""Entries of the largest table."""


@dataclass(frozen=True)
class Factor:
    """Costs by the values of some variables, an axis for each; infinite where values do not go together."""

    scope: Scope
    table: Table

    def at(self, variable: str, value: int) -> Factor:
        """The factor with a variable fixed."""
        if variable not in self.scope:
            return self
        axis = self.scope.index(variable)
        return Factor(self.scope[:axis] + self.scope[axis + 1 :], np.take(self.table, value, axis))


def solve(factors: Sequence[Factor], limit: int = LIMIT) -> tuple[float, dict[str, int]]:
    """The least sum of all factors and a value of each variable that gives it; infinite and empty if there is none."""
    cost, found = _solved(list(factors), limit, inf)
    return (cost, found) if found is not None else (inf, {})


def _solved(factors: list[Factor], limit: int, known: float) -> tuple[float, dict[str, int] | None]:
    """The best that costs less than `known`, or no values."""
    tree = Tree.of(factors, limit)
    if tree is not None:
        return (tree.cost, tree.best()) if tree.cost < known else (inf, None)
    sizes = _sizes(factors)
    variable = max(sizes, key=lambda v: (len({u for f in factors if v in f.scope for u in f.scope}), sizes[v]))
    fixed = [[f.at(variable, value) for f in factors] for value in range(sizes[variable])]
    bounds = [lower_bound(some, limit) for some in fixed]
    best: dict[str, int] | None = None
    for value in sorted(range(len(fixed)), key=lambda k: bounds[k]):
        if bounds[value] >= known:
            break
        cost, found = _solved(fixed[value], limit, known)
        if found is not None:
            known, best = cost, {**found, variable: value}
    return known if best is not None else inf, best


def lower_bound(factors: Iterable[Factor], limit: int = LIMIT) -> float:
    """A cost that no choice of values goes below."""
    left = list(factors)
    total = sum(float(f.table) for f in left if not f.scope)
    left = [f for f in left if f.scope]
    sizes = _sizes(left)
    for variable in _order(left, sizes):
        own = [f for f in left if variable in f.scope]
        left = [f for f in left if variable not in f.scope]
        while own:
            together: list[Factor] = [own[0]]
            rest: list[Factor] = []
            for factor in own[1:]:
                scope = {v for f in (*together, factor) for v in f.scope}
                (together if prod(sizes[v] for v in scope) <= limit else rest).append(factor)
            own = rest
            added = _sum(together, sizes)
            less = np.min(added.table, axis=added.scope.index(variable))
            scope_left = tuple(v for v in added.scope if v != variable)
            if scope_left:
                left.append(Factor(scope_left, less))
            else:
                total += float(less)
    return total


@dataclass(frozen=True)
class _Bucket:
    """What was added to eliminate `variable`, and the message to the next one."""

    variable: str
    added: Factor
    message: Factor


class Tree:
    """All eliminations of a problem, from which the best values are read."""

    def __init__(self, buckets: list[_Bucket], base: float) -> None:
        self.buckets = buckets
        self.cost = base + sum(float(b.message.table) for b in buckets if not b.message.scope)

    @staticmethod
    def of(factors: Sequence[Factor], limit: int = LIMIT) -> Tree | None:
        """The eliminations; None where a table would be larger than `limit`."""
        sizes = _sizes(factors)
        base = sum(float(f.table) for f in factors if not f.scope)
        holding: dict[str, dict[int, Factor]] = {v: {} for v in sizes}
        for number, factor in enumerate(factors):
            for variable in factor.scope:
                holding[variable][number] = factor
        buckets: list[_Bucket] = []
        count = len(factors)
        heap = [(_extent(holding[v], sizes, v), v) for v in sizes]
        heapq.heapify(heap)
        while heap:
            extent, variable = heapq.heappop(heap)
            if variable not in holding:
                continue
            now = _extent(holding[variable], sizes, variable)
            if now != extent:
                heapq.heappush(heap, (now, variable))
                continue
            if extent > limit:
                return None
            own = holding.pop(variable)
            added = _sum(list(own.values()), sizes, variable)
            scope = added.scope[:-1]
            message = Factor(scope, added.table.min(axis=-1))
            buckets.append(_Bucket(variable, added, message))
            for other in scope:
                for number in own:
                    holding[other].pop(number, None)
                holding[other][count] = message
                heapq.heappush(heap, (_extent(holding[other], sizes, other), other))
            count += 1
        return Tree(buckets, base)

    def best(self) -> dict[str, int]:
        """A value of each variable at which the sum is least."""
        found: dict[str, int] = {}
        for bucket in reversed(self.buckets):
            at = tuple(found[v] for v in bucket.added.scope[:-1])
            found[bucket.variable] = int(np.argmin(bucket.added.table[at]))
        return found


def _sum(factors: Sequence[Factor], sizes: Mapping[str, int], last: str = "") -> Factor:
    """The sum of factors over all their variables, of which `last` has the last axis."""
    scope = tuple(dict.fromkeys(v for f in factors for v in f.scope if v != last)) + ((last,) if last else ())
    total = np.zeros([sizes[v] for v in scope])
    for factor in factors:
        order = sorted(range(len(factor.scope)), key=lambda k: scope.index(factor.scope[k]))
        shape = [sizes[v] if v in factor.scope else 1 for v in scope]
        total += np.transpose(factor.table, order).reshape(shape)
    return Factor(scope, total)


def _sizes(factors: Iterable[Factor]) -> dict[str, int]:
    """How many values each variable has."""
    return {v: n for f in factors for v, n in zip(f.scope, f.table.shape, strict=True)}


def _extent(own: Mapping[int, Factor], sizes: Mapping[str, int], variable: str) -> int:
    """Entries of the table that eliminates a variable."""
    return prod(sizes[v] for v in {variable, *(v for f in own.values() for v in f.scope)})


def _order(factors: Sequence[Factor], sizes: Mapping[str, int]) -> list[str]:
    """Variables with few neighbours first."""
    near: dict[str, set[str]] = {v: set() for v in sizes}
    for factor in factors:
        for variable in factor.scope:
            near[variable] |= set(factor.scope)
    return sorted(sizes, key=lambda v: (len(near[v]), v))
