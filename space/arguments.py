"""Arguments of instructions: JSON values, checked against the signatures of the primitives.

A value that sampling drew is an argument by reference, ``{"ref": "v0"}``, so that
another decision reaches every instruction that used it.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, Union, get_args, get_origin

from ..ir.expr import Expr
from ..ir.layout import pad_value
from ..ir.layout.index_map import IndexMap
from .errors import ScheduleError

MAX_DEPTH = 16
MAX_TEXT = 8192
MAX_INTEGER = 2**63


class ChosenNumber(int):
    """A number that sampling drew; arithmetic on it gives a plain number."""

    ref: str


class ChosenName(str):
    """A name that sampling drew."""

    ref: str


def chosen(value: Any, ref: str) -> Any:
    """`value` with the name under which instructions refer to it."""
    result = ChosenNumber(value) if isinstance(value, int) else ChosenName(value)
    result.ref = ref
    return result


def encode(value: Any) -> Any:
    """A Python argument as a JSON value: functions as text, sequences as lists, drawn values by reference."""
    if isinstance(value, (ChosenNumber, ChosenName)):
        return {"ref": value.ref}
    if isinstance(value, IndexMap):
        return value.text
    if isinstance(value, Expr):
        raise ScheduleError("an expression cannot be an argument of an instruction, but got {value!r}", value=value)
    if callable(value):
        try:
            return IndexMap.from_func(value).text
        except ValueError as error:
            raise ScheduleError("{error}", error=str(error)) from None
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    return value


def is_variadic(value: Any) -> bool:
    """Whether `value` is a function of ``*indices``, of which there may be any number."""
    if isinstance(value, (IndexMap, str)) or not callable(value):
        return False
    return any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(value).parameters.values())


def encode_argument(name: str, value: Any) -> Any:
    """An argument by its name; a ``pad_value`` may be a function of indices that returns any expression."""
    if name != "pad_value":
        return encode(value)
    try:
        return pad_value.encode(value)
    except pad_value.PadValueError as error:
        raise ScheduleError("{error}", error=str(error)) from None


def is_ref(value: Any) -> bool:
    """Whether a JSON value stands for what sampling drew."""
    return isinstance(value, dict) and set(value) == {"ref"} and isinstance(value["ref"], str)


def refs(value: Any) -> set[str]:
    """The names of everything drawn that a JSON value uses."""
    if is_ref(value):
        return {value["ref"]}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {name for part in parts for name in refs(part)}


def resolve(value: Any, drawn: Mapping[str, Any]) -> Any:
    """`value` with what was drawn in the places of references.  Raises ScheduleError for an unknown one."""
    if is_ref(value):
        if value["ref"] not in drawn:
            raise ScheduleError("`{name}` has not been drawn by an instruction before", name=value["ref"])
        return drawn[value["ref"]]
    if isinstance(value, dict):
        return {key: resolve(part, drawn) for key, part in value.items()}
    return [resolve(part, drawn) for part in value] if isinstance(value, list) else value


def check_json(value: Any, depth: int = 0) -> None:
    """Raise ScheduleError unless `value` is made of JSON's types, not too deep and without huge texts and integers."""
    if depth > MAX_DEPTH:
        raise ScheduleError("arguments are nested deeper than {most} levels", most=MAX_DEPTH)
    if isinstance(value, (list, dict)):
        if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
            raise ScheduleError("the keys of an object are texts")
        for part in value.values() if isinstance(value, dict) else value:
            check_json(part, depth + 1)
    elif isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise ScheduleError("a text has {size} characters; the limit is {most}", size=len(value), most=MAX_TEXT)
    elif isinstance(value, int) and abs(value) >= MAX_INTEGER:
        raise ScheduleError("an integer has at most 64 bits, but one here has {bits}", bits=value.bit_length() + 1)
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise ScheduleError("{value!r} is no JSON value", value=type(value).__name__)


def fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value has the type that a signature asks for; references fit everywhere."""
    if hint is Any or is_ref(value):
        return True
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if origin is not None and issubclass(origin, Sequence):
        return isinstance(value, (list, tuple)) and all(fits(v, get_args(hint)[0]) for v in value)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, dict)
    if hint is None or hint is type(None):
        return value is None
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, hint)


def describe(hint: Any) -> str:
    """A type as the signature writes it."""
    if hint is None or hint is type(None):
        return "None"
    if get_origin(hint) is not None:
        return str(hint).replace("collections.abc.", "").replace("typing.", "")
    return str(getattr(hint, "__name__", hint))
