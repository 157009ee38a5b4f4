"""What is behind a record of ranges: how fast its kernel is at sizes, which schedule runs there, and those schedules.

Each size has its own work and traffic, so that each has a roof of its own; the kernel is timed at all of them now.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import TemporaryError
from ...ir.size_ranges import Range
from ...space.cases import cases_of
from ..records.record import Record
from ..records.status import error_of
from ..tasks.task import Roof, Task, performance, stored_work
from ..tuning.at_sizes import Sizes, Turns, at_point
from ..tuning.sizes import Point, told
from ..workers.bench import Workbench
from ..workers.programs import candidate
from ..workers.protocol import Build, Failed, MeasureRoof
from .diagnosis import SECONDS, on_own_bench, trace_text
from .replay import device_here

TURN_SECONDS = 0.1  # of calls at each size, a choice


@dataclass(frozen=True)
class Variant:
    """A schedule, and for which `values` of sizes it runs, by name the least and the largest; without any for all."""

    values: Mapping[str, Range]
    schedule: str

    def has(self, point: Point) -> bool:
        """Whether it runs at a size, unless one before it does."""
        return all(point.values[name] in numbers for name, numbers in self.values.items())


@dataclass(frozen=True)
class AtSize:
    """The kernel at one size: `weight` is its share of all calls, `variant` the number of its schedule from 1."""

    point: Point
    task: Task
    latency_us: float
    variant: int

    def performance(self, roof: Roof | None) -> dict[str, Any]:
        """Its speed beside the limits of the device (see `tasks.task.performance`)."""
        return performance(self.task, self.latency_us, roof)


@dataclass(frozen=True)
class RangeDiagnosis:
    """A record of ranges: its schedules, and how fast it is at each size, in the order of the work there."""

    record: Record
    task: Task
    variants: tuple[Variant, ...]
    sizes: tuple[AtSize, ...]
    roof: Roof | None

    @property
    def fraction(self) -> float | None:
        """How near to the roof it is, in the geometric mean over the sizes by their weights."""
        found = [(at.point.weight, at.performance(self.roof)["roofline_fraction"]) for at in self.sizes]
        if not all(share for _, share in found):
            return None
        return math.exp(sum(weight * math.log(share) for weight, share in found))

    def told(self, values: Mapping[str, int | Range]) -> str:
        """Sizes as their user knows them; without any "all others"."""
        return told(values, self.task.work.sizes) or "all others"

    def event(self) -> dict[str, Any]:
        """The JSON event."""
        record = self.record
        return {
            "event": "diagnosis", "record": record.id, **self.task.identity(), "device": record.device_key,
            "latency_us": record.latency_us, "verified": record.verified,
            "schedules": [
                {"sizes": {name: str(numbers) for name, numbers in v.values.items()}, "schedule": v.schedule}
                for v in self.variants
            ],
            "sizes": [
                {"size": dict(at.point.values), "share": at.point.weight, "latency_us": at.latency_us,
                 "schedule": at.variant, **at.performance(self.roof)}
                for at in self.sizes
            ],
        }  # fmt: skip


def diagnose_ranges(record: Record, bench: Workbench | None = None, roof: Roof | None = None) -> RangeDiagnosis:
    """Build a record of ranges again, and time it at the sizes of its search; measure the device unless `roof` has it.

    Raises what `diagnosis.diagnose` does, DeviceMissing on another device than the record's, and the error of a kernel
    that gives a wrong result.
    """
    here = device_here(record)
    task = Task(stored_work(record.workload, record.params, record.script), here, dict(record.interface))
    sizes, variants = Sizes.stored(task, record.versions), variants_of(record)
    seed, found = int.from_bytes(os.urandom(4), "big") >> 1, list[AtSize]()
    with on_own_bench(bench) as place:
        built = place.run(Build(script=task.script, target=here, trace=record.trace, deadline=SECONDS))
        if isinstance(built, Failed):
            raise error_of(f"record {record.id}", "built", built.status, built.message)
        func = candidate(record.script, record.trace)
        for point in sizes.points:
            kernel = at_point(built.kernel, func, point)
            (reply,) = sizes.raced(place.run, [kernel], point, Turns(seed, TURN_SECONDS))
            if isinstance(reply, Failed):
                raise error_of(f"record {record.id}", "measured", reply.status, f"at {point}: {reply.message}")
            number = next(number for number, variant in enumerate(variants, 1) if variant.has(point))
            found.append(AtSize(point, sizes.at(point), statistics.median(reply.samples) * 1e6, number))
        if roof is None:
            limits = place.run(MeasureRoof(target=here, dtype=task.work.peak_dtype, deadline=SECONDS))
            if isinstance(limits, Failed):
                raise TemporaryError(f"the limits of {here.key} could not be measured: {limits.message}")
            roof = limits.roof
    found.sort(key=lambda at: (at.task.work.flops, at.task.bytes_moved))
    return RangeDiagnosis(record, task, variants, tuple(found), roof)


def variants_of(record: Record) -> tuple[Variant, ...]:
    """The schedules of a record of ranges, the first of which that has a size runs there."""
    return tuple(
        Variant({name: Range(low, high) for name, (low, high) in values.items()}, trace_text(record, steps))
        for values, steps in cases_of(record.trace or [])
    )
