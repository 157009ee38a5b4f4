"""One kernel for all shapes beside kernels of one shape, PyTorch and ONNX Runtime, at sizes that nothing has measured.

    python benchmarks/ranges.py --seconds 60 --alone 20 --sizes 8 --out FOLDER [--family matmul]

Each family is tuned once for its range, and once for each of the sizes alone.  Then at each size the kernel of the
range, the one of this size, and the peers that are installed take turns in this process, as calls from Python with
arrays; the ratios are those of medians.  Results go to ``FOLDER/ranges.jsonl``, a line for each size; families that are
there are not tuned again.  The last lines are geometric means, 5th percentiles, and what a call costs beside one of a
fixed kernel.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stridesmith as ss
from stridesmith.ir.size_ranges import ranges_of
from stridesmith.search.tuning.sizes import drawn

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "matmul": ("matmul", {"m": (1, 512), "n": 768, "k": 768}),
    "batch_matmul": ("batch_matmul", {"b": 12, "m": (1, 256), "n": 64, "k": 64}),
    "conv2d": ("conv2d", {"ci": 32, "co": 64, "h": (16, 128), "w": (16, 128)}),
    "depthwise": ("depthwise_conv2d", {"c": 96, "h": (16, 128), "w": (16, 128)}),
    "softmax": ("softmax", {"rows": (1, 2048), "cols": 512}),
    "layernorm": ("layernorm", {"rows": (1, 2048), "cols": 768}),
}
SKIP = 5000  # draws, behind which nothing has measured any
ROUNDS, LEAST_SECONDS = 15, 0.004  # of turns, and of the calls of one


def peers(name: str, inputs: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What PyTorch has for a family; without it nothing."""
    try:
        import torch
    except ImportError:
        return
    functional, at = torch.nn.functional, {key: torch.from_numpy(value) for key, value in inputs.items()}
    calls: dict[str, Callable[[], Any]] = {
        "matmul": lambda: torch.matmul(at["a"], at["b"]),
        "batch_matmul": lambda: torch.bmm(at["a"], at["b"]),
        "conv2d": lambda: functional.conv2d(at["x"], at["w"], padding=1),
        "depthwise_conv2d": lambda: functional.conv2d(at["x"], at["w"][:, None], padding=1, groups=at["w"].shape[0]),
        "softmax": lambda: torch.softmax(at["x"], 1),
        "layernorm": lambda: functional.layer_norm(at["x"], at["x"].shape[1:], at["gamma"], at["beta"]),
    }
    yield "torch", calls[name]


def onnx_session(name: str, shapes: dict[str, tuple[int, ...]]) -> Callable[[dict[str, Any]], Callable[[], Any]] | None:
    """ONNX Runtime's kernel of a family, of all shapes; None where it is not installed."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError:
        return None
    kinds = {"matmul": "MatMul", "batch_matmul": "MatMul", "conv2d": "Conv", "depthwise_conv2d": "Conv",
             "softmax": "Softmax", "layernorm": "LayerNormalization"}  # fmt: skip
    options: dict[str, Any] = {"pads": [1, 1, 1, 1]} if kinds[name] == "Conv" else {}
    if name == "depthwise_conv2d":
        options["group"] = shapes["w"][0]
    floats = TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info(key, floats, [None] * len(shape)) for key, shape in shapes.items()]
    node = helper.make_node(kinds[name], list(shapes), ["y"], **options)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", floats, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, ["CPUExecutionProvider"])
    return lambda given: lambda: session.run(None, given)


def in_turns(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds of each call."""
    counts = {}
    for key, call in calls.items():
        call()
        started = time.perf_counter()
        call()
        counts[key] = max(1, int(LEAST_SECONDS / max(time.perf_counter() - started, 1e-7)))
    found: dict[str, list[float]] = {key: [] for key in calls}
    for _ in range(ROUNDS):
        for key, call in calls.items():
            started = time.perf_counter()
            for _ in range(counts[key]):
                call()
            found[key].append((time.perf_counter() - started) / counts[key])
    return {key: statistics.median(seconds) for key, seconds in found.items()}


def family(label: str, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The results of a family at each size."""
    name, shape = FAMILIES[label]
    work = ss.workload(name, **shape)
    db = given.out / f"{label}.db"
    interface = dict.fromkeys((b.name for b in work.func.buffers), "fixed")
    ss.tune(work, "cpu", seconds=given.seconds, db=db, interface=interface, progress=False)
    kernel = ss.load(work, db=db, interface=interface)
    ranges = {v.name: numbers for v, numbers in ranges_of(work.func).items()}
    session = None
    for point in drawn(work.func, ranges, {}, given.sizes, skip=SKIP):
        one = work.at(point.values)
        alone_db = given.out / f"{label}-{point}.db"
        ss.tune(one, "cpu", seconds=given.alone, db=alone_db, interface=interface, progress=False)
        alone = ss.load(one, db=alone_db, interface=interface)
        rng = np.random.default_rng(0)
        shapes = {b.name: b.shape for b in one.func.buffers}
        inputs = {key: rng.uniform(-1, 1, shapes[key]).astype(np.float32) for key in one.inputs}
        if name == "depthwise_conv2d":
            peer_inputs = {**inputs, "w": inputs["w"][:, None]}
        else:
            peer_inputs = inputs
        session = session or onnx_session(name, {key: value.shape for key, value in peer_inputs.items()})
        arrays, ours, theirs = list(inputs.values()), kernel(*inputs.values()), alone(*inputs.values())
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
        calls: dict[str, Callable[[], Any]] = {
            "range": lambda arrays=arrays, out=ours: kernel(*arrays, out=out),
            "alone": lambda arrays=arrays, out=theirs, alone=alone: alone(*arrays, out=out),
            **dict(peers(name, inputs)),
        }
        if session is not None:
            calls["onnxruntime"] = session(peer_inputs)
        yield {"family": label, "size": str(point), **in_turns(calls)}


def summary(rows: list[dict[str, Any]]) -> str:
    """Geometric means and 5th percentiles of the ratios, of each family and of all."""
    lines = []
    for label in (*dict.fromkeys(row["family"] for row in rows), "all"):
        own = [row for row in rows if label in ("all", row["family"])]
        parts = [f"{label:14} {len(own):3} sizes"]
        for told, keys in (("alone", ["alone"]), ("best peer", ["torch", "onnxruntime"])):
            others = [(row["range"], [row[key] for key in keys if key in row]) for row in own]
            ratios = sorted(min(seconds) / ours for ours, seconds in others if seconds)
            if ratios:
                mean = math.exp(statistics.fmean(map(math.log, ratios)))
                parts.append(f"{told} / ours {mean:.2f} (5 %: {ratios[len(ratios) // 20]:.2f})")
        lines.append(", ".join(parts))
    return "\n".join(lines)


def overhead() -> str:
    """What a call of a kernel of many shapes costs more than one of a kernel of this shape, in microseconds."""
    work = ss.workload("add_act", rows=(1, 8), cols=8)
    kernel, alone = ss.build(work.func, "cpu"), ss.build(work.at({"rows": 4}).func, "cpu")
    x = np.ones((4, 8), np.float32)
    found = in_turns({"range": lambda: kernel(x, x), "alone": lambda: alone(x, x)})
    return f"a call: {found['range'] * 1e6:.2f} us, of a fixed kernel {found['alone'] * 1e6:.2f} us"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the search for a range")
    parser.add_argument("--alone", type=float, default=20.0, help="of the search for one size")
    parser.add_argument("--sizes", type=int, default=8)
    parser.add_argument("--family", action="append", choices=list(FAMILIES))
    parser.add_argument("--out", type=Path, default=Path("ranges"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "ranges.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for label in given.family or FAMILIES:
        if any(row["family"] == label for row in rows):
            continue
        for row in family(label, given):
            rows.append(row)
            print(", ".join(f"{k} {v * 1e6:.1f} us" if isinstance(v, float) else v for k, v in row.items()), flush=True)
            with file.open("a") as out:
                out.write(json.dumps(row) + "\n")
    print(summary(rows))
    print(overhead())


if __name__ == "__main__":
    main()
