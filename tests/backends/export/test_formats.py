"""The other formats: C, texts, scripts, a wheel, OpenCL with its host program."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from exported import CONSTANT, CONVOLVE, compiled, convolution, loader, numbers

import stridesmith as ss
from stridesmith import configs
from stridesmith.backends.devices import discover
from stridesmith.backends.export import opencl_host
from stridesmith.errors import DeviceMissing, UsageError
from stridesmith.ir.script.parser import parse
from stridesmith.search.calling.kernel import build
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import workload

needs_linker = pytest.mark.skipif(
    not any(map(shutil.which, ("ld", "ld.lld", "cc"))) and importlib.util.find_spec("ziglang") is None,
    reason="there is no linker on this machine",
)


@pytest.mark.parametrize(("format", "file"), [("c", "conv.c"), ("asm", "conv.s")])
def test_a_compiler_takes_it(format: str, file: str, tmp_path: Path) -> None:
    """C and assembly become part of a program that needs no library, with the results of the kernel."""
    kernel = convolution()
    assert [f.name for f in kernel.export(tmp_path / file, format)] == [file, "conv.h"]
    program = compiled(CONVOLVE, tmp_path, file)
    done = subprocess.run([program], capture_output=True, timeout=30)
    assert done.stdout == kernel(numbers((1, 5, 9, 9)), numbers((20, 5, 3, 3))).tobytes(), done.stderr


def test_constants_are_no_trigraphs(tmp_path: Path) -> None:
    """Two question marks and a sign are another sign in ISO C, also inside of strings, as some weights are."""
    w = np.frombuffer(b"??=??/??<??(" * (20 * 5 * 9 * 4 // 12), np.float32).reshape(20, 5, 3, 3)
    kernel = convolution().pack(w=w)
    kernel.export(tmp_path / "held.c", "c")
    assert "??" not in (tmp_path / "held.c").read_text()
    if shutil.which("cc"):
        import ctypes

        flags = ["-std=c11", "-shared", "-fPIC", "-pthread", "-o", str(tmp_path / "held.so")]
        subprocess.run(["cc", *flags, str(tmp_path / "held.c"), "-lm"], check=True)
        x, y = numbers((1, 5, 9, 9)), np.empty((1, 20, 9, 9), np.float32)
        assert ctypes.CDLL(str(tmp_path / "held.so")).held(x.ctypes, y.ctypes) == 0
        assert y.tobytes() == kernel(x).tobytes()


def test_llvm_ir_is_a_module(tmp_path: Path) -> None:
    """The text parses, and each function names the CPU that it is for."""
    import llvmlite.binding as llvm

    (text, _) = convolution().export(tmp_path / "conv.ll", "ll")
    module = llvm.parse_assembly(text.read_text())
    module.verify()
    visible = {f.name for f in module.functions if not f.is_declaration and f.linkage.name == "external"}
    assert {"conv", "conv_pack_w", "conv_version"} <= visible
    assert f'"target-cpu"="{discover("cpu").cpu}"' in text.read_text()


def test_scripts_are_the_scheduled_program(tmp_path: Path) -> None:
    """Our text gives the program back, TVM's has its spelling."""
    ours, tvm = convolution().export(tmp_path / "conv.py", "script")
    assert "T.parallel" in ours.read_text()
    assert parse(ours.read_text()) == parse(tvm.read_text())
    assert (tvm.name, "T.sblock" in tvm.read_text()) == ("conv.tvm.py", True)


def test_another_architecture_is_assembled(tmp_path: Path) -> None:
    """A described ARM processor gets its own instructions, from an x86 too."""
    target = replace(configs.target("cpu-neon"), threads=2)
    text = convolution().export(tmp_path / "conv.s", "asm", target=target)[0].read_text()
    assert re.search(r"\tf(madd|mla)\t", text)
    assert "vfmadd" not in text
    assert "aarch64" in (tmp_path / "conv.h").read_text()


def test_unknown_formats_and_wrong_targets(tmp_path: Path) -> None:
    """One sentence each: the nearest format; the target that a format is for."""
    with pytest.raises(UsageError, match=r"no format 'scipt' .did you mean 'script'"):
        convolution().export(tmp_path / "conv", "scipt")
    with pytest.raises(UsageError, match="the format cl is for opencl, but this kernel is for cpu"):
        convolution().export(tmp_path / "conv.cl", "cl")
    with pytest.raises(UsageError, match="gives no name for a C library"):
        convolution().export(tmp_path / "---.so")
    for format, file in (("c", "conv.h"), ("ll", "conv.h"), ("asm", "conv.h"), ("so", "conv.pc")):
        with pytest.raises(UsageError, match=f"{file} is called like a file that the format {format} writes"):
            convolution().export(tmp_path / file, format)
    assert not list(tmp_path.iterdir())


@needs_linker
def test_packed_constants_travel(tmp_path: Path) -> None:
    """What `pack` packed is in the library, which takes the other arguments; its file may have a name of any bytes."""
    import ctypes

    x, w = numbers((1, 5, 9, 9)), numbers((20, 5, 3, 3))
    kernel, file = convolution().pack(w=w), tmp_path / os.fsdecode(b"libheld\xe9.so")
    kernel.export(file)
    library, y = ctypes.CDLL(str(file)), np.empty((1, 20, 9, 9), np.float32)
    assert "int held(const float *x, float *y);" in (tmp_path / "held.h").read_text()
    assert library.held(x.ctypes, y.ctypes) == 0
    assert y.tobytes() == kernel(x).tobytes()


FILL = """
@T.prim_func
def f(s: T.TYPE, b: T.Buffer((3,), "TYPE")):
    for i in range(3):
        b[i] = s
"""


@needs_linker
def test_scalars_of_every_type_pass_as_c_has_them(tmp_path: Path) -> None:
    """Numbers come by value, widened as C does it, negative ones included."""
    import ctypes

    kinds = {"int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
             "uint8": ctypes.c_uint8, "float32": ctypes.c_float, "float64": ctypes.c_double}  # fmt: skip
    for dtype, kind in kinds.items():
        text = FILL.replace("TYPE", dtype)
        path = tmp_path / f"lib{dtype}.so"
        build(parse(text), discover("cpu", 1)).export(path, name=f"f_{dtype}")
        got, value = np.zeros(3, dtype), 200 if dtype == "uint8" else -7
        assert getattr(ctypes.CDLL(str(path)), f"f_{dtype}")(kind(value), got.ctypes) == 0
        assert (got == value).all(), dtype


USE = """
import sys
import numpy as np
import tuned_conv as package
assert "stridesmith" not in sys.modules
x, w = np.load("x.npy"), np.load("w.npy")
np.save("y.npy", package.to_logical("y", package.run(x, w)))
class Other:
    def __init__(self, array, negative=False): self.array, self.negative = array, negative
    def is_neg(self): return self.negative
    def __dlpack__(self, **options): return self.array.__dlpack__(**options)
    def __dlpack_device__(self): return self.array.__dlpack_device__()
fast, out = package.pack(w=Other(w)), package.run(x, w)
out[...] = 0
assert fast(Other(x), out=out) is out
assert (out == package.run(x, w)).all() and out.any()
for wrong in (x.astype("f8"), x[:, ::-1], x[0], 3):
    try: fast(wrong)
    except (TypeError, ValueError) as error: assert "`x` must" in str(error), error
    else: raise AssertionError(wrong)
try: fast(Other(x, negative=True))
except TypeError as error: assert "`x` is the negative of what its memory holds" in str(error)
else: raise AssertionError
try: fast(x, out=np.empty(3, np.float32))
except ValueError as error: assert "`y` must have shape" in str(error)
package.set_threads(1)
assert package.threads() == 1 and (package.run(x, w) == out).all()
"""


@needs_linker
def test_a_wheel_needs_numpy_alone(tmp_path: Path) -> None:
    """Installed into a fresh environment, it computes what the kernel did, from NumPy and from DLPack."""
    kernel = convolution(interface=CONSTANT | {"y": "free"})
    (wheel,) = kernel.export(tmp_path / "tuned_conv.whl", "wheel")
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    packages = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    for part in Path(np.__file__).parents[1].glob("numpy*"):
        (packages / part.name).symlink_to(part)
    install = ["-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", "-q", str(wheel)]
    done = subprocess.run([sys.executable, *install], capture_output=True, text=True, timeout=100)
    if done.returncode and "No module named pip" in done.stderr:
        pytest.skip("there is no pip on this machine")
    assert done.returncode == 0, done.stderr
    x, w = numbers((1, 5, 9, 9)), numbers((20, 5, 3, 3))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "w.npy", w)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([python, "-c", USE], cwd=tmp_path, check=True, timeout=60, env=environment)
    assert np.load(tmp_path / "y.npy").tobytes() == kernel.to_logical("y", kernel(x, w)).tobytes()


@pytest.mark.parametrize("scope", ["global", "global.texture"])
def test_an_opencl_program_computes_the_reference(scope: str, tmp_path: Path) -> None:
    """`cc` alone builds the host program, and it sets up the kernels, packs a constant, into an image too, and runs."""
    try:
        target = discover("opencl")
    except DeviceMissing as error:
        pytest.skip(str(error))
    if scope != "global" and not target.images:
        pytest.skip(f"{target.name} has no images")
    work = workload("matmul", m=13, n=19, k=11)
    schedule = Schedule(work.func)
    panels = f"lambda k, n: [n // 8, k, {'' if scope == 'global' else 'AXIS_SEPARATOR, '}n % 8]"
    schedule.transform_layout("matmul", "b", panels, 0, physical_shape=(3, 11, 8))
    schedule.set_scope("matmul", "b", scope)
    i, j, _ = schedule.get_loops("matmul")
    schedule.bind(i, "blockIdx.x")
    schedule.vectorize(schedule.split(j, [None, 8])[1])
    kernel = build(schedule.func, target, {"a": "fixed", "b": "constant", "c": "fixed"})
    files = kernel.export(tmp_path / "product.cl", "cl")
    assert [f.name for f in files] == ["product.cl", "product_pack_b.cl", "product.c"]
    program = compiled(files[-1].read_text(), tmp_path, "-ldl")
    a, b = numbers((13, 11)), numbers((11, 19))
    a.tofile(tmp_path / "a.bin")
    b.tofile(tmp_path / "b.bin")
    done = subprocess.run(
        [program, "a.bin", "b.bin", "c.bin"], cwd=tmp_path, capture_output=True, text=True, timeout=100, env=loader()
    )
    if "unknown target CPU 'generic'" in done.stderr:
        pytest.skip("this PoCL is older than the processor, and builds no program of other software")
    assert (done.returncode, done.stderr) == (0, "")
    got = np.fromfile(tmp_path / "c.bin", np.float32).reshape(13, 19)
    assert got.tobytes() == kernel(a, b).tobytes()
    np.testing.assert_allclose(got, a @ b, atol=1e-5)
    usage = subprocess.run([program, "a.bin"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert usage.returncode == 2 and usage.stderr.endswith("a.bin b.bin c.bin\n")
    with pytest.raises(UsageError, match=r"product.c is called like a file that the format cl writes"):
        kernel.export(tmp_path / "product.c", "cl")


def test_an_opencl_program_knows_its_device_by_name_and_version(tmp_path: Path) -> None:
    """Drivers put blanks where they like, and several versions of one are told apart: both as targets have them."""
    source = Path(opencl_host.__file__).with_name("opencl_host.c").read_text()
    begin, end = source.index("/* A driver's text"), source.index("/* The device that")
    assert "squeezed" in source[begin:end]
    program = f"""
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#define PLATFORM "Portable Computing Language"
#define DEVICE "cpu Xeon, driver 6.0"
static int text(const char *given, size_t size, void *to, size_t *n) {{
    return n || snprintf(to, size, "%s", given) < 0;
}}
static int clGetPlatformInfo(void *platform, unsigned what, size_t size, void *to, size_t *n) {{
    return what != 0x0902 || text(platform, size, to, n);
}}
static int clGetDeviceInfo(void *device, unsigned what, size_t size, void *to, size_t *n) {{
    return text(what == 0x102B ? "  cpu   Xeon " : device, size, to, n);
}}
{source[begin:end]}
int main(void) {{
    printf("%d%d%d", is_meant(PLATFORM " ", "6.0"), is_meant(PLATFORM, " 6.0 "), is_meant("Other", "6.0"));
    printf("%d", is_meant(PLATFORM, "3.0"));
}}
"""
    run = subprocess.run([compiled(program, tmp_path)], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, "1100")


def test_a_folder_takes_the_programs_name(tmp_path: Path) -> None:
    """One that is there, or ends in a slash: the file is called as its format has it; a name given goes before."""
    kernel = ss.build(ss.workload("matmul", m=6, n=7, k=5).func, ss.Target("cpu", threads=1))
    (tmp_path / "there").mkdir()
    made = [
        kernel.export(f"{tmp_path}/new/", "c"), kernel.export(tmp_path / "there", "ll"),
        kernel.export(tmp_path / "there", "script"), kernel.export(tmp_path / "there", "asm", name="mine"),
    ]  # fmt: skip
    assert [str(files[0].relative_to(tmp_path)) for files in made] == [
        "new/matmul.c", "there/matmul.ll", "there/matmul.py", "there/mine.s",
    ]  # fmt: skip
    assert all(file.is_file() for files in made for file in files)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """Is a StorageError with the file and the reason."""
    kernel = ss.build(ss.workload("matmul", m=6, n=7, k=5).func, ss.Target("cpu", threads=1))
    (tmp_path / "file").write_text("")
    with pytest.raises(ss.StorageError, match=r"^cannot write the library to .*file/x\.c: File exists"):
        kernel.export(tmp_path / "file" / "x.c", "c")
