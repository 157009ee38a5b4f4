"""Boxes around the elements that an access may touch, and the statements of a memory by them.

Two accesses whose boxes do not meet touch no element in common, whatever instances run: most questions between the
statements of a long program end here, before any set is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeAlias, TypeVar

from ..affine.sets import intervals_of
from ..expr import Const
from .accesses import Access, Dims

Box: TypeAlias = tuple[tuple[int, int], ...]
"""The inclusive interval of each index."""


class Touching(Protocol):
    """A statement with its accesses (`instances.Statement`)."""

    @property
    def number(self) -> int: ...
    @property
    def boxes(self) -> Mapping[Access, Box | None]: ...


S = TypeVar("S", bound=Touching)


def box_of(access: Access, dims: Dims) -> Box | None:
    """The box of an access over loops of these extents; None where any element may be meant."""
    if access.whole:
        return None
    if all(isinstance(index, Const) for index in access.indices):
        return tuple((int(i.value), int(i.value)) for i in access.indices if isinstance(i, Const))
    facts = intervals_of(dims)
    return tuple(facts.interval(index) for index in access.indices)


def meet(a: Box | None, b: Box | None) -> bool:
    """Whether some element may lie in both; None holds everything."""
    return a is None or b is None or all(p[0] <= q[1] and q[0] <= p[1] for p, q in zip(a, b, strict=True))


def holds(a: Box, b: Box) -> bool:
    """Whether all of `b` lies in `a`."""
    return all(p[0] <= q[0] and q[1] <= p[1] for p, q in zip(a, b, strict=True))


class Touches(Generic[S]):
    """The statements that touch one memory, in program order, found by the boxes of what they touch."""

    def __init__(self) -> None:
        self.everything: list[S] = []
        self._at: dict[tuple[int, ...], list[S]] = {}
        self._wide: list[tuple[S, Box | None]] = []

    def add(self, statement: S, memory: str) -> None:
        """Add a statement that comes behind all others."""
        self.everything.append(statement)
        for box in {box for access, box in statement.boxes.items() if access.buffer.name == memory}:
            if box is not None and all(low == high for low, high in box):
                self._at.setdefault(tuple(low for low, _ in box), []).append(statement)
            else:
                self._wide.append((statement, box))

    def near(self, boxes: Iterable[Box | None]) -> list[S]:
        """The statements that may touch an element of one of `boxes`, in program order."""
        found: dict[int, S] = {}
        for box in boxes:
            if box is None:
                return list(self.everything)
            if all(low == high for low, high in box):
                found.update((s.number, s) for s in self._at.get(tuple(low for low, _ in box), ()))
            else:
                inside = (own for point, own in self._at.items() if holds(box, tuple((p, p) for p in point)))
                found.update((s.number, s) for own in inside for s in own)
            found.update((s.number, s) for s, other in self._wide if meet(box, other))
        return [found[number] for number in sorted(found)]
