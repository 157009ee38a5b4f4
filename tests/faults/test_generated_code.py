"""Generated code that crashes, hangs or lies, in real workers on both targets.

Every fault is a value in the reply, the next job works, and no process is left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stridesmith.backends.devices import discover
from stridesmith.errors import DeviceMissing
from stridesmith.ir.target import Target
from stridesmith.search.tasks.task import ProgramName, name_of
from stridesmith.search.workers.bench import Bench, Limits
from stridesmith.search.workers.protocol import Build, Built, Failed, Measure, Measured, Race, Raced
from stridesmith.space.workloads import workload

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc of Linux"),
    pytest.mark.timeout(180),
]

PARAMS = {"ci": 3, "co": 4, "h": 9, "w": 7, "k": 3, "pad": 1}
DEADLINE = 2.0


@pytest.fixture(scope="module", params=["cpu", "opencl"])
def target(request: pytest.FixtureRequest) -> Target:
    try:
        return discover(request.param, threads=2 if request.param == "cpu" else None)
    except DeviceMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(Limits(call=30)) as made:
        yield made


def name() -> ProgramName:
    return name_of(workload("conv2d", **PARAMS))


def build(bench: Bench, target: Target, fault: str | None = None, **fields: Any) -> Built | Failed:
    job = {"script": workload("conv2d", **PARAMS).func.script(), **fields}
    return bench.build(Build(target=target, fault=fault, **job))


def measure(bench: Bench, built: Built, **fields: Any) -> Measured | Failed:
    job = {"work": name(), **fields}
    return bench.measure(Measure(kernel=built.kernel, seed=1, repeat_ms=5, **job))


def assert_healthy(bench: Bench, target: Target) -> None:
    """A right kernel still builds, verifies and is timed."""
    built = build(bench, target)
    assert isinstance(built, Built), built
    reply = measure(bench, built)
    assert isinstance(reply, Measured), reply
    assert min(reply.samples) > 0
    assert reply.max_abs_error < 1e-3


def test_without_a_fault_all_is_well(bench: Bench, target: Target) -> None:
    """The same path without a fault gives samples and a small error."""
    assert_healthy(bench, target)


def test_a_null_store_is_a_crash(bench: Bench, target: Target) -> None:
    """A store to an address that does not exist ends the worker, not the run."""
    built = build(bench, target, "null_store")
    assert isinstance(built, Built), built
    reply = measure(bench, built)
    assert reply.status in ("crash:SIGSEGV", "crash:SIGBUS"), reply
    assert_healthy(bench, target)


def test_an_endless_kernel_is_killed_in_time(bench: Bench, target: Target) -> None:
    """The deadline ends an endless kernel within a second."""
    built = build(bench, target, "endless")
    assert isinstance(built, Built), built
    measure(bench, build(bench, target))
    start = time.monotonic()
    reply = measure(bench, built, deadline=DEADLINE)
    assert time.monotonic() - start < DEADLINE + 1
    assert reply.status == "run_timeout"
    assert_healthy(bench, target)


def test_a_dropped_tail_is_wrong_however_fast_it_claims_to_be(bench: Bench, target: Target) -> None:
    """Verification comes before timing: the lowest latency of all does not help a wrong result."""
    built = build(bench, target, "drop_tail")
    assert isinstance(built, Built), built
    reply = measure(bench, built, fault="fake_latency")
    assert reply.status == "wrong", reply
    assert "`y`" in reply.message
    assert isinstance(reply, Failed)
    assert_healthy(bench, target)


def test_a_lying_latency_is_found_out_by_the_race(bench: Bench, target: Target) -> None:
    """A right kernel that claims a nanosecond is measured again, against others, and shows its real time."""
    built = build(bench, target)
    claimed = measure(bench, built, fault="fake_latency")
    assert max(claimed.samples) <= 1e-9
    raced = bench.measure(Race(kernels=(built.kernel, built.kernel), work=name(), seed=2, rounds=4, seconds=1))
    assert isinstance(raced, Raced), raced
    assert len(raced.results) == 2
    for result in raced.results:
        assert isinstance(result, Measured)
        assert min(result.samples) > 1e-8
    assert raced.roof.peak_gflops > 0.1
    assert raced.roof.bandwidth > 1e6


def test_a_wrong_entry_loses_the_race(bench: Bench, target: Target) -> None:
    """The race verifies with fresh data: a wrong entry has no samples, the others have theirs."""
    kernels = tuple(build(bench, target, fault).kernel for fault in (None, "drop_tail"))
    raced = bench.measure(Race(kernels=kernels, work=name(), seed=3, rounds=3, seconds=1))
    right, wrong = raced.results
    assert isinstance(right, Measured) and len(right.samples) == 3
    assert isinstance(wrong, Failed) and wrong.status == "wrong"


def test_a_slow_candidate_is_timed_once(bench: Bench, target: Target) -> None:
    """Three times slower than the best is enough to know."""
    built = build(bench, target)
    assert len(measure(bench, built, best_us=1e-6).samples) == 1
    assert len(measure(bench, built, best_us=1e9).samples) >= 3


def test_an_illegal_program_is_refused(bench: Bench, target: Target) -> None:
    """An access out of bounds never reaches a compiler; the message names it."""
    script = """
@T.prim_func
def main(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            vi = T.axis.spatial(8, i)
            y[vi] = x[vi + 1]
"""
    reply = build(bench, target, script=script)
    assert reply.status == "refused"
    assert "x" in reply.message


def test_a_bad_script_or_trace_is_refused(bench: Bench, target: Target) -> None:
    """Text that does not parse, and a trace that does not fit, are refused with the reason."""
    reply = build(bench, target, script="def broken(:")
    assert reply.status == "refused" and reply.message
    script = workload("conv2d", **PARAMS).func.script()
    trace = [["split", {"loop": "no_such_loop", "factors": [None, 4]}]]
    reply = build(bench, target, script=script, trace=trace)
    assert reply.status == "refused" and "no_such_loop" in reply.message


def test_a_user_program_is_verified_against_the_interpreter(bench: Bench, target: Target) -> None:
    """A script needs no reference of its own."""
    script = """
@T.prim_func
def main(x: T.Buffer((37, 5), "float32"), y: T.Buffer((37,), "float32")):
    for i, k in T.grid(37, 5):
        with T.block("b"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi, vk] * x[vi, vk]
"""
    for fault, status in ((None, "ok"), ("drop_tail", "wrong")):
        built = build(bench, target, fault, script=script)
        reply = measure(bench, built, work=ProgramName(script=script))
        assert (reply.kind if isinstance(reply, Failed) else "ok") == status, reply
