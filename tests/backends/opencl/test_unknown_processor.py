"""A processor that PoCL's compiler knows no name for gets one; other devices are left as they are."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stridesmith.backends.opencl import unknown_processor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads memory as Linux offers it")

POCL = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-generic"


class Made:
    """A device object of words, some of which point to names and some to nowhere."""

    def __init__(self, version: str, *names: bytes) -> None:
        self.names = [ctypes.create_string_buffer(name, 24) for name in names]
        addresses = [ctypes.addressof(name) for name in self.names]
        words = [0, 1, 2**64 - 1, 0xDEAD0000, *addresses, 7, *addresses[:1]]
        self.words = (ctypes.c_uint64 * 512)(*words)
        self.device = SimpleNamespace(version=version, int_ptr=ctypes.addressof(self.words))

    def told(self) -> list[bytes]:
        return [name.value for name in self.names]


@pytest.fixture
def features(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def have(text: str) -> None:
        from stridesmith.backends import host

        monkeypatch.setattr(host, "host_cpu", lambda: SimpleNamespace(features=text))

    return have


@pytest.mark.parametrize(
    ("has", "name"),
    [(",".join(f"+{f}" for f in sorted(unknown_processor.NEEDED)), b"znver3"), ("+avx2,+fma,-bmi", b"x86-64")],
)
def test_the_name_is_one_that_the_processor_can_run(has: str, name: bytes, features: Callable[[str], None]) -> None:
    """The one name is replaced, what is beside it stays."""
    features(has)
    made = Made(POCL, b"generic", b"pthread", b"generic-more")
    unknown_processor.give_name(made.device)
    assert made.told() == [name, b"pthread", b"generic-more"]
    unknown_processor.give_name(made.device)
    assert made.told() == [name, b"pthread", b"generic-more"]


@pytest.mark.parametrize(
    ("version", "names"),
    [
        (POCL.replace("generic", "znver3"), [b"generic"]),
        ("OpenCL 3.0 (Build 0)", [b"generic"]),
        (POCL.replace("x86_64", "aarch64"), [b"generic"]),
        (POCL, [b"generic", b"generic"]),
        (POCL, [b"znver3"]),
    ],
)
def test_everything_else_is_left_alone(version: str, names: list[bytes]) -> None:
    """Another driver, another processor, and a device object in which it is not clear where the name stands."""
    made = Made(version, *names)
    unknown_processor.give_name(made.device)
    assert made.told() == names


def test_this_machines_pocl_compiles() -> None:
    """Whatever the processor is, the driver builds a program for it."""
    cl = pytest.importorskip("pyopencl")
    from stridesmith.backends.opencl import devices

    found: list[Any] = [d for p in devices._platforms() for d in devices._devices(p) if "PoCL" in str(p.version)]
    if not found:
        pytest.skip("no PoCL is installed")
    source = "kernel void twice(global float *x) { x[get_global_id(0)] *= 2; }"
    assert cl.Program(cl.Context(found[:1]), source).build().kernel_names == "twice"
