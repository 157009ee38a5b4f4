"""Staging through caches: cache_read, cache_write, set_scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from keyword import iskeyword
from typing import Any
from unicodedata import normalize

from ...ir.affine.sets import IntSet, NotAffine, Unknown, points
from ...ir.dataflow.accesses import Access, element_variables
from ...ir.dataflow.contents import held, reading
from ...ir.dataflow.instances import Statement, instances
from ...ir.expr import Buffer, Extent, Load, as_expr, reads_memory
from ...ir.node import rebuild, walk
from ...ir.passes.relayout import buffers, views
from ...ir.stmt import (
    Allocate,
    Assume,
    Block,
    Declare,
    Evaluate,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    fresh,
    loops,
    names,
    read_buffers,
    replace_buffer,
    seq,
    stores,
    written_buffers,
)
from ...ir.syntax.base import NAMESPACES
from ..errors import ScheduleError
from ..nest import check_still_concurrent
from ..placement import check_no_views, not_stored, writers
from ..primitive import Result, primitive
from ..tree import (
    block_stores,
    find_block,
    guard,
    insert_after,
    insert_before,
    leaf_blocks,
    loops_above,
    nest_of,
    reads,
    replace_stmt,
    scope_of,
    with_alloc,
    with_stmt,
)
from .axes import fresh_axes


@primitive
def cache_read(func: PrimFunc, block: str, read_buffer_index: int | str, storage_scope: str) -> Result:
    """Read a copy instead: ``S(A[i])`` -> ``A_cache[v] = A[v]`` for all v, then ``S(A_cache[i])``.

    The buffer is given by its place among what the block reads and does not write, or by
    name.  The copy stands before the block's loop nest.  In the root block of a function of
    bare loops every read goes to the copy, which is bare loops too, and stands before
    everything, or after the last writer of what it copies.  Elements that hold nothing there
    are not copied.  Conditions: (1) the block reads such a buffer, whose memory has no other
    view; (2) nothing in its nest writes it, nor anything between readers in the root block;
    (3) which elements hold something can be decided; (4) the scope is a name, or names joined
    by dots.  Returns the block that copies, or the outermost loop where it is bare.
    """
    reader = find_block(func, block)
    source = _outer_buffer(func, reader, read_buffer_index, written=False)
    check_no_views(func, source, "1")
    check_scope(storage_scope, "4")
    cache, name = cache_buffer(func, source, source.extents, storage_scope)
    if reader is func.body:
        return _cache_read_bare(func, source, cache)
    nest = nest_of(func, reader)
    if any(s.buffer == source for s in stores(nest)):
        raise ScheduleError("(2) `{buffer}` is written in the same loop nest", buffer=source.name)
    renamed = _redirect_reads(reader, source, cache)
    func = with_stmt(func, reader, renamed)
    copy = _copy_nest(func, name, source, cache)
    func = insert_before(func, nest_of(func, renamed), copy)
    return _what_is_held(with_alloc(func, cache), source, cache), name


def _cache_read_bare(func: PrimFunc, source: Buffer, cache: Buffer) -> Result:
    items = _items(func.body.body)
    last = max((k for k, item in enumerate(items) if source in written_buffers(item)), default=-1)
    early = next((item for item in items[: last + 1] if reads(item, source)), None)
    if early is not None:
        raise ScheduleError("(2) `{buffer}` is read before, or together with, its last writer", buffer=source.name)
    copy, loop = _bare_copy(func, cache.name, source, cache)
    rest = [_redirect_reads(item, source, cache) for item in items[last + 1 :]]
    body = seq([*items[: last + 1], copy, *rest])
    func = with_alloc(func.with_body(replace(func.body, body=body)), cache)
    return _what_is_held(func, source, cache), loop


def _what_is_held(func: PrimFunc, source: Buffer, cache: Buffer) -> PrimFunc:
    """Condition (3): the copy leaves out the elements of `source` that hold nothing where it stands.

    Which those are is told by the loops inside of the innermost block around the copy, and that block's iterators.
    """
    copy = next(s for s in instances(func).statements if s.write is not None and s.write.buffer == cache)
    target = copy.path[-2] if isinstance(copy.path[-2], Block) and copy.path[-2] is not func.body else copy.stmt
    read = next(a for a in copy.accesses if not a.is_write)
    try:
        missing = held(instances(func), reading(copy, read)).missing
        if not missing.is_empty():
            missing = held(instances(func), reading(copy, read), exact=True).missing
        if missing.is_empty():
            return func
        for writer in instances(func).touching(source):
            if writer.write is not None and not writer.exact and _may_reach(writer, source, missing, read):
                raise Unknown(f"memory decides whether {writer.label} stores there")
        every = points(copy.domain)
        kept = every.subtract(missing)
        hidden = {loop.var for loop in copy.loops} - {loop.var for loop in loops_above(func, target)}
        if hidden:
            blocks = [b for b in copy.path if isinstance(b, Block) and b not in (func.body, target)]
            seen = [*(v for v in every.variables if v not in hidden), *(i.var for b in blocks for i in b.iters)]
            kept, missing, every = (s.image([copy.resolve(v) for v in seen], seen) for s in (kept, missing, every))
        if not kept.intersect(missing).is_empty():
            raise Unknown("iterations of loops outside of the block around the copy find others")
        where = kept.condition(every)
    except (NotAffine, Unknown) as error:
        raise ScheduleError(
            "(3) it is unknown which elements of `{buffer}` hold something: {error}",
            buffer=source.name, error=str(error),
        ) from None  # fmt: skip
    return with_stmt(func, target, guard(target, where))


def _may_reach(writer: Statement, source: Buffer, missing: IntSet, read: Access) -> bool:
    """Whether a statement may store an element that is read at the instances `missing`.  Raises NotAffine, Unknown."""
    assert writer.write is not None
    axes = element_variables(source)
    stored = points(writer.domain).image(writer.write.indices, axes)
    return not missing.image(read.indices, axes).intersect(stored).is_empty()


@primitive
def cache_write(func: PrimFunc, block: str, write_buffer_index: int | str, storage_scope: str) -> Result:
    """Write a copy first: ``A[i] = e`` -> ``A_cache[i] = e``, then ``A[v] = A_cache[v]`` for all v.

    The buffer is given by its place among what the block writes, or by name.  Conditions:
    (1) the block writes such a buffer, whose memory has no other view; (2) it is its only
    writer; (3) nothing else in its nest, and in the root block no other statement up to the
    last writer, reads it; (4) it has written every element wherever the copy runs, since all
    are copied back; (5) it reads only what it wrote; (6) the scope is a name, or names joined
    by dots; (7) concurrent loops around the block may still be so, now that what they write is read after them.
    Returns the block that copies back, which stands after the block's
    loop nest; in the root block of a function of bare loops the copy is bare too, and its
    outermost loop is returned.
    """
    writer = find_block(func, block)
    target = _outer_buffer(func, writer, write_buffer_index, written=True)
    check_no_views(func, target, "1")
    check_scope(storage_scope, "6")
    cache, name = cache_buffer(func, target, target.extents, storage_scope)
    if not _writes_all(func, writer, target):
        raise ScheduleError("(4) block `{block}` does not write all of `{buffer}`", block=block, buffer=target.name)
    if writer is func.body:
        return _cache_write_bare(func, target, cache)
    if sum(s.buffer == target for s in stores(func.body)) != sum(s.buffer == target for s in stores(writer)):
        raise ScheduleError("(2) `{buffer}` has other writers than `{block}`", buffer=target.name, block=block)
    _check_no_other_reads(nest_of(func, writer), writer, target)
    renamed = replace_buffer(writer, target, cache)
    func = with_stmt(func, writer, renamed)
    copy = _copy_nest(func, name, cache, target)
    func = with_alloc(insert_after(func, nest_of(func, renamed), copy), cache)
    if scope_of(func, renamed) is not func.body:
        _check_all_written(func, copy, writer, target)
    decides = any(map(reads_memory, (writer.predicate, *(i.binding for i in writer.iters))))
    if (writer.init is None or decides) and reads(writer, target):
        _check_own_reads(func, renamed, target, cache)
    check_concurrent_writers(func, cache, "7")
    return func, name


def check_concurrent_writers(func: PrimFunc, cache: Buffer, number: str) -> None:
    """Raises ScheduleError (`number`) where iterations of a concurrent loop write the same elements of a cache.

    Before, nobody may have read them after the loop, and each iteration have had a copy of its own.
    """
    around = [loop for writer in writers(func, cache) for loop in writer.loops]
    check_still_concurrent(func, list({id(loop): loop for loop in around}.values()), number)


def _check_no_other_reads(nest: Stmt, writer: Block, target: Buffer) -> None:
    """Condition (3)."""
    rest = replace_stmt(nest, writer, Evaluate(as_expr(0)))
    for other in leaf_blocks(rest):
        if reads(other, target):
            raise ScheduleError("(3) block `{reader}` reads `{buffer}` in the same nest", reader=other.name,
                                buffer=target.name)  # fmt: skip
    if reads(rest, target):
        raise ScheduleError("(3) something besides block `{block}` reads `{buffer}` in the same nest",
                            block=writer.name, buffer=target.name)  # fmt: skip


def _check_all_written(func: PrimFunc, copy: Stmt, writer: Block, target: Buffer) -> None:
    """Condition (4) for a copy that runs in each iteration of loops around its block."""
    program = instances(func)
    statement = next(s for s in program.below(copy) if s.write is not None)
    try:
        point = held(program, reading(statement, statement.reads[0]), exact=True).missing.first()
        where = "" if point is None else "at " + ", ".join(f"{k}={v}" for k, v in point.items())
    except (NotAffine, Unknown) as error:
        where = str(error)
    if where:
        raise ScheduleError(
            "(4) block `{block}` does not write all of `{buffer}` before it is copied back: {where}",
            block=writer.name, buffer=target.name, where=where,
        )  # fmt: skip


def _check_own_reads(func: PrimFunc, writer: Block, target: Buffer, cache: Buffer) -> None:
    """Condition (5): what the block reads of its result it has written itself."""
    program = instances(func)
    for statement in program.below(writer):
        for access in statement.accesses:
            if access.is_write or access.buffer != cache:
                continue
            try:
                point = held(program, reading(statement, access), exact=True).missing.first()
                where = "" if point is None else "at " + ", ".join(f"{k}={v}" for k, v in point.items())
            except (NotAffine, Unknown) as error:
                where = str(error)
            if where:
                raise ScheduleError(
                    "(5) block `{block}` reads elements of `{buffer}` that it has not written: {where}",
                    block=writer.name, buffer=target.name, where=where,
                )  # fmt: skip


def _cache_write_bare(func: PrimFunc, target: Buffer, cache: Buffer) -> Result:
    items = _items(func.body.body)
    last = max(k for k, item in enumerate(items) if target in written_buffers(item))
    for item in items[: last + 1]:
        own = {id(n) for s in stores(item) if s.buffer == target for n in walk(s)}
        if any(isinstance(n, Load) and n.buffer == target and id(n) not in own for n in walk(item)):
            raise ScheduleError("(3) `{buffer}` is read before its last writer is done", buffer=target.name)
    copy, loop = _bare_copy(func, cache.name, cache, target)
    filled = [replace_buffer(item, target, cache) for item in items[: last + 1]]
    body = seq([*filled, copy, *items[last + 1 :]])
    result = with_alloc(func.with_body(replace(func.body, body=body)), cache)
    check_concurrent_writers(result, cache, "7")
    return result, loop


def _writes_all(func: PrimFunc, block: Block, buffer: Buffer) -> bool:
    """Whether the stores below `block` surely reach every element of the buffer; unknown is no."""
    program = instances(func)
    try:
        return not_stored(program, program.below(block), buffer, buffer.extents).is_empty()
    except (NotAffine, Unknown):
        return False


@primitive
def set_scope(func: PrimFunc, block: str, buffer_index: int | str, storage_scope: str) -> Result:
    """Move a buffer to another memory scope, all accesses and views with it.

    It is given by its place among what `block` writes, or by the name of one that it reads or
    writes.  Conditions: (1) it is allocated in the function; a parameter is the caller's memory and
    stays in scope ``global``, of which ``global.texture`` is a part; (2) the scope is a name, or
    names joined by dots.
    """
    check_scope(storage_scope, "2")
    found = find_block(func, block)
    if isinstance(buffer_index, int):
        buffer = write_buffer(func, found, buffer_index)
    else:
        buffer = _named_buffer(
            func, found, buffer_index, written=buffer_index in {b.name for b in written_buffers(found)}
        )
    if buffer in func.params and storage_scope not in ("global", "global.texture"):
        raise ScheduleError("(1) `{buffer}` is a parameter, which cannot be in the scope `{scope}`",
                            hint="use cache_read or cache_write", buffer=buffer.name, scope=storage_scope)  # fmt: skip
    for view in views(func, buffer):
        func = replace_buffer(func, view, replace(view, scope=storage_scope))
    return func, None


def _outer_buffer(func: PrimFunc, block: Block, given: int | str, written: bool) -> Buffer:
    """A buffer that the block reads (or writes), and that exists around it.  Raises ScheduleError (1)."""
    buffer = _named_buffer(func, block, given, written)
    if buffer in _own_memory(func, block):
        raise ScheduleError("(1) `{buffer}` is allocated in block `{block}`, and a copy stands outside of it",
                            hint="give a block inside", buffer=buffer.name, block=block.name)  # fmt: skip
    return buffer


def _named_buffer(func: PrimFunc, block: Block, given: int | str, written: bool = False) -> Buffer:
    """A buffer that the block reads (or writes), by its place or its name."""
    if isinstance(given, int):
        return write_buffer(func, block, given) if written else read_buffer(func, block, given)
    touched = written_buffers(block) if written else read_buffers(block)
    for buffer in touched:
        if buffer.name == given:
            return buffer
    known = ", ".join(b.name for b in buffers(func))
    raise ScheduleError(
        "(1) block `{block}` does not {verb} a buffer `{name}`; there are {known}",
        block=block.name, verb="write" if written else "read", name=given, known=known,
    )  # fmt: skip


def read_buffer(func: PrimFunc, block: Block, index: int) -> Buffer:
    """The index-th buffer that a block reads and does not write."""
    written = {s.buffer for s in block_stores(block)} | _own_memory(func, block)
    found = [b for b in read_buffers(block.body) if b not in written]
    return _pick(found, index, block, "reads")


def write_buffer(func: PrimFunc, block: Block, index: int) -> Buffer:
    """The index-th buffer that a block writes."""
    own = _own_memory(func, block)
    return _pick([b for b in dict.fromkeys(s.buffer for s in block_stores(block)) if b not in own], index, block,
                 "writes")  # fmt: skip


def _own_memory(func: PrimFunc, block: Block) -> set[Buffer]:
    """The buffers that exist at or below a block only; what the root block allocates is the function's."""
    inner = {b for n in walk(block.body) if isinstance(n, Block) for b in n.allocs}
    inner |= {n.buffer for n in walk(block.body) if isinstance(n, (Allocate, Declare))}
    return inner if block is func.body else inner.union(block.allocs)


def _pick(found: Sequence[Buffer], index: int, block: Block, verb: str) -> Buffer:
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(found):
        raise ScheduleError(
            "(1) block `{block}` {verb} {count} buffers ({known}), but got index {index!r}",
            block=block.name, verb=verb, count=len(found), known=", ".join(b.name for b in found), index=index,
        )  # fmt: skip
    return found[index]


def is_name(text: str) -> bool:
    """Whether a text can stand for a function in a program."""
    plain = text.isidentifier() and not iskeyword(text) and text not in NAMESPACES
    return plain and normalize("NFKC", text) == text


def check_scope(scope: str, number: str) -> None:
    """Raises ScheduleError (`number`) unless a memory scope is a name, or names joined by dots."""
    if not scope.isascii() or not all(part.isidentifier() for part in scope.split(".")):
        raise ScheduleError("({number}) {scope!r} is no name of a memory scope", number=number, scope=scope)


def cache_buffer(func: PrimFunc, source: Buffer, shape: Sequence[Extent], scope: str) -> tuple[Buffer, str]:
    """A buffer for copies of `source`, and its name, ``<source>_<scope>``."""
    name = fresh(f"{source.name}_{scope.split('.')[0]}", names(func))
    return Buffer(name, tuple(shape), source.dtype, scope), name


def _redirect_reads(node: Stmt, source: Buffer, cache: Buffer) -> Stmt:
    """Reads of the source as reads of the cache; what is assumed of the source stays."""

    def swap(item: Any) -> Any:
        if isinstance(item, Assume):
            return item
        item = rebuild(item, swap)
        return Load(cache, item.indices) if isinstance(item, Load) and item.buffer == source else item

    result: Stmt = swap(node)
    return result


def _copy_nest(func: PrimFunc, name: str, source: Buffer, target: Buffer) -> Stmt:
    """``target[v] = source[v]`` over the whole shape, in a block of its own."""
    iters, loop_vars = fresh_axes(func, name, source.extents)
    point = tuple(i.var for i in iters)
    return loops(loop_vars, Block(name, iters, Store(target, point, Load(source, point))))


def _bare_copy(func: PrimFunc, name: str, source: Buffer, target: Buffer) -> tuple[Stmt, str]:
    """``target[v] = source[v]`` over the whole shape in bare loops, and the name of the outermost.

    Raises ScheduleError (1) for a buffer without dimensions.
    """
    if not source.extents:
        raise ScheduleError("(1) `{buffer}` has no dimensions: its copy would have no loop", buffer=source.name)
    _, loop_vars = fresh_axes(func, name, source.extents)
    point = tuple(v for v, _ in loop_vars)
    return loops(loop_vars, Store(target, point, Load(source, point))), loop_vars[0][0].name


def _items(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.stmts if isinstance(stmt, Seq) else (stmt,)
