"""The public names, and how a call of `tune` names its program."""

from __future__ import annotations

from typing import Any

import pytest

import stridesmith as ss
from stridesmith.errors import UsageError
from stridesmith.search import tuner

SCRIPT = """
@T.prim_func
def twice(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings of every run that was asked for."""
    found: list[Any] = []
    monkeypatch.setattr(tuner, "tune", lambda settings, emit, generate: found.append(settings))
    return found


@pytest.mark.parametrize("name", ss.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """`from stridesmith import NAME` works for each of them, and `dir` shows it."""
    assert getattr(ss, name) is not None
    assert name in dir(ss)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """`hasattr` and tab completion behave."""
    assert not hasattr(ss, "nonsense")


def test_a_workload_keeps_its_parameters(asked: list[Any]) -> None:
    """A library workload is named, with every parameter and its dtype."""
    work = ss.workload("matmul", m=3, dtype="float64")
    ss.tune(work, target="opencl", seconds=5, interface={"b": "free"})
    (settings,) = asked
    assert (settings.workload, settings.dtype, settings.target) == ("matmul", "float64", "opencl")
    assert settings.params == dict(work.shape) and settings.params["m"] == 3
    assert settings.interface == {"b": "free"}
    with pytest.raises(UsageError, match="has dtype float64 already"):
        ss.tune(work, dtype="float32")


def test_a_program_is_its_text(asked: list[Any]) -> None:
    """A function, and a workload made of one, are tuned as scripts."""
    func = ss.parse(SCRIPT)
    ss.tune(func)
    ss.tune(ss.from_func(func))
    assert [settings.script for settings in asked] == [func.script()] * 2


def test_a_wrong_option_names_the_nearest() -> None:
    """Nothing is started for an option that does not exist."""
    with pytest.raises(UsageError, match="did you mean 'trials'"):
        ss.tune("matmul", trial=3)


def test_a_built_program_is_called_with_arrays() -> None:
    """`ss.build` compiles a user's program as it is."""
    import numpy as np

    array = np.arange(8, dtype="float32")
    np.testing.assert_array_equal(ss.build(ss.parse(SCRIPT), "cpu")(array), 2 * array)
