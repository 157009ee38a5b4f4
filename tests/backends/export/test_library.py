"""Libraries of several steps: tensors in scratch memory by a plan, constants inside, one function for all."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from stridesmith.backends.artifact import Argument
from stridesmith.backends.data import arguments_of
from stridesmith.backends.devices import discover
from stridesmith.backends.export.formats import export
from stridesmith.backends.export.library import Constant, Function, Given, Library, Scratch, Step, aligned, single
from stridesmith.backends.export.linker import STUBS
from stridesmith.backends.export.module import linked
from stridesmith.backends.export.names import c_name, function_name, parameter_names
from stridesmith.backends.lower import lower
from stridesmith.errors import UsageError
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.script.parser import parse

CPU = discover("cpu", 2)
COUNT = 1000
SCALE = """
@T.prim_func
def scale(a: T.Buffer((1000,), "float32"), f: T.Buffer((1000,), "float32"), b: T.Buffer((1000,), "float32")):
    for i in T.parallel(1000):
        b[i] = a[i] * f[i]
"""


def chain() -> Library:
    """``y = x * f * f * f``: one program three times, by way of two places of scratch memory, f a constant."""
    program = lower(parse(SCALE), CPU)
    first, second = Scratch(0), Scratch(aligned(4 * COUNT))
    places = [(Given("x"), first), (first, second), (second, Given("y"))]
    steps = tuple(Step(program, (source, Constant("f"), result)) for source, result in places)
    shape = (COUNT,)
    layout = Layout.plain(shape)
    parameters = (Argument("x", layout, "float32"), Argument("y", layout, "float32", is_output=True))
    function = Function("chain", "Compute `y`", parameters, steps, 2 * aligned(4 * COUNT))
    factors = np.linspace(0, 2, COUNT).astype(np.float32)
    return Library("chain", CPU, (function,), {"f": factors.tobytes()}, "three products")


needs_linker = pytest.mark.skipif(
    not any(map(shutil.which, ("ld", "ld.lld", "cc"))) and importlib.util.find_spec("ziglang") is None,
    reason="there is no linker on this machine",
)


@needs_linker
def test_a_chain_of_steps_is_one_function(tmp_path: Path) -> None:
    """Each step finds what the one before it left, the constant is read, and calls may run at once."""
    export(chain(), tmp_path / "libchain.so")
    library = ctypes.CDLL(str(tmp_path / "libchain.so"))
    x, y = np.arange(COUNT, dtype=np.float32), np.zeros(COUNT, np.float32)
    factors = np.linspace(0, 2, COUNT).astype(np.float32)
    for _ in range(3):
        y[:] = 0
        assert library.chain(x.ctypes, y.ctypes) == 0
        np.testing.assert_array_equal(y, x * factors * factors * factors)
        library.chain_release()


def test_a_program_of_several_steps_is_there_once() -> None:
    """Three calls of one kernel, and one kernel."""
    text = linked(chain()).text
    assert text.count("call void @kernel_chain_0_scale(") == 3
    assert text.count("define internal void @kernel_chain_0_scale(") == 1


def test_what_nobody_calls_is_left_out() -> None:
    """A kernel without a parallel loop brings no pool, and the function for repeated timing is gone."""
    func = parse(SCALE.replace("T.parallel", "T.serial"))
    module = linked(Library("s", CPU, (single("s", "Compute `b`", arguments_of(func), lower(func, CPU)),)))
    assert module.needs == ()
    assert ".repeat" not in module.text
    assert "pthread_create" in linked(chain()).needs


@pytest.mark.parametrize(
    ("text", "name"),
    [("conv2d", "conv2d"), ("my conv-3", "my_conv_3"), ("3x3", "k_3x3"), ("double", "k_double"), ("asm", "k_asm")],
)
def test_names_become_names_of_c(text: str, name: str) -> None:
    """Whatever a file is called, its function has a name that C takes."""
    assert c_name(text) == name


@pytest.mark.parametrize(
    ("text", "name"), [("exp", "k_exp"), ("logf", "k_logf"), ("free", "k_free"), ("worker", "k_worker"), ("sum", "sum")]
)
def test_functions_are_not_those_of_the_c_library(text: str, name: str) -> None:
    """A program that links ours would call ours instead of its own."""
    assert function_name(text) == name


def test_functions_are_not_those_of_the_modules_that_are_linked() -> None:
    """Whatever the pool and the library's own functions are called, or call, a user's kernel may be called so."""
    text = linked(chain()).text
    named = set(re.findall(r"^(?:define|declare)[^@]*@([\w.]+)\(", text, re.MULTILINE))
    named |= set(re.findall(r"^@([\w.]+) =", text, re.MULTILINE))
    inside = {name for name in named if name.isidentifier() and "chain" not in name}
    assert "worker" in inside and "pthread_create" in inside
    inside |= {name for names in STUBS.values() for name in names}
    assert {name for name in inside if function_name(name) == name} == set()


def test_parameters_have_names_of_their_own() -> None:
    """Those of networks may differ in signs that C does not have, and in capitals, which macros do not have."""
    names = ["input.1", "input:1", "x", "X", "class"]
    found = parameter_names([Argument(name, Layout.plain((2,)), "float32") for name in names])
    assert list(found.values()) == ["input_1", "input_1_2", "x", "X_2", "k_class"]


def test_a_name_without_letters_is_refused() -> None:
    """There is nothing to make a name of."""
    with pytest.raises(UsageError, match="gives no name for a C library"):
        c_name("---")


@needs_linker
def test_scratch_memory_begins_with_what_it_is_told(tmp_path: Path) -> None:
    """New memory holds the initial bytes, which stay there from call to call; each function has memory of its own."""
    program = lower(parse(SCALE), CPU)
    shape, factors = (COUNT,), np.linspace(1, 3, COUNT).astype(np.float32)
    layout = Layout.plain(shape)
    parameters = (Argument("x", layout, "float32"), Argument("y", layout, "float32", is_output=True))
    steps = (Step(program, (Given("x"), Scratch(64), Given("y"))),)
    main = Function("main_one", "Compute `y`", parameters, steps, 64 + aligned(4 * COUNT), initial=((64, "f"),))
    steps = (Step(program, (Given("x"), Given("x"), Scratch(0))), Step(program, (Scratch(0), Given("x"), Given("y"))))
    other = Function("cube", "Compute `y`", parameters, steps, aligned(4 * COUNT))
    export(Library("held", CPU, (main, other), {"f": factors.tobytes()}), tmp_path / "libheld.so")
    library = ctypes.CDLL(str(tmp_path / "libheld.so"))
    x, y = np.arange(COUNT, dtype=np.float32), np.zeros(COUNT, np.float32)
    for number in range(4):
        assert library.main_one(x.ctypes, y.ctypes) == 0
        np.testing.assert_array_equal(y, x * factors)
        assert library.cube(x.ctypes, y.ctypes) == 0
        np.testing.assert_array_equal(y, x * x * x)
        if number == 1:
            library.held_release()
