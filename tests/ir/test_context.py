"""What `ir.context` says of a place holds whenever the place is reached."""

from __future__ import annotations

import pytest
from flow_programs import programs
from hypothesis import given, settings
from scale import scaled

from stridesmith.ir.arith.intervals import nothing_known
from stridesmith.ir.context import Context, context_of, contexts, facts_below, start
from stridesmith.ir.expr import TRUE, Binary, Const, Expr, Load, Not, Var, reads_memory
from stridesmith.ir.layout.index_text import evaluate
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Assume, Block, For, If, Let, PrimFunc, Seq, Stmt, Store, walk_stmts

NESTED = """
@T.prim_func
def f(A: T.Buffer((64,), "float32"), n: T.int64):
    for i in range(8):
        if i < n:
            for j in range(i + 1):
                k: T.int64 = i * 8 + j
                if k < 20:
                    A[k] = T.float32(0)
                else:
                    A[63 - k] = T.float32(1)
"""

MEMORY = """
@T.prim_func
def f(A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64")):
    for i in range(8):
        if A[i] < 4:
            B[i] = A[i]
        if B[i] < 4:
            B[i] = 7
        T.evaluate(0)
"""


def store_to(func: PrimFunc, value: object) -> Store:
    """The store of this constant."""
    return next(s for s in walk_stmts(func.body) if isinstance(s, Store) and s.value == Const(value, s.value.dtype))


class Checker:
    """Runs a program over its loops and bindings, and asks at every statement whether its context holds."""

    def __init__(self, func: PrimFunc, first: Context) -> None:
        self.places: dict[int, list[Context]] = {}
        for stmt, here in contexts(func.body, first):
            self.places.setdefault(id(stmt), []).append(here)
        self.checked = 0

    def visit(self, stmt: Stmt, env: dict[str, int]) -> None:
        self.holds(stmt, env)
        if isinstance(stmt, Seq):
            for item in stmt.stmts:
                self.visit(item, env)
        elif isinstance(stmt, For):
            for value in range(int(evaluate(stmt.extent, env))):
                self.visit(stmt.body, {**env, stmt.var.name: value})
        elif isinstance(stmt, Let):
            self.visit(stmt.body, {**env, stmt.var.name: int(evaluate(stmt.value, env))})
        elif isinstance(stmt, If):
            branches = (stmt.then, stmt.orelse)
            if not reads_memory(stmt.cond):
                branches = branches[:1] if evaluate(stmt.cond, env) else branches[1:]
            for branch in filter(None, branches):
                self.visit(branch, env)
        elif isinstance(stmt, Block) and evaluate(stmt.predicate, env):
            inner = env | {i.var.name: int(evaluate(i.binding, env)) for i in stmt.iters}
            for part in filter(None, (stmt.init, stmt.body)):
                self.visit(part, inner)

    def holds(self, stmt: Stmt, env: dict[str, int]) -> None:
        for here in self.places[id(stmt)] if len(self.places[id(stmt)]) == 1 else ():
            self.checked += 1
            assert not here.facts.impossible
            for var, _ in here.dims:
                low, high = here.facts.interval(var)
                assert low <= env[var.name] <= high, (stmt, var, env)
            for cond in here.conditions:
                assert evaluate(cond, env), (stmt, cond, env)
            where = [Binary("==", v, Const(env[v.name], v.dtype)) for v, _ in here.dims]
            assert not here.excludes(*where)


@settings(max_examples=scaled(60), deadline=None)
@given(programs())
def test_a_context_holds_wherever_its_place_is_reached(text: str) -> None:
    """Every instance of every statement satisfies the intervals, the conditions and the exact set of its context."""
    func = parse(text)
    assert isinstance(func, PrimFunc)
    checker = Checker(func, start(func))
    checker.visit(func.body, {})
    assert checker.checked > 0


def test_each_statement_adds_what_it_says() -> None:
    """Loops, conditions, their negations and bindings are known, as intervals and as a set."""
    func = parse(NESTED)
    then, other = (context_of(func, store_to(func, value)) for value in (0.0, 1.0))
    i, j, k, n = (Var(name) for name in "ijkn")
    assert then.facts.interval(k) == (0, 19)
    assert other.facts.interval(k)[0] == 20
    assert then.implies(i < n)
    assert then.implies(j <= i)
    assert then.implies(k.equal(i * 8 + j))
    assert other.excludes(i < 2)
    assert not then.excludes(i < 2)
    assert not then.implies(j < i)


@pytest.mark.parametrize("safety", [False, True])
def test_conditions_on_memory_hold_only_for_proofs_and_only_while_nothing_changes_them(safety: bool) -> None:
    """Rewrites forget what memory said; a proof keeps it where nothing below stores to what was loaded."""
    func = parse(MEMORY)
    first = Context(nothing_known(), safety=safety)
    kept = {}
    for stmt, here in contexts(func.body, first):
        if isinstance(stmt, Store):
            loaded = {n.buffer.name for c in here.conditions for n in walk(c) if isinstance(n, Load)}
            kept[isinstance(stmt.value, Load)] = loaded
    assert kept == ({True: {"A"}, False: set()} if safety else {True: set(), False: set()})


def test_assumptions_count_behind_them_and_not_for_proofs() -> None:
    """What is assumed holds for the statements that follow; a proof of safety does not believe it."""
    i = Var("i")
    body = Seq((Assume(i < 3), If(i < 3, Seq(()))))
    loop = For(i, Const(8), body)
    for safety in (False, True):
        first, second = (here for stmt, here in contexts(loop, Context(nothing_known(), safety=safety))
                         if isinstance(stmt, (Assume, If)))  # fmt: skip
        assert first.simplify(i < 3) != TRUE
        assert (second.simplify(i < 3) == TRUE) is not safety


def test_facts_alone_are_the_same_intervals() -> None:
    """The half without sets knows the same of loops, conditions and bindings."""
    func = parse(NESTED)
    assert isinstance(func, PrimFunc)
    full = {id(stmt): here.facts for stmt, here in contexts(func.body, start(func))}
    seen = 0

    def visit(stmt: Stmt, facts) -> None:
        nonlocal seen
        for child, inside in facts_below(stmt, facts):
            for var in (Var(name) for name in "ijk"):
                low, high = inside.interval(var)
                tight = full[id(child)].interval(var)
                assert low <= tight[0] and tight[1] <= high
                seen += (low, high) == tight
            visit(child, inside)

    visit(func.body, nothing_known())
    assert seen >= 12


def test_a_statement_of_another_function_has_no_context() -> None:
    """Statements are found by identity."""
    func = parse(NESTED)
    cond: Expr = Not(TRUE)
    with pytest.raises(ValueError, match="not part of the function"):
        context_of(func, If(cond, Seq(())))
