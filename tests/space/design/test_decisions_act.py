"""Every decision acts: candidates that differ in it alone are different programs with the same results.

Different is what is executed, or what the caller has to do: how the arguments are laid out, and what their padding
holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from expected_space import CPU, OPENCL
from goldens.execute import POISONS, logical_results
from scale import SCALE

from stridesmith.backends.data import arguments_of
from stridesmith.backends.kernel import compile_lowered
from stridesmith.backends.lower import Lowered, lower
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.search.tasks.task import name_of
from stridesmith.search.workers import jobs
from stridesmith.search.workers.protocol import Compiled, Verified, Verify
from stridesmith.space.design.decision import KINDS, Decision
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.errors import ScheduleError
from stridesmith.space.workloads import Workload, workload

SHAPES = {
    "conv2d": {"ci": 5, "h": 7, "w": 9, "co": 10, "k": 3},
    "matmul": {"m": 13, "n": 19, "k": 11},
    "max_pool2d": {"c": 10, "h": 9, "w": 19, "k": 3, "stride": 2, "pad": 1},
    "softmax": {"rows": 40, "cols": 21},
    "row_sum": {"rows": 9, "cols": 37},
}
TARGETS = {"cpu": CPU, "opencl": OPENCL}
TRIES = 40
Pair = tuple[tuple[int, ...], tuple[int, ...]]


@lru_cache(maxsize=8)
def space(name: str, kind: str) -> tuple[Workload, tuple[Sketch, ...]]:
    work = workload(name, **SHAPES[name])
    return work, generate(work.func, TARGETS[kind], dict.fromkeys(work.constants, "constant")).sketches


def feasible(sketch: Sketch) -> Any:
    """Some hundred feasible candidates of a sketch."""
    return sketch.draw(np.random.default_rng(3), 400)


def pairs(sketch: Sketch, number: int) -> Iterator[Pair]:
    """Feasible candidates that differ in decision `number` alone, a pair for each neighbourhood that has one."""
    rows = feasible(sketch)
    count = len(sketch.decisions[number])
    variants = np.repeat(rows[:, None], count, axis=1)
    variants[:, :, number] = np.arange(count)
    alive = sketch.mask(variants.reshape(-1, variants.shape[-1])).reshape(len(rows), count)
    for row in np.flatnonzero(alive.sum(axis=1) > 1):
        first, second = np.random.default_rng(int(row)).permutation(np.flatnonzero(alive[row]))[:2]
        yield tuple(map(int, variants[row, first])), tuple(map(int, variants[row, second]))


class Program:
    """A candidate scheduled and lowered."""

    def __init__(self, sketch: Sketch, choice: tuple[int, ...], target: Target) -> None:
        self.func: PrimFunc = sketch.schedule(choice).func
        self.lowered: Lowered = lower(self.func, target)
        self.text = str(sketch.labels(choice))

    @property
    def contract(self) -> tuple[object, ...]:
        """What is executed, and how the caller lays out and pads the arguments."""
        return self.lowered.body, arguments_of(self.func)


def different(sketch: Sketch, item: Decision, target: Target) -> tuple[Program, Program] | None:
    """A pair of candidates that differ in a decision alone, and in what is executed or asked of the caller."""
    number = sketch.decisions.index(item)
    for _, (first, second) in zip(range(TRIES), pairs(sketch, number), strict=False):
        one, other = Program(sketch, first, target), Program(sketch, second, target)
        if one.contract != other.contract:
            return one, other
    return None


@lru_cache(maxsize=8)
def expected(name: str) -> dict[float, dict[str, Any]]:
    return {poison: logical_results(workload(name, **SHAPES[name]).func, poison) for poison in POISONS}


def check_meaning(name: str, program: Program) -> None:
    """The interpreter gets the untransformed program's results, whatever padding and workspaces hold."""
    for poison, results in expected(name).items():
        found = logical_results(program.func, poison)
        for key, array in results.items():
            tolerance = 1e-5 if name == "softmax" else 0
            np.testing.assert_allclose(found[key], array, rtol=tolerance, err_msg=program.text)


def check_kernel(work: Workload, program: Program, target: Target) -> None:
    """The compiled candidate passes the verification of the search."""
    kernel = Compiled(compile_lowered(program.lowered, target), arguments_of(program.func))
    reply = jobs.run(Verify(kernel=kernel, work=name_of(work), seed=1))
    assert isinstance(reply, Verified), f"{reply}: {program.text}"


def decisions(sketches: tuple[Sketch, ...], kind: str) -> list[tuple[Sketch, Decision]]:
    """One decision of each name and anchor, in the last sketch that has it; a sixth of them at the default scale."""
    last = {d.name.removeprefix(s.name): (s, d) for s in sketches for d in s.decisions if d.kind == kind}
    return list(last.values())[:: 6 if SCALE <= 1 else 1]


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "choice"])
@pytest.mark.parametrize("device", TARGETS)
@pytest.mark.parametrize("name", SHAPES)
def test_a_decision_alone_makes_another_program_that_is_right(name: str, device: str, kind: str) -> None:
    """For each decision some pair of candidates that differ in it alone lowers differently, and both verify."""
    work, sketches = space(name, device)
    for sketch, item in decisions(sketches, kind):
        found = different(sketch, item, TARGETS[device])
        assert found is not None, f"no alternative of {item.name} changes anything"
        for program in found:
            if device == "cpu":
                check_kernel(work, program, CPU)
            else:
                check_meaning(name, program)


TILES = {"tile:s0": "4", "tile:s1": "1x8", "tile:r0": "2", "layout:i0": "tiled:d1", "layout:i1": "copy", "pad:i1": "0"}


def labelled(sketch: Sketch, labels: dict[str, str]) -> tuple[int, ...]:
    """The candidate of these labels, with the first alternative of every other decision."""
    names = [d.name.rsplit("/", 1)[-1] for d in sketch.decisions]
    assert labels.keys() <= set(names)
    return tuple(d.labels.index(labels.get(n, d.labels[0])) for n, d in zip(names, sketch.decisions, strict=True))


def padded(interface: str, pad: str, **edges: str) -> tuple[Sketch, tuple[int, ...]]:
    """A product whose right factor has tiled columns, padded as said, at the given ragged edges."""
    work = workload("matmul", **SHAPES["matmul"])
    sketch = next(s for s in generate(work.func, CPU, {"b": interface}).sketches if s.name == "vec=s1,row=s0")
    return sketch, labelled(sketch, {**TILES, "pad:i0": pad, **{f"boundary:{k}": v for k, v in edges.items()}})


def test_pad_values_of_a_copy_differ_in_what_is_stored() -> None:
    """None stores nothing beyond the data, undef what lowering drops, 0 a number: two kernels of three programs.

    So None and undef are told apart only by what they allow, which the next test says.
    """
    none, undef, zero = (Program(*padded("fixed", pad), CPU) for pad in ("none", "undef", "0"))
    assert len({p.func for p in (none, undef, zero)}) == 3
    assert "T.undef" in undef.func.script() and "T.undef" not in none.func.script() + zero.func.script()
    assert none.lowered == undef.lowered != zero.lowered
    for program in (none, undef, zero):
        check_kernel(workload("matmul", **SHAPES["matmul"]), program, CPU)


def test_pad_values_differ_in_what_they_allow() -> None:
    """Past a spatial edge any value will do, past a reduction's only the neutral one; others are masked and refused."""
    allowed = {"s1": ("undef", "0"), "r0": ("0",)}
    for axis, values in allowed.items():
        for pad in ("none", "undef", "0"):
            sketch, choice = padded("fixed", pad, **{axis: "overcompute"})
            assert bool(sketch.mask(np.asarray([choice]))[0]) == (pad in values)
            if pad not in values:
                with pytest.raises(ScheduleError, match="remove_branching_through_overcompute"):
                    sketch.schedule(choice)


def test_pad_values_of_a_constant_are_what_the_caller_packs() -> None:
    """The kernel is the same; None, undef or 0 is part of the argument's signature."""
    programs = [Program(*padded("constant", pad), CPU) for pad in ("none", "undef", "0")]
    assert programs[0].lowered.body == programs[1].lowered.body == programs[2].lowered.body
    pads = [next(a for a in arguments_of(p.func) if a.name == "b").pad_value for p in programs]
    assert pads == ["", "undef", "0.0"]
