"""An intermediate takes the memory of the result that is made of it, where no value is lost and no other is touched."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.backends.devices import discover
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import lower
from stridesmith.backends.passes.storage_rewrite import rewrite_storage
from stridesmith.ir.expr import Buffer, Var, const
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Allocate, For, PrimFunc, Seq, Store
from stridesmith.space.workloads import workload

CPU = discover("cpu", threads=2)

TEXT = """
@T.prim_func
def main(x: T.Buffer((12, 20), "float32"), y: T.Buffer(({rows}, 20), "float32")):
    for i, k in T.grid({rows}, 20):
        y[i, k] = T.float32(7)
    for i in {outer}(12):
        e = T.allocate([{size}], "float32")
        {before}
        for k in range(20):
            e[k] = x[i, k] * T.float32(2)
        s = T.allocate([1], "float32")
        s[0] = T.float32(0)
        for k in range(20):
            s[0] = s[0] + e[k]
        for {loop}:
            {last}
        {after}
"""

READ = """e[19] = x[i, 0]
        s0 = T.allocate([1], "float32")
        s0[0] = y[i, 0]"""
FILLED = """for k in range(24):
            e[k] = T.float32(1)"""


def func_of(**parts: str) -> PrimFunc:
    usual = {"rows": "12", "outer": "T.parallel", "size": "20", "before": "pass", "after": "pass"}
    text = TEXT.format(**usual | {"loop": "k in range(20)", "last": "y[i, k] = e[k] - s[0]"} | parts)
    func = parse("\n".join(line for line in text.split("\n") if line.strip() != "pass"))
    assert isinstance(func, PrimFunc)
    return func


def shared(func: PrimFunc) -> bool:
    """Whether `e` has no memory of its own; in any case the compiled program computes what the interpreter does."""
    lowered = lower(func, CPU)
    bound = load_artifact(compile_lowered(lowered, CPU)).bind(guard_bytes=4096)
    shape = func.buffers[1].shape
    x = np.random.default_rng(0).integers(-3, 4, (12, 20)).astype(np.float32)
    y = np.zeros(shape, np.float32)
    bound.write(0, x)
    interpret(func, x, y)
    bound.run()
    np.testing.assert_array_equal(bound.read(1).reshape(shape), y)
    assert bound.guards_intact()
    own = {n.buffer.name for n in walk(lowered.body) if isinstance(n, Allocate)} | {w.name for w in lowered.workspaces}
    return "e" not in own


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"outer": "range"},
        {"loop": "k in T.vectorized(20)"},
        {"loop": "j, u in T.grid(5, 4)", "last": "y[i, j * 4 + u] = e[j * 4 + u] * e[j * 4 + u]"},
        {"loop": "j, u in T.grid(3, 8)", "last": "if j * 8 + u < 20:\n                y[i, j * 8 + u] = e[j * 8 + u]"},
        {"last": "y[i, 19 - k] = e[19 - k] + x[i, k]"},
        {"rows": "13", "last": "y[i + 1, k] = e[k] - s[0]"},
        {"size": "24"},  # which shrinks to what is used
        {"outer": "range", "rows": "1", "last": "y[0, k] = e[k]", "after": "y[0, 0] = y[0, 0] + x[i, 0]"},
    ],
)
def test_an_intermediate_lies_in_the_result(parts: dict[str, str]) -> None:
    assert shared(func_of(**parts))


@pytest.mark.parametrize(
    "parts",
    [
        {"last": "y[i, 19 - k] = e[k]"},  # overwritten before it is read
        {"last": "y[i, k] = e[k] + e[0]"},
        {"last": "y[i, k] = e[k] + e[19 - k]"},
        {"loop": "k in range(19)"},  # the last element of y must stay
        {"loop": "k, t in T.grid(20, 2)", "last": "y[i, k] = e[k] + T.float32(1)"},  # read again after it was written
        {"last": "if k != 3:\n                y[i, k] = e[k]"},
        {"last": "if x[i, k] > T.float32(0):\n                y[i, k] = e[k]"},
        {"last": "y[i, k] = y[i, k] + e[k]"},
        {"before": READ, "last": "y[i, k] = e[k] + s0[0]"},
        {"after": "y[i, 3] = e[4]"},
        {"size": "24", "before": FILLED},  # elements that no y takes the place of
        {"outer": "range", "rows": "31", "last": "y[i + k, 0] = e[k]"},
    ],
)
def test_what_would_lose_a_value_keeps_its_memory(parts: dict[str, str]) -> None:
    assert not shared(func_of(**parts))


def test_iterations_that_overlap_keep_their_memory() -> None:
    """Serial iterations may store the same elements one after the other; those that overlap in part are left alone."""
    assert shared(func_of(outer="range", rows="1", last="y[0, k] = e[k] - s[0]"))
    half = "y[(i * 10 + k) // 20, (i * 10 + k) % 20] = e[k]"
    assert not shared(func_of(outer="range", rows="7", last=half))


def test_a_statement_that_stands_twice_keeps_the_memory() -> None:
    """The second time it would read what the first one has stored."""
    e, y, k = Buffer("e", (4,)), Buffer("y", (4,)), Var("k")
    first = For(k, const(4), Store(e, (k,), const(1.0, "float32")))
    last = For(k, const(4), Store(y, (k,), e[k] + e[k]))
    once, twice = Allocate(e, Seq((first, last))), Allocate(e, Seq((first, last, last)))
    assert rewrite_storage(twice) == twice
    assert rewrite_storage(once) != once


def test_softmax_computes_its_exponentials_in_the_result() -> None:
    lowered = lower(workload("softmax", rows=8, cols=40).func, CPU)
    own = {n.buffer.name for n in walk(lowered.body) if isinstance(n, Allocate)} | {w.name for w in lowered.workspaces}
    assert "e" not in own
