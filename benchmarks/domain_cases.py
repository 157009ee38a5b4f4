"""A random node of a domain: how attributes, shapes and values are drawn, and its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

MICROSOFT, LEARNING = "com.microsoft", "ai.onnx.ml"
Array = np.ndarray


class Draw:
    """Random choices; shapes are small, and extents seldom equal."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def size(self, least: int = 1, most: int = 6) -> int:
        return int(self.rng.integers(least, most + 1))

    def flip(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def one(self, *of: Any) -> Any:
        return of[int(self.rng.integers(len(of)))]

    def floats(self, *shape: int, scale: float = 1.0) -> Array:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def ints(self, most: int, *shape: int, dtype: Any = np.int32) -> Array:
        return self.rng.integers(0, most, shape).astype(dtype)


@dataclass
class Case:
    """A node with its inputs, of which those in `fixed` are constants of the model; those at `absent` are left out.

    Bytes of the result may be `steps` from those of another implementation, which rounds another float.
    """

    op: str
    domain: str
    arrays: dict[str, Array]
    outputs: int = 1
    fixed: frozenset[str] = frozenset()
    absent: tuple[int, ...] = ()
    steps: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0

    def model(self) -> onnx.ModelProto:
        names = list(self.arrays)
        for at in self.absent:
            names.insert(at, "")
        outputs = [f"y{at}" for at in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, "node", domain=self.domain, **self.attributes)
        given = [
            helper.make_tensor_value_info(n, _element(a), a.shape)
            for n, a in self.arrays.items()
            if n not in self.fixed
        ]
        constants = [onnx.numpy_helper.from_array(self.arrays[name], name) for name in self.fixed]
        graph = helper.make_graph([node], "one", given, [onnx.ValueInfoProto(name=n) for n in outputs], constants)
        opsets = [helper.make_opsetid("", 17)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, self.version or (1 if self.domain == MICROSOFT else 3)))
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _element(array: Array) -> int:
    return TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def microsoft(op: str, arrays: dict[str, Array], **more: Any) -> Case:
    """A node of ``com.microsoft``."""
    return Case(op, MICROSOFT, arrays, **more)
