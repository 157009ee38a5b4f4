"""Attributes, let expressions, narrow loops and indices, and memory of vectors in plainer words."""

from __future__ import annotations

import pytest

from stridesmith.backends.lower import LoweringError, lower
from stridesmith.backends.passes.flatten import flatten_buffers
from stridesmith.backends.passes.plain import plain_statements
from stridesmith.ir.expr import (
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Load,
    Ramp,
    Var,
    binary,
    const,
)
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Attr, Declare, Evaluate, For, Let, PrimFunc, Stmt, Store
from stridesmith.ir.target import Target

CPU = Target(threads=1, vector_bits=256, registers=16)
A, X, V = Buffer("A", (64,), "float32"), Var("x", "float32"), Var("i")


def store(value: Expr) -> Store:
    return Store(A, (const(0),), value)


def test_let_expressions_become_let_statements() -> None:
    """What is evaluated in any case is bound once, before the statement."""
    square = LetExpr(X, A[1], X * X)
    assert plain_statements(store(square)) == Let(X, A[1], store(X * X))


def test_let_expressions_in_lazy_places_are_written_out() -> None:
    """What may not be evaluated stays where it is."""
    lazy = Call("if_then_else", (binary("<", V, 3), LetExpr(X, Load(A, (V,)), X * X), const(0.0)))
    plain = plain_statements(For(V, const(70), store(lazy)))
    value = next(n.value for n in walk(plain) if isinstance(n, Store))
    assert value == Call("if_then_else", (binary("<", V, 3), A[V] * A[V], const(0.0)))


def test_let_expressions_that_grow_are_refused() -> None:
    """Doubling a value twenty times inside a conditional would be a million operations."""
    value: Expr = A[V]
    for number in range(20):
        var = Var(f"x{number}", "float32")
        value = LetExpr(var, value, var + var)
    with pytest.raises(LoweringError, match="bind them by a let statement"):
        plain_statements(store(Call("if_then_else", (binary("<", V, 3), value, const(0.0)))))


def test_attributes_go() -> None:
    """An attribute is a note, of which nothing is left."""
    assert plain_statements(Attr("key", "value", store(X))) == store(X)


def test_narrow_loops_count_in_64_bits() -> None:
    """The variable of an int32 loop is cast where it is a value, and is an index by itself."""
    j = Var("j", "int32")
    plain = plain_statements(For(j, Const(8, "int32"), Store(A, (j + Const(1, "int32"),), Cast("float32", j))))
    wide = Var("j")
    assert plain == For(wide, const(8), Store(A, (wide + 1,), Cast("float32", Cast("int32", wide))))


def test_an_index_that_may_overflow_is_computed_in_its_type() -> None:
    """An int8 sum that may wrap around is cast as a whole."""
    j = Var("j", "int8")
    index = binary("+", j, Const(100, "int8"))
    plain = plain_statements(For(j, Const(40, "int8"), Store(A, (index,), X)))
    found = next(n.indices[0] for n in walk(plain) if isinstance(n, Store))
    assert isinstance(found, Cast) and found.dtype == "int64" and found.a.dtype == "int8"


VECTORS = Buffer("V", (4, 4), "float32x4")


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ((V, const(2)), Ramp((V * 4 + 2) * 4, const(1), 4)),
        ((V, Ramp(const(1), const(1), 2)), Ramp((V * 4 + 1) * 4, const(1), 8)),
    ],
)
def test_memory_of_vectors_is_memory_of_their_scalars(indices: tuple[Expr, ...], expected: Ramp) -> None:
    """A vector element, or several next to each other, are a ramp of scalars."""
    flat = flatten_buffers(Evaluate(Load(VECTORS, indices)), False)
    load = next(n for n in walk(flat) if isinstance(n, Load))
    assert load == Load(Buffer("V", (64,), "float32"), (expected,))


def test_a_stride_over_vectors_counts_each_of_their_scalars() -> None:
    """Every second of four vectors of four: lane k is at (2 * (k // 4)) * 4 + k % 4."""
    flat = flatten_buffers(Evaluate(Load(VECTORS, (const(0), Ramp(const(0), const(2), 2)))), False)
    load = next(n for n in walk(flat) if isinstance(n, Load))
    assert load.dtype == "float32x8" and load.indices[0].dtype == "int64x8"
    wide = Broadcast(const(4), 8)
    assert [n for n in walk(load.indices[0]) if isinstance(n, Broadcast) and n == wide]


def test_vectors_in_memory_of_two_axes_have_an_index_of_all_lanes_on_each() -> None:
    """Two rows of one vector of four are eight lanes: a row four times, then the next."""
    texture = Buffer("V", (4, 4), "float32x4", "global", (1,))
    flat = flatten_buffers(Evaluate(Load(texture, (Ramp(V, const(2), 2), const(1)))), True)
    load = next(n for n in walk(flat) if isinstance(n, Load))
    assert load.buffer.shape == (4, 16) and {i.dtype for i in load.indices} == {"int64x8"}


def view(dtype: str, shape: int, body: str) -> PrimFunc:
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((16,)), B: T.Buffer((16,))):
    v = T.decl_buffer(({shape},), "{dtype}", data=A.data)
    for i in range({shape}):
        {body}
""")
    assert isinstance(func, PrimFunc)
    return func


def buffers(stmt: Stmt) -> set[Buffer]:
    return {n.buffer for n in walk(stmt) if isinstance(n, (Load, Store))}


def test_a_view_of_the_same_scalars_is_the_memory_itself() -> None:
    """Vectors and other shapes of the same element type leave no view."""
    body = lower(view("float32x4", 4, "B[T.Ramp(i * 4, 1, 4)] = v[i]"), CPU).body
    assert {b.name for b in buffers(body)} == {"A", "B"}
    assert not any(isinstance(n, Declare) for n in walk(body))


def test_a_view_of_another_type_names_its_memory() -> None:
    """A view by another element type stays a buffer of that type over its owner's memory."""
    body = lower(view("int16", 32, "B[i // 2] = T.Cast('float32', v[i])"), CPU).body
    assert Buffer("v", (32,), "int16", data="A") in buffers(body)


def test_a_variable_of_two_values_in_one_statement_is_refused() -> None:
    """A let expression may bind its variable again to an equal value, and to no other."""
    twice = [LetExpr(X, A[place], X * X) for place in (1, 2)]
    same = plain_statements(store(twice[0] + twice[0]))
    assert same == Let(X, A[1], store(X * X + X * X))
    with pytest.raises(LoweringError, match="let expressions of one statement bind `x` to different values"):
        plain_statements(store(twice[0] + twice[1]))
