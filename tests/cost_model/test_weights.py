"""Weights of the estimate: data for each class of machines, checked where it is read."""

from __future__ import annotations

import dataclasses
from typing import cast

import numpy as np
import pytest

from stridesmith.configs import load
from stridesmith.cost_model import prior, warps
from stridesmith.cost_model.weights import WarpWeights, Weights, class_of, classes, machines_from, names_of, weights_of
from stridesmith.ir.target import Target


def entry(**changed: object) -> dict[str, object]:
    """An entry of the file with some weights changed; None leaves one out."""
    weights = dataclasses.asdict(classes()["avx2"].weights) | changed
    return {"source": "made up", "weights": {name: value for name, value in weights.items() if value is not None}}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("cpu-avx2", "avx2"),
        ("cpu-avx512", "avx512"),
        ("cpu-neon", "neon"),
        ("opencl-cpu", "opencl"),
        ("opencl-gpu", "opencl-warps"),
    ],
)
def test_each_shipped_target_has_a_class_of_its_own(target: str, expected: str) -> None:
    """The instruction set of a CPU decides, and of OpenCL devices whether they run work-items in step."""
    assert class_of(load.target(target)) == expected
    assert weights_of(load.target(target)) is classes()[expected].weights


def test_a_processor_that_splits_wide_vectors_has_a_class_of_its_own() -> None:
    """Half a vector takes about half the time on Zen 4, and about all of it where vectors are computed whole."""
    found = {cpu: class_of(Target(isa="avx512", cpu=cpu)) for cpu in ("znver4", "znver5", "skylake-avx512", "")}
    assert found == {"znver4": "znver4", "znver5": "avx512", "skylake-avx512": "avx512", "": "avx512"}
    assert class_of(Target(isa="avx2", cpu="znver4")) == "avx2"
    assert classes()["znver4"].weights.narrow < 0.7 < classes()["avx512"].weights.narrow


def test_an_instruction_set_without_an_entry_goes_with_avx2() -> None:
    """Narrower and unknown ones have weights, too."""
    assert {class_of(Target(isa=isa)) for isa in ("", "sse2", "avx", "riscv64")} == {"avx2"}


def test_every_class_says_where_its_weights_come_from() -> None:
    """A source in words stands beside the numbers."""
    assert set(classes()) == {"start", "start-warps", "avx2", "avx512", "znver4", "neon", "opencl", "opencl-warps"}
    assert all(len(item.source) > 20 for item in classes().values())


def test_neon_is_avx2_with_vectors_half_as_wide() -> None:
    """The entry that nobody measured follows from the other by the rule that its source states."""
    wide, narrow = (dataclasses.asdict(classes()[name].weights) for name in ("avx2", "neon"))
    halved = {"store_scattered", "odd", "lanewise", "l1_rate"}
    assert all(name in classes()["neon"].source for name in halved)
    assert narrow == pytest.approx({n: v / 2 if n in halved else v for n, v in wide.items()}, rel=0.01)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"turn": None}, "of the class `x` lack turn"),
        ({"tern": 1.0}, "of the class `x` have unknown ones: tern"),
        ({"turn": -1.0}, "`turn` of the class `x` must be a number above 0, but is -1.0"),
        ({"turn": True}, "`turn` .* but is True"),
        ({"turn": float("nan")}, "`turn` .* but is nan"),
        ({"turn": "1"}, "`turn` .* but is '1'"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(changed: dict[str, object], message: str) -> None:
    """What is missing, unknown or no number is said with the class and the weight."""
    with pytest.raises(ValueError, match=message):
        machines_from("x", entry(**changed))


def test_an_entry_without_a_source_is_refused() -> None:
    """Numbers of unknown origin are not taken."""
    with pytest.raises(ValueError, match="must say in words"):
        machines_from("x", {"weights": entry()["weights"]})


class Reads(dict[str, np.ndarray]):
    """Columns of zeros that remember which of them were read."""

    def __missing__(self, name: str) -> np.ndarray:
        self[name] = np.zeros(2, np.float32)
        return self[name]


def test_the_estimate_reads_the_columns_that_it_names() -> None:
    """What calibration data must have is what the formula reads, no more and no less."""
    columns = Reads(lanes_used=np.ones(2, np.float32))
    prior.estimate(columns, 8.0, classes()["avx2"].weights)
    assert set(columns) == set(prior.COLUMNS)


def test_the_formula_of_warps_reads_the_columns_that_it_names() -> None:
    """The same of devices that run work-items in step."""
    columns = Reads()
    warps.estimate(columns, 132.0, cast("WarpWeights", classes()["opencl-warps"].weights))
    assert set(columns) == set(warps.COLUMNS)


def test_every_weight_of_warps_counts() -> None:
    """The same of each of their weights."""
    rng = np.random.default_rng(0)
    columns = {name: rng.uniform(0, 6, 400).astype(np.float32) for name in warps.COLUMNS}
    plain = cast("WarpWeights", classes()["opencl-warps"].weights)
    before = warps.estimate(columns, 132.0, plain)
    for name in names_of(WarpWeights):
        other = dataclasses.replace(plain, **{name: 2 * getattr(plain, name)})
        assert (warps.estimate(columns, 132.0, other) != before).any(), name


def test_a_class_names_its_formula() -> None:
    """An entry of another formula has other weights, and an unknown formula is refused."""
    weights = dataclasses.asdict(classes()["opencl-warps"].weights)
    found = machines_from("x", {"source": "made up", "formula": "warps", "weights": weights})
    assert found.weights == WarpWeights(**weights)
    with pytest.raises(ValueError, match=r"of the class `x` lack converted, copy_far, .*multiply_add"):
        machines_from("x", {"source": "made up", "weights": weights})
    with pytest.raises(ValueError, match="the class `x` has the formula 'magic'; known are tiles, warps"):
        machines_from("x", {"source": "made up", "formula": "magic", "weights": weights})


def test_every_weight_counts() -> None:
    """Each weight changes the estimate of some candidate, so that none is a number without effect."""
    rng = np.random.default_rng(0)
    columns = {name: rng.uniform(0, 3, 4000).astype(np.float32) for name in prior.COLUMNS}
    columns["access:out"] = rng.choice(np.float32([0, 1, 2]), 4000)
    columns["body"] = rng.uniform(0, 12, 4000).astype(np.float32)
    columns["lanes_used"] = rng.choice(np.float32([0.5, 1]), 4000)
    columns["accumulators"] = rng.uniform(0, 6, 4000).astype(np.float32)
    for kind in ("broadcast", "contiguous", "shifted", "paired", "strided", "inlined"):
        columns[f"loads:{kind}"] = rng.uniform(0, 0.2, 4000).astype(np.float32)
    plain = classes()["avx2"].weights
    before = prior.estimate(columns, 8.0, plain)
    for name in names_of(Weights):
        other = dataclasses.replace(plain, **{name: 2 * getattr(plain, name)})
        assert (prior.estimate(columns, 8.0, other) != before).any(), name
