"""What code generation hands to the runtime: the text of a program, and its kernels in order."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

from ..ir import dtypes
from ..ir.expr import COMPARISONS, LOGIC, Binary, Cast, Const, Expr, Extent, Var, as_int, const
from ..ir.extents import as_extent
from ..ir.ranges import valued

OFFSETS = 1 << 15
"""Work-groups in a row, where a launch of some of a program's groups tells by its offset where they begin."""


@dataclass(frozen=True)
class Launch:
    """One kernel of a program: its sizes, and its arguments as positions in parameters and workspaces.

    `images` are those of `args` that the kernel reads as images; of these, `stale` may have been written since they
    became images, in this call or the one before, so that they are copied before the launch.  A `serial` one has its
    loops over work-groups in one work-group, since all that they do is short; other short ones run on so many `threads`
    at most, where these are the pool's, and 0 are all.

    Of a program of many shapes each call decides the `sizes`, by name, which a kernel takes behind its other arguments.
    The kernel runs where the conditions `when` hold, and has as many work-groups along x, y and z as `counts` says;
    `global_size` has one for them.  `at` gives the launch of one call, in which `values` are those of the sizes.
    """

    kernel: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    args: tuple[int, ...]
    images: tuple[int, ...] = ()
    stale: tuple[int, ...] = ()
    serial: bool = False
    threads: int = 0
    sizes: tuple[str, ...] = ()
    when: tuple[Expr, ...] = ()
    counts: tuple[Extent, ...] = ()
    values: tuple[int, ...] = ()

    def at(self, values: Mapping[str, int]) -> Launch | None:
        """The launch for these sizes; None where the kernel has nothing to do."""
        known = {Var(name): value for name, value in values.items()}
        counts = [valued(count, known) for count in self.counts]
        if not all(valued(cond, known) for cond in self.when) or not all(count > 0 for count in counts):
            return None
        whole = tuple(n * count for n, count in zip(self.local_size, counts, strict=False)) or self.global_size
        own = tuple(values[name] for name in self.sizes)
        return replace(self, global_size=whole, sizes=(), when=(), counts=(), values=own)

    @property
    def is_single(self) -> bool:
        """Whether all of it is one work-group."""
        return self.groups == 1 and all(count == 1 for count in self.counts)

    @property
    def groups(self) -> int:
        """The number of work-groups."""
        return prod(self.global_size) // prod(self.local_size)

    def to_json(self) -> dict[str, Any]:
        """The launch as it stands in an artifact."""
        return {
            "kernel": self.kernel, "global": list(self.global_size), "local": list(self.local_size),
            "args": list(self.args), "images": list(self.images), "stale": list(self.stale), "serial": self.serial,
            "threads": self.threads, "sizes": list(self.sizes), "when": [to_json(cond) for cond in self.when],
            "counts": [to_json(count) for count in self.counts], "values": list(self.values),
        }  # fmt: skip

    @staticmethod
    def from_json(data: dict[str, Any]) -> Launch:
        """The launch that `to_json` gave."""
        args, images, stale = (tuple(data[key]) for key in ("args", "images", "stale"))
        size, group = tuple(data["global"]), tuple(data["local"])
        when, counts = tuple(map(from_json, data["when"])), tuple(as_extent(from_json(n)) for n in data["counts"])
        return Launch(
            data["kernel"], size, group, args, images, stale, bool(data["serial"]), int(data["threads"]),
            tuple(data["sizes"]), when, counts, tuple(data["values"]),
        )  # fmt: skip


Formula: TypeAlias = "int | str | list[Formula]"
"""A number, the name of a size, or ``[operator, formula, formula]``."""
_OPERATORS = ("+", "-", "*", "//", "%", "min", "max", *COMPARISONS, *LOGIC)


def is_formula(expr: Expr, sizes: Collection[Var]) -> bool:
    """Whether the host can evaluate an expression that is over `sizes` alone."""
    if isinstance(expr, Binary):
        known = expr.op in _OPERATORS and expr.a.dtype in (dtypes.INDEX, "bool")  # which do not wrap around
        return known and is_formula(expr.a, sizes) and is_formula(expr.b, sizes)
    if isinstance(expr, Cast):
        return expr.dtype == dtypes.INDEX and is_formula(expr.a, sizes)
    return expr in sizes if isinstance(expr, Var) else isinstance(expr, Const) and not dtypes.is_float(expr.dtype)


def to_json(formula: Extent) -> Formula:
    """A formula (see `is_formula`) as it stands in an artifact."""
    if isinstance(formula, Binary):
        return [formula.op, to_json(formula.a), to_json(formula.b)]
    if isinstance(formula, Cast):
        return to_json(formula.a)
    if isinstance(formula, Var):
        return formula.name
    return as_int(formula)


def from_json(formula: Formula) -> Expr:
    """The formula that `to_json` gave."""
    if isinstance(formula, list):
        op, a, b = formula
        return Binary(str(op), from_json(a), from_json(b))
    return Var(formula) if isinstance(formula, str) else const(formula)


@dataclass(frozen=True)
class Source:
    """The text of a program and how to launch it, in order."""

    text: str
    launches: tuple[Launch, ...]


def with_digest(text: str, launches: Sequence[Launch]) -> Source:
    """The same program with a digest at the end of each kernel's name; equal names mean equal code."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    renamed = tuple(replace(launch, kernel=f"{launch.kernel}_{digest}") for launch in launches)
    for old, new in zip(launches, renamed, strict=True):
        text = text.replace(f"\nvoid {old.kernel}(", f"\nvoid {new.kernel}(")
    return Source(text, renamed)
