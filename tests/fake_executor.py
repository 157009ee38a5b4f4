"""A place that builds and measures nothing: latencies come from the synthetic device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import synthetic_space as synthetic

from stridesmith.search.tasks.task import Roof
from stridesmith.search.workers.protocol import (
    Build,
    Built,
    CheckDevice,
    Compiled,
    Done,
    Failed,
    Job,
    Measure,
    Measured,
    MeasureRoof,
    Race,
    Raced,
    Reply,
    Roofed,
)
from stridesmith.space.errors import ScheduleError

ROOF = Roof(100.0, 1e10)


class Trace:
    """A trace that is its candidate."""

    def __init__(self, data: list[Any]) -> None:
        self.data = data

    def to_json(self) -> list[Any]:
        return self.data


class Sketch(synthetic.Sketch):
    """A synthetic sketch that can also make traces; `refuses` says for which choices it cannot."""

    refuses: Callable[[tuple[int, ...]], bool] = staticmethod(lambda choice: False)

    def trace(self, choice) -> Trace:
        if self.refuses(tuple(choice)):
            raise ScheduleError("made to refuse")
        return Trace([["candidate", {"sketch": int(self.name[1:]), "choice": [int(c) for c in choice]}]])


def space(refuses: Callable[[tuple[int, ...]], bool] | None = None) -> synthetic.Space:
    sketches = []
    for number in range(3):
        sketch = Sketch(f"k{number}", (synthetic.part(f"k{number}"),))
        if refuses is not None:
            object.__setattr__(sketch, "refuses", refuses)
        sketches.append(sketch)
    return synthetic.Space(tuple(sketches))


class FakeExecutor:
    """Builds give the trace back as the artifact; `build_faults` maps a build's number to the reply that replaces one.

    The untuned program takes `untuned_us`.  A race measures 5 % slower than trials do.
    """

    def __init__(self, over: synthetic.Space, untuned_us: float = 5000.0) -> None:
        self.space = over
        self.device = synthetic.Device(over)
        self.untuned_us = untuned_us
        self.build_faults: dict[int, Failed] = {}
        self.measure_faults: dict[int, Failed] = {}
        self.check_reply: Done | Failed = Done()
        self.race_reply: Callable[[Raced], Raced | Failed] = lambda reply: reply
        self.on_measure: Callable[[int], None] = lambda number: None
        self.jobs: list[Job] = []
        self.notes: list[str] = []
        self.scaled: list[bool] = []
        self.until: float | None = None
        self.timeline = None
        self.built = self.measured = self.closed = 0

    def of(self, kind: type) -> list[Any]:
        """The jobs of a kind that came."""
        return [job for job in self.jobs if isinstance(job, kind)]

    def scale_up(self, pays: bool) -> None:
        """There is nobody else."""
        self.scaled.append(pays)

    def wait(self, tell=None) -> None:
        """There is nothing to wait for."""

    def build(self, jobs, done=None) -> list[Built | Failed]:
        return [self._build(job) for job in jobs]

    def measure(self, jobs, done=None) -> list[Reply]:
        replies = []
        for index, job in enumerate(jobs):
            replies.append(self._measure(job))
            if done is not None:
                done(index, replies[-1])
        return replies

    def nodes(self) -> dict[str, dict[str, int]]:
        return {"here": {"built": self.built, "measured": self.measured}}

    def close(self) -> None:
        self.closed += 1

    def _build(self, job: Build) -> Built | Failed:
        self.jobs.append(job)
        self.built += 1
        trace = job.trace
        if job.choice is not None:
            (sketch,) = [sketch for sketch in self.space.sketches if sketch.name == job.choice.sketch]
            try:
                trace = sketch.trace(job.choice.indices).to_json()
            except ScheduleError as error:
                return Failed(status="refused", message=str(error))
        if trace is not None and self.built in self.build_faults:
            return self.build_faults[self.built]
        kernel = Compiled(trace, ())  # type: ignore[arg-type]
        return Built(kernel=kernel, code_hash=str(trace), trace=trace if job.choice is not None else None)

    def _measure(self, job: Job) -> Reply:
        self.jobs.append(job)
        if isinstance(job, MeasureRoof):
            return Roofed(roof=ROOF)
        if isinstance(job, CheckDevice):
            return self.check_reply
        if isinstance(job, Race):
            return self.race_reply(Raced(results=tuple(self._time(k.artifact, 1.05) for k in job.kernels), roof=ROOF))
        assert isinstance(job, Measure)
        self.measured += 1
        self.on_measure(self.measured)
        if job.kernel.artifact is not None and self.measured in self.measure_faults:
            return self.measure_faults[self.measured]
        return self._time(job.kernel.artifact, 1.0)

    def _time(self, trace: Any, factor: float) -> Measured:
        if trace is None:
            latency = self.untuned_us
        else:
            candidate = trace[0][1]
            latency = self.device(candidate["sketch"], candidate["choice"])
        samples = latency * factor * 1e-6 * np.array([0.99, 1.0, 1.02])
        return Measured(samples=tuple(samples.tolist()), max_abs_error=1e-6)
