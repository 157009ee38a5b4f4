"""How a command ends: every error is one paragraph on stderr, an event of JSON where that was asked for, a code.

It needs nothing but Python, so that it can also say which package is not installed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from ..errors import (
    InternalError,
    Interrupted,
    StorageError,
    StridesmithError,
    TemporaryError,
    ToolMissing,
    UsageError,
)
from ..files import is_no_name, reason
from ..invocation import COMMAND, NAME
from ..search.tuning.interruption import error_of, interrupted_by
from .output import json_line, on_terminal, printable

FILES = frozenset({
    errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EIO, errno.EISDIR, errno.ELOOP, errno.EMFILE,
    errno.ENAMETOOLONG, errno.ENFILE, errno.ENODEV, errno.ENOENT, errno.ENOSPC, errno.ENOTDIR, errno.ENOTEMPTY,
    errno.ENXIO, errno.EPERM, errno.EROFS, errno.ESTALE, errno.ETXTBSY,
})  # fmt: skip
"""What the system says of files and disks: nothing that a program does wrong."""
EXTRAS = {
    "onnx": "onnx", "torch": "torch", "ziglang": "export", "psycopg": "postgres", "vl_convert": "report",
    "jinja2": "report",
}  # fmt: skip
"""Packages that stridesmith can do without, and the extra with which each is installed."""


def wants_json(args: Sequence[str]) -> bool:
    """Whether `args` ask for events."""
    return "--format=json" in args or ("--format", "json") in itertools.pairwise(args)


def ended(error: BaseException, as_json: bool) -> int:
    """Say what a command has ended with; its exit code."""
    if isinstance(error, BrokenPipeError | SystemExit):  # SystemExit is how rich reports a reader that has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    if isinstance(error.__context__, Interrupted) and isinstance(error, OSError):
        return _told(error.__context__, as_json)  # the terminal was closed, and nothing more can be said on it
    if isinstance(error, InternalError):
        return _crashed(error, as_json)
    if isinstance(error, StridesmithError):
        return _told(error, as_json)
    known = _known(error)
    return _crashed(error, as_json) if known is None else _told(known, as_json)


def _known(error: BaseException) -> StridesmithError | None:
    """What an exception means for a user; None for one that is a bug."""
    signal = error_of(error) if isinstance(error, KeyboardInterrupt) else interrupted_by()
    if signal is not None:  # libraries make other exceptions of a KeyboardInterrupt
        return signal("interrupted; what was recorded so far is kept")
    if isinstance(error, ImportError):
        return _missing(error)
    if isinstance(error, MemoryError):
        return TemporaryError(
            "there is less memory than this needs: end what else uses it, or raise the limit of this shell "
            "(`ulimit -v`)"
        )
    if sys.flags.optimize > 1 and "NoneType" in str(error):  # xgboost, for one, takes its docstrings for texts
        return UsageError(
            "Python runs without docstrings here (`-OO`, or PYTHONOPTIMIZE=2), with which not all libraries can be "
            "loaded; leave that out"
        )
    if isinstance(error, OSError) and (error.errno in FILES or error.filename):
        what = "a file" if error.filename or error.errno == errno.ENOENT else "what the output leads to, or a file"
        return StorageError(f"cannot read or write {what}: {reason(error)}")
    if isinstance(error, ValueError) and is_no_name(error):
        return UsageError("no file can be called as was asked: a name holds no null byte, and no half of a character")
    return None


def _missing(error: ImportError) -> StridesmithError | None:
    """A package that is not installed, or not whole; None for one of our own modules."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "stridesmith"):
        return None
    extra = f"stridesmith[{EXTRAS[package]}]" if package in EXTRAS else "stridesmith"
    if isinstance(error, ModuleNotFoundError) and error.name == package:
        return ToolMissing(
            f"the package `{package}`, which this needs, is not installed: `pip install '{extra}'` installs it"
        )
    why = " ".join(str(error).split())[:300]
    return ToolMissing(
        f"the package `{package}`, which this needs, cannot be loaded: {why}; "
        f"`pip install --force-reinstall '{extra}'` installs it anew"
    )


def _told(error: StridesmithError, as_json: bool) -> int:
    """Tell an error: a paragraph on stderr, an event on stdout in JSON; return the exit code."""
    text, shown = _apart(printable(str(error)))
    message = " ".join(text.split())
    with contextlib.suppress(OSError):
        print("\n".join([on_terminal(f"{NAME}: {message}", sys.stderr), *shown]), file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):
        if as_json:
            print(json_line({**error.event(), "message": message}), flush=True)
    return error.exit_code


def _apart(text: str) -> tuple[str, list[str]]:
    """A message without the line of a program that ends it, and this line with the mark below it, if there is one."""
    lines = text.rstrip().split("\n")
    if len(lines) < 3 or lines[-1].strip() != "^":
        return text, []
    return "\n".join(lines[:-2]), lines[-2:]


def _crashed(error: BaseException, as_json: bool) -> int:
    """An internal error: a short note, and the traceback in a log file."""
    note = f"internal error: {type(error).__name__}: {str(error)[:300]}"
    try:
        import platformdirs

        folder = Path(platformdirs.user_log_dir("stridesmith", ensure_exists=True))
        log = folder / f"error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        log.write_text(f"{COMMAND} {' '.join(sys.argv[1:])}\n" + "".join(traceback.format_exception(error)))
        note += f". This is a bug; the details are in {log}"
    except (OSError, ImportError):
        note += ". This is a bug; no log could be written"
    return _told(StridesmithError(note), as_json)
