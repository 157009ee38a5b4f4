"""Wrappers: methods of a schedule that decide on a sequence of primitives and apply it.

The trace holds the primitives, so a wrapper needs no instruction, no JSON and no replay of
its own, and may become cleverer without changing what old traces mean.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

from ..ir.caches import cached
from ..ir.stmt import Module, PrimFunc
from .primitive import find_primitive

Wrapper = Callable[..., Any]

WRAPPERS: dict[str, Wrapper] = {}


def wrapper(fn: Wrapper) -> Wrapper:
    """Register ``fn(sch, ...)`` as a method of schedules under its name."""
    WRAPPERS[fn.__name__] = fn
    return fn


@cached(64)
def wrapper_signature(name: str) -> inspect.Signature:
    """What one passes to a wrapper: without the schedule, and without what it returns."""
    found = inspect.signature(WRAPPERS[name])
    return found.replace(parameters=[*found.parameters.values()][1:], return_annotation=inspect.Signature.empty)


class Rewritable(Protocol):
    """What a wrapper needs of a schedule: its function, and the primitives as methods."""

    @property
    def func(self) -> PrimFunc: ...

    def __getattr__(self, name: str) -> Callable[..., Any]: ...


class Unrecorded:
    """A function to which a primitive applies a wrapper: as a schedule, but without a trace."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func

    def __getattr__(self, name: str) -> Callable[..., Any]:
        primitive = find_primitive(name)

        def method(*args: Any, **kwargs: Any) -> Any:
            arguments = primitive.bind_to(self.func, *args, **kwargs)
            module, current, result = primitive.apply_in(Module((self.func,)), self.func.name, arguments)
            self.func = module[current]
            return result

        return method
