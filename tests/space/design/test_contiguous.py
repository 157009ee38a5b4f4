"""Axes of a reduction that lie together in memory are one, where nothing needs them apart."""

from __future__ import annotations

import numpy as np
import pytest
from expected_space import CPU
from goldens.execute import POISONS, logical_results
from scale import scaled

from stridesmith.backends.lower import lower
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.space.design.space import Space, generate
from stridesmith.space.workloads import workload

POOL = """
@T.prim_func
def pool(x: T.Buffer((2, 5, 6, 7), "float32"), y: T.Buffer((2, 5), "float32")):
    s = T.alloc_buffer((2, 5), "float32")
    for n, c, h, w in T.grid(2, 5, 6, 7):
        with T.block("total"):
            vn, vc, vh, vw = T.axis.remap("SSRR", [n, c, h, w])
            with T.init():
                s[vn, vc] = T.float32(0)
            s[vn, vc] = s[vn, vc] + {value}
    for n, c in T.grid(2, 5):
        with T.block("mean"):
            vn, vc = T.axis.remap("SS", [n, c])
            y[vn, vc] = s[vn, vc] / T.float32(42)
"""
PLAIN = POOL.format(value="x[vn, vc, vh, vw]")

CENTRED = """
@T.prim_func
def centred(x: T.Buffer((4, 3, 5, 8), "float32"), y: T.Buffer((4, 3, 5, 8), "float32")):
    s = T.alloc_buffer((4,), "float32")
    for g, c, h, w in T.grid(4, 3, 5, 8):
        with T.block("total"):
            vg, vc, vh, vw = T.axis.remap("SRRR", [g, c, h, w])
            with T.init():
                s[vg] = T.float32(0)
            s[vg] = s[vg] + x[vg, vc, vh, vw]
    for g, c, h, w in T.grid(4, 3, 5, 8):
        with T.block("less"):
            vg, vc, vh, vw = T.axis.remap("SSSS", [g, c, h, w])
            y[vg, vc, vh, vw] = x[vg, vc, vh, vw] - s[vg]{more}
"""


def func_of(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def reduced(space: Space) -> list[int]:
    """The extents of the reductions of the first anchor."""
    return [axis.extent for axis in space.sketches[0].parts[0].anchor.axes if axis.kind == "reduce"]


@pytest.mark.parametrize(
    ("text", "extents"),
    [(PLAIN, [42]), (CENTRED.format(more=""), [3 * 5 * 8]), (CENTRED.format(more=" * T.cast(vc, 'float32')"), [3, 40])],
    ids=["pool", "centred", "channels apart"],
)
def test_axes_that_lie_together_are_one(text: str, extents: list[int]) -> None:
    """Also of several stages, if all have them together; what they compute stays the same, arguments as they were."""
    func = func_of(text)
    space = generate(func, CPU)
    assert reduced(space) == extents
    assert any(part.structure.factored for sketch in space.sketches for part in sketch.parts)
    for sketch in space.sketches[:: max(1, len(space.sketches) // 4)]:
        for choice in sketch.draw(np.random.default_rng(2), scaled(2)):
            made = sketch.schedule(choice).func
            lower(made, CPU)
            for poison in POISONS:
                want = logical_results(func, poison)
                for key, array in logical_results(made, poison).items():
                    np.testing.assert_allclose(array, want[key], rtol=1e-5, err_msg=str(sketch.labels(choice)))


def test_names_and_the_order_of_loops_decide_nothing() -> None:
    """A program with other names, or whose loops are in another order, has the same space."""
    names = [s.name for s in generate(func_of(PLAIN), CPU).sketches]
    other = PLAIN.replace("vh", "a").replace("vw", "b").replace("for n, c, h, w in T.grid(2, 5, 6, 7)",
                                                               "for w, n, h, c in T.grid(7, 2, 6, 5)")  # fmt: skip
    assert other.count("a, b") and [s.name for s in generate(func_of(other), CPU).sketches] == names


@pytest.mark.parametrize(
    "value",
    [
        "x[vn, vc, vh, vw] * x[vn, vc, vh, 0]",
        "x[vn, vc, vh, vw] * T.cast(vw, 'float32')",
        "T.if_then_else(vw > 0, x[vn, vc, vh, vw], T.float32(0))",
        "x[vn, vc, vh, 6 - vw]",
        "x[vn, vh % 5, vh, vw]",
    ],
)
def test_what_is_needed_apart_stays_apart(value: str) -> None:
    """(1), (2): an access or a value that has one of the axes alone, or otherwise than as a dimension."""
    assert reduced(generate(func_of(POOL.format(value=value)), CPU)) == [6, 7]


def test_dimensions_that_others_read_otherwise_stay_apart() -> None:
    """(3): another block reads the rows in another order; a window needs its rows."""
    turned = CENTRED.format(more=" * x[vg, vc, 4 - vh, vw]")
    assert reduced(generate(func_of(turned), CPU)) == [3, 5, 8]
    conv = generate(workload("conv2d", ci=8, co=8, h=9, w=9, k=3).func, CPU)
    assert reduced(conv) == [8, 3, 3]
