"""The tuning run: ask for candidates, build and measure them, keep records, and let the fastest race at the end.

```
tune(settings, emit)
  resolve    program, device, interface          `task`
  prepare    database, workers, space, study     `_Run.__init__`
  rounds     ask -> build -> measure -> tell     `_Run.search`, `rounds.Rounds`
  finish     race -> record -> "done"            `_Run.finish`
```

`emit` takes the JSON events of the interface as dicts: ``start``, ``phase``, ``note``,
``round``, ``trial`` and at last ``done``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import Interrupted, NoSchedule, UsageError, WrongResult
from . import final
from .clock import Clock
from .ledger import Ledger, Tally
from .records import FAILURES, Record, script_hash
from .report import mirror_name, mirror_place, start_event, versions
from .rounds import Rounds
from .settings import TuneSettings
from .task import Roof, Task, performance, resolve

if TYPE_CHECKING:
    from ..ir.stmt import PrimFunc
    from ..ir.target import Target
    from ..space.design.space import Space
    from .database import Database
    from .study import Study

Emit = Callable[[dict[str, Any]], None]
Generator = Callable[["PrimFunc", "Target", "Mapping[str, str]"], "Space"]
ROOF_SECONDS = 1.6  # what a race takes beside builds and racing: fresh data, and the device's limits
SPARE_SECONDS = 1.4  # what is left when the last event has been sent: Ray and the interpreter end
RACE_SHARE, END_SHARE = 0.1, 0.25
FRESH_SEED = 1_000_003
MODEL_THREADS = 1  # a round is ranked in a second; on a busy machine OpenMP's waiting threads make that twenty


def tune(
    settings: TuneSettings,
    emit: Emit | None = None,
    shop: final.Shop | None = None,
    generate: Generator | None = None,
) -> Record:
    """Search for a fast kernel; returns the record that the ``done`` event names.

    `shop` builds and measures, by default on Ray (`search.executor.Executor`); `generate`
    makes the design space of a program, by default `space.space.generate`.
    Raises the errors of the exit codes: among them Interrupted after Ctrl-C, when
    what was found is kept, and NoSchedule when no candidate was valid.
    """
    clock = Clock(settings.start)
    send = emit or _silent
    task = resolve(settings)
    shop = shop or _executor(settings, task, remote=generate is None)
    try:
        from .database import Database  # while Ray starts

        with contextlib.closing(Database(settings.db)) as database:
            send(start_event(settings, task, database))
            run = _Run(settings, task, database, shop, clock, send, generate)
            return run.finish(run.search())
    except KeyboardInterrupt:
        raise Interrupted("interrupted before anything was measured") from None
    finally:
        with _uninterrupted():
            shop.close()


class _Run:
    """One tuning run: its parts, and what it has come to know."""

    def __init__(
        self,
        settings: TuneSettings,
        task: Task,
        database: Database,
        shop: final.Shop,
        clock: Clock,
        send: Emit,
        generate: Generator | None,
    ) -> None:
        self.settings, self.task, self.database, self.shop = settings, task, database, shop
        self.clock, self.send, self.generate = clock, send, generate
        self.ledger = Ledger(database)
        self.tally = Tally()
        self.name = f"{os.getpid()}-{os.urandom(4).hex()}"
        self.versions = versions(task)
        self.baseline: Record | None = None
        self.baseline_due = True
        self.roof: Roof | None = None
        self.study: Study | None = None
        self.rounds: Rounds | None = None

    def search(self) -> str:
        """Measure candidates until a limit is reached; says which one."""
        try:
            for note in self.database.notes:
                self.send({"event": "note", "message": note})
            space = self._space()
            self.study = self._study(space)
            self.rounds = Rounds(
                self.settings, self.task, space, self.study, self.shop, self.ledger, self.tally, self.clock,
                self._record, self.send, remote=self.generate is None,
            )  # fmt: skip
            if self.settings.stop_at is not None:
                self._measure_limits()
            self.send({"event": "phase", "phase": "searching"})
            return self._loop(self.rounds)
        except KeyboardInterrupt:
            return "interrupt"

    def finish(self, stopped_by: str) -> Record:
        """Race the fastest, store the outcome, send ``done``; returns the winner."""
        outcome = final.Race([])
        if stopped_by != "interrupt":
            try:
                with self.clock.during("race"):
                    outcome = self._race()
            except KeyboardInterrupt:
                stopped_by = "interrupt"
        with _uninterrupted(), self.clock.during("other"):
            self._mirror()
            winner = outcome.records[0] if outcome.records else self._best_so_far()
            if winner is None or winner.latency_us is None:
                self.ledger.flush()
                self._give_up(stopped_by, outcome.problem)
            assert winner is not None
            self.ledger.flush()
            self.send(self._done(stopped_by, winner, outcome))
        if stopped_by == "interrupt":
            raise Interrupted(f"interrupted; the best so far is record {winner.id} in {self.database.name}")
        return winner

    def _space(self) -> Space:
        from ..space.design.space import generate

        self.send({"event": "phase", "phase": "deriving the design space"})
        return (self.generate or generate)(self.task.work.func, self.task.target, self.task.interface)

    def _study(self, space: Space) -> Study:
        from .study import Study

        try:
            study = Study(
                space, self.settings.sampler, self.settings.seed % 2**32, pins=self.settings.pins,
                nthread=MODEL_THREADS, batch=self.settings.batch,
            )  # fmt: skip
        except ValueError as error:
            raise UsageError(str(error)) from None
        if self.settings.resume:
            stored = self.database.records(self.task.script, self.task.target, self.task.interface)
            count = study.seed_records(stored)
            if count:
                self.send({"event": "note", "message": f"{count} stored measurements feed the model"})
        return study

    def _measure_baseline(self) -> None:
        """Build, verify and time the program as it was written.

        Not before there is a first candidate, by which it may turn out to be so slow that one call is enough.
        """
        self.baseline_due = False
        self.send({"event": "phase", "phase": "measuring the untuned program"})
        reply = built = self.shop.build([final.build_job(self.task, None)])[0]
        if built["status"] == "ok":
            rival = self.rounds.rival if self.rounds is not None else None
            job = final.measure_job(self.task, built, self.settings.seed, self.tally.best_us, rival)
            reply = self.shop.measure([job])[0]
        if reply["status"] == "wrong":
            raise WrongResult(
                f"the untuned program of {self.task.work} on {self.task.target.key} differs from its reference, "
                f"so that no result could be trusted: {reply.get('message', '')}"
            )
        if reply["status"] == "ok":
            self.baseline = self._record(None, "untuned", (), -1).measured(
                list(reply["samples"]), reply.get("max_abs_error"), "trial"
            )
        else:
            message = f"the untuned program was not measured: {reply['status']}: {reply.get('message', '')}"
            self.send({"event": "note", "message": message})
        self.send({"event": "phase", "phase": "searching", "baseline_us": self._baseline_us()})

    def _measure_limits(self) -> None:
        """What the device can do: `stop_at` needs it from the start, all else has it from the race."""
        self.send({"event": "phase", "phase": "measuring the device's limits"})
        job = {"job": "limits", "target": self.task.target.to_json(), "dtype": self.task.work.dtype}
        reply = self.shop.measure([job])[0]
        if reply["status"] == "ok":
            self.roof = Roof(float(reply["peak_gflops"]), float(reply["bandwidth"]))

    def _loop(self, rounds: Rounds) -> str:
        stopped_by = None
        while stopped_by is None:
            stopped_by = self._play(rounds)
            if self.baseline_due:
                with self.clock.during("baseline"):
                    self._measure_baseline()
        return stopped_by

    def _play(self, rounds: Rounds) -> str | None:
        """One round; why it was the last one or none could be played, if so."""
        if reason := self._limit():
            return reason
        left = self._left()
        size = rounds.size(left)
        if size == 0:
            return "seconds"
        if not rounds.play(size, left):
            return "exhausted"
        self.send(self._round_event(rounds))
        for note in self.ledger.notes:
            self.send({"event": "note", "message": note})
        self.ledger.notes.clear()
        return None

    def _limit(self) -> str | None:
        """Which limit has been reached."""
        settings, best = self.settings, self.tally.best_us
        if settings.trial_limit is not None and self.tally.trials >= settings.trial_limit:
            return "trials"
        if (left := self._left()) is not None and left <= 0:
            return "seconds"
        if settings.stop_at is not None and best is not None and self.roof is not None:
            return "target" if self.roof.fraction(self.task, best) >= settings.stop_at else None
        return None

    def _left(self) -> float | None:
        """Seconds that rounds may still use, None without a limit; the end of the run has its own share."""
        limit = self.settings.seconds
        if limit is None:
            return None
        again = self.settings.finalists * ((self.rounds and self.rounds.pace) or 0.0)
        end = min(self._race_seconds() + again + ROOF_SECONDS + SPARE_SECONDS, END_SHARE * limit)
        return limit - self.clock.seconds - end

    def _race_seconds(self) -> float:
        limit = self.settings.seconds
        return self.settings.race_seconds if limit is None else min(self.settings.race_seconds, RACE_SHARE * limit)

    def _round_event(self, rounds: Rounds) -> dict[str, Any]:
        assert self.study is not None
        metrics = self.study.rank_metrics
        last = metrics[-1] if metrics else None
        return {
            "event": "round",
            "round": rounds.number,
            "trials": self.tally.trials,
            "best_us": self.tally.best_us,
            "baseline_us": self._baseline_us(),
            "failed": dict(self.tally.failed),
            "duplicates": self.tally.duplicates,
            "rank_correlation": last.spearman if last else None,
            "top_k_recall": last.top_k_recall if last else None,
            "peak_gflops": self.roof.peak_gflops if self.roof else None,
            "seconds": self.clock.seconds,
        }

    def _race(self) -> final.Race:
        """Race until what the database calls the best has been in the race with everything faster."""
        self.send({"event": "phase", "phase": "final race"})
        assert self.rounds is not None
        outcome = final.Race([])
        raced: dict[str, Record] = {}
        for attempt in range(3):
            records = self._finalists(raced)
            if not records:
                break
            seed = (self.settings.seed + FRESH_SEED * (attempt + 1)) % 2**31
            seconds, untuned = self._race_seconds(), self._untuned_races(records)
            last = final.race(self.shop, self.task, records, seed, seconds, untuned)
            self._keep(last)
            self._admit_untuned(last)
            raced.update((record.id, record) for record in last.records)
            for record in last.failed:
                raced.pop(record.id, None)
            outcome = last if last.records else outcome.without(last.failed, last.problem)
            if not last.failed and self._settled(outcome):
                break
        return outcome

    def _untuned_races(self, records: list[Record]) -> bool:
        """Whether the untuned program runs along: not when it was far slower than these."""
        mine, fastest = self._baseline_us(), min(r.latency_us or 0.0 for r in records)
        return mine is not None and mine <= final.FAR_SLOWER * fastest

    def _finalists(self, raced: dict[str, Record]) -> list[Record]:
        """The fastest programs of this run, and of what the database has.

        Of records with the very same samples only one runs: candidates that came out as the same code.
        """
        assert self.rounds is not None
        count = self.settings.finalists
        chosen = _fastest(self.rounds.good.values(), count)
        if self.settings.resume:
            stored = self.database.top(self.task.script, self.task.target, self.task.interface, count)
            chosen += _fastest(stored, count)
        chosen += _fastest(raced.values(), 1)
        return _fastest({record.id: record for record in chosen}.values(), len(chosen))

    def _keep(self, outcome: final.Race) -> None:
        """Store what the race found, the untuned program too when it is among the fastest."""
        assert self.rounds is not None
        for record in outcome.failed:
            self.rounds.good.pop(record.id, None)
            self.tally.failed[record.failure or "infrastructure"] += 1
        self.rounds.good.update((r.id, r) for r in outcome.records if r.run == self.name)
        self.roof = outcome.roof or self.roof
        self.ledger.put([*outcome.records, *outcome.failed])

    def _admit_untuned(self, outcome: final.Race) -> None:
        """Where no candidate beats the untuned program, that is the schedule to keep."""
        if outcome.baseline_us is None or not outcome.records or not self.baseline:
            return
        if outcome.baseline_us < (outcome.records[0].latency_us or 0.0):
            record = self._record(None, "untuned", (), -1).measured(
                outcome.baseline_samples, self.baseline.max_abs_error, "race"
            )
            record = record.changed(id=script_hash(f"untuned|{mirror_name(self.task)}")[:16])
            outcome.records.insert(0, record)
            self.ledger.put([record])

    def _settled(self, outcome: final.Race) -> bool:
        """True when the database's best is one of those that raced."""
        if not self.settings.resume or not outcome.records:
            return True
        best = self.database.best(self.task.script, self.task.target, self.task.interface)
        return best is None or best.id in {record.id for record in outcome.records}

    def _best_so_far(self) -> Record | None:
        """Without a race: the best of the trials, or what was stored before."""
        best = _fastest(self.rounds.good.values(), 1) if self.rounds is not None else []
        if best or not self.settings.resume:
            return best[0] if best else None
        return self.database.best(self.task.script, self.task.target, self.task.interface)

    def _give_up(self, stopped_by: str, problem: str) -> None:
        failures = ", ".join(f"{kind} {count}" for kind, count in self.tally.failed.items() if count)
        found = f"of {self.tally.trials} candidates none was valid ({failures or 'none was tried'})"
        if stopped_by == "interrupt":
            raise Interrupted(f"interrupted; {found}")
        cause = f"; {problem}" if problem else ""
        raise NoSchedule(f"no schedule of {self.task.work} on {self.task.target.key}: {found}{cause}")

    def _mirror(self) -> None:
        """Copy the trials to Optuna's own storage beside the database, for its plots and dashboard."""
        if not self.settings.mirror or self.study is None:
            return
        try:
            self.study.mirror(mirror_place(self.database), mirror_name(self.task))
        except Exception as error:  # a convenience for other tools must not cost the run its result
            self.send({"event": "note", "message": f"the Optuna study was not mirrored: {error}"})

    def _done(self, stopped_by: str, winner: Record, outcome: final.Race) -> dict[str, Any]:
        assert winner.latency_us is not None
        return {
            "event": "done",
            **self.task.identity(),
            "latency_us": winner.latency_us,
            **performance(self.task, winner.latency_us, self.roof),
            "baseline_us": outcome.baseline_us or self._baseline_us(),
            "trials": self.tally.trials,
            "failed": {kind: self.tally.failed[kind] for kind in FAILURES},
            "duplicates": self.tally.duplicates,
            "seconds": self.clock.seconds,
            "activities": self.clock.spent,
            "stopped_by": stopped_by,
            "sampler": self.settings.sampler,
            "seed": self.settings.seed,
            "verified": winner.verified,
            "max_abs_error": winner.max_abs_error,
            "record": winner.id,
            "db": self.database.name,
            "nodes": self.shop.nodes(),
        }

    def _baseline_us(self) -> float | None:
        return None if self.baseline is None else self.baseline.latency_us

    def _record(self, trace: list[Any] | None, sketch: str, choice: tuple[int, ...], trial: int) -> Record:
        """A record of this run, not measured yet: it fails as `infrastructure` until something is known."""
        return Record(
            script=self.task.script, workload=self.task.work.name, params=dict(self.task.work.params),
            dtype=self.task.work.dtype, interface=dict(self.task.interface),  # type: ignore[arg-type]
            target=self.task.target.to_json(), trace=trace, sketch=sketch, choice=list(choice), trial=trial,
            space_version=self._space_version, seed=self.settings.seed, run=self.name, versions=self.versions,
            status="infrastructure",
        )  # fmt: skip

    @property
    def _space_version(self) -> int:
        return 0 if self.study is None else self.study.space.version


def _fastest(records: Iterable[Record], count: int) -> list[Record]:
    """The fastest of `records`, no two with the same samples."""
    distinct = {tuple(record.samples): record for record in records}
    return sorted(distinct.values(), key=lambda record: record.latency_us or 0.0)[:count]


def _executor(settings: TuneSettings, task: Task, remote: bool) -> final.Shop:
    """Workers that do already, while others start, what they all need first; builders where they draw candidates."""
    from .executor import Executor

    expected = {"measure": {"workload": task.job_workload, "seed": settings.seed}}
    if remote:
        expected["build"] = final.derive_job(task)
    return Executor(settings.address, task.target.threads, expected=expected)


def _silent(event: dict[str, Any]) -> None:
    """Nobody is listening."""


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits: what was found is being stored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
