"""What each kind of decision is worth: the full space against spaces without it, with equal trials.

    python benchmarks/ablation.py --suite ragged --trials 64 --seeds 3 --out ablation

Spaces: `full`; `divisors`, whose tiles divide their axes; `no layouts`, in which every buffer stays as the
program has it; `branch only`, where each ragged edge is tested.  For every workload and seed all spaces are
tuned in turns, each from an empty database; then the winners of one seed race each other in one process, so
that a drifting machine is no advantage.  Results go to ``FOLDER/ablation.jsonl`` (runs continue where they
ended) and, as a table, to ``FOLDER/ablation.md``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import stridesmith as ss
from stridesmith.backends.devices import discover
from stridesmith.configs.load import suite
from stridesmith.configs.schema import Entry
from stridesmith.search.bench import Bench
from stridesmith.search.records import Record
from stridesmith.space.decision import BRANCH, Decision
from stridesmith.space.restrict import restricted
from stridesmith.space.space import Space, generate

Keep = Callable[[Decision, Any], bool]


def everything(decision: Decision, value: Any) -> bool:
    return True


def no_layouts(decision: Decision, value: Any) -> bool:
    return decision.kind != "layout" or value.kind == "identity"


def branch_only(decision: Decision, value: Any) -> bool:
    return decision.kind != "boundary" or value == BRANCH


def divisors(extents: Mapping[str, int]) -> Keep:
    """Tiles that divide their axis; `extents` by the names of axes."""

    def keep(decision: Decision, value: Any) -> bool:
        if decision.kind != "tile":
            return True
        axis = decision.name.rsplit("tile:", 1)[-1].split(":")[0]
        size = value[0] * value[1] if isinstance(value, tuple) else value
        return axis not in extents or extents[axis] % size == 0 or size == 1 or value == (1, 1)

    return keep


def space_of(variant: str, func: Any, target: Any, interface: Mapping[str, str]) -> Space:
    """The design space of one variant."""
    whole = generate(func, target, interface)
    if variant == "divisors":
        extents = {a.name: a.extent for s in whole.sketches for p in s.parts for a in p.anchor.axes}
        found = restricted(whole, divisors(extents))
        return found if found.sketches else whole
    return restricted(whole, {"full": everything, "no layouts": no_layouts, "branch only": branch_only}[variant])


VARIANTS = ("full", "divisors", "no layouts", "branch only")


def tuned(entry: Entry, variant: str, seed: int, trials: int, folder: Path) -> Record:
    """The winner of one run."""
    db = folder / "databases" / f"{entry.name}-{variant.replace(' ', '_')}-{seed}.db"
    db.parent.mkdir(parents=True, exist_ok=True)
    db.unlink(missing_ok=True)
    words: dict[str, Any] = {"interface": entry.interface} if entry.interface else {}
    return ss.tune(
        entry.work, target="cpu", trials=trials, seed=seed, db=str(db), resume=False, mirror=False,
        generate=lambda func, target, interface: space_of(variant, func, target, interface), **words,
    )  # fmt: skip


def raced(entry: Entry, records: Mapping[str, Record]) -> dict[str, float]:
    """Median microseconds of each variant's winner, taking turns in one process."""
    target = discover("cpu")
    with Bench() as bench:
        entries = []
        for record in records.values():
            job = {"job": "build", "script": record.script, "trace": record.trace, "target": target.to_json()}
            built = bench.build(job | {"fault": None})
            entries.append({"artifact": built["artifact"], "layouts": built["layouts"]})
        work = {"name": entry.work.name, "params": dict(entry.work.params)}
        job = {"job": "race", "entries": entries, "workload": work, "seed": 12345, "rounds": 30, "seconds": 6.0}
        results = bench.measure(job)["results"]
    return {name: statistics.median(r["samples"]) * 1e6 for name, r in zip(records, results, strict=True)}


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def table(lines: list[dict[str, Any]]) -> str:
    """Per workload the median time of the full space, and how much slower each other one is."""
    others = VARIANTS[1:]
    rows = ["| workload | full (us) | " + " | ".join(others) + " |", "|---|---:|" + "---:|" * len(others)]
    ratios: dict[str, list[float]] = {name: [] for name in others}
    for name in dict.fromkeys(line["name"] for line in lines):
        mine = [line["us"] for line in lines if line["name"] == name]
        found = {v: geometric_mean([us[v] / us["full"] for us in mine]) for v in others}
        for variant, ratio in found.items():
            ratios[variant].append(ratio)
        full = statistics.median(us["full"] for us in mine)
        rows.append(f"| {name} | {full:.1f} | " + " | ".join(f"{found[v]:.2f}" for v in others) + " |")
    means = [f"**{geometric_mean(ratios[v]):.2f}**" for v in others]
    return "\n".join([*rows, "| geometric mean | | " + " | ".join(means) + " |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", default="ragged")
    parser.add_argument("--only", help="one workload of the suite")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("ablation"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "ablation.jsonl"
    lines = [json.loads(text) for text in log.read_text().splitlines()] if log.exists() else []
    done = {(line["name"], line["seed"]) for line in lines}
    for entry in suite(arguments.suite).entries:
        for seed in range(arguments.seeds):
            if (entry.name, seed) in done or arguments.only not in (None, entry.name):
                continue
            records = {v: tuned(entry, v, seed, arguments.trials, arguments.out) for v in VARIANTS}
            labels = {v: f"{r.sketch} {list(r.choice)}" for v, r in records.items()}
            line = {"name": entry.name, "seed": seed, "us": raced(entry, records), "candidates": labels}
            lines.append(line)
            with log.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(entry.name, seed, {v: round(us, 1) for v, us in line["us"].items()}, flush=True)
    (arguments.out / "ablation.md").write_text(table(lines) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
