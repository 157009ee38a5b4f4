"""The passes that make a lowered program legal for a target, top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.stmt import Stmt
from ...ir.target import Target
from .dots import dot_products
from .offsets import offset_dots

if TYPE_CHECKING:
    from ..lower import Lowered

PASSES: tuple[tuple[str, Callable[[Stmt, Target], Stmt]], ...] = (
    ("dot_products", dot_products),
    ("offset_dots", offset_dots),
)


def legal(lowered: Lowered, target: Target) -> Lowered:
    """`lowered` with what the target's instruction set decides written as nodes.

    Raises LoweringError for what the program asks for and the target does not have.
    """
    body = lowered.body
    for _, run in PASSES:
        body = run(body, target)
    return lowered if body is lowered.body else replace(lowered, body=body)
