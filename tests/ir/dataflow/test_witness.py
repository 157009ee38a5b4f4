"""A store that is needed shows it at one instance, without dataflow; what it cannot show stays open."""

from __future__ import annotations

import pytest
from ir.passes.examples import program

from stridesmith.ir.dataflow.effects import Change
from stridesmith.ir.dataflow.harmless import vanishing
from stridesmith.ir.dataflow.instances import instances
from stridesmith.ir.dataflow.witness import needed_instance
from stridesmith.ir.expr import FALSE

NEEDED = {
    "seen at the end": (
        "for i in range(16):\n    A[i] = 1.0",
        "at i=15 it would write A[15], an element of a parameter",
    ),
    "read next": (
        "for i in range(16):\n    A[i] = 1.0\nfor j in range(16):\n    B[j] = A[15 - j]\n    A[j] = 2.0",
        "at i=15 it would write A[15], which block `Store` reads",
    ),
    "seen where it is not silent": (
        "S = T.alloc_buffer((16,), 'float32')\nfor f in range(16):\n    A[f] = 1.0\n"
        "for k in range(16):\n    S[k] = T.if_then_else(k < 12, B[k], T.float32(0))\n"
        "for i in range(16):\n    A[i] = A[i] + S[i]",
        "at i=11 it would write A[11], an element of a parameter",
    ),
}
OPEN = {
    "overwritten": "for i in range(16):\n    A[i] = 1.0\nfor j in range(16):\n    A[j] = 2.0",
    "never seen": "S = T.alloc_buffer((16,), 'float32')\nfor i in range(16):\n    S[i] = 1.0",
    "written back": "for i in range(16):\n    A[i] = A[i]",
    "an unknown element follows": "A[3] = 1.0\nA[T.Cast('int64', B[0]) % 16] = 2.0",
}


@pytest.mark.parametrize("case", NEEDED)
def test_one_instance_shows_that_a_store_is_needed(case: str) -> None:
    """The last one that may change something."""
    body, words = NEEDED[case]
    found = instances(program(body))
    chosen = found.statements[-1] if case.startswith("seen") else found.statements[0]
    harm = needed_instance(found, [chosen])
    assert harm is not None and str(harm).startswith(words), str(harm)
    assert vanishing(found, [Change(chosen, FALSE)]) is not None


@pytest.mark.parametrize("case", OPEN)
def test_what_one_instance_does_not_show_is_open(case: str) -> None:
    """Dataflow decides it."""
    found = instances(program(OPEN[case]))
    assert needed_instance(found, found.statements[:1]) is None
