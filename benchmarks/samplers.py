"""Does the search earn its place?  Our sampler against any other of Optuna's, with equal trials.

    python benchmarks/samplers.py --seeds 5 --trials 64 --against random

Each run starts without stored measurements, in a database of its own; the samplers take turns,
so that a drifting machine is no advantage.  Printed are the latency that each run's final race
measured, the geometric means, and the rank correlation of the model on candidates that it had
not been trained on, by round.  Run nothing else meanwhile.  With ``--recorded FOLDER`` candidates
are replayed instead (see `recorded_spaces.py`): how many trials each strategy needs, over
``--seeds 200`` or so.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import recorded_spaces

WORKLOADS = {"conv2d": "", "matmul": "m=127,n=129,k=131"}


def run(
    workload: str, shape: str, sampler: str, seed: int, trials: int, target: str, folder: Path
) -> list[dict[str, Any]]:
    """The events of one tuning run."""
    command = [
        sys.executable, "-m", "stridesmith", "--workload", workload, "--target", target, "--trials", str(trials),
        "--sampler", sampler, "--seed", str(seed), "--fresh", "--format", "json",
        "--db", str(folder / f"{workload}-{sampler}-{seed}.db"),
    ]  # fmt: skip
    done = subprocess.run(command + (["--shape", shape] if shape else []), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def correlations(events: list[dict[str, Any]]) -> list[float]:
    """The rank correlation of each round, from the first."""
    return [e["rank_correlation"] for e in events if e["event"] == "round" and e.get("rank_correlation") is not None]


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(math.log(v) for v in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--against", default="random")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--recorded", type=Path, metavar="FOLDER", help="compare on recorded spaces, without a device")
    options = parser.parse_args()
    if options.recorded is not None:
        strategies = list(dict.fromkeys(["stridesmith", options.against, "genetic", "tpe"]))
        recorded_spaces.compare(options.recorded, max(options.seeds, 2), max(2, options.seeds // 10), strategies)
        return
    with tempfile.TemporaryDirectory() as name:
        for workload, shape in WORKLOADS.items():
            compare(workload, shape, options, Path(name))


def compare(workload: str, shape: str, options: argparse.Namespace, folder: Path) -> None:
    """All runs of one workload, and what they say."""
    latency: dict[str, list[float]] = {"stridesmith": [], options.against: []}
    late: list[float] = []
    for seed in range(options.seeds):
        for sampler, found in latency.items():
            events = run(workload, shape, sampler, seed, options.trials, options.target, folder)
            done = events[-1]
            found.append(done["latency_us"])
            rounds = correlations(events)
            late += rounds[2:] if sampler == "stridesmith" else []
            shown = " ".join(f"{r:+.2f}" for r in rounds)
            print(
                f"{workload:8} seed {seed} {sampler:12} {done['latency_us']:10.1f} us {done['gflops']:7.1f} GFLOP/s "
                f"{100 * done['peak_fraction']:5.1f} % of peak  {done['seconds']:5.1f} s  correlation {shown}",
                flush=True,
            )
    ours, other = mean(latency["stridesmith"]), mean(latency[options.against])
    print(f"{workload:8} geometric mean {ours:.1f} us against {other:.1f} us of {options.against}: {other / ours:.2f}x")
    if late:
        print(f"{workload:8} mean rank correlation from the third round on: {statistics.fmean(late):+.2f}")


if __name__ == "__main__":
    main()
