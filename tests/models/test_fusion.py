"""Fusion: which operators become one, and that the network computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from network_maker import Maker, computed, drawn, random_network

import stridesmith as ss
from stridesmith import configs
from stridesmith.models.fusion import fused
from stridesmith.models.network import Network, Operator, problems
from stridesmith.space.design.apply import prepared
from stridesmith.space.design.program import anchors
from stridesmith.space.schedule import Schedule
from stridesmith.space.tree import leaf_blocks

CPU = configs.target("cpu-avx2")


def checked(network: Network) -> Network:
    """The fused network, which computes the same."""
    result = fused(network, CPU)
    assert list(problems(result)) == []
    before, after = computed(network, drawn(network)), computed(result, drawn(network))
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-5, atol=1e-5)
    return result


def conv(make: Maker, x: str, co: int = 4, k: int = 3, **more: int) -> str:
    _, ci, h, w = make.shape(x)
    pad = more.pop("pad", k // 2)
    return make.work("conv2d", x, make.constant(co, ci, k, k), ci=ci, co=co, h=h, w=w, k=k, pad=pad, **more)


def relu(make: Maker, x: str) -> str:
    return make.map("T.max({0}, T.float32(0))", x)


def test_bias_residual_and_activation_follow_a_convolution() -> None:
    """Of two convolutions that are added, the later takes what follows."""
    make = Maker()
    x = make.input(1, 3, 5, 5)
    one = make.map("{0} + b[v1]", conv(make, x), make.constant(4))
    two = make.map("{0} + b[v1]", conv(make, x, k=1), make.constant(4))
    result = checked(make.network(relu(make, make.map("{0} + {1}", one, two))))
    assert len(result.nodes) == 2
    assert [len(node.inputs) for node in result.nodes] == [3, 4]


def test_what_another_operator_reads_stays() -> None:
    """A result that is read twice, or that leaves the network, is computed once."""
    make = Maker()
    x = make.input(1, 3, 5, 5)
    shared = conv(make, x)
    result = checked(make.network(relu(make, shared), conv(make, shared)))
    assert len(result.nodes) == 3
    make = Maker()
    x = make.input(1, 3, 5, 5)
    seen = conv(make, x)
    assert len(checked(make.network(seen, relu(make, seen))).nodes) == 2


def test_a_tensor_that_is_passed_twice_is_one() -> None:
    """A square, and what follows it; on either side of what is merged."""
    make = Maker()
    x = make.input(3, 5)
    square = make.map("{0} * {1}", x, x)
    result = checked(make.network(make.map("{0} + {1}", relu(make, square), x)))
    (node,) = result.nodes
    assert len(node.inputs) == 1


def test_a_dimension_of_one_point_may_be_read_at_zero() -> None:
    """Whether it is read at its iterator or at 0, an epilogue reads a sum where it is."""
    make = Maker()
    seen = make.map("T.max(a[0, v1, v2, v3], T.float32(0))", conv(make, make.input(1, 3, 5, 5)), shape=(1, 4, 5, 5))
    assert len(checked(make.network(make.map("a[0, v1, v2, v3] + {1}", seen, seen))).nodes) == 1


def test_a_dimension_of_one_point_that_follows_a_product_costs_nothing() -> None:
    """What puts one between the dimensions of a product is its epilogue, and no stage of its own."""
    make = Maker()
    product = make.work("matmul", make.input(6, 8), make.constant(8, 12), m=6, n=12, k=8)
    biased = make.map("{0} + b[v1]", product, make.constant(12))
    apart = make.map("a[v0, v2]", biased, shape=(6, 1, 12))
    (node,) = checked(make.network(apart)).nodes
    assert isinstance(node, Operator)
    (anchor,) = anchors(prepared(Schedule(node.func), frozenset()).func, {})
    assert anchor.epilogue


def test_a_dimension_of_one_point_that_goes_between_others_costs_nothing() -> None:
    """As where a convolution along one dimension is written as one along two: its result without it, turned around."""
    make = Maker()
    flat = make.map("a[v0, v1, 0, v2]", conv(make, make.input(1, 3, 1, 8), k=1), shape=(1, 4, 8))
    biased = make.map("T.max({0} + b[v1], T.float32(0))", flat, make.constant(4))
    first = checked(make.network(make.map("a[v1, v2, v0]", biased, shape=(8, 1, 4))))
    (node,) = fused(first, CPU).nodes
    assert isinstance(node, Operator)
    (anchor,) = anchors(prepared(Schedule(node.func), frozenset()).func, {})
    assert anchor.epilogue


def test_index_maps_cost_nothing() -> None:
    """Transposes, reshapes, slices and borders become indices of what reads or writes them."""
    make = Maker()
    x = make.input(6, 8)
    product = make.work("matmul", x, make.constant(8, 12), m=6, n=12, k=8)
    heads = make.map("a[v1, v0 * 4 + v2]", product, shape=(3, 6, 4))
    turned = make.map("a[v0, v2, v1]", heads, shape=(3, 4, 6))
    scores = make.work("batch_matmul", heads, turned, b=3, m=6, n=6, k=4)
    flat = make.map("a[v0 // 6, v0 % 6, v1]", scores, shape=(18, 6))
    result = checked(make.network(flat))
    assert [len(node.inputs) for node in result.nodes] == [2, 1]


def test_a_border_before_a_convolution_is_a_stage_of_it() -> None:
    """An operator that only moves elements is merged into each of its readers."""
    make = Maker()
    x = make.input(1, 3, 6, 6)
    bordered = make.map(
        "T.if_then_else(v2 >= 1 and v2 < 7, a[v0, v1, v2 - 1, v3], T.float32(0))", x, shape=(1, 3, 8, 6)
    )
    result = checked(make.network(conv(make, bordered, pad=0), conv(make, bordered, k=1)))
    assert len(result.nodes) == 2


def test_a_scaling_by_channel_joins_the_product_that_reads_it() -> None:
    """Squeeze and excite: the mean and its products stay apart, the scaling becomes a stage of the convolution."""
    make = Maker()
    x = make.input(1, 4, 4, 4)
    seen = relu(make, conv(make, x))
    mean = make.work("row_sum", make.map("a[0, v0, v1 // 4, v1 % 4]", seen, shape=(4, 16)), rows=4, cols=16)
    weights = make.work("matmul", make.map("a[v1]", mean, shape=(1, 4)), make.constant(4, 4), m=1, n=4, k=4)
    gate = make.map("T.sigmoid({0})", weights)
    scaled = make.map("{0} * b[v0, v1]", seen, gate)
    result = checked(make.network(conv(make, scaled, k=1, pad=0)))
    assert len(result.nodes) == 4


@pytest.mark.parametrize("rows", [(12,), (1, 12), (2, 6)])
def test_a_softmax_of_many_operators_is_one(rows: tuple[int, ...]) -> None:
    """Stages of the same rows run together."""
    make = Maker()
    x = make.input(*rows, 16)
    shifted = make.map("{0} * T.float32(0.125)", x)
    peak = reduction(make, shifted, "T.max(y[{r}], a[{r}, vk])", "T.float32('-inf')")
    power = make.map("T.exp({0} - b[" + indices(rows) + "])", shifted, peak)
    total = reduction(make, power, "y[{r}] + a[{r}, vk]", "T.float32(0)")
    result = checked(make.network(make.map("{0} / b[" + indices(rows) + "]", power, total)))
    assert len(result.nodes) == 1


def test_a_normalisation_of_many_operators_is_one() -> None:
    """Mean, differences, squares, their mean and the quotient, as one program of three stages."""
    make = Maker()
    x = make.input(12, 16)
    mean = make.map("{0} * T.float32(0.0625)", reduction(make, x, "y[{r}] + a[{r}, vk]", "T.float32(0)"))
    apart = make.map("{0} - b[v0]", x, mean)
    squares = make.map("{0} * {0}", apart)
    spread = make.map("{0} * T.float32(0.0625)", reduction(make, squares, "y[{r}] + a[{r}, vk]", "T.float32(0)"))
    root = make.map("T.rsqrt({0} + T.float32(0.00001))", spread)
    unit = make.map("{0} * b[v0]", apart, root)
    result = checked(make.network(make.map("{0} * b[v1] + c[v1]", unit, make.constant(16), make.constant(16))))
    assert len(result.nodes) == 1


def test_a_chain_of_stages_is_cut_into_programs_of_few() -> None:
    """Ten sums of rows that follow each other and run together are programs of at most eight."""
    make = Maker()
    x = make.input(6, 8)
    for _ in range(10):
        x = make.map("{0} - b[v0]", x, reduction(make, x, "y[{r}] + a[{r}, vk]", "T.float32(0)"))
    programs = [node.func for node in checked(make.network(x)).nodes if isinstance(node, Operator)]
    sums = [sum(bool(block.reduce) for block in leaf_blocks(func.body)) for func in programs]
    assert sum(sums) == 10 and 4 < max(sums) <= 8


def indices(rows: tuple[int, ...]) -> str:
    return ", ".join(f"v{k}" for k in range(len(rows)))


def reduction(make: Maker, x: str, update: str, start: str) -> str:
    """Over the last dimension; ``{r}`` are the indices of the others."""
    *rows, last = make.shape(x)
    grid, at = ", ".join(map(str, make.shape(x))), indices(tuple(rows))
    spatial = [f"v{k} = T.axis.spatial({e}, i{k})" for k, e in enumerate(rows)]
    body = "\n            ".join(
        [*spatial, f"vk = T.axis.reduce({last}, i{len(rows)})", "with T.init():", f"    y[{at}] = {start}",
         f"y[{at}] = {update.format(r=at)}"]
    )  # fmt: skip
    func = ss.parse(f"""
@T.prim_func
def rows(a: T.Buffer(({grid}), "float32"), y: T.Buffer(({", ".join(map(str, rows))},), "float32")):
    for {", ".join(f"i{k}" for k in range(len(rows) + 1))} in T.grid({grid}):
        with T.block("rows"):
            {body}
""")
    assert isinstance(func, ss.PrimFunc)
    return make.operator(func, x)


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_keep_their_meaning(seed: int) -> None:
    """Whatever is merged, the network computes the same, with fewer operators or as many."""
    network = random_network(seed)
    assert len(checked(network).nodes) <= len(network.nodes)
