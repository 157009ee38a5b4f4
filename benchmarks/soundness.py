"""Do primitives keep what programs compute?  Many random programs under random primitives, each step judged.

    python benchmarks/soundness.py --programs 50000 --seed 0 --out soundness [--seconds N] [--steps 8] [--ranges]

Draws the programs of the seeds SEED, SEED + 1, ... and plays them as `tests/fuzz/test_soundness.py` does: after every
primitive that is accepted the program is verified, its accesses are proven in bounds, and it is executed under two
kinds of poison by a machine that shares no code with the interpreter.  Prints how often each primitive was accepted and
refused, and how many programs ended

    wrong     with other results, or with what the language does not allow
    invalid   with a program that `verify` rejects, or an access that is not provably in bounds
    broken    with an exception that is no refusal

With `--ranges` programs have extents that are expressions (`tests/fuzz/ranged.py`): each accepted rewrite is compared
with the program of fixed shapes at five values of the parameters, and so is the kernel of each last program.

A range of seeds goes on where it was interrupted: the folder OUT has a file of counts for each, and `failures.txt` with
the story of each failure, which `--seed` with `--programs 1` repeats.  Several processes share the work by ranges of
their own (`--programs 25000 --seed 0` and `--programs 25000 --seed 25000`); the last table is over all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fuzz.ranged import RangedTrial
from fuzz.trial import Failure, Trial

EVERY = 100
"""Programs after which the counts are written."""


class Work:
    """A range of seeds with what came of its first programs, kept in a file."""

    def __init__(self, folder: Path, seed: int, programs: int) -> None:
        self.seed, self.programs = seed, programs
        self.file, self.failures = folder / f"{seed}-{seed + programs}.json", folder / "failures.txt"
        self.done, self.seconds = 0, 0.0
        self.tally: Counter[tuple[str, bool]] = Counter()
        self.ends: Counter[str] = Counter()
        if self.file.exists():
            self.read(json.loads(self.file.read_text()))

    def read(self, stored: dict[str, Any]) -> None:
        self.done, self.seconds = self.done + stored["done"], self.seconds + stored["seconds"]
        self.ends.update(stored["ends"])
        for name, (accepted, refused) in stored["primitives"].items():
            self.tally[name, True] += accepted
            self.tally[name, False] += refused

    def write(self) -> None:
        names = sorted({name for name, _ in self.tally})
        counts = {name: (self.tally[name, True], self.tally[name, False]) for name in names}
        stored = {"done": self.done, "seconds": self.seconds, "ends": dict(self.ends), "primitives": counts}
        self.file.write_text(json.dumps(stored, indent=1))

    def play(self, steps: int, until: float, ranges: bool = False) -> None:
        """The programs that are left, as far as the time suffices."""
        started = time.process_time() - self.seconds
        while self.done < self.programs and time.monotonic() < until:
            number = self.seed + self.done
            try:
                (RangedTrial if ranges else Trial)(number, self.tally).play(steps)
            except Failure as failure:
                self.ends[failure.kind] += 1
                with self.failures.open("a") as file:
                    file.write(f"##### {failure.kind}, seed {number}\n{failure}\n\n")
            self.done += 1
            if self.done % EVERY == 0 or self.done == self.programs:
                self.seconds = time.process_time() - started
                self.write()
        self.seconds = time.process_time() - started
        self.write()

    def table(self) -> str:
        names = sorted({name for name, _ in self.tally})
        rows = [f"{name:40} {self.tally[name, True]:8} accepted {self.tally[name, False]:8} refused" for name in names]
        ends = ", ".join(f"{self.ends[kind]} {kind}" for kind in ("wrong", "invalid", "broken"))
        accepted = sum(count for (_, good), count in self.tally.items() if good)
        each = 1000 * self.seconds / max(self.done, 1)
        total = f"{self.done} programs, {accepted} accepted primitives: {ends}; {each:.0f} ms of a core each"
        return "\n".join([*rows, total])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--steps", type=int, default=8, help="random primitives after the plan of each program")
    parser.add_argument("--ranges", action="store_true", help="programs of many shapes, and their kernels")
    parser.add_argument("--out", type=Path, default=Path("soundness"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    work = Work(given.out, given.seed, given.programs)
    work.play(given.steps, time.monotonic() + given.seconds, given.ranges)
    files = [path for path in sorted(given.out.glob("*-*.json")) if path != work.file]
    for path in files:
        work.read(json.loads(path.read_text()))
    print(work.table())
    sys.exit(1 if work.ends else 0)


if __name__ == "__main__":
    main()
