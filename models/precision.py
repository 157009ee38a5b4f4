"""A network whose tensors and weights have 16 bits: sums, and all that is computed, stay in float32.

    y = f(x, w)     ->     y = bfloat16(f(float32(x), float32(w)))

What an edge between two operators holds changes, and so both of its ends: the producer rounds what it stores, the
readers widen what they load, and no operator is added.  Programs compute in float32 as before, so that softmax,
normalisations and sums round as they did; a result that its program reads again, as a sum is, is one of float32 until
it is complete.  Which tensors change:

1. what one program writes and programs alone read, and what leads to a sum of products: what comes after the last of
   these, such as the logits and probabilities of a classifier, keeps its type, and so do inputs and outputs;
2. constants of which only sums of pairs read: weights, but not a bias or a scale;
3. what a program makes of its inputs for sums of pairs alone, as a border around an image, so that both factors of each
   product have 16 bits; a factor that comes in float32 is rounded before.

A sum of pairs is one of products along a dimension that both factors have for it, or parts of one for groups, where two
products can be one instruction.  That of a depthwise convolution is none: what it reads is best widened once, and its
few weights stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import UsageError, did_you_mean
from ..ir import dtypes
from ..ir.arith.constants import rounded
from ..ir.arith.linear import linear_form
from ..ir.expr import Buffer, Call, Cast, Const, Expr, Load, Select, Var
from ..ir.node import transform, walk
from ..ir.numbers import bfloat16_bits
from ..ir.stmt import (
    Block,
    Iter,
    PrimFunc,
    Stmt,
    Store,
    fresh,
    loops,
    names,
    read_buffers,
    replace_buffer,
    seq,
    written_buffers,
)
from ..space.design.program import product_factors
from ..space.errors import ScheduleError
from ..space.primitives.reduction import update_of
from ..space.tree import leaf_blocks, producers
from .network import Array, Network, Operator
from .weights import is_weight

PRECISIONS = ("float32", "bfloat16", "float16")
WIDE = "float32"


def check_precision(dtype: str) -> None:
    """Raise UsageError for a type that is none of `PRECISIONS`."""
    if dtype not in PRECISIONS:
        hint = did_you_mean(str(dtype), PRECISIONS)
        raise UsageError(f"the precision of a network is one of {', '.join(PRECISIONS)}, but got {dtype!r}{hint}")


def in_precision(network: Network, dtype: str, edges: bool = True) -> Network:
    """The network with tensors between its operators, and weights, of type `dtype`; for ``float32`` as it is.

    Without `edges` tensors stay float32, and each operator converts what it multiplies.  Raises UsageError for a type
    that is none of `PRECISIONS`.
    """
    check_precision(dtype)
    if dtype == WIDE:
        return network
    narrow = {name for name in network.constants if _is_narrowed(network, name, dtype)}
    narrow.update(_edges(network) if edges else ())
    tensors = {n: replace(t, dtype=dtype) if n in narrow else t for n, t in network.tensors.items()}
    constants = dict(network.constants)
    for name in narrow & constants.keys():
        wide = constants[name]
        constants[name] = bfloat16_bits(wide) if dtype == "bfloat16" else wide.astype(dtype)
    nodes = tuple(_narrowed(node, narrow, dtype) if isinstance(node, Operator) else node for node in network.nodes)
    return replace(network, tensors=tensors, constants=constants, nodes=nodes)


# ---------------------------------------------------------------- which tensors


def _edges(network: Network) -> Iterator[str]:
    """Tensors by condition 1."""
    leads: set[str] = set()
    for node in reversed(network.nodes):
        sums = isinstance(node, Operator) and any(_products(block) for block in leaf_blocks(node.func.body))
        if sums or leads.intersection(node.outputs):
            leads.update(node.inputs)
    fixed = {*network.inputs, *network.outputs, *network.constants}
    for name in leads - fixed:
        users = (network.producer[name], *network.consumers[name])
        if network.tensors[name].dtype == WIDE and all(_is_open(node) for node in users):
            yield name


def _is_open(node: object) -> bool:
    """Whether the program of a node can be written for other types: none of its buffers is a view of another's."""
    return isinstance(node, Operator) and not any(isinstance(n, Buffer) and n.data for n in walk(node.func))


def _is_narrowed(network: Network, name: str, dtype: str) -> bool:
    """Whether a constant is a weight by condition 2, of numbers that the type can hold."""
    array = network.constants[name]
    if array.dtype != WIDE or not is_weight(network, name):
        return False
    for node in network.consumers[name]:
        if not isinstance(node, Operator) or not _is_open(node):
            return False
        own = {b for b, tensor in zip(node.func.buffers, node.inputs, strict=False) if tensor == name}
        blocks = [block for block in leaf_blocks(node.func.body) if own.intersection(read_buffers(block))]
        if not all(map(_pairs, blocks)):
            return False
    return not bool(np.any(np.abs(array) > dtypes.LARGEST[dtype]))


def _products(block: Block) -> list[Load]:
    """The loads that a block multiplies and adds up, widened or not; none where it does anything else."""
    if not block.reduce:
        return []
    try:
        _, op, value = update_of(block)
    except ScheduleError:
        return []
    factors = [f.a if isinstance(f, Cast) else f for f in product_factors(value)]
    loads = [f for f in factors if isinstance(f, Load)]
    return loads if op == "+" and len(loads) == len(factors) == 2 else []


def _pairs(block: Block) -> list[Load]:
    """The factors of a sum of pairs, as `_products`."""
    loads = _products(block)
    return loads if loads and any(all(_goes_along(load, step) for load in loads) for step in block.reduce) else []


def _goes_along(load: Load, step: Iter) -> bool:
    """Whether some dimension is read along a reduction, from a multiple of its extent on: all of it, or a group's part.

    The steps of a window, ``2*h + kh`` for ``kh`` below 3, overlap, and each of them would need words of its own.
    """
    forms = (linear_form(index) for index in load.indices)
    return any(
        offset == 0 and terms.get(step.var) == 1 and (step.extent > 1 or len(terms) == 1)
        and all(factor % step.extent == 0 for atom, factor in terms.items() if atom != step.var)
        for terms, offset in forms
    )  # fmt: skip


# ---------------------------------------------------------------- one program


def _narrowed(node: Operator, narrow: Collection[str], dtype: str) -> Operator:
    """An operator whose tensors in `narrow` have another type."""
    pairs = zip((*node.inputs, *node.outputs), node.func.buffers, strict=True)
    given = frozenset(buffer.name for tensor, buffer in pairs if tensor in narrow)
    return replace(node, func=narrowed(node.func, given, dtype)) if given else node


def narrowed(func: PrimFunc, given: frozenset[str], dtype: str) -> PrimFunc:
    """A program of float32 whose parameters `given` by name have another type."""
    root, taken = func.body, names(func) | {p.name for p in func.params}
    for buffer in func.buffers:
        if buffer.name in given and buffer in written_buffers(root) and buffer in read_buffers(root):
            wide = replace(buffer, name=_new(f"{buffer.name}_wide", taken))
            stored = _copy(wide, buffer, taken)
            root = replace_buffer(root, buffer, wide)
            root = replace(root, body=seq([root.body, stored]), allocs=(*root.allocs, wide))
    func = replace(func, body=root)
    factors = [load.buffer for block in leaf_blocks(root) for load in _pairs(block)]
    beside = _beside(func, given)
    for buffer in dict.fromkeys(b for b in factors if b.name in beside and b in func.buffers and b.name not in given):
        func = _rounded_before(func, buffer, taken, beside)
    inner = frozenset(b.name for b in func.body.allocs if b.name in _beside(func, given))
    return _retyped(func, given | inner, dtype)


def _beside(func: PrimFunc, given: frozenset[str]) -> set[str]:
    """Buffers of float32 that are factors of sums of pairs alone, each beside one that has the other type by then.

    A factor that the program computes counts as one: it is rounded, as it would be between two programs.
    """
    blocks = leaf_blocks(func.body)
    pairs = [factors for block in blocks if (factors := _pairs(block))]
    others = {n.buffer for block in blocks if not _pairs(block) for n in walk(block) if isinstance(n, Load)}
    free = {b for pair in pairs for b in (load.buffer for load in pair) if b.dtype == WIDE} - others
    free = {b for b in free if b in func.params or producers(func, b)}
    found: set[str] = set()
    for pair in pairs:
        buffers = [load.buffer for load in pair]
        if all(b.name in given or b in free for b in buffers) and any(b.name in given for b in buffers):
            found.update(b.name for b in buffers if b.name not in given)
    return found


def _rounded_before(func: PrimFunc, buffer: Buffer, taken: set[str], beside: set[str]) -> PrimFunc:
    """The program with a copy of a parameter in memory of its own, which its sums of products read."""
    inner = replace(buffer, name=_new(f"{buffer.name}_narrow", taken))
    copy = _copy(buffer, inner, taken)
    beside.add(inner.name)
    root = replace_buffer(func.body, buffer, inner)
    return replace(func, body=replace(root, body=seq([copy, root.body]), allocs=(*root.allocs, inner)))


def _copy(source: Buffer, into: Buffer, taken: set[str]) -> Stmt:
    """A nest that copies a buffer."""
    steps = [Var(_new(f"{into.name}_i{k}", taken)) for k in range(len(into.shape))]
    own = [Var(_new(f"v{step.name}", taken)) for step in steps]
    iters = [Iter(v, e, "spatial", s) for v, e, s in zip(own, into.shape, steps, strict=True)]
    at: tuple[Expr, ...] = tuple(own)
    block = Block(_new(f"{into.name}_copy", taken), tuple(iters), Store(into, at, Load(source, at)))
    return loops(list(zip(steps, into.shape, strict=True)), block)


def _new(name: str, taken: set[str]) -> str:
    found = fresh(name, taken)
    taken.add(found)
    return found


def _retyped(func: PrimFunc, narrow: frozenset[str], dtype: str) -> PrimFunc:
    """The program with these buffers in another type, widened where they are read, rounded where they are written."""

    def visit(node: Any) -> Any:
        if isinstance(node, Buffer) and node.name in narrow:
            return replace(node, dtype=dtype)
        if isinstance(node, Load) and node.buffer.name in narrow:
            return Cast(WIDE, node)
        if isinstance(node, Store) and node.buffer.name in narrow:
            # What is of this type already only moves.
            moved = _moved(node.value, dtype)
            return replace(node, value=Cast(dtype, node.value) if moved is None else moved)
        return node

    result: PrimFunc = transform(func, visit)
    return result


def _moved(value: Expr, dtype: str) -> Expr | None:
    """The value in another type where no number changes: numbers of that type, chosen among; else None."""
    if isinstance(value, Cast) and value.a.dtype == dtype:
        return value.a
    if isinstance(value, Const):
        number = float(value.value)
        return Const(number, dtype) if rounded(number, dtype) == number else None
    if isinstance(value, Select) or (isinstance(value, Call) and value.name == "if_then_else"):
        cond, *sides = (value.cond, value.a, value.b) if isinstance(value, Select) else value.args
        a, b = (_moved(side, dtype) for side in sides)
        if a is None or b is None:
            return None
        return Select(cond, a, b) if isinstance(value, Select) else Call("if_then_else", (cond, a, b), dtype)
    return None


# ---------------------------------------------------------------- what it costs


@dataclass(frozen=True)
class Difference:
    """How far an output is from that in float32: the largest difference, and the root of the mean square of all.

    Both are shares of the same of the output in float32 itself; of integers the share of those that differ.
    """

    largest: float
    typical: float


def differences(narrow: Mapping[str, Array], wide: Mapping[str, Array]) -> dict[str, Difference]:
    """The differences of outputs to those in float32, by name."""
    return {name: _difference(np.asarray(narrow[name]), np.asarray(value)) for name, value in wide.items()}


def _difference(narrow: Array, wide: Array) -> Difference:
    if not wide.size or wide.dtype.kind != "f":
        apart = float(np.mean(narrow != wide)) if wide.size else 0.0
        return Difference(apart, apart)
    given, exact = narrow.astype(np.float64), wide.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where((given == exact) | (np.isnan(given) & np.isnan(exact)), 0.0, np.abs(given - exact))
    sizes = np.abs(exact[np.isfinite(exact)])
    largest, typical = float(sizes.max(initial=0.0)), float(np.sqrt(np.mean(sizes**2))) if sizes.size else 0.0
    root = float(np.sqrt(np.mean(error**2)))
    return Difference(_share(float(error.max()), largest), _share(root, typical))


def _share(error: float, size: float) -> float:
    return error / size if size else (0.0 if error == 0 else float("inf"))
