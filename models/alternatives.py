"""Which layouts of a tensor are worth a thought: what its producer and its consumers would like, kept few.

What an operator would like of a tensor is read from the accesses of its program, in the terms of the design space:
the layouts that it offers for a `free` buffer (`space.design.layouts`), those of a result whose vectors run along one
of its dimensions or whose groups, as the heads of an attention, come first, and the borders that the program tests for,
as halos.  The layouts of all users of a tensor are
joined, and those stay that matter for the most work.  Where the combinations of one operator would be too many, its
smallest tensors have fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

from ..errors import ProgramError
from ..ir import dtypes
from ..ir.arith.simplify import simplify
from ..ir.caches import cached
from ..ir.expr import Const, Load
from ..ir.layout.layout import Layout
from ..ir.node import walk
from ..ir.stmt import PrimFunc, Store
from ..ir.target import Target
from ..space.design import layouts as families
from ..space.design.operand import Operand
from ..space.design.program import Anchor, anchors
from ..space.design.structure import Structure, structures
from ..space.schedule import Schedule
from ..space.tree import block_stores, find_block, leaf_blocks
from .borders import borders, numbers_outside_of
from .edges import host_tensors
from .kinds import tensors_of
from .network import Network, Operator

MOST = 6
"""Alternatives of one tensor."""
MOST_COMBINATIONS = 1 << 14
"""Combinations of the alternatives of all tensors of one operator; each has a cost in a table."""


@dataclass(frozen=True)
class Border:
    """A halo that a reader tests for: points in front of and behind each dimension, and the value that stands there."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class Wanted:
    """What an operator would like of one of its tensors: layouts without halo, and halos.

    `plain` are the dimensions that it goes along by an iterator alone, so that vectors may run along them, `weight` the
    points of its work, and `summed` the dimensions that it adds up along, where zeros behind the last block do no harm.
    `grouped` are layouts in which what a group reads, a head of an attention, lies together.
    """

    layouts: frozenset[Layout] = frozenset()
    grouped: frozenset[Layout] = frozenset()
    plain: frozenset[int] = frozenset()
    weight: float = 0.0
    borders: tuple[Border, ...] = ()
    summed: frozenset[int] = frozenset()


def alternatives(
    network: Network,
    target: Target,
    most: int = MOST,
    stay: Collection[str] = (),
    free: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> dict[str, tuple[Layout, ...]]:
    """The layouts of each tensor, at most so many, the first as ONNX has it.

    What leaves the network, constants, and what a foreign operator or no program touches lie so and not otherwise, and
    so do tensors that `stay`; what comes into the network can be copied.  Of the dimensions of a tensor that are `free`
    sizes none comes last anew: its last vector would be cut.
    """
    fixed = {*network.outputs, *network.constants, *host_tensors(network), *stay}
    fixed |= {name for node in network.called for name in (*node.inputs, *node.outputs)}
    users: dict[str, list[Wanted]] = {name: [] for name in network.tensors}
    for node in network.nodes:
        if isinstance(node, Operator):
            wanted = wanted_by(node.func, target)
            for tensor, buffer in zip((*node.inputs, *node.outputs), node.func.buffers, strict=True):
                users[tensor].append(wanted[buffer.name])
    found: dict[str, tuple[Layout, ...]] = {}
    for name, held in network.tensors.items():
        if name in fixed:
            found[name] = (Layout.plain(held.shape),)
            continue
        lanes = min(map(target.vector_lanes, (held.dtype, "float32")))
        found[name] = _chosen(held.shape, users[name], lanes, most, free.get(name, ()))
    return _thinned(network, _with_slots(network, found, fixed))


def _with_slots(
    network: Network, found: dict[str, tuple[Layout, ...]], fixed: Collection[str]
) -> dict[str, tuple[Layout, ...]]:
    """The alternatives with slots: layouts in which parts of a concatenation are computed where the whole has them.

    A part has the order of the whole, and room for what lies between two of its rows there, which is nothing that it
    may touch: how far behind the beginning of the whole it begins is no part of the layout, so that kernels for equal
    parts are one.  Parts of a whole that is part of another one have the room of that.  As ONNX has it the parts lie
    there anyway, or far apart, so that other orders alone have slots.
    """
    found = dict(found)
    for node in reversed(network.nodes):
        if not isinstance(node, Operator) or len(node.outputs) != 1 or node.outputs[0] in fixed:
            continue
        (whole,), shape = node.outputs, network.tensors[node.outputs[0]].shape
        outer = {k.dims: k.room for k in found[whole] if is_slot(k)}
        orders = [k for k in found[whole][1:] if not k.blocks and not k.has_halo]
        for source in _parts_of(node.func):
            name = node.inputs[source]
            if name in fixed or any(map(is_slot, found[name])):
                continue
            dims = {k.dims for k in found[name]}
            part = network.tensors[name].shape
            slots = [Layout.of_dims(part, k.dims, reach=outer.get(k.dims, shape)) for k in orders if k.dims in dims]
            found[name] += tuple(slots)
    return found


def is_slot(layout: Layout) -> bool:
    """Whether a layout has room that is nobody's, as in the rows of a whole whose part the tensor is."""
    return layout.has_halo and layout.pad_value is None


def _parts_of(func: PrimFunc) -> frozenset[int]:
    """The inputs of a concatenation by number; none of another program."""
    *sources, result = func.buffers
    found: set[int] = set()
    for block in leaf_blocks(func.body):
        body = block.body
        if not isinstance(body, Store) or not isinstance(body.value, Load) or body.buffer != result:
            return frozenset()
        load = body.value
        if load.buffer not in sources or len(load.indices) != len(result.shape):
            return frozenset()
        apart = [simplify(at - read) for at, read in zip(body.indices, load.indices, strict=True)]
        if not all(isinstance(k, Const) for k in apart) or sources.index(load.buffer) in found:
            return frozenset()
        found.add(sources.index(load.buffer))
    return frozenset(found if len(found) == len(sources) > 1 else ())


def whole_rows(some: tuple[Layout, ...]) -> tuple[Layout, ...]:
    """Of the alternatives of a tensor the order of ONNX and the next one, without blocks and halos, and its slots."""
    unblocked = [layout for layout in some[1:] if not layout.blocks]
    next_one = [layout for layout in unblocked if not layout.has_halo][:1]
    return (some[0], *next_one, *filter(is_slot, unblocked))


def _thinned(network: Network, found: dict[str, tuple[Layout, ...]]) -> dict[str, tuple[Layout, ...]]:
    """Fewer alternatives for the smallest tensors of operators that would have more than MOST_COMBINATIONS.

    Those that are thought of last go first; the layout of ONNX stays.
    """
    found = dict(found)
    for node in network.nodes:
        names = [name for side in tensors_of(network, node) for name in side if len(found[name]) > 1]
        for name in sorted(names, key=lambda name: network.tensors[name].nbytes):
            others = prod(len(found[other]) for other in names if other != name)
            found[name] = found[name][: max(1, MOST_COMBINATIONS // others)]
    return found


def _chosen(
    shape: tuple[int, ...], users: Sequence[Wanted], lanes: int, most: int, free: Collection[int]
) -> tuple[Layout, ...]:
    """The layouts that matter most, each with and without the borders that fit."""
    plain = Layout.plain(shape)

    def vote(layout: Layout) -> tuple[bool, float, int, int]:
        """What fills vectors first; then what most work goes along; then dimensions further outside."""
        dim = layout.innermost
        weight = sum(user.weight for user in users if dim in user.plain)
        return shape[dim] <= lanes // 2, -weight, dim, layout.blocks.get(dim, 1)

    last = len(shape) - 1
    offered = {layout for user in users for layout in user.layouts if layout.innermost not in (last, *free)}
    orders = [plain]
    for layout in sorted(offered - {plain}, key=vote):
        # Of one dimension, last and in the smallest blocks: it is the dimension that matters most.
        same = all(layout.innermost == other.innermost for other in orders[1:])
        if same and all(bool(layout.blocks) != bool(other.blocks) for other in orders[1:]):
            orders.append(layout)
    summed = frozenset(dim for user in users for dim in user.summed)
    bare = [replace(k, pad_value="undef" if k.blocks.keys() - summed else 0.0) if k.pads else k for k in orders]
    found = list(bare)
    for border in _joined([border for user in users for border in user.borders]):
        for order in orders:
            if not any(border.before[cut] or border.after[cut] for cut in order.blocks):
                reach = [e + b + a for e, b, a in zip(shape, border.before, border.after, strict=True)]
                found.append(Layout.of_dims(shape, order.dims, border.before, reach, border.value))
    grouped = {layout for user in users for layout in user.grouped} - set(found)
    found += sorted(grouped, key=lambda k: (-sum(user.weight for user in users if k in user.grouped), k.order))
    return tuple(found[:most])


def _joined(borders: Sequence[Border]) -> list[Border]:
    """One border for each value, wide enough for all of them; the value that most readers test for first."""
    values = Counter(border.value for border in borders)
    found = []
    for value, _ in values.most_common():
        same = [border for border in borders if border.value == value]
        before = tuple(max(sizes) for sizes in zip(*(b.before for b in same), strict=True))
        after = tuple(max(sizes) for sizes in zip(*(b.after for b in same), strict=True))
        found.append(Border(before, after, value))
    return found


@cached(1024)
def wanted_by(func: PrimFunc, target: Target) -> Mapping[str, Wanted]:
    """What a program would like of each of its parameters, by name."""
    schedule = Schedule(func)
    for block in borders(func):
        try:
            schedule.compute_inline(block.name)
        except ProgramError:
            continue
    free = {buffer.name: "free" for buffer in func.buffers}
    found = {name: Wanted() for name in free}
    for anchor in anchors(schedule.func, free):
        for operand in anchor.operands:
            for name, dims in _parameters(schedule.func, anchor, operand):
                found[name] = _both(found[name], _of_operand(schedule.func, anchor, operand, dims, target))
    return found


def _both(a: Wanted, b: Wanted) -> Wanted:
    """What two blocks of a program would like of one tensor."""
    weight = max(a.weight, b.weight)
    plain = a.plain & b.plain if a.weight else b.plain
    layouts, grouped = a.layouts | b.layouts, a.grouped | b.grouped
    return Wanted(layouts, grouped, plain, weight, a.borders + b.borders, a.summed | b.summed)


def _of_operand(func: PrimFunc, anchor: Anchor, operand: Operand, dims: tuple[int, ...], target: Target) -> Wanted:
    """What an anchor would like of an operand, whose dimensions are `dims` of a parameter."""
    plain = {operand.plain_dim(axis) for axis in range(len(anchor.axes))} - {None}
    found = list(_layouts(anchor, operand, dims, target))
    return Wanted(
        frozenset(layout for family, layout in found if not isinstance(family, families.First)),
        frozenset(layout for family, layout in found if isinstance(family, families.First)),
        frozenset(dims[dim] for dim in plain if dim is not None),
        float(prod(axis.extent for axis in anchor.axes)),
        () if operand.is_output else _border(func, anchor, operand),
        _summed(anchor, operand),
    )


def _parameters(func: PrimFunc, anchor: Anchor, operand: Operand) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The parameters that an operand is, each with its dimension for each of the operand's.

    Of a sum that is what is made of it, and of a stage what is read where an element of it is made.
    """
    rank = len(operand.dims)
    if operand.buffer in func.params:
        if rank:
            yield operand.buffer.name, tuple(range(rank))
    elif operand.is_output and anchor.epilogue:
        block = find_block(func, anchor.epilogue)
        (store,) = block_stores(block)
        reads = {n.indices for n in walk(block.body) if isinstance(n, Load) and n.buffer == operand.buffer}
        (indices,) = reads
        # A result with a dimension more, of one point, has no layout that is told by those of the sum.
        is_whole = len(indices) == len(store.indices) and set(indices) == set(store.indices)
        if store.buffer in func.params and is_whole:
            yield store.buffer.name, tuple(store.indices.index(i) for i in indices)
    elif operand.source == "stage":
        (store,) = block_stores(find_block(func, operand.producer))
        for load in dict.fromkeys(n for n in walk(store.value) if isinstance(n, Load)):
            if load.buffer in func.params and len(load.indices) == rank and set(load.indices) == set(store.indices):
                yield load.buffer.name, tuple(load.indices.index(i) for i in store.indices)


def _layouts(
    anchor: Anchor, operand: Operand, dims: tuple[int, ...], target: Target
) -> Iterator[tuple[families.LayoutFamily, Layout]]:
    """Layouts that the design space would give an operand, each with its family.

    Groups come first only where what a group has of one row is a multiple of a cache's way away from what it has of the
    next one, so that its rows meet in a few sets.  For attention of 32 heads of 128 and 64 tokens, or of 16 heads of 64
    and 384 tokens, the estimate of both products is 16 and 11 % less; at other distances it is as often more.
    """
    lanes = target.vector_lanes(operand.dtype)
    extents = [0] * len(dims)
    for dim, extent in zip(dims, operand.shape, strict=True):
        extents[dim] = extent
    for structure in structures(anchor, target):
        for family in _of_structure(anchor, operand, structure):
            dim = dims[family.dim] if family.dim >= 0 else -1
            made = _as_layout(tuple(extents), family, dim, lanes)
            far = prod(extents[dim:]) * dtypes.nbytes(operand.dtype) % target.way_bytes == 0
            if made is not None and (far or not isinstance(family, families.First)):
                yield family, made


def _of_structure(anchor: Anchor, operand: Operand, structure: Structure) -> Iterator[families.LayoutFamily]:
    """The space's layouts of an input; of a result, vectors' axis in blocks or last; of products, groups first."""
    if not operand.is_output:
        found = families.alternatives(anchor, operand, structure)
        yield from (family for family in found if not isinstance(family, families.First))
    elif (dim := operand.plain_dim(structure.vec)) is not None:
        yield families.Tiled(dim, structure.vec)
        yield families.Last(dim)
    if len(anchor.factors) > 1 and operand.dims and operand.source != "other":
        yield from families.First.offers(anchor, operand, structure)


def _as_layout(shape: tuple[int, ...], family: families.LayoutFamily, dim: int, lanes: int) -> Layout | None:
    """The layout in terms that do not depend on decisions; None for what is not worth it, or leaves all as it is.

    By the estimate, no network gains by the others.  With the phases of a stride apart, what reads them takes 7 to 11 %
    less, and what writes them 19 % more, since its vectors then read every second element (3x3 on 64 channels, 56x56).
    Steps of dot products side by side (`DotPacked4`) are no better than the channels last or in blocks, which have
    them side by side as well; rows with a pitch gain at most 3 %, and lose as much where rows are no power of two.
    """
    last = len(shape) - 1
    if isinstance(family, (families.Tiled, families.Blocked)):
        size = family.size or lanes
        return Layout.ordered(shape, block=(dim, size)) if shape[dim] > size // 2 else None
    if isinstance(family, families.Last) and dim != last:
        return Layout.ordered(shape, (*(k for k in range(last + 1) if k != dim), dim))
    if isinstance(family, families.First):
        return Layout.ordered(shape, (dim, *(k for k in range(last + 1) if k != dim)))
    return None


def _border(func: PrimFunc, anchor: Anchor, operand: Operand) -> tuple[Border, ...]:
    """The halo of an input that is read under a condition, beyond its first and last elements."""
    values = set(numbers_outside_of(find_block(func, anchor.block)))
    before, after = [], []
    for extent, terms, offset in zip(operand.shape, operand.dims, operand.offsets, strict=True):
        reach = [c * (anchor.axes[a].extent - 1) for a, c in terms]
        before.append(max(0, -(offset + sum(min(0, r) for r in reach))))
        after.append(max(0, offset + sum(max(0, r) for r in reach) + 1 - extent))
    if len(values) != 1 or not (any(before) or any(after)):
        return ()
    return (Border(tuple(before), tuple(after), values.pop()),)


def _summed(anchor: Anchor, operand: Operand) -> frozenset[int]:
    """The dimensions of an input along which products are added up."""
    if anchor.op != "+" or operand.is_output:
        return frozenset()
    plain = (operand.plain_dim(axis) for axis in anchor.reduce)
    return frozenset(dim for dim in plain if dim is not None)
