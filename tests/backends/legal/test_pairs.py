"""Dot products of bfloat16 pairs: the interpreter, the instruction and the program's own sums agree as they must."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scale import scaled

from stridesmith.backends.cpu import compile_cpu, load_cpu
from stridesmith.backends.data import arguments_of, pack
from stridesmith.backends.host import host_cpu
from stridesmith.backends.legal.program import as_function, legal
from stridesmith.backends.llvm.compile import LinkedModule
from stridesmith.backends.lower import Lowered, lower
from stridesmith.backends.passes.errors import LoweringError
from stridesmith.backends.render.llvm_module import entry_name, generate
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import GUARD_BYTES, verify
from stridesmith.ir.dtypes import with_lanes
from stridesmith.ir.expr import Buffer, Call, Load, Ramp, Var, const
from stridesmith.ir.functions import PAIR_CALLS
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.isa import VECTORS
from stridesmith.ir.node import walk
from stridesmith.ir.numbers import bfloat16_bits, bfloat16_values, dot_of_pairs
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc, Store
from stridesmith.ir.target import Target
from stridesmith.ir.verify.rules import VerifyError
from stridesmith.ir.verify.rules import verify as check
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate as space_of
from stridesmith.space.workloads import Workload, workload

ISA = next(v for v in VECTORS if v.name == "avx512")
PAIRED = Target(
    name="x86-64-v4", isa="avx512", cpu="x86-64-v4", vector_bits=512, registers=32, threads=2,
    features=",".join(f"+{f}" for f in (*ISA.needs, "avx512bf16", "avx2", "fma")),
)  # fmt: skip
PLAIN = replace(PAIRED, features=PAIRED.features.replace("+avx512bf16,", ""))
"""The same processor without the instruction."""

needs_pairs = pytest.mark.skipif(not PAIRED.cpu_features <= host_cpu().cpu_features, reason="no AVX512_BF16 here")

SHAPES = {
    "whole": ("matmul", {"m": 13, "n": 35, "k": 24}),
    "ragged": ("matmul", {"m": 13, "n": 35, "k": 21}),
    "rows": ("matmul", {"m": 9, "n": 20, "k": 48, "transpose_b": 1}),
    "bias": ("matmul_bias_act", {"m": 9, "n": 20, "k": 48}),
    "image": ("conv2d", {"ci": 8, "h": 7, "w": 9, "co": 20, "k": 3, "pad": 1}),
    "last": ("conv2d", {"ci": 5, "h": 7, "w": 9, "co": 20, "k": 3, "pad": 1, "layout": "nhwc"}),
}


@lru_cache(maxsize=16)
def sketches(name: str, target: Target) -> tuple[Workload, tuple[Sketch, ...]]:
    kind, shape = SHAPES[name]
    work = workload(kind, dtype="bfloat16", **shape)
    return work, space_of(work.func, target, dict.fromkeys(work.constants, "constant")).sketches


def words(width: int) -> Lowered:
    """``c = dot(a, b, c)`` for 4096 words in vectors of so many lanes."""
    count = -(-4096 // width)
    a, b = (Buffer(n, (count * width,), "int32") for n in "ab")
    c = Buffer("c", (count * width,), "float32")
    i = Var("i")
    at = (i,) if width == 1 else (Ramp(i * width, const(1), width),)
    value = Call(PAIR_CALLS[0], (Load(a, at), Load(b, at), Load(c, at)), with_lanes("float32", width))
    return Lowered("program", (a, b, c), (), For(i, const(count), Store(c, at, value)))


def numbers(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Pairs, and what is added to: any bits; exponents near each other; products about the least normal number."""

    def drawn(low: int, high: int) -> np.ndarray:
        exponents = rng.integers(low, high, 2 * count) << 7
        return (rng.integers(0, 2, 2 * count) << 15 | exponents | rng.integers(0, 128, 2 * count)).astype(np.uint16)

    kind = rng.integers(0, 3, 2 * count)
    pairs = [
        np.choose(kind, [rng.integers(0, 1 << 16, 2 * count).astype(np.uint16), drawn(120, 136), drawn(*ends)])
        for ends in ((0, 130), (0, 3))
    ]
    wide = [
        rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32).view(np.float32),
        rng.standard_normal(count).astype(np.float32),
        (rng.standard_normal(count) * 2.0**-126).astype(np.float32),
    ]
    return [*(p.view(np.int32) for p in pairs), np.choose(kind[::2], wide)]


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Equal bit by bit, or both NaN."""
    return (a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))


@needs_pairs
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 12, 16, 20, 32])
def test_the_instruction_computes_what_the_interpreter_does(width: int) -> None:
    """Bit by bit, of any numbers: subnormal ones, infinities, and those that are none."""
    program = words(width)
    bound = load_cpu(compile_cpu(program, PAIRED)).bind()
    for seed in range(scaled(4)):
        a, b, c = numbers(np.random.default_rng(seed), program.params[0].shape[0])
        want = c.copy()
        with np.errstate(all="ignore"):
            interpret(as_function(program), a, b, want, strict_state=False)
        for number, data in enumerate((a, b, c)):
            bound.write(number, data)
        bound.run()
        assert same(bound.read(2), want).all()


@pytest.mark.parametrize(("width", "calls"), [(14, 1), (12, 1), (7, 1), (3, 1), (20, 2), (30, 2)])
def test_lanes_that_nobody_reads_take_no_instruction_more(width: int, calls: int) -> None:
    """14 words are one instruction on 16 of them, not one each on 8, 4 and 2."""
    assert generate(words(width), PAIRED).count("call <") == calls


def test_what_the_node_means() -> None:
    """Two multiply-adds, the upper halves first, without subnormal numbers."""

    def of(high: tuple[float, float], low: tuple[float, float], c: float) -> float:
        a, b = [bfloat16_bits(np.asarray([x, y], np.float32)).view(np.int32) for x, y in zip(low, high, strict=True)]
        with np.errstate(all="ignore"):
            return float(dot_of_pairs(a, b, np.asarray([c], np.float32))[0])

    assert of((2, 3), (5, 7), 1) == 42
    assert of((2.0**24, 1), (1, 1), 1) == 2.0**24  # 1 is lost twice, one after the other
    assert of((-(2.0**24), 1), (1, 1), 2.0**24) == 1  # and here nothing, since the upper halves come first
    assert of((1, 1), (-(2.0**24), 1), 2.0**24) == 0
    assert of((2.0**-127, 2.0**10), (0, 0), 0) == 0  # a subnormal factor is 0
    assert of((2.0**-100, 2.0**-27), (0, 0), 0) == 0  # as is a subnormal sum
    assert of((0, 0), (0, 0), 2.0**-130) == 0
    assert np.isnan(of((np.inf, 0), (0, 0), 1)) and of((np.inf, 1), (0, 0), 1) == np.inf


def test_the_node_is_printed_parsed_and_checked() -> None:
    """Its script is its own inverse; words of another type are refused."""
    func = as_function(words(16))
    check(func)
    assert "T.dot_2x16packed_bf(" in func.script() and parse(func.script()) == func
    text = """
@T.prim_func
def main(a: T.Buffer((4,), "int32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
    for i in range(4):
        c[i] = T.dot_2x16packed_bf(a[i], b[i], c[i])
"""
    wrong = parse(text)
    assert isinstance(wrong, PrimFunc)
    with pytest.raises(VerifyError, match="the words of"):
        check(wrong)
    right = parse(text.replace('b: T.Buffer((4,), "float32")', 'b: T.Buffer((4,), "int32")'))
    assert isinstance(right, PrimFunc) and parse(right.script()) == right
    with pytest.raises(LoweringError, match="`x86-64-v4` has no `dot_2x16packed_bf`; write the products out"):
        legal(words(4), PLAIN)


@pytest.mark.parametrize("name", SHAPES)
def test_spaces_have_pairs_where_the_instruction_is(name: str) -> None:
    """Sketches with pairs stand beside those without, and only with the instruction."""
    with_pairs, without = ({",dot=" in s.name for s in sketches(name, target)[1]} for target in (PAIRED, PLAIN))
    assert with_pairs == {False, True} and without == {False}


@pytest.mark.parametrize("name", SHAPES)
def test_legal_programs_mean_what_lowered_ones_mean(name: str) -> None:
    """On small integers, which no rounding changes, the same program with and without the node."""
    work, found = sketches(name, PAIRED)
    rng, nodes = np.random.default_rng(0), 0
    arrays = [bfloat16_bits(rng.integers(-4, 5, b.shape).astype(np.float32)) for b in work.func.buffers[:-1]]
    out = np.zeros(work.func.buffers[-1].shape, np.uint16)
    interpret(work.func, *arrays, out)
    chosen = [s for s in found if ",dot=" in s.name]
    for number, sketch in enumerate(chosen[:: max(1, len(chosen) // 2)]):  # the interpreter takes its time
        for candidate in sketch.draw(np.random.default_rng(number), scaled(1)):
            func = sketch.schedule(candidate).func
            given = [pack(k, a).reshape(-1) for k, a in zip(arguments_of(func), arrays, strict=False)]
            lowered = lower(func, PAIRED)
            made = legal(lowered, PAIRED)
            nodes += sum(isinstance(n, Call) and n.name in PAIR_CALLS for n in walk(made.body))
            for program in (lowered, made):
                got = np.zeros(out.size, np.uint16)
                interpret(as_function(program), *given, got, strict_state=False)
                np.testing.assert_array_equal(bfloat16_values(got), bfloat16_values(out.reshape(-1)))
    assert nodes


@pytest.mark.parametrize(
    "target", [pytest.param(PAIRED, marks=needs_pairs, id="pairs"), pytest.param(PLAIN, id="shifts")]
)
@pytest.mark.parametrize("name", SHAPES)
def test_candidates_compute_what_they_should(name: str, target: Target) -> None:
    """Whole kernels, with poison in all that may not be relied on; without the instruction by shifts."""
    if not target.cpu_features <= host_cpu().cpu_features:
        pytest.skip("no AVX-512 here")
    work, found = sketches(name, target)
    samples = make_samples(work.func, work.reference, 0)
    for number, sketch in enumerate(found):
        for candidate in sketch.draw(np.random.default_rng(number), scaled(1)):
            func = sketch.schedule(candidate).func
            bound = load_cpu(compile_cpu(lower(func, target), target)).bind(guard_bytes=GUARD_BYTES)
            assert verify(bound, arguments_of(func), samples).complete


def test_the_instruction_is_that_of_the_table() -> None:
    """Every sketch with pairs is written with the instruction, and none of the others."""
    for sketch in sketches("whole", PAIRED)[1]:
        (candidate,) = sketch.draw(np.random.default_rng(0), 1)
        lowered = lower(sketch.schedule(candidate).func, PAIRED)
        entries = [entry_name(lowered.name)]
        module = LinkedModule([generate(lowered, PAIRED)], entries, PAIRED, "x86_64-unknown-linux-gnu")
        assert ("vdpbf16ps" in module.assembly()) == (",dot=" in sketch.name)
