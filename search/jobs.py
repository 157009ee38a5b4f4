"""What a worker process can be asked to do: a JSON object in, a JSON object out.

=========  ==================================================================
job        what it does
=========  ==================================================================
derive     derive a program's design space, which builds of drawn candidates find then
build      program + trace or choice -> artifact and the layouts of its arguments
prepare    compute the reference results of a workload and seed, and keep them
verify     verify an artifact
measure    verify an artifact, then time it
race       verify several artifacts, then time them in turns, between two peaks
diagnose   program + trace -> its texts, from schedule to assembly, and facts
limits     measure the device's peak and bandwidth
=========  ==================================================================

A failure that leaves the process alive is a value: ``refused`` (no such
program), ``build_error``, ``wrong``, or ``infrastructure``.  What does not is
told by `search.process`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import selftest
from .process import Reply, failure

if TYPE_CHECKING:
    from ..backends.data import Argument
    from ..backends.kernel import Artifact, Bound
    from ..backends.lower import Lowered
    from ..backends.samples import Sample
    from ..ir.stmt import PrimFunc
    from ..ir.target import Target

Job = Mapping[str, Any]
Tick = Callable[[], None]

MEASURE_SECONDS = 0.06
FAKE_LATENCY = 1e-9
RIVAL_BYTES = 1 << 28
RACE_ROUNDS = 20
RACE_SECONDS = 5.0


def _nobody_listens() -> None:
    """No parent waits for signs of progress."""


def run(job: dict[str, Any], tick: Tick = _nobody_listens) -> Reply:
    """Do `job`; every failure that leaves the process alive is a value.

    ``tick()`` is called after each call of a kernel, as a sign that the job goes on.
    """
    name = job.get("job")
    if name not in JOBS:
        return failure("refused", f"unknown job `{name}`; there are {', '.join(JOBS)}")
    return JOBS[name](job, tick)


def ping(job: Job, tick: Tick) -> Reply:
    return {"status": "ok", "pid": os.getpid()}


def derive(job: Job, tick: Tick) -> Reply:
    """Derive and keep the design space of ``script`` on ``target`` for the ``interface``, and load what builds need."""
    from ..backends.kernel import compile_lowered  # noqa: F401
    from ..backends.lower import lower  # noqa: F401
    from ..ir.target import Target
    from .programs import derived

    try:
        derived(str(job["script"]), Target.from_json(job["target"]), job["interface"])
    except MemoryError:
        raise
    except Exception as error:
        return failure("infrastructure", f"no design space: {type(error).__name__}: {_text(error)}")
    return {"status": "ok"}


def build(job: Job, tick: Tick) -> Reply:
    """Schedule a candidate, lower and compile it.

    Job: ``script``, ``target``, and the candidate: its ``trace`` (null for the program as written), or
    ``sketch`` and ``choice`` in the design space for the ``interface``; optionally ``fault`` (see
    `backends.faults`).
    Reply: ``artifact``, ``layouts`` (a list of `Argument.to_json`), ``lowered_hash``
    (equal for equal code), ``seconds``, and the ``trace`` where the job had none, also when what
    comes after scheduling fails.
    """
    from ..backends.data import arguments_of
    from ..backends.kernel import compile_lowered

    def compiled(func: PrimFunc, lowered: Lowered, target: Target) -> Reply:
        if job.get("fault"):
            from ..backends.faults import mutate

            lowered = mutate(lowered, str(job["fault"]))
        artifact = compile_lowered(lowered, target)
        return {
            "artifact": artifact,
            "layouts": [argument.to_json() for argument in arguments_of(func)],
            "lowered_hash": _artifact_hash(artifact),
            "seconds": time.monotonic() - start,
        }

    start = time.monotonic()
    return _with_lowered(job, compiled)


def diagnose(job: Job, tick: Tick) -> Reply:
    """What became of a candidate; the job is that of a build, with ``compiled`` false for texts alone.

    Reply: ``program`` (the scheduled program), and what `backends.diagnosis.explain` gives.
    """
    from ..backends.diagnosis import explain

    def explained(func: PrimFunc, lowered: Lowered, target: Target) -> Reply:
        return {"program": func.script(), **explain(lowered, target, bool(job.get("compiled", True)))}

    return _with_lowered(job, explained)


def _with_lowered(job: Job, use: Callable[[PrimFunc, Lowered, Target], Reply]) -> Reply:
    """An ``ok`` reply with what `use` makes of the candidate of `job`, or the reply that says why there is none."""
    from ..backends.lower import lower
    from ..ir.target import Target
    from .programs import REFUSALS, candidate, drawn

    found: Reply = {}
    try:
        target, script = Target.from_json(job["target"]), str(job["script"])
        if "choice" in job:
            schedule = drawn(script, target, job["interface"], str(job["sketch"]), job["choice"])
            func, found = schedule.func, {"trace": schedule.trace.to_json()}
        else:
            func = candidate(script, job["trace"])
        lowered = lower(func, target)
    except REFUSALS as error:
        return failure("refused", _text(error)) | found
    except LookupError as error:
        return failure("infrastructure", _text(error))
    except MemoryError:
        raise
    except Exception as error:
        return failure("build_error", f"{type(error).__name__}: {_text(error)}") | found
    try:
        return {"status": "ok", **use(func, lowered, target), **found}
    except MemoryError:
        raise
    except Exception as error:
        return failure("build_error", f"{type(error).__name__}: {_text(error)}") | found


def prepare(job: Job, tick: Tick) -> Reply:
    """Compute and keep the samples of ``workload`` and ``seed``."""
    try:
        _samples(job)
    except MemoryError:
        raise
    except Exception as error:
        return failure("infrastructure", f"no reference result: {type(error).__name__}: {_text(error)}")
    return {"status": "ok"}


def verify(job: Job, tick: Tick) -> Reply:
    """Verify an artifact on all samples; job and reply as of `measure`, without what is about time."""
    candidate = _verified(job, job, tick)
    return candidate.reply if isinstance(candidate, _Verified) else candidate


def measure(job: Job, tick: Tick) -> Reply:
    """Verify an artifact on all samples, then time it.

    Job: ``artifact``, ``layouts``, ``workload``, ``seed``, and optionally ``repeat_ms``
    (time to spend on samples), ``best_us`` (a candidate far slower is run on the first sample alone),
    ``rival`` (artifact, layouts and ``latency_us`` of a kernel to take turns with),
    ``fault`` (``fake_latency`` claims a nanosecond).
    Reply: ``samples`` (seconds per call; with a rival, what they would be had it taken its ``latency_us``),
    ``max_abs_error``.
    """
    from ..backends.timing import hopeless, in_turns, weather
    from ..backends.timing import measure as time_samples

    best = None if job.get("best_us") is None else float(job["best_us"]) * 1e-6
    rival = _rival(job, tick)
    known = float(job["rival"]["latency_us"]) * 1e-6 if rival else 1.0

    def slow(kernel: _Ticking, probe: float) -> float | None:
        return hopeless(kernel, probe, best, None if rival is None else rival.kernel, known)

    candidate = _verified(job, job, tick, slow)
    if not isinstance(candidate, _Verified):
        return candidate
    seconds = float(job.get("repeat_ms", MEASURE_SECONDS * 1e3)) / 1e3
    if not candidate.complete:
        samples = [candidate.seconds / weather(None if rival is None else rival.kernel, known)]
    elif rival is not None:
        samples = in_turns(candidate.kernel, candidate.seconds, rival.kernel, known, seconds, best or known)
    else:
        samples = time_samples(candidate.kernel, candidate.seconds, seconds, best)
    if job.get("fault") == "fake_latency":
        samples = [FAKE_LATENCY] * len(samples)
    return {**candidate.reply, "samples": samples}


def race(job: Job, tick: Tick) -> Reply:
    """Verify ``entries`` (artifact and layouts each), time them in turns, and measure the device's peak.

    Job: ``entries``, ``workload``, ``seed``, and optionally ``dtype``, ``rounds`` (at least) and ``seconds`` (at most).
    Reply: ``results`` in the order of the entries, ``peak_gflops`` (the better one of
    before and after), ``bandwidth`` in bytes per second.
    """
    from ..backends.peak import measure_bandwidth, measure_peak
    from ..backends.timing import interleave
    from ..ir.target import Target

    _RIVALS.clear()  # whose memory the entries may need
    checked = [_verified(entry, job, tick) for entry in job["entries"]]
    racers = [entry for entry in checked if isinstance(entry, _Verified)]
    target = Target.from_json(job["entries"][0]["artifact"]["target"])
    rounds, seconds = int(job.get("rounds", RACE_ROUNDS)), float(job.get("seconds", RACE_SECONDS))
    before = measure_peak(target, _peak_dtype(job))
    tick()
    times = iter(interleave([r.kernel for r in racers], [r.seconds for r in racers], rounds, seconds))
    results = [
        {**entry.reply, "samples": next(times)} if isinstance(entry, _Verified) else {**entry, "samples": []}
        for entry in checked
    ]
    return {
        "status": "ok",
        "results": results,
        "peak_gflops": max(before, measure_peak(target, _peak_dtype(job))),
        "bandwidth": measure_bandwidth(target),
    }


def limits(job: Job, tick: Tick) -> Reply:
    """``peak_gflops`` for a ``dtype`` and ``bandwidth`` (bytes per second) of ``target``, as a race measures them."""
    from ..backends.peak import measure_bandwidth, measure_peak
    from ..ir.target import Target

    target = Target.from_json(job["target"])
    dtype = _peak_dtype(job)
    before = measure_peak(target, dtype)
    tick()
    bandwidth = measure_bandwidth(target)
    tick()
    return {"status": "ok", "peak_gflops": max(before, measure_peak(target, dtype)), "bandwidth": bandwidth}


def _peak_dtype(job: Job) -> str:
    """The type whose multiply-adds make the peak for a job's ``dtype``: narrower ones are summed in float32."""
    return "float64" if job.get("dtype") == "float64" else "float32"


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
class _Verified:
    """A kernel that gave the right results, the seconds of a call, and the reply so far.

    `complete` is false where it is too slow for more than the first sample.
    """

    kernel: _Ticking
    seconds: float
    complete: bool
    reply: Reply


Slow = Callable[[_Ticking, float], float | None]
"""Given a kernel and the seconds of a first call: the seconds of a call if it is too slow to be of interest."""


def _all_matter(kernel: _Ticking, probe: float) -> float | None:
    return None


def _verified(entry: Job, job: Job, tick: Tick, slow: Slow = _all_matter) -> _Verified | Reply:
    """The artifact of `entry`, verified on the samples of `job`; else the reply that says why not.

    One that is `slow` is verified on the first sample alone.
    """
    from ..backends.cores import settler
    from ..backends.kernel import load_artifact
    from ..backends.verification import GUARD_BYTES, verify
    from ..errors import WrongResult
    from ..ir.target import Target

    try:
        bound = load_artifact(entry["artifact"]).bind(guard_bytes=GUARD_BYTES)
    except MemoryError:
        raise
    except Exception as error:
        return failure("build_error", f"{type(error).__name__}: {_text(error)}")
    kernel = _Ticking(bound, settler(Target.from_json(entry["artifact"]["target"])), tick)
    try:
        verdict = verify(kernel, _arguments(entry), _samples(job), lambda probe: slow(kernel, probe))
    except WrongResult as wrong:
        return failure("wrong", str(wrong))
    worst = verdict.max_abs_error
    reply = {"status": "ok", "max_abs_error": worst if math.isfinite(worst) else None}
    return _Verified(kernel, verdict.seconds, verdict.complete, reply)


def _rival(job: Job, tick: Tick) -> _Verified | None:
    """The kernel that the job's candidate takes turns with, bound and filled; None where there is none that runs.

    The last one is kept: from one candidate to the next it is mostly the same.  It takes memory that a candidate
    may need, so that a large one does not run along.
    """
    entry = job.get("rival")
    if entry is None or _bytes_of(entry["artifact"]) > RIVAL_BYTES:
        return None
    key = _artifact_hash(entry["artifact"])
    if key not in _RIVALS:
        _RIVALS.clear()
        found = _verified(entry, job, tick)
        _RIVALS[key] = found if isinstance(found, _Verified) else None
    return _RIVALS[key]


_RIVALS: dict[str, _Verified | None] = {}


def _bytes_of(artifact: Artifact) -> int:
    from ..backends.kernel import Memory

    buffers = [*artifact["params"], *artifact["workspaces"]]
    return sum(Memory(name, tuple(shape), dtype, scope).nbytes for name, shape, dtype, scope in buffers)


def _arguments(entry: Job) -> tuple[Argument, ...]:
    from ..backends.data import Argument

    return tuple(Argument.from_json(item) for item in entry["layouts"])


def _samples(job: Job) -> tuple[Sample, ...]:
    from .programs import samples

    return samples(json.dumps(job["workload"], sort_keys=True), int(job["seed"]))


def _artifact_hash(artifact: Artifact) -> str:
    return hashlib.sha256(json.dumps(artifact, sort_keys=True).encode()).hexdigest()


def _text(error: BaseException) -> str:
    return str(error)[:1000]


JOBS: dict[str, Callable[[dict[str, Any], Tick], Reply]] = {
    "ping": ping, "derive": derive, "build": build, "prepare": prepare, "verify": verify, "measure": measure,
    "race": race,
    "diagnose": diagnose, "limits": limits, "selftest": selftest.run,
}  # fmt: skip
