"""Diagnosis: what is behind a record, from its schedule down to the instructions of its inner loop.

The record's program is built again in a worker process, which a stranger's record may bring
down without harm.  Latency comes from the record, the device's limits are measured, and the
roofline puts the one below the other::

    attainable = min(peak, intensity * bandwidth)        intensity = useful FLOPs / compulsory bytes
    roofline_fraction = gflops / attainable

with the bandwidth of the cache that holds all arguments from call to call, else of memory.

Useful FLOPs are those of the untransformed program, compulsory bytes those of the arguments in
their logical shapes: the least that any kernel for it must do and touch.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import BadRecord, DeviceMissing, TemporaryError
from ..records.record import Record
from ..records.status import error_of
from ..tasks.device import Device
from ..tasks.task import Roof, Task, performance, stored_work
from ..workers.bench import Workbench
from ..workers.protocol import Diagnose, Failed, MeasureRoof

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...ir.target import Target

SECONDS = 60.0
"""For replaying, lowering and compiling one record."""


@dataclass(frozen=True)
class Diagnosis:
    """A record, facts about its code, and the limits of its device.

    `facts` are its scheduled ``program`` and what `backends.diagnosis.explain` gives.
    `roof` is None where the device is not this machine's; `note` says so.
    """

    record: Record
    task: Task
    schedule: str
    facts: Mapping[str, Any]
    roof: Roof | None
    note: str = ""

    @property
    def useful_flops(self) -> int:
        return self.task.work.flops

    @property
    def computed_flops(self) -> int | None:
        """Operations that a call makes, those on padding included."""
        value = self.facts.get("computed_flops")
        return None if value is None else int(value)

    @property
    def overcompute(self) -> float | None:
        """Computed operations for each useful one; 1 where nothing is computed twice or on padding."""
        if not self.computed_flops or not self.useful_flops:
            return None
        return self.computed_flops / self.useful_flops

    @property
    def intensity(self) -> float:
        """Useful FLOPs for each compulsory byte."""
        return self.useful_flops / self.task.bytes_moved

    @property
    def imbalance(self) -> dict[str, float]:
        """The share of the threads' time that is idle in each parallel loop, where all of its iterations take alike.

        Loops whose number of iterations varies are left out, and so is the device that has no threads of ours.
        """
        if self.record.device.kind != "cpu":
            return {}
        threads, idle = self.record.device.threads, {}
        for name, count, most in self.facts["parallel"]:
            if count:
                idle[name] = 1 - count / (math.ceil(count / min(most or threads, threads)) * threads)
        return idle

    @cached_property
    def roofline(self) -> dict[str, Any]:
        """Limits in GFLOP/s and bytes per second, and where the record stands below them; None for what is unknown.

        ``bandwidth`` is that of a cache which holds all arguments where ``cached`` is true, else of memory.
        ``bound`` is "compute" or "memory", ``attainable_gflops`` what the bound allows, ``ridge``
        the intensity at which the one gives way to the other.
        """
        latency = self.record.latency_us
        place = performance(self.task, latency, self.roof) if latency else {}
        known: dict[str, Any] = {
            "intensity": self.intensity, "gflops": place.get("gflops"), "peak_gflops": None, "bandwidth": None,
            "ridge": None, "bound": None, "attainable_gflops": None, "peak_fraction": place.get("peak_fraction"),
            "roofline_fraction": place.get("roofline_fraction"), "cached": None,
        }  # fmt: skip
        if self.roof is None or self.roof.bandwidth <= 0:
            return known
        peak, bandwidth = self.roof.peak_gflops, self.roof.rate(self.task.bytes_moved)
        memory = self.intensity * bandwidth * 1e-9
        return known | {
            "peak_gflops": peak, "bandwidth": bandwidth, "ridge": peak * 1e9 / bandwidth,
            "bound": "compute" if peak <= memory else "memory", "attainable_gflops": min(peak, memory),
            "cached": self.roof.place(self.task.bytes_moved) is not None,
        }  # fmt: skip

    def event(self) -> dict[str, Any]:
        """The JSON event: identity, texts, facts and roofline."""
        record = self.record
        return {
            "event": "diagnosis",
            "record": record.id,
            **self.task.identity(),
            "device": record.device_key,
            "latency_us": record.latency_us,
            "verified": record.verified,
            "schedule": self.schedule,
            **{name: value for name, value in self.facts.items() if name != "computed_flops"},
            "useful_flops": self.useful_flops,
            "computed_flops": self.computed_flops,
            "overcompute": self.overcompute,
            "imbalance": self.imbalance,
            "compulsory_bytes": self.task.bytes_moved,
            "roofline": self.roofline,
            "note": self.note,
        }


def diagnose(record: Record, bench: Workbench | None = None, roof: Roof | None = None) -> Diagnosis:
    """Build `record` again for reading, and measure the limits of its device if that is here, unless `roof` has them.

    One of ranges is diagnosed at sizes (see `range_diagnosis`).  Raises BadRecord for one that does not build,
    DeviceMissing for one whose code cannot be made on this machine, and TemporaryError where it took too long.
    """
    here = device_for(record)
    task = Task(stored_work(record.workload, record.params, record.script), record.device, dict(record.interface))
    assert not task.work.func.stated
    with on_own_bench(bench) as place:
        found = _built(place, record, compiled=True)
        same = here.key == record.device_key
        if roof is None and same:
            reply = place.run(MeasureRoof(target=record.device, dtype=task.work.peak_dtype, deadline=SECONDS))
            if isinstance(reply, Failed):
                raise TemporaryError(f"the limits of {record.device.key} could not be measured: {reply.message}")
            roof = reply.roof
    known = same or roof is not None
    note = "" if known else f"measured on {record.device_key}; the limits of that device are not known on {here.key}"
    return Diagnosis(record, task, schedule_text(record), found, roof, note)


def texts(record: Record, compiled: bool = False, bench: Workbench | None = None) -> Mapping[str, Any]:
    """``program``, ``lowered`` and ``source`` of a record, which need no device; `compiled` adds what does."""
    if compiled:
        device_for(record)
    with on_own_bench(bench) as place:
        return _built(place, record, compiled)


def schedule_text(record: Record) -> str:
    """The trace as Python text.  Raises BadRecord where it is none."""
    return trace_text(record, record.trace)


def trace_text(record: Record, trace: list[Any] | None) -> str:
    """A trace of a record, or a part of it, as Python text.  Raises BadRecord where it is none."""
    from ...space.errors import ScheduleError
    from ...space.schedule import Trace

    if not trace:
        return "# the untuned program: no instruction"
    try:
        return Trace.from_json(trace).script()
    except ScheduleError as error:
        raise BadRecord(f"record {record.id} is refused: {error}") from None


def device_for(record: Record) -> Target:
    """This machine's device of the record's kind.

    Raises DeviceMissing where there is none that runs the record's instructions: a CPU of
    another instruction set, or an OpenCL device that is not here.
    """
    then = record.device
    elsewhere = f"record {record.id} is for {then.key}"
    advice = "`--trace`, `--program` and `--source` show what needs no device"
    try:
        here = Device.of(then)
    except DeviceMissing as error:
        raise DeviceMissing(f"{elsewhere}, which is not here: {error}; {advice}") from None
    if then.kind == "cpu" and here.isa != then.isa:
        raise DeviceMissing(f"{elsewhere}, but this machine's CPU has {here.isa}, not {then.isa}; {advice}")
    return here


@contextlib.contextmanager
def on_own_bench(given: Workbench | None) -> Iterator[Workbench]:
    """The given workbench, else a new one that is closed at the end."""
    from ..workers.bench import Bench

    if given is not None:
        yield given
        return
    with Bench() as own:
        yield own


def _built(bench: Workbench, record: Record, compiled: bool) -> dict[str, Any]:
    job = Diagnose(script=record.script, target=record.device, trace=record.trace, compiled=compiled, deadline=SECONDS)
    reply = bench.run(job)
    if isinstance(reply, Failed):
        status, message = reply.status, reply.message
        if reply.kind == "crash":  # nothing but the compiler has run
            status, message = "build_error", f"the compiler ended with {status}: {message}"
        raise error_of(f"record {record.id}", "built", status, message)
    return {"program": reply.program, **reply.facts}
