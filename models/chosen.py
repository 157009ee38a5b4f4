"""The layouts that the operators of a network were given, as a value that is stored and found again.

`in_layouts` makes the network that runs so: programs that read and write the layouts, copies as operators of their own.
The database keeps the choice by the network's `signature` and the device, beside the records of its programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from ..errors import BadRecord
from ..ir.layout.index_map import IndexMapError
from ..ir.layout.layout import Layout
from .agreement import Agreement, Copy
from .costs import Alternatives
from .kinds import copy_kind, kind_of, tensors_of
from .network import Network, Node, Operator
from .tasks import Weights

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..search.records.database import Database


MOST_PADDING = 64
"""Points of a halo or a block that a layout read from outside may have."""
MOST_ROOM = 1 << 14
"""Points that a part of a concatenation may have for the others, in front or behind."""
ANY = Weights("constant", 0)
"""Where only the program of a kind is asked for, which is the same wherever its constants come from."""


@dataclass(frozen=True)
class Chosen:
    """The layouts in which tensors are `written`, and `read` by operators that read them otherwise, through a copy.

    What is named in neither lies as ONNX has it.  Operators that are `apart` were faster with memory of their own for
    their results than with that of an input.
    """

    written: Mapping[str, Layout] = field(default_factory=dict)
    read: Mapping[tuple[str, str], Layout] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()

    @staticmethod
    def of(alternatives: Alternatives, agreement: Agreement) -> Chosen:
        """What was agreed on."""
        written = {name: alternatives[name][k] for name, k in agreement.written.items() if k}
        read = {at: alternatives[at[1]][k] for at, k in agreement.read.items() if k != agreement.written[at[1]]}
        return Chosen(written, read)

    def among(self, alternatives: Alternatives, like: Agreement) -> Agreement | None:
        """The choice by numbers of alternatives, for the tensors and operators of `like`; None where one is missing."""
        plain = {name: Layout.plain(some[0].logical_shape) for name, some in alternatives.items()}
        try:
            written = {n: alternatives[n].index(self.written.get(n, plain[n])) for n in like.written}
            read = {
                (node, n): alternatives[n].index(self.read.get((node, n), self.written.get(n, plain[n])))
                for node, n in like.read
            }
        except ValueError:
            return None
        copies = {Copy(n, written[n], layout) for (_, n), layout in read.items() if layout != written[n]}
        return Agreement(inf, written, read, tuple(sorted(copies, key=lambda c: (c.tensor, c.target))))

    def to_json(self) -> dict[str, Any]:
        """The choice as JSON."""
        return {
            "written": {name: layout.to_json() for name, layout in self.written.items()},
            "read": [[*at, layout.to_json()] for at, layout in self.read.items()],
            "apart": sorted(self.apart),
        }

    @staticmethod
    def from_json(data: Any) -> Chosen:
        """The choice that `to_json` wrote; anything else is a BadRecord."""
        try:
            written = {str(name): _layout(item) for name, item in data["written"].items()}
            read = {(str(node), str(name)): _layout(item) for node, name, item in data["read"]}
            apart = frozenset(map(str, data.get("apart", ())))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadRecord(f"not a choice of layouts for a network: {error}") from None
        return Chosen(written, read, apart)

    def fits(self, network: Network) -> bool:
        """Whether it is a choice for the operators and tensors of this network."""
        programs = {node.name: node for node in network.nodes if isinstance(node, Operator)}
        fixed = {*network.inputs, *network.outputs, *network.constants}
        fixed |= {name for node in network.called for name in (*node.inputs, *node.outputs)}
        for name, layout in self.written.items():
            if name in fixed or name not in network.tensors or network.tensors[name].shape != layout.logical_shape:
                return False
        return all(
            node in programs and name in programs[node].inputs and network.tensors[name].shape == layout.logical_shape
            for (node, name), layout in self.read.items()
        )


def _layout(data: object) -> Layout:
    """The layout of a tensor that `Layout.to_json` wrote.  Raises BadRecord for one with much padding."""
    found = Layout.from_json(data)
    try:
        bare = found.without_halo.physical_shape
    except IndexMapError as error:
        raise BadRecord(f"not a layout of a tensor: {error}") from None
    halo = (*found.before, *(e - b for e, b in zip(found.physical_shape, bare, strict=True)))
    most = 2 * MOST_PADDING if found.pad_value is not None else MOST_ROOM
    if not all(0 <= n <= most for n in halo) or max(found.blocks.values(), default=1) > MOST_PADDING:
        raise BadRecord(f"not a layout of a tensor: {data!r:.200}")
    if isinstance(found.pad_value, str) and found.pad_value != "undef":
        raise BadRecord(f"not a layout of a tensor: {data!r:.200}")
    return found


def in_layouts(network: Network, chosen: Chosen) -> Network:
    """The network whose programs read and write the chosen layouts, copies as operators of their own."""
    tensors = dict(network.tensors)
    copied: dict[tuple[str, Layout], str] = {}
    after: dict[str, list[Operator]] = {}

    def read_as(tensor: str, layout: Layout) -> str:
        """The tensor in a layout, copied behind its producer where that writes it otherwise."""
        source = chosen.written.get(tensor, Layout.plain(layout.logical_shape))
        if layout == source:
            return tensor
        if (tensor, layout) not in copied:
            made = f"{tensor} as {layout.label}"
            while made in tensors:  # a label leaves out how wide a halo is
                made += "'"
            copied[tensor, layout] = made
            tensors[made] = replace(network.tensors[tensor], name=made)
            func = copy_kind(network.tensors[tensor]).program((source, layout))
            maker = network.producer.get(tensor)
            copy = Operator(f"copy to {made}", func, (tensor,), (made,))
            after.setdefault(maker.name if maker else "", []).append(copy)
        return copied[tensor, layout]

    relaid: list[Node] = []
    for node in network.nodes:
        if not isinstance(node, Operator):
            relaid.append(node)
            continue
        reads, writes = tensors_of(network, node)
        plain = {name: Layout.plain(network.tensors[name].shape) for name in (*reads, *writes)}
        layouts = {n: chosen.read.get((node.name, n), chosen.written.get(n, plain[n])) for n in reads}
        layouts |= {n: chosen.written.get(n, plain[n]) for n in writes}
        func = kind_of(network, node, ANY).program(tuple(layouts[n] for n in (*reads, *writes)))
        inputs = tuple(read_as(n, layouts[n]) if n in layouts else n for n in node.inputs)
        relaid.append(replace(node, func=func, inputs=inputs, apart=node.name in chosen.apart))
    nodes: list[Node] = list(after.get("", ()))
    for node in relaid:
        nodes += [node, *after.get(node.name, ())]
    return network.with_nodes(tuple(nodes), tensors)


def keep(chosen: Chosen, network: Network, target: Target, database: Database, seconds: float | None = None) -> None:
    """Store a choice, in place of an earlier one for this network and device; waits as `Database.put_choice`."""
    database.put_choice(network.signature, target, chosen.to_json(), seconds)


def kept(network: Network, target: Target, database: Database) -> Chosen | None:
    """The choice that is stored for a network on a device; None where there is none that fits."""
    data = database.choice(network.signature, target)
    found = None if data is None else Chosen.from_json(data)
    return found if found is not None and found.fits(network) else None


def as_kept(network: Network, target: Target, database: Database) -> Network:
    """The network in the layouts that are stored for it, as it is where none are."""
    chosen = kept(network, target, database)
    return network if chosen is None else in_layouts(network, chosen)
