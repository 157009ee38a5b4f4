"""The roofline as a drawing in characters: both axes logarithmic, four by two dots in a cell.

::

    GFLOP/s
        203 ┤           ⣀⠤⠒⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉
            │       ⣀⠤⠒⠉           ┊
       79.3 ┤   ⣀⠤⠒⠉               ●
            └──────────┴───────────┴───
                      15.5        132     FLOP/byte
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..figures import number

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, by row and column
POINT, DROP = "●", "┊"
MARGIN = 11  # columns left of the axis
SPREAD = 12.0  # how far the axes reach beyond ridge and point


def drawing(roofline: Mapping[str, Any], width: int = 64, height: int = 10) -> list[str]:
    """Lines with the roof, the kernel's point and what is missing between them; nothing where a figure is missing."""
    facts = [roofline.get(name) for name in ("peak_gflops", "bandwidth", "gflops", "intensity")]
    if any(not value for value in facts):
        return []
    peak, bandwidth, gflops, intensity = (float(value or 0) for value in facts)
    return _Drawing(peak, bandwidth * 1e-9, width, height, gflops, intensity).lines()


class _Drawing:
    """Cells by row and column; row 0 is the highest."""

    def __init__(self, peak: float, slope: float, width: int, height: int, gflops: float, intensity: float) -> None:
        self.peak, self.slope, self.gflops, self.intensity = peak, slope, gflops, intensity
        self.width, self.height, self.ridge = width, height, peak / slope
        self.left = math.log(min(self.ridge, intensity) / SPREAD)
        self.right = math.log(max(self.ridge, intensity) * SPREAD)
        self.top = math.log(max(peak, gflops) * 1.3)
        self.bottom = min(self.left + math.log(slope), math.log(gflops / 2))

    def lines(self) -> list[str]:
        rows = self._roof()
        self._mark(rows)
        left = [self._label(row) for row in range(self.height)]
        drawn = [f"{a}{''.join(cells).rstrip()}" for a, cells in zip(left, rows, strict=True)]
        return ["GFLOP/s".rjust(MARGIN - 2), *drawn, *self._axis()]

    def _roof(self) -> list[list[str]]:
        dots = [[0] * self.width for _ in range(self.height)]
        before = 0
        for place in range(2 * self.width):
            x = self.left + (self.right - self.left) * (place + 0.5) / (2 * self.width)
            at = self._row(min(self.peak, self.slope * math.exp(x)), 4)
            for y in range(at, max(at, before - 1) + 1):
                if 0 <= y < 4 * self.height:
                    dots[y // 4][place // 2] |= DOTS[y % 4][place % 2]
            before = at
        return [[chr(0x2800 + cell) if cell else " " for cell in row] for row in dots]

    def _mark(self, rows: list[list[str]]) -> None:
        """The point, and a line from it to the roof."""
        column, row = self._column(self.intensity), self._clamped(self._row(self.gflops, 1))
        roof = self._clamped(self._row(min(self.peak, self.slope * self.intensity), 1))
        for between in range(roof + 1, row):
            rows[between][column] = DROP
        rows[row][column] = POINT

    def _row(self, value: float, parts: int) -> int:
        """The row of a value, in cells or in `parts` of them."""
        share = (self.top - math.log(value)) / (self.top - self.bottom)
        return int(share * self.height * parts)

    def _clamped(self, row: int) -> int:
        return min(max(row, 0), self.height - 1)

    def _column(self, value: float) -> int:
        share = (math.log(value) - self.left) / (self.right - self.left)
        return min(max(int(share * self.width), 0), self.width - 1)

    def _label(self, row: int) -> str:
        named = {self._clamped(self._row(self.peak, 1)): self.peak}
        named.setdefault(self._clamped(self._row(self.gflops, 1)), self.gflops)
        return f"{number(named[row]):>{MARGIN - 2}} ┤" if row in named else " " * (MARGIN - 1) + "│"

    def _axis(self) -> list[str]:
        marks = {self._column(self.ridge): self.ridge}
        marks[self._column(self.intensity)] = self.intensity
        line = "".join("┴" if column in marks else "─" for column in range(self.width))
        below = [" "] * (self.width + MARGIN + 12)
        for column, value in sorted(marks.items()):
            text = number(value)
            start = max(0, MARGIN + column - len(text) // 2)
            if all(cell == " " for cell in below[max(0, start - 1) : start + len(text) + 1]):
                below[start : start + len(text)] = text
        return [" " * (MARGIN - 1) + "└" + line, "".join(below).rstrip() + "  FLOP/byte"]
