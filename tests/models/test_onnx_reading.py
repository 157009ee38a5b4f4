"""Reading an ONNX file is safe: whatever is in it, there is a network, or one paragraph that says why there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model, node, value

from stridesmith import errors
from stridesmith.models.evaluate import evaluate
from stridesmith.models.network import Loop
from stridesmith.models.onnx import folding, read, reading

RELU = model([node("Relu", "x", "y")], {"x": (2, 3)})


def external(location: str, shape: tuple[int, ...] = (4,), **keys: int) -> onnx.ModelProto:
    """A model that adds a tensor from another file to its input."""
    tensor = TensorProto(name="w", dims=shape, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **keys}.items():
        tensor.external_data.add(key=key, value=str(text))
    return model([node("Add", "x w", "y")], {"x": shape}, tensors=[tensor])


def refusal(source: object, kind: type[errors.StridesmithError], **inputs: tuple[int, ...]) -> str:
    """The paragraph with which reading refuses."""
    with pytest.raises(kind) as caught:
        read(source, inputs)  # type: ignore[arg-type]
    assert type(caught.value) is kind and "\n" not in str(caught.value)
    return str(caught.value)


def test_a_model_is_read_from_its_path_its_bytes_or_itself(tmp_path: Path) -> None:
    """All three give the same network."""
    onnx.save(RELU, tmp_path / "relu.onnx")
    networks = [read(source) for source in (tmp_path / "relu.onnx", RELU.SerializeToString(), RELU)]
    assert networks[0] == networks[1] == networks[2]
    assert networks[0].inputs == ("x",) and networks[0].outputs == ("y",)


@pytest.mark.parametrize("data", [b"", RELU.SerializeToString()[:-9], b"\x08\x07" * 5])
def test_a_damaged_model_is_a_storage_error(data: bytes, tmp_path: Path) -> None:
    """Empty and cut files: exit code 74."""
    (tmp_path / "m.onnx").write_bytes(data)
    text = refusal(tmp_path / "m.onnx", errors.StorageError)
    assert "m.onnx" in text and "damaged" in text
    assert errors.StorageError.exit_code == 74


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"not a model", "a text"), (b"B" * 5000, "a text"), ("# Größen\n".encode(), "a text"),
        (b"PK\x03\x04" + bytes(30), "an archive"), (b"\x93NUMPY\x01\x00", "an array of NumPy's"),
        ("text".encode("utf-16"), "begins with the bytes ff fe 74 00"), (b"GGUF\x03" + bytes(30), "llama.cpp's"),
        (b"\x20" + bytes(7) + b'{"a":{"dtype":"F32"}}' + bytes(11), "a file of safetensors"),
    ],
)  # fmt: skip
def test_a_file_of_another_kind_is_a_wrong_argument(data: bytes, kind: str, tmp_path: Path) -> None:
    """Exit code 2, with what it is and what to do."""
    (tmp_path / "m.onnx").write_bytes(data)
    text = refusal(tmp_path / "m.onnx", errors.ModelProblem)
    assert "m.onnx` is no ONNX model, but" in text and kind in text and "export the network to ONNX" in text


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a pointer of Git LFS; `git lfs pull` fetches"),
        (b"<!DOCTYPE html><html>404</html>", "a page of HTML; download the file itself"),
        (b"\x1f\x8b\x08" + bytes(30), "a file that gzip has packed; unpack it first"),
    ],
)
def test_what_stands_for_a_model_says_how_to_come_to_it(data: bytes, told: str, tmp_path: Path) -> None:
    """Where the model itself may be an ONNX file, so that nothing is to be exported."""
    (tmp_path / "m.onnx").write_bytes(data)
    assert f"m.onnx` is no ONNX model, but {told}" in refusal(tmp_path / "m.onnx", errors.ModelProblem)
    assert errors.ModelProblem.exit_code == 2


def test_every_prefix_and_every_flipped_byte_is_a_network_or_a_paragraph() -> None:
    """No damage leads to anything but a StridesmithError."""
    data = model([node("Conv", "x w", "y")], {"x": (1, 1, 3, 3)}, {"w": np.ones((1, 1, 2, 2))}).SerializeToString()
    outcomes = set()
    for at in range(0, len(data), 3):
        flipped = data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :]
        for damaged in (data[:at], flipped):
            try:
                read(damaged)
                outcomes.add("read")
            except errors.StridesmithError as error:
                outcomes.add(type(error).__name__)
    assert outcomes >= {"StorageError", "ModelProblem"}


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    """A path that is none."""
    assert "cannot be read: No such file" in refusal(tmp_path / "none.onnx", errors.StorageError)
    assert "is no file" in refusal(tmp_path, errors.StorageError)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a file is looked at first."""
    path = tmp_path / "huge.onnx"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("it was read"))
    assert "has 3221225472 bytes" in refusal(path, errors.ModelProblem)


def test_weights_lie_inside_of_the_models_folder(tmp_path: Path) -> None:
    """External data is read there, and from nowhere else: no parent, no absolute path, no link outside, no device."""
    folder = tmp_path / "model"
    folder.mkdir()
    np.arange(6, dtype=np.float32).tofile(folder / "w.bin")
    np.zeros(4, np.float32).tofile(tmp_path / "secret.bin")
    os.symlink(tmp_path / "secret.bin", folder / "link.bin")
    path = folder / "m.onnx"
    onnx.save(external("w.bin", offset=8, length=16), path)
    assert evaluate(read(path), {"x": np.zeros(4, np.float32)})["y"].tolist() == [2, 3, 4, 5]
    os.symlink("/etc", folder / "etc")
    for location in ("../secret.bin", "a/../w.bin", str(tmp_path / "secret.bin"), "/dev/zero", "", "a\0b", "."):
        onnx.save(external(location), path)
        told = refusal(path, errors.ModelProblem)
        assert "no place inside of the model's folder: that is a relative path without `..`" in told, location
    for location in ("link.bin", "etc/passwd"):
        onnx.save(external(location), path)
        assert "which is not inside of the model's folder" in refusal(path, errors.ModelProblem), location
    assert "pass the path" in refusal(external("w.bin").SerializeToString(), errors.ModelProblem)


def in_a_cache(root: Path, location: str, target: str, below: str = "") -> Path:
    """A model as a hub's cache has it, a link to a blob; its data, at `location`, is a link to `target`."""
    blobs, snapshot = root / "blobs", root / "snapshots" / "1f2e" / below
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    np.arange(6, dtype=np.float32).tofile(blobs / "da7a")
    np.zeros(6, np.float32).tofile(root / "secret.bin")
    onnx.save(external(location, offset=8, length=16), blobs / "c0de")
    up = "../" * (3 if below else 2)
    os.symlink(f"{up}blobs/c0de", snapshot / "model.onnx")
    if target:
        (snapshot / location).parent.mkdir(exist_ok=True)
        os.symlink(target.replace("UP/", up), snapshot / location)
    return snapshot / "model.onnx"


@pytest.mark.parametrize("below", ["", "onnx"])
def test_weights_in_the_cache_of_a_hub(below: str, tmp_path: Path) -> None:
    """The model and its data are links into one folder of blobs, which belongs to both."""
    path = in_a_cache(tmp_path / "cache", "model.onnx_data", "UP/blobs/da7a", below)
    os.symlink(path.parent, tmp_path / "latest")
    for named in (path, tmp_path / "latest" / "model.onnx"):
        assert evaluate(read(named), {"x": np.zeros(4, np.float32)})["y"].tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("location", "target"),
    [("w.bin", "UP/secret.bin"), ("w.bin", "/etc/passwd"), ("w.bin", "UP/blobs/sub/x"), ("w.bin", "UP/blobs/link")],
)
def test_links_of_a_cache_lead_nowhere_else(location: str, target: str, tmp_path: Path) -> None:
    """Data that leads elsewhere than the model's own link, also by a second link, is not the model's."""
    path = in_a_cache(tmp_path / "cache", location, target)
    blobs = tmp_path / "cache" / "blobs"
    (blobs / "sub").mkdir()
    (blobs / "sub" / "x").write_bytes(bytes(24))
    os.symlink("../secret.bin", blobs / "link")
    told = refusal(path, errors.ModelProblem)
    assert "is not inside of the model's folder" in told and "where the model's own link leads" in told


def test_a_cache_gives_no_other_places(tmp_path: Path) -> None:
    """A linked folder of data, ``..`` and absolute places are refused where the model is a link, too."""
    path = in_a_cache(tmp_path / "linked", "etc/passwd", "")
    os.symlink("/etc", path.parent / "etc")
    assert "is not inside of the model's folder" in refusal(path, errors.ModelProblem)
    for number, location in enumerate(("../../blobs/da7a", str(tmp_path / "0" / "blobs" / "da7a"))):
        path = in_a_cache(tmp_path / str(number), location, "")
        assert "a relative path without `..`" in refusal(path, errors.ModelProblem)


def test_weights_that_are_not_there_are_a_storage_error(tmp_path: Path) -> None:
    """Missing and short files, and places outside of them."""
    path = tmp_path / "m.onnx"
    np.zeros(4, np.float32).tofile(tmp_path / "w.bin")
    for location, keys, text in (
        ("none.bin", {}, "No such file"),
        ("w.bin", {"offset": 4}, "is it complete?"),
        ("w.bin", {"offset": -4}, "is it complete?"),
        ("w.bin", {"length": 3}, "is it complete?"),
        ("w.bin", {"offset": "x"}, "is no number"),
    ):
        onnx.save(external(location, **keys), path)
        assert text in refusal(path, errors.StorageError)


def sparse(values: object, indices: object, dtype: str = "int64") -> onnx.ModelProto:
    """A model that adds a sparse tensor of shape [2, 3] to its input."""
    made = model([node("Add", "x w", "y")], {"x": (2, 3)})
    weights = numpy_helper.from_array(np.array(values, np.float32), "w")
    places = numpy_helper.from_array(np.array(indices, dtype))
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(weights, places, [2, 3]))
    return made


def test_sparse_weights_are_where_they_say() -> None:
    """By number or by a place in each dimension; what lies elsewhere, or is of another form, is refused."""
    for indices in ([1, 5], [[0, 1], [1, 2]]):
        found = evaluate(read(sparse([7, 8], indices)), {"x": np.zeros((2, 3), np.float32)})["y"]
        assert found.tolist() == [[0, 7, 0], [0, 0, 8]]
    for indices in ([1, 6], [-1, 5], [[0, 1], [2, 0]], [[0, 3], [1, 0]], [[0, -1], [1, 0]]):
        assert "its indices leave the shape [2, 3]" in refusal(sparse([7, 8], indices), errors.StorageError)
    for values, indices, dtype in (
        ([7, 8], [[0], [1]], "int64"), ([7, 8], [[0, 0, 0], [1, 1, 1]], "int64"), ([7, 8], [1], "int64"),
        ([[7], [8]], [[0, 1], [1, 2]], "int64"), ([7, 8], [1, 2], "float32"),
    ):  # fmt: skip
        assert "is damaged: its values have the shape" in refusal(sparse(values, indices, dtype), errors.StorageError)


def test_types_that_there_are_not_are_named(tmp_path: Path) -> None:
    """An input of an unknown type, texts in another file, and a tensor in segments."""
    made = model([node("Relu", "x", "y")], {"x": (2, 3)})
    made.graph.input[0].type.tensor_type.elem_type = 99
    assert "no element type has the number 99" in refusal(made, errors.ModelProblem)
    np.zeros(8, np.float32).tofile(tmp_path / "w.bin")
    texts, parts = external("w.bin"), external("w.bin")
    texts.graph.initializer[0].data_type = TensorProto.STRING
    parts.graph.initializer[0].segment.end = 4
    for damaged in (texts, parts):
        onnx.save(damaged, tmp_path / "m.onnx")
        assert "the tensor `w` of shape [4] is damaged" in refusal(tmp_path / "m.onnx", errors.StorageError)


def test_weights_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor of a huge shape and no data costs nothing."""
    huge = TensorProto(name="w", dims=(1 << 20, 1 << 20), data_type=TensorProto.FLOAT)
    text = refusal(model([node("Add", "x w", "y")], {"x": (4,)}, tensors=[huge]), errors.ModelProblem)
    assert f"all together {reading.LARGEST_TOTAL}" in text
    short = TensorProto(name="w", dims=(4,), data_type=TensorProto.FLOAT, raw_data=b"abc")
    assert "damaged" in refusal(model([node("Add", "x w", "y")], {"x": (4,)}, tensors=[short]), errors.StorageError)
    negative = TensorProto(name="w", dims=(-4,), data_type=TensorProto.FLOAT)
    assert "damaged" in refusal(model([node("Add", "x w", "y")], {"x": (4,)}, tensors=[negative]), errors.StorageError)


def test_constants_that_would_grow_are_not_folded() -> None:
    """A node of constants whose result is huge stays what it is."""
    shape = np.array([1 << 16, 1 << 16], np.int64)
    network = read(model([node("ConstantOfShape", "s", "c"), node("ReduceSum", "c", "y")], {}, {"s": shape}))
    assert [foreign.op for foreign in network.foreign] == ["ConstantOfShape"]


def test_constants_that_would_grow_together_are_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is small by itself is folded until it is too much in all."""
    monkeypatch.setattr(folding, "LARGEST_FOLDED_TOTAL", 1 << 20)
    nodes = [node("ConstantOfShape", "s", f"c{number}") for number in range(8)]
    nodes.append(node("Concat", " ".join(f"c{number}" for number in range(8)), "y", axis=0))
    network = read(model(nodes, {}, {"s": np.array([1 << 16])}))
    assert 0 < sum(array.nbytes for name, array in network.constants.items() if name != "s") <= 1 << 20
    assert [foreign.op for foreign in network.foreign] == ["ConstantOfShape"] * 4


def test_endless_loops_are_not_run() -> None:
    """A loop over constants is not folded."""
    body = helper.make_graph(
        [node("Identity", "c", "c1"), node("Identity", "v", "v1")], "body",
        [value("i", (), "int64"), value("c", (), "bool"), value("v", (1,))], 
        [value("c1", (), "bool"), value("v1", (1,))],
    )  # fmt: skip
    constants = {"n": np.array(1 << 60, np.int64), "go": np.array(True), "v0": np.zeros(1, np.float32)}
    network = read(model([node("Loop", "n go v0", "y", body=body)], {}, constants))
    assert [type(called) for called in network.called] == [Loop]


def test_the_lengths_of_a_scan_of_rows_have_to_be_known() -> None:
    """Else such a one, of version 8, is refused, since the reference knows only the newest version."""
    body = helper.make_graph(
        [node("Add", "s v", "t"), node("Identity", "t", "r")], "body",
        [value("s", (3,)), value("v", (3,))], [value("t", (3,)), value("r", (3,))],
    )  # fmt: skip
    shapes = {"first": (2, 3), "x": (2, 4, 3)}
    scan = node("Scan", "lengths first x", "last y", body=body, num_scan_inputs=1)
    made = model([scan], shapes, outputs="last y", opset=8)
    made.graph.input.append(value("lengths", (2,), "int64"))
    assert "has no dimension of rows, which the tensors of its version 8 begin" in refusal(made, errors.ModelProblem)


def calling(calls: dict[str, str]) -> onnx.ModelProto:
    """A model that calls `f0`; each function calls others in a row, of which there are the names."""
    made = model([helper.make_node("f0", ["x"], ["y"], domain="own")], {"x": (2, 3)})
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for name, called in calls.items():
        steps = ["a", *(f"t{number}" for number in range(len(called.split()) - 1)), "b"]
        body = [
            helper.make_node(op, [a], [b], domain="own" if op in calls else "")
            for op, a, b in zip(called.split(), steps, steps[1:], strict=False)
        ]
        made.functions.append(helper.make_function("own", name, ["a"], ["b"], body, opsets))
    made.opset_import.append(helper.make_opsetid("own", 1))
    return made


def test_functions_of_a_model_end_and_stay_small() -> None:
    """One that calls itself, 30 that each call the next twice, and too many in a row are refused beforehand."""
    assert len(read(calling({"f0": "f1 f1 Neg", "f1": "Exp"})).nodes) == 3
    for calls in ({"f0": "f0"}, {"f0": "Relu f1", "f1": "f2 f0", "f2": "Relu"}):
        assert "calls itself" in refusal(calling(calls), errors.ModelProblem)
    doubling = {f"f{number}": f"f{number + 1} f{number + 1}" for number in range(30)} | {"f30": "Relu"}
    assert "there may be 1048576 nodes" in refusal(calling(doubling), errors.ModelProblem)
    row = {f"f{number}": f"f{number + 1}" for number in range(2000)} | {"f2000": "Relu"}
    for order in (row, dict(reversed(row.items()))):
        assert "call each other in a row" in refusal(calling(order), errors.ModelProblem)


def test_graphs_are_nested_only_so_deep() -> None:
    """A tower of branches is refused, and does not exhaust the stack."""
    inner = helper.make_graph([node("Relu", "x", "z")], "inner", [], [value("z", (2,))])
    for _ in range(20):
        inner = helper.make_graph(
            [node("If", "c", "z", then_branch=inner, else_branch=inner.__class__(name="e"))],
            "g",
            [],
            [value("z", (2,))],
        )
    nodes = [node("If", "c", "y", then_branch=inner, else_branch=inner.__class__(name="e"))]
    assert "nested more than" in refusal(model(nodes, {"x": (2,)}, {"c": np.array(True)}), errors.ModelProblem)


def test_invalid_graphs_are_explained() -> None:
    """Unknown operators, versions, names, and results that are nowhere."""
    for nodes, text in (
        ([node("Frobnicate", "x", "y")], "`Frobnicate`, which ONNX does not define"),
        ([node("Relu", "z", "y")], "it reads `z`, which nothing before it computes"),
        ([node("Relu", "x", "y"), node("Relu", "x", "y")], "it writes `y`, which there is already"),
        ([node("Relu", "x", "z")], "nothing in the model computes its output `y`"),
        ([node("MatMul", "x x", "y")], "is not valid"),
        ([node("NonZero", "x", "n"), node("Size", "n", "y")], "depends on the contents"),
    ):
        assert text in refusal(model(nodes, {"x": (2, 3)}), errors.ModelProblem)
    assert "versions 7 to" in refusal(model([node("Relu", "x", "y")], {"x": (2,)}, opset=5), errors.ModelProblem)


@pytest.mark.parametrize("axis", [1 << 40, -(1 << 31), 1 << 20, 9])
def test_dimensions_that_there_are_not_never_reach_the_inference_of_onnx(axis: int) -> None:
    """Its code in C++ reads memory outside of the shape, where it does not end the process."""
    made = model([node("LayerNormalization", "x w", "y", axis=axis)], {"x": (2, 3, 5)}, {"w": np.ones(5, np.float32)})
    assert str(abs(axis)) in refusal(made, errors.ModelProblem)


def branching(*nodes: onnx.NodeProto, depth: int = 1, tensors: tuple[TensorProto, ...] = ()) -> onnx.ModelProto:
    """A model that takes one of two branches, both of `nodes`, as its input says; `depth` of them in each other."""
    for _ in range(depth):
        inner = helper.make_graph(nodes, "inner", [], [onnx.ValueInfoProto(name="y")], tensors)
        nodes = (node("If", "c", "y", then_branch=inner, else_branch=inner),)
    whole = [node("ReduceMax", "x", "m", keepdims=0), node("Cast", "m", "c", to=TensorProto.BOOL), *nodes]
    return model(whole, {"x": (2, 3, 5)}, {"w": np.ones(5, np.float32)})


@pytest.mark.parametrize("depth", [1, 2])
def test_graphs_inside_of_nodes_are_looked_at_as_well(depth: int) -> None:
    """ONNX infers their types when it infers those of an If, by the same code in C++."""
    for axis in (1 << 20, -(1 << 20), 9):
        norm = node("LayerNormalization", "t w", "y", axis=axis)
        made = branching(node("Relu", "x", "t"), norm, depth=depth)
        assert str(abs(axis)) in refusal(made, errors.ModelProblem)
    parts = helper.make_node("Split", ["x"], ["y", "b", "c"], num_outputs=2, axis=1)
    assert "`num_outputs`" in refusal(branching(parts, depth=depth), errors.ModelProblem)
    sums = node("Einsum", "x", "y", equation=b"\xff\xfe")
    assert "its equation is" in refusal(branching(sums, depth=depth), errors.ModelProblem)
    valid = branching(node("Relu", "x", "t"), node("LayerNormalization", "t w", "y", axis=-1), depth=depth)
    x = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    wanted = ReferenceEvaluator(valid).run(None, {"x": x})[0]
    np.testing.assert_allclose(evaluate(read(valid), {"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)


def test_what_a_scan_hands_to_its_graph_has_one_dimension_less() -> None:
    """Also where the graph does not say which dimensions its inputs have."""
    for axis, is_there in ((-1, True), (5, False)):
        body = helper.make_graph(
            [node("LayerNormalization", "v w", "r", axis=axis)], "body", [value("v", None)], [value("r", None)]
        )
        made = model([node("Scan", "x", "y", body=body, num_scan_inputs=1)], {"x": (4, 5)}, {"w": np.ones(5)})
        if is_there:
            assert read(made).tensors["y"].shape == (4, 5)
        else:
            assert "its `axis` is 5, but its inputs have 1 dimensions" in refusal(made, errors.ModelProblem)


def test_nodes_that_have_not_what_they_need_are_named() -> None:
    """Parts that are not counted rightly, conditions of no element, branches and places that are not there."""
    parts = helper.make_node("Split", ["x"], ["y", "b", "c"], num_outputs=2)
    text = refusal(model([parts], {"x": (6,)}, outputs="y b c", opset=18), errors.ModelProblem)
    assert "not as many as its `num_outputs`" in text
    nothing = model([node("If", "c", "y")], {"x": (2,)}, {"c": np.zeros(0, np.bool_)})
    assert "its condition has 0 elements" in refusal(nothing, errors.ModelProblem)
    branches = model([node("If", "c", "y")], {"x": (2,)}, {"c": np.array(True)})
    sums = model([node("Einsum", "x", "y", equation=b"\xff\xfe")], {"x": (2,)})
    assert "its equation is" in refusal(sums, errors.ModelProblem)
    assert "has not what its operator needs (KeyError: 'then_branch')" in refusal(branches, errors.ModelProblem)


@pytest.mark.parametrize("op", ["Gather", "GatherElements"])
def test_known_places_lie_inside(op: str) -> None:
    """A constant place that no element has is refused; negative ones count from the end."""
    for place, is_inside in ((2, True), (-3, True), (3, False), (-4, False)):
        made = model([node(op, "x i", "y")], {"x": (3, 2)}, {"i": np.array([[0, place]])})
        if is_inside:
            x = np.arange(6, dtype=np.float32).reshape(3, 2)
            assert evaluate(read(made), {"x": x})["y"].size
        else:
            assert f"it takes the element {place} of a dimension that has 3" in refusal(made, errors.ModelProblem)


def test_open_extents_are_asked_for_by_input() -> None:
    """The error says which `--input` is missing; a symbol has one value in the whole model."""
    two = model([node("Add", "a b", "y")], {"a": ("n", 3), "b": ("n", 3)})
    assert "`--input a=Nx3`" in refusal(two, errors.ModelProblem)
    assert read(two, {"a": (4, 3)}).tensors["b"].shape == (4, 3)
    assert "`n` is 4 in this model" in refusal(two, errors.ModelProblem, a=(4, 3), b=(5, 3))
    assert "`3` is 3 in this model" in refusal(two, errors.ModelProblem, a=(4, 5))
    assert "has 2 dimensions" in refusal(two, errors.ModelProblem, a=(4,))
    assert "no input `c`" in refusal(two, errors.ModelProblem, c=(4,))
    assert "negative" in refusal(two, errors.ModelProblem, a=(-1, 3))


def test_importing_the_package_loads_no_onnx() -> None:
    """The extra is loaded when a model is read."""
    code = "import sys, stridesmith, stridesmith.models, stridesmith.models.network; print('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_weights_of_four_bits_share_bytes(tmp_path: Path) -> None:
    """A file has two of them in a byte."""
    whole = numpy_helper.from_array(np.arange(-4, 4).astype(ml_dtypes.int4), "w")
    tensor = TensorProto(name="w", dims=(8,), data_type=TensorProto.INT4, data_location=TensorProto.EXTERNAL)
    for key, text in (("location", "w.bin"), ("length", "4")):
        tensor.external_data.add(key=key, value=text)
    (tmp_path / "w.bin").write_bytes(whole.raw_data)
    nodes = [node("Cast", "w", "f", to=TensorProto.FLOAT), node("Add", "x f", "y")]
    onnx.save(model(nodes, {"x": (8,)}, tensors=[tensor], opset=21), tmp_path / "small.onnx")
    x = np.zeros(8, np.float32)
    np.testing.assert_array_equal(evaluate(read(tmp_path / "small.onnx"), {"x": x})["y"], np.arange(-4, 4))
    (tmp_path / "w.bin").write_bytes(whole.raw_data[:3])
    assert "4 bytes" in refusal(tmp_path / "small.onnx", errors.StorageError)
