"""Kernels, one for each statement at the top of a program, and the work-groups and work-items that run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.expr import as_int
from ...ir.stmt import SUBGROUP, For, Seq, Stmt, walk_stmts
from ..errors import CodegenError

AXES = "xyz"
GUARDED = "guarded"
"""The annotation of a loop over work-groups or items of which more are there than it has iterations, or may be."""


@dataclass(frozen=True)
class Work:
    """How many work-groups there are, and work-items in each, along the axes that loops are bound to."""

    groups: Mapping[str, int]
    items: Mapping[str, int]

    def along(self, loop: For) -> int:
        """Work-groups or items along the axis that a loop is bound to."""
        where, axis = place_of(loop)
        return (self.groups if where == "blockIdx" else self.items)[axis]


def statements_at_top(stmt: Stmt) -> list[Stmt]:
    """The statements at the top, in order."""
    return [part for item in stmt.stmts for part in statements_at_top(item)] if isinstance(stmt, Seq) else [stmt]


def place_of(loop: For) -> tuple[str, str]:
    """``blockIdx`` or ``threadIdx``, and the axis, that a bound loop runs over: a subgroup stands along x."""
    if loop.thread == SUBGROUP:
        return "threadIdx", "x"
    where, _, axis = loop.thread.partition(".")
    if where not in ("blockIdx", "threadIdx") or axis not in AXES:
        raise CodegenError(f"loop `{loop.var.name}` is bound to the unknown axis `{loop.thread}`")
    return where, axis


def is_serial(loop: For) -> bool:
    """Whether a loop that is bound to ``blockIdx`` shall run on one thread, and so in one work-group."""
    return loop.thread.startswith("blockIdx") and ("threads", 1) in loop.annotations


def most_threads(body: Stmt) -> int:
    """On how many threads the loops over work-groups shall run at most, by their annotations; 0 for any number."""
    loops = (node for node in walk_stmts(body) if isinstance(node, For) and node.thread.startswith("blockIdx"))
    return min((value for loop in loops for key, value in loop.annotations if key == "threads"), default=0)


def work_of(body: Stmt) -> Work:
    """The work-groups and items of a kernel: the largest extent of the loops that are bound to an axis."""
    groups: dict[str, int] = {}
    items: dict[str, int] = {}
    for node in walk_stmts(body):
        if isinstance(node, For) and node.kind == "thread_binding" and not is_serial(node):
            where, axis = place_of(node)
            table = groups if where == "blockIdx" else items
            try:
                extent = as_int(node.extent)
            except ValueError:
                name = node.var.name
                raise CodegenError(f"loop `{name}` is bound to {node.thread}; its extent must be constant") from None
            table[axis] = max(extent, table.get(axis, 1))
    return Work(groups, items)


def subgroup_loops(body: Stmt) -> list[For]:
    """The loops that are bound to ``subgroup``."""
    return [loop for loop in walk_stmts(body) if isinstance(loop, For) and loop.reduces]


def subgroup_size(name: str, body: Stmt, items: int) -> int:
    """Work-items of the subgroups of kernel `name`, 0 where it has none; `items` are those of a group along x."""
    found = {as_int(loop.extent) for loop in subgroup_loops(body)}
    if found - {items}:
        raise CodegenError(
            f"kernel `{name}` has a loop bound to `subgroup` of {min(found)} work-items, but its groups have {items} "
            f"along x; let no loop that is bound to threadIdx.x or `subgroup` have more iterations"
        )
    return items if found else 0
