"""Every rule of the tables and every law of a procedure is an equation, and is what the simplifier does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from ir.arith.expressions import same, values
from numpy.typing import NDArray
from scale import scaled

from stridesmith.ir import dtypes
from stridesmith.ir.arith.intervals import ANY_INDEX, Facts
from stridesmith.ir.arith.laws import LAWS
from stridesmith.ir.arith.patterns import Rule, literal
from stridesmith.ir.arith.patterns import rule as read_rule
from stridesmith.ir.arith.rules import TABLE
from stridesmith.ir.arith.simplifier import Simplifier, simplifier_for
from stridesmith.ir.expr import (
    Binary,
    Buffer,
    Const,
    Expr,
    Load,
    Undef,
    Var,
    const,
    fold_constants,
    substitute,
    variables,
)
from stridesmith.ir.node import transform

RULES = [*TABLE, *(law.rule for law in LAWS)]
SCALARS = {
    "int": ("int8", "int64", "uint8", "int32"),
    "index": ("int64",),
    "index vector": ("int64",),
    "vector": ("int64", "int32", "float32", "bool"),
    "float": ("float32", "float64"),
    "finite": ("float32", "float64"),
    "bool": ("bool",),
    "any": ("int64", "float32", "bool", "int8"),
}
CAST_TYPES = ("int64", "int32", "int8", "uint8", "bool", "float32")
ROWS = 40


def names(rule: Rule) -> list[str]:
    """The metavariables of a rule."""
    return sorted(set(re.findall(r"\b[xyzwabkmnTUL]\b", rule.text)))


def environment(rule: Rule, dtype: str, rng: np.random.Generator) -> dict[str, Any]:
    """Variables for expressions and conditions, small constants, types and lanes."""
    env: dict[str, Any] = {}
    integers = re.search("[^/]/ broadcast", rule.text) is None
    for name in names(rule):
        if name in "TU":
            env[name] = str(rng.choice(CAST_TYPES))
        elif name == "L":
            env[name] = 4
        elif name in "kmn":
            low = 0 if dtype == "uint8" else -9
            env[name] = Const(int(rng.integers(low, 10)), dtype)
        elif name in "ab":
            env[name] = Var(name, "bool")
        else:
            env[name] = Var(name, dtype if integers or dtypes.is_float(dtype) else "float32")
    return env


def fits(rule: Rule, env: dict[str, Any]) -> bool:
    """Whether the operations of the left side exist for the types that were drawn."""
    used = {v.dtype for v in env.values() if isinstance(v, Expr)}
    text = rule.text.split("->")[0]
    logic = " and " in text or " or " in text
    if rule.kind == "vector" and "broadcast(x, L)" in text and "y" in text:
        return logic == (used == {"bool"}) and not ("bool" in used and any(f" {op} " in text for op in "+-*/%"))
    return not ("ramp" in text and used & {"bool", "float32"})


def cases(rule: Rule, count: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(sum(map(ord, rule.text)))
    for _, dtype in product(range(count), SCALARS[rule.kind]):
        env = environment(rule, dtype, rng)
        if fits(rule, env):
            yield env


def columns(rule: Rule, env: dict[str, Any], rng: np.random.Generator) -> dict[Var, NDArray[Any]]:
    """Random values, negative ones included; floats with NaN and infinities where the rule is for all floats."""
    result: dict[Var, NDArray[Any]] = {}
    for var in (v for v in env.values() if isinstance(v, Var)):
        if var.dtype == "bool":
            result[var] = rng.random(ROWS) < 0.5
        elif dtypes.is_float(var.dtype):
            special = [] if rule.kind == "finite" else [np.nan, np.inf, -np.inf, -0.0]
            result[var] = rng.choice([0.0, 1.0, -2.5, 7.0, *special], ROWS).astype(var.dtype)
        else:
            low, high = dtypes.int_range(var.dtype)
            result[var] = rng.integers(max(low, -130), min(high, 130) + 1, ROWS).astype(var.dtype)
            if re.search(r"(//|%) \S*" + var.name, rule.text):
                result[var][result[var] == 0] = 1
    return result


def holds(rule: Rule, env: dict[str, Any], rows: dict[Var, NDArray[Any]]) -> NDArray[Any]:
    """The rows in which every condition is true."""
    result = np.ones(ROWS, bool)
    for condition in rule.conditions:
        found = condition(from_memory(rule, env))
        result &= found if isinstance(found, bool) else np.broadcast_to(values(found, rows or DUMMY)[:ROWS], ROWS)
    return result


DUMMY = {Var("unused"): np.zeros(ROWS, np.int64)}


def chosen(expr: Expr) -> Expr:
    """`undef` is a value that the compiler chooses."""
    result: Expr = transform(expr, lambda node: Const(3, node.dtype) if isinstance(node, Undef) else node)
    return result


def divides_by_zero(rule: Rule, env: dict[str, Any]) -> bool:
    divisors = re.findall(r"(?://|%) \(?([kmn])\b", rule.text)
    return any(env[d].value == 0 for d in divisors) or ("x // k % m" in rule.text and env["m"].value == 0)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.text)
def test_both_sides_are_equal_for_all_values(rule: Rule) -> None:
    """Wherever the condition is true, the interpreter gives both sides the same value."""
    rng = np.random.default_rng(7)
    checked = 0
    for env in cases(rule, scaled(60)):
        if divides_by_zero(rule, env):
            continue
        rows = columns(rule, env, rng) or DUMMY
        where = holds(rule, env, rows)
        if not where.any():
            continue
        left = rule.left(env)
        right = literal(rule.build(env), left.dtype)
        some = {v: c[where] for v, c in rows.items()}
        assert same(values(chosen(left), some), values(chosen(right), some)), (rule.text, env)
        checked += 1
        if checked >= scaled(12):
            return
    assert checked, "no environment met the condition"


def known(rule: Rule, env: dict[str, Any], rng: np.random.Generator) -> Simplifier:
    """A simplifier that knows the rule's condition, or intervals in which it holds, of variables that are indices."""
    facts = Facts({v: ANY_INDEX for v in env.values() if isinstance(v, Var) and v.dtype == "int64"})
    conditions = [condition(from_memory(rule, env)) for condition in rule.conditions]
    needed = {v for found in conditions if isinstance(found, Expr) for v in variables(found)}
    for var in (v for v in env.values() if isinstance(v, Var) and v in needed and v.dtype == "int64"):
        low = int(rng.integers(-30, 30))
        facts = facts.with_bounds({var: (low, low + int(rng.choice([0, 1, 2, 5, 9])))}) if rng.random() < 0.8 else facts
    for condition in rule.conditions if rng.random() < 0.5 else ():
        found = condition(from_memory(rule, env))
        if isinstance(found, Expr):
            facts = facts.assuming(simplifier_for(facts).expr(found))
    return Simplifier(facts)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.text)
def test_the_simplifier_uses_the_equation(rule: Rule) -> None:
    """Where the condition is known, both sides simplify to one form, and that form is not the left side as it stood."""
    rng = np.random.default_rng(11)
    used = 0
    for env in cases(rule, 400):
        simplifier = known(rule, env, rng)
        if simplifier.facts.impossible or divides_by_zero(rule, env):
            continue
        found = [condition(from_memory(rule, env)) for condition in rule.conditions]
        if not all(f if isinstance(f, bool) else simplifier.proves(f) for f in found):
            continue
        left = data(rule, rule.left(env), env)
        right = data(rule, literal(rule.build(env), left.dtype), env)
        assert simplifier.expr(left) == simplifier.expr(right), (rule.text, env, simplifier.facts.bounds)
        used += 1
        if used >= 12:
            return
    assert used, "the condition was never known"


def data(rule: Rule, expr: Expr, env: dict[str, Any]) -> Expr:
    """`expr` with its float variables read from memory, where a rule speaks of data."""
    if rule.kind != "finite":
        return expr
    result: Expr = substitute(expr, {v: Load(Buffer(v.name, (1,), v.dtype), (const(0),)) for v in env.values()})
    return result


def from_memory(rule: Rule, env: dict[str, Any]) -> dict[str, Any]:
    """What the names of a rule stand for, data as loads."""
    return {name: data(rule, value, env) if isinstance(value, Expr) else value for name, value in env.items()}


@pytest.mark.parametrize("rule", TABLE, ids=lambda r: r.text)
def test_each_rule_of_the_tables_matches_its_own_left_side(rule: Rule) -> None:
    """A rule that is in the table can fire."""
    rng = np.random.default_rng(13)
    for env in cases(rule, 400):
        if rule.apply(rule.left(from_memory(rule, env)), known(rule, env, rng)) is not None:
            return
    pytest.fail("it never matched")


def test_a_name_that_comes_twice_needs_equal_expressions() -> None:
    """`x - x` does not match two different operands, nor two `undef`."""
    difference = read_rule("int", "x - x -> 0")
    prover = Simplifier(Facts({}))
    x, y = Var("x", "int32"), Var("y", "int32")
    assert difference.apply(Binary("-", x, x), prover) == const(0, "int32")
    assert difference.apply(Binary("-", x, y), prover) is None
    assert difference.apply(Binary("-", Undef("int32"), Undef("int32")), prover) is None


@pytest.mark.parametrize("op", ["+", "-", "*", "//", "%", "min", "max", "==", "<", ">="])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_constants_fold_as_the_interpreter_computes(op: str, dtype: str) -> None:
    """Narrow constants wrap around exactly as in the interpreter."""
    low, high = dtypes.int_range(dtype)
    for a, b in product((low, low + 1, 0, 3, high - 1, high), (low, 0, 1, 2, high)):
        folded = fold_constants(op, Const(a, dtype), Const(b, dtype))
        if folded is None:
            assert op in ("//", "%") and b == 0
            continue
        if op == "//" and (a, b) == (low, -1):
            continue  # the quotient leaves the type, and hardware traps
        assert isinstance(folded, Const)
        assert values(Binary(op, Const(a, dtype), Const(b, dtype)), {})[0] == folded.value
