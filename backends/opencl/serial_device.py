"""PoCL's second device for the CPU, which runs a program in the thread that calls it.

PoCL's device ``pthread`` gives work-groups to threads of its own, which sleep until a program comes: on two processors
of an AMD EPYC (Zen 4) a call that is waited for takes 20 to 36 us if its kernel is empty.  Its device ``basic`` has one
compute unit, the thread that calls, and takes 1 us.  A program whose kernels are single work-groups can use one thread
alone, so it runs there; which is faster for a small program is found by measuring (`space.design.techniques.threads`).

PoCL has the second device only if ``POCL_DEVICES`` asks for it when its devices are first listed.  The variable is set
for that moment, so that no process that is started later sees it, and in lists of devices that others ask pyopencl for
there is no second one: their programs would land on it.  Only the PoCL that comes with stridesmith is asked.  Where the
variable is set by a user, or devices were listed before, there is no second device.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import metadata
from typing import Any

from . import drivers
from .binary import POCL

DEVICES = "POCL_DEVICES"
ALL, SERIAL = "pthread basic", "basic-"
"""What the variable is set to, and how the names of such devices begin."""
PACKAGE, KNOWN = "pocl-binary-distribution", "3."
"""The Python package, and how those versions begin whose devices have these names."""

_twins: list[tuple[Any, Any]] = []
"""The first device and the second."""


def platforms() -> list[Any]:
    """pyopencl's platforms; the first time, PoCL is asked for the second device."""
    import pyopencl as cl

    if _twins or DEVICES in os.environ or not _is_ours():
        return list(cl.get_platforms())
    os.environ[DEVICES] = ALL
    try:  # a loader with several drivers lists their devices with the platforms
        found = list(cl.get_platforms())
        devices = [device for platform in found if platform.name == POCL for device in platform.get_devices()]
    finally:
        del os.environ[DEVICES]
    serial = [device for device in devices if device.name.startswith(SERIAL)]
    if len(serial) == 1 and len(devices) == 2:
        _twins.extend((device, serial[0]) for device in devices if device != serial[0])
        _hide(serial[0])
    return found


def _is_ours() -> bool:
    """Whether PoCL comes from the package, and no other one of the system's would be asked as well."""
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return False
    return version.startswith(KNOWN) and not any("pocl" in text for text in drivers.system_files().values())


def twin(device: Any) -> Any | None:
    """The device that runs programs in the calling thread, in place of a pyopencl device; None if there is none."""
    return next((second for first, second in _twins if first == device), None)


def _hide(device: Any) -> None:
    """Leave a device out of what pyopencl lists in this process."""
    import pyopencl as cl

    every: Callable[..., list[Any]] = cl.Platform.get_devices

    def get_devices(platform: Any, *args: Any, **options: Any) -> list[Any]:
        return [found for found in every(platform, *args, **options) if found != device]

    cl.Platform.get_devices = get_devices
