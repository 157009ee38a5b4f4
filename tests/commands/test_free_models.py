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


def test_a_network_of_free_sizes_is_tuned_replayed_and_shown(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All three on one file and database; the record is what `ss.compile` runs, at sizes that nothing has measured."""
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
    run = ss.compile(str(file), inputs={"x": ("n", 24)}, ranges={"n": (1, 32)})
    assert [kernel.origin for kernel in run.kernels.values()] == ["tuned"]
    (weights,) = run.network.constants.values()
    for n in (1, 7, 32):
        x = np.random.default_rng(n).standard_normal((n, 24)).astype(np.float32)
        np.testing.assert_allclose(run(x), np.maximum(x @ weights, 0), rtol=1e-4, atol=1e-5)


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
    """A workload has its ranges in --shape; reports and files have networks of one shape."""
    assert main(["--workload", "matmul", "--range", "m=1..4"]) == 2
    assert "a size of a workload has its range in --shape, as in m=1..512" in " ".join(capsys.readouterr().err.split())
    assert main(["report", "-o", str(file.parent / "page.html"), "--model", str(file), *SIZES]) == 2
    assert "reports and files have networks of one shape" in " ".join(capsys.readouterr().err.split())
