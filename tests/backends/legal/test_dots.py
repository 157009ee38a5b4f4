"""Dot products of bytes: legal programs mean what lowered ones mean, and code computes it, on every instruction set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scale import scaled

from stridesmith.backends.cpu import compile_cpu, load_cpu
from stridesmith.backends.host import host_cpu
from stridesmith.backends.legal.program import as_function, legal
from stridesmith.backends.llvm.compile import LinkedModule
from stridesmith.backends.lower import Lowered, lower
from stridesmith.backends.passes.errors import LoweringError
from stridesmith.backends.render.llvm_module import entry_name, generate
from stridesmith.ir.dtypes import lanes, with_lanes
from stridesmith.ir.expr import Buffer, Call, Cast, Load, Ramp, Var, const
from stridesmith.ir.functions import DOT_CALLS
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.isa import DOT_PRODUCTS, PAIRS, SIGNS, VECTORS
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, If, PrimFunc, Store
from stridesmith.ir.target import Target
from stridesmith.ir.verify.rules import verify
from stridesmith.space.design.space import Space
from stridesmith.space.design.space import generate as space_of

X86 = {row.name: row for row in VECTORS if "x86_64" in row.machines}
TYPES = {"u": "uint8", "s": "int8"}


def cpu(*features: str, isa: str = "avx512", name: str = "x86-64-v4") -> Target:
    """A processor with an instruction set and some features more."""
    row = next(v for v in VECTORS if v.name == isa)
    text = ",".join(f"+{f}" for f in (*row.needs, *features))
    return Target(name=name, isa=isa, cpu=name, features=text, vector_bits=row.bits, registers=row.registers, threads=2)


TARGETS = {
    "vnni": cpu("avx512vnni", "avx512bf16", "avx2"),
    "avx512": cpu("avx2"),
    "avx2": cpu(isa="avx2", name="x86-64-v3"),
    "avxvnni": cpu("avxvnni", isa="avx2", name="x86-64-v3"),
    "avxvnniint8": cpu("avxvnniint8", "avxvnni", isa="avx2", name="x86-64-v3"),
    "dotprod": cpu("neon", "dotprod", isa="neon", name="generic"),
    "i8mm": cpu("neon", "dotprod", "i8mm", isa="neon", name="generic"),
}
"""A target for each way in which bytes are multiplied, also such as this machine lacks."""


def runs_here(target: Target) -> bool:
    return target.isa in X86 and target.cpu_features <= host_cpu().cpu_features


def product(signs: str, k: int, m: int = 7, n: int = 20) -> PrimFunc:
    """``c = a b`` of bytes, and `k` steps of the sum."""
    func = parse(f"""
@T.prim_func
def main(a: T.Buffer(({m}, {k}), "{TYPES[signs[0]]}"), b: T.Buffer(({k}, {n}), "{TYPES[signs[1]]}"),
         c: T.Buffer(({m}, {n}), "int32")):
    for i, j, k in T.grid({m}, {n}, {k}):
        with T.block("sum"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.int32(0)
            c[vi, vj] = c[vi, vj] + T.Cast("int32", a[vi, vk]) * T.Cast("int32", b[vk, vj])
""")
    assert isinstance(func, PrimFunc)
    return func


@lru_cache(maxsize=64)
def space(signs: str, k: int, target: Target) -> Space:
    return space_of(product(signs, k), target)


def candidates(signs: str, k: int, target: Target, count: int) -> Iterator[PrimFunc]:
    """Random candidates whose sums are dot products."""
    for number, sketch in enumerate(space(signs, k, target).sketches):
        if ",dot=" in sketch.name:
            for choice in sketch.draw(np.random.default_rng(number), count):
                yield sketch.schedule(choice).func


def factors(signs: str, k: int, m: int = 7, n: int = 20, seed: int = 0) -> list[np.ndarray]:
    """Bytes of the whole range, the ends of it among them."""
    rng = np.random.default_rng(seed)
    found = []
    for sign, shape in zip(signs, ((m, k), (k, n)), strict=True):
        low, high = np.iinfo(TYPES[sign]).min, np.iinfo(TYPES[sign]).max
        data = rng.integers(low, high + 1, shape)
        data[0], data[:, 0] = low, high
        found.append(data.astype(TYPES[sign]))
    return found


def interpreted(lowered: Lowered, *arrays: np.ndarray) -> np.ndarray:
    """What a program over flat memory computes of arrays, into the last of its parameters."""
    out = np.zeros(lowered.params[-1].shape, np.int32)
    flat = (a.reshape(-1) for a in arrays)
    interpret(as_function(lowered), *flat, out, strict_state=False)  # stores of undef are gone
    return out


@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("name", TARGETS)
def test_legal_programs_mean_what_lowered_ones_mean(name: str, signs: str) -> None:
    """On every instruction set, whether this machine has it or not: equal bit by bit, for bytes of the whole range."""
    target = TARGETS[name]
    a, b = factors(signs, 22)
    want = a.astype(np.int32) @ b.astype(np.int32)
    nodes = 0
    for func in candidates(signs, 22, target, scaled(1)):
        lowered = lower(func, target)
        found = legal(lowered, target)
        if not has_masks(lowered):
            verify(as_function(found))
        assert parse(as_function(found).script()) == as_function(found)
        nodes += sum(isinstance(n, Call) and n.name in DOT_CALLS for n in walk(found.body))
        np.testing.assert_array_equal(interpreted(lowered, a, b), want.reshape(-1))
        np.testing.assert_array_equal(interpreted(found, a, b), want.reshape(-1))
    assert nodes if signs in target.dot_signs else not nodes


BITS = {
    "T.bitwise_and(T.shift_right(b[vk, vj], T.Cast('uint8', vh * 4)), T.uint8(15))": lambda b, h: b >> 4 * h & 15,
    "T.shift_right(b[vk, vj], T.Cast('uint8', vh * 3 + 1))": lambda b, h: b >> 3 * h + 1,
    "T.bitwise_xor(b[vk, vj] % T.uint8(32), T.Cast('uint8', vh + 5))": lambda b, h: b % 32 ^ h + 5,
    "T.bitwise_or(b[vk, vj] // T.uint8(4), T.uint8(129))": lambda b, h: b // 4 | 129,
}
"""Some bits of a byte, in the language and in NumPy, by which half of the sum it is."""


def halves(bits: str) -> PrimFunc:
    """``c = sum a[h] f(b, h)`` over two halves of signed bytes and bits of the same bytes."""
    func = parse(f"""
@T.prim_func
def main(a: T.Buffer((7, 2, 24), "int8"), b: T.Buffer((24, 20), "uint8"), c: T.Buffer((7, 20), "int32")):
    for i, j, h, k in T.grid(7, 20, 2, 24):
        with T.block("sum"):
            vi, vj, vh, vk = T.axis.remap("SSRR", [i, j, h, k])
            with T.init():
                c[vi, vj] = T.int32(0)
            c[vi, vj] = c[vi, vj] + T.Cast("int32", a[vi, vh, vk]) * T.Cast("int32", {bits})
""")
    assert isinstance(func, PrimFunc)
    return func


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", TARGETS)
def test_bits_of_bytes_are_taken_of_whole_words(name: str, bits: str) -> None:
    """Both halves of a byte, and other bits, meet signed bytes in dot products; what a shift crosses is cut away."""
    target = TARGETS[name]
    rng = np.random.default_rng(3)
    a, b = rng.integers(-128, 128, (7, 2, 24)).astype(np.int8), rng.integers(0, 256, (24, 20)).astype(np.uint8)
    want = sum(a[:, h].astype(np.int32) @ BITS[bits](b, h).astype(np.int32) for h in (0, 1))
    nodes = 0
    for number, sketch in enumerate(space_of(halves(bits), target).sketches):
        for choice in sketch.draw(np.random.default_rng(number), 1) if ",dot=" in sketch.name else ():
            lowered = lower(sketch.schedule(choice).func, target)
            found = legal(lowered, target)
            nodes += sum(isinstance(n, Call) and n.name in DOT_CALLS for n in walk(found.body))
            np.testing.assert_array_equal(interpreted(found, a, b), want.reshape(-1))
            if runs_here(target):
                bound = load_cpu(compile_cpu(lowered, target)).bind()
                for at, data in enumerate((a, b)):
                    bound.write(at, data)
                bound.run()
                np.testing.assert_array_equal(bound.read(2).reshape(want.shape), want)
    assert nodes if "su" in target.dot_signs else not nodes


def test_bits_that_differ_from_step_to_step_are_no_dot_product() -> None:
    """A shift by the step itself is refused by its loop."""
    a, b, c = (Buffer(n, (4,), t) for n, t in (("a", "int8"), ("b", "uint8"), ("c", "int32")))
    r = Var("r")
    bits = Call("shift_right", (Load(b, (r,)), Cast("uint8", r)), "uint8")
    product = Cast("int32", Load(a, (r,))) * Cast("int32", bits)
    loop = For(r, const(4), Store(c, (const(0),), Load(c, (const(0),)) + product), annotations=(("dot", True),))
    with pytest.raises(LoweringError, match="the bits that it takes of `b` are others in each step"):
        legal(Lowered("program", (a, b, c), (), loop), TARGETS["vnni"])


def test_each_row_of_the_table_is_used_by_a_target() -> None:
    """The targets above leave no instruction out."""
    rows = {t: [row for row in DOT_PRODUCTS if _has(t, row.needs)] for t in TARGETS.values()}
    used = {row for found in rows.values() for row in found if any(map(row.takes, (*SIGNS, PAIRS)))}
    assert used == set(DOT_PRODUCTS)


def _has(target: Target, needs: tuple[str, ...]) -> bool:
    return all(need in target.cpu_features for need in needs)


def has_masks(lowered: Lowered) -> bool:
    """Whether conditions of single lanes are left, which only lowered programs have."""
    return any(isinstance(n, If) and lanes(n.cond.dtype) > 1 for n in walk(lowered.body))


def words_program(name: str, width: int) -> Lowered:
    """``c = f(a, b, c)`` for some 64 words in vectors of so many lanes."""
    count = 64 // width
    a, b, c = (Buffer(n, (count * width,), "int32") for n in "abc")
    i = Var("i")
    at = (i,) if width == 1 else (Ramp(i * width, const(1), width),)
    value = Call(name, (Load(a, at), Load(b, at), Load(c, at)), with_lanes("int32", width))
    return Lowered("program", (a, b, c), (), For(i, const(count), Store(c, at, value)))


@pytest.mark.parametrize("name", DOT_CALLS)
@pytest.mark.parametrize("target", [n for n, t in TARGETS.items() if runs_here(t)])
def test_code_computes_what_the_interpreter_does(target: str, name: str) -> None:
    """Vectors of every width, of words of any bits, added to numbers near the ends of their range: sums wrap."""
    for width in (1, 2, 3, 4, 5, 8, 10, 12, 16, 20, 26, 32):
        program = words_program(name, width)
        rng = np.random.default_rng(width)
        a, b = (rng.integers(-(2**31), 2**31, program.params[0].shape).astype(np.int32) for _ in range(2))
        a[0] = b[0] = -2139062144  # four bytes 0x80
        c = rng.choice(np.asarray([2**31 - 1, -(2**31), 0, 5], np.int32), a.shape)
        want = c.copy()
        interpret(as_function(program), a, b, want, strict_state=False)
        bound = load_cpu(compile_cpu(program, TARGETS[target])).bind()
        for number, data in enumerate((a, b, c)):
            bound.write(number, data)
        bound.run()
        np.testing.assert_array_equal(bound.read(2), want)


@pytest.mark.parametrize(
    ("width", "calls"), [(1, 1), (5, 1), (7, 1), (8, 1), (10, 1), (14, 1), (16, 1), (20, 2), (26, 2), (36, 3)]
)
def test_the_rest_of_a_vector_is_one_instruction(width: int, calls: int) -> None:
    """What is left over of whole vectors takes one that is wide enough, not several narrow ones."""
    text = generate(words_program("dot_4x8packed_us", width), TARGETS["vnni"])
    assert len(re.findall(r"= call .*vpdpbusd", text)) == calls


@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("target", [n for n, t in TARGETS.items() if runs_here(t)])
def test_candidates_compute_products_of_all_bytes(target: str, signs: str) -> None:
    """Whole kernels, with bytes from the one end of their range to the other, where nothing may saturate."""
    for func in candidates(signs, 24, TARGETS[target], 2):
        a, b = factors(signs, 24)
        bound = load_cpu(compile_cpu(lower(func, TARGETS[target]), TARGETS[target])).bind()
        bound.write(0, a)
        bound.write(1, b)
        bound.run()
        want = a.astype(np.int32) @ b.astype(np.int32)
        np.testing.assert_array_equal(bound.read(2).reshape(want.shape), want)


@pytest.mark.parametrize(
    "target, signs, instruction, other",
    [
        ("vnni", "us", "vpdpbusd", "vpmaddwd"),
        ("vnni", "ss", "vpdpbusd", "vpmaddwd"),
        ("vnni", "uu", "vpdpbusd", "vpmaddwd"),
        ("avx512", "ss", "vpmaddwd", "vpdpbusd"),
        ("avxvnni", "su", "vpdpbusd", "vpmaddwd"),
        ("avxvnniint8", "ss", "vpdpbssd", "vpdpbusd"),
        ("avxvnniint8", "uu", "vpdpbuud", "vpdpbusd"),
        ("dotprod", "ss", "sdot", "smull"),
        ("i8mm", "us", "usdot", "smull"),
    ],
)
def test_the_instruction_is_that_of_the_table(target: str, signs: str, instruction: str, other: str) -> None:
    """Code for machines that are not this one has their instructions, and no way around them."""
    func = next(iter(candidates(signs, 24, TARGETS[target], 1)))
    machine = TARGETS[target]
    triple = "aarch64-unknown-linux-gnu" if machine.isa == "neon" else "x86_64-unknown-linux-gnu"
    lowered = lower(func, machine)
    text = LinkedModule([generate(lowered, machine)], [entry_name(lowered.name)], machine, triple).assembly()
    assert instruction in text and other not in text


@pytest.mark.parametrize("signs", ["ss", "uu"])
@pytest.mark.parametrize("target, accumulates", [("vnni", True), ("avxvnni", True), ("avx512", False), ("avx2", False)])
def test_pairs_are_added_up_by_the_instruction_that_multiplies_them(target: str, accumulates: bool, signs: str) -> None:
    """Bytes of equal signs outside of nests, for which no sum stands beside a tile: products of 16 bits in pairs.

    Where one is added to what another one has just given, LLVM may take a product and a sum instead.
    """
    machine, lowered = TARGETS[target], words_program(f"dot_4x8packed_{signs}", 8)
    module = LinkedModule([generate(lowered, machine)], [entry_name(lowered.name)], machine, "x86_64-unknown-linux-gnu")
    assert ("vpdpwssd" in module.assembly()) == accumulates


def test_a_requantised_sum_is_a_program_of_the_language() -> None:
    """What is rounded operation by operation in code is so by the language's own meaning: it has no marks for it."""
    func = parse("""
@T.prim_func
def main(a: T.Buffer((8,), "int32"), s: T.Buffer((1,), "float32"), y: T.Buffer((8,), "int8")):
    for i in range(8):
        y[i] = T.Cast("int8", T.max(T.nearbyint(T.Cast("float32", a[i]) * s[0]), T.float32(-128)))
""")
    assert isinstance(func, PrimFunc)
    made = as_function(legal(lower(func, TARGETS["vnni"]), TARGETS["vnni"]))
    verify(made)
    assert "exact" not in made.script()
    out = np.zeros(8, np.int8)
    interpret(made, np.asarray([1, 3, 5, -1, -3, 1000, -1000, 0], np.int32), np.full(1, 0.5, np.float32), out)
    assert out.tolist() == [0, 2, 2, 0, -2, 127, -128, 0]


def test_what_has_no_dot_products_refuses_the_node_by_its_name() -> None:
    """A program that asks for the node is lowered for machines that have it."""
    target = Target(kind="cpu", name="plain")
    with pytest.raises(LoweringError, match="`plain` has no `dot_4x8packed_us`; write the products out"):
        legal(words_program("dot_4x8packed_us", 4), target)


def test_only_what_the_instruction_lacks_is_offset() -> None:
    """Where one instruction takes the bytes as they are, the program has no sums beside the tile."""
    for name, signs, offset in (("vnni", "us", 0), ("vnni", "ss", 1), ("avxvnniint8", "ss", 0), ("avx2", "ss", 0)):
        text = "".join(
            as_function(legal(lower(f, TARGETS[name]), TARGETS[name])).script()
            for f in candidates(signs, 24, replace(TARGETS[name]), 2)
        )
        assert ("_offset" in text) == bool(offset)
