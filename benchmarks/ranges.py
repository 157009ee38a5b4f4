"""One kernel for all shapes beside kernels of one shape, PyTorch and ONNX Runtime, at sizes that nothing has measured.

    python benchmarks/ranges.py --seconds 60 --alone 20 --sizes 8 --out FOLDER [--family matmul]
    python benchmarks/ranges.py --ablation --sizes 8 --out FOLDER
    python benchmarks/ranges.py --check --candidates 4 --sizes 40 [--family softmax] [--target opencl]

Each family is tuned once for its range, and once for each of the sizes alone.  Then at each size the kernel of the
range, the one of this size, and the peers that are installed take turns in this process, as calls from Python with
arrays; the ratios are those of medians.  Results go to ``FOLDER/ranges.jsonl``, a line for each size; families that
are there are not measured again, and what FOLDER has a database of is not tuned again.  The last lines are geometric
means, 5th percentiles, and what a call costs beside one of a fixed kernel.  With `--pause` all is tuned and built
before a line is read from the terminal, and measured then.

`--ablation` takes the best schedules of the sizes at which a family's search has looked, each as what it becomes for
all sizes with each boundary alone (see `search.candidates.general`), and lets them take turns with what the search
chose.  A line has the geometric mean over the sizes of how many times as long the fastest of a boundary's takes at
each size, which flatters it: it may be another one at each.  Results go to ``FOLDER/ablation.jsonl``.

`--check` searches and measures nothing: the first candidates of a search at a size in the middle become schedules of
all sizes, and their kernels are compared with the reference of the workload at each of the sizes and at both ends.  It
tells how many are proven, and what they cost beside those of one size: seconds of a processor to compile, and bytes of
code.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stridesmith as ss
from stridesmith.backends.kernel import compile_lowered
from stridesmith.backends.llvm.compile import compile_object
from stridesmith.backends.lower import lower
from stridesmith.backends.render.llvm_module import generate
from stridesmith.errors import ProgramError
from stridesmith.ir.ranges import fixed
from stridesmith.ir.size_ranges import ranges_of
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.search.candidates.general import BOUNDARIES, general
from stridesmith.search.records.database import Database
from stridesmith.search.tuning.at_sizes import Sizes
from stridesmith.search.tuning.settings import resolve, settings
from stridesmith.search.tuning.sizes import Point, drawn
from stridesmith.search.tuning.study import Study
from stridesmith.space.errors import ScheduleError

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "matmul": ("matmul", {"m": (1, 512), "n": 768, "k": 768}),
    "matmul_transposed": ("matmul", {"m": (1, 256), "n": 256, "k": 256, "transpose_b": 1}),
    "matmul_two": ("matmul", {"m": (1, 256), "n": (1, 256), "k": 64}),
    "matmul_sum": ("matmul", {"m": 64, "n": 64, "k": (1, 1024)}),
    "dense": ("matmul_bias_act", {"m": (1, 256), "n": 512, "k": 256}),
    "batch_matmul": ("batch_matmul", {"b": 12, "m": (1, 256), "n": 64, "k": 64}),
    "scores": ("batch_matmul", {"b": 12, "m": (1, 128), "n": (1, 128), "k": 64, "transpose_b": 1}),
    "batches": ("batch_matmul", {"b": (1, 32), "m": 32, "n": 64, "k": 64}),
    "conv2d": ("conv2d", {"ci": 32, "co": 64, "h": (16, 128), "w": (16, 128)}),
    "conv2d_1x1": ("conv2d", {"ci": 64, "co": 64, "k": 1, "pad": 0, "h": (7, 56), "w": (7, 56)}),
    "conv2d_nhwc": ("conv2d", {"ci": 32, "co": 32, "h": (8, 64), "w": (8, 64), "layout": "nhwc"}),
    "conv2d_stride": ("conv2d", {"ci": 16, "co": 32, "stride": 2, "h": (32, 128, 2), "w": (32, 128, 2)}),
    "conv2d_batch": ("conv2d_bias_act", {"n": (1, 8), "ci": 32, "co": 32, "h": 28, "w": 28}),
    "conv1d": ("conv1d", {"ci": 32, "co": 32, "w": (16, 1024)}),
    "depthwise": ("depthwise_conv2d", {"c": 96, "h": (16, 128), "w": (16, 128)}),
    "depthwise_5x5": ("depthwise_conv2d", {"c": 32, "k": 5, "pad": 2, "h": (8, 64), "w": (8, 64)}),
    "max_pool": ("max_pool2d", {"c": 32, "k": 2, "stride": 2, "pad": 0, "h": (16, 128, 2), "w": (16, 128, 2)}),
    "global_pool": ("global_avg_pool2d", {"c": 256, "h": (4, 32), "w": (4, 32)}),
    "softmax": ("softmax", {"rows": (1, 2048), "cols": 512}),
    "attention_rows": ("softmax", {"rows": (1, 512), "cols": (1, 512)}),
    "layernorm": ("layernorm", {"rows": (1, 2048), "cols": 768}),
    "row_sum": ("row_sum", {"rows": (1, 512), "cols": (1, 1024)}),
    "scale_shift": ("scale_shift_relu", {"rows": (1, 2048), "cols": 256}),
    "add": ("add_act", {"rows": (1, 1024), "cols": (1, 1024)}),
}
SKIP = 5000  # draws, behind which nothing has measured any
ROUNDS, LEAST_SECONDS = 15, 0.004  # of turns, and of the calls of one


PEERS = ("matmul", "batch_matmul", "conv2d", "depthwise", "softmax", "attention_rows", "layernorm")
"""Families that PyTorch and ONNX Runtime are asked for, in their plain form."""


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
    if name in calls:
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


@dataclass(frozen=True)
class Case:
    """Calls that take turns at one size of a family, by name."""

    family: str
    size: str
    calls: dict[str, Callable[[], Any]]

    def row(self) -> dict[str, Any]:
        """What each takes."""
        return {"family": self.family, "size": self.size, **in_turns(self.calls)}


def tuned(work: Any, seconds: float, db: Path, interface: dict[str, str]) -> Any:
    """The best record of a workload, searched for where the file has none."""
    task = resolve(settings(script=work.script, target="cpu", interface=interface))
    if db.exists():
        with contextlib.closing(Database(db, read_only=True)) as database:
            if (found := database.best(task.script, task.target, task.interface)) is not None:
                return found
    return ss.tune(work, "cpu", seconds=seconds, db=db, interface=interface, progress=False)


def points_of(work: Any, count: int) -> list[Point]:
    """Sizes that nothing has measured."""
    return drawn(work.func, {v.name: numbers for v, numbers in ranges_of(work.func).items()}, {}, count, skip=SKIP)


def inputs_at(work: Any, point: Point) -> dict[str, Any]:
    """Random inputs of a size, by name."""
    there, rng = work.at(point.values), np.random.default_rng(0)
    shapes = {b.name: b.shape for b in there.func.buffers}
    return {key: rng.uniform(-1, 1, shapes[key]).astype(np.float32) for key in there.inputs}


def family(label: str, given: argparse.Namespace) -> Iterator[Case]:
    """The kernel of a family's range, those of sizes, and the peers, at each size; tuned, built and compared."""
    name, shape = FAMILIES[label]
    work = ss.workload(name, **shape)
    interface = dict.fromkeys((b.name for b in work.func.buffers), "fixed")
    kernel = ss.load(tuned(work, given.seconds, given.out / f"{label}.db", interface))
    session = None
    for point in points_of(work, given.sizes):
        one = work.at(point.values)
        alone = ss.load(tuned(one, given.alone, given.out / f"{label}-{point}.db", interface))
        inputs = inputs_at(work, point)
        if name == "depthwise_conv2d":
            peer_inputs = {**inputs, "w": inputs["w"][:, None]}
        else:
            peer_inputs = inputs
        if label in PEERS and session is None:
            session = onnx_session(name, {key: value.shape for key, value in peer_inputs.items()})
        arrays, ours, theirs = list(inputs.values()), kernel(*inputs.values()), alone(*inputs.values())
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
        calls: dict[str, Callable[[], Any]] = {
            "range": lambda arrays=arrays, out=ours: kernel(*arrays, out=out),
            "alone": lambda arrays=arrays, out=theirs, alone=alone: alone(*arrays, out=out),
            **(dict(peers(name, inputs)) if label in PEERS else {}),
        }
        if session is not None:
            calls["onnxruntime"] = session(peer_inputs)
        yield Case(label, str(point), calls)


def bytes_of_code(func: PrimFunc, target: Target) -> int:
    """The size of what a compiler makes of a program; of what it is given on an OpenCL device."""
    lowered = lower(func, target)
    if target.kind == "cpu":
        return len(compile_object(generate(lowered, target), target))
    return len(compile_lowered(lowered, target)["code"])


def checked(label: str, given: argparse.Namespace) -> str:
    """What came of the first candidates of a family."""
    name, shape = FAMILIES[label]
    work = ss.workload(name, **shape)
    ranges = {v.name: numbers for v, numbers in ranges_of(work.func).items()}
    interface = dict.fromkeys((b.name for b in work.func.buffers), "fixed")
    ends = [Point({key: numbers.ends[end] for key, numbers in ranges.items()}) for end in (0, -1)]
    points = [*ends, *drawn(work.func, ranges, {}, given.sizes, skip=SKIP)]
    middle = sorted(points, key=lambda point: math.prod(point.values.values()))[len(points) // 2]
    one = fixed(work.func, {v: middle.values[v.name] for v in work.func.integers})
    task = resolve(settings(script=one.script(), target=given.target, interface=interface))
    space = ss.generate(task.work.func, task.target, task.interface)
    costs, right, wrong, refused = list[tuple[float, float, int, int]](), 0, 0, list[str]()
    for candidate in Study(space, seed=0).ask(given.candidates):
        schedule = space.sketches[candidate.sketch].schedule(candidate.choice)
        started = time.process_time()
        try:
            made = general(schedule.trace.to_json(), one, work.func, task.target)
        except ScheduleError as error:
            refused.append(str(error)[:200])
            continue
        proven, found = time.process_time() - started, list[tuple[float, int]]()
        try:
            for func in (schedule.func, made.func):
                started, size = time.process_time(), bytes_of_code(func, task.target)
                found.append((time.process_time() - started, size))
        except ProgramError as error:
            refused.append(f"not built: {error}"[:200])
            continue
        (alone, alone_bytes), (all_sizes, all_bytes) = found
        costs.append((proven, all_sizes / alone, all_bytes, alone_bytes))
        kernel = ss.build(made.func, task.target)
        for point in points:
            at, rng = work.at(point.values), np.random.default_rng(0)
            shapes = {b.name: b.shape for b in at.func.buffers}
            inputs = {key: rng.uniform(-1, 1, shapes[key]).astype(np.float32) for key in at.inputs}
            (expected,) = at.reference(inputs).values()
            good = np.allclose(kernel(*inputs.values()), expected, rtol=1e-3, atol=1e-3)
            right, wrong = right + good, wrong + (not good)
    parts = [f"{label:18} proven {len(costs)} of {len(costs) + len(refused)}", f"right {right} of {right + wrong}"]
    if costs:
        proofs, compiled, most, least = zip(*costs, strict=True)
        parts += [
            f"proofs {max(proofs):.1f} s",
            f"compiled in {statistics.fmean(compiled):.1f} times (most {max(compiled):.1f})",
            f"code {sum(most) / sum(least):.1f} times, most {max(most) / 1024:.0f} KiB",
        ]
    return "; ".join([*parts, *refused[:1]])


def ablation(label: str, given: argparse.Namespace) -> Iterator[Case]:
    """The choice of a family's search, and all schedules of its anchors with each boundary, at each size."""
    name, shape = FAMILIES[label]
    work = ss.workload(name, **shape)
    interface = dict.fromkeys((b.name for b in work.func.buffers), "fixed")
    db = given.out / f"{label}.db"
    kernels = {"search": ss.load(tuned(work, given.seconds, db, interface))}
    task = resolve(settings(script=work.script, target="cpu", interface=interface))
    for point in Sizes.of(task, {}).anchors(given.seconds):
        there = resolve(settings(script=work.at(point.values).script, target="cpu", interface=interface))
        with contextlib.closing(Database(db, read_only=True)) as database:
            record = database.best(there.script, there.target, there.interface)
        own, made = fixed(work.func, {v: point.values[v.name] for v in work.func.integers}), dict[PrimFunc, Any]()
        for boundary in BOUNDARIES if record is not None else ():
            with contextlib.suppress(ProgramError):
                func = general(record.trace or [], own, work.func, task.target, boundary).func
                made[func] = made.get(func) or ss.build(func, "cpu")
                kernels[f"{boundary} {point}"] = made[func]
    for point in points_of(work, given.sizes):
        inputs = list(inputs_at(work, point).values())
        out = kernels["search"](*inputs)
        for kernel in kernels.values():
            np.testing.assert_allclose(kernel(*inputs), out, rtol=1e-3, atol=1e-3)
        yield Case(label, str(point), {
            key: lambda kernel=kernel, inputs=inputs, out=out: kernel(*inputs, out=out)
            for key, kernel in kernels.items()
        })  # fmt: skip


def of_boundaries(rows: list[dict[str, Any]]) -> str:
    """How many times as long as the choice of the search the fastest schedule with each boundary takes."""
    lines = []
    for label in (*dict.fromkeys(row["family"] for row in rows), "all"):
        own, parts = [row for row in rows if label in ("all", row["family"])], list[str]()
        for boundary in BOUNDARIES:
            best = [(min((us for key, us in row.items() if key.startswith(f"{boundary} ")), default=None), row)
                    for row in own]  # fmt: skip
            logs = [math.log(us / row["search"]) for us, row in best if us is not None]
            parts.append(f"{boundary} {math.exp(statistics.fmean(logs)):.2f}" if logs else f"{boundary} -")
        lines.append(f"{label:18} {len(own):3} sizes: {', '.join(parts)}")
    return "\n".join(lines)


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
    parser.add_argument("--check", action="store_true", help="only whether kernels are right")
    parser.add_argument("--ablation", action="store_true", help="each boundary alone")
    parser.add_argument("--pause", action="store_true", help="wait for a line before anything is measured")
    parser.add_argument("--target", default="cpu", help="with --check")
    parser.add_argument("--candidates", type=int, default=4, help="of each family, with --check")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.check:
        for label in given.family or FAMILIES:
            print(checked(label, given), flush=True)
        return
    file = given.out / ("ablation.jsonl" if given.ablation else "ranges.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    labels = [label for label in given.family or FAMILIES if not any(row["family"] == label for row in rows)]
    prepare = ablation if given.ablation else family
    cases: Iterable[Case] = (case for label in labels for case in prepare(label, given))
    if given.pause:
        cases = list(cases)
        input("all is built; a line begins the measurements\n")
    for case in cases:
        rows.append(row := case.row())
        print(", ".join(f"{k} {v * 1e6:.1f} us" if isinstance(v, float) else v for k, v in row.items()), flush=True)
        with file.open("a") as out:
            out.write(json.dumps(row) + "\n")
    print(of_boundaries(rows) if given.ablation else summary(rows))
    if not given.ablation:
        print(overhead())


if __name__ == "__main__":
    main()
