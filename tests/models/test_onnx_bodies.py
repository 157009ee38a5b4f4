"""Operators that are said in others (`models/onnx/bodies.py`), against what their text says element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import model, node, value

from stridesmith.models.evaluate import evaluate
from stridesmith.models.onnx import read

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("parts, groups", [(1, 1), (2, 2)])
def test_taps_of_a_convolution_are_moved(parts: int, groups: int) -> None:
    """DeformConv: against samples of the image one by one, outside of which there is nothing."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4, 6, 5)), rng.standard_normal((4, 4 // groups, 3, 2)).astype(np.float32)
    y, count = np.zeros((2, 4, 4, 2)), 6
    moves, mask = rng.standard_normal((2, parts * count * 2, 4, 2)) * 1.5, rng.random((2, parts * count, 4, 2))

    def sample(image: Array, row: float, column: float) -> float:
        found, (top, left) = 0.0, (int(np.floor(row)), int(np.floor(column)))
        for r, c in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
            if 0 <= r < image.shape[0] and 0 <= c < image.shape[1]:
                found += image[r, c] * (1 - abs(row - r)) * (1 - abs(column - c))
        return found

    for n, o, i, j, c, a, b in np.ndindex(2, 4, 4, 2, 4 // groups, 3, 2):
        channel, tap = o // (4 // groups) * (4 // groups) + c, a * 2 + b
        part = channel // (4 // parts) * count + tap
        row, column = i * 1 + a - 0 + moves[n, 2 * part, i, j], j * 2 + b * 1 - 0 + moves[n, 2 * part + 1, i, j]
        y[n, o, i, j] += w[o, c, a, b] * sample(x[n, channel], row, column) * mask[n, part, i, j]
    given = {"x": x, "o": moves, "m": mask}
    nodes = [helper.make_node("DeformConv", ["x", "w", "o", "", "m"], ["y"], strides=[1, 2], group=groups,
                              offset_group=parts)]  # fmt: skip
    network = read(model(nodes, {name: array.shape for name, array in given.items()}, {"w": w}, opset=19))
    assert not network.foreign
    found = evaluate(network, {name: array.astype(np.float32) for name, array in given.items()})["y"]
    np.testing.assert_allclose(found, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("more", [0, 2])
def test_pooled_numbers_go_back(more: int) -> None:
    """MaxUnpool: to the places that MaxPool took them from, with zeros elsewhere and where there is more room."""
    x = np.random.default_rng(0).permutation(96).reshape(1, 2, 6, 8).astype(np.float32)
    nodes = [node("MaxPool", "x", "p i", kernel_shape=[2, 2], strides=[2, 2]),
             node("MaxUnpool", "p i" + " size" * bool(more), "y", kernel_shape=[2, 2], strides=[2, 2])]  # fmt: skip
    known = {"size": np.array([1, 2, 6 + more, 8])}
    network = read(model(nodes, {"x": x.shape}, known if more else None, opset=11))
    assert not network.foreign
    blocks = x.reshape(1, 2, 3, 2, 4, 2)
    largest = blocks.max(axis=(3, 5), keepdims=True)
    wanted = np.where(blocks == largest, blocks, 0).reshape(x.shape)
    found = evaluate(network, {"x": x})["y"]
    np.testing.assert_array_equal(found[:, :, :6], wanted)
    assert found.shape == (1, 2, 6 + more, 8) and not found[:, :, 6:].any()


@pytest.mark.parametrize("lengths", [None, [4, 4]])
def test_a_scan_of_rows_goes_along_each_of_them(lengths: list[int] | None) -> None:
    """Version 8: sums along the second dimension for each row of the first, one of two tensors from its end."""
    body = helper.make_graph(
        [node("Add", "s v", "t"), node("Add", "t w", "u"), node("Identity", "u", "r")], "body",
        [value(name, (3,)) for name in "svw"], [value(name, (3,)) for name in "ur"],
    )  # fmt: skip
    given = ["lengths" if lengths else "", "first", "x", "z"]
    scan = [helper.make_node("Scan", given, ["last", "y"], body=body, num_scan_inputs=2, directions=[0, 1])]
    known = {"lengths": np.array(lengths)} if lengths else None
    shapes = {"first": (2, 3), "x": (2, 4, 3), "z": (2, 4, 3)}
    network = read(model(scan, shapes, known, outputs="last y", opset=8))
    assert not network.foreign
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    found = evaluate(network, arrays)
    wanted = arrays["first"][:, None] + np.cumsum(arrays["x"] + arrays["z"][:, ::-1], axis=1)
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["last"], wanted[:, -1], rtol=1e-5, atol=1e-6)
