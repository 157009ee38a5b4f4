"""Squares of elements that are transposed in registers (see `backends.squares`), on devices whose vectors have lanes.

Vectors are read along the columns, their lanes are interchanged by the functions of `Helpers.pick`, which compilers
make one instruction each of, and vectors are written along the rows.
"""

from __future__ import annotations

from dataclasses import replace

from ....ir.expr import binary
from ....ir.stmt import For, Store
from ...neighbours import Picks
from ...squares import Square, exchanges, square_of
from .kernel import Kernel
from .memory import read_vector, write_vector
from .types import NATIVE_LANES, memory_type


def square(k: Kernel, loop: For) -> Square | None:
    """The square that a loop copies from one memory to another, None where it copies none, or lanes are masked."""
    if not k.execution.has_vectors or k.under is not None or not isinstance(loop.body, Store):
        return None
    fixed = k.known.fixed
    store = replace(loop.body, value=fixed(loop.body.value), indices=tuple(map(fixed, loop.body.indices)))
    found = square_of(replace(loop, body=store))
    if found is None or found.source.memory == found.target.memory or found.source.dtype in k.types.emulated:
        return None
    spaces = k.space(found.source), k.space(found.target)
    return None if "image" in spaces or found.lanes not in NATIVE_LANES else found


def transpose(k: Kernel, given: Square) -> None:
    """Write the copy of a square."""
    ctype, count = memory_type(given.source.dtype), given.lanes
    kind, numbers = f"{ctype}{count}", range(count)
    places = [binary("+", given.base, binary("*", given.stride, number)) for number in numbers]
    rows = k.writer.before([read_vector(k, given.source, place, count) for place in places], [kind] * count)
    for first, second, *chosen in exchanges(count):
        pair = f"({rows[first]}, {rows[second]})"
        picked = [f"{k.helpers.pick(ctype, _out_of_two(lanes))}{pair}" for lanes in chosen]
        rows[first], rows[second] = k.writer.before(picked, [kind] * 2)
    for place, row in zip(given.targets, rows, strict=True):
        write_vector(k, given.target, place, count, row)


def _out_of_two(lanes: list[int]) -> Picks:
    """These lanes of two vectors, one behind the other, of as many each."""
    count = len(lanes)
    return Picks((0, count), count, tuple(n // count for n in lanes), tuple(n % count for n in lanes))
