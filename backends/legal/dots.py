"""Dot products of bytes: four steps of a sum as one node.

::

    for r in 4 {dot}: C[i] = C[i] + int32(A[p + r]) * int32(B[q + r])
        ->  C[i] = dot_4x8packed(A32[p // 4], B32[q // 4], C[i])

`A32` is the memory of `A` seen as words of 32 bits, each four bytes that are neighbours.  Four products of bytes fit
32 bits, and the sum wraps around as that of the steps does, so that both sides are equal bit by bit.  Conditions: (1)
the loop's body is that store, of int32, to an element that does not move, and both factors are int8 or uint8, of other
memory; (2) along the loop both are read at neighbours, the first of them a multiple of four whatever the other
variables are, in all lanes; (3) both lie in memory of one axis; (4) the target has dot products of such bytes.
"""

from __future__ import annotations

from ...ir import dtypes
from ...ir.arith.linear import Linear, as_ramp, build, divide, shared_form, variables_of
from ...ir.expr import (
    DOT_CALLS,
    DOT_STEPS,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Var,
    as_int,
    const,
)
from ...ir.node import rebuild, walk
from ...ir.passes.loop_extents import is_dot
from ...ir.stmt import For, Stmt, Store
from ...ir.target import Target
from ..passes.errors import LoweringError


def dot_products(stmt: Stmt, target: Target) -> Stmt:
    """The statement with every loop of four steps that is annotated with `dot` as one node.

    At a ragged edge there may be fewer steps, which stay a loop.  Raises LoweringError where a condition fails.
    """
    for call in (n for n in walk(stmt) if isinstance(n, Call) and n.name in DOT_CALLS):
        if call.name[-2:] not in target.dot_signs:
            raise LoweringError(f"`{target.name}` has no `{call.name}`; write the four products out")
    return _rewritten(stmt, target)


def _rewritten(stmt: Stmt, target: Target) -> Stmt:
    if isinstance(stmt, For) and is_dot(stmt) and stmt.extent == const(DOT_STEPS):
        return _dot(stmt, target)
    result: Stmt = rebuild(stmt, lambda child: _rewritten(child, target) if isinstance(child, Stmt) else child)
    return result


def _dot(loop: For, target: Target) -> Store:
    store, *factors = _product_of(loop)
    signs = "".join("u" if dtypes.element(load.dtype) == "uint8" else "s" for load in factors)
    if signs not in target.dot_signs:
        kinds = " and ".join(dtypes.element(load.dtype) for load in factors)
        raise LoweringError(
            f"loop `{loop.var.name}` is annotated with `dot`, but `{target.name}` has no dot products of {kinds}; "
            f"unannotate the loop"
        )
    lanes = dtypes.lanes(store.value.dtype)
    a, b = (_words(loop, load, lanes) for load in factors)
    own = Load(store.buffer, store.indices)
    return Store(store.buffer, store.indices, Call(f"dot_4x8packed_{signs}", (a, b, own), store.value.dtype))


def _product_of(loop: For) -> tuple[Store, Load, Load]:
    """The store and the factors of condition (1)."""
    store = loop.body
    if isinstance(store, Store) and dtypes.element(store.buffer.dtype) == "int32" and isinstance(store.value, Binary):
        own, parts = Load(store.buffer, store.indices), (store.value.a, store.value.b)
        for mine, product in (parts, parts[::-1]):
            if store.value.op == "+" and mine == own and isinstance(product, Binary) and product.op == "*":
                a, b = _byte(product.a), _byte(product.b)
                if a is not None and b is not None and _is_one_sum(loop, store, a, b):
                    return store, a, b
    raise LoweringError(
        f"loop `{loop.var.name}` is annotated with `dot`, but its body is not one store "
        f"`C[i] = C[i] + int32(A[..]) * int32(B[..])` of A and B in bytes, to one element and without a condition; "
        f"compute over or peel the edge, or unannotate the loop"
    )


def _is_one_sum(loop: For, store: Store, *factors: Load) -> bool:
    """Whether all steps add to the same element, and none reads what another has written."""
    moves = any(loop.var in variables_of(index) for index in store.indices)
    return not moves and all(factor.buffer.memory != store.buffer.memory for factor in factors)


def _byte(factor: Expr) -> Load | None:
    """The load of bytes that a factor widens to int32, in one lane or many."""
    is_cast = False
    while isinstance(factor, (Cast, Broadcast)):
        if isinstance(factor, Cast) and dtypes.element(factor.dtype) != "int32":
            return None
        is_cast = is_cast or isinstance(factor, Cast)
        factor = factor.value if isinstance(factor, Broadcast) else factor.a
    of_bytes = isinstance(factor, Load) and dtypes.element(factor.dtype) in ("int8", "uint8")
    return factor if is_cast and of_bytes and isinstance(factor, Load) else None


def _words(loop: For, load: Load, lanes: int) -> Expr:
    """The words that the four steps of a load read, by conditions (2) and (3)."""
    if len(load.indices) > 1:
        raise LoweringError(
            f"loop `{loop.var.name}` is annotated with `dot`, but reads `{load.buffer.name}` from texture memory, "
            f"which has no words of bytes"
        )
    (position,) = load.indices
    ramp = as_ramp(position)
    form = None if ramp is None or not isinstance(ramp[1], Const) else _quarter(ramp[0], loop.var)
    if ramp is None or form is None or as_int(ramp[1]) % DOT_STEPS:
        raise LoweringError(
            f"loop `{loop.var.name}` is annotated with `dot`, but its {DOT_STEPS} steps do not read "
            f"`{load.buffer.name}` at neighbours of which the first is at a multiple of {DOT_STEPS}; let the reduction "
            f"be the last dimension, in a layout whose rows are multiples of {DOT_STEPS} elements"
        )
    buffer = load.buffer
    view = Buffer(f"{buffer.name}_words", (buffer.size // DOT_STEPS,), "int32", buffer.scope, (), buffer.memory)
    base, stride = build(form), as_int(ramp[1]) // DOT_STEPS
    count = dtypes.lanes(position.dtype)
    if count > 1 and stride:
        return Load(view, (Ramp(base, Const(stride), count),))
    word = Load(view, (base,))
    return word if lanes == 1 else Broadcast(word, lanes)


def _quarter(position: Expr, var: Var) -> Linear | None:
    """``p // 4`` of a position ``p + var`` with p a multiple of four; None where that is not known."""
    terms, constant = shared_form(position)
    rest = {atom: k for atom, k in terms.items() if atom != var}
    apart = terms.get(var) == 1 and not any(var in variables_of(atom) for atom in rest)
    if not apart or constant % DOT_STEPS or any(k % DOT_STEPS for k in rest.values()):
        return None
    return divide((rest, constant), DOT_STEPS)
