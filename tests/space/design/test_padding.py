"""What of a stage is padding, where conditions are more than comparisons of indices."""

import pytest

import stridesmith as ss
from stridesmith.ir.analysis import count_flops
from stridesmith.space.design.space import generate

BAND = """
@T.prim_func
def band(x: T.Buffer((16,), "float32"), w: T.Buffer((4,), "float32"), y: T.Buffer((13,), "float32")):
    xp = T.alloc_buffer((16,), "float32")
    for a in range(16):
        with T.block("pad"):
            va = T.axis.spatial(16, a)
            xp[va] = T.if_then_else({cond}, x[va], T.float32(0))
    for a, r in T.grid(13, 4):
        with T.block("conv"):
            va, vr = T.axis.remap("SR", [a, r])
            with T.init():
                y[va] = T.float32(0)
            y[va] = y[va] + xp[va + vr] * w[vr]
"""


@pytest.mark.parametrize(
    "cond, flops",
    [
        ("T.abs(va - 8) < 6", 2 * 13 * 4),
        ("T.Cast('float32', va) * T.float32(0.5) < T.float32(4.5)", 2 * 13 * 4),
        ("va % 2 < 1", 2 * 13 * 4),  # a border, as far as one can tell
        ("va % 2 == 0", 13 * 4),
    ],
)
def test_any_condition_has_a_space_and_a_count(cond: str, flops: int) -> None:
    """A stage may have any condition: what is not understood costs nothing but knowledge."""
    func = ss.parse(BAND.format(cond=cond))
    assert isinstance(func, ss.PrimFunc)
    assert count_flops(func) - flops in (0, 16)  # of the products, and of the pad's own condition
    assert generate(func, ss.Target("cpu"), {"x": "fixed", "w": "constant", "y": "fixed"}).sketches
