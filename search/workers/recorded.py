"""An executor that builds and measures nothing: a recorded space as a device (see `tasks.recording`)."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from ...errors import UsageError
from ...space.cases import SPECIALIZE, steps_at
from ..records.status import KINDS, failure_kind, is_status
from ..tasks.recording import OK, Recording
from .protocol import Build, Built, Compiled, Failed, Job, Measure, Measured, MeasureRoof, Race, Raced, Reply, Roofed
from .timeline import Timeline, facts_of

R = TypeVar("R", bound=Reply)
Done = Callable[[int, Any], None]

CANDIDATE, HERE = "recorded", "the recording"
AT_BUILD = ("refused", "build_error", "build_timeout")


class RecordedExecutor:
    """An `executor.Executor` that answers from a recording; a trace is the sketch and the choice, or cases of these."""

    def __init__(self, recording: Recording) -> None:
        """Raises UsageError where the recording tells of failures that there are not."""
        for status in {status for sketch in recording.sketches for status in sketch.statuses}:
            if status != OK and not (is_status(status) and failure_kind(status) in KINDS):
                raise UsageError(f"the recorded space has candidates with the status {status[:60]!r}, which is none")
        self.recording = recording
        self.until: float | None = None
        self.notes: list[str] = []
        self.timeline: Timeline | None = None
        self._counts = {"built": 0, "measured": 0}
        self._sketches = {sketch.name: sketch for sketch in recording.sketches}

    def scale_up(self, pays: bool) -> None:
        """There is nobody else."""

    def wait(self, tell: Callable[[str], None] | None = None) -> None:
        """There is nothing to wait for."""

    def build(self, jobs: Iterable[Job[R]], done: Done | None = None) -> list[R | Failed]:
        """A candidate was built when it was recorded."""
        return self._each("builder 1", jobs, done, self._build)

    def measure(self, jobs: Iterable[Job[R]], done: Done | None = None) -> list[R | Failed]:
        """What was measured then."""
        return self._each("measuring", jobs, done, self._measure)

    def nodes(self) -> dict[str, dict[str, int]]:
        return {HERE: dict(self._counts)}

    def close(self) -> None:
        """There is nothing to end."""

    def _each(
        self, lane: str, jobs: Iterable[Job[R]], done: Done | None, answer: Callable[[Job[Any]], Reply]
    ) -> list[R | Failed]:
        replies = []
        for index, job in enumerate(jobs):
            since = time.monotonic()
            replies.append(cast("R | Failed", answer(job)))
            if self.timeline is not None:
                facts = facts_of(job, replies[-1])
                self.timeline.add(HERE, lane, type(job).__name__, since, time.monotonic(), **facts)
            if done is not None:
                done(index, replies[-1])
        return replies

    def _build(self, job: Job[Any]) -> Reply:
        assert isinstance(job, Build)
        self._counts["built"] += 1
        trace = job.trace
        if job.choice is not None:
            trace = [[CANDIDATE, {"sketch": job.choice.sketch, "choice": list(job.choice.indices)}]]
        made = trace if job.choice is not None else None
        status = self._result(trace)[1]
        if status.startswith(AT_BUILD):
            return Failed(status=status, message="as it was recorded", trace=made)
        code = json.dumps(trace)
        kernel = Compiled({"kind": CANDIDATE, "entry": "", "code": code, "target": {}, "params": [], "workspaces": [],
                           "launches": []}, ())  # fmt: skip
        return Built(kernel=kernel, code_hash=code, trace=made)

    def _measure(self, job: Job[Any]) -> Reply:
        if isinstance(job, MeasureRoof):
            return Roofed(roof=self.recording.roof)
        if isinstance(job, Race):
            results = tuple(self._time(kernel) for kernel in job.kernels)
            return Raced(results=results, roof=self.recording.roof if job.roof else None)
        assert isinstance(job, Measure)
        self._counts["measured"] += 1
        return self._time(job.kernel)

    def _time(self, kernel: Compiled) -> Measured | Failed:
        us, status = self._result(json.loads(kernel.artifact["code"]))
        if status != OK:
            return Failed(status=status, message="as it was recorded")
        return Measured(samples=(us * 1e-6,) * 3, max_abs_error=0.0)

    def _result(self, trace: list[Any] | None) -> tuple[float, str]:
        """Microseconds and status of a candidate, or of the untuned program."""
        if trace is None:
            return self.recording.untuned_us, OK
        try:
            if trace[0][0] == SPECIALIZE:
                return self._specialized(trace), OK
            candidate = trace[0][1]
            return self._sketches[candidate["sketch"]].result(candidate["choice"])
        except (KeyError, TypeError, IndexError, StopIteration):
            return float("nan"), "refused"

    def _specialized(self, trace: list[Any]) -> float:
        """Microseconds of candidates of ranges, each for its case, in the geometric mean over the sizes."""
        logs = 0.0
        for number, (values, weight) in enumerate(self.recording.sizes):
            candidate = steps_at(trace, values)[0][1]
            at = self._sketches[candidate["sketch"]].at_sizes(candidate["choice"])
            logs += weight * math.log(at[number])
        return math.exp(logs)
