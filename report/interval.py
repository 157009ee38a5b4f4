"""How sure the ratio of two latencies is, from samples with heavy tails that depend on their neighbours in time.

The logarithm of a median, not of a mean, since a spike of a busy machine says nothing of the kernel::

    log ratio = log median(b) - log median(a)
    variance  = v(a) + v(b) + spread ** 2
    v(x)      = (standard error of the median) ** 2 * (long-run variance of the signs)

The standard error is McKean and Schrader's, from two order statistics around the median, which needs no density and no
variance of the samples (Communications in Statistics 13, 1984).  Signs of samples above and below the median have a
variance of 1 where samples are independent; drift makes it larger, and is counted in by a Bartlett window.

None of it sees what all samples of a run have in common: where its memory came to lie, how fast the clock was.  That is
the `spread`, which the caller knows from several runs of what did not change.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FEW = 6
"""With fewer samples the order statistics are the least and the largest."""
FAR = 300.0
"""Logarithms beyond it, of samples that nobody measured, are taken to be this."""


@dataclass(frozen=True)
class Ratio:
    """`value` is b over a, `error` the standard error of its logarithm, `freedom` the degrees of freedom of that."""

    value: float
    error: float
    freedom: float

    def bounds(self, alpha: float) -> tuple[float, float]:
        """The interval that misses the true ratio with a probability of `alpha`."""
        reach = quantile(1 - alpha / 2, self.freedom) * self.error
        return self.value * exp(-reach), self.value * exp(reach)

    @property
    def p_value(self) -> float:
        """How often equals would differ as much as this."""
        if self.error == 0.0:
            return 1.0 if self.value == 1.0 else 0.0
        score = abs(math.log(self.value)) / self.error
        if math.isinf(self.freedom):
            return 2 * statistics.NormalDist().cdf(-score)
        from scipy.special import stdtr

        return float(2 * stdtr(self.freedom, -score))


def exp(x: float) -> float:
    """The exponential, a positive number whatever `x` is."""
    return math.exp(max(-FAR, min(x, FAR)))


def ratio(a: Sequence[float], b: Sequence[float], spread: float) -> Ratio:
    """How many times as long as `a` the samples `b` take.  Raises ValueError where one of them has none."""
    if not a or not b:
        raise ValueError("a ratio needs samples of both")
    logs = [np.log(np.asarray(x, np.float64)) for x in (a, b)]
    parts = [_variance(x) for x in logs]
    value = exp(float(np.median(logs[1]) - np.median(logs[0])))
    variance = sum(parts) + spread**2
    # Welch and Satterthwaite: what comes from few samples is known badly, the spread is taken as known.
    pooled = sum(v**2 / max(1, len(x) - 1) for v, x in zip(parts, logs, strict=True))
    return Ratio(value, math.sqrt(variance), variance**2 / pooled if pooled else math.inf)


def ratio_in_turns(races: Sequence[tuple[Sequence[float], Sequence[float]]], spread: float) -> Ratio:
    """How many times as long as `a` the kernel `b` takes, from samples ``(a, b)`` of races in which they took turns.

    ::

        r(race)   = median over its rounds of log b - log a
        log ratio = mean of r over the races
        variance  = variance of r / races + spread ** 2

    What both meet in a round is in neither; what all rounds of a race have in common shows from race to race.  Raises
    ValueError for fewer than two races, or one without samples.
    """
    if len(races) < 2 or not all(a and b for a, b in races):
        raise ValueError("a ratio needs two races with samples of both")
    logs = [[math.log(after / before) for before, after in zip(a, b, strict=False)] for a, b in races]
    medians = [statistics.median(each) for each in logs]
    own = statistics.variance(medians) / len(races)
    variance = own + spread**2
    freedom = (len(races) - 1) * (variance / own) ** 2 if own else math.inf
    return Ratio(exp(statistics.fmean(medians)), math.sqrt(variance), freedom)


def quantile(p: float, freedom: float) -> float:
    """The quantile of Student's t."""
    if not 0.0 < p < 1.0:
        return math.copysign(math.inf, p - 0.5)
    if math.isinf(freedom):
        return statistics.NormalDist().inv_cdf(p)
    from scipy.special import stdtrit

    return float(stdtrit(freedom, p))


def _variance(logs: NDArray[np.float64]) -> float:
    """The variance of the median of these samples."""
    ordered, count = np.sort(logs), len(logs)
    if count == 1:
        return 0.0
    normal = statistics.NormalDist()
    depth = 0 if count < FEW else max(0, round((count + 1) / 2 - 1.96 * math.sqrt(count / 4)) - 1)
    covered = 2 * normal.cdf((count / 2 - depth - 0.5) / math.sqrt(count / 4)) - 1
    score = normal.inv_cdf(0.5 + min(covered, 0.9999) / 2)
    error = float(ordered[count - 1 - depth] - ordered[depth]) / (2 * max(score, 0.5))
    return error**2 * _dependence(logs)


def _dependence(logs: NDArray[np.float64]) -> float:
    """The long-run variance of the signs around the median, at least 1."""
    signs = np.sign(logs - np.median(logs))
    count, lags = len(signs), math.ceil(len(signs) ** (1 / 3))
    if count <= FEW:
        return 1.0
    total = 1.0
    for lag in range(1, lags + 1):
        total += 2 * (1 - lag / (lags + 1)) * float(np.mean(signs[lag:] * signs[:-lag]))
    return max(1.0, total)
