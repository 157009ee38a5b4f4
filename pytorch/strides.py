"""How results lie in memory: as PyTorch's operators would leave them, since callers may see it (`Tensor.view`).

Kernels give results in C order.  PyTorch's convolution of a ``channels_last`` image gives another one that lies so, its
``permute`` is the same memory, and its ``expand`` repeats it by strides of 0.  So operators that only look at memory
are left to PyTorch where their results leave a part (`leave_views`), and what else a part gives is brought into the
order that PyTorch's own operators have just shown (`laid_out`).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import Tensor, fx
from torch.fx.passes.infra.partitioner import Partition

from .conversion import Conversion


def leave_views(module: fx.GraphModule, partition: Partition, conversion: Conversion) -> None:
    """Let PyTorch compute each view of a part's results that is read outside of the part.

    One that is read inside as well is there twice: memory that outside readers share is the same for all of them.
    """
    order = {node: number for number, node in enumerate(module.graph.nodes)}
    for node in sorted(partition.nodes, key=order.__getitem__, reverse=True):
        outside = [user for user in node.users if user not in partition.nodes]
        if not outside or not is_view(node):
            continue
        if len(outside) == len(node.users):
            partition.nodes.pop(node)
            continue
        with module.graph.inserting_after(node):
            again = module.graph.node_copy(node, lambda source: source)
        conversion.names[again.name] = conversion.names[node.name]
        for user in outside:
            user.replace_input_with(node, again)


def is_view(node: fx.Node) -> bool:
    """Whether a node gives memory of what it reads, whole or in part."""
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, fx.Node) and is_view(source)
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    returns = node.target._schema.returns
    aliases = [found.alias_info for found in returns if found.alias_info is not None]
    return node.target == torch.ops.aten._unsafe_view.default or any(not alias.is_write for alias in aliases)


def laid_out(value: Tensor, strides: Sequence[int]) -> Tensor:
    """`value`, which is in C order, with these strides: the same memory where they say the same, else a copy."""
    own = value.stride()
    if all(extent == 1 or a == b for extent, a, b in zip(value.shape, own, strides, strict=True)) or not value.numel():
        return value.as_strided(value.shape, strides)
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device="cpu").copy_(value)


def order_of(values: Sequence[Tensor]) -> tuple[int, ...] | None:
    """The order, from the outermost dimension on, in which all of these tensors lie densely; None without one."""
    for first in values:
        order = tuple(sorted(range(first.dim()), key=[-stride for stride in first.stride()].__getitem__))
        if all(value.permute(order).is_contiguous() for value in values):
            return order
    return None


def in_order(value: Tensor, order: Sequence[int]) -> Tensor:
    """`value` with its dimensions in this order in memory, from the outermost one on."""
    back = [order.index(at) for at in range(len(order))]
    return value.permute(*order).contiguous().permute(back)


def is_laid_out(node: fx.Node) -> bool:
    """Whether a node is a call of `laid_out` or `in_order`."""
    return node.target in (laid_out, in_order)


def in_c_order(node: fx.Node) -> fx.Node:
    """The node that has the same value in C order, where there is one; else `node`."""
    value = node.args[0] if is_laid_out(node) else node
    assert isinstance(value, fx.Node)
    return value


def random_like(value: Tensor) -> Tensor:
    """A random tensor with the shape, strides and type of `value`, which may have no data."""
    shape, strides = value.shape, value.stride()
    spanned = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    if value.is_floating_point():
        memory = torch.randn(max(spanned, 0), device="cpu").to(value.dtype)
    elif value.dtype == torch.bool:
        memory = torch.rand(max(spanned, 0), device="cpu") < 0.5
    else:
        memory = torch.zeros(max(spanned, 0), dtype=value.dtype, device="cpu")
    return memory.as_strided(shape, strides)
