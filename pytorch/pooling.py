"""Pooling over windows of one size, and over as many windows as a result has places."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .call import Call, Convert, Result, Unsupported


def _pool_values(call: Call, rank: int) -> dict[str, Any]:
    size, padding = call.numbers("kernel_size", rank), call.numbers("padding", rank)
    stride = call.numbers("stride", rank) or size
    return {"kernel_shape": size, "strides": stride, "pads": padding * 2, "ceil_mode": int(call["ceil_mode"])}


def _max_pool(call: Call) -> Result:
    call.only_first()
    rank = 3 if "3d" in str(call.node.target) else 2
    if len(call.shape("self")) != rank + 2:
        raise Unsupported("pooling without a batch has no program")
    values = _pool_values(call, rank) | {"dilations": call.numbers("dilation", rank)}
    return (call.last("MaxPool", [call.tensor("self")], 0, **values),)


def _average_pool(rank: int) -> Convert:
    def convert(call: Call) -> Result:
        if len(call.shape("self")) != rank + 2 or call.has("divisor_override"):
            raise Unsupported(f"{call.node.target} without a batch, or with a divisor, has no program")
        values = _pool_values(call, rank) | {"count_include_pad": int(call["count_include_pad"])}
        return call.last("AveragePool", [call.tensor("self")], **values)

    return convert


def _adaptive_average_pool(call: Call) -> Result:
    """The mean of windows: a pooling where sizes divide, else a product with a matrix for each dimension."""
    tensor, result = call.tensor("self"), call.result().shape
    shape, rank = call.type(tensor).shape, len(result)
    spatial = range(rank - len(call.numbers("output_size")), rank)
    if rank == len(spatial) + 2 and all(shape[at] % result[at] == 0 for at in spatial):
        size = [shape[at] // result[at] for at in spatial]
        return call.last("AveragePool", [tensor], kernel_shape=size, strides=size)
    now = list(shape)
    for at in spatial:
        if now[at] == result[at]:
            continue
        means = np.zeros((result[at], now[at]), call.result().dtype)
        for row, (first, end) in enumerate(_windows(now[at], result[at])):
            means[row, first:end] = 1 / (end - first)
        before, after = math.prod(now[:at]), math.prod(now[at + 1 :])
        now[at] = result[at]
        if after == 1:
            rows = call.reshaped(tensor, (before, means.shape[1]))
            tensor = call.part("MatMul", [rows, call.constant(np.ascontiguousarray(means.T))], (before, now[at]))
        else:
            rows = call.reshaped(tensor, (before, means.shape[1], after))
            tensor = call.part("MatMul", [call.constant(means), rows], (before, now[at], after))
    return call.last("Reshape", [tensor])


def _adaptive_max_pool(call: Call) -> Result:
    """The largest of windows: those of one dimension after the other, whose places stand in a table."""
    call.only_first()
    tensor, result = call.tensor("self"), call.result(0).shape
    shape, rank = call.type(tensor).shape, len(result)
    spatial = range(rank - len(call.numbers("output_size")), rank)
    if rank == len(spatial) + 2 and all(shape[at] % result[at] == 0 for at in spatial):
        size = [shape[at] // result[at] for at in spatial]
        return (call.last("MaxPool", [tensor], 0, kernel_shape=size, strides=size),)
    now = list(shape)
    for at in spatial:
        windows = _windows(now[at], result[at])
        longest = max(end - first for first, end in windows)
        places = [min(first + step, end - 1) for first, end in windows for step in range(longest)]
        taken = call.part("Gather", [tensor, call.constant(np.array(places))], (*now[:at], len(places), *now[at + 1 :]),
                          axis=at)  # fmt: skip
        now[at] = result[at]
        apart = call.reshaped(taken, (*now[: at + 1], longest, *now[at + 1 :]))
        tensor = call.part("ReduceMax", [apart], now, axes=[at + 1], keepdims=0)
    return (call.last("Reshape", [tensor], 0),)


def _windows(size: int, count: int) -> list[tuple[int, int]]:
    """Where each window of an adaptive pooling begins and ends."""
    return [(at * size // count, -(-(at + 1) * size // count)) for at in range(count)]


CONVERT: Mapping[str, Convert] = {
    "max_pool2d_with_indices": _max_pool,
    "max_pool3d_with_indices": _max_pool,
    "avg_pool1d": _average_pool(1),
    "avg_pool2d": _average_pool(2),
    "avg_pool3d": _average_pool(3),
    "_adaptive_avg_pool2d": _adaptive_average_pool,
    "_adaptive_avg_pool3d": _adaptive_average_pool,
    "adaptive_max_pool2d": _adaptive_max_pool,
    "adaptive_max_pool3d": _adaptive_max_pool,
}
