"""Where Winograd's convolutions pay: each of some shapes in both forms, tuned and then taking turns.

    python benchmarks/winograd.py --seconds 20 --out FILE.json      measures the shapes that the file does not have
    python benchmarks/winograd.py --fit FILE.json                   says from where on it pays

Each shape is a network of one convolution of three by three taps, channels last, with an activation, which is tuned
with the multiplications that it has and with fewer (`stridesmith/models/winograd.py`), in a database of its own.  What
decides there is the number of multiplications saved for each element of U, V and M.  The fit is the bound above which
every shape gains: three operators in place of one cost seconds of tuning, too.  `winograd.json` has what was measured
on two cores of an AMD EPYC (Zen 4, AVX-512).
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
from stridesmith.models.network import Network, Operator, Tensor
from stridesmith.models.winograd import convolution

SHAPES = (
    (8, 8, 64), (8, 32, 56), (16, 16, 112), (16, 64, 54), (24, 24, 80), (32, 32, 56), (32, 128, 27), (64, 64, 56),
    (64, 256, 13), (96, 24, 20), (96, 24, 160), (128, 32, 7), (128, 32, 28), (256, 256, 14), (512, 512, 7),
)  # fmt: skip
"""Input channels, output channels, height and width."""
ROUNDS = 15
GAIN = 1.05
"""What a shape must gain to count as one that does."""


def network_of(ci: int, co: int, size: int) -> Network:
    """A network of one convolution with random weights."""
    work = ss.workload("conv2d_bias_act", ci=ci, co=co, h=size, w=size, k=3, pad=1, layout="nhwc")
    names = [buffer.name for buffer in work.func.buffers]
    tensors = {b.name: Tensor(b.name, b.shape, b.dtype) for b in work.func.buffers}
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(tensors[name].shape).astype(np.float32) for name in names[1:-1]}
    operator = Operator("conv", work.func, tuple(names[:-1]), (names[-1],))
    return Network("conv", (names[0],), (names[-1],), tensors, weights, (operator,))


def saved(network: Network) -> float:
    """The multiplications that are saved for each element of U, V and M."""
    (node,) = network.nodes
    assert isinstance(node, Operator)
    found = convolution(network, node)
    assert found is not None
    return found.saved


def measured(shape: tuple[int, int, int], seconds: float, seed: int) -> dict[str, Any]:
    """Both forms of a shape: microseconds of each, taking turns."""
    network = network_of(*shape)
    with tempfile.TemporaryDirectory() as folder:
        db = str(Path(folder) / "w.db")
        forms = [
            ss.compile(network, seconds=seconds, db=db, seed=seed, winograd=fewer) for fewer in (False, True)
        ]
        rounds = [[statistics.median(form.measure(seconds=0.05)) * 1e6 for form in forms] for _ in range(ROUNDS)]
    as_written, fewer = (statistics.median(some) for some in zip(*rounds, strict=True))
    ratio = statistics.median(a / b for a, b in rounds)
    return {"shape": shape, "saved": saved(network), "as_written_us": as_written, "fewer_us": fewer, "ratio": ratio}


def fitted(rows: Sequence[dict[str, Any]]) -> float:
    """The geometric mean of the most that a shape saves which does not gain, and the next one."""
    most = max((row["saved"] for row in rows if row["ratio"] < GAIN), default=0.0)
    return float(np.sqrt(most * min((row["saved"] for row in rows if row["saved"] > most), default=np.inf)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20, help="of tuning for each form of a shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("winograd.json"))
    parser.add_argument("--fit", type=Path, help="only fit what this file has")
    arguments = parser.parse_args()
    if arguments.fit is None:
        rows = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
        for shape in SHAPES:
            if any(tuple(row["shape"]) == shape for row in rows):
                continue
            rows.append(measured(shape, arguments.seconds, arguments.seed))
            row = rows[-1]
            print(f"{row['shape']}: saved {row['saved']:.1f}, {row['as_written_us']:.1f} us as written, "
                  f"{row['fewer_us']:.1f} with fewer, {row['ratio']:.2f}", flush=True)  # fmt: skip
            arguments.out.write_text(json.dumps(rows, indent=1) + "\n")
    rows = json.loads((arguments.fit or arguments.out).read_text())
    print(f"bound: {fitted(rows):.1f} multiplications for each element")


if __name__ == "__main__":
    main()
