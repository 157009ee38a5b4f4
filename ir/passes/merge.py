"""Neighbouring loops over the same range become one.

::

    for i in N: A(i);   for j in N: B(j)    ->    for i in N: { A(i); B(i) }

Conditions: (1) the loops are neighbours; (2) both are serial; (3) their extents are equal;
(4) for no iterations i > j does what A(i) writes meet what B(j) reads or writes, or what
A(i) reads meet what B(j) writes: merged, B(j) runs before A(i).  An assumption reads what
it speaks of.  Source: RFC 0077, "Utility - Merge Adjacent Loops", whose second condition
would accept ``B[i] = A[i - 1]`` followed by ``A[j] = 0``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..affine.guard import Unknown
from ..arith.simplify import simplify
from ..dataflow.accesses import Access
from ..dataflow.dependence import Clash, clashes, common_loops
from ..dataflow.instances import instances
from ..dataflow.order import knowing
from ..expr import Expr, Var, as_expr, reads_memory, substitute
from ..node import walk
from ..stmt import For, PrimFunc, Seq, Stmt, seq, stmt_children
from ..text import expr_text
from .positions import Position, at, position, with_statement
from .renaming import distinct


@dataclass(frozen=True)
class Separate:
    """Why two loops stay apart: the condition that fails, and the two iterations that meet if there are any."""

    first: For
    second: For
    reason: str

    def __str__(self) -> str:
        return f"loops `{self.first.var.name}` and `{self.second.var.name}` stay apart: {self.reason}"


def merge_adjacent(func: PrimFunc, within: Stmt) -> tuple[PrimFunc, list[Separate]]:
    """Merge what can be merged at or below `within`, outer loops before those inside; and why the rest stays apart."""
    root = position(func.body, within)
    func = distinct(func)
    refused: dict[tuple[Position, int], Separate] = {}
    while True:
        for place, number, first, second in _pairs(at(func.body, root), root):
            if (place, number) in refused:
                continue
            reason = obstacle(func, first, second)
            if reason is None:
                func = _merged(func, place, number, first, second)
                refused = {k: v for k, v in refused.items() if k[0] != place or k[1] < number}
                break
            refused[place, number] = reason
        else:
            return func, list(refused.values())


def _pairs(stmt: Stmt, place: Position) -> list[tuple[Position, int, For, For]]:
    """Neighbouring loops at or below `stmt`, parents first: the position of the sequence, the first loop's in it."""
    found: list[tuple[Position, int, For, For]] = []
    if isinstance(stmt, Seq):
        for number, (a, b) in enumerate(zip(stmt.stmts, stmt.stmts[1:], strict=False)):
            if isinstance(a, For) and isinstance(b, For):
                found.append((place, number, a, b))
    for number, child in enumerate(stmt_children(stmt)):
        found.extend(_pairs(child, (*place, number)))
    return found


def merge_nests(func: PrimFunc, first: For, second: For, inner: bool = True) -> PrimFunc:
    """The function with two neighbouring loops, given by identity, as one; `obstacle` must find nothing.

    With `inner`, the loops directly inside of them, neighbours afterwards, are merged if they may be, and so on.
    """
    place, number = neighbours(func, first, second)
    name = first.var.name
    is_nest = inner and isinstance(first.body, For) and isinstance(second.body, For)
    func = distinct(_merged(func, place, number, first, second))
    if not is_nest:
        return func
    seam = next(n.body for n in walk(func.body) if isinstance(n, For) and n.var.name == name)
    assert isinstance(seam, Seq)
    one, other = seam.stmts
    assert isinstance(one, For) and isinstance(other, For)
    return func if obstacle(func, one, other) else merge_nests(func, one, other)


def neighbours(func: PrimFunc, first: For, second: For) -> tuple[Position, int]:
    """The sequence in which `second` follows `first`, and the place of `first` in it.

    Raises ValueError, condition 1, where it does not.
    """
    *above, number = position(func.body, first)
    parent = at(func.body, above)
    if isinstance(parent, Seq) and any(s is second for s in parent.stmts[number + 1 : number + 2]):
        return tuple(above), number
    raise ValueError(f"(1) loop `{second.var.name}` does not follow directly on loop `{first.var.name}`")


def _merged(func: PrimFunc, place: Position, number: int, first: For, second: For) -> PrimFunc:
    parent = at(func.body, place)
    assert isinstance(parent, Seq)
    other: Stmt = substitute(second.body, {second.var: first.var})
    notes = dict(second.annotations) | dict(first.annotations)
    both = replace(first, body=seq([first.body, other]), annotations=tuple(notes.items()))
    return with_statement(func, place, seq([*parent.stmts[:number], both, *parent.stmts[number + 2 :]]))


def obstacle(func: PrimFunc, first: For, second: For) -> Separate | None:
    """The first of conditions 2 to 4 that fails for two neighbouring loops; None if they may be merged."""
    for loop in (first, second):
        if loop.kind != "serial":
            return Separate(first, second, f"(2) loop `{loop.var.name}` is {loop.kind}, not serial")
    if first.extent != second.extent or first.var.dtype != second.var.dtype or reads_memory(first.extent):
        extents = f"{expr_text(first.extent)} and {expr_text(second.extent)}"
        return Separate(first, second, f"(3) the extents {extents} are not known to be equal")
    try:
        clash = _reversed(func, first, second)
    except Unknown as error:
        return Separate(first, second, f"(4) it is unknown whether iterations meet: {error}")
    return None if clash is None else Separate(first, second, f"(4) {_explained(clash, first, second)}")


def _reversed(func: PrimFunc, first: For, second: For) -> Clash | None:
    """An instance of `first` and one of `second` in an earlier iteration that touch one element."""
    program = instances(func)
    for a in program.below(first):
        for b in program.below(second):
            common = (*program.parameters, *(loop.var for loop in common_loops(a, b)))
            for clash in clashes(knowing(a), knowing(b), common, [(first.var, ">", second.var)]):
                return clash
    return None


def _explained(clash: Clash, first: For, second: For) -> str:
    a = _access(clash.a)
    b = _access(clash.b)
    found = clash.example
    if found is None:
        return f"{a} in a later iteration may meet {b}, which would then run before it"
    one, other = found
    i, j = f"{first.var.name}={one[first.var.name]}", f"{second.var.name}={other[second.var.name]}"
    maybe = "" if clash.exact else "may "
    element = _element(clash, one, maybe)
    return f"{a} at {i} {maybe}meet{'' if maybe else 's'} {b} at {j}{element}; merged, {j} would come first"


def _access(access: Access) -> str:
    indices = ", ".join(expr_text(i) for i in access.node.indices)
    return f"the {'write' if access.is_write else 'read'} of `{access.node.buffer.name}[{indices}]`"


def _element(clash: Clash, point: dict[str, int], maybe: str) -> str:
    if maybe or clash.a.whole:
        return ""
    values: dict[Var, Expr] = {v: as_expr(point[v.name], v) for v in clash.first.variables}
    numbers = ", ".join(expr_text(simplify(substitute(i, values))) for i in clash.a.indices)
    return f" in {clash.buffer.name}[{numbers}]"
