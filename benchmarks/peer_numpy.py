"""NumPy: products by OpenBLAS, and NumPy's own sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from peer_forms import SLOPE, TOP, Forms, Job, arrays, convolution, filters


def numpy_forms(job: Job, threads: int) -> Forms:
    """What OpenBLAS does, convolutions that are products among it, and what NumPy does in one call."""
    data, kind, p = arrays(job), job["workload"], job["params"]
    if "matmul" in kind:
        return _matmul(data, p)
    if kind in ("conv1d", "conv2d", "conv3d", "conv2d_bias_act"):
        return _pointwise(job, data)
    if kind == "row_sum" and threads == 1:
        return Forms({"sum": lambda: np.sum(data["x"], axis=1, out=data["y"])})
    if kind == "reduction":
        reduce: Any = {"sum": np.sum, "mean": np.mean, "max": np.max}[p["op"]]
        return Forms({p["op"]: lambda: reduce(data["x"], axis=tuple(p["axes"]), out=data["y"])})
    if kind == "cumulative_sum":
        return Forms({"cumsum": lambda: np.cumsum(data["x"], axis=p["axis"], out=data["y"])})
    return Forms()


def _matmul(data: dict[str, np.ndarray], p: dict[str, Any]) -> Forms:
    a = np.swapaxes(data["a"], -1, -2) if p.get("transpose_a") else data["a"]
    b = np.swapaxes(data["b"], -1, -2) if p.get("transpose_b") else data["b"]
    c = data["c"] if "c" in data else data["y"]
    act = p.get("act", "none")
    if act not in ACTS:
        return Forms(missing={"matmul": f"NumPy has no {act}"})
    bias = data.get("bias")
    bias = bias[:, None] if bias is not None and bias.ndim == 2 else bias

    def product() -> np.ndarray:
        np.matmul(a, b, out=c)
        if bias is not None:
            np.add(c, bias, out=c)
        ACTS[act](c)
        return c

    return Forms({"matmul": product})


ACTS: dict[str, Any] = {
    "none": lambda y: y,
    "relu": lambda y: np.maximum(y, 0, out=y),
    "tanh": lambda y: np.tanh(y, out=y),
    "clip": lambda y: np.clip(y, 0, TOP, out=y),
    "leaky_relu": lambda y: np.maximum(y, y * np.float32(SLOPE), out=y),
}
"""What NumPy does in place, in few passes."""


def _pointwise(job: Job, data: dict[str, np.ndarray]) -> Forms:
    """A convolution with one tap, dense and of stride 1, which is a product of matrices."""
    conv, w = convolution(job), filters(job, data["w"])
    act = job["params"].get("act", "none")
    if w.size != w.shape[0] * w.shape[1] or conv.groups > 1 or set(conv.stride) != {1} or any(conv.pad):
        return Forms()
    if act not in ACTS or data["x"].shape[0] != 1:
        return Forms()
    weights, y, bias = w.reshape(w.shape[:2]), data["y"], data.get("bias")
    if conv.is_last:
        left, right, out = data["x"].reshape(-1, w.shape[1]), np.ascontiguousarray(weights.T), y.reshape(-1, w.shape[0])
    else:
        left, right, out = weights, data["x"].reshape(w.shape[1], -1), y.reshape(w.shape[0], -1)
        bias = None if bias is None else bias[:, None]

    def product() -> np.ndarray:
        np.matmul(left, right, out=out)
        if bias is not None:
            np.add(out, bias, out=out)
        ACTS[act](out)
        return y

    return Forms({"matmul": product})
