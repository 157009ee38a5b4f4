"""Lets a PoCL compile whose LLVM is older than the processor.

LLVM calls an AMD processor that it does not know ``generic``.  PoCL 3 and older hand that name on to Clang, which does
not take it on x86-64 ("unknown target CPU 'generic'"), and offer no way to choose another, so that no program can be
built.  The name is eight bytes of the driver's memory that its device object points to; a name of a processor that
Clang knows, and that has no instructions which this one lacks, fits in their place.

Memory is read through the kernel's file of this process, where a wrong address is an error and no crash, and is
changed only if exactly one word of the device object points to that name.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import Any

WRONG = b"generic\0"
OBJECT_BYTES = 4096
"""Bytes of the device object that are looked through; PoCL 3.0 keeps the name within the first two thousand."""
NEEDED = frozenset({"avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe", "adx", "popcnt", "sse4a"})
"""What Clang uses for `znver3` in OpenCL C, by LLVM's names of features."""


def is_unknown(device: Any) -> bool:
    """Whether the driver of a pyopencl device is a PoCL that calls this x86-64 processor generic."""
    return str(device.version).strip().endswith("x86_64-unknown-linux-gnu-generic")


def give_name(device: Any) -> None:
    """Give the processor of such a device a name that its compiler knows; nothing where it has one already."""
    if sys.platform != "linux" or not is_unknown(device):
        return
    place = _place_of_name(int(device.int_ptr))
    if place is not None:
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            os.pwrite(memory.fileno(), _known_name().ljust(len(WRONG), b"\0"), place)


def _known_name() -> bytes:
    from ..host import host_cpu

    has = {feature[1:] for feature in host_cpu().features.split(",") if feature.startswith("+")}
    return b"znver3" if has >= NEEDED else b"x86-64"


def _place_of_name(device: int) -> int | None:
    """Where the name stands that the object at an address points to, if it does so exactly once."""
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        words = _read(memory.fileno(), device, OBJECT_BYTES)
        addresses = {word for (word,) in struct.iter_unpack("P", words[: len(words) // 8 * 8])}
        found = [word for word in addresses if _read(memory.fileno(), word, len(WRONG)) == WRONG]
    return found[0] if len(found) == 1 else None


def _read(file: int, address: int, count: int) -> bytes:
    """Bytes of this process' memory, or none where there is no memory."""
    try:
        return os.pread(file, count, address)
    except (OSError, OverflowError):
        return b""
