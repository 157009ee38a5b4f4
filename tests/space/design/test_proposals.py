"""Pad values are proposed where the engine proves overcompute with them, and refused with the reason elsewhere."""

from __future__ import annotations

import pytest

from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.space.design.proposals import candidates, propose_pad_values
from stridesmith.space.design.space import generate
from stridesmith.space.errors import ScheduleError
from stridesmith.space.workloads import workload

REDUCE = """
@T.prim_func
def main(A: T.Buffer((14,), "{dtype}"), W: T.Buffer((14,), "{dtype}"), C: T.Buffer((1,), "{dtype}")):
    for i in range(14):
        with T.block("reduce"):
            vi = T.axis.reduce(14, i)
            with T.init():
                C[0] = {start}
            C[0] = {update}
"""


def provable(update: str, start: str, dtype: str = "float32") -> set[object]:
    func = parse(REDUCE.format(update=update, start=start, dtype=dtype))
    assert isinstance(func, PrimFunc)
    found = propose_pad_values(func, "A", "lambda i: [i // 4, i % 4]")
    assert [p.pad_value for p in found] == list(candidates(dtype))
    assert all(p.refusal for p in found if not p.provable)
    return {p.pad_value for p in found if p.provable}


@pytest.mark.parametrize(
    ("update", "start", "expected"),
    [
        ("C[0] + A[vi]", "T.float32(0)", {0.0}),
        ("C[0] + A[vi] * W[vi]", "T.float32(0)", {0.0}),
        ("C[0] * A[vi]", "T.float32(1)", {1.0}),
        ("T.max(C[0], A[vi])", 'T.float32("-inf")', {"-inf"}),
        ("T.min(C[0], A[vi] + W[vi])", 'T.float32("inf")', {"inf"}),
        ("C[0] + T.exp(A[vi])", "T.float32(0)", set()),
    ],
)
def test_a_reduction_wants_its_neutral_element(update: str, start: str, expected: set[object]) -> None:
    """Of all candidates exactly the value that leaves the accumulator as it is."""
    assert provable(update, start) == expected


def test_integers_use_the_ends_of_their_type() -> None:
    """The neutral element of an integer maximum is the type's minimum."""
    assert provable("T.max(C[0], A[vi])", "T.int8(-128)", "int8") == {-128}


def test_element_wise_consumers_take_anything_that_may_be_read() -> None:
    """What only reaches padding may be anything, but None may not even be read."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((14,), "float32"), B: T.Buffer((14,), "float32")):
    for i in range(14):
        with T.block("double"):
            vi = T.axis.spatial(14, i)
            B[vi] = A[vi] * T.float32(2)
""")
    assert isinstance(func, PrimFunc)
    found = {p.pad_value: p for p in propose_pad_values(func, "A", "lambda i: [i // 4, i % 4]")}
    assert {v for v, p in found.items() if p.provable} == {0.0, 1.0, "-inf", "inf", "undef"}
    assert "A[3, 2], whose pad_value is None" in found[None].refusal


def test_what_is_refused_altogether_raises() -> None:
    """A map that is no layout, or a buffer that nobody reads, is an error."""
    func = parse(REDUCE.format(update="C[0] + A[vi]", start="T.float32(0)", dtype="float32"))
    assert isinstance(func, PrimFunc)
    with pytest.raises(ScheduleError):
        propose_pad_values(func, "A", "lambda i: [i // 2]")
    with pytest.raises(ScheduleError, match="no block reads"):
        propose_pad_values(func, "W", "lambda i: [i // 4, i % 4]")
    with pytest.raises(ScheduleError, match="there is no pad value to try for `A`"):
        propose_pad_values(func, "A", "lambda i: [i // 4, i % 4]", values=[])


@pytest.mark.parametrize(
    ("name", "params", "buffer", "index_map"),
    [
        ("matmul", {"m": 5, "n": 7, "k": 6}, "a", "lambda i, k: [i, k // 4, k % 4]"),
        ("row_sum", {"rows": 5, "cols": 6}, "x", "lambda i, k: [i, k // 4, k % 4]"),
    ],
)
def test_the_space_offers_what_is_proposed(name: str, params: dict[str, int], buffer: str, index_map: str) -> None:
    """The pad values that the rules derive from a reduction are those that the engine proves, undef and None."""
    func = workload(name, **params).func
    proven = {str(p.pad_value) for p in propose_pad_values(func, buffer, index_map) if p.provable}
    target = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
    space = generate(func, target, {buffer: "free"})
    decisions = [d for sketch in space.sketches for d in sketch.decisions if d.kind == "pad_value"]
    assert decisions
    for decision in decisions:
        assert {str(v) for v in decision.values} == proven | {"undef", "None"}
