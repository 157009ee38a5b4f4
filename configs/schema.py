"""What the TOML files may say.

::

    suite   ::= { "[[" WORKLOAD "]]" row } [ "[tune]" budget ]
    row     ::= name, PARAMETER = value ..., [dtype], [constant = [...]], [free = [...]], [count]
    budget  ::= [trials], [seconds], [stop_at], [seed], [sampler], [threads]
    preset  ::= "[tune]" budget
    target  ::= "[target]" facts of ir.target.Target

Unknown keys are errors, and so is a row whose workload, parameter or shape does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ..space.workloads import Workload, workload

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.+-]{0,63}$")]
Value = Annotated[int, Field(strict=True, ge=-(2**62), le=2**62)] | Annotated[str, StringConstraints(max_length=64)]


class Budget(BaseModel):
    """The limits of a tuning run and how it searches; None stands for what a list or preset leaves open."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    trials: Annotated[int, Field(ge=1, le=10**7)] | None = None
    seconds: Annotated[float, Field(gt=0, le=10**7, allow_inf_nan=False)] | None = None
    stop_at: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    sampler: Name | None = None
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None


class Row(BaseModel):
    """One workload of a suite; what is not named here is a parameter of the workload."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[str, Value]

    name: Name
    dtype: Name = "float32"
    constant: Annotated[list[Name], Field(max_length=64)] | None = None
    free: Annotated[list[Name], Field(max_length=64)] = []
    count: Annotated[int, Field(ge=1, le=10**6)] = 1


@dataclass(frozen=True)
class Entry:
    """A workload of a suite with its interface.

    `interface` holds only what the row says; the defaults of the rest are the
    tuner's.  `count` is how often the workload occurs in its network, `budget`
    is that of its file.
    """

    name: str
    work: Workload
    interface: dict[str, str]
    count: int = 1
    budget: Budget = field(default_factory=Budget)

    @staticmethod
    def of(kind: str, row: Row, budget: Budget) -> Entry:
        """The entry that a row of workload `kind` describes.  Raises UsageError."""
        work = workload(kind, dtype=row.dtype, **(row.model_extra or {}))
        unknown = [n for n in (*(row.constant or ()), *row.free) if n not in work.inputs + work.outputs]
        if unknown:
            raise ValueError(f"`{kind}` has no argument {unknown[0]!r}; it has {', '.join(work.inputs + work.outputs)}")
        interface: dict[str, str] = {}
        if row.constant is not None:
            interface = {n: "constant" if n in row.constant else "fixed" for n in work.inputs}
        interface.update(dict.fromkeys(row.free, "free"))
        return Entry(row.name, work, interface, row.count, budget)


@dataclass(frozen=True)
class Suite:
    """Workloads by name, in the file's order."""

    name: str
    entries: tuple[Entry, ...]

    def only(self, name: str) -> Suite:
        """The suite with the entry of this name alone.  Raises ValueError."""
        chosen = tuple(e for e in self.entries if e.name == name)
        if not chosen:
            raise ValueError(name)
        return Suite(self.name, chosen)


def rows_of(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """``(workload, row)`` for each ``[[workload]]`` of a parsed file.  Raises ValueError for anything else."""
    found: list[tuple[str, dict[str, Any]]] = []
    for kind, rows in document.items():
        if kind == "tune":
            continue
        if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
            raise ValueError(f"{kind[:64]!r} must be written as [[...]] tables, one for each shape")
        found.extend((kind, row) for row in rows)
    return found
