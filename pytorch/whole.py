"""Models as a whole: compiled where that is faster, with everything that a compiled call costs in PyTorch.

Dynamo looks before each call whether what it has compiled still fits.  This takes tens of microseconds, which a race of
graphs does not see, since both of its sides have them; for a small model they are more than kernels can win.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..errors import UsageError
from ..figures import latency
from .dynamo import Options, Runner, backend
from .race import race
from .recurrent import ALLOWED

Example: TypeAlias = "Tensor | Sequence[Any] | Mapping[str, Any]"
"""The input of a model, a sequence of inputs, or a dict of them by name."""

log = logging.getLogger(__name__)


def compile(
    model: torch.nn.Module | Any,
    example: Example,
    *,
    db: str | None = None,
    threads: int | None = None,
    rest: str = "eager",
    winograd: bool = True,
    dynamic: bool = False,
    race: Runner = race,
) -> Any:
    """The model with kernels where they are faster, or `model` itself where a call of it is not faster as a whole.

    As ``torch.compile(model, backend="stridesmith")``, whose options `db`, `threads`, `rest` and `winograd` are, and
    then a race of whole calls with `example` against the model as it is.  With `dynamic`, PyTorch frees dimensions, as
    it does those that are marked in any case.  Raises UsageError for a model in training
    mode.
    """
    if getattr(model, "training", False):
        raise UsageError(
            "the model is in training mode, and `stridesmith.torch.compile` compiles for inference alone: call "
            "model.eval() before"
        )
    options = Options.of({"db": db, "threads": threads, "rest": rest, "winograd": winograd, "race": race})
    made = torch.compile(model, backend=backend, options=vars(options), dynamic=dynamic)
    positional, named = arguments_of(example)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), torch._dynamo.config.patch(ALLOWED):
        made(*positional, **named)
        found = race(lambda: made(*positional, **named), lambda: model(*positional, **named))
    times = f"{latency(found.ours * 1e6)} compiled, {latency(found.theirs * 1e6)} as it is"
    log.info("a model %s: %s", "is compiled" if found.won else "stays as it is", times)
    return made if found.won else model


def arguments_of(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An example as arguments by position and by name."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return ((example,) if isinstance(example, Tensor) else tuple(example)), {}
