"""Several tasks that share one budget: seconds go where a model's next gain is expected.

```
first     every task that nothing is known of: a few candidates, of its relatives and that the estimate likes;
          where there is no time for that, one candidate of each, all in one batch, and the untuned programs of the rest
turns     ask for the task of the next turn while the candidates of this one are built; measure; choose again
finish    every task whose fastest candidate is new: a short race
```

A `Guide` may change the weights between turns, and bring new tasks: those of a model whose layouts are being chosen.

The gain of a turn is that of the task's latency times its weight, the number of times that a model calls it.  It is
expected from what the last turns of the task gained, and from how far the task is from its roof.  All tasks share the
workers.  A task's candidates are ordinary records, so that a later run for any of them goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Protocol

from ...errors import DeviceLost, StorageError, TemporaryError
from ...ir.deadline import OutOfTime, until
from ..records.spool import take_up
from ..records.status import tells_nothing
from ..records.writer import RecordWriter
from ..tasks.task import Roof, Task, peak_dtypes
from ..workers import kernel_cache
from ..workers.protocol import Build, Built, Failed, Measure, MeasureRoof, Roofed, to_text
from . import clock as clocks
from . import events
from .budget import LONG_SECONDS, Budget
from .clock import Clock
from .events import Emit, Event
from .interruption import error_of
from .loop import Loop, Trial, build_all
from .mirror import mirror_round
from .race import final_race, untuned_id
from .run import Results, Run, of_this_driver
from .settings import settings
from .share import BATCH, FIRST, FIRST_SECONDS, LEAST_SECONDS, Share
from .study import Study
from .transfer import Transfer

if TYPE_CHECKING:
    from ..candidates.search_space import Candidate
    from ..records.database import Database
    from ..workers.executor import Executor

FIRST_MS = 25.0  # for which each of these is timed: they say what the task takes, not which of two is faster by little
ELSEWHERE = 1  # schedules that other devices found for a task, which are tried in its first turn
RACE_SECONDS, FINALISTS = 0.25, 2
RACE_COST, RACE_SHARE = 1.2, 0.1  # what a race takes in all, until one has been run; all races take at most this share
SHORT_RACE_SHARE, RACE_TURNS = 0.03, 1.5  # and at most this one until half of the tasks have had so many turns
PLAYING = 2.0  # how much more than any other the task in play must be worth to be played again at once
HURRIED_SHARE = 0.6  # of what is left, which first turns may take: else what has had none is played so
FIRST_SHARE = 0.4  # of what is left, which one first turn may take while others wait for theirs
UNTUNED_COST = 0.15  # seconds that are left for each task without a kernel, to compile it as it was written
DERIVING_SHARE = 0.2  # of what is left, for the design space of a task and its features
SPARE_SECONDS = 1.0  # what is left for the caller at the end, unless it says what it needs


class Guide(Protocol):
    """Says which tasks are needed, and how often, by what is known of all of them."""

    def revise(self, scheduler: Scheduler) -> None:
        """Between turns, and once before the races: set weights, 0 for what is not needed, and add tasks."""

    def predicted_us(self, scheduler: Scheduler) -> float | None:
        """What the whole takes by what is known; None while nothing whole is."""


class TurnBudget(Budget):
    """What a turn may use of the seconds that all tasks share: what is left, until the clock shows `end`."""

    def __init__(self, run: Run, scheduler: Scheduler) -> None:
        super().__init__(run)
        self.scheduler, self.end = scheduler, inf

    def left(self) -> float:
        """Seconds that the turn may still use."""
        return min(self.scheduler.left(), self.end - self.scheduler.clock.seconds)

    @property
    def ending(self) -> float:
        """Seconds for the races."""
        return self.scheduler.racing()


@dataclass(frozen=True)
class Terms:
    """How tasks are tuned together: from a `seed`, sending events, and with the last `ending` seconds left over."""

    seed: int = 0
    emit: Emit | None = None
    ending: float = SPARE_SECONDS


ALONE = Terms()


class Scheduler:
    """One run for several tasks of one device, each with a weight, by the seconds of a `clock` that has a limit."""

    def __init__(
        self,
        tasks: Sequence[tuple[Task, int]],
        database: Database,
        executor: Executor,
        clock: Clock,
        terms: Terms = ALONE,
        guide: Guide | None = None,
    ) -> None:
        self.database, self.executor, self.emit, self.seed = database, executor, terms.emit, terms.seed
        self.guide = guide
        assert clock.limit is not None
        self.clock, self.limit, self.ending = clock, clock.limit, terms.ending
        self.roof: Roof | None = None
        self.turn = 0
        self.is_ending = False
        self.guided = 0.0  # seconds of the guide's, which no task is charged with
        self.race_cost, self.crowding = RACE_COST, clocks.crowding()
        self.is_whole = False  # whether all that is needed has a kernel, when that was looked at last
        self.writer = RecordWriter(database)
        self.transfer = Transfer(database)
        self.shares: list[Share] = []
        for task, weight in tasks:
            self.add(task, weight)

    def play(self) -> str:
        """Tune until the seconds are over or nothing is left to try; says which.

        Raises Interrupted after Ctrl-C, and DeviceLost.
        """
        stopped_by = "interrupt"
        unsaved: str | None = None
        self.executor.until = self._end()
        try:
            self._start()
            stopped_by = self._turns()
            self.is_ending = True
            if self.guide is not None:
                self.guide.revise(self)
            with self.clock.during("race"):
                self._races()
            self._keep_compiled()
            self.writer.settle(max(self._seconds_left(), 0.0))
            return stopped_by
        except DeviceLost as error:
            stopped_by, unsaved = "device", self._flush()
            raise DeviceLost(f"{error}{unsaved}") from None
        except KeyboardInterrupt as interrupt:
            unsaved = self._flush()
            raised = error_of(interrupt)
            raise raised(f"interrupted; what was measured so far is in {self.database.name}{unsaved}") from None
        finally:
            self.executor.until = None
            if unsaved is None and (unsaved := self._flush()):
                self._send(events.Note(message=unsaved.removeprefix("; ")))
            if not unsaved:
                self._keep_facts(stopped_by)

    def add(self, task: Task, weight: int) -> Share:
        """A task besides those that there are."""
        self.shares.append(Share(len(self.shares), self._run(task), weight, self._known(task)))
        return self.shares[-1]

    @property
    def predicted_us(self) -> float | None:
        """What the guide predicts, else the tasks' best times, each times its weight; None while a task has none."""
        if self.guide is not None:
            return self.guide.predicted_us(self)
        found = [(share.weight, share.best_us) for share in self.shares]
        known = [weight * us for weight, us in found if us is not None]
        return sum(known) if len(known) == len(found) else None

    @property
    def trials(self) -> int:
        """Candidates that were sent to builders."""
        return sum(share.run.results.trials for share in self.shares)

    # --- turns ------------------------------------------------------------------------------------

    def _turns(self) -> str:
        """Every new task once, then whatever is expected to gain most."""
        by_work = sorted(self.shares, key=lambda share: -share.weight * share.run.task.work.flops)
        waiting = [share for share in by_work if share.known_us is None]  # so that a short run has the best of it
        if self._is_late(waiting):
            self._hurry(waiting)
            waiting = []
        share = self._choose(waiting)
        candidates = [] if share is None else self._ask(share).result()
        while share is not None:
            if self.left() <= 0 and self.turn:  # what is built already is measured, however late it is
                self._measure_untuned(self._lacking())
                return "seconds"
            if self._is_late(waiting):
                self._hurry(waiting)
                waiting.clear()
            all_begun = not waiting
            share, candidates = self._play(share, candidates, waiting)
            if all_begun:  # before, what the start of more workers takes would delay the first whole
                self.executor.scale_up(pays=self.left() > LONG_SECONDS)
        return "exhausted"

    def _is_late(self, waiting: Sequence[Share]) -> bool:
        """Whether first turns of all that wait for one would take more than their share of what is left."""
        begun = [share.seconds for share in self.shares if share.played and share.known_us is None and share.loop]
        each = sum(begun) / len(begun) if begun else FIRST_SECONDS * self.crowding
        return bool(waiting) and len(waiting) * each > HURRIED_SHARE * self.left()

    def _hurry(self, waiting: Sequence[Share]) -> None:
        """Try one candidate of each task in one batch, and the untuned program of tasks that have no kernel after it.

        Candidates are asked for while others are built.
        """
        began, spent = self.clock.seconds, self.clock.spent
        self._send(events.Phase(phase=f"compiling {len(waiting)} programs as they were written"))
        self._compile_untuned(waiting)
        end = self.clock.seconds + HURRIED_SHARE * self.left()

        def candidates() -> Iterator[tuple[Loop, Candidate]]:
            for number, share in enumerate(waiting):
                if (left := end - self.clock.seconds) < 0:
                    return
                deadline = time.monotonic() + min(left, left / (len(waiting) - number) + LEAST_SECONDS)
                loop = self._loop_of(share, deadline)
                if loop is not None:
                    for candidate in loop.ask(1, deadline=deadline).result():
                        yield loop, candidate

        self._send(events.Phase(phase=f"one candidate of each of {len(waiting)} tasks"))
        self.executor.until = time.monotonic() + max(self.left(), 0.0)
        trials: dict[Loop, list[Trial]] = {}
        for loop, trial in build_all(waiting[0].run, candidates()):
            trials.setdefault(loop, []).append(trial)
        for share in waiting:
            if share.loop is not None and share.loop in trials:
                share.turns += 1 / BATCH
                share.loop.repeat_ms = FIRST_MS
                share.loop.measure(trials[share.loop])
                share.played = share.turns
        lacking = [share for share in waiting if share.best_us is None]
        if self.left() > 0:
            self._measure_untuned(lacking)
        else:  # what the estimate likes will run: the untuned program would be the slower one that has a record
            for share in lacking:
                replies = [trial.reply for trial in trials.get(share.loop, ())] if share.loop is not None else []
                share.is_given_up = any(isinstance(reply, Built) for reply in replies)
        each = (self.clock.seconds - began) / len(waiting)
        waiting[0].spend(spent, self.clock.spent)
        for share in waiting:
            share.seconds += each
            self._tell(share, share.weight)

    def _play(
        self, share: Share, candidates: list[Candidate], waiting: list[Share]
    ) -> tuple[Share | None, list[Candidate]]:
        """Play one turn and prepare the next; return the next turn's task and candidates."""
        weight, guided = share.weight, self.guided  # before a guide changes them
        before, began, spent, loop = share.best_us, self.clock.seconds, self.clock.spent, share.loop
        share.turns += max(1, len(candidates)) / BATCH
        share.is_exhausted = not candidates
        if loop is not None and isinstance(loop.budget, TurnBudget):
            is_one_of_many = before is None and waiting
            loop.budget.end = self.clock.seconds + FIRST_SHARE * self.left() if is_one_of_many else inf
        is_last = before is None and not waiting and not self.is_whole  # nothing is to delay that the whole is known
        follows = None if is_last else self._choose(waiting, share)
        asked = None if follows in (None, share) else self._ask(follows)
        trials = [] if loop is None else loop.build(candidates)
        found = [] if asked is None else asked.result()  # nothing computes here while kernels are measured
        if loop is not None:
            loop.repeat_ms = FIRST_MS if before is None else Measure.repeat_ms
            loop.measure(trials)
            if before is None:
                loop.try_elsewhere(ELSEWHERE)
            mirror_round(share.run, loop.study)
        if share.best_us is None:
            self._measure_untuned([share])
        share.played = share.turns
        share.seconds += self.clock.seconds - began - (self.guided - guided)
        share.spend(spent, self.clock.spent)
        if before is not None and share.best_us is not None:
            share.gains.append(before - share.best_us)
        self._tell(share, weight)
        if is_last:
            follows = self._choose(waiting)
        if follows is not None and (is_last or follows is share):  # what was measured just now says what to try next
            found = self._ask(follows).result()
        return follows, found

    def _choose(self, waiting: list[Share], playing: Share | None = None) -> Share | None:
        """The task of the next turn; the task that is `playing` again only where its results are worth waiting for."""
        if waiting:
            return waiting.pop(0)
        if self.guide is not None and self.left() > 0:
            began = self.clock.seconds
            self._send(events.Phase(phase="choosing what to tune"))
            self.guide.revise(self)
            self.guided += self.clock.seconds - began
        if self.roof is None and self.left() > 0:
            self._measure_roof()
        open_shares = [s for s in self.shares if s.weight and not s.is_exhausted and not s.is_given_up]

        def worth(share: Share) -> float:
            return share.expected(self.roof) / (PLAYING if share is playing else 1.0)

        return max(open_shares, key=worth, default=None)

    def _ask(self, share: Share) -> Future[list[Candidate]]:
        """Candidates for the next turn of a task; none where its space has no more, or no time is left."""
        left = self.left()
        deriving = time.monotonic() + max(DERIVING_SHARE * left, min(LEAST_SECONDS, left))
        if left <= 0 or (loop := self._loop_of(share, deriving)) is None:
            nothing: Future[list[Candidate]] = Future()
            nothing.set_result([])
            return nothing
        return loop.ask(FIRST if share.best_us is None else BATCH)

    def _loop_of(self, share: Share, deadline: float) -> Loop | None:
        """The search of a task; None where its space has nothing, or could not be derived by `deadline`."""
        if share.loop is None and not share.is_exhausted:
            self._send(events.Phase(phase=f"deriving the design space of {share.run.task.work.name}"))
            try:
                with until(deadline):
                    share.loop = self._loop(share)
            except OutOfTime:
                share.run.note(f"{share.run.task.work}: its design space could not be derived in time")
        return share.loop

    def _loop(self, share: Share) -> Loop | None:
        from ...space.design.space import generate

        run = share.run
        space = generate(run.task.work.func, run.task.target, run.task.interface)
        if not space.sketches:
            return None
        study = Study(space, seed=self.seed % 2**32, batch=BATCH, transferred=self.transfer.of(run.task))
        self.transfer.add(run.task.script)
        try:
            records = self.database.records(run.task.script, run.task.target, run.task.interface)
        except (TemporaryError, StorageError) as error:
            run.note(f"{run.task.work}: the search begins without what is stored of it: {error}")
            records = []
        share.stored += study.seed_records(of_this_driver(records, run.task)) / BATCH
        return Loop(run, study, builders_schedule=True, budget=TurnBudget(run, self))

    def left(self) -> float:
        """Seconds that turns may still use."""
        uncompiled = sum(share.untuned is None for share in self._lacking())
        return self._seconds_left() - self.racing() - UNTUNED_COST * self.crowding * uncompiled

    def _lacking(self) -> list[Share]:
        """The tasks that a whole needs and that have no kernel yet."""
        if self.is_whole:
            return []
        return [s for s in self.shares if s.weight and s.best_us is None and not s.is_given_up]

    def racing(self) -> float:
        """Seconds for the races that there are to be."""
        news = sum(share.is_new for share in self.shares if share.weight)
        return min(news * self.race_cost, self._race_share() * self.limit)

    def _seconds_left(self) -> float:
        """Seconds until the caller has its own."""
        left = self.clock.left
        assert left is not None
        return left - self.ending

    def _end(self) -> float:
        """The time (`time.monotonic`) at which waiting ends; half of what the caller needs for its end is left then."""
        return time.monotonic() + self._seconds_left() + 0.5 * self.ending

    def _race_share(self) -> float:
        """The share of the seconds that races may take: less while turns still gain more than a race can decide."""
        turns = sorted(share.played + share.stored for share in self.shares if share.weight)
        return RACE_SHARE if turns and turns[len(turns) // 2] >= RACE_TURNS else SHORT_RACE_SHARE

    def _compile_untuned(self, shares: Sequence[Share]) -> None:
        """Compile programs as they were written, and keep the code: whatever comes, a whole can be made of it."""
        jobs = [Build(script=share.run.task.script, target=share.run.task.target) for share in shares]
        self.executor.until = self._end()
        for share, job, reply in zip(shares, jobs, self.executor.build(jobs) if jobs else (), strict=True):
            share.untuned = reply
            if isinstance(reply, Built):
                kernel_cache.store(to_text(job), reply)

    def _measure_untuned(self, shares: Sequence[Share]) -> None:
        """Measure the untuned program of each task: where no candidate was valid it is the only kernel."""
        self._compile_untuned([share for share in shares if not isinstance(share.untuned, Built)])
        done = [(share, share.untuned) for share in shares if isinstance(share.untuned, Built)]
        measured = iter(self.executor.measure(
            Measure(kernel=built.kernel, work=s.run.task.name, seed=self.seed, called=s.run.task.called)
            for s, built in done
        ) if done else ())  # fmt: skip
        for share in shares:
            run, found = share.run, share.untuned
            outcome = next(measured) if isinstance(found, Built) else found
            assert outcome is not None
            if isinstance(outcome, Failed):
                run.note(f"{run.task.work}: no candidate was valid, and the untuned program failed: {outcome.message}")
                share.is_given_up = tells_nothing(outcome.kind)
                continue
            record = run.record().measured(outcome.samples, outcome.max_abs_error, "trial")
            share.untuned_us = record.latency_us
            self.writer.put([record.changed(id=untuned_id(run.task))])

    def _measure_roof(self) -> None:
        """What the device can do, once: how much there is to gain."""
        self._send(events.Phase(phase="measuring the device's limits"))
        self.executor.until = time.monotonic() + max(self.left(), 0.0)
        tasks = [share.run.task for share in self.shares]
        job = MeasureRoof(target=tasks[0].target, dtype="float32", also=peak_dtypes(task.work for task in tasks))
        reply = self.executor.measure([job])[0]
        self.roof = reply.roof if isinstance(reply, Roofed) else Roof(0.0, 0.0)

    # --- the end ----------------------------------------------------------------------------------

    def _races(self) -> None:
        """Race the fastest of each task that has news, those with most to say first, while there is time."""
        news = [share for share in self.shares if share.weight and share.is_new]
        end = self.clock.seconds + min(self._race_share() * self.limit, self._seconds_left() + 0.5 * self.ending)
        for share in sorted(news, key=lambda share: -share.undecided_us):
            began, spent = self.clock.seconds, self.clock.spent
            if began + self.race_cost > end:
                share.run.note("no time is left to race the fastest of every task; the others keep their trials")
                return
            outcome = final_race(share.run, roof=False, deadline=self._end())
            if outcome.records:
                share.raced_us = outcome.records[0].latency_us
            elif outcome.problem:
                share.run.note(f"{share.run.task.work}: there was no race, its trials stand: {outcome.problem}")
            for job, built in outcome.built:  # a model is made of winners
                kernel_cache.store(to_text(job), built)
            self.race_cost = 0.5 * (self.race_cost + self.clock.seconds - began)
            share.spend(spent, self.clock.spent)
            self._tell(share, share.weight, raced=True)

    def _keep_compiled(self) -> None:
        """Keep the code of each task's fastest candidate that has not raced: a model is made of it."""
        for share in self.shares:
            if share.weight and share.raced_us is None and share.loop is not None and share.loop.best is not None:
                task, (record, built) = share.run.task, share.loop.best
                job = Build(script=task.script, target=task.target, trace=record.trace)
                kernel_cache.store(to_text(job), replace(built, trace=None))

    # --- surroundings -----------------------------------------------------------------------------

    def _flush(self) -> str:
        """Write what waits; where the database refuses it, where it is instead, as the end of a sentence."""
        try:
            self.writer.flush()
        except (TemporaryError, StorageError) as problem:
            return f"; {problem}"
        return ""

    def _keep_facts(self, stopped_by: str) -> None:
        """Store the facts of each task's run; stop at the first that the database refuses."""
        for share in self.shares:
            share.run.results.roof = self.roof and self.roof.of(share.run.task.work)
            if share.run.results.closed and not share.run.keep_facts(stopped_by, activities=share.spent):
                return

    def _run(self, task: Task) -> Run:
        asked = settings(
            script=task.script, target=task.target, seconds=self.limit, seed=self.seed, batch=BATCH,
            finalists=FINALISTS, race_seconds=RACE_SECONDS, interface=dict(task.interface),
        )  # fmt: skip
        results, timeline = Results(self.writer), self.executor.timeline
        return Run(asked, task, self.database, self.executor, self.clock, results, self._pass_on, timeline)

    def _known(self, task: Task) -> float | None:
        try:
            found = self.database.best(task.script, task.target, task.interface)
        except (TemporaryError, StorageError):
            return None  # it is tuned as if it were new; what is found is stored when the database is back
        return None if found is None else found.latency_us

    def _pass_on(self, event: Event) -> None:
        """Send the events of a task that concern the user of all tasks."""
        if isinstance(event, events.Note | events.Phase):
            self._send(event)

    def _send(self, event: Event) -> None:
        if self.emit is not None:
            self.emit(event.to_json())

    def _start(self) -> None:
        first = self.shares[0].run.task.target
        rows = [
            {**share.run.task.identity(), "weight": share.weight, "best_us": share.best_us} for share in self.shares
        ]
        self._send(
            events.Schedule(
                tasks=rows,
                device=first.name,
                threads=first.threads,
                limit_seconds=self.limit,
                seed=self.seed,
                predicted_us=self.predicted_us,
                db=self.database.name,
            )
        )
        for note in (*self.database.notes, *take_up(self.database)):
            self._send(events.Note(message=note))
        self.database.notes.clear()

    def _tell(self, share: Share, weight: int, raced: bool = False) -> None:
        self.turn += 1
        share.run.tell_notes()
        predicted_us = self.predicted_us
        self.is_whole = predicted_us is not None
        self._send(
            events.Turn(
                **share.run.task.identity(),
                turn=self.turn,
                task=share.number,
                weight=weight,
                best_us=share.best_us,
                predicted_us=predicted_us,
                trials=self.trials,
                seconds=self.clock.seconds,
                raced=raced,
            )
        )
