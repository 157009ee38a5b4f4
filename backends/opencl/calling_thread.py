"""Devices and queues whose kernels run in the thread that launches them, for stridesmith's own pool of threads.

Drivers that make an OpenCL device of the CPU have threads of their own.  PoCL's sleep until a kernel comes: on two
processors of an AMD EPYC (Zen 4) a call that is waited for takes 28 to 47 us if its kernel is empty, and 4 to 22 us
with Intel's runtime.  Queues that run kernels in the calling thread, one for each thread of the pool that kernels of
the CPU have (`backends.llvm.pool`), share the work-groups of a kernel instead (`pool_launches`): an empty one then
takes 3 us on two threads with PoCL and 5 with Intel's runtime.

Intel's runtime has a property of queues for it (``cl_intel_exec_by_local_thread``).  PoCL has a kind of device,
``basic``, and only if ``POCL_DEVICES`` asks for one when its devices are first listed.  The variable is set for that
moment, so that no process that is started later sees it, and in lists of devices that others ask pyopencl for it is
left out: other programs would land on it.  Only the PoCL that comes with stridesmith is asked.  Where the variable is
set by a user, or devices were listed before, there is none, and programs run on PoCL's own threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib import metadata
from typing import Any

from ...forks import held_at_forks
from ...ir.target import POCL
from . import drivers

DEVICES = "POCL_DEVICES"
BOTH, CALLING = "pthread basic", "basic-"
"""What the variable is set to, and how the names of devices begin that run kernels in the calling thread."""
PACKAGE, KNOWN = "pocl-binary-distribution", "3."
"""The Python package, and how those versions begin whose devices have these names."""
LOCAL_THREAD, LOCAL_THREAD_QUEUE = "cl_intel_exec_by_local_thread", 1 << 31
"""Intel's extension, and the property of a queue (CL_QUEUE_THREAD_LOCAL_EXEC_ENABLE_INTEL)."""

_asking = held_at_forks(threading.RLock())
_both: list[tuple[Any, Any]] = []
"""PoCL's device with all threads, and the one that runs kernels in the calling thread."""


def platforms() -> list[Any]:
    """pyopencl's platforms; the first time, PoCL is asked for its second device."""
    with _asking:  # the environment is the whole process's
        return _platforms()


def _platforms() -> list[Any]:
    import pyopencl as cl

    if _both or DEVICES in os.environ or not is_ours():
        return list(cl.get_platforms())
    os.environ[DEVICES] = BOTH
    try:  # a loader with several drivers lists their devices with the platforms
        found = list(cl.get_platforms())
        devices = [device for platform in found if platform.name == POCL for device in platform.get_devices()]
    finally:
        del os.environ[DEVICES]
    calling = [device for device in devices if device.name.startswith(CALLING)]
    if len(calling) == 1 and len(devices) == 2:
        _both.extend((device, calling[0]) for device in devices if device != calling[0])
        _hide(calling[0])
    return found


def is_ours() -> bool:
    """Whether PoCL comes from the package, and no other one of the system's would be asked as well."""
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return False
    return version.startswith(KNOWN) and not any("pocl" in text for text in drivers.system_files().values())


def device_in_caller(device: Any) -> Any | None:
    """What runs kernels of `queue_in_caller` in place of a device, in the thread that launches them; None if nothing.

    Such a device is a CPU, and the host and all threads share its memory byte by byte.
    """
    import pyopencl as cl

    found = next((second for first, second in _both if first == device), device)
    if found is device and LOCAL_THREAD not in str(device.extensions).split():
        return None
    try:
        shared = found.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_BUFFER
    except cl.Error:  # before OpenCL 2.0 no driver knows the question
        return None
    return found if shared and found.type & cl.device_type.CPU else None


def queue_in_caller(context: Any) -> Any:
    """A queue in the context of a device of `device_in_caller`, which one thread at a time uses."""
    import pyopencl as cl

    (device,) = context.devices
    is_intel = LOCAL_THREAD in str(device.extensions).split()
    return cl.CommandQueue(context, device, LOCAL_THREAD_QUEUE if is_intel else 0)


def _hide(device: Any) -> None:
    """Leave a device out of what pyopencl lists in this process."""
    import pyopencl as cl

    every: Callable[..., list[Any]] = cl.Platform.get_devices

    def get_devices(platform: Any, *args: Any, **options: Any) -> list[Any]:
        return [found for found in every(platform, *args, **options) if found != device]

    cl.Platform.get_devices = get_devices
