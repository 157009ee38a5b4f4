"""What a population of candidates chose: decisions of one anchor as vectors, one element for each candidate.

`choices` has shape (candidates, decisions); tables turn alternatives into numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .decision import OVERCOMPUTE
from .structure import Open

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


def overcomputed(part: Open, choices: Ints) -> dict[int, Bools]:
    """For each axis, whether its edge is ragged and computed over."""
    cover = covers(part, choices)
    result: dict[int, Bools] = {}
    for axis, number in part.boundary.items():
        kind = numbers(part, choices, number, f"boundary:{part.anchor.axes[axis].name}")
        result[axis] = (kind == OVERCOMPUTE) & (part.anchor.axes[axis].extent % cover[axis] != 0)
    return result


def moved(part: Open, choices: Ints, number: int) -> Bools:
    """Whether an input's layout is not the identity."""
    if number not in part.layout:
        return np.zeros(len(choices), dtype=bool)
    name = part.anchor.operands[number].name
    result: Bools = numbers(part, choices, part.layout[number], f"layout:{name}") != 0
    return result


def inside_shared(part: Open, choices: Ints) -> dict[int, Bools]:
    """For each spatial axis, whether its outer loop runs inside the shared loops."""
    wide = part.outer_axes()
    count = len(choices)
    shared = (
        numbers(part, choices, part.parallel, "parallel")
        if part.parallel is not None
        else np.ones(count, dtype=np.int64)
    )
    result: dict[int, Bools] = {}
    for axis in wide:
        name = part.anchor.axes[axis].name
        position = (
            numbers(part, choices, part.order, f"order:{name}")
            if part.order is not None
            else np.zeros(count, dtype=np.int64)
        )
        result[axis] = position >= shared
    return result
