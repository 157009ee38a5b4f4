"""Where a stage is computed: compute_at, reverse_compute_at, and inlining."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.affine.guard import NotAffine, Unknown
from ...ir.affine.sets import Domain, counterexample
from ...ir.arith.simplify import simplify
from ...ir.expr import TRUE, Buffer, Expr, Load, Var, all_of, as_expr, binary, conjuncts, substitute
from ...ir.node import transform
from ...ir.stmt import Block, For, PrimFunc, Stmt, Store, fresh, loops, names, read_buffers, seq
from ..errors import ScheduleError
from ..primitive import Result, primitive
from ..regions import Interval, accesses_below, region
from ..tree import (
    block_stores,
    consumers,
    extent_of,
    find_block,
    find_loop,
    free_variables,
    leaf_blocks,
    loop_bounds,
    loops_above,
    path_to,
    producers,
    reads,
    remove_stmt,
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
    spatial iterators in order; (2) it is the only writer; (3) every reader is below
    `loop`; (4) the block is not below `loop` already; (5) nothing after it writes what it reads.
    """
    producer = find_block(func, block)
    if loop in (ROOT, INLINE):
        return (func, None) if loop == ROOT else compute_inline(func, block)
    target = find_loop(func, loop)
    store = _plain_store(producer)
    if store.buffer in func.params:
        raise ScheduleError("(1) `{buffer}` is a parameter, which must be written whole", buffer=store.buffer.name)
    if producers(func, store.buffer) != (producer,):
        raise ScheduleError("(2) `{buffer}` has other writers", buffer=store.buffer.name)
    _check_below(target, consumers(func, store.buffer), "(3) reader")
    _check_inputs_stay(func, producer, "(5)")
    if path_to(target, producer) is not None:
        raise ScheduleError("(4) block `{block}` is below loop `{loop}`", block=block, loop=loop)
    func = remove_stmt(func, producer)
    target = find_loop(func, loop)
    outer = (*loops_above(func, target), target)
    bounds = loop_bounds(outer)
    reads = [a for a in accesses_below(target.body, store.buffer) if not a.is_write]
    box = region([(a.indices, loop_bounds(a.loops)) for a in reads], frozenset(bounds), store.buffer.shape, bounds)
    nest = _nest_over(func, producer, store, box, bounds)
    return with_stmt(func, target, replace(target, body=seq([nest, target.body]))), None


@primitive
def reverse_compute_at(func: PrimFunc, block: str, loop: str) -> Result:
    """Compute a consumer as soon as its input is there: its part that one iteration of `loop` produces, after that.

    Conditions: (1) the block reads some buffer at its spatial iterators in order and has
    no reduction; (2) every writer of that buffer is below `loop`; (3) all instances
    that produce one element lie in one iteration of `loop`, so the element is final;
    (4) the block's other inputs are not written below `loop`; (5) no block that it
    overtakes writes what it reads, or touches what it writes.
    """
    consumer, target = find_block(func, block), find_loop(func, loop)
    if consumer.reduce:
        raise ScheduleError("(1) block `{block}` has a reduction", block=block)
    written = {s.buffer for s in _all_stores(target)}
    inputs = [b for b in read_buffers(consumer.body) if b in written]
    if len(inputs) != 1:
        raise ScheduleError("(2) block `{block}` must read one buffer written below `{loop}`, but reads {found}",
                            block=block, loop=loop, found=[b.name for b in inputs])  # fmt: skip
    load = _plain_load(consumer, inputs[0])
    _check_below(target, producers(func, inputs[0]), "(2) writer")
    _check_overtaken(func, consumer, producers(func, inputs[0])[-1], "(5)")
    func = remove_stmt(func, consumer)
    target = find_loop(func, loop)
    outer = (*loops_above(func, target), target)
    bounds = loop_bounds(outer)
    _check_final(target, inputs[0], bounds)
    writes = [a for a in accesses_below(target.body, inputs[0]) if a.is_write]
    box = region([(a.indices, loop_bounds(a.loops)) for a in writes], frozenset(bounds), inputs[0].shape, bounds)
    nest = _nest_over(func, consumer, load, box, bounds)
    return with_stmt(func, target, replace(target, body=seq([target.body, nest]))), None


@primitive
def compute_inline(func: PrimFunc, block: str) -> Result:
    """``A[v] = e(v)``, then ``S(A[i])`` -> ``S(e(i))``.

    Conditions: (1) the block writes one allocated buffer, at its spatial iterators in
    order, and has no reduction; (2) it is the only writer, and is read; (3) no instance
    is skipped; (4) nothing after it writes what it reads.  Reads outside the block's domain
    do not exist in a valid program.
    """
    producer = find_block(func, block)
    store = _plain_store(producer)
    if store.buffer in func.params or producer.reduce or producer.init is not None:
        raise ScheduleError("(1) block `{block}` cannot be inlined: it reduces or writes a parameter", block=block)
    readers = consumers(func, store.buffer)
    if producers(func, store.buffer) != (producer,) or not readers:
        raise ScheduleError("(2) `{buffer}` must have one writer and some reader", buffer=store.buffer.name)
    if producer.predicate != TRUE:
        raise ScheduleError("(3) block `{block}` skips instances", block=block)
    _check_inputs_stay(func, producer, "(4)")
    iters = [_var(i) for i in store.indices]

    def expand(node: object) -> object:
        if isinstance(node, Load) and node.buffer == store.buffer:
            return substitute(store.value, dict(zip(iters, node.indices, strict=True)))
        return node

    func = remove_stmt(func, producer)
    func = transform(func, expand)
    allocs = tuple(b for b in func.body.allocs if b != store.buffer)
    return func.with_body(replace(func.body, allocs=allocs)), None


@primitive
def reverse_compute_inline(func: PrimFunc, block: str) -> Result:
    """``A[f(v)] = e``, then ``B[i] = g(A[i])`` -> ``B[f(v)] = g(e)``.

    Conditions: (1) the block has no reduction, one store, at its spatial iterators in
    order, and reads `A` only there; (2) `A` is allocated, its only writer is a single store
    without a reduction, and this block is its only reader; (3) no instance is skipped; (4) no
    block that it overtakes writes what it reads, or touches what it writes; (5) the writer
    stores only elements that this block reads.
    """
    consumer = find_block(func, block)
    if consumer.reduce or consumer.predicate != TRUE:
        raise ScheduleError("(3) block `{block}` reduces or skips instances", block=block)
    store = _plain_store(consumer)
    sources = [b for b in read_buffers(consumer.body) if b not in func.params]
    if len(sources) != 1 or consumers(func, sources[0]) != (consumer,):
        raise ScheduleError("(2) block `{block}` must be the only reader of one allocated buffer", block=block)
    source = sources[0]
    if _plain_load(consumer, source).indices != store.indices:
        raise ScheduleError(
            "(1) block `{block}` reads `{buffer}` elsewhere than it writes", block=block, buffer=source.name
        )
    writers = producers(func, source)
    if len(writers) != 1 or not isinstance(writers[0].body, Store) or writers[0].init is not None:
        raise ScheduleError("(2) `{buffer}` must have one writer, a store without a reduction", buffer=source.name)
    if reads(writers[0].body, source):
        raise ScheduleError("(2) the writer of `{buffer}` also reads it", buffer=source.name)
    _check_overtaken(func, consumer, writers[0], "(4)")
    _check_taken(func, writers[0], consumer, store.indices)
    iters = [_var(i) for i in store.indices]

    def expand(node: object) -> object:
        if isinstance(node, Store) and node.buffer == source:
            value = transform(store.value, lambda n: node.value if isinstance(n, Load) and n.buffer == source else n)
            return Store(store.buffer, node.indices, substitute(value, dict(zip(iters, node.indices, strict=True))))
        return node

    func = remove_stmt(func, consumer)
    func = transform(func, expand)
    allocs = tuple(b for b in func.body.allocs if b != source)
    return func.with_body(replace(func.body, allocs=allocs)), None


def _check_inputs_stay(func: PrimFunc, producer: Block, number: str) -> None:
    """The producer may be computed later: nothing after it changes its inputs."""
    inputs = set(read_buffers(producer.body))
    order = leaf_blocks(func.body)
    for later in order[order.index(producer) + 1 :]:
        changed = inputs & {s.buffer for s in block_stores(later)}
        if changed:
            raise ScheduleError(
                "{number} `{buffer}`, which block `{block}` reads, is written by block `{later}` after it",
                number=number, buffer=min(b.name for b in changed), block=producer.name, later=later.name,
            )  # fmt: skip


def _check_taken(func: PrimFunc, writer: Block, consumer: Block, axes: Sequence[Expr]) -> None:
    """Every element that `writer` stores is one that an instance of `consumer` reads at its iterators `axes`."""
    extents = {i.var: i.extent for i in consumer.iters}
    bindings = {i.var: i.binding for i in writer.iters}
    assert isinstance(writer.body, Store)
    indices = [substitute(i, bindings) for i in writer.body.indices]
    inside = all_of([binary("<", i, extents[_var(axis)]) for i, axis in zip(indices, axes, strict=True)])
    loops = tuple((loop.var, extent_of(loop)) for loop in loops_above(func, writer))
    try:
        point = counterexample(Domain(loops, tuple(conjuncts(writer.predicate))), inside)
    except (NotAffine, Unknown) as error:
        raise ScheduleError("(5) it is unknown which elements `{block}` stores: {error}", block=writer.name,
                            error=str(error)) from None  # fmt: skip
    if point is not None:
        raise ScheduleError(
            "(5) at {point} block `{writer}` stores an element that block `{block}` does not read",
            point=", ".join(f"{k}={v}" for k, v in point.items()), writer=writer.name, block=consumer.name,
        )  # fmt: skip


def _check_overtaken(func: PrimFunc, consumer: Block, writer: Block, number: str) -> None:
    """The consumer may be computed right after `writer`: the blocks in between neither feed it nor see its result."""
    order = leaf_blocks(func.body)
    result = {s.buffer for s in block_stores(consumer)}
    inputs = set(read_buffers(consumer.body))
    for passed in order[order.index(writer) + 1 : order.index(consumer)]:
        written = {s.buffer for s in block_stores(passed)}
        met = (written & (inputs | result)) | (set(read_buffers(passed.body)) & result)
        if met:
            raise ScheduleError(
                "{number} block `{block}` cannot overtake block `{passed}`: both use `{buffer}`",
                number=number, block=consumer.name, passed=passed.name, buffer=min(b.name for b in met),
            )  # fmt: skip


def _plain_store(block: Block) -> Store:
    """The single store of a block, at its spatial iterators in some order, one for each dimension."""
    stores = block_stores(block)
    if len(stores) != 1 or not isinstance(block.body, Store):
        raise ScheduleError("(1) block `{block}` must be one store", block=block.name)
    _check_plain(block, stores[0].indices)
    return stores[0]


def _plain_load(block: Block, buffer: Buffer) -> Load:
    from ...ir.stmt import loads

    found = list(dict.fromkeys(load for load in loads(block.body) if load.buffer == buffer))
    if len(found) != 1:
        raise ScheduleError("(1) block `{block}` must read `{buffer}` once", block=block.name, buffer=buffer.name)
    _check_plain(block, found[0].indices)
    return found[0]


def _check_plain(block: Block, indices: Sequence[Expr]) -> None:
    spatial = [i.var for i in block.spatial]
    used = [i for i in indices if isinstance(i, Var)]
    if len(set(used)) != len(indices) or set(used) != set(spatial):
        raise ScheduleError(
            "(1) block `{block}` must access `its buffer` at each of its spatial iterators once",
            hint="transform the layout after the block has been moved",
            block=block.name,
        )


def _var(expr: Expr) -> Var:
    assert isinstance(expr, Var)
    return expr


def _all_stores(stmt: Stmt) -> list[Store]:
    from ...ir.stmt import stores

    return list(stores(stmt))


def _check_below(target: For, found: Sequence[Block], what: str) -> None:
    below = set(map(id, leaf_blocks(target.body)))
    for block in found:
        if id(block) not in below:
            raise ScheduleError(
                "{what} `{block}` is not below loop `{loop}`", what=what, block=block.name, loop=target.var.name
            )


def _check_final(target: For, buffer: Buffer, bounds: dict[Var, tuple[int, int]]) -> None:
    """Condition (3) of `reverse_compute_at`: no loop outside carries a part of the reduction."""
    for block in producers_below(target, buffer):
        for item in block.reduce:
            carried = free_variables(item.binding) & set(bounds)
            if carried:
                raise ScheduleError(
                    "(3) `{buffer}` is not final in one iteration of `{loop}`: `{iter}` also runs over {outer}",
                    buffer=buffer.name, loop=target.var.name, iter=item.var.name,
                    outer=", ".join(sorted(v.name for v in carried)),
                )  # fmt: skip


def producers_below(stmt: Stmt, buffer: Buffer) -> tuple[Block, ...]:
    return tuple(b for b in leaf_blocks(stmt) if any(s.buffer == buffer for s in block_stores(b)))


def _nest_over(
    func: PrimFunc, block: Block, access: Store | Load, box: Sequence[Interval], bounds: dict[Var, tuple[int, int]]
) -> Stmt:
    """The block over `box` of the accessed buffer, with conditions where the box may leave the domain."""
    taken = names(func) | {block.name}
    bindings: dict[Var, Expr] = {}
    conditions: list[Expr] = []
    new_loops: list[tuple[Var, int]] = []
    ranges = dict(bounds)
    extents = {i.var: i.extent for i in block.iters}

    def loop_over(iterator: Var, lo: Expr, extent: int) -> None:
        var = Var(fresh(f"{block.name}_ax{len(new_loops)}", taken))
        taken.add(var.name)
        new_loops.append((var, extent))
        ranges[var] = (0, extent - 1)
        bindings[iterator] = simplify(lo + var, ranges)
        for cond in (binary(">=", bindings[iterator], 0), binary("<", bindings[iterator], extents[iterator])):
            left = simplify(cond, ranges)
            if left != TRUE:
                conditions.append(left)

    for iterator, part in zip(access.indices, box, strict=True):
        loop_over(_var(iterator), part.lo, part.extent)
    for item in block.reduce:
        loop_over(item.var, as_expr(0), item.extent)
    iters = tuple(replace(i, binding=bindings[i.var]) for i in block.iters)
    predicate = all_of([*conditions, *_rebound_predicate(func, block, bindings, ranges)])
    return loops(new_loops, replace(block, iters=iters, predicate=predicate))


def _rebound_predicate(
    func: PrimFunc, block: Block, bindings: dict[Var, Expr], ranges: dict[Var, tuple[int, int]]
) -> list[Expr]:
    """The block's own conditions in terms of its new loops; only those over plainly bound loops can move."""
    if block.predicate == TRUE:
        return []
    plain = {i.binding: bindings[i.var] for i in block.iters if isinstance(i.binding, Var)}
    result = []
    for cond in conjuncts(block.predicate):
        if not free_variables(cond) <= set(plain):
            raise ScheduleError("block `{block}` skips instances by a condition over split loops", block=block.name)
        result.append(simplify(substitute(cond, {k: v for k, v in plain.items() if isinstance(k, Var)}), ranges))
    return [c for c in result if c != TRUE]
