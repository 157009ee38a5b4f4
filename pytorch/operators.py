"""Kernels and models as operators of PyTorch: called without copies, known to `torch.export`, for inference alone.

An operator is defined in the library ``stridesmith`` with an implementation for the CPU and one for fake tensors, which
tells shapes to whoever traces.  It takes and gives contiguous tensors, each result in memory of its own.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..errors import UsageError
from ..ir.expr import Expr
from ..ir.layout.index_text import evaluate

if TYPE_CHECKING:
    from ..models.ranges.model import RangedModel
    from ..models.run.model import Model
    from ..search.calling.kernel import Kernel

Operator: TypeAlias = torch._ops.OpOverload
Kind: TypeAlias = "tuple[str, tuple[int, ...], torch.dtype]"
"""Name, shape and type of what is taken or given."""

_LIBRARY = torch.library.Library("stridesmith", "FRAGMENT")
"""It lives as long as the process: an operator that is defined stays."""

_NUMBERS = itertools.count()

SMALL_BYTES = 1 << 15
"""Of results that NumPy makes."""


def operator(kernel: Kernel | Model, name: str) -> Operator:
    """The operator ``torch.ops.stridesmith.<name>`` that runs a kernel or a model.

    It takes what the kernel takes, as tensors of exactly these shapes and types, and returns new tensors.  Modules that
    call it can be compiled by any backend, and exported; a program that was exported needs it under the same name.
    """
    if not name.isidentifier():
        raise UsageError(f"`{name}` is no name for an operator: letters, digits and underscores are, as in `my_conv`")
    if hasattr(torch.ops.stridesmith, name):
        raise UsageError(f"there is an operator `stridesmith::{name}` already; choose another name")
    return _defined(name, Caller(kernel))


class Caller:
    """A kernel or model that takes tensors and gives new ones."""

    def __init__(self, kernel: Kernel | Model) -> None:
        self.takes, self.gives = (_kinds(kernel, side) for side in ("inputs", "outputs"))
        self._run = kernel
        halves = any(dtype == torch.bfloat16 for _, _, dtype in (*self.takes, *self.gives))
        self._array = _bits if halves else Tensor.numpy
        self.run = self._quick(kernel) or self.__call__

    def __call__(self, *tensors: Tensor) -> Any:
        """Run on tensors; a result alone, or a tuple of them."""
        try:
            return self._called(tensors)
        except (RuntimeError, ValueError):
            plain = tuple(_plain(tensor) for tensor in tensors)
            if all(a is b for a, b in zip(plain, tensors, strict=True)):
                raise
        return self._called(plain)

    def _called(self, tensors: Sequence[Tensor]) -> Any:
        array = self._array
        results = tuple(torch.empty(shape, dtype=dtype, device="cpu") for _, shape, dtype in self.gives)
        self._run(*[array(tensor) for tensor in tensors], out=[array(result) for result in results])
        return results[0] if len(results) == 1 else results

    def _quick(self, kernel: Kernel | Model) -> Callable[..., Any] | None:
        """A faster call for kernels with a native entry, which a kernel of a microsecond needs; else None."""
        direct = kernel.direct
        if direct is None or self._array is _bits:
            return None
        array, careful = Tensor.numpy, self
        kinds = [torch.empty((), dtype=dtype, device="cpu").expand(shape) for _, shape, dtype in self.gives]
        # A small result is made by NumPy, which takes half a microsecond less; a large one lies on cache lines.
        is_small = sum(kind.numel() * kind.element_size() for kind in kinds) <= SMALL_BYTES
        new: list[Callable[[], Any]] = [
            partial(np.empty, tuple(kind.shape), array(kind).dtype) if is_small else partial(_on_lines, kind)
            for kind in kinds
        ]
        (first, *others) = new
        tensor = torch.from_numpy

        def run(*tensors: Tensor) -> Any:
            try:
                result = first()
                if direct(*map(array, tensors), result):
                    return tensor(result)
            except RuntimeError:  # a tensor that requires a gradient has no array
                pass
            return careful(*tensors)

        def run_all(*tensors: Tensor) -> Any:
            try:
                results = [make() for make in new]
                if direct(*map(array, tensors), *results):
                    return tuple(map(tensor, results))
            except RuntimeError:
                pass
            return careful(*tensors)

        return run_all if others else run

    def fake(self, *tensors: Tensor) -> Any:
        """Results without contents.  Raises what a call would raise for other shapes and types."""
        for (name, shape, dtype), tensor in zip(self.takes, tensors, strict=True):
            if tuple(tensor.shape) != shape or tensor.dtype != dtype:
                raise ValueError(
                    f"`{name}` must be {dtype} of shape {list(shape)}, but got {tensor.dtype} of {list(tensor.shape)}; "
                    "a kernel is compiled for one shape"
                )
        results = [torch.empty(shape, dtype=dtype, device="cpu") for _, shape, dtype in self.gives]
        return results[0] if len(results) == 1 else tuple(results)


class SizedCaller:
    """A network of free sizes that takes these, in the order of its ranges, then tensors, and gives new tensors."""

    def __init__(self, model: RangedModel) -> None:
        self.model = model
        self.takes, self.gives = model.inputs, model.outputs

    def run(self, *given: Any) -> Any:
        """Run on sizes and tensors; a result alone, or a tuple of them."""
        count = len(self.model.ranges)
        sizes, tensors = given[:count], given[count:]
        try:
            results = self.model.at(sizes, [tensor.numpy() for tensor in tensors])
        except (RuntimeError, ValueError):
            plain = tuple(_plain(tensor) for tensor in tensors)
            if all(a is b for a, b in zip(plain, tensors, strict=True)):
                raise
            results = self.model.at(sizes, [tensor.numpy() for tensor in plain])
        found = tuple(map(torch.from_numpy, results))
        return found[0] if len(found) == 1 else found

    def fake(self, *given: Any) -> Any:
        """Results without contents, of shapes that follow from sizes, which may be symbols."""
        sizes = dict(zip(self.model.ranges, given, strict=False))
        results = tuple(
            torch.empty(
                [evaluate(e, sizes) if isinstance(e, Expr) else e for e in t.extents],
                dtype=dtype_of(t.dtype),
                device="cpu",
            )
            for t in self.gives
        )
        return results[0] if len(results) == 1 else results


def for_part(caller: Caller | SizedCaller) -> Operator:
    """An operator of a graph that was compiled, which does not keep its kernels alive: the graph does."""
    held, number = weakref.ref(caller), next(_NUMBERS)

    def alive() -> Caller | SizedCaller:
        found = held()
        if found is None:
            raise UsageError(f"the graph that `stridesmith::part{number}` was a part of is gone")
        return found

    sizes = caller.model.ranges if isinstance(caller, SizedCaller) else ()
    names = [*(f"SymInt s{at}" for at in range(len(sizes))), *(f"Tensor x{at}" for at in range(len(caller.takes)))]
    results = ["Tensor"] * len(caller.gives)
    schema = f"({', '.join(names)}) -> {'Tensor' if len(results) == 1 else '(' + ', '.join(results) + ')'}"
    return define(f"part{number}", schema, lambda *given: alive().run(*given), lambda *given: alive().fake(*given))


def _defined(name: str, caller: Caller) -> Operator:
    return _define(name, [caller.takes, caller.gives], caller.run, caller.fake)


def _define(name: str, kinds: Sequence[Sequence[Kind]], run: Callable[..., Any], fake: Callable[..., Any]) -> Operator:
    takes, gives = kinds
    result = "Tensor" if len(gives) == 1 else f"({', '.join(['Tensor'] * len(gives))})"
    names = ", ".join(f"Tensor {name if name.isidentifier() else f'x{at}'}" for at, (name, _, _) in enumerate(takes))
    return define(name, f"({names}) -> {result}", run, fake)


def define(name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Operator:
    """The operator ``torch.ops.stridesmith.<name>`` of a schema: `run` on the CPU, `fake` on fake tensors."""
    _LIBRARY.define(f"{name}{schema}")
    _LIBRARY.impl(name, run, "CPU")
    _LIBRARY._register_fake(name, fake)
    found: Operator = getattr(torch.ops.stridesmith, name).default
    return found


def _kinds(kernel: Kernel | Model, side: str) -> tuple[Kind, ...]:
    """What a kernel takes or gives."""
    from ..models.run.model import Model

    if isinstance(kernel, Model):
        return tuple((t.name, t.shape, dtype_of(t.dtype)) for t in getattr(kernel, side))
    found = getattr(kernel, side)
    for argument in found:
        if argument.is_scalar:
            raise UsageError(f"`{argument.name}` is a scalar; operators of PyTorch are made of kernels of arrays alone")
    return tuple((a.name, a.physical_shape, dtype_of(a.dtype)) for a in found)


def dtype_of(name: str) -> torch.dtype:
    """PyTorch's type of this name."""
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found


def _on_lines(kind: Tensor) -> Any:
    """An array in memory of PyTorch, which begins on a cache line."""
    return torch.empty_like(kind).numpy()


def _plain(tensor: Tensor) -> Tensor:
    """Contiguous, with its numbers in memory, and without the mark that a gradient is wanted.

    Raises UsageError where one would be computed.
    """
    if tensor.requires_grad:
        if torch.is_grad_enabled():
            raise UsageError(
                "kernels of stridesmith have no gradients, and one is wanted for a tensor that requires it: call them "
                "under torch.no_grad() or torch.inference_mode()"
            )
        tensor = tensor.detach()
    return tensor.resolve_neg().contiguous()


def _bits(tensor: Tensor) -> Any:
    """NumPy has no bfloat16; kernels take its bits."""
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
