"""How many candidates a second are ranked: features and predictions over a large population, on one thread.

    python benchmarks/ranking.py [--workload conv2d] [--candidates 100000] [--threads 1]

Candidates are drawn from the first sketch of the workload's space; the model is trained on 256 made-up
latencies, which costs a prediction as much as real ones.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from stridesmith.cost_model.features import FeatureMap
from stridesmith.cost_model.model import Ranker
from stridesmith.ir.target import Target
from stridesmith.search.candidates.search_space import SearchSpace
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

TARGET = Target(kind="cpu", vector_bits=256, registers=16, threads=2)


def main() -> None:
    """Print seconds and candidates a second for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="conv2d")
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()

    work = workload(options.workload)
    space = generate(work.func, TARGET, dict.fromkeys(work.constants, "constant"))
    search_space, columns = SearchSpace(space), FeatureMap(space.sketches, TARGET)
    rng = np.random.default_rng(0)
    rows = search_space.draw(rng, search_space.open[0], options.candidates)
    ranker = Ranker(columns.columns, nthread=options.threads)
    ranker.fit(columns.matrix(search_space.open[0], rows[:256]), rng.lognormal(size=min(256, len(rows))))

    began = time.perf_counter()
    matrix = columns.matrix(search_space.open[0], rows)
    between = time.perf_counter()
    ranker.predict(matrix)
    ended = time.perf_counter()
    print(f"{options.workload}: {len(rows)} candidates, {matrix.shape[1]} features, {options.threads} thread(s)")
    for step, seconds in (("features", between - began), ("predict", ended - between), ("both", ended - began)):
        print(f"{step:>9}: {seconds:.3f} s, {len(rows) / seconds:,.0f} candidates a second")


if __name__ == "__main__":
    main()
