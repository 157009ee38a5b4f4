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

from collections.abc import Collection, Iterator, Mapping
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
from ..ir.node import walk
from ..ir.passes.transform import remove_store_undef
from ..ir.stmt import Block, Iter, PrimFunc, Stmt, Store, fresh, loops, names, read_buffers, seq
from ..space.schedule import Schedule
from ..space.tree import block_stores, consumers, find_block, leaf_blocks, nest_of, producers, remove_stmt, with_stmt
from .borders import borders, numbers_outside_of, outside_of
from .edge_values import is_zero_over_the_edge
from .layouts import TensorLayout

Layouts = Mapping[str, TensorLayout]
"""Layouts by the name of the parameter."""


def laid_out(func: PrimFunc, layouts: Layouts, constants: Collection[str] = ()) -> PrimFunc:
    """The program with its parameters in `layouts`; those among `constants` are packed ahead and may get padding."""
    moved = [b.name for b in func.buffers if b.name in layouts and not layouts[b.name].is_plain]
    chosen = tuple((name, layouts[name]) for name in moved)
    return _laid_out(func, chosen, frozenset(constants)) if chosen else func


@cached(1024)
def _laid_out(func: PrimFunc, chosen: tuple[tuple[str, TensorLayout], ...], constants: frozenset[str]) -> PrimFunc:
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
    for buffer, writer, text in rows.sums():
        schedule = _tried(schedule, "transform_layout", writer, buffer, text, "undef")
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


def _input_laid_out(schedule: Schedule, name: str, layout: TensorLayout) -> Schedule:
    """The schedule with an input in a layout, borders that it holds read from there."""
    given = _buffer(schedule.func, name)
    done = schedule.copy()
    held = list(_borders(done.func, given, layout.pad_value)) if layout.has_halo else []
    readers = {border: [b.name for b in consumers(done.func, _result(done.func, border))] for border in held}
    readers = {border: found for border, found in readers.items() if len(found) == 1}
    for border in readers:
        done = _tried(done, "compute_inline", border)
    testing = [b.name for b in consumers(done.func, given) if layout.has_halo and _has_outside(b, layout.pad_value)]
    _lay_out(done, name, layout)
    for reader in dict.fromkeys((*(reader for (reader,) in readers.values()), *testing)):
        done = _tried(done, "remove_branching_through_overcompute", reader)
    if not any(outside_of(find_block(done.func, reader)) for (reader,) in readers.values()):
        return done
    plain = schedule.copy()
    _lay_out(plain, name, layout)
    return plain


def _lay_out(schedule: Schedule, name: str, layout: TensorLayout) -> None:
    pad: object = layout.pad_value or None
    if layout.pad_value not in ("", "undef", "inf", "-inf"):
        pad = float(layout.pad_value)
    schedule.transform_layout("root", name, layout.index_map, pad, physical_shape=layout.physical_shape)


def _borders(func: PrimFunc, buffer: Buffer, pad_value: str) -> Iterator[str]:
    """Borders of a buffer that have the value of its padding."""
    for block in borders(func):
        if _reads(block, buffer) and _has_outside(block, pad_value):
            yield block.name


def _has_outside(block: Block, pad_value: str) -> bool:
    """Whether all that stands outside of a block's conditions is the value of a padding."""
    numbers = set(numbers_outside_of(block))
    return bool(numbers) and pad_value not in ("", "undef") and numbers == {float(pad_value)}


def _reads(block: Block, buffer: Buffer) -> bool:
    return buffer in read_buffers(block.body)


def _buffer(func: PrimFunc, name: str) -> Buffer:
    return next(b for b in func.buffers if b.name == name)


def _result(func: PrimFunc, block: str) -> Buffer:
    return block_stores(find_block(func, block))[0].buffer


# ---------------------------------------------------------------- iterations


@dataclass(frozen=True)
class _Iteration:
    """How a block is to iterate: spatial iterators in this order, and by iterator the size of blocks."""

    order: tuple[Var, ...]
    blocks: Mapping[Var, int]


class _Iterations:
    """The blocks of a program that iterate as the layouts of results and inputs lie."""

    def __init__(self, func: PrimFunc, layouts: Layouts) -> None:
        self.func, self.layouts = func, layouts
        self.found: dict[str, _Iteration] = {}
        self._sums: list[tuple[str, str, str]] = []
        for block in leaf_blocks(func.body):
            store = block.body if isinstance(block.body, Store) else None
            layout = None if store is None else layouts.get(store.buffer.name)
            if store is not None and layout is not None and _is_plain(store.indices, block):
                self._follow(block, store, layout)

    def _follow(self, block: Block, store: Store, layout: TensorLayout) -> None:
        """A block that writes a result, and the reduction that it reads at its iterators."""
        order = tuple(i for i in (store.indices[d] for d in layout.order) if isinstance(i, Var))
        cut = store.indices[layout.block[0]] if layout.block[0] >= 0 else None
        blocks = {cut: layout.block[1]} if isinstance(cut, Var) else {}
        self.found[block.name] = _Iteration(order, {**blocks, **self._cuts(block)})
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
            moved = tuple(inner[v] for v in order if v in inner)
            rest = [i.var for i in writer.spatial if i.var not in moved]
            cuts = {inner[v]: size for v, size in blocks.items() if v in inner}
            self.found[writer.name] = _Iteration((*rest, *moved), {**cuts, **self._cuts(writer)})  # type: ignore[arg-type, dict-item]
            self._sums.append((load.buffer.name, writer.name, _sum_map(load.indices, order, blocks)))

    def _cuts(self, block: Block) -> dict[Var, int]:
        """Blocks of the reductions, from the inputs that are read by them."""
        reduced = {i.var: i.extent for i in block.reduce}
        found: dict[Var, int] = {}
        for load in (n for n in walk(block.body) if isinstance(n, Load)):
            layout = self.layouts.get(load.buffer.name)
            if layout is None or layout.block[0] < 0:
                continue
            logical = _logical(load, layout)
            if isinstance(logical, Var) and logical in reduced and reduced[logical] > layout.block[1]:
                found[logical] = layout.block[1]
        return found

    def map_of(self, block: str) -> str | None:
        """The index map of a block's iterators, None where they stay."""
        if block not in self.found:
            return None
        plan, target = self.found[block], find_block(self.func, block)
        known = {i.var for i in target.iters}
        spatial = [v for v in plan.order if v in known]
        spatial += [i.var for i in target.spatial if i.var not in spatial]
        body = [*_digits(spatial, plan.blocks), *_digits([i.var for i in target.reduce], plan.blocks)]
        return f"lambda {', '.join(i.var.name for i in target.iters)}: [{', '.join(body)}]"

    def sums(self) -> list[tuple[str, str, str]]:
        """Buffers of sums with their writer and the map to the order of the result that is made of them."""
        return self._sums


def _is_plain(indices: tuple[Expr, ...], block: Block) -> bool:
    """Whether an access is at iterators of the block, each once; a constant stands for a dimension of one point."""
    plain = [i for i in indices if isinstance(i, Var)]
    spatial = {i.var for i in block.spatial}
    return len(set(plain)) == len(plain) and set(plain) <= spatial and len(plain) == len(indices)


def _digits(order: list[Var], blocks: Mapping[Var, int]) -> list[str]:
    """Iterators in their order, those with blocks cut, the inner parts last."""
    outer = [f"{v.name} // {blocks[v]}" if v in blocks else v.name for v in order]
    return [*outer, *(f"{v.name} % {blocks[v]}" for v in order if v in blocks)]


def _sum_map(indices: tuple[Expr, ...], order: tuple[Var, ...], blocks: Mapping[Var, int]) -> str:
    """The map of a sum, read at `indices`, to dimensions in the order of the iterators."""
    named = {index: f"d{k}" for k, index in enumerate(indices)}
    rest = [v for v in indices if v not in order]
    items = [Var(named[v]) for v in (*rest, *order) if v in named]
    sizes = {Var(named[v]): size for v, size in blocks.items() if v in named}
    return f"lambda {', '.join(named.values())}: [{', '.join(_digits(items, sizes))}]"


def _logical(load: Load, layout: TensorLayout) -> Expr | None:
    """The logical index of a blocked dimension, where the load has it as ``v // size`` and ``v % size``."""
    inner = load.indices[-1]
    used = [n for n in walk(inner) if isinstance(n, Var)]
    return used[0] if len(used) == 1 and inner == used[0] % layout.block[1] else None


# ---------------------------------------------------------------- weights


def _with_cut_constants(schedule: Schedule, name: str, layouts: Layouts, constants: Collection[str]) -> Schedule:
    """The schedule with weights whose dimensions are cut where a block's iterators are, zeros behind the last block."""
    plan = _Iterations(schedule.func, layouts).found.get(name)
    for load in dict.fromkeys(n for n in walk(find_block(schedule.func, name).body) if isinstance(n, Load) if plan):
        if plan is None or load.buffer.name not in constants or load.buffer.name in layouts:
            continue
        items = []
        for number, index in enumerate(load.indices):
            size = plan.blocks.get(index, 1) if isinstance(index, Var) else 1
            items += [f"d{number}"] if size == 1 else [f"d{number} // {size}", f"d{number} % {size}"]
        if len(items) > len(load.indices):
            text = f"lambda {', '.join(f'd{k}' for k in range(len(load.indices)))}: [{', '.join(items)}]"
            schedule = _tried(schedule, "transform_layout", "root", load.buffer.name, text, 0)
    return schedule


# ---------------------------------------------------------------- results


def _output_laid_out(schedule: Schedule, name: str, layout: TensorLayout) -> Schedule:
    """The schedule with a result in a layout, computed over the last block's edge where that is proven."""
    schedule = schedule.copy()
    writers = [b.name for b in producers(schedule.func, _buffer(schedule.func, name))]
    before = {b.name for b in leaf_blocks(schedule.func.body)}
    _lay_out(schedule, name, layout)
    for writer in writers:
        schedule = _tried(schedule, "remove_branching_through_overcompute", writer)
    filling = [b for b in leaf_blocks(schedule.func.body) if b.name not in before and not read_buffers(b.body)]
    if len(filling) != 1 or layout.pad_value in ("", "undef"):
        return schedule
    zero = len(writers) == 1 and float(layout.pad_value) == 0
    written = zero and is_zero_over_the_edge(schedule.func, writers[0], layout)
    return Schedule(_filled_by_boxes(schedule.func, filling[0], layout, edge=not written))


def _filled_by_boxes(func: PrimFunc, filling: Block, layout: TensorLayout, edge: bool) -> PrimFunc:
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


def _halo(layout: TensorLayout) -> Iterator[Box]:
    """Disjoint boxes that are together the padding of a layout outside of the box that holds its elements."""
    inside = [(0, e) for e in layout.physical_shape]
    for place, inner in enumerate(_inside(layout)):
        for begin, end in ((0, inner[0]), (inner[1], inside[place][1])):
            if begin < end:
                yield (*inside[:place], (begin, end), *inside[place + 1 :])
        inside[place] = inner


def _inside(layout: TensorLayout) -> list[tuple[int, int]]:
    """The least box that holds the elements of a layout whose blocks begin with the first element."""
    cut, size = layout.block
    whole = layout.physical_shape
    found = [(layout.before[d], layout.before[d] + layout.shape[d]) for d in layout.order]
    if cut >= 0:
        found[layout.order.index(cut)] = (0, whole[layout.order.index(cut)])
        found.append((0, size))
    return found


def _edge(layout: TensorLayout) -> Iterator[Box]:
    """The padding of the last block."""
    cut, size = layout.block
    rest = layout.shape[cut] % size if cut >= 0 else 0
    if rest:
        inside, place = _inside(layout), layout.order.index(cut)
        last = inside[place][1]
        yield (*inside[:place], (last - 1, last), *inside[place + 1 : -1], (rest, size))


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
