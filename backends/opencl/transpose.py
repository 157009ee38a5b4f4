"""Squares of elements that are transposed in registers (see `backends.squares`), on the devices that CPUs are.

Vectors are read along the columns, their lanes are interchanged by the functions of `Helpers.pick`, which compilers
make one instruction each of, and vectors are written along the rows.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import binary
from ...ir.stmt import For, Store
from ..neighbours import Picks
from ..squares import Square, exchanges, square_of
from .expr import Expressions
from .types import NATIVE_LANES, memory_type


class Transposes(Expressions):
    """Writes copies of squares."""

    def square(self, loop: For) -> Square | None:
        """The square that a loop copies from one memory to another; a GPU, whose items are lanes, has none."""
        if not self.is_cpu or self.under is not None or not isinstance(loop.body, Store):
            return None
        store = replace(loop.body, value=self.fixed(loop.body.value), indices=tuple(map(self.fixed, loop.body.indices)))
        square = square_of(replace(loop, body=store))
        if square is None or square.source.memory == square.target.memory or square.source.dtype in self.emulated:
            return None
        spaces = self.space(square.source), self.space(square.target)
        return None if "image" in spaces or square.lanes not in NATIVE_LANES else square

    def transpose(self, square: Square) -> None:
        """Write the copy of a square."""
        ctype, count = memory_type(square.source.dtype), square.lanes
        kind, numbers = f"{ctype}{count}", range(count)
        places = [binary("+", square.base, binary("*", square.stride, number)) for number in numbers]
        rows = self.before([self.read_vector(square.source, place, count) for place in places], [kind] * count)
        for first, second, *chosen in exchanges(count):
            pair = f"({rows[first]}, {rows[second]})"
            picked = [f"{self.helpers.pick(ctype, _out_of_two(lanes))}{pair}" for lanes in chosen]
            rows[first], rows[second] = self.before(picked, [kind] * 2)
        for place, row in zip(square.targets, rows, strict=True):
            self.write_vector(square.target, place, count, row)


def _out_of_two(lanes: list[int]) -> Picks:
    """These lanes of two vectors, one behind the other, of as many each."""
    count = len(lanes)
    return Picks((0, count), count, tuple(n // count for n in lanes), tuple(n % count for n in lanes))
