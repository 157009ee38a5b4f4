"""Random candidates of small operators as kernels for AArch64, run by qemu and verified.

    apt-get install qemu-user && pip install ziglang
    python benchmarks/aarch64.py [--count 300] [--seed 0] [--seconds 3600] [--out aarch64.jsonl]

Each candidate is drawn at random from the space of one of the operators in `tests/emulated.py`, for processors with
NEON alone, with dot products, and with matrix and half-float instructions besides, in turns.  It is verified as on any
device: exactly on small integers where its program allows, within the bound of its roundings elsewhere, under two kinds
of poison, with guard zones around every buffer.  A file that exists is gone on with.  The exit code is 1 if one was
wrong or not built.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import emulated

from stridesmith.backends.data import arguments_of
from stridesmith.backends.lower import lower
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import verify
from stridesmith.space.design.space import Space, generate
from stridesmith.space.workloads import Workload, workload

PROCESSORS = ((), ("dotprod",), ("dotprod", "i8mm", "fullfp16", "bf16"))


@lru_cache(maxsize=64)
def space_of(name: str, features: tuple[str, ...]) -> tuple[Workload, Space, Any]:
    """An operator, its space on a processor, and samples with their results."""
    kind, shape = emulated.operators()[name]
    work = workload(kind, **shape)
    space = generate(work.func, emulated.target(*features), dict.fromkeys(work.constants, "constant"))
    return work, space, make_samples(work.func, work.reference, 0)


def judged(number: int, seed: int) -> dict[str, Any]:
    """Candidate `number`: which it is, and what came of it."""
    names = list(emulated.operators())
    name, features = names[number % len(names)], PROCESSORS[number // len(names) % len(PROCESSORS)]
    row = {"number": number, "seed": seed, "operator": name, "features": " ".join(features)}
    _, space, samples = space_of(name, features)
    rng = np.random.default_rng([seed, number])
    sketch = space.sketches[int(rng.integers(len(space.sketches)))]
    (choice,) = sketch.draw(rng, 1)
    row |= {"sketch": sketch.name, "choice": [int(c) for c in choice]}
    machine = emulated.target(*features)
    try:
        func = sketch.schedule(choice).func
        with tempfile.TemporaryDirectory() as folder:
            bound = emulated.Emulated(lower(func, machine), machine, Path(folder))
            done = verify(bound, arguments_of(func), samples)
    except Exception as error:
        return row | {"verdict": "failed", "why": f"{type(error).__name__}: {error}"[:500]}
    return row | {"verdict": "right" if done.complete else "cut short"}


def main() -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--out", type=Path, default=Path("aarch64.jsonl"))
    options = parser.parse_args()
    if not emulated.is_here():
        print("needs qemu-aarch64 (apt-get install qemu-user) and ziglang (pip install ziglang)")
        return 2
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    known = {(row["number"], row["seed"]) for row in rows}
    started = time.monotonic()
    with options.out.open("a") as file:
        for number in range(options.count):
            if (number, options.seed) in known or time.monotonic() - started > options.seconds:
                continue
            rows.append(judged(number, options.seed))
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
    tally = Counter((row["operator"], row["verdict"]) for row in rows)
    for (operator, verdict), count in sorted(tally.items()):
        print(f"{operator:16} {verdict:9} {count:5}")
    for row in rows:
        if row["verdict"] == "failed":
            print(f"number {row['number']}, {row['operator']}, {row['features'] or 'NEON'}: {row['why']}")
    print(f"{len(rows)} candidates, {sum(row['verdict'] != 'right' for row in rows)} not right")
    return int(any(row["verdict"] == "failed" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
