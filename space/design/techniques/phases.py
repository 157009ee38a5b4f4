"""Phases: a sum most of whose terms a condition makes zero runs over the others alone.

A transposed convolution of stride s gathers

    y[o] += (x[(o + k - p) // s] if (o + k - p) % s == 0 else 0) * w[K - 1 - k]

or reads a stage that holds x spread by zeros; of s products one is not with a zero.  With ``o = s a + b`` the phase b
decides which taps k meet an element: every s-th one,

    y[s a + b] += x[a + q + (b - p + ..) // s] * w[.. - s q - ..]      q < ceil(K / s)

In primitives: the stage is inlined, iterators that the congruence sees are cut into digits (`transform_block_layout`),
and each reduction is restricted to the points at which it adds anything (`restrict_reduction`).  All of it is found
from conditions ``t % s == r`` in reductions or in the stages that they read, and kept where none is left.
"""

from __future__ import annotations

from ....ir.arith.linear import linear_form
from ....ir.expr import TRUE, Binary, Call, Const, Expr, Var, conjuncts, free_variables
from ....ir.layout.index_map import IndexMap
from ....ir.node import walk
from ....ir.stmt import Block, PrimFunc
from ...errors import ScheduleError
from ...schedule import Schedule
from ...tree import block_stores, consumers, find_block, leaf_blocks
from .technique import Technique


def _in_phases(schedule: Schedule, constants: frozenset[str]) -> Schedule:
    """The schedule with every sum restricted to terms that are not zero by a congruence, where that can be proven."""
    for name in [block.name for block in leaf_blocks(schedule.func.body) if block.reduce]:
        restricted = schedule.copy()
        try:
            _restrict(restricted, name)
        except ScheduleError:
            continue
        if restricted.trace is not schedule.trace and not _congruences(find_block(restricted.func, name)):
            schedule = restricted
    return schedule


def _restrict(sch: Schedule, name: str) -> None:
    """Inline, cut, and restrict, one congruence after the other.  Raises ScheduleError where a primitive refuses."""
    for stage in _spread_stages(sch.func, name):
        sch.compute_inline(stage)
    while found := _congruences(find_block(sch.func, name)):
        block = find_block(sch.func, name)
        terms, step = found[0]
        moving = [k for k, i in enumerate(block.iters) if i.kind == "spatial" and terms.get(i.var, 0) % step]
        if cut := [k for k in moving if block.iters[k].extent > step]:
            names = tuple(Var(f"d{k}") for k in range(len(block.iters)))
            parts = ((n // step, n % step) if k in cut else (n,) for k, n in enumerate(names))
            digits = [digit for part in parts for digit in part]
            sch.transform_block_layout(name, IndexMap(names, tuple(digits)))
            continue
        reduce = [i for i in block.reduce if any(i.var == v and c % step for v, c in terms.items())]
        if not reduce or not isinstance(reduce[0].binding, Var):
            raise ScheduleError("no reduction of `{block}` is restricted", block=name)
        sch.restrict_reduction(name, reduce[0].binding.name)
    block = find_block(sch.func, name)
    taps = {v for i in block.reduce for v in free_variables(i.binding)}
    if any(c != TRUE and taps.isdisjoint(free_variables(c)) for c in conjuncts(block.predicate)):
        _over_the_edge(sch, name)


def _over_the_edge(sch: Schedule, name: str) -> None:
    """Compute the last phases as well where a step does not divide an extent, in a buffer that has room for them."""
    block = find_block(sch.func, name)
    names = tuple(Var(f"d{k}") for k in range(len(block.iters)))
    kept = tuple(n for n, item in zip(names, block.iters, strict=True) if item.kind == "spatial")
    sch.reindex_cache_write(name, 0, "global", IndexMap(names, kept))
    sch.remove_branching_through_overcompute(name)


def _spread_stages(func: PrimFunc, name: str) -> list[str]:
    """The stages that only this block reads and that hold another value than a number at every s-th element alone."""
    reader = find_block(func, name)
    found = []
    for block in leaf_blocks(func.body):
        stores = block_stores(block)
        if block.reduce or len(stores) != 1 or stores[0].buffer in func.params or not _congruences(block):
            continue
        if consumers(func, stores[0].buffer) == (reader,):
            found.append(block.name)
    return found


def _congruences(block: Block) -> list[tuple[dict[Expr, int], int]]:
    """The conditions ``t % s == r`` of a block's choices, as the terms of t and s."""
    found = []
    for node in walk(block.body):
        if isinstance(node, Call) and node.name == "if_then_else":
            found += [c for cond in conjuncts(node.args[0]) for c in [_congruence(cond)] if c is not None]
    return found


def _congruence(cond: Expr) -> tuple[dict[Expr, int], int] | None:
    if not (isinstance(cond, Binary) and cond.op == "==" and isinstance(cond.b, Const)):
        return None
    left = cond.a
    if not (isinstance(left, Binary) and left.op == "%" and isinstance(left.b, Const)):
        return None
    return linear_form(left.a)[0], int(left.b.value)


PHASES = Technique(prepares=_in_phases)
