"""stridesmith: an auto-scheduler that searches over layouts, padding, boundaries and tiling.

```python
import stridesmith as ss
work = ss.workload("conv2d", ci=64, h=56, w=56, co=64, k=3, pad=1)
best = ss.tune(work, target="cpu", seconds=60)
y = ss.load(work, target="cpu")(x, w)
```

Names are loaded when they are first used, so that importing the package is quick
and needs none of the libraries that tuning needs.
"""

from __future__ import annotations

from importlib import import_module

from .version import __version__

TYPE_CHECKING = False  # as type checkers know it: `typing` would take a third of the time until a command hears Ctrl-C
if TYPE_CHECKING:
    from typing import Any

    from .backends.devices import list_devices
    from .commands.calls import compile, tune
    from .errors import (
        DeviceMissing,
        Interrupted,
        NoRecord,
        NoSchedule,
        StorageError,
        StridesmithError,
        TemporaryError,
        ToolMissing,
        UsageError,
        WrongResult,
    )
    from .ir.caches import clear_caches
    from .ir.interpreter.interpret import interpret
    from .ir.layout.index_map import AXIS_SEPARATOR, IndexMap
    from .ir.numbers import bfloat16_bits, bfloat16_values
    from .ir.passes import transform
    from .ir.script import namespace as T
    from .ir.script.namespace import prim_func, undef
    from .ir.script.parser import ScriptError, parse
    from .ir.stmt import Module, PrimFunc
    from .ir.target import Target
    from .ir.verify.rules import VerifyError, verify
    from .models.run.model import Model
    from .report.race import race
    from .search.calling.api import build, load, lower, replay
    from .search.calling.collection import Database
    from .search.calling.kernel import Kernel
    from .search.records.record import Record
    from .space.design.proposals import propose_pad_values
    from .space.design.rules import RULES, scripted
    from .space.design.space import generate
    from .space.schedule import Schedule, ScheduleError, Trace
    from .space.tensor_intrinsics import TensorIntrin
    from .space.workloads import Workload, from_func, workload

_HOMES = {
    "backends.devices": ("Target", "list_devices"),
    "ir.caches": ("clear_caches",),
    "errors": (
        "DeviceMissing", "Interrupted", "NoRecord", "NoSchedule", "StorageError", "StridesmithError", "TemporaryError",
        "ToolMissing", "UsageError", "WrongResult",
    ),
    "ir.layout.index_map": ("AXIS_SEPARATOR", "IndexMap"),
    "ir.interpreter.interpret": ("interpret",),
    "ir.numbers": ("bfloat16_bits", "bfloat16_values"),
    "ir.script.parser": ("ScriptError", "parse"),
    "ir.stmt": ("Module", "PrimFunc"),
    "ir.script.namespace": ("prim_func", "undef"),
    "ir.verify.rules": ("VerifyError", "verify"),
    "commands.calls": ("compile", "tune"),
    "models.run.model": ("Model",),
    "search.calling.api": ("build", "load", "lower", "replay"),
    "search.calling.collection": ("Database",),
    "search.calling.kernel": ("Kernel",),
    "report.race": ("race",),
    "search.records.record": ("Record",),
    "space.design.proposals": ("propose_pad_values",),
    "space.design.rules": ("RULES", "scripted"),
    "space.design.space": ("generate",),
    "space.schedule": ("Schedule", "ScheduleError", "Trace"),
    "space.tensor_intrinsics": ("TensorIntrin",),
    "space.workloads": ("Workload", "from_func", "workload"),
}  # fmt: skip
_HOME = {name: (home, name) for home, names in _HOMES.items() for name in names} | {
    "T": ("ir.script.namespace", ""),
    "transform": ("ir.passes.transform", ""),
    "torch": ("pytorch", ""),
}

__all__ = [
    "AXIS_SEPARATOR",
    "RULES",
    "Database",
    "DeviceMissing",
    "IndexMap",
    "Interrupted",
    "Kernel",
    "Model",
    "Module",
    "NoRecord",
    "NoSchedule",
    "PrimFunc",
    "Record",
    "Schedule",
    "ScheduleError",
    "ScriptError",
    "StorageError",
    "StridesmithError",
    "T",
    "Target",
    "TemporaryError",
    "TensorIntrin",
    "ToolMissing",
    "Trace",
    "UsageError",
    "VerifyError",
    "Workload",
    "WrongResult",
    "__version__",
    "bfloat16_bits",
    "bfloat16_values",
    "build",
    "clear_caches",
    "compile",
    "from_func",
    "generate",
    "interpret",
    "list_devices",
    "load",
    "lower",
    "parse",
    "prim_func",
    "propose_pad_values",
    "race",
    "replay",
    "scripted",
    "transform",
    "tune",
    "undef",
    "verify",
    "workload",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOME:
        raise AttributeError(f"module 'stridesmith' has no attribute {name!r}")
    home, attribute = _HOME[name]
    module = import_module(f".{home}", __name__)
    value = getattr(module, attribute) if attribute else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
