"""Rules: what turns a program into sketches.

The generator is a list of rules.  A rule looks at a program (its blocks, what they touch,
along which axes) and returns sketches; `space.generate` takes those of every rule together.
The shipped ones are `tiling`, which applies all `techniques` to the anchors of a program, `joined`,
which does so with vectors along two short axes (see `joined`), `parted`, which does so
when long reductions have been cut in parts (see `techniques.shared_reductions`), `chunked`, which
runs all stages of a chunk of rows together (see `techniques.chunks`), `stepped`, which tiles what the steps of a
recurrence do (see `techniques.steps`), and `general`.
A rule of a user's own needs no more than `scripted`: a schedule as a function of named choices.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, TypeVar

from ...ir.caches import cached
from ...ir.expr import as_int
from ...ir.script.programs import Program
from ...ir.stmt import PrimFunc
from ...ir.target import Target
from ..interface import PACKED_AHEAD
from ..schedule import Schedule
from ..tree import leaf_blocks
from ..workloads.taking import func_of
from .apply import open_decisions, prepared
from .decision import Decision, decision
from .general import Form, forms_of, nests_of, schedule_left_over, schedule_nest
from .joined import along_joined_axes, with_joined_axes
from .nests import as_nests, make_boxes
from .program import Anchor, anchors_in_steps, inline_chains
from .program import anchors as anchors_of
from .sketch import Sketch
from .structure import Structure, structures, with_long_vectors
from .techniques.chunks import chunk_sizes, in_chunks, of_a_chunk, shared_rows, structures_of_a_chunk
from .techniques.digits import DIGITS
from .techniques.shared_reductions import along_results, in_parts, shared_reductions
from .techniques.steps import independent_loop, schedule_elements, structures_in_steps

MAX_SKETCHES = 64
MAX_PARTED = 16
"""Sketches for each number of parts."""
CUTTING = ("transform_block_layout", "restrict_reduction")
"""The steps of preparation that leave other axes than the program has."""

_Some = TypeVar("_Some")
Interface = Mapping[str, str]
Rule = Callable[[PrimFunc, Target, Interface], Iterable[Sketch]]
"""``rule(func, target, interface)``; names of loops and blocks in `func` are handles of `Schedule`."""


@dataclass(frozen=True)
class ScriptedSketch(Sketch):
    """A schedule as a function of named choices: ``script(sch, **values)``."""

    choices: tuple[Decision, ...] = ()
    script: Callable[..., object] = field(repr=False, default=lambda sch: None)

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """The choices, in the order in which they were named."""
        return self.choices

    def schedule(self, choice: Sequence[int]) -> Schedule:
        """The schedule of one candidate.  Raises ScheduleError where a primitive refuses."""
        self.check_length(choice)
        sch = Schedule(self.func)
        values = {d.name.rsplit("/", 1)[-1]: d.values[int(c)] for d, c in zip(self.choices, choice, strict=True)}
        self.script(sch, **values)
        return sch


def scripted(
    name: str, func: Program, target: Target, script: Callable[..., object], **choices: Sequence[Any]
) -> ScriptedSketch:
    """A sketch called `name` that applies ``script(sch, **values)``, with a value of each of `choices`.

    The search sees numbers as they are, and other values by their position.
    """
    func = func_of(func, "scripted")
    found = []
    for key, values in choices.items():
        plain = all(isinstance(v, (int, float)) for v in values)
        table = {f"choice:{key}": values if plain else range(len(values))}
        found.append(decision(f"{name}/{key}", "choice", tuple(values), [str(v) for v in values], table))
    return ScriptedSketch(name, func, target, (), choices=tuple(found), script=script)


def tiling(func: PrimFunc, target: Target, interface: Interface) -> tuple[Sketch, ...]:
    """Register tiles, layouts, padding and boundaries of every anchor, jointly."""
    if _has_steps(func, target, interface):
        return ()
    schedule, is_cut = _normal(func, _constants(interface))
    found = anchors_of(schedule.func, dict(interface))
    anchors = tuple(a for a in found if structures(a, target))
    options = [structures(anchor, target) for anchor in anchors]
    if is_cut:
        options = [with_long_vectors(a, tuple(s), target) for a, s in zip(anchors, options, strict=True)]
    start = schedule.copy()
    if anchors:
        schedule_left_over(start, anchors, target)
    return tuple(_sketches(func, start, anchors, options, target))


def joined(func: PrimFunc, target: Target, interface: Interface) -> Iterator[Sketch]:
    """Sketches with vectors along two axes, the inner one shorter than a vector (see `joined`).

    Kernels of a CPU pick such lanes out of a vector; those of OpenCL do so with lanes of one stride alone.
    """
    written = with_joined_axes(_with_chains_inlined(func), target) if target.kind == "cpu" else None
    if written is None:
        return
    start = prepared(written, _constants(interface), without=[DIGITS])
    anchors = tuple(a for a in anchors_of(start.func, dict(interface)) if structures(a, target))
    options = [along_joined_axes(a, structures(a, target), target) for a in anchors]
    if anchors and all(operand.is_linear for a in anchors for operand in a.operands):
        schedule_left_over(start, anchors, target)
        yield from _sketches(func, start, anchors, options, target, "joined;", most=MAX_PARTED)


def parted(func: PrimFunc, target: Target, interface: Interface) -> Iterator[Sketch]:
    """Sketches in which threads share reductions, for each number of parts (`techniques.shared_reductions`)."""
    schedule, _ = _normal(func, _constants(interface))
    known = [block.name for block in leaf_blocks(schedule.func.body)]
    whole = anchors_of(schedule.func, dict(interface))
    for count, cuts in shared_reductions(whole, target):
        start = in_parts(schedule, whole, cuts)
        if start is None:
            continue
        anchors = tuple(a for a in anchors_of(start.func, dict(interface)) if structures(a, target))
        options = [along_results(a, structures(a, target), known) for a in anchors]
        schedule_left_over(start, anchors, target)
        most = MAX_PARTED // 2 if target.warp > 1 else MAX_PARTED  # there, the second stage has little to decide
        yield from _sketches(func, start, anchors, options, target, f"parts={count};", most=most)


def _constants(interface: Interface) -> frozenset[str]:
    return frozenset(name for name, who in interface.items() if who in PACKED_AHEAD)


@cached(64)
def _normal(func: PrimFunc, constants: frozenset[str]) -> tuple[Schedule, bool]:
    """The program as rules see it, and whether iterators were fused, cut or restricted for that."""
    written = _with_chains_inlined(func)
    normal = prepared(written, constants)
    return normal, any(step.name in CUTTING for step in normal.trace)


def _has_steps(func: PrimFunc, target: Target, interface: Interface) -> bool:
    """Whether a program is a recurrence whose sums `stepped` tiles; nothing else is made of it then."""
    return target.kind == "cpu" and bool(anchors_in_steps(schedule_start(func), dict(interface)))


def stepped(func: PrimFunc, target: Target, interface: Interface) -> Iterator[Sketch]:
    """What a recurrence does in each of its steps, tiled like a program of its own (see `techniques.steps`).

    Threads share the sums of a step, or the loops around the steps that are independent.
    """
    start = Schedule(func)
    found = anchors_in_steps(start.func, dict(interface)) if target.kind == "cpu" else ()
    options = [structures_in_steps(anchor, target) for anchor in found]
    if not found or not all(options):
        return
    schedule_elements(start, target)
    yield from _sketches(func, start, found, options, target, "steps;")
    if loop := independent_loop(start.func):
        apart = as_int(loop.extent), (loop.var.name,)
        yield from _sketches(func, start, found, options, target, "steps apart;", *apart)


def chunked(func: PrimFunc, target: Target, interface: Interface) -> tuple[Sketch, ...]:
    """Sketches that run all stages of a chunk of rows before the next one, for each size (see `techniques.chunks`)."""
    schedule, is_cut = _normal(func, _constants(interface))
    found = anchors_of(schedule.func, dict(interface))
    sketches: list[Sketch] = []
    for number, rows in enumerate(shared_rows(found, schedule.func, target)):
        name = f"rows:{found[0].axes[rows.axes[0]].name}" if number else "rows"
        for size in chunk_sizes(rows, found, target):
            split = in_chunks(schedule, found, rows, size, target)
            anchors = tuple(of_a_chunk(a, axis, size) for a, axis in zip(found, rows.axes, strict=True))
            options = [structures_of_a_chunk(a, n, rows, target) for a, n in zip(anchors, rows.axes, strict=True)]
            if split is None or not all(options):
                continue
            if is_cut:
                options = [with_long_vectors(a, s, target) for a, s in zip(anchors, options, strict=True)]
            start, loops = split
            count = -(-rows.extent // size)
            sketches += _sketches(func, start, anchors, options, target, f"{name}={size};", count, loops)
    return tuple(sketches)


def _sketches(
    func: PrimFunc,
    start: Schedule,
    anchors: tuple[Anchor, ...],
    options: Sequence[Sequence[Structure]],
    target: Target,
    prefix: str = "",
    chunks: int = 0,
    loops: tuple[str, ...] = (),
    most: int = MAX_SKETCHES,
) -> Iterator[Sketch]:
    """A sketch for each combination of the anchors' structures, all of which begin with `start`.

    There is none for a combination that leaves a decision without alternatives, as the vectors of a narrow part of a
    concatenation are, which may not reach into the next part.
    """
    for combination in combinations(options, most):
        name = prefix + _name(anchors, combination)
        parts = tuple(
            open_decisions(start.func, anchor, structure, target, f"{name}/{anchor.name}", chunks)
            for anchor, structure in zip(anchors, combination, strict=True)
        )
        if all(len(decision) for part in parts for decision in part.decisions):
            yield Sketch(name, schedule_start(func), target, parts, start, loops)


def combinations(options: Sequence[Sequence[_Some]], most: int = MAX_SKETCHES) -> list[tuple[_Some, ...]]:
    """One of each of `options`, in all ways; of more ways than `most` so many, in which each option occurs.

    Each option occurs as long as none of the sequences is longer than `most`.
    """
    if prod(map(len, options)) <= most:
        return list(product(*options))
    rng = random.Random(0)
    found = {tuple(some[k % len(some)] for some in options): None for k in range(min(most, max(map(len, options))))}
    while len(found) < most:
        found.setdefault(tuple(rng.choice(some) for some in options))
    return list(found)


def general(func: PrimFunc, target: Target, interface: Interface) -> Iterator[Sketch]:
    """A form of its own for every loop nest of a program in which the others find nothing (see `general`)."""
    if _has_steps(func, target, interface):
        return
    normal, _ = _normal(func, _constants(interface))
    if any(structures(a, target) for a in anchors_of(normal.func, dict(interface))):
        return
    schedule = Schedule(func)
    make_boxes(schedule)
    nests = ((f"n{k}", nest, forms_of(schedule, nest, target)) for k, nest in enumerate(nests_of(schedule.func)))
    found = {key: (nest, forms) for key, nest, forms in nests if forms}

    def script(sch: Schedule, **forms: Form) -> None:
        make_boxes(sch)
        for key, form in forms.items():
            schedule_nest(sch, found[key][0], form, target)

    if found:
        yield scripted("general", func, target, script, **{key: forms for key, (_, forms) in found.items()})


RULES: tuple[Rule, ...] = (tiling, joined, parted, chunked, stepped, general)
"""What `generate` uses unless it is told otherwise."""


def schedule_start(func: PrimFunc) -> PrimFunc:
    """`func` as schedules see it: every loop and block with a name of its own."""
    return Schedule(func).func


def _with_chains_inlined(func: PrimFunc) -> Schedule:
    """The program as `as_nests` has it, element-wise blocks inlined into element-wise readers until none is left."""
    schedule = as_nests(func)
    inline_chains(schedule)
    return schedule


def _name(anchors: tuple[Anchor, ...], combination: tuple[Structure, ...]) -> str:
    """The sketch's name: the structure of each anchor."""
    if len(anchors) == 1:
        return combination[0].label(anchors[0])
    return ";".join(f"{a.name}:{s.label(a)}" for a, s in zip(anchors, combination, strict=True)) or "plain"
