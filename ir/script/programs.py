"""What stands for a program: every function that takes one takes all of these.

A function or a module; what has one as its `func` (a workload, a schedule); the text of a program, or what has one as
its `script` (a record).  `space.workloads.taking` takes names and files besides.
"""

from __future__ import annotations

import os
from typing import Protocol, TypeAlias

from ..stmt import Module, PrimFunc
from .parser import parse


class HasFunc(Protocol):
    """A workload, or a schedule."""

    @property
    def func(self) -> PrimFunc: ...


class HasScript(Protocol):
    """A record."""

    @property
    def script(self) -> str: ...


Program: TypeAlias = "PrimFunc | Module | HasFunc | HasScript | str | os.PathLike[str]"
"""What functions take; anything else is a TypeError."""

TAKEN = "a program: a PrimFunc or a Module, a Workload, a Schedule, a Record, or the text of a script"


def program_of(what: Program, asked: str) -> PrimFunc | Module:
    """The function or module that `what` stands for, in a call of `asked`.  Raises TypeError where it is none."""
    if isinstance(what, PrimFunc | Module):
        return what
    held = getattr(what, "func", None)
    if isinstance(held, PrimFunc):
        return held
    text = what if isinstance(what, str) else getattr(what, "script", None)
    if isinstance(text, str) and is_text(text):
        return parse(text)
    shown = repr(what) if isinstance(what, str) and len(what) < 80 else f"something of type {type(what).__name__}"
    hint = ""
    if isinstance(what, str):
        hint = "; the program of a workload is `ss.workload(name).func`"
    elif callable(what) and not isinstance(what, type):
        hint = "; `@ss.prim_func` makes one of a Python function"
    raise TypeError(f"`{asked}` takes {TAKEN}; but got {shown}{hint}")


def func_of(what: Program, asked: str) -> PrimFunc:
    """`program_of`, one function.  Raises TypeError for a module of several."""
    found = program_of(what, asked)
    if isinstance(found, PrimFunc):
        return found
    if len(found.functions) == 1:
        return found.functions[0]
    names = ", ".join(func.name for func in found.functions) or "none"
    raise TypeError(f'`{asked}` takes one function, but the module has {names}; choose one, as in `module["name"]`')


def is_text(text: str) -> bool:
    """Whether a text can be a program, which no name and no path can be."""
    return "\n" in text or "def " in text
