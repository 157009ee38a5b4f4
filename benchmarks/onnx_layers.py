"""How models of one operator are drawn: recurrent layers, and those that choose, scatter, sample and transform."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from onnx_cases import Draw, Recipe

GATES = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}
"""Gates, and activations of a direction."""
ACTIVATIONS = {"Sigmoid": 0, "Tanh": 0, "Relu": 0, "HardSigmoid": 3, "LeakyRelu": 1, "Softsign": 0, "ScaledTanh": 3}
"""Functions that a layer may have, and which of alpha (1) and beta (2) they have."""


def _recurrent(d: Draw) -> None:
    """Weights of the size that keeps states small, with each optional input by chance."""
    gates, functions = GATES[d.op]
    steps, batch, width, size = (int(d.pick(1, 2, 3, 5)) for _ in range(4))
    size, dtype = int(d.pick(1, 3, 4, 16, 17)), d.pick("float32", "float32", "float64")
    direction = d.pick("forward", "reverse", "bidirectional")
    count = 2 if direction == "bidirectional" else 1
    rows, first = gates * size, d.opset >= 14 and d.chance(0.2)
    state = (batch, count, size) if first else (count, batch, size)

    def normal(*shape: int) -> np.ndarray:
        return (d.rng.standard_normal(shape) / math.sqrt(size)).astype(dtype)

    d.add("x", normal(*((batch, steps) if first else (steps, batch)), width) * 2, False)
    d.add("w", normal(count, rows, width), True)
    d.add("r", normal(count, rows, size), d.chance(0.9))
    d.add("b", normal(count, 2 * rows) if d.chance(0.7) else None, True)
    lengths = d.rng.integers(1, steps + 1, batch).astype(np.int32)
    d.add("lengths", lengths if d.chance(0.3) else None, d.chance(0.5))
    d.add("h", normal(*state) if d.chance(0.5) else None, False)
    if d.op == "LSTM":
        d.add("c", normal(*state) if d.chance(0.5) else None, False)
        d.add("p", normal(count, 3 * size) if d.chance(0.3) else None, True)
    d.give(hidden_size=size, direction=direction, layout=1 if first else None)
    d.give(clip=0.6 if d.chance(0.2) else None)
    if d.op == "GRU":
        d.give(linear_before_reset=int(d.pick(0, 1)))
    if d.op == "LSTM":
        d.give(input_forget=1 if d.chance(0.1) else None)
    if d.chance(0.3):
        names = [str(d.pick(*ACTIVATIONS)) for _ in range(functions * count)]
        have = [[name for name in names if ACTIVATIONS[name] & bit] for bit in (1, 2)]
        d.give(activations=names)
        for which, some in zip(("activation_alpha", "activation_beta"), have, strict=True):
            d.give(**{which: [float(d.pick(0.2, 0.5, 0.9)) for _ in some] or None})
    d.outputs = 3 if d.op == "LSTM" else 2


def _top_k(d: Draw) -> None:
    shape, dtype = d.shape(1, 4, empty=0), d.dtype()
    axis = int(d.rng.integers(-len(shape), len(shape))) if d.opset >= 11 else int(d.rng.integers(len(shape)))
    values = d.array(shape, dtype, str(d.pick("plain", "whole")))
    count = int(d.rng.integers(1, shape[axis] + 1))
    d.add("x", values, False)
    d.give(axis=axis, k=count, largest=int(d.pick(0, 1)))
    if d.opset >= 10:
        d.add("k", np.array([count], np.int64), True)
    d.outputs = 2


def _places(d: Draw, shape: tuple[int, ...], extent: int) -> np.ndarray:
    low = -extent if d.opset >= 11 else 0
    return d.rng.integers(low, extent, shape).astype(d.pick("int32", "int64"))


def _scatter_elements(d: Draw) -> None:
    """Each place once, where nothing says what becomes of two updates."""
    shape, dtype = d.shape(1, 4, empty=0), d.dtype()
    axis = int(d.rng.integers(len(shape)))
    how = str(d.pick("none", "none", "add", "mul", *(("max", "min") if d.opset >= 18 else ())))
    how = how if d.opset >= 16 and dtype not in ("bool", "float16") else "none"
    own = tuple(int(d.rng.integers(1, e + 1)) for e in shape)
    if how == "none":
        order = np.argsort(d.rng.random((*own[:axis], shape[axis], *own[axis + 1 :])), axis)
        places = np.take(order, range(own[axis]), axis).astype(np.int64)
    else:
        places = _places(d, own, shape[axis])
    d.add("x", d.array(shape, dtype, "whole"), False)
    d.add("places", places)
    d.add("updates", d.array(own, dtype, "whole"), False)
    d.give(axis=axis, reduction=None if how == "none" else how)


def _scatter_nd(d: Draw) -> None:
    shape, dtype = d.shape(1, 4, empty=0), d.dtype()
    depth = int(d.rng.integers(1, len(shape) + 1))
    how = str(d.pick("none", "none", "add", "mul", *(("max", "min") if d.opset >= 18 else ())))
    how = how if d.opset >= 16 and dtype not in ("bool", "float16") else "none"
    most = math.prod(shape[:depth])
    if how == "none":
        count = int(d.rng.integers(1, most + 1))
        flat = d.rng.permutation(most)[:count]
    else:
        flat = d.rng.integers(0, most, int(d.pick(1, 3, 7)))
    places = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(np.int64)
    d.add("x", d.array(shape, dtype, "whole"), False)
    d.add("places", places)
    d.add("updates", d.array((len(flat), *shape[depth:]), dtype, "whole"), False)
    d.give(reduction=None if how == "none" else how)


def _grid_sample(d: Draw) -> None:
    """Points inside and outside of the image; ONNX Runtime has images of two dimensions, and of three from 20 on."""
    rank = int(d.pick(2, 2, 3)) if d.opset >= 20 else 2
    modes = ("linear", "nearest", "cubic") if d.opset >= 20 else ("bilinear", "nearest", "bicubic")
    mode = str(d.pick(*(modes if rank == 2 else modes[:2])))
    batch = int(d.pick(1, 2))
    d.add("x", d.array((batch, int(d.pick(1, 3)), *(int(d.pick(1, 2, 4, 7)) for _ in range(rank))), "float32", "plain"),
          False)  # fmt: skip
    points = d.rng.uniform(-1.6, 1.6, (batch, *(int(d.pick(1, 3, 5)) for _ in range(rank)), rank))
    d.add("grid", points.astype(np.float32))
    d.give(mode=mode, padding_mode=str(d.pick("zeros", "border", "reflection")), align_corners=int(d.pick(0, 1)))


def _roi_align(d: Draw) -> None:
    extents, count = (int(d.pick(4, 7, 9)), int(d.pick(4, 7, 9))), int(d.pick(1, 3))
    d.add("x", d.array((2, int(d.pick(1, 3)), *extents), "float32", "plain"), False)
    corners = np.sort(d.rng.uniform(-1, 10, (count, 2, 2)), 1).reshape(count, 4)
    d.add("rois", corners.astype(np.float32), False)
    d.add("images", d.rng.integers(0, 2, count).astype(np.int64))
    d.give(output_height=int(d.pick(1, 2, 3)), output_width=int(d.pick(1, 2, 3)), sampling_ratio=int(d.pick(1, 2, 3)),
           spatial_scale=float(d.pick(1.0, 0.5)), mode=str(d.pick("avg", "avg", "max")))  # fmt: skip
    if d.opset >= 16:
        d.give(coordinate_transformation_mode=str(d.pick("half_pixel", "output_half_pixel")))


def _det(d: Draw) -> None:
    size = int(d.pick(1, 2, 3, 4))
    d.add("x", d.array((*d.shape(0, 2, empty=0), size, size), "float32", "whole"), False)


def _dft(d: Draw) -> None:
    shape = [*d.shape(1, 3, empty=0), int(d.pick(1, 2))]
    axis = int(d.rng.integers(len(shape) - 1))
    inverse = int(d.chance(0.3))
    d.add("x", d.array(shape, "float32", "plain"), False)
    length = int(d.pick(1, 4, 9)) if d.chance(0.3) else None
    d.add("length", None if length is None else np.array(length, np.int64), True)
    d.give(inverse=inverse, onesided=int(shape[-1] == 1 and not inverse and d.chance(0.4)), axis=axis)
    if d.opset >= 20:
        d.add("axis", np.array(axis, np.int64), True)


def _stft(d: Draw) -> None:
    length, step = int(d.pick(4, 8, 16)), int(d.pick(1, 2, 5))
    d.add("signal", d.array((int(d.pick(1, 2)), length + int(d.pick(0, 9, 20)), 1), "float32", "plain"), False)
    d.add("step", np.array(step, np.int64), True)
    d.add("window", d.rng.random(length).astype(np.float32) if d.chance(0.5) else None)
    d.add("length", np.array(length, np.int64), True)
    d.give(onesided=int(d.pick(0, 1)))


LAYERS: Mapping[str, Recipe] = {
    **dict.fromkeys(GATES, _recurrent), "TopK": _top_k, "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd, "GridSample": _grid_sample, "RoiAlign": _roi_align, "Det": _det, "DFT": _dft,
    "STFT": _stft,
}  # fmt: skip
