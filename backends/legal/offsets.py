"""Dot products of bytes of one kind of signs, where the instruction takes an unsigned and a signed operand.

With ``x ^ 0x80`` for the bytes of a word, which adds 128 to signed ones and takes 128 from unsigned ones, and a word
``H = 0x80808080``::

    dot_ss(a, b, c)  =  dot_us(a ^ H, b, c) - dot_us(H, b, 0)
    dot_uu(a, b, c)  =  dot_us(a, b ^ H, c) - dot_us(a, H, 0)

modulo 2**32.  In a nest of loops that adds up a tile, what is taken away depends on one operand alone and is summed
beside the tile, once for all of its rows::

    for k: for i: for j: C[i, j] = dot_ss(A[k, i], B[k, j], C[i, j])
        ->  for j: D[j] = 0
            for k: { for j: D[j] = dot_us(H, B[k, j], D[j])
                     for i: for j: C[i, j] = dot_us(A[k, i] ^ H, B[k, j], C[i, j]) }
            for i: for j: C[i, j] = C[i, j] - D[j]

Conditions: (1) the loops are serial or unrolled, each directly inside of the one before, around that one store to
registers; (2) those that say which element is stored are inside of all others; (3) the operands are of other memory.
Other dot products stay as they are.
The offset is that of oneDNN's int8 products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ...ir import dtypes
from ...ir.arith.linear import variables_of
from ...ir.expr import Binary, Broadcast, Buffer, Call, Const, Expr, Load, Ramp, Var, as_int, binary, const, substitute
from ...ir.functions import DOT_CALLS
from ...ir.isa import dot_product
from ...ir.node import rebuild, walk
from ...ir.stmt import Allocate, For, Seq, Stmt, Store, fresh, names_below
from ...ir.target import Target

HALF = -0x7F7F7F80
"""The word of four bytes 0x80, as int32."""
_TOGGLED = {"s": "u", "u": "s"}


@dataclass(frozen=True)
class _Sum:
    """A nest that adds up a tile: `over` are the loops of the sum, `tile` those over the tile's elements."""

    over: tuple[For, ...]
    tile: tuple[For, ...]
    store: Store
    call: Call

    def loops_of(self, operand: Expr) -> tuple[For, ...]:
        """The loops of the tile on which an operand depends."""
        return tuple(loop for loop in self.tile if loop.var in variables_of(operand))


def offset_dots(stmt: Stmt, target: Target) -> Stmt:
    """The statement with sums of bytes of equal signs by the instruction for different ones, where that is the faster.

    On other targets the statement itself.
    """
    mixed = dot_product("us", target.cpu_features) if target.kind == "cpu" else None
    if mixed is None or mixed.in_pairs:
        return stmt
    rows = {signs: dot_product(signs, target.cpu_features) for signs in ("ss", "uu")}
    wanted = frozenset(signs for signs, row in rows.items() if row is None or row.in_pairs)
    return _visit(stmt, wanted, set(names_below(stmt)))


def _visit(stmt: Stmt, wanted: frozenset[str], taken: set[str]) -> Stmt:
    if isinstance(stmt, For) and (found := _sum_of(stmt)) is not None and found.call.name[-2:] in wanted:
        return _offset(found, taken)
    result: Stmt = rebuild(stmt, lambda child: _visit(child, wanted, taken) if isinstance(child, Stmt) else child)
    return result


def _sum_of(loop: For) -> _Sum | None:
    """The nest that `loop` begins, by conditions (1) to (3); None where it is another."""
    nest: list[For] = []
    body: Stmt = loop
    while isinstance(body, For) and body.kind in ("serial", "unrolled") and isinstance(body.extent, Const):
        nest.append(body)
        body = body.body
    if not isinstance(body, Store) or body.buffer.scope != "local" or len(body.indices) != 1:
        return None
    call, stored = body.value, variables_of(body.indices[0])
    if not isinstance(call, Call) or call.name not in DOT_CALLS or call.args[2] != Load(body.buffer, body.indices):
        return None
    if any(isinstance(n, Load) and n.buffer.memory == body.buffer.memory for a in call.args[:2] for n in walk(a)):
        return None
    first = next((n for n, item in enumerate(nest) if item.var in stored), len(nest))
    if first == 0 or not all(item.var in stored for item in nest[first:]):
        return None
    return _Sum(tuple(nest[:first]), tuple(nest[first:]), body, call)


def _offset(found: _Sum, taken: set[str]) -> Stmt:
    """The nest, with what is too much summed beside it and taken away at the end."""
    name, lanes = found.store.buffer.name, dtypes.lanes(found.call.dtype)
    # Operand 0 is made unsigned or signed, or operand 1: what is summed beside the tile depends on the other one.
    sizes = [prod(as_int(loop.extent) for loop in found.loops_of(operand)) for operand in found.call.args[:2]]
    flipped = 0 if sizes[1] <= sizes[0] else 1
    signs = list(found.call.name[-2:])
    signs[flipped] = _TOGGLED[signs[flipped]]
    function = f"{found.call.name[:-2]}{''.join(signs)}"
    half: Expr = Const(HALF, "int32") if lanes == 1 else Broadcast(Const(HALF, "int32"), lanes)
    beside = found.loops_of(found.call.args[1 - flipped])
    count = prod(as_int(loop.extent) for loop in beside)
    extra = Buffer(_new(f"{name}_offset", taken), (count * lanes,), "int32", "local")

    def place(loops: Sequence[For]) -> tuple[Expr, ...]:
        at: Expr = const(0)
        for loop in loops:
            at = binary("+", binary("*", at, as_int(loop.extent)), loop.var)
        at = binary("*", at, lanes)
        return (at if lanes == 1 else Ramp(at, const(1), lanes),)

    args = list(found.call.args[:2])
    args[flipped] = half
    own = Load(extra, place(beside))
    added = Store(extra, own.indices, Call(function, (*args, own), found.call.dtype))
    args = list(found.call.args[:2])
    args[flipped] = Call("bitwise_xor", (args[flipped], half), found.call.dtype)
    tile = Load(found.store.buffer, found.store.indices)
    update = replace(found.store, value=Call(function, (*args, tile), found.call.dtype))
    zero: Expr = Const(0, "int32") if lanes == 1 else Broadcast(Const(0, "int32"), lanes)
    body = Seq((_nest(beside, added, taken), _around(found.tile, update)))
    finished = replace(found.store, value=Binary("-", tile, own))
    before = _nest(beside, Store(extra, own.indices, zero), taken)
    return Allocate(extra, Seq((before, _around(found.over, body), _nest(found.tile, finished, taken))))


def _around(loops: Sequence[For], body: Stmt) -> Stmt:
    for loop in reversed(loops):
        body = replace(loop, body=body)
    return body


def _nest(loops: Sequence[For], body: Stmt, taken: set[str]) -> Stmt:
    """`body` in a copy of `loops` with variables of their own."""
    for loop in reversed(loops):
        var = Var(_new(loop.var.name, taken), loop.var.dtype)
        inner: Stmt = substitute(body, {loop.var: var})
        body = replace(loop, var=var, body=inner)
    return body


def _new(name: str, taken: set[str]) -> str:
    found = fresh(name, taken)
    taken.add(found)
    return found
