"""Reductions in subgroups: what the source says, what is refused, and that results are those of the interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from opencl_programs import GENERIC, GPU, bound, lowered
from subgroup_programs import needs_subgroups, reducing, scheduled, subgroup_device

import stridesmith as ss
from stridesmith.backends.data import arguments_of
from stridesmith.backends.errors import CodegenError
from stridesmith.backends.executable import numpy_dtype
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import LoweringError, lower
from stridesmith.backends.opencl.devices import selectors
from stridesmith.backends.opencl.runtime import OPTIONS, build_options
from stridesmith.backends.render.opencl.program import generate
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import GUARD_BYTES, verify
from stridesmith.ir.expr import Broadcast, Buffer, Load, Ramp, Var, binary, const
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Allocate, For, If, Let, PrimFunc, Stmt, Store, loops, seq
from stridesmith.ir.target import SUBGROUPS, Target
from stridesmith.space.errors import ScheduleError
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import workload

WITH = replace(GENERIC, subgroups="8 16 32")
G, L, U, K = Var("g"), Var("l"), Var("u"), Var("k")
A, B, C = Buffer("A", (64,)), Buffer("B", (64,)), Buffer("C", (4,))
KEPT = Buffer("kept", (1,), scope="local")


def text(sch: Schedule, target: Target = WITH) -> str:
    return generate(lower(sch.func, target), target).text


# ---------------------------------------------------------------- the source


def test_a_row_is_one_function_of_its_items() -> None:
    """Every item holds the sum in a register; the first one stores it, and no barrier or local memory is needed."""
    found = text(scheduled(reducing()))
    assert "reqd_work_group_size(16, 1, 1)))\n__attribute__((intel_reqd_sub_group_size(16)))" in found
    assert "const float all = subgroup_add_float(y_rf[0]);" in found and "y_local[0] = y_local[0] + all;" in found
    assert "if (u < 1) {" in found and "barrier(" not in found and "__local" not in found
    assert "subgroup_add_float(float v) { return sub_group_reduce_add(v); }" in found
    assert build_options(found) == OPTIONS


def test_rows_of_a_work_group_are_subgroups_of_their_own() -> None:
    found = text(scheduled(reducing(), size=8, rows=4))
    assert "reqd_work_group_size(8, 4, 1)))\n__attribute__((intel_reqd_sub_group_size(8)))" in found
    assert "barrier(" not in found and "__local" not in found


def test_a_sum_below_a_binding_that_is_a_number_stays_one_of_all_items() -> None:
    """Of an unrolled loop that binds where its part begins, each part is reduced."""
    func = parse("""
@T.prim_func
def rows(x: T.Buffer((4, 64), "float32"), y: T.Buffer((4,), "float32")):
    for i in T.thread_binding(4, thread="blockIdx.x"):
        with T.block("row"):
            vi = T.axis.spatial(4, i)
            s = T.alloc_buffer((1,), "float32", scope="local")
            s[0] = T.float32(0)
            for l in T.thread_binding(16, thread="subgroup"):
                for k in T.unroll(4):
                    o: T.int64 = k * 16
                    s[0] = s[0] + x[vi, o + l]
            for u in T.thread_binding(1, thread="threadIdx.x"):
                y[vi] = s[0]
""")
    assert isinstance(func, PrimFunc)
    assert generate(lower(func, WITH), WITH).text.count("= subgroup_add_float(") == 4


def test_shared_memory_of_one_work_item_is_its_own() -> None:
    """All items of a group would write the one element of local memory."""
    func = parse("""
@T.prim_func
def own(a: T.Buffer((32,), "float32"), b: T.Buffer((32,), "float32")):
    for t in T.thread_binding(32, thread="threadIdx.x"):
        with T.block("own"):
            vt = T.axis.spatial(32, t)
            s = T.alloc_buffer((1,), "float32", scope="shared")
            s[0] = a[vt]
            b[vt] = s[0] * T.float32(2)
""")
    assert isinstance(func, PrimFunc)
    assert "__local" not in generate(lower(func, GENERIC), GENERIC).text


def test_strict_conditions_assume_nothing_of_data() -> None:
    """A product with 0 tells numbers from what is none."""
    func = parse("""
@T.prim_func
def finite(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for i in T.thread_binding(8, thread="blockIdx.x"):
        if x[i] * T.float32(0) == T.float32(0):
            y[i] = T.float32(1)
""")
    assert isinstance(func, PrimFunc)
    found = generate(lower(func, GENERIC, strict=True), GENERIC).text
    assert found.partition("__kernel")[2].count("x[") == 1


@pytest.mark.parametrize(
    "op, dtype, body",
    [
        ("+", "float64", "return sub_group_reduce_add(v);"),
        ("max", "float32", "return sub_group_any(v != v) ? NAN : sub_group_reduce_max(v);"),
        ("min", "float64", "return sub_group_any(v != v) ? NAN : sub_group_reduce_min(v);"),
        ("+", "int32", "return (int)sub_group_reduce_add((uint)v);"),
        ("+", "int64", "return (long)sub_group_reduce_add((ulong)v);"),
        ("max", "int32", "return sub_group_reduce_max(v);"),
    ],
)
def test_operations_mean_what_the_language_says(op: str, dtype: str, body: str) -> None:
    """A NaN comes out as one, and sums of integers wrap around."""
    assert body in text(scheduled(reducing(op, dtype)))


def test_sums_of_64_bits_are_sums_of_64_bits() -> None:
    """A GPU has 32-bit indices where these suffice; a sum of int64 is none."""
    target = replace(GPU, subgroups="16")
    assert "subgroup_add_long(" in text(scheduled(reducing("+", "int64")), target)
    assert "const int i = (int)get_group_id(0)" in text(scheduled(reducing("+", "int32")), target)


def test_registers_of_two_kernels_are_memory() -> None:
    """What one kernel reduced, another one reads: no register lasts so long."""
    func = parse("""
@T.prim_func
def main(x: T.Buffer((4, 16), "float32"), y: T.Buffer((4, 16), "float32")):
    s = T.alloc_buffer((4,), "float32", scope="local")
    for i in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding(1, thread="threadIdx.x"):
            s[i] = T.float32(0)
        for l in T.thread_binding(16, thread="subgroup"):
            s[i] = s[i] + x[i, l]
    for j in T.thread_binding(4, thread="blockIdx.x"):
        for m in T.thread_binding(16, thread="threadIdx.x"):
            y[j, m] = x[j, m] - s[j]
""")
    assert isinstance(func, PrimFunc)
    found = lower(func, WITH)
    assert [b.name for b in found.workspaces] == ["s"] and generate(found, WITH).text.count("__kernel") == 2


def test_memory_that_items_share_is_written_by_the_first() -> None:
    update = Store(C, (G,), C[G] + A[G * 16 + L])
    found = generate(lowered(bound(G, 4, "blockIdx.x", bound(L, 16, "subgroup", update)), A, C), WITH).text
    assert "const float all = subgroup_add_float(t_1);\n            if (l == 0) {" in found
    assert "C[g] = C[g] + all;" in found


def test_names_of_programs_are_kept_apart() -> None:
    """A buffer that is called like a function of the device has another name in C."""
    taken = Buffer("subgroup_add_float", (64,))
    update = Store(C, (G,), C[G] + taken[G * 16 + L])
    found = generate(lowered(bound(G, 4, "blockIdx.x", bound(L, 16, "subgroup", update)), taken, C), WITH).text
    assert "float* restrict v_subgroup_add_float" in found


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("target", [GENERIC, GPU])
def test_a_device_without_subgroups_refuses(target: Target) -> None:
    with pytest.raises(LoweringError) as error:
        lower(scheduled(reducing()).func, target)
    assert str(error.value) == (
        f"loop `k_1` is bound to `subgroup`, but `{target.name}` has no subgroups of a given size ({SUBGROUPS} is "
        f"missing); reduce in a serial loop, or choose a device that has them"
    )


def test_a_cpu_has_no_work_items() -> None:
    with pytest.raises(LoweringError, match="thread_binding loop, which target kind `cpu` does not have"):
        lower(scheduled(reducing()).func, replace(WITH, kind="cpu"))


def test_a_size_that_the_device_lacks_is_refused() -> None:
    with pytest.raises(LoweringError, match="has 12 iterations, but subgroups of `device` have 8, 16, 32 work-items"):
        lower(scheduled(reducing(), 12).func, WITH)


def test_pocl_refuses() -> None:
    """The driver that comes with the package has no subgroups, which its target says."""
    found = [target for selector, target, _ in selectors() if selector.startswith("opencl:pocl")]
    if not found:
        pytest.skip("no PoCL here")
    assert found[0].subgroup_sizes == ()
    with pytest.raises(LoweringError, match=f"has no subgroups of a given size .{SUBGROUPS} is missing"):
        lower(scheduled(reducing()).func, found[0])


def updating(statement: str, init: str = "", dtype: str = "float32") -> Schedule:
    """A block in a loop of 16 iterations that runs a statement."""
    func = parse(f"""
@T.prim_func
def main(x: T.Buffer((16,), "{dtype}"), y: T.Buffer((16,), "{dtype}"), z: T.Buffer((16,), "{dtype}")):
    for k in range(16):
        with T.block("own"):
            vk = T.axis.reduce(16, k)
            {init}
            {statement}
""")
    assert isinstance(func, PrimFunc)
    return Schedule(func)


@pytest.mark.parametrize(
    "statement",
    [
        "y[0] = y[0] * x[vk]",
        "y[0] = x[vk]",
        "y[0] = y[0] - x[vk]",
        "y[0] = y[0] + y[0] * x[vk]",
        "y[vk // 4] = y[vk // 4] + x[vk]",
        "y[0] = y[0] + x[vk]; z[vk] = y[0]",
        "y[0] = y[0] + x[vk]; y[0] = T.max(y[0], x[vk])",
        "y[0] = y[0] + x[vk]; y[1] = y[0] + y[1]",
        "y[vk] = y[vk] + y[0]",
    ],
)
def test_what_is_no_reduction_is_refused(statement: str) -> None:
    """Updates by one of three operations, of an element that no iteration touches otherwise."""
    separated = statement.replace("; ", "\n            ")
    with pytest.raises(ScheduleError, match=r"\(1\) two iterations of loop `k` may touch the same element of `y`"):
        updating(separated).bind("k", "subgroup")


def test_reductions_are_legal_in_a_subgroup_alone() -> None:
    """By all three operations, of several elements; other concurrent loops stay refused, also in its place."""
    for statement in ("y[0] = y[0] + x[vk]", "y[3] = T.max(x[vk], y[3])", "y[0] = T.min(y[0], x[vk])"):
        sch = updating(statement)
        for other in (lambda s: s.bind("k", "threadIdx.x"), lambda s: s.parallel("k"), lambda s: s.vectorize("k")):
            with pytest.raises(ScheduleError, match=r"\(1\) two iterations"):
                other(sch)
        sch.bind("k", "subgroup")
        for other in (lambda s: s.bind("k", "threadIdx.x"), lambda s: s.parallel("k"), lambda s: s.vectorize("k")):
            with pytest.raises(ScheduleError, match=r"\(1\) two iterations"):
                other(sch)
    twice = updating("y[0] = y[0] + x[vk]\n            y[0] = x[vk] + y[0]\n            z[vk] = x[vk]")
    twice.bind("k", "subgroup")
    assert 'T.thread_binding(16, thread="subgroup")' in twice.func.script()


def test_an_initialisation_comes_before_the_loop() -> None:
    sch = updating("y[0] = y[0] + x[vk]", "with T.init():\n                y[0] = T.float32(0)")
    with pytest.raises(ScheduleError, match="decompose the reduction first"):
        sch.bind("k", "subgroup")
    sch.decompose_reduction("own", "k")
    sch.bind("k", "subgroup")


def refusal(body: Stmt, *allocated: Buffer) -> str:
    loop: Stmt = bound(L, 16, "subgroup", body)
    for buffer in allocated:
        loop = Allocate(buffer, loop)
    with pytest.raises((CodegenError, LoweringError)) as error:
        generate(lowered(bound(G, 4, "blockIdx.x", loop), A, B, C), WITH)
    return str(error.value)


def test_stores_that_are_no_reductions_are_refused_when_code_is_written() -> None:
    """A program that no schedule made: each store to an element that items share is one that all do together."""
    update = Store(C, (G,), C[G] + A[L])
    assert "which is no update `C[i] = C[i] op e`" in refusal(Store(C, (G,), A[L]))
    assert "which is no update" in refusal(Store(C, (G,), C[G] * A[L]))
    assert "under a condition that differs between them" in refusal(If(L < 4, update))
    assert "under a condition" in refusal(If(A[G] > 0.0, update))
    assert "under a condition" in refusal(For(K, L + 1, update))
    assert "under a condition" in refusal(Let(U, L * 2, If(U < 4, update)))
    kept = Buffer("kept", (1,), "float16", "local")
    half = Store(kept, (const(0),), kept[0] + Load(Buffer("H", (64,), "float16"), (L,)))
    assert "of type float16; subgroups reduce single float32" in refusal(half, kept)
    four = (Ramp(const(0), const(1), 4),)
    assert "of type float32x4" in refusal(Store(C, four, Load(C, four) + Broadcast(A[L], 4)))


def test_conditions_that_are_the_same_for_all_items_stay() -> None:
    """A ragged edge of the rows is one: the subgroup skips it as a whole."""
    body = If(G * 3 < 8, Store(C, (G,), C[G] + A[G * 16 + L]))
    found = generate(lowered(bound(G, 4, "blockIdx.x", bound(L, 16, "subgroup", body)), A, C), WITH).text
    assert "subgroup_add_float(" in found


def test_all_loops_along_x_have_the_size_of_the_subgroup() -> None:
    first = bound(L, 16, "subgroup", Store(B, (L,), A[L]))
    for other in (bound(U, 32, "threadIdx.x", Store(B, (U,), A[U])), bound(U, 8, "subgroup", Store(B, (U,), A[U]))):
        with pytest.raises(CodegenError, match=r"loop bound to `subgroup` of (16|8) work-items, but its groups have"):
            generate(lowered(bound(G, 4, "blockIdx.x", seq([first, other])), A, B), WITH)
    nested = bound(U, 16, "threadIdx.x", bound(L, 16, "subgroup", Store(B, (L,), A[L])))
    with pytest.raises(CodegenError, match="bound to subgroup inside of another loop bound to it"):
        generate(lowered(nested, A, B), WITH)


def test_registers_that_differ_between_items_are_shared_memory() -> None:
    """Only what nothing but reductions writes is the same in all items, and may stay in registers of each."""
    func = parse("""
@T.prim_func
def main(x: T.Buffer((4, 16), "float32"), y: T.Buffer((4, 16), "float32")):
    for i in T.thread_binding(4, thread="blockIdx.x"):
        with T.block("own"):
            vi = T.axis.spatial(4, i)
            p = T.alloc_buffer((16,), "float32", scope="local")
            for l in T.thread_binding(16, thread="subgroup"):
                p[l] = x[vi, l]
            for m in T.thread_binding(16, thread="threadIdx.x"):
                y[vi, m] = p[15 - m]
""")
    assert isinstance(func, PrimFunc)
    found = generate(lower(func, WITH), WITH).text
    assert "__local float p[16]" in found and "barrier(CLK_LOCAL_MEM_FENCE);" in found


def test_what_the_first_item_does_alone_needs_no_barrier() -> None:
    """Edges that are cut off let it store in several loops of one iteration; what others read of that comes later."""
    one, other = (bound(Var(name), 1, "threadIdx.x", Store(C, (at,), A[at])) for name, at in (("p", G), ("q", G * 0)))
    row = bound(L, 16, "subgroup", Store(B, (G * 16 + L,), A[L]))
    alone = generate(lowered(bound(G, 4, "blockIdx.x", seq([row, one, other])), A, B, C), WITH).text
    assert "barrier(" not in alone
    use = bound(U, 16, "threadIdx.x", Store(B, (G * 16 + U,), C[G]))
    assert "barrier(" in generate(lowered(bound(G, 4, "blockIdx.x", seq([row, one, use])), A, B, C), WITH).text
    tested = If(C[G] > 0.0, bound(U, 1, "threadIdx.x", Store(C, (G,), A[G])))
    with pytest.raises(CodegenError, match="needs a barrier"):
        generate(lowered(bound(G, 4, "blockIdx.x", If(A[G] > 0.0, seq([row, one, tested]))), A, B, C), WITH)


def test_what_all_items_read_of_memory_comes_after_a_barrier() -> None:
    """The first item stores a sum; the others read it when it is there, or before it changes."""
    first = bound(L, 16, "subgroup", Store(C, (G,), C[G] + A[G * 16 + L]))
    again = Store(KEPT, (const(0),), C[G] * 2.0)
    use = bound(U, 16, "threadIdx.x", Store(B, (G * 16 + U,), KEPT[0]))
    body = bound(G, 4, "blockIdx.x", Allocate(KEPT, seq([first, again, use])))
    found = generate(lowered(body, A, B, C), WITH).text
    assert found.count("barrier(CLK_GLOBAL_MEM_FENCE);") == 1
    assert found.index("C[g] + all") < found.index("barrier(") < found.index("kept[0] = ")
    body = bound(G, 4, "blockIdx.x", Allocate(KEPT, seq([again, first, use])))
    found = generate(lowered(body, A, B, C), WITH).text
    assert found.index("kept[0] = ") < found.index("barrier(") < found.index("C[g] + all")


# ---------------------------------------------------------------- results


def computed(sch: Schedule, *arrays: np.ndarray) -> np.ndarray:
    target = subgroup_device()
    assert target is not None
    run = load_artifact(compile_lowered(lower(sch.func, target), target)).bind(guard_bytes=GUARD_BYTES)
    for number, array in enumerate(arrays):
        run.write(number, array)
    run.run()
    return np.asarray(run.read(len(arrays)))


@needs_subgroups
@pytest.mark.parametrize("size", [4, 8, 16, 32, 64])
def test_every_size_of_the_device(size: int) -> None:
    """The first columns are fewer than a subgroup, the last no multiple of one."""
    work = workload("row_sum", rows=7, cols=3 * size + 5)
    func = work.func
    sch = scheduled(_named(func), size, rows=3)
    target = subgroup_device()
    assert target is not None and size in target.subgroup_sizes
    run = load_artifact(compile_lowered(lower(sch.func, target), target)).bind(guard_bytes=GUARD_BYTES)
    assert verify(run, arguments_of(sch.func), make_samples(func, work.reference, 0)).complete


def _named(func: PrimFunc) -> PrimFunc:
    """The program with its block called `row`."""
    (name,) = Schedule(func).get_child_blocks("root")
    found = parse(func.script().replace(f'T.block("{name}")', 'T.block("row")'))
    assert isinstance(found, PrimFunc)
    return found


@needs_subgroups
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("op", ["+", "max", "min"])
def test_results_are_those_of_the_interpreter(op: str, dtype: str) -> None:
    """The interpreter runs the same program step by step; NaN and infinity come out, and integers wrap around."""
    func, kind, rng = reducing(op, dtype), numpy_dtype(dtype), np.random.default_rng(0)
    if kind.kind == "f":
        x = rng.normal(size=(5, 100)).astype(kind)
        x[1, 37], x[2, 99], x[3, 50] = np.nan, np.inf, -np.inf
    else:
        x = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, (5, 100), kind)
    want, again = np.zeros(5, kind), np.zeros(5, kind)
    sch = scheduled(func)
    interpret(func, x, want)
    interpret(sch.func, x, again)
    found = computed(sch, x)
    if kind.kind == "f":
        assert np.isnan(found[1])
        np.testing.assert_allclose(found, want, rtol=1e-5)
        np.testing.assert_allclose(again, want, rtol=1e-5)
    else:
        assert (found == want).all() and (again == want).all()


@needs_subgroups
def test_several_subgroups_meet_in_local_memory() -> None:
    """A row of 4 subgroups: each reduces what its items have, and the sums are added up after a barrier."""
    func = reducing(columns=300)
    sch = Schedule(func)
    _, k = sch.get_loops("row")
    _, group, lane = sch.split(k, [None, 4, 16])
    groups = sch.rfactor(group, -1)
    parts = sch.rfactor(lane, -1)
    sch.set_scope(parts, 0, "local")
    sch.set_scope(groups, 0, "shared")
    i, group, lane, steps = (sch.get_loops(parts)[n] for n in (0, 2, 3, 1))
    sch.reorder(i, group, lane, steps)
    sch.reverse_compute_at(groups, lane)
    sch.decompose_reduction(parts, steps)
    sch.decompose_reduction(groups, lane)
    out = sch.cache_write("row", 0, "local")
    sch.reverse_compute_at("row", i)
    sch.reverse_compute_at(out, i)
    sch.bind(i, "blockIdx.x")
    sch.bind(group, "threadIdx.y")
    sch.bind(lane, "subgroup")
    inits = [b for b in sch.get_child_blocks("root") if b.endswith("_init") and b.startswith(groups)]
    sch.bind(sch.add_unit_loop(inits[0]), "threadIdx.x")
    for axis in ("x", "y"):
        sch.bind(sch.add_unit_loop(out), f"threadIdx.{axis}")
    target = subgroup_device()
    assert target is not None
    found = text(sch, target)
    assert "__local" in found and found.count("barrier(") == 2 and "if (k_2 == 0) {" in found
    assert "if (k_2 < 16)" not in found  # as other loops beside barriers are guarded
    x = np.random.default_rng(1).normal(size=(5, 300)).astype(np.float32)
    np.testing.assert_allclose(computed(sch, x), x.sum(1), rtol=1e-4, atol=1e-4)


@needs_subgroups
def test_a_softmax_is_one_kernel_without_barriers() -> None:
    """What one stage reduced is in a register of every item, from which the next one goes on."""
    func = parse("""
@T.prim_func
def main(x: T.Buffer((6, 64), "float32"), y: T.Buffer((6, 64), "float32")):
    for i in T.thread_binding(6, thread="blockIdx.x"):
        with T.block("row"):
            vi = T.axis.spatial(6, i)
            m = T.alloc_buffer((1,), "float32", scope="local")
            s = T.alloc_buffer((1,), "float32", scope="local")
            m[0] = T.float32(float("-inf"))
            s[0] = T.float32(0)
            for a in T.thread_binding(16, thread="subgroup"):
                for k in range(4):
                    m[0] = T.max(m[0], x[vi, k * 16 + a])
            for b in T.thread_binding(16, thread="subgroup"):
                for k in range(4):
                    s[0] = s[0] + T.exp(x[vi, k * 16 + b] - m[0])
            for c in T.thread_binding(16, thread="threadIdx.x"):
                for k in range(4):
                    y[vi, k * 16 + c] = T.exp(x[vi, k * 16 + c] - m[0]) / s[0]
""")
    assert isinstance(func, PrimFunc)
    found = text(Schedule(func))
    assert "barrier(" not in found and "__local" not in found
    assert "subgroup_max_float(" in found and "subgroup_add_float(" in found
    x = np.random.default_rng(2).normal(size=(6, 64)).astype(np.float32)
    want = np.zeros_like(x)
    interpret(func, x, want)
    np.testing.assert_allclose(computed(Schedule(func), x).reshape(6, 64), want, rtol=1e-5)


def test_traces_replay_and_programs_are_read_again() -> None:
    """The binding is an instruction like any other, and stands in the script."""
    func = reducing()
    sch = scheduled(func)
    assert ss.Trace.from_json(sch.trace.to_json()).replay(func).func == sch.func
    assert 'T.thread_binding(16, thread="subgroup")' in sch.func.script()
    assert parse(sch.func.script()) == sch.func


def test_unrolled_rows_reduce_one_by_one() -> None:
    """Rows of a tile in registers: each has a function call of its own, written out."""
    tile = Buffer("tile", (3,), scope="local")
    part = Buffer("part", (3,), scope="local")
    steps = loops([(K, 3)], seq([Store(part, (K,), A[K * 16 + L]), Store(tile, (K,), tile[K] + part[K])]), "unrolled")
    begin = loops([(U, 3)], Store(tile, (U,), binary("*", const(0.0), const(1.0))), "unrolled")
    body = Allocate(tile, seq([begin, bound(L, 16, "subgroup", Allocate(part, steps))]))
    found = generate(lowered(bound(G, 4, "blockIdx.x", body), A), WITH).text
    assert found.count("= subgroup_add_float(part[") == 3 and "tile[2] = tile[2] + all_2;" in found


def test_the_edge_of_a_subgroup_is_not_peeled() -> None:
    """A condition that items disagree about stays inside of the steps, so that all of them come to the reduction."""
    sch = scheduled(reducing(), 8)
    sch.annotate(sch.get_loops("row_rf")[1], "peel", True)
    found = text(sch)
    assert "if (((k_0 * 8L) + k_1) < 100L)" in found and "subgroup_add_float(" in found
