"""From committed data to committed weights: what the estimate's weights are made by, and how well they order kernels.

    python benchmarks/fit.py [--target avx512,opencl] [--folds 6] [--shapes]

For each class of machines with data in `calibration` prints its entry of `cost_model/weights.toml` as the fit makes it
now, and says where a committed weight differs by more than a hundredth; then, on shapes that were held back from the
fit (whole shapes, in so many folds), the rank correlation of estimate and latency, of all kernels, of the faster half
and of the 16 that are estimated best, and what the fastest of the 1, 4 and 16 kernels that are estimated best takes
over the fastest of all: for the weights that the fit starts with, for those of the fit to the other shapes, and for
those of the fit to all of them.
Exit code 1 where a weight differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from stridesmith.cost_model.calibration import Calibration
from stridesmith.cost_model.fit import HEADS, Quality, fit, held_back, quality
from stridesmith.cost_model.weights import AnyWeights, classes, start_of

FOLDER = Path(__file__).resolve().parent / "calibration"
EQUAL = 0.01


def differing(found: AnyWeights, committed: AnyWeights) -> list[str]:
    """What is to be said of weights that are not the committed ones."""
    other = asdict(committed)
    return [
        f"{name}: the fit gives {value:g}, committed is {other[name]:g}"
        for name, value in asdict(found).items()
        if abs(value / other[name] - 1) > EQUAL
    ]


def shown(title: str, found: Mapping[str, Quality]) -> str:
    """A line of means over shapes: of correlations the arithmetic one and the least, of regrets the geometric one."""
    correlations = [q.correlation for q in found.values()]
    regrets = np.exp(np.mean(np.log([q.regrets for q in found.values()]), axis=0))
    parts = [np.mean([getattr(q, part) for q in found.values()]) for part in ("among_fast", "among_first")]
    figures = [np.mean(correlations), min(correlations), *parts, *regrets]
    return f"| {title} | {' | '.join(f'{figure:.3f}' for figure in figures)} |"


PARTS = ("correlation", "least", "among the faster half", f"among the first {HEADS[-1]}")
COLUMNS = (*PARTS, *(f"best of {n}" for n in HEADS))
HEAD = f"| weights | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="", help="classes, with commas; all that have data")
    parser.add_argument("--folds", type=int, default=6)
    parser.add_argument("--shapes", action="store_true", help="one line for each shape, too")
    options = parser.parse_args()
    wrong = 0
    for name, machines in classes().items():
        if not machines.data or (options.target and name not in options.target.split(",")):
            continue
        kind = type(machines.weights)
        data, start = Calibration.load(FOLDER / machines.data, kind), start_of(kind)
        found = fit(data, start)
        print(f"## {name}: {len(data.latency)} kernels of {len(set(data.shape.tolist()))} shapes; {data.machine}\n")
        print("\n".join(f"{weight} = {value:g}" for weight, value in asdict(found).items()))
        differs = differing(found, machines.weights)
        wrong += len(differs)
        print("\n" + ("\n".join(differs) or "The fit gives the committed weights.") + "\n")
        old, fresh = quality(data, start), held_back(data, start, options.folds)
        print(HEAD, shown("before the fit", old), shown("fitted to other shapes", fresh), sep="\n")
        print(shown("fitted to all shapes", quality(data, found)), end="\n\n")
        if options.shapes:
            for shape, here in fresh.items():
                print(f"{shape:16} {old[shape].correlation:+.2f} -> {here.correlation:+.2f}  "
                      f"{old[shape].regrets[0]:.2f} -> {here.regrets[0]:.2f}")  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
