"""The page of `stridesmith show --record ID`: first where it stands and the work, then the inner loop and the schedule.

The program and its code, hundreds of lines, are views of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..figures import latency, number, percent, scaled
from ..invocation import COMMAND
from .output import Output
from .roofline import drawing

if TYPE_CHECKING:
    from ..search.calling.diagnosis import Diagnosis
    from ..search.calling.range_diagnosis import RangeDiagnosis
    from ..search.records.record import Record

STYLES = {
    "label": "bold", "fma": "green", "arithmetic": "green", "load": "cyan", "broadcast": "blue",
    "store": "yellow", "spill": "bold red", "reload": "bold red", "other": "dim",
}  # fmt: skip
RESOURCES = {
    "fma": "arithmetic units", "latency": "chains of updates", "loads": "loads", "stores": "stores",
    "issue": "instructions issued",
}  # fmt: skip
BAR = 24  # characters
LITTLE_IDLE = 0.02  # of the time of all threads, a choice


def show(found: Diagnosis, output: Output) -> None:
    """Print a diagnosis, or its JSON event."""
    output.event(found.event())
    if output.is_json:
        return
    record, facts = found.record, found.facts
    _heading(record, output)
    output.section("Roofline")
    _roofline(found, output)
    output.section("Work and memory")
    output.table("", ("", ""), _work(found))
    on_cpu = record.device.kind == "cpu"
    if on_cpu:
        _inner_loop(found, output)
    else:
        _kernels(facts["kernels"], output)
    output.section("Schedule")
    output.code(found.schedule, "python")
    output.line()
    code = "`--assembly` all of the machine code" if on_cpu else "`--source` its OpenCL C"
    output.prose(f"more of it: `{COMMAND} show --record {record.id} --lowered` prints the lowered program, {code}")


def show_ranges(found: RangeDiagnosis, output: Output) -> None:
    """Print the diagnosis of a record of ranges, or its JSON event."""
    output.event(found.event())
    if output.is_json:
        return
    record, unit = found.record, found.sizes[0].task.work.speed_unit
    _heading(record, output, " in the geometric mean over the sizes")
    output.section("Sizes")
    rows = []
    for at in found.sizes:
        place = at.performance(found.roof)
        speed = number(place["gflops"]) if at.task.work.flops else "-"
        rows.append((found.told(at.point.values), percent(at.point.weight), latency(at.latency_us), speed,
                     percent(place["roofline_fraction"]), str(at.variant)))  # fmt: skip
    output.table("", ("size", "weight", "latency", unit, "of the bound", "schedule"), rows)
    output.prose(
        "measured now; the bound is what the device's peak, and the bandwidth of the cache or memory that holds the "
        "arguments, allow at this size"
    )
    for count, variant in enumerate(found.variants, 1):
        output.section(f"Schedule {count}: {found.told(variant.values)}" if len(found.variants) > 1 else "Schedule")
        output.code(variant.schedule, "python")
    output.line()
    on_cpu = record.device.kind == "cpu"
    code = "`--assembly` all of the machine code" if on_cpu else "`--source` its OpenCL C"
    output.prose(f"more of it: `{COMMAND} show --record {record.id} --program` prints the scheduled program, {code}")


def _heading(record: Record, output: Output, how: str = "") -> None:
    """What a record is of, how fast it is, and where it was measured."""
    output.prose(record.title.replace(",", ", "))
    device = record.device
    state = latency(record.latency_us) + how if record.ok else f"failed: {record.status}"
    checked = "verified" if record.verified else "not verified here"
    where = f"{device.isa}, {device.threads} threads" if device.kind == "cpu" else f"{device.units} compute units"
    run = f" of run {record.run}" if record.run else ""
    output.prose(f"record {record.id}{run}, {state}, {checked}; {device.kind}: {device.name}, {where}")


# --- the inner loop ---------------------------------------------------------------------------


def _inner_loop(found: Diagnosis, output: Output) -> None:
    loop = found.facts["inner_loop"]
    output.section("Inner loop")
    if loop is None:
        output.prose("the code has no loop, or its instructions are not known here; `--assembly` shows all of it")
        return
    over = f"the loop over `{loop['variable']}`" if loop["variable"] else "a loop"
    output.prose(f"the hottest: {over}, {loop['depth']} deep in `{loop['function']}`")
    output.listing([(STYLES[kind], text) for kind, text in loop["lines"]])
    output.table("", ("one iteration", ""), _counts(loop))
    _ports(loop, found.record.device.cpu, output)


def _counts(loop: Mapping[str, Any]) -> list[tuple[str, str]]:
    scalar = loop["fmas"] - loop["vector_fmas"]
    fmas = f"{loop['fmas']} multiply-adds" + (f", {scalar} of them scalar" if scalar else "")
    other = f" and {loop['arithmetic']} other operations" if loop["arithmetic"] else ""
    rest = loop["frame_stores"] + loop["frame_loads"] - loop["spills"] - loop["reloads"]
    tiles = f", {rest} other accesses to the stack" if rest > 0 else ""
    work = f"{fmas}{other}: {loop['flops']} FLOPs" if loop["flops"] else "no floating-point operation"
    return [
        ("arithmetic", work),
        ("loads", f"{loop['loads']} of vectors, {loop['broadcasts']} broadcasts"),
        ("stores", f"{loop['stores']} of vectors"),
        ("registers", f"{loop['registers']} of {loop['registers_in_all']} vector registers, "
                      f"{loop['accumulators']} of them accumulators"),
        ("spills", f"{loop['spills']} stores, {loop['reloads']} reloads{tiles}"),
        ("instructions", f"{loop['instructions']}"),
    ]  # fmt: skip


def _ports(loop: Mapping[str, Any], cpu: str, output: Output) -> None:
    cycles = loop["cycles"]
    if cycles is None:
        output.prose(f"what the execution ports of `{cpu}` allow is not known")
        return
    most = max(cycles.values()) or 1.0
    rows = [
        (name, f"{cycles[key]:.1f}", output.bar(cycles[key] / most, BAR), "<- the bound" * (key == loop["bound"]))
        for key, name in RESOURCES.items()
    ]
    output.table("", (f"least cycles on {cpu}", "", "", ""), rows)
    if loop["fma_share"] is not None:
        share = percent(loop["fma_share"])
        output.prose(f"the ports allow this loop {share} of the peak; what binds it: {RESOURCES[loop['bound']]}")


# --- OpenCL -----------------------------------------------------------------------------------


def _kernels(kernels: Sequence[Mapping[str, Any]], output: Output) -> None:
    output.section("Built kernels")
    for kernel in kernels:
        rows = [
            ("work-items", f"{_grid(kernel['global'])}, in {kernel['groups']} work-groups of {_grid(kernel['local'])}"),
            ("driver", f"allows groups of {kernel['max_work_group']}, prefers multiples of {kernel['multiple']}"),
            ("memory", f"{scaled(kernel['local_bytes'], 'B')} local to a group, "
                       f"{scaled(kernel['private_bytes'], 'B')} private to a work-item"),
        ]  # fmt: skip
        output.table("", (kernel["kernel"], ""), rows)


def _grid(sizes: Sequence[int]) -> str:
    shown = list(sizes)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return " x ".join(map(str, shown))


# --- work and roofline ------------------------------------------------------------------------


def _work(found: Diagnosis) -> list[tuple[str, str]]:
    memory = found.facts["memory"]
    over = "" if found.overcompute is None else f", {found.overcompute:.3f} for each useful one"
    uncounted = "- (a condition has too many points to count)"
    computed = uncounted if found.computed_flops is None else scaled(found.computed_flops, "FLOP")
    kept = [
        ("on the stack of a thread", memory["global"]),
        ("in local memory of a work-group", memory["shared"]),
        ("in registers", memory["local"]),
    ]
    idle = found.imbalance
    shared = [
        f"{count or 'varying'} iterations of `{name}`"
        + (f" ({percent(idle[name])} of the threads' time is idle)" if idle.get(name, 0.0) > LITTLE_IDLE else "")
        for name, count, _ in found.facts["parallel"]
    ]
    threads = f"{', '.join(shared) or 'none'}, on {found.record.device.threads} threads"
    return [
        ("useful", f"{scaled(found.useful_flops, 'FLOP')} in the program as given"),
        ("computed", f"{computed}{over}"),
        ("arguments", f"{scaled(found.task.bytes_moved, 'B')}, which any kernel must move; "
                      f"{scaled(memory['parameters'], 'B')} as they lie, padding included"),
        ("workspaces", f"{scaled(memory['workspaces'], 'B')} for repacked or intermediate buffers"),
        ("tiles", ", ".join(f"{scaled(size, 'B')} {where}" for where, size in kept if size) or "none"),
        *([("parallel", threads)] if found.record.device.kind == "cpu" else []),
        ("intensity", f"{number(found.intensity)} useful FLOP for each byte of the arguments"),
    ]  # fmt: skip


def _roofline(found: Diagnosis, output: Output) -> None:
    facts = found.roofline
    if found.note:
        output.prose(found.note)
    if facts["bound"] is None:
        return
    if output.draws:
        output.listing([("cyan", line) for line in drawing(facts, min(64, output.width - 24))])
    rows = _traffic(found)
    if found.useful_flops:
        rows = [*_speed(found), *rows]
    output.table("", ("", ""), rows)
    output.prose("reached when the record was measured; peak and bandwidth are measured as this is printed")


def _speed(found: Diagnosis) -> list[tuple[str, str]]:
    facts = found.roofline
    unit = found.task.work.speed_unit
    peak = f"{number(facts['peak_gflops'])} {unit}"
    place = "caches" if facts["cached"] else "memory"
    rate = f"{number(facts['bandwidth'] * 1e-9)} GB/s of {place}"
    memory = f"{number(facts['intensity'])} {unit[1:-2]}/byte at {rate}"
    limit = "its peak" if facts["bound"] == "compute" else memory
    return [
        ("reached", f"{number(facts['gflops'])} {unit}"),
        ("bound", f"{number(facts['attainable_gflops'])} {unit}: {facts['bound']}, by {limit}"),
        ("share of the bound", percent(facts["roofline_fraction"])),
        ("share of the peak", f"{percent(facts['peak_fraction'])} of {peak}"),
        *_by_ports(found),
        ("ridge", f"{number(facts['ridge'])} {unit[1:-2]}/byte: below it memory binds, above it arithmetic"),
    ]


def _by_ports(found: Diagnosis) -> list[tuple[str, str]]:
    """What the inner loop's ports leave of the peak for useful work, if all of the time were the loop's."""
    share = (found.facts.get("inner_loop") or {}).get("fma_share")
    if share is None or found.roof is None:
        return []
    gflops = found.roof.peak_gflops * share / (found.overcompute or 1.0)
    return [("by the ports", f"{number(gflops)} {found.task.work.speed_unit}, if the inner loop took all of the time")]


def _traffic(found: Diagnosis) -> list[tuple[str, str]]:
    """How fast the arguments moved, beside the bandwidth."""
    place = "of the caches that hold them" if found.roofline["cached"] else "of memory"
    bandwidth = f"{number(found.roofline['bandwidth'] * 1e-9)} GB/s {place}"
    if found.record.latency_us is None:
        return [("bandwidth", bandwidth)]
    rate = found.task.bytes_moved / found.record.latency_us * 1e-3
    return [("traffic", f"{number(rate)} GB/s of the arguments, beside a bandwidth of {bandwidth}")]
