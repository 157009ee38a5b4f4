"""What every backend keeps: the contract of `stridesmith.backends.kernel`, as checks that a target is given to.

A check compiles programs for the target, loads what came out from JSON, and raises AssertionError where something
is not as the contract says.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from stridesmith.backends.data import arguments_of
from stridesmith.backends.executable import Bound, Call, Place
from stridesmith.backends.kernel import BACKENDS, compile_lowered, load_artifact, load_chain
from stridesmith.backends.lower import Lowered, lower
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import GUARD_BYTES, verify
from stridesmith.ir.expr import Buffer, Var, const
from stridesmith.ir.stmt import For, Store
from stridesmith.ir.target import Target
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import workload

SIZE = 10


def bound(program: Lowered, target: Target) -> Bound:
    """The program on memory of its own, by way of JSON, as it travels between processes."""
    artifact = compile_lowered(program, target)
    assert artifact["kind"] == target.kind
    return load_artifact(json.loads(json.dumps(artifact))).bind(guard_bytes=GUARD_BYTES)


def doubled() -> Lowered:
    """``out[i] = a[i] + a[i]``, with a workspace that is not used."""
    i, a, out = Var("i"), Buffer("a", (SIZE,)), Buffer("out", (SIZE,))
    body = For(i, const(SIZE), Store(out, (i,), a[i] + a[i]))
    return Lowered("doubled", (a, out), (Buffer("room", (4,)),), body)


def counter() -> Lowered:
    """``n[0] = n[0] + 1``: one more with each call."""
    n = Buffer("n", (1,), "int32")
    return Lowered("counter", (n,), (), Store(n, (const(0),), n[0] + 1))


def buffers_have_names_and_physical_shapes(target: Target) -> None:
    """Parameters come first, then workspaces, each with its shape and type."""
    found = bound(doubled(), target)
    assert found.names == ("a", "out", "room")
    assert [(found.read(k).shape, found.read(k).dtype.type) for k in range(3)] == [
        ((SIZE,), np.float32), ((SIZE,), np.float32), ((4,), np.float32)
    ]  # fmt: skip


def what_is_written_is_read(target: Target) -> None:
    """Memory keeps what it is given; what is read is a copy; an array of another size is refused by name."""
    found, data = bound(doubled(), target), np.arange(SIZE, dtype=np.float32)
    found.write(0, data)
    found.read(0)[:] = -1
    np.testing.assert_array_equal(found.read(0), data)
    with pytest.raises(ValueError, match=r"`a` .* 40 bytes, but got 44"):
        found.write(0, np.zeros(SIZE + 1, np.float32))


def a_call_is_complete_when_it_returns(target: Target) -> None:
    """The result is there, inputs and guard zones are as before; a second call works on new data."""
    found = bound(doubled(), target)
    found.poison_guards(b"\x7f\x01\xfe")
    for data in (np.arange(SIZE, dtype=np.float32), np.linspace(-1, 1, SIZE, dtype=np.float32)):
        found.write(0, data)
        found.run()
        np.testing.assert_array_equal(found.read(1), data + data)
        np.testing.assert_array_equal(found.read(0), data)
        assert found.guards_intact()


def time_makes_every_call(target: Target) -> None:
    """`time` calls as often as it says and gives positive seconds of one call; no calls are refused."""
    found = bound(counter(), target)
    found.write(0, np.zeros(1, np.int32))
    found.run()
    assert found.time(20) > 0
    assert found.read(0)[0] == 21
    with pytest.raises(ValueError, match="at least 1"):
        found.time(0)


def two_bound_kernels_do_not_share_memory(target: Target) -> None:
    """Each `bind` allocates."""
    executable = load_artifact(compile_lowered(counter(), target))
    first, second = executable.bind(), executable.bind()
    for found, start in ((first, 5), (second, 50)):
        found.write(0, np.array([start], np.int32))
        found.run()
    assert (first.read(0)[0], second.read(0)[0]) == (6, 51)


def scheduled_programs_are_verified(target: Target) -> None:
    """Tiles with ragged edges, vectors, padding and a workspace give the reference result, whatever the poison is."""
    work = workload("matmul", m=5, n=22, k=6)
    sch = Schedule(work.func)
    i, j, k = sch.get_loops("matmul")
    sch.transform_layout("matmul", ("read", 1), "lambda k, j: [j // 8, k, j % 8]", 0)
    j0, j1 = sch.split(j, [None, 8])
    i0, i1 = sch.split(i, [None, 2])
    sch.reorder(i0, j0, k, i1, j1)
    sch.cache_write("matmul", 0, "global")
    sch.decompose_reduction("matmul", k)
    sch.unroll(i1)
    sch.vectorize(j1)
    found = bound(lower(sch.func, target), target)
    verdict = verify(found, arguments_of(sch.func), make_samples(work.func, work.reference, 0))
    assert verdict.complete and verdict.seconds > 0


def names_have_any_letters(target: Target) -> None:
    """What the language takes for a name may be that of a function, a buffer or a loop; no two become one."""
    i, a, other, out = Var("é"), Buffer("größe", (SIZE,)), Buffer("grö_e", (SIZE,)), Buffer("höhe", (SIZE,))
    body = For(i, const(SIZE), Store(out, (i,), a[i] - other[i]), "parallel" if target.kind == "cpu" else "serial")
    found = bound(Lowered("kopie_é", (a, other, out), (), body), target)
    for number in range(2):
        found.write(number, np.full(SIZE, 5 - 2 * number, np.float32))
    found.run()
    np.testing.assert_array_equal(found.read(2), np.full(SIZE, 2, np.float32))


def a_chain_hands_memory_on(target: Target) -> None:
    """Calls run in their order in shared memory, each result where the next call reads; parts of a chain run alone."""
    step = BACKENDS[target.kind]().alignment
    places = [Place(0, 0), Place(0, step), Place(1, 0)]
    program, room = compile_lowered(doubled(), target), Place(1, step)
    calls = [Call(program, (places[0], places[1], room)), Call(program, (places[1], places[2], room))]
    chain, data = load_chain(calls, (2 * step, 2 * step), target.kind), np.arange(SIZE, dtype=np.float32)
    chain.write(places[0], data)
    chain.run()
    np.testing.assert_array_equal(chain.read(places[2], data.nbytes).view(np.float32), 4 * data)
    chain.write(places[0], 10 * data)
    chain.run(1, 2)
    np.testing.assert_array_equal(chain.read(places[2], data.nbytes).view(np.float32), 4 * data)
    seconds = chain.profile(0, 2)
    assert len(seconds) == 2 and min(seconds) > 0
    np.testing.assert_array_equal(chain.read(places[2], data.nbytes).view(np.float32), 40 * data)
    with pytest.raises(ValueError, match="other buffers than 2 places"):
        load_chain([Call(program, (places[0], places[1]))], (2 * step, 1), target.kind)


CHECKS: tuple[Callable[[Target], None], ...] = (
    buffers_have_names_and_physical_shapes, what_is_written_is_read, a_call_is_complete_when_it_returns,
    time_makes_every_call, two_bound_kernels_do_not_share_memory, scheduled_programs_are_verified,
    names_have_any_letters, a_chain_hands_memory_on,
)  # fmt: skip
