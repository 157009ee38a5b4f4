"""Workloads of the library with parameters that are ranges."""

from __future__ import annotations

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.errors import ShapeError
from stridesmith.ir.ranges import fixed
from stridesmith.ir.size_ranges import Range, ranges_of

WORKS = [
    ("matmul", {"m": (1, 40), "k": "8..24:8", "n": 5}),
    ("batch_matmul", {"b": (1, 3), "m": (1, 9), "n": 4, "k": 4}),
    ("conv2d", {"h": (3, 9), "w": (4, 9), "ci": 2, "co": 2, "kh": 3, "kw": 3, "stride": 2}),
    ("conv2d_bias_act", {"n": (1, 3), "h": 5, "w": 5, "ci": 2, "co": 2}),
    ("conv1d", {"w": (3, 12), "ci": 2, "co": 3, "layout": "nwc"}),
    ("depthwise_conv2d", {"h": (3, 8), "w": (3, 8), "c": 3, "layout": "nhwc"}),
    ("avg_pool2d", {"h": (4, 9), "w": (5, 9), "c": 2}),
    ("global_avg_pool2d", {"h": (2, 5), "w": (2, 5), "c": 3}),
    ("softmax", {"rows": (1, 5), "cols": (1, 9)}),
    ("layernorm", {"rows": (1, 5), "cols": (2, 9)}),
    ("row_mean", {"rows": (1, 5), "cols": (1, 9)}),
    ("add_act", {"rows": (1, 5), "cols": (1, 9)}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), WORKS, ids=[name for name, _ in WORKS])
def test_a_range_is_one_program_for_all_of_its_numbers(name: str, shape: dict[str, object]) -> None:
    """It is verified, comes back from its parameters, and computes what NumPy does at a size between the ends."""
    work = ss.workload(name, **shape)
    ss.verify(work.func)
    assert ss.workload(work.name, **work.params).script == work.script
    ranges = ranges_of(work.func)
    given = {n for n, v in shape.items() if isinstance(v, tuple) or ".." in str(v)}
    assert {work.sizes[v.name] for v in ranges} == given
    middle = {v: (r.low + r.high) // 2 // r.step * r.step for v, r in ranges.items()}
    one = work.at({v.name: number for v, number in middle.items()})
    assert fixed(work.func, middle) == one.func
    rng = np.random.default_rng(0)
    shapes = {b.name: b.shape for b in one.func.buffers}
    inputs = {n: rng.integers(-3, 4, shapes[n]).astype(np.float32) for n in one.inputs}
    result = np.zeros(shapes[one.outputs[0]], np.float32)
    ss.interpret(work.func, *inputs.values(), result)
    np.testing.assert_allclose(result, one.reference(inputs)[one.outputs[0]], rtol=1e-5, atol=1e-5)


def test_sizes_have_names_of_their_own() -> None:
    """A parameter whose name the program uses otherwise gets an underscore."""
    work = ss.workload("conv2d", w=(8, 16), h=(8, 16))
    assert work.sizes == {"h": "h", "w_": "w"}
    assert [str(r) for r in ranges_of(work.func).values()] == ["8..16", "8..16"]
    assert str(work).startswith("conv2d(n=1,ci=64,h=8..16,w=8..16,")


def test_a_range_of_one_number_is_this_number() -> None:
    """The workload is that of one shape."""
    assert ss.workload("matmul", m=(7, 7), n=8, k=8).script == ss.workload("matmul", m=7, n=8, k=8).script


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("matmul", {"m": (5, 1)}, "the range m=5..1 holds no number; the least one comes first"),
        ("matmul", {"m": "1..8:0"}, "the range m=1..8:0 must have a step of at least 1"),
        ("matmul", {"m": "1..64:8"}, "the range m=1..64:8 must begin and end with a multiple of 8"),
        ("matmul", {"m": (0, 8)}, "`matmul` takes m from 1 to"),
        ("conv2d", {"pad": (0, 3)}, "`conv2d` takes one number for pad, and no range"),
        ("conv2d", {"h": (1, 9), "pad": 0}, "a kernel of kh=3 spans 3, but h=1"),
        ("conv2d", {"layout": "a..b"}, r"`conv2d` takes layout=nchw\|nhwc"),
        ("matmul", {"m": "1..x"}, "`matmul` takes a whole number for m"),
    ],
)  # fmt: skip
def test_ranges_without_a_program_are_refused(name: str, shape: dict[str, object], sentence: str) -> None:
    """Each is one sentence."""
    with pytest.raises(ShapeError, match=sentence):
        ss.workload(name, **shape)


def test_ranges_follow_from_what_a_program_assumes() -> None:
    """Bounds and divisors of its integers."""
    func = ss.parse("""
@T.prim_func
def copy(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    T.assume(n <= 100 and n % 8 == 0)
    for i in range(n):
        B[i] = A[i]
""")
    assert isinstance(func, ss.PrimFunc)
    assert list(ranges_of(func).values()) == [Range(8, 96, 8)]
