"""A program that writes a result over an input that nobody needs afterwards.

It is the program with one buffer for both,

    y[e] = f(x[e], ...)   ->   y[e] = f(y[e], ...)

which computes the same where (1) nothing but one statement reads ``x``, and (2) each of its instances that reads
``x[e]`` is the one that writes ``y[e]``, so that no element is read after it was written.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import ProgramError
from ..affine.guard import Unknown
from ..dataflow.accesses import Access
from ..dataflow.dependence import clashes
from ..dataflow.instances import Statement, instances
from ..expr import Buffer
from ..stmt import PrimFunc, replace_buffer
from .layouts import apply_buffer_transforms


class NotInPlace(ProgramError):
    """A program of which an element may be read after it was written."""


def in_place(func: PrimFunc, read: int, written: int) -> PrimFunc:
    """`func` without its parameter number `read`, which is an input, in the memory of the output number `written`.

    Raises NotInPlace where that is not proven to compute the same.
    """
    func = apply_buffer_transforms(func)
    x, y = func.params[read], func.params[written]
    try:
        if isinstance(x, Buffer) and isinstance(y, Buffer) and x.shape == y.shape:
            params = tuple(p for p in func.params if p != x)
            layouts = tuple((name, layout) for name, layout in func.layouts if name != x.name)
            merged = replace(func, params=params, layouts=layouts, body=replace_buffer(func.body, x, y))
            if _reads_first(func, merged, x, y):
                return merged
    except Unknown as error:
        raise NotInPlace(str(error)) from None
    raise NotInPlace("an element may be read after it was written")


def _reads_first(func: PrimFunc, merged: PrimFunc, x: Buffer, y: Buffer) -> bool:
    """Conditions 1 and 2."""
    before, after = instances(func).statements, instances(merged).statements
    readers = {s.number for s in before if any(a.buffer == x and not a.is_write for a in s.accesses)}
    if len(before) != len(after) or len(readers) != 1:
        return False
    (number,) = readers
    one, two = before[number], after[number]
    if len(one.accesses) != len(two.accesses):  # the result is read, too, so that the merged buffer has fewer
        return False
    reads = [b for a, b in zip(one.accesses, two.accesses, strict=True) if a.buffer == x]
    for statement in after:
        if statement.write is None or statement.write.buffer != y:
            continue
        if statement.number != number or _meets_another(two, statement.write, reads):
            return False
    return True


def _meets_another(statement: Statement, write: Access, reads: list[Access]) -> bool:
    """Whether an instance writes an element that another one reads."""
    for var in statement.variables:
        for order in ("<", ">"):
            for clash in clashes(statement, statement, (), [(var, order, var)], write.buffer):
                if clash.a == write and clash.b in reads:
                    return True
    return False
