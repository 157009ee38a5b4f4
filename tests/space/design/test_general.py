"""Programs that the tiling rules have no name for: scans, gathers, bare loops."""

from __future__ import annotations

import numpy as np
import pytest
from draws import func_of
from expected_space import CPU, OPENCL
from goldens.execute import same_results

from stridesmith.backends.lower import lower
from stridesmith.cost_model.features import FeatureMap
from stridesmith.ir.expr import Var
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import For, PrimFunc
from stridesmith.ir.target import Target
from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.space.design import rules
from stridesmith.space.design.space import Space, generate

SCAN = """
@T.prim_func
def main(x: T.Buffer((20, 9), "float32"), y: T.Buffer((20, 9), "float32")):
    for i, j in T.grid(20, 9):
        with T.block("scan"):
            vi = T.axis.spatial(20, i)
            vj = T.axis.opaque(9, j)
            y[vi, vj] = x[vi, vj] + T.if_then_else(vj > 0, y[vi, vj - 1], T.float32(0))
"""
DIAGONAL = """
@T.prim_func
def main(x: T.Buffer((9, 20), "float32"), y: T.Buffer((28,), "float32")):
    for d, i in T.grid(28, 9):
        with T.block("sum"):
            vd, vi = T.axis.remap("SR", [d, i])
            with T.init():
                y[27 - vd] = T.float32(0)
            y[27 - vd] = y[27 - vd] + T.if_then_else(0 <= vd - vi and vd - vi < 20, x[vi, vd - vi], T.float32(0))
"""
CHAIN = """
@T.prim_func
def main(a: T.Buffer((6, 8), "float32"), b: T.Buffer((8, 20), "float32"), y: T.Buffer((6, 20), "float32")):
    c = T.alloc_buffer((6, 20), "float32")
    for i, j, k in T.grid(6, 20, 8):
        with T.block("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
    for i, j in T.grid(6, 20):
        with T.block("scan"):
            vj = T.axis.spatial(20, j)
            vi = T.axis.opaque(6, i)
            y[vi, vj] = c[vi, vj] + T.if_then_else(vi > 0, y[vi - 1, vj], T.float32(0))
"""
STENCIL = """
@T.prim_func
def main(a: T.Buffer((5, 21), "float32"), u: T.Buffer((5, 21), "float32")):
    for t, x in T.grid(5, 21):
        u[t, x] = a[t, x]
    for t in range(4):
        for x in range(19):
            u[t + 1, x + 1] = (u[t, x] + u[t, x + 1] + u[t, x + 2]) * T.float32(0.5)
"""
SUMS = """
@T.prim_func
def main(x: T.Buffer((19, 24), "float32"), y: T.Buffer((19, 24), "float32")):
    for i in range(19):
        for j in range(24):
            y[i, j] = T.if_then_else(j == 0, x[i, j], y[i, j - 1] + x[i, j])
"""
PROGRAMS = {"scan": SCAN, "bare loops": SUMS, "a diagonal": DIAGONAL}


def general(func: PrimFunc, target: Target = CPU) -> Space:
    return generate(func, target)


def loops(func: PrimFunc, kind: str) -> list[Var]:
    return [n.var for n in walk(func.body) if isinstance(n, For) and n.kind == kind]


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=lambda target: target.kind)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_form_keeps_the_results(name: str, target: Target) -> None:
    """All candidates build, stay in bounds, and compute what the program computes."""
    func = func_of(PROGRAMS[name])
    sketch = general(func, target).sketches[-1]
    assert sketch.name == "general"
    (forms,) = sketch.decisions
    assert len(forms) >= 4
    for number in range(len(forms)):
        scheduled = sketch.schedule([number]).func
        check_in_bounds(scheduled)
        same_results(func, scheduled)


def test_a_scan_runs_in_lanes_and_on_threads() -> None:
    """The recurrence stays in order; its rows are shared between threads, and neighbours are lanes of vectors."""
    sketch = general(func_of(SCAN)).sketches[-1]
    labels = sketch.decisions[0].labels
    scheduled = sketch.schedule([labels.index("c0 x8")]).func
    assert len(loops(scheduled, "parallel")) == 1 and len(loops(scheduled, "vectorized")) == 1
    assert [v.name for v in loops(scheduled, "serial")] == ["j"]


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=lambda target: target.kind)
def test_a_stencil_that_advances_in_time_has_forms_in_order(target: Target) -> None:
    """Its concurrent loop cannot come outside: vectors and copies of neighbours run inside of the steps in time."""
    func = func_of(STENCIL)
    (sketch,) = (s for s in general(func, target).sketches if s.name == "general")
    labels = sketch.decisions[1].labels
    assert {"c0 x8, in order", "c0 *4, in order", "plain, in order"} <= set(labels)
    for number in range(len(labels)):
        scheduled = sketch.schedule([0, number]).func
        check_in_bounds(scheduled)
        same_results(func, scheduled)
        lower(scheduled, target)
    features = FeatureMap([sketch], target).matrix(0, np.array([[0, 0], [0, len(labels) - 1]]))
    assert len(features) == 2


def test_leading_loops_of_a_stencil_are_shared() -> None:
    """Rows that do not depend on each other run on threads, each with its steps in time."""
    text = """
@T.prim_func
def main(u: T.Buffer((6, 5, 21), "float32")):
    for b in range(6):
        for t in range(4):
            for x in range(19):
                u[b, t + 1, x + 1] = (u[b, t, x] + u[b, t, x + 1] + u[b, t, x + 2]) * T.float32(0.5)
"""
    sketch = general(func_of(text)).sketches[-1]
    labels = sketch.decisions[0].labels
    assert all(label.endswith("in order") for label in labels)
    scheduled = sketch.schedule([labels.index("plain, in order")]).func
    assert [v.name for v in loops(scheduled, "parallel")] == ["b"]
    assert [v.name for v in loops(scheduled, "serial")] == ["t", "x"]


def test_a_nest_without_a_form_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decided about it, and no decision is without alternatives."""
    monkeypatch.setattr(rules, "forms_of", lambda *_: [])
    assert list(rules.general(func_of(STENCIL), CPU, {})) == []


def test_beside_anchors_a_nest_has_its_first_form() -> None:
    """A scan after a product is not left to one thread, whatever the product's decisions are."""
    func = func_of(CHAIN)
    space = general(func)
    assert "general" not in [s.name for s in space.sketches]
    sketch = space.sketches[0]
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(len(d), size=2000) for d in sketch.decisions], axis=1)
    scheduled = sketch.schedule(rows[sketch.mask(rows)][0].tolist()).func
    assert len(loops(scheduled, "parallel")) >= 2
    same_results(func, scheduled)


def test_names_and_the_order_of_loops_do_not_matter() -> None:
    """Forms are numbered by how far neighbours lie apart in memory."""
    other = DIAGONAL.replace("d, i in T.grid(28, 9)", "p, q in T.grid(9, 28)").replace("[d, i]", "[q, p]")
    spaces = [general(func_of(text)) for text in (DIAGONAL, other.replace("vd", "va").replace('"sum"', '"z"'))]
    first, second = ([(s.name, [d.labels for d in s.decisions]) for s in space.sketches] for space in spaces)
    assert first == second


def test_what_has_anchors_has_no_general_sketch() -> None:
    """A product is the tiling rules' own."""
    text = CHAIN.replace("opaque(6, i)", "spatial(6, i)").replace(
        "T.if_then_else(vi > 0, y[vi - 1, vj], T.float32(0))", "T.float32(1)")  # fmt: skip
    assert all(s.name != "general" for s in general(func_of(text)).sketches)


WALK = """
@T.prim_func
def main(x: T.Buffer((9, 4), "float32"), feature: T.Buffer((31,), "int32"), y: T.Buffer((9, 20), "int32")):
    for i, t, d in T.grid(9, 20, 5):
        with T.block("walk"):
            vi, vt, vd = T.axis.remap("SSR", [i, t, d])
            with T.init():
                y[vi, vt] = T.int32(0)
            y[vi, vt] = T.min(y[vi, vt] * T.int32(2) + T.int32(1) + T.Select(
                x[vi, T.min(T.max(feature[T.min(T.max(y[vi, vt], T.int32(0)), T.int32(30))], T.int32(0)), T.int32(3))]
                <= T.float32(0), T.int32(1), T.int32(0)), T.int32(30))
"""


def test_walks_run_in_copies_first() -> None:
    """Where to go next is looked up at the place that was come to: several walks at once hide that latency."""
    forms: dict[str, list[str]] = {}
    for text in (WALK, SCAN):
        (sketch,) = rules.general(func_of(text), CPU, {})
        forms[text] = [str(form) for decision in sketch.decisions for form in decision.values]
    assert forms[WALK][0].startswith("c1 *8") and any(" x" in form for form in forms[WALK])
    assert " x" in forms[SCAN][0]
