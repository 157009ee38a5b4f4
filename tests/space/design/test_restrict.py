"""Design spaces with alternatives left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from stridesmith.backends.host import host_cpu
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.space.design.decision import BRANCH, Decision
from stridesmith.space.design.restrict import restricted
from stridesmith.space.design.rules import scripted
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.schedule import Schedule
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


@pytest.mark.parametrize("kept", ["all", "with data"])
def test_what_is_read_of_padding_can_be_restricted(kept: str) -> None:
    """Whether taps of padding are left out is no boundary of an axis; either alternative may be the only one."""
    whole = generate(workload("conv2d", ci=8, h=18, w=18, co=8, k=3, pad=12, dilation=12).func, host_cpu(), {})

    def offers(decision: Decision) -> bool:
        return "with data" in decision.labels

    branched = restricted(whole, lambda d, value: d.kind != "boundary" or value == BRANCH)
    assert any(offers(d) for sketch in branched.sketches for d in sketch.decisions)
    part = restricted(whole, lambda d, value: not offers(d) or (value is None) == (kept == "all"))
    assert any(d.labels == (kept,) for sketch in part.sketches for d in sketch.decisions)
    rng = np.random.default_rng(0)
    for sketch in part.sketches:
        rows = sketch.draw(rng, 8, [np.arange(len(d)) for d in sketch.decisions])
        assert len(rows) and sketch.mask(rows).all()


def test_choices_of_a_script_are_restricted() -> None:
    """They are decisions like others: what is kept schedules as before, and without any the sketch is gone."""

    def tiled(func: PrimFunc, target: Target, _: Mapping[str, str]) -> Iterator[Sketch]:
        def script(sch: Schedule, size: int) -> None:
            sch.split(sch.get_loops("matmul")[0], [None, size])

        yield scripted("tiled", func, target, script, size=(2, 4, 8))

    whole = generate(workload("matmul", m=16, n=16, k=16).func, host_cpu(), {}, rules=[tiled])
    part = restricted(whole, lambda d, value: value != 2)
    (sketch,), (before,) = part.sketches, whole.sketches
    assert [d.values for d in sketch.decisions] == [(4, 8)]
    assert part.size == 2 and part.version != whole.version
    assert sketch.trace([0]).to_json() == before.trace([1]).to_json()
    assert restricted(whole, lambda d, value: False).sketches == ()
