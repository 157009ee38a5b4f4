"""Element-wise operators, with NumPy's broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np

from ...ir.dtypes import bits, is_float, is_int, is_storage
from ...space.workloads.text import element, literal
from ..network import CARRIED
from .functions import acosh, asinh, hyperbolic, mish, odd, sign, sinh, softplus
from .graph import OWN_DOMAIN
from .narrow import FLOATS8, PAIRS, SCALE, code_of, number_of, power_of, saturated
from .site import Builder, Built, Site, letters, new_program, rounding

Text = Callable[[Sequence[str], str], str]
"""The value of an element as script text, from its operands and the type that they are computed in."""


def elementwise(site: Site, name: str, value: Text, operands: Sequence[int], dtype: str = "") -> Built:
    """``y[i] = value(x[i], ...)`` over the result's shape.

    Operands are read in their own types, halves widened; `dtype` is the type that `value` gives, where it is not
    that of the first operand.
    """
    result, inner = site.result(), dtype or rounding(site.dtype(operands[0])).accumulator
    names = letters(len(result.shape))
    program = new_program(name, site.dtype(operands[0]))
    texts: list[str] = []
    passed: list[int] = []
    for at in operands:
        single = _single(site, at)
        if single is not None:
            texts.append(single)
            continue
        called = f"x{len(passed)}"
        program.inputs([(called, site.shape(at))], site.dtype(at))
        passed.append(at)
        load = element(called, broadcast(site.shape(at), [f"v{a}" for a in names]))
        texts.append(_widened(load, site.dtype(at)))
    program.output("y", result.shape, result.dtype)
    text = value(texts, rounding(site.dtype(operands[0])).accumulator)
    if inner != result.dtype:
        text = f"T.Cast({result.dtype!r}, {text})"
    axes = [(a, e, "S") for a, e in zip(names, result.shape, strict=True)]
    program.add(name, axes, f"{element('y', [f'v{a}' for a in names])} = {text}")
    return [site.operator(program.text(), passed)]


def broadcast(shape: tuple[int, ...], at: Sequence[str]) -> list[str]:
    """Indices of an operand whose last dimensions go with the last of `at`; 0 where it has extent 1."""
    last = at[len(at) - len(shape) :]
    return ["0" if extent == 1 else index for extent, index in zip(shape, last, strict=True)]


def _single(site: Site, at: int) -> str | None:
    """A constant of one element as a literal."""
    value = site.constant(at)
    if value is None or value.size != 1 or value.dtype.kind not in "fiub" or site.dtype(at) == "bfloat16":
        return None
    number = value.reshape(-1)[0].item()
    return literal(number, rounding(site.dtype(at)).accumulator)


def _widened(load: str, dtype: str) -> str:
    wide = rounding(dtype).accumulator
    return load if wide == dtype else f"T.Cast({wide!r}, {load})"


def _unary(name: str, text: Callable[[str, Callable[[float], str], Site], str], only: str = "f") -> Builder:
    """A builder of ``y = text(x)`` for the kinds of types in `only`: f(loat), i(nteger), b(ool)."""

    def build(site: Site) -> Built:
        if _kind(site.dtype()) not in only:
            return None

        def value(x: Sequence[str], dtype: str) -> str:
            def number(given: float) -> str:
                return literal(float(given) if is_float(dtype) else int(given), dtype)

            return text(x[0], number, site)

        return elementwise(site, name, value, [0])

    return build


def _kind(dtype: str) -> str:
    return "f" if is_float(dtype) else "i" if is_int(dtype) else "b"


def _gelu(x: str, n: Callable[[float], str], site: Site) -> str:
    if site.attribute("approximate", "none") == "tanh":
        inner = f"{n(math.sqrt(2 / math.pi))} * ({x} + {n(0.044715)} * {x} * {x} * {x})"
        return f"{n(0.5)} * {x} * ({n(1)} + T.tanh({inner}))"
    return f"{x} * {n(0.5)} * ({n(1)} + T.erf({x} * {n(math.sqrt(0.5))}))"


def _hard_sigmoid(x: str, n: Callable[[float], str], alpha: float, beta: float) -> str:
    return f"T.max({n(0)}, T.min({n(1)}, {x} * {n(alpha)} + {n(beta)}))"


def _elu(x: str, n: Callable[[float], str], alpha: float) -> str:
    return f"T.Select({x} < {n(0)}, {n(alpha)} * (T.exp(T.min({x}, {n(0)})) - {n(1)}), {x})"


def _selu(x: str, n: Callable[[float], str], site: Site) -> str:
    alpha, gamma = (
        site.attribute("alpha", 1.67326319217681884765625),
        site.attribute("gamma", 1.05070102214813232421875),
    )
    return f"{n(gamma)} * {_elu(x, n, alpha)}"


def _absolute(x: str, n: Callable[[float], str], site: Site) -> str:
    if is_float(site.dtype()):
        return f"T.abs({x})"
    return x if site.dtype().startswith("u") else f"T.max({x}, {n(0)} - {x})"


_UNARY: Mapping[str, Builder] = {
    "Relu": _unary("relu", lambda x, n, s: f"T.max({x}, {n(0)})", "fi"),
    "LeakyRelu": _unary(
        "leaky_relu", lambda x, n, s: f"T.Select({x} < {n(0)}, {x} * {n(s.attribute('alpha', 0.01))}, {x})"
    ),
    "Elu": _unary("elu", lambda x, n, s: _elu(x, n, s.attribute("alpha", 1.0))),
    "Selu": _unary("selu", _selu),
    "Celu": _unary(
        "celu", lambda x, n, s: f"T.max({n(0)}, {x}) + T.min({n(0)}, {n(s.attribute('alpha', 1.0))} * "
        f"(T.exp({x} / {n(s.attribute('alpha', 1.0))}) - {n(1)}))",
    ),
    "ThresholdedRelu": _unary(
        "thresholded_relu", lambda x, n, s: f"T.Select({x} > {n(s.attribute('alpha', 1.0))}, {x}, {n(0)})"
    ),
    "HardSigmoid": _unary(
        "hard_sigmoid", lambda x, n, s: _hard_sigmoid(x, n, s.attribute("alpha", 0.2), s.attribute("beta", 0.5))
    ),
    "HardSwish": _unary("hard_swish", lambda x, n, s: f"{x} * {_hard_sigmoid(x, n, 1 / 6, 0.5)}"),
    "Sigmoid": _unary("sigmoid", lambda x, n, s: f"T.sigmoid({x})"),
    "Swish": _unary("swish", lambda x, n, s: f"{x} * T.sigmoid({n(s.attribute('alpha', 1.0))} * {x})"),
    "Tanh": _unary("tanh", lambda x, n, s: f"T.tanh({x})"),
    "Gelu": _unary("gelu", _gelu),
    "Mish": _unary("mish", lambda x, n, s: mish(x, n)),
    "Softplus": _unary("softplus", softplus),
    "Softsign": _unary("softsign", lambda x, n, s: f"{x} / ({n(1)} + T.abs({x}))"),
    "Erf": _unary("erf", lambda x, n, s: f"T.erf({x})"),
    "Exp": _unary("exp", lambda x, n, s: f"T.exp({x})"),
    "Log": _unary("log", lambda x, n, s: f"T.log({x})"),
    "Sqrt": _unary("sqrt", lambda x, n, s: f"T.sqrt({x})"),
    "Reciprocal": _unary("reciprocal", lambda x, n, s: f"{n(1)} / {x}"),
    "Floor": _unary("floor", lambda x, n, s: f"T.floor({x})"),
    "Ceil": _unary("ceil", lambda x, n, s: f"T.ceil({x})"),
    "Round": _unary("round", lambda x, n, s: f"T.nearbyint({x})"),
    "Neg": _unary("neg", lambda x, n, s: f"{n(0)} - {x}", "fi"),
    "Abs": _unary("abs", lambda x, n, s: _absolute(x, n, s), "fi"),
    "Sign": _unary("sign", lambda x, n, s: sign(x, n), "f"),
    "Sinh": _unary("sinh", sinh),
    "Cosh": _unary("cosh", lambda x, n, s: hyperbolic(f"T.abs({x})", n, "+")),
    "Acosh": _unary("acosh", lambda x, n, s: acosh(x, n)),
    "Asinh": _unary("asinh", asinh),
    "Atanh": _unary(
        "atanh", lambda x, n, s: odd(
            x, n, s, (1 / 3, 1 / 5, 1 / 7, 1 / 9), f"{n(0.5)} * T.log(({n(1)} + {x}) / ({n(1)} - {x}))"
        )
    ),
    "Not": _unary("logical_not", lambda x, n, s: f"not {x}", "b"),
    "BitwiseNot": _unary("bitwise_not", lambda x, n, s: f"T.bitwise_not({x})", "i"),
    "Identity": _unary("copy", lambda x, n, s: x, "fib"),
    "Sin": _unary("sin", lambda x, n, s: f"T.sin({x})"),
    "Cos": _unary("cos", lambda x, n, s: f"T.cos({x})"),
    "Tan": _unary("tan", lambda x, n, s: f"T.sin({x}) / T.cos({x})"),
    "Asin": _unary("asin", lambda x, n, s: f"T.atan({x} / T.sqrt(({n(1)} - {x}) * ({n(1)} + {x})))"),
    "Acos": _unary("acos", lambda x, n, s: f"{n(2)} * T.atan(T.sqrt(({n(1)} - {x}) / ({n(1)} + {x})))"),
    "Atan": _unary("atan", lambda x, n, s: f"T.atan({x})"),
    "Shrink": _unary(
        "shrink",
        lambda x, n, s: f"T.Select({x} < {n(-s.attribute('lambd', 0.5))}, {x} + {n(s.attribute('bias', 0.0))}, "
        f"T.Select({x} > {n(s.attribute('lambd', 0.5))}, {x} - {n(s.attribute('bias', 0.0))}, {n(0)}))",
    ),
}  # fmt: skip


def _binary(name: str, text: str, only: str = "fi", gives: str = "") -> Builder:
    """A builder of ``y = a text b``."""

    def build(site: Site) -> Built:
        if _kind(site.dtype()) not in only or site.dtype(0) != site.dtype(1):
            return None
        return elementwise(site, name, lambda x, _: text.format(a=x[0], b=x[1]), [0, 1], gives)

    return build


def _div(site: Site) -> Built:
    """The quotient; that of integers is rounded towards 0."""
    if site.dtype() in ("bool",) or site.dtype(0) != site.dtype(1):
        return None
    if is_float(site.dtype()):
        return elementwise(site, "div", lambda x, _: f"{x[0]} / {x[1]}", [0, 1])
    return elementwise(site, "div", lambda x, _: f"T.truncdiv({x[0]}, {x[1]})", [0, 1])


def _mod(site: Site) -> Built:
    """The rest of a division, with the sign of the divisor, or with `fmod`, as floats must have, of the dividend."""
    if site.dtype() == "bool" or site.dtype(0) != site.dtype(1):
        return None
    if not site.attribute("fmod", 0):
        if is_float(site.dtype()):
            return elementwise(site, "mod", _float_mod, [0, 1])
        return elementwise(site, "mod", lambda x, _: f"{x[0]} % {x[1]}", [0, 1])
    function = "fmod" if is_float(site.dtype()) else "truncmod"
    return elementwise(site, "mod", lambda x, _: f"T.{function}({x[0]}, {x[1]})", [0, 1])


def _float_mod(x: Sequence[str], dtype: str) -> str:
    """The rest of floats with the sign of the divisor."""
    rest, b, zero = f"T.fmod({x[0]}, {x[1]})", x[1], literal(0.0, dtype)
    return f"T.Select({rest} != {zero} and ({rest} < {zero}) != ({b} < {zero}), {rest} + {b}, {rest})"


def _bit_cast(site: Site) -> Built:
    """The same bits as numbers of another type, which is as wide."""
    to, given = site.result().dtype, site.dtype()
    if bits(to) != bits(given) or "bool" in (to, given):
        return None
    names = letters(len(site.result().shape))
    program = new_program("bit_cast", given)
    program.inputs([("x", site.shape())], given)
    program.output("y", site.result().shape, to)
    at = [f"v{a}" for a in names]
    axes = [(a, e, "S") for a, e in zip(names, site.result().shape, strict=True)]
    program.add("bit_cast", axes, f"{element('y', at)} = T.reinterpret({to!r}, {element('x', at)})")
    return [site.operator(program.text(), [0])]


def _bits(name: str) -> Builder:
    """A builder of an operation on the bits of two integers."""

    def build(site: Site) -> Built:
        if not is_int(site.dtype()) or site.dtype(0) != site.dtype(1):
            return None
        return elementwise(site, name, lambda x, _: f"T.{name}({x[0]}, {x[1]})", [0, 1])

    return build


def _bit_shift(site: Site) -> Built:
    """Numbers times powers of two, or divided by these; a shift is read as a number without a sign."""
    if not is_int(site.dtype()) or site.dtype(0) != site.dtype(1):
        return None
    name = "shift_left" if site.attribute("direction", "") == "LEFT" else "shift_right"
    return elementwise(site, name, lambda x, _: f"T.{name}({x[0]}, {x[1]})", [0, 1])


def _pow(site: Site) -> Built:
    """Powers of floats and integers; a constant exponent of a common kind needs no power function.

    An integer by a float is computed in float64, and is the whole part of that.
    """
    if is_int(site.dtype()) and is_int(site.dtype(1)):
        return elementwise(site, "pow", lambda x, t: _whole_power(x[0], x[1], t, site.dtype(1)), [0, 1])
    if is_int(site.dtype()) and is_float(site.dtype(1)):
        both = "T.pow(T.Cast('float64', {0}), T.Cast('float64', {1}))"
        return elementwise(site, "pow", lambda x, _: both.format(*x), [0, 1], "float64")
    if not is_float(site.dtype()):
        return None
    exponent = site.constant(1)
    if exponent is not None and exponent.size == 1 and site.result() == site.type(0):
        number = float(exponent.reshape(-1)[0])
        plain = {2.0: "{x} * {x}", 3.0: "{x} * {x} * {x}", 0.5: "T.sqrt({x})", -1.0: "{one} / {x}"}.get(number)
        if plain:
            return elementwise(site, "pow", lambda x, t: plain.format(x=x[0], one=literal(1.0, t)), [0])
    return elementwise(site, "pow", lambda x, t: f"T.pow({x[0]}, T.Cast({t!r}, {x[1]}))", [0, 1])


def _whole_power(x: str, exponent: str, dtype: str, kind: str) -> str:
    """The product of ``x^(2^i)`` for the bits i of the exponent; 0 for negative ones, but of 1 and -1.

    Of an exponent no more than 6 bits count: all others give 0, 1 or -1, or what has left 64 bits.
    """
    one, zero = literal(1, dtype), literal(0, dtype)
    power, factors = x, []
    for bit in range(6):
        is_set = f"T.bitwise_and({exponent}, {literal(1 << bit, kind)}) != {literal(0, kind)}"
        factors.append(f"T.Select({is_set}, {power}, {one})")
        power = f"({power}) * ({power})"
    text = " * ".join(factors)
    is_lost = f"{exponent} < {literal(0, kind)} and {x} * {x} != {one}"
    return text if kind.startswith("u") else f"T.Select({is_lost}, {zero}, {text})"


def _many(name: str, text: str, only: str = "fi") -> Builder:
    """A builder of an operator of any number of operands."""

    def build(site: Site) -> Built:
        if _kind(site.dtype()) not in only or len({site.dtype(at) for at in range(site.count)}) > 1:
            return None

        def value(x: Sequence[str], dtype: str) -> str:
            total = reduce(lambda a, b: text.format(a=a, b=b), x)
            return f"({total}) / {literal(float(len(x)), dtype)}" if name == "mean" else total

        return elementwise(site, name, value, range(site.count))

    return build


LARGEST = float(np.finfo(np.float32).max)


def _clip(site: Site) -> Built:
    """Bounds are attributes in old versions, by default the ends of float32, and optional scalars in newer ones."""
    if _kind(site.dtype()) == "b":
        return None
    bounds = {"T.max": (1, "min", -LARGEST), "T.min": (2, "max", LARGEST)}

    def value(x: Sequence[str], dtype: str) -> str:
        text, rest = x[0], list(x[1:])
        for call, (at, name, default) in bounds.items():
            if site.has(at):
                text = f"{call}({text}, {rest.pop(0)})"
            elif site.opset < 11:
                text = f"{call}({text}, {literal(site.attribute(name, default), dtype)})"
        return text

    return elementwise(site, "clip", value, [at for at in (0, 1, 2) if site.has(at)])


def _cast(site: Site) -> Built:
    """Conversions; to bool is not being 0.

    A float of 8 bits is the nearest one, and its type's end for what is beyond that, but with `saturate` 0.
    """
    to, given = site.result().dtype, site.dtype()
    if site.told() in CARRIED or site.told_result() in CARRIED:
        return _cast_of_codes(site)
    if to in FLOATS8 and given not in FLOATS8:
        inner = "float64" if given == "float64" else "float32"

        def nearest(x: Sequence[str], dtype: str) -> str:
            wide = x[0] if dtype == inner else f"T.Cast({inner!r}, {x[0]})"
            return saturated(wide, to, inner) if site.attribute("saturate", 1) else wide

        return elementwise(site, "cast", nearest, [0], inner)
    if is_storage(to) and is_float(given) and not is_float(to):  # the lowest bits of whole numbers
        return elementwise(site, "cast", lambda x, t: f"T.Cast('int32', {x[0]})", [0], "int32")
    if to == "bool":
        return elementwise(
            site, "cast", lambda x, t: x[0] if given == "bool" else f"{x[0]} != {literal(0, t)}", [0], "bool"
        )
    return elementwise(site, "cast", lambda x, t: x[0], [0])


def _cast_of_codes(site: Site) -> Built:
    """Conversions from and to numbers of which programs have the codes; those of many digits would be rounded twice."""
    given, to = site.told(), site.told_result()
    is_whole = given in PAIRS or (is_int(site.dtype()) and given not in CARRIED)
    if given not in CARRIED and bits(given) > (32 if is_float(given) else 16) and to not in PAIRS:
        return None

    def number(x: Sequence[str], dtype: str) -> str:
        return number_of(x[0], given) if given in CARRIED else x[0]

    def wide(x: Sequence[str], dtype: str) -> str:
        value, kind = number(x, dtype), "int32" if given in PAIRS else "float32" if given in CARRIED else dtype
        return value if kind == "float32" else f"T.Cast('float32', {value})"

    def code(x: Sequence[str], dtype: str) -> str:
        if to in PAIRS:
            return f"T.bitwise_and(T.Cast('int32', {number(x, dtype)}), {literal(3, 'int32')})"
        if to == SCALE:
            return power_of(wide(x, dtype), site.attribute("round_mode", "up"), bool(site.attribute("saturate", 1)))
        saturates = site.attribute("saturate", 1) and to != "float4_e2m1fn"
        return code_of(saturated(wide(x, dtype), to) if saturates else wide(x, dtype), to)

    if to in CARRIED:
        return elementwise(site, "cast", code, [0], "int32")
    inner = "int32" if is_whole else "float32"
    if to == "bool":
        zero = literal(0, inner)
        return elementwise(site, "cast", lambda x, t: f"{number(x, t)} != {zero}", [0], "bool")
    if to in FLOATS8:
        return elementwise(
            site, "cast", lambda x, t: saturated(wide(x, t), to) if site.attribute("saturate", 1) else wide(x, t), [0],
            "float32",
        )  # fmt: skip
    return elementwise(site, "cast", number, [0], inner)


def _where(site: Site) -> Built:
    if site.dtype(1) != site.dtype(2):
        return None
    inner = rounding(site.dtype(1)).accumulator
    return elementwise(site, "where", lambda x, _: f"T.Select({x[0]}, {x[1]}, {x[2]})", [0, 1, 2], inner)


def _is_inf(site: Site) -> Built:
    if not is_float(site.dtype()):
        return None
    sides = [("<", "-inf", "detect_negative"), (">", "inf", "detect_positive")]
    tests = [which for _, which, attribute in sides if site.attribute(attribute, 1)]

    def value(x: Sequence[str], dtype: str) -> str:
        return " or ".join(f"{x[0]} == {literal(float(which), dtype)}" for which in tests) or "T.bool(False)"

    return elementwise(site, "isinf", value, [0], "bool") if tests else None


def _is_nan(site: Site) -> Built:
    return elementwise(site, "isnan", lambda x, _: f"{x[0]} != {x[0]}", [0], "bool") if is_float(site.dtype()) else None


def _prelu(site: Site) -> Built:
    if not is_float(site.dtype()):
        return None
    return elementwise(
        site, "prelu", lambda x, t: f"T.Select({x[0]} < {literal(0, t)}, {x[0]} * {x[1]}, {x[0]})", [0, 1]
    )


def _expand(site: Site) -> Built:
    return elementwise(site, "expand", lambda x, _: x[0], [0])


def _batch_normalization(site: Site) -> Built:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` by channel, in inference."""
    if site.attribute("training_mode", 0) or any(site.wants(at) for at in range(1, 5)) or not is_float(site.dtype()):
        return None
    if any(site.dtype(at) != site.dtype() for at in range(5)) or len(site.shape()) < 2:
        return None
    epsilon = site.attribute("epsilon", 1e-5)

    def value(x: Sequence[str], dtype: str) -> str:
        return f"({x[0]} - {x[3]}) / T.sqrt({x[4]} + {literal(epsilon, dtype)}) * {x[1]} + {x[2]}"

    return _by_channel(site, "batch_norm", value, [1, 2, 3, 4])


def _affine(site: Site) -> Built:
    """``x * scale + shift`` by channel: what `simplify` makes of normalisations whose statistics are known."""
    return _by_channel(site, "scale_shift", lambda x, _: f"{x[0]} * {x[1]} + {x[2]}", [1, 2])


def _by_channel(site: Site, name: str, value: Text, vectors: Sequence[int]) -> Built:
    """Element-wise over x[n, c, ...] and vectors over c."""
    shape, dtype = site.shape(), site.dtype()
    names = letters(len(shape))
    program = new_program(name, dtype)
    program.inputs([("x0", shape), *((f"x{at}", site.shape(at)) for at in vectors)])
    program.output("y", shape)
    point = [f"v{a}" for a in names]
    loads = [program.load("x0", point), *(program.load(f"x{at}", [point[1]]) for at in vectors)]
    text = program.precision.narrow(value(loads, program.precision.accumulator))
    axes = [(a, e, "S") for a, e in zip(names, shape, strict=True)]
    program.add(name, axes, f"{element('y', point)} = {text}")
    return [site.operator(program.text(), [0, *vectors])]


BUILDERS: Mapping[tuple[str, str], Builder] = {
    **{("", op): builder for op, builder in _UNARY.items()},
    ("", "Add"): _binary("add", "{a} + {b}"),
    ("", "Sub"): _binary("sub", "{a} - {b}"),
    ("", "Mul"): _binary("mul", "{a} * {b}"),
    ("", "Div"): _div,
    ("", "Mod"): _mod,
    ("", "Pow"): _pow,
    ("", "And"): _binary("logical_and", "{a} and {b}", "b"),
    ("", "Or"): _binary("logical_or", "{a} or {b}", "b"),
    ("", "Xor"): _binary("logical_xor", "{a} != {b}", "b"),
    ("", "Equal"): _binary("equal", "{a} == {b}", "fib", "bool"),
    ("", "Less"): _binary("less", "{a} < {b}", "fi", "bool"),
    ("", "LessOrEqual"): _binary("less_equal", "{a} <= {b}", "fi", "bool"),
    ("", "Greater"): _binary("greater", "{a} > {b}", "fi", "bool"),
    ("", "GreaterOrEqual"): _binary("greater_equal", "{a} >= {b}", "fi", "bool"),
    ("", "BitwiseAnd"): _bits("bitwise_and"),
    ("", "BitwiseOr"): _bits("bitwise_or"),
    ("", "BitwiseXor"): _bits("bitwise_xor"),
    ("", "BitShift"): _bit_shift,
    ("", "BitCast"): _bit_cast,
    ("", "Max"): _many("maximum", "T.max({a}, {b})"),
    ("", "Min"): _many("minimum", "T.min({a}, {b})"),
    ("", "Sum"): _many("sum", "{a} + {b}", "f"),
    ("", "Mean"): _many("mean", "{a} + {b}", "f"),
    ("", "PRelu"): _prelu,
    ("", "Clip"): _clip,
    ("", "Cast"): _cast,
    ("", "CastLike"): _cast,
    ("", "Where"): _where,
    ("", "IsInf"): _is_inf,
    ("", "IsNaN"): _is_nan,
    ("", "Expand"): _expand,
    ("", "BatchNormalization"): _batch_normalization,
    (OWN_DOMAIN, "Affine"): _affine,
    (OWN_DOMAIN, "Sign"): _unary(
        "sign", lambda x, n, s: f"T.Select({x} > {n(0)}, {n(1)}, T.Select({x} < {n(0)}, {n(-1)}, {n(0)}))"
    ),
}
