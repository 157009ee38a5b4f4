"""The name by which the command was called, which what it says repeats.

Both names are the same command.  Another package may have brought a `tune` of its own (Ray's wheel does), so that
hints say `stridesmith` wherever nobody has called the other one.
"""

from __future__ import annotations

import os
import sys

NAMES = ("stridesmith", "tune")


def called(program: str) -> str:
    """The command that `program`, the first of a process's arguments, is: text that can be pasted into a shell."""
    folder, file = os.path.split(program)
    if file == "__main__.py" and os.path.basename(folder) == NAMES[0]:
        return f"python -m {NAMES[0]}"
    name = file.removesuffix(".exe")
    return name if name in NAMES else NAMES[0]


COMMAND = called((getattr(sys, "argv", None) or [""])[0])
NAME = COMMAND.split()[-1]
"""What stands before the text of an error."""
