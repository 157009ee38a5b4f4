"""Weights of the estimate from kernels and their latencies: robust least squares of logarithms.

For a kernel of a shape, ``log2(latency) - estimate`` is the shape's offset and an error.  Weights are found that make
the errors small: in logarithms of the weights, by steps of Levenberg and Marquardt with derivatives by differences;
errors beyond `HUGE` count linearly, so that a few kernels which the estimate cannot explain do not decide.  All
shapes count alike, and in each of them a fast kernel more than a slow one, since the search looks for those.  Where
data says little about a weight, it stays near the one that the fit began with.  Nothing is random.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from .calibration import Calibration
from .formulas import estimate
from .metrics import spearman
from .weights import AnyWeights, names_of

UNITS = ("multiply_add", "issue")  # what the others are compared with, and not fitted: shapes have offsets of their own
HUGE = 0.5  # powers of two of error, beyond which more counts linearly
SLOW = 1.0  # a kernel that takes n times as long as the best counts n ** -SLOW
NEAR = 0.1  # how much a power of two between a weight and its start costs, against one of error in all kernels
STEP = 0.05  # powers of two, for derivatives
ROUNDS = 60  # steps of the fit at most, a choice
SETTLED = 1e-5  # relative gain of a step, at which the fit ends
DIGITS = 3  # of a weight that are written, a choice
HEADS = (1, 4, 16)  # kernels that the estimate likes best, of which the fastest is compared with the fastest of all
Numbers = NDArray[np.float64]


def fit(data: Calibration, start: AnyWeights) -> AnyWeights:
    """The weights that explain the latencies best, to `DIGITS` digits; `start` is where the fit begins."""
    kind = type(start)
    free = [number for number, name in enumerate(names_of(kind)) if name not in UNITS]
    first = np.log2(np.asarray(astuple(start)))
    here, counts = first.copy(), np.sqrt(_counts(data))

    def errors(point: Numbers) -> Numbers:
        found = _errors(data, kind(*(float(value) for value in np.exp2(point))))
        return np.concatenate([counts * _damped(found), np.sqrt(NEAR) * (point - first)[free]])

    now, caution = errors(here), 1e-2
    for _ in range(ROUNDS):
        slopes = np.stack([(errors(_moved(here, n, STEP)) - errors(_moved(here, n, -STEP))) / (2 * STEP) for n in free])
        square, gradient = slopes @ slopes.T, slopes @ now
        before = now @ now
        for _ in range(8):
            step = -np.linalg.solve(square + caution * np.diag(np.diag(square)), gradient)
            there = here.copy()
            there[free] += np.clip(step, -1, 1)
            then = errors(there)
            if then @ then < before:
                here, now, caution = there, then, caution / 3
                break
            caution *= 4
        if before - now @ now < SETTLED * before:
            break
    return kind(*(float(f"{value:.{DIGITS}g}") for value in np.exp2(here)))


def loss(data: Calibration, weights: AnyWeights) -> float:
    """What the fit makes least, but for what keeps weights near those that it begins with."""
    return float(_counts(data) @ _damped(_errors(data, weights)) ** 2)


def estimates(data: Calibration, weights: AnyWeights) -> Numbers:
    """Base-2 logarithm of the estimated time of each kernel, up to a constant of its shape, (K,)."""
    blocks = np.exp2(estimate(data.columns, data.lanes, data.units, weights).astype(np.float64)) * data.points
    count = len(data.latency)
    total = np.bincount(data.kernel, data.points, count)
    found: Numbers = np.log2(np.bincount(data.kernel, blocks, count) / total)
    return found


@dataclass(frozen=True)
class Quality:
    """How well an estimate orders the kernels of a shape.

    `correlation` is Spearman's, of estimate and latency, `among_fast` that of the faster half and `among_first` that of
    the last of `HEADS` kernels that are estimated best; `regrets` are the times of the fastest of the `HEADS` kernels
    that are estimated best, over that of the fastest of all.
    """

    correlation: float
    among_fast: float
    among_first: float
    regrets: tuple[float, ...]


def quality(data: Calibration, weights: AnyWeights) -> dict[str, Quality]:
    """How well the estimate with these weights orders the kernels of each shape, by its name."""
    found, scores = {}, estimates(data, weights)
    for number in np.unique(data.shape):
        here = data.shape == number
        latency, score = data.latency[here].astype(np.float64), scores[here]
        order, fast = np.argsort(score, kind="stable"), latency <= np.median(latency)
        first = order[: HEADS[-1]]
        found[data.shapes[number]] = Quality(
            spearman(score, latency), spearman(score[fast], latency[fast]), spearman(score[first], latency[first]),
            tuple(float(latency[order[:head]].min() / latency.min()) for head in HEADS),
        )  # fmt: skip
    return found


def held_back(data: Calibration, start: AnyWeights, folds: int) -> dict[str, Quality]:
    """The quality of each shape with weights that were fitted without it.

    Shapes are dealt out to `folds` in the order of their groups, so that each fold has some of every large group.
    """
    present = sorted(np.unique(data.shape).tolist(), key=lambda number: (data.groups[number], number))
    found: dict[str, Quality] = {}
    for fold in range(folds):
        out = present[fold::folds]
        weights = fit(data.only([number for number in present if number not in out]), start)
        found |= quality(data.only(out), weights)
    return found


def _moved(point: Numbers, position: int, by: float) -> Numbers:
    moved = point.copy()
    moved[position] += by
    return moved


def _errors(data: Calibration, weights: AnyWeights) -> Numbers:
    """Per kernel, what is left of the logarithm of its latency without estimate and its shape's offset, the median."""
    left = np.log2(data.latency.astype(np.float64)) - estimates(data, weights)
    for number in np.unique(data.shape):
        here = data.shape == number
        left[here] -= np.median(left[here])
    return left


def _damped(errors: Numbers) -> Numbers:
    """What has a square that grows linearly beyond `HUGE`: Huber's loss."""
    size = np.abs(errors)
    return np.sign(errors) * np.where(size <= HUGE, size, np.sqrt(np.maximum(2 * HUGE * size - HUGE**2, 0)))


def _counts(data: Calibration) -> Numbers:
    """How much each kernel counts: 1 in all for a shape on average, a fast kernel more than a slow one."""
    counts = np.zeros(len(data.latency))
    for number in np.unique(data.shape):
        here = data.shape == number
        share = (data.latency[here] / data.latency[here].min()) ** -SLOW
        counts[here] = share / share.sum()
    return counts
