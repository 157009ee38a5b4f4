"""Loops and iterators of narrow integer types, as TVM's scripts have them, in the type of indices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from ...ir import dtypes
from ...ir.arith.intervals import Facts, nothing_known
from ...ir.arith.widening import wide_index
from ...ir.expr import COMPARISONS, Binary, Expr, Load, Var, binary, reads_memory, substitute
from ...ir.node import Node, rebuild, transform
from ...ir.stmt import Block, For, If, Iter, Let, PrimFunc, Stmt, Store
from ..primitive import Result, primitive

S = TypeVar("S", bound=Stmt)


@primitive
def widen_loops(func: PrimFunc) -> Result:
    """``for i: int32 in N: A[i * 4] = f(i)`` -> ``for i: int64 in N: A[i * 4] = f(int32(i))``, for all loops.

    Loops and the iterators of blocks count in 64 bits.  Indices, extents, bindings, and comparisons of what is not
    loaded are computed in 64 bits where no operation of the narrow type can overflow, all other values in their types.
    Always legal; what is in 64 bits stays as it is.
    """
    return func.with_body(_widened(func.body, nothing_known(func.is_strict))), None


def is_narrow(var: Var) -> bool:
    """Whether a loop or an iterator counts in another type than that of indices."""
    return var.dtype != dtypes.INDEX


def _widened(stmt: S, facts: Facts) -> S:
    """`stmt` in 64 bits, where `facts` hold."""
    result: Stmt
    if isinstance(stmt, For):
        var, extent = Var(stmt.var.name), wide_index(_in_expr(stmt.extent, facts), facts)
        body = _renamed(stmt.body, (stmt.var,))
        result = replace(stmt, var=var, extent=extent, body=_widened(body, facts.looping(var, extent)))
    elif isinstance(stmt, Block):
        result = _widened_block(stmt, facts)
    elif isinstance(stmt, If):
        cond = _in_expr(stmt.cond, facts)
        then = _widened(stmt.then, facts.assuming(cond))
        orelse = None if stmt.orelse is None else _widened(stmt.orelse, facts.assuming(cond, False))
        result = If(cond, then, orelse)
    elif isinstance(stmt, Let):
        value = _in_expr(stmt.value, facts)
        result = Let(stmt.var, value, _widened(stmt.body, facts.binding(stmt.var, value)))
    elif isinstance(stmt, Store):
        indices = tuple(wide_index(_in_expr(index, facts), facts) for index in stmt.indices)
        result = Store(stmt.buffer, indices, _in_expr(stmt.value, facts))
    else:
        result = rebuild(stmt, lambda below: _below(below, facts))
    assert isinstance(result, type(stmt))
    return result


def _widened_block(block: Block, facts: Facts) -> Block:
    predicate = _in_expr(block.predicate, facts)
    outside = facts.assuming(predicate)
    iters = tuple(
        Iter(Var(i.var.name), i.extent, i.kind, wide_index(_in_expr(i.binding, outside), outside)) for i in block.iters
    )
    inside = outside.with_bounds({i.var: (0, i.extent - 1) for i in iters})
    own = [i.var for i in block.iters]
    return replace(
        block,
        iters=iters,
        predicate=predicate,
        body=_widened(_renamed(block.body, own), inside),
        init=None if block.init is None else _widened(_renamed(block.init, own), inside),
    )


def _renamed(stmt: S, variables: Iterable[Var]) -> S:
    """`stmt` over variables of the same names in 64 bits, whose values are cast to the narrow types."""
    result: S = substitute(stmt, {var: Var(var.name) for var in variables if is_narrow(var)})
    return result


def _below(node: Node, facts: Facts) -> Node:
    if isinstance(node, Stmt):
        return _widened(node, facts)
    return _in_expr(node, facts) if isinstance(node, Expr) else node


def _in_expr(expr: Expr, facts: Facts) -> Expr:
    """An expression of the same type and value, its indices and comparisons in 64 bits."""

    def widen(node: Node) -> Node:
        if isinstance(node, Load):
            return replace(node, indices=tuple(wide_index(index, facts) for index in node.indices))
        if not isinstance(node, Binary) or reads_memory(node):
            return node
        if node.op in COMPARISONS and dtypes.is_int(node.a.dtype):
            return binary(node.op, wide_index(node.a, facts), wide_index(node.b, facts))
        return node

    result: Expr = transform(expr, widen)
    return result
