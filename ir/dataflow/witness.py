"""One instance that shows that a store is needed, found without dataflow.

Let p be the last instance of a store that may change something, and e the element.  What
touches e next, after p, is found among a few sets with constant elements:

- an instance that stays, and reads e:    the store at p is needed;
- nothing, and the caller sees e:         it is needed, too;
- anything else:                          open.

So a refusal takes milliseconds where the dataflow of a deep nest takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..affine.guard import NotAffine, Unknown
from ..affine.sets import Domain, IntSet, points
from ..arith.simplify import simplify
from ..expr import FALSE, TRUE, Const, Expr, Var, as_expr, binary, substitute
from .accesses import Access
from .effects import Harm, Point, element_text, end_elements
from .instances import Program, Statement
from .reduced import Cell, Part, cells, is_silent

Time = tuple[int, ...]


def needed_instance(program: Program, statements: Sequence[Statement]) -> Harm | None:
    """One instance that shows why the stores `statements` may not be left out; None where none was found."""
    if program.parameters:
        return None
    search = _Search(program, {s.number: FALSE for s in statements})
    for statement in reversed(statements):
        try:
            harm = search.harm(statement)
        except (NotAffine, Unknown):
            continue
        if harm is not None:
            return harm
    return None


@dataclass(frozen=True)
class _Search:
    """`gone` are the statements that would be left out, by number."""

    program: Program
    gone: Mapping[int, Expr]

    def harm(self, statement: Statement) -> Harm | None:
        write = statement.write
        if write is None or write.whole or write.owners or not statement.exact:
            return None
        point = points(statement.domain).last()
        if point is not None and self._is_silent(statement, point):
            point = self._loud(statement).last()
            if point is not None and self._is_silent(statement, point):
                return None
        if point is None:
            return None
        values: dict[Var, Expr] = {v: as_expr(point[v.name], v) for v in statement.variables}
        element = [simplify(substitute(i, values)) for i in write.indices]
        who = self._observer(statement, write, element, _time(statement, point))
        if not who:
            return None
        text = element_text(write, statement, point)
        return Harm(f"it would write {text}, {who}, and the value is not neutral", point)

    def _cells(self, statement: Statement, domain: Domain, exact: bool) -> tuple[Cell, ...]:
        return cells(self.program, Part(statement, domain), [statement.value], self.gone, exact)

    def _is_silent(self, statement: Statement, point: Point) -> bool:
        """Whether the element holds what is stored at `point`, without the statements that go."""
        here = statement.domain.where(*(binary("==", v, point[v.name]) for v in statement.variables))
        return all(is_silent(statement, cell, None, False) for cell in self._cells(statement, here, exact=True))

    def _loud(self, statement: Statement) -> IntSet:
        """The instances that are not known to be silent."""
        rest = points(statement.domain)
        for cell in self._cells(statement, statement.domain, exact=False):
            if is_silent(statement, cell, None, False):
                rest = rest.subtract(cell.instances)
        return rest

    def _observer(self, statement: Statement, write: Access, element: Sequence[Expr], time: Time) -> str:
        """Who reads `element` next, after `time`; empty if nobody or if that is open."""
        found: list[tuple[Time, bool, Statement]] = []
        numbers = [int(e.value) for e in element if isinstance(e, Const)]
        box = tuple((k, k) for k in numbers) if len(numbers) == len(element) else None
        for other in self.program.touching(write.buffer, box):
            for access in other.accesses:
                if access.buffer != write.buffer or other is statement:
                    continue  # later instances of the statement itself go, and change nothing
                if access.whole or access.owners:
                    return ""
                first = _first_after(other, access, element, time)
                if first is not None:
                    found.append((first, access.is_write, other))
        if not found and self.program.given:
            return ""  # which elements the caller sees is a matter of the extents
        if not found:
            seen = end_elements(self.program, write.buffer)
            outside = seen.where(_equal(seen.variables, element)).is_empty()
            return "" if outside else "an element of a parameter"
        _, is_write, other = min(found, key=lambda f: f[:2])
        return "" if is_write or other.number in self.gone or not other.exact else f"which block {other.label} reads"


def _time(statement: Statement, point: Point) -> Time:
    return tuple(point[t.name] if isinstance(t, Var) else t for t in statement.schedule)


def _first_after(other: Statement, access: Access, element: Sequence[Expr], time: Time) -> Time | None:
    """The first time after `time` at which `other` may touch `element`, or None.  Raises Unknown where not affine."""
    later: Expr = FALSE
    for own, then in reversed(list(zip(other.schedule, time, strict=False))):
        value = as_expr(own) if isinstance(own, int) else own
        later = binary("or", binary("<", as_expr(then, value), value),
                       binary("and", binary("==", value, then), later))  # fmt: skip
    if isinstance(later, Const) and not later.value:
        return None
    domain = other.domain.where(later, _equal(access.indices, element), *access.guards)
    point = points(domain).first()
    return None if point is None else _time(other, point)


def _equal(indices: Sequence[Expr], element: Sequence[Expr]) -> Expr:
    result: Expr = TRUE
    for index, value in zip(indices, element, strict=True):
        result = binary("and", result, binary("==", index, value))
    return result
