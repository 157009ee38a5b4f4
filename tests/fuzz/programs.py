"""Small random programs worth scheduling, as script text: blocks and bare loops, producers and consumers."""

from __future__ import annotations

import random

from fuzz.edges import EDGES

AGAIN = 0.05
HEAD = "@T.prim_func\ndef main({params}):\n"


class Text:
    """Lines of a function being written."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.count = rng, 0
        self.lines: list[str] = []
        self.params: list[str] = []
        self.bare = rng.random() < 0.25

    def fresh(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    def param(self, name: str, shape: tuple[int, ...]) -> str:
        self.params.append(f'{name}: T.Buffer({shape!r}, "float32")')
        return name

    def alloc(self, name: str, shape: tuple[int, ...]) -> str:
        self.lines.append(f'    {name} = T.alloc_buffer({shape!r}, "float32")')
        return name

    def script(self) -> str:
        return HEAD.format(params=", ".join(self.params)) + "\n".join(self.lines) + "\n"

    def nest(
        self, extents: list[int], body: list[str], reduce: int = 0, init: str = "", where: str = "", again: int = 0
    ) -> None:
        """Loops with one statement: a block with iterators (the last `reduce` of them reductions), or bare.

        `body`, `init` and `where` name the axes ``{0}``, ``{1}``, ...  A block's loops have one anywhere among them
        that runs it `again` so many times, and that no iterator knows; now and then without being asked for.
        """
        loops = [self.fresh("i") for _ in extents]
        pad = "    "
        if self.bare:
            self._bare(loops, extents, body, reduce, init, where)
            return
        around = list(zip(loops, extents, strict=True))
        again = again or (2 if self.rng.random() < AGAIN else 0)
        if again:
            around.insert(self.rng.randint(0, len(around)), (self.fresh("r"), again))
        names, counts = (", ".join(map(str, items)) for items in zip(*around, strict=True))
        self.lines.append(f"{pad}for {names} in T.grid({counts}):")
        self.lines.append(f"{pad * 2}with T.block({self.fresh('b')!r}):")
        axes = [f"v{loop}" for loop in loops]
        kinds = "S" * (len(extents) - reduce) + "R" * reduce
        for axis, loop, extent, kind in zip(axes, loops, extents, kinds, strict=True):
            self.lines.append(f"{pad * 3}{axis} = T.axis.{'spatial' if kind == 'S' else 'reduce'}({extent}, {loop})")
        if where:
            self.lines.append(f"{pad * 3}T.where({where.format(*loops)})")
        if init:
            self.lines += [f"{pad * 3}with T.init():", f"{pad * 4}{init.format(*axes)}"]
        self.lines += [f"{pad * 3}{line.format(*axes)}" for line in body]

    def _bare(self, loops: list[str], extents: list[int], body: list[str], reduce: int, init: str, where: str) -> None:
        depth = 1
        if self.rng.random() < 0.5:
            self.lines.append("    " * depth + f"with T.block({self.fresh('b')!r}):")
            depth += 1
        for number, (loop, extent) in enumerate(zip(loops, extents, strict=True)):
            if init and number == len(extents) - reduce:
                self.lines.append("    " * depth + init.format(*loops))
            self.lines.append("    " * depth + f"for {loop} in range({extent}):")
            depth += 1
        if where:
            self.lines.append("    " * depth + f"if {where.format(*loops)}:")
            depth += 1
        self.lines += ["    " * depth + line.format(*loops) for line in body]


def elementwise(t: Text) -> None:
    """Two or three stages, each a function of the one before at shifted or permuted indices."""
    rank = t.rng.choice([1, 1, 2])
    shape = tuple(t.rng.randint(3, 9) for _ in range(rank))
    source = t.param("A", shape)
    target = t.param("C", shape)
    stages = t.rng.choice([1, 2, 2, 3, 3])
    names = [t.alloc(f"T{k}", shape) for k in range(stages - 1)] + [target]
    for name in names:
        axes = ", ".join(f"{{{d}}}" for d in range(rank))
        rolled = ", ".join([f"({{0}} + 1) % {shape[0]}", *(f"{{{d}}}" for d in range(1, rank))])
        forms = ["{0} * T.float32(2)", "{0} + T.float32(1)", "T.max({0}, T.float32(0))"]
        forms += ["T.if_then_else({{0}} < " + str(shape[0] - 1) + ", {0}, T.float32(3))"]
        value = t.rng.choice([form.format(f"{source}[{axes}]") for form in forms] + [f"{source}[{rolled}]"])
        t.nest(list(shape), [f"{name}[{axes}] = {value}"])
        source = name


def convolution(t: Text) -> None:
    """A 1-d convolution, or a pooling, perhaps of a padded copy."""
    n, k, stride = t.rng.randint(3, 9), t.rng.randint(1, 3), t.rng.choice([1, 1, 2])
    size = stride * (n - 1) + k
    source = t.param("A", (size,))
    weights = t.param("W", (k,)) if t.rng.random() < 0.7 else ""
    target = t.param("C", (n,))
    if t.rng.random() < 0.4:
        padded = t.alloc("P", (size + 2,))
        t.nest([size + 2], [
            f"{padded}[{{0}}] = T.if_then_else({{0}} >= 1 and {{0}} < {size + 1}, {source}[{{0}} - 1], T.float32(0))"
        ])  # fmt: skip
        source = padded
    index = f"{{0}} * {stride} + {{1}}" if stride > 1 else "{0} + {1}"
    if weights:
        body, start = f"{target}[{{0}}] = {target}[{{0}}] + {source}[{index}] * {weights}[{{1}}]", "T.float32(0)"
    else:
        body = f"{target}[{{0}}] = T.max({target}[{{0}}], {source}[{index}])"
        start = 'T.float32("-inf")'
    t.nest([n, k], [body], reduce=1, init=f"{target}[{{0}}] = {start}")


def product(t: Text) -> None:
    """A small matrix product, perhaps with something done to its result."""
    m, n, k = (t.rng.randint(2, 6) for _ in range(3))
    t.param("A", (m, k)), t.param("W", (k, n)), t.param("C", (m, n))
    follow = t.rng.random() < 0.4
    result = t.alloc("D", (m, n)) if follow else "C"
    t.nest([m, n, k], [f"{result}[{{0}}, {{1}}] = {result}[{{0}}, {{1}}] + A[{{0}}, {{2}}] * W[{{2}}, {{1}}]"],
           reduce=1, init=f"{result}[{{0}}, {{1}}] = T.float32(0)")  # fmt: skip
    if follow:
        t.nest([m, n], ["C[{0}, {1}] = T.max(D[{0}, {1}], T.float32(0))"])


def rows(t: Text) -> None:
    """A reduction over rows: sum, product, or minimum."""
    m, n = t.rng.randint(2, 7), t.rng.randint(2, 7)
    t.param("A", (m, n)), t.param("C", (m,))
    form, start = t.rng.choice([
        ("C[{0}] + A[{0}, {1}]", "T.float32(0)"), ("C[{0}] * A[{0}, {1}]", "T.float32(1)"),
        ("T.min(C[{0}], A[{0}, {1}])", 'T.float32("inf")'),
    ])  # fmt: skip
    t.nest([m, n], [f"C[{{0}}] = {form}"], reduce=1, init=f"C[{{0}}] = {start}")


def scan(t: Text) -> None:
    """Each element from the one before: iterations that depend on each other."""
    n, step = t.rng.randint(4, 9), t.rng.randint(1, 2)
    t.param("A", (n,)), t.param("C", (n,))
    t.bare = True
    t.nest([step], ["C[{0}] = A[{0}]"])
    t.nest([n - step], [f"C[{{0}} + {step}] = C[{{0}}] + A[{{0}} + {step}]"])


def pieces(t: Text) -> None:
    """A buffer written in parts, in order or overlapping, then read."""
    n = t.rng.randint(4, 9)
    t.param("A", (n,)), t.param("C", (n,))
    t.alloc("S", (n,))
    cut = t.rng.randint(1, n - 1)
    t.nest([n], ["S[{0}] = T.float32(0)"])
    t.nest([n], ["S[{0}] = A[{0}] + T.float32(1)"], where=f"{{0}} < {cut}")
    if t.rng.random() < 0.5:
        t.nest([n], ["S[{0}] = A[{0}]"], where=f"{{0}} >= {cut - t.rng.randint(0, 1)}")
    t.nest([n], [t.rng.choice(["C[{0}] = S[{0}]", f"C[{{0}}] = S[{n - 1} - {{0}}]", "C[{0}] = S[{0}] * A[{0}]"])])


def adjacent(t: Text) -> None:
    """Two loops over the same range, with or without a dependence that a merge would break."""
    n, shift = t.rng.randint(3, 8), t.rng.choice([-1, 0, 0, 1])
    t.bare = True
    t.param("A", (n + 2,)), t.param("C", (n,))
    t.alloc("S", (n + 2,))
    t.nest([n + 2], ["S[{0}] = A[{0}]"])
    t.nest([n], ["S[{0} + 1] = A[{0} + 1] + T.float32(1)"])
    t.nest([n], [f"C[{{0}}] = S[{{0}} + {1 + shift}]"])


def guarded(t: Text) -> None:
    """Conditions on outer loops, elements that are written twice, and values that are there already."""
    m, n = t.rng.randint(2, 5), t.rng.randint(2, 6)
    t.bare = True
    t.param("A", (m, n)), t.param("C", (m, n))
    first = t.rng.choice(["T.float32(0)", "A[{0}, {1}]", "A[{0}, {1}] + T.float32(1)"])
    t.nest([m, n], [f"C[{{0}}, {{1}}] = {first}"])
    row, column = t.rng.randint(0, m - 1), t.rng.randint(0, n - 1)
    where = t.rng.choice([f"{{0}} >= {row}", f"{{0}} < {row + 1} and {{1}} < {column + 1}", f"{{1}} == {column}"])
    second = t.rng.choice(["T.float32(0)", "C[{0}, {1}]", "A[{0}, {1}] * T.float32(2)", "C[{0}, {1}] + A[{0}, {1}]"])
    t.nest([m, n], [f"C[{{0}}, {{1}}] = {second}"], where=where)


def repeated(t: Text) -> None:
    """A reduction whose points run several times, each round anew, or sums that grow with each round; then a reader."""
    t.bare = False
    m, n, again = t.rng.randint(2, 4), t.rng.randint(2, 4), t.rng.randint(2, 3)
    t.param("A", (m, n)), t.param("C", (m,))
    t.alloc("S", (m,))
    if t.rng.random() < 0.6:
        t.nest([m, n], ["S[{0}] = S[{0}] + A[{0}, {1}]"], reduce=1, init="S[{0}] = T.float32(0)", again=again)
    else:
        t.nest([m], ["S[{0}] = A[{0}, 0]"])
        t.nest([m], ["S[{0}] = S[{0}] + A[{0}, 1]"], again=again)
    if t.rng.random() < 0.6:
        t.nest([m], ["C[{0}] = S[{0}] * T.float32(2)"])
    else:
        t.nest([m], ["C[{0}] = A[{0}, 1]"])
        t.nest([m], ["C[{0}] = C[{0}] + S[{0}]"], again=t.rng.choice([0, again]))


def watching(t: Text) -> None:
    """Blocks that run, or find their place, by what others of them have stored."""
    t.bare = False
    n = t.rng.randint(2, 4)
    t.param("A", (n, n)), t.param("C", (n, n))
    t.nest([n, n], ["C[{0}, {1}] = T.float32(0)"])
    seen = t.rng.choice(["C[{1}, {0}]", f"C[{n - 1} - {{0}}, {{1}}]", "A[{1}, {0}]", "C[{0}, {1}]"])
    t.nest([n, n], ["C[{0}, {1}] = A[{0}, {1}] + T.float32(1)"], where=f"{seen} == T.float32(0)")


def viewed(t: Text) -> None:
    """Memory with two names: what is written by one is read by both."""
    t.bare = False
    n = t.rng.randint(4, 9)
    t.param("A", (n,)), t.param("C", (n,))
    t.alloc("S", (n,))
    t.nest([n], ["S[{0}] = A[{0}] * T.float32(2)"])
    t.lines.append(f'    V = T.decl_buffer(({n},), "float32", data=S.data)')
    t.nest([n], [t.rng.choice([f"C[{{0}}] = S[{{0}}] + V[{n - 1} - {{0}}]", "C[{0}] = V[{0}]", "V[{0}] = A[{0}]"])])
    t.nest([n], [f"C[{{0}}] = {t.rng.choice('SV')}[{{0}}] + T.float32(1)"])


def named(t: Text) -> None:
    """A value with a name of its own, read at several elements."""
    t.bare = False
    n = t.rng.randint(4, 9)
    t.param("A", (n + 1,)), t.param("C", (n,))
    t.alloc("S", (n + 1,))
    t.lines.insert(0, '    x = T.var("float32")')
    t.nest([n + 1], ["S[{0}] = T.Let(x * x + x, where={{x: A[{0}] + T.float32(1)}})"])
    t.nest([n], [t.rng.choice(["C[{0}] = S[{0}] + S[{0} + 1]", "C[{0}] = S[{0}] * S[{0}]", "C[{0}] = S[{0} + 1]"])])


FAMILIES = (
    *[elementwise] * 4, *[convolution] * 3, product, rows, scan, pieces, adjacent, guarded, repeated, watching, viewed,
    named,
)  # fmt: skip


def program(rng: random.Random) -> str:
    """The script text of a random program called ``main``."""
    text = Text(rng)
    rng.choice((*FAMILIES, *EDGES))(text)
    return text.script()
