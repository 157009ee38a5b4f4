"""The loop where a kernel spends its time, and what one iteration of it does.

The hottest loop is the innermost one whose code holds the most floating-point operations; where
several hold as many (the inside and the edge of a peeled nest), the one with the fewest
instructions.  A kernel without any, such as a copy, has the one with the most vector instructions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ...ir.target import Target
from .operations import Operation, reader
from .ports import Ports, ports_of
from .text import Function, Loop, functions, loops


@dataclass(frozen=True)
class InnerLoop:
    """Counts for one iteration of a loop; `isa` is x86 or aarch64.

    `loads` counts vector loads of whole registers or scalars of a vector type, `broadcasts`
    those that fill a register with one element, operands of arithmetic instructions
    included.  `spills` and `reloads` are the stores and loads that LLVM calls so, and
    `frame_stores` and `frame_loads` all that go to the stack frame by its register.
    `registers` are distinct vector registers, `accumulators` those that an iteration hands
    to the next one updated.
    """

    function: str
    header: str
    depth: int
    isa: str
    text: str
    instructions: int
    flops: int
    fmas: int
    vector_fmas: int
    arithmetic: int
    loads: int
    broadcasts: int
    stores: int
    spills: int
    reloads: int
    frame_stores: int
    frame_loads: int
    registers: int
    registers_in_all: int
    accumulators: int
    vector_bits: int
    cycles: dict[str, float] | None

    @property
    def bound(self) -> str | None:
        """What limits an iteration by the core's ports: ``fma``, ``latency``, ``loads``, ``stores`` or ``issue``."""
        return max(self.cycles, key=lambda name: self.cycles[name]) if self.cycles else None  # type: ignore[index]

    @property
    def fma_share(self) -> float | None:
        """The share of the peak of multiply-adds that the ports allow an iteration, 1 at best."""
        if not self.cycles or not self.flops:
            return None
        return self.cycles["peak"] / max(self.cycles.values())

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "bound": self.bound, "fma_share": self.fma_share}


def inner_loop(assembly: str, target: Target) -> InnerLoop | None:
    """The hottest loop of verbose assembly for `target`; None for code without a loop and for an unknown ISA."""
    isa = isa_of(target)
    if isa is None:
        return None
    candidates = [measured for f in functions(assembly) for measured in _measured(f, isa)]
    if not candidates:
        return None
    loop, operations = max(candidates, key=lambda item: _heat(*item))
    return _facts(loop, operations, isa, target)


def isa_of(target: Target) -> str | None:
    """Whose mnemonics the assembly of `target` has."""
    if target.isa in ("sse2", "avx", "avx2", "avx512"):
        return "x86"
    return "aarch64" if target.isa == "neon" else None


def _measured(function: Function, isa: str) -> Iterable[tuple[Loop, list[Operation]]]:
    read = reader(function, isa)
    return ((loop, [read(instruction) for instruction in loop.instructions]) for loop in loops(function))


def _heat(loop: Loop, operations: list[Operation]) -> tuple[bool, int, int, int]:
    flops = sum(operation.flops for operation in operations)
    vectors = sum(operation.is_vector for operation in operations)
    return loop.is_innermost and flops > 0, flops, vectors, -len(operations)


def _facts(loop: Loop, operations: list[Operation], isa: str, target: Target) -> InnerLoop:
    instructions = loop.instructions
    vectors = [o for o in operations if o.is_vector]
    fmas = [o for o in operations if o.is_fma]
    ports = ports_of(target.cpu)
    return InnerLoop(
        function=loop.function,
        header=loop.header,
        depth=loop.depth,
        isa=isa,
        text=loop.text(),
        instructions=len(instructions),
        flops=sum(o.flops for o in operations),
        fmas=len(fmas),
        vector_fmas=sum(o.lanes > 1 for o in fmas),
        arithmetic=sum(o.lanes > 0 and not o.is_fma for o in operations),
        loads=sum(o.loads for o in vectors if not o.is_broadcast),
        broadcasts=sum(o.loads for o in vectors if o.is_broadcast),
        stores=sum(o.stores for o in vectors),
        spills=sum(i.spilled > 0 for i in instructions),
        reloads=sum(i.reloaded > 0 for i in instructions),
        frame_stores=sum(o.stores for o in operations if o.on_frame),
        frame_loads=sum(o.loads for o in operations if o.on_frame),
        registers=len(frozenset().union(*(o.registers for o in operations))),
        registers_in_all=target.registers,
        accumulators=len(_carried(operations)),
        vector_bits=target.vector_bits,
        cycles=None if ports is None else _cycles(operations, ports, target.vector_bits),
    )


def _cycles(operations: list[Operation], ports: Ports, bits: int) -> dict[str, float]:
    """The least cycles of an iteration by each resource, and by the peak of multiply-adds for its operations.

    ::

        fma     = arithmetic / multiply-adds a cycle     latency = the longest chain of updates of an accumulator
        loads   = loads / those a cycle                  stores  = stores / those a cycle
        issue   = instructions / those a cycle           peak    = operations / those a cycle at the peak
    """
    parts = ports.parts(bits)
    arithmetic = [o for o in operations if o.lanes]
    sums = sum(o.is_sum for o in arithmetic) if ports.sums_apart else 0
    chains = [
        sum(ports.fma_latency if o.is_fma else ports.add_latency for o in writes)
        for writes in _carried(operations).values()
        if all(o.is_fma or o.is_sum for o in writes)
    ]
    return {
        "fma": max(len(arithmetic) - sums, sums) * parts / ports.fma,
        "latency": float(max(chains, default=0)),
        "loads": sum(o.loads * (parts if o.is_vector else 1) for o in operations) / ports.loads,
        "stores": sum(o.stores * (parts if o.is_vector else 1) for o in operations) / ports.stores,
        "issue": len(operations) / ports.issue,
        "peak": sum(o.flops * o.bits for o in arithmetic) * parts / (2 * bits * ports.fma),
    }


def _carried(operations: list[Operation]) -> dict[int, list[Operation]]:
    """The registers that an iteration hands to the next: each write of them in the loop updates them."""
    writes: dict[int, list[Operation]] = {}
    for operation in operations:
        if operation.target is not None:
            writes.setdefault(operation.target, []).append(operation)
    return {register: found for register, found in writes.items() if all(o.lanes > 0 and o.updates for o in found)}
