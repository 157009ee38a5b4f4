"""A schedule of one shape as one of all shapes: its trace, in the words of a program whose extents are expressions.

Most steps say nothing of extents, and are taken over; of those that do

    split([8, 16])                 is split([None, 16]), which rounds up; where the 16 become parts of a sum, and there
                                   may be fewer elements than that, it is 8 or less
    transform_layout(..., shape)   has the least shape that holds the image, in multiples of the tiles that follow
    fuse(j, i), i an expression    is reorder(i, j), fuse(i, j), as the outermost alone may be one
    fuse(j, i, k), k one as well   is reorder(i, j, k), fuse(i, j), and reorder(i, k) alone without j; i has enough
                                   iterations for the one shape, as threads share no others; work-groups that are
                                   bound to the one along x are bound to k along y
    transform_block_layout         of axes that become one is left out where an inner one is an expression: what is
                                   done with the one is done with its innermost axis, inside of the others

What divides one shape does not divide all: conditions cut the last tile of an unknown extent.  There are several
`BOUNDARIES` for that, and a search measures them:

    peel     whole tiles run apart, the cut one in a version for each number of rows or vectors, its last lanes masked
    mask     lanes are masked, and each row of a tile is tested
    branch   each row and each lane is tested, but for whole vectors
    over     what is proven harmless in memory that is ours is computed beyond the end, the rest is peeled

Names that differ from there on are followed, and with those of loops those of their copies that initialise a sum.  A
step without which the program is slower alone is left out where it is refused, and so is one that writes the extents of
a parameter in another way; all proofs are made again, for all values.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from ...ir.context import start
from ...ir.expr import Const, as_expr, as_int, conjuncts, free_variables, substitute
from ...ir.extents import widened
from ...ir.layout.index_map import IndexMap
from ...ir.ranges import valued
from ...ir.size_ranges import Range
from ...ir.stmt import Block, For, PrimFunc, walk_stmts
from ...ir.target import Target
from ...space.errors import ScheduleError
from ...space.primitives.buffers import buffer_of
from ...space.schedule import ODD_ARGUMENTS, Schedule
from ...space.tree import find_block, find_loop, loops_above

Step = list[Any]

BOUNDARIES = ("peel", "mask", "over", "branch")  # the likeliest first
LEAST = (16, 64)  # of extents, from which on a schedule may be proven that is not for all: vectors, and some of them
EACH = 4  # iterations of a loop for each of the threads that share it, a choice

DISPENSABLE = frozenset((
    "annotate", "parallel", "remove_branching_through_overcompute", "remove_overcompute_through_branching",
    "storage_align", "unroll", "vectorize",
))  # fmt: skip
"""Primitives that change nothing that later steps name."""


def general(trace: Sequence[Step], fixed: PrimFunc, func: PrimFunc, target: Target, boundary: str = "peel") -> Schedule:
    """The schedule of `func` for a target that a trace of it as it is for one shape, `fixed`, becomes.

    Raises ScheduleError, of the first step that is refused in every form.
    """
    left_out = {"mask": ("peel",), "branch": ("peel", "mask")}.get(boundary, ())
    own, made = Schedule(fixed), Schedule(func)
    renamed: dict[str, str] = {}
    beside: dict[str, list[str]] = {}  # the loops that would have been fused with one, and stand inside of it
    parts = {step[1]["loop"] for step in trace if step[0] == "rfactor"}
    tiles = {prod(step[1]["factors"][k:]) for step in trace if step[0] == "split"
             for k in range(1, len(step[1]["factors"]))}  # fmt: skip
    for name, arguments, *drawn in trace:
        asked = _renamed(arguments, renamed)
        least = _least_shape(own, arguments) if arguments.get("physical_shape") else None
        first: list[str] = []
        if name == "fuse":  # loops with iterations enough for all threads come first, and then the longest
            extents = [min(as_int(find_loop(own.func, v).extent), EACH * target.threads) for v in arguments["loops"]]
            first = [v for _, v in sorted(zip(extents, asked["loops"], strict=True), key=lambda item: -item[0])]
        earlier = own.func
        before = own.apply(name, arguments, *drawn)
        if name == "annotate" and arguments["ann_key"] in left_out:
            continue
        if name == "split" and not parts.isdisjoint(before):
            asked = {**asked, "factors": _filled(made.func, asked, [loop in parts for loop in before])}
        try:
            multiples = None if least is None else _multiples(arguments, least, tiles)
            after = _applied(made, name, asked, multiples, first)
        except ScheduleError:
            innermost = _innermost(earlier, arguments) if name == "transform_block_layout" else []
            if innermost:
                renamed.update((new, renamed.get(old, old)) for new, old in zip(before, innermost, strict=True))
            elif name not in DISPENSABLE and not _only_reshapes(own.func, name, arguments):
                raise
            continue
        renamed.update(_pairs(before, after))
        renamed.update(_initialising(earlier, name, arguments, renamed))
        if name == "fuse":
            left = {stmt.var.name for stmt in walk_stmts(made.func.body) if isinstance(stmt, For)} - {after}
            beside[after] = [loop for loop in asked["loops"] if loop in left]
        others = beside.get(asked["loop"], ()) if name == "bind" and asked["thread_axis"] == "blockIdx.x" else ()
        for loop, axis in zip(others, ("blockIdx.y", "blockIdx.z"), strict=False):
            with contextlib.suppress(ScheduleError):  # where work-groups may not share it
                made.bind(loop, axis)
    if boundary == "over":
        for loop in dict.fromkeys(loop for loop, _ in _edges(made.func, target)):
            for block in [stmt.name for stmt in walk_stmts(find_loop(made.func, loop)) if isinstance(stmt, Block)]:
                with contextlib.suppress(ScheduleError):
                    made.remove_branching_through_overcompute(block, loops=[loop])
    for loop, key in _edges(made.func, target):
        if key not in left_out:
            made.annotate(loop, key, True)
    return made


def first_with(func: PrimFunc, ranges: Mapping[str, Range], name: str, least: int) -> int | None:
    """The first number of a size with which each extent over it is at least so large, other sizes at their largest.

    None where none is.  A program of 12 rows for each of its columns may have the rows as its size.
    """
    var = next(v for v in func.integers if v.name == name)
    most, numbers = {v: ranges[v.name].high for v in func.integers}, ranges[name]
    over = [extent for extent in func.stated if var in free_variables(extent)] or [var]

    def smallest(k: int) -> int:
        given = {**most, var: numbers.low + k * numbers.step}
        return min(valued(extent, given) for extent in over)

    first = bisect_left(range(numbers.count), least, key=smallest)
    return None if first == numbers.count else numbers.low + first * numbers.step


def _only_reshapes(func: PrimFunc, name: str, arguments: dict[str, Any]) -> bool:
    """Whether a step gives a parameter, which lies as the caller's array does, other extents and nothing else."""
    if name != "transform_layout":
        return False
    layout = func.layout_of(buffer_of(func, arguments["block"], arguments["buffer"]).name)
    return layout is not None and layout.is_in_place


def _filled(func: PrimFunc, arguments: dict[str, Any], parts: Sequence[bool]) -> list[int | None]:
    """The factors of a split, those of loops that become `parts` of a sum so small that none of these is ever empty."""
    least, _ = start(func).facts.interval(widened(as_expr(find_loop(func, arguments["loop"]).extent)))
    found = list[int | None]()
    for factor, is_part in zip(reversed(arguments["factors"]), reversed(parts), strict=True):
        while is_part and factor is not None and factor > max(least, 1):
            factor = (factor + 1) // 2
        least = least if factor is None else least // factor
        found.insert(0, factor)
    return found


def _initialising(
    func: PrimFunc, name: str, arguments: dict[str, Any], renamed: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Copies of loops that initialise a sum, which have the names of these in both programs."""
    if name == "decompose_reduction":
        for loop in loops_above(func, find_block(func, arguments["block"])):
            yield f"{loop.var.name}_init", f"{renamed.get(loop.var.name, loop.var.name)}_init"


def _innermost(func: PrimFunc, arguments: dict[str, Any]) -> list[str]:
    """For each axis that a block gets, the loop of the one that it had which runs in steps of 1 there; or none."""
    block, index_map = find_block(func, arguments["block"]), IndexMap.make(arguments["index_map"])
    found = [""] * len(index_map.indices)
    for number, item in enumerate(block.iters):
        steps = index_map.map_point([int(k == number) for k in range(len(block.iters))])
        found = [str(item.binding) if step == 1 else name for step, name in zip(steps, found, strict=True)]
    return found if all(found) else []


def _edges(func: PrimFunc, target: Target) -> Iterator[tuple[str, str]]:
    """Loops of register tiles that a condition over a size cuts, each with how it is cut: ``peel``, ``mask``."""
    sizes, found = set(func.integers), dict[tuple[str, str], None]()
    has_masks = all(target.has_masks(buffer.dtype) for buffer in func.buffers)
    for block in (stmt for stmt in walk_stmts(func.body) if isinstance(stmt, Block)):
        given = {item.var: item.binding for item in block.iters if item.binding is not None}
        for cond in conjuncts(substitute(block.predicate, given)):
            used = free_variables(cond)
            for loop in loops_above(func, block) if used & sizes else ():
                if loop.var in used and isinstance(loop.extent, Const) and loop.kind in ("unrolled", "vectorized"):
                    keys = {"peel", "mask"} if loop.kind == "vectorized" and has_masks else {"peel"}
                    found.update({(loop.var.name, key): None for key in sorted(keys - dict(loop.annotations).keys())})
    yield from found


def _least_shape(schedule: Schedule, arguments: dict[str, Any]) -> tuple[int, ...] | None:
    """The least shape of the image of a layout."""
    try:
        old = buffer_of(schedule.func, arguments["block"], arguments["buffer"])
        return IndexMap.parse(arguments["index_map"]).map_shape(old.shape)
    except (ScheduleError, ValueError, KeyError):
        return None


def _multiples(arguments: dict[str, Any], least: Sequence[int], tiles: Collection[int]) -> list[int]:
    """The number that each physical extent is a multiple of: the largest part of a tile that explains it, or 1."""
    found = []
    for size, wanted in zip(least, arguments["physical_shape"], strict=True):
        parts = sorted({part for tile in tiles for part in range(2, tile + 1) if tile % part == 0}, reverse=True)
        found.append(next((part for part in parts if wanted > size and -(-size // part) * part == wanted), 1))
    return found


def _applied(
    schedule: Schedule, name: str, arguments: dict[str, Any], multiples: Sequence[int] | None, first: Sequence[str]
) -> Any:
    """Apply the first form of a step that is accepted; what it returns.  Raises ScheduleError of the step itself.

    `multiples` are those of a layout's extents, where its shape is given in numbers; of the loops that are fused the
    `first` may be an expression.
    """
    refused: ScheduleError | None = None
    for steps in _forms(schedule.func, name, arguments, multiples, first):
        before = dict(vars(schedule))
        try:
            results = [schedule.apply(*step) for step in steps]
        except ScheduleError as error:
            refused = refused or error
        except ODD_ARGUMENTS as error:
            refused = refused or ScheduleError("{error}", error=str(error)).at(name, arguments)
        else:
            return steps[-1][1]["loops"][0] if name == "fuse" and steps[-1][0] != name else results[-1]
        vars(schedule).update(before)
    assert refused is not None
    raise refused


def _forms(
    func: PrimFunc, name: str, arguments: dict[str, Any], multiples: Sequence[int] | None, first: Sequence[str]
) -> Iterator[list[Step]]:
    yield [[name, arguments]]
    if name == "split" and arguments["factors"][0] is not None:
        yield [[name, {**arguments, "factors": [None, *arguments["factors"][1:]]}]]
    if name == "transform_layout" and multiples is not None:
        yield [[name, {**arguments, "physical_shape": None, "multiples": list(multiples)}]]
    if arguments.get("physical_shape") is not None:
        yield [[name, {**arguments, "physical_shape": None}]]
    if name == "fuse":
        order = sorted(arguments["loops"], key=lambda loop: isinstance(find_loop(func, loop).extent, Const))
        if order != arguments["loops"]:
            yield [["reorder", {"loops": order}], [name, {"loops": order}]]
        open_ended = [loop for loop in order if not isinstance(find_loop(func, loop).extent, Const)]
        open_ended.sort(key=first.index)
        alone = [*open_ended[:1], *(loop for loop in order if loop not in open_ended)]
        if len(open_ended) > 1:
            fused = [[name, {"loops": alone}]] if len(alone) > 1 else []
            yield [["reorder", {"loops": [*alone, *open_ended[1:]]}], *fused]


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [_renamed(part, names) for part in value]
    return names.get(value, value) if isinstance(value, str) else value


def _pairs(before: Any, after: Any) -> Iterator[tuple[str, str]]:
    """Names that two applications of a step returned, in the places of each other."""
    if isinstance(before, str) and isinstance(after, str):
        yield before, after
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        for old, new in zip(before, after, strict=True):
            yield from _pairs(old, new)
