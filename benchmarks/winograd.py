"""Where Winograd's convolutions pay: each of some shapes in both forms, tuned and then taking turns.

    python benchmarks/winograd.py --seconds 15 --out FILE.json      measures the shapes that the file does not have
    python benchmarks/winograd.py --fit FILE.json                   says from where on it pays

Each shape is a network of one convolution of three taps in each dimension, channels last, which is tuned with the
multiplications that it has and with fewer (`stridesmith/models/winograd.py`), in a database of its own.  What decides
there is the number of multiplications saved for each element of U, V and M.  The fit has two bounds.

- Of images whose U, V and M fit the last cache, `WORTH` is that above which every shape gains: three operators in place
  of one cost seconds of tuning, too.
- Where they do not fit it, they come from memory, and of rows the products, a third fewer where images have less than
  half, are done at a lower rate.  What an element costs there is the multiplications that could have been done in the
  time that is not spent on products, at the highest rate of all shapes.  `WORTH_UNCACHED` is the median of
  that over these shapes, and more than what any of them saves without a gain.

`winograd.json` has what was measured on two cores of an AMD EPYC (Zen 4, AVX-512).  A file is written after each shape,
so that a run can be ended and go on; all shapes that it lacks take about a minute each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import stridesmith as ss
from stridesmith.backends.devices import discover
from stridesmith.models.network import Network, Operator, Tensor
from stridesmith.models.winograd import STAYS, Convolution, convolution

SHAPES = (
    (1, 8, 8, 64, 64), (1, 8, 32, 56, 56), (1, 16, 16, 112, 112), (1, 16, 64, 54, 54), (1, 24, 24, 80, 80),
    (1, 32, 32, 56, 56), (1, 32, 128, 27, 27), (1, 64, 64, 56, 56), (1, 64, 256, 13, 13), (1, 96, 24, 20, 20),
    (1, 96, 24, 160, 160), (1, 128, 32, 7, 7), (1, 128, 32, 28, 28), (1, 256, 256, 14, 14), (1, 512, 512, 7, 7),
)  # fmt: skip
"""Images, input channels, output channels, height and width: those from which the bound within the caches came."""
LONG = (
    (128, 30, 64, 1000), (128, 64, 64, 1000), (1, 64, 64, 3000), (1, 256, 256, 400), (16, 128, 128, 1000),
    (1, 32, 32, 80, 3000), (1, 64, 64, 40, 1500), (1, 64, 64, 224, 224), (1, 128, 128, 20, 750),
    (1, 128, 128, 80, 1500), (1, 256, 256, 40, 750), (1, 128, 128, 112, 112),
)  # fmt: skip
"""Rows, and images as long as spectrograms: most of their U, V and M come from memory."""
ROUNDS = 15
GAIN = 1.05
"""What a shape must gain to count as one that does."""

Row = dict[str, Any]


def network_of(n: int, ci: int, co: int, *space: int) -> Network:
    """A network of one convolution with random weights, of rows or of images."""
    sizes = {"n": n, "ci": ci, "co": co, "k": 3, "pad": 1} | dict(zip(("h", "w")[-len(space) :], space, strict=True))
    name, layout = ("conv2d_bias_act", "nhwc") if len(space) > 1 else ("conv1d", "nwc")
    work = ss.workload(name, layout=layout, **sizes)
    names = [buffer.name for buffer in work.func.buffers]
    tensors = {b.name: Tensor(b.name, b.shape, b.dtype) for b in work.func.buffers}
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(tensors[name].shape).astype(np.float32) for name in names[1:-1]}
    operator = Operator("conv", work.func, tuple(names[:-1]), (names[-1],))
    return Network("conv", (names[0],), (names[-1],), tensors, weights, (operator,))


def convolution_of(network: Network) -> Convolution:
    """The convolution that the network is."""
    (node,) = network.nodes
    assert isinstance(node, Operator)
    found = convolution(network, node)
    assert found is not None
    return found


def counted(network: Network) -> Row:
    """What a shape has of multiplications, with and without the fewer, and of elements of U, V and M."""
    conv = convolution_of(network)
    every = round(conv.saved * conv.elements) + conv.products
    return {"saved": conv.saved, "multiplications": every, "products": conv.products, "elements": conv.elements}


def measured(shape: Sequence[int], seconds: float, seed: int) -> Row:
    """Both forms of a shape: microseconds of each, taking turns."""
    from stridesmith.models.tuning import tune_network
    from stridesmith.models.winograd import with_winograd

    network, target = network_of(*shape), discover("cpu")
    with tempfile.TemporaryDirectory() as folder:
        db = str(Path(folder) / "w.db")
        made = (network, with_winograd(network, worth=-np.inf))
        forms = [tune_network(form, target, seconds, db=db, seed=seed).model for form in made]
        rounds = [[statistics.median(form.measure(seconds=0.05)) * 1e6 for form in forms] for _ in range(ROUNDS)]
    as_written, fewer = (statistics.median(some) for some in zip(*rounds, strict=True))
    ratio = statistics.median(a / b for a, b in rounds)
    times = {"as_written_us": as_written, "fewer_us": fewer, "ratio": ratio}
    return {"shape": list(shape), "cache": target.l3_bytes, **counted(network), **times}


def is_cached(row: Row) -> bool:
    """Whether these are images whose U, V and M stay in the last cache of the machine that measured."""
    return len(row["shape"]) > len(("n", "ci", "co", "w")) and bool(4 * row["elements"] <= STAYS * row["cache"])


def fitted(rows: Sequence[Row]) -> float:
    """Of images within the caches: the geometric mean of the most that is saved without a gain, and the next one."""
    cached = [row for row in rows if is_cached(row)]
    most = max((row["saved"] for row in cached if row["ratio"] < GAIN), default=0.0)
    return float(np.sqrt(most * min((row["saved"] for row in cached if row["saved"] > most), default=np.inf)))


def cost(row: Row, rows: Sequence[Row]) -> float:
    """Multiplications that could be done while an element is written and read, at the highest rate of all rows."""
    rate = max(other["multiplications"] / other["as_written_us"] for other in rows)
    return float((rate * row["fewer_us"] - row["products"]) / row["elements"])


def fitted_uncached(rows: Sequence[Row]) -> float:
    """Of rows, and beyond the caches: the median of what an element costs, or a little above all without a gain."""
    far = [row for row in rows if not is_cached(row)]
    lost = max((row["saved"] for row in far if row["ratio"] < 1), default=0.0)
    return max(statistics.median(cost(row, rows) for row in far), 1.01 * lost)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=15, help="of tuning for each form of a shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("winograd.json"))
    parser.add_argument("--fit", type=Path, help="only fit what this file has")
    arguments = parser.parse_args()
    rows = json.loads((arguments.fit or arguments.out).read_text()) if (arguments.fit or arguments.out).exists() else []
    for shape in () if arguments.fit else (*SHAPES, *LONG):
        if any(tuple(row["shape"]) == shape for row in rows):
            continue
        row = measured(shape, arguments.seconds, arguments.seed)
        rows.append(row)
        print(f"{row['shape']}: saved {row['saved']:.1f}, {row['as_written_us']:.1f} us as written, "
              f"{row['fewer_us']:.1f} with fewer, {row['ratio']:.2f}", flush=True)  # fmt: skip
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n")
    for row in rows:
        where = "in the caches" if is_cached(row) else "in memory, or rows,"
        print(f"{row['shape']}: {row['ratio']:.2f} for {row['saved']:.1f} saved, {where} at {cost(row, rows):.1f}")
    print(f"WORTH = {fitted(rows):.1f} multiplications for each element, WORTH_UNCACHED = {fitted_uncached(rows):.1f}")


if __name__ == "__main__":
    main()
