"""Layouts: maps from logical to physical indices.

An `IndexMap` sends the logical index ``(i, j, ...)`` of a buffer to the physical
one.  It is written as a lambda, ``lambda i, j: [i // 4, j, i % 4]``, in which
`AXIS_SEPARATOR` splits the physical dimensions into groups that are flattened
apart.  A layout must be injective; physical elements without a preimage are padding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, TypeVar

from ...errors import ProgramError
from ...numerals import as_whole
from .. import dtypes
from ..affine.wrapping import never_wraps
from ..arith.intervals import Facts
from ..arith.lattice import parts
from ..arith.simplify import simplify, simplify_index
from ..caches import cached
from ..expr import FALSE, Expr, ExprLike, Var, as_expr, binary, substitute
from ..node import walk
from ..statements import fresh
from ..text import expr_text
from ..tracing import structural, traced
from .components import Component, components_of
from .digits import digit
from .index_text import AXIS_SEPARATOR, AxisSeparator, evaluate, parse_lambda

Shape = tuple[int, ...]
T = TypeVar("T")


class IndexMapError(ProgramError, ValueError):
    """The map cannot serve as a layout of the given shape."""


@dataclass(frozen=True)
class Predicate:
    """A condition over physical indices, true on padding."""

    variables: tuple[Var, ...]
    condition: Expr

    def evaluate(self, point: Sequence[int] | Mapping[str, int]) -> Any:
        """The truth at a physical index: a bool, or an array of them if the coordinates are arrays."""
        value = evaluate(self.condition, _environment(self.variables, point))
        return bool(value) if isinstance(value, bool) or getattr(value, "ndim", 0) == 0 else value

    @structural
    def at(self, indices: Sequence[ExprLike]) -> Expr:
        """The condition for these index expressions."""
        result: Expr = substitute(self.condition, dict(zip(self.variables, map(as_expr, indices), strict=True)))
        return result

    def __str__(self) -> str:
        return expr_text(self.condition)


@dataclass(frozen=True)
class IndexMap:
    """``variables -> indices``; `axis_separators` are positions in the indices."""

    variables: tuple[Var, ...]
    indices: tuple[Expr, ...]
    axis_separators: tuple[int, ...] = ()

    @staticmethod
    def from_func(fn: Callable[..., Any], ndim: int | None = None) -> IndexMap:
        """The map that `fn` computes on index variables; `ndim` is needed for ``*indices``."""
        if not callable(fn):
            raise IndexMapError(f"an index map is a function of the indices or its text, but got {fn!r}")
        names = tuple(Var(name) for name in _parameter_names(fn, ndim))
        keywords = [p.name for p in inspect.signature(fn).parameters.values() if p.kind is p.KEYWORD_ONLY]
        plain = names[: len(names) - len(keywords)]
        result = traced(fn, *plain, **{v.name: v for v in names[len(plain) :]})
        items = list(result) if isinstance(result, (list, tuple)) else [result]
        return _from_items(names, items)

    @staticmethod
    def parse(text: str) -> IndexMap:
        """The inverse of `text`.  Raises ValueError; nothing is evaluated."""
        names, items = parse_lambda(text)
        return _from_items(names, items)

    @staticmethod
    def make(value: IndexMap | str | Callable[..., Any], ndim: int | None = None) -> IndexMap:
        """An index map from a map, its text, or a function; with `ndim`, one that takes so many indices."""
        if isinstance(value, IndexMap):
            made = value
        else:
            made = IndexMap.parse(value) if isinstance(value, str) else IndexMap.from_func(value, ndim)
        if ndim is not None and made.ndim != ndim:
            raise IndexMapError(f"`{made.text}` takes {made.ndim} indices, but the buffer has {ndim} dimensions")
        return made

    @staticmethod
    def identity(ndim: int) -> IndexMap:
        names = tuple(Var(f"i{k}") for k in range(ndim))
        return IndexMap(names, names)

    @property
    def ndim(self) -> int:
        """Number of logical dimensions."""
        return len(self.variables)

    @property
    def text(self) -> str:
        """``lambda i, j: [i // 4, j, i % 4]``."""
        items = [expr_text(e) for e in self.indices]
        for count, position in enumerate(self.axis_separators):
            items.insert(position + count, repr(AXIS_SEPARATOR))
        names = ", ".join(v.name for v in self.variables)
        return f"lambda {names}: [{', '.join(items)}]" if names else f"lambda: [{', '.join(items)}]"

    def __repr__(self) -> str:
        """The map as it is written."""
        return f"<IndexMap {self.text}>"

    def __str__(self) -> str:
        return self.text

    def is_identity(self, ndim: int | None = None) -> bool:
        """Whether every index stays where it is, without axis separators."""
        return self.indices == self.variables and not self.axis_separators and ndim in (None, self.ndim)

    @structural
    def map_indices(self, indices: Sequence[ExprLike]) -> tuple[Expr, ...]:
        """The physical index expressions of a logical index."""
        if len(indices) != self.ndim:
            raise IndexMapError(f"`{self.text}` takes {self.ndim} indices, but got {len(indices)}")
        if strange := [index for index in indices if isinstance(index, str)]:
            raise IndexMapError(f"an index is a number or an expression, but got {strange[0]!r}")
        mapping = {v: as_expr(i) for v, i in zip(self.variables, indices, strict=True)}
        return tuple(substitute(e, mapping) for e in self.indices)

    def map_point(self, point: Sequence[Any] | Mapping[str, Any]) -> tuple[Any, ...]:
        """The physical index of a logical one; coordinates are integers, or integer arrays that broadcast."""
        env = _environment(self.variables, point)
        return tuple(evaluate(e, env) for e in self.indices)

    @structural
    def map_shape(self, shape: Sequence[int]) -> Shape:
        """The least extents, counted from 0, that hold the image of a buffer of `shape`."""
        self._check_shape(shape)
        return _map_shape(self, tuple(shape))

    def check_injective(self, shape: Sequence[int]) -> None:
        """Raises `IndexMapError` with two indices of `shape` that have the same image."""
        self._check_shape(shape)
        pair = _collision(self, tuple(shape))
        if pair is not None:
            a, b = (tuple(point[v.name] for v in self.variables) for point in pair)
            raise IndexMapError(
                f"the map `{self.text}` is not injective on shape {_show(shape)}: the indices {_show(a)} and "
                f"{_show(b)} both map to {_show(self.map_point(a))}"
            )

    def is_injective(self, shape: Sequence[int]) -> bool:
        self._check_shape(shape)
        return _collision(self, tuple(shape)) is None

    @structural
    def inverse(self, shape: Sequence[int]) -> IndexMap:
        """The map back from the physical index.  Raises `IndexMapError` if `shape` leaves padding."""
        physical = self.map_shape(shape)
        inverse, padding = self.non_surjective_inverse(shape)
        if padding.condition != FALSE:
            raise IndexMapError(
                f"the map `{self.text}` of shape {_show(shape)} leaves padding in {_show(physical)} where `{padding}`; "
                f"`non_surjective_inverse` gives the map and this predicate"
            )
        return inverse

    @structural
    def non_surjective_inverse(
        self, shape: Sequence[int], physical_shape: Sequence[int] | None = None
    ) -> tuple[IndexMap, Predicate]:
        """The map back, valid on images, and the predicate of the physical indices that are none (padding)."""
        least = self.map_shape(shape)
        physical = least if physical_shape is None else tuple(physical_shape)
        if len(physical) != len(least) or any(p < m for p, m in zip(physical, least, strict=True)):
            raise IndexMapError(
                f"the physical shape {_show(physical)} must hold the image of shape {_show(shape)} under "
                f"`{self.text}`, which needs at least {_show(least)}"
            )
        self.check_injective(shape)
        return _inverse(self, tuple(shape), physical)

    @structural
    def compose(self, first: IndexMap) -> IndexMap:
        """``x -> self(first(x))``: the layout after `first` and then `self`, whose axis separators it has.

        The separators of `first` group axes that `self` maps on, so they go, as in a buffer
        that is transformed twice.
        """
        if len(first.indices) != self.ndim:
            count = len(first.indices)
            raise IndexMapError(f"`{self.text}` takes {self.ndim} indices, but `{first.text}` gives {count}")
        indices = tuple(simplify_index(e) for e in self.map_indices(first.indices))
        return IndexMap(first.variables, indices, self.axis_separators)

    def keeps_memory_order(self, shape: Sequence[int], physical_shape: Sequence[int] | None = None) -> bool:
        """Whether the map is a reshape: row-major memory of `shape` is that of the image, element for element.

        So are digits in place, ``[i // 4, i % 4, j]`` where 4 divides the extent, and dimensions that are fused,
        ``[i*8 + j]``.  False where it cannot be proven.
        """
        self._check_shape(shape)
        physical = self.map_shape(shape) if physical_shape is None else tuple(physical_shape)
        if self.axis_separators or len(physical) != len(self.indices) or prod(physical) != prod(shape):
            return False
        return _is_reshape(self, tuple(shape), physical)

    def _check_shape(self, shape: Sequence[int]) -> None:
        if any(type(extent) is not int and as_whole(extent) is None for extent in shape):
            raise IndexMapError(f"a shape is a sequence of whole numbers, but got {shape!r}")
        if len(shape) != self.ndim:
            raise IndexMapError(f"`{self.text}` takes {self.ndim} indices, but got the shape {_show(shape)}")
        if any(extent < 1 for extent in shape):
            raise IndexMapError(f"a shape needs extents of at least 1, but got {_show(shape)}")


def _show(values: Sequence[Any]) -> str:
    return f"[{', '.join(str(v) for v in values)}]"


def _environment(names: Sequence[Var], point: Sequence[Any] | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(point, Mapping):
        return point
    return {v.name: value for v, value in zip(names, point, strict=True)}


def _parameter_names(fn: Callable[..., Any], ndim: int | None) -> list[str]:
    parameters = list(inspect.signature(fn).parameters.values())
    fixed = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
    if len(fixed) == len(parameters):
        return [p.name for p in parameters]
    if ndim is None:
        raise IndexMapError("a map with `*indices` needs `ndim`, the number of dimensions")
    names: list[str] = []
    for p in parameters:
        count = ndim - len(fixed)
        names += [f"{p.name}_{k}" for k in range(count)] if p.kind is p.VAR_POSITIONAL else [p.name]
    return names


def _from_items(names: tuple[Var, ...], items: Sequence[Any]) -> IndexMap:
    indices: list[Expr] = []
    separators: list[int] = []
    for item in items:
        if isinstance(item, AxisSeparator):
            separators.append(len(indices))
        elif isinstance(item, (Expr, int)) and not isinstance(item, bool):
            indices.append(_integer(as_expr(item)))
        else:
            raise IndexMapError(f"an index map returns index expressions, but got {item!r}")
    if not indices:
        raise IndexMapError("an index map needs at least one index")
    if any(not 0 < s < len(indices) for s in separators) or len(set(separators)) != len(separators):
        raise IndexMapError("an axis separator stands between two indices, and only once")
    return IndexMap(names, tuple(indices), tuple(separators))


def _integer(index: Expr) -> Expr:
    """An index, which must be computed from integers.  Raises IndexMapError."""
    if dtypes.is_bool(index.dtype):
        raise IndexMapError(f"an index must be an integer, not a condition, but got `{expr_text(index)}`")
    found = (n for n in walk(index) if isinstance(n, Expr))
    other = next((n for n in found if not dtypes.is_int(n.dtype) and not dtypes.is_bool(n.dtype)), None)
    if other is None:
        return index
    raise IndexMapError(
        f"an index must be an integer, but `{expr_text(index)}` is computed from `{expr_text(other)}`, "
        f"which is a {other.dtype}; // and % are the quotient and the rest"
    )


@cached(4096)
def _map_shape(index_map: IndexMap, shape: Shape) -> Shape:
    extents = [0] * len(index_map.indices)
    for part in _parts(index_map, shape):
        for position, (low, high) in zip(part.positions, _asked(index_map, part.intervals), strict=True):
            if low < 0:
                raise IndexMapError(
                    f"the map `{index_map.text}` of shape {_show(shape)} gives the negative index {low} "
                    f"in dimension {position}; add an offset"
                )
            extents[position] = high + 1
    return tuple(extents)


@cached(4096)
def _collision(index_map: IndexMap, shape: Shape) -> tuple[dict[str, int], dict[str, int]] | None:
    """Two logical points with one image; other variables than those of the culprit are 0."""
    for part in _parts(index_map, shape):
        pair = _asked(index_map, part.collision)
        if pair is not None:
            rest = {v.name: 0 for v in index_map.variables}
            return {**rest, **pair[0]}, {**rest, **pair[1]}
    return None


@cached(4096)
def _inverse(index_map: IndexMap, shape: Shape, physical: Shape) -> tuple[IndexMap, Predicate]:
    names = _physical_names(index_map)
    values: dict[Var, Expr] = {}
    padding: Expr = FALSE
    for part in _parts(index_map, shape):
        own = tuple(names[k] for k in part.positions)
        room = tuple(physical[k] for k in part.positions)
        values.update(zip(part.names, _asked(index_map, partial(part.inverse, own, room)), strict=True))
        for disjunct in parts(_asked(index_map, partial(part.padding, own, room)), "or"):
            padding = binary("or", padding, disjunct)
    back = IndexMap(names, tuple(simplify_index(values[v]) for v in index_map.variables))
    return back, Predicate(names, padding)


@cached(4096)
def _is_reshape(index_map: IndexMap, shape: Shape, physical: Shape) -> bool:
    """The offset of an element before and after: equal as linear forms in the ranges of the indices."""
    ranges = {v: (0, extent - 1) for v, extent in zip(index_map.variables, shape, strict=True)}
    before, after = _offset(index_map.variables, shape), _offset(index_map.indices, physical)
    return bool(simplify(after - before, ranges) == as_expr(0, before))


def _offset(indices: Sequence[Expr], shape: Shape) -> Expr:
    """The row-major position of an element."""
    total: Expr = as_expr(0)
    for index, extent in zip(indices, shape, strict=True):
        total = total * extent + index
    return total


def _parts(index_map: IndexMap, shape: Shape) -> list[Component]:
    facts = Facts({v: (0, extent - 1) for v, extent in zip(index_map.variables, shape, strict=True)})
    for position, index in enumerate(index_map.indices):
        if not never_wraps(index, facts):
            raise IndexMapError(
                f"what the map `{index_map.text}` computes in dimension {position} on shape {_show(shape)} may leave "
                f"64 bits, where indices wrap around; use smaller factors"
            )
    return components_of(index_map.variables, index_map.indices, shape)


def _asked(index_map: IndexMap, question: Callable[[], T]) -> T:
    """The answer, or the reason why there is none."""
    from ..affine.guard import NotAffine, Unknown

    try:
        return question()
    except NotAffine as err:
        raise IndexMapError(f"`{index_map.text}`: an index map uses + - * // % with constants, but {err}") from err
    except Unknown as err:
        raise IndexMapError(f"cannot decide about the map `{index_map.text}`: {err}; use a simpler map") from err


def _physical_names(index_map: IndexMap) -> tuple[Var, ...]:
    """Readable, unique names: ``i // 4`` is ``io``, ``i % 4`` is ``ii``."""
    taken: set[str] = set()
    names: list[Var] = []
    for position, index in enumerate(index_map.indices):
        name = fresh(_physical_name(index, position), taken)
        taken.add(name)
        names.append(Var(name))
    return tuple(names)


def _physical_name(index: Expr, position: int) -> str:
    found = digit(index)
    if found is None or not isinstance(found.of, Var):
        return f"a{position}"
    if found.low == 1:
        return found.of.name if found.high is None else f"{found.of.name}i"
    return f"{found.of.name}o" if found.high is None else f"{found.of.name}m"


__all__ = ["AXIS_SEPARATOR", "IndexMap", "IndexMapError", "Predicate"]
