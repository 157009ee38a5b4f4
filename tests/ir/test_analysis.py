import pytest

from stridesmith.ir.analysis import count_flops, product_dtype
from stridesmith.ir.expr import Buffer, Var, binary, const, if_then_else
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Block, If, Let, PrimFunc, Store, loops
from stridesmith.space.workloads import Workload, workload

MATMUL = """
@T.prim_func
def mm(A: T.Buffer((13, 11), "float32"), B: T.Buffer((11, 19), "float32"), C: T.Buffer((13, 19), "float32")):
    for i0, i1, j, k in T.grid(4, 4, 19, 11):
        with T.block("mm"):
            vi = T.axis.spatial(13, i0 * 4 + i1)
            vj, vk = T.axis.remap("SR", [j, k])
            T.where(i0 * 4 + i1 < 13)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""

GATHER = """
@T.prim_func
def main(x: T.Buffer((3, {h}), "float32"), w: T.Buffer((3, 4, {k}), "float32"), y: T.Buffer((4, {rows}), "float32")):
    for co, o, c, k in T.grid(4, {rows}, 3, {k}):
        with T.block("conv"):
            vc, vo, vi, vk = T.axis.remap("SSRR", [co, o, c, k])
            with T.init():
                y[vc, vo] = T.float32(0)
            y[vc, vo] = y[vc, vo] + T.if_then_else(
                (vo + {p} - vk) % {s} == 0 and 0 <= vo + {p} - vk and vo + {p} - vk <= {most},
                x[vi, (vo + {p} - vk) // {s}], T.float32(0)) * w[vi, vc, vk]
"""


def test_flops_of_a_reduction_count_executed_updates():
    """A multiply-add is two operations; instances that the predicate leaves out, and the init, are none."""
    assert count_flops(parse(MATMUL)) == 2 * 13 * 19 * 11


def test_flops_under_conditions_and_varying_extents():
    """Conditions that share variables are counted together, and a triangle is counted as one."""
    a = Buffer("A", (16,))
    i, j = Var("i"), Var("j")
    store = Store(a, (i,), a[i] * a[j])

    def flops(body):
        return count_flops(PrimFunc("f", (a,), Block("root", (), body)))

    assert flops(loops([(i, 16)], loops([(j, i + 1)], store))) == 16 * 17 // 2  # type: ignore[list-item]
    assert flops(loops([(i, 16), (j, 16)], If(binary("<", i + j, 4), store, store))) == 256
    assert flops(loops([(i, 16), (j, 16)], If(binary("<", i + j, 4), store))) == 10
    guarded = Store(a, (i,), if_then_else(i < 3, a[i] + a[j] + a[j], const(0.0)))
    assert flops(loops([(i, 16), (j, 2)], guarded)) == 64


def test_flops_of_vectors_count_lanes():
    """A statement over vectors does as much as one over its lanes, and a bound variable stands for its value."""
    a = Buffer("A", (16,), "float32x4")
    i, n = Var("i"), Var("n")
    store = Store(a, (i,), a[i] * a[i] + a[i])
    assert count_flops(loops([(i, 16)], store)) == 16 * 4 * 2
    assert count_flops(loops([(i, 16)], Let(n, i // 4, If(n < 2, store)))) == 8 * 4 * 2
    scalar = Buffer("B", (1,))
    assert count_flops(loops([(i, 16)], Let(Var("x", "float32"), scalar[0] * scalar[0], store))) == 16 * (4 * 2 + 1)


@pytest.mark.parametrize(("k", "stride", "pad"), [(4, 2, 1), (4, 4, 0), (5, 3, 2), (3, 1, 1), (2, 3, 0)])
def test_zeros_between_elements_are_no_operands(k: int, stride: int, pad: int) -> None:
    """A strided transposed convolution counts the same as a gather and with a buffer of zeros, a border included."""
    h = 5
    taps = [(o, t) for o in range((h - 1) * stride - 2 * pad + k) for t in range(k) if (o + pad - t) % stride == 0]
    spread = workload("conv2d_transpose", ci=3, co=4, h=h, w=h, k=k, stride=stride, pad=pad)
    assert spread.flops == 2 * 3 * 4 * len(taps) ** 2
    rows = (h - 1) * stride - 2 * pad + k
    gathered = GATHER.format(rows=rows, k=k, s=stride, p=pad, h=h, most=(h - 1) * stride)
    assert count_flops(parse(gathered)) == 2 * 3 * 4 * len(taps)


def test_a_border_of_zeros_counts() -> None:
    """As is usual for convolutions, whether it is stored or tested."""
    assert workload("conv2d", ci=3, co=4, h=7, w=7, k=3, pad=1).flops == 2 * 3 * 4 * 49 * 9
    border = GATHER.replace("(vo + {p} - vk) % {s} == 0 and ", "").replace(" // {s}", "")
    assert count_flops(parse(border.format(rows=9, k=3, p=1, h=9, most=8))) == 2 * 3 * 4 * 9 * 3


@pytest.mark.parametrize(
    ("work", "dtype"),
    [
        (workload("matmul", m=4, n=4, k=4), "float32"),
        (workload("matmul", m=4, n=4, k=4, dtype="bfloat16"), "bfloat16"),
        (workload("conv2d", ci=2, co=2, h=4, w=4, k=3, dtype="uint8"), "uint8"),
        (workload("softmax", rows=4, cols=4), None),
    ],
)
def test_what_is_multiplied_bounds_a_program(work: Workload, dtype: str | None) -> None:
    assert product_dtype(work.func) == dtype and work.peak_dtype == (dtype or "float32")


@pytest.mark.parametrize("factor", ["(T.int32(x[vi, vk]) - 114)", "T.if_then_else(vk < 7, T.int32(x[vi, vk]), 114)"])
def test_a_zero_point_and_a_border_are_no_wider_than_what_they_read(factor: str) -> None:
    text = f"""
@T.prim_func
def f(x: T.Buffer((4, 8), "uint8"), w: T.Buffer((8, 4), "int8"), y: T.Buffer((4, 4), "int32")):
    for i, j, k in T.grid(4, 4, 8):
        with T.block("y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = 0
            y[vi, vj] = y[vi, vj] + {factor} * T.int32(w[vk, vj])
"""
    assert product_dtype(parse(text)) in ("uint8", "int8")


def test_a_product_with_one_wide_factor_is_wide() -> None:
    """Weights of bytes that float32 is multiplied with are widened; what is written in another type tells nothing."""
    text = """
@T.prim_func
def f(x: T.Buffer((4, 8), "{of}"), w: T.Buffer((8, 4), "int8"), y: T.Buffer((4, 4), "float32")):
    for i, j, k in T.grid(4, 4, 8):
        with T.block("y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(0)
            y[vi, vj] = y[vi, vj] + T.float32(x[vi, vk]) * T.float32(w[vk, vj])
"""
    assert product_dtype(parse(text.format(of="float32"))) == "float32"
    assert product_dtype(parse(text.format(of="int8"))) == "int8"
