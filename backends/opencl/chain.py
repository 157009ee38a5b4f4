"""Chains of OpenCL programs: one context, one in-order queue, buffers that stay on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from ...ir.target import Target
from ..executable import Call, Chain, Memory, Place
from .devices import device_of
from .failures import on_device
from .images import image_shape, is_image, make_image
from .runtime import OpenCLExecutable
from .wait import wait

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 256
"""Devices ask for sub-buffers that begin at a multiple of CL_DEVICE_MEM_BASE_ADDR_ALIGN: 128 bytes, at most 256."""


class OpenCLChain(Chain):
    """Programs with their arguments set to parts of shared buffers."""

    @on_device
    def __init__(self, calls: Sequence[Call], blocks: Sequence[int]) -> None:
        target = Target.from_json(calls[0].artifact["target"]) if calls else None
        device = device_of(target) if target else None
        self._platform = target.platform if target else ""
        context = cl.Context([device] if device else None)
        self.queue = cl.CommandQueue(context)
        flags = cl.mem_flags.READ_WRITE
        self.blocks = [cl.Buffer(context, flags, size=max(size, 1)) for size in blocks]
        self._parts: dict[tuple[Place, int], Any] = {}
        self._loaded: dict[str, OpenCLExecutable] = {}
        self._steps = [self._step(call) for call in calls]

    @on_device
    def write(self, place: Place, data: NDArray[Any]) -> None:
        flat = np.ascontiguousarray(data)
        if flat.nbytes:
            cl.enqueue_copy(self.queue, self.blocks[place.block], flat, dst_offset=place.offset, is_blocking=True)

    @on_device
    def read(self, place: Place, nbytes: int) -> NDArray[np.uint8]:
        result = np.empty(nbytes, np.uint8)
        if nbytes:
            cl.enqueue_copy(self.queue, result, self.blocks[place.block], src_offset=place.offset, is_blocking=True)
        return result

    @on_device
    def run(self, first: int = 0, last: int | None = None) -> None:
        end = None
        for step in self._steps[first:last]:
            end = step()
        wait(self.queue, end, self._platform)

    @on_device
    def profile(self, first: int = 0, last: int | None = None) -> list[float]:
        found = []
        for step in self._steps[first:last]:
            start = time.perf_counter()
            wait(self.queue, step(), self._platform)
            found.append(time.perf_counter() - start)
        return found

    def _step(self, call: Call) -> Callable[[], Any]:
        """What enqueues a program's launches, images of written memory refreshed before."""
        executable = self._executable(call)
        memories = (*executable.params, *executable.workspaces)
        if len(call.places) != len(memories):
            raise ValueError(f"`{call.artifact['entry']}` takes other buffers than {len(call.places)} places")
        parts = [self._part(place, memory) for place, memory in zip(call.places, memories, strict=True)]
        images = {
            k: make_image(executable.context, m.shape, m.dtype) for k, m in enumerate(memories) if is_image(m.scope)
        }
        kernels = []
        for launch in executable.launches:
            kernel = cl.Kernel(executable.program, launch.kernel)
            kernel.set_args(*(images[k] if k in launch.images else parts[k] for k in launch.args))
            kernels.append((launch, kernel))
        given = {k for k in images if k < len(executable.params)}

        def step() -> Any:
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

    def _executable(self, call: Call) -> OpenCLExecutable:
        code = call.artifact["code"]
        if code not in self._loaded:
            self._loaded[code] = OpenCLExecutable(call.artifact, self.queue)
        return self._loaded[code]
