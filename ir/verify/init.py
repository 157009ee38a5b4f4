"""Rule 8 of `verify`: a block's init comes before everything that it initialises.

Lowering runs the init where all reduce iterators are 0.  This is right if, for
every spatial point that has an executed instance, the instance with all reduce
iterators 0 is executed, and is the first in program order.

Proof: let R be the loops that no spatial binding uses.  For an executed
instance p let q be p with all loops of R at 0.  Then q has the same spatial point
and is not later than p; it remains that q is executed and has reduce iterators
0.  Where this argument does not apply, the instances are counted out, or, where extents are expressions, compared as
sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .. import dtypes
from ..arith.intervals import Facts
from ..arith.linear import linear_form
from ..arith.simplify import simplify
from ..context import Context, Surroundings, contexts, has_init
from ..expr import Binary, Const, Expr, Load, Var, binary, const, substitute, variables
from ..interpreter.memory import InterpreterError
from ..interpreter.nest import Bind, Guard, Loop, root
from ..interpreter.values import Evaluator
from ..node import walk
from ..stmt import Block, Stmt

LARGEST_COUNT = 1 << 20
NOT_PROVABLE = "it is not provable that its all-zero reduce instance is the first of every spatial point"


def starts(stmt: Stmt, here: Context) -> bool:
    """Whether every reduction below `stmt`, which stands `here`, provably begins with its init."""
    return not has_init(stmt) or not any(
        isinstance(item, Block) and item.init is not None and init_fault(item, inside.around)
        for item, inside in contexts(stmt, here)
    )


def init_fault(block: Block, around: Surroundings) -> str:
    """Why the init of `block` may come too late; empty if it does not."""
    iters = tuple(replace(i, binding=around.plain(i.binding)) for i in block.iters)
    block = replace(block, iters=iters, predicate=around.plain(block.predicate))
    conditions = around.conditions(block)
    exprs = (*conditions, *(i.binding for i in block.iters), *(e for _, e in around.loops))
    if any(isinstance(n, Load) for e in exprs for n in walk(e)):
        return "whether its all-zero reduce instance runs depends on memory"
    if _by_zeroing(block, around, conditions):
        return ""
    return _by_counting(block, around)


def _by_zeroing(block: Block, around: Surroundings, conditions: Sequence[Expr]) -> bool:
    used = {v for i in block.spatial for v in variables(i.binding)}
    bound = {*(v for v, _ in around.loops), *(i.var for i in around.outer)}
    free: dict[Var, Expr] = {var: const(0, var.dtype) for var, _ in around.loops if var not in used}
    for var, extent in around.loops:
        runs = extent.value >= 1 if isinstance(extent, Const) else variables(extent).isdisjoint(bound)
        if var in free and not runs:
            return False
        if variables(extent) & free.keys():
            return False
    if any(simplify(substitute(i.binding, free)) != const(0, i.var.dtype) for i in block.reduce):
        return False
    facts = Facts({})
    facts = Facts({one.var: facts.within(one.limit) for one in around.outer})
    for cond in around.given:
        facts = facts.assuming(cond)
    for var, extent in around.loops:
        facts = facts.looping(var, extent)
    return all(holds_at_zero(c, free, facts) for c in conditions)


def holds_at_zero(cond: Expr, free: dict[Var, Expr], facts: Facts) -> bool:
    """Whether `cond` implies itself with the variables `free` at 0, where its sides never wrap around under `facts`."""
    if not variables(cond) & free.keys():
        return True
    if simplify(substitute(cond, free)) == const(True):
        return True
    if not isinstance(cond, Binary) or cond.op not in ("<", "<=", ">", ">="):
        return False
    small, large = (cond.a, cond.b) if cond.op in ("<", "<=") else (cond.b, cond.a)
    if dtypes.element(small.dtype) != dtypes.INDEX and not (isinstance(small, Var) and isinstance(large, (Var, Const))):
        return False  # a sum of a narrower type may wrap around
    if not facts.is_exact(linear_form(small)) or not facts.is_exact(linear_form(large)):
        return False
    coefficients, _ = linear_form(small - large)
    return all(
        coefficient >= 0 if isinstance(atom, Var) else not variables(atom) & free.keys()
        for atom, coefficient in coefficients.items()
        if variables(atom) & free.keys()
    )


def _by_counting(block: Block, around: Surroundings) -> str:
    """Go through all instances, if they are few."""
    evaluate = Evaluator({})
    nest = root()
    known = {*(v for v, _ in around.loops), *(i.var for i in around.outer)}
    limits = [i.limit for i in (*around.outer, *block.iters)]
    whole = all(isinstance(e, int) for e in limits) and not any(variables(e) - known for _, e in around.loops)
    if around.given and not whole:
        return _by_sets(block, around)
    try:
        for one in around.outer:
            nest = Loop(one.var, lambda _, n=one.extent: n)(nest)  # type: ignore[misc]
        for step in (*around.steps, block.predicate):
            if isinstance(step, tuple):
                nest = Loop(step[0], lambda parent, e=step[1]: evaluate.data(parent, e, ""))(nest)  # type: ignore[misc]
            else:
                nest = Guard(lambda parent, e=step: evaluate.data(parent, e, ""))(nest)  # type: ignore[misc]
            if nest.n > LARGEST_COUNT:
                return NOT_PROVABLE
        for one in block.iters:
            nest = Bind(one.var, one.binding, evaluate)(nest)
        point = np.zeros(nest.n, np.int64)
        for one in (*around.outer, *block.spatial):
            point = point * one.extent + nest.get(one.var)[0]
        zero = np.ones(nest.n, np.bool_)
        for one in block.reduce:
            zero &= np.equal(nest.get(one.var)[0], 0)
    except InterpreterError as error:
        return f"the order of its instances is unknown: {error}"
    first = np.unique(point, return_index=True)[1]
    bad = first[~zero[first]]
    if not len(bad):
        return ""
    values = {i.var.name: np.broadcast_to(nest.get(i.var)[0], nest.n)[bad[0]] for i in block.iters}
    return f"the first instance of a spatial point is {', '.join(f'{k}={v}' for k, v in values.items())}"


def _by_sets(block: Block, around: Surroundings) -> str:
    """Ask for instances before which no all-zero reduce instance of their spatial point runs, whatever extents are.

    All instances of one point of the block around come in the order of the loops.
    """
    from ..affine.sets import Domain, NotAffine, Unknown, points

    conditions = (*around.given, *around.conditions(block))
    exprs = (*conditions, *(i.binding for i in block.iters), *(e for _, e in around.loops))
    dims = (*((i.var, i.limit) for i in around.outer), *around.loops)
    inside = {v for v, _ in dims}
    free = {v for e in (*exprs, *(e for _, e in dims if isinstance(e, Expr))) for v in variables(e)} - inside
    fixed = tuple((v, None) for v in sorted(free, key=lambda v: v.name))
    zero = tuple(binary("==", i.binding, const(0, i.binding.dtype)) for i in block.reduce)
    again: dict[Var, Expr] = {v: Var(f"{v.name}'", v.dtype) for v, _ in around.loops}
    earlier: Expr = const(False)
    same: Expr = const(True)
    for var, _ in reversed(around.loops):
        before = binary("and", binary("==", again[var], var), earlier)
        earlier = binary("or", binary("<", again[var], var), before)
    for one in block.spatial:
        same = binary("and", same, binary("==", one.binding, substitute(one.binding, again)))
    first = (*(substitute(c, again) for c in (*around.conditions(block), *zero)), earlier, same)
    twice = tuple((_renamed(again[v]), substitute(e, again)) for v, e in around.loops)
    try:
        all_of_them = Domain((*fixed, *dims), conditions)
        begun = points(Domain((*fixed, *dims, *twice), (*conditions, *first))).project_out([v for v, _ in twice])
        bad = points(all_of_them).subtract(points(all_of_them.where(*zero))).subtract(begun).first()
    except (NotAffine, Unknown):
        return NOT_PROVABLE
    if bad is None:
        return ""
    return f"the first instance of a spatial point is at {', '.join(f'{k}={v}' for k, v in bad.items())}"


def _renamed(var: Expr) -> Var:
    assert isinstance(var, Var)
    return var
