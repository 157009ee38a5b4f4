"""A workplace for building and measuring: a worker process, deadlines, and the host's lock.

Ray's actors each own a `Bench`; replay and tests use one directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from ...ir.target import Target
from . import host_lock
from .process import WorkerProcess
from .protocol import Failed, Job, Measure, MeasureRoof, Prepare, Race, Reply

R = TypeVar("R", bound=Reply)

CLOSED = Failed(status="infrastructure", message="the bench was closed")
MEASURING = (Measure, Race, MeasureRoof)
"""Jobs that must have the devices on which they measure for themselves."""


@dataclass(frozen=True)
class Limits:
    """Deadlines in seconds, and the memory of a worker in bytes (None: half of the machine's).

    `call` is for each call of a kernel; verifying and timing one candidate takes at
    most `measure` in all, a race `race` beyond the time that it was asked to spend.
    A job's own deadline goes before `build` and `call`.
    """

    build: float = 15.0
    call: float = 10.0
    measure: float = 60.0
    race: float = 180.0
    prepare: float = 300.0
    memory_bytes: int | None = None


class Workbench(Protocol):
    """Does one job of any kind in a process that may be lost, as a `Bench` does."""

    def run(self, job: Job[R]) -> R | Failed:
        """The reply to a job."""


class Bench:
    """Builds and measures through one warm worker process."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.worker = WorkerProcess(self.limits.memory_bytes)
        self._is_closed = False

    def run(self, job: Job[R]) -> R | Failed:
        """The reply to a job of any kind."""
        measures = isinstance(job, MEASURING)
        return self.measure(job) if measures else self.build(job)

    def build(self, job: Job[R]) -> R | Failed:
        """Compile a candidate, while nothing is measured on this host."""
        with host_lock.shared():
            return self._request(job, self.limits.build if job.deadline is None else job.deadline)

    def measure(self, job: Job[R]) -> R | Failed:
        """A job that measures, alone on its device; beside builds where these do not disturb it."""
        if not _is_apart(job):
            with host_lock.exclusive():
                return self._prepare_for(job) or self._request(job, *self._patience(job))
        with host_lock.shared():  # a GPU has to make a context, for which nobody else should wait
            problem = self._prepare_for(job)
        if problem is not None:
            return problem
        with host_lock.beside_builds():
            return self._request(job, *self._patience(job))

    def prepare(self, job: Job[Reply]) -> None:
        """Do by itself what later jobs need, beside builds."""
        with host_lock.shared():
            if isinstance(job, Prepare):
                self._prepare(job)
            else:
                self._request(job, self.limits.prepare)

    def close(self) -> None:
        """End the worker; what a thread still waits for the host to do is not begun any more."""
        self._is_closed = True
        self.worker.close()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _request(self, job: Job[R], seconds: float, total: float | None = None) -> R | Failed:
        """What the worker answers; after `close`, which a thread may meet while it waits for the host, nothing."""
        return CLOSED if self._is_closed else self.worker.request(job, seconds, total)

    def _prepare_for(self, job: Job[R]) -> Failed | None:
        """Do by itself what no measurement's deadline should pay for.  Returns a reply only when that failed."""
        if not isinstance(job, Measure | Race):
            return None
        first, target = isinstance(job, Race) and job.first, next(iter(_targets(job)), None)
        return self._prepare(Prepare(work=job.work, seed=job.seed, first=first, target=target))

    def _prepare(self, job: Prepare) -> Failed | None:
        """Let the worker compute the reference results, which no candidate's deadline should pay for.

        It answers at once where it has them; those that were not asked for last may have gone.  Returns a reply only
        when that failed.
        """
        reply = self._request(job, self.limits.prepare)
        return reply if isinstance(reply, Failed) else None

    def _patience(self, job: Job[R]) -> tuple[float, float]:
        """Seconds without progress, and seconds in all, for a measurement or a race."""
        call = self.limits.call if job.deadline is None else job.deadline
        total = self.limits.race + job.seconds if isinstance(job, Race) else self.limits.measure
        return call, max(call, total)


def _is_apart(job: Job[R]) -> bool:
    """Whether all that a job measures is on devices which builds on the host do not disturb."""
    targets = _targets(job)
    return bool(targets) and all(target.is_apart for target in targets)


def _targets(job: Job[R]) -> list[Target]:
    """The devices on which a job measures, by kernel."""
    if isinstance(job, MeasureRoof):
        return [job.target]
    kernels = job.kernels if isinstance(job, Race) else (job.kernel,) if isinstance(job, Measure) else ()
    return [Target.from_json(kernel.artifact["target"]) for kernel in kernels]
