"""What becomes of random candidates: how many are masked, refused, built, and verified?

    python benchmarks/candidates.py --count 5000 --targets cpu,opencl --shard 0/2 --out candidates.jsonl

Candidates are drawn uniformly over the decisions of every workload of the suites, without a model,
and what the mask excludes is counted and drawn again.  Each is built and verified in a disposable
process as tuning does it (twice, with different poison; see `backends.verification`).  Printed are
the shares by suite and target, and every reason for which one failed.  Exit code 1 if one that was
built gives wrong results, or fewer than 95 of 100 build.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stridesmith.backends.devices import discover
from stridesmith.configs.load import suite
from stridesmith.search.bench import Bench, Limits
from stridesmith.search.task import interface_of
from stridesmith.space.errors import ScheduleError
from stridesmith.space.space import Space, generate

SUITES = ("resnet50", "mobilenetv2", "ragged", "transformer")
BUILT = 0.95


def drawn(space: Space, rng: np.random.Generator, tally: Counter[str]) -> tuple[int, tuple[int, ...]] | None:
    """A random candidate that the mask lets through, of a random sketch."""
    for _ in range(200):
        number = int(rng.integers(len(space.sketches)))
        sketch = space.sketches[number]
        sizes = [len(d.labels) for d in sketch.decisions]
        columns = [rng.integers(size, size=64) for size in sizes]
        rows = np.stack(columns, axis=1) if columns else np.zeros((1, 0), np.int64)
        good = np.flatnonzero(sketch.mask(rows))
        tally["masked"] += len(rows) if not len(good) else int(good[0])
        if len(good):
            return number, tuple(int(c) for c in rows[good[0]])
    return None


def outcomes(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line for each candidate."""
    shard, shards = map(int, arguments.shard.split("/"))
    rng = np.random.default_rng(arguments.seed * 1000 + shard)
    entries = [(name, entry) for name in arguments.suites.split(",") for entry in suite(name).entries]
    targets = [discover(text) for text in arguments.targets.split(",")]
    spaces: dict[tuple[str, str, str], Space] = {}
    with Bench(Limits(build=60.0, measure=120.0)) as bench:
        for number in range(shard, arguments.count, shards):
            name, entry = entries[number // len(targets) % len(entries)]
            target = targets[number % len(targets)]
            work = entry.work
            key = (name, entry.name, target.kind)
            if key not in spaces:
                spaces[key] = generate(work.func, target, interface_of(work, entry.interface))
            tally: Counter[str] = Counter()
            found = drawn(spaces[key], rng, tally)
            line = {"suite": name, "name": entry.name, "target": target.kind, "masked": tally["masked"]}
            if found is None:
                yield line | {"status": "masked", "message": "no candidate passes the mask"}
                continue
            sketch = spaces[key].sketches[found[0]]
            line |= {"sketch": sketch.name, "choice": found[1]}
            yield line | outcome(bench, work, sketch, found[1], target)


def outcome(bench: Bench, work: Any, sketch: Any, choice: tuple[int, ...], target: Any) -> dict[str, Any]:
    """What becomes of one candidate: its status, and the message of a failure."""
    try:
        trace = sketch.trace(choice).to_json()
    except ScheduleError as error:
        return {"status": "refused", "message": str(error)}
    job = {"job": "build", "script": work.func.script(), "trace": trace, "target": target.to_json(), "fault": None}
    built = bench.build(job)
    if built["status"] != "ok":
        return {"status": built["status"], "message": str(built.get("message", ""))[:300]}
    checked = bench.measure(
        {"job": "measure", "artifact": built["artifact"], "layouts": built["layouts"], "seed": 1, "best_us": 1e-3,
         "workload": {"name": work.name, "params": dict(work.params)}, "fault": None}
    )  # fmt: skip
    return {"status": checked["status"], "message": str(checked.get("message", ""))[:300]}


def report(lines: list[dict[str, Any]]) -> bool:
    """Print the shares and reasons; whether they are good enough."""
    print("| suite | target | candidates | masked before | refused | not built | verified |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for key in sorted({(r["suite"], r["target"]) for r in lines}):
        rows = [r for r in lines if (r["suite"], r["target"]) == key]
        status = Counter(r["status"] for r in rows)
        masked = sum(r["masked"] for r in rows)
        unbuilt = status["build_error"] + status["build_timeout"]
        share = masked / (masked + len(rows))
        figures = (len(rows), f"{share:.0%}", status["refused"], unbuilt, status["ok"])
        print("|", " | ".join(map(str, (*key, *figures))), "|")
    reasons = Counter((r["status"], r["target"], r["name"], r["message"]) for r in lines if r["status"] != "ok")
    for (status, target, name, message), count in reasons.most_common():
        print(f"{count:4} {status} {target} {name}: {message}")
    built = [r for r in lines if r["status"] not in ("refused", "build_error", "build_timeout", "masked")]
    wrong = [r for r in built if r["status"] not in ("ok", "run_timeout")]
    share = len(built) / len(lines)
    print(f"{len(lines)} candidates, {share:.1%} built, {len(wrong)} of these failed")
    return not wrong and share >= BUILT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--suites", default=",".join(SUITES))
    parser.add_argument("--targets", default="cpu,opencl")
    parser.add_argument("--shard", default="0/1", help="which part of how many, to run several beside each other")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("candidates.jsonl"), help="a line each; shards may share it")
    parser.add_argument("--report", action="store_true", help="only print what the file holds")
    arguments = parser.parse_args()
    if not arguments.report:
        with arguments.out.open("a") as file:
            for line in outcomes(arguments):
                file.write(json.dumps(line) + "\n")
                file.flush()
    return 0 if report([json.loads(text) for text in arguments.out.read_text().splitlines()]) else 1


if __name__ == "__main__":
    sys.exit(main())
