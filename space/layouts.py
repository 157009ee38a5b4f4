"""Layout alternatives of an operand, derived from how its anchor accesses it.

Every alternative is a family of index maps: the numbers in it (tile, physical extents)
follow from other decisions.  The physical extents are large enough for the tiles and
halos that reach over an edge.  `identity` leaves the order of elements; a buffer that the
caller fixes it leaves alone, while the others move such a buffer through a cache:

- ``copy``: the identity map with physical extents of its own;
- ``tiled``: ``[i // T, ..., i % T]`` for the dimension that the tiled axis indexes, the panel last;
- ``last``: the dimension of the innermost reduction moved last, so that its steps are neighbours;
- ``phase``: ``[..., i % c, ..., i // c]`` for a dimension that the vector axis steps through by c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .anatomy import Anchor, Operand

IDENTITY = "identity"


@dataclass(frozen=True)
class LayoutChoice:
    """One alternative: `kind` as above, the dimension it acts on, and the axis whose tile it follows."""

    kind: str
    dim: int = -1
    axis: int = -1

    @property
    def label(self) -> str:
        return self.kind if self.dim < 0 else f"{self.kind}:d{self.dim}"


def alternatives(anchor: Anchor, operand: Operand, vec: int, row: int | None) -> tuple[LayoutChoice, ...]:
    """Every layout that the rules know for an input of an anchor whose vector axis is `vec`."""
    found = [LayoutChoice(IDENTITY)]
    if not operand.dims or operand.source == "other" or len(operand.shape) == 0:
        return tuple(found)
    if operand.source == "fixed":
        found.append(LayoutChoice("copy"))
    for axis in (vec, row):
        if axis is None:
            continue
        dim = operand.plain_dim(axis)
        if dim is not None and anchor.axes[axis].kind == "spatial":
            found.append(LayoutChoice("tiled", dim, axis))
    for dim, terms in enumerate(operand.dims):
        steps = [c for a, c in terms if a == vec]
        if len(steps) == 1 and 1 < steps[0] <= 8:
            found.append(LayoutChoice("phase", dim, vec))
    moved = _last_reduction(anchor, operand)
    if moved is not None:
        found.append(LayoutChoice("last", moved))
    return tuple(found)


def _last_reduction(anchor: Anchor, operand: Operand) -> int | None:
    """The dimension of the longest plain reduction, unless it is last already."""
    plain = [(anchor.axes[a].extent, d) for a in anchor.reduce for d in [operand.plain_dim(a)] if d is not None]
    if not plain:
        return None
    extent, dim = max(plain)
    return dim if extent > 1 and dim != len(operand.dims) - 1 else None


def steps_of(operand: Operand, choice: LayoutChoice) -> int:
    """The stride of the vector axis that a ``phase`` layout takes out."""
    return next((c for a, c in operand.dims[choice.dim] if a == choice.axis), 1)


def index_map(operand: Operand, choice: LayoutChoice, tiles: Mapping[int, int]) -> str:
    """The map's text; `tiles` gives the extent of the register tile for each axis."""
    names = [f"d{k}" for k in range(len(operand.dims))]
    body = list(names)
    if choice.kind == "tiled":
        tile = tiles[choice.axis]
        rest = [n for k, n in enumerate(names) if k != choice.dim]
        body = [f"{names[choice.dim]} // {tile}", *rest, f"{names[choice.dim]} % {tile}"]
    elif choice.kind == "phase":
        step = steps_of(operand, choice)
        rest = [n for k, n in enumerate(names) if k != choice.dim]
        body = [*rest, f"{names[choice.dim]} % {step}", f"{names[choice.dim]} // {step}"]
    elif choice.kind == "last":
        body = [n for k, n in enumerate(names) if k != choice.dim] + [names[choice.dim]]
    return f"lambda {', '.join(names)}: [{', '.join(body)}]"


def logical_extents(operand: Operand, rounded: Sequence[int]) -> tuple[int, ...]:
    """Extents that hold every access when axis k runs over ``rounded[k]`` points."""
    result = []
    for extent, terms, offset in zip(operand.shape, operand.dims, operand.offsets, strict=True):
        top = offset + sum(max(0, c * (rounded[a] - 1)) for a, c in terms) + 1
        result.append(max(extent, top))
    return tuple(result)


def physical_shape(
    operand: Operand, choice: LayoutChoice, tiles: Mapping[int, int], logical: Sequence[int]
) -> tuple[int, ...]:
    """The image of the enlarged logical box under the map of `index_map`."""
    shape = list(logical)
    if choice.kind == "tiled":
        tile = tiles[choice.axis]
        rest = [e for k, e in enumerate(shape) if k != choice.dim]
        return (-(-shape[choice.dim] // tile), *rest, tile)
    if choice.kind == "phase":
        step = steps_of(operand, choice)
        rest = [e for k, e in enumerate(shape) if k != choice.dim]
        return (*rest, step, -(-shape[choice.dim] // step))
    if choice.kind == "last":
        return (*(e for k, e in enumerate(shape) if k != choice.dim), shape[choice.dim])
    return tuple(shape)
