"""Dot products of bytes whose words are put together: the taps of windows, and other steps that are no words."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from legal_programs import MACHINES
from scale import scaled

from stridesmith.backends.cpu import compile_cpu, load_cpu
from stridesmith.backends.data import arguments_of, pack
from stridesmith.backends.host import host_cpu
from stridesmith.backends.legal.program import as_function, legal
from stridesmith.backends.legal.taps import tap_dots
from stridesmith.backends.lower import Lowered, lower
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import GUARD_BYTES, verify
from stridesmith.ir.dtypes import with_lanes
from stridesmith.ir.expr import Buffer, Call, Load, Ramp, Var, const
from stridesmith.ir.functions import DOT_CALLS, PACK_4X8
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc, Store
from stridesmith.ir.type_check import TypeFault, check_types
from stridesmith.ir.verify.rules import verify as check
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate as space_of
from stridesmith.space.workloads import Workload, from_func

VNNI = MACHINES["vnni"]
needs_vnni = pytest.mark.skipif(not VNNI.cpu_features <= host_cpu().cpu_features, reason="no VNNI here")

DEPTHWISE = """
@T.prim_func
def main(x: T.Buffer((9, 23, 20), "uint8"), w: T.Buffer((20, {k}, {k}), "int8"), y: T.Buffer(({h}, {v}, 20), "int32")):
    for i, j, c, p, q in T.grid({h}, {v}, 20, {k}, {k}):
        with T.block("sum"):
            vi, vj, vc, vp, vq = T.axis.remap("SSSRR", [i, j, c, p, q])
            with T.init():
                y[vi, vj, vc] = 0
            y[vi, vj, vc] = y[vi, vj, vc] + (
                T.Cast("int32", x[vi{s} + vp, vj{s} + vq, vc]) * T.Cast("int32", w[vc, vp, vq]))
"""
PRODUCT = """
@T.prim_func
def main(a: T.Buffer((9, 14), "{a}"), b: T.Buffer((14, 37), "{b}"), c: T.Buffer((9, 37), "int32")):
    for i, j, k in T.grid(9, 37, 14):
        with T.block("sum"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = 0
            c[vi, vj] = c[vi, vj] + T.Cast("int32", a[vi, vk]) * T.Cast("int32", b[vk, vj])
"""
PROGRAMS = {
    "three": DEPTHWISE.format(k=3, h=7, v=21, s=""),
    "five": DEPTHWISE.format(k=5, h=5, v=19, s=""),
    "seven": DEPTHWISE.format(k=7, h=3, v=17, s=""),
    "apart": DEPTHWISE.format(k=3, h=4, v=11, s=" * 2"),
    **{a[0] + b[0]: PRODUCT.format(a=a, b=b) for a in ("uint8", "int8") for b in ("uint8", "int8")},
}


@lru_cache(maxsize=16)
def sketches(name: str) -> tuple[Workload, tuple[Sketch, ...]]:
    func = parse(PROGRAMS[name])
    assert isinstance(func, PrimFunc)
    work = from_func(func)
    constants = {work.inputs[1]: "constant"}
    return work, tuple(s for s in space_of(func, VNNI, constants).sketches if ",dot=" not in s.name)


def words_of(body: object) -> int:
    return sum(isinstance(n, Call) and n.name == PACK_4X8 for n in walk(body))


@pytest.mark.parametrize("name", PROGRAMS)
def test_legal_programs_mean_what_lowered_ones_mean(name: str) -> None:
    """Bit by bit, with bytes of all values; some candidates of each program have such words."""
    work, found = sketches(name)
    rng, words = np.random.default_rng(0), 0
    ends = {"int8": (-128, 128), "uint8": (0, 256)}
    arrays = [rng.integers(*ends[b.dtype], b.shape).astype(b.dtype) for b in work.func.buffers[:-1]]
    out = np.zeros(work.func.buffers[-1].shape, np.int32)
    interpret(work.func, *arrays, out)
    for number, sketch in enumerate(found[:: max(1, len(found) // 3)]):  # the interpreter takes its time
        funcs = [sketch.schedule(c).func for c in sketch.draw(np.random.default_rng(number), scaled(3))]
        func = max(funcs, key=lambda func: words_of(legal(lower(func, VNNI), VNNI).body))
        made = legal(lower(func, VNNI), VNNI)
        words += words_of(made.body)
        given = [pack(k, a).reshape(-1) for k, a in zip(arguments_of(func), arrays, strict=False)]
        got = np.zeros(out.size, np.int32)
        interpret(as_function(made), *given, got, strict_state=False)
        np.testing.assert_array_equal(got, out.reshape(-1))
    assert words


@needs_vnni
@pytest.mark.parametrize("name", PROGRAMS)
def test_candidates_compute_what_they_should(name: str) -> None:
    """Whole kernels, with poison in all that may not be relied on."""
    work, found = sketches(name)
    samples = make_samples(work.func, work.reference, 0)
    for number, sketch in enumerate(found[:: max(1, len(found) // 4)]):
        for candidate in sketch.draw(np.random.default_rng(number), scaled(1)):
            func = sketch.schedule(candidate).func
            bound = load_cpu(compile_cpu(lower(func, VNNI), VNNI)).bind(guard_bytes=GUARD_BYTES)
            assert verify(bound, arguments_of(func), samples).complete


NEST = """
@T.prim_func
def main(x: T.Buffer((400,), "uint8"), w: T.Buffer((64,), "int8"), y: T.Buffer((64,), "int32")):
    C = T.allocate([64], "int32", scope="local")
    for i in T.unroll(4):
        C[T.Ramp(i * 16, 1, 16)] = T.Broadcast(T.int32(0), 16)
    for p in T.unroll({outer}):
        for q in T.unroll({inner}):
            for i in T.unroll(4):
                C[T.Ramp(i * 16, 1, 16)] = C[T.Ramp(i * 16, 1, 16)] + (
                    T.Cast("int32x16", x[T.Ramp(i * 16 + {at}, 1, 16)])
                    * T.Broadcast(T.Cast("int32", w[p * 5 + q]), 16))
    for i in T.unroll(4):
        y[T.Ramp(i * 16, 1, 16)] = C[T.Ramp(i * 16, 1, 16)]
"""


def rewritten(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func.with_body(tap_dots(func.body, VNNI))


@pytest.mark.parametrize(("steps", "dots", "words"), [(2, 1, 2), (3, 1, 2), (4, 1, 2), (5, 1, 2), (6, 2, 4), (7, 2, 4)])
def test_steps_are_taken_four_at_a_time(steps: int, dots: int, words: int) -> None:
    """Fewer are filled up, and one alone stays as it was; nothing else of the program changes."""
    func = rewritten(NEST.format(outer=1, inner=steps, at="q"))
    calls = [n.name for n in walk(func.body) if isinstance(n, Call)]
    assert (calls.count("dot_4x8packed_us"), calls.count(PACK_4X8)) == (dots, words)
    check(func)
    assert parse(func.script()) == func
    rng = np.random.default_rng(steps)
    x, w = rng.integers(0, 256, 400).astype(np.uint8), rng.integers(-128, 128, 64).astype(np.int8)
    results = [np.zeros(64, np.int32) for _ in range(2)]
    for program, y in zip((func, parse(NEST.format(outer=1, inner=steps, at="q"))), results, strict=True):
        interpret(program, x, w, y)
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize(("at", "var"), [("p * 16 + q", "p"), ("p + q * 16", "q")])
def test_the_loop_is_taken_whose_words_are_shared(at: str, var: str) -> None:
    """Steps of 16 meet the same places as the vectors of the tile do, so that five words serve two loops."""
    func = rewritten(NEST.format(outer=3, inner=3, at=at))
    left = {n.var.name for n in walk(func.body) if isinstance(n, For)}
    assert ({"p", "q"} - left) == {"q" if var == "p" else "p"}


@pytest.mark.parametrize("name", ["avx2", "avxvnniint8", "vnni", "neon", "i8mm"])
def test_only_machines_that_multiply_bytes_have_them(name: str) -> None:
    """Where bytes are widened to pairs of 16 bits, products stay as they are."""
    func = parse(NEST.format(outer=1, inner=3, at="q"))
    assert isinstance(func, PrimFunc)
    made = tap_dots(func.body, MACHINES[name])
    assert bool(words_of(made)) == (name in ("avxvnniint8", "vnni", "i8mm"))


@pytest.mark.parametrize(
    "change",
    [
        ("w[p * 5 + q]", 'T.Cast("int8", y[q])'),
        ("i * 16, 1, 16)] = C[T.Ramp(i * 16, 1, 16)] + ", "i * 16, 1, 16)] = C[T.Ramp(q * 16, 1, 16)] + "),
        ("in T.unroll({inner})", "in range({inner})"),
    ],
)
def test_other_nests_stay(change: tuple[str, str]) -> None:
    """A sum of another element, or of steps that are not unrolled; and of bytes that are no loads it may be any."""
    func = parse(NEST.replace(*change).format(outer=1, inner=3, at="q"))
    assert isinstance(func, PrimFunc)
    assert bool(words_of(tap_dots(func.body, VNNI))) == ("y[q]" in change[1])


@needs_vnni
@pytest.mark.parametrize("width", [1, 2, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_the_node_is_compiled_as_it_is_interpreted(width: int, dtype: str) -> None:
    """Vectors of any width, and scalars."""
    buffers = [Buffer(n, (4 * width,), dtype) for n in "abcd"]
    out, i = Buffer("y", (4 * width,), "int32"), Var("i")
    at = (i,) if width == 1 else (Ramp(i * width, const(1), width),)
    value = Call(PACK_4X8, tuple(Load(b, at) for b in buffers), with_lanes("int32", width))
    program = Lowered("program", (*buffers, out), (), For(i, const(4), Store(out, at, value)))
    rng = np.random.default_rng(width)
    bytes_of = [rng.integers(0, 256, 4 * width).astype(np.uint8).view(dtype) for _ in buffers]
    want = np.stack(bytes_of, axis=1).view(np.uint8).reshape(-1).view("<i4")
    got = np.zeros(4 * width, np.int32)
    interpret(as_function(program), *bytes_of, got)
    assert (got == want).all()
    bound = load_cpu(compile_cpu(program, VNNI)).bind()
    for number, data in enumerate(bytes_of):
        bound.write(number, data)
    bound.run()
    assert (bound.read(4) == want).all()


def test_words_of_other_types_are_refused() -> None:
    """Four numbers of one type of 8 bits, and a word for each lane."""
    byte, short = const(1, "int8"), const(1, "int16")
    with pytest.raises(TypeFault, match="`pack_4x8` takes 4 arguments, but has 3"):
        check_types(Call(PACK_4X8, (byte,) * 3, "int32"))
    with pytest.raises(TypeFault, match="takes numbers of 8 bits and gives int32, each of as many lanes"):
        check_types(Call(PACK_4X8, (short,) * 4, "int32"))
    with pytest.raises(TypeFault, match="takes numbers of 8 bits and gives int32, each of as many lanes"):
        check_types(Call(PACK_4X8, (byte,) * 4, "int32x2"))
    assert set(DOT_CALLS)
