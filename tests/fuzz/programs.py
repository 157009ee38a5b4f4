"""Small random programs worth scheduling, as script text: blocks and bare loops, producers and consumers."""

from __future__ import annotations

import random

from fuzz.edges import EDGES

AGAIN = 0.05
IDLE = 0.04
LONG = 0.08
HEAD = "@T.prim_func\ndef main({params}):\n"
RANGES = {f"int{n}": (-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (8, 16, 32, 64)}
RANGES |= {f"uint{n}": (0, 2**n - 1) for n in (8, 16, 32, 64)}
INTEGERS = tuple(RANGES)
INDICES = tuple(name for name in INTEGERS if name != "uint64")  # half of its numbers are no indices: it is for data
INDEX = "int64"
WRAPPING = {
    "int8": 50, "uint8": 90, "int16": 12000, "uint16": 22000, "int32": 1000000000, "uint32": 1500000000,
    "int64": 1000000000,
}  # fmt: skip
"""A factor by which an iterator leaves its type; that of the index type, in which iterators do not, keeps inside."""


class Text:
    """Lines of a function being written.

    `dtype` is the type of its data.  Iterators have the type `index` in arithmetic: where `typed`, loops and
    iterators have any types, and are cast to it.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.count = rng, 0
        self.lines: list[str] = []
        self.params: list[str] = []
        self.bare = rng.random() < 0.25
        self.dtype = "float32" if rng.random() < 0.5 else rng.choice(INTEGERS)
        self.typed = rng.random() < 0.5
        self.mixed = rng.random() < 0.5
        self.index = rng.choice(INDICES) if self.typed else INDEX

    @property
    def words(self) -> dict[str, str]:
        """What bodies name besides their axes: numbers of the data's type, its ends, and the factor of an index."""
        ends = ("-inf", "inf") if self.dtype == "float32" else RANGES[self.dtype]
        low, high = (f"T.{self.dtype}({f'{end}' if isinstance(end, int) else repr(end)})" for end in ends)
        numbers = {name: f"T.{self.dtype}({k})" for k, name in enumerate(("zero", "one", "two", "three"))}
        return numbers | {"least": low, "most": high, "factor": str(WRAPPING[self.index])}

    def fresh(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    def param(self, name: str, shape: tuple[int, ...], dtype: str = "") -> str:
        self.params.append(f'{name}: T.Buffer({shape!r}, "{dtype or self.dtype}")')
        return name

    def scalar(self, name: str, dtype: str = "") -> str:
        self.params.append(f"{name}: T.{dtype or self.dtype}")
        return name

    def alloc(self, name: str, shape: tuple[int, ...], dtype: str = "") -> str:
        self.lines.append(f'    {name} = T.alloc_buffer({shape!r}, "{dtype or self.dtype}")')
        return name

    def script(self) -> str:
        return HEAD.format(params=", ".join(self.params)) + "\n".join(self.lines) + "\n"

    def kind(self, extent: int) -> str:
        """A type for a loop or an iterator of this extent."""
        if not self.typed:
            return INDEX
        return self.rng.choice([k for k in INDICES if extent <= RANGES[k][1]]) if self.mixed else self.index

    def loop(self, depth: int, name: str, extent: int, kind: str) -> None:
        header = f"range({extent})" if kind == INDEX else f"T.serial(T.{kind}({extent}))"
        self.lines.append("    " * depth + f"for {name} in {header}:")

    def as_type(self, name: str, kind: str, wanted: str) -> str:
        return name if kind == wanted else f'T.Cast("{wanted}", {name})'

    def nest(
        self, extents: list[int], body: list[str], reduce: int = 0, init: str = "", where: str = "", again: int = 0
    ) -> None:
        """Loops with one statement: a block with iterators (the last `reduce` of them reductions), or bare.

        `body`, `init` and `where` name the axes ``{0}``, ``{1}``, ... and `words`.  A block's loops have one anywhere
        among them that runs it `again` so many times, and that no iterator knows; now and then without being asked for.
        """
        loops = [self.fresh("i") for _ in extents]
        kinds = [self.kind(extent) for extent in extents]
        if self.bare:
            self._bare(loops, extents, kinds, body, reduce, init, where)
            return
        around = list(zip(loops, extents, kinds, strict=True))
        again = again or (2 if self.rng.random() < AGAIN else 0)
        if again:
            around.insert(self.rng.randint(0, len(around)), (self.fresh("r"), again, self.kind(again)))
        depth = 1
        for name, extent, kind in around:
            self.loop(depth, name, extent, kind)
            depth += 1
        pad = "    " * (depth + 1)
        self.lines.append("    " * depth + f"with T.block({self.fresh('b')!r}):")
        axes, own = [f"v{loop}" for loop in loops], [self.kind(extent) for extent in extents]
        roles = ["spatial"] * (len(extents) - reduce) + ["reduce"] * reduce
        for axis, loop, extent, kind, type_, role in zip(axes, loops, extents, kinds, own, roles, strict=True):
            size = extent if type_ == INDEX else f"T.{type_}({extent})"
            self.lines.append(f"{pad}{axis} = T.axis.{role}({size}, {self.as_type(loop, kind, type_)})")
        outside = [self.as_type(loop, kind, self.index) for loop, kind in zip(loops, kinds, strict=True)]
        inside = [self.as_type(axis, kind, self.index) for axis, kind in zip(axes, own, strict=True)]
        if where:
            self.lines.append(f"{pad}T.where({where.format(*outside, **self.words)})")
        if init:
            self.lines += [f"{pad}with T.init():", f"{pad}    {init.format(*inside, **self.words)}"]
        self.lines += [pad + line.format(*inside, **self.words) for line in body]

    def _bare(
        self,
        loops: list[str],
        extents: list[int],
        kinds: list[str],
        body: list[str],
        reduce: int,
        init: str,
        where: str,
    ) -> None:
        depth = 1
        if self.rng.random() < 0.5:
            self.lines.append("    " * depth + f"with T.block({self.fresh('b')!r}):")
            depth += 1
        axes = [self.as_type(loop, kind, self.index) for loop, kind in zip(loops, kinds, strict=True)]
        if self.rng.random() < IDLE and not init:
            idle = self.fresh("z")
            self.loop(depth, idle, 0, self.kind(1))
            self.lines.append("    " * (depth + 1) + body[-1].format(*["0"] * len(axes), **self.words))
        for number, (loop, extent, kind) in enumerate(zip(loops, extents, kinds, strict=True)):
            if init and number == len(extents) - reduce:
                self.lines.append("    " * depth + init.format(*axes, **self.words))
            self.loop(depth, loop, extent, kind)
            depth += 1
        if where:
            self.lines.append("    " * depth + f"if {where.format(*axes, **self.words)}:")
            depth += 1
        self.lines += ["    " * depth + line.format(*axes, **self.words) for line in body]


def elementwise(t: Text) -> None:
    """Two or three stages, each a function of the one before at shifted or permuted indices, perhaps of other types."""
    rank = t.rng.choice([1, 1, 2])
    shape = tuple(t.rng.randint(3, 9) for _ in range(rank))
    if rank == 2 and t.rng.random() < LONG:
        shape = (3, t.rng.choice([43, 50, 100]))
    source, last = t.param("A", shape), t.dtype
    stages = t.rng.choice([1, 2, 2, 3, 3])
    for stage in range(stages):
        if t.rng.random() < 0.2:
            t.dtype = t.rng.choice(["float32", *INTEGERS])
        name = (t.param("C", shape) if stage == stages - 1 else t.alloc(f"T{stage}", shape))  # fmt: skip
        t.nest(list(shape), [_stage(t, name, t.as_type("{x}", last, t.dtype), source, shape)])
        source, last = name, t.dtype


def _stage(t: Text, name: str, value: str, source: str, shape: tuple[int, ...]) -> str:
    """A store of a function of `value`, where ``{x}`` stands for an element of `source`."""
    axes = ", ".join(f"{{{d}}}" for d in range(len(shape)))
    first = t.rng.choice(["{0} + 1", "{0} + 1", "{0} * {factor} + 1"])
    rolled = ", ".join([f"({first}) % {shape[0]}", *(f"{{{d}}}" for d in range(1, len(shape)))])
    forms = ["{x} * {two}", "{x} + {one}", "T.max({x}, {zero})", "T.if_then_else({0} < LAST, {x}, {three})"]
    forms += ['{x} + T.Cast("TYPE", {0} * {factor})', "{x} + {one} - SCALAR"]
    if t.dtype != "float32":
        forms += ["{x} // {two}", "({x} - {one}) % {three}", "T.if_then_else({x} + {one} > {x}, {x}, {most})"]
        forms += ["{x} * {three} // {three}", "T.max({x}, {x} + {one})", "{x} - {least}"]
        forms += ["T.shift_left({x}, {two})", "T.shift_right({x}, {one})", "T.bitwise_and({x}, {three})"]
    form, element = (t.rng.choice(forms), axes) if t.rng.random() < 0.85 else ("{x}", rolled)
    if "SCALAR" in form:
        form = form.replace("SCALAR", t.scalar(t.fresh("n")))
    form = form.replace("LAST", str(shape[0] - 1)).replace("TYPE", t.dtype)
    return f"{name}[{axes}] = {form.replace('{x}', value.replace('{x}', f'{source}[{element}]'))}"


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
            f"{padded}[{{0}}] = T.if_then_else({{0}} >= 1 and {{0}} < {size + 1}, {source}[{{0}} - 1], {{zero}})"
        ])  # fmt: skip
        source = padded
    index = f"{{0}} * {stride} + {{1}}" if stride > 1 else "{0} + {1}"
    if weights:
        body, start = f"{target}[{{0}}] = {target}[{{0}}] + {source}[{index}] * {weights}[{{1}}]", "{zero}"
    else:
        body = f"{target}[{{0}}] = T.max({target}[{{0}}], {source}[{index}])"
        start = "{least}"
    t.nest([n, k], [body], reduce=1, init=f"{target}[{{0}}] = {start}")


def product(t: Text) -> None:
    """A small matrix product, perhaps with something done to its result."""
    m, n, k = (t.rng.randint(2, 6) for _ in range(3))
    t.param("A", (m, k)), t.param("W", (k, n)), t.param("C", (m, n))
    follow = t.rng.random() < 0.4
    result = t.alloc("D", (m, n)) if follow else "C"
    t.nest([m, n, k], [f"{result}[{{0}}, {{1}}] = {result}[{{0}}, {{1}}] + A[{{0}}, {{2}}] * W[{{2}}, {{1}}]"],
           reduce=1, init=f"{result}[{{0}}, {{1}}] = {{zero}}")  # fmt: skip
    if follow:
        t.nest([m, n], ["C[{0}, {1}] = T.max(D[{0}, {1}], {zero})"])


def rows(t: Text) -> None:
    """A reduction over rows: sum, product, or minimum."""
    m, n = t.rng.randint(2, 7), t.rng.randint(2, 7)
    t.param("A", (m, n)), t.param("C", (m,))
    form, start = t.rng.choice([
        ("C[{0}] + A[{0}, {1}]", "{zero}"), ("C[{0}] * A[{0}, {1}]", "{one}"),
        ("T.min(C[{0}], A[{0}, {1}])", "{most}"),
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
    t.nest([n], ["S[{0}] = {zero}"])
    t.nest([n], ["S[{0}] = A[{0}] + {one}"], where=f"{{0}} < {cut}")
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
    t.nest([n], ["S[{0} + 1] = A[{0} + 1] + {one}"])
    t.nest([n], [f"C[{{0}}] = S[{{0}} + {1 + shift}]"])


def guarded(t: Text) -> None:
    """Conditions on outer loops, elements that are written twice, and values that are there already."""
    m, n = t.rng.randint(2, 5), t.rng.randint(2, 6)
    t.bare = True
    t.param("A", (m, n)), t.param("C", (m, n))
    first = t.rng.choice(["{zero}", "A[{0}, {1}]", "A[{0}, {1}] + {one}"])
    t.nest([m, n], [f"C[{{0}}, {{1}}] = {first}"])
    row, column = t.rng.randint(0, m - 1), t.rng.randint(0, n - 1)
    where = t.rng.choice([
        f"{{0}} >= {row}", f"{{0}} < {row + 1} and {{1}} < {column + 1}", f"{{1}} == {column}", "{0} < m", "m <= {1}",
    ])  # fmt: skip
    if "m" in where:
        t.scalar("m", t.index)
    second = t.rng.choice(["{zero}", "C[{0}, {1}]", "A[{0}, {1}] * {two}", "C[{0}, {1}] + A[{0}, {1}]"])
    t.nest([m, n], [f"C[{{0}}, {{1}}] = {second}"], where=where)


def repeated(t: Text) -> None:
    """A reduction whose points run several times, each round anew, or sums that grow with each round; then a reader."""
    t.bare = False
    m, n, again = t.rng.randint(2, 4), t.rng.randint(2, 4), t.rng.randint(2, 3)
    t.param("A", (m, n)), t.param("C", (m,))
    t.alloc("S", (m,))
    if t.rng.random() < 0.6:
        t.nest([m, n], ["S[{0}] = S[{0}] + A[{0}, {1}]"], reduce=1, init="S[{0}] = {zero}", again=again)
    else:
        t.nest([m], ["S[{0}] = A[{0}, 0]"])
        t.nest([m], ["S[{0}] = S[{0}] + A[{0}, 1]"], again=again)
    if t.rng.random() < 0.6:
        t.nest([m], ["C[{0}] = S[{0}] * {two}"])
    else:
        t.nest([m], ["C[{0}] = A[{0}, 1]"])
        t.nest([m], ["C[{0}] = C[{0}] + S[{0}]"], again=t.rng.choice([0, again]))


def watching(t: Text) -> None:
    """Blocks that run, or find their place, by what others of them have stored."""
    t.bare = False
    n = t.rng.randint(2, 4)
    t.param("A", (n, n)), t.param("C", (n, n))
    t.nest([n, n], ["C[{0}, {1}] = {zero}"])
    seen = t.rng.choice(["C[{1}, {0}]", f"C[{n - 1} - {{0}}, {{1}}]", "A[{1}, {0}]", "C[{0}, {1}]"])
    t.nest([n, n], ["C[{0}, {1}] = A[{0}, {1}] + {one}"], where=f"{seen} == {{zero}}")


def viewed(t: Text) -> None:
    """Memory with two names: what is written by one is read by both."""
    t.bare = False
    n = t.rng.randint(4, 9)
    t.param("A", (n,)), t.param("C", (n,))
    t.alloc("S", (n,))
    t.nest([n], ["S[{0}] = A[{0}] * {two}"])
    t.lines.append(f'    V = T.decl_buffer(({n},), "{t.dtype}", data=S.data)')
    t.nest([n], [t.rng.choice([f"C[{{0}}] = S[{{0}}] + V[{n - 1} - {{0}}]", "C[{0}] = V[{0}]", "V[{0}] = A[{0}]"])])
    t.nest([n], [f"C[{{0}}] = {t.rng.choice('SV')}[{{0}}] + {{one}}"])


def named(t: Text) -> None:
    """A value with a name of its own, read at several elements."""
    t.bare = False
    n = t.rng.randint(4, 9)
    t.param("A", (n + 1,)), t.param("C", (n,))
    t.alloc("S", (n + 1,))
    t.lines.insert(0, f'    x = T.var("{t.dtype}")')
    t.nest([n + 1], ["S[{0}] = T.Let(x * x + x, where={{x: A[{0}] + {one}}})"])
    t.nest([n], [t.rng.choice(["C[{0}] = S[{0}] + S[{0} + 1]", "C[{0}] = S[{0}] * S[{0}]", "C[{0}] = S[{0} + 1]"])])


def triangle(t: Text) -> None:
    """Rows that are longer the further down they are, or as long as an argument says."""
    n = t.rng.randint(2, 6)
    t.param("A", (n, n)), t.param("C", (n,))
    kind = t.kind(n)
    longest = n if t.rng.random() < 0.7 else t.scalar("m", kind)
    t.loop(1, "i", n, kind)
    inner = t.rng.choice(["i + 1", "i // 2", f"T.min(i + 1, {longest})", f"T.max(T.min({longest}, {n}), 0)"])
    t.lines.append("        C[i] = {zero}".format(**t.words))
    t.lines.append(f'        for j in T.serial({inner}, dtype="{kind}"):')
    t.lines.append("            C[i] = " + t.rng.choice(["C[i] + A[i, j]", "A[i, j]"]))


def spread(t: Text) -> None:
    """Sums over an input that was spread by zeros, as a transposed convolution has it."""
    t.bare = False
    n, k, step = t.rng.randint(2, 6), t.rng.randint(1, 4), t.rng.randint(2, 3)
    t.param("A", ((n + k) // step + 1,)), t.param("W", (k,)), t.param("C", (n,))
    chosen = f"T.if_then_else(({{0}} + {{1}}) % {step} == 0, A[({{0}} + {{1}}) // {step}], {{zero}})"
    t.nest([n, k], [f"C[{{0}}] = C[{{0}}] + {chosen} * W[{{1}}]"], reduce=1, init="C[{0}] = {zero}")


FAMILIES = (
    *[elementwise] * 4, *[convolution] * 3, product, rows, scan, pieces, adjacent, guarded, repeated, watching, viewed,
    named, spread, triangle,
)  # fmt: skip


def program(rng: random.Random) -> str:
    """The script text of a random program called ``main``."""
    text = Text(rng)
    rng.choice((*FAMILIES, *EDGES))(text)
    return text.script()
