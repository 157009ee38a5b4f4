"""Random expressions before random steps: compiled programs cross each step where the interpreter does.

``STRIDESMITH_TEST_SCALE=25`` runs some thousands of programs.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from scale import SCALE, scaled

from stridesmith.backends.devices import discover, listing
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc, read_buffers
from stridesmith.ir.target import Target
from stridesmith.search.calling.kernel import build
from stridesmith.space.schedule import Schedule

CPU = discover("cpu", threads=1)
OPENCL = [pytest.param(device.target, id=device.selector) for device in listing() if device.target.kind == "opencl"]
EXTENT = 83
NUMBERS = ("0.1", "0.3", "0.7", "3.0", "7.0", "30011.0", "-1.1", "0.5")
DEPTH = 4

pytestmark = pytest.mark.timeout(600 * max(1.0, SCALE))


def expression(rng: random.Random, dtype: str, leaves: list[str], depth: int) -> str:
    """A number of a type, of loads and constants."""

    def inner() -> str:
        return expression(rng, dtype, leaves, depth - 1)

    if depth == 0 or rng.random() < 0.1:
        return rng.choice(leaves) if rng.random() < 0.7 else f"T.{dtype}({rng.choice(NUMBERS)})"
    kind = rng.choice(["+", "-", "*", "*", "/", "/", "T.min", "T.max", "select", "T.sqrt", "T.floor", "cast"])
    if kind in "+-*/":
        return f"({inner()} {kind} {inner()})"
    if kind in ("T.min", "T.max"):
        return f"{kind}({inner()}, {inner()})"
    if kind == "select":
        return f"T.Select({inner()} {rng.choice(['<', '<=', '>', '==', '!='])} {inner()}, {inner()}, {inner()})"
    if kind == "cast":
        return f"T.Cast('{dtype}', T.Cast('float64', {inner()}) * T.float64({rng.choice(NUMBERS)}))"
    return f"T.floor({inner()})" if kind == "T.floor" else f"T.sqrt(T.abs({inner()}))"


def step(rng: random.Random, value: str, other: str) -> str:
    """An int32 that a number decides."""
    kind = rng.choice(["cast", "floor", "ceil", "compare", "bool"])
    if kind == "compare":
        return f"T.Select({value} {rng.choice(['<', '>=', '=='])} {other}, 1, 2)"
    if kind == "bool":
        return f"T.Cast('int32', T.Cast('bool', {value} - {other}))"
    return f"T.Cast('int32', {value if kind == 'cast' else f'T.{kind}({value})'})"


def program(rng: random.Random, dtype: str) -> tuple[str, PrimFunc]:
    """A value that is kept in a buffer, and a step of it and others."""
    n, loads = EXTENT, ["a[v]", "b[v]", "s[0]"]
    first = expression(rng, dtype, loads, DEPTH - 1)
    value, other = (expression(rng, dtype, [*loads, "t[v]", "t[v]"], depth) for depth in (DEPTH - 1, 1))
    text = (
        f'def f(a: T.Buffer(({n},), "{dtype}"), b: T.Buffer(({n},), "{dtype}"), s: T.Buffer((1,), "{dtype}"), '
        f'y: T.Buffer(({n},), "int32")):\n    t = T.alloc_buffer(({n},), "{dtype}")\n'
    )
    for name, store in (("keep", f"t[v] = {first}"), ("step", f"y[v] = {step(rng, value, other)}")):
        text += f'    for i in range({n}):\n        with T.block("{name}"):\n'
        text += f"            v = T.axis.spatial({n}, i)\n            {store}\n"
    func = parse(f"@T.prim_func\n{text}")
    assert isinstance(func, PrimFunc)
    return text, func


def scheduled(rng: random.Random, func: PrimFunc, target: Target) -> PrimFunc:
    """In vectors or not; what is kept may be computed where it is used, or not be kept at all."""
    schedule = Schedule(func)
    if rng.random() < 0.3 and func.body.allocs[0] in read_buffers(func.body):
        schedule.compute_inline("keep")
    for name in ("keep", "step") if "keep" in schedule.get_blocks() else ("step",):
        outer, inner = schedule.split(schedule.get_loops(name)[0], [None, rng.choice([4, 8, 16])])
        if target.kind != "cpu":
            schedule.bind(outer, "blockIdx.x")
        if rng.random() < 0.7:
            schedule.vectorize(inner)
    return schedule.func


def check(seed: int, target: Target) -> None:
    rng, draw = random.Random(seed), np.random.default_rng(seed)
    dtype = rng.choice(["float32", "float32", "float32", "float64", "float16"])
    text, func = program(rng, dtype)
    kernel = build(scheduled(rng, func, target), target=target)
    for _ in range(3):
        a = np.round(draw.uniform(-9, 9, EXTENT), 1)
        b = np.where(draw.random(EXTENT) < 0.5, a, np.round(draw.uniform(-9, 9, EXTENT), 1))
        given = [array.astype(dtype) for array in (a, b, draw.choice([0.1, 0.3, 3.0], 1))]
        expected = np.zeros(EXTENT, np.int32)
        interpret(func, *given, expected)
        np.testing.assert_array_equal(kernel(*given), expected, err_msg=f"seed {seed}\n{text}")


@pytest.mark.parametrize("part", range(4))
def test_steps_of_a_cpu(part: int) -> None:
    """Whatever comes before them, and in what type."""
    for seed in range(part, scaled(40), 4):
        check(seed, CPU)


@pytest.mark.parametrize("target", OPENCL)
def test_steps_of_a_device(target: Target) -> None:
    """Each driver of this machine."""
    for seed in range(1000, 1000 + scaled(6)):
        check(seed, target)
