"""The devices of this machine as targets.

``cpu`` is the host; ``opencl``, ``opencl:PLATFORM`` and ``opencl:PLATFORM:DEVICE`` are found by
part of their name, by a short name of the platform (``opencl:pocl``) or by number.  A kind that
does not exist is an `UnknownTarget`, a kind without such a device on this machine a `DeviceMissing`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..errors import DeviceMissing, UnknownTarget, UsageError, did_you_mean
from ..invocation import COMMAND
from ..ir.target import KINDS, Target
from ..numerals import as_whole
from .host import host_cpu


def discover(text: str, threads: int | None = None) -> Target:
    """The target that `text` names, with `threads` of a CPU's threads (default: what this process may use).

    Raises TypeError for what is no text or no whole number.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"a target is a text, as 'cpu', or an `ss.Target`, but got something of type {type(text).__name__}"
        )
    if threads is not None and as_whole(threads) is None:
        raise TypeError(f"target `{text}`: the number of threads is a whole number, but got {threads!r}")
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
    raise UnknownTarget(
        f"unknown target `{text}`; known are `cpu` and `opencl[:PLATFORM[:DEVICE]]`{_meant(kind, text.lower())}"
    )


ON_GPUS = ("cuda", "gpu", "hip", "metal", "nvidia", "nvptx", "rocm", "sycl", "vulkan", "amdgpu", "xpu", "mps")
ON_CPUS = ("llvm", "c", "x86", "x86-64", "x86_64", "arm", "aarch64", "host", "native")


def _meant(kind: str, text: str) -> str:
    """What a kind that does not exist stands for elsewhere, and how it is asked for here."""
    first = re.split(r"[^a-z0-9_-]", kind)[0]
    if first in ON_GPUS:
        return f"; a GPU is reached through its OpenCL driver: `opencl`, and `{COMMAND} targets` lists what is here"
    if first in ON_CPUS or "-mcpu" in text:
        return f"; this machine's processor is `cpu`, and `{COMMAND} targets` lists what is here"
    return did_you_mean(kind, KINDS)


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
    """A device of this machine: the shortest text that `discover` takes for it, and known faults of its driver.

    Those that are `avoided` cost kernels of stridesmith nothing.
    """

    selector: str
    target: Target
    faults: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()


def listing() -> list[Listed]:
    """Every device of this machine, in the order of `list_devices`."""
    devices = [Listed("cpu", host_cpu())]
    try:
        from .opencl.devices import selectors

        for text, target, faults in selectors():
            open_, avoided = (
                tuple(fault.text for fault in faults if fault.is_avoided is wanted) for wanted in (False, True)
            )
            devices.append(Listed(text, target, open_, avoided))
    except (ImportError, DeviceMissing):
        pass
    return devices
