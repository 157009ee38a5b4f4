"""Which pad values make overcompute provable: asked of the engine, for a buffer and its consumers.

RFC 0077 leaves open how a layout's pad value is chosen.  Here each candidate is tried:
the layout is applied with it, the consumers' loops are rounded up to the layout's tiles
(bare loops become sequential in the buffer), and `remove_branching_through_overcompute`
says whether the conditions that appear can go::

    propose_pad_values(func, "A", "lambda i: [i // 4, i % 4]")
        0.0      provable
        "undef"  refused: A[3, 2] is undef ...
        None     refused: the body would read A[3, 2], whose pad_value is None

Whatever else the rounded loops reach beyond its shape is enlarged for the question: other
inputs by padding that holds 1, which is finite but no neutral element of a sum, outputs by
`undef`.  So a value is provable if it is neutral beside any other finite padding.

The design space offers a subset that follows from the anchor's reduction alone
(`techniques.staging`); this is the question that they abbreviate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ir import dtypes
from ...ir.arith.simplify import bound
from ...ir.dataflow.instances import instances
from ...ir.expr import Binary, Buffer, Const, Load, Var, free_variables
from ...ir.layout.index_map import IndexMap
from ...ir.node import walk
from ...ir.script.programs import Program
from ...ir.stmt import PrimFunc, blocks
from ..errors import ScheduleError
from ..schedule import Schedule
from ..tree import block_stores, consumers, extent_of, find_block, loops_above
from ..workloads.taking import func_of

PadValue = float | int | str | None


@dataclass(frozen=True)
class Proposal:
    """A pad value, the consumers (`blocks`) all of whose conditions it removes, and the `refusal` of the others."""

    pad_value: PadValue
    blocks: tuple[str, ...]
    refusal: str = ""

    @property
    def provable(self) -> bool:
        """Whether no consumer keeps a condition."""
        return not self.refusal


def candidates(dtype: str) -> tuple[PadValue, ...]:
    """0, 1, the neutral elements of max and min (for integers the ends of the type), undef and None."""
    if dtypes.is_float(dtype):
        return (0.0, 1.0, "-inf", "inf", "undef", None)
    low, high = dtypes.int_range(dtype) if dtypes.is_int(dtype) else (0, 1)
    return (*dict.fromkeys((0, 1, low, high)), "undef", None)


def propose_pad_values(
    func: Program,
    buffer: str,
    index_map: Any,
    *,
    physical_shape: Sequence[int] | None = None,
    values: Sequence[PadValue] | None = None,
) -> tuple[Proposal, ...]:
    """Try every pad value of `buffer` under a layout, in the order of `candidates`.

    `buffer` is a parameter or an allocation that blocks read, `index_map` a layout as `transform_layout` takes it;
    `values` replaces the candidates.  Raises ScheduleError where the layout itself is refused with every value,
    where there is none to try, or where nothing of it concerns a consumer.
    """
    func = func_of(func, "propose_pad_values")
    known = [b for b in (*func.buffers, *[b for block in blocks(func.body) for b in block.allocs]) if b.name == buffer]
    if not known:
        raise ScheduleError("there is no buffer `{name}`", name=buffer)
    readers = [b.name for b in consumers(func, known[0])]
    if not readers:
        raise ScheduleError("no block reads `{name}`", name=buffer)
    wanted = candidates(known[0].dtype) if values is None else values
    if not wanted:
        raise ScheduleError("there is no pad value to try for `{name}`", name=buffer)
    found: list[Proposal] = []
    refused: list[ScheduleError] = []
    for value in wanted:
        sch = Schedule(func)
        try:
            sch.transform_layout(readers[0], buffer, index_map, value, physical_shape=physical_shape)
        except ScheduleError as error:
            refused.append(error)
            found.append(Proposal(value, (), str(error)))
            continue
        found.append(_tried(sch, value, known[0], index_map, physical_shape, readers))
    if len(refused) == len(wanted):
        raise refused[0]
    return tuple(found)


def _tried(
    sch: Schedule,
    value: PadValue,
    buffer: Buffer,
    index_map: Any,
    physical_shape: Sequence[int] | None,
    readers: Sequence[str],
) -> Proposal:
    free: list[str] = []
    reasons: list[str] = []
    for reader in readers:
        try:
            if find_block(sch.func, reader).iters:
                _round(sch, reader, buffer, IndexMap.make(index_map, len(buffer.shape)), physical_shape)
                _enlarge(sch, reader, buffer.name)
            else:
                sch.sequential_buffer_access(reader, buffer.name)
            if not _is_free(sch.func, reader, buffer.name):
                sch.remove_branching_through_overcompute(reader)
        except ScheduleError as error:
            reasons.append(str(error))
            continue
        if _is_free(sch.func, reader, buffer.name):
            free.append(reader)
        else:
            reasons.append(f"block `{reader}` keeps a condition")
    return Proposal(value, tuple(free), "; ".join(reasons))


def _is_free(func: PrimFunc, reader: str, buffer: str) -> bool:
    """Whether every statement of a block that reads the buffer runs without a condition."""
    return not any(
        s.conditions for s in instances(func).below(find_block(func, reader))
        if not s.is_init and any(a.buffer.name == buffer for a in s.reads)
    )  # fmt: skip


def _round(
    sch: Schedule, reader: str, buffer: Buffer, index_map: IndexMap, physical_shape: Sequence[int] | None
) -> None:
    """Split the consumer's loops along the padded dimensions so that they cover whole tiles."""
    tiles = _tiles(index_map, buffer, physical_shape)
    for loop, tile in _loops_along(sch.func, reader, buffer.name, index_map, tiles).items():
        target = next(item for item in loops_above(sch.func, find_block(sch.func, reader)) if item.var.name == loop)
        if extent_of(target) % tile:
            sch.split(loop, [None, tile])


def _enlarge(sch: Schedule, reader: str, buffer: str) -> None:
    """Give every other buffer of a block the extents that its loops reach, conditions left out."""
    written = {s.buffer.name for s in block_stores(find_block(sch.func, reader))}
    for name, shape in _reach(sch.func, reader).items():
        if name != buffer:
            names = ", ".join(f"i{d}" for d in range(len(shape)))
            value = "undef" if name in written else 1
            sch.transform_layout(reader, name, f"lambda {names}: [{names}]", value, physical_shape=shape)


def _reach(func: PrimFunc, reader: str) -> dict[str, list[int]]:
    """The shapes of the buffers that a block's loops leave, as large as these go."""
    program = instances(func)
    found: dict[str, list[int]] = {}
    for statement in program.below(find_block(func, reader)):
        for access in statement.accesses:
            high = [bound(i, statement.bounds)[1] + 1 for i in access.indices]
            shape = found.get(access.buffer.name, list(access.buffer.shape))
            found[access.buffer.name] = [max(h, e) for h, e in zip(high, shape, strict=True)]
    known = {a.buffer.name: list(a.buffer.shape) for s in program.statements for a in s.accesses}
    return {name: shape for name, shape in found.items() if shape != known[name]}


def _tiles(index_map: IndexMap, buffer: Buffer, physical_shape: Sequence[int] | None) -> dict[int, int]:
    """For each logical dimension that the layout pads, the step that it is rounded up to."""
    found: dict[int, int] = {}
    for number, index in enumerate(index_map.indices):
        for node in walk(index):
            if isinstance(node, Binary) and node.op in ("//", "%") and isinstance(node.b, Const):
                for dim, var in enumerate(index_map.variables):
                    if var in free_variables(node.a):
                        found[dim] = max(found.get(dim, 1), int(node.b.value))
        if isinstance(index, Var) and physical_shape is not None:
            dim = index_map.variables.index(index)
            if physical_shape[number] > buffer.shape[dim]:
                found[dim] = physical_shape[number]
    return found


def _loops_along(
    func: PrimFunc, reader: str, buffer: str, index_map: IndexMap, tiles: dict[int, int]
) -> dict[str, int]:
    """The loops of a consumer that move along a padded dimension, with the step of that dimension."""
    block = find_block(func, reader)
    found: dict[str, int] = {}
    for load in (n for n in walk(block.body) if isinstance(n, Load) and n.buffer.name == buffer):
        for dim, tile in tiles.items():
            parts = [i for i, e in zip(load.indices, index_map.indices, strict=True)
                     if index_map.variables[dim] in free_variables(e)]  # fmt: skip
            used = {v for part in parts for v in free_variables(part)}
            for item in block.iters:
                if item.var in used:
                    found.update({v.name: tile for v in free_variables(item.binding)})
    return found
