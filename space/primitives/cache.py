"""Staging through caches: cache_read, cache_write, set_scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.affine.sets import Domain, NotAffine, Unknown, box, points
from ...ir.expr import Buffer, Expr, Load, Var, as_expr, conjuncts, substitute
from ...ir.node import transform
from ...ir.stmt import Block, Iter, PrimFunc, Stmt, Store, fresh, loops, names, read_buffers, replace_buffer, seq
from ..errors import ScheduleError
from ..primitive import Result, primitive
from ..tree import (
    block_stores,
    extent_of,
    find_block,
    insert_after,
    insert_before,
    leaf_blocks,
    loops_above,
    nest_of,
    producers,
    reads,
    with_alloc,
    with_stmt,
)


@primitive
def cache_read(func: PrimFunc, block: str, read_buffer_index: int, storage_scope: str) -> Result:
    """Read a copy instead: ``S(A[i])`` -> ``A_cache[v] = A[v]`` for all v, then ``S(A_cache[i])``.

    The copy stands before the block's loop nest.  Conditions: (1) the block reads
    such a buffer and does not write it; (2) nothing in its nest writes it.
    Returns the block that copies.
    """
    reader = find_block(func, block)
    source = read_buffer(reader, read_buffer_index)
    nest = nest_of(func, reader)
    if any(s.buffer == source for s in _stores(nest)):
        raise ScheduleError("(2) `{buffer}` is written in the same loop nest", buffer=source.name)
    cache, name = _cache_buffer(func, source, storage_scope)
    renamed = _redirect_reads(reader, source, cache)
    func = with_stmt(func, reader, renamed)
    copy, _ = _copy_nest(func, name, source, cache)
    func = insert_before(func, nest_of(func, renamed), copy)
    return with_alloc(func, cache), name


@primitive
def cache_write(func: PrimFunc, block: str, write_buffer_index: int, storage_scope: str) -> Result:
    """Write a copy first: ``A[i] = e`` -> ``A_cache[i] = e``, then ``A[v] = A_cache[v]`` for all v.

    Conditions: (1) the block writes such a buffer; (2) it is its only writer; (3) no
    other block of its nest reads it; (4) it writes every element, since all are
    copied back.  Returns the block that copies back, which stands after the block's loop nest.
    """
    writer = find_block(func, block)
    target = write_buffer(writer, write_buffer_index)
    if producers(func, target) != (writer,):
        raise ScheduleError("(2) `{buffer}` has other writers than `{block}`", buffer=target.name, block=block)
    readers = [b.name for b in leaf_blocks(nest_of(func, writer)) if b is not writer and reads(b, target)]
    if readers:
        raise ScheduleError(
            "(3) block `{reader}` reads `{buffer}` in the same nest", reader=readers[0], buffer=target.name
        )
    if not _writes_all(func, writer, target):
        raise ScheduleError("(4) block `{block}` does not write all of `{buffer}`", block=block, buffer=target.name)
    cache, name = _cache_buffer(func, target, storage_scope)
    renamed = replace_buffer(writer, target, cache)
    func = with_stmt(func, writer, renamed)
    copy, _ = _copy_nest(func, name, cache, target)
    func = insert_after(func, nest_of(func, renamed), copy)
    return with_alloc(func, cache), name


def _writes_all(func: PrimFunc, writer: Block, buffer: Buffer) -> bool:
    """Whether the block's stores reach every element of the buffer; unknown is no."""
    around = loops_above(func, writer)
    bindings = {i.var: i.binding for i in writer.iters}
    element = [Var(f"p{d}") for d in range(len(buffer.shape))]
    whole = box(element, buffer.shape)
    try:
        instances = points(Domain(tuple((x.var, extent_of(x)) for x in around), conjuncts(writer.predicate)))
        return any(
            whole.is_subset(instances.image([substitute(i, bindings) for i in store.indices], element))
            for store in block_stores(writer)
            if store.buffer == buffer
        )
    except (NotAffine, Unknown):
        return False


@primitive
def set_scope(func: PrimFunc, block: str, buffer_index: int, storage_scope: str) -> Result:
    """Move the buffer that `block` writes to another memory scope, all accesses with it.

    Condition: (1) it is allocated in the function, not a parameter.
    """
    buffer = write_buffer(find_block(func, block), buffer_index)
    if buffer in func.params:
        raise ScheduleError("(1) `{buffer}` is a parameter", hint="use cache_write", buffer=buffer.name)
    changed: PrimFunc = replace_buffer(func, buffer, replace(buffer, scope=storage_scope))
    return changed, None


def read_buffer(block: Block, index: int) -> Buffer:
    """The index-th buffer that a block reads and does not write."""
    written = {s.buffer for s in block_stores(block)}
    found = [b for b in read_buffers(block.body) if b not in written]
    return _pick(found, index, block, "reads")


def write_buffer(block: Block, index: int) -> Buffer:
    """The index-th buffer that a block writes."""
    return _pick(list(dict.fromkeys(s.buffer for s in block_stores(block))), index, block, "writes")


def _pick(found: Sequence[Buffer], index: int, block: Block, verb: str) -> Buffer:
    if not 0 <= index < len(found):
        raise ScheduleError(
            "(1) block `{block}` {verb} {count} buffers ({known}), but got index {index}",
            block=block.name, verb=verb, count=len(found), known=", ".join(b.name for b in found), index=index,
        )  # fmt: skip
    return found[index]


def _stores(stmt: Stmt) -> list[Store]:
    from ...ir.stmt import stores

    return list(stores(stmt))


def _cache_buffer(func: PrimFunc, source: Buffer, scope: str) -> tuple[Buffer, str]:
    name = fresh(f"{source.name}_{scope.split('.')[0]}", names(func))
    return Buffer(name, source.shape, source.dtype, scope), name


def _redirect_reads(block: Block, source: Buffer, cache: Buffer) -> Block:
    def swap(node: object) -> object:
        return Load(cache, node.indices) if isinstance(node, Load) and node.buffer == source else node

    result: Block = transform(block, swap)
    return result


def _copy_nest(func: PrimFunc, name: str, source: Buffer, target: Buffer) -> tuple[Stmt, Block]:
    """``target[v] = source[v]`` over the whole shape, in a block of its own."""
    taken = names(func) | {name}
    iters: list[Iter] = []
    loop_vars: list[tuple[Var, int]] = []
    for extent in source.shape:
        axis = fresh(f"{name}_ax{len(iters)}", taken)
        taken.add(axis)
        loop_vars.append((Var(axis), extent))
        iterator = fresh(f"v{len(iters)}", taken)
        taken.add(iterator)
        iters.append(Iter(Var(iterator), extent, "spatial", Var(axis)))
    point: tuple[Expr, ...] = tuple(i.var for i in iters) or (as_expr(0),)
    body = Store(target, point, Load(source, point))
    block = Block(name, tuple(iters), body)
    return loops(loop_vars, seq([block])), block
