"""Compiled programs travel between caches, and nothing but PoCL's own files is ever written."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path

import pytest

from stridesmith.backends.opencl.binary import cache_folder, export_binary, import_binary
from stridesmith.ir.target import POCL

PROGRAM = "AB/" + "CDEFGHIJ" * 4


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    kernel = first / PROGRAM / "f_12ab" / "4-1-1-goffs0-smallgrid"
    kernel.mkdir(parents=True)
    (kernel / "f_12ab.so").write_bytes(b"machine code")
    (kernel / "parallel.bc").write_bytes(b"leftover")
    (first / PROGRAM / "program.bc").write_bytes(b"bitcode")
    (first / "AB" / ("X" * 32)).mkdir()
    (first / "AB" / ("X" * 32) / "program.bc").write_bytes(b"another")
    monkeypatch.setenv("POCL_CACHE_DIR", str(first))
    return first, second


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_one_program_moves(caches: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of the named kernels moves, bit by bit, and no other."""
    text = export_binary(None, POCL, ["f_12ab"])
    monkeypatch.setenv("POCL_CACHE_DIR", str(caches[1]))
    assert import_binary(text, POCL) is None
    assert files(caches[1]) == {
        f"{PROGRAM}/program.bc": b"bitcode",
        f"{PROGRAM}/f_12ab/4-1-1-goffs0-smallgrid/f_12ab.so": b"machine code",
    }


def test_what_is_not_cached_is_not_handed_on(caches: tuple[Path, Path]) -> None:
    """Without files of the kernel there is nothing to hand on."""
    assert export_binary(None, POCL, ["other"]) == ""


def test_files_that_exist_stay(caches: tuple[Path, Path]) -> None:
    """What the cache already holds is not replaced."""
    text = export_binary(None, POCL, ["f_12ab"])
    (caches[0] / PROGRAM / "program.bc").write_bytes(b"mine")
    import_binary(text, POCL)
    assert files(caches[0])[f"{PROGRAM}/program.bc"] == b"mine"


@pytest.mark.parametrize("name", ["../../evil.so", "/etc/passwd", "AB/x", f"{PROGRAM}/../../program.bc", "program.bc"])
def test_other_paths_are_never_written(caches: tuple[Path, Path], name: str, tmp_path: Path) -> None:
    """A name that is not of PoCL's form is left out."""
    before = files(tmp_path)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, b"evil")
    import_binary(base64.b64encode(out.getvalue()).decode(), POCL)
    assert files(tmp_path) == before


@pytest.mark.parametrize("text", ["", "not base64!", "AAAA"])
def test_damage_means_compiling_again(caches: tuple[Path, Path], text: str) -> None:
    """What cannot be read is no error."""
    before = files(caches[0])
    assert import_binary(text, POCL) is None
    assert files(caches[0]) == before


def test_other_drivers_use_their_own_binary() -> None:
    """Elsewhere the text is the driver's binary."""
    assert import_binary(base64.b64encode(b"elf").decode(), "Some GPU") == b"elf"
    assert import_binary("", "Some GPU") is None


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """POCL_CACHE_DIR decides, then XDG_CACHE_HOME, then the home folder."""
    monkeypatch.setenv("POCL_CACHE_DIR", "/one")
    assert cache_folder() == Path("/one")
    monkeypatch.delenv("POCL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/two")
    assert cache_folder() == Path("/two/pocl/kcache")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache/pocl/kcache"
