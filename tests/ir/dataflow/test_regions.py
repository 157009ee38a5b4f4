"""Regions are the elements that the instances touch, one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from scale import scaled

from stridesmith.ir.affine import sets
from stridesmith.ir.dataflow.regions import Region, regions
from stridesmith.ir.expr import Broadcast, Buffer, Expr, Load, Ramp, Var, binary, const, if_then_else, maximum, minimum
from stridesmith.ir.layout.index_text import evaluate
from stridesmith.ir.stmt import Block, Declare, If, PrimFunc, Stmt, Store, loops, seq

A, B = Buffer("A", (6, 8)), Buffer("B", (12,))
I, J = Var("i"), Var("j")  # noqa: E741
EXTENTS = ((I, 4), (J, 5))


def function(body: Stmt, *params: Buffer) -> PrimFunc:
    return PrimFunc("f", params or (A, B), Block("root", (), body))


def elements(region: Region) -> set[tuple[int, ...]]:
    points = itertools.product(*map(range, region.buffer.shape))
    return {p for p in points if contains(region, p)}


def contains(region: Region, point: tuple[int, ...]) -> bool:
    names = region.elements.variables
    at = sets.Domain(tuple((v, None) for v in names), tuple(v.equal(k) for v, k in zip(names, point, strict=True)))
    return sets.points(at).is_subset(region.elements)


def index(rng: random.Random, extent: int) -> Expr:
    value = I * rng.randint(-1, 3) + J * rng.randint(0, 2) + rng.randint(0, 3)
    if rng.random() < 0.4:
        return value % extent
    return minimum(maximum(value // rng.randint(1, 3), 0), extent - 1)


def instances() -> Iterator[dict[str, int]]:
    for i, j in itertools.product(range(4), range(5)):
        yield {"i": i, "j": j}


@pytest.mark.parametrize("seed", range(scaled(25)))
def test_regions_agree_with_enumeration(seed: int) -> None:
    """What a guarded store writes, and what it reads under a lazy condition, is exactly what enumeration finds."""
    rng = random.Random(seed)
    target, source = (index(rng, 6), index(rng, 8)), (index(rng, 12),)
    cond = binary(rng.choice(["<", ">=", "!="]), I * rng.randint(-1, 2) + J, rng.randint(0, 6))
    lazy = binary(rng.choice(["<", "=="]), J, rng.randint(0, 4))
    store = Store(A, target, if_then_else(lazy, Load(B, source), 0.0))
    found = regions(function(loops(EXTENTS, If(cond, store))))
    runs = [p for p in instances() if evaluate(cond, p)]
    written = {tuple(int(evaluate(e, p)) for e in target) for p in runs}
    read = {tuple(int(evaluate(e, p)) for e in source) for p in runs if evaluate(lazy, p)}
    assert all(r.exact for r in (*found.reads, *found.writes))
    assert {p for r in found.writes for p in elements(r)} == written
    assert {p for r in found.reads for p in elements(r)} == read


def test_a_part_of_the_program_has_its_own_regions() -> None:
    """Regions of one loop leave out what its neighbour touches."""
    first, second = loops([(I, 4)], Store(B, (I,), const(0.0))), loops([(J, 5)], Store(B, (J + 6,), B[J]))
    func = function(seq([first, second]))
    part = regions(func, second)
    assert [str(r) for r in part.writes] == ["B[p0'] where p0' >= 6 and p0' < 11"]
    assert [str(r) for r in part.reads] == ["B[p0'] where p0' < 5"]
    (written,) = part.writes
    assert (written.elements.minimum(0), written.elements.maximum(0)) == (6, 10)


def test_vectors_touch_every_lane() -> None:
    """A ramp is all of its elements, stride included."""
    store = Store(B, (Ramp(I * 4, const(2), 2),), Broadcast(const(0.0), 2))
    (region,) = regions(function(loops([(I, 3)], store))).writes
    assert elements(region) == {(0,), (2,), (4,), (6,), (8,), (10,)} and region.exact


def test_views_touch_their_memory() -> None:
    """An access through a view of the same element size is an access of the memory's elements."""
    view = Buffer("V", (8, 6), data="A")
    func = function(Declare(view, loops([(I, 4)], Store(view, (I, const(1)), const(0.0)))))
    (region,) = regions(func).writes
    assert region.buffer == A and elements(region) == {divmod(6 * i + 1, 8) for i in range(4)}


def test_what_is_not_affine_is_a_superset() -> None:
    """An index from memory may be any element, and a condition on data does not narrow a region."""
    index_ = Buffer("X", (4,), "int64")
    anywhere = regions(function(loops([(I, 4)], Store(B, (index_[I],), const(0.0))), B, index_)).writes[0]
    assert not anywhere.exact and len(elements(anywhere)) == 12
    guarded = loops([(I, 4)], If(binary("<", B[I + 4], 0.5), Store(B, (I,), const(0.0))))
    region = regions(function(guarded)).writes[0]
    assert not region.exact and elements(region) == {(i,) for i in range(4)}
