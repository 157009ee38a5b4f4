"""What a loop hands to its next iteration stays in registers, where nothing else may store there."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.backends.devices import discover
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.lower import lower
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Allocate, PrimFunc, stores

CPU = discover("cpu", threads=1)

TEXT = """
@T.prim_func
def main(x: T.Buffer((12, 20), "float32"), y: T.Buffer((12, 20), "float32")):
    for i, j in T.grid(12, 20):
        y[i, j] = x[i, j] + x[0, j]
    for i in range(3):
        for j in range({extent}):
            for u in {loop}(4):
                y[{target}] = {value}
"""


def func_of(target: str, value: str, extent: int = 20, loop: str = "T.unroll") -> PrimFunc:
    func = parse(TEXT.format(target=target, value=value, extent=extent, loop=loop))
    assert isinstance(func, PrimFunc)
    return func


def carried(func: PrimFunc) -> bool:
    """Whether something is carried; in any case the compiled program computes what the interpreter does."""
    lowered = lower(func, CPU)
    bound = load_artifact(compile_lowered(lowered, CPU)).bind(guard_bytes=4096)
    x = np.random.default_rng(0).integers(-3, 4, (12, 20)).astype(np.float32)
    y = np.zeros((12, 20), np.float32)
    interpret(func, x, y)
    bound.write(0, x)
    bound.run()
    np.testing.assert_array_equal(bound.read(1).reshape(12, 20), y)
    found = [n.buffer.name for n in walk(lowered.body) if isinstance(n, Allocate)]
    assert found in ([], ["y_last"])
    return bool(found)


@pytest.mark.parametrize("loop", ["range", "T.unroll", "T.vectorized"])
def test_a_sum_along_rows_is_carried(loop: str) -> None:
    """Each row of a tile has its own; the first iteration takes the other side, and no condition is left."""
    value = "x[i * 4 + u, j] + T.if_then_else(j > 0, y[i * 4 + u, j - 1], T.float32(2))"
    func = func_of("i * 4 + u, j", value, loop=loop)
    assert carried(func)
    last = list(stores(lower(func, CPU).body))[-2:]
    assert "if_then_else" not in repr(last)


@pytest.mark.parametrize(
    ("target", "value", "extent"),
    [
        ("i * 4 + u, j + 1", "x[i, j] + y[i * 4 + u, j]", 19),
        ("i * 4 + u, 19 - j", "x[i, j] - T.if_then_else(1 <= j, y[i * 4 + u, 20 - j], x[u, j])", 20),
        ("j, i * 4 + u", "x[i, u] + T.if_then_else(j > 0, y[j - 1, i * 4 + u], T.float32(0))", 12),
        ("i * 4 + u, j + 1", "y[i * 4 + u, j] + T.max(y[i * 4 + u, j], x[i, j])", 19),
    ],
)
def test_other_recurrences(target: str, value: str, extent: int) -> None:
    """Without a condition, downwards, along columns, and with several loads of the last result."""
    assert carried(func_of(target, value, extent))


@pytest.mark.parametrize(
    ("target", "value", "extent"),
    [
        ("i * 4 + u, j + 2", "x[i, j] + y[i * 4 + u, j]", 18),  # (2) of the iteration before the last
        ("i * 4 + u, j + 1", "x[i, j] + y[i * 4 + u, j] + y[i * 4 + u, j + 1]", 19),  # (2) and what is there
        ("i, j + u + 1", "x[i, j] + y[i, j + u]", 16),  # (3) the last u has just stored it
        ("u // 4, j + 1", "x[i, j] + y[u // 4, j]", 19),  # (3) all u store to the same
        ("i * 4 + u, j", "x[i, j] + T.if_then_else(j > 1, y[i * 4 + u, j - 1], T.float32(0))", 20),  # (4)
        ("i * 4 + u, j", "x[i, j] + T.if_then_else(j > 0, y[i * 4 + u, j - 1] * x[i, j], T.float32(0))", 20),  # (4)
        ("i * 4 + u, j", "y[i * 4 + u, j] + x[i, j]", 20),  # nothing is handed on
    ],
)
def test_what_is_not_carried(target: str, value: str, extent: int) -> None:
    """The numbered conditions: programs in which something else may have been stored, or is loaded."""
    assert not carried(func_of(target, value, extent))


def test_more_than_registers_hold_is_not_carried() -> None:
    """A loop of many points inside, whose results are memory anyway."""
    text = TEXT.replace("12, 20", "12, 200").replace("range({extent})", "range(1, 12)")
    text = text.replace("{loop}(4)", "range(200)")
    func = parse(text.format(target="j, u", value="y[j - 1, u] + x[j, u]").replace("T.grid(12, 20)", "T.grid(12, 200)"))
    assert isinstance(func, PrimFunc)
    assert not any(isinstance(n, Allocate) for n in walk(lower(func, CPU).body))
