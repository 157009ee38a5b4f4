"""Operators of ``com.microsoft`` and ``ai.onnx.ml``, and inputs and branches that choose, against plain NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model, node, value

from stridesmith.backends.devices import discover
from stridesmith.errors import ModelProblem
from stridesmith.models.api import compiled, network_of
from stridesmith.models.evaluate import evaluate
from stridesmith.models.inputs import Given
from stridesmith.models.network import Branches, Lookup, Network
from stridesmith.models.onnx import import_model, read

Array = np.ndarray
rng = np.random.default_rng(0)
erf = np.vectorize(math.erf)


def floats(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def network_of_one(op: str, domain: str, arrays: dict[str, Array], outputs: str = "y", **values: Any) -> Network:
    """The network of one node of a domain; an array with an empty name is absent."""
    names = ["" if name.startswith("-") else name for name in arrays]
    made = helper.make_node(op, names, outputs.split(), "node", domain=domain, **values)
    given = [value(name, a.shape, str(a.dtype)) for name, a in arrays.items() if not name.startswith("-")]
    graph = helper.make_graph([made], "one", given, [onnx.ValueInfoProto(name=name) for name in outputs.split()])
    opsets = [helper.make_opsetid("", 17 if domain else 11)]
    opsets += [helper.make_opsetid(domain, 3 if domain == "ai.onnx.ml" else 1)] * bool(domain)
    return read(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def results(op: str, domain: str, arrays: dict[str, Array], outputs: str = "y", **values: Any) -> dict[str, Array]:
    """What a node gives, by programs alone."""
    network = network_of_one(op, domain, arrays, outputs, **values)
    assert not network.foreign
    return evaluate(network, {name: a for name, a in arrays.items() if name in network.inputs})


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


# ---------------------------------------------------------------- order, inputs and branches


def test_nodes_may_stand_in_any_order() -> None:
    """Nodes are sorted, those in branches as well; what goes round in a circle is refused."""
    chain = [node("Relu", "x", "a"), node("Neg", "a", "b"), node("Abs", "b", "y")]
    x = floats(3)
    for order in ([2, 1, 0], [1, 2, 0]):
        found = read(model([chain[at] for at in order], {"x": (3,)}))
        close(evaluate(found, {"x": x})["y"], np.maximum(x, 0))
    with pytest.raises(ModelProblem, match="which nothing before it computes"):
        read(model([node("Add", "x b", "a"), node("Neg", "a", "b"), node("Abs", "b", "y")], {"x": (3,)}))


def chooser(rates: tuple[int, ...] = ()) -> onnx.ModelProto:
    """A model whose input `sr` says by how much `x` is cut and what becomes of it."""

    def branch(name: str, width: int, op: str) -> onnx.GraphProto:
        weights = onnx.numpy_helper.from_array(np.full((4, width), 0.5, np.float32), f"{name}w")
        nodes = [node(op, f"{name}m", f"{name}y"), node("MatMul", f"x {name}w", f"{name}m")]
        return helper.make_graph(nodes, name, [], [value(f"{name}y", None)], [weights])

    nodes = [
        node("Equal", "sr rate", "is"),
        node("If", "is", "y", then_branch=branch("a", 3, "Relu"), else_branch=branch("b", 3, "Neg")),
    ]
    made = model(nodes, {"x": (2, 4)}, {"rate": np.array(16000)})
    made.graph.input.append(value("sr", rates, "int64"))
    return made


def test_an_input_that_has_a_value_is_a_constant() -> None:
    """The branch that it chooses takes the If's place; numbers alone are values of what has one element."""
    x = floats(2, 4)
    wanted = {16000: np.maximum(0.5 * x.sum(1, keepdims=True).repeat(3, 1), 0)}
    wanted[8000] = -0.5 * x.sum(1, keepdims=True).repeat(3, 1)
    for rate, right in wanted.items():
        for given in (Given(values={"sr": rate}), Given(either={"sr": rate}), Given(values={"sr": np.array(rate)})):
            found = read(chooser(), given)
            assert found.inputs == ("x",) and not found.called
            close(evaluate(found, {"x": x})["y"], right)
    assert read(chooser((1,)), Given(either={"sr": 16000})).inputs == ("x",)
    for values, why in (
        ({"sr": 0.5}, "is of type int64, which 0.5 is not"), ({"sr": [1, 2]}, "has 0 dimensions"),
        ({"rate": 1}, "has no input `rate`"), ({"sr": "a"}, "is of type int64"),
    ):  # fmt: skip
        with pytest.raises(ModelProblem, match=why):
            read(chooser(), Given(values=values))


def test_a_number_is_the_extent_of_an_open_dimension() -> None:
    """A number alone is the extent of an input of one dimension that has more than one element."""
    found = read(model([node("Neg", "x", "y")], {"x": ("n",)}), Given(either={"x": 5}))
    assert found.tensors["x"].shape == (5,)


def test_branches_are_networks_that_are_chosen_when_they_run() -> None:
    """Both are programs, compiled with all others, and the condition says in each call which one runs."""
    x = floats(2, 4)
    found = read(chooser())
    (choice,) = found.called
    assert isinstance(choice, Branches) and not found.foreign and len(found.parts) == 3
    target = discover("cpu", 1)
    made = compiled(network_of(found, target), target)
    total = 0.5 * x.sum(1, keepdims=True).repeat(3, 1)
    for rate, right in ((16000, np.maximum(total, 0)), (8000, -total), (16000, np.maximum(total, 0))):
        arrays = {"x": x, "sr": np.array(rate)}
        close(evaluate(found, arrays)["y"], right)
        close(made(arrays)["y"], right)
    assert [row.origin for row in made.report((x, np.array(8000)), runs=1)].count("called") == 1


def test_a_branch_that_cannot_be_is_an_error_when_it_is_chosen() -> None:
    """As where one branch is for another length of an input."""
    made = chooser()
    branches = {attribute.name: attribute.g for attribute in made.graph.node[1].attribute}
    weights = branches["else_branch"].initializer[0]
    weights.CopyFrom(onnx.numpy_helper.from_array(np.zeros((5, 3), np.float32), weights.name))
    found, x = read(made), floats(2, 4)
    assert evaluate(found, {"x": x, "sr": np.array(16000)})["y"].shape == (2, 3)
    with pytest.raises(ModelProblem, match="chooses its branch `else`, which cannot be"):
        evaluate(found, {"x": x, "sr": np.array(8000)})
    weights.CopyFrom(onnx.numpy_helper.from_array(np.zeros((4, 2), np.float32), weights.name))
    with pytest.raises(ModelProblem, match=r"as float32\[2, 3\] and float32\[2, 2\].*`--input NAME=VALUE`"):
        read(made)


# ---------------------------------------------------------------- com.microsoft


def normalised(x: Array, scale: Array, shift: Array | float = 0.0, epsilon: float = 1e-12) -> Array:
    mean = x.mean(-1, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + epsilon) * scale + shift)


def test_activations_of_microsoft() -> None:
    """Gelu with and without a bias, by erf and by tanh."""
    x, b = floats(2, 5), floats(5)
    ms = "com.microsoft"
    exact = (x + b) * 0.5 * (1 + erf((x + b) / np.sqrt(2)))
    close(results("BiasGelu", ms, {"x": x, "b": b})["y"], exact)
    close(results("Gelu", ms, {"x": x})["y"], x * 0.5 * (1 + erf(x / np.sqrt(2))))
    inner = np.tanh(np.sqrt(2 / np.pi) * ((x + b) + 0.044715 * (x + b) ** 3))
    close(results("FastGelu", ms, {"x": x, "b": b})["y"], 0.5 * (x + b) * (1 + inner))
    close(results("QuickGelu", ms, {"x": x}, alpha=1.5)["y"], x / (1 + np.exp(-1.5 * x)))


def test_normalisations_of_microsoft() -> None:
    """Sums with what skipped layers, which may leave as well; ONNX Runtime's LayerNormalization before version 17."""
    x, skip, gamma, beta, bias = floats(2, 3, 4), floats(2, 3, 4), floats(4), floats(4), floats(4)
    ms = "com.microsoft"
    found = results("SkipLayerNormalization", ms, {"x": x, "s": skip, "g": gamma, "b": beta, "c": bias})
    close(found["y"], normalised(x + skip + bias, gamma, beta))
    root = np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    close(results("SimplifiedLayerNormalization", "", {"x": x, "g": gamma}, epsilon=1e-5)["y"], x / root * gamma)
    total = x + skip
    wanted = total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-6) * gamma
    arrays = {"x": x, "s": skip, "g": gamma}
    close(results("SkipSimplifiedLayerNormalization", ms, arrays, epsilon=1e-6)["y"], wanted)


def test_attention_of_microsoft() -> None:
    """Heads of their own, masks of keys that count, and keys that come later."""
    batch, length, heads, size = 2, 3, 2, 4
    x, w, b = floats(batch, length, 5), floats(5, 24), floats(24)
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    q, k, v = np.split(x @ w + b, 3, axis=2)
    q, k, v = (a.reshape(batch, length, heads, size).transpose(0, 2, 1, 3) for a in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / 2 + np.where(mask > 0, 0, -10000.0)[:, None, None]
    scores = scores + np.where(np.arange(3) > np.arange(3)[:, None], -10000.0, 0)
    share = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = (share / share.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(batch, length, 8)
    arrays = {"x": x, "w": w, "b": b, "m": mask}
    close(results("Attention", "com.microsoft", arrays, num_heads=heads, unidirectional=1)["y"], wanted)


@pytest.mark.parametrize("op", ["NhwcConv", "NhwcFusedConv"])
def test_convolutions_whose_channels_are_last(op: str) -> None:
    """Those of ONNX on images and weights that are turned around; ONNX Runtime has them on other devices only."""
    x, w, b = floats(2, 6, 5, 3), floats(4, 3, 2, 3), floats(4)
    values: dict[str, Any] = {"pads": [1, 0, 1, 1], "strides": [2, 1], "kernel_shape": [3, 2]}
    turned = {"x": x.transpose(0, 3, 1, 2).copy(), "w": w.transpose(0, 3, 1, 2).copy(), "b": b}
    wanted = results("Conv", "", turned, **values)["y"].transpose(0, 2, 3, 1)
    if op == "NhwcFusedConv":
        values |= {"activation": "LeakyRelu", "activation_params": [0.25]}
        wanted = np.where(wanted < 0, 0.25 * wanted, wanted)
    close(results(op, "com.microsoft", {"x": x, "w": w, "b": b}, **values)["y"], wanted)


def test_cubic_samples_of_microsoft_at_a_border() -> None:
    """Each tap is moved into the image: as PyTorch and ONNX Runtime have it."""
    runtime = pytest.importorskip("onnxruntime")
    x, grid = floats(2, 3, 4, 5), rng.uniform(-1.3, 1.3, (2, 3, 2, 2)).astype(np.float32)
    for aligned in (0, 1):
        values = {"mode": "bicubic", "padding_mode": "border", "align_corners": aligned}
        made = model([node("GridSample", "x g", "y", domain="com.microsoft", **values)],
                     {"x": x.shape, "g": grid.shape}, opset=17)  # fmt: skip
        made.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        found = read(made)
        assert not found.foreign
        (wanted,) = runtime.InferenceSession(made.SerializeToString()).run(None, {"x": x, "g": grid})
        close(evaluate(found, {"x": x, "g": grid})["y"], wanted)


def test_fused_products_of_microsoft() -> None:
    """Transposed operands, factors and activations."""
    a, b = floats(2, 3, 4), floats(2, 5, 3)
    wanted = 0.5 * a.transpose(0, 2, 1) @ b.transpose(0, 2, 1)
    close(results("FusedMatMul", "com.microsoft", {"a": a, "b": b}, alpha=0.5, transA=1, transB=1)["y"], wanted)
    a, b = floats(2, 3), floats(3, 4)
    found = results("FusedGemm", "com.microsoft", {"a": a, "b": b}, activation="LeakyRelu", activation_alpha=0.25)["y"]
    close(found, np.where(a @ b < 0, 0.25 * (a @ b), a @ b))


def test_what_nobody_defines_is_refused() -> None:
    """By its name, and not as a shape that depends on contents."""
    with pytest.raises(ModelProblem, match=r"uses the operator `com\.microsoft::Nothing`, which ONNX does not define"):
        network_of_one("Nothing", "com.microsoft", {"x": floats(2)})


# ---------------------------------------------------------------- ai.onnx.ml

MODES = {
    "BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GTE": np.greater_equal, "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal, "BRANCH_NEQ": np.not_equal,
}  # fmt: skip


def stumps(modes: list[str], splits: list[float], tracks: list[int]) -> dict[str, Any]:
    """Trees of one node and two leaves each, of which the leaf on the side of true is 1 + 10 k, the other 2 + 10 k."""
    made: dict[str, Any] = {"nodes_treeids": [], "nodes_nodeids": [], "nodes_modes": [], "nodes_featureids": []}
    made |= {"nodes_values": [], "nodes_truenodeids": [], "nodes_falsenodeids": []}
    made |= {"nodes_missing_value_tracks_true": [], "target_treeids": [], "target_nodeids": [], "target_weights": []}
    for tree, (mode, split, track) in enumerate(zip(modes, splits, tracks, strict=True)):
        made["nodes_treeids"] += [tree] * 3
        made["nodes_nodeids"] += [0, 1, 2]
        made["nodes_modes"] += [mode, "LEAF", "LEAF"]
        made["nodes_featureids"] += [0] * 3
        made["nodes_values"] += [split, 0.0, 0.0]
        made["nodes_truenodeids"] += [1, 0, 0]
        made["nodes_falsenodeids"] += [2, 0, 0]
        made["nodes_missing_value_tracks_true"] += [track, 0, 0]
        made["target_treeids"] += [tree] * 2
        made["target_nodeids"] += [1, 2]
        made["target_weights"] += [1.0 + 10**tree, 2.0 * 10**tree]
    return made | {"target_ids": [0] * 2 * len(modes)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("track", [0, 1])
def test_every_mode_of_a_node_and_what_is_no_number(mode: str, track: int) -> None:
    """Numbers around the split, infinite ones and NaN."""
    below = np.nextafter(np.float32(0.5), np.float32(0))
    x = np.array([[0.5], [below], [-np.inf], [np.inf], [np.nan], [2]], np.float32)
    for modes, tracks in (([mode], [track]), ([mode, "BRANCH_LEQ"], [track, 0]), ([mode, "BRANCH_GT"], [track, 1])):
        splits = [0.5, 0.25][: len(modes)]
        found = results("TreeEnsembleRegressor", "ai.onnx.ml", {"x": x}, n_targets=1, **stumps(modes, splits, tracks))
        wanted = np.zeros(len(x))
        for tree, (name, split, misses) in enumerate(zip(modes, splits, tracks, strict=True)):
            goes = MODES[name](x[:, 0], np.float32(split)) | (np.isnan(x[:, 0]) & bool(misses))
            wanted += np.where(goes, 1.0 + 10**tree, 2.0 * 10**tree)
        close(found["y"][:, 0], wanted)


def test_classes_have_names_at_the_end() -> None:
    """The label is looked up among texts by a number that programs compute; ZipMap gives the matrix."""
    x = np.array([[0.0], [1.0]], np.float32)
    made = {n.replace("target", "class"): v for n, v in stumps(["BRANCH_LEQ"], [0.5], [0]).items()}
    made |= {"class_ids": [0, 1], "class_weights": [3.0, 5.0], "classlabels_strings": ["no", "perhaps", "yes"]}
    names = [n for n in made if not n.endswith("tracks_true")]
    nodes = [
        helper.make_node(
            "TreeEnsembleClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml", **{n: made[n] for n in names}
        ),
        helper.make_node("ZipMap", ["p"], ["map"], domain="ai.onnx.ml", classlabels_strings=["no", "perhaps", "yes"]),
    ]
    graph = helper.make_graph(
        nodes, "trees", [value("x", (2, 1))], [value("label", None, "object"), onnx.ValueInfoProto(name="map")]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    imported = import_model(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    network = imported.network
    assert not network.foreign and sum(isinstance(n, Lookup) for n in network.nodes) == 1
    target = discover("cpu", 1)
    for found in (evaluate(network, {"x": x}), compiled(network_of(network, target), target)({"x": x})):
        assert found["label"].tolist() == ["no", "perhaps"]
        close(found["map"], [[3, 0, 0], [0, 5, 0]])


def test_columns_of_learning() -> None:
    """What scales, fills in and encodes columns."""
    x, ml = np.array([[1.0, -2.0], [np.nan, 4.0]], np.float32), "ai.onnx.ml"
    close(results("Scaler", ml, {"x": x[:1]}, offset=[1.0, 2.0], scale=[3.0, 0.5])["y"], [[0, -2]])
    filled = results("Imputer", ml, {"x": x}, imputed_value_floats=[7.0, 8.0], replaced_value_float=float("nan"))
    close(filled["y"], [[1, -2], [7, 4]])
    close(results("Normalizer", ml, {"x": x[:1]}, norm="L1")["y"], [[1 / 3, -2 / 3]])
    whole = np.array([[1, 3], [2, 9]])
    hot = results("OneHotEncoder", ml, {"x": whole}, cats_int64s=[3, 1])["y"]
    close(hot, [[[0, 1], [1, 0]], [[0, 0], [0, 0]]])
    texts = results("LabelEncoder", ml, {"x": whole}, keys_int64s=[1, 2], values_strings=["a", "b"], default_string="-")
    assert texts["y"].tolist() == [["a", "-"], ["b", "-"]]


# ---------------------------------------------------------------- ONNX's own


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_grid_sample(mode: str, border: str, aligned: int) -> None:
    """As the reference implementation of ONNX has it, which brings cubic places to the border, and not their taps."""
    x, grid = floats(2, 3, 4, 5), rng.uniform(-1.3, 1.3, (2, 3, 2, 2)).astype(np.float32)
    made = model(
        [node("GridSample", "x g", "y", mode=mode, padding_mode=border, align_corners=aligned)],
        {"x": x.shape, "g": grid.shape}, opset=20,
    )  # fmt: skip
    found = read(made)
    assert not found.foreign
    if mode == "cubic" and border == "border":
        grid = np.clip(grid, -0.5, 0.5)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x, "g": grid})
    close(evaluate(found, {"x": x, "g": grid})["y"], wanted)


def test_trees_of_version_5_go_by_places() -> None:
    """Nodes and leaves in two lists, with a node that compares with a set of values."""
    x = np.array([[0.0, 3.0], [0.0, 5.0], [0.0, 4.0], [2.0, 0.0], [np.nan, 5.0]], np.float32)
    made = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=2, aggregate_function=1, post_transform=0,
        tree_roots=[0], nodes_featureids=[0, 1], nodes_splits=helper.make_tensor("s", 1, [2], [1.0, 0.0]),
        nodes_modes=helper.make_tensor("m", 2, [2], [0, 6]), nodes_truenodeids=[1, 0], nodes_trueleafs=[0, 1],
        nodes_falsenodeids=[2, 1], nodes_falseleafs=[1, 1],
        membership_values=helper.make_tensor("v", 1, [3], [3.0, 5.0, float("nan")]),
        leaf_targetids=[0, 1, 0], leaf_weights=helper.make_tensor("w", 1, [3], [1.0, 2.0, 4.0]),
    )  # fmt: skip
    graph = helper.make_graph([made], "one", [value("x", x.shape)], [value("y", None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 5)]
    found = read(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    assert not found.foreign
    close(evaluate(found, {"x": x})["y"], [[1, 0], [1, 0], [0, 2], [4, 0], [4, 0]])


def test_sequences_of_known_length_are_lists() -> None:
    """Parts of a tensor in a sequence, one left out, one put in, and all together again."""
    x = floats(4, 2)
    nodes = [
        node("SplitToSequence", "x", "s", axis=0), node("SequenceErase", "s one", "t"), node("Neg", "x", "n"),
        node("Slice", "n zero one", "m"), node("SequenceInsert", "t m", "u"),
        node("ConcatFromSequence", "u", "y", axis=0), node("SequenceLength", "u", "count"),
    ]  # fmt: skip
    constants = {"one": np.array([1]), "zero": np.array([0])}
    found = read(model(nodes, {"x": x.shape}, constants, outputs="y count"))
    results = evaluate(found, {"x": x})
    close(results["y"], np.concatenate([x[[0, 2, 3]], -x[:1]]))
    assert results["count"] == 4 and not found.foreign


def test_types_that_onnx_does_not_infer_are_those_of_the_body() -> None:
    """Of comparisons before version 16, in which ONNX infers nothing, and of what follows them."""
    nodes = [node("GreaterOrEqual", "x w", "c"), node("Where", "c x w", "y")]
    made = model(nodes, {"x": (2, 3)}, {"w": floats(3)}, opset=12)
    assert read(made).tensors["y"].shape == (2, 3)


def test_probabilities_of_pairs_are_refused() -> None:
    """No wrong results without a word: the reference implementation multiplies what it should not."""
    values: dict[str, Any] = {"vectors_per_class": [1, 1], "support_vectors": [1.0, 2.0], "coefficients": [1.0, -1.0]}
    values |= {"rho": [0.5], "prob_a": [1.0], "prob_b": [0.0], "classlabels_ints": [0, 1]}
    with pytest.raises(ModelProblem, match="probabilities of decisions between pairs"):
        network_of_one("SVMClassifier", "ai.onnx.ml", {"x": floats(2, 1)}, "y p", **values)


def test_types_of_learning_that_onnx_does_not_infer_are_those_of_the_reference() -> None:
    """Of an encoder of texts, which runs by it."""
    words = {"keys_strings": ["a", "b"], "values_int64s": [5, 6], "default_int64": -1}
    found = network_of_one("LabelEncoder", "ai.onnx.ml", {"x": np.array([["b", "z"]], object)}, **words)
    assert [one.op for one in found.foreign] == ["LabelEncoder"]
    assert evaluate(found, {"x": np.array([["b", "z"]], object)})["y"].tolist() == [[6, -1]]
