"""Tensors that lie otherwise than the network has them: padding that kernels write, or that is written once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from model_networks import residual
from opencl_programs import device

from stridesmith.backends.devices import discover
from stridesmith.errors import UsageError
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.stmt import PrimFunc
from stridesmith.models.laid_out import laid_out
from stridesmith.models.network import Foreign, Network, Operator, Tensor
from stridesmith.models.run.kernels import Kernel, kernels_of
from stridesmith.models.run.model import Model
from stridesmith.models.run.report import report
from stridesmith.models.tasks import tasks_of
from stridesmith.search.workers.protocol import Build, Built
from stridesmith.search.workers.spread import build_here

HALO = Layout.ordered((1, 16, 6, 6), before=(0, 0, 1, 1), after=(0, 0, 1, 1), pad_value=0)


def changed(network: Network, **funcs: Callable[[PrimFunc], PrimFunc]) -> Network:
    """The network with programs of some operators changed."""
    nodes = tuple(
        replace(node, func=funcs[node.name](node.func))
        if isinstance(node, Operator) and node.name in funcs else node
        for node in network.nodes
    )  # fmt: skip
    return network.with_nodes(nodes)


def with_halo(pad_value: str, wanted: str = "0") -> Network:
    """The residual block whose second convolution reads its border from the padding of what relu writes."""
    network, _ = residual()
    return changed(
        replace(network, outputs=("y",)),
        relu=lambda func: laid_out(func, {"y": replace(HALO, pad_value=pad_value)}),
        conv2=lambda func: laid_out(func, {"x": replace(HALO, pad_value=wanted)}, ["w"]),
    )


def untuned(network: Network) -> Model:
    """The network with its programs as they are written."""
    target = discover("cpu", 2)
    kernels = {}  # type: ignore[var-annotated]
    for item in tasks_of(network, target):
        (built,) = build_here([Build(script=item.task.script, target=target)])
        assert isinstance(built, Built)
        kernels.update((node.name, Kernel(item.task, built.kernel, "untuned")) for node in item.operators)
    return Model(network, kernels, target)


@pytest.mark.parametrize(("pad_value", "initialised"), [("0", False), ("", True)])
def test_an_edge_has_padding(pad_value: str, initialised: bool) -> None:
    """A border of zeros that relu writes, or that is written once and that nothing else then touches."""
    model = untuned(with_halo(pad_value))
    lying = model.plan.sharing.layouts["b"]
    assert lying.argument.physical_shape == (1, 16, 8, 8) and lying.initialised is initialised
    _, reference = residual()
    for seed in range(3):
        (x,) = model.random_inputs(seed)
        np.testing.assert_allclose(model(x), reference({"x": x})["y"], rtol=1e-4, atol=1e-4)
    rows = report(model.network, model.kernels, model.profile(runs=1))
    assert "b: lambda d0, d1, d2, d3: [d0, d1, d2 + 1, d3 + 1] -> 1x16x8x8, padding 0.0" in rows[2].layouts


def test_an_output_of_another_layout_is_unpacked() -> None:
    """What relu writes with a halo leaves the model without."""
    network = replace(with_halo("0"), outputs=("y", "b"))
    model = untuned(network)
    (x,) = model.random_inputs()
    _, reference = residual()
    np.testing.assert_allclose(model(x)[1], reference({"x": x})["b"], rtol=1e-4, atol=1e-4)


def test_disagreement_is_refused() -> None:
    """Two layouts of one tensor, and padding that holds anything where numbers are read."""
    network, _ = residual()
    one_sided = changed(network, conv2=lambda func: laid_out(func, {"x": HALO}, ["w"]))
    with pytest.raises(UsageError, match=r"`conv2` takes `b` as .* but it lies as the network has it"):
        untuned(one_sided)
    with pytest.raises(UsageError, match=r"reads 0.0 in the padding of `b`, whose producer leaves anything there"):
        untuned(with_halo("undef"))


def test_foreign_operators_stand_between_native_calls() -> None:
    """One reads the arena and writes it; another one's result, of a type that no program has, never lies there."""
    helper = pytest.importorskip("onnx").helper
    network, reference = residual()

    def model_of(op: str, reads: str, writes: str, kind: int) -> bytes:
        graph = helper.make_graph(
            [helper.make_node(op, [reads], [writes])], op, [helper.make_tensor_value_info(reads, 1, (1, 16, 6, 6))],
            [helper.make_tensor_value_info(writes, kind, (1, 16, 6, 6))],
        )  # fmt: skip
        opset = [helper.make_opsetid("", 17)]
        return bytes(helper.make_model(graph, opset_imports=opset).SerializeToString())

    tensors = {**network.tensors, "odd": Tensor("odd", (1, 16, 6, 6), "bool")}
    nodes = (
        network.nodes[0], Foreign("relu", "Relu", model_of("Relu", "a", "b", 1), ("a",), ("b",)),
        *network.nodes[2:], Foreign("isnan", "IsNaN", model_of("IsNaN", "y", "odd", 9), ("y",), ("odd",)),
    )  # fmt: skip
    model = untuned(replace(network, tensors=tensors, nodes=nodes, outputs=("y", "odd")))
    (x,) = model.random_inputs()
    y, odd = model(x)
    np.testing.assert_allclose(y, reference({"x": x})["y"], rtol=1e-4, atol=1e-4)
    assert odd.dtype == np.bool_ and not odd.any()
    rows = report(model.network, model.kernels, model.profile(runs=1))
    assert [row.program for row in rows if row.is_fallback] == ["Relu", "IsNaN"]


def test_opencl_keeps_the_network_on_the_device() -> None:
    """The same network on an OpenCL device."""
    target = device()
    if target is None:
        pytest.skip("no OpenCL device on this machine")
    network, reference = residual(4, 4)
    model = Model(network, kernels_of(tasks_of(network, target), None), target)
    (x,) = model.random_inputs()
    y, b = model(x)
    np.testing.assert_allclose(y, reference({"x": x})["y"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(b, reference({"x": x})["b"], rtol=1e-4, atol=1e-4)
