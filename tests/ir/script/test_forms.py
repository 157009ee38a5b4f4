"""Every form of TVMScript that users paste, and what it means."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.ir.expr import Broadcast, Buffer, Call, Cast, Const, LetExpr, Load, Ramp, Undef, Var, const
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import walk
from stridesmith.ir.passes.transform import simplify
from stridesmith.ir.script.parser import MAX_DEPTH, ScriptError, parse
from stridesmith.ir.stmt import Allocate, Attr, Block, Declare, Evaluate, For, Let, PrimFunc, Seq, Stmt, Store, blocks
from stridesmith.ir.text import expr_text
from stridesmith.ir.verify.rules import verify

HEAD = '@T.prim_func\ndef f(A: T.Buffer((16,), "float32"), N: T.Buffer((8,), "int32"), n: T.int32):\n'
TVM_HEAD = HEAD.replace("prim_func", "prim_func(s_tir=True)")


def func(body: str, head: str = HEAD) -> PrimFunc:
    """The valid function with this body, which survives printing."""
    text = head + "".join(f"    {line}\n" for line in body.splitlines())
    result = parse(text)
    assert isinstance(result, PrimFunc)
    verify(result)
    assert parse(result.script()) == result and parse(result.script("tvm")) == result
    return result


def body(text: str, head: str = HEAD) -> Stmt:
    return func(text, head).body.body


A, N, X = Buffer("A", (16,)), Buffer("N", (8,), "int32"), Var("x", "float32")
ZERO, ONE = Const(0.0, "float32"), Const(1.0, "float32")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("T.float16(0.5)", Cast("float32", Const(0.5, "float16"))),
        ('T.float32("inf")', Const(float("inf"), "float32")),
        ("T.float32(1 / 4)", Const(0.25, "float32")),
        ("1 / 4", Const(1.0, "float32") / Const(4.0, "float32")),
        ("T.Cast('float32', T.bool(True))", Cast("float32", const(True))),
        ("T.undef()", Undef("float32")),
        ("T.Cast('float32', T.undef())", Undef("float32")),
        ("T.Cast('float32', T.Cast('int8', T.undef()))", Cast("float32", Undef("int8"))),
        ("A[0] if n < 1 else 0", Call("if_then_else", (Var("n", "int32") < Const(1, "int32"), A[0], ZERO))),
        ("T.Cast(T.float32, n)", Cast("float32", Var("n", "int32"))),
        ("n.astype('float32')", Cast("float32", Var("n", "int32"))),
        ("T.Let(x * x, where={x: A[1]})", LetExpr(X, A[1], X * X)),
        ("T.meta_var(2)", Const(2.0, "float32")),
    ],
)  # fmt: skip
def test_values(text: str, value: object) -> None:
    """A value has the type that is written, or that its neighbours have."""
    store = body(f"A[0] = {text}")
    assert isinstance(store, Store) and store.value == value


def test_let_expressions_nest_and_share_equal_bindings() -> None:
    """Several names are bound in order; one name for one value is kept, for another value renamed."""
    first = func("A[0] = T.Let(x + y, where={x: A[1], y: x * A[2]})\nA[1] = T.Let(x, where={x: A[1]})")
    assert "T.Let(T.Let(x + y, where={y: x * A[2]}), where={x: A[1]})" in first.script()
    assert {n.var.name for n in walk(first.body) if isinstance(n, LetExpr)} == {"x", "y"}
    second = func("A[0] = T.Let(x, where={x: A[1]})\nA[1] = T.Let(x, where={x: A[2]})")
    assert {n.var.name for n in walk(second.body) if isinstance(n, LetExpr)} == {"x", "x_1"}


def test_typed_variables_are_bound_by_lets() -> None:
    """``x = T.int32()`` gives a variable its type, as TVM prints it."""
    store = body("x = T.int32()\nN[0] = T.Let(x + 1, where={x: 3})")
    assert isinstance(store, Store) and store.value == LetExpr(
        Var("x", "int32"), Const(3, "int32"), Var("x", "int32") + Const(1, "int32")
    )
    with pytest.raises(ScriptError, match="`x` has a type, but no value here"):
        body("x = T.var('int32')\nN[0] = x")


@pytest.mark.parametrize(
    "text",
    [
        "x: T.float32 = A[1]\nA[0] = x",
        "x: T.let = A[1]\nA[0] = x",
        "x: T.let[T.float32] = A[1]\nA[0] = x",
        "x = A[1]\nA[0] = x",
        "x = T.bind(A[1])\nA[0] = x",
        "x = T.bind(A[1], T.float32)\nA[0] = x",
        "x = T.LetStmt(A[1])\nA[0] = x",
        "with T.LetStmt(A[1]) as x:\n    A[0] = x",
        "with T.LetStmt(A[1], T.float32) as x:\n    A[0] = x",
        "with T.LetStmt(A[1], dtype='float32') as x:\n    A[0] = x",
        "x = T.float32()\nwith T.LetStmt(A[1], var=x):\n    A[0] = x",
        "x = T.var('float32')\nwith T.let(x, A[1]):\n    A[0] = x",
    ],
)
def test_lets(text: str) -> None:
    """Every spelling of a let is one node."""
    x = Var("x", "float32")
    assert body(text) == Let(x, A[1], Store(A, (const(0),), x))


def test_let_that_ends_before_its_suite() -> None:
    """A let whose body is a part of its suite stays so in both dialects."""
    first, second = Store(A, (const(0),), Var("x", "float32")), Store(A, (const(1),), ZERO)
    both = body("with T.LetStmt(A[1]) as x:\n    A[0] = x\nA[1] = 0")
    assert both == Seq((Let(Var("x", "float32"), A[1], first), second))


@pytest.mark.parametrize(
    ("header", "kind", "extent", "index"),
    [
        ("range(8)", "serial", 8, "i"),
        ("T.serial(8)", "serial", 8, "i"),
        ("T.serial(0, 8)", "serial", 8, "i"),
        ("T.serial(stop=8, start=0)", "serial", 8, "i"),
        ("T.serial(2, 8)", "serial", 6, "i + 2"),
        ("range(1, 8, 3)", "serial", 3, "i * 3 + 1"),
        ("T.serial(0, 8, step=4)", "serial", 2, "i * 4"),
        ("T.grid(8)", "serial", 8, "i"),
        ("T.grid((2, 8))", "serial", 6, "i + 2"),
        ("T.parallel(8)", "parallel", 8, "i"),
        ("T.vectorized(0, 8)", "vectorized", 8, "i"),
        ("T.unroll(8, annotations={'peel': True})", "unrolled", 8, "i"),
        ("T.thread_binding(8, thread='threadIdx.x')", "thread_binding", 8, "i"),
        ("T.thread_binding(0, 8, 'blockIdx.y')", "thread_binding", 8, "i"),
    ],
)
def test_loops(header: str, kind: str, extent: int, index: str) -> None:
    """Every kind of loop starts at 0 and steps by 1."""
    loop = body(f"for i in {header}:\n    A[i] = 0")
    assert isinstance(loop, For) and (loop.kind, loop.extent, loop.var.dtype) == (kind, const(extent), "int64")
    assert f"A[{index}] = T.float32(0.0)" in func(f"for i in {header}:\n    A[i] = 0").script()


def test_loops_of_other_types() -> None:
    """A typed bound gives a loop its type; a plain one is an index."""
    loop = body("for i in range(T.int32(8)):\n    N[i] = i")
    assert isinstance(loop, For) and loop.var == Var("i", "int32") and loop.extent == Const(8, "int32")
    loop = body("for i in T.serial(T.int32(0), n):\n    N[i] = 0")
    assert isinstance(loop, For) and loop.var == Var("i", "int32") and loop.extent == Var("n", "int32")
    loop = body("for i in range(n):\n    N[i] = 0")
    assert isinstance(loop, For) and loop.extent == Cast("int64", Var("n", "int32"))


def test_launched_threads_are_loops() -> None:
    """``T.launch_thread`` as a statement and in a ``with`` is a bound loop around the rest."""
    expected = body("for x in T.thread_binding(4, thread='threadIdx.x'):\n    A[x] = 0")
    assert body("x = T.launch_thread('threadIdx.x', 4)\nA[x] = 0") == expected
    assert body("with T.launch_thread('threadIdx.x', 4) as x:\n    A[x] = 0") == expected


@pytest.mark.parametrize("name", ["block", "sblock"])
def test_blocks(name: str) -> None:
    """Iterators, predicate, init, annotations and allocations make a block."""
    root = func(f"""
for i, j in T.grid(8, 4):
    with T.{name}("b"):
        vi = T.axis.S(8, i)
        vj = T.axis.R((0, 4), j)
        T.where(i + j < 9)
        T.reads([A[vi], A[vj]])
        T.writes(N[vi])
        T.{name}_attr({{"pragma": ("x", 1)}})
        with T.init():
            N[vi] = 0
        N[vi] += 1
        T.evaluate(A[vi] + A[vj])""")
    block = next(b for b in blocks(root) if b.name == "b")
    assert [(i.var.name, i.extent, i.kind) for i in block.iters] == [("vi", 8, "spatial"), ("vj", 4, "reduce")]
    assert block.init is not None and block.annotations == (("pragma", ("x", 1)),)
    assert expr_text(block.predicate) == "i + j < 9"


def test_opaque_blocks_and_ordered_iterators() -> None:
    """A block without iterators sees the loops around; scan is read as opaque."""
    block = body("for i in range(8):\n    with T.block('o'):\n        v = T.axis.scan(8, i)\n        N[v] = 0")
    assert isinstance(block, For) and isinstance(block.body, Block) and block.body.iters[0].kind == "opaque"
    opaque = body("for i in range(8):\n    with T.block('o'):\n        N[i] = 0")
    assert isinstance(opaque, For) and isinstance(opaque.body, Block) and not opaque.body.iters


@pytest.mark.parametrize(
    "annotation",
    ['T.Buffer((4, 4), "float32")', 'T.Buffer[(4, 4), "float32"]', "T.Buffer((4, 4))",
     'T.Buffer([4, 4], dtype="float")',
     "T.Buffer((4, 4), T.float32)", "T.Buffer[(4, 4)]", 'T.Buffer((4, 4), "float32", strides=[4, 1], elem_offset=0)',
     'T.Buffer((4, 4), "float32", scope="", align=64, offset_factor=1, buffer_type="default")'],
)  # fmt: skip
def test_buffer_annotations(annotation: str) -> None:
    """Old and new spellings of a parameter are one buffer."""
    result = parse(f"@T.prim_func\ndef f(X: {annotation}):\n    pass")
    assert isinstance(result, PrimFunc) and result.params == (Buffer("X", (4, 4)),)


def test_old_annotation_of_one_extent() -> None:
    """``T.Buffer[16, "float32"]`` has one dimension."""
    result = parse('@T.prim_func\ndef f(X: T.Buffer[16, "int8"], Y: T.Buffer[(16,)], Z: T.Buffer[16]):\n    pass')
    assert isinstance(result, PrimFunc)
    assert [b.shape for b in result.buffers] == [(16,)] * 3 and result.buffers[0].dtype == "int8"


def test_handles_get_their_buffers() -> None:
    """By ``T.match_buffer`` with or without the handle, or by the first view that is declared over it."""
    text = """
@T.prim_func
def f(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4, 4), "float16", scope="global.texture", axis_separators=[1])
    B = T.match_buffer(shape=(16,), dtype="float32")
    C = T.decl_buffer((8,), "int8", data=c)
    C[0] = 1
"""
    result = parse(text)
    assert isinstance(result, PrimFunc)
    assert result.params == (
        Buffer("A", (4, 4), "float16", "global.texture", (1,)), Buffer("B", (16,)), Buffer("c", (8,), "int8"),
    )  # fmt: skip
    view = Buffer("C", (8,), "int8", data="c")
    assert result.body.body == Declare(view, Store(view, (const(0),), Const(1, "int8")))


def test_memory_and_views() -> None:
    """RFC 0070: an allocation, views of it, a view of a view, and both at once where there is no data."""
    plain = Buffer("D", (16,), "float32", "local")
    view = Buffer("V", (4,), "float32x4", "local", data="D")
    store = Store(view, (const(0),), Broadcast(ZERO, 4))
    text = "D = T.allocate([16], 'float32', 'local')\nV = T.decl_buffer([4], 'float32x4', data={}, scope='local')"
    for data in ("D", "D.data"):
        assert body(text.format(data) + "\nV[0] = 0") == Allocate(plain, Declare(view, store))
    sugar = body("V = T.decl_buffer([4], 'float32x4', scope='local')\nV[0] = 0")
    assert sugar == Allocate(Buffer("V_data", (4,), "float32x4", "local"),
                             Declare(Buffer("V", (4,), "float32x4", "local", data="V_data"),
                                     Store(Buffer("V", (4,), "float32x4", "local", data="V_data"), (const(0),),
                                           Broadcast(ZERO, 4))))  # fmt: skip
    chain = func("V = T.buffer_decl([4], 'float32x4', data=A.data)\nW = T.decl_buffer([8], 'float32x2', data=V.data)")
    assert {n.buffer.name: n.buffer.data for n in walk(chain.body) if isinstance(n, Declare)} == {"V": "A", "W": "A"}
    short = func("V = A.view(4, 4)\nW = A.view('int32')\nV[1, 1] = 0\nW[0] = 1")
    assert [(b.shape, b.dtype, b.data) for b in (n.buffer for n in walk(short.body) if isinstance(n, Declare))] == [
        ((4, 4), "float32", "A"), ((16,), "int32", "A"),
    ]  # fmt: skip


def test_alloc_buffer_belongs_to_the_block_or_stands_where_it_stands() -> None:
    """The classic ``T.alloc_buffer`` is the block's; in functions of apache-tvm 0.27 it is a statement."""
    text = "A[0] = 0\nX = T.alloc_buffer((4,), 'float32')\nX[0] = 1"
    assert func(text).body.allocs == (Buffer("X", (4,)),)
    lowered = func(text, TVM_HEAD)
    assert not lowered.body.allocs and any(isinstance(n, Allocate) for n in walk(lowered.body))
    own = func(text.replace("alloc", "sblock_alloc"), TVM_HEAD)
    assert own.body.allocs == (Buffer("X", (4,)),)
    local = func("X = T.alloc_local((4,))\nX[0] = 0", TVM_HEAD).body.body
    assert isinstance(local, Allocate) and local.buffer.scope == "local"


@pytest.mark.parametrize("text", ["T.attr(0, 'k', 3)\nA[0] = 0", "with T.attr({'k': 3}):\n    A[0] = 0"])
def test_attributes(text: str) -> None:
    """Both forms of an attribute are one node around the rest."""
    assert body(text) == Attr("k", const(3), Store(A, (const(0),), ZERO))
    note = body("with T.attr('x', 'k', 'v'):\n    T.evaluate(n)")
    assert note == Attr("k", "v", Evaluate(Var("n", "int32")))


def test_vectors() -> None:
    """Slices are ramps, scalars are broadcast, and the type of an access follows RFC 0039."""
    store = body("V = T.decl_buffer((4,), 'float32x4', data=A.data)\nA[0:8:2] = V[0] + 1")
    assert isinstance(store, Declare) and isinstance(store.body, Store)
    assert store.body.indices == (Ramp(const(0), const(2), 4),)
    view = Buffer("V", (4,), "float32x4", data="A")
    assert store.body.value == view[0] + Broadcast(ONE, 4)
    assert Load(view, (Ramp(const(0), const(1), 2),)).dtype == "float32x8"


def test_asserted_types_are_checked() -> None:
    """``assert`` on a type, as RFC 0039 writes it, is checked and leaves nothing."""
    assert body("assert A[T.ramp(0, 1, 4)].dtype == 'float32x4'") == Seq(())
    with pytest.raises(ScriptError, match=r"`A\[0\]` has type float32, not 'int8'"):
        body("assert A[0].dtype == 'int8'")
    with pytest.raises(ScriptError, match="the message of an assertion is a string, but got"):
        body("assert n == 3, n")


def test_plain_integers_may_be_those_of_tvm() -> None:
    """``integers="int32"`` gives loops, iterators and lone numbers 32 bits, and prints back so."""
    text = """
@T.prim_func(s_tir=True)
def f(A: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("b"):
            v = T.axis.spatial(8, i)
            A[v] = T.Cast("float32", v)
"""
    func = parse(text, integers="int32")
    assert isinstance(func, PrimFunc)
    assert {v.dtype for v in walk(func) if isinstance(v, Var)} == {"int32"}
    assert "for i in range(T.int32(8))" in func.script("tvm")
    assert parse(func.script("tvm")) == func
    with pytest.raises(ValueError, match="`integers` is a type of integers, but is `float32`"):
        parse(text, integers="float32")


def test_several_items_of_a_with() -> None:
    """``with a, b:`` is ``with a:`` around ``with b:``."""
    one = body("with T.allocate([4]) as X, T.allocate([4]) as Y:\n    X[0] = Y[0]")
    assert one == body("with T.allocate([4]) as X:\n    with T.allocate([4]) as Y:\n        X[0] = Y[0]")


def test_layouts_and_separators_are_attributes_for_tvm() -> None:
    """What TVM has no words for goes into attributes, and comes back."""
    text = """
@T.prim_func
def f(A: T.Buffer((4, 4), "float32", axis_separators=[1])):
    T.func_attr({"layouts": {"A": ((14,), "lambda i: [i // 4, i % 4]", "")}, "deep": {"a": {"b": (1, 2)}}})
    B = T.alloc_buffer((4, 4), "float32", axis_separators=[1])
    B[0, 0] = A[0, 0]
"""
    result = parse(text)
    assert isinstance(result, PrimFunc)
    tvm = result.script("tvm")
    assert '"axis_separators": {"A": (1,), "B": (1,)}' in tvm and "axis_separators=" not in tvm
    assert parse(tvm) == result and result.layouts[0][1].logical_shape == (14,)
    assert result.attrs == (("deep", (("a", (("b", (1, 2)),)),)),)


def test_integers_have_their_types_for_tvm() -> None:
    """TVM's plain integers have 32 bits, ours 64, so that the types are written where nothing else gives them."""
    text = func("for i, j in T.grid(4, 2):\n    with T.block('b'):\n        vi, vj = T.axis.remap('SS', [i, j])\n"
                "        A[vi * 2 + vj] = T.Cast('float32', T.min(1, 2))").script("tvm")  # fmt: skip
    assert "T.grid(T.int64(4), T.int64(2))" in text and "A[vi * 2 + vj] = " in text
    assert 'T.Cast("float32", T.min(T.int64(1), T.int64(2)))' in text


def test_programs_at_the_limit_of_nesting_are_usable() -> None:
    """What is nested as deeply as allowed can be printed, compared, verified, simplified and interpreted."""
    terms = MAX_DEPTH - 8
    sums = (["n"] * terms, ["T.Cast('int32', A[1])"] * (terms - 4))
    result = func("\n".join(f"N[{n}] = {' + '.join(items)}" for n, items in enumerate(sums)))
    array, counts = np.ones(16, np.float32), np.zeros(8, np.int32)
    interpret(simplify(result), array, counts, 2)
    assert counts[:2].tolist() == [2 * terms, terms - 4]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("for i in T.seriall(4):\n    pass", "did you mean `T.serial`"),
        ("A[0] = T.expp(A[1])", "unknown function `T.expp`; did you mean `T.exp`?"),
        ("A[0] = T.grid(4)", "`T.grid` is not a value and cannot stand here"),
        ("T.evalute(A[0])", "did you mean `T.evaluate`"),
        ("with T.blok('b'):\n    pass", "did you mean `T.block`"),
        ("with T.block('b'):\n    v = T.axis.spatal(4, 0)", "did you mean `T.axis.spatial`"),
        ("X = T.alloc_buffer((4,), scop='local')", "a buffer has no option `scop`; did you mean `scope`?"),
        ("X = T.alloc_buffer((4, 4), strides=[3, 1])", "differ from the dense ones, (4, 1)"),
        ("X = T.alloc_buffer((4,), elem_offset=n)", "`elem_offset` of `X` must be None or 0"),
        ("X = T.alloc_buffer((4,), elem_offset=2)", "`elem_offset` of `X` must be None or 0"),
        ("X = T.alloc_buffer((4,), data=A.data)", "`T.alloc_buffer` has memory of its own"),
        ("X = T.decl_buffer((4,), data=Q.data)", "`Q` is not defined"),
        ("with T.allocate([4]) as X:\n    pass\nY = T.decl_buffer((4,), data=X)",
         "`X` is out of scope here; it was defined in line 3"),
        ("X = T.decl_buffer((4,), data=n)", "`n`, of line 2, is not a buffer but a int32"),
        ("A = T.alloc_buffer((4,))", "`A` is already defined, in line 2"),
        ("n[0] = 1", "`n`, of line 2, is not a buffer but a int32"),
        ("N[0] = 2.5", "the number 2.5 is no int32"),
        ("A[0] = 1e39", "the number 1e+39 is no float32"),
        ("A[0] = T.Cast('float32', T.float16(65520.0))", "the number 65520.0 is no float16"),
        ("A[0] = T.float32(" + "9" * 39 + ")", "is no float32"),
        ("N[0] = T.int8(300)", "the number 300 is no int8"),
        ("A[T.Ramp(0, 1, 1)] = 0", "the lanes of a vector are a constant of 2 to 65535"),
        ("A[0] = T.Select(1)", "`T.Select`: takes (cond, a, b), but got 1 argument"),
        ("T.attr(A, 'k', 1)", "only attributes of no node"),
        ("for i in T.serial(4, thread='threadIdx.x'):\n    pass", "`thread=` is for `T.thread_binding`"),
        ("for i in range(4, stepp=2):\n    pass", "a loop has no option `stepp`; did you mean `step`?"),
        ("with T.block('b'):\n    T.where(n < 3)\n    T.where(n < 4)", "a block has one `T.where(condition)`"),
        ("x = 3 + nn", "did you mean `n`, of line 2?"),
        ("A[0] = T.exp(*A)", "written out, without `*` and `**`"),
        ("T.grid(4)", "`T.grid` does not stand alone here"),
        ("A[0] = 1 // 0 + nothing", "`nothing` is not defined"),
        ("X = T.alloc_buffer((4 // 0,))", "`4 // 0` divides by zero"),
    ],
)  # fmt: skip
def test_errors_name_what_was_meant(text: str, sentence: str) -> None:
    """A mistake is answered in the user's words, with the nearest known one or the line of the definition."""
    with pytest.raises(ScriptError) as caught:
        func(text)
    assert sentence in caught.value.message
    lines = HEAD.splitlines() + [f"    {line}" for line in text.splitlines()]
    assert caught.value.source == lines[caught.value.line - 1]


def test_decorators_with_a_slip() -> None:
    """A file whose only decorator is misspelt is told so."""
    with pytest.raises(ScriptError, match=r"did you mean `@T\.prim_func`"):
        parse("@T.prim_fun\ndef f():\n    pass")
