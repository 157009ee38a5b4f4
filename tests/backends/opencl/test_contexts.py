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


class Error(cl.Error):
    """An error of a driver with a code."""

    def __init__(self, code: int) -> None:
        Exception.__init__(self, f"error {code}")
        self._code = code

    @property
    def code(self) -> int:
        return self._code


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


@pytest.mark.parametrize(
    ("code", "is_new"),
    [("INVALID_COMMAND_QUEUE", True), ("OUT_OF_RESOURCES", True), ("INVALID_VALUE", False), ("INVALID_KERNEL", False)],
)
def test_after_an_error_that_breaks_a_context_there_is_a_new_one(made: list[object], code: str, is_new: bool) -> None:
    """A question that was wrong leaves it as it is."""
    gpu = Device(cl.device_type.GPU)
    first = contexts.context_of(gpu)
    failures.meaning(Error(getattr(cl.status_code, code)))
    assert (contexts.context_of(gpu) is not first) is is_new and len(made) == 1 + is_new


def test_questions_keep_no_context(made: list[object]) -> None:
    """They use what programs have, or one of their own."""
    gpu = Device(cl.device_type.GPU)
    assert contexts.context_to_ask(gpu) is not contexts.context_to_ask(gpu)
    held = contexts.context_of(gpu)
    assert contexts.context_to_ask(gpu) is held is contexts.context_of(gpu)
