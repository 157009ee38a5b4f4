"""Passes as primitives: the same rewrites (`ir.passes.transform`) in one block, or one loop.

A pass does what it can prove; a primitive says why where it can do nothing.  A name is
that of a block or of a loop.  For `hoist_expression` and `reduce_loop_extents` a block
stands for its whole loop nest, with the loops around it up to the enclosing block.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.context import context_of, contexts
from ...ir.dataflow.instances import instances
from ...ir.dataflow.writers import undefined_names
from ...ir.passes.empty import without_empty
from ...ir.passes.hoist import HoistConditional, Hoister, HoistLetBinding, flags
from ...ir.passes.loop_extents import reduce_extents, whole_reason
from ...ir.passes.merge import merge_nests, neighbours, obstacle
from ...ir.passes.no_op import without_no_ops
from ...ir.passes.renaming import distinct
from ...ir.passes.simplification import simplified
from ...ir.stmt import Block, For, PrimFunc, Stmt, names
from ..errors import Reasons, ScheduleError
from ..primitive import Result, primitive
from ..tree import find_block_or_loop, find_loop, loops_above, with_stmt


@primitive
def simplify(func: PrimFunc, block: str) -> Result:
    """Expressions and conditions at or below `block` (a block or a loop), as simple as can be proven.

    Conditions are decided by exact sets, neighbouring conditionals with equal or opposite
    conditions merged, and what assumptions say is used.  Raises if (1) nothing is simpler
    afterwards.  Source: RFC 0077, "Enhancement - Simplify".
    """
    func = distinct(func)
    new = simplified(func, find_block_or_loop(func, block))
    if new == func:
        raise ScheduleError("(1) nothing in `{block}` can be proven to be simpler", block=block)
    return new, None


@primitive
def hoist_expression(
    func: PrimFunc,
    block: str,
    *,
    hoisted_conditionals: str | Sequence[str] = (
        "if_else_stmt",
        "if_else_expr",
        "boolean_expression",
        "using_block_var",
    ),
    hoisted_let_bindings: str | Sequence[str] = "required_by_condition",
) -> Result:
    """``for v: if c: A`` -> ``if c: for v: A``, for conditions and bindings that do not depend on the loop.

    `block` is a block, with the loops around it, or a loop.  `hoisted_conditionals` are "none" or
    some of "if_else_stmt", "if_else_expr", "boolean_expression" (which splits conjunctions) and
    "using_block_var" (also conditions of threads), `hoisted_let_bindings` "none" or some of
    "required_by_condition", "let_stmt" and "let_expr".  The conditions of a move are those of `ir.passes.hoist`.
    Raises if nothing can move, with the reason for each candidate.
    Source: RFC 0077, "New Transform - Hoist Expression".
    """
    func = distinct(func)
    target = _nest(func, block)
    hoister = Hoister(
        flags(HoistConditional, hoisted_conditionals), flags(HoistLetBinding, hoisted_let_bindings), names(func),
        undefined_names(instances(func)),
    )  # fmt: skip
    new = hoister.run(target, context_of(func, target))
    if new == target:
        why = ": {reasons}" if hoister.kept else ", which has no condition or binding of these kinds in a loop"
        raise ScheduleError("nothing can be hoisted in `{block}`" + why, block=block, reasons=Reasons(hoister.kept))
    return without_empty(with_stmt(func, target, new)), None


@primitive
def reduce_loop_extents(func: PrimFunc, block: str) -> Result:
    """``for v in N: if l <= v <= h: S`` -> ``for v in h - l + 1: S(v + l)``, for every loop where that is less.

    `block` is a block, with the loops around it, or a loop.  Conditions, for each loop: (1) it
    is serial, parallel or unrolled, its extent is constant, and everything in it is under a
    condition; (2) that condition never holds for its first or last value; (3) a reduction still
    begins with its init.  Raises if no loop can be reduced.  Source: RFC 0077.
    """
    func = distinct(func)
    target = _nest(func, block)
    place = context_of(func, target)
    new = reduce_extents(target, place)
    if new == target:
        reasons = [whole_reason(s, here) for s, here in contexts(target, place) if isinstance(s, For)]
        raise ScheduleError("no loop of `{block}` can be reduced: {reasons}", block=block, reasons=Reasons(reasons))
    return without_empty(with_stmt(func, target, new)), None


@primitive
def merge_adjacent_loops(func: PrimFunc, *loops: str, inner: bool = True) -> Result:
    """``for i in N: A(i);  for j in N: B(j)`` -> ``for i in N: { A(i); B(i) }``, for the loops named, in order.

    Conditions: (1) each loop follows directly on the one before; (2) all are serial; (3) their
    extents are equal; (4) for no i > j does what A(i) writes meet what B(j) reads or writes,
    or what A(i) reads meet what B(j) writes.  Of perfect nests, the loops inside follow as far
    as they may, unless `inner` is false.  Returns the loop's name.  Source: RFC 0077,
    "Utility - Merge Adjacent Loops".
    """
    if len(loops) < 2:
        raise ScheduleError("(1) at least two loops must be given, but got {loops}", loops=list(loops))
    func = distinct(func)
    for name in loops[1:]:
        first, second = find_loop(func, loops[0]), find_loop(func, name)
        neighbours(func, first, second)
        reason = obstacle(func, first, second)
        if reason is not None:
            raise ScheduleError("{reason}", reason=reason)
        func = merge_nests(func, first, second, inner)
    return func, loops[0]


@primitive
def remove_no_op(func: PrimFunc, block: str) -> Result:
    """Leave out what nobody sees at or below `block`, which is a block or a loop.

    Stores go that are overwritten before they are read, that write back what they read, or
    that write what is known to be there; whole nests before single statements; and whatever is
    empty then.  Conditions, for each store: (1) it is dead or silent, for the function's end too;
    (2) no assumption speaks of what a dead store wrote; (3) a reduction still begins with its
    init; (4) it stores no `undef`.  Raises if everything is needed, with an instance for each
    store.  Source: RFC 0077, "Enhancement - Remove No Op".
    """
    new, needed = without_no_ops(func, find_block_or_loop(func, block))
    if new == func:
        raise ScheduleError("everything in `{block}` has an effect: {reasons}", block=block, reasons=Reasons(needed))
    return new, None


def _nest(func: PrimFunc, name: str) -> Stmt:
    """A loop, or a block with the loops around it up to the enclosing block."""
    target = find_block_or_loop(func, name)
    around = loops_above(func, target) if isinstance(target, Block) else ()
    return around[0] if around else target
