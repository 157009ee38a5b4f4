"""Diagnosis: a record's code and limits, put on a roofline; what cannot be shown is said in one sentence."""

from __future__ import annotations

from typing import Any

import opencl_programs
import pytest
from opencl_programs import needs_device
from record_makers import make_record

from stridesmith.backends.devices import discover
from stridesmith.errors import BadRecord, DeviceMissing, StridesmithError, TemporaryError
from stridesmith.ir.target import Target
from stridesmith.search.calling.diagnosis import diagnose, schedule_text, texts
from stridesmith.search.records.record import Record
from stridesmith.search.tasks.task import Roof
from stridesmith.search.workers import jobs
from stridesmith.search.workers.protocol import Failed, Roofed
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import workload

WORK = workload("matmul", m=13, n=32, k=16)
HERE = discover("cpu", threads=1)
PEAK, BANDWIDTH = 100.0, 1e10


def tile() -> Schedule:
    """A register tile of 4 x 8 over a product of 13 rows."""
    sch = Schedule(WORK.func)
    sch.split("i", [None, 4])
    sch.split("j", [None, 8])
    sch.reorder("i_0", "j_0", "k", "i_1", "j_1")
    sch.cache_write("matmul", 0, "local")
    sch.reverse_compute_at("c_local", "j_0")
    sch.decompose_reduction("matmul", "k")
    sch.unroll("i_1")
    sch.vectorize("j_1")
    return sch


def record_of(target: Target = HERE, latency_us: float | None = 20.0, **fields: Any) -> Record:
    own = {
        "script": WORK.script, "workload": WORK.name, "params": dict(WORK.params), "target": target.to_json(),
        "trace": tile().trace.to_json(), "interface": {"a": "fixed", "b": "fixed", "c": "fixed"},
    }  # fmt: skip
    return make_record(latency_us, **{**own, **fields})


class Bench:
    """Does the jobs in this process, but for those that `replies` answers; limits are constants."""

    def __init__(self, **replies: Any) -> None:
        self.replies = {"MeasureRoof": Roofed(roof=Roof(PEAK, BANDWIDTH)), **replies}
        self.jobs: list[str] = []

    def run(self, job: Any) -> Any:
        self.jobs.append(type(job).__name__)
        return self.replies.get(self.jobs[-1]) or jobs.run(job)


def test_the_event_is_complete() -> None:
    """Every text from schedule to assembly, the inner loop, work, memory and roofline."""
    event = diagnose(record_of(), Bench()).event()
    assert (event["event"], event["workload"], event["verified"]) == ("diagnosis", "matmul", True)
    assert event["schedule"].startswith("sch.split(")
    assert "T.block" in event["program"] and "T.block" not in event["lowered"]
    assert "define void" in event["source"] and "kernel_matmul.body" in event["assembly"]
    assert event["useful_flops"] == 2 * 13 * 32 * 16
    assert event["computed_flops"] == event["useful_flops"] and event["overcompute"] == 1.0
    assert event["compulsory_bytes"] == 4 * (13 * 16 + 16 * 32 + 13 * 32)
    assert event["memory"]["parameters"] == event["compulsory_bytes"]
    assert event["inner_loop"] is None or event["inner_loop"]["flops"] == 2 * 4 * 8


@pytest.mark.parametrize(("bandwidth", "bound"), [(1e10, "memory"), (1e12, "compute")])
def test_the_roofline_is_the_lower_bound(bandwidth: float, bound: str) -> None:
    """min(peak, intensity x bandwidth), by the FLOPs and bytes of the program as given."""
    bench = Bench(MeasureRoof=Roofed(roof=Roof(PEAK, bandwidth)))
    found = diagnose(record_of(), bench).roofline
    intensity = 2 * 13 * 32 * 16 / (4 * (13 * 16 + 16 * 32 + 13 * 32))
    attainable = min(PEAK, intensity * bandwidth * 1e-9)
    gflops = 2 * 13 * 32 * 16 / 20e3
    assert found["bound"] == bound
    assert found["intensity"] == pytest.approx(intensity)
    assert found["attainable_gflops"] == pytest.approx(attainable)
    assert found["gflops"] == pytest.approx(gflops)
    assert found["roofline_fraction"] == pytest.approx(gflops / attainable)
    assert found["peak_fraction"] == pytest.approx(gflops / PEAK)
    assert found["ridge"] == pytest.approx(PEAK * 1e9 / bandwidth)


def test_a_failed_record_has_no_place_on_the_roofline() -> None:
    """It has code and limits, but was never timed."""
    found = diagnose(record_of(latency_us=None), Bench()).roofline
    assert found["attainable_gflops"] is not None
    assert found["gflops"] is None and found["roofline_fraction"] is None


def test_another_machine_of_the_same_isa_has_no_roof_here() -> None:
    """The code is shown, and a sentence says why its limits are not."""
    elsewhere = Target.from_json({**HERE.to_json(), "name": "Some other CPU"})
    bench = Bench()
    found = diagnose(record_of(elsewhere), bench)
    assert bench.jobs == ["Diagnose"] and found.roof is None
    assert "Some other CPU" in found.note and "not known" in found.note
    assert found.roofline["bound"] is None and found.roofline["intensity"] > 0
    assert "kernel_matmul" in found.event()["assembly"]


def test_another_isa_is_a_missing_device() -> None:
    """Exit 4, with both names and with what can be shown without the device."""
    foreign = Target.from_json({**HERE.to_json(), "isa": "sve", "name": "Some ARM"})
    bench = Bench()
    with pytest.raises(DeviceMissing, match=rf"for cpu\|.*sve.*this machine's CPU has {HERE.isa}, not sve; .*--trace"):
        diagnose(record_of(foreign), bench)
    with pytest.raises(DeviceMissing):
        texts(record_of(foreign), compiled=True, bench=bench)
    assert bench.jobs == []
    found = texts(record_of(foreign), bench=bench)
    assert "T.block" in found["program"] and "define void" in found["source"]


def test_an_opencl_device_that_is_not_here() -> None:
    """Exit 4 as well; the source needs no device."""
    foreign = Target(kind="opencl", name="Some GPU", platform="Some platform", max_work_group=64)
    with pytest.raises(DeviceMissing, match=r"Some GPU.*which is not here.*--source"):
        diagnose(record_of(foreign, trace=None), Bench())
    assert "__kernel" in texts(record_of(foreign, trace=None), bench=Bench())["source"]


@needs_device
def test_an_opencl_record() -> None:
    """Source and built kernels instead of assembly and inner loop."""
    target = opencl_programs.device()
    assert target is not None
    event = diagnose(record_of(target, trace=None), Bench()).event()
    assert "__kernel" in event["source"] and "assembly" not in event
    assert [kernel["groups"] for kernel in event["kernels"]] == [1]
    assert event["roofline"]["bound"] == "memory"


@pytest.mark.parametrize(
    ("reply", "error", "sentence"),
    [
        (Failed(status="refused", message="out of bounds"), BadRecord, "is refused: out of bounds"),
        (Failed(status="crash:SIGABRT", message="LLVM ERROR"), BadRecord, "ended with crash:SIGABRT: LLVM ERROR"),
        (Failed(status="build_timeout", message="60 s"), TemporaryError, "could not be built: build_timeout"),
        (Failed(status="infrastructure", message="no process"), StridesmithError, "infrastructure: no process"),
    ],
)
def test_what_cannot_be_built_says_why(reply: Failed, error: type[Exception], sentence: str) -> None:
    """A compiler that aborts takes the worker along, and is a sentence here."""
    with pytest.raises(error, match=sentence):
        diagnose(record_of(), Bench(Diagnose=reply))


def test_limits_that_cannot_be_measured() -> None:
    """A machine that is too busy is a temporary problem."""
    with pytest.raises(TemporaryError, match=r"limits of .* could not be measured: busy"):
        diagnose(record_of(), Bench(MeasureRoof=Failed(status="run_timeout", message="busy")))


def test_a_trace_of_unknown_steps_is_refused() -> None:
    """A stranger's record is read, not believed."""
    assert schedule_text(record_of(trace=None)) == "# the untuned program: no instruction"
    with pytest.raises(BadRecord, match="is refused"):
        schedule_text(record_of(trace=[["launch_missiles", {}]]))
