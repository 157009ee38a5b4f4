"""Taps that meet padding alone: where they are left out, and what the cost model is told of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_run import run_compiled
from expected_space import CPU, OPENCL

from stridesmith.cost_model.geometry import Geometry
from stridesmith.ir.analysis import count_flops
from stridesmith.space.design.candidates import Candidates
from stridesmith.space.design.padding import data_of_stage, share_with_data
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.design.techniques import taps
from stridesmith.space.workloads import Workload, workload

FAR = {"ci": 4, "h": 9, "w": 9, "co": 16, "k": 3, "pad": 6, "dilation": 6}
WORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "dilated": ("conv2d", FAR),
    "dilated, channels last": ("conv2d", FAR | {"layout": "nhwc", "co": 20}),
    "strided": ("conv2d", {"ci": 3, "h": 9, "w": 8, "co": 12, "k": 5, "pad": 3, "stride": 2}),
    "a pool": ("max_pool2d", {"c": 12, "h": 8, "w": 9, "k": 5, "stride": 1, "pad": 2, "layout": "nhwc"}),
    "depthwise": ("depthwise_conv2d", {"c": 12, "h": 7, "w": 7, "k": 5, "pad": 2, "layout": "nhwc"}),
}


@pytest.fixture(autouse=True)
def little_padding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The technique is right wherever any step meets padding alone, also where it is not offered."""
    if request.function is not test_taps_are_offered_where_much_is_padding:
        monkeypatch.setattr(taps, "LEAST", 0.06)
        monkeypatch.setattr(taps, "LEAST_OF_SUMS", 0.06)


@pytest.mark.parametrize(
    ("kind", "params", "is_offered"),
    [
        ("conv2d", FAR | {"ci": 5}, True),
        ("conv2d", {"ci": 5, "h": 14, "w": 14, "co": 16, "k": 3, "pad": 1}, False),
        ("conv2d", {"ci": 5, "h": 20, "w": 20, "co": 16, "k": 3, "pad": 7, "dilation": 7}, False),
        ("conv2d", {"ci": 16, "h": 20, "w": 20, "co": 16, "k": 3, "pad": 7, "dilation": 7}, True),
        ("conv2d", {"ci": 32, "h": 14, "w": 14, "co": 16, "k": 3, "pad": 1}, False),
        ("depthwise_conv2d", {"c": 13, "h": 8, "w": 7, "k": 7, "pad": 3, "layout": "nhwc"}, False),
    ],
)
def test_taps_are_offered_where_much_is_padding(kind: str, params: dict[str, Any], is_offered: bool) -> None:
    """A test of each step pays where many are left out, and costs the others of a small one."""
    found = {d.name.split("/")[-1] for sketch in sketches(workload(kind, **params)) for d in sketch.decisions}
    assert ("taps" in found) == is_offered


def work_of(name: str) -> Workload:
    kind, params = WORKS[name]
    return workload(kind, **params)


def sketches(work: Workload) -> list[Sketch]:
    interface = {"w": "constant"} if "w" in work.inputs else {}
    return list(generate(work.func, CPU, interface).sketches)


def taps_of(sketch: Sketch) -> int:
    """The number of the decision."""
    return next(k for k, d in enumerate(sketch.decisions) if d.name.endswith("/taps"))


def drawn(sketch: Sketch, count: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Candidates that leave taps out."""
    allowed = [np.arange(len(d), dtype=np.int64) for d in sketch.decisions]
    allowed[taps_of(sketch)] = np.ones(1, np.int64)
    return sketch.draw(np.random.default_rng(seed), count, allowed)


@pytest.mark.parametrize("name", WORKS)
def test_without_taps_of_padding_results_stay(name: str) -> None:
    """Random candidates, as machine code replayed from their traces, give the reference's results."""
    work = work_of(name)
    for number, sketch in enumerate(sketches(work)[::3]):
        for choice in drawn(sketch, 1, number):
            run_compiled(work, sketch.trace(choice).replay(work.func).func)


def test_what_is_told_is_what_runs() -> None:
    """The share of steps that the cost model is told is that of the multiply-adds in the scheduled program.

    Taps that are computed over the edge of the kernel are left out besides, of which the share knows nothing.
    """
    work = work_of("dilated, channels last")
    for number, sketch in enumerate(sketches(work)):
        plain = [row for row in drawn(sketch, 20, number) if "overcompute" not in sketch.labels(row).values()]
        assert plain
        for choice in plain[:2]:
            without = np.array(choice)
            without[taps_of(sketch)] = 0
            flops = [count_flops(sketch.schedule(row).func) for row in (choice, without)]
            told = Candidates(sketch.main, np.stack([choice, without]), CPU).executed
            assert told[1] == 1 and told[0] < 0.98
            assert flops[0] / flops[1] == pytest.approx(told[0], rel=0.02), sketch.labels(choice)


def test_shares_are_those_of_tiles() -> None:
    """Two of three taps meet data for 3 of 9 rows alone; tiles of 3 rows leave out as much, of 4 less, of 9 nothing."""
    sketch = next(s for s in sketches(work_of("dilated")) if s.name == "vec=s1,row=s2")
    anchor = sketch.main.anchor
    stage = next(n for n, o in enumerate(anchor.operands) if o.source == "stage")
    data = data_of_stage(sketch.start.func, anchor.operands[stage].producer, 0.0)  # type: ignore[union-attr]
    assert {dim: sum(inside) for dim, inside in data.items()} == {2: 9, 3: 9}

    def share(rows: int) -> float:
        return share_with_data(anchor, stage, 2, data[2], {2: rows})

    assert [round(27 * share(rows)) for rows in (1, 3, 4, 9)] == [15, 15, 9 + 5 + 4, 27]


def test_skipped_steps_are_less_work_to_the_estimate() -> None:
    """The column of wasted work is lower by the share of steps that are left."""
    sketch = sketches(work_of("dilated"))[0]
    choice = drawn(sketch, 1)[0]
    rows = np.stack([choice, choice])
    rows[1, taps_of(sketch)] = 0
    candidates = Candidates(sketch.main, rows, CPU)
    waste = np.broadcast_to(Geometry(sketch.main, CPU).derive(candidates)["waste"], 2)
    assert waste[1] - waste[0] == pytest.approx(-np.log2(candidates.executed[0]))


def test_it_is_offered_where_much_is_padding() -> None:
    """Not for a border of 1 around 56 rows, where vectors run along it, on devices, or with an index that is no sum."""

    def offered(work: Workload, target: Any = CPU) -> list[bool]:
        found = generate(work.func, target, {"w": "constant"}).sketches
        return [any(d.name.endswith("/taps") for d in s.decisions) for s in found]

    assert not any(offered(workload("conv2d", ci=4, co=8, h=56, w=56)))
    assert all(offered(work_of("dilated"))) and not any(offered(work_of("dilated"), OPENCL))
    phases = workload("conv2d_transpose", ci=3, co=4, h=4, w=4, k=8, stride=4, pad=2)
    assert not any(offered(phases))
    along = workload("conv1d", ci=4, w=40, co=8, k=3, pad=12, dilation=12)
    assert {s.name: f for s, f in zip(generate(along.func, CPU).sketches, offered(along), strict=True)} == {
        "vec=s1,row=s2": True, "vec=s2,row=s1": False,
    }  # fmt: skip


def test_tiles_without_such_steps_are_excluded() -> None:
    """A tile of many rows and columns meets data with every tap; inlined padding and fused rows have no such test."""
    work = workload("conv2d", ci=4, h=7, w=7, co=16, k=3, pad=1)
    sketch = next(s for s in sketches(work) if s.name == "vec=s1,row=s3")
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(len(d), size=20_000) for d in sketch.decisions], axis=1)
    rows[:, taps_of(sketch)] = 1
    candidates = Candidates(sketch.main, rows, CPU)
    excluded = sketch.exclusions(rows)["taps of padding"]
    stage = next(n for n, o in enumerate(sketch.operands) if o.source == "stage")
    for useless in (candidates.fused, ~candidates.staged(stage), candidates.executed > 0.97):
        assert useless.any() and excluded[useless].all()
    assert not excluded.all()
