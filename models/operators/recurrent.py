"""Recurrent layers: LSTM, GRU and RNN.

What a layer makes of its input alone is one product over all steps; a loop over the steps holds the rest::

    g[t, b, n] = sum_k x[t, b, k] w[n, k] + bias[n]              all steps at once

    for d in directions, t in steps:
        acc[b, n] = sum_k h[d, b, k] r[d, n, k]                  the recurrent product
        h[d, b, j] = cell(g[t, b, ..], acc[b, ..], h[d, b, j])   what is made of it, element by element

A step is a block of its own, whose iterator over time is opaque: its order is kept.  A direction that runs backwards
counts its steps from the end.  Of a sequence that is shorter than others the state stays as it is from its end on, or
up to there where it runs backwards, and its results there are 0; of a sequence without steps the last state is 0, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from textwrap import indent

import numpy as np

from ...ir.dtypes import is_float
from ...space.workloads.precision import Precision, precision
from ...space.workloads.text import Program, affine, block, element, literal
from ..network import Operator
from .functions import softplus
from .site import Builder, Built, Site, program

X, W, R, BIAS, LENGTHS, FIRST_HIDDEN, FIRST_CELL, PEEPHOLES = range(8)
"""The inputs of the operators, of which only an LSTM has the last two."""

B, J = "{b}", "{j}"
"""The iterators of an element-wise block of a step, which have other names in each: of the batch, and of the units."""

ACTIVATIONS: Mapping[str, tuple[str, float | None, float | None]] = {
    "relu": ("T.max({x}, {zero})", None, None),
    "tanh": ("T.tanh({x})", None, None),
    "sigmoid": ("T.sigmoid({x})", None, None),
    "affine": ("({x} * {alpha} + {beta})", 1.0, 0.0),
    "leakyrelu": ("T.Select({x} < {zero}, {x} * {alpha}, {x})", 0.01, None),
    "thresholdedrelu": ("T.Select({x} > {alpha}, {x}, {zero})", 1.0, None),
    "scaledtanh": ("({alpha} * T.tanh({x} * {beta}))", 1.0, 1.0),
    "hardsigmoid": ("T.max({zero}, T.min({one}, {x} * {alpha} + {beta}))", 0.2, 0.5),
    "elu": ("T.Select({x} < {zero}, {alpha} * (T.exp(T.min({x}, {zero})) - {one}), {x})", 1.0, None),
    "softsign": ("({x} / ({one} + T.abs({x})))", None, None),
    "softplus": ("{softplus}", None, None),
}
"""Each by its name in small letters, with what alpha and beta are by default; None for one that it has not."""

LSTM_ACTIVATIONS = ("sigmoid", "tanh", "tanh")

Chosen = tuple[str, float, float]


@dataclass
class Layer:
    """A recurrent node: its extents, and the programs in the making.

    `chosen` has for each direction the activations with their alpha and beta; `rows` are the rows of weights of each
    gate in all of `gates`.  `before` are the operators that make what the loop over the steps reads, `arguments` the
    tensors that its program `made` is called with, `blocks` what it does in a step, with buffers of its own, the lines
    `scratch`.
    """

    site: Site
    gates: int
    chosen: Sequence[Sequence[Chosen]]
    made: Program
    arguments: list[str] = field(default_factory=list)
    before: list[Operator] = field(default_factory=list)
    scratch: list[str] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    summed: str = "{acc}"

    @property
    def types(self) -> Precision:
        return self.made.precision

    @property
    def is_batch_first(self) -> bool:
        """Whether the batch is the first dimension of the input and of the results."""
        return bool(self.site.attribute("layout", 0))

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Steps and batch."""
        first, second, _ = self.site.shape(X)
        return (second, first) if self.is_batch_first else (first, second)

    @property
    def steps(self) -> int:
        return self.extents[0]

    @property
    def batch(self) -> int:
        return self.extents[1]

    @property
    def size(self) -> int:
        """Units of the state."""
        return self.site.shape(R)[2]

    @property
    def rows(self) -> int:
        """Rows of weights of one direction."""
        return self.gates * self.size

    @property
    def directions(self) -> int:
        return self.site.shape(R)[0]

    @property
    def is_ragged(self) -> bool:
        """Whether some sequence may be shorter than others."""
        lengths = self.site.constant(LENGTHS)
        return self.site.has(LENGTHS) and (lengths is None or bool(np.any(lengths != self.steps)))

    @property
    def d(self) -> str:
        """The index of the direction in a step: 0 where there is one alone."""
        return "vd" if self.directions > 1 else "0"

    def number(self, value: float) -> str:
        """A number in the type that the layer computes in."""
        return literal(float(value), self.types.accumulator)

    def state(self, name: str, at: Sequence[str]) -> str:
        """An element of a state, which has a dimension for directions where there are several."""
        return element(name, ["vd", *at] if self.directions > 1 else at)

    def given(self, at: int) -> str:
        """The part of gate number `at` in the product of the input."""
        column = affine(J, 1, shift=-at * self.size)
        if self.directions > 1:
            column = f"vd * {self.rows} + {column}"
        return element("g", ["vs", B, column])

    def gate(self, at: int, name: str = "acc", first: int = 0) -> str:
        """What decides gate number `at`: the products of the input and of the state, `name`, from gate `first` on."""
        column = affine(J, 1, shift=(first - at) * self.size)
        return f"{self.given(at)} + {self.summed.format(acc=element(name, [B, column]), n=column, b=B)}"

    def peephole(self, at: int) -> str:
        """The product of the cell and its weight for gate number `at` of i, o, f; nothing without such weights."""
        if not self.site.has(PEEPHOLES):
            return ""
        return f" + {self.made.load('p', [self.d, affine(J, 1, shift=-at * self.size)])} * {self.state('c', [B, J])}"

    def act(self, which: int, x: str) -> str:
        """An activation of a number, within the limits that the layer may have.

        Where directions have different ones, both are computed and one is taken.
        """
        limit = float(self.site.attribute("clip", 0.0))
        x = f"T.min(T.max({x}, {self.number(-limit)}), {self.number(limit)})" if limit else f"({x})"
        numbers = {"zero": self.number(0), "one": self.number(1), "softplus": softplus(x, self.number, self.site)}
        made = [
            text.format(x=x, alpha=self.number(alpha), beta=self.number(beta), **numbers)
            for text, alpha, beta in (own[which] for own in self.chosen)
        ]
        return made[0] if len(set(made)) == 1 else f"T.Select(vd == 0, {made[0]}, {made[1]})"

    def reads(self, name: str, tensor: str, dtype: str = "") -> None:
        """Give the program of the steps a parameter `name`, of the stored type or of `dtype`."""
        self.made.inputs([(name, self.site.graph.types[tensor].shape)], dtype)
        self.arguments.append(tensor)

    def alloc(self, name: str, shape: tuple[int, ...], dtype: str = "") -> None:
        """Give each step a buffer, of the type that the layer computes in or of `dtype`."""
        self.scratch.append(f"{name} = T.alloc_buffer({shape}, {dtype or self.types.accumulator!r})")

    def sum(self, name: str, into: str, rows: int, weights: str, source: str) -> None:
        """Append ``into[b, n] = sum over k of source[b, k] weights[n, k]`` to a step, with `into` as a buffer."""
        self.alloc(into, (self.batch, rows))
        axes = [(f"b_{name}", self.batch, "S"), (f"n_{name}", rows, "S"), (f"k_{name}", self.size, "R")]
        b, n, k = (f"v{axis}" for axis, _, _ in axes)
        left = self.state(source, [b, k]) if source == "h" else element(source, [b, k])
        product = f"{left} * {self.made.load(weights, [self.d, n, k])}"
        target = element(into, [b, n])
        self.blocks.append(block(name, axes, f"{target} = {target} + {product}", f"{target} = {self.number(0)}"))

    def store(self, name: str, target: str, value: str) -> None:
        """Append ``target = value`` for the whole batch and all units to a step."""
        text = f"{target} = {value}".format(b=f"vb_{name}", j=f"vj_{name}")
        self.blocks.append(block(name, [(f"b_{name}", self.batch, "S"), (f"j_{name}", self.size, "S")], text))

    def update(self, name: str, state: str, value: str) -> None:
        """Append the next value of a state to a step, which stays as it is where a sequence has ended."""
        target = self.state(state, [B, J])
        self.store(name, target, f"T.Select({self.lasts()}, {value}, {target})" if self.is_ragged else value)

    def lasts(self) -> str:
        """Whether a sequence has the step."""
        return f"vs < T.Cast('int64', {element('lengths', [B])})"

    def edge(self, name: str, state: str, outside: str, writes: bool) -> None:
        """Append a nest beside the steps that reads the first state from a parameter, or writes the last one to it."""
        axes = [(f"{a}_{name}", e, "S") for a, e in zip("dbj", (self.directions, self.batch, self.size), strict=True)]
        d, b, j = (f"v{axis}" for axis, _, _ in axes)
        inside = element(state, [d, b, j] if self.directions > 1 else [b, j])
        if not outside:
            self.made.add(name, axes, f"{inside} = {self.number(0)}")
            return
        other = element(outside, [b, d, j] if self.is_batch_first else [d, b, j])
        last, known = inside, self.site.constant(LENGTHS)
        if self.is_ragged and (known is None or not known.all()):  # of no steps, as ONNX Runtime has it
            steps, none = element("lengths", [b]), literal(0, self.site.dtype(LENGTHS))
            last = f"T.Select({steps} > {none}, {inside}, {self.number(0)})"
        text = f"{other} = {self.types.narrow(last)}" if writes else f"{inside} = {self.types.widen(other)}"
        self.made.add(name, axes, text)

    def loop(self) -> None:
        """Append the loop over the steps."""
        t, last = "t", self.steps - 1
        backwards = {"reverse": f"{last} - t", "bidirectional": f"T.Select(d == 0, t, {last} - t)"}
        step = backwards.get(self.site.attribute("direction", "forward"), t)
        loops, extents = ("d, t", f"{self.directions}, {self.steps}") if self.directions > 1 else (t, f"{self.steps}")
        lines = [f"    for {loops} in T.grid({extents}):", '        with T.block("step"):']
        if self.directions > 1:
            lines.append(f"            vd = T.axis.spatial({self.directions}, d)")
        lines.append(f"            vs = T.axis.opaque({self.steps}, {step})")
        lines += [" " * 12 + text for text in self.scratch]
        self.made.nests.append("\n".join([*lines, *(indent(text, " " * 8) for text in self.blocks)]))

    def weights(self, at: int, first: int, rows: int, flat: bool = False) -> str:
        """`rows` rows of the weights of each direction, from `first` on; with `flat` as those of one matrix."""
        count, _, columns = self.site.shape(at)
        shape = (count * rows, columns) if flat else (count, rows, columns)
        name, given = self.site.node.inputs[at], self.site.constant(at)
        if shape == self.site.shape(at):
            return name
        if given is not None:
            return self.site.new_constant(np.ascontiguousarray(given[:, first : first + rows].reshape(shape)))
        copy = Program("rows", Precision(*[self.site.dtype(at)] * 3))
        copy.inputs([("x", self.site.shape(at))])
        copy.output("y", shape)
        source = [f"vi // {rows}", f"vi % {rows}", "vj"] if flat else ["vs", affine("vi", 1, shift=-first), "vj"]
        axes = list(zip("ij" if flat else "sij", shape, "SSS", strict=False))
        target = [f"v{axis}" for axis, _, _ in axes]
        copy.add("rows", axes, f"{element('y', target)} = {element('x', source)}")
        return self.operator(copy, [name], shape, self.site.dtype(at))

    def bias(self, is_apart: bool) -> str:
        """The biases of both products together; where those of the last gate are `apart`, of it the first alone."""
        rows, apart = self.rows, self.size if is_apart else 0
        given = self.site.constant(BIAS)
        if given is not None:
            total = given.astype(self.types.accumulator)
            total, recurrent = total[:, :rows].copy(), total[:, rows:]
            total[:, : rows - apart] += recurrent[:, : rows - apart]
            return self.site.new_constant(total.reshape(-1))
        made = Program("bias", self.types)
        made.inputs([("x", self.site.shape(BIAS))])
        made.output("y", (self.directions * rows,), self.types.accumulator)
        second = made.load("x", ["vd", f"vn + {rows}"])
        if apart:
            second = f"T.if_then_else(vn < {rows - apart}, {second}, {made.zero()})"
        text = f"{element('y', [f'vd * {rows} + vn'])} = {made.load('x', ['vd', 'vn'])} + {second}"
        made.add("bias", [("d", self.directions, "S"), ("n", rows, "S")], text)
        return self.operator(made, [self.site.node.inputs[BIAS]], (self.directions * rows,), self.types.accumulator)

    def product(self, is_apart: bool) -> str:
        """The product of the input and its weights for all steps, directions and gates, with the biases."""
        columns, wide = self.directions * self.rows, self.types.accumulator
        weights, shape = self.weights(W, 0, self.rows, flat=True), (*self.extents, columns)
        made = Program("input_product", Precision(self.types.storage, wide, wide))
        made.inputs([("x", self.site.shape(X)), ("w", (columns, self.site.shape(X)[2]))])
        arguments = [self.site.node.inputs[X], weights]
        if self.site.has(BIAS):
            arguments.append(self.bias(is_apart))
            made.inputs([("bias", (columns,))], wide)
        made.output("g", shape)
        total = made.alloc("total", shape) if self.site.has(BIAS) else "g"
        axes = [("t", self.steps), ("b", self.batch), ("n", columns)]
        x = made.load("x", ["vb", "vt", "vk"] if self.is_batch_first else ["vt", "vb", "vk"])
        target = element(total, ["vt", "vb", "vn"])
        loops = [*((a, e, "S") for a, e in axes), ("k", self.site.shape(X)[2], "R")]
        update = f"{target} = {target} + {x} * {made.load('w', ['vn', 'vk'])}"
        made.add("product", loops, update, f"{target} = {made.zero()}")
        if self.site.has(BIAS):
            made.stages("g", total, axes, ["t", "b", "n"], [("bias", "{v} + bias[vn{i}]")])
        return self.operator(made, arguments, shape, wide)

    def operator(self, made: Program, arguments: Sequence[str], shape: tuple[int, ...], dtype: str) -> str:
        """Append an operator that goes before the steps; returns the tensor that it makes."""
        tensor = self.site.new_tensor(shape, dtype)
        called = f"{self.site.node.name or self.site.node.outputs[0]}/{made.name}"
        self.before.append(Operator(called, program(made.text()), tuple(arguments), (tensor,)))
        return tensor

    def finished(self, states: Mapping[str, int]) -> Built:
        """The operators: states begin with inputs, by number, and their last values are outputs after the first one."""
        site, made = self.site, self.made
        if self.is_ragged:
            self.reads("lengths", site.node.inputs[LENGTHS], site.dtype(LENGTHS))
        for state, at in states.items():
            if site.has(at):
                self.reads(f"{state}0", site.node.inputs[at])
        lead = (self.directions,) if self.directions > 1 else ()
        for state in states:
            made.alloc(state, (*lead, self.batch, self.size))
        if site.wants(0):
            place = [B, "vs", self.d, J] if self.is_batch_first else ["vs", self.d, B, J]
            value = self.state("h", [B, J])
            value = f"T.Select({self.lasts()}, {value}, {self.number(0)})" if self.is_ragged else value
            self.store("sequence", element("y", place), self.types.narrow(value))
        wanted = [(at, name) for at, name in enumerate(("y", *(f"last_{state}" for state in states))) if site.wants(at)]
        for at, name in wanted:
            made.output(name, site.result(at).shape)
        for state, at in states.items():
            self.edge(f"first_{state}", state, f"{state}0" if site.has(at) else "", writes=False)
        self.loop()
        for state in states:
            if any(name == f"last_{state}" for _, name in wanted):
                self.edge(f"end_{state}", state, f"last_{state}", writes=True)
        outputs = tuple(site.node.outputs[at] for at, _ in wanted)
        called = site.node.name or outputs[0]
        return [*self.before, Operator(called, program(made.text()), tuple(self.arguments), outputs)]


def _layer(site: Site, gates: int, usual: Sequence[str]) -> Layer | None:
    """The layer of a node with the activations `usual` by default; None where it is no such layer in floats."""
    kinds = {site.dtype(at) for at in range(site.count) if site.has(at) and at != LENGTHS}
    chosen = activations(site, usual)
    if len(kinds) != 1 or not is_float(site.dtype()) or chosen is None or len(site.shape(X)) != 3:
        return None
    return Layer(site, gates, chosen, Program(site.node.op.lower(), precision(site.dtype())))


def activations(site: Site, usual: Sequence[str]) -> list[list[Chosen]] | None:
    """The activations of each direction; None where one is not known.

    Values of alpha and beta are for those activations that have one, in their order.
    """
    count = site.shape(R)[0]
    names = [str(name).lower() for name in site.attribute("activations", None) or [*usual] * count]
    alphas, betas = (list(site.attribute(f"activation_{which}", None) or []) for which in ("alpha", "beta"))
    if len(names) != count * len(usual) or not all(name in ACTIVATIONS for name in names):
        return None
    found: list[Chosen] = []
    for name in names:
        text, alpha, beta = ACTIVATIONS[name]
        first = 0.0 if alpha is None else float(alphas.pop(0)) if alphas else alpha
        second = 0.0 if beta is None else float(betas.pop(0)) if betas else beta
        found.append((text, first, second))
    return [found[at : at + len(usual)] for at in range(0, len(found), len(usual))]


def _lstm(site: Site) -> Built:
    layer = _layer(site, 4, LSTM_ACTIVATIONS)
    if layer is None:
        return None
    layer.reads("g", layer.product(is_apart=False), layer.types.accumulator)
    layer.reads("r", site.node.inputs[R])
    layer.sum("product", "acc", layer.rows, "r", "h")
    return lstm(layer)


def lstm(layer: Layer) -> Built:
    """``c = f c + i g; h = o act(c)`` with the gates i, o, f and g in the order of the weights.

    The program has the product of the input, ``g``, and the step has that of the state, ``acc``, already.
    """
    site = layer.site
    if site.has(PEEPHOLES):
        layer.reads("p", site.node.inputs[PEEPHOLES])
    cell = layer.state("c", [B, J])
    taken = layer.act(0, layer.gate(0) + layer.peephole(0))
    kept = layer.act(0, layer.gate(2) + layer.peephole(2))
    if site.attribute("input_forget", 0):
        kept = f"({layer.number(1)} - {taken})"
    layer.update("cell", "c", f"{kept} * {cell} + {taken} * {layer.act(1, layer.gate(3))}")
    given = layer.act(0, layer.gate(1) + layer.peephole(1))
    layer.update("hidden", "h", f"{given} * {layer.act(2, cell)}")
    return layer.finished({"h": FIRST_HIDDEN, "c": FIRST_CELL})


def _gru(site: Site) -> Built:
    """``h = (1 - z) n + z h`` with the gates z, r and n, the last of which sees r times the state, or its product."""
    layer = _layer(site, 3, ("sigmoid", "tanh"))
    if layer is None:
        return None
    is_after = bool(site.attribute("linear_before_reset", 0))
    size, hidden = layer.size, layer.state("h", [B, J])
    layer.reads("g", layer.product(is_apart=is_after), layer.types.accumulator)
    reset = layer.act(0, layer.gate(1))
    if is_after:
        layer.reads("r", site.node.inputs[R])
        own = affine(J, 1, shift=-2 * size)
        product = element("acc", [B, own])
        if site.has(BIAS):
            layer.reads("bias", site.node.inputs[BIAS])
            product = f"({product} + {layer.made.load('bias', [layer.d, affine(J, 1, shift=-5 * size)])})"
        layer.sum("product", "acc", layer.rows, "r", "h")
        candidate = f"{layer.given(2)} + {reset} * {product}"
    else:
        layer.reads("r", layer.weights(R, 0, 2 * size))
        layer.reads("rn", layer.weights(R, 2 * size, size))
        layer.sum("product", "acc", 2 * size, "r", "h")
        layer.alloc("rh", (layer.batch, size))
        layer.store("reset", element("rh", [B, J]), f"{reset} * {hidden}")
        layer.sum("candidate_product", "acc_n", size, "rn", "rh")
        candidate = layer.gate(2, "acc_n", first=2)
    layer.alloc("n", (layer.batch, size))
    n = element("n", [B, J])
    layer.store("candidate", n, layer.act(1, candidate))
    layer.update("hidden", "h", f"{n} + {layer.act(0, layer.gate(0))} * ({hidden} - {n})")
    return layer.finished({"h": FIRST_HIDDEN})


def _rnn(site: Site) -> Built:
    """``h = act(x w + h r + bias)``."""
    layer = _layer(site, 1, ("tanh",))
    if layer is None:
        return None
    layer.reads("g", layer.product(is_apart=False), layer.types.accumulator)
    layer.reads("r", site.node.inputs[R])
    layer.sum("product", "acc", layer.rows, "r", "h")
    layer.update("hidden", "h", layer.act(0, layer.gate(0)))
    return layer.finished({"h": FIRST_HIDDEN})


BUILDERS: Mapping[tuple[str, str], Builder] = {("", "LSTM"): _lstm, ("", "GRU"): _gru, ("", "RNN"): _rnn}
