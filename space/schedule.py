"""The schedule: a program, and the trace of what was done to it.

A trace is the list of instructions that were applied, in concrete values.  It is JSON:
``[["split", {"loop": "i", "factors": [null, 6]}], ...]``.  Names in it are handles of the program at that step, and
fresh names are deterministic, so a trace replays on an equal program without anything else.

An instruction that draws a decision has it as an argument, and a third item: the names of what it drew.  Where later
instructions used that, their arguments say ``{"ref": "v0"}``, so that another decision reaches them too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from ..ir.markup import program
from ..ir.script.programs import Program
from ..ir.stmt import Block, For, Module, PrimFunc
from . import primitives
from .arguments import chosen, encode, encode_argument, refs, resolve
from .errors import ScheduleError
from .handles import child_blocks, consumers_of, find_block_or_loop, output_blocks, producers_of
from .instruction import Instruction
from .primitive import PRIMITIVES, Primitive, find_primitive
from .trace_text import calls_of
from .tree import find_block, leaf_blocks, loops_above, rename_duplicates
from .wrappers import WRAPPERS, wrapper_signature

__all__ = ["Schedule", "ScheduleError", "Trace", "primitives"]

MAX_INSTRUCTIONS = 10_000
MAX_DRAWS = 64

ODD_ARGUMENTS = (RecursionError, OverflowError, TypeError, AssertionError)
"""What arguments of any origin may lead to in a primitive, where their types are right and no condition asks."""


class _Methods(type):
    """The class of `Schedule`: its primitives and wrappers are attributes of the class as well, as methods are."""

    def __getattr__(cls, name: str) -> Callable[..., Any]:
        if name not in WRAPPERS and name not in PRIMITIVES:
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")

        def method(self: Schedule, *args: Any, **kwargs: Any) -> Any:
            return getattr(self, name)(*args, **kwargs)

        passed = signature_of(name)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        rewrite = WRAPPERS[name] if name in WRAPPERS else PRIMITIVES[name].rewrite
        return _documented(method, rewrite, passed.replace(parameters=[own, *passed.parameters.values()]))


class Schedule(metaclass=_Methods):
    """Applies primitives to a function and records them.

    Every primitive of `space.primitives` is a method with the primitive's signature
    and documentation.  Blocks, loops and buffers are given and returned by name.
    A refused primitive raises `ScheduleError` and changes nothing.  Of a module, primitives
    act on one function, ``main`` or the first, until `work_on` names another; functions share
    a buffer where their parameters have one name, and its layout changes in all of them.  Primitives that
    draw a decision (``sample_...``) draw from `seed`, and the trace keeps what they drew.  `subject` is what the
    schedule was made of.
    """

    def __init__(self, func: Program, *, seed: int = 0) -> None:
        subject = func
        if not isinstance(func, PrimFunc | Module):
            from .workloads.taking import func_of

            func = func_of(func, "Schedule")
        functions = func.functions if isinstance(func, Module) else (func,)
        if not functions:
            raise ScheduleError("a schedule needs a function, but the module has none")
        self.subject: Program = subject
        self.module = Module(tuple(map(rename_duplicates, functions)))
        found = [f.name for f in functions]
        self.current = "main" if "main" in found else found[0]
        self.trace = Trace()
        self._random = Random(seed)
        self._drawn: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in WRAPPERS:

            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return self._wrapped(name, *args, **kwargs)

            return _documented(wrapper, WRAPPERS[name], signature_of(name))
        primitive = PRIMITIVES.get(name)
        if primitive is None:
            raise AttributeError(f"there is no primitive `{name}`; there are {', '.join(sorted(PRIMITIVES))}")

        def method(*args: Any, **kwargs: Any) -> Any:
            return self.apply(name, primitive.bind_to(self.func, *args, **kwargs))

        return _documented(method, primitive.rewrite, primitive.signature)

    def _wrapped(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Run a wrapper; if a step is refused, no step has been taken.

        Raises ScheduleError with the wrapper's call, and the step that was refused.
        """
        before = dict(vars(self))
        try:
            bound = inspect.signature(WRAPPERS[name]).bind(self, *args, **kwargs)
        except TypeError as error:
            raise ScheduleError("{error}", error=str(error)).at(name, {}) from None
        arguments = {key: encode_argument(key, value) for key, value in list(bound.arguments.items())[1:]}
        try:
            return WRAPPERS[name](*bound.args, **bound.kwargs)
        except ScheduleError as error:
            vars(self).update(before)
            raise ScheduleError("{step}", step=error).at(name, arguments) from error

    def __repr__(self) -> str:
        """The function, and how many instructions were applied."""
        count = len(self.trace)
        return f"<Schedule of {self.current}: {count} instruction{'' if count == 1 else 's'}>"

    def _repr_html_(self) -> str:
        return program(self.func.script())

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *PRIMITIVES, *WRAPPERS]

    def apply(self, name: str, arguments: Mapping[str, Any], results: Sequence[str] = ()) -> Any:
        """Apply the primitive `name` with arguments as JSON values, and record it.

        `results` are the names for what it draws; without them they are chosen.
        """
        primitive = find_primitive(name)
        values = {key: resolve(value, self._drawn) for key, value in arguments.items()}
        if primitive.draw is not None:
            return self._draw(primitive, arguments, values, results)
        self.module, self.current, result = primitive.apply_in(self.module, self.current, values)
        self.trace = self.trace.then(Instruction(name, dict(arguments)))
        return tuple(result) if isinstance(result, list) else result

    def _draw(
        self, primitive: Primitive, arguments: Mapping[str, Any], values: Mapping[str, Any], results: Sequence[str]
    ) -> Any:
        """Apply a sampling primitive and bind its results to names for later instructions."""
        decided = primitive.decided(self.func, values, self._random)
        _, result = primitive.apply(self.func, decided)
        several = isinstance(result, list)
        values_drawn = result if several else [result]
        names = tuple(results) or tuple(f"v{len(self._drawn) + k}" for k in range(len(values_drawn)))
        if len(names) != len(values_drawn) or any(n in self._drawn for n in names):
            raise ScheduleError(
                "{count} values are drawn, but the names are {names}, which must be as many and not used before",
                count=len(values_drawn), names=list(names),
            ).at(primitive.name, dict(values))  # fmt: skip
        self._drawn = {**self._drawn, **dict(zip(names, values_drawn, strict=True))}
        self.trace = self.trace.then(Instruction(primitive.name, {**arguments, "decision": decided["decision"]}, names))
        found = tuple(map(chosen, values_drawn, names))
        return found if several else found[0]

    def copy(self, seed: int | None = None) -> Schedule:
        """A schedule of its own in the same state; with `seed` it goes on to draw from that."""
        other = Schedule(self.module)
        other.module, other.current, other.trace = self.module, self.current, self.trace
        other._drawn = self._drawn
        other._random.setstate(self._random.getstate()) if seed is None else other._random.seed(seed)
        return other

    def seed(self, seed: int) -> None:
        """Draw from `seed` from here on."""
        self._random.seed(seed)

    def fork_seed(self) -> int:
        """A seed for another schedule, drawn from this one's."""
        return self._random.randrange(2**31)

    # ------------------------------------------------------------ what there is

    @property
    def func(self) -> PrimFunc:
        """The function that is worked on."""
        return self.module[self.current]

    @property
    def mod(self) -> dict[str, PrimFunc]:
        """The functions by name; the one that is worked on is ``main``, too, where none has this name."""
        return {"main": self.func, **{f.name: f for f in self.module.functions}}

    def get(self, name: str) -> Block | For:
        """The block or loop of this name as it is in the program.  Raises ScheduleError if there is none."""
        return find_block_or_loop(self.func, name)

    def get_block(self, name: str, func_name: str | None = None) -> str:
        """The block's handle, its name.  Raises ScheduleError if there is none, or `func_name` is not worked on."""
        if func_name not in (None, self.current) and self.mod.get(str(func_name)) is not self.func:
            raise ScheduleError("function `{asked}` is not the one that is worked on, `{current}`",
                                hint="call work_on first", asked=func_name, current=self.current)  # fmt: skip
        return find_block(self.func, name).name

    get_sblock = get_block

    def get_loops(self, block: str) -> list[str]:
        """The loops around a block, outermost first, up to the block around it."""
        return [loop.var.name for loop in loops_above(self.func, find_block(self.func, block))]

    def get_blocks(self) -> list[str]:
        """The innermost blocks in program order."""
        return [b.name for b in leaf_blocks(self.func.body)]

    def get_child_blocks(self, block_or_loop: str) -> list[str]:
        """The outermost blocks inside a block or below a loop, in program order."""
        return child_blocks(self.func, block_or_loop)

    get_child_sblocks = get_child_blocks

    def get_producers(self, block: str) -> list[str]:
        """The blocks of the same scope that write what `block` reads, in program order."""
        return producers_of(self.func, block)

    def get_consumers(self, block: str) -> list[str]:
        """The blocks of the same scope that read what `block` writes, in program order."""
        return consumers_of(self.func, block)

    def get_output_blocks(self, scope_block: str = "root") -> list[str]:
        """The blocks of a scope that write something that was not allocated in it, in program order."""
        return output_blocks(self.func, scope_block)

    def show(self) -> None:
        """Print the program, and below it, as comments, the trace that led to it."""
        print((self.module if len(self.module.functions) > 1 else self.func).script())
        for line in self.trace.script().splitlines():
            print(f"# {line}")


@dataclass(frozen=True)
class Trace:
    """Instructions in order."""

    instructions: tuple[Instruction, ...] = ()

    def __len__(self) -> int:
        return len(self.instructions)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __repr__(self) -> str:
        """How many instructions there are."""
        return f"<Trace: {len(self)} instruction{'' if len(self) == 1 else 's'}>"

    def __str__(self) -> str:
        """The lines of `script`, which ``stridesmith --from FILE`` reads."""
        return self.script()

    def then(self, instruction: Instruction) -> Trace:
        return Trace((*self.instructions, instruction))

    # ------------------------------------------------------------ forms

    def to_json(self) -> list[list[Any]]:
        return [[i.name, i.arguments, *([list(i.results)] if i.results else [])] for i in self.instructions]

    @staticmethod
    def from_json(data: Any) -> Trace:
        """The trace that `to_json` gave.

        Raises ScheduleError for anything that is not a list of known primitives with
        arguments of their signature; nothing in it is evaluated.
        """
        if not isinstance(data, list) or len(data) > MAX_INSTRUCTIONS:
            raise ScheduleError("a trace is a list of at most {most} instructions", most=MAX_INSTRUCTIONS)
        found = []
        for number, item in enumerate(data, 1):
            place = f"instruction {number} of {len(data)}"
            if not isinstance(item, (list, tuple)) or len(item) not in (2, 3):
                raise ScheduleError("an instruction is [name, arguments], but got {item!r}",
                                    item=_Short(item)).within(place)  # fmt: skip
            try:
                found.append(Instruction.checked(*item))
            except ScheduleError as error:
                raise error.within(place) from None
        return Trace(tuple(found))

    def script(self) -> str:
        """The trace as Python text over a schedule ``sch``."""
        return "\n".join(i.script() for i in self.instructions)

    @staticmethod
    def from_script(text: str) -> Trace:
        """The trace that `script` gave, read through `ast` and never run.

        Raises ScheduleError, with the line, for anything but calls of primitives with literal arguments.
        """
        found: list[Instruction] = []
        drawn: set[str] = set()
        for line, results, name, positional, named in calls_of(text, drawn):
            try:
                arguments = find_primitive(name).bind(*positional, **named)
                found.append(Instruction.checked(name, arguments, results))
            except ScheduleError as error:
                raise error.within(f"line {line}") from None
            drawn.update(results)
        return Trace(tuple(found))

    # ------------------------------------------------------------ replay

    def replay(self, func: PrimFunc, *, seed: int = 0) -> Schedule:
        """Apply every instruction to `func`; decisions that are missing are drawn from `seed`.

        Raises ScheduleError where one does not fit: which instruction, which condition, what was expected.
        """
        schedule = Schedule(func, seed=seed)
        for number, instruction in enumerate(self.instructions, 1):
            try:
                schedule.apply(instruction.name, instruction.arguments, instruction.results)
            except ScheduleError as error:
                raise error.within(f"instruction {number} of {len(self)}") from None
            except ODD_ARGUMENTS as error:
                raise _failed(instruction, error).within(f"instruction {number} of {len(self)}") from error
        return schedule

    def simplified(self, func: PrimFunc | None = None) -> Trace:
        """The trace without dead instructions.

        An instruction is dead if nobody uses what it drew and it does not change the
        program: without `func` only what draws is known to, with it each one is tried.
        """
        kept: list[Instruction] = []
        used: set[str] = set()
        active = self._active(func)
        for instruction, acts in zip(reversed(self.instructions), reversed(active), strict=True):
            if acts or used.intersection(instruction.results):
                kept.append(instruction)
                used |= refs(instruction.arguments)
        return Trace(tuple(reversed(kept)))

    def _active(self, func: PrimFunc | None) -> list[bool]:
        """For each instruction whether it changes the program."""
        if func is None:
            return [not i.draws for i in self.instructions]
        schedule = Schedule(func)
        found = []
        for instruction in self.instructions:
            before = schedule.func
            schedule.apply(instruction.name, instruction.arguments, instruction.results)
            found.append(schedule.func != before)
        return found

    # ------------------------------------------------------------ decisions

    @property
    def decisions(self) -> dict[int, Any]:
        """The decision of each instruction that draws, by its number from 0."""
        return {n: i.arguments.get("decision") for n, i in enumerate(self.instructions) if i.draws}

    def with_decisions(self, decisions: Mapping[int, Any]) -> Trace:
        """The trace with other decisions; None leaves one to be drawn.  Raises ScheduleError for a wrong number."""
        wrong = [n for n in decisions if n not in self.decisions]
        if wrong:
            raise ScheduleError("instruction {number} has no decision; those that have are {known}",
                                number=wrong[0], known=list(self.decisions))  # fmt: skip
        parts = [
            replace(i, arguments={**i.arguments, "decision": encode(decisions[n])}) if n in decisions else i
            for n, i in enumerate(self.instructions)
        ]
        return Trace(tuple(parts))

    def mutated(self, func: PrimFunc, seed: int) -> Trace:
        """The trace with one decision, chosen by `seed`, drawn again until it is another and the trace fits `func`.

        Raises ScheduleError where no such decision was found.
        """
        random = Random(seed)
        order = list(self.decisions)
        random.shuffle(order)
        for number in order:
            for _ in range(MAX_DRAWS):
                attempt = self.with_decisions({number: None})
                try:
                    result = attempt.replay(func, seed=random.randrange(2**32)).trace
                except ScheduleError:
                    continue
                if result.decisions[number] != self.decisions[number]:
                    return result
        raise ScheduleError("no decision of the trace has another value that fits the program")


def signature_of(name: str) -> inspect.Signature:
    """What one passes to a primitive or a wrapper of a schedule."""
    return PRIMITIVES[name].signature if name in PRIMITIVES else wrapper_signature(name)


def _documented(
    method: Callable[..., Any], described: Callable[..., Any], passed: inspect.Signature
) -> Callable[..., Any]:
    """`method` with the name and the documentation of another function, and the signature of what one passes."""
    functools.update_wrapper(method, described)
    method.__signature__ = passed  # type: ignore[attr-defined]
    return method


def _failed(instruction: Instruction, error: BaseException) -> ScheduleError:
    reason = ScheduleError("it failed with {kind}: {error}", kind=type(error).__name__, error=str(error)[:200])
    return reason.at(instruction.name, instruction.arguments)


class _Short:
    """A value of any origin, cut to a readable length."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)[:80]
