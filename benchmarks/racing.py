"""Ours and the peers on one program, taking turns: what `peers.py` and `league.py` share.

A program is tuned from an empty database by ``stridesmith --fresh``, in a process of its own.  Then ours and every form
of every peer take turns; each library is a process of its own (`peer_process.py`), stopped (SIGSTOP) while another is
timed, so that its idle threads cost nothing.  The ratio to a form of a peer is the median over the rounds of what it
took over what ours took in the same round: within minutes this kind of machine changes its speed by a factor, which
meets both.
"""

from __future__ import annotations

import argparse
import atexit
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = ("torch", "onnxruntime", "numpy")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**31)}
"""Lets glibc keep what is freed: a peer that allocates its results should not fetch pages in each call."""
TURNS = 3
"""How often a turn is taken, should threads have lost their cores."""
BUSY = 0.2
"""Processors that others may use while a race begins and when it has ended."""
PATIENCE_SECONDS = 60.0
NARROW = 2.0**-8
"""The error that one rounding to bfloat16 may make, which is none to speak of in a network of fewer bits."""
FURTHER = 1.5
"""How many times the least error against float32 a network of fewer bits may have."""
LIKE = 2e-3  # how far elements of two results may be apart, as a share of the largest


@dataclass(frozen=True)
class Case:
    """One program as it is measured: a workload of the library, or the text of one in script form."""

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
    script: str = ""

    @property
    def key(self) -> str:
        return f"{self.suite}/{self.name}/{self.layout or '-'}/{self.threads}"


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


_RUNNING: dict[tuple[str, str, int], Library] = {}


def running(name: str, python: str, threads: int) -> Library:
    """The process of a library, which serves all races of a run: importing PyTorch takes longer than many a race."""
    found = _RUNNING.get((name, python, threads))
    if found is None or found.process.poll() is not None:
        found = _RUNNING[name, python, threads] = Library(name, python, threads)
        atexit.register(found.close)
    return found


def database(case: Case, folder: Path, version: str = "") -> Path:
    return folder / "databases" / f"{case.key.replace('/', '_')}{version}.db"


def earlier(case: Case, result: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What an earlier run has told of its tuning."""
    event = "error" if result["problem"] else "done"
    return {"event": event, "message": result["problem"], "db": str(database(case, folder)), **result["tune"]}


NONE: Mapping[str, tuple[str, str]] = MappingProxyType({})
BEFORE = "before"
"""The name of another version of stridesmith in a race."""


def tune(
    case: Case, seconds: float, folder: Path, python: str = sys.executable, version: str = "", target: str = "cpu"
) -> dict[str, Any]:
    """Tune in a process of its own; its last JSON line, with the database.

    Another version of stridesmith is the one that `python` imports, and has a database of that version's name.
    """
    db = database(case, folder, version)
    db.parent.mkdir(parents=True, exist_ok=True)
    db.unlink(missing_ok=True)
    words = ",".join(f"{n}={w}" for n, w in case.interface.items())
    threads = ["--threads", str(case.threads)] if target == "cpu" else []  # a device runs on all that it has
    command = [
        python, "-m", "stridesmith", *program(case, db), "--target", target, *threads, "--seconds", str(seconds),
        "--fresh", "--db", str(db), "--format", "json", "--interface", words,
    ]  # fmt: skip
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    last = lines[-1] if lines else {"event": "error", "message": done.stderr[-300:]}
    return last | {"db": str(db), "process_seconds": time.perf_counter() - start}


def program(case: Case, db: Path) -> list[str]:
    """The options that name a case's program; its text, where it has one, is put beside the database."""
    if case.script:
        text = db.with_suffix(".py")
        text.write_text(case.script)
        return ["--script", str(text)]
    shape = ",".join(f"{n}={v}" for n, v in case.params.items() if n != "dtype")
    return ["--workload", case.workload, "--shape", shape]


def add_race_options(parser: argparse.ArgumentParser) -> None:
    """The options that `race` reads, beside the number of threads."""
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--turn", type=float, default=0.1, help="seconds of one turn")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=list(PEERS))
    parser.add_argument("--peer-python", default=sys.executable, help="the Python that has the peers")


def race(
    case: Case, found: dict[str, Any], arguments: argparse.Namespace, others: Mapping[str, tuple[str, str]] = NONE,
    ours: str = "stridesmith",
) -> dict[str, Any]:  # fmt: skip
    """Median seconds and spread of ours and of each form of each peer, taking turns.

    `others` of ours race besides, by the name of their forms: the Python that imports each, and its database.
    """
    names = {ours: sys.executable} | {name: python for name, (python, _) in others.items()}
    names |= dict.fromkeys(arguments.peers, arguments.peer_python)
    busy = wait_for_quiet(PATIENCE_SECONDS)
    libraries = [running(name, python, case.threads) for name, python in names.items()]
    job = {"op": "prepare", "workload": case.workload, "params": case.params, "script": case.script, "db": found["db"],
           "buffers": case.buffers, "constants": case.constants, "interface": case.interface}  # fmt: skip
    samples: dict[str, list[float]] = {}
    fastest = math.inf
    places = {name: place for name, (_, place) in others.items()}
    answers = [library.ask(job | {"db": places.get(library.name, found["db"])}) for library in libraries]
    runners, missing = runners_of(libraries, answers)
    for turn in range(arguments.rounds):
        start = turn % max(1, len(runners))
        for library, form in runners[start:] + runners[:start]:
            answer = settled(library, {"op": "time", "form": form, "seconds": arguments.turn}, case.threads)
            if "samples" in answer:
                samples.setdefault(f"{library.name}:{form}", []).append(statistics.median(answer["samples"]))
                if library.name == ours:
                    fastest = min(fastest, *answer["samples"])
    rounds = {name: [round(value * 1e6, 3) for value in values] for name, values in samples.items()}
    times = {name: spread(values) for name, values in samples.items()}
    busy = max(busy, wait_for_quiet(0))
    return {"missing": missing, "rounds": rounds, "times": times, "fastest_us": fastest * 1e6, "busy": busy}


NO_RACE: dict[str, Any] = {"missing": {}, "times": {}, "rounds": {}, "fastest_us": math.nan, "busy": 0.0}
"""What `race` gives where there is nothing of ours to race."""


def wait_for_quiet(patience: float) -> float:
    """Return when nobody uses the processors, or after `patience` seconds; how many processors were in use at last.

    A process that goes on elsewhere, be it a compiler that a tuner has left, takes a core from whoever waits for its
    threads by spinning, which costs that one eight milliseconds a call, and from others hardly anything.
    """
    end = time.monotonic() + patience
    while True:
        used = _processor_seconds()
        start = time.monotonic()
        time.sleep(0.25)
        share = (_processor_seconds() - used) / (time.monotonic() - start)
        if share <= BUSY or time.monotonic() >= end:
            return round(share, 2)


def _processor_seconds() -> float:
    """What all processes have used, in seconds of a processor; 0 where the system does not tell."""
    try:
        user, nice, system = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:4])
    except OSError:
        return 0.0
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


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
    libraries: list[Library], answers: list[dict[str, Any]], exact: Sequence[float] = ()
) -> tuple[list[tuple[Library, str]], dict[str, str]]:
    """The forms that race, and why others do not; ours comes first, and what differs from it does something else.

    Where every form of the peers differs from ours and two or more of them are alike, ours is what is wrong.  With the
    `exact` result of a network whose numbers have few bits, which each library rounds elsewhere, what is much further
    from it than the nearest does something else.
    """
    if exact:
        return _near(libraries, answers, exact)
    runners: list[tuple[Library, str]] = []
    missing: dict[str, str] = {}
    ours: list[float] = next(iter(answers[0]["forms"].values()), [])
    odd: list[list[float]] = []
    for library, answer in zip(libraries, answers, strict=True):
        if "error" in answer:
            missing[library.name] = answer["error"]
        missing |= {f"{library.name}:{form}": reason for form, reason in answer["missing"].items()}
        for form, elements in answer["forms"].items():
            if ours and not alike(elements, ours):
                missing[f"{library.name}:{form}"] = "its result differs from ours"
                odd.append(elements)
            else:
                runners.append((library, form))
    if len(runners) == 1 and any(alike(a, b) for n, a in enumerate(odd) for b in odd[:n]):
        return [], missing | {libraries[0].name: "its result differs from that of peers, which agree with each other"}
    return runners, missing


def _near(
    libraries: list[Library], answers: list[dict[str, Any]], exact: Sequence[float]
) -> tuple[list[tuple[Library, str]], dict[str, str]]:
    """The forms whose error is at most `FURTHER` times the least."""
    missing = {library.name: a["error"] for library, a in zip(libraries, answers, strict=True) if "error" in a}
    each = list(zip(libraries, answers, strict=True))
    missing |= {f"{library.name}:{form}": reason for library, a in each for form, reason in a["missing"].items()}
    forms = [(library, form, elements) for library, a in each for form, elements in a["forms"].items()]
    errors = [error_of(elements, exact) for _, _, elements in forms]
    runners: list[tuple[Library, str]] = []
    for (library, form, _), error in zip(forms, errors, strict=True):
        if error <= max(NARROW, FURTHER * min(errors)):
            runners.append((library, form))
        else:
            missing[f"{library.name}:{form}"] = f"its error is {error:.3g}, the least {min(errors):.3g}"
    return runners, missing


def error_of(elements: Sequence[float], exact: Sequence[float]) -> float:
    """The root of the mean square of the differences, as a share of that of the result."""
    pairs = zip(elements, exact, strict=True)
    return math.sqrt(sum((a - b) ** 2 for a, b in pairs) / max(sum(b * b for b in exact), 1e-30))


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
    against_before = ratios.pop(f"{BEFORE}:kernel", math.nan)
    best = min(ratios, key=ratios.__getitem__) if ratios else None
    fields = ("latency_us", "gflops", "peak_gflops", "roofline_fraction", "trials", "seconds", "failed", "record")
    return {
        "key": case.key, "suite": case.suite, "name": case.name, "layout": case.layout, "threads": case.threads,
        "ours_us": ours, "best_peer": best, "ratio": ratios[best] if best else math.nan,
        "against_before": against_before,
        "gflops": case.flops / ours * 1e-3, "fastest_gflops": case.flops / timed["fastest_us"] * 1e-3,
        "times": times, "rounds": rounds, "missing": timed["missing"], "busy": timed["busy"],
        "tune": {n: found.get(n) for n in fields} | {"process_seconds": found["process_seconds"]},
        "problem": found.get("message", "") if found["event"] != "done" else timed["missing"].get("stridesmith", ""),
    }  # fmt: skip


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else math.nan


def read(log: Path) -> list[dict[str, Any]]:
    """The lines of a results file, without one that was cut short."""
    return [json.loads(line) for line in log.read_text().split("\n")[:-1]] if log.exists() else []


def line_of(result: dict[str, Any]) -> str:
    """A result as it is printed when it comes."""
    if result["ours_us"] != result["ours_us"]:
        return f"{result['key']}: {result['problem'] or 'there is no result of ours'}"
    times = ", ".join(f"{n} {t[0]:.1f}" for n, t in result["times"].items())
    missing = "".join(f"; {name}: {reason}" for name, reason in result["missing"].items())
    return f"{result['key']}: {result['ratio']:.2f}, {result['gflops']:.1f} GFLOP/s; us: {times}{missing}"
