"""What a buffer is known to hold at a point of the program.

Knowledge lives in the program: in stores that write constants or `undef`, and in
`assume` statements.  `contents` reads it off the writers that stand before a
block, as pieces: on the physical indices that satisfy a condition, the buffer
holds a constant, anything (`undef`), or computed data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.affine.index_map import IndexMap
from ..ir.arith.simplify import simplify
from ..ir.expr import (
    TRUE,
    Binary,
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Not,
    Undef,
    Var,
    all_of,
    as_expr,
    binary,
    conjuncts,
    substitute,
)
from ..ir.stmt import Assume, Block, PrimFunc, Store
from .tree import block_stores, leaf_blocks, loop_bounds, loops_above


@dataclass(frozen=True)
class Piece:
    """Where `condition` holds over the index variables, `value` is held; None means computed data."""

    condition: Expr
    value: Const | Undef | None


@dataclass(frozen=True)
class Contents:
    """Pieces over `indices`; their conditions cover what has been written."""

    indices: tuple[Var, ...]
    pieces: tuple[Piece, ...]

    def at(self, point: Sequence[Expr]) -> tuple[Piece, ...]:
        """The pieces with their conditions at one access."""
        mapping = dict(zip(self.indices, point, strict=True))
        return tuple(Piece(substitute(p.condition, mapping), p.value) for p in self.pieces)

    def initialised(self, point: Sequence[Expr]) -> Expr:
        """The condition under which an access reads something that was written."""
        result: Expr | None = None
        for piece in self.at(point):
            result = piece.condition if result is None else binary("or", result, piece.condition)
        return as_expr(False) if result is None else result


def contents(func: PrimFunc, block: Block, buffer: Buffer) -> Contents:
    """What `buffer` holds when an instance of `block` reads it.

    Only writers before the block in program order count; of one that shares loops with
    the block, what it wrote in the same iteration.  A constant is known only where no
    other writer, before or after, may have put something else.  Parameters hold data
    where nothing is assumed.
    """
    indices = tuple(Var(f"p{d}") for d in range(len(buffer.shape)))
    writers = [b for b in leaf_blocks(func.body) if any(s.buffer == buffer for s in block_stores(b))]
    before = {b.name for b in leaf_blocks(func.body)[: _position(func, block)]}
    known = [_written(func, w, buffer, indices, block) for w in writers if w.name in before]
    finished = all(w.name in before for w in writers)
    if buffer in func.params:
        known = [_assumed(func, buffer, indices), *known]
    pieces = [p for own in known for p in own]
    if len(known) > 1 or not finished:
        pieces = [
            p
            if not isinstance(p.value, Const) or (finished and _is_last(p, known, buffer, indices))
            else Piece(p.condition, None)
            for p in pieces
        ]
    return Contents(indices, tuple(pieces))


def _position(func: PrimFunc, block: Block) -> int:
    names = [b.name for b in leaf_blocks(func.body)]
    return names.index(block.name)


def _is_last(piece: Piece, known: Sequence[Sequence[Piece]], buffer: Buffer, indices: tuple[Var, ...]) -> bool:
    """Whether no piece of another writer overlaps with this one."""
    from ..ir.affine.sets import Domain, NotAffine, Unknown, find_point

    dims = tuple(zip(indices, buffer.shape, strict=True))
    if not all(known):
        return False  # what some writer touches is not known at all
    others = [p for own in known if piece not in own for p in own]
    try:
        return all(find_point(Domain(dims, (piece.condition, other.condition))) is None for other in others)
    except (NotAffine, Unknown):
        return False


def _written(func: PrimFunc, writer: Block, buffer: Buffer, indices: tuple[Var, ...], reader: Block) -> list[Piece]:
    """The pieces of one writer, as `reader` finds them."""
    result: list[Piece] = []
    around = {loop.var for loop in loops_above(func, reader)}
    shared = tuple(loop.var for loop in loops_above(func, writer) if loop.var in around)
    for store in block_stores(writer):
        if store.buffer == buffer:
            domain = (
                _affine_domain(func, writer, store, indices, shared)
                if shared
                else _store_domain(func, writer, store, indices)
            )
            if domain is not None:
                back, condition = domain
                result.extend(_pieces(substitute(store.value, back), condition))
    return result


def _store_domain(
    func: PrimFunc, writer: Block, store: Store, indices: tuple[Var, ...]
) -> tuple[dict[Var, Expr], Expr] | None:
    """The writer's iterators in terms of the indices, and the condition of having been written.

    Covers stores whose indices are iterators, each at most once, or constants.
    """
    back: dict[Var, Expr] = {}
    conditions: list[Expr] = []
    extents = {i.var: i.extent for i in writer.iters}
    for index, var in zip(store.indices, indices, strict=True):
        if isinstance(index, Var) and index in extents and index not in back:
            back[index] = var
            conditions += [binary(">=", var, 0), binary("<", var, extents[index])]
        elif isinstance(index, Const):
            conditions.append(binary("==", var, index))
        else:
            return _affine_domain(func, writer, store, indices)
    predicate = _predicate_over_iters(func, writer, back)
    if predicate is None:
        return _affine_domain(func, writer, store, indices)
    return back, all_of([*conditions, *conjuncts(predicate)])


def _predicate_over_iters(func: PrimFunc, writer: Block, back: dict[Var, Expr]) -> Expr | None:
    """A block's predicate over the indices, if it only bounds what the iterators' extents bound, or binds plainly."""
    bounds = loop_bounds(loops_above(func, writer))
    rest: list[Expr] = []
    by_binding = {i.binding: i for i in writer.iters}
    for cond in conjuncts(writer.predicate):
        implied = any(
            simplify(binary("<", i.binding, i.extent), bounds) == cond or cond == binary("<", i.binding, i.extent)
            for i in writer.iters
        )
        if not implied:
            rest.append(cond)
    if not rest:
        return TRUE
    plain = {b: back[i.var] for b, i in by_binding.items() if isinstance(b, Var) and i.var in back}
    mapping = {b: e for b, e in plain.items() if isinstance(b, Var)}
    from .tree import free_variables

    if all(free_variables(c) <= set(mapping) for c in rest):
        return all_of([substitute(c, mapping) for c in rest])
    return None


def _affine_domain(
    func: PrimFunc, writer: Block, store: Store, indices: tuple[Var, ...], shared: tuple[Var, ...] = ()
) -> tuple[dict[Var, Expr], Expr] | None:
    """The written indices of a store with affine indices, as an exact set; the values are then unknown data.

    With `shared` loops, the indices written in one iteration of these: a condition over both.
    """
    from ..ir.affine.sets import Domain, NotAffine, Unknown, points

    loops = loops_above(func, writer)
    bindings = {i.var: i.binding for i in writer.iters}
    dims = tuple((loop.var, int(hi) + 1) for loop, (_, hi) in zip(loops, loop_bounds(loops).values(), strict=True))
    try:
        source = points(Domain(dims, tuple(conjuncts(writer.predicate))))
        image = source.image([*shared, *(substitute(i, bindings) for i in store.indices)], (*shared, *indices))
        condition = image.condition()
    except (NotAffine, Unknown):
        return None
    return {i.var: Call("opaque", (), i.var.dtype) for i in writer.iters}, condition


def _pieces(value: Expr, condition: Expr) -> list[Piece]:
    """Split a stored value at its outer conditionals."""
    if isinstance(value, Call) and value.name == "if_then_else":
        cond, then, orelse = value.args
        return _pieces(then, binary("and", condition, cond)) + _pieces(orelse, binary("and", condition, negate(cond)))
    return [Piece(condition, value if isinstance(value, (Const, Undef)) else None)]


def _assumed(func: PrimFunc, buffer: Buffer, indices: tuple[Var, ...]) -> list[Piece]:
    """What is assumed of a parameter, and data elsewhere; its unassumed padding may not be read."""
    pieces: list[Piece] = []
    padding = as_expr(False)
    for block in leaf_blocks(func.body):
        if isinstance(block.body, Assume):
            found = _assumption(block, buffer, indices)
            if found is not None:
                pieces.append(found)
                padding = binary("or", padding, found.condition)
    forbidden = layout_padding(func, buffer, indices)
    inside = all_of([c for p, e in zip(indices, buffer.shape, strict=True) for c in (p >= 0, p < e)])
    data = binary("and", inside, negate(binary("or", padding, forbidden)))
    return [*pieces, Piece(data, None)]


def _assumption(block: Block, buffer: Buffer, indices: tuple[Var, ...]) -> Piece | None:
    """``assume(not padding(p) or buffer[p] == k)`` as a piece on ``padding``."""
    assert isinstance(block.body, Assume)
    cond = block.body.cond
    where: Expr = TRUE
    if isinstance(cond, Binary) and cond.op == "or":
        where, cond = negate(cond.a), cond.b
    if not (isinstance(cond, Binary) and cond.op == "==" and isinstance(cond.a, Load)) or cond.a.buffer != buffer:
        return None
    if not isinstance(cond.b, (Const, Undef)) or not all(isinstance(i, Var) for i in cond.a.indices):
        return None
    mapping = {i: p for i, p in zip(cond.a.indices, indices, strict=True) if isinstance(i, Var)}
    return Piece(substitute(where, mapping), cond.b)


def layout_padding(func: PrimFunc, buffer: Buffer, indices: tuple[Var, ...]) -> Expr:
    """The physical indices of a parameter without a logical element; false without a layout."""
    for layout in func.layouts:
        if layout.param == buffer.name:
            return padding_condition(IndexMap.parse(layout.index_map), layout.logical_shape, buffer.shape, indices)
    return as_expr(False)


def padding_condition(
    index_map: IndexMap, shape: Sequence[int], physical: Sequence[int], indices: Sequence[Var]
) -> Expr:
    """The condition over `indices` of being padding of a layout."""
    return index_map.non_surjective_inverse(tuple(shape), tuple(physical))[1].at(indices)


_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}


def negate(cond: Expr) -> Expr:
    """The opposite of an integer condition, pushed down to its comparisons."""
    if isinstance(cond, Const):
        return as_expr(not cond.value)
    if isinstance(cond, Not):
        return cond.a
    if isinstance(cond, Binary) and cond.op in _OPPOSITE and "float" not in cond.a.dtype:
        return Binary(_OPPOSITE[cond.op], cond.a, cond.b)
    if isinstance(cond, Binary) and cond.op in ("and", "or"):
        return binary("or" if cond.op == "and" else "and", negate(cond.a), negate(cond.b))
    return Not(cond)
