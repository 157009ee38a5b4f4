"""Small random programs about what conditions protect: undef, ranges of iterators, divisors, and order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzz.programs import Text

PAD = "    "


def _floats(t: Text) -> None:
    """Data of one float type, and loops of the index type, however a text draws its types."""
    t.bare = False
    t.dtype, t.typed, t.mixed, t.index = "float32", False, False, "int64"  # type: ignore[attr-defined]


def _block(
    t: Text, loops: list[int], iters: list[tuple[str, int, str]], body: list[str], where: str = "", init: str = "",
    around: str = "",
) -> None:  # fmt: skip
    """A block whose iterators ``(kind, extent, binding)`` are functions of the loops ``{0}``, ``{1}``, ...

    `body` and `init` name the iterators; `where`, `around` and the bindings name the loops.
    """
    names = [t.fresh("i") for _ in loops]
    axes = [f"v{t.fresh('x')}" for _ in iters]
    t.lines.append(f"{PAD}for {', '.join(names)} in T.grid({', '.join(map(str, loops))}):")
    depth = 2
    if around:
        t.lines.append(PAD * depth + f"if {around.format(*names)}:")
        depth += 1
    t.lines.append(PAD * depth + f"with T.block({t.fresh('b')!r}):")
    for axis, (kind, extent, binding) in zip(axes, iters, strict=True):
        t.lines.append(PAD * (depth + 1) + f"{axis} = T.axis.{kind}({extent}, {binding.format(*names)})")
    if where:
        t.lines.append(PAD * (depth + 1) + f"T.where({where.format(*names)})")
    if init:
        t.lines += [PAD * (depth + 1) + "with T.init():", PAD * (depth + 2) + init.format(*axes)]
    t.lines += [PAD * (depth + 1) + line.format(*axes) for line in body]


def _deciding(t: Text, target: str, source: str, at: str) -> list[str]:
    """A value that a condition over what is read decides, or that is computed from it without one."""
    x, name = f"{source}[{at}]", t.fresh("x")
    named = f"with T.LetStmt({x}, T.float32) as {name}:"
    then, other = t.rng.choice([(f"{x} * T.float32(2)", x), (x, "T.float32(1)"), ("T.float32(3)", "T.float32(0)")])
    cond = f"{x} {t.rng.choice(['<', '>=', '=='])} T.float32({t.rng.randint(-2, 2)})"
    return t.rng.choice([
        [f"{target} = T.Select({cond}, {then}, {other})"],
        [f"{target} = T.if_then_else({cond}, {then}, {other})"],
        [f"if {cond}:", f"    {target} = {then}", "else:", f"    {target} = {other}"],
        [f"{target} = {other}", f"if {cond}:", f"    {target} = {then}"],
        [named, f"    {target} = T.Select({name} > T.float32(0), {name}, {other})"],
        [named, f"    {target} = {name} + T.float32(1)"],
        [f"{target} = T.max({x}, T.float32(0))"],
        [f"{target} = T.Cast('float32', {cond})"],
        [f"{target} = T.Select({{0}} < 2, {then}, {x})"],
    ])  # fmt: skip


def rectified(t: Text) -> None:
    """Conditions on data, of an input or of a stage: what happens to them on padding."""
    _floats(t)
    n = t.rng.randint(4, 9)
    source = t.param("A", (n,))
    t.param("C", (n,))
    if t.rng.random() < 0.6:
        t.alloc("S", (n,))
        t.nest([n], ["S[{0}] = A[{0}] * T.float32(2)"])
        source = "S"
    if t.rng.random() < 0.4:
        t.alloc("D", (n,))
        t.nest([n], _deciding(t, "D[{0}]", source, "{0}"))
        source = "D"
    t.nest([n], _deciding(t, "C[{0}]", source, "{0}"))


def holed(t: Text) -> None:
    """An allocation that is undef from some element on, and readers that stay before it."""
    _floats(t)
    n = t.rng.randint(4, 9)
    cut = t.rng.randint(1, n)
    t.param("A", (n,)), t.param("C", (n,))
    t.alloc("S", (n,))
    form = t.rng.randrange(3)
    if form == 0:
        t.nest([n], [f"S[{{0}}] = T.if_then_else({{0}} < {cut}, A[{{0}}], T.undef('float32'))"])
    else:
        stores = [("T.undef('float32')", ""), ("A[{0}]", f"{{0}} < {cut}")]
        for value, where in stores if form == 1 else [("A[{0}]", ""), ("T.undef('float32')", f"{{0}} >= {cut}")]:
            t.nest([n], [f"S[{{0}}] = {value}"], where=where)
    t.nest([n], ["C[{0}] = T.float32(0)"])
    first = t.rng.choice([0, 0, 1])
    where = f"{{0}} < {cut}" + (f" and {{0}} >= {first}" if first else "")
    if t.rng.random() < 0.5:
        t.alloc("D", (n,))
        t.nest([n], _deciding(t, "D[{0}]", "S", "{0}"), where=where)
        t.nest([n], ["C[{0}] = D[{0}]"], where=where)
    elif t.rng.random() < 0.5:
        _block(t, [n], [("spatial", n, "{0}")], _deciding(t, "C[{0}]", "S", "{0}"), around=where)
    else:
        t.nest([n], _deciding(t, "C[{0}]", "S", "{0}"), where=where)


def by_rows(t: Text) -> None:
    """Rows of which something that may be undef decides, or is only computed with; some of them nobody reads."""
    _floats(t)
    m, n = t.rng.randint(2, 5), t.rng.randint(2, 4)
    cut = t.rng.randint(0, m)
    t.param("A", (m, n)), t.param("C", (m, n))
    t.alloc("S", (m,)), t.alloc("D", (m, n))
    t.nest([m], [f"S[{{0}}] = T.if_then_else({{0}} < {cut}, A[{{0}}, 0], T.undef('float32'))"])
    row = t.rng.choice(["{0}", "{0}", "0"])
    cond, known = f"S[{row}] > T.float32(0)", f"{row} < {cut}"
    value = t.rng.choice(
        [
            f"T.Cast('float32', {cond}) + A[{{0}}, {{1}}]",
            f"T.if_then_else({known} and {cond}, A[{{0}}, {{1}}], T.float32(1))",
            f"T.if_then_else({known}, T.Select({cond}, A[{{0}}, {{1}}], T.float32(2)), T.float32(1))",
            f"T.Cast('float32', {known} and {cond})",
            f"T.Cast('float32', T.Not({cond})) * A[{{0}}, {{1}}]",
        ]
    )
    t.nest([m, n], [f"D[{{0}}, {{1}}] = {value}"])
    safe = f"{{0}} < {cut if row == '{0}' or cut else 0}"
    t.nest([m, n], ["C[{0}, {1}] = A[{0}, {1}]"])
    t.nest([m, n], ["C[{0}, {1}] = D[{0}, {1}] + T.float32(1)"], where=safe)


def summed(t: Text) -> None:
    """A sum over part of a stage: the rest is undef, or nothing has written it."""
    _floats(t)
    m, n = t.rng.randint(2, 4), t.rng.randint(3, 6)
    cut = t.rng.randint(1, n)
    t.param("A", (m, n)), t.param("C", (m,))
    t.alloc("S", (m, n))
    if t.rng.random() < 0.7:
        rest = t.rng.choice(["T.undef('float32')", "T.undef('float32')", "T.float32(0)"])
        t.nest([m, n], [f"S[{{0}}, {{1}}] = {rest}"])
    t.nest([m, n], ["S[{0}, {1}] = A[{0}, {1}]"], where=f"{{1}} < {cut}")
    value = t.rng.choice(["S[{0}, {1}]", "T.max(S[{0}, {1}], T.float32(0))", "S[{0}, {1}] * A[{0}, {1}]",
                          "T.Select(S[{0}, {1}] > T.float32(0), T.float32(1), T.float32(0))"])  # fmt: skip
    t.nest([m, n], [f"C[{{0}}] = C[{{0}}] + {value}"], reduce=1, init="C[{0}] = T.float32(0)", where=f"{{1}} < {cut}")


def offset(t: Text) -> None:
    """Blocks whose iterators begin at an offset of their loops, with conditions inside of them."""
    _floats(t)
    n, shift, more = t.rng.randint(4, 9), t.rng.randint(0, 3), t.rng.randint(0, 3)
    t.param("A", (n,)), t.param("C", (n,))
    t.nest([n], ["C[{0}] = T.float32(0)"])
    where = " and ".join([f"{{0}} >= {shift}"] * (shift > 0) + [f"{{0}} < {n + shift}"] * (more > 0))
    around = t.rng.random() < 0.3
    low = t.rng.randint(0, n - 1)
    inner = t.rng.choice([
        [f"if {{0}} >= {low}:", "    C[{0}] = A[{0}]"],
        [f"if {{0}} >= {low} and {{0}} < {n - 1}:", "    C[{0}] = A[{0}]"],
        [f"C[{{0}}] = T.if_then_else({{0}} >= {low}, A[{{0}}], C[{{0}}])"],
        [f"for k in range(T.min({{0}}, {low})):", "    C[{0}] = A[{0}]"],
        ["with T.block('inner'):", f"    vk = T.axis.spatial({n}, {{0}})", f"    T.where({{0}} >= {low})",
         "    C[vk] = A[vk] * T.float32(2)"],
        [f"if 12 // ({{0}} + 1) > {t.rng.randint(0, 4)}:", f"    if {{0}} >= {low}:", "        C[{0}] = A[{0}]"],
        ["C[{0}] = A[{0}]"],
    ])  # fmt: skip
    binding = f"{{0}} - {shift}" if shift else "{0}"
    _block(t, [n + shift + more], [("spatial", n, binding)], inner, "" if around else where, around=where * around)


def shifted_stage(t: Text) -> None:
    """A stage that a block at an offset of its loops fills, or part of it, and that another such block reads."""
    _floats(t)
    n, (shift, other) = t.rng.randint(4, 8), t.rng.choices(range(3), k=2)
    t.param("A", (n,)), t.param("C", (n,))
    t.alloc("S", (n,))
    cut = t.rng.choice([n, n, n - 1])
    stored = [f"{{0}} >= {shift}", f"{{0}} < {cut + shift}"]
    value = t.rng.choice(["A[{0}] * T.float32(2)", "A[{0}]", f"A[{n - 1} - {{0}}] + T.float32(1)"])
    _block(t, [n + shift + 1], [("spatial", n, f"{{0}} - {shift}")], [f"S[{{0}}] = {value}"], " and ".join(stored))
    t.nest([n], ["C[{0}] = T.float32(0)"])
    read = [f"{{0}} >= {other}", f"{{0}} < {cut + other}"]
    plain, inner = ["C[{0}] = S[{0}]"], ["if {0} >= 2:", "    C[{0}] = S[{0}]"]
    body = t.rng.choice([plain, inner, _deciding(t, "C[{0}]", "S", "{0}")])
    where, around = " and ".join(read), ""
    if t.rng.random() < 0.3:
        where, around = around, where
    _block(t, [n + other + 1], [("spatial", n, f"{{0}} - {other}")], body, where, around=around)


def shifted_sum(t: Text) -> None:
    """A reduction whose first point lies at an offset, and which leaves some of its points out."""
    _floats(t)
    m, n, shift = t.rng.randint(2, 4), t.rng.randint(2, 5), t.rng.randint(0, 2)
    more = t.rng.randint(0, 2)
    t.param("A", (m, n)), t.param("C", (m,))
    where = " and ".join([f"{{1}} >= {shift}"] * (shift > 0) + [f"{{1}} < {n + shift}"] * (more > 0))
    value = t.rng.choice(["A[{0}, {1}]", "T.if_then_else({1} >= 1, A[{0}, {1}], T.float32(0))"])
    binding = f"{{1}} - {shift}" if shift else "{1}"
    _block(t, [m, n + shift + more], [("spatial", m, "{0}"), ("reduce", n, binding)],
           [f"C[{{0}}] = C[{{0}}] + {value}"], where, "C[{0}] = T.float32(0)")  # fmt: skip


def divided(t: Text) -> None:
    """Divisors that conditions keep from being 0, further outside than they are used."""
    _floats(t)
    n = t.rng.randint(4, 9)
    hole, low = t.rng.randint(0, n - 1), t.rng.randint(0, n)
    t.param("A", (n,)), t.param("C", (n,))
    t.nest([n], ["C[{0}] = T.float32(0)"])
    quotient = f"(12 // ({{0}} - {hole}))"
    inner = t.rng.choice([
        [f"if {quotient} > {t.rng.randint(-2, 3)}:", f"    if {{0}} >= {low}:", "        C[{0}] = A[{0}]"],
        [f"for k in range({quotient}):", f"    if {{0}} >= {low}:", "        C[{0}] = A[{0}]"],
        [f"C[{{0}}] = A[{quotient} % {n}]"],
        [f"C[{{0}}] = T.if_then_else({quotient} > 1, A[{{0}}], T.float32(0))"],
    ])  # fmt: skip
    kept = t.rng.choice([f"{{0}} != {hole}", f"{{0}} > {hole}", f"{{0}} < {hole}"])
    if t.rng.random() < 0.5:
        _block(t, [n], [("spatial", n, "{0}")], inner, around=kept)
    else:
        t.nest([n], inner, where=kept)


def unread(t: Text) -> None:
    """Stages of which nobody reads some, or which read nothing, in any order."""
    _floats(t)
    n = t.rng.randint(3, 7)
    t.param("A", (n,)), t.param("C", (n,))
    source, known = "A", ["A"]
    for k in range(t.rng.randint(2, 4)):
        name = t.alloc(f"T{k}", (n,))
        value = t.rng.choice([f"{t.rng.choice(known)}[{{0}}] * T.float32(2)", f"{source}[{{0}}] + T.float32(1)",
                              f"{source}[{n - 1} - {{0}}]", "T.float32(1)", "T.undef('float32')"])  # fmt: skip
        t.nest([n], [f"{name}[{{0}}] = {value}"])
        if "undef" not in value:
            source = t.rng.choice([source, name])
            known.append(name)
    t.nest([n], [t.rng.choice([f"C[{{0}}] = {source}[{{0}}]", f"C[{{0}}] = {source}[{{0}}] + {known[-1]}[{{0}}]"])])


def repeated_stages(t: Text) -> None:
    """Stages in one loop: readers of what this iteration has stored, or the one before."""
    _floats(t)
    n, again = t.rng.randint(2, 4), t.rng.randint(2, 3)
    t.param("A", (n,)), t.param("C", (n,))
    t.alloc("W", (n,)), t.alloc("X", (n,))
    t.nest([n], ["W[{0}] = A[{0}]"])
    t.nest([n], ["X[{0}] = A[{0}] * T.float32(3)"])
    parts = [("C[{0}] = X[{0}]", "{t} > 0"), ("X[{0}] = W[{0}]", ""), ("W[{0}] = W[{0}] + T.float32(1)", "")]
    if t.rng.random() < 0.4:
        parts = [("C[{0}] = C[{0}] + X[{0}]", ""), *parts[1:]]
        t.nest([n], ["C[{0}] = T.float32(0)"])
    elif t.rng.random() < 0.5:
        parts[0] = (parts[0][0], "")
    t.rng.shuffle(parts)
    loop = t.fresh("t")
    t.lines.append(f"{PAD}for {loop} in range({again}):")
    if t.rng.random() < 0.2:
        t.lines.append(f"{PAD * 2}with T.block({t.fresh('o')!r}):")
    start = len(t.lines)
    for body, where in parts:
        t.nest([n], [body], where=where.format(t=loop))
    deeper = PAD * (2 if "T.block" in t.lines[start - 1] else 1)
    t.lines[start:] = [deeper + line for line in t.lines[start:]]


def overwritten(t: Text) -> None:
    """Undef that is stored and overwritten, or that somebody computes on where nobody reads the result."""
    _floats(t)
    n = t.rng.randint(4, 8)
    cut = t.rng.randint(1, n - 1)
    t.param("A", (n,)), t.param("C", (n,))
    t.alloc("S", (n,))
    t.nest([n], ["S[{0}] = T.undef('float32')"], where=t.rng.choice(["", f"{{0}} >= {cut}"]))
    t.nest([n], ["S[{0}] = A[{0}]"], where=f"{{0}} < {cut}")
    t.alloc("D", (n,))
    t.nest([n], [t.rng.choice(["D[{0}] = S[{0}] + A[{0}]", "D[{0}] = T.max(S[{0}], T.float32(0))",
                               "D[{0}] = S[{0}] * T.float32(0)"])])  # fmt: skip
    t.nest([n], ["C[{0}] = A[{0}]"])
    t.nest([n], _deciding(t, "C[{0}]", "D", "{0}"), where=f"{{0}} < {cut}")


EDGES = (
    *[rectified] * 2, holed, by_rows, summed, offset, shifted_stage, shifted_sum, divided, unread, repeated_stages,
    overwritten,
)  # fmt: skip
