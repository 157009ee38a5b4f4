"""A ranker of candidates: small ensembles of boosted trees over features, trained on what was measured.

The label of a candidate is its base-2 log throughput relative to its group (one run on one device), so
that groups of different size and speed share one model.  What the hand-written estimate already explains is
taken out first, by as much as the data supports; the trees learn the rest.  Several ensembles, each on its own
sample of rows and columns, give a mean and a spread, which the search uses to explore.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .features import ESTIMATE

FAILED_PENALTY = 1.0  # a failed candidate counts as this many powers of two slower than the slowest measured


class Ranker:
    """Orders candidates of known features; larger predictions are faster candidates.

    `columns` names the features.  `nthread` is what training and prediction may use, `bags` the number of ensembles.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        nthread: int = 1,
        seed: int = 0,
        bags: int = 4,
        rounds: int = 40,
    ) -> None:
        if nthread < 1 or bags < 1 or rounds < 1:
            raise ValueError(f"`nthread, bags, rounds >= 1` must hold, but got {nthread}, {bags}, {rounds}")
        self.columns = tuple(columns)
        self.nthread, self.seed, self.bags, self.rounds = nthread, seed, bags, rounds
        self.slope = 1.0  # how far the estimate is trusted
        self._boosters: list[Any] = []

    @property
    def trained(self) -> bool:
        return bool(self._boosters)

    def fit(self, features: NDArray[np.float32], latencies: ArrayLike, groups: ArrayLike | None = None) -> None:
        """Train on candidates (N, F) with latencies (N,) in any unit, and groups (N,) of any labels.

        A latency that is not finite is a failed candidate, which counts as slower than every measured one of
        its group.  Groups without a measured candidate are left out; with none left, the ranker is untrained.
        """
        times = np.asarray(latencies, dtype=np.float64)
        names = np.zeros(len(times), np.int64) if groups is None else np.asarray(groups)
        group = np.unique(names, return_inverse=True)[1]
        self._check(features)
        if not len(features) == len(times) == len(group):
            sizes = f"{len(features)}, {len(times)} and {len(group)}"
            raise ValueError(f"there must be one latency and one group per row of features, but got {sizes}")
        labels, keep = _labels(times, group)
        features, labels, group = features[keep], labels[keep], group[keep]
        self._boosters = []
        if len(labels) == 0:
            self.slope = 1.0
            return
        offset = self._offset(features)
        centred = _centred(offset, group)
        self.slope = _slope(centred, labels)
        residual = labels - self.slope * centred
        self._boosters = [self._train(features, labels, residual, group, bag) for bag in range(self.bags)]

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Predicted base-2 log throughput (N,), up to a constant; the estimate alone when untrained."""
        return self.predict_spread(features)[0]

    def predict_spread(self, features: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Prediction (N,) and the standard deviation (N,) between the ensembles."""
        self._check(features)
        base = self.slope * self._offset(features)
        if not self._boosters or not len(features):
            return base, np.zeros(len(features))
        votes = np.stack([np.asarray(b.inplace_predict(features), np.float64) for b in self._boosters])
        return base + votes.mean(0), votes.std(0)

    def _train(
        self,
        features: NDArray[np.float32],
        labels: NDArray[np.float64],
        residual: NDArray[np.float64],
        group: NDArray[np.int64],
        bag: int,
    ) -> Any:
        import xgboost

        options: dict[str, Any] = {
            "objective": "reg:squarederror",
            "nthread": self.nthread,
            "seed": self.seed * 1009 + bag,
            "tree_method": "hist",
            "max_bin": 64,
            "max_depth": 3,
            "eta": 0.12,
            "min_child_weight": 1.0,
            "lambda": 1.0,
            "subsample": 0.85,
            "colsample_bytree": 0.35,
            "base_score": 0.0,
            "verbosity": 0,
        }
        weight = _weights(labels, group)
        data = xgboost.DMatrix(features, label=residual, weight=weight, nthread=self.nthread)
        return xgboost.train(options, data, num_boost_round=self.rounds)

    def _offset(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """The estimate as log throughput, zeros where there is no such column."""
        if ESTIMATE not in self.columns:
            return np.zeros(len(features))
        return -np.nan_to_num(features[:, self.columns.index(ESTIMATE)].astype(np.float64))

    def _check(self, features: NDArray[np.float32]) -> None:
        if features.ndim != 2 or features.shape[1] != len(self.columns):
            raise ValueError(f"features must have the shape (N, {len(self.columns)}), but got {features.shape}")


def _labels(times: NDArray[np.float64], group: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Log throughput less its group's mean, and which rows belong to a group with a measurement."""
    labels = np.zeros(len(times))
    keep = np.zeros(len(times), bool)
    for number in np.unique(group):
        rows = group == number
        good = rows & np.isfinite(times) & (times > 0)
        if not good.any():
            continue
        labels[good] = -np.log2(times[good])
        labels[rows & ~good] = labels[good].min() - FAILED_PENALTY
        labels[rows] -= labels[good].mean()
        keep |= rows
    return labels, keep


LEAST_WEIGHT = 0.05  # of a row: what is twenty times slower than the best, and slower still


def _weights(labels: NDArray[np.float64], group: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much each row counts: its throughput relative to the best of its group, as in Ansor (OSDI 2020, 5.2).

    What is ten times slower need not be told apart well, and its large errors would drown those between good ones.
    The mean weight is 1, so that the trees' regularization means the same for all groups.
    """
    best = np.full(group.max() + 1, -np.inf)
    np.maximum.at(best, group, labels)
    weights = np.maximum(np.exp2(labels - best[group]), LEAST_WEIGHT)
    return np.asarray(weights / weights.mean())


def _centred(values: NDArray[np.float64], group: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each value less the mean of its group."""
    sums = np.bincount(group, values)
    counts = np.maximum(np.bincount(group), 1)
    return np.asarray(values - (sums / counts)[group])


LEAST_TRUST, TRUST, TRUST_WEIGHT = 0.5, 0.8, 8.0


def _slope(estimate: NDArray[np.float64], labels: NDArray[np.float64]) -> float:
    """Least-squares slope of the labels on the estimate; little data draws it towards `TRUST`.

    What was measured was picked because its estimate is good, and among such candidates the estimate tells
    less than it does about all others: a slope below `LEAST_TRUST` would call these as good as the best.
    """
    slope = (estimate @ labels + TRUST * TRUST_WEIGHT) / (estimate @ estimate + TRUST_WEIGHT)
    return float(np.clip(slope, LEAST_TRUST, 1.0))
