"""Tensors of networks of free sizes have the order of dimensions in which vectors are whole at all sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from network_maker import Maker
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from onnx_models import model, node

from stridesmith import configs
from stridesmith.ir.expr import Var
from stridesmith.ir.stmt import PrimFunc
from stridesmith.models import layout_search
from stridesmith.models.alternatives import alternatives
from stridesmith.models.ranges import orders, stored
from stridesmith.models.ranges.api import FreeSizes, network_of
from stridesmith.models.ranges.network import RangedNetwork

pytest.importorskip("onnxruntime")

from free_models import computed

CPU = configs.target("cpu-avx2")
RNG = np.random.default_rng(0)
RANGES = {"n": (1, 16), "H": (16, 64, 4), "W": (17, 60)}


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def images() -> ModelProto:
    """Convolutions with borders and of single pixels, one over a part of the other, and what is as long as channels."""
    nodes = [
        node("Conv", "x a b", "c", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "c", "r"),
        node("Conv", "r d", "q"), node("Conv", "q e", "s", pads=[1, 1, 1, 1], group=16), node("Add", "q s", "t"),
        node("GlobalAveragePool", "t", "m"), node("Flatten", "m", "f"), node("MatMul", "f g", "y"),
    ]  # fmt: skip
    constants = {"a": normal(8, 3, 3, 3), "b": normal(8), "d": normal(16, 8, 1, 1), "e": normal(16, 1, 3, 3)}
    return model(nodes, {"x": ("n", 3, "H", "W")}, {**constants, "g": normal(16, 5)}, outputs="y")


def read(made: ModelProto, channels_last: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RangedNetwork:
    """The network of all sizes where the estimate likes one order."""

    def predicted(func: PrimFunc, *_: object) -> float:
        return 1.0 if bool(func.layouts) is channels_last else 2.0

    monkeypatch.setattr(layout_search, "predicted_us", predicted)
    monkeypatch.setattr(orders, "LEAST_FLOPS", 1.0)
    monkeypatch.setattr(stored.CACHE, "name", str(tmp_path / "networks"))
    return network_of(made, CPU, FreeSizes(RANGES))


@pytest.mark.parametrize("channels_last", [True, False])
def test_networks_compute_the_same_in_both_orders(
    images: ModelProto, channels_last: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between operators no free extent comes last where the estimate likes channels there; outside all is as ONNX has
    it, and programs compute what the model says at each size."""
    network = read(images, channels_last, monkeypatch, tmp_path)
    known = {*network.inputs, *network.outputs, *network.constants}
    lasts = [t.extents[-1] for name, t in network.tensors.items() if name not in known and len(t.extents) == 4]
    assert lasts and any(isinstance(extent, int) and extent > 1 for extent in lasts) is channels_last
    assert network.tensors["x"].extents == (Var("n"), 3, Var("H"), Var("W"))
    for point in ({"n": 1, "H": 16, "W": 17}, {"n": 3, "H": 28, "W": 31}):
        x = normal(point["n"], 3, point["H"], point["W"])
        (expected,) = ReferenceEvaluator(images).run(None, {"x": x})
        np.testing.assert_allclose(computed(network, point, {"x": x})["y"], expected, atol=1e-4)


def test_no_free_dimension_comes_last_anew() -> None:
    """Sixteen images fill a vector, but a call may have one: vectors run along channels where their number is free."""
    make = Maker()
    x = make.input(16, 8, 6, 6)
    made = make.work("conv2d", x, make.constant(16, 8, 1, 1), n=16, ci=8, co=16, h=6, w=6, k=1, pad=0)
    network = make.network(make.map("T.max({0}, T.float32(0))", made))
    assert [k.innermost for k in alternatives(network, CPU)[made][:2]] == [3, 0]
    assert [k.innermost for k in alternatives(network, CPU, free={made: {0}})[made][:2]] == [3, 1]
    assert [k.innermost for k in alternatives(network, CPU, stay={made})[made]] == [3]
