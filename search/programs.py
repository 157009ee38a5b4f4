"""Programs as jobs name them: text and trace of a candidate, name and parameters of a workload."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..backends.lower import LoweringError
from ..ir.affine.bounds import OutOfBounds
from ..ir.collection import uncollected
from ..ir.layout.index_map import IndexMapError
from ..ir.script.parser import ScriptError, parse
from ..ir.stmt import PrimFunc
from ..ir.target import Target
from ..ir.verify.rules import VerifyError, verify
from ..space.design.space import Space, generate
from ..space.schedule import Schedule, ScheduleError
from ..space.trace import Trace

if TYPE_CHECKING:
    from ..backends.samples import Sample
    from ..space.workloads import Workload

REFUSALS = (ScheduleError, OutOfBounds, LoweringError, ScriptError, VerifyError, IndexMapError)
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


@uncollected
def drawn(script: str, target: Target, interface: Mapping[str, str], sketch: str, choice: Sequence[int]) -> Schedule:
    """The schedule of a candidate of the program's design space, all proofs on.

    Raises ScheduleError where a primitive refuses, LookupError where the space has no such sketch.
    """
    for item in derived(script, target, interface).sketches:
        if item.name == sketch:
            return item.schedule(choice)
    raise LookupError(f"the design space that this version of the package derives has no sketch `{sketch}`")


def named_workload(spec: Mapping[str, Any]) -> Workload:
    """``{"name", "params"}`` from the library, or ``{"script"}``."""
    from ..space.workloads import from_func, workload

    if "script" in spec:
        return from_func(program(str(spec["script"])))
    return workload(str(spec["name"]), **dict(spec["params"]))


@lru_cache(maxsize=4)
def samples(spec: str, seed: int) -> tuple[Sample, ...]:
    """The samples of a workload (its spec as JSON text), computed once."""
    from ..backends.samples import make_samples
    from .reference import reference_of

    parsed = json.loads(spec)
    work = named_workload(parsed)
    reference = reference_of(work.func) if "script" in parsed else work.reference
    return make_samples(work.func, reference, seed)
