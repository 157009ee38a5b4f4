"""What the estimate likes best, of spaces whose sketches schedule one block and of those that schedule several."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from stridesmith.cost_model.features import Estimates
from stridesmith.cost_model.geometry import Geometry
from stridesmith.cost_model.tiling import Columns
from stridesmith.ir.deadline import until
from stridesmith.ir.target import Target
from stridesmith.search.candidates.estimated import favourite, liked, promising
from stridesmith.search.candidates.evolution import Effort, Evaluated, by_estimate, evolve, one_by_one
from stridesmith.search.candidates.search_space import Population, SearchSpace
from stridesmith.space.design.candidates import Candidates, Stack
from stridesmith.space.design.space import Space, generate
from stridesmith.space.workloads import workload

CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
EFFORT = Effort(96, 1)


def space_of(name: str, **shape: int) -> Space:
    work = workload(name, **shape)
    return generate(work.func, CPU, dict.fromkeys(work.constants, "constant"))


def evolved(space: Space) -> dict[int, float]:
    """The best score of each sketch where whole candidates are bred."""
    search, evaluate = SearchSpace(space), by_estimate(Estimates(space.sketches, space.target))
    pools = evolve(search, search.open, evaluate, np.random.default_rng(0), EFFORT)
    return {pool.sketch: float(pool.scores[0]) for pool in pools if len(pool.rows)}


def test_of_single_blocks_it_is_what_evolution_finds() -> None:
    space = space_of("matmul", m=37, n=50, k=40)
    found = promising(space, lambda _: EFFORT)
    assert {best.sketch: best.score for best in found} == evolved(space)


@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_several_blocks_are_looked_at_one_by_one(name: str) -> None:
    """What is found is possible, costs what is said, and is about as good as where whole candidates are bred."""
    space = space_of(name)
    assert max(len(sketch.parts) for sketch in space.sketches) > 1
    search, estimates, whole = SearchSpace(space), Estimates(space.sketches, CPU), evolved(space)
    found = {best.sketch: best for best in promising(space, lambda _: EFFORT)}
    assert found.keys() == whole.keys()
    for number, best in found.items():
        assert search.possible((number, *best.row))
        (log_time,) = estimates.estimate(number, np.asarray([best.row]))
        assert best.score == pytest.approx(-float(log_time), abs=1e-4)
    assert max(best.score for best in found.values()) >= max(whole.values()) - 0.1


def test_the_favourite_is_the_same_each_time() -> None:
    """Also of a space that was generated anew."""
    first, second = (favourite(space_of("softmax")) for _ in range(2))
    assert first is not None and first == second


def test_sketches_that_are_far_behind_are_not_bred() -> None:
    """They are drawn once; what is found of the others does not depend on them."""
    space = space_of("conv2d", ci=16, h=15, w=17, co=20, kh=3, kw=3, pad=1)
    evaluate = by_estimate(Estimates(space.sketches, space.target))
    seen: list[int] = []

    def counted(asked: Sequence[tuple[int, Population]]) -> Iterable[tuple[int, Evaluated]]:
        seen.extend(number for number, _ in asked)
        return evaluate(asked)

    def found(margin: float) -> tuple[dict[int, float], list[int]]:
        seen.clear()
        search = SearchSpace(space)  # which keeps what it has drawn
        pools = evolve(search, search.open, counted, np.random.default_rng(0), Effort(96, 2, margin))
        return {pool.sketch: float(pool.scores[0]) for pool in pools}, [seen.count(n) for n in search.open]

    (everything, often), (near, seldom) = found(math.inf), found(0.0)
    assert min(seldom) == 1 and max(seldom) > 1 and sum(seldom) < sum(often)
    alike = [number for number, (one, other) in enumerate(zip(seldom, often, strict=True)) if one == other]
    assert alike and all(near[number] == everything[number] for number in alike)


def test_sketches_that_get_no_better_are_bred_no_further() -> None:
    """Where all candidates are alike that is after as many generations as the patience says."""
    space = space_of("conv2d", ci=16, h=15, w=17, co=20, kh=3, kw=3, pad=1)
    seen: list[int] = []

    def flat(number: int, rows: Population) -> Evaluated:
        seen.append(number)
        positions = np.arange(len(rows))
        return Evaluated(positions, np.zeros(len(rows)), positions.astype(np.uint64))

    for patience, generations in ((1, 1), (2, 2), (math.inf, 5)):
        seen.clear()
        search = SearchSpace(space)
        evolve(search, search.open, one_by_one(flat), np.random.default_rng(0), Effort(96, 5, patience=patience))
        assert max(map(seen.count, search.open)) == 1 + generations


@pytest.mark.parametrize("seconds", [None, 60.0])
def test_sketches_are_estimated_together_but_before_a_deadline(
    seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found does not depend on that; before a deadline there is a look at the clock between two of them."""
    space = space_of("conv2d", ci=16, h=15, w=17, co=20, kh=3, kw=3, pad=1)
    right, derive, sizes = evolved(space), Geometry.derive, list[int]()

    def noted(geometry: Geometry, candidates: Candidates, alone: bool = False) -> Columns:
        sizes.append(len(candidates.parts) if isinstance(candidates, Stack) else 1)
        return derive(geometry, candidates, alone)

    monkeypatch.setattr(Geometry, "derive", noted)
    with until(time.monotonic() + seconds) if seconds else contextlib.nullcontext():
        assert evolved(space) == right
    assert (max(sizes) > 1) == (seconds is None)


def test_patience_does_not_change_what_is_liked_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a product and of a softmax, whose stages are looked at one by one."""
    for space in (space_of("matmul", m=37, n=50, k=40), space_of("softmax")):
        monkeypatch.undo()
        soon = favourite(space)
        monkeypatch.setattr("stridesmith.search.candidates.estimated.PATIENCE", math.inf)
        late = favourite(space)
        assert soon is not None and late is not None and late.score - soon.score < 0.01


def test_what_is_liked_of_a_relative_shortens_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found is possible, costs what is said, is about as good, and fewer candidates were looked at."""
    looked, estimates = list[int](), Estimates.estimates

    def counted(self: Estimates, asked: Sequence[tuple[int, Population]]) -> Iterable[tuple[int, np.ndarray]]:
        looked.append(sum(len(rows) for _, rows in asked))
        return estimates(self, asked)

    monkeypatch.setattr(Estimates, "estimates", counted)
    one, other = (space_of("conv2d", ci=16, h=h, w=17, co=20, kh=3, kw=3, pad=1) for h in (15, 19))
    near = liked(one)
    assert near is not None and near.favourite == favourite(one)
    looked.clear()
    alone, rows_alone = liked(other), sum(looked)
    looked.clear()
    after, rows_after = liked(other, near), sum(looked)
    assert alone is not None and alone.favourite is not None and after is not None and after.favourite is not None
    assert rows_after < 0.6 * rows_alone
    assert after.favourite.score > alone.favourite.score - 0.1
    best = after.favourite
    assert SearchSpace(other).possible((best.sketch, *best.row))
    (log_time,) = Estimates(other.sketches, CPU).estimate(best.sketch, np.asarray([best.row]))
    assert best.score == pytest.approx(-float(log_time), abs=1e-4)
    assert {pool.sketch for pool in after.pools} <= {pool.sketch for pool in alone.pools}


def test_of_several_parts_nothing_is_liked_by_sketch() -> None:
    assert liked(space_of("softmax")) is None
