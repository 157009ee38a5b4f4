"""A slice of a transposed convolution's image becomes its pads, which cut off elements at both ends.

    ConvTranspose(x; pads = p, q)[first:last]  ->  ConvTranspose(x; pads = p + first, q + size - last)

of `size` elements along each dimension of the image.  Models that upsample sound cut off what their last taps reach
over the end.  Done only where nothing else reads the whole image.
"""

from __future__ import annotations

from dataclasses import replace

from .graph import Graph, Node
from .movement import sliced
from .site import Site


def crop(graph: Graph) -> None:
    """Rewrite the graph as this module says."""
    users = graph.users()
    nodes: list[Node] = []
    place: dict[str, int] = {}
    for node in graph.nodes:
        at = place.get(node.inputs[0]) if node.op == "Slice" and not node.domain else None
        if at is not None and len(users[node.inputs[0]]) == 1 and node.inputs[0] not in graph.outputs:
            cropped = _cropped(graph, nodes[at], node)
            if cropped is not None:
                nodes[at] = cropped
                place[node.outputs[0]] = at
                graph.note(node, f"part of ConvTranspose {cropped.name or cropped.outputs[0]}")
                continue
        if node.op == "ConvTranspose" and not node.domain:
            place[node.outputs[0]] = len(nodes)
        nodes.append(node)
    graph.nodes = nodes
    graph.prune()


def _cropped(graph: Graph, before: Node, node: Node) -> Node | None:
    """A transposed convolution whose pads leave what a slice of its image leaves, None where none do."""
    whole, left = (graph.types[name].shape for name in (before.outputs[0], node.outputs[0]))
    steps, values = sliced(Site(graph, node)), before.values
    is_padded = values.get("auto_pad", "NOTSET") == "NOTSET" and not values.get("output_shape")
    if steps is None or not is_padded or whole[:2] != left[:2] or 0 in left or any(step != 1 for _, step in steps):
        return None
    rank = len(whole) - 2
    first = [start for start, _ in steps[2:]]
    last = [size - start - extent for size, start, extent in zip(whole[2:], first, left[2:], strict=True)]
    pads = values.get("pads") or [0] * 2 * rank
    more = {"pads": [pad + cut for pad, cut in zip(pads, [*first, *last], strict=True)]}
    return replace(before, outputs=node.outputs, values={**values, **more})
