"""Every suite against PyTorch (oneDNN, MKL), ONNX Runtime and OpenBLAS (through NumPy), side by side.

    python benchmarks/peers.py --suite resnet50,ragged --seconds 60 --threads all --layout nchw --out FOLDER

Each workload is tuned from an empty database by ``tune --fresh``, in at most ``--seconds`` from the start of its
process.  Then ours and every form of every peer take turns; each library is a process of its own, stopped (SIGSTOP)
while another is timed, so that its idle threads cost nothing.  The ratio to a form of a peer is the median over the
rounds of what it took over what ours took in the same round: within minutes this kind of machine changes its speed by
a factor, which meets both.  A workload's ratio is that to the best form of any peer.  Where something is constant,
peers get their prepacked form too.  A form whose result differs from ours does something else, and is left out by name,
as is a peer that is not installed.  Results go to ``FOLDER/peers.jsonl`` (a line each, and runs of the same settings
continue where they ended), a table and a plot of all that the folder has, the newest result of each workload; one
without a result of ours counts as failed and is told with every mean.  ``--again`` races what an earlier run has tuned
once more, with more ``--rounds`` if asked for.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = ("torch", "onnxruntime", "numpy")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**31)}
"""Lets glibc keep what is freed: a peer that allocates its results should not fetch pages in each call."""
TURNS = 3
"""How often a turn is taken, should threads have lost their cores."""
LIKE = 2e-3  # how far elements of two results may be apart, as a share of the largest
SUITES = ("resnet50", "mobilenetv2", "ragged", "transformer")


@dataclass(frozen=True)
class Case:
    """One workload as it is measured."""

    suite: str
    name: str
    workload: str
    params: dict[str, Any]
    buffers: dict[str, list[int]]
    constants: list[str]
    interface: dict[str, str]
    flops: int
    layout: str
    threads: int

    @property
    def key(self) -> str:
        return f"{self.suite}/{self.name}/{self.layout or '-'}/{self.threads}"


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


class Library:
    """A process with one library, stopped except while it answers."""

    def __init__(self, name: str, python: str, threads: int) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [python, str(HERE / "peer_process.py"), name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | KEEP_MEMORY | dict.fromkeys(THREAD_VARIABLES, str(threads)),
        )
        self.process.send_signal(signal.SIGSTOP)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """One question, answered while every other library is stopped."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            self.process.send_signal(signal.SIGSTOP)
        return json.loads(line) if line else {"error": f"{self.name} ended", "forms": {}, "missing": {}}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def database(case: Case, folder: Path) -> Path:
    return folder / "databases" / f"{case.key.replace('/', '_')}.db"


def earlier(case: Case, result: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What an earlier run has told of its tuning."""
    event = "error" if result["problem"] else "done"
    return {"event": event, "message": result["problem"], "db": str(database(case, folder)), **result["tune"]}


def tune(case: Case, seconds: float, folder: Path) -> dict[str, Any]:
    """Tune in a process of its own; its last JSON line, with the database."""
    db = database(case, folder)
    db.parent.mkdir(parents=True, exist_ok=True)
    db.unlink(missing_ok=True)
    shape = ",".join(f"{n}={v}" for n, v in case.params.items() if n != "dtype")
    words = ",".join(f"{n}={w}" for n, w in case.interface.items())
    command = [
        sys.executable, "-m", "stridesmith", "--workload", case.workload, "--shape", shape, "--target", "cpu",
        "--threads", str(case.threads), "--seconds", str(seconds), "--fresh", "--db", str(db), "--format", "json",
        "--interface", words,
    ]  # fmt: skip
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    last = lines[-1] if lines else {"event": "error", "message": done.stderr[-300:]}
    return last | {"db": str(db), "process_seconds": time.perf_counter() - start}


def race(case: Case, found: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Median seconds and spread of ours and of each form of each peer, taking turns."""
    names = {"stridesmith": sys.executable} | dict.fromkeys(arguments.peers, arguments.peer_python)
    libraries = [Library(name, python, case.threads) for name, python in names.items()]
    job = {"op": "prepare", "workload": case.workload, "params": case.params, "buffers": case.buffers,
           "constants": case.constants, "interface": case.interface, "db": found["db"]}  # fmt: skip
    samples: dict[str, list[float]] = {}
    fastest = math.inf
    try:
        runners, missing = runners_of(libraries, [library.ask(job) for library in libraries])
        for turn in range(arguments.rounds):
            start = turn % max(1, len(runners))
            for library, form in runners[start:] + runners[:start]:
                answer = settled(library, {"op": "time", "form": form, "seconds": arguments.turn}, case.threads)
                if "samples" in answer:
                    samples.setdefault(f"{library.name}:{form}", []).append(statistics.median(answer["samples"]))
                    if library.name == "stridesmith":
                        fastest = min(fastest, *answer["samples"])
    finally:
        for library in libraries:
            library.close()
    rounds = {name: [round(value * 1e6, 3) for value in values] for name, values in samples.items()}
    times = {name: spread(values) for name, values in samples.items()}
    return {"missing": missing, "rounds": rounds, "times": times, "fastest_us": fastest * 1e6}


def settled(library: Library, question: dict[str, Any], threads: int) -> dict[str, Any]:
    """The answer of a turn at whose beginning and end every thread has a core of its own, after some turns of any.

    A host may put two processors of a virtual machine on one core for a while (see `stridesmith.backends.cores`);
    who has the luck to be timed at another moment would win.
    """
    from stridesmith.backends.cores import cores

    if threads == 1:
        return library.ask(question)
    mine = cores(threads)
    for _ in range(TURNS):
        mine.settle()
        answer = library.ask(question)
        if mine.whole():
            break
    return answer


def runners_of(
    libraries: list[Library], answers: list[dict[str, Any]]
) -> tuple[list[tuple[Library, str]], dict[str, str]]:
    """The forms that race, and why others do not; ours comes first, and what differs from it does something else."""
    runners: list[tuple[Library, str]] = []
    missing: dict[str, str] = {}
    ours: list[float] = next(iter(answers[0]["forms"].values()), [])
    for library, answer in zip(libraries, answers, strict=True):
        if "error" in answer:
            missing[library.name] = answer["error"]
        missing |= {f"{library.name}:{form}": reason for form, reason in answer["missing"].items()}
        for form, elements in answer["forms"].items():
            if ours and not alike(elements, ours):
                missing[f"{library.name}:{form}"] = "its result differs from ours"
            else:
                runners.append((library, form))
    return runners, missing


def alike(these: list[float], those: list[float]) -> bool:
    """Whether elements of two results are the same up to rounding."""
    most = max(map(abs, those))
    return len(these) == len(those) and all(abs(a - b) <= LIKE * most for a, b in zip(these, those, strict=True))


def spread(values: list[float]) -> list[float]:
    """Median and quartiles over the rounds, in microseconds."""
    ordered = sorted(v * 1e6 for v in values)
    quarter = max(0, len(ordered) // 4)
    return [statistics.median(ordered), ordered[quarter], ordered[-1 - quarter]]


def summary(case: Case, found: dict[str, Any], timed: dict[str, Any]) -> dict[str, Any]:
    """A result line: the ratio is that to the best form of any peer, in the same rounds."""
    times, rounds = timed["times"], timed["rounds"]
    ours = times.get("stridesmith:kernel", [math.nan])[0]
    mine = rounds.get("stridesmith:kernel", [])
    ratios = {
        name: statistics.median(yours / own for yours, own in zip(values, mine, strict=False))
        for name, values in rounds.items()
        if mine and not name.startswith("stridesmith")
    }
    best = min(ratios, key=ratios.__getitem__) if ratios else None
    fields = ("latency_us", "gflops", "peak_gflops", "roofline_fraction", "trials", "seconds", "failed")
    return {
        "key": case.key, "suite": case.suite, "name": case.name, "layout": case.layout, "threads": case.threads,
        "ours_us": ours, "best_peer": best, "ratio": ratios[best] if best else math.nan,
        "gflops": case.flops / ours * 1e-3, "fastest_gflops": case.flops / timed["fastest_us"] * 1e-3,
        "times": times, "rounds": rounds, "missing": timed["missing"],
        "tune": {n: found.get(n) for n in fields} | {"process_seconds": found["process_seconds"]},
        "problem": found.get("message", "") if found["event"] != "done" else timed["missing"].get("stridesmith", ""),
    }  # fmt: skip


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else math.nan


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
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--turn", type=float, default=0.1, help="seconds of one turn")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(PEERS))
    parser.add_argument("--peer-python", default=sys.executable, help="the Python that has the peers")
    parser.add_argument("--again", action="store_true", help="race again what an earlier run has tuned")
    parser.add_argument("--out", type=Path, default=Path("peers"))
    return parser.parse_args()


def main() -> None:
    from stridesmith.backends.devices import host_cpu

    arguments = options()
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "peers.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    newest = {line["key"]: line for line in lines}
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
        nothing: dict[str, Any] = {"missing": {}, "times": {}, "rounds": {}, "fastest_us": math.nan}
        timed = race(case, found, arguments) if found["event"] == "done" else nothing
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


def line_of(result: dict[str, Any]) -> str:
    """A result as it is printed when it comes."""
    if result["ours_us"] != result["ours_us"]:
        return f"{result['key']}: {result['problem'] or 'there is no result of ours'}"
    times = ", ".join(f"{n} {t[0]:.1f}" for n, t in result["times"].items())
    missing = "".join(f"; {name}: {reason}" for name, reason in result["missing"].items())
    return f"{result['key']}: {result['ratio']:.2f}, {result['gflops']:.1f} GFLOP/s; us: {times}{missing}"


if __name__ == "__main__":
    main()
