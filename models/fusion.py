"""Fusion: operators that are groups of one anchor with what precedes and follows it element by element.

Two operators become one where only the second reads what the first computes, and where the design space sees in
the merged program no more work than before: one *anchor* (`space.design.program`), of which the other blocks are
producers and epilogue.  So a bias, an activation, a residual or a scaling follow a convolution in its registers, and
transposes, reshapes, slices and borders become indices.  Stages of the same rows, such as those of a softmax or a layer
normalisation written as many operators, become one where the space has sketches that run them together
(`techniques.chunks`).

Nothing here asks for an operator's name.  Programs are merged (`merge.py`) and then rewritten by primitives, each of
which proves its step: element-wise blocks are inlined, and a block that reads a reduction's result through an index
map iterates over that result instead (`transform_block_layout`).

What must hold, by number:

1. the first operator has one result, which is no result of the network, and no other operator reads it; a program
   that only moves elements is merged into each of its readers;
2. an element is not computed many times over: a reader of more elements than the first computes, or one that reads at
   several places, takes only what is cheap;
3. two programs that both reduce are merged only if none of the two reads an element many times, and if both together
   reduce at few places: what merging saves is a tensor that is passed, the same for every pair, while what a program
   costs to schedule grows with all of them (a network whose 191 products are written out step by step).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

from ..errors import ProgramError
from ..ir.caches import cached
from ..ir.expr import Binary, Buffer, Call, Expr, Load, Var, const, free_variables, reads_memory, substitute
from ..ir.node import children, remembered, transform, walk
from ..ir.stmt import Block, For, PrimFunc, Stmt, Store
from ..ir.target import Target
from ..ir.text import expr_text
from ..space.design.apply import prepared
from ..space.design.nests import steps_of
from ..space.design.program import Anchor, anchors, inline_chains, is_elementwise
from ..space.design.techniques.chunks import chunk_sizes, in_chunks, shared_rows
from ..space.schedule import Schedule
from ..space.tree import block_stores, consumers, leaf_blocks, producers
from .borders import outside_of
from .merge import merged
from .network import Network, Operator

ZERO, ONE = const(0), const(1)
CHEAP = 4
"""Operations that may be repeated for each reader of an element."""
MOST_REDUCTIONS = 8
"""Blocks that reduce in a program made of several: a normalisation and a softmax, as many operators, have five."""

Accept: TypeAlias = "Callable[[Operator, Operator, Operator], bool]"
"""Whether two operators may become the third one, which takes their place then."""


def fused(network: Network, target: Target, accept: Accept = lambda *_: True) -> Network:
    """The network with its operators in groups, those that are accepted; it computes the same.

    Groups depend on the network and the target alone: what a run has tuned is found by every later one.
    """
    network = with_tidied(network).with_branches(lambda part: fused(part, target, accept))
    for pick in (_followers, _readers):
        while (found := next(pick(network, target, accept), None)) is not None:
            network = found
    return network


# ---------------------------------------------------------------- which operators


def _followers(network: Network, target: Target, accept: Accept) -> Iterator[Network]:
    """Networks in which an element-wise operator is merged into what it follows."""
    for node in network.nodes:
        if isinstance(node, Operator) and not _reduces(node.func):
            yield from _merging_into(network, node, target, accept)


def _readers(network: Network, target: Target, accept: Accept) -> Iterator[Network]:
    """The networks in which some operator is merged with one whose result it reads."""
    for node in network.nodes:
        if isinstance(node, Operator):
            yield from _merging_into(network, node, target, accept)


def _merging_into(network: Network, second: Operator, target: Target, accept: Accept) -> Iterator[Network]:
    """Networks in which one of the operators that `second` reads is merged with it, the latest first."""
    found = {network.producer[t].name: network.producer[t] for t in second.inputs if t in network.producer}
    for first in sorted(found.values(), key=lambda node: -network.positions[node.name]):
        if not isinstance(first, Operator) or not _may_merge(network, first, second):
            continue
        (passed,) = first.outputs
        one = _merged(first, second, target)
        if one is None or not accept(first, second, one):
            continue
        left = [n for n in network.consumers[passed] if n is not second]
        nodes = tuple(one if n is second else n for n in network.nodes if n is not first or left)
        tensors = network.tensors if left else {t: v for t, v in network.tensors.items() if t != passed}
        yield network.with_nodes(nodes, tensors)


def _may_merge(network: Network, first: Operator, second: Operator) -> bool:
    """Conditions 1 to 3, as far as they can be told before merging."""
    if len(first.outputs) != 1 or first.outputs[0] in network.outputs:
        return False
    (passed,) = first.outputs
    alone = len(network.consumers[passed]) == 1
    if not alone and not _computes_nothing(first.func):
        return False
    if _reduces(first.func) and _reduces(second.func):
        if _reductions(first.func) + _reductions(second.func) > MOST_REDUCTIONS:
            return False
        return _reads_once(first.func) and _reads_once(second.func)
    if not _reduces(first.func) and not _reduces(second.func):
        return operations(first.func) <= CHEAP or not _repeats(second, passed)
    return True


def _reduces(func: PrimFunc) -> bool:
    """Whether some block of a program does more than to compute each of its elements by itself."""
    return _reductions(func) > 0


@remembered
def _reductions(func: PrimFunc) -> int:
    """The blocks of a program that do more than to compute each of its elements by itself."""
    return sum(not is_elementwise(block) for block in leaf_blocks(func.body))


def _computes_nothing(func: PrimFunc) -> bool:
    """Whether each value of a program is an element, a number, or chosen among these; conversions cost nothing."""
    return not _reduces(func) and operations(func) == 0


@remembered
def operations(func: PrimFunc) -> int:
    """Arithmetic for an element, all blocks together; a function such as exp counts for many."""
    return sum(_weight(n) for block in leaf_blocks(func.body) for s in block_stores(block) for n in _values(s.value))


def _weight(node: Expr) -> int:
    if isinstance(node, Call):
        return 0 if node.name == "if_then_else" else 2 * CHEAP
    return int(isinstance(node, Binary) and node.dtype not in ("bool", "int64"))


def _values(value: Expr) -> Iterator[Expr]:
    """The expressions in a value, without those in indices."""
    yield value
    for child in () if isinstance(value, Load) else _operands(value):
        yield from _values(child)


def _operands(value: Expr) -> tuple[Expr, ...]:
    return tuple(child for child in children(value) if isinstance(child, Expr))


def _repeats(second: Operator, passed: str) -> bool:
    """Whether an element-wise program reads more elements of an input, repeated ones counted, than there are."""
    buffer = dict(zip(second.inputs, second.func.buffers, strict=False))[passed]
    return _reads(leaf_blocks(second.func.body), buffer) > buffer.size


@remembered
def _reads_once(func: PrimFunc) -> bool:
    """Whether each reduction has, for each of its points, an element of its own in some input."""
    for block in leaf_blocks(func.body):
        largest = max((n.buffer.size for n in walk(block.body) if isinstance(n, Load)), default=0)
        if block.reduce and prod(i.extent for i in block.iters) > largest:
            return False
    return True


# ---------------------------------------------------------------- merging


def _merged(first: Operator, second: Operator, target: Target | None) -> Operator | None:
    """Both operators as one, called as that which reduces, or None; pairs that are wired alike are merged once.

    Without a target nothing asks whether they are no more work together.
    """
    tensors = list(dict.fromkeys((*first.inputs, *first.outputs, *second.inputs, *second.outputs)))
    number = {tensor: str(k) for k, tensor in enumerate(tensors)}
    one, other = (replace(_renamed(op, number), name="") for op in (first, second))
    found = _as_one(one, other, target) if target is not None else _tidily_merged(one, other)
    leads = first if _reduces(first.func) and not _reduces(second.func) else second
    back = {short: tensor for tensor, short in number.items()}
    return None if found is None else replace(_renamed(found, back), name=leads.name)


def together(first: Operator, second: Operator) -> Operator | None:
    """Both operators as one, whatever work that is; None where the merged program is refused."""
    return _merged(first, second, None)


def _renamed(op: Operator, found: Mapping[str, str]) -> Operator:
    """The operator with other names for its tensors."""
    return replace(op, inputs=tuple(found[t] for t in op.inputs), outputs=tuple(found[t] for t in op.outputs))


@cached(1024)
def _as_one(first: Operator, second: Operator, target: Target) -> Operator | None:
    """Both operators as one, None where the merged program is more than one anchor, or stages of the same rows."""
    one = _tidily_merged(first, second)
    if one is None:
        return None
    before = max(len(_work(op.func)) for op in (first, second))
    if not any(_is_one(view, before, target) for view in (one.func, prepared(Schedule(one.func), frozenset()).func)):
        return None
    return one


@cached(1024)
def _tidily_merged(first: Operator, second: Operator) -> Operator | None:
    """Both operators as one with a tidied program, None where that is refused."""
    one = merged(first, second, ())
    if not _reduces(first.func):
        one = replace(one, func=replace(one.func, name=second.func.name))
    try:
        return replace(one, func=tidied(one.func))
    except ProgramError:
        return None


def _is_one(func: PrimFunc, before: int, target: Target) -> bool:
    """Whether a merged program is no more work than its parts were at most, or stages that run together."""
    work = _work(func)
    if not work or not _is_covered(func, work):
        return False
    return len(work) <= before or _runs_in_chunks(func, work, target)


def _work(func: PrimFunc) -> tuple[Anchor, ...]:
    return anchors(func, {})


def _is_covered(func: PrimFunc, work: tuple[Anchor, ...]) -> bool:
    """Whether every block is an anchor, or scheduled with one."""
    known = {name for a in work for name in (a.block, a.epilogue, *(o.producer for o in a.operands))}
    return all(block.name in known for block in leaf_blocks(func.body))


def _runs_in_chunks(func: PrimFunc, work: tuple[Anchor, ...], target: Target) -> bool:
    """Whether the design space can run all stages, without epilogues, for some rows before the next ones."""
    if any(anchor.epilogue for anchor in work):
        return False
    found = [(rows, size) for rows in shared_rows(work, func, target) for size in chunk_sizes(rows, work, target)[-1:]]
    return any(in_chunks(Schedule(func), work, rows, size, target) is not None for rows, size in found)


def with_tidied(network: Network) -> Network:
    """The network with each program in the form in which fusion looks at it."""
    return network.with_nodes(
        tuple(replace(n, func=tidied(n.func)) if isinstance(n, Operator) else n for n in network.nodes)
    )


@cached(1024)
def tidied(func: PrimFunc) -> PrimFunc:
    """An equal program: chains of element-wise blocks inlined, readers of a reduction's result iterating over it.

    What the steps of a recurrence do stays as it is written.
    """
    if steps_of(func):
        return func
    written = transform(func, _without_idle)
    schedule = Schedule(_at_unit_iterators(written))
    while True:
        inline_chains(schedule)
        cheap = next(_repeated(schedule.func), None)
        if cheap is None:
            break
        schedule.compute_inline(cheap)
    for name, text in list(_through_maps(schedule.func)):
        aligned = schedule.copy()
        try:
            aligned.transform_block_layout(name, text)
        except ProgramError:
            continue
        schedule = aligned
    return _at_unit_iterators(schedule.func)


def _without_idle(node: object) -> object:
    """A block without iterators of one value along which its store does not move, or a loop without that of no block.

    An element-wise block is one again, though it went along dimensions of one point of what it reads.
    """
    if isinstance(node, For):
        return node.body if node.extent == ONE and node.var not in free_variables(node.body) else node
    if not isinstance(node, Block) or node.reduce or node.init is not None or not isinstance(node.body, Store):
        return node
    used = {n for index in node.body.indices for n in walk(index) if isinstance(n, Var)}
    single = (item for item in node.iters if item.extent == 1 and item.kind == "spatial")
    idle = {item.var: ZERO for item in single if item.var not in used}
    if not idle or len(idle) == len(node.iters):
        return node
    left = tuple(item for item in node.iters if item.var not in idle)
    return replace(node, iters=left, body=substitute(node.body, idle), predicate=substitute(node.predicate, idle))


def _at_unit_iterators(func: PrimFunc) -> PrimFunc:
    """``a[0, v1]`` -> ``a[v0, v1]``, where v0 has one value: what computes elements reads at all of its iterators."""
    made: PrimFunc = transform(func, lambda node: _with_unit_iterators(node) if isinstance(node, Block) else node)
    return made


def _with_unit_iterators(block: Block) -> Block:
    if block.reduce or block.init is not None or not isinstance(block.body, Store):
        return block
    single = [i.var for i in block.iters if i.extent == 1]

    def full(node: object) -> object:
        if not isinstance(node, Load):
            return node
        free = iter([v for v in single if v not in node.indices])
        shape = node.buffer.shape
        found = (next(free, i) if i == ZERO and e == 1 else i for i, e in zip(node.indices, shape, strict=True))
        return Load(node.buffer, tuple(found))

    body: Stmt = transform(block.body, full)
    return replace(block, body=body)


def _repeated(func: PrimFunc) -> Iterator[str]:
    """Element-wise blocks that are cheap or read once, and whose value a stage of its own would only carry along.

    What is read again and again at places that are looked up, as the features of rows are by trees, stays a stage: it
    lies there so that neighbours are read together.
    """
    for block in leaf_blocks(func.body):
        if not is_elementwise(block) or block_stores(block)[0].buffer in func.params:
            continue
        buffer = block_stores(block)[0].buffer
        readers = consumers(func, buffer)
        if not readers or producers(func, buffer) != (block,):
            continue
        weight = sum(_weight(n) for n in _values(block_stores(block)[0].value))
        often = _reads(readers, buffer) > buffer.size
        if often and _is_looked_up(readers, buffer):
            continue
        is_border = bool(outside_of(block))  # which schedules treat as a stage
        if ((weight == 0 or not often) and not is_border) or (weight <= CHEAP and len(readers) > 1):
            yield block.name


def _is_looked_up(blocks: Sequence[Block], buffer: Buffer) -> bool:
    """Whether elements of a buffer are read at places that memory says."""
    found = (n for b in blocks for n in walk(b.body) if isinstance(n, Load) and n.buffer == buffer)
    return any(reads_memory(index) for load in found for index in load.indices)


def _reads(blocks: Sequence[Block], buffer: Buffer) -> int:
    """How many times elements of a buffer are read."""
    places = [(b, {n.indices for n in walk(b.body) if isinstance(n, Load) and n.buffer == buffer}) for b in blocks]
    return sum(len(found) * prod(i.extent for i in block.iters) for block, found in places)


def _through_maps(func: PrimFunc) -> Iterator[tuple[str, str]]:
    """Element-wise blocks that read a reduction's result through an index map, with the map as text.

    That is also one that leaves out iterators of one value, as ``y[v0, 0, v2]`` reads ``x[v0, v2]``.
    """
    reduced = {block_stores(b)[0].buffer for b in leaf_blocks(func.body) if b.reduce}
    for block in leaf_blocks(func.body):
        if not is_elementwise(block) or not isinstance(block.body, Store):
            continue
        places = {n.indices for n in walk(block.body) if isinstance(n, Load) and n.buffer in reduced - {*func.params}}
        one = next(iter(places)) if len(places) == 1 else ()
        single = {i.var for i in block.iters if i.extent == 1} - {*one}
        if one and (not all(isinstance(i, Var) for i in one) or len(one) + len(single) == len(block.iters) > len(one)):
            names = ", ".join(i.var.name for i in block.iters)
            yield block.name, f"lambda {names}: [{', '.join(map(expr_text, one))}]"
