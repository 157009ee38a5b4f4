"""Sums of panels stay in the registers of a GPU's work-items, where that is proven, and results stay the same."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from opencl_programs import device, needs_device

from stridesmith.backends.data import arguments_of
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.legal import kernels
from stridesmith.backends.lower import lower
from stridesmith.backends.render.opencl.program import generate
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.search.tasks.task import name_of
from stridesmith.search.workers import jobs
from stridesmith.search.workers.protocol import Compiled, Verified, Verify
from stridesmith.space.design.space import generate as space_of
from stridesmith.space.workloads import workload

GPU = Target(
    kind="opencl", name="gpu", max_work_group=256, local_bytes=48 << 10, vector_bits=128, registers=64, units=4,
    threads=4, is_cpu_device=False, warp=32,
)  # fmt: skip
PANELS, STEPS, ITEMS = 3, 4, 8
PROGRAM = """
@T.prim_func
def program(x: T.Buffer(({panels}, {steps}), "float32"), w: T.Buffer(({panels}, {steps}, {items}, 2), "float32"),
            c: T.Buffer(({items}, 2), "float32")):
    for g in T.thread_binding(1, thread="blockIdx.x"):
        for i in T.thread_binding({items}, thread="threadIdx.x"):
            for t in T.unroll(2):
                c[i, {place}] = T.float32({first})
        for p in range({panels}):
            near = T.allocate([{steps}], "float32", scope="shared")
            for i in T.thread_binding({steps}, thread="threadIdx.x"):
                near[i] = x[p, i]
            for i in T.thread_binding({items}, thread="threadIdx.x"):
                {around}
                    s = T.allocate([2], "float32", scope="local")
                    for t in T.unroll(2):
                        s[t] = T.float32({start})
                    for k in range({steps}):
                        for t in T.unroll(2):
                            if {inner}:
                                s[t] = s[t] {op} near[k] * w[p, k, i, t] {extra}
                    for t in T.unroll(2):
                        if {guard}:
                            c[i, {place}] = {update}
"""
PLAIN = {
    "panels": PANELS, "steps": STEPS, "items": ITEMS, "first": 0, "start": 0, "op": "+", "extra": "",
    "around": "if i < 7:", "update": "c[i, t] + s[t]",
    "guard": "True", "inner": "True", "place": "t",
}  # fmt: skip


def program(**changed: object) -> PrimFunc:
    found = parse(PROGRAM.format(**PLAIN | changed), "program")
    assert isinstance(found, PrimFunc)
    return found


def text(func: PrimFunc, target: Target = GPU) -> str:
    return generate(lower(func, target), target).text


def is_kept(code: str) -> bool:
    """Whether the private sum is declared before the loop over panels."""
    declared, loop = (re.search(pattern, code) for pattern in (r"float s\[2\]", r"for \(int p = 0"))
    assert declared is not None and loop is not None
    return declared.start() < loop.start()


def result(func: PrimFunc) -> np.ndarray:
    """What a program computes on this machine's device, taken for one that runs work-items in step."""
    here = device()
    assert here is not None
    target = replace(
        GPU, name=here.name, platform=here.platform, versions=here.versions, max_work_group=here.max_work_group
    )
    bound = load_artifact(compile_lowered(lower(func, target), target)).bind(guard_bytes=256)
    rng = np.random.default_rng(0)
    shapes = [tuple(b.shape) for b in func.buffers]
    arrays = [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    for number, array in enumerate(arrays):
        bound.write(number, array)
    bound.run()
    return bound.read(2).reshape(shapes[2])


def expected(func: PrimFunc, first: float, inside: int) -> np.ndarray:
    """``c[i, t] = first + sum over p and k of x[p, k] * w[p, k, i, t]``, of items before `inside`; first elsewhere."""
    rng = np.random.default_rng(0)
    x, w, c = (rng.integers(-4, 5, tuple(b.shape)).astype(np.float32) for b in func.buffers)
    full = np.einsum("pk,pkit->it", x, w) + first
    return np.where(np.arange(len(c))[:, None] < inside, full, np.float32(first))


def test_a_sum_is_declared_around_its_panels() -> None:
    """It starts before them and is added to the result behind them; a CPU device's program is as it was."""
    code = text(program())
    assert is_kept(code)
    loop = code[code.index("for (int p = 0") :]
    assert "s[0] = 0.0f" not in loop and loop.rindex("barrier(") < loop.index("c[")
    assert not is_kept(text(program(), replace(GPU, warp=1)))


def test_what_had_set_the_result_to_zero_goes() -> None:
    """Where the same elements are stored in the end, they are stored alone; another condition or value leaves both."""
    alone = text(program(around="if i < 8:"))
    assert is_kept(alone) and "= c[" not in alone and "CLK_GLOBAL_MEM_FENCE" not in alone
    for changed in (program(), program(around="if i < 8:", first=2)):
        both = text(changed)
        assert is_kept(both) and "= c[" in both


@needs_device
@pytest.mark.parametrize(("changed", "inside"), [({}, 7), ({"around": "if i < 8:"}, 8), ({"first": 2}, 7)])
def test_results_are_the_same(changed: dict[str, object], inside: int) -> None:
    """On the device of this machine; the numbers are small and whole, so that no order of additions rounds."""
    func = program(**changed)
    assert is_kept(text(func))
    np.testing.assert_array_equal(result(func), expected(func, float(str(changed.get("first", 0))), inside))


@pytest.mark.parametrize(
    "changed",
    [
        {"start": 1},
        {"op": "*"},
        {"op": "-"},
        {"extra": "+ c[i, t]"},
        {"update": "c[i, t] - s[t]"},
        {"update": "c[i, t] + s[t] * T.float32(2)"},
        {"update": "s[t]"},
        {"update": "c[i, t] + s[1 - t] + s[t]"},
        {"around": "if i < 7 - p:"},
        {"around": "for q in range(2):"},
        {"around": "if near[0] < T.float32(7):"},
        {"guard": "near[0] < T.float32(7)"},
        {"guard": "p < 2"},
        {"guard": "s[t] > T.float32(0)"},
        {"guard": "c[i, t] < T.float32(5)"},
        {"inner": "s[t] < T.float32(5)"},
        {"extra": "* s[1 - t]"},
    ],
    ids=str,
)
def test_other_loops_stay_as_they_are(changed: dict[str, object]) -> None:
    """A sum that starts elsewhere, or is no sum, or is taken out in another way, or where each panel decides anew."""
    assert not is_kept(text(program(**changed)))


def test_an_element_that_gets_two_sums_keeps_its_zero() -> None:
    """Of two stores of one element the last one would be left."""
    twice = text(program(around="if i < 8:", place="0", update="c[i, 0] + s[t]"))
    assert is_kept(twice) and "= c[" in twice


def test_fewer_items_do_not_set_the_same_to_zero() -> None:
    """The nest before has an item less than the one that adds: what it sets stays."""
    head, tail = PROGRAM.format(**PLAIN | {"around": "if i < 8:"}).split("for p in range", 1)
    fewer = head.replace(f"T.thread_binding({ITEMS}", f"T.thread_binding({ITEMS - 1}")
    found = parse(f"{fewer}for p in range{tail}", "program")
    assert isinstance(found, PrimFunc)
    assert is_kept(text(found)) and "= c[" in text(found)


def test_a_strict_program_keeps_the_order_of_its_sums() -> None:
    """There, each panel is added up for itself, as the schedule says."""
    assert not is_kept(generate(lower(program(), GPU, strict=True), GPU).text)


@needs_device
def test_a_condition_with_two_sides_keeps_the_sums_of_both() -> None:
    """Items of either side have a sum of their own, also where the sides of one statement differ."""
    other = PROGRAM.format(**PLAIN).replace("if i < 7:", "if i < 3:")
    start = other.index("                    s = T.allocate")
    body = other[start:]
    both = other[:start] + body + "                else:\n" + body.replace("s = ", "u = ").replace("s[t]", "u[t]")
    func = parse(both, "program")
    assert isinstance(func, PrimFunc)
    code = text(func)
    assert is_kept(code) and code.index("float u[2]") < code.index("for (int p = 0")
    np.testing.assert_array_equal(result(func), expected(func, 0.0, 8))


@needs_device
@pytest.mark.parametrize(
    ("name", "shape"),
    [("matmul", {"m": 33, "n": 47, "k": 60}), ("conv2d", {"ci": 12, "co": 9, "h": 9, "w": 11, "k": 3, "pad": 1})],
)
def test_candidates_with_panels_in_local_memory_keep_their_sums(
    name: str, shape: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random ones of the space: at least half of them are kept, and all compute what the program says."""
    here = device()
    assert here is not None
    target = replace(GPU, name=here.name, platform=here.platform, versions=here.versions)
    work, codes, rng = workload(name, **shape), [], np.random.default_rng(1)
    lowereds = []
    sketches = [s for s in space_of(work.func, target, {}).sketches if ";" not in s.name][:3]
    for sketch in sketches:
        values = [np.arange(len(d)) for d in sketch.decisions]
        for number, decision in enumerate(sketch.decisions):
            if "/local:" in decision.name:
                values[number] = np.array([1])
            elif decision.name.endswith(":panel"):
                values[number] = np.arange(1, len(decision))
        for row in sketch.draw(rng, 2, values):
            func = sketch.schedule(tuple(map(int, row))).func
            artifact = compile_lowered(lower(func, target), target)
            kernel = Compiled(artifact=artifact, layouts=arguments_of(func))
            reply = jobs.run(Verify(kernel=kernel, work=name_of(work), seed=1), lambda: None)
            assert isinstance(reply, Verified), reply
            codes.append(artifact["code"])
            lowereds.append(lower(func, target))
    monkeypatch.setattr(kernels, "keep_sums", lambda body: body)
    without = [generate(program, target).text for program in lowereds]
    assert len(codes) >= 4 and sum(a != b for a, b in zip(codes, without, strict=True)) >= len(codes) / 2
