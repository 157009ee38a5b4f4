"""Builds on all cores are the builds of one process, whoever does them and whatever becomes of a worker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from stridesmith.backends.devices import discover
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.workers import jobs, spread
from stridesmith.search.workers.bench import Bench
from stridesmith.search.workers.protocol import Build, Built, Failed
from stridesmith.space.workloads import workload

ROWS = range(5, 5 + 2 * spread.FEWEST)


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[Build]:
    """Programs that differ in their extents, on a machine of two cores."""
    monkeypatch.setattr(spread, "usable_threads", lambda: 2)
    work = [workload("add_act", rows=rows, cols=9) for rows in ROWS]
    return [Build(script=w.script, target=discover("cpu", 1), estimated=dict(interface_of(w))) for w in work]


def hashes(replies: Iterable[Built | Failed]) -> list[str]:
    return [reply.code_hash if isinstance(reply, Built) else reply.status for reply in replies]


def test_workers_build_the_same_as_this_process(wanted: list[Build], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies come in the order of the jobs, each of which one worker does, and this process none."""
    there = list[tuple[int, Build]]()
    build_there, build_here = Bench.build, spread.build_here

    def noted(bench: Bench, job: Build) -> Built | Failed:
        there.append((id(bench), job))
        return build_there(bench, job)

    right = hashes(build_here(wanted))
    monkeypatch.setattr(Bench, "build", noted)
    monkeypatch.setattr(spread, "build_here", lambda _: pytest.fail("this process builds"))
    with spread.AllCores() as build:
        assert hashes(build(wanted)) == right
        assert sorted(job.script for _, job in there) == sorted(job.script for job in wanted)
        benches = {bench for bench, _ in there}
        assert len(benches) == 2
        assert hashes(build(wanted[:3])) == right[:3]  # the workers are there already
        assert {bench for bench, _ in there} == benches


def test_what_begins_with_one_program_is_built_where_that_is_known() -> None:
    """As long as another worker has something else to do; then it helps."""
    first, begun = ("a", "b", None, None, None, None, "c"), (None, None, "a", "b", "a", "a", None)
    pairs = zip(first, begun, strict=True)
    given = [Build(script=own or "another", target=discover("cpu", 1), like=like) for own, like in pairs]
    left = spread._Left(given)
    mine, other = left.take(None), left.take(None)
    assert (mine, other) == (0, 1)
    assert [left.take(0), left.take(2)] == [2, 4]
    assert [left.take(1), left.take(3), left.take(6)] == [3, 6, 5]
    assert left.take(4) is None


def test_workers_that_began_do_the_builds(wanted: list[Build], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has built a small program by then; where there will be few builds, none begins."""
    there = list[tuple[int, str]]()

    def noted(bench: Bench, job: Build) -> Failed:
        there.append((id(bench), job.script))
        return Failed(status="refused")

    monkeypatch.setattr(Bench, "build", noted)
    with spread.AllCores() as build:
        build.begin(2 * spread.FEWEST - 1, wanted[0].target)
        build.begin(2 * spread.FEWEST, wanted[0].target)
        assert hashes(build(wanted[:2])) == ["refused", "refused"]
    began = [bench for bench, script in there if script == jobs.SMALL]
    assert len(set(began)) == len(began) == 2
    assert [script for _, script in there if script != jobs.SMALL] == [job.script for job in wanted[:2]]


def test_what_a_worker_is_lost_with_is_built_here(wanted: list[Build], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "build", lambda *_: Failed(status="infrastructure", message="gone"))
    with spread.AllCores() as build:
        assert hashes(build(wanted)) == hashes(spread.build_here(wanted))


def test_few_builds_start_no_worker(wanted: list[Build], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "Bench", lambda *_: pytest.fail("a worker was started"))
    few = wanted[: 2 * spread.FEWEST - 1]
    with spread.AllCores() as build:
        assert hashes(build(few)) == hashes(spread.build_here(few))


def test_an_error_of_a_build_is_not_taken_for_the_end_of_the_jobs(
    wanted: list[Build], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(bench: Bench, job: Build) -> Built | Failed:
        raise IndexError("of the build")

    monkeypatch.setattr(Bench, "build", fails)
    with spread.AllCores() as build, pytest.raises(IndexError, match="of the build"):
        build(wanted)
