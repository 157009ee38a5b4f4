"""A processor that PoCL's compiler has a wrong name for gets a right one; other devices are left as they are."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stridesmith.backends.opencl import processor_name

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads memory as Linux offers it")

POCL = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-"


PLAIN = """
import numpy as np
import pyopencl as cl
platforms = [p for p in cl.get_platforms() if p.name == "Portable Computing Language"]
if not platforms:
    print("none")
    raise SystemExit
context = cl.Context(platforms[0].get_devices()[:1])
if str(context.devices[0].version).strip().endswith("generic"):
    print("none")
    raise SystemExit
queue = cl.CommandQueue(context)
program = cl.Program(context, {text!r}).build(["-cl-std=CL1.2"])
a, b = np.arange(1, 33, dtype=np.float32), np.arange(-16, 16, dtype=np.int32) % 5 - 2
flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
memory = [cl.Buffer(context, flags, hostbuf=x) for x in (a, b, np.zeros(32, np.float32))]
kernel = cl.Kernel(program, {name!r})
kernel.set_args(*memory)
cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
got = np.empty(32, np.float32)
cl.enqueue_copy(queue, got, memory[2])
np.testing.assert_allclose(got, np.sqrt(a) ** np.abs(b), rtol=1e-5)
print("right")
"""


class Made:
    """A device object of words, some of which point to names and some to nowhere."""

    def __init__(self, version: str, *names: bytes) -> None:
        self.names = [ctypes.create_string_buffer(name, 24) for name in names]
        addresses = [ctypes.addressof(name) for name in self.names]
        self.words = (ctypes.c_uint64 * 512)(0, 1, 2**64 - 1, 0xDEAD0000, *addresses, 7)
        self.device = SimpleNamespace(version=version, int_ptr=ctypes.addressof(self.words))

    def told(self) -> list[bytes]:
        """What the device's words point to; what they pointed to before is as it was."""
        return [ctypes.string_at(self.words[4 + number]) for number in range(len(self.names))]


def text(features: frozenset[str]) -> str:
    return ",".join(f"+{feature}" for feature in sorted(features))


@pytest.fixture
def features(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def have(text: str) -> None:
        from stridesmith.backends import host

        monkeypatch.setattr(host, "host_cpu", lambda: SimpleNamespace(features=text))

    return have


@pytest.mark.parametrize(
    ("has", "given", "name"),
    [
        (text(processor_name.AVX512 | {"sse4a"}), b"generic", b"skylake-avx512"),
        (text(processor_name.AVX512), b"znver3", b"skylake-avx512"),
        (text(processor_name.AVX2), b"generic", b"znver3"),
        ("+avx2,+fma,-bmi", b"generic", b"x86-64"),
    ],
)
def test_the_name_is_one_that_the_processor_can_run(
    has: str, given: bytes, name: bytes, features: Callable[[str], None]
) -> None:
    """The one name is replaced, what is beside it stays."""
    features(has)
    made = Made(POCL + given.decode(), given, b"pthread", given + b"-more")
    assert processor_name.is_wrong(made.device) and not processor_name.is_renamed(made.device)
    for _ in range(2):
        processor_name.rename(made.device)
        assert made.told() == [name, b"pthread", given + b"-more"]
        assert processor_name.is_renamed(made.device)
    assert made.names[0].value == given


@pytest.mark.parametrize(
    ("version", "names"),
    [
        (POCL + "znver3", [b"znver3"]),
        (POCL + "znver4", [b"znver4"]),
        ("OpenCL 3.0 other: x86_64-unknown-linux-gnu-generic", [b"generic"]),
        ("OpenCL 3.0 (Build 0)", [b"generic"]),
        (POCL.replace("x86_64", "aarch64") + "generic", [b"generic"]),
        (POCL + "generic", [b"generic", b"generic"]),
        (POCL + "generic", [b"znver3"]),
    ],
)
def test_everything_else_is_left_alone(version: str, names: list[bytes], features: Callable[[str], None]) -> None:
    """Another driver, a name that is right, and a device object in which it is not clear where the name stands."""
    features(text(processor_name.AVX2))
    made = Made(version, *names)
    processor_name.rename(made.device)
    assert made.told() == names


@pytest.mark.parametrize("version", [POCL + "znver3", "OpenCL 1.2 pocl: pthread-x86_64-pc-linux-gnu-znver3"])
def test_builds_of_distributions_are_known(version: str, features: Callable[[str], None]) -> None:
    """They have another triple, and another spelling."""
    features(text(processor_name.AVX512))
    made = Made(version, b"znver3")
    processor_name.rename(made.device)
    assert made.told() == [b"skylake-avx512"]


def test_where_memory_cannot_be_opened_the_name_stays(
    monkeypatch: pytest.MonkeyPatch, features: Callable[[str], None]
) -> None:
    """A sandbox may forbid it; the device is as it was, and known not to be renamed."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise PermissionError("/proc/self/mem")

    features(text(processor_name.AVX512))
    made = Made(POCL + "znver3", b"znver3")
    monkeypatch.setattr("builtins.open", refuse)
    processor_name.rename(made.device)
    assert made.told() == [b"znver3"] and not processor_name.is_renamed(made.device)


def test_other_software_gets_right_results_too() -> None:
    """In a process that leaves PoCL its name, what was written for it calls no built-in function with 512 bits."""
    pytest.importorskip("pyopencl")
    from stridesmith.backends.lower import lower
    from stridesmith.backends.render.opencl.program import generate
    from stridesmith.ir.script.parser import parse
    from stridesmith.ir.stmt import PrimFunc
    from stridesmith.ir.target import POCL as PLATFORM
    from stridesmith.ir.target import Target

    func = parse("""@T.prim_func
def f(A: T.Buffer((32,)), B: T.Buffer((32,), "int32"), C: T.Buffer((32,))):
    for i in range(2):
        for v in T.vectorized(16):
            C[i * 16 + v] = T.pow(T.sqrt(A[i * 16 + v]), T.cast(T.abs(B[i * 16 + v]), "float32"))
""")
    assert isinstance(func, PrimFunc)
    target = Target(kind="opencl", platform=PLATFORM, name="cpu", vector_bits=512)
    source = generate(lower(func, target), target)
    text = source.text
    assert "sqrt(a.lo), sqrt(a.hi)" in text and "pow(a.lo, b.lo)" in text and "abs(a.lo)" in text
    assert "convert_float8(a.lo)" in text
    program = PLAIN.format(text=text, name=source.launches[0].kernel)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split()[-1] in ("none", "right")


def test_this_machines_pocl_compiles() -> None:
    """Whatever the processor is, the driver builds a program for it, and knows how vectors of it are handed over."""
    cl = pytest.importorskip("pyopencl")
    from stridesmith.backends.opencl import devices, drivers

    found: list[Any] = [d for p in devices._platforms() for d in devices._devices(p) if "PoCL" in str(p.version)]
    if not found:
        pytest.skip("no PoCL is installed")
    if not drivers.has_linker():
        pytest.skip("there is no linker on this machine")
    if processor_name.is_wrong(found[0]):
        assert processor_name.is_renamed(found[0])
    context = cl.Context(found[:1])
    queue = cl.CommandQueue(context)
    source = "kernel void roots(global float16 *x) { x[get_global_id(0)] = sqrt(x[get_global_id(0)]); }"
    program = cl.Program(context, source).build()
    data = np.arange(64, dtype=np.float32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=data)
    program.roots(queue, (4,), None, buffer)
    got = np.empty_like(data)
    cl.enqueue_copy(queue, got, buffer)
    np.testing.assert_allclose(got, np.sqrt(data), rtol=1e-6)
