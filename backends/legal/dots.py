"""Dot products: four steps of a sum of bytes as one node, or two of bfloat16.

::

    for r in 4 {dot}: C[i] = C[i] + int32(A[p + r]) * int32(B[q + r])
        ->  C[i] = dot_4x8packed(A32[p // 4], B32[q // 4], C[i])
    for r in 2 {dot}: C[i] = C[i] + float32(A[p + r]) * float32(B[q + r])
        ->  C[i] = dot_2x16packed(A32[p // 2], B32[q // 2], C[i])

`A32` is the memory of `A` seen as words of 32 bits, each four bytes that are neighbours, or two bfloat16.  In the place
of ``A[p + r]`` may stand some bits of it, which are taken of all bytes of the word (`ir.arith.byte_lanes`).  Four
products of bytes fit 32 bits, and the sum wraps around as that of the steps does, so that both sides are equal bit by
bit.  Those of bfloat16 are exact in float32; their sum is rounded in another order, and subnormal numbers count as
zeros (see `expr.PAIR_CALLS`).  Conditions: (1) the loop's body is that store, of int32 or float32, to an element that
does not move, and both factors are int8 or uint8, or bfloat16, of other memory, or the same bits of uint8 in all steps;
(2) along the loop both are read at neighbours, the first of them a multiple of the steps whatever the other variables
are, in all lanes; (3) both lie in memory of one axis; (4) the target has dot products of such operands.
"""

from __future__ import annotations

from ...ir import dtypes
from ...ir.arith.byte_lanes import bits_of, in_words
from ...ir.arith.linear import Linear, as_ramp, build, divide, shared_form, variables_of
from ...ir.expr import (
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
    binary,
    const,
    variables,
)
from ...ir.extents import as_extent
from ...ir.functions import DOT_CALLS, PAIR_CALLS
from ...ir.isa import PAIRS, dot_steps
from ...ir.node import rebuild, walk
from ...ir.passes.flat import product
from ...ir.passes.loop_extents import is_dot
from ...ir.stmt import For, Stmt, Store
from ...ir.target import Target
from ..passes.errors import LoweringError


def dot_products(stmt: Stmt, target: Target) -> Stmt:
    """The statement with every loop of so many steps that is annotated with `dot` as one node.

    At a ragged edge there may be fewer steps, which stay a loop.  Raises LoweringError where a condition fails.
    """
    for call in (n for n in walk(stmt) if isinstance(n, Call) and n.name in (*DOT_CALLS, *PAIR_CALLS)):
        if call.name[-2:] not in target.dot_signs:
            raise LoweringError(f"`{target.name}` has no `{call.name}`; write the products out")
    return _rewritten(stmt, target)


def _rewritten(stmt: Stmt, target: Target) -> Stmt:
    if isinstance(stmt, For) and is_dot(stmt) and stmt.extent == const(_steps(stmt)):
        return _dot(stmt, target)
    result: Stmt = rebuild(stmt, lambda child: _rewritten(child, target) if isinstance(child, Stmt) else child)
    return result


def _steps(loop: For) -> int:
    """How many steps of a loop are one dot product, by the type of what it reads."""
    pairs = any(isinstance(n, Load) and dtypes.element(n.dtype) == "bfloat16" for n in walk(loop.body))
    return dot_steps(PAIRS if pairs else "")


def _dot(loop: For, target: Target) -> Store:
    store, *factors = _product_of(loop)
    kinds = [dtypes.element(factor.dtype) for factor in factors]
    signs = PAIRS if kinds[0] == "bfloat16" else "".join("u" if kind == "uint8" else "s" for kind in kinds)
    if signs not in target.dot_signs:
        raise LoweringError(
            f"loop `{loop.var.name}` is annotated with `dot`, but `{target.name}` has no dot products of "
            f"{' and '.join(kinds)}; unannotate the loop"
        )
    lanes = dtypes.lanes(store.value.dtype)
    a, b = (_in_words(loop, factor, lanes) for factor in factors)
    own = Load(store.buffer, store.indices)
    name = next(name for name in (*DOT_CALLS, *PAIR_CALLS) if name.endswith(signs))
    return Store(store.buffer, store.indices, Call(name, (a, b, own), store.value.dtype))


def _product_of(loop: For) -> tuple[Store, Expr, Expr]:
    """The store and the factors of condition (1)."""
    store = loop.body
    if isinstance(store, Store) and dtypes.element(store.buffer.dtype) in _NARROW and isinstance(store.value, Binary):
        own, parts = Load(store.buffer, store.indices), (store.value.a, store.value.b)
        for mine, product in (parts, parts[::-1]):
            if store.value.op == "+" and mine == own and isinstance(product, Binary) and product.op == "*":
                a, b = (_narrow(factor, dtypes.element(store.buffer.dtype)) for factor in (product.a, product.b))
                if a is not None and b is not None and _is_one_sum(loop, store, a, b):
                    return store, a, b
    raise LoweringError(
        f"loop `{loop.var.name}` is annotated with `dot`, but its body is not one store "
        f"`C[i] = C[i] + int32(A[..]) * int32(B[..])` of A and B in bytes, or the same of bfloat16 in float32, to one "
        f"element and without a condition; compute over or peel the edge, or unannotate the loop"
    )


def _is_one_sum(loop: For, store: Store, *factors: Expr) -> bool:
    """Whether all steps add to the same element, and none reads what another has written."""
    moves = any(loop.var in variables_of(index) for index in store.indices)
    loads = [bits_of(factor) for factor in factors]
    return not moves and all(load is not None and load.buffer.memory != store.buffer.memory for load in loads)


_NARROW = {"int32": ("int8", "uint8"), "float32": ("bfloat16",)}
"""The types whose products a sum of this type adds up."""


def _narrow(factor: Expr, wide: str) -> Expr | None:
    """The load, or the bits of one, that a factor widens to the type of the sum, in one lane or many."""
    is_cast = False
    while isinstance(factor, (Cast, Broadcast)):
        if isinstance(factor, Cast) and dtypes.element(factor.dtype) != wide:
            return None
        is_cast = is_cast or isinstance(factor, Cast)
        factor = factor.value if isinstance(factor, Broadcast) else factor.a
    fits = bits_of(factor) is not None and dtypes.element(factor.dtype) in _NARROW[wide]
    return factor if is_cast and fits else None


def _in_words(loop: For, factor: Expr, lanes: int) -> Expr:
    """The words of a load, and of bits of one the same bits of each byte."""
    load = bits_of(factor)
    assert load is not None
    found = in_words(factor, _words(loop, load, lanes))
    if loop.var in variables(found):
        raise LoweringError(
            f"loop `{loop.var.name}` is annotated with `dot`, but the bits that it takes of `{load.buffer.name}` are "
            f"others in each step; unannotate the loop"
        )
    return found


def _words(loop: For, load: Load, lanes: int) -> Expr:
    """The words that the steps of a load read, by conditions (2) and (3)."""
    if len(load.indices) > 1:
        raise LoweringError(
            f"loop `{loop.var.name}` is annotated with `dot`, but reads `{load.buffer.name}` from texture memory, "
            f"which has no words"
        )
    (position,), steps = load.indices, _steps(loop)
    ramp = as_ramp(position)
    form = None if ramp is None or not isinstance(ramp[1], Const) else _word(ramp[0], loop.var, steps)
    if ramp is None or form is None or as_int(ramp[1]) % steps:
        raise LoweringError(
            f"loop `{loop.var.name}` is annotated with `dot`, but its {steps} steps do not read "
            f"`{load.buffer.name}` at neighbours of which the first is at a multiple of {steps}; let the reduction "
            f"be the last dimension, in a layout whose rows are multiples of {steps} elements"
        )
    buffer = load.buffer
    words = as_extent(binary("//", product(buffer.extents), steps))
    view = Buffer(f"{buffer.name}_words", (words,), "int32", buffer.scope, (), buffer.memory)
    base, stride = build(form), as_int(ramp[1]) // steps
    count = dtypes.lanes(position.dtype)
    if count > 1 and stride:
        return Load(view, (Ramp(base, Const(stride), count),))
    word = Load(view, (base,))
    return word if lanes == 1 else Broadcast(word, lanes)


def _word(position: Expr, var: Var, steps: int) -> Linear | None:
    """``p // steps`` of a position ``p + var`` with p a multiple of `steps`; None where that is not known."""
    terms, constant = shared_form(position)
    rest = {atom: k for atom, k in terms.items() if atom != var}
    apart = terms.get(var) == 1 and not any(var in variables_of(atom) for atom in rest)
    if not apart or constant % steps or any(k % steps for k in rest.values()):
        return None
    return divide((rest, constant), steps)
