"""What `ss.compile(file)` costs without tuning, from an empty cache: seconds, processor time, and where they go.

    python benchmarks/compile.py --out FOLDER [--models resnet50,bert] [--alone]

Each network is compiled in a process of its own, with a cache folder and a database that are empty.  ``wall`` are
seconds from the start of that process to the model, ``cpu`` those of all its processes together, user and system.  With
`--alone` everything is done in that one process, on one core, and its processor time is told by what it is for:

    import     loading modules
    read       the file to a network with its operators in groups
    space      design spaces
    estimate   the search for what the estimate likes best
    schedule   its schedule, with all proofs
    lower      from there to loops over flat buffers
    code       to object code
    rest       kernels that write over their inputs, constants, memory, and what has no name
"""

from __future__ import annotations

import argparse
import compileall
import functools
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PHASES = ("import", "read", "space", "estimate", "schedule", "lower", "code", "rest")


def used() -> float:
    """Processor seconds of this process and of those that it has waited for."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(getattr(resource.getrusage(who), f"ru_{kind}time") for who in whose for kind in "us")


class Phases:
    """Processor seconds by phase; one that begins inside of another stops that one's clock."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PHASES, 0.0)
        self.current, self.since = "rest", time.process_time()

    def enter(self, phase: str) -> str:
        """From here on it is another phase; the one before."""
        now, before = time.process_time(), self.current
        self.spent[before] += now - self.since
        self.current, self.since = phase, now
        return before

    def watch(self, owner: Any, name: str, phase: str) -> None:
        """Calls of a function count as a phase."""
        function: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            before = self.enter(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self.enter(before)

        setattr(owner, name, timed)


def child(path: str, shapes: dict[str, list[int]], alone: bool) -> None:
    """Compile a network and print a row as JSON."""
    if alone:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    phases = Phases()
    phases.enter("import")
    import stridesmith as ss

    if alone:
        watch_all(phases)
    phases.enter("rest")
    model = ss.compile(path, inputs=shapes, threads=2, db=os.environ["STRIDESMITH_DB"])
    phases.enter("rest")
    kernels = {id(kernel.compiled): kernel.origin for kernel in model.kernels.values()}
    row = {"kernels": len(kernels), "untuned": [*kernels.values()].count("untuned"), "cpu": used()}
    print(json.dumps(row | {"phases": {p: round(s, 3) for p, s in phases.spent.items()} if alone else {}}))


def watch_all(phases: Phases) -> None:
    """Import what compiling needs, and have the phases told apart."""
    import stridesmith.models.api
    import stridesmith.models.onnx
    import stridesmith.search.candidates.estimated  # noqa: F401
    from stridesmith.backends import kernel, lower
    from stridesmith.models import api
    from stridesmith.search.candidates import estimated
    from stridesmith.search.workers import programs
    from stridesmith.space.design.sketch import Sketch

    for step in ("forms", "fastest_of"):
        phases.watch(api, step, "read")
    phases.watch(programs, "generate", "space")
    for search in ("favourite", "liked"):
        phases.watch(estimated, search, "estimate")
    phases.watch(Sketch, "schedule", "schedule")
    phases.watch(lower, "lower", "lower")
    phases.watch(kernel, "compile_lowered", "code")


def measured(path: Path, shapes: dict[str, tuple[int, ...]], alone: bool) -> dict[str, Any]:
    """The row of a network."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"XDG_CACHE_HOME": f"{folder}/cache", "STRIDESMITH_DB": f"{folder}/empty.db"}
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, __file__, "--child", json.dumps([str(path), shapes, alone])],
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
        wall = time.monotonic() - began
    if done.returncode:
        return {"problem": done.stderr.strip().splitlines()[-1:]}
    return {"wall": round(wall, 2), **json.loads(done.stdout.splitlines()[-1])}


def main() -> None:
    """A row for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("models"), help="the folder of the networks")
    parser.add_argument("--models", default="", help="which networks, by default all")
    parser.add_argument("--alone", action="store_true", help="in one process, by phase")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(*json.loads(asked.child))
        return
    from networks import NETWORKS, written

    # As pip does when it installs: half a second of each process would be Python's compiler.
    compileall.compile_dir(Path(__file__).parents[1], quiet=1, rx=re.compile(r"/(tests|benchmarks|docs|\.\w+)/"))
    print(f"{'network':14} {'kernels':>7} {'untuned':>7} {'wall':>7} {'cpu':>7}")
    for name in asked.models.split(",") if asked.models else NETWORKS:
        path, shapes = written(name, asked.out)
        row = measured(path, shapes, asked.alone)
        if "problem" in row:
            print(f"{name:14} {row['problem']}")
            continue
        told = "  ".join(f"{phase} {seconds:.2f}" for phase, seconds in row["phases"].items())
        numbers = f"{row['kernels']:7} {row['untuned']:7} {row['wall']:7.1f} {row['cpu']:7.1f}"
        print(f"{name:14} {numbers}  {told}", flush=True)


if __name__ == "__main__":
    main()
