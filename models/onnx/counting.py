"""Results of which only their contents say how long they are: as long as they can be, and a count.

::

    y = NonZero(x)    ->    whole[:, k], so many columns as x has elements, and how many of them count

Both are computed by operators that have programs, so that nothing in a network has a shape that is not known.  What
only looks at each element, or takes other elements by what counts, does so with all of them, and an output is cut at
the end (`network.Cut`).  Elements that do not count are numbers that could, such as places that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ..operators.graph import OWN_DOMAIN, Type
from .graph import ModelGraph, ModelNode
from .parts import Parts


@dataclass(frozen=True)
class Counted:
    """The tensor `whole`, of which so many elements along `axis` count as the tensor `count` says."""

    whole: str
    axis: int
    count: str


Results = dict[str, Counted]
Counting = Callable[[Parts], Results | None]

MOST_PAIRS = 1 << 24
"""Comparisons of two elements that one node may make."""
ELEMENT = frozenset((
    "Identity", "Cast", "Abs", "Neg", "Exp", "Log", "Sqrt", "Floor", "Ceil", "Round", "Sigmoid", "Tanh", "Relu", "Clip",
    "Not", "Reciprocal", "Erf", "Sign",
))  # fmt: skip
"""Operators that look at each element of their first input alone; others are numbers."""
PAIRS = frozenset((
    "Add", "Sub", "Mul", "Div", "Mod", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Max",
    "Min",
))  # fmt: skip
"""Operators that look at pairs of elements."""


def counting(node: ModelNode, graph: ModelGraph) -> tuple[Sequence[ModelNode], Results] | None:
    """The nodes that compute a node's results and counts, with what its outputs are; None for any other node."""
    make = MAKERS.get(node.op) if not node.domain else None
    if make is None:
        return None
    parts = Parts(graph, node)
    found = make(parts)
    return None if found is None else (parts.nodes, found)


def following(
    node: ModelNode, graph: ModelGraph, known: Mapping[str, Counted]
) -> tuple[Sequence[ModelNode], Results] | None:
    """The same of a node that reads such a result; None where that cannot be computed with all elements."""
    follow = FOLLOWERS.get(node.op) if not node.domain else None
    if follow is None or node.outer or len(node.outputs) != 1:
        return None
    parts = Parts(graph, node)
    found = follow(parts, known)
    return None if found is None else (parts.nodes, {node.outputs[0]: found})


# ---------------------------------------------------------------- what counts


def _nonzero(p: Parts) -> Results | None:
    """The places of what is not zero, a row for each dimension."""
    shape = p.shape()
    if not shape or not prod(shape) or p.type().dtype == "object":
        return None
    places, count = _places(p, _is_set(p, p.reshaped(0, (prod(shape),)), p.type().dtype), prod(shape))
    rows = []
    for dim, extent in enumerate(shape):
        step = prod(shape[dim + 1 :])
        row = places if step == 1 else p.add("Div", [places, p.constant(step, "int64")])
        row = row if dim == 0 else p.add("Mod", [row, p.constant(extent, "int64")])
        rows.append(p.reshaped(row, (1, prod(shape))))
    return _counted(p, rows[0] if len(rows) == 1 else p.add("Concat", rows, axis=0), 1, count)


def _compress(p: Parts) -> Results | None:
    """The elements along a dimension, or of all, for which a condition holds."""
    (length,), shape = p.shape(1), p.shape()
    axis = p.attribute("axis")
    x: int | str = 0
    if axis is None:
        x, axis, shape = p.reshaped(0, (prod(shape),)), 0, (prod(shape),)
    axis = int(axis) % len(shape)
    count = min(length, shape[axis])
    if not count:
        return None
    condition = 1 if count == length else p.sliced(1, 0, 0, count)
    places, total = _places(p, condition, count)
    return _counted(p, p.add("Gather", [x, places], axis=axis), axis, total)


def _places(p: Parts, flags: int | str, size: int) -> tuple[str, str]:
    """The numbers of the elements of a vector that are true, in order, and how many there are.

    Behind them stands the number of some element: one that is not true is put down in the last place, which is none of
    theirs as there is such a one.
    """
    ones = p.cast(flags, "int64")
    before = p.add("CumSum", [ones, p.constant(0, "int64")], exclusive=1)
    place = p.add("Where", [flags, before, p.constant(size - 1, "int64")])
    every = p.constant(np.arange(size), "int64")
    places = p.add("ScatterElements", [p.constant(np.zeros(size), "int64"), place, every], axis=0)
    return places, p.add("ReduceSum", [ones, p.constant([0], "int64")], keepdims=1)


def _is_set(p: Parts, x: str, dtype: str) -> str:
    return x if dtype == "bool" else p.add("Not", [p.add("Equal", [x, p.constant(0, dtype)])])


def _counted(p: Parts, whole: str, axis: int, count: str) -> Results:
    return {p.whole.outputs[0]: Counted(whole, axis, count)}


def _unique(p: Parts) -> Results | None:
    """Each element, or slice along a dimension, once: where it is first, its number among them, and how often it is.

    Those that are the same are found by comparing all with all.
    """
    shape, axis, dtype = p.shape(), p.attribute("axis"), p.type().dtype
    if dtype == "object" or not prod(shape):
        return None
    x: int | str = 0
    if axis is None:
        size, width, axis = prod(shape), 1, 0
        shape = (size,)
        rows = x = p.reshaped(0, shape)
        rows = p.reshaped(x, (size, 1))
    else:
        axis = int(axis) % len(shape)
        size, width = shape[axis], prod(shape) // shape[axis]
        order = [axis, *(d for d in range(len(shape)) if d != axis)]
        rows = p.reshaped(p.add("Transpose", [0], perm=order), (size, width))
    if size * size * width > MOST_PAIRS:
        return None
    same, is_less = _compared(p, rows, size, width, dtype)
    every = p.constant(np.arange(size)[None], "int64")
    over = p.constant([1], "int64")
    first = p.add("ReduceMin", [p.add("Where", [same, every, p.constant(size, "int64")]), over], keepdims=0)
    is_first = p.add("Equal", [first, p.constant(np.arange(size), "int64")])
    if p.attribute("sorted", 1):
        before = is_less
    else:
        before = p.add("Less", [every, p.reshaped(first, (size, 1))])
    counts = p.add("And", [before, p.reshaped(is_first, (1, size))])
    rank = p.add("ReduceSum", [p.cast(counts, "int64"), over], keepdims=0)
    total = p.add("ReduceSum", [p.cast(is_first, "int64"), p.constant([0], "int64")], keepdims=1)
    zeros = p.constant(np.zeros(size), "int64")
    places = p.add("ScatterElements", [zeros, rank, first], axis=0)
    found: Results = {p.whole.outputs[0]: Counted(p.add("Gather", [x, places], axis=axis), axis, total)}
    if p.wants(1):
        found[p.whole.outputs[1]] = Counted(places, 0, total)
    if p.wants(2):
        p.add("Identity", [rank], 2)
    if p.wants(3):
        ones = p.constant(np.ones(size), "int64")
        how_often = p.add("ScatterElements", [zeros, rank, ones], axis=0, reduction="add")
        found[p.whole.outputs[3]] = Counted(how_often, 0, total)
    return found


def _compared(p: Parts, rows: str, size: int, width: int, dtype: str) -> tuple[str, str]:
    """Two tensors [n, m] of bool: whether rows n and m are the same, and whether row m comes before row n.

    NaNs are the same as each other, and come after all numbers.
    """
    left, right = p.reshaped(rows, (size, 1, width)), p.reshaped(rows, (1, size, width))
    equal, less = p.add("Equal", [left, right]), _less(p, right, left, dtype)
    if dtype.startswith("float"):
        equal = p.add("Or", [equal, p.add("And", [p.add("IsNaN", [left]), p.add("IsNaN", [right])])])
    if width == 1:
        return p.reshaped(equal, (size, size)), p.reshaped(less, (size, size))
    apart = p.constant(np.arange(width), "int64")
    where = p.add("Where", [equal, p.constant(width, "int64"), apart])
    first = p.add("ReduceMin", [where, p.constant([2], "int64")], keepdims=1)
    is_there = p.add("And", [less, p.add("Equal", [apart, first])])
    over = p.constant([2], "int64")
    is_less = p.add("ReduceMax", [p.cast(is_there, "int64"), over], keepdims=0)
    same = p.add("Equal", [p.reshaped(first, (size, size)), p.constant(width, "int64")])
    return same, p.cast(is_less, "bool")


def _less(p: Parts, a: str, b: str, dtype: str) -> str:
    if dtype == "bool":
        return p.add("And", [p.add("Not", [a]), b])
    less = p.add("Less", [a, b])
    if not dtype.startswith("float"):
        return less
    is_last = p.add("And", [p.add("IsNaN", [b]), p.add("Not", [p.add("IsNaN", [a])])])
    return p.add("Or", [less, is_last])


def _non_max_suppression(p: Parts) -> Results | None:
    """The boxes of each image and class that no better one of the class overlaps too much, in rows of three numbers."""
    (images, boxes, _), (_, classes, _) = p.shape(), p.shape(1)
    given = [p.known(at) for at in range(2, 5)]
    if any(p.has(at) and known is None for at, known in zip(range(2, 5), given, strict=True)):
        return None
    most, overlap, score = (None if known is None else float(np.asarray(known).reshape(-1)[0]) for known in given)
    count = min(boxes, int(most or 0))
    if count <= 0 or not images * classes:
        return None
    chosen = p.own(
        "Suppress", [0, 1], Type((images, classes, count), "int64"), overlap=overlap or 0.0,
        score=-np.inf if score is None else score, center=int(p.attribute("center_point_box", 0)),
    )  # fmt: skip
    size = images * classes * count
    flat = p.reshaped(chosen, (size,))
    flags = p.add("Less", [p.constant(-1, "int64"), flat])
    places, total = _places(p, flags, size)
    image = p.add("Div", [places, p.constant(classes * count, "int64")])
    which = p.add("Mod", [p.add("Div", [places, p.constant(count, "int64")]), p.constant(classes, "int64")])
    taken = p.add("Max", [p.add("Gather", [flat, places], axis=0), p.constant(0, "int64")])
    columns = [p.reshaped(column, (size, 1)) for column in (image, which, taken)]
    return _counted(p, p.add("Concat", columns, axis=1), 0, total)


# ---------------------------------------------------------------- what follows


Follower = Callable[[Parts, Mapping[str, Counted]], Counted | None]


def _given(p: Parts, known: Mapping[str, Counted]) -> list[Counted | None]:
    return [known.get(name) for name in p.whole.inputs]


def _again(p: Parts, known: Mapping[str, Counted]) -> str:
    """The node itself, with all elements of what counts in part."""
    inputs = tuple(known[name].whole if name in known else name for name in p.whole.inputs)
    made = p.graph.fresh(f"{p.whole.outputs[0]}/whole")
    p.nodes.append(replace(p.whole, inputs=inputs, outputs=(made,)))
    return made


def _element(p: Parts, known: Mapping[str, Counted]) -> Counted | None:
    first, *rest = _given(p, known)
    if first is None or any(rest):
        return None
    return Counted(_again(p, known), first.axis, first.count)


def _pair(p: Parts, known: Mapping[str, Counted]) -> Counted | None:
    """Pairs of elements that count alike, or of which one does and the other is the same along the dimension."""
    found = {counted for counted in _given(p, known) if counted is not None}
    ranks = {name: len(p.graph.types[known[name].whole if name in known else name].shape) for name in p.whole.inputs}
    most = max(ranks.values())
    alike = {(c.axis - len(p.graph.types[c.whole].shape), c.count) for c in found}
    if len(alike) != 1:
        return None
    ((behind, count),) = alike
    for name, rank in ranks.items():
        if name not in known and rank >= -behind and p.graph.types[name].shape[behind] != 1:
            return None
    return Counted(_again(p, known), most + behind, count)


def _transpose(p: Parts, known: Mapping[str, Counted]) -> Counted | None:
    (counted,) = _given(p, known)
    if counted is None:
        return None
    rank = len(p.graph.types[counted.whole].shape)
    order = [int(d) for d in p.attribute("perm") or reversed(range(rank))]
    return Counted(p.add("Transpose", [counted.whole], perm=order), order.index(counted.axis), counted.count)


def _unsqueeze(p: Parts, known: Mapping[str, Counted]) -> Counted | None:
    counted, axes = known.get(p.whole.inputs[0]), _axes(p)
    if counted is None or axes is None:
        return None
    rank = len(p.graph.types[counted.whole].shape) + len(axes)
    new = sorted(axis % rank for axis in axes)
    kept = [d for d in range(rank) if d not in new]
    made = p.add("Unsqueeze", [counted.whole, p.constant(new, "int64")])
    return Counted(made, kept[counted.axis], counted.count)


def _squeeze(p: Parts, known: Mapping[str, Counted]) -> Counted | None:
    counted, axes = known.get(p.whole.inputs[0]), _axes(p)
    if counted is None or axes is None:
        return None
    rank = len(p.graph.types[counted.whole].shape)
    gone = sorted(axis % rank for axis in axes)
    if counted.axis in gone:
        return None
    made = p.add("Squeeze", [counted.whole, p.constant(gone, "int64")])
    return Counted(made, counted.axis - sum(d < counted.axis for d in gone), counted.count)


def _axes(p: Parts) -> list[int] | None:
    known = p.known(1) if p.has(1) else p.attribute("axes")
    return None if known is None else [int(axis) for axis in np.asarray(known).reshape(-1)]


def _gather(p: Parts, known: Mapping[str, Counted]) -> Counted | None:
    """A Gather by counted indices, or of counted data along another dimension than the counted one."""
    data, places = _given(p, known)
    rank = len(p.graph.types[data.whole if data else p.whole.inputs[0]].shape)
    axis = int(p.attribute("axis", 0)) % rank
    if places is not None and data is None:
        return Counted(p.add("Gather", [0, places.whole], axis=axis), axis + places.axis, places.count)
    if data is None or places is not None or axis == data.axis:
        return None
    more = len(p.shape(1)) - 1
    return Counted(
        p.add("Gather", [data.whole, 1], axis=axis), data.axis + (more if axis < data.axis else 0), data.count
    )


def _gather_nd(p: Parts, known: Mapping[str, Counted]) -> Counted | None:
    data, places = _given(p, known)
    if data is not None or places is None or p.attribute("batch_dims", 0):
        return None
    if places.axis == len(p.graph.types[places.whole].shape) - 1:
        return None
    return Counted(p.add("GatherND", [0, places.whole]), places.axis, places.count)


def _slice(p: Parts, known: Mapping[str, Counted]) -> Counted | None:
    """A part along other dimensions than the one that counts."""
    counted, *rest = _given(p, known)
    axes = p.known(3)
    if counted is None or any(rest) or axes is None:
        return None
    rank = len(p.graph.types[counted.whole].shape)
    if counted.axis in {int(axis) % rank for axis in axes.reshape(-1)}:
        return None
    return Counted(p.add("Slice", [counted.whole, *range(1, len(p.whole.inputs))]), counted.axis, counted.count)


MAKERS: Mapping[str, Counting] = {
    "NonZero": _nonzero, "Compress": _compress, "Unique": _unique, "NonMaxSuppression": _non_max_suppression,
}  # fmt: skip
FOLLOWERS: Mapping[str, Follower] = {
    **dict.fromkeys(ELEMENT, _element), **dict.fromkeys(PAIRS, _pair), "Transpose": _transpose,
    "Unsqueeze": _unsqueeze, "Squeeze": _squeeze, "Gather": _gather, "GatherND": _gather_nd, "Slice": _slice,
}  # fmt: skip


def cut_of(name: str, counted: Counted, graph: ModelGraph) -> ModelNode:
    """The node that cuts a result: an output of this name."""
    return ModelNode(
        "Cut", OWN_DOMAIN, f"{name} as an output", (counted.whole, counted.count), (name,),
        {"results": (graph.types[counted.whole],), "axis": counted.axis},
    )  # fmt: skip
