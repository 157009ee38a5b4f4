"""Every rewrite that a primitive accepts leaves the results of random programs as they are."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import product

import pytest
from fuzz.machine import Misuse, Values, run
from fuzz.moves import MOVES, PLANS, Move, move
from fuzz.programs import program
from scale import scaled

from stridesmith.ir.affine.bounds import check_in_bounds
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc, written_buffers
from stridesmith.ir.verify.rules import verify
from stridesmith.space.errors import ScheduleError
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.schedule import Schedule
from stridesmith.space.wrappers import WRAPPERS

POISONS = (math.nan, 1e30)
BATCHES = 10


class Trial:
    """One random program under a random sequence of primitives."""

    def __init__(self, seed: int, tally: Counter[tuple[str, bool]]) -> None:
        self.rng = random.Random(seed)
        self.seed, self.tally = seed, tally
        self.text = program(self.rng)
        self.sch = Schedule(parse(self.text))
        func = self.sch.func
        outputs = {b.name for b in written_buffers(func)}
        self.inputs: dict[str, Values] = {
            b.name: {p: float(self.rng.randint(-9, 9)) for p in product(*map(range, b.shape))}
            for b in func.buffers
            if b.name not in outputs
        }
        self.expected = self.results(func)[0]
        self.steps: list[str] = []

    def results(self, func: PrimFunc) -> list[dict[str, Values]]:
        return [run(func, self.inputs, poison, self.seed) for poison in POISONS]

    def play(self, steps: int) -> None:
        """A plan, or not, and then `steps` random moves."""
        if self.rng.random() < 0.8:
            for planned in self.rng.choice(PLANS)(self.sch, self.rng):
                self.step(planned)
        for _ in range(steps):
            self.step(move(self.sch, self.rng))

    def step(self, chosen: Move) -> None:
        name, args, options = chosen
        if name not in PRIMITIVES and name not in WRAPPERS:
            return
        call = f"sch.{name}({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in options.items())])})"
        try:
            getattr(self.sch, name)(*args, **options)
        except ScheduleError as error:
            assert str(error).strip(), f"{call}: {error}"
            self.tally[name, False] += 1
            return
        except Exception as error:
            raise AssertionError(self.story(call, f"{type(error).__name__}: {error}")) from error
        self.tally[name, True] += 1
        self.steps.append(call)
        self.judge()

    @property
    def removed_a_branch(self) -> bool:
        return any("remove_branching" in step for step in self.steps)

    def judge(self) -> None:
        func = self.sch.func
        try:
            verify(func)
            check_in_bounds(func)
            for result in self.results(func):
                assert result == self.expected, "results differ"
        except (Misuse, ValueError, AssertionError) as error:
            raise AssertionError(self.story("", f"{type(error).__name__}: {error}")) from error

    def story(self, call: str, problem: str) -> str:
        steps = "\n".join(self.steps + ([call] if call else []))
        return f"{problem}\nseed {self.seed}\n{self.text}\n{steps}\n\nthe program then:\n{self.sch.func.script()}"


TALLY: Counter[tuple[str, bool]] = Counter()
PROGRAMS: Counter[str] = Counter()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_accepted_rewrites_keep_the_results(batch: int) -> None:
    """Under NaN and under large poison, in any order of concurrent iterations, and with promises about padding kept."""
    for number in range(scaled(15)):
        trial = Trial(batch * 1_000_000 + number, TALLY)
        trial.play(8)
        replayed = trial.sch.trace.replay(parse(trial.text))
        assert replayed.func == trial.sch.func, trial.story("", "the trace gives another program")
        PROGRAMS["all"] += 1
        PROGRAMS["branch removed"] += trial.removed_a_branch


def test_every_primitive_is_accepted_and_refused() -> None:
    """The programs above are worth their time: many lose a branch, and each primitive says yes and no.

    At full scale (3,000 programs, STRIDESMITH_TEST_SCALE=20) a quarter of them, and at least fifty times each.
    """
    names = sorted({name for name, _ in TALLY})
    print()
    for name in names:
        print(f"{name:40} {TALLY[name, True]:6} accepted of {TALLY[name, True] + TALLY[name, False]:6}")
    print(f"{PROGRAMS['branch removed']} of {PROGRAMS['all']} programs with an accepted branch removal")
    if PROGRAMS["all"] < BATCHES * scaled(15):
        pytest.skip("counts what the whole file has done")
    assert PROGRAMS["branch removed"] >= PROGRAMS["all"] / (4 if PROGRAMS["all"] >= 2000 else 6)
    least = 50 if PROGRAMS["all"] >= 3000 else 0
    for name in names:
        assert TALLY[name, True] >= least and TALLY[name, False] >= least, name
    assert set(names) == {name for name in MOVES if name in PRIMITIVES or name in WRAPPERS}
