"""A place that builds and measures nothing: latencies come from the synthetic device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import synthetic_space as synthetic

from stridesmith.space.errors import ScheduleError

Reply = dict[str, Any]


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


class FakeShop:
    """Builds give the trace back as the artifact; `faults` maps a build's number to the reply that replaces one.

    The untuned program takes `untuned_us`.  A race measures 5 % slower than trials do.
    """

    def __init__(self, over: synthetic.Space, untuned_us: float = 5000.0) -> None:
        self.space = over
        self.device = synthetic.Device(over)
        self.untuned_us = untuned_us
        self.build_faults: dict[int, Reply] = {}
        self.measure_faults: dict[int, Reply] = {}
        self.race_reply: Callable[[Reply], Reply] = lambda reply: reply
        self.on_measure: Callable[[int], None] = lambda number: None
        self.jobs: list[dict[str, Any]] = []
        self.built = self.measured = self.closed = 0

    def wait(self) -> None:
        """It is always open."""

    def build(self, jobs, done=None) -> list[Reply]:
        return [self._build(dict(job)) for job in jobs]

    def measure(self, jobs, done=None) -> list[Reply]:
        replies = []
        for index, job in enumerate(jobs):
            replies.append(self._measure(dict(job)))
            if done is not None:
                done(index, replies[-1])
        return replies

    def race(self, job) -> Reply:
        self.jobs.append(dict(job))
        results = [self._time(entry["artifact"], 1.05) for entry in job["entries"]]
        reply = {"status": "ok", "results": results, "peak_gflops": 100.0, "bandwidth": 1e10}
        return self.race_reply(reply)

    def nodes(self) -> dict[str, dict[str, int]]:
        return {"here": {"built": self.built, "measured": self.measured}}

    def close(self) -> None:
        self.closed += 1

    def _build(self, job: dict[str, Any]) -> Reply:
        self.jobs.append(job)
        self.built += 1
        try:
            trace = self._trace(job)
        except ScheduleError as error:
            return {"status": "refused", "message": str(error)}
        if trace is not None and self.built in self.build_faults:
            return self.build_faults[self.built]
        found = {"trace": trace} if "choice" in job else {}
        return {"status": "ok", "artifact": trace, "layouts": [], "lowered_hash": str(trace), "seconds": 0.0, **found}

    def _trace(self, job: dict[str, Any]) -> list[Any] | None:
        if "choice" not in job:
            return job["trace"]
        (sketch,) = [sketch for sketch in self.space.sketches if sketch.name == job["sketch"]]
        return sketch.trace(job["choice"]).to_json()

    def _measure(self, job: dict[str, Any]) -> Reply:
        self.jobs.append(job)
        if job["job"] == "limits":
            return {"status": "ok", "peak_gflops": 100.0, "bandwidth": 1e10}
        self.measured += 1
        self.on_measure(self.measured)
        if job["artifact"] is not None and self.measured in self.measure_faults:
            return self.measure_faults[self.measured]
        return self._time(job["artifact"], 1.0)

    def _time(self, trace: list[Any] | None, factor: float) -> Reply:
        if trace is None:
            latency = self.untuned_us
        else:
            candidate = trace[0][1]
            latency = self.device(candidate["sketch"], candidate["choice"])
        samples = latency * factor * 1e-6 * np.array([0.99, 1.0, 1.02])
        return {"status": "ok", "samples": samples.tolist(), "max_abs_error": 1e-6}
