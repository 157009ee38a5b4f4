"""Whether a compiled kernel computes what its program says.

Each sample runs with poison in everything that the kernel has no business to
depend on: output memory, workspaces, `undef` and untouchable padding, and guard
zones around every buffer.  The first sample runs twice, with two kinds of
poison, NaN and large finite values; its logical results must agree bitwise.
Inputs and untouchable padding must come out as they went in, constant padding
must hold its value, and guard zones must be intact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import WrongResult
from ..ir.interpreter.memory import DEFINED, FORBIDDEN
from ..ir.numbers import boundary_dtype, from_storage, to_storage
from .artifact import Argument
from .data import Array, pack, pad_values, padding, unpack
from .samples import Sample, Steps

GUARD_BYTES = 256  # a choice: four cache lines, more than the widest vector
POISONS = (0xFF, 0x7B)
"""Repeated bytes: 0xFF.. is a NaN in every float type and -1, 0x7B.. is large and finite in every float type."""


class Runnable(Protocol):
    """The part of `executable.Bound` that verification needs."""

    @property
    def names(self) -> tuple[str, ...]: ...
    def write(self, index: int, data: Array) -> None: ...
    def read(self, index: int) -> Array: ...
    def poison_guards(self, pattern: bytes) -> None: ...
    def guards_intact(self) -> bool: ...
    def time(self, calls: int) -> float: ...


@dataclass(frozen=True)
class Verdict:
    """A right result: its largest absolute error, and the seconds of the fastest call.

    `complete` is false where the first call of the first sample was enough.
    """

    max_abs_error: float
    seconds: float
    complete: bool = True


def verify(
    bound: Runnable,
    arguments: Sequence[Argument],
    samples: Sequence[Sample],
    too_slow: Callable[[float], float | None] = lambda _: None,
) -> Verdict:
    """Run every sample; the error is that of the last one.

    `arguments` are the parameters of `bound` in order.  `too_slow` is asked once, with the seconds of the
    first call, whether such a kernel is of no interest however right it is; its answer is then what a call
    takes.  Raises WrongResult.
    """
    first, fastest = run_poisoned(bound, arguments, samples[0], POISONS[0])
    if (slow := too_slow(fastest)) is not None:
        return Verdict(compare(samples[0], first), slow, complete=False)
    second, seconds = run_poisoned(bound, arguments, samples[0], POISONS[1])
    for name, value in first.items():
        _compare_poisons(name, value, second[name])
    error, fastest = compare(samples[0], first), min(fastest, seconds)
    for sample in samples[1:]:
        outputs, seconds = run_poisoned(bound, arguments, sample, POISONS[1])
        error = compare(sample, outputs)
        fastest = min(fastest, seconds)
    return Verdict(error, fastest)


def run_poisoned(
    bound: Runnable, arguments: Sequence[Argument], sample: Sample, poison: int
) -> tuple[dict[str, Array], float]:
    """One call with `poison` (a byte) wherever nothing may be expected; the logical outputs by name, and seconds."""
    physical = [_initial(argument, sample, poison) for argument in arguments]
    for index, data in enumerate(physical):
        bound.write(index, data)
    for index in range(len(arguments), len(bound.names)):
        bound.write(index, poisoned_like(bound.read(index), poison))
    bound.poison_guards(bytes([poison]))
    seconds = bound.time(1)
    if not bound.guards_intact():
        raise WrongResult("the kernel wrote outside of its buffers: a guard zone changed")
    outputs = {}
    for index, argument in enumerate(arguments):
        result = bound.read(index).reshape(argument.physical_shape)
        if argument.is_output:
            _check_padding(argument, physical[index], result)
            outputs[argument.name] = _values(argument, unpack(argument, result))
        elif not _same_bytes(physical[index], result):
            raise WrongResult(f"the kernel changed its input `{argument.name}`")
    return outputs, seconds


def _values(argument: Argument, held: Array) -> Array:
    """What is held in memory as numbers of NumPy: of floats that it does not have the float32 of equal value."""
    return np.asarray(from_storage(argument.dtype, held))


def compare(sample: Sample, outputs: dict[str, Array]) -> float:
    """The largest absolute error over all outputs.  Raises WrongResult where one is beyond its bound."""
    worst = 0.0
    for name, value in outputs.items():
        expected = sample.expected[name]
        bound = None if sample.bounds is None else sample.bounds[name]
        worst = max(worst, _compare_output(name, sample, value, expected, bound))
    return worst


def poisoned_like(array: Array, poison: int) -> Array:
    """An array of the same shape and type, every byte `poison`."""
    filled = np.full(array.nbytes, poison, np.uint8)
    return filled.view(array.dtype).reshape(array.shape)


def _initial(argument: Argument, sample: Sample, poison: int) -> Array:
    fill = poisoned_like(np.empty(argument.physical_shape, boundary_dtype(argument.dtype)), poison)
    if argument.is_output:
        return fill
    given = sample.inputs[argument.name]
    return pack(argument, np.asarray(to_storage(argument.dtype, given)), fill)


def _check_padding(argument: Argument, before: Array, after: Array) -> None:
    """Untouchable padding of an output keeps its poison, and what is promised of the rest holds."""
    if not argument.pads or argument.pad_value == "undef":
        return
    first, last = padding(argument, before), padding(argument, after)
    wanted, states = pad_values(argument, after)
    kept, held = states == FORBIDDEN, states == DEFINED
    if not _same_bytes(first[kept], last[kept]):
        raise WrongResult(f"the kernel wrote padding of `{argument.name}`, whose pad_value is None")
    if not np.array_equal(last[held], wanted[held]):
        raise WrongResult(f"the padding of `{argument.name}` does not hold {argument.pad_value}")


def _same_bytes(a: Array, b: Array) -> bool:
    return np.array_equal(np.ascontiguousarray(a).view(np.uint8), np.ascontiguousarray(b).view(np.uint8))


def _compare_poisons(name: str, a: Array, b: Array) -> None:
    if _same_bytes(a, b):
        return
    size = a.dtype.itemsize
    same = (np.ascontiguousarray(a).view(np.uint8) == np.ascontiguousarray(b).view(np.uint8)).reshape(-1, size)
    at = np.unravel_index(int(np.argmin(same.all(axis=1))), a.shape)
    raise WrongResult(
        f"`{name}`{_point(at)} depends on memory that nothing has written: {a[at]} with NaN there, "
        f"{b[at]} with large values there"
    )


def _compare_output(name: str, sample: Sample, value: Array, expected: Array, bound: Array | None) -> float:
    """The largest absolute error of one output; infinities must agree."""
    good = np.asarray(value == expected)
    if good.all():
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.asarray(np.abs(np.subtract(value, expected, dtype=np.float64)))
    error[good] = 0.0
    if bound is not None:
        good = np.asarray(error <= bound)
        if value.dtype.kind == "f":  # of a result that its type may not hold, the infinity that it becomes is right
            largest = np.abs(expected) + bound >= np.finfo(value.dtype).max
            good |= np.isinf(value) & (np.sign(value) == np.sign(expected)) & largest
        if name in sample.steps and not good.all():
            good |= _beyond_a_step(sample.steps[name], value, error, bound, good)
    if not good.all():
        at = np.unravel_index(int(np.argmin(good)), good.shape)
        allowed = "" if bound is None else f" within {bound[at]:.3g}"
        raise WrongResult(
            f"`{name}`{_point(at)} is {value[at]}, but should be {expected[at]}{allowed} "
            f"({int((~good).sum())} of {good.size} elements are wrong, {sample.name} sample)"
        )
    return float(np.max(error, initial=0.0, where=np.isfinite(error)))


def _beyond_a_step(steps: Steps, value: Array, error: Array, bound: Array, good: Array) -> Array:
    """The elements whose result is right but for being rounded to the other side of a step, such as a floor's."""
    with np.errstate(invalid="ignore", over="ignore"):
        as_rounded = np.abs(np.subtract(value, steps.as_rounded, dtype=np.float64)) <= bound
    few: Array = ~good & ~as_rounded & (error <= steps.size + bound)
    return as_rounded | few if int(few.sum()) <= steps.most else as_rounded


def _point(at: tuple[np.intp, ...]) -> str:
    return f"[{', '.join(str(int(i)) for i in at)}]"
