"""The end of a run: the fastest candidates and the untuned program race each other with fresh data."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from .records import Record, printable
from .task import Roof, Task

DISQUALIFYING = ("refused", "build_error", "crash", "oom", "wrong")
"""Failures that take a stored measurement back; a deadline or a lost machine does not."""

FAR_SLOWER = 3.0
"""A program that took so many times as long as the fastest cannot win, and does not race."""

Reply = dict[str, Any]
Job = Mapping[str, Any]


class Shop(Protocol):
    """Where candidates are built and measured (see `search.executor.Executor`)."""

    def wait(self) -> None: ...
    def build(self, jobs: Iterable[Job], done: Callable[[int, Reply], None] | None = None) -> list[Reply]: ...
    def measure(self, jobs: Iterable[Job], done: Callable[[int, Reply], None] | None = None) -> list[Reply]: ...
    def race(self, job: Job) -> Reply: ...
    def nodes(self) -> dict[str, dict[str, int]]: ...
    def close(self) -> None: ...


@dataclass
class Race:
    """What a race found: the records with their new samples, fastest first, and the device's limits."""

    records: list[Record]
    failed: list[Record] = field(default_factory=list)
    baseline_samples: list[float] = field(default_factory=list)
    roof: Roof | None = None
    problem: str = ""

    def without(self, failed: Sequence[Record], problem: str) -> Race:
        """This race without records that have failed since."""
        gone = {record.id for record in failed}
        return replace(self, records=[r for r in self.records if r.id not in gone], problem=problem)

    @property
    def baseline_us(self) -> float | None:
        """Median latency of the untuned program in this race."""
        return statistics.median(self.baseline_samples) * 1e6 if self.baseline_samples else None


def build_job(task: Task, trace: list[Any] | None, fault: str | None = None) -> dict[str, Any]:
    """The job that builds one candidate; a null trace is the untuned program."""
    job = {"job": "build", "script": task.script, "trace": trace, "target": task.target.to_json(), "fault": None}
    return job | {"fault": fault} if fault else job


def drawn_job(task: Task, sketch: str, choice: Sequence[int], fault: str | None = None) -> dict[str, Any]:
    """The job that schedules a candidate of the task's design space and builds it; its reply has the trace."""
    candidate = {"sketch": sketch, "choice": [int(c) for c in choice], "interface": task.interface}
    return {"job": "build", "script": task.script, **candidate, "target": task.target.to_json(), "fault": fault}


def derive_job(task: Task) -> dict[str, Any]:
    """The job that derives the task's design space where candidates are to be drawn from it."""
    return {"job": "derive", "script": task.script, "interface": task.interface, "target": task.target.to_json()}


@dataclass(frozen=True)
class Rival:
    """A kernel that candidates take turns with: what its build made, and its latency in microseconds."""

    built: Reply
    latency_us: float


def measure_job(
    task: Task, built: Reply, seed: int, best_us: float | None, rival: Rival | None = None, fault: str | None = None
) -> dict[str, Any]:
    """The job that verifies what a build made and times it, in turns with a rival where there is one."""
    return {
        "job": "measure",
        **_entry(built),
        "workload": task.job_workload,
        "seed": seed,
        "best_us": best_us,
        "rival": rival and {**_entry(rival.built), "latency_us": rival.latency_us},
        "fault": fault,
    }


def _entry(built: Reply) -> dict[str, Any]:
    return {"artifact": built["artifact"], "layouts": built["layouts"]}


def race(
    shop: Shop,
    task: Task,
    records: Sequence[Record],
    seed: int,
    seconds: float,
    untuned: bool = True,
) -> Race:
    """Build the records' traces, so that what races is what a replay will find, and time all in turns.

    `seed` must be one that no trial used, so that the winner is verified on data
    that it has never seen.  The untuned program runs along where `untuned`; one that
    could not be measured by itself would cost the others their race.
    """
    entries, entrants, lost = _entries(shop, task, records, untuned)
    job = {
        "job": "race", "workload": task.job_workload, "dtype": task.work.dtype, "seed": seed, "seconds": seconds,
    }  # fmt: skip
    if not entries:
        return Race([], lost, problem="nothing could be rebuilt")
    reply = shop.race({**job, "entries": entries})
    result = Race([], lost)
    if reply["status"] == "ok":
        result.roof = Roof(float(reply["peak_gflops"]), float(reply["bandwidth"]))
        results = reply["results"]
    else:
        result.problem = f"{reply['status']}: {reply.get('message', '')}"
        results = _one_by_one(shop, job, entries)
    for record, got in zip(entrants, results, strict=True):
        _judge(result, record, got)
    result.records.sort(key=lambda r: r.latency_us or 0.0)
    return result


def _entries(
    shop: Shop, task: Task, records: Sequence[Record], untuned: bool
) -> tuple[list[dict[str, Any]], list[Record | None], list[Record]]:
    """Race entries and whose they are (None for the untuned program), and the records that do not build."""
    runners: list[Record | None] = [*records, *[None] * untuned]
    replies = shop.build([build_job(task, None if r is None else r.trace) for r in runners])
    entries, entrants, lost = [], [], []
    for record, reply in zip(runners, replies, strict=True):
        if reply["status"] == "ok":
            entries.append(_entry(reply))
            entrants.append(record)
        elif record is not None and reply["status"].split(":")[0] in DISQUALIFYING:
            lost.append(failed(record, reply))
    return entries, entrants, lost


def _one_by_one(shop: Shop, job: Mapping[str, Any], entries: Sequence[dict[str, Any]]) -> list[Reply]:
    """A race that was lost as a whole says nothing about its entries: verify and time each by itself."""
    shared = {"job": "measure", "workload": job["workload"], "seed": job["seed"]}
    return shop.measure([{**shared, **entry} for entry in entries])


def _judge(result: Race, record: Record | None, got: Reply) -> None:
    samples = [float(s) for s in got.get("samples") or []]
    good = got["status"] == "ok" and bool(samples)
    if record is None:
        result.baseline_samples = samples if good else []
    elif good:
        result.records.append(record.measured(samples, got.get("max_abs_error"), "race"))
    elif got["status"].split(":")[0] in DISQUALIFYING:
        result.failed.append(failed(record, got))


def failed(record: Record, reply: Reply) -> Record:
    """`record` as a failure of the kind that the reply names."""
    return record.changed(
        status=reply["status"], message=printable(str(reply.get("message", ""))), samples=[], latency_us=None,
        max_abs_error=None, verified=False,
    )  # fmt: skip
