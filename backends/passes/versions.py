"""Versions of a tile: one for the inside, where no condition is left, and one for each edge.

A condition at a ragged edge reads ``E + e < c``, where ``E`` is over the loops outside a
tile and ``e`` over those inside.  Where the tile's outer loops are complete::

    S(E)   ->   if lo <= E <= hi: S with the condition true
                else: S with E == v, for each of the few values v that are left

Edges with many values keep the condition.  A tile is versioned for its vectorized loops
and for those that are marked ``peel``; other conditions on the same ``E`` (the copy out of
the tile) profit.  Since ``E`` may be a quotient or remainder, a fused loop is no obstacle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd

from ...ir.expr import COMPARISONS, TRUE, Binary, Const, Expr, Not, Var, as_expr, binary, const, variables
from ...ir.linear import build, linear_form
from ...ir.node import Node, transform, walk
from ...ir.simplify import bound, simplify
from ...ir.stmt import For, If, Let, Stmt
from .conditionals import map_statements

Bounds = dict[Var, tuple[int, int]]
Terms = tuple[tuple[Expr, int], ...]

MAX_VALUES = 1 << 14
MAX_EDGES = 3


@dataclass(frozen=True)
class _Edge:
    """``sum(terms) + inner + constant  op  0`` with `inner` in ``[low, high]``."""

    terms: Terms
    op: str
    constant: int
    low: int
    high: int

    def holds(self, value: int) -> bool | None:
        """Whether the comparison holds for every inner point when the terms sum to `value`; None if it differs."""
        first, last = value + self.constant + self.low, value + self.constant + self.high
        results = {"<": (last < 0, first >= 0), "<=": (last <= 0, first > 0),
                   ">": (first > 0, last <= 0), ">=": (first >= 0, last < 0)}.get(self.op)  # fmt: skip
        if results is None:
            return None if first <= 0 <= last else self.op == "!="
        return True if results[0] else False if results[1] else None


def version_edges(stmt: Stmt, bounds: Bounds | None = None) -> Stmt:
    """Version every tile in a statement without blocks."""
    ranges = dict(bounds or {})
    if isinstance(stmt, For) and isinstance(stmt.extent, Const):
        ranges[stmt.var] = (0, int(stmt.extent.value) - 1)
        if not _in_tile(stmt):
            stmt = _version_body(stmt, ranges)
    elif isinstance(stmt, Let):
        ranges[stmt.var] = bound(stmt.value, ranges)
    return map_statements(stmt, lambda child: version_edges(child, ranges))


def _in_tile(loop: For) -> bool:
    return loop.kind in ("unrolled", "vectorized") or bool(dict(loop.annotations).get("peel"))


def _is_wanted(loop: For) -> bool:
    return loop.kind == "vectorized" or bool(dict(loop.annotations).get("peel"))


def _version_body(loop: For, bounds: Bounds) -> For:
    """Version the body for each family of edges that `loop` completes."""
    body = loop.body
    for _ in range(8):
        tile = _tile_loops(body)
        later = _inner_variables(body, tile)
        family = _next_family(body, loop.var, tile, later, bounds)
        if family is None:
            break
        new = _versions(body, family, tile, bounds)
        if new is None:
            break
        body = new
        if isinstance(body, If):
            # The remaining families are versioned inside each branch.
            branches = [_version_body(For(loop.var, loop.extent, b), bounds).body for b in _sides(body)]
            body = If(body.cond, branches[0], branches[1] if len(branches) > 1 else None)
            break
    from dataclasses import replace

    return replace(loop, body=body)


def _sides(stmt: If) -> list[Stmt]:
    return [stmt.then] if stmt.orelse is None else [stmt.then, stmt.orelse]


def _tile_loops(stmt: Stmt) -> dict[Var, tuple[int, bool]]:
    """Loops of tiles below, with extent and whether their edges are to be versioned."""
    return {
        n.var: (int(n.extent.value), _is_wanted(n))
        for n in walk(stmt)
        if isinstance(n, For) and _in_tile(n) and isinstance(n.extent, Const)
    }


def _inner_variables(stmt: Stmt, tile: Mapping[Var, object]) -> frozenset[Var]:
    """Variables bound below that do not belong to a tile."""
    return frozenset(n.var for n in walk(stmt) if isinstance(n, (For, Let)) and n.var not in tile)


def comparisons(stmt: Node) -> Iterator[Binary]:
    """Integer comparisons in conditions below."""
    for node in walk(stmt):
        if isinstance(node, Binary) and node.op in COMPARISONS and node.a.dtype == "int64":
            yield node


def _edge(cond: Binary, tile: Mapping[Var, tuple[int, bool]]) -> _Edge | None:
    """A comparison as an edge; None when inner and outer parts do not separate."""
    terms, constant = linear_form(cond.a - cond.b)
    outer: list[tuple[Expr, int]] = []
    low = high = 0
    for atom, coefficient in terms.items():
        free = variables(atom)
        if free.isdisjoint(tile):
            outer.append((atom, coefficient))
        elif isinstance(atom, Var):
            ends = sorted((0, coefficient * (tile[atom][0] - 1)))
            low, high = low + ends[0], high + ends[1]
        else:
            return None
    return _Edge(tuple(sorted(outer, key=repr)), cond.op, constant, low, high)


def _touches_wanted(cond: Binary, tile: Mapping[Var, tuple[int, bool]]) -> bool:
    return any(v in tile and tile[v][1] for v in variables(cond))


def _next_family(
    body: Stmt, var: Var, tile: Mapping[Var, tuple[int, bool]], later: frozenset[Var], bounds: Bounds
) -> Terms | None:
    """The outer terms of an edge that this loop completes and that is worth a version."""
    for cond in comparisons(body):
        if not _touches_wanted(cond, tile):
            continue
        edge = _edge(cond, tile)
        if edge is None or not edge.terms:
            continue
        free = {v for atom, _ in edge.terms for v in variables(atom)}
        if var in free and free.isdisjoint(later) and free <= set(bounds):
            return edge.terms
    return None


def _versions(body: Stmt, terms: Terms, tile: Mapping[Var, tuple[int, bool]], bounds: Bounds) -> Stmt | None:
    """The versions of a body for one family of edges; None when there are too many values."""
    total = build((dict(terms), 0))
    low, high = bound(total, bounds)
    step = gcd(*(c for _, c in terms))
    values = range(-(-low // step) * step, high + 1, step)
    if len(values) > MAX_VALUES:
        return None
    edges = [e for e in (_edge(c, tile) for c in comparisons(body)) if e is not None and e.terms == terms]
    inside = _longest_run([v for v in values if all(e.holds(v) for e in edges)], step)
    rest = [v for v in values if v not in inside]
    if not rest:
        return _decide(body, terms, tile, None)
    if len(rest) > MAX_EDGES and not inside:
        return None
    last: Stmt = body if len(rest) > MAX_EDGES else _decide(body, terms, tile, rest[-1])
    if len(rest) <= MAX_EDGES:
        for value in rest[-2::-1]:
            last = If(binary("==", total, value), _decide(body, terms, tile, value), last)
    if not inside:
        return last
    parts = [binary(">=", total, inside[0])] if inside[0] > values[0] else []
    parts += [binary("<=", total, inside[-1])] if inside[-1] < values[-1] else []
    cond: Expr = TRUE
    for part in parts:
        cond = binary("and", cond, simplify(part, bounds))
    return If(cond, _decide(body, terms, tile, None), _unwanted(last, terms, tile) if last is body else last)


def _longest_run(values: list[int], step: int) -> list[int]:
    """The longest part of a sorted list without gaps."""
    best: list[int] = []
    run: list[int] = []
    for value in values:
        run = [*run, value] if run and value == run[-1] + step else [value]
        if len(run) > len(best):
            best = run
    return best


def _decide(body: Stmt, terms: Terms, tile: Mapping[Var, tuple[int, bool]], value: int | None) -> Stmt:
    """The body with the edges of one family decided: true without a value, else with the terms at that value."""

    def rewrite(node: Node) -> Node:
        if isinstance(node, Binary) and node.op in COMPARISONS and node.a.dtype == "int64":
            edge = _edge(node, tile)
            if edge is not None and edge.terms == terms:
                return TRUE if value is None else _at_value(node, terms, value)
        return node

    result: Stmt = simplify(transform(body, rewrite))
    return result


def _at_value(cond: Binary, terms: Terms, value: int) -> Expr:
    """The comparison with the outer terms replaced by their sum."""
    form, constant = linear_form(cond.a - cond.b)
    inner = {atom: c for atom, c in form.items() if (atom, c) not in terms}
    return binary(cond.op, build((inner, constant + value)), as_expr(0))


def _unwanted(body: Stmt, terms: Terms, tile: Mapping[Var, tuple[int, bool]]) -> Stmt:
    """A body whose edge stays a condition: hidden from further versioning by a double negation-free rewrite."""

    def rewrite(node: Node) -> Node:
        if isinstance(node, Binary) and node.op in COMPARISONS and node.a.dtype == "int64":
            edge = _edge(node, tile)
            if edge is not None and edge.terms == terms:
                return Not(_opposite(node))
        return node

    result: Stmt = transform(body, rewrite)
    return result


_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}


def _opposite(cond: Binary) -> Expr:
    return Binary(_OPPOSITE[cond.op], cond.a, cond.b)


__all__ = ["const", "version_edges"]
