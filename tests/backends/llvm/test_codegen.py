"""Loops, conditions, memory and parallel loops of generated code; the shape of a hot loop."""

import re
import time

import numpy as np
import pytest
from cpu_programs import lowered, matmul_tile, run

from stridesmith.backends import cpu, host
from stridesmith.backends.errors import CodegenError
from stridesmith.backends.render.llvm_module import entry_name, generate
from stridesmith.ir.expr import Binary, Broadcast, Buffer, Cast, Load, Ramp, Var, const, if_then_else, maximum
from stridesmith.ir.stmt import Allocate, Declare, Evaluate, For, If, Seq, Store, loops
from stridesmith.ir.target import Target

i, j, k = Var("i"), Var("j"), Var("k")
A, B, OUT = Buffer("a", (64,)), Buffer("b", (64,)), Buffer("out", (64,))
DATA = np.random.default_rng(0).standard_normal(64).astype(np.float32)
LANES = Ramp(const(0), const(1), 8)


def test_loops_may_depend_on_outer_variables():
    """A triangular loop runs as often as its extent says, not at all where that is 0."""
    add = Store(OUT, (i,), OUT[i] + A[j])
    body = For(i, const(64), Seq((Store(OUT, (i,), const(0.0)), For(j, i - 3, add))))
    expected = [DATA[: max(n - 3, 0)].astype(np.float64).sum() for n in range(64)]
    np.testing.assert_allclose(run(body, {A: DATA}, OUT), expected, rtol=1e-5, atol=1e-5)


def test_loops_of_extent_zero_and_one():
    """An empty loop does nothing; a loop of one runs its body with 0."""
    body = Seq((For(i, const(64), Store(OUT, (i,), const(1.0))), For(i, const(0), Store(OUT, (i,), const(2.0))),
                For(i, const(1), Store(OUT, (i + 5,), const(3.0)))))  # fmt: skip
    expected = np.ones(64)
    expected[5] = 3
    np.testing.assert_array_equal(run(body, {}, OUT), expected)


@pytest.mark.parametrize("kind", ["serial", "unrolled"])
def test_conditions_choose_statements(kind):
    """Both sides of an If run where they should, decided while unrolling or at run time."""
    cond = Binary("and", i > 3, Binary("or", i < 10, (i % 7).equal(0)))
    store = If(cond, Store(OUT, (i,), A[i]), Store(OUT, (i,), const(-1.0)))
    n = np.arange(64)
    expected = np.where((n > 3) & ((n < 10) | (n % 7 == 0)), DATA, -1)
    np.testing.assert_array_equal(run(For(i, const(64), store, kind), {A: DATA}, OUT), expected)


def test_what_was_loaded_is_forgotten_after_a_store():
    """A load after a store to the same buffer sees the store: directly, through an alias, a branch or a loop."""
    alias = Buffer("alias", (64,), data="out")
    first, second = Store(OUT, (i,), A[i]), Store(OUT, (i,), OUT[i] * const(2.0))
    cases = {
        "direct": Seq((first, second, Store(OUT, (i,), OUT[i] + const(1.0)))),
        "alias": Seq(
            (first, Declare(alias, Seq((Store(alias, (i,), alias[i] * const(2.0)), Store(OUT, (i,), OUT[i] + 1.0)))))
        ),
        "branch": Seq((first, If(A[i] < const(1e9), second), Store(OUT, (i,), OUT[i] + const(1.0)))),
        "loop": Seq((first, For(j, const(1) + i * 0, second), Store(OUT, (i,), OUT[i] + const(1.0)))),
        "variable loop": Seq((first, For(j, (i + 1) // (i + 1), second), Store(OUT, (i,), OUT[i] + const(1.0)))),
        "other index": Seq(
            (first, Store(OUT, (i * 2 - i,), OUT[i] * const(2.0)), Store(OUT, (i,), OUT[i] + const(1.0)))
        ),
    }
    for name, body in cases.items():
        got = run(For(i, const(64), body), {A: DATA}, OUT)
        np.testing.assert_array_equal(got, DATA * 2 + 1, err_msg=name)


def test_overlapping_vector_stores_keep_their_order():
    """A vector, then a scalar, then a vector at a distance of four: every element has the last value."""
    later = Ramp(const(4), const(1), 8)
    body = Seq((
        Store(OUT, (LANES,), Load(A, (LANES,))), Store(OUT, (const(2),), const(7.0)),
        Store(OUT, (later,), Load(OUT, (LANES,)) * Broadcast(const(10.0), 8)),
        Store(B, (LANES,), Load(OUT, (LANES,))),
    ))  # fmt: skip
    out, copy = run(body, {A: DATA}, OUT, B)
    first = DATA[:8].copy()
    first[2] = 7
    expected = np.concatenate([first[:4], first * 10])
    np.testing.assert_array_equal(out[:12], expected)
    np.testing.assert_array_equal(copy[:8], expected[:8])


def test_values_of_a_branch_stay_in_it():
    """An address or load that one side made is not used after it, where it may not have been computed."""
    lazy = if_then_else(A[i] > const(0.0), A[i + 1] + A[i + 1], A[i + 2])
    body = For(i, const(62), Seq((Store(OUT, (i,), lazy), Store(B, (i,), A[i + 1] + A[i + 2]))))
    out, b = run(body, {A: DATA}, OUT, B)
    np.testing.assert_array_equal(out[:62], np.where(DATA[:62] > 0, 2 * DATA[1:63], DATA[2:]))
    np.testing.assert_array_equal(b[:62], DATA[1:63] + DATA[2:])


def test_memories_of_one_name_have_addresses_of_their_own():
    """What two branches allocate under one name is two memories, also where an address is shared by what follows."""
    tile = Buffer("tile", (64,))
    whole = For(k, const(64), Store(tile, (k,), A[k] * const(2.0)))
    part = For(j, const(8), Store(tile, (i * 8 + j,), A[i * 8 + j]))
    copy = For(j, const(8), Store(OUT, (i * 8 + j,), tile[i * 8 + j]))
    branches = If((i % 2).equal(0), Allocate(tile, Seq((part, copy))), Allocate(tile, Seq((whole, copy))))
    expected = np.where(np.arange(64) // 8 % 2 == 0, DATA, 2 * DATA)
    np.testing.assert_array_equal(run(For(i, const(8), branches), {A: DATA}, OUT), expected)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_parallel_loop_captures_its_surroundings(threads):
    """Buffers, loop variables, lets and a workspace reach the body; each thread has its own local memory."""
    from stridesmith.ir.stmt import Let

    w, local = Buffer("w", (64,)), Buffer("local", (8,), scope="local")
    x, scale = Var("x"), Var("scale", "float32")
    inner = Seq((Store(local, (LANES,), Load(A, (Ramp(j * 8, const(1), 8),))),
                 Store(w, (Ramp(j * 8, const(1), 8),), Load(local, (LANES,)) * Broadcast(scale, 8))))  # fmt: skip
    body = For(i, const(3), Let(x, i * 2 + 1, Let(scale, Cast("float32", x), Seq((
        For(j, const(8), Allocate(local, inner), "parallel"),
        For(k, const(64), Store(OUT, (k,), w[k] + Cast("float32", x)), "parallel", "", (("chunk", 5),)),
    )))))  # fmt: skip
    got = run(body, {A: DATA}, OUT, threads=threads, workspaces=(w,))
    np.testing.assert_allclose(got, DATA * 5 + 5, rtol=1e-6)


@pytest.mark.parametrize(("most", "calls"), [(1, 0), (2, 1), (3, 1)])
def test_a_parallel_loop_may_have_fewer_threads(most, calls):
    """A loop annotated with `threads` = 1 is serial, without a call of the pool; with more it has at most these."""
    body = For(i, const(64), Store(OUT, (i,), A[i] + const(1.0)), "parallel", "", (("threads", most), ("chunk", 1)))
    np.testing.assert_array_equal(run(body, {A: DATA}, OUT, threads=5), DATA + 1)
    text = generate(lowered(body, A, OUT), Target(threads=5))
    assert text.count("call void @stridesmith_parallel(") == calls
    assert (f"@llvm.smin.i64(i64 %threads, i64 {most})" in text) == bool(calls)


def test_a_negative_number_of_threads_is_refused():
    """An annotation that means nothing is not taken for none."""
    body = For(i, const(64), Store(OUT, (i,), A[i]), "parallel", "", (("threads", -2),))
    with pytest.raises(CodegenError, match="loop `i` is annotated with `threads` = -2; it must be positive"):
        generate(lowered(body, A, OUT), Target(threads=5))


def test_parallel_inside_of_parallel_is_serial():
    """A nested parallel loop still runs every iteration."""
    body = For(i, const(8), For(j, const(8), Store(OUT, (i * 8 + j,), A[j * 8 + i]), "parallel"), "parallel")
    np.testing.assert_array_equal(run(body, {A: DATA}, OUT, threads=3), DATA.reshape(8, 8).T.ravel())


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
def test_matmul_tile_is_right(lanes):
    """A register tile computes the product with vectors of any width."""
    program = matmul_tile(6, 16, 37, lanes)
    bound = cpu.load_cpu(cpu.compile_cpu(program, Target(threads=2))).bind(guard_bytes=64)
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (24, 37)).astype(np.float32)
    b = rng.integers(-4, 5, (37, 64)).astype(np.float32)
    bound.write(0, a)
    bound.write(1, b.reshape(37, 4, 16).transpose(1, 0, 2))
    bound.run()
    np.testing.assert_array_equal(bound.read(2).reshape(24, 64), a @ b)


def hot_loop(assembly, instruction):
    """The basic block with most occurrences of `instruction`, as lines without labels and directives."""
    blocks = re.split(r"^\S+:.*\n|(?<=\n)(?=\tj\w+\t)", assembly, flags=re.M)
    lines = max(blocks, key=lambda block: block.count(instruction)).splitlines()
    return [line for line in lines if line.strip() and not line.strip().startswith((".", "#"))]


AVX2 = Target(cpu="haswell", features="", vector_bits=256, registers=16)


@pytest.mark.skipif(host.host_cpu().isa not in ("avx2", "avx512"), reason="compares x86 instructions")
@pytest.mark.parametrize(
    ("rows", "columns", "lanes", "target", "broadcasts"),
    [
        (6, 16, 8, AVX2, 6),
        (4, 24, 8, AVX2, 4),
        (14, 32, 16, Target(cpu="skylake-avx512", features="", vector_bits=512, registers=32), 14),
    ],
)
def test_register_tile_lives_in_registers(rows, columns, lanes, target, broadcasts):
    """The hot loop of a matmul tile is its FMAs, one load for each operand and no access to the stack."""
    block = hot_loop(cpu.assembly(matmul_tile(rows, columns, 64, lanes), target), "vfmadd")
    text = "\n".join(block)
    assert len(re.findall("vfmadd", text)) == rows * columns // lanes
    assert "rsp" not in text and "rbp" not in text
    register = "zmm" if lanes == 16 else "ymm"
    loads = [line for line in block if "vmovup" in line and f"%{register}" in line.split(",")[-1]]
    folded = len(re.findall(r"\{1to16\}", text))
    assert len(re.findall("vbroadcastss", text)) + folded >= broadcasts
    assert len(loads) <= columns // lanes
    assert len(block) <= rows * columns // lanes + broadcasts + columns // lanes + 6


@pytest.mark.skipif(host.host_cpu().isa not in ("avx2", "avx512"), reason="compares x86 instructions")
def test_maximum_is_vmaxps():
    """A max-pool's inner loop takes one vmaxps, one comparison for NaN and one blend for each vector."""
    x = Ramp(i * 64 + j * 8, const(1), 8)
    tile = Buffer("tile", (64,), scope="local")
    at = (Ramp(j * 8, const(1), 8),)
    pooled = Seq((
        loops([(j, 4)], Store(tile, at, Broadcast(const(float("-inf")), 8)), "unrolled"),
        For(i, const(9), loops([(j, 4)], Store(tile, at, maximum(Load(tile, at), Load(A, (x,)))), "unrolled")),
        loops([(j, 4)], Store(OUT, at, Load(tile, at)), "unrolled"),
    ))  # fmt: skip
    text = "\n".join(hot_loop(cpu.assembly(lowered(Allocate(tile, pooled), A, OUT), AVX2), "vmaxps"))
    assert text.count("vmaxps") == 4
    assert text.count("vcmpunordps") <= 4 and text.count("vblendvps") <= 4


def convolution_row(kernel, rows, lanes=8, columns=2):
    """``out[ow, co] += x[ow + kw] * w[kw, ci, co]`` with kw unrolled around a tile of rows x columns vectors."""
    ci, kw, ow, co = (Var(n) for n in ("ci", "kw", "ow", "co"))
    size = rows * columns * lanes
    x, w, out = Buffer("x", (64 * 64,)), Buffer("w", (kernel * 64 * columns * lanes,)), Buffer("out", (size,))
    tile = Buffer("tile", (size,), scope="local")
    place = (Ramp(ow * (columns * lanes) + co * lanes, const(1), lanes),)
    weight = Load(w, (Ramp((kw * 64 + ci) * (columns * lanes) + co * lanes, const(1), lanes),))
    product = Broadcast(x[(ow + kw) * 64 + ci], lanes) * weight
    nest = [(ow, rows), (co, columns)]
    update = loops([(kw, kernel), *nest], Store(tile, place, Load(tile, place) + product), "unrolled")
    steps = [
        loops(nest, Store(tile, place, Broadcast(const(0.0), lanes)), "unrolled"),
        For(ci, const(64), update),
        loops(nest, Store(out, place, Load(tile, place)), "unrolled"),
    ]
    return Allocate(tile, Seq(tuple(steps))), x, w, out


@pytest.mark.skipif(host.host_cpu().isa not in ("avx2", "avx512"), reason="compares x86 instructions")
def test_unrolled_reduction_does_not_spill():
    """Values that neighbouring steps share are loaded again rather than kept, where the tile fills the registers."""
    assembly = cpu.assembly(lowered(*convolution_row(5, 6)), AVX2)
    block = "\n".join(hot_loop(assembly, "vfmadd"))
    assert block.count("vfmadd") == 60 and "(%rsp)" not in assembly


@pytest.mark.skipif(host.host_cpu().isa not in ("avx2", "avx512"), reason="compares x86 instructions")
@pytest.mark.parametrize(("rows", "columns", "kernel"), [(14, 1, 4), (12, 1, 5), (6, 2, 5), (4, 3, 3)])
def test_accumulators_stay_in_their_registers(rows, columns, kernel):
    """Where the instruction is named, a tile that nearly fills the registers has no move and no spill."""
    named = Target(cpu="haswell", features="+fma", vector_bits=256, registers=16)
    program = lowered(*convolution_row(kernel, rows, columns=columns))
    assembly = cpu.assembly(program, named)
    block = hot_loop(assembly, "vfmadd")
    assert "(%rsp)" not in assembly
    assert all("vfmadd231ps" in line for line in block if "vfmadd" in line)
    assert not [line for line in block if re.search(r"vmov[au]ps\s+%ymm\d+, %ymm\d+", line)]


@pytest.mark.skipif(host.host_cpu().isa not in ("avx2", "avx512"), reason="compares x86 instructions")
def test_shared_values_stay_where_registers_are_free():
    """A small tile keeps what the next step reads: 3 + 2 broadcasts for three steps of 3 rows."""
    block = "\n".join(hot_loop(cpu.assembly(lowered(*convolution_row(3, 3)), AVX2), "vfmadd"))
    assert block.count("vfmadd") == 18 and block.count("vbroadcastss") == 5


def test_unrolled_reduction_is_right():
    """Loading again changes no value."""
    body, x, w, out = convolution_row(5, 6)
    rng = np.random.default_rng(0)
    data, weights = rng.integers(-4, 5, (64, 64)), rng.integers(-4, 5, (5, 64, 16))
    expected = sum(data[kw : kw + 6] @ weights[kw] for kw in range(5))
    got = run(body, {x: data.ravel(), w: weights.ravel()}, out)
    np.testing.assert_array_equal(got.reshape(6, 16), expected)


@pytest.mark.skipif(host.host_cpu().isa not in ("avx2", "avx512"), reason="compares x86 instructions")
def test_padded_load_has_no_branch():
    """A load that gives a constant outside of its buffer reads from that constant instead of jumping."""
    inside = Binary("and", i >= 2, i < 30)
    value = if_then_else(inside, Load(A, (i - 2,)), const(0.5))
    body = For(i, const(64), Store(OUT, (i,), value))
    assembly = cpu.assembly(lowered(body, A, OUT), AVX2)
    function = assembly[assembly.index("kernel_program.body:") :]
    assert len(re.findall(r"\tj\w+\t", function[: function.index("retq")])) == 1
    expected = np.full(64, 0.5)
    expected[2:30] = DATA[:28]
    np.testing.assert_array_equal(run(body, {A: DATA}, OUT), expected)


@pytest.mark.parametrize("dtype", ["bool", "int64", "float16", "bfloat16", "float64", "int8"])
@pytest.mark.parametrize("lanes", [1, 4])
def test_padded_load_of_every_type(dtype, lanes):
    """The constant has the element's type, scalar and vector."""
    source, out = Buffer("source", (64,), dtype), Buffer("out", (64,), dtype)
    one = const(1, dtype)
    index = i if lanes == 1 else Ramp(i * lanes, const(1), lanes)
    value = if_then_else(i < 8, Load(source, (index,)), one if lanes == 1 else Broadcast(one, lanes))
    data = np.zeros(64, "uint16" if dtype == "bfloat16" else dtype)
    got = run(For(i, const(64 // lanes), Store(out, (index,), value)), {source: data}, out)
    expected = data.copy()
    expected[8 * lanes :] = 0x3F80 if dtype == "bfloat16" else 1
    np.testing.assert_array_equal(got, expected)


def test_emission_is_fast():
    """The text of a 14 x 32 tile takes milliseconds; the bound leaves room for a busy machine."""
    target = Target(vector_bits=512, registers=32)
    program = matmul_tile(14, 32, 64, 16)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        generate(program, target)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.05


def test_memory_has_one_axis():
    """A parameter of two physical axes is refused: textures are no memory of a CPU."""
    texture = Buffer("texture", (8, 8), axis_separators=(1,))
    with pytest.raises(CodegenError, match="`texture` has 2 physical axes; CPU code takes linear memory of one"):
        run(Evaluate(texture[0, 0]), {texture: np.zeros((8, 8))}, OUT)


def test_buffers_do_not_alias():
    """Every buffer is a noalias argument, of the parallel body too."""
    text = generate(matmul_tile(6, 16, 8, 8), AVX2)
    for line in re.findall(r"define internal void @\S*body\(.*", text):
        pointers = re.findall(r"ptr ([^,)]*)", line)
        assert len(pointers) == 3 and all(p.startswith("noalias") for p in pointers)


def test_entry_name_is_a_symbol():
    """Any program name gives a valid symbol."""
    assert entry_name("conv2d<3x3>, n=1") == "kernel_conv2d_3x3___n_1"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (For(i, const(4), Store(OUT, (i,), A[i]), "vectorized"), "loop `i` is vectorized"),
        (For(i, A[0] * 0 + 4, Evaluate(A[0])), "expected a scalar int64"),
        (Store(OUT, (LANES,), const(1.0)), "a store of float32 to 8 elements of `out`"),
        (Store(Buffer("ghost", (4,)), (const(0),), const(1.0)), "buffer `ghost` is neither a parameter"),
        (Allocate(Buffer("big", (1 << 22,)), Evaluate(const(0))), "`big` .* belongs in a workspace"),
    ],
)
def test_refusals(body, sentence):
    """What cannot be expressed is refused with a sentence that names it."""
    with pytest.raises(CodegenError, match=sentence):
        run(body, {A: DATA}, OUT)
