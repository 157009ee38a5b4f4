"""The ranker: it learns an order from few samples, and keeps groups apart."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic_space as synthetic

from stridesmith.cost_model.features import FeatureMap
from stridesmith.cost_model.metrics import spearman
from stridesmith.cost_model.model import Ranker


def measured(count: int, seed: int = 0):
    """Features and latencies of random candidates on a made-up device."""
    space = synthetic.space(1)
    device = synthetic.Device(space, seed)
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(len(d.labels), size=count) for d in space.sketches[0].decisions], axis=1)
    times = np.array([device(0, row) for row in rows.tolist()])
    columns = FeatureMap(space.sketches, space.target)
    return columns.columns, columns.matrix(0, rows), times


def test_it_orders_candidates_that_it_has_not_seen():
    """Trained on 64, the rank correlation on 500 others is at least a half, in the mean of three devices."""
    scores = []
    for seed in range(3):
        columns, features, times = measured(564, seed)
        ranker = Ranker(columns)
        ranker.fit(features[:64], times[:64])
        scores.append(spearman(ranker.predict(features[64:]), -times[64:]))
    assert np.mean(scores) > 0.5


def test_more_data_ranks_better():
    """From 16 to 256 samples the correlation rises."""
    columns, features, times = measured(1000)
    scores = []
    for count in (16, 256):
        ranker = Ranker(columns)
        ranker.fit(features[:count], times[:count])
        scores.append(spearman(ranker.predict(features[256:]), -times[256:]))
    assert scores[1] > scores[0] > 0


def test_untrained_it_follows_the_estimate():
    """Without data the order is that of the hand-written estimate."""
    columns, features, _ = measured(50)
    ranker = Ranker(columns)
    assert not ranker.trained
    np.testing.assert_allclose(ranker.predict(features), -features[:, columns.index("estimate")], rtol=1e-6)


def test_the_unit_of_a_group_does_not_matter():
    """A second workload measured in other units a thousand times larger leaves the ranking as it was."""
    columns, features, times = measured(128)
    groups = ["a"] * 64 + ["b"] * 64
    plain, scaled = Ranker(columns), Ranker(columns)
    plain.fit(features, times, groups)
    scaled.fit(features, np.concatenate([times[:64], 1000 * times[64:]]), groups)
    np.testing.assert_allclose(plain.predict(features), scaled.predict(features), atol=1e-3)


def test_failures_count_as_slow():
    """Candidates whose latency is infinite are ranked behind, and alone they train nothing."""
    columns, features, times = measured(200)
    unrolled = features[:, columns.index("tile:r0:reg")] == 3
    failing = np.where(unrolled, np.inf, times)
    ranker = Ranker(columns)
    ranker.fit(features, failing)
    scores = ranker.predict(features)
    assert scores[unrolled].mean() < scores[~unrolled].mean() - 1
    ranker.fit(features[:4], [np.inf] * 4)
    assert not ranker.trained


def test_spread_is_larger_where_there_is_no_data():
    """The ensembles agree more on what they were trained on than on what they never saw."""
    columns, features, times = measured(600)
    seen = features[:, columns.index("tile:s0:block")] == 0
    ranker = Ranker(columns)
    ranker.fit(features[seen][:96], times[seen][:96])
    _, spread = ranker.predict_spread(features)
    assert spread[~seen].mean() > spread[seen][:96].mean() > 0


def test_training_is_deterministic_by_seed():
    """Two rankers of one seed agree to the bit; another seed differs."""
    columns, features, times = measured(64)
    rankers = [Ranker(columns, seed=seed) for seed in (1, 1, 2)]
    for ranker in rankers:
        ranker.fit(features, times)
    first, second, other = (ranker.predict(features) for ranker in rankers)
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_bad_arguments_are_refused():
    """Shapes and options are checked at the door."""
    columns, features, times = measured(8)
    with pytest.raises(ValueError, match="`nthread, bags, rounds >= 1` must hold"):
        Ranker(columns, nthread=0)
    with pytest.raises(ValueError, match="one latency and one group per row"):
        Ranker(columns).fit(features, times[:3])
    with pytest.raises(ValueError, match="features must have the shape"):
        Ranker(columns).predict(features[:, :2])
