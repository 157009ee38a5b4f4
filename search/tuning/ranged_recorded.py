"""A search of ranges on a recorded space, of which each candidate is a schedule for all sizes.

::

    a search as of one shape, by geometric means over the sizes      `tuner`
      -> which of its candidates runs for which sizes                 `variants`, as in `ranged`
      -> one trace

What is recorded of candidates at each size decides; nothing is built or proven.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...figures import latency
from ...ir.size_ranges import ranges_of
from ...space.cases import SPECIALIZE, cases_of
from ..records.record import Record
from ..tasks.device import Device
from ..workers.recorded import CANDIDATE
from .at_sizes import Sizes
from .events import Emit, Note
from .run import versions
from .settings import TuneSettings, resolve
from .sizes import Point
from .tuner import tune as tune_one_shape
from .variants import chosen, ends_of

if TYPE_CHECKING:
    from ..tasks.recording import Recording


def tune(settings: TuneSettings, emit: Emit | None) -> Record:
    """Search a recorded space of ranges.  Raises UsageError for numbers that are said to be likely, and as `tuner`."""
    task, recording = resolve(settings), Device.named(settings.target).recording
    assert recording is not None
    if settings.likely:
        raise UsageError(f"{task.target.name} was measured at sizes of its own; leave --likely out")
    done: dict[str, Any] = {}

    def hold(event: dict[str, Any]) -> None:
        if event["event"] == "done":
            done.update(event)
        elif emit is not None:
            emit(event)

    best = tune_one_shape(settings, hold)
    points = tuple(Point(values, weight) for values, weight in recording.sizes)
    sizes = Sizes(task, {v.name: numbers for v, numbers in ranges_of(task.work.func).items()}, {}, points)
    record = _of_several(settings, sizes, recording, best)
    if record is not None and record.latency_us is not None:
        if emit is not None:
            cases = cases_of(record.trace or [])
            one = latency(best.latency_us)
            emit(
                Note(message=f"{len(cases)} schedules take {latency(record.latency_us)}, and one alone {one}").to_json()
            )
        best, done = record, {**done, "record": record.id, "latency_us": record.latency_us, "low_us": None,
                              "high_us": None}  # fmt: skip
    if emit is not None and best.latency_us is not None:
        gflops = sizes.gflops(best.latency_us)
        emit({**done, "gflops": gflops, "peak_gflops": None, "peak_fraction": None, "roofline_fraction": None})
    return best


def _of_several(settings: TuneSettings, sizes: Sizes, recording: Recording, best: Record) -> Record | None:
    """The record of several candidates, each for a part of the ranges, where that is faster than the best one."""
    from ..records.database import Database

    task, known = sizes.task, {sketch.name: sketch for sketch in recording.sketches}
    with contextlib.closing(Database(settings.db)) as database:
        stored = database.records(task.script, task.target, task.interface)
        single = [r for r in stored if r.ok and r.trace and len(r.trace) == 1 and r.trace[0][0] == CANDIDATE]
        choices = [record.trace[0][1] for record in single if record.trace]
        times = {
            n: dict(zip(sizes.points, known[each["sketch"]].at_sizes(each["choice"]), strict=True))
            for n, each in enumerate(choices)
        }
        leaves = chosen(times, sizes.ranges, sizes.points, dict.fromkeys(times, sizes.ranges))
        if len(leaves) < 2:
            return None
        cases = [
            [{} if leaf is leaves[-1] else ends_of(leaf.box, sizes.ranges), single[leaf.choice].trace]
            for leaf in leaves
        ]
        microseconds = math.exp(sum(leaf.cost for leaf in leaves))
        if best.latency_us is None or microseconds >= best.latency_us:
            return None
        record = Record(
            **task.recorded(), trace=[[SPECIALIZE, {"cases": cases}]], sketch="ranges", seed=settings.seed,
            versions=versions(task), status="infrastructure",
        ).measured([microseconds * 1e-6] * 3, 0.0, "race")  # fmt: skip
        database.put_records([record])
    return record
