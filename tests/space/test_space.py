"""The design space as a set: what is in it, what its decisions do, and what it does not depend on."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.backends.lower import lower
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc, Stmt
from stridesmith.ir.target import Target
from stridesmith.space.decision import KINDS
from stridesmith.space.sketch import Sketch
from stridesmith.space.space import Space, generate
from stridesmith.space.workloads import Workload, workload

CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
OPENCL = Target(kind="opencl", vector_bits=256, registers=16, threads=2, max_work_group=64)

SMALL = {
    "conv2d": {"ci": 3, "h": 7, "w": 9, "co": 10, "k": 3},
    "matmul": {"m": 13, "n": 19, "k": 11},
    "depthwise_conv2d": {"c": 9, "h": 7, "w": 10, "k": 3},
    "max_pool2d": {"c": 3, "h": 9, "w": 11, "k": 3, "stride": 2, "pad": 1},
    "row_sum": {"rows": 5, "cols": 37},
}


def space_of(work: Workload, target: Target = CPU) -> Space:
    return generate(work.func, target, dict.fromkeys(work.constants, "constant"))


def population(sketch: Sketch, rng: np.random.Generator, count: int) -> np.ndarray:
    """`count` feasible candidates, uniform over decisions."""
    rows: list[np.ndarray] = []
    while sum(len(r) for r in rows) < count:
        drawn = np.stack([rng.integers(0, len(d), 4096) for d in sketch.decisions], axis=1)
        rows.append(drawn[sketch.mask(drawn)])
    return np.concatenate(rows)[:count]


def evaluate(func: PrimFunc, work: Workload, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The function's output for logical inputs, with parameters packed as their layouts say."""
    from stridesmith.ir.layout.index_map import IndexMap

    layouts = {layout.param: layout for layout in func.layouts}
    arrays = []
    for buffer in func.buffers:
        data = inputs.get(buffer.name)
        if data is None:
            arrays.append(np.full(buffer.shape, np.nan, buffer.dtype))
        elif buffer.name in layouts:
            layout = layouts[buffer.name]
            pad = layout.pad_value
            packed = np.full(buffer.shape, float(pad) if pad not in ("", "undef") else np.nan, buffer.dtype)
            index_map = IndexMap.parse(layout.index_map)
            for point in np.ndindex(*layout.logical_shape):
                packed[tuple(int(i) for i in index_map.map_point(point))] = data[point]
            arrays.append(packed)
        else:
            arrays.append(data)
    interpret(func, *arrays)
    return arrays[-1]


def inputs_of(work: Workload, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        b.name: rng.integers(-3, 4, b.shape).astype(b.dtype)
        for b in work.func.buffers
        if b.name != work.func.buffers[-1].name
    }


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=["cpu", "opencl"])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_random_candidates_compute_the_reference(name: str, target: Target) -> None:
    """Whatever is feasible schedules, and the interpreter gets the reference's result from it."""
    work = workload(name, **SMALL[name])
    rng = np.random.default_rng(3)
    inputs = inputs_of(work, rng)
    expected = work.reference(inputs)
    for sketch in space_of(work, target).sketches:
        for choice in population(sketch, rng, 2):
            result = evaluate(sketch.schedule(choice).func, work, inputs)
            np.testing.assert_array_equal(result, next(iter(expected.values())), err_msg=str(sketch.labels(choice)))


@pytest.mark.parametrize("name", ["conv2d", "matmul"])
def test_layouts_and_overcompute_are_common(name: str) -> None:
    """Of random candidates a quarter have a layout that is not the identity, and a quarter overcompute."""
    params = {"m": 127, "n": 129, "k": 131} if name == "matmul" else {}
    space = space_of(workload(name, **params))
    rng = np.random.default_rng(0)
    over = moved = 0
    for number in range(64):
        sketch = space.sketches[number % len(space.sketches)]
        (choice,) = population(sketch, rng, 1)
        trace = sketch.trace(choice)
        over += any(i.name == "remove_branching_through_overcompute" for i in trace.instructions)
        moved += any(label != "identity" for key, label in sketch.labels(choice).items() if "/layout:" in key)
    assert over >= 16 and moved >= 16


@pytest.mark.parametrize("name", ["conv2d", "matmul"])
@pytest.mark.parametrize("kind", ["layout", "pad_value", "boundary", "tile", "place"])
def test_every_alternative_acts(name: str, kind: str) -> None:
    """Pinning each alternative of a kind in turn gives different programs with the same result.

    Lowered programs differ too, except that None and undef padding, which say what may be
    done later, need no statement of their own.
    """
    work = workload(name, **SMALL[name])
    rng = np.random.default_rng(11)
    inputs = inputs_of(work, rng)
    expected = next(iter(work.reference(inputs).values()))
    sketch = space_of(work).sketches[-1]
    drawn = np.concatenate(
        [np.stack([rng.integers(0, len(d), 4096) for d in sketch.decisions], axis=1) for _ in range(24)]
    )
    for number, item in enumerate(sketch.decisions):
        if item.kind != kind:
            continue
        base = _candidate_with_all(sketch, drawn, number)
        assert len(base) > 1, f"no candidate admits two alternatives of {item.name} with different programs"
        for choice in base:
            func = sketch.schedule(choice).func
            np.testing.assert_array_equal(evaluate(func, work, inputs), expected, err_msg=str(sketch.labels(choice)))


def program(func: PrimFunc, kind: str) -> PrimFunc | Stmt:
    """What is compared for a kind of decision: the lowered program, or the scheduled one for pad values."""
    return func if kind == "pad_value" else lower(func, CPU).body


def _candidate_with_all(sketch: Sketch, drawn: np.ndarray, number: int) -> list[np.ndarray]:
    """Candidates that differ in one decision alone, as many alternatives of it as some candidate admits."""
    rows = drawn[sketch.mask(drawn)][:300]
    count = len(sketch.decisions[number])
    variants = np.repeat(rows[:, None], count, axis=1)
    variants[:, :, number] = np.arange(count)
    alive = sketch.mask(variants.reshape(-1, variants.shape[-1])).reshape(len(rows), count)
    best: list[np.ndarray] = []
    for row in np.argsort(-alive.sum(axis=1), kind="stable")[:80]:
        own = [v for v, ok in zip(variants[row], alive[row], strict=True) if ok]
        if len(own) <= len(best):
            break
        kind = sketch.decisions[number].kind
        if program(sketch.schedule(own[0]).func, kind) == program(sketch.schedule(own[-1]).func, kind):
            continue
        distinct = list({program(sketch.schedule(v).func, kind): v for v in own}.values())
        best = distinct if len(distinct) > len(best) else best
    return best if len(best) > 1 else []


def test_kinds_are_counted() -> None:
    """The description names each kind of decision and the size."""
    described = space_of(workload("conv2d")).describe()
    assert set(described["decisions_by_kind"]) <= set(KINDS)
    assert {"layout", "pad_value", "boundary", "tile", "place"} <= set(described["decisions_by_kind"])
    assert described["size"] > 10**9 and described["sketch_count"] == 6


def shape_of(space: Space) -> list[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]]:
    """The set of sketches without the program's own names."""
    return [(s.name, tuple((d.name, d.labels) for d in s.decisions)) for s in space.sketches]


def test_names_and_loop_order_do_not_matter() -> None:
    """Renaming everything, permuting independent loops, or going through script text leaves the sketches equal."""
    work = workload("conv2d", ci=5, h=8, w=9, co=6, k=3)
    text = work.func.script()
    interface = {"w": "constant"}
    expected = shape_of(generate(work.func, CPU, interface))
    again = parse(text)
    assert isinstance(again, PrimFunc)
    assert shape_of(generate(again, CPU, interface)) == expected
    renamed = parse(RENAMED)
    assert isinstance(renamed, PrimFunc)
    assert shape_of(generate(renamed, CPU, {"weights": "constant"})) == expected


RENAMED = """
@T.prim_func
def other(image: T.Buffer((1, 5, 8, 9), "float32"), weights: T.Buffer((6, 5, 3, 3), "float32"),
          result: T.Buffer((1, 6, 8, 9), "float32")):
    frame = T.alloc_buffer((1, 5, 10, 11), "float32")
    for q3, q2, q1, q0 in T.grid(11, 10, 5, 1):
        with T.block("border"):
            z3, z2, z1, z0 = T.axis.remap("SSSS", [q3, q2, q1, q0])
            frame[z0, z1, z2, z3] = T.if_then_else(
                1 <= z2 and z2 < 9 and 1 <= z3 and z3 < 10, image[z0, z1, z2 - 1, z3 - 1], T.float32(0))
    for c, b, a, g, f, e, d in T.grid(3, 3, 5, 9, 8, 6, 1):
        with T.block("sum"):
            vc, vb, va, vg, vf, ve, vd = T.axis.remap("RRRSSSS", [c, b, a, g, f, e, d])
            with T.init():
                result[vd, ve, vf, vg] = T.float32(0)
            result[vd, ve, vf, vg] = result[vd, ve, vf, vg] + frame[vd, va, vf + vb, vg + vc] * weights[ve, va, vb, vc]
"""


def test_an_epilogue_is_fused_into_the_tile() -> None:
    """Bias and relu after a product run on the register tile: no third pass over memory."""
    text = """
@T.prim_func
def main(a: T.Buffer((8, 6), "float32"), b: T.Buffer((6, 8), "float32"), y: T.Buffer((8, 8), "float32")):
    c = T.alloc_buffer((8, 8), "float32")
    for i, j, k in T.grid(8, 8, 6):
        with T.block("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
    for i, j in T.grid(8, 8):
        with T.block("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.max(c[vi, vj], T.float32(0))
"""
    func = parse(text)
    assert isinstance(func, PrimFunc)
    sketch = generate(func, CPU).sketches[0]
    (choice,) = population(sketch, np.random.default_rng(0), 1)
    script = sketch.schedule(choice).func.script()
    assert 'scope="local"' in script and "c_local" not in script


SCALAR = """
@T.prim_func
def main(x: T.Buffer((40, 33), "float32"), y: T.Buffer((1,), "float32")):
    for i, j in T.grid(40, 33):
        with T.block("sum"):
            vi, vj = T.axis.remap("RR", [i, j])
            with T.init():
                y[0] = T.float32(0)
            y[0] = y[0] + x[vi, vj]
"""
OFFSET = """
@T.prim_func
def main(x: T.Buffer((20, 33), "float32"), y: T.Buffer((22, 33), "float32")):
    for i, j in T.grid(20, 33):
        with T.block("scale"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi + 1, vj] = x[vi, vj] * T.float32(2)
"""
OFFSET_SUM = """
@T.prim_func
def main(x: T.Buffer((20, 33, 5), "float32"), y: T.Buffer((22, 33), "float32")):
    for i, j, k in T.grid(20, 33, 5):
        with T.block("sum"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi + 1, vj] = T.float32(0)
            y[vi + 1, vj] = y[vi + 1, vj] + x[vi, vj, vk]
"""


@pytest.mark.parametrize("text", [SCALAR, OFFSET, OFFSET_SUM], ids=["scalar", "offset", "offset_sum"])
def test_programs_of_other_shapes_keep_what_they_do_not_write(text: str) -> None:
    """Full reductions and shifted results are scheduled or left as they are, and touch nothing else."""
    func = parse(text)
    assert isinstance(func, PrimFunc)
    rng = np.random.default_rng(5)
    x = rng.integers(-3, 4, func.buffers[0].shape).astype("float32")
    expected = np.full(func.buffers[1].shape, 7, "float32")
    interpret(func, x, expected, strict_state=False)
    for sketch in generate(func, CPU).sketches:
        for choice in population(sketch, rng, 5) if sketch.decisions else [np.zeros(0, np.int64)]:
            result = np.full_like(expected, 7)
            interpret(sketch.schedule(choice).func, x, result, strict_state=False)
            np.testing.assert_array_equal(result, expected)
