"""Single operators of ONNX with odd attributes, compared with what its text says and with other implementations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_operators
import pytest
from onnx_models import model, node
from opencl_programs import device
from scale import scaled

from stridesmith.backends.devices import discover
from stridesmith.errors import ModelProblem
from stridesmith.ir.target import Target
from stridesmith.models.api import compiled, network_of
from stridesmith.models.evaluate import evaluate
from stridesmith.models.network import Network
from stridesmith.models.onnx import read

Array = np.ndarray


def network(op: str, x: Array, constants: dict[str, Any] | None = None, opset: int = 18, **values: Any) -> Network:
    """The network of one operator whose other inputs are constants."""
    names = " ".join(["x", *(constants or {})])
    return read(model([node(op, names, "y", **values)], {"x": x.shape}, constants, opset=opset, dtype=str(x.dtype)))


def result(found: Network, x: Array, target: Target | None = None) -> Array:
    """What a network gives, in the interpreter or compiled."""
    with np.errstate(all="ignore"):
        return np.asarray(compiled(network_of(found, target), target)(x) if target else evaluate(found, {"x": x})["y"])


def pooled(op: str, x: Array, opset: int, **values: Any) -> Array:
    """The windows of a pool one by one: those that begin in the image or in front of it, of what is in the image."""
    rank = x.ndim - 2
    taps, pads = values["kernel_shape"], values.get("pads", [0] * 2 * rank)
    strides, steps = values.get("strides", [1] * rank), values.get("dilations", [1] * rank)
    places: list[list[int]] = []
    for at, size in enumerate(x.shape[2:]):
        missing = steps[at] * (taps[at] - 1) + 1 - size - pads[rank + at]
        most = strides[at] if values.get("ceil_mode") else 1
        places.append([p for p in range(-pads[at], size, strides[at]) if p + missing < most])
    y = np.zeros((*x.shape[:2], *map(len, places)))
    for at in itertools.product(*(range(len(some)) for some in places)):
        seen, counted = [], 0
        for tap in itertools.product(*map(range, taps)):
            point = [places[d][at[d]] + tap[d] * steps[d] for d in range(rank)]  # type: ignore[index]
            counted += all(-pads[d] <= p < x.shape[2 + d] + pads[rank + d] for d, p in enumerate(point))
            if all(0 <= p < x.shape[2 + d] for d, p in enumerate(point)):
                seen.append(x[(slice(None), slice(None), *point)].astype(float))
        if op == "MaxPool":
            y[(..., *at)] = np.max(seen, axis=0)
        elif op == "LpPool":
            y[(..., *at)] = np.sum(np.abs(seen) ** values.get("p", 2), axis=0) ** (1 / values.get("p", 2))
        else:
            y[(..., *at)] = np.sum(seen, axis=0) / (counted if values.get("count_include_pad") else len(seen))
    return y


POOLS = [
    ("MaxPool", 11, {"kernel_shape": [3, 1], "strides": [2, 2], "ceil_mode": 1}),
    ("MaxPool", 17, {"kernel_shape": [2, 2], "strides": [3, 2], "pads": [0, 0, 1, 1], "ceil_mode": 1}),
    ("MaxPool", 22, {"kernel_shape": [2, 3], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    ("AveragePool", 11, {"kernel_shape": [2, 3], "strides": [3, 1], "pads": [1, 1, 1, 2], "ceil_mode": 1}),
    ("AveragePool", 19, {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1], "dilations": [2, 2],
                         "ceil_mode": 1}),
    ("AveragePool", 19, {"kernel_shape": [3, 2], "strides": [3, 2], "pads": [2, 1, 1, 2], "dilations": [2, 3],
                         "ceil_mode": 1, "count_include_pad": 1}),
    ("LpPool", 18, {"kernel_shape": [2, 3], "strides": [3, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1, "p": 3}),
    ("LpPool", 18, {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 2, 1], "dilations": [2, 2], "p": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "opset", "values"), POOLS)
@pytest.mark.parametrize("shape", [(1, 2, 5, 7), (2, 1, 6, 6), (1, 1, 7, 8)])
def test_pools_end_with_the_last_window_that_begins_in_the_image(
    op: str, opset: int, values: dict[str, Any], shape: tuple[int, ...]
) -> None:
    """With `ceil_mode` no window begins in the padding at the end, in any version, and programs compute them all."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = network(op, x, opset=opset, **values)
    assert not found.foreign
    wanted = pooled(op, x, opset, **values)
    for target in (None, discover("cpu", 1)):
        np.testing.assert_allclose(result(found, x, target), wanted, rtol=1e-5, atol=1e-6)


def test_whole_windows_alone_are_valid() -> None:
    """`auto_pad` VALID leaves out the windows that are not whole, also with `ceil_mode`."""
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    for op in ("MaxPool", "AveragePool", "LpPool"):
        found = network(op, x, kernel_shape=[3], strides=[2], auto_pad="VALID", ceil_mode=1)
        assert result(found, x).shape == (1, 1, 2)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_norm_of_an_image_is_a_program(p: int) -> None:
    """The reference implementation of ONNX has no GlobalLpPool."""
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    found = network("GlobalLpPool", x, p=p)
    assert not found.foreign
    wanted = (np.abs(x.astype(float)) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    np.testing.assert_allclose(result(found, x), wanted, rtol=1e-5)


def transposed(x: Array, w: Array, strides: Sequence[int], outs: Sequence[int], front: Sequence[int]) -> Array:
    """A transposed convolution that adds up what each element of the image gives."""
    y = np.zeros((x.shape[0], w.shape[1], *outs))
    for at in itertools.product(*map(range, x.shape[2:])):
        for tap in itertools.product(*map(range, w.shape[2:])):
            place = [a * s + k - f for a, s, k, f in zip(at, strides, tap, front, strict=True)]
            if all(0 <= p < e for p, e in zip(place, outs, strict=True)):
                y[(..., *place)] += np.einsum("ni,io->no", x[(..., *at)], w[(..., *tap)])
    return y


@pytest.mark.parametrize(("auto", "front"), [("SAME_UPPER", (0, 1)), ("SAME_LOWER", (1, 1))])
def test_a_result_of_the_same_size_is_a_multiple_of_the_image(auto: str, front: tuple[int, int]) -> None:
    """``output_shape[i] = input_shape[i] * strides[i]``, also where `output_padding` is given."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 2, 3, 4), (2, 3, 3, 4)))
    found = network(
        "ConvTranspose", x, {"w": w}, auto_pad=auto, strides=[3, 2], output_padding=[1, 0], opset=13
    )  # fmt: skip
    wanted = transposed(x, w, (3, 2), (9, 8), front)
    np.testing.assert_allclose(result(found, x), wanted, rtol=1e-4, atol=1e-5)


def test_corners_stay_corners_where_lengths_are_not_whole() -> None:
    """``x_original = x_resized * (length_original - 1) / (length_resized - 1)``, with the lengths that there are."""
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    for mode in ("linear", "nearest", "cubic"):
        where = x if mode != "cubic" else x[None, None]
        scales = [1] * (where.ndim - 1) + [0.5]
        found = network(
            "Resize", where, {"roi": [], "scales": scales}, mode=mode, coordinate_transformation_mode="align_corners"
        )
        np.testing.assert_allclose(result(found, where).reshape(2, 2), [[0, 4], [5, 9]], atol=1e-5)


def test_one_result_of_half_pixels_is_the_first() -> None:
    """``x_original = length_resized > 1 ? (x_resized + 0.5) / scale - 0.5 : 0``."""
    x = np.arange(5, 15, dtype=np.float32).reshape(2, 5)
    for mode in ("linear", "nearest"):
        for scale, wanted in ((0.3, [[5], [10]]), (0.2, [[5], [10]]), (0.4, [[5.75, 8.25], [10.75, 13.25]])):
            found = network(
                "Resize", x, {"roi": [], "scales": [1, scale]}, mode=mode, nearest_mode="floor",
                coordinate_transformation_mode="pytorch_half_pixel",
            )  # fmt: skip
            right = np.array(wanted) if mode == "linear" else np.floor(wanted)
            np.testing.assert_allclose(result(found, x), right, rtol=1e-6)


def test_infinite_and_lowest_neighbours_have_a_mean() -> None:
    """Between -inf and -inf is -inf, between the lowest and the largest number are numbers: on every device."""
    low = float(np.finfo(np.float32).min)
    x = np.array([[-np.inf, -np.inf, 1, 2, low, -low, low, low, np.inf, np.inf]], np.float32)
    found = network("Resize", x, {"roi": [], "scales": [1, 2]}, mode="linear")
    y = result(found, x)
    for target in (discover("cpu", 1), *([there] if (there := device()) else [])):
        np.testing.assert_array_equal(result(found, x, target), y)
    assert not np.isnan(y).any()
    assert list(y[0, :4]) == [-np.inf] * 4 and list(y[0, 13:15]) == [low, low] and y[0, 18] == np.inf
    np.testing.assert_allclose(y[0, 9:12], [low / 2, -low / 2, -low / 2], rtol=1e-6)


def test_neighbours_without_weight_do_not_count() -> None:
    """A place that is just that of an element is this element, whatever lies beside it."""
    x = np.array([[1, np.inf, 2, np.nan, 3]], np.float32)
    for mode, scale, way in (
        ("linear", 2, "asymmetric"),
        ("linear", 1.81, "align_corners"),
        ("cubic", 2, "asymmetric"),
    ):
        image = x if mode == "linear" else x[None, None]
        scales = [*[1] * (image.ndim - 1), scale]
        found = network(
            "Resize", image, {"roi": [], "scales": scales}, mode=mode, coordinate_transformation_mode=way
        )  # fmt: skip
        for target in (None, discover("cpu", 1)):
            np.testing.assert_array_equal(result(found, image, target).reshape(-1)[:9:2], x[0])


ACCURATE: dict[str, tuple[Callable[[Any], Any], float]] = {
    "Sin": (np.sin, 2), "Cos": (np.cos, 2),
    "Sinh": (np.sinh, 8), "Cosh": (np.cosh, 8), "Sign": (np.sign, 0), "Acosh": (np.arccosh, 64),
    "Softplus": (lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), 16),
    "Mish": (lambda x: x * np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))), 16),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("op", ACCURATE)
def test_functions_are_right_up_to_the_ends_of_their_types(op: str, dtype: str) -> None:
    """They overflow where their results do, keep the digits of small ones, and of what is no number give none."""
    right, ulps = ACCURATE[op]
    most = {"float16": 11.78, "float32": 89.41, "float64": 710.47}[dtype]
    small = np.geomspace(1e-7, 1, 200)
    x = np.concatenate([np.linspace(-most, most, 701), small, -small, [most * 1.01, -most * 1.01, 0.0]]).astype(dtype)
    x = np.concatenate([x, np.array([np.nan, np.inf, -np.inf, np.finfo(dtype).max, np.finfo(dtype).min], dtype)])
    found = network(op, x)
    with np.errstate(all="ignore"):
        exact = right(x.astype(np.longdouble))
        wanted = exact.astype(dtype)
    targets = [None, discover("cpu", 1), *([there] if (there := device()) and dtype == "float32" else [])]
    for target in targets:
        y = result(found, x, target)
        known = np.isfinite(wanted)
        np.testing.assert_array_equal(np.where(known, 0, y), np.where(known, 0, wanted))
        error = np.abs(y[known].astype(np.longdouble) - exact[known])
        smallest = np.finfo(dtype).tiny * 4  # subnormal results may be 0
        assert np.all(error <= ulps * np.maximum(np.spacing(np.abs(wanted[known])), smallest))


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


EMPTY = [
    ("Conv", (0, 3, 5, 5), {"w": zeros(2, 3, 3, 3)}, {}), ("Conv", (1, 3, 2, 5), {"w": zeros(2, 3, 3, 3)}, {}),
    ("ConvTranspose", (0, 3, 5, 5), {"w": zeros(3, 2, 3, 3)}, {}),
    ("MaxPool", (0, 3, 5, 5), {}, {"kernel_shape": [2, 2]}), ("MaxPool", (1, 3, 2, 5), {}, {"kernel_shape": [3, 3]}),
    ("AveragePool", (1, 3, 2, 5), {}, {"kernel_shape": [3, 3]}), ("LpPool", (0, 3, 5, 5), {}, {"kernel_shape": [2, 2]}),
    ("GlobalAveragePool", (0, 3, 5, 5), {}, {}), ("LRN", (0, 3, 5), {}, {"size": 3}), ("Relu", (2, 0), {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "shape", "constants", "values"), EMPTY)
def test_a_result_without_elements_can_be_had(
    op: str, shape: tuple[int, ...], constants: dict[str, Any], values: dict[str, Any]
) -> None:
    """It is of its shape, and nothing is called for it."""
    x = np.zeros(shape, np.float32)
    found = network(op, x, constants, **values)
    assert not found.nodes
    y = result(found, x, discover("cpu", 1))
    assert y.size == 0 and y.shape == found.tensors["y"].shape and y.dtype == np.float32


def test_a_border_around_no_elements_is_all_that_there_is() -> None:
    """Its value is an input or a number, and amounts may be negative where there is something to take away."""
    x = np.zeros((4, 11, 0), np.float32)
    found = network("Pad", x, {"p": np.array([0, -1, 3, 2, -1, 2]), "v": np.float32(7), "a": np.array([-2, 0, -1])})
    np.testing.assert_array_equal(result(found, x), np.full((2, 13, 5), 7, np.float32))
    found = network("Pad", x, opset=10, pads=[-1, 0, 2, 0, -1, 0], value=0.5)
    np.testing.assert_array_equal(result(found, x), np.full((3, 10, 2), 0.5, np.float32))
    made = model([node("Pad", "x p v", "y")], {"x": (2, 0), "v": ()}, {"p": np.array([-1, 1, 0, 1])})
    y = evaluate(read(made), {"x": np.zeros((2, 0), np.float32), "v": np.array(3, np.float32)})["y"]
    np.testing.assert_array_equal(y, np.full((1, 2), 3, np.float32))


def test_what_is_wrapped_is_what_negative_amounts_leave() -> None:
    """The elements that `pads` takes away at one end are not there for the other one."""
    x = np.arange(5, dtype=np.float32)
    for amounts, wanted in (
        ([-2, 4], [2, 3, 4, 2, 3, 4, 2]),
        ([2, -3], [0, 1, 0, 1]),
        ([3, 2], [2, 3, 4, 0, 1, 2, 3, 4, 0, 1]),
    ):
        found = network("Pad", x, {"pads": np.array(amounts)}, opset=19, mode="wrap")
        assert list(result(found, x)) == wanted


def test_a_border_may_be_an_input() -> None:
    """Its value is read when the program runs, with negative amounts as well."""
    made = model([node("Pad", "x p v", "y")], {"x": (4,), "v": ()}, {"p": np.array([1, -2])}, opset=18)
    found = read(made)
    assert not found.foreign
    y = evaluate(found, {"x": np.arange(4, dtype=np.float32), "v": np.array(7, np.float32)})["y"]
    assert list(y) == [7, 0, 1]


def test_halves_are_computed_as_their_program_says() -> None:
    """Sums of a program of float16 are of float32, also where it is evaluated, and types may differ."""
    x = np.full((1, 4), 1e-4, np.float16)
    found = network("LpNormalization", x, axis=1)
    np.testing.assert_allclose(result(found, x), np.full((1, 4), 0.5), rtol=1e-3)
    power = network("Pow", np.full(3, 3, np.float32), {"e": np.array([2.0, 1.0, 0.0])}, opset=15)
    np.testing.assert_allclose(result(power, np.full(3, 3, np.float32)), [9, 3, 1], rtol=1e-6)


def test_versions_before_shapes_were_inferred_have_them() -> None:
    """What ONNX's inference leaves open, or gets wrong, in old versions of operators is as their text says."""
    x = np.arange(10, dtype=np.float32)
    found = network("Slice", x, opset=8, starts=[-3], ends=[-(2**31)], axes=[0])
    assert result(found, x).shape == (0,)
    back = {"s": np.array([-30]), "e": np.array([-(2**31)]), "a": np.array([0]), "t": np.array([-1])}
    assert result(network("Slice", x, back), x).tolist() == [0]  # a start is brought to the first element
    none = np.zeros((2, 0), np.int32)
    assert result(network("ReduceSumSquare", none, {"axes": np.array([1])}), none).dtype == np.int32
    found = network("LessOrEqual", x.reshape(2, 5), {"b": x[:5]}, opset=12)
    assert result(found, x.reshape(2, 5)).tolist() == [[True] * 5, [False] * 5]
    found = network("Squeeze", x.reshape(1, 1, 10), opset=7, axes=[1, 0])
    assert result(found, x.reshape(1, 1, 10)).shape == (10,)
    wide = np.array([-np.inf, 1, np.inf], np.float32)
    low = float(np.finfo(np.float32).min)
    assert result(network("Clip", wide, opset=7, max=5.0), wide).tolist() == [low, 1, 5]
    double = np.full(1, -1.0)
    assert result(network("HardSigmoid", double), double) == 0.5 - float(np.float32(0.2))


def test_lengths_that_the_reference_does_not_take_are_refused() -> None:
    """Of a region that is not known there is no program, and the reference would put the corners elsewhere."""
    crop = node("Resize", "x roi scales", "y", mode="linear", coordinate_transformation_mode="tf_crop_and_resize")
    made = model([crop], {"x": (2, 5), "roi": (4,)}, {"scales": [1, 0.5]}, opset=18)
    with pytest.raises(ModelProblem, match="takes lengths that are not whole for `coordinate_transformation_mode`"):
        read(made)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_what_lies_outside_of_a_cropped_image_has_a_value_of_its_own(mode: str) -> None:
    """Resize by `tf_crop_and_resize`: both dimensions leave the image, and both come back."""
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    region, sizes = [-0.5, 0.2, 1.2, 1.4], [8, 7]
    known = {"roi": np.array(region, np.float32), "scales": np.zeros(0, np.float32), "sizes": np.array(sizes)}
    found = network(
        "Resize", x, known, mode=mode, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.0
    )
    assert not found.foreign
    wanted, outside = x.astype(np.float64), np.zeros(sizes, bool)
    for at, count in enumerate(sizes):
        start, end = (float(np.float32(edge)) for edge in (region[at], region[at + 2]))
        places = (start + np.arange(count) * (end - start) / (count - 1)) * (x.shape[at] - 1)
        out = (places < 0) | (places > x.shape[at] - 1)
        outside |= out[:, None] if at == 0 else out
        near = places if mode == "linear" else np.ceil(places - 0.5)
        lines = np.moveaxis(wanted, at, -1)
        sampled = np.array([np.interp(near, np.arange(x.shape[at]), line) for line in lines])
        wanted = np.moveaxis(sampled, -1, at)
    assert 0 < outside.sum() < outside.size
    np.testing.assert_allclose(result(found, x), np.where(outside, 9.0, wanted), rtol=1e-5, atol=1e-6)


def test_random_operators_are_right() -> None:
    """A sample of `benchmarks/onnx_operators.py`: each difference from another implementation is one that is known."""
    found = list(onnx_operators.outcomes(0, range(scaled(250)), (), 40))
    assert not [f"{wrong.case}: {wrong.why}" for wrong in found if wrong.why]
    kinds = [outcome.kind for outcome in found]
    assert kinds.count("native") > 0.75 * len(kinds) and kinds.count("refused") < 0.1 * len(kinds)
    assert onnx_operators.draw(0, 7).model() == onnx_operators.draw(0, 7).model()
    assert isinstance(onnx_operators.draw(0, 7).model(), onnx.ModelProto)


@pytest.mark.parametrize("zero", [6, 7])
def test_halves_are_rounded_before_a_zero_point_is_added(zero: int) -> None:
    """``y = saturate((x / y_scale) + y_zero_point)``, and ``x / y_scale`` is rounded to the nearest even number."""
    a = np.arange(-6, 6, dtype=np.int8).reshape(1, 1, 12)
    one, two = np.array(1, np.float32), np.array(2, np.float32)
    point, none = np.array(zero, np.uint8), np.array(0, np.int8)
    wanted = np.round(np.arange(-6, 6) / 2) + zero
    weights = {"w": np.ones((1, 1, 1), np.int8), "ws": one, "wz": none, "ys": two, "yz": point}
    for op in ("QLinearConv", "QLinearMatMul"):
        b = {"w": np.eye(12, dtype=np.int8)} if op == "QLinearMatMul" else {}
        found = network(op, a, {"xs": one, "xz": none, **weights, **b})
        assert not found.foreign
        assert result(found, a).reshape(-1).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("op", "shape", "values"),
    [
        ("LRN", (1, 5, 2, 2), {"size": 3, "alpha": 0.5}),
        ("MaxPool", (1, 1, 4, 5), {"kernel_shape": [2, 2], "strides": [3, 2], "pads": [0, 0, 1, 1], "ceil_mode": 1}),
        ("ConvTranspose", (1, 1, 3, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
        ("LogSoftmax", (2, 3), {"axis": -1}),
    ],
)
def test_constants_are_what_their_programs_mean(op: str, shape: tuple[int, ...], values: dict[str, Any]) -> None:
    """A node that is computed when a model is read gives what it gives when the model runs."""
    x = 100 * np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    others = {"w": np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)} if op == "ConvTranspose" else {}
    wanted = result(network(op, x, others, **values), x)
    folded = read(model([node(op, " ".join(["x", *others]), "y", **values)], {}, {"x": x, **others}, opset=18))
    assert not folded.nodes
    assert np.isfinite(wanted).all()
    np.testing.assert_array_equal(folded.constants["y"], wanted)


def test_the_variance_of_what_does_not_vary_is_not_negative() -> None:
    """E[x^2] - E[x]^2 is rounded once or twice: where it comes out below 0, its root would be NaN."""
    x = np.random.default_rng(1).standard_normal((64, 1, 1)).astype(np.float32)
    found = network("MeanVarianceNormalization", x, axes=[1, 2])
    np.testing.assert_array_equal(result(found, x, discover("cpu", 1)), np.zeros_like(x))
