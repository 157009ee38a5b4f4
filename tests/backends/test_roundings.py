"""Where rounding decides, compiled programs compute operation by operation what the interpreter does."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.backends.devices import discover, listing
from stridesmith.backends.lower import lower
from stridesmith.backends.passes.roundings import EXACT
from stridesmith.backends.render.llvm_module import generate
from stridesmith.ir.expr import Call
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.search.calling.kernel import build
from stridesmith.space.schedule import Schedule

CPU = discover("cpu", threads=1)
OPENCL = [pytest.param(device.target, id=device.selector) for device in listing() if device.target.kind == "opencl"]
EXTENT = 1003

STEPS = {
    "a quotient by a constant": "T.Cast('int32', a[v] / T.float32(0.1) + T.float32(0.5))",
    "a quotient by a number": "T.Cast('int32', T.floor(a[v] / b[0] + T.float32(0.5)))",
    "two quotients by one": "T.Cast('int32', T.ceil(a[v] / b[0]) + T.floor(c[v] / b[0]))",
    "a product and a sum": "T.Select(a[v] * T.float32(0.1) - T.float32(0.1) * c[v] > T.float32(0), 1, 2)",
    "a chain of products": "T.Cast('int32', a[v] * T.float32(0.1) * T.float32(3) * T.float32(0.7))",
    "sums of constants": "T.Cast('int32', a[v] + T.float32(1e7) - T.float32(1e7))",
    "a root": "T.Cast('int32', T.sqrt(a[v] * a[v]) * T.float32(10))",
    "the inverse of a root": "T.Cast('int32', T.rsqrt(a[v] + T.float32(1)) * T.sqrt(a[v] + T.float32(1)))",
    "a choice": "T.Cast('int32', T.max(T.Select(a[v] < T.float32(9), a[v] / b[0], a[v] * T.float32(3)), c[v] / b[0]))",
    "a bool": "T.Cast('int32', T.Cast('bool', a[v] * T.float32(0.1) - T.float32(0.1) * c[v]))",
    "float64": "T.Cast('int32', T.Cast('float64', a[v]) / T.float64(0.1) + T.float64(0.5))",
}  # fmt: skip


def function(text: str) -> PrimFunc:
    func = parse(f"@T.prim_func\n{text}")
    assert isinstance(func, PrimFunc)
    return func


def stepped(value: str) -> PrimFunc:
    """A block that stores an int32 for each pair of numbers."""
    n = EXTENT
    return function(
        f'def f(a: T.Buffer(({n},), "float32"), c: T.Buffer(({n},), "float32"), b: T.Buffer((1,), "float32"), '
        f'y: T.Buffer(({n},), "int32")):\n    for i in range({n}):\n        with T.block("s"):\n'
        f"            v = T.axis.spatial({n}, i)\n            y[v] = {value}\n"
    )


def inputs(seed: int) -> tuple[np.ndarray, ...]:
    """Numbers of two decimals, whose quotients by a tenth lie at halves and wholes."""
    rng = np.random.default_rng(seed)
    a = np.round(rng.uniform(0, 40, EXTENT), 2).astype(np.float32)
    return a, np.where(rng.random(EXTENT) < 0.5, a, rng.permutation(a)), np.array([0.1], np.float32)


def assert_as_written(func: PrimFunc, schedule: Schedule, target: Target) -> None:
    kernel = build(schedule.func, target=target)
    for seed in range(8):
        given, expected = inputs(seed), np.zeros(EXTENT, np.int32)
        interpret(func, *given, expected)
        np.testing.assert_array_equal(kernel(*given), expected)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("vectorized", [False, True], ids=["scalars", "vectors"])
def test_a_step_of_a_cpu_is_that_of_the_definition(name: str, vectorized: bool) -> None:
    """1.55 / 0.1 is less than 15.5 in float32; a product with 10 is 15.5, and would be rounded to 16."""
    func = stepped(STEPS[name])
    schedule = Schedule(func)
    (loop,) = schedule.get_loops("s")
    _, inner = schedule.split(loop, [None, 8])
    if vectorized:
        schedule.vectorize(inner)
    assert_as_written(func, schedule, CPU)


@pytest.mark.parametrize("target", OPENCL)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_a_device_is_that_of_the_definition(name: str, target: Target) -> None:
    """In vectors and one by one: the ragged end runs apart."""
    func = stepped(STEPS[name])
    schedule = Schedule(func)
    outer, inner = schedule.split(schedule.get_loops("s")[0], [None, 8])
    schedule.bind(outer, "blockIdx.x")
    schedule.vectorize(inner)
    assert_as_written(func, schedule, target)


def exact(func: PrimFunc) -> list[str]:
    """The operations that decide a step, in program order."""
    calls = [n for n in walk(lower(func, CPU).body) if isinstance(n, Call) and n.name == EXACT]
    return [getattr(call.args[0], "op", None) or call.args[0].name for call in calls]  # type: ignore[attr-defined]


def whole(body: str, buffers: str = "") -> PrimFunc:
    head = 'a: T.Buffer((8, 8), "float32"), y: T.Buffer((8,), "float32")' + buffers
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return function(f"def f({head}):\n{lines}\n")


def test_what_decides_is_followed_through_buffers() -> None:
    """A product is stored first, and a step reads it later."""
    func = whole("""
t = T.alloc_buffer((8,), "float32")
for i in range(8):
    t[i] = a[i, 0] * T.float32(0.3) + a[i, 1]
for i in range(8):
    y[i] = T.floor(t[i])
""")
    assert exact(func) == ["+", "*"]


def test_a_sum_ends_what_decides() -> None:
    """The order of a sum is the schedule's; what is computed of it afterwards is not."""
    func = whole("""
t = T.alloc_buffer((8,), "float32")
for i in range(8):
    t[i] = T.float32(0)
    for k in range(8):
        t[i] = t[i] + a[i, k] * T.float32(0.3)
for i in range(8):
    y[i] = T.floor(t[i] / T.float32(0.1))
""")
    assert exact(func) == ["/"]


def test_a_maximum_hands_on_what_decides() -> None:
    """A maximum chooses, so that what it chooses of decides."""
    func = whole("""
t = T.alloc_buffer((8,), "float32")
for i in range(8):
    t[i] = T.float32(0)
    for k in range(8):
        t[i] = T.max(t[i], a[i, k] * T.float32(0.3))
for i in range(8):
    y[i] = T.ceil(t[i])
""")
    assert exact(func) == ["*"]


def test_only_the_chosen_sides_follow_a_condition() -> None:
    """A comparison decides; what it chooses between does not, unless it goes on to a step."""
    func = whole("""
for i in range(8):
    y[i] = T.Select(a[i, 0] * T.float32(2) > T.float32(1), a[i, 1] / a[i, 2], a[i, 3])
""")
    assert exact(func) == ["*"]


def test_programs_without_steps_keep_their_code() -> None:
    """Each operation may still be combined with others, as in a convolution and what follows it."""
    func = whole("for i in range(8):\n    y[i] = T.max(a[i, 0] / T.float32(0.1) + a[i, 1] * a[i, 2], T.float32(0))")
    assert exact(func) == []
    code = generate(lower(func, CPU), CPU)
    assert code.count("fdiv reassoc nsz arcp contract afn") == 1
    assert not any(f"{op} float" in code for op in ("fdiv", "fmul", "fadd"))
