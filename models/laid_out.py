"""A program whose parameters lie in chosen layouts: what is tuned for a combination of interface layouts.

The program that comes out has an interface of `fixed` arguments: it reads and writes memory as its neighbours have
it, and the layouts are part of its text, so that its records are told apart from those of other combinations and
replay from the text.  All steps are primitives, each of which proves itself or leaves the program as it is:

1. a border that a program tests for, in a stage or where it reads, is inlined where the input has a halo that holds
   the border's value, and the test goes (`remove_branching_through_overcompute`);
2. the blocks that compute a result iterate in the order of its layout, blocks of the layout as loops of their own
   (`transform_block_layout`), and so lies the sum that they add up (`transform_layout`);
3. where blocks do not divide an extent, weights get zeros for the rest, and the blocks compute over the edge;
4. what is left of the padding to be filled is filled by boxes, and not where the program provably writes the pad value
   anyway: a sum of products with weights that are 0 is 0, and so is a relu of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..errors import ProgramError
from ..ir.caches import cached
from ..ir.expr import (
    Buffer,
    Const,
    Expr,
    Load,
    Var,
    const,
)
from ..ir.layout.index_map import IndexMap
from ..ir.layout.layout import Dim, Layout
from ..ir.node import walk
from ..ir.passes.transform import remove_store_undef
from ..ir.stmt import Block, Iter, PrimFunc, Stmt, Store, fresh, loops, names, read_buffers, seq
from ..space.schedule import Schedule
from ..space.tree import block_stores, consumers, find_block, leaf_blocks, nest_of, producers, remove_stmt, with_stmt
from .borders import borders, numbers_outside_of, outside_of
from .edge_values import is_zero_over_the_edge

Layouts = Mapping[str, Layout]
"""Layouts by the name of the parameter."""


def laid_out(func: PrimFunc, layouts: Layouts, constants: Collection[str] = ()) -> PrimFunc:
    """The program with its parameters in `layouts`; those among `constants` are packed ahead and may get padding."""
    moved = [b.name for b in func.buffers if b.name in layouts and not layouts[b.name].is_plain]
    chosen = tuple((name, layouts[name]) for name in moved)
    return _laid_out(func, chosen, frozenset(constants)) if chosen else func


@cached(1024)
def _laid_out(func: PrimFunc, chosen: tuple[tuple[str, Layout], ...], constants: frozenset[str]) -> PrimFunc:
    layouts = dict(chosen)
    schedule = Schedule(func)
    written = [b.name for b in schedule.func.buffers if producers(schedule.func, b)]
    for name, layout in layouts.items():
        if name not in written:
            schedule = _input_laid_out(schedule, name, layout)
    for block in [b.name for b in leaf_blocks(schedule.func.body)]:
        schedule = _with_cut_constants(schedule, block, layouts, constants)
    rows = _Iterations(schedule.func, layouts)
    for block in [b.name for b in leaf_blocks(schedule.func.body)]:
        schedule = _tried(schedule, "transform_block_layout", block, rows.map_of(block))
    for buffer, writer, index_map in rows.sums():
        schedule = _tried(schedule, "transform_layout", writer, buffer, index_map, "undef")
        schedule = _tried(schedule, "remove_branching_through_overcompute", writer)
    schedule = Schedule(remove_store_undef(schedule.func))
    for name in written:
        if name in layouts:
            schedule = _output_laid_out(schedule, name, layouts[name])
    return remove_store_undef(schedule.func)


def _tried(schedule: Schedule, primitive: str, *arguments: object, **named: object) -> Schedule:
    """The schedule after a primitive, or as it is where the primitive refuses or is asked for nothing."""
    if None in arguments:
        return schedule
    after = schedule.copy()
    try:
        getattr(after, primitive)(*arguments, **named)
    except ProgramError:
        return schedule
    return after


# ---------------------------------------------------------------- inputs


def _input_laid_out(schedule: Schedule, name: str, layout: Layout) -> Schedule:
    """The schedule with an input in a layout, borders that it holds read from there."""
    given = _buffer(schedule.func, name)
    done = schedule.copy()
    held = list(_borders(done.func, given, layout)) if layout.has_halo else []
    readers = {border: [b.name for b in consumers(done.func, _result(done.func, border))] for border in held}
    readers = {border: found for border, found in readers.items() if len(found) == 1}
    for border in readers:
        done = _tried(done, "compute_inline", border)
    testing = [b.name for b in consumers(done.func, given) if layout.has_halo and _has_outside(b, layout)]
    done.transform_layout("root", name, layout)
    for reader in dict.fromkeys((*(reader for (reader,) in readers.values()), *testing)):
        done = _tried(done, "remove_branching_through_overcompute", reader)
    if not any(outside_of(find_block(done.func, reader)) for (reader,) in readers.values()):
        return done
    plain = schedule.copy()
    plain.transform_layout("root", name, layout)
    return plain


def _borders(func: PrimFunc, buffer: Buffer, layout: Layout) -> Iterator[str]:
    """Borders of a buffer that have the value of its padding."""
    for block in borders(func):
        if _reads(block, buffer) and _has_outside(block, layout):
            yield block.name


def _has_outside(block: Block, layout: Layout) -> bool:
    """Whether all that stands outside of a block's conditions is the number that padding holds."""
    return set(numbers_outside_of(block)) == {layout.pad_number}


def _reads(block: Block, buffer: Buffer) -> bool:
    return buffer in read_buffers(block.body)


def _buffer(func: PrimFunc, name: str) -> Buffer:
    return next(b for b in func.buffers if b.name == name)


def _result(func: PrimFunc, block: str) -> Buffer:
    return block_stores(find_block(func, block))[0].buffer


# ---------------------------------------------------------------- iterations


Parts = tuple[tuple[Var, Dim], ...]
"""Iterators of a block, outermost first, each whole or a part of it as in a layout; `Dim.dim` is not read."""
WHOLE = Dim(0)


@dataclass(frozen=True)
class _Iteration:
    """How a block is to iterate: its spatial iterators, and by iterator of a reduction the size of blocks."""

    spatial: Parts
    cuts: Mapping[Var, int]


class _Iterations:
    """The blocks of a program that iterate as the layouts of results and inputs lie."""

    def __init__(self, func: PrimFunc, layouts: Layouts) -> None:
        self.func, self.layouts = func, layouts
        self.found: dict[str, _Iteration] = {}
        self._sums: list[tuple[str, str, IndexMap]] = []
        for block in leaf_blocks(func.body):
            store = block.body if isinstance(block.body, Store) else None
            layout = None if store is None else layouts.get(store.buffer.name)
            if store is not None and layout is not None and _is_plain(store.indices, block):
                self._follow(block, store, layout)

    def _follow(self, block: Block, store: Store, layout: Layout) -> None:
        """A block that writes a result, and the reduction that it reads at its iterators."""
        placed = [(store.indices[d.dim], d) for d in layout.dims]
        parts = tuple((index, d) for index, d in placed if isinstance(index, Var))
        self.found[block.name] = _Iteration(parts, self._cuts(block))
        if block.reduce:
            return
        for load in dict.fromkeys(n for n in walk(block.body) if isinstance(n, Load)):
            writers = producers(self.func, load.buffer)
            if load.buffer in self.func.params or len(writers) != 1 or not writers[0].reduce:
                continue
            (writer,) = writers
            (stored,) = block_stores(writer)
            if not _is_plain(load.indices, block) or not _is_plain(stored.indices, writer):
                continue
            inner = dict(zip(load.indices, stored.indices, strict=True))
            moved = tuple((inner[v], d) for v, d in parts if v in inner)
            known = {v for v, _ in moved}
            rest = [(i.var, WHOLE) for i in writer.spatial if i.var not in known]
            self.found[writer.name] = _Iteration((*rest, *moved), self._cuts(writer))  # type: ignore[arg-type]
            self._sums.append((load.buffer.name, writer.name, _sum_map(load.indices, parts)))

    def _cuts(self, block: Block) -> dict[Var, int]:
        """Blocks of the reductions, from the inputs that are read by them."""
        reduced = {i.var: i.extent for i in block.reduce}
        found: dict[Var, int] = {}
        for load in (n for n in walk(block.body) if isinstance(n, Load)):
            layout = self.layouts.get(load.buffer.name)
            if layout is None:
                continue
            for dim, size in layout.blocks.items():
                logical = _logical(load, layout, dim, size)
                if logical is not None and reduced.get(logical, 0) > size:
                    found[logical] = size
        return found

    def map_of(self, block: str) -> IndexMap | None:
        """The index map of a block's iterators, None where they stay."""
        if block not in self.found:
            return None
        plan, target = self.found[block], find_block(self.func, block)
        known = {i.var for i in target.iters}
        parts = [(v, d) for v, d in plan.spatial if v in known]
        rest = [(i.var, WHOLE) for i in target.spatial if i.var not in {v for v, _ in parts}]
        last = len(parts)  # what a layout says nothing of is outside of the parts in blocks
        while last and parts[last - 1][1].part == "inner":
            last -= 1
        parts[last:last] = rest
        reduced = [i.var for i in target.reduce]
        parts += [(v, Dim(0, "block", plan.cuts[v]) if v in plan.cuts else WHOLE) for v in reduced]
        parts += [(v, Dim(0, "inner", plan.cuts[v])) for v in reduced if v in plan.cuts]
        return _map([i.var.name for i in target.iters], [(v.name, d) for v, d in parts])

    def size_of(self, block: str, iterator: Expr) -> int:
        """The points of the blocks in which a block's iterator is cut; 1 for one that stays whole."""
        plan = self.found[block]
        sizes = {v: int(d.step) for v, d in plan.spatial if d.part == "inner"} | dict(plan.cuts)
        return sizes.get(iterator, 1) if isinstance(iterator, Var) else 1

    def sums(self) -> list[tuple[str, str, IndexMap]]:
        """Buffers of sums with their writer and the map to the order of the result that is made of them."""
        return self._sums


def _is_plain(indices: tuple[Expr, ...], block: Block) -> bool:
    """Whether an access is at iterators of the block, each once; a constant stands for a dimension of one point."""
    plain = [i for i in indices if isinstance(i, Var)]
    spatial = {i.var for i in block.spatial}
    return len(set(plain)) == len(plain) and set(plain) <= spatial and len(plain) == len(indices)


def _map(names: Sequence[str], parts: Sequence[tuple[str, Dim]]) -> IndexMap:
    """The map of indices with these names to parts of them."""
    indices = {name: Var(name) for name in names}
    return IndexMap(tuple(indices.values()), tuple(d.index(indices[name]) for name, d in parts))


def _sum_map(indices: tuple[Expr, ...], parts: Parts) -> IndexMap:
    """The map of a sum, read at `indices`, to dimensions in the order of the iterators."""
    named = {index: f"d{k}" for k, index in enumerate(indices)}
    known = {v for v, _ in parts}
    rest = [(named[v], WHOLE) for v in indices if v not in known]
    return _map(list(named.values()), [*rest, *((named[v], d) for v, d in parts if v in named)])


def _logical(load: Load, layout: Layout, dim: int, size: int) -> Var | None:
    """The logical index of a dimension in blocks, where the load has it as ``v // size`` and ``v % size``."""
    if load.buffer.shape != layout.physical_shape:  # a result, which is laid out at the end
        return None
    inner = load.indices[layout.dims.index(Dim(dim, "inner", size))]
    used = [n for n in walk(inner) if isinstance(n, Var)]
    return used[0] if len(used) == 1 and inner == used[0] % size else None


# ---------------------------------------------------------------- weights


def _with_cut_constants(schedule: Schedule, name: str, layouts: Layouts, constants: Collection[str]) -> Schedule:
    """The schedule with weights whose dimensions are cut where a block's iterators are, zeros behind the last block."""
    plan = _Iterations(schedule.func, layouts)
    loads = (n for n in walk(find_block(schedule.func, name).body) if isinstance(n, Load))
    for load in dict.fromkeys(loads if name in plan.found else ()):
        if load.buffer.name not in constants or load.buffer.name in layouts:
            continue
        names, parts = [f"d{k}" for k in range(len(load.indices))], list[tuple[str, Dim]]()
        for number, index in enumerate(load.indices):
            size = plan.size_of(name, index)
            cut = [Dim(number)] if size == 1 else [Dim(number, "block", size), Dim(number, "inner", size)]
            parts += [(names[number], d) for d in cut]
        if len(parts) > len(names):
            schedule = _tried(schedule, "transform_layout", "root", load.buffer.name, _map(names, parts), 0)
    return schedule


# ---------------------------------------------------------------- results


def _output_laid_out(schedule: Schedule, name: str, layout: Layout) -> Schedule:
    """The schedule with a result in a layout, computed over the last block's edge where that is proven."""
    schedule = schedule.copy()
    writers = [b.name for b in producers(schedule.func, _buffer(schedule.func, name))]
    before = {b.name for b in leaf_blocks(schedule.func.body)}
    schedule.transform_layout("root", name, layout)
    for writer in writers:
        schedule = _tried(schedule, "remove_branching_through_overcompute", writer)
    filling = [b for b in leaf_blocks(schedule.func.body) if b.name not in before and not read_buffers(b.body)]
    if len(filling) != 1 or not layout.promises:
        return schedule
    zero = len(writers) == 1 and layout.pad_number == 0
    written = zero and is_zero_over_the_edge(schedule.func, writers[0], layout)
    return Schedule(_filled_by_boxes(schedule.func, filling[0], layout, edge=not written))


def _filled_by_boxes(func: PrimFunc, filling: Block, layout: Layout, edge: bool) -> PrimFunc:
    """The program in which a nest for each box of the padding fills it; of the last block's edge, where `edge` says."""
    (store,) = block_stores(filling)
    assert isinstance(store.value, Const)
    taken = names(func)
    boxes = [*_halo(layout), *(_edge(layout) if edge else ())]
    nests = [_box(store.buffer, box, store.value, taken) for box in boxes]
    if not nests:
        return remove_stmt(func, nest_of(func, filling))
    return with_stmt(func, nest_of(func, filling), seq(nests))


Box = tuple[tuple[int, int], ...]
"""Begin and end in each dimension."""


def _halo(layout: Layout) -> Iterator[Box]:
    """Disjoint boxes that are together the padding of a layout outside of the box that holds its elements."""
    inside = [(0, e) for e in layout.physical_shape]
    for place, inner in enumerate(_inside(layout)):
        for begin, end in ((0, inner[0]), (inner[1], inside[place][1])):
            if begin < end:
                yield (*inside[:place], (begin, end), *inside[place + 1 :])
        inside[place] = inner


def _inside(layout: Layout) -> list[tuple[int, int]]:
    """The least box that holds the elements of a layout whose blocks begin with the first element."""
    found = []
    for d, extent in zip(layout.dims, layout.physical_shape, strict=True):
        first = layout.before[d.dim] if d.part == "whole" else 0
        found.append((first, first + layout.logical_shape[d.dim] if d.part == "whole" else extent))
    return found


def _edge(layout: Layout) -> Iterator[Box]:
    """The padding of the last block of each dimension; boxes of several dimensions meet in their corner."""
    for dim, size in layout.blocks.items():
        rest = layout.logical_shape[dim] % size
        if rest:
            box = _inside(layout)
            outer, inner = (layout.dims.index(Dim(dim, part, size)) for part in ("block", "inner"))
            box[outer], box[inner] = (box[outer][1] - 1, box[outer][1]), (rest, size)
            yield tuple(box)


def _box(buffer: Buffer, box: Box, value: Const, taken: set[str]) -> Stmt:
    """A nest that fills a box of a buffer with a number."""
    variables, iters, indices = [], [], []
    for number, (begin, end) in enumerate(box):
        var, iterator = (Var(fresh(f"{prefix}{number}", taken)) for prefix in ("e", "ve"))
        taken |= {var.name, iterator.name}
        variables.append((var, end - begin))
        iters.append(Iter(iterator, end - begin, "spatial", var))
        indices.append(iterator + begin if begin else iterator)
    name = fresh(f"{buffer.name}_edge", taken)
    taken.add(name)
    block = Block(name, tuple(iters), Store(buffer, tuple(indices), const(value.value, buffer.dtype)))
    return loops(variables, block)
