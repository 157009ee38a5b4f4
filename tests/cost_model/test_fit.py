"""The fit of the weights: it finds what made the latencies, and makes the committed weights from their data."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from stridesmith.configs import load
from stridesmith.cost_model.calibration import Calibration, Machine, Timed
from stridesmith.cost_model.fit import estimates, fit, held_back, loss, quality
from stridesmith.cost_model.prior import COLUMNS
from stridesmith.cost_model.weights import WarpWeights, Weights, classes, start_of

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
START = classes()["start"].weights
FITTED = sorted(name for name, machines in classes().items() if machines.data)
EQUAL = 0.02  # of a weight: the fit's steps end when they gain little, and sums are not the same on all processors


def made_up(weights: Weights, kernels: int = 25, shapes: int = 40, noise: float = 0.0) -> Calibration:
    """Kernels whose latencies are what the weights estimate, times a factor of each shape, and noise."""
    rng = np.random.default_rng(0)
    count = kernels * shapes
    columns = {name: rng.uniform(0, 0.5, count) for name in COLUMNS}
    columns |= {name: rng.uniform(1, 5, count) for name in ("accumulators", "body", "reduce_trips", "steps")}
    columns |= {name: np.full(count, -20.0) for name in COLUMNS if name.startswith(("copied:", "meets"))}
    columns["branches"] = rng.uniform(0, 3, count)
    columns["lanes_used"] = rng.choice([0.5, 1.0], count)
    shape = np.repeat(np.arange(shapes), kernels)
    data = Calibration.of(
        Machine("none", 8.0), {f"s{n}": "g" for n in range(shapes)}, [Timed(f"s{n}", 1.0, "drawn") for n in shape],
        [(n, 100.0, {name: float(values[n]) for name, values in columns.items()}) for n in range(count)], COLUMNS,
    )  # fmt: skip
    times = np.exp2(estimates(data, weights) + shape + noise * rng.normal(size=count))
    return dataclasses.replace(data, latency=times.astype(np.float32))


def test_the_fit_finds_the_weights_that_made_the_latencies() -> None:
    """From other weights it comes back to those that count in the data, but for offsets of the shapes."""
    true = dataclasses.replace(START, load_contiguous=1.6, octaves_branch=0.9, narrow=0.5)
    data = made_up(true)
    found = fit(data, START)
    left = estimates(data, found) - estimates(data, true)
    assert np.std(left) < 0.25 * np.std(estimates(data, START) - estimates(data, true))
    assert found.octaves_branch == pytest.approx(0.9, rel=0.15) and found.narrow == pytest.approx(0.5, rel=0.15)


def test_weights_that_the_data_says_nothing_about_stay() -> None:
    """Nothing was copied or in an image: what that costs is as it was at the start."""
    found = fit(made_up(dataclasses.replace(START, load_shifted=2.0)), START)
    assert (found.copy_plain, found.multiply_add) == (START.copy_plain, START.multiply_add)


def test_a_few_kernels_that_nothing_explains_do_not_decide() -> None:
    """One of twenty taking thirty times as long changes what is found by little."""
    true = dataclasses.replace(START, load_contiguous=1.6, octaves_branch=0.9)
    data = made_up(true, noise=0.02)
    odd = data.latency.copy()
    odd[::20] *= 30
    found = fit(dataclasses.replace(data, latency=odd), START)
    assert np.std(estimates(data, found) - estimates(data, true)) < 0.06


def test_the_weight_of_widened_bytes_is_that_of_their_kernels() -> None:
    """Kernels of bytes, with and without dot products, say what widening costs, where nothing else knows of it."""
    data = Calibration.load(BENCHMARKS / "calibration" / "znver4-bytes.npz")
    beside = classes()["znver4"].weights
    assert isinstance(beside, Weights) and set(np.unique(data.columns["widened"])) == {0.0, 1.0}
    assert fit(data, beside).widened == pytest.approx(beside.widened, rel=EQUAL)
    without = quality(data, dataclasses.replace(beside, widened=1e-3))
    found = quality(data, beside)
    assert np.mean([q.correlation for q in found.values()]) > np.mean([q.correlation for q in without.values()]) + 0.02


def test_the_weight_of_conversions_is_that_of_their_kernels() -> None:
    """Kernels of bfloat16, with and without dot products, say what a conversion costs: nothing else knows of it."""
    data = Calibration.load(BENCHMARKS / "calibration" / "znver4-bfloat16.npz")
    beside = classes()["znver4"].weights
    assert isinstance(beside, Weights) and 0.2 < np.mean(data.columns["converted"] > 0) < 0.8
    losses = [loss(data, dataclasses.replace(beside, converted=beside.converted * f)) for f in (0.8, 1.0, 1.25)]
    assert losses[1] == min(losses)
    without = quality(data, dataclasses.replace(beside, converted=1e-3))
    found = quality(data, beside)
    assert np.mean([q.correlation for q in found.values()]) > np.mean([q.correlation for q in without.values()]) + 0.015
    assert np.mean([q.among_fast for q in found.values()]) > np.mean([q.among_fast for q in without.values()]) + 0.03


def test_kernels_of_floats_say_nothing_about_bytes() -> None:
    """Older files lack the column, which is 0 in them, so that the weight stays where a fit begins."""
    data = Calibration.load(BENCHMARKS / "calibration" / "avx2.npz")
    assert not data.columns["widened"].any() and not data.columns["converted"].any()


def test_shapes_are_held_back_whole() -> None:
    """A shape of which nobody else knows what made it slow is not explained by weights that were fitted without it."""
    data = made_up(START, shapes=12)
    last = data.shape == 11
    own = np.random.default_rng(1).uniform(1, 9, int(last.sum()))
    changed = data.latency.copy()
    changed[last] = own
    found = held_back(dataclasses.replace(data, latency=changed), START, folds=4)
    assert len(found) == 12 and abs(found["s11"].correlation) < 0.5
    assert all(found[f"s{n}"].correlation > 0.95 for n in range(11))


def test_quality_by_hand() -> None:
    """The estimate's first choice takes twice the best; among its first four is the best."""
    data = made_up(START, kernels=6, shapes=1)
    order = np.argsort(estimates(data, START))
    latency = np.empty(6, np.float32)
    latency[order] = [4, 2, 8, 16, 32, 64]
    found = quality(dataclasses.replace(data, latency=latency), START)["s0"]
    assert found.regrets == (2.0, 1.0, 1.0)
    assert found.correlation == pytest.approx(1 - 6 * 2 / (6 * 35))
    assert found.among_fast == pytest.approx(0.5)
    assert found.among_first == found.correlation, "there are fewer than 16"


def test_data_survives_a_file(tmp_path: Path) -> None:
    """What is saved is what is loaded, by name, and nothing of it is pickled."""
    data = made_up(START, kernels=3, shapes=2)
    data.save(tmp_path / "x.npz")
    back = Calibration.load(tmp_path / "x.npz")
    assert (back.machine, back.lanes, back.shapes, back.origin) == (data.machine, 8.0, data.shapes, data.origin)
    np.testing.assert_array_equal(estimates(back, START), estimates(data, START))
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)


def test_shapes_are_added_to_data() -> None:
    """What is estimated and what was measured of each shape is as it was; a shape that is there is refused."""
    data, more = made_up(START, kernels=3, shapes=2), made_up(START, kernels=4, shapes=3)
    more = dataclasses.replace(more, shapes=("t0", "t1", "t2"))
    both = data.with_more(more)
    assert (both.shapes, len(both.latency)) == (("s0", "s1", "t0", "t1", "t2"), 18)
    np.testing.assert_array_equal(both.only([3]).latency, more.only([1]).latency)
    np.testing.assert_array_equal(estimates(both.only([2, 3, 4]), START), estimates(more, START))
    with pytest.raises(ValueError, match="but the shape s0 is in both"):
        data.with_more(data)
    with pytest.raises(ValueError, match="one machine has 8 lanes and 1 units, the other 8 lanes and 4 units"):
        data.with_more(dataclasses.replace(more, units=4.0))


def test_data_without_a_column_that_the_estimate_reads_is_refused(tmp_path: Path) -> None:
    """Columns go by name, so that data from before a change of columns is noticed."""
    data = made_up(START, kernels=3, shapes=2)
    less = {name: values for name, values in data.columns.items() if name != "spill"}
    dataclasses.replace(data, columns=less).save(tmp_path / "x.npz")
    with pytest.raises(ValueError, match=r"x\.npz lacks the column spill, .* collect the kernels again"):
        Calibration.load(tmp_path / "x.npz")
    data.save(tmp_path / "x.npz")
    with pytest.raises(ValueError, match=r"x\.npz lacks the columns .*warp:bytes"):
        Calibration.load(tmp_path / "x.npz", WarpWeights)


def committed(name: str) -> Calibration:
    path = BENCHMARKS / "calibration" / classes()[name].data
    if not BENCHMARKS.is_dir():
        pytest.skip("the tests run without their checkout")
    return Calibration.load(path, type(classes()[name].weights))


@pytest.mark.parametrize("name", FITTED)
def test_the_committed_data_gives_the_committed_weights(name: str) -> None:
    """Each class that names its data has the weights that the fit makes of it."""
    found = dataclasses.asdict(fit(committed(name), start_of(type(classes()[name].weights))))
    assert found == pytest.approx(dataclasses.asdict(classes()[name].weights), rel=EQUAL)


@pytest.mark.parametrize("name", FITTED)
def test_fitted_weights_order_kernels_of_other_shapes_better(name: str) -> None:
    """On shapes that were held back, correlation among the faster half is higher than with the weights before.

    The weights with which the fit for warps begins were rounded from fits to the same kernels, and may be as good, as
    may be those of CPUs for OpenCL on them.
    """
    data, slack = committed(name), 0.025 * name.startswith("opencl")
    start = start_of(type(classes()[name].weights))
    before, after = quality(data, start), held_back(data, start, folds=3)
    fast, correlation = (
        [np.mean([getattr(q, part) for q in found.values()]) for found in (before, after)]
        for part in ("among_fast", "correlation")
    )
    assert fast[1] > fast[0] - slack
    assert correlation[1] > correlation[0] - 0.01 - slack


def test_shapes_of_the_calibration_are_in_no_suite() -> None:
    """What the estimate is judged by was not seen by its fit."""
    if not BENCHMARKS.is_dir():
        pytest.skip("the tests run without their checkout")
    fitted = [(e.work.name, e.work.params) for e in load.config(BENCHMARKS / "calibration.toml").entries]
    in_suites = [(e.work.name, e.work.params) for name in load.suites() for e in load.suite(name).entries]
    assert len(fitted) >= 35
    assert not [item for item in fitted if item in in_suites]
