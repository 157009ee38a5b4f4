"""What is to be tuned, resolved: program, device, interface, and the limits that physics sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import ScriptProblem, UsageError, did_you_mean
from .records import interface_key

if TYPE_CHECKING:
    from ..ir.stmt import PrimFunc
    from ..ir.target import Target
    from ..space.workloads import Workload
    from .records import Record
    from .settings import TuneSettings

WHO = ("fixed", "constant", "free")


@dataclass(frozen=True)
class Task:
    """A workload on a device with an interface for each of its arguments.

    `interface` says for every buffer parameter who chooses its layout; tasks
    whose interfaces differ are never compared.
    """

    work: Workload
    target: Target
    interface: dict[str, str]

    @property
    def script(self) -> str:
        """The canonical program text."""
        return self.work.script

    @cached_property
    def job_workload(self) -> dict[str, Any]:
        """The workload as worker jobs name it."""
        if self.work.params:
            return {"name": self.work.name, "params": dict(self.work.params)}
        return {"script": self.script}

    @cached_property
    def bytes_moved(self) -> int:
        """Bytes of all arguments in their logical shapes: the least that a call must touch."""
        from ..ir import dtypes

        return sum(math.prod(b.shape) * dtypes.nbytes(b.dtype) for b in self.work.func.buffers)

    def identity(self) -> dict[str, Any]:
        """The fields that name this task in every JSON event."""
        return {
            "workload": self.work.name,
            "shape": dict(self.work.shape),
            "dtype": self.work.dtype,
            "interface": dict(self.interface),
            "target": self.target.kind,
            "device": self.target.name,
            "threads": self.target.threads,
        }


def resolve(settings: TuneSettings) -> Task:
    """The task that `settings` describe; raises the errors of INTERFACE's exit codes 2 and 4."""
    from ..backends.devices import discover

    work = named_work(settings) if settings.script is None else script_work(settings.script, settings.script_name)
    return Task(work, discover(settings.target, settings.threads), interface_of(work, settings.interface))


def named_work(settings: TuneSettings) -> Workload:
    """The library's workload of that name and those parameters."""
    from ..space.workloads import workload

    return workload(str(settings.workload), **{**settings.params, "dtype": settings.dtype})


def script_work(text: str, name: str | None = None) -> Workload:
    """A user's program as a workload; ScriptProblem when it does not parse, verify or stay in bounds."""
    from ..ir.script.parser import ScriptError, parse
    from ..ir.stmt import PrimFunc
    from ..space.workloads import from_func

    try:
        func = parse(text, name)
    except ScriptError as error:
        raise ScriptProblem(f"the script does not parse: {error}") from None
    if not isinstance(func, PrimFunc):
        known = ", ".join(f.name for f in func.functions)
        raise ScriptProblem(f"the script holds a module; choose one of its functions with --name: {known}")
    check(func)
    return from_func(func)


def work_of(record: Record) -> Workload:
    """The workload of a record: the library's where name and parameters give the very same program text.

    Otherwise the text itself is the workload, checked like a stranger's.
    """
    from ..space.workloads import names, workload

    if record.workload in names():
        try:
            work = workload(record.workload, **record.params)
        except UsageError:
            work = None
        if work is not None and work.script == record.script:
            return work
    return script_work(record.script)


def check(func: PrimFunc) -> None:
    """Refuse a program that is not well-formed or not provably inside its buffers."""
    from ..ir.affine.bounds import OutOfBounds, check_in_bounds
    from ..ir.verify.rules import VerifyError, verify

    try:
        verify(func)
        check_in_bounds(func)
    except (VerifyError, OutOfBounds) as error:
        raise ScriptProblem(f"the program `{func.name}` is refused: {error}") from None


def interface_of(work: Workload, asked: str | Mapping[str, str] = "") -> dict[str, str]:
    """Who chooses each argument's layout: `constant` for declared weights, else `fixed`, unless `asked` otherwise.

    One word is meant for every argument that can have it: an output is never constant.
    """
    names = [b.name for b in work.func.buffers]
    result = {name: "constant" if name in work.constants else "fixed" for name in names}
    if isinstance(asked, str):
        if asked and asked not in WHO:
            raise UsageError(f"the interface {asked!r} is none of {', '.join(WHO)}{did_you_mean(asked, WHO)}")
        wanted: Mapping[str, str] = {
            n: asked for n in names if asked and not (asked == "constant" and n in work.outputs)
        }
    else:
        wanted = asked
    for name, who in wanted.items():
        if name not in result:
            hint = did_you_mean(name, names) or f"; there are {', '.join(names)}"
            raise UsageError(f"`{work.name}` has no argument {name!r}{hint}")
        if who not in WHO:
            raise UsageError(f"the interface {name}={who!r} is none of {', '.join(WHO)}{did_you_mean(who, WHO)}")
        if who == "constant" and name in work.outputs:
            raise UsageError(f"`{name}` is an output of `{work.name}`, which cannot be constant; use fixed or free")
        result[name] = who
    return result


@dataclass(frozen=True)
class Roof:
    """The device's limits: peak in GFLOP/s and memory bandwidth in bytes per second."""

    peak_gflops: float
    bandwidth: float

    def seconds(self, task: Task) -> float:
        """The least time of a call: min(peak, intensity x bandwidth) as seconds."""
        compute = task.work.flops / (self.peak_gflops * 1e9) if self.peak_gflops > 0 else 0.0
        memory = task.bytes_moved / self.bandwidth if self.bandwidth > 0 else 0.0
        return max(compute, memory)

    def fraction(self, task: Task, latency_us: float) -> float:
        """How near a latency is to the roof, 1 at best."""
        return self.seconds(task) / (latency_us * 1e-6)


def performance(task: Task, latency_us: float, roof: Roof | None) -> dict[str, Any]:
    """`gflops` of the untransformed program and its shares of the device's limits."""
    gflops = task.work.flops / latency_us * 1e-3
    if roof is None:
        return {"gflops": gflops, "peak_gflops": None, "peak_fraction": None, "roofline_fraction": None}
    return {
        "gflops": gflops,
        "peak_gflops": roof.peak_gflops,
        "peak_fraction": gflops / roof.peak_gflops if roof.peak_gflops > 0 else None,
        "roofline_fraction": roof.fraction(task, latency_us),
    }


def command(work: Workload, target: str, interface: Mapping[str, str], db: str) -> str:
    """The command that makes a record of this task: what `NoRecord` says."""
    from ..space.workloads import workload

    parts = ["tune"]
    if work.params:
        usual = workload(work.name).shape
        shape = ",".join(f"{name}={value}" for name, value in work.shape.items() if value != usual.get(name))
        parts += ["--workload", work.name, "--shape", shape] if shape else ["--workload", work.name]
        if work.dtype != "float32":
            parts += ["--dtype", work.dtype]
    else:
        parts += ["--script", "FILE.py", "--name", work.name]
    changed = {n: w for n, w in interface.items() if interface_of(work)[n] != w}
    if changed:
        parts += ["--interface", interface_key(changed)]
    return " ".join([*parts, "--target", target, "--db", db])
