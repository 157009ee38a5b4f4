"""Code-generation mistakes, one at a time, in lowered programs: verification catches every one of them.

Each mutant changes one place of a lowered convolution, matrix product or packed
matrix product, as a faulty pass would: a mask off by one, a dropped tail, a
missing init, a swapped stride, an access beside the right one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stridesmith.backends.data import arguments_of
from stridesmith.backends.devices import discover
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import Lowered, lower
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import GUARD_BYTES, verify
from stridesmith.errors import WrongResult
from stridesmith.ir.expr import Binary, Call, Const, Load, binary, const
from stridesmith.ir.node import rebuild, walk
from stridesmith.ir.stmt import For, If, PrimFunc, Seq, Stmt, Store
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import Workload, workload

TARGET = discover("cpu", threads=1)
CONV = workload("conv2d", ci=3, co=4, h=7, w=5, k=3, pad=1, stride=2)
MATMUL = workload("matmul", m=7, n=9, k=5)


def packed_matmul() -> PrimFunc:
    """The product with B packed in panels of four columns, the last of which is padded with zeros."""
    schedule = Schedule(MATMUL.func)
    (block,) = schedule.get_blocks()
    schedule.transform_layout(block, "b", "lambda k, j: [j // 4, k, j % 4]", 0.0)
    return schedule.func


PROGRAMS: dict[str, tuple[Workload, PrimFunc]] = {
    "conv2d": (CONV, CONV.func),
    "matmul": (MATMUL, MATMUL.func),
    "packed": (MATMUL, packed_matmul()),
}


def edit(stmt: Any, number: int, change: Any) -> Any:
    """`stmt` with its `number`-th node in program order replaced by ``change(node)``."""
    count = -1

    def visit(node: Any) -> Any:
        nonlocal count
        count += 1
        return change(node) if count == number else rebuild(node, visit)

    return visit(stmt)


def mistakes(node: Any) -> Iterator[tuple[str, Any]]:
    """What a faulty pass could have made of one node; none of it means the same."""
    if isinstance(node, For) and isinstance(node.extent, Const):
        yield "dropped tail", lambda n: replace(n, extent=binary("-", n.extent, const(1)))
    if isinstance(node, If) and node.orelse is None:
        yield "guard lost", lambda n: n.then
        yield "branch lost", lambda n: Seq(())
    if isinstance(node, Store):
        yield "store beside", lambda n: replace(n, indices=(*n.indices[:-1], binary("+", n.indices[-1], 1)))
        yield "store lost", lambda n: Seq(())
    if isinstance(node, Load):
        yield "load after", lambda n: replace(n, indices=(*n.indices[:-1], binary("+", n.indices[-1], 1)))
        yield "load before", lambda n: replace(n, indices=(*n.indices[:-1], binary("-", n.indices[-1], 1)))
    if isinstance(node, Binary) and node.op in ("<", "<=") and not isinstance(node.b, Binary):
        yield "mask off by one", lambda n: Binary({"<": "<=", "<=": "<"}[n.op], n.a, n.b)
    if isinstance(node, Binary) and node.op == "*" and isinstance(node.b, Const):
        yield "wrong stride", lambda n: Binary("*", n.a, const(n.b.value + 1, n.b.dtype))
    if isinstance(node, Call) and node.name == "if_then_else":
        yield "padding not masked", lambda n: n.args[1]
        yield "sides swapped", lambda n: Call(n.name, (n.args[0], n.args[2], n.args[1]), n.dtype)


def mutants(body: Stmt) -> Iterator[tuple[str, Stmt]]:
    for number, node in enumerate(walk(body)):
        for name, change in mistakes(node):
            yield f"{name} at node {number}", edit(body, number, change)


def check(name: str, lowered: Lowered) -> None:
    work, func = PROGRAMS[name]
    bound = load_artifact(compile_lowered(lowered, TARGET)).bind(guard_bytes=16 * GUARD_BYTES)
    verify(bound, arguments_of(func), make_samples(work.func, work.reference, 11))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_right_program_passes(name: str) -> None:
    """No false alarm: the program that the mutants are made from is right."""
    check(name, lower(PROGRAMS[name][1], TARGET))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_mistake_is_caught(name: str) -> None:
    """Every mutant is told to be wrong."""
    lowered = lower(PROGRAMS[name][1], TARGET)
    missed, count = [], 0
    for text, body in mutants(lowered.body):
        count += 1
        try:
            check(name, replace(lowered, body=body))
            missed.append(text)
        except WrongResult:
            pass
    assert count >= 15
    assert missed == [], f"{len(missed)} of {count} were missed"


def test_there_are_enough_mistakes() -> None:
    """At least thirty different places are spoilt."""
    bodies = {body for _, func in PROGRAMS.values() for _, body in mutants(lower(func, TARGET).body)}
    assert len(bodies) >= 30
