"""Random applications of primitives: names and arguments that fit a program, and some that do not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from stridesmith.ir.expr import Buffer, variables
from stridesmith.ir.stmt import Block, For, PrimFunc, Seq, Stmt, stores, walk_stmts, written_buffers
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.schedule import Schedule
from stridesmith.space.tree import consumers, find_block, leaf_blocks, loops_above, producers
from stridesmith.space.wrappers import WRAPPERS

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Move = tuple[str, tuple[Any, ...], dict[str, Any]]
BOGUS = 0.03
PADS = (None, None, "undef", 0, 0, 1, "inf", "-inf")


class Chooser:
    """Picks handles of a program."""

    def __init__(self, func: PrimFunc, rng: random.Random) -> None:
        self.rng, self.func = rng, func
        found: list[Stmt] = list(walk_stmts(func.body))
        self.nests = {s.var.name: s for s in found if isinstance(s, For)}
        self.loops = list(self.nests)
        self.blocks = [s.name for s in found if isinstance(s, Block)]
        self.leaves = [b.name for b in leaf_blocks(func.body) if any(stores(b))] or self.blocks
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


def index_map(rank: int, rng: random.Random) -> str:
    """The text of a layout of so many dimensions: blocks, offsets, permutations; sometimes not injective."""
    names = [f"i{k}" for k in range(rank)]
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
    text = index_map(buffer.rank, c.rng)
    if c.rng.random() < 0.25 and buffer.is_fixed:
        from stridesmith.ir.layout.index_map import IndexMap

        box = IndexMap.parse(text).map_shape(buffer.shape)
        options["physical_shape"] = [e + c.rng.choice([0, 0, 1, 2]) for e in box]
    if c.rng.random() < 0.15:
        options["rewrite_loops"] = True
    return (c.block(), buffer.name, text), options


def _reindex(c: Chooser) -> Arguments:
    buffer = c.buffer()
    options = {"pad_value": c.rng.choice(PADS)} if c.rng.random() < 0.5 else {}
    return (c.block(), c.position(), "global", index_map(buffer.rank, c.rng)), options


def _split(c: Chooser) -> Arguments:
    loop = c.loop()
    factor = c.rng.choice([2, 3, 4, max(1, c.extent(loop) // 2)])
    factors = c.rng.choice([[None, factor], [None, factor], [factor, None], [None, factor, 2], [factor, 1]])
    return (loop, factors), {}


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


def _some_loop(c: Chooser) -> Arguments:
    """A loop, or quite often none that there is: these primitives are hard to refuse."""
    return ("nothing" if c.rng.random() < 0.2 else c.loop(),), {}


def _one_block(c: Chooser) -> Arguments:
    return (c.block(),), {}


def _block_loop(c: Chooser) -> Arguments:
    """A block and mostly one of its own loops."""
    block = c.block()
    return (block, _loop_of(c, block)), {}


def _part_of_reduction(c: Chooser) -> Arguments:
    """Mostly a loop that only a reduction iterator is bound to."""
    found = [find_block(c.func, name) for name in c.leaves]
    bound = [v.name for b in found for i in b.reduce for v in variables(i.binding)]
    return (c.rng.choice(bound) if bound and c.rng.random() < 0.9 else c.loop(), c.rng.choice([0, 0, 1, 7])), {}


def _pair(c: Chooser) -> tuple[str, str]:
    """A block that writes an allocation and one that reads it; any two where there are none."""
    pairs = [
        (a.name, b.name)
        for buffer in c.buffers
        if buffer not in c.func.params
        for a in producers(c.func, buffer)
        for b in consumers(c.func, buffer)
        if a.iters and b.iters
    ]
    return c.rng.choice(pairs) if pairs and c.rng.random() < 0.9 else (c.block(), c.block())


def _writers(c: Chooser) -> Arguments:
    """A block and one before it that stores to the same buffer; any two where there are none."""
    pairs = [(b.name, a.name) for buffer in c.buffers for a, b in pairwise(producers(c.func, buffer))]
    return (c.rng.choice(pairs) if pairs and c.rng.random() < 0.9 else (c.block(), c.block())), {}


def _loop_of(c: Chooser, block: str) -> str:
    around = _around(c, block)
    return c.rng.choice(around) if around else c.loop()


def _around(c: Chooser, block: str) -> list[str]:
    """The loops around a block, or those in it where it has none around."""
    if block not in c.blocks:
        return []
    found = find_block(c.func, block)
    around = [loop.var.name for loop in loops_above(c.func, found)]
    return around or [s.var.name for s in walk_stmts(found) if isinstance(s, For)]


def _producer_at_consumer(c: Chooser) -> Arguments:
    first, second = _pair(c)
    return (first, _loop_of(c, second)), {}


def _consumer_at_producer(c: Chooser) -> Arguments:
    first, second = _pair(c)
    return (second, _loop_of(c, first)), {}


def _block_buffer(c: Chooser) -> Arguments:
    return (c.block(), c.buffer().name), {}


def _mapped(c: Chooser) -> Arguments:
    """A perfect nest and a skewed, tiled, shifted or permuted order for it; sometimes one that is not injective."""
    chain = c.chain()
    chain = chain[: c.rng.randint(1, 3)]
    parts: list[str] = []
    for name in chain:
        form, shift = c.rng.random(), c.rng.choice(["", " + 1", *(f" + {other}" for other in chain if other != name)])
        parts += [f"({name}{shift}) // 3", f"({name}{shift}) % 3"] if form < 0.4 else [f"{name}{shift}"]
    if c.rng.random() < 0.4:
        c.rng.shuffle(parts)
    if c.rng.random() < 0.25 and len(parts) > 1:
        parts.pop()
    return (chain, f"lambda {', '.join(chain)}: [{', '.join(parts)}]"), {}


def _with_statements(c: Chooser) -> Arguments:
    """Mostly a loop with several statements below its nest, and a place between them."""
    found = [name for name, loop in c.nests.items() if isinstance(_innermost(loop), Seq)]
    return (c.rng.choice(found) if found and c.rng.random() < 0.9 else c.loop(), c.rng.choice([1, 1, 2])), {}


def _innermost(stmt: Stmt) -> Stmt:
    """What a perfect nest runs."""
    while isinstance(stmt, For):
        stmt = stmt.body
    return stmt


def _in_other_order(c: Chooser) -> Arguments:
    """Two loops of one sequence, the later one first."""
    pairs = [
        (later.var.name, earlier.var.name)
        for item in walk_stmts(c.func.body)
        if isinstance(item, Seq)
        for k, later in enumerate(item.stmts)
        for earlier in item.stmts[:k]
        if isinstance(later, For) and isinstance(earlier, For)
    ]
    return (c.rng.choice(pairs) if pairs and c.rng.random() < 0.9 else (c.loop(), c.loop())), {}


def _block_map(c: Chooser) -> Arguments:
    """A map for the iterators of a block: tiles, offsets and permutations."""
    block = c.block()
    rank = len(find_block(c.func, block).iters) if block in c.blocks else 0
    return (block, index_map(rank, c.rng) if rank in range(1, 6) else "lambda i: [i]"), {}


def _multiples(c: Chooser) -> Arguments:
    """A multiple for each iterator of a block."""
    block = c.block()
    rank = len(find_block(c.func, block).iters) if block in c.blocks else 1
    return (block, [c.rng.choice([1, 2, 3, 4]) for _ in range(rank)]), {}


def _separators(c: Chooser) -> Arguments:
    buffer = c.buffer()
    cuts = sorted(c.rng.sample(range(buffer.rank + 1), c.rng.randint(0, min(2, buffer.rank))))
    return (c.block(), buffer.name, cuts), {}


MOVES: dict[str, tuple[float, Callable[[Chooser], Arguments]]] = {
    "split": (3, _split),
    "fuse": (2, _several),
    "reorder": (1.5, _shuffled),
    "transform_loops": (2, _mapped),
    "distribute": (2.5, _with_statements),
    "move_before": (1, _in_other_order),
    "make_rectangular": (1, _some_loop),
    "widen_loops": (0.5, lambda c: ((), {})),
    "parallel": (2, _some_loop),
    "vectorize": (2, _some_loop),
    "unroll": (1.5, _some_loop),
    "bind": (1.5, lambda c: ((c.loop(), c.rng.choice(["blockIdx.x", "threadIdx.x", "threadIdx.q"])), {})),
    "cache_read": (1, _cache),
    "cache_write": (1, _cache),
    "set_scope": (1.5, _cache),
    "reindex_cache_read": (1.5, _reindex),
    "reindex_cache_write": (1.5, _reindex),
    "compute_at": (2, _producer_at_consumer),
    "reverse_compute_at": (3, _consumer_at_producer),
    "compute_inline": (2, lambda c: ((_pair(c)[0],), {})),
    "reverse_compute_inline": (3, lambda c: ((_pair(c)[1],), {})),
    "decompose_reduction": (1.5, _block_loop),
    "compose_reduction": (1, _writers),
    "decompose_padding": (0.5, _block_loop),
    "pad_einsum": (0.5, _multiples),
    "add_block": (1, _some_loop),
    "blockize": (1.5, _some_loop),
    "add_unit_loop": (0.5, lambda c: ((c.block() if c.rng.random() < 0.5 else c.loop(),), {})),
    "transform_block_layout": (1.5, _block_map),
    "restrict_reduction": (1, lambda c: (_block_loop(c)[0], {})),
    "set_axis_separator": (0.5, _separators),
    "rfactor": (3, _part_of_reduction),
    "transform_layout": (3, _layout),
    "sequential_buffer_access": (2, _block_buffer),
    "remove_branching_through_overcompute": (4, _one_block),
    "remove_overcompute_through_branching": (2, _one_block),
    "remove_no_op": (3, _one_block),
    "simplify": (1.5, _one_block),
    "hoist_expression": (2, _one_block),
    "reduce_loop_extents": (1, _one_block),
    "merge_adjacent_loops": (2, _siblings),
}


def move(sch: Schedule, rng: random.Random) -> Move:
    """A primitive with arguments for the schedule's program as it is."""
    chooser = Chooser(sch.func, rng)
    names = [name for name in MOVES if name in PRIMITIVES or name in WRAPPERS]
    name = rng.choices(names, [MOVES[n][0] for n in names])[0]
    args, options = MOVES[name][1](chooser)
    return name, args, options


def ragged_edge(sch: Schedule, rng: random.Random) -> Iterator[Move]:
    """Steps that often end with a branch removed: room and pad values for a rounded tile, then the tile."""
    chooser = Chooser(sch.func, rng)
    block = rng.choice(chooser.leaves)
    if rng.random() < 0.6:
        yield "cache_write", (block, 0, "global"), {}
    loops = _around(Chooser(sch.func, rng), block)
    loop = rng.choice(loops) if loops else chooser.loop()
    extent = chooser.extent(loop)
    factor = rng.choice([f for f in (2, 3, 4, 5) if extent % f] or [2])
    written = {b.name for b in written_buffers(sch.func)}
    for buffer in Chooser(sch.func, rng).buffers:
        if rng.random() < 0.1:
            continue
        names = ", ".join(f"i{d}" for d in range(buffer.rank))
        pad = rng.choice(["undef", "undef", None] if buffer.name in written else [0, 0, 0, 0, 1, "undef", "inf"])
        shape = buffer.shape if buffer.is_fixed else ()
        room = {"physical_shape": [-(-e // factor) * factor + rng.choice([0, 1, factor]) for e in shape]}
        yield "transform_layout", (block, buffer.name, f"lambda {names}: [{names}]", pad), room if shape else {}
    for name in [loop, *(other for other in loops if other != loop and rng.random() < 0.3)]:
        yield "split", (name, [None, factor]), {}
    if rng.random() < 0.3:
        yield "decompose_reduction", (block, Chooser(sch.func, rng).loop()), {}
    yield "remove_branching_through_overcompute", (block,), {}
    if rng.random() < 0.5:
        yield "remove_overcompute_through_branching", (block,), {}


def followed_layout(sch: Schedule, rng: random.Random) -> Iterator[Move]:
    """A layout with padding, loops in its order, and the branch removed: the way of RFC 0077."""
    chooser = Chooser(sch.func, rng)
    buffer, block = chooser.buffer(), rng.choice(chooser.leaves)
    pad = rng.choice([0, 0, "undef", None])
    yield "transform_layout", (block, buffer.name, index_map(buffer.rank, rng)), {"pad_value": pad}
    yield "sequential_buffer_access", (block, buffer.name), {}
    yield "remove_branching_through_overcompute", (block,), {}


def moved_stage(sch: Schedule, rng: random.Random) -> Iterator[Move]:
    """A stage of the fresh program brought to its neighbour, whose loops are perhaps split before."""
    first, second = _pair(Chooser(sch.func, rng))
    upwards = rng.random() < 0.5
    for loop in _around(Chooser(sch.func, rng), first if upwards else second):
        if rng.random() < 0.5:
            yield "split", (loop, [None, rng.choice([2, 3])]), {}
    chooser = Chooser(sch.func, rng)
    if rng.random() < 0.5:
        yield ("reverse_compute_inline", (second,), {}) if upwards else ("compute_inline", (first,), {})
    elif upwards:
        yield "reverse_compute_at", (second, _loop_of(chooser, first)), {}
    else:
        yield "compute_at", (first, _loop_of(chooser, second)), {}


PLANS = (*[ragged_edge] * 4, followed_layout, *[moved_stage] * 3)
