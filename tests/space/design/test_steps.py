"""The steps of a recurrence: their sums are tiled like those of other programs, and steps keep their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stridesmith.backends.devices import discover
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import lower
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc
from stridesmith.space.design.nests import steps_of
from stridesmith.space.design.program import anchors, anchors_in_steps
from stridesmith.space.design.space import generate

CPU = discover("cpu", 2)

LAYER = """
def layer(g: T.Buffer(({d}, 4, {b}, {n}), "float32"), r: T.Buffer(({d}, {n}, {n}), "float32"),
          y: T.Buffer(({d}, 4, {b}, {n}), "float32")):
    h = T.alloc_buffer(({d}, {b}, {n}), "float32")
    for d0, i0, j0 in T.grid({d}, {b}, {n}):
        with T.block("first"):
            vd0, vi0, vj0 = T.axis.remap("SSS", [d0, i0, j0])
            h[vd0, vi0, vj0] = T.float32(0)
    for d, t in T.grid({d}, 4):
        with T.block("step"):
            vd = T.axis.spatial({d}, d)
            vt = T.axis.opaque(4, t)
            acc = T.alloc_buffer(({b}, {n}), "float32")
            for i1, j1, k1 in T.grid({b}, {n}, {n}):
                with T.block("product"):
                    vi1, vj1, vk1 = T.axis.remap("SSR", [i1, j1, k1])
                    with T.init():
                        acc[vi1, vj1] = T.float32(0)
                    acc[vi1, vj1] = acc[vi1, vj1] + h[vd, vi1, vk1] * r[vd, vj1, vk1]
            for i2, j2 in T.grid({b}, {n}):
                with T.block("state"):
                    vi2, vj2 = T.axis.remap("SS", [i2, j2])
                    h[vd, vi2, vj2] = T.tanh(acc[vi2, vj2] + g[vd, vt, vi2, vj2])
            for i3, j3 in T.grid({b}, {n}):
                with T.block("store"):
                    vi3, vj3 = T.axis.remap("SS", [i3, j3])
                    y[vd, vt, vi3, vj3] = h[vd, vi3, vj3]
"""


def layer(directions: int, batch: int, units: int) -> PrimFunc:
    func = parse("from stridesmith import T\n@T.prim_func" + LAYER.format(d=directions, b=batch, n=units))
    assert isinstance(func, PrimFunc)
    return func


def run(func: PrimFunc, arrays: list[Any]) -> Any:
    kernel = load_artifact(compile_lowered(lower(func, CPU), CPU)).bind()
    for number, array in enumerate(arrays):
        kernel.write(number, array)
    kernel.run()
    return kernel.read(len(arrays)).reshape(func.buffers[-1].shape)


@pytest.mark.parametrize(("directions", "batch", "units"), [(1, 1, 20), (2, 3, 17)])
def test_every_candidate_computes_the_recurrence(directions: int, batch: int, units: int) -> None:
    """Tiles, panels, threads and parts of sums change nothing, whether threads share sums or directions."""
    func, rng = layer(directions, batch, units), np.random.default_rng(0)
    arrays = [(rng.standard_normal(b.shape) * 0.3).astype(b.dtype) for b in func.buffers[:2]]
    expected = np.zeros(func.buffers[2].shape, np.float32)
    interpret(func, *arrays, expected)
    space = generate(func, CPU, {})
    assert space.sketches
    for sketch in space.sketches:
        for choice in sketch.draw(rng, 3):
            np.testing.assert_allclose(run(sketch.schedule(choice).func, arrays), expected, rtol=1e-4, atol=1e-5)


def test_sums_of_steps_are_anchors_of_their_own() -> None:
    """What they read of the step's time or direction is seen in one step; the program as a whole has no anchor."""
    func = layer(2, 1, 8)
    assert anchors(func, {}) == ()
    (anchor,) = anchors_in_steps(func, {"r": "constant"})
    assert [axis.extent for axis in anchor.axes] == [1, 8, 8]
    assert [o.source for o in anchor.inputs] == ["constant", "other"]
    assert [step.name for step in steps_of(func)] == ["step"]


def test_threads_share_directions_or_what_a_step_does() -> None:
    """Two directions need nothing of each other; one direction's steps do."""
    both, one = generate(layer(2, 2, 16), CPU, {}), generate(layer(1, 2, 16), CPU, {})
    assert any(sketch.chunks for sketch in both.sketches) and not any(sketch.chunks for sketch in one.sketches)
    apart = next(sketch for sketch in both.sketches if sketch.chunks)
    func = apart.schedule(apart.draw(np.random.default_rng(0), 1)[0]).func
    parallel = [n.var.name for n in walk(func.body) if isinstance(n, For) and n.kind == "parallel"]
    assert "d" in parallel and not [name for name in parallel if name.startswith(("i1", "j1"))]
