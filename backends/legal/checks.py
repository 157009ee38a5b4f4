"""What no kernel of an OpenCL device may do, and what its device cannot hold.

(1) Work-groups are as large as the device allows, and loops over them stand inside of no other loop: groups do not
wait for each other.  (2) No loop stands inside of another one that is bound to the same axis.  (3) Memory that
work-items share is written inside of all loops that are bound, or each item would repeat the store, and what is
computed outside of one reads no memory that is written inside.  (4) All items of a group come to a barrier.  (5) Local
memory is allocated outside of loops over items, and there is enough of it, and of private memory.  (6) Images are as
the device takes them, and not too many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...ir import dtypes
from ...ir.arith.intervals import Facts, nothing_known
from ...ir.arith.simplifier import simplifier_for
from ...ir.expr import Buffer, Const, Expr, Var, as_int, reads_memory, variables
from ...ir.node import walk
from ...ir.stmt import (
    Allocate,
    Declare,
    For,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    memories_read,
    memories_written,
    read_buffers,
)
from ...ir.target import Target
from ..errors import CodegenError
from ..images import check_image, is_image
from .barriers import is_barrier
from .work_items import GUARDED, Given, Work, given_of, is_serial, place_of, subgroup_size, work_of

MAX_PRIVATE_BYTES = 256 << 10
MAX_RANK = 2


def arguments(kernel: Stmt, buffers: Sequence[Buffer]) -> tuple[int, ...]:
    """Which of a program's buffers a kernel uses."""
    used = {b.memory for b in read_buffers(kernel)} | memories_written(kernel)
    return tuple(number for number, b in enumerate(buffers) if b.name in used)


def images(kernel: Stmt, buffers: Sequence[Buffer]) -> tuple[int, ...]:
    """Which of a program's buffers a kernel reads as images: those in texture memory that it does not write."""
    written = memories_written(kernel)
    return tuple(n for n in arguments(kernel, buffers) if is_image(buffers[n].scope) and buffers[n].name not in written)


def check_kernel(name: str, kernel: Stmt, target: Target, buffers: Sequence[Buffer], sizes: Sequence[str] = ()) -> None:
    """Raises CodegenError where kernel `name` of a program with these buffers breaks a rule.

    Values of `sizes`, and conditions over them at the top of the kernel, are the same for all work-items.
    """
    work = work_of(kernel, sizes)
    as_images = images(kernel, buffers)
    for number in arguments(kernel, buffers):
        _check_argument(buffers[number], number in as_images, target)
    items = prod(work.items.values())
    if items > max(target.max_work_group, 1):
        raise CodegenError(
            f"kernel `{name}` needs a work-group of {items} items, but `{target.name}` allows {target.max_work_group}"
        )
    checker = _Checker(name, work, given_of(kernel, sizes))
    checker.check(kernel, _Place(nothing_known(), {buffer.name: "global" for buffer in buffers}))
    if checker.local_bytes > target.local_bytes:
        raise CodegenError(
            f"kernel `{name}` needs {checker.local_bytes} bytes of local memory, "
            f"but `{target.name}` has {target.local_bytes}"
        )
    subgroup_size(name, kernel, work.items.get("x", 1))
    if len(as_images) > target.image_args:
        raise CodegenError(
            f"kernel `{name}` reads {len(as_images)} images, but `{target.name}` takes {target.image_args}"
        )


def _check_argument(buffer: Buffer, as_image: bool, target: Target) -> None:
    if is_image(buffer.scope):
        check_image(buffer, target)
    if not as_image and buffer.rank > MAX_RANK:
        raise CodegenError(
            f"buffer `{buffer.name}` has {buffer.rank} physical axes; OpenCL code takes linear memory of one "
            f"or two; use fewer axis separators"
        )


@dataclass(frozen=True)
class _Place:
    """What is known at a statement, and how work-items come there.

    `bound` are the axes of loops around it, `spaces` the address spaces of memories by name; of variables, `unrolled`
    are those of loops that are written out, `copies` of the statement in all, and `differing` those in which items
    may differ; items have diverged where such values have decided.
    """

    facts: Facts
    spaces: Mapping[str, str]
    bound: frozenset[str] = frozenset()
    differing: frozenset[Var] = frozenset()
    unrolled: frozenset[Var] = frozenset()
    in_loop: bool = False
    has_diverged: bool = False
    copies: int = 1
    private_bytes: int = 0

    def differs(self, expr: Expr) -> bool:
        """Whether work-items of one group may disagree about a value."""
        return reads_memory(expr) or not self.differing.isdisjoint(variables(expr))

    def is_written_out(self, expr: Expr) -> bool:
        """Whether an expression has a constant value in each copy."""
        return not reads_memory(expr) and set(variables(expr)) <= self.unrolled


class _Checker:
    """Checks the statements of a kernel by its name, and adds up its local memory."""

    def __init__(self, name: str, work: Work, given: Given) -> None:
        self.name, self.work, self.given = name, work, given
        self.local_bytes = 0

    def check(self, stmt: Stmt, at: _Place) -> None:
        """Raises CodegenError where a statement breaks a rule."""
        if isinstance(stmt, Seq):
            self._sequence(stmt, at)
        elif isinstance(stmt, Store):
            self._store(stmt, at)
        elif isinstance(stmt, For):
            self._for(stmt, at)
        elif isinstance(stmt, If):
            self._if(stmt, at)
        elif isinstance(stmt, Let):
            self._let(stmt, at)
        elif isinstance(stmt, Allocate):
            self._allocate(stmt, at)
        elif isinstance(stmt, Declare):
            self.check(stmt.body, at)
        elif at.has_diverged and is_barrier(stmt):
            # A condition that all work-items agree about is no exception: PoCL 3.0 lets items of one group leave
            # barriers in two branches of one condition by different ways.
            raise CodegenError(
                f"kernel `{self.name}` needs a barrier inside a condition, or inside a loop that differs between "
                f"work-items; move the condition into the loop over the work-items"
            )

    def _sequence(self, stmt: Seq, at: _Place) -> None:
        others = [item for item in stmt.stmts if not is_barrier(item)]
        if len(others) > 1 and any(isinstance(n, For) and n.thread.startswith("blockIdx") for n in walk(stmt)):
            raise CodegenError(
                f"kernel `{self.name}`: statements one after the other hold loops bound to blockIdx, and groups do not "
                f"wait for each other; put each such loop at the top of the program"
            )
        for item in stmt.stmts:
            self.check(item, at)

    def _store(self, stmt: Store, at: _Place) -> None:
        place = self._left_out(stmt.buffer.memory, at)
        if place is not None:
            raise CodegenError(
                f"kernel `{self.name}` stores to `{stmt.buffer.name}` outside of the loop that is bound to {place}; "
                f"every work-item would repeat it"
            )

    def _check_kept(self, value: Expr, body: Stmt, at: _Place) -> None:
        """A value that is computed outside of a bound loop is none that `body` changes: items would overtake others."""
        for memory in sorted(memories_read(value) & memories_written(body)):
            place = self._left_out(memory, at)
            if place is not None:
                raise CodegenError(
                    f"kernel `{self.name}` reads `{memory}` outside of the loop that is bound to {place}, and writes "
                    f"it inside; some work-items would read what others have written"
                )

    def _left_out(self, memory: str, at: _Place) -> str | None:
        """An axis whose work-items share a memory, and whose bound loop does not stand around; None without one."""
        items = ("threadIdx", self.work.items)
        tables = {"global": (("blockIdx", self.work.groups), items), "local": (items,)}
        for where, table in tables.get(at.spaces.get(memory, ""), ()):
            for axis, extent in table.items():
                if (isinstance(extent, Expr) or extent > 1) and f"{where}.{axis}" not in at.bound:
                    return f"{where}.{axis}"
        return None

    def _for(self, stmt: For, at: _Place) -> None:
        if stmt.kind == "thread_binding" and not is_serial(stmt):
            self._bound(stmt, at)
            return
        if not is_serial(stmt) and stmt.kind not in ("serial", "unrolled"):
            raise CodegenError(f"loop `{stmt.var.name}` is {stmt.kind}, which OpenCL cannot express; bind it instead")
        self._check_kept(stmt.extent, stmt.body, at)
        inside = replace(at, in_loop=True, facts=_range(at.facts, stmt))
        if stmt.kind == "unrolled" and at.is_written_out(stmt.extent):
            times = as_int(stmt.extent) if isinstance(stmt.extent, Const) else 1
            inside = replace(inside, unrolled=at.unrolled | {stmt.var}, copies=at.copies * times)
        elif self.work.items and at.differs(stmt.extent):
            inside = replace(inside, differing=at.differing | {stmt.var}, has_diverged=True)
        self.check(stmt.body, inside)

    def _bound(self, stmt: For, at: _Place) -> None:
        where, axis = place_of(stmt)
        place = f"{where}.{axis}"
        if where == "blockIdx" and at.in_loop:
            raise CodegenError(f"loop `{stmt.var.name}` is bound to {stmt.thread} inside of a loop; move it outside")
        if place in at.bound:
            raise CodegenError(f"loop `{stmt.var.name}` is bound to {stmt.thread} inside of another loop bound to it")
        inside = replace(at, bound=at.bound | {place}, facts=_range(at.facts, stmt))
        if where == "threadIdx":
            uneven = (GUARDED, 1) in stmt.annotations
            inside = replace(inside, differing=at.differing | {stmt.var}, has_diverged=at.has_diverged or uneven)
        self.check(stmt.body, inside)

    def _if(self, stmt: If, at: _Place) -> None:
        if stmt.cond in self.given.when:
            self.check(stmt.then, replace(at, facts=at.facts.assuming(stmt.cond)))
            return
        cond = simplifier_for(at.facts).expr(stmt.cond)
        if isinstance(cond, Const):
            chosen = stmt.then if cond.value else stmt.orelse
            if chosen is not None:
                self.check(chosen, at)
            return
        self._check_kept(cond, stmt, at)
        of_lanes, settled = dtypes.lanes(cond.dtype) > 1, at.is_written_out(cond)
        diverged = at if of_lanes or settled else replace(at, has_diverged=True)
        self.check(stmt.then, replace(diverged, facts=at.facts if of_lanes else at.facts.assuming(cond)))
        if stmt.orelse is not None:
            self.check(stmt.orelse, replace(diverged, facts=at.facts if of_lanes else at.facts.assuming(cond, False)))

    def _let(self, stmt: Let, at: _Place) -> None:
        self._check_kept(stmt.value, stmt.body, at)
        inside = replace(at, facts=at.facts.binding(stmt.var, stmt.value))
        if at.is_written_out(stmt.value):
            inside = replace(inside, unrolled=at.unrolled | {stmt.var})
        elif self.work.items and stmt.var not in self.given.sizes and at.differs(stmt.value):
            inside = replace(inside, differing=at.differing | {stmt.var})
        self.check(stmt.body, inside)

    def _allocate(self, stmt: Allocate, at: _Place) -> None:
        buffer = stmt.buffer
        if buffer.scope == "shared":
            for place in (f"threadIdx.{axis}" for axis, extent in self.work.items.items() if extent > 1):
                if place in at.bound:
                    raise CodegenError(
                        f"kernel `{self.name}` allocates `{buffer.name}` in local memory inside of the loop that is "
                        f"bound to {place}, where each work-item has its own; allocate it outside of that loop, or in "
                        f"scope local"
                    )
            self.local_bytes += buffer.nbytes * at.copies
            self.check(stmt.body, replace(at, spaces={**at.spaces, buffer.name: "local"}))
            return
        private = at.private_bytes + buffer.nbytes
        if private > MAX_PRIVATE_BYTES:
            raise CodegenError(
                f"buffer `{buffer.name}` makes {private} bytes of private memory in kernel `{self.name}`; "
                f"at most {MAX_PRIVATE_BYTES} are allowed"
            )
        self.check(stmt.body, replace(at, spaces={**at.spaces, buffer.name: "private"}, private_bytes=private))


def _range(facts: Facts, loop: For) -> Facts:
    inside = facts.looping(loop.var, loop.extent)
    return inside if isinstance(loop.extent, Const) else inside.assuming(loop.var < loop.extent)
