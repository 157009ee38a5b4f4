"""The weights of the estimate, as data for each class of machine.

`weights.toml` has an entry for each class and says what it was fitted to; `fit` makes the numbers from data that
`benchmarks/calibrate.py` collects.  They are named by what they weigh.  Several have the units of a cycle or of a
byte, but a weight answers for all that goes along with its column on the kernels that were timed: nothing here is a
property of a processor that one could look up.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import TYPE_CHECKING, Any

from ..ir.caches import cached

if TYPE_CHECKING:
    from ..ir.target import Target


@dataclass(frozen=True)
class Weights:
    """What each column of a candidate adds to its estimated time.

    A turn is one pass of the unrolled body; all up to `body` are in cycles for each vector multiply-add if nothing
    else is said, and `multiply_add` sets the unit of the others.  Those named `octaves_` are powers of two that the
    time is multiplied with.
    """

    multiply_add: float  # that neither waits for loads nor for the one before it
    widened: float  # more for a multiply-add of bytes that are widened first, and multiplied and added in 32 bits
    converted: float  # more for a load of a float of 16 bits that is made one of 32
    narrow: float  # multiply-adds and loads of half a vector, against 1 for those of a whole one
    chain: float  # that waits for the one before it, shared by the accumulators
    load_broadcast: float  # a load of one element for all lanes
    load_contiguous: float  # a load of a vector
    load_shifted: float  # of a vector that begins at any element
    load_paired: float  # of every second element
    load_strided: float  # of an element of a vector whose elements lie apart
    load_inlined: float  # of a value that is computed where it is used
    turn: float  # each turn
    spill: float  # where values exceed the registers
    spill_more: float  # and for each time that they exceed them
    store_scattered: float  # storing a vector of results whose elements lie apart, against 1 for a whole vector
    store_sum: float  # more than 1, for a store that adds a panel to the result
    l1_rate: float  # bytes in a cycle that come from behind the first cache
    l2_rate: float  # from behind the second
    l3_rate: float  # from memory
    copy_plain: float  # cycles for each copied element
    copy_squares: float  # transposed in squares of vectors
    copy_scattered: float  # of which neighbours are no neighbours where they come from
    copy_far: float  # more, where the second cache does not hold the copy and its source
    octaves_conflict: float  # for each power of two of lines that exceed what a cache holds of their sets
    octaves_scalar: float  # where the ragged edge of the vector axis is tested
    octaves_branch: float  # for each other ragged spatial axis that is tested
    octaves_inner_branch: float  # for each ragged axis of the reduction that is tested
    octaves_tested: float  # where lanes of values computed in place are chosen by a test
    octaves_tail: float  # for each power of two of points that peeled tails would round up to
    octaves_body: float  # for each power of two of multiply-adds in the body beyond `long_body`
    long_body: float  # the power of two of multiply-adds that a body has for nothing
    odd: float  # times more for a point that peeling leaves to a part of a vector
    lanewise: float  # times more for a point of a vector that a test cuts
    meet: float  # cycles of each thread where threads meet at the end of shared loops
    octaves_image: float  # for each input in an image, on a CPU that imitates it
    octaves_local: float  # for each input in local memory, on a CPU that imitates it


@dataclass(frozen=True)
class WarpWeights:
    """What each column of a candidate adds to its time on a device that runs work-items in step (see `warps`).

    Weights are in cycles of one of a compute unit's schedulers, those from `byte` on in cycles of all of them.

    Those named `octaves_` are powers of two that the time of what is issued is multiplied with.
    """

    issue: float  # a multiply-add of a warp, which sets the unit of the others
    load: float  # a load of a warp
    line: float  # a line that a load or store of a warp touches
    stage: float  # an element that each item of a warp copies to local memory
    byte: float  # a byte that work-groups fetch, for all units together
    turn: float  # each turn of a tile's code that waits for its loads
    chain: float  # a multiply-add of an item that nothing else hides
    panel: float  # each time that a group meets to load a panel
    launch: float  # each kernel
    convert: float  # a byte that a call makes part of an image
    octaves_branch: float  # for each ragged spatial axis that is tested
    octaves_inner_branch: float  # for each ragged axis of the reduction that is tested
    octaves_tested: float  # where what is computed in place is chosen by a test
    octaves_inlined: float  # where an input is computed in place
    octaves_image: float  # for each input that is read through the texture units
    octaves_lane: float  # for each power of two of the lanes of an item's vectors


AnyWeights = Weights | WarpWeights
FORMULAS: dict[str, type[AnyWeights]] = {"tiles": Weights, "warps": WarpWeights}
"""The weights that an entry of the file has, by the formula that it names: `prior`'s, or that of `warps`."""


def names_of(kind: type[AnyWeights]) -> tuple[str, ...]:
    """The names of the weights of a formula."""
    return tuple(f.name for f in fields(kind))


@dataclass(frozen=True)
class Machines:
    """The entry of a class of machines: its weights, and what they were made from.

    `data` names the file of kernels and latencies (in `benchmarks/calibration`) that a fit makes the same weights
    from, or is empty; `source` says in words where the weights come from.
    """

    name: str
    source: str
    data: str
    weights: AnyWeights


def weights_of(target: Target) -> AnyWeights:
    """The weights for a target, those of its class."""
    return classes()[class_of(target)].weights


def start_of(kind: type[AnyWeights]) -> AnyWeights:
    """The weights with which a fit of a formula begins."""
    return classes()["start-warps" if kind is WarpWeights else "start"].weights


def class_of(target: Target) -> str:
    """The class of a target: an OpenCL device is of one of two, by whether it runs work-items in step.

    For a CPU it is the instruction set; narrower and unknown ones go with AVX2.

    AMD's Zen 4 is a class of its own: it splits vectors of 512 bits in two, where others compute them whole.
    """
    if target.kind == "opencl":
        return "opencl-warps" if target.warp > 1 else "opencl"
    if target.isa == "avx512" and target.cpu == "znver4":
        return "znver4"
    return target.isa if target.isa in ("avx512", "neon") else "avx2"


@cached(1)
def classes() -> dict[str, Machines]:
    """All classes that the package knows, by name."""
    text = resources.files(__package__).joinpath("weights.toml").read_text(encoding="utf-8")
    return {name: machines_from(name, entry) for name, entry in tomllib.loads(text).items()}


def machines_from(name: str, entry: Mapping[str, Any]) -> Machines:
    """An entry of the file.  Raises ValueError where a weight is missing, unknown, or no number above zero."""
    formula = entry.get("formula", "tiles")
    if formula not in FORMULAS:
        raise ValueError(f"the class `{name}` has the formula {formula!r}; known are {', '.join(FORMULAS)}")
    kind, numbers = FORMULAS[formula], entry.get("weights", {})
    names = names_of(kind)
    missing, unknown = sorted(set(names) - set(numbers)), sorted(set(numbers) - set(names))
    if missing or unknown:
        wrong = f"lack {', '.join(missing)}" if missing else f"have unknown ones: {', '.join(unknown)}"
        raise ValueError(f"the weights of the class `{name}` {wrong}")
    for weight, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
            raise ValueError(f"the weight `{weight}` of the class `{name}` must be a number above 0, but is {value!r}")
    if not isinstance(entry.get("source"), str) or not isinstance(entry.get("data", ""), str):
        raise ValueError(f'the class `{name}` must say in words what its weights come from: source = "..."')
    return Machines(name, entry["source"], entry.get("data", ""), kind(**{n: float(numbers[n]) for n in names}))
