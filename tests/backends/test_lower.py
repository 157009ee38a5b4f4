"""What lowering promises: the same results after every pass, no conditions where none are needed, refusals in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from stridesmith.backends.lower import LoweringError, lower, lowering_steps
from stridesmith.backends.passes.flatten import flat_buffer
from stridesmith.ir.dtypes import lanes
from stridesmith.ir.expr import Binary, Buffer, Load, Ramp, Var, variables
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Allocate, Assume, Block, For, If, PrimFunc, Stmt, Store
from stridesmith.ir.target import Target
from stridesmith.ir.verify.bounds import OutOfBounds

CPU = Target(kind="cpu", vector_bits=256, threads=2)
OPENCL = Target(kind="opencl", vector_bits=256, max_work_group=64)

TILED = """
@T.prim_func
def mm(A: T.Buffer((13, 11), "float32"), B: T.Buffer((11, 21), "float32"), C: T.Buffer((13, 21), "float32")):
    C_local = T.alloc_buffer((13, 21), "float32", scope="local")
    for f in T.parallel(8):
        for i1_init in T.unroll(4, annotations={peel}):
            for j1_init in T.unroll(2, annotations={peel}):
                for j2_init in T.vectorized(8, annotations={peel}):
                    with T.block("init"):
                        vi = T.axis.spatial(13, f // 2 * 4 + i1_init)
                        vj = T.axis.spatial(21, f % 2 * 16 + j1_init * 8 + j2_init)
                        T.where(f // 2 * 4 + i1_init < 13 and f % 2 * 16 + j1_init * 8 + j2_init < 21)
                        C_local[vi, vj] = T.float32(0)
        for k0 in range(3):
            for k1 in T.serial(4, annotations={peel}):
                for i1 in T.unroll(4, annotations={peel}):
                    for j1 in T.unroll(2, annotations={peel}):
                        for j2 in T.vectorized(8, annotations={peel}):
                            with T.block("update"):
                                vi = T.axis.spatial(13, f // 2 * 4 + i1)
                                vj = T.axis.spatial(21, f % 2 * 16 + j1 * 8 + j2)
                                vk = T.axis.reduce(11, k0 * 4 + k1)
                                T.where(f // 2 * 4 + i1 < 13 and f % 2 * 16 + j1 * 8 + j2 < 21 and k0 * 4 + k1 < 11)
                                C_local[vi, vj] = C_local[vi, vj] + A[vi, vk] * B[vk, vj]
        for o0 in T.unroll(4, annotations={peel}):
            for o1 in T.unroll(2, annotations={peel}):
                for o2 in T.vectorized(8, annotations={peel}):
                    with T.block("out"):
                        v0 = T.axis.spatial(13, f // 2 * 4 + o0)
                        v1 = T.axis.spatial(21, f % 2 * 16 + o1 * 8 + o2)
                        T.where(f // 2 * 4 + o0 < 13 and f % 2 * 16 + o1 * 8 + o2 < 21)
                        C[v0, v1] = C_local[v0, v1]
"""

PACKED = """
@T.prim_func
def mm(A: T.Buffer((13, 11), "float32"), B: T.Buffer((11, 21), "float32"), C: T.Buffer((13, 21), "float32")):
    P = T.alloc_buffer((3, 11, 8), "float32")
    for j0 in T.parallel(3):
        for p0, p1 in T.grid(11, 8):
            with T.block("pack"):
                vj = T.axis.spatial(3, j0)
                vk, vl = T.axis.remap("SS", [p0, p1])
                P[vj, vk, vl] = T.if_then_else(vj * 8 + vl < 21, B[vk, vj * 8 + vl], T.float32(0))
        for i, k, j1 in T.grid(13, 11, 8):
            with T.block("mm"):
                vi, vk = T.axis.remap("SR", [i, k])
                vj = T.axis.spatial(21, j0 * 8 + j1)
                T.where(j0 * 8 + j1 < 21)
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * P[vj // 8, vk, vj % 8]
"""


def tiled(peel: bool = True) -> PrimFunc:
    func = parse(TILED.replace("{peel}", '{"peel": True}' if peel else "{}"))
    assert isinstance(func, PrimFunc)
    return func


def function(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def as_function(func: PrimFunc, body: Stmt, flat: bool) -> PrimFunc:
    """What a pass gave, as a program that the interpreter runs."""
    params = tuple(flat_buffer(p, False) for p in func.buffers) if flat else func.params
    block = body if isinstance(body, Block) and body.name == "root" else Block("root", (), body)
    return PrimFunc(func.name, params, block)


def check_every_pass(func: PrimFunc) -> None:
    """The interpreter gets the original's result from the program after every pass."""
    rng = np.random.default_rng(0)
    args = [rng.integers(1, 5, b.shape).astype(b.dtype) for b in func.buffers]
    expected = [a.copy() for a in args]
    interpret(func, *expected)
    flat = False
    for name, body in lowering_steps(func, CPU):
        flat = flat or name == "flatten_buffers"
        got = [a.reshape(-1).copy() if flat else a.copy() for a in args]
        interpret(as_function(func, body, flat), *got)
        for have, want in zip(got, expected, strict=True):
            np.testing.assert_array_equal(have.reshape(want.shape), want, err_msg=f"after {name}")


def ifs(node: Stmt) -> list[If]:
    return [n for n in walk(node) if isinstance(n, If)]


def conditional_loops(node: Stmt, inside: bool = False) -> Iterator[For]:
    """Reduction loops with a condition somewhere in them."""
    return (n for n in walk(node) if isinstance(n, For) and n.kind != "parallel" and ifs(n.body))


@pytest.mark.parametrize("peel", [True, False], ids=["peel", "branch"])
def test_tiled_matmul_after_every_pass(peel):
    """Ragged tiles, a register tile with a separate init, and a guarded way out keep their meaning in each pass."""
    check_every_pass(tiled(peel))


def test_packed_panel_after_every_pass():
    """A panel that is packed inside a parallel loop keeps its meaning in each pass."""
    check_every_pass(function(PACKED))


DATA_DEPENDENT = """
@T.prim_func
def f(n: T.Buffer((8,), "int64"), x: T.Buffer((8, 16), "float32"), y: T.Buffer((8, 16), "float32")):
    for i in range(8):
        {before}
        for j in T.{kind}(16, annotations={{"peel": True}}):
            {inside}
            if {outer}:
                if {cond}:
                    y[i, j] = x[i, j] + T.float32(10)
"""
DEPENDENT = [
    ("n[i] = i * 2", "", "i < 8", "j < n[i]"),
    ("m: T.int64 = n[i] * 3", "", "i < 8", "j + i < m"),
    ("", "m: T.int64 = n[i] * 3", "i < 8", "j + i < m"),
    ("", "n[i] = i + 1", "i < 8", "j < n[i]"),
    ("", "", "i < 8", "j < n[i] * 4"),
    ("", "", "i < 7", "j < n[i + 1]"),
    ("", "", "0 <= n[i] and n[i] < 4", "j < n[n[i] * 2]"),
]


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize(("before", "inside", "outer", "cond"), DEPENDENT, ids=[" ".join(case) for case in DEPENDENT])
def test_conditions_on_data_are_tested_where_they_can_be(before, inside, outer, cond, kind):
    """Not above the store that they read, nor the let, nor the test that keeps what they read in bounds."""
    lines = DATA_DEPENDENT.format(before=before, inside=inside, outer=outer, cond=cond, kind=kind).splitlines()
    check_every_pass(parse("\n".join(line for line in lines if line.strip())))


ALTERNATIVES = """
@T.prim_func
def f(x: T.Buffer((2, 5, 5), "float32"), y: T.Buffer((2, 5, 5), "float32")):
    for i in range(10):
        for j in range(2):
            for v in T.vectorized(4, annotations={"peel": True}):
                if i // 5 * 4 + j < 7 and (i % 5 != 4 or j * 4 + v < 1) and j * 4 + v < 5:
                    y[i // 5, i % 5, j * 4 + v] = x[i // 5, i % 5, j * 4 + v]
"""


def test_a_disjunction_is_tested_once():
    """Facts keep nothing of one, so that below its test it is as undecided as above."""
    check_every_pass(parse(ALTERNATIVES))


def test_peeled_loops_hold_no_conditions():
    """Four variants stand side by side under conditions on the tile's number; no loop inside holds a condition."""
    lowered = lower(tiled(), CPU)
    assert not list(conditional_loops(lowered.body))
    assert len([n for n in walk(lowered.body) if isinstance(n, Allocate)]) == 4
    f = Var("f")
    assert all(variables(branch.cond) == {f} for branch in ifs(lowered.body))


def test_edges_have_constant_extents_and_shorter_vectors():
    """Of 21 columns in tiles of 16 the edge has 5: it is one vector of 5 lanes, and the row edge one row."""
    lowered = lower(tiled(), CPU)
    widths = {lanes(s.value.dtype) for s in walk(lowered.body) if isinstance(s, Store)}
    assert widths == {8, 5}
    extents = {(n.var.name, n.extent.value) for n in walk(lowered.body) if isinstance(n, For)}
    assert {("i1", 4), ("k0", 2), ("k1", 4), ("k1", 3)} <= extents
    assert not any(name == "i1" and size not in (4,) for name, size in extents)


def test_register_tile_is_indexed_by_unrolled_loops_only():
    """The accumulators of a tile have indices that are constants once the loops of the tile are unrolled."""
    for peel in (True, False):
        body = lower(tiled(peel), CPU).body
        unrolled = {n.var for n in walk(body) if isinstance(n, For) and n.kind == "unrolled"}
        tiles = [n for n in walk(body) if isinstance(n, (Load, Store)) and n.buffer.name == "C_local"]
        assert tiles
        assert all(variables(i) <= unrolled for n in tiles for i in n.indices)
        assert {n.buffer.size for n in walk(body) if isinstance(n, Allocate)} == {64}


def test_branches_stand_outside_of_loops_that_they_do_not_depend_on():
    """With branches instead of peeling, each condition tests a variable of the loop right around it."""
    body = lower(tiled(peel=False), CPU).body
    for loop in (n for n in walk(body) if isinstance(n, For) and isinstance(n.body, If)):
        assert loop.var in variables(loop.body.cond)


def test_packed_panel_shrinks_to_one_iteration():
    """Each thread's panel has the extents of one iteration, and is no workspace of the whole call."""
    lowered = lower(function(PACKED), CPU)
    assert lowered.workspaces == ()
    (panel,) = [n.buffer for n in walk(lowered.body) if isinstance(n, Allocate)]
    assert panel.shape == (88,)


def test_intermediates_of_the_call_are_workspaces():
    """What one nest writes and another one reads is a flat workspace, behind the flat parameters."""
    func = function("""
@T.prim_func
def f(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4, 6), "float32")):
    B = T.alloc_buffer((4, 6), "float32")
    for i, j in T.grid(4, 6):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)
    for i2, j2 in T.grid(4, 6):
        with T.block("c"):
            vi, vj = T.axis.remap("SS", [i2, j2])
            C[vi, vj] = B[3 - vi, vj]
""")
    check_every_pass(func)
    lowered = lower(func, CPU)
    assert [(b.name, b.shape) for b in lowered.params] == [("A", (24,)), ("C", (24,))]
    assert [(b.name, b.shape, b.scope) for b in lowered.workspaces] == [("B", (24,), "global")]
    assert not any(isinstance(n, (Allocate, Block, Assume)) for n in walk(lowered.body))


REDUCTION_IN_PLACE = """
@T.prim_func
def f(A: T.Buffer((10, 7), "float32"), C: T.Buffer((10,), "float32")):
    for i0, k0, i1, k1 in T.grid(3, 2, 4, 4):
        with T.block("sum"):
            vi = T.axis.spatial(10, i0 * 4 + i1)
            vk = T.axis.reduce(7, k0 * 4 + k1)
            T.where(i0 * 4 + i1 < 10 and k0 * 4 + k1 < 7)
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
"""


def test_init_that_is_not_separated():
    """An init becomes a condition on the reduction's first iteration."""
    check_every_pass(function(REDUCTION_IN_PLACE))


CARRIED = """
@T.prim_func
def f(A: T.Buffer((9,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((9,), "float32")
    for i in {loop}(8):
        with T.block("b"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
        with T.block("c"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[T.max(vi - 1, 0)]
"""


def test_values_carried_between_iterations_keep_their_buffer():
    """A buffer through which one iteration reads another's value stays outside of the loop."""
    func = function(CARRIED.replace("{loop}", "T.serial"))
    check_every_pass(func)
    assert [b.size for b in lower(func, CPU).workspaces] == [9]


def test_undef_is_never_stored():
    """A store of undef goes; where only one side of a choice is undef, the other is stored under its condition."""
    func = function("""
@T.prim_func
def f(A: T.Buffer((6,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.if_then_else(vi < 6, A[T.min(vi, 5)], T.undef())
    for j in range(2):
        with T.block("pad"):
            vj = T.axis.spatial(2, j)
            C[vj + 6] = T.undef()
""")
    body = lower(func, CPU).body
    assert isinstance(body, For) and isinstance(body.body, Store)
    assert body.extent.value == 6


VECTOR = """
@T.prim_func
def f(A: T.Buffer((4, 32), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4, 8), "float32")):
    for i in range(4):
        for v in T.vectorized(8):
            with T.block("b"):
                vi, vv = T.axis.remap("SS", [i, v])
                C[vi, vv] = {value}
"""


@pytest.mark.parametrize(
    "value, vector",
    [
        ("A[vi, vv] * B[vi]", True),
        ("A[vi, vv * 4 + 3]", True),
        ("T.exp(A[vi, vv]) + T.max(B[vi], T.float32(0))", True),
        ("T.if_then_else(vi < 2, A[vi, vv], B[vi])", True),
        ("T.Select(vv < 3, A[vi, vv], B[vi])", True),
        ("T.Cast('float32', vv) * B[vi]", True),
        ("A[vi, vv // 2]", True),
        ("A[vi, vv * vv // 4]", True),
        ("A[vi, T.min(T.max(T.Cast('int64', A[0, vv]), 0), 31)]", False),
    ],
)
def test_vectorized_values(value, vector):
    """Values become vectors unless an index is read from memory lane by lane; both compute the same."""
    func = function(VECTOR.replace("{value}", value))
    check_every_pass(func)
    (store,) = [n for n in walk(lower(func, CPU).body) if isinstance(n, Store)]
    assert isinstance(store.indices[0], Ramp) == vector


def test_a_condition_on_lanes_is_tested_for_whole_vectors():
    """Where lanes may leave the buffer, whole vectors run under one test and the rest as a shorter vector."""
    func = function("""
@T.prim_func
def f(A: T.Buffer((21,), "float32"), C: T.Buffer((21,), "float32")):
    for i in range(3):
        for v in T.vectorized(8):
            with T.block("b"):
                vi = T.axis.spatial(21, i * 8 + v)
                T.where(i * 8 + v < 21)
                C[vi] = A[vi]
""")
    check_every_pass(func)
    body = lower(func, CPU).body
    assert [lanes(s.value.dtype) for s in walk(body) if isinstance(s, Store)] == [8, 5]
    assert not ifs(body), "the loop is split where the condition starts to fail"


SHIFTED = """
@T.prim_func
def main(x: T.Buffer((80,), "float32"), y: T.Buffer((80,), "float32")):
    for f in T.parallel(8):
        for lane in T.vectorized(4):
            if (f + 1) % 3 * 4 + lane < 10:
                y[f * 10 + (f + 1) % 3 * 4 + lane] = x[f * 4 + lane]
"""


def test_a_condition_whose_simple_form_decides_nothing_is_tested_once():
    """``(f + 1) % 3 != 2`` simplifies to ``f % 3 != 1``, from which the original does not follow again."""
    func = function(SHIFTED)
    check_every_pass(func)
    assert 4 in {lanes(s.value.dtype) for s in walk(lower(func, CPU).body) if isinstance(s, Store)}


def test_padding_border_keeps_vectors():
    """A choice by the lane's position is tested for whole vectors, so that the inside of a row is read in vectors."""
    func = function("""
@T.prim_func
def f(A: T.Buffer((20,), "float32"), C: T.Buffer((24,), "float32")):
    for i in range(3):
        for v in T.vectorized(8):
            with T.block("b"):
                vi = T.axis.spatial(24, i * 8 + v)
                C[vi] = T.if_then_else(2 <= vi and vi < 22, A[vi - 2], T.float32(0))
""")
    check_every_pass(func)
    assert 8 in {lanes(s.value.dtype) for s in walk(lower(func, CPU).body) if isinstance(s, Store)}


def test_axis_separators():
    """A buffer with a separator is flattened to two dimensions on OpenCL, and to plain memory on a CPU."""
    func = function("""
@T.prim_func
def f(A: T.Buffer((2, 3, 4), "float32", axis_separators=[2]), C: T.Buffer((2, 3, 4), "float32")):
    for i, j, k in T.grid(2, 3, 4):
        with T.block("b"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            C[vi, vj, vk] = A[vi, vj, vk]
""")
    flat = lower(func, OPENCL).params
    assert [(b.shape, b.axis_separators) for b in flat] == [((6, 4), (1,)), ((24,), ())]
    assert [b.shape for b in lower(func, CPU).params] == [(24,), (24,)]
    again = Buffer("A", (6, 4), axis_separators=(1,))
    assert flat_buffer(again, True) == again


def refusal(text: str, target: Target, *parts: str) -> None:
    with pytest.raises(LoweringError) as caught:
        lower(function(text), target)
    for part in parts:
        assert part in str(caught.value)


COPY = """
@T.prim_func
def f(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
    for i in {outer}:
        for j in {inner}:
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj]
"""


def copy(outer: str, inner: str = "range(8)") -> str:
    return COPY.replace("{outer}", outer).replace("{inner}", inner)


def test_thread_loops_are_refused_on_a_cpu():
    """The message says which loop, and what a CPU has instead."""
    refusal(copy('T.thread_binding(4, thread="blockIdx.x")'), CPU, "`i` is a thread_binding loop", "use `parallel`")


def test_parallel_loops_are_refused_on_opencl():
    """The message says which loop, and what OpenCL has instead."""
    refusal(copy("T.parallel(4)"), OPENCL, "`i` is a parallel loop", "use `bind`")


def test_nested_parallel_loops_are_refused():
    """One level of threads: the message names both loops."""
    refusal(copy("T.parallel(4)", "T.parallel(8)"), CPU, "`j` is parallel inside the parallel loop `i`", "fuse")


def test_shared_intermediates_of_concurrent_iterations_are_refused():
    """An iteration that may read what another thread wrote has no private buffer."""
    refusal(CARRIED.replace("{loop}", "T.parallel"), CPU, "buffer `B`", "parallel loop `i`", "not proven")


def test_large_private_buffers_are_refused():
    """More than 1 MiB in each concurrent iteration is refused with the size."""
    text = """
@T.prim_func
def f(A: T.Buffer((4, 600000), "float32"), C: T.Buffer((4, 600000), "float32")):
    B = T.alloc_buffer((600000,), "float32")
    for i in T.parallel(4):
        for j in range(600000):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vj] = A[vi, vj]
        for k in range(600000):
            with T.block("c"):
                vi, vk = T.axis.remap("SS", [i, k])
                C[vi, vk] = B[vk]
"""
    refusal(text, CPU, "buffer `B` needs 2400000 bytes", "1048576")


def test_a_scalar_argument_is_memory_of_one_element():
    """A scalar becomes a parameter of one element, which the statements that use it read first."""
    lowered = lower(
        function("""
@T.prim_func
def f(n: T.int64, C: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
    for i in range(4):
        if i < n:
            C[i] = T.float32(1)
    for j in range(4):
        D[j] = T.float32(2)
"""),
        CPU,
    )
    assert [(b.name, b.shape, b.dtype) for b in lowered.params] == [
        ("n", (1,), "int64"), ("C", (4,), "float32"), ("D", (4,), "float32"),
    ]  # fmt: skip
    assert [type(s).__name__ for s in lowered.body.stmts] == ["Let", "For"]


def test_nothing_is_lowered_that_leaves_its_buffer():
    """The in-bounds proof comes first."""
    with pytest.raises(OutOfBounds):
        lower(function(copy("range(4)", "range(9)").replace("SS", "SS")), CPU)


def test_declared_aliases_are_their_memory():
    """A declared buffer becomes the allocation that it names, which keeps its shape."""
    func = function("""
@T.prim_func
def f(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4, 6), "float32")):
    D = T.allocate([6], "float32", "global")
    E = T.decl_buffer((6,), "float32", data=D.data)
    for i in T.serial(4):
        for j in T.vectorized(6):
            E[j] = A[i, j] * T.float32(2)
        for j2 in T.serial(6):
            C[i, j2] = E[5 - j2]
""")
    check_every_pass(func)
    lowered = lower(func, CPU)
    assert [b.name for b in lowered.workspaces] == ["D"]
    assert {n.buffer.name for n in walk(lowered.body) if isinstance(n, (Load, Store))} == {"A", "C", "D"}


def test_a_buffer_of_a_block_inside_a_loop_shrinks_too():
    """A block's own buffer, allocated in each iteration, has the extents of one iteration."""
    func = function("""
@T.prim_func
def f(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4, 6), "float32")):
    for i in T.parallel(4):
        with T.block("outer"):
            vi = T.axis.spatial(4, i)
            D = T.alloc_buffer((4, 6), "float32")
            for j in T.serial(6):
                with T.block("d"):
                    vj = T.axis.spatial(6, j)
                    D[vi, vj] = A[vi, vj] * T.float32(2)
            for j2 in T.serial(6):
                with T.block("c"):
                    vj = T.axis.spatial(6, j2)
                    C[vi, vj] = D[vi, 5 - vj]
""")
    check_every_pass(func)
    assert [n.buffer.shape for n in walk(lower(func, CPU).body) if isinstance(n, Allocate)] == [(6,)]


def test_the_attribute_strict_float_reaches_the_code_generator() -> None:
    """What a function forbids the proofs, its kernel is compiled without, too."""
    text = """
@T.prim_func
def main(x: T.Buffer((4,), "float32"), y: T.Buffer((1,), "float32")):
    T.func_attr({"strict_float": True})
    y[0] = x[0] + x[1]
"""
    func = parse(text)
    assert isinstance(func, PrimFunc)
    target = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
    assert lower(func, target).strict
    assert not lower(func.__class__(func.name, func.params, func.body), target).strict


def test_strict_floats_keep_their_operations() -> None:
    """A product with 0 may be NaN, and a sum with 0 tells 0 from -0; without the attribute data is finite."""
    text = """
@T.prim_func
def main(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32"), z: T.Buffer((4,), "float32")):
    T.func_attr({"strict_float": True})
    for i in T.vectorized(4):
        y[i] = x[i] * T.float32(0)
        z[i] = x[i] + T.float32(0)
"""
    func = parse(text)
    assert isinstance(func, PrimFunc)

    def operations(func: PrimFunc) -> set[str]:
        floats = [n for n in walk(lower(func, CPU).body) if isinstance(n, Binary) and n.dtype.startswith("float32")]
        return {n.op for n in floats}

    assert operations(func) == {"*", "+"}
    assert operations(func.__class__(func.name, func.params, func.body)) == set()


def test_conditions_that_read_memory_stay_inside_of_those_that_make_it_legal() -> None:
    """A ragged edge around a test of data: joined, the test would read behind the end."""
    func = parse("""
@T.prim_func
def main(a: T.Buffer((127,), "float32"), b: T.Buffer((127,), "float32")):
    for io in T.serial(8):
        for ii in T.serial(16):
            if io * 16 + ii < 127:
                if a[io * 16 + ii] > T.float32(0):
                    b[io * 16 + ii] = a[io * 16 + ii]
""")
    assert isinstance(func, PrimFunc)
    check_every_pass(func)
    lower(func, CPU)


def test_both_sides_of_a_conjunction_stay_in_bounds():
    """Both are evaluated: an index that wraps around keeps its modulo beside a test after which it would not."""
    check_every_pass(
        function("""
@T.prim_func
def main(a: T.Buffer((4,), "float32"), b: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        if i + j < 4 and a[(i + j) % 4] > T.float32(2):
            b[i, j] = a[i]
""")
    )
