"""LSTM and GRU layers against ONNX Runtime, OpenVINO and PyTorch, taking turns.

    python benchmarks/recurrent.py --seconds 20 --out FOLDER [--only lstm] [--units 64 128] [--steps 1 50]

Each layer is an ONNX file of one node, with as many inputs as units; it is tuned from an empty database for
``--seconds``, or not at all with 0.  Then ours and each peer, each a process of its own, take turns (`racing.py`); the
ratio is the median over the rounds of what the best peer took over what ours took in the same round.  The error is the
largest difference from ONNX Runtime without optimisations, as a share of the largest element.  Results go to
``FOLDER/recurrent.jsonl``, a line each.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from network_race import race, ratios_of
from onnx import helper, numpy_helper
from racing import geometric_mean

GATES = {"lstm": 4, "gru": 3}


@dataclass(frozen=True)
class Layer:
    """One recurrent layer, with as many inputs as units."""

    kind: str
    units: int
    steps: int
    batch: int
    directions: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.units}-t{self.steps}-b{self.batch}-d{self.directions}"

    def model(self) -> onnx.ModelProto:
        """The layer with seeded weights of the size that PyTorch begins with; a GRU has PyTorch's form."""
        rng, rows, bound = np.random.default_rng(0), GATES[self.kind] * self.units, self.units**-0.5
        shapes = {
            "w": (self.directions, rows, self.units), "r": (self.directions, rows, self.units),
            "b": (self.directions, 2 * rows),
        }  # fmt: skip
        weights = [
            numpy_helper.from_array(rng.uniform(-bound, bound, shape).astype(np.float32), name)
            for name, shape in shapes.items()
        ]
        extra = {"linear_before_reset": 1} if self.kind == "gru" else {}
        node = helper.make_node(
            self.kind.upper(), ["x", "w", "r", "b"], ["y"], hidden_size=self.units,
            direction="bidirectional" if self.directions > 1 else "forward", **extra,
        )  # fmt: skip
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (self.steps, self.batch, self.units))
        shape = (self.steps, self.directions, self.batch, self.units)
        y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)
        graph = helper.make_graph([node], "layer", [x], [y], weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def layers(arguments: argparse.Namespace) -> list[Layer]:
    kinds = [kind for kind in GATES if arguments.only in kind]
    sizes = itertools.product(kinds, arguments.directions, arguments.units, arguments.steps, arguments.batch)
    return [Layer(kind, units, steps, batch, directions) for kind, directions, units, steps, batch in sizes]


def error_of(path: Path, layer: Layer, db: Path, threads: int) -> float:
    """The largest difference from ONNX Runtime without optimisations, as a share of the largest element."""
    import onnxruntime as ort

    import stridesmith as ss

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = np.random.default_rng(1).standard_normal((layer.steps, layer.batch, layer.units)).astype(np.float32)
    (expected,) = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    found = ss.compile(path, db=str(db), threads=threads)(x)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def row_of(layer: Layer, arguments: argparse.Namespace) -> dict[str, Any]:
    """Tune one layer, compare it, and race it."""
    import stridesmith as ss
    from stridesmith.backends.devices import discover
    from stridesmith.models.api import network_of

    path, db = arguments.out / f"{layer.name}.onnx", arguments.out / f"{layer.name}.db"
    onnx.save(layer.model(), path)
    if arguments.seconds:
        ss.compile(str(path), seconds=arguments.seconds, db=str(db), threads=arguments.threads)
    error = error_of(path, layer, db, arguments.threads)
    found = race(path, network_of(str(path), discover("cpu", arguments.threads)), db, arguments)
    ratios = ratios_of(found["rounds"])
    best = min(ratios, key=ratios.__getitem__, default="")
    return {"layer": layer.name, "seconds": arguments.seconds, "ratio": ratios.get(best), "best": best,
            "ratios": ratios, "error": error, **found}  # fmt: skip


def main() -> None:
    """Race the layers and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="layers whose kind has this in its name")
    parser.add_argument("--units", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 10, 50, 500])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--directions", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turn", type=float, default=0.1)
    parser.add_argument("--patience", type=float, default=10.0)
    parser.add_argument("--peers", nargs="*", default=["onnxruntime", "openvino", "torch"])
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.eager = True
    arguments.out.mkdir(parents=True, exist_ok=True)
    ratios = []
    print("| layer | ours, us | best peer | its us | ratio | error |\n|---|---:|---|---:|---:|---:|")
    for layer in layers(arguments):
        row = row_of(layer, arguments)
        with (arguments.out / "recurrent.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        if row["ratio"] is None:
            print(f"| {layer.name} | | | | | {row['missing']} |", flush=True)
            continue
        ratios.append(row["ratio"])
        ours, theirs = row["times"]["stridesmith:model"][0], row["times"][row["best"]][0]
        print(f"| {layer.name} | {ours:.1f} | {row['best']} | {theirs:.1f} | {row['ratio']:.2f} | {row['error']:.1e} |",
              flush=True)  # fmt: skip
    if ratios:
        print(f"\nGeometric mean {geometric_mean(ratios):.2f} of {len(ratios)}, least {min(ratios):.2f}.")


if __name__ == "__main__":
    main()
