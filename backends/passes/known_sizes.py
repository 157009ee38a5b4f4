"""What every call of a function keeps, as a condition around its body.

::

    assume(m <= 512); S                            ->      if 1 <= m and m <= 512: S
    block where i*5 + a*4 + b < m and a*4 + b < 5  ->      block where a*4 + b < 5 and i*5 + a*4 + b < m

Passes, and LLVM behind them, learn from it what they learn from any condition: that sums of extents do not wrap around,
that whole tiles can be peeled, that iterations do not meet.  In predicates of blocks what is over sizes stands last, as
it may follow from the rest.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.arith.intervals import nothing_known
from ...ir.arith.simplifier import simplifier_for
from ...ir.expr import TRUE, Binary, Expr, all_of, can_fail, conjuncts, const, free_variables
from ...ir.extents import widened
from ...ir.node import transform
from ...ir.ranges import preconditions
from ...ir.size_ranges import ranges_of
from ...ir.stmt import Block, If, PrimFunc


def with_known_sizes(func: PrimFunc) -> PrimFunc:
    """A function whose extents are expressions with its preconditions around the body, those that tell something."""
    if not func.stated:
        return func
    ends: list[Expr] = []
    for var, numbers in ranges_of(func).items():
        ends += [Binary("<=", const(numbers.low), widened(var)), Binary("<=", widened(var), const(numbers.high))]
    facts, kept = nothing_known(), list[Expr]()
    for cond in (*ends, *preconditions(func)):
        if simplifier_for(facts).expr(cond) != TRUE:
            kept.append(cond)
            facts = facts.assuming(cond)
    sizes = frozenset(func.integers)

    def sizes_last(node: object) -> object:
        if not isinstance(node, Block) or can_fail(node.predicate):
            return node
        conds = sorted(conjuncts(node.predicate), key=lambda cond: not sizes.isdisjoint(free_variables(cond)))
        return replace(node, predicate=all_of(conds))

    body = transform(func.body, sizes_last)
    return func.with_body(replace(body, body=If(all_of(kept), body.body)))
