"""Reads of several lanes on OpenCL devices: under conditions, and of images.

OpenCL C has no masked loads: lanes for which a condition does not hold, such as those behind the end of a row, are read
and dropped, as long as they are in the buffer; near its ends each lane is read on its own (`load_within`).  Only memory
that no work-item of the kernel writes is read in this way, any other lane by lane.

PoCL compiles by Clang for the CPU itself, and Clang has functions for single instructions.  With AVX-512 one of them
loads lanes of global memory under a mask, and touches those alone; another one stores them.  So does a load under a
condition that all lanes share.  Where it does not hold, the address is close to the buffer: a load of no lanes from a
page that is not there takes 130 ns (AMD Zen 4), and one from any other 1 ns.  Without AVX-512 a load under such a
condition is one from the buffer or from a constant; a branch for each of them took PoCL 1.6 times as long (a depthwise
convolution of 32x112x112, five schedules, AVX2), and Intel's runtime as long.

Images are read in whole texels of four elements, from which lanes are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from ...ir import dtypes
from ...ir.arith.intervals import Facts, Interval
from ...ir.arith.linear import as_ramp, build, shared_form
from ...ir.arith.simplifier import simplifier_for
from ...ir.expr import (
    COMPARISONS,
    LOGIC,
    TRUE,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Shuffle,
    all_of,
    as_expr,
    as_int,
    binary,
    conjuncts,
    const,
    divisor_of,
    if_then_else,
    reads_memory,
)
from ...ir.functions import LOAD_WITHIN, MASKED_LOAD
from ...ir.node import walk
from ...ir.numbers import HALF_BYTES
from ...ir.passes.flat import product
from ...ir.target import Target
from ..errors import CodegenError
from ..images import TEXEL
from .lanes import position

CLOSE_BYTES = 4096
"""So far from a buffer pages are taken to be there: those of programs that are measured are (`backends.memory`)."""
INT32 = dtypes.int_range("int32")
Part = tuple[int, int]
"""The first of the lanes that are wanted, and how many."""


@dataclass(frozen=True)
class Place:
    """Where an expression stands: what holds there, and for which lanes.

    `memories` are those in scope, each with the kind of memory that it lies in: ``global``, ``local``, ``private`` or
    ``image``; `written` those that the kernel writes.  `around` are the facts of loops and bindings without those of
    conditions: what is read in a condition has the same place there as outside, where it may have been read before.
    """

    target: Target
    facts: Facts
    around: Facts
    written: frozenset[str]
    memories: Mapping[str, tuple[Buffer, str]]
    mask: Expr | None = None

    def assuming(self, cond: Expr, holds: bool = True) -> Place:
        """Where a condition holds, or does not."""
        return replace(self, facts=self.facts.assuming(cond, holds))

    def inside(self, step: Callable[[Facts], Facts]) -> Place:
        """In a loop or a binding, whose facts are those that `step` makes of those before it."""
        facts = step(self.facts)
        return replace(self, facts=facts, around=facts if self.around is self.facts else step(self.around))

    def having(self, buffer: Buffer, kind: str) -> Place:
        return replace(self, memories={**self.memories, buffer.name: (buffer, kind)})

    def where(self, cond: Expr) -> Place:
        return replace(self, mask=cond if self.mask is None else binary("and", self.mask, cond))

    def memory(self, buffer: Buffer) -> tuple[Buffer, str]:
        """The memory that a buffer names, and its kind."""
        found = self.memories.get(buffer.memory)
        if found is None:
            raise CodegenError(f"buffer `{buffer.name}` is neither a parameter, a workspace nor allocated here")
        return found

    def kind(self, buffer: Buffer) -> str:
        return self.memory(buffer)[1]

    @property
    def has_images(self) -> bool:
        return any(kind == "image" for _, kind in self.memories.values())

    @property
    def by_lane(self) -> frozenset[str]:
        """Types whose vectors are assembled from their lanes."""
        return self.target.computed_as_float | {"bool", dtypes.INDEX, *HALF_BYTES}

    def simple(self, expr: Expr) -> Expr:
        """The expression simplified by the facts."""
        result: Expr = simplifier_for(self.facts).expr(expr)
        return result

    def settled(self, cond: Expr) -> Expr:
        """A condition without what is known to hold, as most of the conditions of an unrolled tile are."""
        settled = self.simple(cond)
        return settled.value if isinstance(settled, Broadcast) else settled


class Rewriter(Protocol):
    """How the parts of an access are rewritten."""

    def scalar(self, expr: Expr, at: Place) -> Expr: ...

    def vector(self, expr: Expr, start: int, count: int, at: Place) -> Expr: ...


def flat(buffer: Buffer) -> Buffer:
    """A buffer of several physical axes as linear memory."""
    if buffer.rank == 1:
        return buffer
    return Buffer(f"{buffer.name}_flat", (product(buffer.extents),), buffer.dtype, buffer.scope, (), buffer.memory)


def _holds(buffer: Buffer, base: Expr, count: int, at: Place) -> bool:
    """Whether `count` elements from `base` on are known to be in a flat buffer."""
    if buffer.is_fixed:
        low, high = at.facts.interval(base)
        return low >= 0 and high <= buffer.size - count
    end = binary("<=", binary("+", base, count), as_expr(buffer.extents[0]))
    return all(at.simple(cond) == TRUE for cond in (binary("<=", 0, base), end))


# ---------------------------------------------------------------- conditions


def condition(to: Rewriter, cond: Expr, part: Part, at: Place) -> Expr | None:
    """Lanes of a condition as comparisons of vectors; None where it has no such form."""
    start, count = part
    if isinstance(cond, Broadcast):
        return Broadcast(to.scalar(cond.value, at), count)
    if isinstance(cond, Not):
        inner = condition(to, cond.a, part, at)
        return None if inner is None else Not(inner)
    if not isinstance(cond, Binary):
        return None
    if cond.op in LOGIC:
        a, b = (condition(to, side, part, at) for side in (cond.a, cond.b))
        return None if a is None or b is None else Binary(cond.op, a, b)
    dtype = dtypes.element(cond.a.dtype)
    if cond.op not in COMPARISONS or (dtype != dtypes.INDEX and dtype in at.by_lane):
        return None
    if dtype == dtypes.INDEX:
        left, right = (_in_32_bits(to, side, part, at) for side in (cond.a, cond.b))
        return None if left is None or right is None else Binary(cond.op, left, right)
    return Binary(cond.op, to.vector(cond.a, start, count, at), to.vector(cond.b, start, count, at))


def _in_32_bits(to: Rewriter, index: Expr, part: Part, at: Place) -> Expr | None:
    """Lanes of an index as int32, if they are neighbours at a constant distance and known to fit."""
    ramp, (start, count) = as_ramp(index), part
    if ramp is None or not isinstance(ramp[1], Const):
        return None
    base, stride = binary("+", ramp[0], binary("*", ramp[1], start)), as_int(ramp[1])
    low, high = at.facts.interval(base)
    reach = stride * (count - 1)
    if min(low, low + reach) < INT32[0] or max(high, high + reach) > INT32[1]:
        return None
    first = Cast("int32", to.scalar(base, at))
    return Ramp(first, const(stride, "int32"), count)


def _tested(to: Rewriter, cond: Expr, part: Part, at: Place) -> Expr | None:
    """The condition of a masked access, which all lanes may share."""
    if dtypes.lanes(cond.dtype) == 1:
        return to.scalar(cond, at)
    if isinstance(cond, Binary) and cond.op in LOGIC:
        a, b = (_tested(to, side, part, at) for side in (cond.a, cond.b))
        return None if a is None or b is None else Binary(cond.op, a, b)
    return condition(to, cond, part, at)


def _steady(cond: Expr) -> list[Expr]:
    """The conditions that all lanes share."""
    parts = [part.value if isinstance(part, Broadcast) else part for part in conjuncts(cond)]
    return [part for part in parts if dtypes.lanes(part.dtype) == 1]


def _where_steady(cond: Expr, base: Expr) -> Expr:
    """A position where the conditions that all lanes share hold, and the first one of the buffer elsewhere."""
    steady = _steady(cond)
    return if_then_else(all_of(steady), base, const(0)) if steady else base


# ---------------------------------------------------------------- neighbours


def ramp(to: Rewriter, base: Expr, count: int, at: Place) -> tuple[Expr, ...]:
    """The index of so many neighbours."""
    return (Ramp(to.scalar(base, at), const(1), count),)


def masked(to: Rewriter, cond: Expr, load: Load, other: Const, part: Part, at: Place) -> Expr | None:
    """``cond ? load : other``, also for one condition for all lanes, by an instruction that loads the chosen lanes
    alone; None where there is none."""
    base, count = _first(load, part, at), part[1]
    if base is None or reads_memory(base):
        return None
    found = masked_access(to, cond, flat(load.buffer), base, part, at)
    if found is None:
        return None
    test, index = found
    beside = Broadcast(other, count)
    return Call(MASKED_LOAD, (test, Load(flat(load.buffer), index), beside), beside.dtype)


def masked_access(
    to: Rewriter, cond: Expr, buffer: Buffer, base: Expr, part: Part, at: Place
) -> tuple[Expr, tuple[Expr, ...]] | None:
    """The condition and the index of an access by one instruction, where there is one."""
    count = part[1]
    vector = dtypes.with_lanes(buffer.dtype, count)
    if at.kind(buffer) != "global" or not at.target.has_masked_vectors(vector):
        return None
    test = _tested(to, cond, part, at)
    return None if test is None else (test, ramp(to, _inside(cond, base, buffer, count, at), count, at))


def guarded(to: Rewriter, cond: Expr, load: Load, other: Const, part: Part, at: Place) -> Expr | None:
    """``cond ? load : other`` with a condition on lanes; None where the load is not one of neighbours."""
    found = masked(to, cond, load, other, part, at)
    base = _first(load, part, at)
    if found is not None or base is None:
        return found
    read = within(to, flat(load.buffer), _where_steady(cond, base), part[1], at)
    chosen = None if read is None else condition(to, cond, part, at)
    return None if read is None or chosen is None else Select(chosen, read, Broadcast(other, part[1]))


def load_or_constant(to: Rewriter, cond: Expr, load: Expr, other: Expr, part: Part, at: Place) -> Expr | None:
    """Neighbours where a scalar condition holds, else a constant, without a branch: one of two addresses is read.

    None where a branch is needed, since only the condition makes the position one that can be computed, and for
    memory that the kernel writes, which is not read through other pointers.
    """
    if not at.target.execution.has_vectors or at.mask is not None:
        return None
    if not isinstance(load, Load) or not isinstance(other, Const):
        return None
    buffer, count = load.buffer, part[1]
    if at.kind(buffer) != "global" or buffer.dtype in at.by_lane or buffer.memory in at.written:
        return None
    if buffer.dtype != at.memory(buffer)[0].dtype:
        return None
    place = _first(load, part, at) if count > 1 else position(buffer, load.indices)
    if place is None or reads_memory(cond) or reads_memory(place):
        return None
    if any((by := divisor_of(n)) is not None and not isinstance(by, Const) for n in walk(place)):
        return None
    whole = flat(buffer)
    index = ramp(to, place, count, at) if count > 1 else (to.scalar(place, at),)
    beside: Expr = Broadcast(other, count) if count > 1 else other
    return Call(MASKED_LOAD, (to.scalar(cond, at), Load(whole, index), beside), beside.dtype)


def within(to: Rewriter, buffer: Buffer, base: Expr, count: int, at: Place) -> Expr | None:
    """A load of `count` elements from `base` on, whose lanes outside of the buffer hold anything.

    None where memory outside of the buffer may not be read.
    """
    is_inside, kind = _holds(buffer, base, count, at), at.kind(buffer)
    if kind == "private" and is_inside:
        return Load(buffer, ramp(to, base, count, at))
    if kind != "global" or buffer.memory in at.written or (buffer.is_fixed and buffer.size < count):
        return None
    load = Load(buffer, ramp(to, base, count, at))
    return load if is_inside else Call(LOAD_WITHIN, (load,), load.dtype)


def _inside(cond: Expr, base: Expr, buffer: Buffer, count: int, at: Place) -> Expr:
    """A position whose lanes under a condition are those of `base`, and which is close to the buffer in any case.

    A condition takes effect on the terms that it is about, which accesses to one row share:
    ``row * 28 + column`` becomes ``(row >= 1 ? row * 28 : 28) + column``.
    """
    slack = CLOSE_BYTES // dtypes.nbytes(buffer.dtype)
    facts, left, held = at.facts, _steady(cond), base
    if not buffer.is_fixed:
        return base if _holds(buffer, base, count, at) else _where_steady(cond, base)
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


def _first(load: Load, part: Part, at: Place) -> Expr | None:
    """The position of the first lane of a load of neighbours on a device with vectors; None of others."""
    found = as_ramp(position(load.buffer, load.indices))
    if not at.target.execution.has_vectors or found is None or found[1] != const(1):
        return None
    return None if dtypes.element(load.dtype) in at.by_lane else binary("+", found[0], part[0])


# ---------------------------------------------------------------- images


def is_image(load: Load, at: Place) -> bool:
    """Whether a load goes to an image of this kernel.  Raises CodegenError for a view of another type or shape."""
    whole, kind = at.memories.get(load.buffer.memory, (load.buffer, ""))
    if kind != "image":
        return False
    name = load.buffer.memory
    if load.buffer.dtype != whole.dtype:
        raise CodegenError(
            f"`{load.buffer.name}` views the image `{name}` of {whole.dtype} as {load.buffer.dtype}; "
            f"texture memory has one element type"
        )
    if load.buffer.shape != whole.shape:
        raise CodegenError(
            f"`{load.buffer.name}` views the image `{name}` of {list(whole.shape)} as "
            f"{list(load.buffer.shape)}; texture memory has one shape"
        )
    return True


def component(to: Rewriter, load: Load, at: Place) -> Expr:
    """One element, out of its texel."""
    row, column = load.indices
    place = _remainder(column, at)
    number = to.scalar(binary("%", column, TEXEL), at) if place is None else const(place)
    return Shuffle((_texel(to, load, row, column, at),), (number,))


def components(to: Rewriter, load: Load, part: Part, at: Place) -> Expr | None:
    """Lanes, if they are neighbours in whole texels or inside one; else None."""
    (row, column), (start, count) = load.indices, part
    found = as_ramp(column)
    if isinstance(row, Broadcast):
        row = row.value
    if dtypes.lanes(row.dtype) > 1 or found is None or found[1] != const(1):
        return None
    first = binary("+", found[0], start)
    place = _remainder(first, at)
    if place is None or (place and place + count > TEXEL):
        return None
    columns = [binary("+", first, n) for n in range(0, max(count - place, 1), TEXEL)]
    whole = tuple(_texel(to, load, row, each, at) for each in columns)
    if len(whole) == 1 and count == TEXEL:
        return whole[0]
    return Shuffle(whole, tuple(const(place + n) for n in range(count)))


def _texel(to: Rewriter, load: Load, row: Expr, column: Expr, at: Place) -> Load:
    """The texel that a column lies in."""
    simple = simplifier_for(at.around).expr
    first = Ramp(binary("*", to.scalar(simple(binary("//", column, TEXEL)), at), TEXEL), const(1), TEXEL)
    return Load(load.buffer, (to.scalar(simple(row), at), first))


def _remainder(column: Expr, at: Place) -> int | None:
    """The component that a column is in, if it is the same in every iteration."""
    remainder = at.simple(binary("%", column, TEXEL))
    return as_int(remainder) if isinstance(remainder, Const) else None
