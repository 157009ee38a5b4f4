"""Loads: scalars, vectors of any stride, those of the lanes of a mask, or from a constant instead; and shuffles.

What a load gave is known until a store to the same buffer, and is not loaded again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from ...ir import dtypes
from ...ir.expr import Buffer, Call, Expr, Load, Shuffle
from .index import INT64_MAX, INT64_MIN, ONE, ZERO, Lanes, Linear, Ramped, from_lanes
from .known import Known, place_of
from .mask import Masks
from .types import CodegenError, ModuleText, literal, memory_type, suffix, value_type

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
    def operand(self, expr: Expr) -> str:
        """The LLVM operand that holds `expr`."""

    @abstractmethod
    def linear(self, expr: Expr) -> Linear:
        """A scalar int64 as a linear form."""

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

    def load(self, expr: Load) -> Value:
        """What `expr` reads."""
        buffer, dtype = expr.buffer, self.dtype(expr)
        offset = self.flat(buffer, expr.indices)
        if isinstance(offset, Linear):
            return self.wrapped(self._load_plain(buffer, offset, None, dtype), dtype)
        return self._load_vector(buffer, offset, dtype)

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

    def _load_here(self, buffer: Buffer, offset: Linear, dtype: str) -> str:
        return self._read(self.address(buffer, offset), dtype, self.alignment(buffer, offset))

    def _read(self, pointer: str, dtype: str, align: int) -> str:
        name = self.emit(f"load {memory_type(dtype)}, ptr {pointer}, align {align}")
        if not dtypes.is_bool(dtype):
            return name
        zero = literal(0, dtypes.with_lanes("int8", dtypes.lanes(dtype)))
        return self.emit(f"icmp ne {memory_type(dtype)} {name}, {zero}")

    def _load_lanes(self, buffer: Buffer, offset: Ramped | Lanes, dtype: str) -> str:
        """Lanes that do not lie next to each other, one by one."""
        if dtypes.lanes(buffer.dtype) != 1:
            raise CodegenError(f"`{buffer.name}` holds {buffer.dtype}, which only scalar indices can address")
        one = dtypes.element(dtype)
        lanes = [self._load_plain(buffer, offset.lane(n), None, one) for n in range(offset.lanes)]
        return self.gathered(lanes, dtype)

    def shuffle(self, expr: Shuffle) -> Value:
        """Lanes of vectors; those of loads from one memory are known until a store to it, as the loads are."""
        part, dtype = self.dtype(expr.vectors[0]), self.dtype(expr)
        vectors = [self.operand(vector) for vector in expr.vectors]
        lanes = [self.linear(lane).const for lane in expr.lanes]
        roots = {self.root(v.buffer) if isinstance(v, Load) else "" for v in expr.vectors}
        root = roots.pop() if len(roots) == 1 else ""
        if not root or len(lanes) == 1:
            return self.wrapped(self._shuffled_all(vectors, part, lanes), dtype)
        known = self.memory.setdefault(root, Known())
        key = place_of(f"{dtypes.element(dtype)} {vectors} {lanes}", ZERO, ONE, len(lanes))
        if key not in known:
            name = self._shuffled_all(vectors, part, lanes)
            known.learn(key, name)
            self._bytes[name] = dtypes.nbytes(dtype) if dtypes.is_float(dtype) else 0
        return known[key]

    def _shuffled_all(self, vectors: list[str], dtype: str, lanes: list[int]) -> str:
        """Lanes of vectors of type `dtype`, numbered through.

        An instruction takes two vectors: each further one is made as wide as the result, and its lanes are put there.
        """
        length, count = dtypes.lanes(dtype), len(lanes)
        if count == 1:
            vector, place = vectors[lanes[0] // length], lanes[0] % length
            return vector if length == 1 else self.emit(f"extractelement {value_type(dtype)} {vector}, i64 {place}")
        if length == 1:
            return self.gathered([vectors[lane] for lane in lanes], dtypes.with_lanes(dtype, count))
        near = [lane if lane < 2 * length else -1 for lane in lanes]
        result = self._shuffled(vectors[0], vectors[1] if len(vectors) > 1 else "poison", dtype, near)
        for number, vector in enumerate(vectors[2:], 2):
            own = [lane % length if lane // length == number else -1 for lane in lanes]
            wide = self._shuffled(vector, "poison", dtype, own)
            chosen = [count + n if lane // length == number else n for n, lane in enumerate(lanes)]
            result = self._shuffled(result, wide, dtypes.with_lanes(dtype, count), chosen)
        return result

    def _shuffled(self, first: str, second: str, dtype: str, lanes: list[int]) -> str:
        """Lanes of two vectors of type `dtype`, numbered through; any value where the number is negative."""
        kind = value_type(dtype)
        numbers = ", ".join(f"i32 {number}" if number >= 0 else "i32 poison" for number in lanes)
        return self.emit(f"shufflevector {kind} {first}, {kind} {second}, <{len(lanes)} x i32> <{numbers}>")

    def masked_load(self, expr: Call) -> Value:
        """What is loaded where a condition holds, beside what there is elsewhere."""
        mask, load, *other = expr.args
        assert isinstance(load, Load)
        cond, dtype = self.value(mask), self.dtype(expr)
        if isinstance(cond, bool):
            if cond or other:
                return self.value(load if cond else other[0])
            return ZERO if dtype == dtypes.INDEX else literal(0, dtype)
        flag = self.materialise(cond, self.dtype(mask))
        if dtypes.lanes(self.dtype(mask)) > 1:
            beside = self.operand(other[0]) if other else None
            return self._load_masked(load, flag, beside)
        offset = self.flat(load.buffer, load.indices)
        if isinstance(offset, Linear) or (isinstance(offset, Ramped) and offset.stride == ONE):
            beside = self.operand(other[0]) if other else literal(0, dtype)
            return self._load_or_constant(flag, load.buffer, offset, beside, dtype)
        raise CodegenError(f"one condition for lanes of `{load.buffer.name}` that are not neighbours: {expr!r}")

    def _load_masked(self, load: Load, mask: str, other: str | None) -> str:
        """The lanes of a mask from memory, and those of `other`, or zero, elsewhere."""
        buffer, dtype = load.buffer, self.dtype(load)
        offset = self.flat(buffer, load.indices)
        assert not isinstance(offset, Linear)
        kind, count = memory_type(dtype), offset.lanes
        boolean = f"<{count} x i1>"
        tag = suffix(dtype.replace("bool", "int8"))
        beside = "zeroinitializer"
        if other is not None:
            beside = self.emit(f"zext {boolean} {other} to {kind}") if dtypes.is_bool(dtype) else other
        if not isinstance(offset, Ramped) or offset.stride != ONE:
            return self._gather_masked(buffer, offset, dtype, mask, beside)
        known = self.memory.setdefault(self.root(buffer), Known())
        key = place_of(f"{dtypes.element(dtype)} {mask} {beside}", offset.base, ONE, count)
        loaded = known.get(key)
        if loaded is not None:
            return loaded
        function = self.module.declare(f"llvm.masked.load.{tag}.p0", kind, "ptr", "i32", boolean, kind)
        place = f"ptr {self.address(buffer, offset.base)}"
        align = self.alignment(buffer, offset.base)
        loaded = self.emit(f"call {kind} {function}({place}, i32 {align}, {boolean} {mask}, {kind} {beside})")
        if dtypes.is_bool(dtype):
            loaded = self.emit(f"icmp ne {kind} {loaded}, zeroinitializer")
        known.learn(key, loaded)
        self._bytes[loaded] = dtypes.nbytes(dtype) if dtypes.is_float(dtype) else 0
        return loaded

    def _gather_masked(self, buffer: Buffer, offset: Ramped | Lanes, dtype: str, mask: str, beside: str) -> str:
        """The lanes of a mask, each from an address of its own."""
        kind, count = memory_type(dtype), offset.lanes
        boolean, tag = f"<{count} x i1>", suffix(dtype.replace("bool", "int8"))
        pointers = [self.address(buffer, offset.lane(n)) for n in range(count)]
        vector = "poison"
        for lane, pointer in enumerate(pointers):
            vector = self.emit(f"insertelement <{count} x ptr> {vector}, ptr {pointer}, i64 {lane}")
        name = f"llvm.masked.gather.{tag}.v{count}p0"
        function = self.module.declare(name, kind, f"<{count} x ptr>", "i32", boolean, kind)
        align = dtypes.nbytes(dtypes.element(buffer.dtype))
        place = f"<{count} x ptr> {vector}"
        loaded = self.emit(f"call {kind} {function}({place}, i32 {align}, {boolean} {mask}, {kind} {beside})")
        return self.emit(f"icmp ne {kind} {loaded}, zeroinitializer") if dtypes.is_bool(dtype) else loaded

    def _load_or_constant(self, cond: str, buffer: Buffer, offset: Linear | Ramped, value: str, dtype: str) -> Value:
        """``buffer[offset] if cond else value`` without a branch: a load from the element or from a constant."""
        kind = memory_type(dtype)
        base = offset if isinstance(offset, Linear) else offset.base
        stored = value if not dtypes.is_bool(dtype) else literal(value.count("true") > 0, dtype.replace("bool", "int8"))
        other = self.module.constant(kind, stored)
        pointer = self.emit(f"select i1 {cond}, ptr {self.address(buffer, base)}, ptr {other}")
        align = min(self.alignment(buffer, base), dtypes.nbytes(dtypes.element(dtype)))
        return self.wrapped(self._read(pointer, dtype, align), dtype)
