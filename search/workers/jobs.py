"""What a worker process does with each job of `protocol`.

A failure that leaves the process alive is a value: ``refused`` (no such program), ``build_error``, ``wrong``, or
``infrastructure``.  What does not is told by `process`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...errors import DeviceMissing
from ...ir import dtypes
from ..records.status import DEVICE_LOST
from ..tasks.task import CacheRoof, Roof, TypePeak
from . import selftest
from .protocol import (
    Alive,
    Build,
    Built,
    CheckDevice,
    Compiled,
    Derive,
    Diagnose,
    Done,
    Explained,
    Failed,
    Job,
    Measure,
    Measured,
    MeasureRoof,
    Ping,
    Prepare,
    Question,
    Race,
    Raced,
    Reply,
    Roofed,
    SelfTest,
    Verified,
    Verify,
    to_text,
)

if TYPE_CHECKING:
    from ...backends.artifact import Artifact
    from ...backends.executable import Bound
    from ...backends.lower import Lowered
    from ...backends.samples import Sample
    from ...backends.timing import Control
    from ...ir.stmt import PrimFunc
    from ...ir.target import Target
    from .protocol import Trace

Tick = Callable[[], None]
R = TypeVar("R", bound=Reply)

FAKE_LATENCY = 1e-9  # of the fault `fake_latency`: faster than any kernel
SMALL = """
@T.prim_func
def check(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
    for i in range(16):
        y[i] = x[i]
"""
INSTANCES = 3  # of a control, of which the fastest is kept
CONTROL_BYTES = 1 << 28  # of a control's buffers, a choice


def run(job: Job[R], tick: Tick = lambda: None) -> R | Failed:
    """Do `job`; every failure that leaves the process alive is a value.

    ``tick()`` is called after each call of a kernel, as a sign that the job goes on.
    """
    do = cast("Callable[[Job[R], Tick], R | Failed]", HANDLERS[type(job)])
    try:
        return do(job, tick)
    except DeviceMissing as error:
        return Failed(status=DEVICE_LOST, message=_text(error))


def ping(job: Ping, tick: Tick) -> Alive:
    return Alive(pid=os.getpid())


def derive(job: Derive, tick: Tick) -> Done | Failed:
    from ...backends.kernel import open_device
    from ...backends.lower import lower  # noqa: F401
    from .programs import derived

    open_device(job.target)
    try:
        derived(job.script, job.target, job.interface)
    except MemoryError:
        raise
    except Exception as error:
        return Failed(status="infrastructure", message=f"no design space: {type(error).__name__}: {_text(error)}")
    return Done()


def build(job: Build, tick: Tick) -> Built | Failed:
    from ...ir.passes.in_place import in_place
    from .programs import candidate, drawn, estimated, program

    notice = ""
    known: dict[PrimFunc, Lowered] = {}

    def compiled(func: PrimFunc, lowered: Lowered, trace: Trace | None) -> Built:
        if job.fault:
            from ...backends.faults import mutate

            lowered = mutate(lowered, job.fault)
        return replace(built(func, lowered, job.target, trace), notice=notice)

    def scheduled() -> tuple[PrimFunc, Trace | None]:
        nonlocal notice
        if job.estimated is not None and program(job.script).stated:
            from ...backends.lower import lower
            from ..candidates.all_sizes import estimated_steps

            func, on = program(job.script), job.target

            def accept(made: PrimFunc) -> None:
                known[made] = lower(made, on)

            found = estimated_steps(func, on, job.estimated, accept)
            notice = found.notice
            return candidate(job.script, found.steps), found.steps
        choice = job.choice
        if job.estimated is not None:
            choice = estimated(job.script, job.target, job.estimated, job.like)
        if choice is None:
            notice = "" if job.estimated is None else "its design space has no candidate"
            func = _replayed(job)
            return func if job.over is None else in_place(func, *job.over), None
        schedule = drawn(job.script, job.target, choice)
        return schedule.func, schedule.trace.to_json()

    return _with_lowered(job.target, scheduled, compiled, known)


def built(func: PrimFunc, lowered: Lowered, target: Target, trace: Trace | None = None) -> Built:
    """The reply of a build: the code of a lowered program, its digest, and the layouts of the arguments of `func`."""
    from ...backends.artifact import OPEN
    from ...backends.data import arguments_of
    from ...backends.kernel import compile_lowered

    artifact = compile_lowered(lowered, target)
    layouts = tuple(argument for argument in arguments_of(func) if OPEN not in argument.logical_shape)
    return Built(kernel=Compiled(artifact, layouts), code_hash=_hash_of(artifact), trace=trace)


def diagnose(job: Diagnose, tick: Tick) -> Explained | Failed:
    from ...backends.diagnosis import explain

    def explained(func: PrimFunc, lowered: Lowered, trace: Trace | None) -> Explained:
        return Explained(program=func.script(), facts=explain(lowered, job.target, job.compiled))

    return _with_lowered(job.target, lambda: (_replayed(job), None), explained)


def _replayed(job: Build | Diagnose) -> PrimFunc:
    from .programs import candidate

    return candidate(job.script, job.trace)


def _with_lowered(
    target: Target,
    scheduled: Callable[[], tuple[PrimFunc, Trace | None]],
    use: Callable[[PrimFunc, Lowered, Trace | None], R],
    known: Mapping[PrimFunc, Lowered] = MappingProxyType({}),
) -> R | Failed:
    """What `use` makes of the candidate that `scheduled` gives (with its trace where it was drawn), or why not.

    Of programs that are `known` it is known how they are lowered.
    """
    from ...backends.lower import lower
    from .programs import REFUSALS

    trace: Trace | None = None
    try:
        func, trace = scheduled()
        lowered = known[func] if func in known else lower(func, target)
    except REFUSALS as error:
        return Failed(status="refused", message=_text(error), trace=trace)
    except LookupError as error:
        return Failed(status="infrastructure", message=_text(error))
    except MemoryError:
        raise
    except Exception as error:
        return Failed(status="build_error", message=f"{type(error).__name__}: {_text(error)}", trace=trace)
    try:
        return use(func, lowered, trace)
    except (MemoryError, DeviceMissing):
        raise
    except Exception as error:
        return Failed(status="build_error", message=f"{type(error).__name__}: {_text(error)}", trace=trace)


def prepare(job: Prepare, tick: Tick) -> Done | Failed:
    from ...backends.kernel import open_device

    if job.target is not None:
        open_device(job.target)
    try:
        _samples(job)
    except MemoryError:
        raise
    except Exception as error:
        return Failed(status="no_reference", message=f"no reference result: {type(error).__name__}: {_text(error)}")
    return Done()


def verify(job: Verify, tick: Tick) -> Verified | Failed:
    found = _verified(job.kernel, job, tick)
    return found if isinstance(found, Failed) else Verified(max_abs_error=found.max_abs_error)


def measure(job: Measure, tick: Tick) -> Measured | Failed:
    from ...backends.timing import in_turns, too_slow
    from ...backends.timing import measure as time_samples

    best = None if job.best_us is None else job.best_us * 1e-6
    control = _control(job, tick)
    found = _verified(job.kernel, job, tick, lambda kernel, probe: too_slow(kernel, probe, best, control))
    if isinstance(found, Failed):
        return found
    seconds = job.repeat_ms / 1e3
    if not found.complete:
        samples = [found.seconds / (control.slowdown() if control else 1.0)]
    elif control is not None:
        samples = in_turns(found.kernel, found.seconds, control, seconds, best or control.known)
    else:
        samples = time_samples(found.kernel, found.seconds, seconds, best)
    if job.fault == "fake_latency":
        samples = [FAKE_LATENCY] * len(samples)
    return Measured(samples=tuple(samples), max_abs_error=found.max_abs_error)


def race(job: Race, tick: Tick) -> Raced:
    from ...backends import host_load
    from ...backends.peak import measure_bandwidth, measure_peak
    from ...backends.timing import interleave
    from ...ir.target import Target

    _CONTROLS.clear()  # whose memory the entries may need
    checked = [_verified(kernel, job, tick) for kernel in job.kernels]
    racers = [entry for entry in checked if not isinstance(entry, Failed)]
    target = Target.from_json(job.kernels[0].artifact["target"])
    before = measure_peak(target, _peak_dtype(job.dtype)) if job.roof else 0.0
    tick()
    since = host_load.watch()
    times = iter(interleave([r.kernel for r in racers], [r.seconds for r in racers], job.rounds, job.seconds))
    load = since() if target.execution.runs_on_the_host else None
    busy = None if load is None else load.busy
    results = tuple(
        entry if isinstance(entry, Failed) else Measured(samples=tuple(next(times)), max_abs_error=entry.max_abs_error)
        for entry in checked
    )
    if not job.roof:
        return Raced(results=results, roof=None, busy=busy)
    peak = max(before, measure_peak(target, _peak_dtype(job.dtype)))
    return Raced(results=results, roof=Roof(peak, measure_bandwidth(target), _caches(target)), busy=busy)


def measure_roof(job: MeasureRoof, tick: Tick) -> Roofed:
    from ...backends.peak import measure_bandwidth, measure_peak

    dtype = _peak_dtype(job.dtype)
    before = measure_peak(job.target, dtype)
    tick()
    bandwidth, caches = measure_bandwidth(job.target), _caches(job.target)
    tick()
    known = {dtype: max(before, measure_peak(job.target, dtype))}
    for other in map(_peak_dtype, job.also):
        tick()
        known[other] = known.get(other) or measure_peak(job.target, other)
    peaks = tuple(TypePeak(name, known[_peak_dtype(name)]) for name in job.also)
    return Roofed(roof=Roof(known[dtype], bandwidth, caches, peaks))


def _caches(target: Target) -> tuple[CacheRoof, ...]:
    from ...backends.peak import measure_caches

    return tuple(CacheRoof(nbytes, rate) for nbytes, rate in measure_caches(target))


def check_device(job: CheckDevice, tick: Tick) -> Done:
    from ...backends.kernel import compile_lowered, load_artifact
    from ...backends.lower import lower
    from .programs import candidate

    lowered = lower(candidate(SMALL, None), job.target)
    load_artifact(compile_lowered(lowered, job.target)).bind().run()
    return Done()


def _peak_dtype(dtype: str) -> str:
    """The type whose multiply-adds make the peak for a program's dtype: small floats are summed in float32."""
    if dtype in ("float64", "bfloat16", "int8", "uint8"):
        return dtype
    if not dtypes.is_int(dtype):
        return "float32"
    return "int64" if dtypes.bits(dtype) == 64 else "int32"


class _Ticking:
    """A bound kernel that is called when its threads have cores, and tells after each call that it came back."""

    def __init__(self, bound: Bound, settle: Tick, tick: Tick) -> None:
        self.names, self.write, self.read = bound.names, bound.write, bound.read
        self.poison_guards, self.guards_intact = bound.poison_guards, bound.guards_intact
        self._time, self._settle, self._tick = bound.time, settle, tick

    def time(self, calls: int) -> float:
        self._settle()
        seconds = self._time(calls)
        self._tick()
        return seconds


@dataclass
class _Right:
    """A kernel that gave the right results, the seconds of a call, and the largest error where it is finite.

    `complete` is false where it is too slow for more than the first sample.
    """

    kernel: _Ticking
    seconds: float
    complete: bool
    max_abs_error: float | None


Slow = Callable[[_Ticking, float], float | None]
"""Given a kernel and the seconds of a first call: the seconds of a call if it is too slow to be of interest."""


def _verified(
    compiled: Compiled, job: Question, tick: Tick, slow: Slow = lambda kernel, probe: None
) -> _Right | Failed:
    """A kernel, verified on the samples of `job`; else why not.  One that is `slow` has the first sample alone."""
    from ...backends.cores import settler
    from ...backends.kernel import load_artifact
    from ...backends.verification import GUARD_BYTES, verify
    from ...errors import WrongResult
    from ...ir.target import Target

    called = job.called if isinstance(job, Measure | Race) else None
    try:
        executable = load_artifact(compiled.artifact)
        if compiled.sizes:
            executable = executable.at([layout.physical_shape for layout in compiled.layouts], compiled.sizes)
        bound = executable.bind(guard_bytes=GUARD_BYTES, called=called)
    except (MemoryError, DeviceMissing):
        raise
    except Exception as error:
        return Failed(status="build_error", message=f"{type(error).__name__}: {_text(error)}")
    kernel = _Ticking(bound, settler(Target.from_json(compiled.artifact["target"])), tick)
    try:
        verdict = verify(kernel, compiled.layouts, _samples(job), lambda probe: slow(kernel, probe))
    except WrongResult as wrong:
        return Failed(status="wrong", message=str(wrong))
    worst = verdict.max_abs_error if math.isfinite(verdict.max_abs_error) else None
    return _Right(kernel, verdict.seconds, verdict.complete, worst)


def _control(job: Measure, tick: Tick) -> Control | None:
    """The control of a job, bound to filled memory; None where the job has none, or it does not run.

    The last one is kept: from one candidate to the next it is mostly the same.  It takes memory that a candidate
    may need, so that a large one does not run along.
    """
    if job.control is None or _bytes_of(job.control.kernel.artifact) > CONTROL_BYTES:
        return None
    key = _hash_of(job.control.kernel.artifact), job.control.latency_us
    if key not in _CONTROLS:
        _CONTROLS.clear()
        _CONTROLS[key] = _bound_control(job, job.control.kernel, job.control.latency_us * 1e-6, tick)
    return _CONTROLS[key]


def _bound_control(job: Measure, kernel: Compiled, known: float, tick: Tick) -> Control | None:
    """The control, bound to memory in which it takes about its `known` seconds; None where it does not run.

    Which lines of a cache the pages of its memory share is chance, and differs between processes: a kernel of 1,250 us
    was seen to take 1,610 in a worker for as long as that lived, and all candidates beside it seemed to be faster than
    they were.  So where it is slow it is bound again, to other memory.
    """
    from ...backends.timing import SUDDEN, Control

    found: list[Control] = []
    while len(found) < INSTANCES and not (found and found[-1].lately <= SUDDEN):
        checked = _verified(kernel, job, tick)
        if isinstance(checked, Failed):
            return None
        found.append(Control.begun(checked.kernel, known))
    return min(found, key=lambda control: control.lately)


_CONTROLS: dict[tuple[str, float], Control | None] = {}


def _bytes_of(artifact: Artifact) -> int:
    from ...backends.executable import Memory

    buffers = [*artifact["params"], *artifact["workspaces"]]
    return sum(Memory(name, tuple(shape), dtype, scope).nbytes for name, shape, dtype, scope in buffers)


def _samples(job: Question) -> tuple[Sample, ...]:
    from .programs import samples

    return samples(to_text(job.work), job.seed, isinstance(job, Prepare | Race) and job.first)


def _hash_of(artifact: Artifact) -> str:
    return hashlib.sha256(json.dumps(artifact, sort_keys=True).encode()).hexdigest()


def _text(error: BaseException) -> str:
    return str(error)[:1000]


HANDLERS: dict[type[Job[Any]], Callable[..., Reply]] = {
    Ping: ping, Derive: derive, Build: build, Prepare: prepare, Verify: verify, Measure: measure, Race: race,
    MeasureRoof: measure_roof, CheckDevice: check_device, Diagnose: diagnose, SelfTest: selftest.run,
}  # fmt: skip
