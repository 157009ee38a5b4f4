"""Conditions on the lanes of a vectorized loop as masks: what they compute, and where they stay branches."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from masking import AVX2, AVX512, CASES, RUNNING, WITHOUT, Edge, annotated, copy, filled, read, run, tile
from scale import scaled

import stridesmith as ss
from stridesmith.backends.artifact import Argument
from stridesmith.backends.cpu import assembly
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.llvm import masks
from stridesmith.backends.llvm.builder import Builder
from stridesmith.backends.llvm.index import Linear
from stridesmith.backends.lower import lower, lowering_steps
from stridesmith.backends.passes.flatten import flat_buffer
from stridesmith.backends.render.llvm_module import generate
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import verify
from stridesmith.errors import WrongResult
from stridesmith.ir.expr import Var
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.stmt import Block, For, If, PrimFunc, walk_stmts
from stridesmith.ir.target import Target
from stridesmith.ir.verify.bounds import OutOfBounds


def loops_of(func: PrimFunc) -> list[Var]:
    return [n.var for n in walk_stmts(func.body) if isinstance(n, For)]


def is_masked_code(func: PrimFunc, target: Target) -> bool:
    """Whether masked loads or stores are in the code."""
    return "@llvm.masked." in generate(lower(func, target), target)


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize("case", CASES)
def test_masked_loops_compute_what_branches_do(case: str, target: Target) -> None:
    """With the annotation a kernel leaves what the interpreter says of the branch, and writes nothing else."""
    func = CASES[case]
    arrays = filled(func)
    expected = [a.copy() for a in arrays]
    interpret(func, *expected, strict_state=False)
    for got, want in zip(run(func, target, *arrays), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize("more", ["", " and 5 * v + j < 9"])
@pytest.mark.parametrize(
    ("wide", "narrow", "lanes"), [("int32", "uint8", 16), ("int32", "int16", 8), ("int64", "int32", 8)]
)
def test_a_single_lane_that_was_wider_is_stored_alone(
    wide: str, narrow: str, lanes: int, more: str, target: Target
) -> None:
    """LLVM 22 stores all bytes of what is truncated, over what rows before have left, where a mask has one lane."""
    func = annotated(
        read(f"""(A: T.Buffer((5, {2 * lanes + 1}), "{wide}"), B: T.Buffer((5, {2 * lanes + 1}), "{narrow}")):
    for i in range(5):
        for j in T.unroll(3):
            for v in T.vectorized({lanes}):
                if j * {lanes} + v < {2 * lanes + 1}{more and more.replace("j <", f"{lanes} * j <")}:
                    B[4 - i, j * {lanes} + v] = T.Cast("{narrow}", A[4 - i, j * {lanes} + v])
""")
    )
    arrays = filled(func)
    expected = [a.copy() for a in arrays]
    interpret(func, *expected, strict_state=False)
    np.testing.assert_array_equal(run(func, target, *arrays)[-1], expected[-1])


@pytest.mark.parametrize("case", CASES)
def test_every_pass_keeps_the_meaning(case: str) -> None:
    """The interpreter runs masked programs after each pass, to the same results."""
    func = CASES[case]
    arrays = filled(func)
    expected = [a.copy() for a in arrays]
    interpret(func, *expected, strict_state=False)
    flat = False
    for step, body in lowering_steps(func, AVX512):
        flat = flat or step == "flatten_buffers"
        params = tuple(flat_buffer(b, False) for b in func.buffers) if flat else func.params
        root = body if isinstance(body, Block) and body.name == "root" else Block("root", (), body)
        copies = [a.reshape(-1).copy() if flat else a.copy() for a in arrays]
        interpret(PrimFunc(func.name, params, root), *copies, strict_state=False)
        for got, want in zip(copies, expected, strict=True):
            np.testing.assert_array_equal(got.reshape(want.shape), want, err_msg=step)


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=lambda target: target.isa)
@pytest.mark.parametrize(
    "case", ["copy", "float64", "int64", "register tile", "maximum", "halo", "an edge at both ends"]
)
def test_there_is_no_branch_and_no_scalar_tail(case: str, target: Target) -> None:
    """The code has masked intrinsics, no condition in a statement, and no load or store of a scalar element."""
    lowered = lower(CASES[case], target)
    text = generate(lowered, target)
    assert "@llvm.masked.load" in text and ("@llvm.masked.store" in text or case == "maximum")
    conditions = [n.cond for n in walk_stmts(lowered.body) if isinstance(n, If)]
    assert all(cond.dtype.startswith("boolx") for cond in conditions)
    branches = [line for line in text.splitlines() if re.search(r"br i1", line) and "label %loop" not in line]
    assert not branches
    if case in ("copy", "an edge at both ends"):
        assert not re.search(r"= load (float|double)|store (float|double) ", text)


def test_instructions_of_both_sets() -> None:
    """AVX-512 loads and stores under a mask register, AVX2 by its masked moves, and no lane is tested by itself."""
    wide, narrow = (assembly(lower(copy(1003, lanes), t), t) for t, lanes in ((AVX512, 16), (AVX2, 8)))
    assert re.search(r"vmovups\s.*zmm\d+ \{%k\d\} \{z\}", wide) and re.search(r"vmovups\s+%zmm\d+, .*\{%k\d\}", wide)
    assert len(re.findall("vmaskmovps", narrow)) == 2
    for text in (wide, narrow):
        assert not re.search("vpextr|vextract|vmovss|vpinsr", text)


def test_a_mask_is_made_once() -> None:
    """The rows of a tile share the mask and what is loaded under it."""
    text = generate(lower(tile(1, 37, 5, 16, 2), AVX512), AVX512)
    assert len(re.findall(r"call .*@llvm.masked.load", text)) == 2
    assert len(re.findall(r"icmp \w+ <16 x i32>", text)) == 2


BRANCHES = {
    "a stride": ("B[io * 16 + v] = A[2 * io + 2 * v]", "io * 16 + v < 45"),
    "a condition on data": ("B[io * 16 + v] = A[io * 16 + v]", "A[v] < 3.0 and io * 16 + v < 45"),
    "a condition that is not affine": ("B[io * 16 + v] = A[io * 16 + v]", "(io * 16 + v) // 3 < 15"),
    "a scalar that is in bounds only where a lane is": ("B[io * 16 + v] = S[io]", "io * 16 + v < 45"),
}


@pytest.mark.parametrize("case", BRANCHES)
@pytest.mark.parametrize("target", RUNNING)
def test_what_has_no_masked_form_is_a_branch(case: str, target: Target) -> None:
    """Where a mask cannot say it, the annotation changes nothing."""
    store, cond = BRANCHES[case]
    plain = read(f"""(A: T.Buffer((96,)), S: T.Buffer((3,)), B: T.Buffer((45,))):
    for io in range(4):
        for v in T.vectorized(16):
            if {cond}:
                {store}
""")
    func = annotated(plain)
    assert generate(lower(func, target), target) == generate(lower(plain, target), target)
    arrays = filled(func)
    expected = [a.copy() for a in arrays]
    interpret(func, *expected, strict_state=False)
    np.testing.assert_array_equal(run(func, target, *arrays)[-1], expected[-1])


@pytest.mark.parametrize("case", ["copy", "register tile", "halo"])
def test_targets_without_masks_branch(case: str) -> None:
    """Elsewhere the annotation changes nothing: on older CPUs, for small types of AVX2, and on GPUs."""
    func = CASES[case]
    plain = ss.parse(func.script().replace(', annotations={"mask": True}', ""))
    assert isinstance(plain, PrimFunc) and plain != func
    for target in (WITHOUT, Target(kind="opencl", vector_bits=128, is_cpu_device=False)):
        assert lower(func, target) == lower(plain, target)
    assert not is_masked_code(copy(145, 32, "float16"), AVX2) and not is_masked_code(copy(145, 64, "int8"), AVX2)


def test_peeled_tiles_have_masks_in_their_edge_alone() -> None:
    """With the loops of the tile peeled, whole tiles have no mask and the last one has a constant mask."""
    func = tile(3, 37, 5, 16, 1)
    sch = ss.Schedule(func)
    sch.annotate("jo", "peel", True)
    text = generate(lower(sch.func, AVX512), AVX512)
    assert "@llvm.masked.store" in text and "icmp slt <16" not in text
    assert re.search(r"<i1 true, i1 true, i1 true, i1 true, i1 true, i1 false", text)


def test_a_tile_is_filled_where_only_its_last_vector_is_masked() -> None:
    """In a peeled edge the vectors of a tile stand apart; its rows add to whole registers all the same."""
    sch = ss.Schedule(tile(3, 30, 5, 8, 2))
    for loop in [v.name for v in loops_of(sch.func) if v.name.startswith("j")]:
        sch.annotate(loop, "peel", True)
    text = generate(lower(sch.func, AVX2), AVX2)
    assert "@llvm.masked.load" in text and "@llvm.masked.store" in text and "select <8 x i1>" not in text


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize("front", [False, True], ids=["end", "front"])
@pytest.mark.parametrize("case", [name for name in CASES if name not in ("int8", "float16", "maximum")])
def test_lanes_outside_touch_no_memory(case: str, front: bool, target: Target) -> None:
    """Buffers that end, or begin, at a page without access: a lane beyond would end the process."""
    func = CASES[case]
    arrays = filled(func)
    expected = [a.copy() for a in arrays]
    interpret(func, *expected, strict_state=False)
    executable = load_artifact(compile_lowered(lower(func, target), target))
    edges = [Edge(array, front) for array in arrays]
    executable.call([edge.start for edge in edges])  # type: ignore[attr-defined]
    for edge, want in zip(edges, expected, strict=True):
        np.testing.assert_array_equal(edge.data.reshape(want.shape), want)


def test_an_access_beyond_its_condition_is_refused() -> None:
    """The proof of bounds sees through masks: a condition that lets one lane too many through is an error."""
    text = copy(1003, 16).script()
    wrong = ss.parse(text.replace("< 1003:", "< 1004:"))
    assert isinstance(wrong, PrimFunc) and text.count("< 1003:") == 1
    with pytest.raises(OutOfBounds, match="extent 1003 is outside at"):
        lower(wrong, AVX512)


@pytest.mark.parametrize("target", RUNNING)
@pytest.mark.parametrize("wrong", [-1, 1], ids=["a lane too many", "one too few"])
@pytest.mark.parametrize("case", ["copy", "register tile"])
def test_verification_sees_a_mask_that_is_off_by_one(
    case: str, wrong: int, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane too many changes a guard zone or another row, one too few leaves an element unwritten."""
    func = CASES[case]
    output = func.buffers[-1]
    arguments = [Argument(b.name, Layout.plain(b.shape), b.dtype, is_output=b is output) for b in func.buffers]

    def reference(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"B": 2 * inputs["A"]} if case == "copy" else {"C": inputs["A"] @ inputs["B"]}

    samples = make_samples(func, reference, 3)

    def check() -> None:
        bound = load_artifact(compile_lowered(lower(func, target), target)).bind(guard_bytes=256)
        verify(bound, arguments, samples)

    check()
    honest = masks._lanes

    def off(out: Builder, op: str, base: Linear, steps: tuple[int, ...]) -> str:
        return honest(out, op, base + Linear(wrong), steps)

    monkeypatch.setattr(masks, "_lanes", off)
    with pytest.raises(WrongResult):
        check()


@st.composite
def ragged(draw: st.DrawFn) -> PrimFunc:
    """A nest over rows and vectors of columns with a box of lanes, shifted reads, and a tile in between or not."""
    lanes, vectors = draw(st.sampled_from([4, 8, 16])), draw(st.integers(1, 3))
    low, n = draw(st.integers(0, 9)), draw(st.integers(1, 70))
    rows, used, shift = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(-3, 3))
    size = lanes * vectors
    tiles = -(-(low + n) // size)
    at = f"jo * {size} + jv * {lanes} + v"
    first, last = draw(st.integers(0, 6)), draw(st.integers(0, n))
    read_from = f"{at} - {low} + {shift}"
    limits = f"{max(first, 0)} <= {read_from} and {read_from} < {last}"
    halo = f"T.if_then_else({limits} and {draw(st.sampled_from(['0 <= i', '1 <= i', 'i < 2']))}, A[i, {read_from}], "
    halo += f"T.float32({draw(st.integers(-2, 2))}))"
    value = draw(st.sampled_from(["{a}", "{h}", "{a} + S[i] * {h}", "T.max({a}, {h})", "{a} * {a} - {b}"]))
    value = value.format(a=f"A[i, {at} - {low}]", h=halo, b=f"B[i, {at} - {low}]")
    update = draw(st.sampled_from(["{o} + {v}", "T.max({o}, {v})", "{v}"]))
    cond = " and ".join(draw(st.permutations([f"{low} <= {at}", f"{at} < {low + n}", f"i < {used}"])))
    tile = draw(st.booleans())
    place = f"T_[jv * {lanes} + v]" if tile else f"B[i, {at} - {low}]"
    guarded = draw(st.booleans()) and not tile
    return annotated(
        read(f"""(A: T.Buffer(({rows}, {n})), S: T.Buffer(({rows},)), B: T.Buffer(({rows}, {n}))):
    T_ = T.alloc_buffer(({size},), scope="local")
    for i in range({rows}):
        for jo in range({tiles}):
            for jv in T.{draw(st.sampled_from(["unroll", "serial"]))}({vectors}):
                for v in T.vectorized({lanes}):
                    if {"True" if tile and not guarded else cond}:
                        {place} = T.float32(1)
            for k in range(2):
                for jv in T.unroll({vectors}):
                    for v in T.vectorized({lanes}):
                        if {cond}:
                            {place} = {update.format(o=place, v=value)}
            for jv in T.unroll({vectors}):
                for v in T.vectorized({lanes}):
                    if {cond}:
                        B[i, {at} - {low}] = {place} * T.float32(2)
""")
    )


masked_programs: Counter[bool] = Counter()


@pytest.mark.parametrize("target", RUNNING)
@settings(max_examples=scaled(40), deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(func=ragged())
def test_random_ragged_programs(target: Target, func: PrimFunc) -> None:
    """Boxes of lanes at any place, with halos, rows and tiles, compute what the interpreter says, to the last bit."""
    arrays = filled(func)
    expected = [a.copy() for a in arrays]
    interpret(func, *expected, strict_state=False)
    masked_programs[is_masked_code(func, target)] += 1
    for got, want in zip(run(func, target, *arrays), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_most_random_programs_are_masked() -> None:
    """Three of four of the programs have masks; in the others every vector is whole, or none has a masked form."""
    print(masked_programs)
    assert masked_programs[True] >= 0.75 * sum(masked_programs.values())
