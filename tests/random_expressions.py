"""Random expressions of every type over what a scope defines; each is valid, in bounds, and divides by no zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from stridesmith.ir import dtypes
from stridesmith.ir.expr import (
    COMPARISONS,
    LOGIC,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Load,
    Not,
    Ramp,
    Select,
    Shuffle,
    Var,
)
from stridesmith.ir.functions import BIT_CALLS, LIBRARY_CALLS, SHIFT_CALLS, TRUNCATED_CALLS

Item = TypeVar("Item")

LANES = (2, 4, 8, 16)
COMPUTED = tuple(t for t in dtypes.SCALAR_TYPES if t not in dtypes.STORAGE)
FLOATS = (0.0, 1.0, -1.0, 0.5, 2.0, -3.0)
EXACT_CALLS = ("abs", "floor", "ceil", "nearbyint", "sqrt", "round", "trunc", "copysign")
SIGNED_DIVISORS = (1, 2, 3, 7, -1, -2, -5)
DEPTH = 3


def ends(dtype: str) -> tuple[int, ...]:
    """Numbers of an integer type about which sums and products wrap around: its ends, and halves and roots of them."""
    low, high = dtypes.int_range(dtype)
    near = (low, low + 1, high - 1, high, low // 2, high // 2, high // 2 + 1, high // 3, low // 4 + 1)
    large = (6364136223846793005, dtypes.wrap(-2862933555777941757, dtype)) if high >> 62 else ()
    return (*near, 1 << dtypes.bits(dtype) // 2, *large)


@lru_cache(maxsize=4096)
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


class ExpressionMaker:
    """Draws expressions.

    `exact` programs use only operations that every machine rounds alike.  `extents` has
    the variables that count from 0, `lets` those that stand for a value, `buffers` what
    may be read; conditions, indices and assumptions use only `inputs`, which are never undef.
    """

    def __init__(self, draw: Any, exact: bool = False) -> None:
        self.draw, self.exact, self.count = draw, exact, 0
        self.extents: dict[Var, int] = {}
        self.lets: list[Var] = []
        self.buffers: list[Buffer] = []
        self.inputs: list[Buffer] = []
        self.certain = False

    # ------------------------------------------------------------ draws

    def number(self, low: int, high: int) -> int:
        result: int = self.draw(_integers(low, high))
        return result

    def pick(self, items: Sequence[Item]) -> Item:
        """One of `items`; the first one is the simplest."""
        return items[self.number(0, len(items) - 1)]

    def chance(self, times: int) -> bool:
        """True once in about `times`; false is simpler."""
        return self.number(0, times - 1) == times - 1

    def name(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    def dtype(self, vectors: bool = False) -> str:
        base = self.pick(dtypes.SCALAR_TYPES)
        return dtypes.with_lanes(base, self.pick(LANES)) if vectors and self.chance(3) else base

    @contextmanager
    def counting(self, var: Var, extent: int) -> Iterator[None]:
        """Inside, `var` has values from 0 on, below `extent`."""
        self.extents[var] = extent
        yield
        del self.extents[var]

    @contextmanager
    def surely(self) -> Iterator[None]:
        """Inside, nothing is read that may be undef, nor bound to what may be."""
        before, lets = self.certain, self.lets
        self.certain, self.lets = True, []
        yield
        self.certain, self.lets = before, lets

    # ------------------------------------------------------------ indices

    def index(self, extent: int, depth: int = 2) -> Expr:
        """An int64 in [0, extent)."""
        fitting = [v for v, e in self.extents.items() if e <= extent]
        kind = self.number(0, 7 if depth else 1)
        if kind == 0 or (kind <= 2 and not fitting):
            return Const(self.number(0, extent - 1))
        if kind <= 2:
            return self.wide(self.pick(fitting))
        if kind == 3:
            return Binary("max", Binary("min", self.affine(), Const(extent - 1)), Const(0))
        if kind == 4:
            with self.surely():
                load = self.load(self.pick(("int32", "int64", "uint8", "int16", "uint16", "uint32", "uint64")), 1)
            if load is not None:
                return Binary("%", Cast(dtypes.INDEX, load), Const(extent))
        if kind == 5:
            var = Var(self.name("x"))
            value = self.index(extent, depth - 1)
            with self.counting(var, extent):
                return LetExpr(var, value, self.index(extent, depth - 1))
        if kind == 6 and extent % 2 == 0:
            return Binary("//", self.index(extent * 2, depth - 1), Const(2))
        return Binary("%", self.affine(), Const(extent))

    def any_index(self, extent: int) -> Expr:
        """An integer of some type in [0, extent)."""
        index = self.index(extent)
        return Cast(self.pick(("int32", "int16", "uint8", "uint32", "uint64")), index) if self.chance(6) else index

    def wide(self, var: Var) -> Expr:
        return var if var.dtype == dtypes.INDEX else Cast(dtypes.INDEX, var)

    def affine(self) -> Expr:
        """A sum of multiples of variables."""
        total: Expr = Const(self.number(-3, 5))
        for _ in range(self.number(0, 2)):
            if self.extents:
                var = self.wide(self.pick(list(self.extents)))
                factor = self.number(1, 4)
                term = var if factor == 1 else Binary("*", var, Const(factor))
                total = Binary(self.pick("+-"), term, total)
        return total

    def ramp(self, extent: int, lanes: int) -> Expr | None:
        """A vector of int64 in [0, extent), if so many fit."""
        if extent < lanes:
            return Broadcast(self.index(extent), lanes) if self.chance(3) else None
        kind = self.number(0, 4)
        if kind == 0 and extent >= 2 * lanes - 1:
            return Ramp(self.index(extent - 2 * (lanes - 1), 1), Const(2), lanes)
        base = self.index(extent - (lanes - 1), 1)
        if kind == 1:
            return Ramp(Binary("+", base, Const(lanes - 1)), Const(-1), lanes)
        if kind == 2:
            whole = Binary("+", Broadcast(base, lanes), Ramp(Const(0), Const(1), lanes))
            return Binary("%", whole, Broadcast(Const(extent), lanes))
        return Ramp(base, Const(1), lanes)

    # ------------------------------------------------------------ memory

    def load(self, base: str, lanes: int) -> Load | None:
        """A load of this type, or None where no buffer has it."""
        known = self.inputs if self.certain else self.buffers
        found = [b for b in known if dtypes.element(b.dtype) == base and lanes % dtypes.lanes(b.dtype) == 0]
        if not found:
            return None
        buffer = self.pick(found)
        indices = self.place(buffer, lanes // dtypes.lanes(buffer.dtype))
        return None if indices is None else Load(buffer, indices)

    def place(self, buffer: Buffer, lanes: int) -> tuple[Expr, ...] | None:
        """Indices of `lanes` lanes into a buffer."""
        if lanes == 1:
            return tuple(self.any_index(e) for e in buffer.shape)
        if not buffer.shape:
            return None
        axis = self.number(0, len(buffer.shape) - 1)
        ramp = self.ramp(buffer.shape[axis], lanes)
        if ramp is None:
            return None
        return tuple(ramp if d == axis else self.index(e, 1) for d, e in enumerate(buffer.shape))

    # ------------------------------------------------------------ values

    def value(self, dtype: str, depth: int = DEPTH) -> Expr:
        """A value of exactly this type."""
        if depth <= 0:
            return self.leaf(dtype)
        base, lanes = dtypes.split_dtype(dtype)
        if lanes > 1 and self.chance(4):
            return Broadcast(self.value(base, depth - 1), lanes)
        makers: list[Callable[[str, int], Expr]] = [self._leaf, self._leaf, self._operation, self._operation]
        makers += [self._call, self._call, self._call, self._conditional, self._select, self._cast, self._let]
        if dtypes.is_storage(base):  # which is only moved
            makers = [self._leaf, self._cast, self._cast, self._conditional, self._select, self._let, self._bits]
        return self.pick(makers)(dtype, depth - 1)

    def _leaf(self, dtype: str, depth: int) -> Expr:
        return self.leaf(dtype)

    def leaf(self, dtype: str) -> Expr:
        """A load, a variable or a constant."""
        base, lanes = dtypes.split_dtype(dtype)
        kind = self.number(0, 4)
        if kind >= 2:
            load = self.load(base, lanes)
            if load is not None:
                return load
        bound = [v for v in self.lets if v.dtype == dtype]
        if bound and kind >= 1:
            return self.pick(bound)
        if lanes > 1:
            if base in ("int32", "int64", "uint16", "uint64") and kind == 1:
                return Ramp(self.leaf(base), Const(self.number(0 if base[0] == "u" else -2, 2), base), lanes)
            return Broadcast(self.leaf(base), lanes)
        if dtypes.is_int(base) and self.extents and kind == 1:
            return Cast(base, self.pick(list(self.extents)))
        return self.constant(base)

    def constant(self, base: str) -> Const:
        if base == "bool":
            return Const(self.chance(2), base)
        if dtypes.is_int(base):
            least = max(dtypes.int_range(base)[0], -5)
            return Const(self.pick(ends(base)) if self.chance(4) else self.number(least, 6), base)
        if not self.exact and self.chance(12):
            return Const(self.pick((float("inf"), float("-inf"), float("nan"))), base)
        return Const(self.pick(FLOATS), base)

    def _operation(self, dtype: str, depth: int) -> Expr:
        base, lanes = dtypes.split_dtype(dtype)
        if not dtypes.is_float(base) and self.chance(2):
            return self._algebra(dtype, depth)
        if base == "bool":
            return self.condition(lanes, depth)
        a = self.value(dtype, depth)
        op = self.pick(("+", "-", "*", "min", "max", "/" if dtypes.is_float(base) else self.pick(("//", "%"))))
        return Binary(op, a, self.divisor(dtype, depth) if op in ("/", "//", "%") else self.value(dtype, depth))

    def _algebra(self, dtype: str, depth: int) -> Expr:
        """Sums, quotients and comparisons of the same one or two values, which may cancel or wrap around."""
        base, lanes = dtypes.split_dtype(dtype)
        if base != "bool":
            return self._sums(dtype, [self.leaf(dtype), self.leaf(dtype)], depth + 1)
        kinds = ("int64", "int64", "int32", "uint8", "int8", "uint16", "uint32", "uint64")
        operands = dtypes.with_lanes(self.pick(kinds), lanes)
        atoms = [self.leaf(operands), self.leaf(operands)]
        sides = [self._sums(operands, atoms, depth) for _ in range(2)]
        if self.chance(4):
            one, two = (Binary(self.pick(COMPARISONS), s, self._sums(operands, atoms, 1)) for s in sides)
            return Binary(self.pick(LOGIC), one, two)
        return Binary(self.pick(COMPARISONS), *sides)

    def _sums(self, dtype: str, atoms: Sequence[Expr], depth: int) -> Expr:
        base, lanes = dtypes.split_dtype(dtype)
        if depth <= 0:
            return self.every(self.constant(base), lanes) if self.chance(4) else self.pick(atoms)
        a = self._sums(dtype, atoms, depth - 1)
        op = self.pick(("+", "-", "*", "+", "-", "*", "//", "%", "min", "max"))
        if op in ("//", "%"):
            number = self.pick((*ends(base), *SIGNED_DIVISORS, 2, 3, 4, 6, 8))
            return Binary(op, a, self.every(Const((abs(number) if base[0] == "u" else number) or 1, base), lanes))
        if op == "*" and not self.chance(4):
            return Binary(op, a, self.every(Const(self.pick((2, 3, 4, 6, 8, *ends(base))), base), lanes))
        if self.chance(2):
            return Binary(op, a, self.every(self.constant(base), lanes))
        return Binary(op, a, self._sums(dtype, atoms, depth - 1))

    def divisor(self, dtype: str, depth: int) -> Expr:
        """A value other than 0."""
        base, lanes = dtypes.split_dtype(dtype)
        if dtypes.is_float(base):
            one: Expr = Const(1.0, base)
            if self.chance(3):
                return Binary("+", Call("abs", (self.value(dtype, depth),), dtype), self.every(one, lanes))
            return self.every(Const(self.pick((2.0, -4.0, 3.0, 0.5)), base), lanes)
        if self.chance(3):
            return Binary("max", self.value(dtype, depth), self.every(Const(1, base), lanes))
        divisor = self.pick(ends(base) if self.chance(4) else SIGNED_DIVISORS)
        return self.every(Const((abs(divisor) if base[0] == "u" else divisor) or 1, base), lanes)

    def every(self, scalar: Expr, lanes: int) -> Expr:
        return scalar if lanes == 1 else Broadcast(scalar, lanes)

    def condition(self, lanes: int = 1, depth: int = 1) -> Expr:
        """A bool, or a vector of them."""
        dtype = dtypes.with_lanes("bool", lanes)
        kind = self.number(0, 5 if depth > 0 else 1)
        if kind == 4:
            return Not(self.condition(lanes, depth - 1))
        if kind == 5:
            return Binary(self.pick(LOGIC), self.condition(lanes, depth - 1), self.condition(lanes, depth - 1))
        if kind == 3:
            return self.leaf(dtype)
        op = self.pick(COMPARISONS)
        if lanes == 1 and kind <= 1:
            return Binary(op, self.affine(), self.affine())
        other = dtypes.with_lanes(self.pick(COMPUTED), lanes)
        return Binary(op, self.value(other, depth - 1), self.value(other, depth - 1))

    def certainly(self, depth: int = 1) -> Expr:
        """A condition that depends on nothing undef."""
        with self.surely():
            return self.condition(1, depth)

    def _call(self, dtype: str, depth: int) -> Expr:
        base, lanes = dtypes.split_dtype(dtype)
        if base == "bool":
            return self.condition(lanes, depth)
        if dtypes.bits(base) > 8 and self.chance(6):
            return self._bits(dtype, depth)
        a = self.value(dtype, depth)
        if dtypes.is_int(base):
            return self._integer_call(a, dtype, depth)
        one = self.every(Const(1.0, base), lanes)
        size = Call("abs", (a,), dtype)
        inexact = ("exp", "log", "rsqrt", "tanh", "sigmoid", "erf", "pow", *(3 * ("fma",)), "sin", "cos", "atan",
                   "library")  # fmt: skip
        name = self.pick(inexact if not self.exact and self.chance(2) else (*EXACT_CALLS, "fmod"))
        if name == "library":
            return self._library_call(a, one, dtype)
        if name == "copysign":  # of a zero, whose sign decides nothing elsewhere, it would be all
            return Call(name, (a, Binary("+", size, one)), dtype)
        if name == "fmod":
            return Call(name, (a, self.divisor(dtype, depth)), dtype)
        if name in ("log", "rsqrt"):
            return Call(name, (Binary("+", size, one),), dtype)
        if name == "pow":
            return Call(name, (Binary("+", size, one), self.every(Const(0.5, base), lanes)), dtype)
        if name == "fma":
            name = "multiply_accumulate" if self.chance(2) else name
            return Call(name, (a, self.value(dtype, depth), self.value(dtype, depth)), dtype)
        if name == "exp":
            return Call(name, (Binary("min", a, one),), dtype)
        if name in ("sin", "cos"):  # of large angles the last digit decides
            return Call(name, (Binary("min", size, one),), dtype)
        return Call(name, (size if name == "sqrt" else a,), dtype)

    def _library_call(self, a: Expr, one: Expr, dtype: str) -> Expr:
        """A function of the C library, of what lies in its domain and where the last digit decides little."""
        name = self.pick(LIBRARY_CALLS)
        small = Binary("min", Call("abs", (a,), dtype), one)
        if name in ("atan2", "hypot"):
            return Call(name, (small, one), dtype)
        if name in ("asin", "acos", "atanh"):
            half = self.every(Const(0.5, dtypes.element(dtype)), dtypes.lanes(dtype))
            return Call(name, (Binary("*", small, half),), dtype)
        if name in ("log2", "log10", "acosh"):
            return Call(name, (Binary("+", Binary("+", small, one), one),), dtype)
        return Call(name, (small,), dtype)

    def _integer_call(self, a: Expr, dtype: str, depth: int) -> Expr:
        """A function of integers."""
        base, lanes = dtypes.split_dtype(dtype)
        name = self.pick(("abs", *BIT_CALLS, *SHIFT_CALLS, *TRUNCATED_CALLS))
        if name == "abs":
            return Call(name, (a,), dtype)
        if name in TRUNCATED_CALLS:
            return Call(name, (a, self.divisor(dtype, depth)), dtype)
        if name in SHIFT_CALLS and self.chance(2):
            return Call(name, (a, self.every(Const(self.number(0, dtypes.bits(base)), base), lanes)), dtype)
        if name in BIT_CALLS and self.chance(3):
            mask = Const((1 << self.number(1, dtypes.bits(base) - 1)) - 1, base)
            return Call(name, (a, self.every(mask, lanes)), dtype)
        return Call(name, (a, self.value(dtype, depth)), dtype)

    def _bits(self, dtype: str, depth: int) -> Expr:
        """The bits of an integer for a number, or of a float without NaN, whose bits are not those of others."""
        base, lanes = dtypes.split_dtype(dtype)
        same = [t for t in dtypes.SCALAR_TYPES if dtypes.bits(t) == dtypes.bits(base) and dtypes.is_int(t)]
        return Call("reinterpret", (self.value(dtypes.with_lanes(self.pick(same), lanes), depth),), dtype)

    def _conditional(self, dtype: str, depth: int) -> Expr:
        if self.chance(4):
            return self._masked(dtype, depth)
        guarded = self._guarded(dtype) if self.chance(2) else None
        if guarded is not None:
            return guarded
        return Call("if_then_else", (self.certainly(), self.value(dtype, depth), self.value(dtype, depth)), dtype)

    def _guarded(self, dtype: str) -> Expr | None:
        """A load that is in bounds only where its condition holds."""
        known = self.inputs if self.certain else self.buffers
        found = [
            (b, v) for b in known for v, e in self.extents.items()
            if b.dtype == dtype and b.shape and b.shape[0] >= e > 1 and v.dtype == dtypes.INDEX
        ]  # fmt: skip
        if not found:
            return None
        buffer, var = self.pick(found)
        shifted = Binary("-", var, Const(1))
        indices = (shifted, *(self.index(e, 1) for e in buffer.shape[1:]))
        return Call("if_then_else", (Binary("<=", Const(1), var), Load(buffer, indices), self.leaf(dtype)), dtype)

    def _select(self, dtype: str, depth: int) -> Expr:
        if self.chance(4):
            return self._shuffle(dtype, depth)
        lanes = dtypes.lanes(dtype)
        with self.surely():
            cond = self.condition(lanes if self.chance(2) else 1, depth)
        return Select(cond, self.value(dtype, depth), self.value(dtype, depth))

    def _masked(self, dtype: str, depth: int) -> Expr:
        """A load under a condition, of all lanes or of each."""
        base, lanes = dtypes.split_dtype(dtype)
        load = self.load(base, lanes)
        if load is None:
            return self.value(dtype, depth)
        if dtypes.lanes(load.buffer.dtype) == 1 and self.chance(2):
            return Call("load_within", (load,), dtype)
        by_lane = lanes > 1 and dtypes.lanes(load.buffer.dtype) == 1 and self.chance(2)
        with self.surely():
            cond = self.condition(lanes if by_lane else 1, depth)
        other = (self.value(dtype, depth),) if self.chance(2) else ()
        return Call("masked_load", (cond, load, *other), dtype)

    def _shuffle(self, dtype: str, depth: int) -> Expr:
        """Lanes of one or two values of this element type."""
        base, lanes = dtypes.split_dtype(dtype)
        width = self.pick((*LANES[:3], 1))
        vectors = tuple(self.value(dtypes.with_lanes(base, width), depth) for _ in range(self.number(1, 2)))
        return Shuffle(vectors, tuple(Const(self.number(0, width * len(vectors) - 1)) for _ in range(lanes)))

    def _cast(self, dtype: str, depth: int) -> Expr:
        source = dtypes.with_lanes(self.pick(dtypes.SCALAR_TYPES), dtypes.lanes(dtype))
        return Cast(dtype, self.value(source, depth))

    def _let(self, dtype: str, depth: int) -> Expr:
        kind = self.dtype() if self.chance(2) else dtype
        var = Var(self.name("y"), kind)
        value = self.value(kind, depth)
        self.lets.append(var)
        body = self.value(dtype, depth)
        self.lets.remove(var)
        return LetExpr(var, value, body)


@st.composite
def expressions(draw: Any, exact: bool = False) -> tuple[Expr, dict[Var, int], list[Buffer]]:
    """An expression, the extents of its variables that count, and the buffers that it reads; others are scalars."""
    return drawn(ExpressionMaker(draw, exact))


def drawn(maker: ExpressionMaker) -> tuple[Expr, dict[Var, int], list[Buffer]]:
    """What `expressions` draws, by a given maker."""
    for _ in range(maker.number(1, 3)):
        maker.extents[Var(maker.name("i"))] = maker.number(1, 9)
    for _ in range(maker.number(1, 3)):
        shape = maker.pick(((8,), (4, 4), (2, 3, 2)))
        buffer = Buffer(maker.name("A"), shape, maker.dtype(vectors=True))
        maker.buffers.append(buffer)
        maker.inputs.append(buffer)
    maker.lets += [Var(maker.name("s"), maker.dtype()) for _ in range(maker.number(0, 2))]
    return maker.value(maker.dtype(vectors=True)), maker.extents, maker.buffers
