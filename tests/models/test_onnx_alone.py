"""Operators of ONNX that random graphs found without a program, against NumPy, in the interpreter and compiled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx_models import model, node

from stridesmith.backends.devices import discover
from stridesmith.errors import ModelProblem
from stridesmith.models.api import compiled, network_of
from stridesmith.models.evaluate import evaluate
from stridesmith.models.onnx import read

Array = np.ndarray


def both(found_model: object, given: dict[str, Array], compiles: bool = True) -> list[dict[str, Array]]:
    """What a model's network gives in the interpreter, and compiled; it has programs for everything."""
    network = read(found_model)  # type: ignore[arg-type]
    assert not network.foreign, [node.op for node in network.foreign]
    if not compiles:
        return [evaluate(network, given)]
    device = discover("cpu", 1)
    made = compiled(network_of(network, device), device)(dict(given))
    return [evaluate(network, given), {name: np.asarray(made[name]) for name in network.outputs}]


@pytest.mark.parametrize("op", ["Sum", "Mean", "L1", "L2", "LogSum", "LogSumExp", "Max", "Prod", "SumSquare"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(("shape", "axes", "noop"), [((), [], 0), ((3, 4), [], 1), ((3, 4), [1], 0)])
def test_reductions_have_programs_for_numbers_integers_and_no_axes(
    op: str, dtype: str, shape: tuple[int, ...], axes: list[int], noop: int
) -> None:
    """A number alone, nothing that is reduced and integers of every reduction; the fraction of integers is cut off."""
    x = np.random.default_rng(0).integers(1, 5, shape).astype(dtype)
    made = model(
        [node(f"Reduce{op}", "x a", "y", noop_with_empty_axes=noop)], {"x": shape}, {"a": np.array(axes, np.int64)},
        opset=18, dtype=dtype,
    )  # fmt: skip
    if axes:
        wide = x.astype(np.float64)
        wanted = {
            "Sum": wide.sum, "Mean": wide.mean, "L1": wide.sum, "L2": lambda *a, **k: np.sqrt((wide**2).sum(*a, **k)),
            "LogSum": lambda *a, **k: np.log(wide.sum(*a, **k)), "Max": wide.max, "Prod": wide.prod,
            "LogSumExp": lambda *a, **k: np.log(np.exp(wide).sum(*a, **k)),
            "SumSquare": lambda *a, **k: (wide**2).sum(*a, **k),
        }[op](1, keepdims=True)  # fmt: skip
    else:
        wanted = {"LogSum": np.log(x.astype(float)), "SumSquare": x**2}.get(op, x)
    for found in both(made, {"x": x}, compiles=dtype == "int32" and shape != ()):
        assert found["y"].dtype == x.dtype and found["y"].shape == np.shape(wanted)
        np.testing.assert_allclose(found["y"], np.asarray(wanted).astype(dtype), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_the_variance_of_every_float_type_is_normalised(dtype: str) -> None:
    """The body of MeanVarianceNormalization has constants of float32; halves are computed in it, doubles in doubles."""
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(dtype)
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean((0, 2, 3), keepdims=True)) / (wide.std((0, 2, 3), keepdims=True) + 1e-9)
    made = model([node("MeanVarianceNormalization", "x", "y", axes=[0, 2, 3])], {"x": x.shape}, dtype=dtype)
    for found in both(made, {"x": x}):
        assert found["y"].dtype == x.dtype
        np.testing.assert_allclose(found["y"], wanted, atol=2e-3 if dtype == "float16" else 1e-13)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("auto", "dtype"), [("SAME_LOWER", "uint8"), ("VALID", "float32"), ("SAME_UPPER", "float32")])
def test_the_places_of_the_largest_elements_are_computed(auto: str, order: int, dtype: str) -> None:
    """The first place of the largest element of each window, counted in the whole tensor, in both orders."""
    x = np.random.default_rng(2).integers(0, 9, (2, 3, 8, 7)).astype(dtype)
    made = model(
        [node("MaxPool", "x", "y i", auto_pad=auto, kernel_shape=[3, 3], strides=[2, 3], storage_order=order)],
        {"x": x.shape}, opset=13, dtype=dtype, outputs="y i",
    )  # fmt: skip
    for found in both(made, {"x": x}):
        y, places = found["y"], found["i"]
        totals = [max(0, (count - 1) * s + 3 - e) for count, s, e in zip(y.shape[2:], (2, 3), (8, 7), strict=True)]
        front = [-(-t // 2) if auto == "SAME_LOWER" else t // 2 for t in totals]
        for n, c, h, w in itertools.product(*map(range, y.shape)):
            rows, columns = (
                range(max(0, at * s - f), min(e, at * s - f + 3))
                for at, s, f, e in zip((h, w), (2, 3), front, (8, 7), strict=True)
            )
            first = max(itertools.product(rows, columns), key=lambda p: (x[n, c, p[0], p[1]], -p[0], -p[1]))
            inner = first[0] * 7 + first[1] if not order else first[0] + first[1] * 8
            assert y[n, c, h, w] == x[n, c, first[0], first[1]]
            assert places[n, c, h, w] == (n * 3 + c) * 56 + inner


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_weighted_averages_of_integers_are_cut_off_at_their_ends(dtype: str, mode: str) -> None:
    """Resize of integers is that of floats without the fraction; a cubic overshoots no end of the type."""
    ends = np.iinfo("int8" if dtype == "int32" else dtype)
    x = np.random.default_rng(3).choice([ends.min, ends.max, 3], (1, 2, 5, 6)).astype(dtype)
    given = {"roi": np.zeros(0, np.float32), "s": np.array([1, 1, 1.5, 0.7], np.float32)}
    attributes = {"mode": mode, "coordinate_transformation_mode": "pytorch_half_pixel"}
    made = model([node("Resize", "x roi s", "y", **attributes)], {"x": x.shape}, given, opset=13, dtype=dtype)
    floats = model([node("Resize", "x roi s", "y", **attributes)], {"x": x.shape}, given, opset=13)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    wanted = np.trunc(np.clip(both(floats, {"x": x.astype(np.float32)}, False)[0]["y"].astype(float), low, high))
    for found in both(made, {"x": x}):
        assert found["y"].dtype == x.dtype
        assert np.abs(found["y"].astype(float) - wanted).max() <= 1  # where a float is as good as whole
        assert np.mean(found["y"] == wanted) > 0.9


@pytest.mark.parametrize("attributes", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
@pytest.mark.parametrize("length", [7, 1100])
def test_running_products_are_computed(attributes: dict[str, int], length: int) -> None:
    """Each element times all before it, or after it, with or without itself; long ones in order."""
    x = np.random.default_rng(4).choice([1, -1, 2, 0.5], (2, length)).astype(np.float32)
    x[:, 7:] = np.sign(x[:, 7:])
    shown = x[:, ::-1] if "reverse" in attributes else x
    wanted = np.cumprod(shown, 1)
    if "exclusive" in attributes:
        wanted = np.concatenate([np.ones((2, 1)), wanted[:, :-1]], 1)
    wanted = wanted[:, ::-1] if "reverse" in attributes else wanted
    given = {"a": np.array(1, np.int64)}
    made = model([node("CumProd", "x a", "y", **attributes)], {"x": x.shape}, given, opset=26)
    for found in both(made, {"x": x}, compiles=length < 10):
        np.testing.assert_array_equal(found["y"], wanted)


def test_sequences_are_reversed_up_to_their_lengths() -> None:
    """The first elements of each sequence backwards, the others as they are."""
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    lengths = np.array([3, 1], np.int64)
    made = model(
        [node("ReverseSequence", "x n", "y", batch_axis=0, time_axis=1)], {"x": x.shape}, {"n": lengths}, opset=10
    )
    wanted = x.copy()
    wanted[0, :3] = x[0, 2::-1]
    for found in both(made, {"x": x}):
        np.testing.assert_array_equal(found["y"], wanted)


def test_blocks_of_columns_are_added_up_to_an_image() -> None:
    """Col2Im adds each element of a block to the pixel that its tap lies on."""
    taps, strides, dilations, pads, size = (2, 3), (2, 1), (1, 2), (1, 0, 0, 2), (5, 6)
    counts = [
        (e + a + b - d * (k - 1) - 1) // s + 1
        for e, a, b, d, k, s in zip(size, pads[:2], pads[2:], dilations, taps, strides, strict=True)
    ]
    x = np.random.default_rng(5).standard_normal((2, 3 * 6, counts[0] * counts[1])).astype(np.float32)
    wanted = np.zeros((2, 3, size[0] + 1, size[1] + 2))
    for k, block in itertools.product(itertools.product(range(2), range(3)), itertools.product(*map(range, counts))):
        at = [b * s + t * d for b, s, t, d in zip(block, strides, k, dilations, strict=True)]
        rows = x.reshape(2, 3, 6, -1)[:, :, k[0] * 3 + k[1], block[0] * counts[1] + block[1]]
        wanted[:, :, at[0], at[1]] += rows
    given = {"s": np.array(size, np.int64), "k": np.array(taps, np.int64)}
    made = model([node("Col2Im", "x s k", "y", strides=strides, dilations=dilations, pads=pads)], {"x": x.shape}, given)
    made.opset_import[0].version = 18
    for found in both(made, {"x": x}):
        np.testing.assert_allclose(found["y"], wanted[:, :, 1:, : size[1]], rtol=1e-5, atol=1e-6)


def test_whole_powers_of_integers_are_exact() -> None:
    """Powers of integers by integers, of which negative ones leave nothing but of 1 and -1."""
    x = np.array([3, -2, 7, -1, 1, 2, 0, -1, 5], np.int64)
    exponents = np.array([5, 9, 20, 33, -4, -1, 0, -3, 2], np.int64)
    made = model([node("Pow", "x e", "y")], {"x": x.shape}, {"e": exponents}, dtype="int64")
    for found in both(made, {"x": x}):
        np.testing.assert_array_equal(found["y"], [243, -512, 7**20, -1, 1, 0, 1, -1, 25])


def test_reductions_of_nothing_are_what_changes_nothing() -> None:
    """Inputs without elements are constants, so that what is computed of them is one as well."""
    made = model(
        [node("ReduceSum", "x a", "s"), node("ReduceProd", "x a", "p"), node("Add", "s p", "y")], {"x": (2, 0, 3)},
        {"a": np.array([1], np.int64)}, opset=18,
    )  # fmt: skip
    network = read(made)
    assert not network.nodes
    np.testing.assert_array_equal(network.constants["y"], np.ones((2, 1, 3)))


def test_nothing_is_dropped_outside_of_training() -> None:
    """The mask of Dropout is all true where it does not train, or where its share is 0."""
    x = np.random.default_rng(6).standard_normal((3, 4)).astype(np.float32)
    given = {"r": np.array(0, np.float32), "t": np.array(True)}
    for inputs, constants in (("x", {}), ("x r t", given)):
        made = model([node("Dropout", inputs, "y m")], {"x": x.shape}, constants, outputs="y m", opset=13)
        (found,) = both(made, {"x": x}, compiles=False)
        np.testing.assert_array_equal(found["y"], x)
        assert found["m"].all() and found["m"].dtype == bool


def test_models_of_old_operators_that_are_still_the_same_are_read() -> None:
    """A model of version 1 whose operators are those of version 7; others are refused."""
    made = model([node("Not", "x", "y")], {"x": (3,)}, opset=1, dtype="bool")
    x = np.array([True, False, True])
    (found,) = both(made, {"x": x}, compiles=False)
    np.testing.assert_array_equal(found["y"], ~x)
    with pytest.raises(ModelProblem, match="version 1 of ONNX's operators; versions 7 to"):
        read(model([node("Add", "x x", "y")], {"x": (3,)}, opset=1))


@pytest.mark.parametrize("corners", [0, 1])
def test_grids_of_places_are_turned_by_matrices(corners: int) -> None:
    """AffineGrid of a known size is a product; each place is x, y and 1, from -1 to 1 between edges or corners."""
    theta = np.random.default_rng(7).standard_normal((2, 2, 3)).astype(np.float32)
    given = {"s": np.array([2, 3, 4, 5], np.int64)}
    made = model([node("AffineGrid", "x s", "y", align_corners=corners)], {"x": theta.shape}, given, opset=20)
    (found,) = both(made, {"x": theta}, compiles=False)
    for n, i, j in itertools.product(range(2), range(4), range(5)):
        at = (2 * j / 4 - 1, 2 * i / 3 - 1) if corners else ((2 * j + 1) / 5 - 1, (2 * i + 1) / 4 - 1)
        np.testing.assert_allclose(found["y"][n, i, j], theta[n] @ [*at, 1], atol=1e-5)


def test_the_largest_of_bools_is_whether_any_is_true() -> None:
    """ReduceMax and ReduceMin of bools."""
    x = np.random.default_rng(8).random((3, 4)) < 0.5
    for op, wanted in (("ReduceMax", x.any(1)), ("ReduceMin", x.all(1))):
        made = model([node(op, "x a", "y", keepdims=0)], {"x": x.shape}, {"a": np.array([1])}, opset=20, dtype="bool")
        (found,) = both(made, {"x": x}, compiles=False)
        np.testing.assert_array_equal(found["y"], wanted)
