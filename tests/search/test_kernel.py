"""The kernel that a user calls takes exactly what it says, and gives the right answer."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from record_makers import make_record

from stridesmith.backends.data import Argument
from stridesmith.backends.devices import discover
from stridesmith.backends.kernel import Bound, Executable
from stridesmith.errors import NoRecord, UsageError
from stridesmith.search.database import Database
from stridesmith.search.kernel import Kernel, build, load
from stridesmith.search.task import interface_of
from stridesmith.space.workloads import workload

WORK = workload("matmul", m=6, n=7, k=5)
CPU = discover("cpu", threads=2)


class Product(Executable):
    """`c = a @ b` in NumPy, where b lies in panels of four columns, padded with zeros."""

    def __init__(self) -> None:
        params = [["a", [6, 5], "float32", "global"], ["b", [2, 5, 4], "float32", "global"],
                  ["c", [6, 7], "float32", "global"]]  # fmt: skip
        super().__init__({"kind": "cpu", "entry": "", "code": "", "target": CPU.to_json(), "params": params,
                          "workspaces": [], "launches": []})  # fmt: skip

    def bind(self, *, guard_bytes: int = 0) -> Bound:
        return ProductMemory()


class ProductMemory(Bound):
    names = ("a", "b", "c")

    def __init__(self) -> None:
        self.arrays: list[Any] = [None, None, None]

    def write(self, index: int, data) -> None:
        self.arrays[index] = data.copy()

    def read(self, index: int):
        return self.arrays[index]

    def poison_guards(self, pattern: bytes) -> None: ...

    def guards_intact(self) -> bool:
        return True

    def run(self) -> None:
        a, b, _ = self.arrays
        self.arrays[2] = np.concatenate([a @ panel for panel in b], axis=1)[:, :7]

    def time(self, calls: int) -> float:
        return 0.0


PANELS = Argument("b", (5, 7), (2, 5, 4), "float32", "lambda i, j: [j // 4, i, j % 4]", "0.0")
SIGNATURE = (Argument("a", (6, 5), (6, 5), "float32"), PANELS, Argument("c", (6, 7), (6, 7), "float32", is_output=True))


def product(who: str) -> Kernel:
    return Kernel(Product(), SIGNATURE, {"a": "fixed", "b": who, "c": "fixed"})


def operands(seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(6, 5)).astype("float32"), rng.normal(size=(5, 7)).astype("float32")


def test_a_constant_is_packed_on_every_call() -> None:
    """The caller gives the logical array, and changing it changes the result."""
    kernel = product("constant")
    for seed in range(2):
        a, b = operands(seed)
        np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-5, atol=1e-5)


def test_a_packed_kernel_takes_the_rest() -> None:
    """After `pack` the constant is fixed: later changes of the array do not matter, and `out` is used."""
    a, b = operands()
    fast = product("constant").pack(b=b)
    expected = a @ b
    b[:] = np.nan
    out = np.empty((6, 7), "float32")
    assert fast(a, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(UsageError, match="did you mean 'a'"):
        fast.pack(aa=a)


def test_a_free_argument_is_given_in_its_layout() -> None:
    """`signature` says which, and `to_physical` and `to_logical` convert."""
    kernel = product("free")
    a, b = operands()
    spec = {argument.name: argument for argument in kernel.signature}["b"]
    assert (spec.physical_shape, spec.dtype, spec.pad_value) == ((2, 5, 4), "float32", "0.0")
    physical = kernel.to_physical("b", b)
    assert physical.shape == spec.physical_shape
    assert (physical[1, :, 3] == 0).all()
    np.testing.assert_array_equal(kernel.to_logical("b", physical), b)
    np.testing.assert_allclose(kernel(a, physical), a @ b, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"`b` must have shape \(2, 5, 4\)"):
        kernel(a, b)


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda a, b: (a,), TypeError, "takes 2 inputs"),
        (lambda a, b: (a, b, a), TypeError, "takes 2 inputs"),
        (lambda a, b: (a.tolist(), b), TypeError, "`a` must be a NumPy array"),
        (lambda a, b: (a, b.astype("float64")), TypeError, "`b` must have dtype float32"),
        (lambda a, b: (a.astype(">f4"), b), TypeError, "`a` must have dtype"),
        (lambda a, b: (a, b.T), ValueError, "`b` must have shape"),
        (lambda a, b: (np.asfortranarray(a), b), ValueError, "`a` must be C-contiguous"),
        (lambda a, b: (np.zeros((12, 5), "float32")[::2], b), ValueError, "`a` must be C-contiguous"),
    ],
)
def test_a_wrong_argument_is_named(spoil, error: type[Exception], words: str) -> None:
    """Nothing is cast or copied silently."""
    with pytest.raises(error, match=words):
        product("constant")(*spoil(*operands()))


def test_a_wrong_output_is_named() -> None:
    """`out` is writable, of the right kind, and shares no memory with an input."""
    a, b = operands()
    kernel = product("constant")
    frozen = np.zeros((6, 7), "float32")
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernel(a, b, out=frozen)
    with pytest.raises(TypeError, match="1 outputs"):
        kernel(a, b, out=[frozen, frozen])
    store = np.zeros(100, "float32")
    shared = store[:30].reshape(6, 5)
    with pytest.raises(ValueError, match="`c` is written and shares memory with `a`"):
        kernel(shared, b, out=store[20:62].reshape(6, 7))


def test_no_record_is_the_command_that_makes_one(tmp_path: Path) -> None:
    """Exit 3: the text can be pasted into a shell, and no database is created."""
    path = tmp_path / "none.db"
    with pytest.raises(NoRecord, match="tune --workload matmul --shape m=6,n=7,k=5 --target cpu --db"):
        load(WORK, "cpu", str(path))
    with pytest.raises(NoRecord, match="--interface b=free"):
        load(WORK, "cpu", str(path), interface={"b": "free"})
    assert not path.exists()


def test_a_built_program_computes() -> None:
    """The untuned program through lowering and code generation, called from several threads."""
    kernel = build(WORK.func, CPU, interface_of(WORK))
    failures: list[str] = []

    def work(seed: int) -> None:
        for step in range(20):
            a, b = operands(seed + step)
            if not np.allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4):
                failures.append(f"{seed}, {step}")

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_load_takes_the_best_record(tmp_path: Path) -> None:
    """A stored record becomes a kernel whose result is right."""
    path = tmp_path / "tuned.db"
    record = make_record(
        script=WORK.script, workload=WORK.name, params=dict(WORK.params), interface=interface_of(WORK),
        target=CPU.to_json(), trace=None,
    )  # fmt: skip
    with Database(path) as database:
        database.put_record(record)
    a, b = operands()
    kernel = load(WORK, CPU, str(path))
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(kernel.pack(b=b)(a), kernel(a, b))
