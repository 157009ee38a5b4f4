"""Single instructions are read as the vendors' manuals describe them."""

from __future__ import annotations

import pytest

from stridesmith.backends.assembly.operations import Operation, aarch64, reader, x86
from stridesmith.backends.assembly.text import Block, Function, Instruction, functions


def parsed(line: str) -> Instruction:
    (function,) = functions(f"f:  # @f\n\t{line}\n")
    return function.blocks[0].instructions[0]


def facts(operation: Operation) -> dict[str, object]:
    """The fields that differ from those of an instruction that does nothing."""
    nothing = Operation()
    names = ("lanes", "bits", "is_fma", "is_sum", "loads", "stores", "is_broadcast", "on_frame", "target", "updates")
    return {name: getattr(operation, name) for name in names if getattr(operation, name) != getattr(nothing, name)}


FMA = {"lanes": 8, "is_fma": True, "target": 0, "updates": True}


@pytest.mark.parametrize(
    ("line", "expected", "registers"),
    [
        ("vfmadd231ps\t%ymm1, %ymm2, %ymm0", FMA, {0, 1, 2}),
        ("vfmadd213ps\t(%rax), %ymm2, %ymm0", FMA | {"loads": 1}, {0, 2}),
        ("vfnmadd231ps\t(%rax){1to8}, %ymm2, %ymm0", FMA | {"loads": 1, "is_broadcast": True}, {0, 2}),
        ("vfmadd231ps\t64(%rsp), %ymm2, %ymm0", FMA | {"loads": 1, "on_frame": True}, {0, 2}),
        ("vfmadd231pd\t%zmm1, %zmm2, %zmm31", FMA | {"bits": 64, "target": 31}, {1, 2, 31}),
        ("vfmadd231ss\t%xmm1, %xmm2, %xmm0", FMA | {"lanes": 1}, {0, 1, 2}),
        ("vaddps\t(%rax,%rcx,4), %ymm3, %ymm3",
         {"lanes": 8, "is_sum": True, "loads": 1, "target": 3, "updates": True}, {3}),
        ("vaddps\t%ymm1, %ymm2, %ymm3", {"lanes": 8, "is_sum": True, "target": 3}, {1, 2, 3}),
        ("addps\t%xmm1, %xmm2", {"lanes": 4, "is_sum": True, "target": 2, "updates": True}, {1, 2}),
        ("vmaxps\t%ymm1, %ymm2, %ymm1", {"lanes": 8, "target": 1, "updates": True}, {1, 2}),
        ("vmovups\t(%rax), %ymm4", {"loads": 1, "target": 4}, {4}),
        ("vmovups\t%ymm4, (%rax)", {"stores": 1}, {4}),
        ("vbroadcastss\t-4(%r9), %ymm12", {"loads": 1, "is_broadcast": True, "target": 12}, {12}),
        ("vbroadcastss\t%xmm1, %ymm12", {"target": 12}, {1, 12}),
        ("vxorps\t%xmm0, %xmm0, %xmm0", {"target": 0, "updates": True}, {0}),
        ("leaq\t(%rax,%rcx,4), %rdx", {}, set()),
        ("movq\t8(%rsp), %rsi", {"loads": 1, "on_frame": True}, set()),
        ("movq\t%rsi, 8(%rsp)", {"stores": 1, "on_frame": True}, set()),
        ("cmpq\t$3, (%rax)", {"loads": 1}, set()),
        ("prefetcht0\t(%rax)", {"loads": 1}, set()),
        ("callq\texp@PLT", {}, set()),
    ],
)  # fmt: skip
def test_x86(line: str, expected: dict[str, object], registers: set[int]) -> None:
    """AT&T syntax: the last operand is written, an operand in memory is a load."""
    operation = x86(parsed(line))
    assert facts(operation) == expected
    assert operation.registers == registers and operation.is_vector == bool(registers)


@pytest.mark.parametrize(
    ("line", "expected", "registers"),
    [
        ("fmla\tv24.4s, v9.4s, v11.s[0]", {"lanes": 4, "is_fma": True, "target": 24, "updates": True}, {9, 11, 24}),
        ("fmls\tv1.2d, v2.2d, v3.2d",
         {"lanes": 2, "bits": 64, "is_fma": True, "target": 1, "updates": True}, {1, 2, 3}),
        ("fmadd\ts0, s1, s2, s0", {"lanes": 1, "is_fma": True, "target": 0, "updates": True}, {0, 1, 2}),
        ("fadd\tv0.4s, v0.4s, v1.4s", {"lanes": 4, "is_sum": True, "target": 0, "updates": True}, {0, 1}),
        ("fmax\tv0.4s, v2.4s, v1.4s", {"lanes": 4, "target": 0}, {0, 1, 2}),
        ("ldp\tq8, q9, [x11, #-80]", {"loads": 2, "bits": 128, "target": 8}, {8, 9}),
        ("ldur\ts12, [x27, #-8]", {"loads": 1, "target": 12}, {12}),
        ("ld1r\t{ v3.4s }, [x1]", {"loads": 1, "is_broadcast": True, "target": 3}, {3}),
        ("ld1\t{ v0.4s, v1.4s }, [x0], #32", {"loads": 2, "target": 0}, {0, 1}),
        ("ldr\tq1, [sp, #32]", {"loads": 1, "bits": 128, "on_frame": True, "target": 1}, {1}),
        ("stp\tq0, q1, [sp, #16]", {"stores": 2, "bits": 128, "on_frame": True}, {0, 1}),
        ("stp\tx29, x30, [sp, #-16]!", {"stores": 2, "on_frame": True}, set()),
        ("ldr\tx0, [x1, x2, lsl #3]", {"loads": 1}, set()),
        ("add\tx15, x15, #1", {}, set()),
        ("dup\tv0.4s, v1.s[0]", {"target": 0}, {0, 1}),
    ],
)  # fmt: skip
def test_aarch64(line: str, expected: dict[str, object], registers: set[int]) -> None:
    """The first operand is written; a pair moves two registers."""
    operation = aarch64(parsed(line))
    assert facts(operation) == expected
    assert operation.registers == registers


@pytest.mark.parametrize(
    ("isa", "entry", "access"),
    [
        ("x86", Instruction("movq", ("%rsp", "%rbp")), Instruction("vmovaps", ("%ymm0", "-64(%rbp)"))),
        ("aarch64", Instruction("mov", ("x29", "sp")), Instruction("str", ("q0", "[x29, #32]"))),
    ],
)
def test_a_frame_pointer_is_one_where_the_function_makes_it(isa: str, entry: Instruction, access: Instruction) -> None:
    """The same register is an ordinary one in a function that keeps no frame pointer."""
    with_frame = Function("f", [Block("entry", instructions=[entry])])
    assert reader(with_frame, isa)(access).on_frame
    assert not reader(Function("f", [Block("entry")]), isa)(access).on_frame


def test_another_isa_is_refused() -> None:
    """Nothing is guessed about mnemonics that are not known."""
    with pytest.raises(ValueError, match="there are x86 and aarch64"):
        reader(Function("f"), "riscv")
