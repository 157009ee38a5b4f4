"""What else this machine does while something is measured on it, and what holds its processors back.

Linux counts for each processor the time that it computed, that it waited, and that the host of a virtual machine gave
to others; two readings tell what happened between them.  Elsewhere nothing is known.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..invocation import COMMAND
from . import cpu_topology

PROC, CPUS = Path("/proc"), Path("/sys/devices/system/cpu")
LOOK_SECONDS = 0.1
MUCH_BUSY, MUCH_STOLEN = 0.25, 0.03
"""Processors that others keep busy, and the share of time that another machine takes, from which on it is said."""


@dataclass(frozen=True)
class Load:
    """What was seen.

    `busy` is how many of the `processors` of this process others kept busy on average, `stolen` the share of time that
    the host of a virtual machine gave to others, `throttled` whether a processor was slowed down for its heat.
    """

    busy: float
    stolen: float
    throttled: bool
    processors: int

    @property
    def told(self) -> str:
        """What a user should know of it; empty on a quiet machine."""
        found = []
        if self.busy > MUCH_BUSY:
            found.append(f"other processes keep {self.busy:.1f} of {self.processors} processors busy")
        if self.stolen > MUCH_STOLEN:
            found.append(f"the host of this virtual machine gives {100 * self.stolen:.0f} % of the time to others")
        if self.throttled:
            found.append("the processors are slowed down for their heat")
        return " and ".join(found)

    @property
    def caveat(self) -> str:
        """The same as a sentence to stand beside what was measured meanwhile; empty on a quiet machine."""
        told = self.told
        return f"{told}: what was measured took longer, and says less, than on a quiet machine" if told else ""


def too_many(threads: int) -> str:
    """That so many threads have not a core each, as a sentence; empty where they have."""
    usable = cpu_topology.usable_threads()
    if threads <= usable:
        return ""
    return (
        f"{threads} threads were asked for, where this process may use {usable} cores: threads of one core wait for "
        "each other"
    )


def notes(load: Load | None, threads: int) -> list[str]:
    """What makes times of this machine slower, or less certain, than they need to be, said before they are taken."""
    busy = "" if load is None or not load.told else (
        f"{load.told}: what is measured now takes longer, and says less, than on a quiet machine; `{COMMAND} doctor` "
        "looks again"
    )  # fmt: skip
    return [note for note in (busy, too_many(threads)) if note]


@dataclass(frozen=True)
class _Reading:
    """Seconds since some moment, summed over processors: computed, and stolen; own processor time; throttlings."""

    at: float
    computed: float
    stolen: float
    own: float
    throttlings: int


def look(seconds: float = LOOK_SECONDS) -> Load | None:
    """What happens during so many seconds, in which this process waits; None as for `watch`."""
    since = watch()
    time.sleep(seconds)
    return since()


def watch() -> Callable[[], Load | None]:
    """Begin to look; each call of what comes back tells what happened since.

    That is None where the system does not tell, and within less than `LOOK_SECONDS`, since it counts in ticks.
    """
    before = _read()

    def since() -> Load | None:
        after = _read()
        if before is None or after is None or after.at - before.at < LOOK_SECONDS:
            return None
        return _between(before, after, len(cpu_topology.affinity()))

    return since


def _between(before: _Reading, after: _Reading, processors: int) -> Load:
    seconds = max(after.at - before.at, 1e-9)
    others = (after.computed - before.computed) - (after.own - before.own)
    stolen = (after.stolen - before.stolen) / seconds / processors
    return Load(
        min(max(others / seconds, 0.0), float(processors)), min(max(stolen, 0.0), 1.0),
        after.throttlings > before.throttlings, processors,
    )  # fmt: skip


def _read(proc: Path = PROC) -> _Reading | None:
    """The counters of the processors that this process may run on.

    A line is ``cpuN user nice system idle iowait irq softirq steal guest guest_nice``, in ticks.
    """
    try:
        lines = (proc / "stat").read_text().splitlines()
        tick = os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
    mine = {f"cpu{number}" for number in cpu_topology.affinity()}
    rows = [list(map(int, line.split()[1:9])) for line in lines if line.split(" ", 1)[0] in mine]
    if not rows or any(len(row) < 8 for row in rows):
        return None
    throttlings = 0  # of processors, for their heat
    for number in cpu_topology.affinity():
        with contextlib.suppress(OSError, ValueError):
            throttlings += int((CPUS / f"cpu{number}/thermal_throttle/core_throttle_count").read_text())
    computed = sum(row[0] + row[1] + row[2] + row[5] + row[6] for row in rows) / tick
    return _Reading(
        time.monotonic(), computed, sum(row[7] for row in rows) / tick, time.process_time(), throttlings,
    )  # fmt: skip
