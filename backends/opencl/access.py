"""Accesses of memory as OpenCL C: addresses, views, and how an element of each type is read and written."""

from __future__ import annotations

from abc import abstractmethod

from ...ir import dtypes
from ...ir.arith.linear import build, shared_form
from ...ir.expr import (
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Shuffle,
    Undef,
    Var,
    as_int,
    binary,
    const,
    refold,
)
from ...ir.node import rebuild, walk
from ..llvm.types import CodegenError
from .types import Helpers, bare, memory_type
from .writer import Writer

ARRAY_ALIGNMENT = 64
"""Bytes, a multiple of which every array of a kernel begins at."""


class Accesses(Writer):
    """Writes accesses; the buffers that are declared here, and views of them, have pointers."""

    def __init__(
        self, index_type: str, helpers: Helpers, emulated: frozenset[str] = frozenset(), is_cpu: bool = True
    ) -> None:
        super().__init__(index_type, helpers, emulated, is_cpu)
        self.pointers: dict[str, str] = {}
        self.spaces: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    @abstractmethod
    def scalar(self, expr: Expr) -> str:
        """The C expression of a scalar."""

    def declare(self, buffer: Buffer, space: str) -> None:
        """From here on, `buffer` is the memory at a pointer of its own in an address space."""
        if dtypes.lanes(buffer.dtype) > 1:
            raise CodegenError(f"buffer `{buffer.name}` has the vector type {buffer.dtype}; flatten it to its scalars")
        self.pointers[buffer.name] = self.names.fresh(buffer.name)
        self.spaces[buffer.name] = space
        self.types[buffer.name], self.shapes[buffer.name] = buffer.dtype, buffer.shape

    def space(self, buffer: Buffer) -> str:
        """The address space of a buffer's memory."""
        return self.spaces[buffer.memory]

    def pointer(self, buffer: Buffer) -> str:
        """A pointer to the first element, of the element's type."""
        text = self.pointers.get(buffer.memory)
        if text is None:
            raise CodegenError(f"buffer `{buffer.name}` is neither a parameter, a workspace nor allocated here")
        if memory_type(buffer.dtype) == memory_type(self.types[buffer.memory]):
            return text
        constant = "" if buffer.memory in self.written or self.space(buffer) != "global" else "const "
        return f"((__{self.space(buffer)} {constant}{self.helpers.view(memory_type(buffer.dtype))}*){text})"

    def position(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """The row-major position; a buffer of several physical axes is linear memory, too."""
        width = max(dtypes.lanes(i.dtype) for i in indices)
        total = widened(indices[0], width)
        for index, extent in zip(indices[1:], buffer.shape[1:], strict=True):
            total = total * widened(const(extent), width) + widened(index, width)
        return total

    def read(self, buffer: Buffer, position: Expr) -> str:
        """The value of the element at a scalar position."""
        if buffer.dtype in self.emulated:
            return self.helpers.load_narrow(buffer.dtype, self.space(buffer), self.pointer(buffer), self._at(position))
        text = f"{self.pointer(buffer)}[{self._at(position)}]"
        return f"({text} != 0)" if dtypes.is_bool(buffer.dtype) else text

    def write(self, buffer: Buffer, position: Expr, value: str) -> None:
        """The statement that stores a value to the element at a scalar position."""
        if buffer.dtype in self.emulated:
            pointer, place = self.pointer(buffer), self._at(position)
            self.line(self.helpers.store_narrow(buffer.dtype, self.space(buffer), pointer, place, bare(value)))
        else:
            self.line(f"{self.pointer(buffer)}[{self._at(position)}] = {bare(value)};")

    def read_vector(self, buffer: Buffer, position: Expr, count: int) -> str:
        """The vector of so many elements from a scalar position on."""
        kind, space, place = memory_type(buffer.dtype), self.space(buffer), self.address(buffer, position)
        if self._is_aligned(buffer, position, count):
            return f"(*(__{space} const {kind}{count}*)({place}))"
        return f"{self.helpers.load(kind, count, space)}({place})"

    def write_vector(self, buffer: Buffer, position: Expr, count: int, value: str) -> None:
        """The statement that stores a vector to so many elements from a scalar position on."""
        kind, space, place = memory_type(buffer.dtype), self.space(buffer), self.address(buffer, position)
        if self._is_aligned(buffer, position, count):
            self.line(f"*(__{space} {kind}{count}*)({place}) = {bare(value)};")
        else:
            self.line(f"{self.helpers.store(kind, count, space)}({bare(value)}, {place});")

    def _is_aligned(self, buffer: Buffer, position: Expr, count: int) -> bool:
        """Whether a vector lies at a multiple of its own size, as a GPU must know to load it at once.

        A CPU takes any address.  Buffers begin at a multiple of 128 bytes (`CL_DEVICE_MEM_BASE_ADDR_ALIGN`), arrays
        that a kernel declares at one of `ARRAY_ALIGNMENT`.
        """
        if self.is_cpu or count * dtypes.nbytes(buffer.dtype) > ARRAY_ALIGNMENT:
            return False
        terms, constant = shared_form(position)
        return all(number % count == 0 for number in (*terms.values(), constant))

    def address(self, buffer: Buffer, position: Expr) -> str:
        """The address of the element at a scalar position."""
        offset = self._offset(position)
        return self.pointer(buffer) if offset == "0" else f"{self.pointer(buffer)} + {offset}"

    def _at(self, position: Expr) -> str:
        return bare(self._offset(position))

    def _offset(self, position: Expr) -> str:
        """A position as one variable plus a constant, so that the accesses of a tile share an address."""
        terms, constant = shared_form(position)
        if not terms:
            return str(constant)
        text = self.scalar(build((terms, 0)))
        self.check_index(position)
        # A condition that is being evaluated may be what makes a division possible.
        if not self._lazy and not text.isidentifier() and not any(isinstance(n, Load) for n in walk(position)):
            text = self.held(text, self.index_type)
        return text if constant == 0 else f"{text} {'+' if constant > 0 else '-'} {abs(constant)}"


def lane(expr: Expr, number: int) -> Expr:
    """Lane `number` of a vector expression, as a scalar expression."""
    if isinstance(expr, Ramp):
        return binary("+", expr.base, binary("*", expr.stride, number))
    if isinstance(expr, Broadcast):
        return expr.value
    if dtypes.lanes(expr.dtype) == 1:
        return expr
    if isinstance(expr, Shuffle):
        return shuffled(expr, number)
    if isinstance(expr, Var):
        raise CodegenError(f"a vector variable must be written out before code generation: `{expr.name}`")
    if isinstance(expr, Const):
        return Const(expr.value, dtypes.element(expr.dtype))
    if isinstance(expr, Undef):
        return Undef(dtypes.element(expr.dtype))
    if isinstance(expr, Cast):
        return Cast(dtypes.element(expr.dtype), lane(expr.a, number))
    if isinstance(expr, Call):
        return Call(expr.name, tuple(lane(a, number) for a in expr.args), dtypes.element(expr.dtype))
    result: Expr = refold(rebuild(expr, lambda child: lane(child, number) if isinstance(child, Expr) else child))
    return result


def shuffled(expr: Shuffle, number: int) -> Expr:
    """Lane `number` of a shuffle, as a scalar expression."""
    if not isinstance(expr.lanes[number], Const):
        raise CodegenError(f"which lane `{expr.lanes[number]!r}` of a shuffle is must be known; unroll the loop")
    vector, place = divmod(as_int(expr.lanes[number]), dtypes.lanes(expr.vectors[0].dtype))
    return lane(expr.vectors[vector], place)


def widened(expr: Expr, lanes: int) -> Expr:
    """A scalar in every lane; a vector stays."""
    return expr if lanes == 1 or dtypes.lanes(expr.dtype) > 1 else Broadcast(expr, lanes)
