"""The files in which a library leaves.

==========  ==========================================================================================================
``so``      a shared object, its header and a .pc file
``c``       a C file with the assembly, and the header: for builds that take sources and link no library.  Assembly at
            the top of a C file needs no other tool than the compiler of the project, and no binary file in its tree
``ll``      LLVM IR, and the header
``asm``     assembly, and the header
``cl``      the OpenCL source, and a host program in C that sets it up and runs it
``script``  the scheduled programs as text: ours, and TVM's dialect in a second file
``wheel``   a Python package with the shared object, for NumPy and DLPack, that needs NumPy alone
==========  ==========================================================================================================
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from ...errors import UsageError, did_you_mean
from ...files import doing, refuse_other
from ...version import __version__
from ..llvm.compile import LinkedModule
from .header import header_text, pkg_config
from .interface import NO_CODE
from .library import Library
from .linker import find_linker
from .module import linked, shared_object, triple_of

Files: TypeAlias = "list[Path]"
Texts: TypeAlias = "dict[Path, str | None]"
"""What is in each file; None for the shared object, which is linked into it."""
WHEEL = "wheel"


MADE = f"Made by stridesmith {__version__}"
MARKS = (b"ade by stridesmith", b"# from stridesmith import ", b"# from tvm.script import ", NO_CODE.encode())
"""What is found in the texts that leave, in ours and TVM's scripts, and in a shared object."""


def export(library: Library, path: str | Path, format: str = "so") -> Files:
    """Write `library` to the file or folder `path` in a format, with what belongs to it beside; returns the files.

    A wheel is written into the folder of `path`, with the name that wheels must have.  Raises UsageError for a format
    that there is not or that the library's target does not have, ToolMissing where a linker is needed and missing,
    StorageError for a file that cannot be written.
    """
    known = (*FORMATS, WHEEL)
    if format not in known:
        hint = did_you_mean(format, known)
        raise UsageError(f"there is no format {format!r}{hint}; there are {', '.join(known)}")
    wanted = {"cl": "opencl", "script": library.target.kind}.get(format, "cpu")
    if library.target.kind != wanted:
        fitting = "cl or script" if wanted == "cpu" else "so, c, ll, asm, wheel or script"
        kind = library.target.kind
        raise UsageError(f"the format {format} is for {wanted}, but this kernel is for {kind}; use {fitting}")
    path = place_of(path, format, library.name)
    if path.suffix in _BESIDE.get(format, ()):
        raise UsageError(f"{path.name} is called like a file that the format {format} writes beside; use another name")
    if format == WHEEL:
        return _wheel(library, path)
    texts = FORMATS[format](library, path)
    for file in texts:  # all of them, before the first is written
        refuse_other(file, "a library", *MARKS)
    with doing(f"write the library to {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            if text is None:
                shared_object(library, file)
            else:
                file.write_text(text, encoding="utf-8", errors="surrogateescape")  # names of files as they are
    return [*texts]


_BESIDE = {"so": (".h", ".pc"), "c": (".h",), "ll": (".h",), "asm": (".h",), "cl": (".c",)}
"""The suffixes of what is written beside a file of each format."""


def place_of(path: str | Path, format: str, name: str) -> Path:
    """The file `path`; in a folder, which is there or ends in a slash, the file that a library of this name has."""
    place = Path(path)
    with doing(f"write a library to {path}"):
        if not str(path).endswith(("/", os.sep)) and not place.is_dir():
            return place
    suffix = {"asm": "s", "script": "py", "wheel": "whl"}.get(format, format)
    return place / (f"lib{name}.so" if format == "so" else f"{name}.{suffix}")


def name_of(path: str | Path, format: str, name: str) -> str:
    """The name that a file gives to a library: ``libconv.so`` is `conv`; in a folder it is `name`."""
    stem = place_of(path, format, name).name.split(".")[0]
    return stem.removeprefix("lib") if format == "so" else stem


def _so(library: Library, path: Path) -> Texts:
    find_linker(triple_of(library.target).partition("-")[0])  # before anything is compiled
    pc = path.with_name(f"{library.name}.pc")
    return {path: None, **_header(library, path), pc: pkg_config(library, path.name)}


def _c(library: Library, path: Path) -> Texts:
    return {path: _embedded(library, linked(library)), **_header(library, path)}


def _ll(library: Library, path: Path) -> Texts:
    return {path: f"; {MADE}\n{linked(library).text}", **_header(library, path)}


def _asm(library: Library, path: Path) -> Texts:
    return {path: f"# {MADE}\n{linked(library).assembly()}", **_header(library, path)}


def _script(library: Library, path: Path) -> Texts:
    return {
        path if dialect == "stridesmith" else path.with_suffix(f".{dialect}.py"): text
        for dialect, text in library.texts.items()
    }


def _cl(library: Library, path: Path) -> Texts:
    from .opencl_host import host_text, source_texts

    named = source_texts(library).items()
    sources = {
        path if number == 0 else path.with_name(f"{name}.cl"): f"// {MADE}\n{text}"
        for number, (name, text) in enumerate(named)
    }
    return {**sources, path.with_suffix(".c"): host_text(library)}


def _wheel(library: Library, path: Path) -> Files:
    from .wheel import write_wheel

    find_linker(triple_of(library.target).partition("-")[0])
    folder = path.parent if path.suffix == ".whl" else path
    with doing(f"write the wheel to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        return [write_wheel(library, folder)]


FORMATS: Mapping[str, Callable[[Library, Path], Texts]] = {
    "so": _so, "c": _c, "ll": _ll, "asm": _asm, "cl": _cl, "script": _script,
}  # fmt: skip
"""How each format is made, but for `WHEEL`."""


def _header(library: Library, path: Path) -> Texts:
    return {path.with_name(f"{library.name}.h"): header_text(library)}


def _embedded(library: Library, module: LinkedModule) -> str:
    """C with the assembly in one block at its top.

    Labels get the library's name, since a compiler has labels of its own in the same file.
    """
    label = re.compile(r"\.L(?=[A-Za-z_])")
    lines = []
    for line in module.assembly().splitlines():
        if not line.lstrip().startswith((".ascii", ".asciz", ".string")):
            line = label.sub(f".L{library.name}_", line)
        # A question mark is escaped, since two of them begin a trigraph of ISO C, also inside of a string.
        escaped = line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("?", "\\?")
        lines.append(f'"{escaped}\\n"')
    return "\n".join(
        [
            f"/* {library.name}: what {library.name}.h declares, as assembly for the compiler of any project. {MADE}.",
            " *",
            " * Compile it without link-time optimisation (-fno-lto), which does not see symbols of assembly; a shared",
            " * object that may be closed again needs -Wl,-z,nodelete: threads of the pool may still run this code.",
            " */",
            f'#include "{library.name}.h"',
            "",
            "__asm__(",
            *lines,
            '".text\\n"',
            ");",
            "",
        ]
    )
