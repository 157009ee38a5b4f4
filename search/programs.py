"""Programs as jobs name them: text and trace of a candidate, name and parameters of a workload."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..backends.data import Array
from ..backends.lower import LoweringError, lower
from ..backends.samples import Arrays, Reference, Sample, input_buffers, make_samples, statements
from ..ir.bounds import OutOfBounds
from ..ir.index_map import IndexMapError
from ..ir.parser import ScriptError, parse
from ..ir.stmt import PrimFunc
from ..ir.target import Target
from ..ir.verify import VerifyError, verify
from ..space.schedule import ScheduleError
from ..space.trace import Trace
from ..space.workloads import Workload, from_func, workload

REFUSALS = (ScheduleError, OutOfBounds, LoweringError, ScriptError, VerifyError, IndexMapError)
"""What says that a candidate is not a legal program, before anything was compiled."""

INTERPRETED_STATEMENTS = 2_000_000


@lru_cache(maxsize=64)
def program(script: str) -> PrimFunc:
    """The function of a program text, verified.  Raises ScriptError or VerifyError."""
    func = parse(script)
    assert isinstance(func, PrimFunc)
    verify(func)
    return func


def candidate(script: str, trace: list[Any] | None) -> PrimFunc:
    """The program with its trace applied, all proofs on.  Raises one of REFUSALS."""
    func = program(script)
    return func if trace is None else Trace.from_json(trace).replay(func).func


def named_workload(spec: Mapping[str, Any]) -> Workload:
    """``{"name", "params"}`` from the library, or ``{"script"}``."""
    if "script" in spec:
        return from_func(program(str(spec["script"])))
    return workload(str(spec["name"]), **dict(spec["params"]))


@lru_cache(maxsize=4)
def samples(spec: str, seed: int) -> tuple[Sample, ...]:
    """The samples of a workload (its spec as JSON text), computed once."""
    parsed = json.loads(spec)
    work = named_workload(parsed)
    reference = work.reference
    if "script" in parsed and statements(work.func) > INTERPRETED_STATEMENTS:
        reference = compiled_reference(work.func)
    return make_samples(work.func, reference, seed)


def compiled_reference(func: PrimFunc) -> Reference:
    """The untransformed program as scalar code with its floats in float64, for programs too large to interpret."""
    from ..backends.devices import discover
    from ..backends.kernel import compile_lowered, load_artifact
    from ..space.workloads.retype import with_floats

    wide = with_floats(func, "float64")
    target: Target = discover("cpu", threads=1)
    kernel = load_artifact(compile_lowered(lower(wide, target), target))
    inputs = {b.name for b in input_buffers(wide)}

    def reference(arrays: Arrays) -> dict[str, Array]:
        bound = kernel.bind()
        for index, buffer in enumerate(wide.buffers):
            if buffer.name in inputs:
                bound.write(index, arrays[buffer.name])
        bound.run()
        return {b.name: bound.read(i).reshape(b.shape) for i, b in enumerate(wide.buffers) if b.name not in inputs}

    return reference
