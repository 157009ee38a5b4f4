"""The bounds above which Winograd's convolutions pay follow from what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import winograd

from stridesmith.models.winograd import WORTH, WORTH_UNCACHED

ROWS = json.loads((Path(winograd.__file__).parent / "winograd.json").read_text())


def test_the_bounds_are_the_fit() -> None:
    """The constants of the package are what the command prints."""
    assert round(winograd.fitted(ROWS), 1) == WORTH
    assert round(winograd.fitted_uncached(ROWS), 1) == WORTH_UNCACHED


def test_what_is_counted_is_as_stored() -> None:
    """Multiplications and elements follow from the shape."""
    assert {tuple(row["shape"]) for row in ROWS} >= {*winograd.SHAPES}
    for row in ROWS:
        counted = winograd.counted(winograd.network_of(*row["shape"]))
        assert counted == pytest.approx({name: row[name] for name in counted})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "x".join(map(str, row["shape"])))
def test_no_shape_that_is_transformed_loses(row: winograd.Row) -> None:
    """Within the caches each gains; what comes from memory may be left as it is although it would gain a little."""
    conv = winograd.convolution_of(winograd.network_of(*row["shape"]))
    if conv.pays(WORTH, row["cache"]):
        assert row["ratio"] >= (winograd.GAIN if winograd.is_cached(row) else 1)


@pytest.mark.parametrize("shape", winograd.LONG, ids=lambda shape: "x".join(map(str, shape)))
def test_rows_and_spectrograms_are_convolutions_of_three_taps(shape: tuple[int, ...]) -> None:
    """What `--out` measures is what networks have."""
    conv = winograd.convolution_of(winograd.network_of(*shape))
    assert len(conv.windows) == len(shape) - 3


def test_elements_that_come_from_memory_cost_more_multiplications() -> None:
    """128 rows of 64 channels and 1000 points save 16 for each of 33 million elements: not enough, nor in any rows."""
    conv = winograd.convolution_of(winograd.network_of(128, 64, 64, 1000))
    assert WORTH < conv.saved < WORTH_UNCACHED
    assert conv.pays(WORTH, cache=np.inf)
    assert not conv.pays(WORTH, cache=1e9) and not conv.pays(WORTH, cache=32 << 20)
    image = winograd.convolution_of(winograd.network_of(1, 64, 64, 56, 56))
    assert image.pays(WORTH, cache=32 << 20) and not image.pays(WORTH, cache=1 << 20)
    wide = winograd.convolution_of(winograd.network_of(1, 64, 64, 112, 112))
    assert 4 * wide.elements < 32 << 20 and not wide.pays(WORTH, cache=32 << 20)
