"""Programs run one statement at a time, with poison: the judge of rewrites.

A program becomes Python code that checks every access and follows the language
to the letter, independently of `ir.interpreter`:

- an access outside of its buffer, a read of what was never written, and any access
  of padding that holds nothing is `Misuse`; so is an assumption that is false;
- undef reads as the poison of the run (NaN, or a large number), which nothing may be decided by (`poison`);
- integers of every type wrap around, int64 too; a float becomes the nearest integer towards zero
  that the type holds, and NaN 0;
- iterations of concurrent loops run in a random order, and two of them that meet in
  an element, one writing, are `Misuse`.  An allocation that every iteration fills for
  itself is allowed, since lowering gives each its own; what it holds is lost afterwards.
"""

from __future__ import annotations

import math
import operator
import random
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

from fuzz.poison import Poison, Undecided, lifted, logic, plain

from stridesmith.ir.dtypes import is_float, is_int
from stridesmith.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Load,
    Not,
    Select,
    Undef,
    Var,
)
from stridesmith.ir.layout.index_map import IndexMap
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.layout.pad_value import PadValue
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import (
    Allocate,
    Assume,
    Block,
    Declare,
    Evaluate,
    For,
    If,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    written_buffers,
)

Point = tuple[int, ...]
Values = dict[Point, Any]
CONCURRENT = ("parallel", "vectorized", "thread_binding")
EMPTY, FORBIDDEN, HELD = range(3)


class Misuse(Exception):
    """The program does what the language does not allow."""


class Cells:
    """The elements of one buffer, and who touched them in the concurrent loops around."""

    def __init__(self, buffer: Buffer, machine: Machine, own: bool) -> None:
        self.name, self.shape, self.machine, self.own = buffer.name, buffer.shape, machine, own
        self.value: dict[Point, Any] = {}
        self.forbidden: frozenset[Point] = frozenset()
        self.born = len(machine.turns)

    def check(self, point: Point, verb: str) -> None:
        if not all(0 <= p < e for p, e in zip(point, self.shape, strict=True)):
            raise Misuse(f"{verb} {self.name}{list(point)} of shape {list(self.shape)}")
        if point in self.forbidden:
            raise Misuse(f"{verb} padding {self.name}{list(point)}, which holds nothing")

    def load(self, *point: int) -> Any:
        self.check(point, "reads")
        if point not in self.value:
            raise Misuse(f"reads {self.name}{list(point)}, which nothing has written")
        for turn in self.machine.turns[self.born :]:
            turn.read(self, point)
        return self.value[point]

    def store(self, *point: int, value: Any) -> None:
        self.check(point, "writes")
        for turn in self.machine.turns[self.born :]:
            turn.write(self, point)
        self.value[point] = value


class Turn:
    """One concurrent loop at work: which iteration last wrote and who read each element."""

    def __init__(self) -> None:
        self.now = -1
        self.writers: dict[tuple[Cells, Point], set[int]] = {}
        self.readers: dict[tuple[Cells, Point], set[int]] = {}

    def read(self, cells: Cells, point: Point) -> None:
        writers = self.writers.get((cells, point), set())
        if writers - {self.now} and not (cells.own and self.now in writers):
            raise Misuse(f"iterations {min(writers)} and {self.now} of a concurrent loop meet in {cells.name}{point}")
        if self.now not in writers:  # what an iteration wrote itself is its own
            self.readers.setdefault((cells, point), set()).add(self.now)

    def write(self, cells: Cells, point: Point) -> None:
        others = self.readers.get((cells, point), set()) - {self.now}
        writers = self.writers.setdefault((cells, point), set())
        if others or (not cells.own and writers - {self.now}):
            raise Misuse(f"iterations of a concurrent loop meet in {cells.name}{point}")
        writers.add(self.now)

    def finish(self) -> None:
        for (cells, point), writers in self.writers.items():
            if len(writers) > 1:
                cells.value.pop(point, None)


class Machine:
    """One run of one program."""

    def __init__(self, poison: float, seed: int) -> None:
        self.poison, self.random = poison, random.Random(seed)
        self.turns: list[Turn] = []

    def iterations(self, extent: int) -> Iterator[int]:
        """The iterations of a concurrent loop in a random order."""
        order = list(range(extent))
        self.random.shuffle(order)
        self.turns.append(Turn())
        for value in order:
            self.turns[-1].now = value
            yield value
        self.turns.pop().finish()

    def assume(self, holds: bool, text: str) -> None:
        if not holds:
            raise Misuse(f"the assumption `{text}` does not hold")

    def undef(self, dtype: str) -> Any:
        if is_float(dtype):
            return self.poison
        first = math.isnan(self.poison)
        return first if dtype == "bool" else 77 if first else held(-55, dtype)

    def bind(self, value: int, extent: int, name: str) -> int:
        if not 0 <= value < extent:
            raise Misuse(f"iterator {name} of extent {extent} is {value}")
        return value


RANGES = {f"int{n}": (-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (8, 16, 32, 64)}
RANGES |= {f"uint{n}": (0, 2**n - 1) for n in (8, 16, 32, 64)}
"""The least and the greatest value of each integer type."""


def held(value: int, dtype: str) -> int:
    """What an integer type holds of a number: its last bits."""
    low, high = RANGES[dtype]
    return ((value - low) & (high - low)) + low


def truncated(value: float, dtype: str) -> int:
    """A float as an integer: towards zero, at most to the ends of the type; NaN is 0."""
    low, high = RANGES[dtype]
    if value != value or math.isinf(value):
        return 0 if value != value else high if value > 0 else low
    return min(max(int(value), low), high)


def rounded(value: float, dtype: str) -> float:
    """The nearest number of a float type."""
    if dtype != "float32" or not math.isfinite(value):
        return float(value)
    return float(struct.unpack("f", struct.pack("f", value))[0])


def divided(a: int, b: int, rest: bool) -> int:
    if b == 0:
        raise Misuse("divides by zero")
    return a % b if rest else a // b


def lowest(a: Any, b: Any) -> Any:
    return math.nan if a != a or b != b else min(a, b)


def highest(a: Any, b: Any) -> Any:
    return math.nan if a != a or b != b else max(a, b)


def raw(cells: Cells, *point: int) -> Any:
    cells.check(point, "assumes about")
    return cells.value.get(point)


OPERATIONS: dict[str, Any] = {
    "Cells": Cells, "raw": raw, "lowest": lowest, "highest": highest, "pick": lambda c, a, b: a if c else b,
    "truncated": truncated, "rounded": rounded, "divided": divided,
}  # fmt: skip


def _in_type(text: str, dtype: str) -> str:
    """The text of a number as the text of what its integer type holds of it."""
    low, high = RANGES[dtype]
    return f"((({text} - {low}) & {high - low}) + {low})"


def _cast(text: str, source: str, target: str) -> str:
    if is_float(target):
        return f"rounded({text}, '{target}')"
    if not is_int(target):
        return f"({text} != 0)"
    return f"truncated({text}, '{target}')" if is_float(source) else _in_type(f"int({text})", target)


class Writer:
    """Statements as Python text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.buffers: dict[str, Buffer] = {}
        self.raw = False

    def expr(self, e: Expr) -> str:
        match e:
            case Var():
                return f"v_{e.name}"
            case Const():
                return f"float('{e.value}')" if is_float(e.dtype) else repr(e.value)
            case Undef():
                return f"Poison(machine.undef('{e.dtype}'))"
            case Not():
                return f"negated({self.expr(e.a)})"
            case Binary(op="and" | "or") if not self.raw:
                return f"logic({e.op == 'and'}, {self.expr(e.a)}, lambda: {self.expr(e.b)})"
            case Binary(op=op):
                a, b = self.expr(e.a), self.expr(e.b)
                if op in ("min", "max"):
                    return f"{'lowest' if op == 'min' else 'highest'}({a}, {b})"
                if self.raw and op == "==" and any(isinstance(n, Undef) for n in walk(e)):
                    return "True"
                if op in ("//", "%"):
                    return _in_type(f"divided({a}, {b}, {op == '%'})", e.dtype)
                text = f"({a} {op} {b})"
                return _in_type(text, e.dtype) if op in ("+", "-", "*") and is_int(e.dtype) else text
            case Select():
                return f"pick({self.expr(e.cond)}, {self.expr(e.a)}, {self.expr(e.b)})"
            case Call():
                return self.call(e)
            case Cast():
                return _cast(self.expr(e.a), e.a.dtype, e.dtype)
            case LetExpr():
                return f"(lambda v_{e.var.name}: {self.expr(e.body)})({self.expr(e.value)})"
            case Load():
                name = "raw(b_{0}, {1})" if self.raw else "b_{0}.load({1})"
                self.buffers[e.buffer.name] = e.buffer
                return name.format(e.buffer.name, ", ".join(map(self.expr, e.indices)))
        raise NotImplementedError(type(e).__name__)

    def call(self, e: Call) -> str:
        args = [self.expr(arg) for arg in e.args]
        if e.name == "if_then_else":
            cond, a, b = args
            return f"({a} if {cond} else {b})"
        second = e.args[1]
        assert isinstance(second, Const)
        number = int(second.value)
        if e.name == "shift_left":
            return _in_type(f"({args[0]} * {1 << number})", e.dtype)
        if e.name == "shift_right":
            return f"({args[0]} // {1 << number})"
        assert e.name == "bitwise_and" and number & (number + 1) == 0
        return f"({args[0]} % {number + 1})"

    def emit(self, depth: int, line: str) -> None:
        self.lines.append(" " * depth + line)

    def stmt(self, s: Stmt, depth: int) -> None:
        match s:
            case Seq():
                for item in s.stmts:
                    self.stmt(item, depth)
            case For():
                extent = self.expr(s.extent)
                how = f"machine.iterations({extent})" if s.kind in CONCURRENT else f"range({extent})"
                self.emit(depth, f"for v_{s.var.name} in {how}:")
                self.emit(depth + 1, "pass")
                self.stmt(s.body, depth + 1)
            case If():
                self.emit(depth, f"if {self.expr(s.cond)}:")
                self.emit(depth + 1, "pass")
                self.stmt(s.then, depth + 1)
                if s.orelse is not None:
                    self.emit(depth, "else:")
                    self.emit(depth + 1, "pass")
                    self.stmt(s.orelse, depth + 1)
            case Store():
                self.buffers[s.buffer.name] = s.buffer
                indices = ", ".join(map(self.expr, s.indices))
                self.emit(depth, f"b_{s.buffer.name}.store({indices}, value={self.expr(s.value)})")
            case Let():
                self.emit(depth, f"v_{s.var.name} = {self.expr(s.value)}")
                self.stmt(s.body, depth)
            case Assume():
                self.raw = True
                self.emit(depth, f"machine.assume({self.expr(s.cond)}, {repr(s.cond)!r})")
                self.raw = False
            case Evaluate():
                self.emit(depth, self.expr(s.value))
            case Declare() if self.buffers[s.buffer.memory].shape == s.buffer.shape:
                self.buffers[s.buffer.name] = s.buffer
                self.emit(depth, f"b_{s.buffer.name} = b_{s.buffer.memory}")
                self.stmt(s.body, depth)
            case Allocate():
                self.allocate(s.buffer, depth)
                self.stmt(s.body, depth)
            case Block():
                self.block(s, depth)
            case _:
                raise NotImplementedError(type(s).__name__)

    def allocate(self, buffer: Buffer, depth: int) -> None:
        self.buffers[buffer.name] = buffer
        self.emit(depth, f"b_{buffer.name} = Cells(buffers['{buffer.name}'], machine, True)")

    def block(self, block: Block, depth: int) -> None:
        self.emit(depth, f"if {self.expr(block.predicate)}:")
        depth += 1
        self.emit(depth, "pass")
        for item in block.iters:
            name = item.var.name
            self.emit(depth, f"v_{name} = machine.bind({self.expr(item.binding)}, {item.extent}, '{name}')")
        for buffer in block.allocs:
            self.allocate(buffer, depth)
        if block.init is not None:
            first = " and ".join(f"v_{i.var.name} == 0" for i in block.reduce) or "True"
            self.emit(depth, f"if {first}:")
            self.emit(depth + 1, "pass")
            self.stmt(block.init, depth + 1)
        self.stmt(block.body, depth)


def run(func: PrimFunc, inputs: Mapping[str, Any], poison: float, seed: int = 0) -> dict[str, Values]:
    """The logical elements of the outputs of `func`, whose logical inputs and scalars are `inputs`.

    Raises Misuse where the language does not allow what happens.
    """
    machine = Machine(poison, seed)
    outputs = {b.name for b in written_buffers(func)}
    layouts = dict(func.layouts)
    memory: dict[str, Cells] = {}
    places: dict[str, dict[Point, Point]] = {}
    for buffer in func.buffers:
        cells = memory[buffer.name] = Cells(buffer, machine, False)
        layout = layouts.get(buffer.name)
        shape = buffer.shape if layout is None else layout.logical_shape
        places[buffer.name] = _places(shape, None if layout is None else layout.index_map.text)
        if buffer.name not in outputs:
            cells.value = {place: inputs[buffer.name][point] for point, place in places[buffer.name].items()}
        if layout is not None:
            _pad(cells, set(places[buffer.name].values()), layout.pad_text, buffer, buffer.name in outputs)
    scalars = {param.name: inputs[param.name] for param in func.params if isinstance(param, Var)}
    _execute(func, machine, memory, scalars)
    return {
        b.name: _logical(b, memory[b.name], places[b.name], layouts.get(b.name))
        for b in func.buffers
        if b.name in outputs
    }


def _execute(func: PrimFunc, machine: Machine, memory: dict[str, Cells], scalars: Mapping[str, int]) -> None:
    code, buffers = _compiled(func)
    names = OPERATIONS | {"machine": machine, "buffers": buffers}
    names |= {f"b_{name}": cells for name, cells in memory.items()}
    names |= {f"v_{name}": value for name, value in scalars.items()}
    exec(code, names)
    try:
        names["program"]()
    except (Undecided, ZeroDivisionError) as error:
        raise Misuse(str(error)) from error


@lru_cache(16)
def _compiled(func: PrimFunc) -> tuple[Any, dict[str, Buffer]]:
    """The Python code of a function, and its buffers by name."""
    writer = Writer()
    writer.stmt(func.body, 1)
    code = compile("def program():\n pass\n" + "\n".join(writer.lines), "<program>", "exec")
    return code, writer.buffers


@lru_cache(64)
def _places(shape: tuple[int, ...], text: str | None) -> dict[Point, Point]:
    """Where each logical element lies."""
    points = list(product(*map(range, shape)))
    if text is None:
        return {p: p for p in points}
    index_map = IndexMap.parse(text)
    names = ", ".join(f"v_{v.name}" for v in index_map.variables)
    images = ", ".join(Writer().expr(e) for e in index_map.map_indices(list(index_map.variables)))
    place = eval(f"lambda {names}: ({images},)")
    return {p: place(*p) for p in points}


def _pad(cells: Cells, used: set[Point], text: str, buffer: Buffer, written: bool) -> None:
    """Give the padding of a parameter what its layout says."""
    meaning = {p: promised(text, buffer, cells, p) for p in product(*map(range, buffer.shape)) if p not in used}
    cells.forbidden = frozenset(point for point, value in meaning.items() if value is None)
    if not written:
        cells.value |= {point: value for point, value in meaning.items() if value is not None}


def promised(text: str, buffer: Buffer, cells: Cells, point: Point) -> Any:
    """The pad value that the text of a layout gives the element `point`; None where it may not be touched."""
    code = _pad_code(text, buffer)
    return eval(code, OPERATIONS | {f"b_{buffer.name}": cells, "machine": cells.machine})(*point)


@lru_cache(64)
def _pad_code(text: str, buffer: Buffer) -> Any:
    """The pad value as a function of the physical indices."""
    axes = [Var(f"p{k}") for k in range(len(buffer.shape))]
    writer, result = Writer(), "None"
    for cond, value in reversed(PadValue.parse(text, buffer).at(axes)):
        result = f"({None if value is None else writer.expr(value)} if {writer.expr(cond)} else {result})"
    return compile(f"lambda {', '.join(f'v_{v.name}' for v in axes)}: {result}", "<pad>", "eval")


def _logical(buffer: Buffer, cells: Cells, places: dict[Point, Point], layout: Layout | None) -> Values:
    """The logical elements of an output, whose padding must hold what its layout promises."""
    missing = next((point for point, place in places.items() if place not in cells.value), None)
    if missing is not None:
        raise Misuse(f"output {buffer.name}{list(missing)} is not written")
    if layout is not None and layout.promises:
        for place in set(product(*map(range, buffer.shape))) - set(places.values()):
            value = promised(layout.pad_text, buffer, cells, place)
            free = value is None or isinstance(value, Poison)
            if not free and plain(cells.value.get(place)) != value:
                raise Misuse(f"padding {buffer.name}{list(place)} holds {cells.value.get(place)} at the end")
    return {point: plain(cells.value[place]) for point, place in places.items()}


OPERATIONS |= {name: lifted(function) for name, function in OPERATIONS.items() if name not in ("Cells", "raw", "pick")}
OPERATIONS |= {"Poison": Poison, "negated": lifted(operator.not_), "logic": logic}
OPERATIONS |= {kind.__name__: lifted(kind) for kind in (int, float, bool)}
