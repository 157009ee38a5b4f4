"""Kernels as operators of PyTorch: no copies, fake tensors, export, and the refusals."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import stridesmith as ss  # noqa: E402
from stridesmith.pytorch.operators import Caller  # noqa: E402


@pytest.fixture(scope="module")
def kernel() -> ss.Kernel:
    """``c = a b`` for small matrices, as it is written."""
    return ss.build(ss.workload("matmul", m=3, n=4, k=5).func, ss.Target("cpu", threads=1))


@pytest.fixture(scope="module")
def product(kernel: ss.Kernel) -> Any:
    return ss.torch.operator(kernel, unique())


def unique() -> str:
    return f"test_{uuid.uuid4().hex}"


A, B = torch.randn(3, 5), torch.randn(5, 4)


def test_an_operator_computes_what_its_kernel_does(product: Any) -> None:
    """Tensors in, a new tensor out; what does not lie in order is put in order before."""
    torch.testing.assert_close(product(A, B), A @ B)
    torch.testing.assert_close(product(A.t().contiguous().t(), B), A @ B)
    torch.testing.assert_close(product(torch._neg_view(A), B), -A @ B)  # its memory holds the numbers of A
    weight = torch.nn.Parameter(B.clone())
    with torch.no_grad():
        torch.testing.assert_close(product(A, weight), A @ B)


def test_tensors_are_not_copied() -> None:
    """The kernel gets the memory of the tensors that came, and writes that of the tensor that is returned."""
    seen: list[int] = []

    class Spy(ss.Kernel):
        def __call__(self, *inputs: Any, out: Any = None) -> Any:
            seen.extend(array.ctypes.data for array in (*inputs, *out))
            return super().__call__(*inputs, out=out)

        @property
        def direct(self) -> Any:
            quick = super().direct
            if quick is None:
                return None

            def spied(*arrays: Any) -> bool:
                seen.extend(array.ctypes.data for array in arrays)
                return bool(quick(*arrays))

            return spied

    work = ss.workload("matmul", m=3, n=4, k=5)
    built = ss.build(work.func, ss.Target("cpu", threads=1))
    spy = Spy(built._executable, built.signature, built.interface)
    caller = Caller(spy)
    for call in (caller, caller.run):
        seen.clear()
        result = call(A, B)
        assert seen == [A.data_ptr(), B.data_ptr(), result.data_ptr()]
        torch.testing.assert_close(result, A @ B)


def test_an_operator_is_what_pytorch_wants_of_one(product: Any) -> None:
    """Its schema is true, and its fake results have the shapes and types of the real ones."""
    torch.library.opcheck(product, (A, B), test_utils=("test_schema", "test_faketensor"))


class Module(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, product: Any) -> None:
        super().__init__()
        self.product, self.weight = product, torch.nn.Parameter(B)

    def forward(self, x: Any) -> Any:
        return self.product(x, self.weight).relu()


def test_a_module_with_an_operator_is_exported(product: Any) -> None:
    """`torch.export` traces it without running it, and the program computes the same."""
    with torch.no_grad():
        program = torch.export.export(Module(product).eval(), (A,))
        assert product in [node.target for node in program.graph.nodes]
        torch.testing.assert_close(program.module()(A), (A @ B).relu())


def test_fake_tensors_of_other_shapes_are_refused(product: Any) -> None:
    """Whoever traces with a shape that the kernel is not for hears so then."""
    with torch.no_grad(), pytest.raises(Exception, match=r"must be torch.float32 of shape \[3, 5\]"):
        torch.export.export(Module(product).eval(), (torch.randn(4, 5),))


def test_gradients_are_refused(product: Any) -> None:
    """An operator has no backward, and says so when one would be needed."""
    with pytest.raises(ss.UsageError, match=r"have no gradients.*torch\.no_grad\(\)"):
        product(A, B.clone().requires_grad_())


def test_other_shapes_and_types_are_refused(product: Any) -> None:
    """The sentences are the kernel's."""
    with pytest.raises(ValueError, match=r"`a` must have shape \(3, 5\)"):
        product(torch.randn(4, 5), B)
    with pytest.raises(TypeError, match="must have dtype float32"):
        product(A.double(), B)


def test_names_are_names_and_taken_once(kernel: ss.Kernel) -> None:
    """A name that is no identifier, or that there is already, is refused."""
    with pytest.raises(ss.UsageError, match="no name for an operator"):
        ss.torch.operator(kernel, "my conv")
    name = unique()
    ss.torch.operator(kernel, name)
    with pytest.raises(ss.UsageError, match="there is an operator"):
        ss.torch.operator(kernel, name)


COPY = """
@T.prim_func
def copy(x: T.Buffer((4,), "bfloat16"), y: T.Buffer((4,), "bfloat16")):
    for i in range(4):
        with T.block("copy"):
            vi = T.axis.spatial(4, i)
            y[vi] = x[vi]
"""


def test_bfloat16() -> None:
    """A type that NumPy has not goes through as its bits."""
    op = ss.torch.operator(ss.build(ss.parse(COPY), ss.Target("cpu", threads=1)), unique())
    x = torch.randn(4).bfloat16()
    assert torch.equal(op(x), x) and op(x).dtype == torch.bfloat16
