"""Recorded calls of primitives are judged as what they are, whatever came out over there."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
import tvm_primitives
from tvm_primitives import judge, judged

import stridesmith as ss

BEFORE = """# from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    # with T.sblock("root"):
    for i in range(8):
        with T.sblock("B"):
            vi = T.axis.spatial(8, i)
            T.reads(A[vi])
            T.writes(B[vi])
            B[vi] = A[vi] + T.float32(1)
"""
AFTER = BEFORE.replace("i in range(8)", "p, q in T.grid(2, 4)").replace("(8, i)", "(8, p * 4 + q)")
SCALED = BEFORE.replace("A[vi] + T.float32(1)", "{}")


def call(name: str, after: str | None = AFTER, before: str = BEFORE, **args: Any) -> dict[str, Any]:
    return {"name": name, "before": before, "after": after, "args": args, "error": "over there", "test": "t.py::t"}


SPLIT: dict[str, Any] = {"loop": {"loop": 0}, "factors": [2, 4]}
ENDS = [
    ("equal", call("split", **SPLIT), ""),
    ("equal", call("split", AFTER.replace("A[vi] + T.float32(1)", "T.float32(1) + A[vi]"), **SPLIT), ""),
    ("different", call("split", AFTER.replace("T.float32(1)", "T.float32(2)"), **SPLIT), "argument 1 differs"),
    ("refused", call("split", None, loop={"loop": 0}, factors=[3, 2]), "(2)"),
    ("stricter", call("split", loop={"loop": 0}, factors=[3, 2]), "(2)"),
    ("accepted", call("split", None, **SPLIT), "over there"),
    ("no such", call("rolling_buffer", block={"block": 0}, write_buffer_index=0), "rolling_buffer"),
    ("not read", call("split", AFTER + "    T.unheard_of()\n", **SPLIT), "ScriptError"),
    ("not read", call("split", loop={"loop": 7}, factors=[2, 4]), "an argument"),
    ("not read", {"name": "split", "unread": "TypeError", "test": "t.py::t"}, "TypeError"),
    ("not run", call("split", SCALED.format("A[vi + 8]"), **SPLIT), "reads index 8"),
    ("not run", call("unroll", BEFORE.replace("8", "800000000"), BEFORE.replace("8", "800000000"), loop={"loop": 0}),
     "8.0e+08 statements"),
]  # fmt: skip


@pytest.mark.parametrize(("end", "one", "why"), ENDS)
def test_a_call_ends_as_what_both_sides_make_of_it(end: str, one: dict[str, Any], why: str) -> None:
    found = judge(one)
    assert found[0] == end, found
    assert why in found[1]


def test_a_call_has_a_time_that_nothing_below_it_can_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an exception that ends it is caught, as in a callback of a library."""

    def endless(one: object) -> tuple[str, str]:
        while True:
            with suppress(Exception):
                sum(range(1000))

    monkeypatch.setattr(tvm_primitives, "judge", endless)
    start = time.process_time()
    assert judged({}, seconds=0.2) == ("not run", "more than 0.2 s of processor time")
    assert time.process_time() - start < 2


def test_tables_count_each_call_once(capsys: pytest.CaptureFixture[str]) -> None:
    """By primitive and by file, with the programs that are read; reasons for what did not end well."""
    calls = [one for _, one, _ in ENDS[:5]] + [call("split", **SPLIT) | {"test": "other.py::t"}]
    tvm_primitives.show(calls, calls, reasons=True)
    shown = capsys.readouterr().out
    assert "| split | 5 | 2 | 1 |  | 1 |  |  |  | 1 |" in shown
    assert "| t | 4 of 4 | 5 |" in shown
    assert "1 split different | t.py::t: argument 1 differs" in shown


def test_an_intrinsic_of_a_call_is_registered() -> None:
    """`tensorize` takes the two programs that were recorded, under a name of their own."""
    body = BEFORE.replace("main", "desc")
    impl = body.replace("range(8)", "T.vectorized(8)")
    one = call("tensorize", BEFORE, block_or_loop={"loop": 0}, tensor_intrin="theirs") | {"intrinsic": [body, impl]}
    assert judge(one)[0] == "equal", judge(one)
    assert isinstance(ss.parse(body), ss.PrimFunc)
