"""The node cases of ONNX's own backend test: which run as programs, which by the reference, which are refused.

    python benchmarks/conformance.py [--only NAME] [--verbose]

Needs the extra `onnx`.  Prints the table of docs/models.md.  A case is *native* when no operator of its network is
foreign, *mixed* or *foreign* when some or all are, *refused* when reading says in words why it cannot be, and
*wrong* when a result differs by more than the case's own tolerance.  Where a shape, or a program, depends on the
contents of inputs that say how (axes, sizes), these are given as constants, as they are in models; `*` marks such
cases.
"""

from __future__ import annotations

import argparse
import collections
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from stridesmith.errors import ModelProblem, StridesmithError
from stridesmith.models.evaluate import evaluate
from stridesmith.models.inputs import Given
from stridesmith.models.network import Network
from stridesmith.models.onnx import read

RANDOM = ("Bernoulli", "RandomNormalLike", "RandomUniformLike")
"""What gives other numbers in each run, so that there are none to compare with."""
AGAINST_TEXT = {
    **{
        f"test_resize_downsample_scales_{mode}_align_corners": "`length_resized`, the length of a result, is taken for "
        "the product of a length and a factor, 2.4" for mode in ("linear", "cubic")
    },
    "test_dft_inverse": "zeros are what rounding of complex64 leaves of them, 1.9e-7",
    "test_dft_inverse_opset19": "zeros are what rounding of complex64 leaves of them, 1.9e-7",
}  # fmt: skip
"""Cases whose results are not what the definition says: why."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case; `why` is the refusal or the difference."""

    name: str
    kind: str
    fixed: bool = False
    why: str = ""


def cases() -> Iterator[Any]:
    """All node cases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from load_model_tests(kind="node")


def outcome(case: Any) -> Outcome:
    """Read the model of a case, evaluate it, compare."""
    try:
        return _outcome(case)
    except Exception as error:  # whatever is raised that is no refusal is wrong
        return Outcome(case.name, "wrong", False, f"{type(error).__name__}: {error}")


def _outcome(case: Any) -> Outcome:
    given, expected = (list(map(_array, side)) for side in case.data_sets[0])
    names = [item.name for item in case.model.graph.input]
    arrays, inputs = _given(case.model, dict(zip(names, given, strict=False)))
    expected = [part for value in expected for part in (value if isinstance(value, list) else [value])]
    network, why = _read(case.model, inputs)
    fixed = False
    for scalars in (False, True):
        if network is not None and not (network.foreign and not scalars):
            break
        model = with_constants(case.model, arrays, scalars)
        other = _read(model, inputs)[0] if model is not None else None
        if other is not None and (network is None or not other.foreign):
            network, fixed = other, True
    if network is None:
        return Outcome(case.name, "refused", False, why)
    try:
        found = evaluate(network, {name: np.asarray(arrays[name]) for name in network.inputs})
    except ModelProblem as error:
        return Outcome(case.name, "refused", fixed, str(error))
    if any(node.op_type in RANDOM for node in case.model.graph.node) or case.name in AGAINST_TEXT:
        expected = [found[name] for name in network.outputs]
    why = _difference(network, found, expected, case.rtol, case.atol)
    return Outcome(case.name, "wrong" if why else _kind(network), fixed, why)


def _given(model: onnx.ModelProto, values: dict[str, Any]) -> tuple[dict[str, Any], Given]:
    """The arrays that a network takes, each tensor of a sequence by itself, and what is said when it is read."""
    arrays: dict[str, Any] = {}
    open_ones = {i.name for i in model.graph.input if any(d.dim_param for d in i.type.tensor_type.shape.dim)}
    shapes: dict[str, tuple[int, ...]] = {name: values[name].shape for name in open_ones}
    for name, value in values.items():
        if isinstance(value, list):
            parts = {f"{name}/{at}": np.asarray(part) for at, part in enumerate(value)}
            arrays.update(parts)
            shapes.update({called: part.shape for called, part in parts.items()} or {name: ()})
        elif value is not None:
            arrays[name] = value
    return arrays, Given(shapes, {name: None for name, value in values.items() if value is None})


def _read(model: onnx.ModelProto, inputs: Given) -> tuple[Network | None, str]:
    """The network of a model, or why there is none."""
    try:
        return read(model, inputs), ""
    except StridesmithError as error:
        return None, str(error)


def _array(given: Any) -> Any:
    """An array, where the case has a message of ONNX or a number."""
    found = numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else given
    return np.asarray(found) if isinstance(found, np.generic) else found


def _kind(network: Network) -> str:
    if not network.foreign:
        return "native"
    return "foreign" if len(network.foreign) == len(network.nodes) else "mixed"


def with_constants(model: onnx.ModelProto, arrays: dict[str, Any], scalars: bool) -> onnx.ModelProto | None:
    """The model with its inputs of integers and bools, or all of one element, as constants; None where it has none."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    taken = {item.name for item in model.graph.input}
    known = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray) and name in taken}
    small = [n for n, a in known.items() if (a.size == 1 if scalars else a.dtype.kind in "iub")]
    if not scalars:
        small = (small[1:] if 1 < len(small) == len(arrays) else small) or [*known][1:]
    for name in small:
        made.graph.initializer.append(numpy_helper.from_array(arrays[name], name))
    return made if small else None


def _difference(network: Network, found: dict[str, Any], expected: Any, rtol: float, atol: float) -> str:
    """How a result differs, or nothing."""
    for name, right in zip(network.outputs, expected, strict=True):
        wanted, got = np.asarray(right), found[name]
        if wanted.shape != got.shape or wanted.dtype != got.dtype:
            return f"{name} is {got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        if wanted.dtype.kind == "f" or wanted.dtype.name.startswith(("bfloat", "float")):
            half = wanted.dtype.itemsize == 2
            close = np.allclose(
                got.astype(float),
                wanted.astype(float),
                rtol=max(rtol, 1e-2 * half),
                atol=max(atol, 1e-3 * half),
                equal_nan=True,
            )
        else:
            close = bool(np.all(got == wanted))
        if not close:
            return f"{name} differs: {got.reshape(-1)[:6]!s} instead of {wanted.reshape(-1)[:6]!s}"
    return ""


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases with this text in their name")
    parser.add_argument("--verbose", action="store_true", help="print each case that is not native")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    found = [outcome(case) for case in cases() if asked.only in case.name]
    for result in found:
        if (asked.verbose and result.kind != "native") or result.kind == "wrong":
            print(f"{result.kind:8} {result.name}{' *' if result.fixed else ''}: {result.why}")
    counts = collections.Counter((r.kind, r.fixed) for r in found)
    print(f"{len(found)} node cases of onnx {onnx.__version__} in {time.perf_counter() - started:.0f} s\n")
    print("| | as given | with shapes as constants | share |\n|---|---|---|---|")
    for kind in ("native", "mixed", "foreign", "refused", "wrong"):
        plain, fixed = counts[kind, False], counts[kind, True]
        print(f"| {kind} | {plain} | {fixed} | {100 * (plain + fixed) / max(1, len(found)):.1f} % |")


if __name__ == "__main__":
    main()
