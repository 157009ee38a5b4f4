"""The hottest loop, by samples written by hand and by real kernels with known tiles."""

from __future__ import annotations

import pytest
from cpu_programs import lowered, matmul_tile

from stridesmith.backends import cpu
from stridesmith.backends.assembly.inner_loop import InnerLoop, inner_loop, isa_of
from stridesmith.backends.assembly.ports import PORTS, Ports, ports_of
from stridesmith.backends.diagnosis import explain
from stridesmith.backends.llvm.compile import binding
from stridesmith.backends.render.llvm_module import generate
from stridesmith.ir.expr import Buffer, Load, Var, const
from stridesmith.ir.stmt import For, Store
from stridesmith.ir.target import Target

ISA = isa_of(binding().get_default_triple())
ZEN3 = Target(cpu="znver3", features="", isa="avx2", vector_bits=256, registers=16)
SERVER = Target(cpu="skylake-avx512", features="", isa="avx512", vector_bits=512, registers=32)
NEOVERSE = Target(cpu="neoverse-n1", isa="neon", vector_bits=128, registers=32)
on_x86 = pytest.mark.skipif(ISA != "x86", reason="LLVM compiles for the host")

AARCH64 = """
f:                                      // @f
// %bb.0:                               // %entry
	str	x30, [sp, #-48]!                // 8-byte Folded Spill
.LBB0_1:                                // %loop1
                                        // =>This Loop Header: Depth=1
                                        //     Child Loop BB0_2 Depth 2
                                        //     Child Loop BB0_3 Depth 2
	fadd	v3.4s, v3.4s, v4.4s
.LBB0_2:                                // %loop2
                                        //   Parent Loop BB0_1 Depth=1
                                        // =>  This Inner Loop Header: Depth=2
	ldp	q8, q9, [x11, #-80]
	ld1r	{ v10.4s }, [x27], #4
	str	q3, [sp, #16]                   // 16-byte Spill
	fmla	v0.4s, v8.4s, v10.4s
	fmla	v1.4s, v9.4s, v10.4s
	ldr	q3, [sp, #16]                   // 16-byte Reload
	add	x15, x15, #1
	cmp	x15, #3
	b.lt	.LBB0_2
.LBB0_3:                                // %loop3
                                        //   Parent Loop BB0_1 Depth=1
                                        // =>  This Inner Loop Header: Depth=2
	fmla	v0.4s, v8.4s, v10.4s
	b.lt	.LBB0_3
"""


LOOP = """f:                                      # @f
.LBB0_1:                                # %loop
                                        # =>This Inner Loop Header: Depth=1
{}	jne	.LBB0_1
	retq
"""


def test_aarch64_sample() -> None:
    """Of two inner loops the one with more operations; a pair of registers is two loads."""
    loop = inner_loop(AARCH64, NEOVERSE, "aarch64")
    assert loop is not None and (loop.header, loop.depth) == ("BB0_2", 2)
    assert (loop.flops, loop.fmas, loop.vector_fmas, loop.arithmetic) == (16, 2, 2, 0)
    assert (loop.loads, loop.broadcasts, loop.stores) == (3, 1, 1)
    assert (loop.spills, loop.reloads, loop.frame_stores, loop.frame_loads) == (1, 1, 1, 1)
    assert (loop.registers, loop.registers_in_all, loop.accumulators) == (6, 32, 2)
    assert loop.cycles == {"fma": 1.0, "latency": 2.0, "loads": 2.0, "stores": 1.0, "issue": 2.25}
    assert loop.peak_cycles == 1.0
    assert loop.bound == "issue" and loop.fma_share == pytest.approx(1 / 2.25)
    assert [kind for kind, _ in loop.lines] == [
        "label", "load", "broadcast", "spill", "fma", "fma", "reload", "other", "other", "other",
    ]  # fmt: skip


def test_code_without_loops_has_no_inner_one() -> None:
    """Nothing is claimed of straight-line code, nor of code for an unknown architecture."""
    assert inner_loop("f:  # @f\n\tretq\n", ZEN3, "x86") is None
    assert inner_loop(AARCH64, NEOVERSE, "") is None


def test_innermost_goes_before_larger() -> None:
    """The body of an outer loop runs less often than a loop inside, even if it holds more operations."""
    more = AARCH64.replace("	fadd	v3.4s, v3.4s, v4.4s\n", "	fadd	v3.4s, v3.4s, v4.4s\n" * 40)
    loop = inner_loop(more, NEOVERSE, "aarch64")
    assert loop is not None and loop.header == "BB0_2"


def test_sums_apart_allow_more_than_the_peak() -> None:
    """Zen has units for sums beside those for multiply-adds; a core without them shares the latter."""
    text = AARCH64.replace("	ldp	q8, q9, [x11, #-80]\n", "	fadd	v20.4s, v21.4s, v22.4s\n" * 2)
    apart = inner_loop(text, Target(cpu="znver1", vector_bits=128, registers=32), "aarch64")
    shared = inner_loop(text, NEOVERSE, "aarch64")
    assert apart is not None and shared is not None
    assert apart.cycles is not None and apart.cycles["fma"] == 1.0 and apart.peak_cycles == 1.5
    assert shared.cycles is not None and shared.cycles["fma"] == 2.0


def test_sums_are_slower_where_one_unit_does_them() -> None:
    """Haswell starts two multiply-adds in a cycle, but one sum; two sums and a multiply-add take two cycles."""
    sums = "\tvaddps\t%ymm1, %ymm2, %ymm3\n\tvaddps\t%ymm4, %ymm5, %ymm6\n\tvfmadd231ps\t%ymm7, %ymm8, %ymm9\n"
    for name, cycles in (("haswell", 2.0), ("skylake", 1.5), ("alderlake", 1.0), ("znver3", 1.0)):
        loop = inner_loop(LOOP.format(sums), Target(cpu=name, vector_bits=256, registers=16), "x86")
        assert loop is not None and loop.cycles is not None
        assert loop.cycles["fma"] == cycles, name


def test_narrow_registers_take_one_pass() -> None:
    """On units of 256 bits a register of 512 takes two passes, and one of 256 takes one on the same target."""
    for kind, cycles in (("zmm", 1.0), ("ymm", 0.5), ("xmm", 0.5)):
        code = f"\tvfmadd231ps\t%{kind}7, %{kind}8, %{kind}9\n"
        loop = inner_loop(LOOP.format(code), Target(cpu="znver4", vector_bits=512, registers=32), "x86")
        assert loop is not None and loop.cycles is not None
        assert loop.cycles["fma"] == cycles, kind


@pytest.mark.parametrize(
    ("triple", "isa"),
    [
        ("x86_64-unknown-linux-gnu", "x86"), ("aarch64-unknown-linux-gnu", "aarch64"),
        ("arm64-apple-darwin23.0.0", "aarch64"), ("riscv64-unknown-linux-gnu", ""),
    ],
)  # fmt: skip
def test_isa_by_triple(triple: str, isa: str) -> None:
    """LLVM's triple says whose mnemonics there are."""
    assert isa_of(triple) == isa


def tile(rows: int, columns: int, target: Target) -> InnerLoop:
    """The inner loop of a product with a register tile of rows x columns."""
    program = matmul_tile(rows, columns, 64, target.vector_lanes("float32"))
    found = inner_loop(cpu.assembly(program, target), target, ISA)
    assert found is not None
    return found


@on_x86
@pytest.mark.parametrize(("rows", "columns", "target"), [(6, 16, ZEN3), (4, 24, ZEN3), (14, 32, SERVER)])
def test_a_tile_that_fits(rows: int, columns: int, target: Target) -> None:
    """As many accumulators and multiply-adds as the tile has vectors, no spills, a register for all else."""
    loop, lanes = tile(rows, columns, target), target.vector_lanes("float32")
    vectors = rows * columns // lanes
    assert (loop.variable, loop.depth) == ("k", 3)
    assert (loop.fmas, loop.vector_fmas, loop.accumulators) == (vectors, vectors, vectors)
    assert loop.flops == 2 * rows * columns
    assert (loop.loads, loop.broadcasts, loop.stores) == (columns // lanes, rows, 0)
    assert (loop.spills, loop.reloads, loop.frame_loads, loop.frame_stores) == (0, 0, 0, 0)
    assert vectors < loop.registers <= target.registers
    assert loop.bound == "fma" and loop.fma_share == 1.0


@on_x86
def test_a_tile_that_is_too_large() -> None:
    """Thirty accumulators do not fit sixteen registers: they are spilled, and the ports pay for it."""
    loop = tile(10, 24, ZEN3)
    assert loop.fmas == 30 and loop.registers == 16
    assert loop.spills > 0 and loop.reloads > 0
    assert loop.frame_stores >= loop.spills and loop.frame_loads >= loop.reloads
    assert loop.fma_share is not None and loop.fma_share < 1
    kinds = [kind for kind, _ in loop.lines]
    assert kinds.count("spill") + kinds.count("reload") > 0


def for_aarch64(rows: int, columns: int) -> InnerLoop:
    """The inner loop of a tile in code that LLVM makes for aarch64, on any host that can."""
    llvm = binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        machine = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(cpu=NEOVERSE.cpu, opt=2)
    except RuntimeError as error:
        pytest.skip(f"this LLVM has no aarch64: {error}")
    machine.set_asm_verbosity(True)
    module = llvm.parse_assembly(generate(matmul_tile(rows, columns, 64, 4), NEOVERSE))
    module.triple = machine.triple
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    found = inner_loop(machine.emit_assembly(module), NEOVERSE, "aarch64")
    assert found is not None
    return found


def test_real_code_for_aarch64() -> None:
    """A tile of 16 vectors fits 32 registers; one of 48 does not."""
    fits, spilled = for_aarch64(8, 8), for_aarch64(12, 16)
    assert (fits.variable, fits.fmas, fits.accumulators, fits.flops) == ("k", 16, 16, 2 * 8 * 8)
    assert (fits.spills, fits.reloads) == (0, 0) and 16 < fits.registers <= 32
    assert spilled.fmas == 48 and spilled.registers == 32
    assert spilled.spills > 0 and spilled.reloads > 0


@on_x86
def test_one_accumulator_waits_for_itself() -> None:
    """A tile of one vector is bound by the latency of its only chain."""
    loop = tile(1, 8, ZEN3)
    assert loop.accumulators == 1 and loop.bound == "latency"


@on_x86
def test_a_copy_is_bound_by_memory_ports() -> None:
    """Without floating-point operations the loop with the vectors is shown, and no share of the peak."""
    i = Var("i")
    a, b = Buffer("A", (64,), "float32x8"), Buffer("B", (64,), "float32x8")
    program = lowered(For(i, const(64), Store(b, (i,), Load(a, (i,)))), a, b)
    loop = explain(program, ZEN3)["inner_loop"]
    assert (loop["flops"], loop["loads"], loop["stores"], loop["fma_share"]) == (0, 1, 1, None)
    assert loop["cycles"]["stores"] == 1.0


def test_unknown_cores_have_no_ports() -> None:
    """A core that is not in the table is not guessed from its name."""
    assert ports_of("znver3") == PORTS["znver3"]
    assert ports_of("znver") is None and ports_of("") is None
    loop = inner_loop(AARCH64, Target(cpu="cortex-x99", isa="neon", registers=32), "aarch64")
    assert loop is not None and (loop.cycles, loop.bound, loop.fma_share) == (None, None, None)


@pytest.mark.parametrize("cpu_name", sorted(PORTS))
def test_ports_of_every_core_are_sane(cpu_name: str) -> None:
    """A register as wide as the units takes one pass, one of twice that two."""
    ports: Ports = PORTS[cpu_name]
    assert (ports.parts(ports.bits), ports.parts(2 * ports.bits), ports.parts(32)) == (1, 2, 1)
    assert 1 <= ports.stores <= ports.loads <= ports.issue
