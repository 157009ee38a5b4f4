"""A search for ranges: sizes, schedules for all of them, thresholds, and a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opencl_programs import device, needs_device

import stridesmith as ss
from stridesmith.errors import NoSchedule, UsageError
from stridesmith.ir.size_ranges import Range, ranges_of
from stridesmith.ir.target import Target
from stridesmith.search.calling.diagnosis import texts
from stridesmith.search.calling.range_diagnosis import diagnose_ranges
from stridesmith.search.candidates.general import BOUNDARIES, general
from stridesmith.search.records.status import FAILURES
from stridesmith.search.tuning import ranged
from stridesmith.search.tuning.at_sizes import Sizes
from stridesmith.search.tuning.events import Emit
from stridesmith.search.tuning.ranged import _Entry, _Search
from stridesmith.search.tuning.settings import TuneSettings, resolve, settings
from stridesmith.search.tuning.sizes import Point, checked_ranges, drawn, likely_of, with_small
from stridesmith.search.tuning.variants import chosen
from stridesmith.search.workers.protocol import Build, Built, Compiled, Failed
from stridesmith.space.errors import ScheduleError
from stridesmith.space.schedule import Schedule

ROWS = ss.workload("matmul", m=(1, 64), n=32, k=16)
TARGET = Target(threads=1)


def test_draws_are_spread_and_likely_numbers_have_their_share() -> None:
    """Uniform draws halve the range evenly; of a likely number there are as many as was said; the same each time."""
    ranges = {"m": Range(1, 64)}
    points = drawn(ROWS.func, ranges, {}, 32)
    assert abs(sum(p.weight for p in points if p.values["m"] <= 32) - 0.5) < 0.1
    assert sum(p.weight for p in points) == pytest.approx(1.0)
    likely = drawn(ROWS.func, ranges, {"m": {1: 0.5}}, 32)
    assert next(p.weight for p in likely if p.values["m"] == 1) == pytest.approx(0.5, abs=0.05)
    assert [p.values for p in drawn(ROWS.func, ranges, {}, 32)] == [p.values for p in points]


def test_small_sizes_of_a_long_range_are_measured_as_well() -> None:
    """They share the weight of the least draw; a short range, and one of which something is likely, has draws alone."""
    long = ss.workload("matmul", m=(1, 512), n=8, k=8)
    ranges = {v.name: r for v, r in ranges_of(long.func).items()}
    points = drawn(long.func, ranges, {}, 8)
    more = with_small(long.func, ranges, {}, points)
    least = min(p.values["m"] for p in points)
    assert [p.values["m"] for p in more[8:]] == [1, round(least**0.5)]
    assert sum(p.weight for p in more) == pytest.approx(1.0)
    assert all(p.weight == pytest.approx(1 / 24) for p in more if p.values["m"] <= least)
    assert with_small(long.func, ranges, {"m": {1: 0.5}}, points) == points
    short = {"m": Range(16, 128)}
    points = drawn(long.func, short, {}, 8)
    assert with_small(long.func, short, {}, points) == points


def test_draws_meet_what_is_assumed() -> None:
    """Multiples of a step alone."""
    work = ss.workload("matmul", m="8..64:8", n=8, k=8)
    ranges = {v.name: r for v, r in ranges_of(work.func).items()}
    assert all(p.values["m"] % 8 == 0 for p in drawn(work.func, ranges, {}, 8))


def test_what_is_likely_is_read_and_checked() -> None:
    """Numbers of sizes in their ranges, with shares up to 1 together."""
    assert likely_of("m=1:0.5,128:0.3") == {"m": {1: 0.5, 128: 0.3}}
    for text in ("m", "m=", "m=1", "m=1:2", "m=a:0.5"):
        with pytest.raises(UsageError, match="--likely takes NAME=NUMBER:SHARE"):
            likely_of(text)
    for likely, sentence in (
        ({"q": {1: 0.5}}, "names 'q', which is no size of `matmul`"),
        ({"m": {65: 0.5}}, "says m=65, but the range is 1..64"),
        ({"m": {1: 0.5, 2: 0.6}}, "add up to 1.1, more than 1"),
    ):
        with pytest.raises(UsageError, match=sentence):
            checked_ranges(ROWS.func, likely, ROWS.sizes)


def test_thresholds_are_where_another_schedule_is_faster() -> None:
    """Two schedules that cross are both taken, one for each side; a small difference is not worth it."""
    points = [Point({"m": m}, 0.25) for m in (4, 16, 40, 60)]
    times = {0: dict(zip(points, (1.0, 2.0, 9.0, 9.0), strict=True)), 1: dict.fromkeys(points, 4.0)}
    whole = {"m": Range(1, 64)}
    leaves = chosen(times, whole, points, {0: whole, 1: whole})
    assert [(str(leaf.box["m"]), leaf.choice) for leaf in leaves] == [("1..28", 0), ("29..64", 1)]
    alike = {0: dict.fromkeys(points, 1.0), 1: dict.fromkeys(points, 1.001)}
    assert [leaf.choice for leaf in chosen(alike, whole, points, {0: whole, 1: whole})] == [0]


def test_a_schedule_of_one_size_runs_there_alone() -> None:
    """It has a leaf of this size, and those around it have schedules for all sizes."""
    points = [Point({"m": m}, share) for m, share in ((1, 0.5), (20, 0.25), (60, 0.25))]
    times = {0: dict.fromkeys(points, 4.0), 1: {points[0]: 1.0}}
    whole = {"m": Range(1, 64)}
    leaves = chosen(times, whole, points, {0: whole, 1: {"m": Range(1, 1)}})
    assert [(str(leaf.box["m"]), leaf.choice) for leaf in leaves] == [("1..1", 1), ("2..64", 0)]
    assert chosen({0: {points[0]: 1.0}}, whole, points, {0: whole}) == []


def test_a_schedule_of_a_part_has_a_leaf_of_it() -> None:
    """One that is proven from 16 on runs from there on, and another one below, where nothing was measured."""
    points = [Point({"m": m}, 0.5) for m in (20, 60)]
    times = {0: dict.fromkeys(points, 400.0), 1: dict.fromkeys(points, 1.0)}
    leaves = chosen(times, {"m": Range(1, 64)}, points, {0: {"m": Range(1, 64)}, 1: {"m": Range(16, 64)}})
    assert [(str(leaf.box["m"]), leaf.choice) for leaf in leaves] == [("1..15", 0), ("16..64", 1)]


def test_schedules_of_one_shape_become_those_of_all() -> None:
    """Factors round up, shapes are the least, and what is fused comes first where its extent is an expression."""
    one = ROWS.at({"m": 16})
    sch = Schedule(one.func)
    sch.cache_write("matmul", 0, "global")
    sch.transform_layout("matmul", "c_global", lambda i, j: [i // 4, j, i % 4], physical_shape=[6, 32, 4])
    i, j, k = sch.get_loops("matmul")
    (i0, i1), (j0, j1) = sch.split(i, [4, 4]), sch.split(j, [2, 16])
    sch.reorder(j0, i0, k, i1, j1)
    sch.parallel(sch.fuse(j0, i0))
    sch.vectorize(j1)
    made = general(sch.trace.to_json(), one.func, ROWS.func, TARGET)
    text = made.func.script()
    assert "T.parallel((m + 3) // 4 * 2)" in text and "T.alloc_buffer(((m + 3) // 4, 32, 4)" in text
    rng = np.random.default_rng(0)
    for m in (1, 16, 63):
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, 16), (16, 32)))
        c = np.zeros((m, 32), np.float32)
        ss.interpret(made.func, a, b, c)
        np.testing.assert_array_equal(c, a @ b)


def test_what_is_not_proven_for_all_is_refused_or_left_out() -> None:
    """A loop of an unknown extent is not unrolled, and the rest stands; a step that others need raises."""
    one = ROWS.at({"m": 8})
    sch = Schedule(one.func)
    sch.unroll("i")
    sch.split("j", [2, 16])
    assert "unroll" not in general(sch.trace.to_json(), one.func, ROWS.func, TARGET).func.script()
    sch.fuse("i", "j_0")
    made = general(sch.trace.to_json(), one.func, ROWS.func, TARGET)
    assert "i_j_0_fused" in made.func.script()
    two = ss.workload("matmul", m=(1, 64), n=(1, 64), k=16)
    shape = two.at({"m": 8, "n": 32})
    both = Schedule(shape.func)
    both.parallel(both.fuse("i", "j"))
    assert "for i in T.parallel(m)" in general(both.trace.to_json(), shape.func, two.func, TARGET).func.script()
    moved = Schedule(shape.func)
    moved.transform_layout("matmul", "b", lambda i, j: [j, i])
    with pytest.raises(ScheduleError, match=r"\(8\) the extents of the parameter `b` are expressions"):
        general(moved.trace.to_json(), shape.func, two.func, TARGET)


def test_a_parameter_may_be_named_by_its_place() -> None:
    """What cannot be taken over is refused all the same, and what only writes other extents is left out."""
    one = ROWS.at({"m": 8})
    moved = Schedule(one.func)
    moved.transform_layout("matmul", ("write", 0), lambda i, j: [j, i])
    with pytest.raises(ScheduleError, match=r"\(8\) the extents of the parameter `c` are expressions"):
        general(moved.trace.to_json(), one.func, ROWS.func, TARGET)
    flat = Schedule(one.func)
    flat.transform_layout("matmul", ("write", 0), lambda i, j: [i * 32 + j])
    assert general(flat.trace.to_json(), one.func, ROWS.func, TARGET).trace.to_json() == []


def test_what_divides_one_shape_is_peeled_for_all() -> None:
    """Tiles of rows and of vectors are peeled, and vectors masked where the target can do that."""
    two = ss.workload("matmul", m=(1, 64), n=(1, 64), k=16)
    shape = two.at({"m": 8, "n": 32})
    sch = Schedule(shape.func)
    i, j, k = sch.get_loops("matmul")
    (i0, i1), (j0, j1, j2) = sch.split(i, [None, 4]), sch.split(j, [None, 2, 16])
    sch.reorder(i0, j0, k, i1, j1, j2)
    for loop in (i1, j1):
        sch.unroll(loop)
    sch.vectorize(j2)
    steps = general(sch.trace.to_json(), shape.func, two.func, Target(isa="avx512")).trace.to_json()
    marked = [(s[1]["block_or_loop"], s[1]["ann_key"]) for s in steps if s[0] == "annotate"]
    assert set(marked) == {("i_1", "peel"), ("j_1", "peel"), ("j_2", "peel"), ("j_2", "mask")}
    plain = general(sch.trace.to_json(), shape.func, two.func, Target(isa="sse2"))
    assert {s[1]["ann_key"] for s in plain.trace.to_json() if s[0] == "annotate"} == {"peel"}


def test_a_search_finds_one_kernel_for_a_range(tmp_path: Path) -> None:
    """It is recorded, loaded, replayed, right at sizes that nothing measured, and refuses others in one sentence."""
    events: list[dict[str, Any]] = []
    db = tmp_path / "records.db"
    record = ss.tune(ROWS, "cpu", trials=4, db=db, emit=events.append, likely={"m": {1: 0.4}}, threads=1)
    assert record.params["m"] == "1..64" and record.verified and record.versions["likely"] == "m=1:0.4"
    assert [event["event"] for event in events].count("start") == 1 and events[0]["shape"]["m"] == "1..64"
    done = [event for event in events if event["event"] == "done"]
    assert len(done) == 1 and done[0]["record"] == record.id and done[0]["gflops"] > 0
    assert done[0]["trials"] == sum(event["event"] == "trial" for event in events)
    failures = [event["status"].split(":")[0] for event in events if event["event"] == "trial"]
    assert all(done[0]["failed"][kind] >= failures.count(kind) for kind in FAILURES)  # some failed in a race
    spent = done[0]["activities"]
    assert sum(spent.values()) == pytest.approx(done[0]["seconds"], abs=0.1) and spent["startup"] < done[0]["seconds"]
    assert spent["building"] > 0 and spent["measuring"] > 0
    json.dumps(events)
    kernel = ss.load(ROWS, db=db, threads=1)
    rng = np.random.default_rng(0)
    for m in (1, 2, 31, 64):
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, 16), (16, 32)))
        np.testing.assert_array_equal(kernel(a, b), a @ b)
        np.testing.assert_array_equal(kernel(a, b), a @ b)
    with pytest.raises(ValueError, match="is only for `m <= 64`, but m = 65, from axis 0 of `a`"):
        kernel(np.zeros((65, 16), np.float32), b)
    assert ss.replay(record, db=db).verified
    shown = texts(record, compiled=True)
    assert "m = T.int64()" in shown["program"] and "define" in shown["source"] and shown["assembly"]
    found = diagnose_ranges(record)
    assert [at.point.values["m"] for at in found.sizes][:1] == [1] and found.fraction and found.sizes[0].variant == 1


@needs_device
def test_a_search_for_a_device_finds_one_program_for_a_range(tmp_path: Path) -> None:
    """It is recorded, loaded, replayed, right at sizes that nothing measured, and refuses others in one sentence."""
    db, target = tmp_path / "records.db", device()
    assert target is not None
    record = ss.tune(ROWS, target, trials=2, db=db, progress=False)
    assert record.params["m"] == "1..64" and record.verified and record.device.kind == "opencl"
    kernel = ss.load(ROWS, target, db=db)
    rng = np.random.default_rng(0)
    for m in (1, 2, 31, 64):
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, 16), (16, 32)))
        np.testing.assert_array_equal(kernel(a, b), a @ b)
    with pytest.raises(ValueError, match="is only for `m <= 64`, but m = 65, from axis 0 of `a`"):
        kernel(np.zeros((65, 16), np.float32), b)
    assert ss.replay(record, db=db).verified
    shown = texts(record)
    assert "m = T.int64()" in shown["program"] and "const long m_size" in shown["source"]


def test_failures_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a search tells of all, of those that were trials too; where it found nothing, its trials tell."""
    asked = settings(
        workload=ROWS.name, params=dict(ROWS.shape), target="cpu", threads=1, seconds=8, db=str(tmp_path / "r.db")
    )
    search, ends = _Search(asked, Sizes.of(resolve(asked), {}), None, None), iter((True, False))

    def searched(_: TuneSettings, emit: Emit, **__: object) -> None:
        for status in ("ok", "refused", "wrong"):
            emit({"event": "trial", "status": status})
        if not next(ends):
            raise NoSchedule("none")
        emit({"event": "done", "activities": {}, "failed": {"refused": 3, "wrong": 2}})

    monkeypatch.setattr(ranged, "tune_one_shape", searched)
    search._searched()
    assert search.trials == 6 and Counter(search.failed) == Counter(refused=4, wrong=3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"interface": "free"}, "`a` is free, but kernels of many shapes take it as it is"),
        ({"stop_at": 0.5}, "a search for ranges takes neither --stop-at nor --pin nor --trace"),
        ({"likely": {"m": {70: 0.5}}}, "says m=70, but the range is 1..64"),
    ],
)
def test_what_a_search_for_ranges_is_not(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    """It is said before anything is started."""
    with pytest.raises(UsageError, match=sentence):
        ss.tune(ROWS, "cpu", trials=1, db=tmp_path / "r.db", **options)


def test_what_is_likely_of_one_shape_is_refused(tmp_path: Path) -> None:
    """There is no range."""
    with pytest.raises(UsageError, match="--likely is about ranges"):
        ss.tune(ROWS.at({"m": 4}), "cpu", trials=1, db=tmp_path / "r.db", likely={"m": {1: 0.5}})


def test_a_range_without_an_end_is_refused() -> None:
    """What is drawn needs one."""
    func = ss.parse("""
@T.prim_func
def copy(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        B[i] = A[i]
""")
    assert isinstance(func, ss.PrimFunc)
    with pytest.raises(UsageError, match=r"nothing says how large `n` may be; state it at the top of `copy`"):
        checked_ranges(func, {}, {})


def test_what_is_proven_of_a_part_runs_there(tmp_path: Path) -> None:
    """Sums of vectors need as many columns as these have lanes: such a schedule runs from 16 on, another one below."""
    work = ss.workload("softmax", rows=4, cols=(1, 64))
    notes: list[str] = []
    record = ss.tune(
        work, "cpu", trials=4, db=tmp_path / "r.db", threads=1,
        emit=lambda event: notes.append(event["message"]) if event["event"] == "note" else None,
    )  # fmt: skip
    kernel = ss.load(work, db=tmp_path / "r.db", threads=1)
    for cols in (1, 15, 16, 17, 64):
        x = np.random.default_rng(cols).uniform(-1, 1, (4, cols)).astype(np.float32)
        np.testing.assert_allclose(kernel(x), work.at({"cols": cols}).reference({"x": x})["y"], rtol=1e-5)
    assert record.verified


def test_loops_that_initialise_are_followed_where_names_differ() -> None:
    """A tile of the loop that is fused in another order stays in registers: its init is unrolled as its sum is."""
    one = ROWS.at({"m": 8})
    sch = Schedule(one.func)
    i, j, k = sch.get_loops("matmul")
    sch.reorder(j, i)
    outer, inner = sch.split(sch.fuse(j, i), [None, 4])
    sch.reorder(outer, k, inner)
    sch.decompose_reduction("matmul", k)
    sch.unroll(inner)
    sch.unroll(f"{inner}_init")
    text = general(sch.trace.to_json(), one.func, ROWS.func, TARGET).func.script()
    assert inner == "j_i_fused_1" and "i_j_fused_1_init in T.unroll(4)" in text and "i_j_fused_1 in T.unroll(4)" in text


def test_threads_share_the_loop_that_has_enough_iterations() -> None:
    """Of two loops of unknown extents one is shared: the outer one, unless it is too short for all threads."""
    two = ss.workload("matmul", m=(1, 64), n=(1, 64), k=16)
    for rows, shared in ((4, "j"), (16, "i")):
        shape = two.at({"m": rows, "n": 32})
        both = Schedule(shape.func)
        both.parallel(both.fuse("i", "j"))
        made = general(both.trace.to_json(), shape.func, two.func, Target(threads=4)).func.script()
        assert f"for {shared} in T.parallel" in made


def test_work_groups_share_all_loops_of_unknown_extents() -> None:
    """Along x the one that others cannot be fused with, along y the next one."""
    two = ss.workload("matmul", m=(1, 64), n=(1, 64), k=16)
    shape = two.at({"m": 16, "n": 32})
    sch = Schedule(shape.func)
    i, j, _ = sch.get_loops("matmul")
    sch.bind(sch.fuse(i, j), "blockIdx.x")
    made = general(sch.trace.to_json(), shape.func, two.func, Target(kind="opencl", threads=2)).func.script()
    assert 'for i in T.thread_binding(m, thread="blockIdx.x")' in made
    assert 'for j in T.thread_binding(n, thread="blockIdx.y")' in made


def test_what_cuts_the_last_tile_is_a_choice() -> None:
    """Tiles are peeled, masked, tested, or computed over where that is harmless in our memory; all are right."""
    two = ss.workload("matmul", m=(1, 64), n=(1, 64), k=16)
    shape = two.at({"m": 8, "n": 32})
    sch = Schedule(shape.func)
    sch.cache_write("matmul", 0, "global")
    sch.transform_layout("matmul", "c_global", lambda i, j: [i // 4, j // 16, i % 4, j % 16])
    i, j, k = sch.get_loops("matmul")
    (i0, i1), (j0, j1) = sch.split(i, [None, 4]), sch.split(j, [None, 16])
    sch.reorder(i0, j0, k, i1, j1)
    sch.unroll(i1)
    sch.vectorize(j1)
    sch.annotate(i1, "peel", True)
    found: dict[str, set[str]] = {}
    for boundary in BOUNDARIES:
        made = general(sch.trace.to_json(), shape.func, two.func, Target(isa="avx512"), boundary)
        found[boundary] = {
            key for step in made.trace.to_json() if step[0] == "annotate" for key in [step[1]["ann_key"]]
        }
        kernel = ss.build(made.func, "cpu")
        for m, n in ((1, 1), (5, 17), (64, 63)):
            a, b = np.ones((m, 16), np.float32), np.arange(16 * n, dtype=np.float32).reshape(16, n)
            np.testing.assert_array_equal(kernel(a, b), a @ b)
    assert found == {"peel": {"peel", "mask"}, "mask": {"mask"}, "over": {"peel", "mask"}, "branch": set()}


def test_a_tile_of_copies_is_computed_over() -> None:
    """Rows of a copy in blocks of four, which is ours, are summed beyond the end; nothing there is tested."""
    shape = ROWS.at({"m": 8})
    sch = Schedule(shape.func)
    sch.cache_write("matmul", 0, "global")
    sch.cache_read("matmul", 0, "global")
    sch.transform_layout("matmul", "c_global", lambda i, j: [i // 4, j, i % 4])
    sch.transform_layout("matmul", "a_global", lambda i, k: [i // 4, k, i % 4], 0, rewrite_loops=True)
    i, j, k = sch.get_loops("matmul")
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, j, k, i1)
    sch.unroll(i1)
    made = {boundary: general(sch.trace.to_json(), shape.func, ROWS.func, TARGET, boundary) for boundary in BOUNDARIES}
    steps = [step[0] for step in made["over"].trace.to_json()]
    assert "remove_branching_through_overcompute" in steps, steps
    kernel = ss.build(made["over"].func, "cpu")
    for m in (1, 5, 64):
        a, b = np.ones((m, 16), np.float32), np.arange(512, dtype=np.float32).reshape(16, 32)
        np.testing.assert_array_equal(kernel(a, b), a @ b)


def test_one_schedule_has_all_sizes_where_several_do_not_go_together() -> None:
    """Of few rows a tile holds all, so that a loop over what it computes has as many iterations as there are rows."""
    work = ss.workload("matmul_bias_act", m=(1, 33), n=32, k=16)
    asked = settings(workload=work.name, params=dict(work.shape), target="cpu", threads=1)
    notes: list[str] = []
    search = _Search(asked, Sizes.of(resolve(asked), {}), lambda e: notes.append(str(e.get("message"))), None)
    func, whole = search.task.work.func, search.sizes.ranges
    entries = []
    for rows in (14, 6):
        sch = Schedule(func)
        outer, _ = sch.split("i", [None, rows])
        sch.reverse_compute_at("bias", outer)
        sch.unroll(sch.get_loops("bias")[1])
        entries.append(_Entry(sch.trace.to_json(), sch.func, f"{rows} rows", whole))
    (size,) = whole
    seconds = {True: (1e-6, 9e-6), False: (9e-6, 1e-6)}
    times = {n: {p: seconds[p.values[size] < 9][n] for p in search.points} for n in (0, 1)}
    assert search._chosen(entries, times) == entries[1].steps
    assert any("does not hold for some of them alone" in note for note in notes)


def test_parameters_that_are_only_written_in_other_extents_stay_as_they_are() -> None:
    """Means of any number of images: the schedule of one shape takes height and width as one axis."""
    work = ss.workload("global_avg_pool2d", n=(1, 32), c=8, h=12, w=8)
    own = work.at({"n_": 16}).func
    sch = Schedule(own)
    sch.transform_layout("pool", "x", lambda n, c, h, w: [n, c, h * 8 + w])
    fused = sch.transform_block_layout("pool", lambda n, c, h, w: [n, c, h * 8 + w])[-1]
    sch.split(fused, [None, 16])
    made = general(sch.trace.to_json(), own, work.func, TARGET)
    assert len(made.get_loops("pool")) == 4
    kernel = ss.build(made.func, TARGET)
    for n in (1, 5, 32):
        x = np.random.default_rng(n).integers(-4, 5, (n, 8, 12, 8)).astype(np.float32)
        np.testing.assert_allclose(kernel(x), x.mean(axis=(2, 3)), rtol=1e-6)
    sch = Schedule(own)
    sch.transform_layout("pool", "x", lambda n, c, h, w: [n, h, w, c])
    with pytest.raises(ScheduleError, match=r"\(8\) the extents of the parameter `x` are expressions"):
        general(sch.trace.to_json(), own, work.func, TARGET)


def test_schedules_are_built_as_they_are_proven_and_once() -> None:
    """Builders have the first ones while others are proven; what was not built in time keeps nothing from its turn."""
    asked = settings(workload=ROWS.name, params=dict(ROWS.shape), target="cpu", threads=1)
    notes: list[str] = []
    search = _Search(asked, Sizes.of(resolve(asked), {}), lambda e: notes.append(str(e.get("message"))), None)
    done: list[str] = []

    class Builders:
        def build(self, jobs: Iterable[Build]) -> list[Built | Failed]:
            replies: list[Built | Failed] = []
            for job in jobs:
                done.append(f"built {job.trace}")
                late = Failed(status="out_of_time")
                replies.append(late if len(done) > 3 else Built(kernel=Compiled({}, ()), code_hash=""))  # type: ignore[typeddict-item]
            return replies

    def proven() -> Iterator[tuple[list[Any], None]]:
        for number in range(3):
            done.append(f"proven {number}")
            yield [number], None

    kernels = search._built(Builders(), proven())  # type: ignore[arg-type]
    assert done == ["proven 0", "built [0]", "proven 1", "built [1]", "proven 2", "built [2]"]
    assert [kernel is None for kernel in kernels] == [False, True, True]
    assert notes[-1] == "the time was over before 2 of 3 schedules for all sizes had been built"
    assert search._built(Builders(), [([0], None)]) == kernels[:1] and len(done) == 6  # type: ignore[arg-type]
