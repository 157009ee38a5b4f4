"""Programs before and after a pass, by kind: what `simplify`, `remove_no_op` and their like can prove.

A body speaks of buffers by their letters: `A`, `B`, `C` and `D` of 16 int32, `X` and `Y`, which are only read, `F`, `G`
and `H` of 16 float32 (`H` only read), `P` of 16 bool, `M` of (4, 4) int32.
In the kinds of conditions ``i``, ``j`` and ``k`` are int32 of any value.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

BUFFERS = {
    **dict.fromkeys("ABCDXY", '(16,), "int32"'), **dict.fromkeys("FGH", '(16,), "float32"'), "P": '(16,), "bool"',
    "M": '(4, 4), "int32"',
}  # fmt: skip
ROWS = 9 * 9 * 9
"""Rows of values of ``i``, ``j`` and ``k``: all of a few numbers, the ends of the type among them."""


@dataclass(frozen=True)
class Case:
    """`before` becomes `after`, or something that is no longer; where they are equal nothing may be left out."""

    kind: str
    run: str
    before: str
    after: str

    @property
    def stays(self) -> bool:
        return self.before == self.after


def cases() -> list[Case]:
    """All of them, by kind."""
    found = [
        *(Case("an order that is known", "simplify", *pair) for pair in _orders()),
        *(Case("a chain of comparisons", "simplify", *pair) for pair in _chains()),
        *(Case("parts that know each other", "simplify", *pair) for pair in _parts()),
        *(Case("sums that may wrap around", "simplify", *pair) for pair in _offsets()),
    ]
    for kind, (run, pairs) in TABLES.items():
        found += [Case(kind, run, _text(before), _text(after or before)) for before, after in pairs]
    found += [Case("stores under conditions", "remove_no_op", *pair) for pair in _overwritten()]
    return found


def _text(body: str) -> str:
    return textwrap.dedent(body).strip("\n")


def _row(given: str, value: str) -> str:
    """One row of values of ``i``, ``j`` and ``k``, and what is stored of them where `given` holds."""
    head = "for r in range(729):\n    i: T.int32 = U[r]\n    j: T.int32 = V[r]\n    k: T.int32 = W[r]\n"
    return f"{head}    if {given}:\n        R[r] = {value}" if given else f"{head}    R[r] = {value}"


# ---------------------------------------------------------------- orders of integers that may have any value

ORDERS = {"<": {"<"}, "<=": {"<", "="}, ">": {">"}, ">=": {">", "="}, "==": {"="}, "!=": {"<", ">"}}


def _orders() -> Iterator[tuple[str, str]]:
    """What one comparison says of another one of the same two."""
    for (op, known), (asked, wanted) in product(ORDERS.items(), ORDERS.items()):
        truth = "True" if known <= wanted else "False" if not known & wanted else f"i {asked} j"
        yield _row(f"i {op} j", f"i {asked} j"), _row(f"i {op} j", truth)


def _chains() -> Iterator[tuple[str, str]]:
    """``i op j and j op k`` about ``i`` and ``k``."""
    table = {("<", "<"): "<", ("<", "="): "<", ("=", "<"): "<", ("=", "="): "=", (">", ">"): ">", ("=", ">"): ">",
             (">", "="): ">"}  # fmt: skip
    for (first, a), (second, b) in product(ORDERS.items(), ORDERS.items()):
        both = {table.get((x, y), "<=>") for x, y in product(a, b)}
        possible = set("".join(both))
        if len(possible) == 3:
            continue
        op = next(o for o, members in ORDERS.items() if members == possible)
        given = f"i {first} j and j {second} k"
        yield _row(given, f"i {op} k"), _row(given, "True")


OFFSETS = [
    ("i < j + 5 and i < j + 10", "i < j + 5"), ("i < j + 10 and i < j + 5", "i < j + 5"),
    ("i < j + 10 or i < j + 5", "i < j + 10"), ("i < j + 5 or i < j + 10", "i < j + 10"),
    ("i <= j and i < j + 1", "i <= j"), ("j - 3 < i or j < i", "j - 3 < i"), ("i - j < 3 and i - j < 7", "i - j < 3"),
    ("i + 1 < j + 1 and i < j", "i < j"), ("i < j and i + 2 <= j + 1", "i < j"), ("i * 2 < j * 2 and i < j", "i < j"),
]  # fmt: skip
"""Conditions of two parts, one of which follows where no sum of int32 wraps around; and what is left."""
BETWEEN = "-1000 < i and i < 1000 and -1000 < j and j < 1000"


def _offsets() -> Iterator[tuple[str, str]]:
    """Sums of int32 within bounds, and the same of any int32, of which they say nothing."""
    for before, after in OFFSETS:
        yield _row(BETWEEN, before), _row(BETWEEN, after)
        if before[:11] != "i < j and i":
            yield _row("", before), _row("", before)


def _parts() -> Iterator[tuple[str, str]]:
    """Of two parts of one condition the one that follows from the other."""
    for (op, known), (other, wanted) in product(ORDERS.items(), ORDERS.items()):
        if op != other and known <= wanted:
            yield _row("", f"i {op} j and i {other} j"), _row("", f"i {op} j")
            yield _row("", f"i {op} j or i {other} j"), _row("", f"i {other} j")


# ---------------------------------------------------------------- stores that later ones supersede

IMPLIED = [
    ("i < 10", "i // 4 < 3"), ("i < 8", "i // 8 == 0"), ("i % 4 == 0", "i % 2 == 0"), ("i == 5", "i % 5 == 0"),
    ("i >= 12", "i // 4 == 3"), ("i < 3 or i > 13", "i < 4 or i >= 12"), ("2 <= i and i < 6", "i < 6"),
    ("i * 2 < 9", "i <= 4"), ("i // 2 == 3", "6 <= i and i < 8"), ("i % 8 < 2", "i % 4 < 2"), ("not i < 9", "i > 8"),
    ("T.min(i, 5) == i", "i <= 5"), ("T.max(i, 9) == i", "i > 8"), ("i == 3 or i == 7", "i % 4 == 3"),
    ("i // 4 * 4 == i", "i % 2 == 0"), ("X[0] < 3 and i < 5", "i < 5"),
]  # fmt: skip


def _overwritten() -> Iterator[tuple[str, str]]:
    """What a loop writes where one condition holds, and a later one where another does, which the first implies."""
    for number, (narrow, wide) in enumerate(IMPLIED):
        first = f"for i in range(16):\n    if {narrow}:\n        A[i] = 100"
        last = f"for i in range(16):\n    if {wide}:\n        A[i] = 42"
        between = "for b in range(16):\n    B[b] = X[b] + 1\n" if number % 2 else ""
        yield f"{first}\n{between}{last}", f"{between}{last}"
        if number in (0, 2, 3, 5, 6):  # where the second says less than the first
            wrong = f"for i in range(16):\n    if {wide}:\n        A[i] = 100\n" + last.replace(wide, narrow)
            yield wrong, wrong


# ---------------------------------------------------------------- tables

Pairs = list[tuple[str, str]]

DISJUNCTIONS: Pairs = [
    (_row("", a), _row("", b)) for a, b in [
        ("(i == 0 or j == 9 or k == 2) and (i == 0 or j == 9 or k != 3)", "i == 0 or j == 9 or k == 2"),
        ("(i == 0 or k < 3) and (i == 0 or k < 7)", "i == 0 or k < 3"),
        ("(k < 3 or i == j) and (i == j or k < 2)", "i == j or k < 2"),
        ("(i == 0 and k < 3) or (i == 0 and k < 7)", "i == 0 and k < 7"),
        ("(i == j and k != 1) or (k == 3 and i == j)", "i == j and k != 1"),
        ("(i == 0 or j == 1) and (i == 0 or j != 1)", "i == 0"),
        ("(i == 0 and j == 1) or (i == 0 and j != 1)", "i == 0"),
        ("i == 0 or (i != 0 and j == 1)", "i == 0 or j == 1"),
        ("i == 0 and (i != 0 or j == 1)", "i == 0 and j == 1"),
        ("(i < j or k == 0) and (i <= j or k == 0)", "i < j or k == 0"),
        ("(i < j and k == 0) or (i != j and k == 0)", "i != j and k == 0"),
        ("(i == 0 or j == 0) and (j == 0 or i == 0)", "i == 0 or j == 0"),
        ("i == 0 and (i == 0 or j == 5)", "i == 0"),
        ("i == 0 or (i == 0 and j == 5)", "i == 0"),
        ("(i < 3 or j < 4) and not (i >= 3 and j >= 4)", "i < 3 or j < 4"),
        ("i < 3 or not i < 3", "True"), ("i < j and not i < j", "False"),
    ]
]  # fmt: skip
CONGRUENCES: Pairs = [
    *((_row(f"{given}", value), _row(f"{given}", after)) for given, value, after in [
        ("i % 2 == 0", "(0 - i) % 2 == 0", "True"), ("(0 - i) % 4 == 0", "i % 4 == 0", "True"),
        ("i % 4 == 1", "(0 - i) % 4 == 3", "True"), ("i % 8 == 5", "i % 8 != 5", "False"),
        ("i % 3 == 1", "i % 3 < 2", "True"), ("i % 5 == j", "j < 5", "j < 5"),
        ("(0 - i) % 3 == 0", "i % 3 == 0", "i % 3 == 0"),
    ]),
    *((f"for i in range(16):\n    if {a}:\n        A[i] = 1", f"for i in range(16):\n    {b}") for a, b in [
        ("(i * 4) % 2 == 0", "A[i] = 1"), ("(i * 4 + 2) % 4 == 2", "A[i] = 1"),
        ("(i * 6) % 3 == 0", "A[i] = 1"), ("(i * 4 + 1) % 2 == 0", "pass"), ("i * 6 == 9", "pass"),
        ("(i % 8) % 4 == i % 4", "A[i] = 1"), ("i // 4 * 4 + i % 4 == i", "A[i] = 1"),
        ("(0 - i) % -4 <= 0", "A[i] = 1"), ("i % -4 <= 0", "A[i] = 1"), ("i % -4 > -4", "A[i] = 1"),
        ("(i + 16) % 16 == i", "A[i] = 1"), ("(i - 16) // 16 == -1", "A[i] = 1"),
        ("T.truncmod(i, 4) == i % 4", "A[i] = 1"),
    ]),
]  # fmt: skip
BOUNDS: Pairs = [
    (f"for i, j in T.grid(8, 2):\n    if {a}:\n        A[i * 2 + j] = 1",
     f"for i, j in T.grid(8, 2):\n    {b}") for a, b in [
        ("T.shift_left(1, i) >= 1", "A[i * 2 + j] = 1"), ("T.shift_left(3, i) <= 384", "A[i * 2 + j] = 1"),
        ("T.shift_right(i, 3) == 0", "A[i * 2 + j] = 1"), ("T.shift_right(i + 8, 1) > 3", "A[i * 2 + j] = 1"),
        ("T.bitwise_and(i, 7) == i", "A[i * 2 + j] = 1"), ("T.bitwise_or(i, 7) < 8", "A[i * 2 + j] = 1"),
        ("T.min(i, 3) + T.min(j, 1) <= 4", "A[i * 2 + j] = 1"), ("T.max(i, 3) >= 3", "A[i * 2 + j] = 1"),
        ("T.min(T.max(i, 2), 5) < 6", "A[i * 2 + j] = 1"), ("T.max(T.min(i, 9), j) < 8", "A[i * 2 + j] = 1"),
        ("T.min(i, T.min(j, 7)) <= 1", "A[i * 2 + j] = 1"), ("i * j <= 7", "A[i * 2 + j] = 1"),
        ("(i + 1) * (j + 1) >= 1", "A[i * 2 + j] = 1"), ("(i - 8) * (j + 1) < 0", "A[i * 2 + j] = 1"),
        ("(i + j) * (i + j) <= 64", "A[i * 2 + j] = 1"), ("i * j > 7", "pass"),
        ("T.Cast('int32', T.ceil(T.log2(T.Cast('float64', i + 9)))) == 4", "A[i * 2 + j] = 1"),
        ("T.Cast('int32', T.floor(T.log2(T.Cast('float64', i + 8)))) == 3", "A[i * 2 + j] = 1"),
        ("T.Cast('int32', T.ceil(T.log2(T.Cast('float64', i + 1)))) <= 3", "A[i * 2 + j] = 1"),
        ("T.if_then_else(j == 0, i, 3) < 8", "A[i * 2 + j] = 1"), ("T.truncdiv(i, 9) == 0", "A[i * 2 + j] = 1"),
    ]
]  # fmt: skip
FILL = "for a in range(16):\n    A[a] = T.Cast('int32', a)\n"
ZERO = "for a in range(16):\n    A[a] = 0\n"
CONTENTS: Pairs = [
    ("A[0] = 0\nif A[0] == 0:\n    B[0] = 42", "A[0] = 0\nB[0] = 42"),
    ("A[0] = 5\nA[0] = A[0] + 7", "A[0] = 5\nA[0] = 12"),
    ("A[0] = 0\nA[0] = A[0] + 1\nA[0] = A[0] + 1\nif A[0] == 2:\n    B[0] = 1", "A[0] = 0\nA[0] = 1\n"
     "A[0] = 2\nB[0] = 1"),
    (FILL + "for b in range(16):\n    if A[b] < 100:\n        B[b] = 1\n    else:\n        B[b] = 2",
     FILL + "for b in range(16):\n    B[b] = 1"),
    (FILL + "for b in range(16):\n    if A[b] == T.Cast('int32', b):\n"
     "        B[b] = 1", FILL + "for b in range(16):\n    B[b] = 1"),
    (FILL + "for b in range(15):\n    if A[b] < A[b + 1]:\n        B[b] = 1", FILL + "for b in range(15):\n"
     "    B[b] = 1"),
    (FILL + "if A[3] == 3:\n    B[0] = 1", FILL + "B[0] = 1"),
    (FILL + "B[0] = A[7]", FILL + "B[0] = 7"),
    (FILL + "for b in range(4):\n    B[b] = A[5] + X[b]", FILL + "for b in range(4):\n    B[b] = X[b] + 5"),
    (ZERO + "for b in range(16):\n    B[b] = A[b] + X[b]", ZERO + "for b in range(16):\n    B[b] = X[b]"),
    (ZERO + "for b in range(16):\n    if A[15 - b] == 0:\n"
     "        B[b] = X[b]", ZERO + "for b in range(16):\n    B[b] = X[b]"),
    (ZERO + "for b in range(16):\n    if A[b] < 10:\n        A[b] = X[b] * 2\n    else:\n        A[b] = X[b]",
     ZERO + "for b in range(16):\n    A[b] = X[b] * 2"),
    ("A[T.Ramp(0, 1, 4)] = T.Broadcast(T.int32(0), 4)\nif A[1] == 0:\n    B[0] = 1",
     "A[T.Ramp(0, 1, 4)] = T.Broadcast(T.int32(0), 4)\nB[0] = 1"),
    ("A[T.Ramp(0, 1, 4)] = T.Ramp(T.int32(11), T.int32(1), 4)\nif A[1] == 12:\n    B[0] = 1",
     "A[T.Ramp(0, 1, 4)] = T.Ramp(T.int32(11), T.int32(1), 4)\nB[0] = 1"),
    ("A[T.Ramp(0, 2, 4)] = T.Ramp(T.int32(1), T.int32(2), 4)\nif A[4] == 5:\n    B[0] = 1",
     "A[T.Ramp(0, 2, 4)] = T.Ramp(T.int32(1), T.int32(2), 4)\nB[0] = 1"),
    ("A[T.Ramp(7, -1, 8)] = T.Broadcast(T.int32(3), 8)\nif A[0] == 3:\n    B[0] = 1",
     "A[T.Ramp(7, -1, 8)] = T.Broadcast(T.int32(3), 8)\nB[0] = 1"),
    ("for a, b in T.grid(4, 4):\n    M[a, b] = T.Cast('int32', a)\nfor c in range(4):\n"
     "    if M[c, 2] == T.Cast('int32', c):\n        A[c] = 1",
     "for a, b in T.grid(4, 4):\n    M[a, b] = T.Cast('int32', a)\nfor c in range(4):\n    A[c] = 1"),
    ("for a in range(16):\n    A[a] = T.Cast('int32', a * 2 + 1)\nfor b in range(16):\n"
     "    if A[b] % 2 == 1:\n        B[b] = 1",
     "for a in range(16):\n    A[a] = T.Cast('int32', a * 2 + 1)\nfor b in range(16):\n    B[b] = 1"),
    ("for a in range(16):\n    if a < 8:\n        A[a] = 1\n    else:\n        A[a] = 2\n"
     "for b in range(8):\n    B[b] = A[b] + A[b + 8]",
     "for a in range(16):\n    if a < 8:\n        A[a] = 1\n    else:\n        A[a] = 2\n"
     "for b in range(8):\n    B[b] = 3"),
    ("for a in range(16):\n    A[a] = T.if_then_else(a < 4, 7, 9)\nfor b in range(4):\n    B[b] = A[b]",
     "for a in range(16):\n    A[a] = T.if_then_else(a < 4, 7, 9)\nfor b in range(4):\n    B[b] = 7"),
    ("for a in range(16):\n    if X[a] > 0:\n        A[a] = 3\n    else:\n        A[a] = 3\nB[0] = A[2]",
     "for a in range(16):\n    A[a] = 3\nB[0] = 3"),
    ("for a in range(16):\n    A[a] = 1\n    B[a] = A[a]", "for a in range(16):\n    A[a] = 1\n    B[a] = 1"),
    ("for a in range(16):\n    A[a] = 1\n    if A[a] == 1:\n        A[a] = 2\n    B[a] = A[a]",
     "for a in range(16):\n    A[a] = 1\n    A[a] = 2\n    B[a] = 2"),
    ("F[0] = T.float32(1.5)\nG[0] = F[0]", "F[0] = T.float32(1.5)\nG[0] = T.float32(1.5)"),
    ("F[0] = T.float32(1.5)\nG[0] = F[0] * T.float32(2)", "F[0] = T.float32(1.5)\nG[0] = T.float32(3)"),
    ("for a in range(16):\n    T.assume(X[a] == 3)\nfor b in range(16):\n    A[b] = X[b]",
     "for a in range(16):\n    T.assume(X[a] == 3)\nfor b in range(16):\n    A[b] = 3"),
    ("D[0] = 3\nfor b in range(4):\n    if D[0] == 3:\n        B[b] = 1", "D[0] = 3\nfor b in range(4):\n"
     "    B[b] = 1"),
    ("t = T.decl_buffer((4,), 'int32')\nfor a in range(4):\n    t[a] = 2\nfor b in range(4):\n    B[b] = t[b] + X[b]",
     "t = T.decl_buffer((4,), 'int32')\nfor a in range(4):\n    t[a] = 2\nfor b in range(4):\n    B[b] = X[b] + 2"),
    ("for a in range(4):\n    with T.block('w'):\n        v = T.axis.spatial(4, a)\n        A[v] = 6\n"
     "for b in range(4):\n    with T.block('r'):\n        w = T.axis.spatial(4, b)\n        B[w] = A[w]",
     "for a in range(4):\n    with T.block('w'):\n        v = T.axis.spatial(4, a)\n        A[v] = 6\n"
     "for b in range(4):\n    with T.block('r'):\n        w = T.axis.spatial(4, b)\n        B[w] = 6"),
]  # fmt: skip
CONTENTS += [
    ("for a in range(16):\n    B[a] = 0\nfor a in range(16):\n    C[a] = T.if_then_else(3 <= a and a < 9, X[a], 0)\n"
     "for a, f in T.grid(16, 3):\n    if f <= a:\n        B[a] = B[a] + C[a - f] * Y[f]\nfor a in range(16):\n"
     "    if a < 3 or 11 <= a:\n        if B[a] != 0:\n            D[a] = 1\n",
     "for a in range(16):\n    B[a] = 0\nfor a in range(16):\n    C[a] = T.if_then_else(3 <= a and a < 9, X[a], 0)\n"
     "for a, f in T.grid(16, 3):\n    if f <= a:\n        B[a] = B[a] + C[a - f] * Y[f]"),
    ("for a in range(16):\n    B[a] = 0\nfor a in range(16):\n    C[a] = T.if_then_else(3 <= a and a < 9, X[a], 0)\n"
     "for a, f in T.grid(16, 3):\n    if a + f < 16:\n        B[a + f] = B[a + f] + C[a] * Y[f]\nA[0] = B[2] + B[11]",
     "for a in range(16):\n    B[a] = 0\nfor a in range(16):\n    C[a] = T.if_then_else(3 <= a and a < 9, X[a], 0)\n"
     "for a, f in T.grid(16, 3):\n    if a + f < 16:\n        B[a + f] = B[a + f] + C[a] * Y[f]\nA[0] = 0"),
    ("for a in range(16):\n    B[a] = 0\nfor a in range(16):\n    C[a] = T.if_then_else(3 <= a and a < 9, X[a], 0)\n"
     "for a, f in T.grid(16, 3):\n    if f <= a:\n        B[a] = B[a] + C[a - f] * Y[f]\nA[0] = B[3]", ""),
    ("for a in range(16):\n    C[a] = T.if_then_else(a < 9, X[a], 1)\nA[0] = 7\nfor a in range(9, 16):\n"
     "    A[0] = A[0] * C[a]\nB[0] = A[0]",
     "for a in range(16):\n    C[a] = T.if_then_else(a < 9, X[a], 1)\nA[0] = 7\nfor a in range(9, 16):\n"
     "    A[0] = A[0] * C[a]\nB[0] = 7"),
]  # fmt: skip
FORGOTTEN: Pairs = [(body, "") for body in [
    "A[0] = 0\nA[0] = X[0]\nif A[0] == 0:\n    B[0] = 42",
    FILL + "A[X[0] % 16] = 5\nB[0] = A[7]",
    ZERO + "for b in range(16):\n    if b == 3:\n        A[b] = X[b]\n    B[b] = A[b]",
    "A[0] = 0\nfor b in range(16):\n    if A[0] < 10:\n        A[0] = X[b] + A[0]\n    else:\n        A[0] = X[b]",
    "for a in range(16):\n    if a == 0 or X[a] > 0:\n        A[a] = 0\n    else:\n        A[a] = 1\nB[0] = A[1]",
    "F[0] = T.float32('nan')\nG[0] = F[0]",
    "for a in range(16):\n    F[a] = H[a]\nfor b in range(16):\n    if F[b] == F[b]:\n        G[b] = 1.0",
    "for a in range(16):\n    A[a] = X[a]\nfor b in range(16):\n    if A[b] + 1 > A[b]:\n        B[b] = 1",
    FILL + "for b in range(16):\n    A[b] = A[15 - b]\n    B[b] = A[b]",
]]  # fmt: skip
BRANCHES: Pairs = [
    ("for a in range(16):\n    if X[a] > 3:\n        A[a] = 5\n        B[a] = A[a]",
     "for a in range(16):\n    if X[a] > 3:\n        A[a] = 5\n        B[a] = 5"),
    (FILL + "n: T.int32 = X[1]\nif A[X[0] % 4] == n:\n    B[0] = A[X[0] % 4]", ""),
    (FILL + "for n in range(16):\n    if X[n] == 3:\n        A[n] = A[n] + X[n]\n        B[n] = A[n]",
     FILL + "for n in range(16):\n    if X[n] == 3:\n        A[n] = A[n] + 3\n        B[n] = A[n]"),
    ("for n in range(4):\n    A[0] = X[n]\n    if A[0] == 3:\n        A[0] = A[0] + 1\n"
     "        if A[0] == 3:\n            A[0] = 5\n        else:\n            A[0] = 10\n    B[n] = A[0]",
     "for n in range(4):\n    A[0] = X[n]\n    if A[0] == 3:\n        A[0] = 4\n        A[0] = 10\n    B[n] = A[0]"),
    ("for n in range(4):\n    A[n] = X[n]\n    if T.Cast('int64', A[n]) == n:\n        B[n] = A[n] + 1\n"
     "        if T.Cast('int64', A[n]) != n:\n            B[n] = 7",
     "for n in range(4):\n    A[n] = X[n]\n    if T.Cast('int64', A[n]) == n:\n        B[n] = A[n] + 1"),
    ("for n in range(4):\n    A[n] = X[n]\n    if A[n] != 2:\n        A[n] = 1\n    else:\n        B[n] = A[n] * 3",
     "for n in range(4):\n    A[n] = X[n]\n    if A[n] != 2:\n        A[n] = 1\n    else:\n        B[n] = 6"),
    ("for n in range(4):\n    A[n] = X[n]\n    if A[n] == 2 and n < 3:\n        A[3] = 1\n        B[n] = A[n]",
     "for n in range(4):\n    A[n] = X[n]\n    if A[n] == 2 and n < 3:\n        A[3] = 1\n        B[n] = 2"),
    ("for n in range(4):\n    A[n] = X[n]\n    if A[n] == 2:\n        A[3] = 1\n        B[n] = A[n]", ""),
    ("for n in range(4):\n    A[n] = X[n]\n    if A[n] == 2 or n == 3:\n        B[n] = A[n]", ""),
    ("for n in range(4):\n    A[n] = X[n]\n    if A[n] == 2:\n        for m in range(2):\n            B[m] = A[n] * 2\n"
     "            A[n] = X[m]", ""),
    ("for n in range(4):\n    if X[n] > 2:\n        if X[n + 1] > 2:\n            A[0] = 5\n        B[n] = X[n + 2]",
     ""),
    ("A[0] = 1\nfor n in range(4):\n    if X[n] > 2:\n        if X[n + 1] > 2:\n            A[0] = 5\n"
     "        B[n] = A[0]",
     ""),
]  # fmt: skip
STORES: Pairs = [
    ("A[0] = X[0]\nA[0] = A[0]", "A[0] = X[0]"),
    (FILL + "for b in range(16):\n    A[b] = A[b]", FILL),
    (FILL + "for b, c in T.grid(4, 4):\n    A[b * 4 + c] = A[c + 4 * b]", FILL),
    (FILL + "for b, c in T.grid(4, 4):\n    d: T.int64 = b * 4 + c\n    A[4 * b + c] = A[d]", FILL),
    (FILL + "for b in range(16):\n    if b != 0:\n        A[b] = A[b - 1]\n    else:\n        A[b] = A[0]",
     FILL + "for b in range(16):\n    if b != 0:\n        A[b] = A[b - 1]"),
    (FILL + "for b in range(16):\n    if b == 5:\n        A[b] = A[5]", FILL),
    (FILL + "for b in range(16):\n    if b // 4 == 4 - 1:\n        A[b] = A[b % 4 + 12]", FILL),
    (FILL + "for b in range(15):\n    A[b + 1 - 1] = A[b]", FILL),
    (FILL + "A[4] = 4", FILL),
    (FILL + "A[4] = 2 + 2\nA[5] = 5", FILL),
    (FILL + "for b in range(4):\n    A[b] = T.Cast('int32', b)", FILL),
    (FILL + "for b in range(4):\n    A[b + 4] = T.Cast('int32', b + 4)", FILL),
    (FILL + "for b, c in T.grid(4, 4):\n    A[b * 4 + c] = T.Cast('int32', b * 4 + c)", FILL),
    (FILL + "for b in range(16):\n    if X[b] > 0:\n        A[b] = T.Cast('int32', b)", FILL),
    (FILL + FILL, FILL),
    (ZERO + "for b in range(16):\n    A[b] = 0", ZERO),
    (ZERO + "for b in range(16):\n    B[b] = X[b]\nfor c in range(16):\n"
     "    A[c] = 0", ZERO + "for b in range(16):\n    B[b] = X[b]"),
    (ZERO + "for b in range(16):\n    A[b] = 7", "for b in range(16):\n    A[b] = 7"),
    (ZERO + "for b in range(16):\n    B[b] = X[b]\nfor c in range(16):\n    A[c] = 7",
     "for b in range(16):\n    B[b] = X[b]\nfor c in range(16):\n    A[c] = 7"),
    ("for a in range(4, 12):\n    A[a] = 1\n" + ZERO, ZERO),
    ("for a in range(8):\n    A[a * 2] = 1\n" + ZERO, ZERO),
    ("for a in range(8):\n    A[a * 2] = 1\nfor a in range(8):\n    A[a * 2 + 1] = 2\n" + ZERO, ZERO),
    ("for a in range(16):\n    A[15 - a] = X[a]\n" + FILL, FILL),
    ("for a in range(16):\n    A[a] = 1\n    A[a] = 2", "for a in range(16):\n    A[a] = 2"),
    ("for a in range(16):\n    A[a] = X[a]\n    B[a] = 3\n    A[a] = 2", "for a in range(16):\n"
     "    B[a] = 3\n    A[a] = 2"),
    ("for a in range(16):\n    A[0] = X[a]", "for a in range(16):\n    A[0] = X[a]"),
    ("A[0] = 1\nfor a in range(16):\n    A[0] = X[a]", "for a in range(16):\n    A[0] = X[a]"),
    ("for a, b in T.grid(4, 4):\n    M[a, b] = 0\nfor a, b in T.grid(4, 4):\n"
     "    M[b, a] = 1", "for a, b in T.grid(4, 4):\n    M[b, a] = 1"),
    ("for a, b in T.grid(4, 4):\n    M[a, b] = T.Cast('int32', a - b)\nfor c in range(4):\n    M[c, c] = 0",
     "for a, b in T.grid(4, 4):\n    M[a, b] = T.Cast('int32', a - b)"),
    ("for a, b in T.grid(4, 4):\n    M[a, b] = X[a]\n    M[a, b] = M[a, b]", "for a, b in T.grid(4, 4):\n"
     "    M[a, b] = X[a]"),
    ("A[T.Ramp(0, 1, 4)] = T.Broadcast(T.int32(2), 4)\nA[2] = 2", "A[T.Ramp(0, 1, 4)] = T.Broadcast(T.int32(2), 4)"),
    ("A[T.Ramp(0, 1, 4)] = X[T.Ramp(0, 1, 4)]\n"
     "A[T.Ramp(0, 1, 4)] = A[T.Ramp(0, 1, 4)]", "A[T.Ramp(0, 1, 4)] = X[T.Ramp(0, 1, 4)]"),
    ("A[T.Ramp(0, 1, 4)] = T.Broadcast(T.int32(2), 4)\nfor b in range(8):\n"
     "    A[b] = X[b]", "for b in range(8):\n    A[b] = X[b]"),
    ("for a in range(16):\n    F[a] = T.Cast('float32', a) * T.float32(0.5)\nfor b in range(8):\n"
     "    F[b] = T.Cast('float32', b) * T.float32(0.5)",
     "for a in range(16):\n    F[a] = T.Cast('float32', a) * T.float32(0.5)"),
    ("for a in range(16):\n    T.assume(X[a] == 0)\nB[0] = 1", "for a in range(16):\n"
     "    T.assume(X[a] == 0)\nB[0] = 1"),
    ("for i, k in T.grid(16, 4):\n    with T.block('s'):\n        vi, vk = T.axis.remap('SR', [i, k])\n"
     "        with T.init():\n"
     "            A[vi] = 0\n        A[vi] = A[vi] + X[vk]\n" + FILL, FILL),
    ("for a in range(0):\n    A[a] = 1\nB[0] = 2", "B[0] = 2"), ("if 3 < 2:\n    A[0] = 1\nB[0] = 2", "B[0] = 2"),
    ("for a in range(16):\n    if X[a] > 3:\n        pass\nB[0] = 2", "B[0] = 2"), ("T.assume(True)\n"
     "B[0] = 2", "B[0] = 2"),
    ("x: T.int32 = X[0]\nB[0] = 2", "B[0] = 2"), ("T.evaluate(X[0])\nB[0] = 2", "B[0] = 2"),
]  # fmt: skip
TEMPORARIES: Pairs = [
    ("t = T.decl_buffer((16,), 'int32')\nfor a in range(16):\n    t[a] = 0\nB[0] = 1", "B[0] = 1"),
    ("t = T.decl_buffer((16,), 'int32')\nfor a in range(16):\n    A[a] = 1", "for a in range(16):\n    A[a] = 1"),
    ("t = T.decl_buffer((4,), 'int32')\nfor a in range(4):\n    t[a] = X[a]\nfor b in range(4):\n"
     "    B[b] = t[b]\nfor c in range(4):\n    t[c] = 0",
     "t = T.decl_buffer((4,), 'int32')\nfor a in range(4):\n    t[a] = X[a]\nfor b in range(4):\n    B[b] = t[b]"),
    ("t = T.decl_buffer((4,), 'int32')\nu = T.decl_buffer((4,), 'int32')\nfor a in range(4):\n"
     "    t[a] = X[a]\nfor b in range(4):\n    u[b] = t[b]\nB[0] = 1",
     "B[0] = 1"),
    ("t = T.decl_buffer((4,), 'int32')\nfor a in range(4):\n    t[a] = 5\n    t[a] = X[a]\n    B[a] = t[a]",
     "t = T.decl_buffer((4,), 'int32')\nfor a in range(4):\n    t[a] = X[a]\n    B[a] = t[a]"),
    ("t = T.decl_buffer((4,), 'int32')\nfor a in range(4):\n    t[a] = X[a]\nB[0] = t[2]",
     "t = T.decl_buffer((4,), 'int32')\nfor a in range(4):\n    t[a] = X[a]\nB[0] = t[2]"),
    ("D = T.decl_buffer((4, 4), 'int32')\nE = T.decl_buffer((16,), 'int32', data=D.data)\nB[0] = 1", "B[0] = 1"),
    ("D = T.decl_buffer((4, 4), 'int32')\nE = T.decl_buffer((16,), 'int32', data=D.data)\nE[3] = 1\n"
     "B[0] = 1", "B[0] = 1"),
    ("t = T.decl_buffer((4,), 'int32')\nfor a in range(4):\n    if X[a] > 0:\n        t[a] = 1\n"
     "B[0] = 1", "B[0] = 1"),
    ("t = T.decl_buffer((1,), 'int32')\nt[0] = 0\nfor a in range(4):\n    t[0] = t[0] + X[a]\nB[0] = 1", "B[0] = 1"),
]  # fmt: skip
LOUD: Pairs = [(body, "") for body in [
    FILL + "for b in range(15):\n    A[b] = A[b + 1]", FILL + "A[4] = 5", FILL + "for b in range(4):\n"
    "    A[b] = T.Cast('int32', b + 1)",
    "for a in range(16):\n    A[a] = 1\n    A[a] = A[a] + X[a]", "for a in range(16):\n    A[a] = 1\n"
    "    B[a] = A[a]\n    A[a] = 2",
    "for a in range(16):\n    F[a] = T.float32(0.0)\nfor b in range(15):\n    F[b] = H[b]",
    "F[0] = H[0]\nF[0] = F[0] + H[1] * T.float32(0.5)", "A[0] = 1\nif X[0] > 0:\n    A[0] = 2",
    "for a in range(8):\n    A[a] = 1\nfor b in range(7):\n    A[b] = 2", "for a in range(16):\n"
    "    A[X[a] % 16] = 1\nA[0] = 2",
    "A[0] = X[0]\nA[1] = A[0]\nA[0] = X[1]",
    "for a in range(16):\n    A[a] = T.Cast('int32', T.Cast('int8', T.Cast('int32', a) * 17))\nA[9] = 153",
]]  # fmt: skip
OVERCOMPUTE: Pairs = [
    ("A[0] = 7\nfor i in range(16):\n    if i > 0:\n        A[0] = A[0] + T.Cast('int32', i * i)",
     "A[0] = 7\nfor i in range(16):\n    A[0] = A[0] + T.Cast('int32', i * i)"),
    ("A[0] = 7\nfor i in range(16):\n    if i != 0:\n        A[0] = A[0] - T.Cast('int32', i) * X[i]",
     "A[0] = 7\nfor i in range(16):\n    A[0] = A[0] - T.Cast('int32', i) * X[i]"),
    ("A[0] = 7\nfor i in range(16):\n    if i != 3:\n        A[0] = A[0] + (T.Cast('int32', i) - 3) * X[i]",
     "A[0] = 7\nfor i in range(16):\n    A[0] = A[0] + (T.Cast('int32', i) - 3) * X[i]"),
    ("A[0] = 7\nfor i in range(16):\n    if i != 1:\n        A[0] = A[0] * T.Cast('int32', i)",
     "A[0] = 7\nfor i in range(16):\n    A[0] = A[0] * T.Cast('int32', i)"),
    ("for i in range(16):\n    A[i] = 3\nfor i in range(16):\n    if i < 8:\n        A[i] = 3",
     "for i in range(16):\n    A[i] = 3\nfor i in range(16):\n    A[i] = 3"),
    (FILL + "for i in range(16):\n    if i % 2 == 0:\n        A[i] = T.Cast('int32', i)",
     FILL + "for i in range(16):\n    A[i] = T.Cast('int32', i)"),
    ("for i in range(16):\n    if i < 8:\n        A[i] = X[i]\nfor i in range(16):\n    if i >= 8:\n        A[i] = 0",
     "for i in range(16):\n    A[i] = X[i]\nfor i in range(16):\n    if i >= 8:\n        A[i] = 0"),
]  # fmt: skip
EXACT_ONLY: Pairs = [(body, "") for body in [
    "F[0] = 1.0\nfor i in range(16):\n    if i > 0:\n        F[0] = F[0] + T.Cast('float32', i) * H[i]",
    "A[0] = 7\nfor i in range(16):\n    if i > 0:\n        A[0] = A[0] + T.Cast('int32', i * i + 1)",
    "A[0] = 7\nfor i in range(16):\n    if i > 0:\n        A[0] = A[0] + X[i - 1]",
    "A[0] = 7\nfor i in T.parallel(16):\n    if i == 0:\n        A[0] = A[0] + 1",
]]  # fmt: skip
HOISTS: Pairs = [
    ("for i in range(16):\n    if X[0] > 1:\n        A[i] = 1", "if X[0] > 1:\n    for i in range(16):\n"
     "        A[i] = 1"),
    ("for i, j in T.grid(4, 4):\n    if i < 2:\n        M[i, j] = 1", "for i in range(4):\n    if i < 2:\n"
     "        for j in range(4):\n            M[i, j] = 1"),
    ("for i, j in T.grid(4, 4):\n    if i < 2 and j < 3:\n        M[i, j] = 1",
     "for i in range(4):\n    if i < 2:\n        for j in range(4):\n            if j < 3:\n"
     "                M[i, j] = 1"),
    ("for i, j in T.grid(4, 4):\n    if j < 2:\n        M[i, j] = 1", ""),
    ("A[0] = X[0]\nfor i in range(16):\n    if A[0] > 1:\n        A[i] = 1", ""),
    ("for i in range(16):\n    A[i] = T.if_then_else(X[0] > 1, T.int32(1), T.int32(2))",
     "if X[0] > 1:\n    for i in range(16):\n        A[i] = 1\nelse:\n    for i in range(16):\n        A[i] = 2"),
    ("for i, j in T.grid(4, 4):\n    c: T.int64 = i * 2\n    if c < 5:\n        M[i, j] = 1",
     "for i in range(4):\n    c: T.int64 = i * 2\n    if c < 5:\n        for j in range(4):\n"
     "            M[i, j] = 1"),
]  # fmt: skip

TABLES: dict[str, tuple[str, Pairs]] = {
    "disjunctions and conjunctions": ("simplify", DISJUNCTIONS),
    "congruences": ("simplify", CONGRUENCES),
    "bounds": ("simplify", BOUNDS),
    "known contents": ("simplify", CONTENTS),
    "contents that may have changed": ("simplify", FORGOTTEN),
    "contents of a branch": ("simplify", BRANCHES),
    "stores without an effect": ("remove_no_op", STORES),
    "temporaries": ("remove_no_op", TEMPORARIES),
    "stores with an effect": ("remove_no_op", LOUD),
    "overcompute": ("remove_branching_through_overcompute", OVERCOMPUTE),
    "overcompute that would show": ("remove_branching_through_overcompute", EXACT_ONLY),
    "hoisting": ("hoist_expression", HOISTS),
}
