"""The one isl context, and the budget of elementary operations that each question to it has.

Every call of isl happens inside `question`.  Beyond the budget, or where isl cannot
answer, the question ends with `Unknown`; the context stays usable.  Nested questions
share the budget of the outermost one, so what is remembered between questions
(`sets.points`) is asked for outside of one: whether an answer fits its budget then
does not depend on what was asked before.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import islpy as isl

from ...errors import InternalError
from ...forks import held_at_forks

MAX_OPERATIONS = 400_000  # of isl for one question, a choice

P = ParamSpec("P")
R = TypeVar("R")


class NotAffine(InternalError, ValueError):
    """The expression has no exact description as a set."""


class Unknown(InternalError):
    """The question was too hard for its budget of operations."""


context = isl.Context()
context.set_on_error(isl.on_error.CONTINUE)
_lock = held_at_forks(threading.RLock())
_depth = 0


@contextmanager
def question(budget: int | None = None) -> Iterator[None]:
    """A stretch of isl calls with one budget, `MAX_OPERATIONS` unless given.  Raises Unknown."""
    global _depth
    with _lock:
        limit = MAX_OPERATIONS if budget is None else budget
        if _depth == 0:
            context.reset_operations()
            context.set_max_operations(limit)
        _depth += 1
        try:
            yield
        except isl.Error as err:
            if "maximal number of operations" not in str(err):
                raise Unknown(f"isl could not decide it ({err})") from err
            raise Unknown(f"the exact set was too large to decide within {limit} operations") from err
        finally:
            _depth -= 1
            if _depth == 0:
                context.set_max_operations(0)
                context.reset_operations()


def guarded(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn` as one question."""

    @functools.wraps(fn)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        with question():
            return fn(*args, **kwargs)

    return asked
