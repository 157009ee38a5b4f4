"""`stridesmith compare A B`: what changed between two databases, logs, runs or records, beyond what noise explains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadRecord, NoRecord, StridesmithError, UsageError, WrongResult
from ..figures import latency, number, percent
from ..files import at_home, is_database
from ..invocation import COMMAND
from ..search.records.log import read_log
from .lookup import reading
from .output import Output

if TYPE_CHECKING:
    from ..report.compare import Compared, Comparison, Key, Races, Source
    from ..search.records.record import Record

WORDS = {
    "faster": "faster", "slower": "slower", "same": "the same",
    "unclear": "unclear",
}  # fmt: skip
MOST_NAMED = 8  # in a message, a choice


def run(a: str, b: str, db: str | None, race: bool, output: Output) -> int:
    """Compare the best records of every task that both have.  Raises NoRecord where there is none."""
    from ..report.compare import compare

    one, two = (_source(text, db, output) for text in (a, b))
    found = compare(one, two, races=_races(one, two, output) if race else {})
    if not found.tasks:
        raise NoRecord(
            f"{one.name} and {two.name} have no task in common: one has {len(found.only_a)}, the other "
            f"{len(found.only_b)}; "
            f"tasks are the same where program, device, threads and interface are"
        )
    _tell(one, two, found, output)
    return 0


def _races(a: Source, b: Source, output: Output) -> dict[Key, Races]:
    """Race both kernels of each task in turns, here and now; notes tell of those that cannot be raced.

    Raises WrongResult for a record whose kernel gives one.
    """
    from ..report.compare import shared_tasks
    from ..search.calling.side_by_side import race_again

    found: dict[Key, Races] = {}
    for key, (one, two) in shared_tasks(a, b).items():
        if one.trace == two.trace:
            found[key] = ()
            continue
        try:
            with output.working(f"racing the two kernels of {two.title}"):
                found[key] = race_again(one, two)
        except WrongResult:
            raise
        except StridesmithError as error:
            output.notes([f"{two.title} is compared by stored samples: {error}"])
    return found


def _source(text: str, db: str | None, output: Output) -> Source:
    """A database, a log, or a run or a record of the database of `--db`."""
    from ..report.compare import Source, best_of, key_of

    if "://" in text or at_home(text).is_file():
        if "://" not in text and not is_database(at_home(text)):
            return Source(text, best_of(_logged(at_home(text), output)))
        with reading(text, output) as database:
            return Source(text, {key_of(record): record for record in database.winners()}, database.runs())
    with reading(db, output) as database:
        records = list(database.every())
        names = sorted({record.run for record in records if record.run})
        runs = [name for name in names if name.startswith(text)]
        named = [record for record in records if record.id.startswith(text)]
        if len(runs) + len(named) != 1:
            raise UsageError(_not_one(text, database.name, names, runs, named))
        if not named:
            mine = [record for record in records if record.run == runs[0]]
            return Source(f"run {runs[0]}", best_of(mine), database.runs())
        (record,) = named
        if not record.ok:
            raise UsageError(f"record {record.id} is a failed candidate ({record.status}), which took no time")
        return Source(f"record {record.id}", {key_of(record): record}, database.runs())


def _not_one(text: str, name: str, names: list[str], runs: list[str], records: list[Record]) -> str:
    """Why what was given is neither one run nor one record of the database of this `name`."""
    if found := [*(f"run {run}" for run in runs), *(f"record {record.id}" for record in records)]:
        more = ", ..." if len(found) > MOST_NAMED else ""
        return f"{text!r} begins the names of {len(found)} in {name}: {', '.join(found[:MOST_NAMED])}{more}"
    shown = ", ".join(names[-MOST_NAMED:]) or "none"
    return (
        f"{text!r} is no file, no database URL, and no run or record of {name}; its latest runs are {shown}, and "
        f"`{COMMAND} best` lists its records"
    )


def _logged(path: Path, output: Output) -> list[Record]:
    """The records of a log; its other lines are told where it has records.  Raises UsageError where it has none."""
    found = [*read_log(path)]
    good = [item for item in found if not isinstance(item, BadRecord)]
    bad = [item for item in found if isinstance(item, BadRecord)]
    if not good:
        raise UsageError(
            f"{path} is neither a database nor a log with records; `{COMMAND} compare` takes databases, what "
            f"`{COMMAND} export` writes, URLs of databases, and runs and records of the database of --db"
        )
    for line in bad:
        output.event({"event": "note", "message": str(line)})
        output.prose(f"note: {line}")
    return good


# --- output -------------------------------------------------------------------------------------


def _tell(a: Source, b: Source, found: Comparison, output: Output) -> None:
    for task in found.tasks:
        record = task.b
        output.event({
            "event": "compared", "workload": record.workload, "shape": dict(record.params), "dtype": record.dtype,
            "interface": dict(record.interface), "device": record.device_key, "verdict": task.verdict,
            "ratio": task.ratio.value, "low": task.low, "high": task.high, "a_us": task.a_us, "b_us": task.b_us,
            "basis": task.basis, "races": task.races, "same_schedule": task.has_same_schedule, "a_record": task.a.id,
            "b_record": task.b.id,
        })  # fmt: skip
    output.event({
        "event": "comparison", "a": a.name, "b": b.name, "tasks": len(found.tasks), "faster": found.count("faster"),
        "slower": found.count("slower"), "same": found.count("same"), "unclear": found.count("unclear"),
        "only_a": len(found.only_a), "only_b": len(found.only_b), "ratio": found.ratio, "low": found.low,
        "high": found.high, "spread": found.spread, "control": found.control,
    })  # fmt: skip
    if output.is_json:
        return
    output.prose(f"A is {a.name}, B is {b.name}")
    rows = []
    for task in found.tasks:
        verdict = "unclear, use `--race`" if task.verdict == "unclear" and task.caveats else WORDS[task.verdict]
        stages = ("race" if record.stage == "race" else "trial" for record in (task.a, task.b))
        origin = " and ".join(dict.fromkeys(stages)) + ", machine busy" * ("busy" in task.caveats)
        rows.append((
            task.b.title, latency(task.a_us), latency(task.b_us), _interval(task), verdict,
            "turns, now" if task.basis == "turns" else origin, "the same" if task.has_same_schedule else "another",
        ))  # fmt: skip
    output.table("", ("task", "A", "B", "B takes, of A's time", "B is", "from", "schedule"), rows)
    for line in _sentences(found):
        output.prose(line)


def _interval(task: Compared) -> str:
    return f"{number(task.ratio.value)}x  ({number(task.low)} to {number(task.high)})"


def _sentences(found: Comparison) -> list[str]:
    counts = [f"{found.count(v)} {WORDS[v]}" for v in WORDS if found.count(v)]
    tasks = "task that both have, B is" if len(found.tasks) == 1 else "tasks that both have, B is"
    lines = [f"of {len(found.tasks)} {tasks}: {', '.join(counts)}"]
    if found.ratio is not None and len(found.tasks) > 1:
        low, high = number(found.low), number(found.high)
        lines.append(f"all together: {number(found.ratio)}x the time of A ({low} to {high}), geometric mean")
    if found.only_a or found.only_b:
        lines.append(f"A alone has {len(found.only_a)} tasks, B alone {len(found.only_b)}")
    if found.control is not None and abs(found.control - 1) > 0.01:
        lines.append(
            f"what no schedule changes (the device's limits, untuned programs) took {number(found.control)}x the time "
            f"in B: the machine itself was not the same"
        )
    certain = "intervals hold for all tasks together with 99 % certainty"
    raced = [task.races for task in found.tasks if task.races]
    if raced:
        lines.append(f"{certain}; kernels of different schedules took turns, here and now, in {max(raced)} processes")
    if equal := sum(task.basis == "schedule" for task in found.tasks):
        lines.append(f"{equal} with one schedule are the same kernel, and were not raced")
    if any(task.basis == "stored" for task in found.tasks):
        lines.append(
            f"{certain}; two races of one kernel are taken to differ by {percent(found.spread)} (standard deviation)"
        )
    return lines
