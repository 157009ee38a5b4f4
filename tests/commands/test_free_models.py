"""Networks of free sizes on the command line: one is tuned, replayed and shown; mistakes are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.cli import main
from stridesmith.commands.free_models import free_sizes
from stridesmith.commands.options import inputs_of
from stridesmith.search.tasks.command_line import Options

onnx = pytest.importorskip("onnx")

SIZES = ["--input", "x=nx24", "--range", "n=1..32"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``y = relu(x @ w)`` with rows that are left open."""
    from onnx import TensorProto, helper, numpy_helper

    path: Path = tmp_path_factory.mktemp("free") / "net.onnx"
    weights = np.random.default_rng(0).standard_normal((24, 16)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    graph = helper.make_graph(
        nodes, "rows", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def test_a_network_of_free_sizes_is_tuned_replayed_shown_reported_and_run(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On one file and database; the record is what `ss.compile` and `run` run, at sizes that nothing has measured."""
    monkeypatch.setenv("STRIDESMITH_DB", str(file.parent / "own.db"))
    given = ["--model", str(file), *SIZES, "--format", "json"]
    assert main([*given, "--seconds", "30"]) == 0
    told = events(capsys)[-1]
    assert (told["event"], told["ranges"], told["programs"], told["tuned"]) == ("free_model", {"n": "1..32"}, 1, 1)
    assert main(["replay", *given]) == 0
    found = events(capsys)
    assert [event["verified"] for event in found if event["event"] == "replayed"] == [True]
    assert main(["show", "--model", str(file), *SIZES, "--format", "plain"]) == 0
    shown = capsys.readouterr().out
    assert "1 of 1 programs" in shown and "with n = 16" in shown
    page = file.parent / "page.html"
    assert main(["report", "--model", str(file), *SIZES, "-o", str(page), "--format", "json"]) == 0
    told = events(capsys)[-1]
    assert told["tasks"] == 1 and any(note.startswith("a call with n = 16 takes") for note in told["notes"])
    assert "net.onnx" in page.read_text(encoding="utf-8")
    run = ss.compile(str(file), inputs={"x": ("n", 24)}, ranges={"n": (1, 32)})
    (kernel,) = run.kernels.values()
    assert kernel.origin in ("tuned", "untuned")  # of few that were measured, the program as written may be the best
    (weights,) = run.network.constants.values()
    for n in (1, 7, 32):
        x = np.random.default_rng(n).standard_normal((n, 24)).astype(np.float32)
        np.testing.assert_allclose(run(x), np.maximum(x @ weights, 0), rtol=1e-4, atol=1e-5)
    np.save(file.parent / "x.npy", x)
    given = [*SIZES, "--input", f"x={file.parent / 'x.npy'}", "-o", str(file.parent / "out"), "--format", "json"]
    assert main(["run", str(file), *given]) == 0
    assert next(event["shape"] for event in events(capsys) if event["event"] == "output") == [32, 16]
    np.testing.assert_array_equal(np.load(file.parent / "out" / "y.npy"), run(x))
    np.save(file.parent / "x.npy", np.zeros((33, 24), np.float32))
    assert main(["run", str(file), *given]) == 2
    assert "axis 0 of `x` gives n = 33, but the model takes n = 1..32" in " ".join(capsys.readouterr().err.split())


def images(extents: list[str | int]) -> Any:
    """A convolution of stride 2, and one of single pixels behind it."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = {"a": rng.standard_normal((8, 3, 3, 3)), "b": rng.standard_normal((4, 8, 1, 1))}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]), helper.make_node("Conv", ["r", "b"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "images", [helper.make_tensor_value_info("x", TensorProto.FLOAT, extents)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("is_told", [True, False], ids=["in the file", "by --input"])
def test_extents_that_are_expressions_of_sizes(
    is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As exporters write them into files; a call solves for the sizes, and says which extents it takes."""
    from onnx.reference import ReferenceEvaluator

    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "none.db"))
    model = images([1, 3, "16*h", "w*16 + 4"] if is_told else [1, 3, "?", ""])
    file = tmp_path / "net.onnx"
    onnx.save(model, file)
    sizes = ["--range", "h=1..3,w=1..2"] + ([] if is_told else ["--input", "x=[1,3,16*h,w*16 + 4]"])
    for shape in ((1, 3, 32, 36), (1, 3, 48, 20)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.save(tmp_path / "x.npy", x)
        given = ["--input", f"x={tmp_path / 'x.npy'}", "-o", str(tmp_path / "out.npz"), "--format", "json"]
        assert main(["run", str(file), *sizes, *given]) == 0
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], wanted, rtol=1e-4, atol=1e-4)
    for shape, sentence in (
        ((1, 3, 33, 36), "axis 2 of `x` must be 16 * h for some h, but it is 33"),
        ((1, 3, 64, 36), "axis 2 of `x` gives h = 4, but the model takes h = 1..3"),
    ):
        np.save(tmp_path / "x.npy", np.zeros(shape, np.float32))
        assert main(["run", str(file), *sizes, *given]) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())


def test_inputs_of_every_type_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers of two bytes, which NumPy has not, and places, beside each other."""
    from onnx import TensorProto, helper

    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "none.db"))
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Add", ["i", "i"], ["b"])]
    types = {"x": TensorProto.BFLOAT16, "i": TensorProto.INT64, "a": TensorProto.BFLOAT16, "b": TensorProto.INT64}
    values = {name: helper.make_tensor_value_info(name, kind, ["n", 24]) for name, kind in types.items()}
    graph = helper.make_graph(nodes, "pair", [values["x"], values["i"]], [values["a"], values["b"]])
    file = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    assert main(["show", "--model", str(file), "--range", "n=2..8:2", "--format", "json"]) == 0
    told = events(capsys)[-1]
    assert [entry["sizes"] for entry in told["latencies"]] == [{"n": 2}, {"n": 4}, {"n": 8}]
    assert all(entry["latency_us"] > 0 for entry in told["latencies"])


@pytest.mark.parametrize(
    ("text", "extents"),
    [
        ("x=1xnx24", (1, "n", 24)),
        ("x=1,max,24", (1, "max", 24)),
        ("x=[1, max, 24]", (1, "max", 24)),
        ("x=[max]", ("max",)),
        ("x=n", ("n",)),
        ("x=[1x24]", (1, 24)),
        ("x=[ 5 ]", (5,)),
        ("x=[]", ()),
    ],
)
def test_extents_stand_between_commas_or_at_each_x(text: str, extents: tuple[int | str, ...]) -> None:
    """Names with an x in them between commas or in brackets; spaces there say nothing."""
    ranges = {"max": "1..8", "n": "1..8"}
    options = Options(input=(text,), range=tuple(f"{name}={value}" for name, value in ranges.items()))
    assert free_sizes(options).shapes == {"x": extents}
    if all(isinstance(extent, int) for extent in extents):
        assert inputs_of([text]).shapes == {"x": extents}


def test_values_stand_beside_ranges() -> None:
    """A word that is a value is no extent of which something is missing."""
    assert free_sizes(Options(input=("x=nx4", "train=true", "k=5"), range=("n=1..8",))).values == {
        "train": True, "k": 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--input", "x=nx24", "--range", "n=32..1"], "the range n=32..1 holds no number; the least one comes first"),
        (["--input", "x=nx24", "--range", "n=3..32:2"], "the range n=3..32:2 must begin and end with a multiple of 2"),
        (["--input", "x=nx24", "--range", "n=7"],
         "--range takes NAME=LEAST..LARGEST or NAME=LEAST..LARGEST:STEP, as in H=32..960:32, but got n=7"),
        (["--input", "x=nx24", "--range", "n=1..2,n=1..3"], "--range names 'n' twice, with 1..2 and 1..3"),
        (["--input", "x=nx24", "--range", "n=1..2", "--range", "n=1..3"],
         "--range names 'n' twice, with 1..2 and 1..3"),
        (["--input", "x=nx24", "--range", "n=0..2"], "an extent is at least 1, but the range of n is 0..2"),
        (["--input", "x=[m,24]", "--range", "n=1..2"],
         "--input x=[m,24] has the extent m, of which nothing is known: give its range, as in `--range m=1..64`"),
        (["--input", "x=nx24", "--input", "x=3x24", "--range", "n=1..2"],
         "--input gives 'x' a shape or a value twice"),
        (["--input", "x=4x24", "--range", "n=1..2"], "no input has the extent n; name it in `inputs`"),
        (["--input", "x=nx24"], "but got 'x=nx24'; what names among the extents may be says --range of a search"),
        ([*SIZES, "--precision", "bfloat16"], "--precision does not go with --model and --range"),
        ([*SIZES, "--no-winograd"], "--no-winograd does not go with --model and --range"),
        ([*SIZES, "--likely", "n=1:0.5"], "--likely does not go with --model and --range"),
        ([*SIZES, "--address", "auto"], "--address does not go with --model and --range"),
        ([*SIZES, "--fresh"], "--fresh does not go with --model: give a database of its own with --db to begin anew"),
    ],
)  # fmt: skip
def test_wrong_ranges_are_one_sentence(
    words: list[str], sentence: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong, and what to write."""
    assert main(["--model", str(file), *words]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_ranges_elsewhere_are_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A workload has its ranges in --shape; files have networks of one shape."""
    assert main(["--workload", "matmul", "--range", "m=1..4"]) == 2
    assert "a size of a workload has its range in --shape, as in m=1..512" in " ".join(capsys.readouterr().err.split())
    assert main(["emit", "-o", str(file.parent / "net.so"), "--model", str(file), *SIZES]) == 2
    assert "--range is not for `emit`: files have networks of one shape" in " ".join(capsys.readouterr().err.split())
