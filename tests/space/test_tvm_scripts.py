"""Schedule scripts in TensorIR's words: what is written for TVM runs after a change of its imports.

The scripts use ``tir.Schedule``, ``get_block`` and the rest with TVM's names, argument order
and keywords; only ``from tvm.script import tir as T`` and ``from tvm import tir`` have become
``from stridesmith import T`` and ``import stridesmith as tir``.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import stridesmith as tir
from stridesmith import T, configs
from stridesmith.space.schedule import Schedule, Trace


@T.prim_func
def matmul(A: T.Buffer((128, 96), "float32"), B: T.Buffer((96, 160), "float32"), C: T.Buffer((128, 160), "float32")):
    for i, j, k in T.grid(128, 160, 96):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def matmul_relu(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32"), D: T.Buffer((64, 64), "float32")):
    C = T.alloc_buffer((64, 64), "float32")
    for i, j, k in T.grid(64, 64, 64):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(64, 64):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], T.float32(0))


@T.prim_func
def vector_sum(A: T.Buffer((4096,), "float32"), S: T.Buffer((1,), "float32")):
    for o, k in T.grid(1, 4096):
        with T.block("S"):
            vo, vk = T.axis.remap("SR", [o, k])
            with T.init():
                S[vo] = T.float32(0)
            S[vo] = S[vo] + A[vk]


def inputs(func: tir.PrimFunc) -> list[np.ndarray]:
    """Small integers for every parameter but the last, which starts as NaN."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, b.shape).astype(b.dtype) for b in func.buffers]
    arrays[-1][...] = np.nan
    return arrays


def check(sch: Schedule, original: tir.PrimFunc) -> None:
    """The scheduled program computes what the original does, and its trace replays from JSON and text."""
    got, expected = inputs(original), inputs(original)
    tir.interpret(sch.func, *got)
    tir.interpret(original, *expected)
    np.testing.assert_array_equal(got[-1], expected[-1])
    assert Trace.from_json(sch.trace.to_json()).replay(original).func == sch.func
    assert Trace.from_script(sch.trace.script()) == sch.trace


def blocked_cpu_matmul() -> Schedule:
    """Cache blocking, a local accumulator, a separate init, vectors, threads, unrolling."""
    sch = tir.Schedule(matmul)
    block_c = sch.get_block("C")
    i, j, k = sch.get_loops(block_c)
    i0, i1 = sch.split(i, factors=[None, 8])
    j0, j1 = sch.split(j, factors=[None, 32])
    k0, k1 = sch.split(k, factors=[None, 4])
    sch.reorder(i0, j0, k0, i1, k1, j1)
    write_cache = sch.cache_write(block_c, 0, "local")
    sch.reverse_compute_at(write_cache, j0)
    init = sch.decompose_reduction(block_c, k0)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.vectorize(j1)
    sch.vectorize(sch.get_loops(write_cache)[-1])
    sch.parallel(i0)
    sch.unroll(k1)
    sch.annotate(block_or_loop=i0, ann_key="pragma_auto_unroll_max_step", ann_val=16)
    return sch


def test_a_blocked_matmul_for_a_cpu() -> None:
    """The tutorials' blocked product: the program, the compiled kernel and the trace agree."""
    sch = blocked_cpu_matmul()
    check(sch, matmul)
    a, b, _ = inputs(matmul)
    np.testing.assert_array_equal(tir.build(sch.func, "cpu")(a, b), a @ b)


def test_packing_an_operand() -> None:
    """Array packing: B is read through a packed copy, which is computed where its panel is needed."""
    sch = tir.Schedule(matmul)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    j0, j1 = sch.split(j, factors=[None, 32])
    sch.reorder(j0, i, k, j1)
    packed = sch.cache_read(block, 1, "global")
    sch.compute_at(packed, j0)
    sch.transform_layout(packed, ("write", 0), lambda k, j: [j // 32, k, j % 32])
    sch.vectorize(j1)
    check(sch, matmul)


def test_options_that_tvm_prints_are_understood() -> None:
    """Options as TVM's traces spell them out are accepted where they ask for what happens, and refused elsewhere."""
    sch = tir.Schedule(matmul)
    b0 = sch.get_block(name="C", func_name="main")
    l1, l2, l3 = sch.get_loops(block=b0)
    v4, v5 = sch.sample_perfect_tile(loop=l1, n=2, max_innermost_factor=64, decision=[16, 8])
    l6, l7 = sch.split(loop=l1, factors=[v4, v5], preserve_unit_iters=True, disable_predication=False)
    sch.reorder(l6, l2, l7, l3)
    l8 = sch.fuse(l6, l2, preserve_unit_iters=True)
    b9 = sch.cache_write(block=b0, write_buffer_index=0, storage_scope="local", consumer_blocks=None)
    sch.reverse_compute_at(block=b9, loop=l8, preserve_unit_loops=True, index=-1)
    sch.parallel(loop=l8)
    check(sch, matmul)
    with pytest.raises(tir.ScheduleError, match="`split` takes disable_predication=False only, but got True"):
        sch.split(l3, [None, 5], disable_predication=True)
    with pytest.raises(tir.ScheduleError, match="function `other` is not the one that is worked on, `matmul`"):
        sch.get_block("C", "other")


def gpu_matmul() -> Schedule:
    """Thread binding with tiles in local memory."""
    sch = tir.Schedule(matmul)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, factors=[None, 4, 2])
    j0, j1, j2 = sch.split(j, factors=[None, 8, 4])
    k0, k1 = sch.split(k, factors=[None, 8])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    sch.bind(i1, "threadIdx.y")
    sch.bind(j1, "threadIdx.x")
    local = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(local, j1)
    sch.decompose_reduction(block, k0)
    sch.unroll(k1)
    return sch


def test_a_matmul_bound_to_threads() -> None:
    """Blocks and threads as on a GPU, with the result in local memory."""
    check(gpu_matmul(), matmul)


def test_fusing_an_epilogue() -> None:
    """A consumer moves into the producer's tile, or disappears into it."""
    sch = tir.Schedule(matmul_relu)
    block_c, block_d = sch.get_block("C"), sch.get_block("D")
    assert sch.get_consumers(block_c) == [block_d] and sch.get_producers(block_d) == [block_c]
    i, j, k = sch.get_loops(block_c)
    i0, i1 = sch.split(i, factors=[8, None])
    sch.reorder(i0, j, i1, k)
    sch.reverse_compute_at(block_d, j)
    sch.set_scope(block_c, 0, "local")
    fused = sch.fuse(i0, j)
    sch.parallel(fused)
    check(sch, matmul_relu)
    assert sch.get_output_blocks(scope_block="root") == [block_d]


def test_a_sum_in_parts() -> None:
    """`rfactor` gives parts that run in parallel."""
    sch = tir.Schedule(vector_sum)
    block = sch.get_block("S")
    _, k = sch.get_loops(block)
    k0, _k1 = sch.split(k, factors=[16, None])
    parts = sch.rfactor(k0, factor_axis=0)
    sch.parallel(sch.get_loops(parts)[1])
    check(sch, vector_sum)


@T.prim_func
def mma_desc(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
    for i, j, k in T.grid(4, 8, 4):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def mma_impl(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
    for i, k in T.grid(4, 4):
        with T.block("fma"):
            vi, vk = T.axis.remap("SR", [i, k])
            C[vi, T.Ramp(0, 1, 8)] = T.fma(T.Broadcast(A[vi, vk], 8), B[vk, T.Ramp(0, 1, 8)], C[vi, T.Ramp(0, 1, 8)])


@T.prim_func
def small(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 16), "float32"), C: T.Buffer((8, 16), "float32")):
    for i, j, k in T.grid(8, 16, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def test_a_user_intrinsic() -> None:
    """The tensorize tutorial: register a description and an implementation, block the loops, tensorize."""
    tir.TensorIntrin.register("tutorial_mma_4x8x4", mma_desc, mma_impl, override=True)
    sch = tir.Schedule(small)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, factors=[None, 4])
    j0, j1 = sch.split(j, factors=[None, 8])
    k0, k1 = sch.split(k, factors=[None, 4])
    sch.reorder(i0, j0, k0, i1, j1, k1)
    tile = sch.blockize(i1)
    sch.decompose_reduction(tile, k0)
    sch.tensorize(tile, "tutorial_mma_4x8x4")
    check(sch, small)


def test_sampled_tiles() -> None:
    """A probabilistic schedule: the same seed gives the same program, and every draw computes the product."""

    def sketch(seed: int) -> Schedule:
        sch = tir.Schedule(matmul, seed=seed)
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        i0, i1, i2 = sch.split(i, factors=[*sch.sample_perfect_tile(i, n=3, max_innermost_factor=16)])
        j0, j1 = sch.split(j, factors=sch.sample_perfect_tile(loop=j, n=2, max_innermost_factor=64))
        sch.reorder(i0, j0, i1, k, i2, j1)
        step = sch.sample_categorical(candidates=[0, 16, 64], probs=[0.4, 0.3, 0.3])
        sch.annotate(i0, ann_key="pragma_auto_unroll_max_step", ann_val=step)
        return sch

    assert sketch(4).func == sketch(4).func
    for seed in range(3):
        check(sketch(seed), matmul)


@pytest.mark.parametrize("make", [blocked_cpu_matmul, gpu_matmul])
def test_schedules_lower(make) -> None:
    """What the scripts make passes the proofs of lowering."""
    target = configs.target("cpu-avx2" if make is blocked_cpu_matmul else "opencl-cpu")
    assert tir.lower(make().func, target).body is not None


PRIMITIVES_OF_TENSORIR = (
    "sample_categorical", "sample_perfect_tile", "sample_partitioned_tile", "sample_compute_location", "merge",
    "fuse", "split", "loop_partition", "reorder", "reorder_block_iter_var", "add_unit_loop", "parallel",
    "vectorize", "bind", "unroll", "cache_read", "cache_write", "reindex_cache_read", "reindex_cache_write",
    "cache_inplace", "cache_index", "reindex", "read_at", "write_at", "compute_at", "reverse_compute_at",
    "compute_inline", "reverse_compute_inline", "fuse_reduction_epilogue", "decompose_reduction", "rfactor",
    "storage_align", "set_scope", "unsafe_set_dtype", "blockize", "tensorize", "annotate", "unannotate",
    "transform_layout", "transform_block_layout", "decompose_padding", "pad_einsum", "rolling_buffer",
    "enter_postproc", "unsafe_hide_buffer_access", "annotate_buffer_access",
)  # fmt: skip


@pytest.mark.parametrize("name", PRIMITIVES_OF_TENSORIR)
def test_every_primitive_of_tensorir_is_here_or_the_page_names_what_is(name: str) -> None:
    """Those of apache-tvm 0.27; the first column of the page's table has what is called otherwise here."""
    page = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text(encoding="utf-8")
    table = page.partition("## Where TensorIR has another one")[2].partition("\n## ")[0]
    first = (line.split("|")[1] for line in table.splitlines() if "|" in line)
    rows = {word for column in first for word in re.findall(r"`(\w+)`", column)}
    assert (name in dir(Schedule(matmul))) != (name in rows)
