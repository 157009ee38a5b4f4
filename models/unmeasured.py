"""The layouts of a network of which nothing was measured: one order for all tensors, the one that the estimate likes.

That is the order of ONNX or the one other that tensors of most bytes may have, by what the estimate says of the few
operators that stand for all work (`layout_search`).  Another order is one in which more of what operators add up lies
together, as with channels last.  What was chosen is kept in the user's cache, since it takes a second to find.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..backends.file_cache import FileCache
from ..errors import BadRecord
from ..search.workers.kernel_cache import software
from .alternatives import alternatives, wanted_by, whole_rows
from .chosen import Chosen, in_layouts, kept
from .costs import Alternatives
from .layout_search import LayoutSearch
from .network import Operator
from .run.kernels import best_record

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..search.records.database import Database
    from .network import Network
    from .tasks import NetworkTask

CACHE = FileCache("layouts", 16 << 20)
PACKAGES = ("ir", "space", "cost_model", "backends", "search", "models")
"""What decides a choice."""
LEAST_FLOPS = 1e7
"""Operations of a network of fewer of which it is not worth a second to ask: it takes a tenth of a millisecond."""


def laid_out(
    network: Network,
    tasks: Sequence[NetworkTask],
    target: Target,
    database: Database | None,
    asking: Callable[[], None] = lambda: None,
) -> Network:
    """The network in the layouts that the database keeps for it; in likely ones where it has no kernel of it either.

    `tasks` are those of the network.  One whose programs have layouts stays as it is.  `asking` is called before the
    estimate is asked, which takes a while.
    """
    if database is not None:
        chosen = kept(network, target, database)
        if chosen is not None:
            return in_layouts(network, chosen)
        if any(best_record(item.task, database) is not None for item in tasks):
            return network
    if any(isinstance(node, Operator) and node.func.layouts for node in network.nodes):
        return network
    chosen = likely(network, tasks, target, asking)
    return network if chosen == Chosen() else in_layouts(network, chosen)


def likely(
    network: Network, tasks: Sequence[NetworkTask], target: Target, asking: Callable[[], None] = lambda: None
) -> Chosen:
    """The layouts that the estimate likes best: the order of ONNX for all tensors, or one other.

    Of a device that is no CPU, and of a small network, that of ONNX.  Arguments as those of `laid_out`.
    """
    if target.kind != "cpu" or sum(item.weight * item.task.work.flops for item in tasks) < LEAST_FLOPS:
        return Chosen()
    key = json.dumps([software(PACKAGES, ("islpy", "numpy")), network.signature, target.to_json()])
    text = CACHE.read(key)
    if text is not None:
        try:
            return Chosen.from_json(json.loads(text))
        except (ValueError, BadRecord):
            pass
    asking()
    layouts = {name: whole_rows(some) for name, some in alternatives(network, target).items()}
    found = liked(network, layouts, target)
    CACHE.write(key, json.dumps(found.to_json()))
    return found


def liked(network: Network, layouts: Alternatives, target: Target) -> Chosen:
    """The layouts that the estimate likes best among the order of ONNX and one other, as `whole_rows` has them."""
    if not _brings_sums_together(network, layouts, target):
        return Chosen()
    return Chosen.of(layouts, LayoutSearch(network, layouts, target, is_short=True).start)


def _brings_sums_together(network: Network, layouts: Alternatives, target: Target) -> bool:
    """Whether more bytes are neighbours along what their readers add up in the other order than in that of ONNX.

    The estimate takes both for about equal, where rows of which a sum takes one element each are far slower: six layers
    of BERT with tokens last took 31.7 ms, 38.4 predicted, and 25.0 as ONNX has them, 39.9 predicted.
    """
    gained = 0
    for node in network.nodes:
        wanted = wanted_by(node.func, target) if isinstance(node, Operator) else {}
        for name, want in zip(node.inputs, wanted.values(), strict=False):  # in the order of the parameters
            some = layouts[name]
            if len(some) > 1:
                before, after = (layout.dims[-1].dim in want.summed for layout in (some[0], some[1]))
                gained += (after - before) * network.tensors[name].nbytes
    return gained > 0
