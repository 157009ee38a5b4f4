"""Whether the networks of the benchmarks compute what ONNX Runtime computes.

    python benchmarks/check_models.py --out FOLDER [--models resnet50,bert] [--db FILE] [--verbose]

Each network is compiled with what the database has, or with the candidates that the estimate likes best, and run on a
seeded random input.  The error is the largest difference to ONNX Runtime without optimisations, as a share of the
largest element of the result; a network passes below ``BOUND``.  So that the figure means something, the result must be
neither constant nor huge: its spread (standard deviation over the largest element) is told beside it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from networks import NETWORKS, written

BOUND = 1e-4
LEAST_SPREAD = 1e-3


def reference(path: Path, arrays: dict[str, Any]) -> list[Any]:
    """The outputs of a model by ONNX Runtime, computed as the file says."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, arrays)


def checked(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Import, compile and run one network, and compare."""
    import stridesmith as ss
    from stridesmith.models.network import Operator
    from stridesmith.models.onnx import import_model

    path, _ = written(name, asked.out)
    arrays = NETWORKS[name].input(onnx.load(path))
    start = time.perf_counter()
    imported = import_model(path, {given: array.shape for given, array in arrays.items()})
    read = time.perf_counter()
    model = ss.compile(imported.network, db=asked.db)
    compiled = time.perf_counter()
    found = model(arrays)
    ran = time.perf_counter()
    wanted = reference(path, arrays)
    pairs = [(found[output], right) for output, right in zip(imported.network.outputs, wanted, strict=True)]
    size = max(float(np.abs(right).max()) for _, right in pairs)
    if asked.verbose:
        print(Counter(node.func.name for node in model.network.nodes if isinstance(node, Operator)))
    return {
        "network": name, "nodes": len(onnx.load(path).graph.node), "imported": len(imported.network.nodes),
        "operators": len(model.network.nodes),
        "programs": len({n.func for n in model.network.nodes if isinstance(n, Operator)}),
        "fell back": ", ".join(sorted({node.op for node in model.network.foreign})) or "-",
        "error": max(float(np.abs(got - right).max()) for got, right in pairs) / size,
        "largest": size, "spread": min(float(right.std()) for _, right in pairs) / size,
        "read, s": read - start, "compile, s": compiled - read, "run, s": ran - compiled,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(NETWORKS))
    parser.add_argument("--out", type=Path, default=Path("models"), help="where the networks are, or are written")
    parser.add_argument("--db", help="with kernels for them; else an empty one beside them")
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    asked.db = asked.db or str(asked.out / "untuned.db")
    passed = True
    for number, name in enumerate(asked.models):
        row = checked(name, asked)
        if not number:
            print(f"| {' | '.join(row)} |\n|{'---|' * len(row)}")
        texts = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()]
        print(f"| {' | '.join(texts)} |", flush=True)
        passed = passed and row["error"] <= BOUND and row["spread"] >= LEAST_SPREAD
    print(f"\nall below {BOUND:g}" if passed else f"\nNOT all below {BOUND:g}, or a result that says nothing")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
