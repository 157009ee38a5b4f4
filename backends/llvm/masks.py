"""Conditions of all lanes of a vector.

A condition on a ramp compares ``base + step*lane`` with zero: one scalar, computed as far out as
it can be, against a constant vector, in lanes as narrow as fill a register.  Where masks have
registers of their own (AVX-512) the mask itself is computed there.  Elsewhere a vector of
``i1`` that lives across blocks would be kept as something wider than what an instruction takes,
so the comparison's result is held as integers, all ones or zero, and tested by its sign at each use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from ...ir import dtypes
from ...ir.arith.compare import decide_zero
from .index import INLINE, Linear, Ramped, difference
from .types import vector_literal

if TYPE_CHECKING:
    from .builder import Builder

_ORDERS = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


def compare_ramps(out: Builder, op: str, a: Ramped | None, b: Ramped | None) -> bool | str | None:
    """``a op b`` in each lane, or None where it is not one scalar against a constant vector."""
    if a is None or b is None:
        return None
    base, stride, last = difference(a.base, b.base), a.stride - b.stride, a.lanes - 1
    if base is None or not stride.is_const or difference(a.lane(last), b.lane(last)) is None or not base.bounded:
        return None
    steps = tuple(stride.const * n for n in range(a.lanes))
    low, high = base.bounds()  # and no step leads out of 64 bits, for the last one does not
    decided = [decide_zero(op, low + step, high + step) for step in steps]
    if None in decided:
        return _lanes(out, op, base, steps)
    if len(set(decided)) == 1:
        return decided[0]
    return vector_literal(tuple("true" if d else "false" for d in decided), "bool")


def decided_lanes(mask: str) -> tuple[bool, ...] | None:
    """The lanes of a mask that is a constant, else None."""
    return tuple(lane.endswith("true") for lane in mask.strip("<>").split(", ")) if mask.startswith("<") else None


def joined(op: str, left: str, right: str) -> str | None:
    """Two masks that are constants, by `and` or `or`; None where one is not."""
    decided, others = decided_lanes(left), decided_lanes(right)
    if decided is None or others is None:
        return None
    lanes = map(all if op == "and" else any, zip(decided, others, strict=True))
    return vector_literal(tuple("true" if lane else "false" for lane in lanes), "bool")


def _lanes(out: Builder, op: str, base: Linear, steps: tuple[int, ...]) -> str:
    """The lanes for which ``base + step op 0``, which is ``step op -base``."""
    depth, limit = base.depth, out.scalar(base * -1)
    ends = min(steps) - 1, max(steps) + 1
    bits = max(8, min(64, 1 << max(1, out.module.vector_bits // len(steps)).bit_length() - 1))
    while not (-(2 ** (bits - 1)) <= ends[0] and ends[1] < 2 ** (bits - 1)):
        bits *= 2
    integer = f"int{bits}"
    kind = f"<{len(steps)} x i{bits}>"
    numbers = vector_literal(tuple(map(str, steps)), integer)
    fits = all(-(2 ** (bits - 1)) <= -end < 2 ** (bits - 1) for end in base.bounds())

    def make(into: list[Any] | None) -> str:
        scalar = limit
        for name, end in () if fits else (("smax", ends[0]), ("smin", ends[1])):
            function = out.module.intrinsic(name, dtypes.INDEX, 2)
            scalar = out.emit(f"call i64 {function}(i64 {scalar}, i64 {end})", into)
        if bits < 64:
            scalar = out.emit(f"trunc i64 {scalar} to i{bits}", into)
        wide = _repeated(out, f"i{bits}", scalar, len(steps), into)
        return out.emit(f"icmp {_ORDERS[op]} {kind} {numbers}, {wide}", into)

    return _kept(out, ("lanes", op, base, steps), depth, kind, make)


def _repeated(out: Builder, scalar_kind: str, scalar: str, count: int, into: list[Any] | None) -> str:
    kind = f"<{count} x {scalar_kind}>"
    one = out.emit(f"insertelement {kind} poison, {scalar_kind} {scalar}, i64 0", into)
    return out.emit(f"shufflevector {kind} {one}, {kind} poison, <{count} x i32> zeroinitializer", into)


def _kept(out: Builder, key: Hashable, depth: int, kind: str, make: Callable[[list[Any] | None], str]) -> str:
    """The mask of `key`, made once at the head of the scope of `depth`, beside integers of type `kind`."""
    if out.module.keeps_masks or depth == INLINE:
        mask = str(out.shared(key, depth, make))
        out.depths[mask] = depth
        return mask
    boolean = f"<{kind[1:].split(' x ')[0]} x i1>"

    def hold(into: list[Any] | None) -> str:
        return out.emit(f"sext {boolean} {make(into)} to {kind}", into)

    held = str(out.shared(key, depth, hold))
    if ("tested", held) not in out.region:
        out.region["tested", held] = out.emit(f"icmp slt {kind} {held}, zeroinitializer")
    mask = str(out.region["tested", held])
    out.held[mask] = held, kind, depth
    return mask


def mask_where(out: Builder, flag: str, mask: str, boolean: str) -> str:
    """`mask` of type `boolean` where the scalar condition `flag` holds, and no lane elsewhere."""
    outside = out.depths.get(flag, INLINE)
    if mask not in out.held:
        depth = max(outside, out.depths.get(mask, INLINE))
        count = int(boolean[1:-1].split(" x ")[0])
        # Not a select: LLVM makes a branch of one whose sides are masks.
        wide = out.shared(("all", flag, count), outside, lambda into: _repeated(out, "i1", flag, count, into))
        text = f"and {boolean} {wide}, {mask}"
        name = str(out.shared(("where", flag, mask), depth, lambda into: out.emit(text, into)))
        out.depths[name] = depth
        return name
    held, kind, depth = out.held[mask]
    lanes, integer = kind[1:-1].split(" x ")

    def make(into: list[Any] | None) -> str:
        flags = _repeated(out, integer, out.emit(f"sext i1 {flag} to {integer}", into), int(lanes), into)
        return out.emit(f"icmp slt {kind} {out.emit(f'and {kind} {flags}, {held}', into)}, zeroinitializer", into)

    return _kept(out, ("where", flag, held), max(outside, depth), kind, make)
