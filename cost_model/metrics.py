"""How well a predicted order agrees with a measured one: correlation of ranks and recall of the best."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

ENOUGH_RANKED = 8
"""Of fewer values a correlation of ranks is mostly chance: without any, that of five is often beyond 0.5."""


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 0 upwards in the order of the values; equal values share the mean of their ranks."""
    array = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray(((last - counts) + (last - 1))[inverse] / 2.0)


def spearman(predicted: ArrayLike, measured: ArrayLike) -> float:
    """Correlation of the ranks, in [-1, 1]; 0 where one side is constant or has fewer than two values."""
    a, b = _pair(predicted, measured)
    if len(a) < 2:
        return 0.0
    a, b = ranks(a), ranks(b)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else 0.0


def kendall(predicted: ArrayLike, measured: ArrayLike) -> float:
    """Kendall's tau-b, in [-1, 1]: agreeing less disagreeing pairs, corrected for ties; 0 where undefined.

    Memory grows with the square of the number of values: meant for rounds, not for populations.
    """
    a, b = _pair(predicted, measured)
    sign_a, sign_b = np.sign(a[:, None] - a), np.sign(b[:, None] - b)
    scale = float(np.sqrt(np.abs(sign_a).sum() * np.abs(sign_b).sum()))
    return float((sign_a * sign_b).sum()) / scale if scale > 0 else 0.0


def top_k_recall(predicted: ArrayLike, measured: ArrayLike, k: int = 5) -> float:
    """Share of the `k` best measured that are also among the `k` best predicted (larger is better on both sides).

    With fewer than `k` values all of them are the best, and the recall is 1; without any it is 0.
    """
    if k < 1:
        raise ValueError(f"`k >= 1` must hold, but got k={k}")
    a, b = _pair(predicted, measured)
    k = min(k, len(a))
    if k == 0:
        return 0.0
    best = set(np.argsort(-b, kind="stable")[:k].tolist())
    return len(best & set(np.argsort(-a, kind="stable")[:k].tolist())) / k


def _pair(predicted: ArrayLike, measured: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = np.asarray(predicted, dtype=np.float64), np.asarray(measured, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"predicted and measured must be lists of one length, but got {a.shape} and {b.shape}")
    return a, b
