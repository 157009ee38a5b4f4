"""Operations of which each is rounded once, as functions in OpenCL C (see `..passes.roundings`).

A compiler may make one multiply-add of a product and a sum, but not where either stands in a function without
contraction.  A division or a square root of float32 may be off by 2.5 units in the last place, unless a program is
built with `ROUNDING`, which devices have that say so; on others it goes through float64, where they have that.
"""

from __future__ import annotations

from .helpers import Helpers

ROUNDS = "ROUNDS_QUOTIENTS"
"""A macro of the build, by which sources know that their quotients and roots are rounded once."""
ROUNDING = ("-cl-fp32-correctly-rounded-divide-sqrt", f"-D{ROUNDS}")
"""What the compiler is told of sources that have such quotients, where the device can."""
CORRECTLY_ROUNDED = 1 << 7
"""The bit of CL_DEVICE_SINGLE_FP_CONFIG that says whether a device has the option."""

_WIDENS = f"""#if !defined({ROUNDS}) && defined(cl_khr_fp64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define WIDENS
#endif
"""
_NAMES = {"+": "sum", "-": "difference", "*": "product", "/": "quotient", "sqrt": "root"}


def exact_operation(helpers: Helpers, op: str, ctype: str, count: int) -> str:
    """A function for ``a op b``, or for the root of a, of floats or vectors of them."""
    kind = ctype if count == 1 else f"{ctype}{count}"
    name = f"exact_{_NAMES[op]}_{kind}"
    given = f"{kind} a" if op == "sqrt" else f"{kind} a, {kind} b"
    body = f"    return {_operation(helpers, op, ctype, count)};\n"
    if ctype == "float" and op in ("/", "sqrt"):
        helpers.define("WIDENS", _WIDENS)
        body = f"#ifdef WIDENS\n    return {_widened(op, count)};\n#else\n{body}#endif\n"
    helpers.define(name, f"inline {kind} {name}({given}) {{\n#pragma OPENCL FP_CONTRACT OFF\n{body}}}\n")
    return name


def _operation(helpers: Helpers, op: str, ctype: str, count: int) -> str:
    return f"{helpers.built_in('sqrt', ctype, ctype, count)}(a)" if op == "sqrt" else f"a {op} b"


def _widened(op: str, count: int) -> str:
    """The operation in float64, rounded to float32: two roundings that are as one, because float64 is wide enough."""
    lanes = [""] if count == 1 else [f".s{k:x}" for k in range(count)]
    one = "(float)sqrt((double)a{0})" if op == "sqrt" else "(float)((double)a{0} / (double)b{0})"
    values = ", ".join(one.format(lane) for lane in lanes)
    return values if count == 1 else f"(float{count})({values})"
