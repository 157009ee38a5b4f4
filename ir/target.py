"""What a program is compiled for: plain data, filled in from the machine by ``backends``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from . import dtypes
from .isa import ON_CPU, ON_GPU, PAIRS, SIGNS, VECTORS, Execution, dot_product, dot_steps
from .markup import table

KINDS = ("cpu", "opencl")
BYTE_DOTS = "cl_khr_integer_dot_product"
"""The extension of OpenCL devices that multiply and add bytes four at a time."""

AVX512_BUILTINS = "avx512_builtins"
"""Among the extensions of an OpenCL device: its compiler is a Clang for a CPU with AVX-512 (F, VL and DQ)."""
THREAD_POOL = "thread_pool"
"""Among them: kernels can run in the threads that launch them, and so on stridesmith's own."""
HOST_MEMORY = "host_memory"
"""Among them: the device's memory is the host's, so that what runs on the host disturbs it."""
SUBGROUPS = "cl_intel_required_subgroup_size"
"""The extension of OpenCL devices whose subgroups have the size that a kernel asks for."""
SUBGROUP_OPS = ("+", "min", "max")
"""The operations by which the work-items of a subgroup reduce values."""
SUBGROUP_TYPES = ("float32", "float64", "int32", "int64")
"""The types of these values, on every device that has subgroups."""


POCL = "Portable Computing Language"
"""What PoCL calls itself as a `Target.platform`."""


class _FromText(type):
    """Lets ``Target("cpu")`` be the device of that name, while ``Target(kind="cpu", ...)`` is what the facts say."""

    find: Callable[..., object] | None = None
    """How a text becomes a target, which only the machine knows (`backends.devices` sets it)."""

    def __call__(cls, *text: Any, **facts: Any) -> Any:
        if not text:
            return super().__call__(**facts)
        if _FromText.find is None:
            raise TypeError("a target of this machine is found by `stridesmith.Target(text)`")
        return _FromText.find(*text, **facts)


@dataclass(frozen=True, repr=False)
class Target(metaclass=_FromText):
    """A device and the facts that rules and code generators ask of it.

    ``Target(text, threads=None)`` finds a device of this machine (see `backends.devices.discover`); facts that are
    given by name describe one.

    Sizes are bytes, `vector_bits` is the width of one register, `max_vector_bits` that of the widest vector in its
    code, `registers` the number of vector registers, `threads` what a kernel may use; `l1_ways` are the places that
    the first cache has for lines of `line_bytes` whose addresses compete.  For OpenCL `platform` and `name` identify
    the device and `units` are its compute units; for a CPU `name` is the model and `isa` the instruction set that is
    used; of several devices that agree in both, `number` says which, in the driver's order: they share records, and
    each runs what is meant for it.  A device with `images` reads `image_args` images of at most `image_width` x
    `image_height` texels in one kernel; `image_types` lists the element types that they may have.  `subgroups` lists
    the sizes that its subgroups may be given, in work-items.  A device runs `warp` work-items in step, 1 on a CPU.
    Calls are timed by the `clock` of the ``host``, or where that of the ``device`` is sound, by that, which sees
    kernels and copies alone.
    """

    kind: str = "cpu"
    name: str = "generic"
    platform: str = ""
    number: int = 0
    vendor: str = ""
    isa: str = ""
    cpu: str = ""
    features: str = ""
    vector_bits: int = 128
    max_vector_bits: int = 1024
    registers: int = 16
    threads: int = 1
    units: int = 1
    l1_bytes: int = 32 * 1024
    l1_ways: int = 8
    line_bytes: int = 64
    l2_bytes: int = 512 * 1024
    l3_bytes: int = 8 * 1024 * 1024
    max_work_group: int = 1
    local_bytes: int = 0
    images: bool = False
    image_width: int = 0
    image_height: int = 0
    image_args: int = 0
    image_types: str = ""
    subgroups: str = ""
    is_cpu_device: bool = True
    warp: int = 1
    clock: str = "host"
    versions: str = ""

    def __repr__(self) -> str:
        """Kind and name, and of a CPU how it computes."""
        how = f", {self.isa}, {self.threads} threads" if self.kind == "cpu" else f" of {self.platform}"
        return f"<Target {self.kind}: {self.name}{how}>"

    def _repr_html_(self) -> str:
        facts = ((fact.name, getattr(self, fact.name)) for fact in fields(self))
        rows = [(name, str(value)[:120]) for name, value in facts if value not in ("", 0, False)]
        return table(f"{self.kind}: {self.name}", ("fact", "value"), rows)

    def vector_lanes(self, dtype: str) -> int:
        """Lanes of `dtype` in one vector register, at least 1."""
        return max(1, self.vector_bits // dtypes.bits(dtype))

    @property
    def execution(self) -> Execution:
        """How the device runs work-items: as a CPU does, or as a GPU."""
        return ON_CPU if self.is_cpu_device else ON_GPU

    @property
    def way_bytes(self) -> int:
        """Bytes after which addresses compete for the same places of the first cache."""
        return max(self.line_bytes, self.l1_bytes // max(1, self.l1_ways))

    @property
    def cores(self) -> int | None:
        """Cores of this machine that kernels compute on; None where they compute elsewhere."""
        return self.threads if self.execution.runs_on_the_host else None

    @property
    def is_apart(self) -> bool:
        """Whether what is measured on the device sees nothing of what runs on the host's cores meanwhile."""
        return self.cores is None and self.clock == "device" and HOST_MEMORY not in self.features.split()

    @cached_property
    def cpu_features(self) -> frozenset[str]:
        """What a CPU has, by LLVM's names."""
        return frozenset(text[1:] for text in self.features.split(",") if text.startswith("+"))

    @property
    def dot_signs(self) -> tuple[str, ...]:
        """The signs of bytes of which the device adds up four products at once, and `isa.PAIRS` of bfloat16.

        OpenCL has functions for all bytes, as an extension, a CPU the instructions of `isa.DOT_PRODUCTS`.
        """
        if self.kind == "opencl":
            return SIGNS if BYTE_DOTS in self.features.split() else ()
        return tuple(signs for signs in (*SIGNS, PAIRS) if dot_product(signs, self.cpu_features) is not None)

    def products_at_once(self, signs: str) -> int:
        """Products of operands of these signs that are multiplied and added in the time of one multiply-add of floats.

        Those are all of a dot product where one instruction has them, also where it takes other signs (see
        `backends.legal.offsets`), and 2 of bytes where products of 16 bits are added in pairs, as drivers of CPUs do.
        """
        if self.kind == "opencl":
            return 2 if self.execution.adds_pairs else 4
        rows = (dot_product(wanted, self.cpu_features) for wanted in (signs, "us"))
        return dot_steps(signs) if any(row is not None and not row.in_pairs for row in rows) else 2

    def dot_latency(self, signs: str) -> float:
        """How many times as long as a multiply-add of floats a dot product waits for the one before it."""
        row = dot_product(signs, self.cpu_features) if self.kind == "cpu" else None
        return 1.0 if row is None else row.latency

    @property
    def has_avx512_builtins(self) -> bool:
        """Whether programs for an OpenCL device may use Clang's functions for single instructions of AVX-512."""
        return self.kind == "opencl" and AVX512_BUILTINS in self.features.split()

    @property
    def computed_as_float(self) -> frozenset[str]:
        """Floats of 16 and 8 bits that an OpenCL device holds as float32 and rounds after every operation."""
        native = "cl_khr_fp16" in self.features.split()
        return frozenset(dtypes.HELD_AS_BITS if native else (*dtypes.HELD_AS_BITS, "float16"))

    def has_masked_vectors(self, dtype: str) -> bool:
        """Whether the compiler of an OpenCL device loads and stores lanes of such vectors by one instruction."""
        base = dtypes.element(dtype) in ("float32", "float64", "int32")
        return self.has_avx512_builtins and base and dtypes.nbytes(dtype) in (16, 32, 64)

    @property
    def has_thread_pool(self) -> bool:
        """Whether kernels for an OpenCL device of the CPU run on stridesmith's own threads, not on the driver's."""
        return self.kind == "opencl" and THREAD_POOL in self.features.split()

    @property
    def subgroup_sizes(self) -> tuple[int, ...]:
        """Work-items of the subgroups in which a kernel may reduce values; none where the device has no such."""
        return tuple(sorted(map(int, self.subgroups.split()))) if self.kind == "opencl" else ()

    def has_masks(self, dtype: str) -> bool:
        """Whether single lanes of vectors of an element type are loaded and stored.

        The `isa` of a CPU tells; OpenCL on a CPU chooses among lanes that it computes by comparisons of vectors.
        """
        if self.kind == "opencl":
            return self.execution.has_vectors and dtype in ("float32", "float64", "int32")
        return self.kind == "cpu" and any(self.isa == v.name and dtypes.bits(dtype) in v.masked for v in VECTORS)

    @property
    def has_mask_registers(self) -> bool:
        """Whether a CPU keeps masks of lanes in registers of their own."""
        return self.kind == "cpu" and any(self.isa == v.name and v.mask_registers for v in VECTORS)

    @property
    def key(self) -> str:
        """What a record is compared by: the hardware and what is used of it, not drivers."""
        if self.kind == "cpu":
            return f"cpu|{self.vendor}|{self.name}|{self.isa}|threads={self.threads}"
        clock = "" if self.clock == "host" else f"|clock={self.clock}"  # times of different clocks do not compare
        return f"opencl|{self.platform}|{self.name}|units={self.units}{clock}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Target:
        """The target that `to_json` gave; missing keys take the default.

        Raises ValueError for unknown keys, and for facts of another type or out of range.
        """
        known = {f.name: f.type for f in fields(Target)}
        unknown = sorted(set(data) - set(known))
        if unknown:
            raise ValueError(f"unknown target facts: {', '.join(unknown)}")
        for name, fact in data.items():
            if type(fact).__name__ != known[name]:
                given = type(fact).__name__
                raise ValueError(f"the target fact {name} is {fact!r}, of type {given}, not {known[name]}")
            if isinstance(fact, int) and not 0 <= fact < 2**62:
                raise ValueError(f"the target fact {name} is {fact}, which is negative or too large")
        target = Target(**data)
        if not all(word.isdecimal() for word in target.subgroups.split()):
            raise ValueError(f"the target's subgroups are {target.subgroups!r}, not sizes with spaces between them")
        return target
