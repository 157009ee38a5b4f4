"""The decisions about an index map, one component at a time.

Variables and indices that share nothing with the others form a component, which is
decided alone.  Digits of one expression (`digits`) count as that expression, so that a
component often comes down to arithmetic; exact sets decide the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from ..arith.intervals import Facts
from ..arith.simplify import simplify
from ..expr import FALSE, Expr, Var, as_expr, binary, const, substitute
from .digits import Digit, chain, components, digit
from .index_text import evaluate

Shape = tuple[int, ...]
Point = dict[str, int]


def components_of(names: Sequence[Var], indices: Sequence[Expr], shape: Shape) -> list[Component]:
    """The components of the map ``names -> indices`` on ``[0, shape)``."""
    return [
        Component(
            tuple(names[k] for k in at), tuple(shape[k] for k in at), tuple(indices[k] for k in positions),
            tuple(positions),
        )
        for at, positions in components(names, indices)
    ]  # fmt: skip


@dataclass(frozen=True)
class Component:
    """``names -> indices`` on ``[0, shape)``; `positions` are those of the indices in the whole map.

    The methods raise NotAffine, and Unknown where a set is too large.
    """

    names: tuple[Var, ...]
    shape: Shape
    indices: tuple[Expr, ...]
    positions: tuple[int, ...]

    @property
    def bounds(self) -> dict[Var, tuple[int, int]]:
        return {v: (0, n - 1) for v, n in zip(self.names, self.shape, strict=True)}

    def intervals(self) -> list[tuple[int, int]]:
        """The exact least and largest value of each index."""
        found = [digit(e) for e in self.indices]
        if len(self.names) == 1 and all(d is not None and d.of == self.names[0] for d in found):
            return [d.interval(0, self.shape[0] - 1) for d in found if d is not None]
        if not self.names:
            return [(v, v) for v in (evaluate(e, {}) for e in self.indices)]
        if not self.indices:
            return []
        image = self._relation(self.indices).image()
        return [(image.minimum(k), image.maximum(k)) for k in range(len(self.indices))]

    def collision(self) -> tuple[Point, Point] | None:
        """Two different points with one image; None if there are none."""
        if prod(self.shape) == 1:
            return None
        if not self.indices:
            name = self.names[0].name
            return {name: 0}, {name: 1}
        if self._is_shift:
            return None
        result: tuple[Point, Point] | None = self._relation(self._joined[0]).collision()
        return result

    def inverse(self, names: tuple[Var, ...], room: Shape) -> tuple[Expr, ...]:
        """The variables in terms of the indices, which are called `names`, for a component without collisions."""
        if not self.indices:
            return (const(0),) * len(self.names)
        joined, digits = self._joined
        given = dict(zip(self.indices, names, strict=True))
        values = [_sum(found, given) for found in digits]
        if self._is_shift:
            return (values[0] - (joined[0] - self.names[0]),)
        joints = tuple(Var(f"joint{k}") for k in range(len(joined)))
        solved = self._relation(joined, joints).inverse()
        bounds = {v: (0, n - 1) for v, n in zip(names, room, strict=True)}
        return tuple(simplify(substitute(e, dict(zip(joints, values, strict=True))), bounds) for e in solved)

    def padding(self, names: tuple[Var, ...], room: Shape) -> Expr:
        """The indices inside `room` that are no image; as many are, as a component without collisions has points."""
        if prod(self.shape) == prod(room):
            return FALSE
        from ..affine import sets

        whole = sets.box(names, room)
        result: Expr = whole.subtract(self._relation(self.indices, names).image()).condition(whole)
        return result

    @cached_property
    def _joined(self) -> tuple[tuple[Expr, ...], tuple[tuple[Digit, ...], ...]]:
        """The indices with the digits of one expression joined into it, and the digits that each was made of."""
        facts = Facts(self.bounds)
        groups: dict[Any, list[Digit]] = {}
        for index in self.indices:
            found = digit(index)
            if found is None:
                found = Digit(index, 0, index)
            groups.setdefault((found.of, found.offset), []).append(found)
        joined: list[Expr] = []
        made: list[tuple[Digit, ...]] = []
        for (of, offset), digits in groups.items():
            low, high = facts.interval(of)
            if chain(digits, low + offset, high + offset):
                joined.append(simplify(of + offset))
                made.append(tuple(digits))
            else:
                joined += [d.index for d in digits]
                made += [(Digit(d.index, 0, d.index),) for d in digits]
        return tuple(joined), tuple(made)

    @property
    def _is_shift(self) -> bool:
        """Whether the digits join into the one variable, up to an offset."""
        joined = self._joined[0]
        if len(self.names) != 1 or len(joined) != 1:
            return False
        found = digit(joined[0])
        return found is not None and found.of == self.names[0] and found.low == 1 and found.high is None

    def _relation(self, indices: Sequence[Expr], names: Sequence[Var] | None = None) -> Any:
        from ..affine import sets

        domain = sets.Domain(tuple(zip(self.names, self.shape, strict=True)))
        return sets.access_map(domain, indices, names)


def _sum(digits: Sequence[Digit], given: dict[Expr, Var]) -> Expr:
    """``sum(low * digit)``."""
    total: Expr = as_expr(0)
    for found in digits:
        total = binary("+", total, given[found.index] * found.low)
    return total
