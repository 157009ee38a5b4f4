"""Programs whose indices are digits in other ways than a grouped convolution's, and what becomes of their buffers."""

from __future__ import annotations

import pytest
from draws import candidates, func_of
from expected_space import CPU
from goldens.execute import same_results

from stridesmith import configs
from stridesmith.space.design.space import generate
from stridesmith.space.design.techniques.digits import DIGITS
from stridesmith.space.schedule import Schedule

PROGRAMS = {
    "im2col": ("""
@T.prim_func
def main(x: T.Buffer((4, 8, 9), "float32"), w: T.Buffer((16, 36), "float32"), y: T.Buffer((16, 42), "float32")):
    for co, p, k in T.grid(16, 42, 36):
        with T.block("gemm"):
            vo, vp, vk = T.axis.remap("SSR", [co, p, k])
            with T.init():
                y[vo, vp] = T.float32(0)
            y[vo, vp] = y[vo, vp] + w[vo, vk] * x[vk // 9, vp // 7 + vk % 9 // 3, vp % 7 + vk % 3]
""", {'x': (4, 8, 9), 'w': (16, 4, 3, 3), 'y': (16, 6, 7)}),
    "merge heads": ("""
@T.prim_func
def main(p: T.Buffer((3, 9, 9), "float32"), v: T.Buffer((9, 24), "float32"), o: T.Buffer((9, 24), "float32")):
    for i, h, d, j in T.grid(9, 3, 8, 9):
        with T.block("mix"):
            vi, vh, vd, vj = T.axis.remap("SSSR", [i, h, d, j])
            with T.init():
                o[vi, vh * 8 + vd] = T.float32(0)
            o[vi, vh * 8 + vd] = o[vi, vh * 8 + vd] + p[vh, vi, vj] * v[vj, vh * 8 + vd]
""", {'p': (3, 9, 9), 'v': (9, 3, 8), 'o': (9, 3, 8)}),
    "upsample": ("""
@T.prim_func
def main(x: T.Buffer((4, 5, 6), "float32"), y: T.Buffer((4, 10, 12), "float32")):
    for c, h, w in T.grid(4, 10, 12):
        with T.block("up"):
            vc, vh, vw = T.axis.remap("SSS", [c, h, w])
            y[vc, vh, vw] = x[vc, vh // 2, vw // 2]
""", {'x': (4, 5, 6), 'y': (4, 5, 2, 6, 2)}),
    "channel shuffle": ("""
@T.prim_func
def main(x: T.Buffer((12, 30), "float32"), y: T.Buffer((12, 30), "float32")):
    for c, h in T.grid(12, 30):
        with T.block("cs"):
            vc, vh = T.axis.remap("SS", [c, h])
            y[vc, vh] = x[vc % 3 * 4 + vc // 3, vh]
""", {'x': (3, 4, 30), 'y': (4, 3, 30)}),
    "space to depth + sum": ("""
@T.prim_func
def main(x: T.Buffer((4, 8, 8), "float32"), w: T.Buffer((6, 16), "float32"), y: T.Buffer((6, 4, 4), "float32")):
    for o, h, v, k in T.grid(6, 4, 4, 16):
        with T.block("s2d"):
            vo, vh, vw, vk = T.axis.remap("SSSR", [o, h, v, k])
            with T.init():
                y[vo, vh, vw] = T.float32(0)
            y[vo, vh, vw] = y[vo, vh, vw] + w[vo, vk] * x[vk % 4, vh * 2 + vk // 8, vw * 2 + vk // 4 % 2]
""", {'x': (4, 4, 2, 4, 2), 'w': (6, 2, 2, 4), 'y': (6, 4, 4)}),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_buffers_have_a_dimension_for_each_digit(name: str) -> None:
    """No quotient or remainder is left in an index, and every sketch has candidates that keep the results."""
    text, shapes = PROGRAMS[name]
    func = func_of(text)
    normal = DIGITS.prepares(Schedule(func), frozenset()).func
    assert {b.name: b.shape for b in normal.buffers} == shapes
    body = normal.script().split("for ", 1)[1]
    assert "//" not in body and "%" not in body
    for number, sketch in enumerate(generate(func, CPU).sketches):
        for choice in candidates(sketch, 1, number):
            same_results(func, sketch.schedule(choice).func)


@pytest.mark.parametrize(("pixels", "extents"), [(7, {7, 32}), (3, {32}), (24, {24, 32})])
def test_vectors_along_short_rows_stay_where_the_channels_of_a_group_are_apart(pixels: int, extents: set[int]) -> None:
    """Of shuffled channels, rows of 7 pixels are read at once, and channels one by one; rows of 3 are too short."""
    func = func_of(f"""
@T.prim_func
def main(x: T.Buffer((4, 32, 9, {pixels}), "float32"), w: T.Buffer((128, 3), "float32"),
         y: T.Buffer((128, 7, {pixels}), "float32")):
    for c, h, v, k in T.grid(128, 7, {pixels}, 3):
        with T.block("taps"):
            vc, vh, vw, vk = T.axis.remap("SSSR", [c, h, v, k])
            with T.init():
                y[vc, vh, vw] = T.float32(0)
            y[vc, vh, vw] = y[vc, vh, vw] + x[vc % 4, vc // 4, vh + vk, vw] * w[vc, vk]
""")
    tiled = [s for s in generate(func, configs.target("cpu-avx512")).sketches if s.parts]
    found = {s.main.anchor.axes[s.main.structure.vec].extent for s in tiled if not s.main.structure.factored}
    assert found >= extents and not {3, 4} & found
