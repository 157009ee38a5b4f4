"""Random applications of primitives: names and arguments that fit a program, and some that do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from stridesmith.ir.expr import Buffer
from stridesmith.ir.stmt import Block, For, PrimFunc, Stmt
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.schedule import Schedule
from stridesmith.space.tree import walk_stmts

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
BOGUS = 0.03
PADS = (None, None, "undef", 0, 0, 1, "inf", "-inf")


class Chooser:
    """Picks handles of a program."""

    def __init__(self, func: PrimFunc, rng: random.Random) -> None:
        self.rng = rng
        found: list[Stmt] = list(walk_stmts(func.body))
        self.nests = {s.var.name: s for s in found if isinstance(s, For)}
        self.loops = list(self.nests)
        self.blocks = [s.name for s in found if isinstance(s, Block)]
        self.leaves = [s.name for s in found if isinstance(s, Block) and s.iters] or self.blocks
        self.buffers: list[Buffer] = [*func.buffers, *(b for s in found if isinstance(s, Block) for b in s.allocs)]

    def loop(self) -> str:
        return self.pick(self.loops) if self.loops else "i"

    def block(self) -> str:
        return self.pick(self.leaves if self.rng.random() < 0.8 else self.blocks)

    def pick(self, items: list[str]) -> str:
        return "nothing" if self.rng.random() < BOGUS else self.rng.choice(items)

    def buffer(self) -> Buffer:
        return self.rng.choice(self.buffers)

    def extent(self, loop: str) -> int:
        nest = self.nests.get(loop)
        return int(getattr(nest.extent, "value", 4)) if nest is not None else 4

    def chain(self) -> list[str]:
        """Loops directly inside of each other, outermost first."""
        name = self.loop()
        chain = [name]
        stmt: Any = self.nests.get(name)
        while isinstance(stmt, For) and isinstance(stmt.body, For):
            stmt = stmt.body
            chain.append(stmt.var.name)
        return chain

    def position(self) -> int:
        return self.rng.choice([0, 0, 0, 1])


def index_map(shape: tuple[int, ...], rng: random.Random) -> str:
    """The text of a layout of `shape`: blocks, offsets, permutations; sometimes one that is not injective."""
    names = ["i", "j", "k", "l", "m", "n"][: len(shape)]
    parts: list[str] = []
    inner: list[str] = []
    for name in names:
        factor, offset = rng.choice([2, 3, 4]), rng.choice([0, 0, 0, 1, 2])
        shifted = f"{name} + {offset}" if offset else name
        form = rng.random()
        if form < 0.5:
            parts.append(f"({shifted}) // {factor}")
            inner.append(f"({shifted}) % {factor}")
        elif form < 0.95:
            parts.append(shifted)
        else:
            parts.append(f"({shifted}) // {factor}")
    if rng.random() < 0.3:
        rng.shuffle(parts)
    return f"lambda {', '.join(names)}: [{', '.join(parts + inner)}]"


def _layout(c: Chooser) -> Arguments:
    buffer = c.buffer()
    options: dict[str, Any] = {"pad_value": c.rng.choice(PADS)}
    text = index_map(buffer.shape, c.rng)
    if c.rng.random() < 0.25:
        from stridesmith.ir.affine.index_map import IndexMap

        box = IndexMap.parse(text).map_shape(buffer.shape)
        options["physical_shape"] = [e + c.rng.choice([0, 0, 1, 2]) for e in box]
    return (c.block(), buffer.name, text), options


def _reindex(c: Chooser) -> Arguments:
    buffer = c.buffer()
    options = {"pad_value": c.rng.choice(PADS)} if c.rng.random() < 0.5 else {}
    return (c.block(), c.position(), "global", index_map(buffer.shape, c.rng)), options


def _split(c: Chooser) -> Arguments:
    loop = c.loop()
    factor = c.rng.choice([2, 3, 4, max(1, c.extent(loop) // 2)])
    return (loop, c.rng.choice([[None, factor], [factor, None]])), {}


def _several(c: Chooser) -> Arguments:
    chain = c.chain()
    if len(chain) == 1:
        chain.append(c.loop())
    if c.rng.random() < 0.5:
        chain = chain[:2]
    return tuple(chain), {}


def _shuffled(c: Chooser) -> Arguments:
    chain = list(_several(c)[0])
    c.rng.shuffle(chain)
    return tuple(chain), {}


def _siblings(c: Chooser) -> Arguments:
    """Two loops next to each other, mostly of the same extent."""
    equal = [(a, b) for a, b in zip(c.loops, c.loops[1:], strict=False) if c.extent(a) == c.extent(b)]
    return (c.rng.choice(equal) if equal and c.rng.random() < 0.8 else (c.loop(), c.loop())), {}


def _cache(c: Chooser) -> Arguments:
    return (c.block(), c.position(), c.rng.choice(["global", "local"])), {}


def _one_loop(c: Chooser) -> Arguments:
    return (c.loop(),), {}


def _one_block(c: Chooser) -> Arguments:
    return (c.block(),), {}


def _block_loop(c: Chooser) -> Arguments:
    return (c.block(), c.loop()), {}


def _block_buffer(c: Chooser) -> Arguments:
    return (c.block(), c.buffer().name), {}


MOVES: dict[str, tuple[float, Callable[[Chooser], Arguments]]] = {
    "split": (3, _split),
    "fuse": (1.5, _several),
    "reorder": (1.5, _shuffled),
    "parallel": (1, _one_loop),
    "vectorize": (1, _one_loop),
    "unroll": (0.5, _one_loop),
    "bind": (0.5, lambda c: ((c.loop(), c.rng.choice(["blockIdx.x", "threadIdx.x", "threadIdx.q"])), {})),
    "cache_read": (1, _cache),
    "cache_write": (1, _cache),
    "set_scope": (0.5, _cache),
    "reindex_cache_read": (1, _reindex),
    "reindex_cache_write": (1, _reindex),
    "compute_at": (1, _block_loop),
    "reverse_compute_at": (1, _block_loop),
    "compute_inline": (1, _one_block),
    "reverse_compute_inline": (1, _one_block),
    "decompose_reduction": (1, _block_loop),
    "rfactor": (1, lambda c: ((c.loop(), c.position()), {})),
    "transform_layout": (3, _layout),
    "sequential_buffer_access": (2, _block_buffer),
    "remove_branching_through_overcompute": (4, _one_block),
    "remove_overcompute_through_branching": (2, _one_block),
    "remove_no_op": (1, _one_block),
    "simplify": (1, _one_block),
    "hoist_expression": (1, _one_block),
    "reduce_loop_extents": (1, _one_block),
    "merge_adjacent_loops": (1.5, _siblings),
}


def move(sch: Schedule, rng: random.Random) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """A primitive with arguments for the schedule's program as it is."""
    chooser = Chooser(sch.func, rng)
    names = [name for name in MOVES if name in PRIMITIVES]
    name = rng.choices(names, [MOVES[n][0] for n in names])[0]
    args, options = MOVES[name][1](chooser)
    return name, args, options
