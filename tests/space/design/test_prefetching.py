"""Weights that come from memory may be fetched ahead, where several tiles use a panel of them."""

from __future__ import annotations

import pytest
from cpu_run import run_compiled
from draws import candidates
from expected_space import CPU, OPENCL
from goldens.execute import same_results

from stridesmith.ir.node import walk
from stridesmith.ir.stmt import For, PrimFunc
from stridesmith.ir.target import Target
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

LARGE = {"n": 1, "ci": 64, "co": 64, "h": 9, "w": 11, "k": 3, "pad": 1}


def prefetching(sketch: Sketch) -> list[int]:
    """The numbers of the decisions about it."""
    return [number for number, d in enumerate(sketch.decisions) if "/prefetch:" in d.name]


def sketches(word: str, target: Target = CPU, **changed: int) -> tuple[Sketch, ...]:
    return generate(workload("conv2d", **LARGE | changed).func, target, {"w": word}).sketches


def annotated(func: PrimFunc) -> list[object]:
    return [value for n in walk(func.body) if isinstance(n, For) for key, value in n.annotations if key == "prefetch"]


def test_streamed_weights_have_the_choice() -> None:
    """One decision with two alternatives, and no other difference to constants."""
    for one, other in zip(sketches("streamed"), sketches("constant"), strict=True):
        (number,) = prefetching(one)
        assert one.decisions[number].labels == ("none", "next panel")
        assert [d.name for d in one.decisions if "/prefetch:" not in d.name] == [d.name for d in other.decisions]


@pytest.mark.parametrize(
    ("word", "target", "changed"),
    [("constant", CPU, {}), ("fixed", CPU, {}), ("streamed", OPENCL, {}), ("streamed", CPU, {"ci": 4, "co": 4})],
)
def test_others_have_none(word: str, target: Target, changed: dict[str, int]) -> None:
    """What stays in the second cache, what is repacked in each call, other devices, and small weights."""
    assert not any(prefetching(sketch) for sketch in sketches(word, target, **changed))


def test_candidates_say_so_and_keep_the_results() -> None:
    """The parameter's number stands at one loop; as the interpreter runs them, and as LLVM compiles them."""
    work = workload("conv2d", **LARGE | {"ci": 32, "co": 32})
    seen = set()
    for number, sketch in enumerate(generate(work.func, CPU, {"w": "streamed"}).sketches[:3]):
        (decision,) = prefetching(sketch)
        for choice in candidates(sketch, 4, number):
            func = sketch.schedule(choice).func
            wanted = [(1,)] if choice[decision] else []
            assert annotated(func) == wanted
            seen.add(bool(wanted))
            same_results(work.func, func)
            run_compiled(work, func, number)
    assert seen == {False, True}


def test_what_one_tile_reads_is_not_fetched_by_others() -> None:
    """A product of one row reads every weight once."""
    work = workload("matmul", m=1, n=256, k=256)
    for sketch in generate(work.func, CPU, {"b": "streamed"}).sketches:
        assert not prefetching(sketch)
