"""The public names, and how a call of `tune` names its program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.errors import UsageError
from stridesmith.search.tuning import ranged
from stridesmith.search.tuning.settings import resolve

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
    monkeypatch.setattr(ranged, "tune", lambda settings, emit, generate: found.append(settings))
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
        wrong: dict[str, Any] = {"trial": 3}
        ss.tune("matmul", **wrong)


def test_a_target_is_a_class_that_takes_its_text() -> None:
    """`ss.Target` finds devices by text, describes them by facts, and is what `isinstance` asks for."""
    found = ss.Target("cpu", threads=1)
    assert isinstance(ss.Target, type) and type(found) is ss.Target
    assert (found.kind, found.threads) == ("cpu", 1) and found.vector_bits > 0
    described = ss.Target(kind="opencl", name="Some GPU", vector_bits=512)
    assert (described.name, described.vector_bits, described.threads) == ("Some GPU", 512, 1)
    assert ss.Target.from_json(found.to_json()) == found
    with pytest.raises(UsageError, match="unknown target"):
        ss.Target("abacus")


def test_a_target_stands_wherever_its_text_does(asked: list[Any], tmp_path: Path) -> None:
    """`tune`, `load`, `build` and `lower` take a `Target` as well as its text."""
    target = ss.Target("cpu", threads=1)
    ss.tune("matmul", target)
    assert asked[0].target is target
    assert resolve(asked[0]).target is target
    assert resolve(asked[0].model_copy(update={"target": "cpu", "threads": 1})).target == target
    func = ss.parse(SCRIPT)
    assert ss.lower(func, ss.Target("cpu")) == ss.lower(func, "cpu")
    array = np.arange(8, dtype="float32")
    np.testing.assert_array_equal(ss.build(func, target)(array), 2 * array)
    for given in (target, "cpu"):
        with pytest.raises(ss.NoRecord, match=r"--target cpu( --threads 1)? --db"):
            ss.load(ss.workload("matmul"), given, db=str(tmp_path / "none.db"))


def test_rules_of_ones_own_come_from_a_public_place(asked: list[Any]) -> None:
    """`ss.RULES`, `ss.scripted` and `ss.generate` are all that a rule needs."""

    def as_it_is(func: ss.PrimFunc, target: ss.Target, interface: Any) -> Any:
        yield ss.scripted("mine", func, target, lambda sch, rows: None, rows=(1, 2))

    space = ss.generate(ss.parse(SCRIPT), ss.Target("cpu"), rules=[*ss.RULES, as_it_is])
    assert space.sketches[-1].name == "mine" and len(space.sketches) > 1
    with pytest.raises(UsageError, match="not both"):
        ss.tune("matmul", rules=[as_it_is], generate=lambda *_: space)


def test_a_built_program_is_called_with_arrays() -> None:
    """`ss.build` compiles a user's program as it is."""
    array = np.arange(8, dtype="float32")
    np.testing.assert_array_equal(ss.build(ss.parse(SCRIPT), "cpu")(array), 2 * array)
