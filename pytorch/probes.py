"""Inputs with which kernels of a part are compared with PyTorch: random numbers, and masks as people send them.

A mask is what a softmax reads without a sum in between.  Its rows are masked as a whole and in part, by -inf, by the
lowest number, which is none, and by a bool; each row of a small mask has its turn with each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from .free_sizes import Point, is_size, value_at
from .parts import Part
from .strides import random_like

ONE_SHAPE: Point = {}

MASKED = {
    "_scaled_dot_product_flash_attention_for_cpu": "attn_mask", "_softmax": "self", "_log_softmax": "self",
    "_safe_softmax": "self",
}  # fmt: skip
"""Operators by name, and their argument whose rows may be masked."""

SUMS = frozenset((*MASKED, "mm", "bmm", "addmm", "baddbmm", "convolution", "sum", "mean", "native_layer_norm",
                  "native_group_norm", "embedding"))  # fmt: skip
"""Operators of whose operands a row masked as a whole would be all that is seen."""

KINDS = 6
"""A row that is masked by -inf, by the lowest number, half by each, half by one of them, and not at all."""


def probes(part: Part, known: Mapping[str, Tensor], point: Point = ONE_SHAPE) -> list[dict[fx.Node, Any]]:
    """The inputs of a part by node, one draw after the other; `known` are constants by name, `point` has the sizes."""
    given: dict[fx.Node, Any] = {}
    for source in (*part.sizes, *part.node.all_input_nodes):
        value = known[source.name] if source.name in known else value_at(source.meta["val"], point)
        given[source] = random_like(value) if isinstance(value, Tensor) and source.name not in known else value
    masks = [source for source in masks_of(part) if source.name not in known and given[source].numel() > 0]
    most = max((KINDS if rows(given[mask]) < KINDS else 1 for mask in masks), default=0)
    return [given, *({**given, **{mask: masked(given[mask], turn) for mask in masks}} for turn in range(most))]


def masks_of(part: Part) -> list[fx.Node]:
    """The inputs of a part that are floats or bools, and that mask."""
    given = [n for n in part.module.graph.nodes if n.op == "placeholder"]
    pending = [value for node in part.module.graph.nodes if isinstance(value := _masked_by(node), fx.Node)]
    found: set[fx.Node] = set()
    while pending:
        node = pending.pop()
        if node not in found and _name(node) not in SUMS:
            found.add(node)
            pending += node.all_input_nodes
    sources = [source for at, source in zip(given, part.node.args, strict=True) if at in found]
    return [s for s in sources if isinstance(s, fx.Node) and not is_size(s) and _can_mask(s.meta["val"])]


def _masked_by(node: fx.Node) -> object:
    """What a node reads as logits or as a mask."""
    name, target = MASKED.get(_name(node)), node.target
    if name is None or not isinstance(target, torch._ops.OpOverload):
        return None
    named = dict(zip((a.name for a in target._schema.arguments), node.args, strict=False)) | node.kwargs
    return named.get(name)


def _name(node: fx.Node) -> str:
    target = node.target
    return target._schema.name.removeprefix("aten::") if isinstance(target, torch._ops.OpOverload) else ""


def _can_mask(value: Tensor) -> bool:
    is_kind = value.is_floating_point() or value.dtype == torch.bool
    return bool(value.dim() > 0 and is_kind)


def rows(value: Tensor) -> int:
    """How many rows along the last dimension a tensor has."""
    return int(value.numel() // value.shape[-1])


def masked(value: Tensor, turn: int) -> Tensor:
    """A mask whose row r is masked in the way ``(r + turn) % KINDS``; of a bool, what is masked is false."""
    made = value.clone().reshape(-1, value.shape[-1])
    half = made.shape[1] // 2
    none, lowest = (-torch.inf, torch.finfo(made.dtype).min) if made.is_floating_point() else (False, False)
    sides = (none, none), (lowest, lowest), (lowest, none), (None, none), (None, lowest)
    for kind, (left, right) in enumerate(sides):
        row = slice((kind - turn) % KINDS, None, KINDS)
        if left is not None:
            made[row, :half] = left
        made[row, half:] = right
    return made.reshape(value.shape)
