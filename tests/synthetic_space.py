"""A small space with known latencies: tiles, layouts and boundaries of a made-up reduction, nothing compiled."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stridesmith.ir.target import Target

TARGET = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
LANES, ROWS, COLS, INNER = (4, 8, 16, 32), (1, 2, 3, 4, 6, 8, 12, 14), (8, 16, 24, 32), (16, 32, 64, 100)


@dataclass(frozen=True)
class Decision:
    name: str
    kind: str
    labels: tuple[str, ...]
    table: dict


@dataclass(frozen=True)
class Axis:
    name: str
    extent: int
    kind: str


@dataclass(frozen=True)
class Operand:
    name: str
    dtype: str
    shape: tuple[int, ...]
    dims: tuple
    is_output: bool = False


@dataclass(frozen=True)
class Sketch:
    name: str
    decisions: tuple[Decision, ...]
    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...]

    def mask(self, rows):
        """Vectors wider than the column tile are impossible."""
        lane, cols = np.asarray(LANES)[rows[:, 0]], np.asarray(COLS)[rows[:, 2]]
        return lane <= cols


@dataclass(frozen=True)
class Space:
    sketches: tuple[Sketch, ...]
    target: Target = TARGET
    version: int = 1
    truth: np.ndarray = field(default_factory=lambda: np.zeros(0))


def sizes(name: str, column: str, values) -> Decision:
    return Decision(name, "tile", tuple(map(str, values)), {column: tuple(map(float, values))})


def flags(name: str, kind: str, column: str, labels) -> Decision:
    return Decision(name, kind, tuple(labels), {column: tuple(map(float, range(len(labels))))})


def sketch(name: str, extents=(127, 129, 131)) -> Sketch:
    decisions = (
        sizes("C/lane", "tile:s1:lane", LANES),
        sizes("C/rows", "tile:s0:reg", ROWS),
        sizes("C/cols", "tile:s1:reg", COLS),
        sizes("C/depth", "tile:r0:inner", INNER),
        flags("C/layout:B", "layout", "layout:B", ("identity", "packed")),
        flags("C/boundary:s0", "boundary", "boundary:s0", ("branch", "peel", "overcompute")),
        flags("C/boundary:s1", "boundary", "boundary:s1", ("branch", "peel", "overcompute")),
        sizes("C/unroll", "unroll", (1, 2, 4, 8)),
        flags("C/place:A", "place", "place:A", ("inline", "root", "inner")),
    )
    m, n, k = extents
    axes = (Axis("s0", m, "spatial"), Axis("s1", n, "spatial"), Axis("r0", k, "reduce"))
    operands = (
        Operand("A", "float32", (m, k), (((0, 1),), ((2, 1),))),
        Operand("B", "float32", (k, n), (((2, 1),), ((1, 1),))),
        Operand("C", "float32", (m, n), (((0, 1),), ((1, 1),)), True),
    )
    return Sketch(name, decisions, axes, operands)


def space(sketches: int = 3) -> Space:
    return Space(tuple(sketch(f"k{number}") for number in range(sketches)))


class Device:
    """Latencies in microseconds from a machine model of its own: random effects of every alternative, pairs too.

    The effects are drawn by `seed`; a broad optimum in the register tile is added, noise is 2 %.
    """

    def __init__(self, space: Space, seed: int = 0) -> None:
        rng = np.random.default_rng([seed, 7])
        self.space, self.noise = space, np.random.default_rng([seed, 8])
        self.sketch = rng.normal(0, 0.3, len(space.sketches))
        self.single = [rng.normal(0, 0.25, len(d.labels)) for d in space.sketches[0].decisions]
        self.pair = {}
        for a, b in ((0, 4), (1, 5), (2, 6), (3, 7), (4, 8)):
            shape = [len(space.sketches[0].decisions[d].labels) for d in (a, b)]
            self.pair[a, b] = rng.normal(0, 0.25, shape)
        self.best_tile = rng.uniform(2.5, 4.0)

    def __call__(self, number: int, choice) -> float:
        log = 6 + self.sketch[number] + sum(s[c] for s, c in zip(self.single, choice, strict=True))
        log += sum(table[choice[a], choice[b]] for (a, b), table in self.pair.items())
        vectors = ROWS[choice[1]] * COLS[choice[2]] / min(LANES[choice[0]], 8)
        log += 0.5 * abs(np.log2(vectors) - self.best_tile) + 0.4 * (LANES[choice[0]] < 8)
        return float(2.0 ** (log + self.noise.normal(0, 0.03)))
