"""Rewrites that execution shows to be legal are accepted, nearly always."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from fuzz import forced
from fuzz.machine import Misuse, run
from fuzz.moves import PLANS, Chooser, move
from fuzz.programs import program
from fuzz.trial import data
from scale import scaled

from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc, written_buffers
from stridesmith.space.errors import ScheduleError
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.schedule import Schedule
from stridesmith.space.tree import find_loop

ENOUGH = 0.8
POISONS = (math.nan, 1e30)


def same_results(func: PrimFunc, other: PrimFunc, seed: int) -> bool:
    """Whether `other` computes what `func` does, on three draws of data, under both poisons."""
    outputs = {b.name for b in written_buffers(func)}
    if outputs != {b.name for b in written_buffers(other)}:
        return False
    shapes = {b.name: func.logical_shape(b) for b in func.buffers}
    for draw in range(3):
        rng = random.Random(seed * 3 + draw)
        inputs = {p.name: data(rng, p, shapes.get(p.name, ())) for p in func.params if p.name not in outputs}
        try:
            expected = run(func, inputs, POISONS[0], seed)
            if any(run(other, inputs, poison, seed + draw) != expected for poison in POISONS):
                return False
        except Misuse:
            return False
    return True


def attempts(func: PrimFunc, rng: random.Random) -> Iterable[tuple[str, tuple[str, ...], list[PrimFunc]]]:
    """Primitive calls, and what each would make of the program if nobody asked."""
    chooser = Chooser(func, rng)
    block = rng.choice(chooser.leaves)
    yield "remove_branching_through_overcompute", (block,), list(forced.without_condition(func, block))
    if "remove_no_op" in PRIMITIVES:
        yield "remove_no_op", (block,), list(forced.without_store(func, block))
    if not chooser.loops:
        return
    loop = rng.choice(chooser.loops)
    kind = rng.choice(["parallel", "vectorized"])
    yield ("parallel" if kind == "parallel" else "vectorize"), (loop,), [forced.concurrent(func, loop, kind)]
    inner = find_loop(func, loop).body
    if isinstance(inner, For):
        swapped = forced.swapped(func, loop, inner.var.name)
        yield "reorder", (inner.var.name, loop), [swapped] if swapped is not None else []
    if "merge_adjacent_loops" in PRIMITIVES and len(chooser.loops) > 1:
        pairs = list(zip(chooser.loops, chooser.loops[1:], strict=False))
        for first, second in pairs:
            merged = forced.merged(func, first, second)
            if merged is not None:
                yield "merge_adjacent_loops", (first, second), [merged]


def survey(seeds: Iterable[int], report: Callable[[str], None]) -> dict[str, tuple[int, int]]:
    """For each primitive, how many legal rewrites were accepted, of how many."""
    accepted: Counter[str] = Counter()
    legal: Counter[str] = Counter()
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for seed in seeds:
        rng = random.Random(seed)
        sch = Schedule(parse(program(rng)))
        prepare(sch, rng)
        for name, args, others in attempts(sch.func, rng):
            if not any(same_results(sch.func, other, seed) for other in others):
                continue
            legal[name] += 1
            try:
                getattr(Schedule(sch.func), name)(*args)
                accepted[name] += 1
            except ScheduleError as error:
                reasons[name][str(error)] += 1
    for name in legal:
        report(f"{name}: {accepted[name]} of {legal[name]} legal rewrites accepted")
        for text, count in reasons[name].most_common(8):
            report(f"    {count} refused: {text}")
    return {name: (accepted[name], legal[name]) for name in legal}


def prepare(sch: Schedule, rng: random.Random) -> None:
    """A plan without its last step, and a few random moves: programs in the middle of their schedule."""
    if rng.random() < 0.7:
        for name, args, options in rng.choice(PLANS)(sch, rng):
            if name != "remove_branching_through_overcompute":
                attempt(sch, name, args, options)
    for _ in range(rng.randint(0, 2)):
        attempt(sch, *move(sch, rng))


def attempt(sch: Schedule, name: str, args: tuple[object, ...], options: dict[str, object]) -> None:
    if name in PRIMITIVES:
        try:
            getattr(sch, name)(*args, **options)
        except ScheduleError:
            return


def test_legal_rewrites_are_accepted() -> None:
    """At least four fifths of the rewrites that exhaustive execution shows to be legal are accepted."""
    found = survey(range(scaled(80)), print)
    for name, (accepted, legal) in found.items():
        assert accepted >= ENOUGH * legal or legal < 10, f"{name}: {accepted} of {legal}"
    assert sum(legal for _, legal in found.values()) > 50
