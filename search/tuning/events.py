"""The events of a tuning run, in the order in which they may come: what `emit` gets and ``--format json`` prints.

An event's JSON object has ``"event"`` with its name, and its fields.  A field that has a default here is left out
while it has that value.  `docs/events.md` describes all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event; `name` is what JSON calls it."""

    name: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The event as JSON."""
        fields = {f.name: (getattr(self, f.name), f.default) for f in dataclasses.fields(self)}
        return {"event": self.name, **{name: value for name, (value, default) in fields.items() if value != default}}


@dataclass(frozen=True, kw_only=True)
class OfTask(Event):
    """What names the task: `shape` has the workload's parameters, `target` is the kind of `device`."""

    workload: str
    shape: dict[str, int | str]
    dtype: str
    interface: dict[str, str]
    target: str
    device: str
    threads: int


@dataclass(frozen=True, kw_only=True)
class Start(OfTask):
    """A run begins; limits are null where there are none."""

    name: ClassVar[str] = "start"

    flops: int
    limit_trials: int | None
    limit_seconds: float | None
    stop_at: float | None
    sampler: str
    seed: int
    db: str


@dataclass(frozen=True, kw_only=True)
class Note(Event):
    """Something that the user should know."""

    name: ClassVar[str] = "note"

    message: str


@dataclass(frozen=True, kw_only=True)
class Phase(Event):
    """What the run does now."""

    name: ClassVar[str] = "phase"

    phase: str
    round: int | None = None
    baseline_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class Trial(Event):
    """What became of a candidate; the record can be read from the database when this comes."""

    name: ClassVar[str] = "trial"

    trial: int
    trials: int
    status: str
    latency_us: float | None
    best_us: float | None
    record: str
    sketch: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Round(Event):
    """A batch of candidates has been measured."""

    name: ClassVar[str] = "round"

    round: int
    trials: int
    best_us: float | None
    baseline_us: float | None
    failed: dict[str, int]
    duplicates: int
    rank_correlation: float | None
    top_k_recall: float | None
    peak_gflops: float | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Finish(OfTask):
    """The result; the last event of a run that found one.  Times are by the `clock` of the host, or of the device."""

    name: ClassVar[str] = "done"

    latency_us: float
    low_us: float | None
    high_us: float | None
    search_us: float | None
    gflops: float
    peak_gflops: float | None
    peak_fraction: float | None
    roofline_fraction: float | None
    bandwidth: float | None
    cached: bool | None
    busy: float | None
    cores: int | None
    baseline_us: float | None
    trials: int
    failed: dict[str, int]
    duplicates: int
    seconds: float
    activities: dict[str, float]
    stopped_by: str
    sampler: str
    seed: int
    verified: bool
    max_abs_error: float | None
    record: str
    run: str
    db: str
    nodes: dict[str, dict[str, int]]
    clock: str = "host"


@dataclass(frozen=True, kw_only=True)
class Schedule(Event):
    """A run for several tasks begins, which share its seconds."""

    name: ClassVar[str] = "tasks"

    tasks: list[dict[str, Any]]
    device: str
    threads: int
    limit_seconds: float
    seed: int
    predicted_us: float | None
    db: str


@dataclass(frozen=True, kw_only=True)
class Turn(OfTask):
    """One of several tasks has had a turn, or at the end a race; `predicted_us` is what all together should take."""

    name: ClassVar[str] = "turn"

    turn: int
    task: int
    weight: int
    best_us: float | None
    predicted_us: float | None
    trials: int
    seconds: float
    raced: bool = False


EVENTS: tuple[type[Event], ...] = (Start, Note, Phase, Trial, Round, Finish, Schedule, Turn)
