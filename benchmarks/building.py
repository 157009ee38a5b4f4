"""What a candidate costs to build, stage by stage, over the suites.

    python benchmarks/building.py [--suite resnet50,ragged] [--each 2] [--times FILE]

Of each workload the candidates are built that the estimate likes best among random ones of the first sketches, as a
run's first batch would be, one after the other in one process that collects no cycles, as a builder's does.  Prints
the median and quartiles in milliseconds of scheduling (proofs of earlier candidates at hand), of lowering, of writing
LLVM's text, of LLVM itself, and of the last three together, which is what lowering and compiling a candidate costs.
Nothing else should run.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stridesmith.backends.devices import discover
from stridesmith.backends.llvm.compile import compile_object
from stridesmith.backends.lower import lower
from stridesmith.backends.render.llvm_module import generate as text_of
from stridesmith.configs.load import suite, suites
from stridesmith.configs.schema import Entry
from stridesmith.cost_model.features import FeatureMap
from stridesmith.ir.target import Target
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate

STAGES = ("schedule", "lower", "text", "LLVM", "lower + compile")
SKETCHES, DRAWN = 8, 200


def promising(entry: Entry, target: Target, count: int, rng: np.random.Generator) -> list[tuple[Sketch, Sequence[int]]]:
    """The best-estimated candidate of each of the first sketches, the `count` best of them."""
    work = entry.work
    interface = {n: "constant" if n in work.constants else "fixed" for n in work.inputs} | entry.interface
    space = generate(work.func, target, interface)
    features = FeatureMap(space.sketches, target)
    best = []
    for number, sketch in enumerate(space.sketches[:SKETCHES]):
        drawn = sketch.draw(rng, DRAWN)
        if len(drawn):
            seconds = features.estimate(number, drawn)
            best.append((float(seconds.min()), number, drawn[int(seconds.argmin())]))
    return [(space.sketches[number], choice) for _, number, choice in sorted(best, key=lambda b: b[0])[:count]]


def stages(sketch: Sketch, choice: Sequence[int], target: Target) -> list[float]:
    """Milliseconds of `STAGES`."""
    marks = [time.perf_counter()]
    func = sketch.schedule(choice).func
    marks.append(time.perf_counter())
    lowered = lower(func, target)
    marks.append(time.perf_counter())
    text = text_of(lowered, target)
    marks.append(time.perf_counter())
    compile_object(text, target)
    marks.append(time.perf_counter())
    times = [(after - before) * 1e3 for before, after in itertools.pairwise(marks)]
    return [*times, sum(times[1:])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default=",".join(suites()))
    parser.add_argument("--each", type=int, default=2, help="candidates of a workload")
    parser.add_argument("--times", type=Path, help="a file for the seconds of each, scheduled to compiled")
    arguments = parser.parse_args()
    target, rng = discover("cpu"), np.random.default_rng(0)
    gc.disable()
    rows = [
        stages(sketch, choice, target)
        for name in arguments.suite.split(",")
        for entry in suite(name).entries
        for sketch, choice in promising(entry, target, arguments.each, rng)
    ]
    if arguments.times is not None:
        seconds = [round((row[0] + row[-1]) * 1e-3, 4) for row in rows]
        arguments.times.write_text(json.dumps({"device": target.name, "isa": target.isa, "seconds": seconds}) + "\n")
    print(f"{len(rows)} candidates, milliseconds: median (quartiles)")
    for stage, times in zip(STAGES, zip(*rows, strict=True), strict=True):
        low, middle, high = np.percentile(times, [25, 50, 75])
        print(f"{stage:16} {middle:6.1f} ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()
