"""LLVM's verbose assembly is read as functions, blocks and loops, whatever the target's mark of a comment."""

from __future__ import annotations

import pytest

from stridesmith.backends.assembly.text import Instruction, functions, loops

X86 = """
	.text
	.globl	kernel_f                        # -- Begin function kernel_f
kernel_f:                               # @kernel_f
# %bb.0:                                # %entry
	pushq	%rbp
	movq	%rsp, %rbp
	movq	%rdi, 24(%rsp)                  # 8-byte Spill
	.p2align	4
.LBB0_1:                                # %loop1
                                        # =>This Loop Header: Depth=1
                                        #     Child Loop BB0_2 Depth 2
	vxorps	%xmm0, %xmm0, %xmm0
.LBB0_2:                                # %loop.kh.2
                                        #   Parent Loop BB0_1 Depth=1
                                        # =>  This Inner Loop Header: Depth=2
	#MEMBARRIER
	vfmadd231ps	32(%rsp,%rax,4), %ymm1, %ymm0 # 32-byte Folded Reload
	testq	%rax, %rax
	je	.LBB0_2
# %bb.3:                                # %then
                                        #   in Loop: Header=BB0_2 Depth=2
	vmovaps	%ymm0, (%rsp)                   # 32-byte Spill
	jne	.LBB0_2
# %bb.4:                                # %done
                                        #   in Loop: Header=BB0_1 Depth=1
	jl	.LBB0_1
# %bb.5:
	retq
.Lfunc_end0:
	.size	kernel_f, .Lfunc_end0-kernel_f
                                        # -- End function
"""


def retargeted(text: str, mark: str) -> str:
    """The same text with another mark of a comment."""
    return "\n".join(mark.join(line.rsplit("# ", 1)[:1] + [" " + p for p in line.rsplit("# ", 1)[1:]])
                     for line in text.splitlines())  # fmt: skip


@pytest.mark.parametrize("mark", ["#", "##", "//", ";"])
def test_loops_are_what_llvm_says(mark: str) -> None:
    """Headers, depths and membership come from the comments, for x86 and aarch64, Linux and macOS."""
    (function,) = functions(retargeted(X86, mark))
    assert function.name == "kernel_f"
    assert [block.label for block in function.blocks] == ["entry", "BB0_1", "BB0_2", "bb.3", "bb.4", "bb.5"]
    outer, inner = loops(function)
    assert (outer.header, outer.depth, outer.is_innermost) == ("BB0_1", 1, False)
    assert (outer.variable, inner.variable) == ("", "kh")
    assert (inner.header, inner.depth, inner.is_innermost) == ("BB0_2", 2, True)
    assert [block.label for block in outer.blocks] == ["BB0_1", "bb.4"]
    assert [block.label for block in inner.blocks] == ["BB0_2", "bb.3"]


def test_instructions_have_their_operands_and_spills() -> None:
    """Commas in an address part no operands; marks of foreign assembly are no instructions."""
    (function,) = functions(X86)
    inner = loops(function)[1].instructions
    assert inner[0] == Instruction("vfmadd231ps", ("32(%rsp,%rax,4)", "%ymm1", "%ymm0"), reloaded=32)
    assert [i.mnemonic for i in inner] == ["vfmadd231ps", "testq", "je", "vmovaps", "jne"]
    assert inner[3].spilled == 32 and inner[3].reloaded == 0
    assert function.blocks[0].instructions[-1].spilled == 8


def test_lists_of_registers_are_one_operand() -> None:
    """Brackets and braces hold what belongs together."""
    (function,) = functions("f:  // @f\n\tld1\t{ v0.4s, v1.4s }, [x0], #32\n\tldp\tq0, q1, [x1, #16]\n")
    first, second = function.blocks[0].instructions
    assert first.operands == ("{ v0.4s, v1.4s }", "[x0]", "#32")
    assert second.operands == ("q0", "q1", "[x1, #16]")


def test_a_listed_line_says_what_is_spilled() -> None:
    """The text of an instruction has LLVM's word and no other comment."""
    assert Instruction("vmovaps", ("%ymm0", "(%rsp)"), spilled=32).text().split("#")[1] == " spill"
    assert Instruction("incq", ("%rax",)).text() == "incq         %rax"
