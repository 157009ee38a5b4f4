"""The workload library: programs, parameters, and references that agree with each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stridesmith import errors
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.verify.rules import verify
from stridesmith.space.workloads import from_func, names, parameters, workload

SMALL = [
    ("conv2d", {"ci": 3, "h": 5, "w": 6, "co": 4}),
    ("conv2d", {"ci": 3, "h": 7, "w": 6, "co": 2, "k": 1, "pad": 0, "stride": 2}),
    ("conv2d", {"n": 2, "ci": 4, "h": 8, "w": 7, "co": 6, "groups": 2, "dilation": 2, "pad": 2}),
    ("conv2d", {"ci": 2, "h": 6, "w": 9, "co": 3, "kh": 2, "kw": 3, "stride_h": 2, "pad_w": 0, "dilation_w": 2}),
    ("conv2d", {"n": 2, "ci": 4, "h": 5, "w": 6, "co": 6, "groups": 2, "layout": "nhwc"}),
    ("conv2d", {"ci": 3, "h": 9, "w": 9, "co": 2, "k": 5, "stride": 4, "pad": 0, "layout": "nhwc"}),
    ("depthwise_conv2d", {"c": 3, "h": 5, "w": 6}),
    ("depthwise_conv2d", {"n": 2, "c": 3, "h": 8, "w": 7, "stride": 2, "layout": "nhwc"}),
    ("matmul", {"m": 5, "n": 7, "k": 3}),
    ("batch_matmul", {"b": 3, "m": 2, "n": 4, "k": 5}),
    ("max_pool2d", {"c": 3, "h": 7, "w": 8}),
    ("max_pool2d", {"c": 2, "h": 6, "w": 6, "k": 2, "pad": 0}),
    ("row_sum", {"rows": 5, "cols": 9}),
    ("softmax", {"rows": 4, "cols": 6}),
    ("layernorm", {"rows": 4, "cols": 6}),
    ("scale_shift_relu", {"rows": 4, "cols": 6}),
]


def inputs_of(work, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return {b.name: rng.standard_normal(b.shape).astype(dtype) for b in work.func.buffers if b.name in work.inputs}


@pytest.mark.parametrize(("name", "params"), SMALL)
def test_program_and_reference_agree(name, params):
    """The interpreted program and the NumPy reference give the same numbers on the same data."""
    work = workload(name, **params, dtype="float64")
    inputs = inputs_of(work)
    expected = work.reference(inputs)
    arrays = [inputs.get(b.name, np.full(b.shape, np.nan)) for b in work.func.buffers]
    interpret(work.func, *arrays)
    got = dict(zip((b.name for b in work.func.buffers), arrays, strict=True))
    assert set(expected) == set(work.outputs)
    for output, value in expected.items():
        assert value.dtype == np.float64
        np.testing.assert_allclose(got[output], value, rtol=1e-12, atol=1e-12)


def test_convolution_reference_is_the_definition():
    """The reference of conv2d equals the sum written out, with stride, padding, dilation and groups."""
    work = workload("conv2d", n=2, ci=4, h=6, w=7, co=6, kh=2, kw=3, stride_h=2, pad=1, dilation_w=2, groups=2)
    inputs = inputs_of(work)
    x, w = inputs["x"], inputs["w"]
    y = work.reference(inputs)["y"]
    for n, co, oh, ow in itertools.product(*map(range, y.shape)):
        total = 0.0
        for ci, kh, kw in itertools.product(*map(range, w.shape[1:])):
            row, col = oh * 2 + kh - 1, ow + kw * 2 - 1
            if 0 <= row < 6 and 0 <= col < 7:
                total += x[n, co // 3 * 2 + ci, row, col] * w[co, ci, kh, kw]
        assert y[n, co, oh, ow] == pytest.approx(total, abs=1e-12)


def test_pooling_reference_is_the_definition():
    """The reference of max_pool2d is the largest value of each window that lies inside the image."""
    work = workload("max_pool2d", c=2, h=5, w=7)
    x = inputs_of(work)["x"]
    y = work.reference({"x": x})["y"]
    for n, c, oh, ow in itertools.product(*map(range, y.shape)):
        rows = slice(max(0, 2 * oh - 1), 2 * oh + 2)
        assert y[n, c, oh, ow] == x[n, c, rows, max(0, 2 * ow - 1) : 2 * ow + 2].max()


@pytest.mark.parametrize("name", names())
def test_default_program_is_valid_and_prints_back(name):
    """Every workload works without a parameter, verifies, and its text parses to the same program."""
    work = workload(name)
    verify(work.func)
    assert parse(work.script) == work.func
    assert {p.name for p in parameters(name)} >= set(work.shape) - {"kh", "kw"}
    assert workload(name, **work.params) is workload(name)


@pytest.mark.parametrize(
    ("name", "params", "flops"),
    [
        ("conv2d", {}, 2 * 56 * 56 * 64 * 64 * 9),
        ("matmul", {"m": 127, "n": 129, "k": 131}, 2 * 127 * 129 * 131),
        ("depthwise_conv2d", {"c": 8, "h": 10, "w": 10}, 2 * 8 * 100 * 9),
        ("row_sum", {"rows": 10, "cols": 7}, 70),
        ("max_pool2d", {"c": 2, "h": 8, "w": 8}, 2 * 16 * 9),
    ],
)
def test_flops_are_those_of_the_definition(name, params, flops):
    """Two operations for a multiply-add, one for a sum or maximum, and none for padding."""
    assert workload(name, **params).flops == flops


def test_pairs_set_both_and_halves_win():
    """`k` sets kh and kw, `stride_h` wins over `stride`, and equal halves are shown as one."""
    work = workload("conv2d", k=5, kw=3, stride=2, stride_h=1, pad=2)
    assert work.shape["kh"] == 5
    assert work.shape["kw"] == 3
    assert (work.shape["stride_h"], work.shape["stride_w"]) == (1, 2)
    assert work.shape["pad"] == 2
    assert workload("depthwise_conv2d", k=5, pad=2).shape["k"] == 5


def test_weights_are_declared_constant():
    """Convolution weights are constants; a matrix product has none."""
    assert workload("conv2d").constants == ("w",)
    assert workload("depthwise_conv2d").constants == ("w",)
    assert workload("matmul").constants == ()


def test_no_padding_means_no_pad_block():
    """With pad=0 the program is the reduction alone and allocates nothing."""
    assert "x_pad" not in workload("conv2d", pad=0).script
    assert "T.alloc_buffer" not in workload("max_pool2d", pad=0).script


@pytest.mark.parametrize(
    ("name", "params", "error", "sentence"),
    [
        ("conv2", {}, errors.UnknownWorkload, r"no workload 'conv2'; did you mean 'conv2d'\?"),
        ("conv2d", {"pads": 1}, errors.UnknownParameter, r"no parameter 'pads'; did you mean 'pad'\?"),
        ("conv2d", {"h": 3, "k": 7, "pad": 1}, errors.ShapeError, "kh=7 spans 7, but h=3 with pad 1 .* is only 5"),
        ("conv2d", {"k": 3, "dilation": 40}, errors.ShapeError, "with dilation 40 spans 81"),
        ("conv2d", {"groups": 3}, errors.ShapeError, "groups=3 must divide ci=64 and co=64"),
        ("conv2d", {"layout": "nhcw"}, errors.ShapeError, r"layout=nchw\|nhwc, but got layout='nhcw'"),
        ("conv2d", {"ci": 0}, errors.ShapeError, "takes ci from 1 to"),
        ("conv2d", {"ci": "six"}, errors.ShapeError, "takes a whole number for ci, but got ci='six'"),
        ("matmul", {"m": 10**30}, errors.ShapeError, "got m=a huge number"),
        ("matmul", {"m": 2**30, "n": 2**30}, errors.ShapeError, r"more than 2\*\*36 elements"),
        ("matmul", {"m": 1.5}, errors.ShapeError, "takes a whole number for m"),
        ("matmul", {"m": True}, errors.ShapeError, "takes a whole number for m"),
        ("max_pool2d", {"pad": 3}, errors.ShapeError, "a window would lie wholly in the padding"),
        ("conv2d", {"dtype": "float33"}, errors.ShapeError, "did you mean 'float32'"),
    ],
)
def test_impossible_requests_say_what_to_try(name, params, error, sentence):
    """An unknown name or an impossible shape is refused with the value and the rule."""
    with pytest.raises(error, match=sentence):
        workload(name, **params)


def test_a_users_program_is_its_own_reference():
    """A function given as text computes its reference through the interpreter, in the inputs' dtype."""
    library = workload("matmul", m=3, n=4, k=5)
    mine = from_func(library.func)
    inputs = inputs_of(library)
    np.testing.assert_allclose(mine.reference(inputs)["c"], library.reference(inputs)["c"], rtol=1e-13)
    assert mine.reference(inputs)["c"].dtype == np.float64
    assert mine.script == library.script
