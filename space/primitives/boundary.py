"""The ragged edge: branch around it, or compute over it.

Both primitives change which instances run, and both are legal exactly when the
instances that appear or disappear have no effect on anything that is observed
(`ir.dataflow.harmless`).  They act inside one block or loop; the passes of the same names
(`ir.passes.overcompute`, `ir.passes.branching`) on a whole function.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import Expr, free_variables
from ...ir.passes.branching import branch
from ...ir.passes.overcompute import overcompute
from ...ir.stmt import PrimFunc
from ..errors import Reasons, ScheduleError
from ..primitive import Result, primitive
from ..tree import find_block_or_loop, find_loop


@primitive
def remove_branching_through_overcompute(func: PrimFunc, block: str, *, loops: Sequence[str] | None = None) -> Result:
    """``if c and d: S`` -> ``if d: S``, for each conjunct ``c`` that can go.

    `block` names a block or a loop; conditions at and below it are tried: predicates of
    blocks, `If` statements, and ``if_then_else`` in stored values.  An `If` with an
    else-branch becomes the side to which the other comes.  With `loops`, only conjuncts
    over one of these loops are tried.  The instances that appear are executed.

    Conditions, for each conjunct: (1) every access is inside its buffer; (2) everything
    read is initialised, and not undef where it decides an index, a condition or a
    divisor; (3) each store is dead, or stores what is there already, because a factor of
    the update is known padding with the neutral value; (4) a block's init still runs
    first; (5) iterations of concurrent loops around do not meet; (6) iterators of blocks stay in
    their ranges and divisors are not 0, whatever conditions stand further inside.  Raises if no
    conjunct can be removed, with a counterexample for each.  Source: RFC 0077, "Remove
    Branching Through Overcompute".
    """

    def is_over(cond: Expr) -> bool:
        return loops is None or any(v.name in loops for v in free_variables(cond))

    new, refused = overcompute(func, find_block_or_loop(func, block), is_over)
    if new is func:
        if not refused:
            raise ScheduleError("block `{block}` has no condition to remove", block=block)
        raise ScheduleError(
            "no condition of `{block}` can be removed: {reasons}", block=block, reasons=Reasons(refused)
        )
    return new, None


@primitive
def remove_overcompute_through_branching(func: PrimFunc, block: str, *, tile: Sequence[str] | None = None) -> Result:
    """``S`` -> ``if c: S``, where ``c`` leaves out instances that work on padding alone.

    `block` names a block or a loop.  The conditions are "this load is not of padding", for
    loads whose buffer holds a known pad value, and "this element does not get its final
    padding later".  With `tile`, which names loops, all of their iterations run or none: they
    vanish where every load of the tile is of padding, and nothing is tested inside.
    Conditions: (1) some access touches such padding; (2) the instances that vanish change
    nothing that is observed: they store what is there already, or nobody reads what they
    write.  Source: RFC 0077, "Remove Overcompute Through Branching".
    """
    new, refused = branch(func, find_block_or_loop(func, block), [find_loop(func, loop).var for loop in tile or ()])
    if new is func:
        if not refused:
            raise ScheduleError("(1) block `{block}` touches no padding with a known value", block=block)
        raise ScheduleError(
            "(2) no condition can be put on `{block}`: {reasons}", block=block, reasons=Reasons(refused)
        )
    return new, None
