"""What a schedule leaves open: drawn within its rules, evenly, and refused where a decision breaks them."""

from __future__ import annotations

from collections import Counter
from math import prod

import pytest

from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.space.schedule import Schedule, ScheduleError

CONV = """
@T.prim_func
def main(x: T.Buffer((12,), "float32"), w: T.Buffer((3,), "float32"), y: T.Buffer((12,), "float32")):
    p = T.alloc_buffer((14,), "float32")
    for h in range(14):
        with T.block("pad"):
            vi = T.axis.spatial(14, h)
            p[vi] = T.if_then_else(1 <= vi and vi < 13, x[vi - 1], T.float32(0))
    for i, k in T.grid(12, 3):
        with T.block("conv"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + p[vi + vk] * w[vk]
"""


def schedule(seed: int = 0) -> Schedule:
    func = parse(CONV)
    assert isinstance(func, PrimFunc)
    return Schedule(func, seed=seed)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_tiles_are_perfect_and_bounded(n: int) -> None:
    """Every drawn tile multiplies to the extent, with its last factor in bounds."""
    sch = schedule()
    for _ in range(50):
        factors = sch.sample_perfect_tile("i", n, max_innermost_factor=4)
        assert len(factors) == n and prod(factors) == 12 and factors[-1] <= 4


def test_tiles_are_drawn_evenly() -> None:
    """Each of the six factorisations of 12 in two comes about equally often."""
    sch = schedule(1)
    found = Counter(tuple(sch.sample_perfect_tile("i", 2)) for _ in range(600))
    assert len(found) == 6
    assert all(60 <= count <= 140 for count in found.values()), found


@pytest.mark.parametrize("pos", [0, 1, 2])
def test_partitioned_tiles_have_their_factor_inside(pos: int) -> None:
    """The factors from a position on are a multiple of the inner one, and nothing else binds them."""
    sch = schedule(3)
    found = {tuple(sch.sample_partitioned_tile("i", 3, pos, 3)) for _ in range(60)}
    assert all(prod(tile) == 12 and prod(tile[pos:]) % 3 == 0 for tile in found)
    assert len(found) >= 3


def test_categories_are_drawn_by_their_probability() -> None:
    """A candidate of probability 0 never comes, one of three quarters comes about that often."""
    sch = schedule(2)
    found = Counter(int(sch.sample_categorical([5, 6, 7], [0.75, 0.25, 0])) for _ in range(400))
    assert set(found) == {5, 6}
    assert 260 <= found[5] <= 340


def test_places_are_those_that_are_legal() -> None:
    """The producer of a convolution may stay, be inlined, or be computed in loops of the consumer."""
    places = {str(schedule(seed).sample_compute_location("pad")) for seed in range(40)}
    assert places >= {"<root>", "<inline>", "i"}
    assert {str(schedule(seed).sample_compute_location("conv")) for seed in range(5)} == {"<root>"}


@pytest.mark.parametrize("decision", [-2, -1, 0])
def test_a_drawn_place_is_an_argument_of_compute_at(decision: int) -> None:
    """Where it is changes nothing, inlined removes the block, and a loop takes it along."""
    sch = schedule()
    before = sch.func
    sch.compute_at("pad", sch.sample_compute_location("pad", decision))
    if decision == -2:
        assert sch.func == before
    elif decision == -1:
        assert sch.get_blocks() == ["conv"]
    else:
        assert sch.get_loops("pad")[0] == "i"
    assert sch.trace.instructions[-1].arguments["loop"] == {"ref": "v0"}
    assert sch.trace.replay(before).func == sch.func


def test_seeds_decide() -> None:
    """The same seed draws the same, and `seed` starts anew."""
    one, two = schedule(7), schedule(7)
    drawn = [one.sample_perfect_tile("i", 3) for _ in range(5)]
    assert drawn == [two.sample_perfect_tile("i", 3) for _ in range(5)]
    two.seed(7)
    assert drawn[0] == two.sample_perfect_tile("i", 3)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda s: s.sample_perfect_tile("i", 1), r"\(1\) a tile has at least 2 factors"),
        (lambda s: s.sample_perfect_tile("i", 2, 0), r"\(1\) .* but got n=2, max_innermost_factor=0"),
        (lambda s: s.sample_perfect_tile("i", 2, decision=[5, 2]), r"\(2\) the decision \[5, 2\] must be 2 factors"),
        (lambda s: s.sample_perfect_tile("i", 2, decision=[-3, -4]), r"\(2\) the decision"),
        (lambda s: s.sample_perfect_tile("i", 2, 4, decision=[2, 6]), r"\(3\) the innermost factor 6 is more than 4"),
        (lambda s: s.sample_perfect_tile("q", 2), "there is no loop `q`"),
        (lambda s: s.sample_partitioned_tile("i", 2, 2, 3), r"\(1\) 2 factors of 12 have no part from position 2"),
        (lambda s: s.sample_partitioned_tile("i", 2, 1, 5), r"\(1\) 2 factors of 12 have no part .* multiple of 5"),
        (lambda s: s.sample_partitioned_tile("i", 2, 1, 3, decision=[5, 2]), r"\(2\) the decision \[5, 2\]"),
        (lambda s: s.sample_partitioned_tile("i", 2, 1, 3, decision=[6, 2]), r"\(3\) the product of \[2\] is no"),
        (lambda s: s.sample_categorical([], []), r"\(1\) 0 candidates need as many probabilities"),
        (lambda s: s.sample_categorical([1, 2], [1]), r"\(1\) 2 candidates need as many probabilities"),
        (lambda s: s.sample_categorical([1, 2], [0, 0]), r"\(1\)"),
        (lambda s: s.sample_categorical([1, 2], [2, -1]), r"\(1\)"),
        (lambda s: s.sample_categorical([1, 2], [1, 1], decision=2), r"\(2\) the decision 2 is no position"),
        (lambda s: s.sample_compute_location("pad", 7), r"\(1\) the decision 7 is no place for `pad`; there are \{-2"),
        (lambda s: s.sample_compute_location("conv", -1), r"\(1\) the decision -1 is no place for `conv`"),
    ],
)
def test_decisions_outside_the_rules_are_refused(call, sentence: str) -> None:
    """Each condition by its sentence, and nothing is recorded."""
    sch = schedule()
    with pytest.raises(ScheduleError, match=sentence):
        call(sch)
    assert len(sch.trace) == 0


def test_a_loop_without_iterations_has_no_tiles() -> None:
    """No positive factors make 0, whether they are drawn or given."""
    func = parse("""
@T.prim_func
def main(y: T.Buffer((4,), "float32")):
    for i in range(0):
        y[i] = T.float32(0)
""")
    assert isinstance(func, PrimFunc)
    for decision in (None, [0, 1]):
        with pytest.raises(ScheduleError, match=r"\(1\) loop `i` has no iterations"):
            Schedule(func).sample_perfect_tile("i", 2, decision=decision)
