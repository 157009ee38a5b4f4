"""Conditions go where what then runs is harmless, come back where what then stops is, and else stay for a reason."""

from __future__ import annotations

import numpy as np
import pytest
from flow_programs import programs
from hypothesis import given, settings
from scale import scaled

from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.passes.branching import branch, remove_overcompute_through_branching
from stridesmith.ir.passes.overcompute import overcompute, remove_branching_through_overcompute
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Block, For, PrimFunc, blocks
from stridesmith.ir.verify.rules import verify

CONV = """
@T.prim_func
def main(A: T.Buffer(({rows}, 4), "float32"), F: T.Buffer((3,), "float32"), B: T.Buffer((4, 4), "float32")):
    for io, ii in T.grid(4, 4):
        if 4 * io + ii < 14:
            B[io, ii] = T.float32(0)
            for f in range(3):
                B[io, ii] = B[io, ii] + F[f] * A[io + (ii + f) // 4, (ii + f) % 4]
    for io, ii in T.grid(4, 4):
        if io == 3 and ii >= 2:
            B[io, ii] = T.float32(0)
"""

SUM = """
@T.prim_func
def main(A: T.Buffer((4, 4), "{dtype}"), W: T.Buffer((4, 4), "{dtype}"), C: T.Buffer((1,), "{dtype}")):
    {attrs}
    for io, ii in T.grid(4, 4):
        T.assume(4 * io + ii < 14 or A[io, ii] == {a})
    for io, ii in T.grid(4, 4):
        T.assume(4 * io + ii < 14 or W[io, ii] == {w})
    C[0] = {start}
    for io, ii in T.grid(4, 4):
        if 4 * io + ii < 14:
            C[0] = {update}
"""


def func(text: str) -> PrimFunc:
    result = parse(text)
    assert isinstance(result, PrimFunc)
    return result


def summed(
    update: str = "C[0] + A[io, ii] * W[io, ii]", a: object = 0.0, w: object = 0.0, dtype: str = "float32",
    start: object = 0.0, attrs: str = "",
) -> PrimFunc:  # fmt: skip
    """The sum of products over 14 elements of two padded inputs, with pad values `a` and `w`."""

    def text(value: object) -> str:
        if value == "undef":
            return f'T.undef("{dtype}")'
        return f"T.{dtype}({value})" if not isinstance(value, str) else f'T.{dtype}("{value}")'

    return func(SUM.format(dtype=dtype, a=text(a), w=text(w), start=text(start), update=update, attrs=attrs or "pass"))


def removed(before: PrimFunc) -> PrimFunc:
    after = remove_branching_through_overcompute(before)
    verify(after)
    return after


def refusals(before: PrimFunc) -> str:
    """Why conditions stay, all of them."""
    after, found = overcompute(before, before.body)
    assert after is before
    return "\n".join(map(str, found))


def conditions(program: PrimFunc) -> int:
    return program.script().count("if ") + program.script().count("T.where")


def packed(values: np.ndarray, pad: float, shape: tuple[int, int] = (4, 4)) -> np.ndarray:
    full = np.full(shape[0] * shape[1], pad, values.dtype)
    full[: len(values)] = values
    return full.reshape(shape)


def outputs(program: PrimFunc, *inputs: np.ndarray) -> np.ndarray:
    out = program.buffers[-1]
    result = np.full(out.shape, 77, out.dtype)
    interpret(program, *inputs, result)
    return result


def test_stores_that_are_overwritten_later_may_run_everywhere() -> None:
    """The RFC's convolution: the epilogue stores the pad values afterwards, so the extra stores are dead."""
    before = func(CONV.format(rows=5))
    after = removed(before)
    assert conditions(after) == 1
    rng = np.random.default_rng(0)
    inputs = rng.integers(-3, 4, (5, 4)).astype("float32"), rng.integers(-3, 4, 3).astype("float32")
    np.testing.assert_array_equal(outputs(before, *inputs), outputs(after, *inputs))


def test_a_read_outside_of_the_buffer_is_refused_with_the_point() -> None:
    """Without a fifth row the same overcompute would read beyond the input."""
    assert "at io=3, ii=2, f=2 the body would read A[4, 0], outside of its shape" in refusals(func(CONV.format(rows=4)))


def test_what_is_read_in_any_case_is_given_by_the_caller() -> None:
    """An output that is read before it is written holds something, for whoever may call the function at all."""
    body = """
@T.prim_func
def f(A: T.Buffer((2,), "int32"), X: T.Buffer((16,), "int32")):
    for i in range(16):
        if i > 0{other}:
            A[0] = A[0] + T.Cast("int32", i * i){more}
"""
    func = parse(body.format(other="", more=""))
    new = remove_branching_through_overcompute(func)
    assert "if" not in new.script()
    results = []
    for program in (func, new):
        a = np.asarray([3, 0], "int32")
        interpret(program, a, np.zeros(16, "int32"), strict_state=False)
        results.append(a)
    np.testing.assert_array_equal(*results)
    for other, more in ((" and X[i] > 0", ""), ("", " + A[1 - T.min(i, 1)]")):
        # Nobody knows whether the first is read at all, and of the second only iteration 0 reads A[1].
        kept = parse(body.format(other=other, more=more))
        assert remove_branching_through_overcompute(kept) == kept


def test_removing_overcompute_is_the_way_back() -> None:
    """The condition comes from the final padding; the store of the padding itself is never lost."""
    over = removed(func(CONV.format(rows=5)))
    after = remove_overcompute_through_branching(over)
    verify(after)
    assert conditions(after) == 2
    assert removed(after) == over
    rng = np.random.default_rng(0)
    inputs = rng.integers(-3, 4, (5, 4)).astype("float32"), rng.integers(-3, 4, 3).astype("float32")
    np.testing.assert_array_equal(outputs(over, *inputs), outputs(after, *inputs))


def test_an_implicit_writer_of_padding_is_never_lost() -> None:
    """What alone gives the padding of an output its value stays, whatever is known about its input."""
    before = func("""
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
    for io, ii in T.grid(4, 4):
        T.assume(4 * io + ii < 14 or A[io, ii] == T.float32(0))
    for io, ii in T.grid(4, 4):
        B[io, ii] = A[io, ii]
""")
    after, found = branch(before, before.body)
    assert after is before
    assert found
    assert all("an element of a parameter" in str(r) for r in found)


ACCEPTED = {
    "zero_times_zero": summed(),
    "zero_times_finite": summed(a=0.0, w=5.0),
    "finite_times_zero": summed(a=-3.0, w=0.0),
    "plain_sum_of_zeros": summed("C[0] + A[io, ii]"),
    "difference_of_zeros": summed("C[0] - A[io, ii]"),
    "zero_plus_zero": summed("C[0] + (A[io, ii] + W[io, ii])"),
    "cancelling": summed("C[0] + (A[io, ii] + W[io, ii])", a=2.0, w=-2.0),
    "product_with_one": summed("C[0] * A[io, ii]", a=1.0, start=1.0),
    "maximum_with_the_lowest": summed("T.max(C[0], A[io, ii])", a="-inf", start="-inf"),
    "minimum_with_the_highest": summed("T.min(C[0], A[io, ii])", a="inf", start="inf"),
    "integer_maximum_with_the_end_of_the_type": summed("T.max(C[0], A[io, ii])", a=-128, w=0, dtype="int8", start=-128),
    "integers_are_finite": summed(a="undef", w=0, dtype="int32", start=0),
    "fma": summed("T.fma(A[io, ii], W[io, ii], C[0])"),
}


@pytest.mark.parametrize("name", sorted(ACCEPTED))
def test_neutral_padding_is_accepted(name: str) -> None:
    """Where the padding makes the update leave its element as it is, the condition goes, and the result stays."""
    before = ACCEPTED[name]
    after = removed(before)
    assert conditions(after) == conditions(before) - 1
    rng = np.random.default_rng(1)
    pads = [float(a) for a in (0.0, 0.0)]
    text = before.script()
    for k, buffer in enumerate(before.buffers[:2]):
        line = next(line for line in text.splitlines() if f"or {buffer.name}[" in line)
        value = line.split("== ")[1].rstrip(")").split("(")[1].strip('"')
        pads[k] = 3.0 if "undef" in line else float(value)
    dtype = before.buffers[0].dtype
    inputs = [packed(rng.integers(1, 3, 14).astype(dtype), pad) for pad in pads]
    np.testing.assert_array_equal(outputs(before, *inputs), outputs(after, *inputs))


REFUSED = {
    "undef_times_zero": (summed(a="undef", w=0.0), "A[3, 2] is T.undef"),
    "zero_times_undef": (summed(a=0.0, w="undef"), "W[3, 2] is T.undef"),
    "zero_times_infinity": (summed(a=0.0, w="inf"), "not neutral"),
    "sum_of_ones": (summed("C[0] + A[io, ii]", a=1.0), "it would write C[0]"),
    "product_with_zero": (summed("C[0] * A[io, ii]"), "A[3, 2] is"),
    "maximum_with_zero": (summed("T.max(C[0], A[io, ii])"), "not neutral"),
    "zero_over_zero": (summed("C[0] + A[io, ii] / W[io, ii]"), "not neutral"),
    "partial_function": (summed("C[0] + A[io, ii] * T.log(W[io, ii])"), "not neutral"),
    "integer_division": (
        summed("C[0] + A[io, ii] // W[io, ii]", a=0, w=0, dtype="int32", start=0),
        "the body would divide by W[3, 2]",
    ),
    "strict_product": (summed(attrs='T.func_attr({"strict_float": True})'), "not neutral"),
    "strict_sum_of_positive_zero": (
        summed("C[0] + A[io, ii]", attrs='T.func_attr({"strict_float": True})'), "not neutral"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_padding_that_changes_the_result_is_refused(name: str) -> None:
    """Memory can hold NaN, and 0 * NaN is NaN; the refusal names the element and what it holds."""
    before, sentence = REFUSED[name]
    assert "at io_2=3, ii_2=2" in refusals(before)
    assert sentence in refusals(before)


def test_strict_floats_take_negative_zero_as_neutral() -> None:
    """x + -0.0 is x for every x."""
    before = summed("C[0] + A[io, ii]", a=-0.0, attrs='T.func_attr({"strict_float": True})')
    assert conditions(removed(before)) == conditions(before) - 1


@pytest.mark.parametrize(
    ("pad", "sentence"),
    [("None", "at io=3, ii=2 the body would read A[3, 2], whose pad_value is None"), ("0.0", None)],
)
def test_input_padding_must_be_known(pad: str, sentence: str | None) -> None:
    """A layout without a pad value forbids the reads; with 0 the sum may run over the padding."""
    from stridesmith.space.schedule import Schedule

    sch = Schedule(
        func("""
@T.prim_func
def main(A: T.Buffer((14,), "float32"), C: T.Buffer((1,), "float32")):
    for i in range(14):
        with T.block("sum"):
            vi = T.axis.reduce(14, i)
            with T.init():
                C[0] = T.float32(0)
            C[0] = C[0] + A[vi]
""")
    )
    sch.transform_layout("sum", "A", "lambda i: [i // 4, i % 4]", None if pad == "None" else float(pad))
    outer, inner = sch.split("i", [4, 4])
    if sentence is None:
        sch.remove_branching_through_overcompute("sum")
        assert all(b.predicate.value is True for b in blocks(sch.func.body))  # type: ignore[attr-defined]
        return
    with pytest.raises(Exception, match="whose pad_value is None") as refused:
        sch.remove_branching_through_overcompute("sum")
    assert "A[3, 2]" in str(refused.value)
    assert f"at {outer}=3, {inner}=2" in str(refused.value)


def test_a_cache_filled_for_a_smaller_region_refuses() -> None:
    """Everything that the new instances read must have been written."""
    text = """
@T.prim_func
def main(A: T.Buffer((14,), "float32"), B: T.Buffer((16,), "float32")):
    t = T.alloc_buffer((16,), "float32")
    for i in range(14):
        t[i] = A[i]
    for i in range(16):
        if i < 14:
            B[i] = t[i]
    for i in range(16):
        if i >= 14:
            B[i] = T.float32(0)
"""
    assert "at i_1=14 the body would read t[14], which nothing has written" in refusals(func(text))
    filled = text.replace("for i in range(14):\n        t[i] = A[i]", "for i in range(16):\n        t[i] = A[i % 14]")
    assert conditions(removed(func(filled))) == 1


def test_later_writes_invalidate_what_was_assumed() -> None:
    """A store between the assumption and the use takes the knowledge away."""
    text = """
@T.prim_func
def main(A: T.Buffer((14,), "float32"), C: T.Buffer((1,), "float32")):
    t = T.alloc_buffer((16,), "float32")
    for i in range(16):
        t[i] = T.if_then_else(i < 14, A[i], T.float32(0))
    {later}
    C[0] = T.float32(0)
    for i in range(16):
        if i < 14:
            C[0] = C[0] + t[i]
"""
    assert conditions(removed(func(text.format(later="pass")))) == 0
    assert "t[14] is T.float32(0.0)" not in refusals(func(text.format(later="t[15] = A[0]")))
    assert "t[15] is data" in refusals(func(text.format(later="t[15] = A[0]")))


def test_else_branches_join_where_one_side_comes_to_the_other() -> None:
    """On the padding ``2 * A + 1`` comes to the else-branch's 1; a different constant keeps the branch."""
    text = """
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
    for io, ii in T.grid(4, 4):
        T.assume(4 * io + ii < 14 or A[io, ii] == T.float32(0))
    for io, ii in T.grid(4, 4):
        if {cond}:
            B[io, ii] = {one}
        else:
            B[io, ii] = {other}
"""
    value, constant = "A[io, ii] * T.float32(2) + T.float32(1)", "T.float32(1)"
    for cond, one, other in (("4 * io + ii < 14", value, constant), ("4 * io + ii >= 14", constant, value)):
        before = func(text.format(cond=cond, one=one, other=other))
        after = removed(before)
        assert conditions(after) == 0
        inputs = packed(np.arange(14, dtype="float32"), 0)
        np.testing.assert_array_equal(outputs(before, inputs), outputs(after, inputs))
    assert "not neutral" in refusals(func(text.format(cond="4 * io + ii < 14", one=value, other="T.float32(3)")))


def test_lazy_conditions_go_conjunct_by_conjunct() -> None:
    """Of ``i < 14 and i != 5`` in a stored value only what the padding makes redundant goes."""
    before = func("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((1,), "float32")):
    for i in range(16):
        T.assume(i < 14 or A[i] == T.float32(0))
    C[0] = T.float32(0)
    for i in range(16):
        C[0] = C[0] + T.if_then_else(i < 14 and i != 5, A[i], T.float32(0))
""")
    after = removed(before)
    assert "T.if_then_else(i_1 != 5, A[i_1], T.float32(0.0))" in after.script()
    inputs = packed(np.arange(14, dtype="float32"), 0, (16, 1)).reshape(16)
    np.testing.assert_array_equal(outputs(before, inputs), outputs(after, inputs))


def test_a_parallel_loop_refuses_what_a_serial_one_accepts() -> None:
    """Adding zero to an element that another iteration owns loses updates."""
    text = """
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), C: T.Buffer((4,), "float32")):
    for i, j in T.grid(4, 4):
        T.assume(j < 3 or A[i, j] == T.float32(0))
    for i in range(4):
        C[i] = T.float32(0)
    for i in T.{kind}(4):
        for j in range(4):
            if j < 3:
                C[(i + j // 3) % 4] = C[(i + j // 3) % 4] + A[i, j]
"""
    assert conditions(removed(func(text.format(kind="serial")))) == 0
    sentence = refusals(func(text.format(kind="parallel")))
    assert "two iterations of loop `i_2` may touch the same element of `C`" in sentence


def test_assumptions_do_not_grow_and_undef_does_not_spread() -> None:
    """Neither the condition around an assumption nor one around a store of undef goes."""
    before = func("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        if i >= 14:
            T.assume(A[i] == T.float32(0))
    for i in range(16):
        if i < 14:
            B[i] = A[i]
    for i in range(16):
        if i >= 14:
            B[i] = T.undef("float32")
""")
    after, found = overcompute(before, before.body)
    assert conditions(after) == 2
    texts = [str(r) for r in found]
    assert any("something would be assumed of more elements" in t for t in texts)
    assert any("it would write B[0]" in t for t in texts)


def test_contradictory_assumptions_are_an_error() -> None:
    """One element cannot hold two values."""
    before = func("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), C: T.Buffer((1,), "float32")):
    for i in range(4):
        T.assume(i < 2 or A[i] == T.float32(0))
    for i in range(4):
        T.assume(i < 3 or A[i] == T.float32(1))
    C[0] = T.float32(0)
    for i in range(4):
        if i < 2:
            C[0] = C[0] + A[i]
""")
    assert "contradictory assumptions: `A[3]` is assumed to be both" in refusals(before)


def test_what_overcompute_leaves_in_padding_is_no_finite_data() -> None:
    """A quotient of padding may be NaN, so that zero times it is not zero."""
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), W: T.Buffer((16,), "float32"), C: T.Buffer((1,), "float32")):
    t = T.alloc_buffer((16,), "float32")
    for i in range(16):
        T.assume(i < 14 or A[i] == T.float32(0))
    for i in range(16):
        T.assume(i < 14 or W[i] == T.float32(0))
    for i in range(16):
        t[i] = {value}
    C[0] = T.float32(0)
    for i in range(16):
        if i < 14:
            C[0] = C[0] + t[i] * W[i]
"""
    assert conditions(removed(func(text.format(value="A[i] * A[i]")))) == 0
    assert "t[14] may be undef or not finite" in refusals(func(text.format(value="A[i] / A[i]")))


def test_init_and_update_are_proven_separately() -> None:
    """The init of a padded point is dead where the update is; a reduction that starts late is not."""
    text = """
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), C: T.Buffer((4,), "float32")):
    t = T.alloc_buffer((4,), "float32")
    for i, k in T.grid(4, 4):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where(i < 3)
            with T.init():
                t[vi] = T.float32(0)
            t[vi] = t[vi] + A[vi, vk]
    for i in range({rows}):
        with T.block("out"):
            vi = T.axis.spatial({rows}, i)
            C[vi] = t[vi]
    for i in range(4):
        with T.block("rest"):
            vi = T.axis.spatial(4, i)
            T.where(i >= {rows})
            C[vi] = T.float32(0)
"""
    assert conditions(removed(func(text.format(rows=3)))) == 1


@settings(max_examples=scaled(40), deadline=None)
@given(programs())
def test_both_passes_keep_the_results_of_random_programs(text: str) -> None:
    """Whatever is removed or put in, every element that a program defines stays what it was."""
    first = "\n    for z in range(6):\n        a[z] = x[0]\n        b[z] = x[1]\n"
    head = "    a = T.alloc_buffer((6,), 'float32')\n"
    before = func(text.replace(head, head + first))
    inputs = np.asarray([2.0, 3.0], "float32")
    expected = outputs(before, inputs)
    for rewrite in (remove_branching_through_overcompute, remove_overcompute_through_branching):
        after = rewrite(before)
        verify(after)
        np.testing.assert_array_equal(outputs(after, inputs), expected)


def test_acting_below_one_statement_leaves_the_others() -> None:
    """Only conditions at and below the chosen statement are tried."""
    before = func(CONV.format(rows=5))
    body = before.body.body
    assert isinstance(before.body, Block)
    last = body.stmts[-1]  # type: ignore[attr-defined]
    assert isinstance(last, For)
    after, found = overcompute(before, last)
    assert after is before
    assert len(found) == 2


def test_a_reduction_that_starts_at_an_offset_keeps_its_first_point() -> None:
    """Instances before the one that initialises may not appear, nor iterators leave their ranges downwards."""
    before = func("""
@T.prim_func
def main(A: T.Buffer((7,), "float32"), C: T.Buffer((1,), "float32")):
    for k in range(7):
        T.assume(k >= 2 or A[k] == T.float32(0))
    for k in range(7):
        with T.block("sum"):
            vk = T.axis.reduce(5, k - 2)
            T.where(k >= 2)
            with T.init():
                C[0] = T.float32(0)
            C[0] = C[0] + A[vk + 2]
""")
    assert "iterator `vk` would leave its range [0, 5)" in refusals(before)
