"""Do legal programs mean what lowered ones mean? Random programs on every instruction set, without a device.

    python benchmarks/legal.py [--programs 20000] [--seed 0] [--seconds 3600] [--compile] [--out legal.json]
    python benchmarks/legal.py --products [--programs 20000] ..

Each program is drawn at random, by its seed: over the whole grammar of the language, or a candidate of a small
operator as a search draws it.  It is lowered for a processor of each row of the tables of instruction sets, and for
OpenCL devices with and without half floats, masks and vectors, made legal, verified, printed and parsed, and
interpreted before and after: every defined element must be equal, bit by bit.  Where both are one program there is
nothing to compare, and what several targets make alike is compared once.  With `--products` programs are those of
quantised networks (`tests/product_programs.py`), each for all processors, such as differ in their dot products alone
among them.  With `--compile` the code of what this machine has runs, too.  A file that exists is gone on with.
The exit code is 1 if any program failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import emulated
from legal_programs import DEVICES, MACHINES, Comparison, RandomPrograms, lowered_for, meaning
from product_programs import RandomProducts
from random_kernels import compiled
from random_runs import arguments, assert_refines

from stridesmith.backends.errors import CodegenError
from stridesmith.backends.host import host_cpu
from stridesmith.backends.legal.program import legal
from stridesmith.backends.lower import LoweringError
from stridesmith.ir.expr import Call
from stridesmith.ir.functions import MULTIPLY_ACCUMULATE
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.ir.verify.bounds import OutOfBounds
from stridesmith.space.design.space import Space
from stridesmith.space.design.space import generate as space_of
from stridesmith.space.errors import ScheduleError
from stridesmith.space.workloads import workload

OPERATORS_EVERY = 20
"""One program in so many is a candidate of an operator, which takes a hundred times as long as others."""
PLAIN = {machine.isa: name for name, machine in reversed(MACHINES.items())}
"""The first processor of each instruction set: without dot products those with more are like it."""
TARGETS = {**MACHINES, **DEVICES}


@lru_cache(maxsize=256)
def space(operator: str, machine: str) -> Space:
    kind, shape = emulated.operators()[operator]
    work = workload(kind, **shape)
    return space_of(work.func, TARGETS[machine], dict.fromkeys(work.constants, "constant"))


def candidate(seed: int) -> tuple[str, PrimFunc] | None:
    """A processor, and a candidate for it; None where the drawn sketch has none, or its schedule is refused."""
    rng = np.random.default_rng(seed)
    machine = list(TARGETS)[int(rng.integers(len(TARGETS)))]
    operator = list(emulated.operators())[int(rng.integers(len(emulated.operators())))]
    sketches = space(operator, machine).sketches
    sketch = sketches[int(rng.integers(len(sketches)))]
    found = sketch.draw(rng, 1)
    try:
        return (machine, sketch.schedule(found[0]).func) if len(found) else None
    except ScheduleError:
        return None


def runs_here(target: Target) -> bool:
    return target.kind == "cpu" and target.isa != "neon" and target.cpu_features <= host_cpu().cpu_features


def tried(seed: int, compiles: bool, products: bool = False) -> Counter[str]:
    """What came of a program on the instruction sets.  Raises what it fails with."""
    drawn = candidate(seed) if seed % OPERATORS_EVERY == 0 and not products else None
    if products:
        func, names = RandomProducts(seed).program(), tuple(TARGETS)
    elif drawn is None:
        func, names = RandomPrograms(seed).program(), (*PLAIN.values(), *DEVICES)
    else:
        func, names = drawn[1], (drawn[0],)
    arrays, done = arguments(func), Counter[str]()
    comparison = Comparison(arrays)
    for name in names:
        target = TARGETS[name]
        try:
            lowered = lowered_for(func, target)
            found = legal(lowered, target)
        except (LoweringError, OutOfBounds, CodegenError):
            done[f"{name} refused"] += 1
            continue
        done[f"{name} {'changed' if comparison.agree(lowered, found) else 'same'}"] += 1
        rounds = compiles and any(isinstance(n, Call) and n.name == MULTIPLY_ACCUMULATE for n in walk(found.body))
        if compiles and runs_here(target) and not rounds and drawn is None:
            assert_refines(compiled(func, target, arrays), meaning(lowered, arrays))
            done[f"{name} ran"] += 1
    return done


def main() -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--products", action="store_true", help="programs of quantised networks")
    parser.add_argument("--compile", action="store_true", help="run the code of what this machine has, too")
    parser.add_argument("--out", type=Path, default=Path("legal.json"))
    options = parser.parse_args()
    stored: dict[str, Any] = {"seed": options.seed, "done": 0, "counts": {}, "failures": {}}
    if options.out.exists():
        stored = json.loads(options.out.read_text())
    counts, started = Counter[str](stored["counts"]), time.monotonic()
    while stored["done"] < options.programs and time.monotonic() - started < options.seconds:
        seed = stored["seed"] + stored["done"]
        try:
            counts.update(tried(seed, options.compile, options.products))
        except Exception:
            stored["failures"][str(seed)] = traceback.format_exc(limit=-6)
            print(f"seed {seed}:\n{stored['failures'][str(seed)]}", flush=True)
        stored["done"] += 1
        if stored["done"] % 50 == 0 or stored["done"] == options.programs:
            options.out.write_text(json.dumps({**stored, "counts": counts}, indent=1))
    options.out.write_text(json.dumps({**stored, "counts": counts}, indent=1))
    for name in TARGETS:
        words = (f"{counts[f'{name} {end}']} {end}" for end in ("changed", "same", "refused", "ran"))
        print(f"{name:12} {', '.join(words)}")
    print(f"{stored['done']} programs, {len(stored['failures'])} failed")
    return int(bool(stored["failures"]))


if __name__ == "__main__":
    raise SystemExit(main())
