"""Programs on OpenCL devices: built ahead of time, loaded, bound to memory, and run.

Building runs one work-group once on a CPU device, because PoCL compiles a kernel for its
work-group size at the first launch; the compiled form then travels with the artifact.
"""

from __future__ import annotations

import time
import warnings
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl

from ...ir.affine.guard import NotAffine, Unknown
from ...ir.affine.sets import Domain, points
from ...ir.expr import Binary, Expr, Var, const
from ...ir.ranges import valued
from ...ir.target import POCL, Target
from ..artifact import Artifact, InNetwork
from ..errors import CodegenError
from ..executable import Bound, Executable, Memory, describe, numpy_dtype
from ..images import image_shape, is_image
from ..launch import Launch
from ..render.opencl.exact import CORRECTLY_ROUNDED, ROUNDING, ROUNDS
from ..render.opencl.helpers import DOT_BUILTIN, ONE_MEMORY
from ..render.opencl.program import generate
from . import program_cache
from .binary import export_binary, import_binary
from .calling_thread import device_in_caller
from .contexts import context_of
from .devices import device_of
from .failures import meaning, on_device, on_threads_of_driver
from .images import make_image
from .pool_bound import PoolBound
from .pool_launches import SMALL_GRID
from .wait import wait

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ..lower import Lowered

OPTIONS = ("-cl-std=CL1.2",)
"""Never -cl-fast-relaxed-math, -cl-finite-math-only or -cl-unsafe-math-optimizations: NaN, infinity and order count."""

DOT_OPTIONS = ("-cl-std=CL3.0",)
"""For programs that call dot products of bytes, which compilers do not know in OpenCL C 1.2."""


def compile_opencl(lowered: Lowered, target: Target) -> Artifact:
    """Source, launches and the compiled form, which the first launch carries.  Raises CodegenError.

    What was compiled before, by any process, is not compiled again (see `program_cache`).
    """
    artifact = write_opencl(lowered, target)
    if not artifact["launches"]:  # nothing is left to store
        return artifact
    options = _options(artifact["code"], target)
    binary = program_cache.stored(artifact["code"], options, target)
    if binary is None:
        executable = OpenCLExecutable(artifact)
        for one in _examples(executable, lowered):
            one.specialise()
        binary = export_binary(executable.program, target.platform, [launch.kernel for launch in executable.launches])
        program_cache.store(artifact["code"], options, target, binary)
    artifact["launches"][0]["binary"] = binary
    return artifact


def _examples(executable: OpenCLExecutable, lowered: Lowered) -> Iterator[OpenCLExecutable]:
    """The program for sizes at which its kernels run: small ones, other ones for each that does not run at these."""
    if not lowered.sizes:
        yield executable
        return
    done: set[str] = set()
    for launch in executable.launches:
        values = None if launch.kernel in done else _least(launch)
        if values is not None:
            arrays, sizes = lowered.params[: len(executable.params)], lowered.params[len(executable.params) :]
            known = {Var(size.name, size.dtype): values[size.name] for size in sizes}
            made = executable.at([tuple(valued(e, known) for e in b.extents) for b in arrays], list(values.values()))
            done |= {one.kernel for one in made.launches}
            yield made


def _least(launch: Launch) -> dict[str, int] | None:
    """Small sizes at which a kernel runs; None where they are not found, so that its first call compiles it."""
    groups = [Binary("<=", const(1), count) for count in launch.counts if isinstance(count, Expr)]
    try:
        return points(Domain(tuple((Var(name), None) for name in launch.sizes), (*launch.when, *groups))).first()
    except (NotAffine, Unknown):
        return None


def write_opencl(lowered: Lowered, target: Target) -> Artifact:
    """Source and launches alone, for whatever loads it to compile.  Raises CodegenError."""
    source = generate(lowered, target)
    return Artifact(
        kind="opencl",
        entry=lowered.name,
        code=source.text,
        target=target.to_json(),
        params=describe(lowered.params[: len(lowered.params) - len(lowered.sizes)]),
        workspaces=describe(lowered.workspaces),
        launches=[launch.to_json() for launch in source.launches],
    )


def build_options(code: str) -> tuple[str, ...]:
    """What any compiler of OpenCL C is told for a source."""
    return DOT_OPTIONS if DOT_BUILTIN in code else OPTIONS


def _options(code: str, target: Target) -> tuple[str, ...]:
    """What the device's compiler is told here."""
    # PoCL keeps kernels by source and options, but not by the name that it has for the processor (`processor_name`).
    own = (f"-DVECTOR_BITS={target.vector_bits}",) if target.platform == POCL else ()
    # Kernels on stridesmith's threads are code of this processor, to which all memories are one.
    flat = (f"-D{ONE_MEMORY}",) if target.has_thread_pool and ONE_MEMORY in code else ()
    rounds = ROUNDING if ROUNDS in code and device_of(target).single_fp_config & CORRECTLY_ROUNDED else ()
    return (*build_options(code), *rounds, *flat, *own)


@on_device
def open_device(target: Target) -> None:
    """Make the context of a device that is no CPU."""
    if not target.execution.runs_on_the_host:
        context_of(device_of(target))


class Home(NamedTuple):
    """A context in which programs run, on so many threads of stridesmith's pool; on the driver's if these are 0."""

    context: Any
    threads: int


def home_of(artifacts: Sequence[Artifact]) -> Home:
    """The context in which programs for one device run together, and its threads: 0, no pool, if one reads images.

    Queues cannot share images.
    """
    targets = [Target.from_json(artifact["target"]) for artifact in artifacts]
    if not targets:
        return Home(cl.Context(None), 0)
    device = device_of(targets[0])
    has_images = any(launch["images"] for artifact in artifacts for launch in artifact["launches"])
    in_caller = device_in_caller(device) if all(target.has_thread_pool for target in targets) else None
    if in_caller is None or has_images:
        return Home(context_of(device), 0)
    return Home(cl.Context([in_caller]), targets[0].threads)


class OpenCLExecutable(Executable):
    """A program built for its device, from the binary if there is one that fits, at a home of its own or a chain's."""

    @on_device
    def __init__(self, artifact: Artifact, home: Home | None = None) -> None:
        super().__init__(artifact)
        self.launches = [Launch.from_json(item) for item in artifact["launches"]]
        self.home = home or home_of([artifact])
        self.context = self.home.context  # Intel's runtime loses one that nothing but its queues holds
        self.device = self.context.devices[0]
        self.program = self._program(artifact) if self.launches else None
        for launch in self.launches:
            self._check(launch)

    @property
    def is_open(self) -> bool:
        return any(launch.sizes for launch in self.launches)

    def at(self, shapes: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> OpenCLExecutable:
        names = self.launches[0].sizes if self.launches else ()
        if len(self.params) != len(shapes) or len(names) != len(sizes) * bool(self.launches):
            raise ValueError(f"the kernel takes {len(self.params)} parameters and {len(names)} sizes, "
                             f"but got {len(shapes)} and {len(sizes)}")  # fmt: skip
        made, values = copy(self), dict(zip(names, sizes, strict=False))
        made.params = tuple(memory._replace(shape=s) for memory, s in zip(self.params, shapes, strict=True))
        made.launches = [one for launch in self.launches if (one := launch.at(values)) is not None]
        return made

    def bind(self, *, guard_bytes: int = 0, called: InNetwork | None = None) -> Bound:  # noqa: ARG002
        if self.home.threads and self.launches:
            return PoolBound(self.program, self.home.threads, self.launches, self.memories, guard_bytes)
        return OpenCLBound(self, guard_bytes)

    @on_device
    def specialise(self) -> None:
        """Run one group of each kernel on a CPU device, which makes the driver compile it to the end.

        A program that nobody has scheduled is one group, which may take long: it is compiled by its first call.
        """
        if not self.target.execution.runs_on_the_host:
            return
        launches = [launch for launch in self.launches if launch.serial or not launch.is_single]
        if self.home.threads:
            first = [replace(launch, global_size=launch.local_size) for launch in launches]
            PoolBound(self.program, 1, first, self.memories, 0).run()
            return
        bound = OpenCLBound(self, 0)
        for region in bound._regions:  # what is read may say how long loops are
            cl.enqueue_fill_buffer(bound.queue, region.whole, np.zeros(1, np.uint8), 0, region.whole.size)
        for launch, kernel in zip(self.launches, bound.kernels, strict=True):
            if launch in launches and max(launch.global_size) <= SMALL_GRID:
                cl.enqueue_nd_range_kernel(bound.queue, kernel, launch.local_size, launch.local_size)
        bound.queue.finish()

    def _program(self, artifact: Artifact) -> Any:
        options = list(_options(artifact["code"], self.target))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            binary = import_binary(artifact["launches"][0].get("binary", ""), self.target.platform)
            if binary is not None:
                try:
                    return cl.Program(self.context, [self.device], [binary]).build(options)
                except cl.Error:
                    pass  # made by another driver; the source builds everywhere
            try:
                return cl.Program(self.context, artifact["code"]).build(options, cache_dir=False)
            except cl.RuntimeError as error:
                if (known := meaning(error)) is not error:
                    raise known from error
                name = self.target.name
                raise CodegenError(f"the OpenCL compiler of `{name}` refuses the source: {error}") from error

    def _check(self, launch: Launch) -> None:
        """The limits of the built kernel, which only the driver knows."""
        kernel = cl.Kernel(self.program, launch.kernel)
        info = cl.kernel_work_group_info
        allowed = kernel.get_work_group_info(info.WORK_GROUP_SIZE, self.device)
        wanted = int(np.prod(launch.local_size))
        if wanted > allowed:
            raise CodegenError(f"kernel `{launch.kernel}` has work-groups of {wanted}; the device allows it {allowed}")
        used, limit = kernel.get_work_group_info(info.LOCAL_MEM_SIZE, self.device), self.device.local_mem_size
        if used > limit:
            raise CodegenError(f"kernel `{launch.kernel}` uses {used} bytes of local memory; the device has {limit}")


class _Region:
    """One buffer between two guard zones; the kernel sees only what lies between, or an image of it."""

    def __init__(self, executable: OpenCLExecutable, memory: Memory, guard_bytes: int) -> None:
        align = max(executable.device.mem_base_addr_align // 8, 64)
        self.memory = memory
        self.guard = -(-guard_bytes // align) * align
        flags = cl.mem_flags.READ_WRITE
        self.whole = cl.Buffer(executable.context, flags, size=memory.nbytes + 2 * self.guard)
        self.inner = self.whole.get_sub_region(self.guard, memory.nbytes) if self.guard else self.whole
        self.image = make_image(executable.context, memory.shape, memory.dtype) if is_image(memory.scope) else None

    def refresh(self, queue: Any) -> Any:
        """Copy the memory to its image; the event of it."""
        region = image_shape(self.memory.shape)
        return cl.enqueue_copy(queue, self.image, self.whole, offset=self.guard, origin=(0, 0), region=region)

    @property
    def zones(self) -> tuple[int, int]:
        """Where the guard zones start, in bytes."""
        return 0, self.guard + self.memory.nbytes


class OpenCLBound(Bound):
    """Kernels with their arguments set, on an in-order queue."""

    @on_threads_of_driver
    def __init__(self, executable: OpenCLExecutable, guard_bytes: int) -> None:
        memories = executable.memories
        self.names = tuple(m.name for m in memories)
        self._has_clock = executable.target.clock == "device"
        properties = cl.command_queue_properties.PROFILING_ENABLE if self._has_clock else 0
        self._context, self.queue = executable.context, cl.CommandQueue(executable.context, properties=properties)
        self._platform = executable.target.platform
        self._regions = [_Region(executable, m, guard_bytes) for m in memories]
        self._pattern: NDArray[np.uint8] | None = None
        self._launches = executable.launches
        self.kernels = []
        for launch in self._launches:
            kernel = cl.Kernel(executable.program, launch.kernel)
            regions = [(k, self._regions[k]) for k in launch.args]
            own = (r.image if k in launch.images else r.inner for k, r in regions)
            kernel.set_args(*own, *map(np.int64, launch.values))
            self.kernels.append(kernel)

    @on_threads_of_driver
    def write(self, index: int, data: NDArray[Any]) -> None:
        region = self._regions[index]
        flat = np.ascontiguousarray(data)
        if flat.nbytes != region.memory.nbytes:
            raise ValueError(f"`{region.memory.name}` has {region.memory.nbytes} bytes, but got {flat.nbytes}")
        cl.enqueue_copy(self.queue, region.whole, flat, dst_offset=region.guard, is_blocking=True)
        if region.image is not None:
            region.refresh(self.queue)

    @on_threads_of_driver
    def read(self, index: int) -> NDArray[Any]:
        region = self._regions[index]
        result = np.empty(region.memory.shape, numpy_dtype(region.memory.dtype))
        cl.enqueue_copy(self.queue, result, region.whole, src_offset=region.guard, is_blocking=True)
        return result

    @on_threads_of_driver
    def poison_guards(self, pattern: bytes) -> None:
        for region in self._regions:
            if region.guard:
                zone = np.resize(np.frombuffer(pattern, np.uint8), region.guard)
                self._pattern = np.frombuffer(pattern, np.uint8)
                for start in region.zones:
                    cl.enqueue_copy(self.queue, region.whole, zone, dst_offset=start, is_blocking=True)

    @on_threads_of_driver
    def guards_intact(self) -> bool:
        return all(self._intact(region) for region in self._regions if region.guard)

    def _intact(self, region: _Region) -> bool:
        if self._pattern is None:
            return True
        expected, zone = np.resize(self._pattern, region.guard), np.empty(region.guard, np.uint8)
        for start in region.zones:
            cl.enqueue_copy(self.queue, zone, region.whole, src_offset=start, is_blocking=True)
            if not np.array_equal(zone, expected):
                return False
        return True

    @on_threads_of_driver
    def run(self) -> None:
        if self._launches:
            wait(self.queue, self._enqueue()[-1], self._platform)

    @on_threads_of_driver
    def time(self, calls: int) -> float:
        if calls < 1:
            raise ValueError(f"`calls` must be at least 1, but got {calls}")
        self.queue.finish()
        events: list[Any] = []
        start = time.perf_counter()
        for _ in range(calls):
            of_call = self._enqueue()
            events += of_call if self._has_clock else ()
        if self._launches:
            wait(self.queue, of_call[-1], self._platform)
        seconds = (time.perf_counter() - start) / calls
        by_device = sum(event.profile.end - event.profile.start for event in events) * 1e-9 / calls
        return by_device if 0 < by_device < seconds else seconds  # a clock that has stopped or runs ahead is none

    def _enqueue(self) -> list[Any]:
        """The events of a call's copies and launches."""
        events = []
        for launch, kernel in zip(self._launches, self.kernels, strict=True):
            events += [self._regions[number].refresh(self.queue) for number in launch.stale]
            events.append(cl.enqueue_nd_range_kernel(self.queue, kernel, launch.global_size, launch.local_size))
        return events
