"""Sequences whose length is known when a model is read: lists of tensors by name, which no network has to pass.

So are values of optional types, which are the tensor or the sequence that they hold, or nothing.  A sequence `x` that
a model takes or gives is the tensors ``x/0``, ``x/1``, ... of its network.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

from onnx import TypeProto, ValueInfoProto

from ...errors import ModelProblem
from ..inputs import Given
from .graph import ModelGraph, ModelNode
from .parts import Parts

Lists = MutableMapping[str, list[str]]
MAKING = ("SequenceEmpty", "SequenceConstruct", "SplitToSequence")
TAKING = (
    "SequenceAt", "SequenceLength", "SequenceInsert", "SequenceErase", "ConcatFromSequence", "Identity", "Optional",
    "OptionalGetElement",
)  # fmt: skip
"""Operators whose first input is a sequence, or may be one."""


def place(name: str, number: int) -> str:
    """The tensor at a place of a sequence that a model takes or gives."""
    return f"{name}/{number}"


def listed(items: Iterable[ValueInfoProto], given: Given, lists: Lists) -> tuple[list[ValueInfoProto], Given, set[str]]:
    """The inputs of a model as tensors, what is given of these, and the names of optional ones that are left out.

    Sequences are put into `lists`, as long as there are shapes or values for their tensors.  Raises ModelProblem for
    one of which nobody says how long it is.
    """
    found: list[ValueInfoProto] = []
    values: dict[str, Any] = {}
    absent: set[str] = set()
    shapes = dict(given.shapes)
    for item in items:
        kind = item.type.optional_type.elem_type if item.type.HasField("optional_type") else item.type
        if item.name in given.values and given.values[item.name] is None and kind is not item.type:
            absent.add(item.name)
        elif kind.HasField("sequence_type") and kind.sequence_type.elem_type.HasField("tensor_type"):
            values.update({place(item.name, at): value for at, value in enumerate(given.values.get(item.name, ()))})
            told = {*given.shapes, *given.values, *given.either, *values}
            lists[item.name] = list(takewhile(told.__contains__, (place(item.name, at) for at in count())))
            is_empty = tuple(shapes.pop(item.name, (1,))) == () or item.name in given.values
            if not lists[item.name] and not is_empty:
                raise ModelProblem(
                    f"the input `{item.name}` is a sequence, and nobody says how long it is; say the shape of each of "
                    f"its tensors, `--input {place(item.name, 0)}=SHAPE --input {place(item.name, 1)}=SHAPE`"
                )
            found += [_typed(name, _apart(kind.sequence_type.elem_type)) for name in lists[item.name]]
        else:
            found.append(_typed(item.name, kind))
    kept = {name: value for name, value in given.values.items() if name not in lists and name not in absent}
    return found, replace(given, shapes=shapes, values={**kept, **values}), absent


def _apart(kind: TypeProto) -> TypeProto:
    """The type of a sequence's tensors; an extent that is no number is one of its own in each."""
    made = TypeProto()
    made.CopyFrom(kind)
    for dim in made.tensor_type.shape.dim:
        if not dim.HasField("dim_value"):
            dim.Clear()
    return made


def _typed(name: str, kind: TypeProto) -> ValueInfoProto:
    made = ValueInfoProto(name=name)
    made.type.CopyFrom(kind)
    return made


def resolved(node: ModelNode, graph: ModelGraph, lists: Lists) -> Sequence[ModelNode] | None:
    """The nodes that compute the tensors of a node that makes or takes a sequence; None for any other node.

    What it makes of sequences is put into `lists`.  Raises ModelProblem for places in them that are not known.
    """
    if node.domain:
        return None
    p = Parts(graph, node)
    if node.op in MAKING:
        lists[node.outputs[0]] = _made(p)
        return p.nodes
    if node.op in ("Optional", "OptionalGetElement") and node.inputs and node.inputs[0] not in lists:
        p.add("Identity", [0], 0)
        return p.nodes
    if node.op == "OptionalHasElement":
        p.add("Identity", [p.constant(bool(node.inputs and node.inputs[0]))], 0)
        return p.nodes
    if node.op not in TAKING or not node.inputs or node.inputs[0] not in lists:
        return None
    _taken(p, lists[node.inputs[0]], lists)
    return p.nodes


def _made(p: Parts) -> list[str]:
    """The tensors of a new sequence."""
    if p.whole.op == "SequenceEmpty":
        return []
    if p.whole.op == "SequenceConstruct":
        return [name for name in p.whole.inputs if name]
    axis = int(p.attribute("axis", 0)) % len(p.shape())
    extent, sizes = p.shape()[axis], p.known(1)
    if p.has(1) and sizes is None:
        raise ModelProblem(f"the lengths of the parts of the node {p.whole} depend on the contents of its inputs")
    if sizes is None:
        lengths = [1] * extent
    elif sizes.ndim == 0:
        step = int(sizes)
        lengths = [min(step, extent - first) for first in range(0, extent, step)]
    else:
        lengths = [int(size) for size in sizes]
    found, first = [], 0
    for length in lengths:
        part = p.sliced(0, axis, first, first + length)
        if sizes is None and not p.attribute("keepdims", 1):
            part = p.add("Squeeze", [part, p.constant([axis], "int64")])
        found.append(part)
        first += length
    return found


def _taken(p: Parts, items: list[str], lists: Lists) -> None:
    """What is made of a sequence."""
    output, op = p.whole.outputs[0], p.whole.op
    if op == "SequenceAt":
        p.add("Identity", [items[_place(p, 1, len(items), len(items) - 1)]], 0)
    elif op == "SequenceLength":
        p.add("Identity", [p.constant(len(items), "int64")], 0)
    elif op == "SequenceInsert":
        at = _place(p, 2, len(items), len(items))
        lists[output] = [*items[:at], p.whole.inputs[1], *items[at:]]
    elif op == "SequenceErase":
        at = _place(p, 1, len(items), len(items) - 1)
        lists[output] = [*items[:at], *items[at + 1 :]]
    elif op == "ConcatFromSequence":
        axis = int(p.attribute("axis"))
        if p.attribute("new_axis", 0):
            items = [p.add("Unsqueeze", [name, p.constant([axis], "int64")]) for name in items]
        p.add("Concat", items, 0, axis=axis)
    else:
        lists[output] = list(items)


def _place(p: Parts, at: int, count: int, default: int) -> int:
    """A place in a sequence of so many tensors, which an input says."""
    given = p.known(at)
    if p.has(at) and given is None:
        raise ModelProblem(f"the place in a sequence that the node {p.whole} takes depends on contents of its inputs")
    place = default if given is None else int(given.reshape(-1)[0])
    place += count if place < 0 else 0
    if not 0 <= place <= count - (p.whole.op != "SequenceInsert"):
        raise ModelProblem(f"the node {p.whole} asks for the place {place} of a sequence of {count} tensors")
    return place
