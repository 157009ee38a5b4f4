"""Passes on random programs: what is computed stays, what comes out is valid, and a second run changes nothing."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ir.passes.pass_programs import outputs, pass_programs
from ir.passes.wide_programs import wide_outputs, wide_programs
from random_programs import programs
from random_runs import arguments, assert_refines, interpreted
from scale import scaled

from stridesmith.ir.interpreter.interpret import InterpreterError
from stridesmith.ir.passes.transform import PASSES
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.ir.verify.catalogue import VerifyError
from stridesmith.ir.verify.rules import verify

EXAMPLES = {
    "simplify": 40, "hoist_expression": 60, "reduce_loop_extents": 60, "merge_adjacent_loops": 40, "remove_no_op": 15,
}  # fmt: skip
NAMES = tuple(EXAMPLES)
changed: Counter[str] = Counter()


@pytest.mark.parametrize("name", NAMES)
def test_passes_keep_what_is_computed(name: str) -> None:
    """Results are equal bit by bit, the program verifies, stays in bounds, and a second run finds nothing more."""

    count = scaled(EXAMPLES[name])

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(pass_programs(), st.integers(0, 999))
    def check(func: PrimFunc, seed: int) -> None:
        verify(func)
        new = PASSES[name](func)
        verify(new)
        check_in_bounds(new)
        changed[name] += new != func
        expected, got = outputs(func, seed), outputs(new, seed)
        for key, array in expected.items():
            np.testing.assert_array_equal(got[key], array, err_msg=f"{key} differs\n{func.script()}\n{new.script()}")
        assert PASSES[name](new) == new, f"a second run changes\n{new.script()}"

    check()
    assert changed[name] >= count // 20, f"{name} changed {changed[name]} of {count} programs only"


def test_passes_keep_what_programs_with_calls_compute() -> None:
    """Calls of what is not known, which the interpreter is given a function for, and `while`."""

    @settings(max_examples=scaled(40), deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(pass_programs(calls=True), st.integers(0, 999))
    def check(func: PrimFunc, seed: int) -> None:
        verify(func)
        expected = outputs(func, seed)
        for name in ("simplify", "remove_no_op"):
            new = PASSES[name](func)
            verify(new)
            got = outputs(new, seed)
            for key, array in expected.items():
                np.testing.assert_array_equal(got[key], array, err_msg=f"{name} {key}\n{func.script()}\n{new.script()}")

    check()


def test_passes_keep_what_wide_programs_compute() -> None:
    """Floats of both modes, bools, narrow sums, vectors, views, gathers, reductions."""
    ran = Counter[str]()

    @settings(max_examples=scaled(15), deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(wide_programs(), st.integers(0, 999))
    def check(func: PrimFunc, seed: int) -> None:
        try:
            verify(func)
            expected = wide_outputs(func, seed)
        except (VerifyError, InterpreterError):
            return  # lanes that race, or a quotient that is no number
        ran["programs"] += 1
        for name in ("simplify", "remove_no_op"):
            new = PASSES[name](func)
            verify(new)
            got = wide_outputs(new, seed)
            for key, array in expected.items():
                np.testing.assert_array_equal(got[key], array, err_msg=f"{name} {key}\n{func.script()}\n{new.script()}")

    check()
    assert ran["programs"] >= scaled(15) // 2


def test_passes_in_any_order_keep_what_is_computed() -> None:
    """Several passes, one after the other."""

    @settings(max_examples=scaled(20), deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(pass_programs(), st.lists(st.sampled_from(NAMES), min_size=2, max_size=4), st.integers(0, 999))
    def check(func: PrimFunc, order: list[str], seed: int) -> None:
        new = func
        for name in order:
            new = PASSES[name](new)
        expected, got = outputs(func, seed), outputs(new, seed)
        for key, array in expected.items():
            np.testing.assert_array_equal(got[key], array, err_msg=f"{order}: {key}\n{func.script()}\n{new.script()}")

    check()


def test_passes_keep_what_programs_of_the_whole_grammar_compute() -> None:
    """Views, vectors, all types, let expressions, attributes, scalar parameters: each pass on its own."""

    @settings(max_examples=scaled(8), deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(programs(exact=True))
    def check(func: PrimFunc) -> None:
        arrays = arguments(func)
        expected = interpreted(func, arrays)
        for name in NAMES:
            new = PASSES[name](func)
            assert_refines(interpreted(new, arrays), expected)
            assert PASSES[name](new) == new, f"a second run of {name} changes\n{new.script()}"

    check()
