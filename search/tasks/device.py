"""Which device a text means.

::

    cpu                             the CPU of this machine
    opencl[:PLATFORM[:DEVICE]]      an OpenCL device of this machine, by number or a part of its name
    recorded:FILE                   a recorded space, which stands for the device that it was measured on (`recording`)

`Device.named` answers for any of them, `Device.here` for the first two, `Device.of` for the target of a record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...ir.target import Target
from .task import RECORDED

if TYPE_CHECKING:
    from .recording import Recording


@dataclass(frozen=True)
class Device:
    """A device: its `target`, and the `recording` that stands for it, None where it is a device of this machine."""

    target: Target
    recording: Recording | None = None

    @staticmethod
    def named(text: str | Target, threads: int | None = None) -> Device:
        """The device of a text, or of a target as it is; a CPU with so many threads where `threads` says so.

        Raises UnknownTarget, DeviceMissing, and UsageError for a recording that cannot be read.
        """
        if isinstance(text, str) and names_recording(text):
            from .recording import of_target

            recording = of_target(text)
            return Device(recording.target, recording)
        return Device(Device.here(text, threads))

    @staticmethod
    def here(text: str | Target, threads: int | None = None) -> Target:
        """`named` where a kernel has to run, which none does on a recording: that is an UnknownTarget."""
        from ...backends.devices import discover

        if isinstance(text, Target):
            return text if threads is None else replace(text, threads=threads)
        return discover(text, threads)

    @staticmethod
    def of(target: Target, any_of_its_kind: bool = False) -> Target:
        """The device of this machine that has the name of another machine's `target`, or is the first of its kind.

        It may differ: compare their keys.  Raises UnknownTarget and DeviceMissing.
        """
        text = target.kind if any_of_its_kind else selector_of(target)
        return Device.here(text, target.threads if target.kind == "cpu" else None)


def names_recording(text: object) -> bool:
    """Whether a text names a recorded space, which says by itself which workload is meant."""
    return isinstance(text, str) and text.startswith(RECORDED)


def selector_of(target: Target) -> str:
    """The text that names a device on the machine that it is of: the inverse of `Device.named`."""
    return target.kind if target.kind == "cpu" else f"{target.kind}:{target.platform}:{target.name}"
