"""Tuning whole networks, racing them against peers, and telling what came of it: what `models.py` does for each."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from networks import written
from racing import Library, error_of, geometric_mean, runners_of, settled, spread, wait_for_quiet

if TYPE_CHECKING:
    from stridesmith.models.network import Network

LARGEST_OPERATORS = 12
DRAWS = 4
"""Draws of the inputs over which the error of a network in few bits is told."""
QUANTISED = "_int8"
"""At the end of the name of a network's file after ONNX Runtime's quantiser (`networks.py`)."""

Row = dict[str, Any]


# ---------------------------------------------------------------- one network


def made(names: list[str], folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """The file of each network, and what `--input` says of its input."""
    for name in names:
        path, inputs = written(name, folder)
        yield path, [f"{given}={'x'.join(map(str, shape))}" for given, shape in inputs.items()]


def run(arguments: list[str]) -> list[dict[str, Any]]:
    """The JSON events of a command of ours."""
    done = subprocess.run(
        [sys.executable, "-m", "stridesmith", *arguments, "--format", "json"], capture_output=True, text=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return found or [{"event": "error", "message": done.stderr[-500:]}]


def rows(
    cases: Iterable[tuple[Path, list[str]]], arguments: argparse.Namespace, newest: dict[str, Row]
) -> Iterator[Row]:
    """A row for each network that has none yet; with `--again`, for each that has been tuned."""
    for path, shapes in cases:
        tuned = arguments.out / f"{named(path, arguments)}.tuned.json"
        row = newest.get(named(path, arguments))
        if arguments.again:
            if not tuned.exists():
                continue
        elif row is not None and not row["problem"] and row["seconds"] == arguments.seconds:
            continue
        yield row_of(path, shapes, tuned, arguments)


def named(path: Path, arguments: argparse.Namespace) -> str:
    """The network of a file, in the precision that was asked for."""
    precision = getattr(arguments, "precision", "")
    return f"{path.stem}_{precision}" if precision else path.stem


def row_of(path: Path, shapes: list[str], tuned: Path, arguments: argparse.Namespace) -> Row:
    """Tune one network unless that is done, race it, and ask where its time goes."""
    name, precision = named(path, arguments), getattr(arguments, "precision", "")
    db = arguments.out / f"{name}.db"
    on = ["--threads", str(arguments.threads), "--db", str(db), *(word for s in shapes for word in ("--input", s))]
    on += ["--precision", precision] if precision else []
    found = json.loads(tuned.read_text()) if tuned.exists() else {}
    if not arguments.again and found.get("asked_seconds") != arguments.seconds:
        tuned.unlink(missing_ok=True)
        db.unlink(missing_ok=True)
        found = tuning(path, on, arguments.seconds)
        if not found["problem"]:
            tuned.write_text(json.dumps(found))
    row = {"model": name, "seconds": arguments.seconds, "threads": arguments.threads, "ratio": math.nan} | found
    if row["problem"]:
        return row
    network = network_in(path, shapes, arguments.threads, precision or "float32")
    timed = race(path, network, db, arguments)
    shown = run(["show", "--model", str(path), *on])
    operators = [event for event in shown if event["event"] == "operator"]
    if not operators or "stridesmith" in timed["missing"]:
        return row | {"problem": timed["missing"].get("stridesmith") or shown[-1].get("message", "nothing is shown")}
    ratios = ratios_of(timed["rounds"])
    best = min(ratios, key=ratios.__getitem__, default="")
    return row | {
        "ratio": ratios.get(best, math.nan), "best_peer": best, "ratios": ratios, "rounds": timed["rounds"],
        "times": timed["times"], "missing": timed["missing"], "busy": timed["busy"], "errors": timed["errors"],
        "sum_of_parts_us": sum(o["latency_us"] for o in operators),
        "copies": sum(o["share"] for o in operators if o["only_moves"]),
        "operators": with_shapes(network, sorted(operators, key=lambda o: -o["latency_us"])),
    }  # fmt: skip


def tuning(path: Path, on: list[str], seconds: float) -> dict[str, Any]:
    """What tuning a network found, and how its predicted time fell."""
    events = run(["--model", str(path), "--seconds", str(seconds), *on])
    last = events[-1]
    if last["event"] != "model":
        return {"problem": last.get("message", "") or "tuning told nothing"}
    return {
        "problem": "", "asked_seconds": seconds, "fallback": last["fallback"], "predicted_us": last["predicted_us"],
        "trials": last["trials"], "tuned_seconds": last["seconds"],
        "turns": [[e["seconds"], e["predicted_us"]] for e in events if e["event"] == "turn"],
    }  # fmt: skip


def ratios_of(rounds: dict[str, list[float]]) -> dict[str, float]:
    """What each form of each peer took over what ours took, the median over the rounds."""
    mine = rounds.get("stridesmith:model", [])
    return {
        name: statistics.median(theirs / own for theirs, own in zip(values, mine, strict=False))
        for name, values in rounds.items()
        if mine and not name.startswith("stridesmith")
    }


def network_in(path: Path, shapes: list[str], threads: int, precision: str = "float32") -> Network:
    """The network of a file as `stridesmith --model` tunes it."""
    from stridesmith.backends.devices import discover
    from stridesmith.commands.options import inputs_of
    from stridesmith.models.api import forms

    return forms(path, discover("cpu", threads), inputs_of(shapes), precision=precision)[0]


def exact_of(path: Path, job: Row, arguments: argparse.Namespace) -> list[float]:
    """Elements of the result in float32 of a network that computes in fewer bits; none of any other.

    That is the same file in another precision than float32, and for one that the quantiser made what it was made of.
    """
    plain = path.with_name(f"{path.stem.removesuffix(QUANTISED)}.onnx")
    if not (plain.exists() and plain != path) and not job["precision"]:
        return []
    library = Library("onnxruntime", arguments.peer_python, arguments.threads)
    try:
        answer = library.ask(job | {"model": str((plain if plain.exists() else path).resolve())})
    finally:
        library.close()
    found: list[float] = next(iter(answer["forms"].values()), [])
    return found


def race(path: Path, network: Network, db: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Median and spread of ours and of each form of each peer, taking turns."""
    inputs = {name: (list(network.tensors[name].shape), network.tensors[name].dtype) for name in network.inputs}
    job = {"op": "prepare", "model": str(path.resolve()), "inputs": inputs, "db": str(db),
           "eager": getattr(arguments, "eager", False), "precision": getattr(arguments, "precision", "")}  # fmt: skip
    job["draws"] = DRAWS if job["precision"] else 1
    exact = exact_of(path, job, arguments)
    busy = wait_for_quiet(arguments.patience)
    names = {"stridesmith": sys.executable} | dict.fromkeys(arguments.peers, arguments.peer_python)
    libraries = [Library(name, python, arguments.threads) for name, python in names.items()]
    samples: dict[str, list[float]] = {}
    try:
        answers = [library.ask(job) for library in libraries]
        runners, missing = runners_of(libraries, answers, exact)
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
    errors = {
        f"{library.name}:{form}": error_of(elements, exact)
        for library, answer in zip(libraries, answers, strict=True)
        for form, elements in answer["forms"].items()
        if exact
    }
    return {
        "missing": missing, "rounds": rounds, "times": times, "busy": max(busy, wait_for_quiet(0)), "errors": errors,
    }  # fmt: skip


def with_shapes(network: Network, operators: list[Row]) -> list[Row]:
    """The operators with the shapes of what they read and write, and the bytes of these over their time."""
    nodes = {node.name: node for node in network.nodes}
    for row in operators:
        node = nodes.get(row["operator"])
        if node is None:  # a copy that agreement put in
            continue
        sides = [[network.tensors[name] for name in side if name] for side in (node.inputs, node.outputs)]
        texts = [", ".join("x".join(map(str, t.shape)) for t in side if t.shape) for side in sides]
        row["shape"] = " -> ".join(texts)
        if row["latency_us"]:  # a view takes no time
            row["gbps"] = sum(t.nbytes for side in sides for t in side) / row["latency_us"] * 1e-3
    return operators


# ---------------------------------------------------------------- what is told


def told(results: list[Row]) -> str:
    """The table of all networks, the figures over all, and where the time of each goes."""
    good = [row for row in results if row["ratio"] == row["ratio"]]
    text = [table(results)]
    if good:
        ratios = [row["ratio"] for row in good]
        text.append(
            f"Geometric mean against the best peer {geometric_mean(ratios):.2f} of {len(good)} of {len(results)} "
            f"networks, least {min(ratios):.2f}."
        )
    return "\n\n".join([*text, *(where_time_goes(row) for row in results if "operators" in row)])


def told_of(row: Row) -> str:
    """Why a network did not race: what went wrong, or what is said of ours."""
    return row["problem"] or row.get("missing", {}).get("stridesmith:model", "")


def table(results: list[Row]) -> str:
    """A line for each network: all times, the ratio to the best peer, and what ours is made of."""
    forms = list(dict.fromkeys(name for row in results for name in row.get("times", {})))
    lines = [
        f"| network | {' | '.join(f'{name}, ms' for name in forms)} | best peer | ratio | parts / whole | moving alone "
        "| fell back | tuned, s |",
        f"|---|{'---:|' * len(forms)}---|---:|---:|---:|---|---:|",
    ]
    for row in results:
        if "stridesmith:model" not in row.get("times", {}):
            lines.append(f"| {row['model']} | {'| ' * len(forms)}| - | | | {' '.join(told_of(row).split())} | |")
            continue
        times = [f"{row['times'][name][0] * 1e-3:.2f}" if name in row["times"] else "-" for name in forms]
        whole = row["times"]["stridesmith:model"][0]
        lines.append(
            f"| {row['model']} | {' | '.join(times)} | {row['best_peer'] or '-'} | {row['ratio']:.2f} "
            f"| {row['sum_of_parts_us'] / whole:.2f} | {row['copies']:.1%} | {', '.join(row['fallback']) or '-'} "
            f"| {row['seconds']:.0f} |"
        )
    return "\n".join(lines)


def where_time_goes(row: Row) -> str:
    """The operators that take most, equal programs of equal shapes together."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for item in row["operators"]:
        groups.setdefault((item["program"], item.get("shape", "")), []).append(item)
    whole = sum(item["latency_us"] for item in row["operators"])
    ordered = sorted(groups.items(), key=lambda pair: -sum(o["latency_us"] for o in pair[1]))
    errors = ", ".join(f"{name} {error:.3g}" for name, error in row.get("errors", {}).items())
    lines = [f"### {row['model']}", "", *(f"{name}: {why}" for name, why in row["missing"].items()),
             *([f"Root of the mean square of the error against float32: {errors}"] if errors else []), "",
             "| program | shape | times | us | share | GFLOP/s | GB/s | of roof | kernel |",
             "|---|---|---:|---:|---:|---:|---:|---:|---|"]  # fmt: skip
    for (program, shape), items in ordered[:LARGEST_OPERATORS]:
        total = sum(o["latency_us"] for o in items)
        near = statistics.fmean(o["roofline"] or 0.0 for o in items)
        lines.append(
            f"| {program} | {shape} | {len(items)} | {total:.0f} | {total / whole:.1%} "
            f"| {statistics.fmean(o['gflops'] for o in items):.1f} "
            f"| {statistics.fmean(o.get('gbps', 0.0) for o in items):.1f} | {near:.0%} "
            f"| {', '.join(sorted({o['origin'] for o in items}))} |"
        )
    return "\n".join(lines)
