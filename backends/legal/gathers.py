"""Lanes that do not lie next to each other, out of vectors that hold them.

::

    A[p : p + 16 : 2]      ->  shuffle([A[p : p + 8], A[p + 7 : p + 15]], [0, 2, 4, 6, 9, 11, 13, 15])
    A[p + 7 - v]           ->  shuffle([A[p : p + 8]], [7, 6, 5, 4, 3, 2, 1, 0])        v = 0, 1, .., 7
    A[q + (v + 1) // 2]    ->  A[q], A[q + 1], ..: the same for lanes at any known distances

Either all lanes lie in one aligned block of as many elements as there are lanes: then it is the block that is loaded,
as for other lanes of it.  Or a few vectors have them, each of which serves at least two (see `backends.neighbours`).
Lanes at distances that are not known, or for which loads one by one cost less, stay as they are.

Conditions: (1) the buffer is memory, not a register tile, of scalars other than bool; (2) no lane is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ...ir import dtypes
from ...ir.arith.intervals import Facts, nothing_known
from ...ir.arith.linear import add, as_ramp, build, shared_form
from ...ir.arith.simplifier import simplifier_for
from ...ir.expr import (
    Broadcast,
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Ramp,
    Shuffle,
    Var,
    as_int,
    binary,
    const,
    reads_memory,
)
from ...ir.functions import MASKED_LOAD
from ...ir.interpreter.lanes import lane_of
from ...ir.node import Node, children, rebuild, remembered
from ...ir.stmt import Allocate, For, Let, Stmt
from ...ir.target import Target
from ..neighbours import picks


def gathers(stmt: Stmt, target: Target) -> Stmt:
    """The statement, for a CPU, with lanes that are apart as shuffles of vectors, where that is the faster."""
    if target.kind != "cpu" or not _has_gathers(stmt):
        return stmt
    return _statement(stmt, _Place(nothing_known()))


@remembered
def _has_gathers(node: Node) -> bool:
    """Whether a vector is loaded in `node` that is not one of neighbours."""
    return (isinstance(node, Load) and _is_apart(node)) or any(map(_has_gathers, children(node)))


def _is_apart(load: Load) -> bool:
    return any(dtypes.lanes(i.dtype) > 1 and not (isinstance(i, Ramp) and i.stride == const(1)) for i in load.indices)


@dataclass(frozen=True)
class _Place:
    """Where an access stands: what is known there, which memories are register tiles, and how often loops repeat it."""

    facts: Facts
    tiles: frozenset[str] = frozenset()
    unrolled: tuple[tuple[Var, int], ...] = ()


def _statement(stmt: Stmt, at: _Place) -> Stmt:
    if not _has_gathers(stmt):
        return stmt
    inside = at
    if isinstance(stmt, Allocate) and stmt.buffer.scope == "local":
        inside = replace(at, tiles=at.tiles | {stmt.buffer.name})
    elif isinstance(stmt, For):
        inside = replace(at, facts=at.facts.looping(stmt.var, stmt.extent))
        if stmt.kind == "unrolled" and isinstance(stmt.extent, Const):
            inside = replace(inside, unrolled=(*at.unrolled, (stmt.var, as_int(stmt.extent))))
    elif isinstance(stmt, Let):
        inside = replace(at, facts=at.facts.binding(stmt.var, stmt.value))

    def visit(child: Node) -> Node:
        if isinstance(child, Stmt):
            return _statement(child, inside)
        return _expression(child, at) if isinstance(child, Expr) else child

    result: Stmt = rebuild(stmt, visit)
    return result


def _expression(expr: Expr, at: _Place) -> Expr:
    if not _has_gathers(expr):
        return expr

    def visit(child: Node) -> Node:
        return _expression(child, at) if isinstance(child, Expr) else child

    if isinstance(expr, Call) and expr.name == MASKED_LOAD:
        cond, load, *other = expr.args
        args = (_expression(cond, at), rebuild(load, visit), *(_expression(value, at) for value in other))
        return replace(expr, args=args)
    made: Expr = rebuild(expr, visit)
    return _picked(made, at) if isinstance(made, Load) else made


def _picked(load: Load, at: _Place) -> Expr:
    """The load as a shuffle of vectors, by conditions (1), or as it is."""
    buffer = load.buffer
    if buffer.memory in at.tiles or len(load.indices) != 1 or not _is_apart(load):
        return load
    if dtypes.lanes(buffer.dtype) > 1 or dtypes.is_bool(buffer.dtype):
        return load
    found = _distances(load.indices[0], at.facts)
    if found is None:
        return load
    base, distances = found
    count = len(distances)
    if not any(distances):
        return Broadcast(Load(buffer, (base,)), count)
    if distances == tuple(range(count)):
        return Load(buffer, (Ramp(base, const(1), count),))
    first = _place_in_block(buffer, base, distances, dict(at.unrolled))
    if first is not None:
        block = Load(buffer, (Ramp(binary("-", base, first), const(1), count),))
        return Shuffle((block,), tuple(binary("+", first, distance) for distance in distances))
    chosen = picks(distances)
    if chosen is None:
        return load
    starts = (Ramp(binary("+", base, start), const(1), chosen.length) for start in chosen.starts)
    numbers = (chosen.length * k + inside for k, inside in zip(chosen.holder, chosen.inside, strict=True))
    return Shuffle(tuple(Load(buffer, (start,)) for start in starts), tuple(map(const, numbers)))


def _distances(index: Expr, facts: Facts) -> tuple[Expr, tuple[int, ...]] | None:
    """The index of the first lane, and the distance of each lane from it; None where one is known only at run time."""
    count, ramp = dtypes.lanes(index.dtype), as_ramp(index)
    if ramp is not None:
        base, stride = ramp
        return (base, tuple(as_int(stride) * n for n in range(count))) if isinstance(stride, Const) else None
    if reads_memory(index):
        return None
    lanes = [simplifier_for(facts).expr(lane_of(index, number)) for number in range(count)]
    apart = [add(shared_form(lane), shared_form(lanes[0]), -1) for lane in lanes]
    return None if any(terms for terms, _ in apart) else (lanes[0], tuple(step for _, step in apart))


def _place_in_block(buffer: Buffer, base: Expr, distances: Sequence[int], unrolled: dict[Var, int]) -> Expr | None:
    """The place of the first lane in its aligned block of as many elements as lanes; None if lanes leave that block.

    A buffer of whole blocks has all of a block of which it has one element.  Loads of other elements of the block, such
    as of the next channel of a group, are then the same load.
    """
    count = len(distances)
    terms, constant = shared_form(base)
    moving = {atom: factor for atom, factor in terms.items() if factor % count}
    if not buffer.is_fixed or prod(buffer.shape) % count or any(atom not in unrolled for atom in moving):
        return None
    places = {constant % count}
    for var, factor in moving.items():
        assert isinstance(var, Var)
        places = {(place + factor * n) % count for place in places for n in range(unrolled[var])}
    inside = all(place + min(distances) >= 0 and place + max(distances) < count for place in places)
    return binary("%", build((moving, constant)), count) if inside else None
