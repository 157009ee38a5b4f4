"""Networks of free sizes that earlier processes have read, by everything that decides what they are.

A model is read at a dozen sizes and more until all shapes are known, and each program is proven.  What comes out is
kept as text: programs as scripts, extents as expressions.  Constants are those of the largest sizes, at which the model
is read each time; a network with longer ones is not kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...backends.file_cache import FileCache
from ...backends.launch import from_json, to_json
from ...errors import ProgramError
from ...ir.expr import Extent
from ...ir.extents import as_extent
from ...ir.size_ranges import Range
from ...ir.target import Target
from ...search.workers.kernel_cache import software
from ...search.workers.programs import program
from ..network import Network
from .network import RangedNetwork, RangedOperator, RangedTensor

CACHE = FileCache("networks", 64 << 20)
PACKAGES = ("ir", "space", "cost_model", "backends", "search", "models")
"""What decides how a model is read, and in which order its tensors lie."""


def question(model: str, shapes: Mapping[str, Sequence[Extent]], ranges: Mapping[str, Range], target: Target) -> str:
    """What a network is decided by; `model` is a digest of the file and of all that is given beside shapes."""
    told = {name: [to_json(extent) for extent in extents] for name, extents in shapes.items()}
    sizes = {name: str(numbers) for name, numbers in ranges.items()}
    return json.dumps([software(PACKAGES, ("onnx", "islpy", "numpy")), model, told, sizes, target.to_json()])


def kept(asked: str, ranges: Mapping[str, Range], largest: Callable[[], Network]) -> RangedNetwork | None:
    """The network that was the answer to a question; `largest` reads the model at the largest sizes.

    None where nothing was kept, or what was is damaged or not of this model.
    """
    text = CACHE.read(asked)
    if text is None:
        return None
    try:
        return _from_json(json.loads(text), ranges, largest())
    except (ProgramError, ValueError, KeyError, TypeError, RecursionError):
        return None


def keep(asked: str, network: RangedNetwork) -> None:
    """Keep what a question was answered with."""
    CACHE.write(asked, json.dumps(_to_json(network)))


def model_digest(model: bytes, values: Mapping[str, Any]) -> str:
    """A digest of a file and of the values that inputs have."""
    digest = hashlib.sha256(model)
    for name, value in sorted(values.items()):
        digest.update(repr((name, str(getattr(value, "dtype", "")), getattr(value, "shape", ()))).encode())
        digest.update(value.tobytes() if hasattr(value, "tobytes") else repr(value).encode())
    return digest.hexdigest()


def _to_json(network: RangedNetwork) -> dict[str, Any]:
    scripts = list(dict.fromkeys(node.func.script() for node in network.nodes if node.func is not None))
    number = {script: k for k, script in enumerate(scripts)}
    return {
        "name": network.name, "inputs": network.inputs, "outputs": network.outputs, "programs": scripts,
        "constants": list(network.constants),
        "tensors": [[t.name, [to_json(e) for e in t.extents], t.dtype] for t in network.tensors.values()],
        "nodes": [
            [n.name, None if n.func is None else number[n.func.script()], n.inputs, n.outputs,
             [[to_json(e) for e in shape] for shape in n.shapes]]
            for n in network.nodes
        ],
    }  # fmt: skip


def _from_json(told: Mapping[str, Any], ranges: Mapping[str, Range], largest: Network) -> RangedNetwork | None:
    tensors = {
        n: RangedTensor(n, tuple(as_extent(from_json(e)) for e in extents), dtype)
        for n, extents, dtype in told["tensors"]
    }
    constants = {name: largest.constants[name] for name in told["constants"]}
    if any(array.shape != tensors[name].extents for name, array in constants.items()):
        return None
    funcs = [program(script) for script in told["programs"]]
    nodes = tuple(
        RangedOperator(
            name, None if func is None else funcs[func], tuple(inputs), tuple(outputs),
            tuple(tuple(as_extent(from_json(e)) for e in shape) for shape in shapes),
        )
        for name, func, inputs, outputs, shapes in told["nodes"]
    )  # fmt: skip
    inputs, outputs = tuple(told["inputs"]), tuple(told["outputs"])
    return RangedNetwork(told["name"], dict(ranges), inputs, outputs, tensors, constants, nodes)
