"""Buffers of integers of 4 bits, two to a byte, as buffers of bytes.

::

    V: int4x2[n]        V[i]           ->  B: uint8[n]      int4x2(shuffle((B[i] & 15, B[i] >> 4), 0 1))
    V: int4x8[n]        V[i] = e       ->  B: uint8x4[n]    B[i] = (even lanes of e) & 15 | (odd lanes of e) << 4

The lower half of a byte is the first of its two numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...ir import dtypes
from ...ir.expr import Broadcast, Buffer, Call, Cast, Const, Expr, Load, Shuffle, Undef, as_conditional
from ...ir.functions import MASKED_LOAD, PREFETCH
from ...ir.node import rebuild, walk
from ...ir.stmt import PrimFunc, Store

BYTE = "uint8"


def unpacked(func: PrimFunc) -> PrimFunc:
    """`func` without buffers of several integers of 4 bits to an element."""
    inside = (n for part in (*func.params, func) for n in walk(part))
    if not any(isinstance(n, Buffer) and dtypes.is_packed(n.dtype) for n in inside):
        return func
    result = _visit(func)
    assert isinstance(result, PrimFunc)
    return result


def _visit(node: Any) -> Any:
    if isinstance(node, Call) and node.name == MASKED_LOAD and _is_packed(node.args[1]):
        return _visit(as_conditional(node))
    if isinstance(node, Call) and node.name == PREFETCH and _is_packed(node.args[0]):
        load = rebuild(node.args[0], _visit)
        return Call(PREFETCH, (load,), load.dtype)
    made = rebuild(node, _visit)
    if isinstance(node, Buffer) and dtypes.is_packed(node.dtype):
        return replace(made, dtype=dtypes.with_lanes(BYTE, dtypes.nbytes(node.dtype)))
    if isinstance(node, Load) and _is_packed(node):
        return _numbers(made, node.dtype)
    if isinstance(node, Store) and dtypes.is_packed(node.buffer.dtype):
        return replace(made, value=_bytes(made.value))
    return made


def _is_packed(expr: Expr) -> bool:
    return isinstance(expr, Load) and dtypes.is_packed(expr.buffer.dtype)


def _numbers(held: Expr, dtype: str) -> Expr:
    """The numbers that bytes hold, of the type `dtype`."""
    count = dtypes.lanes(held.dtype)
    halves = _with("bitwise_and", held, 15), _with("shift_right", held, 4)
    lanes = [byte + half * count for byte in range(count) for half in (0, 1)]
    return Cast(dtype, _chosen(halves, lanes))


def _bytes(value: Expr) -> Expr:
    """The bytes that hold numbers of 4 bits."""
    count = dtypes.lanes(value.dtype)
    kind = dtypes.with_lanes(BYTE, count // 2)
    if isinstance(value, Undef):
        return Undef(kind)
    whole = Cast(dtypes.with_lanes(BYTE, count), value)
    low, high = (_chosen((whole,), range(half, count, 2)) for half in (0, 1))
    return Call("bitwise_or", (_with("bitwise_and", low, 15), _with("shift_left", high, 4)), kind)


def _chosen(vectors: tuple[Expr, ...], lanes: Sequence[int]) -> Expr:
    return Shuffle(vectors, tuple(Const(lane) for lane in lanes))


def _with(name: str, value: Expr, number: int) -> Expr:
    count, constant = dtypes.lanes(value.dtype), Const(number, BYTE)
    return Call(name, (value, constant if count == 1 else Broadcast(constant, count)), value.dtype)
