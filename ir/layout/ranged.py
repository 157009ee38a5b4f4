"""Index maps of shapes whose extents are expressions.

An extent is at most `LONGEST`, so that a map which is injective on the shape with that in the place of expressions is
injective on every shape, and its inverse is the one of every shape where that has an image::

    [n] by i -> [i // 16, i % 16]        [(n + 15) // 16, 16], inverse p * 16 + q, padding where n <= p * 16 + q

Extents of the image follow from those of the indices, step by step: of ``i // c`` it is ``(n + c - 1) // c``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..arith.intervals import nothing_known
from ..arith.simplifier import simplifier_for
from ..arith.simplify import simplify
from ..expr import FALSE, TRUE, Binary, Const, Expr, Extent, Var, as_expr, binary
from ..extents import as_extent
from ..statements import LONGEST
from ..text import expr_text, extents_text
from .index_map import IndexMap, IndexMapError, Predicate


def is_fixed(extents: Sequence[Extent]) -> bool:
    """Whether every extent is a number."""
    return not any(isinstance(e, Expr) for e in extents)


def check_injective(index_map: IndexMap, extents: Sequence[Extent]) -> None:
    """Raises IndexMapError with two indices that have one image."""
    index_map.check_injective(_largest(extents))


def image_extents(index_map: IndexMap, extents: Sequence[Extent]) -> tuple[Extent, ...]:
    """Extents that hold the image, the least ones where they are numbers.  Raises IndexMapError."""
    least = index_map.map_shape(_largest(extents))
    if is_fixed(extents):
        return least
    own = dict(zip(index_map.variables, extents, strict=True))
    return tuple(
        number if _is_number(index, own) else _known(index, own, extents)
        for index, number in zip(index_map.indices, least, strict=True)
    )


def _known(index: Expr, own: Mapping[Var, Extent], extents: Sequence[Extent]) -> Extent:
    found = reached(index, own)
    if found is None:
        raise IndexMapError(f"the extent of `{expr_text(index)}` over the shape ({extents_text(extents)}) is not known")
    return as_extent(simplify(found))


def inverse(index_map: IndexMap, extents: Sequence[Extent], physical: Sequence[Extent]) -> tuple[IndexMap, Predicate]:
    """The map back, valid on images, and where physical indices are none.  Raises IndexMapError."""
    if is_fixed(extents):
        return index_map.non_surjective_inverse(_largest(extents), _largest(physical))
    largest = _largest(extents)
    least = index_map.map_shape(largest)
    room = tuple(p if isinstance(p, int) and p > m else m for p, m in zip(physical, least, strict=True))
    back, padding = index_map.non_surjective_inverse(largest, room)
    open_ended = [(index, e) for index, e in zip(back.indices, extents, strict=True) if isinstance(e, Expr)]
    condition: Expr = FALSE
    for part in _disjuncts(padding.condition):
        there = simplifier_for(nothing_known().assuming(part))
        if not any(there.expr(binary("<=", LONGEST, index)) == TRUE for index, _ in open_ended):  # behind every extent
            condition = binary("or", condition, part)
    for index, extent in open_ended:
        condition = binary("or", condition, binary("<=", extent, index))
    return back, Predicate(padding.variables, condition)


def _disjuncts(cond: Expr) -> tuple[Expr, ...]:
    if isinstance(cond, Binary) and cond.op == "or":
        return (*_disjuncts(cond.a), *_disjuncts(cond.b))
    return (cond,)


def pads(index_map: IndexMap, extents: Sequence[Extent], physical: Sequence[Extent]) -> bool:
    """Whether some physical index is no image, or may be none."""
    if tuple(index_map.indices) == index_map.variables and tuple(extents) == tuple(physical):
        return False
    return inverse(index_map, extents, physical)[1].condition != FALSE


def _largest(extents: Sequence[Extent]) -> tuple[int, ...]:
    return tuple(LONGEST if isinstance(e, Expr) else e for e in extents)


def _is_number(index: Expr, own: Mapping[Var, Extent]) -> bool:
    """Whether the extent of an index is one number for all shapes."""
    if isinstance(index, Binary) and index.op == "%" and isinstance(index.b, Const):
        return True
    if isinstance(index, Binary):
        return _is_number(index.a, own) and _is_number(index.b, own)
    return isinstance(index, Const) or isinstance(own.get(index) if isinstance(index, Var) else None, int)


def reached(index: Expr, limits: Mapping[Var, Extent]) -> Expr | None:
    """One more than the largest value of an index over variables below `limits`; None unless it grows with them."""
    if isinstance(index, Var):
        return as_expr(limits[index])
    if isinstance(index, Const):
        return as_expr(int(index.value) + 1) if int(index.value) >= 0 else None
    if not isinstance(index, Binary):
        return None
    inner = reached(index.a, limits)
    if inner is None:
        return None
    if index.op == "+":
        other = reached(index.b, limits)
        return None if other is None else inner + other - 1
    if not isinstance(index.b, Const) or int(index.b.value) < 1:
        return None
    number = int(index.b.value)
    if index.op == "*":
        return (inner - 1) * number + 1
    if index.op == "//":
        return (inner + (number - 1)) // number
    return as_expr(number) if index.op == "%" else None
