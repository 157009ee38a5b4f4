"""The bound above which Winograd's convolutions pay follows from what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import winograd

from stridesmith.models.winograd import WORTH

ROWS = json.loads((Path(winograd.__file__).parent / "winograd.json").read_text())


def test_the_bound_is_the_fit() -> None:
    assert round(winograd.fitted(ROWS), 1) == WORTH


def test_every_shape_above_gains_and_its_saving_is_as_stored() -> None:
    assert {tuple(row["shape"]) for row in ROWS} == {*winograd.SHAPES}
    for row in ROWS:
        assert winograd.saved(winograd.network_of(*row["shape"])) == pytest.approx(row["saved"])
        assert row["ratio"] >= winograd.GAIN or row["saved"] < WORTH
