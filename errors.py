"""Every error that a user can cause or meet, each with the exit code of the command.

```
StridesmithError               1  internal          a bug, unless a subclass says otherwise
├── UsageError                 2  usage             what was asked cannot be
│   ├── UnknownTarget          2  unknown_target    no such kind of device
│   ├── UnknownWorkload        2  unknown_workload
│   ├── UnknownParameter       2  unknown_parameter a workload has no such parameter
│   ├── ShapeError             2  shape             impossible extents
│   ├── ScriptProblem          2  script            a user's program does not parse or verify
│   ├── ConfigProblem          2  config            a suite, preset or list does not validate
│   ├── BadRecord              2  bad_record        a record or log line that is refused
│   └── ModelProblem           2  model             an ONNX model that is invalid, or says too little to be run
├── ProgramError               2  program           a program, or what was asked of one, cannot be
│   ├── ScriptError                                 text that is not a program: with line and column
│   ├── VerifyError                                 it breaks a rule of the language: with its number
│   ├── TypeFault                                   operands whose types do not go together
│   ├── OutOfBounds                                 an access is not proven to stay in its buffer
│   ├── NotFixed                                    an extent is an expression where a number is needed
│   ├── WrongSizes                                  arrays and numbers of a call that a program does not take
│   ├── InterpreterError                            it did what the language does not allow
│   ├── IndexMapError, PadValueError, LayoutError   a layout, pad value or both that cannot be
│   ├── Contradiction                               two assumptions that cannot both hold
│   ├── ScheduleError                               a primitive refuses: with its condition
│   ├── NotInPlace                                  a result cannot take the memory of an input
│   └── LoweringError, CodegenError                 the target cannot run it
├── NothingFound               3  not_found
│   ├── NoSchedule             3  no_schedule       no valid candidate was found
│   └── NoRecord               3  no_record         the text is the command that makes one
├── DeviceMissing              4  device_missing    a known kind without such a device
│   └── DeviceLost             4  device_lost       it was there, and does not answer any more
├── ToolMissing                4  tool_missing      a linker or the like, or a package, is not there
├── WrongResult                5  wrong_result      a kernel disagrees with its reference
├── StorageError              74  storage           a file that cannot be read or written
├── TemporaryError            75  temporary         locked; trying again may help
├── Interrupted              130  interrupt         Ctrl-C; the best so far is kept
│   ├── Terminated           143  terminate         the same of SIGTERM
│   └── HungUp               129  hangup            and of SIGHUP
├── ProtocolError              1  internal          a text that is no job or no reply of a worker
└── InternalError              1  internal          from one part of the package to another, which catches it
    └── NotAffine, Unknown, UndefTerm, MayWrap, Hazard, NeedsLong, RayLost, Unsupported, Left,
        Differs, Unlooked, Undetermined
```

A message is one paragraph: what was asked, which rule failed, the values, what to try.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class StridesmithError(Exception):
    """The root of the tree; `exit_code` is the command's, `kind` the JSON error's."""

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "internal"

    def event(self) -> dict[str, Any]:
        """The JSON event that tells of it."""
        return {"event": "error", "code": self.exit_code, "kind": self.kind, "message": str(self)}


class UsageError(StridesmithError, ValueError):
    """What was asked cannot be: an option, a name or a value is wrong."""

    exit_code = 2
    kind = "usage"


class UnknownTarget(UsageError):
    """The text names no kind of device."""

    kind = "unknown_target"


class UnknownWorkload(UsageError):
    """The workload library has no such name."""

    kind = "unknown_workload"


class UnknownParameter(UsageError):
    """The workload has no parameter of this name."""

    kind = "unknown_parameter"


class ShapeError(UsageError):
    """The parameters give an impossible shape."""

    kind = "shape"


class ScriptProblem(UsageError):
    """A user's program does not parse, verify or stay inside its buffers."""

    kind = "script"


class ConfigProblem(UsageError):
    """A configuration file does not validate."""

    kind = "config"


class BadRecord(UsageError):
    """A record, or a line of a log, that does not validate."""

    kind = "bad_record"


class ModelProblem(UsageError):
    """An ONNX model that is invalid, that reaches for what it may not, or that says too little to be run."""

    kind = "model"


class ProgramError(StridesmithError):
    """A program, or what was asked of one, cannot be: the text names the rule, the place and the values."""

    exit_code = 2
    kind = "program"


class NothingFound(StridesmithError, LookupError):
    """What was looked for is not there."""

    exit_code = 3
    kind = "not_found"


class NoSchedule(NothingFound):
    """No candidate was valid, so that there is nothing to record."""

    kind = "no_schedule"


class NoRecord(NothingFound):
    """The database has no record; the message is the command that makes one."""

    kind = "no_record"


class DeviceMissing(StridesmithError):
    """The kind of device is known, but this machine has no such platform or device."""

    exit_code = 4
    kind = "device_missing"


class DeviceLost(DeviceMissing):
    """The device was there, and does not answer any more."""

    kind = "device_lost"


class ToolMissing(StridesmithError):
    """A program that the machine could have, such as a linker, is not there; the text says what to install."""

    exit_code = 4
    kind = "tool_missing"


class WrongResult(StridesmithError):
    """A kernel's result differs from the reference by more than the bound."""

    exit_code = 5
    kind = "wrong_result"


class StorageError(StridesmithError):
    """A file cannot be read, written or understood."""

    exit_code = 74
    kind = "storage"


class TemporaryError(StridesmithError):
    """Something is locked or busy; the same command may succeed later."""

    exit_code = 75
    kind = "temporary"


class Interrupted(StridesmithError):
    """The user pressed Ctrl-C; what was measured so far is kept."""

    exit_code = 130
    kind = "interrupt"


class Terminated(Interrupted):
    """SIGTERM has come, as a cluster sends it before it evicts a job."""

    exit_code = 143
    kind = "terminate"


class HungUp(Interrupted):
    """SIGHUP has come: the terminal was closed."""

    exit_code = 129
    kind = "hangup"


class InternalError(StridesmithError):
    """What one part of the package tells another, which catches it; one that reaches a user is a bug."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """`" (did you mean 'x'?)"` for the nearest of `known`, else an empty text; callers may give what is no name."""
    near = difflib.get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def named(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which says of an option that it has not which one was meant, or all it has.  Raises UsageError."""
    import functools
    import inspect

    known = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                meant = did_you_mean(name, known) or f"; it has {', '.join(known)}"
                raise UsageError(f"{function.__name__}() has no option {name!r}{meant}")
        return function(*args, **kwargs)

    return checked


def of_kind(kind: str) -> type[StridesmithError]:
    """The first class of errors, from the root on, that an event calls so; the root where there is none."""
    waiting: list[type[StridesmithError]] = [StridesmithError]
    while waiting:
        found = waiting.pop(0)
        if found.kind == kind:
            return found
        waiting += found.__subclasses__()
    return StridesmithError
