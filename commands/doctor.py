"""`stridesmith doctor`: whether this machine has what tuning needs, and what to do where it does not."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..errors import StridesmithError
from ..files import shown
from . import names
from .output import Output

LIBRARIES = ("numpy", "islpy", "llvmlite", "optuna", "ray", "SQLAlchemy", "pydantic", "pyopencl", "rich", "click")
OK, WARNING, PROBLEM = "ok", "warning", "problem"
LOOK_SECONDS = 1.0  # at what else the machine does, a choice
SHARED_MEMORY_BYTES = 64 * 2**20  # what Docker gives a container by default


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `advice` says what to do about it."""

    name: str
    state: str
    text: str
    advice: str = ""


Check = Callable[[], Iterator[Finding]]


def run(db: str | None, address: str | None, fix: bool, output: Output) -> int:
    """Check everything, `fix` what can be, and print what was found; 0 when tuning can work here, else 4."""
    findings = [finding for name, check in _checks(db, address, fix) for finding in _safely(name, check)]
    for finding in findings:
        output.event({"event": "check", "name": finding.name, "state": finding.state, "text": finding.text,
                      "advice": finding.advice})  # fmt: skip
    rows = [(f.state, f.name, f.text + (f"; {f.advice}" if f.advice else "")) for f in findings]
    output.table("", ("state", "what", "found"), rows)
    return 4 if any(f.state == PROBLEM for f in findings) else 0


def _checks(db: str | None, address: str | None, fix: bool) -> tuple[tuple[str, Check], ...]:
    """The checks, each with the name under which its failure as a whole is told."""
    always: tuple[tuple[str, Check], ...] = (
        ("system", _machine), ("command", lambda: _command(fix)), ("libraries", _libraries), ("xgboost", _boosting),
        ("load", _load), ("devices", _devices), ("OpenCL driver", _drivers), ("database", lambda: _database(db)),
        ("folders", _folders),
    )  # fmt: skip
    return (*always, ("cluster", lambda: _cluster(address))) if address else always


def _safely(name: str, check: Check) -> Iterator[Finding]:
    """A check that fails is a finding."""
    try:
        yield from check()
    except (StridesmithError, OSError, ImportError) as error:
        yield Finding(name, PROBLEM, str(error))


def _machine() -> Iterator[Finding]:
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    known = platform.system() in ("Linux", "Darwin")
    yield Finding("system", OK if known else WARNING, system, "" if known else "use WSL2 on Windows")


def _command(fix: bool) -> Iterator[Finding]:
    """Whether `tune` is this command, too; `fix` makes it so."""
    script = names.found()
    if script is None:
        yield Finding("command", OK, "not installed as a script; `python -m stridesmith` runs it")
        return
    if script.is_ours:
        yield Finding("command", OK, f"`stridesmith` and `tune` in {shown(script.path.parent)}")
        return
    whose = f"that of {' and '.join(script.other) or 'another package'}" if script.is_there else "missing"
    if fix:
        script.restore()
        yield Finding("command", OK, f"`tune` in {shown(script.path.parent)} is this command now; it was {whose}")
        return
    advice = "`stridesmith` is the same command, and `stridesmith doctor --fix` makes `tune` it as well"
    yield Finding("command", WARNING, f"`tune` in {shown(script.path.parent)} is {whose}", advice)


def _libraries() -> Iterator[Finding]:
    for name in LIBRARIES:
        version = _version(name)
        advice = "" if version else f"install it: {sys.executable} -m pip install {name}"
        yield Finding(name, OK if version else PROBLEM, version or "not installed", advice)


def _boosting() -> Iterator[Finding]:
    found = {name: version for name in ("xgboost-cpu", "xgboost") if (version := _version(name))}
    text = ", ".join(f"{name} {version}" for name, version in found.items()) or "not installed"
    if len(found) == 2:
        advice = "both write the same folder; uninstall both, then install xgboost-cpu alone"
        yield Finding("xgboost", WARNING, text, advice)
    else:
        yield Finding("xgboost", OK if found else PROBLEM, text, "" if found else "install xgboost-cpu")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _load() -> Iterator[Finding]:
    """Whether times that are measured now can be trusted."""
    from ..backends.host_load import look
    from ..search.workers.host_lock import stopped_holders

    found = look(LOOK_SECONDS)
    if found is None:
        yield Finding("load", OK, "what else runs is not known on this system")
    elif found.told:
        yield Finding("load", WARNING, found.told, "times are longer and less certain now; stop what need not run")
    else:
        yield Finding("load", OK, f"{found.processors} processors, {found.busy:.2f} of them busy with other work")
    if stopped := stopped_holders():
        yield Finding("lock", PROBLEM, stopped)


def _devices() -> Iterator[Finding]:
    from ..backends.devices import listing

    devices = listing()
    for entry in devices:
        device, isa = entry.target, f" with {entry.target.isa}" if entry.target.isa else ""
        text = f"{device.name}{isa}, {device.threads} threads, {device.versions}"
        yield Finding(f"target {entry.selector}", OK, text)
        for fault in entry.faults:
            yield Finding(f"fault of {entry.selector}", WARNING, fault, "another driver or version has it not")
        for fault in entry.avoided:
            yield Finding(f"fault of {entry.selector}", OK, fault)
    if not any(entry.target.kind == "opencl" for entry in devices):
        advice = "install an OpenCL driver, on Linux x86-64 the wheel pocl-binary-distribution"
        yield Finding("target opencl", WARNING, "no OpenCL device", advice)


def _drivers() -> Iterator[Finding]:
    """OpenCL drivers from PyPI that cannot work as they are installed, and those that could be."""
    from ..backends.opencl import drivers

    for text, advice in drivers.problems():
        yield Finding("OpenCL driver", WARNING, text, advice)
    for package in drivers.available():
        advice = f"on CPUs it often makes faster kernels than PoCL: {sys.executable} -m pip install '{package.extra}'"
        yield Finding("OpenCL driver", OK, f"{package.name} is not installed", advice)


def _database(url: str | None) -> Iterator[Finding]:
    from ..search.records.database import Database
    from ..search.records.place import default_path

    with Database(url, read_only=True) as database:
        yield Finding("database", OK, f"{database.name}: {database.size} records")
        if "://" not in (url or default_path()):
            folder = Path(database.name).parent
            while not folder.exists():
                folder = folder.parent
            if not os.access(folder, os.W_OK):
                yield Finding("database folder", PROBLEM, f"{folder} is not writable", "give another with --db")


def _cluster(address: str) -> Iterator[Finding]:
    """Whether a Ray cluster answers, and what each node would build with."""
    from ..backends.host import host_cpu
    from ..search.workers.cluster import look

    found = look(address)
    yield Finding("cluster", OK, f"{found.address} answers in {found.seconds:.1f} s: Ray {found.ray}, "
                                 f"{len(found.nodes)} nodes")  # fmt: skip
    measured = host_cpu().key
    for node in found.nodes:
        name = f"node {node.address}"
        if node.problem:
            missing = "No module named 'stridesmith'" in node.problem
            advice = "install stridesmith there, or submit the run with it as working directory" if missing else ""
            yield Finding(name, PROBLEM, node.problem, advice)
        elif not node.cores:
            yield Finding(name, WARNING, "it offers no cores, so that it builds nothing", "start it with --num-cpus")
        else:
            role = "builds and measures" if node.is_here else "builds"
            device = ", ".join(node.devices.values())
            other = "" if device == measured else f"; another device than the one that is measured, {measured}"
            yield Finding(name, OK, f"{role} with {node.cores} cores, {device}{other}")


def _folders() -> Iterator[Finding]:
    from ..search.workers.scratch import problem

    temporary = Path(tempfile.gettempdir())
    free = shutil.disk_usage(temporary).free
    advice = "" if free > 2**30 else "set TMPDIR to a folder with more room"
    advice = problem() or advice
    yield Finding("temporary folder", WARNING if advice else OK, f"{temporary}: {free / 2**30:.1f} GiB free", advice)
    shared = Path("/dev/shm")
    if shared.exists():
        free = shutil.disk_usage(shared).free
        small = free < SHARED_MEMORY_BYTES
        advice = "Ray needs at least 64 MiB there; in Docker, use --shm-size=1g" if small else ""
        yield Finding("shared memory", WARNING if small else OK, f"{shared}: {free / 2**20:.0f} MiB free", advice)
