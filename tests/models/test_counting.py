"""Results of which only contents say how long they are, as programs and a count, against NumPy and the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model, node

import stridesmith as ss
from stridesmith.errors import ModelProblem
from stridesmith.models.evaluate import evaluate
from stridesmith.models.onnx import read

rng = np.random.default_rng(3)
Array = np.ndarray


def same(made: Any, arrays: dict[str, Array], wanted: list[Array] | None = None, compiles: bool = False) -> None:
    """A model gives what the reference does, by programs alone."""
    network = read(made)
    assert not network.foreign
    right = ReferenceEvaluator(made).run(None, arrays) if wanted is None else wanted
    found = [[evaluate(network, arrays)[name] for name in network.outputs]]
    if compiles:
        result = ss.compile(network)(*(arrays[name] for name in network.inputs))
        found.append(list(result) if isinstance(result, tuple) else [result])
    for results in found:
        for got, one in zip(results, right, strict=True):
            np.testing.assert_array_equal(got, one)
            assert got.dtype == np.asarray(one).dtype


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 2)])
def test_places_of_what_is_not_zero(shape: tuple[int, ...]) -> None:
    """Also where nothing is, or everything, and of every type; a compiled model gives as much as there is."""
    for dtype in ("float32", "int64", "bool"):
        made = model([node("NonZero", "x", "y")], {"x": shape}, dtype=dtype)
        for share in (0, 0.5, 1):
            x = (rng.random(shape) < share).astype(dtype)
            same(made, {"x": x}, compiles=share == 0.5 and dtype == "float32")


def test_elements_for_which_a_condition_holds() -> None:
    """Of all elements, or along a dimension, with a condition that ends early."""
    x = rng.standard_normal((3, 4)).astype(np.float32)
    for axis, flags in ((None, [0, 1, 0, 0, 1]), (0, [0, 1, 1]), (1, [0, 1]), (-1, [1, 1, 0, 1])):
        values = {} if axis is None else {"axis": axis}
        made = model([node("Compress", "x c", "y", **values)], {"x": (3, 4)})
        made.graph.input.append(model([], {"c": (len(flags),)}, dtype="bool", outputs="").graph.input[0])
        same(made, {"x": x, "c": np.array(flags, bool)})


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_each_element_once(is_sorted: int) -> None:
    """Where it is first, which one each is, and how often; of slices as well."""
    x = rng.integers(0, 3, (5, 2)).astype(np.float32)
    for axis in (None, 0, 1):
        values = {} if axis is None else {"axis": axis}
        made = model([node("Unique", "x", "y i v n", sorted=is_sorted, **values)], {"x": (5, 2)}, outputs="y i v n")
        network, wanted = read(made), unique(x, axis, bool(is_sorted))
        assert not network.foreign
        for got, one in zip(evaluate(network, {"x": x}).values(), wanted, strict=True):
            np.testing.assert_array_equal(got, one)


def unique(x: Array, axis: int | None, is_sorted: bool) -> list[Array]:
    """The same by NumPy."""
    y, first, back, count = np.unique(x, True, True, True, axis=axis)
    back = back.reshape(-1)
    if not is_sorted:
        order = np.argsort(first)
        y = np.take(y, order, axis=0 if axis is None else axis)
        first, count, back = first[order], count[order], np.argsort(order)[back]
    return [y, first, back, count]


def test_what_is_no_number_comes_last_once() -> None:
    """NaN is the same as NaN."""
    x = np.array([np.nan, 2, 1, np.nan, 2], np.float32)
    same(model([node("Unique", "x", "y")], {"x": (5,)}), {"x": x}, [np.array([1, 2, np.nan], np.float32)])


def suppressed(boxes: Array, scores: Array, most: int, limit: float, least: float) -> Array:
    """Boxes that no better one overlaps, one after the other."""
    found = []
    for image in range(len(boxes)):
        for which in range(scores.shape[1]):
            left = [k for k in np.argsort(-scores[image, which], kind="stable") if scores[image, which, k] > least]
            kept: list[int] = []
            while left and len(kept) < most:
                best = left.pop(0)
                kept.append(best)
                left = [k for k in left if overlap(boxes[image, k], boxes[image, best]) <= limit]
            found += [[image, which, k] for k in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def overlap(a: Array, b: Array) -> float:
    sides = [min(a[d + 2], b[d + 2]) - max(a[d], b[d]) for d in range(2)]
    shared = max(sides[0], 0) * max(sides[1], 0)
    return float(shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared))


def test_boxes_that_overlap_too_much() -> None:
    """In order of images and classes, and in each the best first; as given by centres, too."""
    first = rng.random((2, 9, 2)).astype(np.float32)
    boxes = np.concatenate([first, first + rng.random((2, 9, 2)).astype(np.float32) + 0.1], axis=2)
    scores = rng.random((2, 3, 9)).astype(np.float32)
    constants = {"m": np.array([4], np.int64), "o": np.array([0.3], np.float32), "s": np.array([0.2], np.float32)}
    wanted = suppressed(boxes, scores, 4, 0.3, 0.2)
    by_centre = np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], axis=2)
    for given, center in ((boxes, 0), (by_centre, 1)):
        suppress = node("NonMaxSuppression", "b c m o s", "y", center_point_box=center)
        made = model([suppress], {"b": (2, 9, 4), "c": (2, 3, 9)}, constants)
        same(made, {"b": given, "c": scores}, [wanted], compiles=not center)


def test_what_looks_at_elements_follows() -> None:
    """Places are turned, cut, doubled and looked up before an output is cut."""
    x = rng.integers(0, 2, (4, 5)).astype(np.float32)
    constants = {"one": np.array([1], np.int64), "all": np.array([0], np.int64), "end": np.array([2], np.int64),
                 "two": np.array(2, np.int64), "t": rng.standard_normal((5, 3))}  # fmt: skip
    nodes = [
        node("NonZero", "x", "p"), node("Transpose", "p", "q"), node("Slice", "q one end one", "column"),
        node("Squeeze", "column one", "flat"), node("Gather", "t flat", "rows"), node("Mul", "q two", "double"),
        node("Unsqueeze", "flat all", "wide"), node("Cast", "wide", "float", to=1),
    ]  # fmt: skip
    same(model(nodes, {"x": (4, 5)}, constants, outputs="q rows double float"), {"x": x}, compiles=True)


def test_what_only_leaves_is_cut_without_a_copy() -> None:
    """Kernels compute all of it and its count in memory of the caller, of which the first part comes back."""
    nodes = [node("NonZero", "x", "p"), node("Transpose", "p", "q"), node("Relu", "x", "r")]
    made = model(nodes, {"x": (3, 4)}, outputs="p r q")
    compiled = ss.compile(read(made))
    assert not compiled.whole.called and compiled.direct is None
    for share in (0.0, 0.4, 1.0):
        x = (rng.random((3, 4)) < share).astype(np.float32)
        places = np.argwhere(x)
        out = tuple(np.empty(tensor.shape, tensor.dtype) for tensor in compiled.outputs)
        for given in (None, out):
            p, r, q = compiled(x, out=given)
            np.testing.assert_array_equal(p, places.T)
            np.testing.assert_array_equal(q, places)
            np.testing.assert_array_equal(r, x)
            assert given is None or all(
                np.shares_memory(a, b) or not a.size for a, b in zip((p, r, q), out, strict=True)
            )
        assert compiled({"x": x})["q"].shape == places.shape
    assert set(compiled.profile()) == {n.name for n in compiled.network.nodes}


def test_what_asks_for_a_length_is_refused() -> None:
    """And so is what puts such results behind each other."""
    with pytest.raises(ModelProblem, match=r"the shape of `p`, which the node Shape .* reads, depends"):
        read(model([node("NonZero", "x", "p"), node("Shape", "p", "y")], {"x": (3,)}))
    with pytest.raises(ModelProblem, match="depends on the contents"):
        read(model([node("NonZero", "x", "p"), node("Concat", "p p", "y", axis=1)], {"x": (1, 3)}))


def test_numbers_that_must_be_known_are_asked_for() -> None:
    """How many boxes there may be at most is no constant here, so that the node stays with the reference, refused."""
    made = model([node("NonMaxSuppression", "b c m", "y")], {"b": (1, 2, 4), "c": (1, 1, 2)})
    given = numpy_helper.from_array(np.array([1], np.int64), "m")
    made.graph.initializer.append(given)
    assert not read(made).foreign
    del made.graph.initializer[:]
    made.graph.input.append(model([], {"m": (1,)}, dtype="int64", outputs="").graph.input[0])
    with pytest.raises(ModelProblem, match="depends on the contents of its inputs"):
        read(made)
