"""Functions of one number as script text that keep the digits of small results, and overflow where these do.

`n` writes a number in the type that a program computes in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from .site import Site

Number: TypeAlias = Callable[[float], str]


def softplus(x: str, n: Number, site: Site) -> str:
    """``max(x, 0) + log(1 + e)`` with ``e = exp(-|x|)``, whose digits the sum would lose where it is small.

    ``log(1 + e) = 2 (z + z**3 / 3 + z**5 / 5 + ...)`` with ``z = e / (2 + e)``, which is at most 1/3.
    """
    e = f"T.exp({n(0)} - T.abs({x}))"
    z = f"({e} / ({e} + {n(2)}))"
    powers = series(f"({z} * {z})", [1 / (2 * k + 1) for k in range(18 if site.dtype() == "float64" else 8)], n)
    return f"(T.max({x}, {n(0)}) + {n(2)} * {z} * {powers})"


def series(x: str, factors: Sequence[float], n: Number) -> str:
    """``c0 + c1 x + c2 x**2 + ...``"""
    *rest, last = factors
    text = n(last)
    for factor in reversed(rest):
        text = f"({n(factor)} + {text} * {x})"
    return text


def mish(x: str, n: Number) -> str:
    """``x tanh(log(1 + e)) = x (e e + 2 e) / (e e + 2 e + 2)`` with ``e = exp(x)``; from 20 on it is x."""
    e = f"T.exp(T.min({x}, {n(20)}))"
    product = f"({e} * ({e} + {n(2)}))"
    return f"{x} * ({product} / ({product} + {n(2)}))"


def sign(x: str, n: Number) -> str:
    """The sign of `x`: 0 for 0, and NaN for NaN."""
    return f"T.Select({x} > {n(0)}, {n(1)}, T.Select({x} < {n(0)}, {n(-1)}, {x}))"


def odd(x: str, n: Number, site: Site, factors: Sequence[float], otherwise: str) -> str:
    """An odd function: near 0, where differences of numbers near 1 lose their digits, its series.

    ``x (1 + c1 x**2 + c2 x**4 + ...)``
    """
    square = f"({x} * {x})"
    limit = n(0.01 if site.dtype() == "float64" else 0.2)
    return f"T.Select(T.abs({x}) < {limit}, {x} + {x} * ({square} * {series(square, factors, n)}), {otherwise})"


def hyperbolic(x: str, n: Number, sign: str) -> str:
    """``(exp(x) + exp(-x)) / 2`` for x >= 0, or their difference.

    It is ``e/2 t + 1/(2 e t)`` with ``t = exp(x - 1)``, which does not overflow before the result does.
    """
    t = f"T.exp({x} - {n(1)})"
    return f"({n(math.e / 2)} * {t} {sign} {n(0.5 / math.e)} / {t})"


def sinh(x: str, n: Number, site: Site) -> str:
    """Below 1, where the difference loses digits, the series of it: ``x (1 + x**2 / 3! + x**4 / 5! + ...)``."""
    factors = [1 / math.factorial(2 * k + 3) for k in range(9 if site.dtype() == "float64" else 5)]
    square, far = f"({x} * {x})", hyperbolic(f"T.abs({x})", n, "-")
    near = f"{x} + {x} * ({square} * {series(square, factors, n)})"
    return f"T.Select(T.abs({x}) < {n(1)}, {near}, T.Select({x} < {n(0)}, {n(0)} - {far}, {far}))"


HUGE = 1e9
"""From here on ``sqrt(x * x + 1)`` is x in every type, while the square overflows in float32 from 1.8e19 on."""


def inverse_hyperbolic(x: str, n: Number, root: str) -> str:
    """``log(x + root)`` for x >= 0, where `root` is of ``x * x`` one more or less; ``log(2 x)`` for a huge x."""
    return f"T.Select({x} > {n(HUGE)}, T.log({x}) + {n(math.log(2))}, T.log({x} + {root}))"


def acosh(x: str, n: Number) -> str:
    """Below 1 there is none: neither has the root of ``x - 1``."""
    return inverse_hyperbolic(x, n, f"T.sqrt({x} - {n(1)}) * T.sqrt({x} + {n(1)})")


def asinh(x: str, n: Number, site: Site) -> str:
    size = f"T.abs({x})"
    far = f"{sign(x, n)} * {inverse_hyperbolic(size, n, f'T.sqrt({size} * {size} + {n(1)})')}"
    return odd(x, n, site, (-1 / 6, 3 / 40, -15 / 336, 105 / 3456), far)
