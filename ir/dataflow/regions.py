"""The elements of each memory that a part of a program reads and writes, as sets.

The region of an access is its image, joined over all accesses of the same kind::

    { indices(x) : x in the instances that run, where the access is evaluated }

A region is `exact` if every one of its elements is touched; where a condition or an
index is not affine, it is a superset.  Elements are those of the memory itself, also
for accesses through views (`instances.Access`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..affine.sets import Domain, IntSet, NotAffine, access_map, box
from ..expr import Buffer
from ..stmt import PrimFunc, Stmt
from ..text import expr_text
from .accesses import Access, element_variables
from .instances import Program, Statement, instances


@dataclass(frozen=True)
class Region:
    """`elements` of `buffer`, over the variables ``p0, p1, ...``."""

    buffer: Buffer
    elements: IntSet
    exact: bool

    def __str__(self) -> str:
        """``A[p0, p1] where p0 < 3``; the condition is in its simplest form."""
        names = element_variables(self.buffer)
        cond = self.elements.condition(box(names, self.buffer.shape))
        return f"{self.buffer.name}[{', '.join(v.name for v in names)}] where {expr_text(cond)}"


@dataclass(frozen=True)
class Regions:
    """What is read and what is written, one region for each memory, in order of first touch."""

    reads: tuple[Region, ...]
    writes: tuple[Region, ...]


def regions(func: PrimFunc, node: Stmt | None = None) -> Regions:
    """The regions of `func`, or of the statements at or below `node`, which is a node of it.

    Raises Unknown where a set is too large to compute.
    """
    program: Program = instances(func)
    touched = program.statements if node is None else program.below(node)
    pairs = [(s, a) for s in touched for a in s.accesses]
    return Regions(_joined(p for p in pairs if not p[1].is_write), _joined(p for p in pairs if p[1].is_write))


def _joined(pairs: Iterable[tuple[Statement, Access]]) -> tuple[Region, ...]:
    found: dict[Buffer, Region] = {}
    for statement, access in pairs:
        region, known = region_of(statement, access), found.get(access.buffer)
        if known is not None:
            region = Region(region.buffer, known.elements.union(region.elements), known.exact and region.exact)
        if not region.elements.is_empty():
            found[access.buffer] = region
    return tuple(found.values())


def region_of(statement: Statement, access: Access) -> Region:
    """The region of one access of a statement."""
    names = element_variables(access.buffer)
    everything = box(names, access.buffer.shape)
    given = Domain(statement.dims, (*statement.conditions, *access.guards))
    domain = given.relaxed()
    try:
        image = access_map(domain, access.indices, names).image()
    except NotAffine:
        return Region(access.buffer, everything, False)
    if access.whole:
        return Region(access.buffer, everything, False)
    return Region(access.buffer, image.intersect(everything), domain == given)
