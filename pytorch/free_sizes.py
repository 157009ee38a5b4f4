"""Dimensions whose sizes are free: what PyTorch says of them, and what a graph is where they have some.

With ``dynamic=True``, where `mark_dynamic` says so, and from the second shape on, extents of a graph are expressions of
symbols, each of which is an input of the graph as well.  PyTorch's guards see to it that a graph is called with sizes
for which it is right; what they may be is in its `ShapeEnv`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sympy
import torch
from torch import SymBool, SymFloat, SymInt, Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._sympy.functions import FloorDiv, Mod

from ..ir.expr import Const, Expr, Extent, Var, binary
from ..ir.size_ranges import Range
from .call import Left

LARGEST = 1024
"""What a dimension without an end may be, where the first call has no more, and nothing else is said: a choice."""

SIZED = "sized"
"""What says of a node whether sizes are among what it is computed of, beside the shapes of inputs."""

Point: TypeAlias = Mapping[str, int]
"""A number for each size, by the name of its symbol."""


@dataclass(frozen=True)
class FreeSizes:
    """The sizes of a graph: which of its inputs they are, what they may be, and what they were at first.

    `guards` are conditions over several of them that PyTorch looks at before each call.
    """

    places: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    first: Point = field(default_factory=dict)
    guards: Sequence[Any] = ()

    def covers(self, given: Sequence[Any]) -> bool:
        """Whether the inputs of a call have sizes for which there are kernels."""
        return all(given[at] in self.ranges[name] for name, at in self.places.items())

    def points(self) -> list[Point]:
        """Sizes at which kernels are looked at: those of the first call, the least ones, and four times the first."""
        more = {name: min(4 * self.first[name], numbers.high) for name, numbers in self.ranges.items()}
        least = {name: numbers.low for name, numbers in self.ranges.items()}
        found: list[Point] = []
        for point in (self.first, least, more):
            if point not in found and all(_number(guard, point) for guard in self.guards):
                found.append(point)
        return found


def sizes_of(aten: fx.GraphModule, largest: int = LARGEST) -> FreeSizes:
    """The free sizes of a graph, none where all shapes are numbers.

    One without an end may be as large as `largest`, or as in the example.  Raises Left for sizes that no input tells.
    """
    symbols: dict[str, int] = {}
    env: Any = None
    for at, node in enumerate(n for n in aten.graph.nodes if n.op == "placeholder"):
        value = node.meta.get("val")
        if isinstance(value, SymInt):
            env, expr = value.node.shape_env, value.node.expr
            if isinstance(expr, sympy.Symbol):
                symbols.setdefault(expr.name, at)
    values = [value for node in aten.graph.nodes for value in _values(node.meta.get("val"))]
    used = {s for value in values if not isinstance(value, SymFloat | SymBool) for s in _symbols(value)}
    if not used:
        return FreeSizes()
    if untold := sorted(s.name for s in used if s.name not in symbols):
        raise Left(f"it has sizes that are not known before it runs ({', '.join(untold)})")
    ranges, first = {}, {}
    for symbol in sorted(used, key=lambda s: symbols[s.name]):
        name, told = symbol.name, env.var_to_range[symbol]
        hint = int(env.backed_var_to_val[symbol])
        step = math.lcm(1, *(int(e.args[1]) for e in env.divisible if isinstance(e, Mod) and e.args[0] == symbol
                             and e.args[1].is_Integer))  # fmt: skip
        high = int(told.upper) if told.upper.is_Integer else max(largest, hint)
        low = max(int(told.lower), 1) if told.lower.is_Integer else 1
        first[name] = hint
        ranges[name] = Range(-(-low // step) * step, high // step * step, step)
        if hint not in ranges[name]:
            raise Left(f"a size of its example, {hint}, is none of those that PyTorch says ({ranges[name]})")
    guards = [env.replace(guard.expr) for guard in env.guards]
    guards = [guard for guard in guards if guard.free_symbols and guard.free_symbols <= used]
    return FreeSizes({name: symbols[name] for name in ranges}, ranges, first, guards)


def is_size(node: fx.Node) -> bool:
    """Whether a node's value is a number and no tensor."""
    return isinstance(node.meta.get("val"), SymInt | SymFloat | SymBool | int | float | bool)


def sizes_in(module: fx.GraphModule) -> set[str]:
    """The sizes of which shapes in a graph are expressions."""
    values = [value for node in module.graph.nodes for value in _values(node.meta.get("val"))]
    return {symbol.name for value in values for symbol in _symbols(value)}


def graph_at(module: fx.GraphModule, point: Point) -> fx.GraphModule:
    """The graph where sizes are these numbers, its nodes with the same names; what counts sizes is not in it.

    The graph itself where there are no sizes.
    """
    if not point:
        return module
    made, values, sized = fx.Graph(), dict[fx.Node, Any](), dict[fx.Node, bool]()
    for node in module.graph.nodes:
        if node.op != "output" and is_size(node) and all(s.name in point for s in _symbols(node.meta["val"])):
            values[node] = value_at(node.meta["val"], point)
            continue
        copied = made.node_copy(node, values.__getitem__)
        sized[node] = any(source not in sized or sized[source] for source in node.all_input_nodes)
        copied.meta = {**node.meta, "val": value_at(node.meta.get("val"), point), SIZED: sized[node]}
        values[node] = copied
        assert copied.name == node.name or node.op == "output"
    return fx.GraphModule(module, made)


def value_at(value: Any, point: Point) -> Any:
    """What a node's value is where sizes are these numbers: a tensor without contents, a number, or several."""
    if isinstance(value, SymInt | SymFloat | SymBool):
        return _number(value.node.expr, point) if all(s.name in point for s in _symbols(value)) else value
    if isinstance(value, tuple | list):
        return type(value)(value_at(item, point) for item in value)
    if not isinstance(value, Tensor) or not _symbols(value):
        return value
    shape, strides = ([value_at(number, point) for number in numbers] for numbers in (value.shape, value.stride()))
    with FakeTensorMode():
        return torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)


def extent_of(extent: int | SymInt) -> Extent:
    """An extent over sizes as one of programs.  Raises Left for an expression that programs do not have."""
    return extent if isinstance(extent, int) else _extent(extent.node.expr)


def _extent(expr: Any) -> Extent:
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return Var(str(expr.name))
    sign = {sympy.Add: "+", sympy.Mul: "*", FloorDiv: "//"}.get(expr.func)
    if sign is None:
        raise Left(f"an extent is {expr}, which is no expression that programs have")
    parts = [_extent(part) for part in expr.args]
    found: Expr = parts[0] if isinstance(parts[0], Expr) else Const(parts[0])
    for part in parts[1:]:
        found = binary(sign, found, part)
    return int(found.value) if isinstance(found, Const) else found


def _number(expr: Any, point: Point) -> Any:
    """The number that an expression of PyTorch is.  Raises Left where it is none that is known."""
    found = expr.xreplace({symbol: sympy.Integer(point[symbol.name]) for symbol in expr.free_symbols})
    if found in (sympy.true, sympy.false):
        return bool(found)
    if not found.is_number:
        raise Left(f"{expr} is no number that sizes tell")
    return int(found) if found.is_Integer else float(found)


def _values(value: Any) -> Iterator[Any]:
    """The tensors and numbers that a node's value consists of."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from _values(item)
    else:
        yield value


def _symbols(value: Any) -> set[Any]:
    """The symbols in a number, or in the shape and strides of a tensor."""
    if isinstance(value, SymInt | SymFloat | SymBool):
        found: set[Any] = value.node.expr.free_symbols
        return found
    if isinstance(value, Tensor) and value.layout == torch.strided:
        return {s for number in (*value.shape, *value.stride()) if isinstance(number, SymInt) for s in _symbols(number)}
    return set()
