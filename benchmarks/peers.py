"""Every suite against PyTorch (oneDNN, MKL), ONNX Runtime and OpenBLAS (through NumPy), side by side.

    python benchmarks/peers.py --suite resnet50,ragged --seconds 60 --threads all --layout nchw --out FOLDER

Each workload is tuned from an empty database by ``stridesmith --fresh``, in at most ``--seconds`` from the start of its
process.  Then ours and every form of every peer take turns; each library is a process of its own, stopped (SIGSTOP)
while another is timed, so that its idle threads cost nothing.  The ratio to a form of a peer is the median over the
rounds of what it took over what ours took in the same round: within minutes this kind of machine changes its speed by
a factor, which meets both.  A workload's ratio is that to the best form of any peer.  Where something is constant,
peers get their prepacked form too.  A form whose result differs from ours does something else, and is left out by name,
as is a peer that is not installed.  Results go to ``FOLDER/peers.jsonl`` (a line each, and runs of the same settings
continue where they ended), a table and a plot of all that the folder has, the newest result of each workload; one
without a result of ours counts as failed and is told with every mean.  ``--again`` races what an earlier run has tuned
once more, with more ``--rounds`` if asked for.  ``--before PYTHON`` tunes and races another version of stridesmith as
well, the one that this Python imports, and tells the ratio to it.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from racing import BEFORE, NO_RACE, Case, add_race_options, earlier, geometric_mean, line_of, race, read, summary, tune

SUITES = ("resnet50", "mobilenetv2", "ragged", "transformer")


def cases(suites: list[str], layouts: list[str], threads: list[int], only: str | None) -> Iterator[Case]:
    """The rows of the suites, convolutions once for each layout."""
    import stridesmith as ss
    from stridesmith.configs.load import suite

    for name in suites:
        for entry in suite(name).entries:
            if only not in (None, entry.name):
                continue
            forms = layouts if "layout" in entry.work.params else [""]
            for layout in forms:
                params = dict(entry.work.params) | ({"layout": layout} if layout else {})
                work = ss.workload(entry.work.name, **params)
                buffers = {b.name: list(b.shape) for b in work.func.buffers}
                interface = {n: "constant" if n in work.constants else "fixed" for n in work.inputs} | entry.interface
                constants = [n for n, word in interface.items() if word == "constant"]
                for count in threads:
                    yield Case(
                        name, entry.name, work.name, params, buffers, constants, interface, work.flops, layout, count
                    )


def table(results: list[dict[str, Any]]) -> str:
    """The results as Markdown, a table for each suite, layout and number of threads."""
    lines: list[str] = []
    groups = sorted({(r["suite"], r["threads"]) for r in results})
    for suite, threads in groups:
        rows = [r for r in results if (r["suite"], r["threads"]) == (suite, threads)]
        good = [r["ratio"] for r in rows if r["ratio"] == r["ratio"]]
        lines += [f"\n### {suite}, threads: {threads}, {told(rows, good)}\n"]
        lines += ["| workload | layout | us | spread | GFLOP/s | of peak | at best | best peer | its (us) | ratio |",
                  "|---|---|---:|---:|---:|---:|---:|---|---:|---:|"]  # fmt: skip
        for r in rows:
            times = r["times"].get("stridesmith:kernel", [math.nan] * 3)
            best = r["times"].get(r["best_peer"], [math.nan])[0]
            peak = r["tune"]["peak_gflops"] or math.nan
            lines.append(
                f"| {r['name']} | {r['layout'] or '-'} | {r['ours_us']:.1f} | {times[1]:.1f} to {times[2]:.1f} "
                f"| {r['gflops']:.1f} | {r['gflops'] / peak:.0%} | {r['fastest_gflops'] / peak:.0%} |"
                f" {r['best_peer']} | {best:.1f} | {r['ratio']:.2f} |"
            )
    both = {r["key"]: r["against_before"] for r in results if r.get("against_before", math.nan) > 0}
    if both:
        low = ", ".join(f"{key} {value:.2f}" for key, value in sorted(both.items(), key=lambda i: i[1]) if value < 0.9)
        lines.append(f"\nAgainst the version before: geometric mean {geometric_mean(list(both.values())):.3f} of "
                     f"{len(both)}; below 0.9: {low or 'none'}.")  # fmt: skip
    every = [r["ratio"] for r in results if r["ratio"] == r["ratio"]]
    lines.append(f"\nAll: {told(results, every)}, least {min(every, default=math.nan):.2f}.")
    return "\n".join(lines)


def told(rows: list[dict[str, Any]], ratios: list[float]) -> str:
    """A geometric mean, never without the number of those that have no ratio."""
    failed = sum(r["ours_us"] != r["ours_us"] for r in rows)
    alone = len(rows) - len(ratios) - failed
    return f"geometric mean {geometric_mean(ratios):.2f} of {len(ratios)}, {failed} failed, {alone} without a peer"


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Ratios as marks: a line for each workload, the suites one below the other, a mark for each layout."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [r for r in results if r["ratio"] == r["ratio"]]
    several = len({r["threads"] for r in rows}) > 1
    best: dict[tuple[str, str], float] = {}
    for r in rows:
        key = (r["suite"], f"{r['name']} {r['threads']}t" if several else r["name"])
        r["line"], best[key] = key, max(best.get(key, 0.0), r["ratio"])
    lines = sorted(best, key=lambda key: (key[0], best[key]))
    suites = sorted({suite for suite, _ in lines})
    place = {key: number + suites.index(key[0]) for number, key in enumerate(lines)}
    figure, axes = plt.subplots(figsize=(8, 0.17 * len(place) + 1.2))
    for layout, marker in (("nchw", "o"), ("nhwc", "s"), ("", "D")):
        mine = [r for r in rows if r["layout"] == layout]
        colours = [f"C{suites.index(r['suite'])}" for r in mine]
        axes.scatter([r["ratio"] for r in mine], [place[r["line"]] for r in mine], s=26, marker=marker, c=colours,
                     alpha=0.8, label=layout or "no layout")  # fmt: skip
    for suite in suites:
        axes.text(0.01, max(y for key, y in place.items() if key[0] == suite), suite, ha="left", va="center",
                  transform=axes.get_yaxis_transform(), color=f"C{suites.index(suite)}")  # fmt: skip
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(list(place.values()), [name for _, name in place], fontsize=7)
    axes.set_xscale("log")
    ticks = [0.5, 0.75, 1, 1.5, 2, 3, 4]
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("best peer's time / ours: right of the line, ours is faster")
    axes.legend(loc="lower right", fontsize=8)
    axes.margins(y=0.01)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", default=",".join(SUITES))
    parser.add_argument("--only", help="one workload of the suites")
    parser.add_argument("--layout", default="nchw,nhwc")
    parser.add_argument("--threads", default="all", help="`all`, or numbers such as 1,2")
    parser.add_argument("--seconds", type=float, default=60, help="of tuning for a workload, from process start")
    add_race_options(parser)
    parser.add_argument("--before", default="", help="a Python that imports another version, to be tuned and raced too")
    parser.add_argument("--again", action="store_true", help="race again what an earlier run has tuned")
    parser.add_argument("--out", type=Path, default=Path("peers"))
    return parser.parse_args()


def main() -> None:
    from stridesmith.backends.host import host_cpu

    arguments = options()
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "peers.jsonl"
    newest = {line["key"]: line for line in read(log)}
    tuning, racing = ("seconds", "peers", "peer_python"), ("rounds", "turn")
    asked = {name: getattr(arguments, name) for name in (*tuning, *racing)}
    same = tuning if arguments.again else (*tuning, *racing)
    done = {key for key, r in newest.items() if all(r["asked"].get(name) == asked[name] for name in same)}
    threads = [host_cpu().threads] if arguments.threads == "all" else [int(t) for t in arguments.threads.split(",")]
    for case in cases(arguments.suite.split(","), arguments.layout.split(","), threads, arguments.only):
        if (case.key in done) is not arguments.again:
            continue
        if arguments.again:
            found = earlier(case, newest[case.key], arguments.out)
        else:
            found = tune(case, arguments.seconds, arguments.out)
        before = {}
        if arguments.before:
            older = tune(case, arguments.seconds, arguments.out, arguments.before, BEFORE)
            before = {BEFORE: (arguments.before, older["db"])}
        timed = race(case, found, arguments, before) if found["event"] == "done" else NO_RACE
        result = summary(case, found, timed) | {"asked": asked}
        newest[case.key] = result
        with log.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(line_of(result), flush=True)
    every = list(newest.values())
    (arguments.out / "table.md").write_text(table(every) + "\n")
    if every:
        plot(every, arguments.out / "peers.png")
    print(table(every))


if __name__ == "__main__":
    main()
