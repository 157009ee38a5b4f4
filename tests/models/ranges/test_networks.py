"""Networks of free sizes compute what ONNX's reference does at every size, with one piece of code, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from onnx_models import model, node

import stridesmith as ss
from stridesmith.backends import cpu
from stridesmith.errors import ModelProblem, UsageError
from stridesmith.ir.text import extents_text
from stridesmith.models.ranges.api import FreeSizes, network_of
from stridesmith.models.ranges.model import RangedModel
from stridesmith.search.candidates import all_sizes
from stridesmith.search.tasks.device import Device

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def perceptron() -> ModelProto:
    """Two layers on rows, and a softmax."""
    nodes = [
        node("Gemm", "x a b", "h"), node("Relu", "h", "r"), node("MatMul", "r c", "s"),
        node("Softmax", "s", "y", axis=-1),
    ]  # fmt: skip
    return model(nodes, {"x": ("n", 12)}, {"a": normal(12, 20), "b": normal(20), "c": normal(20, 7)})


def images() -> ModelProto:
    """Convolutions with stride 2 and padding, pooling, a skip, upsampling, and the mean of the image."""
    nodes = [
        node("Conv", "x a b", "c", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", "p d", "q", pads=[1, 1, 1, 1]), node("Add", "p q", "s"),
        node("Resize", "s  scales", "u", mode="nearest"), node("Concat", "s q", "k", axis=1),
        node("GlobalAveragePool", "k", "m"), node("Flatten", "m", "f"),
    ]  # fmt: skip
    nodes[5].input[:] = ["s", "", "scales"]
    constants = {"a": normal(8, 3, 3, 3), "b": normal(8), "d": normal(8, 8, 3, 3), "scales": np.float32([1, 1, 2, 2])}
    return model(nodes, {"x": (1, 3, "H", "W")}, constants, outputs="u f")


def attention(hidden: int = 16, heads: int = 2) -> ModelProto:
    """A layer of a transformer, as exporters write it, with positions and lengths computed from the input's shape."""
    split = np.array([1, -1, heads, hidden // heads], np.int64)
    nodes = [
        node("Shape", "x", "shape"), node("Gather", "shape one", "s", axis=0), node("Unsqueeze", "s zeros", "s1"),
        node("Slice", "positions zeros s1 zeros", "here"), node("Add", "x here", "e"),
        *(node("MatMul", f"e w{p}", f"m{p}") for p in "qkv"), *(node("Reshape", f"m{p} split", f"r{p}") for p in "qkv"),
        node("Transpose", "rq", "q", perm=[0, 2, 1, 3]), node("Transpose", "rk", "k", perm=[0, 2, 3, 1]),
        node("Transpose", "rv", "v", perm=[0, 2, 1, 3]), node("MatMul", "q k", "a"), node("Softmax", "a", "p", axis=-1),
        node("MatMul", "p v", "o"), node("Transpose", "o", "t", perm=[0, 2, 1, 3]),
        node("Concat", "ones s1 width", "whole", axis=0), node("Reshape", "t whole", "z"), node("Add", "z e", "n"),
        node("LayerNormalization", "n g b", "y", axis=-1),
    ]  # fmt: skip
    constants: dict[str, Any] = {f"w{p}": normal(hidden, hidden) for p in "qkv"}
    constants |= {"positions": normal(64, hidden), "g": normal(hidden), "b": normal(hidden), "split": split}
    constants |= {"one": np.array(1), "zeros": np.array([0]), "ones": np.array([1]), "width": np.array([hidden])}
    return model(nodes, {"x": (1, "s", hidden)}, constants)


def pieces() -> ModelProto:
    """A square image repeated, some of its rows, and its mean."""
    nodes = [
        node("Tile", "x r", "t"), node("Gather", "t i", "g", axis=2), node("Relu", "g", "y"),
        node("GlobalAveragePool", "x", "m"),
    ]  # fmt: skip
    return model(nodes, {"x": (1, 2, "n", "n")}, {"r": np.array([1, 1, 1, 3]), "i": np.array([0, -1, 2])}, "y m")


def expected(made: ModelProto, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    found: list[np.ndarray] = ReferenceEvaluator(made).run(None, arrays)
    return found


IMAGES = {"H": (16, 64, 4), "W": (17, 60)}
NETWORKS: dict[str, Any] = {
    "perceptron": (perceptron, {"n": (1, 33)}, [(n, 12) for n in (1, 2, 7, 16, 33)]),
    "images": (images, IMAGES, [(1, 3, 16, 17), (1, 3, 64, 60), (1, 3, 28, 31), (1, 3, 40, 58)]),
    "pieces": (pieces, {"n": (3, 40)}, [(1, 2, n, n) for n in (3, 4, 17, 40)]),
    "attention": (attention, {"s": (1, 64)}, [(1, s, 16) for s in (1, 2, 3, 31, 32, 64)]),
}  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> RangedModel:
    """One operator on rows."""
    return ss.compile(model([node("Relu", "x", "y")], {"x": ("n", 12)}), ranges={"n": (1, 33)})


@pytest.fixture(scope="module", params=NETWORKS)
def compiled(request: pytest.FixtureRequest) -> tuple[ModelProto, RangedModel, list[tuple[int, ...]]]:
    make, ranges, shapes = NETWORKS[request.param]
    made = make()
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "attention":
            patch.setattr(all_sizes, "SHARES", all_sizes.SHARES[:1])
        return made, ss.compile(made, ranges=ranges), shapes


def test_results_are_those_of_onnx_runtime(
    compiled: tuple[ModelProto, RangedModel, list[tuple[int, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At both ends of the ranges and between, in any order, with nothing compiled."""
    made, run, shapes = compiled
    monkeypatch.setattr(cpu, "compile_object", lambda *_: pytest.fail("a call compiled something"))
    for shape in (*shapes, *reversed(shapes)):
        x = normal(*shape)
        found = run(x)
        for one, right in zip(found if isinstance(found, tuple) else (found,), expected(made, {"x": x}), strict=True):
            np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-4)
            assert one.shape == right.shape


def test_memory_grows_with_the_largest_size() -> None:
    """The arena is as large as the largest sizes that came ask for, and small ones use it after them."""
    nodes = [node("MatMul", "x a", "h"), node("MatMul", "h b", "y")]
    run = ss.compile(model(nodes, {"x": ("n", 8)}, {"a": normal(8, 64), "b": normal(64, 8)}), ranges={"n": (1, 300)})
    run(normal(4, 8))
    small = run.arena_bytes
    run(normal(300, 8))
    large = run.arena_bytes
    run(normal(4, 8))
    assert small < large == run.arena_bytes


def test_shapes_are_expressions() -> None:
    """Strides, pooling and upsampling, each over the sizes of the network."""
    network = network_of(images(), Device.here("cpu", None), FreeSizes(IMAGES))
    assert extents_text(network.tensors["u"].extents) == "1, 8, H // 2, (W + 3) // 4 * 2"
    sizes = {"H": 28, "W": 31}
    assert network.shape("u", sizes) == (1, 8, 14, 16)
    assert network.shape("f", sizes) == (1, 16)


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((0, 12), "axis 0 of `x` gives n = 0, but the model takes n = 1..33"),
        ((34, 12), "axis 0 of `x` gives n = 34, but the model takes n = 1..33"),
        ((5, 13), "axis 1 of `x` must be 12, but it is 13"),
        ((5,), "`x` must have the extents (n, 12), but got (5,)"),
    ],
)
def test_wrong_calls_are_one_sentence(rows: RangedModel, shape: tuple[int, ...], sentence: str) -> None:
    """Out of range, another extent, another rank."""
    with pytest.raises(ValueError) as caught:
        rows(np.zeros(shape, np.float32))
    assert str(caught.value) == sentence


def test_it_is_measured_at_sizes(rows: RangedModel) -> None:
    """On arrays of these sizes; others than it takes are refused."""
    (x,) = rows.random_inputs({"n": 5})
    assert x.shape == (5, 12) and x.dtype == np.float32 and x.any()
    assert min(rows.measure({"n": 5}, seconds=0.01)) > 0
    with pytest.raises(ValueError, match="n = 34, but the model takes"):
        rows.measure({"n": 34})
    for wrong in ({}, {"q": 3}, 3):
        with pytest.raises(ValueError, match="the sizes of the model are given by name, as in"):
            rows.profile(wrong)
    with pytest.raises(ValueError, match="n = '3', but the model takes"):
        rows.random_inputs({"n": "3"})


def test_its_outputs_are_given_as_its_inputs_are(rows: RangedModel) -> None:
    """A dict for a dict; none that shares memory with another array, and no mask is lost."""
    (x,) = rows.random_inputs({"n": 5})
    with pytest.raises(UsageError, match="called with a dict, so that `out` is one too"):
        rows({"x": x}, out=x)
    with pytest.raises(UsageError, match="`out` is a dict where the inputs are given as one"):
        rows(x, out={"y": x})
    with pytest.raises(TypeError, match="`x` is a masked array"):
        rows(np.ma.masked_array(x))


def test_bfloat16_of_another_package_is_passed_as_its_bits() -> None:
    """As networks of one shape take it; a type that it is not is told by that of the bits."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    made = model([node("Relu", "x", "y")], {"x": ("n", 4)}, dtype="bfloat16")
    run = ss.compile(made, ranges={"n": (1, 8)}, threads=1)
    x = normal(3, 4).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(run(x).view(x.dtype), np.maximum(x, 0))
    with pytest.raises(TypeError, match="`x` must have dtype uint16, but got float32"):
        run(x.astype(np.float32))


def test_arrays_that_disagree_are_one_sentence() -> None:
    """A size that two inputs have."""
    made = model([node("Add", "x z", "y")], {"x": ("n", 4), "z": ("n", 4)})
    run = ss.compile(made, ranges={"n": (2, 9)})
    a = normal(3, 4)
    np.testing.assert_array_equal(run(a, a), a + a)
    with pytest.raises(ValueError, match=r"axis 0 of `z` must be n = 3, as axis 0 of `x` says, but it is 4"):
        run(a, normal(4, 4))
    with pytest.raises(TypeError, match="`x` must have dtype float32, but got float64"):
        run(np.zeros((3, 4)), a)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ranges": {"n": "?"}}, "the range of a size is (least, largest) or (least, largest, step), but n is '?'"),
        ({"ranges": {"m": (1, 4)}}, "`x` has the extent n, of which nothing is known: give it a number in `inputs`, "
                                    "or a range, as in ranges={'n': (1, 64)}"),
        ({"ranges": {"n": (1, 4), "m": (1, 4)}},
         "no input has the extent m; name it in `inputs`, as in {'x': (1, 'm')}"),
        ({"ranges": {"n": (0, 4)}}, "an extent is at least 1, but the range of n is 0..4"),
        ({"ranges": {"n": (1, 4)}, "inputs": {"z": (1, "n")}}, "the model has no input `z`; it has x"),
    ],
)  # fmt: skip
def test_what_is_said_wrong_of_sizes_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    """Ranges that are none, and names that nobody knows."""
    with pytest.raises((UsageError, ModelProblem)) as caught:
        ss.compile(perceptron(), **options)
    assert str(caught.value) == sentence


def test_networks_that_are_not_one_for_all_sizes_are_refused() -> None:
    """A window that does not fit all sizes, numbers that depend on a size, and what has no program."""
    target = Device.here("cpu", None)
    window = model([node("MaxPool", "x", "y", kernel_shape=[5])], {"x": (1, 2, "n")})
    with pytest.raises(ModelProblem, match=r"`y` \(MaxPool\) has no program here"):
        network_of(window, target, FreeSizes({"n": (2, 9)}))
    cut = model([node("Slice", "x a b", "y")], {"x": ("n", 2)}, {"a": np.array([0]), "b": np.array([6])})
    with pytest.raises(ModelProblem, match=r"`y` has the shape|no program for all sizes|another network"):
        network_of(cut, target, FreeSizes({"n": (2, 40)}))
    text = model([node("Det", "x", "y")], {"x": ("n", 3, 3)})
    network_of(text, target, FreeSizes({"n": (1, 4)}))


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool", "Conv"])
def test_windows_that_are_longer_than_an_image_are_refused_with_its_size(op: str) -> None:
    """An extent of 0 at some sizes is no network there, as ONNX Runtime finds out in a call; longer images are one."""
    if op == "Conv":
        made = model(
            [node("Conv", "x w", "p"), node("Relu", "p", "y")], {"x": (1, 2, "h", 9)}, {"w": normal(2, 2, 4, 3)}
        )
    else:
        made = model([node(op, "x", "p", kernel_shape=[4, 3]), node("Relu", "p", "y")], {"x": (1, 2, "h", 9)})
    device = Device.here("cpu", 1)
    with pytest.raises(ModelProblem, match=r"with h = 3, `[py]` has the shape \(1, 2, 0, 7\), without elements"):
        network_of(made, device, FreeSizes({"h": (3, 20)}))
    assert network_of(made, device, FreeSizes({"h": (4, 20)})).shape("y", {"h": 4})[2] == 1


def test_what_a_search_finds_is_used_from_then_on(tmp_path: Path) -> None:
    """A record of all sizes for each program, which a later call without seconds takes."""
    made = model([node("MatMul", "x a", "h"), node("Relu", "h", "y")], {"x": ("n", 12)}, {"a": normal(12, 20)})
    db = str(tmp_path / "records.db")
    for seconds in (8, 60):  # a machine that is busy with other things finds nothing in a few seconds
        ss.compile(made, ranges={"n": (1, 33)}, seconds=seconds, db=db, progress=False)
        run = ss.compile(made, ranges={"n": (1, 33)}, db=db)
        (kernel,) = run.kernels.values()
        if kernel.origin != "estimated":
            break
    assert kernel.origin in ("tuned", "untuned")  # of few that were measured, the program as written may be the best
    for rows in (1, 17, 33):
        x = normal(rows, 12)
        np.testing.assert_allclose(run(x), expected(made, {"x": x})[0], rtol=1e-4, atol=1e-4)
