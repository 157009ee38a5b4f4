"""Accesses of memory as LLVM IR: scalars, vectors of any stride, those of the lanes of a mask; and shuffles of vectors.

What a load gave is known until a store to the same buffer, and is not loaded again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import dtypes
from ...ir.expr import Buffer
from ...ir.numbers import HALF_BYTES
from ..errors import CodegenError
from .arith import in_four_bits
from .index import ONE, ZERO, Lanes, Linear, Ramped
from .known import place_of
from .masks import decided_lanes
from .types import literal, memory_type, suffix, value_type

if TYPE_CHECKING:
    from .builder import Builder

SECOND_CACHE = 2  # where LLVM's prefetch puts things, from 0 (memory) to 3 (the first cache)


def load(out: Builder, buffer: Buffer, offset: Linear | Ramped | Lanes, dtype: str) -> str:
    """What lies at an offset: one element, or one in each lane."""
    if isinstance(offset, Lanes):
        return _load_lanes(out, buffer, offset, dtype)
    if isinstance(offset, Linear):
        return _load_plain(out, buffer, offset, None, dtype)
    if offset.stride == ZERO:
        return out.splat(_load_plain(out, buffer, offset.base, None, buffer.dtype), dtype)
    return _load_plain(out, buffer, offset.base, offset.stride, dtype)


def _load_plain(out: Builder, buffer: Buffer, base: Linear, stride: Linear | None, dtype: str) -> str:
    """A scalar (no stride) or strided vector load, unless it is known already."""
    known = out.known(out.root(buffer))
    element, lanes = dtypes.split_dtype(dtype)
    place = place_of(element, base, stride, lanes)
    value = known.get(place)
    if value is not None:
        return value
    if stride is None or stride == ONE:
        name = _read(out, out.address(buffer, base), dtype, out.alignment(buffer, base))
    else:
        name = _load_lanes(out, buffer, Ramped(base, stride, lanes), dtype)
    known.learn(place, name)
    return name


def _read(out: Builder, pointer: str, dtype: str, align: int) -> str:
    return _held(out, out.emit(f"load {memory_type(dtype)}, ptr {pointer}, align {align}"), dtype)


def _load_lanes(out: Builder, buffer: Buffer, offset: Ramped | Lanes, dtype: str) -> str:
    """Load lanes that are no neighbours, one by one."""
    if dtypes.lanes(buffer.dtype) != 1:
        raise CodegenError(f"`{buffer.name}` holds {buffer.dtype}, which only scalar indices can address")
    one = dtypes.element(dtype)
    return out.gathered([_load_plain(out, buffer, offset.lane(n), None, one) for n in range(offset.lanes)], dtype)


def load_masked(out: Builder, buffer: Buffer, offset: Ramped | Lanes, dtype: str, mask: str, other: str | None) -> str:
    """The lanes of a mask from memory, and those of `other`, or zero, elsewhere."""
    kind, boolean = memory_type(dtype), f"<{offset.lanes} x i1>"
    beside = "zeroinitializer"
    if other is not None:
        beside = out.emit(f"zext {boolean} {other} to {kind}") if dtypes.is_bool(dtype) else other
    if not isinstance(offset, Ramped) or offset.stride != ONE:
        return _gather_masked(out, buffer, offset, dtype, f"{boolean} {mask}, {kind} {beside}")
    known = out.known(out.root(buffer))
    place = place_of(f"{dtypes.element(dtype)} {mask} {beside}", offset.base, ONE, offset.lanes)
    value = known.get(place)
    if value is not None:
        return value
    tag = suffix(dtype.replace("bool", "int8"))
    function = out.module.declare(f"llvm.masked.load.{tag}.p0", kind, "ptr", "i32", boolean, kind)
    address = f"ptr {out.address(buffer, offset.base)}, i32 {out.alignment(buffer, offset.base)}"
    loaded = out.emit(f"call {kind} {function}({address}, {boolean} {mask}, {kind} {beside})")
    name = _held(out, loaded, dtype)
    known.learn(place, name)
    return name


def _gather_masked(out: Builder, buffer: Buffer, offset: Ramped | Lanes, dtype: str, chosen: str) -> str:
    """The lanes of a mask, each from an address of its own; `chosen` are the operands that say which, and what else."""
    kind, count = memory_type(dtype), offset.lanes
    tag = suffix(dtype.replace("bool", "int8"))
    pointers = [out.address(buffer, offset.lane(n)) for n in range(count)]
    vector = "poison"
    for lane, pointer in enumerate(pointers):
        vector = out.emit(f"insertelement <{count} x ptr> {vector}, ptr {pointer}, i64 {lane}")
    name = f"llvm.masked.gather.{tag}.v{count}p0"
    function = out.module.declare(name, kind, f"<{count} x ptr>", "i32", f"<{count} x i1>", kind)
    align = dtypes.nbytes(dtypes.element(buffer.dtype))
    return _held(out, out.emit(f"call {kind} {function}(<{count} x ptr> {vector}, i32 {align}, {chosen})"), dtype)


def _held(out: Builder, loaded: str, dtype: str) -> str:
    """The numbers that loaded elements hold: conditions in bytes, integers in the lower halves of bytes."""
    if dtypes.is_bool(dtype):
        zero = literal(0, dtypes.with_lanes("int8", dtypes.lanes(dtype)))
        return out.emit(f"icmp ne {memory_type(dtype)} {loaded}, {zero}")
    return in_four_bits(out, loaded, dtype) if dtypes.element(dtype) in HALF_BYTES else loaded


def load_or_constant(out: Builder, cond: str, buffer: Buffer, offset: Linear | Ramped, dtype: str, value: str) -> str:
    """``buffer[offset] if cond else value`` without a branch: a load from the element or from a constant."""
    kind = memory_type(dtype)
    base = offset if isinstance(offset, Linear) else offset.base
    stored = value if not dtypes.is_bool(dtype) else literal(value.count("true") > 0, dtype.replace("bool", "int8"))
    other = out.module.constant(kind, stored)
    pointer = out.emit(f"select i1 {cond}, ptr {out.address(buffer, base)}, ptr {other}")
    align = min(out.alignment(buffer, base), dtypes.nbytes(dtypes.element(dtype)))
    return _read(out, pointer, dtype, align)


def store(out: Builder, buffer: Buffer, offset: Linear | Ramped | Lanes, value: str, dtype: str) -> None:
    """A value to memory: to one element, to neighbours, or lane by lane."""
    if isinstance(offset, Linear):
        _store_here(out, buffer, offset, None, value, dtype)
    elif isinstance(offset, Ramped) and offset.stride == ONE:
        _store_here(out, buffer, offset.base, ONE, value, dtype)
    elif dtypes.lanes(buffer.dtype) != 1:
        raise CodegenError(f"`{buffer.name}` holds {buffer.dtype}, which only scalar indices can address")
    else:
        for lane in range(offset.lanes):
            scalar = out.emit(f"extractelement {value_type(dtype)} {value}, i64 {lane}")
            _store_here(out, buffer, offset.lane(lane), None, scalar, dtypes.element(dtype))


def _store_here(out: Builder, buffer: Buffer, base: Linear, stride: Linear | None, value: str, dtype: str) -> None:
    kind, stored = memory_type(dtype), value
    if dtypes.is_bool(dtype):
        stored = out.emit(f"zext {value_type(dtype)} {value} to {kind}")
    out.do(f"store {kind} {stored}, ptr {out.address(buffer, base)}, align {out.alignment(buffer, base)}")
    element, count = dtypes.split_dtype(dtype)
    out.known(out.root(buffer)).store(place_of(element, base, stride, count), value)


def store_masked(
    out: Builder, buffer: Buffer, offset: Linear | Ramped | Lanes, value: str, dtype: str, mask: str
) -> None:
    """The lanes of a mask to memory, next to each other."""
    if not isinstance(offset, Ramped) or offset.stride != ONE or offset.lanes != dtypes.lanes(dtype):
        raise CodegenError(f"a store to `{buffer.name}` under a condition of lanes writes neighbours")
    decided = decided_lanes(mask)
    if decided is not None and sum(decided) == 1:
        # LLVM 22 makes one scalar store of such a call; of integers that were wider it would store all of their bytes.
        lane = decided.index(True)
        scalar = out.emit(f"extractelement {value_type(dtype)} {value}, i64 {lane}")
        _store_here(out, buffer, offset.lane(lane), None, scalar, dtypes.element(dtype))
        return
    kind, boolean = memory_type(dtype), f"<{offset.lanes} x i1>"
    if dtypes.is_bool(dtype):
        value = out.emit(f"zext {boolean} {value} to {kind}")
    tag = suffix(dtype.replace("bool", "int8"))
    function = out.module.declare(f"llvm.masked.store.{tag}.p0", "void", kind, "ptr", "i32", boolean)
    place = f"ptr {out.address(buffer, offset.base)}, i32 {out.alignment(buffer, offset.base)}"
    out.do(f"call void {function}({kind} {value}, {place}, {boolean} {mask})")
    out.forget({out.root(buffer)})


def prefetch(out: Builder, buffer: Buffer, offset: Linear) -> None:
    """Memory is fetched into the second cache."""
    function = out.module.declare("llvm.prefetch.p0", "void", "ptr", "i32", "i32", "i32")
    out.do(f"call void {function}(ptr {out.address(buffer, offset)}, i32 0, i32 {SECOND_CACHE}, i32 1)")


def shuffled_loads(out: Builder, root: str, vectors: list[str], dtype: str, lanes: list[int]) -> str:
    """Lanes of vectors that were loaded from the memory `root`, known until a store to it, as these are."""
    known = out.known(root)
    place = place_of(f"{dtypes.element(dtype)} {vectors} {lanes}", ZERO, ONE, len(lanes))
    if place in known:
        return known[place]
    name = shuffled(out, vectors, dtype, lanes)
    known.learn(place, name)
    return name


def shuffled(out: Builder, vectors: list[str], dtype: str, lanes: list[int]) -> str:
    """Lanes of vectors of type `dtype`, numbered through.

    An instruction takes two vectors: each further one is made as wide as the result, and its lanes are put there.
    """
    length, count = dtypes.lanes(dtype), len(lanes)
    if count == 1:
        vector, place = vectors[lanes[0] // length], lanes[0] % length
        return vector if length == 1 else out.emit(f"extractelement {value_type(dtype)} {vector}, i64 {place}")
    whole = dtypes.with_lanes(dtype, count)
    if length == 1:
        return out.gathered([vectors[lane] for lane in lanes], whole)
    near = [lane if lane < 2 * length else -1 for lane in lanes]
    result = _of_two(out, vectors[0], vectors[1] if len(vectors) > 1 else "poison", dtype, near)
    for number, vector in enumerate(vectors[2:], 2):
        own = [lane % length if lane // length == number else -1 for lane in lanes]
        wide = _of_two(out, vector, "poison", dtype, own)
        chosen = [count + n if lane // length == number else n for n, lane in enumerate(lanes)]
        result = _of_two(out, result, wide, whole, chosen)
    return result


def _of_two(out: Builder, first: str, second: str, dtype: str, lanes: list[int]) -> str:
    """Lanes of two vectors of type `dtype`, numbered through; any value where the number is negative."""
    kind = value_type(dtype)
    numbers = ", ".join(f"i32 {number}" if number >= 0 else "i32 poison" for number in lanes)
    return out.emit(f"shufflevector {kind} {first}, {kind} {second}, <{len(lanes)} x i32> <{numbers}>")
