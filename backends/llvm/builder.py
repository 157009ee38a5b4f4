"""Text of one LLVM function, with every index computed as far out as it can be.

A loop opens a scope with a *head*: instructions at the start of its body that depend on nothing
deeper.  Index arithmetic and addresses go to the head of the deepest loop whose variable they use
and are shared by everything below, which leaves LLVM nothing to hoist.  What is loaded from memory
is shared within straight-line code until a store to the same buffer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from math import gcd
from typing import Any

from ...ir import dtypes
from ...ir.expr import Buffer
from ..errors import CodegenError
from .index import INLINE, INT64_MAX, INT64_MIN, Atom, Lanes, Linear, Ramped, Terms, wrapped
from .known import Known
from .types import ModuleText, literal, memory_type, value_type, vector_literal

Value = Linear | Ramped | Lanes | bool | str
"""An int64 in its best form, a condition that is decided at generation time, or the text of an operand."""


def plain(name: str) -> str:
    """`name` with underscores for what LLVM's names may not hold unquoted."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


class _Scope:
    """The function, or one loop: where its own instructions go, and the values known there."""

    def __init__(self, depth: int, head: list[Any]) -> None:
        self.depth, self.head = depth, head
        self.known: dict[Hashable, Any] = {}


class Builder:
    """Emits instructions into blocks; knows scopes, atoms and addresses, but no expressions."""

    def __init__(self, module: ModuleText, name: str, parameters: Iterable[str]) -> None:
        self.module = module
        self.name = name
        self.parameters = list(parameters)
        self.entry: list[str] = []
        self.lines: list[Any] = []
        self.scopes = [_Scope(0, self._sublist())]
        self.pointers: dict[str, str] = {}
        self.alignments: dict[str, int] = {}
        self.tiles: set[str] = set()
        self.region: dict[Hashable, Any] = {}
        self.memory: dict[str, Known] = {}
        self.depths: dict[str, int] = {}
        self.held: dict[str, tuple[str, str, int]] = {}
        self.block = "entry"
        self._count = 0

    # --- text ---------------------------------------------------------------------------------

    def _sublist(self) -> list[Any]:
        part: list[Any] = []
        self.lines.append(part)
        return part

    def emit(self, text: str, into: list[Any] | None = None) -> str:
        """One instruction with a result; returns its name."""
        self._count += 1
        name = f"%v{self._count}"
        (self.lines if into is None else into).append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """One instruction without a result."""
        self.lines.append("  " + text)

    def label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def start(self, label: str) -> None:
        """Begin the block `label`."""
        self.lines.append(f"{label}:")
        self.block = label

    def allocate(self, buffer: Buffer) -> None:
        """Stack memory for `buffer`, aligned to 64 bytes."""
        kind = f"[{buffer.size} x {memory_type(buffer.dtype)}]"
        self.alignments[buffer.name] = 64
        self.pointers[buffer.name] = self.emit(f"alloca {kind}, align 64", self.entry)
        if buffer.scope == "local":
            self.tiles.add(buffer.name)

    def text(self, linkage: str, attributes: str) -> str:
        """The finished function."""
        body: list[str] = []
        stack: list[Any] = [self.lines]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                body.append(item)
            else:
                stack.extend(reversed(item))
        head = f"define {linkage} void @{self.name}({', '.join(self.parameters)}) {attributes} {{\nentry:"
        return "\n".join([head, *self.entry, *body, "  ret void", "}", ""])

    # --- control flow -------------------------------------------------------------------------

    @contextmanager
    def loop(
        self, begin: str, end: str, bounds: tuple[int, int], guarded: bool, written: set[str], name: str = ""
    ) -> Iterator[Linear]:
        """``for name in range(begin, end)``, tested at the end; `guarded` also tests before the first.

        `written` are the buffers that the body stores to; what was loaded from them is forgotten.
        """
        label, done = self.label(f"loop.{plain(name)}."), self.label("done")
        self.forget(written)
        region, memory = self.region, self.memory
        before = self.block
        if guarded:
            some = self.emit(f"icmp slt i64 {begin}, {end}")
            before = self.label("enter")
            self.do(f"br i1 {some}, label %{before}, label %{done}")
            self.start(before)
        self.do(f"br label %{label}")
        self.start(label)
        phi = self._sublist()
        self.scopes.append(_Scope(len(self.scopes), self._sublist()))
        self.region, self.memory = dict(region), {root: Known(known) for root, known in memory.items()}
        self._count += 1
        index = f"%i{self._count}"
        yield Linear(0, ((Atom(index, len(self.scopes) - 1, *bounds), 1),))
        step = self.emit(f"add nuw nsw i64 {index}, 1")
        phi.append(f"  {index} = phi i64 [ {begin}, %{before} ], [ {step}, %{self.block} ]")
        more = self.emit(f"icmp slt i64 {step}, {end}")
        self.do(f"br i1 {more}, label %{label}, label %{done}")
        self.start(done)
        self.scopes.pop()
        self.region, self.memory = region, memory

    def branch(self, cond: str, then: Callable[[], None], orelse: Callable[[], None] | None, written: set[str]) -> None:
        """``if cond: then() else: orelse()``."""
        yes, no, join = self.label("then"), self.label("else"), self.label("join")
        self.do(f"br i1 {cond}, label %{yes}, label %{no if orelse else join}")
        for label, side in ((yes, then), (no, orelse)):
            if side is None:
                continue
            self.start(label)
            with self._isolated():
                side()
            self.do(f"br label %{join}")
        self.start(join)
        self.forget(written)

    def choose(self, cond: str, then: Callable[[], str], orelse: Callable[[], str], kind: str) -> str:
        """The lazy value ``then() if cond else orelse()`` of LLVM type `kind`."""
        yes, no, join = self.label("then"), self.label("else"), self.label("join")
        self.do(f"br i1 {cond}, label %{yes}, label %{no}")
        incoming = []
        for label, side in ((yes, then), (no, orelse)):
            self.start(label)
            with self._isolated():
                value = side()
            incoming.append(f"[ {value}, %{self.block} ]")
            self.do(f"br label %{join}")
        self.start(join)
        return self.emit(f"phi {kind} {', '.join(incoming)}")

    @contextmanager
    def _isolated(self) -> Iterator[None]:
        """What becomes known inside does not outlive it, because it may not have run."""
        region, memory = self.region, self.memory
        self.region, self.memory = dict(region), {root: Known(known) for root, known in memory.items()}
        yield
        self.region, self.memory = region, memory

    def forget(self, written: set[str]) -> None:
        """Drop what is known about the contents of the buffers `written`."""
        if self.memory and written:
            self.memory = {root: known for root, known in self.memory.items() if root not in written}

    def known(self, root: str) -> Known:
        """What is known of the contents of a memory."""
        found = self.memory.get(root)
        if found is None:
            found = self.memory[root] = Known()
        return found

    def fence(self) -> None:
        """Forget loaded values, and make LLVM forget them.

        The fence has no instruction, but keeps the code generator from merging the loads.
        """
        self.memory = {root: known for root, known in self.memory.items() if root in self.tiles}
        self.region = {k: v for k, v in self.region.items() if not (isinstance(k, tuple) and k[0] == "splat")}
        self.do('fence syncscope("singlethread") seq_cst')

    # --- index values -------------------------------------------------------------------------

    def shared(self, key: Hashable, depth: int, make: Callable[[list[Any] | None], Any]) -> Any:
        """The value of `key`, made once at the head of the scope of that depth, or here if INLINE."""
        known = self.region if depth == INLINE else self.scopes[depth].known
        value = known.get(key)
        if value is None:
            value = known[key] = make(None if depth == INLINE else self.scopes[depth].head)
        return value

    def atom(self, key: Hashable, depth: int, bounds: tuple[int, int], *texts: str) -> Linear:
        """A pure int64 value computed by `texts`, each of which may name the previous results by ``{0}``, ``{1}``."""

        def make(into: list[Any] | None) -> Linear:
            names: list[str] = []
            for text in texts:
                names.append(self.emit(text.format(*names), into))
            return Linear(0, ((Atom(names[-1], depth, *bounds), 1),))

        value: Linear = self.shared(key, depth, make)
        return value

    def opaque(self, name: str, lo: int, hi: int) -> Linear:
        """The SSA value `name`, defined at this point, as a linear form."""
        return Linear(0, ((Atom(name, INLINE, lo, hi), 1),))

    def at_entry(self, value: Linear) -> Linear:
        """A value that was computed here, as one of the function where this is its first block.

        What is made of it later stands outside of loops.
        """
        atom = value.atom
        if self.block != "entry" or len(self.scopes) > 1 or atom is None:
            return value
        self.scopes[0].head = self._sublist()
        return Linear(0, ((Atom(atom.name, 0, atom.lo, atom.hi), 1),))

    def computed(self, name: str, dtype: str) -> Value:
        """A value that was computed; an int64 becomes an atom, so that index arithmetic on it folds."""
        return self.opaque(name, INT64_MIN, INT64_MAX) if dtype == dtypes.INDEX else name

    def materialise(self, value: Value, dtype: str) -> str:
        """`value` as the operand of an instruction on `dtype`."""
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return literal(value, dtype)
        if isinstance(value, Linear):
            scalar = self.scalar(value)
            return scalar if dtypes.lanes(dtype) == 1 else self.splat(scalar, dtype)
        if isinstance(value, Ramped):
            return self.vector(value)
        return self.gathered([self.scalar(v) for v in value.values], dtype)

    def gathered(self, scalars: list[str], dtype: str) -> str:
        """A vector of type `dtype` built from its lanes."""
        kind, one = value_type(dtype), value_type(dtypes.element(dtype))
        result = "poison"
        for lane, scalar in enumerate(scalars):
            result = self.emit(f"insertelement {kind} {result}, {one} {scalar}, i64 {lane}")
        return result

    def scalar(self, value: Linear) -> str:
        """The operand that holds `value`."""
        if value.is_const:
            return str(value.const)
        flag = " nsw" if value.bounded else ""
        name = self._sum(value.terms, flag)
        if value.const == 0:
            return name
        text = f"add{flag} i64 {name}, {value.const}"
        return str(self.shared(value, value.depth, lambda into: self.emit(text, into)))

    def _sum(self, terms: Terms, flag: str) -> str:
        """The sum of `terms`, outermost loops first, so that inner loops add to what outer ones computed."""
        name = ""
        ordered = sorted(terms, key=lambda item: (item[0].depth, item[0].number))
        for count, (atom, factor) in enumerate(ordered, 1):
            name = self._partial(name, tuple(ordered[:count]), atom, factor, flag)
        return name

    def _partial(self, before: str, key: Terms, atom: Atom, factor: int, flag: str) -> str:
        def make(into: list[Any] | None) -> str:
            term = atom.name if factor == 1 else self.emit(f"mul{flag} i64 {atom.name}, {wrapped(factor)}", into)
            return self.emit(f"add{flag} i64 {before}, {term}", into) if before else term

        return str(self.shared(("sum", key), atom.depth, make))

    def vector(self, value: Ramped) -> str:
        """The operand, a vector of int64, that holds a ramp."""
        kind = value_type(f"int64x{value.lanes}")
        if value.base.is_const and value.stride.is_const:
            return vector_literal(tuple(str(value.lane(n).const) for n in range(value.lanes)), "int64")
        steps = vector_literal(tuple(str(n) for n in range(value.lanes)), "int64")
        if value.stride != Linear(1):
            stride = self.splat(self.scalar(value.stride), f"int64x{value.lanes}")
            steps = self.emit(f"mul {kind} {stride}, {steps}")
        return self.emit(f"add {kind} {self.splat(self.scalar(value.base), f'int64x{value.lanes}')}, {steps}")

    def splat(self, scalar: str, dtype: str) -> str:
        """A vector of type `dtype` with `scalar` in every lane; shared in straight-line code."""
        base, count = dtypes.split_dtype(dtype)
        kind = value_type(base)
        if not scalar.startswith("%"):
            return vector_literal((scalar,) * count, base)
        key = ("splat", scalar, count)
        if key not in self.region:
            one = self.emit(f"insertelement <{count} x {kind}> poison, {kind} {scalar}, i64 0")
            lanes = f"<{count} x {kind}>"
            zero = f"<{count} x i32> zeroinitializer"
            self.region[key] = self.emit(f"shufflevector {lanes} {one}, {lanes} poison, {zero}")
        return str(self.region[key])

    def parameter(self, name: str, lo: int, hi: int) -> Linear:
        """The int64 argument `name` of the function as a linear form."""
        return Linear(0, ((Atom(name, 0, lo, hi), 1),))

    # --- addresses ----------------------------------------------------------------------------

    def root(self, buffer: Buffer) -> str:
        """The name under which the memory of `buffer` is known: its own, or of a view that of its `data`."""
        if buffer.memory in self.pointers:
            return buffer.memory
        raise CodegenError(f"buffer `{buffer.name}` is neither a parameter, a workspace nor allocated around its use")

    def address(self, buffer: Buffer, offset: Linear) -> str:
        """A pointer to the element at `offset`, computed loop by loop from the outside."""
        root, kind = self.root(buffer), memory_type(buffer.dtype)
        strides = tuple([term for term in offset.terms if term[0].depth == 0])
        if not strides or len(strides) == len(offset.terms):
            pointer = self._pointer(root, kind, offset) if offset.terms else self.pointers[root]
        else:
            rest = Linear(0, tuple([term for term in offset.terms if term[0].depth > 0]))
            pointer = self._strided(self._pointer(root, kind, rest), dtypes.nbytes(buffer.dtype), strides)
        return self._displaced(kind, pointer, offset.const) if offset.const else pointer

    def _strided(self, pointer: str, nbytes: int, strides: Terms) -> str:
        """A pointer moved by multiples of strides that are unknown, but the same in the whole function.

        ``pointer + ((3*w) << 1)`` for the sixth row: rows of a tile share a few multiples, and instructions shift them.
        """
        common = gcd(8, *[factor * nbytes for _, factor in strides])
        key = ("strided", self.block, pointer, strides)
        if key not in self.region:
            multiple = Linear(0, tuple([(atom, factor * nbytes // common) for atom, factor in strides]))
            index = self._sum(multiple.terms, " nsw" if multiple.bounded else "")
            if common > 1:
                index = self.emit(f"shl i64 {index}, {common.bit_length() - 1}")
            self.region[key] = self.emit(f"getelementptr i8, ptr {pointer}, i64 {index}")
        return str(self.region[key])

    def _pointer(self, root: str, kind: str, offset: Linear) -> str:
        """The address of `offset` without its constant."""
        depth = offset.depth
        if depth == INLINE:
            return self._steps(root, kind, offset)
        known, key = self.scopes[depth].known, ("pointer", self.pointers[root], kind, offset.terms)
        pointer = known.get(key)
        if pointer is None:
            pointer = known[key] = self._steps(root, kind, offset)
        return str(pointer)

    def _steps(self, root: str, kind: str, offset: Linear) -> str:
        pointer = self.pointers[root]
        groups: dict[int, list[tuple[Atom, int]]] = {}
        for atom, factor in offset.terms:
            groups.setdefault(atom.depth, []).append((atom, factor))
        done: Terms = ()
        for depth in sorted(groups):
            group = tuple(groups[depth])
            done += group
            pointer = self._step(root, kind, pointer, depth, group, done)
        return pointer

    def alignment(self, buffer: Buffer, offset: Linear) -> int:
        """The largest power of two, in bytes, that divides every address ``buffer + offset``."""
        element, count = dtypes.split_dtype(buffer.dtype)
        size = dtypes.nbytes(element)
        start = self.alignments.get(self.root(buffer), size)
        common = gcd(start, count * size * gcd(offset.const, *[factor for _, factor in offset.terms]))
        return common & -common

    def _step(self, root: str, kind: str, pointer: str, depth: int, group: Terms, done: Terms) -> str:
        def make(into: list[Any] | None) -> str:
            index = self._sum(group, " nsw" if Linear(0, group).bounded else "")
            return self.emit(f"getelementptr {kind}, ptr {pointer}, i64 {index}", into)

        return str(self.shared(("address", self.pointers[root], kind, done), depth, make))

    def _displaced(self, kind: str, pointer: str, displacement: int) -> str:
        key = ("displaced", kind, pointer, displacement)
        if key not in self.region:
            self.region[key] = self.emit(f"getelementptr {kind}, ptr {pointer}, i64 {displacement}")
        return str(self.region[key])
