"""Networks of plain torch.nn: eager, Inductor, the backend `stridesmith` and `stridesmith.torch.compile`, taking turns.

    python benchmarks/torch_models.py --seconds 600 --out FOLDER [resnet50 mobilenetv2 bert_layer]
    python benchmarks/torch_models.py --seconds 10 --threads 1 --out FOLDER small_mlp small_bert small_resnet
    python benchmarks/torch_models.py --seconds 0 --out FOLDER vit convnext "gpt, growing"

The second is about what a call costs in PyTorch: guards, wrappers, operators.  The third takes models of
`torch_zoo.py` without tuning.

Each network is tuned from an empty database by `stridesmith.torch.tune` for ``--seconds``, unless those are 0;
``--again`` keeps the database.  Then each way is a process of its own, stopped (SIGSTOP) while another is timed, and
they take turns; a ratio is the median over the rounds of what another way took over what ours took in the same round.
What our backend leaves to PyTorch counts as ours.  Results go to ``FOLDER/torch.jsonl``, a line each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from racing import LIKE, PATIENCE_SECONDS, Library, settled, spread, wait_for_quiet

WAYS = ("eager", "inductor", "stridesmith", "compile")


def tuned(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Tune a network from an empty database."""
    from torch_ways import taken

    import stridesmith as ss

    db = arguments.out / f"{name}.db"
    if arguments.again:
        return {}
    for file in arguments.out.glob(f"{name}.db*"):
        file.unlink()
    if not arguments.seconds:
        return {}
    module, inputs = taken(name)
    found = ss.torch.tune(module, inputs, seconds=arguments.seconds, db=str(db), threads=arguments.threads)
    return {"parts": found.parts, "operators": found.operators, "trials": found.trials, "left": found.left}


def raced(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each way, in turns, and how far results are from eager's."""
    busy = wait_for_quiet(arguments.patience)
    libraries = {way: Library("torch", sys.executable, arguments.threads) for way in WAYS}
    job = {"op": "prepare", "nn": name, "db": str(arguments.out / f"{name}.db"), "rest": arguments.rest}
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    try:
        answers = {way: library.ask(job | {"way": way}) for way, library in libraries.items()}
        results = {way: answer["forms"][way] for way, answer in answers.items() if way in answer["forms"]}
        missing = {way: answer.get("error", "") for way, answer in answers.items() if way not in results}
        for turn in range(arguments.rounds):
            for way in [*results][turn % len(results) :] + [*results][: turn % len(results)]:
                question = {"op": "time", "form": way, "seconds": arguments.turn}
                answer = settled(libraries[way], question, arguments.threads)
                samples[way].append(statistics.median(answer["samples"]))
    finally:
        for library in libraries.values():
            library.close()
    largest = max(map(abs, results["eager"]))
    apart = {way: max(abs(a - b) for a, b in zip(values, results["eager"], strict=True)) / largest
             for way, values in results.items()}  # fmt: skip
    ratios = {
        way: statistics.median(a / b for a, b in zip(samples[way], samples["stridesmith"], strict=True))
        for way in results
        if "stridesmith" in results
    }
    return {
        "ratios": ratios, "times": {way: spread(values) for way, values in samples.items() if values},
        "apart": apart, "agrees": max(apart.values()) < LIKE, "missing": missing, "busy": max(busy, wait_for_quiet(0)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["resnet50", "mobilenetv2", "bert_layer"])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rest", default="eager", choices=("eager", "inductor"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn", type=float, default=0.5, help="seconds of one turn")
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS)
    parser.add_argument("--again", action="store_true", help="race with what the folder's databases have")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "torch.jsonl").open("a") as file:
        for name in arguments.networks:
            row = {"network": name, **tuned(name, arguments), **raced(name, arguments)}
            file.write(json.dumps(row) + "\n")
            file.flush()
            times = ", ".join(f"{way} {found[0]:.0f}" for way, found in row["times"].items())
            ratios = ", ".join(f"{ratio:.2f} of {way}" for way, ratio in row["ratios"].items() if way != "stridesmith")
            print(f"{name}: {ratios}; us: {times}; apart {max(row['apart'].values()):.1e}; {row['missing'] or ''}")


if __name__ == "__main__":
    main()
