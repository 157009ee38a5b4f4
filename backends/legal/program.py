"""The passes that make a lowered program legal for a target, top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...ir.depth import deep
from ...ir.expr import Buffer, Call, Load
from ...ir.node import Node, rebuild, walk
from ...ir.passes.renaming import with_own_names
from ...ir.stmt import Allocate, Block, Declare, PrimFunc, Stmt, Store
from ...ir.target import Target
from ..passes.roundings import EXACT
from .accumulate import multiply_accumulates
from .conversions import conversions
from .dots import dot_products
from .gathers import gathers
from .interleaves import interleaves
from .iterations import known_iterations
from .kernels import Setting, legal_kernels
from .masks import lane_masks
from .offsets import offset_dots
from .order import order_nests
from .reliefs import reliefs
from .taps import tap_dots
from .transposes import transposes

if TYPE_CHECKING:
    from ..lower import Lowered

PASSES: tuple[tuple[str, Callable[[Stmt, Target], Stmt]], ...] = (
    ("dot_products", dot_products),
    ("tap_dots", tap_dots),
    ("offset_dots", offset_dots),
    ("known_iterations", known_iterations),
    ("order_nests", order_nests),
    ("transposes", transposes),
    ("interleaves", interleaves),
    ("multiply_accumulates", multiply_accumulates),
    ("lane_masks", lane_masks),
    ("gathers", gathers),
    ("conversions", conversions),
    ("reliefs", reliefs),
)


@deep()
def legal(lowered: Lowered, target: Target) -> Lowered:
    """`lowered` with what the target's instruction set decides written as nodes.

    Raises LoweringError for what the program asks for and the target does not have, CodegenError for kernels that an
    OpenCL device cannot run.
    """
    body = lowered.body
    for _, run in PASSES:
        body = run(body, target)
    if target.kind == "opencl":
        setting = Setting(target, lowered.memories, lowered.strict, lowered.sizes)
        body = legal_kernels(lowered.name, body, setting)
    return lowered if body is lowered.body else replace(lowered, body=body)


@deep()
def as_function(lowered: Lowered) -> PrimFunc:
    """A lowered or legal program as a function of the language, which can be verified, printed and interpreted.

    Its workspaces are allocated around the body, views of memory, which lowered programs use as they are, declared
    where that memory is, and what shares a name gets one of its own.
    """
    accesses = (n for n in walk(lowered.body) if isinstance(n, (Load, Store)))
    known = {n.buffer for n in walk(lowered.body) if isinstance(n, Declare)}
    views = list(dict.fromkeys(access.buffer for access in accesses if access.buffer.data))
    owned = {n.buffer.name for n in walk(lowered.body) if isinstance(n, Allocate)}
    missing = [view for view in views if view not in known]
    body = _declared(lowered.body, [view for view in missing if view.data in owned])
    for view in missing:
        if view.data not in owned:
            body = Declare(view, body)
    for workspace in reversed(lowered.workspaces):
        body = Allocate(workspace, body)
    body = with_own_names(_unmarked(body), {param.name for param in lowered.params})
    return PrimFunc(lowered.name, lowered.params, Block("root", (), body))


def _unmarked(node: Node) -> Any:
    """The program without the marks of `passes.roundings`: the language rounds each operation in any case."""
    made: Node = rebuild(node, _unmarked)
    return made.args[0] if isinstance(made, Call) and made.name == EXACT else made


def _declared(stmt: Stmt, views: list[Buffer]) -> Stmt:
    """The statement with each view declared in the allocation of its memory."""
    result: Stmt = rebuild(stmt, lambda child: _declared(child, views) if isinstance(child, Stmt) else child)
    if isinstance(result, Allocate):
        used = {n.buffer for n in walk(result.body) if isinstance(n, (Load, Store))}
        for view in views:
            if view.data == result.buffer.name and view in used:
                result = replace(result, body=Declare(view, result.body))
    return result
