"""Random networks of free sizes: are they at every size what ONNX Runtime computes?

    python benchmarks/free_graphs.py [--count 1000] [--seed 0] [--from N] [--compiled 8] [--done FILE] [--verbose]

Needs the packages `onnx` and `onnxruntime`.  Each model is drawn by its number (`tests/free_operators.py`): 5 to 15
times an operator or a few that belong together, as exporters write them, over inputs with one or two extents that are
ranges.  It is read as a network of free sizes, and its programs are interpreted at the least sizes, the largest ones,
and three that are drawn; every `--compiled`-th also runs as `ss.compile` makes it.  Results are compared with those of
ONNX Runtime without optimisations, and where they differ with those of the network that is read for this size alone.

How far they may be apart is a ten-thousandth of the largest result, and more where ONNX Runtime's own results move
more as all inputs are multiplied by numbers that differ from 1 by a rounding or two; outputs that move far tell
nothing.  WRONG are other results and what is raised that is no refusal; the exit code is 1 then.  With `--done`
what came of each graph is a line of that file, and those that it has are not run again.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import time
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from free_models import Expected, FreeGraph, Unfit, computed
from free_operators import drawn_graph

from stridesmith.backends.devices import discover
from stridesmith.errors import StridesmithError
from stridesmith.models.evaluate import evaluate
from stridesmith.models.inputs import Given
from stridesmith.models.onnx import read
from stridesmith.models.ranges.api import FreeSizes, compiled, network_of

DRAWN = 3
"""Sizes beside the least and the largest ones."""


def outcome(graph: FreeGraph, compiles: bool) -> tuple[str, str]:
    """A word and what is to be said of a graph: ``equal``, ``refused`` with the reason, or ``WRONG``."""
    device = discover("cpu", 1)
    try:
        network = network_of(graph.model(), device, FreeSizes(graph.ranges, graph.inputs))
        run = compiled(network, device) if compiles else None
    except StridesmithError as error:
        return "refused", str(error)
    told = []
    for number, point in enumerate([*graph.ends, *(graph.point() for _ in range(DRAWN))]):
        try:
            expected = Expected.of(graph, point, number)
        except Unfit as error:
            return "not run by ONNX Runtime", str(error)
        ways = {"interpreted": computed(network, point, expected.arrays)}
        if run is not None:
            ways["compiled"] = run(expected.arrays)
        for way, found in ways.items():
            if apart := expected.differences(found):
                shapes = {name: array.shape for name, array in expected.arrays.items()}
                alone = read(graph.model(), Given(shapes))
                own = expected.differences(evaluate(alone, expected.arrays))
                also = "as it is where this is the only size" if own else "unlike where this is the only size"
                told.append(f"{way} with {dict(point)}: {'; '.join(apart)}, {also}")
    return ("WRONG", " | ".join(told)) if told else ("equal", "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first number")
    parser.add_argument("--compiled", type=int, default=8, help="each which graph is compiled as well; 0 for none")
    parser.add_argument("--done", type=Path, help="a file of what came of graphs, which goes on where it ended")
    parser.add_argument("--verbose", action="store_true", help="print refusals and progress, too")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    known: dict[int, tuple[str, str]] = {}
    if asked.done and asked.done.exists():
        rows = [json.loads(line) for line in asked.done.read_text().splitlines()]
        known = {row["number"]: (row["word"], row["told"]) for row in rows if row["seed"] == asked.seed}
    words: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    for number in range(asked.first, asked.first + asked.count):
        if number not in known:
            compiles = bool(asked.compiled) and number % asked.compiled == 0
            try:
                word, told = outcome(drawn_graph(asked.seed, number), compiles)
            except Exception:  # whatever is raised that is no refusal is wrong
                word, told = "WRONG", traceback.format_exc(limit=-3)
            known[number] = word, told
            if asked.done:
                line = {"seed": asked.seed, "number": number, "word": word, "told": told}
                with asked.done.open("a") as log:
                    log.write(json.dumps(line) + "\n")
        word, told = known[number]
        words[word] += 1
        if word == "refused":
            reasons[re.sub(r"\d+", "1", told.partition("for all sizes: ")[2] or told)[:60]] += 1
        if word == "WRONG" or asked.verbose:
            print(f"{word} {number}: {told}", flush=True)
    for reason, count in reasons.most_common(12):
        print(f"{count:5} {reason}")
    print(f"{asked.count} graphs from {asked.first} on, seed {asked.seed}, {time.perf_counter() - started:.0f} s: "
          + ", ".join(f"{count} {word}" for word, count in words.most_common()))  # fmt: skip
    return 1 if words["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
