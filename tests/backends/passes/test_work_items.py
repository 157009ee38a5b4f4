"""Lowering for work-groups: what their items share lies in local memory, and conditions stay off their barriers."""

from __future__ import annotations

import numpy as np
import pytest
from opencl_programs import device, needs_device

from stridesmith.backends.lower import LoweringError, lower
from stridesmith.backends.passes.workspaces import place_workspaces
from stridesmith.ir.expr import Buffer, Var, const
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Allocate, For, If, PrimFunc, Stmt, Store, seq
from stridesmith.ir.target import Target
from stridesmith.search.calling.kernel import build

OPENCL = Target(kind="opencl", max_work_group=64, local_bytes=1 << 15)

SHARED_BY_ITEMS = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    S = T.alloc_buffer((64,), "float32", scope="local")
    for g in T.thread_binding(8, thread="blockIdx.x"):
        for t in T.thread_binding(8, thread="threadIdx.x"):
            S[g * 8 + t] = A[g * 8 + t] * T.float32(2)
        for u in T.thread_binding(8, thread="threadIdx.x"):
            B[g * 8 + u] = S[g * 8 + 7 - u]
"""
PEELED = """
@T.prim_func
def main(A: T.Buffer((30,), "float32"), B: T.Buffer((30,), "float32")):
    S = T.alloc_buffer((32,), "float32", scope="shared")
    for g in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding(4, thread="threadIdx.x"):
            for i in range(2):
                if g * 8 + t * 2 + i < 30:
                    S[g * 8 + t * 2 + i] = A[g * 8 + t * 2 + i]
        for u in T.thread_binding(2, thread="threadIdx.x"):
            for j in T.unroll(4, annotations={"peel": True}):
                if g * 8 + u * 4 + j < 30:
                    B[g * 8 + u * 4 + j] = S[g * 8 + u * 4 + j]
"""
UNSEEN = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    S = T.alloc_buffer((16,), "float32")
    for g in T.thread_binding(4, thread="blockIdx.x"):
        for o, i in T.grid(2, 4):
            if o < 1:
                S[g * 4 + o * 4 + i] = A[g * 4 + o * 4 + i]
        for k in range(4):
            B[g * 4 + k] = S[g * 4 + 3 - k]
"""


def parsed(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def allocated(stmt: Stmt) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {n.buffer.name: (n.buffer.scope, n.buffer.shape) for n in walk(stmt) if isinstance(n, Allocate)}


def run(func: PrimFunc, array: np.ndarray) -> np.ndarray:
    target = device()
    assert target is not None
    result: np.ndarray = build(func, target)(array)
    return result


def test_what_items_of_a_group_share_lies_in_local_memory() -> None:
    """A buffer that one loop over items fills and another one reads, whatever scope it asks for."""
    lowered = lower(parsed(SHARED_BY_ITEMS), OPENCL)
    assert allocated(lowered.body) == {"S": ("shared", (8,))} and not lowered.workspaces


@needs_device
def test_items_read_what_other_items_wrote() -> None:
    """Shared memory is there for all items, after a barrier; peeled edges change nothing."""
    a = np.arange(64, dtype="float32")
    np.testing.assert_array_equal(run(parsed(SHARED_BY_ITEMS), a), 2 * a.reshape(8, 8)[:, ::-1].ravel())
    np.testing.assert_array_equal(run(parsed(PEELED), a[:30].copy()), a[:30])


def test_peeled_conditions_stay_inside_of_the_loops_over_items() -> None:
    """The test of the group's whole tile stands below the loop over items, where no barrier is."""
    body = lower(parsed(PEELED), OPENCL).body
    items = [n for n in walk(body) if isinstance(n, For) and n.thread.startswith("threadIdx")]
    assert len(items) == 2
    inside = {id(n) for item in items for n in walk(item)}
    assert all(id(n) in inside for n in walk(body) if isinstance(n, If))


def test_memory_of_one_item_that_items_inside_share_is_refused() -> None:
    """Neither private nor local memory has an element for each item of the outer loop alone."""
    t, u, v = Var("t"), Var("u"), Var("v")
    kept, out = Buffer("kept", (4,), scope="local"), Buffer("out", (16,))

    def items(var: Var, axis: str, body: Stmt) -> For:
        return For(var, const(4), body, "thread_binding", f"threadIdx.{axis}")

    both = seq([items(u, "x", Store(kept, (u,), const(1.0))), items(v, "x", Store(out, (t * 4 + v,), kept[v]))])
    with pytest.raises(LoweringError, match="`kept` belongs to one iteration of a loop over work-items"):
        place_workspaces(items(t, "y", Allocate(kept, both)))


def test_a_loop_that_an_index_does_not_show_does_not_hide_who_wrote() -> None:
    """Of a loop that a condition holds at 0 the index shows nothing; what it writes counts as written."""
    lowered = lower(parsed(UNSEEN), OPENCL)
    assert allocated(lowered.body) == {"S": ("global", (4,))} and not lowered.workspaces
