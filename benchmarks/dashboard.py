"""Does optuna-dashboard's server show a run's study while the run goes on, and does it hold the run up?

    pip install optuna-dashboard
    python benchmarks/dashboard.py [--seconds 45] [--workload conv2d]

A run tunes into an empty database.  As soon as its journal is there, the server is started beside it and asked for the
study again and again, as a browser would; each row says how many trials the run had told and how many the server
showed then.  It is an error where the server shows nothing before the end, fewer trials than before, or in the end
others than were told, and where the run does not end in its time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from driving import STARTED_SECONDS, Drive

LATE_SECONDS = 12.0  # beyond its time, that a run may take


class Server:
    """optuna-dashboard on a journal."""

    def __init__(self, journal: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.base = f"http://127.0.0.1:{port}/api/studies"
        program = [sys.executable, "-c", "from optuna_dashboard._cli import main; main()"]
        command = [*program, str(journal), "--host", "127.0.0.1", "--port", port]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _ask(self, path: str = "") -> Any:
        with urllib.request.urlopen(self.base + path, timeout=20) as answer:
            return json.load(answer)

    def trials(self) -> dict[str, int]:
        """For each study, how many trials the server shows; empty before it answers."""
        try:
            summaries = self._ask()["study_summaries"]
            return {s["study_name"]: len(self._ask(f"/{s['study_id']}")["trials"]) for s in summaries}
        except (urllib.error.URLError, ConnectionError):
            return {}


def main() -> int:
    """Print what was told and what was shown, second by second; 1 where it was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--workload", default="conv2d")
    parser.add_argument("--every", type=float, default=3.0, help="seconds from one question to the next")
    asked = parser.parse_args()
    if importlib.util.find_spec("optuna_dashboard") is None:
        print("optuna-dashboard is not installed: pip install optuna-dashboard", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="dashboard-", dir="/tmp"))
    limit = ("--seconds", str(asked.seconds))
    drive = Drive(folder, ("--workload", asked.workload, *limit, "--db", str(folder / "tuned.db")))
    shown: list[int] = []
    server: Server | None = None
    problems = []
    try:
        journal = folder / "tuned.optuna.log"
        while not journal.exists() and drive.process.poll() is None:
            if time.monotonic() - drive.began > STARTED_SECONDS:
                raise TimeoutError("the run wrote no journal")
            time.sleep(0.05)
        server = Server(journal)
        print("| seconds | trials told | trials shown | the server took, ms |\n|---:|---:|---:|---:|")
        while drive.process.poll() is None:
            began = time.monotonic()
            if counts := server.trials():
                shown.append(sum(counts.values()))
                took = (time.monotonic() - began) * 1e3
                print(f"| {began - drive.began:.1f} | {len(drive.told())} | {shown[-1]} | {took:.0f} |", flush=True)
            time.sleep(asked.every)
        ended = time.monotonic() - drive.began
        drive.end(10)
        told, last = len(drive.told()), sum(server.trials().values())
        print(f"\nended after {ended:.1f} s with exit code {drive.process.returncode}; {told} told, {last} shown")
        if not any(shown):
            problems.append("nothing was shown before the end")
        if sorted(shown) != shown:
            problems.append("trials vanished")
        if last != told:
            problems.append(f"{told} trials were told and {last} are shown")
        if drive.process.returncode or ended > asked.seconds + LATE_SECONDS:
            problems.append("the run did not end as it should")
    finally:
        if server is not None:
            server.process.kill()
            server.process.wait()
        drive.process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
