"""transform_block_layout: a block's iterators, and the loops that they are bound to, through an index map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...ir.arith.simplify import simplify
from ...ir.expr import Expr, Load, Var, substitute, variables
from ...ir.layout.index_map import IndexMap
from ...ir.node import transform
from ...ir.stmt import Block, Iter, PrimFunc, Stmt, Store, fresh, names
from ...ir.verify.rules import VerifyError, verify
from ..errors import ScheduleError
from ..primitive import Result, index_rank, primitive
from ..tree import find_block, find_loop, limit_of, loops_above, with_stmt
from .nests import transform_loops


@primitive
def transform_block_layout(func: PrimFunc, block: str, index_map: Any) -> Result:
    """``for v in V: S(v)`` -> ``for u in U: S(f^-1(u))``, with iterators u bound to the loops, one each.

    U is the least box that holds ``f(V)``; instances of it that f does not reach do not run.
    Conditions: (1) the block has iterators, bound to loops of their own, and these are the
    loops of its nest; (2) the map takes one index for each iterator; (3) each of its indices
    uses iterators of one kind; (4) the loops can be transformed (see `transform_loops`); (5)
    an init still runs before its first update.  Returns the new loops, outermost first.
    Source: TensorIR's primitive of this name.
    """
    target = find_block(func, block)
    bound = [i.binding for i in target.iters]
    above = loops_above(func, target)
    if not bound or any(not isinstance(b, Var) for b in bound) or {x.var for x in above} != set(bound):
        raise ScheduleError("(1) the iterators of block `{block}` are not bound one by one to the loops around it",
                            block=block)  # fmt: skip
    try:
        made = IndexMap.make(index_map, len(target.iters))
    except ValueError as error:
        raise ScheduleError("(2) {error}", error=str(error)) from None
    kinds = _kinds(target, made)
    nest = [x.var for x in above]
    over_loops = made.map_indices([Var(b.name) for b in bound if isinstance(b, Var)])
    over_nest = IndexMap(tuple(Var(v.name) for v in nest), over_loops)
    func, loops = transform_loops(func, [v.name for v in nest], over_nest)
    func = _rebind(func, block, loops, kinds, made)
    try:
        verify(func)
    except VerifyError as error:
        raise ScheduleError("(5) {error}", error=str(error)) from None
    return func, loops


def _kinds(block: Block, index_map: IndexMap) -> list[str]:
    kind_of = dict(zip(index_map.variables, (i.kind for i in block.iters), strict=True))
    kinds: list[str] = []
    for number, index in enumerate(index_map.indices):
        found = {kind_of[v] for v in variables(index)}
        if len(found) > 1:
            raise ScheduleError("(3) index {number} of the map mixes {kinds} iterators", number=number,
                                kinds=" and ".join(sorted(found)))  # fmt: skip
        kinds.append(found.pop() if found else "spatial")
    return kinds


def _rebind(func: PrimFunc, name: str, loops: Sequence[str], kinds: Sequence[str], index_map: IndexMap) -> PrimFunc:
    """The function whose block has new iterators, one for each loop, in the terms of which its old ones are written."""
    block = find_block(func, name)
    taken = names(func) - {i.var.name for i in block.iters}
    iters: list[Iter] = []
    for loop, kind in zip(loops, kinds, strict=True):
        found = find_loop(func, loop)
        iterator = fresh(f"v{loop}", taken)
        taken.add(iterator)
        iters.append(Iter(Var(iterator, found.var.dtype), limit_of(func, found), kind, found.var))
    inside: dict[Var, Expr] = {i.binding: i.var for i in iters if isinstance(i.binding, Var)}
    ranges = {i.var: i.span for i in iters}
    old: dict[Var, Expr] = {i.var: simplify(substitute(i.binding, inside), ranges) for i in block.iters}
    old |= {
        i.var: iters[index_map.indices.index(kept)].var
        for i, kept in zip(block.iters, index_map.variables, strict=True)
        if kept in index_map.indices
    }
    init = None if block.init is None else _with_simple_indices(substitute(block.init, old), ranges)
    body = _with_simple_indices(substitute(block.body, old), ranges)
    return with_stmt(func, block, replace(block, iters=tuple(iters), init=init, body=body))


def _with_simple_indices(body: Stmt, ranges: dict[Var, tuple[int, int]]) -> Stmt:
    """``A[v // 4 * 4 + v % 4]`` -> ``A[v]``, so that whoever looks at the accesses sees the iterators.

    An iterator stays one also where its only value is 0.
    """

    def simpler(node: object) -> object:
        if isinstance(node, (Load, Store)):
            simple = (i if isinstance(i, Var) else simplify(i, ranges) for i in node.indices)
            return replace(node, indices=tuple(simple))
        return node

    result: Stmt = transform(body, simpler)
    return result


@index_rank("transform_block_layout")
def _rank(func: PrimFunc, block: str, **_rest: Any) -> int:
    return len(find_block(func, block).iters)
