"""What a program is predicted to cost before any kernel of it was measured: the best that its design space promises.

The estimate of the cost model counts the cycles of a candidate; a short evolution in each sketch finds about the least.
It is meant to order what does the same work: combinations of layouts of one operator.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

from ..ir import dtypes
from ..ir.caches import cached
from ..ir.deadline import look
from ..ir.stmt import Block, PrimFunc, read_buffers
from ..ir.target import Target
from ..search.candidates.estimated import promising
from ..search.candidates.evolution import Effort
from ..space.design.sketch import Sketch
from ..space.design.space import generate
from ..space.tree import block_stores, leaf_blocks

CYCLES_PER_US = 3000.0
"""Of a core as they are now."""
BYTES_PER_US = 8000.0
"""What a program is taken to move of which the design space knows no better."""
FILLED_PER_US = 30000.0
"""Bytes of zeros that a thread writes to its caches."""
PER_NEST_US = 1.0
"""Waking and joining threads, for each nest that is shared between them."""
EFFORT = Effort(population=96, generations=1)


@cached(4096)
def predicted_us(func: PrimFunc, interface: tuple[tuple[str, str], ...], target: Target) -> float:
    """Microseconds of a program's best candidate, as the estimate has it."""
    working = [block for block in leaf_blocks(func.body) if block_stores(block)]
    filling = [block for block in working if not read_buffers(block.body)]
    nests = PER_NEST_US * (len(working) - len(filling)) + sum(map(_filled, filling)) / FILLED_PER_US
    best = _least_cycles(func, interface, target)
    if best == inf:
        moved = sum(buffer.size * dtypes.nbytes(buffer.dtype) for buffer in func.buffers)
        return nests + moved / BYTES_PER_US
    return nests + best / CYCLES_PER_US


def _filled(block: Block) -> int:
    """Bytes that a block fills with a number."""
    nbytes = dtypes.nbytes(block_stores(block)[0].buffer.dtype)
    return nbytes * prod(item.extent for item in block.iters)


def _least_cycles(func: PrimFunc, interface: tuple[tuple[str, str], ...], target: Target) -> float:
    """The least estimate of all sketches; infinite where the space has none with an estimate."""
    space = generate(func, target, dict(interface))
    look()
    known = replace(space, sketches=tuple(sketch for sketch in space.sketches if sketch.parts))
    found = [2.0**-best.score * _points(known.sketches[best.sketch]) for best in promising(known, lambda _: EFFORT)]
    look()  # a part of the sketches is no answer that is to be kept
    return min(found, default=inf) / target.threads


def _points(sketch: Sketch) -> int:
    """The points of all that a sketch schedules, in all of its chunks."""
    return sum(prod(axis.extent for axis in part.anchor.axes) * max(1, part.chunks) for part in sketch.parts)
