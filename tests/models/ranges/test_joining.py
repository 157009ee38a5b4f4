"""Axes of free sizes that lie together in memory are one, where nothing tells them apart."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from onnx_models import model, node

import stridesmith as ss
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.models.ranges import stored
from stridesmith.models.ranges.api import FreeSizes, network_of
from stridesmith.models.ranges.joining import joined
from stridesmith.models.ranges.network import RangedNetwork, RangedOperator, valued

RNG = np.random.default_rng(0)

PIXELS = """
@T.prim_func
def pixels(x: T.Buffer((1, 5, {h}, {w}), "float32"), k: T.Buffer((4, 5, 1, 1), "float32"),
           bias: T.Buffer((4,), "float32"), y: T.Buffer((1, 4, {h}, {w}), "float32")):
    acc = T.alloc_buffer((1, 4, {h}, {w}), "float32")
    for n, o, i, j, c, p, q in T.grid(1, 4, {h}, {w}, 5, 1, 1):
        with T.block("conv"):
            vn, vo, vi, vj, vc, vp, vq = T.axis.remap("SSSSRRR", [n, o, i, j, c, p, q])
            with T.init():
                acc[vn, vo, vi, vj] = 0.0
            acc[vn, vo, vi, vj] = acc[vn, vo, vi, vj] + x[vn, vc, vi + vp, vj + vq] * k[vo, vc, vp, vq]
    for n, o, i, j in T.grid(1, 4, {h}, {w}):
        with T.block("bias"):
            vn, vo, vi, vj = T.axis.remap("SSSS", [n, o, i, j])
            y[vn, vo, vi, vj] = acc[vn, vo, vi, vj] + bias[vo]
"""
MEAN = """
@T.prim_func
def mean(x: T.Buffer((3, {h}, {w}), "float32"), y: T.Buffer((3,), "float32")):
    for c, i, j in T.grid(3, {h}, {w}):
        with T.block("sum"):
            vc, vi, vj = T.axis.remap("SRR", [c, i, j])
            with T.init():
                y[vc] = 0.0
            y[vc] = y[vc] + x[vc, vi, vj]
"""
WINDOW = MEAN.replace("x[vc, vi, vj]", "x[vc, vi, T.max(vj - 1, 0)]")
POSITION = MEAN.replace("x[vc, vi, vj]", 'x[vc, vi, vj] * T.Cast("float32", vj)')
TURNED = """
@T.prim_func
def turned(x: T.Buffer(({w}, {h}), "float32"), y: T.Buffer(({h}, {w}), "float32")):
    for i, j in T.grid({h}, {w}):
        with T.block("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vj, vi]
"""
COLUMNS = MEAN.replace("T.grid(3, {h}, {w})", "T.grid(3, {w}, {h})").replace("c, i, j in", "c, j, i in")
SIZES = ((4, 6), (3, 5))


def programs(text: str) -> list[PrimFunc]:
    """The programs of two sizes."""
    found = [ss.parse(text.format(h=h, w=w)) for h, w in SIZES]
    return [func for func in found if isinstance(func, PrimFunc)]


@pytest.mark.parametrize(
    ("text", "counts"), [(PIXELS, ((1, 1, 2), (1, 1, 1, 1), (1,), (1, 1, 2))), (MEAN, ((1, 2), (1,)))]
)
def test_programs_with_one_axis_compute_the_same(text: str, counts: tuple[tuple[int, ...], ...]) -> None:
    """The same memory, seen in another shape, at each of the sizes."""
    made = joined(programs(text))
    assert made is not None and made.counts == counts
    for before, after in zip(programs(text), made.funcs, strict=True):
        ss.verify(after)
        assert [prod(b.shape) for b in after.buffers] == [prod(b.shape) for b in before.buffers]
        arrays = [RNG.standard_normal(buffer.shape).astype(np.float32) for buffer in before.buffers]
        seen = [array.copy().reshape(buffer.shape) for array, buffer in zip(arrays, after.buffers, strict=True)]
        ss.interpret(before, *arrays)
        ss.interpret(after, *seen)
        np.testing.assert_array_equal(arrays[-1].reshape(-1), seen[-1].reshape(-1))


@pytest.mark.parametrize("text", [WINDOW, POSITION, TURNED, COLUMNS], ids=["window", "position", "turned", "columns"])
def test_axes_that_are_told_apart_stay_two(text: str) -> None:
    """By a window, by where something is, in another order in memory, and summed in another order."""
    assert joined(programs(text)) is None


def test_axes_without_a_free_size_or_of_one_point_stay_two() -> None:
    """Of numbers the design space makes one axis; one point is none that a tile could be cut of."""
    func = programs(MEAN)[0]
    assert joined([func, func]) is None
    line = [ss.parse(MEAN.format(h=1, w=w)) for w in (5, 7)]
    assert joined([func for func in line if isinstance(func, PrimFunc)]) is None


def images() -> ModelProto:
    """A convolution of pixels with a residual, one of windows, the mean of the image, and a scale of its channels."""
    nodes = [
        node("Conv", "x a b", "c"), node("Add", "c x", "s"), node("Conv", "s w", "d", pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", "d", "m"), node("Mul", "d m", "y"),
    ]  # fmt: skip
    shapes = {"a": (4, 4, 1, 1), "b": (4,), "w": (4, 4, 3, 3)}
    constants = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return model(nodes, {"x": (1, 4, "H", "W")}, constants)


SIZE = FreeSizes({"H": (8, 32, 8), "W": (8, 64, 8)})


def by_name(network: RangedNetwork) -> dict[str, RangedOperator]:
    return {node.outputs[0]: node for node in network.nodes}


def test_pixels_of_a_network_are_one_size_of_which_more_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product of heights and widths is a size of its own; a window keeps both.  What is kept has that, too."""
    made = images()
    monkeypatch.setattr(stored.CACHE, "read", lambda _: None)
    first = network_of(made, Target(threads=2), SIZE)
    found = by_name(first)
    pixels, window, scale = found["s"].func, found["d"].func, found["y"]
    assert pixels is not None and window is not None
    assert len(pixels.sizes) == 1 and len(window.sizes) == 2 and not found["d"].shapes
    assert "size0 % 64 == 0" in pixels.script()
    assert [valued(shape, {"H": 16, "W": 24}) for shape in scale.shapes] == [(1, 4, 384)] * 2
    assert first.shape("y", {"H": 16, "W": 24}) == (1, 4, 16, 24)
    monkeypatch.undo()
    assert network_of(made, Target(threads=2), SIZE).nodes == first.nodes


def test_networks_with_joined_axes_compute_what_onnx_does() -> None:
    """At both ends and between."""
    made = images()
    run, right = ss.compile(made, ranges=SIZE.ranges), ReferenceEvaluator(made)
    for height, width in ((8, 8), (16, 56), (32, 64)):
        x = RNG.standard_normal((1, 4, height, width)).astype(np.float32)
        np.testing.assert_allclose(run(x), right.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)
