"""`ss.compile`: a model file or a network, as one callable."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ToolMissing
from .inputs import Given, Shapes
from .network import REFERENCE, Network

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..search.tuning.events import Emit
    from .forms import Forms
    from .run.model import Model

Source: TypeAlias = "str | os.PathLike[str] | Network"


def network_of(source: Source, target: Target, inputs: Given | Shapes | None = None, winograd: bool = True) -> Network:
    """A network with its operators in groups: the one that an ONNX file holds, or a given one.

    `inputs` gives shapes to inputs that a file leaves open, or these and values (`models.inputs`).  With `winograd`,
    convolutions of three taps have fewer multiplications on CPUs where that pays (`models.winograd`).  Subnormal
    weights count as zeros (`models.weights`).  Raises ToolMissing for a file where the package `onnx` is not installed.
    """
    return forms(source, target, inputs, winograd)[0]


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
        try:
            from .onnx import read
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "onnx":
                raise
            raise ToolMissing(
                "a model's file is read by the package `onnx`, which is not installed: pip install 'stridesmith[onnx]'"
            ) from None

        source = read(source, Given.of(inputs))
    network = fused(source, target)
    if precision == WIDE:
        return forms_of(network, target, winograd)
    return forms_of(in_precision(without_subnormals(network), precision), target, winograd=False)


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


def compile(
    source: Source,
    target: str | Target = "cpu",
    *,
    seconds: float | None = None,
    inputs: Shapes | None = None,
    values: Mapping[str, Any] | None = None,
    db: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    address: str | None = None,
    winograd: bool = True,
    precision: str = "float32",
    fallback: str = REFERENCE,
    emit: Emit | None = None,
) -> Model:
    """The model of an ONNX file or a network: ``y = model(x)``.

    With `seconds` its operators are tuned, and this returns by then; what is found is kept in the database.  Without,
    or with 0, the best kernels that the database has are used, and what the estimate likes best for operators that it
    has none of; what has been compiled once is read from the user's cache then.
    `inputs` gives shapes to the inputs of a file, by name, where the file leaves them open; an input to which `values`
    gives a value is that constant, and no input of the model, such as a sample rate that chooses a branch.  Without
    `winograd` no convolution is computed with fewer multiplications than it has; a database keeps both forms of a
    model apart, and with it the form that was measured to be the faster one is used.
    `precision` is the type of weights, and of what operators hand on to each other, ``bfloat16`` or ``float16`` where
    that may be; sums stay in float32 (`models.precision`).
    What has no program here runs by the reference implementation of ONNX, or, where `fallback` says ``onnxruntime``, by
    ONNX Runtime as far as that knows it (`models.fallback`).
    """
    from ..search.tasks.device import Device
    from .fallback import check_fallback, with_fallback
    from .tuning import tune_network

    started = time.monotonic()
    check_fallback(fallback)
    device = Device.here(target, threads)
    given = Given(inputs or {}, values or {})
    network = fastest_of(forms(source, device, given, winograd, precision), device, db, tuning=bool(seconds))
    network = with_fallback(network, fallback, device.threads)
    if seconds:
        found = tune_network(network, device, seconds, db=db, seed=seed, address=address, start=started, emit=emit)
        return found.model
    return compiled(network, device, db)


def compiled(network: Network, target: Target, db: str | None = None) -> Model:
    """A network in the layouts that the database keeps for it, with the best kernels that it has for its operators."""
    from ..search.records.reading import reading
    from ..search.workers.spread import AllCores
    from .chosen import as_kept
    from .run.in_place import compile_overwriting
    from .run.kernels import kernels_of
    from .run.model import Model
    from .tasks import tasks_of

    with reading(db) as database, AllCores() as build:
        made = network if database is None else as_kept(network, target, database)
        kernels = kernels_of(tasks_of(made, target), database, build)
        compile_overwriting(made, kernels, target, build)
    return Model(made, kernels, target)
