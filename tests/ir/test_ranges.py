"""Extents that are expressions of parameters: what is read, printed, proven, refused, and computed."""

from __future__ import annotations

import numpy as np
import pytest
import ranged_programs
from ranged_programs import product, program

import stridesmith as ss
from stridesmith.ir.expr import Buffer, NotFixed, Var
from stridesmith.ir.extents import widened
from stridesmith.ir.interpreter.interpret import InterpreterError
from stridesmith.ir.ranges import fixed, preconditions
from stridesmith.ir.verify.bounds import OutOfBounds, check_in_bounds

MATMUL = ranged_programs.MATMUL.replace("n <= 64 and m <= 8", "n <= 512 and m <= 100")


@pytest.mark.parametrize("dialect", ["stridesmith", "tvm"])
def test_a_program_is_read_back_as_it_is_printed(dialect: str) -> None:
    """Handles, sizes, parameters and extents survive both dialects; extents are structure."""
    func = program(MATMUL)
    text = func.script(dialect)
    assert ss.parse(text) == func
    assert "n = T.int64()" in text and "T.match_buffer(A_handle, (n, 32)" in text and "T.Buffer((m * 4, 32)" in text
    assert program(MATMUL.replace("m * 4", "m * 8")) != func


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n = T.int64()", 'n = T.var("int64")'),
        ("T.int64()", "T.int32()"),
        ("m: T.int64", "m: T.int32"),
        ('T.match_buffer(a, (n, 32), "float32")', 'T.match_buffer(a, [n, 32], dtype="float32", strides=[32, 1])'),
        ('T.match_buffer(c, (n, m * 4), "float32")', 'T.match_buffer(c, (n, m * 4), strides=(m * 4, 1))'),
        ("T.grid(n, m * 4, 32)", "T.grid((0, n), m * 4, 32)"),
    ],
)  # fmt: skip
def test_spellings(old: str, new: str) -> None:
    """TVM's old and new spellings mean the same, in integers of either width."""
    func = program(MATMUL.replace(old, new))
    assert ss.parse(func.script()) == func and ss.parse(func.script("tvm")) == func
    ss.verify(func)
    check_in_bounds(func)
    product(func, 5, 2)


def reading(index: str, extent: str = "n") -> ss.PrimFunc:
    """A program that reads an array of `extent` elements at an index, in a loop of ``2 n + 3`` steps."""
    return program(f"""
    @T.prim_func
    def f(x: T.handle, p: T.Buffer((9,), "int64"), y: T.handle):
        n = T.int64()
        X = T.match_buffer(x, ({extent},), "float32")
        Y = T.match_buffer(y, (2 * n + 3,), "float32")
        T.assume(2 <= n and n <= 40)
        for i in range(2 * n + 3):
            Y[i] = X[{index}]
    """)


@pytest.mark.parametrize(
    ("index", "extent"),
    [
        ("i % n", "n"), ("(i * 3 + 5) % n", "n"), ("(i + n - 2) % n", "n"), ("i % (n + 2)", "n + 2"),
        ("T.if_then_else(i % (n + 2) < n, i % (n + 2), 0)", "n"), ("T.max(i % n - 1, 0)", "n - 1"),
        ("T.min(T.max(p[i % 9], 0), n - 1)", "n"), ("T.min(T.max(p[0] + p[1], 0), n - 1)", "n"),
        ("T.min(T.max(p[0] + T.if_then_else(p[0] < 0, n, 0), 0), n - 1)", "n"),
        ("T.min(T.max(i * n, 0), n - 1)", "n"),
    ],
)  # fmt: skip
def test_remainders_and_clamped_indices_are_proven_inside(index: str, extent: str) -> None:
    """Of ``i % n`` that it is below n, and of a clamp that it clamps, whatever stands in it."""
    check_in_bounds(reading(index, extent))


@pytest.mark.parametrize(
    ("index", "extent"),
    [
        ("i % n", "n - 1"), ("i % n + 1", "n"), ("i % (n - 2)", "n"), ("i % n - 1", "n"), ("n - i % n", "n"),
        ("T.min(T.max(p[i % 9], 0), n)", "n"), ("T.min(p[i % 9], n - 1)", "n"), ("T.max(p[0] + p[1], 0)", "n"),
        ("T.max(T.min(i * n, n - 1), -1)", "n"), ("T.if_then_else(i % (n + 2) <= n, i % (n + 2), 0)", "n"),
    ],
)  # fmt: skip
def test_what_may_be_outside_is_refused(index: str, extent: str) -> None:
    """One too many, and a divisor that may be 0."""
    with pytest.raises(OutOfBounds):
        check_in_bounds(reading(index, extent))


def test_scalars_may_stand_behind_the_buffers_that_use_them() -> None:
    """An annotation uses any integer parameter; the script is printed with a handle where Python would not know it."""
    func = program("""
    @T.prim_func
    def f(A: T.Buffer((n, 4), "float32"), n: T.int64):
        for i, j in T.grid(n, 4):
            A[i, j] = 1.0
    """)
    assert "A_handle: T.handle" in func.script() and ss.parse(func.script()) == func
    array = np.zeros((3, 4), np.float32)
    ss.interpret(func, array, 3)
    assert array.all()


SIZED = """
@T.prim_func
def f(A: T.Buffer((n, 4), "float32")):
    {}for i, j in T.grid(n, 4):
        A[i, j] = 1.0
"""


@pytest.mark.parametrize(
    "text",
    [
        'n = TypeVar("n")\n' + SIZED.format(""),
        SIZED.replace("((n,", '(("n",').format("n = T.int64()\n    "),
        SIZED.replace("((n,", '(("n",').format("T.func_attr({'tir.noalias': True})\n    n = T.int64()\n    "),
        SIZED.replace("((n,", '(("n",').format("k, n = T.int32(), T.int64()\n    "),
        SIZED.replace("((n,", '((" n ",').format('"""A docstring."""\n    n = T.int64()\n    '),
    ],
)
def test_sizes_of_signatures_are_those_of_handles(text: str) -> None:
    """apache-tvm 0.27 prints sizes as type variables, or in quotes where Python does not know them yet."""
    handle = SIZED.replace('A: T.Buffer((n, 4), "float32")', "a: T.handle").format(
        'n = T.int64()\n    A = T.match_buffer(a, (n, 4), "float32")\n    '
    )
    func = ss.parse(text)
    assert isinstance(func, ss.PrimFunc)
    assert ss.parse(func.script()) == func
    assert func.params == ss.parse(handle).params  # type: ignore[union-attr]
    assert func.body == ss.parse(handle).body  # type: ignore[union-attr]
    array = np.zeros((3, 4), np.float32)
    ss.interpret(func, array)
    assert array.all()


@pytest.mark.parametrize(
    ("extent", "sentence"),
    [('"n +"', "an extent of `A` must be an expression"), ('"n"', "must be a constant integer, but got `n`")],
)
def test_quoted_extents_that_mean_nothing_are_refused(extent: str, sentence: str) -> None:
    with pytest.raises(ss.ScriptError) as caught:
        ss.parse(SIZED.replace("((n,", f"(({extent},").format(""))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 2), (17, 3)])
def test_the_interpreter_takes_extents_from_arrays_and_scalars(n: int, m: int) -> None:
    """What a program computes is what the program of fixed shapes computes that its values make."""
    func = program(MATMUL)
    product(func, n, m)
    plain = fixed(func, {Var("n"): n, Var("m"): m})
    assert all(buffer.is_fixed for buffer in plain.buffers) and plain.buffers[2].shape == (n, m * 4)
    ss.verify(plain)
    product(plain, n, m)


@pytest.mark.parametrize(
    ("shapes", "m", "message"),
    [
        (((5, 32), (8, 32), (5, 12)), 3, "axis 0 of `B` must be m * 4 = 12, where m = 3, but the array has (8, 32)"),
        (((5, 32), (8, 32), (6, 8)), 2, "axis 0 of `C` must be n = 5, where n = 5, from axis 0 of `A`, but"),
        (((600, 32), (8, 32), (600, 8)), 2, "`matmul` is only for `n <= 512`, but n = 600, from axis 0 of `A`"),
        (((0, 32), (8, 32), (0, 8)), 2, "`matmul` is only for `1 <= n`, but n = 0, from axis 0 of `A`"),
        (((5, 32), (8, 32), (5, 8)), -2, "axis 0 of `B` must be m * 4 = -8, where m = -2, but the array has (8, 32)"),
        (((5,), (8, 32), (5, 8)), 2, "`A` has the extents (n, 32), but the array has (5,)"),
        (((5, 31), (8, 32), (5, 8)), 2, "axis 1 of `A` must be 32, but the array has (5, 31)"),
    ],
)  # fmt: skip
def test_wrong_calls_are_one_sentence(shapes: tuple[tuple[int, ...], ...], m: int, message: str) -> None:
    """Arrays that disagree, extents out of range, zero and negative ones are told with their values."""
    a, b, c = (np.zeros(shape, np.float32) for shape in shapes)
    with pytest.raises(InterpreterError) as refused:
        ss.interpret(program(MATMUL), a, m, b, c)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("index", "message"),
    [("vi + 1", "is outside at n = 1, vi = 0"), ("vi * 2", "is outside at n = 2, vi = 1"), ("vi - 1", "is outside at")],
)
def test_bounds_are_proven_for_all_values_or_refused_with_some(index: str, message: str) -> None:
    """An access outside comes with values of the parameters and a point."""
    check_in_bounds(program(MATMUL))
    with pytest.raises(OutOfBounds) as refused:
        check_in_bounds(program(MATMUL.replace("A[vi, vk]", f"A[{index}, vk]")))
    assert message in str(refused.value)


def test_what_is_assumed_of_parameters_carries_proofs() -> None:
    """Divisibility and ranges at the top are used, and are checked in each call."""
    text = """
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        T.assume(n % 8 == 0)
        for i, j in T.grid(n // 8, 8):
            B[i * 8 + 7 - j] = A[i * 8 + j]
    """
    func = program(text)
    check_in_bounds(func)
    a, b = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    ss.interpret(func, a, b)
    np.testing.assert_array_equal(b, a.reshape(2, 8)[:, ::-1].reshape(-1))
    with pytest.raises(InterpreterError, match=r"is only for `n % 8 == 0`, but n = 12"):
        ss.interpret(func, a[:12].copy(), b[:12].copy())
    with pytest.raises(OutOfBounds):
        check_in_bounds(program(text.replace("n // 8, 8", "(n + 7) // 8, 8").replace("T.assume(n % 8 == 0)", "")))


def test_an_assumption_that_is_false_of_every_call_proves_nothing_without_a_check() -> None:
    """Assumptions below the top, and those of programs of fixed shapes, stay promises that bounds do not rest on."""
    text = """
    @T.prim_func
    def f(a: T.handle, n: T.int64):
        A = T.match_buffer(a, (8,), "float32")
        T.assume(0 <= n and n < 8)
        A[n] = 1.0
    """
    assert preconditions(program(text)) == ()
    with pytest.raises(OutOfBounds):
        check_in_bounds(program(text))
    checked = program(text.replace("(8,)", "(n + 1,)"))
    check_in_bounds(checked)
    with pytest.raises(InterpreterError, match="is only for `n < 8`, but n = 8"):
        ss.interpret(checked, np.zeros(9, np.float32), 8)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("T.assume(n <= 512 and m <= 100)", "D = T.alloc_buffer((n - 3, 4))",
         "buffer `D` has the extent `n - 3`, which may be less than 1 at m = 1, n = 1"),
        ("n <= 512", "n <= -3", "no values of its integers meet all of its extents and assumptions"),
        ("(n, m * 4)", "(n * 2, m * 4)", ""),
        ("(n, 32)", "(n + 1, 32)", ""),
    ],
)  # fmt: skip
def test_rule_15(old: str, new: str, message: str) -> None:
    """Extents are at least 1 by what is known, and what is known can be met."""
    func = program(MATMUL.replace(old, new))
    if not message:
        ss.verify(func)  # another array gives `n`
        return
    with pytest.raises(ss.VerifyError) as refused:
        ss.verify(func)
    assert refused.value.rule == 15 and message in str(refused.value)


def test_a_size_that_no_array_gives_is_refused() -> None:
    """A size stands alone as an extent, or is a parameter."""
    text = """
    @T.prim_func
    def f(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n * 2,), "float32")
        for i in range(n):
            A[i] = 1.0
    """
    with pytest.raises(ss.VerifyError, match="no array gives `n`, which stands alone in no extent of a parameter"):
        ss.verify(program(text))


def test_what_an_extent_is_not() -> None:
    """Names without meaning and loops are no extents."""
    with pytest.raises(ss.ScriptError, match="an extent of `A` must be a constant integer, but got `q`"):
        ss.parse(MATMUL.replace("(n, 32)", "(q, 32)"))
    text = MATMUL.replace("        with T.block", "        D = T.decl_buffer((i + 1,))\n        with T.block")
    with pytest.raises(ss.ScriptError, match="computed from integer parameters of the function, and `i` is none"):
        ss.parse(text)


def test_whoever_needs_numbers_is_refused() -> None:
    """The shape of a buffer is numbers, or a sentence that names the parameters."""
    buffer = Buffer("A", (widened(Var("n", "int32") * 2), 4))
    with pytest.raises(NotFixed, match="an extent of `A` depends on `n`; here it must be a number"):
        assert buffer.shape
    assert buffer.rank == 2 and not buffer.is_fixed and Buffer("B", (3, 4)).shape == (3, 4)
