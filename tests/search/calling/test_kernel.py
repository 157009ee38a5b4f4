"""The kernel that a user calls takes exactly what it says, and gives the right answer."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from record_makers import make_record

import stridesmith as ss
from stridesmith.backends.address import address
from stridesmith.backends.artifact import Argument
from stridesmith.backends.devices import discover
from stridesmith.backends.executable import Bound, Executable
from stridesmith.errors import NoRecord, UsageError
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.ranges import WrongSizes
from stridesmith.ir.script.parser import parse
from stridesmith.search.calling.kernel import Kernel, build, load
from stridesmith.search.records.database import Database
from stridesmith.search.tasks.interface import interface_of
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import from_func, workload

WORK = workload("matmul", m=6, n=7, k=5)
CPU = discover("cpu", threads=2)
TWO = """
@T.prim_func
def two(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32"), z: T.Buffer((8,), "float32")):
    for i in range(8):
        y[i] = x[i] + T.float32(1)
        z[i] = x[i] + T.float32(2)
"""


class Product(Executable):
    """`c = a @ b` in NumPy, where b lies in panels of four columns, padded with zeros."""

    def __init__(self) -> None:
        params = [["a", [6, 5], "float32", "global"], ["b", [2, 5, 4], "float32", "global"],
                  ["c", [6, 7], "float32", "global"]]  # fmt: skip
        super().__init__({"kind": "cpu", "entry": "", "code": "", "target": CPU.to_json(), "params": params,
                          "workspaces": [], "launches": []})  # fmt: skip

    def bind(self, *, guard_bytes: int = 0) -> Bound:  # type: ignore[override]
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


PANELS = Argument("b", Layout.parse((5, 7), "lambda i, j: [j // 4, i, j % 4]", "0.0", (2, 5, 4)), "float32")
A, C = Argument("a", Layout.plain((6, 5)), "float32"), Argument("c", Layout.plain((6, 7)), "float32", is_output=True)
SIGNATURE = (A, PANELS, C)


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


@pytest.mark.parametrize("who", ["fixed", "free", "constant"])
def test_an_argument_that_is_only_reshaped_is_given_as_it_is(who: str) -> None:
    """Digits in place are the caller's memory: no layout to know, nothing packed, and the short way for calls."""
    sch = Schedule(WORK.func)
    for buffer in ("a", "c"):
        sch.transform_layout("matmul", buffer, "lambda i, j: [i // 2, i % 2, j]")
    kernel = build(sch.func, CPU, {"a": who, "b": "fixed", "c": "free" if who == "constant" else who})
    assert kernel.signature[0].physical_shape != kernel.signature[0].logical_shape
    assert kernel._direct is not None
    a, b = (np.random.default_rng(7).normal(size=s).astype("float32") for s in [x.shape for x in WORK.func.buffers[:2]])
    out = np.empty(WORK.func.buffers[2].shape, "float32")
    for result in (kernel(a, b), kernel(a, b, out=out), kernel.pack(a=a)(b)):
        np.testing.assert_allclose(result, a @ b, rtol=1e-4, atol=1e-4)


def test_a_fixed_argument_must_lie_as_the_caller_has_it() -> None:
    """A layout that moves elements is refused for it, since the kernel would read the caller's memory wrongly."""
    with pytest.raises(UsageError, match=r"`b` is fixed, but this schedule wants it as `lambda i, j"):
        product("fixed")


def test_a_program_with_layouts_of_its_own_is_given_memory_as_it_has_it(tmp_path: Path) -> None:
    """A record's schedule may name that memory otherwise; loaded, packed and exported it is right."""
    laid = Schedule(WORK.func)
    for buffer in ("b", "c"):
        laid.transform_layout("matmul", buffer, "lambda i, j: [j // 4, i, j % 4]", 0.0)
    own = from_func(laid.func)
    sch = Schedule(laid.func)
    sch.transform_layout("matmul", "b", "lambda p, i, q: [p, i // 5, i % 5, q]")
    with Database(tmp_path / "tuned.db") as database:
        facts = {"script": own.script, "workload": own.name, "params": {}, "interface": interface_of(own)}
        database.put_record(make_record(**facts, target=CPU.to_json(), trace=sch.trace.to_json()))
    a, b = operands()
    kernel = load(own, CPU, str(tmp_path / "tuned.db"))
    assert {x.name: x.physical_shape for x in kernel.signature} == {"a": (6, 5), "b": (2, 5, 4), "c": (2, 6, 4)}
    given = kernel.to_physical("b", b)
    for result in (kernel(a, given), kernel.pack(b=given)(a)):
        np.testing.assert_allclose(kernel.to_logical("c", result), a @ b, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"`b` must have shape \(2, 5, 4\)"):
        kernel(a, b)
    assert kernel.export(tmp_path / "own.c", "c")


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda a, b: (a,), TypeError, "takes 2 inputs"),
        (lambda a, b: (a, b, a), TypeError, "takes 2 inputs"),
        (lambda a, b: (a.tolist(), b), TypeError, "`a` must be an array"),
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


class Foreign:
    """Another library's array: it shares its memory by DLPack, as long as it is on the CPU."""

    def __init__(self, array: Any, on_cpu: bool = True, negative: bool = False) -> None:
        self.array, self.on_cpu, self.negative = array, on_cpu, negative

    def is_neg(self) -> bool:
        return self.negative

    def __dlpack__(self, **options: Any) -> Any:
        if not self.on_cpu:
            raise BufferError("it is on another device")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_foreign_arrays_are_used_where_they_are() -> None:
    """Inputs and results of other libraries are read and written in place, and `out` is returned as it was given."""
    sch = Schedule(WORK.func)
    kernel = build(sch.func, CPU, {"a": "fixed", "b": "constant", "c": "fixed"})
    a, b = operands()
    store = np.zeros((6, 7), "float32")
    out = Foreign(store)
    assert kernel(Foreign(a), Foreign(b), out=out) is out
    np.testing.assert_array_equal(store, kernel(a, b))
    np.testing.assert_array_equal(kernel.pack(b=Foreign(b))(a), store)
    memory = np.zeros(100, "float32")
    with pytest.raises(ValueError, match="`c` is written and shares memory with `a`"):
        kernel(Foreign(memory[:30].reshape(6, 5)), b, out=Foreign(memory[20:62].reshape(6, 7)))
    with pytest.raises(TypeError, match="`a`, a Foreign, does not share its memory with NumPy: it is on another"):
        kernel(Foreign(a, on_cpu=False), b)
    with pytest.raises(TypeError, match="`a` must have dtype float32, but got float64"):
        kernel(Foreign(a.astype("float64")), b)
    with pytest.raises(TypeError, match="`a`, a Foreign, is the negative of what its memory holds; resolve_neg"):
        kernel(Foreign(a, negative=True), b)
    with pytest.raises(TypeError, match="`c`, a Foreign, is the negative"):
        kernel(a, b, out=Foreign(store, negative=True))


def test_a_mask_is_not_lost() -> None:
    """A masked array is refused as input, result and constant, and by the interpreter."""
    a, b = operands()
    kernel, masked = build(WORK.func, CPU), np.ma.masked_array(a, a > 0)
    store = np.zeros((6, 7), "float32")
    for wrong in (
        lambda: kernel(masked, b),
        lambda: kernel(a, b, out=np.ma.masked_array(store)),
        lambda: kernel.pack(a=masked),
        lambda: kernel.to_physical("a", masked),
        lambda: ss.bfloat16_bits(masked),
    ):
        with pytest.raises(TypeError, match=r"is a masked array, whose mask would be lost; `filled\(value\)`"):
            wrong()
    with pytest.raises(ss.StridesmithError, match="`a` is a masked array"):
        ss.interpret(WORK.func, masked, b, store)
    np.testing.assert_allclose(kernel(masked.filled(0), b), masked.filled(0) @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"interface": {"q": "free"}}, "`matmul` has no argument 'q'; there are a, b, c"),
        ({"interface": {"a": "fre"}}, r"the interface 'a=fre' is none of .*did you mean 'free'"),
        ({"interface": {"a": 3}}, "the interface 'a=3' is none of"),
        ({"interface": ["a"]}, "or a dict of these words by the names of arguments, but got"),
        ({"interface": {"c": "constant"}}, "`c` is an output of `matmul`, which cannot be constant"),
        ({"strict": "yes"}, "`strict` is True or False, but got 'yes'"),
    ],
)
def test_what_a_kernel_is_built_with_is_checked(options: dict[str, Any], sentence: str) -> None:
    """A word for an argument that the program has not would mean nothing; one word may be for all."""
    with pytest.raises(UsageError, match=sentence):
        build(WORK.func, CPU, **options)
    assert set(build(WORK.func, CPU, "fixed").interface.values()) == {"fixed"}


def test_one_shape_of_many_is_named_by_whole_numbers() -> None:
    """A text, a float or a truth value is none."""
    kernel = build(ss.workload("matmul", m=(1, 16), n=7, k=5), CPU)
    for wrong in ("3", 3.0, True):
        with pytest.raises(WrongSizes, match=f"`m` is a whole number, but got {wrong!r}"):
            kernel.at(m=wrong)
    assert kernel.at(m=np.int64(3))(operands()[0][:3], operands()[1]).shape == (3, 7)


def test_no_record_is_the_command_that_makes_one(tmp_path: Path) -> None:
    """Exit 3: the text can be pasted into a shell, and no database is created."""
    path = tmp_path / "none.db"
    with pytest.raises(NoRecord, match="stridesmith --workload matmul --shape m=6,n=7,k=5 --target cpu --db"):
        load(WORK, "cpu", str(path))
    with pytest.raises(NoRecord, match="--interface b=free"):
        load(WORK, "cpu", str(path), interface={"b": "free"})
    assert not path.exists()


def test_the_command_that_makes_a_record_makes_the_one_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With so many threads; the database that the environment names is not named again."""
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "none.db"))
    threads = discover("cpu").threads + 1
    with pytest.raises(NoRecord, match=rf"k=5 --target cpu --threads {threads}`"):
        load(WORK, "cpu", threads=threads)


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


def compiled() -> Kernel:
    """The untuned product as machine code, whose arguments need no packing."""
    return build(WORK.func, CPU, {"a": "fixed", "b": "fixed", "c": "fixed"})


def test_the_direct_call_gives_what_the_careful_one_gives() -> None:
    """With and without `out`, as one array or as a list."""
    kernel, (a, b) = compiled(), operands()
    out = np.zeros((6, 7), np.float32)
    assert kernel(a, b, out=out) is out
    np.testing.assert_array_equal(out, kernel(a, b))
    assert kernel(a, b, out=[out]) is out


def test_the_direct_call_follows_its_arguments() -> None:
    """Other arrays, read-only inputs and views at other addresses are read where they lie."""
    kernel = compiled()
    for seed in range(3):
        a, b = operands(seed)
        base = np.zeros((3, 6, 5), np.float32)
        base[seed] = a
        b.setflags(write=False)
        np.testing.assert_allclose(kernel(base[seed], b, out=np.zeros((6, 7), np.float32)), a @ b, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda a, b, c: (a.astype(np.float64), b, c), TypeError),
        (lambda a, b, c: (a[:5], b, c), ValueError),
        (lambda a, b, c: (np.asfortranarray(a), b, c), ValueError),
        (lambda a, b, c: (np.zeros((6, 10), np.float32)[:, ::2], b, c), ValueError),
        (lambda a, b, c: (np.frombuffer(bytes(121), np.uint8)[1:].view(np.float32).reshape(6, 5), b, c), ValueError),
        (lambda a, b, c: (a.tolist(), b, c), TypeError),
        (lambda a, b, c: (a, b, c[:, :6]), ValueError),
        (lambda a, b, c: (a, b, [c, c]), TypeError),
    ],
)
def test_what_the_direct_call_declines_is_told(change: Any, error: type[Exception]) -> None:
    """Wrong type, shape, order, strides, alignment or number: the careful way says so, and nothing is written."""
    a, b = operands()
    c = np.full((6, 7), 5, np.float32)
    a, b, out = change(a, b, c)
    with pytest.raises(error):
        compiled()(a, b, out=out)
    assert (c == 5).all()


def test_the_direct_call_refuses_overlap_and_read_only_results() -> None:
    """A result that shares one element with an input, or cannot be written, is refused."""
    kernel, (a, b) = compiled(), operands()
    memory = np.zeros(6 * 7 + 5 * 7 - 1, np.float32)
    with pytest.raises(ValueError, match="shares memory with `b`"):
        kernel(a, memory[41:].reshape(5, 7), out=memory[:42].reshape(6, 7))
    locked = np.zeros((6, 7), np.float32)
    locked.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        kernel(a, b, out=locked)


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """A kernel that fails where a call is not direct."""
    kernel = compiled()

    def careful(*args: Any) -> None:
        raise AssertionError("the careful way was taken")

    monkeypatch.setattr(kernel, "_call", careful)
    return kernel


def test_plain_arrays_are_called_directly(direct: Kernel) -> None:
    """With `out` and without; what is allocated is new each time, and no array has references that stay."""
    a, b = operands()
    out = np.zeros((6, 7), np.float32)
    counts = [sys.getrefcount(x) for x in (a, b, out)]
    results = [direct(a, b) for _ in range(100)]
    for _ in range(100):
        direct(a, b, out=out)
    assert [sys.getrefcount(x) for x in (a, b, out)] == counts
    assert len({r.ctypes.data for r in results}) == 100
    for result in (*results, out):
        np.testing.assert_allclose(result, a @ b, rtol=1e-5)


def test_a_call_that_is_declined_leaves_the_kernel_free(direct: Kernel) -> None:
    """After a wrong argument, of a wrong number or at any place, the next right call is direct."""
    a, b = operands()
    for wrong in ((a,), (a, b, b), (b, a), (a, None), (a, b[:, ::-1])):
        with pytest.raises(AssertionError, match="careful"):
            direct(*wrong)
        np.testing.assert_allclose(direct(a, b), a @ b, rtol=1e-5)


def test_several_results_come_as_a_tuple() -> None:
    """Given or new; a single array in their place is told."""
    func = parse(TWO)
    kernel = build(func, CPU, dict.fromkeys("xyz", "fixed"))
    x = np.arange(8, dtype=np.float32)
    y, z = kernel(x)
    np.testing.assert_array_equal((y, z), (x + 1, x + 2))
    given = [np.zeros(8, np.float32), np.zeros(8, np.float32)]
    found = kernel(x, out=given)
    assert found[0] is given[0] and found[1] is given[1]
    np.testing.assert_array_equal(given, (x + 1, x + 2))
    with pytest.raises(TypeError, match="2 outputs"):
        kernel(x, out=np.zeros((8,), np.float32))
    with pytest.raises(ValueError, match="`z` is written and shares memory with `y`"):
        kernel(x, out=[given[0], given[0]])


def test_addresses_are_where_numpy_says() -> None:
    """For every kind of view, of arrays that own their memory and of those that do not."""
    base = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for array in (base, base[1], base[:, 1:, ::2], base.T, np.frombuffer(bytes(8), np.uint8), np.zeros((0, 3))):
        assert address(array) == array.__array_interface__["data"][0]
