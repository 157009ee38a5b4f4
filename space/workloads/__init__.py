"""The workload library: named programs with shapes, each with an independent NumPy reference.

An operator is one file with a dataclass (`operator.Operator`) and one entry of
`library.OPERATORS`.
"""

from __future__ import annotations

from .library import Workload, from_func, names, parameters, summary, workload
from .operator import Parameter, describe

__all__ = ["Parameter", "Workload", "describe", "from_func", "names", "parameters", "summary", "workload"]
