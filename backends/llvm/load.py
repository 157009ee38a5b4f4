"""Loads: scalars, vectors of any stride, or from a constant instead.

What a load gave is known until a store to the same buffer, and is not loaded again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from math import prod

from ...ir import dtypes
from ...ir.expr import Buffer, Expr, Load
from ..neighbours import Picks, picks
from .index import INT64_MAX, INT64_MIN, ONE, ZERO, Lanes, Linear, Ramped, from_lanes
from .known import Known, place_of
from .mask import Masks
from .types import CodegenError, ModuleText, literal, memory_type, value_type

Value = Linear | Ramped | Lanes | bool | str


class Loads(Masks):
    """A builder that reads memory at indices which a subclass evaluates."""

    def __init__(self, module: ModuleText, name: str, parameters: Iterable[str]) -> None:
        super().__init__(module, name, parameters)
        self._types: dict[int, str] = {}
        self._alive: list[Expr] = []

    @abstractmethod
    def value(self, expr: Expr) -> Value:
        """The value of `expr` in its best form."""

    @abstractmethod
    def index_binary(self, op: str, a: Value, b: Value) -> Value:
        """``a op b`` of scalar or vector indices."""

    def materialise(self, value: Value, dtype: str) -> str:
        """`value` as the operand of an instruction on `dtype`."""
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return literal(value, dtype)
        if isinstance(value, Linear):
            scalar = self.scalar(value)
            return scalar if dtypes.lanes(dtype) == 1 else self.splat(scalar, dtype)
        if isinstance(value, Ramped):
            return self.vector(value)
        return self.gathered([self.scalar(v) for v in value.values], dtype)

    def gathered(self, scalars: list[str], dtype: str) -> str:
        """A vector of type `dtype` built from its lanes."""
        kind, one = value_type(dtype), value_type(dtypes.element(dtype))
        result = "poison"
        for lane, scalar in enumerate(scalars):
            result = self.emit(f"insertelement {kind} {result}, {one} {scalar}, i64 {lane}")
        return result

    def keep(self, expr: Expr) -> None:
        """Keep `expr` as long as what is known about it by its address: no other expression has that address then."""
        self._alive.append(expr)

    def dtype(self, expr: Expr) -> str:
        """The type of `expr`; remembered, because a derived one costs a walk."""
        try:
            return self._types[id(expr)]
        except KeyError:
            result = self._types[id(expr)] = expr.dtype
            self.keep(expr)
            return result

    def wrapped(self, name: str, dtype: str) -> Value:
        """A computed int64 becomes an atom, so that index arithmetic on it folds."""
        return self.opaque(name, INT64_MIN, INT64_MAX) if dtype == dtypes.INDEX else name

    def flat(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Linear | Ramped | Lanes:
        """The offset of an access in elements of the buffer."""
        if len(indices) == 1:
            only = self.value(indices[0])
            if isinstance(only, (Linear, Ramped, Lanes)):
                return only
        offset: Value = ZERO
        for index, stride in zip(indices, buffer.strides, strict=True):
            value = self.value(index)
            if isinstance(value, str):
                value = self._unpacked(value, dtypes.lanes(self.dtype(index)))
            scaled = value if stride == 1 else self.index_binary("*", value, Linear(stride))
            offset = scaled if offset is ZERO else self.index_binary("+", offset, scaled)
        assert isinstance(offset, (Linear, Ramped, Lanes))
        return offset

    def _unpacked(self, vector: str, count: int) -> Ramped | Lanes:
        kind = value_type(dtypes.with_lanes(dtypes.INDEX, count))
        names = [self.emit(f"extractelement {kind} {vector}, i64 {n}") for n in range(count)]
        return from_lanes(self.opaque(name, INT64_MIN, INT64_MAX) for name in names)

    def load(self, expr: Load, other: str | None = None) -> Value:
        """What `expr` reads; in lanes that are not asked for, `other` or anything."""
        buffer, dtype = expr.buffer, self.dtype(expr)
        offset = self.flat(buffer, expr.indices)
        if isinstance(offset, Linear):
            return self.wrapped(self._load_plain(buffer, offset, None, dtype), dtype)
        if self.mask is not None and not self.is_tile(buffer, offset):
            return self.load_masked(buffer, offset, dtype, other)
        value = self._load_vector(buffer, offset, dtype)
        if self.mask is None or other is None:
            return value
        kind = value_type(dtype)
        return self.emit(f"select <{offset.lanes} x i1> {self.mask}, {kind} {value}, {kind} {other}")

    def _load_vector(self, buffer: Buffer, offset: Ramped | Lanes, dtype: str) -> str:
        if isinstance(offset, Ramped) and offset.stride == ZERO:
            return self.splat(self._load_plain(buffer, offset.base, None, buffer.dtype), dtype)
        if isinstance(offset, Ramped):
            return self._load_plain(buffer, offset.base, offset.stride, dtype)
        return self._load_lanes(buffer, offset, dtype)

    def _load_plain(self, buffer: Buffer, base: Linear, stride: Linear | None, dtype: str) -> str:
        """A scalar (no stride) or strided vector load, unless it is known already."""
        root = self.root(buffer)
        known = self.memory.get(root)
        if known is None:
            known = self.memory[root] = Known()
        element, lanes = dtypes.split_dtype(dtype)
        key = place_of(element, base, stride, lanes)
        value = known.get(key)
        if value is not None:
            return value
        if stride is None or stride == ONE:
            name = self._load_here(buffer, base, dtype)
        else:
            name = self._load_lanes(buffer, Ramped(base, stride, lanes), dtype)
        known.learn(key, name)
        self._bytes[name] = dtypes.nbytes(dtype) if dtypes.is_float(dtype) else 0
        return name

    def load_neighbours(self, buffer: Buffer, base: Linear, dtype: str) -> str:
        """The vector of type `dtype` that begins at an offset."""
        return self._load_plain(buffer, base, ONE, dtype)

    def _load_here(self, buffer: Buffer, offset: Linear, dtype: str) -> str:
        return self._read(self.address(buffer, offset), dtype, self.alignment(buffer, offset))

    def _read(self, pointer: str, dtype: str, align: int) -> str:
        name = self.emit(f"load {memory_type(dtype)}, ptr {pointer}, align {align}")
        if not dtypes.is_bool(dtype):
            return name
        zero = literal(0, dtypes.with_lanes("int8", dtypes.lanes(dtype)))
        return self.emit(f"icmp ne {memory_type(dtype)} {name}, {zero}")

    def _load_lanes(self, buffer: Buffer, offset: Ramped | Lanes, dtype: str) -> str:
        """Lanes that do not lie next to each other: picked out of a few vectors, else loaded one by one."""
        if dtypes.lanes(buffer.dtype) != 1:
            raise CodegenError(f"`{buffer.name}` holds {buffer.dtype}, which only scalar indices can address")
        one, distances = dtypes.element(dtype), _distances(offset)
        # A register tile has no addresses, and memory holds no vectors of bool.
        if distances and self.root(buffer) not in self.tiles and not dtypes.is_bool(dtype):
            first = _place_in_block(buffer, offset.lane(0), distances)
            if first is not None:
                whole = self._load_plain(buffer, offset.lane(0) - Linear(first), ONE, dtype)
                return self._shuffled(whole, "poison", dtype, [first + distance for distance in distances])
            chosen = picks(distances)
            if chosen is not None:
                return self._picked(buffer, offset.lane(0), chosen, dtype)
        lanes = [self._load_plain(buffer, offset.lane(n), None, one) for n in range(offset.lanes)]
        return self.gathered(lanes, dtype)

    def _picked(self, buffer: Buffer, base: Linear, chosen: Picks, dtype: str) -> str:
        """A vector of the lanes that were chosen from ``buffer[base + ...]``."""
        length, holder, count = chosen.length, chosen.holder, len(chosen.holder)
        part = dtypes.with_lanes(dtypes.element(dtype), length)
        loaded = [self._load_plain(buffer, base + Linear(first), ONE, part) for first in chosen.starts]
        lanes = [at + length * k if k < 2 else -1 for at, k in zip(chosen.inside, holder, strict=True)]
        result = self._shuffled(loaded[0], loaded[1] if len(loaded) > 1 else "poison", part, lanes)
        for k, vector in enumerate(loaded[2:], 2):
            own = [at if h == k else -1 for at, h in zip(chosen.inside, holder, strict=True)]
            wide = self._shuffled(vector, "poison", part, own)
            result = self._shuffled(result, wide, dtype, [count + n if h == k else n for n, h in enumerate(holder)])
        return result

    def _shuffled(self, first: str, second: str, dtype: str, lanes: list[int]) -> str:
        """Lanes of two vectors of type `dtype`, numbered through; any value where the number is negative."""
        kind = value_type(dtype)
        numbers = ", ".join(f"i32 {number}" if number >= 0 else "i32 poison" for number in lanes)
        return self.emit(f"shufflevector {kind} {first}, {kind} {second}, <{len(lanes)} x i32> <{numbers}>")

    def load_or_constant(self, cond: str, buffer: Buffer, offset: Linear | Ramped, value: str, dtype: str) -> Value:
        """``buffer[offset] if cond else value`` without a branch: a load from the element or from a constant."""
        kind = memory_type(dtype)
        base = offset if isinstance(offset, Linear) else offset.base
        stored = value if not dtypes.is_bool(dtype) else literal(value.count("true") > 0, dtype.replace("bool", "int8"))
        other = self.module.constant(kind, stored)
        pointer = self.emit(f"select i1 {cond}, ptr {self.address(buffer, base)}, ptr {other}")
        align = min(self.alignment(buffer, base), dtypes.nbytes(dtypes.element(dtype)))
        return self.wrapped(self._read(pointer, dtype, align), dtype)


def _distances(offset: Ramped | Lanes) -> tuple[int, ...]:
    """How far each lane lies behind the first one; nothing where that is known only at run time."""
    first = offset.lane(0)
    apart = [offset.lane(number) - first for number in range(offset.lanes)]
    return tuple(step.const for step in apart) if all(step.is_const for step in apart) else ()


def _place_in_block(buffer: Buffer, base: Linear, distances: tuple[int, ...]) -> int | None:
    """Where in an aligned block of as many elements as there are lanes the first lane's lies, if all lie in that block.

    A buffer of whole blocks has all of a block of which it has one element.  Loads of other elements of the block, such
    as of the next channel of a group, are then the same load.
    """
    count = len(distances)
    first = base.const % count
    whole = prod(buffer.shape) % count == 0 and all(factor % count == 0 for _, factor in base.terms)
    return first if whole and first + min(distances) >= 0 and first + max(distances) < count else None
