"""A task: a program on a device with an interface, and how fast that device could run it at best (the roofline)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import ScriptProblem, UsageError
from ...ir.expr import Var
from .interface import LONGEST_NAME, MOST_ARGUMENTS, Interface

if TYPE_CHECKING:
    from ...backends.artifact import InNetwork
    from ...ir.stmt import PrimFunc
    from ...ir.target import Target
    from ...space.workloads import Workload

MUCH = 1 << 40
"""Bytes that no cache holds."""
RECORDED = "recorded:"
"""What the name of a recorded space begins with, in place of a device (see `device`)."""
RECORDED_DEVICE = " (recorded "
"""What the name of the device that such a space stands for has in it."""


@dataclass(frozen=True)
class ProgramName:
    """A program: a workload of the library by `name` and `params`, or a `script`."""

    name: str = ""
    params: dict[str, int | str] = field(default_factory=dict)
    script: str | None = None


def name_of(work: Workload) -> ProgramName:
    """How jobs name a workload."""
    return ProgramName(work.name, dict(work.params)) if work.params else ProgramName(script=work.script)


@dataclass(frozen=True)
class Task:
    """A workload on a device with an interface for each of its arguments.

    `interface` says for every buffer parameter who chooses its layout; tasks
    whose interfaces differ are never compared.  `network_bytes` are those of the constants that a call of the network
    reads of which the program is a part, None for a program by itself; ``streamed`` arguments of such a one come from
    memory.
    """

    work: Workload
    target: Target
    interface: Interface
    network_bytes: int | None = field(default=None, compare=False)

    @property
    def script(self) -> str:
        """The canonical program text."""
        return self.work.script

    @property
    def key(self) -> tuple[str, ...]:
        """What tells tasks of one device apart: the program's text, and who chooses each argument's layout."""
        return self.script, *self.interface.values()

    @cached_property
    def name(self) -> ProgramName:
        """The program as worker jobs name it."""
        return name_of(self.work)

    @property
    def called(self) -> InNetwork | None:
        """How a network calls its kernel; None where it is called back to back."""
        from ...backends.artifact import InNetwork

        streamed = tuple(name for name, who in self.interface.items() if who == "streamed")
        if self.network_bytes is None:
            return InNetwork((), streamed, MUCH) if streamed else None
        written = (name for name, who in self.interface.items() if who == "fixed" and name not in self.work.outputs)
        return InNetwork(tuple(written), streamed, self.network_bytes)

    @cached_property
    def bytes_moved(self) -> int:
        """Bytes of all arguments in their logical shapes, where these are numbers: the least that a call touches."""
        from ...ir import dtypes

        known = [b for b in self.work.func.buffers if b.is_fixed]
        return sum(math.prod(b.shape) * dtypes.nbytes(b.dtype) for b in known)

    @property
    def study_name(self) -> str:
        """The name of the task's Optuna study: its workload and device, made unique by its key."""
        key = hashlib.sha256(f"{self.script}|{self.target.key}|{sorted(self.interface.items())}".encode())
        return f"{self.work.name}-{self.target.kind}-{key.hexdigest()[:8]}"

    @property
    def is_recorded(self) -> bool:
        """Whether a recorded space stands for the device."""
        return RECORDED_DEVICE in self.target.name

    def recorded(self) -> dict[str, Any]:
        """The fields of a record that say what it is of."""
        work = self.work
        return {
            "script": self.script, "workload": work.name, "params": dict(work.params or work.shape),
            "dtype": work.dtype, "interface": self.interface, "target": self.target.to_json(),
        }  # fmt: skip

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


def script_work(text: str, name: str | None = None) -> Workload:
    """A user's program as a workload; ScriptProblem when it does not parse or `check` refuses it."""
    from ...ir.script.parser import ScriptError, parse
    from ...ir.stmt import PrimFunc
    from ...space.workloads import from_func

    try:
        func = parse(text, name)
    except (ScriptError, KeyError) as error:  # KeyError: no function of this name
        raise ScriptProblem(f"the script does not parse: {error.args[0]}") from None
    except RecursionError:
        raise ScriptProblem("the script does not parse: it is nested too deeply") from None
    if not isinstance(func, PrimFunc):
        known = ", ".join(f.name for f in func.functions)
        raise ScriptProblem(f"the script holds a module; choose one of its functions with --name: {known}")
    check(func)
    return from_func(func)


def stored_work(name: str, params: Mapping[str, int | str], script: str) -> Workload:
    """The workload that a record names: the library's where name and parameters give the very same program text.

    Otherwise the text itself is the workload, checked like a stranger's.
    """
    from ...space.workloads import names, workload

    if name in names():
        try:
            work = workload(name, **params)
        except UsageError:
            work = None
        if work is not None and work.script == script:
            return work
    return script_work(script)


def check(func: PrimFunc) -> None:
    """Refuse a program that breaks a rule, has no proof of bounds or concurrency, or is more than a record can name."""
    from ...ir.verify.bounds import OutOfBounds, check_in_bounds
    from ...ir.verify.rules import VerifyError, verify
    from ...space.concurrency import check_all_marked
    from ...space.errors import ScheduleError

    try:
        verify(func)
        check_in_bounds(func)
        check_all_marked(func)
    except (VerifyError, OutOfBounds, ScheduleError, RecursionError) as error:
        raise ScriptProblem(f"the program `{func.name}` is refused: {error}") from None
    names = [buffer.name for buffer in func.buffers]
    if long := [name for name in (func.name, *names) if len(name) > LONGEST_NAME]:
        raise ScriptProblem(
            f"the program `{func.name[:LONGEST_NAME]}` is refused: the name `{long[0][:40]}...` has {len(long[0])} "
            f"characters, and a record holds {LONGEST_NAME} of a name; give a shorter one"
        )
    if len(names) > MOST_ARGUMENTS:
        raise ScriptProblem(
            f"the program `{func.name}` is refused: it has {len(names)} buffers, and a record holds {MOST_ARGUMENTS}; "
            f"divide it into several functions"
        )


def check_tunable(func: PrimFunc) -> None:
    """Refuse a program for which no inputs are drawn whose results are known, or that has no result."""
    from ...ir.dataflow.instances import instances
    from ...ir.dataflow.unwritten import unwritten_read

    scalars = [param.name for param in func.params if isinstance(param, Var)]
    if scalars:
        raise ScriptProblem(
            f"the program `{func.name}` cannot be tuned: `{scalars[0]}` is a number, and what verifies candidates "
            f"draws arrays alone; schedule it by hand, and compile it with `ss.build`"
        )
    if harm := unwritten_read(instances(func)):
        raise ScriptProblem(
            f"the program `{func.name}` cannot be tuned: {harm}; begin a sum in `with T.init():`, or take the numbers "
            f"that it begins with as an input"
        )


@dataclass(frozen=True)
class CacheRoof:
    """A cache's limits: how many `bytes` all threads have of it, and its `bandwidth` in bytes per second."""

    bytes: int
    bandwidth: float


@dataclass(frozen=True)
class TypePeak:
    """The peak in GFLOP/s of multiply-adds of a type."""

    dtype: str
    gflops: float


@dataclass(frozen=True)
class Roof:
    """The device's limits: peak in GFLOP/s and memory bandwidth in bytes per second.

    `caches` are those of the caches, the smallest first: what stays in one from call to call, as in a measurement and
    between the operators of a network, comes from there.  `peaks` has the peaks of types where several were measured,
    as for a network; `peak_gflops` is that of all others.
    """

    peak_gflops: float
    bandwidth: float
    caches: tuple[CacheRoof, ...] = ()
    peaks: tuple[TypePeak, ...] = ()

    def of(self, work: Workload) -> Roof:
        """The limits of a program: with the peak of the type that bounds it."""
        peak = next((p.gflops for p in self.peaks if p.dtype == work.peak_dtype), self.peak_gflops)
        return replace(self, peak_gflops=peak, peaks=())

    def place(self, nbytes: int) -> CacheRoof | None:
        """The cache that holds so many bytes; None for memory."""
        return next((cache for cache in self.caches if nbytes <= cache.bytes), None)

    def rate(self, nbytes: int) -> float:
        """Bytes per second at which so many bytes can be read again and again."""
        cache = self.place(nbytes)
        return self.bandwidth if cache is None else max(cache.bandwidth, self.bandwidth)

    def to_lists(self) -> list[list[float]]:
        """The caches as plain data: the inverse of `caches_of`."""
        return [[float(cache.bytes), cache.bandwidth] for cache in self.caches]

    def seconds(self, task: Task) -> float:
        """The least time of a call: min(peak, intensity x rate) as seconds."""
        compute = task.work.flops / (self.peak_gflops * 1e9) if self.peak_gflops > 0 else 0.0
        rate = self.rate(task.bytes_moved)
        memory = task.bytes_moved / rate if rate > 0 else 0.0
        return max(compute, memory)

    def fraction(self, task: Task, latency_us: float) -> float:
        """How near a latency is to the roof, 1 at best."""
        return self.seconds(task) / (latency_us * 1e-6)


def peak_dtypes(works: Iterable[Workload]) -> tuple[str, ...]:
    """The types that bound programs, but float32, in order: what a device's limits are asked of `also`."""
    return tuple(sorted({work.peak_dtype for work in works} - {"float32"}))


def caches_of(lists: Iterable[Sequence[float]]) -> tuple[CacheRoof, ...]:
    """The caches of `Roof.to_lists`; what is no pair is left out."""
    return tuple(CacheRoof(int(pair[0]), pair[1]) for pair in lists if len(pair) == 2)


def performance(task: Task, latency_us: float, roof: Roof | None) -> dict[str, Any]:
    """`gflops` of the untransformed program and its shares of the device's limits.

    `bandwidth` is that of the cache that holds all arguments (`cached`), else of memory.
    """
    gflops = task.work.flops / latency_us * 1e-3
    if roof is None:
        return {
            "gflops": gflops, "peak_gflops": None, "peak_fraction": None, "roofline_fraction": None, "bandwidth": None,
            "cached": None,
        }  # fmt: skip
    return {
        "gflops": gflops,
        "peak_gflops": roof.peak_gflops,
        "peak_fraction": gflops / roof.peak_gflops if roof.peak_gflops > 0 else None,
        "roofline_fraction": roof.fraction(task, latency_us),
        "bandwidth": roof.rate(task.bytes_moved) or None,
        "cached": roof.place(task.bytes_moved) is not None,
    }
