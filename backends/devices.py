"""The devices of this machine as targets.

``cpu`` is the host; ``opencl``, ``opencl:PLATFORM`` and ``opencl:PLATFORM:DEVICE`` are found by
part of their name or by number.  A kind that does not exist is an `UnknownTarget`, a kind without
such a device on this machine a `DeviceMissing`.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import DeviceMissing, UnknownTarget, UsageError, did_you_mean
from ..ir.target import KINDS, Target
from .host import host_cpu


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
    devices = [host_cpu()]
    try:
        from .opencl.devices import list_opencl

        devices.extend(list_opencl())
    except (ImportError, DeviceMissing):
        pass
    return devices
