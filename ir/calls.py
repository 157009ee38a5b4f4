"""The arguments of calls of what is not known here: functions of other libraries, instructions of other devices.

::

    arg  ::= Expr | Text(value) | Pointer(buffer, indices) | Nested(name, args) | Keyword(name, value)

A `Pointer` is the address of an element, or, without indices, of a buffer's first one.  What a call reads and writes
through its pointers are regions, `statements.Opaque`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .expr import Buffer, Const, Expr, Var, as_index
from .extents import dims
from .node import Node, children

Arg: TypeAlias = Node
"""An expression or one of the nodes below."""


@dataclass(frozen=True, eq=False)
class Text(Node):
    """A string."""

    value: str


@dataclass(frozen=True, eq=False)
class Pointer(Node):
    """The address of ``buffer[indices]``; without indices that of the buffer, ``buffer.data``."""

    buffer: Buffer
    indices: tuple[Expr, ...] = ()


@dataclass(frozen=True, eq=False)
class Nested(Node):
    """A call among the arguments of another one."""

    name: str
    args: tuple[Arg, ...]


@dataclass(frozen=True, eq=False)
class Keyword(Node):
    """``name=value``."""

    name: str
    value: Arg


@dataclass(frozen=True, eq=False)
class Region(Node):
    """``buffer[begin : begin + extent, ...]``."""

    buffer: Buffer
    begin: tuple[Expr, ...]
    extent: tuple[Expr, ...]


def whole(buffer: Buffer) -> Region:
    """All of a buffer."""
    return Region(buffer, (Const(0),) * buffer.rank, dims(buffer.extents))


def values_of(args: Sequence[Node]) -> Iterator[Expr]:
    """The expressions in arguments or regions that are evaluated; extents of buffers are none."""
    for arg in args:
        if isinstance(arg, Expr):
            yield arg
        elif not isinstance(arg, Buffer):
            yield from values_of(tuple(children(arg)))


_ACCESS = {"r": (True, False), "w": (False, True), "rw": (True, True)}


def touched(args: Sequence[Node]) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """What a call may read and write: all of every buffer whose pointer it takes.

    ``A.access_ptr("r")``, and the mask of ``tvm_access_ptr``, 1 to read and 2 to write, say which of both.
    """
    found: tuple[dict[Buffer, None], dict[Buffer, None]] = {}, {}

    def visit(arg: Node, allowed: tuple[bool, bool]) -> None:
        if isinstance(arg, Pointer):
            for into, may in zip(found, allowed, strict=True):
                into.update({arg.buffer: None} if may else {})
        elif isinstance(arg, (Nested, Keyword)):
            inner = _allowed(arg) if isinstance(arg, Nested) else allowed
            for child in children(arg):
                visit(child, inner)

    for arg in args:
        visit(arg, (True, True))
    reads, writes = (tuple(map(whole, into)) for into in found)
    return reads, writes


def _allowed(call: Nested) -> tuple[bool, bool]:
    """Whether the pointers of a nested call are read and written through."""
    mask = next((a.value for a in call.args if isinstance(a, Text) and a.value in _ACCESS), "")
    last = call.args[-1] if call.args else None
    if call.name == "access_ptr" and mask:
        return _ACCESS[mask]
    if call.name == "tvm_access_ptr" and isinstance(last, Const) and isinstance(last.value, int):
        return bool(last.value & 1), bool(last.value & 2)
    return True, True


def elements(region: Region, inside: Sequence[Var | None]) -> tuple[Expr, ...]:
    """The indices of an element of a region, `inside` of it by a variable for each dimension that is not one long."""
    pairs = zip(region.begin, inside, strict=True)
    return tuple(as_index(begin) if var is None else as_index(begin) + var for begin, var in pairs)
