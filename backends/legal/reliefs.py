"""Fences behind which values are loaded again, so that register tiles of CPUs stay in registers.

::

    for k in 4 {unrolled}: T[i] += a[k] * b[k]
        ->  for k in 4 {unrolled}: { if (k == 2) signal_fence(); T[i] += a[k] * b[k] }

LLVM loads an element once for all its uses, and keeps it as long as there are any.  Loading again is free where
multiply-adds wait for each other; spilling an accumulator is not.  So between two iterations of an unrolled loop that
updates a tile, where more has been loaded than fits beside it, stands a fence (see `written_out` for OpenCL devices).

What has been loaded is what a code generator knows of memory at that place: floats and words of dot products, from
memories other than tiles, each place once, since the last fence or store to that memory; what is loaded in a side of a
condition is known in that side alone, what is loaded in a loop until its end.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial, reduce

from ...ir import dtypes
from ...ir.arith.intervals import Facts
from ...ir.expr import Expr, as_int, binary
from ...ir.node import Node, changed, children, rebuild, remembered
from ...ir.stmt import Allocate, Evaluate, For, If, Let, Seq, Stmt, memories_written, seq
from ...ir.target import Target
from ..registers import accumulators, registers_of
from .loaded import Effects, is_written_out
from .written_out import FENCE

_or = partial(binary, "or")


def reliefs(stmt: Stmt, target: Target) -> Stmt:
    """The statement, for a CPU, with its fences."""
    if target.kind != "cpu" or not _updates(stmt):
        return stmt
    return _Walk(target.registers, max(target.vector_bits // 8, 16)).statement(stmt)


@remembered
def _updates(stmt: Node) -> bool:
    """Whether an unrolled loop in the statement updates registers in each of its iterations."""
    if isinstance(stmt, For) and stmt.kind == "unrolled" and accumulators(stmt, 1) > 0:
        return True
    return any(isinstance(child, Stmt) and _updates(child) for child in children(stmt))


@dataclass
class _Walk:
    """Follows a program in order; `known` are the places whose values are known and their bytes, by memory."""

    registers: int
    register_bytes: int
    known: dict[str, dict[Hashable, int]] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)
    taken: dict[For, int] = field(default_factory=dict)

    def statement(self, stmt: Stmt) -> Stmt:
        if not _updates(stmt):
            self._follow(stmt)
            return stmt
        if isinstance(stmt, Seq):
            made = [self.statement(item) for item in stmt.stmts]
            return stmt if all(a is b for a, b in zip(made, stmt.stmts, strict=True)) else seq(made)
        if isinstance(stmt, For):
            return self._for(stmt)
        if isinstance(stmt, If):
            return self._if(stmt)
        facts = self.effects.facts
        if isinstance(stmt, Let):
            self._follow(stmt.value)
            self.effects.facts = facts.binding(stmt.var, stmt.value)
        result: Stmt = rebuild(stmt, lambda child: self.statement(child) if isinstance(child, Stmt) else child)
        self.effects.facts = facts
        if isinstance(stmt, Allocate):
            self.known.pop(stmt.buffer.name, None)
        return result

    def _follow(self, node: Stmt | Expr) -> None:
        """Know what a statement without such loops, or an expression, loads."""
        effect = self.effects.of(node)
        for memory in effect.written:
            self.known.pop(memory, None)
        at = self.effects.at
        for memory, places in effect.loaded.items():
            known = self.known.setdefault(memory, {})
            for place, nbytes in places.items():
                known[at(place)] = nbytes

    def _apart(self, stmt: Stmt, facts: Facts) -> Stmt:
        """A statement where `facts` hold, and whose loads are known in it alone."""
        known, self.known = self.known, {memory: dict(places) for memory, places in self.known.items()}
        around, self.effects.facts = self.effects.facts, facts
        made = self.statement(stmt)
        self.known, self.effects.facts = known, around
        return made

    def _for(self, stmt: For) -> Stmt:
        if is_written_out(stmt):
            return self._unrolled(stmt, as_int(stmt.extent))
        self._follow(stmt.extent)
        self._forget(stmt.body)
        known = self.known
        if stmt.kind == "parallel":  # a function of its own
            self.known = {}
        body = self._apart(stmt.body, self.effects.facts.looping(stmt.var, stmt.extent))
        self.known = known
        return stmt if body is stmt.body else changed(stmt, body=body)

    def _forget(self, stmt: Stmt) -> None:
        for memory in memories_written(stmt):
            self.known.pop(memory, None)

    def _unrolled(self, stmt: For, extent: int) -> Stmt:
        """The loop with a fence before some of its iterations."""
        taken = self.taken.get(stmt)
        if taken is None:
            taken = self.taken[stmt] = accumulators(stmt, self.register_bytes)
        bodies: list[Stmt] = []
        fenced: list[int] = []
        effects, var = self.effects, stmt.var
        around, effects.nest = effects.nest, (*effects.nest, var)
        for value in range(extent):
            if value and taken:
                sizes = (size for places in self.known.values() for size in places.values())
                if registers_of(sizes, self.register_bytes) > self.registers - taken:
                    fenced.append(value)
                    self.known = {}
            effects.present[var] = value
            bodies.append(self.statement(stmt.body))
        effects.present.pop(var, None)
        effects.nest = around
        if not fenced and all(body is stmt.body for body in bodies):
            return stmt
        made = bodies[-1]
        for value in range(extent - 1, 0, -1):
            if bodies[value - 1] != bodies[value]:
                made = If(binary("<", var, value), bodies[value - 1], made)
        if fenced:
            conds = [binary("==", var, value) for value in fenced]
            is_each = len(fenced) == extent - 1
            made = seq([If(binary(">", var, 0) if is_each else reduce(_or, conds), Evaluate(FENCE)), made])
        return changed(stmt, body=made)

    def _if(self, stmt: If) -> Stmt:
        decided = self.effects.decided(stmt.cond)
        if decided is not None:
            chosen = stmt.then if decided else stmt.orelse
            made = None if chosen is None else self.statement(chosen)
            return stmt if made is chosen or made is None else made
        self._follow(stmt.cond)
        if dtypes.lanes(stmt.cond.dtype) > 1:
            then = self.statement(stmt.then)
            orelse = None if stmt.orelse is None else self.statement(stmt.orelse)
        else:
            facts = self.effects.facts
            then = self._apart(stmt.then, facts)
            orelse = None if stmt.orelse is None else self._apart(stmt.orelse, facts)
            self._forget(stmt)
        return stmt if then is stmt.then and orelse is stmt.orelse else If(stmt.cond, then, orelse)
