"""Ensembles of trees: seconds of ONNX Runtime over ours, in turns.

    python benchmarks/trees.py [--rows 1 10000] [--trees 100 1000] [--only TEXT] [--threads N] [--seconds S]

Forests are drawn as libraries grow them, with thresholds at quantiles of the data, on 32 features:

* ``depth 3``: 8 leaves, gradient boosting as scikit-learn does it by default;
* ``depth 6``: 64 leaves, as XGBoost does it;
* ``31 leaves``: grown leaf by leaf, as LightGBM does it;
* ``forest``: 500 leaves at very different depths, a random forest.

The rows of a call are fresh ones out of `POOL` batches, so that no branch is known from the call before.  ``--seconds``
tunes each program before.  Printed are microseconds of both, their ratio, and the largest difference of the results as
a share of the largest result.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import stridesmith as ss

FEATURES = 32
POOL = 16
TURN, TURNS = 0.25, 5
KINDS = ("depth 3", "depth 6", "31 leaves", "forest")


class Grown:
    """A tree in the making: nodes as TreeEnsembleRegressor numbers them."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[tuple[int, float, int, int]] = [(0, 0.0, -1, -1)]
        self.boxes: list[dict[int, tuple[float, float]]] = [{}]
        self.depths = [0]

    def split(self, at: int) -> None:
        """Make two leaves of one, at a number between the bounds that its way has set for a feature."""
        feature = int(self.rng.integers(FEATURES))
        low, high = self.boxes[at].get(feature, (-2.0, 2.0))
        threshold = float(np.float32(self.rng.uniform(0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high)))
        self.nodes[at] = (feature, threshold, len(self.nodes), len(self.nodes) + 1)
        for side in ((low, threshold), (threshold, high)):
            self.nodes.append((0, 0.0, -1, -1))
            self.boxes.append({**self.boxes[at], feature: side})
            self.depths.append(self.depths[at] + 1)

    @property
    def leaves(self) -> list[int]:
        """The numbers of the leaves."""
        return [at for at, node in enumerate(self.nodes) if node[2] < 0]


def grown(kind: str, rng: np.random.Generator) -> Grown:
    """A tree of one of `KINDS`."""
    tree = Grown(rng)
    if kind.startswith("depth"):
        for _ in range(int(kind.split()[1])):
            for at in tree.leaves:
                tree.split(at)
        return tree
    leaves = 31 if kind == "31 leaves" else 500
    open_leaves = [0]
    for _ in range(leaves - 1):  # mostly of the least deep ones, as those have most rows
        some = rng.choice(len(open_leaves), min(3, len(open_leaves)), replace=False)
        at = open_leaves.pop(int(min(some, key=lambda k: tree.depths[open_leaves[k]])))
        tree.split(at)
        open_leaves += [len(tree.nodes) - 2, len(tree.nodes) - 1]
    return tree


def model_of(kind: str, count: int) -> onnx.ModelProto:
    """A model of so many trees whose number of rows is open."""
    rng = np.random.default_rng(count)
    given: dict[str, list[Any]] = {
        f"nodes_{name}": [] for name in
        ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    }  # fmt: skip
    targets: dict[str, list[Any]] = {f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for number in range(count):
        for at, (feature, threshold, first, second) in enumerate(grown(kind, rng).nodes):
            is_leaf = first < 0
            row = (number, at, feature, threshold, "LEAF" if is_leaf else "BRANCH_LEQ", max(first, 0), max(second, 0))
            for values, value in zip(given.values(), row, strict=True):
                values.append(value)
            if is_leaf:
                for values, value in zip(targets.values(), (number, at, 0, float(rng.normal())), strict=True):
                    values.append(value)
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], "trees", domain="ai.onnx.ml", n_targets=1, **given, **targets
    )
    graph = helper.make_graph(
        [node], "trees", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def raced(runners: dict[str, Callable[[int], Any]]) -> dict[str, float]:
    """Microseconds of a call, medians over turns."""
    samples: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(TURNS):
        for name, run in runners.items():
            took, end = [], time.perf_counter() + TURN
            for number in itertools.count():
                began = time.perf_counter()
                run(number % POOL)
                took.append(time.perf_counter() - began)
                if time.perf_counter() > end:
                    break
            samples[name].append(statistics.median(took))
    return {name: statistics.median(times) * 1e6 for name, times in samples.items()}


def line_of(kind: str, count: int, rows: int, threads: int, seconds: float) -> str:
    """A row of the table."""
    import onnxruntime

    data = model_of(kind, count).SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trees.onnx"
        path.write_bytes(data)
        began = time.perf_counter()
        model = ss.compile(
            path, inputs={"x": (rows, FEATURES)}, threads=threads, seconds=seconds or None, db=f"{folder}/trees.db"
        )
        compiled = time.perf_counter() - began
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    batches = np.random.default_rng(0).standard_normal((POOL, rows, FEATURES)).astype(np.float32)
    out = np.empty((rows, 1), np.float32)
    theirs = session.run(None, {"x": batches[0]})[0]
    ours = model(batches[0])
    error = float(np.abs(ours - theirs).max() / max(float(np.abs(theirs).max()), 1e-6))
    found = raced({
        "ours": lambda k: model(batches[k], out=out), "onnxruntime": lambda k: session.run(None, {"x": batches[k]}),
    })  # fmt: skip
    ratio = found["onnxruntime"] / found["ours"]
    cells = [f"{found['ours']:.1f}", f"{found['onnxruntime']:.1f}", f"{ratio:.2f}", f"{error:.1e}", f"{compiled:.1f}"]
    return f"| {kind} | {count} | {rows} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=(1, 10_000))
    parser.add_argument("--trees", type=int, nargs="*", default=(100, 1000))
    parser.add_argument("--only", default="", help="kinds with this text in their name")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=0.0, help="of tuning")
    asked = parser.parse_args()
    print("| kind | trees | rows | ours, us | ONNX Runtime, us | ratio | error | compile, s |")
    print(f"|{'---|' * 8}")
    for kind in KINDS:
        for count, rows in itertools.product(asked.trees, asked.rows):
            if asked.only in kind:
                print(line_of(kind, count, rows, asked.threads, asked.seconds), flush=True)


if __name__ == "__main__":
    main()
