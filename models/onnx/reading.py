"""An ONNX file, read without trust: bounded memory, nothing outside of what belongs to the model, nothing executed.

1. The file is at most `LARGEST_FILE` bytes, which is the format's own limit.
2. A tensor has as many bytes as its shape says, and at most `LARGEST_TENSOR`; all together at most `LARGEST_TOTAL`.
3. External data lies in files below the model's folder, links followed, and inside these files.  A place is relative
   and has no ``..``.  Where the model itself is a link, as in a hub's cache, data may be a link as well that leads into
   the very folder that the model's leads into: nothing is read that the model could not name if it were given there.
4. Sparse tensors are expanded only within the same limits.
5. Numbers among attributes are at most `LARGEST_NUMBER`, since ONNX's own code takes them as 32 bits.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ...errors import ModelProblem, StorageError, StridesmithError
from ..network import Array

LARGEST_FILE = 2**31 - 1
LARGEST_TENSOR = 2**34
LARGEST_TOTAL = 2**36
LARGEST_NUMBER = 2**31 - 1
_SMALL = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}
BITS = {number: _SMALL[name] for name, number in TensorProto.DataType.items() if name in _SMALL}
"""Of element types of which several share a byte of a file; in memory each has its own."""
FREE_NUMBERS = frozenset({"starts", "ends", "start", "end", "value_int", "value_ints"})
"""Attributes that may be larger: ends of slices, which are cut, and values."""

DEEPEST = 16
"""How deep graphs may be nested in attributes of nodes."""

FIRST_BYTES = frozenset(
    field.number << 3 | (0 if field.type == field.TYPE_INT64 else 2)
    for field in ModelProto.DESCRIPTOR.fields
    if field.number < 16
)
"""With which bytes a model may begin: the number of a field, and how it is written."""
KINDS = {
    b"PK": "an archive, as PyTorch's checkpoints and NumPy's .npz are", b"\x93NUMPY": "an array of NumPy's",
    b"\x80": "a pickle", b"\x89HDF": "a file of HDF5's, as Keras writes it", b"GGUF": "a model of llama.cpp's",
    b"\x18\x00\x00\x00TFL3": "a model of TensorFlow Lite", b"\x1c\x00\x00\x00TFL3": "a model of TensorFlow Lite",
}  # fmt: skip
"""What files of other kinds begin with."""
STAND_INS = {
    b"\x1f\x8b": ("a file that gzip has packed", "unpack it first"),
    b"version https://git-lfs": ("a pointer of Git LFS", "`git lfs pull` fetches the file that it stands for"),
    b"<!doctype html": ("a page of HTML", "download the file itself"),
    b"<html": ("a page of HTML", "download the file itself"),
}
"""What files begin with behind which a model may be, in small letters, and how one comes to it."""


class Weights:
    """Tensors of a model as arrays; `path` is the model's own, beside which its external data lies."""

    def __init__(self, path: Path | None) -> None:
        self.folder = None if path is None else path.parent.resolve()
        self.store = path.resolve().parent if path is not None and path.is_symlink() else None
        self.total = 0

    def array(self, tensor: TensorProto) -> Array:
        """The contents of a tensor.  Raises ModelProblem or StorageError for one that breaks a rule of this module."""
        wanted = self._admit(tensor.name, tensor.dims, tensor.data_type)
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external(tensor, wanted)
        return _contents(tensor)

    def dense(self, tensor: onnx.SparseTensorProto) -> Array:
        """The contents of a sparse tensor, zeros included."""
        name = _short(tensor.values.name)
        self._admit(name, tensor.dims, tensor.values.data_type)
        values, indices, shape = self.array(tensor.values), self.array(tensor.indices), tuple(tensor.dims)
        is_flat, full = indices.shape == values.shape, (*values.shape, len(shape))
        if values.ndim != 1 or indices.dtype != np.int64 or not (is_flat or indices.shape == full):
            raise StorageError(
                f"the sparse tensor `{name}` is damaged: its values have the shape {list(values.shape)} and its "
                f"indices, of type {indices.dtype}, {list(indices.shape)}"
            )
        whole, places = np.zeros(math.prod(shape), values.dtype), indices.astype(np.int64)
        if np.any(places < 0) or np.any(places >= (whole.size if is_flat else shape)):
            raise StorageError(f"the sparse tensor `{name}` is damaged: its indices leave the shape {list(shape)}")
        whole[places if is_flat else np.ravel_multi_index(tuple(places.T), shape)] = values
        return whole.reshape(shape)

    def _admit(self, name: str, dims: Iterable[int], element: int) -> int:
        """The bytes of a tensor in a file; those that it has in memory are counted against the limits."""
        shape = list(dims)
        if any(extent < 0 for extent in shape):
            raise StorageError(f"the tensor `{_short(name)}` is damaged: its shape is {shape}")
        try:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
        except KeyError:
            raise StorageError(
                f"the tensor `{_short(name)}` is damaged: no element type has the number {element}"
            ) from None
        count = math.prod(shape)
        nbytes = count * int(dtype.itemsize)
        self.total += nbytes
        if nbytes > LARGEST_TENSOR or self.total > LARGEST_TOTAL:
            raise ModelProblem(
                f"the tensor `{_short(name)}` of shape {shape} brings the model's weights to {self.total} bytes; one "
                f"tensor may have {LARGEST_TENSOR} and all together {LARGEST_TOTAL}"
            )
        return -(-count * BITS[element] // 8) if element in BITS else nbytes

    def _external(self, tensor: TensorProto, wanted: int) -> Array:
        name = _short(tensor.name)
        keys = {entry.key: entry.value for entry in tensor.external_data}
        path = self._inside(name, keys.get("location", ""))
        try:
            offset, length = int(keys.get("offset", "0")), int(keys.get("length", str(wanted)))
        except ValueError:
            raise StorageError(f"the tensor `{name}` is damaged: its place in `{path.name}` is no number") from None
        try:
            size = path.stat().st_size
            if not path.is_file() or offset < 0 or length < wanted or offset + wanted > size:
                raise StorageError(
                    f"the tensor `{name}` of {wanted} bytes lies at {offset} of `{path.name}`, in {length} bytes, but "
                    f"the file has {size}; is it complete?"
                )
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(wanted)
        except OSError as error:
            raise StorageError(
                f"the weights of `{name}` cannot be read from `{path}`: {error.strerror}; a model's other files belong "
                f"into its folder, by the names that it gives"
            ) from None
        whole = TensorProto()
        whole.CopyFrom(tensor)
        whole.data_location = TensorProto.DEFAULT
        del whole.external_data[:]
        whole.raw_data = data
        return _contents(whole)

    def _inside(self, name: str, location: str) -> Path:
        """The file of external data, which belongs to the model by rule 3."""
        if self.folder is None:
            raise ModelProblem(
                f"the tensor `{name}` lies in another file, `{_short(location)}`, which a model given as bytes cannot "
                "name; pass the path of the model"
            )
        parts = Path(location).parts
        if not parts or "\0" in location or Path(location).is_absolute() or ".." in parts:
            raise ModelProblem(
                f"the tensor `{name}` names the file `{_short(location)}`, which is no place inside of the model's "
                "folder: that is a relative path without `..`"
            )
        path = Path(os.path.realpath(self.folder / location))
        if not path.is_relative_to(self.folder) and path.parent != self.store:
            beside = "" if self.store is None else f", and not in `{self.store}`, where the model's own link leads"
            raise ModelProblem(
                f"the tensor `{name}` names the file `{_short(location)}`, a link to `{path}`, which is not inside of "
                f"the model's folder `{self.folder}`{beside}; weights are read only from there"
            )
        return path


def _contents(tensor: TensorProto) -> Array:
    try:
        found: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageError(
            f"the tensor `{_short(tensor.name)}` of shape {list(tensor.dims)} is damaged: {error}"
        ) from None
    return found


def load(source: str | os.PathLike[str] | bytes | ModelProto) -> tuple[ModelProto, Weights]:
    """The model in a file, or in its bytes, and the reader of its weights.

    Raises ModelProblem for a file of another kind, and for what breaks a limit; StorageError for what cannot be read,
    and for a model that is damaged.
    """
    if isinstance(source, ModelProto):
        return _checked(source, "the model"), Weights(None)
    if isinstance(source, bytes):
        return _parsed(source, "the model"), Weights(None)
    path = Path(source)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise StorageError(
                f"`{path}` is no file, so that no ONNX model can be read from it; name the model's .onnx file"
            )
        if size > LARGEST_FILE:
            raise ModelProblem(
                f"`{path}` has {size} bytes; an ONNX file has at most {LARGEST_FILE}, larger weights are stored as "
                "external data beside it"
            )
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"the model `{path}` cannot be read: {error.strerror}") from None
    return _parsed(data, f"`{path}`"), Weights(path)


def _parsed(data: bytes, name: str) -> ModelProto:
    if len(data) > LARGEST_FILE:
        raise ModelProblem(f"{name} has {len(data)} bytes; an ONNX model has at most {LARGEST_FILE}")
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RuntimeError, ValueError):
        raise _unreadable(name, data, f"its {len(data)} bytes cannot be read as a protocol buffer") from None
    return _checked(model, name, data)


def _checked(model: ModelProto, name: str, data: bytes = b"") -> ModelProto:
    if not model.HasField("graph") or not model.opset_import or not model.graph.output:
        raise _unreadable(name, data, "it has no graph with outputs and operator sets")
    refuse_unbounded(model.graph)
    for function in model.functions:
        for node in function.node:
            _bounded_node(node, 0)
    return model


def _unreadable(name: str, data: bytes, why: str) -> StridesmithError:
    """The error of bytes that are no model: they are of another kind, or a part of one."""
    for start, (what, remedy) in STAND_INS.items():
        if data[:32].lower().startswith(start):
            return ModelProblem(f"{name} is no ONNX model, but {what}; {remedy}")
    if kind := _other_kind(data):
        return ModelProblem(f"{name} is no ONNX model, but {kind}; export the network to ONNX first")
    return StorageError(f"{name} is no ONNX model, or a damaged one: {why}; is the file complete?")


def _other_kind(data: bytes) -> str:
    """What bytes are that no model begins with, as a noun; empty where they may be a part of a model."""
    if not data:
        return ""
    for start, kind in KINDS.items():
        if data.startswith(start):
            return kind
    if data[8:10] == b'{"':  # after the length of this text
        return "a file of safetensors, which has weights and no network"
    head = data[:4096].decode("latin-1")
    if not any(ord(character) < 32 and character not in "\t\n\v\f\r" for character in head):
        return "a text"
    return "" if data[0] in FIRST_BYTES else f"a file that begins with the bytes {data[:4].hex(' ')}"


def refuse_unbounded(graph: GraphProto, depth: int = 0) -> None:
    """Raise ModelProblem for a graph with inner graphs, or numbers among attributes, that break a rule."""
    if depth > DEEPEST:
        raise ModelProblem(f"the model's graphs are nested more than {DEEPEST} deep, as none are that are meant to run")
    if depth and any(tensor.data_location == TensorProto.EXTERNAL for tensor in graph.initializer):
        raise ModelProblem(
            f"the inner graph `{_short(graph.name)}` has weights in another file; only the outer one may"
        )
    for node in graph.node:
        _bounded_node(node, depth)


def _bounded_node(node: NodeProto, depth: int) -> None:
    for attribute in node.attribute:
        sparse = [attribute.sparse_tensor, *attribute.sparse_tensors]
        tensors = [attribute.t, *attribute.tensors, *(part for s in sparse for part in (s.values, s.indices))]
        if any(tensor.data_location == TensorProto.EXTERNAL for tensor in tensors):
            raise ModelProblem(
                f"an attribute of the node `{_short(node.name)}` lies in another file; only initializers may"
            )
        largest = max((abs(number) for number in (attribute.i, *attribute.ints)), default=0)
        if largest > LARGEST_NUMBER and attribute.name not in FREE_NUMBERS:
            raise ModelProblem(
                f"the attribute `{_short(attribute.name)}` of the node `{_short(node.name or node.op_type)}` has the "
                f"number {largest}; numbers may be at most {LARGEST_NUMBER}"
            )
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            refuse_unbounded(graph, depth + 1)


def _short(name: str) -> str:
    return name if len(name) <= 80 else name[:77] + "..."
