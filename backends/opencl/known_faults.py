"""What is known to be wrong with versions of OpenCL drivers, and how targets keep clear of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...ir.target import Target
from . import unknown_processor


@dataclass(frozen=True)
class Fault:
    """A fault of drivers: `present` tells whether a pyopencl device has it, `avoid` gives a target that it spares.

    `text` says what goes wrong and what is done about it, for people.
    """

    text: str
    present: Callable[[Any], bool]
    avoid: Callable[[Target], Target]


def _mistaken_vectors(device: Any) -> bool:
    """PoCL takes a processor with AVX-512 for an older one without."""
    older = re.search(r"znver[123]$", str(device.version).strip()) is not None
    return (older or unknown_processor.is_unknown(device)) and int(device.native_vector_width_float) > 8


FAULTS = (
    Fault(
        "the compiler of this PoCL is older than the processor and knows no name for it; for "
        "stridesmith it compiles for an older one, of other software it refuses every program",
        unknown_processor.is_unknown,
        lambda target: target,
    ),
    Fault(
        "this PoCL takes AMD's processors with AVX-512 for older ones, but links built-in functions that use "
        "AVX-512: what these get and give in vectors of 512 bits is wrong, and such programs come out of its cache "
        "without kernels; vectors of 256 bits are used",
        _mistaken_vectors,
        lambda target: replace(target, vector_bits=256, max_vector_bits=256, registers=min(target.registers, 16)),
    ),
)


def faults_of(device: Any) -> list[Fault]:
    """The known faults of a pyopencl device."""
    return [fault for fault in FAULTS if fault.present(device)]
