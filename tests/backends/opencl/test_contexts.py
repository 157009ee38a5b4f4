"""A GPU's programs share a context in each process, until the device fails in it."""

from __future__ import annotations

from types import SimpleNamespace

import pyopencl as cl
import pytest

from stridesmith.backends.opencl import contexts, failures


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The contexts that are made, which are no real ones."""
    found: list[object] = []

    def context(devices: list[object]) -> object:
        found.append(SimpleNamespace(devices=devices))
        return found[-1]

    monkeypatch.setattr(cl, "Context", context)
    monkeypatch.setattr(contexts, "_held", {})
    return found


class Device:
    """Something of a type."""

    def __init__(self, kind: int) -> None:
        self.type = kind


def test_a_gpu_has_one_context_and_a_cpu_one_for_each_program(made: list[object]) -> None:
    """Another GPU has its own."""
    gpu, other, cpu = Device(cl.device_type.GPU), Device(cl.device_type.GPU), Device(cl.device_type.CPU)
    assert contexts.context_of(gpu) is contexts.context_of(gpu)
    assert contexts.context_of(other) is not contexts.context_of(gpu)
    assert contexts.context_of(cpu) is not contexts.context_of(cpu)
    assert len(made) == 4


def test_after_an_error_of_the_driver_there_is_a_new_one(made: list[object]) -> None:
    """Some errors make a driver refuse all that comes later in the same context."""
    gpu = Device(cl.device_type.GPU)
    first = contexts.context_of(gpu)

    @failures.on_device
    def fails() -> None:
        cl.wait_for_events([])  # an empty list is no valid value

    with pytest.raises(cl.Error):
        fails()
    assert contexts.context_of(gpu) is not first and len(made) == 2
