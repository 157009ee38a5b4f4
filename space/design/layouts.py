"""Layout alternatives of an operand, derived from how its anchor accesses it.

Every alternative is a family of index maps: the numbers in it (tile, physical extents)
follow from other decisions.  The physical extents are large enough for the tiles and
halos that reach over an edge.  `identity` leaves the order of elements; a buffer that the
caller fixes it leaves alone, while the others move such a buffer through a cache:

- ``copy``: the identity map with physical extents of its own;
- ``tiled``: ``[i // T, ..., i % T]`` for the dimension that the tiled axis indexes, the panel last;
- ``last``: the dimension of the innermost reduction moved last, so that its steps are neighbours;
- ``phase``: ``[..., i % c, ..., i // c]`` for a dimension that the vector axis steps through by c;
- ``blocked``: ``[i // B, ..., i % B]`` for the dimension of a reduction: neighbours in the other dimensions
  lie B elements apart, a cache line or two, in place of a power of two that maps them to the same cache set;
- ``pitched``: the identity map with a cache line more in the last dimension, for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ir import dtypes
from .anatomy import Anchor, Operand

IDENTITY = "identity"
LINE = 64  # bytes
CONFLICTING = 4
"""Cache lines in a row from which on neighbours in a column meet in few of a cache's sets."""


@dataclass(frozen=True)
class LayoutChoice:
    """One alternative: `kind` as above, the dimension it acts on, and the axis whose tile it follows.

    `size` is B of a blocked layout, and of a pitched one the elements that it adds.
    """

    kind: str
    dim: int = -1
    axis: int = -1
    size: int = 0

    @property
    def label(self) -> str:
        where = self.kind if self.dim < 0 else f"{self.kind}:d{self.dim}"
        return where if self.kind != "blocked" else f"{where}:{self.size}"


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
    found.extend(_apart(anchor, operand, vec))
    return tuple(found)


def _apart(anchor: Anchor, operand: Operand, vec: int) -> list[LayoutChoice]:
    """Layouts that bring neighbours to different cache sets, for an input that the vector axis does not index."""
    if operand.uses(vec):
        return []
    line = max(1, LINE // dtypes.nbytes(operand.dtype))
    plain = [(anchor.axes[a].extent, d) for a in anchor.reduce for d in [operand.plain_dim(a)] if d is not None]
    found = []
    if plain and max(plain)[0] >= 2 * line:
        found = [LayoutChoice("blocked", max(plain)[1], size=size) for size in (line, 2 * line)]
    if operand.shape[-1] % line == 0 and operand.shape[-1] >= CONFLICTING * line:
        found.append(LayoutChoice("pitched", size=line))
    return found


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
    elif choice.kind == "blocked":
        rest = [n for k, n in enumerate(names) if k != choice.dim]
        body = [f"{names[choice.dim]} // {choice.size}", *rest, f"{names[choice.dim]} % {choice.size}"]
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
    if choice.kind == "blocked":
        rest = [e for k, e in enumerate(shape) if k != choice.dim]
        return (-(-shape[choice.dim] // choice.size), *rest, choice.size)
    if choice.kind == "pitched":
        return (*shape[:-1], shape[-1] + choice.size)
    if choice.kind == "phase":
        step = steps_of(operand, choice)
        rest = [e for k, e in enumerate(shape) if k != choice.dim]
        return (*rest, step, -(-shape[choice.dim] // step))
    if choice.kind == "last":
        return (*(e for k, e in enumerate(shape) if k != choice.dim), shape[choice.dim])
    return tuple(shape)
