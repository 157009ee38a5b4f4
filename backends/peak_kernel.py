"""Peak and bandwidth of a device that is not the host's CPU, by programs of our own language.

The same kernels as on the CPU, written in lowered form, so that whatever code generator the device
has makes them: chains of fused multiply-adds in each work-item's registers, and sums over memory.
"""

from __future__ import annotations

import math

from ..ir import dtypes
from ..ir.expr import Buffer, Cast, Expr, Var, as_expr, const
from ..ir.stmt import Allocate, For, Stmt, Store, loops, seq
from ..ir.target import Target
from .executable import Bound
from .kernel import compile_lowered, load_artifact
from .lower import Lowered

CHAINS = 16  # independent multiply-adds of one work-item
GROUPS_PER_UNIT = 16  # work-groups of each compute unit, a choice
_GROUP, _ITEM = Var("group"), Var("item")


def device_peak(target: Target, dtype: str, bursts: int, burst_seconds: float) -> float:
    """GFLOP/s of multiply-adds, the best of `bursts` bursts of about `burst_seconds` each."""
    items, rounds = _groups(target) * _group(target), 512
    bound = _bind(_multiply_adds(target, dtype, rounds), target)
    flops = 2.0 * items * rounds * CHAINS
    return flops / _best(bound, bursts, burst_seconds) * 1e-9


def device_bandwidth(target: Target, nbytes: int, bursts: int) -> float:
    """Bytes a second read from the device's memory."""
    program, read = _sums(target, nbytes)
    return read / _best(_bind(program, target), bursts, 0.0)


def _best(bound: Bound, bursts: int, burst_seconds: float) -> float:
    """The least seconds per call; the first call, which may still compile, does not count."""
    bound.run()
    once = max(bound.time(1), 1e-9)
    calls = max(1, math.ceil(burst_seconds / once))
    return min(bound.time(calls) for _ in range(bursts))


def _bind(program: Lowered, target: Target) -> Bound:
    return load_artifact(compile_lowered(program, target)).bind()


def _group(target: Target) -> int:
    return max(1, min(target.max_work_group, 256))


def _groups(target: Target) -> int:
    return max(1, target.units) * GROUPS_PER_UNIT


def _work_items(target: Target, body: Stmt) -> Stmt:
    """`body` for each work-item: `item` of `group`."""
    inner = For(_ITEM, const(_group(target)), body, "thread_binding", "threadIdx.x")
    return For(_GROUP, const(_groups(target)), inner, "thread_binding", "blockIdx.x")


def _multiply_adds(target: Target, dtype: str, rounds: int) -> Lowered:
    """``x = x * a + b`` in CHAINS registers, `rounds` times; the sum is stored, so that none is dead.

    Written as a product and a sum, which every OpenCL compiler contracts; its function `fma` may be a call.
    """
    out = Buffer("out", (_groups(target) * _group(target),), dtype)
    registers = Buffer("x", (CHAINS,), dtype, scope="local")
    chain, step = Var("chain"), Var("step")
    first, factor, addend = (1e-3, 0.999, 0.001) if dtypes.is_float(dtype) else (1, 3, 1)
    start = Store(registers, (chain,), Cast(dtype, _ITEM + _GROUP) * const(first, dtype))
    update = Store(registers, (chain,), registers[chain] * const(factor, dtype) + const(addend, dtype))
    total: Expr = registers[0]
    for number in range(1, CHAINS):
        total = total + registers[number]
    body = seq([
        loops([(chain, CHAINS)], start, "unrolled"),
        For(step, const(rounds), loops([(chain, CHAINS)], update, "unrolled")),
        Store(out, (_GROUP * _group(target) + _ITEM,), total),
    ])  # fmt: skip
    return Lowered("multiply_adds", (out,), (), _work_items(target, Allocate(registers, body)))


def _sums(target: Target, nbytes: int) -> tuple[Lowered, int]:
    """Each work-item sums every n-th element, n their number; neighbours read neighbours."""
    items = _groups(target) * _group(target)
    steps = max(1, nbytes // (items * dtypes.nbytes("float32")))
    data, out = Buffer("data", (items * steps,)), Buffer("out", (items,))
    total = Buffer("total", (1,), scope="local")
    step, place = Var("step"), _GROUP * _group(target) + _ITEM
    body = seq([
        Store(total, (as_expr(0),), const(0.0)),
        For(step, const(steps), Store(total, (as_expr(0),), total[0] + data[step * items + place])),
        Store(out, (place,), total[0]),
    ])  # fmt: skip
    program = Lowered("sums", (data, out), (), _work_items(target, Allocate(total, body)))
    return program, data.nbytes
