"""Extents of a workload that are ranges: ``m=1..512``, or ``h=32..960:32`` for multiples of 32.

A `Size` stands in an operator where a number does, and is the text of an expression; what is written with it is a
program for every number of the range.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError
from ...ir.size_ranges import Range

_TEXT = re.compile(r"\s*([0-9]{1,19})\s*\.\.\s*([0-9]{1,19})\s*(?::\s*([0-9]{1,19})\s*)?")


def range_of(value: Any, name: str) -> Range | None:
    """The range that ``(1, 512)``, ``(32, 960, 32)`` or ``"32..960:32"`` mean; None for anything else.

    Raises ShapeError for a range without numbers, and for ends that the step does not divide.
    """
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        if match is None:
            return None
        parts = [int(part) for part in match.groups(default="1")]
    elif isinstance(value, Range):
        parts = [value.low, value.high, value.step]
    elif isinstance(value, Sequence) and len(value) in (2, 3) and all(type(part) is int for part in value):
        parts = list(value)
    else:
        return None
    low, high, step = (*parts, 1)[:3]
    if step < 1:
        raise ShapeError(f"the range {name}={low}..{high}:{step} must have a step of at least 1")
    if low > high:
        raise ShapeError(f"the range {name}={low}..{high} holds no number; the least one comes first")
    if low % step or high % step:
        raise ShapeError(f"the range {name}={low}..{high}:{step} must begin and end with a multiple of {step}")
    return Range(low, high, step)


class Size(int):
    """An extent ``base + offset`` over sizes with ranges; as a number it is the least that it can be.

    It is equal to no number, so that what is written for one number alone is not written for it.
    """

    base: str
    offset: int
    over: tuple[tuple[str, Range], ...]

    def __new__(cls, number: int, base: str, offset: int, over: tuple[tuple[str, Range], ...]) -> Size:
        made = super().__new__(cls, number)
        made.base, made.offset, made.over = base, offset, over
        return made

    @staticmethod
    def of(name: str, numbers: Range) -> Size:
        """The size called `name`."""
        return Size(numbers.low, name, 0, ((name, numbers),))

    def __str__(self) -> str:
        if self.offset == 0:
            return self.base
        return f"({self.base} {'+' if self.offset > 0 else '-'} {abs(self.offset)})"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and (str(self), self.over) == (str(other), other.over)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((str(self), self.over))

    def __add__(self, other: int) -> int:
        if isinstance(other, Size):
            return self._with(f"({self} + {other})", int(self) + int(other), other)
        return Size(int(self) + other, self.base, self.offset + other, self.over)

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        if isinstance(other, Size):
            return self._with(f"({self} - {other})", int(self) - int(other), other)
        return self + -other

    def __mul__(self, other: int) -> int:
        if not isinstance(other, Size) and other == 1:
            return self
        return self._with(f"({self} * {other})", int(self) * int(other), other)

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> int:
        if not isinstance(other, Size) and other == 1:
            return self
        return self._with(f"({self} // {other})", int(self) // int(other), other)

    def __mod__(self, other: int) -> int:
        if not isinstance(other, Size) and other == 1:
            return 0
        return self._with(f"({self} % {other})", int(self) % int(other), other)

    def _with(self, text: str, number: int, other: int) -> Size:
        more = other.over if isinstance(other, Size) else ()
        return Size(number, text, 0, tuple(dict.fromkeys((*self.over, *more))))
