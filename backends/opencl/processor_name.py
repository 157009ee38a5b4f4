"""Lets a PoCL compile for the processor that is there, where its LLVM is older than the processor.

LLVM calls an AMD processor that it does not know by the name of one before it, ``znver3`` for Zen 4, or ``generic``.
PoCL hands the name on to Clang, and offers no way to choose another:

- ``generic`` Clang does not take on x86-64 ("unknown target CPU"), so that no program can be built;
- for ``znver3`` it compiles without AVX-512, but PoCL links built-in functions that use it, because the processor has
  it.  The two sides of a call disagree then about how vectors of 512 bits are handed over.

The name is a text that the device object points to.  A name that Clang knows, of a processor without instructions that
this one lacks, is put in its place, before anything is compiled.

Memory is read through the kernel's file of this process, where a wrong address is an error and no crash, and is
changed only if exactly one word of the device object points to that name.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import sys
from contextlib import suppress
from typing import Any

WORD = struct.calcsize("P")
OBJECT_BYTES = 1024
"""Bytes of the device object that are looked through, all that PoCL 3.0 gives it: behind it may lie another one."""

AVX2 = frozenset({"avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe", "adx", "popcnt", "sse4a"})
AVX512 = frozenset({"avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe", "adx", "popcnt", "clflushopt", "clwb",
                    "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})  # fmt: skip
NAMES = (("skylake-avx512", AVX512), ("znver3", AVX2), ("x86-64", frozenset[str]()))
"""Names that Clang knows since long, and what it uses for them in OpenCL C, by LLVM's names of features."""


def is_wrong(device: Any) -> bool:
    """Whether the driver of a pyopencl device is a PoCL that has a wrong name for this x86-64 processor."""
    name = given_name(device)
    return name == "generic" or (name.startswith("znver") and _best_name() == "skylake-avx512")


def is_renamed(device: Any) -> bool:
    """Whether the driver of such a device compiles for the right name from now on."""
    return _word_of(device, _best_name()) is not None


def has_avx512(device: Any) -> bool:
    """Whether the driver of a pyopencl device is a PoCL that compiles for AVX-512 on this x86-64 processor."""
    is_pocl = re.search(r"(?i)pocl.*x86_64-[\w-]*linux-gnu-", str(device.version)) is not None
    return is_pocl and _best_name() == "skylake-avx512" and (not is_wrong(device) or is_renamed(device))


def rename(device: Any) -> None:
    """Give the processor of such a device a name that suits it; nothing where it has one already."""
    if sys.platform != "linux" or not is_wrong(device):
        return
    place = _word_of(device, given_name(device))
    if place is not None:
        duplicate = ctypes.CDLL(None).strdup  # which nobody frees, as the driver frees no name
        duplicate.restype, duplicate.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        with suppress(OSError), open("/proc/self/mem", "r+b", buffering=0) as memory:  # a sandbox may forbid it
            os.pwrite(memory.fileno(), struct.pack("P", duplicate(_best_name().encode())), place)


def given_name(device: Any) -> str:
    """What PoCL's LLVM takes the processor for, of those names that may be wrong; empty for others."""
    found = re.search(r"(?i)pocl.*x86_64-[\w-]*linux-gnu-(generic|znver[123])$", str(device.version).strip())
    return found[1] if found else ""


def _best_name() -> str:
    from ..host import host_cpu

    has = {feature[1:] for feature in host_cpu().features.split(",") if feature.startswith("+")}
    return next(name for name, needed in NAMES if has >= needed)


def _word_of(device: Any, name: str) -> int | None:
    """The address of the word in the device object that points to `name`; None unless there is exactly one."""
    text, start = name.encode() + b"\0", int(device.int_ptr)
    found: list[int] = []
    with suppress(OSError), open("/proc/self/mem", "rb", buffering=0) as memory:
        words = _read(memory.fileno(), start, OBJECT_BYTES)
        found = [
            start + WORD * number
            for number, (word,) in enumerate(struct.iter_unpack("P", words[: len(words) // WORD * WORD]))
            if _read(memory.fileno(), word, len(text)) == text
        ]
    return found[0] if len(found) == 1 else None


def _read(file: int, address: int, count: int) -> bytes:
    """Bytes of this process' memory, or none where there is no memory."""
    try:
        return os.pread(file, count, address)
    except (OSError, OverflowError):
        return b""
