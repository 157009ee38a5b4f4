"""A user's program gets a reference that does not depend on any schedule."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.backends.samples import extents_of, statements
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc
from stridesmith.search.workers import reference
from stridesmith.search.workers.reference import check_reference, compiled_reference, reference_of, shrunken
from stridesmith.space.workloads import workload

CONV = workload("conv2d", ci=8, co=16, h=12, w=10, k=3, pad=1)
BARE = """
@T.prim_func
def main(x: T.Buffer((64, 50), "float32"), y: T.Buffer((64,), "float32")):
    for i in range(64):
        y[i] = T.float32(0)
        for k in range(50):
            y[i] = y[i] + x[i, k]
"""


def test_a_large_program_is_compiled_and_agrees_with_an_independent_reference() -> None:
    """The scalar float64 code gives what the library's NumPy code gives."""
    rng = np.random.default_rng(0)
    arrays = {"x": rng.standard_normal((1, 8, 12, 10)), "w": rng.standard_normal((16, 8, 3, 3))}
    got = compiled_reference(CONV.func)(arrays)["y"]
    assert got.dtype == np.float64
    assert np.allclose(got, CONV.reference(arrays)["y"], rtol=1e-12)


def test_the_compiled_reference_is_checked_by_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Part of the result is interpreted, and a difference is not passed over."""
    monkeypatch.setattr(reference, "CHECKED_STATEMENTS", 30_000)
    right = compiled_reference(CONV.func)
    compared = check_reference(CONV.func, right)
    assert 12 * 10 <= compared < 16 * 12 * 10
    with pytest.raises(ArithmeticError, match="`y` differs"):
        check_reference(CONV.func, lambda arrays: {"y": right(arrays)["y"] + 1})


@pytest.mark.parametrize("budget", [500, 5_000, 50_000])
def test_a_part_of_a_program_keeps_what_it_stores(budget: int) -> None:
    """Shrinking keeps reductions whole, so that every element that is stored has its final value."""
    func = parse(BARE)
    assert isinstance(func, PrimFunc)
    part = shrunken(func, budget)
    assert part is not None
    assert statements(part) <= budget
    ones = {"x": np.ones((64, 50), np.float32)}
    from stridesmith.ir.interpreter.interpret import interpret

    y = np.zeros(64, np.float32)
    interpret(part, ones["x"], y)
    assert set(y.tolist()) <= {0.0, 50.0}
    assert (y == 50).sum() == min(64, budget // 51)


TRIANGLE = """
@T.prim_func
def main(a: T.Buffer((90, 40), "float32"), y: T.Buffer((90, 90), "float32")):
    for i, j in T.grid(90, 90):
        with T.block("fill"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.float32(-1)
    for i in range(90):
        for j in range(i + 1):
            for k in range(40):
                with T.block("add"):
                    vi = T.axis.spatial(90, i)
                    vj = T.axis.spatial(90, j)
                    vk = T.axis.reduce(40, k)
                    y[vi, vj] = y[vi, vj] + a[vi, vk] * a[vj, vk]
"""


def test_what_an_earlier_nest_stores_is_final_where_the_last_one_stores_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shortened triangle leaves rows as they were filled, which the whole one adds to."""
    func = parse(TRIANGLE)
    assert isinstance(func, PrimFunc)
    assert extents_of(func) == dict.fromkeys(extents_of(func), 90) | {
        loop.var: 40 for loop in walk(func) if isinstance(loop, For) and loop.var.name == "k"
    }  # fmt: skip
    monkeypatch.setattr(reference, "CHECKED_STATEMENTS", 60_000)
    right = compiled_reference(func)
    compared = check_reference(func, right)
    assert 20 < compared < 90 * 91 // 2
    with pytest.raises(ArithmeticError, match="`y` differs"):
        check_reference(func, lambda arrays: {"y": np.where(np.eye(90) > 0, 0, right(arrays)["y"])})


def test_a_program_that_cannot_be_shortened_is_not_checked() -> None:
    """A single sum over everything has no part of its own."""
    text = """
@T.prim_func
def main(x: T.Buffer((900,), "float32"), y: T.Buffer((1,), "float32")):
    for k in range(900):
        with T.block("sum"):
            vk = T.axis.reduce(900, k)
            with T.init():
                y[0] = T.float32(0)
            y[0] = y[0] + x[vk]
"""
    func = parse(text)
    assert isinstance(func, PrimFunc)
    assert shrunken(func, 100) is None


def test_small_and_large_programs_have_equal_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which way the reference is computed makes no difference."""
    rng = np.random.default_rng(1)
    arrays = {"x": rng.standard_normal((1, 8, 12, 10)), "w": rng.standard_normal((16, 8, 3, 3))}
    interpreted = reference_of(CONV.func)(arrays)["y"]
    reference_of.cache_clear()
    monkeypatch.setattr(reference, "INTERPRETED_STATEMENTS", 10)
    assert np.allclose(reference_of(CONV.func)(arrays)["y"], interpreted, rtol=1e-12)
    reference_of.cache_clear()


def test_a_program_is_compiled_and_checked_once_for_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The race at the end of a run has data of its own, and the same reference."""
    reference_of.cache_clear()
    monkeypatch.setattr(reference, "INTERPRETED_STATEMENTS", 10)
    checked: list[PrimFunc] = []
    monkeypatch.setattr(reference, "check_reference", lambda func, found: checked.append(func))
    assert reference_of(CONV.func) is reference_of(CONV.func)
    assert len(checked) == 1
    reference_of.cache_clear()


@pytest.mark.parametrize(("shape", "axis"), [((3, 8000), 1), ((8000, 3), 0), ((1, 8000), 1)])
def test_a_long_recurrence_is_compiled_and_checked_in_its_first_steps(shape: tuple[int, int], axis: int) -> None:
    """The interpreter would go through it step by step: it takes a part, in which a wrong result is found."""
    kinds = ["opaque" if axis == at else "spatial" for at in range(2)]
    before = "vi, vj - 1" if axis else "vi - 1, vj"
    func = parse(f"""
@T.prim_func
def main(x: T.Buffer({shape}, "float32"), y: T.Buffer({shape}, "float32")):
    for i, j in T.grid{shape}:
        with T.block("scan"):
            vi = T.axis.{kinds[0]}({shape[0]}, i)
            vj = T.axis.{kinds[1]}({shape[1]}, j)
            y[vi, vj] = x[vi, vj] + T.if_then_else({"vj" if axis else "vi"} > 0, y[{before}], T.float32(0))
""")
    assert isinstance(func, PrimFunc)
    right = compiled_reference(func)
    x = np.random.default_rng(0).standard_normal(shape)
    assert np.allclose(reference_of(func)({"x": x})["y"], np.cumsum(x, axis), rtol=1e-9, atol=1e-9)
    assert 1000 < check_reference(func, right) < 8000 * 3
    with pytest.raises(ArithmeticError, match="`y` differs"):
        check_reference(func, lambda arrays: {"y": right(arrays)["y"] + 1})


STEPS = """
@T.prim_func
def main(x: T.Buffer((900, 40), "float32"), w: T.Buffer((40, 40), "float32"), y: T.Buffer((900, 40), "float32")):
    h = T.alloc_buffer((40,), "float32")
    for j in range(40):
        with T.block("first"):
            vj = T.axis.spatial(40, j)
            h[vj] = T.float32(0)
    for t in range(900):
        with T.block("step"):
            vt = T.axis.opaque(900, {step})
            total = T.alloc_buffer((40,), "float32")
            for n, k in T.grid(40, 40):
                with T.block("product"):
                    vn, vk = T.axis.remap("SR", [n, k])
                    with T.init():
                        total[vn] = T.float32(0)
                    total[vn] = total[vn] + h[vk] * w[vn, vk]
            for i in range(40):
                with T.block("next"):
                    vi = T.axis.spatial(40, i)
                    h[vi] = T.tanh(total[vi] + x[vt, vi])
            for o in range(40):
                with T.block("out"):
                    vo = T.axis.spatial(40, o)
                    y[vt, vo] = h[vo]
"""


@pytest.mark.parametrize("step", ["t", "899 - t"])
def test_steps_are_shortened_in_time_and_not_in_what_a_step_hands_on(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop whose results the same step reads elsewhere stays whole."""
    monkeypatch.setattr(reference, "CHECKED_STATEMENTS", 100_000)
    func = parse(STEPS.format(step=step))
    assert isinstance(func, PrimFunc)
    right = compiled_reference(func)
    compared = check_reference(func, right)
    assert 0 < compared < 900 * 40 and compared % 40 == 0
    with pytest.raises(ArithmeticError, match="`y` differs"):
        check_reference(func, lambda arrays: {"y": right(arrays)["y"] + 1})


def test_a_large_program_is_computed_in_its_own_types_where_these_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these do not hold is seen then, as from the interpreter."""
    monkeypatch.setattr(reference, "INTERPRETED_STATEMENTS", 0)
    func = parse("""
@T.prim_func
def power(a: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32")):
    for i in range(3):
        y[i] = T.exp(a[i])
""")
    assert isinstance(func, PrimFunc)
    found, a = reference_of(func), np.array([0.0, 1.0, 100.0], np.float32)
    own, wide = found({"a": a})["y"], found({"a": a.astype(np.float64)})["y"]
    assert own.dtype == np.float32 and np.isinf(own[2]) and wide.dtype == np.float64
    np.testing.assert_allclose(wide, np.exp(a.astype(np.float64)), rtol=1e-12)
