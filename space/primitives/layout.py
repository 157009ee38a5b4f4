"""transform_layout: where each element of a buffer lies, and what its padding holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ...ir import dtypes
from ...ir.affine.index_map import IndexMap
from ...ir.arith.simplify import simplify
from ...ir.expr import (
    TRUE,
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Undef,
    Var,
    as_expr,
    binary,
    const,
    if_then_else,
    substitute,
)
from ...ir.node import transform
from ...ir.stmt import (
    Allocate,
    Assume,
    Block,
    Declare,
    For,
    Iter,
    Layout,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    fresh,
    loops,
    names,
    seq,
)
from ..contents import negate, padding_condition
from ..errors import ScheduleError
from ..primitive import Result, primitive
from ..tree import (
    block_stores,
    blocks_below,
    find_block,
    insert_after,
    map_children,
    nest_of,
    producers,
    with_stmt,
)
from .cache import read_buffer, write_buffer


@dataclass(frozen=True)
class _Change:
    """A buffer, its map, and the buffer as it will be."""

    old: Buffer
    new: Buffer
    index_map: IndexMap
    pad_value: Const | Undef | None

    @property
    def pads(self) -> bool:
        return prod(self.new.shape) > prod(self.old.shape)

    def padding(self, indices: Sequence[Var]) -> Expr:
        """The condition of being padding at physical indices."""
        return padding_condition(self.index_map, self.old.shape, self.new.shape, indices)


@primitive
def transform_layout(
    func: PrimFunc,
    block: str,
    buffer: Any,
    index_map: str,
    pad_value: Any = None,
    *,
    physical_shape: Sequence[int] | None = None,
    rewrite_loops: bool = False,
) -> Result:
    """``A[i]`` -> ``A'[f(i)]`` for every access, with ``A'`` of shape ``f.map_shape(A.shape)`` or `physical_shape`.

    `buffer` is a name, or ``["read", k]`` / ``["write", k]`` of `block`.  Physical
    elements without a preimage are padding; `pad_value` None forbids touching them,
    ``"undef"`` lets them hold anything, a number is stored there after the last
    writer (or assumed of an input); storing `undef` stores nothing.  With `rewrite_loops` the only writer iterates
    over the physical indices instead, padding included.

    Conditions: (1) the map takes one index for each dimension; (2) it is injective;
    (3) `physical_shape` holds its image; (4) an output parameter cannot promise a pad
    value that its function does not write; (5) `rewrite_loops` needs a single writer
    without a reduction, one store at its iterators, alone in its nest.
    Sources: RFC 0039 and RFC 0077 (`pad_value`).
    """
    old = _buffer_of(func, block, buffer)
    change = _make_change(old, index_map, pad_value, physical_shape)
    writers = producers(func, old)
    func = _rewrite_accesses(func, change)
    if old in func.params or any(isinstance(p, Buffer) and p == change.new for p in func.params):
        return _on_parameter(func, change, bool(writers)), None
    if rewrite_loops:
        return _rewrite_writer(func, change), None
    if change.pads and isinstance(change.pad_value, Const) and writers:
        func = _append_epilogue(func, change)
    return func, None


def _buffer_of(func: PrimFunc, block: str, buffer: Any) -> Buffer:
    target = find_block(func, block)
    if isinstance(buffer, str):
        known = [*func.buffers, *(b for s in _blocks(func) for b in s.allocs)]
        for item in known:
            if item.name == buffer:
                return item
        raise ScheduleError(
            "there is no buffer `{name}`; there are {known}", name=buffer, known=", ".join(b.name for b in known)
        )
    side, index = buffer
    if side not in ("read", "write"):
        raise ScheduleError('`buffer` is a name, or ["read" | "write", index], but got {buffer}', buffer=buffer)
    return read_buffer(target, index) if side == "read" else write_buffer(target, index)


def _blocks(func: PrimFunc) -> list[Block]:
    from ...ir.stmt import blocks

    return list(blocks(func.body))


def _make_change(old: Buffer, text: str, pad_value: Any, physical_shape: Sequence[int] | None) -> _Change:
    index_map = IndexMap.parse(text)
    if len(index_map.variables) != len(old.shape):
        raise ScheduleError(
            "(1) the map takes {given} indices, but `{buffer}` has {rank}",
            given=len(index_map.variables), buffer=old.name, rank=len(old.shape),
        )  # fmt: skip
    try:
        index_map.check_injective(old.shape)
    except ValueError as error:
        raise ScheduleError("(2) {error}", error=str(error)) from None
    box = index_map.map_shape(old.shape)
    shape = tuple(int(e) for e in physical_shape) if physical_shape is not None else tuple(box)
    if len(shape) != len(box) or any(s < b for s, b in zip(shape, box, strict=True)):
        raise ScheduleError(
            "(3) the physical shape {shape} does not hold the image, which needs {box}", shape=shape, box=box
        )
    new = replace(old, shape=shape, axis_separators=tuple(index_map.axis_separators))
    return _Change(old, new, index_map, pad_constant(pad_value, old.dtype))


def pad_constant(pad_value: Any, dtype: str) -> Const | Undef | None:
    """A pad value as it is given (None, ``"undef"``, a number) as an expression of the element type."""
    if pad_value is None:
        return None
    if pad_value == "undef":
        return Undef(dtype)
    if isinstance(pad_value, str):
        pad_value = {"inf": float("inf"), "-inf": float("-inf")}.get(pad_value, pad_value)
    if isinstance(pad_value, str):
        raise ScheduleError('pad_value must be None, "undef" or a number, but got {value!r}', value=pad_value)
    if not dtypes.is_float(dtype) and not float(pad_value).is_integer():
        raise ScheduleError("pad_value {value} is not a {dtype}", value=pad_value, dtype=dtype)
    return const(float(pad_value) if dtypes.is_float(dtype) else int(pad_value), dtype)


def _rewrite_accesses(func: PrimFunc, change: _Change) -> PrimFunc:
    """Every access of the old buffer becomes one of the new, with indices simplified inside the iterators' domains."""
    body = _rewrite_stmt(func.body, change, {})
    assert isinstance(body, Block)
    body = replace(body, allocs=tuple(change.new if b == change.old else b for b in body.allocs))
    params = tuple(change.new if p == change.old else p for p in func.params)
    return replace(func, body=body, params=params)


def _rewrite_stmt(stmt: Stmt, change: _Change, ranges: dict[Var, tuple[int, int]]) -> Stmt:
    if isinstance(stmt, Block):
        inner = {**ranges, **{i.var: (0, i.extent - 1) for i in stmt.iters}}
        stmt = replace(stmt, allocs=tuple(change.new if b == change.old else b for b in stmt.allocs))
        return map_children(stmt, lambda child: _rewrite_stmt(child, change, inner))
    if isinstance(stmt, For) and isinstance(stmt.extent, Const):
        inner = {**ranges, stmt.var: (0, int(stmt.extent.value) - 1)}
        return map_children(stmt, lambda child: _rewrite_stmt(child, change, inner))

    if isinstance(stmt, (Seq, Allocate, Declare)):
        return map_children(stmt, lambda child: _rewrite_stmt(child, change, ranges))

    def swap(node: Any) -> Any:
        if isinstance(node, (Load, Store)) and node.buffer == change.old:
            indices = tuple(simplify(i, ranges) for i in change.index_map.map_indices(node.indices))
            return Load(change.new, indices) if isinstance(node, Load) else Store(change.new, indices, node.value)
        return node

    result: Stmt = transform(stmt, swap)
    return result


def _on_parameter(func: PrimFunc, change: _Change, written: bool) -> PrimFunc:
    """Record how the caller's argument lies, and what may be assumed of its padding."""
    constant = change.pads and isinstance(change.pad_value, Const)
    if written and constant:
        raise ScheduleError(
            "(4) the padding of output `{buffer}` is not written by its function", buffer=change.old.name
        )
    if any(layout.param == change.old.name for layout in func.layouts):
        raise ScheduleError(
            "(1) parameter `{buffer}` has a layout already", hint="give the composed map", buffer=change.old.name
        )
    pad = (
        ""
        if change.pad_value is None
        else "undef"
        if isinstance(change.pad_value, Undef)
        else repr(change.pad_value.value)
    )
    layout = Layout(change.old.name, change.old.shape, change.index_map.text, pad)
    func = replace(func, layouts=(*func.layouts, layout))
    if change.pads and change.pad_value is not None and not written:
        func = _prepend(func, _assumption_nest(func, change))
    return func


def _prepend(func: PrimFunc, stmt: Stmt) -> PrimFunc:
    return func.with_body(replace(func.body, body=seq([stmt, func.body.body])))


def _assumption_nest(func: PrimFunc, change: _Change) -> Stmt:
    """``assume(p is not padding or A[p] == pad_value)`` for every physical index p."""
    name = fresh(f"{change.old.name}_assume", names(func))
    iters, loop_vars = _fresh_axes(func, name, change.new.shape)
    point = tuple(i.var for i in iters)
    held = binary("==", Load(change.new, point), change.pad_value)  # type: ignore[arg-type]
    body = Assume(binary("or", negate(change.padding(point)), held))
    return loops(loop_vars, Block(name, iters, body))


def _fresh_axes(func: PrimFunc, name: str, shape: Sequence[int]) -> tuple[tuple[Iter, ...], list[tuple[Var, int]]]:
    taken = names(func) | {name}
    iters, loop_vars = [], []
    for dim, extent in enumerate(shape):
        axis = fresh(f"{name}_ax{dim}", taken)
        taken.add(axis)
        loop_vars.append((Var(axis), extent))
        iterator = fresh(f"v{dim}", taken)
        taken.add(iterator)
        iters.append(Iter(Var(iterator), extent, "spatial", Var(axis)))
    return tuple(iters), loop_vars


def _append_epilogue(func: PrimFunc, change: _Change) -> PrimFunc:
    """Store the pad value in the padding, after the nest of the last writer."""
    last = producers(func, change.new)[-1]
    name = fresh(f"{change.old.name}_pad", names(func))
    iters, loop_vars = _fresh_axes(func, name, change.new.shape)
    assert change.pad_value is not None
    point = tuple(i.var for i in iters)
    bindings: dict[Var, Expr] = {i.var: i.binding for i in iters}
    body = Store(change.new, point, change.pad_value)
    block = Block(name, iters, body, substitute(change.padding(point), bindings))
    return insert_after(func, nest_of(func, last), loops(loop_vars, block))


def _rewrite_writer(func: PrimFunc, change: _Change) -> PrimFunc:
    """The writer over physical indices: ``A'[p] = if p is padding: pad_value else e(f^-1(p))``."""
    writers = producers(func, change.new)
    if len(writers) != 1 or writers[0].reduce or not isinstance(writers[0].body, Store) or writers[0].predicate != TRUE:
        raise ScheduleError("(5) `{buffer}` must have one writer without a reduction", buffer=change.old.name)
    writer = writers[0]
    nest = nest_of(func, writer)
    if blocks_below(nest) != (writer,):
        raise ScheduleError("(5) block `{block}` is not alone in its loop nest", block=writer.name)
    iters, loop_vars = _fresh_axes(func, writer.name, change.new.shape)
    point = tuple(i.var for i in iters)
    inverse = _inverse_of_iters(writer, change, point)
    ranges = {i.var: (0, i.extent - 1) for i in iters}
    store = block_stores(writer)[0]
    value: Expr = substitute(store.value, inverse)
    predicate: Expr = TRUE
    padding = change.padding(point) if change.pads else as_expr(False)
    if change.pads and change.pad_value is None:
        bindings: dict[Var, Expr] = {i.var: i.binding for i in iters}
        predicate = substitute(negate(padding), bindings)
    elif change.pads:
        assert change.pad_value is not None
        value = _merge_conditional(if_then_else(negate(padding), value, change.pad_value))
    value = simplify(value, ranges)
    block = Block(writer.name, iters, Store(change.new, point, value), predicate, None, (), writer.annotations)
    return with_stmt(func, nest, loops(loop_vars, block))


def _inverse_of_iters(writer: Block, change: _Change, point: Sequence[Var]) -> dict[Var, Expr]:
    """The writer's iterators in terms of physical indices."""
    inverse, _ = change.index_map.non_surjective_inverse(change.old.shape, change.new.shape)
    logical = inverse.map_indices(point)
    store = block_stores(writer)[0]
    iterators = [i.var for i in writer.iters]
    result: dict[Var, Expr] = {}
    plain = change.index_map.map_indices(iterators) if len(iterators) == len(change.old.shape) else ()
    ranges = {i.var: (0, i.extent - 1) for i in writer.iters}
    if tuple(simplify(e, ranges) for e in plain) != store.indices:
        raise ScheduleError("(5) block `{block}` does not store at its iterators in order", block=writer.name)
    for iterator, expr in zip(iterators, logical, strict=True):
        result[iterator] = expr
    return result


def _merge_conditional(value: Expr) -> Expr:
    """``if a: (if b: x else y) else y`` -> ``if a and b: x else y``."""
    if isinstance(value, Call) and value.name == "if_then_else":
        cond, then, orelse = value.args
        if isinstance(then, Call) and then.name == "if_then_else" and then.args[2] == orelse:
            return if_then_else(binary("and", cond, then.args[0]), then.args[1], orelse)
    return value
