"""Every rule of `verify`, by a program that breaks it."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from stridesmith.ir.expr import (
    TRUE,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Load,
    Not,
    Ramp,
    Select,
    Undef,
    Var,
    const,
)
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import (
    Allocate,
    Assume,
    Attr,
    Block,
    Declare,
    For,
    If,
    Iter,
    Let,
    Module,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    loops,
)
from stridesmith.ir.verify.rules import RULES, VerifyError, verify

A = Buffer("A", (4,))
N = Buffer("N", (4,), "int32")
I, K, V, R, X = Var("i"), Var("k"), Var("v"), Var("r"), Var("x")  # noqa: E741
ZERO, ONE = const(0.0), const(1)
PASS = Seq(())


def func(body: Stmt, **fields: object) -> PrimFunc:
    return replace(PrimFunc("f", (A, N), Block("root", (), body)), **fields)  # type: ignore[arg-type]


def store(value: Expr = ZERO, index: Expr = ONE, buffer: Buffer = A) -> Store:
    return Store(buffer, (index,), value)


def loop(body: Stmt, **fields: object) -> For:
    return replace(For(I, const(4), body), **fields)  # type: ignore[arg-type]


def block(*iters: Iter, body: Stmt = PASS, **fields: object) -> Block:
    return replace(Block("b", iters, body), **fields)  # type: ignore[arg-type]


SPATIAL = Iter(V, 4, "spatial", I)

BROKEN: list[tuple[int, str, PrimFunc]] = [
    (1, "the name `i` is bound twice", func(Seq((loop(PASS), loop(PASS))))),
    (1, "the name `A` is bound twice", func(PASS, params=(A, A))),
    (1, "`T` is no name", func(Let(Var("T"), ONE, PASS))),
    (1, "`for` is no name", func(PASS, name="for")),
    (1, "the block name `b` is empty or used twice", func(Seq((block(), block())))),
    (2, "uses `i`, which is not defined here", func(store(index=I))),
    (2, "here it has type int64, not int32", func(loop(store(Cast("float32", Var("i", "int32")))))),
    (2, "uses the loop `i` around the block; bind an iterator to it", func(loop(block(SPATIAL, body=store(index=I))))),
    (2, "`r + 1 < 1` uses `r`", func(If(Binary("<", Binary("+", R, ONE), ONE), PASS), params=(A,))),
    (3, "buffer `X` is used where it is not allocated", func(store(buffer=Buffer("X", (4,))))),
    (3, "buffer `A` is used as float32[5] in global, but is declared as float32[4] in global",
     func(store(buffer=Buffer("A", (5,))))),
    (3, "buffer `X` is used where it is not allocated",
     func(Seq((Allocate(Buffer("X", (4,)), PASS), store(buffer=Buffer("X", (4,))))))),
    (4, "unknown kind `warp`", func(loop(PASS, kind="warp"))),
    (4, "loop `i` of kind thread_binding has the thread ``", func(loop(PASS, kind="thread_binding"))),
    (4, "loop `i` of kind serial has the thread `threadIdx.x`", func(loop(PASS, thread="threadIdx.x"))),
    (4, "loop `i` has type int64, its extent int32", func(loop(PASS, extent=Const(4, "int32")))),
    (4, "iterator `v` has kind `scan` and extent 4", func(loop(block(replace(SPATIAL, kind="scan"))))),
    (4, "iterator `v` has kind `spatial` and extent 0", func(loop(block(replace(SPATIAL, limit=0))))),
    (4, "iterator `v` has type int32, its binding int64", func(loop(block(replace(SPATIAL, var=Var("v", "int32")))))),
    (5, "of type int64 is stored to `A`, whose element here has type float32", func(store(ONE))),
    (5, "the operands of", func(store(Binary("+", ZERO, ONE)))),
    (5, "`/` in `1 / 1` does not take operands of type int64", func(store(index=Binary("/", ONE, ONE)))),
    (5, "`%` in", func(store(Binary("%", ZERO, ZERO)))),
    (5, "`+` in `True + True` does not take operands of type bool", func(If(Binary("+", TRUE, TRUE), PASS))),
    (5, "`and` in `1 and 1`", func(If(Binary("and", ONE, ONE), PASS))),
    (5, "negates a value of type int64", func(If(Not(ONE), PASS))),
    (5, "the condition `1` has type int64", func(If(ONE, PASS))),
    (5, "the condition of", func(store(Select(ONE, ZERO, ZERO)))),
    (5, "the two sides of", func(store(Select(TRUE, ZERO, ONE)))),
    (5, "must be a condition and two values", func(store(Call("if_then_else", (TRUE, ZERO))))),
    (5, "the function `magic` is unknown", func(store(Call("magic", (ZERO,))))),
    (5, "`fma` takes 3 arguments, but has 1", func(store(Call("fma", (ZERO,))))),
    (5, "is not defined for the type int32", func(store(Call("exp", (Const(1, "int32"),), "int32"), buffer=N))),
    (5, "has 2 indices, but the buffer has 1 dimensions", func(Store(A, (ONE, ONE), ZERO))),
    (5, "has type float32", func(store(index=ZERO))),
    (12, "is undef", func(store(index=Binary("+", ONE, Undef("int64"))))),
    (5, "the constant 0 is no value of type float32", func(store(Const(0, "float32")))),
    (5, "the constant 300 does not fit the type int8", func(store(Cast("float32", Const(300, "int8"))))),
    (5, "changes the number of lanes", func(store(Cast("float32x4", ZERO)))),
    (5, "needs a scalar integer base", func(store(Broadcast(ZERO, 4), Ramp(Ramp(ONE, ONE, 2), Ramp(ONE, ONE, 2), 4)))),
    (5, "needs a scalar and at least 2 lanes", func(store(Broadcast(ZERO, 1)))),
    (5, "whose element here has type float32x4", func(store(index=Ramp(const(0), ONE, 4)))),
    (5, "`x` has type int32, its value int64", func(Let(Var("x", "int32"), ONE, PASS))),
    (5, "unknown dtype `float99`", func(store(Cast("float32", Var("n", "float99"))), params=(A, Var("n", "float99")))),
    (12, "is undef, but decides", func(If(Binary("<", Undef(), ZERO), PASS))),
    (12, "uses undef other than in", func(Assume(Binary("<", Load(A, (ONE,)), Undef())))),
    (6, "`r` uses `r`, which is not defined here", func(loop(block(replace(SPATIAL, binding=R))))),
    (6, "`v < 1` uses `v`, which is not defined here", func(loop(block(SPATIAL, predicate=V < 1)))),
    (7, "there is an init, but no reduce iterator", func(loop(block(SPATIAL, init=PASS)))),
    (7, "the init uses the reduce iterator `r`",
     func(loop(block(Iter(R, 4, "reduce", I), init=store(index=R), body=store())))),
    (9, "has the shape (0,); extents are at least 1", func(Allocate(Buffer("X", (0,)), PASS))),
    (9, "unknown dtype `float99`", func(Allocate(Buffer("X", (4,), "float99"), PASS))),
    (9, "must ascend strictly between 0 and 2", func(Allocate(Buffer("X", (4, 4), axis_separators=(2,)), PASS))),
    (11, "shares memory of `Z`, which is not defined here", func(Declare(Buffer("X", (4,), data="Z"), PASS))),
    (11, "owns its memory and cannot name `A`", func(Allocate(Buffer("X", (4,), data="A"), PASS))),
    (10, "a layout names `Z`", func(PASS, layouts=(("Z", Layout.plain((4,))),))),
    (1, "the name `x` is bound twice, to `1` and to `2`",
     func(Seq((store(index=LetExpr(X, ONE, X)), store(index=LetExpr(X, const(2), X)))))),
    (1, "its normal form is `fi`", func(Let(Var("\ufb01"), ONE, PASS))),
    (2, "uses `x` outside of its let expression", func(store(index=Binary("+", LetExpr(X, ONE, X), X)), params=(A,))),
    (4, "loop `i` has the extent -1", func(loop(PASS, extent=const(-1)))),
    (4, "loop `i` has type int64x4", func(loop(PASS, var=Var("i", "int64x4"), extent=Broadcast(ONE, 4)))),
    (4, "the extent 1000 of iterator `v` does not fit int8",
     func(block(Iter(Var("v", "int8"), 1000, "spatial", Const(0, "int8"))))),
    (5, "the parameter `n` has the vector type float32x4", func(PASS, params=(Var("n", "float32x4"),))),
    (5, "`x` in `T.Let(x, where={x: T.float32(0.0)})` has type int64", func(store(index=LetExpr(X, ZERO, X)))),
    (5, "has 100000 lanes", func(store(index=Ramp(ONE, ONE, 100000)))),
    (6, "the body is no block `root`", PrimFunc("f", (), Block("main", (), PASS))),
    (6, "the body is no block `root`", PrimFunc("f", (), Block("root", (), PASS, Binary("<", ONE, ONE)))),
    (9, "fewer than 2**63 bytes", func(Allocate(Buffer("X", (2**40, 2**40)), PASS))),
    (9, "bytes in ``", func(Allocate(Buffer("X", (4,), scope=""), PASS))),
    (11, "names the view `W`; its memory is `A`",
     func(Declare(Buffer("W", (4,), data="A"), Declare(Buffer("X", (4,), data="W"), PASS)))),
    (11, "of 20 bytes views the 16 of `A`", func(Declare(Buffer("X", (5,), data="A"), PASS))),
    (11, "in local views `A`, which is in global", func(Declare(Buffer("X", (4,), scope="local", data="A"), PASS))),
    (12, "the condition of", func(store(Select(Binary("==", Undef(), ZERO), ZERO, ZERO)))),
    (12, "one side of", func(store(Cast("float32", Binary("<", Undef(), ZERO))))),
    (12, "an index of", func(store(Load(A, (Undef("int64"),))))),
    (12, "the value of `T.Let", func(store(LetExpr(Var("x", "float32"), Undef(), Var("x", "float32"))))),
    (12, "`T.undef(\"float32\")` is undef", func(Let(Var("x", "float32"), Undef(), PASS))),
    (12, "is undef, but decides", func(loop(PASS, extent=Undef("int64")))),
    (12, "uses undef other than in", func(Assume(Binary("==", Undef(), Undef())))),
    (13, "a sequence holds a sequence", func(Seq((store(), Seq((store(), store())))))),
    (13, "a sequence holds one statement", func(Seq((store(),)))),
    (13, "a sequence holds a sequence", func(Seq((PASS, store())))),
    (13, "is given twice", func(loop(PASS, annotations=(("a", 1), ("a", 2))))),
    (13, "the annotation 1j is no number", func(block(annotations=(("a", 1j),)))),
    (13, "the attribute `layouts` is reserved", func(PASS, attrs=(("layouts", 1),))),
    (13, "'stridesmith.scope' is no key", func(Attr("stridesmith.scope", ONE, PASS))),
    (13, "the attribute `k` is 3", func(Attr("k", 3, PASS))),  # type: ignore[arg-type]
    (10, "the logical shape of `A` is ()", func(PASS, layouts=(("A", Layout.parse((), "lambda: [0]", "", (4,))),))),
    (10, "`A` has the shape (4,), its layout (5,)",
     func(PASS, layouts=(("A", Layout.parse((4,), "lambda i: [i]", "", (5,))),))),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "sentence", "program"), BROKEN, ids=[f"{r} {s}" for r, s, _ in BROKEN])
def test_each_rule_refuses(rule: int, sentence: str, program: PrimFunc) -> None:
    """A program that breaks a rule is refused with the rule's number and the offending thing."""
    with pytest.raises(VerifyError) as caught:
        verify(program)
    assert caught.value.rule == rule, caught.value
    assert sentence in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).rule == rule


def test_module_with_two_functions_of_a_name() -> None:
    """A module's functions have different names, and each is verified."""
    with pytest.raises(VerifyError, match="the module has several functions `f`"):
        verify(Module((func(PASS), func(PASS))))
    with pytest.raises(VerifyError, match="rule 2"):
        verify(Module((func(store(index=I)),)))


def test_functions_of_a_module_share_buffers_by_name() -> None:
    """Rule 14: a parameter of one name is one buffer, with one layout."""
    first, second = func(PASS, name="g"), func(PASS)
    verify(Module((first, second)))
    other = replace(second, params=(Buffer("A", (8,)), N))
    with pytest.raises(VerifyError, match=r"rule 14: `g` and `f` share the buffer `A`, .* as float32\[4\] .*\[8\]"):
        verify(Module((first, other)))
    laid = replace(second, layouts=(("A", Layout.plain((4,))),))
    with pytest.raises(VerifyError, match=r"rule 14: .* different layouts"):
        verify(Module((first, laid)))


def test_undef_is_a_value_to_store_and_an_atom_of_assumptions() -> None:
    """Undef is accepted where nothing depends on it."""
    atom = Binary("==", Load(A, (ONE,)), Undef())
    verify(func(Assume(Binary("or", Binary("<", const(0), ONE), atom))))
    verify(func(store(Select(Binary("<", const(0), ONE), ZERO, Binary("*", ZERO, Undef())))))


def test_let_expressions_may_repeat_what_they_bind() -> None:
    """An expression that is copied brings its lets along."""
    let = LetExpr(X, ONE, X)
    verify(func(Seq((store(index=let), store(index=Binary("+", let, let))))))


def test_an_extent_that_no_array_gives_is_refused() -> None:
    """Rule 15: each integer of extents is a parameter, or stands alone in the shape of one."""
    found = parse("""
@T.prim_func
def main(a: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n * 2,), "float32")
    A[0] = T.float32(0)
""")
    assert isinstance(found, PrimFunc)
    with pytest.raises(VerifyError, match="no array gives `n`") as caught:
        verify(found)
    assert caught.value.rule == 15


def test_every_rule_has_a_refusal() -> None:
    """Each number of the catalogue is the answer to some program here."""
    here = {rule for rule, _, _ in BROKEN} | {8, 14, 15}
    assert here == {rule.number for rule in RULES}


def test_error_names_function_and_block() -> None:
    """The message says in which function and block the rule is broken."""
    with pytest.raises(VerifyError, match="rule 2: `f`: block `b`: "):
        verify(func(loop(block(SPATIAL, body=store(index=I)))))


def test_opaque_blocks_and_bare_loops_see_the_loops_around() -> None:
    """Only iterators close a block against the loops outside."""
    verify(func(loop(Block("opaque", (), store(index=I)))))
    verify(func(loop(store(index=I))))


def reduction(binding: Expr, predicate: Expr = TRUE) -> PrimFunc:
    """C[v] over loops k (4), i (4) in this order, v = i, r = binding."""
    update = Store(A, (V,), Load(A, (V,)))
    iters = (SPATIAL, Iter(R, 16, "reduce", binding))
    return func(loops([(K, 4), (I, 4)], block(*iters, body=update, predicate=predicate, init=store(index=V))))


@pytest.mark.parametrize(
    ("program", "first"),
    [
        (reduction(K), ""),
        (reduction(K, Binary("<", Binary("+", I, K), const(5))), ""),
        (reduction(K, Binary("or", Binary("<", K, const(2)), Binary("==", K, const(3)))), ""),
        (reduction(Binary("-", const(3), K)), "v=0, r=3"),
        (reduction(K, Binary(">", K, const(0))), "v=0, r=1"),
        (reduction(K, Binary(">=", Binary("+", I, K), const(3))), "v=0, r=3"),
        (reduction(Binary("%", Binary("+", K, I), const(4))), "v=1, r=1"),
    ],
)
def test_init_is_first(program: PrimFunc, first: str) -> None:
    """Rule 8: a reduction is accepted only if each spatial point starts at its all-zero reduce instance."""
    if not first:
        verify(program)
        return
    with pytest.raises(VerifyError) as caught:
        verify(program)
    assert caught.value.rule == 8
    assert f"the first instance of a spatial point is {first}; decompose the reduction first" in str(caught.value)


def test_init_that_depends_on_memory_is_refused() -> None:
    """What memory decides cannot be proven."""
    with pytest.raises(VerifyError, match="depends on memory"):
        verify(reduction(K, Binary("<", Load(N, (K,)), Const(1, "int32"))))


def test_large_unprovable_order_is_refused() -> None:
    """Instances too many to count are refused, not accepted."""
    text = """
@T.prim_func
def f(A: T.Buffer((4096,))):
    for k, i in T.grid(4096, 4096):
        with T.block("b"):
            v = T.axis.spatial(4096, i)
            r = T.axis.reduce(4096, (k + i) % 4096)
            with T.init():
                A[v] = 0.0
            A[v] += 1.0
"""
    with pytest.raises(VerifyError, match=r"rule 8: .*not provable"):
        verify(parse(text))


@pytest.mark.parametrize("condition, right", [("vk < n", True), ("vi * 8 + vk + 1 < n", True), ("n + vk < 5", False)])
def test_an_argument_that_wraps_around_decides_no_init(condition: str, right: bool) -> None:
    """With the largest n, ``n + vk < 5`` does not hold at the first point of the sum, and does at the second."""
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((4, 8)), n: T.int64, B: T.Buffer((4,))):
    for i, k in T.grid(4, 8):
        with T.block("b"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where({condition.replace("v", "")})
            with T.init():
                B[vi] = 0.0
            B[vi] += A[vi, vk]
""")
    if right:
        verify(func)
    else:
        with pytest.raises(VerifyError, match=r"rule 8: .*the order of its instances is unknown"):
            verify(func)
