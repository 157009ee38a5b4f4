"""An intermediate lies where the result lies that is made of it element by element.

::

    alloc e[n]:  { e[k] = ..;  S(e);  for k in n: y[b + k] = f(e[k]) }
        ->       { y[b + k] = ..;  S(y);  for k in n: y[b + k] = f(y[b + k]) }

One buffer less passes through the caches, and memory that the result takes anyway is fetched once (TVM's StorageRewrite
shares memory of equal size likewise).  Of the statements that follow one another in the allocation's body let L be the
last one that has e.  The program computes the same, since

1. L does not store e, and loads it only for stores of y: at the index of the store less a base b, which only loops
   around the allocation move;
2. nothing else in the body has y, nor does L load it;
3. L stores each of ``y[b .. b + n - 1]`` exactly once: no value of e is lost before it is read, no other y is touched;
4. concurrent iterations around have other elements of y.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...ir import dtypes
from ...ir.arith.linear import Linear, UndefTerm, add, build, linear_form
from ...ir.expr import Binary, Buffer, Const, Expr, Load, Ramp, Var, as_int, conjuncts, reads_memory
from ...ir.node import rebuild, transform, walk
from ...ir.stmt import Allocate, For, If, Seq, Stmt, Store, walk_stmts
from .compact import CONCURRENT

MOST_ELEMENTS = 1 << 18
"""Elements of an intermediate; they are enumerated."""
_COMPARED = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal}


class _Site(NamedTuple):
    """A store with the loops and conditions around it, outermost first; a condition holds or does not."""

    store: Store
    loops: tuple[For, ...]
    conditions: tuple[tuple[Expr, bool], ...]


class _NotSeen(Exception):
    """A statement has something that this pass does not understand; it changes nothing then."""


def rewrite_storage(stmt: Stmt) -> Stmt:
    """The statement, over flat buffers, with each intermediate in the memory of a result where that is proven."""
    return _visit(stmt, ())


def _visit(stmt: Stmt, around: tuple[For, ...]) -> Stmt:
    inside = (*around, stmt) if isinstance(stmt, For) else around
    result: Stmt = rebuild(stmt, lambda child: _visit(child, inside) if isinstance(child, Stmt) else child)
    if isinstance(result, Allocate) and result.buffer.scope == "global" and result.buffer.size <= MOST_ELEMENTS:
        try:
            return _rewritten(result, around)
        except (_NotSeen, UndefTerm):
            return result
    return result


def _rewritten(alloc: Allocate, around: Sequence[For]) -> Stmt:
    """The body with the buffer in the memory of a result, or the allocation as it is."""
    buffer, items = alloc.buffer, list(_in_sequence(alloc.body))
    own = {n.buffer.name for n in walk_stmts(alloc.body) if isinstance(n, Allocate)}
    place = max((number for number, item in enumerate(items) if _has(item, buffer)), default=None)
    if place is None:
        return alloc
    last, others = items[place], items[:place] + items[place + 1 :]
    sites = list(_sites(last, (), ()))
    reading = [site for site in sites if _loads(site.store, buffer)]
    results = {site.store.buffer for site in reading}
    if len(results) != 1 or any(site.store.buffer == buffer for site in sites):
        return alloc
    (result,) = results
    if result.dtype != buffer.dtype or result.scope != "global" or result.name in own or result.data:
        return alloc
    if any(_has(item, result) for item in others) or any(_loads(s.store, result) for s in sites):
        return alloc
    base = _base(reading, buffer)
    stored = [site for site in sites if site.store.buffer == result]
    if base is None or not _covers(stored, base, buffer.size) or not _apart(base, buffer.size, around):
        return alloc
    return _moved(alloc.body, buffer, result, base)


def _in_sequence(stmt: Stmt) -> Iterator[Stmt]:
    """The statements that follow one another, through allocations."""
    if isinstance(stmt, Seq):
        for item in stmt.stmts:
            yield from _in_sequence(item)
    elif isinstance(stmt, Allocate):
        yield from _in_sequence(stmt.body)
    else:
        yield stmt


def _sites(stmt: Stmt, loops: tuple[For, ...], conditions: tuple[tuple[Expr, bool], ...]) -> Iterator[_Site]:
    """All stores of a statement.  Raises _NotSeen for other kinds of statements, and where memory decides."""
    if isinstance(stmt, Store):
        yield _Site(stmt, loops, conditions)
    elif isinstance(stmt, Seq):
        for item in stmt.stmts:
            yield from _sites(item, loops, conditions)
    elif isinstance(stmt, Allocate):
        yield from _sites(stmt.body, loops, conditions)
    elif isinstance(stmt, For) and isinstance(stmt.extent, Const):
        yield from _sites(stmt.body, (*loops, stmt), conditions)
    elif isinstance(stmt, If) and not reads_memory(stmt.cond):
        yield from _sites(stmt.then, loops, (*conditions, (stmt.cond, True)))
        if stmt.orelse is not None:
            yield from _sites(stmt.orelse, loops, (*conditions, (stmt.cond, False)))
    else:
        raise _NotSeen


def _has(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether a statement loads or stores the buffer's memory, or names it."""
    return any(isinstance(n, Buffer) and n.memory == buffer.memory for n in walk(stmt))


def _loads(store: Store, buffer: Buffer) -> list[Load]:
    parts = (store.value, *store.indices)
    return [n for part in parts for n in walk(part) if isinstance(n, Load) and n.buffer.memory == buffer.memory]


def _base(reading: Sequence[_Site], buffer: Buffer) -> Linear | None:
    """What the index of each store is more than that of its loads: a form over loops around, or None."""
    bases: list[Linear] = []
    for site in reading:
        (start, step, lanes) = _vector(site.store.indices[0])
        if any(isinstance(n, Load) for n in walk(site.store.indices[0])):
            return None
        for load in _loads(site.store, buffer):
            (own, own_step, own_lanes) = _vector(load.indices[0])
            if (own_step, own_lanes) != (step, lanes):
                return None
            bases.append(add(start, own, -1))
    return bases[0] if all(base == bases[0] for base in bases) else None


def _vector(index: Expr) -> tuple[Linear, int, int]:
    """An index as the form of its first lane, the step between lanes, and their number."""
    if isinstance(index, Ramp) and isinstance(index.stride, Const):
        return linear_form(index.base), as_int(index.stride), index.lanes
    if dtypes.lanes(index.dtype) != 1:
        raise _NotSeen
    return linear_form(index), 0, 1


def _covers(sites: Sequence[_Site], base: Linear, size: int) -> bool:
    """Condition 3, by counting how often each element is stored."""
    counts = np.zeros(size, np.int64)
    for site in sites:
        places = _elements(site, base, size)
        if places.size and (places.min() < 0 or places.max() >= size):
            return False
        counts += np.bincount(places, minlength=size)
    return bool((counts == 1).all())


def _elements(site: _Site, base: Linear, most: int) -> NDArray[np.int64]:
    """The indices of all stores of a site, less the base.  Raises _NotSeen where they are too many, or not linear."""
    start, step, lanes = _vector(site.store.indices[0])
    extents = [as_int(loop.extent) for loop in site.loops]
    if int(np.prod([*extents, lanes])) > 2 * most:
        raise _NotSeen
    axes = np.ogrid[tuple(slice(extent) for extent in (*extents, lanes))] if extents else [np.arange(lanes)]
    points = {loop.var: axis for loop, axis in zip(site.loops, axes, strict=False)}
    shape = (*extents, lanes)
    places = np.broadcast_to(_values(add(start, base, -1), points) + step * axes[-1], shape)
    keep = np.ones(shape, bool)
    for condition, holds in site.conditions:
        keep &= _truth(condition, points) == holds
    return np.asarray(places[keep], np.int64)


def _values(form: Linear, points: dict[Var, NDArray[np.int64]]) -> NDArray[np.int64]:
    terms, constant = form
    total = np.asarray(dtypes.wrap(constant, dtypes.INDEX), np.int64)
    for atom, coefficient in terms.items():
        if not isinstance(atom, Var) or atom not in points:
            raise _NotSeen
        total = total + dtypes.wrap(coefficient, dtypes.INDEX) * points[atom]
    return total


def _truth(condition: Expr, points: dict[Var, NDArray[np.int64]]) -> NDArray[np.bool_]:
    """A mask of the points at which a conjunction of linear comparisons holds."""
    result = np.asarray(True)
    for part in conjuncts(condition):
        if not isinstance(part, Binary) or part.op not in _COMPARED or dtypes.lanes(part.dtype) != 1:
            raise _NotSeen
        left, right = (_values(linear_form(side), points) for side in (part.a, part.b))
        result = result & _COMPARED[part.op](left, right)
    return result


def _apart(base: Linear, size: int, around: Sequence[For]) -> bool:
    """Whether iterations around have ranges of `size` elements apart, unless only serial loops are between them.

    Each loop that the base moves with steps over all that those of smaller steps cover.
    """
    loops = {loop.var: loop for loop in around}
    steps = []
    for atom, coefficient in base[0].items():
        if not isinstance(atom, Var) or atom not in loops or not isinstance(loops[atom].extent, Const):
            return False
        steps.append((coefficient, as_int(loops[atom].extent)))
    covered = size
    for step, extent in sorted(steps):
        if step < covered:
            return False
        covered = step * extent
    concurrent = {loop.var for loop in around if loop.kind in CONCURRENT}
    return concurrent <= set(base[0])


def _moved(body: Stmt, buffer: Buffer, result: Buffer, base: Linear) -> Stmt:
    """The body with each access of the buffer as one of the result, `base` further on."""

    def index(old: Expr) -> Expr:
        start, step, lanes = _vector(old)
        form = build(add(start, base))
        return Ramp(form, Const(step), lanes) if lanes > 1 else form

    def swap(node: Any) -> Any:
        if isinstance(node, Load) and node.buffer == buffer:
            return Load(result, (index(node.indices[0]),))
        if isinstance(node, Store) and node.buffer == buffer:
            return Store(result, (index(node.indices[0]),), node.value)
        return node

    moved: Stmt = transform(body, swap)
    if any(isinstance(n, Buffer) and n.memory == buffer.memory for n in walk(moved)):
        raise _NotSeen
    return moved
