"""Features: columns by name, the same for a whole space, arithmetic that can be checked by hand."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
import synthetic_space as synthetic

from stridesmith.cost_model.features import ESTIMATE, FeatureMap, features

DECISIONS = [d.name.split("/")[1] for d in synthetic.sketch("k").decisions]


def candidate(**labels: str) -> np.ndarray:
    """One candidate by labels, the others at a plain choice: 8 lanes, 4 x 16, overcomputed, packed."""
    plain = {"lane": "8", "rows": "4", "cols": "16", "depth": "100", "layout:B": "packed"}
    plain |= {"boundary:s0": "overcompute", "boundary:s1": "overcompute", "unroll": "1", "place:A": "inline"}
    chosen = plain | {key.replace("__", ":"): value for key, value in labels.items()}
    decisions = synthetic.sketch("k").decisions
    return np.array([[d.labels.index(chosen[name]) for d, name in zip(decisions, DECISIONS, strict=True)]])


def value(column: str, target=synthetic.TARGET, **labels: str) -> float:
    space = FeatureMap((synthetic.sketch("k"),), target)
    return float(space.matrix(0, candidate(**labels))[0, space.columns.index(column)])


def random_population(sketch, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(len(d.labels), size=count) for d in sketch.decisions], axis=1)


def test_every_sketch_has_the_same_columns_and_lacks_are_nan():
    """A sketch without a decision has NaN in its column, and a one-hot column tells the sketches apart."""
    full = synthetic.sketch("a")
    short = dataclasses.replace(synthetic.sketch("b"), decisions=full.decisions[:-2])
    space = FeatureMap((full, short), synthetic.TARGET)
    first = space.matrix(0, np.zeros((3, 9), np.int64))
    second = space.matrix(1, np.zeros((2, 7), np.int64))
    assert first.shape == (3, len(space.columns)) and second.shape == (2, len(space.columns))
    assert first.dtype == np.float32
    place = space.columns.index("place:A")
    assert not np.isnan(first[:, place]).any() and np.isnan(second[:, place]).all()
    assert first[0, -2:].tolist() == [1, 0] and second[0, -2:].tolist() == [0, 1]


def test_a_row_does_not_depend_on_its_population():
    """Features of a candidate are the same alone and in the middle of twenty thousand others."""
    sketch = synthetic.sketch("k")
    rows = random_population(sketch, 20_000)
    together = features(sketch, rows, synthetic.TARGET)
    for number in (0, 8191, 8192, 19_999):
        alone = features(sketch, rows[number : number + 1], synthetic.TARGET)
        np.testing.assert_array_equal(together[number : number + 1], alone)


def test_raw_sizes_are_logarithms_and_flags_are_as_given():
    """`tile:s0:reg` of 8 rows is 3; the boundary's number stays."""
    assert value("tile:s0:reg", rows="8") == 3
    assert value("boundary:s0", boundary__s0="peel") == 1


def test_register_tile_by_hand():
    """4 x 16 with 8 lanes: 8 accumulators, 4 broadcasts and 2 vectors loaded for 8 multiply-adds."""
    assert value("accumulators") == 3
    assert value("loads_per_fma") == pytest.approx((4 + 2) / 8)
    assert value("pressure") == pytest.approx((8 + 1 + 2) / 16)
    assert value("spill") == 0
    assert value("spill", rows="14", cols="32") > 1


def test_a_strided_vector_costs_more_than_a_contiguous_one():
    """A's rows are not contiguous along the lanes of C's columns: they are broadcast; B is contiguous."""
    assert value("access:in0") == 0
    assert value("access:in1") == 1
    transposed = synthetic.Operand("B", "float32", (129, 131), (((1, 1),), ((2, 1),)))
    sketch = synthetic.sketch("k")
    sketch = dataclasses.replace(sketch, operands=(sketch.operands[0], transposed, sketch.operands[2]))
    space = FeatureMap((sketch,), synthetic.TARGET)
    access = space.columns.index("access:in1")
    assert space.matrix(0, candidate(layout__B="identity"))[0, access] == 2
    assert space.matrix(0, candidate(layout__B="packed"))[0, access] == 1


def test_waste_counts_what_is_computed_beyond_the_edge():
    """127 rows by 4 are 128 when computed over; branching and peeling compute 127 but branch or add a tail."""
    assert value("waste:s0") == pytest.approx(128 / 127)
    assert value("waste:s0", boundary__s0="branch") == 1
    assert value("branches", boundary__s0="branch") == value("branches") + 1
    assert value("tails", boundary__s0="peel") > value("tails")
    assert value("tail:s0") == pytest.approx(127 % 4 / 4)


def test_footprints_by_hand():
    """One panel touches 4 x 100 of A, 100 x 16 of B and 4 x 16 of C, 4 bytes each."""
    sizes = [2 ** value(f"bytes:op{number}:panel") for number in range(3)]
    assert sizes == pytest.approx([4 * 100 * 4, 100 * 16 * 4, 4 * 16 * 4], rel=1e-4)


def test_a_window_touches_its_halo():
    """Three taps over four outputs at stride 2 read nine elements, as far as there are any."""
    axes = (synthetic.Axis("s0", 50, "spatial"), synthetic.Axis("r0", 3, "reduce"))
    operands = (
        synthetic.Operand("X", "float32", (101,), (((0, 2), (1, 1)),)),
        synthetic.Operand("Y", "float32", (50,), (((0, 1),),), True),
    )
    decisions = (synthetic.sizes("Y/rows", "tile:s0:reg", (4, 64)),)
    sketch = synthetic.Sketch("k", decisions, axes, operands)
    space = FeatureMap((sketch,), synthetic.TARGET)
    sizes = 2 ** space.matrix(0, np.array([[0], [1]]))[:, space.columns.index("bytes:op0:panel")] / 4
    assert sizes.tolist() == pytest.approx([9, 101], rel=1e-4)


def test_the_estimate_prefers_a_sound_register_tile():
    """A 4 x 16 tile is better than a single vector, than one that spills, and than branches in the inner loop."""
    good = value(ESTIMATE)
    assert good < value(ESTIMATE, rows="1", cols="8")
    assert good < value(ESTIMATE, rows="14", cols="32")
    assert good < value(ESTIMATE, boundary__s0="branch", boundary__s1="branch")
    assert good < value(ESTIMATE, lane="4")


def test_a_population_of_the_wrong_width_is_refused():
    """The sentence names the sketch and the expected shape."""
    with pytest.raises(ValueError, match=r"sketch `k` must have the shape \(N, 9\).*got \(2, 3\)"):
        features(synthetic.sketch("k"), np.zeros((2, 3), np.int64), synthetic.TARGET)


def test_populations_are_cheap():
    """Twenty thousand candidates take well under a second (the goal is ten times faster: `benchmarks/ranking.py`)."""
    sketch = synthetic.sketch("k")
    rows = random_population(sketch, 20_000)
    space = FeatureMap((sketch,), synthetic.TARGET)
    start = time.perf_counter()
    space.matrix(0, rows)
    assert time.perf_counter() - start < 1.0
