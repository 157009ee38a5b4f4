"""Shapes of results as ONNX's text defines them, where its shape inference says something else or nothing.

1. Windows of pools: those that would begin in the padding at the end are left out (said since version 22, and meant
   before); with `auto_pad` VALID only whole windows count, whatever `ceil_mode` says.
2. ConvTranspose: with `auto_pad` SAME_* a result is ``input * stride``, also with `output_padding`; an `output_shape`
   is the extents of the image.
3. Slice before version 10, of which nothing is inferred where ends lie outside or in front of their starts.
4. Squeeze with axes in any order.
5. STFT of real signals, of which half of the frequencies are given.
6. GroupNormalization before version 21, of which nothing is inferred, keeps the shape.
7. MaxUnpool with an `output_shape` that is known.
8. StringNormalizer, which drops words: at most as many as there are, and one where none is left (`AT_MOST`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..operators.graph import Graph, Node, Type

AT_MOST = ("StringNormalizer",)
"""Operators whose results may be smaller than the shapes told here."""
POOLS = ("MaxPool", "AveragePool", "LpPool")


def as_defined(node: Node, graph: Graph, inferred: Sequence[Type | None]) -> list[Type | None]:
    """The types of a node's results, from what is inferred of them."""
    found = list(inferred)
    if node.domain or not node.inputs or not node.inputs[0] or any(name not in graph.types for name in node.reads):
        return found
    first = graph.types[node.inputs[0]]
    shape: tuple[int, ...] | None = None
    if node.op in POOLS:
        shape = _pooled(node, first.shape)
    elif node.op == "ConvTranspose":
        shape = _transposed(node, first.shape, graph.types[node.inputs[1]].shape)
    elif node.op == "Slice" and "starts" in node.values:
        shape = _sliced(node, first.shape)
    elif node.op == "Squeeze" and node.values.get("axes"):
        gone = {at % len(first.shape) for at in node.values["axes"]}
        shape = tuple(extent for at, extent in enumerate(first.shape) if at not in gone)
    elif node.op == "STFT" and (length := _frame(node, graph)) and found[0] is not None:
        count = length // 2 + 1 if node.values.get("onesided", 1) else length
        shape = (*found[0].shape[:2], count, 2)
    elif node.op == "GroupNormalization" and found[0] is None:
        shape = first.shape
    elif node.op == "MaxUnpool" and len(node.inputs) > 2 and node.inputs[2] in graph.constants:
        shape = tuple(int(extent) for extent in graph.constants[node.inputs[2]].reshape(-1))
    elif node.op == "StringNormalizer" and len(first.shape) in (1, 2):
        shape = (*first.shape[:-1], max(1, first.shape[-1]))
    if shape is None:
        return found
    return [known if known is None and at else replace(known or first, shape=shape) for at, known in enumerate(found)]


def _frame(node: Node, graph: Graph) -> int:
    """The elements of each piece of a signal, 0 where they are not known."""
    given = (*node.inputs, "", "", "")
    if given[3]:
        return int(graph.constants[given[3]].reshape(-1)[0]) if given[3] in graph.constants else 0
    return graph.types[given[2]].shape[0] if given[2] else 0


def _pooled(node: Node, image: tuple[int, ...]) -> tuple[int, ...] | None:
    taps, rank = list(node.values.get("kernel_shape", [])), len(image) - 2
    if len(taps) != rank or rank < 1:
        return None
    strides, dilations = (list(node.values.get(name, [1] * rank)) for name in ("strides", "dilations"))
    pads = list(node.values.get("pads", [0] * 2 * rank))
    auto, rounds_up = str(node.values.get("auto_pad", "NOTSET")), bool(node.values.get("ceil_mode", 0))
    outs = []
    for size, tap, stride, dilation, front, end in zip(
        image[2:], taps, strides, dilations, pads[:rank], pads[rank:], strict=True
    ):
        if auto.startswith("SAME"):
            outs.append(-(-size // stride))
            continue
        front, end = (0, 0) if auto == "VALID" else (front, end)
        room = size + front + end - dilation * (tap - 1) - 1
        whole, begun = room // stride + 1, -(-room // stride) + 1
        is_inside = (begun - 1) * stride < size + front
        outs.append(begun if rounds_up and is_inside and auto != "VALID" else whole)
    return (*image[:2], *outs) if min(outs) >= 0 else None


def _transposed(node: Node, image: tuple[int, ...], weights: tuple[int, ...]) -> tuple[int, ...] | None:
    rank = len(image) - 2
    strides, dilations = (list(node.values.get(name, [1] * rank)) for name in ("strides", "dilations"))
    extra = list(node.values.get("output_padding", [0] * rank))
    pads = list(node.values.get("pads", [0] * 2 * rank))
    given, auto = list(node.values.get("output_shape", [])), str(node.values.get("auto_pad", "NOTSET"))
    if rank < 1 or len(weights) != len(image) or any(len(some) != rank for some in (strides, dilations, extra)):
        return None
    if given:
        outs = given[-rank:]
    elif auto.startswith("SAME"):
        outs = [size * stride for size, stride in zip(image[2:], strides, strict=True)]
    else:
        cut = [0] * rank if auto == "VALID" else [a + b for a, b in zip(pads[:rank], pads[rank:], strict=True)]
        outs = [
            stride * (size - 1) + more + dilation * (tap - 1) + 1 - less
            for size, stride, more, dilation, tap, less in zip(
                image[2:], strides, extra, dilations, weights[2:], cut, strict=True
            )
        ]
    return (image[0], weights[1] * int(node.values.get("group", 1)), *outs) if min(outs) >= 0 else None


def _sliced(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    starts, ends = node.values["starts"], node.values["ends"]
    found = list(shape)
    for at, start, end in zip(node.values.get("axes", range(len(starts))), starts, ends, strict=True):
        found[at] = len(range(*slice(start, end).indices(shape[at])))
    return tuple(found)
