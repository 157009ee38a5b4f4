"""Caches with indices of their own: reindex_cache_read, reindex_cache_write.

The index map goes from the block's iterators to the indices of the cache, so that a copy
can transpose, pack and pad at once, and hold just what the block touches.  Source:
apache/tvm pull request 14161; padding as in RFC 0077.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.affine.sets import IntSet
from ...ir.dataflow.instances import instances
from ...ir.expr import Buffer, Load
from ...ir.node import walk
from ...ir.passes.padding import BLOCK
from ...ir.stmt import Block, PrimFunc, Stmt, Store, fresh, names, seq, stores
from ..errors import ScheduleError
from ..placement import check_no_views, writers
from ..primitive import Result, index_rank, primitive
from ..tree import find_block, insert_after, insert_before, nest_of, scope_of, with_alloc, with_stmt
from .cache import check_concurrent_writers, check_scope, read_buffer, write_buffer
from .reindexing import Reindexing, check_same_point, check_writer, copy_nest, padding_of, redirect, reindexing


@primitive
def reindex_cache_read(
    func: PrimFunc,
    block: str,
    read_buffer_index: int,
    storage_scope: str,
    index_map: Any,
    consumer_blocks: Sequence[str] | None = None,
    *,
    pad_value: Any = None,
    physical_shape: Sequence[int] | None = None,
) -> Result:
    """``S(A[e(v)])`` -> ``A_cache[f(v)] = A[e(v)]`` for all v that the block reads, then ``S(A_cache[f(v)])``.

    `index_map` is f, over all iterators of the block; those that neither e nor f uses are
    left out of the copy, which stands before the block's loop nest.  `consumer_blocks` read
    the same elements by iterators of the same extents, and read the copy, too.  Elements of
    the cache that nothing is copied to are padding: with `pad_value` it is stored there,
    with `physical_shape` the cache is larger than the image of f.

    Conditions: (1) the block has iterators and reads such a buffer, whose memory has no other
    view, and does not write it;
    (2) it reads it at a single point; (3) f takes as many indices as there are iterators;
    (4) instances that f sends to one element read the same; (5) nothing writes the buffer in
    its nest, in those of the consumers, or between these; (6) `physical_shape` holds the image of
    f; (7) `pad_value` has the element type and reads only what is copied; (8) what the block
    reads is an affine set; (9) consumers read the same point, in the same block; (10) the scope
    is a name, or names joined by dots.  Returns the block that copies.
    Source: apache/tvm pull request 14161.
    """
    reader = find_block(func, block)
    source = read_buffer(func, reader, read_buffer_index)
    check_no_views(func, source, "1")
    check_scope(storage_scope, "10")
    plan = reindexing(func, reader, source, index_map, storage_scope, physical_shape)
    blocks = [reader, *(find_block(func, name) for name in consumer_blocks or ())]
    for other in blocks:
        if any(s.buffer == source for s in stores(nest_of(func, other))):
            raise ScheduleError("(5) `{buffer}` is written in the same loop nest", buffer=source.name)
        check_same_point(plan, reader, other)
        if scope_of(func, other) is not scope_of(func, reader):
            raise ScheduleError("(9) block `{other}` is not in the same block as `{block}`", other=other.name,
                                block=reader.name)  # fmt: skip
    _check_not_written_between(func, blocks, source)
    copied = plan.read_set(func, reader)
    for other in blocks[1:]:
        copied = copied.union(plan.read_set(func, other, reader))
    copy = copy_nest(func, plan, copied, lambda point: Store(
        plan.cache, plan.cache_indices(point), Load(source, plan.source_indices(point))
    ))  # fmt: skip
    order = [n for n in walk(func.body) if isinstance(n, Block)]
    first = min(blocks, key=lambda b: next(k for k, o in enumerate(order) if o is b))
    func = insert_before(func, nest_of(func, first), seq([copy, *_epilogue(func, plan, copied, pad_value)]))
    for other in blocks:
        func = with_stmt(func, find_block(func, other.name), redirect(other, source, plan, reader))
    return with_alloc(func, plan.cache), plan.cache.name


@primitive
def reindex_cache_write(
    func: PrimFunc,
    block: str,
    write_buffer_index: int,
    storage_scope: str,
    index_map: Any,
    *,
    pad_value: Any = None,
    physical_shape: Sequence[int] | None = None,
) -> Result:
    """``A[e(v)] = s`` -> ``A_cache[f(v)] = s``, then ``A[e(v)] = A_cache[f(v)]`` for all v that the block writes.

    `index_map` is f, over all iterators of the block; the copy goes over those that e uses,
    and stands after the block's loop nest.  Elements of the cache that the block does not
    write are padding: with `pad_value` it is stored there, after the block, and with
    `physical_shape` the cache is larger than the image of f.

    Conditions: (1) the block has iterators and writes such a buffer, whose memory has no other
    view; (2) all its accesses of it are at one point; (3) f takes as many indices as there are
    iterators, and uses those that e uses; (4) two instances have one element of the cache if and only if they have one
    of the buffer; (5) nothing else in its nest touches the buffer; (6) `physical_shape`
    holds the image of f; (7) `pad_value` has the element type and reads only what is
    written; (8) what the block writes is an affine set, and every instance stores; (9) the
    block reads nothing that was there before: it has an init, or does not read the buffer; (10)
    the scope is a name, or names joined by dots; (11) concurrent loops around the block may still be so, now that
    what they write is read after them.
    Returns the block that copies back.  Source: apache/tvm pull request 14161.
    """
    writer = find_block(func, block)
    target = write_buffer(func, writer, write_buffer_index)
    check_no_views(func, target, "1")
    check_scope(storage_scope, "10")
    plan = reindexing(func, writer, target, index_map, storage_scope, physical_shape)
    check_writer(func, writer, plan)
    written = plan.touched_set(func, writer)
    back = copy_nest(func, plan, written, lambda point: Store(
        target, plan.source_indices(point), Load(plan.cache, plan.cache_indices(point))
    ))  # fmt: skip
    after = [*_epilogue(func, plan, written, pad_value), back]
    renamed = redirect(writer, target, plan, writer)
    func = with_stmt(func, writer, renamed)
    func = with_alloc(insert_after(func, nest_of(func, renamed), seq(after)), plan.cache)
    check_concurrent_writers(func, plan.cache, "11")
    return func, plan.cache.name


def _check_not_written_between(func: PrimFunc, blocks: Sequence[Block], source: Buffer) -> None:
    """Condition (5): from the first consumer to the last, the buffer holds what was copied."""
    numbers = [s.number for block in blocks for s in instances(func).below(nest_of(func, block))]
    for writer in writers(func, source):
        if min(numbers) <= writer.number <= max(numbers):
            raise ScheduleError("(5) {writer} writes `{buffer}` between its consumers", writer=writer.label,
                                buffer=source.name)  # fmt: skip


def _epilogue(func: PrimFunc, plan: Reindexing, filled: IntSet, pad_value: Any) -> list[Stmt]:
    """What stores the pad value in the rest of the cache, if there is one."""
    padding = padding_of(func, plan, filled, pad_value)
    name = plan.cache.name
    return [] if padding is None else [padding.epilogue(func, fresh(f"{name}_padding", names(func) | {name}), BLOCK)]


@index_rank("reindex_cache_read")
@index_rank("reindex_cache_write")
def _rank(func: PrimFunc, block: str, **_rest: Any) -> int:
    return len(find_block(func, block).iters)
