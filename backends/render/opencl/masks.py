"""Conditions on lanes without branches, for devices whose vectors have lanes (see `ir.isa.Execution`).

::

    if c[0:n]: C[j : j + n] = A[i : i + n]          ->  t = A[i : i + n];  for each k: if c[k]: C[j + k] = t[k]
    if c[0:n]: T[j : j + n] = e                     ->  T[j : j + n] = c[0:n] ? e : T[j : j + n]     in registers
    if_then_else(c[0:n], A[i : i + n], v)           ->  c[0:n] ? A[i : i + n] : v

A mask is a vector of integers, as wide as the lanes that it chooses, with all bits set where the condition holds: what
comparisons of vectors give in OpenCL C.  It has no masked loads: lanes for which the condition does not hold, such as
those behind the end of a row, are read and dropped, as long as they are in the buffer; near its ends each lane is read
on its own.  Only memory that no work-item of the kernel writes is read in this way, any other lane by lane.

PoCL compiles by Clang for the CPU itself, and Clang has functions for single instructions.  With AVX-512 one of them
(`Helpers.load_masked`) loads lanes of global memory under a mask, and touches those alone; another one stores them.
So does a load under a condition that all lanes share.  Where it does not hold, the address is close to the buffer: a
load of no lanes from a page that is not there takes 130 ns (AMD Zen 4), and one from any other 1 ns.  Without AVX-512 a
load under such a condition is one from the buffer or from an array of the constant (`load_or_constant`); a branch for
each of them took PoCL 1.6 times as long (a depthwise convolution of 32x112x112, five schedules, AVX2), and Intel's
runtime as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ....ir import dtypes
from ....ir.arith.intervals import Interval
from ....ir.arith.linear import as_ramp, build, shared_form
from ....ir.expr import (
    COMPARISONS,
    LOGIC,
    Binary,
    Broadcast,
    Buffer,
    Const,
    Expr,
    Load,
    Not,
    all_of,
    binary,
    conjuncts,
    const,
    divisor_of,
    if_then_else,
)
from ....ir.node import walk
from .helpers import ONE_MEMORY
from .kernel import INT32, Kernel
from .lanes import lane
from .memory import offset, position, read_vector, write_vector
from .types import bare, memory_type, pieces

INTEGERS = {1: "char", 2: "short", 4: "int", 8: "long"}
"""The type of a lane of a mask, by the bytes of what it chooses."""
CLOSE_BYTES = 4096
"""So far from a buffer pages are taken to be there: those of programs that are measured are (`backends.memory`)."""

# ---------------------------------------------------------------- conditions


def chosen(k: Kernel, cond: Expr, a: str, b: str, dtype: str, start: int, count: int) -> str | None:
    """``cond ? a : b`` in lanes, both evaluated; None where the condition has no vector form."""
    mask = _mask(k, cond, start, count, _lane_bytes(k, dtype))
    return mask and f"({mask} ? {a} : {b})"


def _mask(k: Kernel, cond: Expr, start: int, count: int, nbytes: int) -> str | None:
    """The mask of lanes of `nbytes` for a condition; None where it has no vector form."""
    if isinstance(cond, Broadcast):
        return f"(({INTEGERS[nbytes]}{count})(-{_test(k, cond.value)}))"
    if isinstance(cond, Not):
        inner = _mask(k, cond.a, start, count, nbytes)
        return inner and f"(~{inner})"
    if isinstance(cond, Binary) and cond.op in LOGIC:
        sides = [_mask(k, side, start, count, nbytes) for side in (cond.a, cond.b)]
        return f"({sides[0]} {'&' if cond.op == 'and' else '|'} {sides[1]})" if all(sides) else None
    if isinstance(cond, Binary) and cond.op in COMPARISONS:
        return _comparison(k, cond, start, count, nbytes)
    return None


def _test(k: Kernel, cond: Expr) -> str:
    """A scalar condition, held where it may be evaluated in any case."""
    text = k.scalar(cond)
    return text if k.writer.is_lazy or k.writer.changes(cond) else k.writer.held(text, "int")


def _comparison(k: Kernel, cond: Binary, start: int, count: int, nbytes: int) -> str | None:
    dtype = dtypes.element(cond.a.dtype)
    if dtype == dtypes.INDEX:
        sides = [_in_32_bits(k, side, start, count) for side in (cond.a, cond.b)]
    elif dtype in k.types.by_lane:
        return None
    else:
        sides = [k.vector(side, start, count) for side in (cond.a, cond.b)]
    if not all(sides):
        return None
    text = f"({sides[0]} {cond.op} {sides[1]})"
    given, wanted = INTEGERS[dtypes.nbytes("int32" if dtype == dtypes.INDEX else dtype)], INTEGERS[nbytes]
    if given == wanted:
        return text
    return f"{k.helpers.built_in(f'convert_{wanted}{{n}}', given, wanted, count)}({text})"


def _in_32_bits(k: Kernel, index: Expr, start: int, count: int) -> str | None:
    """Lanes of an index as vectors of int, if they are neighbours at a constant distance and known to fit."""
    ramp = as_ramp(index)
    if ramp is None or not isinstance(ramp[1], Const):
        return None
    base, stride = binary("+", ramp[0], binary("*", ramp[1], start)), int(ramp[1].value)
    low, high = k.known.interval(base)
    reach = stride * (count - 1)
    if min(low, low + reach) < INT32[0] or max(high, high + reach) > INT32[1]:
        return None
    first = f"((int{count})((int){k.scalar(base)}))"
    steps = ", ".join(str(stride * n) for n in range(count))
    return first if stride == 0 else f"({first} + (int{count})({steps}))"


def _lane_bytes(k: Kernel, dtype: str) -> int:
    return dtypes.nbytes("float32" if dtypes.element(dtype) in k.types.emulated else dtypes.element(dtype))


# ---------------------------------------------------------------- loads


def guarded_load(k: Kernel, cond: Expr, load: Load, other: Const, start: int, count: int) -> str | None:
    """``cond ? load : other`` with a condition on lanes; None where the load is not one of neighbours."""
    masked = masked_load(k, cond, load, other, start, count)
    base = _first(k, load, start)
    if masked is not None or base is None:
        return masked
    read = read_within(k, load.buffer, _where_steady(cond, base), count)
    return read and chosen(k, cond, read, _padding(k, other, load, count), load.dtype, start, count)


def masked_load(k: Kernel, cond: Expr, load: Load, other: Const, start: int, count: int) -> str | None:
    """The same, also for one condition for all lanes, by an instruction that loads the chosen lanes alone; None
    where there is none."""
    base, kind = _first(k, load, start), memory_type(load.dtype)
    if base is None or any(isinstance(node, Load) for node in walk(base)):
        return None
    bits = _bits(k, cond, load.buffer, start, count)
    if bits is None:
        return None
    where = f"{k.pointer(load.buffer)}, {offset(k, _inside(k, cond, base, load.buffer, count))}"
    return f"{k.helpers.load_masked(kind, count)}({where}, {bare(bits)}, {_padding(k, other, load, count)})"


def load_or_constant(k: Kernel, cond: Expr, load: Expr, other: Expr, start: int = 0, count: int = 1) -> str | None:
    """Neighbours where a scalar condition holds, else a constant, without a branch: one of two addresses is read.

    None where a branch is needed, since only the condition makes the position one that can be computed, and for
    memory that the kernel writes, which is not read through other pointers.
    """
    if not k.execution.has_vectors or k.under is not None or not isinstance(load, Load) or not isinstance(other, Const):
        return None
    buffer = load.buffer
    if k.space(buffer) != "global" or buffer.dtype in k.types.by_lane or buffer.memory in k.writer.written:
        return None
    if memory_type(buffer.dtype) != memory_type(k.memories[buffer.memory].buffer.dtype):
        return None
    at = _first(k, load, start) if count > 1 else position(buffer, load.indices)
    if at is None:
        return None
    if any(isinstance(node, Load) for side in (cond, at) for node in walk(side)):
        return None
    if any((by := divisor_of(n)) is not None and not isinstance(by, Const) for n in walk(at)):
        return None
    where = f"{k.pointer(buffer)}, {offset(k, at)}"
    otherwise, place = _constant(k, other.value, buffer.dtype, count)
    read = k.helpers.load_or(memory_type(buffer.dtype), count)
    return f"{read}({bare(_test(k, cond))}, {where}, {otherwise}, {place})"


def _constant(k: Kernel, value: float, dtype: str, count: int) -> tuple[str, str]:
    """The names of a private array of so many times a constant, and of its address.

    The compiler is not told what lies at the address: it would make a branch.
    """
    text = k.types.literal(value, dtype)
    names = k.constants.get((text, dtype, count))
    if names is None:
        array, hidden, place = (k.writer.names.fresh(name) for name in ("otherwise", "hidden", "place"))
        k.writer.first_lines += [
            f"    {memory_type(dtype)} {array}[{count}] = {{{', '.join([text] * count)}}};",
            f"#ifdef {ONE_MEMORY}",
            f"    volatile size_t {hidden} = (size_t){array};",
            f"    const size_t {place} = {hidden};",
            "#endif",
        ]
        names = k.constants[text, dtype, count] = array, place
    return names


def _inside(k: Kernel, cond: Expr, base: Expr, buffer: Buffer, count: int) -> Expr:
    """A position whose lanes under a condition are those of `base`, and which is close to the buffer in any case.

    A condition takes effect on the terms that it is about, which accesses to one row share:
    ``row * 28 + column`` becomes ``(row >= 1 ? row * 28 : 28) + column``.
    """
    slack = CLOSE_BYTES // dtypes.nbytes(buffer.dtype)
    facts, left, held = k.known.facts, _steady(cond), base
    while not _is_close(facts.interval(base), buffer.size, count, slack):
        terms, constant = shared_form(held)
        about = frozenset(walk(left[0])) if left else frozenset()
        own = {atom: factor for atom, factor in terms.items() if atom in about}
        together = all_of([part for part in left if not own.keys().isdisjoint(walk(part))])
        left = [part for part in left if own.keys().isdisjoint(walk(part))]
        facts = facts.assuming(together)
        least, _ = facts.of_form((own, 0))
        if not own or not isinstance(least, int):
            return _where_steady(cond, base)
        rest = {atom: factor for atom, factor in terms.items() if atom not in own}
        held = binary("+", if_then_else(together, build((own, 0)), const(least)), build((rest, constant)))
    return held


def _is_close(interval: Interval, size: int, count: int, slack: int) -> bool:
    """Whether vectors that begin there lie in a buffer, or so many elements from it."""
    low, high = interval
    return low > -count - slack and high < size + slack


def _first(k: Kernel, load: Load, start: int) -> Expr | None:
    """The position of a lane of a load of neighbours on a device with vectors; None of others."""
    ramp = as_ramp(position(load.buffer, load.indices))
    if not k.execution.has_vectors or ramp is None or ramp[1] != const(1):
        return None
    return None if dtypes.element(load.dtype) in k.types.by_lane else binary("+", ramp[0], start)


def _padding(k: Kernel, other: Const, load: Load, count: int) -> str:
    return f"(({k.types.vector(load.dtype, count)})({k.types.literal(other.value, load.dtype)}))"


def _bits(k: Kernel, cond: Expr, buffer: Buffer, start: int, count: int) -> str | None:
    """A mask with a bit for each lane, where one instruction accesses lanes of the buffer under it; else None."""
    if k.space(buffer) != "global" or not k.helpers.is_masked(memory_type(buffer.dtype), count):
        return None
    return _bits_of(k, cond, start, count, _lane_bytes(k, buffer.dtype))


def _bits_of(k: Kernel, cond: Expr, start: int, count: int, nbytes: int) -> str | None:
    if isinstance(cond, Broadcast) or dtypes.lanes(cond.dtype) == 1:
        return f"(-{_test(k, cond.value if isinstance(cond, Broadcast) else cond)})"
    if isinstance(cond, Binary) and cond.op in LOGIC:
        sides = [_bits_of(k, side, start, count, nbytes) for side in (cond.a, cond.b)]
        return f"({sides[0]} {'&' if cond.op == 'and' else '|'} {sides[1]})" if all(sides) else None
    mask = _mask(k, cond, start, count, nbytes)
    return mask and f"{k.helpers.bits(count, nbytes)}({bare(mask)})"


def read_within(k: Kernel, buffer: Buffer, base: Expr, count: int) -> str | None:
    """So many elements from a position on, anything in lanes that are not in the buffer.

    None where lanes that nobody asks for may not be read.
    """
    low, high = k.known.interval(base)
    kind, space = memory_type(buffer.dtype), k.space(buffer)
    is_inside = low >= 0 and high <= buffer.size - count
    if space == "private" and is_inside:
        return read_vector(k, buffer, base, count)
    if space != "global" or buffer.memory in k.writer.written or buffer.size < count:
        return None
    if is_inside:
        return read_vector(k, buffer, base, count)
    return f"{k.helpers.load_within(kind, count)}({k.pointer(buffer)}, {offset(k, base)}, {buffer.size})"


# ---------------------------------------------------------------- stores


def write_under(k: Kernel, cond: Expr, buffer: Buffer, base: Expr, text: str, start: int, count: int) -> None:
    """Store the lanes of a vector for which the condition holds."""
    kind, space, line = memory_type(buffer.dtype), k.space(buffer), k.writer.line
    if count == 1:
        test = k.scalar(lane(cond, start))
        line(f"if ({bare(test)}) {k.pointer(buffer)}[{offset(k, base)}] = {bare(text)};")
        return
    low, high = k.known.interval(base)
    if space == "private" and low >= 0 and high <= buffer.size - count:
        old = read_vector(k, buffer, base, count)
        both = chosen(k, cond, text, old, buffer.dtype, start, count)
        if both is not None:
            write_vector(k, buffer, base, count, both)
            return
    if (bits := _bits(k, cond, buffer, start, count)) is not None:
        where = f"{k.pointer(buffer)}, {offset(k, _inside(k, cond, base, buffer, count))}"
        line(f"{k.helpers.store_masked(kind, count)}({bare(text)}, {where}, {bare(bits)});")
        return
    value = k.writer.names.fresh("held")
    line(f"const {kind}{count} {value} = {bare(text)};")
    conditions = [lane(cond, start + n) for n in range(count)]
    for first, group in _runs([isinstance(one, Const) and bool(one.value) for one in conditions]):
        for at, part in ((first + n, part) for n, part in pieces(group) if part > 1):
            # Lane by lane: compilers make one instruction of it, and oclgrind takes `.s89ab` for undefined.
            lanes = ", ".join(f"{value}.s{at + n:x}" for n in range(part))
            write_vector(k, buffer, binary("+", base, at), part, f"({kind}{part})({lanes})")
            conditions[at : at + part] = [const(False, "bool")] * part
    for n, one in enumerate(conditions):
        head = "" if isinstance(one, Const) else f"if ({bare(k.scalar(one))}) "
        if not isinstance(one, Const) or one.value:
            line(f"{head}{k.pointer(buffer)}[{offset(k, binary('+', base, n))}] = {value}.s{n:x};")


def _where_steady(cond: Expr, base: Expr) -> Expr:
    """A position where the conditions that all lanes share hold, and the first one of the buffer elsewhere."""
    steady = _steady(cond)
    return if_then_else(all_of(steady), base, const(0)) if steady else base


def _steady(cond: Expr) -> list[Expr]:
    """The conditions that all lanes share."""
    parts = [part.value if isinstance(part, Broadcast) else part for part in conjuncts(cond)]
    return [part for part in parts if dtypes.lanes(part.dtype) == 1]


def _runs(chosen: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """``(first, count)`` of neighbours that are all chosen."""
    start = 0
    for is_chosen, group in groupby(chosen):
        count = len(list(group))
        if is_chosen:
            yield start, count
        start += count
