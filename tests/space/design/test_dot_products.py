"""Dot products of bytes in design spaces: where there are sketches with them, and that these build and compute."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
import pytest
from expected_space import CPU, DOTS, OPENCL

from stridesmith.backends.data import arguments_of
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import LoweringError, lower
from stridesmith.backends.opencl.devices import match_opencl
from stridesmith.backends.render.opencl.program import generate as source_of
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import GUARD_BYTES, verify
from stridesmith.cost_model.features import FeatureMap
from stridesmith.errors import DeviceMissing
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import BYTE_DOTS, Target
from stridesmith.space.design.decision import MASK, Decision
from stridesmith.space.design.layouts import CONTIGUOUS, STRIDED, DotPacked4, alternatives, meeting
from stridesmith.space.design.program import anchors
from stridesmith.space.design.restrict import restricted
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import OF_CPU_DEVICES, SPACE_VERSION, Space, generate
from stridesmith.space.workloads import Workload, workload

AVX512 = Target(
    name="avx512", isa="avx512", vector_bits=512, registers=32, threads=2,
    features="+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512vnni,+avx2,+fma",
)  # fmt: skip

SHAPES = {
    "whole": ("matmul", {"m": 13, "n": 35, "k": 24}),
    "ragged": ("matmul", {"m": 13, "n": 35, "k": 22}),
    "rows": ("matmul", {"m": 9, "n": 20, "k": 48, "transpose_b": 1}),
    "image": ("conv2d", {"ci": 8, "h": 7, "w": 9, "co": 20, "k": 3, "pad": 1}),
    "strided": ("conv2d", {"ci": 7, "h": 7, "w": 9, "co": 20, "k": 2, "stride": 2}),
    "colours": ("conv2d", {"ci": 3, "h": 9, "w": 9, "co": 20, "k": 3, "stride": 2, "pad": 1}),
}


@lru_cache(maxsize=1)
def dot_device() -> Target | None:
    """Intel's driver for CPUs, where it is installed and offers the extension."""
    try:
        target = match_opencl("intel")
    except (ImportError, DeviceMissing):
        return None
    return target if target.dot_signs else None


needs_dots = pytest.mark.skipif(dot_device() is None, reason=f"no device of Intel's driver with {BYTE_DOTS}")


@lru_cache(maxsize=16)
def space_of(name: str, target: Target, dtype: str = "int8") -> tuple[Workload, Space]:
    kind, shape = SHAPES[name]
    work = workload(kind, dtype=dtype, **shape)
    return work, generate(work.func, target, dict.fromkeys(work.constants, "constant"))


def with_dots(space: Space) -> list[Sketch]:
    return [sketch for sketch in space.sketches if ",dot=" in sketch.name]


def summing(value: str, out: str = "int32", other: str = "int8") -> PrimFunc:
    func = parse(f"""
@T.prim_func
def main(a: T.Buffer((9, 24), "int8"), b: T.Buffer((24, 20), "{other}"), c: T.Buffer((9, 20), "{out}")):
    for i, j, k in T.grid(9, 20, 24):
        with T.block("sum"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.{out}(0)
            c[vi, vj] = c[vi, vj] + {value}
""")
    assert isinstance(func, PrimFunc)
    return func


A, B = 'T.Cast("int32", a[vi, vk])', 'T.Cast("int32", b[vk, vj])'


def test_products_of_two_bytes_have_them_and_nothing_else_does() -> None:
    """Both factors are bytes, widened to int32 before they are multiplied, and of two inputs."""
    products = [summing(f"{A} * {B}"), summing(f"{B} * {A}"), summing(f"{A} * {B}", other="uint8")]
    assert all(with_dots(generate(func, DOTS)) for func in products)
    others = [
        summing(A), summing(f"{A} * 3"), summing(f"{A} * {A}"), summing(f"{A} * {A} * {B}"),
        summing(f"{A} * ({B} + 1)"), summing("a[vi, vk] * b[vk, vj]", out="int8"),
        summing('T.Cast("int32", a[vi, vk] * b[vk, vj])'),
        summing(f"{A} * {B}", other="int16"),
        summing('T.Cast("int32", T.Cast("int16", a[vi, vk]) * T.Cast("int16", b[vk, vj]))'),
        summing('T.Cast("int64", a[vi, vk]) * T.Cast("int64", b[vk, vj])', out="int64"),
    ]  # fmt: skip
    assert not any(with_dots(generate(func, DOTS)) for func in others)


def test_operations_of_a_stage_are_those_that_its_largest_input_goes_through() -> None:
    """What is computed of a scale alone moves out of loops, and a border chooses and computes nothing."""
    func = parse("""
@T.prim_func
def main(
    x: T.Buffer((9, 24), "uint8"), s: T.Buffer((1,), "float32"), w: T.Buffer((24, 20), "int8"),
    c: T.Buffer((9, 20), "int32"),
):
    y = T.alloc_buffer((9, 24), "uint8")
    for i, j in T.grid(9, 24):
        with T.block("stage"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.if_then_else(
                vi < 8, T.Cast("uint8", T.min(T.Cast("float32", x[vi, vj]) * s[0], s[0] + T.float32(1))), T.uint8(0)
            )
    for i, j, k in T.grid(9, 20, 24):
        with T.block("sum"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.int32(0)
            c[vi, vj] = c[vi, vj] + T.Cast("int32", y[vi, vk]) * T.Cast("int32", w[vk, vj])
""")  # fmt: skip
    assert isinstance(func, PrimFunc)
    (anchor,) = anchors(func, {})
    assert {operand.buffer.name: operand.operations for operand in anchor.operands} == {"c": 0, "y": 4, "w": 0}


@pytest.mark.parametrize("target", [CPU, OPENCL, DOTS], ids=["cpu", "without", "with"])
def test_other_spaces_stay_as_they_are(target: Target) -> None:
    """Where the device has no dot products, or the program no bytes, spaces and their version are as ever."""
    for name in SHAPES:
        floats, plain = space_of(name, target, "float32")[1], space_of(name, OPENCL)[1]
        assert floats.version == (SPACE_VERSION if target.kind == "cpu" else OF_CPU_DEVICES)
        assert plain.version == OF_CPU_DEVICES
        assert not any(d.name.endswith("/dot") for s in floats.sketches + plain.sketches for d in s.decisions)
        found = space_of(name, DOTS)[1]
        assert found.version not in (SPACE_VERSION, OF_CPU_DEVICES)
        old = {s.name: [(d.name, d.labels) for d in s.decisions] for s in plain.sketches}
        new = {s.name: [(d.name, d.labels) for d in s.decisions if not d.name.endswith("/dot")] for s in found.sketches}
        assert {sketch: decisions for sketch, decisions in new.items() if ",dot=" not in sketch} == old


def test_a_name_chooses_sketches_with_or_without() -> None:
    """The decision `dot` has one alternative in each sketch: to pin it leaves the others out."""
    space = space_of("whole", DOTS)[1]
    for wanted in (0, 4):
        kept = restricted(space, partial(_has_steps, wanted)).sketches
        assert len(kept) == 2 and all((",dot=" in s.name) == bool(wanted) for s in kept)
    features = FeatureMap(space.sketches, DOTS)
    column = features.columns.index("dot")
    for number, sketch in enumerate(space.sketches):
        rows = features.matrix(number, sketch.draw(np.random.default_rng(0), 5))
        assert (rows[:, column] == (4 if ",dot=" in sketch.name else 0)).all()


def _has_steps(wanted: int, decision: Decision, value: object) -> bool:
    return not decision.name.endswith("/dot") or value == wanted


@pytest.mark.parametrize("name", SHAPES)
def test_every_candidate_is_written_with_dot_products(name: str) -> None:
    """What the mask lets through is never refused, on a CPU or a GPU, and its source has the dot products."""
    for sketch in with_dots(space_of(name, DOTS)[1]):
        found = sketch.draw(np.random.default_rng(1), 4)
        assert len(found)
        for candidate in found:
            text = source_of(lower(sketch.schedule(candidate).func, DOTS), DOTS).text
            assert "dot_int" in text or "dot_4x8packed_ss_int(" in text


def test_a_vector_is_read_in_words() -> None:
    """A factor of a single dimension has words, too, as it is or padded by a copy."""
    func = parse("""
@T.prim_func
def main(w: T.Buffer((20, 22), "int8"), x: T.Buffer((22,), "int8"), y: T.Buffer((20,), "int32")):
    for i, k in T.grid(20, 22):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.int32(0)
            y[vi] = y[vi] + T.Cast("int32", w[vi, vk]) * T.Cast("int32", x[vk])
""")
    assert isinstance(func, PrimFunc)
    (sketch,) = with_dots(generate(func, DOTS, {"w": "constant"}))
    for candidate in sketch.draw(np.random.default_rng(5), 20):
        text = source_of(lower(sketch.schedule(candidate).func, DOTS), DOTS).text
        assert "dot_int" in text or "dot_4x8packed_ss_int(" in text


def test_no_lane_of_a_mask_is_a_word() -> None:
    """Sketches without dot products offer masks along their vectors on the same processor, those with them do not."""
    _, space = space_of("image", AVX512)
    masked = {
        sketch.name
        for sketch in space.sketches
        for item in sketch.decisions
        if "/boundary:" in item.name and MASK in item.values
    }
    assert masked and not any(",dot=" in name for name in masked)


def test_what_is_masked_would_be_refused_or_padded_wrongly() -> None:
    """Of a reduction of 22 steps the last two are computed over: nothing else is let through."""
    for sketch in with_dots(space_of("ragged", DOTS)[1]):
        for candidate in sketch.draw(np.random.default_rng(2), 20):
            labels = sketch.labels(candidate)
            assert next(v for k, v in labels.items() if k.endswith("boundary:r0")) == "overcompute"
    rng = np.random.default_rng(3)
    sketch = with_dots(space_of("whole", DOTS)[1])[0]
    population = np.stack([rng.integers(len(d), size=20_000) for d in sketch.decisions], axis=1)
    excluded = sketch.exclusions(population)
    assert not excluded["steps of a dot product"].any() and not excluded["words of a dot product"].any()


def test_a_candidate_is_refused_by_a_device_without() -> None:
    """A record that comes from a device with dot products says what this one lacks."""
    work, space = space_of("whole", DOTS)
    sketch = with_dots(space)[0]
    trace = sketch.trace(sketch.draw(np.random.default_rng(0), 1)[0])
    with pytest.raises(LoweringError, match=f"has no dot products of bytes .{BYTE_DOTS} is missing"):
        lower(trace.replay(work.func).func, OPENCL)


@needs_dots
@pytest.mark.parametrize("name", SHAPES)
def test_candidates_compute_what_they_should(name: str) -> None:
    """On a device with dot products candidates are right, with poison in all that may not be relied on."""
    target = dot_device()
    assert target is not None
    work, space = space_of(name, target)
    samples = make_samples(work.func, work.reference, 0)
    for sketch in with_dots(space):
        for candidate in sketch.draw(np.random.default_rng(4), 2):
            func = sketch.schedule(candidate).func
            bound = load_artifact(compile_lowered(lower(func, target), target)).bind(guard_bytes=GUARD_BYTES)
            assert verify(bound, arguments_of(func), samples).complete


def test_words_of_rows_are_no_neighbours() -> None:
    """Where the reduction is the last dimension, its words lie behind each other, and those of neighbours in panels."""
    parts = [sketch.main for sketch in with_dots(space_of("rows", DOTS)[1])]
    (weights,) = (o for o in parts[0].anchor.operands if o.buffer.name == "b")
    part = next(part for part in parts if weights.uses(part.structure.vec))
    met = {
        layout.label: meeting(weights, layout, part.structure.vec, DOTS.kind)
        for layout in alternatives(part.anchor, weights, part.structure)
        if isinstance(layout, DotPacked4)
    }
    assert met == {"packed4:d1": STRIDED, "packed4:d1:d0": CONTIGUOUS}
