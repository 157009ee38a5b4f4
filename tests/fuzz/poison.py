"""Undef in a run: a number that may be computed on, and that nothing may be decided by."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn


class Undecided(Exception):
    """Something is decided by undef: a condition, an index, an extent."""


class Poison:
    """A value that was computed from undef, whatever number that is in this run."""

    def __init__(self, value: Any) -> None:
        self.value = plain(value)

    def _refuse(self) -> NoReturn:
        raise Undecided("undef decides a condition, an index, an extent or an iterator")

    def __bool__(self) -> bool:
        self._refuse()

    def __index__(self) -> int:
        self._refuse()

    def __hash__(self) -> int:
        self._refuse()

    def __neg__(self) -> Poison:
        return Poison(-self.value)


def plain(value: Any) -> Any:
    """The number itself."""
    return value.value if isinstance(value, Poison) else value


def lifted(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose result is computed from undef if an argument is; an integer times 0 is 0."""

    def on_values(*args: Any) -> Any:
        result = function(*map(plain, args))
        return Poison(result) if any(isinstance(a, Poison) for a in args) else result

    return on_values


def logic(conjunction: bool, first: Any, second: Callable[[], Any]) -> Any:
    """A conjunction or disjunction: undef where an operand is, and the other does not decide by itself."""
    if isinstance(first, Poison):
        other = second()
        return other if not isinstance(other, Poison) and bool(other) is not conjunction else Poison(first.value)
    return second() if bool(first) is conjunction else first


def _product(a: Any, b: Any) -> Any:
    return 0 if any(type(x) is int and x == 0 for x in (a, b)) else lifted(operator.mul)(a, b)


def _install(name: str, function: Callable[[Any, Any], Any]) -> None:
    setattr(Poison, f"__{name}__", function)
    setattr(Poison, f"__r{name}__", lambda self, other: function(other, self))


for _name in ("add", "sub", "truediv", "floordiv", "mod", "and", "or", "xor"):
    _install(_name, lifted(getattr(operator, {"and": "and_", "or": "or_"}.get(_name, _name))))
_install("mul", _product)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Poison, f"__{_name}__", lifted(getattr(operator, _name)))
