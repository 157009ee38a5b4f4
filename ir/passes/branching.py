"""``remove_overcompute_through_branching``: leave out instances that work on padding alone.

The conditions that are tried come from known contents:

- *reads*: "this load is not of padding", where the buffer holds a known pad value;
- *writes*: "this element does not get its final padding later", where a later store gives
  it a constant or `undef`.

A condition goes where all its variables are bound: into a block's predicate, around the
body of a bare loop, or around single stores.  It is put in where the instances that
vanish are harmless, so that an implicit writer of padding is never lost.

Of the loops of a *tile*, all iterations run or none: the condition is then "some load of the
tile is not of padding", over the loops around it, so that nothing is tested inside.

Source: RFC 0077, "Remove Overcompute Through Branching".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..affine.guard import NotAffine, Unknown
from ..affine.sets import Domain, IntSet, points
from ..arith.simplify import simplify
from ..dataflow.accesses import Access, element_variables
from ..dataflow.contents import held, reading
from ..dataflow.harmless import Change, vanishing
from ..dataflow.instances import Program, Statement, instances
from ..dataflow.writers import writers
from ..expr import FALSE, TRUE, Const, Expr, Undef, Var, binary, substitute, variables
from ..node import Node, walk
from ..stmt import Block, For, If, PrimFunc, Seq, Stmt, Store, stmt_children
from .overcompute import Refusal
from .positions import at, position, with_statement


def remove_overcompute_through_branching(func: PrimFunc) -> PrimFunc:
    """``S`` -> ``if c: S`` for each condition ``c`` from known padding that is proven harmless."""
    return branch(func, func.body)[0]


def branch(func: PrimFunc, within: Stmt, tile: Sequence[Var] = ()) -> tuple[PrimFunc, list[Refusal]]:
    """Put conditions on the statements at or below `within`, and say why others stay out.

    With the loops of a `tile`, conditions do not depend on these, and are about reads alone.
    """
    root = position(func.body, within)
    refused: dict[tuple[tuple[int, ...], Expr], Refusal] = {}
    while True:
        for place, cond in _candidates(func, root, tile):
            if (place, cond) in refused:
                continue
            program = instances(func)
            changes = [Change(s, s.resolve(cond)) for s in program.below(at(func.body, place))]
            harm = vanishing(program, changes)
            refusal = None if harm is None else Refusal(cond, harm, "stays out")
            if refusal is None:
                func = with_statement(func, place, _guarded(at(func.body, place), cond))
                break
            refused[place, cond] = refusal
        else:
            return func, list(refused.values())


def _guarded(stmt: Stmt, cond: Expr) -> Stmt:
    if isinstance(stmt, Block):
        return replace(stmt, predicate=binary("and", stmt.predicate, cond))
    if isinstance(stmt, If) and stmt.orelse is None:
        return If(binary("and", stmt.cond, cond), stmt.then)
    return If(cond, stmt)


# ---------------------------------------------------------------- candidates


def _candidates(func: PrimFunc, root: tuple[int, ...], tile: Sequence[Var]) -> Iterator[tuple[tuple[int, ...], Expr]]:
    """Places with conditions to try there, the widest first."""
    program = instances(func)
    within = at(func.body, root)
    found: dict[Expr, Statement] = {}
    for statement in program.below(within):
        if isinstance(statement.stmt, Store) and not statement.is_init:
            for cond in _conditions(program, statement, tile):
                found.setdefault(cond, statement)
    for cond, statement in found.items():
        for place in _places(root, statement, cond):
            yield place, cond


def _conditions(program: Program, statement: Statement, tile: Sequence[Var]) -> Iterator[Expr]:
    """Conditions over the loops of a store that some of its instances violate."""
    write = statement.write
    try:
        if write is not None and not write.whole and not tile:
            yield from _from_writes(program, statement, write)
        for access in statement.loads(statement.value):
            if not access.whole and (write is None or access.buffer != write.buffer):
                yield from _from_reads(program, statement, access, tile)
    except (NotAffine, Unknown):
        return


def _from_writes(program: Program, statement: Statement, write: Access) -> Iterator[Expr]:
    for writer in writers(program, write.buffer):
        if writer.number > statement.number and writer.exact and not _owned(program, writer.owners):
            for piece in writer.pieces:
                if isinstance(piece.value, (Const, Undef)) and writer.indices is not None:
                    names, own = element_variables(write.buffer), _parameters(program)
                    stored = points(writer.domain.where(*piece.conditions))
                    later = stored.image((*own, *writer.indices), (*own, *names))
                    yield from _outside(program, statement, write, later)


def _from_reads(program: Program, statement: Statement, access: Access, tile: Sequence[Var]) -> Iterator[Expr]:
    for _, where in held(program, reading(statement, access)).values:
        names, own = element_variables(access.buffer), _parameters(program)
        yield from _outside(program, statement, access, where.image((*own, *access.indices), (*own, *names)), tile)


def _parameters(program: Program) -> tuple[Var, ...]:
    """The parameters that extents are made of: elements are compared for the same values of them."""
    return program.parameters if program.given else ()


def _owned(program: Program, owners: Sequence[Var]) -> bool:
    """Whether iterations have memory of their own."""
    return not set(owners) <= set(_parameters(program))


def _outside(
    program: Program, statement: Statement, access: Access, elements: IntSet, tile: Sequence[Var] = ()
) -> Iterator[Expr]:
    """The condition that the element is none of these, over the loops; of a tile some element, unless it is trivial."""
    own, names = _parameters(program), element_variables(access.buffer)
    dims = (*((v, None) for v in own), *zip(names, access.buffer.extents, strict=True))
    whole = points(Domain(dims, program.given))
    rest = whole.subtract(elements)
    cond = rest.condition(whole)
    placed: Expr = simplify(substitute(cond, dict(zip(names, access.indices, strict=True))), statement.bounds)
    everything = points(statement.domain)
    if placed in (TRUE, FALSE) or everything.where(placed).is_equal(everything):
        return
    kept = everything.where(placed)
    if tile:
        inside = [v for v in kept.variables if v in tile]
        kept, everything = kept.project_out(inside), everything.project_out(inside)
        if not kept.is_equal(everything):
            yield kept.condition(everything)
        return
    given = kept.condition(everything)
    yield given if _size(given) < _size(placed) else placed


def _size(node: Node) -> int:
    return sum(1 for _ in walk(node))


def _places(root: tuple[int, ...], statement: Statement, cond: Expr) -> Iterator[tuple[int, ...]]:
    """The places where a condition may stand, outermost first: from where its variables are bound to the store."""
    bound: set[Var] = set(statement.parameters)
    place: tuple[int, ...] = ()
    needed = variables(cond)
    for outer, inner in zip(statement.path, statement.path[1:], strict=False):
        if isinstance(outer, For):
            bound.add(outer.var)
        if isinstance(outer, Block) and outer.iters:
            return  # the loops around are not visible inside a block with iterators
        place = (*place, next(k for k, c in enumerate(stmt_children(outer)) if c is inner))
        if place[: len(root)] == root and needed <= bound and (isinstance(outer, For) or not isinstance(inner, Seq)):
            yield place
