"""Parts of models of PyTorch, and masks, for tests of several modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stridesmith.backends.devices import discover
from stridesmith.pytorch.capture import capture
from stridesmith.pytorch.dynamo import divide
from stridesmith.pytorch.free_sizes import sizes_of
from stridesmith.pytorch.parts import Divided
from stridesmith.pytorch.recurrent import ALLOWED

TARGET = discover("cpu", threads=1)


def parts_of(model: Callable[..., Any], *inputs: Any, dynamic: bool | None = None) -> Divided:
    """The parts of the one graph that a call has."""
    found: list[Divided] = []

    def collect(module: Any, example_inputs: Any) -> Any:
        captured = capture(module, example_inputs)
        sizes = sizes_of(captured.aten)
        found.append(divide(captured.aten, captured.values, TARGET, sizes=sizes))
        return module

    torch._dynamo.reset()
    with torch.no_grad(), torch._dynamo.config.patch(ALLOWED):
        torch.compile(model, backend=collect, dynamic=dynamic)(*inputs)
    assert len(found) == 1
    return found[0]


def rows_masked(extent: int, dtype: Any) -> Any:
    """Rows masked as people send them: all by -inf, all by the lowest number, by both, some by one of them."""
    mask, lowest = torch.zeros(6, extent, dtype=dtype), torch.finfo(dtype).min
    mask[0], mask[1] = -torch.inf, lowest
    mask[2, :2], mask[2, 2:] = lowest, -torch.inf
    mask[3, 1:], mask[4, 1:] = lowest, -torch.inf
    return mask
