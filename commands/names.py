"""The two names of the command where this Python keeps its scripts, and the shorter one put right.

Of two packages that bring a script of one name the one that was installed last has it, and Ray's wheel brings a `tune`,
too: with some installers, and after an upgrade of Ray, `tune` is not ours.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..files import doing
from ..invocation import NAMES

OURS = b"stridesmith.__main__"
"""What a script of ours imports; its first line has the folder of the environment, which may be called as anything."""


@dataclass(frozen=True)
class Script:
    """The script `tune`: its `path`, whether `is_there`, whether `is_ours`, and the `other` packages that bring one."""

    path: Path
    is_there: bool
    is_ours: bool
    other: tuple[str, ...]

    def restore(self) -> None:
        """Put a copy of the script `stridesmith`, which runs the same, in its place.  Raises StorageError."""
        beside = self.path.with_name(self.path.name.replace(NAMES[1], f".{NAMES[1]}-{os.getpid()}"))
        with doing(f"write {self.path}"):
            shutil.copy2(longer(self.path.parent), beside)
            os.replace(beside, self.path)


def longer(folder: Path) -> Path:
    """The script `stridesmith` of a folder of scripts."""
    return folder / f"{NAMES[0]}{_suffix()}"


def found(folder: Path | None = None) -> Script | None:
    """The shorter name in the folder of this Python's scripts; None where stridesmith is not installed there at all."""
    folder = folder or Path(sysconfig.get_path("scripts"))
    if not longer(folder).is_file():
        return None
    path = folder / f"{NAMES[1]}{_suffix()}"
    there = path.is_file()
    ours = there and OURS in path.read_bytes()
    points = metadata.entry_points(group="console_scripts", name=NAMES[1])
    owners = {point.dist.name for point in points if point.dist is not None}
    return Script(path, there, ours, tuple(sorted(owners - {NAMES[0]})))


def _suffix() -> str:
    return ".exe" if os.name == "nt" else ""
