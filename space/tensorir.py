"""Options of TensorIR's primitives that leave nothing to decide here.

A script written for TVM may spell them out; they are accepted where they ask for what
happens anyway, and are no part of the instruction.  Loops and iterators of extent 1 are
always kept, a stage is placed before everything that reads it, and conditions at ragged
edges are never left out unproven.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from .errors import ScheduleError

_UNIT_ITERS: dict[str, tuple[Any, ...]] = {"preserve_unit_iters": (True, False)}
_PLACE: dict[str, tuple[Any, ...]] = {"preserve_unit_loops": (True, False), "index": (-1, -2)}
_CONSUMERS: dict[str, tuple[Any, ...]] = {"consumer_blocks": (None, [], ())}
_INJECTIVE: dict[str, tuple[Any, ...]] = {"assume_injective_transform": (False,)}

OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "split": {**_UNIT_ITERS, "disable_predication": (False,)},
    "fuse": _UNIT_ITERS,
    "blockize": _UNIT_ITERS,
    "tensorize": _UNIT_ITERS,
    "compute_at": _PLACE,
    "reverse_compute_at": _PLACE,
    "cache_read": _CONSUMERS,
    "cache_write": _CONSUMERS,
    "reindex_cache_read": _CONSUMERS,
    "reindex_cache_write": _CONSUMERS,
    "transform_layout": _INJECTIVE,
}
"""For each primitive its options, by keyword, and the values that ask for what happens anyway."""


def without_options(primitive: str, named: dict[str, Any], own: Container[str]) -> dict[str, Any]:
    """The arguments without TensorIR's options; `own` are the names that the primitive itself has.

    Raises ScheduleError for a value that asks for something else.
    """
    rest = dict(named)
    for name, accepted in OPTIONS.get(primitive, {}).items():
        if name not in rest or name in own:
            continue
        value = rest.pop(name)
        if not any(value is a or value == a for a in accepted):
            raise ScheduleError(
                "`{primitive}` takes {name}={accepted} only, but got {value!r}",
                primitive=primitive, name=name, accepted=" or ".join(map(repr, accepted)), value=value,
            )  # fmt: skip
    return rest
