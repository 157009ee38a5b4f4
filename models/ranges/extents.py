"""Extents of a model's inputs that are expressions of its sizes: ``n*32``, as exporters write them, and back.

The text of one is read as a sum of products; in a call the size that it has alone is solved for.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.expr import Binary, Const, Expr, Extent, Var, free_variables
from ...ir.layout.index_text import evaluate, parse_expr
from ...ir.node import walk

OPERATORS = ("+", "-", "*", "//")
LONGEST = 200  # characters of an extent


def expression(text: str) -> Expr | None:
    """The expression that a text is, ``32*n + 1``; None for a name alone, and for what is no sum of products."""
    if len(text) > LONGEST:
        return None
    try:
        found = parse_expr(text)
    except ValueError:
        return None
    parts = [node for node in walk(found) if isinstance(node, Expr)]
    known = all(isinstance(node, Var | Const) or (isinstance(node, Binary) and node.op in OPERATORS) for node in parts)
    is_open = isinstance(found, Binary) and free_variables(found)
    return found if is_open and known and all(node.dtype != "bool" for node in parts) else None


def sizes_in(extent: Extent) -> tuple[str, ...]:
    """The names of the sizes that an extent is over, in order."""
    return tuple(sorted(v.name for v in free_variables(extent))) if isinstance(extent, Expr) else ()


def extent_at(extent: Extent, sizes: Mapping[str, int]) -> int:
    """An extent where the sizes have these values."""
    return int(evaluate(extent, sizes)) if isinstance(extent, Expr) else extent


def solved(extent: Extent, size: int, known: Mapping[str, int]) -> tuple[str, int] | None:
    """The one size of an extent that is not known yet, with its value where the extent is `size`.

    None where it has no such size or several, and where no whole number gives that extent.
    """
    unknown = [name for name in sizes_in(extent) if name not in known]
    if len(unknown) != 1:
        return None
    (name,) = unknown
    at = [extent_at(extent, {**known, name: number}) for number in (0, 1)]
    if at[1] == at[0] or (size - at[0]) % (at[1] - at[0]):
        return None
    number = (size - at[0]) // (at[1] - at[0])
    return (name, number) if extent_at(extent, {**known, name: number}) == size else None
