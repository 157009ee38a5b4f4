"""From a model file or a network to one callable: what `ss.compile` and the command are made of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ..errors import ToolMissing
from ..ir.collection import lasting
from .inputs import Given, Shapes
from .network import REFERENCE, Network

if TYPE_CHECKING:
    from ..ir.target import Target
    from .forms import Forms
    from .run.model import Model

Source: TypeAlias = "str | os.PathLike[str] | Network"


@dataclass(frozen=True)
class Reading:
    """How a source is read: what its `inputs` are, and `winograd`, `precision` and `fallback` as in `ss.compile`."""

    inputs: Given = field(default_factory=Given)
    winograd: bool = True
    precision: str = "float32"
    fallback: str = REFERENCE


def network_of(source: Source, target: Target, inputs: Given | Shapes | None = None, winograd: bool = True) -> Network:
    """A network with its operators in groups: the one that an ONNX file holds, or a given one.

    `inputs` gives shapes to inputs that a file leaves open, or these and values (`models.inputs`).  With `winograd`,
    convolutions of three taps have fewer multiplications on CPUs where that pays (`models.winograd`).  Subnormal
    weights count as zeros (`models.weights`).  Raises ToolMissing for a file where the package `onnx` is not installed.
    """
    return forms(source, target, inputs, winograd)[0]


@contextmanager
def needing_onnx() -> Iterator[None]:
    """Around an import that needs the package `onnx`: raises ToolMissing where that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "onnx":
            raise
        raise ToolMissing(
            "a model's file is read by the package `onnx`, which is not installed: pip install 'stridesmith[onnx]'"
        ) from None


def forms(
    source: Source,
    target: Target,
    inputs: Given | Shapes | None = None,
    winograd: bool = True,
    precision: str = "float32",
) -> Forms:
    """`network_of`, and the other forms of the same network (`models.forms`), with edges and weights in `precision`.

    In another precision than ``float32`` no convolution has fewer multiplications: those add up before they multiply.
    """
    from .forms import forms_of
    from .fusion import fused
    from .precision import WIDE, check_precision, in_precision
    from .weights import without_subnormals

    check_precision(precision)
    if not isinstance(source, Network):
        _refuse_programs(source)
        with needing_onnx():
            from .onnx import read

        source = read(source, Given.of(inputs))
    network = fused(source, target)
    if precision == WIDE:
        return forms_of(network, target, winograd)
    return forms_of(in_precision(without_subnormals(network), precision), target, winograd=False)


@lasting
def read_as(source: Source, target: Target, how: Reading, db: str | None = None, tuning: bool = False) -> Network:
    """The fastest form of the network of a source, with what runs the operators that have no program here.

    Raises UsageError for a `fallback` or a `precision` that there is not, and what `forms` raises.
    """
    from .fallback import check_fallback, with_fallback

    check_fallback(how.fallback)
    made = forms(source, target, how.inputs, how.winograd, how.precision)
    return with_fallback(fastest_of(made, target, db, tuning), how.fallback, target.threads)


def fastest_of(made: Forms, target: Target, db: str | None = None, tuning: bool = False) -> Network:
    """The fastest of several forms of a network, as measured (`models.forms`).

    Where nothing was measured, no other form than the first is made.
    """
    from ..search.records.reading import reading
    from .forms import fastest

    with reading(db) as database:
        return made[0] if database is None else fastest(made, target, database, tuning)


def _refuse_programs(source: object) -> None:
    """Raise TypeError for what is no model."""
    kinds = [kind.__name__ for kind in type(source).__mro__]
    if not isinstance(source, str | bytes | os.PathLike) and "ModelProto" not in kinds:
        raise TypeError(
            f"`compile` takes a model: the path of an ONNX file, its bytes, a ModelProto or a Network, but got "
            f"something of type {kinds[0]}; `ss.build` and `ss.load` make a kernel of a single program"
        )


@lasting
def compiled(network: Network, target: Target, db: str | None = None) -> Model:
    """A network with the best kernels that the database has for its operators, in the layouts that it keeps for it.

    Where nothing was measured, both are what the estimate likes best (`models.unmeasured`).
    """
    from ..search.records.reading import reading
    from ..search.workers.spread import AllCores
    from .run.in_place import compile_overwriting
    from .run.kernels import kernels_of
    from .run.model import Model
    from .tasks import tasks_of
    from .unmeasured import laid_out

    with reading(db) as database, AllCores() as build:
        tasks = tasks_of(network, target)
        made = laid_out(network, tasks, target, database, lambda: build.begin(len(tasks), target))
        kernels = kernels_of(tasks if made is network else tasks_of(made, target), database, build)
        compile_overwriting(made, kernels, target, build)
    return Model(made, kernels, target)
