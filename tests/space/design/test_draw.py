"""Candidates that are drawn in steps are those, and as often those, of whole rows of which the possible ones stay."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from stridesmith.configs import load
from stridesmith.ir.target import Target
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

TARGETS = {"cpu": load.target("cpu-avx2"), "gpu": load.target("opencl-gpu")}
DRAWN, SEEDS = 12000, 30


@cache
def sketch(name: str) -> Sketch:
    target: Target = TARGETS[name]
    return generate(workload("matmul", m=45, n=52, k=36).func, target).sketches[0]


@cache
def whole(name: str) -> np.ndarray:
    """Possible candidates among whole rows, each decision as its weights say."""
    one, rng, found = sketch(name), np.random.default_rng(1), []  # type: ignore[var-annotated]
    while sum(map(len, found)) < DRAWN:
        alternatives = [
            np.repeat(np.arange(len(d)), np.asarray(d.weights or np.ones(len(d), int))) for d in one.decisions
        ]
        rows = np.stack([values[rng.integers(len(values), size=1 << 15)] for values in alternatives], axis=1)
        found.append(rows[one.mask(rows)])
    return np.concatenate(found)[:DRAWN]


@pytest.mark.parametrize("name", TARGETS)
def test_every_drawn_candidate_is_possible(name: str) -> None:
    rows = sketch(name).draw(np.random.default_rng(0), DRAWN)
    assert len(rows) == DRAWN and sketch(name).mask(rows).all()
    assert len(np.unique(rows, axis=0)) > 0.7 * len(np.unique(whole(name), axis=0))


@pytest.mark.parametrize("name", TARGETS)
def test_alternatives_are_as_frequent_as_among_whole_candidates(name: str) -> None:
    """Alone and in pairs; of a draw some begin alike, so that shares of many draws are looked at."""
    one, expected = sketch(name), whole(name)
    drawn = np.concatenate([one.draw(np.random.default_rng(seed), DRAWN // SEEDS) for seed in range(SEEDS)])
    decisions = sketch(name).decisions
    for first in range(len(decisions)):
        for second in range(first, len(decisions)):
            width = len(decisions[second])
            shares = [
                np.bincount(rows[:, first] * width + rows[:, second], minlength=len(decisions[first]) * width) / DRAWN
                for rows in (drawn, expected)
            ]
            apart = np.abs(shares[0] - shares[1]).max()
            assert apart < 0.025, (decisions[first].name, decisions[second].name, apart)
