"""Networks of programs, made by hand, each with what it computes in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from draws import func_of
from numpy.typing import NDArray

import stridesmith as ss
from stridesmith.models.network import Network, Node, Operator, Tensor

Array = NDArray[Any]
Reference = Callable[[Mapping[str, Array]], dict[str, Array]]


def unary(name: str, shape: tuple[int, ...], value: str) -> ss.PrimFunc:
    """``y[i] = value`` over a shape; `value` is an expression of ``x[i]``, written X."""
    return elementwise(name, shape, value, ("x",))


def elementwise(name: str, shape: tuple[int, ...], value: str, inputs: tuple[str, ...]) -> ss.PrimFunc:
    """``y[i] = value`` over a shape; each input stands in `value` by its name in capitals."""
    indices = ", ".join(f"v{n}" for n in range(len(shape)))
    for buffer in inputs:
        value = value.replace(buffer.upper(), f"{buffer}[{indices}]")
    params = ", ".join(f'{b}: T.Buffer({shape}, "float32")' for b in (*inputs, "y"))
    axes = "\n".join(f"            v{n} = T.axis.spatial({extent}, i{n})" for n, extent in enumerate(shape))
    loops = ", ".join(f"i{n}" for n in range(len(shape)))
    return func_of(f"""
@T.prim_func
def {name}({params}):
    for {loops} in T.grid({", ".join(map(str, shape))}):
        with T.block("y"):
{axes}
            y[{indices}] = {value}
""")


def residual(channels: int = 16, size: int = 6) -> tuple[Network, Reference]:
    """``y = x + conv(relu(conv(x, w1)), w2)``, and the relu as a second output: two convolutions of one program."""
    conv = ss.workload("conv2d", ci=channels, co=channels, h=size, w=size, k=3, pad=1)
    shape = (1, channels, size, size)
    tensors = {name: Tensor(name, shape, "float32") for name in ("x", "a", "b", "c", "y")}
    rng = np.random.default_rng(0)
    weights = {
        name: (0.1 * rng.standard_normal((channels, channels, 3, 3))).astype(np.float32) for name in ("w1", "w2")
    }
    tensors |= {name: Tensor(name, array.shape, "float32") for name, array in weights.items()}
    nodes: tuple[Node, ...] = (
        Operator("conv1", conv.func, ("x", "w1"), ("a",)),
        Operator("relu", unary("relu", shape, "T.max(X, T.float32(0))"), ("a",), ("b",)),
        Operator("conv2", conv.func, ("b", "w2"), ("c",)),
        Operator("add", elementwise("add", shape, "P + Q", ("p", "q")), ("c", "x"), ("y",)),
    )

    def reference(given: Mapping[str, Array]) -> dict[str, Array]:
        first = conv.reference({"x": given["x"].astype(np.float64), "w": weights["w1"].astype(np.float64)})["y"]
        b = np.maximum(first, 0)
        return {"y": given["x"] + conv.reference({"x": b, "w": weights["w2"].astype(np.float64)})["y"], "b": b}

    return Network("residual", ("x",), ("y", "b"), tensors, weights, nodes), reference
