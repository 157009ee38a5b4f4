"""The inputs of a model: their shapes, or their values, from the file and from what the caller says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, ValueInfoProto

from ...errors import ModelProblem, did_you_mean
from ..inputs import Given
from ..network import Array
from ..operators.graph import Type
from .graph import typed

Symbols = dict[str, int]


def known_inputs(items: Sequence[ValueInfoProto], given: Given) -> dict[str, Type | Array]:
    """The type of each input, or its value where it has one.

    A name that stands for an extent has one value in the whole model.  Raises ModelProblem for what does not fit, and
    for shapes that nobody says.
    """
    names = [item.name for item in items]
    for name in (*given.shapes, *given.values, *given.either):
        if name not in names:
            raise ModelProblem(
                f"the model has no input `{name}`{did_you_mean(name, names)}; it has {', '.join(names) or 'none'}"
            )
    for item in items:
        _refuse_others(item)
    single = {item.name: n for item in items if (n := given.either.get(item.name)) is not None and _is_single(item)}
    shapes = {**given.shapes, **{name: (n,) for name, n in given.either.items() if name not in single}}
    symbols: Symbols = {}
    for item in items:
        if item.name in shapes:
            _compare(item, tuple(shapes[item.name]), symbols)
    values = {**given.values, **single}
    known = {item.name: _value(item, values[item.name], shapes, symbols) for item in items if item.name in values}
    return {
        item.name: known[item.name]
        if item.name in known
        else typed(_shape(item, shapes, symbols), item.type.tensor_type.elem_type)
        for item in items
    }


def _refuse_others(item: ValueInfoProto) -> None:
    """Raise ModelProblem for an input that is no tensor."""
    tensor = item.type.tensor_type
    if not item.type.HasField("tensor_type") or tensor.elem_type == TensorProto.UNDEFINED:
        kind = item.type.WhichOneof("value") or "of unknown type"
        raise ModelProblem(
            f"the input `{item.name}` is no tensor ({kind}); only tensors can be passed to a network, and sequences of "
            "them one by one"
        )
    if tensor.elem_type not in TensorProto.DataType.values():
        raise ModelProblem(f"the input `{item.name}` is damaged: no element type has the number {tensor.elem_type}")


def _is_single(item: ValueInfoProto) -> bool:
    """Whether an input has one element, as the model says."""
    tensor = item.type.tensor_type
    return bool(tensor.HasField("shape")) and all(_is_fixed(dim) and dim.dim_value == 1 for dim in tensor.shape.dim)


def _shape(item: ValueInfoProto, shapes: Mapping[str, Sequence[int]], symbols: Symbols) -> tuple[int, ...]:
    """The shape of an input, of which the caller may have given the extents or their names."""
    tensor = item.type.tensor_type
    if item.name in shapes:
        return tuple(int(extent) for extent in shapes[item.name])
    found = [d.dim_value if _is_fixed(d) else symbols.get(_symbol(d)) for d in tensor.shape.dim]
    if not tensor.HasField("shape") or None in found:
        shown = ",".join(_shown(d) for d in tensor.shape.dim) if tensor.HasField("shape") else "of any rank"
        example = "x".join(str(extent or "N") for extent in found) or "SHAPE"
        extents = ", ".join(str(extent or "N") for extent in found) + "," * (len(found) == 1) or "EXTENTS"
        raise ModelProblem(
            f"the model leaves the shape of its input `{item.name}` open ({shown}); say it with "
            f'`--input {item.name}={example}`, or in Python `inputs={{"{item.name}": ({extents})}}`, with a number for '
            "each extent"
        )
    return tuple(extent for extent in found if extent is not None)


def _value(item: ValueInfoProto, value: Any, shapes: Mapping[str, Sequence[int]], symbols: Symbols) -> Array:
    """The value of an input in its type and shape; one number stands for all elements, an open extent for 1."""
    dtype = np.dtype(typed((), item.type.tensor_type.elem_type).dtype)
    array, is_text = np.asarray(value), dtype.kind == "O"
    fits = (array.dtype.kind in "OSU") == is_text and np.can_cast(array.dtype, dtype, "unsafe")
    made: Array = array.astype(dtype) if fits else array
    is_rounded = dtype.kind == "f" and array.dtype.kind in "iuf"
    kind = "text" if is_text else dtype
    if not fits or not (is_text or is_rounded or np.array_equal(made, array)):
        raise ModelProblem(f"the input `{item.name}` is of type {kind}, which {_short(array)} is not")
    tensor = item.type.tensor_type
    if made.ndim == 0 and (item.name in shapes or tensor.HasField("shape")):
        dims = [d.dim_value if _is_fixed(d) else symbols.get(_symbol(d), 1) for d in tensor.shape.dim]
        shape = tuple(shapes.get(item.name, dims))
        return np.full(shape, made, dtype)
    _compare(item, made.shape, symbols)
    return made


def _short(array: Array) -> str:
    text = " ".join(str(array).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


def _compare(item: ValueInfoProto, shape: tuple[int, ...], symbols: Symbols) -> None:
    """Raise ModelProblem unless `shape` is one that the model allows; learn what its symbols stand for."""
    tensor = item.type.tensor_type
    asked = "x".join(map(str, shape))
    if any(extent < 0 for extent in shape):
        raise ModelProblem(f"the shape {asked} for the input `{item.name}` has a negative extent")
    if not tensor.HasField("shape"):
        return
    dims = tensor.shape.dim
    shown = ",".join(map(_shown, dims))
    if len(dims) != len(shape):
        raise ModelProblem(
            f"the input `{item.name}` has {len(dims)} dimensions ({shown}), but {asked} has {len(shape)}; give one "
            "number for each"
        )
    for dim, extent in zip(dims, shape, strict=True):
        expected = dim.dim_value if _is_fixed(dim) else symbols.setdefault(_symbol(dim) or f"\0{len(symbols)}", extent)
        if expected != extent:
            raise ModelProblem(
                f"the input `{item.name}` of shape {shown} cannot be {asked}: `{_shown(dim)}` is {expected} in "
                "this model"
            )


def _is_fixed(dim: Any) -> bool:
    """Whether an extent is a number; some exporters write -1 for one that is not."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def _symbol(dim: Any) -> str:
    """The name that stands for an extent wherever it appears; none for ``?``, which stands for any."""
    return "" if dim.dim_param == "?" else str(dim.dim_param)


def _shown(dim: Any) -> str:
    return str(dim.dim_value) if _is_fixed(dim) else dim.dim_param or "?"
