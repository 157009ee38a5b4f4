"""Small ONNX models that tests read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Shape = Sequence[int | str]


def value(name: str, shape: Shape | None, dtype: str = "float32") -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def model(
    nodes: Sequence[NodeProto], inputs: Mapping[str, Shape], constants: Mapping[str, Any] | None = None,
    outputs: str = "y", opset: int = 17, tensors: Sequence[TensorProto] = (), dtype: str = "float32",
) -> ModelProto:  # fmt: skip
    """A model of `nodes`; constants that are no arrays become float32."""
    given = {k: v if isinstance(v, np.ndarray) else np.asarray(v, np.float32) for k, v in (constants or {}).items()}
    graph = helper.make_graph(
        nodes, "test", [value(k, v, dtype) for k, v in inputs.items()],
        [ValueInfoProto(name=name) for name in outputs.split()],
        [*(numpy_helper.from_array(v, k) for k, v in given.items()), *tensors],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
