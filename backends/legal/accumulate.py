"""Multiply-adds into register tiles whose accumulator stays where it is.

::

    C[r] = C[r] + a * b  ->  C[r] = multiply_accumulate(a, b, C[r])

``C = C + a * b`` has three register operands and overwrites one of them.  LLVM chooses which: where
`a` is not used again it may write over `a` (``vfmadd213ps``), and the accumulators of an unrolled
reduction wander through the registers, with moves at the end of each step and a spilled one as soon
as the tile is nearly as large as the register file.  A tile of 14 accumulators over 4 unrolled steps
has 10 accesses to the stack like that, and none where the instruction is written with its result
tied to the accumulator.

Conditions: (1) `C` is a vector in a register tile, and fills a register; (2) the target has such an
instruction, and few registers.  Where registers are plenty (AVX-512, NEON) LLVM's choice costs nothing, and it folds
broadcasts into the instruction, so that sums and products stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir import dtypes
from ...ir.expr import Binary, Call, Expr, Load
from ...ir.functions import MULTIPLY_ACCUMULATE
from ...ir.stmt import Stmt, Store, transform_statements
from ...ir.target import Target

FEW_REGISTERS = 16  # those of SSE, AVX and AVX2 (`ir.isa.VECTORS`); there are 32 elsewhere


def multiply_accumulates(stmt: Stmt, target: Target) -> Stmt:
    """The statement with multiply-adds into register tiles as nodes, by conditions (1) and (2)."""
    if target.kind != "cpu" or target.registers > FEW_REGISTERS or "fma" not in target.cpu_features:
        return stmt
    return transform_statements(stmt, lambda node: _accumulated(node) if isinstance(node, Store) else node)


def _accumulated(stmt: Store) -> Store:
    value, dtype = stmt.value, stmt.value.dtype
    if stmt.buffer.scope != "local" or not isinstance(value, Binary) or value.op != "+" or not fills_register(dtype):
        return stmt
    own = Load(stmt.buffer, stmt.indices)
    for mine, product in ((value.a, value.b), (value.b, value.a)):
        if mine == own and isinstance(product, Binary) and product.op == "*":
            factors: tuple[Expr, ...] = (product.a, product.b)
            return replace(stmt, value=Call(MULTIPLY_ACCUMULATE, (*factors, own), dtype))
    return stmt


def fills_register(dtype: str) -> bool:
    """Whether a vector of floats has the 16 or 32 bytes of a register of SSE or AVX."""
    is_float = dtypes.element(dtype) in ("float32", "float64")
    return is_float and dtypes.lanes(dtype) > 1 and dtypes.nbytes(dtype) in (16, 32)
