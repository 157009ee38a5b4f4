"""The devices of this machine as targets.

``cpu`` is the host; ``opencl``, ``opencl:PLATFORM`` and ``opencl:PLATFORM:DEVICE`` are found by
part of their name, by a short name of the platform (``opencl:pocl``) or by number.  A kind that
does not exist is an `UnknownTarget`, a kind without such a device on this machine a `DeviceMissing`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        raise UsageError("an OpenCL device has threads of its own: leave out the number of threads")
    found: Target = match_opencl(wanted_platform, wanted_device)
    return found


type(Target).find = staticmethod(discover)


def processor_of(target: Target) -> Target | None:
    """The CPU whose threads run the kernels of an OpenCL device, as a target of its own; None for any other device."""
    return replace(host_cpu(), threads=target.threads) if target.has_thread_pool else None


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
