"""One definition of a primitive gives method, signature, documentation, trace instruction and JSON.

A primitive is a pure function ``(func, **arguments) -> (func, result)``.  The
arguments of its signature are the arguments of the schedule's method and of the
instruction; they are JSON values after `encode`.  Results are names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..ir.affine.index_map import IndexMap
from ..ir.expr import Expr
from ..ir.stmt import PrimFunc
from .errors import ScheduleError

Result = tuple[PrimFunc, Any]


@dataclass(frozen=True)
class Primitive:
    """A named rewrite with its signature (`func` left out)."""

    name: str
    rewrite: Callable[..., Result]
    signature: inspect.Signature

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Arguments by name, in JSON values, defaults left out.

        Raises ScheduleError for arguments that do not fit the signature.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ScheduleError("{error}", error=str(error)).at(self.name, {}) from None
        return {name: encode(value) for name, value in bound.arguments.items()}

    def apply(self, func: PrimFunc, arguments: Mapping[str, Any]) -> Result:
        """The rewritten function and the names that the rewrite made."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, value in arguments.items():
            if self.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                positional.extend(value)
            else:
                named[name] = value
        try:
            return self.rewrite(func, *positional, **named)
        except ScheduleError as error:
            raise error.at(self.name, dict(arguments)) from None


PRIMITIVES: dict[str, Primitive] = {}


def primitive(rewrite: Callable[..., Result]) -> Callable[..., Result]:
    """Register a rewrite under its function's name."""
    signature = inspect.signature(rewrite)
    rest = [p for name, p in signature.parameters.items() if name != "func"]
    PRIMITIVES[rewrite.__name__] = Primitive(rewrite.__name__, rewrite, signature.replace(parameters=rest))
    return rewrite


def encode(value: Any) -> Any:
    """A Python argument as a JSON value: index maps as text, sequences as lists."""
    if isinstance(value, IndexMap):
        return value.text
    if isinstance(value, Expr):
        raise ScheduleError("an expression cannot be an argument of an instruction, but got {value!r}", value=value)
    if callable(value):
        return IndexMap.from_func(value).text
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    return value
