"""A program as schedules see it: which blocks carry the work, what they touch, and along which axes.

An *anchor* is a block that is scheduled in its own right: a reduction, or the last of
a chain of element-wise blocks.  Element-wise blocks around it become its *producers*
and its *epilogue*.  Axes and operands get canonical names and a canonical order, taken
from the structure of the accesses, so that renaming blocks, buffers or variables and
permuting independent loops leave the anchors equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...ir.arith.byte_lanes import bits_of
from ...ir.arith.linear import linear_form
from ...ir.arith.simplify import simplify
from ...ir.expr import (
    TRUE,
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Var,
    const,
    substitute,
    variables,
)
from ...ir.isa import PAIRS, dot_steps
from ...ir.layout.digits import digit
from ...ir.layout.index_text import evaluate
from ...ir.node import Node, children, remembered, walk
from ...ir.stmt import Block, For, PrimFunc, Store, path_to, read_buffers
from ..errors import ScheduleError
from ..primitives.reduction import update_of
from ..primitives.rfactor import check_all_points
from ..tree import block_stores, consumers, find_block, leaf_blocks, loops_above, producers
from .nests import is_flat, steps_of
from .operand import Axis, Operand, Terms

if TYPE_CHECKING:
    from ..schedule import Schedule

SHORT_AXIS = 8
"""Points of an axis along which an index may move otherwise than in equal steps."""


@dataclass(frozen=True)
class Anchor:
    """A block that is scheduled, with what may be merged into it.

    `factors` are the operands whose product (or, for min and max, which alone) the
    reduction combines with `op`; it is empty when the combined value is anything else.
    Where it adds products of two inputs of bytes, or of bits of uint8, each widened to int32, `signs` says which of
    them are signed (``us``: uint8 by int8), and where they are bfloat16, widened to float32, it is `isa.PAIRS`; else it
    is empty.  An anchor `in_step` is one in a step of a recurrence, which does not begin before its inputs are there.
    `stored` is what its epilogue writes, where it has one, else its output.
    """

    name: str
    block: str
    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    epilogue: str
    op: str
    factors: tuple[int, ...]
    stored: Operand
    signs: str = ""
    in_step: bool = False

    @property
    def spatial(self) -> tuple[int, ...]:
        return tuple(i for i, a in enumerate(self.axes) if a.kind == "spatial")

    @property
    def reduce(self) -> tuple[int, ...]:
        return tuple(i for i, a in enumerate(self.axes) if a.kind == "reduce")

    @property
    def output(self) -> Operand:
        return self.operands[0]

    @property
    def inputs(self) -> tuple[Operand, ...]:
        return self.operands[1:]

    @property
    def dot_steps(self) -> int:
        """Steps of the reduction that are one dot product, where the target has one for `signs`."""
        return dot_steps(self.signs)


_BYTES = {"uint8": "u", "int8": "s"}
_SIGNS: Mapping[tuple[str, ...], str] = {
    **{("int32", a, b): _BYTES[a] + _BYTES[b] for a in _BYTES for b in _BYTES},
    ("float32", "bfloat16", "bfloat16"): PAIRS,
}
"""The signs of dot products: by the type of the sum and those of its two factors."""
MOST_LOADS = 64
"""Loads of a value that inlining may make: a chain of stencils would read what multiplies with every step."""


def inline_chains(schedule: Schedule) -> None:
    """Inline element-wise blocks into their element-wise readers until none is left that may be."""
    refused: set[str] = set()
    while found := [name for name in _inline_candidates(schedule.func) if name not in refused]:
        try:
            schedule.compute_inline(found[0])
        except ScheduleError:  # as where a reader stores to what the block reads
            refused.add(found[0])


def _inline_candidates(func: PrimFunc) -> tuple[str, ...]:
    """Element-wise blocks that only feed element-wise blocks: inlining them loses nothing."""
    found = []
    for block in leaf_blocks(func.body):
        if is_elementwise(block) and _writes_internal(func, block):
            buffer = block_stores(block)[0].buffer
            readers = consumers(func, buffer)
            if readers and all(is_elementwise(r) and _loads_with(block, r, buffer) <= MOST_LOADS for r in readers):
                found.append(block.name)
    return tuple(found)


def _loads_with(block: Block, reader: Block, buffer: Buffer) -> int:
    """Loads of a reader into which a block is inlined, of which it reads the result; few where it reads that once."""
    found = [n.buffer for n in walk(reader.body) if isinstance(n, Load)]
    times = found.count(buffer)
    own = sum(isinstance(n, Load) for n in walk(block.body))
    return 0 if times == 1 else len(found) - times + times * own


def anchors(func: PrimFunc, interface: dict[str, str]) -> tuple[Anchor, ...]:
    """The anchors of a function whose element-wise chains have been inlined, in program order."""
    if not is_flat(func):
        return ()
    blocks = leaf_blocks(func.body)
    epilogues = {b.name: e for b in blocks if b.reduce for e in [_epilogue(func, b, blocks)] if e}
    taken = set(epilogues.values())
    main = [b for b in blocks if b.name not in taken and not _is_producer(func, b) and block_stores(b)]
    main = [b for b in main if read_buffers(b.body)] or main  # what only fills, as padding is filled, is no work
    result = []
    for number, block in enumerate(main):
        anchor = _anchor(func, block, f"b{number}", epilogues, interface)
        if anchor is not None:
            result.append(anchor)
    return tuple(result)


def anchors_in_steps(func: PrimFunc, interface: dict[str, str]) -> tuple[Anchor, ...]:
    """The sums in the steps of a recurrence, in program order; none where one of them is no anchor.

    What is not packed ahead of time is read as it lies: a copy would be made in each step.
    """
    sums = [block for step in steps_of(func) for block in leaf_blocks(step.body) if block.reduce]
    found = [_anchor(func, block, f"b{number}", {}, interface) for number, block in enumerate(sums)]
    known = [anchor for anchor in found if anchor is not None]
    if len(known) < len(sums):
        return ()
    return tuple(
        replace(
            a,
            operands=tuple(replace(o, source="other") if o.source == "fixed" else o for o in a.operands),
            in_step=True,
        )
        for a in known
    )


def accesses_of(block: Block) -> list[Load | Store]:
    """What a block loads and stores, its initialisation included."""
    parts = [block.body, *([] if block.init is None else [block.init])]
    return [n for part in parts for n in walk(part) if isinstance(n, (Load, Store))]


def variables_outside_of_indices(block: Block) -> set[Var]:
    """The variables that a value or a condition of a block uses itself."""
    found: set[Var] = set()
    left: list[Node] = [block.body, block.predicate, *([] if block.init is None else [block.init])]
    while left:
        node = left.pop()
        if isinstance(node, Var):
            found.add(node)
        left += [node.value] if isinstance(node, Store) else [] if isinstance(node, Load) else children(node)
    return found


@remembered
def is_elementwise(block: Block) -> bool:
    """One store at the block's iterators in order, and no reduction."""
    stores = block_stores(block)
    spatial = all(i.kind == "spatial" for i in block.iters)
    if not spatial or block.init is not None or len(stores) != 1 or not isinstance(block.body, Store):
        return False
    indices = stores[0].indices
    return len(set(indices)) == len(indices) == len(block.iters) and all(isinstance(i, Var) for i in indices)


def _writes_internal(func: PrimFunc, block: Block) -> bool:
    buffer = block_stores(block)[0].buffer
    return buffer not in func.params and producers(func, buffer) == (block,)


def _is_producer(func: PrimFunc, block: Block) -> bool:
    """An element-wise block that feeds exactly one reduction."""
    if not is_elementwise(block) or not _writes_internal(func, block):
        return False
    readers = consumers(func, block_stores(block)[0].buffer)
    return len(readers) == 1 and bool(readers[0].reduce)


def _epilogue(func: PrimFunc, block: Block, blocks: Sequence[Block]) -> str:
    """The block that is the only reader of a reduction's result, at its iterators, wherever it stores.

    Of `blocks`, those of the function in program order, none in between writes what that one reads: of several sums
    that one block takes, as a product and its gate, it goes with the last.
    """
    buffer = block_stores(block)[0].buffer
    if buffer in func.params or producers(func, buffer) != (block,):
        return ""
    readers = consumers(func, buffer)
    if len(readers) != 1 or not isinstance(readers[0].body, Store):
        return ""
    reader = readers[0]
    if any(i.kind != "spatial" for i in reader.iters):
        return ""
    found = {n.indices for n in walk(reader.body) if isinstance(n, Load) and n.buffer == buffer}
    spatial = {i.var for i in reader.iters}
    if len(found) != 1:
        return ""
    read = read_buffers(reader.body)
    between = blocks[blocks.index(block) + 1 : blocks.index(reader)]
    if any(store.buffer in read for other in between for store in block_stores(other)):
        return ""
    (indices,) = found
    plain = [i for i in indices if isinstance(i, Var)]
    return reader.name if len(plain) == len(indices) and set(plain) == spatial and len(set(plain)) == len(plain) else ""


def _anchor(
    func: PrimFunc, block: Block, name: str, epilogues: Mapping[str, str], interface: dict[str, str]
) -> Anchor | None:
    """The block as an anchor; None unless its loops correspond to its iterators one to one.

    `epilogues` has the epilogue of each reduction that has one.  It is nobody's producer: it moves with its reduction.
    """
    above = loops_above(func, block)
    single = {**_single_points(block), **_around(func, block)}
    bound = [i.binding for i in block.iters if i.var not in single]
    idle = {loop.var for loop in above if loop.extent == const(1) and loop.var not in bound}
    if sorted(map(str, bound)) != sorted(str(loop.var) for loop in above if loop.var not in idle):
        return None
    if any(i.kind == "opaque" for i in block.iters) or not all(isinstance(loop.extent, Const) for loop in above):
        return None
    stores = block_stores(block)
    if len(stores) != 1 or not isinstance(block.body, Store):
        return None
    op = ""
    value: Expr = stores[0].value
    if block.reduce:
        try:
            _, op, value = update_of(block)
        except ScheduleError:
            return None
        if block.init is None or not _writes_plainly(block, stores[0]) or not _runs_everywhere(func, block, above):
            return None
    accesses: list[Store | Load] = [stores[0], *_loads_in_order(value)]
    order = [var for var in _axis_order(block, accesses) if var not in single]
    by_var = {i.var: i for i in block.iters}
    spatial = [v for v in order if by_var[v].kind == "spatial"]
    reduce = [v for v in order if by_var[v].kind == "reduce"]
    named = [(f"s{n}", v) for n, v in enumerate(spatial)] + [(f"r{n}", v) for n, v in enumerate(reduce)]
    axes = tuple(Axis(name, by_var[v].extent, by_var[v].kind, v.name) for name, v in named)
    operands = [_operand("o0", substitute(stores[0], single), axes, "output", "")]
    for number, access in enumerate(accesses[1:]):
        load: Load = substitute(access, single)
        source, producer = _source(func, load.buffer, interface)
        alone = sum(other.buffer == access.buffer for other in accesses) == 1
        if producer in epilogues.values() or not alone:
            source, producer = "other", ""
        operand = _operand(f"i{number}", load, axes, source, producer)
        padded = (layout := func.layout_of(load.buffer.name)) is not None and layout.pad_value is not None
        streamed = source == "constant" and interface.get(load.buffer.name) == "streamed"
        inlined = _read_inlined(func, producer, load, axes) if producer else None
        tested, operations = _tested(func, producer), _operations(func, producer) if producer else 0
        operand = replace(operand, padded=padded, is_streamed=streamed)
        operands.append(replace(operand, tested=tested, inlined=inlined, operations=operations))
    factors = _factors(op, value, accesses[1:])
    epilogue = epilogues.get(block.name, "")
    signs = _signs(value) if op == "+" and len(factors) == 2 else ""
    stored = _operand("o0", _stored(func, epilogue, stores[0]), axes, "output", "") if epilogue else operands[0]
    return Anchor(name, block.name, axes, tuple(operands), epilogue, op, factors, stored, signs)


def _stored(func: PrimFunc, epilogue: str, store: Store) -> Store:
    """What an epilogue stores, at the indices of the `store` of the result that it reads."""
    (own,) = block_stores(find_block(func, epilogue))
    read = next(n for n in walk(own.value) if isinstance(n, Load) and n.buffer == store.buffer)
    found: Store = substitute(
        own, {i: to for i, to in zip(read.indices, store.indices, strict=True) if isinstance(i, Var)}
    )
    return found


def _single_points(block: Block) -> dict[Var, Expr]:
    """The iterators of one value that no loop decides, with that value: an axis of extent 1 that was simplified."""
    return {i.var: i.binding for i in block.iters if i.extent == 1 and isinstance(i.binding, Const)}


def _around(func: PrimFunc, block: Block) -> dict[Var, Expr]:
    """The iterators of the blocks around one, with their first values: an anchor is seen in one of their instances."""
    outer = (path_to(func.body, block) or ())[:-1]
    return {i.var: const(0, i.var.dtype) for stmt in outer if isinstance(stmt, Block) for i in stmt.iters}


def _runs_everywhere(func: PrimFunc, block: Block, above: Sequence[For]) -> bool:
    """Whether a reduction runs at every point of its result, as what is written in tiles has to."""
    if block.predicate == TRUE:
        return True
    try:
        check_all_points(func, block, above)
    except ScheduleError:
        return False
    return True


def _writes_plainly(block: Block, store: Store) -> bool:
    """Whether each dimension of the result is an iterator of its own, or of extent 1, so that it has tiles."""
    extents = {i.var: i.extent for i in block.spatial}
    own = [(i, e) for i, e in zip(store.indices, store.buffer.shape, strict=True) if e != 1 or isinstance(i, Var)]
    return len({i for i, _ in own}) == len(own) and all(isinstance(i, Var) and extents.get(i) == e for i, e in own)


def _factors(op: str, value: Expr, accesses: Sequence[Store | Load]) -> tuple[int, ...]:
    parts = product_factors(value) if op == "+" else [value]
    loads = [bits_of(p.a) if isinstance(p, Cast) else p for p in parts]
    if not op or not all(load in accesses for load in loads):
        return ()
    return tuple(sorted({accesses.index(load) + 1 for load in loads if isinstance(load, Load)}))


def _signs(value: Expr) -> str:
    """The signs of the bytes in ``int32(a) * int32(b)``, `PAIRS` for a product of bfloat16; else empty."""
    parts = product_factors(value)
    casts = [bits_of(p.a) for p in parts if isinstance(p, Cast) and p.dtype == value.dtype]
    loaded = [factor.dtype for factor in casts if isinstance(factor, Load)]
    return _SIGNS.get((value.dtype, *loaded), "") if len(parts) == len(loaded) else ""


def _loads_in_order(value: Expr) -> list[Load]:
    """Distinct loads, in an order that does not depend on how a commutative expression is written."""
    found = list(dict.fromkeys(n for n in walk(value) if isinstance(n, Load)))
    return sorted(found, key=lambda load: (load.buffer.size, len(load.indices)), reverse=True)


def _axis_order(block: Block, accesses: Sequence[Store | Load]) -> list[Var]:
    """Iterators sorted by where they occur in the accesses, the output first."""
    places: dict[Var, tuple[tuple[int, int], ...]] = {}
    for item in block.iters:
        found: list[tuple[int, int]] = []
        for access in accesses:
            where = [d for d, index in enumerate(access.indices) if item.var in variables(index)]
            found.append((0 if where else 1, where[0] if where else -1))
        places[item.var] = tuple(found)
    return sorted(places, key=lambda v: places[v])


def _operand(name: str, access: Store | Load, axes: Sequence[Axis], source: str, producer: str) -> Operand:
    position = {Var(a.var): i for i, a in enumerate(axes)}
    dims: list[Terms] = []
    offsets: list[int] = []
    for index in access.indices:
        terms, constant = _nearly_linear(index, axes)
        if any(not isinstance(a, Var) or a not in position for a in terms):
            known = source if source == "output" else "other"
            *others, last = access.indices
            is_apart = not any(variables(last) & variables(other) for other in others)
            along = position.get(last) if is_apart and isinstance(last, Var) else None
            return Operand(name, access.buffer, (), (), known, producer, along=along)
        dims.append(tuple(sorted((position[a], c) for a, c in terms.items() if isinstance(a, Var))))
        offsets.append(constant)
    return Operand(name, access.buffer, tuple(dims), tuple(offsets), source, producer)


def _nearly_linear(index: Expr, axes: Sequence[Axis]) -> tuple[dict[Expr, int], int]:
    """The linear form of an index, in which what moves with one axis in another way is replaced by a slope.

    ``a + (b + 2) // 4``, where b is below 4, steps once: as ``a + b`` it is seen with all that it reaches.  Of longer
    axes that is done where they advance in steps as long as they are high, ``f // 4 * 4``.
    """
    terms, constant = linear_form(index)
    extents = {Var(a.var): a.extent for a in axes}
    for atom, scale in [(a, c) for a, c in terms.items() if not isinstance(a, Var)]:
        one = digit(atom)
        if one is not None and one.of in extents and (one.offset, one.high) == (0, None) and scale % one.low == 0:
            del terms[atom]
            terms[one.of] = terms.get(one.of, 0) + scale // one.low
            continue
        used = variables(atom)
        if len(used) != 1 or extents.get(next(iter(used)), SHORT_AXIS + 1) > SHORT_AXIS:
            continue
        if any(isinstance(node, Load) for node in walk(atom)):
            continue
        (var,) = used
        try:
            values = [int(evaluate(atom, {var.name: at})) for at in range(extents[var])]
        except (TypeError, KeyError, ZeroDivisionError):  # no index arithmetic: it stays as it is
            continue
        del terms[atom]
        slope = -(-(max(values) - min(values)) // max(1, extents[var] - 1))
        slope = slope if values[-1] >= values[0] else -slope
        constant += scale * (min(values) if slope >= 0 else max(values))
        terms[var] = terms.get(var, 0) + scale * slope
    return {atom: scale for atom, scale in terms.items() if scale}, constant


def _source(func: PrimFunc, buffer: Buffer, interface: dict[str, str]) -> tuple[str, str]:
    """Who may change the layout of an input, and the block that computes it."""
    if buffer in func.params:
        working = [b.body for b in leaf_blocks(func.body) if block_stores(b)]  # and not what assumes its padding
        once = sum(isinstance(n, Load) and n.buffer == buffer for body in working for n in walk(body)) == 1
        kind = interface.get(buffer.name, "fixed")
        return ("constant" if kind == "streamed" else kind) if once else "fixed", ""
    writers = producers(func, buffer)
    if len(writers) == 1 and _is_producer(func, writers[0]):
        return "stage", writers[0].name
    return "other", ""


def _read_inlined(func: PrimFunc, producer: str, load: Load, axes: Sequence[Axis]) -> Operand | None:
    """The largest input of a producer, at the indices that `load` of its result gives it: ``x[g(i)]`` of ``p[i]``.

    Of an index along blocks, what most neighbours are apart is seen: ``i % n`` as ``i``, and nothing of ``i // n``.
    """
    block = find_block(func, producer)
    (store,) = block_stores(block)
    inputs = _loads_in_order(store.value)
    if not inputs:
        return None
    at = {index: given for index, given in zip(store.indices, load.indices, strict=True) if isinstance(index, Var)}
    bounds = {Var(axis.var): (0, axis.extent - 1) for axis in axes}
    indices = tuple(_within_blocks(simplify(substitute(index, at), bounds)) for index in inputs[0].indices)
    operand = _operand("", Load(inputs[0].buffer, indices), axes, "other", "")
    return operand if operand.dims else None


def _within_blocks(index: Expr) -> Expr:
    """An index with the digits of variables as they are inside of a block."""
    terms, constant = linear_form(index)
    found: Expr = const(constant)
    for atom, scale in terms.items():
        one = None if isinstance(atom, Var) else digit(atom)
        if one is None or not isinstance(one.of, Var):
            found = found + atom * scale
        elif one.low == 1:
            found = found + one.of * scale
    return found


def has_condition(func: PrimFunc, block: str) -> bool:
    """Whether a block's value is chosen by a condition, as padding is."""
    return bool(_conditions(func, block))


def _conditions(func: PrimFunc, block: str) -> list[Expr]:
    """What the value of a block depends on."""
    bodies = [b.body for b in leaf_blocks(func.body) if b.name == block]
    return [n.args[0] for body in bodies for n in walk(body) if isinstance(n, Call) and n.name == "if_then_else"]


def _tested(func: PrimFunc, producer: str) -> tuple[int, ...]:
    """The dimensions of a producer's buffer that its conditions depend on."""
    used = {var for cond in _conditions(func, producer) for var in variables(cond)}
    if not used:
        return ()
    (store,) = block_stores(find_block(func, producer))
    return tuple(dim for dim, index in enumerate(store.indices) if index in used)


def _operations(func: PrimFunc, producer: str) -> int:
    """The operations of a producer's value that depend on its largest input; a choice is none."""
    (store,) = block_stores(find_block(func, producer))
    inputs = _loads_in_order(store.value)

    def counted(value: Expr) -> tuple[int, bool]:
        """The operations below and at an expression, and whether it depends on the input."""
        if isinstance(value, Load):
            return 0, value.buffer == inputs[0].buffer
        chooses = isinstance(value, Call) and value.name == "if_then_else"
        parts = [counted(c) for c in tuple(children(value))[chooses:] if isinstance(c, Expr)]
        depends = any(below for _, below in parts)
        return sum(count for count, _ in parts) + (depends and not chooses), depends

    return counted(store.value)[0] if inputs else 0


def product_factors(value: Expr) -> list[Expr]:
    """``a * b * c`` as its factors."""
    if isinstance(value, Binary) and value.op == "*":
        return product_factors(value.a) + product_factors(value.b)
    return [value]
