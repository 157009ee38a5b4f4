"""Which measurements have the host for themselves, and which devices builds do not disturb."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stridesmith.configs import load
from stridesmith.ir.target import HOST_MEMORY, Target
from stridesmith.search.tasks.task import ProgramName
from stridesmith.search.workers import host_lock
from stridesmith.search.workers.bench import Bench, _is_apart
from stridesmith.search.workers.protocol import (
    CheckDevice,
    Compiled,
    Done,
    Job,
    Measure,
    MeasureRoof,
    Prepare,
    Race,
    Reply,
)

GPU = load.target("opencl-gpu")
BESIDE = replace(GPU, features=f"{GPU.features} {HOST_MEMORY}")
CPUS = [Target(), load.target("opencl-cpu")]


def kernel(target: Target) -> Compiled:
    artifact: Any = {"target": target.to_json()}
    return Compiled(artifact=artifact, layouts=())


@pytest.mark.parametrize(
    ("target", "apart"),
    [(GPU, True), (replace(GPU, clock="host"), False), (BESIDE, False), *[(cpu, False) for cpu in CPUS]],
)
def test_builds_go_on_where_they_do_not_disturb(target: Target, apart: bool) -> None:
    """Beside a device with memory and a clock of its own; not where the host's clock or memory is in the times."""
    assert target.is_apart is apart
    for job in (
        Measure(kernel=kernel(target), work=("matmul", "{}"), seed=0),
        Race(kernels=(kernel(target),), work=("matmul", "{}"), seed=0),
        MeasureRoof(target=target, dtype="float32"),
    ):
        assert _is_apart(job) is apart


def test_a_race_of_several_devices_has_the_host_if_one_of_them_needs_it() -> None:
    """So has one of no kernel, and whatever else is asked of a bench."""
    both = (kernel(GPU), kernel(CPUS[1]))
    assert not _is_apart(Race(kernels=both, work=("matmul", "{}"), seed=0))
    assert not _is_apart(Race(kernels=(), work=("matmul", "{}"), seed=0))
    assert not _is_apart(CheckDevice(target=GPU))


@pytest.mark.parametrize(("target", "turn"), [(GPU, [False, True]), (Target(), [True, True])])
def test_a_gpu_is_opened_before_the_turn(
    target: Target, turn: list[bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Others measure there while a process makes its context and the reference results, which takes seconds."""
    monkeypatch.setattr(host_lock, "FOLDER", tmp_path)
    held: list[tuple[str, bool]] = []
    name = "accelerators" if target is GPU else "device"

    def request(job: Job[Any], *_: float) -> Reply:
        held.append((type(job).__name__, _is_held(name)))
        return Done()

    bench = Bench()
    monkeypatch.setattr(bench.worker, "request", request)
    bench.measure(Measure(kernel=kernel(target), work=("matmul", "{}"), seed=0))
    assert held == list(zip(["Prepare", "Measure"], turn, strict=True))


def _is_held(name: str) -> bool:
    """Whether somebody has a lock alone."""
    descriptor = host_lock._open(name)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_records_of_other_clocks_are_not_compared() -> None:
    """The key of a device that times kernels by itself says so, since launches are not in its times."""
    assert GPU.key == replace(GPU, clock="host").key + "|clock=device"
    old = GPU.to_json()
    del old["clock"], old["warp"]
    assert (Target.from_json(old).clock, Target.from_json(old).warp) == ("host", 1)


def test_cores_are_those_of_this_machine() -> None:
    """A GPU's compute units are none; an OpenCL device of the CPU has the CPU's."""
    assert GPU.cores is None and load.target("opencl-cpu").cores == 2 and Target(threads=3).cores == 3


def test_references_are_asked_for_before_each_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker may have dropped them for another program's, and then no candidate's deadline pays for them."""
    bench, asked = Bench(), list[object]()

    def request(job: object, *_: object) -> Done:
        asked.append(job)
        return Done()

    monkeypatch.setattr(bench.worker, "request", request)
    job = Prepare(work=ProgramName(name="matmul"), seed=1)
    assert [bench._prepare(job), bench._prepare(job)] == [None, None] and asked == [job, job]
