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

from ....ir import dtypes
from ....ir.expr import Load
from ....ir.node import walk
from ....ir.stmt import For, Store
from ...registers import accumulators, registers_of
from .kernel import Kernel


class Loaded:
    """What has been loaded since the last fence, of `registers` with so many bytes; 0 registers have no fences."""

    def __init__(self, registers: int, register_bytes: int) -> None:
        self._registers, self._register_bytes = registers, register_bytes
        self._loads: set[Load] = set()
        self.again = False
        """Whether there is a fence in the kernel."""

    def note(self, store: Store) -> None:
        """Remember what a statement loads, other than what it updates."""
        self._loads.update(n for n in walk(store.value) if isinstance(n, Load) and n.buffer != store.buffer)

    def begin_loop(self) -> None:
        """A loop that is not written out begins, in whose iterations nothing is kept from before."""
        self._loads.clear()

    def spare(self, loop: For) -> int | None:
        """The registers beside those that a loop updates; None where it updates none, or more than there are."""
        taken = accumulators(loop, self._register_bytes) if self._registers else 0
        return self._registers - taken if 0 < taken <= self._registers else None

    def relieve(self, k: Kernel, spare: int) -> None:
        """Forget loaded values, and make the compiler forget them, that need more than `spare` registers."""
        if registers_of((dtypes.nbytes(load.dtype) for load in self._loads), self._register_bytes) > spare:
            self.again = True
            self._loads.clear()
            k.writer.forget_loads()
            k.writer.line(f"{k.helpers.load_again()}();")
