"""Limits of seconds: eight commands and calls, so many runs of each, quiet or beside busy processes.

    python benchmarks/limits.py --out FILE.jsonl [--repeat 20] [--busy 2] [--only matmul,softmax]

Each run has a database and a cache of its own, both empty.  A command's seconds are those of its process, from start to
exit; a call's are those of the call in a process that has imported what it needs.  A run is a line of the file, and
what the file has is not run again: a second call goes on where the first was stopped.  The table says for each command
how long the longest run went on beyond its limit, and how many kept it: within a tenth of the limit, or one second
where that is more, with a result.  Twenty runs of each take 26 minutes, quiet or busy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HANG_SECONDS = 120.0  # beyond its limit, after which a run is killed


@dataclass(frozen=True)
class Case:
    """A command, or a call in Python, with its limit; ``{folder}`` stands for the run's folder, ``{files}`` for that of
    the models and scripts."""

    seconds: float
    command: tuple[str, ...] = ()
    call: str = ""


SCRIPT = """
@T.prim_func
def scaled(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (512, 300), "float32")
    B = T.match_buffer(b, (512,), "float32")
    for i, k in T.grid(512, 300):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk] * T.float32(0.5)
"""

CASES: dict[str, Case] = {
    "matmul": Case(4, ("--workload", "matmul")),
    "script": Case(4, ("--script", "{files}/scaled.py")),
    "suite": Case(5, ("--suite", "resnet50", "--only", "{first}")),
    "seven": Case(8, ("--model", "{files}/seven.onnx")),
    "quantised": Case(30, ("--model", "{files}/quantised.onnx")),
    "ss.tune": Case(3, call="ss.tune('conv2d', seconds=3, db='{folder}/t.db', emit=emit)"),
    "ss.compile": Case(8, call="ss.compile('{files}/softmax.onnx', seconds=8, db='{folder}/t.db', emit=emit)"),
    "ss.torch.tune": Case(
        10,
        call="""
            ss.torch.tune(torch.nn.Sequential(
                torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(14400, 10)
            ).eval(), torch.randn(1, 3, 32, 32), seconds=10, db='{folder}/t.db', emit=emit)
        """,
    ),
}

CALL = """
import json, sys, time
import optuna, xgboost
import stridesmith as ss
import stridesmith.search.tuning.tuner, stridesmith.search.tuning.sampler
{imports}
heard = []

def emit(event):
    heard.append((time.monotonic(), event))

began = time.monotonic()
found, error = None, ""
try:
    found = {call}
except Exception as raised:
    error = str(raised)
took = time.monotonic() - began
done = [event for _, event in heard if event["event"] in ("done", "turn")]
last = done[-1] if done else {{}}
print(json.dumps(dict(
    took=took, first=heard[0][0] - began if heard else None, trials=last.get("trials", 0),
    best_us=last.get("latency_us") or last.get("predicted_us"), error=error,
)))
"""


# ---------------------------------------------------------------- one run


def run(case: Case, files: Path) -> dict[str, Any]:
    """What one run took, found and said first."""
    folder = Path(tempfile.mkdtemp(prefix="limits-", dir="/tmp"))
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "STRIDESMITH_DB": str(folder / "t.db")}
    try:
        return (_command if case.command else _call)(case, files, folder, environment)
    except subprocess.TimeoutExpired:
        return {"took": case.seconds + HANG_SECONDS, "first": None, "trials": 0, "best_us": None, "error": "hung"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _command(case: Case, files: Path, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    words = [word.format(files=files, first=_first_of_suite()) if "{" in word else word for word in case.command]
    words += ["--seconds", f"{case.seconds:g}", "--format", "json"]
    began, first, events = time.monotonic(), None, list[dict[str, Any]]()
    process = subprocess.Popen(
        [sys.executable, "-m", "stridesmith", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        first = first or time.monotonic() - began
        events.append(json.loads(line))
    _, errors = process.communicate(timeout=HANG_SECONDS)
    last: dict[str, Any] = next((event for event in reversed(events) if event["event"] in ("done", "model")), {})
    return {
        "took": time.monotonic() - began, "first": first, "trials": last.get("trials", 0),
        "best_us": last.get("latency_us"), "error": "" if not process.returncode else errors.strip()[-300:],
    }  # fmt: skip


def _call(case: Case, files: Path, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    call = textwrap.dedent(case.call).strip().format(files=files, folder=folder)
    text = CALL.format(call=call, imports="import torch" if "torch" in call else "")
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=environment,
        timeout=case.seconds + HANG_SECONDS,
    )  # fmt: skip
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"took": 0.0, "first": None, "trials": 0, "best_us": None, "error": done.stderr.strip()[-300:] or "died"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _first_of_suite() -> str:
    from stridesmith.configs import suite

    return str(suite("resnet50").entries[0].name)


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute all the time."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


# ---------------------------------------------------------------- models


def written(files: Path) -> None:
    """Write the models and the script that the cases read."""
    import onnx

    (files / "scaled.py").write_text("from stridesmith import T\n" + SCRIPT)
    for name, model in (("seven", _seven()), ("quantised", _quantised()), ("softmax", _softmax())):
        onnx.save(model, files / f"{name}.onnx")


def _softmax() -> Any:
    from networks import Writer

    net = Writer()
    return net.model("softmax", (2, 3, 17, 17), (2, 3, 17, 17), net.add("Softmax", "x", axis=-1))


def _seven() -> Any:
    """Seven operators of which none joins another."""
    from networks import Writer

    net = Writer()
    x = net.add("Conv", "x", net.weight(16, 3, 3, 3), pads=[1] * 4)
    x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("Conv", x, net.weight(32, 16, 3, 3), pads=[1] * 4)
    x = net.add("Softmax", x, axis=1)
    x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("Conv", x, net.weight(32, 32, 3, 3), pads=[1] * 4)
    x = net.add("MatMul", net.add("Flatten", x), net.weight(32 * 8 * 8, 10))
    return net.model("seven", (1, 3, 32, 32), (1, 10), x)


def _quantised(blocks: int = 11) -> Any:
    """Convolutions in blocks of three between QuantizeLinear and DequantizeLinear, as exporters write them."""
    import numpy as np
    from networks import Writer

    net = Writer()

    def quantised(x: str) -> str:
        scale, zero = net.constant(np.float32(0.05)), net.constant(np.uint8(128))
        return net.add("DequantizeLinear", net.add("QuantizeLinear", x, scale, zero), scale, zero)

    def conv(x: str, ci: int, co: int, k: int, groups: int = 1) -> str:
        weight = net.constant(net.rng.integers(-127, 127, (co, ci // groups, k, k)).astype(np.int8))
        scale, zero = net.constant(np.full(co, 0.01, np.float32)), net.constant(np.zeros(co, np.int8))
        weight = net.add("DequantizeLinear", weight, scale, zero, axis=0)
        made = net.add("Conv", quantised(x), weight, net.weight(co), pads=[k // 2] * 4, group=groups)
        return quantised(net.add("Relu", quantised(made)))

    x, ci = conv("x", 3, 16, 3), 16
    for number in range(blocks):
        co = 16 + 8 * (number // 2)
        x = conv(conv(conv(x, ci, 2 * ci, 1), 2 * ci, 2 * ci, 3, 2 * ci), 2 * ci, co, 1)
        ci = co
    return net.model("quantised", (1, 3, 28, 28), (1, ci, 1, 1), net.add("GlobalAveragePool", x))


# ---------------------------------------------------------------- the table


def allowed(seconds: float) -> float:
    """How long a run may go on beyond its limit."""
    return max(0.1 * seconds, 1.0)


def is_kept(line: dict[str, Any]) -> bool:
    """Whether a run ended in time, with a result."""
    limit = CASES[line["name"]].seconds
    return not line["error"] and line["took"] - limit <= allowed(limit)


def rows(lines: list[dict[str, Any]]) -> Iterator[str]:
    """A line of the table for each command, quiet and busy."""
    for name, case in CASES.items():
        for count in sorted({line["busy"] for line in lines}):
            found = [line for line in lines if line["name"] == name and line["busy"] == count]
            if not found:
                continue
            over = [line["took"] - case.seconds for line in found]
            kept = sum(is_kept(line) for line in found)
            first = max((line["first"] for line in found if line["first"] is not None), default=float("nan"))
            trials = statistics.median(line["trials"] or 0 for line in found)
            best = [line["best_us"] for line in found if line["best_us"]]
            errors = "; ".join(sorted({line["error"][:90] for line in found if line["error"]}))
            yield (
                f"| {name} | {case.seconds:g} | {count} | {kept} / {len(found)} | {max(over):+.2f} | {min(over):+.2f} "
                f"| {first:.2f} | {trials:g} | {statistics.median(best) if best else float('nan'):.4g} | {errors} |"
            )


def main() -> int:
    """Run what the file lacks and print the table; 1 where a limit was not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the lines of all runs, to which new ones are added")
    parser.add_argument("--repeat", type=int, default=20, help="runs of each command")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside them")
    parser.add_argument("--only", default="", help="names of commands, separated by commas: " + ", ".join(CASES))
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else list(CASES)
    lines = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    done = {(line["name"], line["busy"], line["number"]) for line in lines}
    with tempfile.TemporaryDirectory() as folder, busy(asked.busy):
        written(Path(folder))
        for number in range(asked.repeat):  # all in turns, so that what else the machine does meets all alike
            for name in names:
                if (name, asked.busy, number) in done:
                    continue
                found = run(CASES[name], Path(folder))
                lines.append({"name": name, "busy": asked.busy, "number": number, **found})
                with asked.out.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
                late = found["took"] - CASES[name].seconds
                print(f"{name} {number}: {late:+.2f} s, {found['trials']} trials {found['error']}", file=sys.stderr)
    print("| command | limit | busy | kept | latest (s) | earliest (s) | first line (s) | trials | best (us) | wrong |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|")
    for row in rows(lines):
        print(row)
    return int(not all(map(is_kept, lines)))


if __name__ == "__main__":
    sys.exit(main())
