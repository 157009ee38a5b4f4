"""Dot products of bytes: four steps of a sum as one function of the device.

::

    for r in 4 {dot}: C[i] = C[i] + int32(A[p + r]) * int32(B[q + r])
        ->  C[i] = C[i] + dot_4x8(A32[p // 4], B32[q // 4])

`A32` is the memory of `A` seen as words of 32 bits, each four bytes that are neighbours; ``dot_4x8`` adds up the four
products of two words, of each lane where they are vectors.  Four products of bytes fit 32 bits, and the sum wraps
around as that of the steps does, so that both sides are equal bit by bit.  Conditions: (1) the loop's body is that
store, of int32, to an element that does not move, and both factors are int8, of other memory; (2) along the loop both
are read at neighbours, the first of them a multiple of four whatever the other variables are, in all lanes; (3) both
are buffers and no images.
"""

from __future__ import annotations

from ...ir import dtypes
from ...ir.arith.linear import Linear, as_ramp, build, divide, shared_form, variables_of
from ...ir.expr import Binary, Broadcast, Buffer, Call, Cast, Const, Expr, Load, Ramp, Var, as_int
from ...ir.stmt import For, Store
from ...ir.target import DOT_STEPS
from ..llvm.types import CodegenError

DOT = "dot_4x8"
"""The name of the call; no program has it, since it is made here and written at once."""


def dot_product(store: Store, first: Expr, second: Expr) -> Store:
    """The store that does all steps of a loop, whose words `first` and `second` are."""
    value = Binary("+", Load(store.buffer, store.indices), Call(DOT, (first, second), store.value.dtype))
    return Store(store.buffer, store.indices, value)


def product_of(loop: For) -> tuple[Store, Load, Load]:
    """The store and the factors of condition (1).  Raises CodegenError where the loop has another body."""
    store = loop.body
    if isinstance(store, Store) and dtypes.element(store.buffer.dtype) == "int32" and isinstance(store.value, Binary):
        own, parts = Load(store.buffer, store.indices), (store.value.a, store.value.b)
        for mine, product in (parts, parts[::-1]):
            if store.value.op == "+" and mine == own and isinstance(product, Binary) and product.op == "*":
                a, b = _byte(product.a), _byte(product.b)
                if a is not None and b is not None and _is_one_sum(loop, store, a, b):
                    return store, a, b
    raise CodegenError(
        f"loop `{loop.var.name}` is annotated with `dot`, but its body is not one store "
        f"`C[i] = C[i] + int32(A[..]) * int32(B[..])` of int8 A and B, to one element and without a condition; compute "
        f"over or peel the edge, or unannotate the loop"
    )


def _is_one_sum(loop: For, store: Store, *factors: Load) -> bool:
    """Whether all steps add to the same element, and none reads what another has written."""
    moves = any(loop.var in variables_of(index) for index in store.indices)
    return not moves and all(factor.buffer.memory != store.buffer.memory for factor in factors)


def _byte(factor: Expr) -> Load | None:
    """The load of int8 that a factor widens to int32, in one lane or many."""
    is_cast = False
    while isinstance(factor, (Cast, Broadcast)):
        if isinstance(factor, Cast) and dtypes.element(factor.dtype) != "int32":
            return None
        is_cast = is_cast or isinstance(factor, Cast)
        factor = factor.value if isinstance(factor, Broadcast) else factor.a
    return factor if is_cast and isinstance(factor, Load) and dtypes.element(factor.dtype) == "int8" else None


def words(loop: For, load: Load, position: Expr, lanes: int) -> Expr:
    """The words that the four steps of a load read, by its flat `position`.  Raises CodegenError by condition (2)."""
    ramp = as_ramp(position)
    form = None if ramp is None or not isinstance(ramp[1], Const) else _quarter(ramp[0], loop.var)
    if ramp is None or form is None or as_int(ramp[1]) % DOT_STEPS:
        raise CodegenError(
            f"loop `{loop.var.name}` is annotated with `dot`, but its {DOT_STEPS} steps do not read "
            f"`{load.buffer.name}` at neighbours of which the first is at a multiple of {DOT_STEPS}; let the reduction "
            f"be the last dimension, in a layout whose rows are multiples of {DOT_STEPS} elements"
        )
    buffer = load.buffer
    view = Buffer(buffer.name, (buffer.size // DOT_STEPS,), "int32", buffer.scope, (), buffer.memory)
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
