"""`stridesmith emit`: which kernel leaves, where to, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from record_makers import make_record

from stridesmith.backends.devices import discover
from stridesmith.cli import main
from stridesmith.search.records.database import Database
from stridesmith.space.workloads import workload

WORK = workload("matmul", m=6, n=7, k=5)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the untuned program, as if it were the best."""
    path = tmp_path_factory.mktemp("emit") / "best.db"
    with Database(str(path)) as database:
        fixed = {"a": "fixed", "b": "fixed", "c": "fixed"}
        facts = {"script": WORK.script, "workload": "matmul", "params": dict(WORK.params), "interface": fixed}
        target = discover("cpu", 2).to_json()
        database.put_record(make_record(id="0123456789abcdef", trace=None, target=target, stage="race", **facts))
        database.put_record(make_record(None, id="b" * 16, trace=None, target=target, **facts))
        database.put_record(make_record(1.0, id="c" * 16, trace=None, target=target, verified=False, **facts))
    return path


SHAPE = ("--workload", "matmul", "--shape", "m=6,n=7,k=5", "--threads", "2")


def test_the_best_record_of_a_workload_leaves(db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Into a folder under the workload's name; the header says what it is and which record it was."""
    assert main(["emit", *SHAPE, "--db", str(db), "-o", f"{tmp_path}/new/", "--format", "c"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [Path(line).name for line in printed] == ["matmul.c", "matmul.h"]
    header = (tmp_path / "new" / "matmul.h").read_text()
    assert "matmul(" in header
    assert "record 0123456789abcdef" in header
    assert "int matmul(const float *a, const float *b, float *c);" in header


def test_a_record_leaves_under_the_files_name(db: Path, tmp_path: Path) -> None:
    """`-o libfast.s` makes the function `libfast`, as only a shared object has a prefix."""
    path = tmp_path / "fast.s"
    assert main(["emit", "--record", "0123456789abcdef", "--db", str(db), "-o", str(path), "--format", "asm"]) == 0
    assert "fast:" in path.read_text()


def test_another_cpu(db: Path, tmp_path: Path) -> None:
    """`--isa` takes a short name, and keeps the record's threads."""
    options = ["--db", str(db), "-o", f"{tmp_path}/", "--format", "ll", "--isa", "avx2"]
    assert main(["emit", *SHAPE, *options]) == 0
    assert '"target-cpu"="x86-64-v3"' in (tmp_path / "matmul.ll").read_text()
    assert "MATMUL_THREADS 2" in (tmp_path / "matmul.h").read_text()


def test_a_script_leaves_as_it_is_written(tmp_path: Path) -> None:
    """Without a record, with the schedule that stands there."""
    script = tmp_path / "mine.py"
    script.write_text(WORK.script)
    options = ["--format", "script", "-o", str(tmp_path / "again.py")]
    assert main(["emit", "--script", str(script), "--as-written", *options]) == 0
    assert (tmp_path / "again.py").read_text().strip() == WORK.script.strip()


def test_a_model_leaves(tmp_path: Path) -> None:
    """As one function, with its weights inside."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])], "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((24, 8), np.float32), "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    options = ["--model", str(tmp_path / "net.onnx"), "--input", "x=4x24", "--db", str(tmp_path / "none.db")]
    assert main(["emit", *options, "-o", f"{tmp_path}/", "--format", "c"]) == 0
    assert "int net(const float *x, float *y);" in (tmp_path / "net.h").read_text()
    assert "asm" in (tmp_path / "net.c").read_text()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((*SHAPE, "--format", "cl"), 2, "the format cl is for opencl, but this kernel is for cpu"),
        ((*SHAPE, "--isa", "avx9"), 2, "there is no target 'cpu-avx9' (did you mean"),
        ((*SHAPE, "--input", "x=1x2"), 2, "--input goes with --model"),
        ((*SHAPE, "--as-written"), 2, "--as-written goes with --script"),
        (("--workload", "matmul", "--shape", "m=8", "--threads", "2"), 3, "stridesmith --workload matmul --shape m=8"),
        (("--record", "ffffffffffffffff"), 3, "ffffffffffffffff"),
        (("--record", "b" * 16), 2, "a failed candidate (wrong): there is no kernel to emit"),
        (("--record", "c" * 16), 2, "was not verified on this machine's behalf, which `stridesmith replay --rec"),
    ],
)
def test_what_is_refused(
    options: tuple[str, ...], code: int, said: str, db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One paragraph each, and the code of its kind."""
    assert main(["emit", *options, "--db", str(db), "-o", f"{tmp_path}/"]) == code
    assert said in capsys.readouterr().err
