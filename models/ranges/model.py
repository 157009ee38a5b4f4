"""The callable that a network of free sizes becomes: code for each operator, and a plan for the sizes of each call.

A plan says where everything lies and what the kernels are given; it is made of formulas when sizes come for the first
time, and kept.  Nothing is compiled then.  All plans share one arena, which grows with the largest sizes that came.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.address import address
from ...backends.cores import settler
from ...backends.cpu import CpuExecutable
from ...backends.data import Array, pack
from ...backends.executable import numpy_dtype
from ...backends.llvm.chain import chain_code
from ...backends.memory import zeros
from ...forks import renewed_in_children
from ...ir.deadline import look
from ...ir.expr import Extent
from ...ir.ranges import values_of
from ...ir.text import extent_text, extents_text
from ...numerals import as_whole, at_least_one
from ...search.calling.arrays import checked, given_back, in_a_row, in_order, library_of, refuse_overlap
from ...search.calling.timed import checked_seconds
from ..run.memory import Span, best_fit
from ..run.timing import random_arrays, seconds_of
from .extents import extent_at, sizes_in, solved
from .network import RangedNetwork, RangedOperator, RangedTensor, valued

if TYPE_CHECKING:
    from ...ir.target import Target
    from ..run.kernels import Kernel

PLANS = 256
"""Sizes whose plans are kept, a choice."""
ALIGNMENT = 64

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class _Plan:
    """What a call of some sizes needs: the `table` of `count` calls, and memory that is `kept` for them.

    `slots` are words of argument records that take addresses: those of inputs by number, and then of outputs.
    """

    table: Any
    count: int
    slots: Sequence[tuple[int, Any, int]]
    outputs: Sequence[tuple[int, ...]]
    kept: Sequence[Any]


class RangedModel:
    """A compiled network of free sizes: ``y = model(x)``, ``model({"x": x})``, or ``model(x, out=y)``.

    Inputs come in the order of `inputs`, or by name, and are C-contiguous arrays whose extents are in the `ranges` of
    the model and agree; outputs have the extents that follow.  Nothing is compiled by a call.  Calls from several
    threads wait for each other.
    """

    def __init__(self, network: RangedNetwork, kernels: Mapping[str, Kernel], target: Target) -> None:
        self.network, self.kernels, self.target, self.ranges = network, dict(kernels), target, dict(network.ranges)
        self.inputs = tuple(network.tensors[name] for name in network.inputs)
        self.outputs = tuple(network.tensors[name] for name in network.outputs)
        self._code: dict[str, CpuExecutable] = {}
        self._executables = {name: self._loaded(kernel) for name, kernel in self.kernels.items()}
        self._constants = self._packed()
        self._owner = self._owners()
        self._arena = zeros(ALIGNMENT)
        self._plans: OrderedDict[tuple[tuple[int, ...] | None, tuple[tuple[int, ...], ...]], _Plan] = OrderedDict()
        self._run = chain_code().function("run", ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._lock = threading.Lock()
        renewed_in_children(self)

    def __repr__(self) -> str:
        """What it takes and gives, with its ranges, of how many operators it is, and for which device."""
        given, results = (
            ", ".join(f"{t.name}: {t.dtype}[{extents_text(t.extents)}]" for t in tensors)
            for tensors in (self.inputs, self.outputs)
        )
        told = ", ".join(f"{name} = {numbers}" for name, numbers in self.ranges.items())
        return (
            f"<RangedModel {self.network.name}({given}) -> {results} with {told}: {len(self.network.nodes)} operators "
            f"on {self.target.name}>"
        )

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Run on `inputs`, all by position or one dict by name; into `out`, given in the same way, if it is there.

        Raises TypeError and ValueError, in one sentence, for arrays that are not as they must be.
        """
        names = self.network.outputs
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            arrays = in_order(inputs[0], self.network.inputs, "input")
            given = None if out is None else in_order(out, names, "output")
            return dict(zip(names, self._in_kind(arrays, given), strict=True))
        results = self._in_kind(inputs, None if out is None else in_a_row(out))
        return results[0] if len(results) == 1 else results

    def _in_kind(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> tuple[Any, ...]:
        """The outputs, without `out` as arrays of the library that the first input is of which is not NumPy's."""
        results = self._called(inputs, out)
        if out is not None or (library := library_of(inputs)) is None:
            return results
        return tuple(given_back(library, t.dtype, result) for t, result in zip(self.outputs, results, strict=True))

    def at(self, sizes: tuple[int, ...], inputs: Sequence[Any], out: Sequence[Any] | None = None) -> tuple[Array, ...]:
        """Run on `inputs` with the parameters, in the order of `ranges`, at these values, for callers that know them.

        Extents of inputs may then be expressions that do not tell the parameters.  Raises as calls do.
        """
        return self._called(inputs, out, sizes)

    def _called(
        self, inputs: Sequence[Any], out: Sequence[Any] | None, sizes: tuple[int, ...] | None = None
    ) -> tuple[Array, ...]:
        if len(inputs) != len(self.inputs):
            names = ", ".join(self.network.inputs)
            raise TypeError(f"the model takes {len(self.inputs)} inputs ({names}), but got {len(inputs)}")
        arrays = [_checked(tensor, array) for tensor, array in zip(self.inputs, inputs, strict=True)]
        key = tuple(array.shape for array in arrays)
        with self._lock:
            plan = self._plans.get((sizes, key)) or self._planned(key, sizes)
            results = self._results(plan, arrays, out)
            self._place(plan, (*arrays, *results))
            self._run(ctypes.addressof(plan.table), plan.count, self.target.threads)
        return tuple(results) if out is None else tuple(out)

    def _place(self, plan: _Plan, arrays: Sequence[Array]) -> None:
        """Write into the records of a plan where inputs and outputs are."""
        starts = [address(array) for array in arrays]
        for number, record, index in plan.slots:
            record[index] = starts[number]

    def _results(self, plan: _Plan, inputs: Sequence[Array], out: Sequence[Any] | None) -> list[Array]:
        """Memory for the outputs."""
        if out is None:
            return [np.empty(s, numpy_dtype(t.dtype)) for s, t in zip(plan.outputs, self.outputs, strict=True)]
        if len(out) != len(self.outputs):
            raise TypeError(f"the model has {len(self.outputs)} outputs, but `out` holds {len(out)} arrays")
        found: list[Array] = []
        for shape, tensor, array in zip(plan.outputs, self.outputs, out, strict=True):
            made = _checked(tensor, array)
            if made.shape != shape:
                raise ValueError(f"`{tensor.name}` must have shape {shape}, but got {made.shape}")
            if not made.flags.writeable:
                raise ValueError(f"`out` for `{tensor.name}` is read-only")
            found.append(made)
        names = (*self.network.outputs, *self.network.inputs)
        named = list(zip(names, (*found, *inputs), strict=True))
        refuse_overlap(named[: len(found)], named[len(found) :])
        return found

    # ---------------------------------------------------------------- what is the same for all sizes

    def _loaded(self, kernel: Kernel) -> CpuExecutable:
        """Equal code is loaded once."""
        code = kernel.compiled.artifact["code"]
        if code not in self._code:
            self._code[code] = CpuExecutable(kernel.compiled.artifact)
        return self._code[code]

    def _packed(self) -> dict[tuple[str, int], Array]:
        """Constants as kernels want them, by operator and number of the parameter; equal ones are one."""
        found: dict[tuple[str, int], Array] = {}
        known: dict[tuple[str, Any], Array] = {}
        for node in self.network.nodes:
            if node.func is None:
                continue
            kernel = self.kernels[node.name]
            layouts = {argument.name: argument for argument in kernel.compiled.layouts}
            for number, (name, buffer) in enumerate(zip(node.inputs, kernel.task.work.func.buffers, strict=False)):
                if name not in self.network.constants:
                    continue
                argument = layouts[buffer.name]
                key = name, None if argument.layout.is_in_place else argument.layout
                if key not in known:
                    array = self.network.constants[name]
                    if node.shapes:
                        array = array.reshape(valued(node.shapes[number], {}))
                    held = numpy_dtype(argument.dtype)
                    packed = pack(argument, array if array.dtype == held else array.view(held))
                    memory = zeros(max(packed.nbytes, 1))
                    memory[: packed.nbytes] = packed.reshape(-1).view(np.uint8)
                    known[key] = memory
                found[node.name, number] = known[key]
        return found

    def _owners(self) -> dict[str, str]:
        """The tensor in whose memory each lies: another one, where an operator only gives it another shape."""
        owner = {name: name for name in self.network.tensors}
        for node in self.network.nodes:
            if node.func is None:
                owner[node.outputs[0]] = owner[node.inputs[0]]
        return owner

    # ---------------------------------------------------------------- what sizes decide

    def sizes_of(self, shapes: Shapes) -> dict[str, int]:
        """The values of the parameters in a call, by the shapes of the inputs.  Raises ValueError for wrong ones."""
        axes: list[tuple[Extent, int, str]] = []
        for tensor in self.inputs:
            shape = shapes[tensor.name]
            if len(shape) != len(tensor.extents):
                raise ValueError(
                    f"`{tensor.name}` must have the extents ({extents_text(tensor.extents)}), but got {shape}"
                )
            axes += [
                (extent, size, f"axis {axis} of `{tensor.name}`")
                for axis, (extent, size) in enumerate(zip(tensor.extents, shape, strict=True))
            ]
        found, by = dict[str, int](), dict[str, str]()
        for _ in self.ranges:  # of which each round finds one at least, or there is none to be found
            for extent, size, where in axes:
                if (given := solved(extent, size, found)) is not None:
                    name, number = given
                    if number not in self.ranges[name]:
                        taken = f"{name} = {self.ranges[name]}"
                        raise ValueError(f"{where} gives {name} = {number}, but the model takes {taken}")
                    found[name], by[name] = number, where
        for extent, size, where in axes:
            names = sizes_in(extent)
            if missing := [name for name in names if name not in found]:
                told = f"{extent_text(extent)} for some {' and '.join(missing)}"
                raise ValueError(f"{where} must be {told}, but it is {size}")
            if (wanted := extent_at(extent, found)) != size:
                why = " and ".join(dict.fromkeys(by[name] for name in names))
                told = f"{extent_text(extent)} = {wanted}, as {why} says" if names else f"{wanted}"
                raise ValueError(f"{where} must be {told}, but it is {size}")
        return found

    def _check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise ValueError unless every parameter has a value, which is in its range."""
        if not isinstance(sizes, Mapping) or sizes.keys() != self.ranges.keys():
            taken = ", ".join(f"{name!r}: {numbers.low}" for name, numbers in self.ranges.items())
            raise ValueError(f"the sizes of the model are given by name, as in {{{taken}}}, but got {sizes!r}")
        for name, number in sizes.items():
            if as_whole(number) is None or number not in self.ranges[name]:
                raise ValueError(f"{name} = {number!r}, but the model takes {name} = {self.ranges[name]}")

    def _told(self, shapes: Shapes, numbers: Sequence[int]) -> dict[str, int]:
        """Values of the parameters that a caller knows.  Raises ValueError where shapes are not those that follow."""
        sizes = dict(zip(self.ranges, numbers, strict=True))
        self._check_sizes(sizes)
        for name, shape in shapes.items():
            if shape != (wanted := self.network.shape(name, sizes)):
                raise ValueError(f"`{name}` must have shape {wanted}, but got {shape}")
        return sizes

    def _planned(self, key: tuple[tuple[int, ...], ...], numbers: tuple[int, ...] | None) -> _Plan:
        given = dict(zip(self.network.inputs, key, strict=True))
        sizes = self.sizes_of(given) if numbers is None else self._told(given, numbers)
        shapes = {name: self.network.shape(name, sizes) for name in self.network.tensors}
        offsets, nbytes = self._placed(shapes)
        if nbytes > self._arena.size:
            self._plans.clear()
            self._arena = zeros(nbytes)
        begin = int(self._arena.ctypes.data)
        outside = {name: n for n, name in enumerate((*self.network.inputs, *self.network.outputs))}
        entries, kept, slots = list[int](), list[Any](), list[tuple[int, Any, int]]()
        for node in self.network.nodes:
            if node.func is None:
                continue
            own = [valued(shape, sizes) for shape in node.shapes] or [shapes[n] for n in (*node.inputs, *node.outputs)]
            record, executable = self._record(node, own, begin, offsets)
            for index, name in enumerate((*node.inputs, *node.outputs)):
                owner = self._owner[name]
                if owner in outside:
                    slots.append((outside[owner], record, index))
            kept += [record, executable]  # which has the values of sizes, that kernels read
            entries += [executable.entry_address, ctypes.addressof(record)]
        table = (ctypes.c_void_p * max(len(entries), 1))(*entries)
        outputs = [shapes[name] for name in self.network.outputs]
        plan = _Plan(table, len(entries) // 2, slots, outputs, kept)
        self._plans[numbers, key] = plan
        if len(self._plans) > PLANS:
            self._plans.popitem(last=False)
        return plan

    def _record(
        self, node: RangedOperator, shapes: Sequence[tuple[int, ...]], begin: int, offsets: Mapping[str, int]
    ) -> tuple[Any, Any]:
        """What a kernel is given for arrays of these shapes: addresses, values of sizes, addresses of workspaces."""
        assert node.func is not None
        names = (*node.inputs, *node.outputs)
        kernel, executable = self.kernels[node.name], self._executables[node.name]
        open_ones = {b.name: shape for b, shape in zip(node.func.buffers, shapes, strict=True) if not b.is_fixed}
        values = values_of(node.func, open_ones, {})
        places = []
        for number, name in enumerate(names):
            packed = self._constants.get((node.name, number))
            owner = self._owner[name]
            places.append(int(packed.ctypes.data) if packed is not None else begin + offsets.get(owner, 0))
        places += [begin + offsets[f"{node.name}\0{n}"] for n in range(len(executable.workspaces))]
        sizes = [values[v] for v in kernel.task.work.func.sizes] if node.func.sizes else []
        if sizes:
            executable = executable.at(shapes, [values[v] for v in node.func.sizes])
        return executable.pack(places), executable

    def _placed(self, shapes: Shapes) -> tuple[dict[str, int], int]:
        """Offsets in the arena, and how many bytes it needs."""
        used: dict[str, list[int]] = {}
        spans: list[Span] = []
        lent = {*self.network.inputs, *self.network.outputs}
        for step, node in enumerate(self.network.nodes):
            for name in (*node.inputs, *node.outputs):
                used.setdefault(self._owner[name], []).append(step)
            if node.func is not None:
                for number, memory in enumerate(self._executables[node.name].workspaces):
                    spans.append(Span(f"{node.name}\0{number}", memory.nbytes, step, step))
        for name, steps in used.items():
            if name not in lent and name not in self.network.constants:
                nbytes = prod(shapes[name]) * numpy_dtype(self.network.tensors[name].dtype).itemsize
                spans.append(Span(name, nbytes, min(steps), max(steps)))
        arena = best_fit(spans, ALIGNMENT)
        return dict(arena.offsets), max(arena.nbytes, 1)

    # ---------------------------------------------------------------- times

    def random_inputs(self, sizes: Mapping[str, int], seed: int = 0) -> tuple[Array, ...]:
        """Arrays of these sizes that the model can run on, as those of `Model.random_inputs`.

        Raises ValueError for sizes that the model does not take.
        """
        self._check_sizes(sizes)
        shapes = (self.network.shape(tensor.name, sizes) for tensor in self.inputs)
        return random_arrays(
            ((shape, numpy_dtype(t.dtype)) for shape, t in zip(shapes, self.inputs, strict=True)), seed
        )

    def measure(self, sizes: Mapping[str, int], seconds: float = 1.0) -> list[float]:
        """Seconds of whole runs at these sizes, as those of `Model.measure`.  Raises ValueError for wrong ones."""
        seconds, given = checked_seconds(seconds), self.random_inputs(sizes)
        out = self._called(given, None)
        return seconds_of(lambda: self(*given, out=out), self.target, seconds)

    def profile(self, sizes: Mapping[str, int], runs: int = 20) -> dict[str, float]:
        """Seconds of each operator inside of whole runs at these sizes, as those of `Model.profile`."""
        runs, given = at_least_one("runs", runs), self.random_inputs(sizes)
        self._called(given, None)
        plan = self._plans[None, tuple(array.shape for array in given)]
        named = [node.name for node in self.network.nodes if node.func is not None]
        found: list[list[float]] = []
        settle = settler(self.target)
        with self._lock:
            results = self._results(plan, given, None)
            self._place(plan, (*given, *results))
            begin, entry = ctypes.addressof(plan.table), 2 * ctypes.sizeof(ctypes.c_void_p)
            for _ in range(runs + 3):
                look()
                settle()
                times = [time.perf_counter()]
                for number in range(plan.count):
                    self._run(begin + number * entry, 1, self.target.threads)
                    times.append(time.perf_counter())
                found.append(np.diff(times).tolist())
        medians = dict(zip(named, np.median(found[3:], axis=0).tolist(), strict=True))
        return {node.name: medians.get(node.name, 0.0) for node in self.network.nodes}

    @property
    def notices(self) -> dict[str, str]:
        """Operators that run as they are written, for all sizes or for some, each with the reason."""
        return {name: kernel.notice for name, kernel in self.kernels.items() if kernel.notice}

    @property
    def arena_bytes(self) -> int:
        """Bytes of the memory between operators, as large as the largest sizes that came so far ask for."""
        return int(self._arena.size)


def _checked(tensor: RangedTensor, array: Any) -> Array:
    """An array of the caller.  Raises TypeError or ValueError for one that is no such array."""
    if isinstance(array, np.generic):
        array = np.asarray(array)
    return checked(tensor.name, tensor.dtype, None, array).view(np.ndarray)
