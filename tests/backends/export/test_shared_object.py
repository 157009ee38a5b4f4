"""Shared objects run where there is nothing but a C library, as the kernel ran that they were made of."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from exported import CONCURRENT, CONVOLVE, WORK, compiled, convolution, in_another_root, numbers

from stridesmith.backends.devices import discover
from stridesmith.backends.export import linker
from stridesmith.backends.export.cpu_check import needed
from stridesmith.errors import ToolMissing, UsageError
from stridesmith.ir.script.parser import parse
from stridesmith.search.calling.kernel import build

OTHER = """
@T.prim_func
def other(a: T.Buffer((4096,), "float32"), b: T.Buffer((4096,), "float32")):
    for i in T.parallel(4096):
        b[i] = a[i] * T.float32(3)
"""


def linkers() -> list[str]:
    return [name for name in ("ld", "ld.lld", "cc") if shutil.which(name)]


pytestmark = pytest.mark.skipif(
    not linkers() and importlib.util.find_spec("ziglang") is None, reason="there is no linker on this machine"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two libraries: a convolution that packs its weights, and a parallel loop."""
    made = tmp_path_factory.mktemp("exported")
    files = convolution().export(made / "libconv.so")
    assert [f.name for f in files] == ["libconv.so", "conv.h", "conv.pc"]
    build(parse(OTHER), discover("cpu", 2)).export(made / "libother.so")
    return made


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    """What the kernel in this process computes of `numbers`."""
    return convolution()(numbers((1, 5, 9, 9)), numbers((20, 5, 3, 3)))


def test_it_needs_the_c_library_alone(folder: Path) -> None:
    """What is undefined in it is in libc, libm or pthread; nothing but its own names is defined."""
    if not shutil.which("nm"):
        pytest.skip("there is no nm on this machine")
    listed = subprocess.run(["nm", "-D", folder / "libconv.so"], capture_output=True, text=True, check=True).stdout
    rows = [line.split()[-2:] for line in listed.splitlines()]
    undefined = {name for kind, name in rows if kind in ("U", "w")}
    known = {name for names in linker.STUBS.values() for name in names}
    assert undefined <= known | {"__register_atfork", "pthread_atfork"}
    assert "pthread_create" in undefined
    defined = {name for kind, name in rows if kind not in ("U", "w")}
    service = ("version", "message", "supported", "threads", "set_threads", "release", "pack_w", "interface")
    service += ("bytes_x", "bytes_w", "bytes_y")
    assert defined == {"conv", *(f"conv_{name}" for name in service)}


def test_a_root_without_python_runs_it(folder: Path, expected: np.ndarray, tmp_path: Path) -> None:
    """Twenty lines of C, in a root with the C library alone, compute bit for bit what the kernel computed."""
    program = compiled(CONVOLVE, folder, "-L.", "-lconv")
    assert in_another_root(program, folder / "libconv.so", tmp_path) == expected.tobytes()


def test_two_libraries_many_callers_and_a_child(folder: Path) -> None:
    """Four threads call two libraries at once, a forked child calls them, and all results are right."""
    program = compiled(CONCURRENT, folder, "-L.", "-lconv", "-lother", "-Wl,-rpath,.")
    done = subprocess.run([program], cwd=folder, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0 wrong, child 0\n")


def test_valgrind_finds_nothing(folder: Path, tmp_path: Path) -> None:
    """For AVX2, which valgrind knows: no invalid access, nothing read that was not written, nothing lost."""
    if not shutil.which("valgrind"):
        pytest.skip("there is no valgrind on this machine")
    host = discover("cpu", 2)
    if host.isa not in ("avx2", "avx512"):
        pytest.skip(f"valgrind is asked on x86-64 with AVX2, but this CPU has {host.isa}")
    avx2 = replace(host, isa="avx2", cpu="x86-64-v3", features="+avx2,+fma", vector_bits=256, registers=16)
    convolution(avx2).export(tmp_path / "libconv.so")
    build(parse(OTHER), avx2).export(tmp_path / "libother.so")
    program = compiled(CONCURRENT, tmp_path, "-L.", "-lconv", "-lother", "-Wl,-rpath,.")
    options = ["-q", "--leak-check=full", "--errors-for-leak-kinds=definite", "--error-exitcode=3"]
    command = ["valgrind", *options, program, "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "0 wrong, child 0\n"), done.stderr


def test_it_loads_at_once_and_equals_the_kernel(folder: Path, expected: np.ndarray) -> None:
    """A process that knows nothing of us has it within 50 ms, and its results are the same bit for bit."""
    code = (
        "import ctypes, time; start = time.perf_counter(); library = ctypes.CDLL('./libconv.so');"
        "print(time.perf_counter() - start, library.conv_supported())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    seconds, supported = done.stdout.split()
    assert float(seconds) < 0.05
    assert supported == "1"
    library = ctypes.CDLL(str(folder / "libconv.so"))
    x, w = numbers((1, 5, 9, 9)), numbers((20, 5, 3, 3))
    packed, y = np.full((2, 5, 3, 3, 16), np.nan, np.float32), np.empty_like(expected)
    assert library.conv_pack_w(w.ctypes, packed.ctypes) == 0
    assert packed.tobytes() == convolution().to_physical("w", w).tobytes()
    assert library.conv(x.ctypes, packed.ctypes, y.ctypes) == 0
    assert y.tobytes() == expected.tobytes()
    np.testing.assert_allclose(y, WORK.reference({"x": x, "w": w})["y"], atol=1e-4)


def test_a_library_that_is_in_use_is_not_written_over(tmp_path: Path) -> None:
    """Who has loaded it goes on with its own code; whoever comes later gets the other one, and nothing is left."""
    library = tmp_path / "libconv.so"
    convolution().export(library)
    before, loaded = library.stat().st_ino, ctypes.CDLL(str(library))
    old = library.read_bytes()
    with library.open("rb") as held:
        build(parse(OTHER), discover("cpu", 2)).export(library)
        assert held.read() == old
    assert library.read_bytes() != old and library.stat().st_ino != before
    assert loaded.conv_supported() == 1
    assert sorted(f.name for f in tmp_path.iterdir()) == ["conv.h", "conv.pc", "libconv.so"]


def test_wrong_pointers_are_refused(folder: Path) -> None:
    """A null or a misaligned pointer is an error code, and nothing is written."""
    library = ctypes.CDLL(str(folder / "libother.so"))
    library.other_message.restype = ctypes.c_char_p
    a, b = np.zeros(4097, np.float32), np.full(4097, 7, np.float32)
    assert library.other(None, b.ctypes) == 2
    assert library.other(a.ctypes, ctypes.c_void_p(b.ctypes.data + 2)) == 2
    assert (b == 7).all()
    assert b"null" in library.other_message(2)
    assert library.other_message(77) == b"no code of this library"
    assert library.other(a.ctypes, b.ctypes) == 0
    assert (b[:4096] == 0).all()


def test_another_cpu_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """Compiled for a feature that this CPU lacks, a library says so and computes nothing."""
    host = discover("cpu", 2)
    if host.isa == "neon":
        pytest.skip("the features of ARM processors that are looked for here may all be there")
    lacking = next(name for name in ("xop", "avx512vp2intersect", "tbm") if f"+{name}" not in host.features.split(","))
    target = replace(host, features=f"{host.features},+{lacking}")
    assert lacking in needed(target)
    build(parse(OTHER), host).export(tmp_path / "libother.so", target=target)
    library = ctypes.CDLL(str(tmp_path / "libother.so"))
    a, b = np.zeros(4096, np.float32), np.full(4096, 7, np.float32)
    assert library.other_supported() == 0
    assert library.other(a.ctypes, b.ctypes) == 1
    assert (b == 7).all()


def test_a_cpu_without_features_is_refused(tmp_path: Path) -> None:
    """A described CPU whose features are not listed could not be checked for."""
    target = replace(discover("cpu", 2), cpu="znver4", features="")
    with pytest.raises(UsageError, match="names the CPU `znver4` without its features"):
        build(parse(OTHER), discover("cpu", 2)).export(tmp_path / "libother.so", target=target)


def test_the_header_says_it_all(folder: Path) -> None:
    """Shapes, bytes, layout and padding of each argument, threads, version, and what the CPU must have."""
    text = " ".join((folder / "conv.h").read_text().replace("\n *", " ").split())
    assert "x: in float32 [1][5][9][9], 1620 bytes" in text
    assert (
        "w: in float32 [20][5][3][3], written by conv_pack_w, lies in memory as [2][5][3][3][16], 5760 bytes: "
        "lambda o, i, r, c: [o // 16, i, r, c, o % 16]; padding holds 0.0"
    ) in text
    assert "int conv(const float *x, const float *w, float *y);" in text
    assert "#define CONV_THREADS 2" in text
    assert "#define CONV_VERSION" in text
    assert "aligned to their elements" in text
    assert all(name in text for name in needed(discover("cpu", 2)))
    assert "-lconv" in (folder / "conv.pc").read_text()


@pytest.mark.parametrize("name", [*linkers(), "ziglang"])
def test_every_linker_makes_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever linker there is, the result runs."""
    if name == "ziglang" and importlib.util.find_spec("ziglang") is None:
        pytest.skip("the package ziglang is not installed")
    monkeypatch.setattr(linker.shutil, "which", lambda asked: f"/usr/bin/{name}" if asked == name else None)
    build(parse(OTHER), discover("cpu", 2)).export(tmp_path / "libother.so")
    library = ctypes.CDLL(str(tmp_path / "libother.so"))
    a, b = np.arange(4096, dtype=np.float32), np.zeros(4096, np.float32)
    assert library.other(a.ctypes, b.ctypes) == 0
    np.testing.assert_array_equal(b, 3 * a)


def test_functions_of_the_c_library_are_called(tmp_path: Path) -> None:
    """A kernel that calls the mathematical library names it as needed, and gets its results."""
    text = OTHER.replace("float32", "float64").replace("a[i] * T.float64(3)", "T.exp(a[i])")
    kernel = build(parse(text), discover("cpu", 2))
    kernel.export(tmp_path / "libother.so")
    library = ctypes.CDLL(str(tmp_path / "libother.so"))
    a, b = np.linspace(-3, 3, 4096), np.zeros(4096)
    assert library.other(a.ctypes, b.ctypes) == 0
    np.testing.assert_array_equal(b, kernel(a))
    np.testing.assert_allclose(b, np.exp(a), rtol=1e-14)
    assert b"libm.so.6" in (tmp_path / "libother.so").read_bytes()


def test_without_a_linker_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One paragraph, which names what was looked for, the extra, and the formats that need no linker."""
    monkeypatch.setattr(linker.shutil, "which", lambda _: None)
    monkeypatch.setattr(linker.importlib.util, "find_spec", lambda _: None)
    kernel = build(parse(OTHER), discover("cpu", 2))
    said = r"ld.lld, ld, cc, gcc and clang.*stridesmith\[export\].*c, ll, asm or script"
    with pytest.raises(ToolMissing, match=said):
        kernel.export(tmp_path / "libother.so")
    assert kernel.export(tmp_path / "other.s", "asm")


def test_macos_is_told_what_it_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its linkers make no shared objects of ELF; the formats that a compiler takes are named."""
    kernel = build(parse(OTHER), discover("cpu", 2))
    monkeypatch.setattr(linker.platform, "system", lambda: "Darwin")
    with pytest.raises(UsageError, match="for Linux alone; on macOS choose the format c or asm"):
        kernel.export(tmp_path / "libother.so")
    assert not list(tmp_path.iterdir())
