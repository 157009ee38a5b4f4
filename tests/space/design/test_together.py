"""Stages in chunks of rows: one shared loop, only chunks in memory, and the same results."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from expected_space import CPU, OPENCL
from goldens.execute import POISONS, logical_results
from scale import scaled

from stridesmith.backends.data import arguments_of
from stridesmith.backends.kernel import compile_lowered
from stridesmith.backends.lower import lower
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Allocate, For, PrimFunc
from stridesmith.search.tasks.task import name_of
from stridesmith.search.workers import jobs
from stridesmith.search.workers.protocol import Compiled, Verified, Verify
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

SHAPES = {"softmax": {"rows": 12, "cols": 21}, "layernorm": {"rows": 6, "cols": 19}}

TWO_PRODUCTS = """
@T.prim_func
def chain(a: T.Buffer((8, 24), "float32"), b: T.Buffer((24, 32), "float32"),
          d: T.Buffer((32, 40), "float32"), y: T.Buffer((8, 40), "float32")):
    c = T.alloc_buffer((8, 32), "float32")
    for i, j, k in T.grid(8, 32, 24):
        with T.block("one"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
    for i, j, k in T.grid(8, 40, 32):
        with T.block("two"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + c[vi, vk] * d[vk, vj]
"""

ROWS_AND_COLUMNS = """
@T.prim_func
def scaled(x: T.Buffer((24, 24), "float32"), y: T.Buffer((24, 24), "float32")):
    m = T.alloc_buffer((24,), "float32")
    for i, j in T.grid(24, 24):
        with T.block("peak"):
            vi, vj = T.axis.remap("{kinds}", [i, j])
            with T.init():
                m[{kept}] = T.float32("-inf")
            m[{kept}] = T.max(m[{kept}], x[vi, vj])
    for i, j in T.grid(24, 24):
        with T.block("share"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj] / m[{kept}]
"""


def func_of(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def in_chunks(func: PrimFunc) -> list[Sketch]:
    return [sketch for sketch in generate(func, CPU).sketches if sketch.chunks]


@lru_cache(maxsize=4)
def program(name: str) -> PrimFunc:
    """A workload at its shape here, or two matrix products, one after the other."""
    return workload(name, **SHAPES[name]).func if name in SHAPES else func_of(TWO_PRODUCTS)


@lru_cache(maxsize=4)
def expected(name: str) -> dict[float, dict[str, Any]]:
    return {poison: logical_results(program(name), poison) for poison in POISONS}


@pytest.mark.parametrize("name", SHAPES)
def test_chunks_are_divisors_of_the_rows(name: str) -> None:
    """Every chunk has as many rows, and each thread at least one chunk; rows of prime number run one by one."""
    rows = SHAPES[name]["rows"]
    sizes = {int(s.name.removeprefix("rows=").split(";")[0]) for s in in_chunks(workload(name, **SHAPES[name]).func)}
    assert sizes == {size for size in (1, 2, 4, 8, 16, 32) if rows % size == 0 and rows // size >= CPU.threads}
    prime = workload(name, **SHAPES[name] | {"rows": 7}).func
    assert {s.name.split(";")[0] for s in in_chunks(prime)} == {"rows=1"}


@pytest.mark.parametrize("name", [*SHAPES, "two products"])
def test_candidates_mean_the_same(name: str) -> None:
    """The interpreter gets the untransformed program's results, whatever workspaces hold."""
    for sketch in in_chunks(program(name)):
        for choice in sketch.draw(np.random.default_rng(3), scaled(3)):
            func = sketch.schedule(choice).func
            lower(func, CPU)
            for poison, results in expected(name).items():
                for key, array in logical_results(func, poison).items():
                    np.testing.assert_allclose(array, results[key], rtol=1e-5, err_msg=str(sketch.labels(choice)))


@pytest.mark.parametrize("name", SHAPES)
def test_threads_meet_once_and_only_chunks_are_in_memory(name: str) -> None:
    """All stages are in one parallel loop, no workspace is left, what stages hand on is a chunk; kernels verify."""
    work = workload(name, **SHAPES[name])
    for sketch in in_chunks(work.func):
        rows, (choice,) = int(sketch.name.removeprefix("rows=").split(";")[0]), sketch.draw(np.random.default_rng(4), 1)
        func = sketch.schedule(choice).func
        lowered = lower(func, CPU)
        loops = [node for node in walk(lowered.body) if isinstance(node, For) and node.kind == "parallel"]
        assert [loop.extent.value for loop in loops] == [SHAPES[name]["rows"] // rows]  # type: ignore[attr-defined]
        assert lowered.workspaces == ()
        handed = [n.buffer for n in walk(lowered.body) if isinstance(n, Allocate) and n.buffer.scope == "global"]
        assert handed and all(buffer.size <= rows * SHAPES[name]["cols"] for buffer in handed)
        kernel = Compiled(compile_lowered(lowered, CPU), arguments_of(func))
        reply = jobs.run(Verify(kernel=kernel, work=name_of(work), seed=1))
        assert isinstance(reply, Verified), f"{reply}: {sketch.labels(choice)}"


def test_stages_that_need_other_rows_stay_apart() -> None:
    """A maximum of each row is there after its chunk; one of each column only after all of them."""
    assert in_chunks(func_of(ROWS_AND_COLUMNS.format(kinds="SR", kept="vi")))
    assert not in_chunks(func_of(ROWS_AND_COLUMNS.format(kinds="RS", kept="vj")))


def test_programs_without_chunks() -> None:
    """A single stage, stages with an epilogue or a producer of their own, and devices with work-groups have none."""
    assert not in_chunks(workload("row_sum", rows=8, cols=40).func)
    assert not in_chunks(workload("conv2d_bias_act", ci=3, h=8, w=8, co=8, k=3).func)
    softmax = workload("softmax", **SHAPES["softmax"]).func
    assert not any(sketch.chunks for sketch in generate(softmax, OPENCL).sketches)
