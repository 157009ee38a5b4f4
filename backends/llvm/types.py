"""LLVM types and literals for the element types, and what is asked of the module text.

A ``bool`` is ``i1`` as a value and ``i8`` in memory.  A ``bfloat16`` is ``i16`` in both and is
widened to ``float`` for arithmetic, because the conversion routines that LLVM would call for its
own ``bfloat`` live in a compiler runtime that a Python process does not have.  A float of 8 bits is
``i8``, as its bits, and so are integers of 4 bits, as their value, of which a byte of memory has the
lower half.
"""

from __future__ import annotations

import math
import struct

from ...ir import dtypes
from ...ir.caches import cached
from ...ir.numbers import BITS, to_storage

_SCALARS = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "i8", "uint16": "i16",
    "uint32": "i32", "uint64": "i64", "float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double",
    "int4": "i8", "uint4": "i8", "float8_e4m3fn": "i8", "float8_e5m2": "i8",
}  # fmt: skip

FAST = "reassoc nsz arcp contract afn"
STRICT = "contract"
"""Flags of float arithmetic; strict programs keep the order of sums and the sign of zero.

What decides a step has none (`passes.roundings`).
"""


@cached(1024)
def value_type(dtype: str) -> str:
    """The type of an SSA value: ``float32x8`` -> ``<8 x float>``."""
    base, count = dtypes.split_dtype(dtype)
    return _SCALARS[base] if count == 1 else f"<{count} x {_SCALARS[base]}>"


@cached(1024)
def memory_type(dtype: str) -> str:
    """The type of the same value in memory, where a bool takes a byte."""
    base, count = dtypes.split_dtype(dtype)
    scalar = "i8" if base == "bool" else _SCALARS[base]
    return scalar if count == 1 else f"<{count} x {scalar}>"


@cached(1024)
def suffix(dtype: str) -> str:
    """The overload suffix of an intrinsic: ``float32x8`` -> ``v8f32``."""
    base, count = dtypes.split_dtype(dtype)
    is_float = dtypes.is_float(base) and base not in BITS
    scalar = f"f{dtypes.bits(base)}" if is_float else _SCALARS[base]
    return scalar if count == 1 else f"v{count}{scalar}"


def literal(value: int | float | bool, dtype: str) -> str:
    """A constant of `dtype`; the same in every lane of a vector."""
    return _literal(value, repr(value), dtype)


@cached(4096)
def _literal(value: int | float | bool, _text: str, dtype: str) -> str:
    """`literal`, kept by the value and its text, because 0.0 and -0.0 are one key by value alone."""
    base, count = dtypes.split_dtype(dtype)
    scalar = _scalar_literal(value, base)
    return scalar if count == 1 else vector_literal((scalar,) * count, base)


def vector_literal(scalars: tuple[str, ...], base: str) -> str:
    """A vector constant from literals of its lanes."""
    kind = _SCALARS[base]
    return f"<{', '.join(f'{kind} {s}' for s in scalars)}>"


def _scalar_literal(value: int | float | bool, base: str) -> str:
    if base == "bool":
        return "true" if value else "false"
    if dtypes.is_int(base):
        return str(int(value))
    return float_literal(float(value), base)


def float_literal(value: float, base: str) -> str:
    """A float constant, exact: LLVM wants the bits in hexadecimal, a float32 as the equal double."""
    if base in BITS:  # LLVM computes with their bits
        return str(int(to_storage(base, _to_float32(value))))
    if base == "float16":
        return f"0xH{struct.unpack('<H', struct.pack('<e', _clip(value, 65504.0, 65520.0)))[0]:04X}"
    if base == "float32":
        value = _to_float32(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _clip(value: float, largest: float, infinite: float) -> float:
    """`value`, infinite where rounding to the narrower type overflows; `struct` would raise instead."""
    if math.isfinite(value) and abs(value) > largest:
        return math.copysign(largest if abs(value) < infinite else math.inf, value)
    return value


def _to_float32(value: float) -> float:
    clipped = _clip(value, float.fromhex("0x1.fffffep127"), float.fromhex("0x1.ffffffp127"))
    return float(struct.unpack("<f", struct.pack("<f", clipped))[0])


class ModuleText:
    """The text of one module: functions in order, and each declaration once.

    `features` are those of the CPU, by LLVM's names, `vector_bits` the width of its registers; it `keeps_masks` where
    they have registers of their own.
    """

    def __init__(
        self, strict: bool = False, features: frozenset[str] = frozenset(), vector_bits: int = 128,
        keeps_masks: bool = False,
    ) -> None:  # fmt: skip
        self.strict, self.features = strict, features
        self.vector_bits, self.keeps_masks = vector_bits, keeps_masks
        self.functions: list[str] = []
        self._declared: dict[str, str] = {}
        self._constants: dict[str, str] = {}

    def declare(self, name: str, result: str, *arguments: str) -> str:
        """Declare an external function once; returns ``@name``."""
        self._declared.setdefault(name, f"declare {result} @{name}({', '.join(arguments)})")
        return f"@{name}"

    def intrinsic(self, name: str, dtype: str, operands: int) -> str:
        """An intrinsic over one type: ``intrinsic("fabs", "float32x8", 1)`` is ``@llvm.fabs.v8f32``."""
        kind = value_type(dtype)
        return self.declare(f"llvm.{name}.{suffix(dtype)}", kind, *([kind] * operands))

    def constant(self, kind: str, value: str) -> str:
        """Read-only memory that holds `value` of LLVM type `kind`; returns its address."""
        text = f"private unnamed_addr constant {kind} {value}, align 64"
        return self._constants.setdefault(text, f"@constant{len(self._constants)}")

    def text(self) -> str:
        """The whole module."""
        constants = [f"{name} = {text}" for text, name in self._constants.items()]
        return "\n".join([*constants, *self._declared.values(), *self.functions])
