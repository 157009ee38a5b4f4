"""Filling the database for a model of PyTorch."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ..errors import DeviceLost, Interrupted, StorageError, TemporaryError, UsageError
from ..ir.markup import table
from ..models.network import Array, Network, Node
from ..models.network import Tensor as Edge
from ..numerals import seed_of, time_limit
from .call import Left
from .capture import Compiled, capture
from .dynamo import CONTROL_FLOW, Options, divide, refuse_training
from .free_sizes import LARGEST, sizes_of
from .recurrent import ALLOWED
from .whole import Example, arguments_of

if TYPE_CHECKING:
    from ..models.ranges.network import RangedNetwork
    from ..search.tuning.events import Emit
    from ..search.workers.executor import Executor

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tuned:
    """The result of a tuning run: how many parts of the model and operators run here, and what the run cost.

    `left` says why graphs, or operators of them, stay with PyTorch.
    """

    parts: int
    operators: int
    trials: int
    seconds: float
    stopped_by: str
    db: str
    left: tuple[str, ...]

    def __repr__(self) -> str:
        """What runs here and what does not, and what that has cost: two lines."""
        count = len(self.left)
        stays = f"; {count} reason{'s' * (count > 1)} why the rest stays with PyTorch, in `left`" if count else ""
        return f"<Tuned {self.here}{stays};\n {self.cost}>"

    @property
    def here(self) -> str:
        """``5 operators in 2 parts of the model``."""
        counts = (self.operators, "operator"), (self.parts, "part")
        operators, parts = (f"{count} {what}{'s' * (count != 1)}" for count, what in counts)
        return f"{operators} in {parts} of the model"

    @property
    def cost(self) -> str:
        """``412 candidates in 60 s, stopped by seconds, in DATABASE``."""
        return f"{self.trials} candidates in {self.seconds:.0f} s, stopped by {self.stopped_by}, in {self.db}"

    def _repr_html_(self) -> str:
        rows = [("here", self.here), ("cost", self.cost), *(("with PyTorch", why) for why in self.left)]
        return table("Tuned", ("", ""), rows)


def tune(
    model: torch.nn.Module | Any,
    example: Example,
    seconds: float = 60,
    *,
    db: str | None = None,
    progress: bool | None = None,
    threads: int | None = None,
    seed: int = 0,
    address: str | None = None,
    winograd: bool = True,
    dynamic: bool = False,
    largest: int = LARGEST,
    emit: Emit | None = None,
    executor: Executor | None = None,
) -> Tuned:
    """Look for kernels for what `model` computes of `example` until so many seconds are over, and store them.

    `example` is the input, a sequence of inputs, or a dict of them by name.  Weights are taken for constants.  A later
    ``torch.compile(model, backend="stridesmith")`` with inputs of these shapes, and the same `winograd` (`ss.compile`),
    finds the kernels.  With `dynamic`, kernels are for all sizes of the dimensions that PyTorch frees then, up to
    `largest` where they have no end; dimensions that `torch._dynamo.mark_dynamic` has marked are free in any case.
    `progress` is as in `stridesmith.tune`.  Raises UsageError if no part of the model can run here.
    """
    from ..commands.live import watching
    from ..commands.models import ModelState
    from ..models.ranges.tuning import tune_network as tune_free_network
    from ..models.tuning import tune_network
    from ..search.records.place import default_path

    started, seconds, seed = time.monotonic(), time_limit(seconds), seed_of(seed)
    options = Options.of({"db": db, "threads": threads, "winograd": winograd, "largest": largest})
    networks, free, left = _networks(model, example, options, dynamic)
    if not networks and not free:
        raise UsageError(f"nothing of this model can be tuned here: {'; '.join(left[:5]) or 'it computes nothing'}")
    whole = networks[0] if len(networks) == 1 else union(networks)
    state = ModelState(f"tuning a {type(model).__name__} of PyTorch", limit_seconds=seconds, started=started)
    operators = len(whole.nodes) + sum(len(network.nodes) for network in free)
    share = seconds * len(whole.nodes) / max(operators, 1)
    try:
        with watching(progress, state, emit) as told:
            trials = 0

            def count(event: dict[str, Any]) -> None:
                nonlocal trials
                trials += event["event"] == "trial"
                if told is not None:
                    told(event)

            for network in free:
                own = (seconds - share) * len(network.nodes) / (operators - len(whole.nodes))
                tune_free_network(network, options.target, own, db=db, seed=seed, emit=count)
            if not networks:
                taken = time.monotonic() - started
                return Tuned(len(free), operators, trials, taken, "seconds", str(db or default_path()), tuple(left))
            found = tune_network(
                whole, options.target, seconds, db=db, seed=seed, address=address, start=started, emit=told,
                executor=executor,
            )  # fmt: skip
    except (KeyboardInterrupt, Interrupted, DeviceLost):
        with contextlib.suppress(TemporaryError, StorageError):  # the run ends with an error that matters more
            _keep_layouts(networks, whole, options)
        raise
    _keep_layouts(networks, whole, options)
    parts = len(networks) + len(free)
    return Tuned(parts, operators, found.trials + trials, found.seconds, found.stopped_by, found.db, tuple(left))


def _networks(
    model: Any, example: Example, options: Options, dynamic: bool = False
) -> tuple[list[Network], list[RangedNetwork], list[str]]:
    """The networks of all parts of all graphs that a call of the model has, and why others stay with PyTorch."""
    networks: list[Network] = []
    free: list[RangedNetwork] = []
    left: list[str] = []

    def collect(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        refuse_training(example_inputs)

        try:
            captured = capture(module, example_inputs)
            sizes = sizes_of(captured.aten, options.largest)
            found = divide(captured.aten, captured.values, options.target, options.winograd, sizes)
            networks.extend(part.network for part in found.parts if part.free is None)
            free.extend(part.free for part in found.parts if part.free is not None)
            left.extend(why for why in found.refused.values() if why not in left)
        except Left as why:
            left.append(str(why))
        except CONTROL_FLOW:
            raise
        except Exception as error:  # as in the backend itself: one graph that cannot be read is no reason to give up
            log.warning("a graph stays with PyTorch, since reading it failed", exc_info=True)
            left.append(f"a graph could not be read ({type(error).__name__}: {error})")
        eager: Compiled = module
        return eager

    arguments, named = arguments_of(example)
    # Each call compiles anew, for the shapes of its example alone where it frees none.
    limits = {"recompile_limit": sys.maxsize, "accumulated_recompile_limit": sys.maxsize}
    with torch.no_grad(), torch._dynamo.config.patch({**limits, **ALLOWED}):
        torch.compile(model, backend=collect, dynamic=dynamic)(*arguments, **named)
    return networks, free, left


def _keep_layouts(networks: Sequence[Network], whole: Network, options: Options) -> None:
    """Store the layouts that were chosen for the union of several networks, if any were, as those of each."""
    from ..models.chosen import Chosen, keep, kept
    from ..search.records.database import Database

    if len(networks) == 1:
        return
    with Database(options.db) as database:
        chosen = kept(whole, options.target, database)
        if chosen is None:
            return
        for number, network in enumerate(networks):
            mine, own = f"{number}/", len(f"{number}/")
            written = {name[own:]: lying for name, lying in chosen.written.items() if name.startswith(mine)}
            read = {(node[own:], n[own:]): lying for (node, n), lying in chosen.read.items() if node.startswith(mine)}
            apart = frozenset(node[own:] for node in chosen.apart if node.startswith(mine))
            keep(Chosen(written, read, apart), network, options.target, database)


def union(networks: Sequence[Network]) -> Network:
    """All networks as one, each with names of its own."""
    inputs: list[str] = []
    outputs: list[str] = []
    tensors: dict[str, Edge] = {}
    constants: dict[str, Array] = {}
    nodes: list[Node] = []
    for number, network in enumerate(networks):
        called = {name: f"{number}/{name}" for name in network.tensors}
        inputs += [called[name] for name in network.inputs]
        outputs += [called[name] for name in network.outputs]
        tensors |= {called[name]: replace(tensor, name=called[name]) for name, tensor in network.tensors.items()}
        constants |= {called[name]: array for name, array in network.constants.items()}
        nodes += [
            replace(
                node, name=f"{number}/{node.name}", inputs=tuple(called[name] for name in node.inputs),
                outputs=tuple(called[name] for name in node.outputs),
            )
            for node in network.nodes
        ]  # fmt: skip
    return Network("torch", tuple(inputs), tuple(outputs), tensors, constants, tuple(nodes))
