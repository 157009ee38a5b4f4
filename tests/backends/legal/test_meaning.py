"""Legal programs mean what lowered ones mean, on every instruction set, whether this machine has it or not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from draws import candidates, func_of
from emulated import operators
from legal_programs import DEVICES, MACHINES, RandomPrograms, agree, lowered_for, meaning
from masking import CASES, filled
from random_runs import arguments
from scale import scaled

from stridesmith.backends.errors import CodegenError
from stridesmith.backends.legal.program import legal
from stridesmith.backends.lower import Lowered, LoweringError
from stridesmith.ir.expr import Buffer, Call, Load, Ramp, Select, Shuffle, Var, const
from stridesmith.ir.functions import MASKED_LOAD, MULTIPLY_ACCUMULATE
from stridesmith.ir.isa import DOT_PRODUCTS, PAIRS, SIGNS, VECTORS
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, If, Let, PrimFunc, Store, walk_stmts
from stridesmith.ir.verify.bounds import OutOfBounds
from stridesmith.space.design.space import generate as space_of
from stridesmith.space.workloads import workload

k = Var("k")
OPERATORS = ("matmul", "conv2d nhwc", "depthwise", "max pool", "softmax")


def nodes(program: Lowered) -> Counter[str]:
    """How often the nodes of legal programs occur."""
    found: Counter[str] = Counter()
    for node in walk(program.body):
        if isinstance(node, Call):
            found[node.name] += 1
        elif isinstance(node, Shuffle):
            found["shuffle"] += 1
        elif isinstance(node, If) and isinstance(node.then, Store):
            found["masked store"] += node.cond.dtype != "bool"
    return found


def test_every_row_of_the_tables_has_a_machine() -> None:
    """No instruction set and no dot product is left out."""
    assert {m.isa for m in MACHINES.values()} == {row.name for row in VECTORS}
    used = {
        row for m in MACHINES.values() for row in DOT_PRODUCTS
        if any(row.takes(s) for s in (*SIGNS, PAIRS)) and all(need in m.cpu_features for need in row.needs)
    }  # fmt: skip
    assert used == set(DOT_PRODUCTS)


@pytest.mark.parametrize("name", MACHINES)
def test_random_programs_mean_the_same(name: str) -> None:
    """Over the whole grammar, with masks and without; programs that lowering refuses are left out."""
    changed = 0
    for seed in range(scaled(15)):
        func = RandomPrograms(seed).program()
        try:
            lowered = lowered_for(func, MACHINES[name])
        except (LoweringError, OutOfBounds):
            continue
        changed += agree(lowered, MACHINES[name], arguments(func))
    assert changed


@pytest.mark.parametrize("name", DEVICES)
def test_random_kernels_mean_the_same(name: str) -> None:
    """On OpenCL devices: written out, in vectors that there are, with masks and fences as nodes."""
    changed = 0
    for seed in range(scaled(15)):
        func = RandomPrograms(seed).program()
        try:
            changed += agree(lowered_for(func, DEVICES[name]), DEVICES[name], arguments(func))
        except (LoweringError, OutOfBounds, CodegenError):
            continue
    assert changed


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["opencl cpu", "opencl masks"])
def test_masked_kernels_mean_the_same(name: str, case: str) -> None:
    """Edges of all kinds; what is read beside them is inside of memory, and what is left of a mask is one access."""
    target, func = DEVICES[name], CASES[case]
    agree(lowered_for(func, target), target, filled(func))
    body = legal(lowered_for(func, target), target).body
    assert all(isinstance(s.then, Store) for s in walk_stmts(body) if isinstance(s, If) and s.cond.dtype != "bool")


@pytest.mark.parametrize("kind", ("conv2d int8", "matmul float16", *OPERATORS))
@pytest.mark.parametrize("name", DEVICES)
def test_candidates_for_devices_mean_the_same(name: str, kind: str) -> None:
    """Candidates of small operators for OpenCL: work-groups, local memory, images, subgroups."""
    target, (operator, shape) = DEVICES[name], operators()[kind]
    sketches = space_of(workload(operator, **shape).func, target).sketches
    chosen = np.random.default_rng(len(name)).permutation(len(sketches))[: scaled(2)]
    for sketch in (sketches[number] for number in chosen):
        for choice in candidates(sketch, 1):
            scheduled = sketch.schedule(choice).func
            try:
                agree(lowered_for(scheduled, target), target, arguments(scheduled))
            except CodegenError as error:  # what a search counts as refused
                assert "needs a barrier inside a condition" in str(error)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_masked_programs_mean_the_same(name: str, case: str) -> None:
    """Edges of all kinds; what is under a mask is one access each, and no lane outside of memory is read."""
    target = MACHINES[name]
    lowered = lowered_for(CASES[case], target)
    agree(lowered, target, filled(CASES[case]))
    found = nodes(legal(lowered, target))
    if any(isinstance(s, If) and s.cond.dtype != "bool" for s in walk_stmts(lowered.body)):
        assert found["masked store"] or found[MASKED_LOAD]


SHUFFLED = """
@T.prim_func
def shuffled(n: T.Buffer((4,), "int32"), a: T.Buffer((9,), "float32"), b: T.Buffer((4,), "float32")):
    for i in range(4):
        b[T.Ramp(i // 3 * 2, 1, 2)] = T.if_then_else(
            T.Broadcast(i < 2, 2) and n[T.Ramp(i // 3 * 2, 1, 2)] < T.Broadcast(5, 2),
            T.Shuffle([a[T.Ramp(i, 1, 8)], T.Broadcast(T.float32(2.0), 8)], [7, 1]),
            T.Broadcast(T.float32(-1.0), 2),
        )
"""


@pytest.mark.parametrize("name", MACHINES)
def test_a_vector_in_a_shuffle_is_read_if_any_lane_is(name: str) -> None:
    """It has other lanes than the condition, and is in bounds only where that holds in one."""
    target = MACHINES[name]
    lowered = lowered_for(parse(SHUFFLED), target)
    for some in ([9, 9, 9, 9], [0, 9, 9, 0], [1, 2, 3, 4]):
        arrays = [np.array(some, np.int32), np.arange(9, dtype=np.float32), np.zeros(4, np.float32)]
        assert agree(lowered, target, arrays)


@pytest.mark.parametrize("kind", OPERATORS)
@pytest.mark.parametrize("name", ["sse2", "avx2", "avx512", "neon"])
def test_candidates_mean_the_same(name: str, kind: str) -> None:
    """Candidates of small operators, as a search draws them."""
    target, (operator, shape) = MACHINES[name], operators()[kind]
    sketches = space_of(workload(operator, **shape).func, target).sketches
    chosen = np.random.default_rng(len(name)).permutation(len(sketches))[: scaled(2)]
    for sketch in (sketches[number] for number in chosen):
        for choice in candidates(sketch, 1):
            scheduled = sketch.schedule(choice).func
            agree(lowered_for(scheduled, target), target, arguments(scheduled))


A, B = Buffer("a", (256,)), Buffer("b", (64,))


def copy(stride: int, base: int, count: int) -> Lowered:
    """``b[8 k : 8 k + 8] = a[base + k : : stride]`` for unrolled k."""
    read = Load(A, (Ramp(k + base, const(stride), 8),))
    store = Store(B, (Ramp(k * 8, const(1), 8),), read)
    return Lowered("program", (A, B), (), For(k, const(count), store, "unrolled"))


@pytest.mark.parametrize("stride, base, count, shuffles, lets", [
    (2, 0, 4, 1, 0), (3, 5, 4, 1, 0), (-1, 40, 4, 1, 0), (-2, 40, 4, 1, 0), (19, 0, 4, 0, 0),  # picked, or one by one
    (1, 0, 8, 0, 0), (0, 3, 8, 0, 0),  # neighbours, or the same in all lanes
    (2, 0, 8, 24, 32), (19, 0, 8, 24, 32),  # a square
])  # fmt: skip
def test_lanes_that_are_apart_are_shuffles_where_that_pays(
    stride: int, base: int, count: int, shuffles: int, lets: int
) -> None:
    """Few vectors for all lanes, a transposition for a square of them, and neighbours as they are."""
    program, target = copy(stride, base, count), MACHINES["avx2"]
    data = [np.arange(256, dtype=np.float32), np.zeros(64, np.float32)]
    agree(program, target, data)
    found = legal(program, target)
    assert nodes(found)["shuffle"] == shuffles
    assert sum(isinstance(s, Let) for s in walk_stmts(found.body)) == lets
    want = np.concatenate([base + n + stride * np.arange(8) for n in range(count)])
    np.testing.assert_array_equal(meaning(found, data)["b"][0][: 8 * count], want)


@pytest.mark.parametrize("first", [7, 4])
def test_lanes_of_one_block_are_one_load(first: int) -> None:
    """Backwards through a block, whose first lane the loop may determine: the block is loaded as it lies."""
    place = k * 9 + first if first == 4 else k * 8 + first
    read = Load(A, (Ramp(place, const(-1), 8 if first == 7 else 4),))
    store = Store(B, (Ramp(k * 8, const(1), 8 if first == 7 else 4),), read)
    program = Lowered("program", (A, B), (), For(k, const(3), store, "unrolled"))
    found = legal(program, MACHINES["avx512"])
    assert agree(program, MACHINES["avx512"], [np.arange(256, dtype=np.float32), np.zeros(64, np.float32)])
    (shuffle,) = (n for n in walk(found.body) if isinstance(n, Shuffle))
    assert len(shuffle.vectors) == 1


def test_multiply_adds_into_register_tiles_are_nodes_where_registers_are_few() -> None:
    """On AVX2, whose sixteen registers LLVM would move accumulators through; elsewhere they stay sums and products."""
    func = func_of("""
@T.prim_func
def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((8, 16), "float32"), C: T.Buffer((4, 16), "float32")):
    acc = T.alloc_buffer((4, 16), scope="local")
    for i in T.unroll(4):
        for v in T.vectorized(16):
            acc[i, v] = T.float32(0)
    for k in range(8):
        for i in T.unroll(4):
            for v in T.vectorized(16):
                acc[i, v] = acc[i, v] + A[i, k] * B[k, v]
    for i in T.unroll(4):
        for v in T.vectorized(16):
            C[i, v] = acc[i, v]
""")
    wide = {name: nodes(legal(lowered_for(func, target), target)) for name, target in MACHINES.items()}
    assert not any(found[MULTIPLY_ACCUMULATE] for found in wide.values())  # no register holds 64 bytes
    halves = func_of(func.script().replace("T.vectorized(16)", "T.vectorized(8)"))
    found = {name: nodes(legal(lowered_for(halves, t), t))[MULTIPLY_ACCUMULATE] for name, t in MACHINES.items()}
    assert {name for name, count in found.items() if count} == {"avx2", "avxvnni", "avxvnniint8"}
    arrays = arguments(halves)
    assert agree(lowered_for(halves, MACHINES["avx2"]), MACHINES["avx2"], arrays)


def test_a_masked_tile_is_written_whole() -> None:
    """A register tile keeps what it holds in the lanes that are left out."""
    target = MACHINES["avx512"]
    found = legal(lowered_for(CASES["maximum"], target), target)
    assert any(isinstance(n, Select) for n in walk(found.body))
    assert not any(isinstance(s, If) and s.cond.dtype != "bool" for s in walk_stmts(found.body))


@pytest.mark.parametrize("name", DEVICES)
def test_a_condition_protects_a_side_that_is_evaluated_in_any_case(name: str) -> None:
    """`select` evaluates both sides, so that its own condition stands for none of those in them."""
    func = parse("""
@T.prim_func
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(3):
        B[i] = T.Select(i >= 1, T.if_then_else(i >= 1, A[i - 1], A[0]), A[4])
""")
    assert isinstance(func, PrimFunc)
    agree(lowered_for(func, DEVICES[name]), DEVICES[name], arguments(func))


@pytest.mark.parametrize(
    ("few", "wide", "constant", "is_held"),
    [
        ("bfloat16", "float32", 'T.float32("-inf")', True), ("bfloat16", "float32", "T.float32(0.0)", True),
        ("uint8", "int32", "T.int32(128)", True), ("int8", "float32", "T.float32(-5.0)", True),
        ("bfloat16", "float32", "T.float32(0.1)", False), ("uint8", "int32", "T.int32(-1)", False),
        ("int8", "float32", "T.float32(-0.0)", False), ("int8", "float32", "T.float32(2.5)", False),
    ],
)  # fmt: skip
def test_a_border_of_few_bits_is_read_before_it_is_converted(few: str, wide: str, constant: str, is_held: bool) -> None:
    """One condition for a vector takes no branch where its constant is a number of the type in memory, too."""
    func = func_of(f"""
@T.prim_func
def f(A: T.Buffer((6, 16), "{few}"), B: T.Buffer((8, 16), "{wide}")):
    for i in range(8):
        for v in T.vectorized(16):
            B[i, v] = T.if_then_else(1 <= i and i < 7, T.Cast("{wide}", A[i - 1, v]), {constant})
""")
    target = MACHINES["avx512"]
    lowered = lowered_for(func, target)
    assert nodes(lowered)["if_then_else"] == 1
    assert nodes(legal(lowered, target))[MASKED_LOAD] == is_held
    agree(lowered, target, arguments(func))
