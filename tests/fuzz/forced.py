"""Rewrites done without asking whether they are legal, so that execution can say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stridesmith.ir.arith.simplify import bound
from stridesmith.ir.expr import Undef, all_of, conjuncts, substitute
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import For, If, PrimFunc, Seq, Stmt, Store, path_to, seq, walk_stmts
from stridesmith.space.tree import find_block, find_loop, loop_bounds, loops_above, with_stmt


def without_condition(func: PrimFunc, name: str) -> Iterator[PrimFunc]:
    """The block's instances run although one conjunct of its predicate, or of an `If` in it, fails."""
    block = find_block(func, name)
    found = conjuncts(block.predicate)
    ranges = loop_bounds(loops_above(func, block))
    for cond in found:
        rest = all_of([c for c in found if c != cond])
        iters = tuple(replace(i, limit=max(i.extent, int(bound(i.binding, ranges)[1]) + 1)) for i in block.iters)
        yield with_stmt(func, block, replace(block, predicate=rest, iters=iters))
    for stmt in walk_stmts(block.body):
        if isinstance(stmt, If):
            parts = conjuncts(stmt.cond)
            for cond in parts:
                rest = [c for c in parts if c != cond]
                if stmt.orelse is None:
                    yield with_stmt(func, stmt, If(all_of(rest), stmt.then) if rest else stmt.then)
            if stmt.orelse is not None:
                yield with_stmt(func, stmt, stmt.then)


def swapped(func: PrimFunc, outer: str, inner: str) -> PrimFunc | None:
    """Two loops directly inside of each other, exchanged; None if they are not."""
    first = find_loop(func, outer)
    second = first.body
    if not isinstance(second, For) or second.var.name != inner or not hasattr(second.extent, "value"):
        return None
    return with_stmt(func, first, replace(second, body=replace(first, body=second.body)))


def concurrent(func: PrimFunc, name: str, kind: str) -> PrimFunc:
    """The loop with its iterations in any order."""
    loop = find_loop(func, name)
    return with_stmt(func, loop, replace(loop, kind=kind))


def merged(func: PrimFunc, first: str, second: str) -> PrimFunc | None:
    """Two neighbours of equal extent as one loop; None if they are not."""
    a, b = find_loop(func, first), find_loop(func, second)
    path = path_to(func.body, a)
    parent = path[-2] if path else None
    if not isinstance(parent, Seq) or a.extent != b.extent or a.kind != "serial" or a.kind != b.kind:
        return None
    if b not in parent.stmts or parent.stmts.index(b) != parent.stmts.index(a) + 1:
        return None
    both = replace(a, body=seq([a.body, substitute(b.body, {b.var: a.var})]))
    kept: list[Stmt] = [both if s is a else s for s in parent.stmts if s is not b]
    return with_stmt(func, parent, seq(kept))


def without_store(func: PrimFunc, name: str) -> Iterator[PrimFunc]:
    """One store of the block, or of what it holds, left out; those of undef stay until all proofs are made."""
    for stmt in walk_stmts(find_block(func, name)):
        if isinstance(stmt, Store) and not any(isinstance(node, Undef) for node in walk(stmt.value)):
            yield with_stmt(func, stmt, Seq(()))
