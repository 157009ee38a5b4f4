"""A small space with known latencies: tiles, layouts and boundaries of a made-up reduction, nothing compiled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stridesmith.ir.expr import Buffer
from stridesmith.ir.target import Target
from stridesmith.space.design.decision import BOUNDARIES, PLACES, Decision, decision
from stridesmith.space.design.layouts import Copy, Identity, Tiled
from stridesmith.space.design.operand import Axis, Operand
from stridesmith.space.design.program import Anchor
from stridesmith.space.design.structure import Open, Structure

TARGET = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
SHAPES = ((1, 4), (1, 8), (2, 8), (3, 8), (4, 8))
ROWS, BLOCKS, UNROLL = (1, 2, 3, 4, 6, 8, 12, 14), (1, 2, 4, 8), (1, 2, 4, 8)
LAYOUTS = (Identity(), Copy(), Tiled(1, 1))
EXTENTS = (127, 129, 131)
LANE, ROW, BLOCK, STEP, EDGE0, EDGE1, ORDER, LAYOUT, PLACE = range(9)


@dataclass(frozen=True)
class Sketch:
    """One part; vectors of half the width are impossible with more than four rows."""

    name: str
    parts: tuple[Open, ...]

    @property
    def main(self) -> Open:
        return self.parts[0]

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(d for part in self.parts for d in part.decisions)

    def mask(self, rows):
        return (rows[:, LANE] > 0) | (rows[:, ROW] <= 3)

    def draw_some(self, rng, count, allowed=None):
        values = allowed or [np.arange(len(d)) for d in self.decisions]
        rows = np.stack([v[rng.integers(len(v), size=4 * count)] for v in values], axis=1)
        return rows[self.mask(rows)]

    def draw(self, rng, count, allowed=None):
        return self.draw_some(rng, count, allowed)[:count]


@dataclass(frozen=True)
class Space:
    sketches: tuple[Sketch, ...]
    target: Target = TARGET
    version: int = 1


def sizes(name: str, column: str, values) -> Decision:
    return decision(name, "tile", values, list(map(str, values)), {column: values})


def flags(name: str, kind: str, labels, values=None) -> Decision:
    return decision(name, kind, values or labels, labels, {name.split("/")[-1]: range(len(labels))})


def decisions(prefix: str) -> tuple[Decision, ...]:
    lanes = {"tile:s1:lane": [lane for _, lane in SHAPES], "tile:s1:reg": [v * lane for v, lane in SHAPES]}
    orders = {"order:s0": (0, 1), "order:s1": (1, 0)}
    return (
        decision(f"{prefix}/tile:s1", "tile", SHAPES, [f"{v}x{lane}" for v, lane in SHAPES], lanes),
        sizes(f"{prefix}/tile:s0", "tile:s0:reg", ROWS),
        sizes(f"{prefix}/tile:s0:block", "tile:s0:block", BLOCKS),
        sizes(f"{prefix}/tile:r0", "tile:r0:reg", UNROLL),
        flags(f"{prefix}/boundary:s0", "boundary", BOUNDARIES[:3]),
        flags(f"{prefix}/boundary:s1", "boundary", BOUNDARIES[:3]),
        decision(f"{prefix}/order", "order", ((0, 1), (1, 0)), ("s0>s1", "s1>s0"), orders),
        flags(f"{prefix}/layout:i1", "layout", ("identity", "copy", "tiled:d1"), LAYOUTS),
        flags(f"{prefix}/place:i1", "place", PLACES),
    )


def operand(name: str, shape, dims, source: str = "fixed") -> Operand:
    return Operand(name, Buffer(name, tuple(shape), "float32"), dims, (0,) * len(dims), source)


def part(name: str = "k0", extents=EXTENTS, anchor: str = "C", **changed) -> Open:
    """`C[s0, s1] += A[s0, r0] * B[r0, s1]`, vectors along s1; `changed` replaces fields of its anchor."""
    m, n, k = extents
    axes = (Axis("s0", m, "spatial", "i"), Axis("s1", n, "spatial", "j"), Axis("r0", k, "reduce", "k"))
    operands = (
        operand("o0", (m, n), (((0, 1),), ((1, 1),)), "output"),
        operand("i0", (m, k), (((0, 1),), ((2, 1),))),
        operand("i1", (k, n), (((2, 1),), ((1, 1),))),
    )
    fields = {"axes": axes, "operands": operands} | changed
    stored = fields.get("stored", fields["operands"][0])
    block = Anchor(anchor, anchor, fields["axes"], fields["operands"], "", "+", factors=(1, 2), stored=stored)
    numbers = {
        "tile": {0: ROW, 1: LANE, 2: STEP}, "block": {0: BLOCK}, "boundary": {0: EDGE0, 1: EDGE1}, "order": {0: ORDER},
        "layout": {2: LAYOUT}, "place": {2: PLACE},
    }  # fmt: skip
    return Open(block, Structure(1, 0, False), decisions(f"{name}/{anchor}"), numbers)


def sketch(name: str = "k0") -> Sketch:
    return Sketch(name, (part(name),))


def space(sketches: int = 3) -> Space:
    return Space(tuple(sketch(f"k{number}") for number in range(sketches)))


class Device:
    """Latencies in microseconds from a machine model of its own: random effects of every alternative, and of pairs.

    The effects are drawn by `seed`; a broad optimum in the register tile is added, noise is 2 %.
    """

    def __init__(self, space: Space, seed: int = 0) -> None:
        rng = np.random.default_rng([seed, 7])
        self.noise = np.random.default_rng([seed, 8])
        self.sketch = rng.normal(0, 0.3, len(space.sketches))
        counts = [len(d.labels) for d in space.sketches[0].decisions]
        self.single = [rng.normal(0, 0.25, count) for count in counts]
        pairs = ((LANE, LAYOUT), (ROW, EDGE0), (BLOCK, ORDER), (STEP, LAYOUT), (LAYOUT, PLACE))
        self.pair = {(a, b): rng.normal(0, 0.25, (counts[a], counts[b])) for a, b in pairs}
        self.best_tile = rng.uniform(2.5, 4.0)

    def __call__(self, number: int, choice) -> float:
        log = 6 + self.sketch[number] + sum(s[c] for s, c in zip(self.single, choice, strict=True))
        log += sum(table[choice[a], choice[b]] for (a, b), table in self.pair.items())
        vectors, lanes = SHAPES[choice[LANE]]
        log += 0.5 * abs(np.log2(vectors * ROWS[choice[ROW]]) - self.best_tile) + 0.4 * (lanes < 8)
        return float(2.0 ** (log + self.noise.normal(0, 0.03)))
