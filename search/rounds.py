"""One round after the other: ask for candidates, build, measure, tell, record."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .final import Reply, Shop, build_job, failed, measure_job
from .ledger import Ledger, Tally
from .records import Record, printable

if TYPE_CHECKING:
    from ..space.space import Space
    from .candidates import Candidate
    from .settings import TuneSettings
    from .study import Study
    from .task import Task

KEPT_BUILDS = 16
BARREN_ROUNDS = 8

NewRecord = Callable[[list[Any] | None, str, tuple[int, ...], int], Record]


class Rounds:
    """Plays rounds and remembers what the final race needs.

    `good` are this run's valid records by id, `builds` the replies of the
    builders for the fastest of them.
    """

    def __init__(
        self,
        settings: TuneSettings,
        task: Task,
        space: Space,
        study: Study,
        shop: Shop,
        ledger: Ledger,
        tally: Tally,
        new_record: NewRecord,
        send: Callable[[dict[str, Any]], None],
    ) -> None:
        self.settings, self.task, self.space, self.study, self.shop = settings, task, space, study, shop
        self.ledger, self.tally, self.new_record, self.send = ledger, tally, new_record, send
        self.number = 0
        self.good: dict[str, Record] = {}
        self.builds: dict[str, Reply] = {}
        self._measured: dict[str, Record] = {}
        self._barren = 0
        self._announced = 0
        self._pace: float | None = None

    def size(self, left: float | None) -> int:
        """Candidates for the next round: a batch, cut to the trials and to the seconds (`left`) that remain."""
        size = self.settings.batch
        if (limit := self.settings.trial_limit) is not None:
            size = min(size, limit - self.tally.trials)
        if left is not None:
            expected = size if self._pace is None else int(left / self._pace)
            size = min(size, expected)
            if self._pace is None and left < 10:
                size = min(size, 4)
        return max(0, size)

    def play(self, size: int) -> bool:
        """One round of up to `size` candidates; False when the space is exhausted."""
        began = time.monotonic()
        before = self.tally.trials
        candidates = self.study.ask(size)
        if not candidates:
            return False
        self.number += 1
        prepared = [found for candidate in candidates if (found := self._prepare(candidate)) is not None]
        if not prepared:
            self._barren += 1
            return self._barren < BARREN_ROUNDS
        self._barren = 0
        self._say("building", len(prepared))
        replies = self.shop.build([job for _, _, job in prepared])
        ready = []
        for (candidate, record, job), reply in zip(prepared, replies, strict=True):
            if reply["status"] != "ok":
                self._close(candidate, failed(record, reply))
            elif (twin := self._measured.get(reply["lowered_hash"])) is not None and not job["fault"]:
                self.tally.duplicates += 1
                self._close(candidate, record.measured(list(twin.samples), twin.max_abs_error, "trial"))
            else:
                ready.append((candidate, record, job, reply))
        self._say("measuring", len(ready))
        self._measure(ready)
        took = (time.monotonic() - began) / max(1, self.tally.trials - before)
        self._pace = took if self._pace is None else 0.5 * (took + self._pace)
        return True

    def _prepare(self, candidate: Candidate) -> tuple[Candidate, Record, dict[str, Any]] | None:
        """The candidate's trace as a job, or None when the schedule refuses it."""
        from ..space.errors import ScheduleError

        sketch = self.space.sketches[candidate.sketch]
        try:
            trace = sketch.trace(candidate.choice).to_json()
        except ScheduleError as error:
            record = self.new_record(None, sketch.name, candidate.choice, -1)
            reply = {"status": "refused", "message": printable(str(error))}
            self._close(candidate, failed(record, reply), announced=False)
            return None
        self.tally.trials += 1
        record = self.new_record(trace, sketch.name, candidate.choice, self.tally.trials)
        fault = self.settings.faults.get(self.tally.trials, "").split("+")[0]
        return candidate, record, build_job(self.task, trace, fault or None)

    def _measure(self, ready: list[tuple[Candidate, Record, dict[str, Any], Reply]]) -> None:
        """Measure one after the other; each result is told and stored as it comes."""
        jobs = []
        for _, record, _, built in ready:
            fault = self.settings.faults.get(record.trial, "").partition("+")[2]
            jobs.append(measure_job(self.task, built, self.settings.seed, self.tally.best_us, fault or None))

        def done(index: int, reply: Reply) -> None:
            candidate, record, _, built = ready[index]
            if reply["status"] != "ok":
                self._close(candidate, failed(record, reply))
                return
            finished = record.measured(list(reply["samples"]), reply.get("max_abs_error"), "trial")
            self._measured[built["lowered_hash"]] = finished
            self.builds[finished.id] = built
            self._close(candidate, finished)

        self.shop.measure(jobs, done)
        self._forget()

    def _close(self, candidate: Candidate, record: Record, announced: bool = True) -> None:
        """Store, tell and announce what became of a candidate, in this order: what is announced is kept."""
        self.ledger.put([record])
        self.study.tell(candidate, record.latency_us, record.failure, record=record.id)
        self.tally.add(record)
        if record.ok:
            self.good[record.id] = record
        if announced:
            self._announced += 1
            self.send(
                {
                    "event": "trial",
                    "trial": record.trial,
                    "trials": self._announced,
                    "status": record.status,
                    "latency_us": record.latency_us,
                    "best_us": self.tally.best_us,
                    "record": record.id,
                    "sketch": record.sketch,
                    "message": record.message,
                }
            )

    def _say(self, what: str, count: int) -> None:
        self.send({"event": "phase", "phase": f"{what} {count} candidates", "round": self.number})

    def _forget(self) -> None:
        """Keep the builds of the fastest records only."""
        fastest = sorted(self.good.values(), key=_latency)[:KEPT_BUILDS]
        keep = {record.id for record in fastest}
        self.builds = {name: built for name, built in self.builds.items() if name in keep}


def _latency(record: Record) -> float:
    return statistics.median(record.samples)
