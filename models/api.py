"""`ss.compile`: a model file or a network, as one callable."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from .network import Network

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..search.tuning.events import Emit
    from .run.model import Model

Source: TypeAlias = "str | os.PathLike[str] | Network"
Shapes: TypeAlias = Mapping[str, Sequence[int]]


def network_of(source: Source, inputs: Shapes | None = None) -> Network:
    """A network as it is, or the one that an ONNX file holds, with the shapes that `inputs` give to its inputs."""
    if isinstance(source, Network):
        return source
    from .onnx import read

    return read(source, {name: tuple(shape) for name, shape in (inputs or {}).items()})


def compile(
    source: Source,
    target: str | Target = "cpu",
    *,
    seconds: float | None = None,
    inputs: Shapes | None = None,
    db: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    address: str | None = None,
    emit: Emit | None = None,
) -> Model:
    """The model of an ONNX file or a network: ``y = model(x)``.

    With `seconds` its operators are tuned for so long, and what is found is kept in the database.  Without, the best
    kernels that the database has are used, and what the estimate likes best for operators that it has none of.
    `inputs` gives shapes to the inputs of a file, by name, where the file leaves them open.
    """
    from ..search.records.database import Database
    from ..search.tasks.task import device_of
    from .run.kernels import kernels_of
    from .run.model import Model
    from .tasks import tasks_of
    from .tuning import tune_network

    network, device = network_of(source, inputs), device_of(target, threads)
    if seconds is not None:
        return tune_network(network, device, seconds, db=db, seed=seed, address=address, emit=emit).model
    with Database(db, read_only=True) as database:
        return Model(network, kernels_of(tasks_of(network, device), database), device)
