"""One round after the other: ask for candidates, build, measure, tell, record.

A part of each batch is held back and built while the next batch is asked for, so that the builders
have work meanwhile.  Its candidates are the last of their batch, those that depend least on what is
measured in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .bench import Limits
from .clock import Clock
from .final import Reply, Rival, Shop, build_job, drawn_job, failed, measure_job
from .lasting import lasting_thread
from .ledger import Ledger, Tally
from .records import Record, printable

if TYPE_CHECKING:
    from ..space.design.space import Space
    from .candidates import Candidate
    from .settings import TuneSettings
    from .study import Study
    from .task import Task

BARREN_ROUNDS = 8
HELD_SHARE = 0.25  # of a batch
CLEARLY = 1.25  # times faster than the rival: no luck
LASTING = ("run_timeout", "wrong")  # failures that the same code has again
LEAST_DEADLINE = 2.0  # seconds that a build may always take, also at the end of a run

NewRecord = Callable[[list[Any] | None, str, tuple[int, ...], int], Record]


@dataclass(eq=False)
class _Sent:
    """A candidate that went to a builder, and the reply once it is there."""

    candidate: Candidate
    record: Record
    job: dict[str, Any]
    built: Reply = field(default_factory=dict)


class Rounds:
    """Plays rounds and remembers what the final race needs.

    `good` are this run's valid records by id, `rival` is a fast one with which the others take turns, `pace` the
    seconds that building and measuring a candidate takes, None before the first round.  The builders schedule
    candidates themselves where the space is one that they can derive, too (`remote`); else they get traces.
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
        clock: Clock,
        new_record: NewRecord,
        send: Callable[[dict[str, Any]], None],
        remote: bool,
    ) -> None:
        self.settings, self.task, self.space, self.study, self.shop = settings, task, space, study, shop
        self.ledger, self.tally, self.clock, self.new_record, self.send = ledger, tally, clock, new_record, send
        self.remote = remote
        self.number = 0
        self.good: dict[str, Record] = {}
        self.rival: Rival | None = None
        self._numbered = 0  # candidates, refused ones included
        self._known: dict[str, Record] = {}  # what became of code, by its hash
        self._held: list[Candidate] = []
        self._refused: list[tuple[Candidate, Record]] = []
        self._barren = 0
        self._announced = 0
        self._asking = 0.0  # seconds that the last batch was asked for
        self._until: float | None = None  # seconds of the clock by which builds should be done
        self.pace: float | None = None

    def size(self, left: float | None) -> int:
        """Candidates for the next round: a batch, cut to the trials and to the seconds (`left`) that remain."""
        size = self.settings.batch
        if (limit := self.settings.trial_limit) is not None:
            size = min(size, limit - self.tally.trials)
        if left is not None:
            if self.pace is None:
                size = min(size, 4) if left < 10 else size
            elif (asked := left - self._asking) < size * self.pace:
                size = max(int(asked / self.pace), min(size, len(self._held), int(left / self.pace)))
        return max(0, size)

    def play(self, size: int, left: float | None = None) -> bool:
        """One round of up to `size` candidates; False when the space is exhausted.

        A build may take no more than what is left of the seconds (`left`) when its job is made, or `LEAST_DEADLINE`.
        """
        self._until = None if left is None else self.clock.seconds + left
        before, began = self.tally.trials, self._working()
        held, self._held = self._held[:size], self._held[size:]
        asked = self._ask(size - len(held) + self._hold(size))
        if not self.number:
            self.shop.wait()  # workers start while the first candidates are chosen
        sent = self._build(held) if held else []
        candidates = asked.result()
        now = size - len(held)
        self._held += candidates[now:]
        if not held and not candidates:
            return False
        self.number += 1
        sent += self._build(candidates[:now])
        self._close_refused()
        if not sent:
            self._barren += 1
            return self._barren < BARREN_ROUNDS
        self._barren = 0
        for same in _layers([item for item in sent if self._is_new(item)]):
            self._measure([item for item in same if self._is_new(item)])
        took = (self._working() - began) / max(1, self.tally.trials - before)
        self.pace = took if self.pace is None else 0.5 * (took + self.pace)
        return True

    def _working(self) -> float:
        """Seconds that candidates have taken so far."""
        spent = self.clock.spent
        return spent["building"] + spent["measuring"]

    def _ask(self, count: int) -> Future[list[Candidate]]:
        """Ask in a thread of its own; until the result is there the study belongs to that thread."""
        if self.number:
            self.clock.enter("asking")

        def ask() -> list[Candidate]:
            if not count:
                return []
            began = time.monotonic()
            candidates = self.study.ask(count)
            self._asking = time.monotonic() - began
            return candidates

        return lasting_thread("stridesmith-ask").submit(ask)

    def _hold(self, size: int) -> int:
        """How many more than `size` to ask for, which are built in the round after; none after a short one."""
        held = int(HELD_SHARE * size) if size == self.settings.batch else 0
        limit = self.settings.trial_limit
        return held if limit is None else max(0, min(held, limit - self.tally.trials - size))

    def _build(self, candidates: list[Candidate]) -> list[_Sent]:
        """Send candidates to the builders; returns those that no schedule refused, with the builders' replies."""
        sent: list[_Sent] = []
        jobs = self._jobs(candidates, sent)
        self._say("building", len(candidates))
        self.clock.enter("building")
        replies = self.shop.build(jobs)
        self.clock.enter("asking")
        return [item for item, reply in zip(sent, replies, strict=True) if self._is_scheduled(item, reply)]

    def _is_scheduled(self, item: _Sent, reply: Reply) -> bool:
        """Take the builder's reply; a candidate that the builder's schedule refused was no trial.

        A build that only the end of the run stopped says nothing of its candidate.
        """
        if reply["status"] == "build_timeout" and "deadline" in item.job:
            reply = {**reply, "status": "infrastructure"}
        item.built = reply
        if "trace" in reply:
            item.record = item.record.changed(trace=reply["trace"])
        elif self.remote and reply["status"] == "refused":
            self.tally.trials -= 1
            self._refused.append((item.candidate, failed(item.record.changed(trial=-1), reply)))
            return False
        return True

    def _jobs(self, candidates: list[Candidate], sent: list[_Sent]) -> Iterator[dict[str, Any]]:
        """The jobs of candidates, each made when it is asked for and noted in `sent`."""
        for candidate in candidates:
            sketch = self.space.sketches[candidate.sketch]
            self._numbered += 1
            fault = self.settings.faults.get(self._numbered, "").split("+")[0] or None
            if self.remote:
                trace, job = None, drawn_job(self.task, sketch.name, candidate.choice, fault)
            else:
                trace = self._trace(candidate)
                if trace is None:
                    continue
                job = build_job(self.task, trace, fault)
            if self._until is not None and (left := self._until - self.clock.seconds) < Limits.build:
                job["deadline"] = max(LEAST_DEADLINE, left)
            self.tally.trials += 1
            record = self.new_record(trace, sketch.name, candidate.choice, self._numbered)
            sent.append(_Sent(candidate, record, job))
            yield job

    def _trace(self, candidate: Candidate) -> list[Any] | None:
        """The candidate's instructions; None where a schedule refuses it, which is told once nobody asks."""
        from ..space.errors import ScheduleError

        sketch = self.space.sketches[candidate.sketch]
        try:
            return sketch.trace(candidate.choice).to_json()
        except ScheduleError as error:
            record = self.new_record(None, sketch.name, candidate.choice, -1)
            reply = {"status": "refused", "message": printable(str(error))}
            self._refused.append((candidate, failed(record, reply)))
            return None

    def _close_refused(self) -> None:
        for candidate, record in self._refused:
            self._close(candidate, record, announced=False)
        self._refused.clear()

    def _is_new(self, item: _Sent) -> bool:
        """Whether a candidate is to be measured; one that did not build, or whose code is known, is closed."""
        if item.built["status"] != "ok":
            self._close(item.candidate, failed(item.record, item.built))
            return False
        twin = self._known.get(item.built["lowered_hash"])
        if twin is None or item.job["fault"]:
            return True
        self.tally.duplicates += 1
        if twin.ok:
            self._close(item.candidate, item.record.measured(list(twin.samples), twin.max_abs_error, "trial"))
        else:
            self._close(item.candidate, failed(item.record, {"status": twin.status, "message": twin.message}))
        return False

    def _measure(self, ready: list[_Sent]) -> None:
        """Measure one after the other; each result is told and stored as it comes."""

        def jobs() -> Iterator[dict[str, Any]]:
            for item in ready:
                fault = self.settings.faults.get(item.record.trial, "").partition("+")[2]
                best_us = self.tally.best_us
                yield measure_job(self.task, item.built, self.settings.seed, best_us, self.rival, fault or None)

        def done(index: int, reply: Reply) -> None:
            item = ready[index]
            if reply["status"] != "ok":
                lost = failed(item.record, reply)
                if lost.status in LASTING:
                    self._known[item.built["lowered_hash"]] = lost
                self._close(item.candidate, lost)
                return
            finished = item.record.measured(list(reply["samples"]), reply.get("max_abs_error"), "trial")
            self._known[item.built["lowered_hash"]] = finished
            self._close(item.candidate, finished)
            self._consider(item, finished)

        if not ready:
            return
        self._say("measuring", len(ready))
        self.clock.enter("measuring")
        self.shop.measure(jobs(), done)
        self.clock.enter("other")

    def _consider(self, item: _Sent, finished: Record) -> None:
        """Let the others take turns with this candidate from now on, where it is clearly faster than the rival.

        Latencies are relative to the first rival's where a rival can run along (see `backends.timing.in_turns`).
        Would each narrow, perhaps lucky winner become the rival, the luck of all would add up in what the others
        seem to take.
        """
        latency = finished.latency_us
        if latency is not None and (self.rival is None or latency * CLEARLY < self.rival.latency_us):
            self.rival = Rival(item.built, latency)

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


def _layers(items: list[_Sent]) -> list[list[_Sent]]:
    """Items in order: first one of each code, then those whose code is among them already.

    Items with a fault are all different.
    """
    first: dict[str, _Sent] = {}
    for number, item in enumerate(items):
        first.setdefault(f"{item.built['lowered_hash']}{number if item.job['fault'] else ''}", item)
    leading = list(first.values())
    return [leading, [item for item in items if item not in leading]]
