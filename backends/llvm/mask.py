"""Conditions of all lanes of a vector.

A condition on a ramp compares ``base + step*lane`` with zero: one scalar, computed as far out as
it can be, against a constant vector, in lanes as narrow as fill a register.  Where masks have
registers of their own (AVX-512) the mask itself is computed there.  Elsewhere a vector of
``i1`` that lives across blocks would be kept as something wider than what an instruction takes,
so the comparison's result is held as integers, all ones or zero, and tested by its sign at each use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from ...ir import dtypes
from ...ir.arith.compare import decide_zero
from .builder import Builder
from .index import INLINE, Linear, Ramped, difference
from .types import ModuleText, vector_literal

_ORDERS = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


class Masks(Builder):
    """A builder of masks."""

    def __init__(self, module: ModuleText, name: str, parameters: Iterable[str]) -> None:
        super().__init__(module, name, parameters)
        self.depths: dict[str, int] = {}
        self.vector_bits = 128
        self.keeps_masks = False
        self._held: dict[str, tuple[str, str, int]] = {}

    def compare_ramps(self, op: str, a: Ramped | None, b: Ramped | None) -> bool | str | None:
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
            return self._lanes(op, base, steps)
        if len(set(decided)) == 1:
            return decided[0]
        return vector_literal(tuple("true" if d else "false" for d in decided), "bool")

    def _lanes(self, op: str, base: Linear, steps: tuple[int, ...]) -> str:
        """The lanes for which ``base + step op 0``, which is ``step op -base``."""
        depth, limit = base.depth, self.scalar(base * -1)
        ends = min(steps) - 1, max(steps) + 1
        bits = max(8, min(64, 1 << max(1, self.vector_bits // len(steps)).bit_length() - 1))
        while not (-(2 ** (bits - 1)) <= ends[0] and ends[1] < 2 ** (bits - 1)):
            bits *= 2
        integer = f"int{bits}"
        kind = f"<{len(steps)} x i{bits}>"
        numbers = vector_literal(tuple(map(str, steps)), integer)
        fits = all(-(2 ** (bits - 1)) <= -end < 2 ** (bits - 1) for end in base.bounds())

        def make(into: list[Any] | None) -> str:
            scalar = limit
            for name, end in () if fits else (("smax", ends[0]), ("smin", ends[1])):
                function = self.module.intrinsic(name, dtypes.INDEX, 2)
                scalar = self.emit(f"call i64 {function}(i64 {scalar}, i64 {end})", into)
            if bits < 64:
                scalar = self.emit(f"trunc i64 {scalar} to i{bits}", into)
            wide = self._repeated(f"i{bits}", scalar, len(steps), into)
            return self.emit(f"icmp {_ORDERS[op]} {kind} {numbers}, {wide}", into)

        return self._kept(("lanes", op, base, steps), depth, kind, make)

    def _repeated(self, scalar_kind: str, scalar: str, count: int, into: list[Any] | None) -> str:
        kind = f"<{count} x {scalar_kind}>"
        one = self.emit(f"insertelement {kind} poison, {scalar_kind} {scalar}, i64 0", into)
        return self.emit(f"shufflevector {kind} {one}, {kind} poison, <{count} x i32> zeroinitializer", into)

    def _kept(self, key: Hashable, depth: int, kind: str, make: Callable[[list[Any] | None], str]) -> str:
        """The mask of `key`, made once at the head of the scope of `depth`, beside integers of type `kind`."""
        if self.keeps_masks or depth == INLINE:
            mask = str(self.shared(key, depth, make))
            self.depths[mask] = depth
            return mask
        boolean = f"<{kind[1:].split(' x ')[0]} x i1>"

        def hold(into: list[Any] | None) -> str:
            return self.emit(f"sext {boolean} {make(into)} to {kind}", into)

        held = str(self.shared(key, depth, hold))
        if ("tested", held) not in self.region:
            self.region["tested", held] = self.emit(f"icmp slt {kind} {held}, zeroinitializer")
        mask = str(self.region["tested", held])
        self._held[mask] = held, kind, depth
        return mask

    def mask_where(self, flag: str, mask: str, boolean: str) -> str:
        """`mask` of type `boolean` where the scalar condition `flag` holds, and no lane elsewhere."""
        outside = self.depths.get(flag, INLINE)
        if mask not in self._held:
            depth = max(outside, self.depths.get(mask, INLINE))
            count = int(boolean[1:-1].split(" x ")[0])
            # Not a select: LLVM makes a branch of one whose sides are masks.
            wide = self.shared(("all", flag, count), outside, lambda into: self._repeated("i1", flag, count, into))
            text = f"and {boolean} {wide}, {mask}"
            name = str(self.shared(("where", flag, mask), depth, lambda into: self.emit(text, into)))
            self.depths[name] = depth
            return name
        held, kind, depth = self._held[mask]
        lanes, integer = kind[1:-1].split(" x ")

        def make(into: list[Any] | None) -> str:
            flags = self._repeated(integer, self.emit(f"sext i1 {flag} to {integer}", into), int(lanes), into)
            return self.emit(f"icmp slt {kind} {self.emit(f'and {kind} {flags}, {held}', into)}, zeroinitializer", into)

        return self._kept(("where", flag, held), max(outside, depth), kind, make)
