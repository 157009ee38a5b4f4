"""Programs whose parameters have their dimensions in another order, and that go along them in that order.

    for n, c, h, w: y[n, c, h, w] = x[n, c, h, w]     ->     for n, h, w, c: y[n, h, w, c] = x[n, h, w, c]

Extents need not be known, since no element comes to stand beside itself: dimensions of parameters and of temporaries,
iterators and loops are named in another order, and nothing else is another one.  `models.laid_out` does more, with
primitives that prove each step, for layouts in numbers.

1. a block that stores along its iterators goes along them in the order of what it stores, sums last as they were;
2. a temporary lies as the parameter that it is read from, or else in the order in which its reader goes;
3. loops that stand around one block alone, each for an iterator of it, follow its iterators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.caches import cached
from ...ir.expr import Buffer, Load, Var, free_variables
from ...ir.node import changed, rebuild, transform, walk
from ...ir.stmt import Block, For, PrimFunc, Stmt, Store
from ...space.tree import block_stores, leaf_blocks

Order = tuple[int, ...]


@cached(4096)
def reordered(func: PrimFunc, orders: tuple[Order | None, ...]) -> PrimFunc:
    """The program whose parameters have their dimensions in these orders, None for those that stay."""
    known = {b.name: order for b, order in zip(func.buffers, orders, strict=True) if order is not None}
    if not known:
        return func
    turns: dict[str, list[Var]] = {}
    for block in reversed(leaf_blocks(func.body)):
        iterators = _iterators(block, known)
        turns[block.name] = iterators
        _order_temporaries(func, block, iterators, known)

    def permuted(node: object) -> object:
        if isinstance(node, Load | Store) and node.buffer.name in known:
            return changed(node, indices=tuple(node.indices[dim] for dim in known[node.buffer.name]))
        if isinstance(node, Buffer) and node.name in known:
            return replace(node, extents=tuple(node.extents[dim] for dim in known[node.name]))
        return node

    made: PrimFunc = transform(func, permuted)
    body = _in_turn(made.body, turns)
    assert isinstance(body, Block)
    return made.with_body(body)


def _iterators(block: Block, known: dict[str, Order]) -> list[Var]:
    """The iterators of a block in the order in which what it stores has them."""
    own = [item.var for item in block.iters]
    stores = block_stores(block)
    if len(stores) != 1 or stores[0].buffer.name not in known:
        return own
    indices = stores[0].indices
    stored = [index for dim in known[stores[0].buffer.name] if isinstance(index := indices[dim], Var)]
    if len(set(stored)) < len(indices):
        return own
    spatial = [item.var for item in block.spatial]
    along = [var for var in stored if var in spatial]
    return [v for v in spatial if v not in along] + along + [v for v in own if v not in spatial]


def _order_temporaries(func: PrimFunc, block: Block, iterators: Sequence[Var], known: dict[str, Order]) -> None:
    """Add the orders of the temporaries that a block reads."""
    for load in (n for n in walk(block.body) if isinstance(n, Load)):
        if load.buffer.name in known or load.buffer in func.params or not load.indices:
            continue
        order = _as_read_from(func, load.buffer, known)
        if order is None and all(index in iterators for index in load.indices):
            at = [iterators.index(index) for index in load.indices if isinstance(index, Var)]
            order = tuple(sorted(range(len(at)), key=at.__getitem__))
        if order is not None and order != tuple(range(len(order))):
            known[load.buffer.name] = order


def _as_read_from(func: PrimFunc, buffer: Buffer, known: dict[str, Order]) -> Order | None:
    """The order of the parameter from which a block fills a temporary, element by element as borders are."""
    for block in leaf_blocks(func.body):
        stores = block_stores(block)
        if len(stores) != 1 or stores[0].buffer != buffer or block.reduce:
            continue
        for load in (n for n in walk(block.body) if isinstance(n, Load) and n.buffer.name in known):
            pairs = list(zip(stores[0].indices, load.indices, strict=False))
            alike = all(isinstance(stored, Var) and free_variables(read) == {stored} for stored, read in pairs)
            if len(load.indices) == buffer.rank and alike:
                return known[load.buffer.name]
    return None


def _in_turn(stmt: Stmt, turns: dict[str, list[Var]]) -> Stmt:
    """A statement in which blocks have their iterators in turn, and so have the loops around them."""
    chain: list[For] = []
    inner = stmt
    while isinstance(inner, For):
        chain.append(inner)
        inner = inner.body
    if not chain or not isinstance(inner, Block) or inner.name not in turns:
        found: Stmt = rebuild(stmt, lambda child: _in_turn(child, turns) if isinstance(child, Stmt) else child)
        return found
    by_var = {item.var: item for item in inner.iters}
    iters = [by_var[var] for var in turns[inner.name]]
    loops = {loop.var: loop for loop in chain}
    order = [loops.get(item.binding) for item in iters]  # type: ignore[call-overload]
    body: Stmt = replace(inner, iters=tuple(iters))
    if len(set(order)) < len(chain) or None in order or not all(loop.kind == "serial" for loop in chain):
        order = list(chain)
    for loop in reversed(order):
        assert loop is not None
        body = replace(loop, body=body)
    return body
