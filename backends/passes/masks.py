"""Loops annotated ``mask``: the lanes for which a condition holds, without a branch.

::

    for v in 16 {vectorized, mask}: if io*16 + v < N: C[io*16 + v] = A[io*16 + v]
        ->  C[ramp(io*16, 1, 16)] = A[ramp(io*16, 1, 16)]    in the lanes where ramp(io*16, 1, 16) < N

A lane whose condition fails changes no memory, and what it reads has no effect.  A loop keeps the annotation where it
has such a form (`Lanes`): its conditions on the lane are affine, what it reads under them varies
with the lane by one element, or not at all and is in bounds anyway, and the target has masks for
all types that are read or written.  Elsewhere the annotation goes, and the conditions are
branches.

These are the loops that keep their masks; what a mask is to an access decide `legal.masks`, for CPUs, as nodes, and
`render.opencl.masks` by what OpenCL C has.

A register tile has all its lanes: where nothing outside of the condition reads what the tile
holds where it fails, the statement runs without the condition, on inputs that are read under it::

    for v {mask}: if c(v): T[v] = T[v] + a * B[v]  ->  for v {mask}: T[v] = T[v] + a * if_then_else(c(v), B[v], 0)
"""

from __future__ import annotations

from dataclasses import replace

from ...ir import dtypes
from ...ir.arith.compare import decide_zero
from ...ir.arith.intervals import Facts, nothing_known
from ...ir.arith.linear import Linear, add, scale, shared_form, variables_of
from ...ir.expr import (
    Binary,
    Buffer,
    Call,
    Expr,
    Load,
    Var,
    all_of,
    binary,
    conjuncts,
    const,
    if_then_else,
    reads_memory,
)
from ...ir.node import Node, children, rebuild, walk
from ...ir.passes.loop_extents import is_masked
from ...ir.stmt import Allocate, For, If, Seq, Stmt, Store, walk_stmts
from .scopes import Access, accesses

Form = tuple[str, frozenset[tuple[Expr | int, int]], int]
"""A comparison with zero: its operator, its terms, which are atoms and numbers of dimensions, and its constant."""


def without_mask(loop: For) -> For:
    """The loop without the annotation."""
    return replace(loop, annotations=tuple(a for a in loop.annotations if a[0] != "mask"))


def is_lane_condition(cond: Expr, lane: Var) -> bool:
    """Whether `cond` compares affine index expressions of the lane."""
    if not isinstance(cond, Binary) or cond.op not in ("<", "<=", ">", ">=", "==", "!="):
        return False
    if cond.a.dtype != dtypes.INDEX or reads_memory(cond):
        return False
    terms, _ = add(shared_form(cond.a), shared_form(cond.b), -1)
    return lane in terms and not any(lane in variables_of(atom) for atom in terms if atom != lane)


# ---------------------------------------------------------------- regions of private buffers


def without_lane_conditions(stmt: Stmt) -> Stmt:
    """`stmt` as if the conditions on the lanes of masked loops always held: what its vectors may span."""
    return _unconditional(stmt, frozenset())


def _unconditional(stmt: Stmt, lanes: frozenset[Var]) -> Stmt:
    if isinstance(stmt, For) and is_masked(stmt):
        lanes |= {stmt.var}
    result: Stmt = rebuild(stmt, lambda child: _unconditional(child, lanes) if isinstance(child, Stmt) else child)
    if not isinstance(result, If) or result.orelse is not None:
        return result
    parts = conjuncts(result.cond)
    kept = [c for c in parts if not any(is_lane_condition(c, lane) for lane in lanes)]
    return result if len(kept) == len(parts) else If(all_of(kept), result.then) if kept else result.then


# ---------------------------------------------------------------- register tiles


def fill_tiles(stmt: Stmt, strict: bool = False) -> Stmt:
    """Statements on register tiles without the conditions on their lanes, where nobody sees the difference."""
    if not any(isinstance(n, For) and is_masked(n) for n in walk_stmts(stmt)):
        return stmt
    return _fill(stmt, nothing_known(strict), frozenset(), frozenset())


def _fill(stmt: Stmt, facts: Facts, lanes: frozenset[Var], tiles: frozenset[Buffer]) -> Stmt:
    if isinstance(stmt, Allocate):
        if stmt.buffer.scope == "local" and _is_unobserved(stmt.buffer, stmt.body, facts):
            tiles |= {stmt.buffer}
        return replace(stmt, body=_fill(stmt.body, facts, lanes, tiles))
    if isinstance(stmt, For):
        lanes = lanes | {stmt.var} if is_masked(stmt) else lanes
        return replace(stmt, body=_fill(stmt.body, facts.looping(stmt.var, stmt.extent), lanes, tiles))
    if isinstance(stmt, If) and stmt.orelse is None:
        parts = conjuncts(stmt.cond)
        own = [c for c in parts if any(is_lane_condition(c, lane) for lane in lanes)]
        rest = [c for c in parts if c not in own]
        inside = facts.assuming(all_of(rest))
        if own and _fits(stmt.then, tiles, inside, lanes):
            filled = _under(stmt.then, all_of(own), lanes)
            return If(all_of(rest), filled) if rest else filled
    if isinstance(stmt, If):
        then = _fill(stmt.then, facts.assuming(stmt.cond), lanes, tiles)
        other = None if stmt.orelse is None else _fill(stmt.orelse, facts.assuming(stmt.cond, False), lanes, tiles)
        return If(stmt.cond, then, other)
    result: Stmt = rebuild(stmt, lambda child: _fill(child, facts, lanes, tiles) if isinstance(child, Stmt) else child)
    return result


def _fits(stmt: Stmt, tiles: frozenset[Buffer], facts: Facts, lanes: frozenset[Var]) -> bool:
    """Whether `stmt` only stores to `tiles`, and needs no condition on the lanes where it is not read under one."""
    if isinstance(stmt, Seq):
        return all(_fits(s, tiles, facts, lanes) for s in stmt.stmts)
    return (
        isinstance(stmt, Store)
        and stmt.buffer in tiles
        and is_inside(stmt.buffer, stmt.indices, facts)
        and is_safe(stmt.value, facts, lanes)
    )


def is_safe(expr: Expr, facts: Facts, lanes: frozenset[Var] = frozenset()) -> bool:
    """Whether intervals prove in bounds all that `expr` reads, besides what it reads along the lanes from elsewhere."""
    if not reads_memory(expr):
        return True
    if isinstance(expr, Call) and expr.name == "if_then_else":
        cond, a, b = expr.args
        sides = ((a, facts.assuming(cond)), (b, facts.assuming(cond, False)))
        return is_safe(cond, facts, lanes) and all(is_safe(side, inside, lanes) for side, inside in sides)
    own = isinstance(expr, Load) and (expr.buffer.scope == "local" or not _varies(expr, lanes))
    if own and isinstance(expr, Load) and not is_inside(expr.buffer, expr.indices, facts):
        return False
    return all(is_safe(child, facts, lanes) for child in children(expr) if isinstance(child, Expr))


def _varies(load: Load, lanes: frozenset[Var]) -> bool:
    return any(not lanes.isdisjoint(variables_of(index)) for index in load.indices)


def is_inside(buffer: Buffer, indices: tuple[Expr, ...], facts: Facts) -> bool:
    """Whether intervals prove the access in bounds."""
    if not buffer.is_fixed:
        return False
    intervals = [facts.interval(i) for i in indices]
    return all(low >= 0 and high < size for (low, high), size in zip(intervals, buffer.shape, strict=True))


def _under(stmt: Stmt, cond: Expr, lanes: frozenset[Var]) -> Stmt:
    """`stmt` with what it reads along the lanes read where `cond` holds, and zero elsewhere."""

    def visit(node: Node) -> Node:
        if isinstance(node, Call) and node.name == "if_then_else":
            chosen, load, other = node.args
            if isinstance(load, Load) and not reads_memory(chosen) and not reads_memory(other):
                masked = load.buffer.scope != "local" and _varies(load, lanes)
                return if_then_else(binary("and", chosen, cond), load, other) if masked else node
        if isinstance(node, Load):
            masked = node.buffer.scope != "local" and _varies(node, lanes)
            return if_then_else(cond, node, const(0, node.dtype)) if masked else node
        if isinstance(node, Expr) and not reads_memory(node):
            return node
        result: Node = rebuild(node, visit)
        return result

    filled = visit(stmt)
    assert isinstance(filled, Stmt)
    return filled


def _is_unobserved(buffer: Buffer, body: Stmt, facts: Facts) -> bool:
    """Whether every element that a masked write leaves out is read only under that write's condition.

    The condition speaks of the element: ``io*16 + vo*4 + v < N`` at ``T[vo, v]`` is ``io*16 + d0*4 + d1 < N``.
    """
    if any(isinstance(n, (Load, Store)) and n.buffer.data == buffer.name for n in walk(body)):
        return False
    found = list(accesses(body, frozenset((buffer,)), facts))
    written = {_element_conditions(a) for a in found if a.is_write and _lane_conditions(a)}
    if len(written) != 1:
        return False
    (own,) = written
    return own is not None and all(a.is_write or all(_holds(form, a) for form in own) for a in found)


def _holds(form: Form, access: Access) -> bool:
    """Whether a condition on elements holds for those of an access: it is tested there, or follows from the loops."""
    if form in (_element_conditions(access) or ()):
        return True
    op, terms, constant = form
    if not all(access.facts.is_exact(shared_form(index)) for index in access.indices):
        return False
    value: Linear = ({}, constant)
    for term, factor in terms:
        value = add(value, shared_form(access.indices[term] if isinstance(term, int) else term), factor)
    return decide_zero(op, *access.facts.of_form(value)) is True


def _lane_conditions(access: Access) -> list[Expr]:
    lanes = {loop.var for loop in access.loops if is_masked(loop)}
    return [c for cond in access.conditions for c in conjuncts(cond) if any(is_lane_condition(c, v) for v in lanes)]


def _element_conditions(access: Access) -> frozenset[Form] | None:
    """The conditions on the lanes of an access as conditions on the element; None where one of them is not."""
    forms = [_element_condition(c, access) for c in _lane_conditions(access)]
    return None if None in forms else frozenset(f for f in forms if f is not None)


def _element_condition(cond: Expr, access: Access) -> Form | None:
    assert isinstance(cond, Binary)
    sides = shared_form(cond.a), shared_form(cond.b)
    if not all(map(access.facts.is_exact, (*sides, *map(shared_form, access.indices)))):
        return None
    form, inner = add(*sides, -1), access.bound_below(0)
    op = cond.op
    if op in (">", ">="):
        form, op = scale(form, -1), "<" if op == ">" else "<="
    if op == "<":
        form, op = (form[0], form[1] + 1), "<="
    factors: dict[int, int] = {}
    for dim, index in enumerate(access.indices):
        own: Linear = shared_form(index)
        shared = [(k, form[0][a]) for a, k in own[0].items() if a in form[0] and not inner.isdisjoint(variables_of(a))]
        if not shared or shared[0][1] % shared[0][0]:
            continue
        factors[dim] = shared[0][1] // shared[0][0]
        form = add(form, own, -factors[dim])
    if any(not variables_of(atom).isdisjoint(inner) for atom in form[0]):
        return None
    return op, frozenset([*form[0].items(), *factors.items()]), form[1]
