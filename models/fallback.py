"""What runs an operator that has no program here: the reference implementation of ONNX, or ONNX Runtime.

The reference is the default and says what a network means.  ONNX Runtime takes its place where it is asked for and
installed, but for operators that it does not know: those stay with the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

from ..errors import ModelProblem, ToolMissing, UsageError, did_you_mean
from ..ir.caches import cached
from .network import REFERENCE, Array, Foreign, Network

RUNTIME = "onnxruntime"
NAMES = {REFERENCE: "the reference implementation of ONNX", RUNTIME: "ONNX Runtime"}
"""What may run such operators, and how messages call it."""

Session: TypeAlias = "Callable[[Mapping[str, Array]], list[Any]]"


def check_fallback(name: str) -> None:
    """Raise UsageError for what is no fallback, ToolMissing for one that is not installed."""
    if name not in NAMES:
        raise UsageError(f"there is no fallback {name!r}{did_you_mean(name, NAMES)}; there are {', '.join(NAMES)}")
    if name == RUNTIME and find_spec(RUNTIME) is None:
        raise ToolMissing(
            "ONNX Runtime is to run what has no program here, but the package `onnxruntime` is not installed: "
            "pip install onnxruntime"
        )


def with_fallback(network: Network, name: str, threads: int = 1) -> Network:
    """The network whose foreign operators run by the fallback `name` on so many threads, as far as it knows them."""
    check_fallback(name)
    if name == REFERENCE:
        return network

    def changed(part: Network) -> Network:
        nodes = tuple(
            replace(node, by=RUNTIME, threads=threads)
            if isinstance(node, Foreign) and _runtime(node.model, threads) is not None
            else node
            for node in part.nodes
        )
        return part.with_nodes(nodes).with_branches(changed)

    return changed(network)


def run_foreign(node: Foreign, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a foreign operator by what the node says runs it.  Raises ModelProblem where that fails."""
    try:
        session = _reference(node.model) if node.by == REFERENCE else _runtime(node.model, node.threads)
        assert session is not None  # which `with_fallback` has seen to
        results = session(arrays)
    except Exception as error:  # the reference raises what NumPy and its own checks raise, ONNX Runtime its own
        raise ModelProblem(
            f"{NAMES[node.by]} cannot run `{node.name}` ({node.op}), for which there is no program here: "
            f"{type(error).__name__}: {error}"
        ) from None
    return {name: np.asarray(value) for name, value in zip(node.outputs, results, strict=True)}


@cached(512)
def _reference(model: bytes) -> Session:
    import onnx
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(onnx.load_from_string(model))
    return lambda arrays: list(evaluator.run(None, dict(arrays)))


@cached(512)
def _runtime(model: bytes, threads: int) -> Session | None:
    """A session of ONNX Runtime; None for an operator that it does not know."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # our own threads have the cores
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # classes of its own for each kind of failure
        return None
    return lambda arrays: list(session.run(None, dict(arrays)))
