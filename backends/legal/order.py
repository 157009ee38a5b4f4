"""The order of the statements of an unrolled nest.

A register tile is updated by ``tile[i, j] += a[i] * b[j]`` for all i and j.  With i outermost,
every b[j] stays in a register while i advances, and one a[i] at a time; with j outermost the
other way round.  The order that keeps fewer values alive is taken, because compilers keep the
order that they find where registers are scarce, and a spilled accumulator halves the speed.

    for i in unrolled(3): for j in unrolled(4): S    ->    for j in unrolled(4): for i in unrolled(3): S

A condition that some of the loops do not change is tested once for all of their iterations:

    for i: for j: if c(j): S    ->    for j: if c(j): for i: S

Legal, because every instance of S reads and writes an element of its own and nothing else is written.
"""

from __future__ import annotations

from math import prod

from ...ir import dtypes
from ...ir.arith.linear import shared_form
from ...ir.expr import Const, Expr, Load, Ramp, Var, as_int, variables
from ...ir.node import rebuild, walk
from ...ir.stmt import For, If, Stmt, Store
from ...ir.target import Target

Nest = list[tuple[For, int]]


def order_nests(stmt: Stmt, target: Target) -> Stmt:
    """The statement, for a CPU, with each unrolled nest in its `best_order`."""
    return _ordered(stmt) if target.kind == "cpu" else stmt


def _ordered(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For):
        stmt = best_order(stmt)
    result: Stmt = rebuild(stmt, lambda child: _ordered(child) if isinstance(child, Stmt) else child)
    return result


def best_order(stmt: For) -> For:
    """`stmt` with its condition outside of the loops that it does not depend on, and fewest values alive."""
    nest, guard, body = _perfect_nest(stmt)
    if len(nest) < 2 or not isinstance(body, Store) or not _independent(nest, body):
        return stmt
    tested = variables(guard) if guard is not None else set()
    outer = [item for item in nest if item[0].var in tested]
    inner = [item for item in nest if item[0].var not in tested]
    if guard is None or not inner:
        outer, inner = [], nest
    if not outer and guard is not None:
        return stmt
    ordered = _fewest_alive(inner, body)
    if ordered == nest:
        return stmt
    rest = _wrap(ordered, body)
    result = rest if guard is None else _wrap(outer, If(guard, rest))
    assert isinstance(result, For)
    return result


def _wrap(nest: Nest, body: Stmt) -> Stmt:
    for loop, _ in reversed(nest):
        body = For(loop.var, loop.extent, body, loop.kind, loop.thread, loop.annotations)
    return body


def _fewest_alive(nest: Nest, store: Store) -> Nest:
    """The loops with that one outermost that leaves the fewest loaded values alive; the first on a tie."""
    uses = _uses(nest, store)
    first = min(range(len(nest)), key=lambda number: _alive(nest, number, uses))
    return [nest[first], *nest[:first], *nest[first + 1 :]]


def _perfect_nest(stmt: Stmt) -> tuple[Nest, Expr | None, Stmt]:
    """Unrolled loops of constant extent with nothing between them, the condition inside, and what they hold."""
    nest: Nest = []
    while isinstance(stmt, For) and stmt.kind == "unrolled" and isinstance(stmt.extent, Const):
        nest.append((stmt, as_int(stmt.extent)))
        stmt = stmt.body
    if isinstance(stmt, If) and stmt.orelse is None and not any(isinstance(n, Load) for n in walk(stmt.cond)):
        return nest, stmt.cond, stmt.then
    return nest, None, stmt


def _independent(nest: Nest, store: Store) -> bool:
    """Whether each iteration stores to elements of its own, and reads nothing that another one stores."""
    if len(store.indices) != 1:
        return False
    for load in walk(store):
        if isinstance(load, Load):
            same_memory = {load.buffer.name, load.buffer.data} & {store.buffer.name, store.buffer.data} - {""}
            if same_memory and (load.buffer != store.buffer or load.indices != store.indices):
                return False
    index, width = store.indices[0], dtypes.lanes(store.buffer.dtype)
    if not isinstance(index, Ramp):
        return _spread(index, nest, width)
    return index.stride == Const(1) and _spread(index.base, nest, width * index.lanes)


def _spread(index: Expr, nest: Nest, width: int) -> bool:
    """Whether `index` lies at least `width` apart for any two iterations: a mixed-radix number of them."""
    terms, _ = shared_form(index)
    variables = {loop.var for loop, _ in nest}
    if any(variables & {n for n in walk(atom) if isinstance(n, Var)} for atom in terms if atom not in variables):
        return False
    digits = sorted((abs(terms.get(loop.var, 0)), extent) for loop, extent in nest if extent > 1)
    reach = width
    for weight, extent in digits:
        if weight < reach:
            return False
        reach = weight * (extent - 1) + reach
    return True


def _uses(nest: Nest, store: Store) -> list[frozenset[int]]:
    """The loops, by number, on which each loaded value depends; what the store updates is no such value."""
    numbers = {loop.var: number for number, (loop, _) in enumerate(nest)}
    loads = {n for n in walk(store.value) if isinstance(n, Load) and n.buffer != store.buffer}
    return [frozenset(numbers[v] for v in walk(load) if isinstance(v, Var) and v in numbers) for load in loads]


def _alive(nest: Nest, outermost: int, uses: list[frozenset[int]]) -> int:
    """The loaded values that are kept while the loop `outermost` advances."""
    return sum(prod(nest[number][1] for number in use) for use in uses if outermost not in use)
