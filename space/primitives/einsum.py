"""pad_einsum: the iterations of a sum of products become multiples, over copies that are padded with 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...ir.arith.simplify import simplify
from ...ir.expr import (
    TRUE,
    Buffer,
    Const,
    Expr,
    Extent,
    Load,
    Var,
    all_of,
    as_expr,
    as_index,
    binary,
    const,
    if_then_else,
)
from ...ir.extents import as_extent
from ...ir.node import walk
from ...ir.passes.overcompute import overcompute
from ...ir.stmt import Block, For, PrimFunc, Stmt, Store, fresh, loops, map_children, names, replace_buffer
from ..errors import Reasons, ScheduleError
from ..placement import check_no_views
from ..primitive import Result, primitive
from ..tree import (
    block_stores,
    extent_in,
    find_block,
    insert_after,
    insert_before,
    nest_of,
    scope_of,
    with_alloc,
    with_stmt,
)
from .axes import fresh_axes


@primitive
def pad_einsum(func: PrimFunc, block: str, padding: Sequence[int]) -> Result:
    """``for k in 127: C[0] += A[k] * B[k]`` -> ``for k in 128: C[0] += A_pad[k] * B_pad[k]``, padded with 0.

    `padding` has a number for each iterator of the block, of which its extent becomes a multiple.  What is read along
    an iterator that grows is copied before the nest, ``A_pad[k] = if_then_else(k < 127, A[k], 0)``; what is written
    along one goes to ``C_pad``, which is copied back behind the nest.
    Conditions: (1) the block has no predicate, and stands alone in a nest of the root block, whose loops are its
    iterators; (2) it is one store, and one
    of an init, whose indices, and those of what it loads, are iterators and numbers, the same wherever it touches a
    buffer, which has no other view; (3) `padding` has a positive number for each iterator; (4) what is written along
    an iterator that grows is written whole, and not read before; (5) the iterations that are added change nothing,
    which is proven as by `remove_branching_through_overcompute`: they multiply by 0; (6) the type of each loop
    holds its new extent.
    Source: TensorIR's primitive of this name.
    """
    target = find_block(func, block)
    nest = func.body if target is func.body else nest_of(func, target)
    if (
        nest is func.body
        or target.predicate != TRUE
        or scope_of(func, target) is not func.body
        or not _is_alone(nest, target)
    ):
        raise ScheduleError(
            "(1) block `{block}` does not stand alone in a nest of the root block, of loops that are its iterators",
            block=block,
        )  # fmt: skip
    if len(padding) != len(target.iters) or any(isinstance(p, bool) or p < 1 for p in padding):
        raise ScheduleError(
            "(3) block `{block}` has {count} iterators, and padding={padding} is no positive number for each",
            block=block, count=len(target.iters), padding=list(padding),
        )  # fmt: skip
    rounded = {i.var: _rounded(i.limit, int(p)) for i, p in zip(target.iters, padding, strict=True)}
    limits = {i.var: i.limit for i in target.iters}
    grown = {var: limit for var, limit in rounded.items() if limit != limits[var]}
    taken, body = names(func), target
    for buffer, indices in _touched(func, target).items():
        if grown.keys().isdisjoint(indices):
            continue
        pairs = list(zip(indices, buffer.extents, strict=True))
        shape = tuple(grown.get(i, e) if isinstance(i, Var) else e for i, e in pairs)
        padded = Buffer(fresh(f"{buffer.name}_pad", taken), shape, buffer.dtype, buffer.scope)
        taken.add(padded.name)
        func = with_alloc(func, padded)
        body = replace_buffer(body, buffer, padded)
        if any(s.buffer == buffer for s in block_stores(target)):
            _check_written_whole(target, buffer, pairs, limits)
            func = insert_after(func, nest, _copy(func, padded, buffer, ()))
        else:
            read = [limits[i] if isinstance(i, Var) else i for i in indices]
            func = insert_before(func, nest, _copy(func, buffer, padded, read))
    wider = {i.binding: (grown[i.var], i.limit) for i in target.iters if i.var in grown and isinstance(i.binding, Var)}
    wide = _wider(
        func, nest, target, replace(body, iters=tuple(replace(i, limit=rounded[i.var]) for i in body.iters)), wider
    )
    new = with_stmt(func, nest, wide)
    result, refused = overcompute(new, find_block(new, block))
    if refused:
        raise ScheduleError("(5) block `{block}` cannot run for what is added: {reasons}",
                            block=block, reasons=Reasons(refused))  # fmt: skip
    return result, None


def _is_alone(nest: Stmt, block: Block) -> bool:
    """Whether a nest holds one block alone, whose iterators are its loops."""
    found: list[Expr] = []
    while isinstance(nest, For):
        found.append(nest.var)
        nest = nest.body
    bindings = [i.binding for i in block.iters]
    return nest is block and len(bindings) == len(found) and set(bindings) == set(found)


def _rounded(extent: Extent, multiple: int) -> Extent:
    """The least multiple that is not below an extent."""
    if isinstance(extent, int):
        return -(-extent // multiple) * multiple
    return as_extent(simplify((as_index(extent) + (multiple - 1)) // multiple * multiple)) if multiple > 1 else extent


def _touched(func: PrimFunc, block: Block) -> dict[Buffer, tuple[Expr, ...]]:
    """The buffers of a block with the indices that it touches them at.  Raises ScheduleError (2)."""
    own = [s for s in (block.init, block.body) if s is not None]
    if not all(isinstance(s, Store) for s in own):
        raise ScheduleError("(2) block `{block}` is not one store", block=block.name)
    iterators = {i.var for i in block.iters}
    found: dict[Buffer, tuple[Expr, ...]] = {}
    for access in (n for s in own for n in walk(s) if isinstance(n, (Load, Store))):
        check_no_views(func, access.buffer, "2")
        plain = all(i in iterators or isinstance(i, Const) for i in access.indices)
        if not plain or found.setdefault(access.buffer, access.indices) != access.indices:
            raise ScheduleError(
                "(2) block `{block}` touches `{buffer}` at other indices than iterators and numbers, or at several",
                block=block.name, buffer=access.buffer.name,
            )  # fmt: skip
    return found


def _check_written_whole(
    block: Block, buffer: Buffer, pairs: Sequence[tuple[Expr, Extent]], limits: Mapping[Var, Extent]
) -> None:
    """Condition (4) for the buffer that the block stores to, whose dimensions have these indices and extents."""
    own = [i for i, _ in pairs if isinstance(i, Var)]
    whole = all(limits[i] == e if isinstance(i, Var) else e == 1 for i, e in pairs) and len(own) == len(set(own))
    starts = block.init is not None or not any(isinstance(n, Load) and n.buffer == buffer for n in walk(block.body))
    if not whole or not starts:
        raise ScheduleError("(4) block `{block}` does not write all of `{buffer}`, or adds to what it held before",
                            block=block.name, buffer=buffer.name)  # fmt: skip


def _copy(func: PrimFunc, source: Buffer, target: Buffer, read: Sequence[Extent]) -> Stmt:
    """``target[v] = source[v]``, and 0 where nothing is `read`: a limit for each dimension, or the one index."""
    name = target.name if read else source.name
    iters, loop_vars = fresh_axes(func, name, target.extents)
    point = tuple(i.var for i in iters)
    value: Expr = Load(source, point)
    conds = [
        binary("==" if isinstance(here, Const) else "<", var, as_expr(here, var))
        for var, here, extent in zip(point, read, target.extents, strict=False)
        if here != extent and not (isinstance(here, Const) and extent == 1)
    ]
    if conds:
        value = if_then_else(all_of(conds), value, const(0, source.dtype))
    return loops(loop_vars, Block(name, iters, Store(target, point, value)))


def _wider(func: PrimFunc, stmt: Stmt, block: Block, new: Block, wider: Mapping[Var, tuple[Extent, Extent]]) -> Stmt:
    """The nest with `new` for the block, in loops that are wider, under a condition that leaves out what is added.

    Raises ScheduleError (6).
    """
    if stmt is block:
        added = [binary("<", loop, extent_in(func, loop, limit, "6")) for loop, (_, limit) in wider.items()]
        return replace(new, predicate=all_of(added))
    if isinstance(stmt, For) and stmt.var in wider:
        stmt = replace(stmt, extent=extent_in(func, stmt.var, wider[stmt.var][0], "6"))
    return map_children(stmt, lambda child: _wider(func, child, block, new, wider))
