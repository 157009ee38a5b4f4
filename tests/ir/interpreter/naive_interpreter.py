"""Programs over integers, run statement by statement with dictionaries: the interpreter's oracle."""

from __future__ import annotations

from typing import Any

from numpy import ndindex

from stridesmith.ir.expr import Binary, Call, Cast, Const, Expr, Load, Not, Select, Var
from stridesmith.ir.stmt import Allocate, Block, For, If, Let, PrimFunc, Seq, Stmt, Store, written_buffers

Memory = dict[str, dict[tuple[int, ...], int]]


class Misuse(Exception):
    """An element is read that was never written, or an index leaves its buffer."""


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "%": lambda a, b: a % b,
    "//": lambda a, b: a // b, "min": min, "max": max,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "and": lambda a, b: a and b, "or": lambda a, b: a or b,
}  # fmt: skip


def evaluate(e: Expr, env: dict[Var, int], memory: Memory) -> Any:
    match e:
        case Var():
            return env[e]
        case Const():
            return e.value
        case Binary():
            value = OPERATORS[e.op](evaluate(e.a, env, memory), evaluate(e.b, env, memory))
            return wrap(value) if e.dtype == "int32" else value
        case Not():
            return not evaluate(e.a, env, memory)
        case Select():
            sides = evaluate(e.a, env, memory), evaluate(e.b, env, memory)
            return sides[0] if evaluate(e.cond, env, memory) else sides[1]
        case Call():
            return evaluate(e.args[1] if evaluate(e.args[0], env, memory) else e.args[2], env, memory)
        case Cast():
            return wrap(evaluate(e.a, env, memory))
        case Load():
            point = place(e, env, memory)
            if point not in memory[e.buffer.name]:
                raise Misuse
            return memory[e.buffer.name][point]
    raise AssertionError(e)


def place(access: Load | Store, env: dict[Var, int], memory: Memory) -> tuple[int, ...]:
    point = tuple(evaluate(i, env, memory) for i in access.indices)
    if not all(0 <= p < n for p, n in zip(point, access.buffer.shape, strict=True)):
        raise Misuse
    return point


def execute(stmt: Stmt, env: dict[Var, int], memory: Memory) -> None:
    match stmt:
        case Seq():
            for item in stmt.stmts:
                execute(item, env, memory)
        case For():
            for value in range(evaluate(stmt.extent, env, memory)):
                execute(stmt.body, {**env, stmt.var: value}, memory)
        case If():
            if evaluate(stmt.cond, env, memory):
                execute(stmt.then, env, memory)
            elif stmt.orelse is not None:
                execute(stmt.orelse, env, memory)
        case Store():
            value = evaluate(stmt.value, env, memory)
            memory[stmt.buffer.name][place(stmt, env, memory)] = value
        case Let():
            execute(stmt.body, {**env, stmt.var: evaluate(stmt.value, env, memory)}, memory)
        case Allocate():
            memory[stmt.buffer.name] = {}
            execute(stmt.body, env, memory)
        case Block():
            if evaluate(stmt.predicate, env, memory):
                execute(stmt.body, {**env, **{i.var: evaluate(i.binding, env, memory) for i in stmt.iters}}, memory)
        case _:
            raise AssertionError(stmt)


def run(func: PrimFunc, inputs: int) -> Memory:
    """Final contents of the parameters; those that are never stored to hold `inputs`."""
    outputs = written_buffers(func)
    memory: Memory = {b.name: {} if b in outputs else dict.fromkeys(ndindex(*b.shape), inputs) for b in func.buffers}
    execute(func.body, {}, memory)
    return memory
