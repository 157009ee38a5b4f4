"""Kernels of earlier processes, by everything that decides their code.

Who compiles a model asks for the same kernels again and again: scheduling them with all proofs, lowering and compiling
take a fifth of a second each, reading takes a millisecond.  The key is the question as text, this package's modules
byte by byte, the versions of the libraries that make code with them, and the machine, since two may share a home
folder.  What is read is checked as a worker's reply is; nothing in it is executed before it is loaded as a kernel.
"""

from __future__ import annotations

import hashlib
import platform
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...backends.file_cache import FileCache
from ...backends.host import host_cpu
from ...ir.target import Target
from .protocol import Build, Built, Failed, ProtocolError, reply_of, to_text

CACHE = FileCache("kernels", 512 << 20)
PACKAGES = ("ir", "space", "cost_model", "backends", "search", "models/run", "models/ranges")  # what decides code
LIBRARIES = ("llvmlite", "islpy", "numpy", "pyopencl")


def stored(question: str) -> Built | Failed | None:
    """What was the answer to a question, a job's text or another one that says all about a kernel."""
    text = CACHE.read(_key(question))
    if text is None:
        return None
    try:
        return reply_of(Build(script="", target=Target()), text)
    except ProtocolError:
        return None


def store(question: str, reply: Built | Failed) -> None:
    """Keep an answer that will always be the same."""
    CACHE.write(_key(question), to_text(reply))


def _key(question: str) -> str:
    cpu = host_cpu()
    return "\n".join((question, software(), platform.system(), platform.machine(), f"{cpu.name} {cpu.features}"))


@lru_cache(maxsize=4)
def software(packages: tuple[str, ...] = PACKAGES, libraries: tuple[str, ...] = LIBRARIES) -> str:
    """A digest of modules, their data and libraries, if nothing is said of those that make code of programs."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256()
    files = (path for package in packages for kind in ("*.py", "*.toml") for path in (root / package).rglob(kind))
    for path in sorted(files):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    for library in libraries:
        try:
            digest.update(f"{library} {version(library)}\n".encode())
        except PackageNotFoundError:
            continue
    return digest.hexdigest()
