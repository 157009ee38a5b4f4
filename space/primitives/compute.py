"""Where a stage is computed: compute_at, reverse_compute_at, and inlining."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir import dtypes
from ...ir.affine.sets import IntSet, NotAffine, Unknown, access_map, points
from ...ir.arith.simplify import bound, simplify
from ...ir.arith.widening import linear_index, narrow_index
from ...ir.context import context_of
from ...ir.dataflow.instances import Statement, instances
from ...ir.expr import (
    TRUE,
    Buffer,
    Expr,
    Extent,
    Load,
    Var,
    all_of,
    as_expr,
    as_index,
    binary,
    conjuncts,
    free_variables,
    let_variables,
    substitute,
)
from ...ir.node import transform
from ...ir.passes.renaming import another
from ...ir.stmt import (
    Block,
    For,
    Iter,
    PrimFunc,
    Stmt,
    Store,
    fresh,
    loads,
    loops,
    names,
    path_to,
    read_buffers,
    seq,
    span_of,
    stores,
)
from ...ir.text import expr_text
from ...ir.verify.init import init_fault
from ...ir.verify.undef import has_undef
from ..errors import ScheduleError
from ..nest import check_once, check_runs_once, check_still_concurrent, updates_itself
from ..placement import (
    check_after,
    check_alone,
    check_below,
    check_final,
    check_in_scope,
    check_no_views,
    check_passing,
    check_scalar,
    check_seen_last,
    check_unconditional,
    check_undef,
    condition_to_be_stored,
    loops_to,
    not_stored,
    readers,
    staying_loops,
    writers,
)
from ..primitive import Result, primitive
from ..regions import Interval, accesses_below, region
from ..tree import (
    block_stores,
    find_block,
    find_loop,
    limit_of,
    loop_bounds,
    loops_above,
    parameters,
    remove_stmt,
    running,
    with_stmt,
)

ROOT, INLINE = "<root>", "<inline>"
"""Places that are no loops, as `sample_compute_location` draws them."""


@primitive
def compute_at(func: PrimFunc, block: str, loop: str) -> Result:
    """Compute a producer where it is needed: its part that one iteration of `loop` reads, before that is read.

    The region is what the consumers read there as they are now, cut with the
    producer's domain.  In place of a loop, ``<root>`` leaves the block where it is, and
    ``<inline>`` is `compute_inline`.  Conditions: (1) the block writes one allocated buffer, at its
    spatial iterators in order, under no condition around it, and has no opaque iterator; (2) it is the only
    writer; (3) something reads the buffer, and every reader is below `loop`; (4) the block is not below
    `loop` already; (5) nothing that it passes writes what it reads; (6) the buffer has no other view;
    (7) a reduction adds each point once; (8) lanes of vectors around may still be so; (9) what the block
    uses is allocated around `loop`.
    """
    producer = find_block(func, block)
    if loop in (ROOT, INLINE):
        return (func, None) if loop == ROOT else compute_inline(func, block)
    target = find_loop(func, loop)
    store = _plain_store(producer)
    buffer = store.buffer
    if buffer in func.params:
        raise ScheduleError("(1) `{buffer}` is a parameter, which must be written whole", buffer=buffer.name)
    moved = list(instances(func).below(producer))
    users = [s for s in readers(func, buffer) if s not in moved]
    check_alone(producer, writers(func, buffer), "2", f"writes `{buffer.name}`")
    if not users:
        raise ScheduleError("(3) nothing reads `{buffer}`, so that no part of it is needed anywhere",
                            hint="`remove_no_op` takes a block away that nobody needs", buffer=buffer.name)  # fmt: skip
    check_below(target, users, "3", "reader")
    check_unconditional(func, producer, "1", target)
    check_passing(func, moved, users, buffer, "5")
    if path_to(target, producer) is not None:
        raise ScheduleError("(4) block `{block}` is below loop `{loop}`", block=block, loop=loop)
    check_no_views(func, buffer, "6")
    around = loops_above(func, producer)
    check_once(producer, around, "7")
    check_in_scope(func, producer, target, "9")
    func = remove_stmt(func, producer)
    target = find_loop(func, loop)
    outer = (*loops_above(func, target), target)
    bounds = loop_bounds(outer, func)
    found = accesses_below(target.body, store.buffer)
    reads = [(a.indices, loop_bounds(own, func)) for a, own in found if not a.is_write]
    box = region(reads, frozenset(bounds), store.buffer.extents, bounds)
    nest = _nest_over(func, producer, around, store, box, bounds).loops()
    result = with_stmt(func, target, replace(target, body=seq([nest, target.body])))
    # Iterations of other concurrent loops write all that they read of the buffer, in copies of their own.
    check_still_concurrent(result, [loop for loop in loops_to(func, target) if loop.kind == "vectorized"], "8")
    return result, None


@primitive
def reverse_compute_at(func: PrimFunc, block: str, loop: str) -> Result:
    """Compute a consumer as soon as its input is there: its part that one iteration of `loop` produces, after that.

    A reduction may be moved as well, so that each iteration adds what it produced; so a reduction
    over blocks ``C[s] = sum_q P[q, s]`` follows the parts that `rfactor` made.
    Conditions: (1) the block reads some buffer at its iterators, each once, and none is opaque; it
    reads it wherever it runs, or all that it could read is stored; (2) every writer of that buffer is below
    `loop`, and comes before the block; (3) all instances that produce one element lie in one
    iteration of `loop`, so the element is final; (4) the block's other inputs are not written below
    `loop`; (5) nothing that it passes writes elements that it reads, or touches what it writes; (6) where the
    block reduces, no loop is part of both its result and its reduction, so that the first point of the
    reduction stays first; (7) the buffer has no other view; (8) what the block adds to what it stores is added once at
    each point; (9) concurrent loops around may still be so; (10) what the block uses is allocated
    around `loop`; (11) which of its points run is a matter of loops inside of the block around `loop`; (12) no
    element is stored again after the block has read it for the last time.
    """
    consumer, target = find_block(func, block), find_loop(func, loop)
    written = {s.buffer for s in stores(target)}
    inputs = [b for b in read_buffers(consumer.body) if b in written]
    if len(inputs) != 1:
        raise ScheduleError("(2) block `{block}` must read one buffer written below `{loop}`, but reads {found}",
                            block=block, loop=loop, found=[b.name for b in inputs])  # fmt: skip
    source = inputs[0]
    load = _plain_load(consumer, source, consumer.iters)
    moved, sources = list(instances(func).below(consumer)), writers(func, source)
    check_below(target, sources, "2", "writer")
    check_after(consumer, moved, sources, "2")
    check_unconditional(func, consumer, "1", target)
    check_passing(func, moved, sources, source, "5", target)
    around = loops_above(func, consumer)
    above = {item.var for item in (*loops_above(func, target), target)}
    shared = [item for item in around if item.var in above]
    reads_always = isinstance(consumer.body, Store) and not any(
        access.guards for s in moved for access in s.reads if access.buffer == source
    )
    if not reads_always:
        _check_all_stored(func, consumer, load, sources, "1")
    in_place = reads_always and _are_stored_beside(func, moved, sources, source, [item.var for item in shared])
    once = bool(consumer.reduce) or updates_itself(consumer)
    once = once or (bool(shared) and not in_place)
    staying = staying_loops(func, moved, target)
    check_final(func, target, source, "3", once, staying)
    check_seen_last(moved, sources, source, "12", [loop.var for loop in (*staying, *(shared if in_place else ()))])
    check_no_views(func, source, "7")
    check_once(consumer, around, "8")
    check_in_scope(func, consumer, target, "10")
    func = remove_stmt(func, consumer)
    target = find_loop(func, loop)
    outer = (*loops_above(func, target), target)
    bounds = loop_bounds(outer, func)
    writes = [(a.indices, loop_bounds(own, func)) for a, own in accesses_below(target.body, source) if a.is_write]
    box = region(writes, frozenset(bounds), source.extents, bounds)
    part = _nest_over(func, consumer, around, load, box, bounds, shared if in_place else ())
    _check_first_point_stays(part)
    part = _only_stored(func, target, part, load, bounds)
    hidden = {item.var for item in loops_to(func, target)} - {item.var for item in outer}
    if not hidden.isdisjoint(free_variables(part.block.predicate)):
        raise ScheduleError("(11) which points of block `{block}` run depends on loops outside of the block around "
                            "`{loop}`: {cond!r}", block=block, loop=loop, cond=part.block.predicate)  # fmt: skip
    result = with_stmt(func, target, replace(target, body=seq([target.body, part.loops()])))
    if part.block.init is not None:
        fault = init_fault(part.block, context_of(result, part.block).around)
        if fault:
            raise ScheduleError("(6) the init of block `{block}` would come too late: {fault}",
                                block=block, fault=fault)  # fmt: skip
    check_still_concurrent(result, loops_to(func, target), "9")
    return result, None


@primitive
def compute_inline(func: PrimFunc, block: str) -> Result:
    """``A[v] = e(v)``, then ``S(A[i])`` -> ``S(e(i))``.

    Conditions: (1) the block writes one allocated buffer, at its spatial iterators in
    order, and has no other iterators; (2) it is the only writer, and is read, one element at a time, and the
    buffer has no other view; (3) no instance is skipped; (4) nothing that it passes writes what it reads;
    (5) what the block uses is allocated around all that reads the buffer; (6) no undef that it stores
    would decide something where it is read.  Reads outside the block's domain do not exist in a valid program.
    """
    producer = find_block(func, block)
    store = _plain_store(producer)
    check_no_views(func, store.buffer, "2")
    if store.buffer in func.params or producer.reduce or producer.init is not None:
        raise ScheduleError("(1) block `{block}` cannot be inlined: it reduces or writes a parameter", block=block)
    moved = list(instances(func).below(producer))
    users = [s for s in readers(func, store.buffer) if s not in moved]
    check_alone(producer, writers(func, store.buffer), "2", f"writes `{store.buffer.name}`")
    if not users:
        raise ScheduleError("(2) nothing reads `{buffer}`", buffer=store.buffer.name)
    if producer.predicate != TRUE:
        raise ScheduleError("(3) block `{block}` skips instances", block=block)
    check_unconditional(func, producer, "3")
    check_passing(func, moved, users, store.buffer, "4")
    check_scalar((a for s in users for a in s.reads if a.buffer == store.buffer), "2")
    for user in users:
        check_in_scope(func, producer, user.stmt, "5")
    bound = sorted(let_variables(store.value), key=lambda v: v.name)
    taken, values = names(func), dict[tuple[Expr, ...], Expr]()

    def expand(node: object) -> object:
        if not isinstance(node, Load) or node.buffer != store.buffer:
            return node
        if node.indices not in values:
            # A variable is bound to one value in a function: that of another element gets another name.
            again = {v: Var(another(v.name, taken), v.dtype) for v in bound} if values else {}
            values[node.indices] = substitute(store.value, {**_point(producer, store, node.indices), **again})
        return values[node.indices]

    result = transform(remove_stmt(func, producer), expand)
    if has_undef(store.value):
        check_undef(result, "6")
    return _without(result, store.buffer), None


@primitive
def reverse_compute_inline(func: PrimFunc, block: str) -> Result:
    """``A[f(v)] = e``, then ``B[i] = g(A[i])`` -> ``B[f(v)] = g(e)``.

    Conditions: (1) the block has no reduction and no opaque iterator, one store, at its spatial iterators in
    order, and reads `A` only there; (2) `A` is allocated and has no other view, its only writer
    is a single store of one element without a reduction that comes before this block, its only
    reader; (3) no instance is skipped; (4) no block that it overtakes writes what it reads, or touches
    what it writes; (5) the writer stores only elements that this block reads; (6) what the block adds to what it
    stores is added once, and the writer stores each element once; (7) what the block uses is allocated around
    the writer; (8) no undef that the writer stores would decide something in this block.
    """
    consumer = find_block(func, block)
    if consumer.reduce or consumer.predicate != TRUE:
        raise ScheduleError("(3) block `{block}` reduces or skips instances", block=block)
    check_unconditional(func, consumer, "3")
    store = _plain_store(consumer)
    sources = [b for b in read_buffers(consumer.body) if b not in func.params]
    if len(sources) != 1:
        raise ScheduleError("(2) block `{block}` must read one allocated buffer", block=block)
    source = sources[0]
    check_no_views(func, source, "2")
    found = writers(func, source)
    if len(found) != 1 or found[0].block is None or found[0].block.reduce:
        raise ScheduleError("(2) `{buffer}` must have one writer, a store without a reduction", buffer=source.name)
    check_alone(consumer, readers(func, source), "2", f"reads `{source.name}`")
    load = _plain_load(consumer, source)
    if load.indices != store.indices:
        raise ScheduleError(
            "(1) block `{block}` reads `{buffer}` elsewhere than it writes", block=block, buffer=source.name
        )
    moved = list(instances(func).below(consumer))
    check_after(consumer, moved, found, "2")
    check_passing(func, moved, found, source, "4")
    check_scalar(found[0].accesses[-1:], "2")
    check_in_scope(func, consumer, found[0].stmt, "7")
    if updates_itself(consumer):
        for each in (consumer, found[0].block):
            check_runs_once(each, loops_above(func, each), "6")
        _check_stored_once(found[0])
    _check_all_computed(found[0], moved[-1], source)
    if any(access.guards for access in moved[-1].reads if access.buffer == source):
        _check_all_stored(func, consumer, load, found, "5")

    def expand(node: object) -> object:
        if isinstance(node, Store) and node.buffer == source:
            value = transform(store.value, lambda n: node.value if isinstance(n, Load) and n.buffer == source else n)
            return Store(store.buffer, node.indices, substitute(value, _point(consumer, store, node.indices)))
        return node

    result = transform(remove_stmt(func, consumer), expand)
    if any(has_undef(s.stmt.value) for s in found if isinstance(s.stmt, Store)):
        check_undef(result, "8")
    return _without(result, source), None


def _without(func: PrimFunc, buffer: Buffer) -> PrimFunc:
    """The function without the allocation of a buffer that nothing uses."""

    def drop(node: object) -> object:
        if isinstance(node, Block) and buffer in node.allocs:
            return replace(node, allocs=tuple(b for b in node.allocs if b != buffer))
        return node

    result: PrimFunc = transform(func, drop)
    return result


def _check_all_computed(writer: Statement, consumer: Statement, buffer: Buffer) -> None:
    """Condition (5) of `reverse_compute_inline`: what is written is what the consumer computes on."""
    assert writer.write is not None
    load = next(a for a in consumer.reads if a.buffer == buffer)
    try:
        element = access_map(writer.domain, [*writer.write.owners, *writer.write.indices])
        if not consumer.exact:
            raise Unknown(f"where block {consumer.label} runs is decided by memory")
        taken = element.preimage(access_map(consumer.domain, [*load.owners, *load.indices]).image())
        point = element.domain.subtract(taken).first()
    except (NotAffine, Unknown) as error:
        raise ScheduleError("(5) which elements are stored is unknown: {error}", error=str(error)) from None
    if point is not None:
        raise ScheduleError(
            "(5) at {point} block {writer} stores an element of `{buffer}` that block {consumer} does not read",
            point=", ".join(f"{k}={v}" for k, v in point.items()), writer=writer.label, buffer=buffer.name,
            consumer=consumer.label,
        )  # fmt: skip


def _check_stored_once(writer: Statement) -> None:
    """Condition (6) of `reverse_compute_inline`: no element of the buffer is stored at two points."""
    assert writer.write is not None
    try:
        once = access_map(writer.domain, [*writer.write.owners, *writer.write.indices]).is_injective()
    except (NotAffine, Unknown) as error:
        raise ScheduleError("(6) which elements are stored twice is unknown: {error}", error=str(error)) from None
    if not once:
        raise ScheduleError("(6) block {writer} may store an element of `{buffer}` twice",
                            writer=writer.label, buffer=writer.write.buffer.name)  # fmt: skip


def _plain_store(block: Block) -> Store:
    """The single store of a block, at its spatial iterators in some order, one for each dimension."""
    if len(block_stores(block)) != 1 or not isinstance(block.body, Store):
        raise ScheduleError("(1) block `{block}` must be one store", block=block.name)
    _check_plain(block, block.body.indices, block.spatial)
    return block.body


def _plain_load(block: Block, buffer: Buffer, iters: Sequence[Iter] | None = None) -> Load:
    """The one load of a buffer, at the block's spatial iterators or at `iters`, one for each dimension."""
    parts = [part for part in (block.init, block.body) if part is not None]
    found = list(dict.fromkeys(load for part in parts for load in loads(part) if load.buffer == buffer))
    if len(found) != 1:
        raise ScheduleError("(1) block `{block}` must read `{buffer}` once", block=block.name, buffer=buffer.name)
    _check_plain(block, found[0].indices, block.spatial if iters is None else iters)
    return found[0]


def _check_plain(block: Block, indices: Sequence[Expr], iters: Sequence[Iter]) -> None:
    """Check that each iterator is an index of the store; an iterator of extent 1 may be missing, with index 0.

    Points of opaque iterators have an order, which a moved block would not keep.
    """
    for item in block.iters:
        if item.kind == "opaque":
            raise ScheduleError("(1) block `{block}` has the opaque iterator `{iter}`",
                                block=block.name, iter=item.var.name)  # fmt: skip
    used = [i for i in indices if isinstance(i, Var)]
    left = {i.var for i in iters} - set(used)
    single = {i.var for i in iters if i.limit == 1}
    constants = [i for i in indices if not isinstance(i, Var)]
    plain = len(set(used)) == len(used) and set(used) <= {i.var for i in iters}
    if not plain or not left <= single or any(i != as_expr(0, i) for i in constants):
        raise ScheduleError(
            "(1) block `{block}` must access its buffer at each of its iterators once",
            hint="transform the layout after the block has been moved",
            block=block.name,
        )


def _point(block: Block, store: Store, indices: Sequence[Expr]) -> dict[Var, Expr]:
    """The iterators' values at which a block's plain store writes an element; 0 where an iterator is no index."""
    found: dict[Var, Expr] = {i.var: as_expr(0, i.var) for i in block.iters}
    return found | {i: index for i, index in zip(store.indices, indices, strict=True) if isinstance(i, Var)}


def _check_all_stored(func: PrimFunc, consumer: Block, load: Load, sources: Sequence[Statement], number: str) -> None:
    """Raises ScheduleError unless all that a block could read is stored, though it may run where it does not read."""
    extents = {i.var: i.limit for i in consumer.iters}
    reach = [extents[index] if isinstance(index, Var) else 1 for index in load.indices]
    try:
        left = not_stored(instances(func), sources, load.buffer, reach).first()
        where = "" if left is None else "at " + ", ".join(f"{k}={v}" for k, v in left.items())
    except (NotAffine, Unknown) as error:
        where = str(error)
    if where:
        raise ScheduleError(
            "({number}) block `{block}` reads `{buffer}` under a condition, and may run where nothing is stored: "
            "{where}",
            number=number, block=consumer.name, buffer=load.buffer.name, where=where,
        )  # fmt: skip


def _are_stored_beside(
    func: PrimFunc, moved: Sequence[Statement], sources: Sequence[Statement], source: Buffer, shared: Sequence[Var]
) -> bool:
    """Whether all that is read in one iteration of the `shared` loops is stored in the same one."""
    if not shared:
        return True
    fixed = [*instances(func).parameters, *shared]
    reads = [(s, a) for s in moved for a in s.reads if a.buffer == source]
    writes = [(s, s.write) for s in sources if s.write is not None]
    try:
        needed, stored = (
            functools.reduce(IntSet.union, [points(s.domain).image([*fixed, *a.indices]) for s, a in found])
            for found in (reads, writes)
        )
        return needed.is_subset(stored)
    except (NotAffine, Unknown):
        return False


@dataclass(frozen=True)
class _Part:
    """A block over part of its domain, with the loops around it."""

    variables: tuple[tuple[Var, Extent], ...]
    block: Block

    def loops(self) -> Stmt:
        return loops(self.variables, self.block)


def _check_first_point_stays(part: _Part) -> None:
    """Condition (6) of `reverse_compute_at`.

    Loops run upwards and a binding here is a sum of loops with positive factors, so with the loops of the
    result fixed the reduction starts at its first point.
    """
    block, ranges = part.block, {v: span_of(n) for v, n in part.variables}
    spatial = {v for i in block.spatial for v in free_variables(i.binding)}
    for item in block.reduce:
        terms, _ = linear_index(item.binding, ranges)
        plain = all(isinstance(term, Var) and factor > 0 for term, factor in terms.items())
        if not plain or not spatial.isdisjoint(free_variables(item.binding)):
            raise ScheduleError(
                "(6) block `{block}` would reduce along `{binding}`, whose first point may come later",
                block=block.name, binding=expr_text(item.binding),
            )  # fmt: skip


def _only_stored(func: PrimFunc, target: For, part: _Part, load: Load, bounds: dict[Var, tuple[int, int]]) -> _Part:
    """The part without the elements that the iteration of `target` does not store."""
    bindings = {i.var: i.binding for i in part.block.iters}
    element = [substitute(i, bindings) for i in load.indices]
    needed = condition_to_be_stored(func, target, load.buffer, part.variables, element, part.block.predicate)
    ranges = {**bounds, **{v: span_of(n) for v, n in part.variables}}
    predicate = binary("and", part.block.predicate, simplify(needed, ranges))
    return replace(part, block=replace(part.block, predicate=predicate))


def _nest_over(
    func: PrimFunc,
    block: Block,
    around: tuple[For, ...],
    access: Store | Load,
    box: Sequence[Interval],
    bounds: dict[Var, tuple[int, int]],
    shared: Sequence[For] = (),
) -> _Part:
    """The block over `box` of the accessed buffer, with conditions where the box may leave what ran in `around`.

    Of `shared` loops, which are around both places, each iteration keeps what ran in it.
    """
    taken = names(func) | names(block) - {loop.var.name for loop in around}  # which the new loops may be called like
    bindings: dict[Var, Expr] = {}
    conditions: list[Expr] = []
    new_loops: list[tuple[Var, Extent]] = []
    ranges = dict(bounds)
    extents = {i.var: i.limit for i in block.iters}

    def loop_over(iterator: Var, lo: Expr, extent: Extent) -> None:
        narrow = isinstance(extent, int) and extent <= dtypes.int_range(iterator.dtype)[1]
        var = Var(fresh(f"{block.name}_ax{len(new_loops)}", taken), iterator.dtype if narrow else dtypes.INDEX)
        taken.add(var.name)
        new_loops.append((var, extent))
        ranges[var] = (0, bound(extent, bounds)[1] - 1) if isinstance(extent, Expr) else span_of(extent)
        value = simplify(as_index(lo) + as_index(var), ranges)
        whole = lo == as_expr(0) and extent == extents[iterator]
        for cond in () if whole else (binary(">=", value, 0), binary("<", value, extents[iterator])):
            left = simplify(cond, ranges)
            if left != TRUE:
                conditions.append(left)
        bindings[iterator] = narrow_index(value, iterator.dtype, ranges)

    accessed = {i for i in access.indices if isinstance(i, Var)}
    for item in block.spatial:
        if item.var not in accessed:
            loop_over(item.var, as_expr(0), item.limit)
    for iterator, part in zip(access.indices, box, strict=True):
        if isinstance(iterator, Var):
            loop_over(iterator, part.lo, part.extent)
    for item in block.reduce:
        if item.var not in accessed:
            loop_over(item.var, as_expr(0), item.limit)
    iters = tuple(replace(i, binding=bindings[i.var]) for i in block.iters)
    predicate = all_of([*conditions, *_rebound_predicate(func, block, around, bindings, ranges, shared)])
    return _Part(tuple(new_loops), replace(block, iters=iters, predicate=predicate))


def _rebound_predicate(
    func: PrimFunc,
    block: Block,
    around: tuple[For, ...],
    bindings: dict[Var, Expr],
    ranges: dict[Var, tuple[int, int]],
    shared: Sequence[For],
) -> list[Expr]:
    """Which points of the iterators run, in terms of the new loops.

    Where each iterator is a loop of its own extent these are the block's conditions, else
    the image of the old loops, as an exact set.
    """
    extents = {loop.var: limit_of(func, loop) for loop in around}
    plain = {i.binding: bindings[i.var] for i in block.iters if isinstance(i.binding, Var)}
    whole = all(isinstance(i.binding, Var) and extents.get(i.binding) == i.limit for i in block.iters)
    apart = plain.keys().isdisjoint(loop.var for loop in shared)
    if not whole or not apart or len(plain) < len(block.iters) or not free_variables(block.predicate) <= set(plain):
        return _points_that_run(func, block, around, bindings, ranges, shared)
    moved = {k: v for k, v in plain.items() if isinstance(k, Var)}
    found = [simplify(substitute(c, moved), ranges) for c in conjuncts(block.predicate)]
    return [c for c in found if c != TRUE]


def _points_that_run(
    func: PrimFunc,
    block: Block,
    around: tuple[For, ...],
    bindings: dict[Var, Expr],
    ranges: dict[Var, tuple[int, int]],
    shared: Sequence[For],
) -> list[Expr]:
    fixed = (*parameters(func), *(loop.var for loop in shared))
    every = points(running(func, shared, (), [(i.var, i.limit) for i in block.iters]))
    try:
        old = points(running(func, around, conjuncts(block.predicate)))
        run = old.image([*fixed, *(i.binding for i in block.iters)], every.variables).condition(every)
    except (NotAffine, Unknown) as error:
        raise ScheduleError("it is unknown which points of block `{block}` run: {error}", block=block.name,
                            error=str(error)) from None  # fmt: skip
    return [c for c in (simplify(substitute(c, bindings), ranges) for c in conjuncts(run)) if c != TRUE]
