"""Parameters that come from memory are fetched ahead: while a panel of them is used, the next one comes.

::

    for x:  for r in R:  for k in K:  S(w[f(x) + g(k)])
        ->  for x:  for r in R:  for k in K:  { prefetch w[f(x + 1) + g(k)], its r-th part of R;  S(w[f(x) + g(k)]) }

A panel is what the loops k read of w; the loops r read it again.  Without this the first of them waits for memory, and
the others leave memory idle; with it the bytes of the next panel are spread over all of them.  Halide's `prefetch` has
a distance along one loop; here the loop and the distance follow from where w is read.  Loops may be fused: where w is
read at ``f(x // D)``, the next panel is D iterations away, and ``x % D`` is one of the loops r.  A prefetch has no
effect but on time, also where it goes beyond the end of w.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

from ...ir import dtypes
from ...ir.arith.linear import UndefTerm, build, linear_form
from ...ir.arith.simplify import simplify_index
from ...ir.expr import (
    Binary,
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Ramp,
    Var,
    as_int,
    const,
    free_variables,
    reads_memory,
    substitute,
)
from ...ir.functions import PREFETCH
from ...ir.node import children, rebuild, walk
from ...ir.stmt import Evaluate, For, Stmt, seq, walk_stmts

LINE_BYTES = 64  # of a cache, on x86 and most AArch64
MOST_PLACES = 1 << 12  # that an iteration reads at


def prefetch_streams(stmt: Stmt, params: Sequence[Buffer]) -> Stmt:
    """The statement, over flat buffers, with prefetches in loops that are annotated so.

    The annotation ``prefetch`` has the numbers of parameters; they are fetched wherever panels are used several times.
    """
    if isinstance(stmt, For):
        found = next((value for key, value in stmt.annotations if key == PREFETCH), ())
        numbers = found if isinstance(found, tuple) else (found,)
        streamed = frozenset(params[n] for n in numbers if isinstance(n, int) and 0 <= n < len(params))
        if streamed:
            return _visit(stmt, (), streamed)
    made: Stmt = rebuild(stmt, lambda child: prefetch_streams(child, params) if isinstance(child, Stmt) else child)
    return made


def _visit(stmt: Stmt, around: tuple[For, ...], streamed: frozenset[Buffer]) -> Stmt:
    if not isinstance(stmt, For) or stmt.kind == "unrolled":
        made: Stmt = rebuild(stmt, lambda child: _visit(child, around, streamed) if isinstance(child, Stmt) else child)
        return made
    inside = (*around, stmt)
    if any(isinstance(n, For) and n.kind != "unrolled" for n in walk_stmts(stmt.body)):
        return replace(stmt, body=_visit(stmt.body, inside, streamed))
    loads: dict[Buffer, list[Expr]] = {}
    for node in walk(stmt.body):
        if isinstance(node, Load) and node.buffer in streamed:
            loads.setdefault(node.buffer, []).append(node.indices[0])
    loops = [n for n in (*around, *walk_stmts(stmt)) if isinstance(n, For)]
    if not all(isinstance(loop.extent, Const) for loop in loops):  # how often a panel is read again is not known
        return stmt
    unrolled = {n.var: as_int(n.extent) or 1 for n in walk_stmts(stmt.body) if isinstance(n, For)}
    fetched = [f for buffer, indices in loads.items() for f in _fetches(buffer, indices, inside, unrolled)]
    return replace(stmt, body=seq([*fetched, stmt.body])) if fetched else stmt


def _fetches(buffer: Buffer, indices: Sequence[Expr], loops: Sequence[For], unrolled: Mapping[Var, int]) -> list[Stmt]:
    """The prefetches of an iteration of the innermost loop; none where a panel is used once, or is all there is."""
    found = _runs(indices, frozenset(loop.var for loop in loops), unrolled)
    if found is None:
        return []
    start, runs = found
    used = free_variables(start)
    outer = [*loops]
    while outer and outer[-1].var in used and _divisor(start, outer[-1].var) == 1:
        outer.pop()
    if len(outer) == len(loops):
        return []
    again = list[For]()
    while outer and outer[-1].var not in used:
        again.append(outer.pop())
    if not outer:
        return []
    extents = [as_int(loop.extent) or 1 for loop in again]
    step, var = _divisor(start, outer[-1].var), outer[-1].var
    times = step * prod(extents)
    if times < 2:
        return []
    turn: Expr = var % step if step > 1 else const(0)
    for loop, extent in zip(reversed(again), reversed(extents), strict=True):
        turn = turn * extent + loop.var
    line = LINE_BYTES // dtypes.nbytes(dtypes.element(buffer.dtype))
    fetched: list[Stmt] = []
    for first, last in runs:
        lines = -(-(last - first) // line)
        count = -(-lines // times)
        part = turn * (count * line) if count > 1 else turn * lines // times * line
        ahead = simplify_index(substitute(start, {var: var + step}) + part + first)
        places = (Load(buffer, (ahead + k * line,)) for k in range(count))
        fetched += [Evaluate(Call(PREFETCH, (place,), place.dtype)) for place in places]
    return fetched


def _runs(
    indices: Sequence[Expr], loops: frozenset[Var], unrolled: Mapping[Var, int]
) -> tuple[Expr, list[tuple[int, int]]] | None:
    """What an iteration reads: a base index, and runs of elements relative to it, as their first and last.

    None where the reads have no such form.
    """
    around: set[frozenset[tuple[Expr, int]]] = set()
    pieces: set[tuple[int, int]] = set()
    for index in dict.fromkeys(indices):
        base, lanes = (index.base, index.lanes) if isinstance(index, Ramp) else (index, 1)
        if dtypes.lanes(base.dtype) > 1 or (isinstance(index, Ramp) and as_int(index.stride) != 1):
            return None
        if reads_memory(base):
            return None  # a prefetch may go beyond the end, what is loaded for its place may not
        try:
            terms, constant = linear_form(base)
        except UndefTerm:
            return None
        inner = {atom: factor for atom, factor in terms.items() if not free_variables(atom) <= loops}
        around.add(frozenset((atom, factor) for atom, factor in terms.items() if atom not in inner))
        places = {constant}
        for atom, factor in inner.items():
            if not isinstance(atom, Var) or atom not in unrolled or len(places) * unrolled[atom] > MOST_PLACES:
                return None
            places = {place + factor * value for place in places for value in range(unrolled[atom])}
        pieces |= {(place, place + lanes) for place in places}
    if len(around) != 1:
        return None
    runs = list[tuple[int, int]]()
    for first, last in sorted(pieces):
        if runs and first <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(runs[-1][1], last)
        else:
            runs.append((first, last))
    return build((dict(around.pop()), 0)), runs


def _divisor(expr: Expr, var: Var) -> int:
    """The largest D such that an expression has a variable only as ``var // D``; 1 where it has it otherwise."""
    if isinstance(expr, Binary) and expr.op == "//" and expr.a == var:
        return as_int(expr.b) or 1
    if expr == var:
        return 1
    parts = (child for child in children(expr) if isinstance(child, Expr) and var in free_variables(child))
    return gcd(*(_divisor(part, var) for part in parts))
