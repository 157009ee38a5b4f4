import pickle
import random

import pytest

from stridesmith.ir.arith.intervals import ANY_INDEX, Facts
from stridesmith.ir.arith.linear import build, linear_form
from stridesmith.ir.arith.simplify import bound, prove, simplify
from stridesmith.ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Const,
    Expr,
    LetExpr,
    Not,
    Ramp,
    Select,
    Undef,
    Var,
    all_of,
    binary,
    can_fail,
    const,
    if_then_else,
    maximum,
    minimum,
)
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import If, Seq, Store, loops

i, j, k, x = Var("i"), Var("j"), Var("k"), Var("x")
B = {i: (0, 20), j: (0, 5), k: (0, 7), x: ANY_INDEX}


def ev(e, env):
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Var):
        return env[e]
    if isinstance(e, Not):
        return not ev(e.a, env)
    if isinstance(e, Binary):
        a, b = ev(e.a, env), ev(e.b, env)
        return {
            "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b, "%": lambda: a % b,
            "min": lambda: min(a, b), "max": lambda: max(a, b), "==": lambda: a == b, "!=": lambda: a != b,
            "<": lambda: a < b, "<=": lambda: a <= b, ">": lambda: a > b, ">=": lambda: a >= b,
            "and": lambda: a and b, "or": lambda: a or b,
        }[e.op]()  # fmt: skip
    assert e.name == "if_then_else"
    return ev(e.args[1], env) if ev(e.args[0], env) else ev(e.args[2], env)


CASES = [
    ((i * 6 + j) // 6, i),
    ((i * 6 + j) % 6, j),
    ((i * 48 + j * 8 + k) // 48, i),
    ((i * 48 + j * 8 + k) // 8, i * 6 + j),
    ((i * 48 + j * 8 + k) % 48 // 8, j),
    ((i * 8 + k) // 16, i // 2),
    (x // 4 // 8, x // 32),
    (x % 32 // 8, x // 8 % 4),
    (x % 32 % 8, x % 8),
    (x // 4 * 4 + x % 4, x),
    (x - x // 4 * 4, x % 4),
    (x // 32 * 32 + x // 8 % 4 * 8 + x % 8, x),
    (x // 7 * 28 + x % 7 * 4, x * 4),
    ((x + 4) // 4, Binary("+", x // 4, const(1))),
    (i * 6 + j < 126, const(True)),
    (i * 6 + j < 120, i < 20),
    (i * 6 + j < 121, i * 6 + j < 121),
    ((i * 6).equal(3), const(False)),
    (Binary("and", i < 5, i < 8), i < 5),
    (all_of([i >= 1, i < 1]), const(False)),
    (Binary("or", i < 5, i >= 5), const(True)),
    (minimum(i, 21), i),
    (maximum(i, -1), i),
    (if_then_else(i < 4, i // 4, 7), if_then_else(i < 4, const(0), const(7))),
    (Not(i < 4), i >= 4),
    (x * 2 + x * 3 - x * 5, const(0)),
    ((x * 2) // 4, x // 2),
    ((x * 4 + 2) % 8, x % 2 * 4 + 2),
    (-x // -4, x // 4),
]  # fmt: skip


@pytest.mark.parametrize("before, after", CASES, ids=lambda e: None)
def test_known_forms(before, after):
    """What schedules produce simplifies to the form that a person would write."""
    assert simplify(before, B) == after


def random_int(rng: random.Random, depth: int, names) -> Expr:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(names) if rng.random() < 0.7 else const(rng.randint(-9, 40))
    op = rng.choice(["+", "+", "-", "*", "//", "//", "%", "%", "min", "max", "if", "mul"])
    a = random_int(rng, depth - 1, names)
    if op in ("//", "%"):
        return Binary(op, a, const(rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 32, -3])))
    if op in ("*",):
        return Binary("*", a, const(rng.choice([-4, -1, 2, 3, 4, 6, 8, 16])))
    b = random_int(rng, depth - 1, names)
    if op == "if":
        return if_then_else(random_bool(rng, depth - 1, names), a, b)
    return Binary("*" if op == "mul" else op, a, b)


def random_bool(rng: random.Random, depth: int, names) -> Expr:
    pick = rng.random()
    if depth <= 0 or pick < 0.6:
        op = rng.choice(["<", "<=", ">", ">=", "==", "!="])
        return Binary(op, random_int(rng, max(depth - 1, 0), names), random_int(rng, max(depth - 1, 0), names))
    if pick < 0.7:
        return Not(random_bool(rng, depth - 1, names))
    return Binary(rng.choice(["and", "or"]), random_bool(rng, depth - 1, names), random_bool(rng, depth - 1, names))


@pytest.mark.parametrize("seed", range(12))
def test_rules_hold_for_all_integers(seed):
    """A simplified expression has the value of the original, its bound holds, and a second run changes nothing."""
    rng = random.Random(seed)
    for _ in range(200):
        bounded = {v: (lo := rng.randint(-10, 10), lo + rng.choice([0, 1, 3, 5, 7, 15, 40])) for v in (i, j, k)}
        make = random_int if rng.random() < 0.6 else random_bool
        e = make(rng, rng.randint(1, 4), (i, j, k, x))
        s = simplify(e, bounded)
        assert simplify(s, bounded) == s
        lo, hi = bound(e, bounded)
        for _ in range(20):
            env = {v: rng.randint(*r) for v, r in bounded.items()} | {x: rng.randint(-100, 100)}
            try:
                value = ev(e, env)
            except ZeroDivisionError:
                continue
            assert ev(s, env) == value, (e, s, env)
            assert lo <= value <= hi


def test_linear_form_round_trip():
    """Writing a linear form and reading it again gives the same coefficients."""
    rng = random.Random(5)
    for _ in range(200):
        e = random_int(rng, 4, (i, j, k, x))
        form = linear_form(e)
        assert linear_form(build(form)) == form


def test_statement_uses_loops_and_conditions():
    """Loop extents and enclosing conditions decide inner conditions, and an empty body takes its loop along."""
    a = Buffer("A", (128,))
    store = Store(a, ((i * 6 + j) // 6,), const(1.0))
    inner = If(i * 6 + j < 127, If(Binary("<", i, const(22)), store, store))
    s = simplify(loops([(i, 22), (j, 6)], inner))
    assert s == loops([(i, 22), (j, 6)], If(i * 6 + j < 127, Store(a, (i,), const(1.0))))
    assert simplify(loops([(i, 22), (j, 6)], If(i >= 22, store))) == Seq(())


def test_floats_and_undef_are_left_alone():
    """Only exact identities touch floats, and `buf[i] == undef` is one atom."""
    a = Buffer("A", (8,))
    load = a[i * 2 - i]
    assert simplify(binary("+", load, const(0.0)), B) == a[i]
    assert simplify(binary("+", load, const(0.0)), B, strict=True) == binary("+", a[i], const(0.0))
    assert simplify(binary("*", load, const(1.0)), B) == a[i]
    assert simplify(Binary("*", const(0.0), Undef()), B) == const(0.0)
    atom = Binary("==", load, Undef())
    assert simplify(atom, B) is atom
    assert simplify(Not(Not(Not(atom))), B) == Not(atom)


def test_select_sides_keep_their_guards():
    """Both sides of a select are evaluated, so a clamp inside one stays."""
    a = Buffer("A", (4,))
    e = Select(i < 4, a[minimum(i, 3)], const(0.0))
    assert simplify(e, B) == e


def test_prove():
    """A condition is proven under bounds, or reported as unknown."""
    assert prove(i * 6 + j < 126, B)
    assert not prove(i * 6 + j < 125, B)


def test_what_a_condition_says_of_memory_ends_with_the_expression():
    """A test of a loaded value decides nothing in the statement that it guards, which may have stored since."""
    x = Buffer("X", (8,), "int64")
    again = If(x[i] < 3, Store(x, (i,), const(7)))
    guarded = loops([(i, 8)], If(x[i] < 3, Seq((Store(x, (i,), const(10)), again))))
    assert simplify(guarded) == guarded
    inside = if_then_else(x[i] < 3, if_then_else(x[i] < 5, x[i], 0), 1)
    assert simplify(inside, B) == if_then_else(x[i] < 3, x[i], 1)


def test_undef_is_never_equal_to_undef():
    """Two `undef` of one text may differ, so that no difference, comparison or quotient of them is decided."""
    u = Undef("int64")
    for e in (Binary("-", u, u), Binary("==", u + 1, u + 1), Binary("<=", u, u), Binary("-", u * 2 + i, u * 2)):
        assert not isinstance(simplify(e, {i: (3, 3)}), Const)
    assert simplify(Binary("*", u, const(0)), B) == const(0)
    assert not prove(Binary("<=", Binary("-", u, u), const(0)))


def test_let_expressions():
    """A name for a variable or constant goes, an unused one goes, and others carry the interval of their value."""
    t = Var("t")
    assert simplify(LetExpr(t, i, t // 2), B) == i // 2
    assert simplify(LetExpr(t, j * 0 + 3, t + i), B) == i + 3
    assert simplify(LetExpr(t, x * x, i), B) == i
    kept = LetExpr(t, x % 4, Binary("and", t < 4, t < 3))
    assert simplify(kept, B) == LetExpr(t, x % 4, t < 3)


def test_vectors_of_indices():
    """Ramps and broadcasts join, and lanes that agree are computed once."""
    lanes = Ramp(i * 8, const(1), 8)
    assert simplify(Binary("+", lanes, Broadcast(j, 8)), B) == Ramp(i * 8 + j, const(1), 8)
    assert simplify(Binary("//", lanes, Broadcast(const(8), 8)), B) == Broadcast(i, 8)
    assert simplify(Binary("%", lanes, Broadcast(const(8), 8)), B) == Ramp(const(0), const(1), 8)
    assert simplify(Binary("<", lanes, Broadcast(const(168), 8)), B) == Broadcast(const(True), 8)


def test_what_is_shared_does_not_show_in_the_result():
    """A statement and a copy of it, whose nodes are others, simplify to one program, before and after one another."""
    a = Buffer("A", (128,))
    inner = Seq((Store(a, (i * 2,), const(1.0)), Store(a, (i * 2 + 1,), const(2.0))))
    stmt = loops([(i, 4)], Seq((Store(a, (i + 64,), const(0.0)), inner)))
    copies = [pickle.loads(pickle.dumps(stmt)) for _ in range(3)]
    assert stmt == copies[0] and stmt.body is not copies[0].body
    first = simplify(copies[0])
    assert [simplify(c) for c in (stmt, *copies)] == [first] * 4
    assert len(first.body.stmts) == 3 and simplify(first) == first


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(("op", "zero", "goes"), [("+", 0.0, 0), ("+", -0.0, 1), ("-", 0.0, 1), ("-", -0.0, 0)])
def test_strict_sums_lose_the_zeros_that_change_nothing(op, zero, goes, width):
    """-0.0 - -0.0 and -0.0 + 0.0 are 0.0, so that such a zero stays where the sign of zero counts."""
    f, number = Var("f", "float32"), const(zero)
    whole = Binary(op, f, number) if width == 1 else Binary(op, Broadcast(f, width), Broadcast(number, width))
    assert simplify(whole) == (f if width == 1 else Broadcast(f, width))
    kept = f if goes else Binary(op, f, number)
    assert simplify(whole, strict=True) == (kept if width == 1 else Broadcast(kept, width))


@pytest.mark.parametrize("op", ["and", "or"])
def test_parts_of_a_condition_that_can_fail_do_not_use_the_others(op):
    """Both sides of `and` and `or` are evaluated: an index keeps its modulo, and a divisor its maximum."""
    a = Buffer("A", (4,))
    guard = i + j < 4 if op == "and" else i + j >= 4
    read = a[(i + j) % 4] > const(0.0)
    assert simplify(Binary(op, guard, read), B) == Binary(op, guard, read)
    other = i >= 1 if op == "and" else Binary("<", i, const(1))
    divided = Binary("<", k // maximum(i, 1), j)
    assert can_fail(simplify(Binary(op, other, divided), {i: (0, 9), j: (0, 5), k: (-9, 9)}))
    assert maximum(i, 1) in set(walk(simplify(Binary(op, other, divided), {i: (0, 9), j: (0, 5), k: (-9, 9)})))


def test_parts_of_a_condition_that_read_memory_go_where_the_others_decide_them():
    """A test of an element that a stricter one implies is not evaluated."""
    x = Buffer("X", (8,), "int64")
    assert simplify(Binary("and", x[i] < 3, x[i] < 5), B) == (x[i] < 3)
    assert simplify(Binary("and", x[i] < 3, Binary("or", x[i] < 5, x[j] < 2)), B) == (x[i] < 3)


@pytest.mark.parametrize("name", ["shift_left", "shift_right", "truncdiv", "truncmod", "bitwise_and"])
def test_calls_of_integers_at_a_place_that_is_never_reached(name):
    """Facts that contradict each other leave intervals without a number, of which any bound holds."""
    never = Facts({i: (3, 0), j: (0, -3)}).interval(Call(name, (i, j), "int64"))
    assert never[0] <= never[1]
