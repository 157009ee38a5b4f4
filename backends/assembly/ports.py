"""What the execution ports of known cores allow in a cycle.

From the vendors' optimization guides, Agner Fog's "Microarchitecture" and instruction tables, and
uops.info.  A core that is not in the table has unknown ports; nothing is guessed from its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class Ports:
    """Per cycle: multiply-adds, loads and stores of `bits` each, and instructions issued.

    A wider register takes several of each.  `fma_latency` and `add_latency` are the cycles
    from one multiply-add or sum to the next that takes its result as accumulator.  Of sums
    `sums` start in a cycle, and of sums and other arithmetic together `both`.
    """

    bits: int
    fma: float
    fma_latency: int
    add_latency: int
    loads: float
    stores: float
    issue: int
    sums: float
    both: float

    def parts(self, bits: int) -> int:
        """How many passes a register of `bits` takes."""
        return max(1, ceil(bits / self.bits))


_HASWELL = Ports(256, fma=2, fma_latency=5, add_latency=3, loads=2, stores=1, issue=4, sums=1, both=2)
_SKYLAKE = Ports(256, fma=2, fma_latency=4, add_latency=4, loads=2, stores=1, issue=4, sums=2, both=2)
_SKYLAKE_SERVER = Ports(512, fma=2, fma_latency=4, add_latency=4, loads=2, stores=1, issue=4, sums=2, both=2)
_ICELAKE_SERVER = Ports(512, fma=2, fma_latency=4, add_latency=4, loads=2, stores=1, issue=5, sums=2, both=2)
_GOLDEN_COVE = Ports(512, fma=2, fma_latency=4, add_latency=3, loads=2, stores=1, issue=6, sums=2, both=2)
_GOLDEN_COVE_CLIENT = Ports(256, fma=2, fma_latency=4, add_latency=3, loads=3, stores=2, issue=6, sums=2, both=3)
_ZEN = Ports(128, fma=2, fma_latency=5, add_latency=3, loads=2, stores=1, issue=5, sums=2, both=4)
_ZEN2 = Ports(256, fma=2, fma_latency=5, add_latency=3, loads=2, stores=1, issue=6, sums=2, both=4)
_ZEN3 = Ports(256, fma=2, fma_latency=4, add_latency=3, loads=2, stores=1, issue=6, sums=2, both=4)
_ZEN5 = Ports(512, fma=2, fma_latency=4, add_latency=2, loads=2, stores=1, issue=8, sums=2, both=4)
_NEOVERSE_N1 = Ports(128, fma=2, fma_latency=2, add_latency=2, loads=2, stores=1, issue=4, sums=2, both=2)
_NEOVERSE_N2 = Ports(128, fma=2, fma_latency=2, add_latency=2, loads=3, stores=2, issue=5, sums=2, both=2)
_NEOVERSE_V = Ports(128, fma=4, fma_latency=2, add_latency=2, loads=3, stores=2, issue=8, sums=4, both=4)
_FIRESTORM = Ports(128, fma=4, fma_latency=4, add_latency=3, loads=3, stores=2, issue=8, sums=4, both=4)

PORTS = {
    "haswell": _HASWELL, "broadwell": _HASWELL,
    "skylake": _SKYLAKE, "kabylake": _SKYLAKE, "coffeelake": _SKYLAKE, "cometlake": _SKYLAKE,
    "skylake-avx512": _SKYLAKE_SERVER, "cascadelake": _SKYLAKE_SERVER, "cooperlake": _SKYLAKE_SERVER,
    "icelake-server": _ICELAKE_SERVER,
    "sapphirerapids": _GOLDEN_COVE, "emeraldrapids": _GOLDEN_COVE,
    "alderlake": _GOLDEN_COVE_CLIENT, "raptorlake": _GOLDEN_COVE_CLIENT,
    "znver1": _ZEN, "znver2": _ZEN2, "znver3": _ZEN3, "znver4": _ZEN3, "znver5": _ZEN5,
    "neoverse-n1": _NEOVERSE_N1, "cortex-a76": _NEOVERSE_N1, "neoverse-n2": _NEOVERSE_N2,
    "neoverse-v1": _NEOVERSE_V, "neoverse-v2": _NEOVERSE_V,
    "apple-m1": _FIRESTORM, "apple-m2": _FIRESTORM, "apple-m3": _FIRESTORM,
}  # fmt: skip
"""By LLVM's name of the core."""


def ports_of(cpu: str) -> Ports | None:
    """The ports of the core that LLVM calls `cpu`, or None where they are not known."""
    return PORTS.get(cpu)
