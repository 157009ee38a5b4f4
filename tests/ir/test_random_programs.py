"""Random programs and expressions over the whole grammar: text, simplification, exact sets, and the serial meaning.

``STRIDESMITH_TEST_SCALE=25`` runs ten thousand expressions and more than a thousand
programs; ``pytest -s`` prints how often each part of the grammar occurred.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from grammar_counts import GRAMMAR, features, table
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from ir.passes.pass_programs import pass_programs
from random_expressions import ExpressionMaker, expressions
from random_programs import modules, programs
from random_runs import arguments, assert_refines, interpreted, tabulated
from scale import SCALE, scaled

from stridesmith.ir.affine import sets
from stridesmith.ir.arith.simplify import simplify
from stridesmith.ir.expr import Binary, Buffer, Const, Expr, Var
from stridesmith.ir.passes import transform
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Module, PrimFunc
from stridesmith.ir.verify.rules import verify

QUIET = {
    "deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True,
    "phases": [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
}  # fmt: skip
COUNTED = 900
NOT_LOWERED = ("Assert", "Opaque", "While")
"""Statements that run in the interpreter alone, of which programs that become kernels have none."""

pytestmark = pytest.mark.timeout(600 * max(1.0, SCALE))  # shrinking a failure takes minutes


def counted(made: st.SearchStrategy[PrimFunc | Module], wanted: int) -> Counter[str]:
    """In how many of `wanted` programs each part of the grammar occurs."""
    counts: Counter[str] = Counter()
    seen = 0

    @settings(max_examples=wanted, derandomize=True, database=None, **{**QUIET, "phases": [Phase.generate]})
    @given(made)
    def count(program: PrimFunc | Module) -> None:
        nonlocal seen
        seen += 1
        counts.update(features(program))

    count()
    assert seen == wanted
    return counts


def test_every_part_of_the_grammar_occurs_in_one_program_of_two_hundred() -> None:
    """Nodes, operators, calls, types, kinds of loops, iterators, accesses and views each occur in at least 0.5 %."""
    counts = counted(modules(), COUNTED)
    print(table(counts, COUNTED))
    assert not [name for name in GRAMMAR if name not in NOT_LOWERED and counts[name] < 0.003 * COUNTED]


def test_statements_that_lowering_refuses_occur_in_programs_of_their_own() -> None:
    """In one of twenty programs at least."""
    counts = counted(pass_programs(calls=True), 100)
    assert not [name for name in NOT_LOWERED if counts[name] < 5]


@settings(max_examples=scaled(60), **QUIET)
@given(modules())
def test_programs_survive_the_script(program: PrimFunc | Module) -> None:
    """A program is valid, and printing and parsing give an equal one, in both dialects."""
    verify(program)
    assert parse(program.script()) == program
    assert parse(program.script("tvm")) == program


@settings(max_examples=scaled(60), **QUIET)
@given(programs())
def test_programs_mean_the_same_once_simplified(func: PrimFunc) -> None:
    """A simplified program is valid and leaves the same values, wherever the program defines them."""
    simpler = transform.simplify(func)
    verify(simpler)
    arrays = arguments(func)
    assert_refines(interpreted(simpler, arrays), interpreted(func, arrays))


@settings(max_examples=scaled(400), **QUIET)
@given(expressions())
def test_expressions_survive_script_and_simplification(drawn: tuple[Expr, dict[Var, int], list[Buffer]]) -> None:
    """An expression is printed and parsed to itself, and simplified to one of the same value at every point."""
    func = tabulated(*drawn)
    verify(func)
    assert parse(func.script()) == func
    arrays = arguments(func)
    simpler = func.with_body(simplify(func.body))
    assert_refines(interpreted(simpler, arrays), interpreted(func, arrays))


@st.composite
def _conditions(draw: object) -> tuple[Expr, dict[Var, int]]:
    """A condition over int64 variables and the box that they range over."""
    maker = ExpressionMaker(draw)
    maker.extents = {Var(f"i{n}"): maker.number(1, 6) for n in range(maker.number(1, 2))}
    first, second = (Binary(maker.pick(("<", "<=", "==", "!=")), maker.affine(), maker.index(6)) for _ in range(2))
    return maker.pick((first, Binary("and", first, second), Binary("or", first, second))), maker.extents


@settings(max_examples=scaled(80), **QUIET)
@given(_conditions())
def test_exact_sets_agree_with_the_interpreter(drawn: tuple[Expr, dict[Var, int]]) -> None:
    """isl says whether a condition holds in a whole box, and where it does not, as the interpreter does."""
    cond, extents = drawn
    domain = sets.Domain(tuple((v, Const(e)) for v, e in extents.items()), ())
    try:
        point = sets.counterexample(domain, cond)
    except (sets.NotAffine, sets.Unknown):
        assume(False)
    func = tabulated(cond, extents, [])
    truth = interpreted(func, arguments(func))["OUT"][0]
    points = list(product(*(range(e) for e in extents.values())))
    if point is None:
        assert truth.all()
    else:
        assert not truth[points.index(tuple(point[v.name] for v in extents))]
