"""What a population of candidates chose: decisions of one anchor as vectors, one element for each candidate.

`choices` has shape (candidates, decisions); tables turn alternatives into numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .decision import OVERCOMPUTE
from .structure import Open

_Number = TypeVar("_Number", np.int64, np.float32)
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def numbers(part: Open, choices: Ints, number: int, key: str) -> Ints:
    """A numeric column of one decision over a population."""
    table = np.asarray(part.decisions[number].table[key], dtype=np.int64)
    result: Ints = table[choices[:, number]]
    return result


def covers(part: Open, choices: Ints) -> dict[int, Ints]:
    """For each axis with a tile, the extent of the register tile along it."""
    return {
        axis: numbers(part, choices, number, f"tile:{part.anchor.axes[axis].name}:reg")
        for axis, number in part.tile.items()
    }


def blocks(part: Open, choices: Ints) -> dict[int, Ints]:
    """For the axis that has blocks of tiles, how many tiles one of them has; empty where none has."""
    if part.block is None:
        return {}
    axis, number = part.block
    return {axis: numbers(part, choices, number, f"tile:{part.anchor.axes[axis].name}:block")}


def fused(part: Open, choices: Ints) -> Bools:
    """Whether the rows of the tile run along two fused axes."""
    if part.fused is None or part.structure.row is None:
        return np.zeros(len(choices), dtype=bool)
    result: Bools = numbers(part, choices, part.fused[1], f"fused:{part.anchor.axes[part.structure.row].name}") == 1
    return result


def extents(part: Open, choices: Ints) -> dict[int, Ints]:
    """For each axis how many points its tiles cut: the row axis has those of both axes where they are fused."""
    result: dict[int, Ints] = {a: np.full(1, axis.extent, np.int64) for a, axis in enumerate(part.anchor.axes)}
    if part.fused is not None and part.structure.row is not None:
        row = result[part.structure.row]
        result[part.structure.row] = np.where(fused(part, choices), row * part.anchor.axes[part.fused[0]].extent, row)
    return result


def lanes(part: Open, choices: Ints) -> Ints:
    """The lanes of one vector of the register tile."""
    vec = part.structure.vec
    number = part.tile[vec] if part.device.vector is None else part.device.vector
    return numbers(part, choices, number, f"tile:{part.anchor.axes[vec].name}:lane")


def overcomputed(part: Open, choices: Ints) -> dict[int, Bools]:
    """For each axis, whether its edge is ragged and computed over."""
    cover, extent = covers(part, choices), extents(part, choices)
    result: dict[int, Bools] = {}
    for axis, number in part.boundary.items():
        kind = numbers(part, choices, number, f"boundary:{part.anchor.axes[axis].name}")
        result[axis] = (kind == OVERCOMPUTE) & (extent[axis] % cover[axis] != 0)
    return result


def moved(part: Open, choices: Ints, number: int) -> Bools:
    """Whether an input's layout is not the identity."""
    if number not in part.layout:
        return np.zeros(len(choices), dtype=bool)
    name = part.anchor.operands[number].name
    result: Bools = numbers(part, choices, part.layout[number], f"layout:{name}") != 0
    return result


def inside_shared(part: Open, choices: Ints) -> dict[int, Bools]:
    """For each spatial axis, whether its outer loop runs inside the shared loops; fused axes have one loop."""
    wide = part.outer_axes()
    count = len(choices)
    shared = (
        numbers(part, choices, part.parallel, "parallel")
        if part.parallel is not None
        else np.ones(count, dtype=np.int64)
    )
    position: dict[int, Ints] = {axis: np.zeros(count, dtype=np.int64) for axis in wide}
    if part.order is not None:
        order = part.order
        position = {a: numbers(part, choices, order, f"order:{part.anchor.axes[a].name}") for a in wide}
    if part.fused is not None and part.structure.row is not None:
        position = loop_places(position, (part.fused[0], part.structure.row), fused(part, choices))
    return {axis: at >= shared for axis, at in position.items()}


def loop_places(
    position: Mapping[int, NDArray[_Number]], pair: tuple[int, int], together: Bools
) -> dict[int, NDArray[_Number]]:
    """Places of the axes' loops from those in the chosen order, where a pair of axes may be fused `together`.

    The fused pair has a single loop in the place of the inner axis, counted among the loops that are left.
    """
    high, low = pair
    if high not in position or low not in position:
        return dict(position)
    ranks = {a: np.where(together & (position[high] < at), at - at.dtype.type(1), at) for a, at in position.items()}
    return ranks | {high: np.where(together, ranks[low], position[high])}
