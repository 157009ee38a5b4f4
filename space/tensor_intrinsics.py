"""Tensor intrinsics: what an instruction computes, and how it is written, as two functions.

`desc` says in plain loops around one block what the parameters mean to each other, and
`impl` computes the same in another way: in vectors, as one fused expression, unrolled.  A
schedule puts the implementation in the place of a block that the description matches
(`tensorize`).  Both are functions of our own language, so that everything that holds for
programs (bounds, interpretation, lowering to every target) holds for what they become.
Source: TensorIR (Feng et al., ASPLOS 2023), `TensorIntrin`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..ir import dtypes
from ..ir.affine.sets import Unknown, box
from ..ir.caches import cached
from ..ir.dataflow.accesses import element_variables
from ..ir.dataflow.regions import regions
from ..ir.expr import TRUE
from ..ir.interpreter.interpret import interpret
from ..ir.script.parser import parse
from ..ir.stmt import Block, For, PrimFunc, Stmt, written_buffers
from ..ir.verify.bounds import check_in_bounds
from ..ir.verify.rules import VerifyError, verify
from .builtin_intrinsics import BUILTIN
from .errors import ScheduleError
from .primitive import forget
from .tree import extent_of

LARGEST = 2**16
TOLERANCE = 1e-4


@dataclass(frozen=True)
class TensorIntrin:
    """A description and an implementation over the same parameters."""

    desc: PrimFunc
    impl: PrimFunc

    _known: ClassVar[dict[str, TensorIntrin]] = {}

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> None:
        """Make an intrinsic known under `name`.

        Conditions: (1) the name is not taken, or `override`; (2) both are valid functions over
        buffers of equal shapes, types and scopes; (3) `desc` is a nest of loops around one block,
        without init and conditions; (4) `desc` touches every element of its buffers; (5) `impl`
        stays inside them and writes only what `desc` writes; (6) both give the same on
        numbers that are exact.  Raises ScheduleError.
        """
        if not override and name in TensorIntrin.names():
            raise ScheduleError("(1) there is an intrinsic `{name}` already", name=name)
        TensorIntrin._known[name] = checked(desc, impl)
        forget()

    @staticmethod
    def get(name: str) -> TensorIntrin:
        """The intrinsic of this name.  Raises ScheduleError, which lists the known ones."""
        if name in TensorIntrin._known:
            return TensorIntrin._known[name]
        if name not in BUILTIN:
            raise ScheduleError("there is no intrinsic `{name}`; there are {known}",
                                name=name, known=", ".join(TensorIntrin.names()))  # fmt: skip
        return _builtin(name)

    @staticmethod
    def names() -> tuple[str, ...]:
        """Every name that is known."""
        return tuple(sorted({*TensorIntrin._known, *BUILTIN}))


def nest_of_description(desc: PrimFunc) -> tuple[tuple[For, ...], Block]:
    """The loops and the block of a description.  Raises ScheduleError for anything else."""
    found: list[For] = []
    stmt: Stmt = desc.body.body
    while isinstance(stmt, For):
        found.append(stmt)
        extent_of(stmt)
        stmt = stmt.body
    plain = isinstance(stmt, Block) and stmt.init is None and stmt.predicate == TRUE and not desc.body.allocs
    if not plain:
        raise ScheduleError("(3) the description `{name}` must be loops around one block without init and conditions",
                            name=desc.name)  # fmt: skip
    assert isinstance(stmt, Block)
    return tuple(found), stmt


def checked(desc: PrimFunc, impl: PrimFunc) -> TensorIntrin:
    """An intrinsic that satisfies conditions (2) to (6) of `register`."""
    try:
        verify(desc)
        verify(impl)
        check_in_bounds(desc)
        check_in_bounds(impl)
    except (VerifyError, ValueError) as error:
        raise ScheduleError("(2) {error}", error=str(error)) from None
    _check_parameters(desc, impl)
    nest_of_description(desc)
    extra = [b.name for b, own in zip(impl.buffers, desc.buffers, strict=True)
             if b in written_buffers(impl) and own not in written_buffers(desc)]  # fmt: skip
    if extra:
        raise ScheduleError("(5) the implementation writes `{buffer}`, which the description only reads",
                            buffer=extra[0])  # fmt: skip
    _check_whole(desc)
    _check_equal(desc, impl)
    return TensorIntrin(desc, impl)


@cached(64)
def _builtin(name: str) -> TensorIntrin:
    """One of `BUILTIN`, checked when it is first used."""
    desc, impl = map(parse, BUILTIN[name])
    assert isinstance(desc, PrimFunc)
    assert isinstance(impl, PrimFunc)
    return checked(desc, impl)


def _check_parameters(desc: PrimFunc, impl: PrimFunc) -> None:
    pairs = [[(b.shape, b.dtype, b.scope) for b in func.buffers] for func in (desc, impl)]
    if pairs[0] != pairs[1] or any(len(func.buffers) != len(func.params) for func in (desc, impl)):
        raise ScheduleError("(2) `{desc}` and `{impl}` must take buffers of equal shapes, types and scopes",
                            desc=desc.name, impl=impl.name)  # fmt: skip
    if sum(b.size for b in desc.buffers) > LARGEST:
        raise ScheduleError("(2) an intrinsic touches at most {most} elements", most=LARGEST)


def _check_whole(desc: PrimFunc) -> None:
    """Check condition (4): the accesses of all iterations touch every element of each buffer.  Raises ScheduleError."""
    touched = regions(desc)
    for buffer in desc.buffers:
        left = box(element_variables(buffer), buffer.shape)
        try:
            for region in (*touched.reads, *touched.writes):
                if region.buffer == buffer and region.exact:
                    left = left.subtract(region.elements)
            whole = left.is_empty()
        except Unknown:
            whole = False
        if not whole:
            raise ScheduleError("(4) the description does not touch every element of `{buffer}`", buffer=buffer.name)


def _check_equal(desc: PrimFunc, impl: PrimFunc) -> None:
    """Check condition (6) on small integers, whose sums and products are exact in the common types."""
    rng = np.random.default_rng(0)
    start = [rng.integers(1, 8, b.shape).astype(_array_type(b.dtype)) for b in desc.buffers]
    results = []
    for func in (desc, impl):
        arrays = [a.copy() for a in start]
        interpret(func, *arrays, strict_state=False)
        results.append(arrays)
    for buffer, expected, got in zip(desc.buffers, *results, strict=True):
        if not np.allclose(got.astype(np.float64), expected.astype(np.float64), rtol=TOLERANCE, atol=TOLERANCE):
            at = tuple(int(i) for i in np.argwhere(got != expected)[0])
            raise ScheduleError(
                "(6) on sample data the implementation gives {got} for {buffer}[{at}], the description {expected}",
                got=got[at], expected=expected[at], buffer=buffer.name, at=", ".join(map(str, at)),
            )  # fmt: skip


def _array_type(dtype: str) -> str:
    if dtypes.lanes(dtype) != 1 or dtype == "bfloat16":
        raise ScheduleError("(2) parameters of an intrinsic are scalars that NumPy has, but got {dtype}", dtype=dtype)
    return dtype
