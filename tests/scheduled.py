"""Programs that are scheduled step by step, and whether they still compute the same."""

from __future__ import annotations

from goldens.execute import same_results

from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule


def schedule(text: str, *, is_valid: bool = True) -> Schedule:
    """A schedule of a program's text; one that is not valid shows that a primitive does not rely on it."""
    func = parse(text)
    assert isinstance(func, PrimFunc)
    if is_valid:
        verify(func)
    return Schedule(func)


def same(sch: Schedule, text: str) -> None:
    """Valid, and equal to the program as it was, whatever lies in memory that nothing has written."""
    original = parse(text)
    assert isinstance(original, PrimFunc)
    verify(sch.func)
    same_results(original, sch.func)
