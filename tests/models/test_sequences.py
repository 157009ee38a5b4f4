"""Sequences and optional values that a model takes and gives: tensors of its network, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import model, node, value

from stridesmith.backends.devices import discover
from stridesmith.errors import ModelProblem
from stridesmith.models.api import compiled, network_of
from stridesmith.models.evaluate import evaluate
from stridesmith.models.inputs import Given
from stridesmith.models.network import Network
from stridesmith.models.onnx import read
from stridesmith.models.run.model import Model

Array = np.ndarray[Any, Any]
FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])


def sequence(name: str, tensor: onnx.TypeProto = FLOATS) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_sequence_type_proto(tensor))


def optional(name: str, inner: onnx.TypeProto = FLOATS) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_optional_type_proto(inner))


def made(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: str = "y", known: Any = None
) -> onnx.ModelProto:
    """A model of these inputs."""
    base = model(nodes, {}, known, outputs, opset=18)
    base.graph.input.extend(inputs)
    return base


def kernels(network: Network) -> Model:
    target = discover("cpu", 1)
    return compiled(network_of(network, target), target)


X = {f"s/{at}": np.arange(at + 2, dtype=np.float32) - 1 for at in range(3)}
SHAPES = {name: array.shape for name, array in X.items()}


def test_a_sequence_is_its_tensors() -> None:
    """As inputs and as outputs, each of its own length; compiled as well."""
    nodes = [node("SequenceInsert", "s t", "u"), node("SequenceErase", "u one", "y"), node("SequenceAt", "u two", "z")]
    built = made(nodes, [sequence("s"), value("t", (4,))], "y z", {"one": np.array(1), "two": np.array(2)})
    network = read(built, SHAPES)
    assert network.inputs == ("s/0", "s/1", "s/2", "t") and network.outputs == ("y/0", "y/1", "y/2", "z")
    given = {**X, "t": np.full(4, 7, np.float32)}
    for found in (evaluate(network, given), kernels(network)(given)):
        wanted = {"y/0": X["s/0"], "y/1": X["s/2"], "y/2": given["t"], "z": X["s/2"]}
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)


def mapping() -> onnx.NodeProto:
    """Each tensor of `s` plus the one of `t` or the tensor `t`, and its shape."""
    body = helper.make_graph(
        [node("Add", "a b", "c"), node("Shape", "a", "d")], "body", [value("a", ["n"]), value("b", None)],
        [value("c", None), helper.make_tensor_value_info("d", TensorProto.INT64, None)],
    )  # fmt: skip
    return helper.make_node("SequenceMap", ["s", "t"], ["y", "z"], body=body)


@pytest.mark.parametrize("is_sequence", [True, False])
def test_a_map_is_written_out(is_sequence: bool) -> None:
    """The body for each tensor, with the tensors of other sequences, or one tensor for all."""
    shapes = {**SHAPES, **({f"t/{at}": (1,) for at in range(3)} if is_sequence else {})}
    second = sequence("t") if is_sequence else value("t", (1,))
    network = read(made([mapping()], [sequence("s"), second], "y z"), shapes)
    more = {f"t/{at}": np.array([at], np.float32) for at in range(3)} if is_sequence else {"t": np.ones(1, np.float32)}
    found = evaluate(network, {**X, **more})
    for at in range(3):
        np.testing.assert_array_equal(found[f"y/{at}"], X[f"s/{at}"] + more[f"t/{at}" if is_sequence else "t"])
        np.testing.assert_array_equal(found[f"z/{at}"], [at + 2])


def test_a_loop_passes_a_sequence_on() -> None:
    """Of known iterations, each of which puts a tensor in; from a sequence that is empty, and from an absent one."""
    body = helper.make_graph(
        [
            node("OptionalHasElement", "u", "has"),
            helper.make_node(
                "If", ["has"], ["kept"], then_branch=helper.make_graph(
                    [node("OptionalGetElement", "u", "a")], "there", [], [sequence("a")]),
                else_branch=helper.make_graph(
                    [helper.make_node("SequenceConstruct", ["x"], ["b"])], "absent", [], [sequence("b")]),
            ),
            node("SequenceInsert", "kept x", "v"), node("Identity", "go", "on"),
        ], "body",
        [value("i", (), "int64"), value("go", (), "bool"), sequence("u")], [value("on", (), "bool"), sequence("v")],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["count", "", "s"], ["y"], body=body)
    known = {"count": np.array(2), "x": np.arange(3, dtype=np.float32)}
    empty = read(made([loop], [sequence("s")], "y", known), {"s": ()})
    assert evaluate(empty, {}).keys() == {"y/0", "y/1"}
    absent = read(made([loop], [optional("s", sequence("s").type)], "y", known), Given({}, {"s": None}))
    assert evaluate(absent, {}).keys() == {"y/0", "y/1", "y/2"}
    unknown = made([loop], [value("count", (), "int64"), sequence("s")], "y", {"x": known["x"]})
    with pytest.raises(ModelProblem, match="reads a sequence, and is no loop whose iterations are known when"):
        read(unknown, {"s": ()})


def test_an_optional_value_is_there_or_not() -> None:
    """What is left out has the value None; nothing of it is an input or an output."""
    nodes = [node("OptionalHasElement", "s", "y"), node("Identity", "s", "z")]
    there = read(made(nodes, [optional("s")], "y z"), {"s": (3,)})
    found = evaluate(there, {"s": np.ones(3, np.float32)})
    assert found["y"] and found["z"].shape == (3,)
    absent = read(made(nodes, [optional("s")], "y z"), Given({}, {"s": None}))
    assert absent.inputs == () and absent.outputs == ("y",) and not evaluate(absent, {})["y"]


def test_a_sequence_may_be_a_constant() -> None:
    """A value of each tensor, and no inputs."""
    built = made([node("ConcatFromSequence", "s", "y", axis=0)], [sequence("s")])
    network = read(built, Given({}, {"s": [*X.values()]}))
    assert network.inputs == ()
    np.testing.assert_array_equal(evaluate(network, {})["y"], np.concatenate([*X.values()]))


def test_nobody_says_how_long_a_sequence_is() -> None:
    """The refusal says how that is said."""
    built = made([node("SequenceAt", "s at", "y")], [sequence("s")], known={"at": np.array(0)})
    with pytest.raises(ModelProblem, match=r"sequence, and nobody says how long it is; .*--input s/0=SHAPE"):
        read(built)
    with pytest.raises(ModelProblem, match="the model has no input `s/2`"):
        read(built, {"s/0": (1,), "s/2": (1,)})


def test_words_that_are_left_are_as_many_as_there_are() -> None:
    """StringNormalizer drops words: its result is told with its largest shape, and can only be an output."""
    words = np.array(["a", "B", "stop"], object)
    nodes = [node("StringNormalizer", "x", "y", case_change_action="UPPER", stopwords=["stop"])]
    built = made(nodes, [helper.make_tensor_value_info("x", TensorProto.STRING, [3])])
    network = read(built)
    assert network.tensors["y"].shape == (3,)
    assert evaluate(network, {"x": words})["y"].tolist() == ["A", "B"]
    assert kernels(network)(words).tolist() == ["A", "B"]
    built.graph.node.append(node("Concat", "y y", "z", axis=0))
    built.graph.output[0].name = "z"
    with pytest.raises(ModelProblem, match=r"`y`, which the node Concat .* reads, depends on .* can only be an output"):
        read(built)
