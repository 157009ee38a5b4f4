"""What the parts of one kernel's text share, and expressions by the tables of their printers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from ....errors import InternalError
from ....ir import dtypes
from ....ir.arith.intervals import Facts
from ....ir.expr import Broadcast, Buffer, Const, Expr, Var, binary, const
from ....ir.isa import Execution
from ...errors import CodegenError
from .helpers import Helpers
from .known import Known
from .lanes import lane
from .types import Types, memory_type
from .writer import Writer

INT32 = dtypes.int_range("int32")

Scalars: TypeAlias = "Mapping[type[Expr], Callable[[Kernel, Any], str]]"
"""For each type of node, the function that gives a scalar's text."""
Vectors: TypeAlias = "Mapping[type[Expr], Callable[[Kernel, Any, int, int], str]]"
"""For each type of node, the function that gives the text of lanes ``[start, start + count)``."""


class NeedsLong(InternalError):
    """An index expression that may leave 32 bits."""


@dataclass(frozen=True)
class Memory:
    """A buffer that a kernel has: its pointer, its address space (``global``, ``local``, ``private`` or ``image``)."""

    buffer: Buffer
    pointer: str
    space: str


@dataclass(frozen=True)
class Language:
    """What all kernels of a program are written by: the device, helper functions, and the tables of expressions."""

    execution: Execution
    helpers: Helpers
    emulated: frozenset[str]
    scalars: Scalars
    vectors: Vectors


class Kernel:
    """One kernel while its text is written.

    `variables` and `memories` are those in scope, by their names in C; `under` is the condition on the lanes of the
    statement that is being written.
    """

    def __init__(self, language: Language, index_type: str, facts: Facts, written: frozenset[str]) -> None:
        self.language, self.execution, self.helpers = language, language.execution, language.helpers
        self.types = Types(index_type, language.emulated)
        self.writer, self.known = Writer(written), Known(facts)
        self.variables: dict[Var, str] = {}
        self.memories: dict[str, Memory] = {}
        self.under: Expr | None = None
        self.constants: dict[tuple[str, str, int], tuple[str, str]] = {}
        """The names of private arrays of so many times a constant, and of their addresses."""

    # ------------------------------------------------------------ memory

    def declare(self, buffer: Buffer, space: str) -> None:
        """From here on, `buffer` is the memory at a pointer of its own in an address space."""
        if dtypes.lanes(buffer.dtype) > 1:
            raise CodegenError(f"buffer `{buffer.name}` has the vector type {buffer.dtype}; flatten it to its scalars")
        self.memories[buffer.name] = Memory(buffer, self.writer.names.fresh(buffer.name), space)

    def space(self, buffer: Buffer) -> str:
        """The address space of a buffer's memory."""
        return self.memories[buffer.memory].space

    def pointer(self, buffer: Buffer) -> str:
        """A pointer to the first element, of the element's type."""
        memory = self.memories.get(buffer.memory)
        if memory is None:
            raise CodegenError(f"buffer `{buffer.name}` is neither a parameter, a workspace nor allocated here")
        kind = memory_type(buffer.dtype)
        if kind == memory_type(memory.buffer.dtype):
            return memory.pointer
        constant = "" if buffer.memory in self.writer.written or memory.space != "global" else "const "
        return f"((__{memory.space} {constant}{self.helpers.view(kind)}*){memory.pointer})"

    # ------------------------------------------------------------ expressions

    def check_index(self, expr: Expr) -> None:
        """Raises NeedsLong for an index that may leave the type that stands for int64."""
        if self.types.index == "int":
            low, high = self.known.interval(expr)
            if low < INT32[0] or high > INT32[1]:
                raise NeedsLong

    def scalar(self, expr: Expr) -> str:
        """The C expression of a scalar, in parentheses where it needs them."""
        if dtypes.lanes(expr.dtype) != 1:
            raise CodegenError(f"expected a scalar, but got {expr.dtype}: {expr!r}")
        if expr.dtype == dtypes.INDEX:
            self.check_index(expr)
        write = self.language.scalars.get(type(expr))
        if write is None:
            raise CodegenError(f"no OpenCL code for a {type(expr).__name__} expression: {expr!r}")
        return write(self, expr)

    def vector(self, expr: Expr, start: int, count: int) -> str:
        """Lanes ``[start, start + count)`` of a vector, or a scalar in every lane."""
        if count == 1:
            return self.lane(expr, start)
        if dtypes.lanes(expr.dtype) == 1 or isinstance(expr, Broadcast):
            one = expr.value if isinstance(expr, Broadcast) else expr
            if dtypes.lanes(one.dtype) != 1:
                raise CodegenError(f"a broadcast repeats a scalar, but got {one.dtype}: {expr!r}")
            return f"(({self.types.vector(expr.dtype, count)})({self.scalar(one)}))"
        write = self.language.vectors.get(type(expr))
        if write is None or dtypes.element(expr.dtype) in self.types.by_lane:
            return self.by_lane(expr, start, count)
        return write(self, expr, start, count)

    def by_lane(self, expr: Expr, start: int, count: int) -> str:
        """A vector that is assembled from its lanes, held where it never changes."""
        kind = self.types.vector(expr.dtype, count)
        return self.writer.steady(expr, kind, start, count, lambda: self.lanes(expr, start, count))

    def lanes(self, expr: Expr, start: int, count: int) -> str:
        """A vector that is assembled from its lanes."""
        lanes = ", ".join(self.lane(expr, k) for k in range(start, start + count))
        return f"(({self.types.vector(expr.dtype, count)})({lanes}))"

    def lane(self, expr: Expr, number: int) -> str:
        """One lane; where its condition does not hold nothing is evaluated."""
        cond = const(True, "bool") if self.under is None else lane(self.under, number)
        if isinstance(cond, Const):
            return self.scalar(lane(expr, number) if cond.value else const(0, dtypes.element(expr.dtype)))
        return self.conditional(cond, lane(expr, number), const(0, dtypes.element(expr.dtype)), self.scalar)

    def conditional(self, cond: Expr, a: Expr, b: Expr, write: Callable[[Expr], str]) -> str:
        """``cond ? a : b`` with a scalar condition; only the chosen side is evaluated."""
        test = self.scalar(cond)
        with self.writer.lazily():
            with self.known.knowing(self.known.facts.assuming(cond)):
                left = write(a)
            with self.known.knowing(self.known.facts.assuming(cond, False)):
                right = write(b)
        return f"({test} ? {left} : {right})"

    @contextmanager
    def where(self, cond: Expr) -> Iterator[None]:
        """Within, lanes for which the condition does not hold have no effect, and read nothing that is not there."""
        outer = self.under
        self.under = cond if outer is None else binary("and", outer, cond)
        yield
        self.under = outer
