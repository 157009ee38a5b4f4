"""Pictures of how buffers lie in memory: two axes of a layout as cells, with what the padding holds.

A layout of millions of elements is shown by its corners: the first values of the axes before the last two, and the last
ones where there is other padding; and of these two the first and last rows and columns.  Colours come from the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from ..ir.expr import Buffer
from ..ir.layout.layout import Layout
from ..ir.passes.relayout import Change, LayoutError, make_change
from ..ir.picture import KINDS, Cell, cell_at

if TYPE_CHECKING:
    from ..backends.artifact import Argument
    from ..ir.stmt import PrimFunc
    from ..search.records.record import Record

MOST_ROWS, MOST_COLUMNS = 6, 32
HEIGHT, LETTER, GAP = 22, 6.6, 26


@dataclass(frozen=True)
class Picture:
    """A buffer in a layout: what it is, its numbers, and the picture as SVG text."""

    name: str
    role: str
    logical: tuple[int, ...]
    physical: tuple[int, ...]
    index_map: str
    pad_value: str
    svg: str

    @property
    def padding(self) -> float:
        """The share of the memory that holds no element."""
        return 1.0 - prod(self.logical) / max(1, prod(self.physical))


def pictures_of(record: Record, func: PrimFunc) -> list[Picture]:
    """Every buffer whose layout the schedule of a record changes, as often as it does.

    Raises ScheduleError for a trace that does not replay.
    """
    from ..space.schedule import Schedule, Trace

    schedule, found = Schedule(func), list[Picture]()
    for instruction in Trace.from_json(record.trace or []):
        before = {name: shape for name, shape, _ in _buffers(schedule.func)}
        schedule.apply(instruction.name, instruction.arguments, instruction.results)
        given = dict(instruction.arguments)
        if instruction.name != "transform_layout":
            continue
        for name, shape, is_argument in _buffers(schedule.func):
            if name in before and before[name] != shape:
                role = "an argument of the kernel" if is_argument else "a buffer inside of the kernel"
                pad = given.get("pad_value")
                layout = Layout.parse(before[name], str(given["index_map"]), "" if pad is None else str(pad), shape)
                picture = _drawn(name, role, layout)
                if picture is not None:
                    found.append(picture)
    return found


def picture_of_argument(argument: Argument, name: str, role: str) -> Picture | None:
    """An argument in the layout that its kernel asks for; None where it lies as the caller has it."""
    return None if argument.layout.is_plain else _drawn(name, role, argument.layout)


def _buffers(func: PrimFunc) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    from ..ir.stmt import Block, walk_stmts

    yield from ((buffer.name, tuple(buffer.shape), True) for buffer in func.buffers)
    for statement in walk_stmts(func.body):
        if isinstance(statement, Block):
            yield from ((buffer.name, tuple(buffer.shape), False) for buffer in statement.allocs)


def _drawn(name: str, role: str, layout: Layout) -> Picture | None:
    """The drawing of a layout; None where it cannot be drawn, as where its pad value has another dtype."""
    buffer = Buffer(name, layout.logical_shape, "float32")
    try:
        change = make_change(buffer, layout.index_map, layout.pad_value, layout.physical_shape)
    except LayoutError:
        return None
    logical, physical = layout.logical_shape, layout.physical_shape
    return Picture(name, role, logical, physical, layout.index_map.text, layout.pad_text, _svg(change))


# --- the drawing --------------------------------------------------------------------------------


def _svg(change: Change) -> str:
    """Panels one below the other, each two axes of the physical memory."""
    shape = change.new.shape if len(change.new.shape) > 1 else (1, *change.new.shape)
    rows, columns = _shown(shape[-2], MOST_ROWS), _shown(shape[-1], MOST_COLUMNS)
    varying = _varying(change, rows, columns)
    panels = [(leading, _panel(change, leading, rows, columns, varying)) for leading in _leading(shape)]
    kinds = [[[cell and cell.kind for cell in line] for line in cells] for _, cells in panels]
    if len(panels) > 1 and kinds[0] == kinds[1]:
        panels.pop()  # it would show nothing new
    longest = max(len(cell.text) for _, cells in panels for line in cells for cell in line if cell is not None)
    width = max(24.0, longest * LETTER + 8)
    axes = [variable.name for variable in change.inverse.variables]
    parts, titles, y = list[str](), list[str](), 4.0
    for leading, cells in panels:
        fixed = "".join(f"{axis} = {value}, " for axis, value in zip(axes, leading, strict=False))
        title = f"{fixed}{axes[-2]} ↓ {axes[-1]} →" if len(axes) > 1 else f"{axes[-1]} →"
        titles.append(title)
        drawn, y = _grid(title, cells, rows, columns, width, y)
        parts += drawn
    total = max(46 + len(columns) * width + 8, 8 + max(len(title) for title in titles) * LETTER)
    size = f'width="{total:g}" height="{y:g}" viewBox="0 0 {total:g} {y:g}"'
    return f'<svg class="layout" {size} role="img"><title>{escape(change.new.name)}</title>{"".join(parts)}</svg>'


def _grid(
    title: str, cells: Sequence[Sequence[Cell | None]], rows: Sequence[int | None], columns: Sequence[int | None],
    width: float, y: float,
) -> tuple[list[str], float]:  # fmt: skip
    """A panel at height `y`, and where it ends."""
    parts = []
    if title:
        parts.append(_text(4, y + 12, title, "start", "head"))
        y += 18
    for number, column in enumerate(columns):
        label = "…" if column is None else str(column)
        parts.append(_text(46 + (number + 0.5) * width, y + 11, label, "middle", "tick"))
    y += 15
    for line, row in zip(cells, rows, strict=True):
        parts.append(_text(40, y + 15, "…" if row is None else str(row), "end", "tick"))
        for number, cell in enumerate(line):
            x = 46 + number * width
            if cell is None:
                parts.append(_text(x + width / 2, y + 15, "…", "middle", "tick"))
                continue
            parts.append(f'<rect class="{cell.kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}"/>')
            parts.append(_text(x + width / 2, y + 15, cell.text, "middle", cell.kind))
        y += HEIGHT
    return parts, y + 12


def _panel(
    change: Change, leading: Sequence[int], rows: Sequence[int | None], columns: Sequence[int | None],
    varying: Sequence[int],
) -> list[list[Cell | None]]:  # fmt: skip
    """The cells of one panel; None where rows or columns are left out."""
    flat = len(change.new.shape) < 2

    def cell(row: int | None, column: int | None) -> Cell | None:
        if row is None or column is None:
            return None
        found = cell_at(change, (column,) if flat else (*leading, row, column))
        if found.kind != "data":
            return found
        index = found.text.split(",")
        return Cell("data", ",".join(index[k] for k in varying))

    return [[cell(row, column) for column in columns] for row in rows]


def _varying(change: Change, rows: Sequence[int | None], columns: Sequence[int | None]) -> list[int]:
    """The logical axes whose index changes from cell to cell: those that a label has to name."""
    rank, flat = len(change.old.shape), len(change.new.shape) < 2
    leading = (0,) * max(0, len(change.new.shape) - 2)
    points = [(c,) if flat else (*leading, r, c) for r in rows for c in columns if r is not None and c is not None]
    found = [cell_at(change, point).text.split(",") for point in points if cell_at(change, point).kind == "data"]
    return [k for k in range(rank) if len({index[k] for index in found}) > 1] or [rank - 1]


def _leading(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """The first and the last values of the axes before the last two."""
    first, last = tuple(0 for _ in shape[:-2]), tuple(extent - 1 for extent in shape[:-2])
    return [first] if first == last else [first, last]


def _shown(extent: int, most: int) -> list[int | None]:
    """All of an axis, or its first and last values with None between."""
    if extent <= most:
        return list(range(extent))
    tail = 2
    return [*range(most - tail - 1), None, *range(extent - tail, extent)]


def _text(x: float, y: float, words: str, anchor: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


LEGEND = {kind: words for kind, (words, _, _) in KINDS.items()}
