"""Chains of OpenCL programs: one context, and buffers that stay on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from ..executable import Call, Chain, Memory, Place
from ..images import image_shape, is_image
from .failures import on_device, on_threads_of_driver
from .images import make_image
from .pool_launches import PoolLaunches, Shared, shared_memory
from .runtime import Home, OpenCLExecutable, home_of
from .wait import wait

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 512
"""Devices ask for sub-buffers that begin at a multiple of CL_DEVICE_MEM_BASE_ADDR_ALIGN: 128 bytes on CPUs, 512 on
NVIDIA's GPUs, the most that is known."""


@on_device
def load_opencl_chain(calls: Sequence[Call], blocks: Sequence[int]) -> Chain:
    """Programs that share `blocks` of memory of so many bytes each: on stridesmith's threads, else on the driver's."""
    home = home_of([call.artifact for call in calls])
    return (PoolChain if home.threads else QueueChain)(home, calls, blocks)


class _Programs:
    """Programs of a chain that were loaded.

    Programs of one source may differ in how many work-groups they start and in their arguments, which the source does
    not tell: only calls that agree in all of it share one.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._loaded: dict[str, OpenCLExecutable] = {}

    def of(self, call: Call) -> OpenCLExecutable:
        """The loaded program of a call.  Raises ValueError for another number of places than it has buffers."""
        artifact = call.artifact
        launches = [{key: value for key, value in launch.items() if key != "binary"} for launch in artifact["launches"]]
        key = repr((artifact["code"], launches, artifact["params"], artifact["workspaces"]))
        if key not in self._loaded:
            self._loaded[key] = OpenCLExecutable(artifact, self._home)
        found = self._loaded[key]
        if len(call.places) != len(found.memories):
            raise ValueError(f"`{call.artifact['entry']}` takes other buffers than {len(call.places)} places")
        return found


class PoolChain(Chain):
    """Launches in one native call, over memory that the host and the pool's threads share."""

    def __init__(self, home: Home, calls: Sequence[Call], blocks: Sequence[int]) -> None:
        programs = _Programs(home)
        self._blocks = [shared_memory(home.context, size) for size in blocks]
        steps = [self._step(programs.of(call), call) for call in calls]
        self._launches = PoolLaunches(home.context, home.threads, [launch for step in steps for launch in step])
        self._ends = [0, *accumulate(map(len, steps))]

    def write(self, place: Place, data: NDArray[Any]) -> None:
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._blocks[place.block][place.offset : place.offset + len(flat)] = flat

    def read(self, place: Place, nbytes: int) -> NDArray[np.uint8]:
        return self._blocks[place.block][place.offset : place.offset + nbytes].copy()

    @on_device
    def run(self, first: int = 0, last: int | None = None) -> None:
        ends = self._ends[first:] if last is None else self._ends[first : last + 1]
        self._launches.run(ends[0], ends[-1])

    @on_device
    def profile(self, first: int = 0, last: int | None = None) -> list[float]:
        found = []
        for step in range(len(self._ends) - 1)[first:last]:
            start = time.perf_counter()
            self._launches.run(self._ends[step], self._ends[step + 1])
            found.append(time.perf_counter() - start)
        return found

    def _step(self, executable: OpenCLExecutable, call: Call) -> list[Shared]:
        parts = [self._part(*item) for item in zip(call.places, executable.memories, strict=True)]
        return [Shared(executable.program, launch, [parts[k] for k in launch.args]) for launch in executable.launches]

    def _part(self, place: Place, memory: Memory) -> NDArray[np.uint8]:
        """The bytes of a memory at a place.  Raises ValueError where they are not in the block."""
        part = self._blocks[place.block][place.offset : place.offset + max(memory.nbytes, 1)]
        if part.nbytes < memory.nbytes:
            raise ValueError(f"`{memory.name}` ends {memory.nbytes - part.nbytes} bytes behind block {place.block}")
        return part


class QueueChain(Chain):
    """Programs with their arguments set to parts of shared buffers, on an in-order queue."""

    def __init__(self, home: Home, calls: Sequence[Call], blocks: Sequence[int]) -> None:
        self._platform = home.context.devices[0].platform.name
        self._home, self.queue = home, cl.CommandQueue(home.context)
        flags = cl.mem_flags.READ_WRITE
        self.blocks = [cl.Buffer(home.context, flags, size=max(size, 1)) for size in blocks]
        self._parts: dict[tuple[Place, int], Any] = {}
        programs = _Programs(home)
        self._steps = [self._step(programs.of(call), call) for call in calls]

    @on_threads_of_driver
    def write(self, place: Place, data: NDArray[Any]) -> None:
        flat = np.ascontiguousarray(data)
        if flat.nbytes:
            cl.enqueue_copy(self.queue, self.blocks[place.block], flat, dst_offset=place.offset, is_blocking=True)

    @on_threads_of_driver
    def read(self, place: Place, nbytes: int) -> NDArray[np.uint8]:
        result = np.empty(nbytes, np.uint8)
        if nbytes:
            cl.enqueue_copy(self.queue, result, self.blocks[place.block], src_offset=place.offset, is_blocking=True)
        return result

    @on_threads_of_driver
    def run(self, first: int = 0, last: int | None = None) -> None:
        end = None
        for step in self._steps[first:last]:
            end = step()
        wait(self.queue, end, self._platform)

    @on_threads_of_driver
    def profile(self, first: int = 0, last: int | None = None) -> list[float]:
        found = []
        for step in self._steps[first:last]:
            start = time.perf_counter()
            wait(self.queue, step(), self._platform)
            found.append(time.perf_counter() - start)
        return found

    def _step(self, executable: OpenCLExecutable, call: Call) -> Callable[[], Any]:
        """What enqueues a program's launches, images of written memory refreshed before."""
        memories = executable.memories
        parts = [self._part(place, memory) for place, memory in zip(call.places, memories, strict=True)]
        images = {
            k: make_image(executable.context, m.shape, m.dtype) for k, m in enumerate(memories) if is_image(m.scope)
        }
        kernels = []
        for launch in executable.launches:
            kernel = cl.Kernel(executable.program, launch.kernel)
            own = (images[k] if k in launch.images else parts[k] for k in launch.args)
            kernel.set_args(*own, *map(np.int64, launch.values))
            kernels.append((launch, kernel))
        given = {k for k in images if k < len(executable.params)}

        def step() -> Any:
            last = None  # of a program that stores nothing
            for k in given:
                self._refresh(images[k], parts[k], memories[k])
            for launch, kernel in kernels:
                for k in launch.stale:
                    self._refresh(images[k], parts[k], memories[k])
                last = cl.enqueue_nd_range_kernel(self.queue, kernel, launch.global_size, launch.local_size)
            return last

        return step

    def _refresh(self, image: Any, part: Any, memory: Memory) -> None:
        """Copy linear memory to its image."""
        cl.enqueue_copy(self.queue, image, part, offset=0, origin=(0, 0), region=image_shape(memory.shape))

    def _part(self, place: Place, memory: Memory) -> Any:
        """The memory at a place as a buffer of its own."""
        key = place, max(memory.nbytes, 1)
        if key not in self._parts:
            self._parts[key] = self.blocks[place.block].get_sub_region(place.offset, key[1])
        return self._parts[key]
