"""Along which loops is a copy contiguous, and in which squares is it transposed?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...ir.arith.linear import linear_form
from ...ir.arith.simplify import simplify
from ...ir.expr import Call, Expr, Load, Var, free_variables, reads_memory, substitute
from ...ir.node import walk
from ...ir.stmt import PrimFunc, loads
from ..tree import block_stores, find_block, loop_bounds, loops_above


def is_contiguous(func: PrimFunc, block: str, loop: str) -> bool:
    """Whether neighbouring iterations store neighbours, and load neighbours or one element."""
    stored, loaded = _steps(func, block, loop)
    return all(s == 1 for s in stored) and all(s in (0, 1) for s in loaded)


def is_transposed(func: PrimFunc, block: str, read: str, written: str) -> bool:
    """Whether a block copies elements that are neighbours along the loop `read` to neighbours along `written`."""
    stores = block_stores(find_block(func, block))
    if len(stores) != 1 or not isinstance(stores[0].value, Load):
        return False
    along_read, along_written = _steps(func, block, read), _steps(func, block, written)
    return along_read[1] == [1] and along_written[0] == [1] and along_read[0] != [1] and along_written[1] != [1]


def is_interleaved(func: PrimFunc, block: str, read: str, side: str, count: int) -> bool:
    """Whether a block copies neighbours along `read` to each `count`-th element, and what lies along `side` between.

    It may compute with what it reads, as one that quantises does, and with numbers that are the same in all rows; and
    there may be a border around what is copied.
    """
    stores = block_stores(find_block(func, block))
    if len(stores) != 1 or count < 2 or count & (count - 1):
        return False
    chosen = [n for n in walk(stores[0].value) if isinstance(n, Call) and n.name == "if_then_else"]
    if any(reads_memory(call.args[0]) for call in chosen):
        return False
    along, across = _steps(func, block, read), _steps(func, block, side)
    copied = [there for here, there in zip(along[1], across[1], strict=True) if here != 0]
    return (
        (along[0], across[0]) == ([count], [1])
        and all(step in (0, 1) for step in along[1])
        and len(copied) == 1
        and copied not in ([1], [None])
    )


LEAST_LANES = 4
"""Lanes of the shortest vector along a row."""
WORD = 32
"""Bits of the shortest vector of narrower numbers: what the steps of a dot product fill."""
LEAST_SQUARE = 4
"""Elements of a square's side from which on it is worth being transposed as vectors."""
MANY = 4
"""Vectors along what is written, from which on an edge that is left over counts little."""


def square_side(read: int | NDArray[np.int64], written: int | NDArray[np.int64], lanes: int) -> NDArray[np.int64]:
    """The side of squares in which a copy of `read` by `written` points is transposed, 0 where it is not.

    All lanes of a vector, or a smaller power of two that leaves less of an edge of a short row.
    """
    extent, points = np.asarray(written, np.int64), np.maximum(np.asarray(read, np.int64), 1)
    divisor = np.maximum(np.minimum(extent & -extent, lanes), LEAST_SQUARE)
    side = np.where((extent % lanes == 0) | (extent >= MANY * lanes), lanes, divisor)
    side = np.minimum(side, np.exp2(np.floor(np.log2(points))).astype(np.int64))
    return np.where((side >= LEAST_SQUARE) & (extent >= side) & (lanes >= LEAST_SQUARE), side, np.int64(0))


def interleaved_lanes(read: int | NDArray[np.int64], lanes: int) -> NDArray[np.int64]:
    """Lanes of the vectors in which rows of `read` points are laid side by side; 0 where rows are too short.

    They divide the rows, or leave over less than `MANY` of them have.
    """
    extent = np.maximum(np.asarray(read, np.int64), 1)
    many = np.exp2(np.floor(np.log2(np.maximum(extent // MANY, 1)))).astype(np.int64)
    found = np.minimum(np.maximum(extent & -extent, many), lanes)
    return np.where(found >= LEAST_SQUARE, found, np.int64(0))


def in_a_row(extent: NDArray[np.int64], lanes: int, bits: int) -> NDArray[np.int64]:
    """Lanes of the vectors in which a block goes along a row of numbers of so many `bits`.

    Of a short row those of a power of two that fits; of narrow numbers a word is enough.
    """
    least = LEAST_LANES if bits >= WORD else WORD // bits
    found = np.minimum(np.exp2(np.floor(np.log2(np.maximum(extent, 1)))).astype(np.int64), lanes)
    return np.where(found >= least, found, np.int64(1))


def _steps(func: PrimFunc, block: str, loop: str) -> tuple[list[int | None], list[int | None]]:
    """The strides in elements of a block's stores and of its loads along a loop; None for one that is not fixed."""
    target = find_block(func, block)
    bounds = loop_bounds(loops_above(func, target))
    bindings = {i.var: i.binding for i in target.iters}
    var = Var(loop)

    def step(indices: tuple[Expr, ...], strides: tuple[int, ...]) -> int | None:
        total = 0
        for index, stride in zip(indices, strides, strict=True):
            terms, _ = linear_form(simplify(substitute(index, bindings), bounds))
            total += sum(c * stride for atom, c in terms.items() if atom == var)
            if any(atom != var and var in free_variables(atom) for atom in terms):
                return None
        return total

    stored = [step(s.indices, s.buffer.strides) for s in block_stores(target)]
    return stored, [step(load.indices, load.buffer.strides) for load in loads(target.body)]
