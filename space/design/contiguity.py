"""Is a copy contiguous along a loop?"""

from __future__ import annotations

from ...ir.arith.linear import linear_form
from ...ir.arith.simplify import simplify
from ...ir.expr import Expr, Var, free_variables, substitute
from ...ir.stmt import PrimFunc, loads
from ..tree import block_stores, find_block, loop_bounds, loops_above


def is_contiguous(func: PrimFunc, block: str, loop: str) -> bool:
    """Whether neighbouring iterations store neighbours, and load neighbours or one element."""
    target = find_block(func, block)
    bounds = loop_bounds(loops_above(func, target))
    bindings = {i.var: i.binding for i in target.iters}

    def step(indices: tuple[Expr, ...], strides: tuple[int, ...]) -> int | None:
        total = 0
        for index, stride in zip(indices, strides, strict=True):
            terms, _ = linear_form(simplify(substitute(index, bindings), bounds))
            total += sum(c * stride for atom, c in terms.items() if atom == var)
            if any(atom != var and var in free_variables(atom) for atom in terms):
                return None
        return total

    var = Var(loop)
    stored = [step(s.indices, s.buffer.strides) for s in block_stores(target)]
    loaded = [step(load.indices, load.buffer.strides) for load in loads(target.body)]
    return all(s == 1 for s in stored) and all(s in (0, 1) for s in loaded)
