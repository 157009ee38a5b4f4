"""What a worker keeps for later jobs."""

from __future__ import annotations

import numpy as np

from stridesmith.backends.devices import discover
from stridesmith.search import jobs
from stridesmith.search.bench import Bench
from stridesmith.search.final import derive_job, drawn_job
from stridesmith.search.task import Task, interface_of
from stridesmith.space.design import space
from stridesmith.space.workloads import workload


def task() -> Task:
    work = workload("matmul", m=23, n=40, k=17)
    return Task(work, discover("cpu"), interface_of(work))


def drawn(of: Task) -> dict[str, object]:
    """The job that builds one candidate of the task's space."""
    sketch = space.generate(of.work.func, of.target, of.interface).sketches[0]
    (choice,) = sketch.draw(np.random.default_rng(0), 1)
    return drawn_job(of, sketch.name, choice)


def test_a_build_finds_the_design_space_that_was_derived():
    """Nothing is derived again for a candidate of the same program, target and interface."""
    job = drawn(task())
    space._generate.cache_clear()
    assert jobs.run(derive_job(task())) == {"status": "ok"}
    derived = space._generate.cache_info().misses
    reply = jobs.run(job)
    assert reply["status"] == "ok"
    assert reply["trace"]
    assert space._generate.cache_info().misses == derived == 1


def test_a_program_without_a_space_is_no_candidates_fault():
    """A job that is done ahead tells what it lacks, and nothing is raised."""
    reply = jobs.run(derive_job(task()) | {"script": "this is no program"})
    assert reply["status"] == "infrastructure"
    assert "no design space" in reply["message"]


def test_a_bench_does_ahead_what_is_expected():
    """The worker that derived the space is the one that builds; one that could not builds all the same."""
    job = drawn(task())
    with Bench() as bench:
        bench.expect(derive_job(task()) | {"script": "this is no program"})
        bench.expect(derive_job(task()))
        pid = bench.worker.pid
        assert pid is not None
        assert bench.build(job)["status"] == "ok"
        assert bench.worker.pid == pid
