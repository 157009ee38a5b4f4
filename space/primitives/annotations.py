"""Notes on loops and blocks that lowering and users read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...ir.stmt import PrimFunc
from ..errors import ScheduleError
from ..handles import find_block_or_loop
from ..primitive import Result, primitive
from ..tree import with_stmt


@primitive
def annotate(func: PrimFunc, block_or_loop: str, ann_key: str, ann_val: Any) -> Result:
    """Attach ``ann_key: ann_val`` to a loop or block, in place of what that key held.

    Lowering reads ``peel`` on loops, ``mask`` on vectorized ones and ``dot`` on those of four steps, each
    with the value True, and on loops ``prefetch``, the numbers of parameters that are fetched ahead
    inside; other keys are carried along.  A masked loop runs all of its lanes and changes memory in those
    for which its conditions hold, where the target can do that, and is a branch elsewhere.  The steps of
    a ``dot`` add products of bytes, which CPUs and OpenCL devices with `cl_khr_integer_dot_product` do as one;
    what cannot be that is refused.
    Condition: (1) the value is a number, a text, or a list of these.
    """
    if not _is_plain(ann_val):
        raise ScheduleError("(1) an annotation is a number, a text or a list of these, but got {got!r}", got=ann_val)
    stmt = find_block_or_loop(func, block_or_loop)
    value = tuple(ann_val) if isinstance(ann_val, list) else ann_val
    pairs = tuple(p for p in stmt.annotations if p[0] != ann_key)
    return with_stmt(func, stmt, replace(stmt, annotations=(*pairs, (ann_key, value)))), None


@primitive
def unannotate(func: PrimFunc, block_or_loop: str, ann_key: str) -> Result:
    """Remove the annotation `ann_key` of a loop or block.

    Condition: (1) there is one.
    """
    stmt = find_block_or_loop(func, block_or_loop)
    if ann_key not in dict(stmt.annotations):
        raise ScheduleError("(1) `{target}` has no annotation `{key}`", target=block_or_loop, key=ann_key)
    pairs = tuple(p for p in stmt.annotations if p[0] != ann_key)
    return with_stmt(func, stmt, replace(stmt, annotations=pairs)), None


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(v) and not isinstance(v, (list, tuple)) for v in value)
    return isinstance(value, (bool, int, float, str))
