"""Sums of panels stay in the registers of a work-item while its group goes on to the next panel.

What the items of a group load together for a panel is there for all of them, so that the loop over panels runs around
the loops over items.  Each panel's sum is then added to the result in memory, which all of them wait for::

    for p: { load; for item: { s = 0;  s += e(p);  C[f] += s } }
    ->   float s;  for item: s = 0
         for p: { load; for item: s += e(p) }
         for item: C[f] += s

and where the statement before sets the same elements of C to 0, it goes, and the last one is ``C[f] = s``.

A private array that is declared before the loop is each item's own in OpenCL C, and lives across barriers.  That the
sum is one in the end needs: s starts at 0 and is only added to, and nothing else reads it; nothing else in the loop
touches C; and neither where it is added, nor under which conditions, depends on p.  The order in which terms are added
is as it was within a panel, and panels follow each other: a reduction that was cut in panels may be added up so, except
in a program that keeps the order of its sums (`lower.Lowered.strict`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ...ir import dtypes
from ...ir.expr import Binary, Broadcast, Buffer, Cast, Const, Expr, Load, Not, Var, const, substitute, variables
from ...ir.node import rebuild, walk
from ...ir.stmt import Allocate, For, If, Let, Seq, Stmt, Store, memories_read, memories_written, seq
from .barriers import stores_apart

NEITHER = 3
"""The number of parts, and the kind of a statement that belongs to none."""


def keep_sums(stmt: Stmt) -> Stmt:
    """The statement with every such sum kept; loops for which that is not proven are as they were."""
    if isinstance(stmt, For) and stmt.has_items:
        return stmt
    if isinstance(stmt, Seq):
        return seq(_after_zero(stmt.stmts))
    if (kept := _panels(stmt)) is not None:
        return kept.whole
    result: Stmt = rebuild(stmt, lambda child: keep_sums(child) if isinstance(child, Stmt) else child)
    return result


def _after_zero(stmts: Sequence[Stmt]) -> list[Stmt]:
    """Statements of a sequence, with sums kept; what has set the result of one to 0 just before is left out."""
    done: list[Stmt] = []
    for stmt in stmts:
        kept = _panels(stmt)
        if kept is None:
            done.append(keep_sums(stmt))
        elif done and _is_zeroed(done[-1], kept.update):
            done[-1] = replace(kept, update=_stored(kept.update, _sum_alone)).whole
        else:
            done.append(kept.whole)
    return done


def _is_zeroed(before: Stmt, update: Stmt) -> bool:
    """Whether a statement sets to 0 what the next one adds to, each element once."""
    written = [node.buffer for node in walk(before) if isinstance(node, Store)]
    once = isinstance(before, For) and len(written) == 1 and stores_apart(before, written[0])
    return once and _named_alike(before) == _named_alike(_stored(update, _zero))


def _stored(stmt: Stmt, change: Callable[[Store], Store]) -> Stmt:
    """A statement with each store changed."""
    if isinstance(stmt, Store):
        return change(stmt)
    result: Stmt = rebuild(stmt, lambda child: _stored(child, change) if isinstance(child, Stmt) else child)
    return result


def _zero(store: Store) -> Store:
    dtype = store.value.dtype
    element = const(0.0 if "float" in dtype else 0, dtypes.element(dtype))
    lanes = dtypes.lanes(dtype)
    return replace(store, value=element if lanes == 1 else Broadcast(element, lanes))


def _sum_alone(store: Store) -> Store:
    """``C[f] = s`` of ``C[f] = C[f] + s``."""
    assert isinstance(store.value, Binary)
    a, b = store.value.a, store.value.b
    return replace(store, value=b if isinstance(a, Load) and a.buffer == store.buffer else a)


def _named_alike(stmt: Stmt, number: int = 0) -> Stmt:
    """A statement whose loops have variables by their depth, so that equal loops are equal."""
    if isinstance(stmt, For):
        var = Var(f"depth {number}", stmt.var.dtype)
        stmt, number = replace(stmt, var=var, body=substitute(stmt.body, {stmt.var: var})), number + 1
    result: Stmt = rebuild(stmt, lambda child: _named_alike(child, number) if isinstance(child, Stmt) else child)
    return result


@dataclass(frozen=True)
class _Nest:
    """Loops over items and conditions around sums of one panel, in three parts: each stands under all of them.

    `init` sets the sums to 0, `compute` adds to them, `update` adds them to the result.
    """

    buffers: tuple[Buffer, ...]
    init: Stmt
    compute: Stmt
    update: Stmt

    def under(self, wrap: Callable[[Stmt], Stmt]) -> _Nest:
        """The same inside of one more statement."""
        return _Nest(self.buffers, *map(wrap, (self.init, self.compute, self.update)))


@dataclass(frozen=True)
class _Kept:
    """A loop over panels whose sums are kept: what comes before it, the loop, and what takes the sums out."""

    buffers: tuple[Buffer, ...]
    init: Stmt
    loop: For
    update: Stmt

    @property
    def whole(self) -> Stmt:
        """All of it, with the sums declared around."""
        result: Stmt = Seq((self.init, self.loop, self.update))
        for buffer in dict.fromkeys(self.buffers):
            result = Allocate(buffer, result)
        return result


def _panels(loop: Stmt) -> _Kept | None:
    """The loop with its sums kept; None where it is no loop over panels, or a condition of the module does not hold."""
    if not isinstance(loop, For) or loop.kind != "serial" or loop.thread:
        return None
    last, with_last = _last(loop.body)
    nest = _nest(last) if any(isinstance(n, For) and n.has_items for n in walk(last)) else None
    if nest is None:
        return None
    inside = with_last(nest.compute)
    if not memories_written(nest.update).isdisjoint(memories_read(inside) | memories_written(inside)):
        return None
    if loop.var in _variables(nest.update) | _variables(nest.init):
        return None
    sums = {buffer.memory for buffer in nest.buffers}
    read = memories_read(nest.init) | (memories_read(nest.update) - sums)
    if not read.isdisjoint(memories_written(inside)):
        return None
    # What is stored is added to, and nothing else reads it: no condition, no index and no value.
    pairs = ((nest.compute, sums), (nest.update, sums), (nest.update, memories_written(nest.update)))
    if any(_loads(part, memories) != _stores(part) for part, memories in pairs):
        return None
    return _Kept(nest.buffers, nest.init, replace(loop, body=inside), nest.update)


def _last(body: Stmt) -> tuple[Stmt, Callable[[Stmt], Stmt]]:
    """The last statement of a panel, and the panel with another one in its place."""
    if isinstance(body, Allocate) and body.buffer.scope == "shared":
        last, with_last = _last(body.body)
        return last, lambda other: replace(body, body=with_last(other))
    if isinstance(body, Seq) and body.stmts:
        *first, end = body.stmts
        last, with_last = _last(end)
        return last, lambda other: seq([*first, with_last(other)])
    return body, lambda other: other


def _nest(stmt: Stmt) -> _Nest | None:
    """The parts of what the items of a group do for a panel; None where they do something else."""
    if isinstance(stmt, Allocate) and stmt.buffer.scope == "local":
        return _parts(stmt)
    if isinstance(stmt, If):
        then, orelse = _nest(stmt.then), None if stmt.orelse is None else _nest(stmt.orelse)
        if then is None or (orelse is None) != (stmt.orelse is None):
            return None
        if orelse is None:
            return then.under(lambda part: If(stmt.cond, part))
        parts = (If(stmt.cond, a, b) for a, b in zip(_three(then), _three(orelse), strict=True))
        return _Nest(then.buffers + orelse.buffers, *parts)
    if isinstance(stmt, Let) or (isinstance(stmt, For) and stmt.has_items and not stmt.reduces):
        inner = _nest(stmt.body)
        return None if inner is None else inner.under(lambda part: replace(stmt, body=part))
    return None


def _three(nest: _Nest) -> tuple[Stmt, Stmt, Stmt]:
    return nest.init, nest.compute, nest.update


def _parts(allocate: Allocate) -> _Nest | None:
    """The statements that begin a sum, that add to it, and that add it to the result, in this order."""
    parts = _split(allocate.body, allocate.buffer)
    if parts is None or not all(parts):
        return None
    return _Nest((allocate.buffer,), *map(seq, parts))


def _split(stmt: Stmt, buffer: Buffer) -> list[list[Stmt]] | None:
    """What of a statement belongs to each of three parts that may run one after the other; None where it is no such."""
    kind = _kind(stmt, buffer)
    if kind < NEITHER:
        return [[stmt] if number == kind else [] for number in range(NEITHER)]
    if isinstance(stmt, Seq):
        found = [_split(child, buffer) for child in stmt.stmts]
        known = [parts for parts in found if parts is not None]
        used = [[number for number, part in enumerate(parts) if part] for parts in known]
        if len(known) < len(found) or any(max(before) > min(after) for before, after in pairwise(used)):
            return None
        return [[s for parts in known for s in parts[number]] for number in range(NEITHER)]
    if isinstance(stmt, If):
        then = _split(stmt.then, buffer)
        orelse = [[], [], []] if stmt.orelse is None else _split(stmt.orelse, buffer)
        if then is None or orelse is None:
            return None
        return [_chosen(stmt.cond, a, b) for a, b in zip(then, orelse, strict=True)]
    return None


def _chosen(cond: Expr, then: list[Stmt], orelse: list[Stmt]) -> list[Stmt]:
    """A condition around the parts of its sides, either of which may be empty."""
    if not then:
        return [If(Not(cond), seq(orelse))] if orelse else []
    return [If(cond, seq(then), seq(orelse) if orelse else None)]


def _kind(stmt: Stmt, buffer: Buffer) -> int:
    """0 of what sets the sum to 0, 1 of what adds to it, 2 of what adds it to something else; `NEITHER` of others."""
    stores = [node for node in walk(stmt) if isinstance(node, Store)]
    own = [store.buffer.memory == buffer.memory for store in stores]
    if all(own):
        if all(_is_zero(store.value) for store in stores):
            return 0
        return 1 if all(_adds(store, None) for store in stores) else NEITHER
    if any(own) or any(isinstance(node, Allocate) for node in walk(stmt)):
        return NEITHER
    return 2 if all(_adds(store, buffer) for store in stores) else NEITHER


def _is_zero(value: Expr) -> bool:
    while isinstance(value, Broadcast | Cast):
        value = value.value if isinstance(value, Broadcast) else value.a
    return isinstance(value, Const) and value.value == 0


def _adds(store: Store, what: Buffer | None) -> bool:
    """Whether a store is ``B[i] = B[i] + e``, where e is an element of `what`, or reads no B."""
    value = store.value
    if not (isinstance(value, Binary) and value.op == "+"):
        return False
    for mine, other in ((value.a, value.b), (value.b, value.a)):
        if isinstance(mine, Load) and mine.buffer == store.buffer and mine.indices == store.indices:
            if what is not None:
                return isinstance(other, Load) and other.buffer.memory == what.memory
            return store.buffer.memory not in memories_read(other)
    return False


def _stores(stmt: Stmt) -> int:
    return sum(isinstance(node, Store) for node in walk(stmt))


def _loads(stmt: Stmt, memories: Collection[str]) -> int:
    """How often a statement reads some memories, anywhere in it."""
    return sum(isinstance(node, Load) and node.buffer.memory in memories for node in walk(stmt))


def _variables(stmt: Stmt) -> frozenset[Var]:
    return frozenset(v for node in walk(stmt) if isinstance(node, Expr) for v in variables(node))
