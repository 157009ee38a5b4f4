"""Networks of free sizes on the command line: the main command, `run`, `replay`, `show`, and what `report` tells."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..figures import latency, scaled
from ..search.tasks.command_line import Options
from ..search.tasks.device import Device
from ..search.tasks.interface import pairs
from .lookup import missing
from .models import DEFAULT_SECONDS, OTHER_SEARCH, OTHER_WORK, ModelState, array_files, arrays_in, tell_outputs
from .options import RecordOptions, SearchOptions, extents_of, inputs_of, number_of
from .output import Output
from .progress import Progress

if TYPE_CHECKING:
    from ..models.ranges.api import FreeSizes
    from ..models.ranges.kernels import RangedTask
    from ..models.ranges.model import RangedModel
    from ..models.ranges.network import RangedNetwork
    from ..search.records.record import Record

MAKING = 1.0  # seconds that each program is given at the end of a run for its kernel, a choice
LARGEST_MAKING = 0.3  # the share of the seconds that all of them are given
SHARES = {"least": 0.0, "middle": 0.5, "largest": 1.0}  # of the ranges, where the whole is measured
TURN_SECONDS = 0.3  # of calls at each of these, a choice


def tune(options: SearchOptions, output: Output, started: float) -> int:
    """Search for a kernel of each program of a network, compile it where time is left, and say what was found."""
    from ..models.ranges.kernels import tasks_of
    from ..models.ranges.tuning import tune_network

    _refuse(options, address=options.address, trace=options.trace)
    if not options.resume:
        raise UsageError("--fresh does not go with --model: give a database of its own with --db to begin anew")
    seconds = options.seconds or DEFAULT_SECONDS
    network = _network(options, output)
    target = _target(options)
    making = min(MAKING * len(tasks_of(network, target)), LARGEST_MAKING * seconds)
    state = ModelState(f"tuning {network.name} for {target.key}", limit_seconds=seconds, started=started)
    with Progress(output, state) as progress:
        left = started + seconds - making - time.monotonic()
        tune_network(network, target, left, db=options.db, seed=options.seed or 0, emit=progress)
    rows = _rows(options, network)
    done = sum(record is not None for _, record in rows)
    is_left = time.monotonic() - started + MAKING * (len(rows) - done) < seconds
    _tell(options, output, network, rows, _model(options, network, output) if is_left else None)
    return 0


def replay(options: RecordOptions, output: Output) -> int:
    """Rebuild every record that the network would use, verify it with fresh data, and measure it and the whole again.

    Raises NoRecord where there is none of any program.
    """
    from ..search.calling.replay import replay as replayed
    from ..search.records.database import Database
    from ..search.workers.bench import Bench

    _refuse(options)
    network = _network(options, output)
    found = _rows(options, network)
    shown = []
    with Database(options.db, read_only=True) as database, Bench() as bench:
        if not any(record for _, record in found):
            raise missing(found[0][0].task, database, options)
        for item, record in found:
            if record is None:
                continue
            again = replayed(record, database, bench=bench, task=item.task)
            output.event(again.event())
            times = latency(again.latency_us), latency(again.recorded_us)
            shown.append((_name(item), len(item.operators), *times, "slower" if again.slower else ""))
    output.table("records, verified again", ("program", "calls", "latency", "recorded", ""), shown)
    _tell(options, output, network, found, _model(options, network, output))
    return 0


def show(options: RecordOptions, view: str | None, as_written: bool, output: Output) -> int:
    """What each program of a network runs by, and how long the whole takes at some sizes."""
    _refuse(options, view=view, as_written=as_written)
    network = _network(options, output)
    _tell(options, output, network, _rows(options, network), _model(options, network, output))
    return 0


def run(options: Options, data: str | None, out: str | None, output: Output) -> int:
    """Run a network on the arrays of `--input` and of the file `data`, or on random ones in the middle of the ranges.

    Outputs go to the file or folder `out`.
    """
    files, rest = array_files(options.input)
    arrays = (arrays_in(data) if data else {}) | files
    options = replace(options, input=rest)
    network = _network(options, output)
    model = _model(options, network, output)
    middle = _sizes(model, SHARES["middle"])
    given = arrays or dict(zip(network.inputs, model.random_inputs(middle), strict=True))
    try:
        results = model(given)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the model does not take these inputs: {error}") from None
    tell_outputs(results, out, output)
    _tell(options, output, network, _rows(options, network), model)
    return 0


def free_sizes(options: Options) -> FreeSizes:
    """What `--input` and `--range` say of a model.  Raises UsageError."""
    from ..models.ranges.api import FreeSizes
    from ..models.ranges.extents import expression, sizes_in
    from ..space.workloads.sizes import range_of

    ranges: dict[str, str] = {}
    for text in options.range:
        for name, value in pairs(text, "--range").items():
            if name in ranges:
                raise UsageError(f"--range names {name!r} twice, with {ranges[name]} and {value}")
            if range_of(value, name) is None:
                raise UsageError(
                    f"--range takes NAME=LEAST..LARGEST or NAME=LEAST..LARGEST:STEP, as in H=32..960:32, but got "
                    f"{name}={value}"
                )
            ranges[name] = value
    shapes: dict[str, tuple[int | str, ...]] = {}
    rest: list[str] = []
    for text in options.input:
        name, _, given = text.rpartition("=")
        extents = extents_of(given)
        free = [extent for extent in extents if isinstance(extent, str)]
        is_value = number_of(given) is not None and given not in ranges
        made = {extent: found for extent in free if (found := expression(extent)) is not None}
        if not name or not free or is_value or not all(e.isidentifier() or e in made for e in free):
            rest.append(text)
            continue
        used = [size for extent in free for size in (sizes_in(made[extent]) if extent in made else (extent,))]
        if unknown := [size for size in used if size not in ranges]:
            raise UsageError(
                f"--input {text} has the extent {unknown[0]}, of which nothing is known: give its range, as in "
                f"`--range {unknown[0]}=1..64`, or a number"
            )
        if name in shapes:
            raise UsageError(f"--input gives {name!r} a shape or a value twice")
        shapes[name] = tuple(extents)
    given_else = inputs_of(rest)
    if twice := [name for name in (*given_else.shapes, *given_else.values, *given_else.either) if name in shapes]:
        raise UsageError(f"--input gives {twice[0]!r} a shape or a value twice")
    return FreeSizes(ranges, {**shapes, **given_else.shapes}, {**given_else.values, **given_else.either})


def _refuse(options: Options, **others: object) -> None:
    """Raise UsageError for what a model of free sizes does not take."""
    names = {name: getattr(options, name, None) for name in (*OTHER_WORK, *OTHER_SEARCH, "record", "any_device")}
    given = {**names, **others, "precision": options.precision, "fallback": options.fallback}
    given["no-winograd"] = not options.winograd
    for name, value in given.items():
        if value:
            option = "from" if name == "from_file" else name.replace("_", "-")
            raise UsageError(f"--{option} does not go with --model and --range")


def _target(options: Options) -> Any:
    return Device.here(options.target, options.threads)


def _network(options: Options, output: Output) -> RangedNetwork:
    from ..models.ranges.api import network_of

    sizes = free_sizes(options)
    output.line(f"stridesmith: reading {options.model}")
    with output.working("reading the model at some sizes"):
        return network_of(options.model or "", _target(options), sizes)


def _model(options: Options, network: RangedNetwork, output: Output) -> RangedModel:
    from ..models.ranges.api import AsWritten, compiled

    with output.working("compiling the model"), warnings.catch_warnings():
        warnings.simplefilter("ignore", AsWritten)  # which the tables tell
        return compiled(network, _target(options), options.db)


def _rows(options: Options, network: RangedNetwork) -> list[tuple[RangedTask, Record | None]]:
    """The programs of a network, each with its best record."""
    from ..models.ranges.kernels import tasks_of
    from ..models.run.kernels import best_record
    from ..search.records.reading import reading

    with reading(options.db) as database:
        return [
            (item, None if database is None else best_record(item.task, database))
            for item in tasks_of(network, _target(options))
        ]


def recorded(options: Options, output: Output) -> tuple[list[tuple[str, Record, int]], list[str]]:
    """The records of a network's programs, each with its operator and its calls, and sentences about the whole.

    Raises NoRecord where there is none.
    """
    from ..search.records.database import Database

    _refuse(options)
    network = _network(options, output)
    rows = _rows(options, network)
    found = [(_name(item), record, len(item.operators)) for item, record in rows if record is not None]
    if not found:
        with Database(options.db, read_only=True) as database:
            raise missing(rows[0][0].task, database, options)
    model = _model(options, network, output)
    notes = [f"{name} runs as it is written: {why}" for name, why in model.notices.items()]
    for share in SHARES.values():
        sizes, us = _measured(model, share)
        notes.append(f"a call with {', '.join(f'{name} = {n}' for name, n in sizes.items())} takes {latency(us)}")
    if len(found) < len(rows):
        notes.append(f"{len(rows) - len(found)} of {len(rows)} programs are not tuned yet; `{options.command()}` does")
    return found, notes


def _name(item: RangedTask) -> str:
    return item.operators[0].name


def _tell(
    options: Options,
    output: Output,
    network: RangedNetwork,
    rows: list[tuple[RangedTask, Record | None]],
    model: RangedModel | None,
) -> None:
    """The event `free_model` and two tables: the programs, and the whole at some sizes where it was compiled."""
    measured = {} if model is None else {where: _measured(model, share) for where, share in SHARES.items()}
    done = sum(record is not None for _, record in rows)
    output.event({
        "event": "free_model", "model": network.name, "device": _target(options).name,
        "ranges": {name: str(numbers) for name, numbers in network.ranges.items()},
        "programs": len(rows), "tuned": done, "db": options.db,
        "as_written": {} if model is None else model.notices,
        "latencies": [{"sizes": sizes, "latency_us": us} for sizes, us in measured.values()],
    })  # fmt: skip
    table = [
        (_name(item), len(item.operators), latency(record.latency_us) if record else "-", record.id if record else "-")
        for item, record in rows
    ]
    output.table("programs", ("operator", "calls", "mean over its sizes", "record"), table)
    told = [
        ("model", f"{network.name}, {len(network.nodes)} operators"),
        ("sizes", ", ".join(f"{name} = {numbers}" for name, numbers in network.ranges.items())),
        ("tuned", f"{done} of {len(rows)} programs"),
    ]
    for where, (sizes, us) in measured.items():
        told.append((where, f"{latency(us)} with {', '.join(f'{name} = {size}' for name, size in sizes.items())}"))
    if model is None:
        told.append(("latency", "the time was over before the model was compiled; `show` compiles and measures it"))
    else:
        told.append(("memory", f"{scaled(model.arena_bytes, 'B')} arena"))
        told += [("as it is written", f"{name}: {why}") for name, why in model.notices.items()]
    told += [("show", options.command("show")), ("replay", options.command("replay"))]
    output.line()
    output.table("model", ("", ""), told)


def _sizes(model: RangedModel, share: float) -> dict[str, int]:
    return {name: r.low + int(share * (r.count - 1)) * r.step for name, r in model.ranges.items()}


def _measured(model: RangedModel, share: float) -> tuple[Mapping[str, int], float]:
    """Sizes at a share of all ranges, and microseconds of a call there, alone on this host."""
    from ..search.workers import host_lock

    sizes = _sizes(model, share)
    with host_lock.exclusive():
        return sizes, statistics.median(model.measure(sizes, TURN_SECONDS)) * 1e6
