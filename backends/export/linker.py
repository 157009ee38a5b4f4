"""A shared object from an object file, with whatever linker the machine has.

What the code calls of the C library is bound without versions, through stubs with the libraries' names: the shared
object needs no development files here, and runs with other versions of the C library there.  Whatever is called and is
in none of the stubs is an error, so that nothing else is ever needed.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...errors import ToolMissing, UsageError
from ...ir.target import Target
from ..file_cache import put
from ..llvm.compile import LinkedModule

_MATHEMATICS = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "cos", "cosh", "erf", "exp", "exp2", "floor",
    "fma", "fmod", "hypot", "log", "log10", "log1p", "log2", "nearbyint", "pow", "rint", "round", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
)  # fmt: skip
STUBS: Mapping[str, tuple[str, ...]] = {
    "libc.so.6": (
        "clock_gettime", "free", "getauxval", "madvise", "memcpy", "memmove", "memset", "posix_memalign",
        "sched_getaffinity", "sched_getcpu", "sched_setaffinity", "sched_yield", "syscall",
    ),
    "libm.so.6": (*_MATHEMATICS, *(f"{name}f" for name in _MATHEMATICS)),
    "libpthread.so.0": (
        "pthread_attr_destroy", "pthread_attr_init", "pthread_attr_setdetachstate", "pthread_attr_setstacksize",
        "pthread_create",
    ),
}  # fmt: skip
"""The libraries that shared objects may need, by soname, and what they may call of each."""
# nodelete: threads of the pool may still run this code when somebody closes the library.
_FLAGS = (
    "--as-needed", "-z", "defs", "-z", "nodelete", "-z", "now", "-z", "relro", "-z", "noexecstack", "--build-id=none",
)  # fmt: skip
SECONDS = 120  # for a linker, a choice


class Linker(NamedTuple):
    """How a linker is called; `driver` is true for a C compiler, which passes flags on."""

    command: tuple[str, ...]
    driver: bool = False

    def arguments(self, soname: str, files: Sequence[str], output: str) -> list[str]:
        """The whole command line."""
        flags = (*_FLAGS, "-soname", soname)
        if self.driver:
            passed = "-Wl," + ",".join(flags)
            return [*self.command, "-shared", "-nostdlib", passed, "-o", output, *files]
        return [*self.command, "-shared", *flags, "-o", output, *files]


def find_linker(cross: str = "") -> Linker:
    """A linker of this machine, else the one of the package ziglang; `cross` is an architecture that is not the host's.

    Raises ToolMissing, whose text says what to install.
    """
    names = ("ld.lld", f"{cross}-linux-gnu-ld") if cross else ("ld.lld", "ld")
    for name in names:
        if path := shutil.which(name):
            return Linker((path,))
    for name in () if cross else ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return Linker((path,), driver=True)
    if importlib.util.find_spec("ziglang") is not None:
        return Linker((sys.executable, "-m", "ziglang", "ld.lld"))
    looked = ", ".join(names) if cross else "ld.lld, ld, cc, gcc and clang"
    raise ToolMissing(
        f"a shared object needs a linker, and there is none here: looked for {looked} on the PATH, and for ziglang, a "
        f"Python package that has one; install any of them, as with `pip install 'stridesmith[export]'`, or choose a "
        f"format that needs none: c, ll, asm or script"
    )


def link(code: bytes, output: Path, target: Target, triple: str = "") -> None:
    """Link the object file `code` into the shared object `output`, whose soname is its name.

    Raises ToolMissing without a linker, UsageError on macOS and for code that calls what a machine need not have.
    """
    if platform.system() == "Darwin" and not triple:
        raise UsageError(
            "shared objects are made for Linux alone; on macOS choose the format c or asm, of which `cc -dynamiclib` "
            "makes a library"
        )
    linker = find_linker(triple.partition("-")[0])
    with tempfile.TemporaryDirectory(prefix="stridesmith-") as folder:
        kernel = Path(folder, "kernel.o")
        kernel.write_bytes(code)
        stubs = [_stub(linker, name, symbols, Path(folder), target, triple) for name, symbols in STUBS.items()]
        made = Path(folder, "linked.so")
        _run(linker.arguments(output.name, [str(kernel), *stubs], str(made)))
        # Processes that have loaded an older one keep its file: written over, their code would change under them.
        put(output, made.read_bytes())


def _stub(linker: Linker, soname: str, symbols: Sequence[str], folder: Path, target: Target, triple: str) -> str:
    """A library with empty functions of these names: what a linker asks of a library is its name and its symbols."""
    text = "\n".join(f"define void @{name}() {{\n  ret void\n}}" for name in symbols)
    source, made = folder / f"{soname}.o", folder / soname
    source.write_bytes(LinkedModule([text], symbols, target, triple).object())
    _run(linker.arguments(soname, [str(source)], str(made)))
    return str(made)


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(f"the linker `{command[0]}` does not run: {error}") from None
    if done.returncode:
        said = " ".join(done.stderr.split())[:600]
        raise UsageError(f"the linker `{' '.join(command[:3])}` refuses the kernel: {said}")
