"""The loop: ask the study for candidates, have them built and measured, store and tell what became of them.

```
round     ask -> build -> measure -> close
close     store the record -> tell the study -> send the event
```

A part of each batch is held back and built while the next batch is asked for, so that the builders have work
meanwhile.  Its candidates are the last of their batch, those that depend least on what is measured in between.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from math import inf, prod
from typing import TYPE_CHECKING, Any

from ...cost_model.metrics import ENOUGH_RANKED
from ...errors import DeviceLost, WrongResult
from ...invocation import COMMAND
from ..records.status import DEVICE_LOST, KINDS, TOO_LATE
from ..workers.bench import Limits
from ..workers.protocol import (
    Build,
    Built,
    CheckDevice,
    Choice,
    Control,
    Failed,
    Measure,
    Measured,
    MeasureRoof,
    Roofed,
)
from ..workers.threads import daemon_thread
from ..workers.timeline import Sample
from . import events
from .budget import BASELINE_SHARE, SHORT_SECONDS, Budget
from .elsewhere import BUILD_SECONDS, TRIED, try_elsewhere
from .mirror import mirror_round
from .trace import DRIVER, PROPOSING

if TYPE_CHECKING:
    from ..candidates.search_space import Candidate
    from ..records.record import Record
    from .run import Run
    from .study import Study

EMPTY_ROUNDS = 8  # rounds without a candidate that can be scheduled, until the space counts as exhausted
FIRST_RESULTS = 2  # candidates that are measured before others are asked for, so that there is a result at once
CLEARLY = 1.25  # times faster than the control: no luck
ONE_ITEM = 2.5e8, 2e7
"""Operations and elements a second, of one work-item of a GPU: an H200 took 8.3 s for 2.1e9 operations; a load takes
half a microsecond, and ten may be under way."""
ONE_THREAD = 5e8, 2e8
"""The same of a thread of a CPU: a product of two matrices of 1024 rows took 4 s."""
LONGEST_BASELINE = 0.5  # seconds of a call of the untuned program by one work-item, beyond which it is left out


@dataclass(eq=False)
class Trial:
    """A candidate on its way: its record so far, the job that builds it (None: refused before), and the reply."""

    candidate: Candidate
    record: Record
    job: Build | None
    reply: Built | Failed

    @property
    def is_refused(self) -> bool:
        """Whether it could not even be scheduled: then it was no trial."""
        return isinstance(self.reply, Failed) and self.reply.kind == "refused" and self.record.trace is None

    def failed(self, reply: Failed) -> Record:
        return self.record.failed(reply.status, reply.message)


class Loop:
    """Plays rounds until a limit is reached.

    The builders schedule candidates themselves where the space is one that they can derive, too (`builders_schedule`);
    a space of the caller's own is known in this process alone, so that its candidates are scheduled here and go to
    the builders as traces.  From there on both take the same way.
    """

    def __init__(self, run: Run, study: Study, builders_schedule: bool, budget: Budget | None = None) -> None:
        self.run, self.study, self.builders_schedule = run, study, builders_schedule
        self.budget = budget or Budget(run)
        self._round = 0
        self.repeat_ms = Measure.repeat_ms  # for which a candidate is timed
        self._numbered = 0  # candidates, refused ones included
        self._held: list[Candidate] = []
        self._known: dict[str, Record] = {}  # what became of code, by its hash
        self.best: tuple[Record, Built] | None = None  # the fastest candidate with its code
        self._control: Control | None = None  # a fast kernel with which the others take turns
        self._empty_rounds = 0

    def play(self) -> str:
        """Play rounds; says which limit ended them."""
        if self.run.settings.stop_at is not None:
            self.measure_roof()
        self.run.send(events.Phase(phase="searching"))
        stopped_by = self._play_round()
        with self.run.clock.during("baseline"):
            self.measure_baseline()
            left = self.budget.left()
            if self.run.settings.resume and stopped_by is None and (left is None or left > BUILD_SECONDS):
                self.try_elsewhere(TRIED)
        self.run.executor.scale_up(pays=stopped_by is None and self.budget.is_long())
        while stopped_by is None:
            if self.run.settings.stop_at is not None and self.run.results.roof is None:
                self.measure_roof()
            stopped_by = self._play_round()
        return stopped_by

    def play_rounds(self) -> None:
        """Rounds alone, until a limit is reached."""
        while self._play_round() is None:
            pass

    def _play_round(self) -> str | None:
        """Play one round; the reason to stop after it or instead of it, None where there is none."""
        run, results = self.run, self.run.results
        if reason := self.budget.reached():
            return reason
        size = self.budget.size(self.budget.left(), len(self._held))
        if size == 0:
            return "seconds"
        trials_before, began = results.trials, self._working()
        held, self._held = self._held[:size], self._held[size:]
        count = size - len(held) + self.budget.hold(size)
        self._round += 1
        is_first = self._round == 1
        trials = self._first_results(count) if is_first else list[Trial]()
        asked = self.ask(count - len(trials), learn=not is_first or bool(self.study.seeded))
        waiting = self.build(held) if held else []
        candidates = asked.result()  # from here on the study is ours again
        now = size - len(held) - len(trials)
        self._held += candidates[now:]
        if not held and not candidates and not trials:
            return "exhausted"
        left = self.budget.left()
        if candidates[:now] and (left is None or left > 0):
            waiting += self.build(candidates[:now])
        self.measure(waiting)
        trials += waiting
        if all(trial.is_refused for trial in trials):
            self._empty_rounds += 1
            if self._empty_rounds >= EMPTY_ROUNDS:
                return "exhausted"
        else:
            self._empty_rounds = 0
            self.budget.spent(self._working() - began, results.trials - trials_before)
        mirror_round(run, self.study)
        self._send_round()
        return None

    def _first_results(self, count: int) -> list[Trial]:
        """The first of `count` candidates, which wait for no others; what they teach is for the next batch.

        Of a short run it is one: on a busy machine a second one would delay the first.
        """
        is_short = (self.run.settings.seconds or inf) < SHORT_SECONDS
        candidates = self.ask(min(count, 1 if is_short else FIRST_RESULTS)).result()
        trials = self.build(candidates) if candidates else []
        self.measure(trials)
        return trials

    def try_elsewhere(self, most: int) -> None:
        """Measure what other devices found, with which candidates take turns from then on where it is fast."""
        self._allow()
        for built, latency_us in try_elsewhere(self.run, self._measure_job, most):
            self._consider(built, latency_us)

    def ask(self, count: int, learn: bool = True, deadline: float | None = None) -> Future[list[Candidate]]:
        """Ask in a thread of its own; until the result is there the study belongs to that thread.

        Without `learn` candidates are chosen as if nothing had been measured.  They are chosen by `deadline`, by
        default in a share of what is left.
        """
        if self._round > 1:
            self.run.clock.enter("asking")
        deadline = self.budget.asking_until() if deadline is None else deadline

        def ask() -> list[Candidate]:
            began = time.monotonic()
            candidates = self.study.ask(count, learn, deadline) if count else []
            if count:
                self.budget.asking = time.monotonic() - began
                if self.run.timeline is not None:
                    self.run.timeline.add(
                        DRIVER, PROPOSING, "propose", began, time.monotonic(),
                        candidates=len(candidates), workload=self.run.task.work.name,
                    )  # fmt: skip
            return candidates

        return daemon_thread("stridesmith-ask").submit(ask)

    def build(self, candidates: list[Candidate]) -> list[Trial]:
        """Have candidates scheduled and built, while the round has time."""
        self.run.executor.until = self.budget.building_until()
        self._say("building", len(candidates))
        return [trial for _, trial in build_all(self.run, ((self, candidate) for candidate in candidates))]

    def built(self, trial: Trial, reply: Built | Failed) -> None:
        """Take the reply to the build of a trial."""
        assert trial.job is not None
        trial.reply = reply
        if reply.trace is not None:
            trial.record = trial.record.changed(trace=reply.trace)
        if trial.is_refused:
            self.run.results.trials -= 1
        elif isinstance(reply, Failed) and trial.job.deadline is not None and reply.kind == "build_timeout":
            # Only the end of the run stopped this build, which says nothing of its candidate.
            trial.reply = Failed(status=TOO_LATE, message=reply.message, trace=reply.trace)

    def trial(self, candidate: Candidate) -> Trial:
        """A candidate with the job that builds it, or refused where it is scheduled here and that fails."""
        from ...space.errors import ScheduleError

        self._numbered += 1
        task, sketch = self.run.task, self.study.space.sketches[candidate.sketch]
        choice: Choice | None = None
        trace: list[Any] | None = None
        refusal = Failed(status="infrastructure", message="not built yet")
        if self.builders_schedule:
            choice = Choice(sketch.name, candidate.choice, dict(task.interface))
        else:
            try:
                trace = sketch.trace(candidate.choice).to_json()
            except ScheduleError as error:
                refusal = Failed(status="refused", message=str(error))
        record = self.run.record(
            trace, sketch=sketch.name, choice=candidate.choice, trial=self._numbered,
            space_version=self.study.space.version, foretold=self.study.foretold(candidate),
        )  # fmt: skip
        if refusal.kind == "refused":
            return Trial(candidate, record, None, refusal)
        until = self.run.executor.until
        deadline = None
        if until is not None and (left := until - time.monotonic()) < Limits.build:
            deadline = max(left, 0.0)
        fault = self.run.settings.faults.get(self._numbered, "").split("+")[0] or None
        job = Build(script=task.script, target=task.target, choice=choice, trace=trace, fault=fault, deadline=deadline)
        return Trial(candidate, record, job, refusal)

    def measure(self, trials: list[Trial]) -> None:
        """Measure what was built, each code once, one after the other; each result is told and stored as it comes."""
        for trial in trials:
            if trial.is_refused and isinstance(trial.reply, Failed):
                self._close(trial, trial.failed(trial.reply).changed(trial=-1))
        waiting = [trial for trial in trials if not trial.is_refused and self._is_new(trial)]
        while waiting:
            # Those whose code is among them already wait for what becomes of it; all with a fault are different.
            first: dict[str, Trial] = {}
            for trial in waiting:
                first.setdefault(_code(trial), trial)
            leading = list(first.values())
            self._measure_each(leading)
            waiting = [trial for trial in waiting if trial not in leading and self._is_new(trial)]

    def _is_new(self, trial: Trial) -> bool:
        """Whether a trial is to be measured; one that was not built, or whose code is known, is closed."""
        if isinstance(trial.reply, Failed):
            self._close(trial, trial.failed(trial.reply))
            self._check_device(trial.reply)
            return False
        same = self._known.get(trial.reply.code_hash)
        if same is None or (trial.job and trial.job.fault):
            return True
        self.run.results.duplicates += 1
        if same.ok:
            self._close(trial, trial.record.measured(same.samples, same.max_abs_error, "trial"))
        else:
            self._close(trial, trial.record.failed(same.status, same.message))
        return False

    def _measure_each(self, trials: list[Trial]) -> None:
        """Measure trials one after the other; after a lost device, wait until it answers before the next trial."""
        waiting = trials
        while waiting:
            replies = self._measure_until_lost(waiting)
            waiting = waiting[len(replies) :]
            for reply in replies:
                self._check_device(reply)

    def _measure_until_lost(self, trials: list[Trial]) -> list[Measured | Failed]:
        """Measure trials up to one that loses the device; the replies."""
        run, lost = self.run, False

        def jobs() -> Iterator[Measure]:
            for trial in trials:
                if lost:
                    return
                assert isinstance(trial.reply, Built)
                fault = run.settings.faults.get(trial.record.trial, "").partition("+")[2] or None
                yield self._measure_job(trial.reply, fault)

        def done(index: int, reply: Measured | Failed) -> None:
            nonlocal lost
            lost = lost or (isinstance(reply, Failed) and reply.status == DEVICE_LOST)
            trial = trials[index]
            built = trial.reply
            assert isinstance(built, Built)
            if isinstance(reply, Failed):
                record = trial.failed(reply)
                if KINDS[reply.kind].lasts:
                    self._known[built.code_hash] = record
            else:
                record = trial.record.measured(reply.samples, reply.max_abs_error, "trial")
                self._known[built.code_hash] = record
            self._close(trial, record)
            if record.latency_us is not None:
                self._consider(built, record.latency_us)
                if record.latency_us == run.results.best_us:
                    self.best = record, built

        self._allow()
        with run.clock.during("startup"):
            run.executor.wait(lambda what: run.send(events.Phase(phase=what, round=self._round)))
        self._say("measuring", len(trials))
        run.clock.enter("measuring")
        replies = run.executor.measure(jobs(), done)
        run.clock.enter("other")
        return replies

    def _check_device(self, reply: Measured | Failed) -> None:
        """Check that the device still answers after a trial that lost it.  Raises DeviceLost if it does not."""
        if not isinstance(reply, Failed) or reply.status != DEVICE_LOST:
            return
        run = self.run
        run.send(events.Phase(phase="looking whether the device answers", round=self._round))
        found = run.executor.measure([CheckDevice(target=run.task.target)])[0]
        if isinstance(found, Failed):
            raise DeviceLost(
                f"{run.task.target.key} is lost: {found.message}; what was measured is in {run.database.name}: "
                f"when the device is back (`{COMMAND} targets` lists it), the same command goes on from there"
            )
        run.note(f"a candidate lost the device, which answers again: {reply.message}")

    def _measure_job(self, built: Built, fault: str | None = None) -> Measure:
        run = self.run
        return Measure(
            kernel=built.kernel, work=run.task.name, seed=run.settings.seed, called=run.task.called,
            repeat_ms=self.repeat_ms, best_us=run.results.best_us, control=self._control, fault=fault,
        )  # fmt: skip

    def _consider(self, built: Built, latency_us: float) -> None:
        """Let the others take turns with this candidate from now on, where it is clearly faster than the control.

        Latencies are relative to the first control's where a control can run along (see `backends.timing.in_turns`).
        Would each narrow, perhaps lucky winner become the control, the luck of all would add up in what the others
        seem to take.
        """
        if self._control is None or latency_us * CLEARLY < self._control.latency_us:
            self._control = Control(built.kernel, latency_us)

    def _close(self, trial: Trial, record: Record) -> None:
        """Store, tell and announce what became of a candidate, in this order: what is announced is kept."""
        results = self.run.results
        results.add(record)
        self.study.tell(trial.candidate, record.latency_us, record.failure, record=record.id)
        if trial.is_refused:
            return
        results.closed += 1
        event = events.Trial(
            trial=record.trial, trials=results.closed, status=record.status, latency_us=record.latency_us,
            best_us=results.best_us, record=record.id, sketch=record.sketch, message=record.message,
        )  # fmt: skip
        self.run.send(event)
        if self.run.timeline is not None and results.best_us is not None:
            self.run.timeline.samples.append(Sample("best latency (us)", time.monotonic(), results.best_us))

    def measure_baseline(self) -> None:
        """Build, verify and time the program as it was written.

        Not before there is a first candidate, by which it may turn out to be so slow that one call is enough.
        """
        run, task = self.run, self.run.task
        # About what a call of the program takes as it was written, by one work-item or thread.
        operations, moves = ONE_ITEM if task.target.warp > 1 else ONE_THREAD
        elements = max((prod(buffer.shape) for buffer in task.work.func.buffers if buffer.is_fixed), default=0)
        seconds, limit = task.work.flops / operations + elements / moves, run.settings.seconds
        if task.target.warp > 1 and seconds > LONGEST_BASELINE:
            run.note(f"the untuned program is a single work-item here, which would take some {seconds:.2g} s: left out")
            return
        self._allow()
        if limit is not None:
            left = self.budget.left() or 0.0
            longest = min(BASELINE_SHARE * limit, left)
            if seconds > longest:
                of = f"{limit:g}" if left > BASELINE_SHARE * limit else f"{left:.2g} that are left"
                run.note(f"the untuned program would take some {seconds:.2g} s of {of}: left out")
                return
            run.executor.until = time.monotonic() + longest
        run.send(events.Phase(phase="measuring the untuned program"))
        built = run.executor.build([Build(script=task.script, target=task.target)])[0]
        reply = built if isinstance(built, Failed) else run.executor.measure([self._measure_job(built)])[0]
        if isinstance(reply, Measured):
            run.results.baseline = run.record().measured(reply.samples, reply.max_abs_error, "trial")
        elif reply.status == "wrong":
            raise WrongResult(
                f"the untuned program of {task.work} on {task.target.key} differs from its reference, "
                f"so that no result could be trusted: {reply.message}"
            )
        else:
            run.note(f"the untuned program was not measured: {reply.status}: {reply.message}")
        run.send(events.Phase(phase="searching", baseline_us=run.results.baseline_us))

    def measure_roof(self) -> None:
        """What the device can do: `stop_at` needs it from the start, all else has it from the race."""
        self.run.send(events.Phase(phase="measuring the device's limits"))
        self._allow()
        job = MeasureRoof(target=self.run.task.target, dtype=self.run.task.work.peak_dtype)
        reply = self.run.executor.measure([job])[0]
        if isinstance(reply, Roofed):
            self.run.results.roof = reply.roof
        elif not self._round:
            limit = self.budget.trial_limit
            until = "" if limit is None else f", and the run ends after {limit} candidates if that goes on"
            self.run.note(
                f"the device's limits, a share of which is to end the run, could not be measured: {reply.status}: "
                f"{reply.message}; it is tried again in every round{until}"
            )

    def _allow(self) -> None:
        """What is given out from here on is waited for as long as a round may take."""
        self.run.executor.until = self.budget.patience()

    def _working(self) -> float:
        """Seconds that candidates have taken so far."""
        spent = self.run.clock.spent
        return spent["building"] + spent["measuring"]

    def _say(self, what: str, count: int) -> None:
        self.run.send(events.Phase(phase=f"{what} {count} candidates", round=self._round))

    def _send_round(self) -> None:
        run, results = self.run, self.run.results
        metrics = [found for found in self.study.rank_metrics if found.measured >= ENOUGH_RANKED]
        event = events.Round(
            round=self._round, trials=results.trials, best_us=results.best_us, baseline_us=results.baseline_us,
            failed=dict(results.failed), duplicates=results.duplicates,
            rank_correlation=metrics[-1].spearman if metrics else None,
            top_k_recall=metrics[-1].top_k_recall if metrics else None,
            peak_gflops=results.roof.peak_gflops if results.roof else None, seconds=run.clock.seconds,
        )  # fmt: skip
        run.send(event)
        run.tell_notes()


def build_all(run: Run, candidates: Iterable[tuple[Loop, Candidate]]) -> list[tuple[Loop, Trial]]:
    """Have candidates scheduled and built, of one loop or of several whose runs share an executor and a clock.

    They may be asked for as they are taken, while others are built.
    """
    trials: list[tuple[Loop, Trial]] = []

    def jobs() -> Iterator[Build]:
        for loop, candidate in candidates:
            until = run.executor.until
            if trials and until is not None and time.monotonic() > until:
                return  # a schedule, with all its proofs, would come too late to be built
            trials.append((loop, loop.trial(candidate)))
            if (job := trials[-1][1].job) is not None:
                loop.run.results.trials += 1
                yield job

    run.clock.enter("building")
    replies = iter(run.executor.build(jobs()))
    run.clock.enter("asking")
    for loop, trial in trials:
        if trial.job is not None:
            loop.built(trial, next(replies))
    return trials


def _code(trial: Trial) -> str:
    """What two trials share that came out as the same code."""
    assert isinstance(trial.reply, Built) and trial.job is not None
    return f"{trial.reply.code_hash} {trial.record.trial}" if trial.job.fault else trial.reply.code_hash
