"""Buffers become flat memory of scalars: one index per group of axes between separators, row-major.

::

    B[i, j]                       ->  B[i*shape[1] + j]
    V[i],  V of float32x4         ->  V[ramp(i*4, 1, 4)],  V of float32
    declare A over B: S           ->  S,  with A a view of B where A's element type differs, else B itself

Vector indices add up to one ramp where each of them is one.  Memory of a vector type is
memory of its scalars, so that a view that only groups them differently is no view any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir import dtypes
from ...ir.expr import Binary, Broadcast, Buffer, Call, Cast, Const, Expr, Load, Ramp, Var, binary, reads_memory
from ...ir.node import Node, rebuild
from ...ir.passes.flat import flat_indices, groups, product
from ...ir.stmt import Allocate, Declare, Stmt, Store
from .errors import LoweringError


def flat_buffer(buffer: Buffer, separated: bool) -> Buffer:
    """The buffer with one dimension, or one per group of axes if `separated`, and scalar elements."""
    width = dtypes.lanes(buffer.dtype)
    shape = [product(buffer.extents[a:b]) for a, b in groups(buffer, separated)]
    shape[-1] = product([shape[-1], width])
    separators = tuple(range(1, len(shape)))
    return Buffer(buffer.name, tuple(shape), dtypes.element(buffer.dtype), buffer.scope, separators, buffer.data)


def flatten_buffers(stmt: Stmt, separated: bool, params: Sequence[Buffer] = ()) -> Stmt:
    """Every access through flat buffers of scalars; declarations go, views of another type name their memory."""
    result = _Flatten(separated, params).visit(stmt)
    assert isinstance(result, Stmt)
    return result


class _Flatten:
    def __init__(self, separated: bool, params: Sequence[Buffer]) -> None:
        self.separated = separated
        self.flat: dict[Buffer, Buffer] = {}
        self.owners: dict[str, Buffer] = {}
        for param in params:
            self.buffer(param)

    def buffer(self, buffer: Buffer) -> Buffer:
        if buffer not in self.flat:
            self.flat[buffer] = flat_buffer(buffer, self.separated)
            self.owners[buffer.name] = self.flat[buffer]
        return self.flat[buffer]

    def visit(self, node: Node) -> Node:
        if isinstance(node, Buffer):
            return self.buffer(node)
        if isinstance(node, Expr) and not reads_memory(node):
            return node
        if isinstance(node, Declare):
            self._declare(node.buffer)
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

    def _declare(self, buffer: Buffer) -> None:
        if not buffer.data:
            raise LoweringError(f"`{buffer.name}` is declared without memory; give it `data=` of a buffer")
        view, owner = flat_buffer(buffer, self.separated), self.owners.get(buffer.data)
        if owner is None:
            raise LoweringError(f"`{buffer.name}` views `{buffer.data}`, which is not defined around its declaration")
        if (view.extents, view.dtype) != (owner.extents, owner.dtype) and view.nbytes > owner.nbytes:
            raise LoweringError(
                f"`{buffer.name}` of {view.nbytes} bytes views `{owner.name}`, which has only {owner.nbytes}"
            )
        plain = view.rank == owner.rank == 1 or view.extents == owner.extents
        same = plain and view.dtype == owner.dtype
        self.flat[buffer] = owner if same else replace(view, scope=owner.scope)

    def _indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        visited: list[Expr] = []
        for index in indices:
            new = self.visit(index)
            assert isinstance(new, Expr)
            visited.append(new)
        flat = list(flat_indices(buffer, visited, self.separated))
        lanes = max((dtypes.lanes(i.dtype) for i in visited), default=1)
        return _scalars(flat, lanes, dtypes.lanes(buffer.dtype))


def _scalars(indices: Sequence[Expr], lanes: int, width: int) -> tuple[Expr, ...]:
    """The indices of `lanes` vectors of `width` scalars, where the last axis counts the scalars."""
    if width == 1:
        return tuple(indices)
    if lanes > 1:
        indices = [i if dtypes.lanes(i.dtype) > 1 else Broadcast(i, lanes) for i in indices]
    return (*(_repeated(i, width) if lanes > 1 else i for i in indices[:-1]), _elements(indices[-1], width))


def _elements(index: Expr, width: int) -> Expr:
    """The scalars of the vectors of `width` at `index`: ``index*width + k`` for each k, next to each other."""
    if dtypes.lanes(index.dtype) == 1:
        return Ramp(binary("*", index, width), Const(1), width)
    if isinstance(index, Ramp) and index.stride == Const(1):
        return Ramp(binary("*", index.base, width), Const(1), width * index.lanes)
    lanes = dtypes.lanes(index.dtype) * width
    scaled = Binary("*", _repeated(index, width), Broadcast(Const(width), lanes))
    return Binary("+", scaled, Binary("%", Ramp(Const(0), Const(1), lanes), Broadcast(Const(width), lanes)))


def _repeated(expr: Expr, times: int) -> Expr:
    """Each lane of `expr` repeated `times` times."""
    lanes = dtypes.lanes(expr.dtype) * times
    if lanes == times:
        return expr
    if isinstance(expr, Broadcast):
        return Broadcast(expr.value, lanes)
    if isinstance(expr, Ramp):
        number = Binary("//", Ramp(Const(0), Const(1), lanes), Broadcast(Const(times), lanes))
        return Binary("+", Broadcast(expr.base, lanes), Binary("*", number, Broadcast(expr.stride, lanes)))
    if isinstance(expr, Var):
        raise LoweringError(
            f"the vector `{expr.name}` stands in an index of a buffer of vectors; write its value in the index"
        )
    if isinstance(expr, Load):
        return Load(expr.buffer, tuple(_repeated(i, times) for i in expr.indices))
    made: Expr = rebuild(expr, lambda child: _repeated(child, times) if isinstance(child, Expr) else child)
    if isinstance(made, (Cast, Call)):
        return replace(made, dtype=dtypes.with_lanes(made.dtype, lanes))
    return made
