"""`tune show`: the design space of a workload, and what is behind a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .lookup import record_of, target_of
from .options import interface, one_work
from .output import Output, latency, number

if TYPE_CHECKING:
    from ..search.records import Record


LANGUAGES = {"trace": "python", "program": "python", "assembly": "gas"}


def run(options: dict[str, Any], output: Output) -> int:
    """Print the view that was asked for; the diagnosis of the record by default."""
    view = options.get("view")
    if view == "space":
        return _space(options, output)
    from ..search.database import Database

    with Database(options.get("db"), read_only=True) as database:
        record = record_of(options, database)
        name = database.name
    if view is None:
        return _diagnosis(record, output)
    text = _view(record, view)
    output.event({"event": view, "record": record.id, "workload": record.workload, "shape": dict(record.params),
                  "interface": dict(record.interface), "device": record.device_key, "latency_us": record.latency_us,
                  "db": name, "text": text})  # fmt: skip
    if output.format == "rich":
        output.line(f"{record.workload or 'script'}, record {record.id}, {latency(record.latency_us)}")
    output.code(text, LANGUAGES.get(view) or ("c" if record.device.kind == "opencl" else "llvm"))
    return 0


def _diagnosis(record: Record, output: Output) -> int:
    from ..search.diagnosis import diagnose
    from .diagnosis import show

    show(diagnose(record), output)
    return 0


def _view(record: Record, view: str) -> str:
    """The text of a view.  What has to be built is built in a worker process."""
    from ..search.diagnosis import schedule_text, texts

    if view == "trace":
        return schedule_text(record)
    if view == "assembly" and record.device.kind != "cpu":
        raise UsageError(f"--assembly is for the CPU; record {record.id} is of {record.device.kind}, so use --source")
    return str(texts(record, compiled=view == "assembly")[view])


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
