"""What statements load and write, as places that unrolled loops' variables move.

::

    for i in 4 {unrolled}: T[i] += a[k + i] * b[k]    loads a[k], a[k + 1], a[k + 2], a[k + 3] and b[k], writes T

A statement in an unrolled loop has one effect for all values of the loop's variable, but where a condition depends on
it: there is one for each value.  So each statement is looked at once, however often it is written out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...ir import dtypes
from ...ir.arith.compare import decide_zero
from ...ir.arith.intervals import Facts, nothing_known
from ...ir.arith.linear import UndefTerm, as_ramp, shared_form
from ...ir.arith.simplifier import simplifier_for
from ...ir.expr import (
    COMPARISONS,
    Binary,
    Broadcast,
    Buffer,
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
    conjuncts,
    const,
    free_variables,
    substitute,
)
from ...ir.functions import DOT_CALLS, MASKED_LOAD, PAIR_CALLS, PREFETCH
from ...ir.node import Node, children, gathered, walk
from ...ir.stmt import Allocate, Evaluate, For, If, Let, Stmt, Store, memories_written

Values = tuple[tuple[Var, int], ...]


class Form(NamedTuple):
    """An index in unrolled loops: ``constant + sum(factor * variable of a loop) + rest``.

    Where an atom of it depends on such a variable, ``(k + i) // 4``, `hidden` is the index, whose form is known when
    all values are; `given` are those that are.
    """

    constant: int
    own: Values
    rest: Hashable
    hidden: Expr | None = None
    given: Values = ()

    def has(self, var: Var) -> bool:
        """Whether the form depends on a loop's variable."""
        if self.hidden is not None:
            return var in free_variables(self.hidden)
        return any(other == var for other, _ in self.own)

    def where(self, var: Var, value: int) -> Form:
        """The form at a value of a loop's variable."""
        if not self.has(var):
            return self
        if self.hidden is not None:
            return self._replace(given=(*self.given, (var, value)))
        own = tuple([term for term in self.own if term[0] != var])
        return Form(self.constant + dict(self.own)[var] * value, own, self.rest)


class Place(NamedTuple):
    """What tells a value in memory, or a shuffle of some, from others: what it is, and its indices."""

    kind: Hashable
    forms: tuple[Form, ...]

    def where(self, var: Var, value: int) -> Place:
        """The place at a value of a loop's variable."""
        return Place(self.kind, tuple([form.where(var, value) for form in self.forms]))


@dataclass
class Effect:
    """What holds after a statement: memories are `written`, and values `loaded` from there on, their bytes by place.

    Only floats count and the words of dot products, which are in vectors as well, and not those of register tiles.
    """

    written: set[str] = field(default_factory=set)
    loaded: dict[str, dict[Place, int]] = field(default_factory=dict)

    def load(self, memory: str, place: Place, nbytes: int) -> None:
        """A value is loaded."""
        self.loaded.setdefault(memory, {})[place] = nbytes

    def write(self, memory: str) -> None:
        """A memory is written: nothing that was loaded from it is known."""
        self.written.add(memory)
        self.loaded.pop(memory, None)

    def then(self, other: Effect) -> None:
        """Another effect comes after this one."""
        for memory in other.written:
            self.write(memory)
        for memory, places in other.loaded.items():
            self.loaded.setdefault(memory, {}).update(places)

    def where(self, var: Var, values: range) -> Effect:
        """The effect of a loop's body at values of its variable, one after the other."""
        found = Effect(self.written)
        for memory, places in self.loaded.items():
            moved = found.loaded[memory] = {}
            known = values[-1:] if memory in self.written else values
            for place, nbytes in places.items():
                if any(form.has(var) for form in place.forms):
                    moved.update((place.where(var, value), nbytes) for value in known)
                else:
                    moved[place] = nbytes
        return found


@gathered
def _deciding(node: Node) -> frozenset[Var]:
    """The variables in conditions, which decide what is loaded at all."""
    if isinstance(node, (If, Select)):
        cond = node.cond
    elif isinstance(node, Call) and node.name in ("if_then_else", MASKED_LOAD):
        cond = node.args[0]
    else:
        return frozenset()
    if dtypes.lanes(cond.dtype) == 1:
        return frozenset(free_variables(cond))
    parts = conjuncts(cond) if isinstance(node, Call) and node.name == MASKED_LOAD else ()
    return frozenset(var for part in parts if isinstance(part, Broadcast) for var in free_variables(part))


@dataclass
class Effects:
    """Finds the effects of statements at a place: the `nest` of unrolled loops, their `present` values, and `facts`."""

    facts: Facts = field(default_factory=nothing_known)
    nest: tuple[Var, ...] = ()
    present: dict[Var, int] = field(default_factory=dict)
    forms: dict[tuple[Expr, tuple[Var, ...]], Form] = field(default_factory=dict)
    found: dict[tuple[Node, tuple[Var, ...], Facts, tuple[int, ...]], Effect] = field(default_factory=dict)
    hidden: dict[tuple[Expr, Values], tuple[Hashable, int]] = field(default_factory=dict)

    def of(self, node: Stmt | Expr) -> Effect:
        """The effect of a statement or an expression, which must not be changed."""
        deciding = _deciding(node)
        values = tuple([self.present[var] for var in self.nest if var in deciding]) if deciding else ()
        key = (node, self.nest, self.facts, values)
        known = self.found.get(key)
        if known is None:
            known = self.found[key] = Effect()
            if isinstance(node, Expr):
                self._expr(node, known)
            else:
                self._statement(node, known)
        return known

    def at(self, place: Place) -> Hashable:
        """What tells the place from others at the present values."""
        return (place.kind, *[self._number(form) for form in place.forms])

    def _number(self, form: Form) -> tuple[Hashable, int]:
        """The form at the present values: the rest and the number."""
        present, hidden = self.present, form.hidden
        if hidden is None:
            number = form.constant
            for var, factor in form.own:
                number += factor * present[var]
            return form.rest, number
        used = free_variables(hidden)
        given = tuple([(var, value) for var, value in (dict(form.given) | present).items() if var in used])
        known = self.hidden.get((hidden, given))
        if known is None:
            at = simplifier_for(nothing_known()).expr(substitute(hidden, {var: const(value) for var, value in given}))
            terms, constant = shared_form(at)
            known = self.hidden[hidden, given] = frozenset(terms.items()), constant
        return known

    # ------------------------------------------------------------ statements

    def _statement(self, stmt: Stmt, effect: Effect) -> None:
        if isinstance(stmt, Store):
            for expr in (stmt.value, *stmt.indices):
                effect.then(self.of(expr))
            effect.write(stmt.buffer.memory)
        elif isinstance(stmt, For):
            self._for(stmt, effect)
        elif isinstance(stmt, If):
            self._if(stmt, effect)
        else:
            around = self.facts
            if isinstance(stmt, (Let, Evaluate)):
                effect.then(self.of(stmt.value))
            if isinstance(stmt, Let):
                self.facts = around.binding(stmt.var, stmt.value)
            for child in children(stmt):
                if isinstance(child, Stmt):
                    effect.then(self.of(child))
            self.facts = around
            if isinstance(stmt, Allocate):
                effect.write(stmt.buffer.name)

    def _for(self, stmt: For, effect: Effect) -> None:
        if not is_written_out(stmt):  # what it loads is known until its end
            effect.then(self.of(stmt.extent))
            for memory in memories_written(stmt.body):
                effect.write(memory)
            return
        around, var, values = self.nest, stmt.var, range(as_int(stmt.extent))
        self.nest = (*around, var)
        if var in _deciding(stmt.body):
            for value in values:
                self.present[var] = value
                effect.then(self.of(stmt.body).where(var, values[value : value + 1]))
            self.present.pop(var, None)
        elif values:
            effect.then(self.of(stmt.body).where(var, values))
        self.nest = around

    def _if(self, stmt: If, effect: Effect) -> None:
        decided = self.decided(stmt.cond)
        if decided is not None:
            chosen = stmt.then if decided else stmt.orelse
            if chosen is not None:
                effect.then(self.of(chosen))
            return
        effect.then(self.of(stmt.cond))
        if dtypes.lanes(stmt.cond.dtype) > 1:
            for side in (stmt.then, stmt.orelse):
                if side is not None:
                    effect.then(self.of(side))
            return
        for memory in memories_written(stmt):
            effect.write(memory)

    # ------------------------------------------------------------ conditions and places

    def decided(self, cond: Expr) -> bool | None:
        """Whether a condition holds, where the loops around it tell."""
        if isinstance(cond, Const):
            return bool(cond.value)
        if isinstance(cond, Not):
            inner = self.decided(cond.a)
            return None if inner is None else not inner
        if not isinstance(cond, Binary) or dtypes.lanes(cond.dtype) > 1:
            return None
        if cond.op in ("and", "or"):
            sides = [self.decided(side) for side in (cond.a, cond.b)]
            absorbing = cond.op == "or"
            return absorbing if absorbing in sides else None if None in sides else not absorbing
        if cond.op not in COMPARISONS or cond.a.dtype != dtypes.INDEX:
            return None
        rest, number = self._number(self._form(binary("-", cond.a, cond.b)))
        assert isinstance(rest, frozenset)
        low, high = self.facts.of_form((dict(rest), number))
        return decide_zero(cond.op, low, high)

    def _form(self, index: Expr) -> Form:
        known = self.forms.get((index, self.nest))
        if known is None:
            try:
                terms, constant = shared_form(index)
            except UndefTerm:
                terms, constant = {index: 1}, 0
            atoms = (v for atom in terms if not isinstance(atom, Var) for v in free_variables(atom))
            if any(var in self.nest for var in atoms):
                known = Form(0, (), None, index)
            else:
                own = tuple([(a, k) for a, k in terms.items() if isinstance(a, Var) and a in self.nest])
                rest = frozenset([(a, k) for a, k in terms.items() if a not in self.nest])
                known = Form(constant, own, rest)
            self.forms[index, self.nest] = known
        return known

    def _expr(self, expr: Expr, effect: Effect) -> None:
        words = words_of(expr)
        for load in self._evaluated(expr):
            buffer = _memory_of(load)
            if buffer is not None and buffer.scope != "local" and (dtypes.is_float(load.dtype) or load in words):
                for place, nbytes in self._places(load):
                    effect.load(buffer.memory, place, nbytes)

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
        decided = self.decided(cond)
        if isinstance(expr, Call) and expr.name == MASKED_LOAD and self._mask(expr) is None:
            decided = False
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

    def _places(self, load: Expr) -> Iterator[tuple[Place, int]]:
        """What a load makes known, and its bytes: itself, and its lanes where they are read one by one."""
        dtype = load.dtype
        if isinstance(load, Call):
            yield self._masked(load), dtypes.nbytes(dtype)
            return
        if not isinstance(load, Load):
            parts = [child for child in children(load) if isinstance(child, Expr)]
            yield self._same((type(load).__name__, dtype), parts), dtypes.nbytes(dtype)
            return
        kind, size = load.buffer.dtype, dtypes.nbytes(load.buffer.dtype)
        found = as_ramp(load.indices[0]) if len(load.indices) == 1 else None
        if found is None:
            yield self._same((dtype,), load.indices), dtypes.nbytes(dtype)
            return
        base, stride, count = self._form(found[0]), self._form(found[1]), dtypes.lanes(load.indices[0].dtype)
        if count == 1 or stride == Form(0, (), frozenset()):
            yield Place((kind, 1), (base,)), size
            return
        yield Place((kind, count), (base, stride)), dtypes.nbytes(dtype)
        if stride != Form(1, (), frozenset()):
            for n in range(count):
                lane = binary("+", found[0], binary("*", found[1], n))
                yield Place((kind, 1), (self._form(lane),)), size

    def _masked(self, expr: Call) -> Place:
        """The place of a masked load: its first lane, where the lanes are neighbours, and what is left of the mask."""
        _, load, *beside = expr.args
        assert isinstance(load, Load)
        found = as_ramp(load.indices[0]) if len(load.indices) == 1 else None
        parts = [*(self._mask(expr) or ()), *beside]
        if found is None or found[1] != const(1, found[1].dtype):
            return self._same((MASKED_LOAD, expr.dtype), [*parts, *load.indices])
        same = self._same((MASKED_LOAD, expr.dtype), parts)
        return Place(same.kind, (*same.forms, self._form(found[0])))

    def _mask(self, expr: Call) -> list[Expr] | None:
        """The parts of a mask that unrolled loops do not decide; None if one is false, so that no lane is loaded."""
        left: list[Expr] = []
        for part in conjuncts(expr.args[0]):
            decided = self.decided(part.value) if isinstance(part, Broadcast) else None
            if decided is False:
                return None
            if decided is None:
                left.append(part)
        return left

    def _same(self, kind: tuple[Hashable, ...], parts: list[Expr] | tuple[Expr, ...]) -> Place:
        """What is the same where its parts and their variables' values are."""
        used = {var for part in parts for var in free_variables(part)}
        return Place((*kind, *parts), tuple([Form(0, ((var, 1),), var) for var in self.nest if var in used]))


@gathered
def words_of(node: Node) -> frozenset[Expr]:
    """The loads of what dot products multiply."""
    if not isinstance(node, Call) or node.name not in (*DOT_CALLS, *PAIR_CALLS):
        return frozenset()
    return frozenset(n for factor in node.args[:2] for n in walk(factor) if isinstance(n, Load))


def is_written_out(loop: For) -> bool:
    """Whether the code has each iteration of a loop one after the other."""
    return isinstance(loop.extent, Const) and (as_int(loop.extent) <= 1 or loop.kind == "unrolled")


def _memory_of(expr: Expr) -> Buffer | None:
    """The memory that a load reads, or all vectors of a shuffle, by a buffer; None where there is no one."""
    if isinstance(expr, Load):
        return expr.buffer
    if isinstance(expr, Call):
        return _memory_of(expr.args[1])
    assert isinstance(expr, Shuffle)
    buffers = [v.buffer if isinstance(v, Load) else None for v in expr.vectors]
    return buffers[0] if len({b and b.memory for b in buffers}) == 1 else None
