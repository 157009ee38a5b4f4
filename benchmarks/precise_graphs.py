"""Random networks in 16 bits, and quantised ones: are they what ONNX Runtime computes, as near as their numbers are?

    python benchmarks/precise_graphs.py [--count 400] [--seed 0] [--from N] [--compiled 10] [--verbose]

Needs the packages `onnx` and `onnxruntime`.  Models are drawn as by `free_graphs.py`, of one shape, with more sums of
products.  In turns a model is read in bfloat16, in float16, and twice as ONNX Runtime's static quantiser makes it of
seeded data (QDQ; activations with and without a sign, symmetric or not; weights of either sign, per channel or not).
Programs are interpreted, and those of every `--compiled`-th four graphs run as `ss.compile` makes them.

The peer is ONNX Runtime without optimisations: on the model in float32, or on the quantised one.  How far results may
be apart is measured: with 16 bits four times what ONNX Runtime's own results move as weights and what operators give
are multiplied by numbers that differ from 1 by two roundings of that type, and four such roundings; quantised four
times what they move with the fifth digit of inputs, which rounds some bytes the other way, and a fiftieth of the
largest result.  Outputs that move by a tenth tell nothing.  WRONG are other results, and what is raised that is no
refusal; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import collections
import logging
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from free_models import Array, FreeGraph, Unfit, apart, session
from free_operators import RECIPES, conv, extreme, gemm, lookup, product

from stridesmith.backends.devices import discover
from stridesmith.errors import StridesmithError
from stridesmith.models.api import compiled, forms
from stridesmith.models.evaluate import evaluate

KINDS = ("bfloat16", "float16", "quantised", "quantised")
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
TOLD, MORE, FAR, TRIES = 0.02, 4, 0.1, 3


def drawn(seed: int, number: int) -> FreeGraph:
    """The graph of a number, the same in every run."""
    rng = np.random.default_rng([seed, number])
    made = FreeGraph(rng, int(rng.integers(18, 22)), {}, [{}])
    for _ in range(made.pick(1, 1, 2)):
        c, h = made.pick(1, 3, 4, 8, 16), made.pick(5, 7, 8, 12)
        made.input(*made.pick((1, c, h, h), (2, c, h, 5), (1, c, h), (3, c), (7, 16), (1, 6, c), (1, c, h, 9)))
    smooth = [recipe for recipe in RECIPES if recipe not in (extreme, lookup)]  # where a step of one byte is one
    made.grow(int(rng.integers(4, 12)), (*smooth, *[conv, product, gemm] * 4))
    return made


def moved(graph: FreeGraph, rounding: float, seed: int) -> onnx.ModelProto:
    """The model with weights and what its operators give multiplied by what differs from 1 by a rounding."""
    rng, model = np.random.default_rng(seed), graph.model()

    def near(array: Array) -> Array:
        return np.asarray(1 + rounding * rng.uniform(-1, 1, array.shape), np.float32)

    for weights in model.graph.initializer:
        array = numpy_helper.to_array(weights)
        if array.dtype == np.float32 and array.ndim > 1:
            weights.CopyFrom(numpy_helper.from_array(array * near(array), weights.name))
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        given = [name for name in node.output if name in graph.values]
        node.output[:] = [f"{name}_still" if name in given else name for name in node.output]
        model.graph.node.append(node)
        for name in given:
            model.graph.initializer.append(numpy_helper.from_array(near(graph.values[name][0]), f"{name}_factor"))
            model.graph.node.append(helper.make_node("Mul", [f"{name}_still", f"{name}_factor"], [name]))
    return model


def quantised(graph: FreeGraph, rng: np.random.Generator) -> onnx.ModelProto:
    """The model as ONNX Runtime's static quantiser makes it.  Raises Unfit for one that it does not take."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter([{name: graph.drawn(name, {}, seed) for name in graph.inputs} for seed in range(3)])

        def get_next(self) -> dict[str, Array] | None:
            return next(self.left, None)

    model = onnx.shape_inference.infer_shapes(graph.model())
    for output in model.graph.output:
        output.CopyFrom(helper.make_tensor_value_info(output.name, 1, graph.values[output.name][0].shape))
    with tempfile.TemporaryDirectory() as folder:
        plain, made = f"{folder}/plain.onnx", f"{folder}/made.onnx"
        onnx.save(model, plain)
        try:
            quantize_static(
                plain, made, Reader(), quant_format=QuantFormat.QDQ, per_channel=bool(rng.integers(2)),
                activation_type=(QuantType.QUInt8, QuantType.QInt8)[rng.integers(2)],
                weight_type=(QuantType.QInt8, QuantType.QInt8, QuantType.QUInt8)[rng.integers(3)],
                extra_options={"ActivationSymmetric": not rng.integers(3)},
            )  # fmt: skip
        except Exception as error:  # whatever the quantiser raises
            raise Unfit(str(error)) from None
        return onnx.load(made)


def outcome(graph: FreeGraph, kind: str, number: int, compiles: bool) -> tuple[str, str]:
    """A word and what is to be said of a graph."""
    device, rng = discover("cpu", 1), np.random.default_rng(number)
    arrays = {name: graph.drawn(name, {}, 0) for name in graph.inputs}

    def named(model: onnx.ModelProto, given: Mapping[str, Array]) -> dict[str, Array]:
        return dict(zip(graph.outputs, session(model)(given), strict=True))

    try:
        if kind == "quantised":
            model, close = quantised(graph, rng), TOLD
            near = [{n: (a * (1 + 1e-5 * rng.uniform(-1, 1, a.shape))).astype(np.float32) for n, a in arrays.items()}
                    for _ in range(TRIES)]  # fmt: skip
            others = [named(model, given) for given in near]
            network = forms(model, device)[0]
        else:
            model, close = graph.model(), 4 * ROUNDING[kind]
            others = [named(moved(graph, 2 * ROUNDING[kind], seed), arrays) for seed in range(TRIES)]
            network = forms(model, device, precision=kind)[0]
        wanted = named(model, arrays)
    except Unfit:
        return "not made or run by ONNX Runtime", ""
    except StridesmithError as error:
        return "refused", str(error)
    ways: dict[str, Mapping[str, Array]] = {"interpreted": evaluate(network, arrays)}
    if compiles:
        ways["compiled"] = compiled(network, device)(dict(arrays))
    told = []
    for way, found in ways.items():
        for name, array in wanted.items():
            if found[name].shape != array.shape:
                told.append(f"{way}: {name} has the shape {found[name].shape}, not {array.shape}")
                continue
            far = max(apart(other[name], array) for other in others)
            if far < FAR and not (off := apart(found[name], array)) <= close + MORE * far:
                told.append(
                    f"{way}: {name} is {off:.2g} of its largest number away, and may be {close + MORE * far:.2g}"
                )
    return ("WRONG", "; ".join(told)) if told else ("equal", "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first number")
    parser.add_argument("--compiled", type=int, default=10, help="which four graphs are compiled as well; 0 for none")
    parser.add_argument("--verbose", action="store_true", help="print refusals and progress, too")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    started = time.perf_counter()
    words: collections.Counter[str] = collections.Counter()
    for number in range(asked.first, asked.first + asked.count):
        kind = KINDS[number % len(KINDS)]
        try:
            compiles = bool(asked.compiled) and number // len(KINDS) % asked.compiled == 0
            word, told = outcome(drawn(asked.seed, number), kind, number, compiles)
        except Exception:  # whatever is raised that is no refusal is wrong
            word, told = "WRONG", traceback.format_exc(limit=-3)
        words[f"{kind} {word}"] += 1
        if word == "WRONG" or asked.verbose:
            print(f"{word} {number}: {kind} {told}", flush=True)
    print(f"{asked.count} graphs from {asked.first} on, seed {asked.seed}, {time.perf_counter() - started:.0f} s: "
          + ", ".join(f"{count} {word}" for word, count in sorted(words.items())))  # fmt: skip
    return 1 if any(word.endswith("WRONG") for word in words) else 0


if __name__ == "__main__":
    sys.exit(main())
