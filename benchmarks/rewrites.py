"""Do `simplify` and `remove_no_op` keep what programs compute?  Many random programs, in both modes of floats.

    python benchmarks/rewrites.py --programs 20000 --seed 0 --out rewrites.json [--seconds N]

Of four programs one has bare loops, conditions over data, calls of what is not known here, `while`, assertions and
opaque blocks (`tests/ir/passes/pass_programs.py`), two have floats, bools, narrow integers, vectors, views, gathers and
reductions besides (`tests/ir/passes/wide_programs.py`), and the fourth is drawn from the whole grammar
(`tests/random_programs.py`).  Each is run by the interpreter before and after both passes, as it is and with
``strict_float``; once where it has no floats, as the two are one program then, and where it is strict itself.  Prints
how many programs and runs there were, how many were changed, the slowest pass in seconds, and how many were

    wrong     with other results, or with an exception
    longer    with more expressions than before

Programs come by `EVERY` for each seed SEED, SEED + 1, ...; a range goes on where it was interrupted, from the file OUT,
which has the text of each failure.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from ir.passes.pass_programs import outputs, pass_programs
from ir.passes.wide_programs import wide_outputs, wide_programs
from random_programs import programs
from random_runs import arguments, assert_refines, interpreted

from stridesmith.ir import dtypes
from stridesmith.ir.expr import Buffer, Expr
from stridesmith.ir.node import walk
from stridesmith.ir.passes.transform import PASSES
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify

EVERY = 40
"""Programs of one seed, after which the counts are written."""

Run = Callable[[PrimFunc], Any]


@dataclass
class Work:
    """What came of the first programs, kept in a file."""

    file: Path
    seed: int
    done: int = 0
    runs: int = 0
    changed: int = 0
    slowest: float = 0.0
    wrong: list[list[str]] = field(default_factory=list)
    longer: list[list[str]] = field(default_factory=list)

    def read(self) -> None:
        """Go on where the file ends, if there is one."""
        if self.file.exists():
            for name, value in json.loads(self.file.read_text(encoding="utf-8")).items():
                setattr(self, name, value)

    def write(self) -> None:
        kept = {k: v for k, v in vars(self).items() if k != "file"}
        self.file.write_text(json.dumps(kept, indent=1), encoding="utf-8")

    def play(self, count: int, end: float) -> None:
        """Draw programs until `count` are done or the clock says `end`."""
        while self.done < count and time.monotonic() < end:
            try:
                (self._passes, self._wide, self._wide, self._grammar)[self.seed % 4]()
            except Exception:
                self.wrong.append(["no result", traceback.format_exc()[-2500:]])
            self.seed += 1
            self.write()

    def _passes(self) -> None:
        @_drawn(self.seed)
        @given(pass_programs(calls=True), st.integers(0, 999))
        def check(func: PrimFunc, number: int) -> None:
            self._one(func, lambda f: outputs(f, number), _same)

        check()

    def _wide(self) -> None:
        @_drawn(self.seed)
        @given(wide_programs(), st.integers(0, 999))
        def check(func: PrimFunc, number: int) -> None:
            self._one(func, lambda f: wide_outputs(f, number), _same)

        check()

    def _grammar(self) -> None:
        @_drawn(self.seed)
        @given(programs(exact=True))
        def check(func: PrimFunc) -> None:
            self._one(func, lambda f: interpreted(f, arguments(f)), assert_refines)

        check()

    def _one(self, func: PrimFunc, run: Run, compare: Callable[[Any, Any], None]) -> None:
        strict = replace(func, attrs=(*(a for a in func.attrs if a[0] != "strict_float"), ("strict_float", True)))
        modes = (func, strict) if not func.is_strict and _has_floats(func) else (func,)
        for given_func in modes:
            try:
                verify(given_func)
                expected = run(given_func)
            except Exception:
                return  # the program itself does what the language does not allow
            for name in ("simplify", "remove_no_op"):
                start = time.process_time()
                try:
                    new = PASSES[name](given_func)
                except Exception:
                    self.wrong.append([name, traceback.format_exc()[-2500:], given_func.script()])
                    continue
                self.slowest = max(self.slowest, time.process_time() - start)
                self.runs += 1
                self.changed += new != given_func
                if _size(new) > _size(given_func):
                    self.longer.append([name, given_func.script()])
                try:
                    compare(run(new), expected)
                except Exception as error:
                    self.wrong.append([name, str(error)[:500], given_func.script(), new.script()])
        self.done += 1


def _drawn(number: int) -> Callable[[Any], Any]:
    drawn = settings(max_examples=EVERY, deadline=None, database=None, phases=[Phase.generate],
                     suppress_health_check=list(HealthCheck))  # fmt: skip
    return lambda test: seed(number)(drawn(test))


def _has_floats(func: PrimFunc) -> bool:
    return any(dtypes.is_float(n.dtype) for n in walk(func) if isinstance(n, (Expr, Buffer)))


def _same(got: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def _size(func: PrimFunc) -> int:
    return sum(isinstance(n, Expr) for n in walk(func.body))


def main() -> int:
    """Returns 1 where a program was wrong or became longer."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--programs", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--out", type=Path, default=Path("rewrites.json"))
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    work = Work(chosen.out, chosen.seed)
    work.read()
    work.play(chosen.programs, time.monotonic() + chosen.seconds)
    print(f"{work.done} programs, {work.runs} runs, {work.changed} changed, slowest pass {work.slowest:.2f} s: "
          f"{len(work.wrong)} wrong, {len(work.longer)} longer")  # fmt: skip
    for story in (*work.wrong, *work.longer)[:5]:
        print(*story, sep="\n")
    return int(bool(work.wrong or work.longer))


if __name__ == "__main__":
    sys.exit(main())
