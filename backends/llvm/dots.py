"""Dot products as LLVM IR: a vector in pieces as wide as the instruction takes, each one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...ir import dtypes
from ...ir.isa import PAIRS, DotProduct, dot_product
from ..errors import CodegenError
from .types import literal, value_type

if TYPE_CHECKING:
    from .builder import Builder

_FUNCTIONS = {
    **{("vpdpbusd", lanes): f"llvm.x86.avx512.vpdpbusd.{32 * lanes}" for lanes in (16, 8, 4)},
    **{("vpdpwssd", lanes): f"llvm.x86.avx512.vpdpwssd.{32 * lanes}" for lanes in (16, 8, 4)},
    **{(name, lanes): f"llvm.x86.avx2.{name}.{32 * lanes}" for name in ("vpdpbssd", "vpdpbuud") for lanes in (8, 4)},
    **{(name, 4): f"llvm.aarch64.neon.{name}.v4i32.v16i8" for name in ("sdot", "udot", "usdot")},
    ("vpmaddwd", 16): "llvm.x86.avx512.pmaddw.d.512",
    ("vpmaddwd", 8): "llvm.x86.avx2.pmadd.wd",
    ("vpmaddwd", 4): "llvm.x86.sse2.pmadd.wd",
    **{("vdpbf16ps", lanes): f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}" for lanes in (16, 8, 4)},
}
"""LLVM's function for an instruction on vectors of so many words.

Those of VNNI and BF16 take words of 32 bits by their older signatures, which newer versions of LLVM read as well.
"""


def function_of(row: DotProduct, lanes: int) -> tuple[str, str]:
    """LLVM's function for so many words, and the type of vectors that it takes as factors."""
    if row.in_pairs:
        return _FUNCTIONS[row.name, lanes], f"<{2 * lanes} x i16>"
    return _FUNCTIONS[row.name, lanes], f"<{lanes} x i32>" if row.name.startswith("v") else f"<{4 * lanes} x i8>"


def dot_of_words(out: Builder, name: str, args: list[str], dtype: str) -> str:
    """A node of `DOT_CALLS` or `PAIR_CALLS`; `args` are the words `a` and `b`, and what their products are added to.

    Raises CodegenError where the CPU has no such instruction.
    """
    row = dot_product(name[-2:], out.module.features)
    if row is None:
        raise CodegenError(f"the CPU has no instruction for `{name}`")
    if row.swapped(name[-2:]):
        args = [args[1], args[0], args[2]]
    lanes = dtypes.lanes(dtype)
    if dtypes.is_float(dtype):  # a sum is moved about as the words are
        words, own = value_type(dtypes.with_lanes("int32", lanes)), value_type(dtype)
        args = [*args[:2], out.emit(f"bitcast {own} {args[2]} to {words}")]
        return out.emit(f"bitcast {words} {_in_pieces(out, row, name[-2:], args, lanes)} to {own}")
    return _in_pieces(out, row, name[-2:], args, lanes)


def packed_bytes(out: Builder, parts: list[str], lanes: int) -> str:
    """A node `PACK_4X8` of four vectors of bytes: one shuffle of the four, one behind the other."""
    if lanes == 1:
        word = "poison"
        for number, part in enumerate(parts):
            word = out.emit(f"insertelement <4 x i8> {word}, i8 {part}, i64 {number}")
        return out.emit(f"bitcast <4 x i8> {word} to i32")
    pairs = [_beside(out, a, b, lanes, range(2 * lanes)) for a, b in (parts[:2], parts[2:])]
    behind = _beside(out, pairs[0], pairs[1], 2 * lanes, range(4 * lanes))
    chosen = [lane + number * lanes for lane in range(lanes) for number in range(4)]
    shuffled = _beside(out, behind, "poison", 4 * lanes, chosen)
    return out.emit(f"bitcast <{4 * lanes} x i8> {shuffled} to <{lanes} x i32>")


def _beside(out: Builder, first: str, second: str, lanes: int, chosen: Iterable[int]) -> str:
    """Lanes of two vectors of bytes, numbered through."""
    numbers, kind = [f"i32 {n}" for n in chosen], f"<{lanes} x i8>"
    return out.emit(f"shufflevector {kind} {first}, {kind} {second}, <{len(numbers)} x i32> <{', '.join(numbers)}>")


def _in_pieces(out: Builder, row: DotProduct, signs: str, args: list[str], lanes: int) -> str:
    """The dot products of so many words, all of them integers."""
    if lanes == 1:
        args = [out.emit(f"insertelement <4 x i32> poison, i32 {arg}, i64 0") for arg in args]
        return out.emit(f"extractelement <4 x i32> {_instruction(out, row, signs, args, 4)}, i64 0")
    widths = [bits // 32 for bits in row.bits]
    if lanes in widths:
        return _instruction(out, row, signs, args, lanes)
    result, start = "poison", 0
    while start < lanes:
        # The narrowest that takes all that is left: lanes that nobody reads cost nothing, an instruction more does.
        width = next((w for w in reversed(widths) if w >= lanes - start), widths[0])
        kept = min(width, lanes - start)
        parts = [_lanes(out, arg, lanes, [start + n if n < kept else -1 for n in range(width)]) for arg in args]
        part = _instruction(out, row, signs, parts, width)
        whole = _lanes(out, part, width, [n - start if 0 <= n - start < kept else -1 for n in range(lanes)])
        chosen = [n if n < start else lanes + n if n < start + kept else -1 for n in range(lanes)]
        result = _lanes(out, result, lanes, chosen, whole)
        start += kept
    return result


def _instruction(out: Builder, row: DotProduct, signs: str, args: list[str], lanes: int) -> str:
    """The instruction on vectors of as many words as it takes."""
    function, kind = _FUNCTIONS[row.name, lanes], f"<{lanes} x i32>"
    a, b, own = args
    if row.in_pairs:
        # Products of 16 bits in pairs: those of the upper bytes of the halves of each word, and those of the lower.
        halves = f"<{2 * lanes} x i16>"
        callee = out.module.declare(function, kind, *([kind] * 3 if row.accumulates else [halves] * 2))
        for upper in (True, False):
            x, y = (_halves(out, v, s == "s", upper, lanes) for v, s in zip((a, b), signs, strict=True))
            if row.accumulates:
                x, y = (out.emit(f"bitcast {halves} {v} to {kind}") for v in (x, y))
                own = out.emit(f"call {kind} {callee}({kind} {own}, {kind} {x}, {kind} {y})")
            else:
                own = out.emit(f"add {kind} {own}, {out.emit(f'call {kind} {callee}({halves} {x}, {halves} {y})')}")
        return own
    if signs == PAIRS:
        floats = f"<{lanes} x float>"
        callee = out.module.declare(function, floats, floats, kind, kind)
        own = out.emit(f"bitcast {kind} {own} to {floats}")
        total = out.emit(f"call {floats} {callee}({floats} {own}, {kind} {a}, {kind} {b})")
        return out.emit(f"bitcast {floats} {total} to {kind}")
    if row.name.startswith("v"):
        callee = out.module.declare(function, kind, kind, kind, kind)
        return out.emit(f"call {kind} {callee}({kind} {own}, {kind} {a}, {kind} {b})")
    words = f"<{4 * lanes} x i8>"
    x, y = (out.emit(f"bitcast {kind} {v} to {words}") for v in (a, b))
    callee = out.module.declare(function, kind, kind, words, words)
    return out.emit(f"call {kind} {callee}({kind} {own}, {words} {x}, {words} {y})")


def _halves(out: Builder, words: str, signed: bool, upper: bool, lanes: int) -> str:
    """The upper or lower bytes of the halves of words, widened to 16 bits; shared in straight-line code."""
    key = ("halves", words, signed, upper)
    if key not in out.region:
        dtype, kind = dtypes.with_lanes("int16", 2 * lanes), f"<{2 * lanes} x i16>"
        value, eight = out.emit(f"bitcast <{lanes} x i32> {words} to {kind}"), literal(8, dtype)
        if not upper:
            value = out.emit(f"shl {kind} {value}, {eight}")
        out.region[key] = out.emit(f"{'ashr' if signed else 'lshr'} {kind} {value}, {eight}")
    return str(out.region[key])


def _lanes(out: Builder, vector: str, count: int, chosen: list[int], other: str = "poison") -> str:
    """Lanes of two vectors of `count` words, numbered through; any value where the number is negative."""
    numbers = ", ".join(f"i32 {n}" if n >= 0 else "i32 poison" for n in chosen)
    kind = f"<{count} x i32>"
    return out.emit(f"shufflevector {kind} {vector}, {kind} {other}, <{len(chosen)} x i32> <{numbers}>")
