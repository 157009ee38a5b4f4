"""Kernels, one for each statement at the top of a program, and the work-groups and work-items that run them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...ir.expr import Const, Expr, Extent, Load, Var, as_int, binary
from ...ir.extents import as_extent
from ...ir.stmt import SUBGROUP, For, If, Let, Seq, Stmt, walk_stmts
from ..errors import CodegenError
from ..launch import is_formula

AXES = "xyz"
GUARDED = "guarded"
"""The annotation of a loop over work-groups or items of which more are there than it has iterations, or may be."""


@dataclass(frozen=True)
class Work:
    """How many work-groups there are, and work-items in each, along the axes that loops are bound to.

    Numbers of work-groups may be expressions of sizes.
    """

    groups: Mapping[str, Extent]
    items: Mapping[str, int]

    def along(self, loop: For) -> Extent:
        """Work-groups or items along the axis that a loop is bound to."""
        where, axis = place_of(loop)
        return self.groups[axis] if where == "blockIdx" else self.items[axis]


@dataclass(frozen=True)
class Given:
    """What each call decides of a kernel before it runs: the variables of its sizes, and whether it runs at all."""

    sizes: tuple[Var, ...] = ()
    when: tuple[Expr, ...] = ()


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


def given_of(kernel: Stmt, sizes: Collection[str]) -> Given:
    """The variables for `sizes`, memories by name, that stand at the top of a kernel, and the conditions over them."""
    own, when = list[Var](), list[Expr]()
    while True:
        if isinstance(kernel, Let) and isinstance(kernel.value, Load) and kernel.value.buffer.extents == (1,):
            if kernel.value.buffer.name in sizes:
                own.append(kernel.var)
            kernel = kernel.body
        elif isinstance(kernel, If) and kernel.orelse is None and own and is_formula(kernel.cond, own):
            when.append(kernel.cond)
            kernel = kernel.then
        else:
            return Given(tuple(own), tuple(when))


def work_of(kernel: Stmt, sizes: Collection[str]) -> Work:
    """The work-groups and items of a kernel: the largest extent of the loops that are bound to an axis."""
    groups: dict[str, Extent] = {}
    items: dict[str, int] = {}
    own = given_of(kernel, sizes).sizes
    for node in walk_stmts(kernel):
        if isinstance(node, For) and node.kind == "thread_binding" and not is_serial(node):
            where, axis = place_of(node)
            if isinstance(node.extent, Const) and where == "threadIdx":
                items[axis] = max(as_int(node.extent), items.get(axis, 1))
            elif where == "blockIdx" and is_formula(node.extent, own):
                extent, known = node.extent, groups.get(axis, 1)
                # Where an expression is 0 nothing is launched, so that it is taken for at least 1.
                is_larger = known == 1 and not isinstance(extent, Const)
                groups[axis] = as_extent(extent if is_larger or extent == known else binary("max", extent, known))
            else:
                raise CodegenError(f"loop `{node.var.name}` is bound to {node.thread}; its extent must be constant")
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
