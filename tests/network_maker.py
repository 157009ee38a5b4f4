"""Small networks of programs, drawn at random or written down, and what they compute by the interpreter."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stridesmith as ss
from stridesmith.models.network import Network, Operator, Tensor, problems

Array = NDArray[Any]


class Maker:
    """Adds operators to a network, one after the other; each method returns the name of the tensor it makes."""

    def __init__(self, name: str = "net") -> None:
        self.name = name
        self.tensors: dict[str, Tensor] = {}
        self.inputs: list[str] = []
        self.constants: dict[str, Array] = {}
        self.nodes: list[Operator] = []
        self.random = np.random.default_rng(0)

    def input(self, *shape: int) -> str:
        """An input of the network."""
        self.inputs.append(self._tensor(shape))
        return self.inputs[-1]

    def constant(self, *shape: int) -> str:
        """A constant of small whole numbers."""
        name = self._tensor(shape)
        self.constants[name] = self.random.integers(-2, 3, shape).astype("float32")
        return name

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.tensors[tensor].shape

    def map(self, value: str, *inputs: str, shape: Sequence[int] = (), axes: str = "") -> str:
        """``y[v0, v1, ..] = value``, in which ``{0}``, ``{1}``, .. are the inputs at the same indices.

        An input is written ``a[...]``, ``b[...]``, .. in `value` where it is read elsewhere.
        """
        shape = tuple(shape) or self.shape(inputs[0])
        names = [f"v{k}" for k in range(len(shape))]
        here = [f"{chr(97 + k)}[{', '.join(names)}]" for k in range(len(inputs))]
        loops = ", ".join(f"i{k}" for k in range(len(shape)))
        extents = ", ".join(map(str, shape))
        head = f"for {loops} in T.grid({extents}):" if len(shape) > 1 else f"for i0 in range({extents}):"
        bound = [f"{v} = T.axis.spatial({e}, i{k})" for k, (v, e) in enumerate(zip(names, shape, strict=True))]
        body = [
            f"    {head}",
            '        with T.block("map"):',
            *(f"            {line}" for line in bound),
            f"            y[{', '.join(names)}] = {value.format(*here)}",
        ]
        params = [f'{chr(97 + k)}: T.Buffer({self.shape(t)}, "float32")' for k, t in enumerate(inputs)]
        params.append(f'y: T.Buffer({shape}, "float32")')
        func = ss.parse(f"@T.prim_func\ndef map({', '.join(params)}):\n" + "\n".join(body))
        assert isinstance(func, ss.PrimFunc)
        return self.operator(func, *inputs)

    def concat(self, axis: int, *inputs: str) -> str:
        """All inputs one after the other along an axis, a block for each."""
        shape = list(self.shape(inputs[0]))
        shape[axis] = 0
        body = []
        for k, t in enumerate(inputs):
            names = [f"v{k}{n}" for n in range(len(shape))]
            place = [f"{v} + {shape[axis]}" if n == axis else v for n, v in enumerate(names)]
            loops = ", ".join(f"i{k}{n}" for n in range(len(shape)))
            body += [f"    for {loops} in T.grid({', '.join(map(str, self.shape(t)))}):"]
            body += [f'        with T.block("p{k}"):']
            axes = zip(names, self.shape(t), strict=True)
            body += [f"            {v} = T.axis.spatial({e}, i{k}{n})" for n, (v, e) in enumerate(axes)]
            body.append(f"            y[{', '.join(place)}] = x{k}[{', '.join(names)}]")
            shape[axis] += self.shape(t)[axis]
        params = [f'x{k}: T.Buffer({self.shape(t)}, "float32")' for k, t in enumerate(inputs)]
        params.append(f'y: T.Buffer({tuple(shape)}, "float32")')
        func = ss.parse(f"@T.prim_func\ndef concat({', '.join(params)}):\n" + "\n".join(body))
        assert isinstance(func, ss.PrimFunc)
        return self.operator(func, *inputs)

    def work(self, workload: str, *inputs: str, **params: Any) -> str:
        """An operator of the library."""
        return self.operator(ss.workload(workload, **params).func, *inputs)

    def operator(self, func: ss.PrimFunc, *inputs: str) -> str:
        """Any program with one result."""
        result = self._tensor(func.buffers[-1].shape)
        self.nodes.append(Operator(f"{func.name}_{len(self.nodes)}", func, inputs, (result,)))
        return result

    def network(self, *outputs: str) -> Network:
        made = Network(self.name, tuple(self.inputs), outputs, self.tensors, self.constants, tuple(self.nodes))
        assert list(problems(made)) == []
        return made

    def _tensor(self, shape: Sequence[int]) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = Tensor(name, tuple(shape), "float32")
        return name


def computed(network: Network, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a network, by the interpreter."""
    found: dict[str, Array] = {**network.constants, **arrays}
    for node in network.nodes:
        assert isinstance(node, Operator)
        for name in node.outputs:
            tensor = network.tensors[name]
            found[name] = np.full(tensor.shape, np.nan, tensor.dtype)
        ss.interpret(node.func, *(found[name] for name in (*node.inputs, *node.outputs)))
    return {name: found[name] for name in network.outputs}


def drawn(network: Network, seed: int = 0) -> dict[str, Array]:
    """Inputs of small whole numbers, which sums keep exact."""
    rng = np.random.default_rng(seed)
    return {n: rng.integers(-3, 4, network.tensors[n].shape).astype("float32") for n in network.inputs}


def random_network(seed: int, length: int = 8) -> Network:
    """Convolutions, pools, maps, transposes, slices and sums of tensors that there are, some read several times."""
    rng = random.Random(seed)
    make = Maker(f"random{seed}")
    known = [make.input(1, 4, 6, 6)]
    for _ in range(length):
        source = rng.choice(known[-3:])
        known.append(_random_operator(rng, make, source, known))
    read = {name for node in make.nodes for name in node.inputs}
    return make.network(*(name for name in known[1:] if name not in read))


def _random_operator(rng: random.Random, make: Maker, source: str, known: Sequence[str]) -> str:
    n, c, h, w = make.shape(source)
    same = [t for t in known if make.shape(t) == make.shape(source) and t != source]
    kind = rng.choice(["conv", "bias", "relu", "turn", "cut", "add", "pool", "scale", "mean", "border"])
    if kind == "conv":
        co = rng.choice([3, 4])
        return make.work("conv2d", source, make.constant(co, c, 3, 3), ci=c, co=co, h=h, w=w, k=3, pad=1)
    if kind == "bias":
        return make.map("{0} + b[v1]", source, make.constant(c))
    if kind == "turn":
        return make.map("a[v0, v1, v3, v2]", source, shape=(n, c, w, h))
    if kind == "cut" and h > 3:
        return make.map("a[v0, v1, v2 + 1, v3]", source, shape=(n, c, h - 1, w))
    if kind == "add" and same:
        return make.map("{0} + {1}", source, rng.choice(same))
    if kind == "pool" and h > 2 and w > 2:
        return make.work("max_pool2d", source, c=c, h=h, w=w, k=2, stride=1, pad=0)
    if kind == "scale":
        return make.map("{0} * b[v0, v1, 0, 0]", source, make.constant(n, c, 1, 1))
    if kind == "border" and h < 8:
        return make.map("T.if_then_else(v2 >= 1, a[v0, v1, v2 - 1, v3], T.float32(0))", source, shape=(n, c, h + 1, w))
    return make.map("T.max({0}, T.float32(0))", source)
