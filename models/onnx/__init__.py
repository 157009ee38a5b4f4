"""ONNX models in, networks of our programs out.

`reading` takes a file apart without trusting it, `resolve` fixes every shape and folds what is
constant, `operators.simplify` folds normalisations and scales into the products before them,
and `importing` gives each node that is left to the builder of its operator (`operators`).  What
no builder covers stays foreign and runs through the reference implementation of ONNX.

The package `onnx` is an extra (``pip install 'stridesmith[onnx]'``), loaded when a model is read.
"""

from __future__ import annotations

from .importing import Fate, Imported, import_model, read, reader

__all__ = ["Fate", "Imported", "import_model", "read", "reader"]
