"""Buffers become flat: one index per group of axes between separators, row-major.

``B[i, j] -> B[i*shape[1] + j]``; vector indices add up to one ramp.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from ...ir.expr import Broadcast, Buffer, Const, Expr, Load, Ramp, as_expr, binary
from ...ir.node import Node, rebuild
from ...ir.stmt import Allocate, Declare, Stmt, Store
from .errors import LoweringError


def flat_buffer(buffer: Buffer, separated: bool) -> Buffer:
    """The buffer with one dimension, or one per group of axes if `separated`."""
    shape = tuple(prod(buffer.shape[a:b]) for a, b in _groups(buffer, separated))
    return Buffer(buffer.name, shape, buffer.dtype, buffer.scope, tuple(range(1, len(shape))), buffer.data)


def _groups(buffer: Buffer, separated: bool) -> list[tuple[int, int]]:
    cuts = [0, *(buffer.axis_separators if separated else ()), len(buffer.shape)]
    return list(pairwise(cuts))


def flatten_buffers(stmt: Stmt, separated: bool) -> Stmt:
    """Every access through flat buffers; a declared alias becomes the memory that it names."""
    result = _Flatten(separated).visit(stmt)
    assert isinstance(result, Stmt)
    return result


class _Flatten:
    def __init__(self, separated: bool) -> None:
        self.separated = separated
        self.flat: dict[Buffer, Buffer] = {}
        self.by_name: dict[str, Buffer] = {}

    def buffer(self, buffer: Buffer) -> Buffer:
        if buffer not in self.flat:
            self.flat[buffer] = flat_buffer(buffer, self.separated)
            self.by_name[buffer.name] = self.flat[buffer]
        return self.flat[buffer]

    def visit(self, node: Node) -> Node:
        if isinstance(node, Buffer):
            return self.buffer(node)
        if isinstance(node, Declare):
            self._alias(node.buffer)
            return self.visit(node.body)
        if isinstance(node, Allocate):
            self.buffer(node.buffer)
        if isinstance(node, Load):
            return Load(self.buffer(node.buffer), self._indices(node.buffer, node.indices))
        if isinstance(node, Store):
            value = self.visit(node.value)
            assert isinstance(value, Expr)
            return Store(self.buffer(node.buffer), self._indices(node.buffer, node.indices), value)
        result: Node = rebuild(node, self.visit)
        return result

    def _alias(self, buffer: Buffer) -> None:
        """An alias is its memory, if that is as large and holds the same type."""
        if not buffer.data:
            raise LoweringError(f"`{buffer.name}` is declared without memory; give it `data=` of a buffer")
        base = self.by_name.get(buffer.data)
        wanted = flat_buffer(buffer, self.separated)
        if base is None:
            base = Buffer(buffer.data, wanted.shape, buffer.dtype, buffer.scope, wanted.axis_separators)
        if (base.shape, base.dtype) != (wanted.shape, wanted.dtype):
            raise LoweringError(
                f"alias `{buffer.name}` has {wanted.dtype}{list(wanted.shape)}, but its memory `{base.name}` has "
                f"{base.dtype}{list(base.shape)}; both must agree in type and size"
            )
        self.flat[buffer] = base

    def _indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        visited = [self.visit(i) for i in indices]
        flat = []
        for first, last in _groups(buffer, self.separated):
            extents = buffer.shape[first:last]
            flat.append(_row_major([i for i in visited[first:last] if isinstance(i, Expr)], extents))
        return tuple(flat)


def _row_major(indices: list[Expr], extents: tuple[int, ...]) -> Expr:
    base: Expr = Const(0)
    stride: Expr = Const(0)
    lanes = 1
    for index, extent in zip(indices, extents, strict=True):
        start, step = index, as_expr(0)
        if isinstance(index, Ramp):
            start, step, lanes = index.base, index.stride, index.lanes
        elif isinstance(index, Broadcast):
            start, lanes = index.value, index.lanes
        base = binary("+", binary("*", base, extent), start)
        stride = binary("+", binary("*", stride, extent), step)
    return base if lanes == 1 else Ramp(base, stride, lanes)
