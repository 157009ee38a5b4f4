"""Operators that move elements: other shapes, other orders, parts, and borders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor, fx

from ..models.network import Array
from .call import Call, Convert, Result, Unsupported

VIEWS = ("view", "_unsafe_view", "unsqueeze", "squeeze.dim", "squeeze.dims", "squeeze")
"""What costs PyTorch nothing, since it is the same memory."""

LARGEST_TABLE = 1 << 16
"""Places of elements that may be looked up where memory is seen in another order."""


def _reshape(call: Call) -> Result:
    return call.last("Reshape", [call.tensor("self")])


def _permute(call: Call) -> Result:
    rank = len(call.shape("self"))
    return call.last("Transpose", [call.tensor("self")], perm=[at % rank for at in call.numbers("dims")])


def _transpose(call: Call) -> Result:
    rank = len(call.shape("self"))
    first, second = (0, rank - 1) if not call.has("dim0") else (call.axis("dim0", rank), call.axis("dim1", rank))
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    return call.last("Transpose", [call.tensor("self")], perm=order)


def _expand(call: Call) -> Result:
    return call.last("Expand", [call.tensor("self")])


def _slice(call: Call) -> Result:
    shape = call.shape("self")
    axis, (step,) = call.axis("dim", len(shape)), call.numbers("step")
    start, end = ((call.numbers(name) or [default])[0] if call.has(name) else default
                  for name, default in (("start", 0), ("end", shape[axis])))  # fmt: skip
    start, end, _ = slice(start, end).indices(shape[axis])
    return call.sliced(call.tensor("self"), axis, slice(start, end, step), call.result().shape)


def _select(call: Call) -> Result:
    shape = call.shape("self")
    axis, (index,) = call.axis("dim", len(shape)), call.numbers("index")
    start = index % shape[axis]
    kept = [1 if at == axis else extent for at, extent in enumerate(shape)]
    return call.last("Reshape", [call.sliced(call.tensor("self"), axis, slice(start, start + 1), kept)])


def _cat(call: Call) -> Result:
    """Parts without elements are left out."""
    parts = [name for part in call["tensors"] if call.type(name := call.called(part)).size]
    result = call.result()
    kinds = [(call.type(part).dtype, len(call.type(part).shape)) for part in parts]
    if {*kinds} != {(result.dtype, len(result.shape))}:
        raise Unsupported("cat mixes types or ranks")
    return call.last("Concat", parts, axis=call.axis("dim", len(result.shape)))


def _stack(call: Call) -> Result:
    """A concatenation of the tensors, each with a new dimension of extent 1."""
    rank = len(call.result().shape)
    axis = call.axis("dim", rank)
    wide = [1 if at == axis else extent for at, extent in enumerate(call.result().shape)]
    if any(call.type(call.called(part)).dtype != call.result().dtype for part in call["tensors"]):
        raise Unsupported("stack mixes types")
    parts = [call.part("Reshape", [call.called(part)], wide) for part in call["tensors"]]
    return call.last("Concat", parts, axis=axis)


def _split(call: Call) -> Result:
    return call.split(call.tensor("self"), call.axis("dim", len(call.shape("self"))))


def _pad(call: Call) -> Result:
    rank, pads = len(call.shape("self")), call.numbers("pad")
    front, end = [0] * rank, [0] * rank
    for at in range(len(pads) // 2):
        front[rank - 1 - at], end[rank - 1 - at] = pads[2 * at], pads[2 * at + 1]
    dtype = call.result().dtype
    return call.last("Pad", [call.tensor("self"), call.constant(np.array(front + end)), call.operand("value", dtype)])


def _repeat(call: Call) -> Result:
    if len(call.shape("self")) != len(call.result().shape):
        raise Unsupported("repeat with new dimensions has no program")
    return call.last("Tile", [call.tensor("self")])


def _unbind(call: Call) -> Result:
    """Each element of a dimension as a tensor without it."""
    shape = call.shape("self")
    axis, tensor = call.axis("dim", len(shape)), call.tensor("self")
    rest = (*shape[:axis], *shape[axis + 1 :])
    places = [call.constant(np.asarray(at, np.int64)) for at in range(shape[axis])]
    return tuple(call.part("Gather", [tensor, place], rest, axis=axis) for place in places)


def _flip(call: Call) -> Result:
    tensor, shape = call.tensor("self"), call.shape("self")
    axes = [at % len(shape) for at in call.numbers("dims")]
    ends = [shape[at] - 1 for at in axes], [-shape[at] - 1 for at in axes], axes, [-1] * len(axes)
    return call.last("Slice", [tensor, *(call.shape_of(numbers) for numbers in ends)]) if axes else tensor


def _roll(call: Call) -> Result:
    """The last elements of a dimension before the others; without dimensions, of all elements in order."""
    tensor, shape, dims = call.tensor("self"), call.shape("self"), call.numbers("dims")
    shifts = call.numbers("shifts")
    if not dims:
        tensor, shape, dims = call.reshaped(tensor, (math.prod(shape),)), (math.prod(shape),), [0]
    for shift, dim in zip(shifts, dims, strict=True):
        axis = dim % len(shape)
        extent = shape[axis]
        cut = extent - shift % extent if extent else 0
        if cut == extent:
            continue
        ends = [(cut, extent), (0, cut)]
        parts = [
            call.sliced(tensor, axis, slice(first, end), (*shape[:axis], end - first, *shape[axis + 1 :]))
            for first, end in ends
        ]
        tensor = call.part("Concat", parts, shape, axis=axis)
    return call.last("Reshape", [tensor])


def _pixels(op: str, factor: str) -> Convert:
    """Channels as squares of places, or the reverse; what stands before the last three dimensions is a batch."""

    def convert(call: Call) -> Result:
        tensor, shape, result = call.tensor("self"), call.shape("self"), call.result().shape
        batch = math.prod(shape[:-3])
        squares = call.part(op, [call.reshaped(tensor, (batch, *shape[-3:]))], (batch, *result[-3:]),
                            blocksize=call[factor], mode="CRD")  # fmt: skip
        return call.last("Reshape", [squares])

    return convert


def _gated(call: Call) -> Result:
    """The first half times the sigmoid of the second one."""
    tensor, shape = call.tensor("self"), call.shape("self")
    axis = call.axis("dim", len(shape))
    half = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
    first, second = (call.sliced(tensor, axis, slice(at, at + half[axis]), half) for at in (0, half[axis]))
    return call.last("Mul", [first, call.part("Sigmoid", [second], half)])


def _as_strided(call: Call) -> Result:
    """All of a tensor's memory in another order: another shape where that is the order of the tensor's elements."""
    source = call["self"]
    value = source.meta.get("val") if isinstance(source, fx.Node) else None
    if not isinstance(value, Tensor) or not is_whole(value) or value.numel() > LARGEST_TABLE:
        raise Unsupported(f"{call.node.target} has a program for a small tensor that is all of its memory alone")
    tensor, count = call.tensor("self"), value.numel()
    (start,) = call.numbers("storage_offset") if call.has("storage_offset") else (0,)
    there = _offsets(value.shape, value.stride())
    wanted = start + _offsets(call.numbers("size"), call.numbers("stride"))
    element = np.full(count, -1)
    element[there] = np.arange(count)
    places = element[wanted]
    if not np.array_equal(places, np.arange(count)):
        flat = call.reshaped(tensor, (count,))
        tensor = call.part("Gather", [flat, call.constant(places)], (len(places),), axis=0)
    return call.last("Reshape", [tensor])


def _offsets(shape: Sequence[int], strides: Sequence[int]) -> Array:
    """Where each element lies, in C order."""
    found = np.zeros((), np.int64)
    for extent, stride in zip(shape, strides, strict=True):
        found = found[..., None] + np.arange(extent) * stride
    return found.reshape(-1)


def is_whole(value: Tensor) -> bool:
    """Whether a tensor is all of its memory, each element in a place of its own."""
    size, offset = value.numel(), value.storage_offset()
    if offset != 0 or value.untyped_storage().nbytes() != size * value.element_size():
        return False
    order = sorted((stride, extent) for extent, stride in zip(value.shape, value.stride(), strict=True) if extent > 1)
    step = 1
    for stride, extent in order:
        if stride != step:
            return False
        step *= extent
    return True


CONVERT: Mapping[str, Convert] = {
    **dict.fromkeys(VIEWS, _reshape),
    "permute": _permute,
    "transpose.int": _transpose,
    "t": _transpose,
    "expand": _expand,
    "slice.Tensor": _slice,
    "select.int": _select,
    "cat": _cat,
    "stack": _stack,
    **dict.fromkeys(("split_with_sizes", "split.Tensor", "unsafe_split.Tensor", "unsafe_split_with_sizes"), _split),
    "constant_pad_nd": _pad,
    "repeat": _repeat,
    "unbind.int": _unbind,
    "flip": _flip,
    "roll": _roll,
    "pixel_shuffle": _pixels("DepthToSpace", "upscale_factor"),
    "pixel_unshuffle": _pixels("SpaceToDepth", "downscale_factor"),
    "glu": _gated,
    "as_strided": _as_strided,
}
