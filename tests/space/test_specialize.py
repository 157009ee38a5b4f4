"""Several schedules of one program of many shapes, one of which runs by the extents of a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranged_programs import MATMUL, product, program

import stridesmith as ss
from stridesmith.ir.stmt import If, walk_stmts
from stridesmith.space.errors import ScheduleError
from stridesmith.space.schedule import Schedule, Trace


def rows(count: int) -> list[Any]:
    """Rows in tiles of so many, on all threads."""
    return [
        ["split", {"loop": "i", "factors": [None, count]}],
        ["reorder", {"loops": ["i_0", "j", "k", "i_1"]}],
        ["parallel", {"loop": "i_0"}],
        ["unroll", {"loop": "i_1"}],
    ]


ONE = [["split", {"loop": "k", "factors": [8, 4]}], ["unroll", {"loop": "k_1"}]]
CASES = [[{"n": [1, 1], "m": [2, 2]}, ONE], [{"n": [1, 16]}, rows(2)], [{}, rows(6)]]


def test_each_case_has_a_schedule_of_its_own() -> None:
    """The program is that of NumPy in and between all cases, and its trace replays from both of its forms."""
    sch = Schedule(program())
    sch.specialize(CASES)
    assert sum(isinstance(s, If) for s in walk_stmts(sch.func.body)) == 2
    ss.verify(sch.func)
    assert ss.parse(sch.func.script()) == sch.func
    for trace in (Trace.from_json(sch.trace.to_json()), Trace.from_script(sch.trace.script())):
        assert trace.replay(program()).func == sch.func
    for n, m in ((1, 2), (1, 1), (2, 2), (16, 3), (17, 1), (64, 8)):
        product(sch.func, n, m)


def test_one_kernel_has_all_cases() -> None:
    """A call goes to the case of its extents: results are right in each."""
    sch = Schedule(program())
    sch.specialize(CASES)
    kernel = ss.build(sch.func, "cpu")
    for n, m in ((1, 2), (1, 1), (2, 2), (16, 3), (17, 1), (64, 8)):
        rng = np.random.default_rng(n)
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((n, 32), (m * 4, 32)))
        np.testing.assert_array_equal(kernel(a, m, b), a @ b.T)


def test_a_case_knows_its_ranges() -> None:
    """A factor that nothing covers in general covers the extent of a case."""
    whole = [["split", {"loop": "i", "factors": [4, 4]}]]
    sch = Schedule(program())
    with pytest.raises(ScheduleError, match="covers the extent `n`"):
        sch.split("i", [4, 4])
    sch.specialize([[{"n": [1, 16]}, whole], [{}, []]])
    for n in (1, 15, 16, 17):
        product(sch.func, n, 3)


def test_cases_share_the_layouts_of_parameters() -> None:
    """A weight that all cases want in one layout has it; other layouts in one case are refused."""
    text = MATMUL.replace("m: T.int64, ", "").replace("m * 4", "8").replace(" and m <= 8", "")
    packed = [["transform_layout", {"block": "C", "buffer": "B", "index_map": "lambda i, j: [j, i]"}]]
    sch = Schedule(program(text))
    sch.specialize([[{"n": [1, 1]}, packed], [{"n": [2, 16]}, [*packed, *rows(2)]], [{}, packed]])
    kernel = ss.build(sch.func, "cpu", {"A": "fixed", "B": "constant", "C": "fixed"})
    b = np.arange(256, dtype=np.float32).reshape(8, 32) % 7
    ready = kernel.pack(B=b)
    for n in (1, 5, 40):
        a = np.arange(n * 32, dtype=np.float32).reshape(n, 32) % 5
        np.testing.assert_array_equal(kernel(a, b), a @ b.T)
        np.testing.assert_array_equal(ready(a), a @ b.T)
    with pytest.raises(ScheduleError, match=r"\(4\) case 1 gives the parameters of `matmul` other layouts"):
        Schedule(program(text)).specialize([[{"n": [1, 16]}, packed], [{}, []]])


@pytest.mark.parametrize(
    ("cases", "sentence"),
    [
        ([], r"\(3\) the last case must have no ranges"),
        ([[{"n": [1, 8]}, []]], r"\(3\) the last case must have no ranges"),
        ([[{"q": [1, 8]}, []], [{}, []]], r"\(2\) `matmul` has no integer `q`; there are m, n"),
        ([[{"n": [8, 1]}, []], [{}, []]], r"\(2\) the range of `n` is \[least, largest\]"),
        ([[{"n": [1, 8]}], [{}, []]], r"\(2\) a case is \[ranges, steps\]"),
        ([[{}, [["sample_categorical", {}]]]], r"\(4\) `sample_categorical` is no primitive that a case may have"),
        ([[{}, [["vectorize", {"loop": "i"}]]]], r"\(5\) case 1: vectorize\(loop='i'\): loop `i` has the extent `n`"),
    ],
)  # fmt: skip
def test_other_cases_are_refused(cases: list[Any], sentence: str) -> None:
    """Each refusal says which condition failed."""
    with pytest.raises(ScheduleError, match=sentence):
        Schedule(program()).specialize(cases)


def test_programs_of_one_shape_have_one_case() -> None:
    """There is nothing to choose by."""
    with pytest.raises(ScheduleError, match=r"\(1\) the extents of `matmul` are numbers"):
        Schedule(ss.workload("matmul", m=4, n=4, k=4).func).specialize([[{}, []]])


def test_a_long_trace_has_a_line_for_each_step() -> None:
    """And is read back as what it was."""
    moved = ["transform_layout", {"block": "C", "buffer": ["write", 0], "index_map": "lambda i, j: [i, j]"}]
    steps = [
        ["split", {"loop": "i", "factors": [None, 4]}],
        ["unroll", {"loop": "i_1"}],
        [*moved],
        ["parallel", {"loop": "i_0"}],
    ]
    trace = Trace.from_json([["specialize", {"cases": [[{"n": [1, 16]}, steps], [{}, []]]}], ["unroll", {"loop": "k"}]])
    text = trace.script()
    lines = [line.strip() for line in text.splitlines()]
    assert "['unroll', {'loop': 'i_1'}]," in lines and lines[-1] == "sch.unroll(loop='k')"
    assert Trace.from_script(text) == trace
