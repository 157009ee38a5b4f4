"""Features of the spaces that the rules generate: every workload, both kinds of target, names that do not matter."""

from __future__ import annotations

import re

import numpy as np
import pytest

from stridesmith.configs import load
from stridesmith.cost_model.features import ESTIMATE, Estimates, FeatureMap
from stridesmith.ir.script.parser import parse
from stridesmith.ir.target import Target
from stridesmith.search.candidates.search_space import SearchSpace
from stridesmith.search.tuning.study import Study
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import names, workload

CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
VNNI = Target(
    isa="avx512",
    vector_bits=512,
    registers=32,
    threads=2,
    features="+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512vnni",
)
OPENCL = Target(kind="opencl", vector_bits=256, registers=16, units=2, threads=2, max_work_group=64)

MATMUL = """
@T.prim_func
def f(a: T.Buffer((37, 40), "float32"), b: T.Buffer((40, 50), "float32"), c: T.Buffer((37, 50), "float32")):
    for i, j, k in T.grid(37, 50, 40):
        with T.block("c"):
            x, y, z = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[x, y] = T.float32(0)
            c[x, y] = c[x, y] + a[x, z] * b[z, y]
"""
RENAMED = re.sub(r"\b(c|x|k)\b", r"other_\1", MATMUL)
CHAIN = """
@T.prim_func
def f(a: T.Buffer((37, 40), "float32"), c: T.Buffer((37, 40), "float32")):
    for i, j in T.grid(37, 40):
        with T.block("c"):
            x, y = T.axis.remap("SS", [i, j])
            c[x, y] = T.max(a[x, y], T.float32(0))
"""
COUNTED = """
@T.prim_func
def f(c: T.Buffer((37, 40), "float32")):
    for i, j in T.grid(37, 40):
        with T.block("c"):
            x, y = T.axis.remap("SS", [i, j])
            c[x, y] = T.Cast("float32", x)
"""


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=["cpu", "opencl"])
@pytest.mark.parametrize("name", names())
def test_every_workload_has_features(name, target):
    """Each sketch of each workload: finite estimates that differ, no infinite feature, no row that is all missing.

    Estimates of all sketches together are those of each by itself.
    """
    work = workload(name)
    space = generate(work.func, target, dict.fromkeys(work.constants, "constant"))
    search_space, columns = SearchSpace(space), FeatureMap(space.sketches, target)
    rng = np.random.default_rng(0)
    asked = [(number, search_space.draw(rng, number, 64)) for number in search_space.open]
    together = dict(columns.estimates(asked))
    for at, (number, rows) in enumerate(asked):
        np.testing.assert_array_equal(together[at], columns.estimate(number, rows))
        matrix = columns.matrix(number, rows)
        estimate = matrix[:, columns.columns.index(ESTIMATE)]
        assert np.isfinite(estimate).all()
        assert not np.isinf(matrix).any()
        assert len(rows) < 8 or np.ptp(estimate) > 0.5


def test_estimates_of_dot_products_together_are_those_of_each():
    """Sketches with dot products and those without, in layouts of words and of single bytes."""
    work = workload("conv2d", ci=8, h=7, w=9, co=20, k=3, pad=1, dtype="int8")
    space = generate(work.func, VNNI, dict.fromkeys(work.constants, "constant"))
    assert len({part.structure.dot for sketch in space.sketches for part in sketch.parts}) == 2
    search_space, estimates = SearchSpace(space), Estimates(space.sketches, VNNI)
    asked = [(n, search_space.draw(np.random.default_rng(n), n, 64)) for n in search_space.open]
    for at, found in estimates.estimates(asked):
        np.testing.assert_array_equal(found, estimates.estimate(*asked[at]))


@pytest.mark.parametrize("target", [CPU, OPENCL, load.target("opencl-gpu")], ids=["cpu", "opencl", "warps"])
def test_a_program_that_reads_nothing_has_features(target):
    """Its values are computed from indices alone: candidates are ranked like those of any other program."""
    space = generate(parse(COUNTED), target)
    search_space, columns = SearchSpace(space), FeatureMap(space.sketches, target)
    rows = search_space.draw(np.random.default_rng(0), 0, 64)
    matrix = columns.matrix(0, rows)
    assert len(rows) > 8 and not np.isinf(matrix).any()
    assert np.isfinite(matrix[:, columns.columns.index(ESTIMATE)]).all()


def test_names_do_not_matter():
    """A renamed program has the same columns, and the same features for the same choices."""
    spaces = [generate(parse(text), CPU, {}) for text in (MATMUL, RENAMED)]
    first, second = (FeatureMap(space.sketches, CPU) for space in spaces)
    assert first.columns == second.columns
    rows = SearchSpace(spaces[0]).draw(np.random.default_rng(0), 0, 200)
    np.testing.assert_array_equal(first.matrix(0, rows), second.matrix(0, rows))


@pytest.mark.parametrize("sampler", ["stridesmith", "random"])
def test_a_program_of_ones_own_can_be_searched(sampler):
    """An element-wise program without a reduction: candidates come, distinct, until none is left or enough."""
    study = Study(generate(parse(CHAIN), CPU, {}), sampler)
    asked = [candidate for _ in range(3) for candidate in study.ask(4)]
    assert len({candidate.key for candidate in asked}) == len(asked) > 0
    for candidate in asked:
        study.space.sketches[candidate.sketch].trace(candidate.choice)
