"""What every program must satisfy, before and after each transformation: the rules of `catalogue`.

Bounds are not verified here: see `bounds.check_in_bounds`.
"""

from __future__ import annotations

from ..caches import cached
from ..expr import Buffer
from ..layout.layout import Layout
from ..script.programs import Program, program_of
from ..stmt import Module, PrimFunc
from .catalogue import RULES, VerifyError, listing
from .function import FunctionVerifier, describe

__all__ = ["RULES", "VerifyError", "listing", "verify"]


@cached(1024)
def _verified(func: PrimFunc) -> None:
    FunctionVerifier(func).function()


def verify(program: Program) -> None:
    """Raise VerifyError, naming the rule, unless `program` satisfies the rules."""
    if isinstance(program, PrimFunc):
        _verified(program)
        return
    if not isinstance(program, Module):
        verify(program_of(program, "verify"))
        return
    names = [f.name for f in program.functions]
    for name in names:
        if names.count(name) > 1:
            raise VerifyError(14, f"the module has several functions `{name}`")
    _shared_buffers(program)
    for func in program.functions:
        _verified(func)


def _shared_buffers(module: Module) -> None:
    seen: dict[str, tuple[str, Buffer, Layout | None]] = {}
    for func in module.functions:
        for buffer in func.buffers:
            owner, first, layout = seen.setdefault(buffer.name, (func.name, buffer, func.layout_of(buffer.name)))
            if buffer != first:
                raise VerifyError(14, f"`{owner}` and `{func.name}` share the buffer `{buffer.name}`, but one declares "
                                  f"it as {describe(first)}, the other as {describe(buffer)}")  # fmt: skip
            if layout != func.layout_of(buffer.name):
                raise VerifyError(14, f"`{owner}` and `{func.name}` give the buffer `{buffer.name}` that they share "
                                  "different layouts")  # fmt: skip
