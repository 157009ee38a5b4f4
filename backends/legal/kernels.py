"""Programs for OpenCL devices: the passes over each of their kernels, and what no kernel may do.

A kernel is a statement at the top of a program (see `work_items`).  Behind these passes it is settled which sums stay
in registers, which loops are written out, what a subgroup does together, where work-items wait for each other, which of
them a loop leaves out, and which vectors and masks there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...ir.arith.intervals import Facts
from ...ir.expr import Buffer
from ...ir.extents import as_extent
from ...ir.node import rebuild
from ...ir.stmt import For, Seq, Stmt, memories_written
from ...ir.target import Target
from .barriers import Memories, has_barrier, place_barriers
from .checks import check_kernel, images
from .lane_reads import Place
from .native import native
from .panels import keep_sums
from .reductions import mark_reductions
from .unrolling import keep_loops
from .work_items import GUARDED, Work, is_serial, statements_at_top, subgroup_loops, work_of
from .written_out import written_out


@dataclass(frozen=True)
class Setting:
    """What passes know besides the kernel: the device, the program's buffers, and whether sums keep their order.

    `sizes` are what each call decides, by name; the host runs a kernel only where conditions over them at its top hold.
    """

    target: Target
    buffers: Sequence[Buffer]
    strict: bool
    sizes: tuple[str, ...] = ()


def panels(kernel: Stmt, its: Setting) -> Stmt:
    """Sums in registers; a CPU's driver keeps what lives across barriers in memory anyway."""
    return keep_sums(kernel) if its.target.warp > 1 and not its.strict else kernel


def barriers(kernel: Stmt, its: Setting) -> Stmt:
    """Barriers between what work-items write and touch."""
    written = memories_written(kernel)
    return place_barriers(kernel, Memories((), tuple(b for b in its.buffers if b.name in written)))


def guards(kernel: Stmt, its: Setting) -> Stmt:
    """Loops with a condition on the item: those of fewer iterations than there are items, and some beside barriers.

    PoCL adds barriers of its own to innermost loops that all items run, where a kernel has any; a condition that
    follows such a loop is then decided by one item for all.  It adds none below a condition on the item.  PoCL has no
    subgroups, whose functions are left out of conditions.
    """
    return _guarded(kernel, work_of(kernel, its.sizes), has_barrier(kernel))


def _guarded(stmt: Stmt, work: Work, meet: bool) -> Stmt:
    result: Stmt = rebuild(stmt, lambda child: _guarded(child, work, meet) if isinstance(child, Stmt) else child)
    if not isinstance(result, For) or result.kind != "thread_binding" or is_serial(result):
        return result
    beside = meet and result.has_items and not result.reduces and not has_barrier(result.body)
    if not beside and as_extent(result.extent) == work.along(result):
        return result
    return replace(result, annotations=(*result.annotations, (GUARDED, 1)))


def copies(kernel: Stmt, its: Setting) -> Stmt:
    """Unrolled loops written out, with fences on devices whose compilers keep what they load.

    Intel's runtime for CPUs does not put items of a kernel with a fence side by side, and a subgroup then reduces one
    item's value; the compilers of GPUs spill in other ways.
    """
    target, as_images = its.target, images(kernel, its.buffers)
    keeps = target.execution.keeps_what_it_loads and not subgroup_loops(kernel)
    names = frozenset(its.buffers[number].name for number in as_images)
    return written_out(kernel, target, names, target.registers if keeps else 0, Facts({}, strict=its.strict))


def vectors(kernel: Stmt, its: Setting) -> Stmt:
    """Vectors and masks as the device has them."""
    as_images = images(kernel, its.buffers)
    memories = {b.name: (b, "image" if n in as_images else "global") for n, b in enumerate(its.buffers)}
    facts = Facts({}, strict=its.strict)
    return native(kernel, Place(its.target, facts, facts, memories_written(kernel), memories))


PASSES: tuple[tuple[str, Callable[[Stmt, Setting], Stmt]], ...] = (
    ("panels", panels),
    ("reductions", lambda kernel, _: mark_reductions(kernel)),
    ("unrolling", lambda kernel, _: keep_loops(kernel)),
    ("barriers", barriers),
    ("guards", guards),
)
LAST: tuple[tuple[str, Callable[[Stmt, Setting], Stmt]], ...] = (
    ("copies", copies),
    ("vectors", vectors),
)
"""Passes that only valid kernels come to."""


def legal_kernels(name: str, body: Stmt, its: Setting) -> Stmt:
    """The body of program `name` with each kernel as the passes leave it.

    Raises CodegenError for what a kernel may not do or its device cannot hold, LoweringError for reductions in
    subgroups that items cannot do together.
    """
    made = list[Stmt]()
    kernels = statements_at_top(body)
    for number, kernel in enumerate(kernels):
        for _, run in PASSES:
            kernel = run(kernel, its)
        called = f"{name}_kernel" if len(kernels) == 1 else f"{name}_kernel_{number}"
        check_kernel(called, kernel, its.target, its.buffers, its.sizes)
        for _, run in LAST:
            kernel = run(kernel, its)
        made.append(kernel)
    return made[0] if len(made) == 1 else Seq(tuple(made))
