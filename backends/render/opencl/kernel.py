"""What the parts of one kernel's text share, and expressions by the tables of their printers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from ....errors import InternalError
from ....ir import dtypes
from ....ir.arith.intervals import Facts
from ....ir.expr import Buffer, Expr, Extent, Var
from ....ir.isa import Execution
from ...errors import CodegenError
from .helpers import Helpers
from .types import Types, memory_type
from .writer import Writer

INT32 = dtypes.int_range("int32")

Table: TypeAlias = "Mapping[type[Expr], Callable[[Kernel, Any], str]]"
"""For each type of node, the function that gives its text."""


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
    scalars: Table
    vectors: Table


class Kernel:
    """One kernel while its text is written.

    `variables` and `memories` are those in scope, by their names in C; `facts` say what is known there.
    """

    def __init__(self, language: Language, index_type: str, facts: Facts, written: frozenset[str]) -> None:
        self.language, self.execution, self.helpers = language, language.execution, language.helpers
        self.types = Types(index_type, language.emulated)
        self.writer, self.facts = Writer(written), facts
        self.variables: dict[Var, str] = {}
        self.memories: dict[str, Memory] = {}
        self.constants: dict[tuple[str, str, int], tuple[str, str]] = {}
        """The names of private arrays of so many times a constant, and of their addresses."""

    @contextmanager
    def knowing(self, facts: Facts) -> Iterator[None]:
        """Within, `facts` hold."""
        before, self.facts = self.facts, facts
        try:
            yield
        finally:
            self.facts = before

    # ------------------------------------------------------------ memory

    def declare(self, buffer: Buffer, space: str) -> None:
        """Give `buffer` a pointer to memory in the address space `space`.  Raises CodegenError for vectors."""
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
            low, high = self.facts.interval(expr)
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

    def extent(self, extent: Extent) -> str:
        """The C expression of an extent, which may be over sizes."""
        return str(extent) if isinstance(extent, int) else self.scalar(extent)

    def vector(self, expr: Expr) -> str:
        """The C expression of a vector, or of the scalar that one lane is."""
        if dtypes.lanes(expr.dtype) == 1:
            return self.scalar(expr)
        write = self.language.vectors.get(type(expr))
        if write is None:
            raise CodegenError(f"no OpenCL code for a vector of {type(expr).__name__}: {expr!r}")
        return write(self, expr)

    def conditional(self, cond: Expr, a: Expr, b: Expr, write: Callable[[Expr], str]) -> str:
        """``cond ? a : b`` with a scalar condition; only the chosen side is evaluated."""
        test = self.scalar(cond)
        with self.writer.lazily():
            with self.knowing(self.facts.assuming(cond)):
                left = write(a)
            with self.knowing(self.facts.assuming(cond, False)):
                right = write(b)
        return f"({test} ? {left} : {right})"
