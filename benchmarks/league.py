"""Operators as networks have them, drawn by a seed, against PyTorch, ONNX Runtime and OpenBLAS: are there cliffs?

    python benchmarks/league.py --seed 104 --rows 0:200 --seconds 20 --out FOLDER

Each operator (`league_draw.py`) is tuned from an empty database in a process of its own, and raced against the peers,
whose results must be like ours (`racing.py`).  Operators that are workloads of the library are tuned as such, all
others as programs in script form (`league_programs.py`).  One that our language lacks, or for which tuning finds
nothing, is a row that failed: none is left out.

Rows append to ``FOLDER/league.jsonl``; those that are there with the same settings are skipped, so that a run goes on
where it ended, in as many sessions as it takes.  ``--again`` races without tuning what the folder has.  In the end, and
alone with ``--table``, all that the folder has of the seed is told: geometric mean, 5th percentile, minimum, the
families, and each row below 0.8 with what limits it.  ``--spaces`` draws the operators and counts their candidates.

``--dtype int8`` and ``--dtype bfloat16`` take the first convolutions and products of the seed, as many as
``--rows 0:N`` says, against ONNX Runtime, OpenVINO and PyTorch (`league_types.py`; in bytes `peer_torch_bytes.py`).

Seeds below 100 are for development: what the rules were made for is no measure of them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from league_draw import Operator, draw
from league_types import DTYPES, measure
from league_types import told as told_of_types
from racing import (
    BUSY,
    NO_RACE,
    PATIENCE_SECONDS,
    Case,
    add_race_options,
    earlier,
    geometric_mean,
    line_of,
    race,
    read,
    summary,
    tune,
    wait_for_quiet,
)  # fmt: skip

DEVELOPMENT = 100
LOW = 0.8
Row = dict[str, Any]


def case_of(operator: Operator, suite: str, name: str, threads: int) -> Case:
    """An operator as it is measured.  Raises what the language says of an operator that it lacks."""
    from stridesmith.search.tasks.interface import interface_of
    from stridesmith.search.tasks.task import check

    work = operator.work
    check(work.func)
    interface = interface_of(work) | dict.fromkeys(operator.constants, "constant")
    return Case(
        suite=suite, name=name, workload=operator.kind, params=dict(work.params) or operator.params,
        buffers={b.name: list(b.shape) for b in work.func.buffers}, constants=list(operator.constants),
        interface=interface, flops=work.flops, layout="", threads=threads, script=operator.script,
    )  # fmt: skip


def space_of(operator: Operator, case: Case) -> dict[str, Any]:
    """How many sketches and candidates the rules give."""
    from stridesmith.backends.devices import discover
    from stridesmith.space.design.space import generate

    space = generate(operator.work.func, discover("cpu", case.threads), case.interface)
    return {"sketches": len(space.sketches), "size": space.size}


def rows(numbers: range, arguments: argparse.Namespace, newest: dict[str, Row], isa: str) -> Iterator[Row]:
    """The rows that are still to be measured, or measured again, each when it is."""
    for number in numbers:
        suite, name = f"seed{arguments.seed}", f"{number:04}"
        before = newest.get(f"{suite}/{name}/-/{arguments.threads}")
        if is_due(before, arguments, isa):
            row = measured(draw(arguments.seed, number), suite, name, before, arguments)
            yield row | {"seed": arguments.seed, "number": number, "isa": isa, "asked": asked(arguments)}


def asked(arguments: argparse.Namespace) -> Row:
    """The settings that rows have in common to be one run's."""
    return {name: getattr(arguments, name) for name in ("seconds", "peers")}


def is_due(before: Row | None, arguments: argparse.Namespace, isa: str) -> bool:
    """Whether a row is to be measured: what there is not yet, or with ``--again`` what there is."""
    there = before is not None and before["isa"] == isa and before["asked"] == asked(arguments) and not spoiled(before)
    return there is bool(arguments.again)


def measured(operator: Operator, suite: str, name: str, before: Row | None, arguments: argparse.Namespace) -> Row:
    """An operator tuned and raced, or raced once more with what the row `before` has found, if `arguments` say so."""
    about = {"key": f"{suite}/{name}/-/{arguments.threads}", "family": operator.family, "operator": operator.label}
    try:
        case = case_of(operator, suite, name, arguments.threads)
        space = space_of(operator, case)
    except Exception as error:  # an operator that we cannot say, or have no space for, is a row that failed
        return failed(arguments.threads, f"{type(error).__name__}: {error}"[:300]) | about
    busy = 0.0
    if arguments.again and before is not None:
        found = earlier(case, before, arguments.out)
    else:
        busy = wait_for_quiet(PATIENCE_SECONDS)
        found = tune(case, arguments.seconds, arguments.out)
    timed = race(case, found, arguments) if found["event"] == "done" else NO_RACE | {"busy": busy}
    row = summary(case, found, timed) | about | {"space": space}
    return row | {"limits": limits(row, found["db"]) if poor(row) else ""}


def failed(threads: int, problem: str) -> Row:
    """A row of an operator that came to no race."""
    nan = math.nan
    return {
        "ours_us": nan, "best_peer": None, "ratio": nan, "gflops": nan, "fastest_gflops": nan, "times": {},
        "rounds": {}, "missing": {}, "busy": 0.0, "tune": {"process_seconds": nan}, "threads": threads,
        "problem": problem, "space": {"sketches": 0, "size": 0}, "limits": "",
    }  # fmt: skip


def has_failed(row: Row) -> bool:
    """Whether there is no result of ours."""
    return bool(row["ours_us"] != row["ours_us"])


def spoiled(row: Row) -> bool:
    """Whether tuning found nothing beside other work, which may be why: the row is to be measured anew."""
    return has_failed(row) and bool(row["busy"] > BUSY)


def poor(row: Row) -> bool:
    """Whether a row is so slow that its limit should be known."""
    return not has_failed(row) and bool(row["ratio"] < LOW)


# ------------------------------------------------------------------- what limits a row


def limits(row: Row, db: str) -> str:
    """What holds a kernel back, from its space and from the diagnosis of its record."""
    found = []
    if row["space"]["size"] <= 1:
        found.append("the space has one candidate")
    else:
        found.append(f"{row['tune']['trials']} trials")
    command = [sys.executable, "-m", "stridesmith", "show", "--record", str(row["tune"]["record"]), "--db", db]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    told = events[-1] if events else {"event": "error", "message": done.stderr[-200:]}
    if told["event"] != "diagnosis":
        return "; ".join([*found, f"no diagnosis: {told['message']}"])
    return "; ".join([*found, *of_diagnosis(told)])


def of_diagnosis(told: dict[str, Any]) -> Iterator[str]:
    """The remarkable facts of a diagnosis, the largest first."""
    loop, roofline = told.get("inner_loop"), told["roofline"]
    if told["schedule"].startswith("# the untuned program"):
        yield "the untuned program is the fastest"
    if told["overcompute"] and told["overcompute"] > 1.1:
        yield f"computes {told['overcompute']:.1f} for each useful operation"
    if loop and loop["fmas"] and not loop["vector_fmas"]:
        yield "no vectors in its inner loop"
    if loop and loop["spills"] + loop["reloads"]:
        yield f"{loop['spills'] + loop['reloads']} spills and reloads in its inner loop"
    if loop and loop["fma_share"] is not None:
        yield f"its inner loop, bound by {loop['bound']}, allows {loop['fma_share']:.0%} of the peak"
    if roofline["bound"]:
        yield f"at {roofline['roofline_fraction']:.0%} of what {roofline['bound']} allows"


# ------------------------------------------------------------------- what all rows say


def told(results: list[Row]) -> str:
    """Everything about the rows of a seed as Markdown, a part for each instruction set and number of threads."""
    parts = []
    for seed, isa, threads in sorted({(r["seed"], r["isa"], r["threads"]) for r in results}):
        mine = [r for r in results if (r["seed"], r["isa"], r["threads"]) == (seed, isa, threads)]
        mine.sort(key=lambda r: int(r["number"]))
        seconds = sorted({r["asked"]["seconds"] for r in mine})
        title = f"seed {seed}, {isa}, threads: {threads}, {' or '.join(f'{s:g}' for s in seconds)} s of tuning each"
        parts += [f"### {title}", *([warning(seed)] if seed < DEVELOPMENT else []), totals(mine), families(mine),
                  low_rows(mine)]  # fmt: skip
    return "\n\n".join(part for part in parts if part)


def warning(seed: int) -> str:
    """What is said of a seed that was used to find out what is missing."""
    return f"Seed {seed} is for development, as all below {DEVELOPMENT}: these figures are not to be reported."


def standing(results: list[Row]) -> list[float]:
    """The ratios of rows, worst first; a row that failed has none, which is 0."""
    return sorted(0.0 if has_failed(r) else r["ratio"] for r in results if has_failed(r) or r["ratio"] == r["ratio"])


def totals(results: list[Row]) -> str:
    """The figures of all rows: what failed counts as 0 in all but the geometric mean, which says how many did."""
    values = standing(results)
    if not values:
        return "no row has a ratio"
    good = [v for v in values if v > 0]
    alone = len(results) - len(values)
    disturbed = sum(r["busy"] > BUSY for r in results)
    return (
        f"{len(results)} operators: geometric mean {geometric_mean(good):.2f} of {len(good)}, 5th percentile "
        f"{percentile(values, 0.05):.2f}, minimum {values[0]:.2f}, {len(values) - len(good)} failed, "
        f"{sum(v < LOW for v in values)} below {LOW}"
        + (f", {alone} without a peer" if alone else "")
        + (f"; {disturbed} raced beside other work, and are to be raced `--again`" if disturbed else "")
    )


def percentile(values: list[float], share: float) -> float:
    """The value below which a share of the ordered values lies, between the two next to that place."""
    place = share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def families(results: list[Row]) -> str:
    """A row for each family: how many, means and extremes, and the peer that is mostly the best."""
    lines = ["| family | operators | failed | geometric mean | median | least | most | best peer |",
             "|---|---:|---:|---:|---:|---:|---:|---|"]  # fmt: skip
    for family in sorted({r["family"] for r in results}):
        mine = [r for r in results if r["family"] == family]
        values = [r["ratio"] for r in mine if not has_failed(r) and r["ratio"] == r["ratio"]]
        peers = Counter(r["best_peer"] for r in mine if r["best_peer"])
        peer = peers.most_common(1)[0][0] if peers else "-"
        middle, least, most = (statistics.median(values), min(values), max(values)) if values else (math.nan,) * 3
        lines.append(
            f"| {family} | {len(mine)} | {sum(map(has_failed, mine))} | {geometric_mean(values):.2f} | {middle:.2f} "
            f"| {least:.2f} | {most:.2f} | {peer} |"
        )
    return "\n".join(lines)


def low_rows(results: list[Row]) -> str:
    """Each row that failed or is below 0.8, worst first, with what limits it."""
    low = [r for r in results if has_failed(r) or poor(r)]
    if not low:
        return f"No row is below {LOW}."
    lines = ["| row | operator | us | GFLOP/s | best peer | its (us) | ratio | candidates | what limits it |",
             "|---:|---|---:|---:|---|---:|---:|---:|---|"]  # fmt: skip
    for r in sorted(low, key=lambda r: 0.0 if has_failed(r) else r["ratio"]):
        its = r["times"].get(r["best_peer"], [math.nan])[0]
        why = f"failed: {r['problem'] or 'there is no result of ours'}" if has_failed(r) else r["limits"]
        lines.append(
            f"| {r['number']} | {r['operator']} | {r['ours_us']:.1f} | {r['gflops']:.1f} | {r['best_peer'] or '-'} "
            f"| {its:.1f} | {r['ratio']:.2f} | {r['space']['size']:.2g} | {' '.join(why.split()).replace('|', '/')} |"
        )
    return "\n".join(lines)


def spaces(numbers: range, seed: int, threads: int) -> Iterator[str]:
    """What is drawn, and how many sketches and candidates the rules give; nothing is tuned."""
    for number in numbers:
        operator = draw(seed, number)
        try:
            case = case_of(operator, f"seed{seed}", f"{number:04}", threads)
            space = space_of(operator, case)
            what = f"{space['sketches']} sketches, {space['size']:.3g} candidates, {case.flops * 1e-6:.1f} MFLOP"
        except Exception as error:  # told here as a row that failed is
            what = f"{type(error).__name__}: {error}"
        yield f"{number:4} {operator.family}: {operator.label}: {what}"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, required=True, help=f"below {DEVELOPMENT} for development")
    parser.add_argument("--rows", default="0:200", help="numbers A:B of the operators, B not among them")
    parser.add_argument("--seconds", type=float, default=20, help="of tuning for an operator, from process start")
    parser.add_argument("--threads", type=int, default=0, help="0 for all")
    add_race_options(parser)
    parser.add_argument("--dtype", choices=DTYPES, default="", help="of convolutions and products, other than float32")
    parser.add_argument("--again", action="store_true", help="race again, without tuning, what the folder has")
    parser.add_argument("--table", action="store_true", help="only tell what the folder has")
    parser.add_argument("--spaces", action="store_true", help="only draw, and count candidates")
    parser.add_argument("--out", type=Path, default=Path("league"))
    return parser.parse_args()


def main() -> None:
    from stridesmith.backends.host import host_cpu

    arguments = options()
    start, _, stop = arguments.rows.partition(":")
    numbers = range(int(start or 0), int(stop or int(start) + 1))
    host = host_cpu()
    arguments.threads = arguments.threads or host.threads
    print(f"seed {arguments.seed}, {host.name}, {host.isa}, threads: {arguments.threads}")
    if arguments.seed < DEVELOPMENT:
        print(warning(arguments.seed))
    if arguments.dtype:
        peers = {"int8": ["onnxruntime", "openvino", "torch"], "bfloat16": ["openvino", "torch"]}[arguments.dtype]
        arguments.precision = "bfloat16" if arguments.dtype == "bfloat16" else ""
        arguments.peers, arguments.patience, arguments.eager = peers, PATIENCE_SECONDS, True
        arguments.out.mkdir(parents=True, exist_ok=True)
        print(told_of_types(measure(arguments, numbers.stop)))
        return
    if arguments.spaces:
        for line in spaces(numbers, arguments.seed, arguments.threads):
            print(line, flush=True)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "league.jsonl"
    newest = {f"{line['key']} {line['isa']}": line for line in read(log)}
    if not arguments.table:
        mine = {line["key"]: line for line in newest.values() if line["isa"] == host.isa}
        for row in rows(numbers, arguments, mine, host.isa):
            newest[f"{row['key']} {row['isa']}"] = row
            with log.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{row['family']}: {row['operator']}\n  {line_of(row)}", flush=True)
    text = told([line for line in newest.values() if line["seed"] == arguments.seed])
    (arguments.out / f"seed{arguments.seed}.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
