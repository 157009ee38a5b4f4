"""The devices of this machine as targets.

``cpu`` is the host; ``opencl``, ``opencl:PLATFORM`` and ``opencl:PLATFORM:DEVICE`` are found by
part of their name, by a short name of the platform (``opencl:pocl``) or by number.  A kind that
does not exist is an `UnknownTarget`, a kind without such a device on this machine a `DeviceMissing`.
"""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ..errors import DeviceMissing, UnknownTarget, UsageError, did_you_mean
from ..ir.target import KINDS, Target
from . import cpu_topology as topology
from .llvm.compile import binding


def discover(text: str, threads: int | None = None) -> Target:
    """The target that `text` names, with `threads` of a CPU's threads (default: what this process may use)."""
    kind, _, rest = text.strip().partition(":")
    kind = kind.lower()
    if threads is not None and threads < 1:
        raise UnknownTarget(f"target `{text}`: the number of threads must be at least 1, but got {threads}")
    if kind == "cpu":
        if rest:
            raise UnknownTarget(f"unknown target `{text}`: a CPU has no platform or device; use `cpu`")
        found = host_cpu()
        return found if threads is None else replace(found, threads=threads)
    if kind == "opencl":
        return _opencl(rest, threads)
    hint = did_you_mean(kind, KINDS)
    raise UnknownTarget(f"unknown target `{text}`; known are `cpu` and `opencl[:PLATFORM[:DEVICE]]`{hint}")


def _opencl(rest: str, threads: int | None) -> Target:
    wanted_platform, _, wanted_device = rest.partition(":")
    try:
        from .opencl.devices import match_opencl
    except ImportError as error:
        advice = "install `pyopencl` and a driver, or use the target `cpu`"
        raise DeviceMissing(f"no OpenCL here: {error}; {advice}") from error
    if threads is not None:
        raise UsageError("an OpenCL device runs on all of its compute units: leave out the number of threads")
    found: Target = match_opencl(wanted_platform, wanted_device)
    return found


type(Target).find = staticmethod(discover)


def list_devices() -> list[Target]:
    """Every device of this machine, the CPU first; without OpenCL, only the CPU."""
    return [device.target for device in listing()]


@dataclass(frozen=True)
class Listed:
    """A device of this machine: the shortest text that `discover` takes for it, and known faults of its driver."""

    selector: str
    target: Target
    faults: tuple[str, ...] = ()


def listing() -> list[Listed]:
    """Every device of this machine, in the order of `list_devices`."""
    devices = [Listed("cpu", host_cpu())]
    try:
        from .opencl.devices import selectors

        devices.extend(Listed(text, target, tuple(faults)) for text, target, faults in selectors())
    except (ImportError, DeviceMissing):
        pass
    return devices


@lru_cache(maxsize=1)
def host_cpu() -> Target:
    """The host's CPU, with as many threads as this process may keep busy."""
    llvm = binding()
    features = llvm.get_host_cpu_features()
    isa, bits, registers = vector_isa(platform.machine().lower(), features)
    caches, (ways, line) = topology.caches(), topology.first_cache()
    vendor, model = _identity()
    return Target(
        kind="cpu",
        name=model,
        vendor=vendor,
        isa=isa,
        cpu=llvm.get_host_cpu_name(),
        features=features.flatten(),
        vector_bits=bits,
        registers=registers,
        threads=topology.usable_threads(),
        units=topology.physical_cores(),
        l1_bytes=caches.get(1, Target.l1_bytes),
        l1_ways=ways,
        line_bytes=line,
        l2_bytes=caches.get(2, Target.l2_bytes),
        l3_bytes=caches.get(3, Target.l3_bytes),
        versions=f"llvmlite {_version('llvmlite')}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}",
    )


def vector_isa(machine: str, features: dict[str, bool]) -> tuple[str, int, int]:
    """``(name, bits of a vector register, number of them)`` of the widest instruction set present."""
    if machine in ("x86_64", "amd64", "i386", "i686"):
        if all(features.get(f, False) for f in ("avx512f", "avx512vl", "avx512bw", "avx512dq")):
            return "avx512", 512, 32
        if features.get("avx2", False) and features.get("fma", False):
            return "avx2", 256, 16
        return ("avx", 256, 16) if features.get("avx", False) else ("sse2", 128, 16)
    if machine in ("aarch64", "arm64"):
        return "neon", 128, 32
    return machine or "unknown", 128, 16


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


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

