"""The ragged edge: branch around it, or compute over it.

Both primitives change which instances of a block run, and both are legal exactly
when the instances that appear or disappear have no effect on anything that is
observed (`space.harmless`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.arith.simplify import bound, simplify
from ...ir.expr import Expr, Load, Var, all_of, binary, conjuncts, substitute
from ...ir.stmt import Block, PrimFunc, loads
from ..contents import contents, negate
from ..errors import ScheduleError
from ..harmless import Refusal, check_appearing, check_vanishing
from ..primitive import Result, primitive
from ..tree import find_block, free_variables, loop_bounds, loops_above, with_stmt


@primitive
def remove_branching_through_overcompute(func: PrimFunc, block: str, *, loops: Sequence[str] | None = None) -> Result:
    """``if c and d: S`` -> ``if d: S``, for each conjunct ``c`` that can go.

    With `loops`, only conjuncts over one of these loops are tried.  The instances that
    appear are executed.  Conditions, for each of them: (1) every
    access is inside its buffer; (2) everything read is initialised; (3) it writes only
    elements that nobody observes, or leaves the element as it is, because a factor of
    the update is known padding with the neutral value; (4) iterations of concurrent
    loops around do not meet.  Raises if no conjunct can be removed, with a
    counterexample for each.  Source: RFC 0077, "Remove Branching Through Overcompute".
    """
    target = find_block(func, block)
    found = [c for c in conjuncts(target.predicate) if _is_over(c, loops)]
    if not found:
        raise ScheduleError("block `{block}` has no condition to remove", block=block)
    refusals: list[Refusal] = []
    current = func
    for cond in found:
        attempt = _without(current, block, cond)
        refusal = check_appearing(current, attempt, block, cond)
        if refusal is None:
            current = attempt
        else:
            refusals.append(refusal)
    if current is func:
        raise ScheduleError(
            "no condition of `{block}` can be removed: {reasons}", block=block, reasons=_Reasons(refusals)
        )
    return current, None


def _is_over(cond: Expr, loops: Sequence[str] | None) -> bool:
    return loops is None or any(v.name in loops for v in free_variables(cond))


class _Reasons:
    """Refusals joined, when somebody reads them."""

    def __init__(self, refusals: list[Refusal]) -> None:
        self.refusals = refusals

    def __format__(self, spec: str) -> str:
        return "; ".join(str(r) for r in self.refusals)


def _without(func: PrimFunc, name: str, cond: Expr) -> PrimFunc:
    """The function with one conjunct less, and iterators wide enough for the instances that appear."""
    block = find_block(func, name)
    rest = all_of([c for c in conjuncts(block.predicate) if c != cond])
    ranges = loop_bounds(loops_above(func, block))
    freed = free_variables(cond)
    iters = tuple(
        replace(i, extent=max(i.extent, int(bound(i.binding, ranges)[1]) + 1))
        if not freed.isdisjoint(free_variables(i.binding)) and not _still_bounded(i.binding, i.extent, rest, ranges)
        else i
        for i in block.iters
    )
    return with_stmt(func, block, replace(block, predicate=rest, iters=iters))


def _still_bounded(binding: Expr, extent: int, predicate: Expr, ranges: dict[Var, tuple[int, int]]) -> bool:
    """Whether a remaining conjunct says that the binding stays below the extent."""
    limit = simplify(binary("<", binding, extent), ranges)
    return any(simplify(c, ranges) == limit for c in conjuncts(predicate))


@primitive
def remove_overcompute_through_branching(func: PrimFunc, block: str) -> Result:
    """``S`` -> ``if c: S``, where ``c`` leaves out instances that work on padding alone.

    The conditions are "this load is not of padding", for the block's loads whose buffer
    holds a known pad value.  Conditions: (1) some load touches padding with a known value;
    (2) the instances that vanish change nothing that is observed: their update is
    neutral, or nobody reads what they write.  Source: RFC 0077.
    """
    target = find_block(func, block)
    refusals: list[Refusal] = []
    current = func
    for cond in _padding_conditions(func, target):
        refusal = check_vanishing(current, block, cond)
        if refusal is None:
            here = find_block(current, block)
            current = with_stmt(current, here, replace(here, predicate=binary("and", here.predicate, cond)))
        else:
            refusals.append(refusal)
    if current is func:
        if not refusals:
            raise ScheduleError("(1) block `{block}` reads no padding with a known value", block=block)
        raise ScheduleError(
            "(2) no condition can be put on `{block}`: {reasons}", block=block, reasons=_Reasons(refusals)
        )
    return current, None


def _padding_conditions(func: PrimFunc, block: Block) -> list[Expr]:
    """For each load, the condition over loop variables of not reading padding; trivial ones left out."""
    ranges = loop_bounds(loops_above(func, block))
    bindings = {i.var: i.binding for i in block.iters}
    result: list[Expr] = []
    for load in dict.fromkeys(_loads(block)):
        point = [substitute(i, bindings) for i in load.indices]
        for piece in contents(func, block, load.buffer).at(point):
            if piece.value is None:
                continue
            cond = simplify(negate(piece.condition), ranges)
            if not (hasattr(cond, "value")) and cond not in result:
                result.append(cond)
    return result


def _loads(block: Block) -> list[Load]:
    return list(loads(block.body))
