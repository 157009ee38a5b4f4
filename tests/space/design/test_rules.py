"""Rules of a user's own: beside the shipped ones or in their place, searched like any other sketch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.cost_model.features import FeatureMap
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.search.candidates.search_space import SearchSpace
from stridesmith.space.design.rules import RULES, combinations, scripted
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.schedule import Schedule, ScheduleError
from stridesmith.space.tree import leaf_blocks, loops_above
from stridesmith.space.workloads import workload

CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
WORK = workload("matmul", m=8, n=16, k=12)


def blocked(func: PrimFunc, target: Target, interface: Mapping[str, str]) -> Iterator[Sketch]:
    """A tile of every reduction below two spatial loops."""
    for block in leaf_blocks(func.body):
        loops = [loop.var.name for loop in loops_above(func, block)]
        if len(block.reduce) != 1 or len(loops) != 3:
            continue

        def script(sch: Schedule, rows: int, cols: int, order: str, name: str = block.name) -> None:
            i, j, k = sch.get_loops(name)
            (i0, i1), (j0, j1) = sch.split(i, [None, rows]), sch.split(j, [None, cols])
            sch.reorder(*((i0, j0) if order == "rows" else (j0, i0)), k, i1, j1)
            sch.decompose_reduction(name, k)
            sch.vectorize(j1)

        choices = {"rows": (1, 2, 4), "cols": (4, 8), "order": ("rows", "cols")}
        yield scripted(f"blocked:{block.name}", func, target, script, **choices)


def test_a_rule_stands_beside_the_shipped_ones() -> None:
    """Its sketches come after those of `tiling`, which stay as they are."""
    shipped = generate(WORK.func, CPU)
    both = generate(WORK.func, CPU, rules=[*RULES, blocked])
    assert both.sketches[:-1] == shipped.sketches
    assert both.sketches[-1].name == "blocked:matmul"
    assert both.size == shipped.size + 12
    assert both.version != shipped.version


def test_a_rule_replaces_the_generator() -> None:
    """Alone, it is the space: every candidate schedules, replays from its trace, and computes the product."""
    space = generate(WORK.func, CPU, rules=[blocked])
    (sketch,) = space.sketches
    assert space.describe()["decisions_by_kind"] == {"choice": 3}
    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (8, 12)).astype("float32"), rng.integers(-3, 4, (12, 16)).astype("float32")
    search_space = SearchSpace(space)
    rows = search_space.draw(rng, 0, 100)
    assert len(rows) == 12
    for row in rows[:6]:
        trace = sketch.trace([int(c) for c in row])
        c = np.full((8, 16), np.nan, "float32")
        interpret(trace.replay(WORK.func).func, a, b, c)
        np.testing.assert_array_equal(c, a @ b)
    assert sketch.labels([2, 1, 0]) == {
        "blocked:matmul/rows": "4", "blocked:matmul/cols": "8", "blocked:matmul/order": "rows",
    }  # fmt: skip


def test_the_model_sees_the_choices() -> None:
    """Numbers are features as they are, other choices by their position."""
    space = generate(WORK.func, CPU, rules=[*RULES, blocked])
    features = FeatureMap(space.sketches, CPU)
    number = len(space.sketches) - 1
    matrix = features.matrix(number, np.array([[0, 0, 0], [2, 1, 1]]))
    column = {name: matrix[:, position].tolist() for position, name in enumerate(features.columns)}
    assert column["choice:rows"] == [1, 4] and column["choice:cols"] == [4, 8] and column["choice:order"] == [0, 1]
    assert np.isfinite(features.estimate(number, np.array([[0, 0, 0]]))).all()


def test_what_a_rule_gives_is_checked() -> None:
    """Anything but sketches, and a second sketch of one name, is refused with the rule's name."""

    def numbers(*_: object) -> list[int]:
        return [1]

    with pytest.raises(ValueError, match="a rule gives sketches, but `numbers` gave a int"):
        generate(WORK.func, CPU, rules=[numbers])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="returns a list of sketches, but `<lambda>` returned None"):
        generate(WORK.func, CPU, rules=[lambda *_: None])  # type: ignore[list-item, return-value]
    with pytest.raises(
        TypeError, match=r"`rules` is a list of functions, as `\[\*ss.RULES, mine\]`, but got <function"
    ):
        ss.tune(WORK, rules=blocked)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the rule `blocked` gives a second sketch called 'blocked:matmul'"):
        generate(WORK.func, CPU, rules=[blocked, blocked])
    with pytest.raises(ScheduleError, match="has 3 choices, but got 2"):
        generate(WORK.func, CPU, rules=[blocked]).sketches[0].schedule([0, 0])


def test_of_too_many_combinations_every_option_occurs() -> None:
    """Few are all taken, in order; of sixty million there are 64 different ones, with each option of each anchor."""
    assert combinations(["ab", "xy"]) == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    options = [range(6)] * 10
    found = combinations(options)
    assert len(set(found)) == 64
    assert all(set(column) == set(range(6)) for column in zip(*found, strict=True))


def test_rules_and_a_generator_exclude_each_other() -> None:
    """`tune` takes one of them."""
    with pytest.raises(ss.UsageError, match="but not both"):
        ss.tune(WORK, rules=[blocked], generate=generate)
