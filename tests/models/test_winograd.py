"""Winograd's convolutions: the same result from fewer multiplications, and where they are left as they are."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from network_maker import Maker, computed, drawn

import stridesmith as ss
from stridesmith import configs
from stridesmith.ir.expr import Call
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.node import walk
from stridesmith.models.alternatives import wanted_by
from stridesmith.models.fusion import fused
from stridesmith.models.laid_out import laid_out
from stridesmith.models.network import Network, Operator, Tensor, problems
from stridesmith.models.winograd import TAPS, WEIGHTS, with_winograd

CPU = configs.target("cpu-avx512")
ALWAYS = -1e9
ROWS_OF_DATA = np.array([[1, 0, -1, 0], [0, 1, 0, -1], [0, 1, -1, 0], [0, 1, 1, 0]])
GATHERED = np.array([[1, 0, 1, 1], [0, 1, -1, 1]])
"""What each row of V has of four neighbours, and each result of the rows of M."""


def conv(make: Maker, x: str, co: int = 4, k: int = 3, layout: str = "nchw", **more: int) -> str:
    """A convolution with constant weights; the result's name."""
    shape = make.shape(x)
    ci, h, w = (shape[1], *shape[2:]) if layout == "nchw" else (shape[3], *shape[1:3])
    weights = make.constant(*((co, ci, k, k) if layout == "nchw" else (k, k, ci, co)))
    return make.work("conv2d", x, weights, n=shape[0], ci=ci, co=co, h=h, w=w, k=k, layout=layout, **more)


def names(network: Network) -> list[str]:
    """The programs of a network."""
    return [node.func.name for node in network.nodes if isinstance(node, Operator)]


def transformed(network: Network, tolerance: float = 0.0) -> Network:
    """The network after fusion with Winograd's convolutions; it computes the same numbers, where all are whole ones."""
    before = fused(network, CPU)
    after = with_winograd(before, ALWAYS)
    assert list(problems(after)) == []
    given = drawn(network)
    for name, array in computed(before, given).items():
        np.testing.assert_allclose(computed(after, given)[name], array, rtol=0, atol=tolerance)
    return after


def test_four_products_are_two_sums_of_three_taps() -> None:
    """The identity is bilinear, so that it holds for all data and weights if it does for each pair of unit vectors."""
    for data, taps in itertools.product(np.eye(4), np.eye(TAPS)):
        products = (ROWS_OF_DATA @ data) * (np.array(WEIGHTS) @ taps)
        assert list(GATHERED @ products) == [data[p : p + TAPS] @ taps for p in range(2)]


@pytest.mark.parametrize("channels", [32, 256])
def test_errors_are_no_larger_than_those_of_sums_in_order(channels: int) -> None:
    """Normal data and weights, everything in float32, against float64: fewer numbers are added up."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((channels, 4, 4, 64), (16, channels, 3, 3)))
    windows = np.stack([x[:, i : i + 2, j : j + 2] for i in range(TAPS) for j in range(TAPS)], axis=1)
    exact = np.einsum("ckpqt,ock->opqt", windows.astype(np.float64), w.reshape(16, channels, 9), optimize=True)
    in_order = np.zeros(exact.shape, np.float32)
    for c, k in itertools.product(range(channels), range(TAPS * TAPS)):
        in_order += w.reshape(16, channels, 9)[:, c, k, None, None, None] * windows[None, c, k]
    rows, gathered = ROWS_OF_DATA.astype(np.float32), GATHERED.astype(np.float32)
    u = np.einsum("ai,ocij,bj->abco", WEIGHTS, w, WEIGHTS).astype(np.float32)
    v = np.einsum("ai,cijt,bj->abct", rows, x, rows)
    m = np.zeros((4, 4, 16, 64), np.float32)
    for c in range(channels):
        m += u[:, :, c, :, None] * v[:, :, c, None, :]
    fewer = np.einsum("pa,abot,qb->opqt", gathered, m, gathered)
    assert fewer.dtype == in_order.dtype == np.float32
    assert np.square(fewer - exact).mean() < np.square(in_order - exact).mean()


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(("h", "w", "pad"), [(8, 8, 1), (7, 9, 1), (5, 6, 0), (4, 3, 2)])
def test_a_convolution_is_three_operators(layout: str, h: int, w: int, pad: int) -> None:
    """Even and odd extents, with and without a border, two images."""
    make = Maker()
    x = make.input(*((2, 3, h, w) if layout == "nchw" else (2, h, w, 3)))
    after = transformed(make.network(conv(make, x, layout=layout, pad=pad)))
    assert names(after) == ["winograd_data", "winograd_sums", "winograd_result"]
    data, sums, result = (node.func for node in after.nodes if isinstance(node, Operator))
    out = (h + 2 * pad - 2, w + 2 * pad - 2)
    pairs = tuple(-(-extent // 2) for extent in out)
    assert sums.buffers[0].shape == (4, 4, 2, *pairs, 3)
    assert sums.buffers[1].shape == (4, 4, 3, 4)
    assert data.buffers[-1] == sums.buffers[0]
    assert sums.buffers[2].shape == result.buffers[0].shape == (4, 4, 2, *pairs, 4)


def test_one_dimension_takes_four_products_for_six() -> None:
    make = Maker()
    x = make.input(1, 3, 9)
    after = transformed(make.network(make.work("conv1d", x, make.constant(4, 3, 3), ci=3, co=4, w=9, k=3, pad=1)))
    assert names(after) == ["winograd_data", "winograd_sums", "winograd_result"]
    assert after.nodes[1].outputs[0] in after.tensors
    assert after.tensors[after.nodes[1].outputs[0]].shape == (4, 1, 5, 4)


def test_what_follows_is_in_the_last_operator_and_what_precedes_in_the_first() -> None:
    """Bias, shortcut and activation after; an activation of the input, which only the convolution reads, before."""
    make = Maker()
    x = make.input(1, 4, 6, 6)
    y = conv(make, make.map("T.max({0}, T.float32(0))", x), pad=1)
    y = make.map("T.max({0} + b[v1] + {2}, T.float32(0))", y, make.constant(4), x)
    before = make.network(y)
    after = transformed(before)
    assert names(after) == ["winograd_data", "winograd_sums", "winograd_result"]
    assert after.nodes[0].inputs == (x,)
    assert x in after.nodes[2].inputs
    assert after.nodes[2].outputs == (y,)


def test_convolutions_of_one_tensor_share_what_is_made_of_it() -> None:
    make = Maker()
    x = make.input(1, 3, 6, 6)
    one, two, other = conv(make, x, pad=1), conv(make, x, co=5, pad=1), conv(make, x, pad=0)
    assert names(transformed(make.network(one, two, other))).count("winograd_data") == 2


def test_the_old_weights_go_and_others_use_theirs() -> None:
    """Constants that nothing reads any more are left out, those of the same convolution elsewhere stay."""
    make = Maker()
    x = make.input(1, 3, 6, 6)
    first = conv(make, x, pad=1)
    weights = next(iter(make.constants))
    strided = make.work("conv2d", x, weights, ci=3, co=4, h=6, w=6, k=3, pad=1, stride=2)
    assert weights in transformed(make.network(first, strided)).constants
    make = Maker()
    after = transformed(make.network(conv(make, make.input(1, 3, 6, 6), pad=1)))
    assert [array.shape for array in after.constants.values()] == [(4, 4, 3, 4)]
    assert set(after.constants) <= set(after.tensors)


@pytest.mark.parametrize("more", [{"stride": 2}, {"k": 5, "pad": 2}, {"k": 1}, {"dilation": 2, "pad": 2}])
def test_other_convolutions_stay(more: dict[str, int]) -> None:
    """Condition 2: three taps, next to each other, of windows that move point by point."""
    make = Maker()
    network = fused(make.network(conv(make, make.input(1, 4, 8, 8), **more)), CPU)
    assert with_winograd(network, ALWAYS) == network


def test_convolutions_in_groups_stay() -> None:
    """Condition 2: the index of the input's channel is none of the iterators."""
    make = Maker()
    x = make.input(1, 4, 8, 8)
    y = make.work("conv2d", x, make.constant(6, 2, 3, 3), ci=4, co=6, h=8, w=8, k=3, pad=1, groups=2)
    network = fused(make.network(y), CPU)
    assert with_winograd(network, ALWAYS) == network


def test_depthwise_convolutions_stay() -> None:
    """Condition 2: nothing but taps is added up, so that no product is shared."""
    make = Maker()
    x = make.input(1, 4, 8, 8)
    y = make.work("depthwise_conv2d", x, make.constant(4, 3, 3), c=4, h=8, w=8, k=3, pad=1)
    network = fused(make.network(y), CPU)
    assert with_winograd(network, ALWAYS) == network


def test_weights_that_are_computed_stay() -> None:
    """Condition 1: U is made ahead of time."""
    make = Maker()
    x, w = make.input(1, 3, 6, 6), make.input(4, 3, 3, 3)
    network = fused(make.network(make.work("conv2d", x, w, ci=3, co=4, h=6, w=6, k=3, pad=1)), CPU)
    assert with_winograd(network, ALWAYS) == network


def test_programs_with_strict_floats_stay() -> None:
    """Condition 1: sums are rounded otherwise, which such a program does not allow."""
    make = Maker()
    network = fused(make.network(conv(make, make.input(1, 3, 6, 6), pad=1)), CPU)
    (node,) = network.nodes
    assert isinstance(node, Operator)
    func = ss.parse(node.func.script().replace("):\n", '):\n    T.func_attr({"strict_float": True})\n', 1))
    assert isinstance(func, ss.PrimFunc)
    strict = network.with_nodes((Operator(node.name, func, node.inputs, node.outputs),))
    assert with_winograd(strict, ALWAYS) == strict


SCRIPT = """
@T.prim_func
def conv(x: T.Buffer((3, 10), "float32"), w: T.Buffer((4, 3, 3), "float32"), y: T.Buffer((4, 8), "float32")):
    for o, s, c, k in T.grid(4, 8, 3, 3):
        with T.block("sum"):
            vo, vs, vc, vk = T.axis.remap("SSRR", [o, s, c, k])
            with T.init():
                y[vo, vs] = T.float32(0)
            y[vo, vs] = y[vo, vs] + x[vc, vs + vk] * w[vo, vc, vk]
"""


def from_script(text: str) -> Network:
    """A network of one program with random weights."""
    func = ss.parse(text)
    assert isinstance(func, ss.PrimFunc)
    tensors = {b.name: Tensor(b.name, b.shape, b.dtype) for b in func.buffers}
    weights = np.random.default_rng(0).integers(-2, 3, tensors["w"].shape).astype("float32")
    node = Operator("conv", func, ("x", "w"), ("y",))
    network = Network("one", ("x",), ("y",), tensors, {"w": weights}, (node,))
    assert list(problems(network)) == []
    return network


def test_a_program_written_by_hand_is_recognised() -> None:
    """By its accesses, also where its buffers have the names of V, U and M, and its operator that of another."""
    network = from_script(SCRIPT)
    assert names(with_winograd(network, ALWAYS)) == ["winograd_data", "winograd_sums", "winograd_result"]
    make = Maker()
    func = ss.parse(re.sub(r"\b[xyw]\b", lambda found: {"x": "V", "y": "M", "w": "U"}[found[0]], SCRIPT))
    assert isinstance(func, ss.PrimFunc)
    transformed(make.network(make.operator(func, make.input(3, 10), make.constant(4, 3, 3))))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y[vo, vs] = T.float32(0)", "y[vo, vs] = T.float32(2)"),
        ("            with T.init", "            T.where(k < 2)\n            with T.init"),
        ("w: T.Buffer((4, 3, 3)", "w: T.Buffer((5, 3, 3)"),
        ("w: T.Buffer((4, 3, 3)", "w: T.Buffer((4, 3, 4)"),
        ("x[vc, vs + vk]", "x[vc, vs + vk - vk]"),
        ("x[vc, vs + vk]", "x[vc, vs + 2 - vk]"),
        ("x[vc, vs + vk]", "x[vc, 9 - vs - vk]"),
        ("+ x[", "+ T.float32(2) * x["),
        ("+ x[vc, vs + vk]", "* x[vc, vs + vk]"),
    ],
)
def test_what_is_not_quite_a_convolution_stays(old: str, new: str) -> None:
    """Conditions 1 and 2, each missed by one thing."""
    assert old in SCRIPT
    network = from_script(SCRIPT.replace(old, new))
    assert with_winograd(network, ALWAYS) == network


def test_a_sum_that_goes_on_from_something_else_stays() -> None:
    """Condition 1: without an initialisation of its own, the block adds to what another has stored."""
    lines = SCRIPT.replace("            with T.init():\n                y[vo, vs] = T.float32(0)\n", "").split("\n")
    fill = ["    for i, j in T.grid(4, 8):", '        with T.block("fill"):',
            '            vi, vj = T.axis.remap("SS", [i, j])', "            y[vi, vj] = T.float32(7)"]  # fmt: skip
    network = from_script("\n".join([*lines[:3], *fill, *lines[3:]]))
    assert with_winograd(network, ALWAYS) == network


def test_what_is_dear_is_computed_once_before() -> None:
    """An exponential of each datum, which 16 rows read, is an operator of its own; adding a bias is part of V."""
    make = Maker()
    x = make.input(1, 3, 6, 6)
    dear = transformed(make.network(conv(make, make.map("T.exp({0})", x), pad=1)), tolerance=1e-3)
    assert names(dear) == ["winograd_input", "winograd_data", "winograd_sums", "winograd_result"]
    assert sum(isinstance(n, Call) and n.name == "exp" for node in dear.nodes for n in walk(node.func)) == 1
    make = Maker()
    cheap = transformed(make.network(conv(make, make.map("{0} + T.float32(1)", make.input(1, 3, 6, 6)), pad=1)))
    assert names(cheap) == ["winograd_data", "winograd_sums", "winograd_result"]


def test_weights_of_several_convolutions_are_transformed_once() -> None:
    make = Maker()
    x, z, w = make.input(1, 3, 6, 6), make.input(1, 3, 8, 8), make.constant(4, 3, 3, 3)
    one = make.work("conv2d", x, w, ci=3, co=4, h=6, w=6, k=3, pad=1)
    two = make.work("conv2d", z, w, ci=3, co=4, h=8, w=8, k=3, pad=1)
    assert [array.shape for array in transformed(make.network(one, two)).constants.values()] == [(4, 4, 3, 4)]


def test_small_sums_do_not_pay() -> None:
    """Condition 4: from 3 to 4 channels, writing and reading V and M costs more than the products."""
    make = Maker()
    small = fused(make.network(conv(make, make.input(1, 3, 16, 16), pad=1)), CPU)
    assert with_winograd(small) == small
    make = Maker()
    large = fused(make.network(conv(make, make.input(1, 64, 16, 16), co=64, pad=1)), CPU)
    assert names(with_winograd(large)) == ["winograd_data", "winograd_sums", "winograd_result"]


def test_a_halo_takes_the_tests_of_the_border_away() -> None:
    """With zeros around x, V is made without a condition: proven for all of its rows."""
    make = Maker()
    data = transformed(make.network(conv(make, make.input(1, 16, 8, 8), pad=1))).nodes[0]
    assert isinstance(data, Operator)
    (border, *_) = wanted_by(data.func, CPU)["x"].borders
    assert (border.before, border.after, border.value) == ((0, 0, 1, 1), (0, 0, 1, 1), 0.0)
    halo = Layout.ordered((1, 16, 8, 8), order=(0, 2, 3, 1), before=border.before, after=border.after, pad_value=0.0)
    before, after = (
        sum(isinstance(n, Call) for n in walk(func)) for func in (data.func, laid_out(data.func, {"x": halo}))
    )
    assert (before, after) == (4, 0)


def test_compiled_models_agree_with_and_without(tmp_path: Path) -> None:
    """Kernels of what the estimate likes best give what the interpreter does, of an odd extent and with a shortcut."""
    make = Maker()
    x = make.input(1, 64, 15, 16)
    y = make.map("T.max({0} + b[v1] + {2}, T.float32(0))", conv(make, x, co=64, pad=1), make.constant(64), x)
    network, db = make.network(y), str(tmp_path / "own.db")
    fewer, as_written = (ss.compile(network, db=db, winograd=winograd) for winograd in (True, False))
    assert [len(model.network.nodes) for model in (fewer, as_written)] == [3, 1]
    given = drawn(network)
    for model in (fewer, as_written):
        np.testing.assert_allclose(model(given[x]), computed(network, given)[y], rtol=1e-5, atol=1e-3)
