"""Dot products of bytes: what the source says, what is refused, and that results are those of the steps, bit by bit."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from opencl_programs import GENERIC, GPU, lowered

import stridesmith as ss
from stridesmith.backends.data import arguments_of
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import LoweringError, lower
from stridesmith.backends.opencl.devices import match_opencl
from stridesmith.backends.opencl.runtime import DOT_OPTIONS, OPTIONS, build_options
from stridesmith.backends.render.opencl.program import generate
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import GUARD_BYTES, verify
from stridesmith.errors import DeviceMissing
from stridesmith.ir.expr import Binary, Buffer, Cast, Var, const
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.stmt import For, If, Stmt, Store
from stridesmith.ir.target import BYTE_DOTS, Target
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import Workload, workload

CPU_DEVICE = replace(GENERIC, features=BYTE_DOTS, vector_bits=512)
GPU_DEVICE = replace(GPU, features=f"cl_khr_fp64 {BYTE_DOTS}")

K, R = Var("k"), Var("r")
A, B, C = Buffer("A", (64,), "int8"), Buffer("B", (64,), "int8"), Buffer("C", (4,), "int32")


@lru_cache(maxsize=1)
def dot_device() -> Target | None:
    """Intel's driver for CPUs, where it is installed and offers the extension."""
    try:
        target = match_opencl("intel")
    except (ImportError, DeviceMissing):
        return None
    return target if target.dot_signs else None


needs_dots = pytest.mark.skipif(dot_device() is None, reason=f"no device of Intel's driver with {BYTE_DOTS}")


def scheduled(n: int, lanes: int, k: int = 24, rewritten: bool = True) -> tuple[Workload, Schedule]:
    """A product of bytes, four steps of its sum at once, in vectors along the columns."""
    work = workload("matmul", m=7, n=n, k=k, dtype="int8")
    sch = Schedule(work.func)
    if rewritten:
        sch.transform_layout("matmul", "b", "lambda k, j: [k // 4, j, k % 4]", 0)
    i, j, steps = sch.get_loops("matmul")
    outer, inner = sch.split(j, [None, lanes])
    fours, four = sch.split(steps, [None, 4])
    sch.reorder(i, outer, fours, inner, four)
    sch.decompose_reduction("matmul", fours)
    sch.bind(i, "blockIdx.x")
    if lanes > 1:
        sch.vectorize(inner)
    sch.annotate(four, "dot", True)
    return work, sch


def text(sch: Schedule, target: Target) -> str:
    return generate(lower(sch.func, target), target).text


def test_a_gpu_calls_the_function_in_each_lane() -> None:
    """Both operands are words of four bytes; the vector of words along the columns is one load."""
    found = text(scheduled(32, 4)[1], GPU_DEVICE)
    assert "dot_4x8packed_ss_int((uint)a.s3, (uint)b.s3)" in found
    assert "*(__global const int4*)(((__global const int_view*)b) + t_4)" in found
    assert "const int t_3 = ((__global const int_view*)a)[t_2];" in found
    scalar = text(scheduled(32, 1)[1], GPU_DEVICE)
    assert "c[t] = (int)((uint)c[t] + (uint)dot_4x8packed_ss_int((uint)t_2, (uint)t_4));" in scalar
    assert build_options(found) == build_options(scalar) == DOT_OPTIONS
    assert f"#pragma OPENCL EXTENSION {BYTE_DOTS} : enable" in found


def test_a_cpu_multiplies_vectors_in_pairs() -> None:
    """The drivers of CPUs call a function for each lane: there, vectors are products of 16 bits, added in pairs."""
    found = text(scheduled(32, 16)[1], CPU_DEVICE)
    assert "dot_int16((int16)(t_3), t_5)" in found and "p.even + p.odd" in found
    assert "dot_4x8packed" not in found and build_options(found) == OPTIONS
    assert "dot_4x8packed_ss_int(" in text(scheduled(32, 1)[1], CPU_DEVICE)


def test_what_has_no_dots_has_the_source_that_it_had() -> None:
    """Without the annotation a device with dot products gets the code of one without."""
    sch = scheduled(32, 16)[1]
    sch.unannotate(sch.get_loops("matmul")[-1], "dot")
    assert text(sch, CPU_DEVICE) == text(sch, replace(CPU_DEVICE, features=""))


@pytest.mark.parametrize("target", [GENERIC, GPU, replace(CPU_DEVICE, kind="cpu")])
def test_a_device_without_dot_products_refuses(target: Target) -> None:
    sch = scheduled(32, 1)[1]
    if target.kind == "cpu":
        sch.parallel("i")
    with pytest.raises(LoweringError, match=f"annotated with `dot`, but `{target.name}` has no dot products of bytes"):
        lower(sch.func, target)


def refusal(loop: Stmt) -> str:
    with pytest.raises(LoweringError) as error:
        generate(lowered(For(K, const(4), loop), A, B, C), CPU_DEVICE)
    return str(error.value)


def dot_loop(body: Stmt) -> For:
    return For(R, const(4), body, "serial", "", (("dot", True),))


def product(a: Buffer, at: object, b: Buffer, bt: object) -> Store:
    term = Binary("*", Cast("int32", a[at]), Cast("int32", b[bt]))
    return Store(C, (K,), Binary("+", C[K], term))


def test_other_bodies_are_refused() -> None:
    """The body is one sum of products of bytes; nothing is guessed from anything like it."""
    good = product(A, K * 4 + R, B, K * 4 + R)
    assert "dot_4x8packed_ss_int" in generate(lowered(For(K, const(4), dot_loop(good)), A, B, C), CPU_DEVICE).text
    words = Buffer("W", (64,), "int16")
    bodies = [
        Store(C, (K,), Cast("int32", A[K * 4 + R])),
        Store(C, (K,), C[K] + Cast("int32", A[K * 4 + R])),
        product(words, K * 4 + R, B, K * 4 + R),
        Store(C, (K,), C[(K + 1) % 4] + Cast("int32", A[K * 4 + R]) * Cast("int32", B[K * 4 + R])),
        If(K * 4 + R < 13, good),
        Store(C, (R,), C[R] + Cast("int32", A[K * 4 + R]) * Cast("int32", B[K * 4 + R])),
        product(Buffer("bytes_of_C", (16,), "int8", data="C"), K * 4 + R, B, K * 4 + R),
    ]
    for body in bodies:
        assert "its body is not one store" in refusal(dot_loop(body))


@pytest.mark.parametrize("at", [K * 4 + R * 2, K * 5 + R, K * 4 + R + 1, R * 4 + K, K * 4, (K * 4 + R) % 8])
def test_steps_that_are_no_words_are_refused(at: object) -> None:
    """The four steps are neighbours from a multiple of four on: an address that is not aligned has no word."""
    message = refusal(dot_loop(product(A, K * 4 + R, B, at)))
    assert "do not read `B` at neighbours of which the first is at a multiple of 4" in message


def test_texture_memory_is_refused() -> None:
    image = Buffer("A", (4, 16), "int8", "global.texture", (0,))
    target = replace(CPU_DEVICE, images=True, image_width=64, image_height=64, image_args=8, image_types="int8 float32")
    loop = dot_loop(product(image, (K, R), B, K * 4 + R))
    with pytest.raises(LoweringError, match="reads `A` from texture memory"):
        generate(lowered(For(K, const(4), loop), image, B, C), target)


@needs_dots
@pytest.mark.parametrize(
    "n, lanes, k",
    [(32, 16, 24), (35, 16, 24), (35, 8, 24), (24, 4, 24), (6, 2, 24), (5, 1, 24), (32, 16, 4), (17, 16, 44)],
)
def test_results_are_those_of_the_interpreter(n: int, lanes: int, k: int) -> None:
    """Vectors of all widths, ragged columns, and bytes from -128 to 127."""
    target = dot_device()
    assert target is not None
    work, sch = scheduled(n, lanes, k)
    found = text(sch, target)
    assert "dot_4x8packed_ss_int(" in found or f"dot_int{lanes}(" in found
    bound = load_artifact(compile_lowered(lower(sch.func, target), target)).bind(guard_bytes=GUARD_BYTES)
    assert verify(bound, arguments_of(sch.func), make_samples(work.func, work.reference, 0)).complete
    rng = np.random.default_rng(n)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((7, k), (k, n)))
    a[0], b[:, 0] = -128, -128
    bound.write(0, a)
    bound.write(1, b.reshape(k // 4, 4, n).transpose(0, 2, 1))
    bound.run()
    want = np.zeros((7, n), np.int32)
    interpret(work.func, a, b, want)
    assert (bound.read(2).reshape(7, n) == want).all() and want[0, 0] == k << 14


@needs_dots
def test_sums_wrap_around() -> None:
    """The sum of the steps is one of 32 bits: it wraps, and nothing saturates."""
    target = dot_device()
    assert target is not None
    loop = For(K, const(4), dot_loop(product(A, K * 4 + R, B, K * 4 + R)))
    bound = load_artifact(compile_lowered(lowered(loop, A, B, C), target)).bind()
    bound.write(0, np.full(64, -128, np.int8))
    bound.write(1, np.full(64, -128, np.int8))
    bound.write(2, np.full(4, 2**31 - 1, np.int32))
    bound.run()
    assert (bound.read(2) == -(2**31) + 4 * 2**14 - 1).all()


@needs_dots
def test_a_ragged_reduction_is_padded_or_done_step_by_step() -> None:
    """Of 22 steps the last two are computed over on zeros, or peeled off and done one by one."""
    target = dot_device()
    assert target is not None
    work = workload("matmul", m=3, n=20, k=22, dtype="int8")
    for over in (True, False):
        sch = Schedule(work.func)
        sch.transform_layout("matmul", "a", "lambda i, k: [i, k]", 0, physical_shape=(3, 24))
        sch.transform_layout("matmul", "b", "lambda k, j: [k // 4, j, k % 4]", 0)
        i, j, steps = sch.get_loops("matmul")
        fours, four = sch.split(steps, [None, 4])
        sch.reorder(i, fours, j, four)
        sch.decompose_reduction("matmul", fours)
        if over:
            sch.remove_branching_through_overcompute("matmul", loops=[four])
        else:
            sch.annotate(four, "peel", True)
            sch.annotate(fours, "peel", True)
        sch.bind(i, "blockIdx.x")
        sch.annotate(four, "dot", True)
        found = text(sch, target)
        assert "dot_4x8packed_ss_int(" in found and ("const char t" in found) != over
        bound = load_artifact(compile_lowered(lower(sch.func, target), target)).bind(guard_bytes=GUARD_BYTES)
        assert verify(bound, arguments_of(sch.func), make_samples(work.func, work.reference, 0)).complete


def test_records_of_other_devices_are_refused_with_a_sentence() -> None:
    """A trace that uses dot products replays anywhere; what is built of it says what the device lacks."""
    work, sch = scheduled(32, 1)
    replayed = ss.Trace.from_json(sch.trace.to_json()).replay(work.func)
    assert replayed.func == sch.func
    with pytest.raises(LoweringError, match=f"{BYTE_DOTS} is missing"):
        lower(replayed.func, GENERIC)
