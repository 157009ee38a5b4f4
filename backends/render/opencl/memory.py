"""Accesses of memory: addresses, and how elements and vectors of each type are read and written."""

from __future__ import annotations

from ....ir import dtypes
from ....ir.arith.linear import build, shared_form
from ....ir.expr import Buffer, Expr, Load
from ....ir.node import walk
from ....ir.numbers import HALF_BYTES
from .kernel import Kernel
from .types import bare, memory_type

ARRAY_ALIGNMENT = 64
"""Bytes, a multiple of which every array of a kernel begins at."""


def read(k: Kernel, buffer: Buffer, at: Expr) -> str:
    """The value of the element at a scalar position."""
    if buffer.dtype in k.types.emulated:
        return k.helpers.load_narrow(buffer.dtype, k.space(buffer), k.pointer(buffer), offset(k, at))
    text = f"{k.pointer(buffer)}[{offset(k, at)}]"
    if buffer.dtype in HALF_BYTES:
        return f"{k.helpers.in_four_bits(memory_type(buffer.dtype))}({text})"
    return f"({text} != 0)" if dtypes.is_bool(buffer.dtype) else text


def write(k: Kernel, buffer: Buffer, at: Expr, value: str, head: str = "") -> None:
    """The statement that stores a value to the element at a scalar position, behind the head of a condition."""
    if buffer.dtype in k.types.emulated:
        pointer, place = k.pointer(buffer), offset(k, at)
        k.writer.line(head + k.helpers.store_narrow(buffer.dtype, k.space(buffer), pointer, place, bare(value)))
    else:
        k.writer.line(f"{head}{k.pointer(buffer)}[{offset(k, at)}] = {bare(value)};")


def read_vector(k: Kernel, buffer: Buffer, at: Expr, count: int) -> str:
    """The vector of so many elements from a scalar position on."""
    kind, space, place = memory_type(buffer.dtype), k.space(buffer), _address(k, buffer, at)
    if _is_aligned(k, buffer, at, count):
        return f"(*(__{space} const {kind}{count}*)({place}))"
    return f"{k.helpers.load(kind, count, space)}({place})"


def write_vector(k: Kernel, buffer: Buffer, at: Expr, count: int, value: str) -> None:
    """The statement that stores a vector to so many elements from a scalar position on."""
    kind, space, place = memory_type(buffer.dtype), k.space(buffer), _address(k, buffer, at)
    if _is_aligned(k, buffer, at, count):
        k.writer.line(f"*(__{space} {kind}{count}*)({place}) = {bare(value)};")
    else:
        k.writer.line(f"{k.helpers.store(kind, count, space)}({bare(value)}, {place});")


def _is_aligned(k: Kernel, buffer: Buffer, at: Expr, count: int) -> bool:
    """Whether a vector lies at a multiple of its own size, as a device must know that does not load from any address.

    Buffers begin at a multiple of 128 bytes (`CL_DEVICE_MEM_BASE_ADDR_ALIGN`), arrays that a kernel declares at one of
    `ARRAY_ALIGNMENT`.
    """
    if k.execution.loads_from_any_address or count * dtypes.nbytes(buffer.dtype) > ARRAY_ALIGNMENT:
        return False
    terms, constant = shared_form(at)
    return all(number % count == 0 for number in (*terms.values(), constant))


def _address(k: Kernel, buffer: Buffer, at: Expr) -> str:
    """The address of the element at a scalar position."""
    place = _offset(k, at)
    return k.pointer(buffer) if place == "0" else f"{k.pointer(buffer)} + {place}"


def offset(k: Kernel, at: Expr) -> str:
    """A scalar position, as an index of a pointer."""
    return bare(_offset(k, at))


def _offset(k: Kernel, at: Expr) -> str:
    """A position as one variable plus a constant, so that the accesses of a tile share an address."""
    terms, constant = shared_form(at)
    if not terms:
        return str(constant)
    text = k.scalar(build((terms, 0)))
    k.check_index(at)
    # A condition that is being evaluated may be what makes a division possible.
    if not k.writer.is_lazy and not text.isidentifier() and not any(isinstance(n, Load) for n in walk(at)):
        text = k.writer.held(text, k.types.index)
    return text if constant == 0 else f"{text} {'+' if constant > 0 else '-'} {abs(constant)}"
