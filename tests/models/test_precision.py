"""Networks whose tensors and weights have 16 bits: which of them, and that everything is computed as before."""

from __future__ import annotations

import numpy as np
import pytest
from legal_programs import MACHINES
from network_maker import Maker, drawn, random_network
from scale import scaled

import stridesmith as ss
from stridesmith import configs
from stridesmith.errors import UsageError
from stridesmith.ir.expr import Cast, Load
from stridesmith.ir.node import walk
from stridesmith.ir.numbers import bfloat16_bits
from stridesmith.ir.stmt import Store
from stridesmith.ir.verify.rules import verify
from stridesmith.models.evaluate import evaluate
from stridesmith.models.fusion import fused
from stridesmith.models.network import Network, Operator, problems
from stridesmith.models.precision import Difference, differences, in_precision
from stridesmith.space.design.program import anchors

CPU = configs.target("cpu-avx2")


def classifier() -> Network:
    """Two convolutions with bias and relu, the first with a border, a pooled row, a product and a softmax."""
    make = Maker()
    x = make.input(1, 4, 6, 6)
    one = make.work("conv2d", x, make.constant(8, 4, 3, 3), ci=4, co=8, h=6, w=6, k=3, pad=1)
    one = make.map("T.max({0} + b[v1], T.float32(0))", one, make.constant(8))
    two = make.work("conv2d", one, make.constant(8, 8, 1, 1), ci=8, co=8, h=6, w=6, k=1, pad=0)
    two = make.map("{0} + {1}", two, one)
    row = make.work("global_avg_pool2d", two, c=8, h=6, w=6)
    row = make.map("a[v0, v1]", row, shape=(1, 8)) if len(make.shape(row)) != 2 else row
    logits = make.work("matmul", row, make.constant(8, 5), m=1, n=5, k=8)
    return make.network(make.map("T.tanh({0} * T.float32(0.001))", logits))


def narrow_tensors(network: Network, dtype: str) -> set[str]:
    return {name for name, tensor in network.tensors.items() if tensor.dtype == dtype}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_networks_compute_nearly_the_same(dtype: str) -> None:
    """Random networks in another precision are valid, and near what they are in float32."""
    changed = 0
    for seed in range(scaled(12)):
        network = fused(random_network(seed), CPU)
        made = in_precision(network, dtype)
        assert list(problems(made)) == []
        for node in made.nodes:
            assert isinstance(node, Operator)
            verify(node.func)
        changed += len(narrow_tensors(made, dtype))
        given = drawn(network)
        found = differences(evaluate(made, given), evaluate(network, given))
        eps = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
        assert all(item.typical <= 8 * eps for item in found.values())
    assert changed


def test_edges_and_weights_have_16_bits_and_nothing_else() -> None:
    """Inputs, outputs, biases, and what comes after the last product stay in float32."""
    network = fused(classifier(), CPU)
    made = in_precision(network, "bfloat16")
    narrow = narrow_tensors(made, "bfloat16")
    weights = {name for name, array in network.constants.items() if array.ndim in (2, 4)}
    assert narrow & set(network.constants) == weights
    assert all(made.constants[name].dtype == np.uint16 for name in weights)
    assert not narrow & {*network.inputs, *network.outputs}
    last = next(node for node in made.nodes if isinstance(node, Operator) and "matmul" in node.func.script())
    assert made.tensors[last.outputs[0]].dtype == "float32" and made.tensors[last.inputs[0]].dtype == "bfloat16"
    assert in_precision(network, "float32") is network


def test_both_factors_of_every_product_have_16_bits() -> None:
    """Also where the border is around the network's own input, which comes in float32: the design space sees pairs."""
    made = in_precision(fused(classifier(), CPU), "bfloat16")
    signs = [
        anchor.signs
        for node in made.nodes
        if isinstance(node, Operator)
        for anchor in anchors(node.func, {})
        if len(anchor.factors) == 2
    ]
    assert len(signs) == 3 and set(signs) == {"bf"}


def test_a_factor_that_comes_in_float32_is_rounded_before() -> None:
    """A product of the network's input: the program rounds it once, in memory of its own."""
    make = Maker()
    product = make.work("matmul", make.input(3, 8), make.constant(8, 5), m=3, n=5, k=8)
    made = in_precision(make.network(product), "bfloat16")
    (node,) = made.nodes
    assert isinstance(node, Operator)
    verify(node.func)
    assert [b.dtype for b in node.func.buffers] == ["float32", "bfloat16", "float32"]
    assert 'a_narrow = T.alloc_buffer((3, 8), "bfloat16")' in node.func.script()
    x = np.full((3, 8), 1 + 2.0**-10, np.float32)  # which bfloat16 does not have
    (got,) = evaluate(made, {made.inputs[0]: x}).values()
    (want,) = evaluate(made, {made.inputs[0]: np.ones_like(x)}).values()
    np.testing.assert_array_equal(got, want)


def test_what_is_computed_stays_in_float32() -> None:
    """Every load of a narrow buffer is widened, and every operation is one of float32."""
    for node in in_precision(fused(classifier(), CPU), "bfloat16").nodes:
        assert isinstance(node, Operator)
        widened = [n.a for n in walk(node.func) if isinstance(n, Cast) and n.dtype == "float32"]
        operations = {n.dtype for n in walk(node.func) if type(n).__name__ == "Binary" and "float" in n.dtype}
        loads = {n for n in walk(node.func) if isinstance(n, Load) and n.buffer.dtype == "bfloat16"}
        moved = {s.value for s in walk(node.func) if isinstance(s, Store) and s.buffer.dtype == "bfloat16"}
        held = {n for value in moved for n in walk(value)}
        assert operations <= {"float32"} and all(load in widened or load in held for load in loads)


def test_a_model_runs_in_another_precision() -> None:
    """Compiled, it computes what its network means, and what it is off is told."""
    network = classifier()
    model, plain = (ss.compile(network, precision=p) for p in ("bfloat16", "float32"))
    given = tuple(drawn(network).values())
    got, want = model(*given), plain(*given)
    assert got.dtype == np.float32
    found = differences({"y": got}, {"y": want})["y"]
    assert 0 <= found.typical < 0.05
    (meant,) = evaluate(in_precision(fused(network, CPU), "bfloat16"), drawn(network)).values()
    np.testing.assert_allclose(got, meant, rtol=2e-2)


def test_a_precision_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"one of float32, bfloat16, float16, but got 'bfloat61' .did you mean"):
        ss.compile(classifier(), precision="bfloat61")


def test_what_a_difference_is() -> None:
    """Shares of the output in float32; infinities that agree are no difference."""
    wide = {"y": np.asarray([3, -4, np.inf], np.float32), "n": np.asarray([1, 2, 3, 4])}
    narrow = {"y": np.asarray([3, -5, np.inf], np.float32), "n": np.asarray([1, 2, 3, 5])}
    found = differences(narrow, wide)
    assert found["n"] == Difference(0.25, 0.25)
    assert found["y"].largest == 0.25 and found["y"].typical == pytest.approx(np.sqrt(1 / 3) / np.sqrt(12.5))
    assert differences({"y": np.zeros(2)}, {"y": np.zeros(2)})["y"] == Difference(0.0, 0.0)


def test_bits_are_taken_for_what_they_are() -> None:
    """A kernel takes bits, and tensors of PyTorch, and the two public functions turn them into floats and back."""
    x = np.asarray([1.5, -2, 3e38, np.inf], np.float32)
    bits = ss.bfloat16_bits(x)
    assert bits.dtype == np.uint16 and (bits == bfloat16_bits(x)).all()
    values = ss.bfloat16_values(bits)
    assert (ss.bfloat16_bits(values) == bits).all() and values[0] == 1.5


def test_what_has_no_pairs_is_widened_once() -> None:
    """The border of a depthwise convolution and its weights stay in float32; its input and result do not."""
    make = Maker()
    x = make.map("{0} + T.float32(1)", make.input(1, 4, 6, 6))
    one = make.work("depthwise_conv2d", x, make.constant(4, 3, 3), c=4, h=6, w=6, k=3, pad=1)
    two = make.work("conv2d", one, make.constant(8, 4, 1, 1), ci=4, co=8, h=6, w=6, k=1, pad=0)
    made = in_precision(make.network(two), "bfloat16")
    assert narrow_tensors(made, "bfloat16") == {x, one, made.nodes[2].inputs[1]}
    depthwise = made.nodes[1]
    assert isinstance(depthwise, Operator)
    assert [b.dtype for b in depthwise.func.buffers] == ["bfloat16", "float32", "bfloat16"]
    assert {b.dtype for b in depthwise.func.body.allocs} == {"float32"}


@pytest.mark.parametrize(("groups", "ci", "k", "is_pair"), [(2, 8, 3, True), (4, 8, 1, True), (8, 8, 3, False)])
def test_channels_of_a_group_are_pairs(groups: int, ci: int, k: int, is_pair: bool) -> None:
    """The part of the channels that a group adds up along; a group of one channel has none."""
    make = Maker()
    x = make.map("{0} + T.float32(1)", make.input(1, ci, 6, 6))
    shape = {"ci": ci, "co": 16, "h": 6, "w": 6, "k": k, "pad": k // 2, "groups": groups}
    one = make.work("conv2d", x, make.constant(16, ci // groups, k, k), **shape)
    two = make.work("conv2d", one, make.constant(8, 16, 1, 1), ci=16, co=8, h=6, w=6, k=1, pad=0)
    made = in_precision(make.network(two), "bfloat16")
    grouped = made.nodes[1]
    assert isinstance(grouped, Operator)
    assert [b.dtype for b in grouped.func.buffers] == ["bfloat16", "bfloat16" if is_pair else "float32", "bfloat16"]
    target = MACHINES["bf16"]
    space = ss.generate(grouped.func, target, {b.name: "fixed" for b in grouped.func.buffers})
    assert any("dot=" in sketch.name for sketch in space.sketches) == is_pair
