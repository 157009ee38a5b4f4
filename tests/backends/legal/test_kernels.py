"""What is decided for kernels of OpenCL devices, as nodes: barriers, guards, reductions, loops that stay loops."""

from __future__ import annotations

import numpy as np
import pytest
from opencl_programs import GENERIC, bound, lowered

from stridesmith.backends.legal.barriers import has_barrier
from stridesmith.backends.legal.program import as_function, legal
from stridesmith.backends.legal.unrolling import MAX_COPIED, PRAGMA_UNROLL
from stridesmith.backends.legal.work_items import GUARDED
from stridesmith.backends.lower import Lowered
from stridesmith.errors import ProgramError
from stridesmith.ir.expr import Buffer, Call, Var, barrier, const
from stridesmith.ir.functions import BARRIERS
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.isa import ON_CPU, ON_GPU
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Allocate, Block, Evaluate, For, PrimFunc, Stmt, Store, loops, seq
from stridesmith.ir.target import Target
from stridesmith.ir.verify.rules import verify

G, I, J, T = Var("g"), Var("i"), Var("j"), Var("t")  # noqa: E741
A, OUT = Buffer("A", (64,)), Buffer("out", (64,))
NEAR = Buffer("near", (8,), scope="shared")


def reversed_rows(steps: int = 1) -> Lowered:
    """Each group of 8 items copies 8 elements to local memory, and writes them in the opposite order, `steps` times."""
    load = bound(T, 8, "threadIdx.x", Store(NEAR, (T,), A[G * 8 + T]))
    store = bound(T, 8, "threadIdx.x", Store(OUT, (G * 8 + T,), NEAR[const(7) - T]))
    body: Stmt = seq([load, store])
    body = body if steps == 1 else loops([(I, steps)], body)
    return lowered(bound(G, 8, "blockIdx.x", Allocate(NEAR, body)), A, OUT)


def names_of_barriers(stmt: Stmt) -> list[str]:
    return [n.name for n in walk(stmt) if isinstance(n, Call) and n.name in BARRIERS]


def result(program: Lowered) -> np.ndarray:
    a, out = np.arange(64, dtype=np.float32), np.full(64, np.nan, np.float32)
    interpret(as_function(program), a, out, strict_state=False)
    return out


def test_a_barrier_stands_between_what_items_write_and_what_others_read() -> None:
    """Once between two statements; a loop around them, which writes the same again, needs another one at its end."""
    assert names_of_barriers(legal(reversed_rows(), GENERIC).body) == ["barrier_shared"]
    assert names_of_barriers(legal(reversed_rows(3), GENERIC).body) == ["barrier_shared", "barrier_shared_global"]
    assert not has_barrier(reversed_rows().body)


@pytest.mark.parametrize("steps", [1, 3])
def test_legal_kernels_are_verified_printed_parsed_and_interpreted(steps: int) -> None:
    """They mean what the lowered program means."""
    program = reversed_rows(steps)
    made = legal(program, GENERIC)
    func = as_function(made)
    verify(func)
    assert parse(func.script()) == func
    np.testing.assert_array_equal(result(made), result(program))
    np.testing.assert_array_equal(result(made), np.arange(64).reshape(8, 8)[:, ::-1].reshape(-1))


def test_a_loop_of_fewer_iterations_than_items_is_guarded() -> None:
    """So is one beside a barrier, on which PoCL would put barriers of its own; others are not."""
    guarded = {n.var.name: (GUARDED, 1) in n.annotations for n in walk(legal(short(), GENERIC).body)
               if isinstance(n, For)}  # fmt: skip
    assert guarded == {"g": False, "i": False, "j": True}
    beside = [n for n in walk(legal(reversed_rows(), GENERIC).body) if isinstance(n, For) and n.has_items]
    assert len(beside) == 2 and all((GUARDED, 1) in loop.annotations for loop in beside)


def short() -> Lowered:
    """Eight items write one buffer and four of them another one, so that nobody waits."""
    other = Buffer("other", (64,))
    first = bound(I, 8, "threadIdx.x", Store(OUT, (G * 8 + I,), A[I]))
    second = bound(J, 4, "threadIdx.x", Store(other, (G * 8 + J,), A[J]))
    return lowered(bound(G, 8, "blockIdx.x", seq([first, second])), A, OUT, other)


def test_long_unrolled_loops_stay_loops() -> None:
    """Those with more stores than `MAX_COPIED`, none of them to registers."""
    big = Buffer("big", (4 * MAX_COPIED,))
    for extent, kind in ((MAX_COPIED, "unrolled"), (MAX_COPIED + 1, "serial")):
        loop = loops([(I, extent)], Store(big, (I,), const(1.0)), "unrolled")
        made = legal(lowered(loop, big), GENERIC).body
        assert isinstance(made, For) and made.kind == kind and (PRAGMA_UNROLL, 1) not in made.annotations


@pytest.mark.parametrize(("op", "name"), [("+", "subgroup_add"), ("min", "subgroup_min"), ("max", "subgroup_max")])
def test_reductions_of_subgroups_are_marked(op: str, name: str) -> None:
    """An item after the other, each adds its own, so that the program means what it did."""
    update = "c[0] + x[l]" if op == "+" else f"T.{op}(c[0], x[l])"
    func = parse(f"""
@T.prim_func
def program(x: T.Buffer((16,), "float32"), c: T.Buffer((1,), "float32")):
    for l in T.thread_binding(16, thread="subgroup"):
        c[0] = {update}
""")
    assert isinstance(func, PrimFunc)
    program = Lowered("program", func.buffers, (), func.body.body)
    device = Target(kind="opencl", subgroups="16", max_work_group=64, is_cpu_device=False)
    made = legal(program, device)
    assert [n.name for n in walk(made.body) if isinstance(n, Call)] == [name]
    text = as_function(made).script()
    assert f"T.{name}(" in text and parse(text) == as_function(made)
    x = np.random.default_rng(0).standard_normal(16).astype(np.float32)
    outputs = []
    for one in (program, made):
        c = np.zeros(1, np.float32)
        interpret(as_function(one), x, c, strict_state=False)
        outputs.append(c)
    np.testing.assert_array_equal(*outputs)


def test_a_barrier_has_no_value() -> None:
    """It is a statement of its own, which takes nothing."""
    for stmt in (Store(OUT, (const(0),), barrier(["shared"])), Evaluate(Call("barrier_global", (const(1),), "int32"))):
        with pytest.raises(ProgramError, match="barrier"):
            verify(PrimFunc("f", (OUT,), Block("root", (), stmt)))
    verify(PrimFunc("f", (OUT,), Block("root", (), Evaluate(barrier(["shared", "global"])))))


def test_kinds_of_devices_differ_in_what_is_named() -> None:
    """A target's properties are those of its kind of device, and nothing else decides them."""
    assert Target(kind="opencl", is_cpu_device=True).execution is ON_CPU
    assert Target(kind="opencl", is_cpu_device=False).execution is ON_GPU
    assert ON_CPU.work_items_share_a_thread and not ON_GPU.work_items_share_a_thread
