"""The design space of a program on a target: every sketch that the rules give."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.caches import cached
from ...ir.deadline import look
from ...ir.markup import table
from ...ir.script.programs import Program
from ...ir.stmt import PrimFunc
from ...ir.target import Target
from ..workloads.taking import func_of
from .nests import as_nests
from .rules import RULES, Rule, schedule_start
from .sketch import Sketch

SPACE_VERSION = 13
OF_CPU_DEVICES = 14
"""The version of spaces of the OpenCL devices that CPUs are, which add up panels as the CPU does from then on."""
OF_WARPS = 15
"""The version of spaces of devices that run work-items in step, whose groups are warps and whose tiles are small."""


@dataclass(frozen=True, repr=False)
class Space:
    """Sketches, in a fixed order; `version` says by which rules they were made."""

    func: PrimFunc = field(repr=False)
    target: Target = field(repr=False)
    interface: tuple[tuple[str, str], ...]
    sketches: tuple[Sketch, ...]
    version: int = SPACE_VERSION

    def __repr__(self) -> str:
        """The program, and how much there is to choose from."""
        return (
            f"<Space of {self.func.name} on {self.target.kind}: {len(self.sketches)} sketches, "
            f"{float(self.size):.3g} candidates>"
        )

    def _repr_html_(self) -> str:
        rows = [
            (number, sketch.name, len(sketch.decisions), f"{float(sketch.describe()['size']):.3g}")
            for number, sketch in enumerate(self.sketches, 1)
        ]
        title = f"Design space of {self.func.name} on {self.target.kind}: {float(self.size):.3g} candidates"
        return table(title, ("", "sketch", "decisions", "candidates"), rows)

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
        """The space as data, for `stridesmith show --space`."""
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


def generate(
    func: Program,
    target: Target,
    interface: Mapping[str, str] | None = None,
    rules: Sequence[Rule] | None = None,
) -> Space:
    """The design space of `func` on `target`.

    `interface` says for each parameter who may choose its layout: ``fixed`` (the default), ``constant``, ``streamed``
    (constant, and read from memory) or ``free``.  `rules` are those of `rules.RULES`, or a user's own beside or instead
    of them.  The same program gives the same space, also when its blocks, buffers and variables have other names.
    Raises ValueError for a rule that gives anything but sketches, each with a name of its own.
    """
    if not isinstance(target, Target):
        raise TypeError(f"`generate` takes a Target, as `ss.Target('cpu')` gives, but got {target!r}")
    func = func_of(func, "generate")
    return _generate(
        func, target, tuple(sorted((interface or {}).items())), RULES if rules is None else rule_list(rules)
    )


def rule_list(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules that were given.  Raises TypeError for what is no list of functions."""
    if not isinstance(rules, Sequence) or not all(map(callable, rules)):
        raise TypeError(f"`rules` is a list of functions, as `[*ss.RULES, mine]`, but got {rules!r}")
    return tuple(rules)


@cached(64)
def _generate(func: PrimFunc, target: Target, interface: tuple[tuple[str, str], ...], rules: tuple[Rule, ...]) -> Space:
    start = schedule_start(func)
    sketches: dict[str, Sketch] = {}
    for rule in rules:
        name = getattr(rule, "__name__", repr(rule))
        look()
        found = rule(start, target, dict(interface))
        if not isinstance(found, Iterable):
            raise ValueError(f"a rule returns a list of sketches, but `{name}` returned {found!r}")
        for sketch in found:
            look()
            if not isinstance(sketch, Sketch):
                raise ValueError(f"a rule gives sketches, but `{name}` gave a {type(sketch).__name__}")
            if sketch.name in sketches:
                raise ValueError(f"the rule `{name}` gives a second sketch called {sketch.name!r}; name it otherwise")
            sketches[sketch.name] = sketch
    in_turns = target.kind == "opencl" and target.execution.work_items_share_a_thread
    shipped = OF_CPU_DEVICES if in_turns else SPACE_VERSION
    if target.warp > 1:
        shipped = OF_WARPS
    version = shipped if rules == RULES else fingerprint(sketches.values())
    later = (s for sketch in sketches.values() for part in sketch.parts if (s := part.structure))
    if rules == RULES and (as_nests(start).trace or any(s.dot is not None or s.subgroup for s in later)):
        # These versions had none of them, and saw programs as they are written; other spaces stay what they were.
        version ^= fingerprint(sketches.values())
    return Space(start, target, interface, tuple(sketches.values()), version)


def fingerprint(sketches: Iterable[Sketch]) -> int:
    """The version of a space that is not the shipped one: stored choices of another are never read as its own."""
    text = repr([(d.name, d.labels) for sketch in sketches for d in sketch.decisions])
    return zlib.crc32(text.encode()) & 0x7FFFFFFF
