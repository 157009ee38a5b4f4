"""ONNX Runtime's DynamicQuantizeLSTM: an LSTM with products of bytes.

The input of all steps is quantised as by DynamicQuantizeLinear, and the state anew in each step; sums are of int32::

    g = float(sum (xq - xz) (w - wz)) (x_scale w_scale) + bias[0] + bias[1]

and what follows is `operators.recurrent_bytes`.  Of sequences of different lengths the first steps of all are one
step, also where they run backwards, and the elements of those that have ended are 0 where the state is quantised.  ONNX
Runtime splits a batch among its threads, each of which quantises its part: this is what it computes with one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..network import Array
from ..operators.graph import Type
from .microsoft import DOMAIN, Definition
from .parts import Parts

W, R, BIAS, LENGTHS, HIDDEN, CELL, PEEPHOLES, W_SCALE, R_SCALE = 1, 2, 3, 4, 5, 6, 7, 8, 10
ATTRIBUTES = ("activation_alpha", "activation_beta", "activations", "clip", "input_forget")


@dataclass(frozen=True)
class _Weights:
    """Bytes ``[d, k, n]`` counted from `zero` ``[d]``, in steps of `scale` ``[d, n]``."""

    data: Array
    scale: Array
    zero: Array

    def columns(self) -> Array:
        """The matrix ``[k, d n]`` of all directions."""
        return np.ascontiguousarray(self.data.transpose(1, 0, 2).reshape(self.data.shape[1], -1))

    def signed(self) -> _Weights:
        """The same weights as signed bytes: without their zero point where that leaves them so."""
        wide, zero = self.data.astype(np.int32), self.zero.astype(np.int32)
        if (apart := wide - zero[:, None, None]).min() >= -128 and apart.max() <= 127:
            wide, zero = apart, np.zeros_like(zero)
        elif self.data.dtype == np.uint8:
            wide, zero = wide - 128, zero - 128
        return replace(self, data=wide.astype(np.int8), zero=zero)


def _weights(p: Parts, at: int, scale: int) -> _Weights | None:
    """Constant weights; None for others."""
    data, factor, zero = p.known(at), p.known(scale), p.known(scale + 1)
    if data is None or factor is None or (p.has(scale + 1) and zero is None):
        return None
    count, _, columns = data.shape
    scales = np.broadcast_to(factor.astype(np.float32).reshape(count, -1), (count, columns))
    start = np.zeros((count, 1), np.int32) if zero is None else zero.astype(np.int32).reshape(count, -1)
    return _Weights(data, scales, start[:, 0])  # ONNX Runtime takes one zero point for all columns


def _dynamic_lstm(p: Parts) -> bool:
    w, r = _weights(p, W, W_SCALE), _weights(p, R, R_SCALE)
    if w is None or r is None:
        return False
    (steps, batch, _), (count, size, columns), lengths = p.shape(), r.data.shape, p.known(LENGTHS)
    direction = p.attribute("direction", "forward")
    are_apart = p.has(LENGTHS) and batch > 1 and (lengths is None or bool(np.ptp(lengths)))
    turned = are_apart and direction != "forward"
    product = _input_product(p, w)
    if turned:
        whole = _turned(p, product, (steps, batch, count, columns), 2)
        product = p.reshaped(whole, (steps, batch, count * columns))
    signed = r.signed()
    sums = signed.data.sum(axis=1, dtype=np.int32) - size * signed.zero[:, None]
    given: list[int | str] = [product, "", p.constant(np.ascontiguousarray(signed.data.transpose(0, 2, 1))), ""]
    given += [at if p.has(at) else "" for at in (LENGTHS, HIDDEN, CELL, PEEPHOLES)]
    given += [p.constant(np.ascontiguousarray(signed.scale)), p.constant(sums.astype(np.int32))]
    given += [p.constant(signed.zero.astype(np.int32))] if signed.zero.any() else []
    values = {name: p.attribute(name) for name in ATTRIBUTES if p.attribute(name) is not None}
    values |= {"direction": "forward" if turned else direction, "ends": int(are_apart and p.wants(0))}
    shapes = [(steps, count, batch, size), *[(count, batch, size)] * 2]
    into = [at if p.wants(at) and not (turned and at == 0) else None for at in range(3)]
    if turned and p.wants(0):
        into[0] = -1
    y = p.owns("LSTMOfBytes", given, [Type(shape, "float32") for shape in shapes], into, **values)[0]
    if turned and p.wants(0):
        _turned(p, y, shapes[0], 1, 0)
    return True


def _input_product(p: Parts, w: _Weights) -> str:
    """The product of the input with the weights of all directions, with both biases: ``[t, b, d n]``."""
    p.add("DynamicQuantizeLinear", [_within(p)], [-1, -1, -1])
    x, scale, zero = p.nodes[-1].outputs
    starts = np.repeat(w.zero, w.data.shape[2]) if np.ptp(w.zero) else w.zero[0]
    total = p.add("MatMulInteger", [x, p.constant(w.columns()), zero, p.constant(starts.astype(w.data.dtype))])
    product = p.add("Mul", [p.cast(total, "float32"), p.add("Mul", [scale, p.constant(w.scale.reshape(-1))])])
    if not p.has(BIAS):
        return product
    columns = w.data.shape[2]
    halves = [p.sliced(BIAS, 1, at, at + columns) for at in (0, columns)]
    return p.add("Add", [product, p.reshaped(p.add("Add", halves), (w.scale.size,))])


def _within(p: Parts) -> int | str:
    """The input, with 0 in the steps that no sequence has."""
    steps, lengths = p.shape()[0], p.known(LENGTHS)
    if not p.has(LENGTHS) or (lengths is not None and lengths.max() >= steps):
        return 0
    numbers = p.constant(np.arange(steps, dtype=p.type(LENGTHS).dtype).reshape(-1, 1, 1))
    return p.add("Where", [p.add("Less", [numbers, p.add("ReduceMax", [LENGTHS], keepdims=0)]), 0, p.number(0.0)])


def _turned(p: Parts, name: str, shape: tuple[int, ...], axis: int, into: int = -1) -> str:
    """A tensor of this shape whose last part along `axis` has each sequence from its end on; time is dimension 0."""
    count = shape[axis]
    whole, lengths = p.reshaped(name, shape), p.cast(LENGTHS, "int64")
    last = p.reshaped(p.sliced(whole, axis, count - 1, count), (*shape[:axis], *shape[axis + 1 :]))
    last = p.add("ReverseSequence", [last, lengths], time_axis=0, batch_axis=1)
    last = p.reshaped(last, (*shape[:axis], 1, *shape[axis + 1 :]))
    others = [p.sliced(whole, axis, 0, count - 1)] if count > 1 else []
    return p.add("Concat", [*others, last], into, axis=axis)


DEFINITIONS: Mapping[tuple[str, str], Definition] = {(DOMAIN, "DynamicQuantizeLSTM"): _dynamic_lstm}
"""What it is."""
