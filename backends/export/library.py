"""What a library is: functions of C, each some lowered programs over memory that is given, constant or scratch.

A kernel is a function of one step, packing a constant another; a network is a function of many steps whose tensors lie
in scratch memory by its plan, and whose weights are constants.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from ...errors import UsageError
from ...ir import dtypes
from ...ir.expr import Buffer
from ...ir.target import Target
from ..artifact import Argument
from ..lower import Lowered
from ..memory import ALIGNMENT


@dataclass(frozen=True)
class Given:
    """Memory of the caller: the parameter of the function with this name, from so many bytes behind its beginning."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Constant:
    """Bytes that the library holds, by name."""

    name: str


@dataclass(frozen=True)
class Scratch:
    """Memory that a call has to itself, at this offset; a multiple of `ALIGNMENT`."""

    offset: int


Place: TypeAlias = Given | Constant | Scratch


@dataclass(frozen=True)
class Step:
    """One program of a function, with a place for each of its parameters and then its workspaces."""

    program: Lowered
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Function:
    """A function of C.  `summary` is a sentence for its users, without the full stop.

    An array is passed as it lies in memory, in the `physical_shape` of its argument.  `packers` names, for a parameter
    that the caller packs once, the function that does.  `initial` has what scratch memory holds before the first step,
    as offsets and constants: it is written once, where memory is new, and no step may write something else there.
    """

    name: str
    summary: str
    parameters: tuple[Argument, ...]
    steps: tuple[Step, ...]
    scratch_bytes: int = 0
    packers: Mapping[str, str] = field(default_factory=dict)
    initial: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Library:
    """Functions that leave together, lowered for one target; the first one is what the library is for.

    `about` says in a line what was made, `texts` are programs to read by the names of their dialects.
    """

    name: str
    target: Target
    functions: tuple[Function, ...]
    constants: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    about: str = ""
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def main(self) -> Function:
        """What the library is for."""
        return self.functions[0]


def single(
    name: str, summary: str, arguments: Sequence[Argument], program: Lowered, constants: Mapping[str, str] | None = None
) -> Function:
    """The function of one program: its parameters are given, or one of `constants` (from parameter to constant)."""
    held = constants or {}
    places: list[Place] = [Constant(held[a.name]) if a.name in held else Given(a.name) for a in arguments]
    end = 0
    for workspace in program.workspaces:
        places.append(Scratch(end))
        end += aligned(workspace.nbytes)
    parameters = tuple(a for a in arguments if a.name not in held)
    return Function(name, summary, parameters, (Step(program, tuple(places)),), end)


def aligned(nbytes: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def nbytes(argument: Argument) -> int:
    """Bytes of an argument as it lies in memory."""
    return prod(argument.physical_shape) * dtypes.nbytes(argument.dtype)


def buffers(step: Step) -> tuple[Buffer, ...]:
    """What the places of a step are for."""
    return (*step.program.params, *step.program.workspaces)


def c_name(text: str) -> str:
    """A name of C from a file's name or a workload's.  Raises UsageError where nothing of it is left."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    if not name:
        raise UsageError(f"{text!r} gives no name for a C library; use letters, digits and underscores")
    return f"k_{name}" if name[0].isdigit() or name in _RESERVED else name


def function_name(text: str) -> str:
    """`c_name` for a function: none that the C library has, which programs that link ours would call instead."""
    name = c_name(text)
    return f"k_{name}" if name in _TAKEN else name


def parameter_names(arguments: Sequence[Argument]) -> dict[str, str]:
    """The name of each argument in C, by its own: no two are alike, not even in capitals, as macros are."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for argument in arguments:
        first = name = c_name(argument.name)
        number = 1
        while name.upper() in taken:
            number += 1
            name = f"{first}_{number}"
        taken.add(name.upper())
        found[argument.name] = name
    return found


_RESERVED = frozenset(
    (
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
        "float", "for", "goto", "if", "inline", "int", "long", "main", "register", "restrict", "return", "short",
        "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while",
        # of C++, for which the header is, too
        "and", "bool", "catch", "class", "delete", "explicit", "export", "false", "friend", "mutable", "namespace",
        "new", "not", "operator", "or", "private", "protected", "public", "template", "this", "throw", "true", "try",
        "typename", "using", "virtual", "xor",
    )
)  # fmt: skip
_MATHEMATICS = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf",
    "erfc", "exp", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod", "frexp", "hypot", "j0",
    "j1", "jn", "ldexp", "lgamma", "log", "log10", "log1p", "log2", "logb", "lrint", "lround", "modf", "nearbyint",
    "pow", "remainder", "rint", "round", "scalbn", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc", "y0", "y1",
    "yn",
)  # fmt: skip
_TAKEN = frozenset(
    (
        *_MATHEMATICS, *(f"{name}f" for name in _MATHEMATICS), *(f"{name}l" for name in _MATHEMATICS),
        "abort", "abs", "accept", "access", "atexit", "bind", "bsearch", "calloc", "clock", "close", "connect", "div",
        "exit", "fork", "free", "getenv", "gamma", "index", "kill", "labs", "link", "listen", "malloc", "memchr",
        "memcmp", "memcpy", "memmove", "memset", "open", "pause", "pipe", "poll", "printf", "puts", "qsort", "raise",
        "rand", "read", "realloc", "recv", "remove", "rename", "select", "send", "signal", "sleep", "srand", "stat",
        "strlen", "syscall", "system", "time", "times", "wait", "write",
        # what the modules call that are linked with it
        "clock_gettime", "posix_memalign", "pthread_atfork", "pthread_attr_destroy", "pthread_attr_init",
        "pthread_attr_setdetachstate", "pthread_attr_setstacksize", "pthread_create", "sched_getaffinity",
        "sched_getcpu", "sched_setaffinity", "sched_yield",
        # and what they call their own
        "at_load", "busy", "callers_core", "cpu_fits", "cpuid", "ensure_workers", "fits", "helpers", "is_open",
        "is_over", "join", "leave", "leave_callers_core", "look_for_job", "no_message", "note_callers_core", "now",
        "pool_reset", "record", "reset_sleep", "saved_registers", "set_up", "set_up_forks", "share", "sleep_while",
        "slots", "stridesmith_parallel", "take_ranges", "task", "threads", "total", "unit", "units", "version", "wake",
        "wake_workers", "word", "worker", "workers", *(f"message{number}" for number in range(10)),
    )
)  # fmt: skip
