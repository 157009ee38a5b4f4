"""sequential_buffer_access: loops in the order in which a buffer lies in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import prod

from ...ir import dtypes
from ...ir.affine.sets import Domain, NotAffine, Unknown, access_map
from ...ir.arith.simplify import simplify
from ...ir.arith.widening import over_indices
from ...ir.dataflow.instances import Statement, instances
from ...ir.dataflow.order import update_op
from ...ir.expr import Const, Expr, Load, Var, as_index, free_variables, substitute
from ...ir.layout.digits import components
from ...ir.node import walk
from ...ir.stmt import Block, For, PrimFunc, Stmt, Store, path_to, stmt_children, stores, walk_stmts
from ...ir.text import expr_text
from ..errors import ScheduleError
from ..primitive import Result
from ..tree import extent_of, find_block, find_loop
from ..wrappers import Rewritable, Unrecorded, wrapper
from .buffers import buffer_of
from .loops import counting, fused_indices


@wrapper
def sequential_buffer_access(sch: Rewritable, block: str, buffer: object, *, loop: str | None = None) -> list[str]:
    """Rewrite every loop nest in (or around) `block` that accesses `buffer`, to go over its physical indices in order.

    ::

        for i in 14: A[i // 4, i % 4] = e(i)
        ->  for io, ii in grid(4, 4): if 4*io + ii < 14: A[io, ii] = e(4*io + ii)

    With the indices ``p(x)`` of the access, the loops ``y = p(x)`` run over the whole buffer,
    loops that ``y`` and the rest determine are replaced by the inverse of ``p`` (those of no
    reduction first), and the rest stays inside.  The steps that are recorded are ``fuse``, ``split`` and
    ``reorder`` where these do it, else ``transform_loops``; where statements stand between the
    loops, ``decompose_reduction`` and ``distribute`` come first.  `loop` restricts this to one nest.

    Conditions: (1) some loop nest accesses the buffer; (2) all stores in it (all loads, if it only
    reads) have the same affine indices; (3) these and the remaining loops determine the
    loops that go; (4) every step is legal.  Returns the loops over the buffer.
    Source: RFC 0077, "Reorder Loops According to Buffer".
    """
    return _rewrite(sch, block, buffer_of(sch.func, block, buffer).name, loop)


def sequential_loops(func: PrimFunc, blocks: Sequence[str], buffer: str) -> Result:
    """`sequential_buffer_access` in every one of `blocks`, as a function of a function."""
    sch = Unrecorded(func)
    loops = [loop for block in blocks for loop in _rewrite(sch, block, buffer, None)]
    return sch.func, loops


def _rewrite(sch: Rewritable, block: str, name: str, loop: str | None) -> list[str]:
    todo = _nests(sch.func, find_block(sch.func, block), name)
    if loop is not None:
        todo = [n for n in todo if n == loop]
    if not todo:
        where = f"loop `{loop}`" if loop is not None else f"block `{block}`"
        raise ScheduleError("(1) no loops of {where} lead over `{buffer}`", where=where, buffer=name)
    found: list[str] = []
    while todo:
        outer = todo.pop(0)
        plan = _plan(sch.func, outer, name)
        if plan is None:
            continue
        parts = _separated(sch, plan) if plan.needs_perfect else []
        if parts:
            todo = [*(n for p in parts for n in _nests(sch.func, find_loop(sch.func, p), name)), *todo]
        else:
            found += _by_splits(sch, plan) if plan.simple else _by_map(sch, plan)
    return found


def _nests(func: PrimFunc, node: Stmt, buffer: str) -> list[str]:
    """The outermost loops at or around `node` that decide which element of the buffer is accessed."""
    found: dict[str, None] = {}
    for statement in _touching(func, node, buffer):
        used = {v for indices, _ in _indices(statement, buffer) for i in indices for v in free_variables(i)}
        names = [loop.var.name for loop in _own_loops(statement) if loop.var in used]
        found.update(dict.fromkeys(names[:1]))
    return list(found)


def _touching(func: PrimFunc, node: Stmt, buffer: str) -> list[Statement]:
    """The statements at or below `node` with an access of the buffer, assumptions included."""
    return [s for s in instances(func).below(node) if _indices(s, buffer)]


def _indices(statement: Statement, buffer: str) -> list[tuple[tuple[Expr, ...], bool]]:
    """The indices of the accesses of a buffer in terms of the loops, and whether they are stored to."""
    own = [statement.stmt] if not stmt_children(statement.stmt) else []
    return [
        (tuple(statement.resolve(i) for i in node.indices), isinstance(node, Store))
        for stmt in own
        for node in walk(stmt)
        if isinstance(node, (Load, Store)) and node.buffer.name == buffer
    ]


def _own_loops(statement: Statement) -> list[For]:
    """The loops around a statement and its block, up to the block with iterators around that."""
    leaf = [s for s in statement.path if isinstance(s, Block)][-1]
    found: list[For] = []
    for stmt in statement.path:
        if isinstance(stmt, For):
            found.append(stmt)
        elif isinstance(stmt, Block) and stmt.iters and stmt is not leaf:
            found = []
    return found


@dataclass(frozen=True)
class _Part:
    """Loops and physical dimensions that share no variable with others; `gone` are the loops that are replaced."""

    loops: tuple[Var, ...]
    dims: tuple[int, ...]
    gone: tuple[Var, ...]


@dataclass(frozen=True)
class _Plan:
    """What to do with one nest.

    `indices` are those of the access, `shape` is the buffer's; `span` are the loops from the
    outermost to the innermost that the access uses.
    """

    indices: tuple[Expr, ...]
    shape: tuple[int, ...]
    span: tuple[Var, ...]
    extents: dict[Var, int]
    parts: tuple[_Part, ...]

    @property
    def dims(self) -> list[int]:
        """The physical dimensions that loops run over."""
        return sorted(d for p in self.parts for d in p.dims)

    @property
    def sizes(self) -> list[int]:
        return [self._size(d) for d in self.dims]

    def _size(self, dim: int) -> int:
        """The extent of the loop over a dimension: all of the buffer, but for a loop that is the index already."""
        index = self.indices[dim]
        return self.extents[index] if isinstance(index, Var) else self.shape[dim]

    @property
    def rest(self) -> list[Var]:
        gone = {v for p in self.parts for v in p.gone}
        return [v for v in self.span if v not in gone]

    @property
    def images(self) -> list[Expr]:
        return [*(self.indices[d] for d in self.dims), *self.rest]

    @property
    def simple(self) -> bool:
        """Whether fusing and splitting loops, and a new order, do it."""
        return all(p.gone == p.loops and self.factors(p) for p in self.parts)

    @property
    def needs_perfect(self) -> bool:
        """Whether loops change places, or one is replaced by means of another."""
        in_place = [d for v in self.span for p in self.parts if p.loops[0] == v for d in p.dims]
        return in_place != self.dims or any(len(p.loops) > 1 for p in self.parts)

    def factors(self, part: _Part) -> list[int]:
        """The extents into which the part's loops, fused, are split to be its physical indices; empty if they are not.

        ::

            x = sum(y_d * (product of the extents after d))    =>    p(x) = y
        """
        sizes = [self.shape[d] for d in part.dims]
        if prod(sizes) < prod(self.extents[v] for v in part.loops):
            return []
        dtype = counting(part.loops)
        if prod(sizes) > dtypes.int_range(dtype)[1]:
            return []
        new = [Var(f"{part.loops[0].name}.{d}", dtype) for d in part.dims]
        value: Expr = Const(0, dtype)
        for var, size in zip(new, sizes, strict=True):
            value = value * size + var
        bounds = {v: (0, n - 1) for v, n in zip(new, sizes, strict=True)}
        indices = fused_indices(value, [self.extents[v] for v in part.loops])
        mapping: dict[Var, Expr] = dict(zip(part.loops, indices, strict=True))
        for d, var in zip(part.dims, new, strict=True):
            if simplify(substitute(self.indices[d], mapping), bounds) not in (var, as_index(var)):
                return []
        return sizes


def _plan(func: PrimFunc, outer: str, buffer: str) -> _Plan | None:
    """How to make one nest sequential; None if it is."""
    touching = _touching(func, find_loop(func, outer), buffer)
    indices, statement = _the_indices(touching, buffer)
    loops = {loop.var: loop for loop in _own_loops(statement)}
    used = {v for i in indices for v in free_variables(i)}
    if not used or _is_sequential(indices, list(loops)):
        return None
    foreign = used - loops.keys()
    if foreign:
        names = ", ".join(sorted(v.name for v in foreign))
        raise ScheduleError(
            "(3) the indices of `{buffer}` use {names}, which no loop of the nest is", buffer=buffer, names=names
        )
    order = list(loops)
    places = [order.index(v) for v in used]
    span = tuple(order[min(places) : max(places) + 1])
    extents = {v: extent_of(loops[v]) for v in span}
    # The loops over which statements store to different elements: those of no reduction.
    places_of = [(s, i) for s in touching for store in stores(s.stmt) for i in store.indices]
    stored = {v for s, i in places_of for v in free_variables(s.resolve(i))}
    nodes = (n for s in touching for n in walk(s.stmt) if isinstance(n, (Load, Store)))
    accessed = next(n.buffer for n in nodes if n.buffer.name == buffer)
    if not accessed.is_fixed:
        raise ScheduleError("(4) the extents of `{buffer}` are expressions, over which no loop is made", buffer=buffer)
    parts = []
    for at, dims in components(span, indices):
        if at and dims:
            own = tuple(span[k] for k in at)
            exact = tuple(indices[d] for d in dims)
            parts.append(_Part(own, tuple(dims), _replaced(own, exact, extents, stored)))
    return _Plan(indices, accessed.shape, span, extents, tuple(parts))


def _the_indices(touching: Sequence[Statement], buffer: str) -> tuple[tuple[Expr, ...], Statement]:
    """Condition (2): the indices of the stores, or else of the loads, and the innermost statement with them."""
    found = [(indices, is_store, s) for s in touching for indices, is_store in _indices(s, buffer)]
    chosen = [f for f in found if f[1]] or found
    distinct = list(dict.fromkeys(f[0] for f in chosen))
    if len(distinct) > 1:
        a, b = (f"[{', '.join(map(expr_text, i))}]" for i in distinct[:2])
        raise ScheduleError("(2) `{buffer}` is accessed at {a} and at {b}", buffer=buffer, a=a, b=b)
    return distinct[0], max((f[2] for f in chosen), key=lambda s: len(s.loops))


def _is_sequential(indices: Sequence[Expr], loops: Sequence[Var]) -> bool:
    """Whether the indices are loop variables, from the outside to the inside, or constant."""
    moving = [i for i in indices if not isinstance(i, Const)]
    places = [loops.index(i) for i in moving if isinstance(i, Var) and i in loops]
    return len(places) == len(moving) and places == sorted(set(places))


def _replaced(
    loops: tuple[Var, ...], indices: tuple[Expr, ...], extents: dict[Var, int], stored: set[Var]
) -> tuple[Var, ...]:
    """Condition (3): the most loops that the indices and the other loops determine, those of no reduction first."""
    domain = Domain(tuple((v, extents[v]) for v in loops))
    for count in range(len(loops), 0, -1):
        candidates = sorted(combinations(loops, count), key=lambda c: -sum(v in stored for v in c))
        for gone in candidates:
            rest = [v for v in loops if v not in gone]
            try:
                if access_map(domain, [*indices, *rest]).is_injective():
                    return gone
            except (NotAffine, Unknown) as error:
                raise ScheduleError("(2) the indices are not understood: {error}", error=str(error)) from None
    raise ScheduleError(
        "(3) the indices {indices} do not determine any of the loops {loops}",
        indices=[expr_text(i) for i in indices],
        loops=[v.name for v in loops],
    )


def _by_map(sch: Rewritable, plan: _Plan) -> list[str]:
    """All loops of the span at once, through the inverse of the indices."""
    names = ", ".join(v.name for v in plan.span)
    bounds = {v: (0, extent - 1) for v, extent in plan.extents.items()}
    index_map = f"lambda {names}: [{', '.join(expr_text(over_indices(e, bounds)) for e in plan.images)}]"
    extents = [*plan.sizes, *(plan.extents[v] for v in plan.rest)]
    made: list[str] = list(sch.transform_loops([v.name for v in plan.span], index_map, extents))
    return made[: len(plan.sizes)]


def _by_splits(sch: Rewritable, plan: _Plan) -> list[str]:
    """Fuse and split each part; where the order is not that of the dimensions, reorder."""
    made: dict[int, str] = {}
    current = [v.name for v in plan.span]
    for part in plan.parts:
        names = [v.name for v in part.loops]
        first = current.index(names[0])
        if len(names) > 1:
            together = [*current[:first], *names, *(n for n in current[first:] if n not in names)]
            if together != current:
                sch.reorder(*together)
            current = [n for n in together if n not in names[1:]]
            current[first] = sch.fuse(*names)
        sizes = plan.factors(part)
        new = list(sch.split(current[first], sizes)) if len(sizes) > 1 else [current[first]]
        current[first : first + 1] = new
        made.update(zip(part.dims, new, strict=True))
    wanted = [made[d] for d in plan.dims]
    if [n for n in current if n in wanted] != wanted:
        sch.reorder(*wanted, *(n for n in current if n not in wanted))
    return wanted


def _separated(sch: Rewritable, plan: _Plan) -> list[str]:
    """Move one statement out from between the loops of the span; return the outermost loops afterwards.

    What stands before the first update is initialisation; other statements are distributed.
    """
    top, bottom = plan.span[0].name, plan.span[-1].name
    between = _between(sch.func, top, bottom)
    if between is None:
        return []
    sequence, place = between
    known = {s.var.name for s in walk_stmts(sch.func.body) if isinstance(s, For)}
    updates = [any(update_op(s) for s in stores(item)) for item in sequence]
    if place > 0 and True in updates and updates.index(True) == place:
        path = path_to(sch.func.body, find_loop(sch.func, top))
        assert path is not None
        sch.decompose_reduction([s.name for s in path if isinstance(s, Block)][-1], top)
    else:
        sch.distribute(top, place or 1)
    new = [s.var.name for s in walk_stmts(sch.func.body) if isinstance(s, For) and s.var.name not in known]
    return [*new[:1], top]


def _between(func: PrimFunc, top: str, bottom: str) -> tuple[tuple[Stmt, ...], int] | None:
    """The first sequence on the way from one loop to another, and the place of the way in it."""
    path = path_to(find_loop(func, top), find_loop(func, bottom))
    assert path is not None
    for parent, child in pairwise(path):
        below = stmt_children(parent)
        if len(below) > 1:
            return below, next(k for k, s in enumerate(below) if s is child)
    return None
