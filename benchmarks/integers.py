"""Is every convolution and product of a quantised network computed in integers? A count for each; no timing.

    python benchmarks/integers.py --out FOLDER [--models resnet50,bert] [--file net.onnx --input x=1x3x320x320]

Each of the ten networks of `networks.py` is taken after ONNX Runtime's quantiser, read as it would be tuned, and the
sums of products in its programs are counted by the types of what they multiply.  Beside them stands how many
convolutions and products the file has: one that is computed by two sums, or by none, shows.  Passes over floats alone,
and operators without a program, are named.  The exit code is 1 where a sum of products is not of integers.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from network_race import made, network_in
from networks import NETWORKS

if TYPE_CHECKING:
    from stridesmith.ir.stmt import Block
    from stridesmith.models.network import Network, Operator

PRODUCTS = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "Gemm", "MatMul", "MatMulInteger", "QLinearMatMul")
"""Operators of ONNX that are sums of products."""


def multiplied(block: Block) -> tuple[str, ...]:
    """The types of the numbers that a block multiplies and adds up, without what it widens them to; else nothing.

    A sum of squares, as of a variance, is none of products.
    """
    from stridesmith.ir.expr import Cast, Load
    from stridesmith.space.design.program import product_factors
    from stridesmith.space.errors import ScheduleError
    from stridesmith.space.primitives.reduction import update_of

    if not block.reduce:
        return ()
    try:
        _, op, value = update_of(block)
    except ScheduleError:
        return ()
    factors = [f.a if isinstance(f, Cast) else f for f in product_factors(value)]
    loads = [f for f in factors if isinstance(f, Load)]
    is_product = op == "+" and len(loads) == len(factors) == 2 and loads[0] != loads[1]
    return tuple(f.dtype for f in loads) if is_product else ()


def sums(network: Network) -> Iterator[tuple[Operator, tuple[str, ...]]]:
    """The sums of products of a network, each with the types of its factors."""
    from stridesmith.models.network import Operator
    from stridesmith.space.tree import leaf_blocks

    for node in network.nodes:
        if isinstance(node, Operator):
            for block in leaf_blocks(node.func.body):
                if found := multiplied(block):
                    yield node, found


def row(path: Path, shapes: list[str], threads: int) -> tuple[str, bool]:
    """A line of the table, what stays in floats, and whether all sums of products are of integers."""
    from stridesmith.ir import dtypes
    from stridesmith.models.network import Operator

    asked = sum(node.op_type in PRODUCTS for node in onnx.load(path).graph.node)
    network = network_in(path, shapes, threads)
    found = list(sums(network))
    floats = [f"{node.name} ({' by '.join(types)})" for node, types in found if any(map(dtypes.is_float, types))]
    kinds = Counter(" by ".join(types) for _, types in found)
    passes = [
        node for node in network.nodes
        if isinstance(node, Operator) and not any(other is node for other, _ in found)
        and all(dtypes.is_float(network.tensors[name].dtype) for name in (*node.inputs, *node.outputs))
    ]  # fmt: skip
    called = ", ".join(f"{node.op} {node.name}" for node in network.called)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    text = f"| {path.stem} | {asked} | {len(found) - len(floats)} | {len(floats)} | {counts} | {len(network.nodes)} "
    text += f"| {len(passes)} | {called or '-'} |"
    return "\n".join([text, *(f"  in floats: {name}" for name in floats)]), not floats


def main() -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default="", help=f"of {','.join(NETWORKS)}; all of them unless a file is given")
    parser.add_argument("--file", type=Path, action="append", default=[])
    parser.add_argument("--input", action="append", default=[], help="X=1x3x320x320, for the files")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("models"))
    asked = parser.parse_args()
    names = [name for name in asked.models.split(",") if name] or ([] if asked.file else list(NETWORKS))
    print("| network | convolutions and products | sums of integers | of floats | of | operators | passes over floats "
          "| called by Python |\n|---|---:|---:|---:|---|---:|---:|---|")  # fmt: skip
    good = True
    for path, shapes in (*made([f"{name}:int8" for name in names], asked.out), *((f, asked.input) for f in asked.file)):
        text, is_good = row(path, shapes, asked.threads)
        print(text, flush=True)
        good &= is_good
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
