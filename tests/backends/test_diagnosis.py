"""The facts about a lowered program: its texts, its work and its memory."""

from __future__ import annotations

from math import prod
from typing import Any

import opencl_programs
import pytest
from cpu_programs import matmul_tile
from opencl_programs import needs_device

from stridesmith.backends.diagnosis import explain, lowered_script, memory
from stridesmith.backends.lower import Lowered, lower
from stridesmith.ir.expr import Buffer, Var, const
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Allocate, For, PrimFunc, Store, seq
from stridesmith.ir.target import Target
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import workload

CPU = Target(features="")


def packed(depth: int, *, overcompute: bool) -> PrimFunc:
    """A product whose reduction over `depth` is split by 4 with both inputs packed, padded with zeros, along it."""
    sch = Schedule(workload("matmul", m=6, n=8, k=depth).func)
    copy = sch.cache_read("matmul", 0, "global")
    sch.transform_layout(copy, ["write", 0], lambda i, k: [k // 4, i, k % 4], 0, rewrite_loops=True)
    copy = sch.cache_read("matmul", 1, "global")
    sch.transform_layout(copy, ["write", 0], lambda k, j: [k // 4, j, k % 4], 0, rewrite_loops=True)
    sch.split("k", [None, 4])
    if overcompute:
        sch.remove_branching_through_overcompute("matmul")
    return sch.func


@pytest.mark.parametrize("depth", [8, 9, 10, 11])
def test_computed_flops_tell_overcompute(depth: int) -> None:
    """A branch at the edge computes what is useful and no more; overcompute rounds the depth up to the tile."""
    flops = {
        over: explain(lower(packed(depth, overcompute=over), CPU), CPU, compiled=False)["computed_flops"]
        for over in ((False, True) if depth % 4 else (False,))
    }
    assert flops[False] == 2 * 6 * 8 * depth
    assert flops.get(True, 2 * 6 * 8 * 8) == 2 * 6 * 8 * -(-depth // 4) * 4


def test_texts_without_a_compiler() -> None:
    """Uncompiled, there are the lowered program and the generated source, and nothing that a device must give."""
    facts = explain(matmul_tile(6, 16, 8, 8), CPU, compiled=False)
    assert "define void @kernel_program" in facts["source"]
    assert "assembly" not in facts and "inner_loop" not in facts


def test_the_lowered_script_is_a_program() -> None:
    """It parses, with workspaces allocated around the body."""
    i, j = Var("i"), Var("j")
    a, work = Buffer("A", (8,)), Buffer("work", (8,))
    body = seq([For(i, const(8), Store(work, (i,), a[i])), For(j, const(8), Store(a, (j,), work[j] + 1.0))])
    text = lowered_script(Lowered("program", (a,), (work,), body))
    assert 'work = T.allocate([8], "float32")' in text
    func = parse(text)
    assert isinstance(func, PrimFunc) and func.script() == text


def test_memory_alive_at_once() -> None:
    """Allocations in sequence share what nested ones need both."""
    i = Var("i")
    out = Buffer("out", (8,))
    first, second, third = (Buffer(name, (size,), scope="local") for name, size in (("p", 4), ("q", 16), ("r", 8)))
    store = For(i, const(8), Store(out, (i,), const(0.0)))
    nested = Allocate(first, seq([Allocate(second, store), Allocate(third, store)]))
    found = memory(Lowered("program", (out,), (Buffer("w", (100,)),), nested))
    assert found == {"parameters": 32, "workspaces": 400, "global": 0, "shared": 0, "local": 4 * (4 + 16)}


def test_parallel_loops() -> None:
    """Each loop that threads share, with its iterations."""
    facts = explain(matmul_tile(6, 16, 8, 8, (3, 2)), CPU, compiled=False)
    assert facts["parallel"] == [("jo", 2, None)]


@needs_device
def test_kernels_of_opencl() -> None:
    """Grid and groups as launched, and the driver's figures for the built kernel."""
    target = opencl_programs.device()
    assert target is not None
    body, buffers = opencl_programs.matmul_tile(4, 16, 8, 8, (2, 3))
    facts: dict[str, Any] = explain(opencl_programs.lowered(body, *buffers), target)
    assert "__kernel" in facts["source"]
    (kernel,) = facts["kernels"]
    assert kernel["groups"] == 6
    assert prod(kernel["global"]) == 6 * prod(kernel["local"])
    assert kernel["max_work_group"] >= 1 and kernel["multiple"] >= 1
    assert kernel["local_bytes"] >= 0 and kernel["private_bytes"] >= 0
