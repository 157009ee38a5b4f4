"""Dot products of bytes whose steps are no words in memory, such as the taps of a window: words are put together.

::

    for k in 3 {unrolled}: for i {unrolled}: C[i] = C[i] + int32(A[p(k, i)]) * int32(B[q(k, i)])
        ->  for i {unrolled}: C[i] = dot_4x8packed_us(pack_4x8(A[p(0, i)], A[p(1, i)], A[p(2, i)], A[p(2, i)]),
                                                      pack_4x8(B[q(0, i)], B[q(1, i)], B[q(2, i)], 0), C[i])

Widened bytes take a conversion, a product and a sum for each step; a word takes a shuffle or two, and neighbours of a
window share theirs.  Steps are taken four at a time, and fewer are filled up with products by 0; one that is left alone
stays as it was.  Sums of int32 wrap around, so that both sides are equal bit by bit.  Conditions: (1) the loops are
unrolled, each directly inside of the one before, around that one store of lanes to a register tile, whose element does
not depend on k; nor does a condition around it; (2) both factors are int8 or uint8, of other memory; (3) the target has
an instruction that multiplies bytes.  Of several such loops the one is taken that leaves the fewest words to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...ir import dtypes
from ...ir.arith.linear import as_ramp, shared_form, variables_of
from ...ir.expr import Binary, Broadcast, Call, Cast, Const, Expr, Load, as_int, const, substitute
from ...ir.functions import DOT_STEPS, PACK_4X8
from ...ir.isa import dot_product
from ...ir.node import rebuild, walk
from ...ir.stmt import For, If, Stmt, Store
from ...ir.target import Target

BYTES = {"int8": "s", "uint8": "u"}
PACKING = 4
"""Instructions for a word of each lane, against one for a dot product."""


@dataclass(frozen=True)
class _Nest:
    """Unrolled loops around `store`, with the condition before it, and the bytes that the two factors widen."""

    loops: tuple[For, ...]
    guard: Expr | None
    store: Store
    factors: tuple[Expr, Expr]


def tap_dots(stmt: Stmt, target: Target) -> Stmt:
    """The statement, for a CPU by condition (3), with every such nest as dot products."""
    row = dot_product("us", target.cpu_features) if target.kind == "cpu" else None
    return stmt if row is None or row.in_pairs else _visit(stmt)


def _visit(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and (nest := _nest_of(stmt)) is not None and (loop := _best(nest)) is not None:
        return _as_dots(nest, loop)
    result: Stmt = rebuild(stmt, lambda child: _visit(child) if isinstance(child, Stmt) else child)
    return result


def _nest_of(stmt: For) -> _Nest | None:
    """The nest that `stmt` begins, by conditions (1) and (2)."""
    loops: list[For] = []
    body: Stmt = stmt
    while isinstance(body, For) and body.kind == "unrolled" and isinstance(body.extent, Const):
        loops.append(body)
        body = body.body
    guard = None
    if isinstance(body, If) and body.orelse is None:
        guard, body = body.cond, body.then
    if not loops or not isinstance(body, Store) or body.buffer.scope != "local" or dtypes.lanes(body.value.dtype) < 2:
        return None
    value, own = body.value, Load(body.buffer, body.indices)
    if dtypes.element(value.dtype) != "int32" or not isinstance(value, Binary) or value.op != "+":
        return None
    for mine, product in ((value.a, value.b), (value.b, value.a)):
        if mine == own and isinstance(product, Binary) and product.op == "*":
            a, b = _bytes(product.a), _bytes(product.b)
            others = {node.buffer.memory for node in walk(product) if isinstance(node, Load)}
            if a is not None and b is not None and body.buffer.memory not in others:
                return _Nest(tuple(loops), guard, body, (a, b))
    return None


def _bytes(factor: Expr) -> Expr | None:
    """The bytes that a factor widens, a scalar where all lanes have the same."""
    wide = factor.value if isinstance(factor, Broadcast) else factor
    if not isinstance(wide, Cast) or dtypes.element(wide.dtype) != "int32":
        return None
    found = wide.a.value if isinstance(wide.a, Broadcast) else wide.a
    return found if dtypes.element(found.dtype) in BYTES else None


def _best(nest: _Nest) -> For | None:
    """The loop over the steps that become dot products, the innermost on a tie."""
    conditions = () if nest.guard is None else (nest.guard,)
    fixed = {var for expr in (*nest.store.indices, *conditions) for var in variables_of(expr)}
    steps = [loop for loop in nest.loops if loop.var not in fixed and as_int(loop.extent) > 1]
    return min(reversed(steps), key=lambda loop: _instructions(nest, loop), default=None)


def _instructions(nest: _Nest, loop: For) -> int:
    """About how many instructions packing into words and the dot products over `loop` take."""
    others = [other for other in nest.loops if other is not loop]
    words = sum(_values(factor, others) for factor in nest.factors)
    count = prod(as_int(other.extent) for other in others)
    return -(-as_int(loop.extent) // DOT_STEPS) * (PACKING * words + count)


def _values(factor: Expr, loops: list[For]) -> int:
    """Different values of a factor over some loops: as many as places that it is read from."""
    positions = {node.indices[-1] for node in walk(factor) if isinstance(node, Load)}
    used = [loop for loop in loops if loop.var in variables_of(factor)]
    most = prod(as_int(loop.extent) for loop in used)
    if len(positions) != 1:
        return most
    (position,) = positions
    ramp = as_ramp(position)
    terms, _ = shared_form(position if ramp is None else ramp[0])
    if any(loop.var in variables_of(atom) for loop in used for atom in terms if atom != loop.var):
        return most
    places = {0}
    for loop in used:
        step = terms.get(loop.var, 0)
        places = {place + step * number for place in places for number in range(as_int(loop.extent))}
    return len(places)


def _as_dots(nest: _Nest, loop: For) -> Stmt:
    """The nest without the loop, whose steps are dot products."""
    store, value = nest.store, nest.store.value
    lanes = dtypes.lanes(value.dtype)
    name = "dot_4x8packed_" + "".join(BYTES[dtypes.element(factor.dtype)] for factor in nest.factors)
    total: Expr = Load(store.buffer, store.indices)
    for first in range(0, as_int(loop.extent), DOT_STEPS):
        steps = range(first, min(first + DOT_STEPS, as_int(loop.extent)))
        a, b = ([substitute(factor, {loop.var: const(step)}) for step in steps] for factor in nest.factors)
        if len(steps) == 1:
            product = Binary("*", *(_in_lanes(Cast(_wide(part), part), lanes) for part in (*a, *b)))
            total = Binary("+", total, product)
            continue
        missing = DOT_STEPS - len(steps)
        zero = _in_lanes(const(0, dtypes.element(b[0].dtype)), dtypes.lanes(b[0].dtype))
        filled = a + a[-1:] * missing, b + [zero] * missing
        words = (_in_lanes(Call(PACK_4X8, tuple(parts), _wide(parts[0])), lanes) for parts in filled)
        total = Call(name, (*words, total), value.dtype)
    body: Stmt = Store(store.buffer, store.indices, total)
    body = body if nest.guard is None else If(nest.guard, body)
    for outer in reversed([other for other in nest.loops if other is not loop]):
        body = For(outer.var, outer.extent, body, outer.kind, outer.thread, outer.annotations)
    return body


def _wide(expr: Expr) -> str:
    return dtypes.with_lanes("int32", dtypes.lanes(expr.dtype))


def _in_lanes(expr: Expr, lanes: int) -> Expr:
    """A scalar in all lanes."""
    return expr if dtypes.lanes(expr.dtype) == lanes else Broadcast(expr, lanes)
