"""Sums of products by NumPy give what the interpreter gives; what is none is left to others."""

from __future__ import annotations

import re

import numpy as np
import pytest

from stridesmith.backends.samples import input_buffers
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc, Seq
from stridesmith.search.workers.contractions import contraction_of
from stridesmith.search.workers.reference import check_reference, fast_reference
from stridesmith.space.workloads import from_func, workload
from stridesmith.space.workloads.retype import with_floats

WORKS = [
    ("matmul", {"m": 5, "n": 7, "k": 6}),
    ("matmul", {"m": 5, "n": 7, "k": 6, "transpose_b": 1}),
    ("matmul", {"m": 5, "n": 1, "k": 6, "transpose_a": 1}),
    ("batch_matmul", {"b": 3, "m": 4, "n": 5, "k": 6}),
    ("conv1d", {"ci": 4, "co": 6, "w": 9, "k": 3, "pad": 1, "groups": 2}),
    ("conv2d", {"ci": 4, "co": 6, "h": 7, "w": 6, "k": 3, "pad": 1}),
    ("conv2d", {"ci": 4, "co": 6, "h": 7, "w": 6, "k": 3, "pad": 2, "dilation": 2, "layout": "nhwc"}),
    ("conv2d", {"ci": 4, "co": 8, "h": 7, "w": 6, "k": 3, "stride": 2, "groups": 4}),
    ("conv2d", {"ci": 6, "co": 6, "h": 7, "w": 6, "k": 3, "groups": 6, "layout": "nhwc"}),
    ("conv3d", {"ci": 2, "co": 3, "d": 4, "h": 5, "w": 4, "k": 2, "pad": 0}),
    ("conv2d_transpose", {"ci": 3, "co": 4, "h": 4, "w": 5, "k": 4, "stride": 2, "pad": 1}),
    ("max_pool2d", {"c": 4, "h": 8, "w": 7, "k": 3, "stride": 2}),
    ("avg_pool2d", {"c": 4, "h": 8, "w": 7, "k": 2, "stride": 2}),
    ("softmax", {"rows": 5, "cols": 9}),
    ("layernorm", {"rows": 5, "cols": 9}),
]
HEAD = """
@T.prim_func
def main({buffers}):
    for {loops} in T.grid({extents}):
        with T.block("b"):
            {iters} = T.axis.remap("{kinds}", [{loops}])
            with T.init():
                {out} = T.float32({start})
            {out} = {value}
"""


def func_of(buffers: str, loops: str, extents: str, kinds: str, out: str, value: str, start: str = "0") -> PrimFunc:
    """A program of one block, whose iterators are written as capital letters."""
    typed = ", ".join(f'{n}: T.Buffer({s}, "float32")' for n, s in (b.split(" ", 1) for b in buffers.split("; ")))
    text = HEAD.format(
        buffers=typed, loops=loops, extents=extents, kinds=kinds, out=out, value=value, start=start,
        iters=loops.upper(),
    )  # fmt: skip
    func = parse(re.sub(r"\b(?!T\b)([A-Z])\b", r"v\1", text))
    assert isinstance(func, PrimFunc)
    return func


def compared(func: PrimFunc) -> int:
    """How many nests NumPy computes, where all results are those of the interpreter."""
    rng = np.random.default_rng(0)
    arrays = {b.name: rng.standard_normal(b.shape) for b in input_buffers(func)}
    got, expected = fast_reference(func)(arrays), from_func(func).reference(arrays)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-12, atol=1e-12)
    body = with_floats(func, "float64").body.body
    return sum(contraction_of(nest) is not None for nest in (body.stmts if isinstance(body, Seq) else (body,)))


@pytest.mark.parametrize(("name", "params"), WORKS, ids=lambda v: str(v) if isinstance(v, str) else "")
def test_programs_of_the_library(name: str, params: dict[str, int | str]) -> None:
    """All that sum products or look for the largest have a nest that NumPy computes."""
    assert compared(workload(name, **params).func) >= (name != "conv2d_transpose")


@pytest.mark.parametrize(
    ("buffers", "loops", "extents", "kinds", "out", "value"),
    [
        ("x (7, 24); w (4, 24); y (7, 24)", "p, o, i", "7, 24, 4", "SSR", "y[P, O]",
         "y[P, O] + x[P, O // 4 * 4 + I] * w[I, O]"),
        ("x (4, 12); w (12, 8); y (12, 9)", "o, i, c", "12, 9, 4", "SSR", "y[O, I]",
         "y[O, I] + x[C, I + 2] * w[O, O % 4 + C]"),
        ("x (9, 8); w (3,); y (6, 8)", "i, j, k", "6, 8, 3", "SSR", "y[I, 7 - J]",
         "y[I, 7 - J] + x[I + K, J] * w[2 - K]"),
        ("x (6, 5); w (5,); y (6,)", "i, j, k", "6, 5, 5", "SRR", "y[I]", "y[I] + x[I, J] * w[K]"),
        ("x (6, 5); y (6,)", "i, j", "6, 5", "SR", "y[I]", "y[I] + x[I, J]"),
        ("x (6, 5); w (6, 5); y (6,)", "i, j", "6, 5", "SR", "y[I]", "y[I] + x[I, J] * w[I, J]"),
        ("x (1, 5); w (5, 3); y (1, 3)", "i, j, k", "1, 3, 5", "SSR", "y[I, J]", "y[I, J] + x[I, K] * w[K, J]"),
        ("x (1, 5); w (5, 3); y (1, 3)", "i, j, k", "1, 3, 5", "SSR", "y[I, J]", "y[I, J] + x[0, K] * w[K, J]"),
        ("x (1, 1); w (1, 1); y (1, 1)", "i, j, k", "1, 1, 1", "SSR", "y[I, J]", "y[I, J] + x[I, K] * w[K, J]"),
    ],
)  # fmt: skip
def test_indices_of_many_kinds(buffers: str, loops: str, extents: str, kinds: str, out: str, value: str) -> None:
    """Digits, reversed axes, windows, sums of one factor alone, products of vectors, axes of one point."""
    assert compared(func_of(buffers, loops, extents, kinds, out, value)) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_factors_of_few_bits_that_are_widened(dtype: str) -> None:
    """All is float64 in the reference, so that there is nothing to convert."""
    func = parse(f"""
@T.prim_func
def main(x: T.Buffer((6, 5), "{dtype}"), w: T.Buffer((5, 3), "{dtype}"), y: T.Buffer((6, 3), "float32")):
    for i, j, k in T.grid(6, 3, 5):
        with T.block("b"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + T.Cast("float32", x[vi, vk]) * T.Cast("float32", w[vk, vj])
""")
    assert isinstance(func, PrimFunc) and compared(func) == 1


@pytest.mark.parametrize("start", ["0", "2.5"])
def test_a_sum_begins_where_the_program_says(start: str) -> None:
    """And not with zero."""
    assert compared(func_of("x (6, 5); y (6,)", "i, j", "6, 5", "SR", "y[I]", "y[I] + x[I, J]", start)) == 1


@pytest.mark.parametrize(
    ("buffers", "value"),
    [
        ("x (6, 5); w (5,); v (5,); y (6,)", "y[I] + x[I, J] * w[J] * v[J]"),
        ("x (6, 5); y (6,)", "y[I] + T.exp(x[I, J])"),
        ("x (9, 5); y (6,)", "y[I] + x[(I + 1) // 2, J]"),
        ("x (6, 5); y (6,)", "y[I] + x[I, J] * T.float32(3)"),
        ("x (6, 5); y (6,)", "y[I] + T.if_then_else(I < 3, x[I, J], T.float32(0))"),
        ("x (60,); y (6,)", "y[I] + x[I * J]"),
        ("x (6, 5); y (6,)", "y[I] + x[I, J] * y[0]"),
    ],
)
def test_other_nests_are_left_to_others(buffers: str, value: str) -> None:
    """Three factors, functions, quotients of sums, constants, conditions, products of axes: with the same results."""
    assert compared(func_of(buffers, "i, j", "6, 5", "SR", "y[I]", value)) == 0


def test_a_spatial_iterator_that_the_result_lacks_is_not_summed() -> None:
    """Each of its points begins anew, so that the last one is what remains."""
    assert compared(func_of("x (6, 4, 5); y (6,)", "i, j, k", "6, 4, 5", "SSR", "y[I]", "y[I] + x[I, J, K]")) == 0


def test_a_wrong_product_is_found_by_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of a part of the program compares NumPy's way, too."""
    func = workload("conv2d", ci=16, co=16, h=32, w=32, k=3).func
    assert check_reference(func, fast_reference(func)) > 0
    from stridesmith.search.workers import contractions

    right = contractions._product
    monkeypatch.setattr(contractions, "_product", lambda *given: right(*given) + 1)
    with pytest.raises(ArithmeticError, match="`y` differs"):
        check_reference(func, fast_reference(func))
