"""The program after each pass of a pipeline, printed or written to a folder, for debugging.

``STRIDESMITH_DUMP=DIR`` in the environment, or ``with dumping(DIR):``, writes a folder for
each run of a pipeline, with a file for each pass::

    DIR/main.4711.0003/00-given.py
    DIR/main.4711.0003/01-remove_assume.py          function, process, run; number of the pass, pass

``STRIDESMITH_DUMP=-`` and ``with dumping():`` print to the standard error stream instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from ..node import Node
from ..stmt import script

VARIABLE = "STRIDESMITH_DUMP"
PRINT = "-"

Log = Callable[[str, Node], None]
_runs = count()
_chosen: list[str] = []


@contextmanager
def dumping(folder: str | Path | None = None) -> Iterator[None]:
    """Dump the programs of every pipeline that runs inside; without a folder, print them."""
    _chosen.append(PRINT if folder is None else str(folder))
    try:
        yield
    finally:
        _chosen.pop()


def program_log(function: str) -> Log:
    """What a pipeline calls with the name of each pass and the program after it."""
    target = _chosen[-1] if _chosen else os.environ.get(VARIABLE, "")
    if not target:
        return lambda _name, _program: None
    if target == PRINT:
        return lambda name, program: print(f"# {function} after {name}\n{script(program)}", file=sys.stderr)
    return _writer(Path(target) / f"{function}.{os.getpid()}.{next(_runs):04}")


def _writer(folder: Path) -> Log:
    numbers = count()

    def write(name: str, program: Node) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{next(numbers):02}-{name}.py").write_text(script(program), encoding="utf-8")

    return write
