"""The operators of a network by kind, and what each kind becomes when its tensors lie in chosen layouts.

Operators are of one kind where their programs are equal up to names and the same of their parameters are constants, or
one tensor: whatever is known of a combination of layouts is known for all of them.  A copy from one layout to another
is a kind, too, which reads one tensor and writes one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.caches import cached
from ..ir.expr import Load, Var
from ..ir.layout.layout import Layout
from ..ir.node import walk
from ..ir.passes.renaming import canonical
from ..ir.script.parser import parse
from ..ir.stmt import PrimFunc, Store
from ..ir.target import Target
from ..search.tasks.task import Task
from ..space.interface import PACKED_AHEAD, Who
from ..space.tree import producers
from .laid_out import laid_out
from .network import Network, Node, Operator, Tensor
from .tasks import Weights, task_of, words_of
from .views import moves

Combination = tuple[Layout, ...]
"""A layout for each tensor of a kind, first those that it reads."""


@dataclass(frozen=True)
class Kind:
    """Operators of one program: `key` tells kinds apart.

    `may_idle` says that nothing is left to do for them as ONNX has their tensors, since these share memory.  Tensors
    are numbered, first the `reads` that it reads.  `slots` has for each parameter of `func` the number of the tensor
    that is passed for it, -1 for a constant.  `following` are pairs of tensors, the first of which is read element by
    element where the second is written.  `network_bytes` are those of all constants of the network.
    """

    key: tuple[str, tuple[Who, ...], tuple[int, ...]]
    may_idle: bool
    func: PrimFunc = field(compare=False, repr=False)
    reads: int = field(compare=False)
    following: tuple[tuple[int, int], ...] = field(compare=False)
    network_bytes: int = field(compare=False, default=0)

    def __hash__(self) -> int:
        return hash(self.key[0])

    @property
    def words(self) -> tuple[Who, ...]:
        """Who chooses the layout of each parameter."""
        return self.key[1]

    @property
    def slots(self) -> tuple[int, ...]:
        """The number of the tensor that is passed for each parameter."""
        return self.key[2]

    def fits(self, layouts: Combination) -> bool:
        """Whether operands that are read where a result is written have the order and the blocks that it has."""
        return all(layouts[read].dims == layouts[written].dims for read, written in self.following)

    def is_idle(self, layouts: Combination) -> bool:
        """Whether nothing is left to do in a combination, either: all lies alike and only moves, without padding, or
        parts of one whole are where that has them, with room for the others, which they do not touch.
        """
        *parts, whole = layouts
        if not self.may_idle or any(layout.pads for layout in layouts):
            slots = all(k.pads and k.physical_shape == whole.physical_shape for k in parts)
            bare = all(k.pad_value is None for k in layouts if k.pads)
            return bool(parts) and slots and bare and bool(moves(self.program(layouts)))
        forms = {layout.dims for layout in layouts}
        return all(layout.is_plain for layout in layouts) or (len(forms) == 1 and bool(moves(self.program(layouts))))

    def program(self, layouts: Combination) -> PrimFunc:
        """The program whose tensors lie so; constants are packed ahead, and may be packed otherwise."""
        pairs = list(zip(self.func.buffers, self.slots, strict=True))
        constants = [buffer.name for (buffer, _), word in zip(pairs, self.words, strict=True) if word in PACKED_AHEAD]
        return laid_out(self.func, {buffer.name: layouts[slot] for buffer, slot in pairs if slot >= 0}, constants)

    def task(self, layouts: Combination, target: Target) -> Task:
        """What is tuned for a combination."""
        return task_of(self.program(layouts), self.words, target, self.network_bytes)


def tensors_of(network: Network, node: Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a node reads and what it writes, each once, without constants and absent inputs."""
    moving = [n for n in (*node.inputs, *node.outputs) if n in network.tensors and n not in network.constants]
    reads = tuple(n for n in dict.fromkeys(moving) if n not in node.outputs)
    return reads, tuple(n for n in dict.fromkeys(moving) if n in node.outputs)


def kind_of(network: Network, node: Operator, weights: Weights, may_idle: bool = False) -> Kind:
    """The kind of an operator."""
    reads, writes = tensors_of(network, node)
    number = {name: slot for slot, name in enumerate((*reads, *writes))}
    slots = tuple(number.get(name, -1) for name in (*node.inputs, *node.outputs))
    key = canonical(node.func).script(), words_of(network, node, weights), slots
    following = tuple(sorted(_following(node.func, slots, len(node.inputs))))
    return Kind(key, may_idle, node.func, len(reads), following, weights.nbytes)


def _following(func: PrimFunc, slots: tuple[int, ...], inputs: int) -> set[tuple[int, int]]:
    """Tensors that are read where a result is written, each with that result."""
    slot_of = {buffer.name: slot for buffer, slot in zip(func.buffers, slots, strict=True)}
    found = set()
    for result in func.buffers[inputs:]:
        for block in producers(func, result):
            if block.reduce or not isinstance(block.body, Store):
                continue
            for load in (n for n in walk(block.body) if isinstance(n, Load)):
                same = load.indices == block.body.indices and all(isinstance(i, Var) for i in load.indices)
                if same and slot_of.get(load.buffer.name, -1) >= 0 and load.buffer.shape == result.shape:
                    found.add((slot_of[load.buffer.name], slot_of[result.name]))
    return {(read, written) for read, written in found if read != written}


def copy_kind(tensor: Tensor, network_bytes: int = 0) -> Kind:
    """The kind of the copies of a tensor, from the first layout of a combination to the second."""
    func = _copy(tensor.shape, tensor.dtype)
    return Kind((canonical(func).script(), ("fixed", "fixed"), (0, 1)), False, func, 1, (), network_bytes)


@cached(256)
def _copy(shape: tuple[int, ...], dtype: str) -> PrimFunc:
    """The program that copies an array."""
    names = [f"i{k}" for k in range(len(shape))]
    at = ", ".join(f"v{name}" for name in names) or "0"
    extents = f"({', '.join(map(str, shape or (1,)))},)"
    bound = "\n            ".join(f"v{n} = T.axis.spatial({e}, {n})" for n, e in zip(names, shape, strict=True))
    func = parse(f"""
@T.prim_func
def copy(x: T.Buffer({extents}, "{dtype}"), y: T.Buffer({extents}, "{dtype}")):
    for {", ".join(names)} in T.grid({", ".join(map(str, shape))}):
        with T.block("copy"):
            {bound}
            y[{at}] = x[{at}]
""")
    assert isinstance(func, PrimFunc)
    return func
