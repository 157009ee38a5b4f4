"""`tune show`: the design space of a workload, and what is behind a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import BadRecord, UsageError
from .lookup import record_of, target_of
from .options import interface, one_work
from .output import Output, latency, number

if TYPE_CHECKING:
    from ..backends.lower import Lowered
    from ..ir.stmt import PrimFunc
    from ..ir.target import Target
    from ..search.records import Record


def run(options: dict[str, Any], output: Output) -> int:
    """Print the view that was asked for; the trace of the best record by default."""
    view = options.get("view") or "trace"
    if view == "space":
        return _space(options, output)
    from ..search.database import Database

    with Database(options.get("db"), read_only=True) as database:
        record = record_of(options, database)
        name = database.name
    text, language = _view(record, view)
    output.event({"event": view, "record": record.id, "workload": record.workload, "shape": dict(record.params),
                  "interface": dict(record.interface), "device": record.device_key, "latency_us": record.latency_us,
                  "db": name, "text": text})  # fmt: skip
    if output.format == "rich":
        output.line(f"{record.workload or 'script'}, record {record.id}, {latency(record.latency_us)}")
    output.code(text, language)
    return 0


def _view(record: Record, view: str) -> tuple[str, str]:
    """The text of a view, and its language."""
    if view == "trace":
        return _trace(record), "python"
    func = scheduled(record)
    if view == "program":
        return func.script(), "python"
    from ..backends.lower import lower

    target = record.device
    lowered = lower(func, target)
    if view == "source":
        return _source(lowered, target)
    if target.kind != "cpu":
        raise UsageError(f"--assembly is for the CPU; record {record.id} is of {target.kind}, so use --source")
    from ..backends.cpu import assembly

    return assembly(lowered, target), "gas"


def _trace(record: Record) -> str:
    from ..space.errors import ScheduleError
    from ..space.trace import Trace

    if not record.trace:
        return "# the untuned program: no instruction"
    try:
        return Trace.from_json(record.trace).script()
    except ScheduleError as error:
        raise BadRecord(f"record {record.id} is refused: {error}") from None


def _source(lowered: Lowered, target: Target) -> tuple[str, str]:
    if target.kind == "opencl":
        from ..backends.kernel import compile_lowered

        return compile_lowered(lowered, target)["code"], "c"
    from ..backends.llvm.codegen import generate

    return generate(lowered, target), "llvm"


def scheduled(record: Record) -> PrimFunc:
    """The record's program with its trace applied, all proofs on.  Raises BadRecord where one fails."""
    from ..search.programs import REFUSALS, candidate

    try:
        return candidate(record.script, record.trace)
    except REFUSALS as error:
        raise BadRecord(f"record {record.id} is refused: {error}") from None


def _space(options: dict[str, Any], output: Output) -> int:
    """Sketches and decisions by kind, and how many candidates there are; needs no record and no device."""
    from .. import configs
    from ..space.space import generate

    entry = one_work(options)
    described = configs.target(options["target"]) if options["target"] in configs.targets() else None
    target = described or target_of(options)
    asked = interface(options.get("interface"), entry.work, entry.interface)
    space = generate(entry.work.func, target, asked)
    facts = space.describe()
    output.event({"event": "space", "workload": entry.work.name, "shape": entry.work.shape, "target": target.key,
                  "interface": asked, "size": space.size, "sketches": [s.describe() for s in space.sketches],
                  "description": facts})  # fmt: skip
    output.line(f"{entry.work} on {target.key}: {len(space.sketches)} sketches, {number(float(space.size))} candidates")
    rows = [
        (s.name, d.kind, d.name, len(d.labels), _short(d.labels)) for s in space.sketches for d in s.decisions
    ]  # fmt: skip
    kinds: dict[str, int] = {}
    for sketch in space.sketches:
        for decision in sketch.decisions:
            kinds[decision.kind] = kinds.get(decision.kind, 0) + 1
    output.table("decisions by kind", ("kind", "decisions"), sorted(kinds.items()))
    if space.sketches:
        output.table("names", ("name", "in the program", "extent"), _names(space))
    output.table("decisions", ("sketch", "kind", "decision", "alternatives", "first of them"), rows)
    return 0


def _names(space: Any) -> list[tuple[str, str, object]]:
    """What the canonical names of axes and operands stand for in the program."""
    described = space.sketches[0].describe()
    rows: list[tuple[str, str, object]] = [(name, var, extent) for name, (var, extent) in described["axes"].items()]
    return rows + [(name, buffer, "") for name, buffer in described["operands"].items()]



def _short(labels: tuple[str, ...], limit: int = 60) -> str:
    text = ", ".join(labels)
    return text if len(text) <= limit else text[: limit - 3] + "..."
