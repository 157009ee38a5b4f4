"""What happened when in a run, for people who look at it in a trace viewer: spans, instants and a counter."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .protocol import Build, Failed, Job, Measured, Reply

Facts = Mapping[str, "str | int | float | None"]


@dataclass(frozen=True)
class Span:
    """Something that took time in a `lane` (a thread, an actor) of a `node`; times are `time.monotonic()` values."""

    node: str
    lane: str
    name: str
    start: float
    end: float
    facts: Facts


@dataclass(frozen=True)
class Sample:
    """A value of a counter from `time` on."""

    name: str
    time: float
    value: float


@dataclass
class Timeline:
    """Spans and samples as they come; parts of a run that have none to fill are given None."""

    spans: list[Span] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def add(self, node: str, lane: str, name: str, start: float, end: float, **facts: str | int | float | None) -> None:
        """A span."""
        self.spans.append(Span(node, lane, name, start, end, facts))


def facts_of(job: Job[Any], reply: Reply) -> dict[str, str | float | None]:
    """What a trace shows of a job beside its times."""
    facts: dict[str, str | float | None] = {"status": reply.status if isinstance(reply, Failed) else "ok"}
    if isinstance(reply, Failed):
        facts["message"] = reply.message[:300]
    elif isinstance(reply, Measured):
        facts["latency_us"] = statistics.median(reply.samples) * 1e6
    if isinstance(job, Build) and job.choice is not None:
        facts["sketch"] = job.choice.sketch
    return facts
