"""Temporaries whose extents are expressions get the largest extents that these have: memory of a fixed size.

::

    B[n, 32],  n at most 512      ->      B[512, 32]

Every index stays what it is.  Parameters keep their extents, which are those of the caller's arrays.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.context import start
from ...ir.expr import Buffer, free_variables
from ...ir.extents import dims
from ...ir.node import transform
from ...ir.statements import LONGEST
from ...ir.stmt import PrimFunc
from ...ir.text import extents_text
from .errors import LoweringError

MOST_BYTES = 1 << 40


def with_capacities(func: PrimFunc) -> PrimFunc:
    """The function with temporaries of fixed extents.  Raises LoweringError where nothing says how large one may be."""
    if not func.stated:
        return func
    facts = start(func).facts
    made: dict[Buffer, Buffer] = {}

    def capacity(buffer: Buffer) -> Buffer:
        most = tuple(facts.interval(extent)[1] for extent in dims(buffer.extents))
        large = next((e for e, m in zip(buffer.extents, most, strict=True) if m >= LONGEST), None)
        whole = replace(buffer, extents=most)
        if large is not None and not isinstance(large, int):
            names = ", ".join(f"`{v.name}`" for v in sorted(free_variables(large), key=lambda v: v.name))
            raise LoweringError(
                f"the temporary `{buffer.name}` has the extents ({extents_text(buffer.extents)}), and nothing says how "
                f"large {names} may be; state it by `T.assume` at the top of the function"
            )
        if whole.nbytes > MOST_BYTES:
            raise LoweringError(
                f"the temporary `{buffer.name}` of extents ({extents_text(buffer.extents)}) may need {whole.nbytes} "
                f"bytes, more than {MOST_BYTES}; assume less at the top of the function"
            )
        return whole

    def swap(node: object) -> object:
        if not isinstance(node, Buffer) or node.is_fixed or node in func.params or node.data:
            return node
        if node not in made:
            made[node] = capacity(node)
        return made[node]

    result: PrimFunc = transform(func, swap)
    return result
