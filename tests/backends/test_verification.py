"""Verification accepts every right kernel and rejects every wrong one."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

from stridesmith.backends.artifact import Argument
from stridesmith.backends.data import pack, padding, unpack
from stridesmith.backends.samples import Sample, analyse, make_samples, statements
from stridesmith.backends.verification import compare, verify
from stridesmith.errors import WrongResult
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.search.workers.reference import reference_of
from stridesmith.space.workloads import workload

M, N, K = 5, 7, 6
GUARD = 16


class NumpyKernel:
    """A kernel written in NumPy over flat memory with guard zones, as `executable.Bound` offers it."""

    def __init__(self, arguments: list[Argument], function: Callable[..., None], workspace: int = 0) -> None:
        self.arguments, self.function = arguments, function
        shapes = [a.physical_shape for a in arguments] + ([(workspace,)] if workspace else [])
        self.names = tuple(str(i) for i in range(len(shapes)))
        self.memory = [np.zeros(prod(s) + 2 * GUARD, np.float32) for s in shapes]
        self.shapes = shapes
        self.pattern = b"\0"

    def write(self, index: int, data: np.ndarray) -> None:
        self.memory[index][GUARD:-GUARD] = data.reshape(-1)

    def read(self, index: int) -> np.ndarray:
        return self.memory[index][GUARD:-GUARD].copy().reshape(self.shapes[index])

    def poison_guards(self, pattern: bytes) -> None:
        self.pattern = pattern
        for zone in self._zones():
            zone.view(np.uint8)[:] = np.frombuffer(pattern * zone.nbytes, np.uint8)[: zone.nbytes]

    def guards_intact(self) -> bool:
        return all((zone.view(np.uint8) == self.pattern[0]).all() for zone in self._zones())

    def time(self, calls: int) -> float:
        views = [m[GUARD:-GUARD].reshape(s) for m, s in zip(self.memory, self.shapes, strict=True)]
        self.function(*views)
        return 1e-3

    def _zones(self) -> list[np.ndarray]:
        return [zone for m in self.memory for zone in (m[:GUARD], m[-GUARD:])]


def arguments(a_pad: str = "0.0", c_pad: str = "undef") -> list[Argument]:
    """A matrix product whose A has its K padded to 8, and whose C has its rows padded to 6."""
    return [
        Argument("a", Layout.parse((M, K), "lambda i, k: [i, k]", a_pad, (M, 8)), "float32"),
        Argument("b", Layout.plain((K, N)), "float32"),
        Argument("c", Layout.parse((M, N), "lambda i, j: [i, j]", c_pad, (6, N)), "float32", True),
    ]


WORK = workload("matmul", m=M, n=N, k=K)
SAMPLES = make_samples(WORK.func, WORK.reference, 3)


def check(kernel: Callable[..., None], workspace: int = 0, args: list[Argument] | None = None) -> float:
    args = arguments() if args is None else args
    return verify(NumpyKernel(args, kernel, workspace), args, SAMPLES).max_abs_error


def right(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[:M] = a[:, :K] @ b


def test_a_right_kernel_passes() -> None:
    """A right kernel passes, with an error of the size of rounding."""
    assert check(right) < 1e-4


def test_another_order_of_additions_passes() -> None:
    """Summing backwards changes rounding and nothing else, so it is right."""

    def backwards(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        c[:M] = 0
        for k in reversed(range(K)):
            c[:M] += a[:, k : k + 1] * b[k]

    assert check(backwards) < 1e-4


def test_computing_on_zero_padding_passes() -> None:
    """Overcompute on padding that holds zero is legal."""

    def over(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        c[:M] = a @ np.concatenate([b, np.ones((2, N), np.float32)])

    assert check(over) < 1e-4


def store(at: tuple[int, ...], value: float) -> Callable[..., None]:
    def kernel(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        right(a, b, c)
        c[at] = value

    return kernel


def _drop_tail(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[: M - 1] = a[: M - 1, :K] @ b


def _drop_column(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[:M, :-1] = (a[:, :K] @ b)[:, :-1]


def _short_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[:M] = a[:, : K - 1] @ b[: K - 1]


def _missing_init(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[:M] += a[:, :K] @ b


def _swapped_strides(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[:M] = (a[:, :K] @ b).T.reshape(M, N)


def _shifted_rows(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[1 : M + 1] = a[:, :K] @ b


def _wrong_b(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[:M] = a[:, :K] @ b[::-1]


def _doubled_row(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    right(a, b, c)
    c[2] *= 2


def _padding_of_undef(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    right(a, b, c)
    c[0] += 0 * c[5]


def _writes_input(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    right(a, b, c)
    b[0, 0] = 1


def _writes_input_padding(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    right(a, b, c)
    a[0, 7] = 1


def _below(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    right(a, b, c)
    c.base[GUARD - 1] = 1  # type: ignore[index]


def _above(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    right(a, b, c)
    b.base[-GUARD] = 1  # type: ignore[index]


def _reads_guard(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    right(a, b, c)
    c[0, 0] += 0 * b.base[-GUARD]  # type: ignore[index]


MUTANTS = {
    "drop_tail": _drop_tail, "drop_column": _drop_column, "short_sum": _short_sum, "missing_init": _missing_init,
    "swapped_strides": _swapped_strides, "shifted_rows": _shifted_rows, "wrong_b": _wrong_b,
    "doubled_row": _doubled_row, "padding_of_undef": _padding_of_undef, "writes_input": _writes_input,
    "writes_input_padding": _writes_input_padding, "below": _below, "above": _above, "reads_guard": _reads_guard,
    "nan": store((2, 3), float("nan")), "infinity": store((0, 0), float("inf")), "zero": store((4, 6), 0.0),
    "nothing": lambda a, b, c: None, "zeros": lambda a, b, c: c.fill(0),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_caught(name: str) -> None:
    """A kernel with one plausible mistake is told apart from a right one."""
    with pytest.raises(WrongResult):
        check(MUTANTS[name])


def test_a_stale_workspace_is_caught() -> None:
    """A result that depends on what a workspace held before is wrong, even if the value cancels."""

    def stale(a: np.ndarray, b: np.ndarray, c: np.ndarray, w: np.ndarray) -> None:
        right(a, b, c)
        c[0, 0] += w[0] * 0

    with pytest.raises(WrongResult, match="nothing has written"):
        check(stale, workspace=4)


def test_a_lazily_filled_workspace_is_caught() -> None:
    """Only the first element of the workspace is written; the second one leaks into the result."""

    def lazy(a: np.ndarray, b: np.ndarray, c: np.ndarray, w: np.ndarray) -> None:
        w[0] = 0
        c[:M] = a[:, :K] @ b + np.where(w[1] > 1e30, 1, 0)

    with pytest.raises(WrongResult):
        check(lazy, workspace=2)


def test_padding_of_an_output_that_may_not_be_touched() -> None:
    """Writing padding whose pad_value is None is wrong; leaving it alone is right."""

    def spill(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        right(a, b, c)
        c[M] = 0

    args = arguments(c_pad="")
    assert check(right, args=args) < 1e-4
    with pytest.raises(WrongResult, match="pad_value is None"):
        check(spill, args=args)


def test_constant_padding_of_an_output_must_be_written() -> None:
    """An output that promises zeros in its padding must have them there."""

    def filled(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        right(a, b, c)
        c[M] = 0

    args = arguments(c_pad="0.0")
    assert check(filled, args=args) < 1e-4
    with pytest.raises(WrongResult, match=r"does not hold 0\.0"):
        check(right, args=args)


def test_reading_untouchable_padding_of_an_input_is_caught() -> None:
    """With pad_value None an input's padding is poison: multiplying it by zero still shows."""

    def over(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        c[:M] = a[:, :7] @ np.concatenate([b, np.zeros((1, N), np.float32)])

    with pytest.raises(WrongResult):
        check(over, args=arguments(a_pad=""))


def test_the_message_names_the_element() -> None:
    """The text of a failure has the buffer, the index, both values and how many are wrong."""
    with pytest.raises(WrongResult, match=r"`c`\[2, 3\] is 99\.0, but should be -?\d+\.0 \(1 of 35"):
        check(store((2, 3), 99.0))


def test_pack_and_unpack_are_inverse() -> None:
    """Unpacking what was packed gives the logical array; padding holds the pad value."""
    argument = Argument("x", Layout.parse((5, 6), "lambda i, j: [i // 4, j, i % 4]", "-1.0", (2, 6, 4)), "float32")
    logical = np.arange(30, dtype=np.float32).reshape(5, 6)
    physical = pack(argument, logical)
    assert physical.shape == (2, 6, 4)
    assert (unpack(argument, physical) == logical).all()
    assert (padding(argument, physical) == -1).all()
    assert len(set(argument.layout.positions.reshape(-1).tolist())) == 30


@pytest.mark.parametrize(
    ("name", "exact"),
    [("matmul", True), ("conv2d", True), ("max_pool2d", True), ("row_sum", True), ("softmax", False)],
)
def test_sums_of_products_get_an_exact_sample(name: str, exact: bool) -> None:
    """Sum-of-products programs compare for equality; those with a division or an exponential do not."""
    small = {"conv2d": {"h": 5, "w": 5, "ci": 3, "co": 4}, "max_pool2d": {"h": 6, "w": 6}}
    work = workload(name, **small.get(name, {}))
    assert analyse(work.func).exact == exact
    assert (make_samples(work.func, work.reference, 0)[0].bounds is None) == exact


def test_exact_samples_stay_exact() -> None:
    """Absolute sums of the integer sample are below 2**24, and no input is zero."""
    work = workload("matmul", m=2, n=2, k=5000)
    exact = make_samples(work.func, work.reference, 0)[0]
    assert all((a != 0).all() for a in exact.inputs.values())
    sizes = work.reference({n: np.abs(a).astype(np.float64) for n, a in exact.inputs.items()})["c"]
    assert sizes.max() < 2**24


def test_rounding_counts_the_stores_to_an_element() -> None:
    """A matrix product rounds as often as its reduced extent; every store counts as a statement."""
    eps = float(np.finfo("float32").eps)
    assert analyse(WORK.func).rounding == K * eps
    assert analyse(WORK.func).spread == pytest.approx(K**0.5 * eps)
    assert statements(WORK.func) == M * N * K


def test_seeds_give_fresh_data() -> None:
    """The winner's race and every replay see other numbers than the search did."""
    a, b = (make_samples(WORK.func, WORK.reference, seed)[-1].inputs["a"] for seed in (1, 2))
    assert not np.array_equal(a, b)


def test_a_half_float_result_of_a_wide_sum_is_rounded_once() -> None:
    """Sums in float32 that are given out as float16 are known to float16's last digit, and exactly for integers."""
    work = workload("matmul", m=4, n=4, k=4096, dtype="float16")
    numerics = analyse(work.func)
    assert numerics.rounding < 2 * float(np.finfo("float16").eps)
    integers, normal = make_samples(work.func, work.reference, 0)
    assert integers.bounds is None
    np.testing.assert_array_equal(integers.expected["c"], integers.expected["c"].astype("float16"))
    assert normal.bounds is not None
    size = np.abs(normal.inputs["a"]).astype("float64") @ np.abs(normal.inputs["b"]).astype("float64")
    assert (normal.bounds["c"] < 0.01 * size).all()


def made(text: str, reference: Callable[..., np.ndarray], seed: int = 0) -> tuple[Sample, ...]:
    """The samples of a program of inputs a and b and the result c."""
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return make_samples(func, lambda arrays: {"c": reference(*arrays.values())}, seed)


def test_the_last_terms_of_a_long_sum_are_no_zeros() -> None:
    """Where most integers are 0, so that a sum stays exact, what stands behind whole vectors would seldom be missed."""
    text = """
@T.prim_func
def total(a: T.Buffer((8, 4096), "float16"), c: T.Buffer((8,), "float16")):
    for i, k in T.grid(8, 4096):
        with T.block("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                c[vi] = T.float16(0)
            c[vi] = c[vi] + a[vi, vk]
"""
    integers = made(text, lambda a: a.sum(axis=1))[0]
    a = integers.inputs["a"]
    assert integers.bounds is None and 0.2 < np.count_nonzero(a) / a.size < 0.3 and a[:, -1].all()


def test_truths_are_drawn_as_both() -> None:
    """A kernel that always says True would pass if all inputs were."""
    (sample,) = made(
        """
@T.prim_func
def both(a: T.Buffer((64,), "bool"), b: T.Buffer((64,), "bool"), c: T.Buffer((64,), "bool")):
    for i in range(64):
        c[i] = a[i] and b[i]
""",
        np.logical_and,
    )
    assert {True, False} == set(sample.inputs["a"].tolist()) == set(sample.expected["c"].tolist())


QUOTIENT = """
@T.prim_func
def quotient(a: T.Buffer((100000,), "float16"), b: T.Buffer((100000,), "float16"), c: T.Buffer((100000,), "float16")):
    for i in range(100000):
        c[i] = a[i] / b[i]
"""


def test_one_large_quotient_does_not_excuse_all_others() -> None:
    """Results of 1 may be off by a fraction, however large one of a hundred thousand is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        (sample,) = made(QUOTIENT, np.divide)
    assert sample.bounds is not None
    assert np.nanmax(np.abs(sample.expected["c"])) > 1e4
    assert np.median(sample.bounds["c"]) < 0.5


def test_a_result_that_its_type_does_not_hold_is_infinite() -> None:
    """A right kernel gives the infinity of that sign there, and no other one."""
    expected = {"c": np.array([1.0, 70000.0, -70000.0, 60000.0])}
    sample = Sample("normal", {}, expected, {"c": np.full(4, 1e-3)})
    right = np.array([1.0, np.inf, -np.inf, 60000.0], np.float16)
    with np.errstate(over="ignore"):
        assert compare(sample, {"c": right}) < 1e3
    for at, wrong in ((1, -np.inf), (0, np.inf)):
        other = right.copy()
        other[at] = wrong
        with pytest.raises(WrongResult):
            compare(sample, {"c": other})


SOFTMAX = workload("softmax", rows=2, cols=50257)
"""As a language model has it: the last column stands alone behind whole vectors."""


def softmax(x: np.ndarray, summed: slice | np.ndarray = slice(None), in_order: bool = False) -> np.ndarray:
    """In float32, with the sum over some of the columns, by halves or in the order of the columns."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    part = e[:, summed]
    total = np.cumsum(part, axis=1)[:, -1:] if in_order else part.sum(axis=1, keepdims=True)
    return e / total


@pytest.mark.parametrize(
    "summed", [slice(0, -1), np.r_[0:1000, 2000:50257]], ids=["without the last", "without a thousand"]
)
def test_a_long_sum_of_exponentials_misses_nothing(summed: slice | np.ndarray) -> None:
    """What rounding may be does not grow with the number of terms, and right sums pass in any order."""
    samples = make_samples(SOFTMAX.func, SOFTMAX.reference, 5)
    assert [sample.name for sample in samples] == ["edge", "normal"]
    for sample in samples:
        for in_order in (False, True):
            compare(sample, {"y": softmax(sample.inputs["x"], in_order=in_order)})
        with pytest.raises(WrongResult):
            compare(sample, {"y": np.zeros((2, 50257), np.float32)})
    with pytest.raises(WrongResult):
        for sample in samples:
            compare(sample, {"y": softmax(sample.inputs["x"], summed)})


def test_numbers_that_are_too_large_for_a_program_are_no_sample() -> None:
    """Exponentials of squares are infinite at the edges: there is the normal sample alone, and right kernels pass."""
    text = """
@T.prim_func
def main(a: T.Buffer((2, 40000), "float32"), c: T.Buffer((2,), "float32")):
    for i, k in T.grid(2, 40000):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                c[vi] = T.float32(0)
            c[vi] = c[vi] + T.exp(a[vi, vk] * a[vi, vk])
"""
    (sample,) = made(text, lambda a: np.exp(a * a).sum(axis=1))
    assert sample.name == "normal"


def test_sums_that_are_too_long_for_ones_have_zeros() -> None:
    """An exact sample beyond 2**24 terms, so that no bound excuses a part that is missing."""
    work = workload("row_sum", rows=1, cols=(1 << 24) + 5)
    exact, _ = make_samples(work.func, work.reference, 0)
    (x,) = exact.inputs.values()
    assert exact.bounds is None and 0.1 < np.mean(x != 0) < 0.9
    with pytest.raises(WrongResult):
        compare(exact, {name: np.zeros_like(value) for name, value in exact.expected.items()})


@pytest.mark.parametrize(
    ("function", "computed"),
    [
        ("T.log(a[i])", np.log),
        ("T.float32(1) / T.sqrt(a[i] - T.float32(1))", lambda a: 1 / np.sqrt(a - 1)),
        ("T.sqrt(T.float32(1) - a[i] * a[i])", lambda a: np.sqrt(1 - a * a)),
    ],
)
def test_inputs_are_such_that_functions_are_defined(function: str, computed: Callable[..., np.ndarray]) -> None:
    """Roots and logarithms get positive numbers, large or small ones, all others normal ones."""
    text = f"""
@T.prim_func
def main(a: T.Buffer((64,), "float32"), c: T.Buffer((64,), "float32")):
    for i in range(64):
        c[i] = {function}
"""
    (sample,) = made(text, computed)
    assert not np.isnan(sample.expected["c"]).any() and len(np.unique(sample.inputs["a"])) > 32
    (usual,) = made(text.replace(function, "T.exp(a[i])"), np.exp)
    assert (usual.inputs["a"] < 0).any()


QUANTIZE = """@T.prim_func
def f(x: T.Buffer((6000, 16), "float32"), y: T.Buffer((6000,), "int32")):
    t = T.alloc_buffer((6000,), "float32")
    for i in range(6000):
        t[i] = T.float32(0)
        for k in range({count}):
            t[i] = t[i] + x[i, k]
    for i in range(6000):
        y[i] = T.Cast("int32", T.floor(t[i] / T.float32(0.0001)))
"""


def quantized(count: int) -> Sample:
    """The normal sample of rows of sums that are divided by a step."""
    func = parse(QUANTIZE.format(count=count))
    assert isinstance(func, PrimFunc)
    return make_samples(func, reference_of(func), seed=0)[-1]


DIFFERENCES = """@T.prim_func
def f(a: T.Buffer((64,), "int8"), b: T.Buffer((64,), "int8"), s: T.Buffer((64,), "float32"),
      y: T.Buffer((1,), "float32")):
    y[0] = T.float32(0)
    for i in range(64):
        y[0] = y[0] + s[i] * T.Cast("float32", T.Cast("int32", a[i]) - 8 * T.Cast("int32", b[i]))
"""


def test_floats_that_are_made_of_differences_of_integers_have_a_bound() -> None:
    """Of `a` and `b` in `float(a - b)` the sizes alone may give less than the data, and less than 0."""
    func = parse(DIFFERENCES)
    assert isinstance(func, PrimFunc)
    sample = make_samples(func, reference_of(func), seed=0)[-1]
    assert sample.bounds is not None and (sample.bounds["y"] > 0).all()
    a, b = (sample.inputs[name].astype(np.int32) for name in "ab")
    terms = sample.inputs["s"] * (a - 8 * b).astype(np.float32)
    compare(sample, {"y": np.sum(terms, dtype=np.float32, keepdims=True)})
    with pytest.raises(WrongResult, match="normal sample"):
        compare(sample, {"y": np.sum(terms[:-1], dtype=np.float32, keepdims=True)})


def test_what_a_program_gives_in_its_own_types_is_right_at_a_step() -> None:
    """A quotient that lies below a whole number in float64 may be that number in float32."""
    sample = quantized(1)
    own = np.floor(sample.inputs["x"][:, 0] / np.float32(0.0001)).astype(np.int32)
    assert (own != sample.expected["y"]).any()
    compare(sample, {"y": own})
    at = int(np.flatnonzero(own == sample.expected["y"])[0])
    for change in (2, 100):
        wrong = own.copy()
        wrong[at] += change
        with pytest.raises(WrongResult, match=r"1 of 6000 elements are wrong, normal sample"):
            compare(sample, {"y": wrong})


def test_a_sum_in_another_order_may_cross_a_step_now_and_then() -> None:
    """A few elements are one off, as when inputs are changed by as much as the error is; not many, and not by two."""
    sample = quantized(16)
    backwards = np.add.accumulate(sample.inputs["x"][:, ::-1], axis=1, dtype=np.float32)[:, -1]
    other = np.floor(backwards / np.float32(0.0001)).astype(np.int32)
    assert 0 < (other != sample.expected["y"]).sum() < 60
    compare(sample, {"y": other})
    for wrong in (other + (np.arange(6000) == 7) * 2, other + 1):
        with pytest.raises(WrongResult, match="normal sample"):
            compare(sample, {"y": wrong.astype(np.int32)})
