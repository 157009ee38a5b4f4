"""Element types by name: ``float32``, ``int64``, ``bool``, and vectors of them, ``float32x8``.

Programs keep numbers in the types of `STORAGE`, where they are moved, compared and cast, and compute in others.
"""

from __future__ import annotations

import math
import re

from .caches import cached

STORAGE = ("int4", "uint4", "float8_e4m3fn", "float8_e5m2")
"""Types that operations compare and convert, and that no other one computes in."""
HELD_AS_BITS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Floats that NumPy has not."""
SCALAR_TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", *STORAGE,
)  # fmt: skip
INDEX = "int64"
MAX_LANES = 65535

_PATTERN = re.compile(r"(bool|b?float\d+(?:_e\dm\d(?:fn)?)?|u?int\d+)(?:x([1-9]\d{0,5}))?")


@cached(1024)
def split_dtype(dtype: str) -> tuple[str, int]:
    """``float32x8`` -> ``("float32", 8)``.  Raises ValueError for an unknown type.

    A type has one spelling: a vector has 2 to `MAX_LANES` lanes.
    """
    match = _PATTERN.fullmatch(dtype)
    if match is None or match[1] not in SCALAR_TYPES:
        known = ", ".join(SCALAR_TYPES)
        raise ValueError(f"unknown dtype `{dtype}`; known are {known}, each also as vector, e.g. `float32x8`")
    count = 1 if match[2] is None else int(match[2])
    if match[2] is not None and not 2 <= count <= MAX_LANES:
        raise ValueError(f"the vector type `{dtype}` has {count} lanes; 2 to {MAX_LANES} are possible")
    return match[1], count


def element(dtype: str) -> str:
    """The scalar type of one lane."""
    return split_dtype(dtype)[0]


def lanes(dtype: str) -> int:
    """The number of lanes; 1 for a scalar."""
    return split_dtype(dtype)[1]


def with_lanes(dtype: str, count: int) -> str:
    """The type with its element kept and `count` lanes."""
    base = element(dtype)
    return base if count == 1 else f"{base}x{count}"


def is_float(dtype: str) -> bool:
    return "float" in dtype


def is_int(dtype: str) -> bool:
    """Signed and unsigned integers; bool is neither int nor float."""
    return "int" in dtype


def is_bool(dtype: str) -> bool:
    return dtype.startswith("bool")


def is_storage(dtype: str) -> bool:
    """Whether numbers of the type are kept, but not computed with."""
    return element(dtype) in STORAGE


def is_packed(dtype: str) -> bool:
    """Whether an element in memory is several numbers of less than 8 bits, two to a byte."""
    return lanes(dtype) > 1 and bits(dtype) < 8


def is_unsigned(dtype: str) -> bool:
    """Whether an integer, or a bool, is never negative."""
    return dtype.startswith(("u", "bool"))


@cached(64)
def bits(dtype: str) -> int:
    """Width of one lane in bits; a bool takes 8 in memory."""
    base = element(dtype)
    return 8 if base == "bool" else int(re.findall(r"\d+", base)[0])


def nbytes(dtype: str) -> int:
    """Bytes of the whole value, all lanes; of less than 8 bits, one alone takes a byte."""
    return (bits(dtype) * lanes(dtype) + 7) // 8


@cached(64)
def int_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    width = bits(dtype)
    if dtype.startswith("u"):
        return 0, 2**width - 1
    return -(2 ** (width - 1)), 2 ** (width - 1) - 1


def widens(source: str, target: str) -> bool:
    """Whether an integer type holds every value of another one."""
    (low, high), (least, most) = int_range(source), int_range(target)
    return least <= low and high <= most


LARGEST = {
    "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "float16": 65504.0, "bfloat16": float.fromhex("0x1.fep127"),
    "float32": float.fromhex("0x1.fffffep127"), "float64": float.fromhex("0x1.fffffffffffffp1023"),
}  # fmt: skip
"""The largest finite number of each float type."""

_OVERFLOW = {
    "float8_e4m3fn": math.nextafter(464.0, math.inf), "float8_e5m2": 61440.0, "float16": 65520.0,
    "bfloat16": float.fromhex("0x1.ffp127"), "float32": float.fromhex("0x1.ffffffp127"),
}  # fmt: skip


def overflows(value: float, dtype: str) -> bool:
    """Whether a finite number is none of a float type: rounded to the type it would be infinite, or NaN."""
    return math.isfinite(value) and abs(value) >= _OVERFLOW.get(element(dtype), math.inf)


def wrap(value: int, dtype: str) -> int:
    """What an integer type holds of `value`: the value of the type that is equal modulo ``2**bits``."""
    low, high = int_range(dtype)
    return (value - low) % (high - low + 1) + low
