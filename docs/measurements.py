"""The page of measurements, made from the files of `benchmarks/`: ``python docs/measurements.py`` writes it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
DATA = DOCS.parent / "benchmarks"
PAGE = DOCS / "measurements.md"
OTHERS = ("infrastructure", "out_of_time", "no_reference", "wrong")  # what counts for itself, or for no candidate
HEAD = """# Measurements

What stands in the data files of `benchmarks/`, as tables. `python docs/measurements.py` writes this page, and a test
holds that it is current; what the figures mean and how they were taken is in [performance](performance.md) and
[OpenCL](opencl.md).
"""


def page() -> str:
    """The whole text."""
    return "\n".join([HEAD, *_drivers(), "", *_gpu(), "", *_winograd(), "", *_metaschedule()]) + "\n"


def _rows(name: str) -> list[dict[str, Any]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return sorted(map(json.loads, lines), key=lambda row: str(row["key"]))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    marks = ["---" if place < 1 else "---:" for place in range(len(head))]
    return [f"| {' | '.join(cells)} |" for cells in (head, marks, *rows)]


def _drivers() -> list[str]:
    """Our own code beside OpenCL's drivers on one CPU, and the geometric means of the ratios."""
    rows = _rows("opencl.jsonl")
    kinds = ("opencl:pocl:kernel", "opencl:intel:kernel")
    found = []
    for row in rows:
        times = [statistics.median(row["rounds"].get(kind) or [0]) for kind in ("stridesmith:kernel", *kinds)]
        ratios = [row["ratios"].get(kind) for kind in kinds]
        found.append((str(row["key"]), *(f"{time:.1f}" if time else "none" for time in times),
                      *("none" if ratio is None else f"{ratio:.2f}" for ratio in ratios)))  # fmt: skip
    means = [statistics.geometric_mean(r["ratios"][kind] for r in rows if r["ratios"].get(kind)) for kind in kinds]
    cpus = ", ".join(sorted({str(row["cpu"]) for row in rows}))
    head = ("workload", "LLVM, us", "PoCL, us", "Intel, us", "LLVM / PoCL", "LLVM / Intel")
    return [
        "## OpenCL on a CPU",
        "",
        f"{len(rows)} rows of the suites on CPUs ({cpus}), each tuned for LLVM and for two drivers: medians over the "
        "rounds of a race in turns, and the time of LLVM's kernel over that of the driver's, of which the geometric "
        f"means are {means[0]:.2f} (PoCL) and {means[1]:.2f} (Intel).",
        "",
        *_table(head, found),
    ]


def _gpu() -> list[str]:
    """What short searches found on a GPU."""
    found = []
    for row in _rows("opencl_gpu.jsonl"):
        for name, done in row["tune"].items():
            if done.get("gflops"):
                share = f"{done['gflops'] / done['peak_gflops']:.1%}" if done.get("peak_gflops") else "none"
                found.append((str(row["key"]), name.removeprefix("opencl:"), f"{done['latency_us']:.1f}",
                              f"{done['gflops']:.0f}", share, str(done["trials"])))  # fmt: skip
    head = ("workload", "platform", "time, us", "GFLOP/s", "of the peak", "candidates")
    return ["## OpenCL on a GPU", "", "What searches of seconds found.", "", *_table(head, found)]


def _winograd() -> list[str]:
    """Convolutions with fewer multiplications: how often they are the faster form."""
    rows = json.loads((DATA / "winograd.json").read_text(encoding="utf-8"))
    ratios = [float(row["ratio"]) for row in rows]
    found = sorted(((row["shape"], row) for row in rows), key=lambda pair: pair[0])
    return [
        "## Convolutions with fewer multiplications",
        "",
        f"{len(rows)} shapes (images, height, width, channels, filters): the time as written over that with fewer "
        f"multiplications. {sum(ratio > 1 for ratio in ratios)} are faster, the geometric mean is "
        f"{statistics.geometric_mean(ratios):.2f}.",
        "",
        *_table(
            ("shape", "as written, us", "fewer, us", "ratio"),
            [
                (
                    "x".join(map(str, shape)),
                    f"{row['as_written_us']:.1f}",
                    f"{row['fewer_us']:.1f}",
                    f"{row['ratio']:.2f}",
                )
                for shape, row in found
            ],
        ),
    ]


def _metaschedule() -> list[str]:
    """Our search and TVM's on the same shapes in the same time, a table for each time."""
    last = {(str(row["key"]), float(row["seconds"])): row for row in _rows("metaschedule.jsonl")}  # compared later, too
    rows = list(last.values())
    cpus = "; ".join(sorted({str(row["cpu"]).removeprefix("<Target cpu: ").strip("<>") for row in rows}))
    lines = [
        "## MetaSchedule",
        "",
        f"Shapes of the suites ({cpus}), tuned by stridesmith and by MetaSchedule (apache-tvm 0.27, its TE programs, "
        "constants in a layout of its choice) for the same seconds from the start of the process to its end, then "
        "raced in turns; the ratio is MetaSchedule's time over ours. Both results were NumPy's before they were timed. "
        "`python benchmarks/metaschedule.py` makes the environment and the rows.",
    ]
    for seconds in sorted({row["seconds"] for row in rows}):
        lines += ["", *_raced_for(seconds, [row for row in rows if row["seconds"] == seconds])]
    return lines


def _raced_for(seconds: float, rows: Sequence[dict[str, Any]]) -> list[str]:
    """The races after searches of so many seconds."""
    looked = {str(row["key"]): row["checked"] for row in rows if "checked" in (row.get("checked") or {})}
    found = []
    for row in rows:
        ours, its, checked = row["ours"], row["metaschedule"], looked.get(str(row["key"]))
        times = [row["rounds"].get(f"{name}:kernel") for name in ("stridesmith", "metaschedule")]
        failed = {name: count for name, count in ours["failed"].items() if name not in OTHERS}
        found.append((
            str(row["key"]), _instructions(row), *(f"{statistics.median(t):.1f}" if t else "none" for t in times),
            f"{row['ratio']:.2f}" if row["ratio"] else "none",
            f"{ours['trials'] or 0}, {sum(failed.values())}, {ours['failed'].get('wrong', 0)}",
            f"{its.get('rounds', 0)}, {its.get('measured', 0)}, {its.get('failed', 0)}",
            f"{checked['wrong'] + len(checked['broken'])} of {checked['checked']}" if checked else "not looked at",
        ))  # fmt: skip
    settings = " or ".join(sorted({f"{row['per_round']} from {row['population']}" for row in rows}))
    head = ("shape, layout, threads", "instructions", "ours, us", "MetaSchedule, us", "ratio",
            "our candidates, failed, wrong", "its rounds, candidates, failed", "wrong of its fastest")  # fmt: skip
    shapes = "1 shape" if len(rows) == 1 else f"{len(rows)} shapes"
    sentences = [f"{_outcome(rows)}; MetaSchedule's rounds took {settings}."]
    machines = sorted(set(map(_instructions, rows)))
    if len(machines) > 1:
        each = [f"with {name}: {_outcome([r for r in rows if _instructions(r) == name])}" for name in machines]
        sentences.append(f"The rows are of {len(machines)} machines; {'; '.join(each)}.")
    if without := [str(row["key"]) for row in rows if not row["ratio"]]:
        sentences.append(f"No mean has what one of both has no kernel for: {', '.join(without)}.")
    if looked:
        total, wrong = (sum(checked[name] for checked in looked.values()) for name in ("checked", "wrong"))
        broken = sum(len(checked["broken"]) for checked in looked.values())
        sentences.append(
            f"Of the {total} candidates that it found to be the fastest on {len(looked)} of the shapes, run once more "
            f"and compared with NumPy, {wrong} were wrong and {broken} did not run."
        )
    return [f"### After {seconds:g} s of tuning each: {shapes}", "", " ".join(sentences), "", *_table(head, found)]


def _instructions(row: dict[str, Any]) -> str:
    """The vector instructions of the machine of a row, as its target has them: `avx2`."""
    return str(row["cpu"]).split(", ")[1]


def _outcome(rows: Sequence[dict[str, Any]]) -> str:
    """How many of the rows were won, and by how much."""
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    if not ratios:
        return "None was raced"
    return (
        f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} are faster here, the geometric mean is "
        f"{statistics.geometric_mean(ratios):.2f}, the least {min(ratios):.2f}"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
