"""Extents of a model's inputs that are expressions of its sizes: ``n*32``, as exporters write them, and back.

The text of one is read as a sum of products; in a call the size that it has alone is solved for.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from ...ir.expr import Expr, Extent, Var, binary, free_variables
from .fitting import values_at

OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//"}
LONGEST = 200  # characters of an extent


def expression(text: str) -> Expr | None:
    """The expression that a text is, ``32*n + 1``; None for a name alone, and for what is none."""
    if len(text) > LONGEST:
        return None
    try:
        found = _read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return found if isinstance(found, Expr) and not isinstance(found, Var) and free_variables(found) else None


def _read(node: ast.expr) -> Extent:
    if isinstance(node, ast.Name):
        return Var(node.id)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and (op := OPERATORS.get(type(node.op))) is not None:
        return binary(op, _read(node.left), _read(node.right))
    raise ValueError(f"`{ast.unparse(node)}` is no sum of products")


def sizes_in(extent: Extent) -> tuple[str, ...]:
    """The names of the sizes that an extent is over, in order."""
    return tuple(sorted(v.name for v in free_variables(extent))) if isinstance(extent, Expr) else ()


def extent_at(extent: Extent, sizes: Mapping[str, int]) -> int:
    """An extent where the sizes have these values."""
    return int(values_at(extent, {name: np.asarray(number, np.int64) for name, number in sizes.items()}))


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
