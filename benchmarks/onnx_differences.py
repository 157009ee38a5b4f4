"""Where ONNX Runtime, or ONNX's reference, computes something else than ONNX's definition says, and we do not.

Each difference is as narrow as what it is about: operators, a condition on the case, the elements of the result, and
how far apart these may be.  Its reason cites the text of the definition that decides, or says that none does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from onnx_cases import Array, Case

Condition: TypeAlias = Callable[[Case], bool]
Where: TypeAlias = Callable[[Case, Array, Array], Any]

RUNTIME, REFERENCE, KERNELS = "ONNX Runtime", "the reference", "the definition of its compiled kernels"
POOLS = ("MaxPool", "AveragePool", "LpPool")
BY_LENGTHS = ("align_corners", "tf_crop_and_resize", "pytorch_half_pixel")
BOTH = (RUNTIME, REFERENCE)


@dataclass(frozen=True)
class Difference:
    """`where` are the elements that may differ, from our result and the other one; True is the whole result."""

    ops: Sequence[str]
    reason: str
    holds: Condition
    where: Where = lambda case, ours, theirs: True
    witnesses: Sequence[str] = (RUNTIME,)


def _rank(case: Case) -> int:
    image = case.given(0)
    return 0 if image is None else image.ndim - 2


def _numbers(case: Case, name: str, default: int) -> list[int]:
    return [int(n) for n in case.value(name, [default] * _rank(case))]


def _taps(case: Case) -> list[int]:
    weights = case.given(1)
    return _numbers(case, "kernel_shape", 1) if case.op in POOLS or weights is None else list(weights.shape[2:])


def _says_more(case: Case) -> bool:
    """Whether a recurrent layer has what the reference ignores."""
    return case.given(4) is not None or any(case.value(name) for name in ("clip", "activations", "input_forget"))


def _is_same(case: Case) -> bool:
    return str(case.value("auto_pad", "")).startswith("SAME")


def _widens(case: Case) -> bool:
    """Whether taps with steps between them reach further than they are many."""
    return any(d > 1 and k > 1 for d, k in zip(_numbers(case, "dilations", 1), _taps(case), strict=True))


def _leaps(case: Case) -> bool:
    """Whether windows lie so far apart that padding which lets them end with the image would be negative."""
    image = case.given(0)
    assert image is not None
    spans = [d * (k - 1) + 1 for d, k in zip(_numbers(case, "dilations", 1), _taps(case), strict=True)]
    strides = _numbers(case, "strides", 1)
    padding = [(-(-e // s) - 1) * s + span - e for e, s, span in zip(image.shape[2:], strides, spans, strict=True)]
    return _is_same(case) and min(padding) < 0


def _beyond(case: Case, ours: Array, theirs: Array) -> Any:
    """The whole result where it is the other one with a border of what is added to nothing."""
    if ours.ndim != theirs.ndim or any(a < b for a, b in zip(ours.shape, theirs.shape, strict=True)):
        return False
    if theirs.dtype.kind != "f":
        return bool(np.array_equal(ours[tuple(slice(e) for e in theirs.shape)], theirs))
    part, rtol = ours[tuple(slice(e) for e in theirs.shape)], 1e-2 if theirs.dtype == np.float16 else 1e-4
    return bool(np.all(np.isclose(part, theirs, rtol=rtol, atol=1e-2) | np.isnan(part) | np.isnan(theirs)))


def _near(part: float, whole: float) -> Where:
    """Elements that are so near: to the other one, and to numbers of size 1."""

    def where(case: Case, ours: Array, theirs: Array) -> Any:
        if ours.shape != theirs.shape:
            return False
        a, b = ours.astype(float), theirs.astype(float)
        with np.errstate(all="ignore"):
            return np.abs(a - b) <= part * np.abs(b) + whole

    return where


def _ours_nan(case: Case, ours: Array, theirs: Array) -> Any:
    return np.isnan(ours) if ours.shape == theirs.shape else False


def _theirs_nan(case: Case, ours: Array, theirs: Array) -> Any:
    return np.isnan(theirs) if ours.shape == theirs.shape else False


def _theirs_not_finite(case: Case, ours: Array, theirs: Array) -> Any:
    """Where the other one is not finite, or has the end of its type for what is infinite, as the reference does."""
    if ours.shape != theirs.shape or theirs.dtype.kind != "f":
        return False
    return ~np.isfinite(theirs) | (np.abs(theirs) == np.finfo(theirs.dtype).max)


def _has(test: Callable[[Array], Any]) -> Condition:
    def holds(case: Case) -> bool:
        given = [a for a in case.inputs.values() if a is not None and a.dtype.kind == "f"]
        return any(bool(np.any(test(a))) for a in given)

    return holds


_has_nan, _has_infinite = _has(np.isnan), _has(lambda a: ~np.isfinite(a))


def _always(case: Case) -> bool:
    return True


def _mode(*names: str) -> Condition:
    return lambda case: case.value("mode", "nearest") in names


def _single_rounds_up(case: Case) -> bool:
    """Whether an extent times a factor is a whole number in float32 and less than that in truth."""
    image, scales = case.given(0), case.given(2 if case.op == "Resize" and case.opset > 10 else 1)
    numbers = case.value("scales") if scales is None or not scales.size else scales
    if image is None or numbers is None:
        return False
    axes = case.value("axes", range(image.ndim))
    pairs = [(np.float32(s), image.shape[at]) for at, s in zip(axes, numbers, strict=False)]
    return any(math.floor(np.float32(e) * s) != math.floor(float(s) * e) for s, e in pairs)


def _has_cropped_axis_of_scale_1(case: Case) -> bool:
    """Whether an axis keeps its extent, but not its region, from 0 to 1."""
    region, scales = case.given(1), case.given(2)
    if case.value("coordinate_transformation_mode") != "tf_crop_and_resize" or region is None or scales is None:
        return False
    axes = len(scales)
    return any(s == 1 and (region[k], region[k + axes]) != (0, 1) for k, s in enumerate(scales))


def _is_root(case: Case) -> bool:
    exponent = case.given(1)
    return exponent is not None and exponent.size == 1 and float(exponent.reshape(-1)[0]) == 0.5


def _is_inexact(case: Case) -> bool:
    """Whether a factor is a number that float32 rounds, as a third or what sizes say."""
    scales = case.given(2 if case.opset > 10 else 1)
    return scales is None or not scales.size or any(float(s) * 64 != int(float(s) * 64) for s in scales)


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        ("BatchNormalization",), "With one output the mode is that of tests: mean and variance are those given; the "
        "reference of versions before 14 mixes in those of the batch where `momentum` is written.",
        lambda c: c.opset < 14 and c.value("momentum") is not None, witnesses=(REFERENCE,),
    ),
    Difference(
        ("RoiAlign",), "Versions before 16 take no half pixel off the regions; the reference does.",
        lambda c: c.opset < 16, witnesses=(REFERENCE,),
    ),
    Difference(
        ("Softmax", "LogSoftmax"), "Before version 13 the input is flattened to a matrix at `axis`; the reference "
        "takes one dimension.", lambda c: c.opset < 13, witnesses=(REFERENCE,),
    ),
    Difference(
        ("AveragePool",), "A mean of values of which one is NaN is NaN; the reference, which pads with NaN, leaves it "
        "out.",
        _has_nan, _ours_nan, (REFERENCE,),
    ),
    Difference(
        ("LSTM",), "`clip` is applied to the input of activations, that of the cell's own among them; ONNX Runtime "
        "leaves that out.", lambda c: bool(c.value("clip")),
    ),
    Difference(
        ("LSTM", "GRU", "RNN"), "`layout` 1, which ONNX Runtime has not; the reference ignores `clip`, `activations`, "
        "`input_forget` and `sequence_lens`.", _says_more, witnesses=(REFERENCE,),
    ),
    Difference(
        ("GridSample",), "`border`: for out-of-bound grid locations border values are used; ONNX Runtime uses them for "
        "taps, of which those of a cubic lie further inside.",
        lambda c: "cubic" in str(c.value("mode")) and c.value("padding_mode") == "border",
    ),
    Difference(
        POOLS, "`auto_pad` SAME_*: output_shape[i] = ceil(input_shape[i] / strides[i]), and pad_shape[i] has "
        "(kernel_shape[i] - 1) * dilations[i] + 1; the other one pads as if there were no dilations.",
        lambda c: _is_same(c) and _widens(c), witnesses=BOTH,
    ),
    Difference(
        POOLS, "`pads` can take any value greater than or equal to 0, so that SAME_* does not cut off what windows far "
        "apart leave out; the reference does.", _leaps, witnesses=(REFERENCE,),
    ),
    Difference(
        POOLS, "`auto_pad` SAME_*: output_shape[i] = ceil(input_shape[i] / strides[i]), with `ceil_mode` as without; "
        "the reference counts windows as if the image were not padded.",
        lambda c: _is_same(c) and bool(c.value("ceil_mode", 0)),
        lambda c, ours, theirs: ours.shape != theirs.shape, witnesses=(REFERENCE,),
    ),
    Difference(
        ("Conv", *POOLS), "`pads` can take any value greater than or equal to 0, so that SAME_* does not cut off what "
        "windows that lie far apart leave out; ONNX Runtime does.", _leaps,
    ),
    Difference(
        POOLS, "`auto_pad` VALID with `ceil_mode`: output_shape[i] = ceil((input_shape[i] - ((kernel_shape[i] - 1) * "
        "dilations[i] + 1) + 1) / strides[i]), which are the whole windows; ONNX Runtime adds one that is not.",
        lambda c: c.value("auto_pad") == "VALID" and bool(c.value("ceil_mode", 0)),
        lambda c, ours, theirs: ours.shape != theirs.shape and _beyond(c, theirs, ours),
    ),
    Difference(
        ("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "Max", "Min"),
        "No text says what the largest of something and NaN is: here it is NaN, as Max and Min of NumPy and pools of "
        "PyTorch have it; ONNX Runtime may leave NaN out.", _has_nan, _ours_nan, BOTH,
    ),
    Difference(
        ("ArgMax", "ArgMin", "Hardmax"), "No text says where the largest element is if there is NaN: here it is where "
        "the first NaN is, as in NumPy and the reference.", _has_nan,
    ),
    Difference(
        ("GlobalMaxPool", "GlobalAveragePool"), "The output has `the same rank as the original input`; the reference "
        "gives images of one or three dimensions another one.", lambda c: _rank(c) != 2,
        lambda c, ours, theirs: ours.shape != theirs.shape, (REFERENCE,),
    ),
    Difference(
        ("ConvTranspose",), "`auto_pad` SAME_*: output_shape[i] = input_shape[i] * strides[i]; ONNX Runtime leaves out "
        "the rows at the end that no tap reaches.", _is_same, _beyond,
    ),
    Difference(
        ("ConvTranspose",), "`pads` can take any value greater than or equal to 0; the reference takes from nothing "
        "where SAME_* has more rows than taps reach.", _is_same, witnesses=(REFERENCE,),
    ),
    Difference(
        ("Sigmoid", "HardSwish", "Gelu", "Erf"), "y = 1 / (1 + exp(-x)), Erf: ONNX Runtime approximates them by "
        "polynomials with errors that are parts of 1.", _always, _near(1e-6, 1.5e-7),
    ),
    Difference(
        ("HardSwish",), "alpha = 1/6: the body of the function has it in float32 for every type.",
        lambda c: "float64" in c.floats, _near(1e-6, 1e-7), BOTH,
    ),
    Difference(
        ("Erf",), "Computes the error function: the reference rounds it to float32 for every type.",
        lambda c: "float64" in c.floats, _near(1e-7, 0), (REFERENCE,),
    ),
    Difference(
        ("GroupNormalization", "LayerNormalization"), "`stash_type`: the computation is in float32, with its rounding.",
        lambda c: "float64" in c.floats, _near(1e-6, 1e-6), BOTH,
    ),
    Difference(
        ("QLinearMatMul", "QLinearConv"), "`For (x / y_scale), it is rounding to nearest ties to even`, before the "
        "zero point is added; the reference adds it before.", _always, _near(0, 1), (REFERENCE,),
    ),
    Difference(
        ("QLinearConv",), "Scales may be `1-D tensors (per output channel)`, for images of any rank; the reference "
        "makes four dimensions of them.", lambda c: _rank(c) != 2,
        lambda c, ours, theirs: ours.shape != theirs.shape, (REFERENCE,),
    ),
    Difference(
        ("Slice",), "For negative stepping `ends` is clamped to [-1, dims[axes[i]] - 1]: from the last element to "
        "INT_MAX there is none; ONNX Runtime takes it for the other end.",
        lambda c: c.opset >= 10 and (steps := c.given(4)) is not None and bool(np.any(steps < 0)),
        lambda c, ours, theirs: ours.shape != theirs.shape,
    ),
    Difference(
        ("Resize", "Upsample"), "output_dimension = floor(input_dimension * scale): ONNX Runtime has the "
        "product in float32, which may round up to the next number.", _single_rounds_up,
        lambda c, ours, theirs: ours.shape != theirs.shape,
    ),
    Difference(
        ("Resize", "Upsample"), "A weighted average of neighbours: one of weight 0 is not part of it, but 0 times "
        "infinity is NaN where it is computed all the same, and a weight that is rounded times infinity infinite.",
        _has_infinite, _theirs_not_finite, BOTH,
    ),
    Difference(
        ("Resize", "Upsample"), "No text says how a weighted average of integers is rounded: here towards 0 and at the "
        "ends of the type, and ONNX Runtime and the reference may be one apart.",
        lambda c: not c.floats or (c.given(0) is not None and c.given(0).dtype.kind != "f"), _near(0, 1), BOTH,
    ),
    Difference(
        ("LpPool",), "`pads` are for the beginning and ending of each axis, and what lies there is 0; the reference "
        "leaves NaN out, and counts elements beyond the border for `ceil_mode`.",
        lambda c: _has_nan(c) or bool(c.value("ceil_mode", 0)), witnesses=(REFERENCE,),
    ),
    Difference(
        ("MeanVarianceNormalization",), "The body of the function adds 1e-9 to the deviation, so that rows that do not "
        "vary give 0; ONNX Runtime divides 0 by 0.", _always, _theirs_nan,
    ),
    Difference(
        ("ReduceMean", "ReduceMax", "ReduceMin"), "Reduction over an empty set of values yields undefined.",
        lambda c: 0 in getattr(c.given(0), "shape", ()),
    ),
    Difference(
        ("ReduceSumSquare", "ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2"), "The output is of the type of the "
        "input; ONNX Runtime gives one without dimensions another one.",
        lambda c: not getattr(c.given(0), "shape", (1,)),
        lambda c, ours, theirs: ours.dtype != theirs.dtype and ours.size == 1 and ours == theirs,
    ),
    Difference(
        ("Sign",), "The sign of what is neither above, nor below, nor 0 is not said: here it is NaN, as in the "
        "reference, and in ONNX Runtime for float32.", lambda c: _has_nan(c) and "float16" in c.floats, _ours_nan,
    ),
    Difference(
        ("Resize",), "x_original is rounded to the nearest place: ONNX Runtime computes it in float32, in which "
        "numbers just below a half are halves.", lambda c: _mode("nearest")(c) and _is_inexact(c),
    ),
    Difference(
        ("ReduceSumSquare", "ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2"), "What integers do that overflow is "
        "not said: here they wrap, as in the reference; ONNX Runtime takes them for floats in between.",
        lambda c: not c.floats and np.max(np.abs(np.asarray(c.given(0), float)), initial=0) > 2**23,
    ),
    Difference(
        ("LRN",), "square_sum[n, c] is for every channel c; the reference goes through as many channels as there are "
        "images.", _always, witnesses=(REFERENCE,),
    ),
    Difference(
        ("LogSoftmax", "Softmax"), "exp(x) / sum(exp(x)) is NaN where one x is infinite; ONNX Runtime has numbers for "
        "it that are not said.", _has_infinite, _ours_nan,
    ),
    Difference(
        ("ReduceLogSumExp",), "A sum in which there is NaN is NaN; ONNX Runtime may leave it out.", _has_nan, _ours_nan,
    ),
    Difference(
        ("Clip",), "The body of the function compares with no bound that is absent, so that an infinite number stays; "
        "ONNX Runtime takes the lowest and the largest number for it.",
        lambda c: c.opset >= 11 and (c.given(1) is None or c.given(2) is None) and _has_infinite(c),
        lambda c, ours, theirs: np.isinf(ours),
    ),
    Difference(
        ("Shrink",), "y = x - bias: ONNX Runtime computes it in float32 for every type.",
        lambda c: "float64" in c.floats, _near(1e-7, 1e-7),
    ),
    Difference(
        ("Shrink",), "y = x - bias: ONNX Runtime computes it in float32, which the ends of int32 leave.",
        lambda c: not c.floats and np.max(np.abs(np.asarray(c.given(0), float)), initial=0) > 2**24,
    ),
    Difference(
        ("Resize",), "x_original = start_x * (length_original - 1) + ... for every axis: ONNX Runtime leaves an axis "
        "alone whose scale is 1, whatever its region is.", _has_cropped_axis_of_scale_1,
        lambda c, ours, theirs: ours.shape == theirs.shape,
    ),
    Difference(
        ("Resize",), "`keep_aspect_ratio_policy`: out_size[i] = round_int(scale * in_size[i]) for all "
        "of `axes`, which may be negative; ONNX Runtime leaves the negative ones out.",
        lambda c: c.value("keep_aspect_ratio_policy", "stretch") != "stretch" and min(c.value("axes", [0])) < 0,
        lambda c, ours, theirs: ours.shape != theirs.shape,
    ),
    Difference(
        ("MeanVarianceNormalization",), "The body of the function has E[x^2] - E[x]^2 for the variance, which "
        "loses digits where rows hardly vary; ONNX Runtime takes the mean off first.", _always, _near(1e-3, 1e-3),
    ),
    Difference(
        ("Pow",), "The power 0.5 as a constant is a square root, which is NaN for -inf, as in NumPy; no text speaks of "
        "it, and ONNX Runtime has what C has, inf.", lambda c: _has_infinite(c) and _is_root(c), _ours_nan,
    ),
    Difference(
        ("HardSigmoid", "LeakyRelu", "Elu"), "A product with a constant 0 is 0 in a kernel, also of infinity or NaN, "
        "as docs/numerics.md says.", lambda c: c.value("alpha") == 0 and (_has_nan(c) or _has_infinite(c)),
        _theirs_nan, (KERNELS,),
    ),
    Difference(
        ("Resize",), "x_original is by length_resized, which is a whole number, and 0 for pytorch_half_pixel where "
        "that is 1; the reference takes length_original * scale for it.",
        lambda c: c.value("coordinate_transformation_mode") in BY_LENGTHS, witnesses=(REFERENCE,),
    ),
    Difference(
        ("ReduceLogSumExp",), "The body of the function casts to double, and the logarithm back; ONNX Runtime has the "
        "exponentials of integers in integers.", lambda c: not c.floats, _near(0, 8),
    ),
    Difference(
        ("ReduceLogSumExp",), "log(sum(exp(x))) is infinite where one x is; ONNX Runtime takes the largest one from "
        "itself, which is NaN.", _has_infinite, _theirs_nan,
    ),
    Difference(
        ("InstanceNormalization",), "y = scale * (x - mean) / sqrt(variance + epsilon) + B: ONNX Runtime multiplies "
        "before it subtracts, which loses digits where rows hardly vary.", _always,
        lambda c, ours, theirs: _near(1e-4, 64 * _unit(c) * _size(c))(c, ours, theirs),
    ),
)  # fmt: skip


def _unit(case: Case) -> float:
    return float(np.finfo(min(case.floats, key=("float16", "float32", "float64").index)).eps)


def _size(case: Case) -> float:
    """How large what is normalised may become before its mean is taken from it."""
    x, scale = case.given(0), case.given(1)
    assert x is not None and scale is not None
    largest = float(np.max(np.abs(x), initial=0)) * float(np.max(np.abs(scale), initial=0))
    return largest / math.sqrt(float(case.value("epsilon", 1e-5)))
