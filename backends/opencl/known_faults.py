"""What is known to be wrong with versions of OpenCL drivers, and how targets keep clear of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...ir.target import POCL, Target
from . import calling_thread, drivers, processor_name


@dataclass(frozen=True)
class Fault:
    """A fault of drivers: `present` tells whether a pyopencl device has it, `avoid` gives a target that it spares.

    That is the same one where nothing is left to do.  `text` says for people what goes wrong and what is done about it;
    one that `is_avoided` costs kernels of stridesmith nothing.  With one that `refuses` nothing runs on the device.
    """

    text: str
    present: Callable[[Any], bool]
    is_avoided: bool = False
    refuses: bool = False
    avoid: Callable[[Target], Target] = lambda target: target


def _is_unknown(device: Any) -> bool:
    """PoCL has no name for the processor."""
    return processor_name.given_name(device) == "generic"


def _cannot_link(device: Any) -> bool:
    """The PoCL of the package would end the process with the first kernel that it links."""
    return not drivers.has_linker() and device.platform.name == POCL and calling_thread.is_ours()


def _is_mistaken(device: Any) -> bool:
    """PoCL takes a processor with AVX-512 for an older one without."""
    return processor_name.is_wrong(device) and int(device.native_vector_width_float) > 8


def _with_short_vectors(target: Target) -> Target:
    return replace(target, vector_bits=256, max_vector_bits=256, registers=min(target.registers, 16))


UNKNOWN = "the compiler of this PoCL is older than the processor and knows no name for it"
UNLINKED = (
    "PoCL links kernels with the linker and the libraries that come with a C compiler, and this machine has none: "
    "install one (`apt install gcc libc6-dev` on Debian), or a driver that needs none "
    f"(`pip install '{drivers.INTEL.extra}'`)"
)
MISTAKEN = "this PoCL takes the processor for an older one, and gets vectors of 512 bits wrong"
FAULTS = (
    Fault(UNLINKED, _cannot_link, refuses=True),
    Fault(
        f"{UNKNOWN}: worked around here, while of other software it refuses every program",
        lambda device: _is_unknown(device) and processor_name.is_renamed(device),
        is_avoided=True,
    ),
    Fault(
        f"{UNKNOWN}: it refuses every program",
        lambda device: _is_unknown(device) and not processor_name.is_renamed(device),
    ),
    Fault(
        f"{MISTAKEN}: worked around",
        lambda device: _is_mistaken(device) and processor_name.is_renamed(device),
        is_avoided=True,
    ),
    Fault(
        f"{MISTAKEN}: those of 256 bits are used",
        lambda device: _is_mistaken(device) and not processor_name.is_renamed(device),
        avoid=_with_short_vectors,
    ),
)


def faults_of(device: Any) -> list[Fault]:
    """The known faults of a pyopencl device."""
    return [fault for fault in FAULTS if fault.present(device)]
