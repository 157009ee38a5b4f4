"""What programs have in common that differ in where accesses begin, and in floats.

::

    skeleton:  x[i + 3, 5] -> x[i + 0, 0]     T.float32(0.5) -> T.float32(0)
"""

from __future__ import annotations

from typing import Any

from . import dtypes
from .expr import Binary, Const, Expr, Load
from .node import Node, changed, remembered, transform
from .statements import Store
from .stmt import PrimFunc


@remembered
def skeleton(func: PrimFunc) -> PrimFunc:
    """`func` with zeros in place of the offsets of indices and of constants of floats.

    Programs of one skeleton have the same loops, extents, steps and bounds.  It is no program to be run: its accesses
    are others.
    """
    found: PrimFunc = transform(func, _zeroed)
    return found


def _zeroed(node: Node) -> Any:
    if isinstance(node, Const) and dtypes.is_float(node.dtype):
        return Const(0.0, node.dtype)
    if isinstance(node, Load | Store):
        return changed(node, indices=tuple(_without_offset(index) for index in node.indices))
    return node


def _without_offset(index: Expr) -> Expr:
    """An index with zero for the number that is added to it, or that it is."""
    if isinstance(index, Const):
        return Const(0, index.dtype)
    if isinstance(index, Binary) and index.op in ("+", "-") and isinstance(index.b, Const):
        return changed(index, b=Const(0, index.b.dtype))
    return index
