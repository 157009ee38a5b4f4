"""Operators that have no program here, run by the reference implementation of ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..network import Foreign


class ForeignCall:
    """One operator; arrays by the names of the network's tensors."""

    def __init__(self, node: Foreign) -> None:
        import onnx
        from onnx.reference import ReferenceEvaluator

        self.node = node
        self._evaluator = ReferenceEvaluator(onnx.load_from_string(node.model))

    def __call__(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs by name."""
        found = self._evaluator.run(list(self.node.outputs), dict(arrays))
        return {name: np.asarray(value) for name, value in zip(self.node.outputs, found, strict=True)}
