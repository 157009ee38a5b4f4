"""What each kind of decision is worth: the full space against spaces without it, with equal trials.

    python benchmarks/ablation.py --suite ragged --trials 64 --seeds 3 --out ablation
    python benchmarks/ablation.py --suite transformer --only softmax,layernorm --target opencl:intel \\
        --spaces full,no_subgroups,subgroups --out subgroups

Spaces: `full`; `divisors`, whose tiles divide their axes, with scalar code along an axis that no vector
divides; `no_layouts`, in which every buffer stays as the program has it; `branch_only`, where each ragged edge is
tested; `no_subgroups` and `subgroups`, in which an OpenCL device does none or all reductions along rows in subgroups;
`no_dot` and `dot`, in which it does none or all products of bytes by fours, for ``--dtype int8``; `no_fp16`, whose
device is taken for one without arithmetic of float16, for ``--dtype float16``;
`no_images` and `images`, `no_local` and `local`, in which none or all of the inputs that may are in textures, or in the
local memory of groups.  The first of ``--spaces`` is what the others are compared with.  For every workload and seed
all spaces are tuned in turns, each from an empty database and all on the same workers; then the winners of one seed
race each other in one process, so that a drifting machine is no advantage.

Results go to ``FOLDER/ablation.jsonl`` (runs continue where they ended) and, as tables, to ``FOLDER/ablation.md``:
how much slower the best of each smaller space is, and what the best of the full space chose.  ``--report`` only
writes the tables.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stridesmith.backends.devices import discover
from stridesmith.configs.load import suite
from stridesmith.configs.schema import Entry
from stridesmith.errors import ShapeError
from stridesmith.ir.functions import DOT_STEPS
from stridesmith.ir.target import Target
from stridesmith.search.records.record import Record
from stridesmith.search.tasks.task import name_of
from stridesmith.search.tuning.settings import settings
from stridesmith.search.tuning.tuner import tune
from stridesmith.search.workers.bench import Bench
from stridesmith.search.workers.executor import RayExecutor
from stridesmith.search.workers.protocol import Build, Race
from stridesmith.space.design.decision import BRANCH, Decision
from stridesmith.space.design.restrict import restricted
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import Space, generate
from stridesmith.space.workloads import workload

Keep = Callable[[Decision, Any], bool]


def everything(decision: Decision, value: Any) -> bool:
    return True


def no_layouts(decision: Decision, value: Any) -> bool:
    return decision.kind != "layout" or value.kind == "identity"


def branch_only(decision: Decision, value: Any) -> bool:
    return decision.kind != "boundary" or value == BRANCH


def chosen(name: str, wanted: Any) -> Keep:
    """Sketches whose decision of this name has a value, and those without such a decision."""
    return lambda decision, value: decision.name.rsplit("/", 1)[-1] != name or value == wanted


def in_memory(kind: str, wanted: bool) -> Keep:
    """Candidates that have every input in a memory of this ``kind`` which may be there, or none."""
    return lambda decision, value: not decision.name.rsplit("/", 1)[-1].startswith(f"{kind}:") or value == wanted


def divisors(extents: Mapping[str, int]) -> Keep:
    """Tiles that divide their axis; `extents` by the names of axes."""

    def keep(decision: Decision, value: Any) -> bool:
        if isinstance(value, bool):  # whether axes are fused, which says nothing about sizes
            return True
        axis = decision.name.rsplit("tile:", 1)[-1].split(":")[0]
        size = value[0] * value[1] if isinstance(value, tuple) else value
        return decision.kind != "tile" or axis not in extents or extents[axis] % size == 0

    return keep


def with_scalars(sketch: Sketch, keep: Keep) -> Sketch:
    """The sketch with a tile of one element where `keep` leaves none."""

    def filled(decision: Decision) -> Decision:
        if any(keep(decision, value) for value in decision.values):
            return decision
        one = (1, 1) if isinstance(decision.values[0], tuple) else 1
        table = {name: (*column, 1.0) for name, column in decision.table.items()}
        values = (*decision.values, one)
        return replace(decision, labels=(*decision.labels, "1"), values=values, table=table)

    parts = tuple(replace(p, decisions=tuple(filled(d) for d in p.decisions)) for p in sketch.parts)
    return replace(sketch, parts=parts)


def space_of(variant: str, func: Any, target: Any, interface: Mapping[str, str]) -> Space:
    """The design space of one variant."""
    whole = generate(func, target, interface)
    if variant == "divisors":
        apart = tuple(sketch for sketch in whole.sketches if not sketch.chunks)
        keep = divisors({a.name: a.extent for s in apart for p in s.parts for a in p.anchor.axes})
        return restricted(replace(whole, sketches=tuple(with_scalars(s, keep) for s in apart)), keep)
    return restricted(whole, KEPT[variant])


def device_of(variant: str, target: Target) -> Target:
    """The device that a variant is built for."""
    left = [feature for feature in target.features.split() if variant != "no_fp16" or feature != "cl_khr_fp16"]
    return replace(target, features=" ".join(left))


KEPT: Mapping[str, Keep] = {
    "full": everything, "no_fp16": everything, "no_layouts": no_layouts, "branch_only": branch_only,
    "subgroups": chosen("subgroup", True), "no_subgroups": chosen("subgroup", False),
    "dot": chosen("dot", DOT_STEPS), "no_dot": chosen("dot", 0),
    "images": in_memory("image", True), "no_images": in_memory("image", False),
    "local": in_memory("local", True), "no_local": in_memory("local", False),
}  # fmt: skip


class Kept:
    """Workers that outlive a tuning run."""

    def __init__(self, workers: RayExecutor) -> None:
        self.workers = workers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.workers, name)

    def close(self) -> None:
        """The next run goes on with them."""


def tuned(
    entry: Entry, variant: str, seed: int, arguments: argparse.Namespace, workers: RayExecutor, target: Target
) -> dict[str, Any]:
    """The winner of one run: its record, and what it chose in words."""
    db = arguments.out / "databases" / f"{entry.name}-{variant}-{seed}.db"
    db.parent.mkdir(parents=True, exist_ok=True)
    db.unlink(missing_ok=True)
    work = entry.work
    options = settings(
        workload=work.name, params=dict(work.shape), dtype=work.dtype, interface=entry.interface,
        target=device_of(variant, target), trials=arguments.trials, seed=seed, db=str(db), resume=False, mirror=False,
    )  # fmt: skip
    spaces: list[Space] = []

    def of_variant(func: Any, target: Any, interface: Mapping[str, str]) -> Space:
        spaces.append(space_of(variant, func, target, interface))
        return spaces[-1]

    record = tune(options, executor=Kept(workers), generate=of_variant)
    sketch = next((s for s in spaces[-1].sketches if s.name == record.sketch), None)
    labels = sketch.labels(record.choice) if sketch is not None else {}
    return {"record": record, "sketch": record.sketch, "labels": {k.split("/", 1)[-1]: v for k, v in labels.items()}}


def raced(entry: Entry, records: Mapping[str, Record], target: Target) -> dict[str, float]:
    """Median microseconds of each variant's winner, taking turns in one process."""
    with Bench() as bench:
        built = [
            bench.build(Build(script=record.script, target=device_of(variant, target), trace=record.trace))
            for variant, record in records.items()
        ]
        kernels = tuple(reply.kernel for reply in built)
        raced = bench.measure(Race(kernels=kernels, work=name_of(entry.work), seed=12345, rounds=30, seconds=6.0))
    return {name: statistics.median(r.samples) * 1e6 for name, r in zip(records, raced.results, strict=True)}


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def table(lines: list[dict[str, Any]], spaces: list[str]) -> str:
    """Per workload the median time of the first space, and how much slower each other one is."""
    first, *others = spaces
    rows = [f"| workload | {first} (us) | " + " | ".join(others) + " |", "|---|---:|" + "---:|" * len(others)]
    ratios: dict[str, list[float]] = {name: [] for name in others}
    for name in dict.fromkeys(line["name"] for line in lines):
        mine = [line["us"] for line in lines if line["name"] == name]
        found = {v: geometric_mean([us[v] / us[first] for us in mine]) for v in others}
        for variant, ratio in found.items():
            ratios[variant].append(ratio)
        median = statistics.median(us[first] for us in mine)
        rows.append(f"| {name} | {median:.1f} | " + " | ".join(f"{found[v]:.2f}" for v in others) + " |")
    means = [f"**{geometric_mean(ratios[v]):.2f}**" for v in others]
    return "\n".join([*rows, "| geometric mean | | " + " | ".join(means) + " |"])


def choices(lines: list[dict[str, Any]], space: str) -> str:
    """What the fastest candidate of a space chose for each workload, where it is not the plain alternative."""
    plain = ("identity", "none", "branch", "1")
    rows = ["| workload | sketch | decisions |", "|---|---|---|"]
    for name in dict.fromkeys(line["name"] for line in lines):
        best = min((line for line in lines if line["name"] == name), key=lambda line: line["us"][space])
        told = best["candidates"][space]
        words = [f"{key.split('/')[-1]} {label}" for key, label in told["labels"].items() if label not in plain]
        rows.append(f"| {name} | {told['sketch']} | {', '.join(words)} |")
    return "\n".join(rows)


def words(text: str) -> list[str]:
    return text.split(",")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", type=words, default=["ragged"], help="one or several")
    parser.add_argument("--only", type=words, help="these workloads of the suites")
    parser.add_argument("--dtype", help="of all workloads; their own by default")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--spaces", type=words, default=["full", "divisors", "no_layouts", "branch_only"])
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("ablation"))
    parser.add_argument("--report", action="store_true", help="only write the tables")
    return parser.parse_args()


def entries(name: str, dtype: str | None) -> list[Entry]:
    """The workloads of a suite; of another type, if one is given, those that have it."""
    found: list[Entry] = []
    for entry in suite(name).entries:
        with contextlib.suppress(ShapeError):
            of_type = {} if dtype is None else {"dtype": dtype}
            found.append(replace(entry, work=workload(entry.work.name, **{**entry.work.params, **of_type})))
    return found


def run(arguments: argparse.Namespace, log: Path, lines: list[dict[str, Any]]) -> None:
    """Tune and race what is not in the log yet; `lines` grows with it."""
    done = {(line["name"], line["seed"]) for line in lines}
    todo = [
        (entry, seed)
        for seed in range(arguments.seeds)
        for name in arguments.suite
        for entry in entries(name, arguments.dtype)
        if (entry.name, seed) not in done and (arguments.only is None or entry.name in arguments.only)
    ]
    if not todo:
        return
    workers, target = RayExecutor(None, discover("cpu").threads), discover(arguments.target)
    spaces, count = arguments.spaces, len(arguments.spaces)
    try:
        for entry, seed in todo:
            order = spaces[seed % count :] + spaces[: seed % count]
            found = {v: tuned(entry, v, seed, arguments, workers, target) for v in order}
            us = raced(entry, {v: found[v].pop("record") for v in spaces}, target)
            lines.append({"name": entry.name, "seed": seed, "trials": arguments.trials, "us": us, "candidates": found})
            with log.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
            print(entry.name, seed, {v: round(t, 1) for v, t in us.items()}, flush=True)
    finally:
        workers.close()


def main() -> None:
    arguments = options()
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "ablation.jsonl"
    lines = [json.loads(text) for text in log.read_text().splitlines()] if log.exists() else []
    if not arguments.report:
        run(arguments, log, lines)
    text = f"{table(lines, arguments.spaces)}\n\n{choices(lines, arguments.spaces[0])}\n"
    (arguments.out / "ablation.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
