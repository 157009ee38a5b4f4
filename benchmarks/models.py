"""Whole networks against ONNX Runtime, OpenVINO and PyTorch, side by side.

    python benchmarks/models.py --light resnet50,squeezenet --seconds 600 --out FOLDER
    python benchmarks/models.py --file net.onnx --input x=1x3x320x320 --seconds 600 --out FOLDER

Each network is tuned from an empty database by ``tune --model``, in at most ``--seconds`` from the start of its
process.  Then ours and every form of every peer take turns, each library in a process of its own, stopped (SIGSTOP)
while another is timed; the ratio is the median over the rounds of what a peer took over what ours took in the same
round.  A peer that is not installed, or cannot do a network, is named with its reason, and so is one whose result
differs from ours.  With each result stands where its time goes: what `tune show --model` says of every operator.

``--light`` takes networks of the package `onnx`, whose weights are constants there: they get seeded random ones.
``--again`` races what the folder has tuned already.  Results go to ``FOLDER/models.jsonl``, a line each.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from racing import PATIENCE_SECONDS, Library, geometric_mean, runners_of, settled, spread, wait_for_quiet

PEERS = ("onnxruntime", "openvino", "torch")
LARGEST_OPERATORS = 12


def light(name: str, folder: Path) -> Path:
    """A network of the package `onnx` with seeded random weights, as a file of the folder."""
    import onnx
    from onnx import numpy_helper

    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    data = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    model = onnx.load(data)
    shapes = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    rng = np.random.default_rng(0)
    kept = []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            weights = _weights(tuple(int(n) for n in shapes[node.input[0]]), rng)
            model.graph.initializer.append(numpy_helper.from_array(weights, node.output[0]))
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    onnx.save(model, path)
    return path


def _weights(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Filters that keep the size of what they are applied to; vectors, among them variances, near one."""
    if len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return (rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))).astype(np.float32)


def run(arguments: list[str]) -> list[dict[str, Any]]:
    """The JSON events of a command of ours."""
    done = subprocess.run(
        [sys.executable, "-m", "stridesmith", *arguments, "--format", "json"], capture_output=True, text=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return found or [{"event": "error", "message": done.stderr[-500:]}]


def row_of(path: Path, shapes: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Tune one network, race it, and ask where its time goes."""
    db = arguments.out / f"{path.stem}.db"
    on = ["--threads", str(arguments.threads), "--db", str(db), *(word for s in shapes for word in ("--input", s))]
    if not arguments.again:
        db.unlink(missing_ok=True)
        tuned = run(["--model", str(path), "--seconds", str(arguments.seconds), *on])
    else:
        tuned = run(["run", str(path), *on])
    if tuned[-1]["event"] != "model":
        return {"model": path.stem, "ratio": math.nan, "problem": tuned[-1].get("message", "")}
    timed = race(path, shapes, db, arguments)
    shown = run(["show", "--model", str(path), *on])
    operators = [event for event in shown if event["event"] == "operator"]
    rounds = timed["rounds"]
    mine = rounds.get("stridesmith:model", [])
    ratios = {
        name: statistics.median(theirs / own for theirs, own in zip(values, mine, strict=False))
        for name, values in rounds.items()
        if mine and not name.startswith("stridesmith")
    }
    best = min(ratios, key=ratios.__getitem__, default="")
    parts = sum(row["latency_us"] for row in operators)
    return {
        "model": path.stem, "ratio": ratios.get(best, math.nan), "best_peer": best, "ratios": ratios,
        "times": timed["times"], "missing": timed["missing"], "busy": timed["busy"],
        "fallback": tuned[-1]["fallback"], "predicted_us": tuned[-1]["predicted_us"], "sum_of_parts_us": parts,
        "copies": sum(row["share"] for row in operators if row["only_moves"]), "trials": tuned[-1]["trials"],
        "tuning": [[e["seconds"], e["predicted_us"]] for e in tuned if e["event"] == "turn"],
        "operators": sorted(operators, key=lambda row: -row["latency_us"]), "problem": "",
    }  # fmt: skip


def race(path: Path, shapes: list[str], db: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Median and spread of ours and of each form of each peer, taking turns."""
    import stridesmith as ss
    from stridesmith.commands.options import input_shapes
    from stridesmith.models.onnx import read

    network = read(path, input_shapes(shapes))
    inputs = {name: (list(network.tensors[name].shape), network.tensors[name].dtype) for name in network.inputs}
    job = {"op": "prepare", "model": str(path.resolve()), "inputs": inputs, "db": str(db), "version": ss.__version__}
    busy = wait_for_quiet(PATIENCE_SECONDS)
    names = {"stridesmith": sys.executable} | dict.fromkeys(arguments.peers, arguments.peer_python)
    libraries = [Library(name, python, arguments.threads) for name, python in names.items()]
    samples: dict[str, list[float]] = {}
    try:
        runners, missing = runners_of(libraries, [library.ask(job) for library in libraries])
        for turn in range(arguments.rounds):
            start = turn % max(1, len(runners))
            for library, form in runners[start:] + runners[:start]:
                question = {"op": "time", "form": form, "seconds": arguments.turn}
                answer = settled(library, question, arguments.threads)
                if "samples" in answer:
                    samples.setdefault(f"{library.name}:{form}", []).append(statistics.median(answer["samples"]))
    finally:
        for library in libraries:
            library.close()
    rounds = {name: [round(value * 1e6, 3) for value in values] for name, values in samples.items()}
    times = {name: spread(values) for name, values in samples.items()}
    return {"missing": missing, "rounds": rounds, "times": times, "busy": max(busy, wait_for_quiet(0))}


def told(row: dict[str, Any]) -> str:
    """A result as lines: the ratio, every time, and the operators that take most."""
    if row["problem"]:
        return f"{row['model']}: {row['problem']}"
    times = ", ".join(f"{name} {found[0]:.0f}" for name, found in row["times"].items())
    missing = "".join(f"; {name}: {reason}" for name, reason in row["missing"].items())
    whole = row["times"].get("stridesmith:model", [math.nan])[0]
    lines = [
        f"{row['model']}: {row['ratio']:.2f} of {row['best_peer'] or 'no peer'}; us: {times}{missing}",
        f"  parts {row['sum_of_parts_us']:.0f} of {whole:.0f} us, moving alone {row['copies']:.1%}, "
        f"fell back: {', '.join(row['fallback']) or 'nothing'}",
    ]
    for item in row["operators"][:LARGEST_OPERATORS]:
        near = f"{item['roofline']:.0%}" if item["roofline"] else "-"
        lines.append(
            f"  {item['operator'][-40:]:40} {item['program']:20} {item['latency_us']:9.1f} us {item['share']:6.1%}"
            f" of roof {near:>5}  {item['origin']}"
        )
    return "\n".join(lines)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--light", default="", help="networks of the package onnx, such as resnet50,squeezenet")
    parser.add_argument("--file", type=Path, action="append", default=[])
    parser.add_argument("--input", action="append", default=[], help="X=1x3x320x320, for the files")
    parser.add_argument("--seconds", type=float, default=600, help="of tuning for a network, from process start")
    parser.add_argument("--threads", type=int, default=0, help="0 for all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of one turn")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(PEERS))
    parser.add_argument("--peer-python", default=sys.executable, help="the Python that has the peers")
    parser.add_argument("--again", action="store_true", help="race again what the folder has tuned")
    parser.add_argument("--out", type=Path, default=Path("models"))
    return parser.parse_args()


def main() -> None:
    from stridesmith.backends.host import host_cpu

    arguments = options()
    arguments.threads = arguments.threads or host_cpu().threads
    arguments.out.mkdir(parents=True, exist_ok=True)
    named = [name for name in arguments.light.split(",") if name]
    cases = [(light(name, arguments.out), []) for name in named] + [(path, arguments.input) for path in arguments.file]
    rows = []
    for path, shapes in cases:
        rows.append(row_of(path, shapes, arguments))
        with (arguments.out / "models.jsonl").open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(told(rows[-1]), flush=True)
    ratios = [row["ratio"] for row in rows if row["ratio"] == row["ratio"]]
    if ratios:
        print(f"geometric mean {geometric_mean(ratios):.2f} of {len(ratios)} of {len(rows)}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
