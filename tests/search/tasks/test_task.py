"""What a program has to be before there is a task for it."""

from __future__ import annotations

import pytest

from stridesmith.errors import ScriptProblem
from stridesmith.search.calling.kernel import build
from stridesmith.search.records.record import Record
from stridesmith.search.tasks.interface import LONGEST_NAME, MOST_ARGUMENTS, interface_of
from stridesmith.search.tasks.task import script_work
from stridesmith.search.tuning.settings import resolve, settings

HEAD = "from stridesmith.script import T\n\n@T.prim_func\n"


def script(name: str, arguments: list[str]) -> str:
    """A function that copies its first argument to the last one."""
    taken = ", ".join(f'{argument}: T.Buffer((8,), "float32")' for argument in arguments)
    body = f"""    for i in range(8):
        with T.block("copy"):
            vi = T.axis.spatial(8, i)
            {arguments[-1]}[vi] = {arguments[0]}[vi]
"""
    return f"{HEAD}def {name}({taken}):\n{body}"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("kopie", ["größe", "höhe"]), ("f" * LONGEST_NAME, ["x" * LONGEST_NAME, "y"]),
     ("many", [f"a{n}" for n in range(MOST_ARGUMENTS)])],
)  # fmt: skip
def test_a_program_that_is_accepted_has_records(name: str, arguments: list[str]) -> None:
    """Whatever names it has: a run that has begun does not end for want of a record."""
    work = script_work(script(name, arguments))
    record = Record(
        script=work.script, workload=work.name, dtype=work.dtype, interface=interface_of(work), target={},
        status="infrastructure",
    )  # fmt: skip
    assert list(record.interface) == arguments


@pytest.mark.parametrize(
    ("name", "arguments", "rule"),
    [
        ("f", ["x" * (LONGEST_NAME + 1), "y"], "has 101 characters, and a record holds 100"),
        ("f" * (LONGEST_NAME + 1), ["x", "y"], "has 101 characters, and a record holds 100"),
        ("f", [f"a{n}" for n in range(MOST_ARGUMENTS + 1)], f"and a record holds {MOST_ARGUMENTS}"),
    ],
)
def test_a_program_that_no_record_could_name_is_refused_at_once(name: str, arguments: list[str], rule: str) -> None:
    """With a sentence on what is too long or too many."""
    with pytest.raises(ScriptProblem, match=rule):
        script_work(script(name, arguments))


@pytest.mark.parametrize("loop", ["T.parallel(8)", "T.vectorized(8)", 'T.thread_binding(8, thread="threadIdx.x")'])
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("y[0] = y[0] + x[i]", "two iterations of loop `i` may touch the same element of `y`"),
        ("y[i] = y[7 - i] + x[i]", "two iterations of loop `i` may touch the same element of `y`"),
        ("y[i] = x[i] + 1.0", None),
    ],
)
def test_loops_that_a_program_marks_as_concurrent_are_proven(loop: str, body: str, sentence: str | None) -> None:
    """Whoever wrote them; what another iteration may write or read meanwhile is refused with the element."""
    text = f"""{HEAD}def f(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for i in {loop}:
        {body}
"""
    if sentence is None:
        assert "i" in script_work(text).script
        return
    with pytest.raises(ScriptProblem, match=sentence):
        script_work(text)


def test_updates_of_one_element_are_accepted_in_a_subgroup_alone() -> None:
    """Its work-items reduce what they have for the element before it is touched."""
    text = f"""{HEAD}def f(x: T.Buffer((8,), "float32"), y: T.Buffer((1,), "float32")):
    for i in T.thread_binding(8, thread="subgroup"):
        y[0] = y[0] + x[i]
"""
    assert script_work(text)
    with pytest.raises(ScriptProblem, match="element of `y`"):
        script_work(text.replace("subgroup", "threadIdx.x"))


@pytest.mark.parametrize(
    ("parameters", "body", "sentence"),
    [
        ('n: T.int32, y: T.Buffer((8,), "int32")', "n", "`n` is a number"),
    ],
)
def test_a_program_without_known_results_is_not_tuned(parameters: str, body: str, sentence: str) -> None:
    """It may be scheduled by hand and compiled; a search says before it begins that it cannot verify it."""
    text = f"""{HEAD}def f({parameters}):
    for i in range(8):
        with T.block("b"):
            vi = T.axis.spatial(8, i)
            y[vi] = {body}
"""
    with pytest.raises(ScriptProblem, match=sentence):
        resolve(settings(script=text))
    assert build(script_work(text).func)
