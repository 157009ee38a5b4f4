"""What the padding of an argument holds, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..expr import Buffer
from ..layout.pad_value import PadValue
from ..numbers import to_storage
from .memory import DEFINED, FORBIDDEN, UNDEF, Memory, Storage
from .nest import Nest
from .values import Evaluator


def pad_contents(
    pad_value: PadValue, buffer: Buffer, data: NDArray[Any], padding: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Values and states (FORBIDDEN, UNDEF or DEFINED) of the elements where `padding`, in order.

    `data` are the elements of the physical `buffer`, flat, of which a pad value may read those
    that are no padding; `padding` is flat, too.
    """
    flat = np.flatnonzero(padding)
    values = np.zeros(len(flat), data.dtype)
    states = np.full(len(flat), FORBIDDEN, np.uint8)
    evaluate = Evaluator({buffer.name: Memory(buffer, Storage((buffer,), np.ascontiguousarray(data), DEFINED))})
    point = np.unravel_index(flat, buffer.shape)
    left = np.arange(len(flat))
    for cond, value in pad_value.pieces:
        if not len(left):
            break
        lanes = _lanes(pad_value, point, left)
        chosen = np.broadcast_to(np.asarray(evaluate(lanes, cond)[0], np.bool_), left.shape)
        here, left = left[chosen], left[~chosen]
        if value is None or not len(here):
            continue
        result, undef = evaluate(_lanes(pad_value, point, here), value)
        values[here] = to_storage(buffer.dtype, result)
        states[here] = DEFINED if undef is None else np.where(undef, UNDEF, DEFINED)
    return values, states


def _lanes(pad_value: PadValue, point: tuple[Any, ...], chosen: NDArray[Any]) -> Nest:
    nest = Nest(None, None, None, len(chosen))
    nest.values.update({v: (np.asarray(p)[chosen], None) for v, p in zip(pad_value.variables, point, strict=True)})
    return nest
