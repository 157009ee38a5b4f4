"""Mistakes in the code of bytes, one at a time, in legal programs: verification catches every one of them.

Each is what a faulty pass could have made of a product, a convolution or a product by packed weights: signs that are
exchanged, a correction of the offset of 128 that is missing, wrong, added or that of other lanes, sums of 16 bits that
saturate, another zero point in the padding, a step of four that is dropped, the other half of a byte, a scale of the
block beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stridesmith.backends.data import arguments_of
from stridesmith.backends.devices import discover
from stridesmith.backends.kernel import compile_lowered, load_artifact
from stridesmith.backends.legal import program as legal_program
from stridesmith.backends.lower import lower
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import GUARD_BYTES, verify
from stridesmith.errors import WrongResult
from stridesmith.ir import dtypes
from stridesmith.ir.expr import Binary, Broadcast, Call, Cast, Const, Expr, Load, Shuffle, binary, const, variables
from stridesmith.ir.functions import DOT_CALLS
from stridesmith.ir.node import rebuild, walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc, Store
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import from_func

TARGET = discover("cpu", threads=1)
TYPES = {"u": "uint8", "s": "int8"}


def read(text: str) -> PrimFunc:
    func = parse(f"@T.prim_func\ndef main{text}")
    assert isinstance(func, PrimFunc)
    return func


def product(signs: str) -> PrimFunc:
    """A sum of eleven products of bytes, no multiple of four, for 3 by 20 elements."""
    return read(f'''(a: T.Buffer((3, 11), "{TYPES[signs[0]]}"), b: T.Buffer((11, 20), "{TYPES[signs[1]]}"),
         c: T.Buffer((3, 20), "int32")):
    for i, j, k in T.grid(3, 20, 11):
        with T.block("sum"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.int32(0)
            c[vi, vj] = c[vi, vj] + T.Cast("int32", a[vi, vk]) * T.Cast("int32", b[vk, vj])
''')


PADDED = read("""(x: T.Buffer((7, 9), "uint8"), w: T.Buffer((3, 5), "int8"), y: T.Buffer((5, 9), "int32")):
    p = T.alloc_buffer((7, 11), "uint8")
    for i, j in T.grid(7, 11):
        with T.block("pad"):
            vi, vj = T.axis.remap("SS", [i, j])
            p[vi, vj] = T.if_then_else(1 <= vj and vj < 10, x[vi, vj - 1], T.uint8(114))
    for c, j, i, k in T.grid(5, 9, 7, 3):
        with T.block("sum"):
            vc, vj, vi, vk = T.axis.remap("SSRR", [c, j, i, k])
            with T.init():
                y[vc, vj] = T.int32(0)
            y[vc, vj] = y[vc, vj] + T.Cast("int32", p[vi, vj + vk]) * T.Cast("int32", w[vk, vc])
""")

PACKED = read("""(a: T.Buffer((2, 32), "float32"), w: T.Buffer((20, 2, 8), "uint8"), s: T.Buffer((20, 2), "float32"),
         c: T.Buffer((2, 20), "float32")):
    for m, n, k in T.grid(2, 20, 32):
        with T.block("sum"):
            vm, vn, vk = T.axis.remap("SSR", [m, n, k])
            with T.init():
                c[vm, vn] = T.float32(0)
            c[vm, vn] = c[vm, vn] + a[vm, vk] * (
                (T.Cast("float32", T.bitwise_and(T.shift_right(w[vn, vk // 16, vk % 16 // 2],
                T.Cast("uint8", vk % 2 * 4)), T.uint8(15))) - T.float32(8)) * s[vn, vk // 16])
""")


def scheduled(func: PrimFunc, wanted: str) -> PrimFunc:
    """A candidate of a sketch with this in its name."""
    space = generate(func, TARGET)
    sketch = next((s for s in space.sketches if wanted in s.name), None)
    if sketch is None:
        pytest.skip(f"no candidate of {TARGET.name} has `{wanted}`")
    # One with vectors along columns: along rows all lanes of a correction are the same, and a turned one is no mistake.
    return sketch.schedule(sketch.draw(np.random.default_rng(5), 1)[0]).func


PROGRAMS: dict[str, Callable[[], tuple[PrimFunc, PrimFunc]]] = {
    **{
        f"dot_{signs}": lambda signs=signs: (product(signs), scheduled(product(signs), ",dot="))  # type: ignore[misc]
        for signs in ("ss", "us")
    },
    "padded": lambda: (PADDED, PADDED),
    "packed": lambda: (PACKED, PACKED),
}  # fmt: skip


def edit(stmt: Any, number: int, change: Any) -> Any:
    """`stmt` with its `number`-th node in program order replaced by ``change(node)``."""
    count = -1

    def visit(node: Any) -> Any:
        nonlocal count
        count += 1
        return change(node) if count == number else rebuild(node, visit)

    return visit(stmt)


def _named(node: Call, name: str) -> Call:
    return replace(node, name=name)


def _saturated(node: Call) -> Expr:
    """The dot product with a sum of too few bits, as `vpmaddubsw` has 16: so few that one product alone shows it."""
    lanes = node.dtype.partition("x")[2]
    ends = [const(end, "int32") for end in (-(2**13), 2**13 - 1)]
    low, high = ends if not lanes else [Broadcast(end, int(lanes)) for end in ends]
    none = const(0, "int32") if not lanes else Broadcast(const(0, "int32"), int(lanes))
    alone = replace(node, args=(*node.args[:2], none))
    return Binary("+", node.args[2], Binary("max", Binary("min", alone, high), low))


def _sums(loop: For) -> bool:
    """Whether the iterations of a loop add to what the ones before have left, and so count all."""
    updates = [n for n in walk(loop.body) if isinstance(n, Store) and Load(n.buffer, n.indices) in walk(n.value)]
    return any(loop.var not in {v for i in store.indices for v in variables(i)} for store in updates)


def mistakes(node: Any) -> Iterator[tuple[str, Any]]:
    """What a faulty pass could have made of one node; none of it means the same."""
    if isinstance(node, Call) and node.name in DOT_CALLS:
        for name in DOT_CALLS:
            if name != node.name:
                yield f"{node.name} became {name}", lambda n, name=name: _named(n, name)
        if all(any(isinstance(n, Load) for n in walk(factor)) for factor in node.args[:2]):  # no sum of an offset
            yield "sums of 14 bits", _saturated
    if isinstance(node, Store) and isinstance(node.value, Binary) and node.value.op == "-":
        yield "offset not corrected", lambda n: replace(n, value=n.value.a)
        yield "offset added", lambda n: replace(n, value=Binary("+", n.value.a, n.value.b))
        lanes = dtypes.lanes(node.value.dtype)
        turned = Shuffle((node.value.b,), tuple(const((lane - 1) % lanes) for lane in range(lanes)))
        if lanes > 1:  # as of a correction that is transposed
            yield "offset of the lanes beside", lambda n: replace(n, value=replace(n.value, b=turned))
    if isinstance(node, Const) and node.dtype == "int32" and node.value < -(2**30):
        yield "another offset", lambda n: Const(n.value + 1, n.dtype)
    if isinstance(node, Const) and node.dtype == "uint8" and node.value == 114:
        yield "another zero point", lambda n: Const(113, n.dtype)
        yield "zeros for the zero point", lambda n: Const(0, n.dtype)
    if isinstance(node, Cast) and node.a.dtype in ("uint8", "int8") and node.dtype == "int32":
        other = {"uint8": "int8", "int8": "uint8"}[node.a.dtype]
        yield "bytes of the other sign", lambda n: Cast(n.dtype, Cast(other, n.a))
    if isinstance(node, For) and isinstance(node.extent, Const) and node.extent.value > 1 and _sums(node):
        yield "dropped step", lambda n: replace(n, extent=binary("-", n.extent, const(1)))
    if isinstance(node, Const) and node.dtype.startswith("uint8") and node.value in (4, 15):
        yield "another half", lambda n: Const(n.value - 1, n.dtype)
    if isinstance(node, Load) and node.buffer.name == "s":
        yield "the scale beside", lambda n: replace(n, indices=(*n.indices[:-1], binary("+", n.indices[-1], 1)))


def verified(func: PrimFunc, candidate: PrimFunc) -> None:
    work = from_func(func)
    artifact = compile_lowered(lower(candidate, TARGET), TARGET)
    bound = load_artifact(artifact).bind(guard_bytes=16 * GUARD_BYTES)
    verify(bound, arguments_of(candidate), make_samples(func, work.reference, 5))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_mistake_of_bytes_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right program passes, and each of its mutants, which are made where code is printed, is told to be wrong."""
    func, candidate = PROGRAMS[name]()
    passes, seen = legal_program.PASSES, []

    def noted(stmt: Any, target: Any) -> Any:
        seen.append(stmt)
        return stmt

    monkeypatch.setattr(legal_program, "PASSES", (*passes, ("noted", noted)))
    verified(func, candidate)
    nodes = enumerate(walk(seen[-1]))
    found = [(f"{text} at node {n}", n, change) for n, node in nodes for text, change in mistakes(node)]
    assert len(found) >= 3
    missed = []
    for text, number, change in found:
        mutant = ("mutant", lambda stmt, target, number=number, change=change: edit(stmt, number, change))
        monkeypatch.setattr(legal_program, "PASSES", (*passes, mutant))
        try:
            verified(func, candidate)
            missed.append(text)
        except WrongResult:
            pass
    assert missed == [], f"{len(missed)} of {len(found)} were missed"
