"""The schedules of all sizes that the estimate chooses for the programs of a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.backends.lower import lower
from stridesmith.errors import ProgramError
from stridesmith.ir.size_ranges import Range, ranges_of
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.models.ranges import kernels
from stridesmith.models.ranges.kernels import RangedTask
from stridesmith.models.ranges.network import RangedOperator
from stridesmith.search.candidates import all_sizes
from stridesmith.search.candidates.general import first_with
from stridesmith.search.tasks.task import Task
from stridesmith.search.workers.protocol import Build, Built, Failed
from stridesmith.search.workers.spread import build_here
from stridesmith.space.schedule import Schedule, Trace

TARGET = Target(threads=1)
WORDS = {"a": "fixed", "b": "constant", "c": "fixed"}


def taken(func: PrimFunc) -> object:
    """Whether a program can be lowered; raises ProgramError where not."""
    return lower(func, TARGET)


@pytest.mark.parametrize(("blocks", "cases"), [((8, 8), 2), ((16, 8), 0)])
def test_schedules_that_want_other_layouts_of_weights_are_no_variants_of_one_kernel(
    blocks: tuple[int, int], cases: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are packed once, for all sizes: the schedule of the middle of the range has all of them then."""
    work = ss.workload("matmul", m=(1, 64), n=32, k=16)
    tiles = iter(zip(blocks, (4, 2), strict=True))

    def favourite(func: PrimFunc, _target: Target, _interface: Mapping[str, str]) -> list[list[Any]]:
        block, rows = next(tiles)
        sch = Schedule(func)
        sch.transform_layout("matmul", "b", f"lambda k, n: [n // {block}, k, n % {block}]")
        sch.split(sch.get_loops("matmul")[0], [None, rows])
        return [sch.trace.to_json()]

    monkeypatch.setattr(all_sizes, "_liked", favourite)
    found = all_sizes.estimated_steps(work.func, TARGET, WORDS, taken)
    assert found.steps is not None and not found.notice
    made = Trace.from_json(found.steps).replay(work.func).func
    assert made.layout_of("b") is not None
    assert len(found.steps[0][1].get("cases", ())) == cases


def test_the_mean_of_images_of_free_width_runs_in_vectors() -> None:
    """Height and width are one axis for each shape; for all of them the width is what they were, height outside of it.

    Sums are kept for vectors of 8, as images of 12 have no more.
    """
    work = ss.workload("global_avg_pool2d", c=32, h=6, w=(12, 80))
    found = all_sizes.estimated_steps(work.func, Target(isa="avx512", threads=1), {}, taken)
    assert found.steps is not None and not found.notice
    made = Trace.from_json(found.steps).replay(work.func).func
    assert "T.vectorized" in made.script()
    kernel = ss.build(made, "cpu")
    for width in (12, 15, 16, 17, 33, 80):
        x = np.random.default_rng(width).integers(-4, 5, (1, 32, 6, width)).astype(np.float32)
        np.testing.assert_allclose(kernel(x).reshape(-1), x.mean(axis=(0, 2, 3)), rtol=1e-5)


def test_a_program_without_a_schedule_of_all_sizes_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal of what was liked, with the size at which that was."""
    work = ss.workload("matmul", m=(1, 64), n=32, k=16)
    monkeypatch.setattr(all_sizes, "_liked", lambda *_: [[["fuse", {"loops": ["i", "none"]}]]])
    with pytest.raises(ss.ScheduleError):
        all_sizes.general([["fuse", {"loops": ["i", "none"]}]], work.at({"m": 8}).func, work.func, TARGET)
    found = all_sizes.estimated_steps(work.func, TARGET, {}, taken)
    assert found.steps is None and found.notice.startswith("with m = 31: there is no loop `none`")


def test_what_cannot_be_lowered_gives_way_to_the_next_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs of a schedule are not all: memory that threads keep has an end, which lowering knows."""
    work = ss.workload("matmul", m=(1, 64), n=32, k=16)
    plain, other = [["parallel", {"loop": "i"}]], [["parallel", {"loop": "j"}]]
    monkeypatch.setattr(all_sizes, "_liked", lambda *_: [plain, other])

    def accept(func: PrimFunc) -> None:
        if "i in T.parallel" in func.script():
            raise ProgramError("too large")

    found = all_sizes.estimated_steps(work.func, TARGET, {}, accept)
    assert found.steps == other and not found.notice


def test_the_estimate_is_asked_at_sizes_that_nothing_divides_by_chance() -> None:
    """In the middle of 1 to 512 vectors along rows would be whole, at nearly all other sizes they are cut."""
    wanted = {Range(1, 512): (257, 41), Range(320, 960, 32): (608, 352), Range(1, 16): (11, 1), Range(4, 6, 2): (4, 4)}
    assert {r: tuple(all_sizes.typical(r, share) for share in all_sizes.SHARES) for r in wanted} == wanted
    work, asked = ss.workload("matmul", m=(1, 512), n=32, k=16), list[int]()

    def none(func: PrimFunc, *_: object) -> list[list[Any]]:
        asked.append(func.buffers[0].shape[0])
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(all_sizes, "_liked", none)
        all_sizes.estimated_steps(work.func, TARGET, WORDS, taken)
    assert asked == [257, 41, 1]


def test_small_is_what_extents_are_and_not_the_number_that_they_are_made_of() -> None:
    """Twelve rows for each column: 24 rows are no number from which on vectors along columns are filled."""
    func = ss.parse("""
@T.prim_func
def heads(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, n // 12), "float32")
    B = T.match_buffer(b, (n,), "float32")
    T.assume(12 <= n and n <= 6144)
    T.assume(n % 12 == 0)
    for i, j in T.grid(n, n // 12):
        with T.block("B"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                B[vi] = 0.0
            B[vi] = B[vi] + A[vi, vj]
""")
    assert isinstance(func, PrimFunc)
    ranges = {v.name: numbers for v, numbers in ranges_of(func).items()}
    assert [first_with(func, ranges, "n", least) for least in (1, 16, 512, 513)] == [12, 192, 6144, None]
    assert [box["n"] for box in all_sizes._from(func, ranges, {"n": 3084})] == [[192, 6144], [768, 6144]]


def test_what_is_taken_is_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs and lowering are most of what a kernel of all sizes takes: no program goes through them twice."""
    work, lowered = ss.workload("matmul", m=(1, 64), n=32, k=16), list[PrimFunc]()

    def counted(func: PrimFunc, target: Target) -> object:
        lowered.append(func)
        return lower(func, target)

    monkeypatch.setattr("stridesmith.backends.lower.lower", counted)
    (built,) = build_here([Build(script=work.script, target=TARGET, estimated=WORDS)])
    assert isinstance(built, Built) and built.trace and len(lowered) == 1


def test_what_is_not_lowered_together_is_lowered_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule of all sizes is what is left of variants, without that the estimate is asked again."""
    work, asked = ss.workload("matmul", m=(1, 64), n=32, k=16), list[int]()

    def liked(func: PrimFunc, *_: object) -> list[list[Any]]:
        asked.append(func.buffers[0].shape[0])
        return [[["parallel", {"loop": "i" if asked[-1] > 20 else "j"}]]]

    def accept(func: PrimFunc) -> None:
        if "if 1 <= m" in func.script():
            raise ProgramError("not together")

    monkeypatch.setattr(all_sizes, "_liked", liked)
    found = all_sizes.estimated_steps(work.func, TARGET, WORDS, accept)
    assert found.steps == [["parallel", {"loop": "i"}]] and len(asked) == 2


def test_variants_that_are_not_lowered_together_give_way_to_the_schedule_of_all_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not to the program as it is written, as long as there is one."""
    work = ss.workload("matmul", m=(1, 64), n=32, k=16)
    task = Task(work, TARGET, {"a": "fixed", "b": "fixed", "c": "fixed"})
    tasks = [RangedTask(task, (RangedOperator("y", work.func, ("a", "b"), ("c",)),))]
    monkeypatch.setattr(kernels.kernel_cache, "stored", lambda _: None)
    monkeypatch.setattr(kernels.kernel_cache, "store", lambda *_: None)
    rest = [["parallel", {"loop": "j"}]]
    asked = []

    def build(jobs: Iterable[Build]) -> list[Built | Failed]:
        found: list[Built | Failed] = []
        for job in jobs:
            asked.append(job.trace)
            both = [["specialize", {"cases": [[{"m": [1, 4]}, [["parallel", {"loop": "i"}]]], [{}, rest]]}]]
            is_first = job.estimated is not None
            found += [Failed(status="refused", message="no", trace=both)] if is_first else build_here([job])
        return found

    made = kernels.kernels_of(tasks, None, build)["y"]
    assert asked == [None, rest] and (made.origin, made.trace, made.notice) == ("estimated", rest, "")
    rest = []
    made = kernels.kernels_of(tasks, None, build)["y"]
    assert (made.origin, made.trace, made.notice) == ("untuned", None, "no")


@pytest.mark.parametrize(("status", "kept"), [("build_timeout", 0), ("infrastructure", 0), ("refused", 1)])
def test_what_a_busy_machine_gave_up_is_tried_again(status: str, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as it is written stands in for it, for good only where the schedule would be refused again."""
    work = ss.workload("matmul", m=(1, 64), n=32, k=16)
    task = Task(work, TARGET, {"a": "fixed", "b": "fixed", "c": "fixed"})
    tasks = [RangedTask(task, (RangedOperator("y", work.func, ("a", "b"), ("c",)),))]
    stored: list[Built | Failed] = []
    monkeypatch.setattr(kernels.kernel_cache, "stored", lambda _: None)
    monkeypatch.setattr(kernels.kernel_cache, "store", lambda _, reply: stored.append(reply))

    def build(jobs: Iterable[Build]) -> list[Built | Failed]:
        return [Failed(status=status, message="no") if job.estimated is not None else build_here([job])[0]
                for job in jobs]  # fmt: skip

    made = kernels.kernels_of(tasks, None, build)["y"]
    assert (made.origin, made.notice, len(stored)) == ("untuned", "no", kept)
