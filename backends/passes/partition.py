"""Loops annotated ``peel``: whole tiles run without conditions, the ragged edge apart.

::

    for io in n: for ii in t {peel}: if io*t + ii < N: S
        ->  for io in n: if io*t + t-1 < N: { for ii in t: S }
                         else:              { for ii in N - io*t: S }

The test stands as far outside as the variables of the strengthened condition
allow, but within the loops over work-items that share memory: no barrier stands in
a condition, and no reduction of a subgroup in one that its items disagree about.  In
the edge, what it says about outer variables often fixes them, and the extents become
constants; where they do not, as the extent is not known, there is a version for each
number of iterations that are left; for vectors, for each number of vectors, of which the
last one alone is masked, or runs lane by lane.  Where sizes are unknown a nest is cut at most
`CUTS` times, and so that about `MOST` stores are written out; what is left then runs with its
conditions.  A loop over which a condition ranges
alone is split in two or three loops instead, unless its lanes are masked.  Conditions
inside of values stay: they choose a value, they do not skip work.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...ir import dtypes
from ...ir.arith.intervals import Facts, Interval, nothing_known
from ...ir.arith.linear import add, shared_form, variables_of
from ...ir.arith.simplifier import simplifier_for
from ...ir.arith.statements import NOTHING, simplify_stmt
from ...ir.context import map_with_facts
from ...ir.expr import TRUE, Binary, Const, Expr, Load, Var, as_int, const, substitute
from ...ir.node import children, rebuild, remembered, walk
from ...ir.passes.loop_extents import is_masked, restrict, trim_loops
from ...ir.stmt import For, If, Stmt, Store, seq
from .edges import Edge, edges, strengthen

Cut = frozenset[tuple[Expr, int]]
_NONE: frozenset[Cut] = frozenset()

CUTS = 48  # of one nest, a choice: code of more takes long to compile, and most of it never runs
MOST = 8000  # stores in the versions of one nest, with loops unrolled: compiling takes a millisecond for each
SPLITTABLE = ("serial", "unrolled", "vectorized")


def partition_loops(stmt: Stmt, strict: bool = False) -> Stmt:
    """Peel the annotated loops; the annotation goes."""
    facts = nothing_known(strict)
    return _clean(_partition(trim_loops(stmt, facts), facts, None, _NOWHERE))


@dataclass(frozen=True)
class _Place:
    """What was decided further outside: conditions over `late` have not been looked at yet, and `cut` are denied.

    A cut is what lanes of vectors are compared with, in a condition that does not hold for a whole tile.  `around` are
    the variables of all loops outside: where a condition is decided, others may come to be over these alone.  `tested`
    are the conditions of tests outside, of which facts may keep nothing, as of a disjunction.  `made` has the stores of
    what was cut by a condition over sizes in the whole nest so far, for each cut.
    """

    late: frozenset[Var] = frozenset()
    around: frozenset[Var] = frozenset()
    cut: frozenset[Cut] = frozenset()
    tested: frozenset[Expr] = frozenset()
    made: list[int] = field(default_factory=list)


_NOWHERE = _Place()


@remembered
def _peels(stmt: Stmt) -> bool:
    """Whether there is a loop to peel at or below `stmt`."""
    if isinstance(stmt, For) and is_peeled(stmt):
        return True
    return any(_peels(child) for child in children(stmt) if isinstance(child, Stmt))


@remembered
def _written_out(stmt: Stmt) -> int:
    """How many stores a statement has when its loops are unrolled."""
    times = 1
    if isinstance(stmt, For) and stmt.kind == "unrolled" and isinstance(stmt.extent, Const):
        times = as_int(stmt.extent)
    own = int(isinstance(stmt, Store))
    return times * (own + sum(_written_out(child) for child in children(stmt) if isinstance(child, Stmt)))


def is_peeled(loop: For) -> bool:
    return dict(loop.annotations).get("peel") is True


def _partition(stmt: Stmt, facts: Facts, around: For | None, place: _Place) -> Stmt:
    """`stmt` is the body of the loop `around`, or the whole."""
    if around is not None:
        made = place.made if place.around else []
        place = replace(place, late=place.late | {around.var}, around=place.around | {around.var}, made=made)
        if _meets(stmt) or around.reduces:
            return _descend(stmt, facts, place)
    found = None if around is None or is_masked(around) else _choose(stmt, facts, around, place)
    over_sizes = found is not None and not variables_of(found[0]) <= place.around
    if found is None or (over_sizes and (len(place.made) >= CUTS or sum(place.made) >= MOST)):
        return _descend(stmt, facts, replace(place, late=frozenset()))
    cond, cut = found
    place.made.extend([_written_out(stmt)] * over_sizes)
    versions = []
    place = replace(place, late=place.around, tested=place.tested | {cond})
    for truth, there in ((True, place), (False, replace(place, cut=place.cut | cut))):
        inside = facts.assuming(cond, truth)
        version = trim_loops(simplify_stmt(stmt, inside), inside)
        versions.append(NOTHING if version == NOTHING else _partition(version, inside, around, there))
    return If(cond, versions[0], None if versions[1] == NOTHING else versions[1])


@remembered
def _meets(stmt: Stmt) -> bool:
    """Whether loops over work-items in `stmt` use memory that they share."""
    if isinstance(stmt, For) and stmt.has_items:
        return any(isinstance(n, (Load, Store)) and n.buffer.scope == "shared" for n in walk(stmt))
    return any(_meets(child) for child in children(stmt) if isinstance(child, Stmt))


def _descend(stmt: Stmt, facts: Facts, place: _Place) -> Stmt:
    if isinstance(stmt, For):
        return _loop(stmt, facts, place)
    return map_with_facts(stmt, facts, lambda child, inside: _descend(child, inside, place))


def _choose(stmt: Stmt, facts: Facts, around: For, place: _Place) -> tuple[Expr, frozenset[Cut]] | None:
    """The first strengthened condition over a variable of `late` that decides something in `stmt`.

    Where it fails the tile is cut, which is not asked again; a vector of it that has no lane left is cut off as well.
    """
    if not is_peeled(around) and not _peels(stmt):
        return None
    found = [edge for edge in edges(stmt, facts)
             if edge.guards_statement and not place.late.isdisjoint(variables_of(edge.cond))]  # fmt: skip
    whole = [(edge, _cut(edge)) for edge in found]
    parts = [(part, _NONE) for edge in found if (part := _first_lanes(edge)) is not None]
    for edge, cut in (*((e, c) for e, c in whole if not c or not c <= place.cut), *parts):
        strong = _strong(edge, around)
        if strong is None or place.late.isdisjoint(variables_of(strong)):
            continue
        decided = simplifier_for(facts).expr(strong)
        if not isinstance(decided, Const) and decided not in place.tested:
            return decided, cut
    for edge in found:  # one over sizes that no loop inside changes, and without which there is nothing to do
        used = variables_of(edge.cond)
        moves = edge.may_move and edge.cond not in place.tested and not used <= place.around
        if moves and used.isdisjoint(loop.var for loop in edge.loops):
            outside = facts.assuming(edge.cond, False)
            if trim_loops(simplify_stmt(stmt, outside), outside) == NOTHING:
                return edge.cond, _NONE
    return None


def _cut(edge: Edge) -> frozenset[Cut]:
    """Where a condition is over lanes of vectors, what it compares these with, but for constants; nothing elsewhere."""
    lanes = {loop.var for loop in edge.loops if loop.kind == "vectorized"}
    cond = edge.cond
    if lanes.isdisjoint(variables_of(cond)) or not isinstance(cond, Binary) or cond.a.dtype != dtypes.INDEX:
        return _NONE
    terms, inner = add(shared_form(cond.a), shared_form(cond.b), -1)[0], {loop.var for loop in edge.loops}
    return frozenset((frozenset((a, k) for a, k in terms.items() if inner.isdisjoint(variables_of(a))),))


def _first_lanes(edge: Edge) -> Edge | None:
    """The condition of the first lanes of vectors, without which such a vector has no work; None without any."""
    lanes = {loop.var: const(0, loop.var.dtype) for loop in edge.loops if loop.kind == "vectorized"}
    if lanes.keys().isdisjoint(variables_of(edge.cond)):
        return None
    outer = tuple(loop for loop in edge.loops if loop.var not in lanes)
    return replace(edge, cond=substitute(edge.cond, lanes), loops=outer)


def _strong(edge: Edge, around: For) -> Expr | None:
    """The condition for all iterations of the outermost peeled loop that it depends on, and of those inside."""
    used = variables_of(edge.cond)
    first = next((n for n, loop in enumerate(edge.loops) if is_peeled(loop) and loop.var in used), None)
    if first is None:
        if not is_peeled(around):
            return None
        first = 0
    inner = {loop.var for loop in edge.loops[first:]}
    strong = strengthen(edge, inner)
    if strong is None or not variables_of(strong).isdisjoint(loop.var for loop in edge.loops):
        return None
    return strong


def _loop(loop: For, facts: Facts, place: _Place) -> Stmt:
    inside = facts.looping(loop.var, loop.extent)
    splits = is_peeled(loop) and loop.kind in SPLITTABLE and not is_masked(loop)
    pieces = _pieces(loop, inside) if splits else None
    if pieces is None:
        whole = _whole_vectors(loop, facts, inside)
        if whole is not None:
            last, edge = as_int(loop.extent) - 1, replace(loop, body=_with_cut_vectors(loop.body))
            both = [(loop, (0, whole - 1)), (edge, (whole, last))]
            cut = [simplify_stmt(restrict(part, piece), facts) for part, piece in both if piece[0] <= piece[1]]
            return seq([_descend(part, facts, place) for part in cut])
        return replace(loop, body=_partition(loop.body, inside, loop, place))
    parts = [trim_loops(simplify_stmt(restrict(loop, piece), facts), facts) for piece in pieces]
    return seq([_descend(p, facts, place) for p in parts if p != NOTHING])


def _whole_vectors(loop: For, facts: Facts, inside: Facts) -> int | None:
    """For an unrolled loop over vectors how many of them, from the first, are known to have all lanes.

    None where there is no such vector that is to be peeled.
    """
    if loop.kind != "unrolled" or not isinstance(loop.extent, Const) or not _peels(loop.body):
        return None
    strong: list[Expr] = []
    for edge in edges(loop.body, inside):
        used = variables_of(edge.cond)
        lanes = any(inner.kind == "vectorized" and is_peeled(inner) and inner.var in used for inner in edge.loops)
        if edge.guards_statement and lanes and loop.var in used and (cond := _strong(edge, loop)) is not None:
            strong.append(cond)
    if not strong:
        return None
    holds = simplifier_for(facts).expr
    for value in range(as_int(loop.extent)):
        given = {loop.var: const(value, loop.var.dtype)}
        if any(holds(substitute(cond, given)) != TRUE for cond in strong):
            return value
    return as_int(loop.extent)


def _with_cut_vectors(stmt: Stmt) -> Stmt:
    """The statement in which vectors are not peeled."""
    below: Stmt = rebuild(stmt, lambda child: _with_cut_vectors(child) if isinstance(child, Stmt) else child)
    if isinstance(below, For) and below.kind == "vectorized":
        return replace(below, annotations=tuple(a for a in below.annotations if a[0] != "peel"))
    return below


def _pieces(loop: For, inside: Facts) -> list[Interval] | None:
    """The range of `loop` before, where, and after the conditions that range over it alone hold."""
    low, high = 0, inside.interval(loop.var)[1]
    last = high
    if not isinstance(loop.extent, Const):
        return None
    for edge in edges(loop.body, inside):
        if not edge.guards_statement or loop.var not in variables_of(edge.cond):
            continue
        strong = strengthen(edge, {item.var for item in edge.loops})
        if strong is None or variables_of(strong) != {loop.var}:
            continue
        lo, hi = inside.assuming(strong).interval(loop.var)
        if max(lo, low) <= min(hi, high):
            low, high = max(lo, low), min(hi, high)
    if (low, high) == (0, last):
        return None
    return [p for p in ((0, low - 1), (low, high), (high + 1, last)) if p[0] <= p[1]]


def _clean(stmt: Stmt) -> Stmt:
    """Without the annotation, and without loops of one iteration."""
    if isinstance(stmt, For) and is_peeled(stmt):
        kept = tuple(a for a in stmt.annotations if a[0] != "peel")
        return replace(stmt, body=_clean(stmt.body), annotations=kept)
    result: Stmt = rebuild(stmt, lambda child: _clean(child) if isinstance(child, Stmt) else child)
    return result


def split_ranges(stmt: Stmt, strict: bool = False) -> Stmt:
    """``for v in n: if v < c: A else: B -> for v in c: A; for v in n - c: B``, for loops that run in order."""
    return _split_ranges(stmt, nothing_known(strict))


def _split_ranges(stmt: Stmt, facts: Facts) -> Stmt:
    stmt = map_with_facts(stmt, facts, _split_ranges)
    if not isinstance(stmt, For) or stmt.kind not in ("serial", "unrolled") or not isinstance(stmt.extent, Const):
        return stmt
    body = stmt.body
    if not isinstance(body, If) or body.orelse is None or variables_of(body.cond) != {stmt.var}:
        return stmt
    low, high = facts.looping(stmt.var, stmt.extent).assuming(body.cond).interval(stmt.var)
    last = as_int(stmt.extent) - 1
    exact = simplifier_for(facts.with_bounds({stmt.var: (low, high)})).expr(body.cond) == TRUE
    if not exact or low > high:
        return stmt
    pieces = [p for p in ((0, low - 1), (low, high), (high + 1, last)) if p[0] <= p[1]]
    return seq([simplify_stmt(restrict(stmt, piece), facts) for piece in pieces])
