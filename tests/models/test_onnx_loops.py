"""Loops that are not written out: networks that run again and again, against ONNX's reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model, node, value

from stridesmith import errors
from stridesmith.backends.devices import discover
from stridesmith.models.api import compiled, network_of
from stridesmith.models.evaluate import evaluate
from stridesmith.models.network import Loop
from stridesmith.models.onnx import read

Array = np.ndarray[Any, Any]
BODY = [value("i", (), "int64"), value("c", (), "bool"), value("v", (3,))]


def checked(made: ModelProto, arrays: dict[str, Array]) -> None:
    """A loop at run time, which gives what the reference gives, by the interpreter and compiled."""
    network = read(made)
    assert not network.foreign
    assert sum(isinstance(called, Loop) for called in network.called) == 1
    wanted = ReferenceEvaluator(made).run(None, arrays)
    target = discover("cpu", 1)
    ours = compiled(network_of(network, target), target)
    for found in (evaluate(network, arrays), ours(arrays)):
        for name, right in zip(network.outputs, wanted, strict=True):
            np.testing.assert_allclose(found[name], right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("first", [1.0, 100.0])
def test_a_loop_without_a_count_goes_on_until_a_condition_ends_it(first: float) -> None:
    """Also where that is before the first run; the body reads what lies around it."""
    nodes = [
        node("Mul", "v w", "v1"), node("ReduceSum", "v1", "s", keepdims=0), node("Less", "s most", "c1"),
    ]  # fmt: skip
    body = helper.make_graph(nodes, "body", BODY, [value("c1", (), "bool"), value("v1", (3,))])
    loop = helper.make_node("Loop", ["", "go", "x"], ["y"], "loop", body=body)
    around = [node("ReduceSum", "x", "t", keepdims=0), node("Less", "t most", "go"), node("Exp", "z", "w")]
    made = model([*around, loop], {"x": (3,), "z": (3,)}, {"most": np.float32(50)})
    checked(made, {"x": np.full(3, first, np.float32), "z": np.array([0.1, 0.2, 0.3], np.float32)})


def test_a_count_may_be_an_input() -> None:
    """So may the condition; a state that nothing reads is none of the results, and a state may stay as it is."""
    nodes = [node("Add", "v u", "v1"), node("Identity", "u", "u1"), node("Identity", "c", "c1")]
    body = helper.make_graph(
        nodes, "body", [*BODY, value("u", (3,))], [value("c1", (), "bool"), value("v1", (3,)), value("u1", (3,))]
    )
    made = model([node("Loop", "n go x z", "y last", body=body)], {"x": (3,), "z": (3,)})
    made.graph.input.extend([value("n", (), "int64"), value("go", (), "bool")])
    rng = np.random.default_rng(0)
    arrays: dict[str, Array] = {name: rng.standard_normal(3).astype(np.float32) for name in "xz"}
    for count in (0, 1, 5):
        checked(made, {**arrays, "n": np.array(count), "go": np.array(True)})


def test_many_runs_of_a_known_number_put_their_parts_together() -> None:
    """More than are written out: their number counts in each run, and a part may be a state."""
    nodes = [
        node("Cast", "i", "f", to=1), node("Mul", "v half", "h"), node("Add", "h f", "v1"), node("Sin", "v1", "s"),
        node("Identity", "c", "c1"),
    ]  # fmt: skip
    body = helper.make_graph(nodes, "body", BODY, [value("c1", (), "bool"), value("v1", (3,)), value("s", (3,))])
    made = model(
        [node("Loop", "n go x", "y parts", body=body)], {"x": (3,)},
        {"n": np.array(150), "go": np.array(True), "half": np.float32(0.5)}, outputs="y parts",
    )  # fmt: skip
    checked(made, {"x": np.array([1, -2, 3], np.float32)})


@pytest.mark.parametrize("turned", [0, 1])
def test_long_scans_are_loops(turned: int) -> None:
    """Slices of both tensors are taken in the body, from the end of the second; names in it are its own."""
    nodes = [node("Add", "s x", "t"), node("Mul", "t z", "u"), node("Tanh", "u", "r"), node("Add", "r w", "o")]
    body = helper.make_graph(nodes, "body", [value(name, (3,)) for name in "sxz"], [value(name, (3,)) for name in "ro"])
    scan = node("Scan", "first x z", "last y", body=body, num_scan_inputs=2, scan_input_directions=[0, turned],
                scan_output_directions=[turned])  # fmt: skip
    shapes = {"first": (3,), "x": (200, 3), "z": (200, 3)}
    made = model([scan], shapes, {"w": np.ones(3, np.float32)}, outputs="last y")
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    if not turned:
        checked(made, arrays)
        return
    state, results = arrays["first"], []  # the reference turns nothing around
    for x, z in zip(arrays["x"], arrays["z"][::-1], strict=True):
        state = np.tanh((state + x) * z)
        results.append(state + 1)
    found = evaluate(read(made), arrays)
    np.testing.assert_allclose(found["last"], state, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["y"], np.stack(results)[::-1], rtol=1e-4, atol=1e-5)


def test_a_scan_goes_along_any_dimension() -> None:
    """The reference scans the first one alone: what it gives is turned here."""
    body = helper.make_graph(
        [node("Add", "s x", "t"), node("Neg", "t", "u"), node("Neg", "u", "r"), node("Identity", "r", "o")], "body",
        [value(name, (3,)) for name in "sx"], [value(name, (3,)) for name in "ro"],
    )  # fmt: skip
    scan = node("Scan", "first x", "last y", body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[-1])
    network = read(model([scan], {"first": (3,), "x": (3, 200)}, outputs="last y"))
    assert not network.foreign
    rng = np.random.default_rng(0)
    first, x = rng.standard_normal(3).astype(np.float32), rng.standard_normal((3, 200)).astype(np.float32)
    found = evaluate(network, {"first": first, "x": x})
    np.testing.assert_allclose(found["y"], first[:, None] + np.cumsum(x, 1), rtol=1e-3, atol=1e-4)


def test_what_no_loop_can_be_is_said() -> None:
    """A state that grows, and results that are as many as a condition says."""
    grows = helper.make_graph(
        [node("Concat", "v v", "v1", axis=0), node("Identity", "c", "c1")], "body", BODY,
        [value("c1", (), "bool"), value("v1", None)],
    )  # fmt: skip
    made = model([node("Loop", "n go x", "y", body=grows)], {"x": (3,)}, {"go": np.array(True)})
    made.graph.input.append(value("n", (), "int64"))
    with pytest.raises(
        errors.ModelProblem, match=r"the state `x` of the node Loop.* float32\[3\] and then float32\[6\]"
    ):
        read(made)
    parts = helper.make_graph(
        [node("Neg", "v", "v1"), node("Identity", "c", "c1"), node("Abs", "v", "p")], "body", BODY,
        [value("c1", (), "bool"), value("v1", (3,)), value("p", (3,))],
    )  # fmt: skip
    made = model([node("Loop", "n go x", "y p", body=parts)], {"x": (3,)}, {"go": np.array(True)}, outputs="y p")
    made.graph.input.append(value("n", (), "int64"))
    with pytest.raises(errors.ModelProblem, match=r"`p`, which the node Loop .* which say how often it runs"):
        read(made)
