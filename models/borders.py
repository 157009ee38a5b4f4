"""Borders: what a program has where the conditions of a value do not hold.

A border of zeros around x, the image of a convolution::

    p[i, j] = if_then_else(0 <= i - 1 < H and 0 <= j - 1 < W, x[i - 1, j - 1], 0)
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.expr import Call, Const, Expr
from ..ir.node import walk
from ..ir.stmt import Block, PrimFunc
from ..space.design.program import is_elementwise
from ..space.tree import block_stores, leaf_blocks


def outside_of(block: Block) -> list[Expr]:
    """What stands where the conditions of values in a block do not hold; empty for a block that tests nothing."""
    return [n.args[2] for n in walk(block.body) if isinstance(n, Call) and n.name == "if_then_else"]


def numbers_outside_of(block: Block) -> list[float]:
    """The values of `outside_of` as numbers; empty unless all of them are constants."""
    found = outside_of(block)
    numbers = [float(value.value) for value in found if isinstance(value, Const)]
    return numbers if len(numbers) == len(found) else []


def borders(func: PrimFunc) -> Iterator[Block]:
    """Element-wise blocks of intermediates that read where a condition holds, and have numbers elsewhere."""
    for block in leaf_blocks(func.body):
        if is_elementwise(block) and block_stores(block)[0].buffer not in func.params and numbers_outside_of(block):
            yield block
