"""The loop where a kernel spends its time, and what one iteration of it does.

The hottest loop is the innermost one whose code holds the most floating-point operations; where
several hold as many (the inside and the edge of a peeled nest), the deepest, and of those the one
with the fewest instructions.  A kernel without any, such as a copy, has the one with the most
vector instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ...ir.target import Target
from .operations import Operation, Reader, reader
from .ports import Ports, ports_of
from .text import Instruction, Loop, functions, loops


@dataclass(frozen=True)
class InnerLoop:
    """Counts for one iteration of a loop; `isa` is x86 or aarch64.

    `variable` is the loop's in the lowered program, empty where that is not known.
    `lines` is its code, each line with what it is: label, fma, arithmetic, load, broadcast,
    store, spill, reload, or other.
    `loads` counts vector loads of whole registers or scalars of a vector type, `broadcasts`
    those that fill a register with one element, operands of arithmetic instructions
    included.  `spills` and `reloads` are the stores and loads that LLVM calls so, and
    `frame_stores` and `frame_loads` all that go to the stack frame by its register.
    `registers` are distinct vector registers, `accumulators` those that an iteration hands
    to the next one updated.  `cycles` is the least that an iteration takes by each resource
    of the core, None where its ports are not known, and `peak_cycles` what its operations
    would take at the peak of multiply-adds.
    """

    function: str
    header: str
    variable: str
    depth: int
    isa: str
    lines: tuple[tuple[str, str], ...]
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
    peak_cycles: float
    cycles: dict[str, float] | None

    @property
    def bound(self) -> str | None:
        """What limits an iteration by the core's ports: ``fma``, ``latency``, ``loads``, ``stores`` or ``issue``."""
        return max(self.cycles.items(), key=lambda item: item[1])[0] if self.cycles else None

    @property
    def fma_share(self) -> float | None:
        """What the ports allow an iteration of the peak of multiply-adds.

        Above 1 where a core has other units for sums, and the loop enough of them.
        """
        return None if not self.cycles or not self.flops else self.peak_cycles / max(self.cycles.values())

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "bound": self.bound, "fma_share": self.fma_share}


def inner_loop(assembly: str, target: Target, isa: str) -> InnerLoop | None:
    """The hottest loop of verbose assembly for `target`; None for code without a loop, and where `isa` is empty."""
    if not isa:
        return None
    candidates = [(loop, reader(f, isa)) for f in functions(assembly) for loop in loops(f)]
    if not candidates:
        return None
    loop, read = max(candidates, key=lambda item: _heat(*item))
    return _facts(loop, read, isa, target)


def isa_of(triple: str) -> str:
    """Whose mnemonics code for LLVM's `triple` has: ``"x86"``, ``"aarch64"``, or empty where they are not known."""
    architecture = triple.partition("-")[0]
    if architecture in ("x86_64", "i386", "i686"):
        return "x86"
    return "aarch64" if architecture in ("aarch64", "arm64") else ""


def _heat(loop: Loop, read: Reader) -> tuple[bool, int, int, int, int]:
    operations = [read(instruction) for instruction in loop.instructions]
    flops = sum(operation.flops for operation in operations)
    vectors = sum(operation.is_vector for operation in operations)
    return loop.is_innermost and flops > 0, flops, vectors, loop.depth, -len(operations)


def _listing(loop: Loop, read: Reader) -> Iterator[tuple[str, str]]:
    for block in loop.blocks:
        yield "label", f"{block.label}:"
        for instruction in block.instructions:
            yield _kind(instruction, read(instruction)), f"    {instruction.text()}"


def _kind(instruction: Instruction, operation: Operation) -> str:
    if instruction.spilled or instruction.reloaded:
        return "spill" if instruction.spilled else "reload"
    if operation.lanes:
        return "fma" if operation.is_fma else "arithmetic"
    if operation.loads and operation.is_vector:
        return "broadcast" if operation.is_broadcast else "load"
    return "store" if operation.stores and operation.is_vector else "other"


def _facts(loop: Loop, read: Reader, isa: str, target: Target) -> InnerLoop:
    instructions = loop.instructions
    operations = [read(instruction) for instruction in instructions]
    vectors = [o for o in operations if o.is_vector]
    fmas = [o for o in operations if o.is_fma]
    ports = ports_of(target.cpu)
    return InnerLoop(
        function=loop.function,
        header=loop.header,
        variable=loop.variable,
        depth=loop.depth,
        isa=isa,
        lines=tuple(_listing(loop, read)),
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
        peak_cycles=0.0 if ports is None else _peak_cycles(operations, ports, target.vector_bits),
        cycles=None if ports is None else _cycles(operations, ports),
    )


def _cycles(operations: list[Operation], ports: Ports) -> dict[str, float]:
    """The least cycles of an iteration by each resource; arithmetic, loads and stores count each pass of a register.

    ::

        fma     = max(other arithmetic / multiply-adds a cycle, sums / those a cycle, all / both a cycle)
        latency = the longest chain of updates of an accumulator
        loads   = loads / those a cycle                  stores  = stores / those a cycle
        issue   = instructions / those a cycle

    Divisions, square roots and shuffles count as little as other arithmetic does, or nothing: a loop with many takes
    longer.
    """
    passes = [(o, ports.parts(o.width)) for o in operations]
    sums = sum(n for o, n in passes if o.lanes and o.is_sum)
    others = sum(n for o, n in passes if o.lanes and not o.is_sum)
    chains = [
        sum(ports.fma_latency if o.is_fma else ports.add_latency for o in writes)
        for writes in _carried(operations).values()
        if all(o.is_fma or o.is_sum for o in writes)
    ]
    return {
        "fma": max(others / ports.fma, sums / ports.sums, (others + sums) / ports.both),
        "latency": float(max(chains, default=0)),
        "loads": sum(o.loads * (1 if o.is_broadcast else n) for o, n in passes) / ports.loads,
        "stores": sum(o.stores * n for o, n in passes) / ports.stores,
        "issue": len(operations) / ports.issue,
    }


def _peak_cycles(operations: list[Operation], ports: Ports, bits: int) -> float:
    """Cycles of as many operations at the peak: full registers of `bits`, two for each lane and multiply-add."""
    work = sum(o.flops * o.bits for o in operations)
    return work * ports.parts(bits) / (2 * bits * ports.fma)


def _carried(operations: list[Operation]) -> dict[int, list[Operation]]:
    """The registers that an iteration hands to the next: each write of them in the loop updates them."""
    writes: dict[int, list[Operation]] = {}
    for operation in operations:
        if operation.target is not None:
            writes.setdefault(operation.target, []).append(operation)
    return {register: found for register, found in writes.items() if all(o.lanes > 0 and o.updates for o in found)}
