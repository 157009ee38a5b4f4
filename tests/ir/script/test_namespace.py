"""The namespace ``T`` as real Python: decorators, annotations, and expressions outside of functions."""

from __future__ import annotations

import pytest

from stridesmith.ir.expr import Buffer, Call, Cast, Const, Undef, Var
from stridesmith.ir.script import namespace as T
from stridesmith.ir.script.parser import ScriptError, parse
from stridesmith.ir.stmt import Module, PrimFunc

ROWS = 8


@T.prim_func
def double(A: T.Buffer((ROWS, 4), "float32"), B: T.Buffer((ROWS, 4), "float32"), n: T.int64):
    for i, j in T.grid(ROWS, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2


def test_decorated_function_is_a_program() -> None:
    """The decorator reads the source, and takes numbers from around the function."""
    assert isinstance(double, PrimFunc)
    assert double.params == (Buffer("A", (8, 4)), Buffer("B", (8, 4)), Var("n"))
    assert parse(double.script()) == double


def test_local_constants_and_options() -> None:
    """A function inside a function sees its locals; TVM's options are accepted, others refused."""
    columns = 3

    @T.prim_func(private=True)
    def local(A: T.Buffer((columns,), "float32")):
        for i in range(columns):
            A[i] = T.float32(columns / 2)

    assert local.buffers[0].shape == (3,) and "T.float32(1.5)" in local.script()
    with pytest.raises(TypeError, match="`prim_func` has no option `fast`"):
        T.prim_func(fast=True)


def test_class_of_functions_is_a_module() -> None:
    """The functions of a decorated class become a module in order."""

    @T.ir_module
    class Programs:
        @T.prim_func
        def one(A: T.Buffer((4,), "float32")):
            A[0] = 1

        @T.prim_func
        def two(a: T.handle):
            A = T.match_buffer(a, (4,), "float32")
            A[0] = 2

    assert isinstance(Programs, Module)
    assert [f.name for f in Programs.functions] == ["one", "two"]
    assert parse(Programs.script()) == Programs


def test_annotations_evaluate() -> None:
    """``T.Buffer[...]``, types of the namespace and TVM's options are annotations that Python can evaluate."""
    assert T.Buffer[(4, 4), "float16"] == Buffer("", (4, 4), "float16")
    assert T.Buffer[8, "int8"] == T.Buffer(8, T.int8) == Buffer("", (8,), "int8")
    assert T.Buffer[(4, 4)] == T.Buffer((4, 4), strides=[4, 1], scope="global") == Buffer("", (4, 4))
    with pytest.raises(AttributeError, match=r"no `T\.seriall`; did you mean `T\.serial`"):
        T.seriall(4)


def test_error_has_the_line_of_this_file() -> None:
    """A mistake in a decorated function is reported with the file's own line and column."""
    with pytest.raises(ScriptError) as caught:

        @T.prim_func
        def wrong(A: T.Buffer((4,), "float32")):
            A[0] = missing[0]  # noqa: F821  (the line that is reported)

    with open(__file__, encoding="utf-8") as file:
        line = next(n for n, text in enumerate(file, 1) if "missing[0]  #" in text)
    assert (caught.value.line, caught.value.column) == (line, 20)


def test_source_that_python_does_not_have() -> None:
    """Without source text the error says to pass the text."""
    space = {"T": T}
    with pytest.raises(OSError, match="the source of `f` is not available; pass its text to `parse`"):
        exec("@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    A[0] = 1", space)
    with pytest.raises(TypeError, match="`prim_func` decorates a function"):
        T.prim_func(3)  # type: ignore[call-overload]


def test_expressions_outside_of_functions() -> None:
    """Functions of expressions build expressions, statements say where they belong."""
    assert T.float32(1) == Const(1.0, "float32")
    assert T.exp(Var("x", "float32")) == Call("exp", (Var("x", "float32"),))
    assert T.Cast("int8", Var("i")) == Cast("int8", Var("i"))
    assert T.undef() == Undef("float32") and T.undef == "undef"
    with pytest.raises(TypeError, match=r"`T\.axis\.remap` belongs in a function decorated with `@T\.prim_func`"):
        T.axis.remap("S", [Var("i")])
    with pytest.raises(AttributeError, match=r"no `T\.nothing`"):
        T.nothing
    assert {"grid", "exp", "prim_func", "Buffer"} <= set(dir(T))
