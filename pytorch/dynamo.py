"""The backend of `torch.compile`: parts of a graph run here, and nothing is slower than it was.

Dynamo gives a graph and the tensors of the first call.  AOTAutograd writes it in ATen's operators without side effects
(`capture`), and what programs can compute is cut out (`parts.py`).  For each part that the database has kernels for
there is a race against the operators of PyTorch, and what wins is put in their place; then the whole races against the
graph as it came.  What loses stays with PyTorch.
"""

from __future__ import annotations

import functools
import logging
import operator
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch._dynamo.exc import RestartAnalysis, SkipFrame
from torch._guards import tracing

from ..errors import UsageError, did_you_mean
from ..figures import latency
from .call import Left
from .capture import Captured, Compiled, capture, write_in_place
from .free_sizes import LARGEST, FreeSizes, Point, sizes_of, value_at
from .operators import Caller, SizedCaller, for_part
from .parts import Divided, Part, divided
from .probes import probes
from .race import Race, overall, race
from .strides import in_c_order, in_order, is_laid_out, laid_out, order_of
from .weights import Weights

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..models.ranges.model import RangedModel
    from ..models.ranges.network import RangedNetwork
    from ..models.run.model import Model

Runner = Callable[[Callable[[], Any], Callable[[], Any]], Race]

log = logging.getLogger(__name__)

TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}
"""How far results of a part may be from PyTorch's, of the largest: far more than rounding, far less than a mistake."""
FEW = 0.01
"""The share of whole numbers and truths that may differ."""
CONTROL_FLOW = (RestartAnalysis, SkipFrame)
"""What a compiler tells Dynamo by an exception: to read the function again, or not at all.  It is no failure."""


@dataclass
class Options:
    """What ``torch.compile(..., options={...})`` may say.

    The database, threads and `winograd`, as in `ss.compile`; `rest`, "eager" or "inductor", is what everything else
    runs with, and what kernels race against; `largest` is what a dimension without an end may be at most where shapes
    are free.
    """

    db: str | None = None
    threads: int | None = None
    rest: str = "eager"
    winograd: bool = True
    largest: int = LARGEST
    race: Runner = field(default=race)

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Options:
        """Options by name.  Raises UsageError for one that there is not."""
        known = cls.__dataclass_fields__
        for name in given or {}:
            if name not in known:
                hint = did_you_mean(name, known)
                raise UsageError(
                    f"the backend `stridesmith` has no option {name!r}{hint}; there are {', '.join(known)}"
                )
        found = cls(**(given or {}))
        if found.rest not in ("eager", "inductor"):
            raise UsageError(f"the option `rest` is 'eager' or 'inductor', but got {found.rest!r}")
        if not isinstance(found.db, str | os.PathLike | None):
            raise UsageError(f"the option `db` is the path or URL of a database, but got {found.db!r}")
        if found.threads is not None and (type(found.threads) is not int or found.threads < 1):
            raise UsageError(f"the option `threads` is a number above 0, but got {found.threads!r}")
        if type(found.largest) is not int or found.largest < 2:
            raise UsageError(f"the option `largest` is a number above 1, but got {found.largest!r}")
        if not isinstance(found.winograd, bool):
            raise UsageError(f"the option `winograd` is True or False, but got {found.winograd!r}")
        return found

    @property
    def target(self) -> Target:
        """The target: this machine's CPU with so many threads."""
        from ..search.tasks.device import Device

        return Device.here("cpu", self.threads)

    def compiled_by_torch(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        """A graph with PyTorch alone."""
        if self.rest == "eager":
            eager: Compiled = module.forward  # calling the module would look for hooks
            return eager
        from torch._inductor.compile_fx import compile_fx

        given = list(inputs)
        if any(isinstance(value, torch.SymInt) for value in inputs):  # what has data has one shape for Inductor
            metas = [node.meta for node in module.graph.nodes if node.op == "placeholder"]
            given = [meta["val"] if "val" in meta else meta["example_value"] for meta in metas]
        with tracing(None):
            found: Any = compile_fx(module, given)
        compiled: Compiled = found
        return compiled


def backend(
    module: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **_: Any
) -> Compiled:
    """What ``torch.compile(model, backend="stridesmith")`` calls for each graph of the model.

    Raises UsageError for a graph whose gradients would be wanted.
    """
    chosen = Options.of(options)
    refuse_training(example_inputs)
    theirs = functools.cache(lambda: chosen.compiled_by_torch(module, example_inputs))
    try:
        captured = capture(module, example_inputs)
        sizes = sizes_of(captured.aten, chosen.largest)
        ours = _compiled(captured, example_inputs, chosen, sizes)
        # What calls write to is written in every round, and nobody but callers may see that.
        first = [value_at(given, sizes.first) for given in example_inputs]
        mine, others = (_apart(first, captured.written) for _ in range(2))
        with torch.random.fork_rng(devices=[]):
            whole = chosen.race(lambda: ours(*mine), lambda: theirs()(*others))
    except Left as why:
        log.warning("a graph stays with PyTorch: %s", why)
        return theirs()
    except CONTROL_FLOW:
        raise
    except Exception:
        log.warning("a graph stays with PyTorch, since compiling it failed", exc_info=True)
        return theirs()
    log.info("a graph %s: %s", "runs with kernels" if whole.won else "stays with PyTorch", _times(whole))
    return ours if whole.won else theirs()


def _apart(inputs: Sequence[Any], written: Sequence[int]) -> list[Any]:
    """Inputs, of which those that are `written` have memory of their own."""
    with torch.no_grad():
        return [given.clone() if at in written else given for at, given in enumerate(inputs)]


def refuse_training(example_inputs: Sequence[Any]) -> None:
    """Raise UsageError where a call would have to leave something for a backward pass."""
    if torch.is_grad_enabled() and any(isinstance(given, Tensor) and given.requires_grad for given in example_inputs):
        raise UsageError(
            "the backend `stridesmith` compiles for inference alone, and this call wants gradients, since parameters "
            "or inputs require them: call the model under torch.no_grad() or torch.inference_mode(), or train it with "
            "another backend"
        )


def divide(
    aten: fx.GraphModule, values: Sequence[Tensor | None], target: Target, winograd: bool = True,
    sizes: FreeSizes | None = None,
) -> Divided:  # fmt: skip
    """The parts of a graph whose inputs have these values, where they are known."""
    names = [node.name for node in aten.graph.nodes if node.op == "placeholder"]
    known = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    return divided(aten, known, target, winograd, sizes or FreeSizes())


def _compiled(captured: Captured, example_inputs: Sequence[Any], options: Options, sizes: FreeSizes) -> Compiled:
    """The graph with kernels for all parts that won their race; raises Left where there is none."""
    made = fx.Graph()
    made.output(made.graph_copy(captured.aten.graph, {}))
    plain = fx.GraphModule(captured.aten, made)
    found = divide(captured.aten, captured.values, options.target, options.winograd, sizes)
    kept = [caller for part in found.parts if (caller := _tried(found, part, options)) is not None]
    if not kept:
        raise Left(_reason(found))
    graph = found.module.graph
    graph.eliminate_dead_code()
    write_in_place(graph, captured.written)
    graph.lint()
    found.module.recompile()
    run = options.compiled_by_torch(found.module, example_inputs)
    captured.run = Guarded(run, plain, captured.values, kept, sizes)
    return captured.run if captured.plain else captured.call


def _tried(found: Divided, part: Part, options: Options) -> Caller | SizedCaller | None:
    """`_placed`; a part whose kernels cannot be made stays with PyTorch, and the others do not."""
    try:
        return _placed(found, part, options)
    except Exception:
        log.warning("%s stays with PyTorch, since compiling it failed", part.node.target, exc_info=True)
        return None


def _placed(found: Divided, part: Part, options: Options) -> Caller | SizedCaller | None:
    """Put kernels in the place of a part, if they are right and win; what must be kept alive for them.

    Where sizes are free, they win by the geometric mean over some.
    """
    caller = Caller(model_of(part, options)) if part.free is None else SizedCaller(ranged_model_of(part.free, options))
    races: list[Race] = []
    given: list[Sequence[Tensor]] = []
    with torch.no_grad():
        for point in found.sizes.points() if part.sizes else [found.sizes.first]:
            looked_at = _looked_at(found, part, caller, point, options)
            if looked_at is None:
                log.warning("%s stays with PyTorch: its kernels give other results", part.node.target)
                found.lost[str(part.node.target)] = "its kernels give other results"
                return None
            races.append(looked_at[0])
            given.append(looked_at[1])
    result = overall(races)
    log.info("%s, %d operators: %s", part.node.target, part.operators, _times(result))
    if not result.won:
        found.lost[str(part.node.target)] = _times(result)
        return None
    try:
        lies = [_lying(values, bool(part.sizes)) for values in zip(*given, strict=True)]
    except Left as why:
        found.lost[str(part.node.target)] = str(why)
        return None
    _replace(found.module.graph, part, lies, caller, options)
    return caller


def _looked_at(
    found: Divided, part: Part, caller: Caller | SizedCaller, point: Point, options: Options
) -> tuple[Race, Sequence[Tensor]] | None:
    """A race at some sizes, and what PyTorch gives there; None where kernels give something else."""
    inputs = _inputs(part)
    for drawn in reversed(probes(part, found.known_at(point), point)):  # the first is plain, and timed
        given = drawn | {in_c_order(s): value.contiguous() for s, value in drawn.items() if is_laid_out(s)}
        ours, theirs = [given[source] for source in inputs], fx.node.map_arg(part.node.args, given.__getitem__)
        right = part.module.forward(*theirs)
        if not _agree(caller.run(*ours), right, part.outputs):
            return None
    copied = [at for at in range(len(right)) if not right[at].is_contiguous() and _is_read_outside(part, at)]

    def run() -> Any:
        results = caller.run(*ours)
        mine = results if isinstance(results, tuple) else (results,)
        return [laid_out(mine[part.outputs[at]], right[at].stride()) for at in copied]

    result = options.race(run if copied else lambda: caller.run(*ours), lambda: part.module.forward(*theirs))
    return result, right


def _inputs(part: Part) -> tuple[fx.Node, ...]:
    """What kernels of a part take: its sizes, and its tensors in C order."""
    return *part.sizes, *(in_c_order(source) for source in part.inputs)


def _lying(values: Sequence[Tensor], is_free: bool) -> tuple[Callable[..., Tensor], Sequence[int]] | None:
    """How a result lies in memory, by what PyTorch gave: a function of a tensor in C order with what else it is given.

    None where that is C order.  Raises Left for free sizes at which it lies in several orders.
    """
    first, *_ = values
    if not is_free:
        is_plain = first.stride() == torch.empty(first.shape, device="meta").stride()
        return None if is_plain else (laid_out, first.stride())
    order = order_of(values)
    if order is None:
        raise Left("a result lies in memory in another order for other sizes")
    return None if list(order) == sorted(order) else (in_order, order)


def _is_read_outside(part: Part, at: int) -> bool:
    """Whether anything but another part, which would take it in C order, reads a result."""
    readers = [reader for user in part.node.users if user.args[1] == at for reader in user.users]
    return any(reader.op != "call_module" for reader in readers)


def _replace(
    graph: fx.Graph,
    part: Part,
    lies: Sequence[tuple[Callable[..., Tensor], Sequence[int]] | None],
    caller: Caller | SizedCaller,
    options: Options,
) -> None:
    """Put kernels in the place of a part; their results lie in memory as PyTorch's do, by `_lying`."""
    single = len(caller.gives) == 1
    with graph.inserting_before(part.node):
        # PyTorch's dispatcher takes microseconds; Inductor has to know the operator.
        run = caller.run if options.rest == "eager" else for_part(caller)
        call = graph.call_function(run, _inputs(part))
        values = {at: call if single else graph.call_function(operator.getitem, (call, at)) for at in part.outputs}
        results: list[fx.Node] = []
        taken: set[fx.Node] = set()
        for output, lying in zip(part.outputs, lies, strict=True):
            value = values[output]
            if value in taken:  # a value and its clone are one tensor of the network
                value = graph.call_function(torch.ops.aten.clone.default, (value,))
            taken.add(value)
            results.append(value if lying is None else graph.call_function(lying[0], (value, lying[1])))
    for user in list(part.node.users):
        _, at = user.args
        assert isinstance(at, int)
        results[at].meta["val"] = user.meta["val"]
        user.replace_all_uses_with(results[at])
        graph.erase_node(user)
    graph.erase_node(part.node)


def model_of(part: Part, options: Options) -> Model:
    """A part with the best kernels that the database has, and what the estimate likes best where it has none."""
    from ..models.api import compiled, fastest_of

    assert part.forms is not None
    return compiled(fastest_of(part.forms, options.target, options.db), options.target, options.db)


def ranged_model_of(network: RangedNetwork, options: Options) -> RangedModel:
    """`model_of` of a part whose sizes are free."""
    from ..models.ranges.api import AsWritten, compiled

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AsWritten)  # which lose their race, if they are slow
        return compiled(network, options.target, options.db)


class Guarded:
    """A graph whose kernels hold its weights, and are used while none of these has changed.

    When one was written to, or is another tensor now, PyTorch runs the graph from then on.  Calls with `sizes` for
    which there are no kernels are run by PyTorch.
    """

    def __init__(
        self,
        run: Compiled,
        plain: fx.GraphModule,
        values: Sequence[Tensor | None],
        kept: Sequence[Caller | SizedCaller],
        sizes: FreeSizes,
    ) -> None:
        self._run, self._plain, self._kept, self._sizes = run, plain, kept, sizes
        self._weights: Weights | None = Weights(values)

    def __call__(self, *given: Any) -> Any:
        """Run on all inputs, weights among them."""
        if self._weights is not None and not self._weights.unchanged(given):
            log.warning(
                "weights have changed since they were compiled, so that PyTorch runs the graph from now on; "
                "torch.compiler.reset() lets the next call compile it anew"
            )
            self._weights, self._run, self._kept = None, self._plain, []
        return self._run(*given) if self._sizes.covers(given) else self._plain(*given)


def _agree(ours: Any, theirs: Sequence[Tensor], outputs: Sequence[int]) -> bool:
    """Whether a part computes of random numbers what PyTorch does, up to rounding; `outputs` are as in `Part`."""
    mine = ours if isinstance(ours, tuple) else (ours,)
    for at, right in zip(outputs, theirs, strict=True):
        found, near = mine[at], TOLERANCE.get(right.dtype)
        if found.shape != right.shape or found.dtype != right.dtype:
            return False
        if near is None:  # whole numbers and truths that are told from floats may be others where these are alike
            if float((found != right).to(torch.float32).mean()) > FEW:
                return False
            continue
        scale = float(torch.nan_to_num(right.to(torch.float64), 0.0, 0.0, 0.0).abs().max())
        if not torch.allclose(found.to(torch.float64), right.to(torch.float64), near, near * scale, equal_nan=True):
            return False
    return True


MOST_TOLD = 4
"""Parts of which is told by how much their kernels lost."""


def _reason(found: Divided) -> str:
    """Why a graph has no part with kernels."""
    if not found.parts:
        missing = list(dict.fromkeys(found.refused.values()))[:3]
        return "; ".join(missing) or "it has nothing to compute, or shapes that are not known before it runs"
    lost = "; ".join(f"{name}: {why}" for name, why in list(found.lost.items())[:MOST_TOLD])
    more = f"; and {len(found.lost) - MOST_TOLD} more" if len(found.lost) > MOST_TOLD else ""
    without = len(found.parts) - len(found.lost)
    told = [f"compiling {without} of its {len(found.parts)} parts failed"] if without else []
    if lost:
        told.append(f"the kernels of {len(found.lost)} of its {len(found.parts)} parts are not faster ({lost}{more})")
    looked_for = "faster ones" if lost else "some"
    return f"{' and '.join(told)}; `stridesmith.torch.tune(model, example, seconds=...)` looks for {looked_for}"


def _times(result: Race) -> str:
    return f"{latency(result.ours * 1e6)} with kernels, {latency(result.theirs * 1e6)} without"
