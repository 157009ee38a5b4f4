"""OpenCL drivers that come as Python packages, and how the loader finds them.

A loader reads one file for each driver, with the library's path, from a folder of the system.  PoCL's wheel puts its
file where pyopencl's loader looks besides; the file of Intel's wheel stands somewhere else and names a folder of the
machine that built it.  So `offer` writes a folder in the user's cache that has the system's files and one for each
such library, and lets ``OCL_ICD_VENDORS`` name it.  The variable is read when pyopencl is loaded, and processes that
are started from this one inherit it; where a user has set it, it stays, and decides alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..file_cache import put

VENDORS = "OCL_ICD_VENDORS"
SYSTEM = "OPENCL_VENDOR_PATH"  # where it is set, the folder of the system's files
SYSTEM_FOLDER = "/etc/OpenCL/vendors"
AFFINITY = "POCL_AFFINITY"


@dataclass(frozen=True)
class Package:
    """A driver on PyPI: its library, the packages without which that does not load, and how stridesmith names them."""

    name: str
    library: str
    needs: tuple[str, ...]
    extra: str


INTEL = Package("intel-opencl-rt", "libintelocl.so", ("intel-cmplr-lib-rt", "tbb"), "stridesmith[intel-opencl]")
PACKAGES = (INTEL,)


def offer() -> None:
    """Let the loader see the drivers of installed packages besides the system's; without such packages, nothing."""
    if os.environ.get(VENDORS):
        return
    libraries = [path for path in map(library, PACKAGES) if path is not None]
    if not libraries:
        return
    files = system_files() | {f"{path.stem}.icd": str(path) for path in libraries}
    # Where nothing can be written, the system's drivers are there still, and `problems` tells of the others.
    with contextlib.suppress(OSError):
        os.environ[VENDORS] = str(_written(files))


def pin() -> None:
    """Let PoCL give each of its threads a processor of its own, where the process may use all of the machine's.

    Its threads sleep between kernels, and a system often wakes two of them on one processor: on two, a convolution
    took 1.4 to 1.7 ms instead of 1.2, and beside another program that kept one of them busy 2.2 instead of 1.8.
    PoCL numbers processors from 0, so that a process that was given some of them alone is left as it is.
    """
    if sys.platform == "linux" and os.sched_getaffinity(0) == set(range(os.cpu_count() or 0)):
        os.environ.setdefault(AFFINITY, "1")


def has_linker() -> bool:
    """Whether PoCL can link what it compiles: by the system's ``ld``, with the libraries of a C compiler."""
    compilers = map(shutil.which, ("cc", "gcc"))
    return shutil.which("ld") is not None and (any(compilers) or any(Path("/usr/lib/gcc").glob("*/*/libgcc.a")))


def library(package: Package) -> Path | None:
    """The driver's library, if the package is installed."""
    try:
        files = metadata.files(package.name) or []
    except metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())).resolve() for file in files if file.name == package.library)
    return next((path for path in found if path.exists()), None)


def problems() -> Iterator[tuple[str, str]]:
    """A sentence for each package that is installed and cannot work: what is wrong, and what to do about it."""
    for package in PACKAGES:
        path = library(package)
        if path is None:
            continue
        install = f"{sys.executable} -m pip install '{package.extra}'"
        missing = [name for name in package.needs if not _installed(name)]
        if missing:
            yield f"{package.name} is installed without {' and '.join(missing)}", f"install all of it: {install}"
        elif not _named(path):
            yield (
                f"{package.name} is installed, but {VENDORS}={os.environ.get(VENDORS, '')} names no file for {path}",
                f"unset {VENDORS}, or add a file NAME.icd with this path to that folder",
            )
        elif error := _load_error(path):
            yield f"the library of {package.name} does not load: {error}", f"install it again: {install}"


def available() -> list[Package]:
    """The packages that are not installed and would work on this kind of machine."""
    suits = sys.platform == "linux" and os.uname().machine in ("x86_64", "amd64")
    return [package for package in PACKAGES if suits and not _installed(package.name)]


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _named(path: Path) -> bool:
    """Whether a file in the folder that the loader reads names the library."""
    place = Path(os.environ.get(VENDORS, ""))
    files = sorted(place.glob("*.icd")) if place.is_dir() else [place]
    return any(Path(_said(file)) == path for file in files) or place == path


def _load_error(path: Path) -> str:
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return str(error)
    return ""


def system_files() -> dict[str, str]:
    """The system's ``.icd`` files by name, with the library that each names, but for libraries that are not there."""
    folder = Path(os.environ.get(SYSTEM) or SYSTEM_FOLDER)
    found = {file.name: _said(file) for file in sorted(folder.glob("*.icd"))}
    return {name: text for name, text in found.items() if text and ("/" not in text or Path(text).exists())}


def _said(file: Path) -> str:
    """The library that a file names; nothing for one that cannot be read, which a loader leaves out."""
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _written(files: dict[str, str]) -> Path:
    """A folder with these files, the same for the same ones."""
    import platformdirs

    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:12]
    folder = Path(platformdirs.user_cache_dir("stridesmith")) / "opencl-drivers" / digest
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if not (folder / name).exists():
            put(folder / name, f"{text}\n".encode())
    return folder
