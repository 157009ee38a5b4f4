"""Operators of random models of free sizes, each a node or a few that belong together, as exporters write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from free_models import FreeGraph, Recipe, Unfit, point_of
from onnx import helper

END = 2**31
UNARY = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSwish", "Softplus", "Erf", "Abs", "Neg", "HardSigmoid",
         "Softsign", "Selu", "Celu", "Mish", "ThresholdedRelu", "Sin", "Gelu")  # fmt: skip
REDUCTIONS = ("Mean", "Sum", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp")


def _windows(g: FreeGraph, rank: int) -> dict[str, Any]:
    kernel = [int(g.pick(1, 2, 3, 3, 4)) for _ in range(rank)]
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": [int(g.pick(1, 1, 2, 3)) for _ in range(rank)]}
    if g.chance(0.2):
        found["auto_pad"] = g.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    elif g.chance(0.7):
        found["pads"] = [int(g.rng.integers(0, k)) for k in kernel * 2]
    if g.chance(0.25):
        found["dilations"] = [int(g.pick(1, 2)) for _ in range(rank)]
    return found


def _image(g: FreeGraph, x: str) -> tuple[int, int]:
    """Channels and dimensions of an image."""
    shape = g.shape(x)
    if len(shape) not in (3, 4) or shape[1] < 0:
        raise Unfit
    return shape[1], len(shape) - 2


def conv(g: FreeGraph, x: str) -> Sequence[str]:
    channels, rank = _image(g, x)
    windows = _windows(g, rank)
    group = g.pick(1, 1, channels)
    out = group * int(g.pick(1, 2, 3) if group > 1 else g.pick(1, 3, 4, 8))
    bias = [g.normal(out)] if g.chance(0.5) else []
    weights = g.normal(out, channels // group, *windows["kernel_shape"])
    return [g.node("Conv", x, weights, *bias, group=group, **windows)]


def conv_transpose(g: FreeGraph, x: str) -> Sequence[str]:
    channels, rank = _image(g, x)
    windows = _windows(g, rank)
    windows.pop("auto_pad", None)
    if g.chance(0.3):
        windows["output_padding"] = [int(g.rng.integers(0, s)) for s in windows["strides"]]
    return [g.node("ConvTranspose", x, g.normal(channels, int(g.pick(1, 3)), *windows["kernel_shape"]), **windows)]


def pool(g: FreeGraph, x: str) -> Sequence[str]:
    _, rank = _image(g, x) if g.chance(0.7) else (0, len(g.shape(x)) - 2)
    if rank < 1:
        raise Unfit
    windows, op = _windows(g, rank), g.pick("MaxPool", "AveragePool", "LpPool")
    if g.opset < 19 and op == "AveragePool":
        windows.pop("dilations", None)
    if g.chance(0.3):
        windows["ceil_mode"] = 1
    if op == "AveragePool" and g.chance(0.4):
        windows["count_include_pad"] = 1
    return [g.node(op, x, **windows)]


def global_pool(g: FreeGraph, x: str) -> Sequence[str]:
    if len(g.shape(x)) < 3:
        raise Unfit
    return [g.node(g.pick("GlobalAveragePool", "GlobalMaxPool"), x)]


def product(g: FreeGraph, x: str) -> Sequence[str]:
    shape = g.shape(x)
    if len(shape) > 1 and shape[-2] > 0 and g.chance(0.4):
        return [g.node("MatMul", g.normal(int(g.pick(1, 5, 8)), shape[-2]), x)]
    if shape[-1] < 0:
        raise Unfit
    return [g.node("MatMul", x, g.normal(shape[-1], int(g.pick(1, 4, 16))))]


def own_product(g: FreeGraph, x: str) -> Sequence[str]:
    rank = len(g.shape(x))
    if rank < 2:
        raise Unfit
    turned = g.node("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
    if g.chance(0.2) and rank == 3:
        return [g.node("Einsum", x, x, equation="bij,bkj->bik")]
    scale = g.constant(np.float32(0.1))
    return [g.node("Mul", g.node("MatMul", *g.pick((x, turned), (turned, x))), scale)]


def attention(g: FreeGraph, x: str) -> Sequence[str]:
    rank = len(g.shape(x))
    if rank < 2:
        raise Unfit
    turned = g.node("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = g.node("MatMul", x, turned)
    if g.chance(0.5):  # each of what is not before it
        size = g.node("Squeeze", g.extent(x, rank - 2), g.ints(0))
        positions = g.node("Range", g.constant(np.array(0)), size, g.constant(np.array(1)))
        rows = g.node("Unsqueeze", positions, g.ints(1))
        mask = g.node(g.pick("LessOrEqual", "Greater", "GreaterOrEqual"), positions, rows)
        scores = g.node("Where", mask, scores, g.constant(np.float32(-9)))
    return [g.node("MatMul", g.node("Softmax", scores, axis=-1), x)]


def gemm(g: FreeGraph, x: str) -> Sequence[str]:
    shape = g.shape(x)
    turned = int(g.chance(0.4))
    if len(shape) != 2 or shape[not turned] < 0:
        raise Unfit
    out, turns = int(g.pick(1, 4, 9)), int(g.chance(0.5))
    weights = g.normal(out, shape[not turned]) if turns else g.normal(shape[not turned], out)
    bias = [g.normal(*g.pick((out,), (1, out), (1, 1), (1,)))] if g.chance(0.6) else []
    return [g.node("Gemm", x, weights, *bias, transA=turned, transB=turns, alpha=float(g.pick(1.0, 0.5)), beta=0.5)]


def concat(g: FreeGraph, x: str) -> Sequence[str]:
    axis, shape = g.axis(x), g.shape(x)

    def rest(name: str) -> list[tuple[int, ...]]:
        return [tuple(e for at, e in enumerate(a.shape) if at != axis) for a in g.values[name]]

    others = [n for n in g.values if len(g.shape(n)) == len(shape) and rest(n) == rest(x)]
    parts = [x, str(g.pick(*others))]
    if all(e > 0 for at, e in enumerate(shape) if at != axis) and g.chance(0.4):
        parts.insert(int(g.rng.integers(3)), g.normal(*(2 if at == axis else e for at, e in enumerate(shape))))
    if g.chance(0.5):
        parts.reverse()
    return [g.node("Concat", *parts, axis=axis)]


def cut(g: FreeGraph, x: str) -> Sequence[str]:
    axis = g.axis(x)
    kind = g.pick("front", "back", "step", "turn", "half", "static", "rest")
    step = 1
    if kind == "half":
        half = g.node("Div", g.extent(x, axis), g.ints(2))
        starts, ends = g.pick((g.ints(0), half), (half, g.ints(END)))
    elif kind == "rest":
        less = g.node("Sub", g.extent(x, axis), g.ints(1))
        starts, ends = g.pick((g.ints(0), less), (less, g.ints(END)))
    else:
        low, high = {
            "front": (0, int(g.pick(1, 2, 5, 30))),
            "back": (-int(g.pick(1, 2, 4)), END),
            "step": (int(g.pick(0, 1)), END),
            "turn": (int(g.pick(-1, -2, END)), -END),
            "static": (int(g.pick(1, 2, -9)), int(g.pick(-1, -2, 7))),
        }[kind]
        starts, ends = g.ints(low), g.ints(high)
        step = {"step": int(g.pick(2, 3)), "turn": -int(g.pick(1, 2))}.get(kind, 1)
    return [g.node("Slice", x, starts, ends, g.ints(axis), g.ints(step))]


def split(g: FreeGraph, x: str) -> Sequence[str]:
    axis, shape = g.axis(x), g.shape(x)
    if shape[axis] > 1:
        count = int(g.pick(2, 3))
        return g.node_of(count, "Split", x, axis=axis, num_outputs=count)
    if g.chance(0.4):
        return g.node_of(2, "Split", x, axis=axis, num_outputs=2)
    rest = g.node("Sub", g.extent(x, axis), g.ints(1))
    return g.node_of(2, "Split", x, g.node("Concat", g.ints(1), rest, axis=0), axis=axis)


def reshape(g: FreeGraph, x: str) -> Sequence[str]:
    shape = g.shape(x)
    at = int(g.rng.integers(len(shape)))
    kind = g.pick("merge", "split", "flat", "computed", "grow", "swap")
    if kind == "flat":
        return [g.node("Flatten", x, axis=int(g.rng.integers(len(shape) + 1)))]
    if kind == "merge" and at + 1 < len(shape):
        return [g.node("Reshape", x, g.ints(*(0 for _ in shape[:at]), -1, *shape[at + 2 :]))]
    if kind == "split":
        factor = int(g.pick(2, 4))
        if shape[at] > 0:
            middle = g.pick((factor, shape[at] // factor), (shape[at] // factor, factor))
        else:
            middle = g.pick((factor, -1), (-1, factor))
        free = [a for a, e in enumerate(shape) if e < 0 and a != at]
        if any(a > at for a in free):
            parts = [g.ints(*middle) if a == at else g.extent(x, a) for a in range(len(shape))]
            return [g.node("Reshape", x, g.node("Concat", *parts, axis=0))]
        return [g.node("Reshape", x, g.ints(*(0 for _ in shape[:at]), *middle, *shape[at + 1 :]))]
    if kind == "grow":
        return [g.node("Unsqueeze", x, g.ints(int(g.rng.integers(len(shape) + 1))))]
    if kind == "swap" and len(shape) > 1:  # the elements in order, with extents exchanged
        order = g.rng.permutation(len(shape))
        return [g.node("Reshape", x, g.node("Concat", *(g.extent(x, int(a)) for a in order), axis=0))]
    ones = [a for a, e in enumerate(shape) if e == 1]
    if kind == "computed" and len(shape) > 1:
        head = g.extent(x, 0)
        return [g.node("Reshape", x, g.node("Concat", head, g.ints(-1), axis=0))]
    if ones:
        return [g.node("Squeeze", x, g.ints(int(g.pick(*ones))))]
    raise Unfit


def transpose(g: FreeGraph, x: str) -> Sequence[str]:
    return [g.node("Transpose", x, perm=[int(a) for a in g.rng.permutation(len(g.shape(x)))])]


def expand(g: FreeGraph, x: str) -> Sequence[str]:
    shape = g.shape(x)
    ones = [a for a, e in enumerate(shape) if e == 1]
    other = str(g.pick(*g.values))
    if not ones:
        raise Unfit
    at = g.pick(*ones)
    extent = g.extent(other, g.axis(other))
    parts = [extent if a == at else g.ints(1) for a in range(len(shape))]
    return [g.node("Expand", x, g.node("Concat", *parts, axis=0) if len(parts) > 1 else extent)]


def tile(g: FreeGraph, x: str) -> Sequence[str]:
    at = g.axis(x)
    return [g.node("Tile", x, g.ints(*(int(g.pick(2, 3)) if a == at else 1 for a in range(len(g.shape(x))))))]


def softmax(g: FreeGraph, x: str) -> Sequence[str]:
    return [g.node(g.pick("Softmax", "Softmax", "LogSoftmax"), x, axis=g.axis(x))]


def normalisation(g: FreeGraph, x: str) -> Sequence[str]:
    shape = g.shape(x)
    op = g.pick(
        "LayerNormalization",
        "InstanceNormalization",
        "BatchNormalization",
        "LRN",
        "LpNormalization",
        "Mean",
        "GroupNormalization",
    )
    if op == "LayerNormalization" and shape[-1] > 1:
        return [g.node(op, x, g.normal(shape[-1]), g.normal(shape[-1]), axis=-1, epsilon=1e-2)]
    if op == "LpNormalization":
        shifted = g.node("Add", x, g.constant(np.float32(0.3)))
        return [g.node(op, shifted, axis=g.axis(x), p=int(g.pick(1, 2)))]
    if op == "Mean":
        axis = g.axis(x)
        centred = g.node("Sub", x, g.node("ReduceMean", x, g.ints(axis)))
        variance = g.node("ReduceMean", g.node("Mul", centred, centred), g.ints(axis))
        return [g.node("Div", centred, g.node("Sqrt", g.node("Add", variance, g.constant(np.float32(1e-2)))))]
    if len(shape) < 3 or shape[1] < 0:
        raise Unfit
    vectors = [g.normal(shape[1]) for _ in range(2)]
    if op == "InstanceNormalization":
        return [g.node(op, x, *vectors, epsilon=1e-2)]
    if op == "GroupNormalization" and g.opset >= 21:
        return [g.node(op, x, *vectors, num_groups=int(g.pick(1, shape[1])), epsilon=1e-2)]
    if op == "LRN":
        return [g.node(op, x, size=3, alpha=0.1)]
    positive = g.constant(np.abs(g.rng.standard_normal(shape[1])).astype(np.float32) + np.float32(0.5))
    return [g.node("BatchNormalization", x, *vectors, g.normal(shape[1]), positive)]


def reduction(g: FreeGraph, x: str) -> Sequence[str]:
    axes = {g.axis(x) for _ in range(int(g.pick(1, 1, 2)))}
    keep = int(g.chance(0.6) or len(axes) == len(g.shape(x)))
    return [g.node("Reduce" + g.pick(*REDUCTIONS), x, g.ints(*axes), keepdims=keep)]


def extreme(g: FreeGraph, x: str) -> Sequence[str]:
    axis = g.axis(x)
    kind = g.pick("ArgMax", "ArgMin", "TopK", "Sort")
    if kind[0] == "A":
        where = g.node(kind, x, axis=axis, keepdims=1)
        return [g.node("Mul", g.node("Cast", where, to=onnx.TensorProto.FLOAT), g.constant(np.float32(0.1)))]
    size = g.ints(int(g.pick(1, min(3, g.least(x, axis))))) if kind == "TopK" else g.extent(x, axis)
    return g.node_of(2, "TopK", x, size, axis=axis, largest=int(g.chance(0.6)))[:1]


def running(g: FreeGraph, x: str) -> Sequence[str]:
    return [
        g.node("CumSum", x, g.constant(np.array(g.axis(x))), exclusive=int(g.chance(0.4)), reverse=int(g.chance(0.4)))
    ]


def pad(g: FreeGraph, x: str) -> Sequence[str]:
    rank, axis = len(g.shape(x)), g.axis(x)
    pads = [0] * (2 * rank)
    pads[axis], pads[axis + rank] = int(g.pick(0, 1, 2)), int(g.pick(0, 1, 3, -1))
    mode = g.pick("constant", "constant", "reflect", "edge")
    value = [g.constant(np.float32(g.pick(0, 0.5)))] if mode == "constant" and g.chance(0.6) else []
    return [g.node("Pad", x, g.ints(*pads), *value, mode=mode)]


def resize(g: FreeGraph, x: str) -> Sequence[str]:
    rank = len(g.shape(x))
    if rank < 3:
        raise Unfit
    scales = g.constant(np.array([1, 1] + [g.pick(1, 2, 2, 3, 0.5) for _ in range(rank - 2)], np.float32))
    mode = g.pick("nearest", "nearest", "linear")
    how = g.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    if g.chance(0.4):  # to twice the size, as it is computed
        twice = [g.node("Mul", g.extent(x, a), g.ints(2)) if a > 1 else g.extent(x, a) for a in range(rank)]
        sizes = g.node("Concat", *twice, axis=0)
        return [g.node("Resize", x, "", "", sizes, mode=mode, coordinate_transformation_mode=how)]
    return [g.node("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=how)]


def binary(g: FreeGraph, x: str) -> Sequence[str]:
    shape, same = g.shape(x), g.same(x)
    if same and g.chance(0.7):
        other = str(g.pick(*same))
    elif g.chance(0.5):
        other = str(g.pick(*g.values))  # which may be broadcast, or not
    else:
        kept = shape[int(g.rng.integers(len(shape))) :]
        other = g.normal(*(1 if e < 0 or g.chance(0.2) else e for e in kept))
    op = g.pick("Add", "Sub", "Mul", "Max", "Min", "Div", "Where")
    if op == "Div":
        other = g.node("Add", g.node("Abs", other), g.constant(np.float32(0.5)))
    if op == "Where":
        return [g.node("Where", g.node("Greater", x, other), *g.pick((x, other), (other, x)))]
    return [g.node(op, *g.pick((x, other), (other, x)))]


def unary(g: FreeGraph, x: str) -> Sequence[str]:
    return [g.node(g.pick(*UNARY), x)]


def gather(g: FreeGraph, x: str) -> Sequence[str]:
    axis = g.axis(x)
    least = g.least(x, axis)
    if g.chance(0.25):
        return [g.node("Gather", x, g.node("Sub", g.extent(x, axis), g.ints(1)), axis=axis)]
    if g.chance(0.2):  # backwards
        size = g.node("Squeeze", g.extent(x, axis), g.ints(0))
        last = g.node("Sub", size, g.constant(np.array(1)))
        return [
            g.node("Gather", x, g.node("Range", last, g.constant(np.array(-1)), g.constant(np.array(-1))), axis=axis)
        ]
    if g.chance(0.3) and len(g.shape(x)) > 1:
        return [g.node("Gather", x, g.constant(np.array(int(g.rng.integers(-least, least)))), axis=axis)]
    return [g.node("Gather", x, g.ints(*(int(i) for i in g.rng.integers(-least, least, 3))), axis=axis)]


def positions(g: FreeGraph, x: str) -> Sequence[str]:
    """Rows of a table added, as many as there are, or numbers."""
    shape = g.shape(x)
    if len(shape) < 2:
        raise Unfit
    most = max(array.shape[-2] for array in g.values[x])
    if g.chance(0.5) and shape[-1] > 0:
        table = g.normal(most + int(g.pick(0, 7)), shape[-1])
        if g.chance(0.5):
            return [g.node("Add", x, g.node("Slice", table, g.ints(0), g.extent(x, len(shape) - 2), g.ints(0)))]
        size = g.node("Squeeze", g.extent(x, len(shape) - 2), g.ints(0))
        rows = g.node("Range", g.constant(np.array(0)), size, g.constant(np.array(1)))
        return [g.node("Add", x, g.node("Gather", table, rows, axis=0))]
    size = g.node("Squeeze", g.extent(x, len(shape) - 1), g.ints(0))
    numbers = g.node("Range", g.constant(np.array(0)), size, g.constant(np.array(1)))
    scaled = g.node("Mul", g.node("Cast", numbers, to=onnx.TensorProto.FLOAT), g.constant(np.float32(0.05)))
    return [g.node(g.pick("Add", "Mul"), x, g.node("Sin", scaled) if g.chance(0.3) else scaled)]


def by_size(g: FreeGraph, x: str) -> Sequence[str]:
    """Divided by an extent, or its root, as means and attention are."""
    size = g.node("Cast", g.extent(x, g.axis(x)), to=onnx.TensorProto.FLOAT)
    if g.chance(0.5):
        size = g.node("Sqrt", size)
    return [g.node(g.pick("Div", "Div", "Add"), x, size)]


def filled(g: FreeGraph, x: str) -> Sequence[str]:
    """Something of the shape of a tensor."""
    ones = g.node("ConstantOfShape", g.node("Shape", x), value=helper.make_tensor("v", 1, [1], [0.5]))
    return [g.node("Add", ones, x) if g.chance(0.7) else g.node("Concat", ones, x, axis=g.axis(x))]


def blocks(g: FreeGraph, x: str) -> Sequence[str]:
    if len(g.shape(x)) != 4:
        raise Unfit
    return [
        g.node("DepthToSpace", x, blocksize=2, mode=g.pick("DCR", "CRD"))
        if g.chance(0.5)
        else g.node("SpaceToDepth", x, blocksize=2)
    ]


def lookup(g: FreeGraph, x: str) -> Sequence[str]:
    """Rows of a table at numbers that are computed, or ones at their places."""
    clipped = g.node(
        "Clip", g.node("Mul", x, g.constant(np.float32(3))), *map(g.constant, (np.float32(-3), np.float32(4)))
    )
    numbers = g.node("Cast", clipped, to=onnx.TensorProto.INT64)  # both ways, as indices from the end are negative
    if g.chance(0.3):
        ends = g.constant(np.array([0.0, 1.0], np.float32))
        return [g.node("OneHot", numbers, g.ints(5), ends, axis=-1)]
    if g.chance(0.3) and g.least(x, 0) > 4:
        return [g.node("GatherElements", x, numbers, axis=0)]
    return [g.node("Gather", g.normal(7, int(g.pick(1, 4, 6))), numbers, axis=0)]


def triangle(g: FreeGraph, x: str) -> Sequence[str]:
    return [g.node("Trilu", x, g.constant(np.array(int(g.pick(0, 0, 1, -1)))), upper=int(g.chance(0.5)))]


def recurrent(g: FreeGraph, x: str) -> Sequence[str]:
    shape = g.shape(x)
    if len(shape) != 3 or shape[-1] < 0:
        raise Unfit
    op, ways, hidden = g.pick("GRU", "LSTM", "RNN"), int(g.pick(1, 2)), 4
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op] * hidden
    how = "bidirectional" if ways == 2 else g.pick("forward", "reverse")
    weights = [g.normal(ways, gates, size) for size in (shape[-1], hidden)]
    outputs = g.node_of(2, op, x, *weights, hidden_size=hidden, direction=how)
    return outputs if g.chance(0.5) else outputs[:1]


RECIPES: tuple[Recipe, ...] = (
    conv, conv, conv, conv_transpose, pool, pool, global_pool, product, product, own_product, attention, gemm, concat,
    concat, cut, cut, split, reshape, reshape, transpose, transpose, expand, tile, softmax, normalisation,
    normalisation, reduction, reduction, extreme, running, pad, resize, binary, binary, binary, unary, unary, unary,
    gather, positions, by_size, filled, blocks, triangle, recurrent, lookup, lookup,
)  # fmt: skip


def drawn_graph(seed: int, number: int) -> FreeGraph:
    """The graph of a number, the same in every run."""
    rng = np.random.default_rng([seed, number])
    ranges = {}
    for name in ("n", "m")[: int(rng.choice([1, 1, 2]))]:
        step = int(rng.choice([1, 1, 1, 2, 4, 8]))
        low = int(rng.choice([1, 1, 2, 3, 5, 8]))
        ranges[name] = (low * step, (low + int(rng.integers(3, 40 if step == 1 else 12))) * step, step)
    points = [{name: r[at] for name, r in ranges.items()} for at in (0, 1)]
    points += [point_of(rng, ranges) for _ in range(2)]
    made = FreeGraph(rng, int(rng.integers(18, 22)), ranges, points)
    names = list(ranges)
    for _ in range(made.pick(1, 1, 2)):
        one, two, c = made.pick(*names), made.pick(*names), made.pick(1, 2, 3, 4, 6, 8)
        made.input(*made.pick(
            (1, c, one, two), (1, c, one, 9), (2, c, 7, one), (one, c, 6, 5), (1, one, 8), (one, c), (c, one),
            (one, 2, c), (one,), (2, one, two), (1, c, one),
        ))  # fmt: skip
    for name in names:
        if all(name not in extents for extents in made.inputs.values()):
            made.input(2, name)
    made.grow(int(rng.integers(5, 16)), RECIPES)
    return made
