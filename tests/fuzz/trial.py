"""One random program under a random sequence of primitives, each of which is judged."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import product

from stridesmith.ir.expr import Buffer, Var
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc, written_buffers
from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.ir.verify.rules import verify
from stridesmith.space.errors import ScheduleError
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.schedule import Schedule
from stridesmith.space.wrappers import WRAPPERS

from .machine import RANGES, Misuse, Values, run
from .moves import PLANS, Move, move
from .programs import program

POISONS = (math.nan, 1e30)


def data(rng: random.Random, param: Buffer | Var, shape: tuple[int, ...]) -> Values | int | float:
    """Values for an argument: small ones, or of an integer type all that it has, its ends more than others."""
    small = rng.random() < 0.5

    def value() -> int | float:
        if param.dtype not in RANGES:
            return float(rng.randint(-9, 9))
        low, high = RANGES[param.dtype]
        if small:
            return rng.randint(max(low, -9), 9)
        return rng.choice([low, low + 1, high - 1, high, rng.randint(low, high)])

    return value() if isinstance(param, Var) else {p: value() for p in product(*map(range, shape))}


class Failure(AssertionError):
    """A program that a primitive spoilt: results are wrong, it is invalid, or something broke; with its story."""

    def __init__(self, kind: str, story: str) -> None:
        super().__init__(story)
        self.kind = kind


class Trial:
    """One random program under a random sequence of primitives."""

    def __init__(self, seed: int, tally: Counter[tuple[str, bool]]) -> None:
        self.rng = random.Random(seed)
        self.seed, self.tally = seed, tally
        self.text = program(self.rng)
        self.sch = Schedule(parse(self.text))
        func = self.sch.func
        outputs = {b.name for b in written_buffers(func)}
        self.inputs: dict[str, Values | int | float] = {
            p.name: data(self.rng, p, getattr(p, "shape", ())) for p in func.params if p.name not in outputs
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
            raise Failure("broken", self.story(call, f"{type(error).__name__}: {error}")) from error
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
        except ValueError as error:
            raise Failure("invalid", self.story("", f"{type(error).__name__}: {error}")) from error
        try:
            same = all(result == self.expected for result in self.results(func))
        except Misuse as error:
            raise Failure("wrong", self.story("", f"Misuse: {error}")) from error
        if not same:
            raise Failure("wrong", self.story("", "results differ"))

    def story(self, call: str, problem: str) -> str:
        steps = "\n".join(self.steps + ([call] if call else []))
        return f"{problem}\nseed {self.seed}\n{self.text}\n{steps}\n\nthe program then:\n{self.sch.func.script()}"
