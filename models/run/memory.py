"""One arena for everything that a run of a network writes: what is never alive together may share bytes.

A `Span` is so many bytes that are alive from one step of the network to another.  `best_fit` gives each an offset,
the large ones first, each into the smallest gap that its contemporaries leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """Memory that holds something from step `first` to step `last`, both included."""

    name: str
    nbytes: int
    first: int
    last: int

    def meets(self, other: Span) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Arena:
    """Where spans begin, by name, and how many bytes hold all of them."""

    offsets: Mapping[str, int]
    nbytes: int


def best_fit(spans: Iterable[Span], alignment: int) -> Arena:
    """Offsets, multiples of `alignment`, at which spans that are alive together do not overlap."""
    placed: list[tuple[Span, int]] = []
    for span in sorted(spans, key=lambda s: (-s.nbytes, s.first, s.name)):
        placed.append((span, _offset(span, placed, alignment)))
    end = max((offset + _rounded(span.nbytes, alignment) for span, offset in placed), default=0)
    return Arena({span.name: offset for span, offset in placed}, end)


def _offset(span: Span, placed: list[tuple[Span, int]], alignment: int) -> int:
    """The beginning of the smallest gap between contemporaries that holds the span, else the end of the last one."""
    others = [(other, offset) for other, offset in placed if other.meets(span)]
    taken = sorted((offset, offset + _rounded(other.nbytes, alignment)) for other, offset in others)
    size, best, least, reach = _rounded(span.nbytes, alignment), None, 0, 0
    for begin, end in taken:
        gap = begin - reach
        if gap >= size and (best is None or gap < least):
            best, least = reach, gap
        reach = max(reach, end)
    return reach if best is None else best


def _rounded(nbytes: int, alignment: int) -> int:
    return -(-max(nbytes, 1) // alignment) * alignment
