"""Six recorded spaces: measuring them, and how many trials each strategy of the search needs on them.

    python benchmarks/recorded_spaces.py record FOLDER [--seconds 55]      # again, until it says that all are done
    python benchmarks/recorded_spaces.py compare FOLDER [--seeds 200] [--slow-seeds 20]

Recording measures real candidates on this machine, so run nothing else meanwhile; what `--seconds` cut off goes on with
the next call.  The comparison needs no quiet machine: it replays (`--target recorded:FILE` does the same for a whole
run) and counts how many candidates were measured until one was within 5 % of the best that there is, and prints the
mean over the seeds with a 95 % interval (bootstrap).  Random search is drawn as a permutation of all candidates, which
is what it is; TPE takes a second for twenty trials and so has fewer seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from stridesmith.search.candidates.search_space import Key, SearchSpace
from stridesmith.search.tasks.recording import Recording, load
from stridesmith.search.tuning.study import Study

SIZE = 2100
SPACES: dict[str, tuple[str, ...]] = {
    "matmul": ("--workload", "matmul", "--shape", "m=61,n=67,k=71", "--threads", "1", "--seed", "1"),
    "conv2d": ("--workload", "conv2d", "--shape", "ci=17,h=9,w=11,co=19", "--threads", "1", "--seed", "2"),
    "depthwise": ("--workload", "depthwise_conv2d", "--shape", "c=48,h=14,w=14", "--threads", "1", "--seed", "3"),
    "dense": ("--workload", "matmul", "--shape", "m=33,n=129,k=127", "--interface", "b=constant", "--threads", "2",
              "--seed", "4"),
    "free": ("--workload", "conv2d", "--shape", "ci=24,h=7,w=7,co=40", "--interface", "free", "--threads", "1",
             "--seed", "7"),
    "batched": ("--workload", "batch_matmul", "--shape", "b=3,m=31,n=37,k=41", "--threads", "1", "--seed", "6"),
}  # fmt: skip
NEAR = 1.05  # of the best latency: found
BATCH = 16
PARENTS, TOURNAMENT, TRIES = 24, 3, 50


def record(folder: Path, seconds: float) -> int:
    """Go on measuring; 0 when all six are there."""
    end = time.monotonic() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    for name, options in SPACES.items():
        path = folder / f"{name}.space"
        while not path.exists():
            left = end - time.monotonic()
            if left < 5:
                done = sum((folder / f"{other}.space").exists() for other in SPACES)
                print(f"{done} of {len(SPACES)} spaces are done; run again")
                return 1
            command = [sys.executable, "-m", "stridesmith", "record-space", *options, "-o", str(path)]
            subprocess.run([*command, "--size", str(SIZE), "--seconds", str(left - 4)], check=True)
    print("all spaces are done")
    return 0


# ---------------------------------------------------------------- strategies


def by_study(recording: Recording, sampler: str, seed: int) -> Iterator[float]:
    """Latencies in the order in which a study asks for candidates, in batches."""
    study = Study(recording.space, sampler, seed, batch=BATCH)
    while candidates := study.ask(BATCH if sampler == "stridesmith" else 1):
        for candidate in candidates:
            us, status = recording.sketches[candidate.sketch].result(candidate.choice)
            study.tell(candidate, *((us, None) if status == "ok" else (None, status.partition(":")[0])))
            yield us


def at_random(recording: Recording, seed: int) -> Iterator[float]:
    """Every candidate once, in an order that chance gives."""
    everything = np.concatenate([sketch.latencies for sketch in recording.sketches])
    yield from np.random.default_rng([seed, 3]).permutation(everything).tolist()


def genetic(recording: Recording, seed: int) -> Iterator[float]:
    """A plain genetic algorithm: tournaments, uniform crossover, one decision in D drawn anew; nothing twice."""
    rng = np.random.default_rng([seed, 4])
    space = SearchSpace(recording.space)
    known: dict[Key, float] = {}

    def measured(key: Key) -> float:
        us = recording.sketches[key[0]].result(key[1:])[0]
        known[key] = us if np.isfinite(us) else float("inf")
        return us

    def parent() -> Key:
        keys = population
        return min((keys[int(n)] for n in rng.integers(len(keys), size=TOURNAMENT)), key=known.__getitem__)

    population: list[Key] = []
    while len(population) < PARENTS and (key := space.fresh(rng, known)) is not None:
        yield measured(key)
        population.append(key)
    while True:
        children: list[Key] = []
        while len(children) < PARENTS:
            key = next((k for _ in range(TRIES) if (k := _child(space, parent(), parent(), rng)) is not None
                        and k not in known), None) or space.fresh(rng, known)  # fmt: skip
            if key is None:
                return
            yield measured(key)
            children.append(key)
        population = sorted({*population, *children}, key=lambda k: (known[k], k))[:PARENTS]


def _child(space: SearchSpace, mother: Key, father: Key, rng: np.random.Generator) -> Key | None:
    """A possible candidate of two others, of which those of different sketches have nothing to exchange."""
    other = father if father[0] == mother[0] else mother
    row = np.where(rng.random(len(mother) - 1) < 0.5, mother[1:], other[1:])
    for decision, values in enumerate(space.allowed[mother[0]]):
        if rng.random() < 1 / len(row):
            row[decision] = values[rng.integers(len(values))]
    key = (mother[0], *map(int, row))
    return key if space.possible(key) else None


STRATEGIES: dict[str, Callable[[Recording, int], Iterator[float]]] = {
    "stridesmith": lambda recording, seed: by_study(recording, "stridesmith", seed),
    "random": at_random,
    "genetic": genetic,
    "tpe": lambda recording, seed: by_study(recording, "tpe", seed),
}
SLOW = ("tpe",)


def trials_until(latencies: Iterator[float], goal: float, most: int) -> int:
    """How many candidates were measured until one took at most `goal`; `most` where none of so many did."""
    for count, us in enumerate(latencies, start=1):
        if us <= goal or count >= most:
            return count
    return most


def interval(counts: np.ndarray) -> tuple[float, float]:
    """Where the mean lies with 95 %."""
    rng = np.random.default_rng(0)
    means = counts[rng.integers(len(counts), size=(2000, len(counts)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def compare(folder: Path, seeds: int, slow_seeds: int, names: list[str]) -> int:
    """A row for each space and strategy, and one for the geometric mean of each strategy."""
    print("| space | candidates, within 5 % of the best | strategy | seeds | trials, mean | 95 % | median |")
    print("|---|---:|---|---:|---:|---:|---:|")
    means: dict[str, list[float]] = {}
    for path in sorted(folder.glob("*.space")):
        found = load(path)
        everything = np.concatenate([sketch.latencies for sketch in found.sketches])
        goal, near = NEAR * found.best_us, int((everything <= NEAR * found.best_us).sum())
        for name in names:
            count = slow_seeds if name in SLOW else seeds
            counts = np.asarray(
                [trials_until(STRATEGIES[name](found, seed), goal, found.size) for seed in range(count)]
            )
            low, high = interval(counts)
            means.setdefault(name, []).append(float(counts.mean()))
            print(f"| {path.stem} | {found.size}, {near} | {name} | {count} | {counts.mean():.1f} | "
                  f"{low:.1f} to {high:.1f} | {np.median(counts):.0f} |", flush=True)  # fmt: skip
    for name, values in means.items():
        print(f"| all, geometric mean | | {name} | | {np.exp(np.mean(np.log(values))):.1f} | | |")
    print(json.dumps(means), file=sys.stderr)
    return 0 if means else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=55.0)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--slow-seeds", type=int, default=20)
    parser.add_argument("--only", default=",".join(STRATEGIES), help="strategies, separated by commas")
    asked = parser.parse_args()
    if asked.what == "record":
        return record(asked.folder, asked.seconds)
    return compare(asked.folder, asked.seeds, asked.slow_seeds, asked.only.split(","))


if __name__ == "__main__":
    sys.exit(main())
