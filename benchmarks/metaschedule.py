"""MetaSchedule, TVM's tuner, and stridesmith on the same shapes: equal wall time, then a race in turns.

    python benchmarks/metaschedule.py --seconds 60 --rows 0:4 --out FOLDER

An environment of its own gets apache-tvm (``--tvm FOLDER``, made when it is not there).  Each of 20 shapes of the
suites is tuned by both, each in processes of its own, for ``--seconds`` from the start of the first; then both kernels
take turns as in `racing.py`, with what is constant packed before.  Both results are compared with NumPy's
in full before they are timed.  MetaSchedule never looks at what its candidates compute: with ``--later`` up to
``--checked`` of its fastest are run and compared.  Ours are verified before they are timed.

MetaSchedule gets what its makers recommend for the CPU: the processor's name for LLVM, all threads, TE programs in the
order of loops of its own ones, the layout of constants free, its learned model (XGBoost) and evolutionary search, and
rounds that fit the time (``--per-round``, ``--population``; TVM's own are 64 and 512, those of 60 s had 32 and 128).

Rows append to ``FOLDER/metaschedule.jsonl``, and searches of so many seconds to a folder of theirs; what is there is
not run again.  ``--rows 3:4`` is one shape.  Rows that were moved to ``benchmarks/metaschedule.jsonl`` are what
``python docs/measurements.py`` makes tables of, one for each number of seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np
from peer_forms import aligned, arrays
from peer_metaschedule import WRONG, error_of, places
from racing import Case, database, geometric_mean, race, read, tune, wait_for_quiet

HERE = Path(__file__).resolve().parent
WHEELS = ("apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post1", "xgboost-cpu", "scipy", "psutil", "cloudpickle",
          "tornado")  # fmt: skip
SHAPES = (
    ("resnet50", "c2_3x3", "nhwc"), ("transformer", "qkv", ""), ("ragged", "prime", ""),
    ("mobilenetv2", "dw112", "nhwc"), ("transformer", "softmax", ""), ("resnet50", "c5_3x3", "nhwc"),
    ("transformer", "scores", ""), ("resnet50", "c2_1x1b", "nhwc"), ("transformer", "layernorm", ""),
    ("ragged", "odd3x3", "nchw"),
    ("transformer", "square512", ""), ("mobilenetv2", "pw28", "nhwc"), ("resnet50", "c3_3x3s2", "nhwc"),
    ("ragged", "tall", ""), ("mobilenetv2", "dw14", "nhwc"), ("resnet50", "stem", "nhwc"),
    ("resnet50", "c3_3x3", "nchw"),
    ("mobilenetv2", "dw56s2", "nhwc"), ("ragged", "row_sum", ""), ("resnet50", "c4_3x3", "nhwc"),
)  # fmt: skip
"""Suite, name and layout of the shapes; the first ones are of as many kinds as there are."""


def case_of(suite: str, name: str, layout: str, threads: int) -> Case:
    """A shape of a suite as it is raced."""
    import stridesmith as ss
    from stridesmith.configs.load import suite as suite_of

    entry = next(entry for entry in suite_of(suite).entries if entry.name == name)
    work = ss.workload(entry.work.name, **(dict(entry.work.params) | ({"layout": layout} if layout else {})))
    interface = {n: "constant" if n in work.constants else "fixed" for n in work.inputs} | entry.interface
    return Case(
        suite=suite, name=name, workload=work.name, params=dict(work.params),
        buffers={b.name: list(b.shape) for b in work.func.buffers},
        constants=[n for n, word in interface.items() if word == "constant"], interface=interface, flops=work.flops,
        layout=layout, threads=threads,
    )  # fmt: skip


def prepare(folder: Path) -> str:
    """The Python of an environment that has apache-tvm."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *WHEELS], check=True)
    return str(python)


def job_of(case: Case, db: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the process of MetaSchedule is told; the expected result lies beside."""
    import stridesmith as ss

    job: dict[str, Any] = {
        "workload": case.workload, "params": case.params, "buffers": case.buffers, "constants": case.constants,
        "threads": case.threads, "seconds": arguments.seconds, "seed": arguments.seed, "count": arguments.checked,
        "per_round": arguments.per_round, "strategy": {"population_size": arguments.population},
    } | places(db)  # fmt: skip
    Path(job["folder"]).mkdir(parents=True, exist_ok=True)
    data = arrays(job)
    work = ss.workload(case.workload, **case.params)
    expected = work.reference({name: data[name].astype(np.float64) for name in work.inputs})
    np.save(job["expected"], expected[work.outputs[0]])
    return job


def metaschedule(task: str, job: dict[str, Any], python: str) -> dict[str, Any]:
    """One run of `peer_metaschedule.py`; what it says, or its error."""
    path = Path(job["folder"]) / f"{task}.json"
    path.write_text(json.dumps(job | {"started": time.time()}))
    environment = os.environ | {"TVM_NUM_THREADS": str(job["threads"])}
    done = subprocess.run([python, str(HERE / "peer_metaschedule.py"), task, str(path)], capture_output=True, text=True,
                          env=environment)  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": done.stderr[-300:]}


def our_error(case: Case, found: dict[str, Any], job: dict[str, Any]) -> float:
    """How far our kernel is from NumPy's result; NaN without a kernel."""
    import stridesmith as ss

    if found["event"] != "done":
        return math.nan
    work = ss.workload(case.workload, **case.params)
    kernel = ss.load(work, target="cpu", db=found["db"], interface=case.interface, threads=case.threads)
    data = arrays(job)
    out = aligned(data[work.outputs[0]])
    kernel(*(data[name] for name in work.inputs), out=out)
    return error_of(out, job)


def measured(case: Case, arguments: argparse.Namespace, python: str) -> dict[str, Any]:
    """Both tuned, compared with NumPy, and raced."""
    busy = wait_for_quiet(30)
    found = tune(case, arguments.seconds, searches(arguments))
    shutil.rmtree(places(found["db"])["folder"], ignore_errors=True)  # of a run that was interrupted: it would go on
    job = job_of(case, found["db"], arguments)
    theirs = metaschedule("tune", job, python)
    errors = {"ours": our_error(case, found, job)}
    arguments.peers, arguments.peer_python = ["metaschedule"], python
    timed = race(case, found, arguments) if found["event"] == "done" and errors["ours"] <= WRONG else {}
    rounds = timed.get("rounds", {})
    ours, mine = rounds.get("stridesmith:kernel"), rounds.get("metaschedule:kernel")
    fields = ("latency_us", "trials", "seconds", "process_seconds", "message")
    failed = {name: count for name, count in (found.get("failed") or {}).items() if count}
    return {
        "key": case.key, "workload": case.workload, "seconds": arguments.seconds, "cpu": cpu(), "busy": busy,
        "threads": case.threads, "per_round": arguments.per_round, "population": arguments.population,
        "ours": {name: found.get(name) for name in fields} | {"failed": failed},
        "metaschedule": theirs, "rounds": rounds, "missing": timed.get("missing", {}), "errors": errors,
        "ratio": statistics.median(b / a for a, b in zip(ours, mine, strict=True)) if ours and mine else None,
        "gflops": [case.flops / statistics.median(times) * 1e-3 if times else None for times in (ours, mine)],
    }  # fmt: skip


def searches(arguments: argparse.Namespace) -> Path:
    """The folder of searches that had as much time."""
    return Path(arguments.out) / f"{arguments.seconds:g}s"


def cpu() -> str:
    from stridesmith.backends.host import host_cpu

    return str(host_cpu())


def told(row: dict[str, Any]) -> str:
    """A row as it is printed when it comes."""
    times = ", ".join(f"{name} {statistics.median(values):.1f} us" for name, values in row["rounds"].items())
    its = {name: value for name, value in row["metaschedule"].items() if name != "problems"}
    ratio = f"{row['ratio']:.2f}" if row["ratio"] else "none"
    return f"{row['key']}: ratio {ratio}; {times}; ours {row['ours']}; MetaSchedule {its} {row.get('checked', '')}"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of tuning for each of both, from process start")
    parser.add_argument("--rows", default="0:20", help="which of the shapes, FROM:TO")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--per-round", type=int, default=64, help="candidates of a round of MetaSchedule")
    parser.add_argument("--population", type=int, default=512, help="of MetaSchedule's evolutionary search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checked", type=int, default=8, help="of MetaSchedule's fastest candidates are compared")
    parser.add_argument("--rounds", type=int, default=15, help="of the race")
    parser.add_argument("--turn", type=float, default=0.1, help="seconds of a turn in the race")
    parser.add_argument("--tvm", type=Path, default=Path("metaschedule-environment"))
    parser.add_argument("--out", type=Path, default=Path("metaschedule"))
    parser.add_argument("--later", action="store_true", help="only compare what earlier searches have recorded")
    return parser.parse_args()


def main() -> None:
    arguments = options()
    log = arguments.out / "metaschedule.jsonl"
    rows = {(row["key"], row["seconds"]): row for row in read(log)}
    start, end = map(int, arguments.rows.split(":"))
    python = prepare(arguments.tvm)
    for suite, name, layout in SHAPES[start:end]:
        case = case_of(suite, name, layout, arguments.threads)
        row = rows.get((case.key, arguments.seconds))
        if row is None and not arguments.later:
            arguments.out.mkdir(parents=True, exist_ok=True)
            row = measured(case, arguments, python)
        elif row is not None and arguments.later and not row.get("checked"):
            db = str(database(case, searches(arguments)))
            row = row | {"checked": metaschedule("check", job_of(case, db, arguments), python)}
        else:
            continue
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        rows[case.key, arguments.seconds] = row
        print(told(row), flush=True)
    ratios = [row["ratio"] for (_, seconds), row in rows.items() if row["ratio"] and seconds == arguments.seconds]
    print(f"{len(ratios)} rows of {arguments.seconds:g} s, geometric mean {geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
