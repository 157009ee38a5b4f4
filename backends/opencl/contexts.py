"""The context in which a device's programs and memory live.

A GPU takes tenths of a second to make one, in turns with other processes that make theirs, and far more than a small
kernel takes to compile: so a process has one for each GPU, until the device fails in it.  A CPU's costs nothing, and
each program has its own.
"""

from __future__ import annotations

from typing import Any

_held: dict[Any, Any] = {}
"""The process's context of each device that is no CPU."""


def context_of(device: Any) -> Any:
    """A context of the device, for programs."""
    import pyopencl as cl

    if device.type & cl.device_type.CPU:
        return cl.Context([device])
    found = _held.get(device) or cl.Context([device])
    _held[device] = found
    return found


def context_to_ask(device: Any) -> Any:
    """A context of the device, for questions alone: one that no programs need is not kept."""
    import pyopencl as cl

    return _held.get(device) or cl.Context([device])


def forget() -> None:
    """Let programs that are loaded from now on have a new context: after some errors a driver fails in the old one."""
    _held.clear()
