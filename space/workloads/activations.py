"""Activations: each as script text and as NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .operator import Array
from .text import Step, literal

SLOPE = 0.01
TOP = 6


@dataclass(frozen=True)
class Activation:
    """``y = act(x)``: `text` has ``{v}`` for x and ``{number}`` literals written as ``<number>``."""

    name: str
    text: str
    compute: Callable[[Array], Array]

    def step(self, dtype: str) -> Step:
        """The activation as a stage of a program that computes in `dtype`."""
        parts = self.text.split("<")
        typed = [parts[0]]
        for part in parts[1:]:
            number, rest = part.split(">", 1)
            typed.append(literal(float(number) if "." in number else int(number), dtype) + rest)
        return self.name, "".join(typed)


def _erf(x: Array) -> Array:
    result: Array = np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)
    return result


def _sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))`` in a form that does not overflow."""
    half = _scalar(x, 0.5)
    result: Array = half + half * np.tanh(half * x)
    return result


def _scalar(x: Array, value: float) -> Any:
    return x.dtype.type(value)


ACTIVATIONS: dict[str, Activation] = {
    a.name: a
    for a in (
        Activation("relu", "T.max({v}, <0>)", lambda x: np.maximum(x, _scalar(x, 0))),
        Activation("clip", f"T.min(T.max({{v}}, <0>), <{TOP}>)", lambda x: np.clip(x, _scalar(x, 0), _scalar(x, TOP))),
        Activation("leaky_relu", f"T.max({{v}}, {{v}} * <{SLOPE}>)", lambda x: np.maximum(x, x * _scalar(x, SLOPE))),
        Activation("sigmoid", "T.sigmoid({v})", _sigmoid),
        Activation("tanh", "T.tanh({v})", np.tanh),
        Activation("silu", "{v} * T.sigmoid({v})", lambda x: x * _sigmoid(x)),
        Activation(
            "gelu",
            f"{{v}} * <0.5> * (<1> + T.erf({{v}} * <{math.sqrt(0.5)!r}>))",
            lambda x: x * _scalar(x, 0.5) * (_scalar(x, 1) + _erf(x * _scalar(x, math.sqrt(0.5)))),
        ),
        Activation("none", "{v}", lambda x: x),
    )
}
NAMES = tuple(ACTIVATIONS)
