"""The workload library: programs, parameters, and references that agree with each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stridesmith import errors
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.numbers import bfloat16_bits, bfloat16_values, boundary_dtype
from stridesmith.ir.script.parser import parse
from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.ir.verify.rules import verify
from stridesmith.space.workloads import from_func, names, parameters, workload
from stridesmith.space.workloads.activations import ACTIVATIONS
from stridesmith.space.workloads.library import OPERATORS

SMALL = [
    ("conv2d", {"ci": 3, "h": 5, "w": 6, "co": 4}),
    ("conv2d", {"ci": 3, "h": 7, "w": 6, "co": 2, "k": 1, "pad": 0, "stride": 2}),
    ("conv2d", {"n": 2, "ci": 4, "h": 8, "w": 7, "co": 6, "groups": 2, "dilation": 2, "pad": 2}),
    ("conv2d", {"ci": 2, "h": 6, "w": 9, "co": 3, "kh": 2, "kw": 3, "stride_h": 2, "pad_w": 0, "dilation_w": 2}),
    ("conv2d", {"n": 2, "ci": 4, "h": 5, "w": 6, "co": 6, "groups": 2, "layout": "nhwc"}),
    ("conv2d", {"ci": 3, "h": 9, "w": 9, "co": 2, "k": 5, "stride": 4, "pad": 0, "layout": "nhwc"}),
    ("conv1d", {"ci": 3, "w": 9, "co": 4}),
    ("conv1d", {"n": 2, "ci": 4, "w": 11, "co": 2, "k": 4, "stride": 2, "pad": 2, "groups": 2, "layout": "nwc"}),
    ("conv3d", {"ci": 2, "d": 3, "h": 4, "w": 5, "co": 3}),
    (
        "conv3d",
        {
            "n": 2,
            "ci": 2,
            "d": 5,
            "h": 4,
            "w": 5,
            "co": 4,
            "kd": 2,
            "stride_h": 2,
            "groups": 2,
            "dilation_w": 2,
            "layout": "ndhwc",
        },
    ),
    ("conv2d_transpose", {"ci": 3, "h": 4, "w": 5, "co": 2}),
    (
        "conv2d_transpose",
        {
            "n": 2,
            "ci": 2,
            "h": 3,
            "w": 4,
            "co": 3,
            "k": 3,
            "stride_w": 3,
            "pad_w": 2,
            "output_pad": 1,
            "layout": "nhwc",
        },
    ),
    ("conv2d_transpose", {"ci": 2, "h": 3, "w": 3, "co": 2, "k": 1, "stride": 1, "pad": 0}),
    ("conv2d_bias_act", {"ci": 3, "h": 5, "w": 6, "co": 4}),
    ("conv2d_bias_act", {"ci": 2, "h": 5, "w": 4, "co": 4, "groups": 2, "layout": "nhwc", "act": "gelu"}),
    ("conv2d_bias_act", {"ci": 2, "h": 4, "w": 4, "co": 2, "act": "clip", "k": 1, "pad": 0}),
    ("depthwise_conv2d", {"c": 3, "h": 5, "w": 6}),
    ("depthwise_conv2d", {"n": 2, "c": 3, "h": 8, "w": 7, "stride": 2, "layout": "nhwc"}),
    ("matmul", {"m": 5, "n": 7, "k": 3}),
    ("matmul", {"m": 5, "n": 7, "k": 3, "transpose_a": 1}),
    ("matmul", {"m": 5, "n": 7, "k": 3, "transpose_b": 1}),
    ("batch_matmul", {"b": 3, "m": 2, "n": 4, "k": 5}),
    ("batch_matmul", {"b": 2, "m": 3, "n": 4, "k": 5, "transpose_a": True, "transpose_b": True}),
    ("matmul_bias_act", {"m": 5, "n": 7, "k": 3}),
    *(("matmul_bias_act", {"m": 3, "n": 4, "k": 5, "act": act}) for act in ACTIVATIONS),
    ("max_pool2d", {"c": 3, "h": 7, "w": 8}),
    ("max_pool2d", {"c": 2, "h": 6, "w": 6, "k": 2, "pad": 0}),
    ("max_pool2d", {"n": 2, "c": 3, "h": 7, "w": 8, "dilation": 2, "pad": 2, "layout": "nhwc"}),
    ("avg_pool2d", {"c": 3, "h": 7, "w": 8}),
    ("avg_pool2d", {"c": 3, "h": 7, "w": 8, "include_pad": 0, "pad_w": 2, "stride_w": 1, "layout": "nhwc"}),
    ("avg_pool2d", {"c": 2, "h": 6, "w": 6, "k": 2, "pad": 0, "include_pad": 0}),
    ("global_max_pool2d", {"n": 2, "c": 3, "h": 4, "w": 5}),
    ("global_avg_pool2d", {"n": 2, "c": 3, "h": 4, "w": 5, "layout": "nhwc"}),
    *((f"{over}_{op}", {"rows": 5, "cols": 9}) for over in ("row", "col") for op in ("sum", "max", "mean")),
    ("add_act", {"rows": 4, "cols": 6, "act": "silu"}),
    ("softmax", {"rows": 4, "cols": 6}),
    ("layernorm", {"rows": 4, "cols": 6}),
    ("scale_shift_relu", {"rows": 4, "cols": 6}),
]


def inputs_of(work, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return {b.name: rng.standard_normal(b.shape).astype(dtype) for b in work.func.buffers if b.name in work.inputs}


def interpreted(work, inputs):
    """Outputs by name from the program, with outputs that start as NaN or -1."""
    blanks = {b.name: np.nan if b.dtype in ("float16", "float32", "float64") else -1 for b in work.func.buffers}
    arrays = [inputs.get(b.name, np.full(b.shape, blanks[b.name]).astype(boundary_dtype(b.dtype)))
              for b in work.func.buffers]  # fmt: skip
    interpret(work.func, *arrays)
    return {b.name: a for b, a in zip(work.func.buffers, arrays, strict=True) if b.name in work.outputs}


@pytest.mark.parametrize(("name", "params"), SMALL)
def test_program_and_reference_agree(name, params):
    """The interpreted program and the NumPy reference give the same numbers on the same data."""
    work = workload(name, **params, dtype="float64")
    inputs = inputs_of(work)
    expected = work.reference(inputs)
    got = interpreted(work, inputs)
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


def test_convolutions_of_other_ranks_are_the_definition():
    """The references of conv1d and conv3d equal the sum written out."""
    work = workload("conv1d", ci=2, w=7, co=3, k=3, stride=2, pad=1, dilation=2)
    inputs = inputs_of(work)
    y = work.reference(inputs)["y"]
    for n, co, ow in itertools.product(*map(range, y.shape)):
        taps = [(ci, k, ow * 2 + k * 2 - 1) for ci in range(2) for k in range(3)]
        total = sum(inputs["x"][n, ci, at] * inputs["w"][co, ci, k] for ci, k, at in taps if 0 <= at < 7)
        assert y[n, co, ow] == pytest.approx(total, abs=1e-12)
    work = workload("conv3d", ci=2, d=3, h=4, w=3, co=2, kd=2, pad=1)
    inputs = inputs_of(work)
    y = work.reference(inputs)["y"]
    x = np.zeros((1, 2, 5, 6, 5))
    x[:, :, 1:4, 1:5, 1:4] = inputs["x"]
    for n, co, od, oh, ow in itertools.product(*map(range, y.shape)):
        seen = x[n, :, od : od + 2, oh : oh + 3, ow : ow + 3]
        assert y[n, co, od, oh, ow] == pytest.approx((seen * inputs["w"][co]).sum(), abs=1e-12)


def test_transposed_convolution_is_the_gradient_of_a_convolution():
    """``<conv2d(u, w), x> = <u, conv2d_transpose(x, w)>`` for every u, which defines it."""
    forward = workload("conv2d", ci=2, h=7, w=8, co=3, k=3, stride=2, pad=1, dtype="float64")
    backward = workload("conv2d_transpose", ci=3, h=4, w=4, co=2, k=3, stride=2, pad=1, output_pad_w=1)
    u, w = (inputs_of(forward)[name] for name in ("x", "w"))
    x = np.random.default_rng(5).standard_normal((1, 3, 4, 4))
    left = (forward.reference({"x": u, "w": w})["y"] * x).sum()
    back = backward.reference({"x": x, "w": w})["y"]
    assert back.shape == u.shape
    assert left == pytest.approx((u * back).sum(), rel=1e-12)


@pytest.mark.parametrize("include", [0, 1])
def test_mean_pooling_counts_what_it_is_told_to(include):
    """Without `include_pad` each window divides by its pixels inside the image, with it by all of its taps."""
    work = workload("avg_pool2d", c=2, h=5, w=7, include_pad=include)
    x = inputs_of(work)["x"]
    y = work.reference({"x": x})["y"]
    for n, c, oh, ow in itertools.product(*map(range, y.shape)):
        seen = x[n, c, max(0, 2 * oh - 1) : 2 * oh + 2, max(0, 2 * ow - 1) : 2 * ow + 2]
        assert y[n, c, oh, ow] == pytest.approx(seen.sum() / (9 if include else seen.size), rel=1e-12)


@pytest.mark.parametrize(
    ("act", "point", "value"),
    [
        ("relu", -2.0, 0.0), ("clip", 7.5, 6.0), ("clip", -1.0, 0.0), ("leaky_relu", -2.0, -0.02),
        ("sigmoid", 0.0, 0.5), ("tanh", 1.0, 0.7615941559557649), ("silu", 1.0, 0.7310585786300049),
        ("gelu", 1.0, 0.8413447460685429), ("gelu", -1.0, -0.15865525393145707), ("none", 3.25, 3.25),
    ],
)  # fmt: skip
def test_activations_have_their_known_values(act, point, value):
    """Each activation at a point, from tables."""
    assert ACTIVATIONS[act].compute(np.array([point]))[0] == pytest.approx(value, abs=1e-15)


SMALLEST = dict(reversed(SMALL))
NARROW = ("float16", "bfloat16", "int8")
MIXED = [(name, dtype) for name in OPERATORS for dtype in NARROW if dtype in OPERATORS[name].dtypes]


@pytest.mark.parametrize(("name", "dtype"), MIXED)
def test_narrow_types_are_summed_in_wide_ones(name, dtype):
    """Half floats are stored as such but summed in float32, bytes in int32, and the reference does the same."""
    work = workload(name, **SMALLEST[name], dtype=dtype)
    stored = {b.name: b.dtype for b in work.func.buffers}
    assert {stored[n] for n in work.inputs} == {dtype}
    assert {stored[n] for n in work.outputs} == {"int32" if dtype == "int8" else dtype}
    rng = np.random.default_rng(3)
    shapes = {b.name: b.shape for b in work.func.buffers if b.name in work.inputs}
    held = "float32" if dtype == "bfloat16" else dtype  # a reference is given numbers of NumPy, which has no bfloat16
    inputs = {n: rng.integers(-100, 101, shape).astype(held) for n, shape in shapes.items()}
    bits = {n: bfloat16_bits(a) for n, a in inputs.items()} if dtype == "bfloat16" else inputs
    expected, got = work.reference(inputs), interpreted(work, bits)
    for output, value in expected.items():
        assert value.dtype == (held if dtype == "bfloat16" else stored[output])
        if dtype == "int8":
            np.testing.assert_array_equal(got[output], value)
        else:
            found = bfloat16_values(got[output]) if dtype == "bfloat16" else got[output]
            eps = 2.0**-8 if dtype == "bfloat16" else 2e-3
            np.testing.assert_allclose(found.astype("float64"), value.astype("float64"), rtol=eps, atol=eps)


def test_bytes_do_not_overflow_in_a_product():
    """127 * 127 * 100 needs more than 16 bits, and is what an int8 product of hundreds gives."""
    work = workload("matmul", m=1, n=1, k=100, dtype="int8")
    inputs = {name: np.full(shape, 127, "int8") for name, shape in (("a", (1, 100)), ("b", (100, 1)))}
    assert work.reference(inputs)["c"][0, 0] == interpreted(work, inputs)["c"][0, 0] == 127 * 127 * 100


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
    check_in_bounds(work.func)
    assert parse(work.script) == work.func
    assert {p.name for p in parameters(name)} >= set(work.shape) - {"kh", "kw"}
    assert all(workload(name, dtype=dtype).params["dtype"] == dtype for dtype in OPERATORS[name].dtypes)
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
        ("conv2", {}, errors.UnknownWorkload, r"no workload 'conv2' .did you mean 'conv2d'\?"),
        ("conv2d", {"pads": 1}, errors.UnknownParameter, r"no parameter 'pads' .did you mean 'pad'\?"),
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
        ("conv2d_transpose", {"k": 2, "pad": 2}, errors.ShapeError, "pad_h=2 cuts off more than kh=2 adds"),
        ("conv2d_transpose", {"output_pad": 2}, errors.ShapeError, "output_pad_h=2 must be less than stride_h=2"),
        ("conv1d", {"h": 3}, errors.UnknownParameter, "no parameter 'h'"),
        ("conv1d", {"strid": 2}, errors.UnknownParameter, "did you mean 'stride'"),
        ("matmul", {"transpose_c": 1}, errors.UnknownParameter, "did you mean 'transpose_[ab]'"),
        ("matmul", {"transpose_a": 2}, errors.ShapeError, "takes transpose_a from 0 to 1, but got transpose_a=2"),
        ("matmul_bias_act", {"act": "rely"}, errors.ShapeError, "did you mean 'relu'"),
        ("avg_pool2d", {"dilation": 2}, errors.UnknownParameter, "no parameter 'dilation'"),
        ("conv2d", {"stride": "1..2"}, errors.ShapeError, "takes one number for stride, and no range"),
        ("conv1d", {"k": "1..2"}, errors.ShapeError, "takes no range for k: its program is another one"),
        ("conv2d", {"pad": (0, 2)}, errors.ShapeError, "takes one number for pad, and no range"),
        ("matmul", {"m": "1-512"}, errors.ShapeError, "a range is written 1..512, or 32..960:32"),
        ("matmul", {"m": "..512"}, errors.ShapeError, "a range is written 1..512"),
        ("matmul", {"m": range(1, 5)}, errors.ShapeError, "a range is written 1..512"),
        ("matmul", {"dtype": "int4"}, errors.ShapeError, "but got 'int4'$"),
        ("softmax", {"dtype": "int8"}, errors.ShapeError, "takes dtype float32, float64, float16, bfloat16"),
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
