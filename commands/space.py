"""`stridesmith show --space`: what there is to choose, for one workload or each of a suite.  Needs no device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..figures import number
from ..report.words import KINDS
from ..search.tasks.command_line import Options
from ..search.tasks.device import Device
from ..search.tasks.task import Task
from .lookup import device_of, interface_asked, searched, space_of
from .options import all_work
from .output import Output, printable

if TYPE_CHECKING:
    from ..configs import Entry
    from ..ir.target import Target
    from ..space.design.decision import Decision
    from ..space.design.space import Space


def run(options: Options, output: Output) -> int:
    """Sketches, decisions by kind, and how many candidates there are."""
    entries = [each for entry in all_work(options) for each in searched(entry, _task(options, entry), {}, None)]
    devices = [_device(options, entry) for entry in entries]
    targets, spaces = [device.target for device in devices], []
    for entry, device in zip(entries, devices, strict=True):
        task = _task(options, entry)
        space = space_of(task, device)
        output.event({
            "event": "space", "workload": entry.work.name, "shape": entry.work.shape, "target": device.target.key,
            "interface": task.interface, "size": space.size, "sketches": [s.describe() for s in space.sketches],
            "description": space.describe(),
        })  # fmt: skip
        spaces.append(space)
    if output.is_json:
        return 0
    if len(entries) == 1:
        _one(entries[0], spaces[0], targets[0], output)
    else:
        _several(entries, spaces, targets, output)
    return 0


def _task(options: Options, entry: Entry) -> Task:
    return Task(entry.work, _device(options, entry).target, interface_asked(options, entry))


def _device(options: Options, entry: Entry) -> Device:
    """A device, or what a shipped description says of one that need not be here."""
    from .. import configs

    if options.target in configs.targets():
        return Device(configs.target(options.target))
    return device_of(options, entry)


def _by_kind(space: Space) -> dict[str, list[Decision]]:
    """The decisions of all sketches by kind, in the order of `KINDS`."""
    found: dict[str, list[Decision]] = {}
    for sketch in space.sketches:
        for decision in sketch.decisions:
            found.setdefault(decision.kind, []).append(decision)
    known = [*KINDS, *found]
    return dict(sorted(found.items(), key=lambda item: known.index(item[0])))


# --- a suite ------------------------------------------------------------------------------------


def _several(entries: Sequence[Entry], spaces: Sequence[Space], targets: Sequence[Target], output: Output) -> None:
    """A row for each workload."""
    devices = " and ".join(dict.fromkeys(target.key for target in targets))
    grouped = [_by_kind(space) for space in spaces]
    kinds = [kind for kind in KINDS if any(kind in found for found in grouped)]
    output.prose(f"design spaces on {devices}: decisions by kind, and how many candidates they span")
    counts = [[len(found.get(kind, ())) for kind in kinds] for found in grouped]
    headings = ("workload", "sketches", *(kind.replace("_", " ") for kind in kinds), "candidates")
    if sum(len(heading) + 3 for heading in headings) > output.width:
        headings = ("workload", "sketches", "decisions", "candidates")
        cells: list[list[Any]] = [[_spelled(kinds, row)] for row in counts]
    else:
        cells = [list(row) for row in counts]
    rows = [
        (entry.name, len(space.sketches), *row, number(float(space.size)))
        for entry, space, row in zip(entries, spaces, cells, strict=True)
    ]
    output.table("", headings, rows)


def _spelled(kinds: Sequence[str], counts: Sequence[int]) -> str:
    return ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in zip(kinds, counts, strict=True) if count)


# --- one workload -------------------------------------------------------------------------------


def _one(entry: Entry, space: Space, target: Target, output: Output) -> None:
    output.prose(printable(str(entry.work)).replace(",", ", "))
    output.prose(f"on {target.key}: {len(space.sketches)} sketches, {number(float(space.size))} candidates")
    rows = [
        (kind, len(decisions), _alternatives(decisions), KINDS.get(kind, ""))
        for kind, decisions in _by_kind(space).items()
    ]
    output.section("Decisions by kind")
    output.table("", ("kind", "decisions", "alternatives", "what is chosen"), rows)
    if not space.sketches:
        return
    # What brings the program into normal form: stages inlined, axes cut into digits, borders moved into padding.
    start = space.sketches[0].start
    if steps := ([] if start is None else [line for line in start.trace.script().splitlines() if line]):
        output.section("Before every sketch")
        output.table("", ("step",), [(step,) for step in steps])
    output.section("Sketches")
    sketches = [
        (number_of, sketch.name, len(sketch.decisions), number(float(sketch.describe()["size"])))
        for number_of, sketch in enumerate(space.sketches, 1)
    ]
    output.table("", ("", "sketch", "decisions", "candidates"), sketches)
    output.section("Names")
    described = space.sketches[0].describe()
    stands: list[tuple[str, str, object]] = [(name, var, extent) for name, (var, extent) in described["axes"].items()]
    stands += [(name, buffer, "") for name, buffer in described["operands"].items()]
    output.table("", ("name", "in the program", "extent"), stands)
    output.section("Decisions")
    output.table("", ("decision", "sketches", "", "alternatives"), _decisions(space))


def _alternatives(decisions: Sequence[Decision]) -> str:
    """``3`` or ``2 to 13``: how many alternatives the decisions have."""
    counts = [len(decision) for decision in decisions]
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _decisions(space: Space) -> list[tuple[str, str, int, str]]:
    """Each decision with the sketches that offer it with the same alternatives, by their numbers."""
    found: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for number_of, sketch in enumerate(space.sketches, 1):
        for decision in sketch.decisions:
            name = decision.name.removeprefix(f"{sketch.name}/")
            found.setdefault((name, decision.labels), []).append(number_of)
    order = list(dict.fromkeys(name for name, _ in found))
    ordered = sorted(found.items(), key=lambda item: order.index(item[0][0]))
    everywhere = len(space.sketches)
    return [
        (name, "all" if len(numbers) == everywhere else _ranges(numbers), len(labels), _short(labels))
        for (name, labels), numbers in ordered
    ]


def _ranges(numbers: Sequence[int]) -> str:
    """``1-3, 5``."""
    parts: list[list[int]] = []
    for value in numbers:
        if parts and parts[-1][1] == value - 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _short(labels: tuple[str, ...], limit: int = 60) -> str:
    text = ", ".join(labels)
    return text if len(text) <= limit else text[: limit - 3] + "..."
