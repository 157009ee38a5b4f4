"""What code generation hands to the runtime: the text of a program, and its kernels in order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

OFFSETS = 1 << 15
"""Work-groups in a row, where a launch of some of a program's groups tells by its offset where they begin."""


@dataclass(frozen=True)
class Launch:
    """One kernel of a program: its sizes, and its arguments as positions in parameters and workspaces.

    `images` are those of `args` that the kernel reads as images; of these, `stale` may have been written since they
    became images, in this call or the one before, so that they are copied before the launch.  A `serial` one has its
    loops over work-groups in one work-group, since all that they do is short; other short ones run on so many `threads`
    at most, where these are the pool's, and 0 are all.
    """

    kernel: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    args: tuple[int, ...]
    images: tuple[int, ...] = ()
    stale: tuple[int, ...] = ()
    serial: bool = False
    threads: int = 0

    @property
    def is_single(self) -> bool:
        """Whether all of it is one work-group."""
        return self.groups == 1

    @property
    def groups(self) -> int:
        """The number of work-groups."""
        return prod(self.global_size) // prod(self.local_size)

    def to_json(self) -> dict[str, Any]:
        """The launch as it stands in an artifact."""
        return {
            "kernel": self.kernel, "global": list(self.global_size), "local": list(self.local_size),
            "args": list(self.args), "images": list(self.images), "stale": list(self.stale), "serial": self.serial,
            "threads": self.threads,
        }  # fmt: skip

    @staticmethod
    def from_json(data: dict[str, Any]) -> Launch:
        """The launch that `to_json` gave."""
        args, images, stale = (tuple(data[key]) for key in ("args", "images", "stale"))
        size, group = tuple(data["global"]), tuple(data["local"])
        return Launch(data["kernel"], size, group, args, images, stale, bool(data["serial"]), int(data["threads"]))


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
