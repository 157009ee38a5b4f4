"""May the iterations of a loop run at the same time?

Two iterations conflict when one writes an element that the other reads or writes; all
writes count, the harmless ones included: adding zero to an element that another
iteration owns loses updates.  Only the work-items of a subgroup may update one element
together, since they reduce what they have for it before it is touched::

    for l {subgroup}: C[s] = C[s] op e(l)    op one of +, min, max, the same for all that touches C; s free of l

Where the quick test (`meets`) cannot say that they touch
different elements, the exact set of conflicting pairs decides (`dependence.clashes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..affine.guard import Unknown
from ..arith.intervals import Facts, nothing_known
from ..expr import Buffer, Expr, Var, free_variables, reads_memory, variables
from ..stmt import For, Store
from ..target import SUBGROUP_OPS
from ..text import expr_text
from .accesses import Access
from .contents import Reading, held
from .dependence import Clash, clashes
from .instances import Program, Statement
from .meets import are_determined
from .order import update_op

CONCURRENT = ("parallel", "vectorized", "thread_binding")
Touch = tuple[Statement, Access]


@dataclass(frozen=True)
class Conflict:
    """Two iterations of a loop that may touch one element, with an example where isl found one."""

    loop: For
    buffer: Buffer
    accesses: tuple[Access, ...]
    clash: Clash | None

    def __format__(self, spec: str) -> str:
        return str(self)

    def __str__(self) -> str:
        texts = dict.fromkeys("[" + ", ".join(expr_text(i) for i in a.indices) + "]" for a in self.accesses)
        where = ""
        if self.clash is not None and self.clash.exact and self.clash.example is not None:
            one, other = self.clash.example
            pair = (", ".join(f"{k}={v}" for k, v in p.items()) for p in (one, other))
            where = ", for example at " + " and at ".join(pair)
        return (
            f"two iterations of loop `{self.loop.var.name}` may touch the same element of `{self.buffer.name}`: "
            f"{' and '.join(texts)}{where}"
        )


def conflict(program: Program, loop: For, *, private: bool = True, reduces: bool = False) -> Conflict | None:
    """Why the iterations of `loop` may not run at the same time; None if they may.

    With `private`, each iteration may have a copy of its own of a buffer that is used only
    inside and read only where the same iteration wrote; lanes of vectors have none.  With
    `reduces`, they may update elements together, as the work-items of a subgroup do.
    """
    scalars = program.func.scalars
    touched: dict[Buffer, list[Touch]] = {}
    for statement in program.below(loop):
        for access in statement.accesses:
            touched.setdefault(access.buffer, []).append((statement, access))
    written = {b.memory for b, own in touched.items() if any(a.is_write for _, a in own)}
    for buffer in sorted(touched, key=lambda b: b.name):
        own = touched[buffer]
        if not any(a.is_write for _, a in own) or any(loop.var in a.owners for _, a in own):
            continue
        if private and _is_private(program, buffer, own, loop):
            continue
        if _separated(loop, own, written, scalars) or (reduces and _is_reduced(loop, own)):
            continue
        for found in _meetings(program, loop, own):
            return Conflict(loop, buffer, tuple(a for _, a in own), found)
    return None


def _is_reduced(loop: For, own: Sequence[Touch]) -> bool:
    """Whether all that touches a buffer are updates by one operation of elements that the iterations share."""
    ops = {update_op(s.stmt) if isinstance(s.stmt, Store) else None for s, _ in own}
    still = all(not a.whole and not reads_memory(i) and loop.var not in variables(i) for _, a in own for i in a.indices)
    return still and len(ops) == 1 and ops <= {*SUBGROUP_OPS}


def _is_private(program: Program, buffer: Buffer, own: Sequence[Touch], loop: For) -> bool:
    """Whether the buffer is allocated, used only below the loop, and read only where the iteration wrote."""
    if any(b.name == buffer.name for b in program.func.buffers):
        return False
    if len({s.number for s, _ in own}) != len(program.touching(buffer)):
        return False
    return all(_written_here(program, statement, access, loop) for statement, access in own if not access.is_write)


def _written_here(program: Program, statement: Statement, access: Access, loop: For) -> bool:
    """Whether what is read has been written in the same iteration of the loop."""
    read = Reading(statement, access, statement.domain)
    try:
        return held(program, read, within=loop).missing.is_empty()
    except Unknown:
        return False


def _meetings(program: Program, loop: For, own: Sequence[Touch]) -> Iterator[Clash]:
    """Pairs of instances in different iterations of the loop, of one iteration of the loops outside."""
    statements = list(dict.fromkeys(s for s, _ in own))
    buffer, loops = own[0][1].buffer, own[0][0].loops
    outer = [item.var for item in loops[: [id(x) for x in loops].index(id(loop))]]
    for k, one in enumerate(statements):
        for other in statements[k:]:
            for order in ("<",) if one is other else ("<", ">"):
                yield from clashes(one, other, (*program.parameters, *outer), [(loop.var, order, loop.var)], buffer)


def _separated(loop: For, own: Sequence[Touch], written: set[str], scalars: Sequence[Var]) -> bool:
    """Whether every iteration of `loop` has elements of its own, by intervals."""
    if any(a.whole for _, a in own):
        return False
    touches = [_Bounded(a.indices, nothing_known().with_bounds(s.bounds)) for s, a in own]
    inside = {v for s, _ in own for v in s.variables[s.variables.index(loop.var) + 1 :]}
    known = {v for s, _ in own for v in (*s.variables, *scalars)}
    inside |= {v for _, a in own for i in a.indices for v in free_variables(i)} - known  # bound to what may change
    return are_determined((loop.var,), touches, inside, nothing_known().looping(loop.var, loop.extent), written)


class _Bounded(NamedTuple):
    """The indices of an access, and the intervals of the loops around it."""

    indices: tuple[Expr, ...]
    facts: Facts
