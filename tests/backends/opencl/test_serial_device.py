"""PoCL's second device, which runs programs of single work-groups in the calling thread."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
import pytest
from opencl_programs import GENERIC, bound, device, fresh, lowered

cl = pytest.importorskip("pyopencl")

from stridesmith.backends.opencl import drivers, serial_device  # noqa: E402
from stridesmith.backends.opencl.binary import POCL  # noqa: E402
from stridesmith.backends.opencl.devices import device_of  # noqa: E402
from stridesmith.backends.opencl.runtime import OpenCLExecutable, write_opencl  # noqa: E402
from stridesmith.backends.opencl.source import generate  # noqa: E402
from stridesmith.ir.expr import Buffer, Var  # noqa: E402
from stridesmith.ir.stmt import For, Stmt, Store  # noqa: E402

I = Var("i")  # noqa: E741
N = 96


def doubling(*notes: tuple[str, Any]) -> tuple[Stmt, Buffer, Buffer]:
    """A loop over work-groups that doubles elements, annotated."""
    a, out = Buffer("a", (N,)), Buffer("out", (N,))
    body = bound(I, N, "blockIdx.x", Store(out, (I,), a[I] * 2.0))
    assert isinstance(body, For)
    return replace(body, annotations=notes), a, out


def test_a_loop_for_one_thread_is_a_loop_of_one_work_group() -> None:
    """Any other number of threads, and no annotation, leave a work-group for each iteration."""
    for notes, groups in (((("threads", 1),), 1), ((("threads", 2),), N), ((), N)):
        source = generate(lowered(*doubling(*notes)), GENERIC)
        (launch,) = source.launches
        assert launch.global_size == (groups, 1, 1) and launch.is_single == (groups == 1)
        assert (f"i < {N}" in source.text) == (groups == 1) and ("get_group_id" in source.text) == (groups > 1)


@pytest.mark.parametrize("notes", [(("threads", 1),), ()], ids=["one", "all"])
def test_single_work_groups_run_in_the_calling_thread(notes: tuple[tuple[str, Any], ...]) -> None:
    """Where PoCL has the device for it; the result is the same, and programs of several groups stay on all threads."""
    target = device()
    if target is None or not target.runs_in_caller:
        pytest.skip("the device does not run programs in the calling thread")
    executable = OpenCLExecutable(write_opencl(lowered(*doubling(*notes)), target))
    first = device_of(target)
    assert executable.device == (serial_device.twin(first) if notes else first)
    kernel, x = executable.bind(), np.random.default_rng(0).standard_normal(N).astype(np.float32)
    kernel.write(0, x)
    kernel.write(1, fresh(Buffer("out", (N,))))
    kernel.run()
    np.testing.assert_array_equal(kernel.read(1), x * 2)


def test_in_a_queue_that_programs_share_all_run_on_its_device() -> None:
    """The buffers of a network are there."""
    target = device()
    if target is None or not target.runs_in_caller:
        pytest.skip("the device does not run programs in the calling thread")
    queue = cl.CommandQueue(cl.Context([device_of(target)]))
    executable = OpenCLExecutable(write_opencl(lowered(*doubling(("threads", 1))), target), queue)
    assert executable.device == device_of(target)


LISTED = """
import os
{before}
from stridesmith.backends.opencl.devices import match_opencl
target = match_opencl("pocl")
import pyopencl as cl
(platform,) = [p for p in cl.get_platforms() if p.name == "{pocl}"]
listed = [d.name.split("-")[0] for d in platform.get_devices()]
context = cl.create_some_context(interactive=False)
print(target.runs_in_caller, *listed, len(context.devices), os.environ.get("POCL_DEVICES"))
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", "True pthread 1 None"),
        ("import pyopencl; [p.get_devices() for p in pyopencl.get_platforms()]", "False pthread 1 None"),
        ("os.environ['POCL_DEVICES'] = 'pthread'", "False pthread 1 pthread"),
    ],
    ids=["first", "listed before", "set by the user"],
)
def test_other_software_sees_one_device(before: str, expected: str) -> None:
    """The second one is in no list of pyopencl, and nothing of it in the environment that processes inherit."""
    found = device()
    if found is None or found.platform != POCL or not serial_device._is_ours():
        pytest.skip("the driver is not the PoCL that comes with stridesmith")
    code = LISTED.format(before=before, pocl=POCL)
    env = {k: v for k, v in os.environ.items() if k not in ("POCL_DEVICES", "PYOPENCL_CTX")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=env)
    assert done.stdout.split() == expected.split(), done.stderr


@pytest.mark.parametrize(
    ("version", "files"), [("4.0", {}), (None, {}), ("3.0", {"pocl.icd": "/usr/lib/libpocl.so.2"})]
)
def test_another_pocl_is_asked_for_nothing(
    version: str | None, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later ones have other names for their devices, and the system's may have devices of other kinds."""

    def find(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", find)
    monkeypatch.setattr(drivers, "system_files", lambda: files)
    monkeypatch.setattr(serial_device, "_twins", [])
    monkeypatch.delenv("POCL_DEVICES", raising=False)
    seen: list[str | None] = []
    monkeypatch.setattr(cl, "get_platforms", lambda: seen.append(os.environ.get("POCL_DEVICES")) or [])
    assert serial_device.platforms() == [] and seen == [None]
