"""Why a kernel is no faster, in sentences for people who have not seen one before, and what to do about it.

Each finding has the factor that it may cost; those that cost most come first.  What the execution ports, the padding
and the threads do not explain is waiting: for memory, for other threads, or outside of the inner loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from ..figures import latency
from ..search.records.record import OWN

if TYPE_CHECKING:
    from .tasks import TaskReport

GOOD = 0.85
"""Of the roof: from here on there is little to gain."""
WORTH_TELLING = 1.04  # a factor, a choice: about `compare.TRIAL_SPREAD`
FEW_TRIALS = 128  # a choice: half of `settings.DEFAULT_TRIALS`
RESOURCES = {
    "fma": "the arithmetic units", "latency": "sums that wait for their last value", "loads": "loads from the cache",
    "stores": "stores", "issue": "the number of instructions",
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """What holds a kernel back: in a few words, with its evidence, and what to do; `factor` is what it may cost."""

    short: str
    evidence: str
    action: str
    factor: float


def findings(task: TaskReport, command: str, in_model: bool = False) -> list[Finding]:
    """What limits a task, the costliest first; `command` is the command line that tunes it.

    A task that is a part of a model (`in_model`) is fused with its neighbours already, where that can be.
    """
    fraction = task.fraction
    if fraction is not None and fraction >= GOOD:
        bound = _bound(task)
        cached = ": more than was measured of the device, which was slower then" if fraction > 1.03 else ""
        return [Finding(f"at the limit of the {bound}",
                        f"it reaches {_percent(fraction)} of what the device's peak and memory allow{cached}",
                        "Nothing: only another algorithm or another device would be faster.", 1.0)]  # fmt: skip
    found = [item for item in _by_code(task) if item.factor >= WORTH_TELLING]
    found += _waiting(task, found, in_model)
    found.sort(key=lambda item: -item.factor)
    return [*found, *_search(task, command)]


def _bound(task: TaskReport) -> str:
    bound = task.diagnosis.roofline["bound"] if task.diagnosis else None
    return "memory" if bound == "memory" else "arithmetic units"


def _by_code(task: TaskReport) -> Iterator[Finding]:
    """What the winner's code says."""
    if task.record.trace is None:
        yield Finding("untuned", "the best that is known is the program as it was written",
                      "Tune it: the command stands below.", 10.0)  # fmt: skip
    if task.diagnosis is None:
        return
    facts = task.diagnosis.facts
    loop = facts.get("inner_loop")
    if loop is not None:
        yield from _by_loop(loop)
    over = task.diagnosis.overcompute or 1.0
    yield Finding(
        "computes on padding", f"{over:.2f} operations are made for each that is needed",
        "Look at the boundary decisions: `mask` and `peel` compute nothing twice, and tiles that divide the extents "
        "need no padding.", over,
    )  # fmt: skip
    yield from _by_threads(task, facts)


def _by_loop(loop: dict[str, Any]) -> Iterator[Finding]:
    spilled = loop["spills"] + loop["reloads"]
    share = min(1.0, loop["fma_share"] or 1.0)
    vectors = loop["vector_fmas"] / loop["fmas"] if loop["fmas"] else 1.0
    if vectors < 0.5 and loop["fmas"]:
        yield Finding("not in vectors", f"{loop['fmas'] - loop['vector_fmas']} of {loop['fmas']} multiply-adds of the "
                      "inner loop compute one element", "A sketch with vectors along another axis (`vec=`) may do; "
                      "see which sketches were tried.", 1 / max(vectors, 1 / 16))  # fmt: skip
    elif spilled:
        yield Finding(
            "registers overflow", f"the inner loop puts registers away and gets them back {spilled} times an iteration",
            "A smaller register tile needs fewer registers: see what smaller `tile` alternatives came to, and pin one.",
            max(1 / share, 1.0 + spilled / max(loop["instructions"], 1)),
        )  # fmt: skip
    elif loop["bound"] not in (None, "fma"):
        yield Finding(
            f"inner loop bound by {RESOURCES[loop['bound']]}",
            f"by the core's ports it can reach {_percent(share)} of the peak, with {loop['accumulators']} sums and "
            f"{loop['loads'] + loop['broadcasts']} loads for {loop['fmas']} multiply-adds",
            "A larger register tile does more arithmetic for each load: see what larger `tile` alternatives came to.",
            1 / share,
        )  # fmt: skip


def _by_threads(task: TaskReport, facts: Any) -> Iterator[Finding]:
    threads = task.record.device.threads
    counts = [count for _, count, _ in facts["parallel"] if count]
    if task.record.device.kind != "cpu" or threads < 2:
        return
    if not facts["parallel"]:
        yield Finding("runs on one thread", f"no loop is shared, of {threads} threads one works",
                      "For a small operator that is right; else pin `parallel` to a higher number.",
                      float(threads) if task.latency_us > 50 else 1.0)  # fmt: skip
    elif counts:
        rounds = ceil(max(counts) / threads)
        yield Finding(
            "threads wait", f"{max(counts)} pieces of work for {threads} threads leave some idle at the end",
            "More and smaller pieces: smaller blocks, or `parallel` over more loops.",
            rounds * threads / max(counts),
        )  # fmt: skip


def _waiting(task: TaskReport, found: list[Finding], in_model: bool) -> Iterator[Finding]:
    """What is left when all else is taken into account."""
    if task.fraction is None or task.record.trace is None:
        return
    explained = 1.0
    for item in found:
        explained *= item.factor
    rest = 1.0 / (task.fraction * explained)
    if rest < 1.15 and found:
        return
    memory = task.diagnosis.facts["memory"] if task.diagnosis else {}
    moved, least = memory.get("parameters", 0) + 2 * memory.get("workspaces", 0), task.task.bytes_moved
    if moved > 1.3 * least:
        yield Finding(
            "moves data around", f"{moved / least:.1f} times the bytes of its arguments go through memory, for "
            "repacked or intermediate buffers", "Free layouts (`--interface`) let the caller's data come packed; "
            "`place` decisions choose where copies are made.", rest,
        )  # fmt: skip
    elif _bound(task) == "memory":
        yield Finding("waits for memory", "its arithmetic is little beside the bytes that it must read and write",
                      "Nothing by itself: what it could be fused with, it is." if in_model else
                      "Fuse it with its neighbours: in a model (`--model`) that is done.", rest)  # fmt: skip
    elif task.latency_us < 30:
        yield Finding("too short", f"in {latency(task.latency_us)} the start and end of its loops, and threads that "
                      "meet, count", "Fewer threads may do." if in_model else
                      "Fewer threads may do; fused with others it costs less.", rest)  # fmt: skip
    else:
        yield Finding(
            "waits for caches", "what its inner loop, padding and threads explain is less than what it takes: data "
            "comes late, or time goes outside of the inner loop",
            "Other blocks of tiles (`block`, `panel`) keep what is read again nearer: more trials look for them.", rest,
        )  # fmt: skip


def _search(task: TaskReport, command: str) -> Iterator[Finding]:
    """Whether looking longer promises something."""
    if task.record.run == OWN:
        return
    trials = len(task.records)
    best, late = float("inf"), 0
    for number, record in enumerate(task.records, 1):
        if record.latency_us is not None and record.latency_us < 0.98 * best:
            best, late = record.latency_us, number
    wanted = 256 if trials < FEW_TRIALS else 2 * trials
    if trials < FEW_TRIALS:
        why = f"{trials} candidates were tried, where spaces have millions" if trials else "nothing was searched yet"
    elif late > 0.7 * trials:
        why = f"the last gain came with candidate {late} of {trials}: the search was not over"
    else:
        return
    yield Finding("searched briefly", why, f"Search on, from what is known: `{command} --trials {wanted}`", 1.0)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"
