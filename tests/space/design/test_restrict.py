"""Design spaces with alternatives left out."""

from __future__ import annotations

import numpy as np

from stridesmith.backends.host import host_cpu
from stridesmith.space.design.decision import BRANCH
from stridesmith.space.design.restrict import restricted
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload


def test_candidates_of_a_restricted_space_are_candidates_of_the_whole() -> None:
    """What is kept keeps its meaning: the same labels give the same trace, and the mask agrees."""
    work = workload("matmul", m=17, n=19, k=23)
    whole = generate(work.func, host_cpu(), {})
    part = restricted(whole, lambda d, value: d.kind != "boundary" or value == BRANCH)
    assert part.version != whole.version and part.size < whole.size
    rng = np.random.default_rng(0)
    compared = 0
    for mine, other in zip(part.sketches, whole.sketches, strict=True):
        rows = np.stack([rng.integers(len(d), size=200) for d in mine.decisions], axis=1)
        for row in rows[mine.mask(rows)][:3]:
            labels = mine.labels(row)
            choice = [d.labels.index(labels[d.name]) for d in other.decisions]
            assert other.mask(np.asarray([choice]))[0]
            assert mine.trace(row).to_json() == other.trace(choice).to_json()
            compared += 1
    assert compared > 3


def test_a_sketch_without_an_alternative_is_dropped() -> None:
    """A decision of which nothing is kept takes its sketch along."""
    work = workload("matmul", m=16, n=16, k=16)
    whole = generate(work.func, host_cpu(), {})
    assert restricted(whole, lambda d, value: d.kind != "tile").sketches == ()
