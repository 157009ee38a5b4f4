"""The schedules of all sizes that the estimate chooses for the programs of a network."""

from __future__ import annotations

from typing import Any

import pytest

import stridesmith as ss
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.models.ranges import kernels
from stridesmith.search.tasks.task import Task
from stridesmith.space.schedule import Schedule, Trace

TARGET = Target(threads=1)


@pytest.mark.parametrize(("blocks", "cases"), [((8, 8), 2), ((16, 8), 0)])
def test_schedules_that_want_other_layouts_of_weights_are_no_variants_of_one_kernel(
    blocks: tuple[int, int], cases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are packed once, for all sizes: the schedule of the middle of the range has all of them then."""
    work = ss.workload("matmul", m=(1, 64), n=32, k=16)
    task = Task(work, TARGET, {"a": "fixed", "b": "constant", "c": "fixed"})
    tiles = iter(zip(blocks, (4, 2), strict=True))

    def favourite(func: PrimFunc, _task: Task) -> tuple[PrimFunc, list[Any]]:
        block, rows = next(tiles)
        sch = Schedule(func)
        sch.transform_layout("matmul", "b", f"lambda k, n: [n // {block}, k, n % {block}]")
        sch.split(sch.get_loops("matmul")[0], [None, rows])
        return func, sch.trace.to_json()

    monkeypatch.setattr(kernels, "_favourite", favourite)
    steps = kernels.estimated_steps(task)
    assert steps is not None
    made = Trace.from_json(steps).replay(work.func).func
    assert made.layout_of("b") is not None
    assert len(steps[0][1].get("cases", ())) == cases
