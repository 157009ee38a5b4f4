"""A workplace for building and measuring: a worker process, deadlines, and the host's lock.

Ray's actors each own a `Bench`; replay and tests use one directly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import host_lock
from .process import Reply, WorkerProcess

MEASURING = ("measure", "race", "limits")
"""Jobs that must have the host's devices for themselves."""


@dataclass(frozen=True)
class Limits:
    """Deadlines in seconds, and the memory of a worker in bytes (None: half of the machine's).

    `call` is for each call of a kernel; verifying and timing one candidate takes at
    most `measure` in all, a race `race` beyond the time that it was asked to spend.
    A job's own ``"deadline"`` goes before `build` and `call`.
    """

    build: float = 15.0
    call: float = 10.0
    measure: float = 60.0
    race: float = 180.0
    prepare: float = 300.0
    memory_bytes: int | None = None


class Bench:
    """Builds and measures through one warm worker process."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.worker = WorkerProcess(self.limits.memory_bytes)
        self._prepared: set[tuple[int, str]] = set()

    def run(self, job: Mapping[str, Any]) -> Reply:
        """The reply to a job of any kind."""
        return self.measure(job) if job["job"] in MEASURING else self.build(job)

    def build(self, job: Mapping[str, Any]) -> Reply:
        """Compile a candidate, while nothing is measured on this host."""
        with host_lock.shared():
            return self.worker.request(job, float(job.get("deadline", self.limits.build)))

    def measure(self, job: Mapping[str, Any]) -> Reply:
        """A job that measures, alone on this host."""
        with host_lock.exclusive():
            return self._prepare(job) or self.worker.request(job, *self._patience(job))

    def expect(self, job: Mapping[str, Any]) -> None:
        """Do by itself what later jobs need, beside builds.

        That is for measurements the reference results of the job's workload and seed, and else the job as it is.
        """
        with host_lock.shared():
            if "workload" in job:
                self._prepare(job)
            else:
                self.worker.request(job, self.limits.prepare)

    def close(self) -> None:
        self.worker.close()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _prepare(self, job: Mapping[str, Any]) -> Reply | None:
        """Let the worker compute the reference results, which no candidate's deadline should pay for.

        Returns a reply only when that failed.
        """
        if "workload" not in job:
            return None
        request = {"job": "prepare", "workload": job["workload"], "seed": job["seed"]}
        text = json.dumps(request, sort_keys=True)
        if self.worker.pid is not None and (self.worker.generation, text) in self._prepared:
            return None
        reply = self.worker.request(request, self.limits.prepare)
        if reply["status"] != "ok":
            return reply
        self._prepared.add((self.worker.generation, text))
        return None

    def _patience(self, job: Mapping[str, Any]) -> tuple[float, float]:
        """Seconds without progress, and seconds in all, for a measurement or a race."""
        call = float(job.get("deadline", self.limits.call))
        total = self.limits.measure
        if job["job"] == "race":
            total = self.limits.race + float(job.get("seconds", 0))
        return call, max(call, total)
