"""Kernels on stridesmith's own threads, each of which has a queue that runs them in the thread that launches."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
import pytest
from opencl_programs import GENERIC, bound, device, fresh, lowered

cl = pytest.importorskip("pyopencl")

from stridesmith.backends.executable import Call, Place  # noqa: E402
from stridesmith.backends.opencl import calling_thread, drivers, pool_launches  # noqa: E402
from stridesmith.backends.opencl.chain import PoolChain, QueueChain, load_opencl_chain  # noqa: E402
from stridesmith.backends.opencl.failures import error_of  # noqa: E402
from stridesmith.backends.opencl.pool_bound import PoolBound  # noqa: E402
from stridesmith.backends.opencl.runtime import OpenCLBound, OpenCLExecutable, home_of, write_opencl  # noqa: E402
from stridesmith.backends.render.opencl.program import generate  # noqa: E402
from stridesmith.errors import DeviceLost, DeviceMissing  # noqa: E402
from stridesmith.ir.expr import Buffer, Cast, Var  # noqa: E402
from stridesmith.ir.stmt import For, Stmt, Store, seq  # noqa: E402
from stridesmith.ir.target import (  # noqa: E402
    POCL,
    THREAD_POOL,
    Target,
)

POOLED = replace(GENERIC, features=f"{GENERIC.features} {THREAD_POOL}")
I, J, K, T = (Var(name) for name in "ijkt")  # noqa: E741
N = 96


def pooled() -> list[Target]:
    """The devices here whose kernels run on stridesmith's threads, one of each driver."""
    try:
        from stridesmith.backends.opencl.devices import selectors

        return [target for _, target, _ in selectors() if target.has_thread_pool]
    except (ImportError, DeviceMissing):
        return []


needs_pool = pytest.mark.parametrize("target", pooled(), ids=lambda target: target.platform.split()[0])


def doubling(*notes: tuple[str, Any], count: int = N) -> tuple[Stmt, Buffer, Buffer]:
    """A loop over work-groups that doubles elements, annotated."""
    a, out = Buffer("a", (count,)), Buffer("out", (count,))
    body = bound(I, count, "blockIdx.x", Store(out, (I,), a[I] * 2.0))
    assert isinstance(body, For)
    return replace(body, annotations=notes), a, out


def grid(extents: Sequence[int], items: int = 1) -> tuple[Stmt, Buffer, Buffer]:
    """Loops over work-groups along z, y and x, of several items each, that add where they are to an element."""
    depth, height, width = extents
    size = depth * height * width * items
    a, out = Buffer("a", (size,)), Buffer("out", (size,))
    place = ((K * height + J) * width + I) * items + T
    body: Stmt = Store(out, (place,), a[place] + Cast("float32", K * 10000 + J * 100 + I))
    bounds = ((T, items, "threadIdx.x"), (I, width, "blockIdx.x"), (J, height, "blockIdx.y"), (K, depth, "blockIdx.z"))
    for var, extent, thread in bounds:
        body = bound(var, extent, thread, body)
    return body, a, out


def test_a_loop_for_one_thread_is_a_loop_of_one_work_group() -> None:
    """Any other number of threads, and no annotation, leave a work-group for each iteration."""
    for notes, groups in (((("threads", 1),), 1), ((("threads", 2),), N), ((), N)):
        for target in (GENERIC, POOLED):
            source = generate(lowered(*doubling(*notes)), target)
            (launch,) = source.launches
            assert launch.groups == groups and launch.is_single == (groups == 1)
            assert (f"i < {N}" in source.text) == (groups == 1) and ("get_group_id" in source.text) == (groups > 1)
            assert launch.threads == (dict(notes).get("threads", 0))


def test_work_groups_are_numbered_where_threads_share_them() -> None:
    """One axis of them, that begins at the offset of a launch; elsewhere there are three."""
    program = lowered(*grid((2, 3, 5), 4))
    (launch,) = generate(program, GENERIC).launches
    assert launch.global_size == (20, 3, 2)
    source = generate(program, POOLED)
    (launch,) = source.launches
    assert launch.global_size == (120, 1, 1) and launch.local_size == (4, 1, 1)
    number = "(long)(get_group_id(0) + get_global_offset(0) + get_global_offset(1) * 32768)"
    for text in (f"group = {number};", "i = group % 5;", "j = group / 5 % 3;", "k = group / 15;"):
        assert text in source.text


@needs_pool
@pytest.mark.parametrize("items", [1, 4])
@pytest.mark.parametrize("extents", [(1, 1, 7), (1, 5, 1), (3, 1, 4), (2, 3, 5), (1, 1, 1)])
def test_every_work_group_runs_once(target: Target, extents: tuple[int, ...], items: int) -> None:
    """Along any axes, with several items, in several calls."""
    body, a, out = grid(extents, items)
    executable = OpenCLExecutable(write_opencl(lowered(body, a, out), target))
    kernel = executable.bind(guard_bytes=256)
    assert isinstance(kernel, PoolBound)
    kernel.poison_guards(b"\x5a")
    x = np.random.default_rng(0).standard_normal(a.shape).astype(np.float32)
    kernel.write(0, x)
    where = np.zeros((*extents, items), np.float32)
    for axis, factor in enumerate((10000, 100, 1)):
        where += factor * np.arange(extents[axis], dtype=np.float32).reshape([-1 if k == axis else 1 for k in range(4)])
    for _ in range(3):
        kernel.write(1, fresh(out))
        kernel.run()
        np.testing.assert_array_equal(kernel.read(1), x + where.reshape(-1))
    assert kernel.guards_intact() and kernel.time(2) > 0


@needs_pool
@pytest.mark.parametrize(("groups", "items"), [(200_000, 1), (40_000, 3), (33_000, 6)])
def test_long_grids_are_launched_in_parts(target: Target, groups: int, items: int) -> None:
    """PoCL compiles a kernel anew for more work-items along an axis, and takes offsets for less than 2 ** 16."""
    body, a, out = grid((1, 1, groups), items)
    kernel = OpenCLExecutable(write_opencl(lowered(body, a, out), target)).bind()
    assert isinstance(kernel, PoolBound)
    record = kernel._launches._records["record"][0]
    assert record["most"] * items < 2**16 - 1 and record["most"] < groups
    kernel.write(0, np.zeros(a.shape, np.float32))
    for _ in range(8):  # ranges get shorter
        kernel.write(1, fresh(out))
        kernel.run()
        np.testing.assert_array_equal(kernel.read(1), np.repeat(np.arange(groups, dtype=np.float32), items))


@needs_pool
def test_kernels_run_at_the_same_time(target: Target) -> None:
    """Of two Python threads: one has the pool, the other one computes alone."""
    x = np.arange(N, dtype=np.float32)
    executable = OpenCLExecutable(write_opencl(lowered(*doubling()), target))
    kernels = [executable.bind() for _ in range(3)]
    wrong: list[int] = []

    def run(number: int) -> None:
        kernel = kernels[number]
        for round_ in range(200):
            kernel.write(0, x + round_)
            kernel.run()
            if not np.array_equal(kernel.read(1), 2 * (x + round_)):
                wrong.append(round_)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(kernels))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_pool
def test_a_chain_runs_any_of_its_programs(target: Target) -> None:
    """From one on, and up to one, each with several kernels; a place that is not in its block is refused."""
    body, a, out = doubling()
    twice = Buffer("twice", (N,))
    both = seq([body, bound(J, N, "blockIdx.x", Store(twice, (J,), out[J] + 1.0))])
    artifact = write_opencl(lowered(both, a, out, twice), target)
    assert len(artifact["launches"]) == 2
    first = Call(artifact, (Place(0, 0), Place(1, 0), Place(1, 4 * N)))
    second = Call(artifact, (Place(1, 4 * N), Place(2, 0), Place(0, 0)))
    chain = load_opencl_chain([first, second], [4 * N, 8 * N, 4 * N])
    assert isinstance(chain, PoolChain)

    def run(*which: int) -> np.ndarray:
        chain.write(Place(0, 0), np.arange(N, dtype=np.float32))
        chain.write(Place(1, 4 * N), np.ones(N, np.float32))
        chain.run(*which)
        return chain.read(Place(0, 0), 4 * N).view(np.float32)

    x = np.arange(N)
    np.testing.assert_array_equal(run(), 4 * x + 3)
    np.testing.assert_array_equal(run(1), np.full(N, 3))
    np.testing.assert_array_equal(run(0, 1), x)
    np.testing.assert_array_equal(chain.read(Place(1, 4 * N), 4 * N).view(np.float32), 2 * x + 1)
    assert len(chain.profile()) == 2 and len(chain.profile(1)) == 1
    with pytest.raises(ValueError, match="behind block 0"):
        load_opencl_chain([Call(artifact, (Place(0, 4), Place(1, 0), Place(1, 4 * N)))], [4 * N, 8 * N])


@needs_pool
@pytest.mark.parametrize("pooled", [True, False], ids=["pool", "queue"])
@pytest.mark.parametrize("sizes", [(N, 2 * N), (2 * N, N)])
def test_a_chain_tells_programs_of_one_source_apart(target: Target, pooled: bool, sizes: tuple[int, int]) -> None:
    """A source does not say how many work-groups there are: each call runs as many as its own program has."""
    home = target if pooled else replace(target, features=target.features.replace(THREAD_POOL, ""))
    artifacts = [write_opencl(lowered(*doubling(count=count)), home) for count in sizes]
    assert artifacts[0]["code"] == artifacts[1]["code"]
    calls = [Call(artifact, (Place(2 * k, 0), Place(2 * k + 1, 0))) for k, artifact in enumerate(artifacts)]
    chain = load_opencl_chain(calls, [4 * size + 4 * N for size in sizes for _ in range(2)])
    assert isinstance(chain, PoolChain if pooled else QueueChain)
    for k, size in enumerate(sizes):
        chain.write(Place(2 * k, 0), np.arange(size + N, dtype=np.float32))
        chain.write(Place(2 * k + 1, 0), np.full(size + N, -1, np.float32))
    chain.run()
    for k, size in enumerate(sizes):
        found = chain.read(Place(2 * k + 1, 0), 4 * (size + N)).view(np.float32)
        np.testing.assert_array_equal(found, [*(2.0 * np.arange(size)), *[-1] * N])


@needs_pool
def test_a_chain_tells_arguments_apart(target: Target) -> None:
    """Nor does it say which of a program's memories a kernel works on."""
    body, a, out = doubling()
    unused = Buffer("unused", (N,))
    orders = ((a, unused, out), (a, out, unused))
    artifacts = [write_opencl(lowered(body, *order), target) for order in orders]
    assert artifacts[0]["code"] == artifacts[1]["code"]
    places = tuple(Place(block, 0) for block in range(3))
    chain = load_opencl_chain([Call(artifact, places) for artifact in artifacts], [4 * N] * 3)
    chain.write(places[0], np.arange(N, dtype=np.float32))
    chain.run()
    for place in places[1:]:
        np.testing.assert_array_equal(chain.read(place, 4 * N).view(np.float32), 2 * np.arange(N))


@needs_pool
def test_kernels_are_compiled_in_one_form(target: Target, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever range of work-groups a thread gets, and for one of them, too."""
    if target.platform != POCL:
        pytest.skip("other drivers compile kernels before they are launched")
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    code = """
import numpy as np
from test_thread_pool import *
target = device()
for program in (doubling(), doubling(("threads", 1)), grid((2, 3, 5), 4)):
    executable = OpenCLExecutable(write_opencl(lowered(*program), target))
    executable.specialise()
    kernel = executable.bind()
    for _ in range(20):
        kernel.run()
"""
    paths = [os.path.dirname(__file__), *sys.path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=env)
    assert len(list(tmp_path.glob("*/*/*/*/*.so"))) == 3


@needs_pool
def test_a_program_with_images_runs_on_the_threads_of_the_driver(target: Target) -> None:
    """Images are no memory that devices share; programs of a chain stay together."""
    artifact = write_opencl(lowered(*doubling()), target)
    places = (Place(0, 0), Place(1, 0))
    assert isinstance(load_opencl_chain([Call(artifact, places)], [4 * N, 4 * N]), PoolChain)
    plain = write_opencl(lowered(*doubling()), target)
    artifact["launches"][0]["images"] = [0]
    assert home_of([plain]).threads == target.threads and home_of([plain, artifact]).threads == 0
    assert isinstance(load_opencl_chain([], [16]), QueueChain)


@needs_pool
def test_a_source_that_numbers_no_work_groups_runs_on_the_threads_of_the_driver(target: Target) -> None:
    """As one does that was written where no pool was known; one for the pool computes the same there."""
    without = replace(target, features=target.features.replace(THREAD_POOL, ""))
    for known, first in ((without, without), (target, without)):
        body, a, out = grid((2, 3, 5), 4)
        artifact = write_opencl(lowered(body, a, out), known)
        artifact["target"] = first.to_json()
        kernel = OpenCLExecutable(artifact).bind()
        assert isinstance(kernel, OpenCLBound)
        kernel.write(0, np.zeros(a.shape, np.float32))
        kernel.run()
        where = [10000 * k + 100 * j + i for k in range(2) for j in range(3) for i in range(5) for _ in range(4)]
        np.testing.assert_array_equal(kernel.read(1), where)


@needs_pool
def test_errors_of_the_driver_come_back(target: Target) -> None:
    """Work-groups of a size that the kernel does not have: the call ends with the error, the next one works."""
    kernel = OpenCLExecutable(write_opencl(lowered(*doubling()), target)).bind()
    assert isinstance(kernel, PoolBound)
    records = kernel._launches._records
    sizes = records["record"]["local"].copy()
    records["record"]["local"][0, 0] = 3  # the kernel asks for work-groups of one item
    with pytest.raises(RuntimeError, match="INVALID_WORK_GROUP_SIZE"):
        kernel.run()
    records["record"]["local"][:] = sizes
    kernel.run()


def test_what_error_codes_mean() -> None:
    """As with the errors that pyopencl raises."""
    assert isinstance(error_of(cl.status_code.DEVICE_NOT_AVAILABLE), DeviceLost)
    assert isinstance(error_of(cl.status_code.OUT_OF_RESOURCES), MemoryError)
    assert type(error_of(cl.status_code.INVALID_KERNEL)) is RuntimeError
    assert "number -9999" in str(error_of(-9999))


def test_records_are_what_the_native_code_takes_them_for() -> None:
    """Sixteen words of a launch, eight of a slot, which are a cache line."""
    assert pool_launches.RECORD.itemsize == 16 * 8 and pool_launches.SLOT.itemsize == 64
    names = ("groups", "range", "threads", "most", "error", "slots", "local")
    fields = pool_launches.RECORD.fields
    assert fields is not None and [fields[name][1] for name in names] == [8 * k for k in range(7)]


LISTED = """
import os
{before}
from stridesmith.backends.opencl.devices import match_opencl
target = match_opencl("pocl")
import pyopencl as cl
(platform,) = [p for p in cl.get_platforms() if p.name == "{pocl}"]
listed = [d.name.split("-")[0] for d in platform.get_devices()]
context = cl.create_some_context(interactive=False)
print(target.has_thread_pool, *listed, len(context.devices), os.environ.get("POCL_DEVICES"))
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
    """Those of the pool are in no list of pyopencl, and nothing of them in the environment that processes inherit."""
    found = device()
    if found is None or found.platform != POCL or not calling_thread.is_ours():
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
    monkeypatch.setattr(calling_thread, "_both", [])
    monkeypatch.delenv("POCL_DEVICES", raising=False)
    seen: list[str | None] = []
    monkeypatch.setattr(cl, "get_platforms", lambda: seen.append(os.environ.get("POCL_DEVICES")) or [])
    assert calling_thread.platforms() == [] and seen == [None]
