"""Seconds of processor time that `simplify` and `remove_no_op` take for programs of so many statements, by kind.

``python benchmarks/long_programs.py --statements 1000`` prints a row for each kind of program: stores of one memory in
each other's place, stores under conditions, loops over fifty buffers, and loops that fill, ask and copy.
"""

from __future__ import annotations

import argparse
from time import process_time

import stridesmith as ss
from stridesmith.ir.caches import clear_caches

KINDS = {
    "stores": (1, "A[{small}] = X[{other}] + {k}"),
    "conditions": (2, "if X[{small}] > {k}:\n    A[{small}] = {k}"),
    "loops": (2, 'for i{k} in range(16):\n    B{few}[i{k}] = X[i{k}] + T.Cast("int32", i{k} * {k})'),
    "chains": (
        4,
        'for i{k} in range(16):\n    B{few}[i{k}] = T.Cast("int32", i{k})\n'
        "    if B{few}[i{k}] < {k}:\n        A[i{k}] = B{few}[i{k}]",
    ),
}
"""Programs by kind: statements in one copy of the text, and the text."""


def program(kind: str, statements: int) -> ss.PrimFunc:
    """A program of so many statements."""
    size, text = KINDS[kind]
    parts = (text.format(k=k, small=k % 64, other=7 * k % 64, few=k % 50) for k in range(statements // size))
    body = "\n".join(parts).replace("\n", "\n    ")
    buffers = ", ".join(f'B{k}: T.Buffer((16,), "int32")' for k in range(50))
    head = f'def f(A: T.Buffer((64,), "int32"), X: T.Buffer((64,), "int32"), {buffers}):'
    func = ss.parse(f"@T.prim_func\n{head}\n    {body}\n")
    assert isinstance(func, ss.PrimFunc)
    return func


def seconds(kind: str, name: str, statements: int) -> float:
    """The time of one pass over one program, of which nothing is known yet."""
    func = program(kind, statements)
    run = getattr(ss.transform, name)
    clear_caches()
    start = process_time()
    run(func)
    return process_time() - start


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--statements", type=int, default=1000)
    chosen = options.parse_args()
    ss.transform.simplify(program("stores", 4))  # what the first call of all imports
    print("| program | `simplify` | `remove_no_op` |\n|---|---|---|")
    for kind in KINDS:
        times = (seconds(kind, name, chosen.statements) for name in ("simplify", "remove_no_op"))
        print(f"| {kind} | " + " | ".join(f"{t:.2f} s" for t in times) + " |")


if __name__ == "__main__":
    main()
