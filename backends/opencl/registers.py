"""Values that are loaded again instead of being kept, so that register tiles stay in registers.

    for k in K {unrolled}: T[i, j] += a[i, k] * b[k, j]

Compilers load an element once for all its uses, and keep it as long as there are any: of a convolution over three
unrolled rows, each pixel three times, in a whole register.  Where registers are scarce they spill, accumulators too.
Loading again is free where multiply-adds wait for each other.  So between two iterations of a loop that updates a tile,
where more has been loaded than fits beside it, stands a fence for signal handlers: no instruction, but what memory held
before it counts as unknown behind it, unless a pointer says that nothing else changes it.

With 14 accumulators of 16 floats a convolution of 256 channels of 14x14, on two threads of an AMD EPYC (Zen 4), took
1330 us on PoCL and 1370 on Intel's runtime without it, and 1010 and 1000 with it.  Our own code generator, which does
the same (`backends.llvm.builder`), takes 1030.
"""

from __future__ import annotations

from ...ir import dtypes
from ...ir.expr import Load
from ...ir.node import walk
from ...ir.stmt import For, Store
from ...ir.target import Target
from ..registers import accumulators, registers_of
from .transpose import Transposes
from .types import Helpers


class Registers(Transposes):
    """Knows what has been loaded since the last fence; `may_fence` allows one, `loads_again` tells of one."""

    def __init__(
        self, index_type: str, helpers: Helpers, emulated: frozenset[str] = frozenset(), is_cpu: bool = True
    ) -> None:
        super().__init__(index_type, helpers, emulated, is_cpu)
        self.loads_again = False
        self.may_fence = is_cpu
        self._loaded: set[Load] = set()

    def note_loads(self, store: Store) -> None:
        """Remember what a statement loads, other than what it updates."""
        self._loaded.update(n for n in walk(store.value) if isinstance(n, Load) and n.buffer != store.buffer)

    def begin_loop(self) -> None:
        """A loop that is not written out begins, in whose iterations nothing is kept from before."""
        self._loaded.clear()

    def spare(self, loop: For, target: Target) -> int | None:
        """The registers beside those that a loop updates; None where it updates none, or more than there are.

        A GPU, whose compiler spills in other ways, has no fences, nor has a kernel with subgroups: Intel's runtime for
        CPUs does not put items of a kernel with a fence side by side, and a subgroup then reduces one item's value.
        """
        taken = accumulators(loop, target.vector_bits // 8) if self.may_fence else 0
        return target.registers - taken if 0 < taken <= target.registers else None

    def relieve(self, spare: int, register_bytes: int) -> None:
        """Forget loaded values, and make the compiler forget them, that need more than `spare` registers."""
        if registers_of((dtypes.nbytes(load.dtype) for load in self._loaded), register_bytes) > spare:
            self.loads_again = True
            self._loaded.clear()
            self.forget_loads()
            self.line(f"{self.helpers.load_again()}();")
