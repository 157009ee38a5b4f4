"""Commands as messages show them: what can be pasted acts on the same work, form and database."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from stridesmith.backends.devices import discover
from stridesmith.ir.target import Target
from stridesmith.search.tasks.command_line import Options, options_of
from stridesmith.search.tasks.interface import interface_of
from stridesmith.space.workloads import workload

GPU = Target(kind="opencl", platform="Some Vendor", name="GPU 3")


def test_what_names_the_work_is_kept_and_quoted() -> None:
    options = Options(model="net.onnx", input=("x=1x3",), db="my runs.db")
    assert options.command("show") == "stridesmith show --model net.onnx --input x=1x3 --db 'my runs.db'"


def test_a_name_that_is_no_utf_8_is_quoted_as_bash_reads_it() -> None:
    """A shell that reads the hint hands on the same bytes."""
    options = Options(script=os.fsdecode(b"it's caf\xe9.py"))
    assert options.command() == r"stridesmith --script $'it\'s caf\xe9.py'"
    read = subprocess.run(["bash", "-c", f"printf %s {options.command().split(' ', 2)[2]}"], capture_output=True).stdout
    assert read == b"it's caf\xe9.py"


def test_a_model_without_fewer_multiplications_is_another_one() -> None:
    assert Options(model="net.onnx", winograd=False).command() == "stridesmith --model net.onnx --no-winograd"


@pytest.mark.parametrize(
    ("db", "shown"),
    [
        ("runs/x.db", "runs/x.db"),
        ("postgresql://me@host:5433/runs?application_name=a", "'postgresql://me@host:5433/runs?application_name=a'"),
        ("postgresql://me:s%40cret@host:5433/runs", "'postgresql://me:***@host:5433/runs'"),
        ("postgresql://me:se/cret@host:port/runs", "'postgresql://me:***@host:port/runs'"),
        ("postgresql://me:s@cret@host/runs", "'postgresql://me:***@host/runs'"),
    ],
)
def test_a_password_is_not_repeated(db: str, shown: str) -> None:
    """The message that names the next command may end up in a log; whoever pastes it writes the password again."""
    line = Options(workload="matmul", db=db).command()
    assert line == f"stridesmith --workload matmul --db {shown}" and "cret" not in line


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (discover("cpu"), "--target cpu"),
        (replace(discover("cpu"), threads=77), "--target cpu --threads 77"),
        (GPU, "--target 'opencl:Some Vendor:GPU 3'"),
    ],
)
def test_a_task_is_named_with_its_device(target: Target, words: str) -> None:
    """Of several OpenCL devices the one that is meant; threads where they are not those that a run takes by itself."""
    work = workload("matmul", m=3)
    line = options_of(work, target, interface_of(work), None).command()
    assert line == f"stridesmith --workload matmul --shape m=3 {words}"
    assert options_of(work, target, interface_of(work), "x.db").command() == f"{line} --db x.db"
