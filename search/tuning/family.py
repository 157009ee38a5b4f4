"""What a database knows of a program at other sizes: of one shape for a search of ranges, of ranges for one of a shape.

::

    a search of ranges      the best records of shapes inside of them are among the schedules that are proven for all
    a search of one shape   the schedule that runs there by a record of ranges is measured as those of other devices are

What a search of one shape learns from other shapes is in `transfer`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import StorageError, StridesmithError, TemporaryError
from ...ir.ranges import WrongSizes, fixed, values_of
from ...ir.script.parser import parse
from ...ir.stmt import PrimFunc
from ...space.cases import steps_at
from ..candidates.relatives import form
from ..records.record import Record
from .at_sizes import Sizes
from .sizes import Point
from .transfer import NEWEST

if TYPE_CHECKING:
    from ...ir.expr import Var
    from ..records.database import Database
    from ..tasks.task import Task

KNOWN, LOOKED_AT = 3, 64
"""Shapes whose records a search of ranges takes, from small to large, and how many are looked at for them."""
RANGES = 2
"""Records of ranges that a search of one shape takes."""


def known_inside(database: Database, sizes: Sizes) -> list[tuple[Point, list[Record]]]:
    """The best records of shapes inside of the ranges, a few from small to large; none where a database is silent."""
    task, anchors = sizes.task, [dict(point.values) for point in sizes.points]
    if not anchors:
        return []
    forms = {form(task.work.at(values).script) for values in anchors}
    found: list[tuple[Point, Record]] = []
    with contextlib.suppress(TemporaryError, StorageError):
        named = database.scripts(task.target, NEWEST, [_head(task)])
        same = [script for script in named if form(script) in forms]
        for script in same[:LOOKED_AT]:
            values = _sizes_of(task.work.func, _parsed(script))
            if values is None or task.work.at(own := {v.name: n for v, n in values.items()}).script != script:
                continue
            if (record := database.best(script, task.target, task.interface)) is not None and record.trace:
                found.append((Point(own, 0.0), record))
    found.sort(key=lambda item: sizes.work_at(item[0]))
    count = min(KNOWN, len(found))
    chosen = [found[(2 * k + 1) * len(found) // (2 * count)] for k in range(count)]
    return [(point, [record]) for point, record in chosen]


def of_ranges(database: Database, task: Task) -> list[tuple[Record, list[Any]]]:
    """Records of ranges in which a task's shape lies, with the steps by which they schedule that shape."""
    found: list[tuple[Record, list[Any]]] = []
    for script in database.scripts(task.target, LOOKED_AT, [_head(task), "T.match_buffer("]):
        if len(found) == RANGES:
            break
        func = _parsed(script)
        values = _sizes_of(func, task.work.func) if func is not None and func.stated else None
        if func is None or values is None or fixed(func, values).script() != task.script:
            continue
        record = database.best(script, task.target, task.interface)
        if record is not None and record.trace:
            found += [(record, steps) for steps in _taken(record, task.work.func, values)]
    return found


def _head(task: Task) -> str:
    """What the text of a task's program has in common with those of other sizes."""
    return f"def {task.work.func.name}("


def _parsed(script: str) -> PrimFunc | None:
    with contextlib.suppress(StridesmithError, ValueError):
        func = parse(script)
        return func if isinstance(func, PrimFunc) else None
    return None


def _sizes_of(func: PrimFunc, one: PrimFunc | None) -> dict[Var, int] | None:
    """The values of a program's sizes with which it takes the arrays of one shape; None where it does not."""
    if one is None or not all(buffer.is_fixed for buffer in one.buffers):
        return None
    try:
        return values_of(func, {buffer.name: buffer.shape for buffer in one.buffers}, {})
    except WrongSizes:
        return None


def _taken(record: Record, one: PrimFunc, values: dict[Var, int]) -> Iterator[list[Any]]:
    """The steps of a record of ranges that run for some values, where the program of this shape takes them."""
    from ...space.errors import ScheduleError
    from ...space.schedule import Trace

    trace = steps_at(record.trace or [], {v.name: n for v, n in values.items()})
    with contextlib.suppress(ScheduleError, StridesmithError):
        Trace.from_json(trace).replay(one)
        yield trace
