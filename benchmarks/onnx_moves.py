"""How models of one operator are drawn: those that move elements, look them up, resize, or change to bytes.

Places outside of a tensor, which ONNX calls an error, are not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from onnx_cases import Draw, Recipe, Shape


def _transpose(d: Draw) -> None:
    shape = d.shape(0, 6)
    d.add("x", d.array(shape, d.dtype()), False)
    if shape and d.chance(0.85):
        d.values["perm"] = [int(a) for a in d.rng.permutation(len(shape))]


def _reshape(d: Draw) -> None:
    shape = d.shape(0, 5)
    target: list[int] = []
    left = math.prod(shape)
    for _ in range(int(d.rng.integers(0, 4))):
        factor = int(d.pick(*[f for f in range(1, 12) if left and left % f == 0] or [1]))
        target.append(factor)
        left = left // factor if left else 0
    target.append(left)
    if not d.chance(0.4) and left:
        target = [int(e) for e in d.rng.permutation(target)]
    if d.chance(0.3) and math.prod(target):
        target[int(d.rng.integers(len(target)))] = -1
    elif target[0] == (shape or (0,))[0] and d.chance(0.5) and 0 not in target:
        target[0] = 0
    if 0 in shape:
        target = [0] * len(shape) if d.opset < 14 or d.chance(0.5) else [*target[:-1], 0]
        d.give(allowzero=1 if len(target) != len(shape) or 0 not in target else None)
        if "allowzero" not in d.values:
            target = [0] * len(shape)
    d.add("x", d.array(shape, d.dtype()), False)
    d.add("shape", np.array(target, np.int64), True)


def _flatten(d: Draw) -> None:
    shape = d.shape(0, 5)
    d.add("x", d.array(shape, d.dtype()), False)
    axis = int(d.rng.integers(-len(shape) if d.opset >= 11 else 0, len(shape) + 1))
    d.give(axis=axis if d.chance(0.8) or not shape else None)


def _squeeze(d: Draw) -> None:
    shape = [e if d.chance(0.5) else 1 for e in d.shape(1, 6)]
    d.add("x", d.array(shape, d.dtype()), False)
    single = [at for at, e in enumerate(shape) if e == 1]
    chosen = [at for at in single if d.chance(0.6)]
    axes = [at - len(shape) if d.opset >= 11 and d.chance(0.4) else at for at in chosen]
    d.integers("axes", [int(a) for a in d.rng.permutation(axes)] if axes else None)


def _unsqueeze(d: Draw) -> None:
    shape = d.shape(0, 4)
    count = int(d.rng.integers(1, 4))
    rank = len(shape) + count
    chosen = [int(a) for a in d.rng.permutation(rank)[:count]]
    d.add("x", d.array(shape, d.dtype()), False)
    d.integers("axes", [a - rank if d.opset >= 11 and d.chance(0.4) else a for a in chosen])


def _concat(d: Draw) -> None:
    shape, dtype = d.shape(1, 4), d.dtype()
    axis = int(d.rng.integers(len(shape)))
    for at in range(int(d.rng.integers(1, 5))):
        own = [e if k != axis or not at else int(d.pick(0, 1, 2, 3)) for k, e in enumerate(shape)]
        d.add(f"x{at}", d.array(own, dtype), at > 0 and d.chance(0.2))
    d.values["axis"] = axis - len(shape) if d.opset >= 11 and d.chance(0.4) else axis


def _split(d: Draw) -> None:
    shape = list(d.shape(1, 4))
    axis = int(d.rng.integers(len(shape)))
    d.outputs = int(d.rng.integers(1, 5))
    if d.opset >= 18 and d.chance(0.5):
        shape[axis] = max(shape[axis], d.outputs * (d.outputs - 1) + 1)
        d.give(num_outputs=d.outputs)
    elif d.chance(0.6):
        sizes = [int(d.rng.integers(0, 4)) for _ in range(d.outputs)]
        shape[axis] = sum(sizes)
    else:
        sizes, shape[axis] = [], d.outputs * int(d.rng.integers(1, 4))
    d.add("x", d.array(shape, d.dtype()), False)
    if "num_outputs" not in d.values:
        if not sizes and d.opset >= 18:
            sizes = [shape[axis] // d.outputs] * d.outputs
        d.integers("split", sizes or None)
    d.values["axis"] = axis - len(shape) if d.opset >= 11 and d.chance(0.4) else axis


def _slice(d: Draw) -> None:
    shape = d.shape(1, 4)
    dims = [int(a) for a in d.rng.permutation(len(shape))[: int(d.rng.integers(1, len(shape) + 1))]]
    starts, ends, steps = [], [], []
    for at in dims:
        e = shape[at]
        starts.append(int(d.pick(d.rng.integers(-e - 2, e + 3), 0, e, -1)))
        ends.append(int(d.pick(d.rng.integers(-e - 2, e + 3), e, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))))
        steps.append(int(d.pick(1, 1, 1, 2, 3, -1, -2, 100)))
    d.add("x", d.array(shape, d.dtype()), False)
    if d.opset < 10:
        d.give(starts=starts, ends=[max(-(2**31), min(2**31 - 1, end)) for end in ends], axes=dims)
        return
    dims = [a - len(shape) if d.chance(0.3) else a for a in dims]
    given = sorted(a % len(shape) for a in dims) == dims == list(range(len(dims))) and d.chance(0.5)
    d.add("starts", np.array(starts, np.int64), True)
    d.add("ends", np.array(ends, np.int64), True)
    d.add("axes", None if given else np.array(dims, np.int64), True)
    d.add("steps", np.array(steps, np.int64) if d.chance(0.7) else None, True)


def _pad(d: Draw) -> None:
    shape = d.shape(1, 4, 0.01)
    mode = d.pick("constant", "constant", "reflect", "edge", *(["wrap"] if d.opset >= 19 else []))
    dims = list(range(len(shape)))
    if d.opset >= 18 and d.chance(0.4):
        dims = [int(a) for a in d.rng.permutation(len(shape))[: int(d.rng.integers(1, len(shape) + 1))]]
    amounts = []
    for at in dims * 2:
        most = max(0, shape[at] - 1) if mode == "reflect" else min(3, shape[at]) if mode == "wrap" else 3
        amounts.append(int(d.rng.integers(-min(2, max(0, shape[at] - 1) // 2), most + 1)))
    dtype = d.dtype()
    d.add("x", d.array(shape, dtype), False)
    d.give(mode=mode if mode != "constant" or d.chance(0.5) else None)
    if d.opset < 11:
        d.give(pads=amounts, value=d.pick(0.0, 1.5, math.inf, None) if mode == "constant" else None)
        return
    d.add("pads", np.array(amounts, np.int64), True)
    value = d.array((), dtype) if mode == "constant" and d.chance(0.6) else None
    d.add("value", value, d.chance(0.8))
    if d.opset >= 18 and (dims != list(range(len(shape))) or d.chance(0.3)):
        d.add("axes", np.array([a - len(shape) if d.chance(0.3) else a for a in dims], d.pick("int32", "int64")), True)


def _tile(d: Draw) -> None:
    shape = d.shape(1, 4)
    d.add("x", d.array(shape, d.dtype()), False)
    d.add("repeats", np.array([int(d.pick(1, 1, 2, 3, 0 if d.chance(0.1) else 1)) for _ in shape], np.int64), True)


def _blocks(d: Draw) -> None:
    size, (n, c, h, w) = int(d.pick(1, 2, 3)), (int(d.pick(1, 2, 3)) for _ in range(4))
    shape = (n, c * size * size, h, w) if d.op == "DepthToSpace" else (n, c, h * size, w * size)
    d.add("x", d.array(shape, d.dtype()), False)
    d.give(blocksize=size, mode=d.pick("DCR", "CRD", None))


def _places(d: Draw, shape: Shape, extent: int, dtype: str) -> np.ndarray:
    low = -extent if d.opset >= 11 and d.chance(0.5) else 0
    return np.asarray(d.rng.integers(low, extent, shape)).astype(dtype)


def _gather(d: Draw) -> None:
    shape = d.shape(1, 4, 0.0)
    axis = int(d.rng.integers(len(shape)))
    d.add("x", d.array(shape, d.dtype()), d.chance(0.1))
    if d.op == "Gather":
        own = d.shape(0, 2)
    else:
        own = tuple(e if k == axis and d.chance(0.5) else int(d.rng.integers(1, e + 1)) for k, e in enumerate(shape))
    d.add("places", _places(d, own, shape[axis], d.pick("int32", "int64")), "x" not in d.constants and d.chance(0.4))
    d.give(axis=(axis - len(shape) if d.opset >= 11 and d.chance(0.4) else axis) if axis or d.chance(0.5) else None)


def _gather_nd(d: Draw) -> None:
    shape = d.shape(1, 4, 0.0)
    batch = int(d.rng.integers(0, len(shape))) if d.opset >= 12 and d.chance(0.4) else 0
    depth = int(d.rng.integers(1, len(shape) - batch + 1))
    lead = (*shape[:batch], *d.shape(0 if batch else 1, 2, 0.0))
    places = [_places(d, lead, shape[batch + at], "int64") for at in range(depth)]
    d.add("x", d.array(shape, d.dtype()), False)
    d.add("places", np.stack(places, -1), d.chance(0.3))
    d.give(batch_dims=batch or None)


def _one_hot(d: Draw) -> None:
    shape, depth = d.shape(1, 3), int(d.pick(1, 2, 3, 5))
    axis = int(d.rng.integers(-len(shape) - 1, len(shape) + 1))
    kind = d.pick("int64", "int64", "int32", "float32")
    d.add("x", np.asarray(d.rng.integers(-depth, depth + 2, shape)).astype(kind), False)
    d.add("depth", np.array([depth] if d.chance(0.5) else depth, d.pick("int64", "int64", "float32")), True)
    d.add("values", d.array((2,), d.pick("float32", "float32", "int64", "int32"), "plain"))
    d.give(axis=axis if axis != -1 or d.chance(0.5) else None)


def _trilu(d: Draw) -> None:
    d.add("x", d.array(d.shape(2, 4), d.dtype()), False)
    d.add("k", np.array(int(d.rng.integers(-4, 5)), np.int64) if d.chance(0.7) else None, True)
    d.give(upper=d.pick(0, 1, None))


NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _resize(d: Draw) -> None:
    rank = int(d.pick(1, 2, 3, 4, 4, 4))
    shape = tuple(int(d.pick(1, 2, 3, 4, 5, 7)) for _ in range(rank))
    mode = d.pick("nearest", "linear", "cubic") if rank == 4 else d.pick("nearest", "linear")
    resized = [at for at in range(rank) if (at >= rank - 2 if rank > 2 else d.chance(0.8))]
    factors = [float(d.pick(0.5, 2.0, 1.0, 1.5, 0.75, 3.0, 0.3, 0.6, 1 / 3, 2.5)) for _ in range(rank)]
    scales = [s if at in resized and int(e * s) else 1.0 for at, (s, e) in enumerate(zip(factors, shape, strict=True))]
    d.add("x", d.array(shape, d.dtype(), d.pick("plain", "whole", "infinite")), False)
    if d.op == "Upsample":
        scales = [max(1.0, s) for s in scales]
        d.give(mode=mode if mode != "cubic" else "linear")
        if d.opset < 9:
            d.give(scales=scales)
        else:
            d.add("scales", np.array(scales, np.float32), True)
        return
    if d.opset == 10:
        d.give(mode=mode if mode != "cubic" else "linear")
        d.add("scales", np.array(scales, np.float32), True)
        return
    ways = ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
    ways += ["tf_half_pixel_for_nn"] * (d.opset < 13 and mode == "nearest") + ["half_pixel_symmetric"] * (d.opset >= 19)
    ways += ["tf_crop_and_resize"] * d.chance(0.3)
    way = d.pick(*ways)
    d.give(
        mode=mode, coordinate_transformation_mode=way if way != "half_pixel" or d.chance(0.5) else None,
        nearest_mode=d.pick(*NEAREST, None) if mode == "nearest" else None,
        antialias=1 if mode != "nearest" and d.chance(0.15) else None,
    )  # fmt: skip
    if mode == "cubic":
        d.give(cubic_coeff_a=d.pick(-0.75, -0.5, None), exclude_outside=d.pick(0, 1, None))
    if way == "tf_crop_and_resize":
        region = [0.0] * rank + [1.0] * rank
        for at in resized:
            region[at], region[rank + at] = float(d.pick(0.0, 0.25, -0.25)), float(d.pick(1.0, 0.75, 1.25))
        d.add("roi", np.array(region, np.float32), True)
        d.give(extrapolation_value=d.pick(None, 0.0, 2.0))
    else:
        d.add("roi", np.array([], np.float32) if d.opset < 13 or d.chance(0.3) else None, True)
    axes = list(range(rank))
    if d.opset >= 18 and d.chance(0.3) and way != "tf_crop_and_resize" and resized:
        axes = resized
        d.give(axes=[at - rank if d.chance(0.3) else at for at in axes])
    if d.chance(0.6):
        d.add("scales", np.array([scales[at] for at in axes], np.float32), True)
        return
    d.add("scales", np.array([], np.float32) if d.opset < 13 or d.chance(0.3) else None, True)
    sizes = [int(d.pick(1, 2, 3, 5, 8)) if at in resized else shape[at] for at in axes]
    d.add("sizes", np.array(sizes, np.int64), True)
    d.give(keep_aspect_ratio_policy=d.pick("not_larger", "not_smaller") if axes == resized and d.chance(0.3) else None)


def _quantize(d: Draw) -> None:
    shape = d.shape(1, 4)
    axis = int(d.rng.integers(len(shape)))
    by_channel = d.opset >= 13 and d.chance(0.4)
    count = (shape[axis],) if by_channel else ()
    scale = np.asarray(d.rng.choice([0.5, 0.1, 0.25, 1.0, 0.03, 2.0], count), np.float32)
    kind = d.pick("uint8", "int8", None)
    if d.op == "QuantizeLinear":
        d.add("x", d.array(shape, "float32", d.pick("plain", "whole")), False)
    else:
        kind = kind or "uint8"
        x = d.array(shape, kind)
        d.add("x", x, False)
    d.add("scale", scale)
    zero = None if kind is None or d.chance(0.2) else d.array(count, kind, "plain")
    if d.op == "QuantizeLinear" or zero is not None:
        d.add("zero", zero)
    if by_channel:
        d.give(axis=axis - len(shape) if d.chance(0.4) else axis)
    elif d.opset >= 13 and len(shape) < 2:
        d.give(axis=0)


def _quantized_matmul(d: Draw) -> None:
    m, k, n = (int(d.pick(1, 2, 3, 5)) for _ in range(3))
    kinds = [d.pick("uint8", "int8") for _ in range(2)]
    if d.op == "MatMulInteger":
        d.add("a", d.array((m, k), kinds[0]), False)
        d.add("b", d.array((k, n), kinds[1]), d.chance(0.5))
        if d.chance(0.6):
            d.add("a_zero", d.array((), kinds[0], "plain"), True)
            d.add("b_zero", d.array((), kinds[1], "plain") if d.chance(0.6) else None, True)
        return
    for name, size, kind in (("a", (m, k), kinds[0]), ("b", (k, n), kinds[1])):
        d.add(name, d.array(size, kind, "plain"), name == "b" and d.chance(0.5))
        d.add(f"{name}_scale", np.array(d.pick(0.5, 0.25, 1.0), np.float32), True)
        d.add(f"{name}_zero", d.array((), kind, "plain"), True)
    d.add("y_scale", np.array(d.pick(2.0, 4.0), np.float32), True)
    d.add("y_zero", d.array((), kinds[0], "plain"), True)


def _quantized_conv(d: Draw) -> None:
    rank, co, ci = int(d.pick(1, 2)), int(d.pick(1, 2, 3)), int(d.pick(1, 2))
    taps, pads = [int(d.pick(1, 2, 3)) for _ in range(rank)], [int(d.pick(0, 1)) for _ in range(2 * rank)]
    image = (1, ci, *(int(k + d.pick(0, 1, 2, 3)) for k in taps))
    kinds = [d.pick("uint8", "int8") for _ in range(2)]
    d.add("x", d.array(image, kinds[0], "plain"), False)
    if d.op == "QLinearConv":
        d.add("x_scale", np.array(d.pick(0.5, 0.25, 1.0), np.float32), True)
    else:
        d.add("w", d.array((co, ci, *taps), kinds[1], "plain"), True)
    d.add("x_zero", d.array((), kinds[0], "plain"), True)
    if d.op == "QLinearConv":
        d.add("w", d.array((co, ci, *taps), kinds[1], "plain"), True)
        by_channel = d.chance(0.4)
        scales = d.rng.choice([0.5, 0.25, 1.0], co if by_channel else ())
        d.add("w_scale", np.asarray(scales, np.float32), True)
        d.add("w_zero", np.full(co if by_channel else (), d.pick(0, 1, 3), kinds[1]), True)
        d.add("y_scale", np.array(d.pick(2.0, 4.0), np.float32), True)
        d.add("y_zero", d.array((), kinds[0], "plain"), True)
        d.add("bias", np.asarray(d.rng.integers(-9, 9, co), np.int32) if d.chance(0.5) else None, True)
    else:
        d.add("w_zero", d.array((), kinds[1], "plain") if d.chance(0.5) else None, True)
    d.give(pads=pads, strides=[int(d.pick(1, 2)) for _ in range(rank)] if d.chance(0.5) else None)


def _scatter(d: Draw) -> None:
    shape = d.shape(1, 3, 0.0)
    axis = int(d.rng.integers(len(shape)))
    own = [e if k != axis else max(1, e // 2) for k, e in enumerate(shape)]
    rows = [e for k, e in enumerate(own) if k != axis]
    order = np.argsort(d.rng.random((*rows, shape[axis])), axis=-1)[..., : own[axis]]
    dtype = d.dtype()
    d.add("x", d.array(shape, dtype), False)
    d.add("places", np.moveaxis(order, -1, axis).astype(np.int64), d.chance(0.5))
    d.add("updates", d.array(own, dtype), False)
    d.give(axis=axis)


MOVES: Mapping[str, Recipe] = {
    "Transpose": _transpose, "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Concat": _concat, "Split": _split, "Slice": _slice, "Pad": _pad, "Tile": _tile, "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks, "Gather": _gather, "GatherElements": _gather, "GatherND": _gather_nd, "OneHot": _one_hot,
    "Trilu": _trilu, "Resize": _resize, "Upsample": _resize, "QuantizeLinear": _quantize, "DequantizeLinear": _quantize,
    "QLinearMatMul": _quantized_matmul, "MatMulInteger": _quantized_matmul, "QLinearConv": _quantized_conv,
    "ConvInteger": _quantized_conv, "ScatterElements": _scatter,
}  # fmt: skip
