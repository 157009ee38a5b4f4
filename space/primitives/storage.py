"""How the rows of a buffer lie in memory."""

from __future__ import annotations

from math import prod

from ...ir.stmt import PrimFunc
from ..errors import ScheduleError
from ..primitive import Result, primitive
from ..tree import find_block
from .cache import write_buffer
from .layout import transform_layout


@primitive
def storage_align(func: PrimFunc, block: str, buffer_index: int, axis: int, factor: int, offset: int) -> Result:
    """Space out ``A[i]`` so that the stride of `axis` is ``offset`` modulo ``factor``: rows that avoid one another.

    The extent of the next axis grows by padding that nobody touches; ``A[i]`` stays ``A[i]``.
    Conditions: (1) `factor` is positive, and `axis` a dimension of the buffer; (2) the buffer is
    allocated in the function; (3) some extent of the next axis gives such a stride.
    """
    buffer = write_buffer(func, find_block(func, block), buffer_index)
    rank = buffer.rank
    if factor < 1 or not -rank <= axis < rank:
        raise ScheduleError("(1) `factor` must be positive and `axis` in [{low}, {rank}), but got {factor} and {axis}",
                            low=-rank, rank=rank, factor=factor, axis=axis)  # fmt: skip
    if buffer in func.params:
        raise ScheduleError("(2) `{buffer}` is a parameter, whose strides are the caller's",
                            hint="use cache_write", buffer=buffer.name)  # fmt: skip
    after = axis % rank + 1
    shape = list(buffer.shape)
    if after < rank:
        unit = prod(shape[after + 1 :])
        fitting = [n for n in range(shape[after], shape[after] + factor) if n * unit % factor == offset % factor]
        shape[after : after + 1] = fitting[:1] or [0]
    elif 1 % factor != offset % factor:
        shape[-1] = 0
    if 0 in shape:
        raise ScheduleError("(3) no stride of axis {axis} of `{buffer}` is {offset} modulo {factor}",
                            axis=axis, buffer=buffer.name, offset=offset % factor, factor=factor)  # fmt: skip
    names = [f"d{k}" for k in range(rank)]
    items = [part for k, n in enumerate(names) for part in (["AXIS_SEPARATOR"] * (k in buffer.axis_separators) + [n])]
    text = f"lambda {', '.join(names)}: [{', '.join(items)}]"
    return transform_layout(func, block, ["write", buffer_index], text, None, physical_shape=shape)
