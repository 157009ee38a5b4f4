"""Programs of some shapes as one program of all shapes.

The programs that a builder makes of one operator for several shapes are one text with other numbers in it.  What
differs becomes an expression of the extents that the operator reads, as their least general generalisation has it: G.
Plotkin, A Note on Inductive Generalization, 1970.  What is proven of the result is proven for all sizes of its ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import InternalError
from ...ir import dtypes
from ...ir.expr import Binary, Buffer, Cast, Const, Expr, Extent, Var, all_of, const, in_type, substitute
from ...ir.node import Node, rebuild, remembered
from ...ir.ranges import fixed
from ...ir.size_ranges import Range
from ...ir.stmt import Assume, Block, Iter, PrimFunc, fresh, names, seq
from .fitting import Numbers, Undetermined, fitted, values_at

Shape = tuple[Extent, ...]


class Differs(InternalError):
    """Programs of several shapes are not one program."""


@dataclass(frozen=True)
class Grid:
    """All values of the parameters of a network, each a column of numbers by its name."""

    columns: Mapping[str, Numbers]

    def values(self, extent: Extent) -> Numbers:
        """The values of an extent, one for each row."""
        count = len(next(iter(self.columns.values())))
        return np.broadcast_to(values_at(extent, self.columns), (count,))


@dataclass(frozen=True)
class Lifted:
    """A program of all shapes; `sizes` are the extents that its sizes are, over the parameters of the network."""

    func: PrimFunc
    sizes: Mapping[str, Expr]
    is_exact: bool
    """Whether it is the programs, and not one over longer constants than they have."""

    def is_at(self, instance: PrimFunc, grid: Grid, row: int) -> bool:
        """Whether the program of one more row is what this one is there."""
        if not self.is_exact:
            return False
        values = {v: int(grid.values(self.sizes[v.name])[row]) for v in self.func.sizes}
        return fixed(self.func, values) == instance

    def shape(self, number: int) -> Shape:
        """The extents of a parameter over the parameters of the network."""
        return tuple(over(extent, self.sizes) for extent in self.func.buffers[number].extents)


def over(extent: Extent, meaning: Mapping[str, Expr]) -> Extent:
    """An extent over sizes as one over what these are."""
    if not isinstance(extent, Expr):
        return extent
    found: Expr = substitute(extent, {Var(name): expr for name, expr in meaning.items()})
    return int(found.value) if isinstance(found, Const) else found


def lifted(instances: Sequence[PrimFunc], given: Sequence[Shape | None], grid: Grid, rows: Sequence[int]) -> Lifted:
    """One program that is each of the `instances` where the parameters of the network are those of a row of the grid.

    `given` are the extents of the parameters over those of the network, None for what the program writes.  Constants
    have numbers.  Raises Differs, and Undetermined for a parameter of the network.
    """
    return _Lifting(instances, given, grid, rows).result()


def lifted_shapes(
    instances: Sequence[PrimFunc], given: Sequence[Shape | None], grid: Grid, rows: Sequence[int]
) -> tuple[Shape, ...]:
    """The extents of all parameters over those of the network.  Raises as `lifted` does."""
    made = _Lifting(instances, given, grid, rows)
    return tuple(tuple(over(extent, made.sizes) for extent in buffer.extents) for buffer in made.params())


def of_parameters(numbers: Sequence[Extent], grid: Grid, rows: Sequence[int]) -> Extent:
    """An extent with these numbers over the parameters of the network.  Raises Differs and Unlooked."""
    known = {name: [int(column[row]) for row in rows] for name, column in grid.columns.items()}
    possible = {name: np.unique(column) for name, column in grid.columns.items()}
    whole = [number for number in numbers if isinstance(number, int)]
    try:
        found = fitted(whole, known, possible)
    except Undetermined as error:
        raise Unlooked(int(np.flatnonzero(grid.columns[error.name] == error.value)[0])) from None
    if found is None:
        raise Differs(f"an extent of its result is {_unlike(whole, grid, rows)}")
    return found


def _unlike(numbers: Sequence[int], grid: Grid, rows: Sequence[int]) -> str:
    """What is said of numbers that no expression gives: ``1 where n = 2, and 5 where n = 3; no sum, ...``."""
    other = next(at for at, number in enumerate(numbers) if number != numbers[0])
    shown = [
        f"{numbers[at]} where " + ", ".join(f"{name} = {column[rows[at]]}" for name, column in grid.columns.items())
        for at in (0, other)
    ]
    names = " and ".join(grid.columns)
    return f"{shown[0]}, and {shown[1]}; no sum, product, `//` or `%` of {names} was found that is so at all sizes"


def may_be_lifted(instances: Sequence[PrimFunc]) -> bool:
    """Whether programs are one text but for numbers."""
    first, *others = (_without_numbers(func) for func in instances)
    return all(other == first for other in others)


@remembered
def _without_numbers(node: Any) -> Any:
    """A program with all integers, and floats that are some, as one number."""
    if isinstance(node, Buffer):
        return replace(node, extents=(0,) * node.rank)
    below = rebuild(node, _without_numbers)
    if isinstance(below, Iter):
        return Iter(below.var, 0, below.kind, below.binding)
    if isinstance(below, Const) and not isinstance(below.value, bool) and below.value == below.value // 1:
        return const(0, below.dtype)
    return below


class _Lifting:
    """Several programs that become one."""

    def __init__(
        self, instances: Sequence[PrimFunc], given: Sequence[Shape | None], grid: Grid, rows: Sequence[int]
    ) -> None:
        self.instances, self.given, self.grid, self.rows = instances, given, grid, rows
        self.taken = {name for func in instances for name in (*names(func), *(p.name for p in func.params))}
        self.sizes: dict[str, Expr] = {}
        self.known: dict[str, list[int]] = {}
        self.possible: dict[str, Numbers] = {}
        self.columns: dict[str, Numbers] = {}
        self.constants: dict[str, Shape] = {}
        self.found: dict[tuple[int, ...], Extent] = {}
        for number, shape in enumerate(given):
            buffers = [func.buffers[number] for func in instances]
            is_fixed = shape is not None and not any(isinstance(extent, Expr) for extent in shape)
            if shape is not None and is_fixed and any(buffer.extents != shape for buffer in buffers):
                self.constants[buffers[0].name] = shape
            for extent in shape or ():
                if isinstance(extent, Expr):
                    self._size(extent)

    def _size(self, extent: Expr) -> None:
        """Make an extent that is read a size of the program, unless others tell it."""
        values = self.grid.values(extent)
        at = [int(values[row]) for row in self.rows]
        if len(set(at)) == 1 and (apart := np.flatnonzero(values != at[0])).size:
            raise Unlooked(int(apart[0]))
        if len(set(at)) == 1 or extent in self.sizes.values():
            return
        try:
            told = fitted(at, self.known, self.possible) if self.known else None
        except Undetermined:
            told = None
        if told is not None and np.array_equal(values_at(told, self.columns), values):
            return
        name = fresh(f"size{len(self.sizes)}", self.taken)
        self.taken.add(name)
        self.sizes[name], self.known[name], self.columns[name] = extent, at, values
        self.possible[name] = np.unique(values)

    def result(self) -> Lifted:
        first, params = self.instances[0], self.params()
        body = self._one([func.body for func in self.instances])
        assert isinstance(body, Block)
        func = PrimFunc(first.name, params, replace(body, body=seq([*self._assumed(), body.body])))
        found = Lifted(func, dict(self.sizes), not self.constants)
        for instance, row in zip(self.instances, self.rows, strict=True):
            if found.is_exact and not found.is_at(instance, self.grid, row):
                raise Differs("its program of all shapes is another one at some of them")
        return found

    def params(self) -> tuple[Buffer, ...]:
        """The parameters alone."""
        found = [self._one(list(items)) for items in zip(*(func.params for func in self.instances), strict=True)]
        return tuple(item for item in found if isinstance(item, Buffer))

    def _assumed(self) -> list[Assume]:
        """What is known of the sizes: their ranges, and what divides them."""
        conditions: list[Expr] = []
        for name, possible in self.possible.items():
            numbers = range_of(possible)
            size = Var(name)
            conditions += [Binary("<=", const(numbers.low), size), Binary("<=", size, const(numbers.high))]
            if numbers.step > 1:
                conditions.append(Binary("==", Binary("%", size, const(numbers.step)), const(0)))
        return [Assume(all_of(conditions))] if conditions else []

    def _one(self, nodes: Sequence[Any]) -> Any:
        """What nodes of all programs are instances of."""
        first = nodes[0]
        if not self.constants and all(node is first or node == first for node in nodes[1:]):
            return first
        if any(type(node) is not type(first) for node in nodes):
            raise Differs("it is another program for some shapes")
        if isinstance(first, Buffer):
            return self._buffer(nodes)
        if isinstance(first, Const):
            return self._number(nodes)
        if isinstance(first, Iter):
            limit = self._extent([node.limit for node in nodes])
            binding = None if first.binding is None else self._one([node.binding for node in nodes])
            return Iter(first.var, limit, first.kind, binding)
        if not isinstance(first, Node):
            if any(node != first for node in nodes):
                raise Differs(f"{first!r} of one shape is another of others")
            return first
        found = []
        for field in first.__match_args__:
            values = [getattr(node, field) for node in nodes]
            if isinstance(values[0], tuple):
                if len({len(value) for value in values}) > 1:
                    raise Differs("it has other parts for some shapes")
                found.append(tuple(self._one(list(items)) for items in zip(*values, strict=True)))
            else:
                found.append(self._one(values))
        return type(first)(*found)

    def _buffer(self, nodes: Sequence[Buffer]) -> Buffer:
        first = nodes[0]
        if len({replace(node, extents=()) for node in nodes}) > 1 or len({node.rank for node in nodes}) > 1:
            raise Differs(f"the buffer `{first.name}` is of another kind for each shape")
        if first.name in self.constants:
            return replace(first, extents=self.constants[first.name])
        extents = [self._extent([node.extents[dim] for node in nodes]) for dim in range(first.rank)]
        return replace(first, extents=tuple(extents))

    def _extent(self, numbers: Sequence[Extent]) -> Extent:
        found = self._fitted([int(number) for number in numbers if not isinstance(number, Expr)])
        return int(found.value) if isinstance(found, Const) else found

    def _number(self, nodes: Sequence[Const]) -> Expr:
        first = nodes[0]
        if all(node == first for node in nodes):
            return first
        values = [node.value for node in nodes]
        if len({node.dtype for node in nodes}) > 1 or any(isinstance(v, bool) or v != int(v) for v in values):
            raise Differs(f"the number {first.value} is another one for each shape, and no extent")
        found = self._fitted([int(value) for value in values])
        assert isinstance(found, Expr)
        return Cast(first.dtype, found) if dtypes.is_float(first.dtype) else in_type(found, first.dtype)

    def _fitted(self, numbers: Sequence[int]) -> Extent:
        key = tuple(numbers)
        if key in self.found:
            return self.found[key]
        try:
            found = fitted(numbers, self.known, self.possible)
        except Undetermined as error:
            row = int(np.flatnonzero(self.columns[error.name] == error.value)[0])
            raise Unlooked(row) from None
        if found is None:
            raise Differs(f"a number in it is {_unlike(numbers, self.grid, self.rows)}")
        self.found[key] = found
        return found


class Unlooked(InternalError):
    """What is known does not tell an expression; what it is in a `row` of the grid does."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def range_of(values: Numbers) -> Range:
    """The least range that has all values."""
    low, high = int(values.min()), int(values.max())
    step = int(np.gcd.reduce(values)) or 1
    return Range(low, high, step)
