"""What one instance of a statement reads and writes."""

from __future__ import annotations

from stridesmith.ir.dataflow.instances import instances
from stridesmith.ir.script.parser import parse

UPDATE = """
@T.prim_func
def mm(A: T.Buffer((13, 11), "float32"), B: T.Buffer((11, 19), "float32"), C: T.Buffer((13, 19), "float32")):
    for i0, i1, j, k in T.grid(4, 4, 19, 11):
        with T.block("mm"):
            vi = T.axis.spatial(13, i0 * 4 + i1)
            vj, vk = T.axis.remap("SR", [j, k])
            T.where(i0 * 4 + i1 < 13)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

LAZY = """
@T.prim_func
def pick(A: T.Buffer((8,), "float32"), K: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = T.if_then_else(i < 4, A[K[i]], T.float32(0))
"""


def test_accesses_of_a_block() -> None:
    """Loads come in the order of evaluation, then the store; an init is a statement of its own."""
    init, body = instances(parse(UPDATE)).statements
    i0, i1, j, k = body.variables
    row = i0 * 4 + i1
    assert [(a.buffer.name, a.indices, a.is_write) for a in init.accesses] == [("C", (row, j), True)]
    assert [(a.buffer.name, a.indices, a.is_write) for a in body.accesses] == [
        ("C", (row, j), False),
        ("A", (row, k), False),
        ("B", (k, j), False),
        ("C", (row, j), True),
    ]
    assert init.is_init
    assert not body.is_init


def test_lazy_loads_know_when_they_are_evaluated() -> None:
    """A load on one side of a conditional carries its condition; one that decides an index is a control."""
    (statement,) = instances(parse(LAZY)).statements
    (i,) = statement.variables
    index, data = statement.reads
    assert (index.buffer.name, index.is_control, index.guards) == ("K", True, (i < 4,))
    assert (data.buffer.name, data.is_control, data.guards) == ("A", False, (i < 4,))
