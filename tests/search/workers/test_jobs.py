"""What a worker keeps for later jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stridesmith.backends import peak, samples
from stridesmith.backends.devices import discover
from stridesmith.backends.samples import Reference, Sample, make_samples
from stridesmith.ir.stmt import PrimFunc
from stridesmith.search.records.status import KINDS
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import Task
from stridesmith.search.workers import jobs
from stridesmith.search.workers.bench import Bench
from stridesmith.search.workers.protocol import (
    Build,
    Built,
    Choice,
    Derive,
    Done,
    Failed,
    Measured,
    MeasureRoof,
    Prepare,
    Race,
    Raced,
)
from stridesmith.space.design import space
from stridesmith.space.workloads import workload


def task() -> Task:
    work = workload("matmul", m=23, n=40, k=17)
    return Task(work, discover("cpu"), interface_of(work))


def derive(of: Task, **fields: str) -> Derive:
    return Derive(**{"script": of.script, "target": of.target, "interface": of.interface, **fields})


def drawn(of: Task) -> Build:
    """The job that builds one candidate of the task's space."""
    sketch = space.generate(of.work.func, of.target, of.interface).sketches[0]
    (choice,) = sketch.draw(np.random.default_rng(0), 1)
    indices = tuple(int(c) for c in choice)
    return Build(script=of.script, target=of.target, choice=Choice(sketch.name, indices, of.interface))


def test_a_build_finds_the_design_space_that_was_derived():
    """Nothing is derived again for a candidate of the same program, target and interface."""
    job = drawn(task())
    space._generate.cache_clear()
    assert jobs.run(derive(task())) == Done()
    derived = space._generate.cache_info().misses
    reply = jobs.run(job)
    assert isinstance(reply, Built)
    assert reply.trace
    assert space._generate.cache_info().misses == derived == 1


def test_a_program_without_a_space_is_no_candidates_fault():
    """A job that is done ahead tells what it lacks, and nothing is raised."""
    reply = jobs.run(derive(task(), script="this is no program"))
    assert isinstance(reply, Failed) and reply.status == "infrastructure"
    assert "no design space" in reply.message


def test_a_sketch_that_is_not_there_is_no_candidates_fault():
    """Driver and builder of different versions: the builder says so, and the candidate teaches nothing."""
    job = drawn(task())
    reply = jobs.run(replace(job, choice=replace(job.choice, sketch="no such sketch")))  # type: ignore[type-var]
    assert isinstance(reply, Failed) and reply.status == "infrastructure"
    assert "no such sketch" in reply.message


def test_a_reference_that_fails_is_no_candidates_fault(monkeypatch: pytest.MonkeyPatch):
    """What there is to compare with is missing: a kind of its own, and no word against the candidate."""

    def fails(*_: object) -> None:
        raise ValueError("no numbers")

    monkeypatch.setattr(jobs, "_samples", fails)
    reply = jobs.run(Prepare(work=task().name, seed=0))
    assert isinstance(reply, Failed) and reply.status == "no_reference" and not KINDS[reply.kind].teaches
    assert "no reference result: ValueError: no numbers" in reply.message and Prepare.timeout == "no_reference"


def test_a_bench_prepares_what_it_will_need():
    """The worker that derived the space is the one that builds; one that could not builds all the same."""
    job = drawn(task())
    with Bench() as bench:
        bench.prepare(derive(task(), script="this is no program"))
        bench.prepare(derive(task()))
        pid = bench.worker.pid
        assert pid is not None
        assert isinstance(bench.build(job), Built)
        assert bench.worker.pid == pid


def test_kernels_that_other_data_has_verified_race_on_one_sample(monkeypatch: pytest.MonkeyPatch):
    """The exact one, of which the reference is computed once; all samples of a seed that are there serve as well."""
    made: list[tuple[int, bool]] = []

    def making(func: PrimFunc, reference: Reference, seed: int, first: bool = False) -> tuple[Sample, ...]:
        made.append((seed, first))
        return make_samples(func, reference, seed, first)

    monkeypatch.setattr(samples, "make_samples", making)
    of = task()
    built = jobs.run(drawn(of))
    assert isinstance(built, Built)
    alone = Race(kernels=(built.kernel,), work=of.name, seed=71, rounds=1, seconds=0.1, roof=False, first=True)
    for job in (alone, alone, replace(alone, first=False), alone, replace(alone, seed=72, first=False)):
        raced = jobs.run(job)
        assert isinstance(raced, Raced) and isinstance(raced.results[0], Measured)
    assert made == [(71, True), (71, False), (72, False)]
    found = make_samples(of.work.func, of.work.reference, 71)
    (only,) = make_samples(of.work.func, of.work.reference, 71, first=True)
    assert only.bounds is None and len(found) == 2
    assert all(np.array_equal(only.expected[name], value) for name, value in found[0].expected.items())


def test_the_roof_has_the_peaks_of_types_that_are_asked_also(monkeypatch: pytest.MonkeyPatch):
    """Each type whose multiply-adds are other instructions is measured once; half floats are summed in float32."""
    measured: list[str] = []
    peaks = {"float32": 100.0, "bfloat16": 200.0, "int8": 400.0}
    monkeypatch.setattr(peak, "measure_peak", lambda _, dtype: (measured.append(dtype), peaks[dtype])[1])
    monkeypatch.setattr(peak, "measure_bandwidth", lambda _: 1e9)
    monkeypatch.setattr(peak, "measure_caches", lambda _: [])
    job = MeasureRoof(target=discover("cpu"), dtype="float32", also=("bfloat16", "float16", "int8"))
    roof = jobs.measure_roof(job, lambda: None).roof
    assert {p.dtype: p.gflops for p in roof.peaks} == {"bfloat16": 200.0, "float16": 100.0, "int8": 400.0}
    assert roof.peak_gflops == 100.0 and sorted(measured) == ["bfloat16", "float32", "float32", "int8"]
