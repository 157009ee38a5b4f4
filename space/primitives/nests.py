"""Whole loop nests: any injective affine change of loops, and separation into several nests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...ir import dtypes
from ...ir.affine.sets import Domain, NotAffine, Relation, Unknown, access_map, implies, is_affine
from ...ir.arith.simplify import simplify
from ...ir.arith.widening import narrow_index
from ...ir.dataflow.instances import Statement
from ...ir.dataflow.order import Time
from ...ir.expr import (
    TRUE,
    Binary,
    Const,
    Expr,
    Var,
    all_of,
    as_expr,
    as_index,
    as_int,
    binary,
    conjuncts,
    reads_memory,
    substitute,
    variables,
)
from ...ir.layout.index_map import IndexMap
from ...ir.node import children, walk
from ...ir.stmt import (
    Block,
    For,
    If,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    fresh,
    memories_read,
    memories_written,
    names,
    path_to,
    seq,
    stmt_children,
    walk_stmts,
)
from ...ir.verify.rules import VerifyError, verify
from ..errors import ScheduleError
from ..nest import (
    Nest,
    any_order,
    check_order,
    check_rectangular,
    check_still_concurrent,
    depth_of,
    enclosing_bounds,
    perfect_nest,
)
from ..primitive import Result, primitive
from ..tree import extent_of, find_loop, guard, substitute_loops, with_stmt
from .loops import counting, split


@primitive
def transform_loops(
    func: PrimFunc, loops: Sequence[str], index_map: Any, extents: Sequence[int] | None = None
) -> Result:
    """``for x in X: S(x)`` -> ``for y in Y: if y in f(X): S(f^-1(y))``, with y in the order of the map's indices.

    `loops` are those of one perfect nest, the outermost first, with none left out between
    them; Y is the box of `extents`, by default the least that holds the image.  Skewing,
    offsets and tilings are maps like any other: ``lambda i, f: [(i + f) // 4, (i + f) % 4, f]``.
    Of the types of the loops, the new ones have that which counts furthest; the map is computed in the index type.
    Conditions: (1) the loops are a perfect nest in this order, of constant extents, but for those that are an index by
    themselves and in no other one, or the two digits ``i // 4, i % 4`` of one number, where no `extents` are given;
    (2) the map is affine and injective on the instances that run; (3) `extents` holds its image, and the type each of
    them; (4) no two instances that touch one element change their order, unless both are updates by one associative
    operation; (5) an init still comes before what it initialises.
    Returns the new loops, outermost first.
    """
    nest = perfect_nest(func, loops)
    if [v.name for v in nest.variables] != list(loops):
        raise ScheduleError(
            "(1) the nest has the loops {known} in this order, but got {given}",
            known=[v.name for v in nest.variables],
            given=list(loops),
        )
    check_rectangular(nest)
    mapping = IndexMap.make(index_map, len(nest.loops))
    for number, loop in enumerate(nest.loops if extents is None else ()):
        digits = None if isinstance(loop.extent, Const) else _digits(mapping, number)
        if digits is not None:
            high, low, step = digits
            func, parts = split(func, loop.var.name, [None, step])
            each = [parts if other is loop else [other.var.name] for other in nest.loops]
            given = {v: Var(own[0]) for v, own in zip(mapping.variables, each, strict=True)}
            made_of = {high: Var(parts[0]), low: Var(parts[1])}
            moved_to = (made_of.get(k, substitute(e, given)) for k, e in enumerate(mapping.indices))
            over = tuple(Var(name) for own in each for name in own)
            return transform_loops(func, [v.name for v in over], IndexMap(over, tuple(moved_to)))
    images = mapping.map_indices(nest.variables)
    kept = {loop.var: loop.extent for loop in _staying(nest, images)} if extents is None else {}
    changed = replace(nest, loops=tuple(loop for loop in nest.loops if loop.var not in kept))
    moved = tuple(image for image in images if image not in kept)
    sizes, inverse, new_vars = _invert(func, changed, moved, extents)
    outer = nest.loops[0]
    if not any_order(nest):
        start = 2 * depth_of(func, outer)
        inner = start + 2 * len(nest.loops)

        def time(statement: Statement) -> Time:
            return (*statement.schedule[: start + 1], *images, *statement.schedule[inner:])

        check_order(func, outer, time, 4)
    body = _new_body(func, changed, moved, sizes, inverse, new_vars)
    made = iter((var, as_expr(size, var)) for var, size in zip(new_vars, sizes, strict=True))
    order = [(i, kept[i]) if isinstance(i, Var) and i in kept else next(made) for i in images]
    for var, extent in reversed(order):
        body = For(var, extent, body)
    assert isinstance(body, For)
    result = with_stmt(func, outer, replace(body, annotations=outer.annotations))
    _check_init(result, nest.body)
    return result, [var.name for var, _ in order]


def _digits(mapping: IndexMap, number: int) -> tuple[int, int, int] | None:
    """The places of ``x // c`` and ``x % c`` among the indices, and c, where x, given by number, is in no other one."""
    x, places, steps = mapping.variables[number], dict[str, int](), set[int]()
    for place, index in enumerate(mapping.indices):
        if x not in variables(index):
            continue
        if not (isinstance(index, Binary) and index.a == x and isinstance(index.b, Const)) or index.op in places:
            return None
        places[index.op] = place
        steps.add(as_int(index.b))
    return (places["//"], places["%"], steps.pop()) if places.keys() == {"//", "%"} and len(steps) == 1 else None


def _staying(nest: Nest, images: Sequence[Expr]) -> list[For]:
    """The loops of an unknown extent that are an index by themselves and are in no other one, where there are more."""
    found = []
    for loop in nest.loops:
        used = [image for image in images if loop.var in variables(image)]
        if not isinstance(loop.extent, Const) and used == [loop.var]:
            found.append(loop)
    return found if len(found) < len(nest.loops) else []


def _executed(nest: Nest) -> Domain:
    """The instances of the loops that can do anything: conditions that stand alone below count too."""
    conditions = list(nest.conditions)
    body = nest.body
    while True:
        if isinstance(body, Let) and not reads_memory(body.value):
            body = substitute(body.body, {body.var: body.value})
        elif isinstance(body, If) and body.orelse is None:
            conditions += conjuncts(body.cond)
            body = body.then
        else:
            break
    if isinstance(body, Block):
        conditions += conjuncts(body.predicate)
    known = frozenset(nest.variables)
    dims = tuple((loop.var, extent_of(loop)) for loop in nest.loops)
    return Domain(dims, tuple(c for c in conditions if is_affine(c, known)))


def _invert(
    func: PrimFunc, nest: Nest, images: tuple[Expr, ...], extents: Sequence[int] | None
) -> tuple[list[int], dict[Var, Expr], list[Var]]:
    """Conditions (2) and (3): the extents, the old loops in terms of the new ones in the index type, the new ones."""
    taken = names(func)
    new_vars: list[Var] = []
    for place, image in enumerate(images):
        base = image.name if isinstance(image, Var) else f"{nest.variables[0].name}_{place}"
        new_vars.append(Var(fresh(base, taken - {v.name for v in nest.variables}), counting(nest.variables)))
        taken.add(new_vars[-1].name)
    try:
        relation = access_map(_executed(nest), images, new_vars)
        pair = relation.collision()
        if pair is not None:
            raise ScheduleError("(2) the map is not injective: {a} and {b} have one image", a=pair[0], b=pair[1])
        sizes = _extents(relation, extents, len(images))
        if max(sizes) > dtypes.int_range(new_vars[0].dtype)[1]:
            raise ScheduleError("(3) the type {dtype} of the loops does not hold the extents {sizes}",
                                dtype=new_vars[0].dtype, sizes=sizes)  # fmt: skip
        inverse = relation.inverse()
    except NotAffine as error:
        raise ScheduleError("(2) the map is not affine: {error}", error=str(error)) from None
    except Unknown as error:
        raise ScheduleError("(2) whether the map is injective is unknown: {error}", error=str(error)) from None
    bounds = {v: (0, n - 1) for v, n in zip(new_vars, sizes, strict=True)}
    return sizes, {x: simplify(e, bounds) for x, e in zip(nest.variables, inverse, strict=True)}, new_vars


def _extents(relation: Relation, extents: Sequence[int] | None, rank: int) -> list[int]:
    image = relation.image()
    if image.is_empty():
        raise ScheduleError("(3) no instance of the loops runs")
    low = [image.minimum(k) for k in range(rank)]
    least = [image.maximum(k) + 1 for k in range(rank)]
    if min(low) < 0:
        raise ScheduleError("(3) the image begins at {low}", hint="add an offset", low=low)
    sizes = least if extents is None else [int(e) for e in extents]
    if len(sizes) != rank or any(s < e for s, e in zip(sizes, least, strict=True)):
        raise ScheduleError(
            "(3) the extents {sizes} do not hold the image, which needs {least}", sizes=sizes, least=least
        )
    return sizes


def _new_body(
    func: PrimFunc,
    nest: Nest,
    images: tuple[Expr, ...],
    sizes: Sequence[int],
    inverse: dict[Var, Expr],
    new_vars: Sequence[Var],
) -> Stmt:
    bounds = {v: (0, n - 1) for v, n in zip(new_vars, sizes, strict=True)}
    known = {**enclosing_bounds(func, nest.loops[0]), **bounds}
    conditions = [substitute(c, inverse) for c in nest.conditions]
    cond = simplify(all_of([_image_condition(nest, images, inverse, bounds), *conditions]), known)
    narrow: dict[Var, Expr] = {x: narrow_index(value, x.dtype, known) for x, value in inverse.items()}
    return guard(substitute_loops(nest.body, narrow, known), cond)


def _image_condition(
    nest: Nest, images: tuple[Expr, ...], inverse: dict[Var, Expr], bounds: dict[Var, tuple[int, int]]
) -> Expr:
    """``f^-1(y) in X and f(f^-1(y)) == y``, without what the loops' bounds or the first part imply."""
    inside: Expr = TRUE
    for loop in nest.loops:
        value = inverse[loop.var]
        for cond in (binary("<=", 0, value), binary("<", value, extent_of(loop))):
            inside = binary("and", inside, simplify(cond, bounds))
    domain = Domain(tuple((v, high + 1) for v, (_, high) in bounds.items()), conjuncts(inside))
    for var, image in zip(bounds, images, strict=True):
        same = simplify(binary("==", as_index(substitute(image, inverse)), as_index(var)), bounds)
        if same != TRUE and implies(domain, same) is not True:
            inside = binary("and", inside, same)
            domain = domain.where(same)
    return inside


def _check_init(func: PrimFunc, body: Stmt) -> None:
    """Condition (5), which only a block with an init can break."""
    if not any(isinstance(n, Block) and n.init is not None for n in walk(body)):
        return
    try:
        verify(func)
    except VerifyError as error:
        raise ScheduleError("(5) {error}", hint="decompose the reduction first", error=str(error)) from None


@primitive
def distribute(func: PrimFunc, loop: str, position: int) -> Result:
    """``for i: (S; T)`` -> ``for i: S`` then ``for i': T``; the first `position` statements make up ``S``.

    The statements are those of the first sequence below `loop`; the loops, conditions,
    bindings and blocks on the way to it are repeated around both parts.
    Conditions: (1) there is such a sequence, and it has more than `position` > 0 statements; (2) no
    instance of ``T`` writes what a later one of ``S`` touches, or reads what it writes, and no
    extent, predicate or binding on the way to them reads what they write; (3) concurrent loops may still be so,
    though what an iteration wrote for itself in ``S`` is read in ``T``.
    Returns the outermost loop of the second part.
    """
    outer = find_loop(func, loop)
    func, _, second = separate(func, outer, position, "rest", copy_first=False)
    return func, next(s for s in walk(second) if isinstance(s, For)).var.name


@primitive
def move_before(func: PrimFunc, loop: str, anchor: str) -> Result:
    """``S; T; for i: U`` -> ``for i: U; S; T``, where `anchor` is the outermost loop of ``S``.

    Conditions: (1) both loops stand in one sequence, `loop` after `anchor`; (2) no instance of
    ``U`` touches an element that ``S`` or ``T`` writes, or writes one that they touch.
    """
    moved, place = find_loop(func, loop), find_loop(func, anchor)
    path = path_to(func.body, moved)
    assert path is not None
    parent = path[-2]
    order = list(parent.stmts) if isinstance(parent, Seq) else []
    start, end = (next((k for k, s in enumerate(order) if s is item), -1) for item in (place, moved))
    if not 0 <= start < end:
        raise ScheduleError(
            "(1) loop `{loop}` does not stand after `{anchor}` in one sequence", loop=loop, anchor=anchor
        )
    stmts = [*order[:start], moved, *order[start:end], *order[end + 1 :]]

    def time(statement: Statement) -> Time:
        return (next(k for k, s in enumerate(stmts) if statement.below(s)), *statement.schedule)

    check_order(func, parent, time, 2)
    return with_stmt(func, parent, seq(stmts)), None


def separate(func: PrimFunc, top: Stmt, position: int, suffix: str, *, copy_first: bool) -> tuple[PrimFunc, Stmt, Stmt]:
    """`distribute` everything from `top` on, and the two parts.

    The loops and blocks of one part keep their names, those of the other get `suffix`.
    Raises ScheduleError (1) to (3).
    """
    chain, cut = chain_to_sequence(top)
    if not 0 < position < len(cut.stmts):
        raise ScheduleError(
            "(1) `position` must lie between 0 and the {count} statements, but got {position}",
            count=len(cut.stmts),
            position=position,
        )
    head, tail = cut.stmts[:position], cut.stmts[position:]

    def time(statement: Statement) -> Time:
        return (0 if any(statement.below(s) for s in head) else 1, *statement.schedule)

    check_order(func, top, time, 2)
    _check_way(chain, cut)
    taken = names(func)
    first = _around(chain, seq(head), suffix if copy_first else "", taken)
    second = _around(chain, seq(tail), "" if copy_first else suffix, taken)
    result = with_stmt(func, top, seq([first, second]))
    check_still_concurrent(result, [s for s in walk_stmts(seq([first, second])) if isinstance(s, For)], "3")
    return result, first, second


def _check_way(chain: Sequence[Stmt], cut: Seq) -> None:
    """Condition (2): what both parts evaluate on the way to them has one value for both."""
    written = memories_written(cut)
    for stmt in chain:
        for part in (c for c in children(stmt) if not isinstance(c, Stmt)):
            for name in sorted(memories_read(part) & written):
                raise ScheduleError("(2) `{buffer}` is read on the way to the statements that write it", buffer=name)


def chain_to_sequence(top: Stmt) -> tuple[list[Stmt], Seq]:
    """The loops, conditions, bindings and blocks from `top` down to the first sequence.  Raises ScheduleError (1)."""
    chain: list[Stmt] = []
    stmt = top
    while not isinstance(stmt, Seq):
        passes = (
            isinstance(stmt, For)
            or (isinstance(stmt, If) and stmt.orelse is None and not reads_memory(stmt.cond))
            or (isinstance(stmt, Let) and not reads_memory(stmt.value))
            or (isinstance(stmt, Block) and stmt.init is None and not stmt.allocs)
        )
        if not passes:
            raise ScheduleError("(1) there are no statements to separate")
        chain.append(stmt)
        (stmt,) = stmt_children(stmt)
    return chain, stmt


def _around(chain: Sequence[Stmt], body: Stmt, suffix: str, taken: set[str]) -> Stmt:
    """`body` inside the chain; with a suffix, variables and blocks get names of their own."""
    for item in reversed(chain):
        if isinstance(item, If):
            body = If(item.cond, body)
            continue
        assert isinstance(item, (For, Let, Block))
        body = replace(item, body=body)
        if suffix:
            body = _renamed(body, suffix, taken)
    return body


def _renamed(stmt: For | Let | Block, suffix: str, taken: set[str]) -> Stmt:
    """`stmt` with fresh names for the variables that it binds, and for itself if it is a block; `taken` gets them."""

    def own(var: Var) -> Var:
        made = replace(var, name=fresh(f"{var.name}_{suffix}", taken))
        taken.add(made.name)
        return made

    if isinstance(stmt, (For, Let)):
        var = own(stmt.var)
        return replace(stmt, var=var, body=substitute(stmt.body, {stmt.var: var}))
    name = fresh(f"{suffix}_{stmt.name}", taken)
    taken.add(name)
    iters = tuple(replace(i, var=own(i.var)) for i in stmt.iters)
    variables: dict[Var, Expr] = {a.var: b.var for a, b in zip(stmt.iters, iters, strict=True)}
    return replace(stmt, name=name, iters=iters, body=substitute(stmt.body, variables))
