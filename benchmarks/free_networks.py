"""Networks of free sizes beside ONNX Runtime and OpenVINO with dynamic shapes, at sizes that a seed draws.

    python benchmarks/free_networks.py --seconds 600 --sizes 20 --out FOLDER [--only ppocr_rec,bert]
    python benchmarks/free_networks.py --seconds 0 --sizes 6 --out FOLDER

Five networks of `networks.py`: the reader of PP-OCRv4 with lines of 48 to 1,024 pixels, its detector with both sides
320 to 960 by 32, its classifier with 1 to 32 images, six layers of BERT with 1 to 512 tokens, and MobileNetV2 with 1
to 16 images.  Each is tuned from its database in the folder for ``--seconds`` (0: not at all), and compiled once.  Then
at each size ours and the peers that are installed take turns in this process, as calls from Python with arrays; a turn
begins with a call that does not count, when each thread has a core of its own.  Results are compared with those of ONNX
Runtime without optimisations: the error is the largest difference as a share of the largest number.

``FOLDER/free_networks.jsonl`` gets a line for each network: seconds of tuning and compiling, operators that run as they
are written, medians and error at each size, the geometric mean and the least of the ratios, to each peer and to the
better one of each size, and the memory between operators after all sizes, as a share of that of a network of the
largest size alone (``--memory``, which compiles that one too).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from networks import bert, mobilenet_v2, written
from racing import geometric_mean

import stridesmith as ss
from stridesmith.backends.cores import cores
from stridesmith.backends.host import host_cpu

Arrays = dict[str, np.ndarray]
Call = Callable[[Arrays], Any]
Point = dict[str, int]


@dataclass(frozen=True)
class FreeNet:
    """A model, made or found in a folder, the extents of its one input, and the ranges of those that have names."""

    make: Callable[[Path], onnx.ModelProto]
    extents: tuple[int | str, ...]
    ranges: Mapping[str, tuple[int, ...]]

    def input(self, name: str, point: Point, seed: int = 0) -> Arrays:
        """Normal numbers of some sizes."""
        shape = [point[extent] if isinstance(extent, str) else extent for extent in self.extents]
        return {name: np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}

    def drawn(self, count: int, seed: int) -> list[Point]:
        """Sizes of the ranges, each once."""
        rng, found = np.random.default_rng(seed), list[Point]()
        numbers = {name: range(r[0], r[1] + 1, r[2] if len(r) > 2 else 1) for name, r in self.ranges.items()}
        count = min(count, int(np.prod([len(values) for values in numbers.values()])))
        while len(found) < count:
            point = {name: int(rng.choice(values)) for name, values in numbers.items()}
            found += [point] * (point not in found)
        return found

    @property
    def largest(self) -> Point:
        return {name: numbers[1] for name, numbers in self.ranges.items()}


def _found(name: str) -> Callable[[Path], onnx.ModelProto]:
    return lambda folder: onnx.load(written(name, folder)[0])


FREE = {
    "ppocr_rec": FreeNet(_found("ppocr_rec"), (1, 3, 48, "w"), {"w": (48, 1024)}),
    "ppocr_det": FreeNet(_found("ppocr_det"), (1, 3, "h", "w"),
                         {"h": (320, 960, 32), "w": (320, 960, 32)}),
    "ppocr_cls": FreeNet(_found("ppocr_cls"), ("n", 3, 48, 192), {"n": (1, 32)}),
    "bert": FreeNet(lambda _: bert(tokens="s"), (1, "s", 768), {"s": (1, 512)}),
    "mobilenet_v2": FreeNet(lambda _: mobilenet_v2(batch="n"), ("n", 3, 224, 224), {"n": (1, 16)}),
}  # fmt: skip


def onnxruntime_call(model: bytes, threads: int, plain: bool = False) -> Call:
    """ONNX Runtime with all of its optimisations, or with none.  Raises ImportError where it is not installed."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_DISABLE_ALL if plain else levels.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    return lambda given: session.run(None, given)


def openvino_call(model: bytes, threads: int, extents: Mapping[str, Sequence[int | str]]) -> Call:
    """OpenVINO in float32, where names are dynamic.  Raises ImportError where it is not installed."""
    import openvino

    core = openvino.Core()
    network = core.read_model(model)
    network.reshape({name: [-1 if isinstance(e, str) else e for e in shape] for name, shape in extents.items()})
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(network, "CPU", options).create_infer_request()
    return lambda given: request.infer(given)


def in_turns(calls: Mapping[str, Callable[[], Any]], rounds: int, turn: float, threads: int) -> dict[str, float]:
    """Median microseconds of each call over the rounds."""
    found: dict[str, list[float]] = {key: [] for key in calls}
    mine = cores(threads)
    for number in range(rounds):
        order = list(calls)
        for key in order[number % len(order) :] + order[: number % len(order)]:
            call, count = calls[key], 0
            mine.settle()
            call()
            started = time.perf_counter()
            while time.perf_counter() - started < turn or not count:
                call()
                count += 1
            found[key].append((time.perf_counter() - started) / count)
    return {key: round(statistics.median(seconds) * 1e6, 2) for key, seconds in found.items()}


def errors(found: Any, expected: Sequence[np.ndarray]) -> float:
    """The largest difference of results as a share of their largest number; of other shapes not a number."""
    worst = 0.0
    for own, other in zip(found.values(), expected, strict=True):
        if own.shape != other.shape:
            return float("nan")
        worst = max(worst, float(np.abs(own - other).max() / max(float(np.abs(other).max()), 1e-30)))
    return worst


def row_of(label: str, net: FreeNet, asked: argparse.Namespace) -> dict[str, Any]:
    """Tune, compile and race one network."""
    made = net.make(asked.out)
    (name,) = {i.name for i in made.graph.input} - {t.name for t in made.graph.initializer}
    model, extents = made.SerializeToString(), {name: net.extents}
    on: dict[str, Any] = {"db": str(asked.out / f"{label}.db"), "threads": asked.threads}
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the row has what it says
        if asked.seconds:
            ss.compile(model, inputs=extents, ranges=net.ranges, seconds=asked.seconds, progress=False, **on)
        tuned, started = time.perf_counter() - started, time.perf_counter()
        ours = ss.compile(model, inputs=extents, ranges=net.ranges, **on)
    row: dict[str, Any] = {
        "network": label, "ranges": {k: str(r) for k, r in ours.ranges.items()}, "seconds": asked.seconds,
        "threads": asked.threads, "tuned_seconds": round(tuned, 1),
        "compile_seconds": round(time.perf_counter() - started, 1), "as_written": ours.notices, "missing": {},
        "sizes": [],
    }  # fmt: skip
    peers: dict[str, Call] = {}
    for peer, prepare in (("onnxruntime", lambda: onnxruntime_call(model, asked.threads)),
                          ("openvino", lambda: openvino_call(model, asked.threads, extents))):  # fmt: skip
        try:
            peers[peer] = prepare()
        except Exception as error:  # a peer that cannot do a network is named, not fatal
            row["missing"][peer] = f"{type(error).__name__}: {error}"[:200]
    plain = onnxruntime_call(model, asked.threads, plain=True)
    for number, point in enumerate(net.drawn(asked.sizes, asked.seed)):
        given = net.input(name, point, number)
        calls: dict[str, Callable[[], Any]] = {"stridesmith": lambda given=given: ours(given)}
        calls |= {peer: lambda call=call, given=given: call(given) for peer, call in peers.items()}
        error = errors(ours(given), plain(given))
        us = in_turns(calls, asked.rounds, asked.turn, asked.threads)
        row["sizes"].append({"size": point, "us": us, "error": float(f"{error:.2g}")})
        print(f"{label} {point} {us} error {error:.2g}", flush=True)
    row |= {"ratios": summary(row["sizes"]), "error": max(size["error"] for size in row["sizes"])}
    row["arena_bytes"] = ours.arena_bytes
    if asked.memory:
        shapes = {key: array.shape for key, array in net.input(name, net.largest).items()}
        ours(net.input(name, net.largest))
        alone = ss.compile(model, inputs=shapes, **on)
        row |= {"arena_bytes": ours.arena_bytes, "of_largest": round(ours.arena_bytes / alone.plan.blocks[0], 3)}
    return row


def summary(sizes: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Geometric mean and least of the times of each peer by ours, and of those of the better one at each size."""
    ratios: dict[str, list[float]] = {}
    for size in sizes:
        own = {peer: us / size["us"]["stridesmith"] for peer, us in size["us"].items() if peer != "stridesmith"}
        for peer, ratio in (own | ({"best": min(own.values())} if own else {})).items():
            ratios.setdefault(peer, []).append(ratio)
    return {peer: {"mean": round(geometric_mean(own), 3), "least": round(min(own), 3)} for peer, own in ratios.items()}


def told(row: Mapping[str, Any]) -> str:
    """A row in a line."""
    means = ", ".join(f"{peer} {own['mean']:.2f} (least {own['least']:.2f})" for peer, own in row["ratios"].items())
    parts = [f"{row['network']}: {means or 'no peer'}", f"{len(row['sizes'])} sizes", f"error {row['error']:.1g}",
             f"tuned {row['tuned_seconds']:.0f} s, compiled in {row['compile_seconds']:.0f} s",
             f"{len(row['as_written'])} operators as written"]  # fmt: skip
    if "of_largest" in row:
        parts.append(f"memory {row['of_largest']:.2f} of that of the largest size")
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600, help="of tuning for a network; 0: none")
    parser.add_argument("--sizes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the sizes")
    parser.add_argument("--only", default="", help=f"of {','.join(FREE)}")
    parser.add_argument("--threads", type=int, default=0, help="0 for all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turn", type=float, default=0.06, help="seconds of one turn at least")
    parser.add_argument("--memory", action="store_true", help="compile a network of the largest size as well")
    parser.add_argument("--out", type=Path, default=Path("free_networks"))
    asked = parser.parse_args()
    asked.threads = asked.threads or host_cpu().threads
    asked.out.mkdir(parents=True, exist_ok=True)
    names = asked.only.split(",") if asked.only else list(FREE)
    if unknown := [name for name in names if name not in FREE]:
        sys.exit(f"there is no network {unknown[0]!r}; there are {', '.join(FREE)}")
    rows = []
    for name in names:
        rows.append(row_of(name, FREE[name], asked))
        with (asked.out / "free_networks.jsonl").open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(told(rows[-1]), flush=True)
    every = [size for row in rows for size in row["sizes"]]
    print("all: " + ", ".join(f"{peer} {own['mean']:.2f} (least {own['least']:.2f})"
                              for peer, own in summary(every).items()))  # fmt: skip


if __name__ == "__main__":
    main()
