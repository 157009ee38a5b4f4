"""Random models of one ONNX operator, with odd attributes, against ONNX Runtime without optimisations.

    python benchmarks/onnx_operators.py --count 10000 --seed 0 [--from N] [--only Resize Pad] [--compiled 4] [--verbose]

Needs the extra `onnx`; without the package `onnxruntime`, ONNX's own reference is the only other side.  Each number
draws a model (`onnx_recipes.py`, `onnx_moves.py`, `onnx_layers.py`) of an operator in one of the versions 7 to 22
and runs it by its network's programs, in the interpreter, every few times also compiled as `ss.compile` does.  Where
that is not what ONNX Runtime gives, the reference is the second witness, and the difference must be one of
`onnx_differences.py`, which cites the text of ONNX's definition that decides it.  Anything else is printed, and makes
the exit code 1.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx_cases import VERSIONS, Array, Case, Draw
from onnx_differences import DIFFERENCES, KERNELS
from onnx_layers import LAYERS
from onnx_moves import MOVES
from onnx_recipes import ARITHMETIC

from stridesmith.backends.devices import discover
from stridesmith.errors import StridesmithError
from stridesmith.models.api import compiled, network_of
from stridesmith.models.evaluate import evaluate
from stridesmith.models.network import Network
from stridesmith.models.onnx import read

try:
    import onnxruntime
except ModuleNotFoundError:  # it is in no extra
    onnxruntime = None

RECIPES = {**ARITHMETIC, **MOVES, **LAYERS}
WEIGHTS = {
    **dict.fromkeys(("MaxPool", "AveragePool", "Resize", "ConvTranspose", "Pad", "Slice"), 5),
    **dict.fromkeys(("Conv", "Cast", "LpPool", "Upsample", "QuantizeLinear", "Pow"), 2),
}
"""How often operators with many attributes are drawn, of which others are once."""
SUMS = frozenset({
    "Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalLpPool",
    "ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "CumSum",
    "Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization", "GroupNormalization", "LpNormalization",
    "MeanVarianceNormalization", "BatchNormalization", "LRN", "Resize", "Upsample", "Sum", "Mean", "ReduceProd",
    "LSTM", "GRU", "RNN", "GridSample", "RoiAlign", "Det", "DFT", "STFT",
})  # fmt: skip
"""Operators whose results add numbers in an order that is free, so that what is close to 0 has no digits of its own."""
CLOSE = {"float16": 2e-3, "float32": 4e-6, "float64": 1e-11}
"""How far a result may be from another one, as a part of it."""
COARSEST = ("float16", "float32", "float64")
OFFSET = frozenset({
    "Elu", "Selu", "Celu", "Gelu", "Sigmoid", "HardSwish", "Sin", "Cos", "Tan", "Acos", "Atanh", "Acosh",
})  # fmt: skip
"""Operators whose formula takes numbers near 1 from each other, so that errors are parts of 1."""
SUMMED = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-11}
"""That for sums, as a part of the largest result."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case: `kind` is native, foreign, mixed or refused; `why` is a difference that nothing explains."""

    case: Case
    kind: str
    why: str = ""
    explained: str = ""
    witness: str = "ONNX Runtime"


def draw(seed: int, number: int, only: Sequence[str] = ()) -> Case:
    """The case of a number, the same in every run."""
    rng = np.random.default_rng([seed, number])
    names = [op for op in RECIPES if not only or op in only]
    weights = np.array([WEIGHTS.get(op, 1) for op in names], float)
    while True:
        op = str(rng.choice(names, p=weights / weights.sum()))
        made = Draw(rng, op, int(rng.integers(VERSIONS.start, VERSIONS.stop)))
        try:
            schema = made.schema
        except onnx.defs.SchemaError:
            continue
        if schema.deprecated or RECIPES[op](made) is False:
            continue
        while made.inputs and list(made.inputs.values())[-1] is None:
            made.inputs.popitem()
        if made.chance(0.05):  # which is computed when the model is read
            made.constants = {name for name, array in made.inputs.items() if array is not None}
        version = int(rng.integers(7, 11))
        return Case(number, op, made.opset, made.values, made.inputs, frozenset(made.constants), made.outputs, version)


def by_onnxruntime(case: Case) -> list[Array] | str:
    """The results by ONNX Runtime without optimisations, or why there are none."""
    if onnxruntime is None:
        return "not installed"
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    failed = ""
    for asked in [case, *([single] if (single := case.in_float32()) else [])]:
        try:
            session = onnxruntime.InferenceSession(
                asked.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            found = [np.asarray(result) for result in session.run(None, asked.arrays)]
        except Exception as error:  # classes of its own for each kind of failure
            failed = failed or str(error)
            continue
        return found
    return failed


def by_reference(case: Case) -> list[Array] | str:
    """The results by the reference implementation of ONNX, or why there are none."""
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(found) for found in ReferenceEvaluator(case.model()).run(None, case.arrays)]
    except Exception as error:  # what NumPy and its own asserts raise
        return f"{type(error).__name__}: {error}"


def outcome(case: Case, compiles: bool = False) -> Outcome:
    """Run a case on all sides, and compare."""
    try:
        network = read(case.model())
        ours = _ours(network, case.arrays)
    except StridesmithError as error:
        return Outcome(case, "refused", explained=str(error))
    kind = "native" if not network.foreign else "foreign" if len(network.foreign) == len(network.nodes) else "mixed"
    theirs = by_onnxruntime(case)
    witness = "ONNX Runtime" if not isinstance(theirs, str) else "the reference"
    why, explained = "", ""
    if isinstance(theirs, str):
        theirs = by_reference(case)
    if isinstance(theirs, str):
        witness = "nobody"
    else:
        why, explained = _judged(case, ours, theirs, witness)
    if not why and compiles and kind == "native":
        why, known = _judged(case, _compiled(network, case.arrays), ours, KERNELS)
        explained = explained or known
    return Outcome(case, kind, why, explained, witness)


def _ours(network: Network, arrays: Mapping[str, Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        found = evaluate(network, {name: arrays[name] for name in network.inputs})
    return [found[name] for name in network.outputs]


def _compiled(network: Network, arrays: Mapping[str, Array]) -> list[Array]:
    """What the network's own kernels give, chosen by the estimate."""
    device = discover("cpu", 1)
    made = compiled(network_of(network, device), device)(dict(arrays))
    return [np.asarray(made[name]) for name in network.outputs]


def _judged(case: Case, ours: list[Array], theirs: list[Array], witness: str) -> tuple[str, str]:
    """A difference that nothing explains, and what explains one."""
    why = _difference(case, ours, theirs)
    if not why:
        return "", ""
    for known in DIFFERENCES:
        if case.op in known.ops and witness in known.witnesses and known.holds(case):
            where = known.where(case, ours[0], theirs[0])
            if where is True or not _difference(case, ours, theirs, where):
                return "", known.reason
    second = by_reference(case) if witness == "ONNX Runtime" else ""
    other = _difference(case, ours, second) if not isinstance(second, str) else f"cannot run it ({second[:80]})"
    return f"{witness} differs: {why}; the reference {other or 'agrees with us'}", ""


def _difference(case: Case, ours: Sequence[Array], theirs: Sequence[Array], but: Any = False) -> str:
    """How results differ, the elements of the first one left out that `but` has; or nothing."""
    for at, (got, wanted) in enumerate(zip(ours, theirs, strict=True)):
        is_single = wanted.dtype == np.float32 and got.dtype.kind == "f" and bool(case.in_float32())
        if got.shape != wanted.shape or (got.dtype != wanted.dtype and not is_single):
            return f"{got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
        wrong = ~_close(case, got, wanted) & ~np.broadcast_to(but if at == 0 else False, got.shape)
        if wrong.any():
            places = np.argwhere(wrong)
            first = tuple(int(i) for i in places[0])
            return f"{got[first]!s} instead of {wanted[first]!s} at {list(first)} ({len(places)} of {got.size})"
    return ""


def _close(case: Case, got: Array, wanted: Array) -> Array:
    if wanted.dtype.kind != "f":
        return np.asarray(got == wanted)
    kind = min((wanted.dtype.name, got.dtype.name, *case.floats), key=COARSEST.index)
    with np.errstate(over="ignore"):
        common = min(got.dtype, wanted.dtype)
        a, b = (side.astype(common).astype(np.float64) for side in (got, wanted))
    finite = np.isfinite(b)
    bound = CLOSE[kind] * np.abs(b) + 64 * float(np.finfo(kind).tiny)
    if case.op in OFFSET:
        bound = bound + SUMMED[kind]
    if case.op in SUMS:
        bound = bound + SUMMED[kind] * max(1.0, float(np.max(np.abs(b[finite]), initial=0)))
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= bound
    return np.where(finite & np.isfinite(a), near, (a == b) | (np.isnan(a) & np.isnan(b)))


def outcomes(seed: int, numbers: Sequence[int], only: Sequence[str], compiled_each: int) -> Iterator[Outcome]:
    """The outcome of each number."""
    for number in numbers:
        case = draw(seed, number, only)
        try:
            yield outcome(case, bool(compiled_each) and number % compiled_each == 0)
        except Exception as error:  # whatever is raised that is no refusal is wrong
            yield Outcome(case, "native", f"{type(error).__name__}: {error}")


def main() -> int:
    """Run the cases; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first number")
    parser.add_argument("--only", nargs="*", default=(), help="operators")
    parser.add_argument("--compiled", type=int, default=4, help="each which case is compiled as well; 0 for none")
    parser.add_argument("--verbose", action="store_true", help="print refusals and what is explained, too")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    kinds: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    witnesses: collections.Counter[str] = collections.Counter()
    wrong = 0
    for found in outcomes(asked.seed, range(asked.first, asked.first + asked.count), asked.only, asked.compiled):
        kinds[found.kind] += 1
        witnesses[found.witness if found.kind != "refused" else "refused"] += 1
        if found.why:
            wrong += 1
            print(f"WRONG {found.kind} {found.case}\n    {found.why}", flush=True)
        elif found.explained:
            if found.kind != "refused":
                reasons[f"{found.case.op}: {found.explained}"] += 1
            if asked.verbose:
                print(f"{found.kind} {found.case}\n    {found.explained}")
    print(f"{asked.count} operators from {asked.first} on, seed {asked.seed}, {time.perf_counter() - started:.0f} s")
    print(f"{wrong} unexplained; " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    print("compared with " + ", ".join(f"{name} {count}" for name, count in witnesses.most_common()))
    for reason, count in reasons.most_common():
        print(f"{count:6} {reason}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
