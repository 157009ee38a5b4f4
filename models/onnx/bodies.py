"""Operators that ONNX defines without a body, or with one that is not its own, said in other operators of ONNX.

The optimizers have, for each tensor X of weights with its gradient G, and states such as V and H::

    g = c X + G         with the coefficient c of a norm, and the rate r of learning

    Adagrad     h = H + g g                             x = X - r / (1 + decay t) g / (sqrt(h) + epsilon)
    Adam        v = a V + (1 - a) g
                h = b H + (1 - b) g g                   x = X - r sqrt(1 - b^t) / (1 - a^t) v / (sqrt(h) + epsilon)
    Momentum    v = a V + b g (g where t is 0)          x = X - r v, or with `nesterov` X - r (g + a v)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from .graph import ModelGraph, ModelNode
from .loops import MOST_NODES
from .parts import Parts, element_type

TRAINING = "ai.onnx.preview.training"


def own_body(node: ModelNode, graph: ModelGraph) -> list[ModelNode] | None:
    """The nodes that compute what a node does; None where none are told here."""
    define = BODIES.get((node.domain, node.op))
    parts = Parts(graph, node)
    return parts.nodes if define is not None and define(parts) else None


def _dropout(p: Parts) -> bool:
    """Outside of training nothing is dropped, and the mask says so."""
    training, ratio = p.known(2), p.known(1)
    is_off = not p.has(2) or (training is not None and not bool(training))
    drops_nothing = p.has(1) and ratio is not None and not float(ratio)
    if not (is_off or drops_nothing):
        return False
    p.add("Identity", [0], 0)
    if p.wants(1):
        p.add("Identity", [p.constant(np.ones(p.shape(), bool))], 1)
    return True


def _of_bools(p: Parts) -> bool:
    """The largest or smallest of bools is that of bytes."""
    if p.type().dtype != "bool":
        return False
    axes = [1] if p.has(1) else []
    values = {name: p.attribute(name) for name in ("keepdims", "noop_with_empty_axes")}
    found = p.add(p.whole.op, [p.cast(0, "uint8"), *axes], **values)
    p.add("Cast", [found], 0, to=element_type("bool"))
    return True


def _border_of_nothing(p: Parts) -> bool:
    """A border of a constant around no elements is that constant everywhere, also where some amounts are negative."""
    pads = p.known(1) if p.has(1) else p.attribute("pads")
    axes = p.known(3) if p.has(3) else range(len(p.shape()))
    if p.type().size or p.attribute("mode", "constant") != "constant" or pads is None or axes is None:
        return False
    shape = list(p.shape())
    for at, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        shape[at] += int(before + after)
    value = p.reshaped(2, (1,)) if p.has(2) else p.number(float(p.attribute("value", 0.0)))
    p.add("Expand", [value, p.constant(shape, "int64")], 0)
    return True


def _affine_grid(p: Parts) -> bool:
    """Places of an image, from -1 to 1 between its outer pixels' middles or edges, times a matrix for each image."""
    size = p.known(1)
    if size is None or p.type().dtype != "float32":
        return False
    n, _, *extents = (int(extent) for extent in size)
    lines = [
        np.linspace(-1, 1, e) if p.attribute("align_corners", 0) else (2 * np.arange(e) + 1) / e - 1 for e in extents
    ]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(extents)], axis=-1)
    base = p.constant(places.reshape(1, -1, len(extents) + 1), "float32")
    found = p.add("MatMul", [base, p.add("Transpose", [0], perm=[0, 2, 1])])
    p.add("Reshape", [found, p.constant([n, *extents, len(extents)], "int64")], 0)
    return True


def _max_unpool(p: Parts) -> bool:
    """Numbers put down in zeros where indices say, which count the elements that pooling was done on."""
    shape, taps = p.shape(), [int(tap) for tap in p.attribute("kernel_shape")]
    rank = len(taps)
    strides, pads = p.attribute("strides", [1] * rank), p.attribute("pads", [0] * 2 * rank)
    whole = [(extent - 1) * strides[at] - pads[at] - pads[rank + at] + taps[at] for at, extent in enumerate(shape[2:])]
    target, flat = [*shape[:2], *whole], (int(np.prod(shape)),)
    wanted = p.known(2) if p.has(2) else np.asarray(target)
    if wanted is None or any(int(more) < extent for more, extent in zip(wanted, target, strict=True)):
        return False
    zeros = p.constant(np.zeros(int(np.prod(target)), p.type().dtype))
    put = p.add("ScatterElements", [zeros, p.reshaped(1, flat), p.reshaped(0, flat)], axis=0)
    ends = [int(more) - extent for more, extent in zip(wanted, target, strict=True)]
    p.add("Pad", [p.reshaped(put, target), p.constant([0] * len(target) + ends, "int64")], 0)
    return True


def _deform_conv(p: Parts) -> bool:
    """A convolution whose taps read the image beside their places, by offsets: samples first, then a product."""
    if len(p.shape()) != 4 or p.type().dtype != "float32":
        return False
    (n, channels, *size), (filters, per_filter, *taps) = p.shape(), p.shape(1)
    out, parts, groups = p.shape(2)[2:], int(p.attribute("offset_group", 1)), int(p.attribute("group", 1))
    strides, steps = p.attribute("strides", [1, 1]), p.attribute("dilations", [1, 1])
    pads, count = p.attribute("pads", [0] * 4), taps[0] * taps[1]
    along = [
        (np.arange(out[d]) * strides[d] - pads[d])[None, :] + (np.arange(taps[d]) * steps[d])[:, None] for d in (0, 1)
    ]
    shape = (*taps, *out)
    places = np.stack([
        np.broadcast_to(along[0][:, None, :, None], shape), np.broadcast_to(along[1][None, :, None, :], shape)
    ], axis=-1).reshape(1, count, *out, 2)  # fmt: skip
    beside = p.add("Transpose", [p.reshaped(2, (n * parts, count, 2, *out))], perm=[0, 1, 3, 4, 2])
    at = p.add("Add", [beside, p.constant(places, "float32")])
    # GridSample counts from -1 to 1 between the edges of an image, and has the columns first.
    scaled = p.add("Mul", [at, p.constant([2 / extent for extent in size], "float32")])
    moved = p.add("Add", [scaled, p.constant([1 / extent - 1 for extent in size], "float32")])
    turned = p.add("Gather", [moved, p.constant([1, 0], "int64")], axis=4)
    grid = p.reshaped(turned, (n * parts, count * out[0], out[1], 2))
    image = p.reshaped(0, (n * parts, channels // parts, *size))
    found = p.add("GridSample", [image, grid], mode="linear", padding_mode="zeros", align_corners=0)
    if p.has(4):
        found = p.add("Mul", [found, p.reshaped(4, (n * parts, 1, count * out[0], out[1]))])
    samples = p.reshaped(found, (n, groups, per_filter * count, out[0] * out[1]))
    weights = p.reshaped(1, (groups, filters // groups, per_filter * count))
    total = p.reshaped(p.add("MatMul", [weights, samples]), (n, filters, *out))
    p.add("Add" if p.has(3) else "Identity", [total, *([p.reshaped(3, (filters, 1, 1))] if p.has(3) else [])], 0)
    return True


def _batch_normalization(p: Parts) -> bool:
    """The normalisation of training: by mean and variance of the batch, which update the running ones."""
    if not p.attribute("training_mode", 0) or p.type().dtype not in ("float32", "float64"):
        return False
    shape = p.shape()
    axes = p.constant([at for at in range(len(shape)) if at != 1], "int64")
    column = (1, shape[1], *[1] * (len(shape) - 2))
    mean = p.add("ReduceMean", [0, axes], keepdims=1)
    apart = p.add("Sub", [0, mean])
    variance = p.add("ReduceMean", [p.add("Mul", [apart, apart]), axes], keepdims=1)
    share = p.add("Sqrt", [p.add("Add", [variance, p.number(float(p.attribute("epsilon", 1e-5)))])])
    scaled = p.add("Mul", [p.add("Div", [apart, share]), p.reshaped(1, column)])
    p.add("Add", [scaled, p.reshaped(2, column)], 0)
    momentum = float(p.attribute("momentum", 0.9))
    for at, (old, new) in ((1, (3, mean)), (2, (4, variance))):
        if p.wants(at):
            _mixed(p, old, p.reshaped(new, (shape[1],)), momentum, 1 - momentum, at)
    return True


def _mixed(p: Parts, old: int | str, new: str, kept: float, taken: float, into: int = -1) -> str:
    parts = [p.add("Mul", [x, p.constant(np.asarray(f, np.float32))]) for x, f in ((old, kept), (new, taken))]
    return p.add("Add", parts, into)


def _scan_of_rows(p: Parts) -> bool:
    """A Scan of version 8 goes along the second dimension, for each row of the first one by itself."""
    if p.graph.opset(p.whole) > 8:
        return False
    (rows, steps), lengths, body = p.shape(len(p.whole.inputs) - 1)[:2], p.known(0), p.attribute("body")
    if (p.has(0) and (lengths is None or np.any(lengths != steps))) or rows * steps * len(body.node) > MOST_NODES:
        return False
    given = {"body": body, "num_scan_inputs": p.attribute("num_scan_inputs")}
    for row in range(rows):
        place = p.constant(row, "int64")
        parts = [p.add("Gather", [at, place], axis=0) for at in range(1, len(p.whole.inputs))]
        p.add("Scan", parts, [-1] * len(body.output), scan_input_directions=p.attribute("directions"), **given)
        p.nodes[-1] = replace(p.nodes[-1], version=9)  # whose steps are written out in the words of the model's version
    scans = [node for node in p.nodes if node.op == "Scan"]
    for at in [at for at in range(len(p.whole.outputs)) if p.wants(at)]:
        axis = p.constant([0], "int64")
        p.add("Concat", [p.add("Unsqueeze", [scan.outputs[at], axis]) for scan in scans], at, axis=0)
    return True


def _tensors(p: Parts, states: int) -> list[tuple[int, ...]] | None:
    """The places of each tensor, its gradient and its states, after rate and step; None where not of float32."""
    count = (len(p.whole.inputs) - 2) // (2 + states)
    if any(p.type(at).dtype != "float32" for at in range(len(p.whole.inputs)) if at != 1):
        return None
    return [tuple(2 + k * count + at for k in range(2 + states)) for at in range(count)]


def _gradient(p: Parts, x: int, g: int) -> str:
    return p.add("Add", [p.add("Mul", [x, p.number(float(p.attribute("norm_coefficient", 0.0)))]), g])


def _moved(p: Parts, x: int, rate: int | str, way: str, into: int) -> str:
    return p.add("Sub", [x, p.add("Mul", [rate, way])], into)


def _adagrad(p: Parts) -> bool:
    tensors = _tensors(p, 1)
    if tensors is None:
        return False
    one, step = p.number(1), p.cast(1, "float32")
    slowed = p.add("Add", [one, p.add("Mul", [step, p.number(float(p.attribute("decay_factor", 0.0)))])])
    rate = p.add("Div", [0, slowed])
    for at, (x, g, h) in enumerate(tensors):
        gradient = _gradient(p, x, g)
        squares = p.add("Add", [h, p.add("Mul", [gradient, gradient])], len(tensors) + at)
        norm = p.add("Add", [p.add("Sqrt", [squares]), p.number(float(p.attribute("epsilon", 0.0)))])
        _moved(p, x, rate, p.add("Div", [gradient, norm]), at)
    return True


def _adam(p: Parts) -> bool:
    tensors = _tensors(p, 2)
    if tensors is None:
        return False
    a, b = (float(p.attribute(name, default)) for name, default in (("alpha", 0.9), ("beta", 0.999)))
    one, step = p.number(1), p.cast(1, "float32")
    first, second = (p.add("Sub", [one, p.add("Pow", [p.number(base), step])]) for base in (a, b))
    corrected = p.add("Mul", [0, p.add("Div", [p.add("Sqrt", [second]), first])])
    rate = p.add("Where", [p.add("Greater", [step, p.number(0)]), corrected, 0])
    shrinks = 1 - float(p.attribute("norm_coefficient_post", 0.0))
    for at, (x, g, v, h) in enumerate(tensors):
        gradient = _gradient(p, x, g)
        way = _mixed(p, v, gradient, a, 1 - a, len(tensors) + at)
        squares = _mixed(p, h, p.add("Mul", [gradient, gradient]), b, 1 - b, 2 * len(tensors) + at)
        norm = p.add("Add", [p.add("Sqrt", [squares]), p.number(float(p.attribute("epsilon", 0.0)))])
        moved = _moved(p, x, rate, p.add("Div", [way, norm]), -1)
        p.add("Mul", [moved, p.number(shrinks)], at)
    return True


def _momentum(p: Parts) -> bool:
    tensors = _tensors(p, 1)
    if tensors is None:
        return False
    a, b = (float(p.attribute(name, 0.0)) for name in ("alpha", "beta"))
    is_first = p.add("Equal", [1, p.constant(0, p.type(1).dtype)])
    share = p.add("Where", [is_first, p.number(1), p.number(b)])
    for at, (x, g, v) in enumerate(tensors):
        gradient = _gradient(p, x, g)
        old, new = p.add("Mul", [v, p.number(a)]), p.add("Mul", [gradient, share])
        way = p.add("Add", [old, new], len(tensors) + at)
        if p.attribute("mode", "standard") == "nesterov":
            way = p.add("Add", [gradient, p.add("Mul", [way, p.number(a)])])
        _moved(p, x, 0, way, at)
    return True


BODIES: Mapping[tuple[str, str], Callable[[Parts], bool]] = {
    ("", "AffineGrid"): _affine_grid,
    ("", "DeformConv"): _deform_conv,
    ("", "Dropout"): _dropout,
    ("", "MaxUnpool"): _max_unpool,
    ("", "Pad"): _border_of_nothing,
    ("", "ReduceMax"): _of_bools,
    ("", "ReduceMin"): _of_bools,
    ("", "Scan"): _scan_of_rows,
    ("", "BatchNormalization"): _batch_normalization,
    (TRAINING, "Adagrad"): _adagrad,
    (TRAINING, "Adam"): _adam,
    (TRAINING, "Momentum"): _momentum,
}
