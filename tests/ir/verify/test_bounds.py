"""The in-bounds proof agrees with running every instance."""

import itertools
import random

import pytest

from stridesmith.ir.affine import guard
from stridesmith.ir.expr import (
    Broadcast,
    Buffer,
    Cast,
    Const,
    Expr,
    LetExpr,
    Not,
    Ramp,
    Select,
    Var,
    as_expr,
    binary,
    const,
    if_then_else,
    maximum,
    minimum,
)
from stridesmith.ir.layout.index_text import evaluate
from stridesmith.ir.stmt import (
    Allocate,
    Assume,
    Attr,
    Block,
    Declare,
    For,
    If,
    Iter,
    Let,
    PrimFunc,
    Stmt,
    Store,
    loops,
    seq,
)
from stridesmith.ir.verify.bounds import OutOfBounds, check_in_bounds

A = Buffer("A", (14,))
B = Buffer("B", (4, 4))
X = Buffer("X", (4,), "int64")
I, IO, II, F = Var("i"), Var("io"), Var("ii"), Var("f")  # noqa: E741
ZERO = const(0.0)
POINT = IO * 4 + II


def nest(body: Stmt) -> Stmt:
    return loops([(IO, 4), (II, 4)], body)


def accepted(stmt: Stmt) -> bool:
    try:
        check_in_bounds(stmt)
    except OutOfBounds:
        return False
    return True


def random_index(rng: random.Random) -> Expr:
    a = IO * rng.randint(-1, 4) + II * rng.randint(-1, 3) + rng.randint(-2, 4)
    pick = rng.randrange(5)
    if pick == 1:
        return a // rng.randint(1, 4)
    if pick == 2:
        return a % rng.randint(2, 20)
    if pick == 3:
        return minimum(a, rng.randint(3, 16))
    if pick == 4:
        return maximum(a, rng.randint(-1, 3))
    return a


@pytest.mark.parametrize("seed", range(150))
def test_agrees_with_enumeration(seed: int) -> None:
    """A store under a random condition is accepted if and only if every executed instance is inside."""
    rng = random.Random(seed)
    index = random_index(rng)
    cond = binary(rng.choice(["<", ">=", "!="]), random_index(rng), rng.randint(0, 14))
    if rng.random() < 0.3:
        cond = binary(rng.choice(["and", "or"]), cond, binary("<", IO, rng.randint(1, 4)))
    points = [{"io": a, "ii": b} for a, b in itertools.product(range(4), repeat=2)]
    then_inside = all(0 <= evaluate(index, p) < 14 for p in points if evaluate(cond, p))
    else_inside = all(0 <= evaluate(index, p) < 14 for p in points if not evaluate(cond, p))
    store = Store(A, (index,), ZERO)
    assert accepted(nest(If(cond, store))) == then_inside
    assert accepted(nest(If(cond, Store(A, (const(0),), ZERO), store))) == else_inside


def test_the_message_holds_access_point_and_shape() -> None:
    """A refusal names block, access, shape and an instance."""
    block = Block("fill", (), Store(A, (POINT,), ZERO))
    text = (
        r"block `fill` writes `A\[io \* 4 \+ ii\]` of shape \[14\].*dimension 0 with extent 14 "
        r"is outside at io = 3, ii = 2"
    )
    with pytest.raises(OutOfBounds, match=text):
        check_in_bounds(nest(block))


def test_overcompute_of_the_rfc_is_refused_with_a_point() -> None:
    """The halo read A[io + (ii + f) // 4, (ii + f) % 4] leaves a (4, 4) buffer, and fits (5, 4)."""
    indices = (IO + (II + F) // 4, (II + F) % 4)
    with pytest.raises(OutOfBounds, match="io = 3, ii = 2, f = 2"):
        check_in_bounds(nest(loops([(F, 3)], Store(B, (IO, II), B[indices]))))
    larger = Buffer("C", (5, 4))
    check_in_bounds(nest(loops([(F, 3)], Store(B, (IO, II), larger[indices]))))


def test_only_if_then_else_protects() -> None:
    """The lazy conditional guards its sides, the select does not."""
    cond = binary("and", POINT >= 1, POINT < 15)
    check_in_bounds(nest(Store(B, (IO, II), if_then_else(cond, A[POINT - 1], 0.0))))
    with pytest.raises(OutOfBounds, match="io = 0, ii = 0"):
        check_in_bounds(nest(Store(B, (IO, II), Select(cond, A[POINT - 1], ZERO))))


def test_assumptions_are_ignored() -> None:
    """A false promise makes nothing true."""
    body = seq([Assume(POINT < 14), Store(A, (POINT,), ZERO)])
    assert not accepted(nest(body))


def test_data_dependent_indices_need_a_clamp() -> None:
    """An index read from memory is refused, and accepted between min and max."""
    with pytest.raises(OutOfBounds, match="cannot be proven"):
        check_in_bounds(loops([(I, 4)], Store(A, (X[I],), ZERO)))
    check_in_bounds(loops([(I, 4)], Store(A, (minimum(maximum(X[I], 0), 13),), ZERO)))
    assert not accepted(loops([(I, 4)], Store(A, (minimum(X[I], 13),), ZERO)))


def test_loads_inside_indices_conditions_and_extents_are_checked() -> None:
    """Every load counts, wherever it stands."""
    inside, outside = X[I], X[I + 1]
    for load, good in ((inside, True), (outside, False)):
        assert accepted(loops([(I, 4)], If(load < 3, Store(A, (I,), ZERO)))) == good
        assert accepted(loops([(I, 4)], Store(A, (minimum(maximum(load, 0), 5),), ZERO))) == good
        assert accepted(loops([(I, 4)], For(F, minimum(load, 5), Store(A, (F,), ZERO)))) == good


def test_block_iterators() -> None:
    """Iterators follow their bindings; a binding that leaves the iterator's extent is refused."""
    block = Block("b", (Iter(F, 14, "spatial", POINT),), Store(A, (F,), ZERO), predicate=POINT < 14)
    check_in_bounds(nest(block))
    with pytest.raises(OutOfBounds, match=r"binds `f` of extent 14 .* io = 3, ii = 2"):
        check_in_bounds(nest(Block("b", block.iters, block.body)))


def test_the_iterator_relation_is_used() -> None:
    """Two iterators bound to related loops stay related: the reversed triangle is inside."""
    j = Var("j")
    iters = (Iter(F, 4, "spatial", IO), Iter(j, 4, "spatial", II))
    block = Block("b", iters, Store(B, (const(0), F + j), ZERO), predicate=binary("<", IO + II, 4))
    check_in_bounds(nest(block))


def test_vectors_let_and_extents() -> None:
    """Every lane is checked, let bindings carry their value, and extents may depend on loops."""
    vector = Store(A, (Ramp(I * 8, const(1), 8),), Broadcast(ZERO, 8))
    assert accepted(loops([(I, 1)], vector)) and not accepted(loops([(I, 2)], vector))
    assert accepted(nest(Let(F, minimum(POINT, 13), Store(A, (F,), ZERO))))
    assert not accepted(nest(Let(F, POINT, Store(A, (F,), ZERO))))
    tail = For(II, minimum(4, as_expr(14) - IO * 4), Store(A, (POINT,), ZERO))
    assert accepted(For(IO, const(4), tail)) and not accepted(For(IO, const(5), If(IO > 3, Store(A, (POINT,), ZERO))))


def test_disjunctions_need_the_exact_proof() -> None:
    """`not (io == 3) or ii < 2` is what intervals cannot see."""
    cond = binary("or", Not(IO.equal(3)), II < 2)
    check_in_bounds(nest(If(cond, Store(A, (POINT,), ZERO))))


def test_scalar_arguments_are_any_number() -> None:
    """A variable that nothing bounds may take every value."""
    n = Var("n")
    assert not accepted(Store(A, (n,), ZERO))
    assert accepted(If(binary("and", n >= 0, n < 14), Store(A, (n,), ZERO)))


def test_a_proof_that_is_too_hard_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond isl's budget the access counts as unproven."""
    monkeypatch.setattr(guard, "MAX_OPERATIONS", 5)
    cond = binary("or", Not(IO.equal(3)), binary("<", II * 3, 5))
    with pytest.raises(OutOfBounds, match="cannot be proven"):
        check_in_bounds(nest(If(cond, Store(A, (POINT,), ZERO))))


def test_let_expressions_carry_their_value() -> None:
    """A name bound inside an expression is its value, in indices, conditions and sides."""
    t = Var("t")
    assert accepted(nest(Store(A, (LetExpr(t, minimum(POINT, 13), t),), ZERO)))
    assert not accepted(nest(Store(A, (LetExpr(t, POINT, t),), ZERO)))
    read = LetExpr(t, POINT, if_then_else(t < 14, A[t], 0.0))
    assert accepted(nest(Store(B, (IO, II), read)))
    assert not accepted(nest(Store(B, (IO, II), LetExpr(t, POINT, A[t]))))
    assert not accepted(nest(Store(B, (IO, II), LetExpr(t, X[POINT], A[minimum(maximum(t, 0), 13)]))))


def test_attributes_are_looked_into() -> None:
    """What stands under an attribute, and in its value, is checked."""
    assert accepted(nest(Attr("note", "text", Store(B, (IO, II), ZERO))))
    assert not accepted(nest(Attr("note", "text", Store(A, (POINT,), ZERO))))
    assert not accepted(nest(Attr("note", A[POINT], Store(B, (IO, II), ZERO))))


def test_views_have_their_own_shape() -> None:
    """An access is checked against the view that it names; a view of more bytes than the memory is refused."""
    owner = Buffer("A", (14,))
    fits = Buffer("V", (7, 2), data="A")
    halves = Buffer("H", (28,), "float16", data="A")
    large = Buffer("W", (4, 4), data="A")
    func = PrimFunc("f", (owner,), Block("root", (), Declare(fits, loops([(I, 7)], Store(fits, (I, const(1)), ZERO)))))
    check_in_bounds(func)
    narrow = Store(halves, (I + 14,), const(0.0, "float16"))
    check_in_bounds(PrimFunc("f", (owner,), Block("root", (), Declare(halves, loops([(I, 14)], narrow)))))
    with pytest.raises(OutOfBounds, match="`W` of 64 bytes over `A`, which has only 56"):
        check_in_bounds(PrimFunc("f", (owner,), Block("root", (), Declare(large, Store(large, (I, I), ZERO)))))
    with pytest.raises(OutOfBounds, match="64 bytes over `A`"):
        check_in_bounds(Allocate(owner, Declare(large, Store(owner, (const(0),), ZERO))))


def test_vector_buffers_count_vectors() -> None:
    """An index into a vector buffer counts whole vectors, a ramp every one of its lanes."""
    vectors = Buffer("V", (4,), "float32x4")
    assert accepted(loops([(I, 4)], Store(vectors, (I,), Broadcast(ZERO, 4))))
    assert accepted(loops([(I, 2)], Store(vectors, (Ramp(I * 2, const(1), 2),), Broadcast(ZERO, 8))))
    assert not accepted(loops([(I, 2)], Store(vectors, (Ramp(I * 2 + 1, const(1), 2),), Broadcast(ZERO, 8))))
    assert accepted(Store(A, (Ramp(const(13), const(-1), 14),), Broadcast(ZERO, 14)))
    assert not accepted(Store(A, (Ramp(const(12), const(-1), 14),), Broadcast(ZERO, 14)))
    guarded = Store(A, (Ramp(IO * 4, const(1), 4),), Broadcast(ZERO, 4))
    assert accepted(nest(If(binary("or", IO < 2, IO.equal(2)), guarded)))


def test_what_is_known_of_memory_ends_where_it_is_written() -> None:
    """A condition on a loaded index guards until the memory that it read is written, through a view as well."""
    inside = binary("and", X[I] >= 0, X[I] < 14)
    use = Store(A, (X[I],), ZERO)
    assert accepted(loops([(I, 4)], If(inside, use)))
    assert not accepted(loops([(I, 4)], If(inside, seq([Store(X, (I,), const(99)), use]))))
    assert not accepted(loops([(I, 4)], If(inside, loops([(F, 2)], seq([use, Store(X, (I,), const(99))])))))
    view = Buffer("Y", (4,), "int64", data="X")
    assert not accepted(loops([(I, 4)], If(inside, seq([Store(view, (I,), const(99)), use]))))
    bound = Let(F, minimum(maximum(X[I], 0), 13), seq([Store(X, (I,), const(99)), Store(A, (F,), ZERO)]))
    assert accepted(loops([(I, 4)], bound))
    stale = Let(F, X[I], If(inside, seq([Store(X, (I,), const(99)), Store(A, (F,), ZERO)])))
    assert not accepted(loops([(I, 4)], stale))


def test_narrow_indices_wrap_around() -> None:
    """The sum of a narrow type may leave it on the other side, which no proof overlooks."""
    bytes_ = Buffer("N", (4,), "int8")
    value = bytes_[I]
    clamped = minimum(Cast("int64", value + Const(1, "int8")), 13)
    guard = binary(">=", value, Const(0, "int8"))
    assert not accepted(loops([(I, 4)], If(guard, Store(A, (clamped,), ZERO))))
    below = binary("and", guard, binary("<", value, Const(127, "int8")))
    assert accepted(loops([(I, 4)], If(below, Store(A, (clamped,), ZERO))))
