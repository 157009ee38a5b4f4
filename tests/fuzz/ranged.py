"""Random programs whose extents are expressions, under random primitives, judged as programs of fixed shapes.

Whatever a primitive makes of such a program has to be, for every value of its parameters, what the program as it was
given is for them: both are written out for five values, and run by the machine that judges programs of fixed shapes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

import stridesmith as ss
from stridesmith.backends.lower import LoweringError
from stridesmith.ir.expr import Buffer, Var
from stridesmith.ir.ranges import fixed
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc, written_buffers
from stridesmith.ir.verify.bounds import OutOfBounds, check_in_bounds
from stridesmith.ir.verify.rules import verify
from stridesmith.space.concurrency import check_all_marked
from stridesmith.space.errors import ScheduleError
from stridesmith.space.schedule import Schedule

from .machine import Misuse, Values, run
from .trial import POISONS, Failure, Trial, data

VALUES = 5
LARGEST = {"n": 9, "m": 6}


class _Writer:
    """Writes one program; `alone` are the sizes that stand as an extent of a parameter."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.params: list[tuple[str, tuple[str, ...]]] = []
        self.lines: list[str] = []
        self.stages = 0
        self.step = rng.choice([1, 1, 1, 2, 4])  # by which n divides
        self.dims = ["n", rng.choice(["m", "4", "6", "n * 2", "m + 1", "m * 3", "(n + 3) // 4"])]
        if self.step > 1 and rng.random() < 0.5:
            self.dims[0] = f"n // {self.step} * {self.step}"

    def text(self) -> str:
        rng = self.rng
        source, shape = self.input("A", self.dims)
        count = rng.randint(1, 3)
        for number in range(count):
            source, shape = self.stage(source, shape, "C" if number == count - 1 else f"T{number}")
        used = " ".join(e for _, dims in self.params for e in dims)
        alone = {e for _, dims in self.params for e in dims}
        sizes = [v for v in LARGEST if v in used and v in alone and rng.random() < 0.7]
        scalars = [v for v in LARGEST if v in " ".join((used, *self.lines)) and v not in sizes]
        handles = [f"{name}_h: T.handle" for name, _ in self.params]
        top = [f"{v} = T.int64()" for v in sizes]
        top += [f'{name} = T.match_buffer({name}_h, ({", ".join(dims)},), "float32")' for name, dims in self.params]
        known = [f"{v} <= {LARGEST[v]}" for v in (*sizes, *scalars) if rng.random() < 0.7]
        known += [f"1 <= {v}" for v in scalars]
        known += [f"n % {self.step} == 0"] if self.step > 1 and "n" in (*sizes, *scalars) else []
        top += [f"T.assume({' and '.join(known)})"] if known else []
        params = [f"{v}: T.int64" for v in scalars] + handles
        rng.shuffle(params)
        body = "\n".join("    " + line for line in (*top, *self.lines))
        return f"@T.prim_func\ndef main({', '.join(params)}):\n{body}\n"

    def input(self, name: str, shape: list[str]) -> tuple[str, list[str]]:
        self.params.append((name, tuple(shape)))
        return name, shape

    def stage(self, source: str, shape: list[str], name: str) -> tuple[str, list[str]]:
        """Statements that compute the buffer `name`, a parameter where it is the last, and its shape."""
        rng, k = self.rng, self.stages
        self.stages += 1
        if len(shape) == 2 and rng.random() < 0.35:
            made = shape[:1] if rng.random() < 0.7 else [shape[0], shape[0]]
            self.declare(name, made)
            self.reduction(source, shape, name, made, k)
            return name, made
        made = list(reversed(shape)) if len(shape) == 2 and rng.random() < 0.3 else list(shape)
        self.declare(name, made)
        points = [f"v{k}{d}" for d in range(len(made))]
        at = points if made == shape or len(made) < 2 else points[::-1]
        value = self.read(source, at, shape)
        body = f"{name}[{', '.join(points)}] = {value}"
        if rng.random() < 0.2:
            body = f"{body} + {self.read(source, at, shape)}"
        self.nest(made, points, body, name, "S" * len(made))
        return name, made

    def declare(self, name: str, shape: list[str]) -> None:
        if name == "C":
            self.params.append((name, tuple(shape)))
        else:
            self.lines.append(f'{name} = T.alloc_buffer(({", ".join(shape)},), "float32")')

    def read(self, source: str, at: list[str], shape: list[str]) -> str:
        rng = self.rng
        dim = rng.randrange(len(at))
        form = rng.random()
        moved = list(at)
        if form < 0.15:
            moved[dim] = f"{shape[dim]} - 1 - {at[dim]}"
        elif form < 0.3:
            moved[dim] = f"T.min({at[dim]} + 1, {shape[dim]} - 1)"
        elif form < 0.45:
            moved[dim] = f"{at[dim]} + 1"
            return f"T.if_then_else({at[dim]} + 1 < {shape[dim]}, {source}[{', '.join(moved)}], T.float32(3))"
        plain = f"{source}[{', '.join(moved)}]"
        doubled, more = f"{plain} * T.float32(2)", f"{plain} + T.float32(1)"
        return rng.choice([plain, doubled, more, f"T.max({plain}, T.float32(0))"])

    def nest(self, shape: list[str], points: list[str], body: str, name: str, kinds: str, init: str = "") -> None:
        """The statement for all points of a shape, in a block, or in bare loops where it has no init."""
        loops = [p.replace("v", "i") for p in points]
        if not init and self.rng.random() < 0.25:
            for point, loop in zip(points, loops, strict=True):
                body = body.replace(point, loop)
            self.lines += [f"for {', '.join(loops)} in T.grid({', '.join(shape)}):", f"    {body}"]
            return
        self.lines += [
            f"for {', '.join(loops)} in T.grid({', '.join(shape)}):",
            f'    with T.block("{name}"):',
            f'        {", ".join(points)} = T.axis.remap("{kinds}", [{", ".join(loops)}])',
            *([] if not init else ["        with T.init():", f"            {init}"]),
            f"        {body}",
        ]

    def reduction(self, source: str, shape: list[str], name: str, made: list[str], k: int) -> None:
        points, over = [f"v{k}{d}" for d in range(len(made))], f"v{k}r"
        element = f"{name}[{', '.join(points)}]"
        read = f"{source}[{points[0]}, {over}]"
        term = read if len(points) == 1 else f"{read} * {source}[{points[1]}, {over}]"
        combine = f"{element} + {term}" if self.rng.random() < 0.7 else f"T.max({element}, {term})"
        begin = "T.float32(0)" if "+ " in combine else 'T.float32("-inf")'
        kinds = "S" * len(made) + "R"
        self.nest([*made, shape[1]], [*points, over], f"{element} = {combine}", name, kinds, f"{element} = {begin}")


def ranged_program(rng: random.Random) -> str:
    """The text of a program over sizes and parameters ``n`` and ``m``."""
    return _Writer(rng).text()


class RangedTrial(Trial):
    """One such program under a random sequence of primitives."""

    def __init__(self, seed: int, tally: Counter[tuple[str, bool]]) -> None:
        self.rng = random.Random(seed)
        self.seed, self.tally = seed, tally
        self.text = ranged_program(self.rng)
        func = parse(self.text)
        assert isinstance(func, PrimFunc)
        self.sch = Schedule(func)
        self.given = self.sch.func
        self.steps: list[str] = []
        self.samples = list(self.drawn())
        self.wanted = [self.at(self.given, values)[1] for values in self.samples]

    def drawn(self) -> Iterator[dict[Var, int]]:
        """Values of the parameters that meet what the program assumes."""
        step = next((s for s in (4, 2) if f"n % {s} == 0" in self.text), 1)
        for number in range(VALUES):
            values = {v: self.rng.randint(1, LARGEST[v.name]) for v in self.given.integers}
            values |= {v: max(step, n // step * step) for v, n in values.items() if v.name == "n"}
            yield {v: 1 if not number and (v.name != "n" or step == 1) else n for v, n in values.items()}

    def inputs_at(self, func: PrimFunc, values: dict[Var, int]) -> tuple[PrimFunc, dict[str, Values | int | float]]:
        """The program of fixed shapes for these values, and what it is called with."""
        plain = fixed(func, values)
        written = {b.name for b in written_buffers(plain)}
        rng = random.Random(self.seed + sum(values.values()))
        inputs: dict[str, Values | int | float] = {}
        for param in sorted(plain.params, key=lambda p: p.name):
            if isinstance(param, Var):
                inputs[param.name] = values[param]
            elif param.name not in written:
                inputs[param.name] = data(rng, param, plain.logical_shape(param))
        return plain, inputs

    def at(self, func: PrimFunc, values: dict[Var, int]) -> tuple[PrimFunc, list[dict[str, Values]]]:
        """The program of fixed shapes for these values, and its results under each poison."""
        plain, inputs = self.inputs_at(func, values)
        return plain, [run(plain, inputs, poison, self.seed) for poison in POISONS]

    def play(self, steps: int) -> None:
        """The last program is compiled as well, where a CPU runs it; in half of the trials as one of several cases."""
        super().play(steps)
        if self.steps and self.rng.random() < 0.5:
            self.specialize()
        self.check_kernel()

    def specialize(self) -> None:
        """What was accepted is a case of the program as it was given, for some of its sizes or for one shape alone."""
        trace, values = self.sch.trace.to_json(), self.rng.choice(self.samples)
        ranges = {v.name: [1, max(1, n)] for v, n in values.items() if self.rng.random() < 0.7}
        if self.rng.random() < 0.3:
            ranges, trace = {v.name: [n, n] for v, n in values.items()}, []
        self.sch = Schedule(self.given)
        self.step(("specialize", [[[ranges, trace], [{}, []]]], {}))

    def check_kernel(self) -> None:
        """One kernel gives the results of all shapes; a temporary without a largest size has none."""
        func = self.sch.func
        try:
            check_all_marked(func)
            kernel = ss.build(func, "cpu")
        except (LoweringError, ScheduleError, OutOfBounds):
            self.tally["build", False] += 1
            return
        self.tally["build", True] += 1
        written = {b.name for b in written_buffers(func)}
        for values, wanted in zip(self.samples, self.wanted, strict=True):
            plain, inputs = self.inputs_at(func, values)
            logical = {p.name: _argument(plain, p, inputs[p.name]) for p in plain.params if p.name not in written}
            given = [kernel.to_physical(name, array) if _lies_otherwise(plain, name) else array
                     for name, array in logical.items()]  # fmt: skip
            outputs = [b for b in plain.buffers if b.name in written]
            names = [b.name for b in outputs]
            made = [np.zeros(b.shape if _lies_otherwise(plain, b.name) else plain.logical_shape(b), np.float32)
                    for b in outputs]  # fmt: skip
            kernel(*given, out=made)
            for name, array in zip(names, made, strict=True):
                own = kernel.to_logical(name, array) if _lies_otherwise(plain, name) else array
                expected = {point: np.float32(value) for point, value in wanted[0][name].items()}
                if any(own[point] != value for point, value in expected.items()):
                    shown = ", ".join(f"{v.name} = {value}" for v, value in values.items())
                    problem = f"the kernel's `{name}` differs at {shown}"
                    raise Failure("wrong", self.story("ss.build(sch.func)", problem))

    def judge(self) -> None:
        func = self.sch.func
        try:
            verify(func)
            check_in_bounds(func)
        except ValueError as error:
            raise Failure("invalid", self.story("", f"{type(error).__name__}: {error}")) from error
        if parse(func.script()) != func:
            raise Failure("invalid", self.story("", "the script gives another program"))
        for values, wanted in zip(self.samples, self.wanted, strict=True):
            shown = ", ".join(f"{v.name} = {value}" for v, value in values.items())
            try:
                plain, results = self.at(func, values)
                verify(plain)
            except (Misuse, ValueError) as error:
                raise Failure("wrong", self.story("", f"at {shown}: {type(error).__name__}: {error}")) from error
            if results != wanted:
                raise Failure("wrong", self.story("", f"results differ at {shown}"))


def _lies_otherwise(func: PrimFunc, name: str) -> bool:
    """Whether a kernel is given an argument as it lies in memory, as it is unless that is the argument reshaped."""
    layout = func.layout_of(name)
    return layout is not None and not layout.is_in_place


def _argument(func: PrimFunc, param: Buffer | Var, given: Values | int | float) -> Any:
    """An argument of the machine as an array of the extents that it has without a layout."""
    if isinstance(param, Var) or not isinstance(given, dict):
        return given
    array = np.zeros(func.logical_shape(param), np.float32)
    for point, value in given.items():
        array[point] = value
    return array
