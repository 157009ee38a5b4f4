"""Goldens: examples as readable text, with every program on the way.

A golden is a file ``goldens/<rfc>/<name>.golden``::

    Never write to padding                      a title, the source, remarks on errata

    == start
    @T.prim_func                                the first program: a function or a module
    def func(A: T.Buffer((14,), "int32")): ...

    == sch.transform_layout("root", "A", lambda i: [i // 4, i % 4])
    @T.prim_func                                the program that the step must give
    ...

    == refused sch.remove_branching_through_overcompute("root")
    whose pad_value is None                     words of the refusal; the program stays

A step is Python, in one or more lines that start with ``== ``, over ``sch`` (the schedule),
``ss``, ``T``, ``IndexMap``, ``AXIS_SEPARATOR``, ``undef``, and ``run(name, ...)``, which
replaces the program by ``ss.transform.name(program, ...)``; names that a step binds stay
bound.  A step without a program below it is checked together with the next one.

`check` compares each program with `equal.same_program` and runs it with
`execute.logical_results`, whose outcome must be that of the first program, bit by bit.
A golden whose programs may not be run says so with a line ``execute: no``, and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldens.equal import Different, same_program
from goldens.execute import same_results

import stridesmith as ss
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Module, PrimFunc

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Step:
    """`code` gives the program `expected`, or is refused with the words `refusal`."""

    code: str
    expected: PrimFunc | Module | None = None
    refusal: str = ""


@dataclass(frozen=True)
class Golden:
    """The first program, and the steps from it."""

    title: str
    start: PrimFunc | Module
    steps: tuple[Step, ...]
    executes: bool = True


def goldens(folder: str = "") -> list[Path]:
    """Every golden below a folder."""
    return sorted((FOLDER / folder).rglob("*.golden"))


def load(path: Path) -> Golden:
    """Read a golden.  Raises ValueError for a file that is not one."""
    preface, *sections = list(_sections(path.read_text(encoding="utf-8")))
    if not sections or sections[0][0] != "start":
        raise ValueError(f"{path.name} does not begin with `== start`")
    steps = []
    for head, body in sections[1:]:
        if head.startswith("refused "):
            steps.append(Step(head.removeprefix("refused "), refusal=" ".join(body.split())))
        else:
            steps.append(Step(head, parse(body) if body.strip() else None))
    title = preface[1].strip().splitlines()[0]
    return Golden(title, parse(sections[0][1]), tuple(steps), "execute: no" not in preface[1])


def _sections(text: str) -> Iterator[tuple[str, str]]:
    head: list[str] = []
    body: list[str] = []
    for line in text.splitlines():
        if not line.startswith("== "):
            body.append(line)
        elif head and not any(part.strip() for part in body):
            head.append(line.removeprefix("== "))
            body = []
        else:
            yield "\n".join(head), "\n".join(body)
            head, body = [line.removeprefix("== ")], []
    yield "\n".join(head), "\n".join(body)


class Run:
    """A golden on its way: the schedule, and the names that steps have bound."""

    def __init__(self, golden: Golden) -> None:
        self.names: dict[str, Any] = {
            "ss": ss, "T": ss.T, "IndexMap": ss.IndexMap, "AXIS_SEPARATOR": ss.AXIS_SEPARATOR,
            "undef": ss.undef, "run": self.transform, "sch": ss.Schedule(golden.start),
        }  # fmt: skip

    @property
    def program(self) -> PrimFunc | Module:
        """The module, or the function where there is only one."""
        schedule = self.names["sch"]
        module = getattr(schedule, "module", None)
        if isinstance(module, Module) and len(module.functions) > 1:
            return module
        func: PrimFunc = schedule.func
        return func

    def transform(self, name: str, *args: Any, **options: Any) -> None:
        """Apply the pass `name` to every function."""
        rewrite = getattr(ss.transform, name)
        program = self.program
        if isinstance(program, Module):
            program = Module(tuple(rewrite(f, *args, **options) for f in program.functions))
        else:
            program = rewrite(program, *args, **options)
        self.names["sch"] = ss.Schedule(program)

    def do(self, code: str) -> None:
        """Run one step."""
        exec(compile(code, "<golden>", "exec"), self.names)


def check(path: Path) -> None:
    """Run the golden: every program is the expected one, every refusal is met, all compute the same."""
    golden = load(path)
    run = Run(golden)
    programs = [run.program]
    for step in golden.steps:
        if step.refusal:
            _refused(run, step)
            continue
        run.do(step.code)
        if step.expected is None:
            continue
        try:
            same_program(run.program, step.expected)
        except Different as error:
            script = run.program.script()
            raise AssertionError(f"{path.name}: after `{step.code}`: {error}\nThe program is\n{script}") from None
        programs.append(run.program)
    if golden.executes:
        for program in programs[1:]:
            same_results(programs[0], program)


def _refused(run: Run, step: Step) -> None:
    before = run.program
    try:
        run.do(step.code)
    except (ss.ScheduleError, ValueError) as error:
        assert step.refusal in " ".join(str(error).split()), f"`{step.code}` is refused with other words: {error}"
    else:
        raise AssertionError(f"`{step.code}` is accepted and gives\n{run.program.script()}")
    assert run.program == before
