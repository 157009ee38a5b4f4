"""Wrappers: methods of a schedule that decide on a sequence of primitives and apply it.

The trace holds the primitives, so a wrapper needs no instruction, no JSON and no replay of
its own, and may become cleverer without changing what old traces mean.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .arguments import encode_argument
from .errors import ScheduleError

if TYPE_CHECKING:
    from .schedule import Schedule

Wrapper = Callable[..., Any]

WRAPPERS: dict[str, Wrapper] = {}


def wrapper(fn: Wrapper) -> Wrapper:
    """Register ``fn(sch, ...)`` as a method of schedules under its name."""
    WRAPPERS[fn.__name__] = fn
    return fn


def call(schedule: Schedule, name: str, *args: Any, **kwargs: Any) -> Any:
    """Run a wrapper; if a step is refused, no step has been taken.

    Raises ScheduleError with the wrapper's call, and the step that was refused.
    """
    before = dict(vars(schedule))
    try:
        bound = inspect.signature(WRAPPERS[name]).bind(schedule, *args, **kwargs)
    except TypeError as error:
        raise ScheduleError("{error}", error=str(error)).at(name, {}) from None
    arguments = {key: encode_argument(key, value) for key, value in list(bound.arguments.items())[1:]}
    try:
        return WRAPPERS[name](*bound.args, **bound.kwargs)
    except ScheduleError as error:
        vars(schedule).update(before)
        raise ScheduleError("{step}", step=error).at(name, arguments) from error
