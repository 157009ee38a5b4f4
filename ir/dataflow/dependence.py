"""Which instances depend on which, and who wrote last what an instance reads.

Two instances *clash* if they touch one element and one of them writes it.  A
dependence is a clash in program order: flow (write, then read), anti (read, then
write) or output (write, then write).

`last_writers` is exact dataflow (Feautrier, "Dataflow analysis of array and scalar
references", 1991), see `isl_flow`::

    must  =  { reader -> writer : writer runs and is the last one before the reader }
    may   =  the same with writers that may or may not run, or whose element is unknown

Where a domain or an index is not affine the statement *may* write, so that nothing is
lost; what isl cannot decide in its budget is the exception `Unknown`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import islpy as isl

from ..affine.from_isl import Reader
from ..affine.guard import NotAffine, Unknown, question
from ..affine.sets import Domain, IntSet, access_map, points
from ..caches import cached
from ..expr import Buffer, Expr, Extent, Var, binary, const, substitute
from ..stmt import For
from .accesses import Access
from .instances import Statement
from .isl_flow import Maps, Pairs, possible_writers, sure_writers

Point = dict[str, int]
_OTHER = "'"


@dataclass(frozen=True)
class Clash:
    """Pairs of instances that touch one element; the second one's variables have a prime.

    `exact` says that every pair of `domain` really occurs.
    """

    first: Statement
    second: Statement
    a: Access
    b: Access
    domain: Domain
    exact: bool

    @property
    def buffer(self) -> Buffer:
        return self.a.buffer

    @cached_property
    def example(self) -> tuple[Point, Point] | None:
        """A pair of instances, as values of loop variables; None if there is none.  Raises Unknown."""
        found = points(self.domain).sample()
        if found is None:
            return None
        one = {v.name: found[v.name] for v in self.first.variables}
        return one, {v.name: found[v.name + _OTHER] for v in self.second.variables}


def clashes(
    first: Statement,
    second: Statement,
    common: Collection[Var] = (),
    apart: Sequence[tuple[Var, str, Var]] = (),
    buffer: Buffer | None = None,
) -> Iterator[Clash]:
    """The non-empty clashes of two statements at instances with equal `common` variables.

    Each of `apart`, ``(x, op, y)``, asks that ``x`` of the first compares so to ``y`` of the
    second.  What isl cannot decide counts as a clash that is not exact.
    """
    for a in first.accesses:
        for b in second.accesses:
            if a.buffer != b.buffer or not (a.is_write or b.is_write) or (buffer is not None and a.buffer != buffer):
                continue
            domain, exact = _pairs(first, a, second, b, frozenset(common), tuple(apart))
            clash = Clash(first, second, a, b, domain, exact)
            try:
                if clash.example is None:
                    continue
            except Unknown:
                clash = Clash(first, second, a, b, domain, False)
            yield clash


@cached(1 << 12)
def _pairs(
    first: Statement,
    a: Access,
    second: Statement,
    b: Access,
    common: frozenset[Var],
    apart: tuple[tuple[Var, str, Var], ...],
) -> tuple[Domain, bool]:
    rename: dict[Var, Expr] = {v: Var(v.name + _OTHER, v.dtype) for v in second.variables}
    dims = [*first.domain.dims]
    for var, extent in second.domain.dims:
        limit = substitute(extent, rename) if isinstance(extent, Expr) else extent
        new = rename[var]
        assert isinstance(new, Var)
        dims.append((new, limit))
    mine = {v for v in first.variables if v in common}
    conditions = [*first.domain.conditions, *(substitute(c, rename) for c in second.domain.conditions)]
    conditions += [binary("==", v, rename[v]) for v in second.variables if v in mine]
    conditions += [binary(op, x, rename[y]) for x, op, y in apart]
    conditions += [*a.guards, *(substitute(g, rename) for g in b.guards)]
    whole = a.whole or b.whole
    if not whole:
        conditions += [binary("==", x, substitute(y, rename)) for x, y in zip(a.indices, b.indices, strict=True)]
    shared = [v for v in a.owners if v in b.owners]
    conditions += [binary("==", v, rename[v]) for v in shared if v in first.variables and v in second.variables]
    asked = Domain(tuple(dims), tuple(conditions))
    relaxed = asked.relaxed()
    return relaxed, relaxed == asked and not whole and first.exact and second.exact


def common_loops(first: Statement, second: Statement) -> tuple[For, ...]:
    """The loops around both, the outermost first."""
    found = []
    for one, other in zip(first.loops, second.loops, strict=False):
        if one is not other:
            break
        found.append(one)
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Event:
    """Instances that touch a memory through one access: a statement's, or the function's end.

    `domain` is the set of instances, `elements` the memory touched by each, `exact`
    whether all of it really happens.  `time` is the schedule; `tag` tells events apart.
    Memory has a coordinate for each of the `owners`; without `coordinates` any element of
    what they own may be meant.
    """

    tag: str
    variables: tuple[Var, ...]
    domain: IntSet
    coordinates: tuple[Expr, ...] | None
    shape: tuple[Extent, ...]
    time: tuple[int | Var, ...]
    exact: bool
    statement: Statement | None = None
    access: Access | None = None
    owners: tuple[Var, ...] = ()

    @cached_property
    def elements(self) -> Any:
        """The isl map from instances to elements."""
        with question():
            names = tuple(Var(f"p{k}") for k in range(len(self.shape)))
            if self.coordinates is None:
                count = len(self.owners)
                sizes = ((v, None if isinstance(e, Expr) else e) for v, e in zip(names, self.shape, strict=True))
                memory = points(Domain(tuple(sizes)[count:]))
                anywhere = isl.Map.from_domain_and_range(self.domain.isl, memory.isl)
                handle = access_map(self.domain, self.owners, names[:count]).isl.flat_range_product(anywhere)
            else:
                handle = access_map(self.domain, self.coordinates, names).isl
            return handle.set_tuple_name(isl.dim_type.in_, self.tag).set_tuple_name(isl.dim_type.out, "M")

    def schedule(self, length: int) -> Any:
        """The isl map from instances to time, padded to `length`."""
        parts = [const(t) if isinstance(t, int) else t for t in self.time]
        parts += [const(0)] * (length - len(parts))
        handle = access_map(self.domain, parts).isl
        return handle.set_tuple_name(isl.dim_type.in_, self.tag).set_tuple_name(isl.dim_type.out, "T")


def event(statement: Statement, access: Access, domain: IntSet | None = None, part: str = "") -> Event:
    """The instances of a statement (or those in `domain`) as they touch memory by `access`.

    Raises Unknown.  Accesses without affine indices may touch any element.  Two events of
    one access need different names for their `part`.
    """
    exact = statement.exact and not access.whole
    subset = points(statement.domain) if domain is None else domain
    for guard in access.guards:
        try:
            subset = subset.where(guard)
        except NotAffine:
            exact = False
    owners = tuple(v for v in access.owners if v in statement.variables)
    coordinates: tuple[Expr, ...] | None = (*owners, *access.indices)
    shape = (*(statement.bounds.get(v, (0, 0))[1] + 1 for v in owners), *access.buffer.extents)
    try:
        if access.whole:
            raise NotAffine("the element of an alias of another type")
        access_map(subset, access.indices)
    except NotAffine:
        coordinates, exact = None, False
    own = statement.accesses
    tag = f"S{statement.number}_{own.index(access) if access in own else ''}{part}"
    time = statement.schedule
    return Event(tag, statement.variables, subset, coordinates, shape, time, exact, statement, access, owners)


@dataclass(frozen=True)
class LastWriters:
    """Exact dataflow of one memory: maps from instances of readers to instances of writers, by tag."""

    must: dict[tuple[str, str], IntMap]
    may: dict[tuple[str, str], IntMap]
    unwritten: dict[str, IntSet]

    def of(self, read: Event, write: Event, certain: bool = False) -> IntMap | None:
        return (self.must if certain else self.may).get((read.tag, write.tag))


@dataclass(frozen=True)
class IntMap:
    """A relation between instances of a reader and of a writer."""

    source: tuple[Var, ...]
    target: tuple[Var, ...]
    isl: Any

    def domain(self) -> IntSet:
        """The reader's instances that are related."""
        with question():
            return IntSet(self.source, self.isl.domain().reset_tuple_id())

    def range(self) -> IntSet:
        """The writer's instances that are related."""
        with question():
            return IntSet(self.target, self.isl.range().reset_tuple_id())

    def into(self, target: IntSet) -> IntSet:
        """The reader's instances that are related to some instance in `target`."""
        with question():
            plain = self.isl.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(isl.dim_type.out)
            return IntSet(self.source, plain.intersect_range(target.isl).domain())

    def sources(self, target: IntSet) -> dict[Var, Expr] | None:
        """The writer's variables in `target` in terms of the reader's; None where several instances are related.

        Raises NotAffine where they are no expressions that stay within 64 bits.
        """
        with question():
            plain = self.isl.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(isl.dim_type.out)
            plain = plain.intersect_range(target.isl)
            if not plain.is_single_valued():
                return None
            domain, pieces, reader = plain.domain(), isl.PwMultiAff.from_map(plain), Reader(self.source)
            found = {
                var: reader.value(pieces.get_pw_aff(k).coalesce().gist(domain), domain)
                for k, var in enumerate(self.target)
            }
            IntSet(self.source, domain).check_exact(*found.values())
            return found

    def pairs(self) -> IntSet:
        """The relation as a set over both; the writer's variables have a prime."""
        with question():
            primed = tuple(Var(v.name + _OTHER, v.dtype) for v in self.target)
            return IntSet((*self.source, *primed), self.isl.wrap().flatten().reset_tuple_id())


def last_writers(reads: Sequence[Event], writes: Sequence[Event]) -> LastWriters:
    """The last of `writes` before each read; all events touch one memory.  Raises Unknown."""
    with question():
        length = max((len(e.time) for e in (*reads, *writes)), default=0)
        events = {e.tag: e for e in (*reads, *writes)}
        elements = {tag: e.elements for tag, e in events.items()}
        times = {tag: e.schedule(length) for tag, e in events.items()}
        tags = [e.tag for e in reads]
        sure = sure_writers(tags, [e.tag for e in writes if e.exact], elements, times)
        maybe = possible_writers(tags, [e.tag for e in writes if not e.exact], sure, elements, times)
        must = {key: _certain(key, pairs, maybe) for key, pairs in sure.items()}
        missing = {e.tag: IntSet(e.variables, _unwritten(e.tag, elements, sure)) for e in reads}
        return LastWriters(_named(must, events), _named({**sure, **maybe}, events), missing)


def _certain(key: tuple[str, str], pairs: Any, maybe: Pairs) -> Any:
    """`pairs` without the reads that another write may reach."""
    for (read, _), others in maybe.items():
        if read == key[0]:
            pairs = pairs.subtract_domain(others.domain())
    return pairs


def _unwritten(read: str, elements: Maps, sure: Pairs) -> Any:
    """The instances of `read` before which no write surely happens."""
    rest = elements[read].domain()
    for (other, _), pairs in sure.items():
        rest = rest.subtract(pairs.domain()) if other == read else rest
    return rest.reset_tuple_id()


def _named(pairs: Pairs, events: dict[str, Event]) -> dict[tuple[str, str], IntMap]:
    return {
        (read, write): IntMap(events[read].variables, events[write].variables, relation)
        for (read, write), relation in pairs.items()
        if not relation.is_empty()
    }


def end_event(buffer: Buffer, elements: IntSet, parameters: Sequence[Var] = ()) -> Event:
    """The function's end reads `elements` of a memory, after everything else, whatever the `parameters` are.

    Elements may have coordinates for parameters already, before their own.
    """
    variables = (*parameters, *elements.variables)
    with question():
        lifted = IntSet(variables, elements.isl.insert_dims(isl.dim_type.set, 0, len(parameters)))
    shape = (*(1 for _ in range(len(variables) - buffer.rank)), *buffer.extents)
    return Event("END", variables, lifted, variables, shape, (_LAST,), True)


_LAST = 1 << 30
