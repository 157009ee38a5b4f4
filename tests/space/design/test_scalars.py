"""Buffers without dimensions: inputs have no layout and take no alternative from others, results are sums alone."""

from __future__ import annotations

import numpy as np
import pytest
from draws import func_of
from expected_space import CPU, OPENCL
from goldens.execute import same_results

from stridesmith.cost_model.features import FeatureMap
from stridesmith.ir.target import Target
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate

PRODUCT = """
@T.prim_func
def main({param}a: T.Buffer((3, 5, 17), "float32"), b: T.Buffer((17, 10), "float32"),
         y: T.Buffer((3, 5, 10), "float32")):
    for h, i, j, k in T.grid(3, 5, 10, 17):
        with T.block("product"):
            vh, vi, vj, vk = T.axis.remap("SSSR", [h, i, j, k])
            with T.init():
                y[vh, vi, vj] = T.float32(0)
            y[vh, vi, vj] = y[vh, vi, vj] + {factor}a[vh, vi, vk] * b[vk, vj]
"""
PLAIN = PRODUCT.format(param="", factor="")
SCALED = PRODUCT.format(param='s: T.Buffer((), "float32"), ', factor="s[()] * ")
TOTAL = """
@T.prim_func
def main(x: T.Buffer((40,), "float32"), y: T.Buffer((), "float32")):
    for i in range(40):
        with T.block("total"):
            vi = T.axis.reduce(40, i)
            with T.init():
                y[()] = T.float32(0)
            y[()] = y[()] + x[vi]
"""


def sketches(text: str, target: Target, owner: str) -> tuple[Sketch, ...]:
    return generate(func_of(text), target, dict.fromkeys("sab", owner)).sketches


@pytest.mark.parametrize("owner", ["constant", "free", "streamed", "fixed"])
@pytest.mark.parametrize("target", [CPU, OPENCL], ids=lambda target: target.kind)
def test_a_scalar_factor_leaves_the_space_as_it_is(target: Target, owner: str) -> None:
    """Every decision of the product without it is there, with all alternatives: also overcompute and fused rows."""
    plain, scaled = (
        [[(d.name, d.labels) for d in s.decisions] for s in sketches(text, target, owner)] for text in (PLAIN, SCALED)
    )
    assert scaled == plain
    assert any("overcompute" in labels for sketch in scaled for _, labels in sketch)


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=lambda target: target.kind)
def test_a_sum_without_dimensions_is_reduced_along_vectors(target: Target) -> None:
    """It has no axis to join or to fuse, and a sketch whose vectors run along the reduction."""
    assert [sketch.name for sketch in sketches(TOTAL, target, "fixed")] == ["vec=r0"]


@pytest.mark.parametrize("owner", ["constant", "free", "streamed", "fixed"])
def test_candidates_with_a_scalar_factor_build(owner: str) -> None:
    """Whoever owns it, the scalar stays as it is, and random candidates compute the product."""
    func, features = func_of(SCALED), FeatureMap(sketches(SCALED, CPU, owner), CPU)
    for number, sketch in enumerate(sketches(SCALED, CPU, owner)[::2]):
        rows = sketch.draw(np.random.default_rng(number), 200)
        over = [row for row in rows if "overcompute" in sketch.labels(row).values()]
        assert over
        for row in (rows[0], over[0], over[-1]):
            same_results(func, sketch.schedule(row.tolist()).func)
        assert not np.isinf(features.matrix(2 * number, rows)).any()
