"""Records from elsewhere on trial: proven, verified and raced here before one of them is trusted.

A record is from elsewhere where another device measured it, or where a log has brought it; what it claims says nothing
of this device, and may be a lie.  So its trace alone is taken:

```
build      replayed with all proofs on, within the interface that is asked for
measure    verified on data that nobody has seen, timed by itself
race       in turns with the program as it was written and with the fastest record of this device
```

What becomes of it is stored as a record of this device, so that it is tried once; only one that has won is the best
afterwards.  All of it takes about two seconds for a record, in a process that may be lost; more for one of ranges,
which is measured at the sizes of this device's best, or else at its own (`at_sizes.Runner`).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import DeviceMissing, StorageError, TemporaryError, UnknownTarget, WrongResult
from ...figures import latency
from ..records.database import Database
from ..records.record import IMPORTED, ORIGIN, OWN, Record
from ..records.status import KINDS, tells_nothing
from ..records.turn import turn
from ..tasks.device import Device
from ..tuning.at_sizes import LIKELY, Runner
from ..tuning.elsewhere import BUILD_SECONDS, in_interface, status_of, untried
from ..tuning.race import FAR_SLOWER, Terms, race_built, untuned_id
from ..tuning.run import versions
from ..workers.bench import Bench, Workbench
from ..workers.protocol import Build, Built, Compiled, Failed, Job, Measure, Measured, Reply

if TYPE_CHECKING:
    from ...ir.target import Target
    from ..tasks.task import Task

R = TypeVar("R", bound=Reply)

CALL_SECONDS = 1.0  # a kernel that gives no sign for so long is too slow to be trusted
REPEAT_MS = 30.0  # of samples of each, a choice: as in a search
RACE_SECONDS = 0.4  # a choice: a look-up waits for it
ATTEMPTS = 3  # races, a choice
AT_ONCE = 2  # records that race with each other
OF_A_DEVICE = 16  # records that are looked at, the fastest of each device
PATIENCE_SECONDS = 8.0  # how long a look-up goes on trying


@dataclass(frozen=True)
class Verdict:
    """What became of the record `tried`: `here` is what this device says of it, `reason` why it is not trusted."""

    tried: Record
    here: Record
    reason: str = ""

    @property
    def trusted(self) -> bool:
        """Whether it was right, and faster than all that there was."""
        return not self.reason

    @property
    def sentence(self) -> str:
        """What became of the record, as a clause for people."""
        source = f"imported from {self.tried.imported}" if self.tried.imported else f"of {self.tried.device.name}"
        end = f"is not trusted: {self.reason}" if self.reason else "is verified and the fastest here"
        return f"record {self.tried.id}, {source}, {end}"

    def event(self) -> dict[str, Any]:
        """The JSON event."""
        return {
            "event": "tried", "record": self.tried.id, "device": self.tried.device_key,
            "imported": self.tried.imported, "became": self.here.id, "status": self.here.status,
            "latency_us": self.here.latency_us, "trusted": self.trusted, "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """The verdicts in the order of the records, and the records that this device has because of them.

    `problem` says why they could not be stored, if so.
    """

    verdicts: list[Verdict]
    stored: list[Record]
    problem: str = ""


Tell = Callable[[Outcome], None]


def is_foreign(record: Record, target: Target) -> bool:
    """Whether a record says nothing of this device yet: it is another's, or nobody has verified it here."""
    return record.device_key != target.key or not record.verified


def best_here(
    task: Task, database: Database, tell: Tell | None = None, bench: Workbench | None = None
) -> Record | None:
    """The best record of a task; where its device has none, the best of those from elsewhere, if one holds here.

    The likest come first: those that were imported for this device, then those of the same model, then of the same
    instruction set.  Of several processes that ask at once one tries, and all get what it found.
    """

    def known() -> Record | None:
        return database.best(task.script, task.target, task.interface)

    if (found := known()) is not None:
        return found
    if not _waiting(task, database) or not _is_here(task.target):
        return known()  # which another process may have found meanwhile
    with turn(database, task.study_name):
        return known() or _first_trusted(task, database, tell, bench)


def _waiting(task: Task, database: Database) -> list[Record]:
    """Records from elsewhere that were not tried, the likest first."""
    imported = database.imported(task.script, task.target, task.interface, OF_A_DEVICE)
    others = database.elsewhere(task.script, task.target, task.interface, OF_A_DEVICE)
    return [*imported, *untried(task, database, others)]


def _is_here(target: Target) -> bool:
    """Whether a target is a device of this machine, so that something can be measured on it."""
    try:
        return Device.of(target).key == target.key
    except (DeviceMissing, UnknownTarget):
        return False


def _first_trusted(task: Task, database: Database, tell: Tell | None, bench: Workbench | None) -> Record | None:
    """Try the waiting records until one is trusted; return the fastest valid one, or the untuned program's."""
    waiting, end, known = _waiting(task, database), time.monotonic() + PATIENCE_SECONDS, list[Record]()
    own: AbstractContextManager[Workbench] = nullcontext(bench) if bench is not None else Bench()
    with own as at:
        while waiting and time.monotonic() < end:
            some, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
            outcome = try_records(task, some, database, at)
            known += outcome.stored
            if tell is not None:
                tell(outcome)
            if any(verdict.trusted for verdict in outcome.verdicts):
                break
    return min((record for record in known if record.ok), key=lambda r: r.latency_us or 0.0, default=None)


@dataclass(eq=False)
class _Entry:
    """A record as far as it was measured on this device, and its kernel once that is built.

    `before` is the record as the database of this device has it, None where it has none.
    """

    here: Record
    before: Record | None = None
    kernel: Compiled | None = None

    @property
    def us(self) -> float:
        return self.here.latency_us or math.inf

    @property
    def standing(self) -> Record:
        """What the database has of it from now on: what was measured now, or before on a quieter machine."""
        return self.before if self.before is not None and self.before.outlasts(self.here) else self.here


def try_records(task: Task, records: Sequence[Record], database: Database, bench: Workbench) -> Outcome:
    """Prove, verify and race records from elsewhere; store what became of them.

    As a race tells new times of all that take part, what the database calls the best then has to have been in it.
    Raises WrongResult where the program as it was written differs from its reference, so that nothing can be trusted.
    """
    seed = int.from_bytes(os.urandom(4), "big") >> 1
    before = database.best(task.script, task.target, task.interface)
    runner = Runner(task, (before or records[0]).versions)
    bench = runner.on(bench)
    written = bench.run(Build(script=task.script, target=task.target))  # first: it loads what builds need
    entries = [_as_of(task, record, runner.versions) for record in records]
    opponents: list[_Entry] = []
    for entry in entries:
        _check(entry, task, bench, seed, _fastest(entries))
    problem = ""
    if math.isfinite(_fastest(entries)):
        opponents = _opponents(task, database, bench, seed, entries, written)
    for _ in range(ATTEMPTS):
        everything = [*entries, *opponents]
        near = [e for e in everything if e.kernel and e.here.ok and e.us <= FAR_SLOWER * _fastest(everything)]
        if any(entry in entries for entry in near):
            _race(near, task, bench, seed)
        try:
            store(database, _news(entries, opponents))
        except (TemporaryError, StorageError) as error:
            problem = f"what became of it could not be stored: {error}"
        best = database.best(task.script, task.target, task.interface)
        if best is None or not near or best.id in {entry.here.id for entry in everything}:
            break
        opponents.append(_Entry(best, best))
        _check(opponents[-1], task, bench, seed, _fastest(everything))
    verdicts = [Verdict(tried, e.here, _reason(e, opponents)) for tried, e in zip(records, entries, strict=True)]
    return Outcome(verdicts, _news(entries, opponents), problem)


def store(database: Database, records: Sequence[Record]) -> None:
    """Write into the database that was asked, also where it was opened for reading."""
    if not records:
        return
    if not database.read_only:
        database.put_records(records)
        return
    with type(database)(database.url.render_as_string(hide_password=False)) as writable:
        writable.put_records(records)


def _as_of(task: Task, record: Record, sizes: Mapping[str, str]) -> _Entry:
    """What is to be known of a record's trace on this device; an imported record of it is the same one."""
    if record.device_key == task.target.key:
        rest = {name: text for name, text in record.versions.items() if name != LIKELY}
        here = record if {**rest, **sizes} == record.versions else record.changed(versions={**rest, **sizes})
        return _Entry(here, record)
    told = {**versions(task), **sizes, ORIGIN: record.id, **({IMPORTED: record.imported} if record.imported else {})}
    return _Entry(_unknown(task, trace=record.trace, sketch="elsewhere", versions=told))


def _unknown(task: Task, **fields: Any) -> Record:
    """A record of this device that nothing is known of yet."""
    return Record(**task.recorded(), status="infrastructure", run="elsewhere", **fields)


def _check(
    entry: _Entry, task: Task, bench: Workbench, seed: int, best_us: float, known: Built | Failed | None = None
) -> None:
    """Build, verify and time a kernel by itself, briefly where it is far slower than `best_us`; or a `known` one.

    A user's own has as long as a candidate of a search; a stranger's may not keep a look-up waiting, but for the build
    of a kernel of ranges, which is several.
    """
    is_own, has_one_shape = entry.here.run == OWN, not task.work.func.stated
    build_seconds, call_seconds = (None, None) if is_own else (BUILD_SECONDS if has_one_shape else None, CALL_SECONDS)
    job = Build(script=task.script, target=task.target, trace=entry.here.trace, deadline=build_seconds)
    built = in_interface(task, known or bench.run(job))
    reply: Measured | Failed
    if isinstance(built, Failed):
        reply = built
    else:
        reply = bench.run(
            Measure(kernel=built.kernel, work=task.name, seed=seed, called=task.called, repeat_ms=REPEAT_MS,
                    deadline=call_seconds, best_us=best_us if math.isfinite(best_us) else None)
        )  # fmt: skip
    if isinstance(reply, Failed):
        entry.here = entry.here.failed(status_of(reply), reply.message)
        return
    assert isinstance(built, Built)
    entry.here, entry.kernel = entry.here.measured(reply.samples, reply.max_abs_error, "trial"), built.kernel


def _opponents(
    task: Task, database: Database, bench: Workbench, seed: int, entries: Sequence[_Entry], written: Built | Failed
) -> list[_Entry]:
    """What foreign records are compared with: this device's fastest record, if any, and the untuned program.

    Both are verified on this machine.  `written` is the build of the untuned program.  Raises WrongResult if that is
    wrong.
    """
    own = database.best(task.script, task.target, task.interface)
    if own is not None and own.id == untuned_id(task):
        found = [_Entry(own, own)]
    else:
        told = {**versions(task), **{n: text for n, text in entries[0].here.versions.items() if n == LIKELY}}
        fresh = _unknown(task, id=untuned_id(task), trace=None, sketch="untuned", versions=told)
        found = [*([] if own is None else [_Entry(own, own)]), _Entry(fresh)]
    untuned = found[-1]
    for entry in found:
        _check(entry, task, bench, seed, _fastest([*entries, *found]), written if entry is untuned else None)
    if untuned.here.failure == "wrong":
        raise WrongResult(
            f"the untuned program of {task.work} on {task.target.key} differs from its reference, so that no record "
            f"could be trusted: {untuned.here.message}"
        )
    return found


def _race(near: Sequence[_Entry], task: Task, bench: Workbench, seed: int) -> None:
    """Take turns; what fails now does not hold."""
    entrants = [(e.here, e.kernel) for e in near if e.kernel is not None]
    outcome = race_built(_OnBench(bench), task, entrants, Terms(seed, RACE_SECONDS, roof=False))
    raced = {record.id: record for record in (*outcome.records, *outcome.failed)}
    for entry in near:
        lost = entry.here.failed("infrastructure", "its race was lost")
        entry.here = raced.get(entry.here.id, lost)


def _fastest(entries: Iterable[_Entry]) -> float:
    """Microseconds of the fastest that was verified here by now."""
    return min((entry.us for entry in entries if entry.kernel), default=math.inf)


def _reason(entry: _Entry, opponents: Sequence[_Entry]) -> str:
    """Why a record from elsewhere is not trusted; empty where it is."""
    if not entry.here.ok:
        return f"{entry.here.status}: {entry.here.message or 'it failed'}"
    best = min((e for e in opponents if e.here.ok), key=lambda e: e.standing.latency_us or math.inf, default=None)
    if best is None or entry.us < (best.standing.latency_us or math.inf):
        return ""
    if best.standing is best.before and best.here.stage == "race":
        return (
            f"it takes {latency(entry.us)} here while others keep {best.here.busy:.1f} processors busy, and record "
            f"{best.here.id} of this device took {latency(best.standing.latency_us)} while they kept fewer"
        )
    is_untuned = best.here.trace is None
    name = "the program as it was written" if is_untuned else f"record {best.here.id} of this device"
    return f"it takes {latency(entry.us)} here, and {name} {latency(best.us)}"


def _news(entries: Sequence[_Entry], opponents: Sequence[_Entry]) -> list[Record]:
    """What is to be stored: what became of each, and of whom they raced.

    A fault of the machine's leaves a record that there is as it was, and so does a race that it outlasts.  The untuned
    program is a record where it won.
    """
    news = [e.here for e in entries if e.before is None or not tells_nothing(e.here.failure)]
    fastest_us = _fastest([*entries, *opponents])
    for entry in opponents:
        if entry.before is None:
            news += [entry.here] if entry.us == fastest_us else []
        elif entry.here.failure is None or KINDS[entry.here.failure].disqualifies:
            news += [entry.here] if entry.standing is entry.here else []
    return news


class _OnBench:
    """What a race asks of those who measure, done by one bench."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    def measure(self, jobs: Iterable[Job[R]]) -> list[R | Failed]:
        return [self._bench.run(job) for job in jobs]
