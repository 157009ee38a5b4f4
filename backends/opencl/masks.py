"""Conditions on lanes without branches, for the devices that CPUs are.

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

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from ...ir import dtypes
from ...ir.arith.intervals import Interval
from ...ir.arith.linear import as_ramp, build, shared_form
from ...ir.expr import (
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
    if_then_else,
)
from ...ir.node import walk
from .access import lane
from .texels import Texels
from .types import ONE_MEMORY, Helpers, bare, literal, memory_type, pieces
from .writer import INT32

INTEGERS = {1: "char", 2: "short", 4: "int", 8: "long"}
"""The type of a lane of a mask, by the bytes of what it chooses."""
CLOSE_BYTES = 4096
"""So far from a buffer pages are taken to be there: those of programs that are measured are (`backends.memory`)."""


class Masks(Texels):
    """Writes choices between vectors, and accesses under a condition on their lanes."""

    def __init__(
        self, index_type: str, helpers: Helpers, emulated: frozenset[str] = frozenset(), is_cpu: bool = True
    ) -> None:
        super().__init__(index_type, helpers, emulated, is_cpu)
        self.under: Expr | None = None
        """The condition on the lanes of the statement that is being written."""
        self._constants: dict[tuple[str, str, int], tuple[str, str]] = {}

    @property
    def by_lane(self) -> frozenset[str]:
        """Types whose vectors are assembled from their lanes."""
        return self.emulated | {"bool", dtypes.INDEX}

    @abstractmethod
    def vector(self, expr: Expr, start: int, count: int) -> str:
        """Lanes ``[start, start + count)`` of a vector, or a scalar in every lane."""

    @contextmanager
    def where(self, cond: Expr) -> Iterator[None]:
        """Within, lanes for which the condition does not hold have no effect, and read nothing that is not there."""
        outer = self.under
        self.under = cond if outer is None else binary("and", outer, cond)
        yield
        self.under = outer

    # ------------------------------------------------------------ conditions

    def chosen(self, cond: Expr, a: str, b: str, dtype: str, start: int, count: int) -> str | None:
        """``cond ? a : b`` in lanes, both evaluated; None where the condition has no vector form."""
        mask = self.mask(cond, start, count, self._lane_bytes(dtype))
        return mask and f"({mask} ? {a} : {b})"

    def mask(self, cond: Expr, start: int, count: int, nbytes: int) -> str | None:
        """The mask of lanes of `nbytes` for a condition; None where it has no vector form."""
        if isinstance(cond, Broadcast):
            return f"(({INTEGERS[nbytes]}{count})(-{self._test(cond.value)}))"
        if isinstance(cond, Not):
            inner = self.mask(cond.a, start, count, nbytes)
            return inner and f"(~{inner})"
        if isinstance(cond, Binary) and cond.op in LOGIC:
            sides = [self.mask(side, start, count, nbytes) for side in (cond.a, cond.b)]
            return f"({sides[0]} {'&' if cond.op == 'and' else '|'} {sides[1]})" if all(sides) else None
        if isinstance(cond, Binary) and cond.op in COMPARISONS:
            return self._comparison(cond, start, count, nbytes)
        return None

    def _test(self, cond: Expr) -> str:
        """A scalar condition, held where it may be evaluated in any case."""
        text = self.scalar(cond)
        return text if self._lazy or self._changes(cond) else self.held(text, "int")

    def _comparison(self, cond: Binary, start: int, count: int, nbytes: int) -> str | None:
        dtype = dtypes.element(cond.a.dtype)
        if dtype == dtypes.INDEX:
            sides = [self._in_32_bits(side, start, count) for side in (cond.a, cond.b)]
        elif dtype in self.by_lane:
            return None
        else:
            sides = [self.vector(side, start, count) for side in (cond.a, cond.b)]
        if not all(sides):
            return None
        text = f"({sides[0]} {cond.op} {sides[1]})"
        given, wanted = INTEGERS[dtypes.nbytes("int32" if dtype == dtypes.INDEX else dtype)], INTEGERS[nbytes]
        if given == wanted:
            return text
        return f"{self.helpers.built_in(f'convert_{wanted}{{n}}', given, wanted, count)}({text})"

    def _in_32_bits(self, index: Expr, start: int, count: int) -> str | None:
        """Lanes of an index as vectors of int, if they are neighbours at a constant distance and known to fit."""
        ramp = as_ramp(index)
        if ramp is None or not isinstance(ramp[1], Const):
            return None
        base, stride = binary("+", ramp[0], binary("*", ramp[1], start)), int(ramp[1].value)
        low, high = self.facts.interval(base)
        reach = stride * (count - 1)
        if min(low, low + reach) < INT32[0] or max(high, high + reach) > INT32[1]:
            return None
        first = f"((int{count})((int){self.scalar(base)}))"
        steps = ", ".join(str(stride * k) for k in range(count))
        return first if stride == 0 else f"({first} + (int{count})({steps}))"

    def _lane_bytes(self, dtype: str) -> int:
        return dtypes.nbytes("float32" if dtypes.element(dtype) in self.emulated else dtypes.element(dtype))

    # ------------------------------------------------------------ memory

    def guarded_load(self, cond: Expr, load: Load, other: Const, start: int, count: int) -> str | None:
        """``cond ? load : other`` with a condition on lanes; None where the load is not one of neighbours."""
        masked = self.masked_load(cond, load, other, start, count)
        base = self._first(load, start)
        if masked is not None or base is None:
            return masked
        read = self.read_within(load.buffer, _where_steady(cond, base), count)
        return read and self.chosen(cond, read, self._padding(other, load, count), load.dtype, start, count)

    def masked_load(self, cond: Expr, load: Load, other: Const, start: int, count: int) -> str | None:
        """The same, also for one condition for all lanes, by an instruction that loads the chosen lanes alone; None
        where there is none."""
        base, kind = self._first(load, start), memory_type(load.dtype)
        if base is None or any(isinstance(node, Load) for node in walk(base)):
            return None
        bits = self._bits(cond, load.buffer, start, count)
        if bits is None:
            return None
        where = f"{self.pointer(load.buffer)}, {self._at(self._inside(cond, base, load.buffer, count))}"
        return f"{self.helpers.load_masked(kind, count)}({where}, {bare(bits)}, {self._padding(other, load, count)})"

    def load_or_constant(self, cond: Expr, load: Expr, other: Expr, start: int = 0, count: int = 1) -> str | None:
        """Neighbours where a scalar condition holds, else a constant, without a branch: one of two addresses is read.

        None where a branch is needed, since only the condition makes the position one that can be computed, and for
        memory that the kernel writes, which is not read through other pointers.
        """
        if not self.is_cpu or self.under is not None or not isinstance(load, Load) or not isinstance(other, Const):
            return None
        dtype = load.buffer.dtype
        if self.space(load.buffer) != "global" or dtype in self.by_lane or load.buffer.memory in self.written:
            return None
        if memory_type(dtype) != memory_type(self.types[load.buffer.memory]):
            return None
        position = self._first(load, start) if count > 1 else self.position(load.buffer, load.indices)
        if position is None:
            return None
        if any(isinstance(node, Load) for side in (cond, position) for node in walk(side)):
            return None
        if any(isinstance(n, Binary) and n.op in ("//", "%") and not isinstance(n.b, Const) for n in walk(position)):
            return None
        where = f"{self.pointer(load.buffer)}, {self._at(position)}"
        otherwise, place = self._constant(other.value, dtype, count)
        read = self.helpers.load_or(memory_type(dtype), count)
        return f"{read}({bare(self._test(cond))}, {where}, {otherwise}, {place})"

    def _constant(self, value: float, dtype: str, count: int) -> tuple[str, str]:
        """The names of a private array of so many times a constant, and of its address.

        The compiler is not told what lies at the address: it would make a branch.
        """
        text = literal(value, dtype, self.index_type)
        names = self._constants.get((text, dtype, count))
        if names is None:
            array, hidden, place = (self.names.fresh(name) for name in ("otherwise", "hidden", "place"))
            self.first_lines += [
                f"    {memory_type(dtype)} {array}[{count}] = {{{', '.join([text] * count)}}};",
                f"#ifdef {ONE_MEMORY}",
                f"    volatile size_t {hidden} = (size_t){array};",
                f"    const size_t {place} = {hidden};",
                "#endif",
            ]
            names = self._constants[text, dtype, count] = array, place
        return names

    def _inside(self, cond: Expr, base: Expr, buffer: Buffer, count: int) -> Expr:
        """A position whose lanes under a condition are those of `base`, and which is close to the buffer in any case.

        A condition takes effect on the terms that it is about, which accesses to one row share:
        ``row * 28 + column`` becomes ``(row >= 1 ? row * 28 : 28) + column``.
        """
        slack = CLOSE_BYTES // dtypes.nbytes(buffer.dtype)
        facts, left, held = self.facts, _steady(cond), base
        while not self._is_close(facts.interval(base), buffer.size, count, slack):
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

    @staticmethod
    def _is_close(interval: Interval, size: int, count: int, slack: int) -> bool:
        """Whether vectors that begin there lie in a buffer, or so many elements from it."""
        low, high = interval
        return low > -count - slack and high < size + slack

    def _first(self, load: Load, start: int) -> Expr | None:
        """The position of a lane of a load of neighbours on a CPU device; None of others."""
        ramp = as_ramp(self.position(load.buffer, load.indices))
        if not self.is_cpu or ramp is None or ramp[1] != const(1) or dtypes.element(load.dtype) in self.by_lane:
            return None
        return binary("+", ramp[0], start)

    def _padding(self, other: Const, load: Load, count: int) -> str:
        kind = f"{self.value_type(load.dtype)}{count}"
        return f"(({kind})({literal(other.value, load.dtype, self.index_type)}))"

    def _bits(self, cond: Expr, buffer: Buffer, start: int, count: int) -> str | None:
        """A mask with a bit for each lane, where one instruction accesses lanes of the buffer under it; else None."""
        if self.space(buffer) != "global" or not self.helpers.is_masked(memory_type(buffer.dtype), count):
            return None
        return self._bits_of(cond, start, count, self._lane_bytes(buffer.dtype))

    def _bits_of(self, cond: Expr, start: int, count: int, nbytes: int) -> str | None:
        if isinstance(cond, Broadcast) or dtypes.lanes(cond.dtype) == 1:
            return f"(-{self._test(cond.value if isinstance(cond, Broadcast) else cond)})"
        if isinstance(cond, Binary) and cond.op in LOGIC:
            sides = [self._bits_of(side, start, count, nbytes) for side in (cond.a, cond.b)]
            return f"({sides[0]} {'&' if cond.op == 'and' else '|'} {sides[1]})" if all(sides) else None
        mask = self.mask(cond, start, count, nbytes)
        return mask and f"{self.helpers.bits(count, nbytes)}({bare(mask)})"

    def read_within(self, buffer: Buffer, base: Expr, count: int) -> str | None:
        """So many elements from a position on, anything in lanes that are not in the buffer.

        None where lanes that nobody asks for may not be read.
        """
        low, high = self.facts.interval(base)
        kind, space = memory_type(buffer.dtype), self.space(buffer)
        is_inside = low >= 0 and high <= buffer.size - count
        if space == "private" and is_inside:
            return self.read_vector(buffer, base, count)
        if space != "global" or buffer.memory in self.written or buffer.size < count:
            return None
        if is_inside:
            return self.read_vector(buffer, base, count)
        return f"{self.helpers.load_within(kind, count)}({self.pointer(buffer)}, {self._at(base)}, {buffer.size})"

    def write_under(self, buffer: Buffer, base: Expr, text: str, start: int, count: int) -> None:
        """Store the lanes of a vector for which the condition holds."""
        assert self.under is not None
        kind, space = memory_type(buffer.dtype), self.space(buffer)
        if count == 1:
            test = self.scalar(lane(self.under, start))
            self.line(f"if ({bare(test)}) {self.pointer(buffer)}[{self._at(base)}] = {bare(text)};")
            return
        low, high = self.facts.interval(base)
        if space == "private" and low >= 0 and high <= buffer.size - count:
            old = self.read_vector(buffer, base, count)
            both = self.chosen(self.under, text, old, buffer.dtype, start, count)
            if both is not None:
                self.write_vector(buffer, base, count, both)
                return
        if (bits := self._bits(self.under, buffer, start, count)) is not None:
            where = f"{self.pointer(buffer)}, {self._at(self._inside(self.under, base, buffer, count))}"
            self.line(f"{self.helpers.store_masked(kind, count)}({bare(text)}, {where}, {bare(bits)});")
            return
        value = self.names.fresh("held")
        self.line(f"const {kind}{count} {value} = {bare(text)};")
        conditions = [lane(self.under, start + k) for k in range(count)]
        for first, group in _runs([isinstance(cond, Const) and bool(cond.value) for cond in conditions]):
            for at, part in ((first + k, part) for k, part in pieces(group) if part > 1):
                # Lane by lane: compilers make one instruction of it, and oclgrind takes `.s89ab` for undefined.
                lanes = ", ".join(f"{value}.s{at + k:x}" for k in range(part))
                self.write_vector(buffer, binary("+", base, at), part, f"({kind}{part})({lanes})")
                conditions[at : at + part] = [const(False, "bool")] * part
        for k, cond in enumerate(conditions):
            head = "" if isinstance(cond, Const) else f"if ({bare(self.scalar(cond))}) "
            if not isinstance(cond, Const) or cond.value:
                self.line(f"{head}{self.pointer(buffer)}[{self._at(binary('+', base, k))}] = {value}.s{k:x};")


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
