"""Workloads: a program, its parameters, and a reference that knows nothing of our lowering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from ...errors import ShapeError, UnknownWorkload, did_you_mean
from ...ir import dtypes
from ...ir.caches import cached
from ...ir.markup import program as shown
from ...ir.ranges import fixed
from ...ir.script.programs import Program
from ...ir.script.programs import func_of as function
from ...ir.size_ranges import ranges_of
from ...ir.stmt import PrimFunc, written_buffers
from .conv import Conv1d, Conv2d, Conv2dBiasAct, Conv3d
from .conv_transpose import Conv2dTranspose
from .depthwise import DepthwiseConv2d
from .matmul import BatchMatmul, Matmul, MatmulBiasAct
from .operator import Array, Arrays, Operator, Parameter, Value, describe
from .pointwise import AddAct, ScaleShiftRelu
from .pool import AvgPool2d, GlobalAvgPool2d, GlobalMaxPool2d, MaxPool2d
from .reductions import REDUCTIONS
from .rows import LayerNorm, Softmax
from .sizes import Size

_ALL: tuple[type[Operator], ...] = (
    Conv1d, Conv2d, Conv3d, Conv2dTranspose, DepthwiseConv2d, Conv2dBiasAct, Matmul, BatchMatmul, MatmulBiasAct,
    MaxPool2d, AvgPool2d, GlobalMaxPool2d, GlobalAvgPool2d, *REDUCTIONS, Softmax, LayerNorm, ScaleShiftRelu,
    AddAct,
)  # fmt: skip
OPERATORS: dict[str, type[Operator]] = {operator.name: operator for operator in _ALL}


@dataclass(frozen=True, eq=False)
class Workload:
    """A program to tune.

    `params` are the resolved parameters, the dtype among them, so that
    ``workload(w.name, **w.params)`` gives the same program; a user's function has
    none.  `constants` are the inputs that are weights.  ``reference(inputs)``
    takes logical arrays by name and returns the outputs by name; half floats and bytes
    among the inputs are summed as the program does, other types in themselves.  What the
    program holds as bfloat16 or float8 is the float32 of equal value.  `sizes` are the parameters that are ranges, by
    the name that each has in the program.
    """

    name: str
    params: Mapping[str, Value]
    func: PrimFunc
    constants: tuple[str, ...]
    reference: Callable[[Arrays], dict[str, Array]] = field(repr=False)
    sizes: Mapping[str, str] = field(default_factory=dict, repr=False)

    def at(self, values: Mapping[str, int]) -> Workload:
        """The workload of one shape, by the values of all sizes of a program whose extents are expressions."""
        if self.params:
            return workload(self.name, **{**self.params, **{self.sizes[name]: value for name, value in values.items()}})
        return from_func(fixed(self.func, {v: values[v.name] for v in self.func.sizes}))

    @cached_property
    def shape(self) -> dict[str, Value]:
        """The parameters without the dtype; of a user's function the ranges of its sizes."""
        if not self.params and self.func.stated:
            return {v.name: str(numbers) for v, numbers in ranges_of(self.func).items()}
        return {name: value for name, value in self.params.items() if name != "dtype"}

    @property
    def dtype(self) -> str:
        """The element type of the library's program, as it was asked for; that of a user's first output."""
        asked = self.params.get("dtype")
        return str(asked) if asked else next((b.dtype for b in self.func.buffers if b.name in self.outputs), "")

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the parameters that the program writes, in order."""
        written = set(written_buffers(self.func))
        return tuple(b.name for b in self.func.buffers if b in written)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the parameters that the program only reads, in order."""
        return tuple(b.name for b in self.func.buffers if b.name not in self.outputs)

    @cached_property
    def script(self) -> str:
        """The canonical program text: two workloads are the same when this is."""
        return self.func.script()

    @cached_property
    def flops(self) -> int:
        """Operations of the untransformed program, 2 for a multiply-add: of floats, or of integers if it has more.

        0 for a program of ranges, which is one for each shape.
        """
        from ...ir.analysis import count_operations

        return 0 if self.func.stated else count_operations(self.func)

    @cached_property
    def computes_integers(self) -> bool:
        """Whether most operations are those of integers."""
        from ...ir.analysis import count_integer_operations

        return not self.func.stated and 0 < count_integer_operations(self.func) == self.flops

    @property
    def speed_unit(self) -> str:
        """What a thousand million of its operations in a second are called."""
        return "Gop/s" if self.computes_integers else "GFLOP/s"

    @cached_property
    def peak_dtype(self) -> str:
        """The type whose peak bounds the program: that of factors which are summed, else what it computes in.

        Of integers that are not multiplied it is the smallest type that is read.
        """
        from ...ir.analysis import product_dtype

        if found := product_dtype(self.func):
            return found
        kinds = [b.dtype for b in self.func.buffers if b.name in self.inputs and dtypes.is_int(b.dtype)]
        return min(kinds, key=dtypes.bits) if self.computes_integers and kinds else self.dtype

    def __repr__(self) -> str:
        """The program by its name and shape."""
        return f"<Workload {self}>"

    def _repr_html_(self) -> str:
        return shown(self.script)

    def __str__(self) -> str:
        shape = describe(self.shape)
        return f"{self.name}({shape}) {self.dtype}" if shape else f"{self.name} {self.dtype}"


def names() -> tuple[str, ...]:
    """The library's workloads."""
    return tuple(OPERATORS)


def parameters(name: str) -> tuple[Parameter, ...]:
    """The parameter table of one workload.  Raises UnknownWorkload."""
    return _operator(name).parameters()


def summary(name: str) -> str:
    """One line about a workload.  Raises UnknownWorkload."""
    return _operator(name).summary


def workload(name: str, **params: Any) -> Workload:
    """A workload of the library, e.g. ``workload("conv2d", ci=64, co=64, k=3, pad=1)``.

    Parameters that are not named keep their defaults; `dtype` (default
    ``float32``) is one of them.  Raises UnknownWorkload, UnknownParameter or
    ShapeError, each with what to try.
    """
    kind = _operator(name)
    asked = params.pop("dtype", "float32")
    dtype = asked.__name__ if isinstance(asked, type) else str(asked)
    if dtype not in kind.dtypes:
        meant = SPELLINGS.get(dtype.lower(), "")
        is_integer = dtype.rstrip("0123456789") in ("int", "uint")  # who says int4 does not mean int64
        near = "" if is_integer else did_you_mean(dtype, kind.dtypes)
        hint = f"; did you mean {meant!r}?" if meant in kind.dtypes else near
        raise ShapeError(f"`{name}` takes dtype {', '.join(kind.dtypes)}, but got {dtype!r}{hint}")
    return _build(kind.resolve(params), dtype)


SPELLINGS = {
    "float": "float32", "fp32": "float32", "f32": "float32", "single": "float32", "fp64": "float64", "f64": "float64",
    "double": "float64", "half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16", "i8": "int8",
    "s8": "int8", "u8": "uint8", "char": "int8", "byte": "uint8",
}  # fmt: skip
"""What types are called elsewhere."""


@cached(256)
def _build(operator: Operator, dtype: str) -> Workload:
    from ...ir.script.parser import parse

    func = parse(operator.script(dtype))
    assert isinstance(func, PrimFunc)
    given = {**operator.shape(), "dtype": dtype}
    shown = {name: getattr(operator, operator.joint.get(name, (name,))[0]) for name in operator.shape()}
    sizes = {v.over[0][0]: name for name, v in shown.items() if isinstance(v, Size)}
    made = Workload(operator.name, given, func, operator.constants, operator.reference, sizes)
    if sizes:
        _check_ends(made)
    return made


def _check_ends(work: Workload) -> None:
    """Raises ShapeError unless a program of ranges is, at each of their ends, what it is for that shape alone."""
    ranges = ranges_of(work.func)
    lost = sorted(set(work.sizes) - {v.name for v in ranges})
    for ends in product(*(numbers.ends for numbers in ranges.values())) if not lost else ():
        at = dict(zip(ranges, ends, strict=True))
        if fixed(work.func, at) != work.at({v.name: number for v, number in at.items()}).func:
            lost = [v.name for v in at]
    if lost:
        names = ", ".join(work.sizes[name] for name in lost)
        raise ShapeError(f"`{work.name}` takes no range for {names}: its program is another one for each number")


def from_func(func: Program) -> Workload:
    """A user's program as a workload; its reference is the interpreter."""
    program = function(func, "from_func")
    return Workload(program.name, {}, program, (), lambda arrays: _interpret(program, arrays))


def _interpret(func: PrimFunc, arrays: Arrays) -> dict[str, Array]:
    """Run `func` on `arrays`: in its own types where these are the inputs', else all floats in the inputs' widest."""
    from ...ir.interpreter.interpret import interpret
    from ...ir.numbers import boundary_dtype, numbers_of, numpy_dtype, to_storage
    from .retype import with_floats

    types = {b.name: b.dtype for b in func.buffers}
    arrays = {name: numbers_of(types[name], a) for name, a in arrays.items()}
    floats = [a.dtype for a in arrays.values() if a.dtype.kind == "f"]
    inputs = [b for b in func.buffers if b.name in arrays and dtypes.is_float(b.dtype)]
    is_own = all(arrays[b.name].dtype == numpy_dtype(b.dtype) for b in inputs)
    typed = func if is_own or not floats else with_floats(func, np.result_type(*floats).name)
    written = {b.name for b in written_buffers(typed)}
    given: list[Array] = []
    outputs: dict[str, Array] = {}
    for buffer in typed.buffers:
        if buffer.name in written:
            outputs[buffer.name] = np.zeros(buffer.shape, boundary_dtype(buffer.dtype))
            given.append(outputs[buffer.name])
        else:
            array = arrays[buffer.name]
            array = array.astype(numpy_dtype(buffer.dtype), copy=False) if array.dtype.kind == "f" else array
            given.append(np.asarray(to_storage(buffer.dtype, array)))
    interpret(typed, *given)
    return {b.name: numbers_of(b.dtype, outputs[b.name]) for b in typed.buffers if b.name in outputs}


def _operator(name: str) -> type[Operator]:
    if not isinstance(name, str):
        raise TypeError(f"`workload` takes the name of a workload, but got something of type {type(name).__name__}")
    if name.lower().endswith(".onnx"):
        raise UnknownWorkload(f"{name!r} is no workload, but a model: `--model` takes it, and `ss.compile` in Python")
    if name not in OPERATORS:
        known = ", ".join(OPERATORS)
        raise UnknownWorkload(f"there is no workload {name!r}{did_you_mean(name, OPERATORS)}; there are {known}")
    return OPERATORS[name]
