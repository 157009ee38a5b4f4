"""Pictures of layouts: which element of a buffer lives where, and what its padding holds, as SVG text.

Each cell is a physical element.  It shows the logical index of the element that lies there;
padding is coloured by what it holds::

    None         hatched            may not be touched
    undef        yellow, ``?``      anything
    a number     blue               that number
    an element   green, ``=13``     a copy of that logical element

The last two dimensions make a grid of rows and columns; each value of the dimensions
before them has a grid of its own, the last of these side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any
from xml.sax.saxutils import escape

from .arith.simplify import simplify
from .expr import TRUE, Buffer, Const, Expr, Load, Undef, const
from .passes.relayout import Change, make_change

CELL_HEIGHT = 24
LETTER = 7.4
MARGIN = 12
GAP = 22
LARGEST = 4096

Point = tuple[int, ...]
# What a cell holds, the words for it, its fill and the colour of its text.
KINDS = {
    "data": ("a logical element, by its index", "#ffffff", "#1b1f24"),
    "none": ("padding that may not be touched (None)", "url(#hatch)", "#5e5e5e"),
    "undef": ("padding that may hold anything (undef)", "#ffe9a8", "#7a5b00"),
    "number": ("padding that holds this number", "#cfe3ff", "#0b4a8f"),
    "copy": ("padding that repeats this element", "#cdeccf", "#1c6b2a"),
    "other": ("padding that holds this expression", "#e6d8f5", "#5b2c8a"),
}


@dataclass(frozen=True)
class Cell:
    """One physical element: a key of `KINDS`, and its text."""

    kind: str
    text: str


def layout_picture(
    shape: Sequence[int],
    index_map: Any,
    pad_value: Any = None,
    *,
    physical_shape: Sequence[int] | None = None,
    name: str = "B",
    title: str = "",
) -> str:
    """The SVG picture of a buffer of `shape` in a layout; arguments as for `transform_layout`.

    Raises LayoutError for what is no layout, and ValueError for more than `LARGEST` elements.
    """
    change = make_change(Buffer(name, tuple(shape)), index_map, pad_value, physical_shape)
    if change.new.size > LARGEST:
        raise ValueError(
            f"a picture shows at most {LARGEST} elements, but {name} has {change.new.size}; draw a smaller buffer "
            f"in the same layout"
        )
    heading = title or f"{name}[{', '.join(map(str, shape))}] by {change.index_map.text}"
    return _Drawing(change, cells(change)).svg(heading)


def cells(change: Change) -> dict[Point, Cell]:
    """Every physical element of a layout."""
    found: dict[Point, Cell] = {}
    for point in product(*map(range, change.old.shape)):
        physical = tuple(int(k) for k in change.index_map.map_point(point))
        found[physical] = Cell("data", ",".join(map(str, point)))
    for point in product(*map(range, change.new.shape)):
        if point not in found:
            found[point] = _padding(change, point, found)
    return found


def cell_at(change: Change, point: Point) -> Cell:
    """The physical element at `point`, without looking at any other: for layouts too large to be listed."""
    where = [const(k) for k in point]
    if simplify(change.padding(where)) == TRUE:
        return _padding(change, point, {})
    return Cell("data", ",".join(map(str, change.inverse.map_point(point))))


def _padding(change: Change, point: Point, data: dict[Point, Cell]) -> Cell:
    where = [const(k) for k in point]
    value = next(value for cond, value in change.pad_value.at(where) if simplify(cond) == TRUE)
    if value is None:
        return Cell("none", "×")
    value = simplify(value)
    if isinstance(value, Undef):
        return Cell("undef", "?")
    if isinstance(value, Const):
        return Cell("number", str(value.value))
    element = _element(value)
    if element is not None:
        return Cell("copy", f"={(data.get(element) or cell_at(change, element)).text}")
    return Cell("other", "f")


def _element(value: Expr) -> Point | None:
    """The physical element that a value is a load of."""
    if not isinstance(value, Load):
        return None
    indices = [simplify(i) for i in value.indices]
    known = all(isinstance(i, Const) for i in indices)
    return tuple(int(i.value) for i in indices if isinstance(i, Const)) if known else None


class _Drawing:
    """Cells at their places."""

    def __init__(self, change: Change, found: dict[Point, Cell]) -> None:
        self.cells = found
        self.shape = change.new.shape
        self.axes = [v.name for v in change.inverse.variables]
        widest = max(len(c.text) for c in found.values())
        self.width = max(30.0, widest * LETTER + 12)
        self.rows, self.columns = ((1, *self.shape)[-2:]) if len(self.shape) < 2 else self.shape[-2:]
        self.side = self.axes[-2] if len(self.shape) > 1 else ""
        self.left = MARGIN + (max(len(self.side) + 3, len(self.axes[-1])) * LETTER + 8 if self.side else 4)

    def svg(self, title: str) -> str:
        """The whole picture."""
        panels = list(product(*map(range, self.shape[:-2])))
        across = self.shape[-3] if len(self.shape) > 2 else 1
        step_x = self.left - MARGIN + self.columns * self.width + GAP
        step_y = self.rows * CELL_HEIGHT + GAP + 40
        body: list[str] = []
        for number, leading in enumerate(panels):
            x, y = number % across * step_x + self.left, number // across * step_y + 54 + (18 if leading else 0)
            body += self._panel(leading, x, y)
        down = -(-len(panels) // across) * step_y + 30
        legend, legend_width = self._legend(down)
        width = max(MARGIN + across * step_x, legend_width, len(title) * 7.7 + 2 * MARGIN)
        height = down + 20 * len(self._kinds()) + MARGIN
        return "\n".join([*_head(width, height, title), *body, *legend, "</svg>", ""])

    def _panel(self, leading: Point, x: float, y: float) -> list[str]:
        """One grid, with its axes named and numbered."""
        lines = []
        if leading:
            label = ", ".join(f"{a} = {k}" for a, k in zip(self.axes, leading, strict=False))
            lines.append(_text(x, y - 22, label, "start", "#1b1f24", "bold"))
        if len(self.shape) > 1:
            lines.append(_text(x - 6, y - 5, self.axes[-1], "end", "#57606a"))
        for column in range(self.columns):
            lines.append(_text(x + (column + 0.5) * self.width, y - 5, str(column), "middle", "#57606a"))
        for row in range(self.rows):
            top = y + row * CELL_HEIGHT
            if self.side:
                label = f"{self.side} {row}" if row == 0 else str(row)
                lines.append(_text(x - 6, top + 16, label, "end", "#57606a"))
            for column in range(self.columns):
                point = (*leading, row, column) if len(self.shape) > 1 else (column,)
                lines += self._cell(self.cells[point], x + column * self.width, top)
        return lines

    def _cell(self, cell: Cell, x: float, y: float) -> list[str]:
        _, fill, ink = KINDS[cell.kind]
        return [
            f'<rect x="{x:g}" y="{y:g}" width="{self.width:g}" height="{CELL_HEIGHT}" fill="{fill}" stroke="#57606a"/>',
            _text(x + self.width / 2, y + 16, cell.text, "middle", ink),
        ]

    def _kinds(self) -> list[str]:
        used = {c.kind for c in self.cells.values()}
        return [k for k in KINDS if k in used]

    def _legend(self, y: float) -> tuple[list[str], float]:
        lines = []
        for line, kind in enumerate(self._kinds()):
            words, fill, _ = KINDS[kind]
            top = y + 20 * line
            lines.append(f'<rect x="{MARGIN}" y="{top:g}" width="20" height="14" fill="{fill}" stroke="#57606a"/>')
            lines.append(_text(MARGIN + 28, top + 11, words, "start", "#1b1f24"))
        longest = max(len(KINDS[k][0]) for k in self._kinds())
        return lines, 2 * MARGIN + 28 + longest * LETTER


def _head(width: float, height: float, title: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="monospace" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect width="6" height="6" fill="#eeeeee"/><rect width="2" height="6" fill="#d0d0d0"/></pattern></defs>',
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
        _text(MARGIN, 22, title, "start", "#1b1f24", "bold"),
    ]


def _text(x: float, y: float, words: str, anchor: str, ink: str, weight: str = "normal") -> str:
    style = f' font-weight="{weight}"' if weight != "normal" else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{ink}"{style}>{escape(words)}</text>'
