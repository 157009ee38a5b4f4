"""Names of C for what a library has: none that the languages keep, or that other code of a program calls its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import UsageError
from ..artifact import Argument
from .linker import STUBS


def c_name(text: str) -> str:
    """A name of C from a file's name or a workload's.  Raises UsageError where nothing of it is left."""
    if not isinstance(text, str):
        raise UsageError(f"the name of a C library or function is a text, but got {text!r}")
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
        # of newer C and of GNU's, which compilers take unless they are told otherwise
        "asm", "constexpr", "nullptr", "static_assert", "thread_local", "typeof", "typeof_unqual",
        # of C++, for which the header is, too
        "alignas", "alignof", "and", "and_eq", "bitand", "bitor", "bool", "catch", "char16_t", "char32_t", "char8_t",
        "class", "co_await", "co_return", "co_yield", "compl", "concept", "const_cast", "consteval", "constinit",
        "decltype", "delete", "dynamic_cast", "explicit", "export", "false", "friend", "mutable", "namespace", "new",
        "noexcept", "not", "not_eq", "operator", "or", "or_eq", "private", "protected", "public", "reinterpret_cast",
        "requires", "static_cast", "template", "this", "throw", "true", "try", "typeid", "typename", "using",
        "virtual", "wchar_t", "xor", "xor_eq",
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
        *(name for names in STUBS.values() for name in names), "pthread_atfork",
        # and what they call their own
        "at_load", "busy", "callers_core", "cpu_fits", "cpuid", "ensure_workers", "fits", "helpers", "is_open",
        "is_over", "join", "leave", "leave_callers_core", "look_for_job", "no_message", "note_callers_core", "now",
        "pool_reset", "record", "reset_sleep", "saved_registers", "set_up", "set_up_forks", "share", "sleep_while",
        "slots", "stridesmith_parallel", "take_ranges", "task", "threads", "total", "unit", "units", "version", "wake",
        "wake_workers", "word", "worker", "workers", *(f"message{number}" for number in range(10)),
    )
)  # fmt: skip
