"""The namespace ``T``: what makes a script a valid Python module.

Functions of the script are read from their source and never run, so most of
``T`` is only ever looked at by the parser.  What Python evaluates while it
defines a function is real: decorators, annotations, and, for index maps and
pad values, every function of expressions (``T.exp``, ``T.float32(0)``, ...).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, overload

from ..expr import Buffer as _Buffer
from ..expr import Undef
from ..stmt import Module, PrimFunc
from ..syntax.base import ScriptError
from ..syntax.intrinsics import TABLE, lookup
from ..syntax.words import STATEMENTS, near
from .parser import parse_function

_MARKERS = frozenset(name.split(".")[0] for name in STATEMENTS)


class handle:
    """The type of a parameter that ``T.match_buffer`` gives a shape."""


class _BufferAnnotation:
    """``T.Buffer(shape, dtype, ...)``, or ``T.Buffer[shape, dtype]``: the annotation of a buffer parameter.

    The parser reads the annotation's text; what Python makes of it only has to exist.
    """

    def __call__(self, shape: int | Sequence[int], dtype: Any = "float32", **options: Any) -> _Buffer:
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        separators = tuple(options.get("axis_separators") or ())
        name = dtype if isinstance(dtype, str) else dtype.args[0]  # `T.float32` is the builder of its constants
        return _Buffer("", extents, name, options.get("scope") or "global", separators)

    def __getitem__(self, items: Any) -> _Buffer:
        pair = isinstance(items, tuple) and len(items) == 2 and not isinstance(items[1], int)
        return self(*items) if pair else self(items)


Buffer = _BufferAnnotation()


@overload
def prim_func(function: Callable[..., Any], /) -> PrimFunc: ...
@overload
def prim_func(**options: bool) -> Callable[[Callable[..., Any]], PrimFunc]: ...


def prim_func(
    function: Callable[..., Any] | None = None, /, **options: bool
) -> PrimFunc | Callable[[Callable[..., Any]], PrimFunc]:
    """Decorator: the function's source text as a program.

    Names that the function takes from around it must be numbers.  TVM's options
    (``private``, ``s_tir``, ``check_well_formed``) are accepted and change nothing.
    Raises ScriptError, with the line of the file, and OSError where Python has no source.
    """
    unknown = set(options) - {"private", "s_tir", "check_well_formed"}
    if unknown:
        raise TypeError(f"`prim_func` has no option `{sorted(unknown)[0]}`")
    caller = sys._getframe(1)
    captured = {**caller.f_globals, **caller.f_locals}
    if function is not None:
        return _read(function, captured)
    return lambda real: _read(real, captured)


def _read(function: Callable[..., Any], captured: dict[str, Any]) -> PrimFunc:
    if not inspect.isfunction(function):
        raise TypeError(f"`prim_func` decorates a function, but got `{function!r}`")
    outer = inspect.getclosurevars(function).nonlocals
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError as error:
        raise OSError(f"the source of `{function.__name__}` is not available; pass its text to `parse`") from error
    return parse_function("".join(lines), {**captured, **outer}, max(first, 1))


def ir_module(cls: type) -> Module:
    """Decorator: the ``prim_func``s of a class as a module, in order."""
    return Module(tuple(value for value in vars(cls).values() if isinstance(value, PrimFunc)))


class _Undefined(str):
    """The pad value ``"undef"``; called, the expression of some value that the compiler may choose."""

    def __call__(self, dtype: str = "float32") -> Undef:
        return Undef(dtype)


undef = _Undefined("undef")


def __getattr__(name: str) -> Any:
    """A function of expressions, a dtype, or a marker for what only the parser understands."""
    builder = lookup(name)
    if builder is not None:
        return builder
    if name in _MARKERS:
        return _Marker(name)
    known = {*_MARKERS, *TABLE, "Buffer", "prim_func", "ir_module"}
    raise AttributeError(f"the script namespace has no `T.{name}`{near(name, known, 'T.')}")


def __dir__() -> list[str]:
    return sorted({*_MARKERS, *(n for n in TABLE if n.isidentifier()), "Buffer", "handle", "prim_func", "ir_module"})


class _Marker:
    """A statement of the script, which means nothing when Python runs it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> _Marker:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Marker(f"{self.name}.{name}")

    def __call__(self, *_args: object, **_keywords: object) -> Any:
        raise TypeError(f"`T.{self.name}` belongs in a function decorated with `@T.prim_func`, which is never run")


__all__ = ["Buffer", "ScriptError", "handle", "ir_module", "prim_func", "undef"]
