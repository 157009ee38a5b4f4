"""Every statement of a function with the instances that run, the order that they run in, and what they touch.

Blocks, opaque blocks and bare loops come out alike: a `Statement` has a domain over
its loops, with iterators, let bindings and predicates substituted, and a schedule in
the usual 2d+1 form::

    for i:            S0: schedule (0, i, 0)         a block's init runs at the first point of its
        S0            S1: schedule (0, i, 1, j, 0)   reduction, just before the body, and is a
        for j: S1                                    statement of its own

The statement that runs is a store, an evaluation or an assumption.  Where a condition,
an extent, a binding or a let value loads from memory, the node that holds it is a
statement too, one that only reads.  Within one instance all loads come before the store.

Integer scalar parameters are the outermost dimensions.  A vector access gives its
statement one more dimension, the lane, which the schedule leaves out: lanes run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import NamedTuple

from .. import dtypes
from ..affine.sets import Domain
from ..arith.intervals import negate
from ..caches import Recent, cached
from ..calls import Region
from ..expr import (
    TRUE,
    Buffer,
    Const,
    Expr,
    Undef,
    Var,
    binary,
    conjuncts,
    const,
    reads_memory,
)
from ..node import remembered, walk
from ..ranges import preconditions
from ..statements import LONGEST
from ..stmt import (
    Allocate,
    Assert,
    Assume,
    Attr,
    Block,
    Declare,
    Evaluate,
    For,
    If,
    Let,
    Opaque,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    While,
    fresh,
    memories_read,
    memories_written,
    names_below,
)
from .accesses import (
    Access,
    Accesses,
    Aliases,
    Bindings,
    Dims,
    Frame,
    Owners,
    accesses_of,
    inlined,
    lanes_of,
    own_expressions,
    region_access,
    resolved,
    resolved_loads,
)
from .boxes import Box, Touches, box_of

Schedule = tuple[int | Var, ...]


@dataclass(frozen=True)
class Statement:
    """One statement, numbered in program order.

    `dims` and `conditions` describe its instances as they are written; `domain` is the
    affine part, a superset unless `exact`.  `path` leads from the root block down to
    `stmt`, both included.  `loops` are the loops around, the outermost first.
    """

    number: int
    stmt: Stmt
    path: tuple[Stmt, ...]
    loops: tuple[For, ...]
    dims: Dims
    conditions: tuple[Expr, ...]
    schedule: Schedule
    block: Block | None
    is_init: bool
    env: Bindings
    lane: Var | None
    owners: Owners
    aliases: Aliases
    region: Region | None = None
    inside: tuple[Var | None, ...] = ()
    is_written: bool = False

    @cached_property
    def domain(self) -> Domain:
        """The instances as a set over `variables`; conditions that are not affine are left out."""
        return _relaxed(Domain(self.dims, self.conditions))

    @property
    def exact(self) -> bool:
        """Whether all of `domain` runs."""
        return self.region is None and self.domain.dims == self.dims and self.domain.conditions == self.conditions

    @property
    def variables(self) -> tuple[Var, ...]:
        return tuple(v for v, _ in self.dims)

    @property
    def parameters(self) -> tuple[Var, ...]:
        """The scalar parameters among the dimensions."""
        around = {loop.var for loop in self.loops}
        return tuple(v for v in self.variables if v not in around and v != self.lane and v not in self.inside)

    @cached_property
    def bounds(self) -> dict[Var, tuple[int, int]]:
        """Inclusive bounds of the variables with constant extents."""
        return {v: (0, extent - 1) for v, extent in self.dims if isinstance(extent, int)}

    @cached_property
    def _frame(self) -> Frame:
        return Frame(self.env, self.dims, self.lane, self.owners, self.aliases)

    @cached_property
    def accesses(self) -> Accesses:
        """Loads in evaluation order, then the store; assumptions touch nothing."""
        if self.region is not None:
            return (region_access(self.region, self.inside, self.is_written, self._frame),)
        return accesses_of(self.stmt, self._frame)

    @cached_property
    def boxes(self) -> Mapping[Access, Box | None]:
        """A box for each access, which holds all elements that it touches."""
        return {access: box_of(access, self.dims) for access in self.accesses}

    @property
    def write(self) -> Access | None:
        """The store, if the statement is one."""
        return self.accesses[-1] if self.accesses and self.accesses[-1].is_write else None

    @property
    def reads(self) -> Accesses:
        return tuple(a for a in self.accesses if not a.is_write)

    @cached_property
    def value(self) -> Expr:
        """The value of a store or evaluation as it is written, with let bindings of data written out.

        What a call of what is not known stores is anything.
        """
        stmt = self.stmt
        if self.region is not None:
            return Undef(self.region.buffer.dtype)
        assert isinstance(stmt, (Store, Evaluate))
        data = {v: e for v, e in self.env if dtypes.is_float(v.dtype) or reads_memory(e)}
        result: Expr = inlined(stmt.value, data)
        return result

    def loads(self, expr: Expr) -> Accesses:
        """The loads of an expression, as accesses of this statement."""
        return resolved_loads(expr, self._frame)

    def resolve(self, expr: Expr, strict: bool = False) -> Expr:
        """An expression of the statement in terms of its variables: for one lane, simplified.

        `strict` assumes nothing of floating-point data, as has to be where the question is what an element holds.
        """
        return resolved(expr, self.env, self.dims, self.lane, strict)

    def below(self, node: Stmt) -> bool:
        """Whether the statement is `node` or stands below it; nodes are compared by identity."""
        return any(p is node for p in self.path)

    @property
    def label(self) -> str:
        """The block's name, or the statement's kind."""
        name = self.block.name if self.block is not None and self.block.name != "root" else type(self.stmt).__name__
        return f"the init of `{name}`" if self.is_init else f"`{name}`"


@dataclass(frozen=True, eq=False)
class Program:
    """The statements of a function, in program order; compared by identity.

    `given` is what holds of its integer `parameters` in every call.
    """

    func: PrimFunc
    statements: tuple[Statement, ...]
    parameters: tuple[Var, ...]
    given: tuple[Expr, ...] = ()
    whole: Program | None = None  # the program of which this one has some of the statements

    def below(self, node: Stmt) -> tuple[Statement, ...]:
        """The statements at or below `node`, which is compared by identity."""
        return tuple(s for s in self.statements if s.below(node))

    @cached_property
    def written(self) -> frozenset[Buffer]:
        """The memories that some statement stores to."""
        return frozenset(s.write.buffer for s in self.statements if s.write is not None)

    def touching(self, buffer: Buffer, *boxes: Box | None) -> Sequence[Statement]:
        """The statements that may touch a memory, or its elements in `boxes`, also through views of it."""
        known = self._touches.get(buffer.name)
        if known is None:
            return ()
        found = known.near(boxes) if boxes else known.everything
        return found if self.whole is None else [s for s in found if s.number in self._numbers]

    @cached_property
    def assumptions(self) -> tuple[Statement, ...]:
        """The statements that are assumptions."""
        return tuple(s for s in self.statements if isinstance(s.stmt, Assume))

    def without(self, gone: Collection[int]) -> Program:
        """The program without the statements of these numbers, while the others keep theirs; `func` stays as it is."""
        kept = tuple(s for s in self.statements if s.number not in gone)
        return replace(self, statements=kept, whole=self.whole or self)

    @cached_property
    def _numbers(self) -> frozenset[int]:
        return frozenset(s.number for s in self.statements)

    @cached_property
    def _touches(self) -> Mapping[str, Touches[Statement]]:
        """By memory."""
        if self.whole is not None:
            return self.whole._touches
        found: dict[str, Touches[Statement]] = {}
        for statement in self.statements:
            for memory in dict.fromkeys(access.buffer.name for access in statement.accesses):
                found.setdefault(memory, Touches()).add(statement, memory)
        return found


_programs: Recent[int, Program] = Recent(64)


def instances(func: PrimFunc) -> Program:
    """The statements of `func`.  Paths hold the very nodes of this function object."""
    known = _programs.get(id(func))
    if known is not None and known.func is func:
        return known
    return _programs.keep(id(func), _build(func))


def evaluations(func: PrimFunc) -> tuple[Statement, ...]:
    """`instances`, and every loop, condition, let binding and block as well, at the points where it is evaluated."""
    return _build(func, lambda _: True).statements


def _build(func: PrimFunc, evaluates: Callable[[Expr], bool] = reads_memory) -> Program:
    scalars, given = func.integers, preconditions(func)
    used = {n for n in walk(func.body) if isinstance(n, Var)} if scalars and not given else set(scalars)
    parameters = tuple(p for p in scalars if p in used)
    start = _Place(dims=tuple((p, None) for p in parameters), conditions=given, loop_vars=parameters)
    owners = tuple((b.name, parameters) for b in func.buffers) if parameters else ()
    builder = _Builder({b.name: b for b in func.buffers}, evaluates)
    builder.visit(func.body, start._replace(owners=owners))
    return Program(func, tuple(builder.found), parameters, given)


def statements(stmt: Stmt, evaluates: Callable[[Expr], bool] = reads_memory) -> tuple[Statement, ...]:
    """The statements at or below `stmt`, which is seen alone: variables bound around it stay variables.

    A condition, extent, binding or let value counts as a statement if it `evaluates` something of interest.
    """
    builder = _Builder({}, evaluates)
    builder.visit(stmt, _Place())
    return tuple(builder.found)


class _Place(NamedTuple):
    """What surrounds a statement."""

    path: tuple[Stmt, ...] = ()
    loops: tuple[For, ...] = ()
    loop_vars: tuple[Var, ...] = ()
    dims: Dims = ()
    conditions: tuple[Expr, ...] = ()
    prefix: Schedule = ()
    block: Block | None = None
    is_init: bool = False
    env: Bindings = ()
    owners: Owners = ()
    aliases: Aliases = ()

    def where(self, cond: Expr) -> _Place:
        parts = tuple(c for c in conjuncts(resolved(cond, self.env, self.dims, None)) if c != TRUE)
        return self._replace(conditions=self.conditions + parts) if parts else self


class _Builder:
    """Walks a function in program order."""

    def __init__(self, memories: dict[str, Buffer], evaluates: Callable[[Expr], bool] = reads_memory) -> None:
        self.memories = memories
        self.evaluates = evaluates
        self.found: list[Statement] = []
        self.counter = count()

    def visit(self, stmt: Stmt, place: _Place) -> None:
        inner = place._replace(path=(*place.path, stmt))
        if isinstance(stmt, Seq):
            for item in stmt.stmts:
                self.visit(item, inner)
            return
        if isinstance(stmt, For):
            self._loop(stmt, inner)
        elif isinstance(stmt, Block):
            self._block(stmt, inner)
        elif isinstance(stmt, If):
            self._reader(inner, stmt.cond)
            self.visit(stmt.then, inner.where(stmt.cond))
            if stmt.orelse is not None:
                self.visit(stmt.orelse, inner.where(negate(stmt.cond)))
        elif isinstance(stmt, Let):
            self._reader(inner, stmt.value)
            # The memory that the value was computed from may change while the variable lives.
            lasts = memories_read(stmt.value).isdisjoint(memories_written(stmt.body))
            self.visit(stmt.body, _bound(inner, ((stmt.var, stmt.value),)) if lasts else inner)
        elif isinstance(stmt, Allocate):
            self.memories[stmt.buffer.name] = stmt.buffer
            owners = (*inner.owners, (stmt.buffer.name, inner.loop_vars)) if inner.loop_vars else inner.owners
            self.visit(stmt.body, inner._replace(owners=owners))
        elif isinstance(stmt, Declare):
            memory = self.memories.get(stmt.buffer.data)
            if memory is not None:
                self.memories[stmt.buffer.name] = memory
                inner = inner._replace(aliases=(*inner.aliases, (stmt.buffer.name, memory)))
            self.visit(stmt.body, inner)
        elif isinstance(stmt, Attr):
            self.visit(stmt.body, inner)
        elif isinstance(stmt, (Store, Evaluate, Assume, Assert)):
            self._emit(inner)
        elif isinstance(stmt, Opaque):
            self._opaque(stmt, inner)
        elif isinstance(stmt, While):
            self._while(stmt, inner)
        else:
            raise TypeError(f"no rule for the statement {type(stmt).__name__}")

    def _loop(self, stmt: For, place: _Place) -> None:
        self._reader(place, stmt.extent)
        extent = resolved(stmt.extent, place.env, place.dims, None)
        size = int(extent.value) if isinstance(extent, Const) else extent
        outer, position = self.counter, next(self.counter)
        self.counter = count()
        self.visit(
            stmt.body,
            place._replace(
                loops=(*place.loops, stmt),
                loop_vars=(*place.loop_vars, stmt.var),
                dims=(*place.dims, (stmt.var, size)),
                prefix=(*place.prefix, position, stmt.var),
            ),
        )
        self.counter = outer

    def _while(self, stmt: While, place: _Place) -> None:
        """A loop of so many steps that no condition tells them."""
        loop = endless(stmt)
        outer, position = self.counter, next(self.counter)
        self.counter = count()
        inner = place._replace(
            loops=(*place.loops, loop),
            loop_vars=(*place.loop_vars, loop.var),
            dims=(*place.dims, (loop.var, LONGEST)),
            prefix=(*place.prefix, position, loop.var),
            conditions=(*place.conditions, Undef("bool")),
        )
        self._reader(inner, stmt.cond)
        self.visit(stmt.body, inner)
        self.counter = outer

    def _opaque(self, stmt: Opaque, place: _Place) -> None:
        """A statement for what its arguments load, and one for each region; the elements of one are dimensions."""
        self._reader(place, *(e for e, _ in own_expressions(stmt)))
        for region, is_written in (*((r, False) for r in stmt.reads), *((w, True) for w in stmt.writes)):
            taken = {*names_below(stmt), *(v.name for v, _ in place.dims)}
            inside: list[Var | None] = []
            dims = place.dims
            for extent in region.extent:
                if extent == const(1):
                    inside.append(None)
                    continue
                var = Var(fresh("inside", taken))
                taken.add(var.name)
                inside.append(var)
                size = resolved(extent, place.env, place.dims, None)
                dims = (*dims, (var, int(size.value) if isinstance(size, Const) else size))
            self._emit(place._replace(dims=dims), region, tuple(inside), is_written)

    def _block(self, stmt: Block, place: _Place) -> None:
        self._reader(place, stmt.predicate, *(i.binding for i in stmt.iters))
        changing = memories_written(stmt.body) | (memories_written(stmt.init) if stmt.init is not None else frozenset())
        lasting = [(i.var, i.binding) for i in stmt.iters if memories_read(i.binding).isdisjoint(changing)]
        place = _bound(place.where(stmt.predicate), lasting)._replace(block=stmt)
        self.memories.update({b.name: b for b in stmt.allocs})
        if stmt.allocs and place.loop_vars:
            own = tuple((b.name, place.loop_vars) for b in stmt.allocs)
            place = place._replace(owners=place.owners + own)
        if stmt.init is not None:
            first = place
            for item in stmt.reduce:
                first = first.where(binary("==", item.binding, const(0, item.binding.dtype)))
            self.visit(stmt.init, first._replace(is_init=True))
        self.visit(stmt.body, place)

    def _reader(self, place: _Place, *exprs: Expr) -> None:
        """A statement for a node whose own expressions do something."""
        if any(map(self.evaluates, exprs)):
            self._emit(place)

    def _emit(
        self, place: _Place, region: Region | None = None, inside: tuple[Var | None, ...] = (), is_written: bool = False
    ) -> None:
        stmt = place.path[-1]
        lane, dims = None, place.dims
        width = lanes_of(stmt)
        if width > 1:
            lane = Var(fresh("lane", {*names_below(stmt), *(v.name for v, _ in dims)}))
            dims = (*dims, (lane, width))
        schedule = (*place.prefix, next(self.counter))
        self.found.append(
            Statement(
                len(self.found),
                stmt,
                place.path,
                place.loops,
                dims,
                place.conditions,
                schedule,
                place.block,
                place.is_init,
                place.env,
                lane,
                place.owners,
                place.aliases,
                region,
                inside,
                is_written,
            )
        )


@remembered
def endless(stmt: While) -> For:
    """A loop, the same for each question, whose iterations stand for those of the statement."""
    return For(Var(fresh("turn", set(names_below(stmt)))), const(LONGEST), stmt.body)


def _bound(place: _Place, pairs: Sequence[tuple[Var, Expr]]) -> _Place:
    around = dict(place.env)
    env = {**around, **{var: inlined(value, around) for var, value in pairs}}
    return place._replace(env=tuple(env.items()))


@cached(1 << 13)
def _relaxed(domain: Domain) -> Domain:
    return domain.relaxed()
