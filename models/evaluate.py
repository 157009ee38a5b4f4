"""What a network means: its programs by the interpreter, foreign operators by the reference implementation of ONNX.

Programs of many statements run as scalar code that was compiled without any schedule and checked against the
interpreter (`search.workers.reference`); floats are then computed in float64 within an operator and rounded to the
tensor's type after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..backends.samples import Reference
from ..errors import InternalError, ModelProblem, UsageError
from ..ir.caches import cached
from ..ir.numbers import BITS, HALF_BYTES, boundary_dtype, to_storage
from ..ir.stmt import PrimFunc
from ..search.workers.reference import reference_of
from .fallback import run_foreign
from .network import CARRIED, REFERENCE, Array, Branches, Cut, Foreign, Lookup, Loop, Network, Node, Operator, Tensor


def evaluate(network: Network, arrays: Mapping[str, Array], keep: bool = False) -> dict[str, Array]:
    """The outputs of a network by name, from its inputs by name; with `keep`, every tensor that it computes."""
    values = {name: as_bits(network.tensors[name], array) for name, array in network.constants.items()}
    for name in network.inputs:
        values[name] = _given(network.tensors[name], arrays)
    left = {name: len(readers) for name, readers in network.consumers.items()}
    for node in network.nodes:
        values.update(outputs_of(network, node, values))
        for name in dict.fromkeys(node.inputs):
            left[name] -= 1
            if not keep and not left[name] and name not in network.outputs:
                del values[name]
    wanted = values if keep else network.outputs
    return {name: _as_told(network, name, values[name]) for name in wanted}


def outputs_of(network: Network, node: Node, values: Mapping[str, Array]) -> dict[str, Array]:
    """What one node computes from the tensors before it."""
    if isinstance(node, Operator):
        return _program(network, node, values)
    if isinstance(node, Foreign):
        return _foreign(network, node, {name: _as_told(network, name, values[name]) for name in node.inputs})
    if isinstance(node, Lookup):
        return {node.outputs[0]: looked_up(node, values[node.inputs[0]])}
    if isinstance(node, Cut):
        return {node.outputs[0]: cut(node, *(values[name] for name in node.inputs))}
    if isinstance(node, Loop):
        names, body = node.inputs, node.body

        def run(arrays: Sequence[Array]) -> list[Array]:
            found = evaluate(body, dict(zip(body.inputs, arrays, strict=True)))
            return [found[name] for name in body.outputs]

        return dict(zip(node.outputs, repeated(node, [values[name] for name in names], run), strict=True))
    part = node.networks[chosen(node, values[node.inputs[0]])]
    assert isinstance(part, Network)
    found = evaluate(part, {n: values[given] for n, given in zip(part.inputs, node.inputs[1:], strict=True)})
    return {name: found[inner] for name, inner in zip(node.outputs, part.outputs, strict=True)}


def _program(network: Network, node: Operator, values: Mapping[str, Array]) -> dict[str, Array]:
    names = [buffer.name for buffer in node.func.buffers]
    given = {param: values[name] for param, name in zip(names, node.inputs, strict=False)}
    found = _reference(node.func)(given)
    results = {}
    for param, name in zip(names[len(node.inputs) :], node.outputs, strict=True):
        dtype = network.tensors[name].dtype
        narrow = dtype in BITS  # which NumPy has only with a package that programs do without
        held = np.asarray(to_storage(dtype, found[param])) if narrow else found[param]
        results[name] = held.astype(boundary_dtype(dtype), copy=False)
    return results


def _as_told(network: Network, name: str, value: Array) -> Array:
    """A tensor in the type that the network says; of those of ml_dtypes in these, where a model brings them."""
    tensor = network.tensors.get(name)
    if tensor is not None and tensor.told:
        return value.view(tensor.told)
    if tensor is None or tensor.dtype not in (*BITS, *HALF_BYTES) or value.dtype != boundary_dtype(tensor.dtype):
        return value
    return value.view(tensor.dtype)


@cached(512)
def _reference(func: PrimFunc) -> Reference:
    return reference_of(func)


def _foreign(network: Network, node: Foreign, values: Mapping[str, Array]) -> dict[str, Array]:
    found = run_foreign(replace(node, by=REFERENCE), {name: values[name] for name in node.inputs})
    for name, value in list(found.items()):
        tensor = network.tensors.get(name)
        if tensor is not None:
            found[name] = as_bits(tensor, value)
        if tensor is not None and tensor.dtype == "object":
            found[name] = value.astype(object)
        fits = tensor is None or value.shape == tensor.shape
        if tensor is not None and node.at_most and value.ndim == len(tensor.shape):
            fits = all(extent <= most for extent, most in zip(value.shape, tensor.shape, strict=True))
        if tensor is not None and not fits:
            raise InternalError(
                f"`{node.name}` ({node.op}) gave `{name}` of shape {list(value.shape)}, not {list(tensor.shape)}"
            )
    return found


def chosen(node: Branches, condition: Array) -> int:
    """The number of the network that a condition picks.  Raises ModelProblem for one that cannot run."""
    number = 0 if np.asarray(condition).reshape(-1)[0] else 1
    part = node.networks[number]
    if isinstance(part, str):
        which = ("then", "else")[number]
        raise ModelProblem(f"the condition of `{node.name}` chooses its branch `{which}`, which cannot be: {part}")
    return number


def repeated(
    node: Loop, arrays: Sequence[Array], run: Callable[[Sequence[Array]], Sequence[Array]]
) -> list[Array]:  # fmt: skip
    """The last states and the parts of all runs of a loop whose network `run` computes, from what is passed to it."""
    most, goes_on = (np.asarray(array).reshape(-1)[0] for array in arrays[:2])
    given = [node.body.tensors[name] for name in node.body.inputs[:2]]
    states, others = list(arrays[2 : 2 + node.states]), list(arrays[2 + node.states :])
    parts: list[list[Array]] = [[] for _ in node.outputs[node.states :]]
    number = 0
    while number < most and goes_on:
        first = [np.full(t.shape, v, t.dtype) for t, v in zip(given, (number, goes_on), strict=True)]
        condition, *found = run([*first, *states, *others])
        states, goes_on = found[: node.states], np.asarray(condition).reshape(-1)[0]
        for some, part in zip(parts, found[node.states :], strict=True):
            some.append(part)
        number += 1
    return [*states, *(np.stack(some) for some in parts)]


def cut(node: Cut, whole: Array, count: Array) -> Array:
    """The elements that count."""
    number = int(np.asarray(count).reshape(-1)[0])
    return np.ascontiguousarray(whole[(*[slice(None)] * node.axis, slice(number))])


def looked_up(node: Lookup, places: Array) -> Array:
    """The texts at so many places of a table."""
    found: Array = np.asarray(_texts(node.table)[np.clip(places, 0, len(node.table) - 1)], object)
    return found


@cached(64)
def _texts(table: tuple[str, ...]) -> Array:
    return np.array(table, object)


def as_bits(tensor: Tensor, array: Array) -> Array:
    """An array as programs have it: of numbers of some types the bits."""
    return array.view(CARRIED[tensor.told]) if tensor.told and str(array.dtype) == tensor.told else array


def _given(tensor: Tensor, arrays: Mapping[str, Array]) -> Array:
    if tensor.name not in arrays:
        raise UsageError(f"the network's input `{tensor.name}`, {tensor.dtype}{list(tensor.shape)}, is missing")
    array = as_bits(tensor, np.asarray(arrays[tensor.name]))
    if (array.shape, str(array.dtype)) != (tensor.shape, tensor.dtype):
        raise UsageError(
            f"the network's input `{tensor.name}` is {tensor.dtype}{list(tensor.shape)}, but got "
            f"{array.dtype}{list(array.shape)}"
        )
    return array
