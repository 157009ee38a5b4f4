"""The OpenCL source: what it says, and what it refuses; no device is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from opencl_programs import GENERIC, GPU, bound, lowered, matmul_tile

from stridesmith.backends.errors import CodegenError
from stridesmith.backends.launch import Launch
from stridesmith.backends.legal.lanes import pieces
from stridesmith.backends.legal.unrolling import MAX_COPIED, MAX_WRITTEN_OUT
from stridesmith.backends.render.opencl.program import generate
from stridesmith.backends.render.opencl.types import Names, bare, literal
from stridesmith.ir.expr import Binary, Broadcast, Buffer, Call, Expr, Load, Ramp, Var, binary, const
from stridesmith.ir.stmt import Allocate, Evaluate, For, If, Let, Seq, Stmt, Store, loops, seq

I, J, T = Var("i"), Var("j"), Var("t")  # noqa: E741
A, OUT = Buffer("A", (64,)), Buffer("out", (64,))
COPY = Store(OUT, (I,), A[I])


def text(body: Stmt, *params: Buffer, target=GENERIC) -> str:
    return generate(lowered(body, *(params or (A, OUT))), target).text


def refusal(body: Stmt, *params: Buffer, target=GENERIC) -> str:
    with pytest.raises(CodegenError) as error:
        text(body, *params, target=target)
    return str(error.value)


def test_launches_give_sizes_and_arguments() -> None:
    """Global size is groups times items, and each kernel takes only the buffers that it uses."""
    mid = Buffer("mid", (64,))
    first = bound(J, 8, "blockIdx.y", bound(T, 4, "threadIdx.x", Store(mid, (J * 4 + T,), A[J * 4 + T])))
    second = loops([(I, 64)], Store(OUT, (I,), mid[I]))
    source = generate(lowered(Seq((first, second)), A, OUT, workspaces=(mid,)), GENERIC)
    names = [launch.kernel for launch in source.launches]
    assert source.launches == (
        Launch(names[0], (4, 8, 1), (4, 1, 1), (0, 2)),
        Launch(names[1], (1, 1, 1), (1, 1, 1), (1, 2)),
    )
    assert all(f"void {name}(" in source.text for name in names) and len(set(names)) == 2
    assert "reqd_work_group_size(4, 1, 1)" in source.text
    assert "__global const float* restrict A, __global float* restrict mid" in source.text


def test_unrolled_loops_are_written_out() -> None:
    """A register tile is indexed by constants only, so that it can live in registers."""
    body, params = matmul_tile(6, 16, 480, 8, (8, 4))
    lines = text(body, *params).splitlines()
    tile = [line for line in lines if "tile" in line and "STORE8" in line and "define" not in line]
    assert len(tile) == 6 * 2 * 3
    assert sum("for (" in line for line in lines) == 1
    assert any("tile + 88" in line for line in tile)


def test_too_much_unrolling_stays_a_loop() -> None:
    """Beyond the budget of statements the compiler unrolls, and the source stays small."""
    body = For(I, const(64), loops([(J, MAX_WRITTEN_OUT)], COPY), "unrolled")
    assert "#pragma unroll" not in text(body)
    body = For(I, const(64), For(J, const(MAX_WRITTEN_OUT), COPY, "unrolled"), "unrolled")
    source = text(body)
    assert "#pragma unroll" in source and len(source.splitlines()) < MAX_WRITTEN_OUT * 2


def test_what_keeps_nothing_in_registers_is_not_unrolled_far() -> None:
    """Many scattered stores of a starting value are loops, which drivers compile at once; a few are written out.

    What reads a private array is written out however long it is: there each index must be a constant.
    """
    count = 2 * MAX_COPIED
    out, tile = Buffer("out", (3 * count,)), Buffer("tile", (count,), scope="local")

    def code(value: Expr, extent: int, rest: int = 1) -> list[str]:
        store = Store(out, ((J * rest + T) * 3,), value)
        body = Allocate(tile, For(J, const(extent), For(T, const(rest), store, "unrolled"), "unrolled"))
        found = text(body, out)
        return found[found.index("__kernel") :].splitlines()

    def counts(lines: list[str]) -> tuple[int, int]:
        return sum("for (" in line for line in lines), sum("out[" in line for line in lines)

    assert counts(code(const(0.0), count)) == (1, 1)
    assert counts(code(const(0.0), count // 8, 8)) == (1, 8), "the inner loop is short"
    assert counts(code(const(0.0), MAX_COPIED)) == (0, MAX_COPIED)
    assert counts(code(tile[J], count)) == (0, count)


def test_vectors_load_through_element_aligned_types() -> None:
    """vload and vstore, which PoCL calls as functions, are only the fallback."""
    at = (Ramp(I * 8, const(1), 8),)
    source = text(loops([(I, 8)], Store(OUT, at, Load(A, at))))
    code = source[source.index("__kernel") :]
    assert "LOAD8_global_float(A + t)" in code and "vload" not in code
    assert "typedef float8 float8_u __attribute__((aligned(4), may_alias));" in source


@pytest.mark.parametrize(
    ("stride", "first", "aligned"), [(4, 0, True), (8, 8, True), (4, 2, False), (6, 0, False), (1, 0, False)]
)
def test_a_gpu_loads_vectors_at_once_where_they_lie_at_multiples_of_their_size(
    stride: int, first: int, aligned: bool
) -> None:
    """An address that is not known to be such a multiple is one of single elements; a CPU takes any."""
    at = (Ramp(I * stride + first, const(1), 4),)
    body = loops([(I, 6)], Store(OUT, at, Load(A, at)))
    found = text(body, target=GPU)
    assert ("*(__global float4*)(out" in found) == ("*(__global const float4*)(A" in found) == aligned
    assert ("STORE4_global_float(t" in found) == ("LOAD4_global_float(A" in found) == (not aligned)
    on_a_cpu = text(body)
    assert "LOAD4_global_float(A" in on_a_cpu and "__global float4*" not in on_a_cpu


def test_vectors_larger_than_an_array_s_alignment_are_loaded_by_their_elements() -> None:
    x, y = Buffer("x", (64,), "float64"), Buffer("y", (64,), "float64")
    at = (Ramp(I * 16, const(1), 16),)
    device = replace(GPU, features="cl_khr_fp64")
    found = text(loops([(I, 4)], Store(y, at, Load(x, at))), x, y, target=device)
    assert "LOAD16_global_double(x" in found and "STORE16_global_double(t" in found


def test_indices_are_32_bit_on_a_gpu_when_all_fit() -> None:
    """A GPU gets int, a kernel with an index that may not fit gets long, a CPU always long."""
    assert "for (int i" in text(loops([(I, 64)], COPY), target=GPU)
    assert "for (long i" in text(loops([(I, 64)], COPY), target=GENERIC)
    wide = Buffer("wide", (64,), "int64")
    assert "for (long i" in text(loops([(I, 64)], Store(wide, (I,), I * 2**40)), wide, target=GPU)
    assert "for (int i" in text(loops([(I, 64)], Store(wide, (I,), I * 2**20)), wide, target=GPU)
    assert "for (long i" in text(loops([(I, 64)], Store(wide, (I,), wide[I] + 1)), wide, target=GPU)


def test_divisions_are_corrected_only_where_needed() -> None:
    """A dividend that cannot be negative uses C's division."""
    plain = text(loops([(I, 64)], Store(OUT, (I,), A[I // 4])))
    assert "floor_div" not in plain and "= i / 4L;" in plain
    wide = Buffer("wide", (64,), "int64")
    assert "floor_div_long((i - 70L), 4L)" in text(loops([(I, 64)], Store(wide, (I,), (I - 70) // 4)), wide)


def test_lanes_with_a_stride_are_picked_out_of_two_vectors() -> None:
    """The second vector ends with the last lane; tiles, other spans, and devices without caches read lane by lane."""
    x, tile = Buffer("x", (127,)), Buffer("tile", (127,), "float32", "local")
    out, eight = (Ramp(I * 8, const(1), 8),), const(8)
    source = text(loops([(I, 8)], Store(OUT, out, Load(x, (Ramp(I * 16, const(2), 8),)))), x, OUT)
    assert "{ return (float8)(v0.s0, v0.s2, v0.s4, v0.s6, v1.s1, v1.s3, v1.s5, v1.s7); }" in source
    assert "(LOAD8_global_float(x + t), LOAD8_global_float(x + t + 7))" in source
    source = text(loops([(I, 8)], Store(OUT, out, Load(x, (Ramp(I * 8 + 63, const(-1), 8),)))), x, OUT)
    assert "pick_float8_v07_v06_v05_v04_v03_v02_v01_v00(LOAD8_global_float(x + t + 56))" in source
    far = loops([(I, 8)], Store(OUT, out, Load(x, (Ramp(I, const(9), 8),))))
    near = loops([(I, 8)], Store(OUT, out, Load(x, (Ramp(I * eight, const(2), 8),))))
    kept = Allocate(tile, loops([(I, 8)], Store(OUT, out, Load(tile, (Ramp(I * eight, const(2), 8),)))))
    for source in (text(far, x, OUT), text(near, x, OUT, target=GPU), text(kept, OUT)):
        assert "pick_" not in source


def test_choices_are_no_calls() -> None:
    """PoCL calls a function for `select`, before which all registers are spilled."""
    at = (Ramp(I * 8, const(1), 8),)
    most = Binary("max", Load(A, at), Load(OUT, at))
    source = text(loops([(I, 8)], Store(OUT, at, Call("exp", (most,), "float32x8"))))
    assert "nan_max_float8" in source and "exp_float8" in source and "select(" not in source
    assert "#if defined(__AVX__)\n    float8 c = __builtin_ia32_maxps256(a, b);" in source


def test_extrema_with_a_constant_are_one_comparison() -> None:
    """With a constant first, a NaN fails the comparison and is the result; two variables need a test of their own."""
    relu = text(loops([(I, 64)], Store(OUT, (I,), Binary("max", A[I], const(0.0)))))
    assert "const float t = A[i];" in relu and "= (0.0f > t) ? 0.0f : t;" in relu and "nan_max" not in relu
    assert "nan_max_float(t, " in text(loops([(I, 64)], Store(OUT, (I,), Binary("max", A[I], A[const(63) - I]))))


def test_contraction_is_on() -> None:
    """Products and sums may become one instruction; nothing else about floats is relaxed."""
    assert text(loops([(I, 64)], COPY)).startswith("#pragma OPENCL FP_CONTRACT ON\n")


def test_the_same_program_gives_the_same_source() -> None:
    """Generation is deterministic."""
    body, params = matmul_tile(6, 16, 480, 8, (8, 4))
    assert text(body, *params) == text(body, *params)


SHARED = Buffer("tile", (8,), scope="shared")


def test_barriers_stand_where_items_meet() -> None:
    """One between writer and reader, one at the end of a loop around both, none without shared memory."""
    fill, use = Store(SHARED, (T,), A[J * 8 + T]), Store(OUT, (J * 8 + T,), SHARED[const(7) - T])
    once = Allocate(SHARED, bound(J, 8, "blockIdx.x", bound(T, 8, "threadIdx.x", seq([fill, use]))))
    assert text(once).count("barrier(") == 1
    again = Allocate(SHARED, bound(T, 8, "threadIdx.x", loops([(J, 8)], seq([fill, use]))))
    assert text(again).count("barrier(") == 2
    stores = seq([Store(OUT, (J * 8 + T,), A[J]), Store(OUT, (J * 8 + T,), A[T])])
    assert "barrier(" not in text(bound(T, 8, "threadIdx.x", loops([(J, 8)], stores)))


LARGE = Buffer("large", (32,), scope="shared")


def test_loops_that_only_write_need_no_barrier() -> None:
    """Iterations that store an element of their own each, under their conditions, do not meet; others do."""

    def barriers(place, cond=None) -> int:
        store: Stmt = Store(LARGE, (place,), A[J * 8 + T])
        fill = bound(T, 8, "threadIdx.x", store if cond is None else If(cond, store))
        body = Allocate(LARGE, loops([(J, 4)], fill))
        return text(body).count("barrier(")

    assert barriers(J * 8 + T) == 0 and barriers(T * 4 + J) == 0
    assert barriers(J * 6 + T) == 1 and barriers(T) == 1 and barriers((J * 8 + T) // 2) == 1
    assert barriers(J * 6 + T, T < 6) == 0 and barriers(J * 6 + T, T < 7) == 1


def test_copies_share_one_barrier() -> None:
    """Local memory that is allocated between two copies does not make the second wait for the first."""
    other, u, v = Buffer("other", (8,), scope="shared"), Var("u"), Var("v")
    use = bound(v, 8, "threadIdx.x", Store(OUT, (v,), SHARED[const(7) - v] + other[v]))
    second = Allocate(other, seq([bound(u, 8, "threadIdx.x", Store(other, (u,), A[u])), use]))
    body = Allocate(SHARED, seq([bound(T, 8, "threadIdx.x", Store(SHARED, (T,), A[T])), second]))
    assert text(bound(J, 2, "blockIdx.x", body)).count("barrier(") == 1


def test_items_that_meet_in_global_memory_wait_for_each_other() -> None:
    """Between loops over items that share elements, and after each round of them; one item's own order needs none."""
    u, wide = Var("u"), Buffer("wide", (8,))
    first = bound(T, 8, "threadIdx.x", Store(wide, (T,), A[T]))
    second = bound(u, 8, "threadIdx.x", Store(OUT, (u,), wide[const(7) - u]))
    source = text(bound(J, 1, "blockIdx.x", seq([first, second])), A, wide, OUT)
    assert source.count("barrier(CLK_GLOBAL_MEM_FENCE);") == 1
    rounds = loops([(I, 3)], bound(T, 8, "threadIdx.x", Store(wide, (T,), wide[const(7) - T])))
    assert text(bound(J, 1, "blockIdx.x", rounds), A, wide).count("barrier(CLK_GLOBAL_MEM_FENCE);") == 1
    alone = seq([Store(wide, (T,), A[T]), Store(OUT, (T,), wide[T])])
    assert "barrier(" not in text(bound(T, 8, "threadIdx.x", alone), A, wide, OUT)


def test_a_barrier_that_not_all_items_reach_is_refused() -> None:
    """Inside of a condition items would wait for ever, or, where all agree about it, some drivers lose track."""
    both = seq([Store(SHARED, (T,), A[T]), Store(OUT, (T,), SHARED[const(7) - T])])
    body = Allocate(SHARED, bound(T, 8, "threadIdx.x", If(T < 4, both)))
    assert "needs a barrier inside a condition" in refusal(body)
    body = Allocate(SHARED, bound(T, 8, "threadIdx.x", If(A[T] > 0.0, both)))
    assert "needs a barrier inside a condition" in refusal(body)
    body = bound(J, 8, "blockIdx.x", If(J < 4, Allocate(SHARED, bound(T, 8, "threadIdx.x", both))))
    assert "move the condition into the loop over the work-items" in refusal(body)


def test_loops_over_items_between_barriers_stand_under_a_condition_on_the_item() -> None:
    """So that PoCL adds no barriers to the loops inside, after which one item would decide conditions for all."""
    u = Var("u")
    fill, use = Store(SHARED, (T,), A[T]), Store(OUT, (u,), SHARED[const(7) - u])
    apart = Allocate(SHARED, seq([bound(T, 8, "threadIdx.x", fill), bound(u, 8, "threadIdx.x", use)]))
    source = text(bound(J, 1, "blockIdx.x", apart))
    assert "if (t < 8) {" in source and "if (u < 8) {" in source
    together = Allocate(SHARED, bound(T, 8, "threadIdx.x", seq([fill, Store(OUT, (T,), SHARED[const(7) - T])])))
    assert "if (" not in text(together) and "if (" not in text(bound(T, 64, "threadIdx.x", Store(OUT, (T,), A[T])))


def test_local_memory_of_one_item_is_refused() -> None:
    """What is allocated inside of a loop is its iteration's own, and local memory is the group's."""
    own = Allocate(SHARED, seq([Store(SHARED, (const(0),), A[T]), Store(OUT, (T,), SHARED[0])]))
    assert "allocates `tile` in local memory inside of the loop that is bound to threadIdx.x" in refusal(
        bound(T, 8, "threadIdx.x", own)
    )
    assert "__local" in text(bound(T, 1, "threadIdx.x", own))


@pytest.mark.parametrize("axis", ["blockIdx.x", "threadIdx.x"])
def test_what_items_change_is_not_read_outside_of_their_loop(axis: str) -> None:
    """An item that is late would decide by what others have already written."""
    change, kept = bound(T, 8, axis, Store(OUT, (T,), A[T])), Var("kept", "float32")
    uses = bound(T, 8, axis, Store(OUT, (T,), kept))
    count, counted = Buffer("count", (8,), "int64"), Store(Buffer("count", (8,), "int64"), (T,), const(1, "int64"))
    assert f"reads `out` outside of the loop that is bound to {axis}" in refusal(If(OUT[0] > 0.0, change))
    assert "some work-items would read what others have written" in refusal(Let(kept, OUT[0], uses))
    assert "if (" in text(If(A[0] > 0.0, change))
    assert "if (" in text(bound(T, 8, axis, If(OUT[T] > 0.0, Store(OUT, (T,), A[T]))))
    if axis == "threadIdx.x":
        assert "reads `count`" in refusal(For(I, count[0], bound(T, 8, axis, counted)), count)


def test_refusals() -> None:
    """Each refusal names the loop or buffer and the rule."""
    assert "bind it" in refusal(loops([(I, 64)], COPY, "parallel"))
    assert "inside of a loop" in refusal(loops([(J, 2)], bound(I, 64, "blockIdx.x", COPY)))
    assert "do not wait for each other" in refusal(loops([(J, 1)], seq([bound(I, 64, "blockIdx.x", COPY), COPY])))
    assert "every work-item would repeat it" in refusal(
        loops([(J, 1)], seq([bound(I, 64, "threadIdx.x", COPY), Store(OUT, (const(0),), const(1.0))]))
    )
    assert "must be constant" in refusal(loops([(J, 4)], For(I, J + 1, COPY, "thread_binding", "threadIdx.x")))
    assert "unknown axis" in refusal(bound(I, 64, "vthread", COPY))
    assert "allows 64" in refusal(bound(I, 64, "threadIdx.x", bound(J, 2, "threadIdx.y", COPY)))
    assert "inside of another loop bound to it" in refusal(bound(I, 8, "threadIdx.x", bound(J, 8, "threadIdx.x", COPY)))
    large = Buffer("large", (1 << 20,), scope="local")
    assert "private memory" in refusal(Allocate(large, loops([(I, 64)], Store(large, (I,), A[I]))))
    wide = Buffer("wide", (1 << 14,), scope="shared")
    assert "local memory" in refusal(Allocate(wide, bound(I, 64, "threadIdx.x", Store(wide, (I,), A[I]))))
    assert "cl_khr_fp64" in refusal(
        loops([(I, 64)], Store(Buffer("d", (64,), "float64"), (I,), const(0.0, "float64"))),
        Buffer("d", (64,), "float64"),
        target=replace(GENERIC, features=""),
    )
    assert "no function `gamma`" in refusal(loops([(I, 64)], Store(OUT, (I,), Call("gamma", (A[I],), "float32"))))
    assert "used outside" in refusal(Store(OUT, (I,), const(0.0)))
    assert "neither a parameter" in refusal(Store(Buffer("other", (4,)), (const(0),), const(0.0)))
    cube = Buffer("cube", (2, 2, 2), axis_separators=(1, 2))
    assert "`cube` has 3 physical axes" in refusal(Store(OUT, (const(0),), cube[0, 0, 0]), cube, OUT)


def test_names_are_unique_and_legal() -> None:
    """Reserved words and odd characters are renamed, and no two names are one identifier."""
    names = Names()
    given = [names.fresh(n) for n in ("a", "a", "float4", "a.b", "a_b", "kernel", "3d", "get_id", "LOAD8_x", "_x")]
    assert len(set(given)) == len(given)
    assert given[0] == "a" and all(n.isidentifier() and n[0].isalpha() for n in given)
    assert not {"float4", "kernel", "get_id", "LOAD8_x"} & set(given)


@pytest.mark.parametrize("lanes", range(1, 70))
def test_pieces_cover_every_lane_once(lanes: int) -> None:
    """Native vectors and single lanes partition any length."""
    parts = pieces(lanes)
    assert [start for start, _ in parts] == [sum(c for _, c in parts[:k]) for k in range(len(parts))]
    assert sum(count for _, count in parts) == lanes and {c for _, c in parts} <= {16, 8, 4, 2, 1}


def test_float_literals_are_exact() -> None:
    """The text of a float32 literal rounds back to the same float32."""
    assert literal(0.1, "float32", "long") == "0.100000001f"
    assert literal(1.0, "float32", "long") == "1.0f" and literal(-1e30, "float32", "long") == "(-1.00000002e+30f)"


@pytest.mark.parametrize(
    ("text_", "stripped"), [("((a + b))", "a + b"), ("(a) + (b)", "(a) + (b)"), ("(int)(a)", "(int)(a)"), ("a", "a")]
)
def test_outer_parentheses_go(text_: str, stripped: str) -> None:
    """Only a pair that encloses the whole expression is needless."""
    assert bare(text_) == stripped


def test_effects_without_value() -> None:
    """An evaluated expression is a statement."""
    assert "(void)exp_float(t);" in text(loops([(I, 64)], seq([Evaluate(Call("exp", (A[I],), "float32")), COPY])))


def test_values_are_written_once_in_a_block() -> None:
    """What a tile loads again and again is one constant; what the kernel writes is read each time."""
    body, params = matmul_tile(6, 16, 480, 8, (8, 4))
    source = text(body, *params)
    inner = source[source.index("for (long k") :].split("}")[0]
    assert inner.count("= A[") == 6 and inner.count("LOAD8_global_float(B") == 2
    assert inner.count("LOAD8_private_float(tile") == 12
    changed = text(loops([(I, 64)], seq([Store(OUT, (I,), OUT[I] + 1.0), Store(OUT, (I,), OUT[I] * 2.0)])))
    assert changed.count("= out[i]") == 2


def test_what_a_condition_protects_stays_behind_it() -> None:
    """A load inside of a lazy conditional is not evaluated ahead of it."""
    cond = Binary("<", I, const(32))
    inner = Call("if_then_else", (cond, A[I * 2], const(0.0)), "float32")
    body = loops([(I, 64)], seq([Store(OUT, (I,), inner), Store(OUT, (I,), inner + 1.0)]))
    source = text(bound(J, 1, "blockIdx.x", body), target=GPU)
    assert source.count("? A[") == 1 and "= A[" not in source
    source = text(body)
    assert source.count("= load_or_float(") == 1 and "= A[" not in source


def test_a_condition_is_written_without_assuming_itself() -> None:
    """The test of a branch keeps the correction of a division that only the branch itself makes needless."""
    wide = Buffer("wide", (64,), "int64")
    cond = Binary(">=", (I * I - I * 7) // 4 * J, const(9))
    source = text(loops([(J, 3), (I, 64)], If(cond, Store(wide, (I,), I))), wide)
    assert "floor_div_long(" in source[source.index("if (") :]


def test_a_broadcast_condition_is_one_condition() -> None:
    """A vector conditional whose condition is the same in every lane tests it once."""
    at = (Ramp(I * 8, const(1), 8),)
    cond = Broadcast(Binary("<", I, const(4)), 8)
    value = Call("if_then_else", (cond, Load(A, at), Broadcast(const(0.0), 8)), "float32x8")
    assert text(loops([(I, 8)], Store(OUT, at, value))).count("i < 4L") == 1


def test_a_barrier_of_one_memory_does_not_order_the_other() -> None:
    """What waits for local memory alone has not made what the items stored in global memory visible."""
    kept, u, v = Buffer("kept", (64,)), Var("u"), Var("v")
    last = Buffer("last", (64,))
    first = bound(
        T, 8, "threadIdx.x", seq([Store(SHARED, (T,), A[J * 8 + T]), Store(kept, (J * 8 + T,), A[J * 8 + T])])
    )
    second = bound(u, 8, "threadIdx.x", Store(OUT, (J * 8 + u,), SHARED[const(7) - u]))
    third = bound(v, 8, "threadIdx.x", Store(last, (J * 8 + v,), kept[J * 8 + 7 - v]))
    body = Allocate(SHARED, bound(J, 8, "blockIdx.x", seq([first, second, third])))
    found = text(body, A, OUT, kept, last)
    assert found.index("CLK_LOCAL_MEM_FENCE") < found.index("CLK_GLOBAL_MEM_FENCE")


def test_an_address_beyond_32_bits_is_long() -> None:
    """Also where only the constant of an unrolled index takes it there."""
    far = Buffer("far", (3 << 30,), "int8")

    def written(first: int) -> str:
        store = Store(far, (J * 8 + T + first,), const(1, "int8"))
        return text(bound(T, 8, "threadIdx.x", loops([(J, 1 << 27)], store)), far, target=GPU)

    assert "long" in written(2**31 - 8) and "long" not in written(8)


def test_a_division_is_not_computed_where_its_condition_does_not_hold() -> None:
    """``j > 0 ? A[t % j] : 0`` with j = 0 ends the process, if the remainder is computed before."""
    value = Call("if_then_else", (binary("<", const(0), J), A[T % J], const(0.0)))
    found = text(bound(T, 64, "threadIdx.x", loops([(J, 8)], Store(OUT, (T,), value))))
    divided = [line for line in found.splitlines() if " % " in line]
    assert divided and all("?" in line for line in divided)
