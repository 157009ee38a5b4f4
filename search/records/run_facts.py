"""What a run tells beside its records: where its seconds went, the device's limits, why it ended."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...errors import BadRecord
from .record import Name, Seconds, printable

Amount = Annotated[float, Field(ge=0, lt=1e18, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**31)]


class RunFacts(BaseModel):
    """One search for one task; `name` is the `run` of its records.

    `activities` are its seconds by what they were spent on (see `tuning.clock`); of a run that several tasks share,
    those of this task's turns.  `baseline` are samples of the untuned program in seconds per call, from the final
    race where it took part, and `baseline_us` its latency, else measured by itself.  Limits of the device are null
    where they were not measured; `caches` are pairs of what a cache holds and its bandwidth.  `busy` is how many
    processors others kept busy as the run began, and `cores` how many its kernels could use.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: Annotated[Name, Field(min_length=1)]
    created: Amount = Field(default_factory=time.time)
    seconds: Amount = 0.0
    activities: Annotated[dict[Name, Amount], Field(max_length=64)] = Field(default_factory=dict)
    trials: Count = 0
    duplicates: Count = 0
    failed: Annotated[dict[Name, Count], Field(max_length=64)] = Field(default_factory=dict)
    sampler: Name = ""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    stopped_by: Name = ""
    kind: Literal["task", "shared"] = "task"
    peak_gflops: Amount | None = None
    bandwidth: Amount | None = None
    caches: Annotated[list[list[Amount]], Field(max_length=8)] = Field(default_factory=list)
    busy: Amount | None = None
    cores: Count | None = None
    baseline_us: Amount | None = None
    baseline: Annotated[list[Seconds], Field(max_length=10_000)] = Field(default_factory=list)

    def to_text(self) -> str:
        """As JSON."""
        return json.dumps(self.model_dump(), separators=(",", ":"), allow_nan=False)


def from_text(text: str) -> RunFacts:
    """The facts that `to_text` wrote.  Raises BadRecord for anything else."""
    try:
        data: Any = json.loads(text)
        return RunFacts.model_validate(data)
    except (ValueError, RecursionError, ValidationError) as error:
        raise BadRecord(f"not the facts of a run: {printable(str(error), 300)}") from None
