"""Stages in chunks of rows: one shared loop, only chunks in memory, and the same results."""

from __future__ import annotations

from dataclasses import replace
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
from stridesmith.backends.render.opencl.program import generate as source_of
from stridesmith.ir.expr import variables
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Allocate, For, If, PrimFunc
from stridesmith.search.tasks.task import name_of
from stridesmith.search.workers import jobs
from stridesmith.search.workers.protocol import Compiled, Verified, Verify
from stridesmith.space.design.program import anchors
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.design.techniques.chunks import Rows, chunk_sizes
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


PIXELS = """
@T.prim_func
def channels(x: T.Buffer((1, 6, 100), "float32"), y: T.Buffer((1, 6, 100), "float32")):
    m = T.alloc_buffer((1, 100), "float32")
    e = T.alloc_buffer((1, 6, 100), "float32")
    s = T.alloc_buffer((1, 100), "float32")
    for n, p, c in T.grid(1, 100, 6):
        with T.block("peak"):
            vn, vp, vc = T.axis.remap("SSR", [n, p, c])
            with T.init():
                m[vn, vp] = T.float32("-inf")
            m[vn, vp] = T.max(m[vn, vp], x[vn, vc, vp])
    for n, c, p in T.grid(1, 6, 100):
        with T.block("power"):
            vn, vc, vp = T.axis.remap("SSS", [n, c, p])
            e[vn, vc, vp] = T.exp(x[vn, vc, vp] - m[vn, vp])
    for n, p, c in T.grid(1, 100, 6):
        with T.block("total"):
            vn, vp, vc = T.axis.remap("SSR", [n, p, c])
            with T.init():
                s[vn, vp] = T.float32(0)
            s[vn, vp] = s[vn, vp] + e[vn, vc, vp]
    for n, c, p in T.grid(1, 6, 100):
        with T.block("share"):
            vn, vc, vp = T.axis.remap("SSS", [n, c, p])
            y[vn, vc, vp] = e[vn, vc, vp] / s[vn, vp]
"""

GROUPS = """
@T.prim_func
def groups(x: T.Buffer((20, 40), "float32"), y: T.Buffer((20, 40), "float32")):
    s = T.alloc_buffer((5,), "float32")
    for g, c, p in T.grid(5, 4, 40):
        with T.block("total"):
            vg, vc, vp = T.axis.remap("SRR", [g, c, p])
            with T.init():
                s[vg] = T.float32(0)
            s[vg] = s[vg] + x[vg * 4 + vc, vp] * x[vg * 4 + vc, vp]
    for c, p in T.grid(20, 40):
        with T.block("normal"):
            vc, vp = T.axis.remap("SS", [c, p])
            y[vc, vp] = x[vc, vp] * T.rsqrt(s[vc // 4] + T.float32(1))
"""

EPILOGUE = """
@T.prim_func
def mixed(e: T.Buffer((10, 40), "float32"), v: T.Buffer((10, 40, 24), "float32"), y: T.Buffer((10, 24), "float32")):
    z = T.alloc_buffer((10,), "float32")
    o = T.alloc_buffer((10, 24), "float32")
    for g, i in T.grid(10, 40):
        with T.block("total"):
            vg, vi = T.axis.remap("SR", [g, i])
            with T.init():
                z[vg] = T.float32(0)
            z[vg] = z[vg] + e[vg, vi] * e[vg, vi]
    for g, c, i in T.grid(10, 24, 40):
        with T.block("mix"):
            vg, vc, vi = T.axis.remap("SSR", [g, c, i])
            with T.init():
                o[vg, vc] = T.float32(0)
            o[vg, vc] = o[vg, vc] + e[vg, vi] * v[vg, vi, vc]
    for g, c in T.grid(10, 24):
        with T.block("share"):
            vg, vc = T.axis.remap("SS", [g, c])
            y[vg, vc] = o[vg, vc] / (z[vg] + T.float32(1))
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


def sizes_of(func: PrimFunc, prefix: str = "rows=") -> list[int]:
    """The sizes of a program's chunks along its first axis."""
    names = [sketch.name.split(";")[0] for sketch in in_chunks(func)]
    return list(dict.fromkeys(int(name.removeprefix(prefix)) for name in names if name.startswith(prefix)))


@pytest.mark.parametrize(
    ("rows", "sizes"), [(12, [1, 2, 4]), (6, [1, 2]), (49, [1, 2, 4, 7, 16]), (588, [1, 2, 4, 7, 14, 28]), (7, [1, 2])]
)
def test_chunks_are_divisors_where_they_can_be(rows: int, sizes: list[int]) -> None:
    """About powers of two, divisors if there are; each thread has a chunk, and none a third more than its share."""
    for name in SHAPES:
        assert sizes_of(workload(name, **SHAPES[name] | {"rows": rows}).func) == sizes


@pytest.mark.parametrize("text", [PIXELS, GROUPS, EPILOGUE], ids=["pixels", "groups", "epilogue"])
def test_rows_are_found_by_what_stages_hand_on(text: str) -> None:
    """Pixels between other axes, digits, and results that an element-wise block takes up are rows as well."""
    func = func_of(text)
    sketches = in_chunks(func)
    assert sketches
    want = {poison: logical_results(func, poison) for poison in POISONS}
    for sketch in sketches[:: max(1, len(sketches) // 4)]:
        for choice in sketch.draw(np.random.default_rng(5), scaled(2)):
            made = sketch.schedule(choice).func
            lowered = lower(made, CPU)
            assert sum(isinstance(node, For) and node.kind == "parallel" for node in walk(lowered.body)) == 1
            for poison, results in want.items():
                for key, array in logical_results(made, poison).items():
                    np.testing.assert_allclose(array, results[key], rtol=1e-5, err_msg=str(sketch.labels(choice)))


def test_vectors_run_along_rows_that_are_contiguous() -> None:
    """A chunk of pixels is whole vectors in every stage, and a tile of them divides it; the last one may be shorter."""
    lanes = CPU.vector_lanes("float32")
    for sketch in in_chunks(func_of(PIXELS)):
        size = int(sketch.name.removeprefix("rows=").split(";")[0])
        assert size % lanes == 0 and 100 % size
        for part in sketch.parts:
            axis = part.anchor.axes[part.structure.vec]
            assert axis.extent == size
            shapes = part.decisions[part.of("tile")[part.structure.vec]].values
            assert shapes and all(size % (vectors * lane) == 0 for vectors, lane in shapes)


def test_whole_chunks_test_nothing() -> None:
    """Where the last chunk is shorter, a condition over chunks stands around their tiles, and is over nothing else."""
    ragged = 0
    for sketch in in_chunks(func_of(PIXELS)):
        for choice in sketch.draw(np.random.default_rng(6), scaled(3)):
            body = lower(sketch.schedule(choice).func, CPU).body
            (chunks,) = (n for n in walk(body) if isinstance(n, For) and n.kind == "parallel")
            tested = [variables(n.cond) for n in walk(body) if isinstance(n, If) and chunks.var in variables(n.cond)]
            assert all(names == {chunks.var} for names in tested), sketch.labels(choice)
            ragged += bool(tested)
    assert ragged


@pytest.mark.parametrize("text", [PIXELS, GROUPS, EPILOGUE], ids=["pixels", "groups", "epilogue"])
def test_names_of_variables_decide_nothing(text: str) -> None:
    """A program with other names, whose loops are in another order, has the same chunks."""
    other = text.replace("for n, p, c in T.grid(1, 100, 6)", "for c, n, p in T.grid(6, 1, 100)")
    other = other.replace("for n, c, p in T.grid(1, 6, 100)", "for p, c, n in T.grid(100, 6, 1)")
    other = other.replace("vp", "a").replace("vg", "b").replace("vc", "aa")
    assert [s.name for s in in_chunks(func_of(other))] == [s.name for s in in_chunks(func_of(text))]


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
        assert [loop.extent.value for loop in loops] == [-(-SHAPES[name]["rows"] // rows)]  # type: ignore[attr-defined]
        assert lowered.workspaces == ()
        handed = [n.buffer for n in walk(lowered.body) if isinstance(n, Allocate) and n.buffer.scope == "global"]
        assert handed and all(buffer.size <= rows * SHAPES[name]["cols"] for buffer in handed)
        kernel = Compiled(compile_lowered(lowered, CPU), arguments_of(func))
        reply = jobs.run(Verify(kernel=kernel, work=name_of(work), seed=1))
        assert isinstance(reply, Verified), f"{reply}: {sketch.labels(choice)}"


def test_stages_that_need_other_rows_stay_apart() -> None:
    """A maximum of each row is there after its chunk, one of each column after one of columns, others later."""
    rows, columns = (func_of(ROWS_AND_COLUMNS.format(kinds=k, kept=v)) for k, v in (("SR", "vi"), ("RS", "vj")))
    assert sizes_of(rows) == [1, 2, 4, 8] and sizes_of(columns) == [8]
    turned = ROWS_AND_COLUMNS.format(kinds="SR", kept="vi")
    assert turned.count("/ m[vi]") == 1
    assert not in_chunks(func_of(turned.replace("/ m[vi]", "/ m[23 - vi]")))
    assert not in_chunks(func_of(turned.replace("/ m[vi]", "/ (m[vi] + m[vj])")))


def test_programs_without_chunks() -> None:
    """A single stage, also with an epilogue or a producer of its own, has none, and no program on a GPU."""
    assert not in_chunks(workload("row_sum", rows=8, cols=40).func)
    assert not in_chunks(workload("conv2d_bias_act", ci=3, h=8, w=8, co=8, k=3).func)
    softmax = workload("softmax", **SHAPES["softmax"]).func
    assert not any(sketch.chunks for sketch in generate(softmax, replace(OPENCL, is_cpu_device=False)).sketches)


def test_an_opencl_device_of_a_cpu_has_one_kernel_for_all_stages() -> None:
    """A work-group of one item for each chunk, whose rows are its own memory, or one for all."""
    softmax = workload("softmax", **SHAPES["softmax"]).func
    sketches = [sketch for sketch in generate(softmax, OPENCL).sketches if sketch.chunks]
    assert sketches
    for sketch in sketches[::4]:
        rows = int(sketch.name.removeprefix("rows=").split(";")[0])
        number = next(n for n, d in enumerate(sketch.decisions) if d.name.endswith("/threads"))
        drawn = sketch.draw(np.random.default_rng(2), 20)
        for alone in (0, 1):
            choice = drawn[drawn[:, number] == alone][0].tolist()
            lowered = lower(sketch.schedule(choice).func, OPENCL)
            (launch,) = source_of(lowered, OPENCL).launches
            assert launch.local_size == (1, 1, 1) and lowered.workspaces == ()
            assert launch.global_size[0] == (1 if alone else -(-SHAPES["softmax"]["rows"] // rows))


MEANS = """
@T.prim_func
def means(x: T.Buffer((1, 8, 6, 6), "float32"), y: T.Buffer((1, 8, 1, 1), "float32")):
    total = T.alloc_buffer((1, 8, 1, 1), "float32")
    for i, j, k, l in T.grid(1, 8, 6, 6):
        with T.block("sum"):
            vi, vj, vk, vl = T.axis.remap("SSRR", [i, j, k, l])
            with T.init():
                total[vi, vj, 0, 0] = T.float32(0)
            total[vi, vj, 0, 0] = total[vi, vj, 0, 0] + x[vi, vj, vk, vl]
    for i, j in T.grid(1, 8):
        with T.block("mean"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj, 0, 0] = total[vi, vj, 0, 0] / T.float32(36)
"""


def test_a_single_row_in_a_chunk_may_have_axes_before_it() -> None:
    """The chunk's loop stays outside of those of every other axis, here of a batch of one image."""
    func = func_of(MEANS)
    single = [sketch for sketch in in_chunks(func) if sketch.name.startswith("rows=1;")]
    assert single
    for sketch in single:
        for choice in sketch.draw(np.random.default_rng(0), 4):
            loops = [n for n in walk(sketch.schedule([int(c) for c in choice]).func) if isinstance(n, For)]
            assert sum(loop.kind == "parallel" for loop in loops) == 1


def test_sizes_of_many_rows_are_found_as_quickly() -> None:
    """Only divisors that a chunk may have are looked for, of 10^15 rows as of a thousand."""
    found = anchors(workload("softmax", rows=64, cols=16).func, {})
    assert chunk_sizes(Rows((0,) * len(found), 10**15, along=False), found, CPU) == [1, 2, 4, 8, 16, 32]
