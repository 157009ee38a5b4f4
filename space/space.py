"""The design space of a program on a target: every sketch that the rules give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any

from ..ir.stmt import PrimFunc
from ..ir.target import Target
from . import anatomy
from .schedule import Schedule
from .sketch import Sketch
from .structure import Structure, open_decisions, structures

SPACE_VERSION = 1
MAX_SKETCHES = 64


@dataclass(frozen=True)
class Space:
    """Sketches, in a fixed order; `version` says by which rules they were made."""

    func: PrimFunc = field(repr=False)
    target: Target = field(repr=False)
    interface: tuple[tuple[str, str], ...]
    sketches: tuple[Sketch, ...]
    version: int = SPACE_VERSION

    @property
    def size(self) -> int:
        """The number of candidates, impossible combinations included."""
        total = 0
        for sketch in self.sketches:
            count = 1
            for item in sketch.decisions:
                count *= len(item)
            total += count
        return total

    def describe(self) -> dict[str, Any]:
        """The space as data, for `tune show --space`."""
        kinds: dict[str, int] = {}
        for sketch in self.sketches:
            for item in sketch.decisions:
                kinds[item.kind] = kinds.get(item.kind, 0) + 1
        return {
            "version": self.version,
            "size": self.size,
            "sketch_count": len(self.sketches),
            "decisions_by_kind": kinds,
            "sketches": [s.describe() for s in self.sketches],
        }


def generate(func: PrimFunc, target: Target, interface: Mapping[str, str] | None = None) -> Space:
    """The design space of `func` on `target`.

    `interface` says for each parameter who may choose its layout: ``fixed`` (the
    default), ``constant`` or ``free``.  The same program gives the same space, also
    when its blocks, buffers and variables have other names.
    """
    return _generate(func, target, tuple(sorted((interface or {}).items())))


@lru_cache(maxsize=8)
def _generate(func: PrimFunc, target: Target, interface: tuple[tuple[str, str], ...]) -> Space:
    schedule = Schedule(func)
    original = schedule.func
    inlined = _inline_chains(schedule)
    found = anatomy.anchors(schedule.func, dict(interface))
    anchors = tuple(a for a in found if structures(a, target))
    options = [structures(anchor, target) for anchor in anchors]
    sketches = []
    for combination in list(product(*options))[:MAX_SKETCHES] if anchors else [()]:
        name = _name(anchors, combination)
        parts = tuple(
            open_decisions(schedule.func, anchor, structure, target, f"{name}/{anchor.name}")
            for anchor, structure in zip(anchors, combination, strict=True)
        )
        sketches.append(Sketch(name, original, target, parts, tuple(inlined)))
    return Space(original, target, interface, tuple(sketches))


def _inline_chains(schedule: Schedule) -> list[str]:
    """Inline element-wise blocks into element-wise readers until none is left."""
    inlined: list[str] = []
    while True:
        found = anatomy.inline_candidates(schedule.func)
        if not found:
            return inlined
        schedule.compute_inline(found[0])
        inlined.append(found[0])


def _name(anchors: tuple[anatomy.Anchor, ...], combination: tuple[Structure, ...]) -> str:
    """The sketch's name: the structure of each anchor."""
    if len(anchors) == 1:
        return combination[0].label(anchors[0])
    return ";".join(f"{a.name}:{s.label(a)}" for a, s in zip(anchors, combination, strict=True)) or "plain"
