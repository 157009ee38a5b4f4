"""What a network costs by the layouts of its tensors, and the network with the layouts that were agreed on.

The costs of an operator's combinations are predicted until they are measured.  Not all of them are predicted one by
one: what matters is the order and the blocks of what is read and of what is written, and what a halo adds to that.
An operand that is read element by element where the result is written lies as the result does, but for its halo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np

from ..ir.expr import Load, Var
from ..ir.node import walk
from ..ir.script.parser import parse
from ..ir.stmt import PrimFunc, Store
from ..space.tree import producers
from .agreement import Agreement, Costs, OperatorCosts
from .elimination import Table
from .laid_out import laid_out
from .layouts import TensorLayout
from .network import Foreign, Network, Operator, Tensor

Alternatives = Mapping[str, tuple[TensorLayout, ...]]
"""By tensor, the first as ONNX has it."""
Price = Callable[[PrimFunc, tuple[tuple[str, str], ...]], float]
"""Microseconds of a program with an interface."""
Measured = Mapping[tuple[str, tuple[int, ...]], float]
"""Microseconds by operator and combination."""


def costs_of(network: Network, alternatives: Alternatives, price: Price, measured: Measured | None = None) -> Costs:
    """The costs of all operators, measured ones where there are any, and of all copies."""
    measured = measured or {}
    operators = tuple(
        _scaled(_operator(network, alternatives, node, price), measured)
        for node in network.nodes
        if _tensors(network, node)
    )
    moving = [name for name in network.tensors if name not in network.constants]
    copies = {name: _copies(network.tensors[name], alternatives[name], price) for name in moving}
    return Costs(operators, copies, frozenset({*network.inputs, *network.outputs} & {*moving}))


def program_of(network: Network, node: Operator, layouts: Mapping[str, TensorLayout]) -> PrimFunc:
    """The program of an operator whose tensors lie in `layouts`."""
    pairs = list(zip((*node.inputs, *node.outputs), node.func.buffers, strict=True))
    constants = [buffer.name for name, buffer in pairs if name in network.constants]
    return laid_out(node.func, {b.name: layouts[name] for name, b in pairs if name in layouts}, constants)


def interface_of(network: Network, node: Operator) -> tuple[tuple[str, str], ...]:
    """Constants are packed ahead; all else lies as its neighbours have it."""
    pairs = zip((*node.inputs, *node.outputs), node.func.buffers, strict=True)
    return tuple((b.name, "constant" if name in network.constants else "fixed") for name, b in pairs)


def _tensors(network: Network, node: Operator | Foreign) -> list[str]:
    """What a node reads and writes, each once, without constants and absent inputs."""
    names = [n for n in (*node.inputs, *node.outputs) if n in network.tensors and n not in network.constants]
    return list(dict.fromkeys(names))


# ---------------------------------------------------------------- operators


def _operator(network: Network, alternatives: Alternatives, node: Operator | Foreign, price: Price) -> OperatorCosts:
    """Predictions for all combinations of an operator's layouts; infinite for those that are left out."""
    names = _tensors(network, node)
    reads = tuple(n for n in names if n not in node.outputs)
    writes = tuple(n for n in names if n in node.outputs)
    layouts = [alternatives[n] for n in (*reads, *writes)]
    table = np.full([len(some) for some in layouts], inf)
    if isinstance(node, Foreign):
        table[...] = 0.0
        return OperatorCosts(node.name, reads, writes, table, np.ones(table.shape, bool))
    following = _following(network, node)
    priced: dict[tuple[TensorLayout, ...], float] = {}

    def cost(combination: Sequence[TensorLayout]) -> float:
        key = tuple(combination)
        if key not in priced:
            func = program_of(network, node, dict(zip((*reads, *writes), key, strict=True)))
            priced[key] = price(func, interface_of(network, node))
        return priced[key]

    for place in product(*(range(len(some)) for some in layouts)):
        chosen = [some[k] for some, k in zip(layouts, place, strict=True)]
        if _fits(dict(zip((*reads, *writes), chosen, strict=True)), following):
            table[place] = _together(chosen, cost)
    return OperatorCosts(node.name, reads, writes, table, np.zeros(table.shape, bool))


def _together(chosen: Sequence[TensorLayout], cost: Callable[[Sequence[TensorLayout]], float]) -> float:
    """The cost without halos, and what each halo adds where all else has none."""
    bare = [layout.without_halo for layout in chosen]
    total = start = cost(bare)
    for number, layout in enumerate(chosen):
        if layout != bare[number]:
            total += cost([*bare[:number], layout, *bare[number + 1 :]]) - start
    return max(total, 0.0)


def _following(network: Network, node: Operator) -> Mapping[str, str]:
    """Inputs that are read where a result is written, and that result."""
    by_name = {b.name: t for t, b in zip((*node.inputs, *node.outputs), node.func.buffers, strict=True)}
    found = {}
    for result in node.func.buffers[len(node.inputs) :]:
        for block in producers(node.func, result):
            if block.reduce or not isinstance(block.body, Store):
                continue
            for load in (n for n in walk(block.body) if isinstance(n, Load)):
                same = load.indices == block.body.indices and all(isinstance(i, Var) for i in load.indices)
                if same and load.buffer.name in by_name and load.buffer.shape == result.shape:
                    found[by_name[load.buffer.name]] = by_name[result.name]
    return {t: r for t, r in found.items() if t not in network.constants}


def _fits(layouts: Mapping[str, TensorLayout], following: Mapping[str, str]) -> bool:
    """Whether operands that are read where a result is written have the order and the blocks that it has."""
    return all(_form(layouts[t]) == _form(layouts[result]) for t, result in following.items() if t in layouts)


def _form(layout: TensorLayout) -> tuple[tuple[int, ...], tuple[int, int]]:
    return layout.order, layout.block


def _scaled(operator: OperatorCosts, measured: Measured) -> OperatorCosts:
    """The costs with what was measured of an operator, and its predictions by the same measure."""
    own = {place: us for (name, place), us in measured.items() if name == operator.name}
    if not own:
        return operator
    ratio = float(np.exp(np.mean([np.log(us / operator.table[place]) for place, us in own.items()])))
    table, known = operator.table * ratio, operator.known.copy()
    for place, us in own.items():
        table[place], known[place] = us, True
    return replace(operator, table=table, known=known)


# ---------------------------------------------------------------- copies


def copy_of(tensor: Tensor, source: TensorLayout, target: TensorLayout) -> PrimFunc:
    """A program that copies a tensor from one layout to another."""
    names = [f"i{k}" for k in range(len(tensor.shape))]
    at = ", ".join(f"v{name}" for name in names) or "0"
    shape = f"({', '.join(map(str, tensor.shape or (1,)))},)"
    bound = "\n            ".join(f"v{n} = T.axis.spatial({e}, {n})" for n, e in zip(names, tensor.shape, strict=True))
    func = parse(f"""
@T.prim_func
def copy(x: T.Buffer({shape}, "{tensor.dtype}"), y: T.Buffer({shape}, "{tensor.dtype}")):
    for {", ".join(names)} in T.grid({", ".join(map(str, tensor.shape))}):
        with T.block("copy"):
            {bound}
            y[{at}] = x[{at}]
""")
    assert isinstance(func, PrimFunc)
    return laid_out(func, {"x": source, "y": target})


def _copies(tensor: Tensor, layouts: Sequence[TensorLayout], price: Price) -> Table:
    """Microseconds from each layout of a tensor to each other one."""
    table = np.zeros((len(layouts), len(layouts)))
    interface = (("x", "fixed"), ("y", "fixed"))
    for i, j in product(range(len(layouts)), repeat=2):
        if i != j:
            table[i, j] = price(copy_of(tensor, layouts[i], layouts[j]), interface)
    return table


# ---------------------------------------------------------------- the network in its layouts


def in_layouts(network: Network, alternatives: Alternatives, agreement: Agreement) -> Network:
    """The network whose programs read and write the layouts that were agreed on, copies as operators of their own."""
    copied: dict[tuple[str, int], str] = {}
    tensors = dict(network.tensors)
    after: dict[str, list[Operator]] = {}
    for copy in agreement.copies:
        tensor, layouts = network.tensors[copy.tensor], alternatives[copy.tensor]
        made = f"{copy.tensor} as {layouts[copy.target].label}"
        tensors[made] = replace(tensor, name=made)
        copied[copy.tensor, copy.target] = made
        func = copy_of(tensor, layouts[copy.source], layouts[copy.target])
        maker = network.producer.get(copy.tensor)
        after.setdefault(maker.name if maker else "", []).append(
            Operator(f"copy to {made}", func, (copy.tensor,), (made,))
        )
    nodes: list[Operator | Foreign] = list(after.get("", ()))
    for node in network.nodes:
        nodes += [_relaid(network, alternatives, agreement, copied, node), *after.get(node.name, ())]
    return network.with_nodes(tuple(nodes), tensors)


def _relaid(
    network: Network,
    alternatives: Alternatives,
    agreement: Agreement,
    copied: Mapping[tuple[str, int], str],
    node: Operator | Foreign,
) -> Operator | Foreign:
    """A node with the tensors, copies among them, that it is to read and write."""
    if isinstance(node, Foreign):
        return node
    chosen = {t: agreement.read[node.name, t] for t in node.inputs if (node.name, t) in agreement.read}
    chosen |= {t: agreement.written[t] for t in node.outputs if t in agreement.written}
    layouts = {t: alternatives[t][k] for t, k in chosen.items()}
    func = program_of(network, node, layouts)

    def name(tensor: str) -> str:
        return copied.get((tensor, chosen[tensor]), tensor) if tensor in chosen else tensor

    return replace(node, func=func, inputs=tuple(map(name, node.inputs)), outputs=tuple(map(name, node.outputs)))
