"""Rank metrics: agreement of a predicted with a measured order."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.cost_model.metrics import kendall, ranks, spearman, top_k_recall


def test_ranks_share_ties():
    """Equal values get the mean of the ranks they take up."""
    assert ranks([30, 10, 10, 20]).tolist() == [3, 0.5, 0.5, 2]


@pytest.mark.parametrize("metric", [spearman, kendall])
def test_correlations_are_one_for_the_same_order_and_minus_one_for_the_reverse(metric):
    """Only the order counts, not the values."""
    values = np.array([1.0, 5.0, 2.0, 100.0])
    assert metric(values, np.log(values)) == pytest.approx(1)
    assert metric(values, -values) == pytest.approx(-1)


def test_correlations_agree_with_known_values_with_ties():
    """Against the textbook definitions, ties included (the values are scipy's)."""
    a, b = [1, 2, 2, 3, 5, 4], [2, 1, 4, 4, 5, 3]
    assert spearman(a, b) == pytest.approx(0.6617647058823529)
    assert kendall(a, b) == pytest.approx(0.5)


@pytest.mark.parametrize("metric", [spearman, kendall])
def test_correlations_are_zero_where_undefined(metric):
    """No order on one side, or too few values, is no correlation."""
    assert metric([1, 1, 1], [1, 2, 3]) == 0
    assert metric([1], [2]) == 0
    assert metric([], []) == 0


def test_top_k_recall_counts_the_best_that_were_found():
    """Of the two best measured, one is among the two best predicted."""
    assert top_k_recall([4, 3, 2, 1], [4, 1, 3, 2], k=2) == 0.5
    assert top_k_recall([1, 2], [1, 2], k=9) == 1
    assert top_k_recall([], [], k=2) == 0


def test_metrics_refuse_lists_of_different_length():
    """The sentence gives both shapes."""
    with pytest.raises(ValueError, match=r"one length, but got \(2,\) and \(1,\)"):
        spearman([1, 2], [1])
    with pytest.raises(ValueError, match=r"`k >= 1` must hold, but got k=0"):
        top_k_recall([1], [1], k=0)
