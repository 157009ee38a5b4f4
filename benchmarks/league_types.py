"""Convolutions and products of the league in int8 or bfloat16, each a network of one operator (`league.py --dtype`).

In int8 an operator is what quantisers make of it: bytes in and out, weights with a scale for each channel, between
DequantizeLinear and QuantizeLinear.  In bfloat16 it is the operator in float32, which ours computes by ``--precision
bfloat16``, OpenVINO as it comes and PyTorch by its autocast.  Images have channels first, as ONNX has them.  Each is
tuned and raced as whole networks are (`network_race.py`): who has much more than the least error against float32 does
not race.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from league_draw import Operator, draw
from network_race import row_of
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper
from racing import geometric_mean, read

DTYPES = ("int8", "bfloat16")
KINDS = ("conv2d", "conv2d_bias_act", "depthwise_conv2d", "matmul", "matmul_bias_act")
ACTIVATIONS = {"none": "", "relu": "Relu", "clip": "Clip"}
OPSET = 19
X_SCALE, X_ZERO = 0.02, 120
Floats = NDArray[np.float32]
Row = dict[str, Any]


def operators(seed: int) -> Iterator[tuple[int, Operator]]:
    """The operators of a seed that both types have, without end, each with its number."""
    number = 0
    while True:
        operator = draw(seed, number)
        act = operator.params.get("act", "none")
        if operator.kind in KINDS and act in ACTIVATIONS and not operator.params.get("transpose_a"):
            yield number, operator
        number += 1


class Parts:
    """An operator in numbers: what it reads, its node, and the activation behind it."""

    def __init__(self, operator: Operator, seed: int) -> None:
        rng, p = np.random.default_rng(seed), operator.params
        self.act = ACTIVATIONS[p.get("act", "none")]
        if "matmul" in operator.kind:
            self.kind, self.attributes = "MatMul", {}
            shape, weights = [p["m"], p["k"]], (p["k"], p["n"])
            self.axis, fan = 1, p["k"]
        else:
            depthwise = operator.kind == "depthwise_conv2d"
            ci, co, groups = (p["c"], p["c"], p["c"]) if depthwise else (p["ci"], p["co"], p.get("groups", 1))
            kernel = [p.get("kh", p.get("k", 1)), p.get("kw", p.get("k", 1))]
            pads = [p.get("pad_h", p.get("pad", 0)), p.get("pad_w", p.get("pad", 0))]
            self.kind, self.axis, fan = "Conv", 0, ci // groups * kernel[0] * kernel[1]
            self.attributes = {
                "kernel_shape": kernel, "pads": pads * 2, "strides": [p.get("stride", 1)] * 2, "group": groups,
                "dilations": [p.get("dilation", 1)] * 2,
            }  # fmt: skip
            shape, weights = [1, ci, p["h"], p["w"]], (co, ci // groups, *kernel)
        self.shape = shape
        self.weights = (rng.standard_normal(weights) * fan**-0.5).astype(np.float32)
        self.bias = (0.1 * rng.standard_normal(weights[self.axis])).astype(np.float32)


def model_of(parts: Parts, quantised: bool | None) -> ModelProto:
    """The operator: in float32 for None, after quantisation, or with the same bytes read and nothing else rounded."""
    made = _Maker(parts)
    if quantised is None:
        return made.model("x", TensorProto.FLOAT, made.computed("x", parts.weights, parts.bias), TensorProto.FLOAT)
    wide = np.moveaxis(parts.weights, parts.axis, 0).reshape(parts.weights.shape[parts.axis], -1)
    scales = (np.abs(wide).max(axis=1) / 127).astype(np.float32)
    along = [-1 if d == parts.axis else 1 for d in range(parts.weights.ndim)]
    weights = np.clip(np.rint(parts.weights / scales.reshape(along)), -127, 127).astype(np.int8)
    bias = np.rint(parts.bias / (scales * np.float32(X_SCALE))).astype(np.int32)
    x = made.add("DequantizeLinear", "x", made.constant(np.float32(X_SCALE)), made.constant(np.uint8(X_ZERO)))
    zeros = np.zeros(len(scales), np.int8)
    w = made.add("DequantizeLinear", *map(made.constant, (weights, scales, zeros)), axis=parts.axis)
    b = made.add("DequantizeLinear", *map(made.constant, (bias, scales * np.float32(X_SCALE))), axis=0)
    y = made.computed(x, w, b)
    # Sums of so many products of about 1 are about 1; what is beyond four is clipped, as calibration would.
    scale, zero = (np.float32(4 / 255), 0) if parts.act else (np.float32(8 / 255), 128)
    if quantised:
        y = made.add("QuantizeLinear", y, made.constant(scale), made.constant(np.uint8(zero)))
        return made.model("x", TensorProto.UINT8, y, TensorProto.UINT8)
    steps = made.add("Add", made.add("Div", y, made.constant(scale)), made.constant(np.float32(zero)))
    y = made.add("Clip", steps, made.constant(np.float32(0)), made.constant(np.float32(255)))
    return made.model("x", TensorProto.UINT8, y, TensorProto.FLOAT)


class _Maker:
    """A model in the making."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def constant(self, value: Any) -> str:
        self.tensors.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.tensors)}"))
        return f"c{len(self.tensors) - 1}"

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [f"t{len(self.nodes)}"], **attributes))
        return f"t{len(self.nodes) - 1}"

    def computed(self, x: str, weights: str | Floats, bias: str | Floats) -> str:
        """The operator itself, with the activation."""
        w, b = (each if isinstance(each, str) else self.constant(each) for each in (weights, bias))
        if self.parts.kind == "Conv":
            y = self.add("Conv", x, w, b, **self.parts.attributes)
        else:
            y = self.add("Add", self.add("MatMul", x, w), b)
        if self.parts.act == "Clip":
            return self.add("Clip", y, self.constant(np.float32(0)), self.constant(np.float32(6)))
        return self.add(self.parts.act, y) if self.parts.act else y

    def model(self, x: str, given: int, y: str, made: int) -> ModelProto:
        self.nodes[-1].output[0] = "y"
        assert y not in {name for node in self.nodes for name in node.input}
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "one", [value(x, given, self.parts.shape)], [value("y", made, None)], self.tensors
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def written(operator: Operator, name: str, dtype: str, folder: Path) -> tuple[Path, list[str]]:
    """The file of an operator in a folder, with that of its exact result beside it, and the shape of its input."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = Parts(operator, 0)
    path = folder / (f"{name}_int8.onnx" if dtype == "int8" else f"{name}.onnx")
    onnx.save(model_of(parts, True if dtype == "int8" else None), path)
    if dtype == "int8":
        onnx.save(model_of(parts, False), folder / f"{name}.onnx")
    return path, [f"x={'x'.join(map(str, parts.shape))}"]


def measure(arguments: argparse.Namespace, count: int) -> list[Row]:
    """Tune and race the first operators of a seed that are not yet in the folder; all rows that it has then."""
    log = arguments.out / f"league_{arguments.dtype}.jsonl"
    known = {row["name"]: row for row in read(log)}
    for (number, operator), _ in zip(operators(arguments.seed), range(count), strict=False):
        name = f"seed{arguments.seed}_{number:04}"
        if name in known:
            continue
        path, shapes = written(operator, name, arguments.dtype, arguments.out / "operators")
        tuned = arguments.out / f"{path.stem}.tuned.json"
        row = row_of(path, shapes, tuned, arguments) | {"name": name, "operator": operator.label}
        known[name] = row
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(line_of(row), flush=True)
    return list(known.values())


def line_of(row: Row) -> str:
    """A row as it is printed when it comes."""
    times = ", ".join(f"{name} {us[0]:.1f}" for name, us in row.get("times", {}).items())
    why = "; ".join(f"{name}: {reason}" for name, reason in row.get("missing", {}).items())
    return f"{row['name']} {row['operator']}: {row['ratio']:.2f}; us: {times}; {row['problem'] or why}"


def told(rows: list[Row]) -> str:
    """Geometric mean, 5th percentile and least of the ratios; rows without one are counted."""
    from league import percentile

    ratios = sorted(row["ratio"] for row in rows if row["ratio"] == row["ratio"])
    if not ratios:
        return "no row has a ratio"
    return (
        f"{len(rows)} operators: geometric mean {geometric_mean(ratios):.2f} of {len(ratios)}, 5th percentile "
        f"{percentile(ratios, 0.05):.2f}, minimum {ratios[0]:.2f}"
    )
