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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch._dynamo.exc import RestartAnalysis, SkipFrame
from torch._guards import tracing

from ..errors import UsageError, did_you_mean
from .capture import Captured, Compiled, Left, capture, write_in_place
from .operators import Caller, for_part
from .parts import Divided, Part, divided
from .probes import probes
from .race import Race, race
from .strides import in_c_order, is_laid_out, laid_out
from .weights import Weights

if TYPE_CHECKING:
    from ..ir.target import Target
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
    runs with, and what kernels race against.
    """

    db: str | None = None
    threads: int | None = None
    rest: str = "eager"
    winograd: bool = True
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

        with tracing(None):
            found: Any = compile_fx(module, list(inputs))
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
        ours = _compiled(captured, example_inputs, chosen)
        # What calls write to is written in every round, and nobody but callers may see that.
        mine, others = (_apart(example_inputs, captured.written) for _ in range(2))
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


def divide(aten: fx.GraphModule, values: Sequence[Tensor | None], target: Target, winograd: bool = True) -> Divided:
    """The parts of a graph whose inputs have these values, where they are known."""
    names = [node.name for node in aten.graph.nodes if node.op == "placeholder"]
    known = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    return divided(aten, known, target, winograd)


def _compiled(captured: Captured, example_inputs: Sequence[Any], options: Options) -> Compiled:
    """The graph with kernels for all parts that won their race; raises Left where there is none."""
    made = fx.Graph()
    made.output(made.graph_copy(captured.aten.graph, {}))
    plain = fx.GraphModule(captured.aten, made)
    found = divide(captured.aten, captured.values, options.target, options.winograd)
    kept = [caller for part in found.parts if (caller := _tried(found, part, options)) is not None]
    if not kept:
        raise Left(_reason(found))
    graph = found.module.graph
    graph.eliminate_dead_code()
    write_in_place(graph, captured.written)
    graph.lint()
    found.module.recompile()
    captured.run = Guarded(options.compiled_by_torch(found.module, example_inputs), plain, captured.values, kept)
    return captured.run if captured.plain else captured.call


def _tried(found: Divided, part: Part, options: Options) -> Caller | None:
    """`_placed`; a part whose kernels cannot be made stays with PyTorch, and the others do not."""
    try:
        return _placed(found, part, options)
    except Exception:
        log.warning("%s stays with PyTorch, since compiling it failed", part.node.target, exc_info=True)
        return None


def _placed(found: Divided, part: Part, options: Options) -> Caller | None:
    """Put kernels in the place of a part, if they are right and win; what must be kept alive for them."""
    caller = Caller(model_of(part, options))
    inputs = [in_c_order(source) for source in part.inputs]
    with torch.no_grad():
        for drawn in reversed(probes(part, found.known)):  # the first is plain, and timed
            given = drawn | {in_c_order(s): value.contiguous() for s, value in drawn.items() if is_laid_out(s)}
            ours, theirs = [given[source] for source in inputs], fx.node.map_arg(part.node.args, given.__getitem__)
            right = part.module.forward(*theirs)
            if not _agree(caller.run(*ours), right, part.outputs):
                log.warning("%s stays with PyTorch: its kernels give other results", part.node.target)
                found.lost[str(part.node.target)] = "its kernels give other results"
                return None
        copied = [at for at in range(len(right)) if not right[at].is_contiguous() and _is_read_outside(part, at)]

        def run() -> Any:
            results = caller.run(*ours)
            mine = results if isinstance(results, tuple) else (results,)
            return [laid_out(mine[part.outputs[at]], right[at].stride()) for at in copied]

        result = options.race(run if copied else lambda: caller.run(*ours), lambda: part.module.forward(*theirs))
    log.info("%s, %d operators: %s", part.node.target, len(part.network.nodes), _times(result))
    if not result.won:
        found.lost[str(part.node.target)] = _times(result)
        return None
    _replace(found.module.graph, part, inputs, right, caller, options)
    return caller


def _is_read_outside(part: Part, at: int) -> bool:
    """Whether anything but another part, which would take it in C order, reads a result."""
    readers = [reader for user in part.node.users if user.args[1] == at for reader in user.users]
    return any(reader.op != "call_module" for reader in readers)


def _replace(
    graph: fx.Graph, part: Part, inputs: Sequence[fx.Node], right: Sequence[Tensor], caller: Caller, options: Options
) -> None:
    """Put kernels in the place of a part; their results lie in memory as those do that PyTorch has given, `right`."""
    single = len(caller.gives) == 1
    with graph.inserting_before(part.node):
        # PyTorch's dispatcher takes microseconds; Inductor has to know the operator.
        run = caller.run if options.rest == "eager" else for_part(caller)
        call = graph.call_function(run, tuple(inputs))
        values = {at: call if single else graph.call_function(operator.getitem, (call, at)) for at in part.outputs}
        results: list[fx.Node] = []
        taken: set[fx.Node] = set()
        for output, tensor in zip(part.outputs, right, strict=True):
            value = values[output]
            if value in taken:  # a value and its clone are one tensor of the network
                value = graph.call_function(torch.ops.aten.clone.default, (value,))
            taken.add(value)
            is_plain = tensor.stride() == torch.empty(tensor.shape, device="meta").stride()
            results.append(value if is_plain else graph.call_function(laid_out, (value, tensor.stride())))
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

    return compiled(fastest_of(part.forms, options.target, options.db), options.target, options.db)


class Guarded:
    """A graph whose kernels hold its weights, and are used while none of these has changed.

    When one was written to, or is another tensor now, PyTorch runs the graph from then on.
    """

    def __init__(
        self, run: Compiled, plain: fx.GraphModule, values: Sequence[Tensor | None], kept: Sequence[Caller]
    ) -> None:
        self._run, self._plain, self._kept = run, plain, kept
        self._weights: Weights | None = Weights(values)

    def __call__(self, *given: Any) -> Any:
        """Run on all inputs, weights among them."""
        if self._weights is not None and not self._weights.unchanged(given):
            log.warning(
                "weights have changed since they were compiled, so that PyTorch runs the graph from now on; "
                "torch.compiler.reset() lets the next call compile it anew"
            )
            self._weights, self._run, self._kept = None, self._plain, []
        return self._run(*given)


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
    return f"{result.ours * 1e6:.1f} us with kernels, {result.theirs * 1e6:.1f} us without"
