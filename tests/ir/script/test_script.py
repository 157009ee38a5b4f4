"""Printing and parsing: golden texts, TVM's spellings, whole files, and errors that say where."""

from __future__ import annotations

import pickle
import sys

import pytest

from stridesmith.ir.expr import Binary, Buffer, Call, Cast, Const, Load, Not, Select, Undef, Var, const
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.script.parser import ScriptError, parse
from stridesmith.ir.stmt import Block, For, Iter, Module, PrimFunc, Seq, Store, blocks, script
from stridesmith.ir.text import expr_text

MATMUL = """\
# from stridesmith import T
@T.prim_func
def matmul(A: T.Buffer((16, 14), "float32"), B: T.Buffer((14, 16), "float32"), C: T.Buffer((16, 16), "float32")):
    for i, j, ko in T.grid(16, 16, 4):
        for ki in T.unroll(4, annotations={"peel": True}):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                vk = T.axis.reduce(14, ko * 4 + ki)
                T.where(ko * 4 + ki < 14)
                with T.init():
                    C[vi, vj] = T.float32(0.0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

LOWERED = """\
# from stridesmith import T
@T.prim_func
def lowered(A: T.Buffer((64,), "float32"), n: T.int32, image: T.Buffer((8, 8), "float16", axis_separators=[1])):
    T.func_attr({"pass": ("a", 1, (2.5,), None), "layouts": {"A": ((14,), "lambda i: [i + 8]", "0.0")}})
    for block in T.thread_binding(4, thread="blockIdx.x"):
        with T.allocate([16], "float32", scope="local") as tile:
            tile[T.Ramp(0, 1, 8)] = T.Broadcast(T.float32("-inf"), 8)
            T.evaluate(tile[3])
        x: T.float32 = A[block * 16] / T.float32(3.0)
        other = T.decl_buffer((8, 8), "float32", data=A.data)
        with T.LetStmt(block % 2 + 1, T.int64) as half:
            other[0, half] = x
        if half_is(block):
            pass
"""


def test_matmul_prints_as_tvm_would_print_it() -> None:
    """A classic program is printed as the text it was read from."""
    assert parse(MATMUL).script() == MATMUL


LOWERED_TEXT = LOWERED.replace(
    "        if half_is(block):\n            pass\n",
    '        if block < 2 and not (block == 1 or T.Cast("int64", n) < 3):\n'
    '            T.assume(A[0] == T.undef("float32"))\n'
    "        elif block > 2:\n            pass\n        else:\n            image[0, 1] = T.float16(0.5)\n",
)  # fmt: skip


def test_lowered_nodes_print_as_they_were_read() -> None:
    """Allocations, aliases, lets, vectors, layouts and attributes have one text each."""
    assert parse(LOWERED_TEXT).script() == LOWERED_TEXT


def test_tvm_dialect_is_parsed_back() -> None:
    """The text for apache-tvm uses its names and means the same program."""
    func = parse(MATMUL)
    text = func.script("tvm")
    assert "@T.prim_func(s_tir=True)" in text and 'T.sblock("C")' in text
    assert all(line.startswith("#") for line in text.splitlines() if "import" in line)
    assert parse(text) == func


def test_unknown_dialect_is_refused() -> None:
    """A dialect that does not exist is an error that lists the known ones."""
    with pytest.raises(ValueError, match="unknown dialect `relax`; known are stridesmith, tvm"):
        parse(MATMUL).script("relax")


i, j = Var("i"), Var("j")
A = Buffer("A", (4, 4))
HALF = Const(0.5, "float32")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ((i + 1) * 2, "(i + 1) * 2"),
        (Binary("-", i, Binary("-", j, i)), "i - (j - i)"),
        (Binary("-", Binary("-", i, j), i), "i - j - i"),
        (Binary("//", Const(-7), Const(2)), "-7 // 2"),
        (Binary("<", Binary("<", i, j), const(True)), "(i < j) < True"),
        (Not(Binary("and", i < j, Not(i < 3))), "not (i < j and not i < 3)"),
        (Binary("or", Binary("and", i < 1, j < 1), i < 2), "i < 1 and j < 1 or i < 2"),
        (Binary("and", i < 1, Binary("and", j < 1, i < 2)), "i < 1 and (j < 1 and i < 2)"),
        (Const(float("inf"), "float32"), 'T.float32("inf")'),
        (Const(-0.0, "float64"), "T.float64(-0.0)"),
        (Const(3, "int8"), "T.int8(3)"),
        (Binary("min", i, Const(3)), "T.min(i, 3)"),
        (Call("if_then_else", (i < j, A[i, j], HALF)), "T.if_then_else(i < j, A[i, j], T.float32(0.5))"),
        (Select(i < j, A[i, j], Undef()), 'T.Select(i < j, A[i, j], T.undef("float32"))'),
        (Cast("float32", i), 'T.Cast("float32", i)'),
        (Call("my_device_function", (i,), "float32"), 'T.call_extern("float32", "my_device_function", i)'),
        (Load(Buffer("S", ()), ()), "S[()]"),
    ],
)  # fmt: skip
def test_expression_text(expr: object, text: str) -> None:
    """An expression is written with the fewest parentheses that keep its shape."""
    assert expr_text(expr) == text  # type: ignore[arg-type]


def test_one_line_and_its_column_are_blamed() -> None:
    """An error carries line and column counted from 1, the source line, and a caret under the place."""
    with pytest.raises(ScriptError) as caught:
        parse("import tvm\n@T.prim_func\ndef f(A: T.Buffer((4,))):\n    for i in range(4):\n        A[i] = A[k]\n")
    error = caught.value
    assert (error.line, error.column, error.source) == (5, 18, "        A[i] = A[k]")
    assert str(error).splitlines() == ["line 5, column 18: `k` is not defined", "    A[i] = A[k]", "             ^"]
    assert pickle.loads(pickle.dumps(error)).column == 18


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1.0 + " * 100_000 + "$", "$"),
        ("b" * 1_000_000, "bbb"),
        ("1.0" + " " * 300_000 + "+ missing  # " + "x" * 300_000, "missing"),
    ],
)  # fmt: skip
def test_an_error_repeats_little_of_a_long_line(text: str, shown: str) -> None:
    """Of a megabyte what is around the place, and the caret still points at it."""
    head = "@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n"
    with pytest.raises(ScriptError) as raised:
        parse(f"{head}    A[0] = {text}\n")
    assert len(str(raised.value)) < 1500
    *_, line, caret = str(raised.value).splitlines()
    assert line[caret.index("^") :].startswith(shown)


HEAD = '@T.prim_func\ndef f(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4,), "int32")):\n'


IN_LOOP = "for i in range(4):\n        "
IN_BLOCK = "with T.block('b'):\n        "
IN_BOTH = IN_LOOP + "with T.block('b'):\n            "


@pytest.mark.parametrize(
    ("body", "line", "column", "sentence"),
    [
        ("A[0] = 1", 3, 5, "`A` has shape (4, 4), but 1 index is given"),
        ("A[0, 0:1] = 1", 3, 10, "a slice is a vector of indices"),
        ("A = 1", 3, 5, "`A` is already defined, in line 2; choose another name, or store to an element"),
        ("x = A[0, 0]\n    x = x + 1", 4, 5, "`x` is already defined, in line 3"),
        (IN_LOOP + IN_LOOP + "    pass", 4, 13, "`i` is already defined, in line 3"),
        ("for i in [1, 2]:\n        pass", 3, 14, "a loop is over `T.grid` or one of `range`"),
        ("for i, j in T.grid(4):\n        pass", 3, 9, "`T.grid` has 2 variables for 1 extents"),
        ("for i in range(0, 4, 0):\n        pass", 3, 26, "the step of a loop must be positive"),
        ("while True:\n        pass\n    else:\n        pass", 3, 5, "a `while` has no `else` in the script"),
        ("A[0, 0] = foo(1)", 3, 15, "`foo` is no function of the script"),
        ("A[0, 0] = T.foo(1)", 3, 15, "unknown function `T.foo`"),
        ("A[0, 0] = T.exp(1, 2)", 3, 15, "`T.exp`: takes 1 argument, but got 2"),
        ("A[0, 0] = T.Cast('float99', 1)", 3, 15, "unknown dtype `float99`"),
        ("A[0, 0] = A", 3, 15, "buffer `A` needs indices here"),
        ("A[0, 0] = 'x'", 3, 15, "expected a number"),
        ("A[0, 0] = 1 if", 3, 19, "invalid syntax" if sys.version_info < (3, 12) else "expected 'else'"),
        (IN_BLOCK + "v = T.axis.spatial(4, 0)\n    A[v, 0] = 1", 5, 7,
         "`v` is out of scope here; it was defined in line 4"),
        (IN_LOOP + "v = T.axis.spatial(4, i)", 4, 9, "`T.axis` binds iterators at the top of a block"),
        (IN_LOOP + "T.where(i < 3)", 4, 9, "`T.where` belongs at the top"),
        (IN_BLOCK + "v = T.axis.remap('S', [A])", 4, 32, "`T.axis.remap` takes loop variables"),
        (IN_BOTH + "v = T.axis.remap('X', [i])", 5, 30, "unknown axis kind `X`"),
        ("X = T.alloc_buffer((0,))", 3, 24, "the extents of `X` must be at least 1"),
        ("X = T.alloc_buffer((n,))", 3, 25, "an extent of `X` must be a constant integer, but got `n`"),
        ("X = T.decl_buffer((4,), data=Y.data)", 3, 34, "`Y` is not defined"),
        ("T = T.alloc_buffer((4,))", 3, 5, "`T` is the script's namespace"),
        ("for i in T.thread_binding(4, thread='warp'):\n        pass", 3, 41, "`thread=` must be one of blockIdx.x"),
        ("A[0, 0] = T.Broadcast(A[0, 0], 4)", 3, 15, "the value stored to `A`: 4 lanes do not fit"),
        ("A[0, 0] = B[0] @ B[1]", 3, 15, "the operator of `B[0] @ B[1]` is not supported"),
        ("A[0, 0] = ii", 3, 15, "`ii` is not defined"),
    ],
)  # fmt: skip
def test_every_mistake_has_its_place_and_sentence(body: str, line: int, column: int, sentence: str) -> None:
    """A mistake is reported where it stands, in words that say what was expected."""
    with pytest.raises(ScriptError) as caught:
        parse(HEAD + "    " + body)
    assert sentence in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


def test_near_miss_is_suggested() -> None:
    """An unknown name that resembles a known one is answered with it."""
    with pytest.raises(ScriptError, match="did you mean `weight`"):
        parse("@T.prim_func\ndef f(weight: T.Buffer((4,))):\n    wieght[0] = 1")


def test_file_with_several_functions_needs_a_name() -> None:
    """One of several functions is chosen by name; without one the error lists them."""
    text = MATMUL + "\n" + LOWERED_TEXT
    assert parse(text, "lowered").name == "lowered"  # type: ignore[union-attr]
    with pytest.raises(ScriptError, match="several functions \\(`matmul`, `lowered`\\)"):
        parse(text)
    with pytest.raises(ScriptError, match=r"no function `matmull` .did you mean `matmul`"):
        parse(text, "matmull")
    with pytest.raises(ScriptError, match=r"no `@T\.prim_func` function"):
        parse("x = 1")


def test_whole_file_of_tvm() -> None:
    """Imports, constants, classes, handles, old annotations and other code of a TVM file are understood or skipped."""
    text = '''
"""A tutorial."""
import numpy as np
from tvm.script import tirx as T
M = K = 16
N, BLOCK = M * 2, 4

def helper(x):
    return x.numpy()

@I.ir_module
class Mod:
    I.module_attrs({"x": 1})

    @T.prim_func(private=True)
    def first(a: T.handle, b: T.Buffer[(M,), "float32"]) -> None:
        """A docstring."""
        T.func_attr({"global_symbol": "first", "tir.noalias": T.bool(True)})
        A = T.match_buffer(a, [M, N // BLOCK], dtype="float32")
        with T.block("root"):
            T.reads(A[0:16, 0])
            T.writes()
            c = T.sblock_alloc_buffer([M])
            for i in T.serial(2, 2 + M // BLOCK):
                with T.block("x"):
                    vi = T.axis.S(16, i)
                    T.reads(A[vi, 0])
                    T.writes(c[vi])
                    c[vi] = A[vi, 0] * 2 + K

    @T.prim_func
    def second(A: T.Buffer((4,))):
        A[0] += 1

if __name__ == "__main__":
    print(helper(Mod))
'''
    module = parse(text)
    assert isinstance(module, Module) and [f.name for f in module.functions] == ["first", "second"]
    first = module["first"]
    assert [(p.name, p.shape) for p in first.buffers] == [("A", (16, 8)), ("b", (16,))]
    assert first.attrs == (("global_symbol", "first"), ("tir.noalias", True))
    assert first.body.name == "root" and first.body.allocs[0].shape == (16,)
    store = next(n for b in blocks(first) if b.name == "x" for n in [b.body])
    assert (
        store
        == parse(
            "@T.prim_func\ndef f(A: T.Buffer((16, 8)), c: T.Buffer((16,)), vi: T.int64):\n"
            "    c[vi] = A[vi, 0] * T.float32(2) + T.float32(16)"
        ).body.body
    )  # type: ignore[union-attr]
    assert parse(module.script()) == module
    assert parse(text, "second") == module["second"]


def test_loops_start_at_zero() -> None:
    """A loop with a start or a step runs from 0, and its name means the shifted value."""
    func = parse(HEAD + "    for i in range(1, 8, 3):\n        B[i // 2] = T.Cast('int32', i)")
    assert isinstance(func, PrimFunc)
    loop = func.body.body
    assert isinstance(loop, For) and loop.extent == const(3)
    assert script(loop) == 'for i in range(3):\n    B[(i * 3 + 1) // 2] = T.Cast("int32", i * 3 + 1)\n'


def test_axis_with_a_start_is_shifted() -> None:
    """An iterator over [2, 6) becomes one over [0, 4)."""
    body = "    for i in range(2, 6):\n        with T.block('b'):\n            {}\n            B[v - 2] = 0"
    texts = [body.format(axis) for axis in ("v = T.axis.remap('S', [i])", "v = T.axis.spatial((2, 6), i)")]
    first, second = (parse(HEAD + t) for t in texts)
    assert first == second
    block = next(b for b in blocks(first) if b.name == "b")
    assert block.iters == (Iter(Var("v"), 4, "spatial", Var("i")),)


def test_names_that_are_bound_twice_are_renamed() -> None:
    """A name stands for one thing in the whole function, so the second binding gets a number."""
    text = HEAD + "    for i in range(4):\n        B[i] = 0\n    for i in range(4):\n        B[i] = 1"
    func = parse(text)
    assert isinstance(func, PrimFunc) and isinstance(func.body.body, Seq)
    assert [s.var.name for s in func.body.body.stmts] == ["i", "i_1"]  # type: ignore[attr-defined]
    assert parse(func.script()) == func


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("A[0, 0] * 2", "A[0, 0] * T.float32(2)"),
        ("-A[0, 0]", "T.float32(0) - A[0, 0]"),
        ("A[0, 0] + B[0]", 'A[0, 0] + T.Cast("float32", B[0])'),
        ("B[0] % 2", "T.Cast('float32', B[0] % T.int32(2))"),
        ("A[0, 0] if B[0] > 1 else 0", "T.if_then_else(B[0] > T.int32(1), A[0, 0], T.float32(0))"),
        ("T.float32(1 / 4)", "T.float32(0.25)"),
        ("A[0, 0] ** 2", "T.pow(A[0, 0], T.float32(2))"),
        ("T.max(A[0, 0], 0)", "T.Max(A[0, 0], T.float32(0))"),
        ("B[0].astype('float32')", "T.cast(B[0], 'float32')"),
        ("T.if_then_else(0 <= B[0] < 3, A[0, 0], T.undef())",
         "T.if_then_else(T.int32(0) <= B[0] and B[0] < T.int32(3), A[0, 0], T.undef('float32'))"),
        ("T.min_value('float32')", "T.float32(-3.4028234663852886e38)"),
        ("T.infinity('float32')", "T.float32('inf')"),
        ("T.exp(1)", "T.exp(T.float32(1))"),
        ("B[T.floordiv(B[0], 2)]", "T.Cast('float32', B[B[0] // T.int32(2)])"),
    ],
)  # fmt: skip
def test_shorthand_means_its_long_form(text: str, same: str) -> None:
    """Numbers take the type beside them, mixed types are promoted as TVM does, aliases are the same function."""
    assert parse(f"{HEAD}    A[1, 1] = {text}") == parse(f"{HEAD}    A[1, 1] = {same}")


def test_slices_are_vectors() -> None:
    """A slice of constant length, as TVM prints it, is a ramp."""
    short = parse(HEAD + "    for i in range(2):\n        A[0, i * 2:i * 2 + 2] = A[1, 0:4:2]")
    long = parse(HEAD + "    for i in range(2):\n        A[0, T.Ramp(i * 2, 1, 2)] = A[1, T.Ramp(0, 2, 2)]")
    assert short == long


def test_explicit_root_keeps_its_annotations() -> None:
    """A root block with attributes is printed as a block, one without is left out."""
    buffer = Buffer("A", (4,))
    inner = Block("root", (), Store(buffer, (const(0),), const(1.0)))
    for body in (Block("root", (), inner.body, annotations=(("a", 1),)), inner, Block("root", (), inner)):
        func = PrimFunc("f", (buffer,), body)
        assert parse(func.script()) == func or body.body is inner
    text = PrimFunc("f", (buffer,), inner).script()
    assert "T.block" not in text


def test_layouts_and_attributes_survive() -> None:
    """What a function's attributes hold is printed and read back, infinities and nested tuples included."""
    buffer = Buffer("A", (2, 8))
    layouts = (("A", Layout.parse((14,), "lambda i: [i // 8, i % 8]", "undef", (2, 8))),)
    attrs = (("a", (1, (2.5, float("-inf")), ())), ("b", 'it\'s "quoted"\n'), ("c", None))
    func = PrimFunc("f", (buffer,), Block("root", (), Seq(())), layouts, attrs)
    assert parse(func.script()) == func
