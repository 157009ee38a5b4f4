"""From a lowered program to one that runs, by the backend of its kind of target.

::

    compile_lowered(lowered, target) -> Artifact     plain data, made in a process that may crash
    load_artifact(artifact) -> Executable            in the process that runs it

Each kind of target has a place in `BACKENDS`; what all of them keep is asked in `tests/backend_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..ir.target import Target
from .artifact import Artifact
from .executable import Executable

if TYPE_CHECKING:
    from .lower import Lowered


class Backend(NamedTuple):
    """What there is for one kind of target: a compiler, and a loader of what it made."""

    compile: Callable[[Lowered, Target], Artifact]
    load: Callable[[Artifact], Executable]


def _cpu() -> Backend:
    from .cpu import compile_cpu, load_cpu

    return Backend(compile_cpu, load_cpu)


def _opencl() -> Backend:
    from .opencl.runtime import compile_opencl, load_opencl

    return Backend(compile_opencl, load_opencl)


BACKENDS: dict[str, Callable[[], Backend]] = {"cpu": _cpu, "opencl": _opencl}
"""The backend of each kind of target, imported when it is first needed."""


def compile_lowered(lowered: Lowered, target: Target) -> Artifact:
    """Compile for the target's kind of device.  Raises on what the code generator refuses."""
    if target.kind not in BACKENDS:
        raise ValueError(f"no code generator for a target of kind `{target.kind}`; known are {', '.join(BACKENDS)}")
    return BACKENDS[target.kind]().compile(lowered, target)


def load_artifact(artifact: Artifact) -> Executable:
    """Make an artifact callable in this process."""
    if artifact["kind"] not in BACKENDS:
        raise ValueError(f"an artifact of unknown kind `{artifact['kind']}`; known are {', '.join(BACKENDS)}")
    return BACKENDS[artifact["kind"]]().load(artifact)
