"""Sums of products, and the largest or least of a window, by NumPy: what large programs spend most of their time on.

A block that computes ``y[s] op= a[f(s, r)] * b[g(s, r)]``, with indices that are affine in the digits of its iterators,
is one product of matrices over views of its operands: digits that both factors and the result have are a batch, those
that the result lacks are summed.  It shares no code with what kernels are compiled by, and takes a small part of the
time of a compiled scalar loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir.arith.linear import linear_form
from ...ir.expr import Const, Expr, Load, Var, as_int
from ...ir.layout.digits import digit
from ...ir.stmt import Block, For, Stmt, Store
from ...space.design.program import product_factors
from ...space.errors import ScheduleError
from ...space.primitives.reduction import update_of

MOST_ELEMENTS = 1 << 26
"""Of the factors and the product, as matrices, that are made at once: half a gigabyte."""
REDUCTIONS = {"+": np.add, "max": np.maximum, "min": np.minimum}

Array = NDArray[Any]
Memory = Mapping[str, Array]
Letter = tuple[Var, int]
"""A digit of an iterator: the values of ``v // low`` up to the next digit's."""
Letters = tuple[Letter, ...]


@dataclass(frozen=True)
class View:
    """The elements of a buffer that an access touches: one axis for each of `letters`, with strides in elements."""

    buffer: str
    offset: int
    letters: Letters
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, memory: Memory) -> Array:
        flat = memory[self.buffer].reshape(-1)
        steps = [stride * flat.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat[self.offset :], self.shape, steps)

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Contraction:
    """A block that NumPy computes: `op` combines the product of `factors` over what `out` lacks, from `start` on."""

    out: View
    factors: tuple[View, ...]
    op: str
    start: float

    def run(self, memory: Memory) -> None:
        """Store the results."""
        letters = self.out.letters
        if len(self.factors) == 1:
            found = _reduced(self.factors[0].of(memory), self.factors[0].letters, letters, self.op)
        else:
            a, b = self.factors
            found = _product(a.of(memory), a.letters, b.of(memory), b.letters, letters)
        self.out.of(memory)[...] = REDUCTIONS[self.op](found, self.start)


def contraction_of(nest: Stmt) -> Contraction | None:
    """A nest as a contraction of floats, None where it is something else."""
    extents: dict[Var, int] = {}
    while isinstance(nest, For):
        if not isinstance(nest.extent, Const):
            return None
        extents[nest.var] = as_int(nest.extent)
        nest = nest.body
    if not isinstance(nest, Block) or not _is_plain(nest, extents):
        return None
    try:
        store, op, value = update_of(nest)
    except ScheduleError:
        return None
    init = nest.init
    starts = isinstance(init, Store) and init.buffer == store.buffer and init.indices == store.indices
    if not starts or not isinstance(init, Store) or not isinstance(init.value, Const) or op not in REDUCTIONS:
        return None
    parts = product_factors(value) if op == "+" else [value]
    accesses: list[Load | Store] = [store, *(part for part in parts if isinstance(part, Load))]
    digits = _digits([index for access in accesses for index in access.indices], nest)
    if digits is None or len(accesses) != len(parts) + 1 or len(parts) > 2:
        return None
    views = [view for view in (_view(access, digits) for access in accesses) if view is not None]
    if len(views) != len(accesses):
        return None
    out, factors = views[0], tuple(views[1:])
    seen = {letter for view in factors for letter in view.letters}
    reduced = {item.var for item in nest.reduce}
    lacking = set(digits) - set(out.letters)
    if seen != set(digits) or any(var not in reduced for var, _ in lacking) or not _is_injective(out):
        return None  # a spatial iterator that the result lacks begins anew at each of its points
    if any(var in reduced for var, _ in out.letters):
        return None
    if sum(view.size for view in views) > MOST_ELEMENTS or any(view.buffer == out.buffer for view in factors):
        return None
    return Contraction(out, factors, op, float(init.value.value))


def _is_plain(block: Block, extents: Mapping[Var, int]) -> bool:
    """Whether a block runs once for each point of its loops, each of which is an iterator."""
    bound = [item.binding for item in block.iters]
    whole = all(isinstance(b, Var) and extents.get(b) == i.extent for b, i in zip(bound, block.iters, strict=True))
    kinds = {item.kind for item in block.iters} <= {"spatial", "reduce"}
    always = isinstance(block.predicate, Const) and bool(block.predicate.value)
    return bool(bound) and whole and kinds and always and len(set(bound)) == len(bound) == len(extents)


def _digits(indices: Sequence[Expr], block: Block) -> dict[Letter, int] | None:
    """How many values each digit of the iterators has, cut where an index does; None for what is no digit.

    An iterator with one value has none: it is 0 wherever it stands.
    """
    extents = {item.var: item.extent for item in block.iters}
    cuts: dict[Var, set[int]] = {var: {1, extent} for var, extent in extents.items()}
    for index in indices:
        for atom in linear_form(index)[0]:
            one = digit(atom)
            if one is None or not isinstance(one.of, Var) or one.of not in extents or one.offset:
                return None
            inside = {low for low in (one.low, one.high) if low is not None and low < extents[one.of]}
            cuts[one.of] |= inside
    edges = {var: sorted(found) for var, found in cuts.items()}
    if any(high % low for found in edges.values() for low, high in pairwise(found)):
        return None
    return {(var, low): high // low for var, found in edges.items() for low, high in pairwise(found)}


def _view(access: Load | Store, digits: Mapping[Letter, int]) -> View | None:
    """The view of an access to float64 whose indices, affine in digits, stay in the buffer; else None."""
    if access.buffer.dtype != "float64":
        return None
    offset, strides = 0, dict.fromkeys(digits, 0)
    for index, step, size in zip(access.indices, access.buffer.strides, access.buffer.shape, strict=True):
        terms, constant = linear_form(index)
        low = high = constant
        for atom, factor in terms.items():
            one = digit(atom)
            assert one is not None
            for (var, place), count in digits.items():
                if var == one.of and one.low <= place and (one.high is None or place < one.high):
                    change = factor * (place // one.low)
                    strides[var, place] += change * step
                    low, high = low + min(0, change * (count - 1)), high + max(0, change * (count - 1))
        if low < 0 or high >= size:
            return None
        offset += constant * step
    letters = tuple(letter for letter in digits if strides[letter])
    return View(
        access.buffer.name, offset, letters, tuple(digits[v] for v in letters), tuple(strides[v] for v in letters)
    )


def _is_injective(view: View) -> bool:
    """Whether no two points of a view are one element: each stride is beyond all that smaller ones reach."""
    reach = 0
    for stride, extent in sorted((abs(s), e) for s, e in zip(view.strides, view.shape, strict=True) if e > 1):
        if stride <= reach:
            return False
        reach += stride * (extent - 1)
    return True


def _reduced(a: Array, letters: Letters, wanted: Letters, op: str) -> Array:
    """The factor, combined over the letters that are not `wanted`."""
    order = [letters.index(v) for v in wanted if v in letters]
    rest = tuple(range(len(order), len(letters)))
    moved = a.transpose(*order, *(k for k, v in enumerate(letters) if v not in wanted))
    found: Array = REDUCTIONS[op].reduce(moved, axis=rest) if rest else moved
    shape = [a.shape[letters.index(v)] if v in letters else 1 for v in wanted]
    return found.reshape(shape)


def _product(a: Array, a_letters: Letters, b: Array, b_letters: Letters, wanted: Letters) -> Array:
    """The sum of products over the letters that are not `wanted`, as one product of matrices for each of a batch."""
    both = set(a_letters) & set(b_letters)
    kept = set(wanted) | both
    a, a_letters = _without(a, a_letters, kept)
    b, b_letters = _without(b, b_letters, kept)
    sizes = dict(zip(a_letters, a.shape, strict=True)) | dict(zip(b_letters, b.shape, strict=True))
    batch = [v for v in wanted if v in both]
    summed = [v for v in a_letters if v in both and v not in wanted]
    rows = [v for v in wanted if v in a_letters and v not in both]
    columns = [v for v in wanted if v in b_letters and v not in both]

    def matrices(array: Array, letters: Letters, first: list[Letter], second: list[Letter]) -> Array:
        moved = array.transpose([letters.index(v) for v in (*batch, *first, *second)])
        return moved.reshape([prod(sizes[v] for v in group) for group in (batch, first, second)])

    if rows or columns:
        found = matrices(a, a_letters, rows, summed) @ matrices(b, b_letters, summed, columns)
    else:
        one, other = matrices(a, a_letters, [], summed), matrices(b, b_letters, summed, [])
        found = np.einsum("bik,bkj->b", one, other)
    given = [*batch, *rows, *columns]
    shaped: Array = found.reshape([sizes[v] for v in given])
    return shaped.transpose([given.index(v) for v in wanted])


def _without(array: Array, letters: Letters, kept: set[Letter]) -> tuple[Array, Letters]:
    """A factor, summed over what it alone has and the result lacks."""
    alone = tuple(k for k, v in enumerate(letters) if v not in kept)
    return (array.sum(axis=alone) if alone else array), tuple(v for v in letters if v in kept)
