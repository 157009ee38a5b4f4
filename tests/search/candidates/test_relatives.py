"""Which program a search begins with, and candidates of one program as those of another."""

from __future__ import annotations

import numpy as np

from stridesmith.ir.target import Target
from stridesmith.search.candidates.relatives import all_taken_over, nearest_before, taken_over
from stridesmith.search.workers import programs
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)


def test_a_search_begins_with_the_nearest_that_begins_with_none() -> None:
    """Of the same form and with the same in common, if it is near enough; the first of its kind with none."""
    asked = [
        ("x[8]", "a"),
        ("x[9]", "a"),
        ("y[9]", "a"),
        ("x[9]", "b"),
        ("x[4000]", "a"),
        ("x[3000]", "a"),
        ("x[7]", "a"),
    ]
    assert nearest_before(asked) == [None, "x[8]", None, None, None, "x[4000]", "x[8]"]


def test_many_candidates_are_taken_over_as_one_is() -> None:
    one, other = (generate(workload("matmul", m=m, n=50, k=40).func, CPU) for m in (37, 12))
    source, sketch = one.sketches[0], other.sketches[0]
    rows = source.draw(np.random.default_rng(0), 20)
    assert all_taken_over(source, rows, sketch).tolist() == [taken_over(source, row, sketch) for row in rows.tolist()]
    assert all_taken_over(source, rows, source).tolist() == rows.tolist()


def test_what_is_liked_does_not_depend_on_what_was_asked_before() -> None:
    """That of a relative is looked for where it is not known."""
    one, other = (workload("matmul", m=m, n=50, k=40).func.script() for m in (37, 41))
    programs._liked.cache_clear()
    found = programs.estimated(other, CPU, {}, one)
    assert programs._liked.cache_info().misses == 2
    programs._liked.cache_clear()
    programs.estimated(one, CPU, {})
    assert programs.estimated(other, CPU, {}, one) == found is not None
    assert programs._liked.cache_info().misses == 2
