"""The design space as a set: what is in it, what its decisions do, and what it does not depend on."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from stridesmith.backends.data import arguments_of, pack, unpack
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.space.design.decision import KINDS
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import Space, generate
from stridesmith.space.design.techniques.orders import MAX_ORDERS, orders
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
    layouts = dict(func.layouts)
    arrays = []
    for buffer in func.buffers:
        data = inputs.get(buffer.name)
        if data is None:
            arrays.append(np.full(buffer.shape, np.nan, buffer.dtype))
        elif buffer.name in layouts:
            layout = layouts[buffer.name]
            pad = layout.pad_number
            packed = np.full(buffer.shape, np.nan if pad is None else pad, buffer.dtype)
            for point in np.ndindex(*layout.logical_shape):
                packed[tuple(int(i) for i in layout.index_map.map_point(point))] = data[point]
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
    for number in range(32):
        sketch = space.sketches[number % len(space.sketches)]
        (choice,) = population(sketch, rng, 1)
        trace = sketch.trace(choice)
        over += any(i.name == "remove_branching_through_overcompute" for i in trace.instructions)
        moved += any(label != "identity" for key, label in sketch.labels(choice).items() if "/layout:" in key)
    assert over >= 8 and moved >= 8


def test_kinds_are_counted() -> None:
    """The description names each kind of decision and the size."""
    described = space_of(workload("conv2d")).describe()
    assert set(described["decisions_by_kind"]) <= set(KINDS)
    assert {"layout", "pad_value", "boundary", "tile", "place"} <= set(described["decisions_by_kind"])
    assert described["size"] > 10**9 and described["sketch_count"] == 6


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
            scheduled = sketch.schedule(choice).func
            given, written = arguments_of(scheduled)
            result = pack(written, np.full_like(expected, 7))
            interpret(scheduled, pack(given, x), result, strict_state=False)
            np.testing.assert_array_equal(unpack(written, result), expected)


NARROW = """
@T.prim_func
def main(a: T.Buffer((3, 4), "float32"), b: T.Buffer((3, 4), "float32"), y: T.Buffer((3, 8), "float32")):
    for i, j in T.grid(3, 4):
        with T.block("first"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = a[vi, vj]
    for i, j in T.grid(3, 4):
        with T.block("second"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj + 4] = b[vi, vj]
"""


def test_every_decision_has_an_alternative() -> None:
    """Parts narrower than a vector, which may not reach into the next part, have sketches along other axes alone."""
    func = parse(NARROW)
    assert isinstance(func, PrimFunc)
    sketches = generate(func, CPU).sketches
    assert sketches and all(len(decision) for sketch in sketches for decision in sketch.decisions)


def test_many_loops_have_a_few_orders() -> None:
    """Seven or twenty loops have as many orders as three, each a different one of all loops."""
    assert sorted(orders([4, 0, 2])) == list(permutations([0, 2, 4]))
    assert orders(range(4)) == [(0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2), (3, 2, 1, 0), (0, 3, 2, 1)]
    for count in (5, 7, 20):
        assert len({*orders(range(count))}) == len(orders(range(count))) == MAX_ORDERS
        assert all(sorted(order) == list(range(count)) for order in orders(range(count)))


def test_a_program_of_many_axes_has_a_space() -> None:
    """Twelve axes of two points, of which all orders would be half a billion."""
    axes = [f"v{k}" for k in range(12)]
    func = parse(f"""
@T.prim_func
def main(x: T.Buffer({(2,) * 12}, "float32"), y: T.Buffer({(2,) * 12}, "float32")):
    for {", ".join(f"i{k}" for k in range(12))} in T.grid({", ".join("2" * 12)}):
        with T.block("negative"):
            {", ".join(axes)} = T.axis.remap("{"S" * 12}", [{", ".join(f"i{k}" for k in range(12))}])
            y[{", ".join(axes)}] = T.float32(0) - x[{", ".join(axes)}]
""")
    assert isinstance(func, PrimFunc)
    space = generate(func, CPU)
    assert space.sketches
    assert all(len(d) == MAX_ORDERS for s in space.sketches for d in s.decisions if d.name.endswith("/order"))
