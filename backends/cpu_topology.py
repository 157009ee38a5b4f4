"""How many threads a process may keep busy, and the caches they see: facts that the kernel exposes.

A thread default is the least of the CPUs that the process may run on, the processor time that its
control group grants, and the physical cores among those CPUs: two threads of one core share its
vector units, and only slow each other down.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_CGROUPS = Path("/sys/fs/cgroup")


def usable_threads() -> int:
    """The default number of threads of a kernel, at least 1."""
    quota = cgroup_quota()
    limits = [len(affinity()), physical_cores()]
    if quota is not None:
        limits.append(max(1, math.floor(quota)))
    return max(1, min(limits))


def affinity() -> set[int]:
    """The CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def physical_cores(cpus: Path = _CPUS) -> int:
    """Cores among the CPUs of this process, threads of one core counted once."""
    cores = {_read(cpus / f"cpu{number}/topology/thread_siblings_list") or str(number) for number in affinity()}
    return max(1, len(cores))


def cgroup_quota(root: Path = _CGROUPS, membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """The number of CPUs' worth of time that the control groups grant, or None without a limit.

    Version 2 says ``quota period`` or ``max period`` in `cpu.max`, for the group and each one above
    it; version 1 has two files under the controller `cpu`.
    """
    quotas = []
    for line in _read(membership).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            quotas += [_quota_v2(folder) for folder in _upwards(root, path)]
            quotas += [_quota_v2(folder) for folder in _upwards(root / "unified", path)]
        elif "cpu" in controllers.split(","):
            quotas += [_quota_v1(folder) for folder in _upwards(root / controllers, path)]
            quotas += [_quota_v1(folder) for folder in _upwards(root / "cpu", path)]
    known = [quota for quota in quotas if quota is not None]
    return min(known, default=None)


def _upwards(root: Path, path: str) -> list[Path]:
    """The group's folder and those above it; inside a container, its own root is the group."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [root.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _quota_v2(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    if len(words) != 2 or words[0] == "max":
        return None
    return int(words[0]) / int(words[1])


def _quota_v1(folder: Path) -> float | None:
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if not quota or not period or int(quota) <= 0 or int(period) <= 0:
        return None
    return int(quota) / int(period)


def caches(cpus: Path = _CPUS) -> dict[int, int]:
    """Bytes of the data or unified cache of each level, as the first CPU of this process sees it."""
    sizes: dict[int, int] = {}
    first = min(affinity(), default=0)
    for index in sorted((cpus / f"cpu{first}/cache").glob("index*")):
        level, size = _read(index / "level"), _bytes(_read(index / "size"))
        if _read(index / "type") in ("Data", "Unified") and level.isdigit() and size:
            sizes[int(level)] = size
    return sizes


def first_cache(cpus: Path = _CPUS) -> tuple[int, int]:
    """Ways of the first data cache, and bytes of a line, as the first CPU of this process sees them.

    They are those of most machines, 8 and 64, where nothing is said.
    """
    first = min(affinity(), default=0)
    for index in sorted((cpus / f"cpu{first}/cache").glob("index*")):
        if _read(index / "level") == "1" and _read(index / "type") in ("Data", "Unified"):
            ways, line = _read(index / "ways_of_associativity"), _read(index / "coherency_line_size")
            return int(ways) if ways.isdigit() and int(ways) else 8, int(line) if line.isdigit() and int(line) else 64
    return 8, 64


def _bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "")
    return int(number) * units.get(unit, 1) if number.isdigit() else 0


def _read(path: Path) -> str:
    """The file's text without spaces around it, or nothing where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
