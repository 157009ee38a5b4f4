"""A tuned kernel on NumPy arrays, and on whatever else on the CPU has ``__dlpack__``.

This file stands alone: it is part of every exported package, beside the shared object and ``interface.json``, which
says what the functions take.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ALIGNMENT = 64  # a cache line, as in `backends.memory`
_DTYPES = {
    "bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "int4": "int8", "uint4": "uint8",
}  # fmt: skip
_SCALARS = {
    "bool": ctypes.c_uint8, "int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32,
    "int64": ctypes.c_int64, "uint8": ctypes.c_uint8, "uint16": ctypes.c_uint16, "uint32": ctypes.c_uint32,
    "uint64": ctypes.c_uint64, "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip


_OPERATIONS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}  # fmt: skip


class Argument(NamedTuple):
    """What a function takes: `physical_shape` is how it lies in memory, `index_map` and `pad_value` say why.

    An extent that calls decide is -1.
    """

    name: str
    logical_shape: tuple[int, ...]
    physical_shape: tuple[int, ...]
    dtype: str
    index_map: str
    pad_value: str
    is_output: bool
    is_scalar: bool

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """NumPy's type; a float that NumPy has not is its bits, an integer of 4 bits the lower half of a byte."""
        return np.dtype(_DTYPES.get(self.dtype, self.dtype))


class Code:
    """The shared object of a folder, loaded once for all kernels made of it."""

    def __init__(self, folder: Path) -> None:
        described = json.loads((folder / "interface.json").read_text(encoding="utf-8"))
        self.name: str = described["name"]
        self.about: str = described["about"]
        self.functions: list[Mapping[str, Any]] = described["functions"]
        self._object = ctypes.CDLL(str(folder / described["file"]))
        if not self.function(f"{self.name}_supported")():
            raise ImportError(f"{self.name} needs a CPU that this machine has not: {described['cpu']}")
        self._message = self.function(f"{self.name}_message")
        self._message.restype = ctypes.c_char_p

    def function(self, name: str) -> Any:
        """The function of C; its calls release the interpreter lock."""
        return getattr(self._object, name)

    def call(self, name: str, arguments: Sequence[Any]) -> None:
        """One call.  Raises RuntimeError with the library's words where it computed nothing."""
        code = self.function(name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {self._message(code).decode()}")

    def threads(self) -> int:
        """The threads of a call, its caller included."""
        return int(self.function(f"{self.name}_threads")())

    def set_threads(self, number: int) -> None:
        """Let calls use so many threads; 0 is the number that the kernel was tuned for."""
        self.function(f"{self.name}_set_threads")(ctypes.c_int(number))


class Kernel:
    """``y = kernel(x, w)``, or ``kernel(x, w, out=y)``; ``kernel.pack(w=w)`` packs constants once.

    Arrays are C-contiguous and of exactly the expected shape and dtype: the logical one, except that an argument whose
    layout the kernel has chosen has the physical one, see `to_physical` and `to_logical`.  Nothing is cast or copied.
    Where extents are sizes, by name in `extents`, arrays may have any in their `ranges`: least, largest, step.
    """

    def __init__(self, code: Code, packed: Mapping[str, Any] | None = None) -> None:
        main = code.functions[0]
        self.ranges: Mapping[str, Sequence[int]] = main["sizes"]
        self.extents: Mapping[str, Sequence[Any]] = main["extents"]
        parameters = [Argument(*map(_hashable, item)) for item in main["parameters"]]
        self._counts = [a for a in parameters if a.name in main["counted"]]
        self.signature = tuple(a for a in parameters if a.name not in main["counted"])
        self._code, self._name, self._packers, self._called = code, main["name"], main["packers"], main["called"]
        self._packed = dict(packed or {})
        self._inputs = [a for a in self.signature if not a.is_output and a.name not in self._packed]
        self._outputs = [a for a in self.signature if a.is_output]

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Run on `inputs`; returns the output, or a tuple of them, which are `out` where that is given."""
        if len(inputs) != len(self._inputs):
            names = ", ".join(a.name for a in self._inputs)
            raise TypeError(f"{self._name} takes {len(self._inputs)} inputs ({names}), but got {len(inputs)}")
        given: dict[str, Any] = dict(self._packed)
        sizes = self._sizes_of(inputs, out) if self.ranges else {}
        for argument, value in zip(self._inputs, inputs):  # noqa: B905, lengths are equal
            given[argument.name] = value if argument.is_scalar else self._input(argument, value, sizes)
        results = self._results(out, sizes)
        for argument, array in zip(self._outputs, results[1]):  # noqa: B905, lengths are equal
            for name, other in given.items():
                if isinstance(other, np.ndarray) and np.may_share_memory(array, other):
                    raise ValueError(f"`{argument.name}` is written and shares memory with `{name}`")
            given[argument.name] = array
        counts = [_passed(a, sizes[a.name]) for a in self._counts]
        self._code.call(self._name, [*(_passed(a, given[a.name]) for a in self.signature), *counts])
        return results[0][0] if len(results[0]) == 1 else tuple(results[0])

    def pack(self, **constants: Any) -> Kernel:
        """A kernel with these inputs packed once; it takes the others."""
        packed = dict(self._packed)
        names = {a.name: a for a in self._inputs}
        for name, value in constants.items():
            if name not in names:
                raise TypeError(f"{self._name} has no input {name!r} to pack; there are {', '.join(names)}")
            if name in self.extents:
                raise TypeError(f"{self._name} takes `{name}` with extents that each call decides: it is not packed")
            array = self._input(names[name], value, {})
            packed[name] = array.copy() if name not in self._packers else array
        return Kernel(self._code, packed)

    def to_physical(self, name: str, array: Any) -> Any:
        """A logical array in the layout that argument `name` has in memory."""
        return self._moved(name, f"{self._code.name}_pack_{self._called.get(name)}", array, to_logical=False)

    def to_logical(self, name: str, array: Any) -> Any:
        """The logical array of what the kernel has written as `name`."""
        return self._moved(name, f"{self._code.name}_unpack_{self._called.get(name)}", array, to_logical=True)

    def _moved(self, name: str, mover: str, array: Any, to_logical: bool) -> Any:
        argument = next((a for a in self.signature if a.name == name), None)
        if argument is None:
            known = ", ".join(a.name for a in self.signature)
            raise TypeError(f"{self._name} has no argument {name!r}; there are {known}")
        if all(function["name"] != mover for function in self._code.functions):
            return _checked(argument, argument.logical_shape, array)
        shapes = argument.logical_shape, argument.physical_shape
        source, result = shapes[::-1] if to_logical else shapes
        moved = _empty(result, argument.numpy_dtype)
        given = _checked(argument, source, array)  # kept until the call is over
        self._code.call(mover, [_address(given), _address(moved)])
        return moved

    def _sizes_of(self, inputs: Sequence[Any], out: Any) -> dict[str, int]:
        """The sizes of a call by name, of which each stands alone as an extent of an array."""
        results = () if out is None else out if isinstance(out, (tuple, list)) else (out,)
        sizes = {a.name: int(v) for a, v in zip(self._inputs, inputs) if a.name in self.ranges}  # noqa: B905
        for argument, value in (*zip(self._inputs, inputs), *zip(self._outputs, results)):  # noqa: B905
            extents, shape = self.extents.get(argument.name, ()), tuple(getattr(value, "shape", ()))
            if len(extents) != len(shape):
                continue  # which is said of this array below
            for axis, (extent, size) in enumerate(zip(extents, shape)):  # noqa: B905
                if isinstance(extent, str) and extent not in sizes:
                    low, high, step = self.ranges[extent]
                    if not low <= size <= high or size % step:
                        told = f"{low}..{high}" + (f":{step}" if step > 1 else "")
                        raise ValueError(
                            f"{self._name} takes {extent} = {told}, but got {size}, from axis {axis} of "
                            f"`{argument.name}`"
                        )
                    sizes[extent] = int(size)
        for argument in self._inputs:
            extents = self.extents.get(argument.name, ())
            if unknown := [extent for extent in extents if isinstance(extent, str) and extent not in sizes]:
                raise ValueError(f"`{argument.name}` must have {len(extents)} dimensions, which give {unknown[0]}")
        if unknown := [name for name in self.ranges if name not in sizes]:
            raise TypeError(f"no array that is given has the extent {unknown[0]}; pass `out` as well")
        return sizes

    def _input(self, argument: Argument, value: Any, sizes: Mapping[str, int]) -> Any:
        if isinstance(value, np.generic):  # what NumPy makes of arrays without dimensions
            value = np.asarray(value)
        if argument.name in self._packers:
            return self._moved(argument.name, self._packers[argument.name], value, to_logical=False)
        return _checked(argument, self._shape(argument, sizes), value)

    def _shape(self, argument: Argument, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape in which the caller gives an argument that is not packed."""
        if argument.name in self.extents:
            return tuple(_valued(extent, sizes) for extent in self.extents[argument.name])
        called = self._called[argument.name]
        movers = (f"{self._code.name}_pack_{called}", f"{self._code.name}_unpack_{called}")
        moved = any(function["name"] in movers for function in self._code.functions)
        return argument.physical_shape if moved else argument.logical_shape

    def _results(self, out: Any, sizes: Mapping[str, int]) -> tuple[list[Any], list[Any]]:
        """What is returned, and the arrays to write: new ones, or those of `out`."""
        if out is None:
            fresh = [_empty(self._shape(a, sizes), a.numpy_dtype) for a in self._outputs]
            return fresh, fresh
        given = list(out) if isinstance(out, (tuple, list)) else [out]
        if len(given) != len(self._outputs):
            raise TypeError(f"{self._name} has {len(self._outputs)} outputs, but `out` holds {len(given)} arrays")
        arrays = [_checked(a, self._shape(a, sizes), value) for a, value in zip(self._outputs, given)]  # noqa: B905
        for argument, array in zip(self._outputs, arrays):  # noqa: B905
            if not array.flags.writeable:
                raise ValueError(f"`out` for `{argument.name}` is read-only")
        return given, arrays


def _valued(extent: Any, sizes: Mapping[str, int]) -> int:
    """An extent where the sizes have these values."""
    if isinstance(extent, str):
        return sizes[extent]
    if isinstance(extent, int):
        return extent
    op, a, b = extent
    return int(_OPERATIONS[op](_valued(a, sizes), _valued(b, sizes)))


def _checked(argument: Argument, shape: tuple[int, ...], value: Any) -> Any:
    """The argument as an array of this shape, without a copy."""
    array = value if isinstance(value, np.ndarray) else None
    if array is None:
        if not hasattr(value, "__dlpack__"):
            raise TypeError(f"`{argument.name}` must be an array, but got {type(value).__name__}")
        if getattr(value, "is_neg", bool)():  # DLPack says nothing of PyTorch's views such as `z.conj().imag`
            raise TypeError(f"`{argument.name}` is the negative of what its memory holds; resolve_neg() copies it")
        array = np.from_dlpack(value)
    if argument.dtype in _DTYPES and array.dtype.name == argument.dtype:
        array = array.view(argument.numpy_dtype)
    if array.dtype != argument.numpy_dtype:
        raise TypeError(f"`{argument.name}` must have dtype {argument.numpy_dtype}, but got {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"`{argument.name}` must have shape {shape}, but got {array.shape}")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise ValueError(f"`{argument.name}` must be C-contiguous and aligned; np.ascontiguousarray makes it so")
    return array


def _passed(argument: Argument, value: Any) -> Any:
    if not argument.is_scalar:
        return _address(value)
    if argument.dtype == "float16":
        return ctypes.c_uint16(int(np.float16(value).view(np.uint16)))
    if argument.dtype in _DTYPES:
        raise TypeError(f"`{argument.name}` is a {argument.dtype} number, which Python cannot pass")
    kind = _SCALARS[argument.dtype]
    if "int" in argument.dtype and np.dtype(argument.dtype).type(value) != value:
        raise ValueError(f"`{argument.name}` = {value} does not fit the type {argument.dtype}")
    return kind(value)


def _address(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An array at an address that is a multiple of `ALIGNMENT`."""
    count = int(np.prod(shape, dtype=np.int64))
    storage = np.empty(count * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -storage.ctypes.data % ALIGNMENT
    return storage[start : start + count * dtype.itemsize].view(dtype).reshape(shape)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
