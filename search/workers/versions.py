"""What two hosts must have in common to build the same kernels of the same candidates."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
LIBRARIES = ("llvmlite", "islpy", "numpy")
ADVICE = {
    "python": "use the same Python there",
    "source": "install the same stridesmith there, with `pip install` or as the job's working directory",
}


@functools.cache
def versions_here() -> dict[str, str]:
    """Python, the libraries that shape a kernel, and a digest of stridesmith's own sources."""
    found = {"python": ".".join(platform.python_version_tuple()[:2]), "source": _digest(PACKAGE)}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def differences(there: Mapping[str, str]) -> str:
    """What another host has otherwise, and what to do about it; empty where nothing is."""
    here = versions_here()
    parts = []
    for name, version in here.items():
        if there.get(name) != version:
            advice = ADVICE.get(name, f"install {name}=={version} there")
            what = "sources of stridesmith" if name == "source" else name
            parts.append(f"{what} {there.get(name, 'unknown')} instead of {version} ({advice})")
    return "; ".join(parts)


def parsed(text: str) -> dict[str, str]:
    """What `json.dumps(versions_here())` of another host says; nothing where it is no such text."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}


def _digest(folder: Path) -> str:
    """A digest of the names and contents of all modules of the package, without tests and tools."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder).as_posix()
        if not place.startswith(("tests/", "benchmarks/", "docs/", "build/", ".")):
            total.update(place.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:12]
