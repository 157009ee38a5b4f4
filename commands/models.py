"""Whole networks on the command line: the main command, `run`, `replay` and `show` with a model."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..backends.host_load import too_many
from ..errors import UsageError
from ..figures import latency, number, percent, scaled
from ..files import doing, refuse_other
from ..ir.deadline import OutOfTime, until
from ..search.tasks.command_line import Options
from ..search.tasks.device import Device
from .lookup import best_of, missing
from .options import RecordOptions, SearchOptions, array_of, inputs_of, unreadable
from .output import Output
from .progress import Progress, State

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..models.network import Array, Network
    from ..models.run.model import Model
    from ..models.run.report import Row
    from ..models.tuning import Tuned
    from ..search.tasks.task import Roof
    from ..search.workers.bench import Bench

R = TypeVar("R")

DEFAULT_SECONDS = 600.0  # of `stridesmith --model` without a limit, a choice
MEASURING, MOST_MEASURING = 0.05, 1.0  # of the seconds, and seconds, for a last measurement of the whole
OTHER_WORK = ("workload", "shape", "script", "name", "suite", "config", "only", "dtype", "interface")
OTHER_SEARCH = ("trials", "stop_at", "preset", "sampler", "pin", "likely", "from_file", "dry_run")
SHOWN_ROWS = 40  # of operators, a choice


def tune(options: SearchOptions, output: Output, started: float) -> int:
    """Tune every operator of a model together, compile it, and say where its time goes."""
    from ..search.tuning.events import Phase

    _refuse(options, (*OTHER_WORK, *OTHER_SEARCH))
    if not options.resume:
        raise UsageError("--fresh does not go with --model: give a database of its own with --db to begin anew")
    seconds = options.seconds or DEFAULT_SECONDS
    target = _target(options)
    output.event(Phase(phase=f"reading {options.model}").to_json())
    network = _network(options, target, output, tuning=True)
    measuring = min(MEASURING * seconds, MOST_MEASURING)
    state = ModelState(f"tuning {network.name} for {target.key}", limit_seconds=seconds, started=started)
    with Progress(output, state) as progress:
        from ..models.tuning import tune_network

        found = tune_network(
            network, target, seconds - measuring, db=options.db, seed=options.seed or 0,
            address=options.address, start=started, emit=progress, trace=options.trace,
        )  # fmt: skip
        measured = found.predicted_us
        with contextlib.suppress(OutOfTime), until(started + seconds):  # another run may measure for longer
            measured = _measured(found.model, seconds=measuring)
    _tell_model(options, output, found.model, measured, found)
    return 0


def run(options: Options, data: str | None, out: str | None, output: Output) -> int:
    """Run a model with what the database has for it, on the arrays of the file `data` or random ones.

    Outputs go to the file or folder `out`.
    """
    arrays, shapes = _inputs(options.input, data)
    options = replace(options, input=shapes)
    target = _target(options)
    network = _network(options, target, output)
    model = _model(options, network, target, output)
    given = arrays or dict(zip(network.inputs, model.random_inputs(), strict=True))
    try:
        results = model(given)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the model does not take these inputs: {error}") from None
    tell_outputs(results, out, output)
    _tell_differences(options, output, target, given, results)
    arguments = tuple(given[name] for name in network.inputs)
    shares = _shares(_alone(lambda: model.report(arguments, runs=5))) if network.foreign else {}
    _tell_model(options, output, model, _measured(model, arguments), shares=shares)
    return 0


def replay(options: RecordOptions, output: Output) -> int:
    """Rebuild every record that the model would use, verify it with fresh data, and measure it and the whole again."""
    from ..models.chosen import as_kept
    from ..models.run.kernels import best_record
    from ..models.tasks import tasks_of
    from ..search.calling.replay import replay as replayed
    from ..search.records.database import Database
    from ..search.workers.bench import Bench

    _refuse(options, (*OTHER_WORK, "record", "any_device"))
    target = _target(options)
    network = _network(options, target, output)
    rows = []
    with Database(options.db, read_only=True) as database, Bench() as bench:
        for item in tasks_of(as_kept(network, target, database), target):
            task = item.task
            record = best_record(task, database) or best_of(task, database, output)
            if record is None:
                raise missing(task, database, options)
            found = replayed(record, database, bench=bench, task=task)
            output.event(found.event())
            note = "slower" if found.slower else ""
            rows.append((str(task.work), item.weight, latency(found.latency_us), latency(found.recorded_us), note))
    output.table("records, verified again", ("program", "calls", "latency", "recorded", ""), rows)
    model = _model(options, network, target, output)
    _tell_model(options, output, model, _measured(model))
    return 0


def show(options: RecordOptions, view: str | None, as_written: bool, output: Output) -> int:
    """Where the time of a model goes: each operator with its share, layouts, copies, and what fell back."""
    from ..search.workers.bench import Bench

    _refuse(options, (*OTHER_WORK, "record"), view=view, as_written=as_written)
    target = _target(options)
    network = _network(options, target, output)
    model = _model(options, network, target, output)
    with output.working("measuring the device and the model"):
        with Bench() as bench:
            roof = roof_of(model, bench)
        measured = _measured(model)
        rows = _alone(lambda: model.report(roof=roof))
    for row in rows:
        output.event(_row_event(row))
    ordered = sorted(rows, key=lambda row: -row.latency_us)
    table = [
        (
            row.operator, row.program, latency(row.latency_us), percent(row.share), percent(row.roofline), row.origin,
            scaled(row.copied, "B") if row.copied else "", "; ".join(t for t in row.layouts if "as given" not in t),
        )
        for row in ordered[:SHOWN_ROWS]
    ]  # fmt: skip
    columns = ("operator", "program", "time", "share", "of roof", "kernel", "copies", "layouts that differ")
    output.table("where the time goes", columns, table)
    if len(ordered) > SHOWN_ROWS:
        rest = sum(row.share for row in ordered[SHOWN_ROWS:])
        output.line(f"and {len(ordered) - SHOWN_ROWS} more, with {percent(rest)} of the time")
    output.prose(
        f"medians of each operator, timed inside of whole runs by a clock that is read between them: together "
        f"{latency(sum(row.latency_us for row in rows))}, beside a latency that is measured without this"
    )
    given = dict(zip(network.inputs, model.random_inputs(), strict=True))
    if options.precision:
        _tell_differences(options, output, target, given, model(given))
    _tell_model(options, output, model, measured, shares=_shares(rows))
    return 0


@dataclass
class ModelState(State):
    """What a run for a model has found so far, from the events `tasks`, `phase` and `turn`."""

    tasks: int = 0
    known: set[int] = field(default_factory=set)
    first_us: float | None = None

    def take(self, event: dict[str, Any]) -> None:
        """Learn from one event."""
        if event["event"] == "tasks":
            self.tasks = len(event["tasks"])
            self.known = {number for number, task in enumerate(event["tasks"]) if task["best_us"] is not None}
            self.phase = "first candidates of each task"
        elif event["event"] == "phase":
            self.phase = event["phase"]
        elif event["event"] == "turn":
            self.trials, self.round = event["trials"], event["turn"]
            if event["best_us"] is not None and event["task"] < self.tasks:
                self.known.add(event["task"])
            self.phase = f"{event['workload']}, called {event['weight']} times: {latency(event['best_us'])}"
        if event.get("predicted_us") is not None:
            self.best_us = event["predicted_us"]
            self.first_us = self.first_us or self.best_us

    def best(self) -> str:
        """The predicted time of the model, and how far it has fallen."""
        if not self.tasks:
            return f"no result yet ({self.phase})"
        if self.best_us is None or self.first_us is None:
            return f"{len(self.known)} of {self.tasks} tasks have a kernel ({self.phase})"
        return f"{latency(self.best_us)} for the model, {number(self.first_us / self.best_us)}x as fast as at first"


def _target(options: Options) -> Target:
    return Device.here(options.target, options.threads)


def _network(options: Options, target: Target, output: Output, tuning: bool = False) -> Network:
    from ..models.api import Reading, read_as
    from ..models.network import REFERENCE

    output.line(f"stridesmith: reading {options.model}")
    if not tuning and target.kind == "cpu":  # a search says it itself
        output.notes([note for note in [too_many(target.threads)] if note])
    how = Reading(
        inputs_of(options.input), options.winograd, options.precision or "float32", options.fallback or REFERENCE
    )
    return read_as(options.model or "", target, how, options.db, tuning)


def _model(options: Options, network: Network, target: Target, output: Output) -> Model:
    from ..models.api import compiled

    with output.working("compiling the model"):
        return compiled(network, target, options.db)


def compiled_model(options: RecordOptions, output: Output, as_written: bool = False) -> Model:
    """The model of `--model` with the best kernels that the database has for it."""
    _refuse(options, (*OTHER_WORK, "record"), as_written=as_written)
    if options.range:
        raise UsageError("--range is not for `emit`: files have networks of one shape, and `ss.compile` those of all")
    target = _target(options)
    return _model(options, _network(options, target, output), target, output)


def _refuse(options: Options, names: tuple[str, ...], **others: object) -> None:
    """An option that a model would ignore is a mistake, not a wish: those of `options` by `names`, and `others`."""
    for name, given in {**{name: getattr(options, name) for name in names}, **others}.items():
        if given:
            option = "from" if name == "from_file" else name.replace("_", "-")
            raise UsageError(f"--{option} does not go with --model, which takes every operator at once")


def _measured(model: Model, inputs: Sequence[Array] | None = None, seconds: float = 1.0) -> float:
    """Microseconds of a run of the whole, alone on this host; on small random numbers without `inputs`."""
    return statistics.median(_alone(lambda: model.measure(inputs, seconds=seconds))) * 1e6


def _alone(measure: Callable[[], R]) -> R:
    from ..search.workers import host_lock

    with host_lock.exclusive():
        return measure()


def roof_of(model: Model, bench: Bench) -> Roof | None:
    """The limits of a model's device, with the peak of each type that its programs are bounded by; None if it fails."""
    from ..search.tasks.task import peak_dtypes
    from ..search.workers.protocol import MeasureRoof, Roofed

    also = peak_dtypes(kernel.task.work for kernel in model.kernels.values())
    reply = bench.run(MeasureRoof(target=model.target, dtype="float32", also=also))
    return reply.roof if isinstance(reply, Roofed) else None


def _shares(rows: Sequence[Row]) -> dict[str, float]:
    """The shares of the time of what runs by the reference implementation of ONNX, by its type."""
    found: dict[str, float] = {}
    for row in rows:
        if row.is_fallback:
            found[row.program] = found.get(row.program, 0.0) + row.share
    return found


def _tell_model(
    options: Options,
    output: Output,
    model: Model,
    measured_us: float | None,
    tuned: Tuned | None = None,
    shares: Mapping[str, float] | None = None,
) -> None:
    """The event `model` and a table: how fast the whole is, and what it is made of.

    `shares` are those of the time of what fell back, by its type, where they were measured.
    """
    shares = shares or {}
    from ..models.fallback import NAMES

    fallback = sorted({node.op for node in model.network.foreign})
    by = {node.op: NAMES[node.by] for node in model.network.foreign}
    origins = [kernel.origin for kernel in model.kernels.values()]
    recorded = [k.record.latency_us for k in model.kernels.values() if k.record and k.record.latency_us]
    predicted = tuned.predicted_us if tuned else sum(recorded) if len(recorded) == len(origins) else None
    event = {
        "event": "model", "model": model.network.name, "target": model.target.kind, "device": model.target.name,
        "threads": model.target.threads, "operators": len(model.network.nodes), "fallback": fallback,
        "fallback_share": dict(shares), "fallback_by": by,
        "untuned": len(origins) - origins.count("tuned"), "latency_us": measured_us, "predicted_us": predicted,
        "wholes": dict(tuned.wholes) if tuned else {},
        "arena_bytes": model.plan.blocks[0], "constant_bytes": model.plan.blocks[1],
        "trials": tuned.trials if tuned else None, "seconds": tuned.seconds if tuned else None,
        "stopped_by": tuned.stopped_by if tuned else None, "db": tuned.db if tuned else options.db,
    }  # fmt: skip
    output.event(event)
    rows = [
        ("model", f"{model.network.name}, {len(model.network.nodes)} operators"),
        ("device", f"{model.target.name}, {model.target.threads} threads"),
        ("latency", latency(measured_us)),
        (
            "sum of its kernels",
            latency(predicted) if predicted else f"- ({len(origins) - len(recorded)} kernels have no record)",
        ),
        ("memory", f"{scaled(model.plan.blocks[0], 'B')} arena, {scaled(model.plan.blocks[1], 'B')} constants"),
        ("fell back", ", ".join(_with_share(op, by[op], shares) for op in fallback) or "nothing"),
        ("not tuned", f"{len(origins) - origins.count('tuned')} of {len(origins)} kernels"),
    ]
    if tuned and tuned.wholes:
        rows.append(("raced", ", ".join(f"{rule} {latency(us)}" for rule, us in tuned.wholes.items())))
    if tuned:
        rows.append(("trials", f"{tuned.trials} in {tuned.seconds:.0f} s, stopped by {tuned.stopped_by}"))
        rows += [("show", options.command("show")), ("replay", options.command("replay"))]
    output.line()
    output.table("model", ("", ""), rows)


def _with_share(op: str, by: str, shares: Mapping[str, float]) -> str:
    return f"{op} ({percent(shares[op])} of the time, by {by})" if op in shares else f"{op} (by {by})"


def _tell_differences(
    options: Options, output: Output, target: Target, given: Mapping[str, Array], results: Mapping[str, Array]
) -> None:
    """What another precision than float32 costs: each output beside that of the same model in float32."""
    from ..models.precision import WIDE, differences

    if (options.precision or WIDE) == WIDE:
        return
    plain = replace(options, precision=None)
    wide = _model(plain, _network(plain, target, output), target, output)(given)
    found = differences(results, wide)
    for name, item in found.items():
        output.event({"event": "difference", "name": name, "largest": item.largest, "typical": item.typical})
    rows = [(name, percent(item.largest), percent(item.typical)) for name, item in found.items()]
    title = f"{options.precision} beside float32, as shares of the output"
    output.table(title, ("output", "largest difference", "typical"), rows)


def _row_event(row: Row) -> dict[str, Any]:
    return {
        "event": "operator", "operator": row.operator, "program": row.program, "latency_us": row.latency_us,
        "share": row.share, "origin": row.origin, "record": row.record, "recorded_us": row.recorded_us,
        "layouts": list(row.layouts), "copied": row.copied, "only_moves": row.only_moves, "gflops": row.gflops,
        "roofline": row.roofline,
    }  # fmt: skip


def tell_outputs(results: Mapping[str, Any], out: str | None, output: Output) -> None:
    """Write the outputs of a model to the file or folder `out`, if it is given, and say what they are."""
    if out:
        _save(Path(out), results)
    for name, array in results.items():
        output.event({"event": "output", "name": name, "shape": list(array.shape), "dtype": str(array.dtype)})
    rows = [(name, "x".join(map(str, a.shape)), str(a.dtype), _range(a)) for name, a in results.items()]
    output.table("outputs", ("name", "shape", "type", "range"), rows)


def _inputs(texts: tuple[str, ...], data: str | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arrays of `--data` and of every ``--input NAME=FILE.npy``, by name; and what `--input` says of all."""
    files, rest = array_files(texts)
    shapes = [f"{name}=[{','.join(map(str, array.shape))}]" for name, array in files.items()]
    return (arrays_in(data) if data else {}) | files, (*rest, *shapes)


def array_files(texts: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arrays of every ``--input NAME=FILE.npy``, by name; and the other ones that `--input` has."""
    files = [text for text in texts if text.endswith(".npy")]
    arrays = {text.rpartition("=")[0]: array_of(text.rpartition("=")[2]) for text in files}
    return arrays, tuple(text for text in texts if text not in files)


def arrays_in(path: str) -> dict[str, Any]:
    """The arrays of an `.npz` file by name; nothing in it is ever unpickled."""
    import zipfile

    import numpy as np

    try:
        with np.load(Path(path), allow_pickle=False) as found:
            return {name: np.ascontiguousarray(found[name]) for name in found.files}
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise unreadable("the inputs", path, "an .npz file of plain arrays", error) from None


def _save(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write outputs: into one `.npz` file, else as NAME.npy into a folder."""
    import numpy as np

    refuse_other(path, "outputs", *(f"{name}.npy".encode() for name in arrays))
    with doing(f"write the outputs to {path}"):
        if path.suffix == ".npz":
            with path.open("wb") as file:
                np.savez(file, **arrays)
            return
        path.mkdir(parents=True, exist_ok=True)
        files = {path / f"{name.replace('/', '_')}.npy": array for name, array in arrays.items()}
        for place in files:
            refuse_other(place, "outputs", b"\x93NUMPY")
        for place, array in files.items():
            np.save(place, array)


def _range(array: Any) -> str:
    return f"{number(float(array.min()))} to {number(float(array.max()))}" if array.size else "empty"
