"""Drivers that fail, hang and crash below the OpenCL loader, in real workers: each reply says what it was.

The layer is the one of ``benchmarks/device_faults.py``, which puts the same faults into whole runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import device_faults
import pytest
from device_faults import Fault

from stridesmith.backends.devices import discover
from stridesmith.errors import DeviceMissing
from stridesmith.ir.target import Target
from stridesmith.search.records.status import DEVICE_LOST
from stridesmith.search.tasks.task import name_of
from stridesmith.search.workers.bench import Bench
from stridesmith.search.workers.protocol import Build, Built, CheckDevice, Done, Failed, Measure, Measured
from stridesmith.space.workloads import workload

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="layers are shared objects of Linux here"),
    pytest.mark.timeout(180),
]

WORK = workload("matmul", m=5, n=7, k=3)
Meet = Callable[[Fault], None]


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return device_faults.compiled(tmp_path_factory.mktemp("layer"))
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def target() -> Target:
    try:
        return discover("opencl")
    except DeviceMissing as error:
        pytest.skip(str(error))


@pytest.fixture
def meet(layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Meet:
    """Lets the workers that are started from now on meet a fault; nothing was compiled before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def set_variables(fault: Fault) -> None:
        for name, value in device_faults.variables(layer, fault, 0, tmp_path).items():
            monkeypatch.setenv(name, value)

    return set_variables


def build(target: Target, deadline: float | None = None) -> Build:
    return Build(script=WORK.func.script(), target=target, deadline=deadline)


def measure(built: Built) -> Measure:
    return Measure(kernel=built.kernel, work=name_of(WORK), seed=1, repeat_ms=2)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault("build_crashes"), "crash:SIGSEGV"),
        (Fault("build_aborts"), "crash:SIGABRT"),
        (Fault("out_of_resources"), "oom"),
        (Fault("no_memory", count=2), "oom"),
        (Fault("device_lost"), DEVICE_LOST),
        (Fault("lost_at_finish"), DEVICE_LOST),
    ],
)
def test_a_fault_is_told_and_the_next_job_works(target: Target, meet: Meet, fault: Fault, status: str) -> None:
    """A build or the launch after it meets the fault once; the worker is replaced, and the same jobs work.

    pyopencl, which launches kernels for the driver's threads, tries those that are short of resources a second time.
    """
    tries = 2 if fault.kind == "out_of_resources" and not target.has_thread_pool else fault.count
    meet(replace(fault, count=tries))
    with Bench() as bench:
        reply: Built | Measured | Failed = bench.build(build(target))
        if isinstance(reply, Built):
            reply = bench.measure(measure(reply))
        assert isinstance(reply, Failed) and reply.status == status, reply
        assert reply.message
        again = bench.build(build(target))
        assert isinstance(again, Built), again
        assert isinstance(bench.measure(measure(again)), Measured)
        assert bench.worker.generation == 2


def test_a_build_that_never_ends_is_killed(target: Target, meet: Meet) -> None:
    """A driver that blocks every signal in its compiler does not outlive the deadline."""
    with Bench() as bench:
        meet(Fault("build_hangs"))
        assert isinstance(bench.measure(CheckDevice(target=discover("cpu"))), Done)  # a worker is there
        pid, start = bench.worker.pid, time.monotonic()
        reply = bench.build(build(target, deadline=3.0))
        assert isinstance(reply, Failed) and reply.status == "build_timeout", reply
        assert time.monotonic() - start < 60
        assert pid is not None and not Path(f"/proc/{pid}").exists()
        assert isinstance(bench.build(build(target)), Built)


def test_a_device_that_has_gone_is_lost_until_it_is_back(target: Target, meet: Meet) -> None:
    """Every job says so, that which looks whether the device answers included; afterwards all works as before."""
    with Bench() as bench:
        built = bench.build(build(target))
        assert isinstance(built, Built)
        bench.worker.close()
        meet(Fault("no_device"))
        for job in (build(target), measure(built), CheckDevice(target=target)):
            reply = bench.measure(job)
            assert isinstance(reply, Failed) and reply.status == DEVICE_LOST, reply
            assert "is not on this machine" in reply.message
        meet(Fault("none"))
        assert bench.measure(CheckDevice(target=target)) == Done()
        assert isinstance(bench.measure(measure(built)), Measured)
