"""What is known to be wrong with versions of OpenCL drivers, and how targets keep clear of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...ir.target import Target
from . import processor_name


@dataclass(frozen=True)
class Fault:
    """A fault of drivers: `present` tells whether a pyopencl device has it, `avoid` gives a target that it spares.

    `text` says what goes wrong and what is done about it, for people.
    """

    text: str
    present: Callable[[Any], bool]
    avoid: Callable[[Any, Target], Target]


def _has_mistaken_vectors(device: Any) -> bool:
    """PoCL takes a processor with AVX-512 for an older one without."""
    return processor_name.is_wrong(device) and int(device.native_vector_width_float) > 8


FAULTS = (
    Fault(
        "the compiler of this PoCL is older than the processor and knows no name for it; for "
        "stridesmith it compiles for another one, of other software it refuses every program",
        lambda device: processor_name.is_wrong(device) and str(device.version).strip().endswith("generic"),
        lambda device, target: target,  # noqa: ARG005
    ),
    Fault(
        "this PoCL takes AMD's processors with AVX-512 for older ones, but links built-in functions that use "
        "AVX-512: what these get and give in vectors of 512 bits is wrong, and such programs come out of its cache "
        "without kernels; for stridesmith it compiles for a processor with AVX-512, and in what `tune emit` writes "
        "built-in functions get vectors of 256 bits",
        _has_mistaken_vectors,
        lambda device, target: target if processor_name.is_mended(device) else _with_short_vectors(target),
    ),
)


def _with_short_vectors(target: Target) -> Target:
    return replace(target, vector_bits=256, max_vector_bits=256, registers=min(target.registers, 16))


def faults_of(device: Any) -> list[Fault]:
    """The known faults of a pyopencl device."""
    return [fault for fault in FAULTS if fault.present(device)]
