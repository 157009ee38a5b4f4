"""The callable that a network becomes: native calls of all its kernels, and foreign operators in between."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.address import address
from ...backends.chain import CpuChain
from ...backends.cores import settler
from ...backends.data import Array, pack, unpack
from ...backends.executable import numpy_dtype
from ...backends.kernel import load_chain
from ...backends.llvm.python_call import Expected, held
from ...errors import UsageError
from ...forks import renewed_in_children
from ...ir.deadline import look
from ...ir.dtypes import SCALAR_TYPES
from ...ir.markup import table
from ...ir.numbers import BITS, HALF_BYTES, is_passed_as
from ...numerals import at_least_one
from ...search.calling.arrays import given_back, in_a_row, in_order, library_of, taken
from ...search.calling.timed import checked_seconds
from ...search.tasks.device import Device
from ..evaluate import as_bits, chosen, cut, looked_up, repeated
from ..fallback import run_foreign
from ..network import CARRIED, Branches, Called, Cut, Foreign, Lookup, Loop, Network, Operator, Tensor, problems
from .plan import plan
from .report import Row, report
from .timing import random_arrays, seconds_of

if TYPE_CHECKING:
    from ...backends.executable import Chain
    from ...ir.target import Target
    from ...search.tasks.task import Roof
    from .kernels import Kernel

_READABLE, _WRITABLE = 0x0101, 0x0501  # of `ndarray.flags.num`: C-contiguous and aligned; writeable, too


class Model:
    """A compiled network: ``y = model(x)``, ``model({"x": x})``, or ``model(x, out=y)``.

    Inputs come in the order of `inputs`, or by name, and are C-contiguous arrays of exactly the declared shape and
    type; outputs come in the order of `outputs`, a single one alone.  A call with a dict gives a dict.  Nothing but
    outputs without an `out` is allocated.  Of an output whose length is computed, `outputs` tell the largest, and what
    comes back is the part of it that there is, of an `out` the first one.  Calls from several threads wait for each
    other.
    """

    def __init__(self, network: Network, kernels: Mapping[str, Kernel], target: Target) -> None:
        for problem in problems(network):
            raise UsageError(f"the network `{network.name}` cannot run: {problem}")
        self.network, self.target, self.kernels = network, target, dict(kernels)
        self.inputs = tuple(network.tensors[name] for name in network.inputs)
        self.outputs = tuple(network.tensors[name] for name in network.outputs)
        self.whole, self._ends = network.without_cuts
        self.plan = plan(self.whole, kernels, target)
        self._chain = load_chain(tuple(self.plan.calls.values()), self.plan.blocks, target.kind)
        for place, array in self.plan.packed:
            self._chain.write(place, array)
        self._inner = {
            node.name: tuple(None if isinstance(part, str) else Model(part, kernels, target) for part in node.networks)
            for node in network.nodes
            if isinstance(node, Branches | Loop)
        }
        self._segments = self._cut()
        cut_here = (n for n in self.whole.nodes if isinstance(n, Cut) or (isinstance(n, Foreign) and n.at_most))
        self._cuts = {name for node in cut_here for name in node.outputs}.intersection(network.outputs)
        self._given = self._expected(self.inputs)
        self._results = self._expected(network.tensors[name] for name in self.whole.outputs)
        self.values: dict[str, Array] = {}
        self._moves = _Moves(self, self._chain)
        self._lock = threading.Lock()
        renewed_in_children(self)
        self._direct = self._native_call()

    def __repr__(self) -> str:
        """What it takes and gives, of how many operators it is, and for which device."""
        given, results = (
            ", ".join(f"{tensor.name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]" for tensor in tensors)
            for tensors in (self.inputs, self.outputs)
        )
        count = len(self.network.nodes)
        return f"<Model {self.network.name}({given}) -> {results}: {count} operators on {self.target.name}>"

    def _repr_html_(self) -> str:
        kernels = Counter(kernel.origin for kernel in self.kernels.values())
        rows = [
            *((tensor.name, "input", tensor.dtype, tensor.shape) for tensor in self.inputs),
            *((tensor.name, "output", tensor.dtype, tensor.shape) for tensor in self.outputs),
        ]
        made = ", ".join(f"{count} {origin}" for origin, count in kernels.items())
        title = f"{self.network.name}: {len(self.network.nodes)} operators on {self.target.name}; kernels: {made}"
        return table(title, ("tensor", "", "type", "shape"), rows)

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Run on `inputs`, all by position or one dict by name; into `out`, given in the same way, if it is there."""
        # A small network runs for microseconds: what is right is run at once, and nothing else is done before.
        if self._direct is not None and len(inputs) == len(self._given):
            results = (
                tuple(expected.empty() for expected in self._results) if out is None
                else tuple(out) if isinstance(out, (list, tuple)) else (out,)
            )  # fmt: skip
            if self._ends and out is not None:
                results += tuple(expected.empty() for expected in self._results[len(results) :])
            if self._direct(*inputs, *results):
                if self._ends:
                    results = self._ended(results)
                return results[0] if len(results) == 1 else results
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            arrays = in_order(inputs[0], self.network.inputs, "input")
            given = None if out is None else in_order(out, self.network.outputs, "output")
            return dict(zip(self.network.outputs, self._in_kind(arrays, given), strict=True))
        found = self._in_kind(inputs, None if out is None else in_a_row(out))
        return found[0] if len(found) == 1 else found

    def _in_kind(self, inputs: Sequence[Any], out: Sequence[Any] | None) -> Sequence[Any]:
        """The outputs, without `out` as arrays of the library that the first input is of which is not NumPy's."""
        results: Sequence[Any] = self._run(inputs, out)
        if out is not None or (library := library_of(inputs)) is None:
            return results
        kinds = [tensor.told or tensor.dtype for tensor in self.outputs]
        return tuple(given_back(library, kind, result) for kind, result in zip(kinds, results, strict=True))

    @property
    def direct(self) -> Callable[..., bool] | None:
        """As `Kernel.direct`: all inputs and then all outputs as arrays; None where an output is cut."""
        return None if self._ends else self._direct

    def _native_call(self) -> Callable[..., bool] | None:
        """A native call of the whole network, where its kernels compute all of it in the caller's memory."""
        if not isinstance(self._chain, CpuChain) or self.whole.called or self._moves.copies:
            return None
        given = zip((*self.whole.inputs, *self.whole.outputs), (*self._given, *self._results), strict=True)
        arguments = [
            (self.plan.lent[name], Expected(0, expected.shape, expected.dtype, number >= len(self._given)))
            for number, (name, expected) in enumerate(given)
        ]
        return self._chain.native_call(arguments)

    def _expected(self, tensors: Iterable[Tensor]) -> tuple[_Expected, ...]:
        known = self.plan.sharing.layouts.keys() | self.network.constants.keys()
        return tuple(_Expected(t, t.name in known and t.dtype in SCALAR_TYPES) for t in tensors)

    def _run(self, inputs: Sequence[Any], out: Sequence[Any] | None, profile: list[float] | None = None) -> Any:
        if len(inputs) != len(self._given):
            names = ", ".join(expected.name for expected in self._given)
            raise TypeError(f"the model takes {len(self._given)} inputs ({names}), but got {len(inputs)}")
        arrays = [expected.checked(array, _READABLE) for array, expected in zip(inputs, self._given)]  # noqa: B905
        if out is None:
            results = [expected.empty() for expected in self._results]
        else:
            results = self._checked_results(arrays, out)
        with self._lock, held(self._direct):
            self._moves.give(arrays, results)
            for segment in self._segments:
                segment(profile)
            self._moves.take(arrays, results)
            found = [self._counted(name, result) for name, result in zip(self.whole.outputs, results, strict=True)]
        return self._ended(found) if out is None or self._cuts or self._ends else tuple(out)

    def _ended(self, results: Sequence[Array]) -> tuple[Array, ...]:
        """The outputs, of each that is cut as many elements as are counted."""
        found = list(results[: len(self.outputs)])
        for number, (axis, count) in self._ends.items():
            end = int(results[count].reshape(-1)[0])
            found[number] = found[number][(*(slice(None),) * axis, slice(end))]
        return tuple(found)

    def _counted(self, name: str, result: Array) -> Array:
        """The part of an output that there is, where its length was computed (`network.Cut`, `Foreign.at_most`)."""
        if name not in self._cuts:
            return result
        part = result[tuple(map(slice, self.values[name].shape))]
        part[...] = self.values[name]
        return part

    def _checked_results(self, inputs: Sequence[Array], out: Sequence[Any]) -> list[Array]:
        if len(out) != len(self.outputs):
            raise TypeError(f"the model has {len(self.outputs)} outputs, but `out` holds {len(out)} arrays")
        found = [expected.checked(array, _WRITABLE) for array, expected in zip(out, self._results)]  # noqa: B905
        others = [(address(array), array.nbytes) for array in (*inputs, *found)]
        names = (*self.network.inputs, *self.network.outputs)
        for number in range(len(inputs), len(others)):
            start, size = others[number]
            for name, (begin, length) in zip(names, others[:number]):  # noqa: B905, up to the output itself
                if begin < start + size and start < begin + length:
                    raise ValueError(f"`{names[number]}` is written and shares memory with `{name}`")
        return [*found, *(expected.empty() for expected in self._results[len(found) :])]

    def profile(self, inputs: Sequence[Array] | None = None, runs: int = 20) -> dict[str, float]:
        """Seconds of each operator inside of whole runs, by name: medians over `runs` runs, after a few to warm up.

        Operators that only say where tensors lie inside of others take none.
        Without `inputs` the model runs on small random numbers.  Raises OutOfTime after a deadline (`ir.deadline`).
        """
        runs, given = at_least_one("runs", runs), self._example(inputs)
        out = self._run(given, None)
        found: list[list[float]] = []
        settle = settler(self.target)
        for number in range(runs + 3):
            seconds: list[float] = []
            look()
            settle()
            self._run(given, out, seconds)
            if number >= 3:
                found.append(seconds)
        busy = [node.name for node in self.whole.nodes if node.name not in self.plan.sharing.idle]
        medians = {name: statistics.median(run[number] for run in found) for number, name in enumerate(busy)}
        return {node.name: medians.get(node.name, 0.0) for node in self.network.nodes}

    def report(
        self, inputs: Sequence[Array] | None = None, runs: int = 20, roof: Roof | None = None
    ) -> tuple[Row, ...]:
        """A row for each operator: its time inside of whole runs, share, layouts, copies, and what fell back.

        With the device's `roof` rows say how near to it they are.
        """
        return report(self.network, self.kernels, self.profile(inputs, runs), roof)

    @property
    def operators(self) -> tuple[Row, ...]:
        """A row for each operator, measured now: its record, its time, layout and pad value of each edge (`report`)."""
        return self.report()

    def measure(self, inputs: Sequence[Array] | None = None, seconds: float = 1.0) -> list[float]:
        """Seconds of whole runs, for about so long, after a few to warm up; Python is included.

        Each begins when every thread has a core of its own (`backends.cores`).  After a deadline (`ir.deadline`) one
        is enough, and none warms up.
        """
        seconds, given = checked_seconds(seconds), self._example(inputs)
        out = self._run(given, None)
        return seconds_of(lambda: self(*given, out=out), self.target, seconds)

    def _example(self, inputs: Sequence[Array] | None) -> tuple[Array, ...]:
        """What is measured on.  Raises TypeError for an array alone, which is no list of inputs."""
        if inputs is None:
            return self.random_inputs()
        if not isinstance(inputs, list | tuple):
            raise TypeError(f"`inputs` is a list of arrays, one for each input, but got {type(inputs).__name__}")
        return tuple(inputs)

    def export(
        self, path: str | Path, format: str = "so", *, name: str | None = None, target: Target | None = None
    ) -> list[Path]:
        """Write files with which the model runs where there is neither Python nor this package; returns them.

        As `Kernel.export`: one function of C, which takes the inputs and then the outputs, and holds the constants.
        """
        from ...backends.export.formats import export, name_of
        from .exporting import library_of

        called = name or name_of(path, format, self.network.name or "model")
        target = self.target if target is None else Device.here(target)
        planned = plan(self.network, self.kernels, self.target, in_place=False)
        return export(library_of(self.network, self.kernels, planned, called, target), path, format)

    def random_inputs(self, seed: int = 0) -> tuple[Array, ...]:
        """Arrays that the model can run on: normal numbers, and integers from 0 to 3.

        Those of types that count places are 0, which is a place in every dimension.
        """
        return random_arrays(((given.shape, given.dtype) for given in self._given), seed)

    def _cut(self) -> list[Callable[[list[float] | None], None]]:
        """The network as native calls of as many operators as follow each other, and foreign operators."""
        segments: list[Callable[[list[float] | None], None]] = []
        first = last = 0
        for node in self.whole.nodes:
            if isinstance(node, Operator):
                last += node.name not in self.plan.sharing.idle
                continue
            if last > first:
                segments.append(_native(self._chain, first, last))
            first = last
            segments.append(self._called(node))
        if last > first:
            segments.append(_native(self._chain, first, last))
        return segments

    def _called(self, node: Called) -> Callable[[list[float] | None], None]:
        inner = self._inner.get(node.name, (None, None))

        def run(profile: list[float] | None) -> None:
            began = time.perf_counter()
            arrays = {name: self._read(name) for name in node.inputs}
            if isinstance(node, Foreign):
                found = run_foreign(node, arrays)
            elif isinstance(node, Lookup):
                found = {node.outputs[0]: looked_up(node, arrays[node.inputs[0]])}
            elif isinstance(node, Cut):
                found = {node.outputs[0]: cut(node, *(arrays[name] for name in node.inputs))}
            elif isinstance(node, Loop):
                (model,) = inner
                assert model is not None
                given = [np.asarray(arrays[name], order="C") for name in node.inputs]
                results = repeated(node, given, partial(model._run, out=None))
                found = dict(zip(node.outputs, results, strict=True))
            else:
                model = inner[chosen(node, arrays[node.inputs[0]])]
                assert model is not None
                given = [np.asarray(arrays[name], order="C") for name in node.inputs[1:]]
                found = dict(zip(node.outputs, model._run(given, None), strict=True))
            for name, value in found.items():
                self._write(name, value)
            if profile is not None:
                profile.append(time.perf_counter() - began)

        return run

    def _read(self, name: str) -> Array:
        """A tensor as the network has it, from wherever it is."""
        if name in self.network.constants:
            return self.network.constants[name]
        if name in self.values:
            return self.values[name]
        lying = self.plan.sharing.layouts[name]
        argument = lying.argument
        raw = self._chain.read(self.plan.places[name], lying.nbytes).view(numpy_dtype(argument.dtype))
        found = unpack(argument, raw.reshape(argument.physical_shape))
        if told := self.network.tensors[name].told:
            return found.view(told)
        return found.view(argument.dtype) if argument.dtype in (*BITS, *HALF_BYTES) else found

    def _write(self, name: str, array: Array) -> None:
        """Put a tensor, as the network has it, where it belongs."""
        if name not in self.plan.sharing.layouts:
            self.values[name] = array
            return
        argument = self.plan.sharing.layouts[name].argument
        array = as_bits(self.network.tensors[name], array)
        if (array.shape, str(array.dtype)) not in (
            (argument.logical_shape, argument.dtype), (argument.logical_shape, str(numpy_dtype(argument.dtype)))
        ):  # fmt: skip
            raise UsageError(
                f"`{name}` came out as {array.dtype}{list(array.shape)}, but the network has it as "
                f"{argument.dtype}{list(argument.logical_shape)}"
            )
        logical = np.ascontiguousarray(array).view(numpy_dtype(argument.dtype)).reshape(argument.logical_shape)
        self._chain.write(self.plan.places[name], pack(argument, logical))


class _Expected:
    """What an array of the caller must be; one that no program touches may have any type that NumPy knows."""

    def __init__(self, tensor: Tensor, native: bool) -> None:
        self.name, self.shape, self.told, self.native = tensor.name, tensor.shape, tensor.told or tensor.dtype, native
        self.dtype = numpy_dtype(tensor.dtype) if native else np.dtype(self.told)

    def empty(self) -> Array:
        """Memory for a result; of one that no program writes it is not used."""
        return np.empty(self.shape, self.dtype)

    def checked(self, array: Any, flags: int) -> Array:
        """The array, one of ml_dtypes as what kernels take.  Raises TypeError or ValueError for what does not fit."""
        if type(array) is np.ndarray and array.dtype == self.dtype and array.shape == self.shape:  # noqa: SIM102
            if array.flags.num & flags == flags:
                return array
        if isinstance(array, np.generic) and flags == _READABLE:  # what NumPy makes of arrays without dimensions
            array = np.asarray(array)
        found = taken(self.name, self.told, array)
        if (
            self.native
            and found.dtype != self.dtype
            and (found.dtype.name == self.told if self.told in CARRIED else is_passed_as(self.told, found.dtype))
        ):
            return self.checked(found.view(self.dtype), flags)
        if found.dtype != self.dtype:
            raise TypeError(f"`{self.name}` must have dtype {self.dtype}, but got {found.dtype}")
        if found.shape != self.shape:
            raise ValueError(f"`{self.name}` must have shape {self.shape}, but got {found.shape}")
        if not (found.flags.c_contiguous and found.flags.aligned):
            raise ValueError(f"`{self.name}` must be C-contiguous and aligned; np.ascontiguousarray makes it so")
        if flags == _WRITABLE and not found.flags.writeable:
            raise ValueError(f"`out` for `{self.name}` is read-only")
        return found.view(np.ndarray)


class _Moves:
    """How arrays of the caller reach the kernels: their addresses where kernels use them, copies elsewhere."""

    def __init__(self, model: Model, chain: Chain) -> None:
        self._model, self._chain = model, chain
        network, lent = model.whole, model.plan.lent
        self._inputs = {name: number for number, name in enumerate(network.inputs)}
        self._lent: list[tuple[bool, int, Sequence[tuple[Any, int, int]]]] = []
        self._copied_in: list[tuple[int, str]] = []
        self._copied_out: list[tuple[int, str]] = []
        for number, name in enumerate(network.inputs):
            if name in lent:
                assert isinstance(chain, CpuChain)
                self._lent.append((True, number, chain.lent(lent[name])))
            else:
                self._copied_in.append((number, name))
        for number, name in enumerate(network.outputs):
            if name in lent and name not in self._inputs and name not in network.outputs[:number]:
                assert isinstance(chain, CpuChain)
                self._lent.append((False, number, chain.lent(lent[name])))
            else:
                self._copied_out.append((number, name))
        self._attached = self._touched_here()
        self.copies = bool(self._copied_in or self._copied_out)

    def _touched_here(self) -> list[tuple[bool, int, int]]:
        """Arrays of the caller in which tensors lie that Python reads or writes, each with its block."""
        network, plan = self._model.whole, self._model.plan
        names = {name for node in network.called for name in (*node.inputs, *node.outputs)}
        names |= {name for _, name in (*self._copied_in, *self._copied_out)}
        touched = {plan.places[name].block for name in names if name in plan.places}
        found = [(i, k, plan.lent[(network.inputs if i else network.outputs)[k]]) for i, k, _ in self._lent]
        return [(is_input, number, block) for is_input, number, block in found if block in touched]

    def give(self, inputs: Sequence[Array], out: Sequence[Array]) -> None:
        """Hand the arrays of a call to the plan before it runs: by address where they are lent, else as a copy."""
        for is_input, number, slots in self._lent:
            start = address(inputs[number] if is_input else out[number])
            for record, index, offset in slots:
                record[index] = start + offset
        for is_input, number, block in self._attached:
            self._attach(block, inputs[number] if is_input else out[number])
        for number, name in self._copied_in:
            self._model._write(name, inputs[number])

    def take(self, inputs: Sequence[Array], out: Sequence[Array]) -> None:
        """Copy to `out` what was not computed there."""
        for number, name in self._copied_out:
            if name in self._model._cuts:
                continue
            if name in self._inputs:
                value = inputs[self._inputs[name]]
            elif name in self._model.plan.lent:
                value = out[self._model.whole.outputs.index(name)]
            else:
                value = self._model._read(name)
            if value.shape != out[number].shape:
                raise UsageError(f"the output `{name}` came out as {list(value.shape)}, not {list(out[number].shape)}")
            special = value.dtype.name in (*BITS, *HALF_BYTES, *CARRIED)
            out[number][...] = value.view(out[number].dtype) if special else value
        for _, _, block in self._attached:
            self._attach(block, None)

    def _attach(self, block: int, array: Array | None) -> None:
        assert isinstance(self._chain, CpuChain)
        self._chain.attach(block, array)


def _native(chain: Chain, first: int, last: int) -> Callable[[list[float] | None], None]:
    plain_run = chain.runner(first, last) if isinstance(chain, CpuChain) else lambda: chain.run(first, last)

    def run(profile: list[float] | None) -> None:
        if profile is None:
            plain_run()
        else:
            profile.extend(chain.profile(first, last))

    return run
