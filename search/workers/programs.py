"""Programs as jobs name them: text and trace of a candidate, name and parameters of a workload."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ...backends.lower import LoweringError
from ...ir.caches import cached
from ...ir.collection import uncollected
from ...ir.deadline import has_deadline
from ...ir.layout.index_map import IndexMapError
from ...ir.passes.in_place import NotInPlace
from ...ir.script.parser import ScriptError, parse
from ...ir.stmt import PrimFunc
from ...ir.target import Target
from ...ir.verify.bounds import OutOfBounds
from ...ir.verify.rules import VerifyError, verify
from ...space.design.space import Space, generate
from ...space.schedule import Schedule, ScheduleError, Trace
from ..tasks.task import ProgramName

if TYPE_CHECKING:
    from ...backends.samples import Sample
    from ..candidates.estimated import Liked
    from .protocol import Choice

Words: TypeAlias = "tuple[tuple[str, str], ...]"
REFUSALS = (ScheduleError, OutOfBounds, LoweringError, ScriptError, VerifyError, IndexMapError, NotInPlace)
"""What says that a candidate is not a legal program, before anything was compiled."""


@lru_cache(maxsize=64)
def program(script: str) -> PrimFunc:
    """The function of a program text, verified.  Raises ScriptError or VerifyError."""
    func = parse(script)
    assert isinstance(func, PrimFunc)
    verify(func)
    return func


@uncollected
def candidate(script: str, trace: list[Any] | None) -> PrimFunc:
    """The program with its trace applied, all proofs on.  Raises one of REFUSALS."""
    func = program(script)
    return func if trace is None else Trace.from_json(trace).replay(func).func


def derived(script: str, target: Target, interface: Mapping[str, str]) -> Space:
    """The design space of a program, the same one for the same text."""
    return generate(program(script), target, interface)


def estimated(script: str, target: Target, interface: Mapping[str, str], like: str | None = None) -> Choice | None:
    """What the estimate likes best in the design space of a program; None for a space without any candidate.

    The search begins with what it likes in the space of `like`, a program of the same form, which is looked for and
    kept where it is not known here.  Before a deadline (`ir.deadline`) it does not.
    """
    from ..candidates.estimated import favourite
    from .protocol import Choice

    words = tuple(sorted(interface.items()))
    known = None if has_deadline() else _liked(script, target, words, like)
    space = derived(script, target, interface)
    best = favourite(space) if known is None else known.favourite
    return None if best is None else Choice(space.sketches[best.sketch].name, best.row, dict(interface))


@cached(64)
def _liked(
    script: str, target: Target, interface: tuple[tuple[str, str], ...], like: str | None = None
) -> Liked | None:
    from ..candidates.estimated import liked

    near = None if like is None else _liked(like, target, interface, None)
    return liked(derived(script, target, dict(interface)), near)


@uncollected
def drawn(script: str, target: Target, choice: Choice) -> Schedule:
    """The schedule of a candidate of the program's design space, all proofs on.

    Raises ScheduleError where a primitive refuses, LookupError where the space has no such sketch.
    """
    for sketch in derived(script, target, choice.interface).sketches:
        if sketch.name == choice.sketch:
            return sketch.schedule(choice.indices)
    raise LookupError(f"the design space that this version of the package derives has no sketch `{choice.sketch}`")


SAMPLE_BYTES = 1 << 30  # of reference results that are kept, beside those that were asked for last
_samples: OrderedDict[tuple[str, int, bool], tuple[Sample, ...]] = OrderedDict()


def samples(name: str, seed: int, first: bool = False) -> tuple[Sample, ...]:
    """The samples of a program (a `ProgramName` as JSON text), computed once while there is room for them.

    With `first` the first of them alone.
    """
    key = name, seed, first and (name, seed, False) not in _samples
    if key not in _samples:
        _samples[key] = _made(*key)
        while len(_samples) > 1 and sum(map(_bytes, _samples.values())) > SAMPLE_BYTES:
            _samples.popitem(last=False)
    _samples.move_to_end(key)
    return _samples[key][: 1 if first else None]


def _bytes(found: tuple[Sample, ...]) -> int:
    arrays = (array for s in found for part in (s.inputs, s.expected, s.bounds or {}) for array in part.values())
    return sum(array.nbytes for array in arrays)


def _made(name: str, seed: int, first: bool) -> tuple[Sample, ...]:
    from ...backends.samples import make_samples
    from ...space.workloads import workload
    from .reference import reference_of

    named = ProgramName(**json.loads(name))
    if named.script is not None:
        func = program(named.script)
        return make_samples(func, reference_of(func), seed, first)
    work = workload(named.name, **named.params)
    return make_samples(work.func, work.reference, seed, first)
