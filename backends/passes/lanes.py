"""Whether the iterations of a vectorized loop touch memory independently of each other.

Statements of a vector loop run one after the other, each for all lanes, which is what
the program means if no lane meets what another one writes.  Two accesses of one buffer
never meet in different lanes p != q if in some dimension, with index ``c*v + o + r``,

1. c is not 0, c and o (over loops outside) are the same in both, and the parts r, over
   loops inside, differ by less than \\|c\\|, or
2. o is the same in both, and the ranges of ``c*v + r`` do not overlap.

The first is a rule of `ir.dataflow.meets`, too, which asks it of all accesses of a memory at once; the second tells
apart regions of one buffer, which only pairs of accesses have.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

from ...ir.arith.intervals import Facts, Interval
from ...ir.arith.linear import Linear, shared_form, variables_of
from ...ir.expr import Buffer, Expr, Load, Var
from ...ir.node import walk
from ...ir.stmt import For, Store
from .scopes import Access, accesses, loop_facts


def independent_lanes(loop: For, facts: Facts) -> bool:
    """Whether no iteration of `loop` is proven or feared to touch what another one writes; `facts` hold outside."""
    touched = [n.buffer for n in walk(loop.body) if isinstance(n, (Load, Store))]
    written = {n.buffer.memory for n in walk(loop.body) if isinstance(n, Store)}
    buffers: frozenset[Buffer] = frozenset(b for b in touched if b.memory in written)
    found = list(accesses(loop.body, buffers, loop_facts(facts, loop)))
    pairs = combinations_with_replacement(found, 2)
    return all(_apart(loop.var, a, b) for a, b in pairs if _may_clash(a, b))


def _may_clash(a: Access, b: Access) -> bool:
    return a.buffer.memory == b.buffer.memory and (a.is_write or b.is_write)


def _apart(var: Var, a: Access, b: Access) -> bool:
    if a.buffer != b.buffer:
        return False
    return any(_separated(var, (a, i), (b, j)) for i, j in zip(a.indices, b.indices, strict=True))


def _separated(var: Var, *pair: tuple[Access, Expr]) -> bool:
    parts = [_split(var, access, index) for access, index in pair]
    if parts[0] is None or parts[1] is None:
        return False
    (c, outer, low, high), (d, other, lo, hi) = parts[0], parts[1]
    if outer != other:
        return False
    if c == d != 0 and max(high - lo, hi - low) < abs(c):
        return True
    ranges = [_reach(k, span, access.facts.interval(var)) for (access, _), k, span in
              zip(pair, (c, d), ((low, high), (lo, hi)), strict=True)]  # fmt: skip
    return ranges[0][1] < ranges[1][0] or ranges[1][1] < ranges[0][0]


def _split(var: Var, access: Access, index: Expr) -> tuple[int, dict[Expr, int], int, int] | None:
    """``(c, o, low, high)``: the index is ``c*var + o + r`` with r in [low, high]."""
    terms, constant = shared_form(index)
    inside = access.bound_below(0) | {var}
    rest = {atom: k for atom, k in terms.items() if atom != var}
    if any(var in variables_of(atom) for atom in rest):
        return None
    outer = {atom: k for atom, k in rest.items() if variables_of(atom).isdisjoint(inside) and _steady(atom)}
    own: Linear = ({atom: k for atom, k in rest.items() if atom not in outer}, constant)
    if not access.facts.is_exact(({a: k for a, k in terms.items() if a not in outer}, constant)):
        return None
    low, high = access.facts.of_form(own)
    return terms.get(var, 0), outer, low, high


def _steady(atom: Expr) -> bool:
    """Whether the atom reads no memory, so that it has one value in all iterations."""
    return not any(isinstance(n, Load) for n in walk(atom))


def _reach(factor: int, rest: Interval, var: Interval) -> Interval:
    ends: Sequence[int] = (factor * var[0], factor * var[1])
    return rest[0] + min(ends), rest[1] + max(ends)
