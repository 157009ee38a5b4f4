"""Operators of the league in other types: what is raced is the operator that was drawn."""

from __future__ import annotations

from pathlib import Path

import league_types
import numpy as np
import onnx
import pytest
from league_draw import Operator
from onnx.reference import ReferenceEvaluator

CASES = {
    "image": Operator("f", "conv2d_bias_act", {"ci": 5, "h": 9, "w": 8, "co": 7, "k": 3, "stride": 2, "pad": 1,
                                               "layout": "nhwc", "act": "relu"}, ("w", "bias")),
    "long": Operator("f", "conv2d", {"ci": 4, "h": 9, "w": 8, "co": 6, "kh": 1, "kw": 3, "pad_h": 0, "pad_w": 1},
                     ("w",)),
    "depthwise": Operator("f", "depthwise_conv2d", {"c": 6, "h": 9, "w": 8, "k": 3, "pad": 1}, ("w",)),
    "product": Operator("f", "matmul", {"m": 5, "n": 9, "k": 12, "transpose_b": 1}, ("b",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_the_exact_result_rounded(name: str, tmp_path: Path) -> None:
    """The quantised operator is within a step of what it is compared with, and the file's name says what it is."""
    path, (shape,) = league_types.written(CASES[name], "one", "int8", tmp_path)
    assert path.name == "one_int8.onnx"
    quantised, exact = onnx.load(path), onnx.load(tmp_path / "one.onnx")
    extents = [d.dim_value for d in quantised.graph.input[0].type.tensor_type.shape.dim]
    assert shape == f"x={'x'.join(map(str, extents))}"
    x = np.random.default_rng(0).integers(0, 256, extents).astype(np.uint8)
    (got,) = ReferenceEvaluator(quantised).run(None, {"x": x})
    (want,) = ReferenceEvaluator(exact).run(None, {"x": x})
    assert got.dtype == np.uint8 and want.dtype == np.float32 and np.ptp(got) > 50
    assert np.abs(got - want).max() <= 0.51


def test_operators_in_bfloat16_are_those_in_float32(tmp_path: Path) -> None:
    """Each library rounds as it does."""
    path, _ = league_types.written(CASES["image"], "one", "bfloat16", tmp_path)
    model = onnx.load(path)
    assert path.name == "one.onnx" and [n.op_type for n in model.graph.node] == ["Conv", "Relu"]


def test_only_convolutions_and_products_are_taken() -> None:
    """In the order of their numbers, which are those of the league."""
    found = [next(pair) for pair in [league_types.operators(3)] for _ in range(12)]
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers)) and {operator.kind for _, operator in found} <= set(league_types.KINDS)
