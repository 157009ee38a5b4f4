"""Conditions of all lanes of a vector, and loads and stores of the lanes for which they hold.

A condition on a ramp compares ``base + step*lane`` with zero: one scalar, computed as far out as
it can be, against a constant vector, in lanes as narrow as fill a register.  Where masks have
registers of their own (AVX-512) the mask itself is computed there.  Elsewhere a vector of
``i1`` that lives across blocks would be kept as something wider than what an instruction takes,
so the comparison's result is held as integers, all ones or zero, and tested by its sign at each use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...ir import dtypes
from ...ir.arith.compare import decide_zero
from ...ir.expr import Buffer
from .builder import Builder
from .index import INLINE, Lanes, Linear, Ramped, difference
from .known import Known, place_of
from .types import ModuleText, memory_type, suffix, vector_literal

_ORDERS = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


class Masks(Builder):
    """A builder that knows the lanes for which it emits: those of `mask`, or all."""

    def __init__(self, module: ModuleText, name: str, parameters: Iterable[str]) -> None:
        super().__init__(module, name, parameters)
        self.mask: str | None = None
        self.depths: dict[str, int] = {}
        self.vector_bits = 128
        self.keeps_masks = False
        self._held: dict[str, tuple[str, str, int]] = {}

    @contextmanager
    def under(self, mask: str, kind: str) -> Iterator[None]:
        """What is emitted inside is for those lanes of `mask`, a vector of type `kind`, that are asked for here."""
        outer = self.mask
        self.mask = mask if outer is None else self._both(outer, mask, kind)
        yield
        self.mask = outer

    def _both(self, a: str, b: str, kind: str) -> str:
        key = ("both", a, b)
        if key not in self.region:
            self.region[key] = self.emit(f"and {kind} {a}, {b}")
        return str(self.region[key])

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

    # --- memory -------------------------------------------------------------------------------

    def is_tile(self, buffer: Buffer, offset: Ramped | Lanes) -> bool:
        """Whether all the lanes lie in a register tile, which is read and written whole."""
        if self.root(buffer) not in self.tiles:
            return False
        bounds = [offset.lane(number).bounds() for number in (0, offset.lanes - 1)]
        ends = [end for pair in bounds for end in pair]
        return isinstance(offset, Ramped) and min(ends) >= 0 and max(ends) < buffer.size

    def load_masked(self, buffer: Buffer, offset: Ramped | Lanes, dtype: str, other: str | None) -> str:
        """The lanes of the mask from memory; in those outside of it nothing is read, and `other`, or zero, taken."""
        kind, count = memory_type(dtype), offset.lanes
        align = dtypes.nbytes(dtypes.element(buffer.dtype))
        boolean = f"<{count} x i1>"
        tag = suffix(dtype.replace("bool", "int8"))
        beside = "zeroinitializer"
        if other is not None:
            beside = self.emit(f"zext {boolean} {other} to {kind}") if dtypes.is_bool(dtype) else other
        if isinstance(offset, Ramped) and offset.stride == Linear(1):
            known = self.memory.setdefault(self.root(buffer), Known())
            key = place_of(f"{dtypes.element(dtype)} {self.mask} {beside}", offset.base, Linear(1), count)
            loaded = known.get(key)
            if loaded is not None:
                return loaded
            function = self.module.declare(f"llvm.masked.load.{tag}.p0", kind, "ptr", "i32", boolean, kind)
            place = f"ptr {self.address(buffer, offset.base)}"
            align = self.alignment(buffer, offset.base)
            loaded = self.emit(f"call {kind} {function}({place}, i32 {align}, {boolean} {self.mask}, {kind} {beside})")
            if dtypes.is_bool(dtype):
                loaded = self.emit(f"icmp ne {kind} {loaded}, zeroinitializer")
            known.learn(key, loaded)
            self._bytes[loaded] = dtypes.nbytes(dtype) if dtypes.is_float(dtype) else 0
            return loaded
        pointers = [self.address(buffer, offset.lane(n)) for n in range(count)]
        vector = "poison"
        for lane, pointer in enumerate(pointers):
            vector = self.emit(f"insertelement <{count} x ptr> {vector}, ptr {pointer}, i64 {lane}")
        name = f"llvm.masked.gather.{tag}.v{count}p0"
        function = self.module.declare(name, kind, f"<{count} x ptr>", "i32", boolean, kind)
        place = f"<{count} x ptr> {vector}"
        loaded = self.emit(f"call {kind} {function}({place}, i32 {align}, {boolean} {self.mask}, {kind} {beside})")
        return self.emit(f"icmp ne {kind} {loaded}, zeroinitializer") if dtypes.is_bool(dtype) else loaded

    def store_masked(self, buffer: Buffer, base: Linear, value: str, dtype: str) -> None:
        """The lanes of the mask to memory, next to each other from `base` on."""
        kind, boolean = memory_type(dtype), f"<{dtypes.lanes(dtype)} x i1>"
        if dtypes.is_bool(dtype):
            value = self.emit(f"zext {boolean} {value} to {kind}")
        tag = suffix(dtype.replace("bool", "int8"))
        function = self.module.declare(f"llvm.masked.store.{tag}.p0", "void", kind, "ptr", "i32", boolean)
        place = f"ptr {self.address(buffer, base)}, i32 {self.alignment(buffer, base)}"
        self.do(f"call void {function}({kind} {value}, {place}, {boolean} {self.mask})")
        self.forget({self.root(buffer)})
