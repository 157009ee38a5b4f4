"""Whole tiles of unknown extents run apart, in as many versions as are worth their code."""

from __future__ import annotations

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.backends.lower import lowering_steps
from stridesmith.backends.passes import partition
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.space.schedule import Schedule

WORK = ss.workload("matmul", m=(1, 64), n=(1, 96), k=16)


def tiled() -> PrimFunc:
    """Tiles of 8 rows and 3 vectors, all of whose ends are peeled off."""
    sch = Schedule(WORK.func)
    i, j, k = sch.get_loops("matmul")
    (i0, i1), (j0, j1, j2), (k0, k1) = sch.split(i, [None, 8]), sch.split(j, [None, 3, 16]), sch.split(k, [None, 4])
    sch.reorder(i0, j0, k0, k1, i1, j1, j2)
    for loop in (k1, i1, j1):
        sch.unroll(loop)
    sch.vectorize(j2)
    for loop in (i1, j1, j2):
        sch.annotate(loop, "peel", True)
    return sch.func


def test_versions_of_a_tile_end_where_they_are_too_much_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row and each vector that may be left is a version, until so many stores are written out."""
    func, target = tiled(), Target(isa="avx512")
    tile = 4 * 8 * 3 + 8 * 3

    def stores(most: int) -> int:
        monkeypatch.setattr(partition, "MOST", most)
        found = dict(lowering_steps(func, target))
        return partition._written_out(found["partition_loops"])

    all_of_them, few = stores(10**6), stores(4 * tile)
    assert few < all_of_them // 2 and few <= 4 * tile + 8 * tile
    kernel = ss.build(func, "cpu")
    for m, n in ((1, 1), (8, 48), (13, 95), (64, 96)):
        a, b = (np.random.default_rng(m).integers(-4, 5, shape).astype(np.float32) for shape in ((m, 16), (16, n)))
        np.testing.assert_array_equal(kernel(a, b), a @ b)
