"""What the design space of a program must hold, stated apart from the code that makes it.

A test describes a program's anchors: their axes of more than one point under their canonical names, and
the inputs that they read.  `TABLE` has a row for every kind of decision, with the decisions that an anchor has
of it and the labels of their alternatives.  **A decision that the rules gain needs a row here**, and one
whose alternatives change needs its row changed; nothing else in the tests of spaces lists alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from math import ceil, prod

from stridesmith.ir.target import BYTE_DOTS, Target

LANES = 8
LINE = 16
CPU = Target(kind="cpu", vector_bits=32 * LANES, registers=16, threads=2)
OPENCL = Target(
    kind="opencl", vector_bits=32 * LANES, registers=16, threads=2, max_work_group=64, local_bytes=1 << 16,
    images=True, image_width=8192, image_height=8192, image_args=8, image_types="float32",
)  # fmt: skip

DOTS = replace(OPENCL, features=BYTE_DOTS)
SIZES = (4, 8, 16)
SUBGROUPS = replace(OPENCL, subgroups="16 8 4")

Labels = tuple[str, ...]
Found = Iterator[tuple[str, Labels]]


@dataclass(frozen=True)
class Input:
    """A buffer that an anchor reads: where it comes from, and each index as ``"s0, s1*2 + r0"``.

    Sources: ``fixed``, ``constant``, ``free`` parameters; ``stage``, computed element by element for this anchor;
    ``padded``, such a stage with a condition in it; ``between``, the result of another anchor.  `padding` are the axes
    along which 30 % of all steps or more meet nothing but padding.
    """

    source: str
    index: str
    factor: bool = True
    padding: Labels = ()

    @property
    def dims(self) -> list[dict[str, int]]:
        """For each dimension the step of every axis in it."""
        return [{a: int(c or 1) for t in d.split("+") for a, _, c in [t.strip().partition("*")]} for d in self.commas]

    @property
    def commas(self) -> list[str]:
        return self.index.split(",")

    def dim(self, axis: str) -> int | None:
        """The dimension whose index is the axis and nothing else."""
        return next((k for k, steps in enumerate(self.dims) if steps == {axis: 1}), None)

    def uses(self, axis: str) -> bool:
        return any(axis in steps for steps in self.dims)


@dataclass(frozen=True)
class Anchor:
    """A block that is scheduled in its own right; `neutral` labels what its reduction starts from.

    `epilogue` says whether an element-wise block goes with it, `chunk` whether it runs on a chunk of the rows s0
    and `leads` whether as the first one, `bytes` whether it adds products of int8 to an int32.
    """

    spatial: Mapping[str, int]
    reduce: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, Input] = field(default_factory=dict)
    neutral: str = ""
    epilogue: bool = False
    chunk: bool = False
    leads: bool = False
    bytes: bool = False


@dataclass(frozen=True)
class Structure:
    """An anchor whose axis `vec` runs in vector lanes and whose axis `row`, if any, in the rows of the tile.

    Four steps of `dot`, if it is an axis, are one dot product of bytes.  In a `subgroup` work-items are in the place of
    lanes.
    """

    anchor: Anchor
    vec: str
    row: str | None
    target: Target
    dot: str | None = None
    subgroup: bool = False

    @property
    def name(self) -> str:
        """As sketches are called."""
        words = [f"vec={self.vec}", *(f"{key}={axis}" for key in ("row", "dot") if (axis := getattr(self, key)))]
        return ",".join([*words, *(["subgroup"] if self.subgroup else [])])

    @property
    def line(self) -> int:
        """Elements of a cache line."""
        return 4 * LINE if self.anchor.bytes else LINE


def structures(anchor: Anchor, target: Target) -> list[Structure]:
    """Each spatial axis in lanes with each other as rows; then each long reduction that all inputs have in unit stride.

    A reduction is long if it fills two vectors; it is then cut into independent parts.  The rows of a chunk are
    never in the lanes.  Then those in whose lanes is a spatial axis with dot products, where there are any, and those
    of long reductions in subgroups.
    """
    pairs: list[tuple[str, str | None]] = []
    for vec in anchor.spatial:
        pairs += [(vec, row) for row in anchor.spatial if row != vec] or [(vec, None)]
    for vec, extent in anchor.reduce.items():
        readers = [i for i in anchor.inputs.values() if i.uses(vec)]
        if extent >= 2 * LANES and all(i.dims[-1] == {vec: 1} for i in readers):
            pairs += [(vec, row) for row in anchor.spatial] or [(vec, None)]
    pairs = [pair for pair in pairs if pair[0] != "s0" or not anchor.chunk]
    found = [Structure(anchor, vec, row, target) for vec, row in pairs]
    dot = dot_axis(anchor, target)
    found += [replace(s, dot=dot) for s in found if dot and s.vec in anchor.spatial]
    offered = target.subgroups and anchor.neutral in ("0", "-inf", "inf") and anchor.spatial and not anchor.chunk
    return found + [replace(s, subgroup=True) for s in found if offered and s.vec in anchor.reduce]


def subgroup(s: Structure) -> Found:
    """Off or on, as the sketch has it, of an anchor that has both: of several sums, minima or maxima; off in chunks."""
    if (s.anchor.chunk and s.target.subgroups) or any(other.subgroup for other in structures(s.anchor, s.target)):
        yield "subgroup", ("on" if s.subgroup else "off",)


def dot_axis(anchor: Anchor, target: Target) -> str | None:
    """The longest reduction, of more than two steps, with a dimension of its own in both factors of bytes."""
    own = [a for a in anchor.reduce if all(i.dim(a) is not None for i in anchor.inputs.values() if i.factor)]
    longest = max(own, key=lambda a: anchor.reduce[a], default=None)
    offered = BYTE_DOTS in target.features.split() and anchor.bytes
    return longest if offered and longest is not None and anchor.reduce[longest] > 2 else None


def dot(s: Structure) -> Found:
    """Off or four steps, as the sketch has it, so that its name chooses among sketches."""
    if dot_axis(s.anchor, s.target):
        yield "dot", ("4",) if s.dot else ("off",)


def tile(s: Structure) -> Found:
    """Vectors times lanes, or points whose lanes are decided apart; rows; a few points of every other axis; reductions
    unrolled."""
    vectors = [v for v in (1, 2, 3, 4, 6, 8) if _fits(s, v)]
    halves = [v for v in (1, 3) if v == 1 or v * LANES // 2 <= extent(s, s.vec)]
    if s.target.kind == "cpu":
        yield s.vec, (*(f"{v}x{LANES}" for v in vectors), *(f"{v}x{LANES // 2}" for v in halves))
    elif s.subgroup:
        yield s.vec, texts(sorted({v * n for v in (1, 2, 4) for n in SIZES if v * n < extent(s, s.vec)}))
    else:
        sizes = {v * LANES for v in vectors} | {v * LANES // 2 for v in halves}
        yield s.vec, texts(sorted(sizes))
    for axis, size in s.anchor.spatial.items():
        rows = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 28) if axis == s.row else (1, 2, 3, 4)
        if axis != s.vec:
            yield axis, texts(r for r in rows if r <= size)
    for axis, size in s.anchor.reduce.items():
        whole = [size] if size <= 11 and size not in (1, 2, 4, 8) else []
        if axis != s.vec:
            steps = [u for u in (1, 2, 4, 8) if u <= size] + whole
            yield axis, texts([u for u in steps if u % 4 == 0] or [4]) if axis == s.dot else texts(steps)


def _fits(s: Structure, vectors: int) -> bool:
    """The last vector begins inside of a spatial axis; in a reduction a tile is less than the axis."""
    beyond = -1 if s.vec in s.anchor.reduce else LANES - 1
    return vectors * LANES <= extent(s, s.vec) + beyond


def block(s: Structure) -> Found:
    """Tiles that follow each other along the rows; along the vectors of a reduction that has no rows, on a CPU.

    There a block is longer: of as many tiles as there may be, the smallest of which is half a vector.
    """
    if s.row and extent(s, s.row) >= 4:
        yield f"{s.row}:block", texts(b for b in (1, 2, 4, 8, 16) if b <= extent(s, s.row))
    if _has_strips(s):
        most = extent(s, s.vec) // (LANES // 2)
        yield f"{s.vec}:block", texts(b for b in (1, 2, 4, 8, 16, 32, 64, 128) if b <= most)


def _has_strips(s: Structure) -> bool:
    """Whether blocks run along the vectors: a block of two is possible, and another one can follow it."""
    plain = s.row is None and bool(s.anchor.reduce) and s.vec in s.anchor.spatial and s.target.is_cpu_device
    return plain and extent(s, s.vec) >= 4 * (LANES // 2)


def panel(s: Structure) -> Found:
    """The longest reduction whole, or in up to 64 equal panels of 4 steps or more, around tiles along two axes.

    Along a single axis, around blocks, equal panels of 4 to 64 steps, of seven lengths at most.  Not one that is in
    the lanes.
    """
    if s.anchor.reduce and s.vec not in s.anchor.reduce and (len(s.anchor.spatial) > 1 or _has_strips(s)):
        axis = max(s.anchor.reduce, key=lambda a: s.anchor.reduce[a])
        size = s.anchor.reduce[axis]
        sizes = [size // n for n in range(2, size) if size % n == 0 and size // n >= 4]
        if len(s.anchor.spatial) > 1:
            sizes = [p for p in sizes if size // p <= 64]
        else:
            sizes = [p for p in sizes if p <= 64]
            assert len(sizes) < 8, "of more lengths some are taken: see stream_sizes"
        if sizes:
            yield f"{axis}:panel", ("whole", *texts(sizes))


def rows(s: Structure) -> Found:
    """Rows along the row axis, or along it and the next outer one of the result: inputs use both or neither."""
    shared = s.target.is_cpu_device and not s.anchor.chunk
    if shared and s.row is not None and s.anchor.reduce and s.vec in s.anchor.spatial:
        outer = f"s{int(s.row[1:]) - 1}"
        alike = all(i.uses(outer) == i.uses(s.row) for i in s.anchor.inputs.values())
        if outer in s.anchor.spatial and outer != s.vec and alike:
            yield f"{s.row}:rows", (s.row, f"{outer}*{s.row}")


def boundary(s: Structure) -> Found:
    """Every tiled axis is branched around or peeled; overcompute needs a reduction and known inputs.

    Over a reduction's own edge a factor must have a dimension of its own, which then holds the neutral value.  The
    items of a subgroup, each with an edge of its own, are not peeled.  The CPU of these tests has no masks; OpenCL has
    them on the device that a CPU is, for lanes of 32 bits.
    """
    inputs = s.anchor.inputs.values()
    for axis in (*s.anchor.spatial, *s.anchor.reduce):
        over = bool(s.anchor.reduce) and all(i.source != "between" for i in inputs if i.uses(axis))
        if axis in s.anchor.reduce:
            over &= any(i.factor and i.dim(axis) is not None for i in inputs)
        peel = [] if s.subgroup and axis == s.vec else ["peel"]
        mask = s.target.kind == "opencl" and axis == s.vec and axis in s.anchor.spatial and not s.anchor.bytes
        yield axis, ("branch", *peel, *(["overcompute"] if over else []), *(["mask"] if mask else []))


def order(s: Structure) -> Found:
    """The loops outside the tile in every order, the reductions in every rotation."""
    yield "order", tuple(">".join(p) for p in permutations(s.anchor.spatial))
    loops = list(s.anchor.reduce)
    yield "order:reduce", tuple(">".join(loops[k:] + loops[:k]) for k in range(len(loops)))


def parallel(s: Structure) -> Found:
    """How many outer loops are shared between threads; those of a chunk are not."""
    yield "parallel", texts(range(1, 2 if s.anchor.chunk else len(s.anchor.spatial) + 1))


def threads(s: Structure) -> Found:
    """On a CPU, where each thread has at most 2 ** 15 vectors of points, or 2 ** 17 of an OpenCL device: fewer threads.

    In a chunk nobody decides, or on an OpenCL device the first anchor for all.
    """
    points = prod((*s.anchor.spatial.values(), *s.anchor.reduce.values()))
    decides = s.target.is_cpu_device and (not s.anchor.chunk or (s.anchor.leads and s.target.kind == "opencl"))
    steps = 2**17 if s.target.kind == "opencl" else 2**15
    if decides and not s.subgroup and points <= steps * LANES * s.target.threads:
        yield "threads", ("2", "1")


def vector(s: Structure) -> Found:
    """On a device: lanes of a vector, from half a register to two, the axis over half full; items of a subgroup."""
    if s.subgroup:
        yield s.vec, texts(n for n in SIZES if n < extent(s, s.vec))
    elif s.target.kind == "opencl":
        yield s.vec, texts(w for w in (LANES // 2, LANES, 2 * LANES) if w < 2 * extent(s, s.vec))


def work_group(s: Structure) -> Found:
    """Runs of the shared loops, and grids of tiles along the vectors and the rows, of up to 32 items on a CPU."""
    if s.target.kind == "opencl" and not s.anchor.chunk:
        runs = texts(w for w in (1, 2, 4, 8, 16, 32))
        sides = (1, 2, 4, 8)
        across = [x for x in sides if x <= extent(s, s.vec)] if s.vec in s.anchor.spatial else [1]
        along = [y for y in sides if y <= extent(s, s.row)] if s.row else [1]
        yield "work_group", (*runs, *(f"{x}x{y}" for x in across for y in along if 1 < x * y <= 32))


def image(s: Structure) -> Found:
    """On a device: texture memory, here of float32, for inputs of two dimensions or more that the search lays out."""
    if s.target.kind == "opencl":
        for name, item in s.anchor.inputs.items():
            if item.source != "between" and len(item.dims) > 1 and not s.anchor.bytes:
                yield name, ("buffer", "image2d")


def local(s: Structure) -> Found:
    """On a device: local memory for the inputs of a reduction whose items hold parts of the result."""
    if s.target.kind == "opencl" and s.anchor.reduce and s.vec in s.anchor.spatial:
        for name, item in s.anchor.inputs.items():
            if item.source != "between" and not (s.dot and item.factor):
                yield name, ("global", "local")


def layouts(s: Structure, item: Input) -> Labels:
    """The identity, and what follows from how an input is read.

    What the lanes do not index is read element by element from many places, which blocks of a cache line or two,
    or a line more in each row, keep apart.  Of a dot product four steps are neighbours.
    """
    if item.source == "between":
        return ("identity",)
    found = ["identity"] + ["copy"] * (item.source == "fixed")
    for axis in (s.vec, s.row):
        if axis in s.anchor.spatial and item.dim(axis) is not None:
            found.append(f"tiled:d{item.dim(axis)}")
    found += [f"phase:d{k}" for k, steps in enumerate(item.dims) if 1 < steps.get(s.vec, 1) <= LANES]
    plain = [(size, item.dim(axis)) for axis, size in s.anchor.reduce.items() if item.dim(axis) is not None]
    longest, last = max(plain, default=(0, None))
    found += [f"last:d{last}"] if last not in (None, len(item.dims) - 1) else []
    if not item.uses(s.vec):
        found += [f"blocked:d{last}:{size}" for size in (s.line, 2 * s.line) if longest >= 2 * s.line]
        length = 1 + sum(step * (extent(s, axis) - 1) for axis, step in item.dims[-1].items())
        found += ["pitched"] * (length % s.line == 0 and length >= 4 * s.line)
    return _in_words(s, item, found) if s.dot and item.factor else tuple(found)


def _in_words(s: Structure, item: Input, found: list[str]) -> Labels:
    """The layouts along whose last dimension a dot product runs, and those that cut four of its steps off."""
    dim = item.dim(s.dot or "")
    as_it_is = ("identity", "copy", "pitched") if dim == len(item.dims) - 1 else ()
    kept = [label for label in found if label in as_it_is or label.startswith((f"last:d{dim}", f"blocked:d{dim}:"))]
    tiled = [f":d{item.dim(axis)}" for axis in (s.vec, s.row) if axis and item.dim(axis) is not None]
    return (*kept, *(f"packed4:d{dim}{tile}" for tile in ("", *tiled)))


def layout(s: Structure) -> Found:
    """The layout of each input."""
    for name, item in s.anchor.inputs.items():
        yield name, layouts(s, item)


def pad(s: Structure) -> Found:
    """What padding holds, of each input that is laid out and may be read past an edge that is computed over.

    Nothing, anything, or what the reduction starts from.
    """
    over = [axis for axis, labels in boundary(s) if "overcompute" in labels]
    for name, item in s.anchor.inputs.items():
        laid_out = item.source in ("stage", "padded", "constant", "free") or len(layouts(s, item)) > 1
        if laid_out and any(item.uses(axis) for axis in over):
            yield name, ("none", "undef", s.anchor.neutral)


def place(s: Structure) -> Found:
    """Where a stage, or the copy of a fixed argument, is computed; a stage with a condition is rather stored."""
    inner = ["inner"] if s.target.is_cpu_device and not s.subgroup else []
    for name, item in s.anchor.inputs.items():
        if item.source == "fixed" and len(layouts(s, item)) > 1:
            yield name, ("root", *inner)
        if item.source in ("stage", "padded"):
            if s.dot and item.factor:
                yield name, ("root", *inner)
                continue
            yield name, (*(("root", "inline") if item.source == "padded" else ("inline", "root")), *inner)


def taps(s: Structure) -> Found:
    """On a CPU, where much of what a sum reads is padding along another axis than the vectors': leave that out."""
    axes = {axis for item in s.anchor.inputs.values() for axis in item.padding}
    if s.target.kind == "cpu" and s.vec in s.anchor.spatial and axes - {s.vec}:
        yield "taps", ("all", "with data")


TABLE: tuple[tuple[str, str, Callable[[Structure], Found]], ...] = (
    ("tile:{}", "tile", tile),
    ("tile:{}", "tile", block),
    ("tile:{}", "tile", panel),
    ("tile:{}", "tile", rows),
    ("boundary:{}", "boundary", boundary),
    ("{}", "choice", taps),
    ("{}", "order", order),
    ("{}", "parallel", parallel),
    ("{}", "parallel", threads),
    ("vector:{}", "vector", vector),
    ("{}", "vector", dot),
    ("{}", "vector", subgroup),
    ("{}", "work_group", work_group),
    ("image:{}", "memory", image),
    ("local:{}", "memory", local),
    ("layout:{}", "layout", layout),
    ("pad:{}", "pad_value", pad),
    ("place:{}", "place", place),
)
"""Name of a decision, its kind, and the decisions of the row.

But for tiles and vectors, a decision with a single alternative is none.
"""


def expected(anchors: Mapping[str, Anchor], target: Target) -> dict[str, dict[str, tuple[str, Labels]]]:
    """By sketch: each decision's kind and labels under its name.  `anchors` are those of a program, in its order."""
    found = _sketches("", anchors, target)
    first = next(iter(anchors))
    for size in chunks(anchors, target):
        parts = {name: _in_chunks(anchor, size, name == first) for name, anchor in anchors.items()}
        found |= _sketches(f"rows={size};", parts, target)
    return found


def chunks(anchors: Mapping[str, Anchor], target: Target) -> list[int]:
    """Rows of the chunks in which all stages may run together: powers of two, or the nearest divisor of the rows.

    On CPUs, where stages have the same rows and nothing goes with them that is no stage; no thread has a third more
    rows than its share.
    """
    rows = {a.spatial.get("s0", 1) for a in anchors.values()}
    apart = any(i.source in ("stage", "padded") for a in anchors.values() for i in a.inputs.values())
    if not target.is_cpu_device or len(anchors) < 2 or len(rows) > 1 or apart:
        return []
    (extent,) = rows
    sizes: dict[int, None] = {}
    for power in (1, 2, 4, 8, 16, 32):
        near = [d for d in range(1, extent) if extent % d == 0 and 0.5 < (d / power) ** 2 < 2]
        size = min(near, key=lambda d: (abs(d - power), d)) if near else power
        turns = ceil(ceil(extent / size) / target.threads)
        if extent // power >= max(2, target.threads) and turns * size * target.threads <= 1.35 * extent:
            sizes[size] = None
    return list(sizes)


def _in_chunks(anchor: Anchor, size: int, leads: bool) -> Anchor:
    """The anchor with the rows of a chunk, whose inputs lie as they do."""
    spatial = {name: size if name == "s0" else e for name, e in anchor.spatial.items() if name != "s0" or size > 1}
    inputs = {name: replace(item, source="between") for name, item in anchor.inputs.items()}
    return replace(anchor, spatial=spatial, inputs=inputs, chunk=True, leads=leads)


def _sketches(prefix: str, anchors: Mapping[str, Anchor], target: Target) -> dict[str, dict[str, tuple[str, Labels]]]:
    """The sketches of anchors in every combination of their structures."""
    found = {}
    for combination in product(*(structures(anchor, target) for anchor in anchors.values())):
        names = [f"{a}:{s.name}" if len(anchors) > 1 else s.name for a, s in zip(anchors, combination, strict=True)]
        sketch = prefix + ";".join(names)
        decisions = {}
        for anchor, structure in zip(anchors, combination, strict=True):
            for name, kind, row in TABLE:
                for what, labels in row(structure):
                    is_told = kind in ("tile", "vector") or (kind == "layout" and labels != ("identity",))
                    if len(labels) > 1 or is_told:
                        decisions[f"{sketch}/{anchor}/{name.format(what)}"] = (kind, labels)
        found[sketch] = decisions
    return found


def extent(s: Structure, axis: str) -> int:
    """The points along an axis."""
    return {**s.anchor.spatial, **s.anchor.reduce}[axis]


def texts(numbers: Iterator[int] | list[int] | range) -> Labels:
    return tuple(str(n) for n in numbers)
