"""Instances, dependences, last writers and contents agree with executing small programs point by point."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from flow_programs import programs
from hypothesis import given, settings
from scale import scaled

from stridesmith.ir.affine.sets import IntSet, box, points
from stridesmith.ir.dataflow.contents import held, reading
from stridesmith.ir.dataflow.dependence import Clash, clashes, common_loops, end_event, event, last_writers
from stridesmith.ir.dataflow.instances import Program, Statement, instances
from stridesmith.ir.expr import Binary, Call, Const, Expr, Load, Var
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import Block, For, If, PrimFunc, Seq, Stmt, Store


@dataclass
class Run:
    """What executing a program one point at a time showed."""

    executed: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    touches: list[tuple[int, tuple[int, ...], str, tuple[int, ...], bool]] = field(default_factory=list)
    last: dict[tuple[int, tuple[int, ...], Load], Any] = field(default_factory=dict)
    found: dict[tuple[int, tuple[int, ...], Load], Any] = field(default_factory=dict)
    writer: dict[tuple[str, tuple[int, ...]], Any] = field(default_factory=dict)
    value: dict[tuple[str, tuple[int, ...]], Any] = field(default_factory=dict)


class Executor:
    """Runs statements in order; constants are followed as values, everything else is "data"."""

    def __init__(self, program: Program) -> None:
        self.numbers = {id(s.stmt): s.number for s in program.statements}
        self.inputs = {b.name for b in program.func.buffers if b not in program.written}
        self.run = Run()

    def visit(self, stmt: Stmt, env: dict[Var, int]) -> None:
        if isinstance(stmt, Seq):
            for item in stmt.stmts:
                self.visit(item, env)
        elif isinstance(stmt, Block):
            self.visit(stmt.body, env)
        elif isinstance(stmt, For):
            for k in range(int(stmt.extent.value)):  # type: ignore[attr-defined]
                self.visit(stmt.body, {**env, stmt.var: k})
        elif isinstance(stmt, If):
            if number(stmt.cond, env):
                self.visit(stmt.then, env)
        else:
            assert isinstance(stmt, Store)
            self.store(stmt, env)

    def store(self, stmt: Store, env: dict[Var, int]) -> None:
        run, point = self.run, tuple(env.values())
        me = (self.numbers[id(stmt)], point)
        run.executed.append(me)
        value = self.value(stmt.value, env, me)
        element = tuple(int(number(i, env)) for i in stmt.indices)
        run.touches.append((*me, stmt.buffer.name, element, True))
        run.writer[stmt.buffer.name, element] = me
        run.value[stmt.buffer.name, element] = value

    def value(self, expr: Expr, env: dict[Var, int], me: tuple[int, tuple[int, ...]]) -> Any:
        if isinstance(expr, Const):
            return expr
        if isinstance(expr, Call) and expr.name == "if_then_else":
            return self.value(expr.args[1] if number(expr.args[0], env) else expr.args[2], env, me)
        if isinstance(expr, Load):
            element = tuple(int(number(i, env)) for i in expr.indices)
            key = (expr.buffer.name, element)
            self.run.touches.append((*me, *key, False))
            self.run.last[(*me, expr)] = self.run.writer.get(key)
            held_there = "data" if expr.buffer.name in self.inputs else self.run.value.get(key)
            self.run.found[(*me, expr)] = held_there
            return "data"
        assert isinstance(expr, Binary)
        self.value(expr.a, env, me)
        self.value(expr.b, env, me)
        return "data"


def number(expr: Expr, env: dict[Var, int]) -> int:
    """The value of an index or a condition."""
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        return env[expr]
    assert isinstance(expr, Binary)
    a, b = number(expr.a, env), number(expr.b, env)
    table: dict[str, Any] = {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b, "%": lambda: a % b,
        "<": lambda: a < b, "<=": lambda: a <= b, ">": lambda: a > b, ">=": lambda: a >= b, "==": lambda: a == b,
        "!=": lambda: a != b, "and": lambda: a and b, "or": lambda: a or b,
    }  # fmt: skip
    return int(table[expr.op]())


def enumerated(found: IntSet) -> set[tuple[int, ...]]:
    """All points of a bounded set."""
    result = set()
    while not found.is_empty():
        point = found.sample()
        assert point is not None
        values = tuple(point[v.name] for v in found.variables)
        result.add(values)
        single = found
        for v, value in zip(found.variables, values, strict=True):
            single = single.where(v.equal(value))
        found = found.subtract(single)
    return result


def executed(text: str) -> tuple[PrimFunc, Program, Run]:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    program = instances(func)
    executor = Executor(program)
    executor.visit(func.body, {})
    return func, program, executor.run


def points_of(statement: Statement) -> set[tuple[int, ...]]:
    return enumerated(points(statement.domain))


@settings(max_examples=scaled(120), deadline=None)
@given(programs())
def test_domains_are_the_executed_instances(text: str) -> None:
    """Every statement runs exactly at the points of its domain, in the order of its schedule."""
    _, program, run = executed(text)
    by_number = defaultdict(set)
    for statement, point in run.executed:
        by_number[statement].add(point)
    for statement in program.statements:
        assert statement.exact
        assert points_of(statement) == by_number[statement.number], text
    assert [time_of(program, s, p) for s, p in run.executed] == sorted(time_of(program, s, p) for s, p in run.executed)


def time_of(program: Program, number_: int, point: tuple[int, ...]) -> tuple[int, ...]:
    statement = program.statements[number_]
    env = dict(zip(statement.variables, point, strict=True))
    return tuple(t if isinstance(t, int) else env[t] for t in statement.schedule)


def in_order(program: Program) -> Iterator[Clash]:
    """Clashes in program order: for each loop around both those that it carries, then those of one iteration."""
    for source, target in itertools.product(program.statements, repeat=2):
        shared = [loop.var for loop in common_loops(source, target)]
        for depth, var in enumerate(shared):
            yield from clashes(source, target, (*program.parameters, *shared[:depth]), [(var, "<", var)])
        if source.number < target.number:
            yield from clashes(source, target, (*program.parameters, *shared))


@settings(max_examples=scaled(80), deadline=None)
@given(programs())
def test_dependences_are_the_ordered_clashes(text: str) -> None:
    """A dependence for each pair of instances that touch one element in order, one of them writing; none else."""
    _, program, run = executed(text)
    expected = set()
    for k, (s, p, memory, element, writes) in enumerate(run.touches):
        for s2, p2, memory2, element2, writes2 in run.touches[k + 1 :]:
            if (memory, element) == (memory2, element2) and (writes or writes2) and (s, p) != (s2, p2):
                kind = "anti" if not writes else "output" if writes2 else "flow"
                expected.add((kind, s, p, s2, p2))
    found = set()
    for clash in in_order(program):
        assert clash.exact
        size = len(clash.first.variables)
        kind = "anti" if not clash.a.is_write else "output" if clash.b.is_write else "flow"
        for pair in enumerated(points(clash.domain)):
            found.add((kind, clash.first.number, pair[:size], clash.second.number, pair[size:]))
    assert found == expected, text


@settings(max_examples=scaled(120), deadline=None)
@given(programs())
def test_last_writers_are_those_of_the_execution(text: str) -> None:
    """Exact dataflow finds for every read the instance that wrote last, and the reads that nothing precedes."""
    _, program, run = executed(text)
    for name in ("a", "b"):
        touching = [s for s in program.statements if any(a.buffer.name == name for a in s.accesses)]
        writes = [event(s, s.write) for s in touching if s.write is not None and s.write.buffer.name == name]
        reads = [event(s, a) for s in touching for a in s.reads if a.buffer.name == name]
        flow = last_writers(reads, writes)
        for read in reads:
            assert read.statement is not None and read.access is not None
            expected = {
                p: w for (s, p, load), w in run.last.items()
                if s == read.statement.number and load == read.access.node
            }  # fmt: skip
            found = {}
            for write in writes:
                relation = flow.of(read, write, certain=True)
                size = len(read.variables)
                for pair in enumerated(relation.pairs()) if relation is not None else ():
                    assert write.statement is not None
                    found[pair[:size]] = (write.statement.number, pair[size:])
            for point in enumerated(flow.unwritten[read.tag]):
                found[point] = None
            assert found == expected, text


def test_an_element_between_written_ones_is_unwritten() -> None:
    """Writes of every second element leave the others, in the middle of the loop that reads them, too."""
    func = parse("""
        @T.prim_func
        def main(b: T.Buffer((6,), 'float32')):
            a = T.alloc_buffer((6,), 'float32')
            a[0] = T.float32(0)
            for j in range(3):
                a[0] = a[j]
                if j >= 1:
                    a[j % 2 * 2] = T.float32(0)
    """)
    assert isinstance(func, PrimFunc)
    program = instances(func)
    read = next(a for a in program.statements[1].accesses if not a.is_write)
    writes = [event(s, s.write) for s in program.statements if s.write is not None]
    flow = last_writers([event(program.statements[1], read)], writes)
    [unwritten] = flow.unwritten.values()
    assert enumerated(unwritten) == {(1,)}


@settings(max_examples=scaled(120), deadline=None)
@given(programs())
def test_the_end_sees_the_last_writers(text: str) -> None:
    """What the function's end reads of an output was written by the instance that wrote last."""
    func, program, run = executed(text)
    buffer = func.buffers[1]
    writes = [event(s, s.write) for s in program.statements if s.write is not None and s.write.buffer == buffer]
    end = end_event(buffer, box([Var("p0")], buffer.shape))
    flow = last_writers([end], writes)
    found = {}
    for write in writes:
        relation = flow.of(end, write, certain=True)
        for pair in enumerated(relation.pairs()) if relation is not None else ():
            assert write.statement is not None
            found[pair[:1]] = (write.statement.number, pair[1:])
    assert found == {element: w for (name, element), w in run.writer.items() if name == "b"}, text


@pytest.mark.parametrize("exact", [False, True], ids=["images", "dataflow"])
@settings(max_examples=scaled(120), deadline=None)
@given(text=programs())
def test_known_contents_are_what_the_execution_finds(exact: bool, text: str) -> None:
    """A value that is called certain is there, and so is something wherever nothing is called missing.

    By dataflow, every constant that is always there is known, too.
    """
    _, program, run = executed(text)
    for statement in program.statements:
        for access in statement.reads:
            contents = held(program, reading(statement, access), exact=exact)
            here = {p: v for (s, p, load), v in run.found.items() if s == statement.number and load == access.node}
            known = {p: value for value, where in contents.values for p in enumerated(where)}
            assert all(here[p] == value for p, value in known.items() if p in here), text
            missing = enumerated(contents.missing)
            assert {p for p, value in here.items() if value is None} <= missing, text
            if exact:
                assert {p for p, v in here.items() if isinstance(v, Const)} == set(known) & set(here), text
                assert {p for p, v in here.items() if v is None} == missing & set(here), text


def test_iterators_lanes_and_views_are_resolved() -> None:
    """Iterators and views are written out; a vector access has its lane as a dimension."""
    func = parse("""
@T.prim_func
def main(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
    flat = T.decl_buffer((32,), "float32", data=x.data)
    for i in range(4):
        with T.block("copy"):
            vi = T.axis.spatial(4, 3 - i)
            y[vi, T.ramp(0, 1, 8)] = flat[T.ramp(vi * 8, 1, 8)]
""")
    assert isinstance(func, PrimFunc)
    (statement,) = instances(func).statements
    assert statement.lane is not None
    i, lane = statement.variables
    read, write = statement.accesses
    assert read.buffer == func.buffers[0] and not read.whole
    for point in points_of(statement):
        env = dict(zip((i, lane), point, strict=True))
        assert [number(e, env) for e in read.indices] == [3 - point[0], point[1]]
        assert [number(e, env) for e in write.indices] == [3 - point[0], point[1]]


def test_init_stands_at_the_first_point_of_its_reduction() -> None:
    """A block's init is a statement of its own, just before the body, where all reduce iterators are 0."""
    func = parse("""
@T.prim_func
def main(x: T.Buffer((3, 4), "float32"), y: T.Buffer((3,), "float32")):
    for i, k in T.grid(3, 4):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi, vk]
""")
    assert isinstance(func, PrimFunc)
    init, body = instances(func).statements
    assert init.is_init and not body.is_init
    assert points_of(init) == {(i, 0) for i in range(3)}
    assert init.schedule[:-1] == body.schedule[:-1]
    assert isinstance(init.schedule[-1], int) and isinstance(body.schedule[-1], int)
    assert init.schedule[-1] < body.schedule[-1]


def test_memory_allocated_in_a_loop_is_new_in_every_iteration() -> None:
    """What one iteration left in its own memory is not found by the next."""
    func = parse("""
@T.prim_func
def main(x: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32")):
    for i in range(3):
        with T.block("own"):
            vi = T.axis.spatial(3, i)
            t = T.alloc_buffer((2,), "float32")
            t[0] = x[vi]
            y[vi] = t[0] + t[vi % 2]
""")
    assert isinstance(func, PrimFunc)
    program = instances(func)
    use = program.statements[1]
    first, second = (a for a in use.reads if a.buffer.name == "t")
    assert held(program, reading(use, first)).missing.is_empty()
    for exact in (False, True):
        assert enumerated(held(program, reading(use, second), exact=exact).missing) == {(1,)}
