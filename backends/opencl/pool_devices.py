"""Devices that run a kernel in the thread that launches it, one for each thread of stridesmith's own pool.

Drivers that make an OpenCL device of the CPU have threads of their own.  PoCL's sleep until a kernel comes: on two
processors of an AMD EPYC (Zen 4) a call that is waited for takes 20 to 36 us if its kernel is empty, and 7 us with
Intel's runtime.  Several devices that run kernels in the calling thread, each launched by another thread of the pool
that kernels of the CPU have (`backends.llvm.pool`), share the work-groups of a kernel (`pool_launches`): an empty one
then takes 3 us on two threads with PoCL and 4 with Intel's runtime.

Intel's runtime offers queues that run in the calling thread (``cl_intel_exec_by_local_thread``), so that one device
stands for each thread.  PoCL has a kind of device for it, ``basic``, and only if ``POCL_DEVICES`` asks for such when
its devices are first listed.  The variable is set for that moment, so that no process that is started later sees it,
and in lists of devices that others ask pyopencl for they are left out: other programs would land on them.  Only the
PoCL that comes with stridesmith is asked.  Where the variable is set by a user, or devices were listed before, there
are none, and programs run on PoCL's own threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import metadata
from typing import Any

from ..cpu_topology import usable_threads
from . import drivers
from .binary import POCL

DEVICES = "POCL_DEVICES"
ALL, CALLING = "pthread", "basic"
"""PoCL's word for the device with all threads, and for one that runs in the calling thread; names begin with them."""
PACKAGE, KNOWN = "pocl-binary-distribution", "3."
"""The Python package, and how those versions begin whose devices have these names."""

LOCAL_THREAD, LOCAL_THREAD_QUEUE = "cl_intel_exec_by_local_thread", 1 << 31
"""The extension, and the property of a queue (CL_QUEUE_THREAD_LOCAL_EXEC_ENABLE_INTEL)."""

_found: list[tuple[Any, tuple[Any, ...]]] = []
"""PoCL's device with all threads, and those that run in the calling one."""


def platforms() -> list[Any]:
    """pyopencl's platforms; the first time, PoCL is asked for its further devices."""
    import pyopencl as cl

    if _found or DEVICES in os.environ or not _is_ours():
        return list(cl.get_platforms())
    os.environ[DEVICES] = " ".join([ALL, *[CALLING] * usable_threads()])
    try:  # a loader with several drivers lists their devices with the platforms
        found = list(cl.get_platforms())
        devices = [device for platform in found if platform.name == POCL for device in platform.get_devices()]
    finally:
        del os.environ[DEVICES]
    calling = tuple(device for device in devices if device.name.startswith(f"{CALLING}-"))
    if calling and len(devices) == len(calling) + 1:
        _found.extend((device, calling) for device in devices if device not in calling)
        _hide(calling)
    return found


def _is_ours() -> bool:
    """Whether PoCL comes from the package, and no other one of the system's would be asked as well."""
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return False
    return version.startswith(KNOWN) and not any("pocl" in text for text in drivers.system_files().values())


def pool_devices(device: Any) -> tuple[Any, ...]:
    """The devices of the pool's threads, in place of a pyopencl device; none where the driver's threads run kernels."""
    found = next((calling for first, calling in _found if first == device), ())
    if not found and LOCAL_THREAD in str(device.extensions).split():
        return (device,) * usable_threads()
    return found


def queue_in_caller(context: Any, device: Any) -> Any:
    """A queue whose kernels run in the thread that launches them, on a device of `pool_devices`."""
    import pyopencl as cl

    is_intel = LOCAL_THREAD in str(device.extensions).split()
    return cl.CommandQueue(context, device, LOCAL_THREAD_QUEUE if is_intel else 0)


def _hide(devices: tuple[Any, ...]) -> None:
    """Leave devices out of what pyopencl lists in this process."""
    import pyopencl as cl

    every: Callable[..., list[Any]] = cl.Platform.get_devices

    def get_devices(platform: Any, *args: Any, **options: Any) -> list[Any]:
        return [found for found in every(platform, *args, **options) if found not in devices]

    cl.Platform.get_devices = get_devices
