"""Libraries whose calls have sizes: one function of C for all of a range, which checks them."""

from __future__ import annotations

import ctypes
import importlib
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from exported import compiled, loader
from opencl_programs import device, needs_device

from stridesmith.backends.devices import discover
from stridesmith.errors import UsageError
from stridesmith.ir.script.parser import parse
from stridesmith.search.calling.kernel import Kernel, build
from stridesmith.space.schedule import Schedule

PRODUCT = """
@T.prim_func
def product(a: T.handle, B: T.Buffer((16, 24), "float32"), c: T.handle):
    m = T.int64()
    n = T.int64()
    A = T.match_buffer(a, (m, n, 16), "float32")
    C = T.match_buffer(c, (m, n * 2, 24), "float32")
    T.assume(m <= 40 and n % 4 == 0 and n <= 12)
    for i, h, j, k in T.grid(m, n * 2, 24, 16):
        with T.block("C"):
            vi, vh, vj, vk = T.axis.remap("SSSR", [i, h, j, k])
            with T.init():
                C[vi, vh, vj] = 0.0
            C[vi, vh, vj] = C[vi, vh, vj] + A[vi, vh // 2, vk] * B[vk, vj]
"""
MAIN = """
#include "product.h"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    for (int64_t m = 1; m <= 40; m += 13) {
        float *a = malloc(PRODUCT_A_BYTES(m, 8)), *b = malloc(PRODUCT_B_BYTES), *c = malloc(product_bytes_C(m, 8));
        for (int64_t k = 0; k < PRODUCT_A_BYTES(m, 8) / 4; k++) a[k] = (float)(k % 7);
        for (int64_t k = 0; k < PRODUCT_B_BYTES / 4; k++) b[k] = (float)(k % 5);
        int code = product(a, b, c, m, 8);
        if (code) { printf("%s\\n", product_message(code)); return code; }
        double sum = 0;
        for (int64_t k = 0; k < m * 16 * 24; k++) sum += c[k];
        printf("%.0f\\n", sum);
    }
    float x = 0;
    printf("%s\\n", product_message(product(&x, &x, &x, 41, 8)));
    return product(&x, &x, &x, 1, 6) == PRODUCT_BAD_SIZE ? 0 : 1;
}
"""


def kernel() -> Kernel:
    """Rows in parts of 4, of which the last is cut."""
    schedule = Schedule(parse(PRODUCT))
    i, *_ = schedule.get_loops("C")
    outer, _ = schedule.split(i, [None, 4])
    schedule.parallel(outer)
    return build(schedule.func, discover("cpu", 2))


def given(m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    a, b = (np.arange(m * n * 16) % 7).reshape(m, n, 16), (np.arange(16 * 24) % 5).reshape(16, 24)
    return a.astype(np.float32), b.astype(np.float32)


def test_a_function_takes_all_sizes_and_checks_them(tmp_path: Path) -> None:
    """Results are those of the kernel at each size; one that is out of its range, or no multiple, is a code."""
    made = kernel()
    try:
        made.export(tmp_path / "libproduct.so")
    except UsageError:
        raise
    except Exception as error:  # there is no linker on this machine
        pytest.skip(str(error))
    library = ctypes.CDLL(str(tmp_path / "libproduct.so"))
    library.product.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2
    library.product_message.restype = ctypes.c_char_p
    for m, n in ((1, 4), (7, 8), (40, 12), (4, 4)):
        a, b = given(m, n)
        c = np.full((m, n * 2, 24), np.nan, np.float32)
        assert library.product(a.ctypes.data, b.ctypes.data, c.ctypes.data, m, n) == 0
        np.testing.assert_array_equal(c, made(a, b))
        np.testing.assert_array_equal(c, a.repeat(2, axis=1) @ b)
    for m, n in ((0, 4), (-1, 4), (41, 4), (4, 0), (4, 6), (4, 16)):
        code = library.product(a.ctypes.data, b.ctypes.data, c.ctypes.data, m, n)
        assert library.product_message(code) == b"a size is none of those that the library was made for"
    assert library.product(None, b.ctypes.data, c.ctypes.data, 4, 4) == 2


def test_the_header_tells_shapes_by_sizes(tmp_path: Path) -> None:
    """Parameters, what they may be, shapes, and how many bytes arrays have."""
    kernel().export(tmp_path / "product.c", "c")
    header = (tmp_path / "product.h").read_text()
    assert "int product(const float *A, const float *B, float *C, int64_t m, int64_t n);" in header
    assert "A: in  float32 [m][n][16]" in header and "n: in  int64, a size of arrays, 4..12:4" in header
    assert "C: out float32 [m][n * 2][24]" in header
    assert "int64_t product_bytes_A(int64_t m, int64_t n);" in header and "int64_t product_bytes_B(void);" in header
    assert "PRODUCT_BAD_SIZE = 4" in header and "#define PRODUCT_A_BYTES(m, n) " in header


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_program_of_c_calls_it_at_many_sizes(tmp_path: Path) -> None:
    """With macros and functions for the bytes, compiled with all warnings."""
    kernel().export(tmp_path / "product.c", "c")
    (tmp_path / "main.c").write_text(MAIN)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *flags, "main.c", "product.c", "-o", "main", "-lm", "-lpthread"], cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, check=True, capture_output=True, text=True)
    sums = [f"{float(2 * (a.astype(np.float64) @ b).sum()):.0f}" for a, b in (given(m, 8) for m in (1, 14, 27, 40))]
    assert done.stdout.split("\n") == [*sums, "a size is none of those that the library was made for", ""]


@needs_device
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_an_opencl_program_takes_its_sizes(tmp_path: Path) -> None:
    """They stand behind its files, say how long these are and how many work-groups there are, and are checked."""
    schedule = Schedule(parse(PRODUCT))
    i, h, *_ = schedule.get_loops("C")
    outer, inner = schedule.split(i, [None, 4])
    schedule.reorder(outer, h, inner)
    schedule.bind(outer, "blockIdx.y")
    schedule.bind(h, "blockIdx.x")
    case = [["reorder", {"loops": ["h", "i"]}], ["bind", {"loop": "h", "thread_axis": "blockIdx.x"}]]
    several = Schedule(parse(PRODUCT))
    several.specialize([[{"m": [1, 1]}, case], [{}, schedule.trace.to_json()]])
    made = build(several.func, device())
    files = made.export(tmp_path / "product.cl", "cl")
    assert [f.name for f in files] == ["product.cl", "product.c"]
    text = files[-1].read_text()
    assert "A.bin B.bin C.bin M N" in text and "float32 [m][n * 2][24]" in text and "the size n, 4..12:4" in text
    program = compiled(text, tmp_path, "-ldl")

    def run(*sizes: object) -> subprocess.CompletedProcess[str]:
        command = [program, "A.bin", "B.bin", "C.bin", *map(str, sizes)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, env=loader())

    for m, n in ((1, 4), (7, 8), (40, 12)):
        a, b = given(m, n)
        a.tofile(tmp_path / "A.bin")
        b.tofile(tmp_path / "B.bin")
        done = run(m, n)
        if "unknown target CPU 'generic'" in done.stderr:
            pytest.skip("this PoCL is older than the processor, and builds no program of other software")
        assert (done.returncode, done.stderr) == (0, "")
        got = np.fromfile(tmp_path / "C.bin", np.float32).reshape(m, n * 2, 24)
        np.testing.assert_array_equal(got, a.repeat(2, axis=1) @ b)
        np.testing.assert_array_equal(got, made(a, b))
    for sizes, sentence in (
        ((41, 4), "m must be one of 1..40, but is 41"), ((1, 6), "n must be one of 4..12:4, but is 6"),
        (("x", 4), "m must be one of 1..40, but is x"), ((4,), "A.bin B.bin C.bin m n"),
    ):  # fmt: skip
        done = run(*sizes)
        assert done.returncode == 2 and done.stderr.endswith(f"{sentence}\n")


def test_a_wheel_takes_arrays_of_all_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the sizes from them, and says in one sentence what they may not be."""
    (wheel,) = kernel().export(tmp_path / "sized_product.whl", "wheel")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("sized_product")
    for m, n in ((1, 4), (7, 8), (40, 12)):
        a, b = given(m, n)
        out = package.run(a, b)
        np.testing.assert_array_equal(out, a.repeat(2, axis=1) @ b)
        assert package.pack(B=b)(a, out=out) is out
    a, b = given(7, 8)
    for arrays, sentence in (
        ((np.zeros((41, 8, 16), np.float32), b), r"sized_product takes m = 1..40, but got 41, from axis 0 of `A`"),
        ((np.zeros((7, 6, 16), np.float32), b), r"sized_product takes n = 4..12:4, but got 6, from axis 1 of `A`"),
        ((np.zeros((7, 8), np.float32), b), "`A` must have 3 dimensions, which give m"),
        ((np.zeros((7, 8, 15), np.float32), b), r"`A` must have shape \(7, 8, 16\), but got \(7, 8, 15\)"),
    ):
        with pytest.raises(ValueError, match=sentence):
            package.run(*arrays)
    with pytest.raises(ValueError, match=r"`C` must have shape \(7, 16, 24\), but got \(8, 16, 24\)"):
        package.run(a, b, out=np.zeros((8, 16, 24), np.float32))
    with pytest.raises(TypeError, match="takes `A` with extents that each call decides: it is not packed"):
        package.pack(A=a)
    assert [argument.name for argument in package.signature] == ["A", "B", "C"]


def test_what_ranges_do_not_tell_is_refused(tmp_path: Path) -> None:
    """Sizes that are compared with each other."""
    compared = build(parse(PRODUCT.replace("n % 4 == 0", "n % 4 == 0 and n < m")), discover("cpu", 1))
    with pytest.raises(UsageError, match="`product` assumes more of its sizes than a range for each"):
        compared.export(tmp_path / "product.c", "c")
