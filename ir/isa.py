"""What instruction sets and kinds of devices have, as data: vector registers, masks of lanes, dot products.

A row of `VECTORS` or `DOT_PRODUCTS` names the features that a CPU must have for it, by LLVM's names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .functions import DOT_STEPS, PAIR_STEPS

SIGNS = ("uu", "us", "su", "ss")
"""Whether the bytes of the two operands of a dot product are signed."""
PAIRS = "bf"
"""In the place of signs: the operands are pairs of bfloat16."""


@dataclass(frozen=True)
class Vectors:
    """The vector registers of an instruction set: `registers` of `bits` each.

    Single lanes of `masked` bits are loaded and stored under a mask; where masks have `mask_registers` of their own,
    they are kept there, elsewhere as integers.  `machines` are the processors that may have it.
    """

    name: str
    machines: tuple[str, ...]
    needs: tuple[str, ...]
    bits: int
    registers: int
    masked: tuple[int, ...] = ()
    mask_registers: bool = False


@dataclass(frozen=True)
class DotProduct:
    """An instruction that adds the products of four bytes and four others, or of two bfloat16, to each lane of 32 bits.

    It takes operands of these `signs`, in the one order or the other, in vectors of these `bits`, the widest first.
    With `in_pairs` it multiplies 16 bits and adds two products: bytes are widened first, and it is needed twice; to the
    lanes it adds them itself if it `accumulates`.  For the one before it, it waits `latency` times as long as a
    multiply-add of floats.
    """

    name: str
    needs: tuple[str, ...]
    signs: tuple[str, ...]
    bits: tuple[int, ...]
    in_pairs: bool = False
    accumulates: bool = True
    latency: float = 1.0

    def takes(self, signs: str) -> bool:
        """Whether it multiplies operands of these signs."""
        return signs in self.signs or self.swapped(signs)

    def swapped(self, signs: str) -> bool:
        """Whether it takes the second operand first."""
        return signs not in self.signs and signs[::-1] in self.signs


X86 = ("x86_64", "amd64", "i386", "i686")
ARM = ("aarch64", "arm64")

VECTORS = (
    Vectors("avx512", X86, ("avx512f", "avx512vl", "avx512bw", "avx512dq"), 512, 32, (8, 16, 32, 64), True),
    Vectors("avx2", X86, ("avx2", "fma"), 256, 16, (32, 64)),
    Vectors("avx", X86, ("avx",), 256, 16),
    Vectors("sse2", X86, (), 128, 16),
    Vectors("neon", ARM, (), 128, 32),
)  # fmt: skip
"""The instruction sets that code is written for; of a machine the first that it has."""

DOT_PRODUCTS = (
    DotProduct("vpdpbssd", ("avxvnniint8",), ("ss",), (256, 128)),
    DotProduct("vpdpbuud", ("avxvnniint8",), ("uu",), (256, 128)),
    DotProduct("vpdpbusd", ("avx512vnni", "avx512vl"), ("us",), (512, 256, 128)),
    DotProduct("vpdpbusd", ("avxvnni",), ("us",), (256, 128)),
    DotProduct("sdot", ("dotprod",), ("ss",), (128,)),
    DotProduct("udot", ("dotprod",), ("uu",), (128,)),
    DotProduct("usdot", ("i8mm",), ("us",), (128,)),
    DotProduct("vpdpwssd", ("avx512vnni", "avx512vl"), SIGNS, (512, 256, 128), in_pairs=True),
    DotProduct("vpdpwssd", ("avxvnni",), SIGNS, (256, 128), in_pairs=True),
    DotProduct("vpmaddwd", ("avx512bw",), SIGNS, (512, 256, 128), in_pairs=True, accumulates=False),
    DotProduct("vpmaddwd", ("avx2",), SIGNS, (256, 128), in_pairs=True, accumulates=False),
    DotProduct("vdpbf16ps", ("avx512bf16", "avx512vl"), (PAIRS,), (512, 256, 128), latency=1.5),  # 6 cycles on Zen 5
)
"""Dot products of CPUs; of several that take the same operands the first is used."""


def vectors_of(machine: str, features: Collection[str]) -> Vectors:
    """The widest instruction set of a machine with these features; 16 registers of 128 bits where it is unknown."""
    for row in VECTORS:
        if machine in row.machines and all(feature in features for feature in row.needs):
            return row
    return Vectors(machine or "unknown", (machine,), (), 128, 16)


def dot_steps(signs: str) -> int:
    """Products that one dot product of operands of these signs adds up."""
    return PAIR_STEPS if signs == PAIRS else DOT_STEPS


def dot_product(signs: str, features: Collection[str]) -> DotProduct | None:
    """The instruction for operands of these signs, among the features of a CPU."""
    return next((r for r in DOT_PRODUCTS if r.takes(signs) and all(f in features for f in r.needs)), None)


@dataclass(frozen=True)
class Execution:
    """How a kind of device runs work-items, and what its compilers make of OpenCL C.

    On some, the items of a work-group run one after the other, and `work_items_share_a_thread`; on others each has one.
    The first is `has_vectors` of a program: lanes of a vector are in one register, where they are shuffled and masked.
    It `loads_from_any_address`, not only vectors from multiples of their size, and `addresses_in_64_bits` cost nothing.
    Kernels that `run_on_the_host` share its cores with the process, and local and texture memory, where it
    `has_one_memory`, are the same as global memory.  Where a compiler `keeps_what_it_loads` it spills registers for it;
    where an exponential `calls_a_library` code in its place is faster; and a device `adds_pairs` that multiplies and
    adds bytes as pairs of 16 bits, not four at a time.
    """

    name: str
    work_items_share_a_thread: bool
    has_vectors: bool
    loads_from_any_address: bool
    addresses_in_64_bits: bool
    runs_on_the_host: bool
    has_one_memory: bool
    keeps_what_it_loads: bool
    calls_a_library: bool
    adds_pairs: bool


ON_CPU = Execution(
    "cpu", work_items_share_a_thread=True, has_vectors=True, loads_from_any_address=True, addresses_in_64_bits=True,
    runs_on_the_host=True, has_one_memory=True, keeps_what_it_loads=True, calls_a_library=True, adds_pairs=True,
)  # fmt: skip
ON_GPU = Execution(
    "gpu", work_items_share_a_thread=False, has_vectors=False, loads_from_any_address=False,
    addresses_in_64_bits=False, runs_on_the_host=False, has_one_memory=False, keeps_what_it_loads=False,
    calls_a_library=False, adds_pairs=False,
)  # fmt: skip
