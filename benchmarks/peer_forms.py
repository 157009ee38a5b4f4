"""What every peer works on: a job's arrays and directions, and the forms in which a library does it.

Nothing here needs stridesmith, as peers may live in another environment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Call = Callable[[], Any]
Job = dict[str, Any]
LINE = 64
SLOPE, TOP = 0.01, 6.0  # of leaky_relu and clip


@dataclass
class Forms:
    """What one library does a workload with: calls by name, each giving its result; and why others are not there.

    `given` are arrays, by name, whose memory the calls read, so that other numbers may be put into it.
    """

    calls: dict[str, Call] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    given: dict[str, np.ndarray] = field(default_factory=dict)

    def attempt(self, name: str, make: Callable[[], Call]) -> None:
        """Add the form that `make` gives if it can be made and called."""
        try:
            call = make()
            call()
            self.calls[name] = call
        except (RuntimeError, AttributeError, TypeError, NotImplementedError) as error:
            self.missing[name] = f"{type(error).__name__}: {error}"[:200]


def arrays(job: Job) -> dict[str, np.ndarray]:
    """The workload's buffers, all filled, each from the start of a cache line."""
    rng = np.random.default_rng(0)
    return {name: aligned(rng.standard_normal(shape, dtype=np.float32)) for name, shape in job["buffers"].items()}


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts at a cache line, which NumPy does not promise."""
    memory = np.empty(array.nbytes + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@dataclass(frozen=True)
class Convolution:
    """What a job asks of a convolution of any kind, as lists with a number for each direction of the image."""

    stride: list[int]
    pad: list[int]
    dilation: list[int]
    output_pad: list[int]
    groups: int
    is_last: bool
    is_transposed: bool


CONVOLUTIONS = (
    "conv1d", "conv2d", "conv3d", "conv2d_bias_act", "conv2d_transpose", "depthwise_conv2d", "grouped_conv2d",
    "depthwise_multiplier", "gathered_conv_transpose",
)  # fmt: skip


def convolution(job: Job) -> Convolution:
    """The convolution of a job whose kind is one of CONVOLUTIONS."""
    kind, p = job["workload"], job["params"]
    space = {3: "w", 4: "hw", 5: "dhw"}[len(job["buffers"]["x"])]
    depthwise = kind in ("depthwise_conv2d", "depthwise_multiplier")
    own = [p["k"] // 2] * 2 if kind in ("grouped_conv2d", "depthwise_multiplier") else each(p, "pad", space, 0)
    return Convolution(
        each(p, "stride", space, 1), own, each(p, "dilation", space, 1), each(p, "output_pad", space, 0),
        p["c"] if depthwise else p.get("groups", 1), p.get("layout", "nchw").endswith("c"), "transpose" in kind,
    )  # fmt: skip


def each(p: dict[str, Any], name: str, space: str, default: int) -> list[int]:
    """A parameter in each direction: ``stride_h`` and ``stride_w``, or ``stride`` for both."""
    return [int(p.get(f"{name}_{a}", p.get(name, default))) for a in space]


def filters(job: Job, w: np.ndarray) -> np.ndarray:
    """A convolution's weights as peers take them: ``[co, ci of a group, taps]``, transposed ``[ci, co, taps]``."""
    conv = convolution(job)
    taps = len(conv.stride)
    if w.ndim == taps + 1:  # one input channel for each filter, and no axis for it
        w = np.moveaxis(w, -1, 0) if conv.is_last else w
        return np.ascontiguousarray(w[:, None])
    if conv.is_last:
        w = np.moveaxis(w, (-2, -1), (0, 1) if conv.is_transposed else (1, 0))
    return np.ascontiguousarray(w)
