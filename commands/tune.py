"""The main command: search, show how it goes, and say what came out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..backends.host_load import MUCH_BUSY
from ..errors import NoRecord, NoSchedule, UsageError
from ..figures import by_clock, latency, number, percent
from ..files import small_text
from ..invocation import COMMAND
from ..search.tasks.command_line import Options
from ..search.tasks.task import Task
from ..space.workloads.taking import LARGEST_SCRIPT
from .lookup import device_of, interface_asked, searched, space_of, task_of
from .options import SearchOptions, all_work, likely, pins, sampler
from .output import Output
from .progress import Progress, State

OTHER_FIGURE = 0.03
"""From which difference on, as a logarithm, two latencies are two figures for a reader."""

if TYPE_CHECKING:
    from ..configs import Entry
    from ..search.tuning.settings import TuneSettings
    from ..space.schedule import Schedule, Trace

    Result = tuple[Entry, dict[str, Any]]


def run(options: SearchOptions, output: Output, started: float) -> int:
    """Tune everything that the options name; `started` is when the process began (`time.monotonic`).

    Returns 0.  Raises the errors of the exit codes.  Of several workloads, one for
    which nothing valid is found does not keep the others from being tuned.
    """
    output.line("stridesmith: reading the program")
    entries = all_work(options)
    results: list[Result] = []
    for index, entry in enumerate(entries):
        if len(entries) > 1:
            output.line(f"\n[{index + 1}/{len(entries)}] {entry.name}")
        if options.dry_run:
            _dry_run(options, entry, output)
            continue
        try:
            asked = options
            if options.trace and len(entries) > 1:  # a file for each run
                path = Path(options.trace)
                asked = replace(options, trace=str(path.with_stem(f"{path.stem}-{index + 1}")))
            results.append((entry, _tune(asked, entry, output, started if index == 0 else None)))
        except NoSchedule as error:
            if len(entries) == 1:
                raise
            output.event({"event": "note", "message": f"{entry.name}: {error}"})
            output.line(f"{entry.name}: {error}")
    if len(entries) > 1 and not options.dry_run:
        _overview(results, entries, output)
    return 0


def _overview(results: list[Result], entries: list[Entry], output: Output) -> None:
    """What became of each of several workloads.  Raises NoSchedule when one of them has no kernel."""
    rows = [
        (e.name, latency(d["latency_us"]), number(d.get("gflops")), percent(d.get("peak_fraction")), d["record"])
        for e, d in results
    ]
    output.line()
    output.table("all of them", ("name", "latency", "GFLOP/s", "of peak", "record"), rows)
    found = [entry.name for entry, _ in results]
    missing = [entry.name for entry in entries if entry.name not in found]
    if missing:
        raise NoSchedule(
            f"no valid schedule for {', '.join(missing)}; the other {len(found)} of {len(entries)} are recorded"
        )


def settings_of(options: SearchOptions, entry: Entry, started: float | None) -> TuneSettings:
    """The options as validated settings; what no option says the entry's file does, and then the preset."""
    from ..configs import preset
    from ..search.tuning.settings import settings

    budgets = [entry.budget, *([preset(options.preset)] if options.preset else [])]
    budget = {
        name: next((v for v in (getattr(options, name), *(getattr(b, name) for b in budgets)) if v is not None), None)
        for name in ("trials", "seconds", "stop_at", "seed", "sampler", "threads")
    }
    sampler(budget["sampler"])
    work = entry.work
    program = {"workload": work.name, "params": dict(work.shape)} if work.params else {"script": work.script}
    return settings(
        **program, **{name: value for name, value in budget.items() if value is not None},
        dtype=work.dtype, target=options.target, interface=interface_asked(options, entry), pins=pins(options.pin),
        likely=likely(options.likely),
        address=options.address, db=options.db, resume=options.resume, start=started, trace=options.trace,
    )  # fmt: skip


def _tune(options: SearchOptions, entry: Entry, output: Output, started: float | None) -> dict[str, Any]:
    asked = settings_of(options, entry, started)
    title = f"tuning {entry.work} for {asked.target}"
    state = State(title, limit_trials=asked.trial_limit, limit_seconds=asked.seconds, unit=entry.work.speed_unit)
    if started is not None:
        state.started = started
    done: dict[str, Any] = {}
    own = _schedule(options.from_file, entry, options.db) if options.from_file else None

    def take(event: dict[str, Any]) -> None:
        if event["event"] == "done":
            done.update(event)
        progress(event)

    with Progress(output, state) as progress:
        # Importing the tuner loads what a usage error should not have to wait for.
        from ..search.tuning.ranged import tune

        try:
            if own is not None:
                from ..search.calling.api import add_own

                add_own(own, asked, take)
            tune(asked, take)
        finally:
            if done:
                _summary(options, entry, output, done)
    return done


def _schedule(source: str, entry: Entry, db: str | None) -> Schedule:
    """The schedule in a file, as `show --trace` prints one, or that of a record: read, and never executed.

    A file comes before a record of the same name.  Raises UsageError for anything else, with the line, and for a step
    that is refused; NoRecord where neither is there.
    """
    from ..search.calling.subject import is_id
    from ..space.schedule import ScheduleError, Trace

    path = Path(source)
    try:
        if is_id(source) and not path.exists():
            trace = _recorded(source, db)
        else:
            trace = Trace.from_script(small_text(path, "the schedule", LARGEST_SCRIPT))
        schedule = trace.replay(entry.work.func)
    except ScheduleError as error:
        raise UsageError(f"--from {source}: {error}") from None
    if not trace.instructions:
        raise UsageError(f"--from {source} has no step; it takes lines as `{COMMAND} show --trace` prints them")
    schedule.subject = entry.work
    return schedule


def _recorded(number: str, db: str | None) -> Trace:
    """The trace of a record, by the beginning of its id."""
    from ..search.records.database import Database
    from ..space.schedule import Trace

    try:
        with Database(db, read_only=True) as database:
            record = database.get(number)
    except NoRecord as error:
        raise NoRecord(
            f"--from {number}: there is no such file, and {error}; --from takes a file with lines as "
            f"`{COMMAND} show --trace` prints them, or the id of a record"
        ) from None
    return Trace.from_json(record.trace or [])


def _spread(done: Mapping[str, Any]) -> str:
    """How far samples lie apart, and what the search has called the best, where that was another figure."""
    low, high, search = done.get("low_us"), done.get("high_us"), done.get("search_us")
    told = "" if low is None or high is None else f", half of all samples from {latency(low)} to {latency(high)}"
    if search and abs(math.log(search / done["latency_us"])) > OTHER_FIGURE:
        which = f"is the luckiest of {done['trials']}" if search < done["latency_us"] else "is of single"
        told += (
            f"; the median of the final race, in turns with others: the best of the search, {latency(search)}, {which} "
            f"measurements"
        )
    return told


def roofline(done: Mapping[str, Any]) -> str:
    """The share of what the device allows, and of which memory's bandwidth that is."""
    if done.get("roofline_fraction") is None:
        return "- (there was no time, or no final race, to measure the device's peak and bandwidth in)"
    told = percent(done.get("roofline_fraction"))
    if done.get("bandwidth"):
        place = "caches, which hold the arguments" if done["cached"] else "memory"
        told += f" of what the peak and {number(done['bandwidth'] * 1e-9)} GB/s of {place} allow"
    return told


def speed(done: Mapping[str, Any], unit: str = "GFLOP/s") -> str:
    """How fast a kernel computes, and beside what its device can in numbers of its type."""
    if not done["gflops"]:
        return "no operations of numbers, which are what is counted"
    told = f"{number(done['gflops'])} {unit}"
    if done.get("peak_gflops"):
        told += f", {percent(done['peak_fraction'])} of the measured peak of {number(done['peak_gflops'])} {unit}"
    return told


def _summary(options: Options, entry: Entry, output: Output, done: Mapping[str, Any]) -> None:
    """Print the summary of a run: the kernel, its speed, failures, the record, and the command that replays it."""
    if output.is_json:
        return
    run, busy = f" of run {done['run']}" if done.get("run") else "", done.get("busy") or 0.0
    machine = [f"others kept {busy:.1f} processors busy as the run began"] if busy > MUCH_BUSY else []
    if done.get("cores") and done["threads"] > done["cores"]:
        machine.append(f"{done['threads']} threads on {done['cores']} cores, where they wait for each other")
    failed = ", ".join(f"{kind} {count}" for kind, count in done["failed"].items() if count) or "none"
    untuned, mean = "not measured", " in the geometric mean over the sizes" if entry.work.func.stated else ""
    if done.get("baseline_us"):
        speedup = done["baseline_us"] / done["latency_us"]
        untuned = f"{latency(done['baseline_us'])}, a speed-up of {number(speedup)}"
    again = replace(
        options, threads=options.threads or entry.budget.threads,
        only=entry.name if options.suite or options.config else options.only,
    )  # fmt: skip
    rows = [
        ("workload", str(entry.work)),
        ("device", f"{done['device']}, {done['threads']} threads"),
        ("latency", latency(done["latency_us"]) + mean + by_clock(done.get("clock", "host")) + _spread(done)),
        ("speed", speed(done, entry.work.speed_unit)),
        ("roofline", roofline(done)),
        ("untuned", untuned),
        ("verified", f"{'yes' if done['verified'] else 'no'}, largest error {number(done.get('max_abs_error'))}"),
        *([("machine", "; ".join(machine))] if machine else []),
        ("trials", f"{done['trials']} in {done['seconds']:.0f} s, stopped by {done['stopped_by']}"),
        ("time", activities(done["activities"])),
        ("failures", failed),
        ("record", f"{done['record']}{run} in {done['db']}"),
        ("replay", again.command("replay")),
    ]  # fmt: skip
    output.line()
    output.table("best kernel", ("", ""), rows)


def activities(spent: Mapping[str, float]) -> str:
    """What the run's seconds were spent on, the candidates' own share first."""
    share = (spent["building"] + spent["measuring"]) / max(1e-9, sum(spent.values()))
    parts = sorted(((seconds, name) for name, seconds in spent.items() if seconds >= 0.05), reverse=True)
    return f"{percent(share)} for candidates: " + ", ".join(f"{name} {seconds:.1f} s" for seconds, name in parts)


def _dry_run(options: SearchOptions, entry: Entry, output: Output) -> None:
    """Derive the space, of ranges at each size that is looked at, and say what would be searched; nothing is built."""
    from ..search.tasks.task import check_tunable
    from ..search.tuning.ranged import check_settings

    check_tunable(entry.work.func)
    asked, task = settings_of(options, entry, None), task_of(options, entry)
    if entry.work.func.stated and not task.is_recorded:
        check_settings(asked)
    if options.from_file:
        _schedule(options.from_file, entry, options.db)
    for each in searched(entry, task, asked.likely, asked.seconds):
        _dry_run_of(options, each, asked, output)


def _dry_run_of(options: SearchOptions, entry: Entry, asked: TuneSettings, output: Output) -> None:
    from ..search.candidates.search_space import SearchSpace

    device = device_of(options, entry)
    space = space_of(Task(entry.work, device.target, interface_asked(options, entry)), device)
    if not space.sketches:
        raise UsageError(f"the rules find nothing to schedule in {entry.work}")
    try:
        left = SearchSpace(space, asked.pins)
    except ValueError as error:
        raise UsageError(str(error)) from None
    what = entry.work if entry.work.params else entry.name
    output.event({
        "event": "dry_run", "workload": entry.work.name, "shape": dict(entry.work.shape), "target": device.target.key,
        "trials": asked.trial_limit, "sketches": len(left.open), "size": left.total,
    })  # fmt: skip
    output.prose(
        f"would search {len(left.open)} sketches with {left.total:.3g} candidates of {what} on {device.target.key}"
    )
