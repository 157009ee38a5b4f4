"""Reductions along the vector axis: parts are summed in registers, vectors before lanes, inside the tile's loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from expected_space import CPU, OPENCL
from goldens.execute import POISONS, logical_results
from scale import scaled

from stridesmith.backends.lower import Lowered, lower
from stridesmith.ir.expr import Binary, Load, Ramp
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc, Store
from stridesmith.ir.target import Target
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

SHAPES = {
    "row_sum": {"rows": 9, "cols": 37},
    "row_sum two vectors long": {"rows": 5, "cols": 16},
    "softmax": {"rows": 5, "cols": 19},
    "layernorm": {"rows": 3, "cols": 19},
}
TARGETS = {"cpu": CPU, "opencl": OPENCL, "gpu": replace(OPENCL, is_cpu_device=False, vector_bits=128)}

PEAKS = """
@T.prim_func
def peaks(x: T.Buffer((11, 37), "float32"), y: T.Buffer((11,), "float32")):
    m = T.alloc_buffer((11,), "float32")
    for i, j in T.grid(11, 37):
        with T.block("peak"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                m[vi] = T.float32("-inf")
            m[vi] = T.max(m[vi], x[vi, vj])
    for k in range(11):
        with T.block("scale"):
            vk = T.axis.spatial(11, k)
            y[vk] = m[vk] * T.float32(2)
"""
TOTAL = """
@T.prim_func
def total(x: T.Buffer((133,), "float32"), y: T.Buffer((1,), "float32")):
    for j in range(133):
        with T.block("total"):
            vj = T.axis.reduce(133, j)
            with T.init():
                y[0] = T.float32(0)
            y[0] = y[0] + x[vj]
"""


@lru_cache(maxsize=8)
def program(name: str) -> PrimFunc:
    """A workload at its shape here, or one of the programs above."""
    texts = {"peaks": PEAKS, "total": TOTAL}
    func = parse(texts[name], name) if name in texts else workload(name.split()[0], **SHAPES[name]).func
    assert isinstance(func, PrimFunc)
    return func


def in_parts(name: str, target: Target) -> list[Sketch]:
    """The sketches of a program that have a reduction along a vector axis."""
    found = [s for s in generate(program(name), target, {}).sketches if any(p.structure.factored for p in s.parts)]
    assert found
    return found


def drawn(sketch: Sketch, count: int) -> Iterator[tuple[int, ...]]:
    for row in sketch.draw(np.random.default_rng(5), count)[:count]:
        yield tuple(map(int, row))


@lru_cache(maxsize=8)
def expected(name: str) -> dict[float, dict[str, Any]]:
    return {poison: logical_results(program(name), poison) for poison in POISONS}


def check(name: str, func: PrimFunc, text: str) -> None:
    """The interpreter gets the untransformed program's results, whatever padding and workspaces hold."""
    for poison, results in expected(name).items():
        found = logical_results(func, poison)
        for key, array in results.items():
            np.testing.assert_allclose(found[key], array, rtol=1e-5, err_msg=text)


def labelled(sketch: Sketch, labels: dict[str, str]) -> Lowered:
    """The lowered candidate of these labels, with the first alternative of every other decision."""
    names = [d.name.rsplit("/", 1)[-1] for d in sketch.decisions]
    assert labels.keys() <= set(names)
    choice = [d.labels.index(labels.get(n, d.labels[0])) for n, d in zip(names, sketch.decisions, strict=True)]
    return lower(sketch.schedule(tuple(choice)).func, sketch.target)


@pytest.mark.parametrize("device", TARGETS)
@pytest.mark.parametrize("name", [*SHAPES, "peaks", "total"])
def test_random_candidates_are_right_and_hold_parts_in_registers(name: str, device: str) -> None:
    """Sums and maxima of odd extents, with and without an epilogue; no workspace has an element for each part."""
    sketches = in_parts(name, TARGETS[device])
    for sketch in sketches:
        for choice in drawn(sketch, scaled(max(1, 6 // len(sketches)))):
            schedule = sketch.schedule(choice)
            text = str(sketch.labels(choice))
            lowered = lower(schedule.func, TARGETS[device])
            assert not [b.name for b in lowered.workspaces if "_rf" in b.name], text
            check(name, schedule.func, text)


@pytest.mark.parametrize("name", ["row_sum", "peaks"])
@pytest.mark.parametrize("edge", ["branch", "peel", "overcompute"])
def test_ragged_rows(name: str, edge: str) -> None:
    """Rows that the tile does not divide, with each way to treat the edge."""
    (sketch,) = in_parts(name, CPU)
    number = next(n for n, d in enumerate(sketch.decisions) if d.name.endswith("/boundary:s0"))
    tile = next(n for n, d in enumerate(sketch.decisions) if d.name.endswith("/tile:s0"))
    kind = sketch.decisions[number].labels.index(edge)
    fours = sketch.decisions[tile].labels.index("4")
    rows = sketch.draw(np.random.default_rng(7), 3000)
    rows = rows[(rows[:, number] == kind) & (rows[:, tile] == fours)][: scaled(3)]
    assert len(rows)
    for row in rows:
        choice = tuple(map(int, row))
        check(name, sketch.schedule(choice).func, str(sketch.labels(choice)))


def test_one_nest_stores_each_sum_once() -> None:
    """A single shared loop; the result is written and never read."""
    (sketch,) = in_parts("row_sum", CPU)
    lowered = labelled(sketch, {"tile:s0": "3", "tile:r0": "2x8"})
    nodes = list(walk(lowered.body))
    result = lowered.params[1]
    assert sum(isinstance(n, For) and n.kind == "parallel" for n in nodes) == 1
    assert any(isinstance(n, Store) and n.buffer == result for n in nodes)
    assert not any(isinstance(n, Load) and n.buffer == result for n in nodes)
    assert not lowered.workspaces


@pytest.mark.parametrize("vectors", [1, 2, 4])
def test_vectors_are_added_before_their_lanes(vectors: int) -> None:
    """However many vectors a row has, they become one, whose eight lanes are summed."""
    (sketch,) = in_parts("row_sum", CPU)
    lowered = labelled(sketch, {"tile:s0": "1", "tile:r0": f"{vectors}x8"})
    assert scalar_steps(lowered) == 8


def scalar_steps(lowered: Lowered) -> int:
    """Additions of one scalar out of a local buffer to another, with the extents of the loops of the tile."""

    def steps(node: object, times: int) -> Iterator[int]:
        if isinstance(node, For):
            yield from steps(node.body, times * (int(node.extent.value) if node.kind == "unrolled" else 1))
        elif isinstance(node, Store) and isinstance(node.value, Binary):
            loads = [n for n in walk(node.value) if isinstance(n, Load)]
            alone = not any(isinstance(i, Ramp) for n in (node, *loads) for i in n.indices)
            if alone and all(n.buffer.scope == "local" for n in loads):
                yield times
        elif hasattr(node, "__dataclass_fields__"):
            for name in node.__dataclass_fields__:
                value = getattr(node, name)
                for item in value if isinstance(value, tuple) else (value,):
                    yield from steps(item, times)

    return sum(steps(lowered.body, 1))
