"""Multiply-adds into register tiles whose accumulator stays where it is.

``C = C + a * b`` has three register operands and overwrites one of them.  LLVM chooses which: where
`a` is not used again it may write over `a` (``vfmadd213ps``), and the accumulators of an unrolled
reduction wander through the registers, with moves at the end of each step and a spilled one as soon
as the tile is nearly as large as the register file.  A tile of 14 accumulators over 4 unrolled steps
has 10 accesses to the stack like that, and none where the instruction is written with its result
tied to the accumulator.

Where registers are plenty (AVX-512, NEON) LLVM's choice costs nothing, and it folds broadcasts into
the instruction, so it is left to it there.
"""

from __future__ import annotations

from ...ir import dtypes
from ...ir.expr import Binary, Expr, Load
from ...ir.stmt import Store
from ...ir.target import Target

FEW_REGISTERS = 16
_SUFFIX = {"float32": "ps", "float64": "pd"}


def has_tied_multiply_add(target: Target) -> bool:
    """Whether the target is an x86 with three-operand multiply-adds and few vector registers."""
    return target.registers <= FEW_REGISTERS and "+fma" in target.features.split(",")


def product_added(stmt: Store) -> tuple[Load, Expr, Expr] | None:
    """``(C, a, b)`` of a statement ``C = C + a * b`` on a vector in a register tile, else None."""
    value = stmt.value
    if stmt.buffer.scope != "local" or not isinstance(value, Binary) or value.op != "+":
        return None
    for own, product in ((value.a, value.b), (value.b, value.a)):
        updates = isinstance(own, Load) and own.buffer == stmt.buffer and own.indices == stmt.indices
        if updates and isinstance(product, Binary) and product.op == "*":
            assert isinstance(own, Load)
            return own, product.a, product.b
    return None


def tied_multiply_add(dtype: str) -> str | None:
    """The callee that takes `a`, `b` and `C`, or None where the type fills no register of 16 or 32 bytes."""
    suffix = _SUFFIX.get(dtypes.element(dtype))
    if suffix is None or dtypes.lanes(dtype) < 2 or dtypes.nbytes(dtype) not in (16, 32):
        return None
    return f'asm "vfmadd231{suffix} $2, $1, $0", "=x,x,x,0"'
