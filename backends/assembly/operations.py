"""What one instruction does: its floating-point operations, its registers, its accesses to memory.

Mnemonics are those of LLVM's printers: AT&T syntax for x86 (the last operand is written), the
vendor's own for aarch64 (the first is).  What is not known of an instruction counts as one that
computes no floating-point number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from .text import Function, Instruction

BITS = {"ps": 32, "ss": 32, "pd": 64, "sd": 64, "ph": 16, "sh": 16}
_X86_FLOAT = re.compile(
    r"^v?(?P<fma>fn?m(?:add|sub|addsub|subadd)(?:132|213|231)?)?(?P<plain>add|sub|mul|div|min|max|sqrt)?(?P<type>[ps][sdh])$"
)
_X86_REGISTER = re.compile(r"%([xyz])mm(\d+)")
_X86_BASE = re.compile(r"\(([^,)]*)")
_X86_LANES = {"x": 128, "y": 256, "z": 512}
_X86_NO_STORE = ("cmp", "test", "prefetch", "vucomis", "ucomis", "vcomis", "comis", "bt", "vptest", "push")

_ARM_VECTOR = re.compile(r"\bv(\d+)\.(\d*)([bhsd])")
_ARM_SCALAR = re.compile(r"^([bhsdq])(\d+)$")
_ARM_FMA = ("fmla", "fmls", "fmadd", "fmsub", "fnmadd", "fnmsub")
_ARM_SUM = ("fadd", "fsub")
_ARM_FLOAT = (*_ARM_SUM, "fmul", "fdiv", "fmax", "fmin", "fmaxnm", "fminnm", "fsqrt", "fnmul")
_ARM_PAIRS = ("ldp", "stp", "ldnp", "stnp")
_ARM_BITS = {"b": 8, "h": 16, "s": 32, "d": 64, "q": 128}
_ARM_BASE = re.compile(r"\[(\w+)")


@dataclass(frozen=True)
class Operation:
    """The facts of one instruction.

    `lanes` is 0 where it computes no floating-point number; `bits` is the width of one, `width`
    that of the widest vector register, 0 without any.  A sum adds or subtracts.  `loads` and
    `stores` count the registers that it brings or takes away (a pair counts two), a memory
    operand of an arithmetic instruction being a load.
    `target` is the vector register that it writes, and `updates` says that it reads it, too.
    """

    lanes: int = 0
    bits: int = 32
    is_fma: bool = False
    is_sum: bool = False
    loads: int = 0
    stores: int = 0
    is_broadcast: bool = False
    is_vector: bool = False
    width: int = 0
    on_frame: bool = False
    registers: frozenset[int] = frozenset()
    target: int | None = None
    updates: bool = False

    @property
    def flops(self) -> int:
        return self.lanes * (2 if self.is_fma else 1)


Reader = Callable[[Instruction], Operation]


def reader(function: Function, isa: str) -> Reader:
    """How to read the instructions of `function` on ``"x86"`` or ``"aarch64"``.  Raises ValueError for another."""
    if isa == "x86":
        return partial(x86, frame=_frame(function, "%rsp", ("%rbp", "%rbx"), ("movq",)))
    if isa == "aarch64":
        return partial(aarch64, frame=_frame(function, "sp", ("x29", "x19"), ("mov", "add")))
    raise ValueError(f"no reader for the instructions of `{isa}`; there are x86 and aarch64")


def _frame(function: Function, stack: str, others: tuple[str, ...], moves: tuple[str, ...]) -> frozenset[str]:
    """The registers that hold addresses of the stack frame: `stack`, and its copies made where the function begins."""
    entry = function.blocks[0].instructions if function.blocks else []
    copies = {o for i in entry if i.mnemonic in moves and stack in i.operands for o in i.operands if o in others}
    return frozenset({stack, *copies})


def x86(instruction: Instruction, frame: frozenset[str] = frozenset({"%rsp"})) -> Operation:
    """An instruction in AT&T syntax."""
    operands, mnemonic = instruction.operands, instruction.mnemonic
    found = [match for operand in operands for match in _X86_REGISTER.findall(operand)]
    registers = frozenset(int(number) for _, number in found)
    width = max((_X86_LANES[kind] for kind, _ in found), default=0)
    memory = next((n for n, operand in enumerate(operands) if "(" in operand), None)
    if mnemonic.startswith(("lea", "nop")):
        memory = None
    kind, plain, suffix = _x86_arithmetic(mnemonic)
    lanes = 0 if not plain else 1 if suffix.startswith("s") else max(1, width // BITS[suffix])
    last = len(operands) - 1
    writes = memory == last and (last > 0 or mnemonic.startswith("set")) and not mnemonic.startswith(_X86_NO_STORE)
    reads = memory is not None and (not writes or (not registers and not mnemonic.startswith(("mov", "set"))))
    wide = "broadcast" in mnemonic or (memory is not None and "{1to" in operands[memory])
    *sources, target = [_x86_number(operand) for operand in operands] or [None]
    return Operation(
        lanes=lanes,
        bits=BITS.get(suffix, 32),
        is_fma=kind == "fma",
        is_sum=kind in ("add", "sub"),
        loads=int(reads),
        stores=int(writes),
        is_broadcast=wide and memory is not None,
        is_vector=bool(registers),
        width=width,
        on_frame=memory is not None and _base(_X86_BASE, operands[memory]) in frame,
        registers=registers,
        target=target,
        updates=target is not None and (kind == "fma" or target in sources or not mnemonic.startswith("v")),
    )


def _x86_arithmetic(mnemonic: str) -> tuple[str, bool, str]:
    """``(kind, whether it computes floating-point numbers, type)``, such as ``("fma", True, "ps")``."""
    match = _X86_FLOAT.match(mnemonic)
    if match is None or not (match["fma"] or match["plain"]):
        return "", False, ""
    return ("fma" if match["fma"] else match["plain"]), True, match["type"]


def _x86_number(operand: str) -> int | None:
    found = _X86_REGISTER.match(operand)
    return int(found.group(2)) if found else None


def aarch64(instruction: Instruction, frame: frozenset[str] = frozenset({"sp"})) -> Operation:
    """An instruction of aarch64, NEON included."""
    operands, mnemonic = instruction.operands, instruction.mnemonic
    name = mnemonic.partition(".")[0]
    memory = next((operand for operand in operands if operand.startswith("[")), None)
    named = [operand for operand in operands if operand is not memory]
    registers, lanes, bits = _arm_registers(named)
    moved = sum(1 for operand in named for _ in _arm_numbers(operand)) or (2 if name in _ARM_PAIRS else 1)
    is_fma, plain = name in _ARM_FMA, name in _ARM_FLOAT
    is_load = memory is not None and name.startswith("ld")
    is_store = memory is not None and name.startswith("st")
    target, *sources = [next(iter(_arm_numbers(operand)), None) for operand in operands] or [None]
    return Operation(
        lanes=lanes if is_fma or plain else 0,
        bits=bits,
        is_fma=is_fma,
        is_sum=name in _ARM_SUM,
        loads=moved if is_load else 0,
        stores=moved if is_store else 0,
        is_broadcast=is_load and name.endswith("r") and name[2:3].isdigit(),
        is_vector=bool(registers),
        width=_ARM_BITS["q"] if registers else 0,
        on_frame=memory is not None and _base(_ARM_BASE, memory) in frame,
        registers=registers,
        target=None if is_store else target,
        updates=not is_store and target is not None and (name in ("fmla", "fmls") or target in sources),
    )


def _arm_registers(operands: list[str]) -> tuple[frozenset[int], int, int]:
    """The vector registers, and the lanes and the bits of a lane of the first that is named."""
    numbers = frozenset(number for operand in operands for number in _arm_numbers(operand))
    for operand in operands:
        if vector := _ARM_VECTOR.search(operand):
            return numbers, int(vector.group(2) or 1), _ARM_BITS[vector.group(3)]
        if scalar := _ARM_SCALAR.match(operand):
            return numbers, 1, _ARM_BITS[scalar.group(1)]
    return numbers, 0, 32


def _arm_numbers(operand: str) -> list[int]:
    if scalar := _ARM_SCALAR.match(operand):
        return [int(scalar.group(2))]
    return [int(number) for number, _, _ in _ARM_VECTOR.findall(operand)]


def _base(pattern: re.Pattern[str], operand: str) -> str:
    found = pattern.search(operand)
    return found.group(1) if found else ""
