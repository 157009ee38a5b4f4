"""Models of one ONNX operator, and the chance that fills them: odd shapes, attributes, versions, types and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Shape: TypeAlias = "tuple[int, ...]"

VERSIONS = range(7, 23)
EXTENTS = (1, 1, 2, 3, 4, 5, 7, 9, 11)
TYPES = {
    "float32": 10, "float64": 3, "float16": 3, "int8": 1, "int16": 1, "int32": 2, "int64": 2, "uint8": 2, "bool": 1,
}  # fmt: skip
"""How often a type is drawn, of those that an operator has in its version."""
HUGE = {"float16": 6e4, "float32": 3e38, "float64": 1e308}
STEEP = ("Cast", "CastLike", "Cos", "Cosh", "Exp", "Pow", "Sin", "Sinh", "Tan")
"""Operators whose results change much with little, or are of another type, so that other types tell nothing."""
SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 88.8, 89.3, -89.3, 1e-6)


@dataclass(frozen=True)
class Case:
    """One operator with its inputs by name; those in `constants` belong to the model."""

    number: int
    op: str
    opset: int
    values: Mapping[str, Any]
    inputs: Mapping[str, Array | None]
    constants: frozenset[str]
    outputs: int
    ir_version: int

    @property
    def arrays(self) -> dict[str, Array]:
        """What a caller passes."""
        return {n: a for n, a in self.inputs.items() if a is not None and n not in self.constants}

    @property
    def floats(self) -> list[str]:
        """The types of the inputs that are floats."""
        return [a.dtype.name for a in self.inputs.values() if a is not None and a.dtype.kind == "f"]

    def in_float32(self) -> Case | None:
        """The same of float32, which more implementations have; None where that is another case."""
        found = dict(self.inputs)
        for name, array in self.inputs.items():
            if array is not None and array.dtype.kind == "f":
                with np.errstate(over="ignore"):
                    found[name] = single = array.astype(np.float32)
                if not np.array_equal(np.isfinite(array), np.isfinite(single)):
                    return None
        kinds = {*self.floats}
        return replace(self, inputs=found) if kinds in ({"float64"}, {"float16"}) and self.op not in STEEP else None

    def given(self, at: int) -> Array | None:
        """An input by number, None where it is absent."""
        return list(self.inputs.values())[at] if at < len(self.inputs) else None

    def value(self, name: str, default: Any = None) -> Any:
        """An attribute, or what it is where the node does not say."""
        return self.values.get(name, default)

    def model(self) -> onnx.ModelProto:
        """The model, whose result has a shape that is not said."""
        names = [name if array is not None else "" for name, array in self.inputs.items()]
        node = helper.make_node(self.op, names, [f"y{at}" for at in range(self.outputs)], **self.values)
        given = [helper.make_tensor_value_info(n, _element(a), a.shape) for n, a in self.arrays.items()]
        fixed = [numpy_helper.from_array(self.inputs[n], n) for n in self.inputs if n in self.constants]
        results = [onnx.ValueInfoProto(name=name) for name in node.output]
        graph = helper.make_graph([node], "case", given, results, fixed)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version)

    def __str__(self) -> str:
        def shown(name: str, array: Array | None) -> str:
            if array is None:
                return "-"
            known = f"={array.reshape(-1).tolist()}" if name in self.constants and array.size < 9 else ""
            return f"{array.dtype}{list(array.shape)}{known}{' constant' if name in self.constants else ''}"

        inputs = ", ".join(shown(n, a) for n, a in self.inputs.items())
        values = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"{self.number}: {self.op} of version {self.opset} ({inputs}) {values}"


def _element(array: Array) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


@dataclass
class Draw:
    """Chance, and the version of the operator that is drawn."""

    rng: np.random.Generator
    op: str
    opset: int
    values: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Array | None] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    outputs: int = 1
    types: dict[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> Any:
        """ONNX's definition in this version."""
        return onnx.defs.get_schema(self.op, self.opset, "")

    def pick(self, *choices: Any) -> Any:
        """One of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        """True so often."""
        return bool(self.rng.random() < share)

    def shape(self, least: int = 0, most: int = 5, empty: float = 0.02) -> Shape:
        """A small shape of some rank, rarely with an extent of 0."""
        found = [int(self.pick(*EXTENTS)) for _ in range(int(self.rng.integers(least, most + 1)))]
        while math.prod(found) > 3000:
            found[found.index(max(found))] = 2
        if found and self.chance(empty):
            found[int(self.rng.integers(len(found)))] = 0
        return tuple(found)

    def dtype(self, at: int = 0) -> str:
        """The type of an input or, from -1 on, of an output, which the definition allows; one for each letter."""
        formals = self.schema.inputs if at >= 0 else self.schema.outputs
        letter = formals[min(at, len(formals) - 1) if at >= 0 else -1 - at].type_str
        if letter not in self.types:
            constraints = {c.type_param_str: c.allowed_type_strs for c in self.schema.type_constraints}
            allowed = [text.removeprefix("tensor(").removesuffix(")") for text in constraints.get(letter, [letter])]
            plain = {{"float": "float32", "double": "float64"}.get(text, text) for text in allowed}
            known = [t for t in TYPES if t in plain] or ["float32"]
            weights = np.array([TYPES[t] for t in known], float)
            self.types[letter] = str(self.rng.choice(known, p=weights / weights.sum()))
        return self.types[letter]

    def array(self, shape: Sequence[int], dtype: str, kind: str = "") -> Array:
        """Numbers of a kind: `plain`, `whole`, `special`, `nonzero`, `positive`; by chance where none is said."""
        kind = kind or self.pick("plain", "plain", "whole", "special")
        size = tuple(shape)
        if dtype == "bool":
            return np.asarray(self.rng.integers(0, 2, size), bool)
        if dtype.startswith(("int", "uint")):
            info = np.iinfo(dtype)
            low, high = max(-9, int(info.min)), 9
            found = np.asarray(self.rng.integers(low, high + 1, size))
            if kind == "special":
                ends = np.array([info.min, info.max, info.min + 1, info.max - 1, 0, 1], dtype)
                return np.where(self.rng.random(size) < 0.4, self.rng.choice(ends, size), found.astype(dtype))
            if kind in ("nonzero", "positive"):
                found = np.where(found == 0, 3, found)
                found = np.abs(found) if kind == "positive" else found
            return np.asarray(found.astype(dtype))
        found = self.rng.standard_normal(size) * self.pick(1, 1, 3, 30)
        if kind in ("whole", "nonzero"):
            found = np.round(found)
            found = np.where(found == 0, 2.0, found) if kind == "nonzero" else found
        if kind == "positive":
            found = np.abs(found) + 0.25
        if kind in ("special", "infinite"):
            some = SPECIAL if kind == "infinite" else (*SPECIAL, HUGE[dtype], -HUGE[dtype], *_ends(dtype))
            found = np.where(self.rng.random(size) < 0.3, self.rng.choice(some, size), found)
        with np.errstate(over="ignore"):
            return np.asarray(found, dtype)

    def add(self, name: str, array: Any, constant: bool | None = None) -> None:
        """An input; a constant by chance where it is not said."""
        self.inputs[name] = None if array is None else np.asarray(array)
        if array is not None and (self.chance(0.1) if constant is None else constant):
            self.constants.add(name)

    def give(self, **values: Any) -> None:
        """Attributes of those that this version has, each but for some cases."""
        known = self.schema.attributes
        for name, value in values.items():
            if name in known and value is not None:
                self.values[name] = value

    def integers(self, name: str, numbers: Sequence[int] | None, dtype: str = "int64") -> None:
        """Numbers as an attribute, or as the constant that newer versions have."""
        if name in self.schema.attributes:
            self.give(**{name: None if numbers is None else [int(n) for n in numbers]})
        else:
            self.add(name, None if numbers is None else np.array(numbers, dtype), True)


def _ends(dtype: str) -> tuple[float, float, float]:
    info = np.finfo(dtype)
    return float(info.max), float(info.min), float(info.tiny)


Recipe: TypeAlias = "Callable[[Draw], bool | None]"
"""Fills a draw; False where its version has nothing of the kind."""
