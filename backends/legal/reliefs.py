"""Fences behind which values are loaded again, so that register tiles of CPUs stay in registers.

::

    for k in 4 {unrolled}: T[i] += a[k] * b[k]  ->  T[i] += a[0] * b[0]; T[i] += a[1] * b[1]; signal_fence(); ..

LLVM loads an element once for all its uses, and keeps it as long as there are any.  Loading again is free where
multiply-adds wait for each other; spilling an accumulator is not.  So between two iterations of an unrolled loop that
updates a tile, where more has been loaded than fits beside it, stands a fence (see `written_out` for OpenCL devices).

What has been loaded is what a code generator knows of memory at that place: floats from memories other than tiles, each
place once, since the last fence or store to that memory; what is loaded in a side of a condition is known in that side
alone, what is loaded in a loop until its end.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from ...ir import dtypes
from ...ir.arith.compare import decide_zero
from ...ir.arith.intervals import Facts, nothing_known
from ...ir.arith.linear import UndefTerm, as_ramp, build, shared_form
from ...ir.expr import (
    COMPARISONS,
    Binary,
    Call,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Shuffle,
    Var,
    as_int,
    binary,
    const,
    free_variables,
    substitute,
)
from ...ir.functions import MASKED_LOAD, PREFETCH
from ...ir.node import children, rebuild
from ...ir.stmt import Allocate, Evaluate, For, If, Let, Seq, Stmt, Store, memories_written, seq, walk_stmts
from ...ir.target import Target
from ..registers import accumulators, registers_of
from .written_out import FENCE

Present = Mapping[Var, int]
"""The values that variables of unrolled loops have."""


def reliefs(stmt: Stmt, target: Target) -> Stmt:
    """The statement, for a CPU, with its fences; loops that have some are written out."""
    walk = _Walk(target.registers, max(target.vector_bits // 8, 16))
    if target.kind != "cpu" or not any(isinstance(s, For) and walk.updates(s) for s in walk_stmts(stmt)):
        return stmt
    return walk.statement(stmt)


@dataclass(frozen=True)
class _Form:
    """An index as a number and terms, those of unrolled loops' variables apart: ``constant + own . present + rest``."""

    constant: int
    own: tuple[tuple[Var, int], ...]
    rest: Hashable

    def key(self, present: Present) -> tuple[Hashable, int]:
        """What tells the index from others: the rest, and the number that the values give."""
        return self.rest, self.constant + sum(factor * present[var] for var, factor in self.own)


@dataclass
class _Walk:
    """Follows a program in order; `known` are the places whose values are known and their bytes, by memory."""

    registers: int
    register_bytes: int
    known: dict[str, dict[Hashable, int]] = field(default_factory=dict)
    tiles: frozenset[str] = frozenset()
    present: dict[Var, int] = field(default_factory=dict)
    facts: Facts = field(default_factory=nothing_known)
    nest: tuple[Var, ...] = ()
    forms: dict[tuple[Expr, tuple[Var, ...]], _Form] = field(default_factory=dict)

    def updates(self, loop: For) -> bool:
        """Whether an unrolled loop updates registers in each of its iterations."""
        return loop.kind == "unrolled" and accumulators(loop, self.register_bytes) > 0

    # ------------------------------------------------------------ statements

    def statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Seq):
            made = [self.statement(item) for item in stmt.stmts]
            return stmt if all(a is b for a, b in zip(made, stmt.stmts, strict=True)) else seq(made)
        if isinstance(stmt, For):
            return self._for(stmt)
        if isinstance(stmt, If):
            return self._if(stmt)
        if isinstance(stmt, Store):
            for expr in (stmt.value, *stmt.indices):
                self._loaded(expr)
            self.known.pop(stmt.buffer.memory, None)
            return stmt
        around, facts = self.tiles, self.facts
        if isinstance(stmt, Allocate):
            self.known.pop(stmt.buffer.name, None)
            if stmt.buffer.scope == "local":
                self.tiles |= {stmt.buffer.name}
        elif isinstance(stmt, (Let, Evaluate)):
            self._loaded(stmt.value)
        if isinstance(stmt, Let):
            self.facts = facts.binding(stmt.var, stmt.value)
        result: Stmt = rebuild(stmt, lambda child: self.statement(child) if isinstance(child, Stmt) else child)
        self.tiles, self.facts = around, facts
        return result

    def _apart(self, stmt: Stmt, facts: Facts) -> Stmt:
        """A statement where `facts` hold, and whose loads are known in it alone."""
        known, self.known = self.known, {memory: dict(places) for memory, places in self.known.items()}
        around, self.facts = self.facts, facts
        made = self.statement(stmt)
        self.known, self.facts = known, around
        return made

    def _for(self, stmt: For) -> Stmt:
        if isinstance(stmt.extent, Const) and (as_int(stmt.extent) <= 1 or stmt.kind == "unrolled"):
            return self._unrolled(stmt, as_int(stmt.extent))
        self._loaded(stmt.extent)
        self._forget(stmt.body)
        known = self.known
        if stmt.kind == "parallel":  # a function of its own
            self.known = {}
        body = self._apart(stmt.body, self.facts.looping(stmt.var, stmt.extent))
        self.known = known
        return stmt if body is stmt.body else For(stmt.var, stmt.extent, body, stmt.kind, stmt.thread, stmt.annotations)

    def _forget(self, stmt: Stmt) -> None:
        for memory in memories_written(stmt):
            self.known.pop(memory, None)

    def _unrolled(self, stmt: For, extent: int) -> Stmt:
        """The loop, or where there are fences its iterations one after the other."""
        taken = accumulators(stmt, self.register_bytes)
        bodies: list[Stmt] = []
        fenced: set[int] = set()
        around, self.nest = self.nest, (*self.nest, stmt.var)
        for value in range(extent):
            if value and taken and self._held() > self.registers - taken:
                fenced.add(value)
                self.known = {memory: places for memory, places in self.known.items() if memory in self.tiles}
            self.present[stmt.var] = value
            bodies.append(self.statement(stmt.body))
        self.present.pop(stmt.var, None)
        self.nest = around
        if not fenced and all(body is stmt.body for body in bodies):
            return stmt
        made: list[Stmt] = []
        for value, body in enumerate(bodies):
            made += [Evaluate(FENCE)] * (value in fenced)
            made.append(substitute(body, {stmt.var: const(value)}))
        return seq(made)

    def _held(self) -> int:
        """The registers that hold what was loaded."""
        places = (places for memory, places in self.known.items() if memory not in self.tiles)
        return registers_of((size for each in places for size in each.values()), self.register_bytes)

    def _if(self, stmt: If) -> Stmt:
        decided = self._decided(stmt.cond)
        if decided is not None:
            chosen = stmt.then if decided else stmt.orelse
            made = None if chosen is None else self.statement(chosen)
            return stmt if made is chosen or made is None else made
        self._loaded(stmt.cond)
        if dtypes.lanes(stmt.cond.dtype) > 1:
            then, orelse = self.statement(stmt.then), stmt.orelse
        else:
            then = self._apart(stmt.then, self.facts)
            orelse = None if stmt.orelse is None else self._apart(stmt.orelse, self.facts)
            self._forget(stmt)
        return stmt if then is stmt.then and orelse is stmt.orelse else If(stmt.cond, then, orelse)

    # ------------------------------------------------------------ conditions and places

    def _decided(self, cond: Expr) -> bool | None:
        """Whether a condition holds, where the loops around it tell."""
        if isinstance(cond, Const):
            return bool(cond.value)
        if isinstance(cond, Not):
            inner = self._decided(cond.a)
            return None if inner is None else not inner
        if not isinstance(cond, Binary) or dtypes.lanes(cond.dtype) > 1:
            return None
        if cond.op in ("and", "or"):
            sides = [self._decided(side) for side in (cond.a, cond.b)]
            absorbing = cond.op == "or"
            return absorbing if absorbing in sides else None if None in sides else not absorbing
        if cond.op not in COMPARISONS or cond.a.dtype != dtypes.INDEX:
            return None
        form = self._form(binary("-", cond.a, cond.b))
        assert isinstance(form.rest, frozenset)
        low, high = self.facts.of_form((dict(form.rest), form.key(self.present)[1]))
        return decide_zero(cond.op, low, high)

    def _form(self, index: Expr) -> _Form:
        known = self.forms.get((index, self.nest))
        if known is None:
            try:
                terms, constant = shared_form(index)
            except UndefTerm:
                terms, constant = {index: 1}, 0
            hidden = {v for atom in terms if not isinstance(atom, Var) for v in free_variables(atom)}
            if hidden & self.present.keys():
                values = {var: const(value) for var, value in self.present.items()}
                terms, constant = shared_form(build(shared_form(substitute(index, values))))
                return _Form(constant, (), frozenset(terms.items()))
            own = tuple((a, k) for a, k in terms.items() if isinstance(a, Var) and a in self.present)
            rest = frozenset((a, k) for a, k in terms.items() if a not in self.present)
            known = self.forms[index, self.nest] = _Form(constant, own, rest)
        return known

    def _loaded(self, expr: Expr) -> None:
        """Know what an expression loads."""
        for load in self._evaluated(expr):
            memory = _memory_of(load)
            if memory and dtypes.is_float(load.dtype):
                self.known.setdefault(memory, {}).update(self._places(load))

    def _evaluated(self, expr: Expr) -> Iterator[Expr]:
        """The loads that an expression makes in any case, and the shuffles and masked loads that are known as one."""
        if isinstance(expr, Call) and expr.name == PREFETCH:
            return
        if isinstance(expr, Select) or (isinstance(expr, Call) and expr.name in ("if_then_else", MASKED_LOAD)):
            yield from self._chosen(expr)
            return
        for child in children(expr):
            if isinstance(child, Expr):
                yield from self._evaluated(child)
        if isinstance(expr, Load) or (isinstance(expr, Shuffle) and len(expr.lanes) > 1):
            yield expr

    def _chosen(self, expr: Select | Call) -> Iterator[Expr]:
        cond, a, *others = (expr.cond, expr.a, expr.b) if isinstance(expr, Select) else expr.args
        decided = self._decided(cond)
        if decided is not None:
            for side in (a,) if decided else others:
                yield from self._evaluated(side)
            return
        yield from self._evaluated(cond)
        if isinstance(expr, Select):
            parts: tuple[Expr, ...] = (a, *others)
        elif expr.name == MASKED_LOAD:
            parts = (*(child for child in children(a) if isinstance(child, Expr)), *others)
        else:
            return
        for part in parts:
            yield from self._evaluated(part)
        if isinstance(expr, Call) and dtypes.lanes(cond.dtype) > 1:
            yield expr

    def _places(self, load: Expr) -> Iterator[tuple[Hashable, int]]:
        """What a load makes known, and its bytes: itself, and its lanes where they are read one by one."""
        dtype = load.dtype
        if not isinstance(load, Load):
            parts = [child for child in children(load) if isinstance(child, Expr)]
            yield (type(load).__name__, dtype, *map(self._key, parts)), dtypes.nbytes(dtype)
            return
        kind, size = load.buffer.dtype, dtypes.nbytes(load.buffer.dtype)
        found = as_ramp(load.indices[0]) if len(load.indices) == 1 else None
        if found is None:
            yield (dtype, *map(self._key, load.indices)), dtypes.nbytes(dtype)
            return
        base, count = self._form(found[0]).key(self.present), dtypes.lanes(load.indices[0].dtype)
        stride = self._form(found[1]).key(self.present)
        if count == 1 or stride == (frozenset(), 0):
            yield (kind, 1, base), size
            return
        yield (kind, count, base, stride), dtypes.nbytes(dtype)
        if stride != (frozenset(), 1):
            for n in range(count):
                lane = binary("+", found[0], binary("*", found[1], n))
                yield (kind, 1, self._form(lane).key(self.present)), size

    def _key(self, expr: Expr) -> Hashable:
        """What tells an expression from others at the present values."""
        used = tuple((var, self.present[var]) for var in self.present if var in free_variables(expr))
        return expr, used


def _memory_of(expr: Expr) -> str:
    """The memory that a load reads, or all vectors of a shuffle; empty where there is no one."""
    if isinstance(expr, Load):
        return expr.buffer.memory
    if isinstance(expr, Call):
        return _memory_of(expr.args[1])
    assert isinstance(expr, Shuffle)
    memories = {v.buffer.memory if isinstance(v, Load) else "" for v in expr.vectors}
    return memories.pop() if len(memories) == 1 else ""
