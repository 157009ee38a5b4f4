"""Another order of a program is kept exactly when no two clashing instances change places."""

from __future__ import annotations

import pytest

from stridesmith.ir.dataflow.instances import Program, Statement, instances
from stridesmith.ir.dataflow.order import Time, find_reversal, update_op
from stridesmith.ir.expr import Var
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc, Store, stores

OUTER, INNER = Var("i"), Var("j")


def program(body: str, params: str = 'a: T.Buffer((9, 9), "int64")') -> Program:
    """The statements of a function with loops ``i`` and ``j`` over 6."""
    func = parse(f"@T.prim_func\ndef main({params}):\n    for i, j in T.grid(6, 6):\n        {body}\n")
    assert isinstance(func, PrimFunc)
    return instances(func)


def swapped(statement: Statement) -> Time:
    return (INNER, OUTER, *statement.schedule[4:])


def backwards(statement: Statement) -> Time:
    return (5 - OUTER, INNER, *statement.schedule[4:])


@pytest.mark.parametrize(
    ("body", "swap", "turn"),
    [
        ("a[i, j] = 1", True, True),
        ("a[i + 1, j + 1] = a[i, j]", True, False),
        ("a[i + 1, j] = a[i, j + 1]", False, False),
        ("a[0, j] = i", True, False),
        ("a[0, 0] = a[0, 0] + j", True, True),
        ("a[0, 0] = a[0, 0] - j", False, False),
        ("a[0, 0] = T.max(a[0, 0], i)", True, True),
        ("a[a[0, 1], j] = a[a[0, 1], j] + 1", False, False),
        ("T.assume(a[i, j] == 0)", True, True),
    ],
)
def test_swapping_and_turning_round(body: str, swap: bool, turn: bool) -> None:
    """Order matters to a store and what it feeds; updates by one commutative operation may change places."""
    found = program(body).statements
    assert (find_reversal(found, swapped) is None) == swap
    assert (find_reversal(found, backwards) is None) == turn


def test_an_assumption_keeps_its_place_among_writers() -> None:
    """What is assumed of an element is read where the assumption stands."""
    found = program("a[i, j] = 0\n        T.assume(a[i, j] == 0)").statements
    early = find_reversal(found, lambda s: (0 if s.number == 1 else 1, OUTER, INNER))
    assert early is not None
    assert "writes `a[i, j]` at i=0, j=0" in str(early)


def test_only_instances_in_the_same_outer_iteration_are_compared() -> None:
    """With a common loop, what other iterations do is left alone."""
    found = program("a[i + 1, j] = a[i, j + 1]").statements
    assert find_reversal(found, lambda s: (OUTER, 5 - INNER, *s.schedule[4:]), [OUTER]) is None


def test_a_lost_order_is_a_turned_one() -> None:
    """Two instances that are given one time have no order any more."""
    found = program("a[0, j] = i").statements
    assert find_reversal(found, lambda s: (INNER,)) is not None


@pytest.mark.parametrize(
    ("body", "op"),
    [
        ("a[i, j] = a[i, j] + 1", "+"),
        ("a[i, j] = 2 * a[i, j]", "*"),
        ("a[i, j] = T.min(a[i, j], i)", "min"),
        ("a[i, j] = a[i, j] + a[j, i]", None),
        ("a[i, j] = a[j, i] + 1", None),
        ("a[i, j] = a[i, j] // 2", None),
    ],
)
def test_what_is_an_update(body: str, op: str | None) -> None:
    """The element itself on one side of a commutative operation, and the buffer nowhere else."""
    (store,) = (s for s in stores(program(body).func.body) if isinstance(s, Store))
    assert update_op(store) == op
