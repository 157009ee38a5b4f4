"""What there is: workloads, suites, targets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..figures import number
from ..invocation import COMMAND
from ..space.workloads import describe, names, parameters, summary
from .output import Output


def workloads(name: str | None, output: Output) -> int:
    """Every workload, or one, with its parameter table."""
    for each in (name,) if name else names():
        table = parameters(each)
        output.event({"event": "workload", "name": each, "summary": summary(each),
                      "parameters": [asdict(p) for p in table]})  # fmt: skip
        output.line(f"{each}: {summary(each)}")
        rows = [
            (p.name, p.default, p.meaning + (f" ({' or '.join(p.choices)})" if p.choices else ""), ", ".join(p.also))
            for p in table
        ]
        output.table("", ("parameter", "default", "meaning", "also"), rows)
        output.line()
    return 0


def suites(name: str | None, output: Output) -> int:
    """Every suite with its size, or the entries of one."""
    from .. import configs

    if name is None:
        rows = []
        for each in configs.suites():
            suite = configs.suite(each)
            kinds = sorted({e.work.name for e in suite.entries})
            rows.append((each, len(suite.entries), ", ".join(kinds)))
            output.event({"event": "suite", "name": each, "entries": [e.name for e in suite.entries]})
        output.table("", ("suite", "workloads", "kinds"), rows)
        return 0
    suite = configs.suite(name)
    rows_of: list[tuple[Any, ...]] = []
    for entry in suite.entries:
        output.event({"event": "entry", "name": entry.name, "workload": entry.work.name,
                      "shape": dict(entry.work.shape), "dtype": entry.work.dtype, "count": entry.count,
                      "interface": entry.interface, "flops": entry.work.flops})  # fmt: skip
        rows_of.append((entry.name, f"{entry.work.name}({describe(entry.work.shape)})",
                        number(entry.work.flops / 1e6), entry.count))  # fmt: skip
    output.table("", ("name", "workload", "MFLOP", "count"), rows_of)
    return 0


def targets(output: Output) -> int:
    """The devices of this machine, and the shipped descriptions."""
    from .. import configs
    from ..backends.devices import listing

    rows: list[tuple[Any, ...]] = []
    devices = listing()
    for entry in devices:
        text, device = entry.selector, entry.target
        output.event({"event": "target", "text": text, "key": device.key, "faults": [*entry.faults, *entry.avoided],
                      **device.to_json()})  # fmt: skip
        rows.append((text, device.name, device.isa, device.vector_bits, device.threads, device.units))
    columns = ("--target", "name", "isa", "vector bits", "threads", "units")
    output.table("devices of this machine", columns, rows)
    for entry in devices:
        for fault in entry.faults:
            output.prose(f"{entry.selector}: {fault}")
    described = []
    for name in configs.targets():
        facts = configs.target(name)
        output.event({"event": "description", "name": name, **facts.to_json()})
        described.append((name, facts.kind, facts.vector_bits, facts.threads))
    output.line()
    output.table(f"described machines, for `{COMMAND} show --space --target NAME`",
                 ("name", "kind", "vector bits", "threads"), described)  # fmt: skip
    return 0
