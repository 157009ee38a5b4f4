"""The host's CPU as a target: its instruction set, caches and threads."""

from __future__ import annotations

import platform
import subprocess
from functools import lru_cache
from pathlib import Path

from ..ir.isa import vectors_of
from ..ir.target import Target
from . import cpu_topology as topology
from .llvm.compile import binding


@lru_cache(maxsize=1)
def host_cpu() -> Target:
    """The host's CPU, with as many threads as this process may keep busy."""
    from importlib.metadata import version

    llvm = binding()
    features = llvm.get_host_cpu_features()
    vectors = vectors_of(platform.machine().lower(), {name for name, has in features.items() if has})
    caches, (ways, line) = topology.caches(), topology.first_cache()
    vendor, model = _identity()
    return Target(
        kind="cpu",
        name=model,
        vendor=vendor,
        isa=vectors.name,
        cpu=llvm.get_host_cpu_name(),
        features=features.flatten(),
        vector_bits=vectors.bits,
        registers=vectors.registers,
        threads=topology.usable_threads(),
        units=topology.physical_cores(),
        l1_bytes=caches.get(1, Target.l1_bytes),
        l1_ways=ways,
        line_bytes=line,
        l2_bytes=caches.get(2, Target.l2_bytes),
        l3_bytes=caches.get(3, Target.l3_bytes),
        versions=f"llvmlite {version('llvmlite')}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}",
    )


def _identity() -> tuple[str, str]:
    """Vendor and model name."""
    if platform.system() == "Darwin":
        return "Apple", _sysctl("machdep.cpu.brand_string") or platform.machine()
    fields: dict[str, str] = {}
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip().lower(), value.strip())
    vendor = fields.get("vendor_id") or fields.get("cpu implementer") or "unknown"
    model = fields.get("model name") or _arm_name(fields) or platform.processor() or platform.machine()
    return vendor, " ".join(model.split())


def _arm_name(fields: dict[str, str]) -> str:
    """ARM's /proc/cpuinfo has numbers where x86 has a name; LLVM knows the core's."""
    if "cpu part" not in fields:
        return ""
    return f"{binding().get_host_cpu_name()} (part {fields['cpu part']})"


def _sysctl(name: str) -> str:
    command = ["sysctl", "-n", name]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
