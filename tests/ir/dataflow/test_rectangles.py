"""Stores of boxes are decided by comparing boxes, as sets decide them; anything else stays open."""

from __future__ import annotations

import pytest
from ir.passes.examples import program
from long_programs import program as long_program

from stridesmith import transform
from stridesmith.ir.dataflow.instances import instances
from stridesmith.ir.dataflow.rectangles import by_boxes
from stridesmith.ir.passes import no_op
from stridesmith.ir.stmt import Store

HEAD = "S = T.alloc_buffer((16,), 'float32')\n"
DECIDED = {
    "overwritten": ("A[3] = 1.0\nA[3] = 2.0", None),
    "overwritten by a loop": ("A[3] = 1.0\nfor i in range(16):\n    A[i] = 2.0", None),
    "read in between": ("A[3] = 1.0\nB[0] = A[3]\nA[3] = 2.0", "it would write A[3], which block `Store` reads"),
    "read in the iteration": (
        "for i in range(16):\n    A[i] = 1.0\n    B[i] = A[i]\n    A[i] = 2.0",
        "it would write A[15], which block `Store` reads",
    ),
    "seen at the end": ("A[3] = B[0]", "it would write A[3], an element of a parameter"),
    "nobody's": (HEAD + "S[3] = 1.0\nA[3] = 2.0", None),
}
OPEN = {
    "of the element's own value": "A[3] = A[3] + 1.0",
    "read in another iteration": "for i in range(15):\n    A[i] = 1.0\n    B[i] = A[i + 1]",
    "partly overwritten": "for i in range(16):\n    A[i] = 1.0\nfor j in range(8):\n    A[j] = 2.0\nB[0] = A[3]",
    "of a part of a loop": "for i in range(16):\n    if i < 3:\n        A[i] = 1.0",
    "of every second element": "for i in range(8):\n    A[2 * i] = 1.0",
    "overwritten in a loop whose first turns read what later ones overwrite": (
        "for i in range(16):\n    A[i] = 1.0\nfor j in range(16):\n    A[j] = 2.0\n    B[j] = A[15 - j]"
    ),
    "with an assumption": "T.assume(B[0] == 0.0)\nA[3] = 1.0",
}


@pytest.mark.parametrize("name", sorted(DECIDED))
def test_the_first_store_is_decided(name: str) -> None:
    text, reason = DECIDED[name]
    found = instances(program(text))
    first = next(s for s in found.statements if isinstance(s.stmt, Store))
    answer = by_boxes(found, [first])
    assert answer is not None
    assert (answer.harm is None) is (reason is None)
    assert reason is None or reason in str(answer.harm)


@pytest.mark.parametrize("name", sorted(OPEN))
def test_what_boxes_do_not_tell_is_open(name: str) -> None:
    found = instances(program(OPEN[name]))
    assert by_boxes(found, [s for s in found.statements if isinstance(s.stmt, Store)][:1]) is None


def test_a_silent_store_is_found() -> None:
    """The second loop stores what the first one left."""
    found = instances(program("for j in range(16):\n    A[j] = 2.0\nfor i in range(8):\n    A[i] = 2.0"))
    answer = by_boxes(found, [s for s in found.statements if isinstance(s.stmt, Store)][1:])
    assert answer is not None
    assert answer.harm is None


def test_a_store_is_not_silent_where_a_loop_that_left_its_value_also_left_another_one() -> None:
    """The last turn leaves 2 in ``A[15]`` and 1 in ``A[14]``, which a turn before had made 2."""
    text = "for j in range(1, 15):\n    A[j - 1] = 1.0\n    A[j] = 2.0\nA[13] = 2.0"
    found = instances(program(f"A[15] = 0.0\n{text}"))
    last = [s for s in found.statements if isinstance(s.stmt, Store)][-1]
    answer = by_boxes(found, [last])
    assert answer is None or answer.harm is not None
    shifted = "for j in range(16):\n    A[15 - j] = 1.0\n    A[j] = 2.0\nfor i in range(16):\n    A[i] = 2.0"
    found = instances(program(shifted))
    assert by_boxes(found, [s for s in found.statements if isinstance(s.stmt, Store)][-1:]) is None


def test_a_long_program_asks_about_few_statements_by_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 stores: the 64 last ones stay, and no set is asked about any."""
    asked = 0

    def exact(*args: object) -> None:
        nonlocal asked
        asked += 1

    monkeypatch.setattr(no_op, "_exact_harm", exact)
    left = transform.remove_no_op(long_program("stores", 1000))
    assert sum(isinstance(s.stmt, Store) for s in instances(left).statements) == 64
    assert asked == 0
