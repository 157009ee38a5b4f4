"""OpenCL sources say what the program says, in names that no header has and in a length that follows the program's."""

from __future__ import annotations

import numpy as np
import pytest
from opencl_programs import GENERIC, needs_device

import stridesmith as ss
from stridesmith.backends.devices import listing
from stridesmith.backends.lower import lower
from stridesmith.backends.render.opencl.program import generate
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target

DEVICES = [pytest.param(device.target, id=device.selector) for device in listing() if device.target.kind == "opencl"]
MACROS = ["INT_MIN", "LONG_MAX", "M_PI_F", "DBL_EPSILON", "FLT_RADIX", "VECTOR_BITS", "ONE_MEMORY", "NULL", "CHAR_BIT"]


def read(text: str) -> PrimFunc:
    func = ss.parse(f"@T.prim_func\ndef f{text}")
    assert isinstance(func, PrimFunc)
    return func


def clips(levels: int, kind: str = "serial") -> PrimFunc:
    """A value that is multiplied and clipped so often."""
    value = "A[o * 16 + i]"
    for level in range(1, levels + 1):
        value = f"T.min(T.max({value} * T.float32(1.5), T.float32(-{level})), T.float32({level + 1}))"
    return read(f"""(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
    for o in range(4):
        for i in T.{kind}(16):
            C[o * 16 + i] = {value}
""")


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_the_source_of_nested_clips_grows_with_their_number(kind: str) -> None:
    """Each level of `min` and `max` is written once."""
    lengths = [len(generate(lower(clips(levels, kind), GENERIC, False), GENERIC).text) for levels in (4, 8, 12)]
    assert lengths[2] - lengths[1] < 2 * (lengths[1] - lengths[0])


@needs_device
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("target", DEVICES)
def test_nested_clips(target: Target, kind: str) -> None:
    """They compute what the interpreter does, NaN and infinities included."""
    given = np.linspace(-9, 9, 64).astype("float32")
    given[:3] = np.nan, np.inf, -np.inf
    wanted = np.zeros(64, "float32")
    interpret(clips(6, kind), given, wanted)
    np.testing.assert_array_equal(ss.build(clips(6, kind), target, strict=True)(given), wanted)


@needs_device
@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("name", MACROS)
def test_names_of_macros(target: Target, name: str) -> None:
    """What drivers' headers define may be the name of a parameter."""
    func = read(f"""({name}: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        C[i] = {name}[i] + T.float32(1)
""")
    assert list(ss.build(func, target)(np.arange(8, dtype="float32"))) == list(range(1, 9))
