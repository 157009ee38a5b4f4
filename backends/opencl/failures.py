"""What an error of an OpenCL driver means: the device is lost, or full, or the program asked for what cannot be."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pyopencl as cl

from ...errors import DeviceLost
from ...forks import SPAWN, Calls
from .contexts import forget

P = ParamSpec("P")
R = TypeVar("R")

LOST = (cl.status_code.DEVICE_NOT_FOUND, cl.status_code.DEVICE_NOT_AVAILABLE)
FULL = (
    cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE, cl.status_code.OUT_OF_RESOURCES, cl.status_code.OUT_OF_HOST_MEMORY,
)  # fmt: skip
BROKEN = (cl.status_code.INVALID_COMMAND_QUEUE, cl.status_code.INVALID_CONTEXT)
"""What NVIDIA's driver says of a context in which a kernel has touched memory that is not there."""


def meaning(error: cl.Error) -> Exception:
    """DeviceLost or MemoryError where the driver's error says so, else the error itself.

    After some of them a driver fails in the same context again and again, so that what is loaded later gets another.
    """
    if error.code in (*LOST, *FULL, *BROKEN):
        forget()
    found: Exception = _known(error.code, str(error)) or error
    return found


def error_of(code: int) -> Exception:
    """What a driver's error code means: DeviceLost or MemoryError, RuntimeError for any other."""
    text = f"the driver's error is {cl.status_code.to_string(code, 'number %d')}"
    return _known(code, text) or RuntimeError(text)


def _known(code: int, text: str) -> Exception | None:
    if code in LOST:
        return DeviceLost(f"the OpenCL device does not answer any more: {text}")
    if code in FULL:
        return MemoryError(f"the OpenCL device has not enough memory or registers: {text}")
    return None


_calls = Calls()
_process = os.getpid()
"""Where the threads are that drivers have made."""


def on_device(function: Callable[P, R]) -> Callable[P, R]:
    """A function that asks a device for something, with the driver's errors as what they mean.

    The process does not fork meanwhile.  Raises DeviceLost in a child that was forked amid one nevertheless.
    """

    @functools.wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        with _calls:
            if _calls.is_lost:
                raise DeviceLost(
                    f"this process was forked while another thread was in a long OpenCL call, of which the driver is "
                    f"still amid here: {SPAWN}"
                )
            try:
                return function(*args, **kwargs)
            except cl.Error as error:
                raise meaning(error) from error

    return asked


def on_threads_of_driver(function: Callable[P, R]) -> Callable[P, R]:
    """`on_device` for what runs on threads of the driver, which a forked child does not have: DeviceLost there."""

    @functools.wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        if os.getpid() != _process:
            raise DeviceLost(
                f"an OpenCL kernel that runs on the driver's threads was called in a forked child, which has none of "
                f"them: {SPAWN}"
            )
        return function(*args, **kwargs)

    return on_device(asked)
