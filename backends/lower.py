"""Lowering: a scheduled function to loops over flat buffers.

Each pass is a function from statement to statement; `PASSES` is the whole story,
top to bottom, and `lowering_steps` shows the program after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..ir.arith.intervals import nothing_known
from ..ir.arith.simplify import simplify
from ..ir.collection import uncollected
from ..ir.expr import Buffer, Const, Load, Var, free_variables
from ..ir.node import walk
from ..ir.passes.dump import program_log
from ..ir.passes.layouts import apply_buffer_transforms
from ..ir.passes.loop_extents import fold_single_loops, is_dot, trim_loops
from ..ir.passes.removal import without_assume, without_undef_stores
from ..ir.stmt import Assert, For, Let, Opaque, PrimFunc, Seq, Stmt, While, walk_stmts
from ..ir.target import BYTE_DOTS, SUBGROUPS, Target
from ..ir.verify.bounds import check_in_bounds
from .passes.blocks import remove_blocks
from .passes.capacity import with_capacities
from .passes.compact import CONCURRENT, compact_buffers
from .passes.errors import LoweringError
from .passes.flatten import flat_buffer, flatten_buffers
from .passes.hoist import hoist_conditions
from .passes.known_sizes import with_known_sizes
from .passes.masks import fill_tiles
from .passes.packed import unpacked
from .passes.partition import partition_loops, split_ranges
from .passes.plain import plain_statements
from .passes.prefetch import prefetch_streams
from .passes.recurrences import carry_recurrences
from .passes.roundings import keep_roundings
from .passes.size_conditions import with_own_conditions
from .passes.storage_rewrite import rewrite_storage
from .passes.vectorize import guard_vectors, settle_masks, vectorize_loops
from .passes.workspaces import place_workspaces

__all__ = ["PASSES", "Lowered", "LoweringError", "lower", "lowering_steps"]


@dataclass(frozen=True)
class Lowered:
    """A program without blocks, over flat buffers of scalars, ready for a code generator.

    A scalar parameter is a buffer of one element, and so is each of `PrimFunc.sizes`,
    which come last, by these names.  `workspaces` live for the whole call; the runtime provides them after
    the parameters.  A `strict` program is compiled without reassociation, and with signed zeros.
    """

    name: str
    params: tuple[Buffer, ...]
    workspaces: tuple[Buffer, ...]
    body: Stmt
    strict: bool = False
    sizes: tuple[str, ...] = ()

    @property
    def memories(self) -> tuple[Buffer, ...]:
        """The parameters without the sizes, and the workspaces."""
        return (*self.params[: len(self.params) - len(self.sizes)], *self.workspaces)


@dataclass(frozen=True)
class Setting:
    """What passes know besides the statement."""

    target: Target
    params: tuple[Buffer, ...] = ()
    strict: bool = False


Pass = Callable[[Stmt, Setting], Stmt]


def _plain(name: str, fn: Callable[[Stmt], Stmt]) -> tuple[str, Pass]:
    return name, lambda stmt, _: fn(stmt)


PASSES: tuple[tuple[str, Pass], ...] = (
    _plain("remove_assume", without_assume),
    _plain("remove_blocks", remove_blocks),
    _plain("plain_statements", plain_statements),
    ("simplify", lambda stmt, its: simplify(stmt, strict=its.strict)),
    ("settle_masks", lambda stmt, its: settle_masks(stmt, its.target)),
    # A store of undef counts as a write when buffers are made private; then it goes.
    _plain("compact_buffers", compact_buffers),
    ("remove_store_undef", lambda stmt, its: without_undef_stores(stmt, its.strict)),
    ("simplify_compact", lambda stmt, its: simplify(stmt, strict=its.strict)),
    ("partition_loops", lambda stmt, its: partition_loops(stmt, its.strict)),
    _plain("fold_single_loops", fold_single_loops),
    _plain("carry_recurrences", carry_recurrences),
    ("fill_tiles", lambda stmt, its: fill_tiles(stmt, its.strict)),
    ("guard_vectors", lambda stmt, its: guard_vectors(stmt, its.target, its.strict)),
    _plain("hoist_conditions", hoist_conditions),
    ("split_ranges", lambda stmt, its: split_ranges(stmt, its.strict)),
    ("trim_loops", lambda stmt, its: trim_loops(stmt, nothing_known(its.strict))),
    _plain("fold_trimmed_loops", fold_single_loops),
    ("vectorize_loops", lambda stmt, its: vectorize_loops(stmt, its.target, its.strict)),
    ("flatten_buffers", lambda stmt, its: flatten_buffers(stmt, its.target.kind != "cpu", its.params)),
    ("simplify_flat", lambda stmt, its: simplify(stmt, strict=its.strict)),
    _plain("fold_flat_loops", fold_single_loops),
    ("rewrite_storage", lambda stmt, its: rewrite_storage(stmt) if its.target.kind == "cpu" else stmt),
)


def check_calls(func: PrimFunc) -> None:
    """Raise LoweringError for what no target runs: calls of what is not known, by name, `while` and assertions."""
    for stmt in walk_stmts(func.body):
        if isinstance(stmt, Opaque):
            raise LoweringError(f"`{func.name}` calls `{stmt.callee}`, which no target has")
        if isinstance(stmt, (While, Assert)):
            word = type(stmt).__name__.lower()
            raise LoweringError(f"`{func.name}` has a statement `{word}`, which no target runs")


@uncollected
def lower(func: PrimFunc, target: Target, strict: bool = False) -> Lowered:
    """`func` for the code generator of `target`; `strict` as in `Lowered`, or by the attribute ``strict_float``.

    Every access is proven in bounds, before the first pass in the program as given,
    and after the last one in what was made of it, private buffers and vectors
    included; where extents are expressions, before indices are multiplied by them.
    Raises OutOfBounds, LoweringError for what the target cannot run, and
    LayoutError for a layout in its attributes that cannot be given.
    """
    check_calls(func)
    func = unpacked(apply_buffer_transforms(func))
    params = tuple(flat_buffer(_memory_of(p), target.kind != "cpu") for p in (*func.params, *func.sizes))
    strict = strict or func.is_strict
    *_, (_, last) = lowering_steps(func, target, strict)
    check_in_bounds(last, func, flat=True)
    if target.kind == "cpu":
        last = prefetch_streams(last, params)  # which may go beyond the end, as no access may
    body, workspaces = place_workspaces(keep_roundings(last))
    if func.sizes and target.kind != "cpu":
        body = with_own_conditions(body, frozenset(func.sizes))
    sizes = tuple(size.name for size in func.sizes)
    return Lowered(func.name, params, workspaces, _with_scalars(body, func.scalars), strict, sizes)


def lowering_steps(func: PrimFunc, target: Target, strict: bool = False) -> Iterator[tuple[str, Stmt]]:
    """The program after each pass, by the name of the pass.

    Layouts that are asked for in its attributes come first, and bytes for numbers that are two to a byte.
    """
    check_calls(func)
    func = unpacked(apply_buffer_transforms(func))
    check_in_bounds(func)
    check_loops(func.body, target)
    if target.kind != "cpu":
        _check_extents(func, target)
    func = with_known_sizes(with_capacities(func))
    body: Stmt = func.body
    setting = Setting(target, func.buffers, strict or func.is_strict)
    log = program_log(func.name)
    log("given", func)
    for name, run in PASSES:
        if name == "flatten_buffers" and func.stated:  # behind which indices are products of extents
            check_in_bounds(body, func)
        body = run(body, setting)
        log(name, body)
        yield name, body


def _check_extents(func: PrimFunc, target: Target) -> None:
    """Raises LoweringError for extents over parameters, whose values are not known when work-groups are counted."""
    used = {var for extent in func.stated for var in free_variables(extent)}
    for var in func.params:
        if var in used:
            assert isinstance(var, Var)
            raise LoweringError(
                f"extents of `{func.name}` are expressions of its parameter `{var.name}`, which is not known on "
                f"`{target.name}` before the kernel runs; let an array give it, as in `{var.name} = T.int64()`, or "
                f"take a CPU"
            )


def check_loops(stmt: Stmt, target: Target) -> None:
    """Raises LoweringError for kinds of loops that the target does not have, or that are nested wrongly."""
    refused = "thread_binding" if target.kind == "cpu" else "parallel"
    for loop in (n for n in walk_stmts(stmt) if isinstance(n, For)):
        if loop.kind == refused:
            raise LoweringError(
                f"loop `{loop.var.name}` is a {refused} loop, which target kind `{target.kind}` does not have; "
                f"use `{'parallel' if target.kind == 'cpu' else 'bind'}`"
            )
        if is_dot(loop) and not target.dot_signs:
            raise LoweringError(
                f"loop `{loop.var.name}` is annotated with `dot`, but `{target.name}` has no dot products of bytes"
                f"{f' ({BYTE_DOTS} is missing)' if target.kind == 'opencl' else ''}; unannotate it, or choose a device "
                f"that has them"
            )
        if loop.reduces:
            _check_subgroup(loop, target)
        if loop.kind != "parallel":
            continue
        for inner in (n for n in walk_stmts(loop.body) if isinstance(n, For) and n.kind in CONCURRENT):
            raise LoweringError(
                f"loop `{inner.var.name}` is parallel inside the parallel loop `{loop.var.name}`; fuse them"
            )


def _check_subgroup(loop: For, target: Target) -> None:
    sizes = target.subgroup_sizes
    if not sizes:
        raise LoweringError(
            f"loop `{loop.var.name}` is bound to `{loop.thread}`, but `{target.name}` has no subgroups of a given size "
            f"({SUBGROUPS} is missing); reduce in a serial loop, or choose a device that has them"
        )
    if not isinstance(loop.extent, Const) or loop.extent.value not in sizes:
        raise LoweringError(
            f"loop `{loop.var.name}` is bound to `{loop.thread}` and has {loop.extent!r} iterations, but subgroups of "
            f"`{target.name}` have {', '.join(map(str, sizes))} work-items; split the loop by one of these"
        )


def _memory_of(param: Buffer | Var) -> Buffer:
    return param if isinstance(param, Buffer) else Buffer(param.name, (1,), param.dtype)


def _with_scalars(body: Stmt, scalars: Sequence[Var]) -> Stmt:
    """Each statement at the top, which may become a kernel of its own, with the scalars that it uses read first."""
    if isinstance(body, Seq):
        return Seq(tuple(_with_scalars(item, scalars) for item in body.stmts))
    used = {n for n in walk(body) if isinstance(n, Var)} & set(scalars) if scalars else set()
    for scalar in reversed(scalars):
        if scalar in used:
            body = Let(scalar, Load(_memory_of(scalar), (Const(0),)), body)
    return body
