"""Sequences whose length is known when a model is read: lists of tensors by name, which no network has to pass.

So are values of optional types, which are the tensor that they hold.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from ...errors import ModelProblem
from .graph import ModelGraph, ModelNode
from .parts import Parts

Lists = MutableMapping[str, list[str]]
MAKING = ("SequenceEmpty", "SequenceConstruct", "SplitToSequence")
TAKING = (
    "SequenceAt", "SequenceLength", "SequenceInsert", "SequenceErase", "ConcatFromSequence", "Identity", "Optional",
    "OptionalGetElement",
)  # fmt: skip
"""Operators whose first input is a sequence, or may be one."""


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
