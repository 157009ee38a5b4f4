"""A Python package of a library: a wheel with the shared object and `loaded.py`, which needs NumPy alone.

::

    import NAME
    y = NAME.run(x, w)                  # packs what is constant on every call; extents may be sizes, which arrays give
    fast = NAME.pack(w=w)               # packs it once
    fast(x, out=y)
"""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ...version import __version__
from ..launch import to_json
from .cpu_check import architecture
from .header import cpu_sentence, header_text
from .library import Library
from .module import shared_object
from .names import parameter_names

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same library gives the same file
_INIT = '''"""{about}."""

from pathlib import Path

from ._loaded import Code, Kernel

__version__ = "{version}"
__all__ = ["pack", "run", "set_threads", "signature", "threads", "to_logical", "to_physical"]

_code = Code(Path(__file__).parent)
run = Kernel(_code)
pack, to_physical, to_logical, signature = run.pack, run.to_physical, run.to_logical, run.signature
threads, set_threads = _code.threads, _code.set_threads
'''


def write_wheel(library: Library, folder: Path) -> Path:
    """Write the wheel into `folder`; its name says for which machines it is."""
    name = library.name
    with tempfile.TemporaryDirectory(prefix="stridesmith-") as work:
        made = Path(work, f"lib{name}.so")
        shared_object(library, made)
        code = made.read_bytes()
    about = library.about.replace("\\", "/").replace('"', "'")
    files = {
        f"{name}/__init__.py": _INIT.format(about=about or name, version=__version__).encode(),
        f"{name}/_loaded.py": Path(__file__).with_name("loaded.py").read_bytes(),
        f"{name}/interface.json": _interface(library).encode(),
        f"{name}/lib{name}.so": code,
        f"{name}/{name}.h": header_text(library).encode(),
    }
    # What is called of the C library has been in it since glibc 2.17, so that the tag is that of manylinux2014.
    tag = f"py3-none-manylinux_2_17_{architecture(library.target)}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{__version__}-{tag}.whl"
    _write(path, files | _metadata(library, tag), f"{name}-{__version__}.dist-info/RECORD")
    return path


def _interface(library: Library) -> str:
    """What `loaded.Code` reads."""
    functions = [
        {
            "name": function.name,
            "packers": dict(function.packers),
            "called": parameter_names(function.parameters),
            "parameters": [
                [a.name, a.logical_shape, a.physical_shape, a.dtype, a.index_map, a.pad_value, a.is_output, a.is_scalar]
                for a in function.parameters
            ],
            "sizes": {name: [numbers.low, numbers.high, numbers.step] for name, numbers in function.sizes.items()},
            "counted": list(function.counted),
            "extents": {name: [to_json(extent) for extent in extents] for name, extents in function.extents.items()},
        }
        for function in library.functions
    ]
    described = {
        "name": library.name, "about": library.about, "file": f"lib{library.name}.so", "cpu": cpu_sentence(library),
        "functions": functions,
    }  # fmt: skip
    return json.dumps(described, indent=1)


def _metadata(library: Library, tag: str) -> dict[str, bytes]:
    folder = f"{library.name}-{__version__}.dist-info"
    summary = " ".join(library.about.split()) or library.name
    metadata = (
        f"Metadata-Version: 2.1\nName: {library.name}\nVersion: {__version__}\n"
        f"Summary: {summary}, made by stridesmith\nRequires-Python: >=3.9\nRequires-Dist: numpy>=1.26\n"
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: stridesmith {__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    return {f"{folder}/METADATA": metadata.encode(), f"{folder}/WHEEL": wheel.encode()}


def _write(path: Path, files: Mapping[str, bytes], record: str) -> None:
    """The archive, and in it the list of its files with their digests."""
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
        text = "".join(lines) + f"{record},,\n"
        archive.writestr(zipfile.ZipInfo(record, _EPOCH), text, zipfile.ZIP_DEFLATED)
