"""Programs as script text: pieces from which the library's programs are put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.dtypes import int_range, is_int
from ...ir.size_ranges import Range
from .precision import Precision
from .sizes import Size

AxisText = tuple[str, int, str]
"""A loop's name, its extent, and ``S`` (spatial), ``R`` (reduce) or ``O`` (opaque); the iterator is ``v`` + name."""

KINDS = {"S": "spatial", "R": "reduce", "O": "opaque"}

Shape = tuple[int, ...]


def literal(value: int | float, dtype: str) -> str:
    """``T.float32(0)``; infinities and NaN as text, the way TVMScript spells them, those of integers as their ends."""
    if is_int(dtype) and math.isinf(value):
        value = int_range(dtype)[value > 0]
    finite = math.isfinite(value)
    return f"T.{dtype}({value if finite else repr(str(value))})"


def affine(base: str, scale: int, offset: str = "", offset_scale: int = 1, shift: int = 0) -> str:
    """``base * scale + offset * offset_scale - shift`` without the parts that change nothing."""
    text = base if scale == 1 else f"{base} * {scale}"
    if offset:
        text += f" + {offset}" if offset_scale == 1 else f" + {offset} * {offset_scale}"
    return f"{text} - {shift}" if shift > 0 else f"{text} + {-shift}" if shift else text


def element(buffer: str, at: Sequence[str]) -> str:
    """``buffer[i, j]``; the one element of a buffer without dimensions is ``buffer[()]``."""
    return f"{buffer}[{', '.join(at) or '()'}]"


def block(name: str, axes: Sequence[AxisText], body: str, init: str = "") -> str:
    """A loop nest around one block; `body` and `init` are single stores over the iterators."""
    if not axes:
        return f'    with T.block("{name}"):\n        {body}'
    loops = ", ".join(axis for axis, _, _ in axes)
    iters = ", ".join(f"v{axis}" for axis, _, _ in axes)
    extents = ", ".join(str(extent) for _, extent, _ in axes)
    kinds = "".join(kind for _, _, kind in axes)
    lines = [
        f"    for {loops} in T.grid({extents}):",
        f'        with T.block("{name}"):',
        f'            {iters} = T.axis.remap("{kinds}", [{loops}])',
    ]
    if len(axes) == 1:
        lines[2] = f"            {iters} = T.axis.{KINDS[kinds]}({extents}, {loops})"
    if init:
        lines += ["            with T.init():", f"                {init}"]
    return "\n".join([*lines, f"            {body}"])


@dataclass
class Program:
    """A function in the making: parameters in order, the root's allocations, then loop nests.

    Parameters are stored as `precision.storage` unless they say otherwise, and
    everything in between in `precision.accumulator`.
    """

    name: str
    precision: Precision
    params: list[str] = field(default_factory=list)
    sizes: dict[str, Range] = field(default_factory=dict)
    matches: list[str] = field(default_factory=list)
    allocs: list[str] = field(default_factory=list)
    nests: list[str] = field(default_factory=list)

    def inputs(self, shapes: Sequence[tuple[str, Shape]], dtype: str = "") -> None:
        """Declare parameters that are read, of the stored type or of `dtype`."""
        for name, shape in shapes:
            self._declare(name, shape, dtype or self.precision.storage)

    def output(self, name: str, shape: Shape, dtype: str = "") -> None:
        """Declare the parameter that is written, of the result's type or of `dtype`."""
        self._declare(name, shape, dtype or self.precision.result)

    def _declare(self, name: str, shape: Shape, dtype: str) -> None:
        """Declare a parameter; an array whose extents are no numbers gives their sizes."""
        sizes = [extent for extent in shape if isinstance(extent, Size)]
        if not sizes:
            self.params.append(f"    {name}: T.Buffer({shape}, {dtype!r}),")
            return
        self.params.append(f"    {name}_: T.handle,")
        self.matches.append(f"    {name} = T.match_buffer({name}_, {shape}, {dtype!r})")
        self.sizes.update(item for size in sizes for item in size.over)

    def alloc(self, name: str, shape: Shape, dtype: str = "") -> str:
        """Allocate a buffer of the accumulator's type, or of `dtype`; returns its name."""
        self.allocs.append(f"    {name} = T.alloc_buffer({shape}, {dtype or self.precision.accumulator!r})")
        return name

    def load(self, buffer: str, at: Sequence[str]) -> str:
        """An element of a stored buffer, in the accumulator's type."""
        return self.precision.widen(element(buffer, at))

    def zero(self) -> str:
        """0 in the accumulator's type."""
        return literal(0, self.precision.accumulator)

    def add(self, name: str, axes: Sequence[AxisText], body: str, init: str = "") -> None:
        """Append a loop nest around one block."""
        self.nests.append(block(name, axes, body, init))

    def stages(
        self, target: str, source: str, axes: Sequence[tuple[str, int]], at: Sequence[str], steps: Sequence[Step]
    ) -> None:
        """``target[at] = step_n(... step_1(source[at]))``, a block for each step, over the iterators of `axes`.

        A step is its block's name and a text with ``{v}`` for the value and ``{i}`` for the
        number that sets its loops apart; `at` are the iterators that index the buffers.  The
        last step gives the result's type.
        """
        shape = tuple(dict(axes)[a] for a in at)
        for number, (name, text) in enumerate(steps):
            last = number == len(steps) - 1
            point = ", ".join(f"v{a}{number}" for a in at)
            into = target if last else self.alloc(f"t{number}", shape)
            value = text.format(v=f"{source}[{point}]", i=number)
            value = self.precision.narrow(value) if last else value
            self.add(name, [(f"{a}{number}", e, "S") for a, e in axes], f"{into}[{point}] = {value}")
            source = into

    def text(self) -> str:
        """The whole function."""
        head = ["@T.prim_func", f"def {self.name}(", *self.params, "):"]
        sizes = [f"    {name} = T.int64()" for name in self.sizes]
        known = [text for name, numbers in self.sizes.items() for text in _known(name, numbers)]
        assumed = [f"    T.assume({' and '.join(known)})"] if known else []
        return "\n".join([*head, *sizes, *self.matches, *assumed, *self.allocs, *self.nests]) + "\n"


def _known(name: str, numbers: Range) -> list[str]:
    """What holds of a size."""
    divides = [f"{name} % {numbers.step} == 0"] if numbers.step > 1 else []
    return [f"{numbers.low} <= {name}", f"{name} <= {numbers.high}", *divides]


Step = tuple[str, str]
