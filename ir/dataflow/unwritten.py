"""Reads of what nothing has written: a program with such a read has no result."""

from __future__ import annotations

from ..affine.guard import NotAffine, Unknown
from ..affine.sets import is_affine
from .contents import Reading, held, reading
from .effects import Harm, element_text
from .instances import Program
from .writers import writers


def unwritten_read(program: Program) -> Harm | None:
    """A read of an element of a temporary or a result that no store before it can have written.

    None where there is none, or where conditions or indices that depend on data leave it open.
    """
    for statement in program.statements:
        known = frozenset(statement.variables)
        for access in statement.reads if statement.exact else ():
            buffer = access.buffer
            is_told = not access.whole and all(is_affine(e, known) for e in (*access.indices, *access.guards))
            if not is_told or program.func.layout_of(buffer.name) is not None:
                continue
            found = writers(program, buffer)
            if any(not writer.exact or writer.indices is None for writer in found):
                continue
            point = _missing(program, reading(statement, access))
            if point is not None:
                return Harm(
                    f"`{element_text(access, statement, point)}` is read, and nothing has written it before", point
                )
    return None


def _missing(program: Program, read: Reading) -> dict[str, int] | None:
    """An instance that finds nothing: of the images of all stores, and of those before it."""
    try:
        if held(program, read).missing.first() is None:
            return None
        return held(program, read, exact=True).missing.first()
    except (NotAffine, Unknown):
        return None
