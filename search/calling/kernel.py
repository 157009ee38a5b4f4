"""The kernel that a user calls: NumPy arrays in, NumPy arrays out, nothing cast or copied silently."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backends.artifact import OPEN, Argument
from ...backends.data import Array, arguments_of, pack, unpack
from ...backends.executable import Executable, numpy_dtype
from ...backends.kernel import compile_lowered, load_artifact
from ...backends.llvm.python_call import Expected, Size
from ...errors import BadRecord, UsageError, did_you_mean, named
from ...forks import renewed_in_children
from ...ir.analysis import count_flops
from ...ir.layout.layout import Layout
from ...ir.markup import table
from ...ir.numbers import BITS, HALF_BYTES
from ...ir.ranges import Values, WrongSizes, alone_in, fixed, valued, values_of
from ...ir.script.programs import Program
from ...ir.size_ranges import ranges_of, tell_all
from ...ir.text import extents_text
from ...numerals import as_whole, truth
from ...space.interface import PACKED_AHEAD
from ...space.schedule import Schedule
from ...space.workloads.taking import func_of as function
from ..records.database import Database
from ..records.record import Record
from ..tasks.command_line import options_of
from ..tasks.device import Device
from ..tasks.interface import breach, chosen_by, interface_of
from ..tasks.task import Task
from .arrays import checked, given_back, in_a_row, library_of, refuse_overlap, scalar
from .call_memory import Numbered, memory_of
from .near import no_record
from .subject import device_for, record_or_work, scheduled
from .timed import Timing, bound, checked_seconds, time_of

if TYPE_CHECKING:
    from ...backends.executable import Bound
    from ...ir.stmt import PrimFunc
    from ...ir.target import Target
    from .foreign import Outcome

log = logging.getLogger(__name__)

SHAPES, MOST_SHAPES = 32, 4096
"""Of which a kernel of many shapes keeps kernels of one, and what allocates a result: choices."""


@named
def load(
    work: Program,
    target: str | Target = "cpu",
    db: str | os.PathLike[str] | None = None,
    interface: str | Mapping[str, str] | None = None,
    threads: int | None = None,
) -> Kernel:
    """The kernel of the best record of `work` on `target`.

    `work` is a workload or its name, a program, its text or its file; or a record or its id, whose kernel it is, on the
    device of the record.  `interface` as in tuning, the default one if None.  Where the device has no record, those of
    others and imported ones are tried here first (see `foreign`).  Raises NoRecord, whose text names records of other
    interfaces, threads and devices, and is the command that makes one.
    """
    if isinstance(work, Record):
        return from_record(work)
    with Database(db, read_only=True) as database:
        record, device = found_in(database, Wanted(work, target, interface, threads), asked="load", db=db)
        for note in database.notes:
            log.warning(note)
    return from_record(record, device)


class Wanted(NamedTuple):
    """A record, or a program with the device, the interface and the threads for which a kernel of it is wanted."""

    what: Program
    target: str | Target
    interface: str | Mapping[str, str] | None
    threads: int | None


def found_in(
    database: Database, wanted: Wanted, *, asked: str, db: str | os.PathLike[str] | None
) -> tuple[Record, Target | None]:
    """The record that is wanted, with None, or the best record of the program that is, with its device."""
    from .foreign import best_here

    work, target = record_or_work(wanted.what, database, asked), wanted.target
    if isinstance(work, Record):
        return work, None
    device = Device.here(target, wanted.threads)
    task = Task(work, device, interface_of(work, wanted.interface))
    tried: list[Outcome] = []
    record = best_here(task, database, tried.append)
    if record is not None:
        return record, device
    named = options_of(work, device, task.interface, database.name if db else None)
    made_by = (replace(named, target=target) if isinstance(target, str) else named).command()
    others = "".join(f", and {verdict.sentence}" for outcome in tried[:1] for verdict in outcome.verdicts)
    raise no_record(task, database, made_by, tried=others, python=True)


def from_record(record: Record, target: Target | None = None) -> Kernel:
    """The kernel of a record, all proofs done again.  Raises BadRecord when one fails."""
    from ..workers.programs import REFUSALS, candidate, program

    try:
        func = candidate(record.script, record.trace)
        kernel = build(func, target or record.device, dict(record.interface), given=program(record.script))
        kernel.about = f"{record.title}, record {record.id}"
        return kernel
    except REFUSALS as error:
        raise BadRecord(f"record {record.id} is refused: {error}") from None


@named
def build(
    func: Program,
    target: str | Target = "cpu",
    interface: str | Mapping[str, str] | None = None,
    *,
    strict: bool = False,
    given: PrimFunc | None = None,
) -> Kernel:
    """Compile `func` as it is scheduled: a program, what holds or names one, or a record with its schedule.

    A record is compiled for its own device, unless `target` is another than the default.

    An argument whose layout the schedule changed is passed in its physical shape.  Where `interface` calls it
    ``constant`` it is passed in its logical shape, and every call packs it.  An argument that is only reshaped is
    passed in its logical shape.  A `strict` kernel keeps the order of sums and the sign of zeros.  `given` is for a
    program whose arguments had layouts before it was scheduled: that earlier program.  Its ``fixed`` arguments keep
    those layouts and are passed in them.  Raises UsageError for an argument that `interface` calls ``fixed`` and
    whose layout the schedule changes.  A program with extents that are expressions makes a `RangedKernel`.
    """
    from ...backends.lower import lower
    from ..workers.programs import program

    device, strict = device_for(func, target), truth("strict", strict)
    if isinstance(func, Record):
        given, interface = given or program(func.script), interface or dict(func.interface)
    start = given or (function(func.subject, "build") if isinstance(func, Schedule) else None)
    func = scheduled(func, "build")
    executable = load_artifact(compile_lowered(lower(func, device, strict), device))
    arguments = arguments_of(func)
    layouts = chosen_by(func.name, [a.name for a in arguments], [a.name for a in arguments if a.is_output], interface)
    if func.stated:
        return RangedKernel(executable, func, layouts, given=start or func, strict=strict)
    own = () if given is None else arguments_of(given)
    kernel = Kernel(executable, arguments, layouts, program=(func, strict), written=own)
    kernel.given = start or func
    return kernel


class Kernel:
    """A compiled program: ``y = kernel(x, w)``, or ``kernel(x, w, out=y)``.

    Inputs come in the order of the program's parameters, C-contiguous and of
    exactly the expected shape and dtype: the logical one, except that an argument
    of a free interface, or of a program with layouts of its own, has the physical
    one.  They are NumPy's, or whatever else on the CPU has ``__dlpack__`` (PyTorch,
    JAX, CuPy), whose memory is used as it is.  Scalars are numbers in the range of
    their type, a bfloat16 array has dtype uint16 and holds the bits (`ss.bfloat16_bits`
    makes them of floats), has the type that ml_dtypes gives to NumPy, or is PyTorch's.
    TypeError and ValueError name the argument that is not so.  `signature` has name, logical and physical shape,
    dtype, index map and pad value of every argument.  Several threads may call it.  Results are arrays of the library
    that the first input is of which is not NumPy's.
    """

    def __init__(
        self,
        executable: Executable,
        signature: Sequence[Argument],
        interface: Mapping[str, str],
        packed: Mapping[str, Array] | None = None,
        program: tuple[PrimFunc, bool] | None = None,
        written: Sequence[Argument] = (),
    ) -> None:
        self.about = ""
        self.given: PrimFunc | None = None
        self._program = program
        self.interface = {a.name: interface.get(a.name, "free") for a in signature}
        if problem := breach(self.interface, signature, written):
            raise UsageError(problem)
        own = {a.name: a for a in written if self.interface[a.name] == "fixed"}  # the same memory, as the caller has it
        self.signature = tuple(own.get(a.name, a) for a in signature)
        self._executable = executable
        self._packed = dict(packed or {})
        self._inputs = [(i, a) for i, a in enumerate(self.signature) if not a.is_output and a.name not in self._packed]
        self._outputs = [(i, a) for i, a in enumerate(self.signature) if a.is_output]
        self._memory = memory_of(executable)
        self._lock = threading.Lock()
        renewed_in_children(self)
        with self._lock:
            for index, argument in enumerate(self.signature):
                if argument.name in self._packed:
                    self._memory.give(index, self._packed[argument.name])
        self._converts = any(a.is_scalar or a.dtype in (*BITS, *HALF_BYTES) or self._packs(a) for _, a in self._inputs)
        is_open = any(OPEN in a.physical_shape for a in self.signature)
        given = self._as_given(self._outputs)
        self._direct = None if self._converts or is_open else self._memory.direct(
            [Expected(number, a.physical_shape, numpy_dtype(a.dtype), a.is_output)
             for number, a in (*self._as_given(self._inputs), *given)]
        )  # fmt: skip
        new = [partial(np.zeros, a.physical_shape, numpy_dtype(a.dtype)) for _, a in given]
        self._new = new[0] if len(new) == 1 else None

    def __call__(self, *inputs: Array, out: Array | Sequence[Array] | None = None) -> Any:
        """Run on `inputs`; returns the output, or a tuple of them, written to `out` where given."""
        # A kernel of a microsecond is called here: what is right is run at once, and nothing else is done before.
        if self._direct is not None and len(inputs) == len(self._inputs):
            if self._new is not None:
                result = self._new() if out is None else out
                if self._direct(*inputs, result):
                    return result
            else:
                results = self._results(None) if out is None else out
                if isinstance(results, (tuple, list)) and self._direct(*inputs, *results):
                    return tuple(results)
        return self._call(inputs, out)

    def _call(self, inputs: tuple[Array, ...], out: Array | Sequence[Array] | None) -> Any:
        """The careful way: converts and packs what has to be, and says what is wrong."""
        if len(inputs) != len(self._inputs):
            names = ", ".join(argument.name for _, argument in self._inputs)
            raise TypeError(f"the kernel takes {len(self._inputs)} inputs ({names}), but got {len(inputs)}")
        library = library_of(inputs)
        inputs = tuple(self._given(argument, value) for (_, argument), value in zip(self._inputs, inputs, strict=True))
        outputs = self._results(out)
        returned = outputs if out is None else list(out) if isinstance(out, (tuple, list)) else [out]
        refuse_overlap([(a.name, array) for (_, a), array in zip(self._outputs, outputs, strict=True)],
                       [(a.name, array) for (_, a), array in zip(self._inputs, inputs, strict=True)])  # fmt: skip
        with self._lock:
            for (index, argument), array in zip(self._inputs, inputs, strict=True):
                self._memory.give(index, pack(argument, array) if self._packs(argument) else array)
            self._memory.run([(index, array) for (index, _), array in zip(self._outputs, outputs, strict=True)])
        if out is None:
            kinds = [argument.dtype for _, argument in self._outputs]
            returned = [given_back(library, dtype, array) for dtype, array in zip(kinds, outputs, strict=True)]
        return returned[0] if len(returned) == 1 else tuple(returned)

    @property
    def direct(self) -> Callable[..., bool] | None:
        """A call of one native function, where there is one: takes all inputs and then all outputs as arrays.

        False says that they are not exactly what they must be, and that nothing has happened.
        """
        return self._direct

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """What a call takes, in order; `physical_shape` is the shape in which it is given."""
        return tuple(argument for _, argument in self._as_given(self._inputs))

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """What a call gives, in order; `physical_shape` is the shape in which it comes."""
        return tuple(argument for _, argument in self._as_given(self._outputs))

    def pack(self, **constants: Array) -> Kernel:
        """A kernel with these inputs packed once and for all; it takes the other inputs and allocates nothing."""
        inputs = {argument.name: argument for _, argument in self._inputs}
        packed = dict(self._packed)
        for name, array in constants.items():
            if name not in inputs:
                hint = did_you_mean(name, inputs) or f"; there are {', '.join(inputs)}"
                raise UsageError(f"the kernel has no input {name!r} to pack{hint}")
            argument = inputs[name]
            given = self._given(argument, array)
            packed[name] = pack(argument, given) if self._packs(argument) else given.copy()
        kernel = Kernel(self._executable, self.signature, self.interface, packed, self._program, self.signature)
        kernel.about, kernel.given = self.about, self.given
        return kernel

    def time(self, *inputs: Array, seconds: float = 1.0) -> Timing:
        """How long a call takes, measured as candidates are for about `seconds`: alone on this host, Python excluded.

        `inputs` are as in a call; without any, random numbers are taken.  What `pack` packs, and what a call packs of
        arguments that are constant, is packed before.  Raises TypeError and ValueError as a call does.
        """
        return time_of(self.bound(*inputs), checked_seconds(seconds), self.flops, self.threads)

    @property
    def threads(self) -> int:
        """Of the processor that a call takes; 1 on a device."""
        target = self._executable.target
        return target.threads if target.kind == "cpu" else 1

    @property
    def flops(self) -> int:
        """Operations of floats of a call, as the program was given, without any on padding; 0 where it is not known."""
        return 0 if self.given is None else count_flops(self.given)

    def bound(self, *inputs: Array) -> Bound:
        """The kernel with memory of its own, in which `inputs` lie as it takes them; random numbers without any."""
        if inputs and len(inputs) != len(self._inputs):
            names = ", ".join(argument.name for _, argument in self._inputs)
            raise TypeError(f"the kernel takes {len(self._inputs)} inputs ({names}), but got {len(inputs)}")
        values: list[Array | None] = [self._packed.get(argument.name) for argument in self.signature]
        for (index, argument), value in zip(self._inputs, inputs, strict=False):
            given = self._given(argument, value)
            values[index] = pack(argument, given) if self._packs(argument) else given
        return bound(self._executable, values, self.signature)

    def __repr__(self) -> str:
        """What it takes and gives, and for which device."""
        given, results = (
            ", ".join(f"{a.name}: {a.dtype}[{', '.join(map(str, a.physical_shape))}]" for a in arguments)
            for arguments in (self.inputs, self.outputs)
        )
        name = self._program[0].name if self._program else "kernel"
        return f"<Kernel {name}({given}) -> {results} on {self._executable.target.name}>"

    def _repr_html_(self) -> str:
        interface = self.interface
        rows = [
            (a.name, "output" if a.is_output else "input", a.dtype, a.logical_shape, interface[a.name],
             "packed once" if a.name in self._packed else a.index_map or "as given", a.pad_value)
            for a in self.signature
        ]  # fmt: skip
        headings = ("argument", "", "type", "shape", "interface", "layout", "padding holds")
        return table(self.about or repr(self).strip("<>"), headings, rows)

    def export(
        self, path: str | Path, format: str = "so", *, name: str | None = None, target: Target | None = None
    ) -> list[Path]:
        """Write files with which the kernel runs where there is neither Python nor this package; returns them.

        The formats are those of `backends.export.formats`; `path` is a file, or a folder that is there or ends in a
        slash.  `name` is that of the C function, by default the one of the file, in a folder the program's; `target`
        another CPU than the kernel's own.  Constants that `pack` packed are held by the files.
        """
        from ...backends.export.formats import export, name_of
        from .exporting import Arguments, library_of

        if self._program is None:
            raise UsageError("this kernel was not built from a program, so that there is nothing to export")
        func, strict = self._program
        called = name or name_of(path, format, func.name)
        target = self._executable.target if target is None else Device.here(target)
        arguments = Arguments(self.signature, self.interface, self._packed)
        return export(library_of(func, target, called, arguments, strict=strict, about=self.about), path, format)

    def to_physical(self, name: str, array: Array) -> Array:
        """A logical array in the layout that argument `name` has in memory."""
        argument = self._argument(name)
        return pack(argument, checked(name, argument.dtype, argument.logical_shape, array))

    def to_logical(self, name: str, array: Array) -> Array:
        """The inverse of `to_physical`; padding is dropped."""
        argument = self._argument(name)
        return np.ascontiguousarray(unpack(argument, checked(name, argument.dtype, argument.physical_shape, array)))

    def _argument(self, name: str) -> Argument:
        found = {argument.name: argument for argument in self.signature}
        if name not in found:
            raise UsageError(f"the kernel has no argument {name!r}{did_you_mean(name, found)}")
        return found[name]

    def _packs(self, argument: Argument) -> bool:
        """Whether the caller gives the logical array of an argument that lies differently."""
        return self.interface[argument.name] in PACKED_AHEAD and not argument.layout.is_in_place

    def _is_physical(self, argument: Argument) -> bool:
        """Whether the caller gives an argument as the kernel has it in memory."""
        return self.interface[argument.name] not in PACKED_AHEAD and not argument.layout.is_in_place

    def _shape(self, argument: Argument) -> tuple[int, ...]:
        """The shape in which the caller gives an argument."""
        return argument.physical_shape if self._is_physical(argument) else argument.logical_shape

    def _as_given(self, arguments: Numbered) -> Numbered:
        """Numbered arguments with the shapes in which the caller gives them."""
        given = [argument.layout if self._is_physical(argument) else Layout.plain(argument.logical_shape)
                 for _, argument in arguments]  # fmt: skip
        return [(number, replace(argument, layout=k)) for (number, argument), k in zip(arguments, given, strict=True)]

    def _given(self, argument: Argument, value: Any) -> Array:
        """An input as an array of the expected shape and of NumPy's own types."""
        if argument.is_scalar:
            return scalar(argument, value)
        if isinstance(value, np.generic):  # what NumPy makes of arrays without dimensions
            value = np.asarray(value)
        return self._fitting(argument, value)

    def _fitting(self, argument: Argument, value: object) -> Array:
        """`value` as an array.  Raises UsageError unless it has the shape and type of the argument."""
        return checked(argument.name, argument.dtype, self._shape(argument), value)

    def _results(self, out: Array | Sequence[Array] | None) -> list[Array]:
        if out is None:
            return [np.zeros(self._shape(a), numpy_dtype(a.dtype)) for _, a in self._outputs]
        given = list(in_a_row(out))
        if len(given) != len(self._outputs):
            raise TypeError(f"the kernel has {len(self._outputs)} outputs, but `out` holds {len(given)} arrays")
        for number, (_, argument) in enumerate(self._outputs):
            array = given[number] = self._fitting(argument, given[number])
            if not array.flags.writeable:
                raise ValueError(f"`out` for `{argument.name}` is read-only")
        return given


class RangedKernel(Kernel):
    """One piece of code for all shapes that a program takes whose extents are expressions: ``y = kernel(x, w)``.

    A call reads the integers from the extents of its arrays and from its scalars.  What is wrong with them, among each
    other or with what the program assumes, is one sentence: WrongSizes, a ValueError.  Outputs that are not given are
    allocated, where inputs say how large they are.  Where extents are sizes and numbers a call of any shape is as
    direct as one of a kernel of this shape.  Else, and for `at`, the kernels of the shapes that came last are kept,
    which have temporaries of their own.
    """

    def __init__(
        self,
        executable: Executable,
        func: PrimFunc,
        interface: Mapping[str, str],
        given: PrimFunc,
        packed: Mapping[str, Array] | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__(executable, arguments_of(func), interface, packed, (func, strict))
        self.given = given
        self._func = func
        self._known: OrderedDict[tuple[int, ...], Kernel] = OrderedDict()  # by the values of integers
        self._called: dict[tuple[object, ...], Kernel] = {}  # by the extents of all arrays and the values of scalars
        self._allocates: dict[tuple[int, ...], Callable[[], Array]] = {}  # results by the shape of the input that tells
        integers, shaped = set(func.integers), {b.name: {alone_in(e) for e in b.extents} for b in func.buffers}
        self._telling = next((n for n, (_, a) in enumerate(self._inputs) if integers <= shaped.get(a.name, set())), -1)
        self._short = None if self._telling < 0 or len(self._outputs) != 1 else self._any_shape()

    def __call__(self, *inputs: Array, out: Array | Sequence[Array] | None = None) -> Any:
        """Run on `inputs`; returns the output, or a tuple of them, written to `out` where given."""
        if self._short is not None:
            result: Array | Sequence[Array] | None
            try:
                result = self._allocates[inputs[self._telling].shape]() if out is None else out
            except (KeyError, IndexError, AttributeError, TypeError):
                result = self._allocated(inputs)
            if result is not None and self._short(*inputs, result):
                return result
        return self._of_call(inputs, out)(*inputs, out=out)

    def _any_shape(self) -> Callable[..., bool] | None:
        """A native call for all shapes, where the ranges of sizes say all that is to be checked of a call."""
        func = self._func
        if self._converts or func.scalars != func.sizes or not tell_all(func):
            return None
        arguments: list[Expected] = []
        for number, a in (*self._as_given(self._inputs), *self._as_given(self._outputs)):
            shape = self._numbered(a)
            if shape is None:
                return None
            arguments.append(Expected(number, shape, numpy_dtype(a.dtype), a.is_output))
        ranges = ranges_of(func)
        self._ranges = [ranges[var] for var in func.sizes]
        self._told, self._wanted = arguments[self._telling].shape, (arguments[-1].shape, arguments[-1].dtype)
        sizes = enumerate(self._ranges, len(func.params))
        return self._memory.direct(arguments, [Size(place, max(r.low, 0), r.high, r.step) for place, r in sizes])

    def _numbered(self, argument: Argument) -> tuple[int, ...] | None:
        """The extents of an argument, -1 for the first size, -2 for the second; None for one that is neither."""
        extents = next(b.extents for b in self._func.buffers if b.name == argument.name)
        if self._func.layout_of(argument.name) is not None:
            return argument.physical_shape
        found = [e if isinstance(e, int) else alone_in(e) for e in extents]
        if None in found:
            return None
        return tuple(e if isinstance(e, int) else -1 - self._func.sizes.index(e) for e in found if e is not None)

    def _allocated(self, inputs: tuple[Array, ...]) -> Array | None:
        """A result for these inputs, and from now on for those of this shape; None where they are not taken."""
        shape = getattr(inputs[self._telling], "shape", None) if self._telling < len(inputs) else None
        if not isinstance(shape, tuple) or len(shape) != len(self._told):
            return None
        values = {e: size for e, size in zip(self._told, shape, strict=True) if e < 0}
        if not all(values[-1 - size] in numbers for size, numbers in enumerate(self._ranges)):
            return None
        if len(self._allocates) >= MOST_SHAPES:
            self._allocates.clear()
        wanted, dtype = self._wanted
        new = partial(np.zeros, tuple(e if e >= 0 else values[e] for e in wanted), dtype)
        self._allocates[shape] = new
        return new()

    def at(self, **sizes: int) -> Kernel:
        """The kernel of one shape, by the values of the program's integers.  Raises WrongSizes."""
        values = {v: sizes[v.name] for v in self._func.integers if v.name in sizes}
        unknown = [name for name in sizes if name not in {v.name for v in values}]
        missing = [v.name for v in self._func.integers if v not in values]
        if unknown or missing:
            known = ", ".join(v.name for v in self._func.integers)
            raise UsageError(f"`{self._func.name}` has the integers {known}, but got {', '.join(sizes) or 'none'}")
        if strange := [name for name, value in sizes.items() if as_whole(value) is None]:
            raise WrongSizes(f"`{strange[0]}` is a whole number, but got {sizes[strange[0]]!r}")
        shapes = {b.name: tuple(valued(e, values) for e in b.extents) for b in self._func.buffers}
        return self._of(values_of(self._func, shapes, sizes))

    def bound(self, *inputs: Array) -> Bound:
        """Memory of the extents that the inputs have.  Raises TypeError and ValueError as a call does."""
        if not inputs:
            raise TypeError("a kernel of many shapes is timed on arrays, or at one shape: kernel.at(...).time()")
        return self._of_call(inputs, None).bound(*inputs)

    @property
    def flops(self) -> int:
        """Each shape has its own: ``kernel.at(...).flops``."""
        return 0

    def __repr__(self) -> str:
        """What it takes and gives, with the names of its extents, and for which device."""
        extents = {b.name: extents_text(b.extents) for b in self._func.buffers}
        given, results = (
            ", ".join(f"{a.name}: {a.dtype}[{extents.get(a.name, '')}]" for a in arguments)
            for arguments in (self.inputs, self.outputs)
        )
        return f"<RangedKernel {self._func.name}({given}) -> {results} on {self._executable.target.name}>"

    def _of_call(self, inputs: tuple[Array, ...], out: Array | Sequence[Array] | None) -> Kernel:
        """The kernel of the extents that a call has."""
        if len(inputs) != len(self._inputs):
            names = ", ".join(argument.name for _, argument in self._inputs)
            raise TypeError(f"the kernel takes {len(self._inputs)} inputs ({names}), but got {len(inputs)}")
        taken = [(a.name, self._given(a, value)) for (_, a), value in zip(self._inputs, inputs, strict=True)]
        given = [] if out is None else self._results(out)
        arrays = {**dict(taken), **{a.name: array for (_, a), array in zip(self._outputs, given, strict=False)}}
        plain = [b.name for b in self._func.buffers if b.name in arrays and self._func.layout_of(b.name) is None]
        shapes = {name: arrays[name].shape for name in plain}
        scalars = {v.name: int(arrays[v.name][0]) for v in self._func.integers if v.name in arrays}
        key = (*shapes.values(), *scalars.values())
        kernel = self._called.get(key)
        if kernel is None:
            kernel = self._of(values_of(self._func, shapes, scalars))
            with self._lock:
                self._called[key] = kernel
        return kernel

    def _of(self, values: Values) -> Kernel:
        """The kernel of these values, one of those that are kept."""
        key = tuple(values[v] for v in self._func.integers)
        with self._lock:
            kernel = self._known.get(key)
            if kernel is None:
                func = fixed(self._func, values)
                signature = arguments_of(func)
                sizes = [values[v] for v in self._func.sizes]
                code = self._executable.at([a.physical_shape for a in signature], sizes) if sizes else self._executable
                kernel = self._known[key] = Kernel(code, signature, self.interface, self._packed)
                kernel.given = None if self.given is None else fixed(self.given, values)
                kernel.about = self.about
                if len(self._known) > SHAPES:
                    self._known.popitem(last=False)
                    self._called.clear()
            return kernel

    def _fitting(self, argument: Argument, value: object) -> Array:
        """Of extents `values_of` says what is wrong; what has a layout has one shape."""
        shape = None if argument.layout.is_plain else self._shape(argument)
        return checked(argument.name, argument.dtype, shape, value)

    def pack(self, **constants: Array) -> Kernel:
        """A kernel with these inputs, of extents that are numbers, packed once and for all."""
        packed = super().pack(**constants)._packed
        strict = self._program is not None and self._program[1]
        kernel = RangedKernel(self._executable, self._func, self.interface, self.given or self._func, packed, strict)
        kernel.about = self.about
        return kernel

    def export(
        self, path: str | Path, format: str = "so", *, name: str | None = None, target: Target | None = None
    ) -> list[Path]:
        """As of a kernel of one shape; the C function takes the sizes behind its arrays, and checks them.

        Raises UsageError for a program that assumes more of sizes than a range for each.
        """
        if not tell_all(self._func):
            name = self._func.name
            raise UsageError(f"`{name}` assumes more of its sizes than a range for each, which C would not check")
        return super().export(path, format, name=name, target=target)
