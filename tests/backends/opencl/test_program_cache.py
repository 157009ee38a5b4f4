"""What a driver compiled once is read again, by this device with this driver alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from opencl_programs import GENERIC, bound, device, lowered, needs_device

from stridesmith.backends.opencl import program_cache
from stridesmith.ir.expr import Buffer, Var
from stridesmith.ir.stmt import Store

OPTIONS = ("-cl-std=CL1.2",)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name, *author: str(tmp_path / name))


def test_what_is_stored_comes_back() -> None:
    """For the same source, options and device."""
    program_cache.store("source", OPTIONS, GENERIC, "binary")
    assert program_cache.stored("source", OPTIONS, GENERIC) == "binary"


@pytest.mark.parametrize("changed", ["name", "platform", "versions", "features"])
def test_another_device_or_driver_has_files_of_its_own(changed: str) -> None:
    """Nothing that one driver compiled is given to another one, nor to another version of it."""
    program_cache.store("source", OPTIONS, GENERIC, "binary")
    assert program_cache.stored("source", OPTIONS, replace(GENERIC, **{changed: "other"})) is None


def test_settings_of_pocl_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that changes how PoCL compiles does not meet what was compiled without it."""
    program_cache.store("source", OPTIONS, GENERIC, "binary")
    monkeypatch.setenv("POCL_WORK_GROUP_METHOD", "loops")
    assert program_cache.stored("source", OPTIONS, GENERIC) is None


def test_a_driver_of_another_environment_has_files_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL of one virtual environment refuses what that of another has compiled, though both are of one version."""
    program_cache.store("source", OPTIONS, GENERIC, "binary")
    monkeypatch.setattr("sys.prefix", "/elsewhere/.venv")
    assert program_cache.stored("source", OPTIONS, GENERIC) is None


def test_another_source_or_option_is_compiled() -> None:
    """The text decides."""
    program_cache.store("source", OPTIONS, GENERIC, "binary")
    assert program_cache.stored("source ", OPTIONS, GENERIC) is None
    assert program_cache.stored("source", (), GENERIC) is None


@needs_device
def test_a_program_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second build of the same program asks the driver for nothing, and its kernel runs.

    It has two groups: what PoCL makes of a single one is only there after the first call of the whole kernel.
    """
    from stridesmith.backends.opencl import runtime

    target, i = device(), Var("i")
    a, b = Buffer("A", (8,)), Buffer("B", (8,))
    program = lowered(bound(i, 8, "blockIdx.x", Store(b, (i,), a[i] * 2.0 + 0.625)), a, b)
    assert target is not None
    first = runtime.compile_opencl(program, target)
    with monkeypatch.context() as patch:
        patch.setattr(runtime.cl, "Program", lambda *args: pytest.fail("compiled again"))
        second = runtime.compile_opencl(program, target)
    assert second == first
    kernel = runtime.OpenCLExecutable(second).bind()
    kernel.write(0, np.arange(8, dtype=np.float32))
    kernel.run()
    assert kernel.read(1).tolist() == [2.0 * k + 0.625 for k in range(8)]
