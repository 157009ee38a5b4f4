"""restrict_reduction: what it makes of a sum under a congruence, and what it refuses."""

from __future__ import annotations

import pytest
from draws import func_of
from goldens.execute import same_results

from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.ir.verify.rules import verify
from stridesmith.space.errors import ScheduleError
from stridesmith.space.schedule import Schedule, Trace
from stridesmith.space.tree import find_block

PROGRAM = """
@T.prim_func
def main(x: T.Buffer((20,), "{dtype}"), w: T.Buffer((9,), "{dtype}"), y: T.Buffer(({outs},), "{dtype}")):
    for i, k in T.grid({outs}, {taps}):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            {where}
            with T.init():
                y[vi] = T.{dtype}({init})
            y[vi] = {update}
"""
CHOSEN = "T.if_then_else({cond}, x[{at}], T.float32({other}))"


def program(
    cond: str = "(vi + vk) % 2 == 0", at: str = "(vi + vk) // 2", other: str = "0", update: str = "y[vi] + {v} * w[vk]",
    outs: int = 8, taps: int = 6, init: str = "0", where: str = "", dtype: str = "float32",
) -> Schedule:  # fmt: skip
    value = CHOSEN.format(cond=cond, at=at, other=other).replace("float32", dtype)
    text = PROGRAM.format(update=update.format(v=value), outs=outs, taps=taps, init=init, where=where, dtype=dtype)
    return Schedule(func_of(text))


SHAPES = {
    "a divisor": program(),
    "a remainder": program("(vi + vk) % 2 == 1"),
    "no divisor": program(taps=5),
    "a longer step": program("(vi + vk - 2) % 3 == 0 and 2 <= vi + vk", "(vi + vk - 2) // 3", taps=7),
    "a step longer than the sum": program("(vi + vk) % 5 == 0", "(vi + vk) // 5", taps=3),
    "a tap that moves by two": program("(vi + vk * 2) % 5 == 0", "(vi + vk * 2) // 5", taps=9),
    "a tap that moves back": program("(vi + 4 - vk) % 3 == 0 and vk <= vi + 4", "(vi + 4 - vk) // 3", taps=6),
    "the whole value": program(update="y[vi] + T.if_then_else((vi + vk) % 4 == 0, x[(vi + vk) // 4] * w[vk], "
                               "T.float32(0))", taps=8),
    "a maximum": program(other='"-inf"', init='"-inf"', update="T.max(y[vi], {v})"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_the_sum_runs_over_every_step(name: str) -> None:
    """The loop has ceil(K / s) points, results are the same, and the trace replays."""
    schedule = SHAPES[name].copy()
    before = schedule.func
    step = next(s for s in (2, 3, 4, 5) if f"% {s} ==" in before.script())
    taps = find_block(before, "sum").reduce[0].extent
    loop = schedule.restrict_reduction("sum", "k")
    assert schedule.get_loops("sum") == ["i", loop]
    assert find_block(schedule.func, "sum").reduce[0].extent == -(-taps // step)
    assert f"% {step} ==" not in schedule.func.script()
    verify(schedule.func)
    check_in_bounds(schedule.func)
    same_results(before, schedule.func)
    assert Trace.from_json(schedule.trace.to_json()).replay(before).func.script() == schedule.func.script()


REFUSED = {
    "a loop of the result": (program(), "i", r"\(1\) loop `i` is not one reduce iterator"),
    "a block with a condition": (program(where="T.where(k < 4)"), "k", r"\(1\) block `sum` is not an unconditional"),
    "another value": (program(other="1"), "k", r"\(2\) what block `sum` combines is not neutral"),
    "a sum of two": (program(update="y[vi] + ({v} + w[vk])"), "k", r"\(2\) what block `sum` combines is not neutral"),
    "a maximum of zero": (program(update="T.max(y[vi], {v})"), "k", r"\(2\) what block `sum` combines"),
    "no congruence": (program("vi + vk < 8", "vi + vk"), "k", r"\(3\) no conjunct of .* is a congruence"),
    "a common divisor": (program("(vi + vk * 2) % 4 == 0", "(vi + vk * 2) // 4"), "k", r"\(3\) no conjunct"),
    "what memory holds": (program("(T.Cast('int64', w[vi]) + vk) % 2 == 0"), "k", r"\(3\) no conjunct"),
    "a sum that wraps around": (program("(vi + vk * 4611686018427387905) % 3 == 0"), "k", r"\(3\) no conjunct"),
    "no linear form": (program("(vi + vk // 2) % 2 == 0", "(vi + vk) // 2"), "k", r"\(3\) no conjunct"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    """Each condition has its sentence, and a refused program stays as it was."""
    schedule, loop, sentence = REFUSED[name]
    before = schedule.func
    with pytest.raises(ScheduleError, match=sentence):
        schedule.restrict_reduction("sum", loop)
    assert schedule.func is before


def test_a_parallel_reduction_is_no_loop_of_its_own() -> None:
    """Only a serial loop that is one iterator can be restricted."""
    schedule = program()
    schedule.split("k", [3, 2])
    with pytest.raises(ScheduleError, match=r"\(1\) loop `k_0` is not one reduce iterator"):
        schedule.restrict_reduction("sum", "k_0")
