"""Whole networks on the command line: a small one is tuned, run, replayed and shown; mistakes are told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stridesmith.cli import main
from stridesmith.models.run.model import Model

onnx = pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``y = relu(x @ w)`` and ``z = det(y)``, which has no program here, with a batch that is left open."""
    from onnx import TensorProto, helper, numpy_helper

    path = tmp_path_factory.mktemp("models")
    weights = np.random.default_rng(0).standard_normal((24, 24)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
        helper.make_node("Det", ["y"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 24, 24])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z")],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path / "net.onnx")
    np.savez(path / "in.npz", x=np.full((2, 24, 24), 0.5, np.float32))
    np.savez(path / "wanted.npz", y=np.maximum(np.full((2, 24, 24), 0.5, np.float32) @ weights, 0))
    return path


def events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What was printed, without what Ray says of a worker that the system has killed."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]


def test_a_model_is_tuned_run_replayed_and_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All four commands on one file and database; results are right, what fell back is named, records are used."""
    monkeypatch.setenv("STRIDESMITH_DB", str(folder / "own.db"))
    file, shape = str(folder / "net.onnx"), ["--input", "x=2x24x24", "--format", "json"]
    for seconds in ("20", "40", "80"):  # a slow or busy machine measures nothing in too few
        assert main(["--model", file, "--seconds", seconds, *shape]) == 0
        told = events(capsys)
        assert [event["event"] for event in told if event["event"] != "note"][:3] == ["phase", "phase", "tasks"]
        assert told[-1]["fallback"] == ["Det"]
        if told[-1]["untuned"] == 0:
            break
    assert {e["event"] for e in told} >= {"tasks", "turn", "model"} and told[-1]["untuned"] == 0
    assert told[-1]["latency_us"] > told[-1]["predicted_us"] > 0 and told[-1]["trials"] > 0

    out = folder / "out.npz"
    assert main(["run", file, "--data", str(folder / "in.npz"), "--out", str(out), *shape]) == 0
    assert [e["name"] for e in events(capsys) if e["event"] == "output"] == ["y", "z"]
    with np.load(out) as found, np.load(folder / "wanted.npz") as wanted:
        np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found["z"], np.linalg.det(found["y"].astype(np.float64)), rtol=1e-2, atol=1e-6)
        np.save(folder / "x.npy", np.full((2, 24, 24), 0.5, np.float32))
        assert main(["run", "--model", file, "--input", f"x={folder / 'x.npy'}", "-o", str(folder / "results")]) == 0
        np.testing.assert_array_equal(np.load(folder / "results" / "y.npy"), found["y"])
        capsys.readouterr()

    assert main(["replay", "--model", file, *shape]) == 0
    assert [e["verified"] for e in events(capsys) if e["event"] == "replayed"] == [True]

    assert main(["show", "--model", file, *shape]) == 0
    rows = [e for e in events(capsys) if e["event"] == "operator"]
    assert [row["origin"] for row in rows] == ["tuned", "fallback"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert rows[0]["record"] and rows[0]["roofline"] > 0


def test_given_inputs_are_what_is_measured(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """How long a model takes may depend on its data, and random ones may be none that it takes."""
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "own.db"))
    seen: list[Any] = []
    monkeypatch.setattr(Model, "measure", lambda model, inputs=None, seconds=1.0: seen.append(inputs) or [1.0])
    shape = ["--input", "x=2x24x24", "--format", "json"]
    assert main(["run", str(folder / "net.onnx"), "--data", str(folder / "in.npz"), *shape]) == 0
    ((given,),) = seen
    np.testing.assert_array_equal(given, np.full((2, 24, 24), 0.5, np.float32))
    assert events(capsys)


BAD = [
    (["--model", "missing.onnx"], 74, "missing.onnx"),
    (["--model", "{net}", "--workload", "conv2d"], 2, "--workload does not go with --model"),
    (["--model", "{net}", "--trials", "3"], 2, "--trials does not go with --model"),
    (["--model", "{net}", "--preset", "quick"], 2, "--preset does not go with --model"),
    (["--model", "{net}", "--from", "mine.txt"], 2, "--from does not go with --model"),
    (["--model", "{net}", "--input", "x=1xa"], 2, "NAME=EXTENTS"),
    (["--model", "{net}", "--input", "q=2x24x24"], 2, "no input `q`"),
    (["--workload", "matmul", "--input", "x=2x3"], 2, "--input goes with --model"),
    (["--workload", "matmul", "--no-winograd"], 2, "--no-winograd goes with --model"),
    (["--workload", "matmul", "--fallback", "onnxruntime"], 2, "--fallback goes with --model"),
    (["run", "{net}", "--input", "x=2x24x24", "--fallback", "other"], 2, "there is no fallback 'other'"),
    (["replay", "--model", "{net}", "--input", "x=2x24x24"], 3, "stridesmith --model"),
    (["run", "{net}", "--input", "x=2x24x24", "--data", "{net}"], 2, "not an .npz file"),
    (["run", "{net}", "--input", "x={net}.npy"], 2, "cannot read the input in"),
    (["run", "{net}", "--input", "x={doubles}"], 2, "does not take these inputs: `x` must have dtype float32"),
    (["run", "{net}", "--model", "{net}"], 2, "name one model"),
    (["run"], 2, "name one model"),
    (["--model", "{net}", "--fresh"], 2, "--fresh does not go with --model"),
    (["replay", "--model", "{net}", "--any-device"], 2, "--any-device does not go with --model"),
    (["show", "--model", "{net}", "--assembly"], 2, "--view"),
]


@pytest.mark.parametrize(("args", "code", "words"), BAD, ids=[" ".join(b[0]) for b in BAD])
def test_a_mistake_is_one_clear_paragraph(
    args: list[str], code: int, words: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Each has its exit code, names the thing, and is never a traceback."""
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "own.db"))
    np.save(tmp_path / "doubles.npy", np.zeros((2, 24, 24)))
    places = {"{net}": folder / "net.onnx", "{doubles}": tmp_path / "doubles.npy"}
    for place, path in places.items():
        args = [arg.replace(place, str(path)) for arg in args]
    assert main(args) == code
    out, err = capsys.readouterr()
    assert words in err and err.startswith("stridesmith: ") and err.count("\n") == 1
    assert "Traceback" not in out + err


@pytest.mark.parametrize("command", [["--model"], ["run"]], ids=["tune", "run"])
def test_without_the_extra_it_says_what_to_install(command: list[str], tmp_path: Path) -> None:
    """A plain installation has no package for models' files, and is no bug for that."""
    (tmp_path / "net.onnx").write_bytes(b"")
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "from stridesmith.cli import main\n"
        f"sys.exit(main([*{command}, 'net.onnx', '--db', 'empty.db']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 4 and "pip install 'stridesmith[onnx]'" in done.stderr
    assert "bug" not in done.stderr
