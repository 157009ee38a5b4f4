"""Conditions on lanes on the devices that CPUs are: comparisons of vectors, whole vectors, and no lane outside."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from masking import CASES, Edge, annotated, filled, read, run
from opencl_programs import GPU, device, needs_device

from stridesmith.backends.lower import lower
from stridesmith.backends.render.opencl.program import generate
from stridesmith.backends.render.opencl.types import Names
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import AVX512_BUILTINS, POCL, Target

CPU = Target(kind="opencl", name="cpu", vector_bits=512, features="cl_khr_fp64")
WIDE = replace(CPU, features=f"{CPU.features} {AVX512_BUILTINS}")
MASKED = [name for name in CASES if name not in ("int64", "int8", "float16")]
"""Those of types that have masks."""
ROWS = """(A: T.Buffer((4, {n})), B: T.Buffer((4, {n}))):
    for i in range(4):
        for jo in range({tiles}):
            for v in T.vectorized(8):
                if jo * 8 + v < {n}:
                    {store}
"""


def rows(n: int, store: str) -> PrimFunc:
    return annotated(read(ROWS.format(n=n, tiles=-(-n // 8), store=store)))


VALUES = {
    "a choice by value": "B[i, jo * 8 + v] = T.Select(A[i, jo * 8 + v] < T.float32(0), T.float32(0), A[i, jo * 8 + v])",
    "what it writes": "B[i, jo * 8 + v] = B[i, jo * 8 + v] + A[i, jo * 8 + v]",
    "functions": "B[i, jo * 8 + v] = T.sqrt(T.abs(A[i, jo * 8 + v])) + T.max(A[i, jo * 8 + v], T.float32(1))",
    "integers divided by what may be 0 outside": "B[i, jo * 8 + v] = T.cast(T.int64(7) // (28 - jo * 8 - v), "
    '"float32")',
}


PADDED = annotated(
    read("""(A: T.Buffer((6, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i in range(8):
        for v in T.vectorized(8):
            B[i, v] = T.if_then_else(i >= 1 and i < 7, A[i - 1, v], T.float32(3))
""")
)
"""Rows of padding before and behind: one condition decides about all lanes of a vector."""

FAR = """(A: T.Buffer((6, 3000), "float32"), B: T.Buffer((8, 3000), "float32")):
    for i in range(8):
        for j in range(375):
            for v in T.vectorized(8):
                B[i, j * 8 + v] = T.if_then_else({cond}, A[i - 1, j * 8 + v], T.float32(3))
"""
HELD = {
    "before and behind": ("i >= 1 and i < 7", r"[?] [(]i [*] 3000L[)] : 3000L"),
    "of two loops": ("i >= 1 and i < 7 and j > 0", r"[?] [(]i [*] 3000L[)] : 3000L"),
}
"""Conditions on rows of several pages, and the address where they do not hold."""


def source(func: PrimFunc, target: Target = CPU) -> str:
    return generate(lower(func, target), target).text


def interpreted(func: PrimFunc) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Buffers before and after a call."""
    arrays = filled(func)
    expected = [a.copy() for a in arrays]
    interpret(func, *expected, strict_state=False)
    return arrays, expected


@needs_device
@pytest.mark.parametrize("case", [*CASES, "one condition"])
def test_masked_loops_compute_what_branches_do(case: str) -> None:
    """What a kernel leaves is what the interpreter says of the branch, and the guards around buffers are whole."""
    target = device()
    assert target is not None
    func = PADDED if case == "one condition" else CASES[case]
    arrays, expected = interpreted(func)
    for got, want in zip(run(func, target, *arrays), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@needs_device
@pytest.mark.parametrize("n", [28, 5])
@pytest.mark.parametrize("value", VALUES)
def test_values_in_some_lanes(value: str, n: int) -> None:
    """Choices, functions and memory that the kernel writes, in the lanes that there are."""
    target = device()
    assert target is not None
    func = rows(n, VALUES[value])
    arrays, expected = interpreted(func)
    for got, want in zip(run(func, target, *arrays), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("case", [name for name in MASKED if name != "fewer elements than lanes"])
def test_vectors_are_whole(case: str) -> None:
    """Registers and inputs are read and written in whole vectors; lanes of the result are stored one by one."""
    text = source(CASES[case])
    kernel = text[text.index("__kernel") :]
    assert re.search(r"load_within_|LOAD\d+_global", kernel)
    assert not re.search(r"\(float\d+\)\([^()]*\[", kernel), "lanes that are read one by one"


@pytest.mark.parametrize("case", HELD)
def test_rows_that_are_not_there_have_the_address_of_one_that_is(case: str) -> None:
    """A masked access of no lanes to a page that is not there takes as long as a hundred others."""
    cond, wanted = HELD[case]
    text = source(annotated(read(FAR.format(cond=cond))), WIDE)
    kernel = text[text.index("__kernel") :]
    assert "load_masked_float8(A" in kernel and re.search(wanted, kernel), kernel


@needs_device
@pytest.mark.parametrize("case", HELD)
def test_rows_that_are_not_there_are_padding(case: str) -> None:
    """Whatever their address."""
    target = device()
    assert target is not None
    func = annotated(read(FAR.format(cond=HELD[case][0])))
    arrays, expected = interpreted(func)
    for got, want in zip(run(func, target, *arrays), expected, strict=True):
        np.testing.assert_array_equal(got, want)


SHORT = ("three lanes", "an edge at both ends of seven lanes")
"""Those whose vectors are done in pieces of two lanes and one, too."""


@pytest.mark.parametrize("case", [name for name in MASKED if name not in (*SHORT, "fewer elements than lanes")])
def test_clang_for_avx512_has_instructions_for_masks(case: str) -> None:
    """Lanes of global memory are loaded and stored under a mask, and none of them one by one."""
    text = source(CASES[case], WIDE)
    kernel = text[text.index("__kernel") :]
    assert re.search(r"(load|store)_masked_", kernel) and "load_within_" not in text
    assert "_masked_" not in source(CASES[case])


def test_a_condition_of_all_lanes_is_no_branch_there() -> None:
    """It becomes a mask as well; without AVX-512 one of two addresses is read."""
    assert re.search(r"load_masked_float8\(A, .*, -t.*, \(float8\)\(3.0f\)\)", source(PADDED, WIDE).replace("((", "("))
    text = source(PADDED)
    assert re.search(r"= load_or_float8\(t\w*, A, t\w* - 8, otherwise, place\);", text)
    assert f"float otherwise[8] = {{{', '.join(['3.0f'] * 8)}}};" in text and "? LOAD8_global_float(A" not in text


@needs_device
@pytest.mark.parametrize("case", [*CASES, "one condition"])
def test_the_source_for_avx512_computes_the_same_without(case: str) -> None:
    """What `stridesmith emit` writes may come to a compiler for another CPU, which goes lane by lane."""
    from stridesmith.backends.opencl.runtime import OpenCLExecutable, write_opencl

    found = device()
    assert found is not None
    target = replace(found, features=f"{found.features} {AVX512_BUILTINS}")
    func = PADDED if case == "one condition" else CASES[case]
    artifact = write_opencl(lower(func, target), target)
    artifact["code"] = "#undef __AVX512VL__\n" + artifact["code"]
    bound = OpenCLExecutable(artifact).bind()
    arrays, expected = interpreted(func)
    for number, array in enumerate(arrays):
        bound.write(number, array)
    bound.run()
    for number, want in enumerate(expected):
        np.testing.assert_array_equal(bound.read(number).reshape(want.shape), want)


def test_masks_of_pocl_are_not_longer_than_its_functions_take() -> None:
    """Its built-in functions get and give 256 bits at most: what `emit` writes may be compiled without AVX-512."""
    func = annotated(
        read("""(A: T.Buffer((20,), "float64"), B: T.Buffer((24,), "float64")):
    for io in range(3):
        for v in T.vectorized(8):
            B[io * 8 + v] = T.if_then_else(io * 8 + v < 20, A[io * 8 + v], T.float64(0))
""")
    )
    pocl = replace(CPU, platform=POCL)
    text = generate(lower(func, pocl), pocl).text
    assert "convert_long4(a.lo)" in text and not re.search(r"convert_long8\(", text.replace("halves_convert_long8", ""))


def test_a_tile_is_chosen_in_registers() -> None:
    """A tile whose lanes outside are read later keeps them, by a choice between vectors."""
    text = source(CASES["maximum"])
    assert re.search(r"STORE16_private_float\(.* \? .* : LOAD16_private_float\(part\), part\)", text)


def test_what_the_kernel_writes_is_read_lane_by_lane() -> None:
    """Another work-item may be writing what lies behind the end of a row."""
    text = source(rows(28, VALUES["what it writes"]))
    kernel = text[text.index("__kernel") :]
    assert re.search(r"\? B\[[^]]*\] : 0\.0f", kernel) and "LOAD8_global_float(B" not in kernel


HELPERS = ["load_within_float16", "halves_sqrt_float16", "lane_min_int8", "exp_float8", "load_masked_int4",
           "store_masked_double8", "mask_bits_int16"]  # fmt: skip


@pytest.mark.parametrize("name", HELPERS)
def test_a_buffer_may_be_called_like_a_helper(name: str) -> None:
    """It gets another name in the source."""
    assert Names().fresh(name) == f"v_{name}"


def test_gpus_and_narrow_types_branch() -> None:
    """A device that is no CPU has no masks, nor have bytes and floats of 16 bits."""
    gpu = Target(kind="opencl", name="gpu", is_cpu_device=False)
    assert not gpu.has_masks("float32")
    assert [CPU.has_masks(t) for t in ("float32", "float64", "int32", "int8", "float16", "int64", "bool")] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip


@needs_device
@pytest.mark.parametrize("front", [False, True], ids=["end", "front"])
@pytest.mark.parametrize("case", [name for name in MASKED if name != "maximum"])
def test_lanes_outside_touch_no_memory(case: str, front: bool) -> None:
    """Buffers that end, or begin, at a page without access: a lane beyond would end the process."""
    import pyopencl as cl

    from stridesmith.backends.opencl.runtime import OpenCLExecutable, compile_opencl

    target = device()
    assert target is not None and target.is_cpu_device
    func = CASES[case]
    arrays, expected = interpreted(func)
    executable = OpenCLExecutable(compile_opencl(lower(func, target), target))
    edges = [Edge(array, front) for array in arrays]
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    buffers = [cl.Buffer(executable.context, flags, hostbuf=edge.data) for edge in edges]
    queue = cl.CommandQueue(executable.context)
    for launch in executable.launches:
        kernel: Any = cl.Kernel(executable.program, launch.kernel)
        kernel.set_args(*(buffers[k] for k in launch.args))
        cl.enqueue_nd_range_kernel(queue, kernel, launch.global_size, launch.local_size)
    queue.finish()
    for edge, want in zip(edges, expected, strict=True):
        np.testing.assert_array_equal(edge.data.reshape(want.shape), want)


SCALARS = """(A: T.Buffer((4, 7){dtype}), B: T.Buffer((6, 9){dtype})):
    for i in range(6):
        for j in range(9):
            B[i, j] = T.if_then_else({cond}, A[{row}, j - 1], {other})
"""
INSIDE = "i >= 1 and i < 5 and j >= 1 and j < 8"


def padded(cond: str = INSIDE, row: str = "i - 1", other: str = "T.float32(0)", dtype: str = "") -> PrimFunc:
    return read(SCALARS.format(cond=cond, row=row, other=other, dtype=dtype))


@needs_device
@pytest.mark.parametrize(
    "func",
    [
        padded(),
        padded(other="T.float32(-1.5)"),
        padded(dtype=', "int32"', other="T.int32(7)"),
        padded(dtype=', "float16"', other="T.float16(-2)"),
        padded(cond=f"{INSIDE} and A[0, 0] == A[0, 0]"),
        padded(row="12 // (i + 1) % 4"),
        padded(other="A[0, 0]"),
    ],
    ids=["zero", "another value", "integers", "half floats", "what memory says", "a quotient", "no constant"],
)
def test_padding_of_scalars_is_what_the_interpreter_says(func: PrimFunc) -> None:
    """One of two addresses is read, or one of two branches taken; nothing outside is touched."""
    target = device()
    assert target is not None
    arrays, want = interpreted(func)
    for got, expected in zip(run(func, target, *arrays), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_padding_of_scalars_is_one_of_two_addresses() -> None:
    """On CPUs the kernel has one array for each constant, and the position is computed in any case."""
    text = source(padded())
    assert "float otherwise[1] = {0.0f};" in text and "volatile size_t hidden = (size_t)otherwise;" in text
    assert re.search(r"= load_or_float\(t\w*, A, t\w* - 8, otherwise, place\);", text)
    assert "load_or" not in source(padded(), GPU)


TAPS = """(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i in range(8):
        for k in T.unroll(3):
            for v in T.{kind}(8):
                B[i, v] = T.if_then_else(i + k >= 1 and i + k < 9, A[i + k - 1, v], T.float32(0))
"""


@pytest.mark.parametrize("kind", ["vectorized", "serial"])
def test_conditions_that_loops_decide_are_not_written(kind: str) -> None:
    """Of three rows of taps the middle one is always there, and the others each meet one border."""
    text = source(read(TAPS.format(kind=kind)))
    tests = re.findall(r"load_or_float8?\((t\w*), ", text)
    assert len(tests) == 2
    assert [text[text.index(f"{name} = ") :].split(";")[0] for name in tests] == [
        f"{tests[0]} = i >= 1L", f"{tests[1]} = i < 7L"
    ]  # fmt: skip


def test_memory_that_the_kernel_writes_is_read_through_its_own_pointer() -> None:
    """A compiler may take two pointers of different memories for pointers to different elements."""
    update = "(A: T.Buffer((9,)),):\n    for i in range(9):\n        A[i] = A[i] + {value}\n"
    func = read(update.format(value="T.if_then_else(i >= 1, A[i - 1], T.float32(0))"))
    assert "load_or" not in source(func)


@pytest.mark.parametrize(
    "func",
    [padded(cond=f"{INSIDE} and A[0, 0] > T.float32(0)"), padded(row="12 // (i + 1) % 4"), padded(other="A[0, 0]")],
    ids=["what memory says", "a quotient", "no constant"],
)
def test_positions_that_only_a_condition_makes_possible_are_computed_behind_it(func: PrimFunc) -> None:
    """So are values that are no constants, and conditions that read memory."""
    assert "load_or" not in source(func)
