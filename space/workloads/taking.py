"""What stands for a workload: all that stands for a program, the name of a workload, and a script's file."""

from __future__ import annotations

import os
from pathlib import Path

from ...files import small_text
from ...ir.script.programs import TAKEN, Program, is_text
from ...ir.script.programs import func_of as function
from ...ir.stmt import PrimFunc
from .library import Workload, from_func, workload

LARGEST_SCRIPT = 2**20


def workload_of(what: Program, asked: str) -> Workload:
    """The workload that `what` stands for in a call of `asked`; a program without a name of the library is its own.

    Raises TypeError for what stands for none, UnknownWorkload for a name that the library has not.
    """
    if isinstance(what, Workload):
        return what
    if isinstance(what, os.PathLike) or (isinstance(what, str) and what.endswith(".py") and not is_text(what)):
        what = small_text(Path(what), "the script", LARGEST_SCRIPT)
    elif isinstance(what, str) and not is_text(what):
        return workload(what)
    try:
        return from_func(function(what, asked))
    except TypeError as error:
        more = f"{TAKEN} or its path, or the name of a workload"
        raise TypeError(str(error).replace(TAKEN, more)) from None


def func_of(what: Program, asked: str) -> PrimFunc:
    """The program of `workload_of`."""
    return what if isinstance(what, PrimFunc) else workload_of(what, asked).func
