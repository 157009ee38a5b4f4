"""Finding and replacing statements in a function.

Loops are found by the name of their variable and blocks by name, both unique in
a function, so that a name is a stable handle across rewrites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..ir import dtypes
from ..ir.arith.simplify import simplify
from ..ir.context import start
from ..ir.expr import (
    TRUE,
    Buffer,
    Const,
    Expr,
    Extent,
    Load,
    Var,
    as_expr,
    as_index,
    binary,
    can_fail,
    free_variables,
    in_type,
    reads_memory,
    substitute,
)
from ..ir.extents import as_extent
from ..ir.node import Node, rebuild, remembered, transform
from ..ir.ranges import preconditions
from ..ir.stmt import (
    Allocate,
    Attr,
    Block,
    Declare,
    For,
    If,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    fresh,
    map_children,
    names,
    path_to,
    read_buffers,
    seq,
    stmt_children,
    walk_stmts,
)
from ..ir.text import expr_text, extent_text
from .errors import ScheduleError

if TYPE_CHECKING:
    from ..ir.affine.sets import Domain


def replace_stmt(root: Stmt, old: Stmt, new: Stmt) -> Stmt:
    """`root` with the one statement that *is* `old` replaced."""
    if root is old:
        return new
    return map_children(root, lambda child: replace_stmt(child, old, new))


def with_stmt(func: PrimFunc, old: Stmt, new: Stmt) -> PrimFunc:
    """The function with one statement replaced.  Raises ScheduleError where that leaves no root block."""
    body = replace_stmt(func.body, old, new)
    if not isinstance(body, Block):
        raise ScheduleError("nothing stands around the root block")
    return func.with_body(body)


def remove_stmt(func: PrimFunc, old: Stmt) -> PrimFunc:
    """The function without `old` and without the loops that only held it."""
    path = path_to(func.body, old)
    assert path is not None
    gone: Stmt = old
    for parent in reversed(path[:-1]):
        if isinstance(parent, Seq):
            rest = [s for s in parent.stmts if s is not gone]
            return with_stmt(func, parent, seq(rest))
        if isinstance(parent, Block):
            break
        gone = parent
    name = old.name if isinstance(old, Block) else type(old).__name__
    raise ScheduleError("`{name}` is the only statement of its block and cannot be removed", name=name)


def find_block(func: PrimFunc, name: str) -> Block:
    """The block called `name`.  Raises ScheduleError naming the blocks there are."""
    found = _named(func.body, name, Block)
    if isinstance(found, Block):
        return found
    known = ", ".join(s.name for s in walk_stmts(func.body) if isinstance(s, Block))
    raise ScheduleError("there is no block `{name}`; there are {known}", name=name, known=known)


def find_loop(func: PrimFunc, name: str) -> For:
    """The loop over the variable `name`.  Raises ScheduleError naming the loops there are."""
    found = _named(func.body, name, For)
    if isinstance(found, For):
        return found
    known = ", ".join(s.var.name for s in walk_stmts(func.body) if isinstance(s, For))
    raise ScheduleError("there is no loop `{name}`; there are {known}", name=name, known=known)


def _named(stmt: Stmt, name: str, kind: type[Block | For]) -> Stmt | None:
    """The first block or loop called `name` at or below `stmt`; subtrees without the name are skipped."""
    if name not in _places(stmt):
        return None
    if isinstance(stmt, kind) and name == (stmt.name if isinstance(stmt, Block) else stmt.var.name):
        return stmt
    for child in stmt_children(stmt):
        found = _named(child, name, kind)
        if found is not None:
            return found
    return None


@remembered
def _places(stmt: Stmt) -> frozenset[str]:
    """The names of the blocks and loops at or below `stmt`."""
    found = frozenset().union(*map(_places, stmt_children(stmt)))
    if isinstance(stmt, (Block, For)):
        found |= {stmt.name if isinstance(stmt, Block) else stmt.var.name}
    return found


def find_block_or_loop(func: PrimFunc, name: str) -> Block | For:
    """The block, or else the loop, of that name.  Raises ScheduleError naming the blocks there are."""
    try:
        return find_block(func, name)
    except ScheduleError as error:
        try:
            return find_loop(func, name)
        except ScheduleError:
            raise error from None


def loops_above(func: PrimFunc, stmt: Stmt) -> tuple[For, ...]:
    """The loops around `stmt` up to the enclosing block, outermost first."""
    path = path_to(func.body, stmt)
    assert path is not None
    loops: list[For] = []
    for parent in path[:-1]:
        if isinstance(parent, Block):
            loops = []
        elif isinstance(parent, For):
            loops.append(parent)
    return tuple(loops)


def scope_of(func: PrimFunc, stmt: Stmt) -> Block:
    """The innermost block around `stmt`, itself excluded."""
    path = path_to(func.body, stmt)
    assert path is not None
    return [p for p in path[:-1] if isinstance(p, Block)][-1]


def nest_of(func: PrimFunc, stmt: Stmt) -> Stmt:
    """The statement of the enclosing block's sequence that contains `stmt`: its whole loop nest."""
    path = path_to(func.body, stmt)
    assert path is not None
    scope = scope_of(func, stmt)
    below = path[path.index(scope) + 1 :]
    return below[1] if isinstance(below[0], Seq) else below[0]


def blocks_below(stmt: Stmt) -> tuple[Block, ...]:
    """The outermost blocks at or below `stmt`, in program order."""
    if isinstance(stmt, Block):
        return (stmt,)
    return tuple(b for child in stmt_children(stmt) for b in blocks_below(child))


def map_blocks(stmt: Stmt, fn: Callable[[Block], Stmt]) -> Stmt:
    """`fn` on each outermost block at or below `stmt`."""
    if isinstance(stmt, Block):
        return fn(stmt)
    return map_children(stmt, lambda child: map_blocks(child, fn))


def insert_before(func: PrimFunc, anchor: Stmt, new: Stmt) -> PrimFunc:
    return with_stmt(func, anchor, seq([new, anchor]))


def insert_after(func: PrimFunc, anchor: Stmt, new: Stmt) -> PrimFunc:
    return with_stmt(func, anchor, seq([anchor, new]))


def with_alloc(func: PrimFunc, buffer: Buffer) -> PrimFunc:
    """The function with `buffer` allocated in its root block."""
    return func.with_body(replace(func.body, allocs=(*func.body.allocs, buffer)))


def producers(func: PrimFunc, buffer: Buffer) -> tuple[Block, ...]:
    """The innermost blocks that store to `buffer`, in program order."""
    return tuple(b for b in leaf_blocks(func.body) if any(s.buffer == buffer for s in block_stores(b)))


def consumers(func: PrimFunc, buffer: Buffer) -> tuple[Block, ...]:
    """The innermost blocks that load from `buffer` and do not store to it."""
    writers = producers(func, buffer)
    return tuple(b for b in leaf_blocks(func.body) if b not in writers and reads(b, buffer))


@remembered
def leaf_blocks(stmt: Stmt) -> tuple[Block, ...]:
    """Blocks without blocks inside, in program order."""
    found = [s for s in walk_stmts(stmt) if isinstance(s, Block)]
    return tuple(b for b in found if not any(c is not b and isinstance(c, Block) for c in walk_stmts(b)))


def has_plain_bindings(block: Block) -> bool:
    """Whether each iterator is bound to a loop of its own."""
    bound = [i.binding for i in block.iters]
    return bool(bound) and all(isinstance(b, Var) for b in bound) and len(set(bound)) == len(bound)


@remembered
def block_stores(block: Block) -> tuple[Store, ...]:
    """Stores of the body, init excluded."""
    return tuple(s for s in walk_stmts(block.body) if isinstance(s, Store))


def reads(node: Node, buffer: Buffer) -> bool:
    """Whether `node` loads from `buffer`."""
    return buffer in read_buffers(node)


def extent_of(loop: For) -> int:
    """The constant extent of a loop.  Raises ScheduleError when it is not constant."""
    if isinstance(loop.extent, Const):
        return int(loop.extent.value)
    raise ScheduleError(
        "loop `{name}` has the extent `{extent}`, which is not constant",
        name=loop.var.name,
        extent=expr_text(loop.extent),
    )


def limit_of(func: PrimFunc, loop: For) -> Extent:
    """The extent of a loop, a number or an expression of the function's integers.  Raises ScheduleError for another."""
    known = bool(func.stated) and free_variables(loop.extent) <= frozenset(func.integers)
    if not known or reads_memory(loop.extent) or can_fail(loop.extent):
        return extent_of(loop)
    return as_extent(loop.extent)


def extent_in(func: PrimFunc, var: Var, extent: Extent, number: str) -> Expr:
    """The extent of a new loop over `var`, in its type.  Raises ScheduleError (`number`) where that may not hold it."""
    value = as_expr(extent)
    (low, high), wide = dtypes.int_range(var.dtype), as_index(value)
    fits = binary("and", binary("<=", low, wide), binary("<=", wide, high))
    if not dtypes.widens(value.dtype, var.dtype) and not start(func).implies(fits):
        raise ScheduleError("({number}) the type {dtype} of loop `{loop}` is not known to hold its extent `{extent}`",
                            number=number, dtype=var.dtype, loop=var.name, extent=extent_text(extent))  # fmt: skip
    return in_type(value, var.dtype)


def loop_bounds(loops: Sequence[For], func: PrimFunc | None = None) -> dict[Var, tuple[int, int]]:
    """Inclusive bounds of each loop variable, and of the integers of `func` where extents are made of them."""
    if func is None or not func.stated:
        return {loop.var: (0, extent_of(loop) - 1) for loop in loops}
    facts = start(func).facts
    return {loop.var: facts.within(limit_of(func, loop)) for loop in loops} | integer_bounds(func)


def integer_bounds(func: PrimFunc) -> dict[Var, tuple[int, int]]:
    """Inclusive bounds of the integers of a function with extents that are made of them; else nothing."""
    if not func.stated:
        return {}
    facts = start(func).facts
    return {var: facts.interval(var) for var in func.integers}


def running(
    func: PrimFunc, loops: Sequence[For], conditions: Sequence[Expr] = (), more: Sequence[tuple[Var, Extent]] = ()
) -> Domain:
    """The points of `loops`, and of `more` variables with their limits, at which `conditions` hold.

    The integers that extents are made of come first, with what is known of them.
    """
    from ..ir.affine.sets import Domain

    own = tuple((v, None) for v in parameters(func))
    dims = tuple((loop.var, limit_of(func, loop)) for loop in loops)
    return Domain((*own, *dims, *more), (*preconditions(func), *conditions))


def parameters(func: PrimFunc) -> tuple[Var, ...]:
    """The integers that extents are made of."""
    return func.integers if func.stated else ()


def rename_duplicates(func: PrimFunc) -> PrimFunc:
    """Give loops and blocks names that occur once, so that a name is a handle.

    Scripts often use ``i`` in several nests; the second becomes ``i_1``.
    """
    taken: set[str] = set()
    reserved = names(func)

    def claim(name: str) -> str:
        new = name if name not in taken else fresh(name, taken | reserved)
        taken.add(new)
        return new

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            var = Var(claim(stmt.var.name), stmt.var.dtype)
            if var != stmt.var:
                stmt = replace(stmt, var=var, body=substitute(stmt.body, {stmt.var: var}))
        elif isinstance(stmt, Block):
            name = claim(stmt.name)
            if name != stmt.name:
                stmt = replace(stmt, name=name)
        return map_children(stmt, visit)

    body = visit(func.body)
    assert isinstance(body, Block)
    return func if body is func.body else func.with_body(body)


def add_predicate(block: Block, cond: Expr) -> Block:
    """The block with one more conjunct in its predicate."""
    return replace(block, predicate=binary("and", block.predicate, cond))


def guard(stmt: Stmt, cond: Expr) -> Stmt:
    """Let only instances for which `cond` holds run: in the predicates of blocks, else as an If.

    Around what can fail where `cond` does not hold it is an If, too: both sides of ``and`` are evaluated.
    """
    if cond == TRUE:
        return stmt
    if can_fail(_entry(stmt)):
        return If(cond, stmt)
    if isinstance(stmt, Block):
        return add_predicate(stmt, cond)
    if isinstance(stmt, If) and stmt.orelse is None:
        return If(binary("and", cond, stmt.cond), stmt.then)
    holds_blocks = isinstance(stmt, (For, Allocate, Declare, Attr, Seq)) and bool(blocks_below(stmt))
    if holds_blocks or isinstance(stmt, Let):
        return map_children(stmt, lambda child: guard(child, cond))
    return If(cond, stmt)


def _entry(stmt: Stmt) -> Expr:
    """What is evaluated on the way into a statement."""
    if isinstance(stmt, Block):
        return stmt.predicate
    if isinstance(stmt, If):
        return stmt.cond
    if isinstance(stmt, For):
        return stmt.extent
    return stmt.value if isinstance(stmt, Let) else TRUE


def substitute_loops(stmt: Stmt, mapping: dict[Var, Expr], bounds: dict[Var, tuple[int, int]]) -> Stmt:
    """Replace loop variables below `stmt` and simplify the expressions that held them.

    `bounds` are those of the variables in the replacements; loops and iterators below add their own.
    Bindings of index arithmetic that change are written out.
    """

    mapping = dict(mapping)

    def rewrite(expr: Expr, known: dict[Var, tuple[int, int]]) -> Expr:
        if free_variables(expr).isdisjoint(mapping):
            return expr
        result: Expr = simplify(_simple_indices(substitute(expr, mapping), known), known)
        return result

    def visit(item: Stmt, known: dict[Var, tuple[int, int]]) -> Stmt:
        if free_variables(item).isdisjoint(mapping):
            return item
        inner = known
        if isinstance(item, For) and isinstance(item.extent, Const):
            inner = {**known, item.var: (0, int(item.extent.value) - 1)}
        elif isinstance(item, Block):
            inner = {**known, **{i.var: i.span for i in item.iters}}
            bindings = [rewrite(i.binding, known) for i in item.iters]
            pairs = zip(item.iters, bindings, strict=True)
            iters = tuple(i if b is i.binding else replace(i, binding=b) for i, b in pairs)
            item = replace(item, iters=iters, predicate=rewrite(item.predicate, known))
            return map_children(item, lambda child: visit(child, inner))
        elif isinstance(item, Let) and dtypes.is_int(item.var.dtype) and not reads_memory(item.value):
            value = rewrite(item.value, known)
            if value is not item.value:
                mapping[item.var] = value
                return visit(item.body, known)

        def part(child: Node) -> Node:
            if isinstance(child, Stmt):
                return visit(child, inner)
            return rewrite(child, inner) if isinstance(child, Expr) else child

        result: Stmt = rebuild(item, part)
        return result

    return visit(stmt, bounds)


def _simple_indices(expr: Expr, known: dict[Var, tuple[int, int]]) -> Expr:
    """Simplify the indices of loads, also in ``buf[i] == undef``, which is left alone as a whole."""

    def visit(node: Node) -> Node:
        return Load(node.buffer, tuple(simplify(i, known) for i in node.indices)) if isinstance(node, Load) else node

    result: Expr = transform(expr, visit)
    return result
